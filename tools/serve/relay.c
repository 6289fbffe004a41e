/* relay.c -- the requests of a front without an engine.
 *
 * A request belongs to its HTTP exchange: it is freed when that is gone, and its call to a server
 * is cancelled then. It is in one of three states: a server has it (`call`), it waits for a server
 * that is ready, or it is over. A server that breaks off is unreachable until it answers the next
 * question after its health (relay_info.c). */
#include "serve/dialect.h"
#include "serve/relay.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* WAIT_S: for a server that is ready. A request that so many servers broke off with is not sent
 * again: it may be why. Longer bodies are not parsed, since that would hold up the loop. */
enum { WAIT_S = 30, MAX_BROKEN = 5, PARSED = 4 << 20, WHOLE_MAX = 256 << 20, UNSENT_MAX = 8 << 20 };

static void send_on(relay_request *q);

/* ---- ends ------------------------------------------------------------------------------------ */

/* No server has q any more. */
static void relay_leave(relay_request *q) {
    if (q->at)
        q->at->n_mine--;
    q->at = NULL;
    q->call = NULL;
}

/* The end with an error, before or in a stream. */
static void relay_give_up(relay_request *q, unsigned status, const char *message) {
    mn_text b = {0};
    q->over = 1;
    if (!q->began) {
        if (status == 503)
            http_header(q->http, "Retry-After", "2");
        http_error(q->http, status, "server_error", NULL, NULL, message);
        return;
    }
    q->owner->counts.n_interrupted += (uint64_t)q->stream.has_token;
    q->http->n_events = q->stream.n_named;
    serve_stream_error(q->http, status, "server_error", message, &b);
    mn_text_puts(&b, dialect_of(q->http->path) ? "" : "data: [DONE]\n\n");
    http_put(q->http, b.ptr ? b.ptr : "", b.len);
    mn_text_free(&b);
    http_end(q->http);
}

/* What is behind the last mark in a text; NULL: the text has none. */
static const char *behind(const mn_text *text, const char *mark) {
    const size_t n = strlen(mark);
    const char *found = NULL;
    const char *at = text->len ? memmem(text->ptr, text->len, mark, n) : NULL;
    while (at) {
        found = at + n;
        at = memmem(found, text->len - (size_t)(found - text->ptr), mark, n);
    }
    return found;
}

/* The tokens that an answer, or a piece of one, says it used: for the access log. In texts of an
 * answer the quotes of the marks would be escaped; usage is the last one of a message's marks. */
static void note_usage(relay_request *q, const mn_text *text) {
    const char *chat = behind(text, "\"usage\":{\"prompt_tokens\":");
    const char *message = behind(text, "\"usage\":{\"input_tokens\":");
    unsigned long long n_prompt = 0;
    unsigned long long n_cached = 0;
    unsigned long long n_new = 0;
    const int is_response =
        message && sscanf(message, "%llu,\"output_tokens\":%llu", &n_prompt, &n_new) == 2;
    if (chat && sscanf(chat, "%llu,\"completion_tokens\":%llu", &n_prompt, &n_new) < 1)
        return;
    if (message && !is_response &&
        sscanf(message,
               "%llu,\"cache_creation_input_tokens\":%*u,\"cache_read_input_tokens\":%llu,"
               "\"output_tokens\":%llu",
               &n_prompt, &n_cached, &n_new) != 3)
        return;
    if (!chat && !message)
        return;
    q->http->n_prompt = n_prompt + n_cached;
    q->http->n_new = n_new;
}

/* The header of a dialect that has the request's id. */
static void name_request(relay_request *q) {
    const dialect *d = dialect_of(q->http->path);
    if (d)
        dialect_name_request(d, q->http);
}

/* The answer of a server as it is. */
static void answer_whole(relay_request *q, const upstream_call *c) {
    const int status = upstream_status(c);
    const long after = upstream_retry_after(c);
    char text[24];
    if (q->began) {
        relay_give_up(q, 502,
                      "the server that had this request has gone, and another one refused it");
        return;
    }
    q->over = 1;
    if (after > 0) {
        snprintf(text, sizeof text, "%ld", after);
        http_header(q->http, "Retry-After", text);
    }
    if (status == 401)
        http_header(q->http, "WWW-Authenticate", "Bearer");
    note_usage(q, &q->whole);
    name_request(q);
    http_answer(q->http, (unsigned)status, upstream_type(c), &q->whole);
}

