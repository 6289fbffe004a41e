/* test_tokenizer_files.c -- small tokenizers of every kind (tests/data/tokenizers, made by
 * tests/dev/make_tokenizers.py with the original libraries): ids and texts are theirs. */
#include "test_tokenizer_data.h"
#include "text/chat/channels.h"
#include "text/tokenizer/tokenizer.h"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <cjson/cJSON.h>

/* Of kimi.tiktoken, whose tokens are 0 to 700; ids behind them that have no name are reserved. */
#define KIMI(class, more)                                                                          \
    "{\"tokenizer_class\":\"" class "\",\"bos_token\":\"[BOS]\",\"eos_token\":\"[EOS]\","          \
                                    "\"added_tokens_decoder\":{\"701\":{\"content\":\"[BOS]\","    \
                                    "\"special\":true},"                                           \
                                    "\"702\":{\"content\":\"[EOS]\",\"special\":true},"            \
                                    "\"703\":{\"content\":\"<|im_end|>\",\"special\":true},"       \
                                    "\"704\":{\"content\":\"<|im_user|>\",\"special\":true}" more  \
                                    "}}"
static const char kimi_config[] = KIMI("TikTokenTokenizer", "");

/* The name under which a file of that ending is read. */
static const char *name_of(const char *file) {
    if (strstr(file, ".tiktoken"))
        return "tiktoken.model";
    return strstr(file, ".model") ? "tokenizer.model" : "tokenizer.json";
}

static mn_tokenizer *open_file(const char *name) {
    char path[256];
    uint64_t bytes = 0;
    mn_tokenizer *tok = NULL;
    mn_error err = MN_ERROR_INIT;
    snprintf(path, sizeof path, "tests/data/tokenizers/%s", name);
    char *data = data_read(path, &bytes);
    if (!data)
        fail_msg("no %s", path);
    const mn_file file[] = {
        {mn_str_of(name_of(name)), data, bytes, 0, 0},
        {mn_str_of("tokenizer_config.json"), kimi_config, sizeof kimi_config - 1, 0, 0}};
    if (mn_tokenizer_create(NULL, file, strstr(name, ".tiktoken") ? 2 : 1, &tok, &err))
        fail_msg("%s: %s", name, err.msg);
    mn_free(data);
    return tok;
}

static void check(const char *name, const mn_tokenizer *tok, const cJSON *c) {
    const char *text = cJSON_GetObjectItem(c, "text")->valuestring;
    const cJSON *want = cJSON_GetObjectItem(c, "ids"), *decoded = cJSON_GetObjectItem(c, "decoded"),
                *v = NULL;
    bool model = strstr(name, ".model") != NULL,
         special = cJSON_GetObjectItem(c, "special")->valueint;
    uint32_t flags =
        (special ? MN_TOKENIZE_ADD_SPECIAL : 0) | (model ? 0 : MN_TOKENIZE_PARSE_SPECIAL);
    int32_t *ids = NULL;
    size_t n = 0, i = 0;
    mn_error err = MN_ERROR_INIT;
    if (mn_tokenizer_encode(tok, mn_str_of(text), NULL, flags, &ids, &n, &err))
        fail_msg("%s: %s", name, err.msg);
    cJSON_ArrayForEach(v, want) {
        if (i >= n || ids[i] != v->valueint)
            fail_msg("%s: id %zu of \"%s\": %d, expected %d", name, i, text, i < n ? ids[i] : -1,
                     v->valueint);
        i++;
    }
    if (n != i)
        fail_msg("%s: \"%s\": %zu ids, expected %zu", name, text, n, i);
    mn_detokenizer *d = NULL;
    mn_text out = {0};
    assert_int_equal(mn_detokenizer_create(tok, 0, &d, NULL), MN_OK);
    for (i = 0; i < n; i++)
        assert_int_equal(mn_detokenizer_push(d, ids[i], &out), MN_OK);
    assert_int_equal(mn_detokenizer_finish(d, &out), MN_OK);
    if (cJSON_IsString(decoded) && strcmp(out.ptr ? out.ptr : "", decoded->valuestring) != 0)
        fail_msg("%s: \"%s\" became \"%s\", expected \"%s\"", name, text, out.ptr,
                 decoded->valuestring);
    mn_detokenizer_free(d);
    mn_text_free(&out);
    mn_free(ids);
}

