/* golden_run.c -- computes through minerva.h, as an application does: the runtime with its plugins,
 * a model, logits of a text, and greedy answers. A place keeps its runtime from case to case; a
 * model and its sessions live as long as a case. */
#include "golden.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_words(verdict *v, const char *format, va_list args) {
    const size_t n = strlen(v->said);
    const size_t used = n && n + 2 < sizeof v->said ? n + 2 : n;
    if (used > n)
        memcpy(v->said + n, ", ", 3);
    vsnprintf(v->said + used, sizeof v->said - used, format, args);
    for (char *c = v->said; *c; c++)
        if (*c == '\n' || *c == '#') // TAP: a line per case, and # begins a directive
            *c = ' ';
}

void say(verdict *v, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_words(v, format, args);
    va_end(args);
}

bool fail(verdict *v, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_words(v, format, args);
    va_end(args);
    v->failed = true;
    return false;
}

/* ---- runtime and model ----------------------------------------------------------------------- */

/* Opens the runtime of p, if it has none. */
static bool open_place(place *p, verdict *v) {
    mn_error err = MN_ERROR;
    const mn_setting settings[] = {{"device", p->device}, {"plugin.cpu_simd.isa", p->isa}};
    const mn_runtime_params params = {
        .size = sizeof params, .n_settings = p->isa ? 2 : 1, .settings = settings};
    if (p->rt || !mn_runtime_create(&params, &p->rt, &err))
        return true;
    return fail(v, "no runtime: %s", err.msg);
}

void close_place(place *p) {
    mn_runtime_free(p->rt);
    p->rt = NULL;
}

bool open_model(place *p, const char *path, mn_model **model, verdict *v) {
    mn_error err = MN_ERROR;
    uint32_t rank = 0, n = 1;
    *model = NULL;
    if (!open_place(p, v))
        return false;
    mn_status st = mn_model_open(p->rt, path, model, &err);
    if (!st)
        st = mn_rank_of_process(&rank, &n, &err);
    if (!st && n > 1)
        st = mn_model_join(*model, &rank, &err);
    if (!st && rank)
        st = mn_model_follow(*model, &err);
    if (st || rank) {
        mn_model_free(*model);
        *model = NULL;
    }
    return st ? fail(v, "%s", err.msg) : true;
}

/* ---- logits ---------------------------------------------------------------------------------- */

typedef struct {
    float *all;
    uint32_t n, n_vocab;
} rows_kept;

static mn_status keep_rows(void *arg, uint32_t first, uint32_t n_rows, uint32_t n_vocab,
                           const float *rows) {
    rows_kept *k = arg;
    if (!k->all)
        k->all = get_memory((size_t)k->n * n_vocab * sizeof *rows);
    k->n_vocab = n_vocab;
    memcpy(k->all + (size_t)first * n_vocab, rows, (size_t)n_rows * n_vocab * sizeof *rows);
    return MN_OK;
}

bool get_logits(mn_model *m, const char *device, uint32_t precision, uint32_t n_batch,
                const int32_t *ids, uint32_t n, float **out, uint32_t *n_vocab, verdict *v) {
    mn_error err = MN_ERROR;
    mn_model_info info = {.size = sizeof info};
    mn_session *s = NULL;
    rows_kept kept = {.n = n};
    mn_session_params params = {.size = sizeof params,
                                .device = device,
                                .precision = precision,
                                .n_ctx = n, // longrope chooses its factors by it
                                .n_batch = n_batch,
                                .flags = MN_SESSION_NO_SAMPLING};
    mn_status st = mn_model_get_info(m, &info);
    if (!st)
        st = mn_session_create(m, &params, &s, &err);
    if (!st)
        st = mn_session_logits(s, ids, n, keep_rows, &kept, &err);
    mn_session_free(s);
    if (st) {
        free(kept.all);
        return fail(v, "logits on %s: %s", device, err.msg);
    }
    *out = kept.all;
    *n_vocab = kept.n_vocab;
    return true;
}

double relative_l2(const float *x, const float *golden, size_t n) {
    double difference = 0, whole = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)x[i] - golden[i]) * ((double)x[i] - golden[i]);
        whole += (double)golden[i] * golden[i];
    }
    return sqrt(difference / whole);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* The answer's text as a program for people shows it: the stop token has none. */
