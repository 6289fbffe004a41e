/* test_tokenizer.c -- ids against the originals', round trips, streams, special tokens typed by users, damage. */
#include "test_tokenizer_data.h"
#include "text/tokenizer.h"
#include <glob.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <cjson/cJSON.h>

static mn_str str(const char *z) { return mn_str_of(z); }

/* ---- helpers ---- */
typedef struct {
    mn_file file[8];
    uint32_t n;
} folder;

static void folder_add(folder *f, const char *name, char *data, uint64_t bytes) {
    f->file[f->n++] = (mn_file){str(name), data, bytes};
}

static void folder_free(folder *f) {
    for (uint32_t i = 0; i < f->n; i++) mn_free((void *)f->file[i].map);
}

static folder storyteller_files(void) {
    static const char *const name[] = {"tokenizer.json", "tokenizer_config.json", "generation_config.json",
                                       "config.json"};
    folder f = {.n = 0};
    for (size_t i = 0; i < MN_COUNT(name); i++) {
        char path[128];
        uint64_t bytes = 0;
        snprintf(path, sizeof path, "models/storyteller/%s", name[i]);
        char *data = data_read(path, &bytes);
        assert_non_null(data);
        folder_add(&f, name[i], data, bytes);
    }
    return f;
}

static mn_tokenizer *storyteller(void) {
    folder f = storyteller_files();
    mn_tokenizer *tok = NULL;
    mn_error err = MN_ERROR_INIT;
    if (mn_tokenizer_create(NULL, f.file, f.n, &tok, &err)) fail_msg("%s", err.msg);
    folder_free(&f);
    return tok;
}

static mn_status from_json(const char *json, mn_tokenizer **tok, mn_error *err) {
    mn_file file = {str("tokenizer.json"), json, strlen(json)};
    return mn_tokenizer_create(NULL, &file, 1, tok, err);
}

static void expect_ids(const mn_tokenizer *tok, mn_str text, const uint8_t *plain, uint32_t flags, const int32_t *want,
                       size_t n_want) {
    int32_t *ids = NULL;
    size_t n = 0;
    mn_error err = MN_ERROR_INIT;
    if (mn_tokenizer_encode(tok, text, plain, flags, &ids, &n, &err)) fail_msg("%s", err.msg);
    for (size_t i = 0; i < n && i < n_want; i++)
        if (ids[i] != want[i]) fail_msg("id %zu of \"%.*s\": %d, expected %d", i, MN_STR_ARG(text), ids[i], want[i]);
    assert_int_equal(n, n_want);
    mn_free(ids);
}

/* Feeds ids one by one; what comes out at each step is whole characters. */
static void decode(const mn_tokenizer *tok, uint32_t flags, const int32_t *ids, size_t n, mn_text *out) {
    mn_detokenizer *d = NULL;
    assert_int_equal(mn_detokenizer_create(tok, flags, &d, NULL), MN_OK);
    for (size_t i = 0; i < n; i++) {
        size_t from = out->len;
        assert_int_equal(mn_detokenizer_push(d, ids[i], out), MN_OK);
        assert_int_equal(mn_utf8_check(out->ptr ? out->ptr + from : "", out->len - from), out->len - from);
    }
    assert_int_equal(mn_detokenizer_finish(d, out), MN_OK);
    mn_detokenizer_free(d);
}

static void expect_round_trip(const mn_tokenizer *tok, mn_str text) {
    int32_t *ids = NULL;
    size_t n = 0;
    mn_text out = {0};
    assert_int_equal(mn_tokenizer_encode(tok, text, NULL, 0, &ids, &n, NULL), MN_OK);
    decode(tok, MN_DETOKENIZE_SPECIAL, ids, n, &out);
    assert_int_equal(out.len, text.len);
    if (text.len) assert_memory_equal(out.ptr, text.ptr, text.len);
    mn_free(ids);
    mn_text_free(&out);
}

/* ---- against the originals ---- */
static void storyteller_matches_golden(void **state) {
    (void)state;
    mn_tokenizer *tok = storyteller();
    uint64_t bytes = 0;
    char *data = data_read("models/storyteller/golden.json", &bytes);
    assert_non_null(data);
    cJSON *golden = cJSON_ParseWithLength(data, bytes), *entry = NULL, *v = NULL;
    cJSON_ArrayForEach(entry, golden) {
        int32_t want[512];
        size_t n = 0;
        cJSON_ArrayForEach(v, cJSON_GetObjectItem(entry, "prompt_ids")) want[n++] = v->valueint;
        expect_ids(tok, str(cJSON_GetObjectItem(entry, "prompt")->valuestring), NULL, MN_TOKENIZE_PARSE_SPECIAL, want,
                   n);
        n = 0;
        cJSON_ArrayForEach(v, cJSON_GetObjectItem(entry, "greedy_ids")) want[n++] = v->valueint;
        mn_text out = {0};
        decode(tok, 0, want, n, &out);
        assert_string_equal(out.ptr, cJSON_GetObjectItem(entry, "text")->valuestring);
        mn_text_free(&out);
    }
    uint32_t n_stop = 0;
    const int32_t *stop = mn_tokenizer_stop_ids(tok, &n_stop);
    assert_int_equal(n_stop, 2);
    assert_int_equal(stop[0], 4);
    assert_int_equal(stop[1], 1);
    assert_int_equal(mn_tokenizer_bos(tok), 0);
    assert_int_equal(mn_tokenizer_eos(tok), 4);
    assert_true(mn_tokenizer_adds_bos(tok));
    expect_ids(tok, str(""), NULL, 0, NULL, 0);
    expect_ids(tok, str(""), NULL, MN_TOKENIZE_ADD_SPECIAL, (int32_t[]){0}, 1);
    cJSON_Delete(golden);
    mn_free(data);
    mn_tokenizer_free(tok);
}

static size_t parse_ids(const char *line, const char *end, int32_t *ids, size_t max) {
    size_t n = 0;
    while (line < end && n < max) {
        char *next;
        long v = strtol(line, &next, 10);
        if (next == line || next > end) break;
        ids[n++] = (int32_t)v;
        line = next;
    }
    return n;
}

