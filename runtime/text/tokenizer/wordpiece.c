/* wordpiece.c -- WordPiece: the longest piece that begins a word, then the longest that goes on,
 * and so forth; a word that cannot be written so is unknown as a whole (Schuster and Nakajima 2012;
 * BERT). What marks a piece that goes on ("##") is the tokeniser's `continuing`; GGUF marks those
 * that begin a word instead, and has none. */
#include "text/tokenizer/tokenizer_impl.h"
#include <string.h>

mn_status mn_wordpiece_init(mn_tokenizer *tok, mn_str continuing, uint32_t max_word,
                            mn_error *err) {
    tok->max_word = max_word;
    return mn_vocab_keep(&tok->vocab, continuing, &tok->continuing, err);
}

static size_t count_chars(const char *s, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((uint8_t)s[i] & 0xc0) != 0x80;
    return count;
}

/* The longest piece that s[0..n) begins with, -1 = none; its bytes of s are added to *at. inside:
 * pieces that go on a word. key: scratch. */
static int32_t wordpiece_longest(const mn_tokenizer *tok, const char *s, size_t n, bool inside,
                                 size_t *at, mn_text *key) {
    const size_t prefix = inside ? (size_t)tok->continuing.len : 0;
    n = MN_MIN(n, tok->vocab.max_len);
    key->len = 0;
    mn_text_put(key, tok->continuing.ptr, prefix);
    mn_text_put(key, s, n);
    for (; n && !key->failed; n--) {
        const int32_t id = mn_vocab_plain(&tok->vocab, (mn_str){key->ptr, prefix + n});
        if (id < 0)
            continue;
        *at += n;
        return id;
    }
    return -1;
}

/* Appends the tokens of a word. *known = false: it has none, and what was appended has to go. */
static mn_status wordpiece_put_word(const mn_tokenizer *tok, mn_encoder *e, mn_str word,
                                    bool *known, mn_error *err) {
    const size_t n = (size_t)word.len;
    mn_text key = {0};
    mn_status st = MN_OK;
    size_t at = 0;
    *known = count_chars(word.ptr, n) <= tok->max_word;
    while (!st && *known && at < n) {
        const int32_t id = wordpiece_longest(tok, word.ptr + at, n - at, at > 0, &at, &key);
        *known = id >= 0;
        st = mn_ids_put(&e->ids, id, err);
        if (!st && key.failed)
            st = mn_fail_memory(err, n);
    }
    mn_text_free(&key);
    return st;
}

mn_status mn_wordpiece_encode(const mn_tokenizer *tok, mn_encoder *e, mn_str s, mn_error *err) {
    const size_t mark = e->ids.n;
    bool known;
    mn_status st = wordpiece_put_word(tok, e, s, &known, err);
    if (st || known)
        return st;
    e->ids.n = mark;
    return mn_put_unknown(tok, e, s, false, err);
}
