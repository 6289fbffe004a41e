/* bench_grammar -- how long a mask and a compilation take, new masks included, in time of this
 * thread. Not a test: times depend on the machine.
 *
 *   bench_grammar              made-up tokens, and random texts under a few schemas; then masks of
 *                              64 texts at once in threads: wall time of a round
 *   bench_grammar VOCAB LIST   VOCAB: for each token a length of 4 bytes and its bytes; LIST: lines
 *                              "S file of a schema", and for each "I ids of a text that
 *                              follows it" */
#include "grammar/grammar.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOKENS = 131072, STEPS = 400, MASKS = 200000, COMPILED = 10000, RUNS = 12 };
enum { STREAMS = 64, ROUNDS = 400, THREADS = 8 };

static mn_str token[TOKENS];
static double mask_us[MASKS];
static double compile_us[COMPILED];
static double first_us[COMPILED]; /* with the first mask */
static uint32_t n_masks, n_compiled;

static uint64_t thread_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double us_since(uint64_t from) {
    return (double)(thread_ns() - from) * 1e-3;
}

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
    if (!n)
        return;
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
    uint64_t from = thread_ns();
    if (mn_grammar_compile(MN_GRAMMAR_SCHEMA, mn_str_of(schema), v, &g, NULL, &err)) {
        printf("%s\n", err.msg);
        return;
    }
    compile_us[n_compiled++] = us_since(from);
    mn_grammar_state_create(g, &s, NULL);
    for (int i = 0; i < STEPS; i++) {
        from = thread_ns();
        mn_grammar_mask(s, bits, NULL);
        mask_us[n_masks++] = us_since(from);
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

/* ---- many texts under one schema, in threads ------------------------------------------------- */
typedef struct {
    mn_grammar *g;
    mn_grammar_state *state[STREAMS];
    uint64_t seed[STREAMS];
} streams;

/* Any of the ids, without looking at all of them. */
static int32_t choose_fast(const uint32_t *bits, uint64_t *seed) {
    const uint64_t from = next(seed) % (TOKENS / 32);
    for (uint64_t k = 0; k < TOKENS / 32; k++) {
        const uint64_t i = (from + k) % (TOKENS / 32);
        if (bits[i])
            return (int32_t)(32 * i) + __builtin_ctz(bits[i]);
    }
    return -1;
}

/* The next token of a text, which begins again behind its end. */
static void advance(void *arg, uint32_t phase, uint32_t i, uint32_t thread) {
    static _Thread_local uint32_t bits[TOKENS / 32];
    streams *x = arg;
    mn_grammar_state **s = &x->state[i];
    (void)phase;
    (void)thread;
    int32_t id = -1;
    if (!*s && mn_grammar_state_create(x->g, s, NULL))
        return;
    if (!mn_grammar_mask(*s, bits, NULL)) {
        const bool closes = bits['"' / 32] >> '"' % 32 & 1 && next(&x->seed[i]) % 6 == 0;
        id = closes ? '"' : choose_fast(bits, &x->seed[i]);
    }
    if (id >= 0 && !mn_grammar_accept(*s, id, NULL))
        return;
    mn_grammar_state_free(*s);
    *s = NULL;
}

static uint32_t count_streams(void *arg, uint32_t phase) {
    (void)arg;
    (void)phase;
    return STREAMS;
}

static void run_streams(const char *schema, const mn_grammar_vocab *v, uint32_t n_threads) {
    static double us[ROUNDS];
    streams x = {0};
    mn_pool *pool = NULL;
    const mn_team team = {
        .size = sizeof team, .n_phases = 1, .arg = &x, .chunks = count_streams, .run = advance};
    for (uint64_t i = 0; i < STREAMS; i++)
        x.seed[i] = i;
    if (mn_grammar_compile(MN_GRAMMAR_SCHEMA, mn_str_of(schema), v, &x.g, NULL, NULL) ||
        mn_pool_create(n_threads, &pool, NULL))
        return;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint64_t from = mn_now_ns();
        mn_pool_team(pool, &team);
        us[round] = (double)(mn_now_ns() - from) * 1e-3;
    }
    mn_pool_free(pool);
    printf("  %u streams, %u threads: ", STREAMS, n_threads);
    say("round", us, ROUNDS);
    for (uint32_t i = 0; i < STREAMS; i++)
        mn_grammar_state_free(x.state[i]);
    mn_grammar_free(x.g);
}

/* ---- texts from files ------------------------------------------------------------------------ */
static char *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    char *data = NULL;
    *n = 0;
    if (!f)
        return NULL;
    for (size_t got = 1; got; *n += got) {
        data = realloc(data, *n + (1u << 20) + 1);
        got = fread(data + *n, 1, 1u << 20, f);
    }
    data[*n] = 0;
    fclose(f);
    return data;
}

