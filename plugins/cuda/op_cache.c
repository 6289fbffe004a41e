/* op_cache.c -- ROPE, KV_STORE and ATTENTION: their operands for the kernels of k_misc.cu
 * and k_cache.cu, and for attend.c. Where each sequence has one row the attention of a STORE unit
 * rotates, stores and attends in one kernel. The layout of a page is the runtime's (mnp_kv, of the
 * compiled program). */
#include "ops.h"

/* The cache of a unit's layer; the int32_t are tensors: position and slot of each row, page tables,
 * the pages. */
static cu_cache cache(const cu_run *r, const cu_unit *u, int32_t row_pos, int32_t row_slot,
                      int32_t pages, int32_t kv) {
    cu_cache c = {0};
    const mnp_kv *k = &u->kv;
    c.row_pos = cu_i32(r, row_pos);
    c.row_slot = cu_i32(r, row_slot);
    c.pages = cu_i32(r, pages);
    c.kv = cu_ptr(r, kv);
    c.n_pages = (int64_t)(r->c->bindings[kv].bytes / k->page_bytes);
    c.T = (int)cu_dim(r, row_pos, 0);
    c.S = (int)cu_dim(r, pages, 0);
    c.P = (int)cu_dim(r, pages, 1);
    c.Hkv = (int)k->n_head_kv;
    c.dk = (int)k->dim_k;
    c.dv = (int)k->dim_v;
    c.pk = (int)k->pad_k;
    c.pv = (int)k->pad_v;
    c.k_dtype = k->k_dtype;
    c.v_dtype = k->v_dtype;
    c.dtype = c.k_dtype == c.v_dtype ? c.k_dtype : (uint32_t)MN_DTYPE_NONE;
    c.page_bytes = k->page_bytes;
    c.layer_at = (uint64_t)k->layer * k->layer_bytes;
    c.v_offset = k->v_offset;
    return c;
}

/* n_rot = 0 turns the whole head; mscale = 0 is 1. */
static cu_rope rope(const cu_run *r, const mn_node *n) {
    const mn_graph *g = r->g;
    const int32_t x = mnp_in(g, n, MN_ROPE_X);
    const double mscale = mnp_attr_f64(g, n, MN_ROPE_ATTR_MSCALE);
    cu_rope o = {0};
    o.x = cu_f32(r, x);
    o.row_pos = cu_in_i32(r, n, MN_ROPE_ROW_POS);
    o.freqs = cu_in_flat(r, n, MN_ROPE_FREQS);
    o.y = cu_f32(r, mnp_out(g, n, 0));
    o.T = (int)cu_dim(r, x, 0);
    o.H = (int)cu_dim(r, x, 1);
    o.D = (int)cu_dim(r, x, 2);
    o.n_rot = (int)mnp_attr(g, n, MN_ROPE_ATTR_N_ROT);
    if (!o.n_rot)
        o.n_rot = o.D;
    o.adjacent = mnp_attr(g, n, MN_ROPE_ATTR_PAIRING) == MN_ROPE_ADJACENT;
    o.mscale = mscale == 0 ? 1 : (float)mscale;
    return o;
}

static void rotate_rows(cu_run *r, const cu_unit *u) {
    const cu_rope o = rope(r, mnp_node(r->g, u->node));
    if (o.T)
        cu_rope_run(r->s, &o);
}

/* Whether in this step the attention of a STORE and of an ATTENTION unit runs both: no row sees
 * what another one stores. */
bool cu_is_joined(const cu_run *r, const cu_unit *u) {
    if (u->with < 0)
        return false;
    const bool is_store = mnp_node(r->g, u->node)->op == MN_OP_KV_STORE;
    const cu_unit *store = is_store ? u : &r->p->units[u->with];
    const mn_node *n = mnp_node(r->g, store->node);
    if (cu_dim(r, mnp_in(r->g, n, MN_KV_STORE_ROW_POS), 0) == 1)
        return true;
    return r->p->seq_rows >= 0 && r->sym[r->p->seq_rows] == 1;
}

/* Keys and values of all rows; with a rope unit q and k are turned on the way. */
static void store(cu_run *r, const cu_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    cu_store a = {0};
    const int32_t row_pos = mnp_in(g, n, MN_KV_STORE_ROW_POS);
    const int32_t row_slot = mnp_in(g, n, MN_KV_STORE_ROW_SLOT);
    const int32_t pages = mnp_in(g, n, MN_KV_STORE_PAGES);
    const int32_t kv = mnp_in(g, n, MN_KV_STORE_KV);
    a.c = cache(r, u, row_pos, row_slot, pages, kv);
    a.k = cu_in_f32(r, n, MN_KV_STORE_K);
    a.v = cu_in_f32(r, n, MN_KV_STORE_V);
    a.rope = u->rope_q >= 0;
    if (a.rope) {
        a.q = rope(r, mnp_node(g, u->rope_q));
        a.kr = rope(r, mnp_node(g, u->rope_k));
    }
    if (a.c.T)
        cu_store_run(r->s, &a);
}

/* Sequences of many rows go to tiles of rows (attend.c), where the cache and the class let them;
 * those of one row beside them, and all others, go row by row with keys split. */
