/* test_grammar_work.c -- how much work grammars may take: hostile ones are refused by name, when
 * they are compiled or at the token that takes too much; random ones never take more than a token
 * may. */
#include "grammar/grammar_impl.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { PIECES = 14, TOKENS = 256 + PIECES };
static mn_grammar_vocab *vocab;
static char one_byte[256];

static int make_vocab(void **state) {
    static const char *const piece[PIECES] = {"ab", "abc",    "aa",       "aaaa", "ba",
                                              "12", ", ",     "aab",      "xy",   "xx",
                                              "yz", "\", \"", "\xc3\xa9", "abab"};
    mn_str token[TOKENS];
    (void)state;
    for (int i = 0; i < 256; i++) {
        one_byte[i] = (char)i;
        token[i] = (mn_str){&one_byte[i], 1};
    }
    for (int i = 0; i < PIECES; i++)
        token[256 + i] = mn_str_of(piece[i]);
    return mn_grammar_vocab_create(token, TOKENS, &vocab, NULL);
}

static int free_vocab(void **state) {
    (void)state;
    mn_grammar_vocab_free(vocab);
    return 0;
}

static uint32_t below(uint64_t *seed, uint32_t n) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

static int32_t random_token(const uint32_t *bits, uint64_t *seed) {
    int32_t ids[TOKENS];
    uint32_t n = 0;
    for (int32_t id = 0; id < TOKENS; id++)
        if (bits[id / 32] >> id % 32 & 1)
            ids[n++] = id;
    return n ? ids[below(seed, n)] : -1;
}

/* Forms that take too much: when they are compiled, or at some token. */
static const struct {
    mn_grammar_kind kind;
    bool is_compiled;
    const char *source, *rule;
} costly[] = {
    {MN_GRAMMAR_GBNF, true,
     "root ::= a\na ::= b b\nb ::= c c\nc ::= d d\nd ::= e e\ne ::= f f\nf ::= g g\ng ::= h h\n"
     "h ::= i i\ni ::= j j\nj ::= k k\nk ::= l l\nl ::= m m\nm ::= n n\nn ::= o o\no ::= \"a\"? | "
     "\"b\"?\n",
     "rule \""},
    {MN_GRAMMAR_GBNF, true, "root ::= s\ns ::= \"a\" s? s? s? s? s? s? s?\n", "rule \"s\""},
    {MN_GRAMMAR_GBNF, true,
     "root ::= ((((\"x\"? \"y\"? \"z\"?){0,40} \"v\"?){0,40}) \"w\"?){0,40}\n", "rule \"root\""},
    {MN_GRAMMAR_REGEX, true, "(((a?b?){90}c?){90}d?){20}e", "rule \"regular expression\""},
    {MN_GRAMMAR_REGEX, false, "(\\p{L}|\\p{Lu}|\\p{Ll}|\\p{Lo}){700}x", "regular expression"},
    {MN_GRAMMAR_SCHEMA, false, "{\"pattern\":\"^(a|b)*a(a|b){18}c$\",\"maxLength\":500}",
     "schema, #: "},
    /* nothing can be made of the second alternative either */
    {MN_GRAMMAR_SCHEMA, false,
     "{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"(((a?b?){90}c?){90}d?){20}e\","
     "\"maxLength\":500},{\"anyOf\":[{\"type\":\"string\"}]}]}",
     "takes too much work to compile"},
};

/* Random tokens until one is refused for its work, with as much as a text may take. */
static void take_until_refused(mn_grammar *g, uint64_t seed, mn_error *err) {
    uint32_t bits[MN_GRAMMAR_WORDS(TOKENS)];
    mn_grammar_state *s = NULL;
    mn_grammar_budget b;
    mn_grammar_budget_begin(&b, vocab);
    mn_status st = mn_grammar_state_create(g, &s, err);
    for (int step = 0; step < 80 && !st; step++) {
        mn_text forced = {0};
        mn_grammar_state_spend(s, &b);
        st = mn_grammar_mask(s, bits, err);
        if (!st)
            st = mn_grammar_forced(s, &forced, err);
        mn_text_free(&forced);
        const int32_t id = st ? -1 : random_token(bits, &seed);
        if (id < 0)
            break;
        st = mn_grammar_accept(s, id, err);
        mn_grammar_budget_next(&b, 1);
    }
    assert_true(b.most <= b.most_step);
    if (st && (st != MN_UNSUPPORTED || !strstr(err->msg, "rule \"")))
        fail_msg("status %x: %s", st, err->msg);
    mn_grammar_state_free(s);
}

