/* k_attention_latent.cu -- latent attention on Hopper (DeepSeek-AI 2024): one head of keys, a row
 * of up to 576 halves a position, whose first 512 are its values. All heads of a row read the same
 * cache, so that pairs of row and head are the rows of a product: a block has a tile of 64 pairs
 * in a sequence and walks the pages that they see, each of which it reads once, for scores and
 * for values.
 *
 * Two warpgroups have 256 columns of the values each, and both compute all scores, so that neither
 * waits for the other but where a page arrives. Scores and sums are f32; q, keys and weights of the
 * softmax are f16. Pages come to shared memory one ahead, in panels of 64 columns as warpgroup
 * products want them.
 *
 * Where tiles are few, their pages are dealt to blocks in slices of one length (`share`), which
 * depends on the step; merge_latent adds up the slices of a row in their order. Blocks are numbered
 * by sequence: first whole slices, then what is left of each tile.
 *
 * A position that a row must not see has weight 0, and 0 times a NaN would still be NaN: positions
 * behind the last of a tile are read as zeros, and a row that ends as NaN or infinite beside others
 * of its sequence is computed once more by itself. */
#include "prompt_tiles.cuh"
#ifndef CU_EMULATED
#include "ptx.cuh"
#endif
#include <limits.h>

/* LEAST: pages of a slice; LONG: pages of a slice from which on twice as many slices pay. */
enum { ROWS = CU_LATENT_ROWS, THREADS = 256, MERGE_THREADS = 128, LEAST = 2, LONG = 32 };
enum {
    VECTORS = CU_LATENT_KEYS / 8, /* of 16 bytes, of a row */
    PANEL = PAGE * 128,           /* bytes of 64 rows of 64 columns */
    PANELS = CU_LATENT_KEYS / 64,
    TILE_BYTES = PANELS * PANEL,
    SCORES = PAGE / 2, /* of a thread */
    SUMS = CU_LATENT_VALUES / 4,
    SMEM = 3 * TILE_BYTES + 1024
};
static_assert((int)ROWS == (int)PAGE, "panels of queries and of keys are alike");

/* ---- sequences, and their slices ------------------------------------------------------------- */
/* Tiles of a sequence, and pages that the last of them sees. rows 0: none of the launch. */
struct latent_seq {
    int first, rows, slot;
    int tiles, pages;
};
__device__ __forceinline__ int pages_until(int pos) {
    return (pos + PAGE) / PAGE;
}
__device__ __forceinline__ latent_seq seq_at(const cu_latent &p, int s) {
    const cu_attend &a = p.a;
    latent_seq q = {0, 0, 0, 0, 0};
    if (s >= a.n_seqs)
        return q;
    const int4 seq = __ldcg((const int4 *)a.seqs + s);
    const int end = seq.x + seq.y;
    const bool in_step = seq.x >= 0 && seq.y > 0 && end <= a.c.T;
    const bool has_slot = seq.z >= 0 && seq.z < a.c.S;
    const bool meant = seq.y >= p.least && seq.y <= p.most;
    if (!in_step || !has_slot || !meant)
        return q;
    const int pairs = seq.y * a.H;
    const int last = position_of(a.c, end - 1);
    q.first = seq.x;
    q.rows = seq.y;
    q.slot = seq.z;
    q.tiles = (pairs + ROWS - 1) / ROWS;
    q.pages = pages_until(last);
    return q;
}
__device__ __forceinline__ latent_seq seq_of_lane(const latent_seq &q, int lane) {
    latent_seq r;
    r.first = __shfl_sync(~0u, q.first, lane);
    r.rows = __shfl_sync(~0u, q.rows, lane);
    r.slot = __shfl_sync(~0u, q.slot, lane);
    r.tiles = __shfl_sync(~0u, q.tiles, lane);
    r.pages = __shfl_sync(~0u, q.pages, lane);
    return r;
}
__device__ __forceinline__ int lowest_lane(unsigned lanes) {
    return __popc((lanes & (0u - lanes)) - 1);
}

