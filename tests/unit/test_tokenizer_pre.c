/* test_tokenizer_pre.c -- where GGUF's pre-tokenisers cut: digits, letters, apostrophes, line ends.
 * Hand-made cases; the pieces are shown with | between them. */
#include "text/tokenizer/tokenizer_impl.h"
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const struct {
    const char *pre, *text, *pieces;
} cases[] = {
    {"gpt-2", "I'm 12345 it's IT'S\n\n  x", "I|'m| 12345| it|'s| IT|'|S|\n\n | x"},
    {"gpt-2", "a  b\t\tc!? d", "a| | b|\t|\t|c|!?| d"},
    {"mpt", "x1y22", "x|1|y|22"},
    {"llama-bpe", "I'm IT'S 12345\n\n  x", "I|'m| IT|'S| |123|45|\n\n| | x"},
    {"llama-bpe", "foo.bar (baz)\n;;\nq", "foo|.bar| (|baz|)\n|;;\n|q"},
    {"llama-bpe", "1234567 \xd9\xa1\xd9\xa2\xd9\xa3\xd9\xa4",
     "123|456|7| |\xd9\xa1\xd9\xa2\xd9\xa3|\xd9\xa4"},
    {"qwen2", "I'LL 123\r\n", "I|'LL| |1|2|3|\r\n"},
    {"stablelm2", "a12", "a|1|2"},
    {"qwen35", "e\xcc\x81g 12", "e\xcc\x81g| |1|2"},
    {"qwen2", "e\xcc\x81g", "e|\xcc\x81g"},
    {"gpt-4o", "HelloWorld's XMLFile 1234/a", "Hello|World's| XMLFile| |123|4|/a"},
    {"gpt-4o", "a//\n/b", "a|//\n/|b"},
    {"tekken", "HelloWorld's 12", "Hello|World|'s| |1|2"},
    {"deepseek-llm", "Hi \xe4\xb8\xad\xe6\x96\x87 123, x\n\ny",
     "Hi| |\xe4\xb8\xad\xe6\x96\x87| |123|,| x|\n|\n|y"},
    {"deepseek-coder", "Hi 123, (x)\n", "Hi| |1|2|3|,| (|x|)|\n"},
    {"deepseek-v3", "12345 \xe4\xb8\xad_foo .bar it's", "123|45| |\xe4\xb8\xad|_foo| .|bar| it|'s"},
    {"falcon", "it's 12345 a`b", "it|'|s| |123|45| a|`|b"},
    {"starcoder", "it's 12345", "it|'s| |1|2|3|4|5"},
    {"refact", "x42", "x|4|2"},
    {"command-r", "x42 'll", "x|4|2| '|ll"},
    {"smollm", "a 7", "a| |7"},
    {"codeshell", "a 77", "a| |7|7"},
    {"exaone", "a 77", "a| |7|7"},
    {"minerva-7b", "a 77", "a| |7|7"},
    {"olmo", "a 77's", "a| 77|'s"},
    {"jais", "a 77's", "a| 77|'s"},
    {"dbrx", "a 7777's", "a| |777|7|'s"},
    {"smaug-bpe", "7777", "777|7"},
    {"chatglm-bpe", "7777", "777|7"},
    {"glm4", "7777", "777|7"},
    {"bloom", "a, b.c d12", "a|,| b|.|c| d12"},
    {"poro-chat", "a (b)", "a| (|b|)"},
    {"gpt3-finnish", "a? b", "a|?| b"},
    {"viking", "a 12b", "a| |1|2|b"},
    {"default", "it's 12345", "it|'|s| |123|45"},
    {"superbpe", "a b 1234567 c", "a b |1|234|567| c"},
    {"bailingmoe", "I'm 12\n\n x", "I|'m| |1|2|\n\n| x"},
    {"seed-coder", "a!!\n12", "a|!!|\n|1|2"},
    {"kimi-k2",
     "\xe4\xb8\xad\xe6\x96\x87"
     "abcDef's 1234",
     "\xe4\xb8\xad\xe6\x96\x87|abc|Def's| |123|4"},
    {"kimi-k2", "\xe4\xb8\xad\xe3\x80\x82\xe6\x96\x87", "\xe4\xb8\xad|\xe3\x80\x82|\xe6\x96\x87"},
    {"kimi-k2", "abc\xe4\xb8\xad", "abc|\xe4\xb8\xad"},
    {"afmoe", "1234567 12 1", "1|234|567| |12| |1"},
    {"minicpm5", "x1234", "x|123|4"},
    {"ufakzeka", "Ankara'da 12", "Ankara|'da| |1|2"},
    {"qwen2", "Ankara'da", "Ankara|'d|a"},
    {"laguna", "a\n\nb 12", "a|\n\n|b| |1|2"},
    {"exaone-moe", "a b 12\n\n", "a b| |1|2|\n\n"},
    {"jais-2", "a     b", "a|    | b"},
    {"chameleon", "a    b 12!!", "a|    |b| |1|2|!|!"},
    {"tiny_aya", "1234567 it's", "1|234|567| it's"},
    {"youtu", "12 \xea\xb0\x80\xe4\xb8\xad a", "1|2| |\xea\xb0\x80|\xe4\xb8\xad| a"},
    {"spark2_5", "1234!!\n", "1|2|3|4|!!|\n"},
    {"gemma4", "a b\n\nc", "a b|\n\n|c"},
};

static void cuts(void **state) {
    (void)state;
    int bad = 0;
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        const mn_pre_row *row = mn_pre_find(mn_str_of(cases[i].pre));
        mn_stages steps = {0};
        mn_pieces p = {0};
        mn_text got = {0};
        if (!row)
            fail_msg("no pre-tokeniser %s", cases[i].pre);
        for (size_t k = 0; k < MN_COUNT(row->split) && row->split[k]; k++)
            assert_int_equal(
                mn_stages_add_split(&steps, row->split[k], MN_SPLIT_ISOLATED, false, "", NULL),
                MN_OK);
        assert_int_equal(mn_pieces_set(&p, cases[i].text, strlen(cases[i].text), 1, NULL), MN_OK);
        assert_int_equal(mn_stages_run(&steps, &p, NULL), MN_OK);
        for (size_t k = 0; k < p.n; k++) {
            if (k)
                mn_text_puts(&got, "|");
            mn_text_put(&got, p.text.ptr + p.span[k].off, p.span[k].len);
        }
        if (strcmp(got.ptr, cases[i].pieces) != 0)
            print_error("%s: \"%s\" gives %s, expected %s\n", cases[i].pre, cases[i].text, got.ptr,
                        cases[i].pieces),
                bad++;
        mn_text_free(&got);
        mn_pieces_free(&p);
        mn_stages_free(&steps);
    }
    assert_int_equal(bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cuts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