static int check_cases(const char *path, int *n_texts) {
    uint64_t bytes = 0;
    char *data = data_read(path, &bytes);
    assert_non_null(data);
    cJSON *cases = cJSON_ParseWithLength(data, bytes), *file = NULL, *c = NULL;
    int n_files = 0;
    cJSON_ArrayForEach(file, cases) {
        const char *name = cJSON_GetObjectItem(file, "file")->valuestring;
        mn_tokenizer *tok = open_file(name);
        cJSON_ArrayForEach(c, cJSON_GetObjectItem(file, "texts")) check(name, tok, c), ++*n_texts;
        mn_tokenizer_free(tok);
        n_files++;
    }
    cJSON_Delete(cases);
    mn_free(data);
    return n_files;
}

static void every_kind(void **state) {
    (void)state;
    int n_texts = 0;
    assert_true(check_cases("tests/data/tokenizers/cases.json", &n_texts) >= 14 && n_texts > 300);
    n_texts = 0;
    assert_true(check_cases("tests/data/tokenizers/kimi-cases.json", &n_texts) == 1 &&
                n_texts > 30);
}

/* Cut anywhere and with bytes changed: an error that names the file, or a tokeniser, never a
 * crash. */
static void damaged_files(void **state) {
    (void)state;
    static const char *const names[] = {"spm-unigram.model", "spm-bpe.model", "unigram.json",
                                        "wordpiece.json",    "llama2.json",   "kimi.tiktoken"};
    uint64_t seed = 5;
    for (size_t k = 0; k < MN_COUNT(names); k++) {
        char path[256];
        uint64_t bytes = 0;
        bool model = !strstr(names[k], ".json");
        snprintf(path, sizeof path, "tests/data/tokenizers/%s", names[k]);
        char *data = data_read(path, &bytes);
        assert_non_null(data);
        char *copy = mn_strndup(data, bytes);
        for (int i = 0; i < 300; i++) {
            mn_file file = {mn_str_of(name_of(names[k])), copy, bytes, 0, 0};
            memcpy(copy, data, bytes);
            if (i % 3 == 0)
                file.bytes = (seed = seed * 6364136223846793005u + 1) >> 33, file.bytes %= bytes;
            for (int b = 0; i % 3 && b < 4; b++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                copy[(seed >> 20) % bytes] = (char)(seed >> 56);
            }
            mn_tokenizer *tok = NULL;
            mn_error err = MN_ERROR_INIT;
            mn_status st = mn_tokenizer_create(NULL, &file, 1, &tok, &err);
            int32_t *ids = NULL;
            size_t n = 0;
            if (st == MN_OK &&
                !mn_tokenizer_encode(tok, mn_str_of("a <s>\xc3\xa9 12"), NULL, 3, &ids, &n, NULL))
                mn_free(ids);
            if (st && (!err.msg[0] ||
                       (model && !strstr(err.msg, name_of(names[k])) && st != MN_OUT_OF_MEMORY)))
                fail_msg("%s: status %x, \"%s\"", names[k], (unsigned)st, err.msg);
            mn_tokenizer_free(tok);
        }
        mn_free(copy);
        mn_free(data);
    }
}

