/* grammar_walk SCHEMA N SEED -- N random texts under a JSON schema (@FILE: in a file), each chosen
 * token by token among those that its mask allows, one per line as a JSON string. Exits with 2 and
 * the message where the schema is refused. For grammar_schemas.py. */
#include "grammar/grammar.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 20000, TOKENS = 256 + 40 };

static mn_str token[TOKENS];
static char one_byte[256];

static void make_tokens(void) {
    static const char *const piece[TOKENS - 256] = {
        "\"",       "\",", "\", \"", "\":",  "\": ", "{\"",      "\"}",          "}}",
        "[[",       "]]",  "],[",    "12",   "123",  "0.",       ".5",           "e+",
        "-1",       "tr",  "ue",     "null", ", ",   "\xc3\xa9", "\xc3\xa9\xc3", "\xa9",
        "\xf0\x9f", "  ",  "\n  ",   "id",   "name", "\\u00",    "\\\"",         "]",
        "}",        "\"]", "\"},",   "1,",   "2]",   "false",    "a\"",          "20"};
    for (int i = 0; i < 256; i++) {
        one_byte[i] = (char)i;
        token[i] = (mn_str){&one_byte[i], 1};
    }
    for (int i = 256; i < TOKENS; i++)
        token[i] = mn_str_of(piece[i - 256]);
}

/* Pieces that close something come often once a text is long, so that it ends. */
static int32_t choose(const uint32_t *bits, uint32_t step, uint64_t *seed) {
    int32_t ids[TOKENS];
    int32_t n = 0;
    int32_t closing = -1;
    for (int32_t id = 0; id < TOKENS; id++) {
        if (!(bits[id / 32] >> id % 32 & 1))
            continue;
        ids[n++] = id;
        const bool closes = token[id].len == 1 && strchr("\"]}", token[id].ptr[0]);
        if (step > 120 && closes && closing < 0)
            closing = id;
    }
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    if (closing >= 0 && (*seed >> 60) < 12)
        return closing;
    return n ? ids[(*seed >> 33) % (uint64_t)n] : -1;
}

/* One text; false: it did not come to an end. */
static bool generate(mn_grammar *g, uint64_t *seed, mn_text *out) {
    uint32_t bits[MN_GRAMMAR_WORDS(TOKENS)];
    mn_grammar_state *s = NULL;
    mn_error err = MN_ERROR_INIT;
    bool done = false;
    mn_status st = mn_grammar_state_create(g, &s, &err);
    for (uint32_t step = 0; step < MOST && !st && !done; step++) {
        st = mn_grammar_mask(s, bits, &err);
        const int32_t id = choose(bits, step, seed);
        done = mn_grammar_complete(s) && (id < 0 || (*seed >> 40) % 4 == 0);
        if (st || done)
            break;
        st = mn_grammar_accept(s, id, &err);
        mn_text_put(out, token[id].ptr, (size_t)token[id].len);
    }
    mn_grammar_state_free(s);
    if (st)
        fprintf(stderr, "%s\n", err.msg);
    return done && !st;
}

static const char *schema_of(const char *arg) {
    static char source[8u << 20];
    FILE *f = *arg == '@' ? fopen(arg + 1, "rb") : NULL;
    if (f) {
        source[fread(source, 1, sizeof source - 1, f)] = 0;
        fclose(f);
        return source;
    }
    return arg;
}

int main(int argc, char **argv) {
    mn_grammar_vocab *v = NULL;
    mn_grammar *g = NULL;
    mn_error err = MN_ERROR_INIT;
    if (argc < 4)
        return 1;
    uint64_t seed = strtoull(argv[3], NULL, 10);
    const char *schema = schema_of(argv[1]);
    make_tokens();
    if (mn_grammar_vocab_create(token, TOKENS, &v, &err) ||
        mn_grammar_compile(MN_GRAMMAR_SCHEMA, mn_str_of(schema), v, &g, NULL, &err)) {
        printf("%s\n", err.msg);
        mn_grammar_vocab_free(v);
        return 2;
    }
    int failed = 0;
    for (int i = 0; i < atoi(argv[2]); i++) {
        mn_text text = {0};
        mn_text line = {0};
        failed |= !generate(g, &seed, &text);
        mn_text_json(&line, (mn_str){text.ptr ? text.ptr : "", text.len});
        puts(line.ptr);
        mn_text_free(&text);
        mn_text_free(&line);
    }
    mn_grammar_free(g);
    mn_grammar_vocab_free(v);
    return failed;
}
