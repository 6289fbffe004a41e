/* rows.c -- see rows.h. The planes are those of the loader, in the mapped files; nothing is kept
 * here. The arithmetic is the dequantiser's of dtype/, which the plugin `reference` uses too. */
#include "convert/rows.h"

static const mn_plane *plane_at(const mn_tensor_info *t, uint32_t part, uint32_t plane) {
    return (const mn_plane *)(const void *)((const char *)t->planes +
                                            ((size_t)part * t->n_planes + plane) * t->plane_stride);
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
    int64_t index[MN_MAX_DIM] = {0};
    uint32_t part = 0;
    for (uint32_t d = t->n_dim - 1; d-- > 0;) {
        index[d] = (int64_t)(row % (uint64_t)t->dim[d]);
        row /= (uint64_t)t->dim[d];
    }
    for (; part + 1 < t->n_parts && index[0] >= plane_at(t, part, 0)->dim[0]; part++)
        index[0] -= plane_at(t, part, 0)->dim[0];
    const mn_plane *p = plane_at(t, part, plane);
    const uint8_t *at = p->ptr;
    mn_plane_spec spec;
    /* rows that share a row of scales */
    if (plane && t->n_dim > 1 && mn_dtype_plane(t->dtype.id, plane, &spec) && spec.rows > 1)
        index[t->n_dim - 2] /= spec.rows;
    for (uint32_t d = 0; d + 1 < t->n_dim; d++)
        at += (p->dim[d] > 1 ? index[d] : 0) * p->stride[d];
    return (mn_row_place){at, p->stride[t->n_dim - 1]};
}

void mn_row_values(const mn_tensor_info *t, uint64_t row, float *out) {
    mn_stored_row stored = {.dtype = t->dtype};
    for (uint32_t i = 0; i < t->n_planes; i++) {
        mn_plane_spec spec;
        if (!mn_dtype_plane(t->dtype.id, i, &spec))
            break;
        const mn_row_place p = mn_row_find(t, row, i);
        stored.plane[spec.kind - 1] =
            (mn_plane_row){p.at, spec.by_block ? p.step : 0, plane_at(t, 0, i)->dtype};
    }
    mn_dequant_row(&stored, t->dim[t->n_dim - 1], out);
}
