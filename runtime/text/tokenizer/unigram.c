/* unigram.c -- the most probable way to write a piece as tokens (Kudo 2018): the best path to each
 * byte, from left to right. A character that no token begins with costs more than any token.
 *
 * The pieces that begin at a byte are found by narrowing a range of the vocabulary, sorted by
 * spelling, byte by byte: no trie is built. What a model keeps for it (mn_unigram) is made once
 * after loading and not changed; paths are in the scratch memory of an encoding
 * (mn_encoder.best). */
#include "text/tokenizer/tokenizer_impl.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_PENALTY 10.0 /* below the least probable piece: SentencePiece's kUnkPenalty */

mn_status mn_unigram_init(mn_tokenizer *tok, mn_error *err) {
    const uint32_t n = tok->vocab.n;
    double *log_prob = mn_alloc(n, sizeof *log_prob);
    if (!log_prob)
        return mn_fail_memory(err, n * sizeof *log_prob);
    for (uint32_t i = 0; i < n; i++)
        log_prob[i] = NAN;
    tok->unigram.log_prob = log_prob;
    return MN_OK;
}

void mn_unigram_free(mn_unigram *u) {
    mn_free(u->log_prob);
    mn_free(u->sorted);
}

/* ---- after loading --------------------------------------------------------------------------- */

static int by_spelling(const void *a, const void *b, void *vocab) {
    const mn_vocab_token *token = ((const mn_vocab *)vocab)->token;
    const int32_t *x = a;
    const int32_t *y = b;
    const mn_str s = token[*x].piece;
    const mn_str t = token[*y].piece;
    const size_t n = (size_t)MN_MIN(s.len, t.len);
    const int order = memcmp(s.ptr, t.ptr, n);
    if (order)
        return order;
    return (s.len > t.len) - (s.len < t.len);
}

/* Fills sorted with the pieces that text may become. least: the lowest log probability of all. */
static mn_status unigram_collect(mn_tokenizer *tok, double *least, const char *where,
                                 mn_error *err) {
    const uint32_t never = MN_TOKEN_SPECIAL | MN_TOKEN_BYTE | MN_TOKEN_OUTSIDE;
    mn_unigram *u = &tok->unigram;
    *least = 0;
    for (uint32_t i = 0; i < tok->vocab.n; i++) {
        const mn_vocab_token *t = &tok->vocab.token[i];
        if (isnan(u->log_prob[i]))
            continue;
        if (!(fabs(u->log_prob[i]) <= 3e38))
            return mn_fail(err, MN_BAD_FILE,
                           "%s: token %u has %g, expected a finite log probability", where, i,
                           u->log_prob[i]);
        *least = MN_MIN(*least, u->log_prob[i]);
        if (t->piece.len && !(t->flags & never))
            u->sorted[u->n++] = (int32_t)i;
    }
    return MN_OK;
}

static uint8_t first_byte(const mn_tokenizer *tok, size_t i) {
    return (uint8_t)tok->vocab.token[tok->unigram.sorted[i]].piece.ptr[0];
}

/* first[b]: where the pieces that begin with byte b begin in sorted; where none does, an empty
 * range in front of the next. */
static void index_first_bytes(mn_tokenizer *tok) {
    mn_unigram *u = &tok->unigram;
    size_t i = u->n;
    u->first[256] = (uint32_t)u->n;
    for (size_t b = 256; b-- > 0;) {
        while (i > 0 && first_byte(tok, i - 1) >= b)
            i--;
        u->first[b] = (uint32_t)i;
    }
}

mn_status mn_unigram_finish(mn_tokenizer *tok, const char *where, mn_error *err) {
    mn_unigram *u = &tok->unigram;
    double least;
    u->sorted = mn_alloc(tok->vocab.n, sizeof *u->sorted);
    if (!u->sorted)
        return mn_fail_memory(err, tok->vocab.n * sizeof *u->sorted);
    mn_status st = unigram_collect(tok, &least, where, err);
    if (st)
        return st;
    u->unknown = least - UNKNOWN_PENALTY;
    if (u->single)
        u->unknown = (double)(float)u->unknown;
    qsort_r(u->sorted, u->n, sizeof *u->sorted, by_spelling, &tok->vocab);
    index_first_bytes(tok);
    return MN_OK;
}

/* ---- encoding -------------------------------------------------------------------------------- */

