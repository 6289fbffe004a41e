/* pull_command.c -- minerva pull: its command line, and the path that it prints. It is in every
 * build, as its pages are; without libcurl's headers absent.c says that nothing is downloaded. */
#include "hub.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

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

/* A line for each step, on standard output. */
static int put_line(void *arg, uint64_t done, uint64_t total, uint32_t n_done, uint32_t n,
                    const char *says) {
    static uint64_t last;
    (void)arg;
    (void)n_done;
    (void)n;
    (void)says;
    if (done == last && done != total)
        return 0;
    last = done;
    return printf("pull %llu %llu\n", (unsigned long long)done, (unsigned long long)total) < 0 ||
           fflush(stdout) != 0;
}

/* pull --lines NAME: for minerva serve, which sends the hub's token on standard input. */
static int pull_lines(const char *name) {
    app_flags flags = {.quiet = 1};
    app a = {0};
    char token[2048] = "";
    if (!fgets(token, sizeof token, stdin))
        token[0] = 0;
    token[strcspn(token, "\n")] = 0;
    hub_use_token(token);
    int code = app_open_runtime(&a, &flags);
    if (code == 0)
        code = hub_pull(&a, name, put_line, NULL);
    return app_end(&a, code);
}

int cmd_pull(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--lines"))
        return pull_lines(argv[2]);

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
