/* prompt_sm90.cuh -- attention of many rows of a sequence on Hopper (Shah 2024): a block has tiles
 * of 64 pairs of query row and head for each of its consumer warpgroups, all of one group of heads
 * that share keys and values, and walks the positions that any row of a tile sees from the last
 * one down, with a running maximum and sum per row. Of the producer warpgroup one warp asks the
 * copy engine for chunks of one or two pages, the others bring q of the next tile. Consumers
 * compute scores from shared memory, and multiply weights, which stay in registers, by values.
 * While a warpgroup is at its softmax, another one's products run, and its own of the chunk before.
 * Scores and sums are f32; q, keys, values and weights are f16. Blocks stay for all tiles, the
 * longest first.
 *
 * As in prompt.cuh: weights of what a row must not see are 0, and what may be no number there (the
 * positions behind a tile's last row, pages that are not the sequence's) is read as zeros. If a row
 * ends as NaN or infinite a warp computes it once more by itself, over exactly what it sees. */
#ifndef CU_PROMPT_SM90_CUH
#define CU_PROMPT_SM90_CUH
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

/* ---- keys and values ------------------------------------------------------------------------- */
__device__ __forceinline__ void ask_page(uint32_t to, const CUtensorMap *map, uint32_t bar, int x,
                                         int kvh, int page) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x), "r"(0), "r"(kvh), "r"(page)
                 : "memory");
}

/* Pages of a chunk; one that is not the sequence's, or that no row sees, lies behind all pages,
 * where the copy engine finds zeros. */
template <class S> struct chunk_pages {
    int page[S::PAGES];
    int there;
};
template <class S>
__device__ __forceinline__ chunk_pages<S> pages_of(const cu_attend &a, const prompt_work &w,
                                                   int chunk) {
    const cu_cache &c = a.c;
    const int begin = first_seen(a, w.first) / PAGE;
    chunk_pages<S> r;
    r.there = 0;
#pragma unroll
    for (int i = 0; i < S::PAGES; i++) {
        const int at = chunk * S::PAGES + i;
        int page = -1;
        if (at >= begin && at <= w.last / PAGE)
            page = page_of(c, w.tile.slot, at);
        const bool is = page >= 0 && page < c.n_pages;
        r.page[i] = is ? page : (int)c.n_pages;
        r.there |= is ? 1 << i : 0;
    }
    return r;
}

/* A chunk to shared memory, counted by the barrier; one thread. */
template <class S>
__device__ __forceinline__ void ask_chunk(uint32_t to, const CUtensorMap *map, uint32_t bar,
                                          int kvh, const chunk_pages<S> &pages) {
    barrier_expect(bar, S::CHUNK_BYTES);
#pragma unroll
    for (int x = 0; x < S::COLUMNS; x++) {
        uint32_t place = to + x * S::COLUMN_BYTES;
#pragma unroll
        for (int i = 0; i < S::PAGES; i++) {
            const int page = pages.page[i];
            ask_page(place, map, bar, 64 * x, kvh, page);
            place += PAGE * 128;
        }
    }
}

/* Zeros for a chunk's positions from `from` on, for products; all threads of a warp. */
template <class S> __device__ __forceinline__ void zero_values(uint32_t v, int from) {
    const int lane = lane_index();
#pragma unroll
    for (int x = 0; x < S::COLUMNS; x++) {
        const uint32_t end = v + S::COLUMN_BYTES;
        const uint32_t first = v + from * 128;
#pragma unroll 4
        for (uint32_t at = first + lane * 8; at < end; at += 256)
            shared_store(at, 0, 0);
        v = end;
    }
    fence_products();
    __syncwarp();
}

template <class S>
__device__ __forceinline__ void load_keys(const prompt_params &p, prompt_rings<S> *m,
                                          const prompt_work &w, const chunk_pages<S> &pages) {
    if (is_first_lane()) {
        m->k.await_room();
        m->state->there[m->k.at] = pages.there;
        const uint32_t bar = m->k.full_here();
        ask_chunk(m->k.here(), &p.keys, bar, w.kvh, pages);
    }
    m->k.next_stage();
}
/* What lies behind `own` positions of a chunk's values is made zeros before consumers hear of
 * it. */
