/* embed.c -- minerva embed: one vector per text, as a table or as JSON lines.
 *
 * Texts are operands, lines of a file, or ids. All are tokenised first, so that one that is too
 * long is an error before anything is computed; then they are embedded and printed in blocks, in
 * order. Ids belong to the library (mn_ids_free), but for those of --prompt-ids. */
#include "alloc.h"
#include "texts.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHOWN = 4 };

typedef struct {
    arg_texts texts;
    const char *file;
    arg_ints ids;
    int pooling, norm;
    int64_t n_dim;
} embed_flags;

#define F(field) offsetof(embed_flags, field)
static const arg_row rows[] = {
    {"TEXT", "TEXT", ARG_TEXTS, F(texts), 0, 0, NULL,
     "a text, as it is; -: lines of standard input"},
    {"-f --file", "F", ARG_FILE, F(file), 0, 0, NULL,
     "a text per line of a file; -: of standard input"},
    {"--prompt-ids", "IDS", ARG_INTS, F(ids), 0, 2147483647, NULL,
     "token ids of one text as they are: 1,2,3"},
    {"--pooling", "HOW", ARG_CHOICE, F(pooling), 0, 0, "auto|mean|cls|last",
     "hidden states that make the vector: the mean of all, the first, the last;\nauto: as the "
     "model's files say, else mean of an encoder, last of others"},
    {"--norm", "HOW", ARG_CHOICE, F(norm), 0, 0, "auto|l2|none",
     "l2: vectors of length 1; auto: as the model's files say, else l2"},
    {"--dim", "N", ARG_INT, F(n_dim), 1, MAX_ROWS, NULL,
     "the first N numbers of each vector, cut before the norm (default: all)"},
};
#undef F

/* One text with its tokens; label: what the table shows, NULL for --prompt-ids. */
typedef struct {
    const char *label;
    size_t bytes;
    int32_t *ids;
    uint32_t n;
} embed_text;
typedef struct {
    app *a;
    embed_text *v;
    size_t cap;
    uint32_t n;
    mn_embed_params params;
    float *first, *block; /* the first text's vector; [TEXTS_BLOCK, n_dim] */
    out_file out;
    table table;
} embed_job;

/* ---- texts ----------------------------------------------------------------------------------- */
/* Room for one more; NULL: out of memory. */
static embed_text *embed_add_text(embed_job *j) {
    if (!mn_grow((void **)&j->v, &j->cap, j->n + 1u, sizeof *j->v))
        return NULL;
    embed_text *t = &j->v[j->n++];
    *t = (embed_text){0};
    return t;
}

static int embed_tokenize(void *job, const char *text, size_t bytes) {
    embed_job *j = job;
    app *a = j->a;
    embed_text *t = embed_add_text(j);
    if (!t)
        return no_memory();
    t->label = text;
    t->bytes = bytes;
    const mn_status st = mn_model_tokenize(a->model, (mn_str){text, bytes}, MN_TEXT_ADD_SPECIAL,
                                           &t->ids, &t->n, &a->err);
    return st == MN_OK ? 0 : app_fail(a, st);
}

static int take_ids(embed_job *j, const arg_ints *ids) {
    embed_text *t = embed_add_text(j);
    if (!t)
        return no_memory();
    t->ids = malloc((ids->n + 1) * sizeof *t->ids);
    if (!t->ids)
        return no_memory();
    for (size_t i = 0; i < ids->n; i++)
        t->ids[i] = (int32_t)ids->v[i];
    t->n = (uint32_t)ids->n;
    return 0;
}