static void check_vocabulary(const char *name) {
    char path[128];
    data_gguf g;
    uint64_t n_in = 0, n_out = 0;
    mn_error err = MN_ERROR_INIT;
    mn_tokenizer *tok = NULL;
    snprintf(path, sizeof path, "tokenizers/%s.gguf", name);
    assert_true(data_gguf_open(&g, path));
    if (mn_tokenizer_create(&g.meta, NULL, 0, &tok, &err)) fail_msg("%s: %s", name, err.msg);
    data_gguf_close(&g); /* nothing of it is kept */
    snprintf(path, sizeof path, "tokenizers/%s.gguf.inp", name);
    char *in = data_shared(path, &n_in);
    snprintf(path, sizeof path, "tokenizers/%s.gguf.out", name);
    char *out = data_shared(path, &n_out);
    assert_true(in && out);
    bool lossy = strstr(name, "bert") != NULL; /* their ids do not keep case, accents and spaces */
    static const char mark[] = "\n__ggml_vocab_test__\n";
    size_t n_texts = 0;
    for (const char *text = in, *line = out;; n_texts++) {
        const char *end = strstr(text, mark), *eol = strchr(line, '\n');
        if (!end) break; /* the mark ends the last text too */
        size_t len = (size_t)(end - text);
        int32_t want[1024];
        assert_non_null(eol);
        size_t n = parse_ids(line, eol, want, MN_COUNT(want));
        expect_ids(tok, (mn_str){text, len}, NULL, 0, want, n);
        mn_text back = {0};
        decode(tok, 0, want, n, &back);
        if (!lossy) assert_int_equal(back.len, len);
        if (!lossy && len) assert_memory_equal(back.ptr, text, len);
        mn_text_free(&back);
        text = end + sizeof mark - 1;
        line = eol + 1;
    }
    assert_true(n_texts > 40);
    mn_free(in);
    mn_free(out);
    mn_tokenizer_free(tok);
}

/* Every vocabulary that comes with texts and the original's ids. */
static void vocabularies_match(void **state) {
    (void)state;
    glob_t found;
    char *pattern = data_shared_path("tokenizers/*.gguf.inp");
    int none = glob(pattern, 0, NULL, &found);
    free(pattern);
    if (none) {
        printf("skipped: no shared/tokenizers\n");
        skip();
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *base = strrchr(found.gl_pathv[i], '/') + 1;
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)(strlen(base) - strlen(".gguf.inp")), base);
        printf("%s\n", name);
        check_vocabulary(name);
    }
    globfree(&found);
}

/* ---- special tokens ---- */
static void users_cannot_type_special_tokens(void **state) {
    (void)state;
    mn_tokenizer *tok = storyteller();
    mn_str text = str("a<|eot_id|>b<|eot_id|>");
    uint8_t plain[64] = {0};
    int32_t *ids = NULL;
    size_t n = 0, count[3] = {0};
    memset(plain, 1, 12); /* the first one was typed */
    for (int round = 0; round < 3; round++) {
        uint32_t flags = round == 0 ? 0 : MN_TOKENIZE_PARSE_SPECIAL;
        assert_int_equal(mn_tokenizer_encode(tok, text, round == 2 ? plain : NULL, flags, &ids, &n, NULL), MN_OK);
        for (size_t i = 0; i < n; i++) count[round] += ids[i] == 4;
        mn_free(ids);
    }
    assert_int_equal(count[0], 0);
    assert_int_equal(count[1], 2);
    assert_int_equal(count[2], 1);
    memset(plain, 0, sizeof plain);
    plain[10] = 1; /* one typed byte is enough */
    assert_int_equal(mn_tokenizer_encode(tok, text, plain, MN_TOKENIZE_PARSE_SPECIAL, &ids, &n, NULL), MN_OK);
    assert_int_not_equal(ids[1], 4);
    mn_free(ids);
    mn_tokenizer_free(tok);
}

static void sentencepiece_spaces(void **state) {
    (void)state;
    data_gguf g;
    mn_tokenizer *tok = NULL;
    if (!data_gguf_open(&g, "tokenizers/llama-spm.gguf")) skip();
    assert_int_equal(mn_tokenizer_create(&g.meta, NULL, 0, &tok, NULL), MN_OK);
    data_gguf_close(&g);
    const int32_t hello[] = {15043, 3186};
    mn_text out = {0};
    decode(tok, 0, hello, 2, &out);
    assert_string_equal(out.ptr, "Hello world");
    out.len = 0;
    decode(tok, MN_DETOKENIZE_CONTINUE, hello, 2, &out);
    assert_string_equal(out.ptr, " Hello world");
    out.len = 0;
    decode(tok, 0, (int32_t[]){1, 15043, 2}, 3, &out);
    assert_string_equal(out.ptr, "Hello");
    out.len = 0;
    decode(tok, 0, (int32_t[]){3 + 0xf0, 3 + 0x9f, 15043, 3 + 0xe2}, 4, &out); /* bytes that complete nothing */
    assert_string_equal(out.ptr, "\xef\xbf\xbd\xef\xbf\xbd Hello\xef\xbf\xbd");
    out.len = 0;
    decode(tok, 0, (int32_t[]){3 + 0x20, 15043}, 2, &out); /* a space that encoding did not put there */
    assert_string_equal(out.ptr, "  Hello");
    mn_text_free(&out);
    expect_ids(tok, str("Hello world"), NULL, MN_TOKENIZE_ADD_SPECIAL, (int32_t[]){1, 15043, 3186}, 3);
    /* Merging may not spell a control or byte token. */
    int32_t *ids = NULL;
    size_t n = 0;
    assert_int_equal(mn_tokenizer_encode(tok, str("</s><s><unk><0x41>"), NULL, 0, &ids, &n, NULL), MN_OK);
    for (size_t i = 0; i < n; i++) assert_true(ids[i] > 258);
    mn_free(ids);
    expect_ids(tok, str("<s>"), NULL, MN_TOKENIZE_PARSE_SPECIAL, (int32_t[]){1}, 1);
    mn_tokenizer_free(tok);
}

