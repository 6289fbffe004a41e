/* bench_url.c -- minerva bench --url: how fast a server that speaks the OpenAI interface is, as its
 * users see it.
 *
 * Each test (prompt length, answer length, users or rate) sends requests and makes one row: rates,
 * and percentiles of two times. The first token is timed from sending the request; the time
 * per token is that between two pieces of a stream, over all streams, so that a server that stops
 * all streams for a long prompt is seen. Before the tests one short request finds out whether
 * the server takes token ids. Nothing of this needs the library: a server elsewhere is measured
 * like one here. */
#include "bench_url.h"
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint32_t n_prompt, n_gen, users;
    double rate;
} url_test;

typedef struct {
    const url_tests *tests;
    url_client *client;
    url_prompts prompts;
    char *model;
    out_file out;
    table rows;
    int width[TABLE_MAX_COLUMNS];
    uint64_t n_tests, n_cached, n_prompt;
} url_report;

/* ---- percentiles ----------------------------------------------------------------------------- */
static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The sample that `percent` of all are not above (nearest rank); v is sorted. NaN: no samples. */
static double percentile(const url_samples *s, double percent) {
    if (s->n == 0)
        return NAN;
    size_t rank = (size_t)ceil((double)s->n * percent / 100);
    return s->v[rank ? rank - 1 : 0];
}

static void sort_samples(url_samples *s) {
    if (s->n)
        qsort(s->v, s->n, sizeof *s->v, by_value);
}

/* ---- a row ----------------------------------------------------------------------------------- */
static double per_second(const url_result *r, uint64_t n) {
    return r->wall_s > 0 ? (double)n / r->wall_s : 0;
}

static uint64_t mean_of(uint64_t sum, uint64_t n, uint64_t otherwise) {
    return sum && n ? (sum + n / 2) / n : otherwise;
}

static void ms_cell(table *t, double s) {
    if (isnan(s))
        table_cell(t, "-");
    else
        table_cell(t, s < 0.01 ? "%.2f" : "%.1f", s * 1e3);
}

static void table_row(table *t, const url_test *test, const url_result *r) {
    static const double percents[] = {50, 90, 99};
    if (test->rate > 0)
        table_cell(t, "%g/s", test->rate);
    else
        table_cell(t, "%u", test->users);
    table_cell(t, "%" PRIu64, mean_of(r->n_prompt, r->n_ok, test->n_prompt));
    table_cell(t, "%" PRIu64, mean_of(r->n_tokens, r->n_ok, 0));
    table_cell(t, "%" PRIu64, r->n_ok);
    table_cell(t, "%" PRIu64, r->n_failed);
    table_cell(t, "%.2f", per_second(r, r->n_ok));
    table_cell(t, "%.1f", per_second(r, r->n_tokens));
    for (size_t i = 0; i < MN_COUNT(percents); i++)
        ms_cell(t, percentile(&r->first_s, percents[i]));
    for (size_t i = 0; i < MN_COUNT(percents); i++)
        ms_cell(t, percentile(&r->token_s, percents[i]));
}

static void json_times(json_out *j, const char *key, const url_samples *s) {
    json_key(j, key);
    json_open(j, '{');
    json_put_uint(j, "n", s->n);
    json_put_num(j, "p50", percentile(s, 50));
    json_put_num(j, "p90", percentile(s, 90));
    json_put_num(j, "p99", percentile(s, 99));
    json_put_num(j, "max", percentile(s, 100));
    json_close(j);
}

static void json_row(url_report *rep, const url_test *t, const url_result *r) {
    json_out j = out_json(&rep->out);
    json_open(&j, '{');
    json_put_z(&j, "url", url_client_base(rep->client));
    json_put_z(&j, "model", rep->prompts.model);
    json_put_uint(&j, "users", t->rate > 0 ? 0 : t->users);
    json_put_num(&j, "rate", t->rate > 0 ? t->rate : NAN);
    json_put_num(&j, "shared", rep->prompts.shared);
    json_put_uint(&j, "seed", rep->prompts.seed);
    json_put_uint(&j, "requests", r->n_ok + r->n_failed);
    json_put_uint(&j, "completed", r->n_ok);
    json_put_uint(&j, "failed", r->n_failed);
    json_put_z(&j, "error", r->n_failed ? r->error : NULL);
    json_put_uint(&j, "prompt_tokens", r->n_prompt);
    json_put_uint(&j, "cached_tokens", r->n_cached);
    json_put_uint(&j, "completion_tokens", r->n_tokens);
    json_put_num(&j, "wall_s", r->wall_s);
    json_put_num(&j, "requests_per_s", per_second(r, r->n_ok));
    json_put_num(&j, "tokens_per_s", per_second(r, r->n_tokens));
    json_times(&j, "first_token_s", &r->first_s);
    json_times(&j, "per_token_s", &r->token_s);
    json_times(&j, "request_s", &r->total_s);
    json_close(&j);
    json_line(&j);
    out_flush(&rep->out);
}

