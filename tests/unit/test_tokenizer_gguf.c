/* test_tokenizer_gguf.c -- GGUF's keys: each kind of tokeniser, keys that say nothing good, every
 * name of a pre-tokeniser. */
#include "test_tokenizer.h"

static void expect_meta(const mn_meta_entry *entries, size_t n, mn_status status,
                        const char *says) {
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
    const mn_str tokens[] = {str("a"), str("b"), str("ab")},
                 twice[] = {str("a"), str("a"), str("ab")}, merges[] = {str("a b")},
                 wrong[] = {str("a c")};
    const int64_t types[] = {1, 1, 1}, odd[] = {1, 9, 1};
    const double scores[] = {0, -1, -2}, nan[] = {0, __builtin_nan(""), 0};
    mn_meta_entry e[8] = {meta_str("tokenizer.ggml.model", "gpt2"),
                          meta_str("tokenizer.ggml.pre", "gpt-2"),
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
    /* cannot apply: passed over with a warning */
    e[3] = meta_array("tokenizer.ggml.merges", MN_VALUE_STR, wrong, 1);
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
    if (mn_tokenizer_create(&meta, NULL, 0, &tok, &err))
        fail_msg("%s", err.msg);
    return tok;
}

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
    e[3].value.i = 99; /* an end that is no token ends nothing; mn_model_open warns of it */
    tok = from_keys(e, MN_COUNT(e));
    assert_int_equal(mn_tokenizer_eos(tok), -1);
    mn_tokenizer_free(tok);
    e[2].value.i = 99;
    expect_meta(e, MN_COUNT(e), MN_BAD_FILE, "bos_token_id");
}

/* BERT: [CLS] and [SEP] by key or spelling; case and accents by two keys; a U+2581 of the text's
 * own begins no word. */
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
    /* abc is too long */
    expect_ids(tok, str("A \xc3\xa9 abc"), NULL, MN_TOKENIZE_ADD_SPECIAL, IDS(4, 5, 7, 0, 2));
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

/* Old "llama" files name no ids: SentencePiece's own are meant, unless the file says that there are
 * none. */
static void sentencepiece_without_ids(void **state) {
    (void)state;
    const mn_str tokens[] = {str("<unk>"), str("<s>"), str("</s>"), str("\xe2\x96\x81"), str("a")};
    const double scores[5] = {0};
    const int64_t types[] = {2, 3, 3, 1, 1};
    mn_meta_entry e[] = {meta_str("tokenizer.ggml.model", "llama"),
                         meta_array("tokenizer.ggml.tokens", MN_VALUE_STR, tokens, 5),
                         meta_array("tokenizer.ggml.scores", MN_VALUE_FLOAT, scores, 5),
                         meta_array("tokenizer.ggml.token_type", MN_VALUE_INT, types, 5),
                         meta_int("tokenizer.ggml.bos_token_id", MN_VALUE_INT, -1)};
    mn_tokenizer *tok = from_keys(e, 4);
    expect_ids(tok, str("ab"), NULL, MN_TOKENIZE_ADD_SPECIAL, IDS(1, 3, 4, 0));
    uint32_t n = 0;
    assert_int_equal(mn_tokenizer_stop_ids(tok, &n)[0], 2);
    assert_int_equal(n, 1);
    mn_tokenizer_free(tok);
    tok = from_keys(e, 5);
    expect_ids(tok, str("ab"), NULL, MN_TOKENIZE_ADD_SPECIAL, IDS(3, 4, 0));
    mn_tokenizer_free(tok);
    tok = from_keys(e, 3); /* no types either */
    expect_ids(tok, str("a<s>"), NULL, MN_TOKENIZE_ADD_SPECIAL | MN_TOKENIZE_PARSE_SPECIAL,
               IDS(1, 3, 4, 1));
    mn_tokenizer_free(tok);
}

/* Every pattern of the table compiles: one vocabulary under each name that the error message
 * lists. */
static void every_pre_tokeniser_works(void **state) {
    (void)state;
    const mn_str merges[] = {str("a b")},
                 tokens[] = {str("a"), str("b"), str("ab"), str("1"), str("\xc4\xa0")};
    mn_meta_entry e[4] = {meta_str("tokenizer.ggml.model", "gpt2"),
                          meta_str("tokenizer.ggml.pre", "?"),
                          meta_array("tokenizer.ggml.tokens", MN_VALUE_STR, tokens, 5),
                          meta_array("tokenizer.ggml.merges", MN_VALUE_STR, merges, 1)};
    static const char *const names[] = {
        "default", "gpt-2",     "llama-bpe", "dbrx",         "qwen2",          "qwen35",
        "gpt-4o",  "tekken",    "tiny_aya",  "deepseek-llm", "deepseek-coder", "deepseek-v3",
        "falcon",  "starcoder", "refact",    "mpt",          "smollm",         "phi-2",
        "olmo",    "command-r", "bloom",     "viking",       "bailingmoe",     "seed-coder",
        "superbpe"};
    mn_meta meta = {e, 4};
    for (size_t i = 0; i < MN_COUNT(names); i++) {
        mn_error err = MN_ERROR_INIT;
        mn_tokenizer *tok = NULL;
        e[1] = meta_str("tokenizer.ggml.pre", names[i]);
        if (mn_tokenizer_create(&meta, NULL, 0, &tok, &err))
            fail_msg("%s", err.msg);
        expect_ids(tok, str("ab ab"), NULL, 0, (int32_t[]){2, 4, 2}, 3);
        expect_round_trip(tok, str("ab  111 1 ba  "));
        mn_tokenizer_free(tok);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bad_gguf_keys_are_named),
                                       cmocka_unit_test(keys_beside_a_json),
                                       cmocka_unit_test(bert_keys),
                                       cmocka_unit_test(sentencepiece_keys),
                                       cmocka_unit_test(sentencepiece_without_ids),
                                       cmocka_unit_test(every_pre_tokeniser_works)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
