/* source_rows.c -- rows of a weight's source in the order of the graph's tensor, and the check of
 * the planes beside DATA. Reads dims and strides only; the bytes are the caller's to copy. Holds
 * nothing; sources belong to the host. */
#include "source_rows.h"

/* Values of plane x per dimension: [*n_dim]. */
static void steps_of(const mn_tensor *t, const mn_plane *data, const mn_plane *x,
                     const mn_plane_spec *spec, uint64_t *steps, uint32_t *n_dim) {
    *n_dim = t->n_dim;
    for (uint32_t i = 0; i < t->n_dim; i++)
        steps[i] = (uint64_t)data->dim[i];
    const uint32_t last = t->n_dim - 1;
    if (spec->picked)
        steps[last] = (uint64_t)x->dim[last];
    else
        steps[last] = (uint64_t)mn_plane_values(spec, t->dtype, data->dim[last]);
    if (!spec->by_block)
        *n_dim -= 1;
    if (t->n_dim < 2 || spec->rows == 1)
        return;
    uint64_t *rows = &steps[t->n_dim - 2];
    if (spec->rows)
        *rows = (*rows + spec->rows - 1) / spec->rows;
    else
        *rows = 1;
}

mn_status mnp_check_extra_plane(const mn_tensor *t, const mn_plane *data, const mn_plane *x,
                                uint32_t k, mn_error *err) {
    mn_plane_spec spec;
    mn_dtype type;
    uint64_t steps[MN_MAX_DIM];
    uint64_t last;
    uint32_t n_dim;
    if (!mn_dtype_plane(t->dtype.id, k, &spec) || x->kind != spec.kind)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%.*s: plane %u has the kind %u, expected %u",
                        MNP_NAME(t), k, x->kind, spec.kind);
    steps_of(t, data, x, &spec, steps, &n_dim);
    bool fits = mn_plane_takes(&spec, x->dtype) && mn_dtype_by_id(x->dtype, &type);
    for (uint32_t i = 0; fits && i < n_dim; i++)
        fits = x->stride[i] == 0 || (uint64_t)x->dim[i] == steps[i];
    if (fits && mnp_plane_reaches(x, steps, n_dim, type.block_bytes, &last))
        return MN_OK;
    return mnp_fail(err, MN_INVALID, ~0u, "%.*s: its scales do not fit its blocks", MNP_NAME(t));
}

/* To the first row of a part. */
static void enter_part(mnp_source_row *r, uint32_t part) {
    const mn_plane *p = mnp_plane(r->s, part, 0);
    r->part = part;
    r->row = 0;
    r->part_end = 1;
    for (uint32_t i = 0; i + 1 < r->t->n_dim; i++)
        r->part_end *= p->dim[i];
}

mnp_source_row mnp_first_row(const mn_tensor *t, const mn_weight_src *s) {
    mnp_source_row r = {t, s, 0, 0, 0};
    enter_part(&r, 0);
    return r;
}

void mnp_next_row(mnp_source_row *r) {
    r->row++;
    if (r->row >= r->part_end && r->part + 1 < r->s->n_parts)
        enter_part(r, r->part + 1);
}

const uint8_t *mnp_row_at(const mnp_source_row *r, uint32_t plane, uint32_t rows) {
    const mn_plane *data = mnp_plane(r->s, r->part, 0);
    const mn_plane *p = mnp_plane(r->s, r->part, plane);
    const uint8_t *at = (const uint8_t *)p->ptr;
    const uint32_t n_dim = r->t->n_dim;
    if (n_dim == 1)
        return at;
    const int64_t n = data->dim[n_dim - 2]; /* rows of an expert */
    int64_t row = 0;
    if (rows)
        row = r->row % n / rows;
    if (n_dim == 3)
        at += r->row / n * p->stride[0];
    return at + row * p->stride[n_dim - 2];
}

mn_stored_row mnp_stored_row(const mnp_source_row *r) {
    const uint32_t last = r->t->n_dim - 1;
    mn_stored_row stored = {.dtype = r->t->dtype};
    for (uint32_t k = 0; k < r->s->n_planes; k++) {
        const mn_plane *p = mnp_plane(r->s, r->part, k);
        mn_plane_spec spec = {0};
        mn_dtype_plane(r->t->dtype.id, k, &spec);
        mn_plane_row *to = &stored.plane[p->kind - 1];
        const bool by_block = !k || spec.by_block;
        to->at = mnp_row_at(r, k, k ? spec.rows : 1);
        to->step = by_block ? p->stride[last] : 0;
        to->dtype = p->dtype;
    }
    return stored;
}
