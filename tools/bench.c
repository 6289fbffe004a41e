/* bench.c -- minerva bench: prompt and generation speed, in the columns that users compare. */
#include "bench.h"
#include <math.h>
#include <string.h>
#include <sys/resource.h>

typedef struct {
    arg_ints prompt, gen, depth, batch;
    int64_t reps, rows;
    int csv;
} bench_flags;

#define F(field) offsetof(bench_flags, field)
static const arg_row rows[] = {
    {"-p --n-prompt", "N,...", ARG_INTS, F(prompt), 0, 1e6, NULL,
     "prompt lengths, test ppN; 0: no such test (default: 512)"},
    {"-n --n-gen", "N,...", ARG_INTS, F(gen), 0, 1e6, NULL,
     "tokens generated, test tgN; 0: no such test (default: 128)"},
    {"-d --n-depth", "N,...", ARG_INTS, F(depth), 0, 1e6, NULL,
     "tokens in the context already, off the clock (default: 0)"},
    {"-b --batch", "N,...", ARG_INTS, F(batch), 1, 4096, NULL,
     "sequences at once; rates are their sum (default: 1)"},
    {"-r --repetitions", "N", ARG_INT, F(reps), 1, 10000, NULL,
     "of each test, after one to warm up (default: 5)"},
    {"--rows", "N", ARG_INT, F(rows), 1, MAX_ROWS, NULL,
     "rows computed per step at most (default: 512)"},
    {"--csv", NULL, ARG_FLAG, F(csv), 0, 0, NULL, "a table for spreadsheets"},
};

