/* experts.c -- mn.x.experts/1: sets that hold some of a weight's experts. A room has a slot for
 * each expert that may be there, and in each slot a copy of all planes, dense; the weight's groups
 * say where an expert lies, which is all that the products know of it. What lies beside DATA has
 * the types of the first source, and gets its memory then. Steps run in the call that enqueues
 * them, so that an expert which is dropped is read by none. */
#include "mnc.h"
#include "residents.h"
#include "dtype.h"

enum { MOST_PLANES = 4 };

struct mnc_room {
    int64_t n_expert;
    uint32_t n_slots;
    uint32_t n_taken;
    uint32_t n_planes;            /* of what was brought; 0: nothing was yet */
    int32_t *slot_of;             /* [n_expert]; -1: it is not there */
    bool *taken;                  /* [n_slots] */
    const uint8_t **groups;       /* [MOST_PLANES][n_expert], the kept weight's */
    uint8_t *memory[MOST_PLANES]; /* of all slots; [0] is the kept weight's copy */
    uint64_t bytes[MOST_PLANES];  /* of a slot */
    mn_plane layout[MOST_PLANES]; /* of one expert in a slot, those beside DATA */
};

void mnc_room_free(mn_device *d, mnc_room *r) {
    if (!r)
        return;
    for (uint32_t k = 1; k < MOST_PLANES; k++)
        mnc_delete(d, r->memory[k]);
    mnc_delete(d, r->slot_of);
    mnc_delete(d, r->taken);
    mnc_delete(d, r);
}

static uint64_t slot_bytes(uint64_t bytes) {
    return (bytes + MNC_ALIGN - 1) / MNC_ALIGN * MNC_ALIGN;
}

/* ---- rooms ----------------------------------------------------------------------------------- */
/* Whether operand i of a node may be a weight of which some experts are absent. */
static bool takes_residents(const mn_graph *g, const mn_node *n, uint32_t i) {
    const uint32_t first = MN_MOE_LINEAR_WEIGHT;
    if (n->op != MN_OP_MOE_LINEAR || mnp_in(g, n, mnp_resident_operand(n)) < 0)
        return false;
    return i >= first && i < first + 2 * n->n_out && (i - first) % 2 == 0;
}

static bool readers_take_residents(const mn_compile *c, uint32_t tensor) {
    for (uint32_t i = c->node_lo; i < c->node_hi; i++) {
        const mn_node *n = mnp_node(c->graph, i);
        for (uint32_t k = 0; k < n->n_in; k++)
            if (mnp_in(c->graph, n, k) == (int32_t)tensor && !takes_residents(c->graph, n, k))
                return false;
    }
    return true;
}

static mn_status check_expert_room(const mn_weights *w, const mn_compile *c,
                                   const mn_experts_room *r, mn_error *err) {
    if (r->tensor >= w->n || !w->kept[r->tensor].wanted)
        return mnp_fail(err, MN_INVALID, ~0u,
                        "room for tensor %u, which is no weight of the segment", r->tensor);
    const mn_tensor *t = mnp_tensor(w->graph, r->tensor);
    if (w->kept[r->tensor].room)
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s has two rooms", MNP_NAME(t));
    if (t->n_dim != 3 || !readers_take_residents(c, r->tensor))
        return mnp_fail(err, MN_INVALID, ~0u,
                        "%.*s: room for experts is of weights of MOE_LINEAR with RESIDENT",
                        MNP_NAME(t));
    if (r->room && r->room < t->dim[0])
        return MN_OK;
    return mnp_fail(err, MN_INVALID, ~0u, "%.*s: room for %u of %lld experts, expected 1 to %lld",
                    MNP_NAME(t), r->room, (long long)t->dim[0], (long long)t->dim[0] - 1);
}

/* The weight as products read it, without an expert yet. What is there after an error goes with
 * the set. */
static mn_status make_expert_room(mn_weights *w, const mn_experts_room *in, mn_error *err) {
    mn_device *d = w->dev;
    const mn_tensor *t = mnp_tensor(w->graph, in->tensor);
    mnc_kept *k = &w->kept[in->tensor];
    const int64_t n = t->dim[0];
    uint64_t bytes;
    if (!mnp_bytes(w->graph, t, NULL, &bytes))
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s: its size overflows", MNP_NAME(t));
    mnc_room *r = mnc_new(d, sizeof *r);
    if (!r)
        return mnp_fail_memory(err, sizeof *r, "room for experts");
    k->room = r;
    r->n_expert = n;
    r->n_slots = in->room;
    r->bytes[0] = slot_bytes(bytes / (uint64_t)n);
    r->slot_of = mnc_new(d, (uint64_t)n * sizeof *r->slot_of);
    r->taken = mnc_new(d, in->room * sizeof *r->taken);
    r->groups = mnc_new(d, (uint64_t)n * MOST_PLANES * sizeof *r->groups);
    k->groups = r->groups;
    mnc_allocate_copy(d, in->room * r->bytes[0], k);
    r->memory[0] = k->copy;
    if (!r->slot_of || !r->taken || !r->groups || !k->copy)
        return mnp_fail_memory(err, in->room * r->bytes[0], "room for experts");
    for (int64_t e = 0; e < n; e++)
        r->slot_of[e] = -1;
    k->w = (mnc_weight){.dtype = t->dtype,
                        .rows = n * t->dim[1],
                        .cols = t->dim[2],
                        .row_bytes = bytes / (uint64_t)(n * t->dim[1]),
                        .groups = r->groups,
                        .group_rows = t->dim[1]};
    k->put = true;
    atomic_fetch_or(&w->kept_how, MN_KEPT_COPIED);
    return MN_OK;
}