/* The first of sorted[lo..hi), which share depth bytes, whose next byte is at least b. */
static size_t lower_bound(const mn_tokenizer *tok, size_t lo, size_t hi, size_t depth, int b) {
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        const mn_str p = tok->vocab.token[tok->unigram.sorted[mid]].piece;
        if (p.len <= depth || (uint8_t)p.ptr[depth] < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* A path that comes to a byte by token id from the byte `from`: it counts if it is the best yet. */
static void unigram_reach(const mn_unigram *u, mn_best *to, double score, uint32_t from,
                          int32_t id) {
    if (u->single)
        score = (double)(float)score;
    if (to->from != UINT32_MAX && score <= to->score)
        return;
    *to = (mn_best){score, id, from};
}

/* Offers all tokens that begin at byte i; true if one is as long as the character there. */
static bool offer_tokens(const mn_tokenizer *tok, mn_best *best, const char *s, size_t n, size_t i,
                         size_t char_len) {
    const mn_unigram *u = &tok->unigram;
    uint8_t b = (uint8_t)s[i];
    size_t lo = u->first[b];
    size_t hi = u->first[b + 1];
    bool whole = false;
    for (size_t depth = 1; lo < hi; depth++) {
        const int32_t id = u->sorted[lo];
        if (tok->vocab.token[id].piece.len == depth) {
            unigram_reach(u, &best[i + depth], best[i].score + u->log_prob[id], (uint32_t)i, id);
            whole |= depth == char_len;
        }
        if (i + depth >= n)
            break;
        b = (uint8_t)s[i + depth];
        lo = lower_bound(tok, lo, hi, depth, b);
        hi = lower_bound(tok, lo, hi, depth, b + 1);
    }
    return whole;
}

/* Walks the path of best tokens, whose ends were linked forwards. A run of unknown characters
 * counts as one. */
static mn_status put_path(const mn_tokenizer *tok, mn_encoder *e, const char *s, size_t n,
                          mn_error *err) {
    const mn_best *best = e->best;
    mn_status st = MN_OK;
    for (size_t i = 0; !st && i < n;) {
        const size_t start = i;
        i = best[start].from;
        const int32_t id = best[i].id;
        if (id >= 0) {
            st = mn_ids_put(&e->ids, id, err);
            continue;
        }
        while (tok->fuse_unk && i < n && best[best[i].from].id < 0)
            i = best[i].from;
        const mn_str text = {s + start, i - start};
        const bool as_bytes = tok->byte_fallback && mn_vocab_has_bytes(&tok->vocab, text);
        st = mn_put_unknown(tok, e, text, as_bytes, err);
    }
    return st;
}

/* Turns the links from[i], which lead from byte n back to 0, so that they lead forwards. */
static void turn_links(mn_best *best, size_t n) {
    uint32_t to = (uint32_t)n;
    for (size_t i = n; i > 0;) {
        const uint32_t from = best[i].from;
        best[i].from = to;
        to = (uint32_t)i;
        i = from;
    }
    best[0].from = to;
}

/* A path for each byte of n, and the end, none of them begun; false: out of memory. */
static bool unigram_make_room(mn_encoder *e, size_t n) {
    void *grown = e->best;
    const bool ok = mn_grow(&grown, &e->cap_best, n + 1, sizeof *e->best);
    e->best = grown;
    if (!ok)
        return false;
    for (size_t i = 0; i <= n; i++)
        e->best[i] = (mn_best){0, -1, UINT32_MAX};
    return true;
}

mn_status mn_unigram_encode(const mn_tokenizer *tok, mn_encoder *e, mn_str s, mn_error *err) {
    const mn_unigram *u = &tok->unigram;
    const size_t n = (size_t)s.len;
    if (!unigram_make_room(e, n))
        return mn_fail_memory(err, (n + 1) * sizeof *e->best);
    mn_best *best = e->best;
    size_t i = 0;
    while (i < n) {
        uint32_t code = 0;
        const int decoded = mn_utf8_decode(s.ptr + i, n - i, &code);
        const size_t len = decoded > 0 ? (size_t)decoded : 1;
        const double unknown = best[i].score + u->unknown;
        if (!offer_tokens(tok, best, s.ptr, n, i, len))
            unigram_reach(u, &best[i + len], unknown, (uint32_t)i, -1);
        i += len;
    }
    turn_links(best, n);
    return put_path(tok, e, s.ptr, n, err);
}
