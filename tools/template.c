/* template.c -- minerva template: renders a chat template with given variables, for authors of
 * templates and for comparison with other implementations. The rendering is the library's
 * (mn_template_render); a model is only opened if the template is the model's own. */
#include "talk.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *source, *vars;
} template_flags;

#define F(field) offsetof(template_flags, field)
static const arg_row rows[] = {
    {"--template", "F.jinja", ARG_FILE, F(source), 0, 0, NULL,
     "the template (default: the model's own)"},
    {"--vars", "V.json", ARG_FILE, F(vars), 0, 0, NULL,
     "an object: messages, tools, add_generation_prompt, bos_token, ...;\nthe file, - for standard "
     "input, or the JSON "
     "text itself"},
};

static int template_command_render(app *a, const char *source, mn_str vars) {
    char *text = NULL;
    uint64_t n = 0;
    mn_status status = mn_template_render(a->model, source, vars, &text, &n, &a->err);
    if (status != MN_OK) {
        complain(EXIT_FAILED, "%s", a->err.msg);
        return status == MN_OUT_OF_MEMORY ? EXIT_NO_MEMORY : EXIT_FAILED;
    }
    out_file out = out_stdout();
    out_put(&out, text, n);
    mn_json_free(text);
    return out_finish(&out, 0);
}

static int template_command_run(app *a, const app_flags *flags, const template_flags *f) {
    char *source = NULL, *vars = NULL;
    size_t n_source = 0;
    if (!f->vars)
        return complain(EXIT_USAGE, "found no variables, expected --vars V.json");
    int code = f->source ? read_all(f->source, &source, &n_source) : 0;
    if (code == 0 && source && strlen(source) != n_source)
        code = complain(EXIT_FAILED, "%s: found a NUL at byte %zu, expected text", f->source,
                        strlen(source));
    if (code == 0)
        code = talk_read(f->vars, &vars);
    if (code == 0 && (!source || flags->model))
        code = app_open_text(a, flags);
    if (code == 0)
        code = template_command_render(a, source, (mn_str){vars, strlen(vars)});
    free(source);
    free(vars);
    return code;
}

int cmd_template(int argc, char **argv) {
    app_flags flags = {0};
    template_flags f = {0};
    const arg_group groups[] = {
        {"Template", rows, MN_COUNT(rows), &f},
        {"Model", app_model_rows, APP_MODEL_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
    };
    const arg_page page = {
        "template", "(-m MODEL | --template F.jinja) --vars V.json",
        "Renders a chat template with given variables, and prints the exact bytes. An "
        "error that the\ntemplate raises (raise_exception) is exit code 1 "
        "with its message.",
        groups, MN_COUNT(groups)};
    app a = {.err = MN_ERROR};
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK)
        code = template_command_run(&a, &flags, &f);
    return app_end(&a, code);
}
