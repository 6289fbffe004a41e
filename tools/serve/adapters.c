/* adapters.c -- see adapters.h; /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has
 * them. A change is a request that waits for its engines; its client may leave meanwhile. */
#include "serve/adapters.h"
#include "serve/models.h"
#include "serve/reading.h"
#include "serve/serve.h"
#include <stdlib.h>
#include <string.h>

typedef struct adapter_change {
    reading in; /* the owner of the request */
    struct adapter_change *next;
    uint64_t id;
    const char *name, *path; /* in the body */
    double scale;
    int unloads, replaces;
    int begun, failed;
    unsigned char *awaited; /* [n_links of the model] */
    unsigned n_awaited;
    char why[400];
} adapter_change;

/* ---- the list -------------------------------------------------------------------------------- */

static served_adapter *adapters_named(const served *m, const char *name) {
    for (unsigned i = 0; i < m->adapters.n; i++)
        if (!strcmp(m->adapters.v[i].name, name))
            return &m->adapters.v[i];
    return NULL;
}

static int adapters_add(served *m, const char *name, const char *path, double scale, int of_flags) {
    served_adapters *all = &m->adapters;
    served_adapter *grown = realloc(all->v, (all->n + 1) * sizeof *grown);
    if (!grown)
        return 0;
    all->v = grown;
    const served_adapter a = {strdup(name), strdup(path), scale, of_flags};
    if (!a.name || !a.path) {
        free(a.name);
        free(a.path);
        return 0;
    }
    all->v[all->n++] = a;
    adapters_put_open(m);
    return 1;
}

static void adapters_remove(served *m, const char *name) {
    served_adapters *all = &m->adapters;
    served_adapter *a = adapters_named(m, name);
    if (!a)
        return;
    free(a->name);
    free(a->path);
    *a = all->v[--all->n];
    adapters_put_open(m);
}

void adapters_free(served *m) {
    while (m->adapters.n)
        adapters_remove(m, m->adapters.v[0].name);
    free(m->adapters.v);
    mn_text_free(&m->adapters.lines);
    m->adapters = (served_adapters){0};
}

void adapters_put_open(served *m) {
    mn_text *lines = &m->adapters.lines;
    mn_text_clear(lines);
    for (unsigned i = 0; i < m->adapters.n; i++) {
        const served_adapter *a = &m->adapters.v[i];
        mn_text_printf(lines, "%d\t%.9g\t%s\t%s\n", a->of_flags, a->scale, a->name, a->path);
    }
    m->open.adapters = (mn_str){lines->ptr, lines->failed ? 0 : lines->len};
    m->open.n_adapters = (uint32_t)m->own.max_loras;
    m->open.adapter_rank = (uint32_t)m->own.max_lora_rank;
    m->open.adapter_type = m->own.lora_type ? MN_F16 : MN_F32;
}

const char *adapters_of(const served *m, const char *model) {
    if (!model)
        return NULL;
    for (unsigned i = 0; i < m->adapters.n; i++) {
        const char *name = m->adapters.v[i].name;
        const size_t n = strlen(name);
        const size_t len = strlen(model);
        const int is_end = len > n + 1 && !strcmp(model + len - n, name);
        if (!strcmp(model, name) || (is_end && model[len - n - 1] == ':'))
            return name;
    }
    return NULL;
}

/* A name is part of the names of models, and of a line: no colon, blank or control character. */
static int is_adapter_name(const char *name) {
    if (!*name || strlen(name) >= MN_MAX_ADAPTER_NAME)
        return 0;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        if (*c <= ' ' || *c == ':' || *c == 0x7f)
            return 0;
    return 1;
}

/* The name of a file that has none: its folder's where it is PEFT's weights, without its ending;
 * malloc'ed. */
static char *usual_name(const char *path) {
    char *copy = strdup(path);
    if (!copy)
        return NULL;
    char *end = copy + strlen(copy);
    while (end > copy + 1 && end[-1] == '/')
        *--end = 0;
    char *slash = strrchr(copy, '/');
    if (slash && !strcmp(slash, "/adapter_model.safetensors"))
        *slash = 0;
    slash = strrchr(copy, '/');
    char *name = strdup(slash ? slash + 1 : copy);
    char *dot = name ? strrchr(name, '.') : NULL;
    if (dot && !strcmp(dot, ".gguf"))
        *dot = 0;
    free(copy);
    return name;
}