/* ---- any text ---- */
static uint32_t draw(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

static void random_text(mn_text *t, uint64_t *seed) {
    static const char *const bits[] = {
        " ",        "  ", "\n", "\t", "it's", "DON'T", "12345", "\xe2\x96\x81", "<|eot_id|>", "!?", "\xf0\x9f\xa6\x99",
        "e\xcc\x81"};
    t->len = 0;
    uint32_t n = draw(seed) % 60;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t kind = draw(seed) % 4, code = draw(seed) % (kind == 0 ? 0x80 : kind == 1 ? 0x800 : 0x11000);
        char utf8[4];
        if (kind == 3)
            mn_text_puts(t, bits[draw(seed) % MN_COUNT(bits)]);
        else
            mn_text_put(t, utf8, (size_t)mn_utf8_encode(code, utf8));
    }
}

static void random_text_survives(void **state) {
    (void)state;
    static const char *const vocabulary[] = {"tokenizers/gpt-2.gguf", "tokenizers/phi-3.gguf", NULL};
    for (size_t k = 0; k < MN_COUNT(vocabulary); k++) {
        mn_tokenizer *tok = NULL;
        data_gguf g;
        if (!vocabulary[k])
            tok = storyteller();
        else {
            if (!data_gguf_open(&g, vocabulary[k])) continue;
            assert_int_equal(mn_tokenizer_create(&g.meta, NULL, 0, &tok, NULL), MN_OK);
            data_gguf_close(&g);
        }
        uint64_t seed = 7;
        mn_text t = {0};
        for (int i = 0; i < 2000; i++) {
            random_text(&t, &seed);
            if (vocabulary[k] && strstr(vocabulary[k], "phi") && t.len && memmem(t.ptr, t.len, "\xe2\x96\x81", 3))
                continue; /* U+2581 becomes a space there */
            expect_round_trip(tok, (mn_str){t.ptr, t.len});
        }
        mn_text_free(&t);
        mn_tokenizer_free(tok);
    }
}

static void invalid_utf8_is_named(void **state) {
    (void)state;
    mn_tokenizer *tok = storyteller();
    mn_error err = MN_ERROR_INIT;
    int32_t *ids = NULL;
    size_t n = 0;
    assert_int_equal(mn_tokenizer_encode(tok, str("abc\xff"), NULL, 0, &ids, &n, &err), MN_BAD_INPUT);
    assert_non_null(strstr(err.msg, "offset 3"));
    assert_int_equal(mn_tokenizer_encode(tok, str("\xed\xa0\x80"), NULL, 0, &ids, &n, &err), MN_BAD_INPUT);
    assert_int_equal(mn_tokenizer_encode(tok, str("ab\xe2\x82"), NULL, 0, &ids, &n, &err), MN_BAD_INPUT);
    assert_non_null(strstr(err.msg, "offset 2"));
    mn_tokenizer_free(tok);
}

static void long_words_are_not_quadratic(void **state) {
    (void)state;
    static const char *const unit[] = {"a", " ", "<", "\n ", "ab1"};
    mn_tokenizer *tok = storyteller();
    for (size_t k = 0; k < MN_COUNT(unit); k++) {
        mn_text t = {0};
        while (t.len < 300000) mn_text_puts(&t, unit[k]);
        uint64_t start = mn_now_ns();
        expect_round_trip(tok, (mn_str){t.ptr, t.len});
        if (mn_now_ns() - start > 20000000000u)
            fail_msg("\"%s\" took %.1f s", unit[k], (double)(mn_now_ns() - start) * 1e-9);
        mn_text_free(&t);
    }
    mn_tokenizer_free(tok);
}

/* ---- tokenizer.json's components ---- */
#define VOCAB                                                                                                          \
    "\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"ab\":3,\"\xe2\x96\x81\":4,\"\xe2\x96\x81"                                \
    "a\":5,\"<0xC3>\":6,\"<0xA9>\":7,\"1\":8,\"!\":9}"
#define MODEL(extra) "\"model\":{\"type\":\"BPE\"," extra VOCAB ",\"merges\":[\"a b\",[\"\xe2\x96\x81\",\"a\"]]}"

static void expect_json(const char *json, const char *text, const int32_t *want, size_t n) {
    mn_tokenizer *tok = NULL;
    mn_error err = MN_ERROR_INIT;
    if (from_json(json, &tok, &err)) fail_msg("%s: %s", json, err.msg);
    expect_ids(tok, str(text), NULL, MN_TOKENIZE_PARSE_SPECIAL, want, n);
    mn_tokenizer_free(tok);
}
#define EXPECT(json, text, ...)                                                                                        \
    expect_json(json, text, (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))
#define PRE(p) "{" MODEL("") ",\"pre_tokenizer\":" p "}"

