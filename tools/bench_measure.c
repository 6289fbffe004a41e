/* bench_measure.c -- runs one test of minerva bench: fills every sequence to its depth, which is
 * not measured, then measures prompt and generation, n_reps times after one run to warm up.
 *
 * The buffers of a test belong to struct bench; the samples to the bench_result that the caller
 * frees. Prompts are random ids, the same in every run. Times are wall clock, from the main
 * thread. Interface: bench.h. */
#include "bench.h"
#include "text_buffer.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    app *a;
    int32_t *ids, *seq;
    uint32_t n_ids, n_seq; /* n_ids: as many as the longest prompt; n_seq: begun */
    mn_token *tokens;
    uint32_t cap;
    double *gaps, *ttft; /* between tokens of all repetitions; per repetition */
    size_t n_gaps, cap_gaps;
    double begin, first, last; /* times of the repetition: begin, first token, newest token */
    mn_profile_fn profile;     /* NULL: not profiled, which would slow the steps */
    void *profile_arg;
    bench_truth *truth; /* NULL: no --accept */
    const mn_sample_params *sample;
    uint64_t n_got; /* tokens of the repetition */
} bench;

void bench_name(const bench_test *t, char *dst, size_t n) {
    char prompt[24] = "", gen[24] = "", depth[24] = "", accept[24] = "";
    if (t->n_prompt)
        snprintf(prompt, sizeof prompt, "pp%u", t->n_prompt);
    if (t->n_gen)
        snprintf(gen, sizeof gen, "%stg%u", t->n_prompt ? "+" : "", t->n_gen);
    if (t->depth)
        snprintf(depth, sizeof depth, " @ d%u", t->depth);
    if (t->accept >= 0)
        snprintf(accept, sizeof accept, " accept %g", t->accept);
    snprintf(dst, n, "%s%s%s%s", prompt, gen, depth, accept);
}

static void bench_measure_random_ids(int32_t *ids, uint32_t n, int64_t n_vocab) {
    uint64_t x = 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((x >> 33) % (uint64_t)n_vocab);
    }
}

/* Which gaps between tokens are kept: none, those after the first token, all. */
enum { TIME_NOTHING, TIME_REST, TIME_ALL };

/* After a prompt the first gap is the prompt's. */
static int what_to_time(const bench_test *t) {
    if (!t->n_gen)
        return TIME_NOTHING;
    return t->n_prompt ? TIME_REST : TIME_ALL;
}

/* ---- --accept -------------------------------------------------------------------------------- */
/* The id at a position, of the first sequence. */
static void bench_measure_record(bench_truth *t, size_t at, int32_t id) {
    if (at >= t->cap)
        return;
    for (; t->n < at; t->n++)
        t->ids[t->n] = -1;
    t->ids[at] = id;
    t->n = at + 1 > t->n ? at + 1 : t->n;
}

static void record_tokens(bench *b, uint32_t n) {
    bench_truth *t = b->truth;
    if (!t || !t->recording)
        return;
    for (uint32_t i = 0; i < n; i++)
        if (b->tokens[i].seq == b->seq[0])
            bench_measure_record(t, mn_seq_length(b->a->session, b->seq[0]) - 1, b->tokens[i].id);
}

/* Each id is right with the probability asked for, by a hash of its position: all repetitions guess
 * alike. */
uint32_t bench_guess(void *truth, const int32_t *ids, uint32_t n, int32_t *to, uint32_t k) {
    const bench_truth *t = truth;
    uint32_t given = 0;
    (void)ids;
    for (; given < k && !t->recording && n + given < t->n; given++) {
        uint32_t h = (n + given) * 2654435761u;
        h = (h ^ h >> 15) * 2246822519u;
        h ^= h >> 13;
        const int right = (h >> 8) * 0x1p-24 < t->part;
        to[given] = right ? t->ids[n + given] : t->ids[n + given] ^ 1;
    }
    return given;
}

/* Steps until every sequence has finished; keeps the time of the first token and the gaps between
 * tokens (the tokens of one step share its time). */