static mn_status experts_open(mn_device *d, const mn_compile *in, const mn_experts_room *rooms,
                              uint32_t n, uint32_t stride, mn_weights **out, mn_error *err) {
    mn_compile c;
    mn_weights *w = NULL;
    mn_status st = mnc_read_compile(in, &c, err);
    if (!st)
        st = mnc_weights_open(d, in, &w, err);
    for (uint32_t i = 0; i < n && !st; i++) {
        mn_experts_room r;
        mnp_read(&r, sizeof r, (const char *)rooms + (uint64_t)i * stride, stride);
        st = check_expert_room(w, &c, &r, err);
        if (!st)
            st = make_expert_room(w, &r, err);
    }
    if (st)
        mnc_weights_free(w);
    else
        *out = w;
    return st;
}

/* ---- what comes ------------------------------------------------------------------------------ */
/* Plane k of expert e. Beside DATA a dimension without a stride, or one that the type does not step
 * through, has one value. */
static mn_plane plane_of_expert(const mn_tensor *t, const mn_weight_src *s, uint32_t k, int64_t e) {
    uint32_t i = 0;
    mn_plane_spec spec = {.by_block = true};
    while (e >= mnp_plane(s, i, 0)->dim[0])
        e -= mnp_plane(s, i++, 0)->dim[0];
    mn_plane p = *mnp_plane(s, i, k);
    p.ptr = (const char *)p.ptr + (uint64_t)e * (uint64_t)p.stride[0];
    p.dim[0] = 1;
    if (k)
        mn_dtype_plane(t->dtype.id, k, &spec);
    for (uint32_t d = 1; d < t->n_dim && k; d++)
        if (!p.stride[d] || (d + 1 == t->n_dim && !spec.by_block))
            p.dim[d] = 1;
    return p;
}

static mn_dtype type_of_plane(const mn_plane *p) {
    mn_dtype type = {0, 1, 0, 1};
    mn_dtype_by_id(p->dtype, &type);
    return type;
}

/* The same without gaps, but for dimensions of one value that is repeated; *bytes: of all. */
static mn_plane without_gaps(const mn_tensor *t, const mn_plane *p, uint64_t *bytes) {
    const mn_dtype type = type_of_plane(p);
    mn_plane dense = *p;
    *bytes = type.block_bytes;
    for (uint32_t d = t->n_dim; d-- > 0;) {
        const int64_t per = d + 1 == t->n_dim ? type.block_elems : 1;
        if (p->stride[d] || !d)
            dense.stride[d] = (int64_t)*bytes;
        *bytes *= (uint64_t)(p->dim[d] / per);
    }
    return dense;
}

static bool is_like(const mn_tensor *t, const mn_plane *a, const mn_plane *b) {
    bool like = a->dtype == b->dtype;
    for (uint32_t d = 1; d < t->n_dim && like; d++)
        like = a->dim[d] == b->dim[d] && a->stride[d] == b->stride[d];
    return like;
}

/* Planes beside DATA as those that are there; of the first source: memory for them. */
static mn_status fit_planes(mn_weights *w, const mn_tensor *t, const mn_weight_src *s, mnc_kept *k,
                            mn_error *err) {
    mnc_room *r = k->room;
    bool like = s->n_planes <= MOST_PLANES && (!r->n_planes || r->n_planes == s->n_planes);
    for (uint32_t i = 1; i < s->n_planes && like; i++) {
        uint64_t bytes;
        const mn_plane p = plane_of_expert(t, s, i, 0);
        const mn_plane dense = without_gaps(t, &p, &bytes);
        if (!r->memory[i]) {
            r->layout[i] = dense;
            r->bytes[i] = slot_bytes(bytes);
            r->memory[i] = mnc_new(w->dev, r->n_slots * r->bytes[i]);
        }
        if (!r->memory[i])
            return mnp_fail_memory(err, r->n_slots * r->bytes[i], "room for experts");
        like = is_like(t, &dense, &r->layout[i]);
    }
    if (!like)
        return mnp_fail(err, MN_INVALID, ~0u,
                        "%.*s: its scales have another type or layout than those brought before",
                        MNP_NAME(t));
    const mn_weight_src one = {.n_parts = 1,
                               .n_planes = s->n_planes,
                               .plane_stride = sizeof *r->layout,
                               .planes = r->layout};
    for (uint32_t i = 1; i < s->n_planes && !r->n_planes; i++)
        mnc_set_extra(t, &one, i, &k->w)->groups = r->groups + i * r->n_expert;
    r->n_planes = s->n_planes;
    return MN_OK;
}

