/* http.c -- HTTP and TLS by libmicrohttpd, in the thread of the event loop.
 *
 * The library keeps the connections; an `exchange` here is one request of a connection with its
 * answer, from its first header to the library's completion call. While an answer is awaited the
 * connection is suspended, and the library does not look at its socket: it is watched here for the
 * client's end (EPOLLRDHUP), so that a client that leaves ends its request, also before the first
 * byte of an answer. Everything is called from http_run, or from the application between two calls
 * of it. */
#include "serve/http.h"
#include "app.h"
#include "json_out.h"
#include "serve/loop.h"
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* CONNECTION_MEMORY: for the head of a request. Above 32 KiB the library maps it instead of taking
 * it from the heap, which thousands of connections would leave in pieces. */
enum { MAX_HEADERS = 8, MAX_REQUEST_ID = 256, BLOCK = 32768, CONNECTION_MEMORY = 36864 };

/* One connection: the library's, with what it does not know. */
typedef struct connection {
    struct connection *prev, *next;
    http_server *server;
    struct MHD_Connection *mhd;
    watch watch;
    int fd, watched;
    int busy;     /* 1: a whole request has arrived, its answer is not sent yet */
    double since; /* when it began to be not busy */
    struct exchange *exchange;
} connection;

typedef struct exchange {
    http_request request; /* first: the application's view */
    http_server *server;
    connection *connection;
    struct MHD_Connection *mhd;
    char *method, *path;
    buffer body;
    int checked, dispatched, suspended, ended, gone;
    int streams;     /* http_begin was called */
    unsigned status; /* 0: no answer yet */
    char *type;
    buffer out; /* the answer; of a stream, from `sent` on what was not sent */
    size_t sent;
    size_t n_headers;
    char *headers[MAX_HEADERS][2];
} exchange;

struct http_server {
    struct MHD_Daemon *daemon;
    http_params params;
    http_app app;
    watch watch;
    connection *connections;
    unsigned n_connections;
    int port;
};

static exchange *of(http_request *r) {
    return (exchange *)(void *)r;
}

/* ---- suspended connections ------------------------------------------------------------------- */

/* The library leaves the connection alone until resume. */
static void suspend(exchange *x) {
    x->suspended = 1;
    MHD_suspend_connection(x->mhd);
}

static void resume(exchange *x) {
    if (!x->suspended)
        return;
    x->suspended = 0;
    MHD_resume_connection(x->mhd);
}

/* The client has closed its side. */
static void on_hangup(void *arg, uint32_t events) {
    connection *c = arg;
    exchange *x = c->exchange;
    (void)events;
    if (!x || x->gone || x->ended)
        return;
    x->gone = 1;
    resume(x);
}

/* Watches the socket for its end until the exchange is over. */
static void watch_client(exchange *x) {
    connection *c = x->connection;
    if (!c || c->watched)
        return;
    c->watched = !loop_add(x->server->params.set, c->fd, EPOLLRDHUP | EPOLLET, &c->watch);
}

static void unwatch_client(connection *c) {
    if (c->watched)
        loop_remove(c->server->params.set, c->fd);
    c->watched = 0;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* The next bytes of a stream; suspends the connection while there are none. */
static ssize_t read_stream(void *arg, uint64_t pos, char *out, size_t most) {
    exchange *x = arg;
    size_t n = x->out.n - x->sent;
    (void)pos;
    if (x->gone || x->out.failed)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (n > most)
        n = most;
    if (n) {
        memcpy(out, x->out.p + x->sent, n);
        x->sent += n;
        if (x->sent == x->out.n) {
            buffer_clear(&x->out);
            x->sent = 0;
        }
        return (ssize_t)n;
    }
    if (x->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    suspend(x);
    return 0;
}

/* The library's response of the answer; NULL: out of memory. */
static struct MHD_Response *response_of(exchange *x) {
    if (x->streams)
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_stream, x, NULL);
    const size_t n = x->out.n;
    char *body = buffer_take(&x->out);
    if (!body)
        return n ? NULL : MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    return MHD_create_response_from_buffer(n, body, MHD_RESPMEM_MUST_FREE);
}

/* Headers of every answer, and those that browsers need where an origin is named. */
static void add_headers(exchange *x, struct MHD_Response *response) {
    const access_rules *access = x->server->params.access;
    const char *origin =
        MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN);
    const char *id = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "X-Request-Id");
    if (x->type)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, x->type);
    if (id && strlen(id) <= MAX_REQUEST_ID)
        MHD_add_response_header(response, "X-Request-Id", id); /* for the logs of both sides */
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    for (size_t i = 0; i < x->n_headers; i++)
        MHD_add_response_header(response, x->headers[i][0], x->headers[i][1]);
    if (!origin || !access->n_origins || !access_origin(access, origin, NULL))
        return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(response, "Access-Control-Allow-Headers",
                            "authorization, content-type");
    MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    MHD_add_response_header(response, "Vary", "Origin");
}