static void attention(cu_run *r, const cu_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const int32_t y = mnp_out(g, n, 0);
    const int32_t q = mnp_in(g, n, MN_ATTENTION_Q);
    cu_attend a = {0};
    const int32_t row_pos = mnp_in(g, n, MN_ATTENTION_ROW_POS);
    const int32_t row_slot = mnp_in(g, n, MN_ATTENTION_ROW_SLOT);
    const int32_t pages = mnp_in(g, n, MN_ATTENTION_PAGES);
    const int32_t kv = mnp_in(g, n, MN_ATTENTION_KV);
    a.c = cache(r, u, row_pos, row_slot, pages, kv);
    a.seqs = cu_in_i32(r, n, MN_ATTENTION_SEQS);
    a.n_seqs = (int)cu_dim(r, mnp_in(g, n, MN_ATTENTION_SEQS), 0);
    a.bidirectional = (int)mnp_attr(g, n, MN_ATTENTION_ATTR_BIDIRECTIONAL);
    a.q = cu_f32(r, q);
    a.sinks = cu_in_flat(r, n, MN_ATTENTION_SINKS);
    a.y = cu_ptr(r, y);
    a.y_kind = cu_kind(r, y);
    a.H = (int)cu_dim(r, q, 1);
    a.partial = (float *)(r->c->scratch + r->p->partial_at);
    a.arrived = (unsigned *)(r->c->scratch + r->p->arrived_at);
    a.tile_sums = (float *)(r->c->scratch + r->p->tile_sums_at);
    a.tiles_arrived = (unsigned *)(r->c->scratch + r->p->tiles_arrived_at);
    a.split = r->p->split;
    a.max_splits = r->p->max_splits;
    a.scale = (float)mnp_attr_f64(g, n, MN_ATTENTION_ATTR_SCALE);
    a.softcap = (float)mnp_attr_f64(g, n, MN_ATTENTION_ATTR_SOFTCAP);
    a.window = (int)mnp_attr(g, n, MN_ATTENTION_ATTR_WINDOW);
    a.rounds = cu_rounds(r->p);
    if (cu_is_joined(r, u)) {
        const cu_unit *joined = &r->p->units[u->with];
        const mn_node *st = mnp_node(g, joined->node);
        a.one = true;
        a.early = r->early;
        a.st.v = cu_in_f32(r, st, MN_KV_STORE_V);
        a.st.q = rope(r, mnp_node(g, joined->rope_q));
        a.st.kr = rope(r, mnp_node(g, joined->rope_k));
    }
    if (!a.c.T)
        return;
    const bool prompt = !a.one && a.rounds && cu_prompt_fits(&r->dev->card, &a);
    cu_chose(r, u->node, prompt ? "attend_prompt" : "attend", "", a.c.T);
    a.apart = prompt && a.n_seqs > 1;
    if (prompt)
        cu_prompt_run(&r->dev->card, r->s, &a);
    if (!prompt || a.apart)
        cu_attend_run(&r->dev->card, r->s, &a);
}

/* ---- what they need -------------------------------------------------------------------------- */
static uint32_t rope_verdict(const mn_device *d, const mn_graph *g, const mn_node *n) {
    (void)d;
    const mn_tensor *x = mnp_in_tensor(g, n, MN_ROPE_X);
    const bool even = mnp_attr(g, n, MN_ROPE_ATTR_N_ROT) % 2 == 0;
    if (x->n_dim == 3 && x->dim[2] > 0 && even)
        return CU_OK;
    return CU_SHAPE;
}

static uint32_t store_verdict(const mn_device *d, const mn_graph *g, const mn_node *n) {
    (void)d;
    const mn_tensor *k = mnp_in_tensor(g, n, MN_KV_STORE_K);
    if (k->n_dim == 3 && k->dim[1] <= 65535)
        return CU_OK;
    return CU_SHAPE;
}

static uint32_t attention_verdict(const mn_device *d, const mn_graph *g, const mn_node *n) {
    (void)d;
    const mn_tensor *q = mnp_in_tensor(g, n, MN_ATTENTION_Q);
    const mn_tensor *y = mnp_out_tensor(g, n, 0);
    const int64_t kv = mnp_attr(g, n, MN_ATTENTION_ATTR_N_HEAD_KV);
    if (q->n_dim != 3 || y->n_dim != 3)
        return CU_SHAPE;
    const int64_t heads = q->dim[1];
    if (kv <= 0 || heads <= 0 || heads % kv)
        return CU_SHAPE;
    if (q->dim[2] > 256 || y->dim[2] > 256)
        return CU_HEAD;
    return CU_OK;
}

/* Sums of the splits of a row's positions, and a counter for each head. */
static void attention_needs(const mn_program *p, const mn_node *n, cu_needs *needs) {
    const mn_graph *g = p->graph;
    const mn_tensor *q = mnp_in_tensor(g, n, MN_ATTENTION_Q);
    const mn_tensor *y = mnp_out_tensor(g, n, 0);
    const uint64_t rows = (uint64_t)mnp_dim(g, p->symbol_max, q->dim[0]);
    const uint64_t most = 16ull * (uint64_t)p->dev->card.sms;
    uint64_t heads = rows * (uint64_t)q->dim[1];
    heads = heads < most ? heads : most;
    const uint64_t partial = (uint64_t)(y->dim[2] + 2) * 4; /* sums, maximum and weight of a head */
    cu_need(&needs->partial, heads * (uint64_t)p->max_splits * partial);
    cu_need(&needs->arrived, heads * 4);
    if (!cu_rounds(p))
        return;
    const int dims = (int)(q->dim[2] > y->dim[2] ? q->dim[2] : y->dim[2]);
    cu_need(&needs->tile_sums, cu_tile_bytes(&p->dev->card, dims));
    cu_need(&needs->tiles_arrived, (uint64_t)cu_tile_blocks(&p->dev->card, dims) * 4);
}

const cu_op cu_op_rope = {MN_OP_ROPE, 1, rope_verdict, NULL, rotate_rows};
const cu_op cu_op_kv_store = {MN_OP_KV_STORE, 1, store_verdict, NULL, store};
const cu_op cu_op_attention = {MN_OP_ATTENTION, 2, attention_verdict, attention_needs, attention};
