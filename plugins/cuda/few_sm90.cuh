/* few_sm90.cuh -- LINEAR of 2 to 64 rows, and MOE_LINEAR, on Hopper: weight rows are the 64 rows of
 * a warpgroup's product and come from registers, so that packed weights are unpacked where they are
 * used and read once for N rows of x, which lie in shared memory. Pairs of an expert are parts of
 * at most N, each with works of its own, so that an expert that most rows chose is not one block's.
 *
 * A block has a tile of 128 weight rows (GLU: 64 of gate and the 64 of up, eight and eight in
 * turn), 16 for each of eight warps, and goes through stages of 128 k (of a float 64). A thread
 * asks for its weights some stages ahead (cp.async) and reads back what it asked for itself: no
 * barrier is needed, and the first weights are under way before the predecessor is over. Four more
 * warps bring x, some stages ahead, through registers: the k of a product lie in the order in which
 * lanes hold weights (lane t has four columns in a row, which count as k 2t, 2t + 1, 2t + 8, 2t +
 * 9). They have no weights to wait for: the fence between their stores and a product waits for all
 * that a thread has under way.
 *
 * Blocks stay for several tiles. Where tiles are few, the blocks of a cluster share k; each warp's
 * sums go to the block that finishes them, and are added there in the order of k: no sum depends on
 * how many rows there are. */
#ifndef CU_FEW_SM90_CUH
#define CU_FEW_SM90_CUH
#include "linear.cuh"

enum {
    FEW_ROWS = 128,    /* weight rows of a tile */
    FEW_THREADS = 256, /* that multiply */
    FEW_BRINGERS = 128 /* that bring x */
};

/* ---- weights of a thread: one row's part of a stage ------------------------------------------ */
template <class T, bool PACKED> struct few_weight;

/* A region of shared memory for each plane; a thread's pieces lie side by side. */
template <class T> struct few_weight<T, true> {
    using C = typename T::codes;
    using S = typename T::scales;
    enum {
        K = 128,
        LOW = 4 * C::LOW,
        HIGH = 4 * C::HIGH,
        P2 = S::BITS2 / 8,
        P3 = S::BITS3 > 0 ? 4 : 0
    };
    enum { AT_HIGH = LOW * FEW_THREADS, AT_P2 = AT_HIGH + HIGH * FEW_THREADS };
    enum { AT_P3 = AT_P2 + P2 * FEW_THREADS, BYTES = AT_P3 + P3 * FEW_THREADS };
    T w;
    /* unit: counts from the matrix' begin */
    static __device__ __forceinline__ void ask(uint32_t to, const cu_planes &p, int64_t unit) {
        const int i = threadIdx.x;
        const int64_t lane = unit * 4 + i % 4;
        copy_bytes<LOW>(to + LOW * i, p.at[0] + lane * LOW);
        if constexpr (HIGH > 0)
            copy_bytes<HIGH>(to + AT_HIGH + HIGH * i, p.at[1] + lane * HIGH);
        copy_bytes<P2>(to + AT_P2 + P2 * i, p.at[2] + unit * P2);
        if constexpr (P3 > 0) {
            const int64_t word = S::BITS3 == 16 ? unit >> 1 : unit >> 2;
            copy_bytes<4>(to + AT_P3 + P3 * i, p.at[3] + 4 * word);
        }
    }
    __device__ __forceinline__ void take(const char *from, int unit) {
        const int i = threadIdx.x;
        const int half = S::BITS3 == 8 ? unit & 2 : 0;
        w.c.template load<from_shared>(from + LOW * i, from + AT_HIGH + HIGH * i, 0);
        w.s.template load<from_shared>(from + AT_P2 + P2 * i, from + AT_P3 + P3 * i + half, 0);
    }
    __device__ __forceinline__ void get(int g, uint32_t *r) const {
        w.to_half(g, r);
    }
};

