/* convert.c -- minerva convert: writes a model of any format as one GGUF file.
 *
 * The conversion is the library's (mn_model_convert), which writes to a temporary file and
 * renames it when it is complete; here are the flags, the table of --dry-run, the progress line and
 * Ctrl-C, which cancels it. */
#include "app.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
    const char *in, *out, *imatrix;
    arg_texts types; /* TYPE, PATTERN=TYPE */
    arg_texts merge; /* FILE[:SCALE] */
    int force, dry_run;
} convert_flags;

#define F(field) offsetof(convert_flags, field)
static const arg_row rows[] = {
    {"IN", "a model", ARG_FILE, F(in), 0, 0, NULL,
     "a GGUF file, a .safetensors file or a folder in Hugging Face layout"},
    {"-o --output", "OUT.gguf", ARG_FILE, F(out), 0, 0, NULL,
     "the file to write; it appears when it is complete"},
    {"--type", "[PATTERN=]TYPE", ARG_TEXTS, F(types), 0, 0, NULL,
     "f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4\nnvfp4 iq3_s "
     "iq3_xxs "
     "iq2_s iq2_xs iq2_xxs iq1_m iq1_s tq2_0 tq1_0 q2_k q2_k_s "
     "q3_k_s q3_k_m q3_k_l q4_k_s q4_k_m q5_k_s q5_k_m (mixes of types)\n(default: as stored); "
     "PATTERN=TYPE: of matrices whose names match the regular\nexpression, as in attn_v=q8_0; more "
     "than once: the first that matches counts"},
    {"--imatrix", "FILE", ARG_FILE, F(imatrix), 0, 0, NULL,
     "an importance matrix of minerva imatrix or llama.cpp: weights of the errors of\nquantised "
     "matrices"},
    {"--merge", "FILE[:SCALE]", ARG_FILES, F(merge), 1, 0, NULL,
     "an adapter (LoRA: a folder of PEFT, or GGUF) that becomes part of the matrices;\nmore than "
     "once: all of them"},
    {"--dry-run", NULL, ARG_FLAG, F(dry_run), 0, 0, NULL,
     "print the type and size of each tensor and of the file, and write nothing"},
    {"-f --force", NULL, ARG_FLAG, F(force), 0, 0, NULL, "replace an existing file"},
};

/* What the library's callbacks work on. */
typedef struct {
    progress *bar;
    table items; /* of --dry-run */
    uint64_t bytes, n_weights, total;
} conversion;

/* Called by the library during the conversion; not 0 cancels it. */
static int convert_command_on_progress(void *arg, uint64_t done, uint64_t total) {
    const conversion *c = arg;
    progress_at(c->bar, done, total);
    return interrupt_seen();
}