/* Slices of `share` pages, and whether there are pages behind them. */
__device__ __forceinline__ int whole_slices(const latent_seq &q, int share) {
    return q.tiles * (q.pages / share);
}
__device__ __forceinline__ int rest_slices(const latent_seq &q, int share) {
    return q.pages % share ? q.tiles : 0;
}
/* Pages of a slice; all lanes of a warp. mine: sequence `lane`. */
__device__ __forceinline__ int share_of(const cu_latent &p, const latent_seq &mine) {
    if (!p.sharing)
        return INT_MAX;
    int own = 0;
    for (int s = 0; s < p.a.n_seqs; s += 32) {
        const latent_seq q = s ? seq_at(p, s + threadIdx.x % 32) : mine;
        own += q.tiles * q.pages;
    }
    const int total = warp_sum(own);
    int share = (total + p.sharing - 1) / p.sharing;
    if (share > LONG)
        share = (total + 2 * p.sharing - 1) / (2 * p.sharing);
    return max(share, (int)LEAST);
}

/* A slice of a tile: pairs [pair0, pairs) of the sequence, of which it has up to ROWS; positions of
 * its first and last pair; pages [from, to) of the `all` that it sees. */
struct latent_tile {
    int first, rows, slot;
    int pair0, pairs;
    int low, last;
    int from, to, all;
};
__device__ __forceinline__ int position_of_pair(const cu_attend &a, int first, int pair) {
    return position_of(a.c, first + pair / a.H);
}
__device__ __forceinline__ latent_tile tile_at(const cu_attend &a, const latent_seq &q, int tile,
                                               int slice, int share) {
    latent_tile t;
    t.first = q.first;
    t.rows = q.rows;
    t.slot = q.slot;
    t.pair0 = tile * ROWS;
    t.pairs = q.rows * a.H;
    const int end = min(t.pair0 + ROWS, t.pairs);
    t.low = position_of_pair(a, q.first, t.pair0);
    t.last = position_of_pair(a, q.first, end - 1);
    t.all = pages_until(t.last);
    t.from = slice * share;
    const int left = t.all - t.from; /* share may be INT_MAX */
    t.to = t.from + min(share, left);
    return t;
}
/* Slice `index` of the launch; false: there is none. All lanes of a warp. */
__device__ __forceinline__ bool find_slice(const cu_latent &p, int index, latent_tile *t) {
    const int lane = threadIdx.x % 32;
    const latent_seq mine = seq_at(p, lane);
    const int share = share_of(p, mine);
    for (int rest = 0; rest < 2; rest++) {
        for (int s = 0; s < p.a.n_seqs; s += 32) {
            const latent_seq q = s ? seq_at(p, s + lane) : mine;
            const int own = rest ? rest_slices(q, share) : whole_slices(q, share);
            const int until = warp_sum_until(own);
            const int left = index - (until - own);
            const unsigned found = __ballot_sync(~0u, left >= 0 && left < own);
            if (found) {
                const int who = lowest_lane(found);
                const latent_seq of = seq_of_lane(q, who);
                const int i = __shfl_sync(~0u, left, who);
                int tile = i % of.tiles;
                int slice = i / of.tiles;
                if (rest) {
                    tile = of.tiles - 1 - i; /* the last ones see most */
                    slice = of.pages / share;
                }
                *t = tile_at(p.a, of, tile, slice, share);
                return t->from < t->to;
            }
            index -= __shfl_sync(~0u, until, 31);
        }
    }
    return false;
}

#if defined(CU_SM90A) || defined(CU_EMULATED)
/* ---- into shared memory ---------------------------------------------------------------------- */
/* Where vector v of row r lies in a tile. */
__device__ __forceinline__ int vector_place(int r, int v) {
    return v / 8 * PANEL + r * 128 + (v % 8 ^ r % 8) * 16;
}
/* Page i of the sequence, which is `page`; zeros behind the last position, or where there is no
 * page: whether there is. */
