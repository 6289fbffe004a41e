/* weight_copy.c -- weights copied plane by plane, without the gaps that a source may have. Holds
 * nothing: a copy belongs to the set's entry. */
#include "mnc.h"
#include "dtype.h"

/* ---- one plane ------------------------------------------------------------------------------- */
/* Blocks along each dimension, of which there is one where a stride of 0 repeats it; DATA has all
 * of them. */
static void copy_counts(const mn_tensor *t, const mn_plane *p, const mn_dtype *type, uint64_t *n) {
    for (uint32_t i = 0; i < t->n_dim; i++) {
        n[i] = (uint64_t)p->dim[i];
        if (i + 1 == t->n_dim)
            n[i] /= type->block_elems;
        if (p->kind != MN_PLANE_DATA && !p->stride[i])
            n[i] = 1;
    }
}

static const uint8_t *copy_place(const mn_tensor *t, const mn_plane *p, const uint64_t *at) {
    const uint8_t *from = p->ptr;
    for (uint32_t i = 0; i < t->n_dim; i++)
        from += at[i] * (uint64_t)p->stride[i];
    return from;
}

/* The last dimension, whose blocks may lie apart. */
static uint8_t *copy_row(const uint8_t *from, uint64_t n, int64_t stride, uint32_t bytes,
                         uint8_t *to) {
    if (stride == (int64_t)bytes) {
        memcpy(to, from, n * bytes);
        return to + n * bytes;
    }
    for (uint64_t i = 0; i < n; i++, to += bytes)
        memcpy(to, from + i * (uint64_t)stride, bytes);
    return to;
}

uint8_t *mnc_copy_plane(const mn_tensor *t, const mn_plane *p, uint8_t *to) {
    const uint32_t last = t->n_dim - 1;
    uint64_t n[MN_MAX_DIM];
    uint64_t at[MN_MAX_DIM] = {0};
    mn_dtype type = t->dtype;
    if (p->kind != MN_PLANE_DATA)
        mn_dtype_by_id(p->dtype, &type);
    copy_counts(t, p, &type, n);
    uint64_t rows = 1;
    for (uint32_t i = 0; i < last; i++)
        rows *= n[i];
    for (uint64_t r = 0; r < rows; r++) {
        to = copy_row(copy_place(t, p, at), n[last], p->stride[last], type.block_bytes, to);
        for (uint32_t i = last; i-- > 0;) {
            if (++at[i] < n[i])
                break;
            at[i] = 0;
        }
    }
    return to;
}

/* What the copy of a plane is like; its bytes. */
static uint64_t copy_describe(const mn_tensor *t, const mn_plane *p, mn_plane *to) {
    uint64_t n[MN_MAX_DIM];
    mn_dtype type = t->dtype;
    if (p->kind != MN_PLANE_DATA)
        mn_dtype_by_id(p->dtype, &type);
    copy_counts(t, p, &type, n);
    *to = *p;
    to->bytes = type.block_bytes;
    for (uint32_t i = t->n_dim; i-- > 0;) {
        if (p->kind == MN_PLANE_DATA || p->stride[i])
            to->stride[i] = (int64_t)to->bytes;
        to->bytes *= n[i];
    }
    return to->bytes;
}

/* ---- a source -------------------------------------------------------------------------------- */
static uint64_t copy_round(uint64_t n) {
    return (n + MNC_ALIGN - 1) / MNC_ALIGN * MNC_ALIGN;
}

/* Plane k of all parts, one behind the other from `at` on; behind the last, aligned. */
static uint64_t copy_lay_out(const mn_tensor *t, const mn_weight_src *s, uint32_t k, uint64_t at,
                             mn_plane *planes) {
    for (uint32_t i = 0; i < s->n_parts; i++) {
        mn_plane *to = &planes[i * s->n_planes + k];
        at += copy_describe(t, mnp_plane(s, i, k), to);
    }
    return copy_round(at);
}

mn_status mnc_copy_source(mn_device *d, const mn_tensor *t, const mn_weight_src *s, mnc_kept *k,
                          mn_weight_src *out, mn_plane **planes, mn_error *err) {
    const uint64_t n = (uint64_t)s->n_parts * s->n_planes;
    mn_plane *p = mnc_new(d, n * sizeof *p);
    *planes = p;
    if (!p)
        return mnp_fail_memory(err, n * sizeof *p, "a weight's planes");
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->n_planes; i++)
        bytes = copy_lay_out(t, s, i, bytes, p);
    mnc_allocate_copy(d, bytes, k);
    if (!k->copy)
        return mnp_fail_memory(err, bytes, "a copy of a weight");
    uint8_t *to = k->copy;
    for (uint32_t i = 0; i < s->n_planes; i++) {
        for (uint32_t part = 0; part < s->n_parts; part++) {
            p[part * s->n_planes + i].ptr = to;
            to = mnc_copy_plane(t, mnp_plane(s, part, i), to);
        }
        to = (uint8_t *)k->copy + copy_round((uint64_t)(to - (uint8_t *)k->copy));
    }
    *out = *s;
    out->planes = p;
    out->plane_stride = sizeof *p;
    return MN_OK;
}

/* Bytes of plane k > 0 of all parts. Values are 4 bytes long at most; each part may end in the
 * middle of rows that share their values. */
static uint64_t copied_extra(const mn_tensor *t, const mn_plane_spec *spec, uint64_t rows) {
    const int64_t cols = t->dim[t->n_dim - 1];
    const uint64_t groups = t->n_dim == 3 ? (uint64_t)t->dim[0] : 1;
    uint64_t of = groups;
    if (spec->rows)
        of = rows / spec->rows + groups;
    return copy_round(of * (uint64_t)mn_plane_values(spec, t->dtype, cols) * 4) + 4 * MNC_ALIGN;
}

uint64_t mnc_copied_bytes(const mn_graph *g, const mn_tensor *t) {
    uint64_t sum = 0;
    uint64_t rows = 1;
    mn_plane_spec spec;
    if (!mnp_bytes(g, t, NULL, &sum))
        return 0;
    for (uint32_t i = 0; i + 1 < t->n_dim; i++)
        rows *= (uint64_t)t->dim[i];
    sum = copy_round(sum);
    for (uint32_t k = 1; mn_dtype_plane(t->dtype.id, k, &spec); k++)
        sum += copied_extra(t, &spec, rows);
    return sum;
}
