/* routes.c -- which function answers a request, and what all endpoints do the same way: errors,
 * admission, the end of a request. */
#include "serve/dialect.h"
#include "serve/reading.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *method, *path; /* a path that ends with '/' has a name behind it */
    serve_route answer;
} route;

static const route routes[] = {
    {"POST", "/v1/chat/completions", route_chat},
    {"POST", "/v1/chat/completions/input_tokens", route_chat_tokens},
    {"POST", "/v1/completions", route_completion},
    {"POST", "/v1/messages", route_messages},
    {"POST", "/v1/messages/count_tokens", route_count_tokens},
    {"POST", "/v1/responses", route_responses},
    {"POST", "/v1/responses/input_tokens", route_input_tokens},
    {"GET", "/v1/responses/", route_response},
    {"DELETE", "/v1/responses/", route_response_delete},
    {"POST", "/v1/embeddings", route_embeddings},
    {"POST", "/v1/rerank", route_rerank},
    {"POST", "/v2/rerank", route_rerank},
    {"POST", "/rerank", route_rerank},
    {"POST", "/v1/reranking", route_rerank},
    {"POST", "/reranking", route_rerank},
    {"POST", "/v1/score", route_score},
    {"POST", "/score", route_score},
    {"POST", "/api/chat", route_ollama_chat},
    {"POST", "/api/generate", route_ollama_generate},
    {"GET", "/api/tags", route_ollama_tags},
    {"POST", "/api/show", route_ollama_show},
    {"GET", "/api/ps", route_ollama_ps},
    {"GET", "/api/version", route_ollama_version},
    {"POST", "/api/embed", route_ollama_embed},
    {"POST", "/api/embeddings", route_ollama_embeddings},
    {"POST", "/api/pull", route_ollama_pull},
    {"DELETE", "/api/delete", route_ollama_delete},
    {"POST", "/api/copy", route_ollama_copy},
    {"POST", "/api/push", route_ollama_absent},
    {"POST", "/api/create", route_ollama_absent},
    {"POST", "/completion", route_llama_completion},
    {"POST", "/completions", route_llama_completion},
    {"POST", "/infill", route_llama_infill},
    {"POST", "/embedding", route_llama_embedding},
    {"POST", "/embeddings", route_llama_embedding},
    {"GET", "/props", route_llama_props},
    {"POST", "/props", route_llama_set_props},
    {"GET", "/slots", route_llama_slots},
    {"POST", "/apply-template", route_llama_template},
    {"POST", "/chat/completions", route_chat},
    {"POST", "/chat/completions/input_tokens", route_chat_tokens},
    {"GET", "/v1/models", route_models},
    {"GET", "/v1/models/", route_model},
    {"GET", "/models", route_models},
    {"POST", "/models/load", route_load},
    {"POST", "/models/unload", route_unload},
    {"POST", "/v1/load_lora_adapter", route_load_adapter},
    {"POST", "/v1/unload_lora_adapter", route_unload_adapter},
    {"POST", "/tokenize", route_tokenize},
    {"POST", "/detokenize", route_detokenize},
    {"GET", "/health", route_ready},
    {"GET", "/health/live", route_live},
    {"GET", "/health/ready", route_ready},
    {"GET", "/metrics", route_metrics},
    {"GET", "/", route_page},
};

/* 1 if the row is for the path; "/" has nothing behind it. */
static int routes_matches(const route *row, const char *path) {
    const size_t n = strlen(row->path);
    if (n == 1 || row->path[n - 1] != '/')
        return !strcmp(row->path, path);
    return row->path[n - 1] == '/' && !strncmp(row->path, path, n) && path[n];
}

/* GET answers HEAD, too: the library leaves the body out. */
static int accepts(const route *row, const char *method) {
    return !strcmp(row->method, method) || (!strcmp(row->method, "GET") && !strcmp(method, "HEAD"));
}

/* 1 if some row is for the path. */
static int is_path(const char *path) {
    size_t i = 0;
    while (i < MN_COUNT(routes) && !routes_matches(&routes[i], path))
        i++;
    return i < MN_COUNT(routes);
}

/* The path that was meant, where it lacks /v1, has something before it or a slash at its end; 0:
 * none is close. */
static int find_meant(const char *path, char *out, size_t n) {
    char bare[200];
    snprintf(bare, sizeof bare, "%s", path);
    for (size_t end = strlen(bare); end > 1 && bare[end - 1] == '/'; end--)
        bare[end - 1] = 0;
    const char *before[] = {"", "/v1"};
    for (const char *at = bare; at; at = strchr(at + 1, '/'))
        for (size_t i = 0; i < MN_COUNT(before); i++) {
            snprintf(out, n, "%s%s", before[i], at);
            if (*at && strcmp(at, "/") != 0 && is_path(out))
                return 1;
        }
    return 0;
}

