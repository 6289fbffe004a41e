/* test_grammar.c -- grammars: what they accept, that masks are what trying every token gives, that
 * random walks through the masks always come to an end that the grammar accepts, and refusals. */
#include "grammar/grammar_impl.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { PIECES = 48, TOKENS = 256 + PIECES + 2 };
static mn_grammar_vocab *vocab;
static mn_str token[TOKENS];
static char one_byte[256];

/* All bytes, pieces that cross the ends of rules and characters, one token twice, one empty. */
static int make_vocab(void **state) {
    static const char *const piece[PIECES] = {
        "ab",   "abc",          "aa",       "aaa",  "aaaa", "ba",  "bab",      "\"a",
        "a\"",  "\",",          "\", \"",   "\": ", "{\"",  "\"}", "}}",       "[[",
        "]]",   "],[",          "12",       "123",  "0.",   ".5",  "e+",       "-1",
        "true", "false",        "null",     "tr",   "ue",   ", ",  "\xc3\xa9", "\xc3\xa9\xc3",
        "\xa9", "\x9f\x98\x80", "\xf0\x9f", "  ",   "\n  ", "yes", "no",       "maybe",
        "es",   "(a",           "a)",       "((",   "))",   "+a",  "a+",       "\\n"};
    (void)state;
    for (int i = 0; i < 256; i++) {
        one_byte[i] = (char)i;
        token[i] = (mn_str){&one_byte[i], 1};
    }
    for (int i = 0; i < PIECES; i++)
        token[256 + i] = mn_str_of(piece[i]);
    token[256 + PIECES] = mn_str_of("ab");
    token[256 + PIECES + 1] = (mn_str){"", 0};
    return mn_grammar_vocab_create(token, TOKENS, &vocab, NULL);
}

static int free_vocab(void **state) {
    (void)state;
    mn_grammar_vocab_free(vocab);
    return 0;
}

/* The most work that any form or step of these tests has taken. */
static uint64_t most_compiled, most_step, most_text;

/* Of a state that is freed next, which all its calls spent from b. */
static void note_work(const mn_grammar_budget *b) {
    most_step = MN_MAX(most_step, b->most);
    most_text = MN_MAX(most_text, b->most_request - b->low);
}

static mn_grammar *compiled(mn_grammar_kind kind, const char *source) {
    mn_grammar *g = NULL;
    mn_error err = MN_ERROR_INIT;
    if (mn_grammar_compile(kind, mn_str_of(source), vocab, &g, NULL, &err))
        fail_msg("%s: %s", source, err.msg);
    most_compiled = MN_MAX(most_compiled, g->work);
    return g;
}

static bool matches(mn_grammar *g, const char *text) {
    mn_grammar_state *s = NULL;
    mn_grammar_budget b;
    mn_grammar_budget_begin(&b, vocab);
    assert_int_equal(mn_grammar_state_create(g, &s, NULL), MN_OK);
    mn_grammar_state_spend(s, &b);
    const bool ok = !mn_grammar_accept_bytes(s, mn_str_of(text), NULL) && mn_grammar_complete(s);
    note_work(&b);
    mn_grammar_state_free(s);
    return ok;
}

/* The mask is what accepting a copy of the state says of each token. */
static void check_mask(mn_grammar_state *s, const uint32_t *bits) {
    for (int id = 0; id < TOKENS; id++) {
        mn_grammar_state *copy = NULL;
        assert_int_equal(mn_grammar_state_copy(s, &copy, NULL), MN_OK);
        const bool ok = !mn_grammar_accept(copy, id, NULL);
        mn_grammar_state_free(copy);
        if (ok != (bool)(bits[id / 32] >> id % 32 & 1))
            fail_msg("token %d (\"%.*s\"): accept says %d", id, MN_STR_ARG(token[id]), ok);
    }
}

static int32_t random_token(const uint32_t *bits, uint64_t *seed) {
    int32_t ids[TOKENS];
    uint32_t n = 0;
    for (int32_t id = 0; id < TOKENS; id++) {
        if (bits[id / 32] >> id % 32 & 1)
            ids[n++] = id;
    }
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return n ? ids[(*seed >> 33) % n] : -1;
}

/* Walks at random until the text is complete or long; forced bytes are what the walk then meets. */
static void walk(mn_grammar *g, uint64_t seed) {
    uint32_t bits[MN_GRAMMAR_WORDS(TOKENS)];
    mn_grammar_state *s = NULL;
    mn_grammar_budget b;
    mn_grammar_budget_begin(&b, vocab);
    assert_int_equal(mn_grammar_state_create(g, &s, NULL), MN_OK);
    for (int step = 0; step < 60; step++) {
        mn_error err = MN_ERROR_INIT;
        mn_text forced = {0};
        mn_grammar_budget_next(&b, 1);
        mn_grammar_state_spend(s, &b);
        if (mn_grammar_mask(s, bits, &err))
            fail_msg("%s", err.msg);
        assert_int_equal(mn_grammar_forced(s, &forced, NULL), MN_OK);
        mn_grammar_state_spend(s, NULL);
        if (step % 5 == 0)
            check_mask(s, bits);
        mn_grammar_state *copy = NULL;
        assert_int_equal(mn_grammar_state_copy(s, &copy, NULL), MN_OK);
        const mn_str text = {forced.ptr ? forced.ptr : "", forced.len};
        assert_int_equal(mn_grammar_accept_bytes(copy, text, NULL), MN_OK);
        mn_grammar_state_free(copy);
        mn_text_free(&forced);
        const int32_t id = random_token(bits, &seed);
        if (id < 0)
            break;
        mn_grammar_state_spend(s, &b);
        assert_int_equal(mn_grammar_accept(s, id, NULL), MN_OK);
    }
    note_work(&b);
    mn_grammar_state_free(s);
}

