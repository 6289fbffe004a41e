#include "harness.h"
#include "host.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool h_open(h_plugin *p, const char *name) {
    char path[4096];
    mn_error err = {sizeof err, 0, 0, ~0u, 0, {0}};
    const char *root = getenv("MINERVA_BUILD_ROOT");
    memset(p, 0, sizeof *p);
    if (strchr(name, '/'))
        snprintf(path, sizeof path, "%s", name);
    else
        snprintf(path, sizeof path, "%s/plugins/%s/%s.so", root ? root : ".", name, name);
    if (access(path, R_OK)) return false;
    if (!(p->so = dlopen(path, RTLD_NOW | RTLD_LOCAL))) fail_msg("%s: %s", path, dlerror());
    mn_entry_fn entry;
    *(void **)&entry = dlsym(p->so, MN_ENTRY_NAME);
    assert_non_null(entry);
    p->api = entry(&h_host, &err);
    if (!p->api) fail_msg("%s: %s", path, err.msg);
    p->be = p->api->query(p->api->self, MN_BACKEND_ID);
    assert_non_null(p->be);
    if (p->be->device_open(p->api->self, 0, &p->dev, &err)) fail_msg("%s: %s", path, err.msg);
    if (p->be->queue_create(p->dev, &p->queue, &err)) fail_msg("%s: %s", path, err.msg);
    return true;
}

void h_close(h_plugin *p) {
    if (!p->api) return;
    p->be->queue_free(p->queue);
    p->be->device_close(p->dev);
    p->api->shutdown(p->api->self);
    memset(p, 0, sizeof *p); /* stays loaded: leak reports keep their names */
}

/* ---- building ---- */
h_case *h_new(void) {
    h_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->g = (mn_graph){sizeof c->g,       0, 0,    0,    sizeof(mn_node), sizeof(mn_tensor),
                      sizeof(mn_symbol), 0, c->n, c->t, c->sym,          c->operands,
                      c->attrs,          0, {0}};
    c->kv = -1;
    return c;
}

void h_free(h_case *c) {
    for (uint32_t i = 0; c && i < c->g.n_tensors; i++) free(c->data[i]), free(c->result[i]);
    free(c);
}

static mn_dtype type_of(uint32_t id) {
#define ROW(name, i, elems, bytes, planes)                                                                             \
    if (id == (i)) return (mn_dtype){i, elems, bytes, planes};
    MN_DTYPES(ROW)
#undef ROW
    return (mn_dtype){0, 1, 1, 1};
}

uint64_t h_dtype_bytes(uint32_t dtype, int64_t n) {
    return (uint64_t)n / type_of(dtype).block_elems * type_of(dtype).block_bytes;
}

int32_t h_tensor(h_case *c, uint32_t role, uint32_t dtype, uint32_t n_dim, const int64_t *dim, const void *data,
                 const char *name) {
    int32_t i = (int32_t)c->g.n_tensors++;
    assert_true(i < H_MAX_TENSORS);
    mn_tensor *t = &c->t[i];
    int64_t n = 1;
    *t = (mn_tensor){
        .dtype = type_of(dtype), .n_dim = n_dim, .role = role, .alias_of = -1, .name = {name, strlen(name)}};
    for (uint32_t d = 0; d < n_dim; d++) {
        t->dim[d] = dim[d];
        n *= dim[d] < 0 ? c->sym[~dim[d]].max : dim[d];
    }
    c->bytes[i] = h_dtype_bytes(dtype, n);
    c->data[i] = calloc(1, c->bytes[i] + 1);
    c->result[i] = calloc(1, c->bytes[i] + 1);
    if (data) memcpy(c->data[i], data, c->bytes[i]);
    return i;
}

