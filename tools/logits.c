/* logits.c -- minerva logits: writes the logits of every position as a SafeTensors file, for
 * comparison with other implementations.
 *
 * The rows are written as they are computed (mn_session_logits), so that memory does not grow
 * with the text; the header therefore comes first, with the width of the vocabulary. The file
 * appears when it is complete (out_open, out_commit). */
#include "app.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *text, *file;
    arg_ints ids;
    int no_bos, parse_special;
} logits_flags;

#define F(field) offsetof(logits_flags, field)
static const arg_row rows[] = {
    {"-p --prompt", "TEXT", ARG_TEXT, F(text), 0, 0, NULL,
     "the text, as it is: no chat template; - = standard input"},
    {"--prompt-ids", "IDS", ARG_INTS, F(ids), 0, 2147483647, NULL, "token ids as they are: 1,2,3"},
    {"-o --output", "F", ARG_FILE, F(file), 0, 0, NULL,
     "SafeTensors file: tokens I32 [T], logits F32 [T, V]\n(V: rows of the output matrix, padding "
     "included); -: "
     "standard output"},
    {"--no-bos", NULL, ARG_FLAG, F(no_bos), 0, 0, NULL,
     "add nothing (default: what the tokeniser adds)"},
    {"--parse-special", NULL, ARG_FLAG, F(parse_special), 0, 0, NULL,
     "special tokens written in the text become ids"},
};

typedef struct {
    out_file *out;
    uint32_t n_ids;
    uint64_t n_vocab;
    progress *bar;
} sink;

/* The SafeTensors header for n ids and their rows of n_vocab logits, padded to a multiple of 8
 * bytes. */
static void write_header(out_file *out, uint64_t n, uint64_t n_vocab) {
    char head[512];
    int len = snprintf(head, sizeof head,
                       "{\"tokens\":{\"dtype\":\"I32\",\"shape\":[%" PRIu64
                       "],\"data_offsets\":[0,%" PRIu64 "]},"
                       "\"logits\":{\"dtype\":\"F32\",\"shape\":[%" PRIu64 ",%" PRIu64
                       "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}}",
                       n, 4 * n, n, n_vocab, 4 * n, 4 * n + 4 * n * n_vocab);
    while (len % 8)
        head[len++] = ' ';
    const uint64_t bytes = (uint64_t)len; // little-endian in the format and on every supported host
    out_put(out, (const char *)&bytes, sizeof bytes);
    out_put(out, head, (size_t)len);
}

/* Called by mn_session_logits with rows in order. */
static mn_status logits_on_rows(void *arg, uint32_t first, uint32_t n_rows, uint32_t n_vocab,
                                const float *values) {
    sink *s = arg;
    if (interrupt_seen())
        return MN_CANCELLED;
    if (n_vocab != s->n_vocab)
        return MN_INVALID; // the header is written already
    out_put(s->out, (const char *)values, (size_t)n_rows * n_vocab * sizeof *values);
    progress_at(s->bar, first + n_rows, s->n_ids);
    return s->out->error ? MN_IO_ERROR : MN_OK;
}

static int logits_compute(app *a, const int32_t *ids, uint32_t n, const char *path) {
    out_target target;
    int code = out_open(&target, path);
    if (code)
        return code;
    sink s = {&target.out, n, (uint64_t)a->info.n_vocab, progress_begin("computing logits")};
    write_header(&target.out, n, s.n_vocab);
    out_put(&target.out, (const char *)ids, n * sizeof *ids);
    mn_status status = mn_session_logits(a->session, ids, n, logits_on_rows, &s, &a->err);
    progress_end(s.bar);
    if (target.out.error)
        code = 0; // out_commit prints the error of write
    else if (status == MN_CANCELLED)
        code = EXIT_INTERRUPTED;
    else if (status != MN_OK)
        code = app_fail(a, status);
    return out_commit(&target, code);
}

/* The ids of -p (tokenised) or --prompt-ids; *ids is malloc'ed. */
static int get_ids(app *a, const logits_flags *f, int32_t **ids, uint32_t *n) {
    uint32_t how =
        (f->no_bos ? 0 : MN_TEXT_ADD_SPECIAL) | (f->parse_special ? MN_TEXT_PARSE_SPECIAL : 0);
    int32_t *made = NULL;
    mn_status status = MN_OK;
    char *data = NULL;
    mn_str text = {f->text, f->text ? strlen(f->text) : 0};
    if (f->text && !strcmp(f->text, "-")) {
        size_t bytes = 0;
        const int code = read_all("-", &data, &bytes);
        if (code)
            return code;
        text = (mn_str){data, bytes};
    }
    if (f->text)
        status = mn_model_tokenize(a->model, text, how, &made, n, &a->err);
    else
        *n = (uint32_t)f->ids.n;
    free(data);
    if (status != MN_OK)
        return app_fail(a, status);
    *ids = malloc((*n + 1) * sizeof **ids);
    for (uint32_t i = 0; *ids && i < *n; i++)
        (*ids)[i] = made ? made[i] : (int32_t)f->ids.v[i];
    mn_ids_free(made);
    if (!*ids)
        return no_memory();
    if (*n == 0)
        return complain(EXIT_USAGE, "the prompt is empty: found 0 tokens, expected at least 1");
    return 0;
}

static int logits(app *a, const app_flags *flags, const logits_flags *f) {
    mn_session_params params = {.flags = MN_SESSION_NO_SAMPLING};
    if (!flags->precision)
        params.precision = MN_PRECISION_EXACT;
    int32_t *ids = NULL;
    uint32_t n = 0;
    if (!f->text == !f->ids.given)
        return complain(EXIT_USAGE, "expected one of -p TEXT and --prompt-ids IDS");
    if (!f->file)
        return complain(EXIT_USAGE,
                        "-o: found no file, expected where to write, as in -o logits.safetensors");
    int code = app_open_ranked(a, flags);
    if (code == 0)
        code = get_ids(a, f, &ids, &n);
    if (n <= a->info.n_ctx_train)
        params.n_ctx = n; /* longrope chooses its factors by it */
    if (code == 0)
        code = app_open_session(a, &params);
    if (code == 0)
        code = logits_compute(a, ids, n, f->file);
    free(ids);
    return code;
}

int cmd_logits(int argc, char **argv) {
    app_flags flags = {0};
    logits_flags f = {0};
    const arg_group groups[] = {
        {"Text and output", rows, MN_COUNT(rows), &f},
        {"Model and device", app_model_rows, APP_MODEL_ROWS, &flags},
        {"", app_device_rows, APP_DEVICE_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
        {"", app_session_rows, 3, &flags}, // -c, -b and --precision
        {"", app_lora_rows, APP_LORA_ROWS, &flags},
    };
    const arg_page page = {
        "logits", "[-m MODEL] (-p TEXT | --prompt-ids IDS) -o F.safetensors [flags]",
        "Writes the logits of every position, in the class exact unless --precision names one.",
        groups, MN_COUNT(groups)};
    app a = {0};
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK)
        code = flags.list_devices ? cmd_devices(1, argv) : logits(&a, &flags, &f);
    args_free_ints(&f.ids);
    args_free_texts(&flags.lora);
    return app_end(&a, code);
}