/* ---- from a server --------------------------------------------------------------------------- */

/* Events for the client. */
static void pass_on(relay_request *q, const mn_text *out) {
    if (!q->began) {
        q->began = 1;
        name_request(q);
        http_begin(q->http, "text/event-stream");
    }
    note_usage(q, out);
    http_put(q->http, out->ptr, out->len);
    if (http_unsent(q->http) > UNSENT_MAX)
        http_drop(q->http);
}

static int on_body(void *arg, const char *bytes, size_t n) {
    relay_request *q = arg;
    mn_text out = {0};
    if (!q->decided) {
        q->decided = 1;
        q->streams = upstream_status(q->call) == 200 &&
                     !strncmp(upstream_type(q->call), "text/event-stream", 17);
    }
    if (!q->streams) {
        const int fits = q->whole.len + n <= WHOLE_MAX;
        if (fits)
            mn_text_put(&q->whole, bytes, n);
        return fits && !q->whole.failed;
    }
    const int had_token = q->stream.has_token;
    const int ok = relay_stream_feed(&q->stream, bytes, n, &out);
    if (q->stream.has_token && !had_token) {
        q->http->first_at = seconds();
        histogram_add(&q->owner->counts.first_token, q->http->first_at - q->since);
    }
    if (out.len)
        pass_on(q, &out);
    mn_text_free(&out);
    return ok;
}

/* To another server, where the client has nothing yet or gets the same again. */
static void try_again(relay_request *q, const char *why) {
    relay_counts *counts = &q->owner->counts;
    char message[300];
    if (q->n_broken >= MAX_BROKEN) {
        relay_give_up(q, 502, "several servers broke off while they had this request");
        return;
    }
    if (q->stream.has_token && (!q->repeats || q->stream.is_named)) {
        snprintf(message, sizeof message, "the server broke off in the middle of the answer (%s)",
                 why);
        relay_give_up(q, 502, message);
        return;
    }
    counts->n_resumed += (uint64_t)q->stream.has_token;
    counts->n_retried += !q->stream.has_token;
    relay_stream_again(&q->stream);
    mn_text_clear(&q->whole);
    send_on(q);
}

/* A server has ended a call with an error. */
static void on_broken(relay_request *q, replica *r, int was_connected, const char *error) {
    q->n_broken += (unsigned)was_connected;
    relay_lost(q->owner, r, error);
    try_again(q, error);
}

/* 1 if another server might accept what this one did not. */
static int is_refusal(int status) {
    return status == 429 || status == 502 || status == 503 || status == 504;
}

/* 1 if the answer is that this server does not have the response that was asked for: another one
 * may have it. */
static int is_unknown_response(const relay_request *q) {
    static const char *const codes[] = {"\"code\":\"previous_response_not_found\"",
                                        "\"code\":\"response_not_found\""};
    size_t i = 0;
    while (i < MN_COUNT(codes) && !behind(&q->whole, codes[i]))
        i++;
    return i < MN_COUNT(codes) && dialect_of(q->http->path) == &dialect_responses;
}

/* A server has given a whole answer that is no stream. */
static void on_whole(relay_request *q, replica *r, const upstream_call *c) {
    const int status = upstream_status(c);
    uint32_t n_known = 0;
    if (is_refusal(status) && status != 429)
        r->state = REPLICA_BUSY;
    const int others = replicas_choose(&q->owner->all, &q->blocks, q->tried, &n_known) != NULL;
    if (is_refusal(status) && (others || status != 429))
        try_again(q, "it refused the request");
    else if (status == 404 && others && is_unknown_response(q))
        try_again(q, "it does not know the response");
    else
        answer_whole(q, c);
}

static void on_done(void *arg, const char *error) {
    relay_request *q = arg;
    const upstream_call *c = q->call;
    const relay_stream *t = &q->stream;
    replica *r = q->at;
    relay_leave(q);
    if (!q->streams && error)
        on_broken(q, r, upstream_was_connected(c), error);
    else if (!q->streams)
        on_whole(q, r, c);
    else if (t->is_over) {
        q->over = 1;
        http_end(q->http);
    } else if (t->differs)
        relay_give_up(q, 502, "the server broke off, and another one computed another answer");
    else if (t->refused) {
        r->state = REPLICA_BUSY;
        try_again(q, "it is being stopped");
    } else
        on_broken(q, r, 1, error ? error : "the stream has no end");
}