typedef struct {
    mn_grammar_kind kind;
    const char *source, *yes[5], *no[5];
} one_case;
static const one_case cases[] = {
    {MN_GRAMMAR_SCHEMA,
     "{\"$defs\":{\"List<String>\":{\"type\":\"boolean\"}},\"$ref\":\"#/$defs/List%3CString%3E\"}",
     {"true"},
     {"1", "null"}},
    {MN_GRAMMAR_SCHEMA,
     "{\"$defs\":{\"a/b %\":{\"type\":\"null\"}},\"$ref\":\"#/%24defs/a~1b%20%25\"}",
     {"null"},
     {"1", "true"}},
    {MN_GRAMMAR_SCHEMA,
     "{\"$defs\":{\"100%\":{\"type\":\"null\"}},\"$ref\":\"#/$defs/100%\"}",
     {"null"},
     {"1"}},
    {MN_GRAMMAR_SCHEMA,
     "{\"type\":\"integer\"}",
     {"9007199254740992", "-9007199254740992", "9007199254740991", "0", "1234567890123456"},
     {"9007199254740993", "-9007199254740993", "10000000000000000", "-0", "01"}},
    {MN_GRAMMAR_SCHEMA,
     "{\"type\":\"integer\",\"minimum\":9007199254740990,\"exclusiveMaximum\":9007199254740992}",
     {"9007199254740990", "9007199254740991"},
     {"9007199254740992", "9007199254740989", "1"}},
    {MN_GRAMMAR_SCHEMA,
     "{\"type\":\"integer\",\"exclusiveMinimum\":-9007199254740992,\"maximum\":-9007199254740990}",
     {"-9007199254740991", "-9007199254740990"},
     {"-9007199254740992", "-1", "0"}},
    {MN_GRAMMAR_SCHEMA,
     "{\"type\":\"number\",\"minimum\":1000000000000000}",
     {"1000000000000000", "9007199254740992"},
     {"999999999999999", "1"}},
    {MN_GRAMMAR_REGEX, "(a|b)*abb", {"abb", "aabb", "babaabb"}, {"", "ab", "abba"}},
    {MN_GRAMMAR_REGEX, "^a{2,4}$|b+?", {"aa", "aaaa", "bbb"}, {"a", "aaaaa", "ab"}},
    {MN_GRAMMAR_REGEX, "[^a-z\\d]{2}\\.x?", {"AB.", "\xc3\xa9-.x"}, {"a-.", "1A.", "\xc3."}},
    {MN_GRAMMAR_REGEX, "\\p{Lu}\\p{Ll}+", {"Ab", "\xc3\x89\xc3\xa9"}, {"ab", "AB"}},
    {MN_GRAMMAR_REGEX,
     "(?:x|(?<n>y)){,3}\\x41\\u{e9}",
     {"A\xc3\xa9", "xyxA\xc3\xa9"},
     {"A", "xxxxA\xc3\xa9"}},
    {MN_GRAMMAR_REGEX, "[\\w-]+@\\S+", {"a-b@c", "_@\xe2\x82\xac"}, {"@a", "a@", "a@ "}},
    {MN_GRAMMAR_REGEX,
     ".\\n[\\]\\-^]",
     {"\xf0\x9f\x98\x80\n]", "a\n^"},
     {"\n\n]", "\xed\xa0\x80\n]"}},
    {MN_GRAMMAR_REGEX, "(a*)*(b?)*c{0}", {"", "aab", "b"}, {"c", "ba"}},
    {MN_GRAMMAR_REGEX, "\\{a\\}{2}b{x", {"{a}}b{x"}, {"{a}b{x"}},
    {MN_GRAMMAR_GBNF, "root ::= \"(\" root \")\" | \"a\"", {"a", "(a)", "((a))"}, {"", "(a", "a)"}},
    {MN_GRAMMAR_GBNF,
     "# sums\nroot ::= term (\"+\" term)* \"\\n\"?\nterm ::= \"a\" | \"(\" root \")\"\n",
     {"a", "a+a\n", "(a+(a\n)+a)"},
     {"a+", "()", "\n"}},
    {MN_GRAMMAR_GBNF,
     "root ::= (\n  word # first\n  | [^a-z\"]{2,3}\n)\nword ::= [a-z]+ [0-9\\x41-\\x43]? | .{5}",
     {"abc9", "zB", "\xc3\xa9\xc3\xa9",
      "\xc3\xa9"
      "bc\"d"},
     {"a99", "\"\"", ""}},
    {MN_GRAMMAR_GBNF,
     "root ::= item root | item\nitem ::= ws \"x\" ws\nws ::= \" \"*",
     {"x", " x  x "},
     {"", "  "}},
    {MN_GRAMMAR_GBNF,
     "root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"\"",
     {"", "abba", "aa"},
     {"ab", "aab"}},
    {MN_GRAMMAR_JSON,
     "",
     {"{}", "{\"a\": [1, -2.5e+3, null]}", "[true,\"\\u00e9\\n\xc3\xa9\"]", "[[], {\"\":{}}]"},
     {"", "1", "{\"a\"}", "[01]", "[\"\n\"]"}},
};