/* Hands the answer over to the library. */
static enum MHD_Result queue(exchange *x) {
    struct MHD_Response *response = response_of(x);
    if (!response)
        return MHD_NO;
    add_headers(x, response);
    const enum MHD_Result queued = MHD_queue_response(x->mhd, x->status, response);
    MHD_destroy_response(response);
    return queued;
}

void http_header(http_request *r, const char *name, const char *value) {
    exchange *x = of(r);
    if (x->n_headers == MAX_HEADERS)
        return;
    char **pair = x->headers[x->n_headers];
    pair[0] = strdup(name);
    pair[1] = strdup(value);
    if (pair[0] && pair[1])
        x->n_headers++;
}

/* From now on there is an answer: of several the first one counts. */
static void set_status(exchange *x, unsigned status, const char *type) {
    x->status = status;
    x->request.status = status;
    free(x->type);
    x->type = type ? strdup(type) : NULL;
}

void http_answer(http_request *r, unsigned status, const char *type, buffer *body) {
    exchange *x = of(r);
    if (x->status) {
        buffer_free(body);
        return;
    }
    set_status(x, body->failed ? 500 : status, type);
    buffer_free(&x->out);
    x->out = *body;
    *body = (buffer){0};
    x->ended = 1;
    resume(x);
}

void http_begin(http_request *r, const char *type) {
    exchange *x = of(r);
    set_status(x, 200, type);
    x->streams = 1;
    http_header(r, "Cache-Control", "no-cache");
    http_header(r, "X-Accel-Buffering", "no"); /* nginx keeps back nothing */
    resume(x);
}

void http_put(http_request *r, const char *bytes, size_t n) {
    exchange *x = of(r);
    buffer_put(&x->out, bytes, n);
    resume(x);
}

void http_end(http_request *r) {
    exchange *x = of(r);
    x->ended = 1;
    resume(x);
}

char *http_take_body(http_request *r) {
    static char none[1];
    char *body = buffer_take(&of(r)->body);
    r->body = none;
    r->n_body = 0;
    return body;
}

size_t http_unsent(const http_request *r) {
    const exchange *x = (const exchange *)(const void *)r;
    return x->out.n - x->sent;
}

void http_drop(http_request *r) {
    exchange *x = of(r);
    x->gone = 1;
    resume(x);
}

/* ---- requests -------------------------------------------------------------------------------- */

static const char *header(const exchange *x, const char *name) {
    return MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, name);
}

const char *http_request_header(const http_request *r, const char *name) {
    return header((const exchange *)(const void *)r, name);
}

/* Routes that need no key: liveness, and the page, which holds no secret and asks for the key. */
static int is_public(const char *path) {
    return !strcmp(path, "/health/live") || !strcmp(path, "/");
}

/* Refuses what the rules of access refuse; each answer has its status then. */
static void check_access(exchange *x) {
    const access_rules *rules = x->server->params.access;
    const char *origin = header(x, MHD_HTTP_HEADER_ORIGIN);
    const char *host = header(x, MHD_HTTP_HEADER_HOST);
    const int foreign = origin && !access_origin(rules, origin, host);
    const int preflight = !strcmp(x->method, "OPTIONS");
    buffer empty = {0};
    x->request.key = access_key(rules, header(x, MHD_HTTP_HEADER_AUTHORIZATION));
    if (preflight && origin && !foreign) {
        http_answer(&x->request, 204, NULL, &empty);
        return;
    }
    if (rules->n_keys) {
        if (x->request.key >= 0 || is_public(x->path))
            return;
        http_header(&x->request, "WWW-Authenticate", "Bearer");
        http_error(&x->request, 401, "authentication_error", NULL, "invalid_api_key",
                   "found no valid key, expected the header Authorization: Bearer KEY");
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

/* 413 with the limit. */
static void too_large(exchange *x) {
    char message[120];
    snprintf(message, sizeof message, "the body has more than %zu bytes, the limit of the server",
             x->server->params.max_body);
    http_error(&x->request, 413, "invalid_request_error", NULL, "request_too_large", message);
}

/* A request begins: method and path are copied, since they may end before the answer. */
static exchange *create_exchange(http_server *s, struct MHD_Connection *mhd, const char *method,
                                 const char *path) {
    exchange *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->server = s;
    x->mhd = mhd;
    x->method = strdup(method);
    x->path = strdup(path);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    x->connection = info ? info->socket_context : NULL;
    if (x->connection)
        x->connection->exchange = x;
    x->request.method = x->method;
    x->request.path = x->path;
    x->request.key = -1;
    return x;
}

static enum MHD_Result count_framing(void *arg, enum MHD_ValueKind kind, const char *name,
                                     const char *value) {
    unsigned *n = arg;
    (void)kind;
    (void)value;
    *n += !strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) ||
          !strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING);
    return MHD_YES;
}