template <class T> struct few_weight<T, false> {
    enum { K = 64, BYTES = 2 * 16 * FEW_THREADS };
    uint4 v[2];
    static __device__ __forceinline__ void ask(uint32_t to, const cu_planes &p, int64_t unit) {
        const char *from = p.at[0] + (unit * 8 + threadIdx.x % 4) * 16;
        to += threadIdx.x * 16;
        copy_bytes<16>(to, from);
        copy_bytes<16>(to + 16 * FEW_THREADS, from + 64);
    }
    __device__ __forceinline__ void take(const char *from, int) {
        v[0] = *(const uint4 *)(from + threadIdx.x * 16);
        v[1] = *(const uint4 *)(from + (threadIdx.x + FEW_THREADS) * 16);
    }
    __device__ __forceinline__ void get(int g, uint32_t *r) const {
        T w;
        w.v = v[g];
        w.to_half(0, r);
    }
};

/* ---- shared memory --------------------------------------------------------------------------- */
/* Bytes of weights that are on their way: two blocks fill a processor's shared memory. */
constexpr int few_room(int n, bool packed) {
    if (n <= 24)
        return packed ? 60 << 10 : 80 << 10;
    return packed ? 44 << 10 : 48 << 10;
}
/* fit: how many stages of weights have room. */
constexpr int few_stages(int fit) {
    if (fit < 2)
        return 2;
    return fit > 8 ? 8 : fit;
}
/* bytes: of a stage of x */
constexpr int few_groups(int bytes) {
    if (bytes > 8192)
        return 1;
    return bytes > 3072 ? 2 : 4;
}

template <class T, int N> struct few_shape {
    using weight = few_weight<T, T::PACKED>;
    static constexpr int K = weight::K;
    static constexpr int W_BYTES = 2 * weight::BYTES;
    static constexpr int STAGES = few_stages(few_room(N, T::PACKED) / W_BYTES);
    /* stages of x; warps that bring it form groups, each brings every so many-th stage */
    static constexpr int X_BYTES = N * K * 2;
    static constexpr int X_STAGES = N > 24 ? 2 : 4;
    static constexpr int GROUPS = few_groups(X_BYTES);
    static constexpr int GROUP = FEW_BRINGERS / GROUPS;
    static constexpr int PIECES = N * K / 8; /* of eight columns */
    static constexpr int EACH = PIECES / GROUP;
    static constexpr int X_AT = STAGES * W_BYTES;
    static constexpr int SUMS_AT = X_AT + X_STAGES * X_BYTES;
    static constexpr int FRAGMENT = N / 8 * 512; /* sums of a warp */
    static_assert(PIECES % GROUP == 0 && X_STAGES % GROUPS == 0, "even shares");
};
/* Beside what is sized at launch. pairs: of a pass' rows; a pass is brought when all but the last
 * X_STAGES of the stages before it are used up, so the lists of so many passes and one more may be
 * in use. at: where rows of x begin, in elements, -1 = zeros. */
template <class T, int N> struct few_shared {
    using shape = few_shape<T, N>;
    uint64_t full[shape::X_STAGES];
    uint64_t empty[shape::X_STAGES];
    uint64_t came; /* sums from the cluster */
    int pairs[shape::X_STAGES + 1][N];
    int at[shape::GROUPS][N];
};

/* At most N pairs of an expert, from `first` on; or all rows of an ordinary product. */
struct few_part {
    int expert, first, count;
};
/* Pairs of each of the parts that n of an expert make, but for the last one. */
template <int N> __host__ __device__ __forceinline__ int few_each(int n) {
    const int parts = (n + N - 1) / N;
    return parts > 1 ? ((n + parts - 1) / parts + 7) / 8 * 8 : n;
}

/* The width of a product of so many rows. */
template <int N> __host__ __device__ __forceinline__ int few_width(int rows) {
    return N > 32 && rows <= 32 ? 32 : N;
}

/* Warps whose sums a block of a cluster finishes: from the first on, up to the next one's first. */
__host__ __device__ __forceinline__ int few_first_warp(int rank, int split) {
    return (rank * 8 + split - 1) / split;
}
__host__ __device__ __forceinline__ int few_most_warps(int split) {
    return (8 + split - 1) / split;
}

#ifdef CU_SM90A
/* ---- which rows ------------------------------------------------------------------------------ */
/* What all works have in common, a work being a tile and a part. list: the parts. */
struct few_job {
    int works;
    int step; /* clusters */
    int tiles;
    int begin, end; /* units of this block */
    const few_part *list;
};

