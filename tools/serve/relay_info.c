/* relay_info.c -- the health of the servers behind a front, and what the front says of itself.
 *
 * Each server is asked for /health/ready once a second; its answer has the generations that it
 * runs, so that fronts beside this one count in its load. A server of another kind has /health. One
 * that accepts connections and answers nothing twice in a row loses its requests. */
#include "serve/relay.h"
#include <stdlib.h>
#include <string.h>

enum { EVERY_S = 1, TIMEOUT_S = 5, SILENT = 2, ANSWER_MAX = 1 << 20 };

struct relay_probe {
    relay *owner;
    replica *of;
    upstream_call *call; /* NULL: none is on its way */
    const char *path;
    mn_text answer;
    double next_at;
    int warned;
};

/* ---- health of the servers ------------------------------------------------------------------- */

static int on_body(void *arg, const char *bytes, size_t n) {
    relay_probe *p = arg;
    mn_text_put(&p->answer, bytes, n);
    return !p->answer.failed && p->answer.len < ANSWER_MAX;
}

/* Generations that the server runs beyond those of this front. */
static unsigned others(const relay_probe *p) {
    cJSON *answer = cJSON_ParseWithLength(p->answer.ptr ? p->answer.ptr : "", p->answer.len);
    const cJSON *running = cJSON_GetObjectItemCaseSensitive(answer, "running");
    const cJSON *waiting = cJSON_GetObjectItemCaseSensitive(answer, "waiting");
    double n = cJSON_IsNumber(running) ? running->valuedouble : 0;
    n += cJSON_IsNumber(waiting) ? waiting->valuedouble : 0;
    n -= p->of->n_mine;
    cJSON_Delete(answer);
    return n > 0 && n < 1e6 ? (unsigned)n : 0;
}

/* The server has answered with a status. */
static void on_status(relay_probe *p, int status) {
    replica *r = p->of;
    const int was_ready = r->state == REPLICA_READY;
    if (status == 404)
        p->path = "/health";
    if ((status == 401 || status == 403) && !p->warned)
        note("warning: replica %s refuses this front (%d): expected that the first key of the "
             "front's --api-key is one of its own",
             r->url, status);
    p->warned = status == 401 || status == 403;
    r->n_silent = 0;
    r->state = status == 200 ? REPLICA_READY : REPLICA_BUSY;
    r->n_others = status == 200 ? others(p) : 0;
    if (was_ready || r->state != REPLICA_READY)
        return;
    app_remark(&p->owner->s->a, "replica %s is ready", r->url);
    relay_resume(p->owner);
}

static void on_done(void *arg, const char *error) {
    relay_probe *p = arg;
    const upstream_call *c = p->call;
    p->call = NULL;
    if (!error) {
        on_status(p, upstream_status(c));
        return;
    }
    p->of->n_silent++;
    if (!upstream_was_connected(c))
        relay_lost(p->owner, p->of, error);
    else if (p->of->n_silent >= SILENT)
        relay_abandon(p->owner, p->of);
}

static void send_probe(relay_probe *p, double now) {
    char line[4200];
    const access_rules *access = &p->owner->s->access;
    upstream_params params = {.base = p->of->url,
                              .path = p->path,
                              .timeout_s = TIMEOUT_S,
                              .arg = p,
                              .body_came = on_body,
                              .done = on_done};
    if (access->n_keys) {
        snprintf(line, sizeof line, "Authorization: Bearer %.4000s", access_first_key(access));
        params.headers[params.n_headers++] = line;
    }
    mn_text_clear(&p->answer);
    p->next_at = now + EVERY_S;
    p->call = upstream_start(p->owner->up, &params);
}

int relay_probes_open(relay *l) {
    l->probes = calloc(l->all.n, sizeof *l->probes);
    for (unsigned i = 0; i < l->all.n && l->probes; i++)
        l->probes[i] = (relay_probe){.owner = l, .of = &l->all.v[i], .path = "/health/ready"};
    return l->probes != NULL;
}

void relay_probes_tick(relay *l, double now) {
    for (unsigned i = 0; i < l->all.n; i++)
        if (!l->probes[i].call && now >= l->probes[i].next_at)
            send_probe(&l->probes[i], now);
}

void relay_probes_free(relay *l) {
    for (unsigned i = 0; i < l->all.n && l->probes; i++) {
        if (l->probes[i].call)
            upstream_cancel(l->probes[i].call);
        mn_text_free(&l->probes[i].answer);
    }
    free(l->probes);
    l->probes = NULL;
}

