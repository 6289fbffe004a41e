/* info_routes.c -- what the server says of itself: /v1/models, /health, /metrics and the page. */
#include "serve/generation.h"
#include "serve/page.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A scheduler that has shown no life for so long, and for so many of its usual steps, is stuck. */
enum { SILENCE_S = 10, SILENCE_STEPS = 20 };

/* ---- models ---------------------------------------------------------------------------------- */

/* What Anthropic's clients read of the same object. */
static void put_other_model(const serve *s, const char *name, mn_text *out) {
    const time_t created = (time_t)s->created;
    struct tm day = {0};
    char date[32] = "1970-01-01T00:00:00Z";
    if (gmtime_r(&created, &day))
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &day);
    mn_text_printf(out, ",\"type\":\"model\",\"created_at\":\"%s\",\"display_name\":", date);
    json_stringz(out, name);
}

/* llama-server's "status", with the sentence of a model that failed. */
static void put_status(const served *m, mn_text *out) {
    const int failed = m->phase == MODEL_FAILED;
    mn_text_printf(out, ",\"status\":{\"value\":\"%s\"", models_state(m));
    if (failed) {
        mn_text_puts(out, ",\"failed\":true,\"message\":");
        json_stringz(out, m->why);
    }
    mn_text_puts(out, "}");
}

/* OpenAI's object of a model with vLLM's max_model_len, and what the page shows. */
static void put_model(const served *m, const char *name, mn_text *out) {
    const mn_model_info none = {0};
    const mn_model_info *info = m->is_open ? &m->a.info : &none; /* a thread may open it */
    const char *device = m->n_links ? m->links[0].info_texts[0] : NULL;
    mn_text_puts(out, "{\"id\":");
    json_stringz(out, name);
    mn_text_printf(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"minerva\",\"root\":",
                   (long long)m->s->created);
    json_stringz(out, m->name);
    put_other_model(m->s, name, out);
    mn_text_printf(
        out, ",\"max_model_len\":%u,\"minerva\":{\"parameters\":%llu,\"n_vocab\":%lld,\"device\":",
        m->n_ctx, (unsigned long long)info->n_params, (long long)info->n_vocab);
    json_stringz(out, device ? device : "");
    mn_text_printf(
        out,
        ",\"chat\":%s,\"sampling\":{\"temperature\":%.4g,\"top_p\":%.4g,\"min_p\":%.4g,"
        "\"top_k\":%d,\"repetition_penalty\":%.4g}}",
        !m->is_open || info->has_chat_template || m->own.chat_template ? "true" : "false",
        (double)m->sample.temp, (double)m->sample.top_p, (double)m->sample.min_p, m->sample.top_k,
        m->sample.repeat_penalty > 0 ? (double)m->sample.repeat_penalty : 1.0);
    put_status(m, out);
    mn_text_puts(out, "}");
}

/* "MODEL:ADAPTER" */
static void put_adapter(const served *m, const served_adapter *a, mn_text *out) {
    char name[640];
    snprintf(name, sizeof name, "%s:%s", m->name, a->name);
    mn_text_puts(out, ",");
    put_model(m, name, out);
}

/* The model by its name and by its aliases, and with each of its adapters. last: the name that was
 * put last. */
static void put_names(const served *m, const char **last, mn_text *out) {
    const arg_texts *aliases = &m->own.aliases;
    mn_text_puts(out, *last ? "," : "");
    put_model(m, m->name, out);
    *last = m->name;
    for (size_t i = 0; i < aliases->n; i++) {
        const char *name = aliases->v[i];
        if (!strcmp(name, m->name) || !strcmp(name, "*"))
            continue;
        mn_text_puts(out, ",");
        put_model(m, name, out);
        *last = name;
    }
    for (unsigned i = 0; i < m->adapters.n; i++)
        put_adapter(m, &m->adapters.v[i], out);
}

void route_models(serve *s, http_request *r) {
    const char *last = NULL;
    mn_text out = {0};
    mn_text_puts(&out, "{\"object\":\"list\",\"data\":[");
    for (unsigned i = 0; i < s->models.n; i++)
        put_names(s->models.v[i], &last, &out);
    mn_text_puts(&out, "],\"has_more\":false,\"first_id\":");
    json_stringz(&out, s->models.v[0]->name);
    mn_text_puts(&out, ",\"last_id\":");
    json_stringz(&out, last);
    mn_text_puts(&out, "}\n");
    serve_json(s, r, &out);
}

void route_model(serve *s, http_request *r) {
    const char *name = r->path + strlen("/v1/models/");
    json_error e = {0};
    mn_text out = {0};
    const served *m = models_choose(s, name, &e);
    if (!m) {
        serve_refuse(s, r, &e);
        return;
    }
    put_model(m, name, &out);
    mn_text_puts(&out, "\n");
    serve_json(s, r, &out);
}

/* ---- metrics --------------------------------------------------------------------------------- */