static int finish_all(bench *b, int timed) {
    uint32_t got = 1;
    while (got) {
        mn_status status = mn_session_step(b->a->session, b->tokens, b->cap, &got, &b->a->err);
        if (status == MN_CANCELLED)
            return EXIT_INTERRUPTED;
        if (status != MN_OK)
            return app_fail(b->a, status);
        record_tokens(b, got);
        b->n_got += got;
        double now = seconds();
        const int is_first = isnan(b->first);
        if (got && is_first)
            b->first = now;
        const int counts = timed == TIME_ALL || (timed == TIME_REST && !is_first);
        if (counts && got && b->n_gaps < b->cap_gaps)
            b->gaps[b->n_gaps++] = (now - b->last) * (double)b->n_seq / (double)got;
        b->last = now;
    }
    return 0;
}

/* Creates sequence i with n ids, or extends it (again). */
static int bench_measure_feed(bench *b, uint32_t i, const int32_t *ids, uint32_t n,
                              uint32_t max_new, int again) {
    const app_flags *flags = b->a->flags;
    char name[LORA_NAME];
    mn_sample_params p = *b->sample;
    if (flags->lora_each)
        p.adapter = lora_name(i % flags->lora.n, name);
    p.max_new = max_new;
    p.ignore_stop = 1;
    mn_status status = again ? mn_seq_extend(b->a->session, b->seq[i], ids, n, &p, &b->a->err)
                             : mn_seq_create(b->a->session, ids, n, &p, &b->seq[i], &b->a->err);
    if (status != MN_OK)
        return app_fail(b->a, status);
    if (i >= b->n_seq)
        b->n_seq = i + 1;
    return 0;
}

/* The prompt of sequence i: each has another one, so that rows of a step go to experts as those of
 * strangers do. Drafts that are right by what the first run generated want one for all. */
static const int32_t *bench_measure_ids_of(const bench *b, uint32_t i) {
    return b->ids + (b->truth ? 0 : i);
}

static int bench_measure_fill(bench *b, const bench_test *t) {
    int code = 0;
    for (uint32_t i = 0; i < t->batch && code == 0; i++)
        code = bench_measure_feed(b, i, bench_measure_ids_of(b, i), t->depth, 1, 0);
    return code ? code : finish_all(b, TIME_NOTHING);
}

/* Starts (on) or ends the profile of the steps that follow. */
static int profile(bench *b, int on) {
    if (!b->profile)
        return 0;
    mn_status status =
        mn_session_profile(b->a->session, on ? b->profile : NULL, b->profile_arg, &b->a->err);
    return status == MN_OK ? 0 : app_fail(b->a, status);
}

/* One repetition: *rate in tokens per second, *ttft in s. n_gen steps are timed: a test without a
 * prompt begins with one id, and one with a prompt, whose last step draws an id already, draws one
 * more. */
static int repeat(bench *b, const bench_test *t, double *rate, double *ttft) {
    const uint64_t n_all = (uint64_t)(t->n_prompt ? t->n_gen + 1 : t->n_gen) * t->batch;
    const uint32_t n_new = t->n_prompt ? t->n_gen + 1 : t->n_gen;
    const uint32_t n_prompt = t->n_prompt ? t->n_prompt : 1;
    int code = 0;
    b->first = NAN;
    b->begin = seconds();
    if (t->depth)
        code = bench_measure_fill(b, t);
    double filled = seconds() - b->begin;
    if (code == 0)
        code = profile(b, 1);
    b->first = NAN;
    b->begin = seconds();
    b->last = b->begin;
    b->n_got = 0;
    for (uint32_t i = 0; i < t->batch && code == 0; i++)
        code = bench_measure_feed(b, i, bench_measure_ids_of(b, i), n_prompt, n_new, t->depth != 0);
    if (code == 0)
        code = finish_all(b, what_to_time(t));
    if (code == 0)
        code = profile(b, 0);
    if (code == 0 && b->n_got < n_all)
        code = complain(EXIT_USAGE,
                        "the form of the answer ended it: found %llu tokens, expected %llu: give a "
                        "form without an end, such as a list with a large minItems",
                        (unsigned long long)b->n_got, (unsigned long long)n_all);
    *rate = (double)(t->n_gen + t->n_prompt) * t->batch / (b->last - b->begin);
    *ttft = b->first - b->begin + (t->depth ? filled : 0);
    for (uint32_t i = 0; i < b->n_seq; i++)
        mn_seq_free(b->a->session, b->seq[i]);
    b->n_seq = 0;
    return code;
}

