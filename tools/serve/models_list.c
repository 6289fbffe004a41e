/* models_list.c -- which models a server has, and the settings of each: of the command line alone,
 * or of several -m, a file of --models and --all-models.
 *
 * A section of the file is a model; its keys are the long names of flags, so that each has one
 * table row, one check and one sentence. What a section does not say is as in [*], what that does
 * not say as on the command line. Texts of the file live as long as the server. */
#include "serve/replicas.h"
#include "serve/serve.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- settings -------------------------------------------------------------------------------- */

/* A list of its own with the same texts. 0: out of memory. */
static int copy_texts(arg_texts *list) {
    const char **v = list->n ? malloc(list->n * sizeof *v) : NULL;
    if (list->n && !v) {
        *list = (arg_texts){0};
        return 0;
    }
    for (size_t i = 0; i < list->n; i++)
        v[i] = list->v[i];
    list->v = v;
    return 1;
}

/* The settings of another model, with lists of its own. 0, or the exit code with the error
 * printed. */
static int copy_settings(served *m, const serve_flags *own, const app_flags *flags,
                         const sampling_flags *sampling) {
    m->own = *own;
    m->flags = *flags;
    m->sampling = *sampling;
    arg_texts *const lists[] = {
        &m->own.replicas,  &m->own.more_replicas,     &m->own.aliases,         &m->own.origins,
        &m->sampling.stop, &m->sampling.dry_breakers, &m->sampling.bias_texts, &m->own.loras};
    int ok = 1;
    for (size_t i = 0; i < MN_COUNT(lists); i++)
        ok &= copy_texts(lists[i]);
    return ok ? 0 : no_memory();
}

static int copy_of_flags(served *m) {
    const serve *s = m->s;
    m->keep_alive = s->flags->keep_alive.given ? (double)s->flags->keep_alive.v : -1;
    return copy_settings(m, s->flags, s->app_flags, s->sampling);
}

void model_free_settings(served *m) {
    args_free_texts(&m->own.replicas);
    args_free_texts(&m->own.more_replicas);
    args_free_texts(&m->own.aliases);
    args_free_texts(&m->own.origins);
    args_free_texts(&m->own.loras);
    sampling_free(&m->sampling);
    m->stops = (arg_texts){0};
}