template <class S>
__device__ __forceinline__ void finish_cut(prompt_rings<S> *m, int own, uint32_t *parity) {
    barrier_wait(shared_at(&m->state->cut), *parity);
    *parity ^= 1;
    zero_values<S>(m->v.here(), own);
    if (is_first_lane())
        barrier_arrive(m->v.full_here());
}
/* The chunks of one work; one warp. Keys are one chunk ahead of values. */
template <class S>
__device__ __forceinline__ void load_chunks(const prompt_params &p, prompt_rings<S> *m,
                                            const prompt_work &w, uint32_t *cut_parity) {
    chunk_pages<S> pages = pages_of<S>(p.a, w, w.to);
    chunk_pages<S> next = pages_of<S>(p.a, w, w.to - 1);
    load_keys(p, m, w, pages);
    for (int n = w.to; n >= w.from; n--) {
        const int own = w.last + 1 - n * S::KEYS; /* positions up to the last row */
        const bool cuts = own < S::KEYS;
        uint32_t bar = m->v.full_here();
        if (cuts)
            bar = shared_at(&m->state->cut);
        const chunk_pages<S> after = pages_of<S>(p.a, w, n - 2);
        if (is_first_lane()) {
            m->v.await_room();
            ask_chunk(m->v.here(), &p.values, bar, w.kvh, pages);
        }
        if (n > w.from)
            load_keys(p, m, w, next);
        if (cuts)
            finish_cut(m, own, cut_parity);
        m->v.next_stage();
        pages = next;
        next = after;
    }
}
template <class S>
__device__ __forceinline__ void bring_chunks(const prompt_params &p, prompt_rings<S> m, int tiles) {
    prompt_line line = {tiles, 0};
    prompt_work w;
    uint32_t cut_parity = 0;
    while (next_work<S>(p.a, &line, &w))
        load_chunks(p, &m, w, &cut_parity);
}

/* ---- q --------------------------------------------------------------------------------------- */
/* Bytes to shared memory, counted by the barrier; all multiples of 16. */
__device__ __forceinline__ void ask_bytes(uint32_t to, const void *from, int bytes, uint32_t bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
}
/* Where the head of a pair is in memory; NULL: no row of the tile. */
__device__ __forceinline__ const float *q_from(const cu_attend &a, const prompt_work &w, int pair) {
    const int heads = heads_sharing(a);
    const int row = pair / heads;
    const int head = w.kvh * heads + pair % heads;
    if (row >= w.tile.rows)
        return NULL;
    const int64_t of_step = w.tile.first + row;
    const int64_t of_head = of_step * a.H + head;
    return a.q + of_head * a.c.dk;
}
/* Vector x of a pair in shared memory, swizzled for products. */
template <class S> __device__ __forceinline__ uint32_t q_to(int pair, int x) {
    const int r = pair % 64;
    const uint32_t group = pair / 64 * S::GROUP_BYTES;
    const uint32_t columns = x / 8 * (64 * 128);
    const int vector = (x ^ r) % 8;
    return group + columns + r * 128 + vector * 16;
}

/* The floats of some pairs, from `pair` on; one warp. */
template <class S>
__device__ __forceinline__ void ask_pairs(const cu_attend &a, const prompt_work &w, int pair,
                                          raw_ring<S> *raw) {
    const int lane = lane_index();
    const int bytes = a.c.dk * 4;
    const float *from = NULL;
    if (lane < S::PAIRS && pair < S::ROWS)
        from = q_from(a, w, pair + lane);
    const unsigned there = __ballot_sync(~0u, from != NULL);
    const int all = __popc(there) * bytes;
    if (lane == 0)
        barrier_expect(raw->full_here(), all);
    __syncwarp();
    const uint32_t to = raw->here() + lane * S::D * 4;
    if (from)
        ask_bytes(to, from, bytes, raw->full_here());
    raw->next_stage();
}
__device__ __forceinline__ float4 shared_four(uint32_t from) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(from)
                 : "memory");
    return v;
}
/* Whether one of two halves is infinite or no number: adding carries into their signs. */
__device__ __forceinline__ uint32_t exceeds_half(uint32_t two) {
    const uint32_t sizes = two & 0x7fff7fff;
    return (sizes + 0x04000400) & 0x80008000;
}
/* to_half of two; that few numbers need more than rounding keeps this short. */
__device__ __forceinline__ uint32_t two_halves(float a, float b) {
    const uint32_t two = pack2(a, b);
    if (!exceeds_half(two))
        return two;
    const __half2 h = __halves2half2(to_half(a), to_half(b));
    return *(const uint32_t *)&h;
}
/* Eight floats to halves. */
__device__ __forceinline__ void round_vector(uint32_t to, uint32_t from) {
    const float4 low = shared_four(from);
    const float4 high = shared_four(from + 16);
    uint32_t x = pack2(low.x, low.y);
    uint32_t y = pack2(low.z, low.w);
    uint32_t z = pack2(high.x, high.y);
    uint32_t w = pack2(high.z, high.w);
    const uint32_t first = exceeds_half(x) | exceeds_half(y);
    const uint32_t second = exceeds_half(z) | exceeds_half(w);
    if (first | second) {
        x = two_halves(low.x, low.y);
        y = two_halves(low.z, low.w);
        z = two_halves(high.x, high.y);
        w = two_halves(high.z, high.w);
    }
    shared_store(to, x, y);
    shared_store(to + 8, z, w);
}
/* What ask_pairs asked for becomes q; zeros beyond a head, or where there is no row. */
template <class S>
__device__ __forceinline__ void round_pairs(const cu_attend &a, const prompt_work &w, int first,
                                            uint32_t q, const raw_ring<S> &raw) {
    const int pairs = w.tile.rows * heads_sharing(a);
#pragma unroll 2
    for (int i = lane_index(); i < S::PAIRS * S::VECTORS; i += 32) {
        const int pair = first + i / S::VECTORS;
        const int x = i % S::VECTORS;
        const uint32_t to = q + q_to<S>(pair, x);
        if (pair < pairs && 8 * x < a.c.dk) {
            round_vector(to, raw.here() + i * 32);
            continue;
        }
        shared_store(to, 0, 0);
        shared_store(to + 8, 0, 0);
    }
    __syncwarp();
}
/* q of a tile: this loader's part of it, some pairs at a time. Floats of the first are asked for
 * before there is room for q. */