/* The ids before the first generated token: depth and prompt, or the one id that begins. */
static uint32_t n_first(const bench_test *t, uint32_t n_ids) {
    const uint32_t n = t->n_prompt + t->depth;
    if (!t->n_prompt)
        return 1;
    return n < n_ids ? n : n_ids;
}

/* The time to tokenise the text of n ids, which a user waits for before the first step. 0 without a
 * tokeniser. */
static double tokenize_seconds(app *a, const int32_t *ids, uint32_t n) {
    mn_text text = {0};
    mn_stream *stream = NULL;
    const mn_stream_event *events = NULL;
    uint32_t n_events = 0;
    if (!a->info.has_tokenizer ||
        mn_stream_create(a->model, MN_STREAM_PLAIN, &stream, &a->err) != MN_OK)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        if (mn_stream_push(stream, ids[i], &events, &n_events, &a->err) != MN_OK)
            break;
        if (n_events)
            mn_text_put(&text, events->text.ptr, events->text.len);
    }
    int32_t *made = NULL;
    uint32_t n_made = 0;
    const mn_str all = {text.ptr ? text.ptr : "", text.len};
    double begin = seconds();
    mn_status status =
        mn_model_tokenize(a->model, all, MN_TEXT_ADD_SPECIAL, &made, &n_made, &a->err);
    double spent = status == MN_OK ? seconds() - begin : 0;
    mn_ids_free(made);
    mn_stream_free(stream);
    mn_text_free(&text);
    return spent;
}

static int ascending(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* Sorts v. NAN: n is 0. */
static double quantile(double *v, size_t n, double q) {
    if (n == 0)
        return NAN;
    qsort(v, n, sizeof *v, ascending);
    return v[(size_t)(q * (double)(n - 1) + 0.5)];
}

static void summarise(bench *b, bench_result *r) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < r->n; i++)
        sum += r->samples[i];
    r->avg = sum / (double)r->n;
    for (size_t i = 0; i < r->n; i++)
        squares += (r->samples[i] - r->avg) * (r->samples[i] - r->avg);
    r->stddev = r->n > 1 ? sqrt(squares / (double)(r->n - 1)) : 0;
    r->ttft_s = quantile(b->ttft, r->n, 0.5);
    r->p50_s = quantile(b->gaps, b->n_gaps, 0.5);
    r->p99_s = quantile(b->gaps, b->n_gaps, 0.99);
}

/* What became of drafts since. */
static void bench_measure_count_drafts(const app *a, const mn_session_stats *before,
                                       bench_result *r) {
    mn_session_stats now = {.size = sizeof now};
    if (mn_session_get_stats(a->session, &now) != MN_OK)
        return;
    r->n_drafted = now.n_drafted - before->n_drafted;
    r->n_accepted = now.n_accepted - before->n_accepted;
    r->n_forced = now.n_forced - before->n_forced;
    r->n_steps = now.n_steps - before->n_steps;
    r->draft_s = now.draft_s - before->draft_s;
}

