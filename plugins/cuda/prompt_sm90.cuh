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
#include "prompt_sm90_loads.cuh"

#ifdef CU_SM90A
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