static void memory_may_run_out(void **state) {
    (void)state;
    static const char *const names[] = {"spm-unigram.model", "unigram.json", "wordpiece.json",
                                        "kimi.tiktoken"};
    for (size_t k = 0; k < MN_COUNT(names); k++) {
        char path[256];
        uint64_t bytes = 0;
        snprintf(path, sizeof path, "tests/data/tokenizers/%s", names[k]);
        char *data = data_read(path, &bytes);
        assert_non_null(data);
        mn_file file = {mn_str_of(name_of(names[k])), data, bytes, 0, 0};
        mn_status st = MN_OUT_OF_MEMORY;
        for (int64_t i = 0; st == MN_OUT_OF_MEMORY && i < 20000; i += 1 + i / 40) {
            mn_tokenizer *tok = NULL;
            int32_t *ids = NULL;
            size_t n = 0;
            mn_alloc_fail_after(i);
            st = mn_tokenizer_create(NULL, &file, 1, &tok, NULL);
            if (!st)
                st = mn_tokenizer_encode(tok, mn_str_of("It's \xc3\xa9 \xe6\x97\xa5 <s>"), NULL, 3,
                                         &ids, &n, NULL);
            mn_alloc_fail_after(-1);
            mn_free(ids);
            mn_tokenizer_free(tok);
        }
        assert_int_equal(st, MN_OK);
        mn_free(data);
    }
}

/* Cut between two pieces, all that is there is sound. */
static void half_a_model(void **state) {
    (void)state;
    static const char piece[] = {0x0a, 3, 0x0a, 1, 'a'};
    mn_file file = {mn_str_of("tokenizer.model"), piece, sizeof piece, 0, 0};
    mn_tokenizer *tok = NULL;
    mn_error err = MN_ERROR_INIT;
    assert_int_equal(mn_tokenizer_create(NULL, &file, 1, &tok, &err), MN_BAD_FILE);
    assert_non_null(strstr(err.msg, "tokenizer.model: found no trainer_spec"));
    file.bytes = 0;
    assert_int_equal(mn_tokenizer_create(NULL, &file, 1, &tok, &err), MN_BAD_FILE);
    assert_non_null(strstr(err.msg, "tokenizer.model: found no pieces"));
}

/* ---- added tokens beside a tokenizer.model --------------------------------------------------- */
static void tokens_beside_a_model(void **state) {
    (void)state;
    uint64_t bytes = 0;
    char *data = data_read("tests/data/tokenizers/spm-bpe.model", &bytes);
    mn_tokenizer *tok = NULL;
    mn_error err = MN_ERROR_INIT;
    const char *config =
        "{\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":true,\"add_eos_token\":true,"
        "\"added_tokens_decoder\":{\"1\":{\"content\":\"<s>\",\"special\":true},"
        "\"9000\":{\"content\":\"<|end|>\",\"special\":true,\"rstrip\":true},"
        "\"9001\":{\"content\":\"<x>\",\"special\":false}}}";
    const char *more = "{\"<y>\":9002}";
    mn_file file[] = {{mn_str_of("tokenizer.model"), data, bytes, 0, 0},
                      {mn_str_of("tokenizer_config.json"), config, strlen(config), 0, 0},
                      {mn_str_of("added_tokens.json"), more, strlen(more), 0, 0}};
    if (mn_tokenizer_create(NULL, file, 3, &tok, &err))
        fail_msg("%s", err.msg);
    int32_t *ids = NULL;
    size_t n = 0;
    assert_int_equal(
        mn_tokenizer_encode(tok, mn_str_of("<|end|>  <x><y>"), NULL, 3, &ids, &n, NULL), MN_OK);
    assert_int_equal(n, 5);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 9000);
    assert_int_equal(ids[2], 9001);
    assert_int_equal(ids[3], 9002);
    assert_int_equal(ids[4], 2);
    mn_free(ids);
    mn_tokenizer_free(tok);
    file[2].map = more = "{\"<y>\":\"z\"}";
    file[2].bytes = strlen(more);
    assert_int_equal(mn_tokenizer_create(NULL, file, 3, &tok, &err), MN_BAD_FILE);
    assert_non_null(strstr(err.msg, "added_tokens.json"));
    mn_free(data);
}