template <class S>
__device__ __forceinline__ void fill_q(const cu_attend &a, prompt_rings<S> *m, const prompt_work &w,
                                       int loader, raw_ring<S> *asked, raw_ring<S> *taken) {
    constexpr int STEP = S::LOADERS * S::PAIRS;
    const int first = loader * S::PAIRS;
    for (int i = 0; i < RAW_STAGES; i++)
        if (first + i * STEP < S::ROWS)
            ask_pairs<S>(a, w, first + i * STEP, asked);
    m->q.await_room();
#pragma unroll 1
    for (int pair = first; pair < S::ROWS; pair += STEP) {
        const int next = pair + RAW_STAGES * STEP;
        taken->await_data();
        round_pairs<S>(a, w, pair, m->q.here(), *taken);
        taken->next_stage();
        if (next < S::ROWS)
            ask_pairs<S>(a, w, next, asked);
    }
}
template <class S>
__device__ __forceinline__ void plan_pairs(const cu_attend &a, const prompt_work &w, int rank,
                                           prompt_plan<S> *plan) {
    const int heads = heads_sharing(a);
    for (int i = rank; i < S::ROWS; i += 32 * S::LOADERS) {
        const int row = i / heads;
        plan->pos[i] = -1;
        if (row < w.tile.rows)
            plan->pos[i] = position_of(a.c, w.tile.first + row);
    }
    if (rank == 0)
        plan->work = w;
}
/* Consumers hear of the work whose q is in this stage. */
template <class S> __device__ __forceinline__ void publish_work(prompt_rings<S> *m) {
    fence_products();
    __syncwarp();
    if (is_first_lane())
        barrier_arrive(m->q.full_here());
    m->q.next_stage();
}
/* Consumers hear that work n is none. */
template <class S>
__device__ __forceinline__ void publish_end(prompt_rings<S> *m, int rank, int n) {
    m->q.await_room();
    if (rank == 0)
        m->state->plan[n % PROMPT_PLANS].work.to = -1;
    publish_work(m);
}
/* A loader's rings of floats: asked for, and rounded. */
template <class S> struct raw_rings { raw_ring<S> asked, taken; };
template <class S>
__device__ __forceinline__ raw_rings<S> raw_of(const prompt_rings<S> &m, int loader) {
    raw_rings<S> r;
    const int before = loader * RAW_STAGES;
    r.asked = m.raw;
    r.asked.data += before * S::RAW_BYTES;
    r.asked.full += before * 8;
    r.taken = r.asked;
    return r;
}
template <class S>
__device__ __forceinline__ void bring_q(const cu_attend &a, prompt_rings<S> m, int tiles) {
    const int rank = threadIdx.x - 32;
    const int loader = rank / 32;
    raw_rings<S> raw = raw_of<S>(m, loader);
    prompt_line line = {tiles, 0};
    prompt_work w;
    int n = 0;
    while (next_work<S>(a, &line, &w)) {
        fill_q(a, &m, w, loader, &raw.asked, &raw.taken);
        plan_pairs(a, w, rank, &m.state->plan[n % PROMPT_PLANS]);
        publish_work(&m);
        n++;
    }
    publish_end(&m, rank, n);
}

