/* prompt_tiles.cuh -- what the kernels of attention of many rows share (prompt.cuh, and
 * prompt_sm90.cuh on Hopper): which rows of which sequence a tile has, what a row sees, and one row
 * by itself. */
#ifndef CU_PROMPT_TILES_CUH
#define CU_PROMPT_TILES_CUH
#include "cached.cuh"

enum { PAGE = CU_PAGE_TOKENS };

__device__ __forceinline__ uint32_t pack2(float a, float b) {
    const __half2 h = __floats2half2_rn(a, b);
    return *(const uint32_t *)&h;
}
/* What sums with maximum m are multiplied by where the maximum is `top`. */
__device__ __forceinline__ float lowered(float m, float top) {
    if (m == -INFINITY)
        return 0;
    return expf(m - top);
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

/* Which rows of the step a block has (none: rows is 0), and which part of the pages that they
 * see. */
struct tile_of {
    int first, rows, slot;
    int column;              /* block of the tile's first slice */
    int slice, slices, step; /* step: blocks between slices */
};
/* Tiles of sequence s, `each` rows long, and of the sequences of lower lanes and this one. */
struct tiles_here {
    int4 seq;
    int own, until;
};
__device__ __forceinline__ tiles_here tiles_until(const cu_attend &a, int s, int each) {
    const int lane = threadIdx.x % 32;
    tiles_here t = {make_int4(0, 0, 0, 0), 0, 0};
    if (s < a.n_seqs)
        t.seq = __ldcg((const int4 *)a.seqs + s);
    if (t.seq.y > (a.apart ? 1 : 0))
        t.own = (t.seq.y + each - 1) / each;
    t.until = t.own;
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
        const int before = __shfl_sync(~0u, t.until, max(lane - o, 0));
        t.until += lane >= o ? before : 0;
    }
    return t;
}
/* Tile i of all sequences. */
__device__ __forceinline__ void find_rows(const cu_attend &a, int i, int each, tile_of *t) {
    const int lane = threadIdx.x % 32;
    for (int s = 0; s < a.n_seqs; s += 32) {
        const tiles_here here = tiles_until(a, s + lane, each);
        const int left = i - (here.until - here.own);
        const unsigned found = __ballot_sync(~0u, left >= 0 && i < here.until);
        if (found) {
            const int who = __popc((found & (0u - found)) - 1);
            const int from = __shfl_sync(~0u, left, who) * each;
            t->first = __shfl_sync(~0u, here.seq.x, who) + from;
            t->rows = min(each, __shfl_sync(~0u, here.seq.y, who) - from);
            t->slot = __shfl_sync(~0u, here.seq.z, who);
            break;
        }
        i -= __shfl_sync(~0u, here.until, 31);
    }
    const int end = t->first + t->rows;
    if (t->first < 0 || end > a.c.T)
        t->rows = 0;
    if (t->slot < 0 || t->slot >= a.c.S)
        t->rows = 0;
}

/* Tiles of all sequences. */
__device__ __forceinline__ int count_tiles(const cu_attend &a, int each) {
    int tiles = 0;
    for (int s = 0; s < a.n_seqs; s += 32) {
        const tiles_here here = tiles_until(a, s + threadIdx.x % 32, each);
        tiles += __shfl_sync(~0u, here.until, 31);
    }
    return tiles;
}

/* The position of a row of the step; -1: none, or behind what the slot has room for. */
__device__ __forceinline__ int position_of(const cu_cache &c, int row) {
    const int pos = __ldcg(&c.row_pos[row]);
    return pos < c.P * PAGE ? pos : -1;
}

/* The page that is page i of the slot. */
__device__ __forceinline__ int page_of(const cu_cache &c, int slot, int i) {
    const int64_t first = (int64_t)slot * c.P;
    if (i >= c.P)
        return -1;
    return __ldcg(&c.pages[first + i]);
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

/* One row by itself, f32, over what it sees: for rows that met NaN or infinity. By TEAM threads, a
 * warp or all of a block; score: [PAGE] in shared memory. */
template <int TEAM> __device__ __forceinline__ void team_sync() {
    if (TEAM == 32)
        __syncwarp();
    else
        __syncthreads();
}
template <int D, bool Q8, int TEAM>
__device__ void attend_alone(const cu_attend &a, float *score, int slot, int kvh, int row, int head,
                             int pos) {
    const cu_cache &c = a.c;
    const int rank = threadIdx.x % TEAM;
    const int64_t of_head = (int64_t)row * a.H + head;
    const int64_t to = of_head * c.dv;
    const float *q = a.q + of_head * c.dk;
    const int from = first_seen(a, pos);
    float m = -INFINITY;
    float sum = 0;
    constexpr int OWN = (D + TEAM - 1) / TEAM; /* columns of a thread */
    float y[OWN] = {};
    for (int i = from / PAGE; i <= pos / PAGE; i++) {
        const int page = page_of(c, slot, i);
        if (page < 0 || page >= c.n_pages)
            continue;
        char *keys = keys_at(c, page);
        char *values = values_at(c, page);
        team_sync<TEAM>();
        for (int p = rank; p < PAGE; p += TEAM) {
            float s = 0;
            for (int x = 0; x < c.dk; x++) {
                const float key = element_at<Q8>(keys, kvh, p, c.pk, x);
                s = fmaf(key, __ldcg(&q[x]), s);
            }
            s *= a.scale;
            if (a.softcap != 0)
                s = a.softcap * tanhf(s / a.softcap);
            const bool seen = sees(a, pos, i * PAGE + p);
            score[p] = seen ? s : -INFINITY;
        }
        team_sync<TEAM>();
        float top = m;
        for (int p = 0; p < PAGE; p++)
            top = fmaxf(top, score[p]);
        const float base_m = top == -INFINITY ? 0 : top;
        const float old = lowered(m, base_m);
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
                const int x = rank + j * TEAM;
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
        const float old = lowered(m, top);
        sum = sum * old + expf(sink - top);
        for (int j = 0; j < OWN; j++)
            y[j] *= old;
    }
    for (int j = 0; j < OWN; j++) {
        const int x = rank + j * TEAM;
        if (x < c.dv)
            put(a.y, to + x, y[j] / sum, a.y_kind);
    }
    team_sync<TEAM>();
}

#endif