static uint64_t peak_rss(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

static const char *model_name(const app *a) {
    return a->info.name && a->info.name[0] ? a->info.name
                                           : base_name(a->info.path ? a->info.path : "?");
}

static void print_json(const app *a, const bench_test *t, const bench_result *r, out_file *out) {
    json_out j = {out, 0, 0, {0}};
    char test[64];
    bench_name(t, test, sizeof test);
    json_open(&j, '{');
    json_key(&j, "model"), json_z(&j, model_name(a));
    json_key(&j, "params"), json_uint(&j, a->info.n_params);
    json_key(&j, "bytes"), json_uint(&j, a->info.n_bytes);
    json_key(&j, "device"), json_z(&j, a->session_info.device);
    json_key(&j, "threads"), json_uint(&j, a->session_info.threads);
    json_key(&j, "precision"), json_z(&j, precision_name(a->session_info.precision));
    json_key(&j, "test"), json_z(&j, test);
    json_key(&j, "n_prompt"), json_uint(&j, t->n_prompt);
    json_key(&j, "n_gen"), json_uint(&j, t->n_gen);
    json_key(&j, "depth"), json_uint(&j, t->depth);
    json_key(&j, "batch"), json_uint(&j, t->batch);
    json_key(&j, "samples_ts"), json_open(&j, '[');
    for (size_t i = 0; i < r->n; i++)
        json_num(&j, r->samples[i]);
    json_close(&j);
    json_key(&j, "avg_ts"), json_num(&j, r->avg);
    json_key(&j, "stddev_ts"), json_num(&j, r->stddev);
    json_key(&j, "load_s"), json_num(&j, a->load_s);
    json_key(&j, "ttft_s"), json_num(&j, r->ttft_s);
    json_key(&j, "peak_rss"), json_uint(&j, peak_rss());
    json_close(&j);
    json_line(&j);
    out_flush(out); // a long benchmark shows what it has
}

/* ---- the table for people -------------------------------------------------------------------- */
static void table_row(table *table_out, const app *a, const bench_test *t, const bench_result *r) {
    char test[64], size[32], params[32], batch[32] = "";
    bench_name(t, test, sizeof test);
    if (t->batch > 1)
        snprintf(batch, sizeof batch, ", %u sequences", t->batch);
    table_cell(table_out, "%s", model_name(a));
    table_cell(table_out, "%s", human_bytes(a->info.n_bytes, size));
    table_cell(table_out, "%s", human_count(a->info.n_params, params));
    table_cell(table_out, "%s", a->session_info.device);
    table_cell(table_out, "%u", a->session_info.threads);
    table_cell(table_out, "%s%s", test, batch);
    table_cell(table_out, "%.2f ± %.2f", r->avg, r->stddev);
}

static void latency_row(table *times, const bench_test *t, const bench_result *r) {
    char test[64];
    bench_name(t, test, sizeof test);
    table_cell(times, "%s", test);
    table_cell(times, "%u", t->batch);
    table_cell(times, "%.2f", r->ttft_s * 1e3);
    if (t->n_gen)
        table_cell(times, "%.2f", r->p50_s * 1e3), table_cell(times, "%.2f", r->p99_s * 1e3);
    else
        table_cell(times, "-"), table_cell(times, "-");
}

static void csv_row(table *t_out, const app *a, const bench_test *t, const bench_result *r) {
    char test[64], samples[8192] = "";
    size_t n = 0;
    bench_name(t, test, sizeof test);
    for (size_t i = 0; i < r->n && n + 32 < sizeof samples; i++)
        n += (size_t)snprintf(samples + n, sizeof samples - n, "%s%.9g", i ? " " : "",
                              r->samples[i]);
    table_cell(t_out, "%s", model_name(a));
    table_cell(t_out, "%llu", (unsigned long long)a->info.n_params);
    table_cell(t_out, "%llu", (unsigned long long)a->info.n_bytes);
    table_cell(t_out, "%s", a->session_info.device);
    table_cell(t_out, "%u", a->session_info.threads);
    table_cell(t_out, "%s", precision_name(a->session_info.precision));
    table_cell(t_out, "%s", test);
    table_cell(t_out, "%u", t->n_prompt);
    table_cell(t_out, "%u", t->n_gen);
    table_cell(t_out, "%u", t->depth);
    table_cell(t_out, "%u", t->batch);
    table_cell(t_out, "%s", samples);
    table_cell(t_out, "%.9g", r->avg);
    table_cell(t_out, "%.9g", r->stddev);
    table_cell(t_out, "%.9g", a->load_s);
    table_cell(t_out, "%.9g", r->ttft_s);
    table_cell(t_out, "%llu", (unsigned long long)peak_rss());
}

typedef struct {
    app *a;
    const bench_flags *f;
    int json;
    out_file out;
    table rates, times;
} report;

static int run_test(report *r, const bench_test *t) {
    bench_result result;
    int code = bench_measure(r->a, t, (size_t)r->f->reps, &result);
    if (code == 0 && r->json)
        print_json(r->a, t, &result, &r->out);
    else if (code == 0 && r->f->csv)
        csv_row(&r->rates, r->a, t, &result);
    else if (code == 0)
        table_row(&r->rates, r->a, t, &result), latency_row(&r->times, t, &result);
    bench_result_free(&result);
    return code ? code : r->out.error ? EXIT_FAILED : 0;
}

static int run_tests(report *r) {
    const bench_flags *f = r->f;
    int code = 0;
    for (size_t d = 0; d < f->depth.n; d++)
        for (size_t b = 0; b < f->batch.n; b++) {
            const bench_test base = {0, 0, (uint32_t)f->depth.v[d], (uint32_t)f->batch.v[b]};
            for (size_t i = 0; i < f->prompt.n && code == 0; i++) {
                bench_test t = base;
                t.n_prompt = (uint32_t)f->prompt.v[i];
                if (t.n_prompt)
                    code = run_test(r, &t);
            }
            for (size_t i = 0; i < f->gen.n && code == 0; i++) {
                bench_test t = base;
                t.n_gen = (uint32_t)f->gen.v[i];
                if (t.n_gen)
                    code = run_test(r, &t);
            }
        }
    return code;
}

static void print_tables(report *r) {
    char peak[32];
    if (r->json)
        return;
    table_print(&r->rates, r->f->csv ? TABLE_CSV : TABLE_MARKDOWN, &r->out);
    if (r->f->csv)
        return;
    out_puts(&r->out, "\n");
    table_print(&r->times, TABLE_MARKDOWN, &r->out);
    out_printf(&r->out, "\nprecision %s, load time %.3f s, peak memory %s\n",
               precision_name(r->a->session_info.precision), r->a->load_s,
               human_bytes(peak_rss(), peak));
}

static uint32_t largest(const arg_ints *list) {
    int64_t most = 0;
    for (size_t i = 0; i < list->n; i++)
        most = list->v[i] > most ? list->v[i] : most;
    return (uint32_t)most;
}

static int bench(app *a, const app_flags *flags, const bench_flags *f) {
    static const char *const rate_columns[] = {"model",   "size", "params",  "device",
                                               "threads", "test", "t/s ± σ", NULL};
    static const char *const time_columns[] = {
        "test", "sequences", "first token, ms", "per token p50, ms", "p99, ms", NULL};
    static const char *const csv_columns[] = {
        "model",  "params",    "bytes",  "device", "threads",  "precision",
        "test",   "n_prompt",  "n_gen",  "depth",  "batch",    "samples_ts",
        "avg_ts", "stddev_ts", "load_s", "ttft_s", "peak_rss", NULL};
    report r = {a, f, flags->json, out_stdout(), {0}, {0}};
    uint32_t p = largest(&f->prompt), n = largest(&f->gen);
    mn_session_params params = {0};
    if (flags->json && f->csv)
        return complain(EXIT_USAGE, "found --json and --csv, expected one of them");
    if (p == 0 && n == 0)
        return complain(EXIT_USAGE, "-p and -n: found 0 for both, expected a test to run");
    params.n_seq = largest(&f->batch);
    params.n_ctx = largest(&f->depth) + (p > n ? p : n) +
                   3; // the draw that ends the filling, the id that begins the test
    params.n_batch = (uint32_t)f->rows;
    int code = app_open_model(a, flags);
    if (code == 0)
        code = app_open_session(a, &params);
    if (code)
        return code;
    table_begin(&r.rates, f->csv ? csv_columns : rate_columns, f->csv ? 0 : 0x56);
    table_begin(&r.times, time_columns, 0x1e);
    code = run_tests(&r);
    if (code == 0)
        print_tables(&r);
    table_free(&r.rates);
    table_free(&r.times);
    return out_finish(&r.out, r.out.error ? 0 : code);
}

static void set_default(arg_ints *list, int64_t *value) {
    if (!list->given)
        list->v = value, list->n = 1;
}

int cmd_bench(int argc, char **argv) {
    int64_t p = 512, n = 128, d = 0, b = 1;
    app_flags flags = {0};
    bench_flags f = {.reps = 5};
    const arg_group groups[] = {
        {"Tests (a list of values makes a test of each)", rows, COUNT(rows), &f},
        {"Output", app_json_rows, APP_JSON_ROWS, &flags},
        {"Model and device", app_model_rows, APP_MODEL_ROWS, &flags},
        {"", app_device_rows, APP_DEVICE_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
        {"", app_session_rows + 2, 3,
         &flags}, // -b means sequences here, and -c follows from the tests
    };
    const arg_page page = {"bench", "[-m MODEL] [-p N] [-n N] [-d N] [-b N] [-r N] [flags]",
                           "Measures prompt (pp) and generation (tg) speed in tokens per second. "
                           "--json prints one object per test.",
                           groups, COUNT(groups)};
    app a = {0};
    int code = args_parse(&page, argc, argv);
    set_default(&f.prompt, &p), set_default(&f.gen, &n), set_default(&f.depth, &d),
        set_default(&f.batch, &b);
    if (code == ARGS_OK)
        code = flags.list_devices ? cmd_devices(1, argv) : bench(&a, &flags, &f);
    arg_ints *lists[] = {&f.prompt, &f.gen, &f.depth, &f.batch};
    for (size_t i = 0; i < COUNT(lists); i++)
        if (lists[i]->given)
            args_free_ints(lists[i]);
    app_close(&a);
    return code;
}
