/* operands.c -- where operands lie in a step, how large they are, and the attributes of nodes in
 * the words of docs/ops.md. Places come from what the host has bound, from weights, or from the
 * arena in the context's scratch. Holds nothing. */
#include "gpu_table.h"

/* ---- places ---------------------------------------------------------------------------------- */
mng_ref mng_scratch(const mng_run *r, uint64_t at) {
    const mng_room *room = mng_context_of(r->c)->room;
    return (mng_ref){room->mem, at == MNG_ABSENT ? at : room->base + at};
}

mng_ref mng_absent(const mng_run *r) {
    return mng_scratch(r, MNG_ABSENT);
}

mng_ref mng_needed(const mng_run *r, uint32_t which) {
    const mng_room *room = mng_context_of(r->c)->room;
    if (mng_backend_of(mng_program_of(r->p)->dev)->kept_needs >> which & 1)
        return (mng_ref){room->mem, room->kept_at[which]};
    return mng_scratch(r, mng_program_of(r->p)->need_at[which]);
}

static mng_ref bound_at(const mn_binding *b, uint64_t offset) {
    return (mng_ref){b->buffer->mem[0], b->offset + offset};
}

mng_ref mng_operand(const mng_run *r, int32_t t) {
    if (t < 0)
        return mng_absent(r);
    const mng_program *p = mng_program_of(r->p);
    const mn_binding *bindings = mng_context_of(r->c)->bindings;
    const mn_tensor *x = mnp_tensor(r->g, (uint32_t)t);
    if (x->role == MN_ROLE_WEIGHT)
        return (mng_ref){p->w[t]->mem[0], p->w[t]->at};
    const uint32_t root = mnp_root(r->g, (uint32_t)t);
    uint64_t offset = 0;
    if (root != (uint32_t)t)
        offset = (uint64_t)x->offset * mnp_elem_bytes(x);
    const uint64_t place = p->allocations[root].place;
    const bool there = bindings[root].buffer || place != MNP_NOWHERE;
    if (there && p->dense[t] != MNP_NOWHERE)
        return mng_scratch(r, p->dense[t]);
    if (bindings[t].buffer)
        return bound_at(&bindings[t], 0);
    if (bindings[root].buffer)
        return bound_at(&bindings[root], offset);
    if (place == MNP_NOWHERE)
        return mng_absent(r);
    return mng_scratch(r, place + offset);
}

mng_ref mng_in(const mng_run *r, const mn_node *n, uint32_t i) {
    return mng_operand(r, mnp_in(r->g, n, i));
}

mng_ref mng_out(const mng_run *r, const mn_node *n, uint32_t i) {
    return mng_operand(r, mnp_out(r->g, n, i));
}

mng_ref mng_behind(mng_ref ref, int64_t n) {
    if (mng_is_there(ref))
        ref.at += (uint64_t)n * sizeof(float);
    return ref;
}

const mng_weight *mng_weight_of(const mng_run *r, int32_t t) {
    return t < 0 ? NULL : mng_program_of(r->p)->w[t];
}

mng_part mng_part_of(const mng_weight *w, uint32_t i) {
    const int64_t first = w->part_rows * i;
    const int64_t left = w->rows - first;
    return (mng_part){{w->mem[i], w->at}, first, left < w->part_rows ? left : w->part_rows};
}

/* ---- sizes ----------------------------------------------------------------------------------- */
int64_t mng_dim(const mng_run *r, int32_t t, uint32_t i) {
    if (t < 0)
        return 1;
    const mn_tensor *x = mnp_tensor(r->g, (uint32_t)t);
    if (i < x->n_dim)
        return mnp_dim(r->g, r->sym, x->dim[i]);
    return 1;
}

int64_t mng_last_dim(const mng_run *r, int32_t t) {
    return mng_dim(r, t, mnp_tensor(r->g, (uint32_t)t)->n_dim - 1);
}

int64_t mng_elements(const mng_run *r, int32_t t) {
    int64_t n = 1;
    for (uint32_t i = 0; i < mnp_tensor(r->g, (uint32_t)t)->n_dim; i++)
        n *= mng_dim(r, t, i);
    return n;
}

