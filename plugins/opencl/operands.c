/* operands.c -- where operands lie in a step, and how large they are: in what the host has bound,
 * in a weight, or in the arena in the context's scratch. */
#include "ops.h"

ocl_ref ocl_scratch(const ocl_run *r, uint64_t at) {
    return (ocl_ref){r->c->scratch, at};
}

/* A kernel wants a buffer for every operand: an absent one is the scratch at no offset. */
ocl_ref ocl_absent(const ocl_run *r) {
    return (ocl_ref){r->c->scratch, OCL_ABSENT};
}

static ocl_ref bound_at(const mn_binding *b, uint64_t offset) {
    return (ocl_ref){b->buffer->mem[0], b->offset + offset};
}

ocl_ref ocl_operand(const ocl_run *r, int32_t t) {
    if (t < 0)
        return ocl_absent(r);
    const mn_tensor *x = mnp_tensor(r->g, (uint32_t)t);
    if (x->role == MN_ROLE_WEIGHT)
        return (ocl_ref){r->p->w[t]->mem[0], 0};
    const uint32_t root = mnp_root(r->g, (uint32_t)t);
    uint64_t offset = 0;
    if (root != (uint32_t)t)
        offset = (uint64_t)x->offset * mnp_elem_bytes(x);
    const uint64_t place = r->p->allocations[root].place;
    const bool there = r->c->bindings[root].buffer || place != MNP_NOWHERE;
    if (there && r->p->dense[t] != MNP_NOWHERE)
        return ocl_scratch(r, r->p->dense[t]);
    if (r->c->bindings[t].buffer)
        return bound_at(&r->c->bindings[t], 0);
    if (r->c->bindings[root].buffer)
        return bound_at(&r->c->bindings[root], offset);
    if (place == MNP_NOWHERE)
        return ocl_absent(r);
    return ocl_scratch(r, place + offset);
}

ocl_ref ocl_in(const ocl_run *r, const mn_node *n, uint32_t i) {
    return ocl_operand(r, mnp_in(r->g, n, i));
}

ocl_ref ocl_out(const ocl_run *r, const mn_node *n, uint32_t i) {
    return ocl_operand(r, mnp_out(r->g, n, i));
}

int64_t ocl_dim(const ocl_run *r, int32_t t, uint32_t i) {
    if (t < 0)
        return 1;
    const mn_tensor *x = mnp_tensor(r->g, (uint32_t)t);
    if (i < x->n_dim)
        return mnp_dim(r->g, r->sym, x->dim[i]);
    return 1;
}

int64_t ocl_last_dim(const ocl_run *r, int32_t t) {
    return ocl_dim(r, t, mnp_tensor(r->g, (uint32_t)t)->n_dim - 1);
}

int64_t ocl_elements(const ocl_run *r, int32_t t) {
    int64_t n = 1;
    for (uint32_t i = 0; i < mnp_tensor(r->g, (uint32_t)t)->n_dim; i++)
        n *= ocl_dim(r, t, i);
    return n;
}

const ocl_weight *ocl_weight_of(const ocl_run *r, int32_t t) {
    if (t < 0)
        return NULL;
    return r->p->w[t];
}

ocl_part ocl_part_of(const ocl_weight *w, uint32_t i) {
    const int64_t first = w->part_rows * i;
    const int64_t left = w->rows - first;
    return (ocl_part){{w->mem[i], 0}, first, left < w->part_rows ? left : w->part_rows};
}

ocl_ref ocl_behind(ocl_ref ref, int64_t n) {
    if (ocl_is_there(ref))
        ref.at += (uint64_t)n * sizeof(float);
    return ref;
}

ocl_matrix ocl_matrix_of(const ocl_weight *w) {
    ocl_matrix m = {.row_bytes = w->row_bytes, .scale_at = w->scale_at, .bias_at = w->bias_at};
    m.pieces = (int)((w->cols + OCL_PIECE - 1) / OCL_PIECE);
    m.blocks = ocl_blocks(w);
    return m;
}
