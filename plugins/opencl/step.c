/* step.c -- steps of few rows by kernels that run many operations one after the other (step.cl): a
 * kernel of its own costs the device more than most operations of such a step take. Launches that
 * such a kernel knows are collected as a list in device memory, with the buffers that they name; a
 * list is sent again only when it has changed. The groups of such a kernel wait for each other, so
 * all must run at once: kernels of two queues never run together (take_turn). */
#include "ops.h"
#include "step_text.h"

enum {
    MOST_ROWS = 64,
    MOST_ROWS_EXPERTS = 4,
    MOST_OPS = 192,
    PLAN_BYTES = MOST_OPS * sizeof(ocl_step_op)
};
enum { FIRST_MEM = 4 }; /* argument of the kernel */
enum { MOST_LISTS = 2 * MNP_MAX_SETS };

_Static_assert(sizeof(ocl_warp_args) <= OCL_STEP_ARGS, "products");
_Static_assert(sizeof(ocl_linear_args) <= OCL_STEP_ARGS, "products of few rows");
_Static_assert(sizeof(ocl_attend_args) <= OCL_STEP_ARGS, "attention");
_Static_assert(sizeof(ocl_store_args) <= OCL_STEP_ARGS, "rotation and store");
_Static_assert(sizeof(ocl_elementwise_args) <= OCL_STEP_ARGS, "elements");
_Static_assert(sizeof(ocl_route_args) <= OCL_STEP_ARGS, "experts");

/* A kernel, and what it was last enqueued with. mems: as they were first named, of this step or an
 * earlier one of the same bindings. */
typedef struct {
    cl_kernel object;
    cl_mem plan; /* the operations on the device */
    uint32_t n_ops;
    uint32_t n_sent;
    uint32_t n_mems;
    uint32_t freed; /* the device's count when mems began */
    bool changed;   /* ops or their number */
    bool has_args;
    cl_mem mems[OCL_STEP_MEMS];
    cl_mem set[OCL_STEP_MEMS]; /* the kernel's arguments */
    ocl_step_op ops[MOST_OPS];
} batch;

struct ocl_steps {
    uint32_t variant; /* of one to four rows */
    bool has_tiles;   /* more rows have a program of their own */
    int32_t row_pos;  /* a tensor of as many elements as a step has rows */
    int64_t most_rows;
    cl_mem arrived; /* where groups meet: how many came so far, modulo 2^32 */
    uint32_t came;  /* what that is when all that is enqueued has run */
    /* of each set of bindings, then of each for the program of tiles */
    batch **batches[MOST_LISTS];
    uint32_t n_lists;
    uint32_t n_batches; /* of each list */
};

/* ---- programs -------------------------------------------------------------------------------- */
/* Products of experts for several rows are faster in kernels of their own, with more groups. */
static bool has_experts(const mn_program *p) {
    for (uint32_t i = 0; i < p->base.n_units; i++)
        if (mnp_node(p->base.graph, p->base.units[i].node)->op == MN_OP_MOE_LINEAR)
            return true;
    return false;
}

/* What a program needs of step.cl (step_text.h). */
static uint32_t variant_of(const mn_program *p) {
    uint32_t types = has_experts(p) ? OCL_STEP_EXPERTS : 0;
    uint32_t longest = 1;
    for (uint32_t t = 0; t < p->base.graph->n_tensors; t++)
        if (p->base.w[t] && !p->base.w[t]->flat && p->base.w[t]->type->index < OCL_STEP_TYPES)
            types |= 1u << p->base.w[t]->type->index;
    for (uint32_t i = 0; i < p->base.n_units; i++) {
        const mnp_kv *kv = &p->base.units[i].kv;
        const uint32_t both = kv->dim_k > kv->dim_v ? (uint32_t)kv->dim_k : (uint32_t)kv->dim_v;
        longest = both > longest ? both : longest;
    }
    uint32_t per = longest > 512 ? 18 : 16;
    if (longest <= 64)
        per = 2;
    else if (longest <= 128)
        per = 4;
    return types | per << OCL_STEP_TYPES;
}

/* Elements of a word of 16 bytes. */
static uint32_t word_elements(const mng_type *type) {
    switch (type->dtype) {
    case MN_F16:
        return 8;
    case MN_Q8_0:
        return 16;
    default:
        return 32;
    }
}

