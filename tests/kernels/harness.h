/* harness.h -- drives a plugin's real table with small graphs, and holds two plugins side by side.
 * Everything fails by cmocka assertion; a plugin that is not built makes the test skip. */
#ifndef MN_HARNESS_H
#define MN_HARNESS_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <minerva/plugin.h>
#include <stdbool.h>

#define H_MAX_TENSORS 48
#define H_MAX_NODES 12

/* ---- the host that plugins see: counts what lives, can refuse the k-th allocation ---- */
void h_host_workers(uint32_t n);                        /* of plugins opened after it; default 3 */
void h_host_option(const char *key, const char *value); /* one option at a time; NULL = none */
void h_host_fail_after(int64_t k); /* the k-th allocation from now fails, and all later ones; < 0 = none */
int64_t h_host_live(void);         /* allocations not yet released */

typedef struct {
    void *so;
    const mn_plugin *api;
    const mn_backend *be;
    mn_device *dev;
    mn_queue *queue;
} h_plugin;
bool h_open(h_plugin *p, const char *name); /* NAME of the build's plugins/NAME/NAME.so, or a path; false = not built */
void h_close(h_plugin *p);

/* ---- a graph with its data ---- */
typedef struct {
    mn_graph g;
    mn_tensor t[H_MAX_TENSORS];
    mn_node n[H_MAX_NODES];
    mn_symbol sym[4];
    int64_t value[4];
    int32_t operands[256];
    uint64_t attrs[128];
    void *data[H_MAX_TENSORS];   /* weights, inputs and states before the run; owned */
    void *result[H_MAX_TENSORS]; /* outputs, and states and inputs after the run; owned */
    uint64_t bytes[H_MAX_TENSORS];
    bool unbound[H_MAX_TENSORS]; /* outputs that the run shall not bind */
    uint32_t kv_dtype, kv_pages, kv_group;
    int32_t kv; /* the tensor that is the KV buffer, or -1 */
} h_case;
h_case *h_new(void);
void h_free(h_case *c);
/* Adds a tensor; data (may be NULL = zeros) is copied. dims: n_dim of int64_t. */
int32_t h_tensor(h_case *c, uint32_t role, uint32_t dtype, uint32_t n_dim, const int64_t *dim, const void *data,
                 const char *name);
int32_t h_vec(h_case *c, uint32_t role, uint32_t dtype, int64_t d0, const void *data, const char *name);
int32_t h_mat(h_case *c, uint32_t role, uint32_t dtype, int64_t d0, int64_t d1, const void *data, const char *name);
int32_t h_cube(h_case *c, uint32_t role, uint32_t dtype, int64_t d0, int64_t d1, int64_t d2, const void *data,
               const char *name);
int32_t h_state(h_case *c, const void *data, uint64_t bytes, int64_t d0, const char *name); /* opaque [d0] */
int32_t h_kv(h_case *c, uint32_t dtype, uint32_t n_pages); /* sized by the plugin's layout when it runs */
void h_node(h_case *c, uint32_t op, const int32_t *in, uint32_t n_in, const int32_t *out, uint32_t n_out,
            const uint64_t *attr, uint32_t n_attr);
uint64_t h_f64(double v); /* an attribute */
#define H_NODE(c, op, IN, OUT, ATTR)                                                                                   \
    h_node(c, op, (const int32_t[])IN, sizeof((const int32_t[])IN) / 4, (const int32_t[])OUT,                          \
           sizeof((const int32_t[])OUT) / 4, (const uint64_t[])ATTR, sizeof((const uint64_t[])ATTR) / 8)
#define H_LIST(...)                                                                                                    \
    { __VA_ARGS__ }

/* weights, compile, bind, execute n_steps times, read back. The plain form asserts MN_OK; `try` returns the status and cleans up. */
mn_status h_try(h_plugin *p, h_case *c, uint32_t precision, mn_error *err);
void h_run(h_plugin *p, h_case *c, uint32_t precision);

/* ---- numbers ---- */
float h_rand(uint64_t *seed);                                    /* uniform in [-1, 1) */
double h_rel_l2(const float *got, const float *want, int64_t n); /* |got - want| / |want| */
uint64_t h_dtype_bytes(uint32_t dtype, int64_t n);
void h_quantise(uint32_t dtype, const float *x, int64_t n, void *out); /* F32 F16 BF16 Q8_0 Q4_0 */
void h_dequantise(uint32_t dtype, const void *x, int64_t n, float *out);

/* ---- two plugins on one random case ---- */
typedef struct {
    int64_t rows;                   /* T or O */
    int64_t k, n;                   /* LINEAR: K, N; norms and elementwise: k = D; EMBED and SAMPLE: n = V */
    int64_t n_head, n_head_kv, dim; /* ROPE, KV, ATTENTION */
    int64_t past;                   /* ATTENTION: tokens before the step */
    int64_t n_seqs;                 /* ATTENTION: sequences sharing the rows; 0 = 1 */
    int64_t
        variant; /* ROPE: pairing; ACT, GLU: kind; ATTENTION: bit 0 window, 1 softcap, 2 sinks; LINEAR: number of weights - 1 */
    uint32_t kv_dtype;
} h_shape;
h_case *h_random_case(uint32_t op, uint32_t dtype, const h_shape *s, uint64_t seed);
/* Largest relative L2 over the FLOAT outputs of `name` against `against`; < 0 = one of the two is not built or says no. */
double h_compare(const char *name, const char *against, uint32_t op, uint32_t dtype, const h_shape *s,
                 uint32_t precision);

/* LINEAR in class exact: are 33, 16, 8 ... 1 rows of one input the same bits? 1 yes, 0 no, -1 the plugin is not usable here. */
int h_batch_invariant(const char *plugin, uint32_t dtype);

#endif
