/* program.h -- a compiled segment: its units in order, and where tensors lie; a context: scratch,
 * bindings and kernels of one queue. */
#ifndef OCL_PROGRAM_H
#define OCL_PROGRAM_H
#include "backend.h"
#include "types.h"

/* What runs at once: a node, and what it takes in (-1 = none): of a product the norm of its rows
 * with the gathering before it, and the GLU or ADD behind it; of a store the rotations. Whatever a
 * kernel does not do on the way is enqueued as the node that it is, in the unit's place. */
typedef struct {
    uint32_t node;
    int32_t add;
    int32_t glu;
    int32_t norm;
    int32_t gather;
    int32_t rope_q;
    int32_t rope_k;
    mnp_kv kv; /* KV_STORE and ATTENTION */
} ocl_unit;

enum { OCL_UNIT_NODES = 7 };
/* All nodes of the unit; -1 = none. */
static inline void ocl_nodes_of(const ocl_unit *u, int32_t nodes[OCL_UNIT_NODES]) {
    const int32_t all[OCL_UNIT_NODES] = {(int32_t)u->node, u->add,    u->glu,   u->norm,
                                         u->gather,        u->rope_q, u->rope_k};
    memcpy(nodes, all, sizeof all);
}

/* The cache of a unit that stores or attends; -1: it does neither. */
int32_t ocl_cache_of(const mn_program *p, const ocl_unit *u);

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
    uint64_t
        *dense; /* [n_tensors] places in the scratch of views that are not dense; else NOWHERE */
    bool has_views; /* such views */
    /* places in the scratch */
    uint64_t arena;
    uint64_t ids_at;
    uint64_t logits_at;
    uint64_t mass_at;
    uint64_t scratch;
};

/* A kernel object of one place in a step, and the arguments that it has: most are the same in every
 * step, and setting one costs as much as a part of enqueuing. */
enum { OCL_MAX_REFS = 40, OCL_MAX_ARGS = 512 };
typedef struct ocl_recording ocl_recording;
typedef struct ocl_place ocl_place;
struct ocl_place {
    uint32_t kernel; /* OCL_KERNEL_* */
    uint32_t type;
    cl_kernel object;
    uint32_t n_set; /* of refs; 0: none is set yet */
    uint32_t freed; /* the device's count when they were set: a handle may come again */
    ocl_ref refs[OCL_MAX_REFS];
    char args[OCL_MAX_ARGS];
    ocl_place *other; /* of the same place: another kernel, in steps of other sizes */
};

struct mn_context {
    mn_program *prog;
    mn_queue *queue;
    cl_mem scratch;
    int64_t *symbol;                   /* [n_symbols] of this step */
    mn_binding *sets[MN_BINDING_SETS]; /* [n_tensors] each */
    bool bound[MN_BINDING_SETS];
    mn_binding *bindings;    /* of this step: one of sets */
    struct ocl_steps *steps; /* step.c; NULL: each operation is a kernel */
    /* made at their first use, in the order of a step's launches */
    ocl_place **places;
    uint32_t n_places;
    ocl_recording *recordings; /* [MN_BINDING_SETS] (commands.c); NULL: none */
};
void ocl_drop_places(mn_context *c); /* launch.c */
/* program.c: room behind what the scratch has; its place. */
uint64_t ocl_reserve(mn_program *p, uint64_t bytes);
/* views.c: whether the views among a node's operands are of activations; places for those of the
 * segment that are not dense. */
bool ocl_takes_views(const mn_graph *g, const mn_node *n);
mn_status ocl_place_views(mn_program *p, mn_error *err);
/* Takes the values of a step into c->symbol; what they are too large for is an error. */
mn_status ocl_context_begin(mn_context *c, uint32_t set, const int64_t *values, mn_error *err);
#endif
