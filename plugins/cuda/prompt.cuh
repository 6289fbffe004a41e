/* prompt.cuh -- attention of many rows of a sequence over a cache in f16 or q8_0, on matrix units
 * (Dao 2023): a block has 64 pairs of query row and head, all of one group of heads that share keys
 * and values, and walks the pages that any of its rows sees, with a running maximum and sum per
 * row. Scores and sums are f32; q, keys, values and weights of the softmax are f16. Pages come
 * through shared memory, one ahead. Where tiles are fewer than blocks that fit on the card, several
 * blocks share the pages of a tile, and the last of them adds up what all have.
 *
 * A position that a row must not see has weight 0; 0 times a NaN that lies there would still be
 * NaN. Positions behind the block's last row are not read. If a row ends as NaN or infinite it is
 * computed once more, by itself, over exactly what it sees. */
#ifndef CU_PROMPT_CUH
#define CU_PROMPT_CUH
#include "prompt_tiles.cuh"
#include <limits.h>
#include <stddef.h>

/* SLICE_PAGES: that a block walks at least, where several share a tile */
enum { ROWS = CU_PROMPT_ROWS, WARPS = 4, THREADS = CU_PROMPT_THREADS, SLICE_PAGES = 2 };

#ifdef CU_EMULATED /* tests run this on a CPU: the functions between are those of emulated.h */
static float shared_x[1 << 16];
#else
extern __shared__ __align__(16) float shared_x[];
__device__ __forceinline__ uint32_t shared_addr(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}
/* Four matrices of 8 x 8 f16, p: this lane's row of one of them. */
__device__ __forceinline__ void load_matrices(uint32_t *r, const __half *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_addr(p)));
}
__device__ __forceinline__ void load_transposed(uint32_t *r, const __half *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_addr(p)));
}
/* c [16, 8] += a [16, 16] b [16, 8] */
__device__ __forceinline__ void product(float c[4], const uint32_t *a, uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* 16 bytes to shared memory; not `in`: zeros */
__device__ __forceinline__ void copy16(__half *to, const __half *from, bool in) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_addr(to)), "l"(from),
                 "r"(in ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LEFT> __device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
#endif
/* The tiles in turn from the last one on, since it sees most. Where there are few, several blocks
 * share the pages of each. */
__device__ __forceinline__ tile_of find_tile(const cu_attend &a, int each) {
    const int tiles = count_tiles(a, each);
    tile_of t = {0, 0, 0, 0, 0, 1, tiles};
    if (!tiles)
        return t;
    t.column = blockIdx.x % tiles;
    t.slice = blockIdx.x / tiles;
    t.slices = max(a.tile_slots / tiles, 1);
    if (t.slice < t.slices)
        find_rows(a, tiles - 1 - t.column, each, &t);
    return t;
}

template <int D> struct prompt_shared {
    enum { PITCH = D + 8 }; /* rows of 16 bytes more: matrices load without bank conflicts */
    __half q[ROWS][PITCH], k[2][PAGE][PITCH], v[2][PAGE][PITCH];
    int pos[ROWS];
    int page[2];
    int bad[ROWS];
    int last;
};

/* Eight elements of q8_0 as f16. */
__device__ __forceinline__ uint4 halves_of(const q8_codes &v) {
    float f[8];
    uint4 h;
    widen(v, f);
    h.x = pack2(f[0], f[1]);
    h.y = pack2(f[2], f[3]);
    h.z = pack2(f[4], f[5]);
    h.w = pack2(f[6], f[7]);
    return h;
}
/* The keys or values of a head in a page of q8_0 to shared memory, as f16; positions that are not
 * `in` become zeros. */
template <int PITCH>
__device__ __forceinline__ void unpack_page(__half (*to)[PITCH], char *plane, int kvh, int pad,
                                            int positions) {
    const int chunks = pad / 8;
#pragma unroll 4
    for (int j = threadIdx.x; j < PAGE * chunks; j += THREADS) {
        const int p = j / chunks;
        const int i = j % chunks;
        uint4 h = make_uint4(0, 0, 0, 0);
        if (p < positions)
            h = halves_of(read_q8(plane, kvh, p, pad, i));
        *(uint4 *)&to[p][8 * i] = h;
    }
}

/* The same of f16. */
template <int PITCH>
__device__ __forceinline__ void copy_rows(__half (*to)[PITCH], const __half *from, int pad,
                                          int positions) {
    const int chunks = pad / 8;
    for (int j = threadIdx.x; j < PAGE * chunks; j += THREADS) {
        const int p = j / chunks;
        const int x = j % chunks * 8;
        copy16(&to[p][x], from + p * pad + x, p < positions);
    }
}

/* Page i of a sequence, which is `page`, to buffer b; positions beyond `last` become zeros. */
template <int D, bool Q8>
__device__ __forceinline__ void fetch_page(const cu_attend &a, prompt_shared<D> &sh, int page,
                                           int kvh, int i, int last, int b) {
    const cu_cache &c = a.c;
    const bool there = page >= 0 && page < c.n_pages;
    if (!there)
        page = 0;
    if (!threadIdx.x)
        sh.page[b] = there;
    const int positions = there ? last + 1 - i * PAGE : 0;
    if (Q8) {
        unpack_page(sh.k[b], keys_at(c, page), kvh, c.pk, positions);
        unpack_page(sh.v[b], values_at(c, page), kvh, c.pv, positions);
        return;
    }
    const __half *k = (const __half *)keys_at(c, page);
    const __half *v = (const __half *)values_at(c, page);
    k += float_row(kvh, 0, c.pk);
    v += float_row(kvh, 0, c.pv);
    copy_rows(sh.k[b], k, c.pk, positions);
    copy_rows(sh.v[b], v, c.pv, positions);
    copy_commit();
}

/* What a thread has of its two rows: weighted values, maximum, its own part of the sum. */
template <int NO> struct prompt_sums {
    float o[NO][4];
    float m[2];
    float sum[2];
};
/* Sums of a block to the scratch, as its threads have them; those of the blocks that share a
 * tile are added up in the order of their slices by the one that comes last: whether it is this
 * one. All threads. */
template <int NO> __device__ __forceinline__ float4 *sums_at(const cu_attend &a, int column) {
    const int64_t block = (int64_t)blockIdx.y * a.tile_slots + column;
    return (float4 *)a.tile_sums + block * (NO + 1) * THREADS + threadIdx.x;
}
template <int NO>
__device__ __forceinline__ bool leave_sums(const cu_attend &a, const tile_of &tile, int slices,
                                           const prompt_sums<NO> &r, int *last) {
    float4 *to = sums_at<NO>(a, tile.column + tile.slice * tile.step);
#pragma unroll
    for (int n = 0; n < NO; n++) {
        const float *o = r.o[n];
        const float4 four = make_float4(o[0], o[1], o[2], o[3]);
        __stcg(&to[n * THREADS], four);
    }
    const float4 rest = make_float4(r.m[0], r.m[1], r.sum[0], r.sum[1]);
    __stcg(&to[NO * THREADS], rest);
    __threadfence();
    __syncthreads();
    if (!threadIdx.x) {
        const unsigned before = blockIdx.y * a.tile_slots;
        unsigned *arrived = &a.tiles_arrived[before + tile.column];
        *last = atomicAdd(arrived, 1u) + 1 == (unsigned)slices;
        if (*last)
            *arrived = 0;
    }
    __syncthreads();
    __threadfence();
    return *last;
}
template <int NO>
__device__ __forceinline__ void add_sums(const cu_attend &a, const tile_of &tile, int slices,
                                         prompt_sums<NO> &r) {
    float top[2] = {-INFINITY, -INFINITY};
#pragma unroll 4
    for (int i = 0; i < slices; i++) {
        const float4 *from = sums_at<NO>(a, tile.column + i * tile.step);
        const float4 x = __ldcg(&from[NO * THREADS]);
        top[0] = fmaxf(top[0], x.x);
        top[1] = fmaxf(top[1], x.y);
    }
    r = prompt_sums<NO>{};
    r.m[0] = top[0];
    r.m[1] = top[1];
#pragma unroll 2
    for (int i = 0; i < slices; i++) {
        const float4 *from = sums_at<NO>(a, tile.column + i * tile.step);
        const float4 x = __ldcg(&from[NO * THREADS]);
        const float f0 = lowered(x.x, top[0]);
        const float f1 = lowered(x.y, top[1]);
        r.sum[0] = fmaf(x.z, f0, r.sum[0]);
        r.sum[1] = fmaf(x.w, f1, r.sum[1]);
#pragma unroll
        for (int n = 0; n < NO; n++) {
            const float4 v = __ldcg(&from[n * THREADS]);
            float *o = r.o[n];
            o[0] = fmaf(v.x, f0, o[0]);
            o[1] = fmaf(v.y, f0, o[1]);
            o[2] = fmaf(v.z, f1, o[2]);
            o[3] = fmaf(v.w, f1, o[3]);
        }
    }
}

/* Grid: x = slices of the tiles of all sequences; y = heads of keys. */
template <int D, bool Q8>
__global__ void __launch_bounds__(THREADS, D > 128 ? 1 : 2) attend_prompt(cu_attend a) {
    constexpr int KS = D / 16;
    constexpr int NO = D / 8;
    prompt_shared<D> &sh = *(prompt_shared<D> *)shared_x;
    const cu_cache &c = a.c;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int g = lane / 4;
    const int t = lane % 4;
    const int group = a.H / c.Hkv;
    const int each = ROWS / group;
    const int kvh = blockIdx.y;
    cu_next();
    cu_wait();
    const tile_of tile = find_tile(a, each);
    if (!tile.rows)
        return;
    /* zeros where heads are shorter than D */
    constexpr int VECTORS = offsetof(prompt_shared<D>, pos) / 16;
    for (int i = threadIdx.x; i < VECTORS; i += THREADS)
        ((uint4 *)shared_x)[i] = make_uint4(0, 0, 0, 0);
    for (int r = threadIdx.x; r < ROWS; r += THREADS) {
        const int row = r / group;
        const bool in = row < tile.rows && row < each;
        int pos = -1;
        if (in)
            pos = position_of(c, tile.first + row);
        sh.pos[r] = pos;
        sh.bad[r] = 0;
    }
    __syncthreads();
    int last = -1;
    int begin = INT_MAX;
    for (int r = 0; r < ROWS; r += group) {
        const int pos = sh.pos[r];
        last = max(last, pos);
        if (pos >= 0)
            begin = min(begin, first_seen(a, pos));
    }
    if (last < 0)
        return;
    const int all = last / PAGE - begin / PAGE + 1;
    const int even = (all + tile.slices - 1) / tile.slices;
    const int share = max(even, SLICE_PAGES);
    int slices = 1;
    if (tile.slices > 1)
        slices = (all + share - 1) / share;
    if (tile.slice >= slices)
        return;
    const int page0 = begin / PAGE + tile.slice * share;
    int end = last / PAGE + 1;
    if (slices > 1)
        end = min(page0 + share, end);
    const int pages = end - page0;
    const int first_page = page_of(c, tile.slot, page0);
    fetch_page<D, Q8>(a, sh, first_page, kvh, page0, last, 0);
    int following = page_of(c, tile.slot, page0 + 1);
    for (int j = threadIdx.x; j < ROWS * c.dk; j += THREADS) {
        const int r = j / c.dk;
        const int x = j % c.dk;
        const int64_t row = tile.first + r / group;
        const int64_t head = kvh * group + r % group;
        const int64_t of_head = row * a.H + head;
        const float *q = a.q + of_head * c.dk;
        if (sh.pos[r] < 0)
            continue;
        const float v = __ldcg(&q[x]);
        sh.q[r][x] = to_half(v);
    }
    const int pos0 = sh.pos[warp * 16 + g];
    const int pos1 = sh.pos[warp * 16 + g + 8];
    prompt_sums<NO> r = {};
    float(&o)[NO][4] = r.o;
    float(&m)[2] = r.m;
    float(&sum)[2] = r.sum;
    m[0] = m[1] = -INFINITY;
    for (int i = 0; i < pages; i++) {
        const int b = i % 2;
        const int p0 = (page0 + i) * PAGE;
        if (i + 1 < pages) {
            fetch_page<D, Q8>(a, sh, following, kvh, page0 + i + 1, last, b ^ 1);
            following = page_of(c, tile.slot, page0 + i + 2);
            copy_wait<1>();
        } else {
            copy_wait<0>();
        }
        __syncthreads();
        float s[8][4] = {};
#pragma unroll
        for (int k = 0; k < KS; k++) {
            uint32_t q[4];
            const int q_at = k * 16 + lane / 16 * 8;
            const int k_at = k * 16 + lane / 8 % 2 * 8;
            load_matrices(q, &sh.q[warp * 16 + lane % 16][q_at]);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                uint32_t w[4];
                const int key = n * 16 + lane / 16 * 8 + lane % 8;
                load_matrices(w, &sh.k[b][key][k_at]);
                product(s[2 * n], q, w[0], w[1]);
                product(s[2 * n + 1], q, w[2], w[3]);
            }
        }
        const bool there = sh.page[b];
        float top[2] = {m[0], m[1]};
#pragma unroll
        for (int n = 0; n < 8; n++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int p = p0 + n * 8 + 2 * t + j % 2;
                const int pos = j < 2 ? pos0 : pos1;
                float v = s[n][j] * a.scale;
                if (a.softcap != 0)
                    v = a.softcap * tanhf(v / a.softcap);
                s[n][j] = there && sees(a, pos, p) ? v : -INFINITY;
                top[j / 2] = fmaxf(top[j / 2], s[n][j]);
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            top[h] = max_of_four(top[h]);
            const float base = top[h] == -INFINITY ? 0 : top[h];
            const float old = lowered(m[h], base);
            m[h] = top[h];
            sum[h] *= old;
#pragma unroll
            for (int n = 0; n < NO; n++) {
                o[n][2 * h] *= old;
                o[n][2 * h + 1] *= old;
            }
#pragma unroll
            for (int n = 0; n < 8; n++) {
#pragma unroll
                for (int j = 2 * h; j < 2 * h + 2; j++) {
                    s[n][j] = __expf(s[n][j] - base);
                    sum[h] += s[n][j];
                }
            }
        }
#pragma unroll
        for (int k = 0; k < 4; k++) { /* 16 positions */
            const float *low = s[2 * k];
            const float *high = s[2 * k + 1];
            uint32_t w[4];
            w[0] = pack2(low[0], low[1]);
            w[1] = pack2(low[2], low[3]);
            w[2] = pack2(high[0], high[1]);
            w[3] = pack2(high[2], high[3]);
#pragma unroll
            for (int n = 0; n < NO / 2; n++) {
                uint32_t v[4];
                const int v_at = n * 16 + lane / 16 * 8;
                load_transposed(v, &sh.v[b][k * 16 + lane % 16][v_at]);
                product(o[2 * n], w, v[0], v[1]);
                product(o[2 * n + 1], w, v[2], v[3]);
            }
        }
        __syncthreads();
    }
    if (slices > 1) {
        if (!leave_sums(a, tile, slices, r, &sh.last))
            return;
        add_sums(a, tile, slices, r);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = warp * 16 + g + 8 * h;
        sum[h] = sum_of_four(sum[h]);
        if (sh.pos[i] < 0)
            continue;
        const int head = kvh * group + i % group;
        float factor = 1;
        if (a.sinks) {
            const float sink = a.sinks[head];
            const float top = fmaxf(m[h], sink);
            factor = lowered(m[h], top);
            sum[h] = sum[h] * factor + expf(sink - top);
        }
        factor /= sum[h];
        const int64_t row = tile.first + i / group;
        const int64_t at = (row * a.H + head) * c.dv;
        bool bad = false;
#pragma unroll
        for (int n = 0; n < NO; n++) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int x = n * 8 + 2 * t + j;
                const float y = o[n][2 * h + j] * factor;
                if (x >= c.dv)
                    continue;
                bad |= !isfinite(y);
                put(a.y, at + x, y, a.y_kind);
            }
        }
        if (bad)
            sh.bad[i] = 1;
    }
    __syncthreads();
    for (int i = 0; i < ROWS; i++) {
        if (sh.bad[i]) {
            attend_alone<D, Q8, THREADS>(a, (float *)sh.k, tile.slot, kvh, tile.first + i / group,
                                         kvh * group + i % group, sh.pos[i]);
        }
    }
}

template <int D, bool Q8> static void prompt_launch(cudaStream_t s, const cu_attend *a, dim3 grid) {
    const size_t smem = sizeof(prompt_shared<D>);
    cudaFuncSetAttribute((const void *)attend_prompt<D, Q8>,
                         cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
    launch(s, attend_prompt<D, Q8>, grid, THREADS, smem, *a);
}
template <int D, bool Q8> static constexpr cu_prompt_kernel prompt_kernel() {
    return {D, (int)sizeof(prompt_shared<D>), prompt_launch<D, Q8>};
}
#endif