static void print_last(url_report *r) {
    const size_t n = table_rows(&r->rows);
    if (n)
        table_print_row(&r->rows, n - 1, r->tests->style, r->width, &r->out);
    out_flush(&r->out);
}

/* The heading, with the widths of large values. */
static void begin_table(url_report *r) {
    static const char *const columns[] = {"users",    "prompt", "answer",   "ok",  "errors",
                                          "req/s",    "t/s",    "first ms", "p90", "p99",
                                          "token ms", "p90",    "p99",      NULL};
    table sample;
    table_begin(&r->rows, columns, ~UINT64_C(0));
    table_begin(&sample, columns, 0);
    for (size_t i = 0; i < sample.n_cols; i++)
        table_cell(&sample, "%s", i == 5 || i == 6 ? "99999.9" : "9999");
    for (size_t i = 7; i < sample.n_cols; i++)
        r->width[i] = 7;
    table_widths(&sample, r->width);
    table_free(&sample);
    print_last(r);
}

/* ---- the tests ------------------------------------------------------------------------------- */
/* How many requests a test sends: --requests, the lines of the file, or four for each user. */
static size_t bench_url_n_requests(const url_report *r, const url_test *t) {
    const url_flags *f = r->tests->url;
    if (f->requests)
        return (size_t)f->requests;
    if (f->file)
        return r->prompts.n_lines;
    if (t->rate > 0)
        return (size_t)fmax(16, ceil(t->rate * 20)); // 20 s of arrivals
    return t->users < 4 ? 16 : 4 * (size_t)t->users;
}

static int bench_url_measure(url_report *r, const url_test *t, size_t n, url_result *out) {
    url_request *requests = calloc(n, sizeof *requests);
    memset(out, 0, sizeof *out);
    if (!requests)
        return no_memory();
    r->n_tests++;
    int code = url_requests_make(&r->prompts, r->n_tests, t->n_prompt, t->n_gen, requests, n);
    if (code == 0)
        code = url_client_run(r->client, requests, n, t->users, t->rate,
                              r->prompts.seed ^ r->n_tests, out);
    url_requests_free(requests, n);
    sort_samples(&out->first_s);
    sort_samples(&out->token_s);
    sort_samples(&out->total_s);
    return code;
}

static int bench_url_run_test(url_report *r, const url_test *t) {
    url_result result;
    const size_t n = bench_url_n_requests(r, t);
    int code = bench_url_measure(r, t, n, &result);
    if (code == 0 && r->tests->json) {
        json_row(r, t, &result);
    } else if (code == 0) {
        table_row(&r->rows, t, &result);
        print_last(r);
    }
    r->n_cached += result.n_cached;
    r->n_prompt += result.n_prompt;
    if (code == 0 && result.n_failed && result.n_ok)
        note("warning: %" PRIu64 " of %zu requests failed, the first with: %s", result.n_failed, n,
             result.error);
    if (code == 0 && result.n_ok == 0)
        code =
            complain(EXIT_FAILED, "all %zu requests failed, the first with: %s", n, result.error);
    url_result_free(&result);
    return code == 0 && r->out.error ? EXIT_FAILED : code;
}

static int run_tests(url_report *r) {
    const url_tests *all = r->tests;
    const int by_rate = all->url->rate > 0;
    const size_t n_users = by_rate ? 1 : all->users->n;
    const size_t n_lengths = all->url->file ? 1 : all->prompt->n;
    int code = 0;
    for (size_t p = 0; p < n_lengths; p++)
        for (size_t g = 0; g < all->gen->n; g++)
            for (size_t u = 0; u < n_users && code == 0; u++) {
                const url_test t = {(uint32_t)all->prompt->v[p], (uint32_t)all->gen->v[g],
                                    (uint32_t)all->users->v[u], by_rate ? all->url->rate : 0};
                code = bench_url_run_test(r, &t);
            }
    return code;
}