/* 400 where the head says twice how long its body is: a proxy in front might believe the other one,
 * and take the rest for the next request (RFC 9112, 6.3). */
static void check_framing(exchange *x) {
    unsigned n = 0;
    MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, count_framing, &n);
    if (n > 1)
        http_error(&x->request, 400, "invalid_request_error", NULL, NULL,
                   "found several of Content-Length and Transfer-Encoding, expected one");
}

/* The head has arrived. A body that says that it is too large is refused before it is sent. */
static enum MHD_Result on_head(exchange *x) {
    const char *length = header(x, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (!x->method || !x->path)
        return MHD_NO;
    check_framing(x);
    if (x->status)
        return queue(x);
    check_access(x);
    if (!x->status && length && strtoull(length, NULL, 10) > x->server->params.max_body) {
        too_large(x);
        return queue(x);
    }
    return MHD_YES;
}

/* A piece of the body. Bodies of refused requests are read and dropped. */
static void on_body(exchange *x, const char *bytes, size_t n) {
    if (x->status)
        return;
    if (n > x->server->params.max_body - x->body.n)
        too_large(x);
    else
        buffer_put(&x->body, bytes, n);
}

/* The request is complete, or its connection was resumed. */
static enum MHD_Result on_complete(exchange *x) {
    if (!x->dispatched && x->connection)
        x->connection->busy = 1;
    if (!x->dispatched && !x->status) {
        x->dispatched = 1;
        buffer_put(&x->body, "", 0);
        if (x->body.failed)
            return MHD_NO;
        x->request.body = x->body.p;
        x->request.n_body = x->body.n;
        x->server->app.request(x->server->app.arg, &x->request);
    }
    if (x->gone)
        return MHD_NO;
    if (x->status) {
        if (x->streams)
            watch_client(x);
        return queue(x);
    }
    watch_client(x);
    suspend(x);
    return MHD_YES;
}

/* The library calls this for the head, for each piece of the body, and with *n 0 at its end and
 * after each resume. */
static enum MHD_Result on_access(void *arg, struct MHD_Connection *mhd, const char *url,
                                 const char *method, const char *version, const char *bytes,
                                 size_t *n, void **state) {
    exchange *x = *state;
    (void)version;
    if (!x) {
        x = create_exchange(arg, mhd, method, url);
        *state = x;
        return x ? on_head(x) : MHD_NO;
    }
    if (*n) {
        on_body(x, bytes, *n);
        *n = 0;
        return MHD_YES;
    }
    return on_complete(x);
}

/* The answer is sent, or the connection is gone. */
static void on_completed(void *arg, struct MHD_Connection *mhd, void **state,
                         enum MHD_RequestTerminationCode why) {
    exchange *x = *state;
    (void)arg;
    (void)mhd;
    (void)why;
    *state = NULL;
    if (!x)
        return;
    if (x->dispatched)
        x->server->app.gone(x->server->app.arg, &x->request);
    if (x->connection) {
        unwatch_client(x->connection);
        x->connection->exchange = NULL;
        x->connection->busy = 0;
        x->connection->since = seconds();
    }
    for (size_t i = 0; i < x->n_headers; i++) {
        free(x->headers[i][0]);
        free(x->headers[i][1]);
    }
    buffer_free(&x->body);
    buffer_free(&x->out);
    free(x->type);
    free(x->method);
    free(x->path);
    free(x);
}

/* ---- connections ----------------------------------------------------------------------------- */

/* The library has accepted a connection. */
static void open_connection(http_server *s, struct MHD_Connection *mhd, void **context) {
    connection *c = calloc(1, sizeof *c);
    *context = c;
    if (!c)
        return;
    c->server = s;
    c->mhd = mhd;
    c->watch = (watch){on_hangup, c};
    c->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    c->since = seconds();
    c->next = s->connections;
    if (c->next)
        c->next->prev = c;
    s->connections = c;
    s->n_connections++;
}

/* The library is about to close it. */
static void close_connection(http_server *s, connection *c) {
    unwatch_client(c);
    if (c->prev)
        c->prev->next = c->next;
    else
        s->connections = c->next;
    if (c->next)
        c->next->prev = c->prev;
    s->n_connections--;
    free(c);
}

static void on_connection(void *arg, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code) {
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        open_connection(arg, mhd, context);
    else if (*context)
        close_connection(arg, *context);
}

/* 1 if the client has closed the connection, and nothing that it sent is unread. */
static int has_left(const connection *c) {
    char byte;
    const ssize_t n = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* Clients that break off while their answer is sent: the library does not see it between two
 * requests, if the network has told it before. */
void http_tick(http_server *s, double now) {
    for (const connection *c = s->connections; c; c = c->next) {
        if (c->busy)
            continue;
        if (now - c->since > s->params.receive_s)
            shutdown(c->fd, SHUT_RDWR);
        else if (!has_left(c))
            continue;
        MHD_set_connection_option(c->mhd, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

/* A socket that listens on host:port, or -1 with the error printed. */
static int listen_on(const char *host, int port) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    char service[16];
    const int on = 1;
    snprintf(service, sizeof service, "%d", port);
    const int code = getaddrinfo(host, service, &hints, &found);
    if (code) {
        complain(EXIT_FAILED, "--host: found \"%s\", expected an address: %s", host,
                 gai_strerror(code));
        return -1;
    }
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, 1024)) {
        complain(EXIT_FAILED, "cannot listen on %s port %d: %s", host, port, strerror(errno));
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

/* The library's messages, which have no other way: of debug interest only. */
static void on_log(void *arg, const char *fmt, va_list args) {
    (void)arg;
    (void)fmt;
    (void)args;
}

static void on_ready(void *arg, uint32_t events) {
    (void)arg; /* http_run follows every round of the loop */
    (void)events;
}

/* NULL: the certificate cannot be used, or out of memory. */
static struct MHD_Daemon *start(http_server *s, int fd) {
    const http_params *p = &s->params;
    const unsigned tls = p->tls_cert ? MHD_USE_TLS : 0;
    const struct MHD_OptionItem certificates[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)p->tls_cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)p->tls_key},
        {MHD_OPTION_END, 0, NULL}};
    const struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    return MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | tls, 0, NULL, NULL,
        on_access, s, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT, p->max_connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_MEMORY, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)p->send_s,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, s, MHD_OPTION_ARRAY, tls ? certificates : none, MHD_OPTION_END);
}

