/* http_exchange.c -- requests: what is refused by their heads, their bodies, and when they go to
 * the application.
 *
 * The library reads heads leniently, so that a proxy in front may read another request out of the
 * same bytes. Therefore a head is looked at twice. When its first line has come, the rest of it
 * mostly has come, too, and lies unchanged behind that line in the library's buffer: head_lines
 * reads it there. When the library has read it, its fields are checked, and a head that was not
 * seen as it came (in pieces, with a NUL, longer than a page, by a library that works otherwise)
 * ends its connection with its answer, as a body in chunks does: whatever follows is never read as
 * a request. */
#include "app.h"
#include "serve/http_inside.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

/* VERSION: of "HTTP/1.1"; LINE_END: CR and LF. Bodies up to SMALL_BODY count in no sum. */
enum { VERSION = 8, LINE_END = 2, SMALL_BODY = 65536 };

/* ---- heads ----------------------------------------------------------------------------------- */

const char *http_field(const exchange *x, const char *name) {
    return MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, name);
}

const char *http_request_header(const http_request *r, const char *name) {
    return http_field((const exchange *)(const void *)r, name);
}

/* The versions whose buffer is as look_at_lines reads it: the first line with NULs in place of its
 * blanks and its end, then what has come, then zeros. */
static int is_known_library(void) {
    return !strncmp(MHD_get_version(), "0.9.7", 5);
}

int http_library_is_strict(void) {
    return strncmp(MHD_get_version(), "0.", 2) != 0;
}

/* The lines behind the first one, as far as they have come. Nothing is read beyond the page of
 * target, which may be the last one of the buffer. */
static void look_at_lines(exchange *x, head_fields *fields) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t most = page - ((size_t)(uintptr_t)x->target & (page - 1));
    const size_t n = strlen(x->target);
    const size_t lines = n + 1 + VERSION + LINE_END;
    const char *version = x->target + n + 1;
    size_t n_lines = 0;
    if (lines >= most)
        return;
    if (memcmp(version, "HTTP/1.", VERSION - 1) != 0 || version[VERSION]) {
        x->wrong = "the path has a NUL";
        return;
    }
    if (version[VERSION + 1]) {
        x->wrong = "the first line does not end with CR and LF";
        return;
    }
    x->seen = head_lines(x->target + lines, most - lines, &n_lines, fields);
    x->n_seen = lines + n_lines;
    if (x->seen == HEAD_CLEAN)
        x->wrong = head_check(fields, version[VERSION - 1] != '0');
    else if (x->seen == HEAD_BAD)
        x->wrong = fields->why;
}

/* The client's X-Request-Id if it can be a header of an answer, else one that no other request of
 * this server has. */
static void set_id(exchange *x) {
    http_server *s = x->server;
    const char *given = http_field(x, "X-Request-Id");
    size_t n = given ? strlen(given) : 0;
    for (const char *c = given; n && *c; c++)
        n = *c > ' ' && *c < 127 ? n : 0;
    if (n && n < sizeof x->request.id)
        memcpy(x->request.id, given, n + 1);
    else
        snprintf(x->request.id, sizeof x->request.id, "req-%016llx%08llx",
                 (unsigned long long)s->first_id, (unsigned long long)++s->n_ids);
}

/* Answers by hand and ends the connection: the library has two answers to a length that is no
 * number. Through TLS there is none. */