__device__ __forceinline__ few_part few_part_of(const cu_linear &a, const few_job &j, int work) {
    if (a.experts.of)
        return j.list[work / j.tiles];
    return few_part{0, 0, a.rows};
}

/* The sum of n over the threads before this one, and over all of them. warps: an int for each. */
__device__ __forceinline__ int few_before(int n, int *warps, int *all) {
    const int warp = threadIdx.x / 32;
    const int sum = warp_sum_until(n);
    if (threadIdx.x % 32 == 31)
        warps[warp] = sum;
    __syncthreads();
    int before = sum - n;
    *all = 0;
    for (int i = 0; i < (int)blockDim.x / 32; i++) {
        before += i < warp ? warps[i] : 0;
        *all += warps[i];
    }
    __syncthreads();
    return before;
}

/* Fills the list; returns how many parts it has. All threads; ends with a barrier. */
template <int N>
__device__ __forceinline__ int few_list(const cu_experts &e, int *warps, few_part *list) {
    int n = 0;
    for (int base = 0; base < e.n_active; base += blockDim.x) {
        const int i = base + threadIdx.x;
        const int expert = i < e.n_active ? __ldcg(&e.active[i]) : -1;
        const int first = expert >= 0 ? __ldcg(&e.start[expert]) : 0;
        const int end = expert >= 0 ? __ldcg(&e.start[expert + 1]) : 0;
        const int each = few_each<N>(end - first);
        const int parts = end > first ? (end - first + each - 1) / each : 0;
        int all;
        const int at = n + few_before(parts, warps, &all);
        for (int k = 0; k < parts; k++) {
            const int from = first + k * each;
            list[at + k] = few_part{expert, from, min(each, end - from)};
        }
        n += all;
    }
    __syncthreads();
    return n;
}

/* Row h (0, 1) of two that lane group g of a warp has in a tile: segment and row there. With GLU
 * these are gate and up. */
__device__ __forceinline__ int few_row(const cu_linear &a, int tile, int warp, int g, int h,
                                       int *row) {
    if (a.epi == CU_EPI_GLU) {
        *row = tile * (FEW_ROWS / 2) + warp * 8 + g;
        return h;
    }
    int s = 0;
    int i = tile * FEW_ROWS + warp * 16 + h * 8 + g;
    while (s + 1 < a.n_seg && i >= a.seg[s].rows) {
        i -= a.seg[s].rows;
        s++;
    }
    *row = i;
    return s;
}

/* Where a thread's two weight rows begin. */
struct few_source {
    int seg[2];
    int unit[2];
};
template <int K>
__device__ __forceinline__ few_source few_source_of(const cu_linear &a, const few_job &j,
                                                    int work) {
    few_source s = {};
    if (work >= j.works)
        return s;
    const int64_t expert = few_part_of(a, j, work).expert;
    const int tile = work % j.tiles;
    const int warp = threadIdx.x / 32;
    const int g = threadIdx.x % 32 / 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row;
        const int seg = few_row(a, tile, warp, g, h, &row);
        const int rows = a.seg[seg].rows;
        s.seg[h] = seg;
        const int64_t at = expert * rows + min(row, rows - 1); /* past the end: any row */
        s.unit[h] = (int)(at * (a.ld / K));
    }
    return s;
}

/* ---- x --------------------------------------------------------------------------------------- */
template <int GROUP> __device__ __forceinline__ void few_group_sync(int group) {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(GROUP) : "memory");
}

/* Where the rows of a part begin, by a group of warps; keep: its pairs, too. */
template <class T, int N>
__device__ __forceinline__ void few_aim(const cu_linear &a, few_part p, int *at, int group,
                                        int *keep) {
    constexpr int GROUP = few_shape<T, N>::GROUP;
    few_group_sync<GROUP>(group);
    for (int n = threadIdx.x % GROUP; n < N; n += GROUP) {
        int row = p.first + n;
        if (a.experts.of && n < p.count) {
            const int pair = __ldcg(&a.experts.pairs[row]);
            row = pair / a.experts.x_div;
            if (keep)
                keep[n] = pair;
        }
        at[n] = n < p.count ? row * a.x_ld : -1;
    }
    few_group_sync<GROUP>(group);
}