/* ---- names of SentencePiece's files ---------------------------------------------------------- */
/* A tokeniser of spm-unigram.model (<unk> <s> </s> first, 248 pieces) under this name. */
static mn_tokenizer *under_name(const char *name, const char *config, mn_error *err) {
    uint64_t bytes = 0;
    char *data = data_read("tests/data/tokenizers/spm-unigram.model", &bytes);
    mn_tokenizer *tok = NULL;
    assert_non_null(data);
    mn_file file[] = {{mn_str_of(name), data, bytes, 0, 0},
                      {mn_str_of("tokenizer_config.json"), config, strlen(config), 0, 0}};
    mn_tokenizer_create(NULL, file, 2, &tok, err);
    mn_free(data);
    return tok;
}

static void expect_ids(const mn_tokenizer *tok, const char *a, const char *b, const char *want) {
    int32_t *ids = NULL;
    size_t n = 0;
    size_t split = 0;
    mn_error err = MN_ERROR_INIT;
    mn_text found = {0};
    mn_status st =
        b ? mn_tokenizer_encode_pair(tok, mn_str_of(a), mn_str_of(b), &ids, &n, &split, &err)
          : mn_tokenizer_encode(tok, mn_str_of(a), NULL, 3, &ids, &n, &err);
    if (st)
        fail_msg("%s", err.msg);
    for (size_t i = 0; i < n; i++)
        mn_text_printf(&found, "%s%d", i ? " " : "", ids[i]);
    assert_string_equal(found.ptr, want);
    mn_text_free(&found);
    mn_free(ids);
}

/* Tokens that the classes of T5, DeBERTa and XLM-R add to the file's. */
static void kins(void **state) {
    (void)state;
    mn_error err = MN_ERROR_INIT;
    mn_tokenizer *tok = under_name("spiece.model", "{\"extra_ids\":3}", &err);
    assert_non_null(tok);
    expect_ids(tok, "<extra_id_0><extra_id_2>", NULL, "250 248 2");
    mn_tokenizer_free(tok);
    tok = under_name("spiece.model", "{}", &err);
    assert_non_null(tok);
    expect_ids(tok, "<extra_id_0><extra_id_99>", NULL, "347 248 2");
    mn_tokenizer_free(tok);
    assert_null(under_name("spiece.model", "{\"extra_ids\":\"3\"}", &err));
    assert_non_null(strstr(err.msg, "extra_ids"));
    tok = under_name("sentencepiece.bpe.model", "{}", &err);
    assert_non_null(tok);
    expect_ids(tok, "<pad><unk><mask>", NULL, "0 1 3 249 2");
    expect_ids(tok, "<sep>", "<sep>", "0 6 4 2 2 6 4 2");
    mn_tokenizer_free(tok);
    assert_null(under_name("spm.model", "{}", &err));
    assert_non_null(strstr(err.msg, "spm.model: found no piece \"[CLS]\""));
}

/* ---- tiktoken.model -------------------------------------------------------------------------- */
/* kimi.tiktoken with these lines behind it, or instead. */
static mn_status read_tiktoken(const char *lines, bool alone, const char *config, mn_error *err) {
    uint64_t bytes = 0;
    char *data = data_read("tests/data/tokenizers/kimi.tiktoken", &bytes);
    mn_text text = {0};
    mn_tokenizer *tok = NULL;
    assert_non_null(data);
    mn_text_put(&text, data, alone ? 0 : bytes);
    mn_text_puts(&text, lines);
    const mn_file file[] = {{mn_str_of("tiktoken.model"), text.ptr, text.len, 0, 0},
                            {mn_str_of("tokenizer_config.json"), config, strlen(config), 0, 0}};
    const mn_status st = mn_tokenizer_create(NULL, file, 2, &tok, err);
    if (!st)
        assert_int_equal(mn_tokenizer_n_vocab(tok), 701 + 256);
    mn_tokenizer_free(tok);
    mn_text_free(&text);
    mn_free(data);
    return st;
}