static int adapter_flag(served *m, const char *text) {
    const char *equals = strchr(text, '=');
    const char *file = equals ? equals + 1 : text;
    const arg_texts one = {&file, 1};
    mn_adapter_source *source = NULL;
    int code = lora_sources("--lora", &one, &source);
    if (code)
        return code;
    char *name = equals ? strndup(text, (size_t)(equals - text)) : usual_name(source->path);
    if (!name)
        code = no_memory();
    else if (!is_adapter_name(name))
        code = complain(EXIT_USAGE,
                        "--lora: found the name \"%.80s\", expected one without colons and blanks",
                        name);
    else if (adapters_named(m, name))
        code = complain(EXIT_USAGE,
                        "--lora: found two adapters that are named \"%s\", expected "
                        "another NAME=FILE",
                        name);
    else if (!adapters_add(m, name, source->path, (double)source->scale, 1))
        code = no_memory();
    free(name);
    lora_free(source, 1);
    return code;
}

int adapters_read_flags(served *m) {
    const arg_texts *list = &m->own.loras;
    int code = 0;
    for (size_t i = 0; i < list->n && !code; i++)
        code = adapter_flag(m, list->v[i]);
    return code;
}

/* ---- changes --------------------------------------------------------------------------------- */

static void change_release(reading *x) {
    adapter_change *c = (adapter_change *)(void *)x;
    adapter_change **at = &x->s->adapter_changes;
    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
    free(c->awaited);
    free(c);
}

/* 0: the error is set. */
static int change_read(reading *x) {
    adapter_change *c = (adapter_change *)(void *)x;
    json_error *e = &x->e;
    c->scale = 1;
    if (!json_read_string(x->body, "lora_name", &c->name, e) ||
        !json_read_string(x->body, "lora_path", &c->path, e) ||
        !json_read_bool(x->body, "load_inplace", &c->replaces, e) ||
        !json_read_number(x->body, "scale", -1e6, 1e6, &c->scale, e))
        return 0;
    if (!c->name || !is_adapter_name(c->name))
        return json_fail(e, "lora_name",
                         "lora_name: found %s%.80s, expected a name without colons and blanks",
                         c->name ? "" : "none", c->name ? c->name : "");
    if (!c->unloads && (!c->path || !*c->path || strpbrk(c->path, "\n\t")))
        return json_fail(e, "lora_path",
                         "lora_path: found %.100s, expected a file or folder on the server",
                         c->path ? c->path : "none");
    return 1;
}

static void change_answer(const adapter_change *c) {
    mn_text out = {0};
    http_request *r = c->in.http;
    if (!r)
        return;
    if (c->failed) {
        http_error(r, (unsigned)c->failed,
                   c->failed == 503 ? "server_error" : "invalid_request_error", "lora_path", NULL,
                   c->why);
        return;
    }
    mn_text_printf(&out, "Success: LoRA adapter '%s' %s successfully.\n", c->name,
                   c->unloads ? "removed" : "added");
    http_answer(r, 200, "text/plain; charset=utf-8", &out);
}

/* To the engines that are ready. awaited: may be NULL; how many. */
static unsigned change_send(const served *m, const wire_adapter *message, unsigned char *awaited) {
    unsigned n = 0;
    for (unsigned i = 0; i < m->n_links; i++) {
        engine_link *l = &m->links[i];
        if (l->state != LINK_READY)
            continue;
        wire_put_adapter(&l->out, message);
        if (link_flush(l) && awaited)
            n += awaited[i] = 1;
    }
    return n;
}

/* All engines have answered. */
static void change_end(adapter_change *c) {
    served *m = c->in.m;
    if (c->failed && !c->unloads) {
        const wire_adapter undo = {.unloads = 1, .name = mn_str_of(c->name)};
        adapters_remove(m, c->name);
        change_send(m, &undo, NULL);
    }
    change_answer(c);
}