static void refuse_at_once(exchange *x) {
    const int fd = MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    char body[400];
    char answer[700];
    set_id(x);
    const int n_body =
        snprintf(body, sizeof body,
                 "{\"error\":{\"message\":\"%s\",\"type\":\"invalid_request_error\",\"param\":null,"
                 "\"code\":\"malformed_request\"},\"request_id\":\"%s\"}\n",
                 x->wrong, x->request.id);
    const int n = snprintf(answer, sizeof answer,
                           "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: "
                           "application/json\r\nContent-Length: %d\r\nX-Request-Id: %s\r\n\r\n%s",
                           n_body, x->request.id, body);
    if (!x->server->params.access->tls)
        send(fd, answer, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(fd, SHUT_RDWR);
    x->refused = 1;
    x->request.status = 400;
}

void *http_on_target(void *server, const char *target, struct MHD_Connection *mhd) {
    exchange *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->server = server;
    x->mhd = mhd;
    x->target = target;
    x->seen = HEAD_UNSEEN;
    x->request.key = -1;
    x->wrong = target ? head_target(target) : "found no path behind the method";
    head_fields fields = {0};
    if (!x->wrong && is_known_library())
        look_at_lines(x, &fields);
    if (x->wrong && (!x->server->params.access->tls || fields.length.p))
        refuse_at_once(x);
    return x;
}

/* 1 if the library has read the head that look_at_lines saw, or reads none that is doubtful. */
static int was_seen(const exchange *x, const char *method) {
    const size_t n_method = strlen(method) + 1;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (http_library_is_strict())
        return 1;
    return x->seen == HEAD_CLEAN && info && (uintptr_t)method + n_method == (uintptr_t)x->target &&
           info->header_size == n_method + x->n_seen;
}

static enum MHD_Result on_field(void *arg, enum MHD_ValueKind kind, const char *name,
                                const char *value) {
    const head_text none = {"", 0};
    (void)kind;
    head_field(arg, (head_text){name, strlen(name)},
               value ? (head_text){value, strlen(value)} : none);
    return MHD_YES;
}

/* Refuses what can be read in several ways; such a connection ends. */
static void check_head(exchange *x, const char *method, const char *version) {
    head_fields fields = {0};
    MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, on_field, &fields);
    const char *wrong = head_check(&fields, strcmp(version, MHD_HTTP_VERSION_1_0) != 0);
    const char *path = x->path ? head_path(x->path, fields.host) : NULL;
    x->closes = fields.coding.p || !was_seen(x, method);
    if (!x->wrong)
        x->wrong = wrong;
    if (!x->wrong && !path)
        x->wrong = "the URL is not one of the host in the Host field";
    x->request.path = path ? path : "";
    if (!x->wrong)
        return;
    x->closes = 1;
    http_error(&x->request, 400, "invalid_request_error", NULL, "malformed_request", x->wrong);
}

/* ---- who and what ---------------------------------------------------------------------------- */

/* Refuses what the rules of access refuse; each answer has its status then. */
static void check_access(exchange *x) {
    const access_rules *rules = x->server->params.access;
    const char *origin = http_field(x, MHD_HTTP_HEADER_ORIGIN);
    const char *host = http_field(x, MHD_HTTP_HEADER_HOST);
    const int foreign = origin && !access_origin(rules, origin, host);
    const int preflight = !strcmp(x->method, "OPTIONS");
    mn_text empty = {0};
    x->request.key =
        access_key(rules, http_field(x, MHD_HTTP_HEADER_AUTHORIZATION), http_field(x, "X-Api-Key"));
    if (preflight && origin && !foreign) {
        http_answer(&x->request, 204, NULL, &empty);
        return;
    }
    if (rules->n_keys) {
        if (x->request.key >= 0 || access_is_public(rules, x->request.path))
            return;
        http_header(&x->request, "WWW-Authenticate", "Bearer");
        http_error(&x->request, 401, "authentication_error", NULL, "invalid_api_key",
                   "found no valid key, expected the header Authorization: Bearer KEY, or "
                   "x-api-key: KEY");
        return;
    }
    if (!access_host(rules, host))
        http_error(&x->request, 403, "permission_error", NULL, "host_not_allowed",
                   "the Host header is not an address of this server; a server without --api-key "
                   "answers to local names only");
    else if (foreign)
        http_error(&x->request, 403, "permission_error", NULL, "origin_not_allowed",
                   "pages of this Origin may not use the server; --allow-origin names those that "
                   "may");
}

/* 415: the server reads no compressed bodies. */
static void compressed(exchange *x, const char *coding) {
    char message[160];
    snprintf(message, sizeof message,
             "the body is compressed (Content-Encoding: %.40s), expected plain JSON", coding);
    http_error(&x->request, 415, "invalid_request_error", NULL, "unsupported_content_encoding",
               message);
}

/* 413 with the limit. */
static void too_large(exchange *x) {
    char message[120];
    snprintf(message, sizeof message, "the body has more than %zu bytes, the limit of the server",
             x->server->params.max_body);
    http_error(&x->request, 413, "invalid_request_error", NULL, "request_too_large", message);
}

