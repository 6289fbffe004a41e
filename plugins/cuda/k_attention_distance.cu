/* k_attention_distance.cu -- attention whose scores or whose range have what no other kernel knows:
 * biases by distance, relative keys and queries, rows of another text, trees of drafts
 * (cu_distance), and slopes and chunks beside them. The warps of a block have the heads that share
 * keys, of one row or of several that follow each other; the rows of one sequence share its tiles.
 * Tiles begin at multiples of TILE, and a warp leaves out those of which its row sees nothing, so
 * that a row's result is the same in whatever company. */
#include "attend_distance.h"
#include "attend_long.cuh"

/* A row with the head of a warp; first to end: the positions among which it sees all, or those that
 * a tree has. */
struct row_view {
    bool there; /* the warp has a head, and the row a sequence */
    int t, head, pos, slot;
    int first, end;
    int past; /* with ANCESTORS: the position of its sequence's first row in this step */
};

__device__ __forceinline__ row_view row_view_of(const cu_attend &a, const cu_distance &d, int t,
                                                int head, bool has) {
    const cu_cache &c = a.c;
    row_view r = {};
    r.t = t;
    r.head = head;
    r.pos = has && t < c.T ? __ldcg(&c.row_pos[t]) : -1;
    r.slot = r.pos >= 0 ? __ldcg(&c.row_slot[t]) : -1;
    r.there = r.slot >= 0 && r.slot < c.S && r.pos < c.P * CU_PAGE_TOKENS;
    if (!r.there) {
        r.slot = -1;
        return r;
    }
    r.first = first_of(a, r.pos);
    r.end = last_of(a, t, r.pos) + 1;
    if (d.lengths)
        r.end = __ldcg(&d.lengths[r.slot]);
    for (int s = 0; d.ancestors && s < a.n_seqs; s++) {
        const int first = __ldcg(&a.seqs[4 * s]);
        const int rows = __ldcg(&a.seqs[4 * s + 1]);
        if (rows <= 0 || t < first || t >= first + rows || first + rows > c.T)
            continue;
        r.past = __ldcg(&c.row_pos[first]);
        r.end = __ldcg(&c.row_pos[first + rows - 1]) + 1;
    }
    r.end = min(r.end, c.P * CU_PAGE_TOKENS);
    return r;
}

/* Whether the row sees position p. */
__device__ __forceinline__ bool row_sees(const cu_distance &d, const row_view &r, int p) {
    if (p < r.first || p >= r.end)
        return false;
    const int j = p - r.past;
    if (!d.ancestors || j < 0)
        return true;
    if (j >= 32 * d.n_words)
        return false;
    const int32_t word = __ldcg(&d.ancestors[(int64_t)r.t * d.n_words + j / 32]);
    return (uint32_t)word >> j % 32 & 1;
}

/* The length of a distance m >= 0 (distances.h); step: of d, in shared memory. */
__device__ __forceinline__ int distance_length(const cu_distance &d, const int *step, int m) {
    int below = 0;
    int end = d.n_steps;
    if (m < d.exact)
        return m;
    while (below < end) {
        const int mid = (below + end) / 2;
        if (step[mid] <= m)
            below = mid + 1;
        else
            end = mid;
    }
    return d.exact + below;
}

/* What the distance adds behind the soft cap. */
__device__ __forceinline__ float distance_bias(const cu_attend &a, const cu_distance &d,
                                               const int *step, const row_view &r, int p) {
    const int m = r.pos - p;
    const bool later = m < 0 && a.bidirectional;
    const int length = distance_length(d, step, later ? -m : max(m, 0));
    const int bucket = later ? d.places + length : length;
    return __ldg(&d.biases[(int64_t)bucket * a.H + r.head]);
}