/* Into a slot that is free; there is one. */
static void take_in(const mn_tensor *t, const mn_weight_src *s, mnc_room *r, int32_t e) {
    uint32_t slot = 0;
    while (r->taken[slot])
        slot++;
    for (uint32_t k = 0; k < s->n_planes; k++) {
        const mn_plane p = plane_of_expert(t, s, k, e);
        uint8_t *to = r->memory[k] + slot * r->bytes[k];
        mnc_copy_plane(t, &p, to);
        r->groups[k * r->n_expert + e] = to;
    }
    r->taken[slot] = true;
    r->n_taken++;
    r->slot_of[e] = (int32_t)slot;
}

static bool is_among(const int32_t *experts, uint32_t n, int32_t e) {
    for (uint32_t i = 0; i < n; i++)
        if (experts[i] == e)
            return true;
    return false;
}

static mn_status check_expert(const mn_tensor *t, const mnc_room *r, int32_t e, mn_error *err) {
    if (!r)
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s: the set holds it whole, there is no room",
                        MNP_NAME(t));
    if (e >= 0 && e < r->n_expert)
        return MN_OK;
    return mnp_fail(err, MN_INVALID, ~0u, "%.*s: expert %d of %lld", MNP_NAME(t), e,
                    (long long)r->n_expert);
}

/* Nothing is changed before all of it is known to fit. */
static mn_status bring(mn_weights *w, mn_queue *q, const mn_weight_src *in, const int32_t *experts,
                       uint32_t n, mn_event **event, mn_error *err) {
    mn_weight_src s;
    uint32_t n_new = 0;
    mnp_read(&s, sizeof s, in, in->size);
    if (event)
        *event = NULL;
    mn_status st = mnc_check_abort(q, err);
    if (!st)
        st = mnc_check_source(w, &s, err);
    if (st)
        return st;
    const mn_tensor *t = mnp_tensor(w->graph, s.tensor);
    mnc_kept *k = &w->kept[s.tensor];
    mnc_room *r = k->room;
    if (!n)
        return check_expert(t, r, 0, err);
    for (uint32_t i = 0; i < n && !st; i++) {
        st = check_expert(t, r, experts[i], err);
        if (!st && r->slot_of[experts[i]] < 0)
            n_new += !is_among(experts, i, experts[i]);
    }
    if (!st && n_new > r->n_slots - r->n_taken)
        st = mnp_fail(err, MN_OUT_OF_MEMORY, ~0u,
                      "%.*s: %u more experts, and room for %u, of which %u is taken", MNP_NAME(t),
                      n_new, r->n_slots, r->n_taken);
    if (!st)
        st = fit_planes(w, t, &s, k, err);
    for (uint32_t i = 0; i < n && !st; i++)
        if (r->slot_of[experts[i]] < 0)
            take_in(t, &s, r, experts[i]);
    return st;
}

/* ---- what goes ------------------------------------------------------------------------------- */
static mn_status drop(mn_weights *w, mn_queue *q, uint32_t tensor, const int32_t *experts,
                      uint32_t n, mn_error *err) {
    (void)q;
    if (tensor >= w->n || !w->kept[tensor].room)
        return mnp_fail(err, MN_INVALID, ~0u, "experts of tensor %u, for which there is no room",
                        tensor);
    const mn_tensor *t = mnp_tensor(w->graph, tensor);
    mnc_room *r = w->kept[tensor].room;
    for (uint32_t i = 0; i < n; i++) {
        const mn_status st = check_expert(t, r, experts[i], err);
        if (st)
            return st;
        if (r->slot_of[experts[i]] < 0 || is_among(experts, i, experts[i]))
            return mnp_fail(err, MN_INVALID, ~0u, "%.*s: expert %d is not there", MNP_NAME(t),
                            experts[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        const int32_t e = experts[i];
        r->taken[r->slot_of[e]] = false;
        r->n_taken--;
        r->slot_of[e] = -1;
        for (uint32_t k = 0; k < MOST_PLANES; k++)
            r->groups[k * r->n_expert + e] = NULL;
    }
    return MN_OK;
}

const mn_experts mnc_experts = {
    .size = sizeof mnc_experts, .open = experts_open, .bring = bring, .drop = drop};