/* The texts of the command line. *data: of the file, the caller's to free. */
static int embed_collect(embed_job *j, const embed_flags *f, char **data) {
    const char *file = f->file;
    const int dash = f->texts.n == 1 && !strcmp(f->texts.v[0], "-");
    const int given = (f->texts.n > 0) + (f->file != NULL) + (f->ids.given != 0);
    int code = 0;
    if (given > 1)
        return complain(EXIT_USAGE,
                        "found TEXT, -f or --prompt-ids together, expected one of them");
    if (dash || (!given && !isatty(STDIN_FILENO)))
        file = "-";
    if (!file && !given)
        return complain(EXIT_USAGE, "found no text, expected TEXT, -f F or --prompt-ids IDS");
    if (f->ids.given)
        return take_ids(j, &f->ids);
    if (!file) {
        for (size_t i = 0; i < f->texts.n && code == 0; i++)
            code = embed_tokenize(j, f->texts.v[i], strlen(f->texts.v[i]));
        return code;
    }
    code = texts_of_file(file, data, embed_tokenize, j);
    if (code == 0 && !j->n)
        code = complain(EXIT_USAGE, "%s is empty, expected a text per line", input_name(file));
    return code;
}

/* One that is too long, or empty, is an error before any output. */
static int check_lengths(const embed_job *j) {
    const char *flag = NULL;
    const uint32_t most = texts_most_tokens(j->a, &flag);
    for (uint32_t i = 0; i < j->n; i++) {
        if (!j->v[i].n)
            return complain(EXIT_FAILED, "text %" PRIu32 " is empty: it has no token", i + 1);
        if (j->v[i].n > most)
            return complain(EXIT_FAILED,
                            "text %" PRIu32 " has %" PRIu32 " tokens, expected at most %" PRIu32
                            " (%s)",
                            i + 1, j->v[i].n, most, flag);
    }
    return 0;
}