void relay_lost(relay *l, replica *r, const char *why) {
    r->n_failures++;
    if (r->state == REPLICA_UNREACHABLE)
        return;
    note("replica %s cannot be reached: %s", r->url, why);
    r->state = REPLICA_UNREACHABLE;
    r->n_others = 0;
    replicas_forget(&l->all, r);
}

void relay_abandon(relay *l, replica *r) {
    static const char why[] = "it is silent";
    for (relay_request *q = l->requests; q; q = q->next) {
        if (q->at != r)
            continue;
        upstream_cancel(q->call);
        relay_leave(q);
        on_broken(q, r, 1, why);
    }
    relay_lost(l, r, why);
}

/* ---- to a server ----------------------------------------------------------------------------- */

/* The client's key as a value of Authorization, also one that it sent as x-api-key; without a key
 * its Authorization as it is; or NULL. */
static const char *relay_key_of(const relay_request *q, char *store, size_t n) {
    const char *given = http_request_header(q->http, "Authorization");
    const char *key = access_given(given, http_request_header(q->http, "X-Api-Key"));
    if (!key || strlen(key) > 4096)
        return given;
    snprintf(store, n, "Bearer %s", key);
    return store;
}

/* Headers of the client that the server gets, its key among them, and the request's id. */
static size_t copy_headers(const relay_request *q, char lines[][4200], const char **out) {
    static const char *const names[] = {"Content-Type", "Accept", "traceparent"};
    char store[4200];
    const char *key = relay_key_of(q, store, sizeof store);
    size_t n = 0;
    if (key && strlen(key) <= 4096 + sizeof "Bearer") {
        snprintf(lines[n], sizeof lines[n], "Authorization: %s", key);
        out[n] = lines[n];
        n++;
    }
    snprintf(lines[n], sizeof lines[n], "X-Request-Id: %s", q->http->id);
    out[n] = lines[n];
    n++;
    for (size_t i = 0; i < MN_COUNT(names); i++) {
        const char *value = http_request_header(q->http, names[i]);
        if (!value || strlen(value) > 4096)
            continue;
        snprintf(lines[n], sizeof lines[n], "%s: %s", names[i], value);
        out[n] = lines[n];
        n++;
    }
    return n;
}

/* To the best server, or q waits for one. */
static void send_on(relay_request *q) {
    static char lines[UPSTREAM_HEADERS][4200];
    relay *l = q->owner;
    uint32_t n_known = 0;
    replica *r = replicas_choose(&l->all, &q->blocks, q->tried, &n_known);
    q->decided = 0;
    q->streams = 0;
    if (!r) {
        q->waits_since = q->waits_since > 0 ? q->waits_since : seconds();
        return;
    }
    upstream_params p = {.base = r->url,
                         .deletes = !strcmp(q->http->method, "DELETE"),
                         .path = q->http->path,
                         .body = strcmp(q->http->method, "POST") ? NULL : q->http->body,
                         .n_body = q->http->n_body,
                         .arg = q,
                         .body_came = on_body,
                         .done = on_done};
    const size_t i = (size_t)(r - l->all.v);
    p.n_headers = copy_headers(q, lines, p.headers);
    q->tried[i / 64] |= (uint64_t)1 << i % 64;
    q->call = upstream_start(l->up, &p);
    if (!q->call) {
        relay_give_up(q, 503, "out of memory");
        return;
    }
    q->at = r;
    q->waits_since = 0;
    r->n_mine++;
    r->n_requests++;
    l->counts.n_blocks += q->blocks.n;
    l->counts.n_known += n_known;
    replicas_note(&l->all, &q->blocks, r);
}

static int waits(const relay_request *q) {
    return !q->over && !q->call;
}