/* The row of the tables of relative keys and queries for the key at p. */
__device__ __forceinline__ int64_t relative_row(const cu_attend &a, const cu_distance &d,
                                                const int *step, const row_view &r, int p) {
    const int m = r.pos - p;
    const int length = distance_length(d, step, abs(m));
    const int place = d.places + (m < 0 ? -length : length);
    const int row = min(max(place, 0), 2 * d.places - 1);
    return ((int64_t)row * a.H + r.head) * a.c.dk;
}

/* q . k with what relative keys and queries add, before the scale. */
template <bool RELATIVE>
__device__ __forceinline__ float product_of(const cu_attend &a, const cu_distance &d,
                                            const int *step, const row_view &r, int p,
                                            const float *k, const float *q) {
    const int n = a.c.dk;
    float s = 0;
    if (!RELATIVE) {
        for (int i = 0; i < n; i++)
            s = fmaf(k[i], q[i], s);
        return s;
    }
    const int64_t at = relative_row(a, d, step, r, p);
    for (int i = 0; i < n; i++) {
        s = fmaf(k[i], q[i], s);
        if (d.rel_k)
            s = fmaf(__ldg(&d.rel_k[at + i]), q[i], s);
        if (d.rel_q)
            s = fmaf(__ldg(&d.rel_q[at + i]), k[i], s);
    }
    return s;
}

/* The tile of positions from `at` on, n of which are read, for the row and head of this warp; all
 * threads come here together. */
template <bool RELATIVE, int PER>
__device__ __forceinline__ void add_tile(const cu_attend &a, const cu_distance &d, const int *step,
                                         const row_view &r, bool mine, int slot, int kvh, int at,
                                         int n, int stride, const float *q, float *tile,
                                         part<PER> &all) {
    const cu_cache &c = a.c;
    const int lane = threadIdx.x % 32;
    const int p = at + lane;
    float e = 0;
    unsigned seen = 0;
    load_rows(c, false, slot, kvh, at, n, stride, tile);
    __syncthreads();
    if (mine) {
        const bool has = lane < n && row_sees(d, r, p) && has_page(c, slot, p);
        float logit = -INFINITY;
        seen = __ballot_sync(~0u, has);
        if (has) {
            const float s = product_of<RELATIVE>(a, d, step, r, p, tile + lane * stride, q);
            logit = __fmul_rn(s, a.scale);
            if (a.softcap != 0)
                logit = __fmul_rn(a.softcap, tanhf(logit / a.softcap));
            if (d.biases)
                logit = __fadd_rn(logit, distance_bias(a, d, step, r, p));
            if (a.slopes)
                logit = fmaf(a.slopes[r.head], (float)(p - r.pos), logit);
        }
        const float m = fmaxf(all.m, warp_max(logit));
        const float base = m == -INFINITY ? 0 : m;
        const float old = expf(all.m - base);
        e = has ? expf(logit - base) : 0;
        all.m = m;
        all.sum = __fadd_rn(__fmul_rn(all.sum, old), warp_sum(e));
#pragma unroll
        for (int i = 0; i < PER; i++)
            all.o[i] = __fmul_rn(all.o[i], old);
    }
    if (c.v_offset) {
        __syncthreads();
        load_rows(c, true, slot, kvh, at, n, stride, tile);
        __syncthreads();
    }
    for (int j = 0; mine && j < n; j++) {
        const float share = __shfl_sync(~0u, e, j);
        if (!(seen >> j & 1))
            continue;
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (lane + 32 * i < c.dv)
                all.o[i] = fmaf(share, tile[j * stride + lane + 32 * i], all.o[i]);
    }
    __syncthreads();
}

template <int PER>
__device__ __forceinline__ void write_row(const cu_attend &a, const row_view &r, part<PER> &all) {
    const int lane = threadIdx.x % 32;
    const int64_t to = ((int64_t)r.t * a.H + r.head) * a.c.dv;
    if (a.sinks) {
        part<PER> sink = no_sums<PER>();
        sink.m = a.sinks[r.head];
        sink.sum = 1;
        merge_sums(all, sink);
    }
#pragma unroll
    for (int i = 0; i < PER; i++)
        if (lane + 32 * i < a.c.dv)
            put(a.y, to + lane + 32 * i, __fmul_rn(all.o[i], 1 / all.sum), a.y_kind);
}

