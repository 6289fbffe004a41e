/* bench_measure.c -- see bench.h. A test first fills every sequence to its depth, off the clock,
 * then times the rest. */
#include "bench.h"
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
    double begin, first, last; /* of the repetition; last: when tokens came before */
    mn_profile_fn profile;     /* NULL: what is measured is not to be disturbed */
    void *profile_arg;
} bench;

void bench_name(const bench_test *t, char *dst, size_t n) {
    char prompt[24] = "", gen[24] = "", depth[24] = "";
    if (t->n_prompt)
        snprintf(prompt, sizeof prompt, "pp%u", t->n_prompt);
    if (t->n_gen)
        snprintf(gen, sizeof gen, "%stg%u", t->n_prompt ? "+" : "", t->n_gen);
    if (t->depth)
        snprintf(depth, sizeof depth, " @ d%u", t->depth);
    snprintf(dst, n, "%s%s%s", prompt, gen, depth);
}

static void random_ids(int32_t *ids, uint32_t n, int64_t n_vocab) {
    uint64_t x = 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((x >> 33) % (uint64_t)n_vocab);
    }
}

/* Steps until every sequence has finished; notes the first token and the time between tokens
 * (shared by those of one step). What to time: nothing, the tokens behind the first, which a prompt
 * came before, or all. */