/* A path that has no such method: names those that it has. */
static void refuse_method(http_request *r) {
    char message[400];
    mn_text methods = {0};
    const char *path = NULL;
    for (size_t i = 0; i < MN_COUNT(routes); i++) {
        if (!routes_matches(&routes[i], r->path))
            continue;
        mn_text_printf(&methods, "%s%s", path ? ", " : "", routes[i].method);
        path = routes[i].path;
    }
    const char *list = methods.failed ? "another" : methods.ptr;
    snprintf(message, sizeof message, "%s: found the method %.20s, expected %s", path, r->method,
             list);
    http_header(r, "Allow", list);
    http_error(r, 405, "invalid_request_error", NULL, "method_not_allowed", message);
    mn_text_free(&methods);
}

void serve_request(void *arg, http_request *r) {
    serve *s = arg;
    char message[400];
    for (size_t i = 0; i < MN_COUNT(routes); i++) {
        if (routes_matches(&routes[i], r->path) && accepts(&routes[i], r->method)) {
            routes[i].answer(s, r);
            return;
        }
    }
    if (is_path(r->path)) {
        refuse_method(r);
        return;
    }
    char meant[220];
    if (find_meant(r->path, meant, sizeof meant))
        snprintf(message, sizeof message, "%.120s: this server has no such path, expected %.200s",
                 r->path, meant);
    else
        snprintf(message, sizeof message, "%.200s: this server has no such path", r->path);
    http_error(r, 404, "invalid_request_error", NULL, "not_found", message);
}

unsigned *serve_in_flight(serve *s, const http_request *r) {
    const size_t i = (size_t)(r->key + 1);
    return i < MN_COUNT(s->n_per_key) ? &s->n_per_key[i] : &s->n_per_key[0];
}

void serve_ended(void *arg, const http_request *r) {
    serve *s = arg;
    metrics *m = &s->metrics;
    m->http_2xx += r->status / 100 == 2;
    m->http_4xx += r->status / 100 == 4;
    m->http_5xx += r->status / 100 == 5;
    access_log_write(s, r);
}

void serve_gone(void *arg, http_request *r) {
    serve *s = arg;
    serve_leave(s, r);
    if (!r->owner)
        return;
    reading_gone(r->owner);
    r->owner = NULL;
    s->n_trims = 2;
}

void serve_refuse(serve *s, http_request *r, const json_error *e) {
    (void)s;
    if (e->status == 503)
        http_header(r, "Retry-After", "2");
    http_error(r, e->status ? e->status : 400, serve_error_type(e->status),
               e->param[0] ? e->param : NULL, e->code, e->message);
}

void serve_json(serve *s, http_request *r, mn_text *body) {
    const dialect *d = dialect_of(r->path);
    (void)s;
    if (body->failed) {
        mn_text_free(body);
        http_error(r, 503, "server_error", NULL, NULL, "out of memory");
    } else {
        if (d)
            dialect_name_request(d, r);
        http_answer(r, 200, "application/json", body);
    }
}

int serve_too_long(const served *m, uint64_t n_tokens, const char *param, json_error *e) {
    e->code = "context_length_exceeded";
    e->n_tokens = n_tokens;
    return json_fail(e, param,
                     "This model's maximum context length is %u tokens. However, your %s resulted "
                     "in %llu tokens. Please reduce the length of the %s.",
                     m->n_ctx, param, (unsigned long long)n_tokens, param);
}

int serve_may_fit(const served *m, size_t n, const char *param, json_error *e) {
    const size_t least = n / (m->longest_token ? m->longest_token : 1);
    if (!m->n_ctx || least <= m->n_ctx)
        return 1;
    e->code = "context_length_exceeded";
    e->n_tokens = least;
    return json_fail(e, param,
                     "This model's maximum context length is %u tokens. However, your %s has %zu "
                     "bytes, which are at least %zu tokens. Please reduce the length of the %s.",
                     m->n_ctx, param, n, least, param);
}

int serve_library_error(const mn_error *err, mn_status st, const char *param, json_error *e) {
    if (st == MN_OUT_OF_MEMORY)
        e->status = 503;
    return json_fail(e, param, "%s", err->msg[0] ? err->msg : "the prompt cannot be used");
}

/* Seconds after which a client that was refused may try again: a guess by the length of the
 * queue. */
static void put_retry(serve *s, http_request *r) {
    char after[16];
    const unsigned rounds = (unsigned)(s->n_generations / (s->models.n_sequences + 1));
    snprintf(after, sizeof after, "%u", 1 + (rounds < 30 ? rounds : 30));
    http_header(r, "Retry-After", after);
}

/* 1 if requests are accepted; else 0: answered with 503. Until an engine is ready the length of the
 * context is not known. */