/* A copy of a text that lives as long as the list of models; NULL: out of memory. */
static char *models_keep_text(models *all, const char *text) {
    char **grown = realloc(all->texts, (all->n_texts + 1) * sizeof *grown);
    all->texts = grown ? grown : all->texts;
    char *copy = grown ? strdup(text) : NULL;
    if (copy)
        all->texts[all->n_texts++] = copy;
    return copy;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* "storyteller" of ".../storyteller.gguf": without the ending, malloc'ed. */
static char *without_ending(const char *name) {
    char *copy = strdup(name);
    char *dot = copy ? strrchr(copy, '.') : NULL;
    if (dot && dot > copy && (!strcmp(dot, ".gguf") || !strcmp(dot, ".safetensors")))
        *dot = 0;
    return copy;
}

/* The first alias, else the name: malloc'ed. */
static char *shown_name(const served *m, const char *name) {
    const arg_texts *aliases = &m->own.aliases;
    for (size_t i = 0; i < aliases->n; i++)
        if (strcmp(aliases->v[i], "*") != 0)
            return strdup(aliases->v[i]);
    return without_ending(name);
}

/* Gives the model its name. 0, or the exit code with the error printed. */
static int set_name(served *m, char *name) {
    if (!name)
        return no_memory();
    free(m->name);
    m->name = name;
    return 0;
}

/* The name of the file or folder that a path leads to: malloc'ed. */
static char *name_of_path(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    char *bare = strndup(path, n);
    char *name = bare ? without_ending(base_name(bare)) : NULL;
    free(bare);
    return name;
}

/* Two models of one name: which of them is meant could not be said. */
static int models_check_names(const models *all) {
    for (unsigned i = 0; i < all->n; i++)
        for (unsigned k = 0; k < i; k++) {
            const char *name = all->v[i]->name;
            if (!strcmp(name, all->v[k]->name))
                return complain(
                    EXIT_USAGE,
                    "found two models that are named \"%s\", expected another alias for "
                    "one of them in the file of --models",
                    name);
        }
    return 0;
}

/* ---- one model ------------------------------------------------------------------------------- */

/* The only model, whose settings are those of the command line. It is open when this returns. */
static int list_one(serve *s) {
    served *m = models_add(s, "");
    int code = m ? copy_of_flags(m) : no_memory();
    if (code)
        return code;
    code = model_open_text(m);
    if (code)
        return code;
    m->is_open = 1;
    code = set_name(m, shown_name(m, app_model_name(&m->a)));
    if (code == 0 && s->models.lazy)
        model_estimate(m);
    s->name = m->name;
    return code;
}

/* One more name; the text outlives m. 0, or the exit code with the error printed. */
static int add_alias(served *m, const char *name) {
    arg_texts *list = &m->own.aliases;
    const char **v = realloc(list->v, (list->n + 1) * sizeof *v);
    if (!v)
        return no_memory();
    list->v = v;
    v[list->n++] = name;
    return 0;
}

/* The user's own aliases (minerva alias) of models that are in the list. */
static int add_user_aliases(serve *s) {
    mn_found *found = NULL;
    mn_found_item item = {.size = sizeof item};
    const mn_status st = mn_model_aliases(s->a.rt, &found, &s->a.err);
    int code = st ? app_fail(&s->a, st) : 0;
    for (uint32_t i = 0; code == 0 && mn_found_get(found, i, &item) == MN_OK; i++) {
        served *m = models_find(s, item.path);
        if (!m || models_find(s, item.name))
            continue;
        const char *name = models_keep_text(&s->models, item.name);
        code = name ? add_alias(m, name) : no_memory();
    }
    mn_found_free(found);
    return code;
}

/* ---- several -m ------------------------------------------------------------------------------ */

/* A model of -m. What is not on this machine is an error now. */
static int models_add_named(serve *s, const char *text) {
    mn_found *found = NULL;
    mn_found_item item = {.size = sizeof item};
    served *m = models_add(s, text);
    int code = m ? copy_of_flags(m) : no_memory();
    if (code)
        return code;
    m->flags.model = text;
    const mn_status st = mn_model_find(s->a.rt, text, &found, &s->a.err);
    if (st != MN_OK)
        code = app_fail(&s->a, st);
    else if (mn_found_get(found, 0, &item) != MN_OK)
        code = complain(EXIT_FAILED, "%s", mn_found_missing(found));
    else
        code = set_name(m, strcmp(item.place, "path") ? without_ending(item.name)
                                                      : name_of_path(item.path));
    if (code == 0 && strcmp(m->name, text) != 0 && access(text, F_OK) != 0)
        code = add_alias(m, text);
    mn_found_free(found);
    return code;
}

/* ---- --all-models ---------------------------------------------------------------------------- */

/* A model by the name that minerva list has. 0, or the exit code. */
static int add_by_name(serve *s, const char *text) {
    const char *name = models_keep_text(&s->models, text);
    served *m = name ? models_add(s, name) : NULL;
    const int code = m ? copy_of_flags(m) : no_memory();
    if (code == 0)
        m->flags.model = name;
    return code;
}

int models_learn(serve *s, const char *name) {
    return !s->flags->all_models || models_find(s, name) || add_by_name(s, name) == 0;
}

/* The first place that has a name wins, as everywhere. */
static int models_add_listed(serve *s) {
    mn_found *found = NULL;
    mn_found_item item = {.size = sizeof item};
    const mn_status st = mn_model_list(s->a.rt, &found, &s->a.err);
    int code = st ? app_fail(&s->a, st) : 0;
    for (uint32_t i = 0; code == 0 && mn_found_get(found, i, &item) == MN_OK; i++) {
        if (models_find(s, item.name))
            continue;
        code = add_by_name(s, item.name);
    }
    mn_found_free(found);
    return code;
}

/* ---- --models FILE --------------------------------------------------------------------------- */

typedef struct {
    serve *s;
    served *defaults, *m; /* of [*]; of the section that is read, NULL: none */
    const char *path;
    unsigned line;
    int in_section;  /* a [NAME] has come */
    int of_defaults; /* this pass reads [*], the next one the other sections */
    char where[300]; /* "FILE:LINE: KEY" */
} list_reader;

/* Keys of flags of the shared tables that belong to the server. */
static const char *const foreign_keys[] = {"offline", "list-devices", "rank-token-file"};

/* 1 if the row's flags ("-c --ctx-size") have the key ("ctx-size", "c"). */
static int has_key(const arg_row *row, const char *key) {
    const size_t n = strlen(key);
    for (const char *at = row->flags; *at;) {
        at += strspn(at, " -");
        const size_t len = strcspn(at, " ");
        if (len == n && !memcmp(at, key, n))
            return 1;
        at += len;
    }
    return 0;
}

/* The row of a key and the struct that it is about; NULL: none. */
static const arg_row *row_of_key(served *m, const char *key, void **values) {
    const struct {
        const arg_row *rows;
        size_t n;
        void *values;
    } groups[] = {{app_model_rows, APP_MODEL_ROWS, &m->flags},
                  {app_device_rows, APP_DEVICE_ROWS, &m->flags},
                  {app_session_rows, APP_SESSION_ROWS, &m->flags},
                  {app_draft_rows, APP_DRAFT_ROWS, &m->flags},
                  {sampling_rows, SAMPLING_ROWS - SAMPLING_BIAS_ROWS, &m->sampling}};
    for (size_t i = 0; i < MN_COUNT(foreign_keys); i++)
        if (!strcmp(key, foreign_keys[i]))
            return NULL;
    for (size_t g = 0; g < MN_COUNT(groups); g++)
        for (size_t i = 0; i < groups[g].n; i++)
            if (has_key(&groups[g].rows[i], key)) {
                *values = groups[g].values;
                return &groups[g].rows[i];
            }
    *values = &m->own;
    return serve_model_setting(key);
}

/* "true", "yes", "on", "1" or their opposites. -1: neither. */
static int truth_of(const char *value) {
    static const char *const words[] = {"false", "no", "off", "0", "true", "yes", "on", "1"};
    for (size_t i = 0; i < MN_COUNT(words); i++)
        if (!strcmp(value, words[i]))
            return i >= MN_COUNT(words) / 2;
    return -1;
}

static int store_truth(const list_reader *r, const char *value, int *field) {
    const int truth = truth_of(value);
    if (truth < 0)
        return complain(EXIT_USAGE, "%s: found \"%s\", expected true or false", r->where, value);
    *field = truth;
    return 0;
}

/* The words of a value replace a list. */
static int store_words(const list_reader *r, const arg_row *row, arg_texts *field, char *words) {
    char *rest = NULL;
    int code = 0;
    args_free_texts(field);
    for (char *word = strtok_r(words, " \t", &rest); word && code == 0;
         word = strtok_r(NULL, " \t", &rest))
        code = args_store(row, field, r->where, word);
    return code;
}

/* A key that only sections have. -1: it is none. */
static int store_own_key(list_reader *r, const char *key, const char *value) {
    int64_t number = 0;
    if (!strcmp(key, "load-on-start"))
        return store_truth(r, value, &r->m->asked);
    if (strcmp(key, "keep-alive") != 0)
        return -1;
    if (!parse_int(value, strlen(value), &number) || number < -1)
        return complain(EXIT_USAGE, "%s: found \"%s\", expected seconds, or -1: it stays", r->where,
                        value);
    r->m->keep_alive = (double)number;
    return 0;
}

/* One key of a model. Each returns 0, or the exit code with the error printed. */
static int store_key(list_reader *r, const char *key, const char *value) {
    void *values = NULL;
    const arg_row *row = row_of_key(r->m, key, &values);
    const int own = store_own_key(r, key, value);
    if (own >= 0)
        return own;
    if (!row)
        return complain(EXIT_USAGE,
                        "%s: expected the long name of a flag of models, devices, contexts, drafts "
                        "or sampling, or alias, parallel, kv-size, no-prefix-cache, embeddings, "
                        "replicas, chat-template, keep-alive, load-on-start",
                        r->where);
    void *field = (char *)values + row->offset;
    if (row->kind == ARG_FLAG)
        return store_truth(r, value, field);
    char *kept = models_keep_text(&r->s->models, value);
    if (!kept)
        return no_memory();
    if (row->kind == ARG_TEXTS && values == &r->m->own)
        return store_words(r, row, field, kept);
    return args_store(row, field, r->where, kept);
}

/* "[NAME]": a model with the settings of [*]; the name is that of the model, unless a key says
 * another one. */
static int begin_section(list_reader *r, char *line) {
    char *end = strrchr(line, ']');
    const served *d = r->defaults;
    if (!end || end == line + 1 || end[1])
        return complain(EXIT_USAGE, "%s: found \"%.60s\", expected [NAME]", r->where, line);
    *end = 0;
    r->in_section = 1;
    const int is_defaults = !strcmp(line + 1, "*");
    r->m = NULL;
    if (is_defaults || r->of_defaults) {
        r->m = is_defaults && r->of_defaults ? r->defaults : NULL;
        return 0;
    }
    const char *name = models_keep_text(&r->s->models, line + 1);
    r->m = name ? models_add(r->s, name) : NULL;
    if (!r->m)
        return no_memory();
    r->m->keep_alive = d->keep_alive;
    r->m->asked = d->asked;
    const int code = copy_settings(r->m, &d->own, &d->flags, &d->sampling);
    r->m->flags.model = name;
    return code;
}

/* The text without blanks at both ends. */
static char *models_trim(char *text) {
    static const char blank[] = " \t\r";
    text += strspn(text, blank);
    for (size_t n = strlen(text); n && strchr(blank, text[n - 1]); n--)
        text[n - 1] = 0;
    return text;
}

static int models_read_line(list_reader *r, char *text) {
    char *line = models_trim(text);
    char *value = line + strcspn(line, "=");
    snprintf(r->where, sizeof r->where, "%.200s:%u", r->path, r->line);
    if (!*line || *line == '#' || *line == ';')
        return 0;
    if (*line == '[')
        return begin_section(r, line);
    if (!*value)
        return complain(EXIT_USAGE, "%s: found \"%.60s\", expected [NAME] or KEY = VALUE", r->where,
                        line);
    *value++ = 0;
    const char *key = models_trim(line);
    snprintf(r->where, sizeof r->where, "%.200s:%u: %.60s", r->path, r->line, key);
    if (!r->in_section && strcmp(key, "version") != 0)
        return complain(EXIT_USAGE, "%s: found a key before the first section, expected [NAME]",
                        r->where);
    if (!r->m)
        return 0; /* of a section that this pass does not read */
    return store_key(r, key, models_trim(value));
}

/* One pass over the file. The text is changed. */
static int models_read_lines(list_reader *r, char *text) {
    int code = 0;
    r->m = NULL;
    r->in_section = 0;
    r->line = 0;
    for (char *line = text; line && code == 0;) {
        char *next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        r->line++;
        code = models_read_line(r, line);
        line = next;
    }
    return code;
}

/* The settings of all sections, those of [*] first. */
static int read_sections(list_reader *r, const char *text) {
    int code = 0;
    for (int pass = 0; pass < 2 && code == 0; pass++) {
        char *copy = strdup(text);
        r->of_defaults = pass == 0;
        code = copy ? models_read_lines(r, copy) : no_memory();
        free(copy);
    }
    return code;
}

/* A model that is not on this machine may come later: its requests are told so until then. */
static void warn_if_missing(const list_reader *r, const served *m) {
    mn_found *found = NULL;
    mn_found_item item = {.size = sizeof item};
    mn_error err = MN_ERROR;
    if (mn_model_find(r->s->a.rt, m->flags.model, &found, &err) != MN_OK)
        note("warning: %s: [%s]: %s", r->path, m->name, plain_message(err.msg));
    else if (mn_found_get(found, 0, &item) != MN_OK)
        note("warning: %s: [%s]: %s", r->path, m->name, mn_found_missing(found));
    mn_found_free(found);
}

/* What only all keys of a section together say. */
static int check_sections(const list_reader *r, unsigned first) {
    const models *all = &r->s->models;
    for (unsigned i = first; i < all->n; i++) {
        served *m = all->v[i];
        if (sampling_check(&m->sampling))
            return complain(EXIT_USAGE, "%s: [%s]: its sampling cannot be used", r->path, m->name);
        for (size_t k = 0; k < m->own.replicas.n; k++)
            if (replicas_is_url(m->own.replicas.v[k]))
                return complain(EXIT_USAGE, "%s: [%s] replicas: found \"%s\", expected devices",
                                r->path, m->name, m->own.replicas.v[k]);
        warn_if_missing(r, m);
    }
    if (all->n > first)
        return 0;
    return complain(EXIT_FAILED,
                    "%s: found no model, expected sections such as [NAME] with "
                    "model = PATH",
                    r->path);
}

static int models_add_file(serve *s, const char *path) {
    served defaults = {.s = s};
    list_reader r = {.s = s, .defaults = &defaults, .path = path};
    char *text = NULL;
    size_t n = 0;
    const unsigned first = s->models.n;
    int code = copy_of_flags(&defaults);
    if (code == 0)
        code = read_all_text(path, &text, &n);
    if (code == 0)
        code = read_sections(&r, text);
    if (code == 0)
        code = check_sections(&r, first);
    free(text);
    model_free_settings(&defaults);
    return code;
}

/* ---- the list -------------------------------------------------------------------------------- */

int models_are_several(const serve *s) {
    const serve_flags *f = s->flags;
    return f->models.n > 1 || f->models_file || f->all_models;
}

/* Limits, as on the command line. */
static void set_limits(serve *s) {
    models *all = &s->models;
    const serve_flags *f = s->flags;
    const uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES);
    all->most = (unsigned)f->models_max;
    all->memory = (uint64_t)f->models_memory << 20;
    all->host_memory = pages * (uint64_t)sysconf(_SC_PAGESIZE) / 6 * 5;
    all->lazy = models_are_several(s) || f->keep_alive.given;
}