/* What blocks of the same row leave each other: the part of split s. */
__device__ __forceinline__ float *left_at(const cu_attend &a, const row_view &r, int s) {
    const int64_t head = (int64_t)r.t * a.H + r.head;
    return a.partial + (head * a.max_splits + s) * (a.c.dv + 2);
}

template <int PER>
__device__ __forceinline__ void leave_left(const cu_attend &a, const row_view &r, int s,
                                           const part<PER> &all) {
    const int lane = threadIdx.x % 32;
    float *to = left_at(a, r, s);
    if (!lane) {
        __stcg(&to[0], all.m);
        __stcg(&to[1], all.sum);
    }
#pragma unroll
    for (int i = 0; i < PER; i++)
        if (lane + 32 * i < a.c.dv)
            __stcg(&to[2 + lane + 32 * i], all.o[i]);
}

template <int PER>
__device__ __forceinline__ void take_left(const cu_attend &a, const row_view &r, int s,
                                          part<PER> &all) {
    const int lane = threadIdx.x % 32;
    const float *from = left_at(a, r, s);
    part<PER> one = no_sums<PER>();
    one.m = __ldcg(&from[0]);
    one.sum = __ldcg(&from[1]);
#pragma unroll
    for (int i = 0; i < PER; i++)
        if (lane + 32 * i < a.c.dv)
            one.o[i] = __ldcg(&from[2 + lane + 32 * i]);
    merge_sums(all, one);
}

/* What the warps of a block agree on: the least first and the greatest end of their rows. */
struct warps_range {
    int slot[WARPS], first[WARPS], end[WARPS];
};

/* The rows of one sequence among those of the block, from warp `from` on: of all warps with its
 * slot up to the next with another one. */
struct shared_rows {
    int slot, until, first, end;
};
__device__ __forceinline__ shared_rows rows_from(const warps_range &w, int from) {
    shared_rows r = {w.slot[from], from, w.first[from], w.end[from]};
    for (; r.until < WARPS && w.slot[r.until] == r.slot; r.until++) {
        r.first = min(r.first, w.first[r.until]);
        r.end = max(r.end, w.end[r.until]);
    }
    return r;
}

/* Grid: groups of heads, groups of `rows` rows, slices of the splits: with more than one of these a
 * block has one row. heads: of a block, one for each warp of a row. */
