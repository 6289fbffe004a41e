/* trie.c -- the vocabulary as a trie: its nodes in the order of a depth-first walk, so that a walk
 * is a loop over arrays and a subtree that cannot match is one jump. Most tokens are plain: whole
 * characters that may stand in a JSON string. Where any of them may come, all come at once, so they
 * are listed in the order of the trie, and the others are a second, small trie. Made once per
 * model, read-only. */
#include "grammar/grammar_impl.h"
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 4096 }; /* bytes; longer tokens are never allowed */

static void trie_free(mn_gtrie *t) {
    mn_free(t->byte);
    mn_free(t->depth);
    mn_free(t->skip);
    mn_free(t->token);
}

void mn_grammar_vocab_free(mn_grammar_vocab *v) {
    if (!v)
        return;
    mn_galphabets_free(v->alphabets);
    trie_free(&v->all);
    trie_free(&v->rest);
    mn_free(v->run);
    mn_free(v->rest_from);
    mn_free(v->plain_from);
    mn_free(v->origin);
    mn_free(v->plain);
    mn_free(v->plain_run);
    mn_free(v->up_to);
    mn_free(v->same);
    mn_free(v->offset);
    mn_free(v->bytes);
    mn_free(v);
}

typedef struct {
    const char *ptr;
    uint32_t len, id;
} entry;