/* ---- q8_0 ------------------------------------------------------------------------------------ */
/* 16 codes of a row, and their scale. */
struct sixteen_codes {
    uint4 codes;
    __half scale;
};
/* Two codes that lie in the lower half of a word with their signs flipped, above 1,024. */
__device__ __forceinline__ uint32_t scaled_codes(uint32_t two, __half2 scale) {
    const __half2 above = __float2half2_rn(1152.0f);
    const __half2 codes = __hsub2(*(const __half2 *)&two, above);
    const __half2 value = __hmul2(codes, scale);
    return *(const uint32_t *)&value;
}
__device__ __forceinline__ void store_codes(uint32_t to, uint32_t x, uint32_t y, __half scale) {
    const __half2 two = __half2half2(scale);
    x ^= 0x80808080;
    y ^= 0x80808080;
    const uint32_t a = __byte_perm(x, 0x64646464, 0x4140);
    const uint32_t b = __byte_perm(x, 0x64646464, 0x4342);
    const uint32_t c = __byte_perm(y, 0x64646464, 0x4140);
    const uint32_t d = __byte_perm(y, 0x64646464, 0x4342);
    shared_store(to, scaled_codes(a, two), scaled_codes(b, two));
    shared_store(to + 8, scaled_codes(c, two), scaled_codes(d, two));
}
/* Piece x of a row of a page; zeros where there is none. */
__device__ __forceinline__ sixteen_codes read_codes(char *head, int row, int x, int pad) {
    sixteen_codes r = {};
    if (!head || 16 * x >= pad)
        return r;
    const uint4 *codes = (const uint4 *)q8_codes_at(head, row, pad);
    const __half *scales = q8_scales_at(head, row, pad);
    r.codes = __ldcg(&codes[x]);
    r.scale = __ldcg(&scales[x / 2]);
    return r;
}
/* Keys, or values, of a work's chunk in memory; own: positions up to the last row. */
template <class S> struct packed_chunk {
    char *head[S::PAGES]; /* NULL: not the sequence's, or not seen */
    int pad;
    int own;
};
template <class S>
__device__ __forceinline__ packed_chunk<S> packed_of(const cu_attend &a, const prompt_work &w,
                                                     const chunk_pages<S> &pages, int n,
                                                     bool values) {
    packed_chunk<S> r;
    r.pad = values ? a.c.pv : a.c.pk;
    r.own = w.last + 1 - n * S::KEYS;
#pragma unroll
    for (int i = 0; i < S::PAGES; i++) {
        char *plane = keys_at(a.c, pages.page[i]);
        if (values)
            plane += a.c.v_offset;
        r.head[i] = NULL;
        if (pages.there >> i & 1)
            r.head[i] = q8_head(plane, w.kvh, r.pad);
    }
    return r;
}
/* A chunk to a stage as f16, by all producers. */
template <class S>
__device__ __forceinline__ void unpack_chunk(const packed_chunk<S> &from, int there,
                                             prompt_rings<S> *m, chunk_ring<S> *to) {
    constexpr int PIECES = S::D / 16; /* of a row */
    constexpr int OWN = S::KEYS * PIECES / 128;
    constexpr int AT_ONCE = 4;
#pragma unroll 1
    for (int i = 0; i < OWN; i += AT_ONCE) {
        const int first = threadIdx.x + i * 128;
        sixteen_codes now[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int piece = first + j * 128;
            const int row = piece / PIECES;
            const int x = piece % PIECES;
            char *head = from.head[0];
            if (S::PAGES > 1 && row >= PAGE)
                head = from.head[S::PAGES - 1];
            if (row >= from.own)
                head = NULL;
            now[j] = read_codes(head, row % PAGE, x, from.pad);
        }
        if (i == 0)
            to->await_room();
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int piece = first + j * 128;
            const int row = piece / PIECES;
            const int vector = piece % PIECES * 2;
            uint32_t place = to->here() + row * 128;
            place += vector / 8 * S::COLUMN_BYTES;
            const int at = (vector ^ row) % 8;
            const uint4 c = now[j].codes;
            const __half scale = now[j].scale;
            store_codes(place + at * 16, c.x, c.y, scale);
            store_codes(place + (at ^ 1) * 16, c.z, c.w, scale);
        }
    }
    if (threadIdx.x == 0 && there >= 0)
        m->state->there[to->at] = there;
    fence_products();
    __syncwarp();
    if (is_first_lane())
        barrier_arrive(to->full_here());
    to->next_stage();
}
template <class S>
__device__ __forceinline__ void unpack_chunks(const cu_attend &a, prompt_rings<S> *m,
                                              const prompt_work &w) {
    chunk_pages<S> pages = pages_of<S>(a, w, w.to);
    for (int n = w.to; n >= w.from; n--) {
        const chunk_pages<S> next = pages_of<S>(a, w, n - 1);
        const packed_chunk<S> keys = packed_of<S>(a, w, pages, n, false);
        unpack_chunk(keys, pages.there, m, &m->k);
        const packed_chunk<S> values = packed_of<S>(a, w, pages, n, true);
        unpack_chunk(values, -1, m, &m->v);
        pages = next;
    }
}
/* All that consumers need, by all warps of the producers. */
template <class S>
__device__ __forceinline__ void bring_packed(const cu_attend &a, prompt_rings<S> m, int tiles) {
    const int rank = threadIdx.x;
    const int loader = rank / 32;
    raw_rings<S> raw = raw_of<S>(m, loader);
    prompt_line line = {tiles, 0};
    prompt_work w;
    int n = 0;
    while (next_work<S>(a, &line, &w)) {
        const int at = n % PROMPT_PLANS;
        n++;
        fill_q(a, &m, w, loader, &raw.asked, &raw.taken);
        plan_pairs(a, w, rank, &m.state->plan[at]);
        publish_work(&m);
        unpack_chunks(a, &m, w);
    }
    publish_end(&m, rank, n);
}