/* A thread's pieces of a stage: the same eight columns of every so many-th row. */
template <class T, int N> struct few_x {
    using shape = few_shape<T, N>;
    enum { EACH = shape::EACH, ACROSS = shape::K / 8, ROWS = shape::GROUP / ACROSS };
    uint4 v[EACH];

    static __device__ __forceinline__ int piece() {
        return threadIdx.x % ACROSS;
    }
    static __device__ __forceinline__ int row(int m) {
        return threadIdx.x % shape::GROUP / ACROSS + m * ROWS;
    }
    /* width: rows from there on are not read by the product */
    __device__ __forceinline__ void load(const cu_linear &a, const int *at, int unit, int width) {
        const int k = unit * shape::K + piece() * 8;
        const uint16_t *x = (const uint16_t *)a.x + k;
#pragma unroll
        for (int m = 0; m < EACH; m++) {
            const int from = m * ROWS < width ? at[row(m)] : -1;
            v[m] = make_uint4(0, 0, 0, 0);
            if (from >= 0 && k < a.x_ld)
                v[m] = __ldcg((const uint4 *)(x + from));
        }
    }
    /* to: rows of 128 bytes, N after each other for each 64 k; vector c of row n lies at c ^ n % 8.
     * ROWS is a power of two: the low bits of row(m) are those of row(0) and of m * ROWS. */
    __device__ __forceinline__ void store(uint32_t to, int width) const {
        const int n = row(0);
        const int c = T::PACKED ? piece() / 2 % 4 * 2 : piece() / 4 * 4;
        uint32_t first = to + n * 128 + (c ^ (n & 7)) * 16;
        if (T::PACKED)
            first += piece() / 8 * (N * 128) + piece() % 2 * 8;
        else
            first += piece() % 4 * 4;
#pragma unroll
        for (int m = 0; m < EACH; m++) {
            const uint32_t line = m * ROWS * 128;
            const uint32_t at = first ^ (m * ROWS & 7) * 16;
            if (m * ROWS >= width)
                break;
            if (T::PACKED) {
                shared_store(line + at, v[m].x, v[m].z);
                shared_store(line + (at ^ 16), v[m].y, v[m].w);
            } else {
                shared_store(line + at, v[m].x);
                shared_store(line + (at ^ 16), v[m].y);
                shared_store(line + (at ^ 32), v[m].z);
                shared_store(line + (at ^ 48), v[m].w);
            }
        }
    }
};

template <class T, int N>
__device__ __forceinline__ void few_bring(const cu_linear &a, const few_job &job,
                                          few_shared<T, N> &sh, char *base, int work) {
    using shape = few_shape<T, N>;
    const int group = (threadIdx.x - FEW_THREADS) / shape::GROUP;
    const uint32_t x_at = shared_at(base) + shape::X_AT;
    int stage = 0;
    int list = 0;
    if (!a.experts.of)
        few_aim<T, N>(a, few_part_of(a, job, work), sh.at[group], group, NULL);
    cu_wait();
    uint32_t parity = 1; /* a fresh barrier's phase before the first counts as over */
    for (; work < job.works; work += job.step) {
        const int width = few_width<N>(few_part_of(a, job, work).count);
        for (int unit = job.begin; unit < job.end; unit++) {
            if (stage % shape::GROUPS == group) {
                const uint32_t empty = shared_at(&sh.empty[stage]);
                few_x<T, N> x;
                const bool first =
                    unit < job.begin + shape::GROUPS; /* of the group's in the work */
                if (first && a.experts.of) {
                    int *keep = unit == job.begin ? sh.pairs[list] : NULL;
                    barrier_wait(empty, parity);
                    few_aim<T, N>(a, few_part_of(a, job, work), sh.at[group], group, keep);
                }
                x.load(a, sh.at[group], unit, width);
                barrier_wait(empty, parity);
                x.store(x_at + stage * shape::X_BYTES, width);
                fence_products();
                barrier_arrive(shared_at(&sh.full[stage]));
            }
            stage++;
            if (stage == shape::X_STAGES) {
                stage = 0;
                parity ^= 1;
            }
        }
        list++;
        if (list > shape::X_STAGES)
            list = 0;
    }
}

