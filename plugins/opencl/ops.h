/* ops.h -- the table of operations: one row per operation of docs/ops.md with what this plugin can
 * do of it, what memory it needs beside its tensors, and how it is enqueued. Contracts, verdicts
 * and sizes follow from the rows (verdict.c, program.c). A row lies in the file of its family,
 * op_*.c. */
#ifndef OCL_OPS_H
#define OCL_OPS_H
#include "program.h"

/* Why a node does not run here; the texts are in verdict.c. */
enum {
    OCL_OK,
    OCL_WEIGHT_TYPE,
    OCL_FLAT_TYPE,
    OCL_WANTS_F32,
    OCL_SHAPE,
    OCL_HEAD,
    OCL_NO_KERNEL,
    OCL_EXPERTS,
    OCL_VIEW,
    OCL_N_REASONS
};

/* Enqueuing a step. The first error stays, and nothing is enqueued after it. */
typedef struct {
    mn_context *c;
    const mn_program *p;
    const mn_graph *g;
    mn_device *dev;
    const int64_t *sym;
    bool dry;                 /* only make the kernels */
    uint32_t place;           /* of the next launch in the step */
    bool few;                 /* rows: operations go into common kernels (step.c) */
    bool tiles;               /* whose products are those on tensor cores */
    uint32_t batch;           /* of such kernels in the step, the one that is being filled */
    ocl_recording *recording; /* of this step's launches; NULL: there is none */
    bool holds;               /* all of them were those of the step before, and none is enqueued */
    uint32_t n_held;
    mn_status status;
    mn_error *err;
} ocl_run;

typedef struct {
    uint32_t op;
    uint32_t contract;
    /* beyond what is true of all: operands there, weights of types that can be kept; NULL =
     * nothing */
    uint32_t (*verdict)(const mn_graph *g, const mn_node *n);
    /* raises what the program needs for this node; NULL = nothing */
    void (*needs)(const mn_program *p, const mn_node *n, ocl_needs *needs);
    void (*launch)(ocl_run *r, const ocl_unit *u);
} ocl_op;
extern const ocl_op *const ocl_ops[];
extern const uint32_t ocl_n_ops;
const ocl_op *ocl_op_of(uint32_t op); /* NULL = none */

/* ---- launch.c -------------------------------------------------------------------------------- */
/* Items of a kernel in up to three dimensions, and of a group. */
typedef struct {
    size_t global[3];
    size_t local[3];
} ocl_grid;
/* n groups of the device's lanes, times m. */
ocl_grid ocl_groups(const ocl_run *r, int64_t n, int64_t m);
/* At least n items, times m, times k; kernels check the first index. */
ocl_grid ocl_items(int64_t n, int64_t m, int64_t k);
/* A kernel with its operands and, as the last argument, its struct of values. type NULL: a kernel
 * without one. Nothing to do: nothing is enqueued. */
typedef struct {
    uint32_t kernel; /* OCL_KERNEL_* */
    const ocl_type *type;
    const ocl_ref *refs;
    uint32_t n_refs;
    const void *args;
    size_t args_bytes;
    ocl_grid grid;
    bool beside; /* it needs nothing of the launch before it */
} ocl_launch;
void ocl_enqueue(ocl_run *r, const ocl_launch *l);
/* Whatever may stand in its place (step.c, commands.c). */
void ocl_launch_now(ocl_run *r, const ocl_launch *l);
/* The kernel object of launch i of a step, which was enqueued there. */
cl_kernel ocl_kernel_at(const mn_context *c, const ocl_launch *l, uint32_t i);
ocl_run ocl_run_of(mn_context *c, bool dry, mn_error *err);

enum { OCL_LINEAR_FEW = 4 }; /* rows of linear_few at a time */
/* n outputs, `tiles` of rows, in linear.cl. */
ocl_grid ocl_linear_grid(ocl_shape shape, int64_t n, int64_t tiles);
enum { OCL_TILE_ROWS = 5 }; /* from which products may be those on tensor cores */

/* ---- step.c ---------------------------------------------------------------------------------- */
/* What a context needs for common kernels, where its device and its program have a use for them. */
mn_status ocl_steps_create(mn_context *c, mn_error *err);
void ocl_steps_free(mn_context *c);
/* Whether the rows of this step are few enough, and which kernels it takes. */
void ocl_steps_take(ocl_run *r);
/* Into the kernel that is being filled; false: it has a kernel of its own. */
bool ocl_step_add(ocl_run *r, const ocl_launch *l);
/* Enqueues what is filled. */
void ocl_step_flush(ocl_run *r);

/* ---- commands.c ------------------------------------------------------------------------------ */
/* Room for steps of n launches. */
mn_status ocl_recordings_reserve(mn_context *c, uint32_t n, mn_error *err);
void ocl_recordings_free(mn_context *c);
void ocl_recording_begin(ocl_run *r, uint32_t set);
/* Whether the launch is held back: the end of the step sees to it. */
bool ocl_recording_holds(ocl_run *r, const ocl_launch *l);
void ocl_recording_end(ocl_run *r);

/* ---- launch.c: units ------------------------------------------------------------------------- */
void ocl_launch_unit(ocl_run *r, const ocl_unit *u);
/* A node that a unit took in, by itself; -1: nothing to do. */
void ocl_launch_node(ocl_run *r, int32_t node);
/* What GLU does with gate and up, as in the attributes: gate(common.cl). */
void ocl_glu_attrs(const ocl_run *r, const mn_node *n, ocl_warp_args *a);
ocl_rope_args ocl_rope_of(const ocl_run *r, const mn_node *n);

/* ---- views.c --------------------------------------------------------------------------------- */
/* The views that are not dense and that the unit's nodes read; out: those that they wrote. */
void ocl_copy_views(ocl_run *r, const ocl_unit *u, bool out);

/* ---- operands in this step (operands.c) ------------------------------------------------------ */
ocl_ref ocl_operand(const ocl_run *r, int32_t t);
ocl_ref ocl_in(const ocl_run *r, const mn_node *n, uint32_t i);
ocl_ref ocl_out(const ocl_run *r, const mn_node *n, uint32_t i);
ocl_ref ocl_scratch(const ocl_run *r, uint64_t at);
ocl_ref ocl_absent(const ocl_run *r);
static inline bool ocl_is_there(ocl_ref ref) {
    return ref.at != OCL_ABSENT;
}
/* 1 where the tensor has no such dim, or is absent. */
int64_t ocl_dim(const ocl_run *r, int32_t t, uint32_t i);
int64_t ocl_last_dim(const ocl_run *r, int32_t t);
int64_t ocl_elements(const ocl_run *r, int32_t t);
const ocl_weight *ocl_weight_of(const ocl_run *r, int32_t t);

ocl_matrix ocl_matrix_of(const ocl_weight *w);
/* A part of a weight: rows from `first` on. */
typedef struct {
    ocl_ref at;
    int64_t first;
    int64_t rows;
} ocl_part;
ocl_part ocl_part_of(const ocl_weight *w, uint32_t i);
/* n floats behind an operand, if it is there. */
ocl_ref ocl_behind(ocl_ref ref, int64_t n);
#endif