/* ---- consumers: turns and rows --------------------------------------------------------------- */
enum { TURN_BARRIER = 1 }; /* number of the first warpgroup's */
template <class S> __device__ __forceinline__ void turn_take(int group) {
    if (S::TURNS)
        named_wait(TURN_BARRIER + group, 256);
}
template <class S> __device__ __forceinline__ void turn_pass(int group) {
    if (S::TURNS)
        named_arrive(TURN_BARRIER + (group + 1) % S::GROUPS, 256);
}

/* The first of a thread's two pairs of a tile; the other is 8 behind. */
__device__ __forceinline__ int thread_pair() {
    const int warp = threadIdx.x / 32 - 4;
    return warp * 16 + lane_index() / 4;
}
/* Positions of a warp's rows: all see what lies behind `high` less a window, up to `low`. */
struct prompt_span {
    int low, high;
};
__device__ __forceinline__ prompt_span span_of_warp(const int *pos) {
    const int pos0 = pos[thread_pair()];
    const int pos1 = pos[thread_pair() + 8];
    prompt_span r;
    int low = pos0 < 0 ? INT_MAX : pos0;
    if (pos1 >= 0)
        low = min(low, pos1);
    r.low = __reduce_min_sync(~0u, low);
    r.high = __reduce_max_sync(~0u, max(pos0, pos1));
    return r;
}

/* ---- consumers: products --------------------------------------------------------------------- */
/* s [64 rows, KEYS] = q k^T */
template <class S> __device__ __forceinline__ void issue_scores(float *s, uint32_t q, uint32_t k) {
    uint64_t q_at = wgmma_operand(q);
    uint64_t k_at = wgmma_operand(k);
    wgmma_fence();
#pragma unroll
    for (int x = 0; x < S::COLUMNS; x++) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            wgmma<CU_HALF, S::KEYS>(s, q_at + 2 * j, k_at + 2 * j, x + j);
        q_at += 64 * 128 / 16;
        k_at += S::COLUMN_BYTES / 16;
    }
    wgmma_commit();
}
/* o [64 rows, D] += weights v */
template <class S>
__device__ __forceinline__ void issue_values(float *o, const uint32_t *weights, uint32_t v) {
    uint64_t v_at = wgmma_rows(v, S::COLUMN_BYTES);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < S::SCORES / 2; j += 4) {
        wgmma_by_rows<S::D>(o, weights + j, v_at);
        v_at += 128; /* 16 rows */
    }
    wgmma_commit();
}
template <int N> __device__ __forceinline__ void settle_sums(float *d) {
#pragma unroll
    for (int j = 0; j < N; j++)
        asm volatile("" : "+f"(d[j])::"memory");
}

