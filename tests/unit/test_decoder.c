/* test_decoder.c -- tokenizer.json's decoders: what pieces, written with ~ between them, become is
 * what the library makes of them. */
#include "text/tokenizer/tokenizer_impl.h"
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const struct {
    const char *decoder, *pieces, *text;
} cases[] = {
    {"{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}", "##a~b~##c~d~.~don~##'t~do not",
     "##a bc d. don't don't"},
    {"{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":false}", "a~.~##.", "a .."},
    {"{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"always\","
     "\"split\":true}",
     "\xe2\x96\x81\xe2\x96\x81"
     "a~\xe2\x96\x81"
     "b\xe2\x96\x81"
     "c~d",
     "a b cd"},
    {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"never\",\"split\":true}",
     "_a~_b", " a b"},
    {"{\"type\":\"ByteFallback\"}", "a~<0xE3>~<0x81>~<0x82>~b~<0xE3>~c~<0xFF>",
     "a\xe3\x81\x82"
     "b\xef\xbf\xbd"
     "c\xef\xbf\xbd"},
    {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},\"content\":\" \"}",
     "\xe2\x96\x81"
     "a\xe2\x96\x81~b",
     " a b"},
    {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[aeiou]+\"},\"content\":\"-\"}", "aeb~eou~x",
     "-b-x"},
    {"{\"type\":\"Strip\",\"content\":\"_\",\"start\":1,\"stop\":1}", "__a__~b_~_c", "_a_bc"},
    {"{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\"_"
     "\",\"start\":2,"
     "\"stop\":0}]}",
     "_~_~_a~_b", "_a_b"},
    {"{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\"_"
     "\",\"start\":0,"
     "\"stop\":2}]}",
     "_a~_~b_~_~_", "_a_b_"},
    {"{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Replace\",\"pattern\":{"
     "\"String\":\"abc\"},"
     "\"content\":\"x\"}]}",
     "za~b~c~ab~ab~c~a", "zxabxa"},
    {"{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
     "\"\xe2\x96\x81\"},\"content\":"
     "\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "
     "\",\"start\":1,\"stop\":0}]}",
     "\xe2\x96\x81"
     "a~\xe2\x96\x81~<0x20>~\xe2\x96\x81"
     "b",
     "a   b"},
    {"{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
     "\"trim_offsets\":true,"
     "\"use_regex\":true},{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xc3\xa9\"},\"content\":"
     "\"e\"}]}",
     "\xc3\x83~\xc2\xa9\xc4\xa0~\xe6\xbc\xa2", "e \xe6\xbc\xa2"},
    /* the start of a character of four bytes is one mark, however much of it there is */
    {"{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}",
     "\xc3\xb0~\xc5\x81~\xc2\xa6~b~\xc3\xb0~\xc5\x81~c",
     "\xef\xbf\xbd"
     "b\xef\xbf\xbd"
     "c"},
    {"{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Replace\",\"pattern\":{"
     "\"String\":\"aba\"},"
     "\"content\":\"x\"}]}",
     "1~ab~a~b~ab~a", "1xbx"},
};

/* A tokeniser with these pieces; ids gets theirs. */
static mn_tokenizer *with_pieces(const char *decoder, const char *pieces, int32_t *ids, size_t *n) {
    mn_text json = {0};
    char seen[32][16] = {{0}};
    int32_t n_seen = 0;
    mn_tokenizer *tok = NULL;
    mn_error err = MN_ERROR_INIT;
    *n = 0;
    mn_text_puts(&json, "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (size_t len; *pieces; pieces += len + (pieces[len] == '~')) {
        char piece[16] = {0};
        len = strcspn(pieces, "~");
        memcpy(piece, pieces, len);
        int32_t id = 0;
        while (id < n_seen && strcmp(seen[id], piece) != 0)
            id++;
        if (id == n_seen) {
            memcpy(seen[n_seen++], piece, sizeof piece);
            if (id)
                mn_text_puts(&json, ",");
            mn_text_json(&json, mn_str_of(piece));
            mn_text_printf(&json, ":%d", id);
        }
        ids[(*n)++] = id;
    }
    mn_text_printf(&json, "}},\"decoder\":%s}", decoder);
    const mn_file file = {mn_str_of("tokenizer.json"), json.ptr, json.len, 0, 0};
    if (mn_tokenizer_create(NULL, &file, 1, &tok, &err))
        fail_msg("%s: %s", decoder, err.msg);
    mn_text_free(&json);
    return tok;
}

static mn_status decode(const mn_tokenizer *tok, const int32_t *ids, size_t n, mn_text *out) {
    mn_detokenizer *d = NULL;
    mn_status st = mn_detokenizer_create(tok, 0, &d, NULL);
    for (size_t i = 0; !st && i < n; i++) {
        st = mn_detokenizer_push(d, ids[i], out);
        /* whole at every step */
        if (!st && out->len)
            assert_int_equal(mn_utf8_check(out->ptr, out->len), out->len);
    }
    if (!st)
        st = mn_detokenizer_finish(d, out);
    mn_detokenizer_free(d);
    return st;
}

static void texts_are_the_librarys(void **state) {
    (void)state;
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        int32_t ids[32];
        size_t n = 0;
        mn_text out = {0};
        mn_tokenizer *tok = with_pieces(cases[i].decoder, cases[i].pieces, ids, &n);
        for (int again = 0; again < 2; again++) { /* finish starts anew */
            out.len = 0;
            assert_int_equal(decode(tok, ids, n, &out), MN_OK);
            if (strcmp(out.ptr, cases[i].text))
                fail_msg("%s: %s became \"%s\", expected \"%s\"", cases[i].decoder, cases[i].pieces,
                         out.ptr, cases[i].text);
        }
        mn_text_free(&out);
        mn_tokenizer_free(tok);
    }
}

static void memory_may_run_out(void **state) {
    (void)state;
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        int32_t ids[32];
        size_t n = 0;
        mn_tokenizer *tok = with_pieces(cases[i].decoder, cases[i].pieces, ids, &n);
        mn_status st = MN_OUT_OF_MEMORY;
        for (int64_t k = 0; st == MN_OUT_OF_MEMORY && k < 200; k++) {
            mn_text out = {0};
            mn_alloc_fail_after(k);
            st = decode(tok, ids, n, &out);
            mn_alloc_fail_after(-1);
            mn_text_free(&out);
        }
        assert_int_equal(st, MN_OK);
        mn_tokenizer_free(tok);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts_are_the_librarys),
                                       cmocka_unit_test(memory_may_run_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
