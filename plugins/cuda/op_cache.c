/* op_cache.c -- ROPE, KV_STORE and ATTENTION: their operands for the kernels of k_misc.cu
 * and k_cache.cu, and for attend.c. Where each sequence has one row the attention of a STORE unit
 * rotates, stores and attends in one kernel. The layout of a page is the runtime's (mnp_kv, of the
 * compiled program). */
#include "attend_distance.h"
#include "ops.h"

/* The cache of a unit's layer. */
static cu_cache cache_of(const mng_run *r, const mng_unit *u) {
    const mng_cache from = mng_cache_of(r, u);
    const mnp_kv *k = from.kv;
    cu_cache c = {.row_pos = cu_i32(r, from.row_pos),
                  .row_slot = cu_i32(r, from.row_slot),
                  .pages = cu_i32(r, from.pages),
                  .kv = cu_ptr(r, from.cache),
                  .n_pages = (int64_t)from.n_pages,
                  .T = from.T,
                  .S = from.S,
                  .P = from.P,
                  .Hkv = (int)k->n_head_kv,
                  .dk = (int)k->dim_k,
                  .dv = (int)k->dim_v,
                  .pk = (int)k->pad_k,
                  .pv = (int)k->pad_v,
                  .k_dtype = k->k_dtype,
                  .v_dtype = k->v_dtype};
    c.dtype = c.k_dtype == c.v_dtype ? c.k_dtype : (uint32_t)MN_DTYPE_NONE;
    c.page_bytes = k->page_bytes;
    c.layer_at = from.layer_at;
    c.v_offset = k->v_offset;
    return c;
}

static cu_rope rope_of(const mng_run *r, int32_t node) {
    const mn_node *n = mnp_node(r->g, node);
    const mng_rope from = mng_rope_of(r, n);
    cu_rope o = {.x = cu_in_f32(r, n, MN_ROPE_X),
                 .row_pos = cu_in_i32(r, n, MN_ROPE_ROW_POS),
                 .freqs = cu_in_flat(r, n, MN_ROPE_FREQS),
                 .y = cu_out_f32(r, n, 0),
                 .T = from.T,
                 .H = from.H,
                 .D = from.D,
                 .n_rot = from.n_rot,
                 .adjacent = from.adjacent,
                 .mscale = from.mscale};
    return o;
}

static void rotate_rows(mng_run *r, const mng_unit *u) {
    const cu_rope o = rope_of(r, u->node);
    if (o.T)
        cu_rope_run(r->step->stream, &o);
}

/* Whether in this step the attention of a STORE and of an ATTENTION unit runs both: no row sees
 * what another one stores. */
bool cu_is_joined(const mng_run *r, const mng_unit *u) {
    if (u->with < 0)
        return false;
    const bool is_store = mnp_node(r->g, u->node)->op == MN_OP_KV_STORE;
    const mng_unit *store = is_store ? u : &r->p->base.units[u->with];
    const mn_node *n = mnp_node(r->g, store->node);
    if (mng_dim(r, mnp_in(r->g, n, MN_KV_STORE_ROW_POS), 0) == 1)
        return true;
    return r->p->seq_rows >= 0 && r->sym[r->p->seq_rows] == 1;
}

/* Keys and values of all rows; with a rope unit q and k are turned on the way. */
static void store(mng_run *r, const mng_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    cu_store a = {.c = cache_of(r, u),
                  .k = cu_in_f32(r, n, MN_KV_STORE_K),
                  .v = cu_in_f32(r, n, MN_KV_STORE_V),
                  .rope = u->rope_q >= 0};
    if (a.rope) {
        a.q = rope_of(r, u->rope_q);
        a.kr = rope_of(r, u->rope_k);
    }
    if (a.c.T)
        cu_store_run(r->step->stream, &a);
}

/* Rows by tiles, on Hopper by its own kernels where these can. */
static void attend_prompt(mng_run *r, const mng_unit *u, const cu_attend *a) {
    const cu_card *d = &r->dev->card;
    if (cu_prompt_sm90_fits(d, a) && cu_prompt_sm90_run(d, r->step->stream, a)) {
        cu_chose(r, u->node, "attend_prompt_sm90", "", a->c.T);
        return;
    }
    cu_chose(r, u->node, "attend_prompt", "", a->c.T);
    cu_prompt_run(d, r->step->stream, a);
}

_Static_assert(CU_DISTANCE_STEPS == MNP_DISTANCE_STEPS, "distances");

/* What its operands of contracts 4 and 5 are. */
static cu_distance distance_of(const mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    cu_distance by = {.biases = cu_in_flat(r, n, MN_ATTENTION_DISTANCE_BIAS),
                      .rel_k = cu_in_flat(r, n, MN_ATTENTION_RELATIVE_K),
                      .rel_q = cu_in_flat(r, n, MN_ATTENTION_RELATIVE_Q),
                      .lengths = cu_in_i32(r, n, MN_ATTENTION_LENGTHS),
                      .ancestors = cu_in_i32(r, n, MN_ATTENTION_ANCESTORS),
                      .n_words = (int)mng_dim(r, mnp_in(r->g, n, MN_ATTENTION_ANCESTORS), 1)};
    if (u->distances) {
        by.exact = u->distances->exact;
        by.places = u->distances->places;
        by.n_steps = u->distances->n_steps;
        memcpy(by.step, u->distances->step, sizeof by.step);
    }
    return by;
}