static void components(void **state) {
    (void)state;
    EXPECT("{" MODEL("") "}", "abba", 3, 2, 1);
    EXPECT("{" MODEL("\"unk_token\":\"<unk>\",") "}", "azzb", 1, 0, 0, 2);
    EXPECT("{" MODEL("\"unk_token\":\"<unk>\",\"fuse_unk\":true,") "}", "azzb", 1, 0, 2);
    EXPECT("{" MODEL("\"unk_token\":\"<unk>\",\"byte_fallback\":true,") "}", "\xc3\xa9z", 6, 7, 0);
    EXPECT("{" MODEL("") ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"},{\"type\":"
                         "\"Replace\",\"pattern\":{\"String\":\"c\"},\"content\":\"b\"},{\"type\":\"Strip\",\"strip_"
                         "left\":true,\"strip_right\":true}]}}",
           " ACb ", 3, 2);
    EXPECT("{" MODEL("") ",\"normalizer\":{\"type\":\"NFKC\"}}", "\xef\xbd\x81\xef\xbd\x82", 3);
    EXPECT("{" MODEL("") ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFD\"},{\"type\":"
                         "\"StripAccents\"}]}}",
           "\xc3\xa1"
           "b",
           3);
    EXPECT(PRE("{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"always\"}"), "a a", 5, 5);
    EXPECT(PRE("{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"never\"}"), "a a", 1, 5);
    EXPECT(PRE("{\"type\":\"Digits\",\"individual_digits\":true}"), "a11b", 1, 8, 8, 2);
    EXPECT(PRE("{\"type\":\"WhitespaceSplit\"}"), "a b", 1, 2);
    EXPECT(PRE("{\"type\":\"Whitespace\"}"), "ab! a", 3, 9, 1);
    EXPECT(PRE("{\"type\":\"Punctuation\"}"), "a!b", 1, 9, 2);
    EXPECT(PRE("{\"type\":\"BertPreTokenizer\"}"), "ab !", 3, 9);
    EXPECT(PRE("{\"type\":\"Split\",\"pattern\":{\"String\":\"1\"},\"behavior\":\"Removed\",\"invert\":false}"), "a1b",
           1, 2);
    EXPECT(PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[ab]\"},\"behavior\":\"Removed\",\"invert\":true}"), "a1b",
           1, 2);
    EXPECT(
        PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"MergedWithPrevious\",\"invert\":false}"),
        "ab", 1, 2);
    EXPECT(PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"MergedWithNext\",\"invert\":false}"),
           "ab1", 3, 8);
    EXPECT(PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[ab]\"},\"behavior\":\"Contiguous\",\"invert\":false}"),
           "ab1", 3, 8);
    EXPECT(PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?=b)\"},\"behavior\":\"Isolated\",\"invert\":false}"),
           "ab", 1, 2);
    EXPECT("{" MODEL("\"unk_token\":\"<unk>\",") "}",
           "a\xe2\x96\x81"
           "aab",
           1, 5, 3);
    /* Affixes: c begins, ##c goes on, c</w> ends a word. A byte's mark is in bytes too. */
    static const char affixes[] =
        "{\"model\":{\"type\":\"BPE\",\"continuing_subword_prefix\":\"##\",\"end_of_word_suffix\":\"</"
        "w>\",\"vocab\":{\"a\":0,"
        "\"##b\":1,\"ab\":2,\"##a</w>\":3,\"##ba</w>\":4,\"a</w>\":5},\"merges\":[\"##b ##a</w>\",\"a ##b\"]}}";
    EXPECT(affixes, "aba", 0, 4);
    EXPECT(affixes, "abb", 2);
    EXPECT(affixes, "a", 5);
    static const char words[] =
        "{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a b\":1,\"c\":2}},"
        "\"added_tokens\":[{\"id\":3,\"content\":\"d\",\"special\":false,\"single_word\":true}],"
        "\"pre_tokenizer\":{\"type\":\"CharDelimiterSplit\",\"delimiter\":\",\"}}";
    EXPECT(words, "a b,c,a,cc", 1, 2, 0, 0);
    EXPECT(words, "d,xd", 3, 0); /* an added token is no word of the model's */
    EXPECT("{\"model\":{\"vocab\":{\"?\":0,\"c\":1},\"unk_token\":\"?\"}}", "c", 1);
    EXPECT("{\"model\":{\"vocab\":[[\"?\",0],[\"c\",-1],[\"c\",-2]],\"unk_id\":0}}", "c",
           2); /* of two alike the last */
}

#define ADDED(flags) "{" MODEL("") ",\"added_tokens\":[{\"id\":20,\"content\":\"<x>\"" flags "}]}"
static void added_tokens(void **state) {
    (void)state;
    EXPECT(ADDED(",\"special\":true"), "a<x>b", 1, 20, 2);
    EXPECT(ADDED(",\"special\":false,\"normalized\":false"), "a<x>b", 1, 20, 2);
    EXPECT(ADDED(",\"special\":true,\"single_word\":true"), "a<x> <x>", 1, 20);
    EXPECT(ADDED(",\"special\":true,\"lstrip\":true,\"rstrip\":true"), "a <x> \nb", 1, 20, 2);
    EXPECT("{" MODEL("") ",\"normalizer\":{\"type\":\"Lowercase\"},\"added_tokens\":[{\"id\":20,\"content\":\"<X>\","
                         "\"special\":false,\"normalized\":true}]}",
           "A<x>B", 1, 20, 2);
    /* A word that stands in another one is no token, nor what is inside it. */
    EXPECT("{" MODEL("") ",\"added_tokens\":[{\"id\":20,\"content\":\"<ab\",\"normalized\":false,\"single_word\":true},"
                         "{\"id\":21,\"content\":\"b1\",\"normalized\":false}]}",
           "<ab<ab1", 20, 3, 8);
    /* As written goes before normalised, and what is left stands alone. */
    EXPECT("{" MODEL("") ",\"added_tokens\":[{\"id\":20,\"content\":\"<ab\",\"special\":false,\"normalized\":true,"
                         "\"single_word\":true},"
                         "{\"id\":21,\"content\":\"b1\",\"special\":false,\"normalized\":false}]}",
           "b1<ab", 21, 20);
    mn_tokenizer *tok = NULL;
    assert_int_equal(from_json(ADDED(",\"special\":true"), &tok, NULL), MN_OK);
    assert_int_equal(mn_tokenizer_n_vocab(tok), 21);
    assert_true(mn_tokenizer_is_special(tok, 20));
    assert_int_equal(mn_tokenizer_piece(tok, 15).len, 0); /* a hole */
    mn_text out = {0};
    decode(tok, 0, (int32_t[]){1, 20, 15, 400, 2}, 5, &out);
    assert_string_equal(out.ptr, "ab");
    mn_tokenizer_free(tok);
    out.len = 0; /* shown as the normaliser spells it */
    assert_int_equal(
        from_json(
            "{" MODEL("") ",\"normalizer\":{\"type\":\"Lowercase\"},\"added_tokens\":[{\"id\":20,\"content\":\"<X>\","
                          "\"special\":false,\"normalized\":true}]}",
            &tok, NULL),
        MN_OK);
    decode(tok, 0, (int32_t[]){1, 20}, 2, &out);
    assert_string_equal(out.ptr, "a<x>");
    mn_text_free(&out);
    mn_tokenizer_free(tok);
}

static void templates_and_decoders(void **state) {
    (void)state;
    mn_tokenizer *tok = NULL;
    mn_text out = {0};
    const char *json = "{" MODEL(
        "\"byte_fallback\":true,") ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
                                   "{\"id\":\"<unk>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{"
                                   "\"SpecialToken\":{\"id\":\"!\",\"type_id\":0}}],\"special_tokens\":{\"<unk>\":{"
                                   "\"id\":\"<unk>\",\"ids\":[0],\"tokens\":[\"<unk>\"]},\"!\":{\"ids\":[9]}}},"
                                   "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
                                   "{\"String\":\"\xe2\x96\x81\"},\"content\":\" "
                                   "\"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\","
                                   "\"content\":\" \",\"start\":1,\"stop\":0}]}}";
    assert_int_equal(from_json(json, &tok, NULL), MN_OK);
    expect_ids(tok, str("ab"), NULL, MN_TOKENIZE_ADD_SPECIAL, (int32_t[]){0, 3, 9}, 3);
    decode(tok, 0, (int32_t[]){5, 5, 6, 7, 6}, 5, &out);
    assert_string_equal(out.ptr, "a a\xc3\xa9\xef\xbf\xbd");
    mn_text_free(&out);
    mn_tokenizer_free(tok);
}