static void bad_tiktoken(void **state) {
    (void)state;
    static const struct {
        const char *lines;
        bool alone;
        const char *config, *error;
    } bad[] = {
        {"YWJj\n", false, kimi_config,
         "tiktoken.model: line 702: found \"YWJj\", expected a token in base64, a space"},
        {"Y*Jj 701\n", false, kimi_config, "tiktoken.model: line 702: found \"Y*Jj 701\""},
        {"enE5d3h5 7x\n", false, kimi_config, "tiktoken.model: line 702: found"},
        {"enE5d3h5 702\n", false, kimi_config,
         "tiktoken.model: line 702: found rank 702, expected 0 to 701"},
        {"\n\nenE5d3h5 -1\n", false, kimi_config, "tiktoken.model: line 704: found rank -1"},
        {"enE5d3h5 5\n", false, "{}", "tiktoken.model: line 702: found rank 5 for the second time"},
        {"enE5d3g= 701\n", false, "{}", "tiktoken.model: "},
        {"enE5d3h5 701\n", false, kimi_config, "found \"701\", expected an id from 702"},
        {"YQ== 0\n", true, kimi_config, "tiktoken.model: found 1 tokens, expected 256 to "},
        {"", false, KIMI("QWenTokenizer", ""),
         "tokenizer_class: found \"QWenTokenizer\" beside tiktoken.model, expected "},
        {"", false, KIMI("TikTokenTokenizer", ",\"700\":{\"content\":\"x\"}"),
         "added_tokens_decoder: found \"700\", expected an id from 701"},
        {"", false, KIMI("TikTokenTokenizer", ",\"800\":{}"),
         "added_tokens_decoder: found \"800\""},
        {"", false, KIMI("TikTokenTokenizer", ",\"800\":{\"content\":\"[BOS]\"}"),
         "added_tokens_decoder"}};
    for (size_t i = 0; i < MN_COUNT(bad); i++) {
        mn_error err = MN_ERROR_INIT;
        assert_int_not_equal(read_tiktoken(bad[i].lines, bad[i].alone, bad[i].config, &err), MN_OK);
        if (!strstr(err.msg, bad[i].error))
            fail_msg("case %zu: \"%s\", expected \"%s\"", i, err.msg, bad[i].error);
    }
    assert_int_equal(read_tiktoken("\n\n", false, kimi_config, NULL), MN_OK);
}

/* ---- channels -------------------------------------------------------------------------------- */
#define TOKEN(i, s, special) "{\"id\":" #i ",\"content\":\"" s "\",\"special\":" special "}"
static mn_tokenizer *with_tokens(const char *added) {
    mn_text json = {0};
    mn_tokenizer *tok = NULL;
    mn_error err = MN_ERROR_INIT;
    mn_text_printf(&json,
                   "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"final\":0,\"analysis\":1,\"comment\":"
                   "2,\"ary\":3,\"a\":4,"
                   "\"assistant\":5,\"\xc4\xa0to\":6},\"merges\":[]},\"added_tokens\":[%s]}",
                   added);
    mn_file file = {mn_str_of("tokenizer.json"), json.ptr, json.len, 0, 0};
    if (mn_tokenizer_create(NULL, &file, 1, &tok, &err))
        fail_msg("%s", err.msg);
    mn_text_free(&json);
    return tok;
}

static void parts(mn_channels *c, const char *want, const int32_t *ids) {
    for (size_t i = 0; want[i]; i++) {
        char got = "ATCH"[mn_channels_push(c, ids[i])];
        if (got != want[i])
            fail_msg("id %zu: %c, expected %c of %s", i, got, want[i], want);
    }
}