static void test_costly(void **state) {
    (void)state;
    for (size_t i = 0; i < MN_COUNT(costly); i++) {
        mn_grammar *g = NULL;
        mn_error err = MN_ERROR_INIT;
        const mn_str source = mn_str_of(costly[i].source);
        const mn_status st = mn_grammar_compile(costly[i].kind, source, vocab, &g, NULL, &err);
        if (!st)
            take_until_refused(g, i, &err);
        if (!st != costly[i].is_compiled || !strstr(err.msg, costly[i].rule))
            fail_msg("case %zu: status %x: %s", i, st, err.msg);
        mn_grammar_free(g);
    }
}

static void put_alternatives(mn_text *t, uint64_t *seed, uint32_t rule, uint32_t depth) {
    static const char *const atom[] = {"\"a\"", "\"ab\"", "[a-z]", "[^\"]", "\"12\"", "\", \""};
    static const char *const count[] = {"?", "*", "+", "{0,30}", "{0,900}", "{2,}", "", ""};
    for (uint32_t i = 1 + below(seed, 5); i--;) {
        const uint32_t what = below(seed, 8);
        if (what < 3 && rule < 6) {
            mn_text_printf(t, "r%u", rule + 1 + below(seed, 6 - rule));
        } else if (what < 5 && depth < 3) {
            mn_text_puts(t, "(");
            put_alternatives(t, seed, rule, depth + 1);
            mn_text_puts(t, ")");
        } else {
            mn_text_puts(t, atom[below(seed, MN_COUNT(atom))]);
        }
        mn_text_printf(t, "%s%s", count[below(seed, MN_COUNT(count))],
                       i && !below(seed, 4) ? " | " : " ");
    }
}

/* Rules that call later ones, twice, or themselves in several ways. */
static mn_text random_rules(uint64_t *seed) {
    mn_text t = {0};
    for (uint32_t r = 0; r <= 6; r++) {
        if (r)
            mn_text_printf(&t, "r%u ::= ", r);
        else
            mn_text_puts(&t, "root ::= ");
        if (r && r < 6 && !below(seed, 3))
            mn_text_printf(&t, "r%u r%u", r + 1, r + 1);
        else if (r && !below(seed, 3))
            mn_text_printf(&t, "\"a\" r%u? r%u? | \"b\"", r, r);
        else
            put_alternatives(&t, seed, r, 0);
        mn_text_puts(&t, "\n");
    }
    return t;
}

static void test_random_rules(void **state) {
    uint32_t n_made = 0;
    uint32_t n_refused = 0;
    uint64_t seed = 7;
    (void)state;
    for (int i = 0; i < 200; i++) {
        mn_text t = random_rules(&seed);
        mn_grammar *g = NULL;
        mn_error err = MN_ERROR_INIT;
        const mn_str source = {t.ptr, t.len};
        const mn_status st = mn_grammar_compile(MN_GRAMMAR_GBNF, source, vocab, &g, NULL, &err);
        if (st && st != MN_UNSUPPORTED && st != MN_BAD_INPUT)
            fail_msg("%s: %s", t.ptr, err.msg);
        err.msg[0] = 0;
        if (g)
            take_until_refused(g, (uint64_t)i, &err);
        n_made += g != NULL;
        n_refused += err.msg[0] != 0;
        mn_grammar_free(g);
        mn_text_free(&t);
    }
    printf("200 random grammars: %u compile, %u of these take too much work\n", n_made, n_refused);
    assert_true(n_made > 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_costly),
        cmocka_unit_test(test_random_rules),
    };
    return cmocka_run_group_tests(tests, make_vocab, free_vocab);
}
