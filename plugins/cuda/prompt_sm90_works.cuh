/* prompt_sm90_works.cuh -- what producers and consumers of prompt_sm90.cuh share: shapes, the rings
 * of stages in shared memory, and the tiles of a block in turn. */
#ifndef CU_PROMPT_SM90_WORKS_CUH
#define CU_PROMPT_SM90_WORKS_CUH
#include "prompt_sm90.h"
#include "prompt_tiles.cuh"
#include "ptx.cuh"
#include <limits.h>

/* Stages of q's floats for each warp that brings them; works that are known at once. */
enum { RAW_STAGES = 2, PROMPT_PLANS = 4 };

/* Heads of up to D elements; KEYS positions in a chunk; STAGES of keys and of values; Q_STAGES: of
 * q; TURNS: warpgroups take turns at issuing products. */
template <int D_, int GROUPS_, int KEYS_, int STAGES_, int Q_STAGES_, bool TURNS_, bool Q8_ = false>
struct prompt_shape {
    static constexpr bool Q8 = Q8_; /* keys and values in q8_0, which the producers unpack */
    static constexpr int D = D_;
    static constexpr int GROUPS = GROUPS_;
    static constexpr int KEYS = KEYS_;
    static constexpr int STAGES = STAGES_;
    static constexpr int Q_STAGES = Q_STAGES_;
    static constexpr bool TURNS = TURNS_;
    static constexpr int LOADERS = Q8 ? 4 : 3; /* warps that bring q */
    static constexpr int ROWS = 64 * GROUPS;
    static constexpr int THREADS = 128 * (1 + GROUPS);
    static constexpr int PAGES = KEYS / PAGE;
    static constexpr int COLUMNS = D / 64;          /* of 128 bytes */
    static constexpr int VECTORS = D / 8;           /* of q, of a pair */
    static constexpr int SCORES = KEYS / 2;         /* of a thread, for a chunk */
    static constexpr int SUMS = D / 2;              /* of a thread */
    static constexpr int WARPS = 4 * GROUPS;        /* of consumers */
    static constexpr int COLUMN_BYTES = KEYS * 128; /* 64 columns of a chunk */
    static constexpr int CHUNK_BYTES = KEYS * D * 2;
    static constexpr int GROUP_BYTES = 64 * D * 2; /* q of a warpgroup */
    static constexpr int Q_BYTES = GROUPS * GROUP_BYTES;
    static constexpr int PAIRS = D > (Q8 ? 64 : 128) ? 4 : 8; /* whose floats are brought at once */
    static constexpr int RAW_BYTES = PAIRS * D * 4;
    static constexpr int RINGS = Q_STAGES * Q_BYTES + 2 * STAGES * CHUNK_BYTES;
    static constexpr int SMEM = RINGS + LOADERS * RAW_STAGES * RAW_BYTES + 1024;
    static constexpr int TWO_REGS = Q8 ? 208 : 224;
    static constexpr int CONSUMER_REGS = GROUPS == 3 ? 160 : TWO_REGS;
    static constexpr int PRODUCER_REGS = GROUPS == 3 ? 32 : 504 - 2 * TWO_REGS;
};

#ifdef CU_SM90A
__device__ __forceinline__ int lane_index() {
    return threadIdx.x % 32;
}
__device__ __forceinline__ bool is_first_lane() {
    return lane_index() == 0;
}

/* A tile and the chunks [from, to] that it sees; first, last: positions of its rows. to < 0: the
 * block's work is done. */
struct prompt_work {
    tile_of tile;
    int kvh;
    int first, last;
    int from, to;
};

/* ---- shared memory --------------------------------------------------------------------------- */
/* A thread's end of a ring of stages in shared memory. */
template <int STAGES, int BYTES> struct prompt_ring {
    uint32_t data, full, empty; /* full, empty: barriers of the first stage */
    int at;
    uint32_t parity;
    __device__ __forceinline__ void set_out(const uint64_t *full_bars, const uint64_t *empty_bars) {
        full = shared_at(full_bars);
        empty = shared_at(empty_bars);
        at = 0;
        parity = 0;
    }
    __device__ __forceinline__ uint32_t here() const {
        return data + at * BYTES;
    }
    __device__ __forceinline__ uint32_t full_here() const {
        return full + 8 * at;
    }
    __device__ __forceinline__ void next_stage() {
        at++;
        if (at < STAGES)
            return;
        at = 0;
        parity ^= 1;
    }
    __device__ __forceinline__ void await_data() const {
        barrier_wait(full + 8 * at, parity);
    }
    /* A fresh barrier's phase before the first counts as over. */
    __device__ __forceinline__ void await_room() const {
        barrier_wait(empty + 8 * at, parity ^ 1);
    }
    /* By each warp that has read the stage. */
    __device__ __forceinline__ void hand_back() {
        if (is_first_lane())
            barrier_arrive(empty + 8 * at);
        next_stage();
    }
};
template <class S> using chunk_ring = prompt_ring<S::STAGES, S::CHUNK_BYTES>;
template <class S> using raw_ring = prompt_ring<RAW_STAGES, S::RAW_BYTES>;
template <class S> using q_ring = prompt_ring<S::Q_STAGES, S::Q_BYTES>;

