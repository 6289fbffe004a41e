/* bench_grammar -- how long a mask and a compilation take with 131072 made-up tokens, new masks
 * included. Not a test: times
 * depend on the machine. */
#include "grammar/grammar.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 131072, STEPS = 400, MASKS = 200000, RUNS = 12 };

static mn_str token[TOKENS];
static double mask_us[MASKS];
static double compile_us[1000];
static uint32_t n_masks, n_compiled;

static uint64_t next(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* Bytes, then words of 1 to 12 letters with a space, digits or marks of JSON, as vocabularies
 * have. */
static void make_tokens(void) {
    static const char *const mark[] = {"",   "",    "",    "",         " ",       " ", " ",
                                       "\"", "\",", "\":", "{\"",      "(",       "_", "1",
                                       "20", ", ",  "\n",  "\xc3\xa9", "\xe4\xb8"};
    uint64_t seed = 1;
    for (uint32_t i = 0; i < TOKENS; i++) {
        char *p = malloc(32);
        size_t n = 0;
        if (i < 256) {
            p[n++] = (char)i;
        } else {
            const char *front = mark[next(&seed) % MN_COUNT(mark)];
            const char *back = next(&seed) % 8 ? "" : mark[next(&seed) % MN_COUNT(mark)];
            n = strlen(front);
            memcpy(p, front, n);
            for (uint64_t k = 1 + next(&seed) % 10; k; k--)
                p[n++] = "etaoinshrdlucmfwypvbgkjqxz"[(next(&seed) % 26) * (next(&seed) % 26) / 26];
            memcpy(p + n, back, strlen(back));
            n += strlen(back);
        }
        token[i] = (mn_str){p, n};
    }
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void say(const char *what, double *us, uint32_t n) {
    qsort(us, n, sizeof *us, by_value);
    printf("%-8s n %6u  p50 %9.1f us  p99 %9.1f us  most %9.1f us\n", what, n, us[n / 2],
           us[(uint64_t)n * 99 / 100], us[n - 1]);
}

static int32_t choose(const uint32_t *bits, uint64_t *seed) {
    static int32_t ids[TOKENS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < TOKENS / 32; i++) {
        for (uint32_t word = bits[i]; word; word &= word - 1)
            ids[n++] = (int32_t)(32 * i) + __builtin_ctz(word);
    }
    return n ? ids[next(seed) % n] : -1;
}

static void run(const char *schema, const mn_grammar_vocab *v, uint64_t seed) {
    static uint32_t bits[TOKENS / 32];
    mn_grammar *g = NULL;
    mn_grammar_state *s = NULL;
    mn_error err = MN_ERROR_INIT;
    uint64_t from = mn_now_ns();
    if (mn_grammar_compile(MN_GRAMMAR_SCHEMA, mn_str_of(schema), v, &g, NULL, &err)) {
        printf("%s\n", err.msg);
        return;
    }
    compile_us[n_compiled++] = (double)(mn_now_ns() - from) * 1e-3;
    mn_grammar_state_create(g, &s, NULL);
    for (int i = 0; i < STEPS; i++) {
        from = mn_now_ns();
        mn_grammar_mask(s, bits, NULL);
        mask_us[n_masks++] = (double)(mn_now_ns() - from) * 1e-3;
        int32_t id = choose(bits, &seed);
        /* Strings end after a while, as a model's do. */
        if (i % 6 == 5 && bits['"' / 32] >> '"' % 32 & 1)
            id = '"';
        if (id < 0)
            break;
        mn_grammar_accept(s, id, NULL);
    }
    mn_grammar_state_free(s);
    mn_grammar_free(g);
}

int main(void) {
    static const char *const schema[] = {
        "{}",
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":"
        "\"integer\",\"minimum\":0},"
        "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},\"required\":[\"name\","
        "\"age\",\"tags\"]}",
        "{\"$ref\":\"#/$defs/"
        "t\",\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"string\"},"
        "\"kids\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
        "t\"}}},\"required\":[\"v\",\"kids\"]}}}",
        "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":40}}",
        "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[a-z]+(-[a-z]+)*$\"}}",
        "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"date-time\"}}",
    };
    mn_grammar_vocab *v = NULL;
    make_tokens();
    uint64_t from = mn_now_ns();
    if (mn_grammar_vocab_create(token, TOKENS, &v, NULL))
        return 1;
    printf("trie of %d tokens: %.1f ms\n", TOKENS, (double)(mn_now_ns() - from) * 1e-6);
    for (size_t i = 0; i < MN_COUNT(schema); i++) {
        n_masks = 0;
        n_compiled = 0;
        for (uint64_t k = 0; k < RUNS; k++)
            run(schema[i], v, 100 * i + k);
        printf("%.70s\n", schema[i]);
        say("  masks", mask_us, n_masks);
        say("  compile", compile_us, n_compiled);
    }
    mn_grammar_vocab_free(v);
    return 0;
}