/* ---- damage ---- */
static void bad_json_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *json;
        mn_status status;
        const char *says;
    } bad[] = {
        {"", MN_BAD_FILE, "JSON"},
        {"{", MN_BAD_FILE, "JSON"},
        {"[]", MN_BAD_FILE, "object"},
        {"{}", MN_BAD_FILE, "model"},
        {"{\"model\":{\"type\":\"Unigram\"}}", MN_BAD_FILE, "expected a list"},
        {"{\"model\":{\"type\":\"Novel\"}}", MN_UNSUPPORTED, "Novel"},
        {"{\"model\":{\"type\":\"BPE\"}}", MN_BAD_FILE, "vocab"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", MN_BAD_FILE, "vocab"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", MN_BAD_FILE, "\"a\""},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0.5},\"merges\":[]}}", MN_BAD_FILE, "\"a\""},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1e30},\"merges\":[]}}", MN_BAD_FILE, "\"a\""},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":9999999},\"merges\":[]}}", MN_BAD_FILE, "9999999"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"1\"},\"merges\":[]}}", MN_BAD_FILE, "byte 5: \"\"1\""},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}", MN_BAD_FILE, "twice"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"a\":2},\"merges\":[]}}", MN_BAD_FILE, "twice"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":{}}}", MN_BAD_FILE, "merges"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[\"a\"]}}", MN_BAD_FILE, "merge 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[[\"a\"]]}}", MN_BAD_FILE, "merge 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[\"a q\"]}}", MN_BAD_FILE, "\"q\""},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[\"a a\"]}}", MN_BAD_FILE, "\"aa\""},
        {"{" MODEL("\"unk_token\":\"zz\",") "}", MN_BAD_FILE, "zz"},
        {"{" MODEL("") ",\"added_tokens\":[{\"id\":1}]}", MN_BAD_FILE, "content"},
        {"{" MODEL("") ",\"added_tokens\":[{\"id\":1,\"content\":\"b\"}]}", MN_BAD_FILE, "\"b\""},
        {"{" MODEL("") ",\"added_tokens\":[{\"id\":1,\"content\":\"z\"}]}", MN_BAD_FILE, "twice"},
        {"{" MODEL("") ",\"added_tokens\":7}", MN_BAD_FILE, "added_tokens"},
        {"{" MODEL("") ",\"normalizer\":{\"type\":\"Precompiled\"}}", MN_BAD_FILE, "Precompiled"},
        {PRE("{\"type\":\"Novel\"}"), MN_UNSUPPORTED, "Novel"},
        {PRE("{}"), MN_BAD_FILE, "type"},
        {PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}"), MN_UNSUPPORTED,
         "regular expression"},
        {PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?~a)\"},\"behavior\":\"Isolated\"}"), MN_UNSUPPORTED,
         "absent group"},
        {PRE("{\"type\":\"Split\",\"pattern\":{},\"behavior\":\"Isolated\"}"), MN_BAD_FILE, "pattern"},
        {PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Sideways\"}"), MN_UNSUPPORTED,
         "Sideways"},
        {"{" MODEL("") ",\"decoder\":{\"type\":\"Novel\"}}", MN_UNSUPPORTED, "Novel"},
        {"{" MODEL("") ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"CTC\"}]}}",
         MN_UNSUPPORTED, "\"CTC\" behind"},
        {"{" MODEL("") ",\"post_processor\":{\"type\":\"Novel\"}}", MN_UNSUPPORTED, "Novel"},
        {"{" MODEL("") ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
                       "\"q\"}}]}}",
         MN_BAD_FILE, "\"q\""},
        {"{" MODEL("") ",\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"BertProcessing\","
                       "\"cls\":[\"a\",1],\"sep\":[\"a\",1]},"
                       "{\"type\":\"BertProcessing\",\"cls\":[\"a\",1],\"sep\":[\"a\",1]}]}}",
         MN_UNSUPPORTED, "more than one"},
        {"{" MODEL("") ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},"
                       "{\"Sequence\":{\"id\":\"A\"}}]}}",
         MN_UNSUPPORTED, "twice"},
        {"{\"model\":\"\xff\"}", MN_BAD_FILE, "UTF-8"},
    };
    for (size_t i = 0; i < MN_COUNT(bad); i++) {
        mn_tokenizer *tok = NULL;
        mn_error err = MN_ERROR_INIT;
        mn_status st = from_json(bad[i].json, &tok, &err);
        if (st != bad[i].status || !strstr(err.msg, bad[i].says))
            fail_msg("%s: status %x, \"%s\"", bad[i].json, (unsigned)st, err.msg);
        assert_null(tok);
    }
}

/* Cut anywhere and with bytes changed: an error or a tokeniser, never a crash. */
static void damaged_json_does_not_crash(void **state) {
    (void)state;
    folder f = storyteller_files();
    char *copy = mn_strndup(f.file[0].map, f.file[0].bytes);
    uint64_t seed = 3;
    for (int i = 0; i < 150; i++) {
        mn_file file = {str("tokenizer.json"), copy, f.file[0].bytes};
        memcpy(copy, f.file[0].map, f.file[0].bytes);
        if (i % 2)
            file.bytes = draw(&seed) % file.bytes;
        else
            for (int k = 0; k < 3; k++) copy[draw(&seed) % file.bytes] = (char)draw(&seed);
        mn_tokenizer *tok = NULL;
        if (mn_tokenizer_create(NULL, &file, 1, &tok, NULL) == MN_OK) expect_ids(tok, str(""), NULL, 0, NULL, 0);
        mn_tokenizer_free(tok);
    }
    mn_free(copy);
    folder_free(&f);
}