static void test_cases(void **state) {
    (void)state;
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        const one_case *c = &cases[i];
        mn_grammar *g = compiled(c->kind, c->source);
        for (int k = 0; k < 5; k++) {
            if (c->yes[k] && !matches(g, c->yes[k]))
                fail_msg("%s: does not match \"%s\"", c->source, c->yes[k]);
            if (c->no[k] && matches(g, c->no[k]))
                fail_msg("%s: matches \"%s\"", c->source, c->no[k]);
        }
        for (uint64_t seed = 0; seed < 6; seed++)
            walk(g, seed);
        mn_grammar_free(g);
    }
}

static void test_choices(void **state) {
    const mn_str choice[] = {mn_str_of("yes"), mn_str_of("no"), mn_str_of("yesterday"),
                             mn_str_of("no")};
    mn_grammar *g = NULL;
    mn_error err = MN_ERROR_INIT;
    (void)state;
    assert_int_equal(mn_grammar_choices(choice, 4, vocab, &g, &err), MN_OK);
    assert_true(matches(g, "yes") && matches(g, "no") && matches(g, "yesterday"));
    assert_false(matches(g, "yester") || matches(g, "") || matches(g, "noyes"));
    mn_grammar_state *s = NULL;
    mn_text forced = {0};
    assert_int_equal(mn_grammar_state_create(g, &s, NULL), MN_OK);
    assert_int_equal(mn_grammar_accept(s, 'n', NULL), MN_OK);
    assert_int_equal(mn_grammar_forced(s, &forced, NULL), MN_OK);
    assert_string_equal(forced.ptr, "o");
    assert_int_equal(mn_grammar_accept(s, 'x', &err), MN_BAD_INPUT);
    assert_int_equal(mn_grammar_accept(s, TOKENS - 1, &err), MN_BAD_INPUT);
    assert_int_equal(mn_grammar_accept(s, 'o', NULL), MN_OK);
    assert_true(mn_grammar_complete(s));
    mn_text_free(&forced);
    mn_grammar_state_free(s);
    for (uint64_t seed = 0; seed < 6; seed++)
        walk(g, seed);
    mn_grammar_free(g);
    assert_int_equal(mn_grammar_choices(choice, 0, vocab, &g, &err), MN_BAD_INPUT);
}

static void test_refusals(void **state) {
    static const struct {
        mn_grammar_kind kind;
        mn_status status;
        const char *source, *said;
    } list[] = {
        {MN_GRAMMAR_REGEX, MN_UNSUPPORTED, "(a)\\1", "back-references"},
        {MN_GRAMMAR_REGEX, MN_UNSUPPORTED, "a(?=b)", "look-around"},
        {MN_GRAMMAR_REGEX, MN_UNSUPPORTED, "a\\b", "this escape"},
        {MN_GRAMMAR_REGEX, MN_UNSUPPORTED, "b(^a)", "anchors"},
        {MN_GRAMMAR_REGEX, MN_UNSUPPORTED, "a*+", "possessive"},
        {MN_GRAMMAR_REGEX, MN_UNSUPPORTED, "\\p{Greek}", "general categories"},
        {MN_GRAMMAR_REGEX, MN_UNSUPPORTED, "((a{1000}){1000}){1000}", "states"},
        {MN_GRAMMAR_REGEX, MN_UNSUPPORTED, "a{99999999}", "states"},
        {MN_GRAMMAR_REGEX, MN_UNSUPPORTED, "a{1,18446744073709551618}", "states"},
        {MN_GRAMMAR_SCHEMA, MN_BAD_INPUT, "{\"properties\":[{\"type\":\"null\"}]}",
         "#/properties: an object is expected"},
        {MN_GRAMMAR_SCHEMA, MN_BAD_INPUT, "{\"allOf\":[{\"patternProperties\":[true]}]}",
         "patternProperties: an object is expected"},
        {MN_GRAMMAR_SCHEMA, MN_BAD_INPUT, "{\"type\":\"object\",\"required\":{\"a\":1}}",
         "#/required: a list is expected"},
        {MN_GRAMMAR_SCHEMA, MN_BAD_INPUT, "{\"dependentRequired\":{\"a\":\"b\"}}",
         "#/dependentRequired: lists are expected"},
        {MN_GRAMMAR_SCHEMA, MN_BAD_INPUT, "{\"anyOf\":{\"type\":\"null\"}}",
         "#/anyOf: a list is expected"},
        {MN_GRAMMAR_REGEX, MN_BAD_INPUT, "(a", "')' is missing"},
        {MN_GRAMMAR_REGEX, MN_BAD_INPUT, "a)", "')' without"},
        {MN_GRAMMAR_REGEX, MN_BAD_INPUT, "[z-a]", "ends before"},
        {MN_GRAMMAR_REGEX, MN_BAD_INPUT, "*a", "nothing to repeat"},
        {MN_GRAMMAR_REGEX, MN_BAD_INPUT, "\xff", "UTF-8"},
        {MN_GRAMMAR_REGEX, MN_BAD_INPUT, "[^\\s\\S]", "matches no text"},
        {MN_GRAMMAR_GBNF, MN_BAD_INPUT, "root ::= root \"a\" | \"b\"", "root begins with itself"},
        {MN_GRAMMAR_GBNF, MN_BAD_INPUT, "root ::= x\nx ::= \" \"* y\ny ::= x \"b\" | \"c\"",
         "left recursion"},
        {MN_GRAMMAR_GBNF, MN_BAD_INPUT, "root ::= \"a\" root", "matches no text"},
        {MN_GRAMMAR_GBNF, MN_BAD_INPUT, "root ::= \"a\"\n\nx ::= y", "line 3: rule \"y\""},
        {MN_GRAMMAR_GBNF, MN_BAD_INPUT, "root ::= \"a", "line 1"},
        {MN_GRAMMAR_GBNF, MN_BAD_INPUT, "\nroot = 1", "line 2: '::='"},
        {MN_GRAMMAR_GBNF, MN_UNSUPPORTED, "root ::= <[12]>", "tokens"},
    };
    (void)state;
    for (size_t i = 0; i < MN_COUNT(list); i++) {
        mn_grammar *g = NULL;
        mn_error err = MN_ERROR_INIT;
        const mn_str source = mn_str_of(list[i].source);
        const mn_status st = mn_grammar_compile(list[i].kind, source, vocab, &g, NULL, &err);
        if (st != list[i].status || !strstr(err.msg, list[i].said))
            fail_msg("%s: status %d, \"%s\"", list[i].source, (int)st, st ? err.msg : "");
        assert_null(g);
    }
}

