/* rerank.c -- minerva rerank: scores of texts by how well they answer a query, best first.
 *
 * All pairs are tokenised first, so that one that is too long is an error before anything is
 * computed; then they are scored in blocks, sorted and printed. Texts point into the command line
 * or into the file's data; ids belong to the library (mn_ids_free). */
#include "app.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256 };

typedef struct {
    arg_texts texts; /* the query, then texts */
    const char *file, *instruction;
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
    uint32_t n;
    out_file out;
} rerank_job;

/* ---- pairs ----------------------------------------------------------------------------------- */
static int rerank_add(rerank_job *j, const char *text, size_t bytes) {
    app *a = j->a;
    const char *instruction = j->f->instruction ? j->f->instruction : "";
    if ((j->n & (j->n - 1)) == 0) {
        const size_t cap = j->n ? 2 * (size_t)j->n : 1;
        rerank_pair *grown = realloc(j->v, cap * sizeof *grown);
        if (!grown)
            return no_memory();
        j->v = grown;
    }
    rerank_pair *p = &j->v[j->n];
    *p = (rerank_pair){.text = {text, bytes}, .index = j->n};
    const mn_status st = mn_model_pair(a->model, j->query, p->text, mn_str_of(instruction), &p->ids,
                                       &p->n, &p->n_first, &a->err);
    if (st != MN_OK)
        return app_fail(a, st);
    j->n++;
    return 0;
}

/* Every line of data [bytes], without its end. */
static int rerank_add_lines(rerank_job *j, const char *data, size_t bytes) {
    int code = 0;
    for (size_t at = 0; at < bytes && code == 0;) {
        const char *end = memchr(data + at, '\n', bytes - at);
        const size_t n = end ? (size_t)(end - data) - at : bytes - at;
        const size_t cr = n && data[at + n - 1] == '\r';
        code = rerank_add(j, data + at, n - cr);
        at += n + 1;
    }
    return code;
}

/* data: of the file, the caller's to free. */
static int rerank_collect(rerank_job *j, char **data) {
    const arg_texts *texts = &j->f->texts;
    size_t bytes = 0;
    int code = 0;
    j->query = mn_str_of(texts->v[0]);
    for (size_t i = 1; i < texts->n && code == 0; i++)
        code = rerank_add(j, texts->v[i], strlen(texts->v[i]));
    if (code || !j->f->file)
        return code;
    code = read_all_text(j->f->file, data, &bytes);
    if (code == 0)
        code = rerank_add_lines(j, *data, bytes);
    if (code == 0 && !j->n)
        code =
            complain(EXIT_USAGE, "%s is empty, expected a text per line", input_name(j->f->file));
    return code;
}

/* As in embed.c: the library counts from the first text of a block. */
static int rerank_check_lengths(const rerank_job *j) {
    const mn_session_info *s = &j->a->session_info;
    uint32_t most = s->n_ctx;
    const char *flag = "-c";
    if (j->a->info.is_encoder && s->n_batch < most) {
        most = s->n_batch;
        flag = "-b: an encoder reads a text in one step";
    }
    for (uint32_t i = 0; i < j->n; i++)
        if (j->v[i].n > most)
            return complain(EXIT_FAILED,
                            "text %" PRIu32 " has %" PRIu32
                            " tokens with the query, expected at most %" PRIu32 " (%s)",
                            i + 1, j->v[i].n, most, flag);
    return 0;
}

/* ---- scores ---------------------------------------------------------------------------------- */
/* Pairs [first, first + n), n <= BLOCK. */
static int rerank_block(rerank_job *j, uint32_t first, uint32_t n) {
    app *a = j->a;
    mn_embed_text pairs[BLOCK];
    float scores[BLOCK];
    for (uint32_t i = 0; i < n; i++) {
        const rerank_pair *p = &j->v[first + i];
        pairs[i] = (mn_embed_text){p->ids, p->n, p->n_first};
    }
    const mn_status st = mn_session_score(a->session, pairs, n, j->f->logits ? MN_SCORE_LOGIT : 0,
                                          scores, BLOCK, &a->err);
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
    progress *bar = progress_begin("scoring");
    int code = 0;
    for (uint32_t first = 0; first < j->n && code == 0; first += BLOCK) {
        const uint32_t left = j->n - first;
        code = rerank_block(j, first, left < BLOCK ? left : BLOCK);
        progress_at(bar, first, j->n);
    }
    progress_end(bar);
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
        code = rerank_collect(&j, &data);
    if (code == 0)
        code = app_open_session(a, &params);
    if (code == 0)
        code = rerank_check_lengths(&j);
    if (code == 0)
        code = rerank_all(&j);
    for (uint32_t i = 0; i < j.n; i++)
        mn_ids_free(j.v[i].ids);
    free(j.v);
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