__device__ __forceinline__ bool fetch_latents(const cu_cache &c, const latent_tile &t, int i,
                                              int page, uint32_t to) {
    const bool is = page >= 0 && page < c.n_pages;
    const int positions = is ? t.last + 1 - i * PAGE : 0;
    const __half *from = (const __half *)keys_at(c, is ? page : 0);
#pragma unroll 6
    for (int j = threadIdx.x; j < PAGE * VECTORS; j += THREADS) {
        const int r = j / VECTORS;
        const int v = j % VECTORS;
        const bool in = r < positions && 8 * v < c.pk;
        const uint32_t place = to + vector_place(r, v);
        copy16(place, from + r * c.pk + 8 * v, in);
    }
    copy_commit();
    return is;
}
__device__ __forceinline__ uint32_t rounded_pair(float low, float high) {
    const __half a = to_half(low);
    const __half b = to_half(high);
    const __half2 h = __halves2half2(a, b);
    return *(const uint32_t *)&h;
}
/* The queries of a tile; zeros where it has no pair. */
__device__ __forceinline__ void load_queries(const cu_attend &a, const latent_tile &t,
                                             uint32_t to) {
    const int64_t first = (int64_t)t.first * a.H + t.pair0;
    const float *q = a.q + first * a.c.dk;
#pragma unroll 6
    for (int j = threadIdx.x; j < ROWS * VECTORS; j += THREADS) {
        const int r = j / VECTORS;
        const int v = j % VECTORS;
        const uint32_t at = to + vector_place(r, v);
        const bool in = t.pair0 + r < t.pairs && 8 * v < a.c.dk;
        const float *from = q + r * a.c.dk + 8 * v;
        float4 low = make_float4(0, 0, 0, 0);
        float4 high = low;
        if (in) {
            low = __ldcg((const float4 *)from);
            high = __ldcg((const float4 *)from + 1);
        }
        const uint32_t x = rounded_pair(low.x, low.y);
        const uint32_t y = rounded_pair(low.z, low.w);
        const uint32_t z = rounded_pair(high.x, high.y);
        const uint32_t w = rounded_pair(high.z, high.w);
        shared_store(at, x, y);
        shared_store(at + 8, z, w);
    }
}