/* Sets explode, memory does not: states live on through what is freed. */
static void test_explosion(void **state) {
    mn_grammar *g = compiled(MN_GRAMMAR_REGEX, "(a|b)*a(a|b){200}c");
    uint32_t bits[MN_GRAMMAR_WORDS(TOKENS)];
    mn_grammar_state *s = NULL;
    uint64_t seed = 7;
    (void)state;
    assert_int_equal(mn_grammar_state_create(g, &s, NULL), MN_OK);
    for (int step = 0; step < 3000; step++) {
        assert_int_equal(mn_grammar_mask(s, bits, NULL), MN_OK);
        bits['c' / 32] &= ~(1u << 'c' % 32);
        bits[257 / 32] &= ~(1u << 257 % 32); /* "abc" */
        assert_int_equal(mn_grammar_accept(s, random_token(bits, &seed), NULL), MN_OK);
        assert_true(g->bytes <= MN_GRAMMAR_MEMORY + (1u << 20));
    }
    mn_grammar_state_free(s);
    mn_grammar_free(g);
}

/* As deep as the limit allows, and then only back. */
static void test_depth(void **state) {
    mn_grammar *g = compiled(MN_GRAMMAR_GBNF, "root ::= \"(\" root \")\" | \"a\"");
    uint32_t bits[MN_GRAMMAR_WORDS(TOKENS)];
    mn_grammar_state *s = NULL;
    uint32_t depth = 0;
    (void)state;
    assert_int_equal(mn_grammar_state_create(g, &s, NULL), MN_OK);
    while (!mn_grammar_accept(s, '(', NULL))
        depth++;
    assert_true(depth >= MN_GRAMMAR_DEPTH - 2 && depth <= MN_GRAMMAR_DEPTH);
    assert_int_equal(mn_grammar_mask(s, bits, NULL), MN_OK);
    check_mask(s, bits);
    assert_int_equal(mn_grammar_accept(s, 'a', NULL), MN_OK);
    for (; depth; depth--)
        assert_int_equal(mn_grammar_accept(s, ')', NULL), MN_OK);
    assert_true(mn_grammar_complete(s));
    mn_grammar_state_free(s);
    mn_grammar_free(g);
}

/* ---- threads: what each finds is what it finds alone ----------------------------------------- */
enum { WALKERS = 6, WALK_STEPS = 300 };
typedef struct {
    mn_grammar *g;
    uint64_t seed, hash;
} one_walk;

static void *walk_along(void *arg) {
    one_walk *w = arg;
    mn_grammar_state *s = NULL;
    uint64_t seed = w->seed;
    for (int step = 0; step < WALK_STEPS; step++) {
        uint32_t bits[MN_GRAMMAR_WORDS(TOKENS)];
        mn_text forced = {0};
        mn_grammar_state *copy = NULL;
        if ((!s && mn_grammar_state_create(w->g, &s, NULL)) || mn_grammar_mask(s, bits, NULL) ||
            mn_grammar_forced(s, &forced, NULL) || mn_grammar_state_copy(s, &copy, NULL))
            return NULL;
        w->hash = mn_hash(bits, sizeof bits, w->hash);
        w->hash = mn_hash(forced.ptr ? forced.ptr : "", forced.len, w->hash);
        mn_text_free(&forced);
        mn_grammar_state_free(s);
        s = copy;
        const int32_t id = random_token(bits, &seed);
        if (id < 0 || mn_grammar_accept(s, id, NULL)) { /* the end of a text */
            mn_grammar_state_free(s);
            s = NULL;
        }
    }
    mn_grammar_state_free(s);
    return NULL;
}