static mn_meta_entry meta_str(const char *key, const char *value) {
    return (mn_meta_entry){str(key), str(key), {.size = sizeof(mn_value), .type = MN_VALUE_STR, .s = str(value)}};
}

static mn_meta_entry meta_int(const char *key, uint32_t type, int64_t value) {
    return (mn_meta_entry){str(key), str(key), {.size = sizeof(mn_value), .type = type, .i = value}};
}

static mn_meta_entry meta_array(const char *key, uint32_t type, const void *array, uint64_t n) {
    return (mn_meta_entry){
        str(key), str(key), {.size = sizeof(mn_value), .type = MN_VALUE_ARRAY | type, .array = array, .n = n}};
}

static void expect_meta(const mn_meta_entry *entries, size_t n, mn_status status, const char *says) {
    mn_meta meta = {(mn_meta_entry *)entries, n};
    mn_tokenizer *tok = NULL;
    mn_error err = MN_ERROR_INIT;
    mn_status st = mn_tokenizer_create(&meta, NULL, 0, &tok, &err);
    if (st != status || (says && !strstr(err.msg, says)))
        fail_msg("status %x, \"%s\", expected \"%s\"", (unsigned)st, err.msg, says ? says : "");
    mn_tokenizer_free(tok);
}

static void bad_gguf_keys_are_named(void **state) {
    (void)state;
    const mn_str tokens[] = {str("a"), str("b"), str("ab")}, twice[] = {str("a"), str("a"), str("ab")},
                 merges[] = {str("a b")}, wrong[] = {str("a c")};
    const int64_t types[] = {1, 1, 1}, odd[] = {1, 9, 1};
    const double scores[] = {0, -1, -2}, nan[] = {0, __builtin_nan(""), 0};
    mn_meta_entry e[8] = {meta_str("tokenizer.ggml.model", "gpt2"), meta_str("tokenizer.ggml.pre", "gpt-2"),
                          meta_array("tokenizer.ggml.tokens", MN_VALUE_STR, tokens, 3),
                          meta_array("tokenizer.ggml.merges", MN_VALUE_STR, merges, 1),
                          meta_array("tokenizer.ggml.token_type", MN_VALUE_INT, types, 3)};
    expect_meta(e, 0, MN_END, NULL);
    expect_meta(e, 5, MN_OK, NULL);
    expect_meta(e, 2, MN_BAD_FILE, "tokenizer.ggml.tokens");
    expect_meta(e, 3, MN_BAD_FILE, "tokenizer.ggml.merges");
    e[4].value.n = 2;
    expect_meta(e, 5, MN_BAD_FILE, "tokenizer.ggml.token_type");
    e[4] = meta_array("tokenizer.ggml.token_type", MN_VALUE_INT, odd, 3);
    expect_meta(e, 5, MN_BAD_FILE, "tokenizer.ggml.token_type");
    e[4] = meta_int("tokenizer.ggml.bos_token_id", MN_VALUE_INT, 3);
    expect_meta(e, 5, MN_BAD_FILE, "tokenizer.ggml.bos_token_id");
    e[4] = meta_int("tokenizer.ggml.add_bos_token", MN_VALUE_BOOL, 1);
    expect_meta(e, 5, MN_BAD_FILE, "tokenizer.ggml.bos_token_id");
    e[3] = meta_array("tokenizer.ggml.merges", MN_VALUE_STR, wrong, 1); /* cannot apply: passed over with a warning */
    expect_meta(e, 4, MN_OK, "");
    e[3] = meta_array("tokenizer.ggml.merges", MN_VALUE_STR, tokens, 1);
    expect_meta(e, 4, MN_BAD_FILE, "tokenizer.ggml.merges");
    e[2] = meta_array("tokenizer.ggml.tokens", MN_VALUE_STR, twice, 3);
    expect_meta(e, 4, MN_BAD_FILE, "twice");
    e[2] = meta_array("tokenizer.ggml.tokens", MN_VALUE_STR, tokens, 3);
    e[1] = meta_str("tokenizer.ggml.pre", "no-such");
    expect_meta(e, 4, MN_UNSUPPORTED, "no-such");
    expect_meta(e, 4, MN_UNSUPPORTED, "llama-bpe");
    e[0] = meta_str("tokenizer.ggml.model", "rwkv");
    expect_meta(e, 4, MN_UNSUPPORTED, "rwkv");
    e[0] = meta_str("tokenizer.ggml.model", "llama");
    expect_meta(e, 3, MN_BAD_FILE, "tokenizer.ggml.scores");
    e[3] = meta_array("tokenizer.ggml.scores", MN_VALUE_FLOAT, scores, 2);
    expect_meta(e, 4, MN_BAD_FILE, "tokenizer.ggml.scores");
    e[3] = meta_array("tokenizer.ggml.scores", MN_VALUE_FLOAT, nan, 3);
    expect_meta(e, 4, MN_BAD_FILE, "tokenizer.ggml.scores");
    e[3] = meta_array("tokenizer.ggml.scores", MN_VALUE_FLOAT, scores, 3);
    expect_meta(e, 4, MN_OK, NULL);
}

static mn_tokenizer *from_keys(mn_meta_entry *e, size_t n) {
    const mn_meta meta = {e, n};
    mn_tokenizer *tok = NULL;
    mn_error err = MN_ERROR_INIT;
    if (mn_tokenizer_create(&meta, NULL, 0, &tok, &err)) fail_msg("%s", err.msg);
    return tok;
}
#define IDS(...) (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

/* A tokenizer.json in a GGUF file: which ids begin and end a text stands in keys beside it. */
static void keys_beside_a_json(void **state) {
    (void)state;
    mn_meta_entry e[] = {meta_str("tokenizer.ggml.model", "none"),
                         meta_str("tokenizer.huggingface.json", "{" MODEL("") "}"),
                         meta_int("tokenizer.ggml.bos_token_id", MN_VALUE_INT, 4),
                         meta_int("tokenizer.ggml.eos_token_id", MN_VALUE_INT, 9),
                         meta_int("tokenizer.ggml.padding_token_id", MN_VALUE_INT, 8),
                         meta_int("tokenizer.ggml.add_bos_token", MN_VALUE_BOOL, 1),
                         meta_int("tokenizer.ggml.add_eos_token", MN_VALUE_BOOL, 1)};
    mn_tokenizer *tok = from_keys(e, MN_COUNT(e));
    assert_int_equal(mn_tokenizer_bos(tok), 4);
    assert_int_equal(mn_tokenizer_eos(tok), 9);
    assert_int_equal(mn_tokenizer_pad(tok), 8);
    expect_ids(tok, str("ab"), NULL, MN_TOKENIZE_ADD_SPECIAL, IDS(4, 3, 9));
    mn_tokenizer_free(tok);
    e[5].value.i = e[6].value.i = 0;
    tok = from_keys(e, MN_COUNT(e));
    expect_ids(tok, str("ab"), NULL, MN_TOKENIZE_ADD_SPECIAL, IDS(3));
    mn_tokenizer_free(tok);
    e[2].value.i = 99;
    expect_meta(e, MN_COUNT(e), MN_BAD_FILE, "bos_token_id");
}