static void harmony(void **state) {
    (void)state;
    mn_tokenizer *tok =
        with_tokens(TOKEN(10, "<|start|>", "true") "," TOKEN(11, "<|channel|>", "true") "," TOKEN(
            12, "<|message|>", "true") "," TOKEN(13, "<|end|>",
                                                 "true") "," TOKEN(14, "<|return|>",
                                                                   "true") "," TOKEN(15, "<|call|>",
                                                                                     "true"));
    mn_channels c = mn_channels_of(tok);
    mn_channels_prompt(&c, (int32_t[]){10, 5}, 2); /* "<|start|>assistant" */
    parts(&c, "HHHTTHHHHHHAA", (int32_t[]){11, 1, 12, 4, 4, 13, 10, 5, 11, 0, 12, 4, 1});
    /* a message without a channel is the answer, and so is commentary without a recipient */
    c = mn_channels_of(tok);
    parts(&c, "AHHHAHHHHHHHHA", (int32_t[]){4, 10, 5, 12, 0, 13, 10, 5, 11, 2, 3, 6, 12, 4});
    c = mn_channels_of(tok); /* a name that only begins like final */
    parts(&c, "HHHHT", (int32_t[]){11, 0, 4, 12, 4});
    uint32_t n = 0;
    const int32_t *stop = mn_tokenizer_stop_ids(tok, &n);
    assert_int_equal(n, 2);
    assert_int_equal(stop[0], 14);
    assert_int_equal(stop[1], 15);
    mn_tokenizer_free(tok);
}

static void thinking(void **state) {
    (void)state;
    mn_tokenizer *tok = with_tokens(TOKEN(10, "<think>", "false") "," TOKEN(
        11, "</think>", "false") "," TOKEN(12, "<|im_start|>", "true"));
    mn_channels c = mn_channels_of(tok);
    parts(&c, "AHTTHAA", (int32_t[]){4, 10, 4, 1, 11, 4, 4});
    c = mn_channels_of(tok);
    mn_channels_prompt(&c, (int32_t[]){12, 4, 10}, 3); /* the template opens it */
    parts(&c, "TTHA", (int32_t[]){4, 4, 11, 4});
    c = mn_channels_of(tok);
    mn_channels_prompt(&c, (int32_t[]){10, 4, 12, 5}, 4); /* somebody typed it, turns ago */
    parts(&c, "AA", (int32_t[]){4, 4});
    mn_tokenizer_free(tok);
    tok = with_tokens(TOKEN(10, "<|channel>", "true") "," TOKEN(11, "<channel|>", "true") "," TOKEN(
        12, "thought", "false") "," TOKEN(13, "\\n", "false"));
    c = mn_channels_of(tok); /* Gemma 4; the name alone is no text, and only there */
    parts(&c, "HHHTTTHAA", (int32_t[]){10, 12, 13, 4, 12, 13, 11, 12, 13});
    c = mn_channels_of(tok);
    parts(&c, "HTTHA", (int32_t[]){10, 4, 12, 11, 4});
    c = mn_channels_of(tok);
    mn_channels_prompt(&c, (int32_t[]){4, 10, 12, 13, 11}, 5); /* no thinking is asked for */
    parts(&c, "AA", (int32_t[]){4, 12});
    mn_tokenizer_free(tok);
    tok = with_tokens(TOKEN(10, "<think>", "false")); /* half a pair is nothing */
    c = mn_channels_of(tok);
    parts(&c, "AAA", (int32_t[]){4, 10, 4});
    mn_tokenizer_free(tok);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_kind),
                                       cmocka_unit_test(damaged_files),
                                       cmocka_unit_test(memory_may_run_out),
                                       cmocka_unit_test(tokens_beside_a_model),
                                       cmocka_unit_test(kins),
                                       cmocka_unit_test(bad_tiktoken),
                                       cmocka_unit_test(half_a_model),
                                       cmocka_unit_test(harmony),
                                       cmocka_unit_test(thinking)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
