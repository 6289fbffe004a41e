/* op_cache.c -- ROPE, KV_STORE and ATTENTION: their operands for the kernels of rows.cl and
 * cache.cl. The layout of a page is the runtime's (mnp_kv, of the compiled program). */
#include "ops.h"

#define N_REFS(refs) (sizeof(refs) / sizeof(refs)[0])

/* A launch of a kernel of cache.cl; where the cache lies in several buffers, of that of
 * cache_split.cl, whose operands are the same and the other buffers behind them. */
static void enqueue(ocl_run *r, int32_t kv, const ocl_launch *l) {
    enum { MOST = 10 };
    const mn_buffer *b = r->c->bindings[kv].buffer;
    if (b->n_parts == 1) {
        ocl_enqueue(r, l);
        return;
    }
    ocl_ref refs[MOST + OCL_KV_PARTS - 1];
    memcpy(refs, l->refs, l->n_refs * sizeof *refs);
    for (uint32_t i = 1; i < OCL_KV_PARTS; i++)
        refs[l->n_refs + i - 1] = i < b->n_parts ? (ocl_ref){b->mem[i], 0} : ocl_absent(r);
    ocl_launch split = *l;
    split.kernel += OCL_TO_SPLIT;
    split.refs = refs;
    split.n_refs += OCL_KV_PARTS - 1;
    ocl_enqueue(r, &split);
}

/* n_rot = 0 turns the whole head; mscale = 0 is 1. */
ocl_rope_args ocl_rope_of(const ocl_run *r, const mn_node *n) {
    const int32_t x = mnp_in(r->g, n, MN_ROPE_X);
    const double mscale = mnp_attr_f64(r->g, n, MN_ROPE_ATTR_MSCALE);
    ocl_rope_args a = {.mscale = mscale == 0 ? 1 : (float)mscale};
    a.T = (int)ocl_dim(r, x, 0);
    a.H = (int)ocl_dim(r, x, 1);
    a.D = (int)ocl_dim(r, x, 2);
    a.n_rot = (int)mnp_attr(r->g, n, MN_ROPE_ATTR_N_ROT);
    if (!a.n_rot)
        a.n_rot = a.D;
    a.adjacent = mnp_attr(r->g, n, MN_ROPE_ATTR_PAIRING) == MN_ROPE_ADJACENT;
    return a;
}

static void rope(ocl_run *r, const ocl_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const ocl_rope_args a = ocl_rope_of(r, n);
    const ocl_ref refs[] = {ocl_in(r, n, MN_ROPE_X), ocl_in(r, n, MN_ROPE_ROW_POS),
                            ocl_in(r, n, MN_ROPE_FREQS), ocl_out(r, n, 0)};
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_rope,
                                 .refs = refs,
                                 .n_refs = N_REFS(refs),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = ocl_items((a.D + 1) / 2, a.H, a.T)});
}

/* The cache of a unit's layer; the int32_t are tensors. */
static ocl_cache cache_of(const ocl_run *r, const ocl_unit *u, int32_t row_pos, int32_t pages,
                          int32_t kv) {
    const mnp_kv *k = &u->kv;
    ocl_cache c = {.page_bytes = k->page_bytes, .v_offset = k->v_offset};
    c.layer_at = (uint64_t)k->layer * k->layer_bytes;
    c.n_pages = r->c->bindings[kv].bytes / k->page_bytes;
    c.part_pages = r->c->bindings[kv].buffer->room / k->page_bytes;
    c.S = (int)ocl_dim(r, pages, 0);
    c.P = (int)ocl_dim(r, pages, 1);
    c.T = (int)ocl_dim(r, row_pos, 0);
    c.Hkv = (int)k->n_head_kv;
    c.dk = (int)k->dim_k;
    c.dv = (int)k->dim_v;
    c.k_row = (int)k->k_row;
    c.v_row = (int)k->v_row;
    c.k_type = (int)k->k_dtype;
    c.v_type = (int)k->v_dtype;
    return c;
}