/* ---- the server ------------------------------------------------------------------------------ */
/* The model's id, and its vocabulary if the server states it (llama-server and minerva do). */
static int bench_url_find_model(url_report *r) {
    char *text = NULL;
    r->prompts.model = r->tests->model;
    if (r->tests->url->file && r->tests->model)
        return 0;
    const int code = url_client_get(r->client, "/models", &text);
    if (code)
        return code;
    cJSON *answer = cJSON_Parse(text);
    const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItem(answer, "data"), 0);
    const cJSON *id = cJSON_GetObjectItem(first, "id");
    const cJSON *ours = cJSON_GetObjectItem(first, "minerva");
    const cJSON *meta = ours ? ours : cJSON_GetObjectItem(first, "meta");
    const double n_vocab = cJSON_GetNumberValue(cJSON_GetObjectItem(meta, "n_vocab"));
    if (n_vocab >= 16 && n_vocab < INT32_MAX)
        r->prompts.n_vocab = (uint64_t)n_vocab;
    if (!r->prompts.model && cJSON_IsString(id))
        r->model = strdup(id->valuestring);
    if (!r->prompts.model)
        r->prompts.model = r->model;
    cJSON_Delete(answer);
    free(text);
    if (r->prompts.model)
        return 0;
    return complain(EXIT_FAILED, "%s/models lists no model: name one with -m",
                    url_client_base(r->client));
}

/* One short request, so that errors of all requests are seen before the first test, and the model
 * is warm. A server that refuses token ids gets words. */
static int try_server(url_report *r) {
    const url_test t = {8, 2, 1, 0};
    url_result result;
    int code = r->tests->url->file ? 0 : bench_url_measure(r, &t, 1, &result);
    if (r->tests->url->file)
        return 0;
    const int refused = result.n_failed && result.http >= 400 && result.http < 500;
    const int ids = !r->prompts.chat && !r->prompts.words;
    if (code == 0 && refused && ids && result.http != 401 && result.http != 404) {
        if (!r->tests->quiet)
            note("the server refuses token ids (%s): prompts are random words", result.error);
        url_result_free(&result);
        r->prompts.words = 1;
        code = bench_url_measure(r, &t, 1, &result);
    }
    if (code == 0 && result.n_failed)
        code = complain(EXIT_FAILED, "%s: %s", url_client_base(r->client), result.error);
    url_result_free(&result);
    return code;
}

/* The key in a file, without white space around it, or of OPENAI_API_KEY; NULL: none. */
static int bench_url_read_key(const char *path, char **key) {
    const char *variable = getenv("OPENAI_API_KEY");
    size_t n = 0;
    if (!path) {
        *key = variable && variable[0] ? strdup(variable) : NULL;
        return 0;
    }
    const int code = read_all_text(path, key, &n);
    if (code)
        return code;
    while (n && strchr(" \t\r\n", (*key)[n - 1]))
        (*key)[--n] = 0;
    if (n && n <= 4000 && !strpbrk(*key, "\r\n"))
        return 0;
    return complain(EXIT_FAILED, "%s: expected one line with a key of at most 4000 bytes",
                    input_name(path));
}

static void end_report(url_report *r, int code) {
    const char *kind = "random token ids";
    if (r->prompts.words || r->prompts.chat)
        kind = "random words";
    if (r->prompts.file)
        kind = "lines of a file";
    if (code == EXIT_INTERRUPTED)
        out_break(&r->out);
    if (r->tests->json || r->tests->style != TABLE_MARKDOWN || table_rows(&r->rows) < 2)
        return;
    out_printf(&r->out, "\n%s, model %s; prompts: %s", url_client_base(r->client), r->prompts.model,
               kind);
    if (r->prompts.shared > 0)
        out_printf(&r->out, ", %g %% shared", r->prompts.shared);
    if (r->n_prompt && r->n_cached)
        out_printf(&r->out, ", %.0f %% from the server's cache",
                   100 * (double)r->n_cached / (double)r->n_prompt);
    out_puts(&r->out, "\nfirst ms: from sending a request to its first text; token ms: between two "
                      "pieces of a stream; p50, p90, p99\n");
}

/* Everything after the client is there. */
static int with_client(url_report *r) {
    int code = 0;
    if (r->tests->url->file)
        code = url_lines_read(&r->prompts, r->tests->url->file);
    if (code == 0)
        code = bench_url_find_model(r);
    if (code == 0)
        code = try_server(r);
    if (code == 0 && !r->tests->json)
        begin_table(r);
    if (code == 0)
        code = run_tests(r);
    end_report(r, code);
    return code;
}

int bench_url(const url_tests *tests) {
    const url_flags *f = tests->url;
    url_report r = {.tests = tests, .out = out_stdout()};
    char *key = NULL;
    r.prompts.seed = f->seed.given ? f->seed.v : sampling_seed();
    r.prompts.shared = f->shared;
    r.prompts.chat = f->chat;
    r.prompts.words = f->words || f->chat;
    r.prompts.n_gen_given = tests->gen_given;
    interrupt_catch();
    int code = bench_url_read_key(f->key_file, &key);
    if (code == 0)
        r.client = url_client_new(f->url, key);
    if (code == 0)
        code = r.client ? with_client(&r) : EXIT_FAILED;
    free(key);
    url_client_free(r.client);
    url_lines_free(&r.prompts);
    free(r.model);
    table_free(&r.rows);
    return out_finish(&r.out, code);
}