/* Sequences of many rows go to tiles of rows (attend.c), where the cache and the class let them;
 * those of one row beside them, and all others, go row by row with keys split. */
static void attention(mng_run *r, const mng_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const int32_t y = mnp_out(g, n, 0);
    const mng_attention from = mng_attention_of(r, n);
    cu_attend a = {.c = cache_of(r, u),
                   .seqs = cu_in_i32(r, n, MN_ATTENTION_SEQS),
                   .n_seqs = cu_in_dim(r, n, MN_ATTENTION_SEQS, 0),
                   .bidirectional = from.bidirectional,
                   .q = cu_in_f32(r, n, MN_ATTENTION_Q),
                   .sinks = cu_in_flat(r, n, MN_ATTENTION_SINKS),
                   .y = cu_ptr(r, y),
                   .y_kind = cu_kind(r, y),
                   .H = from.H,
                   .partial = cu_room(r, CU_NEED_PARTIAL),
                   .arrived = cu_room(r, CU_NEED_ARRIVED),
                   .tile_sums = cu_room(r, CU_NEED_TILE_SUMS),
                   .tiles_arrived = cu_room(r, CU_NEED_TILES_ARRIVED),
                   .split = r->p->split,
                   .max_splits = r->p->max_splits,
                   .scale = from.scale,
                   .softcap = from.softcap,
                   .window = from.window,
                   .chunk = from.chunk,
                   .slopes = cu_in_flat(r, n, MN_ATTENTION_ALIBI),
                   .rounds = cu_rounds(r->p)};
    if (cu_is_joined(r, u)) {
        const mng_unit *joined = &r->p->base.units[u->with];
        const mn_node *st = mnp_node(g, joined->node);
        a.one = true;
        a.early = r->step->early;
        a.st.v = cu_in_f32(r, st, MN_KV_STORE_V);
        a.st.q = rope_of(r, joined->rope_q);
        a.st.kr = rope_of(r, joined->rope_k);
    }
    if (!a.c.T)
        return;
    if (mng_attends_distances(g, n)) {
        const cu_distance by = distance_of(r, u);
        cu_chose(r, u->node, "attend_distance", "", a.c.T);
        cu_distance_run(&r->dev->card, r->step->stream, &a, &by);
        return;
    }
    if (cu_latent_fits(&r->dev->card, &a)) {
        cu_chose(r, u->node, "attend_latent", "", a.c.T);
        cu_latent_run(&r->dev->card, r->step->stream, &a);
        return;
    }
    if (cu_attends_long(&a)) {
        cu_chose(r, u->node, "attend_long", "", a.c.T);
        cu_attend_run(&r->dev->card, r->step->stream, &a);
        return;
    }
    const bool prompt = !a.one && a.rounds && cu_prompt_fits(&r->dev->card, &a);
    a.apart = prompt && a.n_seqs > 1;
    if (prompt)
        attend_prompt(r, u, &a);
    else
        cu_chose(r, u->node, "attend", "", a.c.T);
    if (!prompt || a.apart)
        cu_attend_run(&r->dev->card, r->step->stream, &a);
}

/* ---- what they need -------------------------------------------------------------------------- */
/* Sums of the splits of a row's positions, and a counter for each head. */
static void attention_needs(const mn_program *p, const mn_node *n, mng_needs *needs) {
    const mn_graph *g = p->base.graph;
    const mn_tensor *q = mnp_in_tensor(g, n, MN_ATTENTION_Q);
    const mn_tensor *y = mnp_out_tensor(g, n, 0);
    const uint64_t rows = mnp_dim(g, p->base.symbol_max, q->dim[0]);
    const uint64_t most = 16ull * p->base.dev->card.sms;
    uint64_t heads = rows * q->dim[1];
    if (most < heads)
        heads = most;
    const uint64_t partial = (uint64_t)(y->dim[2] + 2) * 4; /* sums, maximum and weight of a head */
    mng_need(needs, CU_NEED_PARTIAL, heads * p->max_splits * partial);
    mng_need(needs, CU_NEED_ARRIVED, heads * 4);
    if (!cu_rounds(p))
        return;
    if (mnp_attr(g, n, MN_ATTENTION_ATTR_V_OF_K)) {
        const mn_tensor *seqs = mnp_in_tensor(g, n, MN_ATTENTION_SEQS);
        const int64_t n_seqs = mnp_dim(g, p->base.symbol_max, seqs->dim[0]);
        const cu_card *card = &p->base.dev->card;
        mng_need(needs, CU_NEED_PARTIAL, cu_latent_bytes(card, rows, q->dim[1], n_seqs));
    }
    const int dims = (int)(q->dim[2] > y->dim[2] ? q->dim[2] : y->dim[2]);
    mng_need(needs, CU_NEED_TILE_SUMS, cu_tile_bytes(&p->base.dev->card, dims));
    mng_need(needs, CU_NEED_TILES_ARRIVED, (uint64_t)cu_tile_blocks(&p->base.dev->card, dims) * 4);
}

const mng_op cu_op_rope = {MN_OP_ROPE, 1, mng_rope_verdict, NULL, rotate_rows};
const mng_op cu_op_kv_store = {MN_OP_KV_STORE, 2, mng_store_verdict, NULL, store};
const mng_op cu_op_attention = {MN_OP_ATTENTION, 5, mng_attention_verdict, attention_needs,
                                attention};