/* ---- products and softmax -------------------------------------------------------------------- */
/* What a thread has of two rows of a tile: `row`, and eight behind it. */
struct latent_rows {
    float o[SUMS];
    float m[2];
    float sum[2];
    int row;
    int pos[2];
};
/* Products that are over have written d. */
template <int N> __device__ __forceinline__ void settle(float *d) {
#ifndef CU_EMULATED
#pragma unroll
    for (int j = 0; j < N; j++)
        asm volatile("" : "+f"(d[j])::"memory");
#endif
}
__device__ __forceinline__ float exp2_of(float x) {
#ifdef CU_EMULATED
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}
/* s [64 pairs, 64 positions] = q k^T */
__device__ __forceinline__ void score_page(float *s, uint32_t q, uint32_t k) {
    uint64_t q_at = wgmma_operand(q);
    uint64_t k_at = wgmma_operand(k);
    wgmma_fence();
#pragma unroll
    for (int x = 0; x < PANELS; x++) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            wgmma<CU_HALF, PAGE>(s, q_at + 2 * j, k_at + 2 * j, x + j);
        q_at += PANEL / 16;
        k_at += PANEL / 16;
    }
    wgmma_commit();
    wgmma_wait<0>();
    settle<SCORES>(s);
}
/* o [64 pairs, 256 columns] += weights v; v: the first of the columns' panels */
__device__ __forceinline__ void add_values(float *o, const uint32_t *weights, uint32_t v) {
    uint64_t v_at = wgmma_rows(v, PANEL);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < SCORES / 2; j += 4) {
        wgmma_by_rows<256>(o, weights + j, v_at);
        v_at += 128; /* 16 positions */
    }
    wgmma_commit();
    wgmma_wait<0>();
    settle<SUMS>(o);
}
/* Minus infinity for what rows do not see of page i. */
__device__ __forceinline__ void mask_page(const latent_rows &r, int i, bool there, float *s) {
    const int from = i * PAGE + threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < SCORES; j++) {
        const int p = from + j / 4 * 8 + j % 2;
        if (!there || p > r.pos[j / 2 % 2])
            s[j] = -INFINITY;
    }
}
/* Scores become weights, and sums are lowered to the new maximum. */
__device__ __forceinline__ void weigh_page(latent_rows *r, float *s, float to_log2) {
    float old[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = r->m[h];
#pragma unroll
        for (int j = 2 * h; j < SCORES; j += 4)
            top = fmaxf(top, fmaxf(s[j], s[j + 1]));
        top = max_of_four(top);
        const float base = top == -INFINITY ? 0 : top * to_log2;
        const float down = fmaf(r->m[h], to_log2, -base);
        old[h] = exp2_of(down);
        r->m[h] = top;
        float sum = r->sum[h] * old[h];
#pragma unroll
        for (int j = 2 * h; j < SCORES; j += 4) {
            const float low = fmaf(s[j], to_log2, -base);
            const float high = fmaf(s[j + 1], to_log2, -base);
            s[j] = exp2_of(low);
            s[j + 1] = exp2_of(high);
            sum += s[j] + s[j + 1];
        }
        r->sum[h] = sum;
    }
    if (__all_sync(~0u, old[0] == 1 && old[1] == 1))
        return;
#pragma unroll
    for (int j = 0; j < SUMS; j++)
        r->o[j] *= old[j / 2 % 2];
}

/* ---- results --------------------------------------------------------------------------------- */
__device__ __forceinline__ int first_column() {
    return threadIdx.x / 128 * 256 + threadIdx.x % 4 * 2;
}
/* Two neighbours, the first at an even place. */
__device__ __forceinline__ void put_pair(void *y, int64_t i, float low, float high, int kind) {
    if (kind == CU_F32) {
        *(float2 *)((float *)y + i) = make_float2(low, high);
        return;
    }
    put(y, i, low, kind);
    put(y, i + 1, high, kind);
}
/* Row h of a thread's to y; whether any is no number. */
__device__ __forceinline__ bool write_row(const cu_attend &a, const latent_tile &t,
                                          const latent_rows &r, int h) {
    const int pair = t.pair0 + r.row + 8 * h;
    const float sum = sum_of_four(r.sum[h]);
    if (pair >= t.pairs || r.pos[h] < 0)
        return false;
    const int64_t row = (int64_t)t.first * a.H + pair;
    const int64_t at = row * a.c.dv;
    const float factor = 1 / sum;
    bool bad = false;
#pragma unroll
    for (int j = 0; j < SUMS / 4; j++) {
        const int column = first_column() + 8 * j;
        const float low = r.o[4 * j + 2 * h] * factor;
        const float high = r.o[4 * j + 2 * h + 1] * factor;
        if (column >= a.c.dv)
            break;
        bad |= !isfinite(low) || !isfinite(high);
        put_pair(a.y, at + column, low, high, a.y_kind);
    }
    return bad;
}
/* The same to the block's part: sums [ROWS, values], maxima in powers of two, sums of weights. */
__device__ __forceinline__ void leave_row(float *part, const latent_tile &t, const latent_rows &r,
                                          int h, float to_log2) {
    const int row = r.row + 8 * h;
    const float sum = sum_of_four(r.sum[h]);
    float *o = part + row * CU_LATENT_VALUES + first_column();
    if (t.pair0 + row >= t.pairs)
        return;
#pragma unroll
    for (int j = 0; j < SUMS / 4; j++) {
        const float *own = &r.o[4 * j + 2 * h];
        const float2 two = make_float2(own[0], own[1]);
        __stcg((float2 *)(o + 8 * j), two);
    }
    if (threadIdx.x / 128 || threadIdx.x % 4)
        return;
    float *of_row = part + ROWS * CU_LATENT_VALUES + row;
    __stcg(&of_row[0], r.m[h] * to_log2);
    __stcg(&of_row[ROWS], sum);
}
/* A tile of one block to y; rows that met what is no number by themselves. */
__device__ __forceinline__ void write_tile(const cu_attend &a, const latent_tile &t,
                                           const latent_rows &r, float *score) {
    __shared__ int bad[ROWS];
    for (int i = threadIdx.x; i < ROWS; i += THREADS)
        bad[i] = 0;
    __syncthreads();
    bool any = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const bool own = write_row(a, t, r, h);
        if (own)
            bad[r.row + 8 * h] = 1;
        any |= own;
    }
    if (!__syncthreads_or(any) || t.rows == 1)
        return;
    for (int i = 0; i < ROWS; i++) {
        const int pair = t.pair0 + i;
        const int row = t.first + pair / a.H;
        const int head = pair % a.H;
        const int pos = position_of(a.c, row);
        if (bad[i])
            attend_alone<CU_LATENT_KEYS, false, THREADS>(a, score, t.slot, 0, row, head, pos);
    }
}
#endif

