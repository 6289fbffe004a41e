/* upstream_absent.c -- stands in for upstream.c in builds without libcurl's headers: a front says
 * so and does not start. The other functions are never called then. */
#include "serve/upstream.h"
#include "app.h"

upstream *upstream_create(int set, const char *ca) {
    (void)set;
    (void)ca;
    complain(EXIT_FAILED, "this minerva was built without libcurl, which serve --replicas URL "
                          "needs: install libcurl4-openssl-dev and build it again");
    return NULL;
}

void upstream_free(upstream *u) {
    (void)u;
}

upstream_call *upstream_start(upstream *u, const upstream_params *params) {
    (void)u;
    (void)params;
    return NULL;
}

void upstream_cancel(upstream_call *c) {
    (void)c;
}

int upstream_status(const upstream_call *c) {
    (void)c;
    return 0;
}

const char *upstream_type(const upstream_call *c) {
    (void)c;
    return "";
}

long upstream_retry_after(const upstream_call *c) {
    (void)c;
    return 0;
}

int upstream_was_connected(const upstream_call *c) {
    (void)c;
    return 0;
}

void upstream_run(upstream *u) {
    (void)u;
}

int upstream_wait_ms(const upstream *u) {
    (void)u;
    return -1;
}
