/* test_tokenizer_export.c -- tokenisers of every kind as GGUF's keys: the model that says it best,
 * and the same ids when it is read again. */
#include "convert/tokenizer_export.h"
#include "test_tokenizer_data.h"
#include "text/tokenizer/tokenizer.h"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <cjson/cJSON.h>

#define SPACES "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"}"
static const struct {
    const char *file, *from, *to, *model, *pre; /* from in the file becomes to */
} files[] = {
    {"bytes-gpt2.json", NULL, NULL, "gpt2", "gpt-2"},
    {"bytes-llama3.json", NULL, NULL, "gpt2", "llama-bpe"},
    {"llama2.json", NULL, NULL, "llama", "default"},
    {"spm-bpe.model", NULL, NULL, "llama", "default"},
    {"spm-plain.model", NULL, NULL, "llama", "default"},
    {"spm-unigram.model", NULL, NULL, "t5", "default"},
    /* As T5 has it; without the first a space at the end stays when others are joined. */
    {"unigram.json", SPACES,
     "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" +\\\\z\"},\"content\":\"\"}," SPACES, "t5",
     "default"},
    {"unigram.json", NULL, NULL, "t5", "default"},
    {"unigram-bytes.json", NULL, NULL, "t5", "default"},
    {"wordpiece.json", NULL, NULL, "bert", "default"},
    {"wordpiece.json", "\"lowercase\":true", "\"lowercase\":false", "bert", "default"},
    {"metaspace-first.json", NULL, NULL, "none", NULL},
};

static bool is_model(const char *name) {
    return strstr(name, ".model") != NULL;
}

static mn_file open_data(const char *name, const char *from, const char *to) {
    char path[256];
    uint64_t bytes = 0;
    snprintf(path, sizeof path, "tests/data/tokenizers/%s", name);
    char *data = data_read(path, &bytes);
    assert_non_null(data);
    char *at = from ? strstr(data, from) : NULL;
    assert_true(!from || at);
    if (from) {
        mn_text changed = {0};
        mn_text_printf(&changed, "%.*s%s%s", (int)(at - data), data, to, at + strlen(from));
        mn_free(data);
        data = changed.ptr;
        bytes = changed.len;
    }
    return (mn_file){mn_str_of(is_model(name) ? "tokenizer.model" : "tokenizer.json"), data, bytes,
                     0, 0};
}

static void expect_same(const char *name, const mn_tokenizer *a, const mn_tokenizer *b, mn_str text,
                        uint32_t flags) {
    int32_t *x = NULL, *y = NULL;
    size_t n = 0, m = 0;
    assert_int_equal(mn_tokenizer_encode(a, text, NULL, flags, &x, &n, NULL), MN_OK);
    assert_int_equal(mn_tokenizer_encode(b, text, NULL, flags, &y, &m, NULL), MN_OK);
    for (size_t i = 0; i < n || i < m; i++)
        if (i >= n || i >= m || x[i] != y[i])
            fail_msg("%s: id %zu is %d, expected %d, of \"%s\"", name, i, i < m ? y[i] : -1,
                     i < n ? x[i] : -1, text.ptr);
    mn_free(x);
    mn_free(y);
}

static void expect_str(const mn_meta *meta, const char *key, const char *want) {
    mn_str s = {NULL, 0};
    assert_int_equal(mn_meta_str(meta, key, &s, NULL), want ? MN_OK : MN_END);
    if (want && !mn_str_is(s, want))
        fail_msg("%s: %.*s, expected %s", key, MN_STR_ARG(s), want);
}

/* The texts of cases.json that the tokenisers agree on by construction: those that name no added
 * token. */
static void compare_texts(const char *name, const mn_tokenizer *a, const mn_tokenizer *b) {
    uint64_t bytes = 0;
    int n = 0;
    char *data = data_read("tests/data/tokenizers/cases.json", &bytes);
    assert_non_null(data);
    cJSON *cases = cJSON_ParseWithLength(data, bytes), *file = NULL, *c = NULL;
    cJSON_ArrayForEach(file, cases) {
        if (strcmp(cJSON_GetObjectItem(file, "file")->valuestring, name) != 0)
            continue;
        cJSON_ArrayForEach(c, cJSON_GetObjectItem(file, "texts")) {
            const char *text = cJSON_GetObjectItem(c, "text")->valuestring;
            /* Metaspace puts no mark in front of another; SentencePiece does. */
            if (!strncmp(name, "unigram", 7) && strstr(text, "\xe2\x96\x81"))
                continue;
            /* GGUF has no lstrip, rstrip, single_word */
            if (strstr(text, "[X]") || strstr(text, "<mask>"))
                continue;
            expect_same(name, a, b, mn_str_of(text), MN_TOKENIZE_ADD_SPECIAL);
            n++;
        }
    }
    assert_true(n > 15);
    cJSON_Delete(cases);
    mn_free(data);
}

static void every_kind_is_read_back(void **state) {
    (void)state;
    for (size_t i = 0; i < MN_COUNT(files); i++) {
        static const mn_meta_entry none;
        const mn_meta base = {(mn_meta_entry *)(uintptr_t)&none, 0};
        const mn_file file = open_data(files[i].file, files[i].from, files[i].to);
        mn_tokenizer *tok = NULL, *again = NULL;
        mn_arena arena = {0};
        mn_meta meta = {0};
        mn_error err = MN_ERROR_INIT;
        if (mn_tokenizer_create(NULL, &file, 1, &tok, &err))
            fail_msg("%s: %s", files[i].file, err.msg);
        const uint32_t rows = mn_tokenizer_n_vocab(tok) + 3;
        if (mn_tokenizer_export(tok, &base, &file, 1, rows, &arena, &meta, &err))
            fail_msg("%s: %s", files[i].file, err.msg);
        expect_str(&meta, "tokenizer.ggml.model", files[i].model);
        expect_str(&meta, "tokenizer.ggml.pre", files[i].pre);
        if (mn_tokenizer_create(&meta, NULL, 0, &again, &err))
            fail_msg("%s: %s", files[i].file, err.msg);
        if (files[i].pre)
            assert_int_equal(mn_tokenizer_n_vocab(again), rows);
        assert_int_equal(mn_tokenizer_bos(again), mn_tokenizer_adds_bos(again)
                                                      ? mn_tokenizer_bos(again)
                                                      : mn_tokenizer_bos(tok));
        compare_texts(files[i].file, tok, again);
        mn_tokenizer_free(again);
        mn_tokenizer_free(tok);
        mn_free(meta.entries);
        mn_arena_free(&arena);
        mn_free((void *)(uintptr_t)file.map);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_kind_is_read_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
