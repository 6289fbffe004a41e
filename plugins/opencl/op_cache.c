/* op_cache.c -- ROPE, KV_STORE and ATTENTION: their operands for the kernels of rows.cl and
 * cache.cl. The layout of a page is the runtime's (mnp_kv, of the compiled program). */
#include "ops.h"

#define N_REFS(refs) (sizeof(refs) / sizeof(refs)[0])

/* A launch with the other buffers of the cache behind its operands. */
static void enqueue_split(mng_run *r, const mn_buffer *b, const ocl_launch *l) {
    enum { MOST = 13 };
    mng_ref refs[MOST + OCL_KV_PARTS - 1];
    memcpy(refs, l->refs, l->n_refs * sizeof *refs);
    for (uint32_t i = 1; i < OCL_KV_PARTS; i++)
        refs[l->n_refs + i - 1] = i < b->n_parts ? (mng_ref){b->mem[i], 0} : mng_absent(r);
    ocl_launch split = *l;
    split.refs = refs;
    split.n_refs += OCL_KV_PARTS - 1;
    ocl_enqueue(r, &split);
}

/* A launch of a kernel of cache.cl; where the cache lies in several buffers, of that of
 * cache_split.cl. */
static void enqueue(mng_run *r, int32_t kv, const ocl_launch *l) {
    const mn_buffer *b = r->c->base.bindings[kv].buffer;
    ocl_launch split = *l;
    if (b->n_parts == 1) {
        ocl_enqueue(r, l);
        return;
    }
    split.kernel += OCL_TO_SPLIT;
    enqueue_split(r, b, &split);
}

static ocl_rope_args rope_args(const mng_run *r, const mn_node *n) {
    const mng_rope o = mng_rope_of(r, n);
    return (ocl_rope_args){
        .T = o.T, .H = o.H, .D = o.D, .n_rot = o.n_rot, .adjacent = o.adjacent, .mscale = o.mscale};
}

static void rope(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const ocl_rope_args a = rope_args(r, n);
    const mng_ref refs[] = {mng_in(r, n, MN_ROPE_X), mng_in(r, n, MN_ROPE_ROW_POS),
                            mng_in(r, n, MN_ROPE_FREQS), mng_out(r, n, 0)};
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_rope,
                                 .refs = refs,
                                 .n_refs = N_REFS(refs),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = ocl_items((a.D + 1) / 2, a.H, a.T)});
}

static ocl_cache cache_args(const mng_cache *from) {
    const mnp_kv *k = from->kv;
    return (ocl_cache){.page_bytes = k->page_bytes,
                       .v_offset = k->v_offset,
                       .layer_at = from->layer_at,
                       .n_pages = from->n_pages,
                       .part_pages = from->part_pages,
                       .S = from->S,
                       .P = from->P,
                       .T = from->T,
                       .Hkv = (int)k->n_head_kv,
                       .dk = (int)k->dim_k,
                       .dv = (int)k->dim_v,
                       .k_row = (int)k->k_row,
                       .v_row = (int)k->v_row,
                       .k_type = (int)k->k_dtype,
                       .v_type = (int)k->v_dtype};
}