/* ---- what becomes of sums -------------------------------------------------------------------- */
/* The two weight rows of a tile that lane group g of a warp has: segment (-1 = none), row, bias. */
struct few_outputs {
    int seg[2];
    int row[2];
    float bias[2];
};
__device__ __forceinline__ few_outputs few_outputs_of(const cu_linear &a, int64_t expert, int tile,
                                                      int warp, int g) {
    few_outputs o;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        o.seg[h] = few_row(a, tile, warp, g, h, &o.row[h]);
        o.bias[h] = 0;
        const cu_seg &seg = a.seg[o.seg[h]];
        if (o.row[h] < seg.rows)
            o.bias[h] = bias_at(seg, expert, o.row[h]);
        else
            o.seg[h] = -1;
    }
    return o;
}

/* Four sums of a lane: of its two weight rows, each times row n of the part and the one behind. */
struct few_four {
    int64_t row[2]; /* of y; -1 = none */
    float more[4];  /* residual */
    __device__ __forceinline__ void begin(const cu_linear &a, const few_outputs &o, few_part p,
                                          const int *pairs, int n) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const bool in = n + c < p.count;
            row[c] = in ? p.first + n + c : -1;
            if (in && a.experts.of)
                row[c] = pairs[n + c];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float &to = more[2 * h + c];
                to = 0;
                if (a.epi == CU_EPI_ADD && in && o.seg[h] >= 0)
                    to = __ldcg(&a.residual[row[c] * a.seg[o.seg[h]].rows + o.row[h]]);
            }
        }
    }
    template <class T>
    __device__ __forceinline__ void write(const cu_linear &a, const few_outputs &o,
                                          const float *v) const {
        constexpr float unscale = 1.0f / T::SCALED;
#pragma unroll
        for (int c = 0; c < 2; c++) {
            if (row[c] < 0)
                continue;
            const float low = v[c] * unscale + o.bias[0];
            const float high = v[2 + c] * unscale + o.bias[1];
            if (a.epi == CU_EPI_GLU) {
                if (o.seg[0] >= 0)
                    write_glu(a, row[c], o.row[0], low, high);
                continue;
            }
            put_sum(a, o, 0, row[c], more[c] + low);
            put_sum(a, o, 1, row[c], more[2 + c] + high);
        }
    }
    static __device__ __forceinline__ void put_sum(const cu_linear &a, const few_outputs &o, int h,
                                                   int64_t to, float y) {
        if (o.seg[h] < 0)
            return;
        const cu_seg &seg = a.seg[o.seg[h]];
        seg.y[to * seg.rows + o.row[h]] = y;
    }
};

/* Each warp's sums to the block that finishes them. */
template <int N>
__device__ __forceinline__ void few_push(const float *d, uint32_t sums, uint32_t came, int split,
                                         int rank) {
    const int warp = threadIdx.x / 32;
    const int owner = warp * split / 8;
    const int slot = rank * few_most_warps(split) + warp - few_first_warp(owner, split);
    const uint32_t at = sums + slot * (N / 8 * 512) + threadIdx.x % 32 * 16;
    const uint32_t there = peer_at(at, owner);
    const uint32_t bar = peer_at(came, owner);
#pragma unroll
    for (int i = 0; i < N / 8; i++)
        peer_send(there + i * 512, bar, d + 4 * i);
}

/* ---- products -------------------------------------------------------------------------------- */
/* Adds a stage's products: two rows' weights of each thread and the stage of x, of which W rows are
 * read. */
template <class T, int N, int W>
__device__ __forceinline__ void few_multiply(const typename few_shape<T, N>::weight w[2],
                                             uint32_t x_at, float *d) {
    constexpr int HALF = T::HALF;
#pragma unroll
    for (int q = 0; q < few_shape<T, N>::K / 32; q++) {
        uint32_t r0[4];
        uint32_t r1[4];
        w[0].get(q, r0);
        w[1].get(q, r1);
        const uint32_t low[4] = {r0[0], r1[0], r0[1], r1[1]};
        const uint32_t high[4] = {r0[2], r1[2], r0[3], r1[3]};
        const uint32_t at = x_at + q / 2 * (N * 128) + q % 2 * 64;
        wgmma_fence();
        wgmma<HALF, W>(d, low, wgmma_operand(at));
        wgmma<HALF, W>(d, high, wgmma_operand(at + 32));
        wgmma_commit();
        wgmma_wait<1>();
    }
}