static void test_threads(void **state) {
    static const char schema[] =
        "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":"
        "\"string\",\"pattern\":\"^[ab(]*$\",\"maxLength\":9},\"aba\":{\"$ref\":\"#\"}},"
        "\"required\":[\"ab\"]}}";
    mn_grammar *shared = compiled(MN_GRAMMAR_SCHEMA, schema);
    one_walk walk[WALKERS];
    pthread_t thread[WALKERS];
    (void)state;
    for (uint32_t i = 0; i < WALKERS; i++) {
        walk[i] = (one_walk){shared, 10 + i / 2, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, walk_along, &walk[i]), 0);
    }
    for (uint32_t i = 0; i < WALKERS; i++) {
        one_walk alone = {compiled(MN_GRAMMAR_SCHEMA, schema), walk[i].seed, 0};
        walk_along(&alone);
        pthread_join(thread[i], NULL);
        assert_true(alone.hash && alone.hash == walk[i].hash);
        mn_grammar_free(alone.g);
    }
    mn_grammar_free(shared);
}

/* ---- work ------------------------------------------------------------------------------------ */
/* What the tests before this one compile and follow takes at most a tenth of what it may. */
static void test_tenth(void **state) {
    mn_grammar_budget b;
    (void)state;
    mn_grammar_budget_begin(&b, vocab);
    printf("most work: compiled %.1f %%, for a token %.1f %%, for a text %.1f %%\n",
           100.0 * (double)most_compiled / MN_GRAMMAR_WORK_COMPILE,
           100.0 * (double)most_step / (double)b.most_step,
           100.0 * (double)most_text / (double)b.most_request);
    assert_true(most_compiled <= MN_GRAMMAR_WORK_COMPILE / 10);
    assert_true(most_step <= b.most_step / 10);
    assert_true(most_text <= b.most_request / 10);
}

/* More ways to read a text than are compared one by one: masks are the same through hashes. */
static void test_ambiguous(void **state) {
    mn_grammar *g =
        compiled(MN_GRAMMAR_GBNF, "root ::= s\ns ::= \"a\" s? s? | \"(\" s? s? \")\" | \"ab\" s?");
    (void)state;
    assert_true(matches(g, "a(a)a") && matches(g, "(a(aa)ab)") && matches(g, "aaaa"));
    assert_false(matches(g, "(a") || matches(g, "b") || matches(g, ""));
    for (uint64_t seed = 0; seed < 3; seed++)
        walk(g, seed);
    mn_grammar_free(g);
}

/* ---- hostile sources: bounded in nodes, sets and bytes, or refused by name ------------------- */
/* A schema of n parts: begin, part (with its number twice) for each, comma between, end. */
static mn_text schema_of(const char *begin, const char *part, uint32_t n, const char *end) {
    mn_text t = {0};
    mn_text_puts(&t, begin);
    for (uint32_t i = 0; i < n; i++) {
        for (const char *c = part; *c; c++) {
            if (*c == '@')
                mn_text_printf(&t, "%u", i);
            else if (*c == '+')
                mn_text_printf(&t, "%u", i + 1);
            else
                mn_text_put(&t, c, 1);
        }
        mn_text_puts(&t, i + 1 < n ? "," : "");
    }
    mn_text_puts(&t, end);
    return t;
}

static const struct {
    const char *begin, *part;
    uint32_t n;
    const char *end;
    uint32_t nodes;     /* at most; 0: refused */
    const char *expect; /* a text that matches, or what the refusal says */
} hostile[] = {
    {"{\"properties\":{", "\"p@\":{\"type\":\"null\"}", 10000, "},\"type\":\"object\"}", 250000,
     "{\"p7\":null,\"p9999\":null}"},
    {"{\"type\":\"object\",\"required\":[\"p9999\"],\"properties\":{", "\"p@\":{\"enum\":[1]}",
     10000, "},\"additionalProperties\":{\"type\":\"null\"}}", 2000000,
     "{\"p3\":1,\"p9999\":1,\"q\":null}"},
    {"{\"$ref\":\"#/$defs/d0\",\"$defs\":{", "\"d@\":{\"$ref\":\"#/$defs/d+\"}", 1000,
     ",\"d1000\":{\"type\":\"boolean\"}}}", 20000, "true"},
    {"{\"$ref\":\"#/$defs/d0\",\"$defs\":{",
     "\"d@\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/d+\"},\"maxItems\":1}", 1000,
     ",\"d1000\":{\"type\":\"boolean\"}}}", 200000, "[[[[]]]]"},
    {"{\"allOf\":[", "{\"anyOf\":[{\"minLength\":1},{\"maxLength\":@}]}", 40, "]}", 0,
     "too much work"},
    {"{\"allOf\":[", "{\"$ref\":\"#\"}", 2, "]}", 0, "too many combined"},
    {"{\"$ref\":\"#/$defs/d0\",\"$defs\":{",
     "\"d@\":{\"allOf\":[{\"$ref\":\"#/$defs/d+\"},{\"$ref\":\"#/$defs/d+\"}]}", 60,
     ",\"d60\":{\"type\":\"boolean\"}}}", 20000, "true"},
    {"{\"type\":\"array\",\"prefixItems\":[", "{\"type\":\"string\",\"maxLength\":4000}", 300, "]}",
     0, "states"},
    {"{\"type\":\"object\",\"patternProperties\":{", "\"a@\":true", 100, "}}", 0,
     "too many patterns"},
};