/* ---- health of the front --------------------------------------------------------------------- */

void relay_ready(relay *l, http_request *r) {
    static const char *const states[] = {"unknown", "ready", "not ready", "unreachable"};
    const int ready = replicas_ready(&l->all) && !l->s->draining;
    mn_text out = {0};
    const char *status = l->s->draining ? "draining" : "not ready";
    if (serve_health_is_short(l->s, r, ready, status))
        return;
    mn_text_printf(&out, "{\"status\":\"%s\",\"replicas\":[", ready ? "ready" : status);
    for (unsigned i = 0; i < l->all.n; i++) {
        const replica *of = &l->all.v[i];
        mn_text_puts(&out, i ? ",{\"url\":" : "{\"url\":");
        json_stringz(&out, of->url);
        mn_text_printf(&out, ",\"state\":\"%s\",\"requests\":%u}", states[of->state], of->n_mine);
    }
    mn_text_puts(&out, "]}\n");
    if (ready) {
        serve_json(l->s, r, &out);
        return;
    }
    http_header(r, "Retry-After", "2");
    http_answer(r, 503, "application/json", &out);
}

/* ---- metrics --------------------------------------------------------------------------------- */

typedef uint64_t (*replica_value)(const replica *r);

static uint64_t is_up(const replica *r) {
    return r->state == REPLICA_READY;
}

static uint64_t n_running(const replica *r) {
    return r->n_mine;
}

static uint64_t n_requests(const replica *r) {
    return r->n_requests;
}

static uint64_t n_failures(const replica *r) {
    return r->n_failures;
}

/* A metric with one line per server. */
static void put_replicas(mn_text *out, const relay *l, const char *name, const char *kind,
                         const char *help, replica_value value) {
    metrics_head(out, "minerva_", name, kind, help);
    for (unsigned i = 0; i < l->all.n; i++) {
        mn_text_printf(out, "minerva_%s{replica=", name);
        json_stringz(out, l->all.v[i].url);
        mn_text_printf(out, "} %llu\n", (unsigned long long)value(&l->all.v[i]));
    }
}

static uint64_t n_waiting(const relay *l) {
    uint64_t n = 0;
    for (const relay_request *q = l->requests; q; q = q->next)
        n += !q->over && !q->call;
    return n;
}

void relay_metrics(relay *l, http_request *r) {
    const relay_counts *c = &l->counts;
    const metrics_now now = {.n_connections = http_connections(l->s->http)};
    mn_text out = {0};
    const struct {
        const char *name, *kind, *help;
        uint64_t value;
    } rows[] = {
        {"num_requests_waiting", "gauge", "Requests that wait for a replica.", n_waiting(l)},
        {"requests_retried_total", "counter",
         "Requests that were sent to another replica before their first token.", c->n_retried},
        {"requests_resumed_total", "counter",
         "Streams that another replica continued behind their first token.", c->n_resumed},
        {"requests_interrupted_total", "counter",
         "Streams that ended with an error behind their first token.", c->n_interrupted},
        {"prefix_blocks_total", "counter", "Blocks of 64 bytes of prompts.", c->n_blocks},
        {"prefix_blocks_routed_total", "counter",
         "Those that the replica had in an earlier prompt.", c->n_known},
    };
    put_replicas(&out, l, "replica_up", "gauge", "1 if the replica accepts requests.", is_up);
    put_replicas(&out, l, "replica_requests_running", "gauge",
                 "Requests of this front that the replica has.", n_running);
    put_replicas(&out, l, "replica_requests_total", "counter", "Requests sent to the replica.",
                 n_requests);
    put_replicas(&out, l, "replica_failures_total", "counter",
                 "Connections to the replica that failed or broke.", n_failures);
    for (size_t i = 0; i < MN_COUNT(rows); i++) {
        metrics_head(&out, "minerva_", rows[i].name, rows[i].kind, rows[i].help);
        mn_text_printf(&out, "minerva_%s %llu\n", rows[i].name, (unsigned long long)rows[i].value);
    }
    metrics_histogram(&out, "minerva_", "time_to_first_token_seconds",
                      "From the request to its first token.", "role=\"front\"", &c->first_token);
    metrics_http(&out, &l->s->metrics, &now);
    http_answer(r, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
}