/* What a thread adds up of the warps' sums that this block finishes. */
template <int N> struct few_share {
    int first; /* warp */
    int items; /* of four sums */
    int step;  /* between those of two blocks of the cluster */
    __device__ __forceinline__ int warp(int i) const {
        return first + i / (N * 4);
    }
    /* the first of two rows of the pass */
    static __device__ __forceinline__ int row(int i) {
        const int eight = i % (N * 4) / 32 * 8;
        return eight + 2 * (i % 4);
    }
    __device__ __forceinline__ void add_up(const float4 *sums, int split, float *v) const {
        for (int r = 0; r < split; r++) {
            const float4 part = sums[r * step];
            v[0] += part.x;
            v[1] += part.y;
            v[2] += part.z;
            v[3] += part.w;
        }
    }
};

template <int N> __device__ __forceinline__ few_share<N> few_share_of(int rank, int split) {
    const int first = few_first_warp(rank, split);
    const int warps = few_first_warp(rank + 1, split) - first;
    const int each = N * 4; /* of a warp's sums */
    return few_share<N>{first, warps * each, few_most_warps(split) * each};
}

/* Weights, STAGES ahead. */
template <class T, int N> struct few_ahead {
    using shape = few_shape<T, N>;
    using weight = typename shape::weight;
    int work;
    int unit;
    few_source from;

    __device__ __forceinline__ void begin(const cu_linear &a, const few_job &j, int first) {
        work = first;
        unit = j.begin;
        from = few_source_of<shape::K>(a, j, work);
    }
    /* The next unit, to a slot; behind the last one nothing. */
    __device__ __forceinline__ void ask(const cu_linear &a, const few_job &j, uint32_t slot) {
        if (work < j.works) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const cu_planes &w = a.seg[from.seg[h]].w;
                weight::ask(slot + h * weight::BYTES, w, from.unit[h] + unit);
            }
        }
        copy_commit();
        unit++;
        if (unit < j.end || work >= j.works)
            return;
        unit = j.begin;
        work += j.step;
        from = few_source_of<shape::K>(a, j, work);
    }
};

/* The sums of a work to where they belong. */
template <class T, int N>
__device__ __forceinline__ void few_finish(const cu_linear &a, const few_job &job,
                                           few_shared<T, N> &sh, const float *sums, int work,
                                           int list, int split, int rank, const float *d) {
    const few_part now = few_part_of(a, job, work);
    const int64_t expert = now.expert;
    const int tile = work % job.tiles;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int *pairs = sh.pairs[list];
    few_four four;
    if (split == 1) {
        const few_outputs o = few_outputs_of(a, expert, tile, warp, lane / 4);
#pragma unroll
        for (int i = 0; i < N; i += 8) {
            four.begin(a, o, now, pairs, i + 2 * (lane % 4));
            four.write<T>(a, o, d + i / 2);
        }
        return;
    }
    const few_share<N> share = few_share_of<N>(rank, split);
    const uint32_t came = shared_at(&sh.came);
    if (threadIdx.x == 0)
        barrier_expect(came, share.items * 16 * split);
    __syncwarp();
    cluster_wait();
    few_push<N>(d, shared_at(sums), came, split, rank);
    for (int i = threadIdx.x; i < share.items; i += FEW_THREADS) {
        const few_outputs o = few_outputs_of(a, expert, tile, share.warp(i), lane / 4);
        four.begin(a, o, now, pairs, share.row(i)); /* reads while sums come */
        barrier_wait_cluster(came, 0);
        float v[4] = {0, 0, 0, 0};
        share.add_up((const float4 *)sums + i, split, v);
        four.write<T>(a, o, v);
    }
    barrier_wait_cluster(came, 0); /* what peers send has come before this block ends */
}

/* Where a thread that multiplies is in the rings of weights and of x. */
template <class T, int N> struct few_place {
    few_ahead<T, N> ahead;
    int slot, stage;
    uint32_t parity;
};

