/* models.c -- minerva list, show, rm and alias: the models that have names on this machine.
 *
 * Whether a model runs is found by opening it and asking the devices, as for a session; each is
 * closed before the next. A model that cannot be opened is listed with the reason. */
#include "hub.h"
#include "model_facts.h"
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- one model ------------------------------------------------------------------------------- */
typedef struct {
    char type[32], family[48], why[600], format[32];
    uint64_t n_params;
    int64_t n_ctx;
    int runs, has_template;
} facts;

/* Where it would run, or why not. */
static void put_device(app *a, mn_model *m, facts *out) {
    char *text = NULL;
    if (mn_model_explain(m, NULL, &text, &a->err) != MN_OK) {
        snprintf(out->why, sizeof out->why, "%s", a->err.msg);
        return;
    }
    cJSON *json = cJSON_Parse(text);
    const cJSON *placement = cJSON_GetObjectItemCaseSensitive(json, "placement");
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(json, "error");
    const char *device =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(placement, "device"));
    const char *message = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(error, "message"));
    out->runs = device != NULL;
    if (!device)
        device = message ? message : "no device can";
    snprintf(out->why, sizeof out->why, "%s", device);
    cJSON_Delete(json);
    mn_json_free(text);
}

static facts facts_of(app *a, const char *path) {
    facts f = {.type = ""};
    mn_model *m = NULL;
    mn_model_info info = {.size = sizeof info};
    a->err = (mn_error)MN_ERROR;
    if (mn_model_open(a->rt, path, &m, &a->err) != MN_OK) {
        snprintf(f.why, sizeof f.why, "%s", plain_message(a->err.msg));
        return f;
    }
    mn_model_get_info(m, &info);
    snprintf(f.family, sizeof f.family, "%s", info.arch);
    snprintf(f.format, sizeof f.format, "%s", info.format);
    f.n_params = info.n_params;
    f.n_ctx = info.n_ctx_train;
    f.has_template = info.has_chat_template;
    model_main_type(m, f.type);
    put_device(a, m, &f);
    mn_model_free(m);
    return f;
}

/* "2026-11-28"; "" = unknown. */
static void put_day(int64_t used, char dst[32]) {
    struct tm t;
    const time_t at = (time_t)used;
    dst[0] = 0;
    if (used && localtime_r(&at, &t))
        strftime(dst, 32, "%Y-%m-%d", &t);
}

/* ---- list ------------------------------------------------------------------------------------ */
static void json_item(json_out *j, const mn_found_item *item, const facts *f) {
    json_open(j, '{');
    json_put_z(j, "name", item->name);
    json_put_z(j, "place", item->place);
    json_put_z(j, "path", item->path);
    json_put_uint(j, "bytes", item->bytes);
    json_put_z(j, "type", f->type);
    json_put_z(j, "family", f->family);
    json_put_z(j, "format", f->format);
    json_put_uint(j, "params", f->n_params);
    json_put_int(j, "context", f->n_ctx);
    json_put_bool(j, "chat_template", f->has_template);
    json_put_bool(j, "runs", f->runs);
    json_put_z(j, "why", f->why);
    json_put_int(j, "used", item->used);
    json_close(j);
}

static void print_json(app *a, const mn_found *found, out_file *out) {
    json_out j = out_json(out);
    mn_found_item item = {.size = sizeof item};
    json_open(&j, '[');
    for (uint32_t i = 0; mn_found_get(found, i, &item) == MN_OK; i++) {
        const facts f = facts_of(a, item.path);
        json_item(&j, &item, &f);
    }
    json_close(&j);
    json_line(&j);
}

static void print_table(app *a, const mn_found *found, out_file *out) {
    static const char *const columns[] = {"name",      "size",      "type",  "family",
                                          "runs here", "last used", "place", NULL};
    mn_found_item item = {.size = sizeof item};
    table t;
    uint32_t n = 0;
    table_begin(&t, columns, 1u << 1);
    for (; mn_found_get(found, n, &item) == MN_OK; n++) {
        char size[32];
        char day[32];
        const facts f = facts_of(a, item.path);
        put_day(item.used, day);
        table_cell(&t, "%s", item.name);
        table_cell(&t, "%s", human_bytes(item.bytes, size));
        table_cell(&t, "%s", f.type[0] ? f.type : "-");
        table_cell(&t, "%s", f.family[0] ? f.family : "-");
        table_cell(&t, "%s%.60s", f.runs ? "yes: " : "no: ", f.why);
        table_cell(&t, "%s", day[0] ? day : "-");
        table_cell(&t, "%s", item.place);
    }
    if (n)
        table_print(&t, TABLE_PLAIN, out);
    else
        note("no models here have names; minerva pull org/repo downloads one");
    table_free(&t);
}

static int list(app *a, int json) {
    mn_found *found = NULL;
    out_file out = out_stdout();
    const mn_status st = mn_model_list(a->rt, &found, &a->err);
    if (st != MN_OK)
        return app_fail(a, st);
    if (json)
        print_json(a, found, &out);
    else
        print_table(a, found, &out);
    mn_found_free(found);
    return out_finish(&out, 0);
}

