#include "harness.h"
#include "host.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const mn_host *host = &h_host;

void h_host_of_plugins(const mn_host *other) {
    host = other ? other : &h_host;
}

enum { MOST_PATH = 4096 };

static void path_of(const char *name, char *path) {
    const char *root = getenv("MINERVA_BUILD_ROOT");
    if (strchr(name, '/'))
        snprintf(path, MOST_PATH, "%s", name);
    else
        snprintf(path, MOST_PATH, "%s/plugins/%s/%s.so", root ? root : ".", name, name);
}

bool h_built(const char *name) {
    char path[MOST_PATH];
    path_of(name, path);
    return !access(path, R_OK);
}

bool h_open(h_plugin *p, const char *name) {
    char path[MOST_PATH];
    mn_error err = {sizeof err, 0, 0, ~0u, 0, {0}};
    memset(p, 0, sizeof *p);
    if (!h_built(name))
        return false;
    path_of(name, path);
    if (!(p->so = dlopen(path, RTLD_NOW | RTLD_LOCAL)))
        fail_msg("%s: %s", path, dlerror());
    mn_entry_fn entry;
    *(void **)&entry = dlsym(p->so, MN_ENTRY_NAME);
    assert_non_null(entry);
    p->api = entry(host, &err);
    if (!p->api)
        fail_msg("%s: %s", path, err.msg);
    p->be = p->api->query(p->api->self, MN_BACKEND_ID);
    assert_non_null(p->be);
    const mn_status opened = mn_usual_open(p->be, p->api->self, 0, &p->dev, &err);
    if (opened == MN_NO_DEVICE) {
        p->api->shutdown(p->api->self);
        memset(p, 0, sizeof *p);
        return false;
    }
    if (opened)
        fail_msg("%s: %s", path, err.msg);
    if (mn_usual_queue(p->be, p->dev, &p->queue, &err))
        fail_msg("%s: %s", path, err.msg);
    return true;
}

void h_close(h_plugin *p) {
    if (!p->api)
        return;
    p->be->queue_free(p->queue);
    p->be->device_close(p->dev);
    p->api->shutdown(p->api->self);
    memset(p, 0, sizeof *p); /* stays loaded: leak reports keep their names */
}

/* ---- running --------------------------------------------------------------------------------- */
static case_on on(const h_plugin *p) {
    return (case_on){.be = p->be, .dev = p->dev, .queue = p->queue};
}

mn_status h_try(h_plugin *p, op_case *c, uint32_t precision, mn_error *err) {
    case_on here = on(p);
    assert_false(c->failed);
    return case_run(&here, c, precision, err);
}

void h_run(h_plugin *p, op_case *c, uint32_t precision) {
    mn_error err = {sizeof err, 0, 0, ~0u, 0, {0}};
    if (h_try(p, c, precision, &err))
        fail_msg("node %d: %s", (int)err.node, err.msg);
}

/* ---- two plugins ----------------------------------------------------------------------------- */
double h_compare(const char *name, const char *against, uint32_t op, uint32_t dtype,
                 const op_shape *s, uint32_t precision) {
    h_plugin p;
    h_plugin r;
    double worst = -1;
    if (!h_open(&p, name))
        return -1;
    if (h_open(&r, against)) {
        case_on here = on(&p);
        case_on there = on(&r);
        op_case *a = case_random(op, dtype, s, 42 + op);
        op_case *b = case_random(op, dtype, s, 42 + op);
        assert_true(a);
        assert_true(b);
        assert_true(!a->failed);
        assert_true(!b->failed);
        if (case_supported(&here, a) && case_supported(&there, b)) {
            h_run(&p, a, precision);
            h_run(&r, b, MN_PRECISION_EXACT);
            worst = case_differ(a, b, NULL);
        }
        case_free(a);
        case_free(b);
        h_close(&r);
    }
    h_close(&p);
    return worst;
}

int h_batch_invariant(const char *plugin, uint32_t dtype) {
    enum { N = 37, K = 1056, MANY = 33 };
    float *x = malloc(sizeof *x * MANY * K);
    float *w = malloc(sizeof *w * N * K);
    float *all = malloc(sizeof *all * MANY * N);
    void *q = calloc(1, case_plane_bytes(dtype, N * K) + 64);
    uint64_t seed = 7;
    int same = 1;
    for (int i = 0; i < MANY * K; i++)
        x[i] = case_rand(&seed);
    for (int i = 0; i < N * K; i++)
        w[i] = case_rand(&seed);
    case_quantise(dtype, w, N * K, q);
    for (int64_t r = MANY; r >= 1 && same == 1; r /= 2) {
        h_plugin p;
        if (!h_open(&p, plugin)) {
            same = -1;
            break;
        }
        op_case *c = case_new();
        int32_t xt = case_mat(c, MN_ROLE_INPUT, MN_F32, r, K, x, "x");
        int32_t wt = case_mat(c, MN_ROLE_WEIGHT, dtype, N, K, q, "w");
        int32_t y = case_mat(c, MN_ROLE_OUTPUT, MN_F32, r, N, NULL, "y");
        case_node(c, MN_OP_LINEAR, (const int32_t[]){xt, wt, -1}, 3, &y, 1, NULL, 0);
        h_run(&p, c, MN_PRECISION_EXACT);
        if (r == MANY)
            memcpy(all, c->result[y], sizeof *all * MANY * N);
        same = !memcmp(all, c->result[y], sizeof *all * (size_t)(r * N));
        case_free(c);
        h_close(&p);
    }
    free(x);
    free(w);
    free(all);
    free(q);
    return same;
}
