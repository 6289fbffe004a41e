/* wordpiece.c -- WordPiece: the longest piece that begins a word, then the longest that goes
 * on, and so forth; a word that cannot be written so is unknown as a whole (Schuster and Nakajima
 * 2012; BERT). Or plain words: one token each. */
#include "text/tokenizer/tokenizer_impl.h"
#include <string.h>

mn_status mn_words_init(mn_tokenizer *tok, mn_str continuing, uint32_t max_word, mn_error *err) {
    tok->max_word = max_word;
    return mn_vocab_keep(&tok->vocab, continuing, &tok->continuing, err);
}

static size_t count_chars(const char *s, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((uint8_t)s[i] & 0xc0) != 0x80;
    return count;
}

/* The longest piece that s[0..n) begins with; its bytes of s are added to *at. inside: pieces that
 * go on a word. */
static int32_t longest(const mn_tokenizer *tok, const char *s, size_t n, bool inside, size_t *at,
                       mn_text *key) {
    size_t prefix = inside ? (size_t)tok->continuing.len : 0;
    key->len = 0;
    mn_text_put(key, tok->continuing.ptr, prefix);
    mn_text_put(key, s, n = MN_MIN(n, tok->vocab.max_len));
    for (; n && !key->failed; n--) {
        int32_t id = mn_vocab_plain(&tok->vocab, key->ptr, prefix + n);
        if (id < 0)
            continue;
        *at += n;
        return id;
    }
    return -1;
}

/* The tokens of a word; false: it has none. */
static bool put_word(const mn_tokenizer *tok, mn_encoder *e, const char *s, size_t n, bool *ok) {
    mn_text key = {0};
    bool known = count_chars(s, n) <= tok->max_word;
    for (size_t at = 0; *ok && known && at < n;) {
        int32_t id = longest(tok, s + at, n - at, at > 0, &at, &key);
        known = id >= 0;
        *ok = !key.failed && (!known || mn_ids_put(&e->ids, id));
    }
    mn_text_free(&key);
    return known;
}

static bool put_whole_word(const mn_tokenizer *tok, mn_encoder *e, const char *s, size_t n,
                           bool *ok) {
    int32_t id = mn_vocab_plain(&tok->vocab, s, n);
    if (id >= 0)
        *ok = mn_ids_put(&e->ids, id);
    return id >= 0;
}

mn_status mn_words_encode(const mn_tokenizer *tok, mn_encoder *e, const char *s, size_t n,
                          mn_error *err) {
    size_t mark = e->ids.n;
    bool ok = true,
         known = tok->whole_words ? put_whole_word(tok, e, s, n, &ok) : put_word(tok, e, s, n, &ok);
    if (ok && !known) {
        e->ids.n = mark;
        if (tok->model_unk < 0)
            return mn_fail(err, MN_BAD_INPUT,
                           "the vocabulary has no tokens for \"%.*s\" and none for unknown words",
                           (int)MN_MIN(n, 40), s);
        ok = mn_ids_put(&e->ids, tok->model_unk);
    }
    return ok ? MN_OK : mn_fail_memory(err, n);
}
