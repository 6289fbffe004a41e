/* http_absent.c -- stands in for http.c in builds without libmicrohttpd: the server says so and
 * does not start. The other functions are never called then. */
#include "serve/http.h"
#include "app.h"

int http_create(const http_params *params, const http_app *app, http_server **out) {
    (void)params;
    (void)app;
    *out = NULL;
    return complain(EXIT_FAILED,
                    "this minerva was built without libmicrohttpd, which minerva serve needs: "
                    "install libmicrohttpd-dev and build again");
}

int http_port(const http_server *s) {
    (void)s;
    return 0;
}

int http_run(http_server *s) {
    (void)s;
    return -1;
}

void http_tick(http_server *s, double now) {
    (void)s;
    (void)now;
}

int http_use_certificate(http_server *s, const char *cert, const char *key) {
    (void)s;
    (void)cert;
    (void)key;
    return 0;
}

void http_stop_listening(http_server *s) {
    (void)s;
}

unsigned http_connections(const http_server *s) {
    (void)s;
    return 0;
}

int http_busy(const http_server *s) {
    (void)s;
    return 0;
}

void http_free(http_server *s) {
    (void)s;
}

void http_answer(http_request *r, unsigned status, const char *type, mn_text *body) {
    (void)r;
    (void)status;
    (void)type;
    mn_text_free(body);
}

void http_header(http_request *r, const char *name, const char *value) {
    (void)r;
    (void)name;
    (void)value;
}

void http_begin(http_request *r, const char *type) {
    (void)r;
    (void)type;
}

void http_put(http_request *r, const char *bytes, size_t n) {
    (void)r;
    (void)bytes;
    (void)n;
}

void http_end(http_request *r) {
    (void)r;
}

const char *http_request_header(const http_request *r, const char *name) {
    (void)r;
    (void)name;
    return NULL;
}

char *http_take_body(http_request *r) {
    (void)r;
    return NULL;
}

size_t http_unsent(const http_request *r) {
    (void)r;
    return 0;
}

void http_drop(http_request *r) {
    (void)r;
}