/* Sums over the engines of a model. */
static metrics_now now_of(const served *m) {
    metrics_now now = {.n_connections = http_connections(m->s->http),
                       .unix_s = (double)time(NULL),
                       .has_prefix_cache = !m->own.no_cache};
    uint64_t used = 0;
    uint64_t total = 0;
    for (unsigned i = 0; i < m->n_links; i++) {
        const engine_link *l = &m->links[i];
        now.n_running += l->beat.n_running;
        now.n_preempted += l->n_preempted + l->beat.n_preempted;
        now.cache_queries += l->cache_queries + l->beat.cache_queries;
        now.cache_hits += l->cache_hits + l->beat.cache_hits;
        now.n_drafted += l->n_drafted + l->beat.n_drafted;
        now.n_accepted += l->n_accepted + l->beat.n_accepted;
        now.n_forced += l->n_forced + l->beat.n_forced;
        now.forms_ns += l->forms_ns + l->beat.forms_ns;
        if (l->beat.forms_most_ns > now.forms_most_ns)
            now.forms_most_ns = l->beat.forms_most_ns;
        now.n_restarts += l->n_restarts;
        now.n_ready += l->state == LINK_READY;
        used += l->beat.pages_used;
        total += l->beat.pages_total;
        if (l->beat.page_tokens > now.page_tokens)
            now.page_tokens = l->beat.page_tokens;
    }
    now.state = models_state(m);
    now.n_loads = m->n_loads;
    now.n_load_failures = m->n_failures;
    now.n_awaiting = m->n_waiting;
    now.n_bytes = models_bytes(m);
    const uint64_t n = m->n_generations;
    now.n_waiting = n > now.n_running ? n - now.n_running : 0;
    now.n_pages = total;
    now.kv_usage = total ? (double)used / (double)total : 0;
    return now;
}

/* ---- health ---------------------------------------------------------------------------------- */

void route_live(serve *s, http_request *r) {
    mn_text out = {0};
    mn_text_puts(&out, "{\"status\":\"ok\"}\n");
    serve_json(s, r, &out);
}

/* 1 if the engine is ready and its scheduler has shown life lately. */
static int is_alive(const engine_link *l, double now) {
    const double usual = (double)l->beat.usual_step_ns * 1e-9;
    const double most = fmax(SILENCE_S, usual * SILENCE_STEPS);
    return l->state == LINK_READY && link_silence(l, now) < most;
}

int serve_health_is_short(const serve *s, http_request *r, int ready, const char *status) {
    mn_text out = {0};
    if (!s->access.n_keys || r->key >= 0)
        return 0;
    mn_text_printf(&out, "{\"status\":\"%s\"}\n", ready ? "ready" : status);
    if (!ready)
        http_header(r, "Retry-After", "2");
    http_answer(r, ready ? 200 : 503, "application/json", &out);
    return 1;
}

/* The engines of a model, each with the time of its last sign of life. comma: before the first. How
 * many are alive. */
static unsigned put_engines(const served *m, const char *comma, mn_text *out) {
    static const char *const states[] = {"starting", "loading", "ready", "restarting", "failed"};
    const double now = seconds();
    unsigned n_alive = 0;
    for (unsigned i = 0; i < m->n_links; i++) {
        const engine_link *l = &m->links[i];
        const int alive = is_alive(l, now);
        const int stuck = l->state == LINK_READY && !alive;
        n_alive += (unsigned)alive;
        mn_text_printf(
            out, "%s{\"state\":\"%s\",\"restarts\":%llu,\"pid\":%ld,\"model\":", i ? "," : comma,
            stuck ? "stuck" : states[l->state], (unsigned long long)l->n_restarts, (long)l->pid);
        json_stringz(out, m->name);
        mn_text_puts(out, "}");
    }
    return n_alive;
}

/* What has become of a model, and how many wait for it. */
static void put_health(const served *m, const char *comma, mn_text *out) {
    mn_text_printf(out, "%s{\"id\":", comma);
    json_stringz(out, m->name);
    mn_text_printf(out, ",\"state\":\"%s\",\"requests_waiting\":%u}", models_state(m),
                   m->n_waiting);
}

void route_ready(serve *s, http_request *r) {
    mn_text engines = {0};
    mn_text out = {0};
    unsigned n_alive = 0;
    uint64_t n_waiting = 0; /* what engines tell is up to half a second old */
    for (unsigned i = 0; i < s->models.n; i++) {
        n_alive += put_engines(s->models.v[i], engines.len ? "," : "", &engines);
        n_waiting += now_of(s->models.v[i]).n_waiting;
    }
    const int ready = (n_alive || s->models.lazy) && !s->draining;
    const char *status = s->draining ? "draining" : "not ready";
    if (serve_health_is_short(s, r, ready, status)) {
        mn_text_free(&engines);
        return;
    }
    mn_text_printf(&out, "{\"status\":\"%s\",\"engines\":[", ready ? "ready" : status);
    mn_text_add(&out, &engines);
    mn_text_free(&engines);
    mn_text_puts(&out, "],\"models\":[");
    for (unsigned i = 0; i < s->models.n; i++)
        put_health(s->models.v[i], i ? "," : "", &out);
    mn_text_printf(&out, "],\"running\":%llu,\"waiting\":%llu}\n",
                   (unsigned long long)(s->n_generations - n_waiting),
                   (unsigned long long)n_waiting);
    if (!ready)
        http_header(r, "Retry-After", "2");
    if (ready)
        serve_json(s, r, &out);
    else
        http_answer(r, 503, "application/json", &out);
}

void route_metrics(serve *s, http_request *r) {
    mn_text out = {0};
    const models *all = &s->models;
    const metrics_now now = {.n_connections = http_connections(s->http)};
    metrics_model *of = calloc(all->n, sizeof *of);
    for (unsigned i = 0; of && i < all->n; i++)
        of[i] = (metrics_model){all->v[i]->name, &all->v[i]->metrics, now_of(all->v[i])};
    metrics_put(&out, of, of ? all->n : 0, (metrics_names)s->flags->metrics_names);
    metrics_http(&out, &s->metrics, &now);
    free(of);
    http_answer(r, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
}

/* ---- the page -------------------------------------------------------------------------------- */

void route_page(serve *s, http_request *r) {
    mn_text out = {0};
    (void)s;
    mn_text_put(&out, (const char *)serve_page, serve_page_size);
    http_header(r, "Content-Security-Policy", SERVE_PAGE_POLICY);
    http_header(r, "Referrer-Policy", "no-referrer");
    http_answer(r, 200, "text/html; charset=utf-8", &out);
}
