/* bpe.c -- byte-pair encoding of one piece: symbols in a linked list, candidate pairs in
 * a heap, so that a piece of n characters costs n log n. MERGES takes the pair of the lowest rank,
 * SCORES the one whose union has the highest score; among equals the leftmost. (Sennrich et al.
 * 2016; Kudo and Richardson 2018.) */
#include "text/tokenizer/tokenizer_impl.h"
#include <string.h>

static bool before(const mn_candidate *a, const mn_candidate *b) {
    if (a->rank != b->rank)
        return a->rank < b->rank;
    if (a->score > b->score || a->score < b->score)
        return a->score > b->score;
    return a->left < b->left;
}

static bool heap_push(mn_encoder *e, mn_candidate c) {
    void *grown = e->heap;
    bool ok =
        e->n_heap < e->cap_heap || mn_grow(&grown, &e->cap_heap, e->n_heap + 1, sizeof *e->heap);
    e->heap = grown;
    if (!ok)
        return false;
    size_t i = e->n_heap++;
    for (; i > 0 && before(&c, &e->heap[(i - 1) / 2]); i = (i - 1) / 2)
        e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = c;
    return true;
}

static mn_candidate heap_pop(mn_encoder *e) {
    mn_candidate top = e->heap[0], last = e->heap[--e->n_heap];
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

/* Offers the pair that begins at symbol left, if it can be merged. */
static bool offer(const mn_tokenizer *tok, mn_encoder *e, const char *s, int32_t left) {
    if (left < 0 || e->sym[left].next < 0)
        return true;
    const mn_symbol_run *a = &e->sym[left], *b = &e->sym[a->next];
    mn_candidate c = {0, 0, left, -1, a->len + b->len};
    if (tok->model == MN_MODEL_SCORES) {
        c.id = mn_vocab_plain(&tok->vocab, s + a->off, c.len);
        if (c.id >= 0)
            c.score = tok->vocab.token[c.id].score;
    } else {
        const mn_merge *m = mn_vocab_merge(&tok->vocab, a->id, b->id);
        if (m)
            c.id = m->id, c.rank = m->rank;
    }
    return c.id < 0 || heap_push(e, c);
}

/* A candidate is stale when one of its symbols has since been merged with another. */
static bool still_holds(const mn_tokenizer *tok, const mn_encoder *e, const mn_candidate *c) {
    const mn_symbol_run *a = &e->sym[c->left];
    if (!a->len || a->next < 0 || a->len + e->sym[a->next].len != c->len)
        return false;
    if (tok->model == MN_MODEL_SCORES)
        return true;
    const mn_merge *m = mn_vocab_merge(&tok->vocab, a->id, e->sym[a->next].id);
    return m && m->id == c->id;
}

static bool merge_all(const mn_tokenizer *tok, mn_encoder *e, const char *s) {
    e->n_heap = 0;
    bool ok = true;
    for (size_t i = 0; ok && i + 1 < e->n_sym; i++)
        ok = offer(tok, e, s, (int32_t)i);
    while (ok && e->n_heap) {
        mn_candidate c = heap_pop(e);
        if (!still_holds(tok, e, &c))
            continue;
        mn_symbol_run *a = &e->sym[c.left], *b = &e->sym[a->next];
        a->len = c.len;
        a->id = c.id;
        a->next = b->next;
        b->len = 0;
        if (a->next >= 0)
            e->sym[a->next].prev = c.left;
        ok = offer(tok, e, s, a->prev) && offer(tok, e, s, c.left);
    }
    return ok;
}

static bool add_symbol(mn_encoder *e, int32_t id, size_t off, size_t len) {
    void *grown = e->sym;
    bool ok = e->n_sym < e->cap_sym || mn_grow(&grown, &e->cap_sym, e->n_sym + 1, sizeof *e->sym);
    e->sym = grown;
    if (!ok)
        return false;
    int32_t i = (int32_t)e->n_sym++;
    if (i > 0)
        e->sym[i - 1].next = i;
    e->sym[i] = (mn_symbol_run){i - 1, -1, id, (uint32_t)off, (uint32_t)len};
    return true;
}

/* MERGES: the unknown character before, which may grow. */
typedef struct {
    size_t off, len; /* len 0: none */
} unknown_run;

static bool put_unknown(const mn_tokenizer *tok, mn_encoder *e, unknown_run *u) {
    const size_t len = u->len;
    u->len = 0;
    return !len || add_symbol(e, tok->model_unk, u->off, len);
}

/* A character without a token of its own, with the affixes that the model gives it in key: its
 * bytes, else the unknown token (a run of them once if the model fuses them), else nothing. Only
 * merging by rank turns bytes into symbols before it merges. */
static bool add_unknown(const mn_tokenizer *tok, mn_encoder *e, mn_str key, size_t off, size_t len,
                        unknown_run *u) {
    bool ok = true;
    if (tok->byte_fallback && mn_vocab_has_bytes(&tok->vocab, key.ptr, (size_t)key.len)) {
        for (size_t i = 0; ok && i < key.len; i++)
            ok =
                add_symbol(e, tok->vocab.byte_id[(uint8_t)key.ptr[i]], off + MN_MIN(i, len - 1), 1);
        return ok;
    }
    if (tok->model_unk < 0)
        return true;
    if (tok->fuse_unk && u->len)
        return u->len += len, true;
    ok = put_unknown(tok, e, u);
    *u = (unknown_run){off, len};
    return ok;
}

/* A character as the vocabulary spells it there: marked inside a word, and at its end. */
static mn_str with_affixes(const mn_tokenizer *tok, mn_text *key, mn_str c, bool first, bool last) {
    if (!tok->continuing.len && !tok->ending.len)
        return c;
    key->len = 0;
    if (!first)
        mn_text_put(key, tok->continuing.ptr, (size_t)tok->continuing.len);
    mn_text_put(key, c.ptr, (size_t)c.len);
    if (last)
        mn_text_put(key, tok->ending.ptr, (size_t)tok->ending.len);
    return (mn_str){key->ptr, key->failed ? 0 : key->len};
}

/* MERGES. */
static bool add_ranked(const mn_tokenizer *tok, mn_encoder *e, const char *s, size_t n) {
    const mn_vocab *v = &tok->vocab;
    const bool bare = !tok->continuing.len && !tok->ending.len;
    mn_text key = {0};
    unknown_run u = {0, 0};
    bool ok = true;
    for (size_t i = 0, len; ok && i < n; i += len) {
        uint32_t code = 0;
        len = (size_t)MN_MAX(1, mn_utf8_decode(s + i, n - i, &code));
        const mn_str c = with_affixes(tok, &key, (mn_str){s + i, len}, i == 0, i + len == n);
        int32_t id = bare && code < MN_COUNT(v->char_id) ? v->char_id[code]
                                                         : mn_vocab_plain(v, c.ptr, (size_t)c.len);
        if (id < 0 && tok->byte_level)
            id = mn_vocab_find(v, c.ptr, (size_t)c.len); /* special or not: no byte is lost */
        ok = !key.failed && (id >= 0 ? put_unknown(tok, e, &u) && add_symbol(e, id, i, len)
                                     : add_unknown(tok, e, c, i, len, &u));
    }
    mn_text_free(&key);
    return ok && put_unknown(tok, e, &u);
}

static bool add_scored(const mn_tokenizer *tok, mn_encoder *e, const char *s, size_t n) {
    const mn_vocab *v = &tok->vocab;
    bool ok = true;
    for (size_t i = 0, len; ok && i < n; i += len) {
        uint32_t code = 0;
        len = (size_t)MN_MAX(1, mn_utf8_decode(s + i, n - i, &code));
        ok = add_symbol(
            e, code < MN_COUNT(v->char_id) ? v->char_id[code] : mn_vocab_plain(v, s + i, len), i,
            len);
    }
    return ok;
}

static bool add_symbols(const mn_tokenizer *tok, mn_encoder *e, const char *s, size_t n) {
    e->n_sym = 0;
    return tok->model == MN_MODEL_SCORES ? add_scored(tok, e, s, n) : add_ranked(tok, e, s, n);
}

/* SCORES: symbols without a token come out as bytes only now: they may have been merged on the
 * way. */
static mn_status put_scored(const mn_tokenizer *tok, mn_encoder *e, const char *s,
                            const mn_symbol_run *a, mn_error *err) {
    bool ok = true;
    if (a->id >= 0)
        ok = mn_ids_put(&e->ids, a->id);
    else if (mn_vocab_has_bytes(&tok->vocab, s + a->off, a->len))
        for (uint32_t k = 0; ok && k < a->len; k++)
            ok = mn_ids_put(&e->ids, tok->vocab.byte_id[(uint8_t)s[a->off + k]]);
    else if (tok->model_unk >= 0)
        ok = mn_ids_put(&e->ids, tok->model_unk);
    else
        return mn_fail(err, MN_BAD_INPUT,
                       "the vocabulary has no token for \"%.*s\" and none for unknown text",
                       (int)a->len, s + a->off);
    return ok ? MN_OK : mn_fail_memory(err, e->ids.n * sizeof *e->ids.id);
}

mn_status mn_bpe_encode(const mn_tokenizer *tok, mn_encoder *e, const char *s, size_t n,
                        mn_error *err) {
    int32_t whole = tok->ignore_merges ? mn_vocab_plain(&tok->vocab, s, n) : -1;
    if (whole >= 0)
        return mn_ids_put(&e->ids, whole) ? MN_OK : mn_fail_memory(err, e->ids.n * sizeof whole);
    if (!add_symbols(tok, e, s, n) || !merge_all(tok, e, s))
        return mn_fail_memory(err, n * sizeof *e->sym);
    mn_status st = MN_OK;
    bool unknown = false; /* SCORES: the symbol before became the unknown token */
    for (int32_t i = e->n_sym ? 0 : -1; !st && i >= 0; i = e->sym[i].next) {
        const mn_symbol_run *a = &e->sym[i];
        bool before = unknown;
        unknown = a->id < 0 && !mn_vocab_has_bytes(&tok->vocab, s + a->off, a->len);
        if (tok->fuse_unk && unknown && before)
            continue;
        if (tok->model == MN_MODEL_SCORES)
            st = put_scored(tok, e, s, a, err);
        else if (!mn_ids_put(&e->ids, a->id))
            st = mn_fail_memory(err, e->ids.n * sizeof whole);
    }
    return st;
}
