/* prompt_sm90_loads.cuh -- the producers of prompt_sm90.cuh: keys and values by the copy engine, or
 * in q8_0 unpacked to f16; q of the next tile as f16. */
#ifndef CU_PROMPT_SM90_LOADS_CUH
#define CU_PROMPT_SM90_LOADS_CUH
#include "prompt_sm90_works.cuh"

#ifdef CU_SM90A
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
#endif
#endif
