/* bench.c -- minerva bench: prompt and generation speed, in the columns that users compare.
 *
 * Makes the list of tests from the flags, runs each (bench_measure.c, or bench_profile.c with
 * --profile) and prints tables, JSON or CSV. A row is printed as soon as it is measured, so that
 * Ctrl-C loses one test only. Each number of threads has a runtime and session of its own; the
 * report and its tables belong to bench(). */
#include "bench.h"
#include "bench_url.h"
#include "form.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { OUT_MD, OUT_JSON, OUT_CSV };

typedef struct {
    arg_ints prompt, gen, pair, depth, batch, threads;
    int64_t reps, rows;
    const char *accept; /* a list; NULL: not given */
    int csv, output, profile, peaks;
    url_flags url;
    form_flags form;
    sampling_flags sampling;
} bench_flags;

#define F(field) offsetof(bench_flags, field)
static const arg_row rows[] = {
    {"-p --n-prompt", "N,...", ARG_RANGES, F(prompt), 0, 1e6, NULL,
     "prompt lengths, test ppN; 0: no such test (default: 512)"},
    {"-n --n-gen", "N,...", ARG_RANGES, F(gen), 0, 1e6, NULL,
     "tokens generated, test tgN; 0: no such test (default: 128)"},
    {"-pg", "P,G", ARG_PAIRS, F(pair), 1, 1e6, NULL,
     "a prompt of P and then G tokens generated, test ppP+tgG; may be given several\ntimes; alone "
     "if neither -p nor -n is given"},
    {"-d --n-depth", "N,...", ARG_RANGES, F(depth), 0, 1e6, NULL,
     "tokens in the context before the test, not measured (default: 0)"},
    {"-b --batch", "N,...", ARG_RANGES, F(batch), 1, 4096, NULL,
     "sequences at once; rates are their sum (default: 1)"},
    {"-t --threads", "N,...", ARG_RANGES, F(threads), 0, 4096, NULL,
     "CPU threads; 0 = one per core that the process may use, as far as its control\ngroup's quota "
     "goes (default); all tests run with each"},
    {"-r --repetitions", "N", ARG_INT, F(reps), 1, 10000, NULL,
     "of each test, after one to warm up (default: 5)"},
    {"--rows", "N", ARG_INT, F(rows), 1, MAX_ROWS, NULL,
     "rows computed per step at most (default: 512; 2048 where one GPU "
     "has the whole model and memory to spare)"},
    {"--accept", "R,...", ARG_TEXT, F(accept), 1, 0, NULL,
     "drafts that are right with probability R, by what the first run generated, and cost\nwhat "
     "those of --draft do, or nothing without it; here --draft-max N means N drafts each\ntime, "
     "whether they pay or not"},
};
static const arg_row output_rows[] = {
    {"-o --output", "FORM", ARG_CHOICE, F(output), 0, 0, "md|json|csv",
     "tables, one object per line, or a table for spreadsheets"},
    {"--profile", NULL, ARG_FLAG, F(profile), 0, 0, NULL,
     "the time of a step by kind of unit, instead of rates; with --json every unit"},
    {"--peaks", NULL, ARG_FLAG, F(peaks), 0, 0, NULL,
     "what memory and cores here can do, with -t threads (default: 1 and all), instead\nof a "
     "model"},
    {"--csv", NULL, ARG_FLAG, F(csv), 0, 0, NULL, "the same as -o csv"},
};