template <bool RELATIVE, int PER>
__global__ void __launch_bounds__(THREADS)
    attend_distance(cu_attend a, cu_distance d, int groups, int heads, int rows, int log_split) {
#ifdef CU_EMULATED
    __shared__ float room[WARPS * CU_MAX_HEAD + TILE * (CU_MAX_HEAD + 1)];
#else
    extern __shared__ float room[];
#endif
    __shared__ int step[CU_DISTANCE_STEPS];
    __shared__ warps_range shared;
    __shared__ int is_last;
    const cu_cache &c = a.c;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int per_kv = a.H / c.Hkv;
    const int kvh = blockIdx.x / groups;
    const int in_group = blockIdx.x % groups * heads + warp % heads;
    const bool has = in_group < per_kv && warp / heads < rows;
    const int stride = max(c.pk, c.pv) + 1; /* lanes read other banks */
    const bool direct = gridDim.z == 1;
    float *tile = room + WARPS * c.pk;
    float *q = room + warp * c.pk;
    for (int i = threadIdx.x; i < d.n_steps; i += THREADS)
        step[i] = d.step[i];
    cu_next();
    cu_wait();
    const row_view r = row_view_of(a, d, blockIdx.y * rows + warp / heads,
                                   kvh * per_kv + min(in_group, per_kv - 1), has);
    const int64_t from_q = ((int64_t)r.t * a.H + r.head) * c.dk;
    const int64_t to_y = ((int64_t)r.t * a.H + r.head) * c.dv;
    for (int i = lane; r.there && i < c.pk; i += 32)
        q[i] = i < c.dk ? __ldcg(&a.q[from_q + i]) : 0;
    for (int i = lane; has && !r.there && r.t < c.T && blockIdx.z == 0 && i < c.dv; i += 32)
        put(a.y, to_y + i, 0, a.y_kind);
    if (!lane) {
        shared.slot[warp] = r.slot;
        shared.first[warp] = r.first;
        shared.end[warp] = r.end;
    }
    __syncthreads();
    part<PER> all = no_sums<PER>();
    int mine = 0;
    int n_splits = 0;
    for (int w = 0; w < WARPS;) {
        const shared_rows of = rows_from(shared, w);
        const bool in = r.there && warp >= w && warp < of.until;
        w = of.until;
        if (of.slot < 0)
            continue;
        const int s0 = of.first >> log_split;
        const int s1 = ((of.end - 1) >> log_split) + 1;
        n_splits = s1 - s0;
        for (int s = s0 + blockIdx.z; s < s1; s += gridDim.z, mine++) {
            const int from = max(of.first, s << log_split) / TILE * TILE;
            const int to = min(of.end, (s + 1) << log_split);
            const bool ours = in && r.first < (s + 1) << log_split && r.end > s << log_split;
            part<PER> one = no_sums<PER>();
            for (int at = from; at < to; at += TILE)
                add_tile<RELATIVE, PER>(a, d, step, r, ours && r.first < at + TILE && r.end > at,
                                        of.slot, kvh, at, min(TILE, to - at), stride, q, tile, one);
            if (direct && ours)
                merge_sums(all, one);
            else if (ours)
                leave_left(a, r, s, one);
        }
    }
    if (direct) {
        if (r.there)
            write_row(a, r, all);
        return;
    }
    if (!mine)
        return;
    __threadfence();
    __syncthreads();
    unsigned *arrived = &a.arrived[(int64_t)blockIdx.y * gridDim.x + blockIdx.x];
    if (!threadIdx.x)
        is_last = (int)atomicAdd(arrived, (unsigned)mine) + mine == n_splits;
    __syncthreads();
    if (!is_last)
        return;
    __threadfence();
    if (!threadIdx.x)
        *arrived = 0;
    for (int s = r.first >> log_split; r.there && s <= (r.end - 1) >> log_split; s++)
        take_left(a, r, s, all);
    if (r.there)
        write_row(a, r, all);
}

using distance_kernel = void (*)(cu_attend, cu_distance, int, int, int, int);

template <bool RELATIVE> static distance_kernel kernel_for(int longest) {
    return longest <= 128 ? attend_distance<RELATIVE, 4>
                          : attend_distance<RELATIVE, CU_MAX_HEAD / 32>;
}

void cu_attend_distance_init(const cu_card *d) {
    for (int longest : {128, (int)CU_MAX_HEAD}) {
        for (distance_kernel k : {kernel_for<false>(longest), kernel_for<true>(longest)})
            cudaFuncSetAttribute((const void *)k, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 d->smem_max - 4096);
    }
}

void cu_attend_distance(cudaStream_t s, const cu_attend *a, const cu_distance *d, int rows,
                        int log_split, int slices) {
    const int per_kv = a->H / a->c.Hkv;
    const int heads = per_kv < WARPS ? per_kv : (int)WARPS;
    const int groups = (per_kv + heads - 1) / heads;
    const int longest = a->c.pk > a->c.pv ? a->c.pk : a->c.pv;
    const dim3 grid((unsigned)(groups * a->c.Hkv), (unsigned)((a->c.T + rows - 1) / rows),
                    (unsigned)slices);
    const bool relative = d->rel_k || d->rel_q;
    const distance_kernel k = relative ? kernel_for<true>(longest) : kernel_for<false>(longest);
    launch(s, k, grid, THREADS, shared_bytes(&a->c), *a, *d, groups, heads, rows, log_split);
}
