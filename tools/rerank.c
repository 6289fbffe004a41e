/* rerank.c -- minerva rerank: scores of texts by how well they answer a query, best first.
 *
 * All pairs are tokenised first, so that one that is too long is an error before anything is
 * computed; then they are scored in blocks, sorted and printed. Texts point into the command line
 * or into the file's data; ids belong to the library (mn_ids_free). */
#include "alloc.h"
#include "texts.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    arg_texts texts; /* the query, then texts */
    const char *file, *instruction, *label;
    int64_t n_top;
    int logits;
} rerank_flags;

#define F(field) offsetof(rerank_flags, field)
static const arg_row rows[] = {
    {"QUERY TEXT", "TEXT", ARG_TEXTS, F(texts), 0, 0, NULL,
     "the query, and the texts that may answer it"},
    {"-f --file", "F", ARG_FILE, F(file), 0, 0, NULL,
     "further texts, one per line of a file; -: of standard input"},
    {"--top", "N", ARG_INT, F(n_top), 1, INT32_MAX, NULL, "print the N best alone"},
    {"--logits", NULL, ARG_FLAG, F(logits), 0, 0, NULL,
     "the numbers of the model's head; else their sigmoid, from 0 to 1"},
    {"--label", "NAME", ARG_TEXT, F(label), 1, 0, NULL,
     "score by this label of a head that classifies, by its name or number from 0 on"},
    {"--instruction", "TEXT", ARG_TEXT, F(instruction), 1, 0, NULL,
     "what the query is for, of models that are asked with a prompt (Qwen3-Reranker)"},
};
#undef F

typedef struct {
    mn_str text;
    int32_t *ids;
    uint32_t n, n_first, index;
    float score;
} rerank_pair;
typedef struct {
    app *a;
    const rerank_flags *f;
    mn_str query;
    rerank_pair *v;
    size_t cap;
    uint32_t n, flags; /* of mn_session_score */
    out_file out;
} rerank_job;

/* ---- labels ---------------------------------------------------------------------------------- */
/* The flags of scores: the label that is named. */
static int rerank_choose_label(rerank_job *j) {
    const char *want = j->f->label;
    mn_str name = {0};
    uint32_t n = 0;
    char number[16];
    j->flags = j->f->logits ? MN_SCORE_LOGIT : 0;
    if (!want)
        return 0;
    for (; mn_model_label(j->a->model, n, &name) == MN_OK; n++) {
        snprintf(number, sizeof number, "%" PRIu32, n);
        if (!mn_str_is(name, want) && strcmp(number, want) != 0)
            continue;
        j->flags |= MN_SCORE_LABEL(n);
        return 0;
    }
    if (!n)
        return complain(EXIT_USAGE, "--label: the model's head has no labels");
    return complain(EXIT_USAGE, "--label: found no label %s among the model's %" PRIu32, want, n);
}

/* ---- pairs ----------------------------------------------------------------------------------- */
static int rerank_add(void *job, const char *text, size_t bytes) {
    rerank_job *j = job;
    app *a = j->a;
    const char *instruction = j->f->instruction ? j->f->instruction : "";
    if (!mn_grow((void **)&j->v, &j->cap, j->n + 1u, sizeof *j->v))
        return no_memory();
    rerank_pair *p = &j->v[j->n];
    *p = (rerank_pair){.text = {text, bytes}, .index = j->n};
    const mn_status st = mn_model_pair(a->model, j->query, p->text, mn_str_of(instruction), &p->ids,
                                       &p->n, &p->n_first, &a->err);
    if (st != MN_OK)
        return app_fail(a, st);
    j->n++;
    return 0;
}

/* data: of the file, the caller's to free. */
static int rerank_collect(rerank_job *j, char **data) {
    const arg_texts *texts = &j->f->texts;
    int code = 0;
    j->query = mn_str_of(texts->v[0]);
    for (size_t i = 1; i < texts->n && code == 0; i++)
        code = rerank_add(j, texts->v[i], strlen(texts->v[i]));
    if (code || !j->f->file)
        return code;
    code = texts_of_file(j->f->file, data, rerank_add, j);
    if (code == 0 && !j->n)
        code =
            complain(EXIT_USAGE, "%s is empty, expected a text per line", input_name(j->f->file));
    return code;
}

static int rerank_check_lengths(const rerank_job *j) {
    const char *flag = NULL;
    const uint32_t most = texts_most_tokens(j->a, &flag);
    for (uint32_t i = 0; i < j->n; i++)
        if (j->v[i].n > most)
            return complain(EXIT_FAILED,
                            "text %" PRIu32 " has %" PRIu32
                            " tokens with the query, expected at most %" PRIu32 " (%s)",
                            i + 1, j->v[i].n, most, flag);
    return 0;
}