static void test_hostile(void **state) {
    (void)state;
    for (size_t i = 0; i < MN_COUNT(hostile); i++) {
        mn_text t = schema_of(hostile[i].begin, hostile[i].part, hostile[i].n, hostile[i].end);
        mn_grammar *g = NULL;
        mn_error err = MN_ERROR_INIT;
        const mn_str source = {t.ptr, t.len};
        const mn_status st = mn_grammar_compile(MN_GRAMMAR_SCHEMA, source, vocab, &g, NULL, &err);
        if (!hostile[i].nodes && !strstr(err.msg, hostile[i].expect))
            fail_msg("case %zu: \"%s\"", i, err.msg);
        if (hostile[i].nodes && st)
            fail_msg("case %zu: %s", i, err.msg);
        if (hostile[i].nodes) {
            assert_true(g->nfa.n <= hostile[i].nodes);
            assert_true(matches(g, hostile[i].expect));
            walk(g, i);
            assert_true(g->bytes <= MN_GRAMMAR_MEMORY + (4u << 20));
        }
        mn_grammar_free(g);
        mn_text_free(&t);
    }
}

/* ---- calls in free text ---------------------------------------------------------------------- */
#define CALL(name, type)                                                                           \
    "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"" name                             \
    "\"},\"arguments\":{\"type\":\"" type "\"}},\"required\":[\"name\",\"arguments\"]}"
#define IS_STR(z)                                                                                  \
    { (z), sizeof(z) - 1 }

static const mn_grammar_tag hermes[] = {
    {IS_STR("<call>"), MN_GRAMMAR_SCHEMA, IS_STR(CALL("f", "integer")), IS_STR("</call>"), false,
     IS_STR(""), IS_STR("")},
    {IS_STR("<call>"), MN_GRAMMAR_SCHEMA, IS_STR(CALL("g", "null")), IS_STR("</call>"), false,
     IS_STR(""), IS_STR("")},
    {IS_STR("<<x"), MN_GRAMMAR_GBNF, IS_STR("root ::= value | \"(\" root \")\"\nvalue ::= \"v\""),
     IS_STR(""), false, IS_STR(""), IS_STR("")},
    {IS_STR("{"), MN_GRAMMAR_REGEX, IS_STR("[0-9]+"), IS_STR("}"), true, IS_STR(""), IS_STR("")},
};

static mn_grammar *tagged(uint32_t least, uint32_t most, bool only) {
    const mn_grammar_tags t = {.tag = hermes,
                               .n = 4,
                               .least = least,
                               .most = most,
                               .only = only,
                               .between = mn_str_of("; ")};
    mn_grammar *g = NULL;
    mn_error err = MN_ERROR_INIT;
    if (mn_grammar_tagged(&t, vocab, &g, NULL, &err))
        fail_msg("%s", err.msg);
    return g;
}

#define F_CALL "<call>{\"name\":\"f\",\"arguments\":12}</call>"
static const struct {
    uint32_t least, most;
    bool only;
    const char *yes[8], *no[8];
} tag_cases[] = {
    {0,
     0,
     false,
     {"", "free \xff <cal <<call", F_CALL, "a" F_CALL F_CALL "b", "<<<xv<<x((v))<", "{1}x{y",
      "<call>{\"name\": \"g\", \"arguments\": null}</call> ", "x{"},
     {"<call>", "<call>{}", "<<call>x", "{", "{x}", "<<x", "<<xw",
      "<call>{\"name\":\"g\",\"arguments\":12}</call>"}},
    {1, 0, false, {F_CALL, "ab" F_CALL "cd" F_CALL "e", "{1}"}, {"", "ab", "<cal", "x{1}"}},
    {0, 1, false, {"", "x", "x" F_CALL}, {F_CALL "x", F_CALL F_CALL}},
    {2, 3, false, {"<<xv<<xv", "<<xv <<xv.<<xv"}, {"<<xv<", "<<xv<<xv<<xv<<xv", "<<xv<<xv<<xv "}},
    {1, 2, true, {F_CALL, F_CALL "; {1}", "<<xv"}, {"", "a" F_CALL, F_CALL F_CALL, F_CALL "; "}},
    {0, 0, true, {"", "{1}; {2}; {3}"}, {"; {1}", " "}},
};

