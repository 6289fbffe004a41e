/* test_split.c -- normalisers, pre-tokenisers and regular expressions of tokenizer.json, one at a
 * time: the pieces, with | between them, are those of the library that models are made with. */
#include "text/pretokenizer/regex_syntax.h"
#include "text/tokenizer/tokenizer_impl.h"
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <cjson/cJSON.h>

static void check(const char *name, const mn_stages *normalizer, const mn_stages *splitter,
                  const char *text, const char *want) {
    mn_pieces p = {0};
    mn_text got = {0};
    assert_int_equal(
        mn_pieces_set(&p, text, strlen(text), mn_char_length(text, strlen(text)), NULL), MN_OK);
    if (normalizer)
        assert_int_equal(mn_stages_run(normalizer, &p, NULL), MN_OK);
    assert_int_equal(mn_stages_run(splitter, &p, NULL), MN_OK);
    for (size_t i = 0; i < p.n; i++) {
        if (i)
            mn_text_puts(&got, "|");
        mn_text_put(&got, p.text.ptr + p.span[i].off, p.span[i].len);
    }
    if (strcmp(got.ptr ? got.ptr : "", want))
        fail_msg("%s: \"%s\" became \"%s\", expected \"%s\"", name, text, got.ptr, want);
    mn_text_free(&got);
    mn_pieces_free(&p);
}

/* ---- regular expressions --------------------------------------------------------------------- */
static const struct {
    const char *regex, *text, *pieces;
} expressions[] = {
    {"\\s",
     "a\xe1\xa0\x8e"
     "b c\xc2\x85"
     "d",
     "a\xe1\xa0\x8e"
     "b| |c|\xc2\x85|d"},
    {"[^\\S\\n]+", "a \xe1\xa0\x8e\n\tb", "a| |\xe1\xa0\x8e\n|\t|b"},
    {"\\S+",
     "a\xe1\xa0\x8e"
     "b c",
     "a\xe1\xa0\x8e"
     "b| |c"},
    {"\\p{Han}+", "\xe6\xbc\xa2\xe3\x80\x81\xe5\xad\x97", "\xe6\xbc\xa2|\xe3\x80\x81|\xe5\xad\x97"},
    {"[\\p{Han}]+", "\xe6\xbc\xa2\xe3\x80\x82\xe5\xad\x97",
     "\xe6\xbc\xa2|\xe3\x80\x82|\xe5\xad\x97"},
    {"\\p{^Han}",
     "\xe6\xbc\xa2"
     "a",
     "\xe6\xbc\xa2|a"},
    {"\\w+", "\xe0\xa4\xa8\xe0\xa4\xae\xe0\xa4\xb8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87-a_b\xc2\xbd",
     "\xe0\xa4\xa8\xe0\xa4\xae\xe0\xa4\xb8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87|-|a_b\xc2\xbd"},
    {"[\\w]+", "x\xc2\xb2y", "x|\xc2\xb2|y"},
    {"[\\W]", "a-b", "a|-|b"},
    {"[^\\Wa]+", "ab-c", "a|b|-|c"},
    {"\\b", "\xe0\xa4\xa8\xe0\xa4\xae\xe0\xa4\xb8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87 ab",
     "\xe0\xa4\xa8\xe0\xa4\xae\xe0\xa4\xb8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87| |ab"},
    {"\\B", "ab c", "a|b c"},
    {"\\h+", "xbeeg", "x|bee|g"},
    {"[^(\\s|[.,!?\xe2\x80\xa6\xe3\x80\x82])]+", "ab, c(d)", "ab|, |c|(|d|)"},
    {"[a[bc]]+", "abcd", "abc|d"},
    {"[a[^bc]]+", "abxcd", "a|b|x|c|d"},
    {"[^a[^bc]]+", "abxcd", "a|b|x|c|d"},
    {"[\\p{L}&&[^\\p{Han}]]+",
     "ab\xe6\xbc\xa2"
     "c",
     "ab|\xe6\xbc\xa2|c"},
    {"[^\\p{L}&&[^\\p{Han}]]+",
     "ab\xe6\xbc\xa2"
     "c1",
     "ab|\xe6\xbc\xa2|c|1"},
    {"[a-z&&[^aeiou]&&[^x-z]]+", "abcxyz", "a|bc|xyz"},
    {"\\p{N}{1,3}+", "1234567x", "1234567|x"},
    {"x\\p{N}{2}?", "x12x", "x12|x"},
    {"a{,2}b", "aaab", "a|aab"},
    {"a{x", "ba{x", "b|a{x"},
    {"(?m:a.b)", "a\nb", "a\nb"},
    {"a(?i)b|c", "aCABc", "aC|ABc"},
    {"((?i)ab|c)d?", "aBdCb", "aBd|C|b"},
    {"\\u0041+", "aAAa", "a|AA|a"},
    {"[[:punct:]]+", "a\xe2\x82\xac!b", "a|\xe2\x82\xac!|b"},
    {"\\p{Punct}+", "\xe2\x82\xac!b", "\xe2\x82\xac|!|b"},
    {"[[:alpha:][:^word:]]+", "1a-b2", "1|a-b|2"},
    {"\\p{Uppercase_Letter}+", "aBCd", "a|BC|d"},
    {"(?#note)a|[]b]", "a]b", "a|]|b"},
    {"(?<q>a)\\k<q>", "baab", "b|aa|b"},
    {"[&a]+", "b&a", "b|&a"},
};

