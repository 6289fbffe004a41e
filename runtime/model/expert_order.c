/* expert_order.c -- routed experts of a layer in the order of their use. The router's rows, its
 * biases and all experts are put in another order alike, so that the model is the same: an expert
 * has another number, and what a row of the router chooses, in order of its scores, are the same
 * matrices. Nothing is copied: each expert becomes a part whose planes begin where it lies. What is
 * made here belongs to the canonical model.
 *
 * A device that has the first experts of a layer (mn_division) then has the most used ones. */
#include "model/model.h"
#include "model/rows.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mn_expert_order {
    mn_expert_order *next;
    int64_t layer;
    uint32_t n;
    uint32_t *order;      /* [n] the old number of each expert */
    double *share;        /* [n + 1] of all choices that fall on the first k */
    mn_plane *planes[32]; /* of the tensors that were ordered */
    uint32_t n_planes;
};

static void order_free(mn_expert_order *o) {
    for (uint32_t i = 0; i < o->n_planes; i++)
        mn_free(o->planes[i]);
    mn_free(o->order);
    mn_free(o->share);
    mn_free(o);
}

void mn_canonical_orders_free(mn_canonical *m) {
    while (m->orders) {
        mn_expert_order *o = m->orders;
        m->orders = o->next;
        order_free(o);
    }
}

const double *mn_canonical_expert_share(const mn_canonical *m, int64_t layer) {
    for (const mn_expert_order *o = m->orders; o; o = o->next)
        if (o->layer == layer)
            return o->share;
    return NULL;
}

/* ---- the order ------------------------------------------------------------------------------- */
typedef struct {
    double count;
    uint32_t expert;
} used_expert;

/* The most used first; of two alike the one that stood in front. */
static int by_use(const void *a, const void *b) {
    const used_expert *x = a;
    const used_expert *y = b;
    if (x->count > y->count || x->count < y->count)
        return x->count > y->count ? -1 : 1;
    return x->expert < y->expert ? -1 : 1;
}

static mn_expert_order *order_by(int64_t layer, const double *counts, uint32_t n) {
    mn_expert_order *o = mn_calloc(1, sizeof *o);
    used_expert *all = mn_alloc(n, sizeof *all);
    double sum = 0;
    if (o) {
        o->layer = layer;
        o->n = n;
        o->order = mn_alloc(n, sizeof *o->order);
        o->share = mn_calloc(n + 1u, sizeof *o->share);
    }
    if (!o || !all || !o->order || !o->share) {
        if (o)
            order_free(o);
        mn_free(all);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        all[i] = (used_expert){counts[i], i};
        sum += counts[i];
    }
    qsort(all, n, sizeof *all, by_use);
    for (uint32_t i = 0; i < n; i++) {
        o->order[i] = all[i].expert;
        const double own = sum > 0 ? all[i].count / sum : 1.0 / n;
        o->share[i + 1] = MN_MIN(o->share[i] + own, 1);
    }
    mn_free(all);
    return o;
}

/* ---- tensors --------------------------------------------------------------------------------- */
/* Expert e of the tensor as a part, whose planes go to `to`. */
static void part_of_expert(const mn_tensor_info *t, uint32_t e, mn_plane *to) {
    int64_t lo = e;
    uint32_t p = 0;
    while (lo >= mn_tensor_plane(t, p, 0)->dim[0])
        lo -= mn_tensor_plane(t, p++, 0)->dim[0];
    const int64_t rows = mn_tensor_plane(t, p, 0)->dim[0];
    for (uint32_t i = 0; i < t->n_planes; i++) {
        const mn_plane *whole = mn_tensor_plane(t, p, i);
        to[i] = whole->dim[0] == rows ? mn_plane_rows(whole, lo, 1) : *whole;
    }
}

static mn_status order_tensor(mn_expert_order *o, mn_tensor_info *t, mn_error *err) {
    const size_t n_planes = (size_t)o->n * t->n_planes;
    mn_plane *planes = mn_alloc(n_planes, sizeof *planes);
    if (!planes || o->n_planes == MN_COUNT(o->planes)) {
        mn_free(planes);
        return mn_fail_memory(err, n_planes * sizeof *planes);
    }
    for (uint32_t i = 0; i < o->n; i++)
        part_of_expert(t, o->order[i], planes + (size_t)i * t->n_planes);
    o->planes[o->n_planes++] = planes;
    t->planes = planes;
    t->plane_stride = sizeof *planes;
    t->n_parts = o->n;
    return MN_OK;
}

/* Whether the tensor, behind "blk.N.", has a row or a matrix for each expert. */
static bool is_of_experts(mn_str rest) {
    static const char *const names[] = {"ffn_gate_inp.weight", "ffn_gate_inp.bias",
                                        "exp_probs_b.bias"};
    static const char mark[] = "_exps.";
    for (size_t i = 0; i < MN_COUNT(names); i++)
        if (mn_str_is(rest, names[i]))
            return true;
    for (uint64_t i = 0; i + strlen(mark) <= rest.len; i++)
        if (!memcmp(rest.ptr + i, mark, strlen(mark)))
            return true;
    return false;
}

static bool is_in_layer(const mn_tensor_info *t, int64_t layer) {
    char front[32];
    const size_t n = (size_t)snprintf(front, sizeof front, "blk.%lld.", (long long)layer);
    return t->name.len > n && !memcmp(t->name.ptr, front, n) &&
           is_of_experts((mn_str){t->name.ptr + n, t->name.len - n});
}

static mn_status check_tensor(const mn_canonical *m, const mn_tensor_info *t, uint32_t n,
                              mn_error *err) {
    const bool is_blocked = t->n_dim == 1 && t->dtype.block_elems != 1;
    if (t->dim[0] == n && !is_blocked)
        return MN_OK;
    return mn_fail(err, MN_UNSUPPORTED,
                   "%s: tensor %.*s has %lld rows of type %s, expected one for each of %u experts "
                   "that are counted",
                   m->path, MN_STR_ARG(t->native), (long long)t->dim[0], mn_dtype_name(t->dtype.id),
                   n);
}

mn_status mn_canonical_order_experts(mn_canonical *m, int64_t layer, const double *counts,
                                     uint32_t n, mn_error *err) {
    mn_status st = MN_OK;
    for (size_t i = 0; i < m->n_tensors && !st; i++)
        if (is_in_layer(&m->tensors[i].info, layer))
            st = check_tensor(m, &m->tensors[i].info, n, err);
    if (st)
        return st;
    mn_expert_order *o = order_by(layer, counts, n);
    if (!o)
        return mn_fail_memory(err, n * sizeof(used_expert));
    o->next = m->orders;
    m->orders = o;
    for (size_t i = 0; i < m->n_tensors && !st; i++)
        if (is_in_layer(&m->tensors[i].info, layer))
            st = order_tensor(o, &m->tensors[i].info, err);
    return st;
}
