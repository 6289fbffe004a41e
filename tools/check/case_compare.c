/* case_compare.c -- two runs of a case: how far the rows that count lie apart, and whether a row
 * that was spoiled hides a NaN. */
#include "case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The rows of tensor i: how many a step has, their bytes, and which are padding or spoiled. */
typedef struct {
    int64_t n;
    uint64_t bytes;
    const uint8_t *dead; /* [n]; NULL = all count */
} row_view;

static row_view case_rows_of(const op_case *c, uint32_t i) {
    const mn_tensor *t = &c->t[i];
    const bool has_rows = t->n_dim && t->dim[0] < 0;
    if (!has_rows)
        return (row_view){.n = 1, .bytes = c->bytes[i]};
    const int64_t sym = ~t->dim[0];
    row_view r = {.n = c->value[sym]};
    r.bytes = c->bytes[i] / (uint64_t)case_most(c, (uint32_t)sym);
    if (case_role(c, i) == MN_ROLE_OUTPUT && !c->every_row[i])
        r.dead = c->dead[sym];
    return r;
}

/* The rows of `values` that count, packed together; their bytes. */
static uint64_t pack(const row_view *r, const uint8_t *values, uint8_t *out) {
    uint64_t n = 0;
    for (int64_t i = 0; i < r->n; i++) {
        if (r->dead && r->dead[i])
            continue;
        memcpy(out + n, values + (uint64_t)i * r->bytes, r->bytes);
        n += r->bytes;
    }
    return n;
}

/* Relative L2 of the rows of tensor i that count; INFINITY: integers differ, or out of memory. */
static double differ(const op_case *got, const op_case *want, uint32_t i) {
    const row_view rows = case_rows_of(got, i);
    const uint64_t room = (got->bytes[i] + 15) / 8 * 8;
    uint8_t *a = malloc(2 * room);
    if (!a)
        return (double)INFINITY;
    uint8_t *b = a + room;
    const uint64_t n = pack(&rows, got->result[i], a);
    pack(&rows, want->result[i], b);
    double e = 0;
    if (got->t[i].dtype.id == MN_F32)
        e = case_rel_l2((const void *)a, (const void *)b, (int64_t)(n / 4));
    else if (memcmp(a, b, n))
        e = (double)INFINITY;
    free(a);
    return e;
}

static bool is_result(const op_case *c, uint32_t i) {
    const uint32_t role = case_role(c, i);
    if (role != MN_ROLE_OUTPUT && role != MN_ROLE_STATE)
        return false;
    return case_kv_group(c, i) < 0 && !c->unbound[i] && case_in_segment(c, i);
}

double case_differ(const op_case *got, const op_case *want, const char **where) {
    double worst = 0;
    for (uint32_t i = 0; i < got->g.n_tensors; i++) {
        if (!is_result(got, i))
            continue;
        const double e = differ(got, want, i);
        if (!(e > worst))
            continue;
        worst = e;
        if (where)
            *where = got->t[i].name.ptr;
    }
    return worst;
}

/* Whether a spoiled row of tensor i holds a number where `want` has NaN. */
static bool hides_nan(const op_case *got, const op_case *want, uint32_t i, bool loose) {
    const mn_tensor *t = &got->t[i];
    const row_view rows = case_rows_of(got, i);
    const float *a = got->result[i];
    const float *b = want->result[i];
    if (t->role != MN_ROLE_OUTPUT || t->dtype.id != MN_F32 || got->unbound[i] || !rows.dead)
        return false;
    const uint64_t cols = rows.bytes / sizeof *a;
    for (uint64_t k = 0; k < (uint64_t)rows.n * cols; k++) {
        const bool passes = isnan(a[k]) || (loose && isinf(a[k]));
        const bool spoiled = rows.dead[k / cols] == 2;
        if (spoiled && isnan(b[k]) && !passes)
            return true;
    }
    return false;
}

const char *case_hides_nan(const op_case *got, const op_case *want, bool loose) {
    for (uint32_t i = 0; i < got->g.n_tensors; i++)
        if (hides_nan(got, want, i, loose))
            return got->t[i].name.ptr;
    return NULL;
}