/* ---- output ---------------------------------------------------------------------------------- */
/* The cosine of the angle between two vectors of n numbers; of a vector of zeros 0. */
static double cosine(const float *a, const float *b, uint32_t n) {
    double ab = 0;
    double aa = 0;
    double bb = 0;
    for (uint32_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

static void embed_print_json(embed_job *j, uint32_t i, const float *vector) {
    json_out out = out_json(&j->out);
    const embed_text *t = &j->v[i];
    json_open(&out, '{');
    json_put_uint(&out, "index", i);
    json_put_uint(&out, "tokens", t->n);
    json_put_array(&out, "embedding");
    for (uint32_t d = 0; d < j->params.n_dim; d++)
        json_num(&out, (double)vector[d]);
    json_close(&out);
    json_close(&out);
    json_line(&out);
}

static void embed_add_row(embed_job *j, uint32_t i, const float *vector) {
    char numbers[SHOWN * 16 + 8] = "";
    size_t at = 0;
    for (uint32_t d = 0; d < j->params.n_dim && d < SHOWN; d++)
        at += (size_t)snprintf(numbers + at, sizeof numbers - at, "%s%.4f", d ? " " : "",
                               (double)vector[d]);
    if (j->params.n_dim > SHOWN)
        snprintf(numbers + at, sizeof numbers - at, " ...");
    const embed_text *text = &j->v[i];
    table_text(&j->table, text->label ? text->label : "(ids)", text->label ? text->bytes : 5, 40);
    table_cell(&j->table, "%" PRIu32, j->v[i].n);
    table_cell(&j->table, "%.4f", cosine(j->first, vector, j->params.n_dim));
    table_cell(&j->table, "%s", numbers);
}

/* ---- all ------------------------------------------------------------------------------------- */
static int embed_block(void *job, uint32_t first, uint32_t n) {
    embed_job *j = job;
    app *a = j->a;
    mn_embed_text texts[TEXTS_BLOCK];
    const uint32_t width = j->params.n_dim;
    for (uint32_t i = 0; i < n; i++)
        texts[i] = (mn_embed_text){j->v[first + i].ids, j->v[first + i].n, 0};
    const mn_status st = mn_session_embed(a->session, texts, n, &j->params, j->block,
                                          (uint64_t)TEXTS_BLOCK * width, &a->err);
    if (st == MN_CANCELLED)
        return EXIT_INTERRUPTED;
    if (st != MN_OK)
        return app_fail(a, st);
    if (!first)
        memcpy(j->first, j->block, width * sizeof *j->first);
    for (uint32_t i = 0; i < n; i++)
        if (a->flags->json)
            embed_print_json(j, first + i, j->block + (size_t)i * width);
        else
            embed_add_row(j, first + i, j->block + (size_t)i * width);
    return j->out.error ? EXIT_FAILED : 0;
}

static int embed_all(embed_job *j) {
    static const char *const columns[] = {"text", "tokens", "cosine to first", "vector", NULL};
    const int json = j->a->flags->json;
    table_begin(&j->table, columns, 6);
    const int code = texts_in_blocks("embedding", j->n, embed_block, j);
    if (code == 0 && !json)
        table_print(&j->table, TABLE_PLAIN, &j->out);
    const int failed = j->table.failed;
    table_free(&j->table);
    if (code == 0 && failed)
        return no_memory();
    return out_finish(&j->out, j->out.error ? 0 : code);
}

/* --pooling, --norm and --dim: their order is that of the constants. */
static int set_params(embed_job *j, const embed_flags *f) {
    const app *a = j->a;
    const int64_t width = a->info.n_embd;
    if (f->n_dim > width)
        return complain(EXIT_USAGE,
                        "--dim: found %" PRId64 ", expected at most %" PRId64
                        ", the width of the model",
                        f->n_dim, width);
    j->params = (mn_embed_params){.size = sizeof j->params,
                                  .pooling = (uint32_t)f->pooling,
                                  .norm = (uint32_t)f->norm,
                                  .n_dim = (uint32_t)(f->n_dim ? f->n_dim : width)};
    j->first = calloc(j->params.n_dim + 1u, sizeof *j->first);
    j->block = malloc((size_t)TEXTS_BLOCK * (j->params.n_dim + 1u) * sizeof *j->block);
    return j->first && j->block ? 0 : no_memory();
}

static int embed_texts(app *a, const app_flags *flags, const embed_flags *f) {
    mn_session_params params = {.flags = MN_SESSION_EMBED};
    embed_job j = {.a = a, .out = out_stdout()};
    char *data = NULL;
    int code = app_open_ranked(a, flags);
    if (code == 0)
        code = embed_collect(&j, f, &data);
    if (code == 0)
        code = set_params(&j, f);
    if (code == 0)
        code = app_open_session(a, &params);
    if (code == 0)
        code = check_lengths(&j);
    if (code == 0)
        code = embed_all(&j);
    for (uint32_t i = 0; i < j.n; i++)
        if (j.v[i].label)
            mn_ids_free(j.v[i].ids);
        else
            free(j.v[i].ids);
    mn_free(j.v);
    free(j.first);
    free(j.block);
    free(data);
    return code;
}

int cmd_embed(int argc, char **argv) {
    app_flags flags = {0};
    embed_flags f = {0};
    const arg_group groups[] = {
        {"Texts", rows, MN_COUNT(rows), &f},
        {"Output", app_json_rows, APP_JSON_ROWS, &flags},
        {"Model and device", app_model_rows, APP_MODEL_ROWS, &flags},
        {"", app_device_rows, APP_DEVICE_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
        {"", app_session_rows, APP_SESSION_ROWS, &flags},
        {"", app_lora_rows, APP_LORA_ROWS, &flags},
    };
    const arg_page page = {"embed", "-m MODEL (TEXT... | -f F | --prompt-ids IDS) [flags]",
                           "Prints one vector per text: an embedding, to search and compare by.",
                           groups, MN_COUNT(groups)};
    app a = {0};
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK)
        code = flags.list_devices ? cmd_devices(1, argv) : embed_texts(&a, &flags, &f);
    args_free_ints(&f.ids);
    args_free_texts(&f.texts);
    args_free_texts(&flags.lora);
    return app_end(&a, code);
}