/* The port that the kernel chose. */
static int port_of(int fd) {
    struct sockaddr_storage address = {0};
    socklen_t n = sizeof address;
    char service[16];
    if (getsockname(fd, (struct sockaddr *)&address, &n) ||
        getnameinfo((struct sockaddr *)&address, n, NULL, 0, service, sizeof service,
                    NI_NUMERICSERV))
        return 0;
    return atoi(service);
}

http_server *http_create(const http_params *params, const http_app *app) {
    http_server *s = calloc(1, sizeof *s);
    const int fd = s ? listen_on(params->host, params->port) : -1;
    if (fd < 0) {
        free(s);
        return NULL;
    }
    s->params = *params;
    s->app = *app;
    s->watch = (watch){on_ready, s};
    s->port = port_of(fd);
    s->daemon = start(s, fd);
    const union MHD_DaemonInfo *info =
        s->daemon ? MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (info && !loop_add(params->set, info->epoll_fd, EPOLLIN, &s->watch))
        return s;
    complain(EXIT_FAILED, "cannot start HTTP%s",
             params->tls_cert ? " with TLS: expected a certificate and the key that belongs to it"
                              : "");
    if (s->daemon)
        MHD_stop_daemon(s->daemon);
    else
        close(fd);
    free(s);
    return NULL;
}

int http_port(const http_server *s) {
    return s->port;
}

unsigned http_connections(const http_server *s) {
    return s->n_connections;
}

int http_busy(const http_server *s) {
    for (const connection *c = s->connections; c; c = c->next)
        if (c->exchange)
            return 1;
    return 0;
}

int http_run(http_server *s) {
    MHD_UNSIGNED_LONG_LONG ms = 0;
    MHD_run(s->daemon);
    if (MHD_get_timeout(s->daemon, &ms) != MHD_YES)
        return -1;
    return ms > 1000 ? 1000 : (int)ms;
}

void http_stop_listening(http_server *s) {
    const MHD_socket fd = MHD_quiesce_daemon(s->daemon);
    if (fd != MHD_INVALID_SOCKET)
        close(fd);
}

void http_free(http_server *s) {
    for (const connection *c = s->connections; c; c = c->next)
        if (c->exchange) {
            c->exchange->gone = 1;
            resume(c->exchange);
        }
    MHD_run(s->daemon);
    MHD_stop_daemon(s->daemon);
    free(s);
}