/* All products of a work, of W columns of sums. */
template <class T, int N, int W>
__device__ __forceinline__ void few_products(const cu_linear &a, const few_job &job,
                                             few_shared<T, N> &sh, char *base, int work,
                                             few_place<T, N> &at, float *d) {
    using shape = few_shape<T, N>;
    using weight = typename shape::weight;
    const uint32_t base_at = shared_at(base);
    const few_source here = few_source_of<shape::K>(a, job, work);
    for (int unit = job.begin; unit < job.end; unit++) {
        weight w[2];
        copy_wait<shape::STAGES - 1>();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const char *from = base + at.slot * shape::W_BYTES;
            w[h].take(from + h * weight::BYTES, here.unit[h] + unit);
        }
        barrier_wait(shared_at(&sh.full[at.stage]), at.parity);
        few_multiply<T, N, W>(w, base_at + shape::X_AT + at.stage * shape::X_BYTES, d);
        at.ahead.ask(a, job, base_at + at.slot * shape::W_BYTES);
        wgmma_wait<0>();
        if (threadIdx.x % 32 == 0)
            barrier_arrive(shared_at(&sh.empty[at.stage]));
        at.slot++;
        if (at.slot == shape::STAGES)
            at.slot = 0;
        at.stage++;
        if (at.stage == shape::X_STAGES) {
            at.stage = 0;
            at.parity ^= 1;
        }
    }
