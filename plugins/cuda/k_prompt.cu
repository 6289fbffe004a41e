/* k_prompt.cu -- attention of many rows of a sequence over a cache in f16 or q8_0, on matrix units
 * (Dao 2023): a block has 64 pairs of query row and head, all of one group of heads that share keys
 * and values, and walks the pages that any of its rows sees, with a running maximum and sum per
 * row. Scores and sums are f32; q, keys, values and weights of the softmax are f16. Pages come
 * through shared memory, one ahead.
 *
 * A position that a row must not see has weight 0; 0 times a NaN that lies there would still be
 * NaN. Positions behind the block's last row are not read. If a row ends as NaN or infinite it is
 * computed once more, by itself, over exactly what it sees. */
#include "cached.cuh"
#include <limits.h>
#include <stddef.h>

enum { ROWS = 64, WARPS = 4, THREADS = 128, PAGE = CU_PAGE_TOKENS };

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
__device__ __forceinline__ uint32_t pack2(float a, float b) {
    const __half2 h = __floats2half2_rn(a, b);
    return *(const uint32_t *)&h;
}

/* Over the four lanes that share a row of sums. */
__device__ __forceinline__ float max_of_four(float v) {
    v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
    return fmaxf(v, __shfl_xor_sync(~0u, v, 2));
}
__device__ __forceinline__ float sum_of_four(float v) {
    v += __shfl_xor_sync(~0u, v, 1);
    v += __shfl_xor_sync(~0u, v, 2);
    return v;
}

/* Which rows a block has. */
struct tile_of {
    int first, rows, slot; /* rows of the step; none: rows is 0 */
};
/* Tile i of all sequences, `each` rows long. */
__device__ tile_of find_tile(const cu_attend &a, int i, int each) {
    tile_of t = {0, 0, 0};
    for (int s = 0; s < a.n_seqs; s++) {
        const int4 q = __ldcg((const int4 *)a.seqs + s);
        const int tiles = q.y > 0 ? (q.y + each - 1) / each : 0;
        if (i < tiles) {
            t.first = q.x + i * each;
            t.rows = min(each, q.y - i * each);
            t.slot = q.z;
            const bool rows_there = t.first >= 0 && t.first + t.rows <= a.c.T;
            const bool slot_there = t.slot >= 0 && t.slot < a.c.S;
            if (!rows_there || !slot_there)
                t.rows = 0;
            return t;
        }
        i -= tiles;
    }
    return t;
}

