/* models.c -- the list of models, their names, and what the server knows of all of them. */
#include "serve/models.h"
#include "serve/serve.h"
#include <stdlib.h>
#include <string.h>

/* ---- the list -------------------------------------------------------------------------------- */

served *models_add(serve *s, const char *name) {
    models *all = &s->models;
    served **grown = realloc(all->v, (all->n + 1) * sizeof(served *));
    all->v = grown ? grown : all->v;
    served *m = grown ? calloc(1, sizeof *m) : NULL;
    char *copy = m ? strdup(name) : NULL;
    if (!copy) {
        free(m);
        return NULL;
    }
    m->s = s;
    m->name = copy;
    all->v[all->n++] = m;
    return m;
}

void models_free(serve *s) {
    models *all = &s->models;
    for (unsigned i = 0; i < all->n; i++) {
        served *m = all->v[i];
        model_free_engines(m);
        model_close_text(m);
        free(m->name);
        free(m);
    }
    free(all->v);
    *all = (models){0};
}

/* ---- names ----------------------------------------------------------------------------------- */

/* NAME, or Ollama's NAME:latest. */
static int models_is_name(const char *asked, const char *name) {
    const size_t n = strlen(name);
    return !strncmp(asked, name, n) && (!asked[n] || !strcmp(asked + n, ":latest"));
}

/* 1 if the model has this name; any: also if it answers to every name. */
static int has_name(const served *m, const char *name, int any) {
    const arg_texts *aliases = &m->own.aliases;
    if (models_is_name(name, m->name))
        return 1;
    for (size_t i = 0; i < aliases->n; i++)
        if (models_is_name(name, aliases->v[i]) || (any && !strcmp(aliases->v[i], "*")))
            return 1;
    return 0;
}

served *models_find(const serve *s, const char *name) {
    const models *all = &s->models;
    for (int any = 0; any < 2; any++)
        for (unsigned i = 0; i < all->n; i++)
            if (has_name(all->v[i], name, any))
                return all->v[i];
    return NULL;
}

served *models_choose(const serve *s, const char *name, json_error *e) {
    served *m = name ? models_find(s, name) : s->models.v[0];
    if (m)
        return m;
    e->status = 404;
    e->code = "model_not_found";
    json_fail(e, "model", "model: found \"%.100s\", expected \"%.100s\" (--alias adds names)", name,
              s->models.v[0]->name);
    return NULL;
}

/* ---- loading and unloading ------------------------------------------------------------------- */

/* The name of a key that may manage. */
static int is_admin(const char *name) {
    static const char admin[] = "admin";
    const size_t n = sizeof admin - 1;
    return !strncmp(name, admin, n) && (!name[n] || name[n] == '-');
}

int models_permit(const serve *s, http_request *r) {
    const int has_key = r->key >= 0 && (size_t)r->key < s->access.n_keys;
    if (s->flags->manage || (has_key && is_admin(s->access.names[r->key])))
        return 1;
    http_error(r, 403, "permission_error", NULL, "not_permitted",
               "models are loaded, unloaded, pulled and deleted with --manage alone, or with a key "
               "that is named admin");
    return 0;
}

const char *models_state(const served *m) {
    return m->n_ctx ? "loaded" : "loading";
}

int models_load(served *m, json_error *e) {
    return json_fail(e, "model", "%.200s is the only model of this server: it is loaded", m->name);
}

int models_unload(served *m, json_error *e) {
    return json_fail(e, "model", "%.200s is the only model of this server: it stays loaded",
                     m->name);
}

uint64_t models_bytes(const served *m) {
    uint64_t n = 0;
    for (unsigned i = 0; i < m->n_links; i++)
        if (m->links[i].state == LINK_READY)
            n += m->links[i].info.weight_bytes + m->links[i].info.kv_bytes;
    return n;
}

/* ---- of all models --------------------------------------------------------------------------- */

int models_are_open(const serve *s) {
    return s->models.n && s->models.v[0]->n_ctx;
}

uint64_t models_sequences(const serve *s) {
    uint64_t n = 0;
    for (unsigned i = 0; i < s->models.n; i++)
        n += (uint64_t)s->models.v[i]->n_seq * s->models.v[i]->n_links;
    return n;
}

unsigned models_ready(const serve *s) {
    unsigned n = 0;
    for (unsigned i = 0; i < s->models.n; i++)
        for (unsigned k = 0; k < s->models.v[i]->n_links; k++)
            n += s->models.v[i]->links[k].state == LINK_READY;
    return n;
}

void models_tick(serve *s, double now) {
    for (unsigned i = 0; i < s->models.n; i++)
        for (unsigned k = 0; k < s->models.v[i]->n_links; k++)
            link_tick(&s->models.v[i]->links[k], now);
}
