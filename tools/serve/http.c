/* http.c -- HTTP and TLS by libmicrohttpd, in the thread of the event loop: sockets, connections,
 * the life of the library. http_inside.h has the parts. */
#include "app.h"
#include "serve/http_inside.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* CONNECTION_MEMORY: for the head of a request. Above 32 KiB the library maps it, zeroed, instead
 * of taking it from the heap, which thousands of connections would leave in pieces. */
enum { CONNECTION_MEMORY = 36864 };
/* Versions of TLS before 1.2 are broken (RFC 8996). */
#define TLS_VERSIONS "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

/* ---- suspended connections ------------------------------------------------------------------- */

void http_suspend(exchange *x) {
    x->suspended = 1;
    MHD_suspend_connection(x->mhd);
}

void http_resume(exchange *x) {
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
    http_resume(x);
}

void http_watch_client(exchange *x) {
    connection *c = x->connection;
    if (!c || c->watched)
        return;
    c->watched = !loop_add(x->server->params.set, c->fd, EPOLLRDHUP | EPOLLET, &c->watch);
}

void http_unwatch_client(connection *c) {
    if (c->watched)
        loop_remove(c->server->params.set, c->fd);
    c->watched = 0;
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
    http_unwatch_client(c);
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

/* The library's descriptor of events joins the loop. 0: it cannot. */
static int watch_daemon(http_server *s, struct MHD_Daemon *daemon) {
    const union MHD_DaemonInfo *info =
        daemon ? MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    return info && !loop_add(s->params.set, info->epoll_fd, EPOLLIN, &s->watch);
}

/* Ends the older ones without connections, or all. */
static void end_older(http_server *s, int all) {
    for (size_t i = 0; i < MAX_OLDER; i++) {
        const union MHD_DaemonInfo *info =
            s->older[i] ? MHD_get_daemon_info(s->older[i], MHD_DAEMON_INFO_CURRENT_CONNECTIONS)
                        : NULL;
        if (!s->older[i] || (!all && info && info->num_connections))
            continue;
        MHD_stop_daemon(s->older[i]);
        s->older[i] = NULL;
    }
}

/* Clients that break off while their answer is sent: the library does not see it between two
 * requests, if the network has told it before. */
void http_tick(http_server *s, double now) {
    end_older(s, 0);
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

/* A socket that listens on host:port: 0, or the exit code with the error printed. */
static int listen_on(const char *host, int port, int *out) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    char service[16];
    const int on = 1;
    snprintf(service, sizeof service, "%d", port);
    const int code = getaddrinfo(host, service, &hints, &found);
    if (code == EAI_MEMORY)
        return no_memory();
    if (code)
        return complain(EXIT_FAILED, "--host: found \"%s\", expected an address: %s", host,
                        gai_strerror(code));
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
    *out = fd;
    return fd < 0 ? EXIT_FAILED : 0;
}

/* The library's messages, which have no other way: of debug interest only. */
static void http_on_log(void *arg, const char *fmt, va_list args) {
    (void)arg;
    (void)fmt;
    (void)args;
}

static void http_on_ready(void *arg, uint32_t events) {
    (void)arg; /* http_run follows every round of the loop */
    (void)events;
}

/* NULL: the certificate cannot be used, or out of memory. */
static struct MHD_Daemon *http_start(http_server *s, int fd) {
    const http_params *p = &s->params;
    const unsigned tls = p->tls_cert ? MHD_USE_TLS : 0;
    static const char versions[] = TLS_VERSIONS;
    const struct MHD_OptionItem certificates[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)p->tls_cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)p->tls_key},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)versions},
        {MHD_OPTION_END, 0, NULL}};
    const struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    return MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | tls, 0, NULL, NULL,
        http_on_access, s, MHD_OPTION_EXTERNAL_LOGGER, http_on_log, NULL, MHD_OPTION_LISTEN_SOCKET,
        fd, MHD_OPTION_URI_LOG_CALLBACK, http_on_target, s, MHD_OPTION_STRICT_FOR_CLIENT,
        http_library_is_strict(), MHD_OPTION_CONNECTION_LIMIT, p->max_connections,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)p->send_s, MHD_OPTION_NOTIFY_COMPLETED,
        http_on_completed, s, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_ARRAY,
        tls ? certificates : none, MHD_OPTION_END);
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

/* The library says no more than NULL: memory is the reason if errno says so. The exit code. */
static int fail_start(const http_params *params) {
    if (errno == ENOMEM)
        return no_memory();
    return complain(
        EXIT_FAILED, "cannot start HTTP%s",
        params->tls_cert ? " with TLS: expected a certificate and the key that belongs to it" : "");
}

int http_create(const http_params *params, const http_app *app, http_server **out) {
    http_server *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return no_memory();
    int fd = -1;
    int code = listen_on(params->host, params->port, &fd);
    if (code) {
        free(s);
        return code;
    }
    s->params = *params;
    s->app = *app;
    s->watch = (watch){http_on_ready, s};
    s->port = port_of(fd);
    s->first_id = (uint64_t)(uintptr_t)s ^ (uint64_t)getpid();
    if (getrandom(&s->first_id, sizeof s->first_id, 0) < 0)
        s->first_id ^= (uint64_t)(seconds() * 1e9);
    errno = 0; /* malloc sets it */
    s->daemon = http_start(s, fd);
    if (watch_daemon(s, s->daemon)) {
        *out = s;
        return 0;
    }
    code = fail_start(params);
    if (s->daemon)
        MHD_stop_daemon(s->daemon);
    else
        close(fd);
    free(s);
    return code;
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

int http_use_certificate(http_server *s, const char *cert, const char *key) {
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_LISTEN_FD);
    const int fd = info ? fcntl(info->listen_fd, F_DUPFD_CLOEXEC, 0) : -1;
    size_t i = 0;
    while (i < MAX_OLDER && s->older[i])
        i++;
    if (fd < 0 || i == MAX_OLDER) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    s->params.tls_cert = cert;
    s->params.tls_key = key;
    struct MHD_Daemon *daemon = http_start(s, fd);
    if (!watch_daemon(s, daemon)) {
        if (daemon)
            MHD_stop_daemon(daemon);
        else
            close(fd);
        return 0;
    }
    http_stop_listening(s);
    s->older[i] = s->daemon;
    s->daemon = daemon;
    return 1;
}

/* Runs one; the shorter of ms and of the time after which it wants to be called again. */
static int run_daemon(struct MHD_Daemon *daemon, int ms) {
    MHD_UNSIGNED_LONG_LONG wanted = 0;
    MHD_run(daemon);
    if (MHD_get_timeout(daemon, &wanted) != MHD_YES)
        return ms;
    const int soon = wanted > 1000 ? 1000 : (int)wanted;
    return ms < 0 || soon < ms ? soon : ms;
}

int http_run(http_server *s) {
    int ms = run_daemon(s->daemon, -1);
    for (size_t i = 0; i < MAX_OLDER; i++)
        if (s->older[i])
            ms = run_daemon(s->older[i], ms);
    return ms;
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
            http_resume(c->exchange);
        }
    http_run(s);
    end_older(s, 1);
    MHD_stop_daemon(s->daemon);
    free(s);
}
