/* plan.c -- plans of products: filled from the table once for each node of a program. */
#include "plan.h"

uint64_t mnk_plan_bytes(uint32_t n_weights) {
    return sizeof(mnk_plan) + (uint64_t)MNK_RANGES * n_weights * sizeof(mnk_kernels);
}

/* The rows of x above r from which on the table, or who makes tiles, may differ; 0: none. */
static int64_t plan_next(int64_t r) {
    const int64_t next = mnk_next_rows(r);
    if (r > MNK_COLUMN_ROWS || (next && next <= MNK_COLUMN_ROWS + 1))
        return next;
    return MNK_COLUMN_ROWS + 1;
}

static mnk_kernels plan_find(const mnk_use *use, uint32_t dtype, int64_t r, int64_t k) {
    const int32_t level = use->level;
    const mnk_linear *stored = mnk_find_linear(dtype, use->precision, level, r, k);
    const mnk_linear *lanes = mnk_find_lanes(dtype, use->precision, level, r, k);
    const mnk_linear *plain = mnk_find_plain(dtype, use->precision, level, r, k);
    return (mnk_kernels){{stored, lanes ? lanes : stored, plain}};
}

void mnk_plan_fill(mnk_plan *p, const mnk_use *use, const uint32_t *dtype, uint32_t n, int64_t k) {
    p->use = *use;
    p->n_weights = n;
    p->n_ranges = 0;
    for (int64_t r = 1; r && p->n_ranges < MNK_RANGES; r = plan_next(r)) {
        const uint32_t range = p->n_ranges++;
        mnk_forms *forms = p->forms[range];
        p->from[range] = r;
        for (int reads = MNK_STORED; reads <= MNK_SECOND; reads++)
            forms[reads] = (mnk_forms){.n_own = r <= MNK_COLUMN_ROWS};
        for (uint32_t i = 0; i < n; i++) {
            mnk_kernels *found = &p->kernels[range * n + i];
            *found = plan_find(use, dtype[i], r, k);
            for (int reads = MNK_STORED; reads <= MNK_SECOND; reads++)
                if (found->of[reads])
                    mnk_forms_add(&forms[reads], found->of[reads]);
        }
    }
}

uint32_t mnk_plan_range(const mnk_plan *p, int64_t r) {
    uint32_t i = 0;
    while (i + 1 < p->n_ranges && r >= p->from[i + 1])
        i++;
    return i;
}

void mnk_plan_scratch(const mnk_plan *p, int64_t k, int64_t r, uint64_t *panel, uint32_t *forms) {
    for (uint32_t i = 0; i < p->n_ranges * p->n_weights; i++) {
        const int64_t from = p->from[i / p->n_weights];
        /* experts with many pairs are multiplied without tiles where the others have few */
        for (int reads = MNK_STORED; reads < MNK_READS && from <= r; reads++) {
            const mnk_linear *kern = p->kernels[i].of[reads];
            if (!kern || reads == MNK_SECOND)
                continue;
            *forms |= 1u << kern->x_form;
            if (from > MNK_FEW_ROWS && kern->panel_bytes(k) > *panel)
                *panel = kern->panel_bytes(k);
        }
    }
}
