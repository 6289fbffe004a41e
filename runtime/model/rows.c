/* rows.c -- see rows.h. The planes are those of the loader, in the mapped files; nothing is kept
 * here. The arithmetic is the dequantiser's of dtype/, which the plugin `reference` uses too. */
#include "model/rows.h"
#include "model/model.h"
#include <math.h>

mn_plane mn_plane_rows(const mn_plane *p, int64_t lo, int64_t n) {
    mn_plane cut = *p;
    const uint64_t skipped = (uint64_t)lo * (uint64_t)p->stride[0];
    cut.ptr = (const char *)p->ptr + skipped;
    cut.dim[0] = n;
    cut.bytes = p->bytes - skipped;
    if (p->stride[0] * p->dim[0] == (int64_t)p->bytes)
        cut.bytes = (uint64_t)(n * p->stride[0]);
    return cut;
}

uint64_t mn_row_count(const mn_tensor_info *t) {
    uint64_t n = 1;
    for (uint32_t d = 0; d + 1 < t->n_dim; d++)
        n *= (uint64_t)t->dim[d];
    return n;
}

/* Parts stack along the first dimension; a plane with one value along a dimension has it for
 * all. */
mn_row_place mn_row_find(const mn_tensor_info *t, uint64_t row, uint32_t plane) {
    const uint32_t last = t->n_dim - 1;
    int64_t index[MN_MAX_DIM] = {0};
    uint32_t part = 0;
    for (uint32_t d = last; d-- > 0;) {
        const uint64_t n = (uint64_t)t->dim[d];
        index[d] = (int64_t)(row % n);
        row /= n;
    }
    while (part + 1 < t->n_parts) {
        const int64_t height = mn_tensor_plane(t, part, 0)->dim[0];
        if (index[0] < height)
            break;
        index[0] -= height;
        part++;
    }
    const mn_plane *p = mn_tensor_plane(t, part, plane);
    const uint8_t *at = p->ptr;
    mn_plane_spec spec;
    /* rows that share a row of scales */
    if (plane && last && mn_dtype_plane(t->dtype.id, plane, &spec) && spec.rows > 1)
        index[last - 1] /= spec.rows;
    for (uint32_t d = 0; d < last; d++)
        if (p->dim[d] > 1)
            at += index[d] * p->stride[d];
    return (mn_row_place){at, p->stride[last]};
}

/* Plane `plane` of the row's part, from the row's first block on. */
static mn_plane row_plane(const mn_tensor_info *t, uint64_t row, uint32_t plane) {
    const mn_row_place place = mn_row_find(t, row, plane);
    mn_plane p = *mn_tensor_plane(t, 0, plane);
    const uint32_t last = t->n_dim - 1;
    p.ptr = place.at;
    p.bytes = 0;
    p.dim[0] = p.dim[last];
    p.stride[0] = place.step;
    for (uint32_t d = 1; d < MN_MAX_DIM; d++)
        p.dim[d] = p.stride[d] = 0;
    return p;
}

mn_status mn_row_unpack(const mn_vendor_types *types, const mn_tensor_info *t, uint64_t row,
                        float *out, mn_error *err) {
    const mn_vendor_type *own = mn_vendor_type_of(types, t->dtype.id);
    mn_plane planes[MN_PLANE_KINDS];
    if (!own) {
        mn_row_values(t, row, out);
        return MN_OK;
    }
    const int64_t n = t->dim[t->n_dim - 1];
    const uint64_t blocks = (uint64_t)n / t->dtype.block_elems;
    for (uint32_t i = 0; i < t->n_planes; i++)
        planes[i] = row_plane(t, row, i);
    mn_status st = MN_OK;
    MN_WATCHED(types->callee, "to_f32",
               st = own->type.to_f32(types->self, planes, t->n_planes, 0, blocks, out));
    if (!st)
        return MN_OK;
    for (int64_t i = 0; i < n; i++)
        out[i] = NAN;
    return mn_fail(err, st, "tensor %.*s: row %llu of type %s cannot be unpacked",
                   MN_STR_ARG(t->native), (unsigned long long)row, own->spelled);
}

void mn_row_values(const mn_tensor_info *t, uint64_t row, float *out) {
    mn_stored_row stored = {.dtype = t->dtype};
    for (uint32_t i = 0; i < t->n_planes; i++) {
        mn_plane_spec spec;
        if (!mn_dtype_plane(t->dtype.id, i, &spec))
            break;
        const mn_row_place p = mn_row_find(t, row, i);
        mn_plane_row *to = &stored.plane[spec.kind - 1];
        to->at = p.at;
        if (spec.by_block)
            to->step = p.step;
        else
            to->step = 0;
        to->dtype = mn_tensor_plane(t, 0, i)->dtype;
    }
    mn_dequant_row(&stored, t->dim[t->n_dim - 1], out);
}
