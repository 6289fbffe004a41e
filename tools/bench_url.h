/* bench_url.h -- one measurement of minerva bench --url: requests to a server that speaks the
 * OpenAI interface, and what they took. */
#ifndef MINERVA_BENCH_URL_H
#define MINERVA_BENCH_URL_H
#include "app.h"
#include <math.h>

/* The flags that bench has for a server. */
typedef struct {
    const char *url, *key_file, *file;
    double rate, shared; /* requests per second, 0: not given; percent of the prompt */
    int64_t requests;    /* of each test; 0: chosen */
    int chat, words;
    arg_seed seed;
} url_flags;

/* What bench has parsed for all kinds of tests. */
typedef struct {
    const url_flags *url;
    const arg_ints *prompt, *gen, *users; /* values, never empty */
    int gen_given;
    const char *model; /* NULL: the server's first */
    table_style style;
    int json, quiet;
} url_tests;
/* The exit code. bench_url_none.c has it without libcurl. */
int bench_url(const url_tests *tests);

/* ---- bench_url_prompts.c: what is asked ------------------------------------------------------ */
typedef struct {
    const char *model; /* its id at the server */
    uint64_t n_vocab, seed;
    double shared;         /* percent */
    int chat, words, file; /* file: lines are bodies */
    int n_gen_given;
    void **lines; /* cJSON objects of the file */
    size_t n_lines;
} url_prompts;
/* One request: malloc'ed body, and the path below the server's base. */
typedef struct {
    char *body;
    const char *path;
} url_request;
/* n requests, freed by url_requests_free. A test's number makes its prompts differ from those of
 * other tests. 0, or the exit code with the error printed. */
int url_requests_make(const url_prompts *p, uint64_t test, uint32_t n_prompt, uint32_t n_gen,
                      url_request *out, size_t n);
void url_requests_free(url_request *requests, size_t n);
int url_lines_read(url_prompts *p, const char *path); /* 0, or the exit code, error printed */
void url_lines_free(url_prompts *p);

/* ---- bench_url_client.c: asks, and measures -------------------------------------------------- */
typedef struct {
    double *v;
    size_t n, cap;
    int failed;
} url_samples;

typedef struct {
    uint64_t n_ok, n_failed;
    uint64_t n_prompt, n_cached, n_tokens; /* of the complete answers */
    double wall_s;
    url_samples first_s; /* one per complete answer: from sending to the first text */
    url_samples token_s; /* between two pieces of text of one answer, all answers together */
    url_samples total_s; /* one per complete answer */
    char error[400];     /* of the first request that failed */
    long http;           /* its status; 0: none came */
} url_result;

typedef struct url_client url_client;
/* base: http://host:port[/v1]; key: NULL or sent as Bearer. NULL with the error printed. */
url_client *url_client_new(const char *base, const char *key);
void url_client_free(url_client *c);
const char *url_client_base(const url_client *c);
/* GET of a path below the base: malloc'ed text. 0, or the exit code with the error printed. */
int url_client_get(url_client *c, const char *path, char **text);
/* Sends all requests: `users` at a time, or, with rate > 0, as they arrive in a Poisson process of
 * that rate. 0, or the exit code with the error printed; a request that fails is counted and is no
 * error. *out is freed by url_result_free either way. */
int url_client_run(url_client *c, const url_request *requests, size_t n, uint32_t users,
                   double rate, uint64_t seed, url_result *out);
void url_result_free(url_result *r);

uint64_t url_random(uint64_t *state); /* splitmix64 */
#endif