/* Both rotations and the store at once, if they are alike and the cache is of floats. */
static bool store_turned(mng_run *r, const mng_unit *u, const mn_node *n, const ocl_cache *c) {
    if (!c->dv) /* values are keys */
        return false;
    if (u->rope_q < 0 || u->rope_k < 0 || c->k_type == MN_Q8_0 || c->v_type == MN_Q8_0)
        return false;
    const mn_node *q = mnp_node(r->g, (uint32_t)u->rope_q);
    const mn_node *k = mnp_node(r->g, (uint32_t)u->rope_k);
    const ocl_store_args a = {*c, rope_args(r, q)};
    const ocl_rope_args other = rope_args(r, k);
    const bool alike = a.r.mscale == other.mscale && a.r.T == other.T && a.r.D == other.D &&
                       a.r.n_rot == other.n_rot && a.r.adjacent == other.adjacent;
    if (!alike || mnp_in(r->g, q, MN_ROPE_FREQS) != mnp_in(r->g, k, MN_ROPE_FREQS))
        return false;
    const mng_ref refs[] = {mng_in(r, q, MN_ROPE_X),
                            mng_in(r, k, MN_ROPE_X),
                            mng_in(r, n, MN_KV_STORE_V),
                            mng_in(r, n, MN_KV_STORE_ROW_POS),
                            mng_in(r, n, MN_KV_STORE_ROW_SLOT),
                            mng_in(r, q, MN_ROPE_FREQS),
                            mng_in(r, n, MN_KV_STORE_PAGES),
                            mng_in(r, n, MN_KV_STORE_KV),
                            mng_out(r, q, 0)};
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

static void store(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const mng_cache cache = mng_cache_of(r, u);
    const ocl_cache c = cache_args(&cache);
    if (store_turned(r, u, n, &c))
        return;
    mng_launch_node(r, u->rope_q);
    mng_launch_node(r, u->rope_k);
    const int longest = c.dk > c.dv ? c.dk : c.dv;
    const mng_ref refs[] = {mng_in(r, n, MN_KV_STORE_K),   mng_in(r, n, MN_KV_STORE_V),
                            mng_operand(r, cache.row_pos), mng_operand(r, cache.row_slot),
                            mng_operand(r, cache.pages),   mng_operand(r, cache.cache)};
    /* keys and values of each head, in blocks of 32; so few that a group holds them exactly */
    const ocl_grid grid = {{(size_t)(longest + 31) / 32, 2 * (size_t)c.Hkv, (size_t)c.T},
                           {1, 2, 1}};
    enqueue(r, cache.cache,
            &(ocl_launch){.kernel = OCL_KERNEL_kv_store,
                          .refs = refs,
                          .n_refs = N_REFS(refs),
                          .args = &c,
                          .args_bytes = sizeof c,
                          .grid = grid});
}

/* Rows from which on heads that share keys go by four: fewer leave the device idle. */
enum { ROWS_BY_FOUR = 16 };

static uint32_t heads_of_group(const mng_run *r, const ocl_attend_args *a) {
    const int shared = a->H / a->c.Hkv;
    const bool fits = a->c.dk <= 128 && a->c.dv <= 128;
    if (r->dev->warps && a->c.T >= ROWS_BY_FOUR && shared % 4 == 0 && fits)
        return 4;
    return 1;
}

/* By the longer of a head's rows. */
static uint32_t kernel_of(const mng_run *r, const ocl_cache *c, uint32_t heads) {
    const int longest = c->dk > c->dv ? c->dk : c->dv;
    if (!r->dev->warps)
        return OCL_KERNEL_attend;
    if (longest <= 64)
        return heads == 4 ? OCL_KERNEL_attend_64x4 : OCL_KERNEL_attend_64;
    if (longest <= 128)
        return heads == 4 ? OCL_KERNEL_attend_128x4 : OCL_KERNEL_attend_128;
    return longest > 512 ? OCL_KERNEL_attend_576 : OCL_KERNEL_attend_512;
}

static ocl_attend_args attend_args(const mng_run *r, const mng_unit *u, const mng_cache *cache) {
    const mng_attention o = mng_attention_of(r, mnp_node(r->g, u->node));
    return (ocl_attend_args){.c = cache_args(cache),
                             .scale = o.scale,
                             .softcap = o.softcap,
                             .window = o.window,
                             .chunk = o.chunk,
                             .bidirectional = o.bidirectional,
                             .H = o.H};
}

_Static_assert(OCL_DISTANCE_STEPS == MNP_DISTANCE_STEPS, "distances");

/* By distance.cl, whatever the device. */
static void attend_distance(mng_run *r, const mng_unit *u, const mng_cache *cache) {
    const mn_node *n = mnp_node(r->g, u->node);
    const mnp_distances *d = u->distances;
    ocl_distance_args a = {.a = attend_args(r, u, cache)};
    const mng_ref refs[] = {mng_in(r, n, MN_ATTENTION_Q),
                            mng_operand(r, cache->row_pos),
                            mng_operand(r, cache->row_slot),
                            mng_operand(r, cache->pages),
                            mng_operand(r, cache->cache),
                            mng_in(r, n, MN_ATTENTION_SINKS),
                            mng_out(r, n, 0),
                            mng_in(r, n, MN_ATTENTION_ALIBI),
                            mng_in(r, n, MN_ATTENTION_DISTANCE_BIAS),
                            mng_in(r, n, MN_ATTENTION_LENGTHS),
                            mng_in(r, n, MN_ATTENTION_ANCESTORS),
                            mng_in(r, n, MN_ATTENTION_RELATIVE_K),
                            mng_in(r, n, MN_ATTENTION_RELATIVE_Q)};
    a.n_words = (int)mng_dim(r, mnp_in(r->g, n, MN_ATTENTION_ANCESTORS), 1);
    if (d) {
        a.exact = d->exact;
        a.places = d->places;
        a.n_steps = d->n_steps;
        memcpy(a.step, d->step, sizeof a.step);
    }
    enqueue_split(r, r->c->base.bindings[cache->cache].buffer,
                  &(ocl_launch){.kernel = OCL_KERNEL_attend_distance,
                                .refs = refs,
                                .n_refs = N_REFS(refs),
                                .args = &a,
                                .args_bytes = sizeof a,
                                .grid = ocl_groups(r, a.a.H, a.a.c.T)});
}

static void attention(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const int32_t q = mnp_in(r->g, n, MN_ATTENTION_Q);
    const mng_cache cache = mng_cache_of(r, u);
    const ocl_attend_args a = attend_args(r, u, &cache);
    if (mng_attends_distances(r->g, n)) {
        attend_distance(r, u, &cache);
        return;
    }
    const mng_ref refs[] = {mng_operand(r, q),
                            mng_operand(r, cache.row_pos),
                            mng_operand(r, cache.row_slot),
                            mng_operand(r, cache.pages),
                            mng_operand(r, cache.cache),
                            mng_in(r, n, MN_ATTENTION_SINKS),
                            mng_out(r, n, 0),
                            mng_in(r, n, MN_ATTENTION_ALIBI)};
    const uint32_t heads = heads_of_group(r, &a);
    ocl_grid grid = ocl_groups(r, a.H, a.c.T);
    if (r->dev->warps)
        grid = (ocl_grid){{32 * (size_t)a.H / heads, OCL_WARPS * (size_t)a.c.T, 1},
                          {32, OCL_WARPS, 1}};
    enqueue(r, cache.cache,
            &(ocl_launch){.kernel = kernel_of(r, &a.c, heads),
                          .refs = refs,
                          .n_refs = N_REFS(refs),
                          .args = &a,
                          .args_bytes = sizeof a,
                          .grid = grid});
}

const mng_op ocl_op_rope = {MN_OP_ROPE, 1, mng_rope_verdict, NULL, rope};
const mng_op ocl_op_kv_store = {MN_OP_KV_STORE, 2, mng_store_verdict, NULL, store};
const mng_op ocl_op_attention = {MN_OP_ATTENTION, 5, mng_attention_verdict, NULL, attention};
