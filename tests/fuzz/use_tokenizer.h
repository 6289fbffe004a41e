/* use_tokenizer.h -- text to ids and back by a tokeniser made of a fuzzer's input, and what must hold of both. */
#ifndef USE_TOKENIZER_H
#define USE_TOKENIZER_H
#include "fuzz.h"
#include "text/tokenizer.h"

#define DEFAULT_TEXT "Hello, w\xc3\xb6rld!  It's 1234 <s>\n\tx \xe4\xb8\xad\xf0\x9f\x98\x80"

static void use_ids(const mn_tokenizer *tok, const int32_t *ids, size_t n, uint32_t flags) {
    mn_detokenizer *d = NULL;
    mn_error err = MN_ERROR_INIT;
    mn_text out = {0};
    if (!fuzz_ok(mn_detokenizer_create(tok, flags, &d, &err), &err)) return;
    for (size_t i = 0; i < n; i++) {
        FUZZ_CHECK(!mn_detokenizer_push(d, ids[i], &out));
        FUZZ_CHECK(mn_utf8_check(out.ptr, out.len) == out.len);
    }
    FUZZ_CHECK(!mn_detokenizer_finish(d, &out));
    FUZZ_CHECK(mn_utf8_check(out.ptr, out.len) == out.len);
    mn_text_free(&out);
    mn_detokenizer_free(d);
}

/* Whether the text could be encoded. */
static bool use_tokenizer(const mn_tokenizer *tok, mn_str text) {
    mn_error err = MN_ERROR_INIT;
    int32_t *ids = NULL;
    size_t n = 0;
    uint32_t n_stop = 0;
    const uint32_t flags = MN_TOKENIZE_ADD_SPECIAL | MN_TOKENIZE_PARSE_SPECIAL;
    mn_tokenizer_stop_ids(tok, &n_stop);
    if (text.len > 4096) text.len = 4096;
    if (!fuzz_ok(mn_tokenizer_encode(tok, text, NULL, flags, &ids, &n, &err), &err)) return false;
    for (size_t i = 0; i < n; i++) FUZZ_CHECK(ids[i] >= 0 && (uint32_t)ids[i] < mn_tokenizer_n_vocab(tok));
    use_ids(tok, ids, n, 0);
    use_ids(tok, ids, n, MN_DETOKENIZE_SPECIAL | MN_DETOKENIZE_CONTINUE);
    mn_free(ids);
    return true;
}
#endif