/* Both rotations and the store at once, if they are alike and the cache is of floats. */
static bool store_turned(ocl_run *r, const ocl_unit *u, const mn_node *n, const ocl_cache *c) {
    if (u->rope_q < 0 || u->rope_k < 0 || c->k_type == MN_Q8_0 || c->v_type == MN_Q8_0)
        return false;
    const mn_node *q = mnp_node(r->g, (uint32_t)u->rope_q);
    const mn_node *k = mnp_node(r->g, (uint32_t)u->rope_k);
    const ocl_store_args a = {*c, ocl_rope_of(r, q)};
    const ocl_rope_args other = ocl_rope_of(r, k);
    const bool alike = a.r.mscale == other.mscale && a.r.T == other.T && a.r.D == other.D &&
                       a.r.n_rot == other.n_rot && a.r.adjacent == other.adjacent;
    if (!alike || mnp_in(r->g, q, MN_ROPE_FREQS) != mnp_in(r->g, k, MN_ROPE_FREQS))
        return false;
    const ocl_ref refs[] = {ocl_in(r, q, MN_ROPE_X),
                            ocl_in(r, k, MN_ROPE_X),
                            ocl_in(r, n, MN_KV_STORE_V),
                            ocl_in(r, n, MN_KV_STORE_ROW_POS),
                            ocl_in(r, n, MN_KV_STORE_ROW_SLOT),
                            ocl_in(r, q, MN_ROPE_FREQS),
                            ocl_in(r, n, MN_KV_STORE_PAGES),
                            ocl_in(r, n, MN_KV_STORE_KV),
                            ocl_out(r, q, 0)};
    const int longest = a.r.D > c->dv ? a.r.D : c->dv;
    const size_t pairs = (size_t)mnp_round((longest + 1) / 2, 32);
    const ocl_grid grid = {{pairs, (size_t)(a.r.H + 2 * c->Hkv), (size_t)c->T}, {32, 1, 1}};
    enqueue(r, mnp_in(r->g, n, MN_KV_STORE_KV),
            &(ocl_launch){.kernel = OCL_KERNEL_rope_store,
                          .refs = refs,
                          .n_refs = N_REFS(refs),
                          .args = &a,
                          .args_bytes = sizeof a,
                          .grid = grid});
    return true;
}

static void store(ocl_run *r, const ocl_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const int32_t row_pos = mnp_in(r->g, n, MN_KV_STORE_ROW_POS);
    const int32_t pages = mnp_in(r->g, n, MN_KV_STORE_PAGES);
    const int32_t kv = mnp_in(r->g, n, MN_KV_STORE_KV);
    const ocl_cache c = cache_of(r, u, row_pos, pages, kv);
    if (store_turned(r, u, n, &c))
        return;
    ocl_launch_node(r, u->rope_q);
    ocl_launch_node(r, u->rope_k);
    const int longest = c.dk > c.dv ? c.dk : c.dv;
    const ocl_ref refs[] = {ocl_in(r, n, MN_KV_STORE_K), ocl_in(r, n, MN_KV_STORE_V),
                            ocl_operand(r, row_pos),     ocl_in(r, n, MN_KV_STORE_ROW_SLOT),
                            ocl_operand(r, pages),       ocl_operand(r, kv)};
    /* keys and values of each head, in blocks of 32; so few that a group holds them exactly */
    const ocl_grid grid = {{(size_t)(longest + 31) / 32, 2 * (size_t)c.Hkv, (size_t)c.T},
                           {1, 2, 1}};
    enqueue(r, kv,
            &(ocl_launch){.kernel = OCL_KERNEL_kv_store,
                          .refs = refs,
                          .n_refs = N_REFS(refs),
                          .args = &c,
                          .args_bytes = sizeof c,
                          .grid = grid});
}

/* Rows from which on heads that share keys go by four: fewer leave the device idle. */
enum { ROWS_BY_FOUR = 16 };

static uint32_t heads_of_group(const ocl_run *r, const ocl_attend_args *a) {
    const int shared = a->H / a->c.Hkv;
    const bool fits = a->c.dk <= 128 && a->c.dv <= 128;
    if (r->dev->warps && a->c.T >= ROWS_BY_FOUR && shared % 4 == 0 && fits)
        return 4;
    return 1;
}

/* By the longer of a head's rows. */
static uint32_t kernel_of(const ocl_run *r, const ocl_cache *c, uint32_t heads) {
    const int longest = c->dk > c->dv ? c->dk : c->dv;
    if (!r->dev->warps)
        return OCL_KERNEL_attend;
    if (longest <= 64)
        return heads == 4 ? OCL_KERNEL_attend_64x4 : OCL_KERNEL_attend_64;
    if (longest <= 128)
        return heads == 4 ? OCL_KERNEL_attend_128x4 : OCL_KERNEL_attend_128;
    return OCL_KERNEL_attend_512;
}