/* ---- scores ---------------------------------------------------------------------------------- */
static int rerank_block(void *job, uint32_t first, uint32_t n) {
    rerank_job *j = job;
    app *a = j->a;
    mn_embed_text pairs[TEXTS_BLOCK];
    float scores[TEXTS_BLOCK];
    for (uint32_t i = 0; i < n; i++) {
        const rerank_pair *p = &j->v[first + i];
        pairs[i] = (mn_embed_text){p->ids, p->n, p->n_first};
    }
    const mn_status st =
        mn_session_score(a->session, pairs, n, j->flags, scores, TEXTS_BLOCK, &a->err);
    if (st == MN_CANCELLED)
        return EXIT_INTERRUPTED;
    if (st != MN_OK)
        return app_fail(a, st);
    for (uint32_t i = 0; i < n; i++)
        j->v[first + i].score = scores[i];
    return 0;
}

/* The higher score first; of equal ones the first text. */
static int by_score(const void *a, const void *b) {
    const rerank_pair *x = a;
    const rerank_pair *y = b;
    if (x->score > y->score || x->score < y->score)
        return x->score > y->score ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* ---- output ---------------------------------------------------------------------------------- */
static void rerank_print_json(rerank_job *j, const rerank_pair *p) {
    json_out out = out_json(&j->out);
    json_open(&out, '{');
    json_put_uint(&out, "index", p->index);
    json_put_num(&out, "score", (double)p->score);
    json_put_uint(&out, "tokens", p->n);
    json_key(&out, "text");
    json_mn_str(&out, p->text);
    json_close(&out);
    json_line(&out);
}

static int rerank_print(rerank_job *j) {
    static const char *const columns[] = {"score", "index", "tokens", "text", NULL};
    const uint32_t n = j->f->n_top && j->f->n_top < j->n ? (uint32_t)j->f->n_top : j->n;
    table t;
    if (j->a->flags->json) {
        for (uint32_t i = 0; i < n; i++)
            rerank_print_json(j, &j->v[i]);
        return out_finish(&j->out, 0);
    }
    table_begin(&t, columns, 7);
    for (uint32_t i = 0; i < n; i++) {
        const rerank_pair *p = &j->v[i];
        table_cell(&t, "%.4f", (double)p->score);
        table_cell(&t, "%" PRIu32, p->index);
        table_cell(&t, "%" PRIu32, p->n);
        table_text(&t, p->text.ptr, p->text.len, 60);
    }
    table_print(&t, TABLE_PLAIN, &j->out);
    const int failed = t.failed;
    table_free(&t);
    return failed ? no_memory() : out_finish(&j->out, 0);
}

/* ---- all ------------------------------------------------------------------------------------- */
static int rerank_all(rerank_job *j) {
    const int code = texts_in_blocks("scoring", j->n, rerank_block, j);
    if (code)
        return code;
    qsort(j->v, j->n, sizeof *j->v, by_score);
    return rerank_print(j);
}

static int rerank_texts(app *a, const app_flags *flags, const rerank_flags *f) {
    mn_session_params params = {.flags = MN_SESSION_EMBED};
    rerank_job j = {.a = a, .f = f, .out = out_stdout()};
    char *data = NULL;
    int code = 0;
    if (!f->texts.n || (f->texts.n == 1 && !f->file))
        return complain(EXIT_USAGE, "found no %s, expected a query, and texts or -f F",
                        f->texts.n ? "text" : "query");
    code = app_open_ranked(a, flags);
    if (code == 0)
        code = rerank_choose_label(&j);
    if (code == 0)
        code = rerank_collect(&j, &data);
    if (code == 0)
        code = app_open_session(a, &params);
    if (code == 0)
        code = rerank_check_lengths(&j);
    if (code == 0)
        code = rerank_all(&j);
    for (uint32_t i = 0; i < j.n; i++)
        mn_ids_free(j.v[i].ids);
    mn_free(j.v);
    free(data);
    return code;
}

int cmd_rerank(int argc, char **argv) {
    app_flags flags = {0};
    rerank_flags f = {0};
    const arg_group groups[] = {
        {"Texts", rows, MN_COUNT(rows), &f},
        {"Output", app_json_rows, APP_JSON_ROWS, &flags},
        {"Model and device", app_model_rows, APP_MODEL_ROWS, &flags},
        {"", app_device_rows, APP_DEVICE_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
        {"", app_session_rows, APP_SESSION_ROWS, &flags},
    };
    const arg_page page = {"rerank", "-m MODEL QUERY (TEXT... | -f F) [flags]",
                           "Scores texts by how well they answer a query, the best first.", groups,
                           MN_COUNT(groups)};
    app a = {0};
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK)
        code = flags.list_devices ? cmd_devices(1, argv) : rerank_texts(&a, &flags, &f);
    args_free_texts(&f.texts);
    return app_end(&a, code);
}
