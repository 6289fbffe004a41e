/* bpe.c -- byte-pair encoding of one piece: symbols in a linked list, candidate pairs in a heap, so
 * that a piece of n characters costs n log n. (Sennrich et al. 2016; Kudo and Richardson 2018.)
 *
 * BPE merges the pair of the lowest rank, SPM_BPE the one whose union has the highest score; among
 * equals the leftmost. Candidates are not taken out of the heap when one of their symbols is merged
 * with another: they are recognised as stale when they come up. */
#include "text/tokenizer/tokenizer_impl.h"
#include <string.h>

/* ---- the heap: the best candidate on top ----------------------------------------------------- */

static bool before(const mn_candidate *a, const mn_candidate *b) {
    if (a->rank != b->rank)
        return a->rank < b->rank;
    if (a->score > b->score || a->score < b->score)
        return a->score > b->score;
    return a->left < b->left;
}

/* false = out of memory, as in all functions here that return bool and are no questions. */
static bool heap_push(mn_encoder *e, mn_candidate c) {
    if (e->n_heap == e->cap_heap) {
        void *grown = e->heap;
        const bool ok = mn_grow(&grown, &e->cap_heap, e->n_heap + 1, sizeof *e->heap);
        e->heap = grown;
        if (!ok)
            return false;
    }
    size_t i = e->n_heap++;
    while (i > 0) {
        const size_t parent = (i - 1) / 2;
        if (!before(&c, &e->heap[parent]))
            break;
        e->heap[i] = e->heap[parent];
        i = parent;
    }
    e->heap[i] = c;
    return true;
}

static mn_candidate heap_pop(mn_encoder *e) {
    const mn_candidate top = e->heap[0];
    const mn_candidate last = e->heap[--e->n_heap];
    size_t i = 0;
    for (size_t k = 1; k < e->n_heap; k = 2 * i + 1) {
        if (k + 1 < e->n_heap && before(&e->heap[k + 1], &e->heap[k]))
            k++;
        if (!before(&e->heap[k], &last))
            break;
        e->heap[i] = e->heap[k];
        i = k;
    }
    e->heap[i] = last;
    return top;
}

/* ---- merging --------------------------------------------------------------------------------- */

/* Offers the pair that begins at symbol left, if it can be merged. s: the piece. */
static bool bpe_offer(const mn_tokenizer *tok, mn_encoder *e, const char *s, int32_t left) {
    const mn_vocab *v = &tok->vocab;
    if (left < 0 || e->sym[left].next < 0)
        return true;
    const mn_symbol_run *a = &e->sym[left];
    const mn_symbol_run *b = &e->sym[a->next];
    mn_candidate c = {.left = left, .id = -1, .len = a->len + b->len};
    if (tok->model == MN_TOKENIZER_SPM_BPE) {
        c.id = mn_vocab_plain(v, (mn_str){s + a->off, c.len});
        if (c.id >= 0)
            c.score = v->token[c.id].score;
    } else {
        const mn_merge *m = mn_vocab_merge(v, a->id, b->id);
        if (m) {
            c.id = m->id;
            c.rank = m->rank;
        }
    }
    return c.id < 0 || heap_push(e, c);
}

/* A candidate is stale when one of its symbols has since been merged with another. */
static bool still_holds(const mn_tokenizer *tok, const mn_encoder *e, const mn_candidate *c) {
    const mn_symbol_run *a = &e->sym[c->left];
    if (!a->len || a->next < 0)
        return false;
    const mn_symbol_run *b = &e->sym[a->next];
    if (a->len + b->len != c->len)
        return false;
    if (tok->model == MN_TOKENIZER_SPM_BPE)
        return true;
    const mn_merge *m = mn_vocab_merge(&tok->vocab, a->id, b->id);
    return m && m->id == c->id;
}

static bool bpe_merge_all(const mn_tokenizer *tok, mn_encoder *e, const char *s) {
    bool ok = true;
    e->n_heap = 0;
    for (size_t i = 0; ok && i + 1 < e->n_sym; i++)
        ok = bpe_offer(tok, e, s, (int32_t)i);
    while (ok && e->n_heap) {
        const mn_candidate c = heap_pop(e);
        if (!still_holds(tok, e, &c))
            continue;
        mn_symbol_run *a = &e->sym[c.left];
        mn_symbol_run *b = &e->sym[a->next];
        a->len = c.len;
        a->id = c.id;
        a->next = b->next;
        b->len = 0;
        if (a->next >= 0)
            e->sym[a->next].prev = c.left;
        ok = bpe_offer(tok, e, s, a->prev) && bpe_offer(tok, e, s, c.left);
    }
    return ok;
}

/* ---- a piece as symbols ---------------------------------------------------------------------- */

/* id -1: no token of its own, which SPM_BPE may still merge. off, len: bytes of the piece. */
static bool add_symbol(mn_encoder *e, int32_t id, size_t off, size_t len) {
    if (e->n_sym == e->cap_sym) {
        void *grown = e->sym;
        const bool ok = mn_grow(&grown, &e->cap_sym, e->n_sym + 1, sizeof *e->sym);
        e->sym = grown;
        if (!ok)
            return false;
    }
    const int32_t i = (int32_t)e->n_sym++;
    if (i > 0)
        e->sym[i - 1].next = i;
    e->sym[i] = (mn_symbol_run){i - 1, -1, id, (uint32_t)off, (uint32_t)len};
    return true;
}

/* Bytes of the character at s, and its code; a byte that begins none counts as one. */
static size_t next_char(const char *s, size_t n, uint32_t *code) {
    const int len = mn_utf8_decode(s, n, code);
    return len > 0 ? (size_t)len : 1;
}

