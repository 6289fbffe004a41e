/* fuzz_http.c -- the HTTP layer of minerva serve, with libmicrohttpd below it and functions of this
 * file above. Input: a byte of flags (1: the server has keys, 2: the client closes its side when it
 * has sent all, 4: it leaves without reading, 8: it sends slowly), a byte of what happens to
 * requests that wait, and the bytes of a client. Paths choose what becomes of a request: /now is
 * answered at once, /stream begins at once, /drop is given up, all others wait.
 *
 * The server answers with HTTP or not at all; every request that reached the application ends; no
 * connection is left. */
#include "fuzz.h"
#include "app.h"
#include "serve/http.h"
#include "serve/loop.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_WAITING = 64, ROUNDS = 300 };

static http_server *servers[2]; /* without and with keys */
static access_rules rules[2];
static int sets[2];
static http_request *waiting[MAX_WAITING];
static size_t n_waiting;
static uint32_t n_open; /* requests that have not ended */
static double now = 1;

double seconds(void) {
    return now += 1e-4;
}

int args_document(const arg_page *page, const char *form) {
    (void)page;
    (void)form;
    return 1;
}

int read_all_text(const char *path, char **data, size_t *n) {
    (void)path;
    *data = NULL;
    *n = 0;
    return 1;
}

/* ---- the application ------------------------------------------------------------------------- */
static void answer(http_request *r, unsigned status, const char *text) {
    mn_text body = {0};
    mn_text_puts(&body, text);
    http_answer(r, status, "text/plain", &body);
}

void http_error(http_request *r, unsigned status, const char *type, const char *param,
                const char *code, const char *message) {
    (void)param;
    (void)code;
    FUZZ_CHECK(status >= 400 && status < 600 && *type);
    answer(r, status, message);
}

static void on_request(void *arg, http_request *r) {
    (void)arg;
    n_open++;
    r->owner = r;
    FUZZ_CHECK(r->method && r->path && r->body && !r->body[r->n_body]);
    fuzz_accepted = true;
    if (!strcmp(r->path, "/now")) {
        http_header(r, "X-Length", "1");
        answer(r, 200, r->body);
    } else if (!strcmp(r->path, "/stream")) {
        http_begin(r, "text/event-stream");
        http_put(r, "data: 1\n\n", 9);
    } else if (!strcmp(r->path, "/drop")) {
        http_begin(r, "text/event-stream");
        http_drop(r);
        return;
    }
    if (n_waiting < MAX_WAITING && strcmp(r->path, "/now") != 0)
        waiting[n_waiting++] = r;
}

static void forget(size_t i) {
    n_waiting--;
    waiting[i] = waiting[n_waiting];
}

static void on_gone(void *arg, http_request *r) {
    (void)arg;
    FUZZ_CHECK(n_open && r->owner == r);
    n_open--;
    for (size_t i = 0; i < n_waiting; i++)
        if (waiting[i] == r) {
            forget(i);
            return;
        }
}

/* Something happens to a request that waits. */
static void go_on(unsigned what) {
    if (!n_waiting)
        return;
    const size_t i = what % n_waiting;
    http_request *r = waiting[i];
    const int streams = !strcmp(r->path, "/stream");
    if (what & 64)
        http_drop(r);
    else if (streams && what & 8)
        http_put(r, "data: 2\n\n", 9);
    else if (streams)
        http_end(r);
    else
        answer(r, what & 8 ? 200 : 429, "later");
    if (what & 64 || !streams || !(what & 8))
        forget(i);
}

/* ---- the client ------------------------------------------------------------------------------ */
static void run(int k) {
    loop_wait(sets[k], 0);
    http_run(servers[k]);
}

static int open_client(int k) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)http_port(servers[k])),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    FUZZ_CHECK(fd >= 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Reads what is there; *first: nothing came before. */
static void receive(int fd, bool *first) {
    char bytes[4096];
    ssize_t n = 0;
    do {
        n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n > 0 && *first)
            FUZZ_CHECK(n >= 7 && !memcmp(bytes, "HTTP/1.", 7));
        *first = *first && n <= 0;
    } while (n > 0);
}

static void talk(int k, int fd, unsigned how, unsigned what, const uint8_t *data, size_t n) {
    const size_t piece = how & 8 ? 1 + n / 16 : n;
    bool first = true;
    while (n) {
        const size_t now_n = MN_MIN(piece, n);
        const ssize_t sent = send(fd, data, now_n, MSG_NOSIGNAL | MSG_DONTWAIT);
        run(k);
        if (sent < 0 && errno != EAGAIN)
            break;
        data += sent > 0 ? sent : 0;
        n -= sent > 0 ? (size_t)sent : 0;
        if (sent < 0)
            receive(fd, &first);
    }
    if (how & 2)
        shutdown(fd, SHUT_WR);
    for (int i = 0; i < 6; i++) {
        run(k);
        go_on(what + (unsigned)i * 7);
        if (!(how & 4))
            receive(fd, &first);
    }
    run(k);
    if (!(how & 4))
        receive(fd, &first);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static char key[] = "key";
    static char *keys[] = {key};
    static const char *const origins[] = {"https://page.example"};
    const http_app handlers = {.request = on_request, .gone = on_gone};
    (void)argc;
    (void)argv;
    for (int k = 0; k < 2; k++) {
        rules[k] = (access_rules){.host = "127.0.0.1", .origins = origins, .n_origins = 1};
        sets[k] = loop_create();
        if (k) {
            rules[k].keys = keys;
            rules[k].n_keys = 1;
        }
        const http_params params = {.host = "127.0.0.1",
                                    .max_connections = 16,
                                    .max_body = 4096,
                                    .receive_s = 10,
                                    .send_s = 10,
                                    .access = &rules[k],
                                    .set = sets[k]};
        http_create(&params, &handlers, &servers[k]);
        FUZZ_CHECK(servers[k]);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 2)
        return 0;
    const int k = data[0] & 1;
    const int fd = open_client(k);
    if (fd < 0)
        return 0;
    talk(k, fd, data[0], data[1], data + 2, n - 2);
    const struct linger at_once = {1, 0}; /* no port is kept back by thousands of clients */
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
    for (int i = 0; i < ROUNDS && http_connections(servers[k]); i++) {
        run(k);
        if (i > ROUNDS / 2)
            http_tick(servers[k], now += 100);
    }
    FUZZ_CHECK(!http_connections(servers[k]));
    FUZZ_CHECK(!n_open && !n_waiting);
    return 0;
}
