/* perplexity.c -- minerva perplexity: how well a model predicts a text, as exp of the mean of -log
 * p.
 *
 * The text is cut into windows of n_ctx tokens that do not overlap, and the second half of each
 * counts; with --stride the windows begin so many tokens apart, and the last tokens of each
 * count. Logits come row by row from mn_session_logits and are not kept. */
#include "app.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *text, *ids;
    int64_t stride;
    int parse_special;
} ppl_flags;

#define F(field) offsetof(ppl_flags, field)
static const arg_row rows[] = {
    {"-f --file", "TEXT", ARG_FILE, F(text), 0, 0, NULL, "the text; -: standard input"},
    {"--ids", "FILE", ARG_FILE, F(ids), 0, 0, NULL,
     "token ids instead, as numbers with blanks or commas between them"},
    {"--stride", "N", ARG_INT, F(stride), 1, 2147483647, NULL,
     "windows begin N tokens apart, and the last N of each count\n(default: the context, and the "
     "second half of each counts)"},
    {"--parse-special", NULL, ARG_FLAG, F(parse_special), 0, 0, NULL,
     "special tokens written in the text become ids"},
};

static const arg_row window_row[] = {{"-c --ctx-size", "N", ARG_COUNT, offsetof(app_flags, ctx), 1,
                                      2147483647, NULL,
                                      "context: tokens of a window (default: 512)"}};

typedef struct {
    const int32_t *window; /* the ids as they are run */
    uint32_t from, n;      /* position of the first scored row; ids of a window */
    double sum, squares;   /* of -log p */
    uint64_t count;
    int64_t bad; /* row of the window with a logit that is NaN; -1: none */
} score;

/* -log softmax(row)[id], in nats. */
static double minus_log_p(const float *row, uint32_t n_vocab, int32_t id) {
    float top = row[0];
    double sum = 0;
    for (uint32_t i = 1; i < n_vocab; i++)
        top = row[i] > top ? row[i] : top;
    for (uint32_t i = 0; i < n_vocab; i++)
        sum += (double)expf(row[i] - top);
    return log(sum) + (double)top - (double)row[id];
}

/* Called by mn_session_logits; row i has the logits of id i + 1. */
static mn_status on_rows(void *arg, uint32_t first, uint32_t n_rows, uint32_t n_vocab,
                         const float *values) {
    score *s = arg;
    if (interrupt_seen())
        return MN_CANCELLED;
    for (uint32_t r = 0; r < n_rows; r++) {
        const uint32_t i = first + r;
        if (i < s->from || i + 1 >= s->n)
            continue;
        if (s->window[i + 1] < 0 || (uint32_t)s->window[i + 1] >= n_vocab)
            return MN_BAD_INPUT;
        const double v = minus_log_p(values + (size_t)r * n_vocab, n_vocab, s->window[i + 1]);
        if (isnan(v)) {
            s->bad = i;
            return MN_BAD_FILE;
        }
        s->sum += v;
        s->squares += v * v;
        s->count++;
    }
    return MN_OK;
}

static double value_of(const score *s) {
    return exp(s->sum / (double)s->count);
}

/* The standard error of the perplexity, from that of the mean of -log p. */
static double perplexity_error_of(const score *s) {
    const double n = (double)s->count, mean = s->sum / n, variance = s->squares / n - mean * mean;
    return n > 1 && variance > 0 ? value_of(s) * sqrt(variance / (n - 1)) : 0;
}

static int perplexity_show(const app *a, const score *s, uint32_t windows, uint32_t n_ctx) {
    out_file out = out_stdout();
    json_out j = out_json(&out);
    if (!a->flags->json) {
        out_printf(&out, "perplexity %.4f +- %.4f (%" PRIu64 " tokens of %u windows, context %u)\n",
                   value_of(s), perplexity_error_of(s), s->count, windows, n_ctx);
        return out_finish(&out, 0);
    }
    json_open(&j, '{');
    json_put_num(&j, "perplexity", value_of(s));
    json_put_num(&j, "error", perplexity_error_of(s));
    json_put_uint(&j, "tokens", s->count);
    json_put_uint(&j, "windows", windows);
    json_put_uint(&j, "n_ctx", n_ctx);
    json_put_z(&j, "device", a->session_info.device);
    json_close(&j);
    json_line(&j);
    return out_finish(&out, 0);
}

/* The error for a NaN in window w, counted from 1; windows are `step` tokens apart. */
static int fail_nan(const app *a, const score *s, uint32_t w, uint32_t step) {
    const uint64_t at = (uint64_t)(w - 1) * step + (uint64_t)s->bad;
    return complain(EXIT_FAILED,
                    "%s: a logit at position %" PRIu64 " of the text (window %u) is NaN, expected "
                    "numbers: the weights are damaged, or too large for the device's types "
                    "(--precision exact)",
                    a->info.path, at, w);
}