/* Groups that share a row of `rows`. */
static uint32_t parts_of(const mn_device *d, uint32_t rows) {
    return rows < d->step_groups ? d->step_groups / rows : 1;
}

/* How many warps have a block of 8 pairs of products on tensor cores, as a power of 2: with the
 * fewest words for a warp of the group that has most; of equal ones neighbouring words by half of
 * the warps. */
static uint32_t share_of_blocks(const mn_device *d, const ocl_warp_args *a, const mng_type *type,
                                uint32_t most) {
    static const uint32_t shares[] = {3, 4, 2, 1, 0};
    const uint32_t words = 16 * (uint32_t)a->w[0].pieces / word_elements(type);
    uint32_t best = ~0u;
    uint32_t found = 0;
    for (uint32_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        const uint32_t at_once = d->step_warps >> shares[i];
        if (!at_once)
            continue;
        const uint32_t steps = (words + (4u << shares[i]) - 1) >> (2 + shares[i]);
        const uint32_t cost = (most + at_once - 1) / at_once * steps;
        if (cost < best)
            found = shares[i];
        best = cost < best ? cost : best;
    }
    return found;
}

/* How many warps have a pair otherwise: as many as there are for it. */
static uint32_t share_of_pairs(const mn_device *d, const ocl_warp_args *a, uint32_t parts) {
    uint32_t share = 0;
    while ((uint32_t)a->units << (share + 1) <= d->step_warps * parts &&
           2u << share <= d->step_warps)
        share++;
    return share;
}

/* Products among the warps of all groups. */
static void divide(const mn_device *d, uint32_t variant, const ocl_warp_args *a,
                   const mng_type *type, ocl_step_op *op) {
    const uint32_t parts = parts_of(d, (uint32_t)op->n[0]);
    const uint32_t blocks = (uint32_t)op->n[1];
    const uint32_t most = (blocks + parts - 1) / parts;
    op->least = (int)(blocks / parts);
    if (ocl_step_has_fragments(d, variant, type))
        op->share = (int)share_of_blocks(d, a, type, most);
    else
        op->share = (int)share_of_pairs(d, a, parts);
}

/* ---- of a context ---------------------------------------------------------------------------- */
/* Rows are counted by what a unit stores; -1: nothing is stored. */
static int32_t row_pos_of(const mn_program *p) {
    for (uint32_t i = 0; i < p->base.n_units; i++) {
        const mn_node *n = mnp_node(p->base.graph, p->base.units[i].node);
        if (n->op == MN_OP_KV_STORE)
            return mnp_in(p->base.graph, n, MN_KV_STORE_ROW_POS);
    }
    return -1;
}

mn_status ocl_steps_create(mn_context *c, mn_error *err) {
    mn_device *d = c->base.prog->base.dev;
    const int32_t row_pos = row_pos_of(c->base.prog);
    const uint32_t variant = variant_of(c->base.prog);
    const bool has_types = variant & ((1u << OCL_STEP_TYPES) - 1);
    if (!d->step_groups || row_pos < 0 || !has_types)
        return MN_OK;
    struct ocl_steps *s = mng_new(d, sizeof *s);
    if (!s)
        return mnp_fail_memory(err, sizeof *s, "a context");
    c->steps = s;
    s->variant = variant;
    s->has_tiles = ocl_step_has_tiles(d, variant);
    s->row_pos = row_pos;
    s->n_lists = 2 * c->base.prog->base.n_sets;
    s->most_rows = has_experts(c->base.prog) ? MOST_ROWS_EXPERTS : MOST_ROWS;
    return ocl_take_memory(d, sizeof(uint32_t), "scratch", &s->arrived, err);
}

static void free_batch(const mn_device *d, batch *b) {
    if (!b)
        return;
    if (b->object)
        d->cl->ReleaseKernel(b->object);
    if (b->plan)
        d->cl->ReleaseMemObject(b->plan);
    mng_delete(d, b);
}

void ocl_steps_free(mn_context *c) {
    const mn_device *d = c->base.prog->base.dev;
    struct ocl_steps *s = c->steps;
    if (!s)
        return;
    for (uint32_t list = 0; list < s->n_lists; list++) {
        for (uint32_t i = 0; i < s->n_batches; i++)
            free_batch(d, s->batches[list][i]);
        mng_delete(d, s->batches[list]);
    }
    if (s->arrived)
        d->cl->ReleaseMemObject(s->arrived);
    mng_delete(d, s);
    c->steps = NULL;
}