constexpr float LOG2_E = 1.44269504f;
__device__ __forceinline__ float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* softcap * tanh(scale x / softcap) */
template <class S> __device__ __forceinline__ void cap_chunk(const cu_attend &a, float *s) {
    const float cap = a.softcap;
    const float slope = 2 * LOG2_E * a.scale / cap;
#pragma unroll
    for (int j = 0; j < S::SCORES; j++) {
        const float e = exp2_of(slope * s[j]);
        s[j] = cap - __fdividef(2 * cap, e + 1);
    }
}
/* Minus infinity for what a row does not see of a chunk. */
template <class S>
__device__ __forceinline__ void mask_chunk(const cu_attend &a, const int *pos, int chunk, int there,
                                           float *s) {
    const int from = chunk * S::KEYS + threadIdx.x % 4 * 2;
    const int pos0 = pos[thread_pair()];
    const int pos1 = pos[thread_pair() + 8];
#pragma unroll
    for (int j = 0; j < S::SCORES; j++) {
        const int column = j / 4 * 8 + j % 2;
        const bool is = there >> column / PAGE & 1;
        const int own = j / 2 % 2 ? pos1 : pos0;
        if (!is || !sees(a, own, from + column))
            s[j] = -INFINITY;
    }
}

/* What a thread has of its two rows: maximum, its part of the sum; what sums until now are to be
 * multiplied by. */
struct prompt_softmax {
    float m[2];
    float sum[2];
    float old[2];
};
__device__ __forceinline__ float max_of_three(float a, float b, float c) {
    return fmaxf(a, fmaxf(b, c));
}
/* Scores become weights; to_log2: what a score is multiplied by. */
template <class S>
__device__ __forceinline__ void weigh_chunk(float *s, float to_log2, prompt_softmax *x) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = x->m[h];
#pragma unroll
        for (int j = 2 * h; j < S::SCORES; j += 4)
            top = max_of_three(top, s[j], s[j + 1]);
        top = max_of_four(top);
        const float base = top == -INFINITY ? 0 : top * to_log2;
        const float down = fmaf(x->m[h], to_log2, -base);
        x->old[h] = exp2_of(down);
        x->m[h] = top;
        float sum = x->sum[h] * x->old[h];
#pragma unroll
        for (int j = 2 * h; j < S::SCORES; j += 4) {
            const float low = fmaf(s[j], to_log2, -base);
            const float high = fmaf(s[j + 1], to_log2, -base);
            s[j] = exp2_of(low);
            s[j + 1] = exp2_of(high);
            sum += s[j] + s[j + 1];
        }
        x->sum[h] = sum;
    }
}
template <class S> __device__ __forceinline__ void pack_weights(const float *s, uint32_t *weights) {
#pragma unroll
    for (int j = 0; j < S::SCORES / 2; j++)
        weights[j] = pack2(s[2 * j], s[2 * j + 1]);
}
template <class S> __device__ __forceinline__ void scale_sums(float *o, const float old[2]) {
#pragma unroll
    for (int j = 0; j < S::SUMS; j++)
        o[j] *= old[j / 2 % 2];
}

/* A tile as a consumer's thread has it. */
template <class S> struct prompt_view {
    const prompt_plan<S> *plan;
    prompt_span span;
    float to_log2;
    uint32_t q; /* of the warpgroup */
};
/* The scores of a chunk, masked, from products that are over: weights and sums. */
template <class S>
__device__ __forceinline__ void finish_scores(const cu_attend &a, const prompt_view<S> &t,
                                              int chunk, int there, float *s, prompt_softmax *x) {
    const int first = chunk * S::KEYS;
    const int last = first + S::KEYS - 1;
    const bool cut = there != (1 << S::PAGES) - 1;
    const bool behind = last > t.span.low;
    bool before = false;
    if (a.window > 0)
        before = first <= t.span.high - a.window;
    if (a.softcap != 0)
        cap_chunk<S>(a, s);
    if (cut || behind || before)
        mask_chunk<S>(a, t.plan->pos, chunk, there, s);
    weigh_chunk<S>(s, t.to_log2, x);
}