/* BERT: [CLS] and [SEP] by key or spelling; case and accents by two keys; a U+2581 of the text's own begins no word. */
static void bert_keys(void **state) {
    (void)state;
    const mn_str tokens[] = {str("[UNK]"),
                             str("[CLS]"),
                             str("[SEP]"),
                             str("\xe2\x96\x81"
                                 "ab"),
                             str("c"),
                             str("\xe2\x96\x81"
                                 "A"),
                             str("\xe2\x96\x81"),
                             str("\xe2\x96\x81\xc3\xa9"),
                             str("\xe2\x96\x81"
                                 "e")};
    mn_meta_entry e[] = {meta_str("tokenizer.ggml.model", "bert"),
                         meta_array("tokenizer.ggml.tokens", MN_VALUE_STR, tokens, 9),
                         meta_int("tokenizer.ggml.normalizer.lowercase", MN_VALUE_BOOL, 1),
                         meta_int("tokenizer.ggml.normalizer.strip_accents", MN_VALUE_BOOL, 1),
                         meta_int("tokenizer.ggml.cls_token_id", MN_VALUE_INT, 4),
                         meta_int("minerva.tokenizer.max_word", MN_VALUE_INT, 2)};
    mn_tokenizer *tok = from_keys(e, 2);
    expect_ids(tok,
               str("AB abc \xc3\x89 a\xe2\x96\x81"
                   "ab"),
               NULL, MN_TOKENIZE_ADD_SPECIAL, IDS(1, 3, 3, 4, 8, 0, 2));
    expect_ids(tok, str("[CLS]"), NULL, MN_TOKENIZE_PARSE_SPECIAL, IDS(1));
    mn_text out = {0};
    decode(tok, 0, IDS(1, 3, 4, 8), &out);
    assert_string_equal(out.ptr, "abc e");
    mn_text_free(&out);
    mn_tokenizer_free(tok);
    e[2].value.i = e[3].value.i = 0;
    tok = from_keys(e, 6);
    expect_ids(tok, str("A \xc3\xa9 abc"), NULL, MN_TOKENIZE_ADD_SPECIAL, IDS(4, 5, 7, 0, 2)); /* abc is too long */
    mn_tokenizer_free(tok);
}

/* Merges of words in plain UTF-8. */
static void words_alone(void **state) {
    (void)state;
    const mn_str tokens[] = {str("a"), str("b"), str("ab"), str("\xe6\xbc\xa2"), str("<0xC3>"), str("<0xA9>")},
                 merges[] = {str("a b")};
    mn_meta_entry e[] = {meta_str("tokenizer.ggml.model", "whitespace"), meta_str("tokenizer.ggml.pre", "whitespace"),
                         meta_array("tokenizer.ggml.tokens", MN_VALUE_STR, tokens, 6),
                         meta_array("tokenizer.ggml.merges", MN_VALUE_STR, merges, 1),
                         meta_int("tokenizer.ggml.normalizer.lowercase", MN_VALUE_BOOL, 1)};
    mn_tokenizer *tok = from_keys(e, 5);
    expect_ids(tok, str(" AB a\n\xe6\xbc\xa2 b"), NULL, 0, IDS(2, 0, 3, 1));
    mn_tokenizer_free(tok);
    tok = from_keys(e, 4);
    expect_ids(tok, str("Ab ab"), NULL, 0, IDS(1, 2));
    mn_tokenizer_free(tok);
}

/* "llama" with what SentencePiece does to spaces; a user's symbol in the normalised text. */
static void sentencepiece_keys(void **state) {
    (void)state;
    const mn_str tokens[] = {str("<unk>"),
                             str("\xe2\x96\x81"),
                             str("a"),
                             str("b"),
                             str("\xe2\x96\x81"
                                 "a"),
                             str("a b")};
    const double scores[] = {0, -1, -1, -1, 0, 0};
    const int64_t types[] = {2, 1, 1, 1, 1, 4};
    mn_meta_entry e[] = {meta_str("tokenizer.ggml.model", "llama"),
                         meta_array("tokenizer.ggml.tokens", MN_VALUE_STR, tokens, 6),
                         meta_array("tokenizer.ggml.scores", MN_VALUE_FLOAT, scores, 6),
                         meta_array("tokenizer.ggml.token_type", MN_VALUE_INT, types, 6),
                         meta_int("tokenizer.ggml.unknown_token_id", MN_VALUE_INT, 0),
                         meta_int("minerva.tokenizer.symbols", MN_VALUE_BOOL, 1),
                         meta_int("tokenizer.ggml.remove_extra_whitespaces", MN_VALUE_BOOL, 1)};
    mn_tokenizer *tok = from_keys(e, 5);
    expect_ids(tok, str("a  b"), NULL, 0, IDS(4, 1, 1, 3));
    expect_ids(tok, str("ba ba"), NULL, 0, IDS(1, 3, 5, 4)); /* what follows is a text of its own */
    expect_ids(tok, str("axyza"), NULL, 0, IDS(4, 0, 2));    /* a run of unknown characters */
    mn_tokenizer_free(tok);
    tok = from_keys(e, 6);
    expect_ids(tok, str("ba ba"), NULL, 0, IDS(1, 3, 5, 2));
    mn_tokenizer_free(tok);
    tok = from_keys(e, 7);
    expect_ids(tok, str("  b   a "), NULL, 0, IDS(1, 3, 4));
    mn_tokenizer_free(tok);
}