template <int D> struct prompt_shared {
    enum { PITCH = D + 8 }; /* rows of 16 bytes more: matrices load without bank conflicts */
    __half q[ROWS][PITCH], k[2][PAGE][PITCH], v[2][PAGE][PITCH];
    int pos[ROWS];
    int page[2];
    int bad[ROWS];
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

/* Page i of the slot to buffer b; positions beyond `last` become zeros. */
template <int D, bool Q8>
__device__ __forceinline__ void fetch_page(const cu_attend &a, prompt_shared<D> &sh, int slot,
                                           int kvh, int i, int last, int b) {
    const cu_cache &c = a.c;
    int page = __ldcg(&c.pages[(int64_t)slot * c.P + i]);
    const bool there = page >= 0 && page < c.n_pages;
    if (!there)
        page = 0;
    if (!threadIdx.x)
        sh.page[b] = there;
    if (Q8) {
        const int positions = there ? last + 1 - i * PAGE : 0;
        unpack_page(sh.k[b], keys_at(c, page), kvh, c.pk, positions);
        unpack_page(sh.v[b], values_at(c, page), kvh, c.pv, positions);
        return;
    }
    const char *base = c.kv + (int64_t)page * c.page_bytes + c.layer_at;
    const int64_t rows_before = (int64_t)kvh * PAGE;
    const __half *k = (const __half *)base + rows_before * c.pk;
    const __half *v = (const __half *)(base + c.v_offset) + rows_before * c.pv;
    auto copy = [&](__half *to, const __half *from, bool in) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_addr(to)),
                     "l"(from), "r"(in ? 16 : 0)
                     : "memory");
    };
    for (int j = threadIdx.x; j < PAGE * (c.pk / 8); j += THREADS) {
        const int p = j / (c.pk / 8);
        const int x = j % (c.pk / 8) * 8;
        const bool in = there && i * PAGE + p <= last;
        copy(&sh.k[b][p][x], k + p * c.pk + x, in);
    }
    for (int j = threadIdx.x; j < PAGE * (c.pv / 8); j += THREADS) {
        const int p = j / (c.pv / 8);
        const int x = j % (c.pv / 8) * 8;
        const bool in = there && i * PAGE + p <= last;
        copy(&sh.v[b][p][x], v + p * c.pv + x, in);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Whether a row at pos sees position p. */
__device__ __forceinline__ bool sees(const cu_attend &a, int pos, int p) {
    return p <= pos && (a.window <= 0 || p > pos - a.window);
}

/* The first position that a row at pos sees. */
__device__ __forceinline__ int first_seen(const cu_attend &a, int pos) {
    if (a.window > 0 && pos >= a.window)
        return pos - a.window + 1;
    return 0;
}

/* Element x of the row at position p of a page. */
template <bool Q8>
__device__ __forceinline__ float element_at(char *plane, int kvh, int p, int pad, int x) {
    if (!Q8)
        return __half2float(((const __half *)plane)[float_row(kvh, p, pad) + x]);
    float f[8];
    widen(read_q8(plane, kvh, p, pad, x / 8), f);
    float v = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        v = x % 8 == i ? f[i] : v;
    return v;
}

/* One row by itself, f32, over what it sees: for rows that met NaN or infinity. All threads. */
template <int D, bool Q8>
__device__ void attend_alone(const cu_attend &a, prompt_shared<D> &sh, int slot, int kvh, int row,
                             int head, int pos) {
    const cu_cache &c = a.c;
    float *score = (float *)sh.k;
    const int64_t of_head = (int64_t)row * a.H + head;
    const int64_t to = of_head * c.dv;
    const float *q = a.q + of_head * c.dk;
    const int from = first_seen(a, pos);
    float m = -INFINITY;
    float sum = 0;
    constexpr int OWN = (D + THREADS - 1) / THREADS; /* columns of a thread */
    float y[OWN] = {};
    for (int i = from / PAGE; i <= pos / PAGE; i++) {
        const int page = __ldcg(&c.pages[(int64_t)slot * c.P + i]);
        if (page < 0 || page >= c.n_pages)
            continue;
        char *keys = keys_at(c, page);
        char *values = values_at(c, page);
        __syncthreads();
        if (threadIdx.x < PAGE) {
            float s = 0;
            for (int x = 0; x < c.dk; x++) {
                const float key = element_at<Q8>(keys, kvh, threadIdx.x, c.pk, x);
                s = fmaf(key, __ldcg(&q[x]), s);
            }
            s *= a.scale;
            if (a.softcap != 0)
                s = a.softcap * tanhf(s / a.softcap);
            const bool seen = sees(a, pos, i * PAGE + threadIdx.x);
            score[threadIdx.x] = seen ? s : -INFINITY;
        }
        __syncthreads();
        float top = m;
        for (int p = 0; p < PAGE; p++)
            top = fmaxf(top, score[p]);
        const float base_m = top == -INFINITY ? 0 : top;
        const float old = m == -INFINITY ? 0 : expf(m - base_m);
        m = top;
        sum *= old;
        for (int j = 0; j < OWN; j++)
            y[j] *= old;
        for (int p = 0; p < PAGE; p++) {
            if (!sees(a, pos, i * PAGE + p))
                continue;
            const float w = expf(score[p] - base_m);
            sum += w;
            for (int j = 0; j < OWN; j++) {
                const int x = threadIdx.x + j * THREADS;
                if (x >= c.dv)
                    continue;
                const float value = element_at<Q8>(values, kvh, p, c.pv, x);
                y[j] = fmaf(w, value, y[j]);
            }
        }
    }
    if (a.sinks) {
        const float sink = a.sinks[head];
        const float top = fmaxf(m, sink);
        const float old = m == -INFINITY ? 0 : expf(m - top);
        sum = sum * old + expf(sink - top);
        for (int j = 0; j < OWN; j++)
            y[j] *= old;
    }
    for (int j = 0; j < OWN; j++) {
        const int x = threadIdx.x + j * THREADS;
        if (x < c.dv)
            put(a.y, to + x, y[j] / sum, a.y_kind);
    }
    __syncthreads();
}

/* Grid: x = tiles of all sequences, the last ones first, since they see most; y = heads of keys. */
template <int D, bool Q8>
__global__ void __launch_bounds__(THREADS, D > 128 ? 1 : 2) attend_prompt(cu_attend a) {
    constexpr int KS = D / 16;
    constexpr int NO = D / 8;
    extern __shared__ __align__(16) float shared_x[];
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
    const tile_of tile = find_tile(a, gridDim.x - 1 - blockIdx.x, each);
    if (!tile.rows)
        return;
    /* zeros where heads are shorter than D */
    constexpr int VECTORS = offsetof(prompt_shared<D>, pos) / 16;
    for (int i = threadIdx.x; i < VECTORS; i += THREADS)
        ((uint4 *)shared_x)[i] = make_uint4(0, 0, 0, 0);
    for (int r = threadIdx.x; r < ROWS; r += THREADS) {
        const int row = r / group;
        const bool in = row < tile.rows && row < each;
        const int pos = in ? __ldcg(&c.row_pos[tile.first + row]) : -1;
        sh.pos[r] = pos < c.P * PAGE ? pos : -1;
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
    const int page0 = begin / PAGE;
    const int pages = last / PAGE - page0 + 1;
    fetch_page<D, Q8>(a, sh, tile.slot, kvh, page0, last, 0);
    for (int j = threadIdx.x; j < ROWS * c.dk; j += THREADS) {
        const int r = j / c.dk;
        const int x = j % c.dk;
        const int64_t row = tile.first + r / group;
        const int64_t head = kvh * group + r % group;
        const float *q = a.q + (row * a.H + head) * c.dk;
        if (sh.pos[r] >= 0)
            sh.q[r][x] = to_half(__ldcg(&q[x]));
    }
    const int pos0 = sh.pos[warp * 16 + g];
    const int pos1 = sh.pos[warp * 16 + g + 8];
    float o[NO][4] = {};
    float m[2] = {-INFINITY, -INFINITY};
    float sum[2] = {0, 0};
    for (int i = 0; i < pages; i++) {
        const int b = i % 2;
        const int p0 = (page0 + i) * PAGE;
        if (i + 1 < pages) {
            fetch_page<D, Q8>(a, sh, tile.slot, kvh, page0 + i + 1, last, b ^ 1);
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        } else {
            asm volatile("cp.async.wait_group 0;" ::: "memory");
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
            const float old = m[h] == -INFINITY ? 0 : expf(m[h] - base);
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
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = warp * 16 + g + 8 * h;
        sum[h] = sum_of_four(sum[h]);
        if (sh.pos[r] < 0)
            continue;
        const int head = kvh * group + r % group;
        float factor = 1;
        if (a.sinks) {
            const float sink = a.sinks[head];
            const float top = fmaxf(m[h], sink);
            factor = m[h] == -INFINITY ? 0 : expf(m[h] - top);
            sum[h] = sum[h] * factor + expf(sink - top);
        }
        factor /= sum[h];
        const int64_t row = tile.first + r / group;
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
            sh.bad[r] = 1;
    }
    __syncthreads();
    for (int r = 0; r < ROWS; r++) {
        if (sh.bad[r]) {
            attend_alone<D, Q8>(a, sh, tile.slot, kvh, tile.first + r / group,
                                kvh * group + r % group, sh.pos[r]);
        }
    }
}

template <int D, bool Q8> static void prompt_launch(cudaStream_t s, const cu_attend *a) {
    const int group = a->H / a->c.Hkv;
    const int each = ROWS / group;
    const size_t smem = sizeof(prompt_shared<D>);
    cudaFuncSetAttribute((const void *)attend_prompt<D, Q8>,
                         cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
    const int tiles = (a->c.T + each - 1) / each + a->n_seqs; /* each sequence may end in one */
    const dim3 grid(tiles, a->c.Hkv);
    launch(s, attend_prompt<D, Q8>, grid, THREADS, smem, *a);
}

/* Whether these kernels can do it, and whether there are rows enough for tiles to pay. */
bool cu_prompt_fits(const mn_device *d, const cu_attend *a) {
    const cu_cache &c = a->c;
    const int longest = c.pk > c.pv ? c.pk : c.pv;
    if (c.dtype != MN_F16 && c.dtype != MN_Q8_0)
        return false;
    if (!a->seqs || a->bidirectional)
        return false;
    if (a->H / c.Hkv > ROWS)
        return false;
    if (c.T < 2 * a->n_seqs) /* mostly one row of each sequence */
        return false;
    return longest <= 256 && sizeof(prompt_shared<256>) <= (size_t)d->smem_max;
}

template <bool Q8> static void by_dim(cudaStream_t s, const cu_attend *a) {
    const cu_cache &c = a->c;
    const int longest = c.pk > c.pv ? c.pk : c.pv;
    if (longest <= 64)
        prompt_launch<64, Q8>(s, a);
    else if (longest <= 96)
        prompt_launch<96, Q8>(s, a);
    else if (longest <= 128)
        prompt_launch<128, Q8>(s, a);
    else
        prompt_launch<256, Q8>(s, a);
}

void cu_prompt_run(cudaStream_t s, const cu_attend *a) {
    if (a->c.dtype == MN_Q8_0)
        by_dim<true>(s, a);
    else
        by_dim<false>(s, a);
}