#pragma unroll
    for (int i = 0; i < W / 2; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

template <class T, int N>
__device__ __forceinline__ void few_consume(const cu_linear &a, const few_job &job,
                                            few_shared<T, N> &sh, char *base, int work, int split,
                                            int rank) {
    using shape = few_shape<T, N>;
    const uint32_t base_at = shared_at(base);
    const float *sums = (const float *)(base + shape::SUMS_AT);
    few_place<T, N> at;
    at.ahead.begin(a, job, work);
#pragma unroll 1
    for (int i = 0; i < shape::STAGES; i++)
        at.ahead.ask(a, job, base_at + i * shape::W_BYTES);
    cu_wait();
    if (a.late)
        cu_next();
    at.slot = 0;
    at.stage = 0;
    at.parity = 0;
    int list = 0;
    for (; work < job.works; work += job.step) {
        float d[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            d[i] = 0;
        const int width = few_width<N>(few_part_of(a, job, work).count);
        if (N > 32 && width == 32)
            few_products < T, N, N<32 ? N : 32>(a, job, sh, base, work, at, d);
        else
            few_products<T, N, N>(a, job, sh, base, work, at, d);
        few_finish<T, N>(a, job, sh, sums, work, list, split, rank, d);
        list++;
        if (list > shape::X_STAGES)
            list = 0;
    }
}
#endif

/* Grid: clusters of `split` blocks, one for each work; or blocks, each with every so many-th
 * work. */
template <class T, int N>
__global__ void __launch_bounds__(FEW_THREADS + FEW_BRINGERS, 2)
    few_sm90(const __grid_constant__ cu_linear a, int split, int tiles) {
#ifdef CU_SM90A
    using shape = few_shape<T, N>;
    extern __shared__ char raw[];
    __shared__ few_shared<T, N> sh;
    const uint32_t before = (0u - shared_at(raw)) % 1024; /* the swizzle counts from 1024 */
    char *const base = raw + before;
    const int rank = blockIdx.x % split;
    const int first = (int)blockIdx.x / split;
    const int units = a.ld / shape::K;
    const int sums_bytes = split > 1 ? split * few_most_warps(split) * shape::FRAGMENT : 0;
    few_part *list = (few_part *)(base + shape::SUMS_AT + sums_bytes);
    few_job job;
    job.list = list;
    job.tiles = tiles;
    job.works = tiles;
    job.step = gridDim.x / split;
    job.begin = rank * units / split;
    job.end = (rank + 1) * units / split;
    if (!a.late)
        cu_next();
    if (threadIdx.x == 0) {
        for (int i = 0; i < shape::X_STAGES; i++) {
            barrier_init(shared_at(&sh.full[i]), shape::GROUP);
            barrier_init(shared_at(&sh.empty[i]), FEW_THREADS / 32);
        }
        barrier_init(shared_at(&sh.came), 1);
        barrier_publish();
    }
    __syncthreads();
    if (split > 1)
        cluster_here();
    if (a.experts.of) {
        cu_wait();
        job.works = tiles * few_list<N>(a.experts, sh.at[0], list);
    }
    const int role = __shfl_sync(~0u, (int)threadIdx.x / FEW_THREADS, 0); /* known to be a warp's */
    if (role == 0) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 96;");
        few_consume<T, N>(a, job, sh, base, first, split, rank);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 48;");
        few_bring<T, N>(a, job, sh, base, first);
    }
#endif
}

/* ---- host ------------------------------------------------------------------------------------ */
/* Blocks that share k: as many as are resident at once, two on a processor; all then read at the
 * same pace. Of many rows a power of two: the sums of others take more room than one block of two
 * on a processor has. */
template <int N> static int few_split(const cu_card *d, int works, int units) {
    const int resident = 2 * d->sms;
    int split = resident * 9 / 10 / works;
    if (N > 24)
        for (split = 8; split > 1 && split * works > resident * 97 / 100;)
            split /= 2;
    while (N > 24 && split > 1 && split > units / 2)
        split /= 2;
    /* a few works more than there are blocks: in parts, so that the second turn is short */
    const int more = works - resident;
    const bool is_short = more > 0 && more < resident / 2;
    if (N <= 24 && is_short)
        split = 3;
    if (split > units / 2)
        split = units / 2;
    if (split > 8)
        split = 8;
    if (split < 1)
        split = 1;
    return split;
}

template <class T, int N>
static void few_sm90_launch(const cu_card *d, cudaStream_t s, const cu_linear *a) {
    using shape = few_shape<T, N>;
    const int tile = a->epi == CU_EPI_GLU ? FEW_ROWS / 2 : FEW_ROWS;
    const int tiles = (a->total + tile - 1) / tile;
    int parts = 1;
    if (a->experts.of) /* at most: all but one of an expert's are half full at least */
        parts = a->experts.n_active + a->rows / (N / 2);
    const int units = a->ld / shape::K;
    const int works = tiles * parts;
    const int split = a->experts.of ? 1 : few_split<N>(d, works, units);
    int clusters = works;
    if (split == 1 && works > 2 * d->sms)
        clusters = 2 * d->sms;
    const int sums = split > 1 ? split * few_most_warps(split) * shape::FRAGMENT : 0;
    const int list = a->experts.of ? (int)sizeof(few_part) * parts : 0;
    const size_t smem = 1024 + shape::SUMS_AT + sums + list;
    const dim3 grid(clusters * split);
    const int threads = FEW_THREADS + FEW_BRINGERS;
    launch_cluster(s, few_sm90<T, N>, grid, threads, smem, split, *a, split, tiles);
}

/* Whether there is code of it for the current device. */
template <class T> static bool few_sm90_runs() {
    return cu_has_sm90((const void *)few_sm90<T, 8>);
}
/* How many columns a product should have room for. Where experts have few pairs on average, one
 * with more than 8 has parts, each of which reads its weights again; in wider products the columns
 * of all others would be computed for nothing. */
static inline int few_columns(const cu_linear *a) {
    const cu_experts *e = &a->experts;
    if (!e->of)
        return a->rows;
    if (e->typical <= 4 && e->most > 8)
        return 8;
    return e->most;
}
template <class T> static void few_sm90_run(const cu_card *d, cudaStream_t s, const cu_linear *a) {
    const int rows = few_columns(a);
    if (rows <= 8)
        few_sm90_launch<T, 8>(d, s, a);
    else if (rows <= 24)
        few_sm90_launch<T, 24>(d, s, a);
    else
        few_sm90_launch<T, 64>(d, s, a);
}

template <class T, int N> static void few_sm90_limit(const cu_card *d) {
    cudaFuncSetAttribute((const void *)few_sm90<T, N>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         d->smem_max - 4096);
}
template <class T> static void few_sm90_init(const cu_card *d) {
    few_sm90_limit<T, 8>(d);
    few_sm90_limit<T, 24>(d);
    few_sm90_limit<T, 64>(d);
}
#endif