static void change_fail(adapter_change *c, int status, const char *why) {
    c->failed = status;
    snprintf(c->why, sizeof c->why, "%s", why);
}

/* The list is changed at once, so that an engine that starts meanwhile has it. */
static void change_list(adapter_change *c) {
    served *m = c->in.m;
    char why[400];
    const int is_there = adapters_named(m, c->name) != NULL;
    if (c->unloads && !is_there) {
        snprintf(why, sizeof why, "lora_name: found \"%.100s\", which is not loaded", c->name);
        change_fail(c, 404, why);
    } else if (!c->unloads && is_there && !c->replaces) {
        snprintf(why, sizeof why,
                 "The lora adapter '%.100s' has already been loaded (load_inplace replaces it)",
                 c->name);
        change_fail(c, 400, why);
    } else if (!c->unloads && models_find(c->in.s, c->name) && !is_there) {
        snprintf(why, sizeof why, "lora_name: \"%.100s\" is the name of a model", c->name);
        change_fail(c, 400, why);
    } else {
        adapters_remove(m, c->name);
        if (!c->unloads && !adapters_add(m, c->name, c->path, c->scale, 0))
            change_fail(c, 503, "out of memory");
    }
}

static void change_begin(reading *x) {
    serve *s = x->s;
    adapter_change *c = (adapter_change *)(void *)x;
    served *m = x->m;
    c->awaited = calloc(m->n_links + 1u, 1);
    if (!c->awaited)
        change_fail(c, 503, "out of memory");
    else if (!m->n_ctx)
        change_fail(c, 503, "the model is loading: try again");
    else
        change_list(c);
    if (c->failed) {
        change_answer(c);
        return;
    }
    c->id = s->next_id++;
    c->next = s->adapter_changes;
    s->adapter_changes = c;
    const wire_adapter undo = {.unloads = 1, .name = mn_str_of(c->name)};
    wire_adapter message = {.id = c->id, .unloads = (uint32_t)c->unloads, .scale = (float)c->scale};
    message.name = mn_str_of(c->name);
    message.path = mn_str_of(c->path ? c->path : "");
    if (c->replaces && !c->unloads)
        change_send(m, &undo, NULL);
    c->begun = 1;
    c->n_awaited = change_send(m, &message, c->awaited);
    if (!c->n_awaited)
        change_end(c);
}

static void adapters_change(serve *s, http_request *r, int unloads) {
    if (!models_permit(s, r))
        return;
    adapter_change *c = calloc(1, sizeof *c);
    if (!c) {
        http_error(r, 503, "server_error", NULL, NULL, "out of memory");
        return;
    }
    c->unloads = unloads;
    c->in.read = change_read;
    c->in.begin = change_begin;
    c->in.release = change_release;
    reading_start(&c->in, s, r);
}

void route_load_adapter(serve *s, http_request *r) {
    adapters_change(s, r, 0);
}

void route_unload_adapter(serve *s, http_request *r) {
    adapters_change(s, r, 1);
}

/* ---- answers of engines ---------------------------------------------------------------------- */

/* The engine's answer is there, or will not come. */
static void change_answered(adapter_change *c, const engine_link *l) {
    const size_t i = (size_t)(l - c->in.m->links);
    if (!c->begun || i >= c->in.m->n_links || !c->awaited[i])
        return;
    c->awaited[i] = 0;
    if (!--c->n_awaited)
        change_end(c);
}

int adapters_changed(serve *s, const engine_link *l, uint64_t id, const mn_str *message) {
    adapter_change *c = s->adapter_changes;
    char why[400];
    while (c && c->id != id)
        c = c->next;
    if (!c)
        return 0;
    if (message) {
        snprintf(why, sizeof why, "%.*s", (int)(message->len < 390 ? message->len : 390),
                 message->ptr ? message->ptr : "");
        change_fail(c, 400, why);
    }
    change_answered(c, l);
    return 1;
}

void adapters_down(serve *s, const engine_link *l) {
    for (adapter_change *c = s->adapter_changes, *next; c; c = next) {
        next = c->next;
        if (c->in.m && c->in.m->links <= l && l < c->in.m->links + c->in.m->n_links)
            change_answered(c, l);
    }
}