void ocl_steps_take(mng_run *r) {
    const struct ocl_steps *s = r->c->steps;
    const int64_t rows = s ? mng_dim(r, s->row_pos, 0) : 0;
    r->step->few = s && rows <= s->most_rows;
    r->step->tiles = r->step->few && s->has_tiles && rows >= OCL_TILE_ROWS;
}

/* Room for longer lists of batches, the same of each. */
static mn_status batches_grow(mn_device *d, struct ocl_steps *s, mn_error *err) {
    const uint32_t n = 2 * s->n_batches + 4;
    for (uint32_t list = 0; list < s->n_lists; list++) {
        batch **more = mng_new(d, n * sizeof(batch *));
        if (!more)
            return mnp_fail_memory(err, n * sizeof(batch *), "kernels");
        if (s->n_batches)
            memcpy(more, s->batches[list], s->n_batches * sizeof(batch *));
        mng_delete(d, s->batches[list]);
        s->batches[list] = more;
    }
    s->n_batches = n;
    return MN_OK;
}

static mn_status make_batch(mng_run *r, batch **out) {
    mn_device *d = r->dev;
    cl_program program;
    cl_int code;
    batch *b = mng_new(d, sizeof *b);
    if (!b)
        return mnp_fail_memory(r->err, sizeof *b, "a kernel");
    const uint32_t variant = r->c->steps->variant | (r->step->tiles ? OCL_STEP_TILES : 0);
    mn_status st = ocl_build(d, OCL_SOURCE_step, variant, NULL, &program, r->err);
    if (!st) {
        b->object = d->cl->CreateKernel(program, "run_step", &code);
        st = ocl_check(code, r->err, "run_step");
    }
    if (!st)
        st = ocl_take_written(d, PLAN_BYTES, "scratch", &b->plan, r->err);
    if (st)
        free_batch(d, b);
    else
        *out = b;
    return st;
}

/* Where the one that is being filled stands among those of the step's bindings. */
static batch **place_of(const mng_run *r) {
    const uint32_t first = r->step->tiles ? r->c->base.prog->base.n_sets : 0;
    return &r->c->steps->batches[first + r->c->base.set][r->step->batch];
}

/* The one that is being filled; NULL after an error, which r keeps. */
static batch *batch_of(mng_run *r) {
    struct ocl_steps *s = r->c->steps;
    if (r->step->batch >= s->n_batches)
        r->status = batches_grow(r->dev, s, r->err);
    if (r->status)
        return NULL;
    batch **b = place_of(r);
    if (!*b)
        r->status = make_batch(r, b);
    return r->status ? NULL : *b;
}

/* ---- collecting ------------------------------------------------------------------------------ */
/* What the kernel `run_step` of the device calls it; -1: it has nothing of the kind. */
static int32_t what_of(const mn_device *d, uint32_t kernel) {
    switch (kernel) {
    case OCL_KERNEL_linear_warp:
        return OCL_STEP_PRODUCTS;
    case OCL_KERNEL_linear_mma_few:
        return OCL_STEP_FEW;
    case OCL_KERNEL_attend_64:
    case OCL_KERNEL_attend_128:
    case OCL_KERNEL_attend_512:
    case OCL_KERNEL_attend_576:
        return OCL_STEP_ATTEND;
    case OCL_KERNEL_attend_64x4:
    case OCL_KERNEL_attend_128x4:
        return d->ptx ? OCL_STEP_ATTEND_FOUR : -1;
    case OCL_KERNEL_rope_store:
        return OCL_STEP_ROPE_STORE;
    case OCL_KERNEL_rms_norm:
        return OCL_STEP_RMS_NORM;
    case OCL_KERNEL_elementwise:
        return OCL_STEP_ELEMENTWISE;
    case OCL_KERNEL_gather_rows:
        return OCL_STEP_GATHER;
    case OCL_KERNEL_moe_route:
        return OCL_STEP_ROUTE;
    case OCL_KERNEL_moe_combine:
        return OCL_STEP_COMBINE;
    default:
        return -1;
    }
}

/* Its place among the batch's; guess: where it may be. -1: there is no room. */
static int32_t place_mem(const mn_device *d, batch *b, cl_mem mem, int32_t guess) {
    if (guess >= 0 && (uint32_t)guess < b->n_mems && b->mems[guess] == mem)
        return guess;
    for (uint32_t i = 0; i < b->n_mems; i++)
        if (b->mems[i] == mem)
            return (int32_t)i;
    if (b->n_mems == ocl_step_mems(d))
        return -1;
    b->mems[b->n_mems] = mem;
    return (int32_t)b->n_mems++;
}