/* ---- consumers: results ---------------------------------------------------------------------- */
/* Two neighbours of a row, the first at an even place. */
__device__ __forceinline__ void put_two(void *y, int64_t i, float a, float b, int kind) {
    const float f = kind == CU_LOW ? 1.0f / CU_LOWERED : 1;
    if (kind == CU_F32)
        *(float2 *)((float *)y + i) = make_float2(a, b);
    else if (kind == CU_BF16)
        *(__nv_bfloat162 *)((__nv_bfloat16 *)y + i) = __floats2bfloat162_rn(a, b);
    else
        *(uint32_t *)((__half *)y + i) = two_halves(a * f, b * f);
}

/* What the sums of row h are to be multiplied by; sinks: as of one more position. */
__device__ __forceinline__ float row_factor(const cu_attend &a, int head, float own, float sum) {
    if (!a.sinks)
        return 1 / sum;
    const float sink = a.sinks[head] * LOG2_E;
    const float top = fmaxf(own, sink);
    const float factor = exp2_of(own - top);
    return factor / (sum * factor + exp2_of(sink - top));
}

/* Row h of a thread's: sums become y; whether any is no number. */
template <class S>
__device__ __forceinline__ bool write_pair(const cu_attend &a, const prompt_plan<S> &plan, int h,
                                           const float *o, float to_log2, const prompt_softmax &x) {
    const int heads = heads_sharing(a);
    const int pair = thread_pair() + 8 * h;
    const int head = plan.work.kvh * heads + pair % heads;
    const int64_t row = plan.work.tile.first + pair / heads;
    const int column = threadIdx.x % 4 * 2;
    const int64_t of_head = row * a.H + head;
    const int64_t at = of_head * a.c.dv + column;
    const float sum = sum_of_four(x.sum[h]);
    if (plan.pos[pair] < 0)
        return false;
    const float own = x.m[h] * to_log2;
    const float factor = row_factor(a, head, own, sum);
    float finite = 0;
    o += 2 * h;
#pragma unroll
    for (int j = 0; j < S::VECTORS; j++) {
        const float low = o[4 * j] * factor;
        const float high = o[4 * j + 1] * factor;
        if (8 * j >= a.c.dv)
            break;
        finite = fmaf(low, 0.0f, finite);
        finite = fmaf(high, 0.0f, finite);
        put_two(a.y, at + 8 * j, low, high, a.y_kind);
    }
    return !(finite == 0);
}
/* Rows h that met NaN or infinity, by the warp that has them; bad: whether the thread's own did. */
template <class S>
__device__ void repair_pairs(const cu_attend &a, const prompt_plan<S> &plan, int h, bool bad,
                             float *score) {
    const int heads = heads_sharing(a);
    const tile_of &tile = plan.work.tile;
    unsigned left = __ballot_sync(~0u, bad);
    while (left) {
        const int lane = __ffs(left) - 1;
        const int pair = __shfl_sync(~0u, thread_pair() + 8 * h, lane);
        const int row = tile.first + pair / heads;
        const int head = plan.work.kvh * heads + pair % heads;
        const int pos = plan.pos[pair];
        attend_alone<S::D, S::Q8, 32>(a, score, tile.slot, plan.work.kvh, row, head, pos);
        left &= ~(15u << lane / 4 * 4);
    }
}

/* ---- consumers ------------------------------------------------------------------------------- */
/* Scores are over, but for LEFT groups of products behind them. */
template <int LEFT, class S>
__device__ __forceinline__ void finish_keys(float *s, prompt_rings<S> *m) {
    wgmma_wait<LEFT>();
    settle_sums<S::SCORES>(s);
    m->k.hand_back();
}
/* Values by weights: issued; and over. */
template <class S>
__device__ __forceinline__ void multiply_values(float *o, const uint32_t *weights,
                                                prompt_rings<S> *m) {
    m->v.await_data();
    issue_values<S>(o, weights, m->v.here());
}
template <class S> __device__ __forceinline__ void finish_values(float *o, prompt_rings<S> *m) {
    wgmma_wait<0>();
    settle_sums<S::SUMS>(o);
    m->v.hand_back();
}
/* Sums of a tile become y. */
template <class S>
__device__ __forceinline__ void finish_tile(const cu_attend &a, prompt_state<S> *state,
                                            const prompt_view<S> &t, const float *o,
                                            const prompt_softmax &x) {
    const bool bad0 = write_pair(a, *t.plan, 0, o, t.to_log2, x);
    const bool bad1 = write_pair(a, *t.plan, 1, o, t.to_log2, x);
    if (!__any_sync(~0u, bad0 || bad1))
        return;
    const int warp = threadIdx.x / 32 - 4;
    float *score = state->score[warp];
#pragma unroll 1
    for (int h = 0; h < 2; h++) {
        const bool bad = h ? bad1 : bad0;
        repair_pairs(a, *t.plan, h, bad, score);
    }
}

