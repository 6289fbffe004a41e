/* vendor2.h -- a whole backend against plugin.h alone: two ops, RMS_NORM and LINEAR, in class
 * exact, with weights in f32, f16 or bf16, and an op of its own, V2_CURVE. Everything else is left
 * to other devices: minerva run --device vendor2,cpu.
 *
 * The "device" is host memory and every call is done when it returns, which keeps it short; a
 * driver's calls would stand in their places. Builds with: cc -shared -fPIC -I PREFIX/include
 * vendor2*.c -o vendor2.so. Needs no libm. */
#ifndef VENDOR2_H
#define VENDOR2_H
#include <minerva/plugin.h>
#include <stdbool.h>

#pragma GCC visibility push(hidden) /* the plugin exports its entry alone */

/* y[i] = table[k], k = x[i] rounded down, 0 to the table's last; x, y: FLOAT of the same dims. Its
 * attribute TABLE is a BLOB of F32 values, at least one. */
#define V2_CURVE (MN_VENDOR | 1u)

typedef struct {
    mn_plugin api;
    mn_backend backend;
    const mn_host *host;
} vendor;
struct mn_event {
    int unused;
};
struct mn_device {
    const mn_host *host;
    mn_event done; /* nothing is ever pending: one event serves all */
};
struct mn_queue {
    mn_device *dev;
};
struct mn_buffer {
    mn_device *dev;
    uint64_t bytes;
    uint8_t *ptr;
};
struct mn_weights {
    mn_device *dev;
    const mn_graph *graph;
    uint32_t lo;
    uint32_t hi;
    void *data[]; /* [n_tensors] dense copies in the stored type; NULL = not put */
};
struct mn_program {
    mn_device *dev;
    const mn_graph *graph;
    const void **data; /* [n_tensors] of the weight set, behind symbol_max */
    uint32_t lo;
    uint32_t hi;
    uint32_t n_workers;
    uint32_t n_sets;
    uint64_t row;         /* elements of one worker's scratch: the longest weight row */
    int64_t symbol_max[]; /* [n_symbols] */
};
typedef struct {
    uint8_t *ptr; /* what the host bound, else own */
    uint64_t bytes;
    uint8_t *own; /* a tensor made in the segment has room for its largest size */
} place;
struct mn_context {
    mn_program *prog;
    const mn_node *node;   /* the one that runs, and the step's */
    const int64_t *symbol; /* values, for the workers */
    float *scratch;        /* [n_workers, row] */
    place *cur;            /* the set in use: at, or behind it */
    place at[];            /* [n_sets][n_tensors]; memory of its own belongs to the first */
};

/* ---- errors, memory, the graph's arrays ------------------------------------------------------ */
/* Fills what the caller has room for; returns status. */
mn_status v2_fail(mn_error *err, mn_status status, uint32_t node, const char *fmt, ...);
mn_status v2_no_memory(mn_error *err);
void *v2_make(const mn_host *h, uint64_t bytes); /* zeroed; NULL = out of memory */
void v2_drop(const mn_host *h, void *p);
const mn_node *v2_node(const mn_graph *g, uint32_t i);
const mn_tensor *v2_tensor(const mn_graph *g, int32_t i);
int32_t v2_in(const mn_graph *g, const mn_node *n, uint32_t i); /* -1 = there is none */
int32_t v2_out(const mn_graph *g, const mn_node *n, uint32_t i);
int64_t v2_symbol(const mn_graph *g, const int64_t *value, uint32_t i);
int64_t v2_dim(const mn_graph *g, const int64_t *value, const mn_tensor *t, uint32_t i);
/* Elements from dimension `from` on; UINT64_MAX = too many. */
uint64_t v2_count(const mn_graph *g, const int64_t *value, const mn_tensor *t, uint32_t from);

/* ---- between the files ----------------------------------------------------------------------- */
/* Parameters of a call, which begin with their size: what is behind it is 0. */
void v2_read(void *to, uint32_t room, const void *params);
/* The question as far as the asker has it, with a segment that this plugin can run. */
mn_status v2_read_question(const mn_compile *in, mn_compile *c, mn_error *err);
/* Bytes of the weights and of what is made in the segment, and the longest weight row. */
mn_status v2_measure(const mn_compile *c, uint64_t *weights, uint64_t *made, uint64_t *row,
                     mn_error *err);
/* Whether a node of [lo, hi) reads the tensor. */
bool v2_takes(const mn_graph *g, uint32_t lo, uint32_t hi, int32_t tensor);
bool v2_inside(const mn_buffer *b, uint64_t off, uint64_t n); /* n bytes from off on */
double v2_root(double v);                                     /* the square root */
/* The values of a V2_CURVE; their number, 0: the node has no such table. */
uint64_t v2_table(const mn_graph *g, const mn_node *n, const float **table);

/* Each file's rows of the table. */
void v2_add_negotiation(mn_backend *b);
void v2_add_memory(mn_backend *b);
void v2_add_programs(mn_backend *b);

#pragma GCC visibility pop
#endif