/* Allocates the buffers of t; bench_end frees them, also after an error. */
static int bench_begin(bench *b, app *a, const bench_test *t, size_t n_reps) {
    *b = (bench){.a = a,
                 .n_ids = t->batch + (t->depth > t->n_prompt ? t->depth : t->n_prompt),
                 .cap = a->session_info.n_seq * 8 + 64,
                 .sample = t->sample,
                 .cap_gaps = ((size_t)t->n_gen + 1) * t->batch * n_reps + 1};
    if (b->cap_gaps > 1u << 20)
        b->cap_gaps = 1u << 20; // enough for a percentile
    b->ids = malloc(b->n_ids * sizeof *b->ids);
    b->seq = malloc(t->batch * sizeof *b->seq);
    b->tokens = malloc(b->cap * sizeof *b->tokens);
    b->gaps = malloc(b->cap_gaps * sizeof *b->gaps);
    b->ttft = malloc(n_reps * sizeof *b->ttft);
    if (!b->ids || !b->seq || !b->tokens || !b->gaps || !b->ttft)
        return no_memory();
    bench_measure_random_ids(b->ids, b->n_ids, a->info.n_vocab);
    return 0;
}

/* Room for what the test generates. */
static int truth_begin(bench *b, const bench_test *t) {
    bench_truth *truth = b->truth;
    if (!truth)
        return 0;
    free(truth->ids);
    truth->n = 0;
    truth->cap = (size_t)t->depth + t->n_prompt + t->n_gen + 8;
    truth->ids = malloc(truth->cap * sizeof *truth->ids);
    truth->recording = 1;
    return truth->ids ? 0 : no_memory();
}

static void bench_end(bench *b) {
    free(b->ids);
    free(b->seq);
    free(b->tokens);
    free(b->gaps);
    free(b->ttft);
}

int bench_profile(app *a, const bench_test *t, size_t n_reps, mn_profile_fn fn, void *arg) {
    char name[64];
    bench b;
    double rate, ttft;
    bench_name(t, name, sizeof name);
    progress *bar = a->flags->quiet ? NULL : progress_begin(name);
    int code = bench_begin(&b, a, t, 1);
    if (code == 0)
        code = repeat(&b, t, &rate, &ttft);
    b.profile = fn;
    b.profile_arg = arg;
    for (size_t i = 0; i < n_reps && code == 0; i++) {
        code = repeat(&b, t, &rate, &ttft);
        progress_at(bar, i + 1, n_reps);
    }
    progress_end(bar);
    bench_end(&b);
    return code;
}

int bench_measure(app *a, const bench_test *t, size_t n_reps, bench_truth *truth,
                  bench_result *out) {
    char name[64];
    bench b;
    double warm_rate, warm_ttft;
    memset(out, 0, sizeof *out);
    out->samples = malloc(n_reps * sizeof *out->samples);
    bench_name(t, name, sizeof name);
    progress *bar = a->flags->quiet ? NULL : progress_begin(name);
    busy_mark mark;
    busy_begin(&mark);
    int code = bench_begin(&b, a, t, n_reps);
    if (code == 0 && !out->samples)
        code = no_memory();
    double tokenize_s = 0;
    b.truth = truth;
    if (truth)
        truth->part = t->accept;
    if (code == 0)
        code = truth_begin(&b, t);
    if (code == 0)
        tokenize_s = tokenize_seconds(a, b.ids, n_first(t, b.n_ids));
    if (code == 0)
        code = repeat(&b, t, &warm_rate, &warm_ttft);
    if (truth)
        truth->recording = 0;
    b.n_gaps = 0;
    mn_session_stats before = {.size = sizeof before};
    if (code == 0)
        mn_session_get_stats(a->session, &before);
    while (code == 0 && out->n < n_reps) {
        code = repeat(&b, t, &out->samples[out->n], &b.ttft[out->n]);
        if (code == 0) {
            b.ttft[out->n] += tokenize_s;
            out->n++;
        }
        progress_at(bar, out->n, n_reps);
    }
    progress_end(bar);
    if (code == 0)
        summarise(&b, out);
    if (code == 0)
        bench_measure_count_drafts(a, &before, out);
    out->others = busy_others(&mark);
    out->busy = busy_matters(&mark, out->others);
    bench_end(&b);
    return code;
}

void bench_result_free(bench_result *r) {
    free(r->samples);
    memset(r, 0, sizeof *r);
}
