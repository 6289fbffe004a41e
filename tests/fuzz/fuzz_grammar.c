/* fuzz_grammar.c -- sources of grammars. Input: a digit for the kind (0 JSON Schema, 1 regular
 * expression, 2 GBNF, 3 a schema in calls within free text, 4 a schema whose properties are tags),
 * a line end, and the source. What is allowed can be accepted, what the mask lacks cannot. */
#include "fuzz.h"
#include "grammar/grammar.h"
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 256 + 6, STEPS = 12 };

static char one_byte[256];

static mn_grammar_vocab *make_vocab(void) {
    static const char *const piece[] = {"ab", "\":", "\",", "12", "{\"", "\xc3\xa9"};
    mn_grammar_vocab *v = NULL;
    mn_error err = MN_ERROR_INIT;
    mn_str token[TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        one_byte[i % 256] = (char)(i % 256);
        token[i] = i < 256 ? (mn_str){&one_byte[i], 1} : mn_str_of(piece[i - 256]);
    }
    fuzz_ok(mn_grammar_vocab_create(token, TOKENS, &v, &err), &err);
    return v;
}

/* The first token from `from` on, in a circle, that the mask allows. */
static int32_t choose(const uint32_t *bits, uint32_t from) {
    for (uint32_t i = 0; i < TOKENS; i++) {
        const uint32_t id = (from + i) % TOKENS;
        if (bits[id / 32] >> id % 32 & 1)
            return (int32_t)id;
    }
    return -1;
}

static void walk(mn_grammar *g, uint32_t seed) {
    uint32_t bits[MN_GRAMMAR_WORDS(TOKENS)];
    mn_grammar_state *s = NULL;
    mn_error err = MN_ERROR_INIT;
    if (!fuzz_ok(mn_grammar_state_create(g, &s, &err), &err))
        return;
    for (uint32_t step = 0; step < STEPS; step++) {
        if (!fuzz_ok(mn_grammar_mask(s, bits, &err), &err))
            break;
        seed = seed * 1103515245u + 12345u;
        const uint32_t other = (seed >> 8) % TOKENS;
        const bool allowed = bits[other / 32] >> other % 32 & 1;
        const int32_t id = allowed ? (int32_t)other : choose(bits, other);
        if (!allowed)
            FUZZ_CHECK(mn_grammar_accept(s, (int32_t)other, NULL) == MN_BAD_INPUT);
        if (id < 0)
            break;
        FUZZ_CHECK(!mn_grammar_accept(s, id, NULL));
    }
    fuzz_accepted = true;
    mn_grammar_state_free(s);
}

static mn_status compile(uint32_t kind, mn_str source, const mn_grammar_vocab *v, mn_grammar **g,
                         mn_error *err) {
    static const mn_grammar_kind kinds[] = {MN_GRAMMAR_SCHEMA, MN_GRAMMAR_REGEX, MN_GRAMMAR_GBNF};
    const mn_grammar_tag tag[] = {
        {mn_str_of("ab"), MN_GRAMMAR_SCHEMA, source, mn_str_of("12"), false, {"", 0}, {"", 0}},
        {mn_str_of("a\":"),
         MN_GRAMMAR_REGEX,
         mn_str_of("[0-9]+"),
         mn_str_of(""),
         true,
         {" ", 1},
         {"", 0}},
    };
    const mn_grammar_tags tags = {.tag = tag, .n = 2, .least = kind % 2, .between = {"", 0}};
    if (kind == '3')
        return mn_grammar_tagged(&tags, v, g, NULL, err);
    if (kind == '4')
        return mn_grammar_compile(MN_GRAMMAR_PARAMETERS, source, v, g, NULL, err);
    return mn_grammar_compile(kinds[kind % 3], source, v, g, NULL, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const char *only = getenv("FUZZ_KIND");
    if (n < 2 || (only && data[0] != (uint8_t)*only))
        return 0;
    mn_grammar *g = NULL;
    mn_error err = MN_ERROR_INIT;
    mn_grammar_vocab *v = make_vocab();
    const mn_str source = {(const char *)data + 2, n - 2};
    if (v && fuzz_ok(compile(data[0], source, v, &g, &err), &err)) {
        walk(g, data[0]);
        walk(g, data[1]);
    }
    mn_grammar_free(g);
    mn_grammar_vocab_free(v);
    return 0;
}
