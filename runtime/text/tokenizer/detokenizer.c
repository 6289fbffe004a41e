/* detokenizer.c -- ids to text as they come: pieces through the decoder's stages to bytes, bytes to
 * whole characters. A detokeniser belongs to one text; the tokeniser outlives it. */
#include "text/tokenizer/tokenizer_impl.h"
#include <string.h>

struct mn_detokenizer {
    const mn_tokenizer *tok;
    uint32_t flags;
    mn_decoder decoder;
    mn_text bytes; /* not yet a whole character */
};

static void detokenizer_start(mn_detokenizer *d) {
    mn_decoder_start(&d->decoder, d->flags & MN_DETOKENIZE_CONTINUE);
}

mn_status mn_detokenizer_create(const mn_tokenizer *tok, uint32_t flags, mn_detokenizer **out,
                                mn_error *err) {
    *out = NULL;
    mn_detokenizer *d = mn_calloc(1, sizeof *d);
    if (!d)
        return mn_fail_memory(err, sizeof *d);
    d->tok = tok;
    d->flags = flags;
    if (!mn_decoder_init(&d->decoder, &tok->decoder)) {
        mn_free(d);
        return mn_fail_memory(err, sizeof *d);
    }
    detokenizer_start(d);
    *out = d;
    return MN_OK;
}

void mn_detokenizer_free(mn_detokenizer *d) {
    if (!d)
        return;
    mn_decoder_free(&d->decoder);
    mn_text_free(&d->bytes);
    mn_free(d);
}

/* Of <0xXX>; -1 = it is spelled otherwise. */
static int detokenizer_byte_of(mn_str piece) {
    const char *p = piece.ptr;
    if (piece.len != 6 || memcmp(p, "<0x", 3) != 0 || p[5] != '>')
        return -1;
    const int high = mn_hex_digit(p[3]);
    const int low = mn_hex_digit(p[4]);
    if (high < 0 || low < 0)
        return -1;
    return high << 4 | low;
}

/* How the normaliser spells an added token. */
static mn_str detokenizer_normalized_text(const mn_tokenizer *tok, int32_t id) {
    const mn_added_set *set = &tok->normalized;
    for (size_t i = 0; i < set->n; i++)
        if (set->item[i].id == id)
            return set->item[i].text;
    return tok->vocab.token[id].piece;
}

/* Special tokens are shown as they are spelled; other added ones too, but for the marks of
 * spaces. */
static mn_decode_piece piece_of(const mn_tokenizer *tok, int32_t id) {
    const mn_vocab_token *t = &tok->vocab.token[id];
    const bool special = t->flags & MN_TOKEN_SPECIAL;
    const bool normalized = t->flags & MN_TOKEN_NORMALIZED;
    const bool added = t->flags & MN_TOKEN_ADDED;
    const bool byte = t->flags & MN_TOKEN_BYTE;
    return (mn_decode_piece){.text = normalized ? detokenizer_normalized_text(tok, id) : t->piece,
                             .verbatim = special,
                             .plain = special || (added && !normalized),
                             .byte = byte ? detokenizer_byte_of(t->piece) : -1};
}

/* How many bytes at s, which begin no character, one U+FFFD stands for: the longest start of one
 * (Unicode, 3.9). */
static size_t bad_length(const char *s, size_t n) {
    size_t len = 1;
    for (size_t k = 2; k <= 3 && k <= n; k++)
        if (mn_utf8_complete(s, k) == 0)
            len = k;
    return len;
}

/* Moves whole characters from the waiting bytes to out; at the end of a text, everything. */
static void detokenizer_flush(mn_detokenizer *d, mn_text *out, bool end) {
    mn_text *b = &d->bytes;
    const size_t usable = end ? b->len : mn_utf8_complete(b->ptr, b->len);
    size_t i = 0;
    while (i < usable) {
        const size_t good = mn_utf8_check(b->ptr + i, usable - i);
        mn_text_put(out, b->ptr + i, good);
        i += good;
        if (i == usable)
            break;
        mn_text_puts(out, "\xef\xbf\xbd");
        i += bad_length(b->ptr + i, usable - i);
    }
    memmove(b->ptr, b->ptr + i, b->len - i);
    b->len -= i;
}

mn_status mn_detokenizer_push(mn_detokenizer *d, int32_t id, mn_text *out) {
    const mn_vocab *v = &d->tok->vocab;
    if (id < 0)
        return MN_INVALID;
    if ((uint32_t)id >= v->n || !v->token[id].piece.len)
        return MN_OK;
    const bool special = v->token[id].flags & MN_TOKEN_SPECIAL;
    if (special && !(d->flags & MN_DETOKENIZE_SPECIAL))
        return MN_OK;
    if (!mn_decoder_push(&d->decoder, piece_of(d->tok, id), &d->bytes))
        return MN_OUT_OF_MEMORY;
    if (d->bytes.len)
        detokenizer_flush(d, out, false);
    return out->failed ? MN_OUT_OF_MEMORY : MN_OK;
}

mn_status mn_detokenizer_finish(mn_detokenizer *d, mn_text *out) {
    const bool ok = mn_decoder_finish(&d->decoder, &d->bytes);
    if (ok && d->bytes.len)
        detokenizer_flush(d, out, true);
    d->bytes.len = 0;
    detokenizer_start(d);
    return !ok || out->failed ? MN_OUT_OF_MEMORY : MN_OK;
}

mn_status mn_detokenizer_table(const mn_tokenizer *tok, mn_text *out, uint64_t *offset) {
    const mn_vocab *v = &tok->vocab;
    mn_decoder d = {0};
    bool ok = mn_decoder_init(&d, &tok->decoder);
    for (uint32_t id = 0; id < v->n && ok; id++) {
        offset[id] = out->len;
        if (!v->token[id].piece.len)
            continue;
        mn_decoder_start(&d, true);
        ok = mn_decoder_push(&d, piece_of(tok, (int32_t)id), out) && mn_decoder_finish(&d, out);
    }
    offset[v->n] = out->len;
    mn_decoder_free(&d);
    return ok && !out->failed ? MN_OK : MN_OUT_OF_MEMORY;
}
