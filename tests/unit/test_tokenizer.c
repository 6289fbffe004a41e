/* test_tokenizer.c -- ids against the originals', round trips, special tokens typed by users,
 * memory that runs out. */
#include "test_tokenizer.h"
#include "text/tokenizer/tokenizer_impl.h"
#include <glob.h>
#include <stdlib.h>
#include <cjson/cJSON.h>

/* ---- added tokens ---------------------------------------------------------------------------- */
/* The leftmost, and of those that begin there the longest, in whatever order they were added. */
static void added_longest(void **state) {
    static const char *const texts[] = {"<a>", "<a><b>", "<b>", "<a"};
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        mn_added_set set = {0};
        mn_added_match m;
        for (int i = 0; i < 4; i++) {
            const mn_added item = {.text = str(texts[turned ? 3 - i : i]), .id = i};
            assert_int_equal(mn_added_put(&set, &item, NULL), MN_OK);
        }
        assert_int_equal(mn_added_index(&set, "test", NULL), MN_OK);
        assert_true(mn_added_next(&set, str("x<a><b><a<a>"), 0, 0, NULL, true, &m));
        assert_true(m.lo == 1 && m.hi == 7);
        assert_true(mn_added_next(&set, str("x<a><b><a<a>"), 7, 7, NULL, true, &m));
        assert_true(m.lo == 7 && m.hi == 9);
        assert_true(mn_added_next(&set, str("x<a><b><a<a>"), 9, 9, NULL, true, &m));
        assert_true(m.lo == 9 && m.hi == 12);
        mn_added_free(&set);
    }
}

/* ---- against the originals ------------------------------------------------------------------- */
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
        expect_ids(tok, str(cJSON_GetObjectItem(entry, "prompt")->valuestring), NULL,
                   MN_TOKENIZE_PARSE_SPECIAL, want, n);
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
        if (next == line || next > end)
            break;
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
    if (mn_tokenizer_create(&g.meta, NULL, 0, &tok, &err))
        fail_msg("%s: %s", name, err.msg);
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
        if (!end)
            break; /* the mark ends the last text too */
        size_t len = (size_t)(end - text);
        int32_t want[1024];
        assert_non_null(eol);
        size_t n = parse_ids(line, eol, want, MN_COUNT(want));
        expect_ids(tok, (mn_str){text, len}, NULL, 0, want, n);
        mn_text back = {0};
        decode(tok, 0, want, n, &back);
        if (!lossy)
            assert_int_equal(back.len, len);
        if (!lossy && len)
            assert_memory_equal(back.ptr, text, len);
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

/* ---- special tokens -------------------------------------------------------------------------- */
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
        assert_int_equal(
            mn_tokenizer_encode(tok, text, round == 2 ? plain : NULL, flags, &ids, &n, NULL),
            MN_OK);
        for (size_t i = 0; i < n; i++)
            count[round] += ids[i] == 4;
        mn_free(ids);
    }
    assert_int_equal(count[0], 0);
    assert_int_equal(count[1], 2);
    assert_int_equal(count[2], 1);
    memset(plain, 0, sizeof plain);
    plain[10] = 1; /* one typed byte is enough */
    assert_int_equal(
        mn_tokenizer_encode(tok, text, plain, MN_TOKENIZE_PARSE_SPECIAL, &ids, &n, NULL), MN_OK);
    assert_int_not_equal(ids[1], 4);
    mn_free(ids);
    mn_tokenizer_free(tok);
}