/* Computes and prints the perplexity of n ids. stride 0: n_ctx; bos: see first_id. */
static int perplexity_measure(app *a, const int32_t *ids, uint32_t n, uint32_t n_ctx,
                              uint32_t stride, int32_t bos) {
    const uint32_t step = stride ? stride : n_ctx;
    const uint32_t windows = n < n_ctx ? 0 : (n - n_ctx) / step + 1;
    int32_t *window = malloc(n_ctx * sizeof *window);
    if (!window)
        return no_memory();
    score s = {window, stride ? n_ctx - stride - 1 : n_ctx / 2, n_ctx, 0, 0, 0, -1};
    /* without --json the value after each window is the progress; a progress line would erase it */
    progress *bar = a->flags->json ? progress_begin("measuring perplexity") : NULL;
    mn_status status = MN_OK;
    int open = 0; /* the line of values */
    uint32_t w = 0;
    for (; w < windows && status == MN_OK; w++) {
        memcpy(window, ids + (size_t)w * step, n_ctx * sizeof *window);
        if (bos >= 0)
            window[0] = bos;
        status = mn_session_logits(a->session, window, n_ctx, on_rows, &s, &a->err);
        progress_at(bar, w + 1, windows);
        if (status == MN_OK && !a->flags->json) {
            open = w + 1 < windows;
            fprintf(stderr, "[%u]%.4f%s", w + 1, value_of(&s), open ? "," : "\n");
        }
    }
    progress_end(bar);
    if (open)
        fputc('\n', stderr); /* an error begins a new line */
    free(window);
    if (status == MN_CANCELLED)
        return EXIT_INTERRUPTED;
    if (s.bad >= 0)
        return fail_nan(a, &s, w, step);
    return status != MN_OK ? app_fail(a, status) : perplexity_show(a, &s, windows, n_ctx);
}

static int perplexity(app *a, app_flags *flags, const ppl_flags *f) {
    mn_session_params params = {.flags = MN_SESSION_NO_SAMPLING};
    arg_ids ids = {0};
    if (!f->text == !f->ids)
        return complain(EXIT_USAGE, "expected one of -f TEXT and --ids FILE");
    if (!flags->ctx.given)
        flags->ctx = (arg_count){512, 1};
    if (flags->ctx.v < 4 || f->stride >= flags->ctx.v)
        return complain(EXIT_USAGE,
                        "--stride %" PRId64 " with a context of %" PRId64
                        ": expected a stride below it, and a context from 4 on",
                        f->stride, flags->ctx.v);
    int code = app_open_ranked(a, flags);
    if (code == 0)
        code = f->text ? app_text_ids(a, f->text, f->parse_special, &ids.v, &ids.n)
                       : read_ids(f->ids, &ids);
    if (code == 0 && ids.n < (uint64_t)flags->ctx.v)
        code = complain(EXIT_FAILED,
                        "the text has %u tokens, expected at least a window of %" PRId64
                        " (-c sets it)",
                        ids.n, flags->ctx.v);
    if (code == 0)
        code = app_open_session(a, &params);
    if (code == 0)
        code = perplexity_measure(a, ids.v, ids.n, (uint32_t)flags->ctx.v, (uint32_t)f->stride,
                                  f->text ? app_first_id(a) : -1);
    free(ids.v);
    return code;
}

int cmd_perplexity(int argc, char **argv) {
    app_flags flags = {0};
    ppl_flags f = {0};
    const arg_group groups[] = {
        {"Text", rows, MN_COUNT(rows), &f},
        {"Model and device", app_model_rows, APP_MODEL_ROWS, &flags},
        {"", app_device_rows, APP_DEVICE_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
        {"", window_row, 1, &flags},
        {"", app_session_rows + 1, APP_SESSION_ROWS - 1, &flags}, /* without their -c */
        {"", app_lora_rows, APP_LORA_ROWS, &flags},
        {"Output", app_json_rows, APP_JSON_ROWS, &flags},
    };
    const arg_page page = {"perplexity", "-m MODEL -f TEXT [-c CTX] [--stride N] [--json]",
                           "Measures how well a model predicts a text: exp of the mean of -log p.",
                           groups, MN_COUNT(groups)};
    app a = {0};
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK)
        code = flags.list_devices ? cmd_devices(1, argv) : perplexity(&a, &flags, &f);
    args_free_texts(&flags.lora);
    return app_end(&a, code);
}