/* Whether the products before a rotation with its store can do its work: those of queries, keys and
 * values together, a pair that turns for each warp, and nothing in between. */
static bool is_turned_by(const ocl_step_op *products, const ocl_step_op *store) {
    enum { FIRST_Y = 10 /* as in op_linear.c */ };
    ocl_warp_args p;
    ocl_store_args s;
    if (products->what != OCL_STEP_PRODUCTS || store->what != OCL_STEP_ROPE_STORE)
        return false;
    memcpy(&p, products->args, sizeof p);
    memcpy(&s, store->args, sizeof s);
    const bool whole = s.r.n_rot == s.r.D && s.c.dv == s.r.D && s.r.D % 2 == 0;
    if (!whole || p.glu || p.per_x != 1 || p.n_experts != 1 || products->n[0] != s.r.T)
        return false;
    for (uint32_t i = 0; i < 3; i++) {
        const ocl_step_ref *y = &products->refs[FIRST_Y + i];
        if (y->mem != store->refs[i].mem || y->at != store->refs[i].at)
            return false;
    }
    return p.N[0] == s.r.H * s.r.D && p.N[1] == s.c.Hkv * s.r.D && p.N[2] == p.N[1];
}

/* The launch as operation i of the batch; false: its buffers have no room there. */
static bool write_op(const mng_run *r, batch *b, uint32_t i, const ocl_launch *l, int32_t what) {
    const mn_device *d = r->dev;
    ocl_step_op op = {.what = what, .beside = l->beside};
    memcpy(op.args, l->args, l->args_bytes);
    if (l->type)
        op.type = (int)l->type->index;
    for (uint32_t k = 0; k < 3; k++)
        op.n[k] = (int)(l->grid.global[k] / l->grid.local[k]);
    if (what == OCL_STEP_PRODUCTS)
        divide(d, r->c->steps->variant, l->args, l->type, &op);
    for (uint32_t k = 0; k < l->n_refs; k++) {
        const int32_t place = place_mem(d, b, l->refs[k].mem, b->ops[i].refs[k].mem);
        if (place < 0)
            return false;
        op.refs[k].mem = place;
        op.refs[k].at = l->refs[k].at;
    }
    if (i && is_turned_by(&b->ops[i - 1], &op)) {
        op.what = OCL_STEP_TURNED;
        op.beside = 1;
    }
    if (i >= b->n_sent || memcmp(&b->ops[i], &op, sizeof op) != 0) {
        b->ops[i] = op;
        b->changed = true;
    }
    return true;
}

/* An empty batch: buffers that are gone are forgotten. */
static void begin_batch(const mng_run *r, batch *b) {
    const uint32_t freed = atomic_load(&r->dev->freed);
    if (b->freed == freed)
        return;
    b->n_mems = 0;
    b->has_args = false;
    b->freed = freed;
}

bool ocl_step_add(mng_run *r, const ocl_launch *l) {
    const int32_t what = what_of(r->dev, l->kernel);
    const ocl_grid *g = &l->grid;
    const bool nothing = !g->global[0] || !g->global[1] || !g->global[2];
    if (!r->step->few || what < 0 || nothing)
        return false;
    if (l->type && l->type->index >= OCL_STEP_TYPES)
        return false;
    if (what == OCL_STEP_PRODUCTS && r->step->tiles && ocl_has_halves(l->type))
        return false;
    for (;;) {
        batch *b = batch_of(r);
        if (!b)
            return true;
        if (!b->n_ops)
            begin_batch(r, b);
        if (b->n_ops < MOST_OPS && write_op(r, b, b->n_ops, l, what)) {
            b->n_ops++;
            return true;
        }
        if (!b->n_ops)
            b->n_mems = 0; /* of other bindings */
        ocl_step_flush(r);
        if (r->status)
            return true;
    }
}

/* ---- enqueuing ------------------------------------------------------------------------------- */
void ocl_step_forget(mn_queue *q) {
    pthread_mutex_lock(&q->base.dev->base.lock);
    if (q->base.dev->stepper == q)
        q->base.dev->stepper = NULL;
    pthread_mutex_unlock(&q->base.dev->base.lock);
}