static void test_tagged(void **state) {
    (void)state;
    for (size_t i = 0; i < MN_COUNT(tag_cases); i++) {
        mn_grammar *g = tagged(tag_cases[i].least, tag_cases[i].most, tag_cases[i].only);
        for (int k = 0; k < 8; k++) {
            if (tag_cases[i].yes[k] && !matches(g, tag_cases[i].yes[k]))
                fail_msg("case %zu does not match \"%s\"", i, tag_cases[i].yes[k]);
            if (tag_cases[i].no[k] && matches(g, tag_cases[i].no[k]))
                fail_msg("case %zu matches \"%s\"", i, tag_cases[i].no[k]);
        }
        for (uint64_t seed = 0; seed < 4; seed++)
            walk(g, seed);
        mn_grammar_free(g);
    }
}

static void refused_tags(const mn_grammar_tag *tag, uint32_t n, mn_status status,
                         const char *said) {
    const mn_grammar_tags t = {.tag = tag, .n = n};
    mn_grammar *g = NULL;
    mn_error err = MN_ERROR_INIT;
    assert_int_equal(mn_grammar_tagged(&t, vocab, &g, NULL, &err), status);
    assert_null(g);
    if (!strstr(err.msg, said))
        fail_msg("\"%s\" lacks \"%s\"", err.msg, said);
}

/* What is thought before calls that are forced: once, without marks that it may not have. */
static void test_thinking(void **state) {
    static const mn_str never[] = {{"[", 1}, {"]]", 2}};
    mn_grammar_tags t = {.tag = hermes, .n = 1, .least = 1, .most = 1, .only = true};
    (void)state;
    for (uint32_t opened = 0; opened < 2; opened++) {
        mn_grammar *g = NULL;
        t.thinking = (mn_grammar_thinking){mn_str_of(opened ? "" : "[["), mn_str_of("]."),
                                           mn_str_of("+a"), never, 2};
        assert_int_equal(mn_grammar_tagged(&t, vocab, &g, NULL, NULL), MN_OK);
        const char *begin = opened ? "" : "[[";
        mn_text text = {0};
        mn_text_printf(&text, "%sx ] y].+a" F_CALL, begin);
        assert_int_equal(matches(g, text.ptr), true);
        assert_int_equal(matches(g, F_CALL), !opened);
        text.len = 0;
        mn_text_printf(&text, "%sx [ y].+a" F_CALL, begin);
        assert_false(matches(g, text.ptr));
        text.len = 0;
        mn_text_printf(&text, "%sx ]] y].+a" F_CALL, begin);
        assert_false(matches(g, text.ptr));
        mn_text_free(&text);
        mn_grammar_free(g);
    }
}

/* Arguments as tags: strings are bare, the rest is JSON. */
#define P(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"
static const struct {
    const char *schema, *yes[5], *no[5]; /* no[0] with no yes: what the refusal says */
} parameters[] = {
    {"{\"properties\":{\"a\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\",\"maximum\":12,"
     "\"minimum\":0}},\"required\":[\"a\"]}",
     {P("a", "x < y"), P("a", ""), P("a", "\"q\"\n\\ <<b> \xc3\xa9<") P("n", "12")},
     {"", P("n", "3"), P("a", "x") P("n", "13"), P("a", "x</parameter>"), P("n", "3") P("a", "x")}},
    {"{\"properties\":{\"e\":{\"enum\":[\"a "
     "\\\"b\\\"\",\"c\"]},\"m\":{\"type\":[\"string\",\"null\"],"
     "\"maxLength\":2},\"l\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}}}",
     {"", P("e", "a \"b\""), P("m", "null") P("l", "[\"x\"]"), P("m", "ab"), P("m", "")},
     {P("e", "a"), P("m", "abc"), P("m", "<"), P("l", "x")}},
    {"{\"properties\":{\"r\":{\"$ref\":\"#/$defs/d\"},\"o\":{\"anyOf\":[{\"type\":\"string\","
     "\"pattern\":\"^a+$\"},{\"type\":\"null\"}]}},\"$defs\":{\"d\":{\"enum\":[\"u\",\"v\"]}}}",
     {P("r", "u"), P("o", "aaa"), P("r", "v") P("o", "null")},
     {P("r", "w"), P("o", "b"), P("o", "")}},
    {"{}", {"", P("b", "x") P("a", "")}, {P("", "x"), "x"}},
    {"{\"additionalProperties\":false}", {""}, {P("a", "x")}},
    {"{\"properties\":{\"a\":{\"type\":[\"string\",\"integer\"]}}}",
     {0},
     {"#/properties/a: strings"}},
    {"{\"properties\":{\"a\":{\"not\":{}}}}", {0}, {"#/properties/a/not"}},
    {"{\"properties\":{\"a\":{\"type\":\"string\",\"not\":{}}}}", {0}, {"#/properties/a/not"}},
    {"{\"properties\":{\"a>\":true}}", {0}, {"a name that cannot"}},
    {"{\"required\":[\"x\"]}", {0}, {"#/required"}},
    {"{\"properties\":{\"a\":[1]}}", {0}, {"#/properties/a: a schema is"}},
    {"{\"properties\":[1]}", {0}, {"#/properties"}},
    {"{\"properties\":{\"a\":{\"$ref\":\"#/$defs/x\"}},\"$defs\":{\"x\":{\"anyOf\":[{\"$ref\":\"#/"
     "$defs/x\"},"
     "{\"$ref\":\"#/$defs/x\"},{\"$ref\":\"#/$defs/x\"},{\"$ref\":\"#/$defs/x\"}]}}}",
     {0},
     {"too many references"}},
};