static void sentencepiece_spaces(void **state) {
    (void)state;
    data_gguf g;
    mn_tokenizer *tok = NULL;
    if (!data_gguf_open(&g, "tokenizers/llama-spm.gguf"))
        skip();
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
    /* bytes that complete nothing */
    decode(tok, 0, (int32_t[]){3 + 0xf0, 3 + 0x9f, 15043, 3 + 0xe2}, 4, &out);
    assert_string_equal(out.ptr, "\xef\xbf\xbd\xef\xbf\xbd Hello\xef\xbf\xbd");
    out.len = 0;
    /* a space that encoding did not put there */
    decode(tok, 0, (int32_t[]){3 + 0x20, 15043}, 2, &out);
    assert_string_equal(out.ptr, "  Hello");
    mn_text_free(&out);
    expect_ids(tok, str("Hello world"), NULL, MN_TOKENIZE_ADD_SPECIAL, (int32_t[]){1, 15043, 3186},
               3);
    /* Merging may not spell a control or byte token. */
    int32_t *ids = NULL;
    size_t n = 0;
    assert_int_equal(mn_tokenizer_encode(tok, str("</s><s><unk><0x41>"), NULL, 0, &ids, &n, NULL),
                     MN_OK);
    for (size_t i = 0; i < n; i++)
        assert_true(ids[i] > 258);
    mn_free(ids);
    expect_ids(tok, str("<s>"), NULL, MN_TOKENIZE_PARSE_SPECIAL, (int32_t[]){1}, 1);
    mn_tokenizer_free(tok);
}

/* ---- any text -------------------------------------------------------------------------------- */
static void random_text(mn_text *t, uint64_t *seed) {
    static const char *const bits[] = {" ",
                                       "  ",
                                       "\n",
                                       "\t",
                                       "it's",
                                       "DON'T",
                                       "12345",
                                       "\xe2\x96\x81",
                                       "<|eot_id|>",
                                       "!?",
                                       "\xf0\x9f\xa6\x99",
                                       "e\xcc\x81"};
    t->len = 0;
    uint32_t n = draw(seed) % 60;
    for (uint32_t i = 0; i < n; i++) {
        static const uint32_t codes[] = {0x80, 0x800, 0x11000, 0x11000};
        uint32_t kind = draw(seed) % 4, code = draw(seed) % codes[kind];
        char utf8[4];
        if (kind == 3)
            mn_text_puts(t, bits[draw(seed) % MN_COUNT(bits)]);
        else
            mn_text_put(t, utf8, (size_t)mn_utf8_encode(code, utf8));
    }
}