/* A work as consumers see it, with the position of each pair's row; -1: none. A consumer that has
 * handed back q still reads it, so that there are two more than stages of q. */
template <class S> struct prompt_plan {
    prompt_work work;
    int pos[S::ROWS];
};
/* Barriers of the rings; which pages of a chunk of keys are there, a bit each; works in turn;
 * scores of rows that a warp computes by itself. */
template <class S> struct prompt_state {
    uint64_t full_k[S::STAGES], empty_k[S::STAGES];
    uint64_t full_v[S::STAGES], empty_v[S::STAGES];
    uint64_t full_q[S::Q_STAGES], empty_q[S::Q_STAGES];
    uint64_t full_raw[S::LOADERS * RAW_STAGES];
    uint64_t cut;
    int there[S::STAGES];
    prompt_plan<S> plan[PROMPT_PLANS];
    float score[S::WARPS][PAGE];
};
/* n barriers that wait for so many arrivals. */
__device__ __forceinline__ void init_some(uint64_t *bars, int n, int arrivals) {
    for (int i = 0; i < n; i++)
        barrier_init(shared_at(&bars[i]), arrivals);
}
template <class S> __device__ __forceinline__ void init_barriers(prompt_state<S> *state) {
    init_some(state->full_k, S::STAGES, S::Q8 ? 4 : 1);
    init_some(state->full_v, S::STAGES, S::Q8 ? 4 : 1);
    init_some(state->empty_k, S::STAGES, S::WARPS);
    init_some(state->empty_v, S::STAGES, S::WARPS);
    init_some(state->full_q, S::Q_STAGES, S::LOADERS);
    init_some(state->empty_q, S::Q_STAGES, S::WARPS);
    init_some(state->full_raw, S::LOADERS * RAW_STAGES, 1);
    init_some(&state->cut, 1, 1);
    barrier_publish();
}
/* The rings as they are at first. */
template <class S> struct prompt_rings {
    prompt_state<S> *state;
    q_ring<S> q;
    chunk_ring<S> k, v;
    raw_ring<S> raw; /* of the first loader; the others' lie behind */
};
template <class S>
__device__ __forceinline__ prompt_rings<S> rings_of(prompt_state<S> *state, uint32_t base) {
    prompt_rings<S> r;
    r.state = state;
    r.q.data = base;
    base += S::Q_STAGES * S::Q_BYTES;
    r.k.data = base;
    base += S::STAGES * S::CHUNK_BYTES;
    r.v.data = base;
    base += S::STAGES * S::CHUNK_BYTES;
    r.raw.data = base;
    r.q.set_out(state->full_q, state->empty_q);
    r.k.set_out(state->full_k, state->empty_k);
    r.v.set_out(state->full_v, state->empty_v);
    r.raw.set_out(state->full_raw, state->full_raw); /* loaders know when it is empty */
    return r;
}

/* ---- works ----------------------------------------------------------------------------------- */
__device__ __forceinline__ int heads_sharing(const cu_attend &a) {
    return a.H / a.c.Hkv;
}

/* Work i of `tiles` tiles of each head; all threads of a warp. false: none of its rows is valid. */
template <class S>
__device__ __forceinline__ bool work_of(const cu_attend &a, int i, int tiles, prompt_work *w) {
    const int each = S::ROWS / heads_sharing(a);
    int last = -1;
    int first = INT_MAX;
    w->tile = tile_of{};
    w->kvh = i % a.c.Hkv;
    const int before = i / a.c.Hkv;
    find_rows(a, tiles - 1 - before, each, &w->tile);
    const int lane = lane_index();
    for (int r = lane; r < w->tile.rows; r += 32) {
        const int pos = position_of(a.c, w->tile.first + r);
        last = max(last, pos);
        if (pos >= 0)
            first = min(first, pos);
    }
    w->last = __reduce_max_sync(~0u, last);
    w->first = __reduce_min_sync(~0u, first);
    w->from = first_seen(a, w->first) / S::KEYS;
    w->to = w->last / S::KEYS;
    return w->last >= 0;
}

/* Works of this block in turn, without those that have no row: forth and back, so that none has the
 * longest of each round. */
struct prompt_line {
    int tiles;
    int round;
};
template <class S>
__device__ __forceinline__ bool next_work(const cu_attend &a, prompt_line *line, prompt_work *w) {
    const int works = line->tiles * a.c.Hkv;
    const int blocks = gridDim.x;
    while (line->round * blocks < works) {
        const int round = line->round++;
        int index = round * blocks;
        if (round % 2)
            index += blocks - 1 - blockIdx.x;
        else
            index += blockIdx.x;
        if (index >= works)
            continue;
        if (work_of<S>(a, index, line->tiles, w))
            return true;
    }
    return false;
}
#endif
#endif
