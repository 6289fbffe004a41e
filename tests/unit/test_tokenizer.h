/* test_tokenizer.h -- what the tests of the tokeniser share: small vocabularies, the demo model's
 * files, and what is expected. */
#ifndef TEST_TOKENIZER_H
#define TEST_TOKENIZER_H
#include "test_tokenizer_data.h"
#include "text/tokenizer/tokenizer.h"
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static inline mn_str str(const char *z) {
    return mn_str_of(z);
}

typedef struct {
    mn_file file[8];
    uint32_t n;
} folder;

static inline void folder_free(folder *f) {
    for (uint32_t i = 0; i < f->n; i++)
        mn_free((void *)f->file[i].map);
}

static inline folder storyteller_files(void) {
    static const char *const name[] = {"tokenizer.json", "tokenizer_config.json",
                                       "generation_config.json", "config.json"};
    folder f = {.n = 0};
    for (size_t i = 0; i < MN_COUNT(name); i++) {
        char path[128];
        uint64_t bytes = 0;
        snprintf(path, sizeof path, "models/storyteller/%s", name[i]);
        char *data = data_read(path, &bytes);
        assert_non_null(data);
        f.file[f.n++] = (mn_file){str(name[i]), data, bytes, 0, 0};
    }
    return f;
}

static inline mn_tokenizer *storyteller(void) {
    folder f = storyteller_files();
    mn_tokenizer *tok = NULL;
    mn_error err = MN_ERROR_INIT;
    if (mn_tokenizer_create(NULL, f.file, f.n, &tok, &err))
        fail_msg("%s", err.msg);
    folder_free(&f);
    return tok;
}

static inline void expect_ids(const mn_tokenizer *tok, mn_str text, const uint8_t *plain,
                              uint32_t flags, const int32_t *want, size_t n_want) {
    int32_t *ids = NULL;
    size_t n = 0;
    mn_error err = MN_ERROR_INIT;
    if (mn_tokenizer_encode(tok, text, plain, flags, &ids, &n, &err))
        fail_msg("%s", err.msg);
    for (size_t i = 0; i < n && i < n_want; i++)
        if (ids[i] != want[i])
            fail_msg("id %zu of \"%.*s\": %d, expected %d", i, MN_STR_ARG(text), ids[i], want[i]);
    assert_int_equal(n, n_want);
    mn_free(ids);
}

/* Feeds ids one by one; what comes out at each step is whole characters. */
static inline void decode(const mn_tokenizer *tok, uint32_t flags, const int32_t *ids, size_t n,
                          mn_text *out) {
    mn_detokenizer *d = NULL;
    assert_int_equal(mn_detokenizer_create(tok, flags, &d, NULL), MN_OK);
    for (size_t i = 0; i < n; i++) {
        size_t from = out->len;
        assert_int_equal(mn_detokenizer_push(d, ids[i], out), MN_OK);
        assert_int_equal(mn_utf8_check(out->ptr ? out->ptr + from : "", out->len - from),
                         out->len - from);
    }
    assert_int_equal(mn_detokenizer_finish(d, out), MN_OK);
    mn_detokenizer_free(d);
}

static inline void expect_round_trip(const mn_tokenizer *tok, mn_str text) {
    int32_t *ids = NULL;
    size_t n = 0;
    mn_text out = {0};
    assert_int_equal(mn_tokenizer_encode(tok, text, NULL, 0, &ids, &n, NULL), MN_OK);
    decode(tok, MN_DETOKENIZE_SPECIAL, ids, n, &out);
    assert_int_equal(out.len, text.len);
    if (text.len)
        assert_memory_equal(out.ptr, text.ptr, text.len);
    mn_free(ids);
    mn_text_free(&out);
}

#define IDS(...) (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

static inline uint32_t draw(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/* ---- a small tokenizer.json ------------------------------------------------------------------ */
#define VOCAB                                                                                      \
    "\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"ab\":3,\"\xe2\x96\x81\":4,\"\xe2\x96\x81"            \
    "a\":5,\"<0xC3>\":6,\"<0xA9>\":7,\"1\":8,\"!\":9}"
#define MODEL(extra)                                                                               \
    "\"model\":{\"type\":\"BPE\"," extra VOCAB ",\"merges\":[\"a b\",[\"\xe2\x96\x81\",\"a\"]]}"

/* ---- GGUF's keys ----------------------------------------------------------------------------- */
static inline mn_meta_entry meta_str(const char *key, const char *value) {
    return (mn_meta_entry){
        str(key), str(key), {.size = sizeof(mn_value), .type = MN_VALUE_STR, .s = str(value)}};
}

static inline mn_meta_entry meta_int(const char *key, uint32_t type, int64_t value) {
    return (mn_meta_entry){
        str(key), str(key), {.size = sizeof(mn_value), .type = type, .i = value}};
}

static inline mn_meta_entry meta_array(const char *key, uint32_t type, const void *array,
                                       uint64_t n) {
    return (mn_meta_entry){
        str(key),
        str(key),
        {.size = sizeof(mn_value), .type = MN_VALUE_ARRAY | type, .array = array, .n = n}};
}
#endif