static int is_open(const serve *s, http_request *r) {
    if (!s->draining && models_are_open(s))
        return 1;
    http_header(r, "Retry-After", "2");
    http_error(r, 503, "server_error", NULL, s->draining ? "draining" : "loading",
               s->draining ? "the server is being stopped" : "the model is being loaded");
    return 0;
}

/* Sequences and queue of this server. */
static uint64_t capacity(const serve *s) {
    return s->models.n_sequences + (uint64_t)s->flags->max_queue;
}

int serve_check_number(const serve *s, uint64_t n, json_error *e) {
    if (n <= capacity(s))
        return 1;
    return json_fail(e, "n",
                     "found %llu generations in one request, expected at most %llu (sequences and "
                     "queue of this server)",
                     (unsigned long long)n, (unsigned long long)capacity(s));
}

int serve_has_room(serve *s, http_request *r, unsigned n) {
    const serve_flags *f = s->flags;
    const uint64_t most = capacity(s);
    const unsigned n_queued = s->n_generations + s->n_reading;
    char message[200];
    if (!is_open(s, r))
        return 0;
    const unsigned of_key = *serve_in_flight(s, r);
    const int key_full = f->per_key && of_key >= (unsigned)f->per_key;
    if (!key_full && n_queued + n <= most)
        return 1;
    put_retry(s, r);
    if (key_full)
        snprintf(message, sizeof message, "found %u requests in flight with this key, the limit",
                 of_key);
    else
        snprintf(message, sizeof message,
                 "the queue is full: %u generations are in it, at most %llu may be", n_queued,
                 (unsigned long long)most);
    http_error(r, 429, "rate_limit_error", NULL, "overloaded", message);
    return 0;
}

int serve_admit(serve *s, http_request *r, unsigned n) {
    if (!serve_has_room(s, r, n))
        return 0;
    r->admitted = 1;
    ++*serve_in_flight(s, r);
    return 1;
}

void serve_leave(serve *s, http_request *r) {
    if (r->admitted)
        --*serve_in_flight(s, r);
    r->admitted = 0;
}

/* ---- errors as JSON -------------------------------------------------------------------------- */

/* A member with a text or null. */
static void put_member(mn_text *out, const char *name, const char *value) {
    mn_text_printf(out, ",\"%s\":", name);
    if (value)
        json_stringz(out, value);
    else
        mn_text_puts(out, "null");
}

const char *serve_error_type(unsigned status) {
    static const struct {
        unsigned status;
        const char *type;
    } types[] = {
        {401, "authentication_error"}, {403, "permission_error"}, {429, "rate_limit_error"}};
    for (size_t i = 0; i < MN_COUNT(types); i++)
        if (types[i].status == status)
            return types[i].type;
    return status >= 500 ? "server_error" : "invalid_request_error";
}

void serve_put_error(const http_request *r, const char *type, const char *param, const char *code,
                     const char *message, mn_text *out) {
    mn_text_puts(out, "{\"error\":{\"message\":");
    json_stringz(out, message);
    put_member(out, "type", type);
    put_member(out, "param", param);
    put_member(out, "code", code);
    mn_text_puts(out, "},\"request_id\":");
    json_stringz(out, r->id);
    mn_text_puts(out, "}\n");
}

/* The same where 200 was sent while the request waited for its model. */
static void end_stream_with(http_request *r, unsigned status, const char *type,
                            const char *message) {
    mn_text out = {0};
    serve_stream_error(r, status, type, message, &out);
    mn_text_puts(&out, dialect_of(r->path) ? "" : "data: [DONE]\n\n");
    http_put(r, out.ptr ? out.ptr : "", out.len);
    mn_text_free(&out);
    http_end(r);
}

void http_error(http_request *r, unsigned status, const char *type, const char *param,
                const char *code, const char *message) {
    const dialect *d = dialect_of(r->path);
    mn_text out = {0};
    if (r->began) {
        end_stream_with(r, status, type, message);
        return;
    }
    if (d) {
        json_error e = {.status = status, .code = code};
        json_fail(&e, param, "%s", message);
        dialect_error(d, r, &e);
        return;
    }
    serve_put_error(r, type, param, code, message, &out);
    http_answer(r, status, "application/json", &out);
}

void serve_stream_error(const http_request *r, unsigned status, const char *type,
                        const char *message, mn_text *out) {
    const dialect *d = dialect_of(r->path);
    json_error e = {.status = status};
    if (d) {
        json_fail(&e, NULL, "%s", message);
        d->stream_error(r, &e, out);
        return;
    }
    mn_text_printf(out, "data: {\"error\":{\"type\":\"%s\",\"param\":null,\"code\":%u,\"message\":",
                   type, status);
    json_stringz(out, message);
    mn_text_puts(out, "},\"request_id\":");
    json_stringz(out, r->id);
    mn_text_puts(out, "}\n\n");
}
