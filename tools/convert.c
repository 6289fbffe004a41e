/* convert.c -- minerva convert: writes a model of any format as one GGUF file.
 *
 * The conversion is the library's (mn_model_convert), which writes to a temporary file and
 * renames it when it is complete; here are the flags, the progress line and Ctrl-C, which
 * cancels it. */
#include "app.h"
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
    const char *in, *out, *type;
    int force;
} convert_flags;

#define F(field) offsetof(convert_flags, field)
static const arg_row rows[] = {
    {"IN", "a model", ARG_FILE, F(in), 0, 0, NULL,
     "a GGUF file, a .safetensors file or a folder in Hugging Face layout"},
    {"-o --output", "OUT.gguf", ARG_FILE, F(out), 0, 0, NULL,
     "the file to write; it appears when it is complete"},
    {"--type", "TYPE", ARG_TEXT, F(type), 0, 0, NULL,
     "f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs\nq4_k_m q5_k_m "
     "mxfp4 (default: as "
     "stored)"},
    {"-f --force", NULL, ARG_FLAG, F(force), 0, 0, NULL, "replace an existing file"},
};

/* Called by the library during the conversion; not 0 cancels it. */
static int convert_command_on_progress(void *arg, uint64_t done, uint64_t total) {
    progress_at(arg, done, total);
    return interrupt_seen();
}

/* Of the model's tensors before, and of the file. */
static void remark_sizes(const app *a, const char *out, double time) {
    struct stat st;
    char before[32];
    char after[32];
    const uint64_t bytes = stat(out, &st) ? 0 : (uint64_t)st.st_size;
    app_remark(a, "%s: written in %.1f s: %s, from %s of tensors", out, time,
               human_bytes(bytes, after), human_bytes(a->info.n_bytes, before));
}

static int convert_command_convert(app *a, const convert_flags *f) {
    progress *bar = progress_begin("converting");
    const mn_convert_params params = {sizeof params, f->force ? MN_CONVERT_REPLACE : 0, f->type,
                                      convert_command_on_progress, bar};
    interrupt_catch();
    const double begin = seconds();
    const mn_status status = mn_model_convert(a->model, f->out, &params, &a->err);
    progress_end(bar);
    if (status == MN_CANCELLED && interrupt_seen())
        return EXIT_INTERRUPTED;
    if (status == MN_INVALID && f->type)
        return complain(EXIT_USAGE, "--type: %s", a->err.msg);
    if (status != MN_OK)
        return app_fail(a, status);
    remark_sizes(a, f->out, seconds() - begin);
    return 0;
}

int cmd_convert(int argc, char **argv) {
    app_flags flags = {0};
    convert_flags f = {0};
    const arg_group groups[] = {
        {"Files and type", rows, MN_COUNT(rows), &f},
        {"", app_model_rows + 1, 1, &flags},  // --ignore-unused
        {"", app_device_rows + 1, 1, &flags}, // -t
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
    };
    const arg_page page = {
        "convert", "IN -o OUT.gguf [--type TYPE]",
        "Writes a model of any format as one GGUF file, which other programs can read too.", groups,
        MN_COUNT(groups)};
    app a = {0};
    int code = args_parse(&page, argc, argv);
    if (code != ARGS_OK)
        return code;
    if (!f.in)
        return complain(EXIT_USAGE, "found no model, expected minerva convert IN -o OUT.gguf");
    if (!f.out || !*f.out)
        return complain(EXIT_USAGE,
                        "-o: found no file, expected where to write, as in -o model.gguf");
    if (!strcmp(f.out, "-"))
        return complain(
            EXIT_USAGE,
            "-o: found \"-\", expected a file: a model is not written to standard output");
    signal(SIGXFSZ, SIG_IGN); // a limit on file sizes becomes an error of write
    flags.model = f.in;
    code = app_open_model(&a, &flags);
    if (code == 0)
        code = convert_command_convert(&a, &f);
    return app_end(&a, code);
}
