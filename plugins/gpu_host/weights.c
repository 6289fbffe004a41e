/* weights.c -- weight sets: which tensors a segment reads, where they lie on the device, and that
 * each is put once. How a type lies there is the backend's (weight_shape, weight_put); rows on
 * their way: weight_rows.c. A set belongs to the host; programs point to its entries. */
#include "gpu_table.h"

bool mng_is_matrix(const mn_node *n, uint32_t i) {
    switch (n->op) {
    case MN_OP_EMBED:
        return i == MN_EMBED_WEIGHT;
    case MN_OP_LOOKUP:
        return i == MN_LOOKUP_WEIGHT;
    case MN_OP_LINEAR:
        return i >= MN_LINEAR_WEIGHT && (i - MN_LINEAR_WEIGHT) % 2 == 0;
    case MN_OP_MOE_LINEAR:
        return i >= MN_MOE_LINEAR_WEIGHT && (i - MN_MOE_LINEAR_WEIGHT) % 2 == 0;
    default:
        return false;
    }
}

static void shape(const mn_device *dev, const mn_tensor *t, bool matrix, mng_weight *w) {
    w->flat = !matrix;
    w->rows = 1;
    for (uint32_t i = 0; i + 1 < t->n_dim; i++)
        w->rows *= t->dim[i];
    w->cols = t->n_dim ? t->dim[t->n_dim - 1] : 0;
    w->group_rows = t->n_dim == 3 ? t->dim[1] : w->rows;
    w->ld = w->cols;
    w->n_parts = 1;
    w->part_rows = w->rows;
    mng_backend_of(dev)->weight_shape(dev, t, w);
}

uint64_t mng_weight_bytes(const mn_device *dev, const mn_tensor *t, bool matrix) {
    mng_weight w = {0};
    shape(dev, t, matrix, &w);
    return w.n_parts * w.part_bytes;
}

static mn_status check_size(const mn_tensor *t, const mng_weight *w, mn_error *err) {
    if ((uint64_t)w->rows >> 40 || (uint64_t)w->ld >> 31 || w->part_bytes >> 46)
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s: its size overflows", MNP_NAME(t));
    return MN_OK;
}

/* Marks what the segment reads, and what of it is a matrix. */
static void mark(mn_weights *w, const mn_compile *c) {
    for (uint32_t node = c->node_lo; node < c->node_hi; node++) {
        const mn_node *n = mnp_node(c->graph, node);
        for (uint32_t i = 0; i < n->n_in; i++) {
            const int32_t t = mnp_in(c->graph, n, i);
            if (t < 0 || mnp_tensor(c->graph, (uint32_t)t)->role != MN_ROLE_WEIGHT)
                continue;
            if (!w->w[t].wanted)
                w->w[t].flat = true;
            w->w[t].wanted = true;
            if (mng_is_matrix(n, i))
                w->w[t].flat = false;
        }
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */
static mn_status list_parts(const mn_device *dev, mng_weight *w, mn_error *err) {
    const uint64_t bytes = w->n_parts * sizeof *w->mem;
    w->mem = mng_new(dev, bytes);
    return w->mem ? MN_OK : mnp_fail_memory(err, bytes, "a weight");
}

/* Of one weight; what is there after an error goes with the set. */
static mn_status alloc_parts(mn_device *dev, mng_weight *w, mn_error *err) {
    mn_status st = list_parts(dev, w, err);
    for (uint32_t i = 0; i < w->n_parts && !st; i++)
        st = mng_backend_of(dev)->memory_alloc(dev, w->part_bytes, MNG_WRITTEN, "weights",
                                               &w->mem[i], err);
    return st;
}

/* Of all that are wanted, at once. */
static mn_status alloc_together(mn_weights *set, mn_error *err) {
    uint64_t all = 0;
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < set->graph->n_tensors && !st; i++) {
        const mn_tensor *t = mnp_tensor(set->graph, i);
        mng_weight *w = &set->w[i];
        if (!w->wanted)
            continue;
        shape(set->dev, t, !w->flat, w);
        st = check_size(t, w, err);
        w->at = all;
        all += w->part_bytes;
        if (!st && all >> 46)
            st = mnp_fail(err, MN_INVALID, ~0u, "%.*s: its size overflows", MNP_NAME(t));
        if (!st)
            st = list_parts(set->dev, w, err);
    }
    if (!st && all)
        st = mng_backend_of(set->dev)->memory_alloc(set->dev, all, MNG_WRITTEN, "weights",
                                                    &set->mem, err);
    for (uint32_t i = 0; i < set->graph->n_tensors && !st; i++)
        if (set->w[i].wanted)
            set->w[i].mem[0] = set->mem;
    return st;
}

mn_status mng_weights_open(mn_device *dev, const mn_compile *in, mn_weights **out, mn_error *err) {
    mn_compile c;
    mn_status st = mnp_read_compile(in, &c, err);
    if (!st)
        st = mng_enter(dev, err);
    if (st)
        return st;
    const uint64_t bytes = c.graph->n_tensors * sizeof(mng_weight);
    mn_weights *w = mng_new(dev, sizeof *w);
    if (w)
        *w = (mn_weights){.dev = dev,
                          .graph = c.graph,
                          .w = mng_new(dev, bytes),
                          .updates = c.flags & MN_COMPILE_UPDATES};
    if (!w || !w->w) {
        mng_delete(dev, w);
        return mnp_fail_memory(err, bytes, "a weight set");
    }
    mark(w, &c);
    if (mng_backend_of(dev)->weights_together)
        st = alloc_together(w, err);
    if (st)
        mng_weights_free(w);
    else
        *out = w;
    return st;
}

/* ---- sources --------------------------------------------------------------------------------- */
/* Puts come once, and again once the set is sealed, if it may be updated. */
static mn_status check_again(const mn_weights *w, uint32_t tensor, mn_error *err) {
    const mn_tensor *t = mnp_tensor(w->graph, tensor);
    if (w->sealed && !w->updates)
        return mnp_fail(err, MN_INVALID, ~0u,
                        "%.*s: the set is sealed, and was opened without MN_COMPILE_UPDATES",
                        MNP_NAME(t));
    if (w->w[tensor].put && !w->sealed)
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s was put before", MNP_NAME(t));
    return MN_OK;
}

/* A source against the tensor it is for. */
static mn_status check_source(const mn_weights *w, const mn_weight_src *s, mn_error *err) {
    mn_status st = mnp_check_source(w->graph, s, 3, err);
    if (st)
        return st;
    const mn_tensor *t = mnp_tensor(w->graph, s->tensor);
    st = check_again(w, s->tensor, err);
    if (st)
        return st;
    if (s->n_planes < t->dtype.n_planes)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%.*s: %u planes, the type has %u", MNP_NAME(t),
                        s->n_planes, t->dtype.n_planes);
    for (uint32_t i = 0; i < s->n_parts && !st; i++)
        for (uint32_t k = 1; k < s->n_planes && !st; k++)
            st = mnp_check_extra_plane(t, mnp_plane(s, i, 0), mnp_plane(s, i, k), k, err);
    return st;
}

