/* tokenize.c -- minerva tokenize: text to token ids. */
#include "app.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *text, *file;
    int no_bos, parse_special;
} tokenize_flags;

#define F(field) offsetof(tokenize_flags, field)
static const arg_row rows[] = {
    {"-p --prompt", "TEXT", ARG_TEXT, F(text), 0, 0, NULL, "the text, as it is"},
    {"-f --file", "F", ARG_TEXT, F(file), 0, 0, NULL,
     "a file's bytes, all of them; -: standard input"},
    {"--no-bos", NULL, ARG_FLAG, F(no_bos), 0, 0, NULL,
     "add nothing (default: what the tokeniser adds)"},
    {"--parse-special", NULL, ARG_FLAG, F(parse_special), 0, 0, NULL,
     "special tokens written in the text become ids (default: plain text)"},
};

static int print(const int32_t *ids, uint32_t n, int json) {
    out_file out = out_stdout();
    json_out j = {&out, 0, 0, {0}};
    if (json) {
        json_open(&j, '{');
        json_key(&j, "ids");
        json_ids(&j, ids, n);
        json_close(&j);
        json_line(&j);
    } else {
        for (uint32_t i = 0; i < n; i++)
            out_printf(&out, "%s%d", i ? " " : "", ids[i]);
        out_put(&out, "\n", 1);
    }
    return out_finish(&out, 0);
}

static int tokenize(app *a, const app_flags *flags, const tokenize_flags *f) {
    uint32_t n = 0, how = (f->no_bos ? 0 : MN_TEXT_ADD_SPECIAL) |
                          (f->parse_special ? MN_TEXT_PARSE_SPECIAL : 0);
    const char *file = f->file ? f->file : f->text || isatty(STDIN_FILENO) ? NULL : "-";
    char *data = NULL;
    size_t bytes = f->text ? strlen(f->text) : 0;
    int32_t *ids = NULL;
    if (f->text && f->file)
        return complain(EXIT_USAGE, "found -p and --file, expected one of them");
    if (!f->text && !file)
        return complain(EXIT_USAGE, "found no text, expected -p TEXT or --file F");
    int code = app_open_model(a, flags);
    if (code == 0 && file)
        code = read_all(file, &data, &bytes);
    if (code == 0) {
        mn_status status = mn_model_tokenize(a->model, (mn_str){file ? data : f->text, bytes}, how,
                                             &ids, &n, &a->err);
        code = status == MN_OK ? print(ids, n, flags->json) : app_fail(a, status);
    }
    mn_ids_free(ids);
    free(data);
    return code;
}

int cmd_tokenize(int argc, char **argv) {
    app_flags flags = {0};
    tokenize_flags f = {0};
    const arg_group groups[] = {
        {"Text", rows, COUNT(rows), &f},
        {"Output", app_json_rows, APP_JSON_ROWS, &flags},
        {"Model", app_model_rows, APP_MODEL_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
    };
    const arg_page page = {"tokenize", "[-m MODEL] (-p TEXT | --file F) [flags]",
                           "Prints the token ids of a text. The model needs no weights.", groups,
                           COUNT(groups)};
    app a = {0};
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK)
        code = tokenize(&a, &flags, &f);
    app_close(&a);
    return code;
}
