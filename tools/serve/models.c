/* models.c -- the list of models, their names, and their phases (the table in models.h).
 *
 * Everything that frees an engine happens in models_tick, between two rounds of events: a watch of
 * this round may still point to it. What other functions want is noted in the phase. Invariants:
 *
 *   1. A model that a request holds is LOADED, DRAINING or FAILED, or the server is not lazy.
 *   2. Requests wait for a model in the list of that model, in the order of their arrival.
 *   3. Of all models at most one is STARTING, so that what it needs is known before the next one.
 *   4. What an engine holds counts until its process has ended (ENDING). */
#include "serve/models.h"
#include "serve/answer.h"
#include "serve/embeddings.h"
#include <stdlib.h>
#include <string.h>

/* MAX_STARTS: of an engine in a row that ends before it is ready, whatever ends it. */
enum { RETRY_S = 10, MAX_STARTS = 2, PING_AFTER_S = 1 };

static void open_begin(served *m);

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
    m->keep_alive = -1;
    all->v[all->n++] = m;
    return m;
}

void models_free(serve *s) {
    models *all = &s->models;
    adapters_end(s);
    for (unsigned i = 0; i < all->n; i++) {
        served *m = all->v[i];
        model_free_engines(m);
        model_close_text(m);
        model_free_settings(m);
        adapters_free(m);
        free(m->name);
        free(m);
    }
    for (size_t i = 0; i < all->n_texts; i++)
        free(all->texts[i]);
    free(all->texts);
    free(all->v);
    memset(all, 0, sizeof *all);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* NAME, or Ollama's NAME:latest. */
static int models_is_name(const char *asked, const char *name) {
    const size_t n = strlen(name);
    return !strncmp(asked, name, n) && (!asked[n] || !strcmp(asked + n, ":latest"));
}

/* 1 if the model has this name; any: also if it answers to every name. */
static int model_has_name(const served *m, const char *name, int any) {
    const arg_texts *aliases = &m->own.aliases;
    if (models_is_name(name, m->name))
        return 1;
    for (size_t i = 0; i < aliases->n; i++)
        if (models_is_name(name, aliases->v[i]) || (any && !strcmp(aliases->v[i], "*")))
            return 1;
    return 0;
}

/* 1 if the name is "MODEL:ADAPTER", or the adapter's alone. */
static int model_has_adapter(const served *m, const char *name) {
    char model[512];
    const char *adapter = adapters_of(m, name);
    if (!adapter || !strcmp(name, adapter))
        return adapter != NULL;
    const size_t n = strlen(name) - strlen(adapter) - 1;
    snprintf(model, sizeof model, "%.*s", (int)n, name);
    return n < sizeof model && model_has_name(m, model, 0);
}

/* "org/repo" of "org/repo:Q8_0", where no other model of the repository is here. */
static served *find_without_quant(const models *all, const char *name) {
    const size_t n = strlen(name);
    served *found = NULL;
    for (unsigned i = 0; i < all->n && strchr(name, '/'); i++) {
        served *m = all->v[i];
        if (strncmp(m->name, name, n) != 0 || m->name[n] != ':')
            continue;
        if (found)
            return NULL;
        found = m;
    }
    return found;
}

static served *find_by_name(const models *all, const char *name, int any) {
    for (unsigned i = 0; i < all->n; i++)
        if (model_has_name(all->v[i], name, any))
            return all->v[i];
    return NULL;
}

served *models_find(const serve *s, const char *name) {
    served *m = find_by_name(&s->models, name, 0);
    if (!m)
        m = find_without_quant(&s->models, name);
    for (unsigned i = 0; i < s->models.n && !m; i++)
        if (model_has_adapter(s->models.v[i], name))
            m = s->models.v[i];
    return m ? m : find_by_name(&s->models, name, 1);
}

/* "a", "b" or "c": as many names as there is room for. */
static void models_put_names(const models *all, char *out, size_t n) {
    size_t at = 0;
    *out = 0;
    for (unsigned i = 0; i < all->n; i++) {
        const size_t more = strlen(all->v[i]->name) + 4;
        if (at + more + 8 > n) {
            snprintf(out + at, n - at, ", ...");
            return;
        }
        const char *comma = i + 1 < all->n ? ", " : " or ";
        at += (size_t)snprintf(out + at, n - at, "%s\"%s\"", i ? comma : "", all->v[i]->name);
    }
}

served *models_choose(const serve *s, const char *name, json_error *e) {
    const models *all = &s->models;
    char names[300];
    served *m = all->n == 1 ? all->v[0] : models_find(s, "*");
    if (name)
        m = models_find(s, name);
    if (m)
        return m;
    models_put_names(all, names, sizeof names);
    if (name) {
        e->status = 404;
        e->code = "model_not_found";
        json_fail(e, "model", "model: found \"%.100s\", expected %s%s", name, names,
                  all->n == 1 ? " (--alias adds names)" : "");
    } else {
        json_fail(e, "model", "model: found none, expected %s", names);
    }
    return NULL;
}

/* What threads may ask for is a number of its own. */
static void count_sequences(models *all) {
    uint32_t n = 0;
    for (unsigned i = 0; i < all->n; i++)
        n += all->v[i]->n_seq * all->v[i]->n_links;
    all->n_sequences = n;
}

/* ---- who waits ------------------------------------------------------------------------------- */

static void waiting_append(served *m, reading *x) {
    x->waits = 1;
    x->previous_waiting = m->last_waiting;
    x->next_waiting = NULL;
    if (m->last_waiting)
        m->last_waiting->next_waiting = x;
    else
        m->first_waiting = x;
    m->last_waiting = x;
    m->n_waiting++;
}

static void waiting_take_out(served *m, reading *x) {
    x->waits = 0;
    if (x->previous_waiting)
        x->previous_waiting->next_waiting = x->next_waiting;
    else
        m->first_waiting = x->next_waiting;
    if (x->next_waiting)
        x->next_waiting->previous_waiting = x->previous_waiting;
    else
        m->last_waiting = x->previous_waiting;
    m->n_waiting--;
}

/* The requests that wait go on: the model is loaded. */
static void model_resume(served *m) {
    while (m->phase == MODEL_LOADED && m->first_waiting) {
        reading *x = m->first_waiting;
        waiting_take_out(m, x);
        models_enter(x);
    }
}

/* The sentence of a model that failed as the error of a request. */
static void set_failure(const served *m, json_error *e) {
    e->status = m->status;
    e->code = "model_failed";
    json_fail(e, NULL, "%.100s cannot be loaded: %.380s", m->name, m->why);
}

static void refuse_with(const served *m, reading *x) {
    set_failure(m, &x->e);
    reading_refuse(x);
}

/* 1 if the model has failed so lately that it is not tried again, or its requests are not over. */
static int is_failure(const served *m, double now) {
    return m->phase == MODEL_FAILED && (m->is_open || now - m->failed_at < RETRY_S);
}

void models_enter(reading *x) {
    served *m = x->m;
    const double now = seconds();
    m->used_at = now;
    if (is_failure(m, now)) {
        refuse_with(m, x);
        return;
    }
    if (!m->s->models.lazy || m->phase == MODEL_LOADED) {
        x->holds = 1;
        m->n_held++;
        reading_go(x);
        return;
    }
    waiting_append(m, x);
    if (m->phase == MODEL_UNLOADED || m->phase == MODEL_FAILED)
        open_begin(m);
}

void models_leave(reading *x) {
    served *m = x->m;
    if (x->waits)
        waiting_take_out(m, x);
    if (!x->holds)
        return;
    x->holds = 0;
    m->n_held--;
    m->used_at = seconds();
}

void models_stay(const reading *x, double seconds) {
    if (models_may(x->s, x->http))
        x->m->stay = seconds;
}

void models_check(reading *x) {
    if (x->m->phase == MODEL_FAILED)
        set_failure(x->m, &x->e);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* The model has a sentence from now on: for what waits for it, and for what it was computing. */
static void model_fail(served *m, unsigned status, const char *why) {
    snprintf(m->why, sizeof m->why, "%s", why);
    m->status = status;
    m->failed_at = seconds();
    m->phase = MODEL_FAILED;
    m->asked = 0;
    m->n_failures++;
    note("warning: model %s: %s", m->name, m->why);
    for (unsigned i = 0; i < m->n_links; i++)
        link_stop(&m->links[i]);
    answers_fail(m, status, m->why);
    embeddings_fail(m, status, m->why);
    while (m->first_waiting) {
        reading *x = m->first_waiting;
        waiting_take_out(m, x);
        refuse_with(m, x);
    }
}

/* ---- open ------------------------------------------------------------------------------------ */

/* In a thread, or in the loop. */
static void open_work(task *t) {
    model_opening *o = (model_opening *)(void *)t;
    o->code = model_open_text(o->m);
    if (o->code == 0)
        model_estimate(o->m);
}

static int model_is_wanted(const served *m) {
    return m->asked || m->first_waiting;
}

static void open_done(task *t) {
    const model_opening *o = (model_opening *)(void *)t;
    served *m = o->m;
    m->is_open = 1;
    if (o->code) {
        const char *why = plain_message(m->a.err.msg);
        model_fail(m, o->code == EXIT_NO_MEMORY ? 503 : 500,
                   *why ? why : "its files or settings cannot be used: the server's log says why");
        return;
    }
    m->phase = MODEL_QUEUED;
}

/* m is UNLOADED or FAILED, and nothing of it is open. */
static void open_begin(served *m) {
    m->phase = MODEL_OPENING;
    m->wanted_at = m->first_waiting ? m->first_waiting->http->since : seconds();
    m->opening = (model_opening){.task = {.work = open_work, .done = open_done}, .m = m};
    if (m->s->tasks) {
        tasks_add(m->s->tasks, &m->opening.task);
        return;
    }
    open_work(&m->opening.task);
    open_done(&m->opening.task);
}

/* ---- end ------------------------------------------------------------------------------------- */

/* Its engines end; nobody holds it. */
static void end_begin(served *m) {
    m->phase = MODEL_ENDING;
    m->must_end = 0;
    m->n_ctx = 0;
    for (unsigned i = 0; i < m->n_links; i++)
        link_stop(&m->links[i]);
}

/* A loaded model is to go. */
static void model_unload(served *m) {
    if (m->n_held)
        m->phase = MODEL_DRAINING;
    else
        end_begin(m);
}

/* 1 if no engine has a process any more. */
static int all_ended(const served *m) {
    for (unsigned i = 0; i < m->n_links; i++)
        if (m->links[i].state != LINK_DEAD)
            return 0;
    return 1;
}

static void model_close(served *m) {
    model_free_engines(m);
    model_close_text(m);
    m->is_open = 0;
    m->s->n_trims = 2;
    m->s->models.n_ended++;
    count_sequences(&m->s->models);
}

/* Its memory is free; what has come meanwhile wants it again. */
static void end_if_ended(served *m) {
    if (!all_ended(m))
        return;
    model_close(m);
    m->phase = MODEL_UNLOADED;
    app_remark(&m->s->a, "model %s is unloaded", m->name);
    if (model_is_wanted(m))
        open_begin(m);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* 1 if the model has engines that hold memory. */
static int holds_memory(const served *m) {
    return m->phase == MODEL_STARTING || m->phase == MODEL_LOADED || m->phase == MODEL_DRAINING ||
           m->phase == MODEL_ENDING;
}

/* Bytes that the model needs: as its engines had them last, else as estimated. */
static uint64_t model_need(const served *m) {
    return m->measured ? m->measured : m->estimate;
}

/* What the models that hold memory need together. on_host: of them those on CPUs alone. */
static uint64_t bytes_held(const models *all, int on_host) {
    uint64_t n = 0;
    for (unsigned i = 0; i < all->n; i++)
        if (holds_memory(all->v[i]) && (!on_host || all->v[i]->on_host))
            n += model_need(all->v[i]);
    return n;
}

static unsigned n_holding(const models *all) {
    unsigned n = 0;
    for (unsigned i = 0; i < all->n; i++)
        n += (unsigned)holds_memory(all->v[i]);
    return n;
}

/* 1 if m fits beside what holds memory now. Where no limit is given, models on CPUs may have five
 * sixths of the machine's memory together; other devices are asked by their engines alone. */
static int model_fits(const served *m) {
    const models *all = &m->s->models;
    if (all->most && n_holding(all) >= all->most)
        return 0;
    if (all->n_ended < m->crowded_until)
        return 0;
    if (all->memory)
        return bytes_held(all, 0) + model_need(m) <= all->memory;
    const uint64_t on_host = bytes_held(all, 1);
    return !on_host || on_host + model_need(m) <= all->host_memory;
}

/* The model that is to give its memory: the least recently used one, of those that no request holds
 * if there are such. NULL: none is loaded. */
static served *victim_of(const models *all) {
    served *found = NULL;
    for (unsigned i = 0; i < all->n; i++) {
        served *m = all->v[i];
        if (m->phase != MODEL_LOADED)
            continue;
        const int idler = found && !m->n_held && found->n_held;
        const int busier = found && m->n_held && !found->n_held;
        if (!found || idler || (!busier && m->used_at < found->used_at))
            found = m;
    }
    return found;
}

/* One model gives its memory, unless one is about to. 0: there is none. */
static int models_make_room(const models *all) {
    for (unsigned i = 0; i < all->n; i++)
        if (all->v[i]->phase == MODEL_DRAINING || all->v[i]->phase == MODEL_ENDING)
            return 1;
    served *victim = victim_of(all);
    if (victim)
        model_unload(victim);
    return victim != NULL;
}

/* The model is alone and does not fit. */
static void fail_for_size(served *m) {
    char why[200];
    snprintf(why, sizeof why, "it needs about %.0f MiB of memory, --models-memory is %.0f",
             (double)model_need(m) / 1048576, (double)m->s->models.memory / 1048576);
    model_fail(m, 503, why);
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* The model whose turn it is; NULL: none waits, or one is being started. */
static served *next_of(const models *all) {
    served *first = NULL;
    for (unsigned i = 0; i < all->n; i++) {
        served *m = all->v[i];
        if (m->phase == MODEL_STARTING)
            return NULL;
        if (m->phase == MODEL_QUEUED && (!first || m->wanted_at < first->wanted_at))
            first = m;
    }
    return first;
}

static int any_in(const models *all, model_phase phase) {
    unsigned i = 0;
    while (i < all->n && all->v[i]->phase != phase)
        i++;
    return i < all->n;
}

/* Models that were drained for others which nobody waits for any more go on. */
static void undrain(const models *all) {
    if (any_in(all, MODEL_QUEUED) || any_in(all, MODEL_OPENING))
        return;
    for (unsigned i = 0; i < all->n; i++) {
        served *m = all->v[i];
        if (m->phase != MODEL_DRAINING || m->must_end)
            continue;
        m->phase = MODEL_LOADED;
        model_resume(m);
    }
}

static void model_take_turn(served *m) {
    m->phase = MODEL_STARTING;
    if (model_start(m) != 0)
        model_fail(m, 503, "out of memory");
}

static void give_turn(models *all) {
    served *m = next_of(all);
    if (!m) {
        undrain(all);
    } else if (!model_is_wanted(m)) {
        model_close(m);
        m->phase = MODEL_UNLOADED;
    } else if (model_fits(m)) {
        model_take_turn(m);
    } else if (!models_make_room(all)) {
        if (all->memory && model_need(m) > all->memory)
            fail_for_size(m);
        else
            model_take_turn(m); /* nothing else is loaded: its engine knows whether it fits */
    }
}

/* ---- engines --------------------------------------------------------------------------------- */

void models_ready(served *m) {
    const char *device = m->links[0].info_texts[0] ? m->links[0].info_texts[0] : "";
    const int is_new = m->phase != MODEL_LOADED && m->phase != MODEL_DRAINING;
    m->measured = models_bytes(m);
    count_sequences(&m->s->models);
    m->on_host = !strncmp(device, "cpu", 3) || !strncmp(device, "reference", 9);
    if (!is_new)
        return;
    m->n_loads++;
    m->phase = MODEL_LOADED;
    m->stay = m->keep_alive;
    m->asked = 0;
    m->used_at = seconds();
    model_resume(m);
}

/* An engine that has ended so often in a row that it will not be ready; NULL: some may be. */
static const engine_link *hopeless(const served *m) {
    const engine_link *last = NULL;
    for (unsigned i = 0; i < m->n_links; i++) {
        last = &m->links[i];
        if (last->state != LINK_DEAD && last->n_failed < MAX_STARTS)
            return NULL;
    }
    return last;
}

/* Its engines have ended. Where one found too little memory beside other models, one of those is
 * unloaded, and it is tried again. */
static void on_hopeless(served *m, const engine_link *l) {
    const models *all = &m->s->models;
    if (!models_are_several(m->s) && !m->n_loads)
        return; /* the end of the server */
    const int of_memory = l->exit_code == EXIT_NO_MEMORY;
    char why[sizeof m->why];
    snprintf(why, sizeof why, "%s", l->why ? l->why : "its engine has ended");
    if (m->phase != MODEL_STARTING || !of_memory || n_holding(all) < 2) {
        model_fail(m, of_memory ? 503 : 500, why);
        return;
    }
    model_free_engines(m);
    m->phase = MODEL_QUEUED;
    m->crowded_until = all->n_ended + 1;
}

/* 1 if nobody has asked for it for its time. */
static int is_stale(const served *m, double now) {
    return m->stay >= 0 && !m->n_held && now - m->used_at >= m->stay;
}

/* What has happened to one model, and what the time brings. */
static void model_tick(served *m, double now) {
    for (unsigned i = 0; i < m->n_links; i++)
        link_tick(&m->links[i], now);
    if (!m->s->models.lazy)
        return;
    if (m->phase == MODEL_STARTING || m->phase == MODEL_LOADED || m->phase == MODEL_DRAINING) {
        const engine_link *l = hopeless(m);
        if (l)
            on_hopeless(m, l);
    }
    if (m->phase == MODEL_LOADED && is_stale(m, now))
        end_begin(m);
    if (m->phase == MODEL_DRAINING && !m->n_held)
        end_begin(m);
    if (m->phase == MODEL_ENDING)
        end_if_ended(m);
    if (m->phase == MODEL_FAILED && m->is_open && !m->n_held && all_ended(m))
        model_close(m);
}

void models_tick(serve *s, double now) {
    models *all = &s->models;
    const int pings = now - all->pinged_at >= PING_AFTER_S;
    for (unsigned i = 0; i < all->n; i++)
        model_tick(all->v[i], now);
    if (!all->lazy)
        return;
    give_turn(all);
    if (!pings)
        return;
    all->pinged_at = now;
    for (unsigned i = 0; i < all->n; i++)
        for (reading *x = all->v[i]->first_waiting; x; x = x->next_waiting)
            reading_ping(x, now);
}

int models_begin(serve *s) {
    const models *all = &s->models;
    int code = 0;
    for (unsigned i = 0; i < all->n && !code; i++)
        code = adapters_read_flags(all->v[i]);
    if (code)
        return code;
    if (!models_are_several(s)) {
        all->v[0]->phase = MODEL_STARTING;
        all->v[0]->asked = 1;
        return model_start(all->v[0]);
    }
    for (unsigned i = 0; i < all->n; i++)
        if (all->v[i]->asked)
            open_begin(all->v[i]);
    return 0;
}

/* ---- loading and unloading ------------------------------------------------------------------- */

/* The name of a key that may manage. */
static int is_admin(const char *name) {
    static const char admin[] = "admin";
    const size_t n = sizeof admin - 1;
    return !strncmp(name, admin, n) && (!name[n] || name[n] == '-');
}

int models_may(const serve *s, const http_request *r) {
    const int has_key = r->key >= 0 && (size_t)r->key < s->access.n_keys;
    return s->flags->manage || (has_key && is_admin(s->access.names[r->key]));
}

int models_permit(const serve *s, http_request *r) {
    if (models_may(s, r))
        return 1;
    http_error(r, 403, "permission_error", NULL, "not_permitted",
               "models are loaded, unloaded, pulled and deleted with --manage alone, or with a key "
               "that is named admin");
    return 0;
}

const char *models_state(const served *m) {
    if (!m->s->models.lazy)
        return m->n_ctx ? "loaded" : "loading";
    switch (m->phase) {
    case MODEL_LOADED:
    case MODEL_DRAINING:
        return "loaded";
    case MODEL_OPENING:
    case MODEL_QUEUED:
    case MODEL_STARTING:
        return "loading";
    case MODEL_FAILED:
        return "failed";
    default:
        return "unloaded";
    }
}

/* 0 with the error set where the server has one model for good. */
static int may_change(const served *m, json_error *e) {
    return m->s->models.lazy ||
           json_fail(e, "model",
                     "%.200s is the only model of this server, which stays loaded: expected "
                     "--models, --all-models, several -m or --keep-alive",
                     m->name);
}

int models_load(served *m, json_error *e) {
    if (!may_change(m, e))
        return 0;
    if (m->phase == MODEL_LOADED)
        return json_fail(e, "model", "%.200s is loaded already", m->name);
    m->asked = 1;
    m->must_end = 0;
    if (m->phase == MODEL_UNLOADED || (m->phase == MODEL_FAILED && !m->is_open))
        open_begin(m);
    return 1;
}

int models_unload(served *m, json_error *e) {
    if (!may_change(m, e))
        return 0;
    m->asked = 0; /* one that is queued is not started, unless requests wait for it */
    if (m->phase == MODEL_STARTING && !m->first_waiting)
        end_begin(m);
    else if (m->phase == MODEL_LOADED || m->phase == MODEL_DRAINING) {
        m->must_end = 1;
        model_unload(m);
    } else if (m->phase != MODEL_OPENING && m->phase != MODEL_QUEUED)
        return json_fail(e, "model", "%.200s is not loaded", m->name);
    return 1;
}

/* Weights that are used where the file is mapped are none of the engine's own, and need memory. */
uint64_t models_bytes(const served *m) {
    const uint64_t of_files = m->is_open ? m->a.info.n_bytes : 0;
    uint64_t n = 0;
    for (unsigned i = 0; i < m->n_links; i++) {
        const wire_ready *info = &m->links[i].info;
        if (m->links[i].state == LINK_READY)
            n += info->kv_bytes + (info->weight_bytes > of_files ? info->weight_bytes : of_files);
    }
    return n;
}

/* ---- of all models --------------------------------------------------------------------------- */

int models_are_open(const serve *s) {
    return s->models.lazy || (s->models.n && s->models.v[0]->n_ctx);
}

int models_were_ready(const serve *s) {
    return models_are_several(s) || (s->models.n && s->models.v[0]->n_loads);
}

unsigned models_engines_ready(const serve *s) {
    unsigned n = 0;
    for (unsigned i = 0; i < s->models.n; i++)
        for (unsigned k = 0; k < s->models.v[i]->n_links; k++)
            n += s->models.v[i]->links[k].state == LINK_READY;
    return n;
}
