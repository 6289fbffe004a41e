/* source_rows.h -- a weight's source row by row, for backends that copy or unpack weights: the rows
 * of all parts in their order (experts one after another), where each begins in each plane, and the
 * row as dtype.h's unpacking reads it. Also the check of planes beside DATA, which depends on the
 * type. C11 that also compiles as C++ (nvcc); needs common.h and dtype.h.
 *
 * Pure functions, any thread. A cursor points into the host's source, which outlives it. A source
 * is valid only after mnp_check_source and mnp_check_extra_plane have accepted it. */
#ifndef MNP_SOURCE_ROWS_H
#define MNP_SOURCE_ROWS_H
#include "common.h"
#ifdef __cplusplus
extern "C" {
#endif
#include "dtype.h"

/* Whether plane x, number k of a source of t (k > 0), has the kind that the type states, a type of
 * values that it allows, one value per step (a stride of 0 repeats one), and strides within its
 * bytes. data: the part's DATA plane. MN_UNSUPPORTED: another kind. */
mn_status mnp_check_extra_plane(const mn_tensor *t, const mn_plane *data, const mn_plane *x,
                                uint32_t k, mn_error *err);

/* A row of a source. */
typedef struct {
    const mn_tensor *t;
    const mn_weight_src *s;
    uint32_t part;
    int64_t row;      /* in the part, experts one after another */
    int64_t part_end; /* rows of the part */
} mnp_source_row;

/* The first row of part 0. */
mnp_source_row mnp_first_row(const mn_tensor *t, const mn_weight_src *s);
/* Moves to the next row, behind a part's last row to the next part. Behind the very last row the
 * cursor is invalid. */
void mnp_next_row(mnp_source_row *r);
/* Where the row begins in a plane. rows: how many rows share a row of values; 0 = all. */
const uint8_t *mnp_row_at(const mnp_source_row *r, uint32_t plane, uint32_t rows);
/* All planes of the row. */
mn_stored_row mnp_stored_row(const mnp_source_row *r);

#ifdef __cplusplus
}
#endif
#endif