/* The token of one character; -1 = none. */
static int32_t char_token(const mn_vocab *v, mn_str s, uint32_t code) {
    if (code < MN_COUNT(v->char_id))
        return v->char_id[code];
    return mn_vocab_plain(v, s);
}

/* BPE: the unknown character before, which may grow. len 0: none. */
typedef struct {
    size_t off, len;
} unknown_run;

static bool put_unknown(const mn_tokenizer *tok, mn_encoder *e, unknown_run *u) {
    const size_t len = u->len;
    u->len = 0;
    return !len || add_symbol(e, tok->model_unk, u->off, len);
}

/* A character without a token of its own: its bytes, else the unknown token (a run of them once if
 * the model fuses them), else nothing. Only merging by rank turns bytes into symbols before it
 * merges. */
static bool add_unknown(const mn_tokenizer *tok, mn_encoder *e, const char *s, size_t off,
                        size_t len, unknown_run *u) {
    const mn_vocab *v = &tok->vocab;
    bool ok = true;
    if (tok->byte_fallback && mn_vocab_has_bytes(v, (mn_str){s + off, len})) {
        for (size_t i = off; ok && i < off + len; i++)
            ok = add_symbol(e, v->byte_id[(uint8_t)s[i]], i, 1);
        return ok;
    }
    if (tok->model_unk < 0)
        return true;
    if (tok->fuse_unk && u->len) {
        u->len += len;
        return true;
    }
    ok = put_unknown(tok, e, u);
    *u = (unknown_run){off, len};
    return ok;
}

static bool add_ranked(const mn_tokenizer *tok, mn_encoder *e, const char *s, size_t n) {
    const mn_vocab *v = &tok->vocab;
    unknown_run u = {0, 0};
    bool ok = true;
    for (size_t i = 0, len; ok && i < n; i += len) {
        uint32_t code = 0;
        len = next_char(s + i, n - i, &code);
        const mn_str c = {s + i, len};
        int32_t id = char_token(v, c, code);
        if (id < 0 && tok->byte_level)
            id = mn_vocab_find(v, c); // special or not: no byte is lost
        if (id < 0)
            ok = add_unknown(tok, e, s, i, len, &u);
        else
            ok = put_unknown(tok, e, &u) && add_symbol(e, id, i, len);
    }
    return ok && put_unknown(tok, e, &u);
}

static bool add_scored(const mn_tokenizer *tok, mn_encoder *e, const char *s, size_t n) {
    bool ok = true;
    for (size_t i = 0, len; ok && i < n; i += len) {
        uint32_t code = 0;
        len = next_char(s + i, n - i, &code);
        const int32_t id = char_token(&tok->vocab, (mn_str){s + i, len}, code);
        ok = add_symbol(e, id, i, len);
    }
    return ok;
}

static bool add_symbols(const mn_tokenizer *tok, mn_encoder *e, const char *s, size_t n) {
    e->n_sym = 0;
    if (tok->model == MN_TOKENIZER_SPM_BPE)
        return add_scored(tok, e, s, n);
    return add_ranked(tok, e, s, n);
}

/* ---- symbols as ids -------------------------------------------------------------------------- */

/* The first of the list, which merging keeps in its place; -1 = the piece has none. */
static int32_t first_symbol(const mn_encoder *e) {
    return e->n_sym ? 0 : -1;
}

/* BPE: every symbol has a token. */
static mn_status put_merged(mn_encoder *e, mn_error *err) {
    mn_status st = MN_OK;
    int32_t i = first_symbol(e);
    while (!st && i >= 0) {
        const mn_symbol_run *a = &e->sym[i];
        st = mn_ids_put(&e->ids, a->id, err);
        i = a->next;
    }
    return st;
}

/* SPM_BPE: symbols without a token come out as bytes only now: they may have been merged on the
 * way. A run of unknown ones counts as one if the model fuses them. */
static mn_status put_scored(const mn_tokenizer *tok, mn_encoder *e, const char *s, mn_error *err) {
    bool was_unknown = false;
    mn_status st = MN_OK;
    for (int32_t i = first_symbol(e); !st && i >= 0; i = e->sym[i].next) {
        const mn_symbol_run *a = &e->sym[i];
        const mn_str text = {s + a->off, a->len};
        const bool unknown = a->id < 0 && !mn_vocab_has_bytes(&tok->vocab, text);
        const bool again = tok->fuse_unk && unknown && was_unknown;
        was_unknown = unknown;
        if (again)
            continue;
        if (a->id < 0)
            st = mn_put_unknown(tok, e, text, !unknown, err);
        else
            st = mn_ids_put(&e->ids, a->id, err);
    }
    return st;
}

mn_status mn_bpe_encode(const mn_tokenizer *tok, mn_encoder *e, mn_str s, mn_error *err) {
    const size_t n = (size_t)s.len;
    int32_t whole = -1;
    if (tok->ignore_merges)
        whole = mn_vocab_plain(&tok->vocab, s);
    if (whole >= 0)
        return mn_ids_put(&e->ids, whole, err);
    if (!add_symbols(tok, e, s.ptr, n))
        return mn_fail_memory(err, n * sizeof *e->sym);
    if (!bpe_merge_all(tok, e, s.ptr))
        return mn_fail_memory(err, n * sizeof *e->heap);
    if (tok->model == MN_TOKENIZER_SPM_BPE)
        return put_scored(tok, e, s.ptr, err);
    return put_merged(e, err);
}