/* What the head alone is refused for, before a body is sent. */
static void http_exchange_check_request(exchange *x) {
    const char *length = http_field(x, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const char *coding = http_field(x, MHD_HTTP_HEADER_CONTENT_ENCODING);
    check_access(x);
    if (!x->status && length && strtoull(length, NULL, 10) > x->server->params.max_body)
        too_large(x);
    if (!x->status && coding && *coding && strcasecmp(coding, "identity") != 0)
        compressed(x, coding);
}

/* The head has arrived. Method and path are copied, since they may end before the answer. */
static enum MHD_Result http_exchange_on_head(exchange *x, const char *method, const char *path,
                                             const char *version) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    x->checked = 1;
    x->connection = info ? info->socket_context : NULL;
    if (x->connection)
        x->connection->exchange = x;
    x->method = strdup(method);
    x->path = strdup(path);
    x->request.method = x->method;
    x->request.path = x->path;
    x->request.since = seconds();
    if (!x->method || !x->path)
        return MHD_NO;
    set_id(x);
    check_head(x, method, version);
    if (!x->status)
        http_exchange_check_request(x);
    return x->status ? http_queue(x) : MHD_YES;
}

/* ---- bodies ---------------------------------------------------------------------------------- */

/* The body has arrived, or is not wanted any more. */
static void leave_sum(exchange *x) {
    x->server->n_shared -= x->n_shared;
    x->n_shared = 0;
}

/* 1 if n more bytes of the body may be kept: what lies beyond the first SMALL_BODY of each body
 * that has not arrived whole has a limit in sum, so that many that never end cannot take all
 * memory. */
static int join_sum(exchange *x, size_t n) {
    http_server *s = x->server;
    const size_t all = x->body.len + n;
    const size_t more = all > SMALL_BODY ? all - SMALL_BODY - x->n_shared : 0;
    if (more > s->params.max_unfinished - s->n_shared)
        return 0;
    x->n_shared += more;
    s->n_shared += more;
    return 1;
}

/* A piece of the body. Bodies of refused requests are read and dropped. */
static void http_exchange_on_body(exchange *x, const char *bytes, size_t n) {
    if (x->status)
        return;
    if (n > x->server->params.max_body - x->body.len) {
        too_large(x);
    } else if (join_sum(x, n)) {
        mn_text_put(&x->body, bytes, n);
        return;
    } else {
        http_header(&x->request, "Retry-After", "2");
        http_error(&x->request, 503, "server_error", NULL, "overloaded",
                   "too many bytes of requests that have not arrived whole");
    }
    leave_sum(x);
    mn_text_free(&x->body);
}

/* The whole request goes to the application, unless it is compressed. 0: out of memory. */
static int dispatch(exchange *x) {
    static const char gzip[] = "\x1f\x8b";
    leave_sum(x);
    mn_text_put(&x->body, "", 0);
    if (x->body.failed)
        return 0;
    x->request.body = x->body.ptr;
    x->request.n_body = x->body.len;
    if (x->body.len > 2 && !memcmp(x->body.ptr, gzip, 2)) {
        compressed(x, "gzip");
        return 1;
    }
    x->dispatched = 1;
    x->server->app.request(x->server->app.arg, &x->request);
    return 1;
}

/* The request is complete, or its connection was resumed. */
static enum MHD_Result on_complete(exchange *x) {
    if (!x->dispatched && x->connection)
        x->connection->busy = 1;
    if (!x->dispatched && !x->status && !dispatch(x))
        return MHD_NO;
    if (x->gone)
        return MHD_NO;
    if (x->status) {
        if (x->streams)
            http_watch_client(x);
        return http_queue(x);
    }
    http_watch_client(x);
    http_suspend(x);
    return MHD_YES;
}

enum MHD_Result http_on_access(void *server, struct MHD_Connection *mhd, const char *url,
                               const char *method, const char *version, const char *bytes,
                               size_t *n, void **state) {
    exchange *x = *state;
    (void)server;
    (void)mhd;
    if (!x)
        return MHD_NO;
    if (x->refused)
        return MHD_NO;
    if (!x->checked)
        return http_exchange_on_head(x, method, url, version);
    if (*n) {
        http_exchange_on_body(x, bytes, *n);
        *n = 0;
        return MHD_YES;
    }
    return on_complete(x);
}

void http_on_completed(void *server, struct MHD_Connection *mhd, void **state,
                       enum MHD_RequestTerminationCode why) {
    exchange *x = *state;
    http_server *s = server;
    (void)mhd;
    (void)why;
    *state = NULL;
    if (!x)
        return;
    if ((x->checked || x->refused) && s->app.ended)
        s->app.ended(s->app.arg, &x->request);
    if (x->dispatched)
        s->app.gone(s->app.arg, &x->request);
    if (x->connection) {
        http_unwatch_client(x->connection);
        x->connection->exchange = NULL;
        x->connection->busy = 0;
        x->connection->since = seconds();
    }
    leave_sum(x);
    http_answer_free(x);
    mn_text_free(&x->body);
    free(x->method);
    free(x->path);
    free(x);
}