static int trie_by_bytes(const void *a, const void *b) {
    const entry *x = a;
    const entry *y = b;
    const int order = memcmp(x->ptr, y->ptr, MN_MIN(x->len, y->len));
    if (order)
        return order;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static bool trie_alloc(mn_gtrie *t, uint64_t n) {
    t->byte = mn_calloc(n, sizeof *t->byte);
    t->depth = mn_calloc(n, sizeof *t->depth);
    t->skip = mn_alloc(n, sizeof *t->skip);
    t->token = mn_alloc(n, sizeof *t->token);
    return t->byte && t->depth && t->skip && t->token;
}

/* Closes the nodes deeper than depth: what comes next lies behind them. */
static void close_nodes(mn_gtrie *t, const uint32_t *open, uint32_t from, uint32_t depth) {
    for (uint32_t d = from; d > depth; d--)
        t->skip[open[d]] = t->n;
}

/* Nodes of all tokens in order of their bytes. open: [longest + 1] the node at each depth */
static void add_nodes(mn_grammar_vocab *v, const entry *e, uint32_t n, uint32_t *open) {
    mn_gtrie *t = &v->all;
    uint32_t deep = 0;
    t->token[0] = -1;
    t->n = 1;
    open[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t shared = 0;
        while (i && shared < deep && shared < e[i].len && e[i].ptr[shared] == e[i - 1].ptr[shared])
            shared++;
        close_nodes(t, open, deep, shared);
        for (uint32_t d = shared; d < e[i].len; d++) {
            t->byte[t->n] = (uint8_t)e[i].ptr[d];
            t->depth[t->n] = (uint16_t)(d + 1);
            t->token[t->n] = -1;
            open[d + 1] = t->n++;
        }
        deep = e[i].len;
        int32_t *place = &t->token[open[deep]];
        v->same[e[i].id] = *place;
        *place = (int32_t)e[i].id;
    }
    close_nodes(t, open, deep, 0);
    t->skip[0] = t->n;
}

/* ---- plain tokens ---------------------------------------------------------------------------- */
/* The run of the path to the node that holds the last byte of text. */
static uint8_t run_of(mn_str text) {
    uint32_t run = 0;
    for (uint64_t at = 0; at < text.len; run++) {
        uint32_t code = 0;
        const int n = mn_utf8_decode(text.ptr + at, (size_t)(text.len - at), &code);
        if (!n || code < 0x20 || code == '"' || code == '\\')
            return MN_GRUN_NONE;
        at += (uint64_t)n;
    }
    return run > MN_GRUN_MOST ? MN_GRUN_NONE : (uint8_t)run;
}

static void find_runs(mn_grammar_vocab *v) {
    char path[LONGEST];
    for (uint32_t i = 1; i < v->all.n; i++) {
        const uint32_t depth = v->all.depth[i];
        path[depth - 1] = (char)v->all.byte[i];
        v->run[i] = run_of((mn_str){path, depth});
    }
}

static bool is_rest(const mn_grammar_vocab *v, uint32_t node) {
    return v->all.token[node] >= 0 && v->run[node] == MN_GRUN_NONE;
}

static void list_plain(mn_grammar_vocab *v) {
    const size_t words = MN_GRAMMAR_WORDS(v->n_vocab);
    for (uint32_t i = 0; i < v->all.n; i++) {
        v->plain_from[i] = v->n_plain;
        const bool plain = v->run[i] != MN_GRUN_NONE;
        for (int32_t id = v->all.token[i]; plain && id >= 0; id = v->same[id]) {
            v->plain_run[v->n_plain] = v->run[i];
            v->plain[v->n_plain++] = id;
            v->up_to[v->run[i] * words + (uint32_t)id / 32] |= 1u << id % 32;
        }
    }
    v->plain_from[v->all.n] = v->n_plain;
    for (size_t i = words; i < (MN_GRUN_MOST + 1) * words; i++)
        v->up_to[i] |= v->up_to[i - words];
}

/* The nodes that lead to tokens which are not plain. rest_from: 1 for each such node at first */
static void copy_rest(mn_grammar_vocab *v) {
    mn_gtrie *t = &v->rest;
    for (uint32_t i = 0; i <= v->all.n; i++) {
        const bool part = v->rest_from[i];
        v->rest_from[i] = t->n;
        if (!part)
            continue;
        t->byte[t->n] = v->all.byte[i];
        t->depth[t->n] = v->all.depth[i];
        t->token[t->n] = is_rest(v, i) ? v->all.token[i] : -1;
        v->origin[t->n++] = i;
    }
    for (uint32_t r = 0; r < t->n; r++)
        t->skip[r] = v->rest_from[v->all.skip[v->origin[r]]];
}

/* open: [longest + 1] the node at each depth */
static mn_status trie_divide(mn_grammar_vocab *v, uint32_t *open, mn_error *err) {
    const uint32_t n = v->all.n;
    uint32_t n_rest = 0;
    v->run = mn_calloc(n, sizeof *v->run);
    v->rest_from = mn_calloc(n + 1ull, sizeof *v->rest_from);
    v->plain_from = mn_alloc(n + 1ull, sizeof *v->plain_from);
    v->plain = mn_alloc(v->n_vocab, sizeof *v->plain);
    v->plain_run = mn_alloc(v->n_vocab, sizeof *v->plain_run);
    v->up_to = mn_calloc((MN_GRUN_MOST + 1ull) * MN_GRAMMAR_WORDS(v->n_vocab), sizeof *v->up_to);
    if (!v->run || !v->rest_from || !v->plain_from || !v->plain || !v->plain_run || !v->up_to)
        return mn_fail_memory(err, n * 9ull);
    find_runs(v);
    list_plain(v);
    open[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        open[v->all.depth[i]] = i;
        for (uint32_t d = v->all.depth[i] + 1u; d-- > 0 && is_rest(v, i);) {
            n_rest += !v->rest_from[open[d]];
            v->rest_from[open[d]] = 1;
        }
    }
    n_rest += !v->rest_from[0];
    v->rest_from[0] = 1;
    v->origin = mn_alloc(n_rest, sizeof *v->origin);
    if (!v->origin || !trie_alloc(&v->rest, n_rest))
        return mn_fail_memory(err, n_rest * 15ull);
    copy_rest(v);
    return MN_OK;
}

static mn_status trie_make(mn_grammar_vocab *v, const mn_str *text, entry *e, mn_error *err) {
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
    qsort(e, n, sizeof *e, trie_by_bytes);
    uint32_t *open = mn_alloc(v->longest + 1u, sizeof *open);
    mn_status st = MN_OK;
    if (open && trie_alloc(&v->all, at + 1)) {
        add_nodes(v, e, n, open);
        st = trie_divide(v, open, err);
    } else {
        st = mn_fail_memory(err, at * 11);
    }
    mn_free(open);
    return st;
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
        v->alphabets = mn_galphabets_create();
    }
    if (v && e && v->alphabets && v->offset && v->same && v->bytes)
        st = trie_make(v, text, e, err);
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
