/* http_answer.c -- answers: whole ones and streams, with the headers that all have.
 *
 * Bytes of a stream that the client has not taken lie in the exchange; the library asks for them
 * when the socket has room, and the connection is suspended while there are none. */
#include "app.h"
#include "serve/http_inside.h"
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 32768, MAX_ASKED = 1024 };

static exchange *of(http_request *r) {
    return (exchange *)(void *)r;
}

/* The next bytes of a stream; suspends the connection while there are none. */
static ssize_t read_stream(void *arg, uint64_t pos, char *out, size_t most) {
    exchange *x = arg;
    size_t n = x->out.len - x->sent;
    (void)pos;
    if (x->gone || x->out.failed)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (n > most)
        n = most;
    if (n) {
        memcpy(out, x->out.ptr + x->sent, n);
        x->sent += n;
        if (x->sent == x->out.len) {
            mn_text_clear(&x->out);
            x->sent = 0;
        }
        return (ssize_t)n;
    }
    if (x->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    http_suspend(x);
    return 0;
}

/* The library's response of the answer; NULL: out of memory. */
static struct MHD_Response *response_of(exchange *x) {
    if (x->streams && !x->no_memory)
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_stream, x, NULL);
    const size_t n = x->out.len;
    if (x->out.failed || x->no_memory)
        return NULL;
    char *body = mn_text_take(&x->out);
    if (!body)
        return n ? NULL : MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    return MHD_create_response_from_buffer(n, body, MHD_RESPMEM_MUST_FREE);
}

/* 1 for a list of header names: names, commas and blanks alone. */
static int is_list(const char *names) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ";
    return *names && strlen(names) <= MAX_ASKED && !names[strspn(names, allowed)];
}

/* 0: out of memory; an answer without one of its headers is another answer. */
static int http_answer_add(struct MHD_Response *response, const char *name, const char *value) {
    return MHD_add_response_header(response, name, value) == MHD_YES;
}

/* What browsers need where pages of another origin may use the server. A preflight has the headers
 * back that the page wants to send: clients add some of their own (x-stainless-...). */
static int add_cors(const exchange *x, struct MHD_Response *response) {
    const access_rules *access = x->server->params.access;
    const char *origin = http_field(x, MHD_HTTP_HEADER_ORIGIN);
    const char *asked = http_field(x, "Access-Control-Request-Headers");
    if (!origin || !access->n_origins || !access_origin(access, origin, NULL))
        return 1;
    return http_answer_add(response, "Access-Control-Allow-Origin", origin) &&
           http_answer_add(response, "Access-Control-Allow-Headers",
                           asked && is_list(asked) ? asked : "authorization, content-type") &&
           http_answer_add(response, "Access-Control-Allow-Methods",
                           "GET, POST, DELETE, OPTIONS") &&
           http_answer_add(response, "Access-Control-Expose-Headers",
                           "x-request-id, request-id, retry-after") &&
           http_answer_add(response, "Access-Control-Max-Age", "600") &&
           http_answer_add(response, "Vary", "Origin, Access-Control-Request-Headers");
}

/* Headers of every answer. */
static int add_headers(const exchange *x, struct MHD_Response *response) {
    int ok = !x->type || http_answer_add(response, MHD_HTTP_HEADER_CONTENT_TYPE, x->type);
    if (x->closes)
        ok = ok && http_answer_add(response, MHD_HTTP_HEADER_CONNECTION, "close");
    ok = ok && http_answer_add(response, "X-Request-Id", x->request.id); /* for the logs of both */
    ok = ok && http_answer_add(response, "X-Content-Type-Options", "nosniff");
    for (size_t i = 0; i < x->n_headers; i++)
        ok = ok && http_answer_add(response, x->headers[i][0], x->headers[i][1]);
    return ok && add_cors(x, response);
}

enum MHD_Result http_queue(exchange *x) {
    struct MHD_Response *response = response_of(x);
    if (!response)
        return MHD_NO;
    const enum MHD_Result queued =
        add_headers(x, response) ? MHD_queue_response(x->mhd, x->status, response) : MHD_NO;
    MHD_destroy_response(response);
    return queued;
}

void http_answer_free(exchange *x) {
    for (size_t i = 0; i < x->n_headers; i++) {
        free(x->headers[i][0]);
        free(x->headers[i][1]);
    }
    mn_text_free(&x->out);
    free(x->type);
}

void http_header(http_request *r, const char *name, const char *value) {
    exchange *x = of(r);
    if (x->n_headers == MAX_HEADERS)
        return;
    char **pair = x->headers[x->n_headers];
    pair[0] = strdup(name);
    pair[1] = strdup(value);
    if (pair[0] && pair[1]) {
        x->n_headers++;
        return;
    }
    free(pair[0]);
    free(pair[1]);
    x->no_memory = 1;
}

/* From now on there is an answer: of several the first one counts. */
static void set_status(exchange *x, unsigned status, const char *type) {
    x->status = status;
    x->request.status = status;
    free(x->type);
    x->type = type ? strdup(type) : NULL;
    if (type && !x->type)
        x->no_memory = 1;
}

void http_answer(http_request *r, unsigned status, const char *type, mn_text *body) {
    exchange *x = of(r);
    if (x->status) {
        mn_text_free(body);
        return;
    }
    set_status(x, body->failed ? 500 : status, type);
    mn_text_free(&x->out);
    x->out = *body;
    *body = (mn_text){0};
    x->ended = 1;
    http_resume(x);
}

void http_begin(http_request *r, const char *type) {
    exchange *x = of(r);
    if (r->began)
        return;
    r->began = 1;
    set_status(x, 200, type);
    x->streams = 1;
    http_header(r, "Cache-Control", "no-cache");
    http_header(r, "X-Accel-Buffering", "no"); /* nginx keeps back nothing */
    http_resume(x);
}

void http_put(http_request *r, const char *bytes, size_t n) {
    exchange *x = of(r);
    if (x->ended)
        return;
    mn_text_put(&x->out, bytes, n);
    http_resume(x);
}

void http_end(http_request *r) {
    exchange *x = of(r);
    x->ended = 1;
    http_resume(x);
}

char *http_take_body(http_request *r) {
    static char none[1];
    char *body = mn_text_take(&of(r)->body);
    r->body = none;
    r->n_body = 0;
    return body;
}

size_t http_unsent(const http_request *r) {
    const exchange *x = (const exchange *)(const void *)r;
    return x->out.len - x->sent;
}

void http_drop(http_request *r) {
    exchange *x = of(r);
    x->gone = 1;
    http_resume(x);
}
