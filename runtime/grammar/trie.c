/* trie.c -- the vocabulary as a trie: its nodes in the order of a depth-first walk, so that a walk
 * is a loop over arrays and a subtree that cannot match is one jump. Made once per model,
 * read-only. */
#include "grammar/grammar_impl.h"
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 4096 }; /* bytes; longer tokens are never allowed */

void mn_grammar_vocab_free(mn_grammar_vocab *v) {
    if (!v)
        return;
    mn_free(v->byte);
    mn_free(v->depth);
    mn_free(v->skip);
    mn_free(v->token);
    mn_free(v->same);
    mn_free(v->offset);
    mn_free(v->bytes);
    mn_free(v);
}

typedef struct {
    const char *ptr;
    uint32_t len, id;
} entry;

static int by_bytes(const void *a, const void *b) {
    const entry *x = a;
    const entry *y = b;
    const int order = memcmp(x->ptr, y->ptr, MN_MIN(x->len, y->len));
    if (order)
        return order;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Closes the nodes deeper than depth: what comes next lies behind them. */
static void close_nodes(mn_grammar_vocab *v, const uint32_t *open, uint32_t from, uint32_t depth) {
    for (uint32_t d = from; d > depth; d--)
        v->skip[open[d]] = v->n;
}

/* Nodes of all tokens in order of their bytes. open: [longest + 1] the node at each depth */
static void add_nodes(mn_grammar_vocab *v, const entry *e, uint32_t n, uint32_t *open) {
    uint32_t deep = 0;
    v->token[0] = -1;
    v->n = 1;
    open[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t shared = 0;
        while (i && shared < deep && shared < e[i].len && e[i].ptr[shared] == e[i - 1].ptr[shared])
            shared++;
        close_nodes(v, open, deep, shared);
        for (uint32_t d = shared; d < e[i].len; d++) {
            v->byte[v->n] = (uint8_t)e[i].ptr[d];
            v->depth[v->n] = (uint16_t)(d + 1);
            v->token[v->n] = -1;
            open[d + 1] = v->n++;
        }
        deep = e[i].len;
        int32_t *place = &v->token[open[deep]];
        v->same[e[i].id] = *place;
        *place = (int32_t)e[i].id;
    }
    close_nodes(v, open, deep, 0);
    v->skip[0] = v->n;
}

static mn_status make(mn_grammar_vocab *v, const mn_str *text, entry *e, mn_error *err) {
    uint32_t n = 0;
    uint64_t at = 0;
    for (uint32_t id = 0; id < v->n_vocab; id++) {
        v->offset[id] = at;
        v->same[id] = -1;
        if (!text[id].len || text[id].len > LONGEST)
            continue;
        memcpy(v->bytes + at, text[id].ptr, (size_t)text[id].len);
        e[n++] = (entry){v->bytes + at, (uint32_t)text[id].len, id};
        v->longest = MN_MAX(v->longest, (uint32_t)text[id].len);
        at += text[id].len;
    }
    v->offset[v->n_vocab] = at;
    qsort(e, n, sizeof *e, by_bytes);
    uint32_t *open = mn_alloc(v->longest + 1u, sizeof *open);
    v->byte = mn_calloc(at + 1, sizeof *v->byte);
    v->depth = mn_calloc(at + 1, sizeof *v->depth);
    v->skip = mn_alloc(at + 1, sizeof *v->skip);
    v->token = mn_alloc(at + 1, sizeof *v->token);
    const bool ok = open && v->byte && v->depth && v->skip && v->token;
    if (ok)
        add_nodes(v, e, n, open);
    mn_free(open);
    return ok ? MN_OK : mn_fail_memory(err, at * 11);
}

mn_status mn_grammar_vocab_create(const mn_str *text, uint32_t n, mn_grammar_vocab **out,
                                  mn_error *err) {
    uint64_t total = 0;
    *out = NULL;
    for (uint32_t i = 0; i < n; i++)
        total += text[i].len;
    if (n > INT32_MAX || total >= 1u << 31)
        return mn_fail(err, MN_BAD_INPUT, "a vocabulary of %u tokens with %llu bytes is too large",
                       n, (unsigned long long)total);
    mn_grammar_vocab *v = mn_calloc(1, sizeof *v);
    entry *e = mn_alloc(n, sizeof *e);
    mn_status st = MN_OUT_OF_MEMORY;
    if (v) {
        v->n_vocab = n;
        v->offset = mn_alloc(n + 1ull, sizeof *v->offset);
        v->same = mn_alloc(n, sizeof *v->same);
        v->bytes = mn_alloc(total, 1);
    }
    if (v && e && v->offset && v->same && v->bytes)
        st = make(v, text, e, err);
    else
        mn_fail_memory(err, total);
    mn_free(e);
    if (st) {
        mn_grammar_vocab_free(v);
        return st;
    }
    *out = v;
    return MN_OK;
}