int32_t h_vec(h_case *c, uint32_t role, uint32_t dtype, int64_t d0, const void *data, const char *name) {
    return h_tensor(c, role, dtype, 1, &d0, data, name);
}
int32_t h_mat(h_case *c, uint32_t role, uint32_t dtype, int64_t d0, int64_t d1, const void *data, const char *name) {
    return h_tensor(c, role, dtype, 2, (const int64_t[]){d0, d1}, data, name);
}
int32_t h_cube(h_case *c, uint32_t role, uint32_t dtype, int64_t d0, int64_t d1, int64_t d2, const void *data,
               const char *name) {
    return h_tensor(c, role, dtype, 3, (const int64_t[]){d0, d1, d2}, data, name);
}

int32_t h_state(h_case *c, const void *data, uint64_t bytes, int64_t d0, const char *name) {
    return h_tensor(c, MN_ROLE_STATE, MN_U8, 2, (const int64_t[]){d0, (int64_t)bytes / d0}, data, name);
}

int32_t h_kv(h_case *c, uint32_t dtype, uint32_t n_pages) {
    c->kv_dtype = dtype, c->kv_pages = n_pages;
    return c->kv = h_vec(c, MN_ROLE_STATE, MN_U8, 0, NULL, "kv");
}

uint64_t h_f64(double v) {
    uint64_t bits;
    memcpy(&bits, &v, 8);
    return bits;
}

void h_node(h_case *c, uint32_t op, const int32_t *in, uint32_t n_in, const int32_t *out, uint32_t n_out,
            const uint64_t *attr, uint32_t n_attr) {
    mn_graph *g = &c->g;
    assert_true(g->n_nodes < H_MAX_NODES && g->n_operands + n_in + n_out <= 256 && g->n_attrs + n_attr <= 128);
    c->n[g->n_nodes++] =
        (mn_node){op, 1, g->n_operands, n_in, g->n_operands + n_in, n_out, (uint32_t)g->n_attrs, n_attr, 0, 0};
    if (n_in) memcpy(c->operands + g->n_operands, in, n_in * sizeof *in);
    if (n_out) memcpy(c->operands + g->n_operands + n_in, out, n_out * sizeof *out);
    if (n_attr) memcpy(c->attrs + g->n_attrs, attr, n_attr * sizeof *attr);
    g->n_operands += n_in + n_out;
    g->n_attrs += n_attr;
}

/* ---- running ---- */
typedef struct {
    mn_weights *weights;
    mn_program *program;
    mn_context *context;
    mn_buffer *buffer[H_MAX_TENSORS];
    mn_binding binding[H_MAX_TENSORS];
    uint32_t n_bindings;
} run_state;

static mn_status put_weights(h_plugin *p, h_case *c, run_state *r, mn_error *err) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->g.n_tensors; i++) {
        const mn_tensor *t = &c->t[i];
        if (t->role != MN_ROLE_WEIGHT) continue;
        mn_plane plane = {.ptr = c->data[i], .bytes = c->bytes[i], .kind = MN_PLANE_DATA, .dtype = t->dtype.id};
        int64_t step = t->dtype.block_bytes;
        for (uint32_t d = t->n_dim; d-- > 0;) {
            plane.dim[d] = t->dim[d];
            plane.stride[d] = step;
            step *= d + 1 == t->n_dim ? t->dim[d] / t->dtype.block_elems : t->dim[d];
        }
        mn_weight_src src = {sizeof src, i, 1, 1, sizeof plane, 0, &plane, t->dtype};
        mn_event *ev = NULL;
        mn_status s = p->be->weights_put(r->weights, p->queue, &src, &ev, err);
        if (s) return s;
        p->be->event_free(ev);
    }
    return p->be->weights_seal(r->weights, p->queue, &kept, err);
}

