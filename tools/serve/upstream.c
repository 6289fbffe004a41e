/* upstream.c -- libcurl's multi interface behind the event loop.
 *
 * libcurl says which sockets it wants to hear of; each has a row in a table by descriptor, which
 * stays until the end, because events of a round may come for a descriptor that was closed in it.
 * Calls whose transfers are over are collected in upstream_run and end there: never inside one of
 * libcurl's own callbacks, where no other call may begin or end. */
#include "serve/upstream.h"
#include "app.h"
#include "text_buffer.h"
#include "curl_api.h"
#include "serve/loop.h"
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* Seconds for a connection to be made; bytes that libcurl hands over at once. */
enum { CONNECT_S = 4, PIECE = 65536 };

typedef struct {
    watch watch;
    upstream *owner;
    int fd, added;
} socket_row;

struct upstream {
    const curl_api *api;
    CURLM *multi;
    const char *ca;
    int set;
    socket_row **rows; /* [n_rows], by descriptor; NULL: never used */
    size_t n_rows;
    double deadline; /* of libcurl's timer; below 0: none */
};

struct upstream_call {
    upstream *owner;
    CURL *easy;
    struct curl_slist *headers;
    upstream_params params;
    CURLcode result; /* when the call is over */
    char error[CURL_ERROR_SIZE];
};

/* ---- sockets and time ------------------------------------------------------------------------ */

static void upstream_on_ready(void *arg, uint32_t events) {
    socket_row *row = arg;
    upstream *u = row->owner;
    int bits = 0;
    int n_running = 0;
    if (events & EPOLLIN)
        bits |= CURL_CSELECT_IN;
    if (events & EPOLLOUT)
        bits |= CURL_CSELECT_OUT;
    if (events & (EPOLLERR | EPOLLHUP))
        bits |= CURL_CSELECT_ERR;
    if (row->added)
        u->api->multi_socket_action(u->multi, row->fd, bits, &n_running);
}

/* The row of a descriptor; NULL: out of memory. */
static socket_row *row_of(upstream *u, int fd) {
    const size_t i = (size_t)fd;
    if (i >= u->n_rows) {
        const size_t n = i + 64;
        socket_row **grown = realloc(u->rows, n * sizeof(socket_row *));
        if (!grown)
            return NULL;
        memset(grown + u->n_rows, 0, (n - u->n_rows) * sizeof(socket_row *));
        u->rows = grown;
        u->n_rows = n;
    }
    if (!u->rows[i])
        u->rows[i] = calloc(1, sizeof(socket_row));
    if (u->rows[i] && !u->rows[i]->owner)
        *u->rows[i] = (socket_row){{upstream_on_ready, u->rows[i]}, u, fd, 0};
    return u->rows[i];
}

/* What libcurl wants to hear of a socket from now on. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *unused) {
    upstream *u = arg;
    socket_row *row = row_of(u, fd);
    uint32_t events = 0;
    (void)easy;
    (void)unused;
    if (!row)
        return -1;
    if (what == CURL_POLL_REMOVE) {
        if (row->added)
            loop_remove(u->set, fd);
        row->added = 0;
        return 0;
    }
    if (what & CURL_POLL_IN)
        events |= EPOLLIN;
    if (what & CURL_POLL_OUT)
        events |= EPOLLOUT;
    const int failed = row->added ? loop_change(u->set, fd, events, &row->watch)
                                  : loop_add(u->set, fd, events, &row->watch);
    row->added = row->added || !failed;
    return failed ? -1 : 0;
}

static int on_timer(CURLM *multi, long ms, void *arg) {
    upstream *u = arg;
    (void)multi;
    u->deadline = ms < 0 ? -1 : seconds() + (double)ms * 1e-3;
    return 0;
}

int upstream_wait_ms(const upstream *u) {
    if (u->deadline < 0)
        return -1;
    const double left = u->deadline - seconds();
    return left <= 0 ? 0 : (int)(left * 1e3) + 1;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static size_t upstream_on_body(char *bytes, size_t size, size_t n, void *arg) {
    upstream_call *c = arg;
    return c->params.body_came(c->params.arg, bytes, size * n) ? size * n : 0;
}

static void free_call(upstream_call *c) {
    const curl_api *api = c->owner->api;
    if (c->easy) {
        api->multi_remove_handle(c->owner->multi, c->easy);
        api->easy_cleanup(c->easy);
    }
    api->slist_free_all(c->headers);
    free(c);
}

void upstream_cancel(upstream_call *c) {
    free_call(c);
}

/* base and path, with what may not stand in a URL as %XX. */
static int upstream_set_url(upstream_call *c, const char *path) {
    mn_text url = {0};
    char code[4];
    mn_text_puts(&url, c->params.base);
    for (const char *p = path; *p; p++) {
        const unsigned char byte = (unsigned char)*p;
        const int plain = byte > 32 && byte < 127 && !strchr("\"#%<>?[\\]^`{|}", byte);
        snprintf(code, sizeof code, "%%%02X", byte);
        mn_text_put(&url, plain ? p : code, plain ? 1 : 3);
    }
    const CURLcode result = url.failed ? CURLE_OUT_OF_MEMORY
                                       : c->owner->api->easy_setopt(c->easy, CURLOPT_URL, url.ptr);
    mn_text_free(&url);
    return result == CURLE_OK;
}