/* The weight's place on the device, where it has none yet. */
static mn_status make_place(mn_weights *set, const mn_tensor *t, mng_weight *w, mn_error *err) {
    if (w->mem)
        return MN_OK;
    shape(set->dev, t, !w->flat, w);
    const mn_status st = check_size(t, w, err);
    return st ? st : alloc_parts(set->dev, w, err);
}

/* The file's bytes have been read when this returns; what they became is on its way, behind the
 * steps of the queue: an update goes to the place that they read. */
mn_status mng_weights_put(mn_weights *set, mn_queue *q, const mn_weight_src *in, mn_event **event,
                          mn_error *err) {
    mn_weight_src src;
    mnp_read(&src, sizeof src, in, in->size);
    if (event)
        *event = NULL;
    mn_status st = check_source(set, &src, err);
    if (!st)
        st = mng_check_device(set->dev, mng_queue_of(q)->dev, "a queue", err);
    if (!st)
        st = mng_check_abort(q, err);
    if (st || !set->w[src.tensor].wanted)
        return st;
    const mn_tensor *t = mnp_tensor(set->graph, src.tensor);
    mng_weight *w = &set->w[src.tensor];
    st = mng_enter(set->dev, err);
    if (!st)
        st = make_place(set, t, w, err);
    if (st)
        return st;
    const mnp_source_row s = mnp_first_row(t, &src);
    st = mng_backend_of(set->dev)->weight_put(q, w, &s, err);
    w->put |= !st;
    if (st || !event)
        return st;
    return mng_event_new(q, event, err);
}

mn_status mng_weights_seal(mn_weights *set, mn_queue *q, uint32_t *kept_how, mn_error *err) {
    const mng_backend *b = mng_backend_of(set->dev);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < set->graph->n_tensors; i++) {
        const mng_weight *w = &set->w[i];
        if (w->wanted && !w->put)
            return mnp_fail(err, MN_INVALID, ~0u, "weight %.*s is missing",
                            MNP_NAME(mnp_tensor(set->graph, i)));
        if (w->put)
            kept |= b->weight_kept ? b->weight_kept(w) : MN_KEPT_COPIED;
    }
    mn_status st = mng_check_device(set->dev, mng_queue_of(q)->dev, "a queue", err);
    if (!st)
        st = mng_enter(set->dev, err);
    if (!st)
        st = b->queue_finish(q, err);
    set->sealed |= !st;
    if (!st && kept_how)
        *kept_how = kept;
    return st;
}

static void weight_free(mn_weights *set, mng_weight *w) {
    const mng_backend *b = mng_backend_of(set->dev);
    for (uint32_t i = 0; w->mem && !b->weights_together && i < w->n_parts; i++)
        if (w->mem[i])
            b->memory_free(set->dev, w->mem[i]);
    mng_delete(set->dev, w->mem);
}

void mng_weights_free(mn_weights *set) {
    if (!set)
        return;
    mng_enter(set->dev, NULL);
    for (uint32_t i = 0; i < set->graph->n_tensors; i++)
        weight_free(set, &set->w[i]);
    if (set->mem)
        mng_backend_of(set->dev)->memory_free(set->dev, set->mem);
    mng_delete(set->dev, set->w);
    mng_delete(set->dev, set);
}
