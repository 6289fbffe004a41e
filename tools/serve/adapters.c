/* adapters.c -- see adapters.h; /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has
 * them. A request becomes a change once it is read; the change waits for its engines, also when the
 * client has left, and takes back what an engine refuses. */
#include "serve/adapters.h"
#include "serve/models.h"
#include "serve/reading.h"
#include "serve/serve.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    reading in;              /* the owner of the request */
    const char *name, *path; /* in the body */
    double scale;
    int unloads, replaces;
    struct adapter_change *change; /* that has begun, and not ended */
} change_request;

typedef struct adapter_change {
    struct adapter_change *next;
    uint64_t id;
    served *m;
    change_request *of; /* NULL: the client has left */
    char name[MN_MAX_ADAPTER_NAME];
    int unloads;
    int failed;             /* HTTP status */
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

/* EXIT_* */
static int flag_add(served *m, const char *name, const mn_adapter_source *source) {
    if (!is_adapter_name(name))
        return complain(EXIT_USAGE,
                        "--lora: found the name \"%.80s\", expected one without colons and blanks",
                        name);
    if (adapters_named(m, name))
        return complain(EXIT_USAGE,
                        "--lora: found two adapters that are named \"%s\", expected "
                        "another NAME=FILE",
                        name);
    if (!adapters_add(m, name, source->path, (double)source->scale, 1))
        return no_memory();
    return 0;
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
    code = name ? flag_add(m, name, source) : no_memory();
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

static void request_release(reading *x) {
    change_request *r = (change_request *)(void *)x;
    if (r->change)
        r->change->of = NULL;
    free(r);
}

/* 0: the error is set. */
static int request_read(reading *x) {
    change_request *r = (change_request *)(void *)x;
    json_error *e = &x->e;
    r->scale = 1;
    if (!json_read_string(x->body, "lora_name", &r->name, e) ||
        !json_read_string(x->body, "lora_path", &r->path, e) ||
        !json_read_bool(x->body, "load_inplace", &r->replaces, e) ||
        !json_read_number(x->body, "scale", -1e6, 1e6, &r->scale, e))
        return 0;
    if (!r->name || !is_adapter_name(r->name))
        return json_fail(e, "lora_name",
                         "lora_name: found %s%.80s, expected a name without colons and blanks",
                         r->name ? "" : "none", r->name ? r->name : "");
    if (!r->unloads && (!r->path || !*r->path || strpbrk(r->path, "\n\t")))
        return json_fail(e, "lora_path",
                         "lora_path: found %.100s, expected a file or folder on the server",
                         r->path ? r->path : "none");
    return 1;
}

/* failed: HTTP status, for which why is; 0: done. */
static void request_answer(const change_request *r, int failed, const char *why) {
    mn_text out = {0};
    if (!r->in.http)
        return;
    if (failed) {
        http_error(r->in.http, (unsigned)failed,
                   failed == 503 ? "server_error" : "invalid_request_error", "lora_path", NULL,
                   why);
        return;
    }
    mn_text_printf(&out, "Success: LoRA adapter '%s' %s successfully.\n", r->name,
                   r->unloads ? "removed" : "added");
    http_answer(r->in.http, 200, "text/plain; charset=utf-8", &out);
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

/* All engines have answered. Frees c, which is in the list. */
static void change_end(serve *s, adapter_change *c) {
    adapter_change **at = &s->adapter_changes;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    if (c->failed && !c->unloads) {
        const wire_adapter undo = {.unloads = 1, .name = mn_str_of(c->name)};
        adapters_remove(c->m, c->name);
        change_send(c->m, &undo, NULL);
    }
    if (c->of) {
        c->of->change = NULL;
        request_answer(c->of, c->failed, c->why);
    }
    free(c->awaited);
    free(c);
}

/* The list is changed at once, so that an engine that starts meanwhile has it. HTTP status, for
 * which why is filled; 0: done. */
static int change_list(const change_request *r, char *why, size_t cap) {
    served *m = r->in.m;
    const int is_there = adapters_named(m, r->name) != NULL;
    if (r->unloads && !is_there) {
        snprintf(why, cap, "lora_name: found \"%.100s\", which is not loaded", r->name);
        return 404;
    }
    if (!r->unloads && is_there && !r->replaces) {
        snprintf(why, cap,
                 "The lora adapter '%.100s' has already been loaded (load_inplace replaces it)",
                 r->name);
        return 400;
    }
    if (!r->unloads && models_find(r->in.s, r->name) && !is_there) {
        snprintf(why, cap, "lora_name: \"%.100s\" is the name of a model", r->name);
        return 400;
    }
    adapters_remove(m, r->name);
    if (!r->unloads && !adapters_add(m, r->name, r->path, r->scale, 0)) {
        snprintf(why, cap, "out of memory");
        return 503;
    }
    return 0;
}

/* In the list of changes; NULL: out of memory. */
static adapter_change *change_new(change_request *r) {
    serve *s = r->in.s;
    adapter_change *c = calloc(1, sizeof *c);
    if (c)
        c->awaited = calloc(r->in.m->n_links + 1u, 1);
    if (!c || !c->awaited) {
        free(c);
        return NULL;
    }
    snprintf(c->name, sizeof c->name, "%s", r->name);
    c->m = r->in.m;
    c->unloads = r->unloads;
    c->id = s->next_id++;
    c->of = r;
    r->change = c;
    c->next = s->adapter_changes;
    s->adapter_changes = c;
    return c;
}

static void request_begin(reading *x) {
    change_request *r = (change_request *)(void *)x;
    char why[400] = "the model is loading: try again";
    const int failed = x->m->n_ctx ? change_list(r, why, sizeof why) : 503;
    adapter_change *c = failed ? NULL : change_new(r);
    if (!c) {
        if (!failed)
            adapters_remove(x->m, r->name);
        request_answer(r, failed ? failed : 503, failed ? why : "out of memory");
        return;
    }
    const wire_adapter undo = {.unloads = 1, .name = mn_str_of(c->name)};
    const wire_adapter message = {.id = c->id,
                                  .unloads = (uint32_t)r->unloads,
                                  .scale = (float)r->scale,
                                  .name = mn_str_of(c->name),
                                  .path = mn_str_of(r->path ? r->path : "")};
    if (r->replaces && !r->unloads)
        change_send(c->m, &undo, NULL);
    c->n_awaited = change_send(c->m, &message, c->awaited);
    if (!c->n_awaited)
        change_end(x->s, c);
}

static void adapters_change(serve *s, http_request *http, int unloads) {
    if (!models_permit(s, http))
        return;
    change_request *r = calloc(1, sizeof *r);
    if (!r) {
        http_error(http, 503, "server_error", NULL, NULL, "out of memory");
        return;
    }
    r->unloads = unloads;
    r->in.read = request_read;
    r->in.begin = request_begin;
    r->in.release = request_release;
    reading_start(&r->in, s, http);
}

void route_load_adapter(serve *s, http_request *r) {
    adapters_change(s, r, 0);
}

void route_unload_adapter(serve *s, http_request *r) {
    adapters_change(s, r, 1);
}

/* ---- answers of engines ---------------------------------------------------------------------- */

/* The engine's answer is there, or will not come. c is freed with the last one. */
static void change_answered(serve *s, adapter_change *c, const engine_link *l) {
    const size_t i = (size_t)(l - c->m->links);
    if (i >= c->m->n_links || !c->awaited[i])
        return;
    c->awaited[i] = 0;
    if (!--c->n_awaited)
        change_end(s, c);
}

int adapters_changed(serve *s, const engine_link *l, uint64_t id, const mn_str *message) {
    adapter_change *c = s->adapter_changes;
    while (c && c->id != id)
        c = c->next;
    if (!c)
        return 0;
    if (message) {
        c->failed = 400;
        snprintf(c->why, sizeof c->why, "%.*s", (int)(message->len < 390 ? message->len : 390),
                 message->ptr ? message->ptr : "");
    }
    change_answered(s, c, l);
    return 1;
}

void adapters_end(serve *s) {
    for (adapter_change *c = s->adapter_changes, *next; c; c = next) {
        next = c->next;
        if (c->of)
            c->of->change = NULL;
        free(c->awaited);
        free(c);
    }
    s->adapter_changes = NULL;
}

void adapters_down(serve *s, const engine_link *l) {
    for (adapter_change *c = s->adapter_changes, *next; c; c = next) {
        next = c->next;
        if (c->m->links <= l && l < c->m->links + c->m->n_links)
            change_answered(s, c, l);
    }
}