/* Called by the library before it: each tensor, then NULL. */
static void on_item(void *arg, const mn_convert_item *item, uint64_t total) {
    conversion *c = arg;
    char size[32];
    char shape[128] = "";
    size_t at = 0;
    uint64_t n = 1;
    c->total = total;
    if (!item)
        return;
    for (uint32_t i = 0; i < item->n_dim; i++) {
        n *= (uint64_t)item->dim[i];
        at += (size_t)snprintf(shape + at, sizeof shape - at, "%s%" PRId64, i ? " x " : "",
                               item->dim[i]);
    }
    c->bytes += item->bytes;
    c->n_weights += n;
    table_cell(&c->items, "%.*s", (int)item->name.len, item->name.ptr);
    table_cell(&c->items, "%s", shape);
    table_cell(&c->items, "%s", *item->stored ? item->stored : "-");
    table_cell(&c->items, "%s", item->dtype);
    table_cell(&c->items, "%s", human_bytes(item->bytes, size));
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

/* The file's type (NULL: as stored), and *n rules, of --type; rules: room for all of them. */
static int sort_types(const arg_texts *types, const char **type, const char **rules, uint32_t *n) {
    *type = NULL;
    *n = 0;
    for (size_t i = 0; i < types->n; i++) {
        if (strchr(types->v[i], '='))
            rules[(*n)++] = types->v[i];
        else if (*type)
            return complain(EXIT_USAGE,
                            "--type: found %s and %s, expected one type of the file; others as "
                            "PATTERN=TYPE",
                            *type, types->v[i]);
        else
            *type = types->v[i];
    }
    return 0;
}

static int print_items(const conversion *c) {
    out_file out = out_stdout();
    char data[32];
    char all[32];
    table_print(&c->items, TABLE_PLAIN, &out);
    out_printf(&out, "\n%zu tensors: %s, %.3f bits per weight; the file: %s (%" PRIu64 " bytes)\n",
               table_rows(&c->items) - 1, human_bytes(c->bytes, data),
               c->n_weights ? 8 * (double)c->bytes / (double)c->n_weights : 0.0,
               human_bytes(c->total, all), c->total);
    return out_finish(&out, 0);
}

static int convert_dry_run(app *a, const char *out, mn_convert_params *params) {
    static const char *const columns[] = {"tensor", "shape", "stored", "type", "size", NULL};
    conversion *c = params->arg;
    table_begin(&c->items, columns, 1 << 4);
    params->item = on_item;
    params->flags |= MN_CONVERT_DRY_RUN;
    const mn_status status = mn_model_convert(a->model, out ? out : "", params, &a->err);
    const int code = status == MN_OK ? print_items(c) : 0;
    table_free(&c->items);
    if (status == MN_INVALID)
        return complain(EXIT_USAGE, "--type: %s", a->err.msg);
    return status != MN_OK ? app_fail(a, status) : code;
}

static int convert_to_file(app *a, const char *out, mn_convert_params *params) {
    conversion *c = params->arg;
    c->bar = progress_begin("converting");
    params->progress = convert_command_on_progress;
    interrupt_catch();
    const double begin = seconds();
    const mn_status status = mn_model_convert(a->model, out, params, &a->err);
    progress_end(c->bar);
    if (status == MN_CANCELLED && interrupt_seen())
        return EXIT_INTERRUPTED;
    if (status == MN_INVALID && (params->type || params->n_types))
        return complain(EXIT_USAGE, "--type: %s", a->err.msg);
    if (status != MN_OK)
        return app_fail(a, status);
    remark_sizes(a, out, seconds() - begin);
    return 0;
}

static int convert_command_convert(app *a, const convert_flags *f) {
    conversion c = {0};
    const char **rules = malloc((f->types.n + 1) * sizeof *rules);
    mn_convert_params params = {.size = sizeof params,
                                .flags = f->force ? MN_CONVERT_REPLACE : 0,
                                .arg = &c,
                                .types = rules,
                                .imatrix = f->imatrix};
    mn_adapter_source *merge = NULL;
    if (!rules)
        return no_memory();
    int code = sort_types(&f->types, &params.type, rules, &params.n_types);
    if (code == 0)
        code = lora_sources("--merge", &f->merge, &merge);
    params.adapters = merge;
    params.n_adapters = merge ? (uint32_t)f->merge.n : 0;
    if (code == 0)
        code =
            f->dry_run ? convert_dry_run(a, f->out, &params) : convert_to_file(a, f->out, &params);
    lora_free(merge, f->merge.n);
    free(rules);
    return code;
}

/* ARGS_OK, or what is missing on the command line as an error and its code. */
static int check_files(const convert_flags *f) {
    if (!f->in)
        return complain(EXIT_USAGE, "found no model, expected minerva convert IN -o OUT.gguf");
    if (f->dry_run)
        return ARGS_OK;
    if (!f->out || !*f->out)
        return complain(EXIT_USAGE,
                        "-o: found no file, expected where to write, as in -o model.gguf");
    if (!strcmp(f->out, "-"))
        return complain(
            EXIT_USAGE,
            "-o: found \"-\", expected a file: a model is not written to standard output");
    return ARGS_OK;
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
        "convert",
        "IN -o OUT.gguf [--type [PATTERN=]TYPE]... [--merge FILE[:SCALE]]... [--dry-run]",
        "Writes a model of any format as one GGUF file, which other programs can read too.", groups,
        MN_COUNT(groups)};
    app a = {0};
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK)
        code = check_files(&f);
    if (code != ARGS_OK) {
        args_free_texts(&f.types);
        args_free_texts(&f.merge);
        return code;
    }
    signal(SIGXFSZ, SIG_IGN); // a limit on file sizes becomes an error of write
    flags.model = f.in;
    code = app_open_model(&a, &flags);
    if (code == 0)
        code = convert_command_convert(&a, &f);
    args_free_texts(&f.types);
    args_free_texts(&f.merge);
    return app_end(&a, code);
}