static void expressions_mean_the_same(void **state) {
    (void)state;
    for (size_t i = 0; i < MN_COUNT(expressions); i++) {
        mn_stages s = {0};
        mn_error err = MN_ERROR_INIT;
        if (mn_stages_add_split(&s, expressions[i].regex, MN_SPLIT_ISOLATED, false, "test", &err))
            fail_msg("%s", err.msg);
        check(expressions[i].regex, NULL, &s, expressions[i].text, expressions[i].pieces);
        mn_stages_free(&s);
    }
}

static void bad_expressions_are_named(void **state) {
    (void)state;
    static const char *const bad[][2] = {{"a(?~b)", "absent group"},
                                         {"[a", "set that does not end"},
                                         {"(a", "not closed"},
                                         {"a)", "closes nothing"},
                                         {"a\\", "backslash"},
                                         {"\\xe4b", "\\x of a byte"},
                                         {"\\p{Klingon}", "property"},
                                         {"\\pL", "\\p without"},
                                         {"(?#x", "comment"},
                                         {"\\u12", "\\u without"},
                                         {"\\k<a", "name"}};
    for (size_t i = 0; i < MN_COUNT(bad); i++) {
        mn_stages s = {0};
        mn_error err = MN_ERROR_INIT;
        assert_int_equal(mn_stages_add_split(&s, bad[i][0], MN_SPLIT_ISOLATED, false, "here", &err),
                         MN_UNSUPPORTED);
        if (!strstr(err.msg, bad[i][1]) || !strstr(err.msg, "here") || !strstr(err.msg, bad[i][0]))
            fail_msg("%s", err.msg);
        mn_stages_free(&s);
    }
    mn_text deep = {0};
    for (int i = 0; i < 200; i++)
        mn_text_puts(&deep, i < 100 ? "(" : "[");
    mn_stages s = {0};
    assert_int_equal(mn_stages_add_split(&s, deep.ptr, MN_SPLIT_ISOLATED, false, "here", NULL),
                     MN_UNSUPPORTED);
    mn_stages_free(&s);
    assert_int_equal(
        mn_stages_add_split(&s, deep.ptr + 100, MN_SPLIT_ISOLATED, false, "here", NULL),
        MN_UNSUPPORTED);
    mn_stages_free(&s);
    mn_text_free(&deep);
}

/* ---- steps ----------------------------------------------------------------------------------- */
#define FIRST "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\"}"
#define REPLACE(regex, content)                                                                    \
    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"" regex "\"},\"content\":\"" content "\"}"
static const struct {
    const char *normalizer, *splitter, *text, *pieces;
} steps[] = {
    {"null", "{\"type\":\"Whitespace\"}",
     "a\xe2\x80\x8d"
     "b \xe2\x93\x90, \xc2\xbd",
     "a\xe2\x80\x8d"
     "b|\xe2\x93\x90|,|\xc2\xbd"},
    {"null", FIRST, "a b", "_a|_b"},
    {"null", "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"}," FIRST "]}",
     "a b", "_a|b"},
    {"null", "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"}," FIRST "]}",
     " a b", "a|b"},
    {"{\"type\":\"Strip\"}", FIRST, "  a b", "a|_b"},
    {"{\"type\":\"Strip\"}", FIRST, "a b ", "_a|_b"},
    {REPLACE("x+", ""), FIRST, "xxa", "a"},
    {REPLACE("x+", "y"), FIRST, "xa", "_ya"},
    {REPLACE("x+", "y"), FIRST, "xxa", "ya"},
    {"{\"type\":\"StripAccents\"}", FIRST,
     "\xcc\x81"
     "a",
     "a"},
    {"{\"type\":\"Lowercase\"}", FIRST, "A", "_a"},
    {"{\"type\":\"NFKC\"}", FIRST, "\xef\xac\x81x", "_fix"},
    {"{\"type\":\"Prepend\",\"prepend\":\"z\"}", FIRST, "a", "_za"},
    {"{\"type\":\"NFKD\"}",
     "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
     "\"Regex\":\"[^-]\"},\"behavior\":\"Isolated\"}," FIRST "]}",
     "\xc2\xbd"
     "a",
     "_1|_\xe2\x81\x84|_2|a"},
    {"{\"type\":\"NFC\"}", FIRST,
     "e\xcc\x81"
     "a",
     "_\xc3\xa9"
     "a"},
};

static void steps_cut_and_rewrite(void **state) {
    (void)state;
    for (size_t i = 0; i < MN_COUNT(steps); i++) {
        mn_stages a = {0}, b = {0};
        mn_error err = MN_ERROR_INIT;
        cJSON *x = cJSON_Parse(steps[i].normalizer), *y = cJSON_Parse(steps[i].splitter);
        assert_true(x && y);
        if (mn_json_normalizer(&a, x, &err) || mn_json_pre_tokenizer(&b, y, &err))
            fail_msg("%s", err.msg);
        check(steps[i].splitter, &a, &b, steps[i].text, steps[i].pieces);
        cJSON_Delete(x);
        cJSON_Delete(y);
        mn_stages_free(&a);
        mn_stages_free(&b);
    }
}

static void memory_may_run_out(void **state) {
    (void)state;
    for (size_t k = 0; k < MN_COUNT(expressions); k++) {
        mn_status st = MN_OUT_OF_MEMORY;
        for (int64_t i = 0; st == MN_OUT_OF_MEMORY && i < 500; i++) {
            mn_stages s = {0};
            mn_alloc_fail_after(i);
            st = mn_stages_add_split(&s, expressions[k].regex, MN_SPLIT_ISOLATED, false, "test",
                                     NULL);
            mn_alloc_fail_after(-1);
            mn_stages_free(&s);
        }
        assert_int_equal(st, MN_OK);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions_mean_the_same), cmocka_unit_test(bad_expressions_are_named),
        cmocka_unit_test(steps_cut_and_rewrite), cmocka_unit_test(memory_may_run_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