static int upstream_add_header(upstream_call *c, const char *line) {
    struct curl_slist *grown = c->owner->api->slist_append(c->headers, line);
    if (grown)
        c->headers = grown;
    return grown != NULL;
}

/* What all calls have in common. */
static void set_options(upstream_call *c) {
    const curl_api *api = c->owner->api;
    CURL *easy = c->easy;
    api->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    api->easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    api->easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    api->easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2); /* or newer */
    api->easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    api->easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    api->easy_setopt(easy, CURLOPT_TIMEOUT, c->params.timeout_s);
    api->easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    api->easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)PIECE);
    api->easy_setopt(easy, CURLOPT_ERRORBUFFER, c->error);
    api->easy_setopt(easy, CURLOPT_PRIVATE, c);
    api->easy_setopt(easy, CURLOPT_WRITEFUNCTION, upstream_on_body);
    api->easy_setopt(easy, CURLOPT_WRITEDATA, c);
    api->easy_setopt(easy, CURLOPT_HTTPHEADER, c->headers);
    curl_trust(api, easy);
    if (c->owner->ca)
        api->easy_setopt(easy, CURLOPT_CAINFO, c->owner->ca);
    if (c->params.deletes)
        api->easy_setopt(easy, CURLOPT_CUSTOMREQUEST, "DELETE");
    if (!c->params.body)
        return;
    api->easy_setopt(easy, CURLOPT_POST, 1L);
    api->easy_setopt(easy, CURLOPT_POSTFIELDS, c->params.body);
    api->easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)c->params.n_body);
}

upstream_call *upstream_start(upstream *u, const upstream_params *params) {
    upstream_call *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->owner = u;
    c->params = *params;
    c->easy = u->api->easy_init();
    int ok = c->easy && upstream_set_url(c, params->path);
    ok = ok &&
         upstream_add_header(c, "Expect:"); /* no wait for "100 Continue" before a long prompt */
    for (size_t i = 0; i < params->n_headers && ok; i++)
        ok = upstream_add_header(c, params->headers[i]);
    if (ok)
        set_options(c);
    if (ok && u->api->multi_add_handle(u->multi, c->easy) == CURLM_OK)
        return c;
    free_call(c);
    return NULL;
}

int upstream_status(const upstream_call *c) {
    long status = 0;
    c->owner->api->easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

const char *upstream_type(const upstream_call *c) {
    const char *type = NULL;
    c->owner->api->easy_getinfo(c->easy, CURLINFO_CONTENT_TYPE, &type);
    return type ? type : "";
}

long upstream_retry_after(const upstream_call *c) {
    curl_off_t after = 0;
    c->owner->api->easy_getinfo(c->easy, CURLINFO_RETRY_AFTER, &after);
    return (long)after;
}

/* A connection that was kept and had died is made again: the last error counts. */
int upstream_was_connected(const upstream_call *c) {
    curl_off_t at = 0;
    if (c->result == CURLE_COULDNT_RESOLVE_HOST || c->result == CURLE_COULDNT_CONNECT)
        return 0;
    c->owner->api->easy_getinfo(c->easy, CURLINFO_PRETRANSFER_TIME_T, &at);
    return at > 0;
}

/* A transfer is over: its answer is whole, or there is an error. */
static void upstream_end_call(upstream *u, CURL *easy, CURLcode result) {
    char *found = NULL;
    u->api->easy_getinfo(easy, CURLINFO_PRIVATE, &found);
    upstream_call *c = (upstream_call *)(void *)found;
    c->result = result;
    const char *error = c->error[0] ? c->error : u->api->easy_strerror(result);
    c->params.done(c->params.arg, result == CURLE_OK ? NULL : error);
    free_call(c);
}

void upstream_run(upstream *u) {
    int n = 0;
    if (u->deadline >= 0 && seconds() >= u->deadline) {
        u->deadline = -1;
        u->api->multi_socket_action(u->multi, CURL_SOCKET_TIMEOUT, 0, &n);
    }
    for (CURLMsg *m = u->api->multi_info_read(u->multi, &n); m;
         m = u->api->multi_info_read(u->multi, &n))
        if (m->msg == CURLMSG_DONE)
            upstream_end_call(u, m->easy_handle, m->data.result);
}

/* ---- life ------------------------------------------------------------------------------------ */

upstream *upstream_create(int set, const char *ca) {
    const curl_api *api = curl_open("serve --replicas URL");
    upstream *u = api ? calloc(1, sizeof *u) : NULL;
    if (!u)
        return NULL;
    u->api = api;
    u->set = set;
    u->ca = ca;
    u->deadline = -1;
    u->multi = api->multi_init();
    if (!u->multi) {
        free(u);
        no_memory();
        return NULL;
    }
    api->multi_setopt(u->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    api->multi_setopt(u->multi, CURLMOPT_SOCKETDATA, u);
    api->multi_setopt(u->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    api->multi_setopt(u->multi, CURLMOPT_TIMERDATA, u);
    return u;
}

void upstream_free(upstream *u) {
    if (!u)
        return;
    u->api->multi_cleanup(u->multi);
    for (size_t i = 0; i < u->n_rows; i++)
        free(u->rows[i]);
    free(u->rows);
    free(u);
}
