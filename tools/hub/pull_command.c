/* pull_command.c -- minerva pull: its command line, and the path that it prints. It is in every
 * build, as its pages are; without libcurl's headers absent.c says that nothing is downloaded. */
#include "hub.h"
#include <stddef.h>

typedef struct {
    const char *name;
} pull_flags;
static const arg_row rows[] = {
    {"NAME", "the model", ARG_TEXT, offsetof(pull_flags, name), 1, 0, NULL,
     "org/repo, org/repo:QUANT, org/repo@REVISION, the URL of a repository or of a file in it"},
};

static int pull(app *a, const char *name) {
    mn_found *found = NULL;
    mn_found_item item = {.size = sizeof item};
    out_file out = out_stdout();
    int code = hub_pull(a, name, NULL, NULL);
    if (code)
        return code;
    const mn_status st = mn_model_find(a->rt, name, &found, &a->err);
    if (st != MN_OK)
        code = app_fail(a, st);
    else if (mn_found_get(found, 0, &item) != MN_OK)
        code = complain(EXIT_FAILED, "%s", mn_found_missing(found));
    else
        out_printf(&out, "%s\n", item.path);
    mn_found_free(found);
    return out_finish(&out, code);
}

int cmd_pull(int argc, char **argv) {
    app_flags flags = {0};
    pull_flags f = {0};
    const arg_group groups[] = {
        {"", rows, MN_COUNT(rows), &f},
        {"Network and plugins", app_hub_rows, APP_HUB_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
    };
    const arg_page page = {
        "pull", "NAME [flags]",
        "Downloads a model from a hub into the cache of Hugging Face, and prints its path.", groups,
        MN_COUNT(groups)};
    app a = {0};
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK && !f.name)
        code = complain(EXIT_USAGE, "pull: expected the name of a model");
    else if (code == ARGS_OK)
        code = app_open_runtime(&a, &flags);
    if (code == 0 && f.name && a.rt)
        code = pull(&a, f.name);
    return app_end(&a, code);
}