/* Grid: slices. */
__global__ void __launch_bounds__(THREADS, 1) attend_latent(cu_latent p) {
#if defined(CU_SM90A) || defined(CU_EMULATED)
#ifdef CU_EMULATED
    static char raw[SMEM + 1024];
#else
    extern __shared__ char raw[];
#endif
    const cu_attend &a = p.a;
    const uint32_t base = shared_at(raw);
    const uint32_t q = base + (0u - base) % 1024; /* the swizzle counts from 1024 */
    const uint32_t stage[2] = {q + TILE_BYTES, q + 2 * TILE_BYTES};
    const int group = __shfl_sync(~0u, (int)threadIdx.x / 128, 0); /* known to be one a warp */
    const float to_log2 = a.scale * 1.44269504f;
    latent_tile t;
    cu_next();
    cu_wait();
    if (!find_slice(p, blockIdx.x, &t))
        return;
    int page = page_of(a.c, t.slot, t.from);
    bool there = fetch_latents(a.c, t, t.from, page, stage[0]);
    page = page_of(a.c, t.slot, t.from + 1);
    load_queries(a, t, q);
    latent_rows r = {};
    r.row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int pair = t.pair0 + r.row + 8 * h;
        r.m[h] = -INFINITY;
        r.pos[h] = pair < t.pairs ? position_of_pair(a, t.first, pair) : -1;
    }
#pragma unroll 1
    for (int i = t.from; i < t.to; i++) {
        const bool odd = (i - t.from) % 2;
        const uint32_t k = odd ? stage[1] : stage[0];
        const uint32_t other = odd ? stage[0] : stage[1];
        const int end = (i + 1) * PAGE;
        const bool here = there;
        float s[SCORES];
        uint32_t weights[SCORES / 2];
        copy_wait<0>();
        fence_products();
        __syncthreads();
        if (i + 1 < t.to) {
            there = fetch_latents(a.c, t, i + 1, page, other);
            page = page_of(a.c, t.slot, i + 2);
        }
        score_page(s, q, k);
        if (!here || end - 1 > t.low)
            mask_page(r, i, here, s);
        weigh_page(&r, s, to_log2);
#pragma unroll
        for (int j = 0; j < SCORES / 2; j++)
            weights[j] = pack2(s[2 * j], s[2 * j + 1]);
        add_values(r.o, weights, k + group * 4 * PANEL);
    }
    if (t.to - t.from == t.all) {
        write_tile(a, t, r, (float *)raw);
        return;
    }
    float *part = p.parts + (int64_t)blockIdx.x * CU_LATENT_PART;
