/* program.h -- a compiled segment: its units in order, and where tensors lie; a context: scratch,
 * bindings and kernels of one queue. */
#ifndef OCL_PROGRAM_H
#define OCL_PROGRAM_H
#include "backend.h"
#include "types.h"

/* What runs at once: a node, and an ADD behind it that it takes in (-1 = none). */
typedef struct {
    uint32_t node;
    int32_t add;
    mnp_kv kv; /* KV_STORE and ATTENTION */
} ocl_unit;

/* Bytes that kernels need beside tensors, each the largest of all nodes: resolved ids, adjusted
 * logits, a number for each of these. */
typedef struct {
    uint64_t ids;
    uint64_t logits;
    uint64_t mass;
} ocl_needs;

static inline void ocl_need(uint64_t *at_least, uint64_t bytes) {
    if (bytes > *at_least)
        *at_least = bytes;
}

struct mn_program {
    mn_device *dev;
    const mn_graph *graph;
    const ocl_weight **w; /* [n_tensors] entries of the weight set; NULL where it has none */
    uint32_t lo;
    uint32_t hi;
    uint32_t n_units;
    mnp_kv_types kv_types;
    int64_t *symbol_max;
    ocl_unit *units;
    mnp_allocation *allocations; /* [n_tensors] */
    mnp_use *uses;               /* [n_tensors] */
    /* places in the scratch */
    uint64_t arena;
    uint64_t ids_at;
    uint64_t logits_at;
    uint64_t mass_at;
    uint64_t scratch;
};

struct mn_context {
    mn_program *prog;
    mn_queue *queue;
    cl_mem scratch;
    int64_t *symbol;                   /* [n_symbols] of this step */
    mn_binding *sets[MN_BINDING_SETS]; /* [n_tensors] each */
    bool bound[MN_BINDING_SETS];
    mn_binding *bindings; /* of this step: one of sets */
    /* made at their first use: arguments belong to a kernel object, so that each context has its
     * own */
    cl_kernel kernels[OCL_N_KERNELS][OCL_N_TYPES + 1];
};
/* Takes the values of a step into c->symbol; what they are too large for is an error. */
mn_status ocl_context_begin(mn_context *c, uint32_t set, const int64_t *values, mn_error *err);
#endif