/* ---- attributes ------------------------------------------------------------------------------ */
mng_glu mng_glu_of(const mn_graph *g, const mn_node *n) {
    const double alpha = mnp_attr_f64(g, n, MN_GLU_ATTR_ALPHA);
    return (mng_glu){.kind = (int32_t)mnp_attr(g, n, MN_GLU_ATTR_KIND),
                     .alpha = alpha == 0 ? 1 : (float)alpha,
                     .limit = (float)mnp_attr_f64(g, n, MN_GLU_ATTR_LIMIT),
                     .up_offset = (float)mnp_attr_f64(g, n, MN_GLU_ATTR_UP_OFFSET)};
}

mng_rope mng_rope_of(const mng_run *r, const mn_node *n) {
    const int32_t x = mnp_in(r->g, n, MN_ROPE_X);
    const double mscale = mnp_attr_f64(r->g, n, MN_ROPE_ATTR_MSCALE);
    mng_rope a = {.mscale = mscale == 0 ? 1 : (float)mscale};
    a.T = (int)mng_dim(r, x, 0);
    a.H = (int)mng_dim(r, x, 1);
    a.D = (int)mng_dim(r, x, 2);
    a.n_rot = (int)mnp_attr(r->g, n, MN_ROPE_ATTR_N_ROT);
    if (!a.n_rot)
        a.n_rot = a.D;
    a.adjacent = mnp_attr(r->g, n, MN_ROPE_ATTR_PAIRING) == MN_ROPE_ADJACENT;
    return a;
}

mng_cache mng_cache_of(const mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const bool stores = n->op == MN_OP_KV_STORE;
    mng_cache c = {.kv = &u->kv};
    c.row_pos = mnp_in(r->g, n, stores ? MN_KV_STORE_ROW_POS : MN_ATTENTION_ROW_POS);
    c.row_slot = mnp_in(r->g, n, stores ? MN_KV_STORE_ROW_SLOT : MN_ATTENTION_ROW_SLOT);
    c.pages = mnp_in(r->g, n, stores ? MN_KV_STORE_PAGES : MN_ATTENTION_PAGES);
    c.cache = mnp_in(r->g, n, stores ? MN_KV_STORE_KV : MN_ATTENTION_KV);
    const mn_binding *bound = &mng_context_of(r->c)->bindings[c.cache];
    c.T = (int)mng_dim(r, c.row_pos, 0);
    c.S = (int)mng_dim(r, c.pages, 0);
    c.P = (int)mng_dim(r, c.pages, 1);
    c.n_pages = bound->bytes / u->kv.page_bytes;
    c.part_pages = bound->buffer->room / u->kv.page_bytes;
    c.layer_at = (uint64_t)u->kv.layer * u->kv.layer_bytes;
    return c;
}

mng_attention mng_attention_of(const mng_run *r, const mn_node *n) {
    return (mng_attention){.H = (int)mng_dim(r, mnp_in(r->g, n, MN_ATTENTION_Q), 1),
                           .window = (int)mnp_attr(r->g, n, MN_ATTENTION_ATTR_WINDOW),
                           .chunk = (int)mnp_attr(r->g, n, MN_ATTENTION_ATTR_CHUNK),
                           .bidirectional = mnp_attr(r->g, n, MN_ATTENTION_ATTR_BIDIRECTIONAL) != 0,
                           .scale = (float)mnp_attr_f64(r->g, n, MN_ATTENTION_ATTR_SCALE),
                           .softcap = (float)mnp_attr_f64(r->g, n, MN_ATTENTION_ATTR_SOFTCAP)};
}

bool mng_attends_distances(const mn_graph *g, const mn_node *n) {
    for (uint32_t i = MN_ATTENTION_DISTANCE_BIAS; i <= MN_ATTENTION_RELATIVE_Q; i++)
        if (mnp_in(g, n, i) >= 0)
            return true;
    return false;
}

int32_t mng_addend(const mn_graph *g, int32_t add, int32_t y) {
    const mn_node *n = mnp_node(g, (uint32_t)add);
    const int32_t a = mnp_in(g, n, MN_ADD_A);
    return a == y ? mnp_in(g, n, MN_ADD_B) : a;
}
