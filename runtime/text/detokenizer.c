/* detokenizer.c -- ids to text as they come: pieces to bytes, bytes to whole characters. */
#include "text/tokenizer_impl.h"
#include <string.h>

struct mn_detokenizer {
    const mn_tokenizer *tok;
    uint32_t flags, strip_left;
    mn_text bytes; /* not yet a whole character */
    mn_text piece; /* scratch */
};

static void start(mn_detokenizer *d) { d->strip_left = d->flags & MN_DETOKENIZE_CONTINUE ? 0 : d->tok->strip_max; }

mn_status mn_detokenizer_create(const mn_tokenizer *tok, uint32_t flags, mn_detokenizer **out, mn_error *err) {
    *out = mn_calloc(1, sizeof **out);
    if (!*out) return mn_fail_memory(err, sizeof **out);
    (*out)->tok = tok;
    (*out)->flags = flags;
    start(*out);
    return MN_OK;
}

void mn_detokenizer_free(mn_detokenizer *d) {
    if (!d) return;
    mn_text_free(&d->bytes);
    mn_text_free(&d->piece);
    mn_free(d);
}

/* Visible characters back to bytes; a piece that holds another character was never byte-coded and stands for itself. */
static void put_bytes(mn_text *out, mn_str piece) {
    uint32_t code = 0;
    size_t mark = out->len;
    for (size_t i = 0; i < piece.len;) {
        int n = mn_utf8_decode(piece.ptr + i, (size_t)piece.len - i, &code);
        int byte = n > 0 ? mn_byte_of_char(code) : -1;
        if (byte < 0) {
            if (!out->failed) out->len = mark;
            mn_text_put(out, piece.ptr, (size_t)piece.len);
            return;
        }
        mn_text_put(out, &(char){(char)byte}, 1);
        i += (size_t)n;
    }
}

static void put_replaced(const mn_tokenizer *tok, mn_text *out, mn_str piece) {
    for (size_t i = 0; i < piece.len;) {
        const mn_decode_replace *hit = NULL;
        for (uint32_t k = 0; !hit && k < tok->n_replace; k++) {
            const mn_decode_replace *r = &tok->replace[k];
            if (r->from_len && r->from_len <= piece.len - i && !memcmp(piece.ptr + i, r->from, r->from_len)) hit = r;
        }
        if (hit)
            mn_text_put(out, hit->to, hit->to_len);
        else
            mn_text_put(out, piece.ptr + i, 1);
        i += hit ? hit->from_len : 1;
    }
}

static void put_piece(mn_detokenizer *d, int32_t id) {
    const mn_tokenizer *tok = d->tok;
    const mn_token *t = &tok->vocab.token[id];
    d->piece.len = 0;
    if (t->flags & MN_TOKEN_BYTE && tok->decode_fallback) {
        for (int b = 0; b < 256; b++)
            if (tok->vocab.byte_id[b] == id) mn_text_put(&d->piece, &(char){(char)b}, 1);
    } else if (t->flags & MN_TOKEN_SPECIAL || (t->flags & MN_TOKEN_ADDED && tok->decode_bytes))
        mn_text_put(&d->piece, t->piece.ptr, (size_t)t->piece.len);
    else if (tok->decode_bytes)
        put_bytes(&d->piece, t->piece);
    else
        put_replaced(tok, &d->piece, t->piece);
}

/* Drops what encoding put in front of the text. It may arrive byte by byte only in theory: whole repetitions count. */
static mn_str without_start(mn_detokenizer *d) {
    mn_str s = {d->piece.ptr, d->piece.len};
    const mn_tokenizer *tok = d->tok;
    while (d->strip_left && s.len >= tok->strip_len && !memcmp(s.ptr, tok->strip, tok->strip_len)) {
        s.ptr += tok->strip_len;
        s.len -= tok->strip_len;
        d->strip_left--;
    }
    if (s.len) d->strip_left = 0;
    return s;
}

/* How many bytes at s, which begin no character, one U+FFFD stands for: the longest start of one (Unicode, 3.9). */
static size_t bad_length(const char *s, size_t n) {
    size_t len = 1;
    for (size_t k = 2; k <= 3 && k <= n; k++)
        if (mn_utf8_complete(s, k) == 0) len = k;
    return len;
}

/* Moves whole characters from the waiting bytes to out; at the end of a text, everything. */
static void flush(mn_detokenizer *d, mn_text *out, bool end) {
    mn_text *b = &d->bytes;
    size_t usable = end ? b->len : mn_utf8_complete(b->ptr, b->len), i = 0;
    while (i < usable) {
        size_t good = mn_utf8_check(b->ptr + i, usable - i);
        mn_text_put(out, b->ptr + i, good);
        i += good;
        if (i == usable) break;
        mn_text_puts(out, "\xef\xbf\xbd");
        i += bad_length(b->ptr + i, usable - i);
    }
    memmove(b->ptr, b->ptr + i, b->len - i);
    b->len -= i;
}

mn_status mn_detokenizer_push(mn_detokenizer *d, int32_t id, mn_text *out) {
    if (id < 0) return MN_INVALID;
    if ((uint32_t)id >= d->tok->vocab.n || !d->tok->vocab.token[id].piece.len) return MN_OK;
    if (d->tok->vocab.token[id].flags & MN_TOKEN_SPECIAL && !(d->flags & MN_DETOKENIZE_SPECIAL)) return MN_OK;
    put_piece(d, id);
    if (!d->piece.failed && d->piece.len) {
        mn_str s = without_start(d);
        mn_text_put(&d->bytes, s.ptr, (size_t)s.len);
        if (!d->bytes.failed && d->bytes.len) flush(d, out, false);
    }
    return d->piece.failed || d->bytes.failed || out->failed ? MN_OUT_OF_MEMORY : MN_OK;
}

mn_status mn_detokenizer_finish(mn_detokenizer *d, mn_text *out) {
    if (d->bytes.len) flush(d, out, true);
    d->bytes.len = 0;
    start(d);
    return d->bytes.failed || out->failed ? MN_OUT_OF_MEMORY : MN_OK;
}