/* Every pattern of the table compiles: one vocabulary under each name that the error message lists. */
static void every_pre_tokeniser_works(void **state) {
    (void)state;
    const mn_str merges[] = {str("a b")}, tokens[] = {str("a"), str("b"), str("ab"), str("1"), str("\xc4\xa0")};
    mn_meta_entry e[4] = {meta_str("tokenizer.ggml.model", "gpt2"), meta_str("tokenizer.ggml.pre", "?"),
                          meta_array("tokenizer.ggml.tokens", MN_VALUE_STR, tokens, 5),
                          meta_array("tokenizer.ggml.merges", MN_VALUE_STR, merges, 1)};
    static const char *const names[] = {
        "default", "gpt-2",      "llama-bpe",    "dbrx",           "qwen2",       "qwen35",    "gpt-4o",
        "tekken",  "tiny_aya",   "deepseek-llm", "deepseek-coder", "deepseek-v3", "falcon",    "starcoder",
        "refact",  "mpt",        "smollm",       "phi-2",          "olmo",        "command-r", "bloom",
        "viking",  "bailingmoe", "seed-coder",   "superbpe"};
    mn_meta meta = {e, 4};
    for (size_t i = 0; i < MN_COUNT(names); i++) {
        mn_error err = MN_ERROR_INIT;
        mn_tokenizer *tok = NULL;
        e[1] = meta_str("tokenizer.ggml.pre", names[i]);
        if (mn_tokenizer_create(&meta, NULL, 0, &tok, &err)) fail_msg("%s", err.msg);
        expect_ids(tok, str("ab ab"), NULL, 0, (int32_t[]){2, 4, 2}, 3);
        expect_round_trip(tok, str("ab  111 1 ba  "));
        mn_tokenizer_free(tok);
    }
}

/* ---- memory ---- */
static mn_status everything(const mn_meta *meta, const mn_file *files, uint32_t n_files, const char *text) {
    mn_tokenizer *tok = NULL;
    mn_detokenizer *d = NULL;
    mn_text out = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    mn_status st = mn_tokenizer_create(meta, files, n_files, &tok, NULL);
    if (!st)
        st = mn_tokenizer_encode(tok, str(text), NULL, MN_TOKENIZE_ADD_SPECIAL | MN_TOKENIZE_PARSE_SPECIAL, &ids, &n,
                                 NULL);
    if (!st) st = mn_detokenizer_create(tok, MN_DETOKENIZE_SPECIAL, &d, NULL);
    for (size_t i = 0; !st && i < n; i++) st = mn_detokenizer_push(d, ids[i], &out);
    if (!st) st = mn_detokenizer_finish(d, &out);
    mn_text_free(&out);
    mn_free(ids);
    mn_detokenizer_free(d);
    mn_tokenizer_free(tok);
    return st;
}

static void memory_may_run_out_anywhere(void **state) {
    (void)state;
    const char *json = "{" MODEL(
        "\"unk_token\":\"<unk>\",\"byte_fallback\":true,") ",\"added_tokens\":[{\"id\":20,\"content\":\"<X>\","
                                                           "\"special\":true},{\"id\":21,\"content\":\"<Y>\","
                                                           "\"normalized\":true}],"
                                                           "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{"
                                                           "\"type\":\"NFC\"},{\"type\":\"Lowercase\"},{\"type\":"
                                                           "\"Replace\",\"pattern\":{\"Regex\":\"q+\"},\"content\":"
                                                           "\"b\"}]},"
                                                           "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":"
                                                           "[{\"type\":\"Digits\"},{\"type\":\"Metaspace\",\"prepend_"
                                                           "scheme\":\"first\"}]},\"decoder\":{\"type\":\"Metaspace\"}"
                                                           "}";
    mn_file file = {str("tokenizer.json"), json, strlen(json)};
    const mn_str tokens[] = {str("<unk>"),        str("a"),      str("b"),     str("ab"),
                             str("\xe2\x96\x81"), str("<0xC3>"), str("<0xA9>")};
    const double scores[7] = {0};
    const int64_t types[] = {2, 1, 4, 1, 1, 6, 6};
    mn_meta_entry e[] = {meta_str("tokenizer.ggml.model", "llama"),
                         meta_array("tokenizer.ggml.tokens", MN_VALUE_STR, tokens, 7),
                         meta_array("tokenizer.ggml.scores", MN_VALUE_FLOAT, scores, 7),
                         meta_array("tokenizer.ggml.token_type", MN_VALUE_INT, types, 7),
                         meta_int("tokenizer.ggml.unknown_token_id", MN_VALUE_INT, 0)};
    const mn_meta meta = {e, MN_COUNT(e)};
    for (int round = 0; round < 2; round++) {
        mn_status st = MN_OUT_OF_MEMORY;
        int64_t k = 0;
        for (; st == MN_OUT_OF_MEMORY && k < 4000; k++) {
            mn_alloc_fail_after(k);
            st = everything(round ? &meta : NULL, round ? NULL : &file, round ? 0 : 1, "ab<X>a1\xc3\xa9 <y>bbqqza");
            mn_alloc_fail_after(-1);
        }
        assert_int_equal(st, MN_OK);
        assert_true(k > 10);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(storyteller_matches_golden),
                                       cmocka_unit_test(vocabularies_match),
                                       cmocka_unit_test(users_cannot_type_special_tokens),
                                       cmocka_unit_test(sentencepiece_spaces),
                                       cmocka_unit_test(random_text_survives),
                                       cmocka_unit_test(invalid_utf8_is_named),
                                       cmocka_unit_test(long_words_are_not_quadratic),
                                       cmocka_unit_test(components),
                                       cmocka_unit_test(added_tokens),
                                       cmocka_unit_test(templates_and_decoders),
                                       cmocka_unit_test(bad_json_is_refused),
                                       cmocka_unit_test(damaged_json_does_not_crash),
                                       cmocka_unit_test(bad_gguf_keys_are_named),
                                       cmocka_unit_test(keys_beside_a_json),
                                       cmocka_unit_test(bert_keys),
                                       cmocka_unit_test(sentencepiece_keys),
                                       cmocka_unit_test(words_alone),
                                       cmocka_unit_test(every_pre_tokeniser_works),
                                       cmocka_unit_test(memory_may_run_out_anywhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