int cmd_list(int argc, char **argv) {
    app_flags flags = {0};
    const arg_group groups[] = {
        {"", app_json_rows, APP_JSON_ROWS, &flags},
        {"", app_device_rows, APP_DEVICE_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
    };
    const arg_page page = {"list", "[flags]",
                           "Lists the models that have names on this machine, and whether each "
                           "runs here.",
                           groups, MN_COUNT(groups)};
    app a = {0};
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK) {
        code = app_open_runtime(&a, &flags);
        if (code == 0)
            code = list(&a, flags.json);
    }
    return app_end(&a, code);
}

/* ---- show ------------------------------------------------------------------------------------ */
typedef struct {
    const char *name;
    int explain;
} show_flags;
static const arg_row show_rows[] = {
    {"NAME", "the model", ARG_TEXT, offsetof(show_flags, name), 1, 0, NULL,
     "a path or a name, as -m takes it"},
    {"--explain", NULL, ARG_FLAG, offsetof(show_flags, explain), 0, 0, NULL,
     "print where the name was looked for, and what was there"},
};

static void print_facts(app *a, const mn_found_item *item, out_file *out) {
    char size[32];
    char count[32];
    char day[32];
    const facts f = facts_of(a, item->path);
    put_day(item->used, day);
    out_printf(out, "name       %s\nplace      %s\npath       %s\n", item->name, item->place,
               item->path);
    if (item->bytes)
        out_printf(out, "size       %s\n", human_bytes(item->bytes, size));
    if (f.format[0])
        out_printf(out, "format     %s, %s\nfamily     %s, %s parameters\n", f.format, f.type,
                   f.family, human_count(f.n_params, count));
    if (f.n_ctx)
        out_printf(out, "context    %lld\n", (long long)f.n_ctx);
    const char *template = item->flags & MN_FOUND_FOREIGN_TEMPLATE
                               ? "none that is run: --chat-template names one"
                               : "none";
    if (f.format[0])
        out_printf(out, "template   %s\n", f.has_template ? "its own" : template);
    if (day[0])
        out_printf(out, "last used  %s\n", day);
    out_printf(out, "runs here  %s: %s\n", f.runs ? "yes" : "no", f.why);
}

static int show(app *a, const show_flags *f) {
    mn_found *found = NULL;
    mn_found_item item = {.size = sizeof item};
    out_file out = out_stdout();
    const mn_status st = mn_model_find(a->rt, f->name, &found, &a->err);
    int code = 0;
    if (st != MN_OK)
        return app_fail(a, st);
    if (f->explain)
        out_puts(&out, mn_found_explain(found));
    if (mn_found_get(found, 0, &item) != MN_OK) {
        out_flush(&out);
        code = complain(EXIT_FAILED, "%s", mn_found_missing(found));
    } else if (!f->explain && a->flags->json) {
        json_out j = out_json(&out);
        const facts of_it = facts_of(a, item.path);
        json_item(&j, &item, &of_it);
        json_line(&j);
    } else if (!f->explain)
        print_facts(a, &item, &out);
    mn_found_free(found);
    return out_finish(&out, code);
}

int cmd_show(int argc, char **argv) {
    app_flags flags = {0};
    show_flags f = {0};
    const arg_group groups[] = {
        {"", show_rows, MN_COUNT(show_rows), &f},
        {"", app_json_rows, APP_JSON_ROWS, &flags},
        {"", app_device_rows, APP_DEVICE_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
    };
    const arg_page page = {"show", "NAME [flags]",
                           "Prints what a name means: where the model is, what it is, and whether "
                           "it runs here.",
                           groups, MN_COUNT(groups)};
    app a = {0};
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK && !f.name)
        code = complain(EXIT_USAGE, "show: expected the name of a model");
    else if (code == ARGS_OK) {
        code = app_open_runtime(&a, &flags);
        if (code == 0)
            code = show(&a, &f);
    }
    return app_end(&a, code);
}

/* ---- rm -------------------------------------------------------------------------------------- */
typedef struct {
    const char *name;
    int yes;
} rm_flags;
static const arg_row rm_rows[] = {
    {"NAME", "the model", ARG_TEXT, offsetof(rm_flags, name), 1, 0, NULL,
     "org/repo: all of it; org/repo:QUANT: its files, as far as nothing else uses them"},
    {"-y --yes", NULL, ARG_FLAG, offsetof(rm_flags, yes), 0, 0, NULL, "do not ask"},
};

/* 0: go on. */
static int ask(const char *name, const char *size) {
    char line[16] = "";
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return complain(EXIT_USAGE, "rm: nobody can be asked here: -y removes %s (%s)", name, size);
    fprintf(stderr, "minerva: remove %s from the cache (%s)? [y/N] ", name, size);
    fflush(stderr);
    if (fgets(line, sizeof line, stdin) && strchr("yYjJ", line[0]))
        return 0;
    note("%s: nothing was removed", name);
    return EXIT_FAILED;
}

