/* ops.h -- launches of the OpenCL plugin: contexts with their kernels, how an operation of the
 * table is enqueued, and what may stand in the place of a launch (step.c, commands.c). A row of the
 * table lies in the file of its family, op_*.c. */
#ifndef OCL_OPS_H
#define OCL_OPS_H
#include "types.h"

/* What kernels need in the scratch beside tensors: resolved ids, adjusted logits, a number for each
 * of these, products with adapters. */
enum { OCL_NEED_IDS, OCL_NEED_LOGITS, OCL_NEED_MASS, OCL_NEED_LORA };

struct mn_program {
    mng_program base;
};

/* A kernel object of one place in a step, and the arguments that it has: most are the same in every
 * step, and setting one costs as much as a part of enqueuing. */
enum { OCL_MAX_REFS = 40, OCL_MAX_ARGS = 640 };
typedef struct ocl_recording ocl_recording;
typedef struct ocl_place ocl_place;
struct ocl_place {
    uint32_t kernel; /* OCL_KERNEL_* */
    uint32_t type;
    cl_kernel object;
    uint32_t n_set; /* of refs; 0: none is set yet */
    uint32_t freed; /* the device's count when they were set: a handle may come again */
    mng_ref refs[OCL_MAX_REFS];
    char args[OCL_MAX_ARGS];
    ocl_place *other; /* of the same place: another kernel, in steps of other sizes */
};

/* Enqueuing a step. */
struct mng_step {
    uint32_t place;           /* of the next launch in the step */
    bool few;                 /* rows: operations go into common kernels (step.c) */
    bool tiles;               /* whose products are those on tensor cores */
    uint32_t batch;           /* of such kernels in the step, the one that is being filled */
    ocl_recording *recording; /* of this step's launches; NULL: there is none */
    bool holds;               /* all of them were those of the step before, and none is enqueued */
    uint32_t n_held;
};

struct mn_context {
    mng_context base;
    mng_step step;           /* the one under way */
    struct ocl_steps *steps; /* step.c; NULL: each operation is a kernel */
    /* made at their first use, in the order of a step's launches */
    ocl_place **places;
    uint32_t n_places;
    ocl_recording *recordings; /* of each set of bindings (commands.c); NULL: none */
};

/* clang-format off */
#define OCL_OPS(X)                                                                                 \
    X(embed) X(rms_norm) X(layer_norm) X(linear) X(rope) X(kv_store) X(attention) X(act) X(glu)    \
    X(add) X(mul) X(scale) X(softcap) X(gather_rows) X(sample) X(moe_route) X(moe_linear)          \
    X(moe_combine) X(conv_state) X(ssm_scan) X(gated_delta) X(lookup) X(lora)
/* clang-format on */
#define OCL_OP_(name) OCL_OP_##name,
enum { OCL_OPS(OCL_OP_) OCL_N_OPS };
extern const mng_op *const ocl_ops[OCL_N_OPS];

/* ---- launch.c -------------------------------------------------------------------------------- */
/* Items of a kernel in up to three dimensions, and of a group. */
typedef struct {
    size_t global[3];
    size_t local[3];
} ocl_grid;
/* n groups of the device's lanes, times m. */
ocl_grid ocl_groups(const mng_run *r, int64_t n, int64_t m);
/* At least n items, times m, times k; kernels check the first index. */
ocl_grid ocl_items(int64_t n, int64_t m, int64_t k);
/* A kernel with its operands and, as the last argument, its struct of values. type NULL: a kernel
 * without one. Nothing to do: nothing is enqueued. */
typedef struct {
    uint32_t kernel; /* OCL_KERNEL_* */
    const mng_type *type;
    const mng_ref *refs;
    uint32_t n_refs;
    const void *args;
    size_t args_bytes;
    ocl_grid grid;
    bool beside; /* it needs nothing of the launch before it */
} ocl_launch;
void ocl_enqueue(mng_run *r, const ocl_launch *l);
/* Whatever may stand in its place (step.c, commands.c). */
void ocl_launch_now(mng_run *r, const ocl_launch *l);
/* The kernel object of launch i of a step, which was enqueued there. */
cl_kernel ocl_kernel_at(const mn_context *c, const ocl_launch *l, uint32_t i);

enum { OCL_LINEAR_FEW = 4 }; /* rows of linear_few at a time */
/* n outputs, `tiles` of rows, in linear.cl. */
ocl_grid ocl_linear_grid(ocl_shape shape, int64_t n, int64_t tiles);
enum { OCL_TILE_ROWS = 5 }; /* from which products may be those on tensor cores */

/* ---- step.c ---------------------------------------------------------------------------------- */
/* What a context needs for common kernels, where its device and its program have a use for them. */
mn_status ocl_steps_create(mn_context *c, mn_error *err);
void ocl_steps_free(mn_context *c);
/* Whether the rows of this step are few enough, and which kernels it takes. */
void ocl_steps_take(mng_run *r);
/* Into the kernel that is being filled; false: it has a kernel of its own. */
bool ocl_step_add(mng_run *r, const ocl_launch *l);
/* Enqueues what is filled. */
void ocl_step_flush(mng_run *r);

/* ---- commands.c ------------------------------------------------------------------------------ */
/* Room for steps of n launches. */
mn_status ocl_recordings_reserve(mn_context *c, uint32_t n, mn_error *err);
void ocl_recordings_free(mn_context *c);
void ocl_recording_begin(mng_run *r, uint32_t set);
/* Whether the launch is held back: the end of the step sees to it. */
bool ocl_recording_holds(mng_run *r, const ocl_launch *l);
void ocl_recording_end(mng_run *r);

void ocl_drop_places(mn_context *c);

/* ---- context.c: hooks ------------------------------------------------------------------------ */
mn_status ocl_context_open(mn_context *c, mn_error *err);
void ocl_context_close(mn_context *c);
void ocl_run_begin(mng_run *r);
mn_status ocl_step(mn_context *c, bool dry, mn_error *err);

/* ---- program.c: hooks ------------------------------------------------------------------------ */
const mnp_pattern *const *ocl_patterns(const mn_device *d, uint32_t *n);
void ocl_unit_of(const mnp_unit *m, mng_unit *u);
void ocl_estimate(const mn_program *p, double streamed, mn_estimate *e);

/* ---- op_rows.c ------------------------------------------------------------------------------- */
void ocl_copy_view(mng_run *r, const mng_view *v);
/* Each of n_pairs rows of y [n] times its factor. */
void ocl_scale_pairs(mng_run *r, mng_ref y, mng_ref factors, int64_t n, int64_t n_pairs);
#endif