enum { TIME_NOTHING, TIME_REST, TIME_ALL };
static int finish_all(bench *b, int timed) {
    uint32_t got = 1;
    while (got) {
        mn_status status = mn_session_step(b->a->session, b->tokens, b->cap, &got, &b->a->err);
        if (status == MN_CANCELLED)
            return EXIT_INTERRUPTED;
        if (status != MN_OK)
            return app_fail(b->a, status);
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

static int feed(bench *b, uint32_t i, const int32_t *ids, uint32_t n, uint32_t max_new, int again) {
    mn_sample_params p = {
        .size = sizeof p, .max_new = max_new, .repeat_penalty = 1, .top_p = 1, .ignore_stop = 1};
    mn_status status = again ? mn_seq_extend(b->a->session, b->seq[i], ids, n, &p, &b->a->err)
                             : mn_seq_create(b->a->session, ids, n, &p, &b->seq[i], &b->a->err);
    if (status != MN_OK)
        return app_fail(b->a, status);
    b->n_seq = i >= b->n_seq ? i + 1 : b->n_seq;
    return 0;
}

static int fill(bench *b, const bench_test *t) {
    int code = 0;
    for (uint32_t i = 0; i < t->batch && code == 0; i++)
        code = feed(b, i, b->ids, t->depth, 1, 0);
    return code ? code : finish_all(b, TIME_NOTHING);
}

/* What follows is told to b->profile, or not any more. */
static int profile(bench *b, int on) {
    if (!b->profile)
        return 0;
    mn_status status =
        mn_session_profile(b->a->session, on ? b->profile : NULL, b->profile_arg, &b->a->err);
    return status == MN_OK ? 0 : app_fail(b->a, status);
}

/* tokens per second of one repetition. A generated token costs one step, the first too: its prompt
 * is one id; behind a prompt, whose step draws one for nothing, one more is drawn. */
static int repeat(bench *b, const bench_test *t, double *rate, double *ttft) {
    const uint32_t n_new = t->n_prompt ? t->n_gen + 1 : t->n_gen;
    const uint32_t n_prompt = t->n_prompt ? t->n_prompt : 1;
    const int timed = !t->n_gen ? TIME_NOTHING : t->n_prompt ? TIME_REST : TIME_ALL;
    int code = 0;
    b->first = NAN;
    b->begin = seconds();
    if (t->depth)
        code = fill(b, t);
    double filled = seconds() - b->begin;
    if (code == 0)
        code = profile(b, 1);
    b->first = NAN;
    b->begin = b->last = seconds();
    for (uint32_t i = 0; i < t->batch && code == 0; i++)
        code = feed(b, i, b->ids, n_prompt, n_new, t->depth != 0);
    if (code == 0)
        code = finish_all(b, timed);
    if (code == 0)
        code = profile(b, 0);
    *rate = (double)(t->n_gen + t->n_prompt) * t->batch / (b->last - b->begin);
    *ttft = b->first - b->begin + (t->depth ? filled : 0);
    for (uint32_t i = 0; i < b->n_seq; i++)
        mn_seq_free(b->a->session, b->seq[i]);
    b->n_seq = 0;
    return code;
}

/* What a user waits for before the first row is computed: the tokens as text, tokenised. */
static double tokenize_seconds(app *a, const int32_t *ids, uint32_t n) {
    char *text = NULL;
    size_t bytes = 0;
    mn_stream *stream = NULL;
    mn_str piece;
    if (!a->info.has_tokenizer || mn_stream_create(a->model, 0, &stream, &a->err) != MN_OK)
        return 0;
    for (uint32_t i = 0; i < n && mn_stream_push(stream, ids[i], &piece, &a->err) == MN_OK; i++) {
        char *grown = realloc(text, bytes + piece.len + 1);
        if (!grown)
            break;
        text = grown;
        if (piece.len)
            memcpy(text + bytes, piece.ptr, piece.len);
        bytes += piece.len;
    }
    int32_t *made = NULL;
    uint32_t n_made = 0;
    double begin = seconds();
    mn_status status = mn_model_tokenize(a->model, (mn_str){text ? text : "", bytes},
                                         MN_TEXT_ADD_SPECIAL, &made, &n_made, &a->err);
    double spent = status == MN_OK ? seconds() - begin : 0;
    mn_ids_free(made);
    mn_stream_free(stream);
    free(text);
    return spent;
}

static int ascending(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

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

static int bench_begin(bench *b, app *a, const bench_test *t, size_t n_reps) {
    *b = (bench){.a = a,
                 .n_ids = 1 + (t->depth > t->n_prompt ? t->depth : t->n_prompt),
                 .cap = t->batch * 8 + 64,
                 .cap_gaps = ((size_t)t->n_gen + 1) * t->batch * n_reps + 1};
    if (b->cap_gaps > 1u << 20)
        b->cap_gaps = 1u << 20; // enough for a percentile
    b->ids = malloc(b->n_ids * sizeof *b->ids);
    b->seq = malloc(t->batch * sizeof *b->seq);
    b->tokens = malloc(b->cap * sizeof *b->tokens);
    b->gaps = malloc(b->cap_gaps * sizeof *b->gaps);
    b->ttft = malloc(n_reps * sizeof *b->ttft);
    if (!b->ids || !b->seq || !b->tokens || !b->gaps || !b->ttft)
        return complain(EXIT_NO_MEMORY, "out of memory");
    random_ids(b->ids, b->n_ids, a->info.n_vocab);
    return 0;
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

int bench_measure(app *a, const bench_test *t, size_t n_reps, bench_result *out) {
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
        code = complain(EXIT_NO_MEMORY, "out of memory");
    double tokenize_s = code ? 0
                             : tokenize_seconds(a, b.ids,
                                                t->n_prompt ? t->n_prompt + t->depth < b.n_ids
                                                                  ? t->n_prompt + t->depth
                                                                  : b.n_ids
                                                            : 1);
    if (code == 0)
        code = repeat(&b, t, &warm_rate, &warm_ttft);
    b.n_gaps = 0;
    for (; code == 0 && out->n < n_reps; progress_at(bar, out->n, n_reps))
        if ((code = repeat(&b, t, &out->samples[out->n], &b.ttft[out->n])) == 0)
            b.ttft[out->n++] += tokenize_s;
    progress_end(bar);
    if (code == 0)
        summarise(&b, out);
    out->others = busy_others(&mark);
    out->busy = busy_matters(&mark, out->others);
    bench_end(&b);
    return code;
}

void bench_result_free(bench_result *r) {
    free(r->samples);
    memset(r, 0, sizeof *r);
}