#pragma unroll
    for (int h = 0; h < 2; h++)
        leave_row(part, t, r, h, to_log2);
#endif
}

/* ---- slices of a row ------------------------------------------------------------------------- */
/* Where the parts of a pair's tile are: the first `whole` lie `step` blocks apart. */
struct latent_parts {
    latent_seq seq;
    int tile, slices;
    int whole, first, step, rest;
};
/* Of the sequence that has row t, of which head `head` is meant; all lanes of a warp. slices 0:
 * none of the launch has it. */
__device__ __forceinline__ latent_parts parts_of(const cu_latent &p, int t, int head) {
    const int lane = threadIdx.x % 32;
    const latent_seq mine = seq_at(p, lane);
    const int share = share_of(p, mine);
    latent_parts r = {};
    int whole = 0;
    int rest = 0;
    for (int s = 0; s < p.a.n_seqs; s += 32) {
        const latent_seq q = s ? seq_at(p, s + lane) : mine;
        const int whole_until = warp_sum_until(whole_slices(q, share));
        const int rest_until = warp_sum_until(rest_slices(q, share));
        const unsigned found = __ballot_sync(~0u, t >= q.first && t < q.first + q.rows);
        if (found) {
            const int who = lowest_lane(found);
            const int own_whole = whole_until - whole_slices(q, share);
            const int own_rest = rest_until - rest_slices(q, share);
            r.seq = seq_of_lane(q, who);
            r.first = whole + __shfl_sync(~0u, own_whole, who);
            r.rest = rest + __shfl_sync(~0u, own_rest, who);
        }
        whole += __shfl_sync(~0u, whole_until, 31);
        rest += __shfl_sync(~0u, rest_until, 31);
    }
    if (!r.seq.rows)
        return r;
    r.tile = ((t - r.seq.first) * p.a.H + head) / ROWS;
    const latent_tile of = tile_at(p.a, r.seq, r.tile, 0, share);
    r.slices = of.all / share + (of.all % share != 0);
    r.whole = r.seq.pages / share;
    r.first += r.tile;
    r.step = r.seq.tiles;
    r.rest += whole + r.seq.tiles - 1 - r.tile;
    return r;
}
__device__ __forceinline__ const float *part_at(const cu_latent &p, const latent_parts &of, int i) {
    const int block = i < of.whole ? of.first + i * of.step : of.rest;
    return p.parts + (int64_t)block * CU_LATENT_PART;
}