static uint32_t read_tokens(const char *data, size_t n) {
    uint32_t count = 0;
    for (size_t at = 0; at + 4 <= n && count < TOKENS; count++) {
        uint32_t len = 0;
        memcpy(&len, data + at, 4);
        token[count] = (mn_str){data + at + 4, len};
        at += 4 + len;
    }
    return count;
}

/* One text; stops at a token that is not allowed. */
static bool follow(mn_grammar *g, char *ids) {
    static uint32_t bits[TOKENS / 32];
    mn_grammar_state *s = NULL;
    mn_error err = MN_ERROR_INIT;
    bool ok = !mn_grammar_state_create(g, &s, NULL);
    for (char *at = ids; ok && *at == ' ' && n_masks < MASKS;) {
        const int32_t id = (int32_t)strtol(at, &at, 10);
        const uint64_t from = thread_ns();
        ok = !mn_grammar_mask(s, bits, NULL);
        mask_us[n_masks++] = us_since(from);
        if (ok && mn_grammar_accept(s, id, &err)) {
            printf("%s\n", err.msg);
            ok = false;
        }
    }
    ok = ok && mn_grammar_complete(s);
    mn_grammar_state_free(s);
    return ok;
}

static mn_grammar *compile_file(const char *path, const mn_grammar_vocab *v, uint32_t *refused) {
    size_t n = 0;
    mn_grammar *g = NULL;
    mn_error err = MN_ERROR_INIT;
    char *source = read_file(path, &n);
    if (!source)
        return NULL;
    const uint64_t from = thread_ns();
    const mn_str schema = {source, n};
    if (mn_grammar_compile(MN_GRAMMAR_SCHEMA, schema, v, &g, NULL, &err)) {
        printf("%s: %s\n", path, err.msg);
        ++*refused;
    } else if (n_compiled < COMPILED) {
        compile_us[n_compiled++] = us_since(from);
    }
    free(source);
    return g;
}

static int bench_files(const char *vocab_path, char *list) {
    size_t n = 0;
    uint32_t refused = 0;
    uint32_t texts = 0;
    uint32_t followed = 0;
    uint32_t n_first = 0;
    bool fresh = false;
    mn_grammar_vocab *v = NULL;
    mn_grammar *g = NULL;
    char *vocab = read_file(vocab_path, &n);
    if (!vocab || !list || mn_grammar_vocab_create(token, read_tokens(vocab, n), &v, NULL))
        return 1;
    for (char *line = strtok(list, "\n"); line; line = strtok(NULL, "\n")) {
        if (*line == 'S') {
            mn_grammar_free(g);
            g = compile_file(line + 2, v, &refused);
            fresh = g != NULL;
            continue;
        }
        if (!g)
            continue;
        const uint32_t at = n_masks;
        const bool ok = follow(g, line + 1);
        if (!ok)
            printf("text %u stops behind %u tokens\n", texts, n_masks - at);
        texts++;
        followed += ok;
        if (fresh)
            first_us[n_first++] = compile_us[n_compiled - 1] + mask_us[at];
        fresh = false;
    }
    mn_grammar_free(g);
    printf("%u schemas taken, %u refused; %u of %u texts followed\n", n_compiled, refused, followed,
           texts);
    say("masks", mask_us, n_masks);
    say("compile", compile_us, n_compiled);
    say("first", first_us, n_first);
    mn_grammar_vocab_free(v);
    free(vocab);
    return 0;
}

int main(int argc, char **argv) {
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
    if (argc == 3) {
        size_t n = 0;
        char *list = read_file(argv[2], &n);
        const int failed = bench_files(argv[1], list);
        free(list);
        return failed;
    }
    make_tokens();
    uint64_t from = thread_ns();
    if (mn_grammar_vocab_create(token, TOKENS, &v, NULL))
        return 1;
    printf("trie of %d tokens: %.1f ms\n", TOKENS, us_since(from) * 1e-3);
    for (size_t i = 0; i < MN_COUNT(schema); i++) {
        n_masks = 0;
        n_compiled = 0;
        for (uint64_t k = 0; k < RUNS; k++)
            run(schema[i], v, 100 * i + k);
        printf("%.70s\n", schema[i]);
        say("  masks", mask_us, n_masks);
        say("  compile", compile_us, n_compiled);
        for (uint32_t n = 1; n <= THREADS; n *= 2)
            run_streams(schema[i], v, n);
    }
    mn_grammar_vocab_free(v);
    return 0;
}