/* The aliases whose target is the name go, too. */
static int forget_aliases(app *a, const char *name) {
    mn_found *found = NULL;
    mn_found_item item = {.size = sizeof item};
    int code = 0;
    mn_status st = mn_model_aliases(a->rt, &found, &a->err);
    if (st != MN_OK)
        return app_fail(a, st);
    for (uint32_t i = 0; mn_found_get(found, i, &item) == MN_OK && !code; i++) {
        if (strcmp(item.path, name) != 0 && strcmp(item.name, name) != 0)
            continue;
        st = mn_model_set_alias(a->rt, item.name, "", &a->err);
        if (st != MN_OK && st != MN_END)
            code = app_fail(a, st);
        else
            app_remark(a, "the alias %s is gone, too", item.name);
    }
    mn_found_free(found);
    return code;
}

static int rm(app *a, const rm_flags *f) {
    uint64_t bytes = 0;
    char size[32];
    mn_status st = mn_model_remove(a->rt, f->name, MN_REMOVE_ASK, &bytes, &a->err);
    if (st != MN_OK)
        return app_fail(a, st);
    human_bytes(bytes, size);
    const int code = f->yes ? 0 : ask(f->name, size);
    if (code)
        return code;
    st = mn_model_remove(a->rt, f->name, 0, &bytes, &a->err);
    if (st != MN_OK)
        return app_fail(a, st);
    app_remark(a, "%s is removed: %s are free", f->name, human_bytes(bytes, size));
    return forget_aliases(a, f->name);
}

int cmd_rm(int argc, char **argv) {
    app_flags flags = {0};
    rm_flags f = {0};
    const arg_group groups[] = {
        {"", rm_rows, MN_COUNT(rm_rows), &f},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
    };
    const arg_page page = {"rm", "NAME [flags]",
                           "Removes a model from the cache of Hugging Face, after a question.",
                           groups, MN_COUNT(groups)};
    app a = {0};
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK && !f.name)
        code = complain(EXIT_USAGE, "rm: expected the name of a model");
    else if (code == ARGS_OK) {
        code = app_open_runtime(&a, &flags);
        if (code == 0)
            code = rm(&a, &f);
    }
    return app_end(&a, code);
}

/* ---- alias ----------------------------------------------------------------------------------- */
typedef struct {
    arg_texts words;
    int remove;
} alias_flags;
static const arg_row alias_rows[] = {
    {"NAME TARGET...", "the alias and the model", ARG_TEXTS, offsetof(alias_flags, words), 0, 0,
     NULL, "NAME stands for the model TARGET; without both, the aliases are listed"},
    {"-d --delete", NULL, ARG_FLAG, offsetof(alias_flags, remove), 0, 0, NULL,
     "forget the alias NAME"},
};

static int print_aliases(app *a, int json) {
    mn_found *found = NULL;
    mn_found_item item = {.size = sizeof item};
    out_file out = out_stdout();
    json_out j = out_json(&out);
    const mn_status st = mn_model_aliases(a->rt, &found, &a->err);
    if (st != MN_OK)
        return app_fail(a, st);
    if (json)
        json_open(&j, '{');
    for (uint32_t i = 0; mn_found_get(found, i, &item) == MN_OK; i++) {
        if (json)
            json_put_z(&j, item.name, item.path);
        else
            out_printf(&out, "%s = %s\n", item.name, item.path);
    }
    if (json) {
        json_close(&j);
        json_line(&j);
    }
    mn_found_free(found);
    return out_finish(&out, 0);
}

static int alias(app *a, const alias_flags *f) {
    const size_t wanted = f->remove ? 1 : 2;
    if (!f->words.n && !f->remove)
        return print_aliases(a, a->flags->json);
    if (f->words.n != wanted)
        return complain(EXIT_USAGE, "alias: found %zu words, expected %s", f->words.n,
                        f->remove ? "NAME" : "NAME and TARGET");
    const char *target = f->remove ? "" : f->words.v[1];
    const mn_status st = mn_model_set_alias(a->rt, f->words.v[0], target, &a->err);
    if (st == MN_END)
        return complain(EXIT_FAILED, "%s", a->err.msg);
    return st == MN_OK ? 0 : app_fail(a, st);
}

int cmd_alias(int argc, char **argv) {
    app_flags flags = {0};
    alias_flags f = {0};
    const arg_group groups[] = {
        {"", alias_rows, MN_COUNT(alias_rows), &f},
        {"", app_json_rows, APP_JSON_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
    };
    const arg_page page = {"alias", "[NAME TARGET | -d NAME] [flags]",
                           "Lets a short name stand for a model, or lists these names.", groups,
                           MN_COUNT(groups)};
    app a = {0};
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK) {
        code = app_open_runtime(&a, &flags);
        if (code == 0)
            code = alias(&a, &f);
    }
    args_free_texts(&f.words);
    return app_end(&a, code);
}