void relay_resume(relay *l) {
    for (relay_request *q = l->requests; q; q = q->next) {
        if (!waits(q))
            continue;
        memset(q->tried, 0, sizeof q->tried);
        send_on(q);
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

/* 1 if the number is absent or has the value. */
static int is_number(const cJSON *body, const char *name, double otherwise, double value) {
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(body, name);
    return (cJSON_IsNumber(field) ? field->valuedouble : otherwise) == value;
}

/* 1 if the same request has the same answer again: one choice, drawn by a seed or not at all. */
static int is_repeatable(const cJSON *body) {
    const cJSON *prompt = cJSON_GetObjectItemCaseSensitive(body, "prompt");
    const cJSON *first = cJSON_IsArray(prompt) ? prompt->child : NULL;
    if (first && first->next && !cJSON_IsNumber(first))
        return 0;
    if (!is_number(body, "n", 1, 1) || !is_number(body, "best_of", 1, 1))
        return 0;
    return !is_number(body, "seed", -1, -1) || is_number(body, "temperature", 1, 0);
}

/* The beginning of the prompt, of a dialect as the chat has it: the system prompt in front. */
static void relay_read_blocks(relay_request *q, const cJSON *body) {
    char store[4200];
    const char *key = relay_key_of(q, store, sizeof store);
    const dialect *d = dialect_of(q->http->path);
    json_error e = {0};
    cJSON *chat = d ? d->request(body, &e) : NULL;
    prompt_blocks_read(&q->blocks, chat ? chat : body, key ? key : "");
    cJSON_Delete(chat);
}

/* What the choice of a server wants to know. A body that is no JSON is the server's to refuse. */
static void read_body(relay_request *q) {
    json_error e = {0};
    if (!q->http->n_body || q->http->n_body > PARSED)
        return;
    cJSON *body = json_parse(q->http->body, q->http->n_body, &e);
    if (!body)
        return;
    relay_read_blocks(q, body);
    q->repeats = is_repeatable(body);
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(body, "model");
    if (cJSON_IsString(model))
        snprintf(q->http->model, sizeof q->http->model, "%s", model->valuestring);
    cJSON_Delete(body);
}

/* A request for the servers. */
static void relay_begin(relay *l, http_request *r) {
    relay_request *q = calloc(1, sizeof *q);
    if (!q) {
        http_error(r, 503, "server_error", NULL, NULL, "out of memory");
        return;
    }
    q->owner = l;
    q->http = r;
    q->since = seconds();
    q->next = l->requests;
    if (q->next)
        q->next->prev = q;
    l->requests = q;
    r->owner = q;
    read_body(q);
    send_on(q);
}

/* 1 if the request is answered with an error already. */
static int is_refused(serve *s, http_request *r) {
    const unsigned limit = (unsigned)s->flags->per_key;
    unsigned *n = serve_in_flight(s, r);
    unsigned n_waiting = 0;
    if (s->draining) {
        http_error(r, 503, "server_error", NULL, "draining", "the server is being stopped");
        return 1;
    }
    if (strcmp(r->method, "GET") && strcmp(r->method, "HEAD") && strcmp(r->method, "POST") &&
        strcmp(r->method, "DELETE")) {
        http_header(r, "Allow", "GET, POST, DELETE");
        http_error(r, 405, "invalid_request_error", NULL, "method_not_allowed",
                   "expected GET, POST or DELETE");
        return 1;
    }
    for (const relay_request *q = s->relay->requests; q; q = q->next)
        n_waiting += (unsigned)waits(q);
    const int key_full = limit && *n >= limit;
    if (!key_full && n_waiting <= (unsigned)s->flags->max_queue) {
        ++*n;
        r->admitted = 1;
        return 0;
    }
    http_header(r, "Retry-After", "2");
    http_error(r, 429, "rate_limit_error", NULL, "overloaded",
               key_full ? "the limit of requests in flight with this key is reached"
                        : "no server is ready, and the queue is full");
    return 1;
}

void relay_handle(void *arg, http_request *r) {
    serve *s = arg;
    const int asks = !strcmp(r->method, "GET") || !strcmp(r->method, "HEAD");
    if (asks && !strcmp(r->path, "/"))
        route_page(s, r);
    else if (asks && !strcmp(r->path, "/health/live"))
        route_live(s, r);
    else if (asks && (!strcmp(r->path, "/health") || !strcmp(r->path, "/health/ready")))
        relay_ready(s->relay, r);
    else if (asks && !strcmp(r->path, "/metrics"))
        relay_metrics(s->relay, r);
    else if (!is_refused(s, r))
        relay_begin(s->relay, r);
}

void relay_gone(void *arg, http_request *r) {
    serve *s = arg;
    relay_request *q = r->owner;
    serve_leave(s, r);
    if (!q)
        return;
    if (q->call)
        upstream_cancel(q->call);
    relay_leave(q);
    if (q->prev)
        q->prev->next = q->next;
    else
        s->relay->requests = q->next;
    if (q->next)
        q->next->prev = q->prev;
    prompt_blocks_free(&q->blocks);
    relay_stream_free(&q->stream);
    mn_text_free(&q->whole);
    free(q);
    r->owner = NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

int relay_is_asked(const serve_flags *f) {
    for (size_t i = 0; i < f->replicas.n; i++)
        if (replicas_is_url(f->replicas.v[i]))
            return 1;
    for (size_t i = 0; i < f->more_replicas.n; i++)
        if (replicas_is_url(f->more_replicas.v[i]))
            return 1;
    return 0;
}

/* 0, or the exit code: flags of models and devices belong to the servers. */
static int relay_check_flags(const serve_flags *f, const app_flags *app) {
    const struct {
        int given;
        const char *name;
    } rows[] = {{app->model != NULL, "--model"},
                {app->device != NULL, "--device"},
                {app->ctx.given, "--ctx-size"},
                {app->draft != NULL, "--draft"},
                {app->lookup, "--lookup"},
                {app->cpu_moe, "--cpu-moe"},
                {app->n_cpu_moe.given, "--n-cpu-moe"},
                {app->n_gpu_experts.given, "--n-gpu-experts"},
                {*app->tensor_devices.text != 0, "--override-tensor"},
                {app->device_memory != NULL, "--device-memory"},
                {app->expert_counts != NULL, "--expert-counts"},
                {app->cache_dir != NULL, "--cache-dir"},
                {app->cache_disk != NULL, "--cache-disk"},
                {f->n_seq != 0, "--parallel"},
                {f->kv_mb != 0, "--kv-size"},
                {f->embeddings, "--embeddings"},
                {f->no_cache, "--no-prefix-cache"},
                {f->aliases.n != 0, "--alias"},
                {f->loras.n || f->max_loras, "--lora and --max-loras"},
                {f->chat_template != NULL, "--chat-template"},
                {f->models_file != NULL, "--models"},
                {f->all_models, "--all-models"},
                {f->models_max != 0, "--models-max"},
                {f->models_memory != 0, "--models-memory"},
                {f->keep_alive.given, "--keep-alive"},
                {f->manage, "--manage"},
                {f->metrics_names != METRICS_MINERVA, "--metrics"}};
    for (size_t i = 0; i < MN_COUNT(rows); i++)
        if (rows[i].given)
            return complain(EXIT_USAGE,
                            "%s: a front of --replicas URL has no model and no device; give the "
                            "flag to the servers that the URLs name",
                            rows[i].name);
    return 0;
}

relay *relay_open(serve *s, int *code) {
    const serve_flags *f = s->flags;
    *code = relay_check_flags(f, s->app_flags);
    relay *l = *code ? NULL : calloc(1, sizeof *l);
    if (!l) {
        *code = *code ? *code : no_memory();
        return NULL;
    }
    signal(SIGPIPE, SIG_IGN); /* TLS libraries write to sockets without MSG_NOSIGNAL */
    l->s = s;
    *code = replicas_add(&l->all, f->replicas.v, f->replicas.n);
    if (*code == 0)
        *code = replicas_add(&l->all, f->more_replicas.v, f->more_replicas.n);
    if (*code == 0)
        *code = replicas_open(&l->all);
    if (*code == 0) {
        l->up = upstream_create(s->set, f->replica_ca);
        *code = l->up ? 0 : EXIT_FAILED;
    }
    if (*code == 0 && !relay_probes_open(l))
        *code = no_memory();
    snprintf(l->name, sizeof l->name, "front of %u replica%s", l->all.n, l->all.n == 1 ? "" : "s");
    if (*code == 0)
        return l;
    relay_free(l);
    return NULL;
}

void relay_free(relay *l) {
    if (!l)
        return;
    relay_probes_free(l);
    upstream_free(l->up);
    replicas_free(&l->all);
    free(l);
}

void relay_run(relay *l) {
    upstream_run(l->up);
}

int relay_wait_ms(const relay *l) {
    return upstream_wait_ms(l->up);
}

void relay_tick(relay *l, double now) {
    relay_probes_tick(l, now);
    for (relay_request *q = l->requests; q; q = q->next)
        if (waits(q) && now - q->waits_since > WAIT_S)
            relay_give_up(q, 503, "no server of --replicas is ready");
}

void relay_end(relay *l) {
    for (relay_request *q = l->requests; q; q = q->next) {
        if (q->over)
            continue;
        if (q->call)
            upstream_cancel(q->call);
        relay_leave(q);
        relay_give_up(q, 503, "the server is being stopped");
    }
}
