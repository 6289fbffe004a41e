/* test_tokenizer_json.c -- tokenizer.json: its components one at a time, added tokens, damage. */
#include "test_tokenizer.h"
#include "text/json/scan.h"

static mn_status from_json(const char *json, mn_tokenizer **tok, mn_error *err) {
    mn_file file = {str("tokenizer.json"), json, strlen(json), 0, 0};
    return mn_tokenizer_create(NULL, &file, 1, tok, err);
}

static void expect_json(const char *json, const char *text, const int32_t *want, size_t n) {
    mn_tokenizer *tok = NULL;
    mn_error err = MN_ERROR_INIT;
    if (from_json(json, &tok, &err))
        fail_msg("%s: %s", json, err.msg);
    expect_ids(tok, str(text), NULL, MN_TOKENIZE_PARSE_SPECIAL, want, n);
    mn_tokenizer_free(tok);
}
#define EXPECT(json, text, ...) expect_json(json, text, IDS(__VA_ARGS__))
#define PRE(p) "{" MODEL("") ",\"pre_tokenizer\":" p "}"

/* Characters that are spelled out, one beyond U+FFFF as two halves; halves alone are none. */
static void escapes(void **state) {
    static const struct {
        const char *json, *text; /* NULL: no string */
    } rows[] = {{"\"\\ud83e\\udd99\\u00e9\\u0041\"", "\xf0\x9f\xa6\x99\xc3\xa9"
                                                     "A"},
                {"\"\\udbff\\udfff\"", "\xf4\x8f\xbf\xbf"},
                {"\"a\\n\\\"\\/\"", "a\n\"/"},
                {"\"\\ud83e\"", NULL},
                {"\"\\udd99\"", NULL},
                {"\"\\ud83e\\u0041\"", NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mn_scan s = mn_scan_of(str(rows[i].json));
        mn_str out = {0};
        assert_int_equal(mn_scan_string(&s, 0, &out), rows[i].text != NULL);
        if (rows[i].text)
            assert_true(mn_str_is(out, rows[i].text));
        mn_scan_free(&s);
    }
}

static void components(void **state) {
    (void)state;
    EXPECT("{" MODEL("") "}", "abba", 3, 2, 1);
    EXPECT("{" MODEL("\"unk_token\":\"<unk>\",") "}", "azzb", 1, 0, 0, 2);
    EXPECT("{" MODEL("\"unk_token\":\"<unk>\",\"fuse_unk\":true,") "}", "azzb", 1, 0, 2);
    EXPECT("{" MODEL("\"unk_token\":\"<unk>\",\"byte_fallback\":true,") "}", "\xc3\xa9z", 6, 7, 0);
    EXPECT("{" MODEL("") ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
                         "\"Lowercase\"},{\"type\":"
                         "\"Replace\",\"pattern\":{\"String\":\"c\"},\"content\":\"b\"},{\"type\":"
                         "\"Strip\",\"strip_"
                         "left\":true,\"strip_right\":true}]}}",
           " ACb ", 3, 2);
    EXPECT("{" MODEL("") ",\"normalizer\":{\"type\":\"NFKC\"}}", "\xef\xbd\x81\xef\xbd\x82", 3);
    EXPECT("{" MODEL("") ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
                         "\"NFD\"},{\"type\":"
                         "\"StripAccents\"}]}}",
           "\xc3\xa1"
           "b",
           3);
    EXPECT(PRE("{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":"
               "\"always\"}"),
           "a a", 5, 5);
    EXPECT(PRE("{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":"
               "\"never\"}"),
           "a a", 1, 5);
    EXPECT(PRE("{\"type\":\"Digits\",\"individual_digits\":true}"), "a11b", 1, 8, 8, 2);
    EXPECT(PRE("{\"type\":\"WhitespaceSplit\"}"), "a b", 1, 2);
    EXPECT(PRE("{\"type\":\"Whitespace\"}"), "ab! a", 3, 9, 1);
    EXPECT(PRE("{\"type\":\"Punctuation\"}"), "a!b", 1, 9, 2);
    EXPECT(PRE("{\"type\":\"BertPreTokenizer\"}"), "ab !", 3, 9);
    EXPECT(PRE("{\"type\":\"Split\",\"pattern\":{\"String\":\"1\"},\"behavior\":\"Removed\","
               "\"invert\":false}"),
           "a1b", 1, 2);
    EXPECT(PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[ab]\"},\"behavior\":\"Removed\","
               "\"invert\":true}"),
           "a1b", 1, 2);
    EXPECT(PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":"
               "\"MergedWithPrevious\",\"invert\":false}"),
           "ab", 1, 2);
    EXPECT(PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"MergedWithNext\","
               "\"invert\":false}"),
           "ab1", 3, 8);
    EXPECT(PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[ab]\"},\"behavior\":\"Contiguous\","
               "\"invert\":false}"),
           "ab1", 3, 8);
    EXPECT(PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?=b)\"},\"behavior\":\"Isolated\","
               "\"invert\":false}"),
           "ab", 1, 2);
    EXPECT("{" MODEL("\"unk_token\":\"<unk>\",") "}",
           "a\xe2\x96\x81"
           "aab",
           1, 5, 3);
    static const char words[] =
        "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a "
        "b\":1,\"c\":2}},"
        "\"added_tokens\":[{\"id\":3,\"content\":\"d\",\"special\":false,\"single_word\":true}],"
        "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\",\"},"
        "\"behavior\":\"Removed\"}}";
    EXPECT(words, "a b,c,a,cc", 1, 2, 0, 0);
    EXPECT(words, "d,xd", 3, 0); /* an added token is no word of the model's */
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
    EXPECT("{" MODEL("") ",\"normalizer\":{\"type\":\"Lowercase\"},\"added_tokens\":[{\"id\":20,"
                         "\"content\":\"<X>\","
                         "\"special\":false,\"normalized\":true}]}",
           "A<x>B", 1, 20, 2);
    /* A word that stands in another one is no token, nor what is inside it. */
    EXPECT("{" MODEL("") ",\"added_tokens\":[{\"id\":20,\"content\":\"<ab\",\"normalized\":false,"
                         "\"single_word\":true},"
                         "{\"id\":21,\"content\":\"b1\",\"normalized\":false}]}",
           "<ab<ab1", 20, 3, 8);
    /* As written goes before normalised, and what is left stands alone. */
    EXPECT("{" MODEL("") ",\"added_tokens\":[{\"id\":20,\"content\":\"<ab\",\"special\":false,"
                         "\"normalized\":true,"
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
    assert_int_equal(from_json("{" MODEL("") ",\"normalizer\":{\"type\":\"Lowercase\"},\"added_"
                                             "tokens\":[{\"id\":20,\"content\":\"<X>\","
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
    const char *json =
        "{" MODEL("\"byte_fallback\":true,") ",\"post_processor\":{\"type\":\"TemplateProcessing\","
                                             "\"single\":[{\"SpecialToken\":"
                                             "{\"id\":\"<unk>\",\"type_id\":0}},{\"Sequence\":{"
                                             "\"id\":\"A\",\"type_id\":0}},{"
                                             "\"SpecialToken\":{\"id\":\"!\",\"type_id\":0}}],"
                                             "\"special_tokens\":{\"<unk>\":{"
                                             "\"id\":\"<unk>\",\"ids\":[0],\"tokens\":[\"<unk>\"]},"
                                             "\"!\":{\"ids\":[9]}}},"
                                             "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{"
                                             "\"type\":\"Replace\",\"pattern\":"
                                             "{\"String\":\"\xe2\x96\x81\"},\"content\":\" "
                                             "\"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{"
                                             "\"type\":\"Strip\","
                                             "\"content\":\" \",\"start\":1,\"stop\":0}]}}";
    assert_int_equal(from_json(json, &tok, NULL), MN_OK);
    expect_ids(tok, str("ab"), NULL, MN_TOKENIZE_ADD_SPECIAL, (int32_t[]){0, 3, 9}, 3);
    decode(tok, 0, (int32_t[]){5, 5, 6, 7, 6}, 5, &out);
    assert_string_equal(out.ptr, "a a\xc3\xa9\xef\xbf\xbd");
    mn_text_free(&out);
    mn_tokenizer_free(tok);
}

/* ---- damage ---------------------------------------------------------------------------------- */
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
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0.5},\"merges\":[]}}", MN_BAD_FILE,
         "\"a\""},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1e30},\"merges\":[]}}", MN_BAD_FILE,
         "\"a\""},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":9999999},\"merges\":[]}}", MN_BAD_FILE,
         "9999999"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"1\"},\"merges\":[]}}", MN_BAD_FILE,
         "byte 5: \"\"1\""},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}", MN_BAD_FILE,
         "twice"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"a\":2},\"merges\":[]}}", MN_BAD_FILE,
         "twice"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":{}}}", MN_BAD_FILE, "merges"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[\"a\"]}}", MN_BAD_FILE,
         "merge 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[[\"a\"]]}}", MN_BAD_FILE,
         "merge 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[\"a q\"]}}", MN_BAD_FILE,
         "\"q\""},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[\"a a\"]}}", MN_BAD_FILE,
         "\"aa\""},
        {"{" MODEL("\"unk_token\":\"zz\",") "}", MN_BAD_FILE, "zz"},
        {"{" MODEL("") ",\"added_tokens\":[{\"id\":1}]}", MN_BAD_FILE, "content"},
        {"{" MODEL("") ",\"added_tokens\":[{\"id\":1,\"content\":\"b\"}]}", MN_BAD_FILE, "\"b\""},
        {"{" MODEL("") ",\"added_tokens\":[{\"id\":1,\"content\":\"z\"}]}", MN_BAD_FILE, "twice"},
        {"{" MODEL("") ",\"added_tokens\":7}", MN_BAD_FILE, "added_tokens"},
        {"{" MODEL("") ",\"normalizer\":{\"type\":\"Precompiled\"}}", MN_BAD_FILE, "Precompiled"},
        {PRE("{\"type\":\"Novel\"}"), MN_UNSUPPORTED, "Novel"},
        {PRE("{}"), MN_BAD_FILE, "type"},
        {PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}"),
         MN_UNSUPPORTED, "regular expression"},
        {PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?~a)\"},\"behavior\":\"Isolated\"}"),
         MN_UNSUPPORTED, "absent group"},
        {PRE("{\"type\":\"Split\",\"pattern\":{},\"behavior\":\"Isolated\"}"), MN_BAD_FILE,
         "pattern"},
        {PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Sideways\"}"),
         MN_UNSUPPORTED, "Sideways"},
        {"{" MODEL("") ",\"decoder\":{\"type\":\"Novel\"}}", MN_UNSUPPORTED, "Novel"},
        {"{" MODEL("") ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{"
                       "\"type\":\"WordPiece\"}]}}",
         MN_UNSUPPORTED, "\"WordPiece\" behind"},
        /* what no model that runs here, or is to, makes use of is refused by name */
        {"{" MODEL("") ",\"decoder\":{\"type\":\"CTC\"}}", MN_UNSUPPORTED, "\"CTC\""},
        {"{" MODEL("") ",\"decoder\":{\"type\":\"BPEDecoder\"}}", MN_UNSUPPORTED, "\"BPEDecoder\""},
        {"{" MODEL("") ",\"normalizer\":{\"type\":\"Nmt\"}}", MN_UNSUPPORTED, "\"Nmt\""},
        {PRE("{\"type\":\"FixedLength\"}"), MN_UNSUPPORTED, "FixedLength"},
        {PRE("{\"type\":\"UnicodeScripts\"}"), MN_UNSUPPORTED, "UnicodeScripts"},
        {PRE("{\"type\":\"CharDelimiterSplit\",\"delimiter\":\",\"}"), MN_UNSUPPORTED,
         "CharDelimiterSplit"},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"?\":0},\"unk_token\":\"?\"}}",
         MN_UNSUPPORTED, "\"WordLevel\"; known: BPE Unigram WordPiece"},
        {"{\"model\":{\"vocab\":{\"?\":0},\"unk_token\":\"?\"}}", MN_UNSUPPORTED, "WordLevel"},
        {"{" MODEL("\"continuing_subword_prefix\":\"##\",") "}", MN_UNSUPPORTED,
         "model.continuing_subword_prefix: found \"##\""},
        {"{" MODEL("\"end_of_word_suffix\":\"</w>\",") "}", MN_UNSUPPORTED,
         "model.end_of_word_suffix: found \"</w>\""},
        {"{" MODEL("") ",\"post_processor\":{\"type\":\"Novel\"}}", MN_UNSUPPORTED, "Novel"},
        {"{" MODEL("") ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                       "\"SpecialToken\":{\"id\":"
                       "\"q\"}}]}}",
         MN_BAD_FILE, "\"q\""},
        {"{" MODEL("") ",\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":"
                       "\"BertProcessing\","
                       "\"cls\":[\"a\",1],\"sep\":[\"a\",1]},"
                       "{\"type\":\"BertProcessing\",\"cls\":[\"a\",1],\"sep\":[\"a\",1]}]}}",
         MN_UNSUPPORTED, "more than one"},
        {"{" MODEL("") ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                       "\"Sequence\":{\"id\":\"A\"}},"
                       "{\"Sequence\":{\"id\":\"A\"}}]}}",
         MN_UNSUPPORTED, "twice"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}} "
         "x",
         MN_BAD_FILE, "at byte 71"},
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
        mn_file file = {str("tokenizer.json"), copy, f.file[0].bytes, 0, 0};
        memcpy(copy, f.file[0].map, f.file[0].bytes);
        if (i % 2)
            file.bytes = draw(&seed) % file.bytes;
        else
            for (int k = 0; k < 3; k++)
                copy[draw(&seed) % file.bytes] = (char)draw(&seed);
        mn_tokenizer *tok = NULL;
        if (mn_tokenizer_create(NULL, &file, 1, &tok, NULL) == MN_OK)
            expect_ids(tok, str(""), NULL, 0, NULL, 0);
        mn_tokenizer_free(tok);
    }
    mn_free(copy);
    folder_free(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(escapes),
                                       cmocka_unit_test(components),
                                       cmocka_unit_test(added_tokens),
                                       cmocka_unit_test(templates_and_decoders),
                                       cmocka_unit_test(bad_json_is_refused),
                                       cmocka_unit_test(damaged_json_does_not_crash)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