static void attention(ocl_run *r, const ocl_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const int32_t q = mnp_in(r->g, n, MN_ATTENTION_Q);
    const int32_t row_pos = mnp_in(r->g, n, MN_ATTENTION_ROW_POS);
    const int32_t pages = mnp_in(r->g, n, MN_ATTENTION_PAGES);
    const int32_t kv = mnp_in(r->g, n, MN_ATTENTION_KV);
    ocl_attend_args a = {.c = cache_of(r, u, row_pos, pages, kv)};
    a.scale = (float)mnp_attr_f64(r->g, n, MN_ATTENTION_ATTR_SCALE);
    a.softcap = (float)mnp_attr_f64(r->g, n, MN_ATTENTION_ATTR_SOFTCAP);
    a.window = (int)mnp_attr(r->g, n, MN_ATTENTION_ATTR_WINDOW);
    a.bidirectional = mnp_attr(r->g, n, MN_ATTENTION_ATTR_BIDIRECTIONAL) != 0;
    a.H = (int)ocl_dim(r, q, 1);
    const ocl_ref refs[] = {
        ocl_operand(r, q),     ocl_operand(r, row_pos), ocl_in(r, n, MN_ATTENTION_ROW_SLOT),
        ocl_operand(r, pages), ocl_operand(r, kv),      ocl_in(r, n, MN_ATTENTION_SINKS),
        ocl_out(r, n, 0)};
    const uint32_t heads = heads_of_group(r, &a);
    ocl_grid grid = ocl_groups(r, a.H, a.c.T);
    if (r->dev->warps)
        grid = (ocl_grid){{32 * (size_t)a.H / heads, OCL_WARPS * (size_t)a.c.T, 1},
                          {32, OCL_WARPS, 1}};
    enqueue(r, kv,
            &(ocl_launch){.kernel = kernel_of(r, &a.c, heads),
                          .refs = refs,
                          .n_refs = N_REFS(refs),
                          .args = &a,
                          .args_bytes = sizeof a,
                          .grid = grid});
}

/* ---- what they need -------------------------------------------------------------------------- */
static uint32_t rope_verdict(const mn_graph *g, const mn_node *n) {
    const mn_tensor *x = mnp_in_tensor(g, n, MN_ROPE_X);
    const bool even = mnp_attr(g, n, MN_ROPE_ATTR_N_ROT) % 2 == 0;
    if (x->n_dim == 3 && x->dim[2] > 0 && even)
        return OCL_OK;
    return OCL_SHAPE;
}

static uint32_t store_verdict(const mn_graph *g, const mn_node *n) {
    const mn_tensor *k = mnp_in_tensor(g, n, MN_KV_STORE_K);
    const mn_tensor *v = mnp_in_tensor(g, n, MN_KV_STORE_V);
    if (!v || k->n_dim != 3 || v->n_dim != 3)
        return OCL_SHAPE;
    if (k->dim[2] > OCL_MAX_HEAD || v->dim[2] > OCL_MAX_HEAD)
        return OCL_HEAD;
    return OCL_OK;
}

static uint32_t attention_verdict(const mn_graph *g, const mn_node *n) {
    const mn_tensor *q = mnp_in_tensor(g, n, MN_ATTENTION_Q);
    const mn_tensor *y = mnp_out_tensor(g, n, 0);
    const int64_t kv = mnp_attr(g, n, MN_ATTENTION_ATTR_N_HEAD_KV);
    if (q->n_dim != 3 || y->n_dim != 3)
        return OCL_SHAPE;
    const int64_t heads = q->dim[1];
    if (kv <= 0 || heads <= 0 || heads % kv)
        return OCL_SHAPE;
    if (q->dim[2] > OCL_MAX_HEAD || y->dim[2] > OCL_MAX_HEAD)
        return OCL_HEAD;
    return OCL_OK;
}

const ocl_op ocl_op_rope = {MN_OP_ROPE, 1, rope_verdict, NULL, rope};
const ocl_op ocl_op_kv_store = {MN_OP_KV_STORE, 1, store_verdict, NULL, store};
const ocl_op ocl_op_attention = {MN_OP_ATTENTION, 2, attention_verdict, NULL, attention};
