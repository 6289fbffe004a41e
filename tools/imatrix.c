/* imatrix.c -- minerva imatrix: makes an importance matrix: how large the inputs of each matrix are
 * while the model reads a text, by which convert --imatrix weighs the errors of quantised weights.
 *
 * The text is cut into windows of n_ctx tokens that do not overlap, as llama.cpp's tool does it.
 * The sums are the library's (mn_session_input_sums). */
#include "app.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *text, *ids, *out;
    int64_t chunks;
    int form, parse_special, output, force;
} imatrix_flags;

enum { FORM_GGUF, FORM_DAT };
#define FORMS "gguf|dat"

#define F(field) offsetof(imatrix_flags, field)
static const arg_row rows[] = {
    {"-f --file", "TEXT", ARG_FILE, F(text), 0, 0, NULL, "the text; -: standard input"},
    {"--ids", "FILE", ARG_FILE, F(ids), 0, 0, NULL,
     "token ids instead, as numbers with blanks or commas between them"},
    {"-o --output", "FILE", ARG_FILE, F(out), 0, 0, NULL,
     "the importance matrix; it appears when it is complete"},
    {"--output-format", "FORM", ARG_CHOICE, F(form), 0, 0, FORMS,
     "gguf, or dat: the form that llama.cpp had before (default: gguf)"},
    {"--chunks", "N", ARG_INT, F(chunks), 1, 2147483647, NULL,
     "the first N windows alone (default: all)"},
    {"--process-output", NULL, ARG_FLAG, F(output), 0, 0, NULL, "with the output matrix"},
    {"--parse-special", NULL, ARG_FLAG, F(parse_special), 0, 0, NULL,
     "special tokens written in the text become ids"},
    {"--force", NULL, ARG_FLAG, F(force), 0, 0, NULL, "replace an existing file"},
};

static const arg_row window_row[] = {{"-c --ctx-size", "N", ARG_COUNT, offsetof(app_flags, ctx), 1,
                                      2147483647, NULL,
                                      "context: tokens of a window (default: 512)"}};

/* Sums over the windows of n ids. bos: app_first_id. */
static int imatrix_sum(app *a, const int32_t *ids, uint32_t windows, uint32_t n_ctx, int32_t bos) {
    int32_t *window = malloc(n_ctx * sizeof *window);
    if (!window)
        return no_memory();
    progress *bar = progress_begin("summing inputs");
    mn_status status = MN_OK;
    interrupt_catch();
    for (uint32_t w = 0; w < windows && status == MN_OK && !interrupt_seen(); w++) {
        memcpy(window, ids + (size_t)w * n_ctx, n_ctx * sizeof *window);
        if (bos >= 0)
            window[0] = bos;
        status = mn_session_input_sums(a->session, window, n_ctx, &a->err);
        progress_at(bar, w + 1, windows);
    }
    progress_end(bar);
    free(window);
    if (interrupt_seen())
        return EXIT_INTERRUPTED;
    return status != MN_OK ? app_fail(a, status) : 0;
}

static int imatrix_write(app *a, const imatrix_flags *f, uint32_t windows) {
    uint32_t flags = 0;
    if (f->force)
        flags |= MN_IMATRIX_REPLACE;
    if (f->form == FORM_DAT)
        flags |= MN_IMATRIX_OLD;
    if (f->output)
        flags |= MN_IMATRIX_OUTPUT;
    const mn_status status = mn_session_write_imatrix(
        a->session, f->out, input_name(f->text ? f->text : f->ids), flags, &a->err);
    if (status != MN_OK)
        return app_fail(a, status);
    app_remark(a, "%s: written, of %u windows", f->out, windows);
    return 0;
}

static int imatrix(app *a, app_flags *flags, const imatrix_flags *f) {
    mn_session_params params = {.flags = MN_SESSION_INPUT_SUMS};
    arg_ids ids = {0};
    if (!f->text == !f->ids)
        return complain(EXIT_USAGE, "expected one of -f TEXT and --ids FILE");
    if (!f->out || !*f->out || !strcmp(f->out, "-"))
        return complain(EXIT_USAGE,
                        "-o: found no file, expected where to write, as in -o imatrix.gguf");
    if (!flags->ctx.given)
        flags->ctx = (arg_count){512, 1};
    const uint32_t n_ctx = (uint32_t)flags->ctx.v;
    int code = app_open_ranked(a, flags);
    if (code == 0)
        code = f->text ? app_text_ids(a, f->text, f->parse_special, &ids.v, &ids.n)
                       : read_ids(f->ids, &ids);
    if (code == 0 && ids.n < n_ctx)
        code = complain(EXIT_FAILED,
                        "the text has %u tokens, expected at least a window of %u (-c sets it)",
                        ids.n, n_ctx);
    uint32_t windows = ids.n / n_ctx;
    if (f->chunks && f->chunks < windows)
        windows = (uint32_t)f->chunks;
    if (code == 0)
        code = app_open_session(a, &params);
    if (code == 0)
        code = imatrix_sum(a, ids.v, windows, n_ctx, f->text ? app_first_id(a) : -1);
    if (code == 0)
        code = imatrix_write(a, f, windows);
    free(ids.v);
    return code;
}

int cmd_imatrix(int argc, char **argv) {
    app_flags flags = {0};
    imatrix_flags f = {0};
    const arg_group groups[] = {
        {"Text and file", rows, MN_COUNT(rows), &f},
        {"Model and device", app_model_rows, APP_MODEL_ROWS, &flags},
        {"", app_device_rows, APP_DEVICE_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
        {"", window_row, 1, &flags},
        {"", app_session_rows + 1, APP_SESSION_ROWS - 1, &flags}, /* without their -c */
    };
    const arg_page page = {"imatrix", "-m MODEL -f TEXT -o FILE [-c CTX] [--chunks N]",
                           "Measures which weights matter while the model reads a text, for "
                           "convert --imatrix and llama-quantize.",
                           groups, MN_COUNT(groups)};
    app a = {0};
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK)
        code = flags.list_devices ? cmd_devices(1, argv) : imatrix(&a, &flags, &f);
    return app_end(&a, code);
}