static mn_status make_buffers(h_plugin *p, h_case *c, run_state *r, const mn_compile *comp, mn_error *err) {
    for (uint32_t i = 0; i < c->g.n_tensors; i++) {
        uint32_t role = c->t[i].role;
        if (role == MN_ROLE_WEIGHT || role == MN_ROLE_INTERIOR || c->unbound[i]) continue;
        if ((int32_t)i == c->kv) {
            mn_kv_layout l = {.size = sizeof l};
            mn_status s = p->be->kv_layout(p->dev, comp, c->kv_group, &l, err);
            if (s) return s;
            c->bytes[i] = l.page_bytes * c->kv_pages;
            free(c->result[i]);
            c->result[i] = calloc(1, c->bytes[i] + 1);
        }
        mn_status s = p->be->alloc(p->dev, c->bytes[i], MN_MEM_DEVICE, &r->buffer[i], err);
        if (!s && (int32_t)i != c->kv) s = p->be->write(p->queue, r->buffer[i], 0, c->data[i], c->bytes[i], err);
        if (s) return s;
        r->binding[r->n_bindings++] = (mn_binding){i, 0, r->buffer[i], 0, c->bytes[i]};
    }
    return MN_OK;
}

static mn_status read_back(h_plugin *p, h_case *c, run_state *r, mn_error *err) {
    for (uint32_t i = 0; i < c->g.n_tensors; i++) {
        if (!r->buffer[i]) continue;
        mn_buffer *host;
        mn_event *ev = NULL;
        void *ptr;
        mn_status s = p->be->alloc(p->dev, c->bytes[i], MN_MEM_HOST_PINNED, &host, err);
        if (s) return s;
        s = p->be->read(p->queue, r->buffer[i], 0, host, 0, c->bytes[i], &ev, err);
        if (!s) s = p->be->wait(ev, 5000000000u, err);
        if (!s) s = p->be->map(host, &ptr, err);
        if (!s) memcpy(c->result[i], ptr, c->bytes[i]);
        p->be->event_free(ev);
        p->be->buffer_free(host);
        if (s) return s;
    }
    return MN_OK;
}

mn_status h_try(h_plugin *p, h_case *c, uint32_t precision, mn_error *err) {
    run_state r = {0};
    int64_t max[4];
    for (uint32_t i = 0; i < c->g.n_symbols; i++) max[i] = c->sym[i].max;
    mn_compile comp = {sizeof comp, precision, &c->g, 0, c->g.n_nodes, max, NULL, {0}, c->kv_dtype, 0};
    mn_estimate est = {.size = sizeof est};
    mn_event *ev = NULL;
    mn_status s = p->be->estimate(p->dev, &comp, &est, err);
    if (!s) s = p->be->weights_open(p->dev, &comp, &r.weights, err);
    if (!s) s = put_weights(p, c, &r, err);
    comp.weights = r.weights;
    if (!s) s = p->be->compile(p->dev, &comp, &r.program, err);
    if (!s) s = make_buffers(p, c, &r, &comp, err);
    if (!s) s = p->be->context_create(r.program, p->queue, &r.context, err);
    if (!s) s = p->be->context_bind(r.context, r.binding, r.n_bindings, sizeof(mn_binding), err);
    if (!s) s = p->be->execute(r.context, c->value, &ev, err);
    if (!s) s = p->be->wait(ev, 60000000000u, err);
    if (ev) p->be->event_free(ev);
    if (!s) s = read_back(p, c, &r, err);
    if (r.context) p->be->context_free(r.context);
    if (r.program) p->be->program_free(r.program);
    if (r.weights) p->be->weights_free(r.weights);
    for (uint32_t i = 0; i < c->g.n_tensors; i++)
        if (r.buffer[i]) p->be->buffer_free(r.buffer[i]);
    return s;
}

void h_run(h_plugin *p, h_case *c, uint32_t precision) {
    mn_error err = {sizeof err, 0, 0, ~0u, 0, {0}};
    if (h_try(p, c, precision, &err)) fail_msg("node %d: %s", (int)err.node, err.msg);
}

/* ---- numbers ---- */
float h_rand(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(*seed >> 40) * 0x1p-23f - 1;
}

double h_rel_l2(const float *got, const float *want, int64_t n) {
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        diff += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        norm += (double)want[i] * (double)want[i];
    }
    return isnan(diff) ? INFINITY : norm > 0 ? sqrt(diff / norm) : sqrt(diff);
}