/* 0, or the exit code with the error printed: --alias is of one model. */
static int check_several(const serve *s) {
    if (s->flags->aliases.n)
        return complain(EXIT_USAGE, "found --alias with several models, expected alias = NAME in "
                                    "the sections of a file of --models");
    if (s->flags->loras.n)
        return complain(EXIT_USAGE, "found --lora with several models, expected lora = FILE in the "
                                    "sections of a file of --models");
    return 0;
}

int models_list(serve *s) {
    const serve_flags *f = s->flags;
    models *all = &s->models;
    set_limits(s);
    if (!models_are_several(s))
        return list_one(s);
    int code = check_several(s);
    if (code == 0)
        code = app_open_names(&s->a, s->app_flags);
    for (size_t i = 0; i < f->models.n && code == 0; i++)
        code = models_add_named(s, f->models.v[i]);
    if (code == 0 && f->models_file)
        code = models_add_file(s, f->models_file);
    if (code == 0 && f->all_models)
        code = models_add_listed(s);
    if (code == 0 && !all->n)
        code = complain(EXIT_FAILED, "--all-models: found no model on this machine: minerva pull "
                                     "loads one, minerva list shows them");
    if (code == 0)
        code = models_check_names(all);
    if (code == 0)
        code = add_user_aliases(s);
    char title[32];
    snprintf(title, sizeof title, "%u models", all->n);
    s->name = models_keep_text(all, title);
    return code || s->name ? code : no_memory();
}