static uint64_t peak_rss(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

const char *bench_model(const app *a) {
    if (a->info.name && a->info.name[0])
        return a->info.name;
    return app_model_name(a);
}

static void bench_print_json(const app *a, const bench_test *t, const bench_result *r,
                             out_file *out) {
    json_out j = out_json(out);
    char test[64];
    bench_name(t, test, sizeof test);
    json_open(&j, '{');
    json_put_z(&j, "model", bench_model(a));
    json_put_uint(&j, "params", a->info.n_params);
    json_put_uint(&j, "bytes", a->info.n_bytes);
    json_put_z(&j, "device", a->session_info.device);
    json_put_uint(&j, "threads", a->session_info.threads);
    json_put_z(&j, "precision", precision_name(a->session_info.precision));
    json_put_z(&j, "test", test);
    json_put_uint(&j, "n_prompt", t->n_prompt);
    json_put_uint(&j, "n_gen", t->n_gen);
    json_put_uint(&j, "depth", t->depth);
    json_put_uint(&j, "batch", t->batch);
    if (a->flags->lora.n)
        json_put_uint(&j, "adapters", a->flags->lora_each ? a->flags->lora.n : 1);
    if (t->accept >= 0)
        json_put_num(&j, "accept", t->accept);
    json_put_array(&j, "samples_ts");
    for (size_t i = 0; i < r->n; i++)
        json_num(&j, r->samples[i]);
    json_close(&j);
    json_put_num(&j, "avg_ts", r->avg);
    json_put_num(&j, "stddev_ts", r->stddev);
    json_put_num(&j, "load_s", a->load_s);
    json_put_num(&j, "ttft_s", r->ttft_s);
    json_put_uint(&j, "peak_rss", peak_rss());
    json_put_num(&j, "others_cpus", r->others < 0 ? NAN : r->others);
    if (r->n_drafted) {
        json_put_uint(&j, "n_drafted", r->n_drafted);
        json_put_uint(&j, "n_accepted", r->n_accepted);
        json_put_uint(&j, "n_steps", r->n_steps);
        json_put_num(&j, "draft_s", r->draft_s);
    }
    if (r->n_forced)
        json_put_uint(&j, "n_forced", r->n_forced);
    json_close(&j);
    json_line(&j);
    out_flush(out);
}

/* ---- the table for people -------------------------------------------------------------------- */
/* A row of the table of rates. */
static void bench_table_row(table *table_out, const app *a, const bench_test *t,
                            const bench_result *r) {
    char test[64], size[32], params[32], batch[32] = "";
    bench_name(t, test, sizeof test);
    if (t->batch > 1)
        snprintf(batch, sizeof batch, ", %u sequences", t->batch);
    table_cell(table_out, "%s", bench_model(a));
    table_cell(table_out, "%s", human_bytes(a->info.n_bytes, size));
    table_cell(table_out, "%s", human_count(a->info.n_params, params));
    table_cell(table_out, "%s", a->session_info.device);
    table_cell(table_out, "%u", a->session_info.threads);
    table_cell(table_out, "%s%s", test, batch);
    table_cell(table_out, "%.2f ± %.2f", r->avg, r->stddev);
}

/* A row of the second table, with the times of the test. */
static void latency_row(table *times, const app *a, const bench_test *t, const bench_result *r) {
    char test[64];
    bench_name(t, test, sizeof test);
    table_cell(times, "%u", a->session_info.threads);
    table_cell(times, "%s", test);
    table_cell(times, "%u", t->batch);
    table_cell(times, "%.2f", r->ttft_s * 1e3);
    if (t->n_gen) {
        table_cell(times, "%.2f", r->p50_s * 1e3);
        table_cell(times, "%.2f", r->p99_s * 1e3);
    } else {
        table_cell(times, "-");
        table_cell(times, "-");
    }
}

/* A row of CSV: the fields that every JSON object has, the samples in one cell. */
static void csv_row(table *t_out, const app *a, const bench_test *t, const bench_result *r) {
    char test[64], samples[8192] = "";
    size_t n = 0;
    bench_name(t, test, sizeof test);
    for (size_t i = 0; i < r->n && n + 32 < sizeof samples; i++)
        n += (size_t)snprintf(samples + n, sizeof samples - n, "%s%.9g", i ? " " : "",
                              r->samples[i]);
    table_cell(t_out, "%s", bench_model(a));
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
    if (r->others < 0)
        table_cell(t_out, "%s", "");
    else
        table_cell(t_out, "%.3f", r->others);
}

/* ---- the tests ------------------------------------------------------------------------------- */
typedef struct {
    bench_test *v;
    size_t n;
} test_list;

static size_t n_plain(const bench_flags *f) {
    return f->prompt.n + f->gen.n + f->pair.n / 2;
}

/* Every test of every depth and batch, in the order of the table. */
static void add_tests(const bench_flags *f, double accept, test_list *out) {
    for (size_t d = 0; d < f->depth.n; d++)
        for (size_t b = 0; b < f->batch.n; b++) {
            bench_test t = {.depth = (uint32_t)f->depth.v[d],
                            .batch = (uint32_t)f->batch.v[b],
                            .accept = accept};
            for (size_t i = 0; i < f->prompt.n; i++) {
                t.n_prompt = (uint32_t)f->prompt.v[i];
                if (t.n_prompt)
                    out->v[out->n++] = t;
            }
            t.n_prompt = 0;
            for (size_t i = 0; i < f->gen.n; i++) {
                t.n_gen = (uint32_t)f->gen.v[i];
                if (t.n_gen)
                    out->v[out->n++] = t;
            }
            for (size_t i = 0; i + 1 < f->pair.n; i += 2) {
                t.n_prompt = (uint32_t)f->pair.v[i];
                t.n_gen = (uint32_t)f->pair.v[i + 1];
                out->v[out->n++] = t;
            }
        }
}

/* --accept: the next number of the list, which *at is moved behind; below 0: it is none. */
static double next_accept(const char **at) {
    char *end = NULL;
    const double part = strtod(*at, &end);
    if (end == *at || !(part >= 0 && part <= 1) || (*end && *end != ','))
        return -1;
    *at = *end ? end + 1 : end;
    return part;
}

static int make_tests(const bench_flags *f, test_list *out) {
    size_t n_accept = 1;
    for (const char *at = f->accept; at && *at; at++)
        n_accept += *at == ',';
    out->n = 0;
    out->v = calloc(f->depth.n * f->batch.n * n_plain(f) * n_accept + 1, sizeof *out->v);
    if (!out->v)
        return no_memory();
    const char *at = f->accept;
    if (!at)
        add_tests(f, -1, out);
    while (at && *at) {
        const double part = next_accept(&at);
        if (part < 0)
            break;
        add_tests(f, part, out);
    }
    if (!at || !*at)
        return 0;
    free(out->v);
    return complain(EXIT_USAGE,
                    "--accept: found \"%s\", expected numbers from 0 to 1 with commas between them",
                    f->accept);
}

/* The sizes of a session that is enough for all tests. */
static mn_session_params bench_params_of(const test_list *tests, const bench_flags *f) {
    mn_session_params p = {.n_batch = (uint32_t)f->rows};
    for (size_t i = 0; i < tests->n; i++) {
        const bench_test *t = &tests->v[i];
        /* 3: the token that ends the filling, the id that begins the test, the token after a
         * prompt */
        const uint32_t n = t->depth + t->n_prompt + t->n_gen + 3;
        p.n_ctx = n > p.n_ctx ? n : p.n_ctx;
        p.n_seq = t->batch > p.n_seq ? t->batch : p.n_seq;
    }
    return p;
}

/* ---- the report ------------------------------------------------------------------------------ */
typedef struct {
    app *a;
    const bench_flags *f;
    int form;
    out_file out;
    table rates, times;
    int width[TABLE_MAX_COLUMNS]; /* of rates: known before the first row */
    busy_mark mark; /* from the first test on: a single test may be too short for the counters */
    int warned, n_loaded;
    bench_truth truth;
    mn_sample_params sample;
} report;

/* The widths of the columns, before the first rate is known: those of all tests with large
 * rates. */
static void set_widths(report *r, const test_list *tests) {
    static const bench_result widest = {.avg = 1e6 - 1, .stddev = 1e4 - 1};
    table sample = r->rates;
    sample.cells = NULL;
    sample.n = 0;
    sample.cap = 0;
    for (size_t i = 0; i < sample.n_cols; i++)
        table_cell(&sample, "%s", r->rates.cells[i]);
    for (size_t i = 0; i < tests->n; i++)
        bench_table_row(&sample, r->a, &tests->v[i], &widest);
    table_widths(&sample, r->width);
    table_free(&sample);
}

/* The newest row of the table of rates. */
static void bench_print_last(report *r) {
    const size_t n = table_rows(&r->rates);
    const table_style style = r->form == OUT_CSV ? TABLE_CSV : TABLE_MARKDOWN;
    if (n)
        table_print_row(&r->rates, n - 1, style, r->width, &r->out);
    out_flush(&r->out);
}

/* The heading, when the first model is loaded. */
static void begin_report(report *r, const test_list *tests) {
    if (r->n_loaded++)
        return;
    busy_begin(&r->mark);
    if (r->form == OUT_JSON || r->f->profile)
        return;
    if (r->form == OUT_MD)
        set_widths(r, tests);
    bench_print_last(r);
}

/* Once per report. */
static void warn_busy(report *r, const char *when, double others) {
    if (!r->warned)
        note("warning: other programs kept %.1f CPUs busy during %s: the rates are lower than this "
             "machine's",
             others, when);
    r->warned = 1;
}

/* Measures t and prints its row. */
static int bench_run_test(report *r, const bench_test *t) {
    bench_result result;
    char test[64];
    bench_name(t, test, sizeof test);
    int code = bench_measure(r->a, t, (size_t)r->f->reps, r->f->accept ? &r->truth : NULL, &result);
    if (code == 0 && r->form == OUT_JSON) {
        bench_print_json(r->a, t, &result, &r->out);
    } else if (code == 0 && r->form == OUT_CSV) {
        csv_row(&r->rates, r->a, t, &result);
        bench_print_last(r);
    } else if (code == 0) {
        bench_table_row(&r->rates, r->a, t, &result);
        latency_row(&r->times, r->a, t, &result);
        bench_print_last(r);
    }
    if (code == 0 && result.busy)
        warn_busy(r, test, result.others);
    bench_result_free(&result);
    return code == 0 && r->out.error ? EXIT_FAILED : code;
}

/* The lines below the table, also after Ctrl-C or an error. */
static void bench_end_report(report *r, int code) {
    char peak[32];
    const double others = r->n_loaded ? busy_others(&r->mark) : -1;
    if (code == EXIT_INTERRUPTED)
        out_break(&r->out);
    if (busy_matters(&r->mark, others))
        warn_busy(r, "the tests", others);
    if (r->form != OUT_MD || table_rows(&r->rates) < 2)
        return;
    out_puts(&r->out, "\n");
    table_print(&r->times, TABLE_MARKDOWN, &r->out);
    out_printf(&r->out, "\nprecision %s, load time %.3f s, peak memory %s\n",
               precision_name(r->a->session_info.precision), r->a->load_s,
               human_bytes(peak_rss(), peak));
}

static int run_one(report *r, const bench_test *test) {
    bench_test t = *test;
    t.sample = &r->sample;
    if (!r->f->profile)
        return bench_run_test(r, &t);
    return bench_print_profile(r->a, &t, (size_t)r->f->reps, r->form == OUT_JSON, &r->out);
}

/* How tokens are drawn: the likeliest one where no flag says otherwise, whatever the model
 * recommends. */
static int set_sample(report *r, mn_constraint **form) {
    r->sample = (mn_sample_params){.size = sizeof r->sample, .repeat_penalty = 1, .top_p = 1};
    sampling_apply(&r->f->sampling, &r->sample);
    const int code = form_open(r->a, &r->f->form, form);
    r->sample.constraint = *form;
    return code;
}

/* All tests with one number of threads, in a runtime of their own. */
static int bench_with(report *r, const app_flags *flags, const test_list *tests) {
    mn_session_params params = bench_params_of(tests, r->f);
    mn_constraint *form = NULL;
    if (r->f->accept) {
        params.guess = bench_guess;
        params.guess_arg = &r->truth;
        params.speculate = MN_SPECULATE_REHEARSE;
    }
    if (flags->draft_max)
        params.speculate |= MN_SPECULATE_ALWAYS;
    int code = app_open_ranked(r->a, flags);
    if (code == 0)
        code = app_open_session(r->a, &params);
    if (code == 0)
        code = set_sample(r, &form);
    if (code == 0)
        begin_report(r, tests);
    for (size_t i = 0; i < tests->n && code == 0; i++)
        code = run_one(r, &tests->v[i]);
    mn_constraint_free(form);
    return code;
}

static int64_t largest(const arg_ints *list) {
    int64_t most = 0;
    for (size_t i = 0; i < list->n; i++)
        if (list->v[i] > most)
            most = list->v[i];
    return most;
}

/* The flags of --url. */
#define U(field) offsetof(url_flags, field)
static const arg_row url_rows[] = {
    {"--url", "URL", ARG_TEXT, U(url), 1, 0, NULL,
     "measure a server that speaks the OpenAI interface: -b users at a time, each\nwith prompts of "
     "-p tokens and answers of -n; -m is the server's name of the model"},
    {"--rate", "R", ARG_FLOAT, U(rate), 0.001, 1e6, NULL,
     "requests that arrive at random, R per second on average, instead of -b"},
    {"--requests", "N", ARG_INT, U(requests), 1, 1e6, NULL,
     "of each test (default: 4 for each user, at least 16; 20 s at a rate)"},
    {"--shared", "PERCENT", ARG_FLOAT, U(shared), 0, 100, NULL,
     "of a prompt that all requests have in common (default: 0)"},
    {"--requests-file", "FILE", ARG_FILE, U(file), 0, 0, NULL,
     "JSON lines with \"prompt\", \"prompt_ids\" or \"messages\", and any other field of\na "
     "request, instead of -p"},
    {"--chat", NULL, ARG_FLAG, U(chat), 0, 0, NULL,
     "use /v1/chat/completions, with prompts of random words"},
    {"--words", NULL, ARG_FLAG, U(words), 0, 0, NULL, "random words instead of random token ids"},
    {"--api-key", "FILE", ARG_FILE, U(key_file), 0, 0, NULL,
     "the key is in FILE (default: the variable OPENAI_API_KEY)"},
    {"--seed", "N", ARG_SEED, U(seed), 0, 0, NULL,
     "of prompts and arrivals (default: another one each time)"},
};

/* Flags that need a model here, or --url: 0, or EXIT_USAGE with the error printed. */
static int check_url(const app_flags *flags, const bench_flags *f) {
    const int local = f->pair.given || f->depth.given || f->threads.given || f->profile;
    if (f->url.url && (local || flags->device))
        return complain(EXIT_USAGE, "found --url with -pg, -d, -t, --profile or --device, expected "
                                    "-p, -n and -b: the server decides the rest");
    if (f->url.url && f->url.rate > 0 && f->batch.given)
        return complain(EXIT_USAGE, "found --rate and -b, expected one of them");
    const int remote = f->url.rate > 0 || f->url.requests || f->url.file || f->url.chat;
    if (!f->url.url && (remote || f->url.words || f->url.key_file || f->url.shared > 0))
        return complain(EXIT_USAGE, "found a flag of --url, expected --url with it");
    return 0;
}

/* bench --url. Lengths of 0 make no request. */
static int bench_server(const app_flags *flags, const bench_flags *f, int form) {
    const url_tests tests = {
        .url = &f->url,
        .prompt = &f->prompt,
        .gen = &f->gen,
        .users = &f->batch,
        .gen_given = f->gen.given,
        .model = flags->model,
        .style = form == OUT_CSV ? TABLE_CSV : TABLE_MARKDOWN,
        .json = form == OUT_JSON,
        .quiet = flags->quiet,
    };
    for (size_t i = 0; i < f->prompt.n; i++)
        if (f->prompt.v[i] == 0)
            return complain(EXIT_USAGE, "-p: found 0 with --url, expected at least 1");
    for (size_t i = 0; i < f->gen.n; i++)
        if (f->gen.v[i] == 0)
            return complain(EXIT_USAGE, "-n: found 0 with --url, expected at least 1");
    return bench_url(&tests);
}

/* *form: OUT_*. 0, or EXIT_USAGE for flags that exclude each other or make no test. */
static int bench_check(const app_flags *flags, const bench_flags *f, int *form) {
    const int json = flags->json || f->output == OUT_JSON;
    const int csv = f->csv || f->output == OUT_CSV;
    if (json && csv)
        return complain(EXIT_USAGE, "found --json and --csv, expected one of them");
    if (f->peaks && (csv || f->profile || f->url.url))
        return complain(EXIT_USAGE, "found --peaks with --csv, --profile or --url, expected tables "
                                    "or --json");
    if (f->profile && csv)
        return complain(EXIT_USAGE, "found --profile and --csv, expected tables or --json");
    *form = OUT_MD;
    if (json)
        *form = OUT_JSON;
    if (csv)
        *form = OUT_CSV;
    if (flags->lora_each && !flags->lora.n)
        return complain(EXIT_USAGE, "found --lora-each, expected --lora with it");
    if (largest(&f->prompt) == 0 && largest(&f->gen) == 0 && f->pair.n == 0)
        return complain(EXIT_USAGE, "-p and -n: found 0 for both, expected a test to run");
    return 0;
}

/* Every test with every number of threads: each number has a session of its own. */
static int bench_all(report *r, const app_flags *flags, const test_list *tests) {
    const arg_ints *threads = &r->f->threads;
    app_flags own = *flags;
    int code = 0;
    const size_t n = threads->given ? threads->n : 1;
    for (size_t i = 0; i < n && code == 0; i++) {
        if (threads->given)
            own.threads = (arg_count){threads->v[i], 1};
        if (i)
            app_close(r->a);
        code = bench_with(r, &own, tests);
    }
    return code;
}

static int bench(app *a, const app_flags *flags, const bench_flags *f) {
    static const char *const rate_columns[] = {"model",   "size", "params",  "device",
                                               "threads", "test", "t/s ± σ", NULL};
    static const char *const time_columns[] = {
        "threads", "test", "sequences", "first token, ms", "per token p50, ms", "p99, ms", NULL};
    static const char *const csv_columns[] = {
        "model",    "params", "bytes",    "device",      "threads",    "precision", "test",
        "n_prompt", "n_gen",  "depth",    "batch",       "samples_ts", "avg_ts",    "stddev_ts",
        "load_s",   "ttft_s", "peak_rss", "others_cpus", NULL};
    report r = {.a = a, .f = f, .out = out_stdout()};
    test_list tests = {0};
    int code = bench_check(flags, f, &r.form);
    if (code == 0)
        code = form_check(&f->form);
    if (code == 0)
        code = check_url(flags, f);
    if (code == 0 && f->url.url)
        return bench_server(flags, f, r.form);
    if (code == 0 && f->peaks) {
        code = bench_peaks(&f->threads, r.form == OUT_JSON, &r.out);
        return out_finish(&r.out, code);
    }
    if (code == 0)
        code = make_tests(f, &tests);
    if (code)
        return code;
    if (r.form == OUT_CSV)
        table_begin(&r.rates, csv_columns, 0);
    else
        table_begin(&r.rates, rate_columns, 0x56);
    table_begin(&r.times, time_columns, 0x3d);
    code = bench_all(&r, flags, &tests);
    bench_end_report(&r, code);
    table_free(&r.rates);
    table_free(&r.times);
    free(r.truth.ids);
    free(tests.v);
    return out_finish(&r.out, r.out.error ? 0 : code);
}

/* value: n elements that outlive the list; a given list is unchanged. */
static void set_default(arg_ints *list, int64_t *value, size_t n) {
    if (!list->given) {
        list->v = value;
        list->n = n;
    }
}

/* Rows of sampling_rows between --seed and --stop. */
enum { SEED_TO_STOP = 7 };

int cmd_bench(int argc, char **argv) {
    int64_t p = 512, n = 128, d = 0, b = 1;
    app_flags flags = {0};
    bench_flags f = {.reps = 5, .sampling = sampling_defaults()};
    const arg_group groups[] = {
        {"Tests (a list of values, or a range 128-512+128 or 128-1024*2, makes a test of each)",
         rows, MN_COUNT(rows), &f},
        {"A server (instead of a model here)", url_rows, MN_COUNT(url_rows), &f.url},
        {"Output", output_rows, MN_COUNT(output_rows), &f},
        {"", app_json_rows, APP_JSON_ROWS, &flags},
        {"Model and device", app_model_rows, APP_MODEL_ROWS, &flags},
        {"", app_device_rows, 1, &flags},
        {"", app_device_rows + 2, APP_DEVICE_ROWS - 2, &flags}, // -t is a list here
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
        {"", app_session_rows + 2, 3, &flags}, // no -b (sequences here), no -c (from the tests)
        {"", app_lora_rows, APP_LORA_ROWS, &flags},
        {"", app_lora_each_rows, APP_LORA_EACH_ROWS, &flags},
        {"", app_draft_rows, APP_DRAFT_ROWS, &flags},
        {"Form of what is generated", form_rows, FORM_ROWS, &f.form},
        {"Sampling (default: always the most likely token)", sampling_rows, 1, &f.sampling},
        {"", sampling_rows + 2, SEED_TO_STOP, &f.sampling}, // no --seed (of --url), no --stop
        {"", sampling_rows + 3 + SEED_TO_STOP, SAMPLING_ROWS - 3 - SEED_TO_STOP, &f.sampling},
    };
    const arg_page page = {
        "bench",
        "[-m MODEL] [--url URL] [-p N] [-n N] [-pg P,G] [-d N] [-b N] [-t N] [-r N] [flags]",
        "Measures prompt (pp) and generation (tg) speed in tokens per second, or, with --url, what "
        "the users of a\nserver see. Rows appear as they are measured; Ctrl-C keeps them.",
        groups, MN_COUNT(groups)};
    app a = {0};
    int code = args_parse(&page, argc, argv);
    const int pairs_only = f.pair.given && !f.prompt.given && !f.gen.given;
    set_default(&f.prompt, &p, !pairs_only);
    set_default(&f.gen, &n, !pairs_only);
    set_default(&f.depth, &d, 1);
    set_default(&f.batch, &b, 1);
    if (code == ARGS_OK && sampling_check(&f.sampling))
        code = EXIT_USAGE;
    if (code == ARGS_OK)
        code = flags.list_devices ? cmd_devices(1, argv) : bench(&a, &flags, &f);
    arg_ints *lists[] = {&f.prompt, &f.gen, &f.pair, &f.depth, &f.batch, &f.threads};
    for (size_t i = 0; i < MN_COUNT(lists); i++)
        if (lists[i]->given)
            args_free_ints(lists[i]);
    args_free_texts(&f.form.choices);
    args_free_texts(&flags.lora);
    sampling_free(&f.sampling);
    return app_end(&a, code);
}