__device__ __forceinline__ float merge_max(float v, float *red) {
    v = warp_max(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        red[threadIdx.x / 32] = v;
    __syncthreads();
    return fmaxf(fmaxf(red[0], red[1]), fmaxf(red[2], red[3]));
}
__device__ __forceinline__ float merge_sum(float v, float *red) {
    v = warp_sum(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        red[threadIdx.x / 32] = v;
    __syncthreads();
    return red[0] + red[1] + red[2] + red[3];
}

/* Four columns of a row of the tile, over its slices. */
struct merged_row {
    float4 o;
    float top; /* in powers of two */
    float sum;
};
struct merge_room {
    float weight[MERGE_THREADS];
    float red[4];
};
__device__ __forceinline__ float4 scaled(float4 v, float f) {
    return make_float4(v.x * f, v.y * f, v.z * f, v.w * f);
}
__device__ __forceinline__ float4 multiply_add(float4 v, float f, float4 sum) {
    sum.x = fmaf(v.x, f, sum.x);
    sum.y = fmaf(v.y, f, sum.y);
    sum.z = fmaf(v.z, f, sum.z);
    sum.w = fmaf(v.w, f, sum.w);
    return sum;
}
/* The n slices from `from` on, at most MERGE_THREADS; all threads. */
__device__ __forceinline__ void merge_slices(const cu_latent &p, const latent_parts &of, int row,
                                             int from, int n, merge_room *room, merged_row *r) {
    const int i = threadIdx.x;
    const int column = 4 * threadIdx.x;
    float m = -INFINITY;
    float own = 0;
    if (i < n) {
        const float *part = part_at(p, of, from + i);
        const float *of_row = part + ROWS * CU_LATENT_VALUES + row;
        m = __ldcg(&of_row[0]);
        own = __ldcg(&of_row[ROWS]);
    }
    const float top = fmaxf(r->top, merge_max(m, room->red));
    const float base = top == -INFINITY ? 0 : top;
    const float old = exp2f(r->top - base);
    const float now = exp2f(m - base);
    room->weight[i] = now;
    r->sum = r->sum * old + merge_sum(own * now, room->red);
    r->top = top;
    r->o = scaled(r->o, old);
#pragma unroll 8
    for (int j = 0; j < n; j++) {
        const float *part = part_at(p, of, from + j);
        const float *at = part + row * CU_LATENT_VALUES + column;
        const float4 v = __ldcg((const float4 *)at);
        r->o = multiply_add(v, room->weight[j], r->o);
    }
    __syncthreads();
}
/* To y; whether any is no number. */
__device__ __forceinline__ bool write_merged(const cu_attend &a, int64_t row, const merged_row &r) {
    const int column = 4 * threadIdx.x;
    const int64_t at = row * a.c.dv + column;
    const float y[4] = {r.o.x / r.sum, r.o.y / r.sum, r.o.z / r.sum, r.o.w / r.sum};
    bool bad = false;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (column + i >= a.c.dv)
            break;
        bad |= !isfinite(y[i]);
        put(a.y, at + i, y[i], a.y_kind);
    }
    return bad;
}

/* Grid: rows of the step, or sequences of one row; heads. A thread has four columns. */
__global__ void __launch_bounds__(MERGE_THREADS) merge_latent(cu_latent p, bool many) {
    __shared__ merge_room room;
    __shared__ float score[PAGE];
    const cu_attend &a = p.a;
    const int head = blockIdx.y;
    int t = blockIdx.x;
    cu_next();
    cu_wait();
    if (!many) {
        const latent_seq own = seq_at(p, blockIdx.x);
        if (!own.rows)
            return;
        t = own.first;
    }
    const latent_parts of = parts_of(p, t, head);
    if (of.slices < 2)
        return;
    const int pos = position_of(a.c, t);
    if (pos < 0)
        return;
    const int pair = (t - of.seq.first) * a.H + head;
    const int row = pair % ROWS;
    merged_row r = {make_float4(0, 0, 0, 0), -INFINITY, 0};
    for (int from = 0; from < of.slices; from += MERGE_THREADS) {
        const int n = min(of.slices - from, (int)MERGE_THREADS);
        merge_slices(p, of, row, from, n, &room, &r);
    }
    const bool bad = write_merged(a, (int64_t)t * a.H + head, r);
    if (__syncthreads_or(bad) && of.seq.rows > 1)
        attend_alone<CU_LATENT_KEYS, false, MERGE_THREADS>(a, score, of.seq.slot, 0, t, head, pos);
}

/* ---- launches -------------------------------------------------------------------------------- */
bool cu_latent_kernel_init(void) {
    const void *k = (const void *)attend_latent;
    if (!cu_has_sm90(k))
        return false;
    cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM);
    return true;
}
void cu_attend_latent(cudaStream_t s, const cu_latent *p, int blocks) {
    launch(s, attend_latent, dim3((unsigned)blocks), THREADS, SMEM, *p);
}
void cu_merge_latent(cudaStream_t s, const cu_latent *p, bool many) {
    const int rows = many ? p->a.c.T : p->a.n_seqs;
    launch(s, merge_latent, dim3((unsigned)rows, (unsigned)p->a.H), MERGE_THREADS, 0, *p, many);
}