static mn_status add_text(const mn_stream_event *events, uint32_t n, answer *a) {
    for (uint32_t i = 0; i < n; i++)
        if (events[i].kind == MN_EVENT_TEXT &&
            strlen(a->text) + events[i].text.len < sizeof a->text)
            strncat(a->text, events[i].text.ptr, events[i].text.len);
    return MN_OK;
}

static mn_status make_text(const mn_model *m, const story *prompt, answer *a, mn_error *err) {
    const mn_stream_event *events = NULL;
    mn_stream *stream = NULL;
    uint32_t n = 0;
    mn_status st = mn_stream_create(m, MN_STREAM_CONTINUE, &stream, err);
    if (!st)
        mn_stream_prompt(stream, prompt->prompt_ids, prompt->n_prompt);
    for (uint32_t i = 0; !st && i < a->n; i++) {
        if (i + 1 == a->n && a->finish == MN_FINISH_STOP)
            break;
        st = mn_stream_push(stream, a->ids[i], &events, &n, err);
        if (!st)
            st = add_text(events, n, a);
    }
    if (!st && a->finish == MN_FINISH_LENGTH)
        mn_stream_cut(stream);
    if (!st)
        st = mn_stream_finish(stream, &events, &n, err);
    if (!st)
        st = add_text(events, n, a);
    mn_stream_free(stream);
    return st;
}

/* Steps until all sequences have ended; seqs[i] is the one of out[i]. */
static mn_status run_all(mn_session *s, const int32_t *seqs, uint32_t n_prompts, answer *out,
                         mn_error *err) {
    mn_token tokens[64];
    uint32_t n = 1;
    mn_status st = MN_OK;
    while (!st && n) {
        st = mn_session_step(s, tokens, 64, &n, err);
        for (uint32_t i = 0; !st && i < n; i++)
            for (uint32_t k = 0; k < n_prompts; k++)
                if (seqs[k] == tokens[i].seq && out[k].n < MAX_NEW) {
                    out[k].ids[out[k].n++] = tokens[i].id;
                    out[k].finish = tokens[i].finish;
                }
    }
    return st;
}

/* The positions that prompts with their answers need; 0: the default. */
static uint32_t context_for(const mn_model *m, const story *prompts, uint32_t n, uint32_t max_new) {
    mn_model_info info = {.size = sizeof info};
    uint32_t most = 0;
    mn_model_get_info(m, &info);
    for (uint32_t i = 0; i < n; i++)
        if (prompts[i].n_prompt + max_new > most)
            most = prompts[i].n_prompt + max_new;
    return info.n_ctx_train > 0 && most >= info.n_ctx_train ? 0 : most;
}

bool get_answers(mn_model *m, const char *device, const story *prompts, uint32_t n_prompts,
                 uint32_t max_new, bool ignore_stop, answer *out, verdict *v) {
    mn_error err = MN_ERROR;
    mn_session *s = NULL;
    mn_model_info info = {.size = sizeof info};
    mn_session_info on = {.size = sizeof on};
    int32_t seqs[64];
    const mn_sample_params sample = {
        .size = sizeof sample, .max_new = max_new, .ignore_stop = ignore_stop};
    const mn_session_params params = {.size = sizeof params,
                                      .device = device,
                                      .precision = MN_PRECISION_EXACT,
                                      .n_seq = n_prompts,
                                      .n_ctx = context_for(m, prompts, n_prompts, max_new)};
    memset(out, 0, n_prompts * sizeof *out);
    mn_status st = mn_model_get_info(m, &info);
    if (!st)
        st = mn_session_create(m, &params, &s, &err);
    for (uint32_t i = 0; !st && i < n_prompts; i++)
        st = mn_seq_create(s, prompts[i].prompt_ids, prompts[i].n_prompt, &sample, &seqs[i], &err);
    if (!st)
        st = run_all(s, seqs, n_prompts, out, &err);
    if (!st)
        st = mn_session_get_info(s, &on);
    for (uint32_t i = 0; !st && i < n_prompts; i++) {
        snprintf(out[i].device, sizeof out[i].device, "%s", on.device);
        if (info.has_tokenizer)
            st = make_text(m, &prompts[i], &out[i], &err);
    }
    mn_session_free(s);
    return st ? fail(v, "answers on %s: %s", device, err.msg) : true;
}