/* Under the lock: what this queue enqueues from now on runs behind the last such kernel of
 * another. */
static cl_int take_turn(mn_device *d, mn_queue *q) {
    const ocl_icd *cl = d->cl;
    cl_event over;
    if (!d->stepper || d->stepper == q)
        return CL_SUCCESS;
    cl_int code = cl->EnqueueMarkerWithWaitList(d->stepper->cl, 0, NULL, &over);
    if (code != CL_SUCCESS)
        return code;
    code = cl->Flush(d->stepper->cl);
    if (code == CL_SUCCESS)
        code = cl->EnqueueBarrierWithWaitList(q->cl, 1, &over, NULL);
    cl->ReleaseEvent(over);
    return code;
}

static cl_int set_mem(const ocl_icd *cl, batch *b, uint32_t i, cl_mem mem) {
    if (b->has_args && b->set[i] == mem)
        return CL_SUCCESS;
    b->set[i] = mem;
    return cl->SetKernelArg(b->object, FIRST_MEM + i, sizeof mem, &mem);
}

/* An argument that no operation names is the scratch. */
static cl_int set_args(const mng_run *r, batch *b) {
    const ocl_icd *cl = r->dev->cl;
    const cl_int n = (cl_int)b->n_ops;
    const cl_uint came = r->c->steps->came;
    cl_int code = cl->SetKernelArg(b->object, 2, sizeof came, &came);
    if (code == CL_SUCCESS)
        code = cl->SetKernelArg(b->object, 3, sizeof n, &n);
    if (!b->has_args && code == CL_SUCCESS)
        code = cl->SetKernelArg(b->object, 0, sizeof b->plan, &b->plan);
    if (!b->has_args && code == CL_SUCCESS)
        code = cl->SetKernelArg(b->object, 1, sizeof r->c->steps->arrived, &r->c->steps->arrived);
    for (uint32_t i = 0; i < ocl_step_mems(r->dev) && code == CL_SUCCESS; i++)
        code = set_mem(cl, b, i, i < b->n_mems ? b->mems[i] : r->c->base.room->mem);
    b->has_args = code == CL_SUCCESS;
    return code;
}

/* Of the groups of a kernel: after each operation but the last and those with another beside. */
static uint32_t meetings(const batch *b) {
    uint32_t n = 0;
    for (uint32_t i = 1; i < b->n_ops; i++)
        n += !b->ops[i].beside;
    return n;
}

static cl_int enqueue(const mng_run *r, batch *b) {
    mn_device *d = r->dev;
    const size_t warps = d->step_warps;
    const size_t global[2] = {32 * (size_t)d->step_groups, warps};
    const size_t local[2] = {32, warps};
    cl_int code = set_args(r, b);
    if (code != CL_SUCCESS)
        return code;
    pthread_mutex_lock(&d->base.lock);
    code = take_turn(d, r->c->base.queue);
    if (code == CL_SUCCESS)
        code = d->cl->EnqueueNDRangeKernel(r->c->base.queue->cl, b->object, 2, NULL, global, local,
                                           0, NULL, NULL);
    if (code == CL_SUCCESS)
        d->stepper = r->c->base.queue;
    pthread_mutex_unlock(&d->base.lock);
    if (code == CL_SUCCESS)
        r->c->steps->came += d->step_groups * meetings(b);
    return code;
}

/* What of the list the device does not have yet. */
static mn_status send(const mng_run *r, batch *b) {
    if (!b->changed && b->n_sent >= b->n_ops)
        return MN_OK;
    b->n_sent = 0;
    const mn_status st = mng_send(r->c->base.queue, (mng_ref){b->plan, 0}, b->ops,
                                  b->n_ops * sizeof b->ops[0], r->err);
    if (st)
        return st;
    b->n_sent = b->n_ops;
    b->changed = false;
    return MN_OK;
}

/* The list is empty afterwards, also that of a step that has failed: the next one begins anew. */
void ocl_step_flush(mng_run *r) {
    if (!r->step->few || r->step->batch >= r->c->steps->n_batches)
        return;
    batch *b = *place_of(r);
    if (!b || !b->n_ops)
        return;
    r->step->batch++;
    if (!r->dry && !r->status)
        r->status = send(r, b);
    if (!r->dry && !r->status)
        r->status = ocl_check(enqueue(r, b), r->err, "run_step");
    b->n_ops = 0;
}