static void random_text_survives(void **state) {
    (void)state;
    static const char *const vocabulary[] = {"tokenizers/gpt-2.gguf", "tokenizers/phi-3.gguf",
                                             NULL};
    for (size_t k = 0; k < MN_COUNT(vocabulary); k++) {
        mn_tokenizer *tok = NULL;
        data_gguf g;
        if (!vocabulary[k])
            tok = storyteller();
        else {
            if (!data_gguf_open(&g, vocabulary[k]))
                continue;
            assert_int_equal(mn_tokenizer_create(&g.meta, NULL, 0, &tok, NULL), MN_OK);
            data_gguf_close(&g);
        }
        uint64_t seed = 7;
        mn_text t = {0};
        for (int i = 0; i < 2000; i++) {
            random_text(&t, &seed);
            if (vocabulary[k] && strstr(vocabulary[k], "phi") && t.len &&
                memmem(t.ptr, t.len, "\xe2\x96\x81", 3))
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
    assert_int_equal(mn_tokenizer_encode(tok, str("abc\xff"), NULL, 0, &ids, &n, &err),
                     MN_BAD_INPUT);
    assert_non_null(strstr(err.msg, "offset 3"));
    assert_int_equal(mn_tokenizer_encode(tok, str("\xed\xa0\x80"), NULL, 0, &ids, &n, &err),
                     MN_BAD_INPUT);
    assert_int_equal(mn_tokenizer_encode(tok, str("ab\xe2\x82"), NULL, 0, &ids, &n, &err),
                     MN_BAD_INPUT);
    assert_non_null(strstr(err.msg, "offset 2"));
    mn_tokenizer_free(tok);
}

static void long_words_are_not_quadratic(void **state) {
    (void)state;
    static const char *const unit[] = {"a", " ", "<", "\n ", "ab1"};
    mn_tokenizer *tok = storyteller();
    for (size_t k = 0; k < MN_COUNT(unit); k++) {
        mn_text t = {0};
        while (t.len < 300000)
            mn_text_puts(&t, unit[k]);
        uint64_t start = mn_now_ns();
        expect_round_trip(tok, (mn_str){t.ptr, t.len});
        if (mn_now_ns() - start > 20000000000u)
            fail_msg("\"%s\" took %.1f s", unit[k], (double)(mn_now_ns() - start) * 1e-9);
        mn_text_free(&t);
    }
    mn_tokenizer_free(tok);
}

/* ---- memory ---------------------------------------------------------------------------------- */
static mn_status everything(const mn_meta *meta, const mn_file *files, uint32_t n_files,
                            const char *text) {
    mn_tokenizer *tok = NULL;
    mn_detokenizer *d = NULL;
    mn_text out = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    mn_status st = mn_tokenizer_create(meta, files, n_files, &tok, NULL);
    if (!st)
        st = mn_tokenizer_encode(tok, str(text), NULL,
                                 MN_TOKENIZE_ADD_SPECIAL | MN_TOKENIZE_PARSE_SPECIAL, &ids, &n,
                                 NULL);
    if (!st)
        st = mn_detokenizer_create(tok, MN_DETOKENIZE_SPECIAL, &d, NULL);
    for (size_t i = 0; !st && i < n; i++)
        st = mn_detokenizer_push(d, ids[i], &out);
    if (!st)
        st = mn_detokenizer_finish(d, &out);
    mn_text_free(&out);
    mn_free(ids);
    mn_detokenizer_free(d);
    mn_tokenizer_free(tok);
    return st;
}

static void memory_may_run_out_anywhere(void **state) {
    (void)state;
    const char *json = "{" MODEL(
        "\"unk_token\":\"<unk>\",\"byte_fallback\":true,") ",\"added_tokens\":[{\"id\":20,"
                                                           "\"content\":\"<X>\","
                                                           "\"special\":true},{\"id\":21,"
                                                           "\"content\":\"<Y>\","
                                                           "\"normalized\":true}],"
                                                           "\"normalizer\":{\"type\":\"Sequence\","
                                                           "\"normalizers\":[{"
                                                           "\"type\":\"NFC\"},{\"type\":"
                                                           "\"Lowercase\"},{\"type\":"
                                                           "\"Replace\",\"pattern\":{\"Regex\":\"q+"
                                                           "\"},\"content\":"
                                                           "\"b\"}]},"
                                                           "\"pre_tokenizer\":{\"type\":"
                                                           "\"Sequence\",\"pretokenizers\":"
                                                           "[{\"type\":\"Digits\"},{\"type\":"
                                                           "\"Metaspace\",\"prepend_"
                                                           "scheme\":\"first\"}]},\"decoder\":{"
                                                           "\"type\":\"Metaspace\"}"
                                                           "}";
    mn_file file = {str("tokenizer.json"), json, strlen(json), 0, 0};
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
            st = everything(round ? &meta : NULL, round ? NULL : &file, round ? 0 : 1,
                            "ab<X>a1\xc3\xa9 <y>bbqqza");
            mn_alloc_fail_after(-1);
        }
        assert_int_equal(st, MN_OK);
        assert_true(k > 10);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(added_longest),
                                       cmocka_unit_test(storyteller_matches_golden),
                                       cmocka_unit_test(vocabularies_match),
                                       cmocka_unit_test(users_cannot_type_special_tokens),
                                       cmocka_unit_test(sentencepiece_spaces),
                                       cmocka_unit_test(random_text_survives),
                                       cmocka_unit_test(invalid_utf8_is_named),
                                       cmocka_unit_test(long_words_are_not_quadratic),
                                       cmocka_unit_test(memory_may_run_out_anywhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