static void test_parameters(void **state) {
    (void)state;
    for (size_t i = 0; i < MN_COUNT(parameters); i++) {
        const char *schema = parameters[i].schema;
        mn_grammar *g = NULL;
        mn_error err = MN_ERROR_INIT;
        const bool refused = !parameters[i].yes[0];
        const mn_status st =
            mn_grammar_compile(MN_GRAMMAR_PARAMETERS, mn_str_of(schema), vocab, &g, NULL, &err);
        if (refused ? st != MN_UNSUPPORTED && st != MN_BAD_INPUT : st != MN_OK)
            fail_msg("%s: %d", schema, (int)st);
        if (refused && !strstr(err.msg, parameters[i].no[0]))
            fail_msg("%s", err.msg);
        for (int k = 0; k < 5 && g; k++) {
            const char *yes = parameters[i].yes[k];
            const char *no = parameters[i].no[k];
            if ((yes && !matches(g, yes)) || (no && matches(g, no)))
                fail_msg("%s: %d", schema, k);
        }
        for (uint64_t seed = 0; seed < 4 && g; seed++)
            walk(g, seed);
        mn_grammar_free(g);
    }
}

/* The same schemas with the tags of other families. */
static void test_other_tags(void **state) {
    static const char schema[] =
        "{\"properties\":{\"a\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"}},"
        "\"required\":[\"a\"]}";
    static const struct {
        mn_grammar_kind kind;
        const char *yes[2], *no[3];
    } forms[] = {
        {MN_GRAMMAR_INVOKES,
         {"<parameter name=\"a\">x\ny</parameter>\n",
          "<parameter name=\"a\"></parameter>\n<parameter name=\"n\">12</parameter>\n"},
         {"<parameter=a>x</parameter>\n", "<parameter name=\"n\">1</parameter>\n",
          "<parameter name=\"a\">x</parameter>\n<parameter name=\"n\">y</parameter>\n"}},
        {MN_GRAMMAR_ARGS,
         {"<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n",
          "<arg_key>a</arg_key>\n<arg_value></arg_value>\n<arg_key>n</arg_key>\n"
          "<arg_value>-3</arg_value>\n"},
         {"<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n", "<arg_key>a</arg_key>\n",
          "<arg_key>a</arg_key>\n<arg_value>x</arg_value></arg_value>\n"}},
    };
    (void)state;
    for (size_t i = 0; i < MN_COUNT(forms); i++) {
        mn_grammar *g = NULL;
        mn_error err = MN_ERROR_INIT;
        if (mn_grammar_compile(forms[i].kind, mn_str_of(schema), vocab, &g, NULL, &err))
            fail_msg("%s", err.msg);
        for (int k = 0; k < 2; k++)
            assert_true(matches(g, forms[i].yes[k]));
        for (int k = 0; k < 3; k++)
            assert_false(matches(g, forms[i].no[k]));
        for (uint64_t seed = 0; seed < 4; seed++)
            walk(g, seed);
        mn_grammar_free(g);
        static const char bad[] = "{\"properties\":{\"a<\":true}}";
        assert_int_equal(mn_grammar_compile(forms[i].kind, mn_str_of(bad), vocab, &g, NULL, &err),
                         MN_UNSUPPORTED);
    }
}

static void test_tag_refusals(void **state) {
    static char mark[MN_GRAMMAR_MARKS + 1];
    mn_grammar_tag two[2] = {hermes[0], hermes[0]};
    (void)state;
    refused_tags(two, 0, MN_BAD_INPUT, "forms");
    two[1].begin = mn_str_of("a<call>");
    refused_tags(two, 2, MN_BAD_INPUT, "call 1: its begin \"a<call>\" holds \"<call>\"");
    two[1].begin = mn_str_of("");
    refused_tags(two, 2, MN_BAD_INPUT, "call 1: its begin is empty");
    two[1].begin = mn_str_of("<b>");
    two[1].source = mn_str_of("{\"properties\":{\"a\":{\"not\":{}}}}");
    refused_tags(two, 2, MN_UNSUPPORTED, "call 1: schema, #/properties/a/not");
    memset(mark, 'm', sizeof mark);
    two[0].begin = (mn_str){mark, sizeof mark};
    refused_tags(two, 1, MN_UNSUPPORTED, "marks");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),      cmocka_unit_test(test_choices),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_explosion),
        cmocka_unit_test(test_depth),      cmocka_unit_test(test_tagged),
        cmocka_unit_test(test_other_tags), cmocka_unit_test(test_tag_refusals),
        cmocka_unit_test(test_threads),    cmocka_unit_test(test_thinking),
        cmocka_unit_test(test_parameters), cmocka_unit_test(test_tenth),
        cmocka_unit_test(test_ambiguous),  cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, make_vocab, free_vocab);
}