/* The chunks of a tile: sums of values, and the softmax. */
template <class S>
__device__ __forceinline__ void walk_chunks(const cu_attend &a, prompt_rings<S> *m,
                                            const prompt_view<S> &t, int group, float *o,
                                            prompt_softmax *x) {
    const int from = t.plan->work.from;
    const int to = t.plan->work.to;
    float s[S::SCORES];
    uint32_t weights[S::SCORES / 2];
    m->k.await_data();
    int there = m->state->there[m->k.at];
    issue_scores<S>(s, t.q, m->k.here());
    finish_keys<0>(s, m);
    finish_scores(a, t, to, there, s, x);
    pack_weights<S>(s, weights);
#pragma unroll 1
    for (int n = to - 1; n >= from; n--) {
        m->k.await_data();
        there = m->state->there[m->k.at];
        turn_take<S>(group);
        issue_scores<S>(s, t.q, m->k.here());
        multiply_values(o, weights, m);
        turn_pass<S>(group);
        finish_keys<1>(s, m);
        finish_scores(a, t, n, there, s, x);
        finish_values(o, m);
        scale_sums<S>(o, x->old);
        pack_weights<S>(s, weights);
    }
    m->q.hand_back();
    multiply_values(o, weights, m);
    finish_values(o, m);
}
/* A warpgroup's rows of the work whose q is in this stage. */
template <class S>
__device__ __forceinline__ void attend_tile(const cu_attend &a, prompt_rings<S> *m,
                                            const prompt_plan<S> *plan, int group) {
    prompt_view<S> t;
    t.plan = plan;
    t.span = span_of_warp(plan->pos);
    t.to_log2 = LOG2_E;
    if (a.softcap == 0)
        t.to_log2 *= a.scale;
    t.q = m->q.here() + group * S::GROUP_BYTES;
    prompt_softmax x = {};
    x.m[0] = -INFINITY;
    x.m[1] = -INFINITY;
    float o[S::SUMS] = {};
    walk_chunks(a, m, t, group, o, &x);
    finish_tile(a, m->state, t, o, x);
}

template <class S>
__device__ __forceinline__ void consume_works(const cu_attend &a, prompt_rings<S> m, int group) {
    if (group == S::GROUPS - 1)
        turn_pass<S>(group);
    for (int i = 0;; i++) {
        const int at = i % PROMPT_PLANS;
        const prompt_plan<S> *plan = &m.state->plan[at];
        m.q.await_data();
        if (plan->work.to < 0)
            return;
        attend_tile(a, &m, plan, group);
    }
}
#endif

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1)
    attend_prompt_sm90(const __grid_constant__ prompt_params p) {
#ifdef CU_SM90A
    extern __shared__ char raw[];
    __shared__ prompt_state<S> state;
    const uint32_t base = shared_at(raw);
    const uint32_t aligned = base + (0u - base) % 1024; /* the swizzle counts from 1024 */
    const prompt_rings<S> m = rings_of<S>(&state, aligned);
    const int group = __shfl_sync(~0u, (int)threadIdx.x / 128, 0); /* known to be one a warp */
    cu_next();
    if (threadIdx.x == 0)
        init_barriers(&state);
    __syncthreads();
    cu_wait();
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(S::PRODUCER_REGS));
        const int tiles = count_tiles(p.a, S::ROWS / heads_sharing(p.a));
        if constexpr (S::Q8)
            bring_packed<S>(p.a, m, tiles);
        else if (threadIdx.x < 32)
            bring_chunks<S>(p, m, tiles);
        else
            bring_q<S>(p.a, m, tiles);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(S::CONSUMER_REGS));
        consume_works<S>(p.a, m, group - 1);
    }
#endif
}

/* ---- launches -------------------------------------------------------------------------------- */
template <class S> struct prompt_blocks {
    static bool init() {
        const void *k = (const void *)attend_prompt_sm90<S>;
        if (!cu_has_sm90(k))
            return false;
        cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SMEM);
        return true;
    }
    static void launch_prompt(cudaStream_t s, const prompt_params *p, int blocks) {
        launch(s, attend_prompt_sm90<S>, dim3((unsigned)blocks), S::THREADS, S::SMEM, *p);
    }
    static constexpr prompt_sm90_kernel row() {
        return {S::D, S::ROWS, init, launch_prompt};
    }
};
#endif
