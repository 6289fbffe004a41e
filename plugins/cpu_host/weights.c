/* weights.c -- weight sets: used in place where the file's bytes are rows that an op can read, else
 * copied once; sets that may be updated copy everything (weight_copy.c). Several threads may put
 * different tensors at once: all that they share is kept_how. */
#include "mnc.h"
#include "dtype.h"
#include "source_rows.h"
#include <sys/mman.h>

/* Weights that no node of the segment reads are accepted by put and not kept. */
mn_status mnc_weights_open(mn_device *d, const mn_compile *in, mn_weights **out, mn_error *err) {
    mn_compile c;
    mn_status s = mnc_read_compile(in, &c, err);
    if (s)
        return s;
    uint64_t bytes = sizeof(mn_weights) + (uint64_t)c.graph->n_tensors * sizeof(mnc_kept);
    mn_weights *w = mnc_new(d, bytes);
    if (!w)
        return mnp_fail_memory(err, bytes, "a weight set");
    w->dev = d;
    w->graph = c.graph;
    w->n = c.graph->n_tensors;
    w->precision = mnc_precision(d, &c);
    w->updates = c.flags & MN_COMPILE_UPDATES;
    mnp_cursor at = {c.node_lo, 0};
    uint32_t node;
    int32_t t = mnp_next_weight(c.graph, c.node_hi, &at, &node);
    while (t >= 0) {
        w->kept[t].wanted = true;
        t = mnp_next_weight(c.graph, c.node_hi, &at, &node);
    }
    mnc_repack_open(w, c.node_lo, c.node_hi);
    *out = w;
    return MN_OK;
}

/* The DATA plane of part i. */
static const mn_plane *part(const mn_weight_src *s, uint32_t i) {
    return mnp_plane(s, i, 0);
}

/* A plane beside DATA. Kernels read several of its values at once, so those of a row lie behind one
 * another. */
static mn_status check_extra(const mn_tensor *t, const mn_plane *data, const mn_plane *x,
                             const mn_plane_spec *spec, uint32_t k, mn_error *err) {
    const mn_status st = mnp_check_extra_plane(t, data, x, k, err);
    const uint32_t last = t->n_dim - 1;
    mn_dtype type;
    if (st || !spec->by_block || data->dim[last] <= (int64_t)t->dtype.block_elems)
        return st;
    mn_dtype_by_id(x->dtype, &type);
    if (x->stride[last] == (int64_t)type.block_bytes)
        return MN_OK;
    return mnp_fail(err, MN_INVALID, ~0u, "%.*s: its scales do not lie behind one another",
                    MNP_NAME(t));
}

/* Ops step through the planes of all parts as through those of the first. */
static mn_status check_like_first(const mn_tensor *t, const mn_plane *first, const mn_plane *x,
                                  const mn_plane_spec *spec, uint32_t i, mn_error *err) {
    bool like = x->dtype == first->dtype;
    uint32_t n;
    if (spec->by_block)
        n = t->n_dim;
    else
        n = t->n_dim - 1;
    for (uint32_t d = t->n_dim > 1 ? t->n_dim - 2 : 0; like && d < n; d++) {
        const bool single = x->dim[d] == 1 && first->dim[d] == 1;
        like = single || x->stride[d] == first->stride[d];
    }
    if (like)
        return MN_OK;
    return mnp_fail(err, MN_INVALID, ~0u,
                    "%.*s: the scales of part %u have another type or layout than the first",
                    MNP_NAME(t), i);
}

/* The planes beside DATA of part i, in the order that the type states. */
static mn_status weights_check_planes(const mn_tensor *t, const mn_weight_src *s, uint32_t i,
                                      mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t k = 1; k < s->n_planes && !st; k++) {
        const mn_plane *x = mnp_plane(s, i, k);
        mn_plane_spec spec = {0};
        mn_dtype_plane(t->dtype.id, k, &spec);
        st = check_extra(t, part(s, i), x, &spec, k, err);
        if (!st)
            st = check_like_first(t, mnp_plane(s, 0, k), x, &spec, i, err);
    }
    return st;
}

