/* use_tokenizer.h -- text to ids and back by a tokeniser made of a fuzzer's input, and what must
 * hold of both. */
#ifndef USE_TOKENIZER_H
#define USE_TOKENIZER_H
#include "fuzz.h"
#include "text/chat/channels.h"
#include "text/tokenizer/tokenizer.h"
#include "convert/tokenizer_export.h"
#include <string.h>

#define DEFAULT_TEXT "Hello, w\xc3\xb6rld!  It's 1234 <s>\n\tx \xe4\xb8\xad\xf0\x9f\x98\x80"

static void use_ids(const mn_tokenizer *tok, const int32_t *ids, size_t n, uint32_t flags) {
    mn_detokenizer *d = NULL;
    mn_error err = MN_ERROR_INIT;
    mn_text out = {0};
    if (!fuzz_ok(mn_detokenizer_create(tok, flags, &d, &err), &err))
        return;
    size_t whole = 0; /* bytes known to be characters */
    for (size_t i = 0; i <= n; i++) {
        FUZZ_CHECK(fuzz_well(i < n ? mn_detokenizer_push(d, ids[i], &out)
                                   : mn_detokenizer_finish(d, &out)));
        if (out.len)
            whole += mn_utf8_check(out.ptr + whole, out.len - whole);
        FUZZ_CHECK(whole == out.len);
    }
    fuzz_refused += out.failed;
    fuzz_answered(out.ptr, out.len);
    mn_text_free(&out);
    mn_detokenizer_free(d);
}

static void use_channels(const mn_tokenizer *tok, const int32_t *ids, size_t n) {
    mn_channels c = mn_channels_of(tok);
    mn_channels_prompt(&c, ids, n / 2);
    for (size_t i = 0; i < n; i++) {
        mn_channels_push(&c, ids[i]);
        mn_channels_shows(&c, ids[i]);
        FUZZ_CHECK(memchr(c.header, 0, sizeof c.header) && memchr(c.tool, 0, sizeof c.tool));
        FUZZ_CHECK(mn_utf8_check(c.tool, strlen(c.tool)) == strlen(c.tool));
    }
}

/* As keys of GGUF, and a tokeniser of those. */
static inline void use_export(const mn_tokenizer *tok, const fuzz_parts *parts) {
    static mn_meta_entry name = {.key = {"general.name", 12},
                                 .value = {.type = MN_VALUE_STR, .s = {"x", 1}}};
    const mn_meta base = {&name, 1};
    mn_arena arena = {0};
    mn_meta meta = {0};
    mn_tokenizer *again = NULL;
    mn_error err = MN_ERROR_INIT;
    if (fuzz_ok(mn_tokenizer_export(tok, &base, parts->file, parts->n,
                                    mn_tokenizer_n_vocab(tok) + 1, &arena, &meta, &err),
                &err)) {
        FUZZ_CHECK(fuzz_ok(mn_tokenizer_create(&meta, NULL, 0, &again, &err), &err));
        mn_tokenizer_free(again);
    }
    mn_free(meta.entries);
    mn_arena_free(&arena);
}

/* Whether the text could be encoded. */
static bool use_tokenizer(const mn_tokenizer *tok, mn_str text) {
    mn_error err = MN_ERROR_INIT;
    int32_t *ids = NULL;
    size_t n = 0;
    uint32_t n_stop = 0;
    const uint32_t flags = MN_TOKENIZE_ADD_SPECIAL | MN_TOKENIZE_PARSE_SPECIAL;
    const int32_t *stop = mn_tokenizer_stop_ids(tok, &n_stop);
    fuzz_answered(stop, n_stop * sizeof *stop);
    if (text.len > 4096)
        text.len = 4096;
    if (!fuzz_ok(mn_tokenizer_encode(tok, text, NULL, flags, &ids, &n, &err), &err))
        return false;
    for (size_t i = 0; i < n; i++)
        FUZZ_CHECK(ids[i] >= 0 && (uint32_t)ids[i] < mn_tokenizer_n_vocab(tok));
    use_ids(tok, ids, n, 0);
    use_ids(tok, ids, n, MN_DETOKENIZE_SPECIAL | MN_DETOKENIZE_CONTINUE);
    use_channels(tok, ids, n);
    fuzz_answered(ids, n * sizeof *ids);
    mn_free(ids);
    return true;
}
#endif