static uint16_t to_f16(float f) { /* by ldexp, apart from the plugins' bit tricks */
    int e;
    if (f == 0) return signbit(f) ? 0x8000 : 0;
    uint16_t sign = f < 0 ? 0x8000 : 0;
    float a = fabsf(f);
    frexpf(a, &e); /* a = m * 2^e, m in [0.5, 1) */
    int scale = e < -13 ? 24 : 11 - e;
    float m = nearbyintf(ldexpf(a, scale));
    if (e < -13) return (uint16_t)(sign | (uint16_t)m);
    if (m == 2048) m = 1024, e++;
    if (e > 16) return (uint16_t)(sign | 0x7c00);
    return (uint16_t)(sign | (uint16_t)((e + 14) << 10) | ((uint16_t)m & 1023));
}

static float from_f16(uint16_t h) {
    int e = h >> 10 & 31, m = h & 1023;
    float a = e == 0 ? ldexpf((float)m, -24) : e == 31 ? (m ? NAN : INFINITY) : ldexpf((float)(m + 1024), e - 25);
    return h & 0x8000 ? -a : a;
}

static void quantise_block(uint32_t dtype, const float *x, uint8_t *out) {
    float max = 0;
    for (int i = 0; i < 32; i++) max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    uint16_t d = to_f16(max / (dtype == MN_Q8_0 ? 127 : 7));
    float inv = from_f16(d) > 0 ? 1 / from_f16(d) : 0;
    memcpy(out, &d, 2);
    for (int i = 0; dtype == MN_Q8_0 && i < 32; i++)
        out[2 + i] = (uint8_t)(int8_t)fmaxf(-127, fminf(127, nearbyintf(x[i] * inv)));
    for (int i = 0; dtype == MN_Q4_0 && i < 16; i++) {
        int lo = (int)fmaxf(-8, fminf(7, nearbyintf(x[i] * inv))) + 8,
            hi = (int)fmaxf(-8, fminf(7, nearbyintf(x[16 + i] * inv))) + 8;
        out[2 + i] = (uint8_t)(lo | hi << 4);
    }
}

void h_quantise(uint32_t dtype, const float *x, int64_t n, void *out) {
    uint8_t *o = out;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = to_f16(x[i]);
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        if (dtype == MN_F32)
            memcpy(o + 4 * i, &x[i], 4);
        else if (dtype == MN_F16)
            memcpy(o + 2 * i, &h, 2);
        else if (dtype == MN_BF16)
            h = (uint16_t)(bits >> 16), memcpy(o + 2 * i, &h, 2);
        else if (i % 32 == 0)
            quantise_block(dtype, x + i, o + h_dtype_bytes(dtype, i));
    }
}

void h_dequantise(uint32_t dtype, const void *x, int64_t n, float *out) {
    const uint8_t *p = x;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        if (dtype == MN_F32) {
            memcpy(&out[i], p + 4 * i, 4);
            continue;
        }
        const uint8_t *b = dtype == MN_Q8_0 ? p + i / 32 * 34 : dtype == MN_Q4_0 ? p + i / 32 * 18 : p + 2 * i;
        memcpy(&h, b, 2);
        int j = (int)(i % 32);
        if (dtype == MN_F16)
            out[i] = from_f16(h);
        else if (dtype == MN_BF16)
            out[i] = ldexpf((float)((h & 127) | (h & 0x7f80 ? 128 : 0)), ((h >> 7 & 255) ? (h >> 7 & 255) : 1) - 134) *
                     (h & 0x8000 ? -1.0f : 1.0f);
        else if (dtype == MN_Q8_0)
            out[i] = from_f16(h) * (float)(int8_t)b[2 + j];
        else
            out[i] = from_f16(h) * (float)((j < 16 ? b[2 + j] & 15 : b[2 + j - 16] >> 4) - 8);
    }
}