/* All planes of the type, with or without those that may be left out. */
static bool planes_fit(const mn_tensor *t, const mn_weight_src *s) {
    mn_plane_spec spec;
    for (uint32_t k = t->dtype.n_planes; k < s->n_planes; k++)
        if (!mn_dtype_plane(t->dtype.id, k, &spec) || !spec.optional)
            return false;
    return s->n_planes >= t->dtype.n_planes;
}

mn_status mnc_check_source(const mn_weights *w, const mn_weight_src *s, mn_error *err) {
    mn_status st = mnp_check_source(w->graph, s, 3, err);
    if (st)
        return st;
    const mn_tensor *t = mnp_tensor(w->graph, s->tensor);
    if (!planes_fit(t, s))
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%.*s: %u planes, the type has %u", MNP_NAME(t),
                        s->n_planes, t->dtype.n_planes);
    for (uint32_t i = 0; i < s->n_parts && !st; i++)
        st = weights_check_planes(t, s, i, err);
    return st;
}

/* Whether the tensor may be put now. */
static mn_status weights_check_put(const mn_weights *w, uint32_t tensor, mn_error *err) {
    const mn_tensor *t = mnp_tensor(w->graph, tensor);
    if (w->kept[tensor].room)
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s: the set has room for some of its experts",
                        MNP_NAME(t));
    if (w->sealed && !w->updates)
        return mnp_fail(err, MN_INVALID, ~0u,
                        "%.*s: the set is sealed, and was opened without MN_COMPILE_UPDATES",
                        MNP_NAME(t));
    if (w->kept[tensor].put && !w->sealed)
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s was put before", MNP_NAME(t));
    return MN_OK;
}

/* ---- used in place? -------------------------------------------------------------------------- */

/* A row's elements lie behind one another, and every row where its type wants it. */
static bool rows_in_place(const mn_tensor *t, const mn_plane *p) {
    const uint64_t align = mn_dtype_align(t->dtype.id);
    const uint32_t last = t->n_dim - 1;
    const bool several = p->dim[last] > (int64_t)t->dtype.block_elems;
    if (several && p->stride[last] != (int64_t)t->dtype.block_bytes)
        return false;
    if ((uintptr_t)p->ptr % align)
        return false;
    for (uint32_t i = 0; i < last; i++) {
        const uint64_t stride = (uint64_t)p->stride[i];
        if (p->dim[i] > 1 && (!stride || stride % align))
            return false;
    }
    return true;
}

/* Have all parts but the last, which may be lower, one height? */
static bool same_heights(const mn_weight_src *s) {
    const int64_t height = part(s, 0)->dim[0];
    for (uint32_t i = 0; i + 1 < s->n_parts; i++)
        if (part(s, i)->dim[0] != height)
            return false;
    return part(s, s->n_parts - 1)->dim[0] <= height;
}

/* Rows of all parts at one distance. 2D: parts behind one another, or (several planes) as groups of
 * one height. */
static bool is_alias(const mn_tensor *t, const mn_weight_src *s, const mnc_weight *w,
                     uint64_t *row_bytes, bool *grouped) {
    const mn_plane *first = part(s, 0);
    uint32_t row_dim = 0;
    if (t->n_dim > 1)
        row_dim = t->n_dim - 2;
    *row_bytes = w->row_bytes;
    if (t->n_dim > 1 && first->dim[row_dim] > 1)
        *row_bytes = (uint64_t)first->stride[row_dim];
    *grouped = t->n_dim == 3;
    if (t->n_dim == 1)
        return s->n_parts == 1 && rows_in_place(t, first);
    if (*row_bytes < w->row_bytes)
        return false;
    const char *next = first->ptr;
    for (uint32_t i = 0; i < s->n_parts; i++) {
        const mn_plane *p = part(s, i);
        const uint64_t stride = (uint64_t)p->stride[row_dim];
        if (!rows_in_place(t, p))
            return false;
        if (p->dim[row_dim] > 1 && stride != *row_bytes)
            return false;
        if (t->n_dim == 2 && p->ptr != (const void *)next)
            *grouped = true;
        next += (uint64_t)p->dim[0] * *row_bytes;
    }
    *grouped |= t->n_dim == 2 && s->n_parts > 1 && s->n_planes > 1;
    if (t->n_dim == 2 && *grouped && !same_heights(s))
        return false;
    return t->n_dim == 3 || !*grouped || s->n_planes > 1;
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* Where group g of a plane begins: expert g, or part g of a matrix. */
static const uint8_t *group_at(const mn_tensor *t, const mn_weight_src *s, uint32_t plane,
                               int64_t g) {
    if (t->n_dim == 2)
        return mnp_plane(s, (uint32_t)g, plane)->ptr;
    for (uint32_t i = 0; i < s->n_parts; i++) {
        const mn_plane *p = mnp_plane(s, i, plane);
        const int64_t n = part(s, i)->dim[0];
        if (g < n)
            return (const uint8_t *)p->ptr + (uint64_t)g * (uint64_t)p->stride[0];
        g -= n;
    }
    return NULL;
}

/* Where a weight keeps plane k > 0; its kind is known. */
static mnc_extra *extra_of(const mn_tensor *t, uint32_t k, mnc_weight *w, mn_plane_spec *spec) {
    mn_dtype_plane(t->dtype.id, k, spec);
    switch (spec->kind) {
    case MN_PLANE_SCALE:
        return &w->scale;
    case MN_PLANE_BIAS:
        return &w->bias;
    case MN_PLANE_PICK:
        return &w->pick;
    default:
        return &w->tensor_scale;
    }
}

mnc_extra *mnc_set_extra(const mn_tensor *t, const mn_weight_src *s, uint32_t k, mnc_weight *w) {
    const mn_plane *p = mnp_plane(s, 0, k);
    uint32_t row_dim = 0;
    if (t->n_dim > 1)
        row_dim = t->n_dim - 2;
    mn_plane_spec spec;
    mnc_extra *x = extra_of(t, k, w, &spec);
    x->data = p->ptr;
    x->dtype = p->dtype;
    x->row_bytes = 0;
    if (spec.rows)
        x->row_bytes = (uint64_t)p->stride[row_dim];
    x->row_shift = 0;
    if (spec.rows > 1)
        x->row_shift = (uint32_t)__builtin_ctz(spec.rows);
    x->step = 0;
    if (spec.by_block)
        x->step = (uint64_t)p->stride[t->n_dim - 1];
    return x;
}

/* The pointers of all groups of all planes, in one block of the set. */
static bool set_groups(mn_device *d, const mn_tensor *t, const mn_weight_src *s,
                       const uint8_t *copy, mnc_kept *k) {
    int64_t n;
    if (t->n_dim == 3)
        n = t->dim[0];
    else
        n = s->n_parts;
    const uint8_t **at = mnc_new(d, (uint64_t)n * s->n_planes * sizeof *at);
    if (!at)
        return false;
    mnc_weight *w = &k->w;
    k->groups = at;
    if (t->n_dim == 3)
        w->group_rows = t->dim[1];
    else
        w->group_rows = part(s, 0)->dim[0];
    const uint64_t group_bytes = (uint64_t)w->group_rows * w->row_bytes;
    for (uint32_t p = 0; p < s->n_planes; p++)
        for (int64_t g = 0; g < n; g++)
            at[p * n + g] = group_at(t, s, p, g);
    for (int64_t g = 0; copy && g < n; g++)
        at[g] = copy + (uint64_t)g * group_bytes;
    w->groups = at;
    for (uint32_t p = 1; p < s->n_planes; p++) {
        mn_plane_spec spec;
        extra_of(t, p, w, &spec)->groups = at + p * n;
    }
    return true;
}

/* Of a plane that has groups: group g alone. */
static void weights_take_group(mnc_extra *x, int64_t g) {
    if (!x->groups)
        return;
    x->data = x->groups[g];
    x->groups = NULL;
}

/* Expert e as a matrix of its own. */
mnc_weight mnc_expert(const mnc_weight *w, int64_t e) {
    mnc_weight x = *w;
    x.rows = w->group_rows;
    x.data = w->groups[e];
    x.groups = NULL;
    weights_take_group(&x.scale, e);
    weights_take_group(&x.bias, e);
    weights_take_group(&x.tensor_scale, e);
    weights_take_group(&x.pick, e);
    return x;
}

/* Frees what a put has made of one tensor; it may be put again. */
static void weights_release(mn_device *d, mnc_kept *k) {
    if (k->copy_bytes)
        munmap(k->copy, k->copy_bytes);
    else
        mnc_delete(d, k->copy);
    mnc_delete(d, k->groups);
    *k = (mnc_kept){.wanted = k->wanted, .repack_to = k->repack_to};
}

void mnc_allocate_copy(mn_device *d, uint64_t bytes, mnc_kept *k) {
    mnc_numa *numa = d->plugin->numa;
    if (!numa) {
        k->copy = mnc_new(d, bytes);
        return;
    }
    k->copy = mnc_numa_pages(numa, bytes);
    if (k->copy)
        k->copy_bytes = bytes;
}

/* Fills *k, whose copy may be there already, and is what s describes then; the caller releases it
 * after an error. */
static mn_status weights_keep(mn_weights *w, const mn_tensor *t, const mn_weight_src *s,
                              mnc_kept *k, mn_error *err) {
    uint64_t bytes;
    uint64_t stride;
    bool grouped;
    if (!mnp_bytes(w->graph, t, NULL, &bytes))
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s: its size overflows", MNP_NAME(t));
    mnc_weight *o = &k->w;
    *o = (mnc_weight){0};
    o->dtype = t->dtype;
    o->rows = 1;
    o->cols = t->dim[t->n_dim - 1];
    for (uint32_t i = 0; i + 1 < t->n_dim; i++)
        o->rows *= t->dim[i];
    o->row_bytes = bytes / (uint64_t)o->rows;
    if (is_alias(t, s, o, &stride, &grouped)) {
        o->data = part(s, 0)->ptr;
        o->row_bytes = stride;
        atomic_fetch_or(&w->kept_how, k->copy ? MN_KEPT_COPIED : MN_KEPT_ALIASED);
    } else {
        if (s->n_planes > 1)
            return mnp_fail(err, MN_UNSUPPORTED, ~0u,
                            "%.*s: rows of a type with several planes must be dense", MNP_NAME(t));
        mnc_allocate_copy(w->dev, bytes, k);
        uint8_t *to = k->copy;
        if (!to)
            return mnp_fail_memory(err, bytes, "a copy of a weight");
        for (uint32_t i = 0; i < s->n_parts; i++)
            to = mnc_copy_plane(t, part(s, i), to);
        o->data = k->copy;
        grouped = t->n_dim == 3;
        atomic_fetch_or(&w->kept_how, MN_KEPT_COPIED);
    }
    for (uint32_t p = 1; p < s->n_planes; p++)
        mnc_set_extra(t, s, p, o);
    if (grouped && !set_groups(w->dev, t, s, k->copy, k))
        return mnp_fail_memory(err, 8, "a weight's groups");
    return MN_OK;
}

/* Bytes from the first element of a plane to its end. */
static uint64_t weights_span_of(const mn_tensor *t, const mn_plane *p) {
    mn_dtype type;
    uint64_t bytes = 0;
    mn_dtype_by_id(p->dtype, &type);
    for (uint32_t i = 0; i < t->n_dim; i++) {
        const bool is_last = i + 1 == t->n_dim;
        const uint64_t elems = is_last ? type.block_elems : 1;
        bytes += ((uint64_t)p->dim[i] / elems - 1) * (uint64_t)p->stride[i];
    }
    return bytes + type.block_bytes;
}

/* Puts plane k of all parts where its readers are. A matrix is cut by its rows in the mode split;
 * what is computed of experts is not known before, so they are interleaved. */
static void place_plane(mnc_numa *numa, const mn_tensor *t, const mn_weight_src *s, uint32_t k) {
    const bool splits = numa->mode == MNC_NUMA_SPLIT && t->n_dim == 2;
    uint64_t total = 0;
    uint64_t before = 0;
    for (uint32_t i = 0; i < s->n_parts && splits; i++)
        total += weights_span_of(t, mnp_plane(s, i, k));
    for (uint32_t i = 0; i < s->n_parts; i++) {
        const mn_plane *p = mnp_plane(s, i, k);
        const uint64_t bytes = weights_span_of(t, p);
        mnc_numa_place(numa, p->ptr, bytes, before, total);
        before += bytes;
    }
}

/* A copy is interleaved already. */
static void weights_place(mnc_numa *numa, const mn_tensor *t, const mn_weight_src *s,
                          const mnc_kept *k) {
    if (!k->copy)
        place_plane(numa, t, s, 0);
    else if (numa->mode == MNC_NUMA_SPLIT && t->n_dim == 2)
        mnc_numa_place(numa, k->copy, k->copy_bytes, 0, k->copy_bytes);
    for (uint32_t i = 1; i < s->n_planes; i++)
        place_plane(numa, t, s, i);
}

/* What a put makes of a tensor, beside what is there. */
static mn_status weights_make(mn_weights *w, const mn_weight_src *s, mnc_kept *k, mn_error *err) {
    const mn_tensor *t = mnp_tensor(w->graph, s->tensor);
    mnc_numa *numa = w->dev->plugin->numa;
    mn_weight_src own = *s;
    mn_plane *planes = NULL;
    mn_status st = MN_OK;
    if (w->updates)
        st = mnc_copy_source(w->dev, t, s, k, &own, &planes, err);
    if (!st)
        st = weights_keep(w, t, &own, k, err);
    if (!st && numa)
        weights_place(numa, t, &own, k);
    mnc_delete(w->dev, planes);
    return st;
}

/* The source's bytes must stay mapped as long as the set, unless that may be updated: they may be
 * used in place. Nothing else runs on the set when a tensor is put again: it takes the place of the
 * old one, which stays where an update fails. */
mn_status mnc_weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *in, mn_event **event,
                          mn_error *err) {
    mn_weight_src s;
    mnp_read(&s, sizeof s, in, in->size);
    if (event)
        *event = NULL;
    mn_status st = mnc_check_source(w, &s, err);
    if (!st)
        st = weights_check_put(w, s.tensor, err);
    if (!st && w->sealed)
        st = mnc_check_abort(q, err);
    if (st)
        return st;
    mnc_kept *k = &w->kept[s.tensor];
    if (!k->wanted)
        return MN_OK;
    mnc_kept made = {.wanted = true, .repack_to = k->repack_to};
    st = weights_make(w, &s, &made, err);
    if (st) {
        weights_release(w->dev, &made);
        return st;
    }
    weights_release(w->dev, k);
    *k = made;
    mnc_repack(w, k);
    if (k->w.repacked)
        atomic_fetch_or(&w->kept_how, MN_KEPT_REPACKED);
    k->put = true;
    return MN_OK;
}

/* From here on a tensor is put again or not at all; a wanted weight without a put is MN_INVALID.
 * kept_how:
 * MN_KEPT_* of all puts together, or NULL. */
mn_status mnc_weights_seal(mn_weights *w, mn_queue *q, uint32_t *kept_how, mn_error *err) {
    (void)q;
    for (uint32_t i = 0; i < w->n; i++)
        if (w->kept[i].wanted && !w->kept[i].put)
            return mnp_fail(err, MN_INVALID, ~0u, "weight %.*s is missing",
                            MNP_NAME(mnp_tensor(w->graph, i)));
    w->sealed = true;
    if (kept_how)
        *kept_how = w->kept_how;
    if (w->dev->plugin->numa)
        mnc_numa_report(w->dev->plugin->numa);
    return MN_OK;
}

void mnc_weights_free(mn_weights *w) {
    if (!w)
        return;
    for (uint32_t i = 0; i < w->n; i++) {
        mnc_room_free(w->dev, w->kept[i].room);
        weights_release(w->dev, &w->kept[i]);
    }
    mnc_repack_close(w);
    mnc_delete(w->dev, w);
}
