/* k_sample.cu -- SAMPLE: one block per output row. Greedy without penalties is one arg max.
 * Otherwise nothing is sorted: every filter and the draw itself ask "which element, in the order of
 * logits, is where a running count or sum passes a goal", answered by three passes over digits of
 * the key. Probabilities are summed as 2^-45 fixed point, so that no sum depends on an order. Ties
 * go to the lower id. */
#include "kernels.h"
#include <float.h>
#include <stddef.h>

enum { THREADS = 1024, BINS = 2048 };
typedef unsigned long long u64;

/* Larger logit = larger key. */
__device__ __forceinline__ uint32_t key_of(float f) {
    uint32_t u = __float_as_uint(f == 0 ? 0.0f : f);
    if (u & 0x80000000u)
        return ~u;
    return u | 0x80000000u;
}
/* The logit of a key. */
__device__ __forceinline__ float logit_of(uint32_t key) {
    const uint32_t u = key & 0x80000000u ? key & 0x7fffffffu : ~key;
    return __uint_as_float(u);
}
/* Probability before it is divided by the sum, in fixed point; max: the largest logit. */
__device__ __forceinline__ u64 weigh(float l, float max, double temp) {
    const double below = (double)l - (double)max;
    return (u64)(exp(below / temp) * 0x1p45);
}

struct best {
    float v;
    int i;
};
__device__ __forceinline__ best better(best a, best b) {
    if (b.i < 0)
        return a;
    const bool first = b.v == a.v && b.i < a.i;
    if (a.i < 0 || b.v > a.v || first)
        return b;
    return a;
}
__device__ __forceinline__ best warp_best(best b) {
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        best other;
        other.v = __shfl_xor_sync(~0u, b.v, o);
        other.i = __shfl_xor_sync(~0u, b.i, o);
        b = better(b, other);
    }
    return b;
}
/* The best of the block, for all threads. red: 32 in shared memory. */
__device__ best block_best(best b, best *red) {
    b = warp_best(b);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        red[threadIdx.x / 32] = b;
    __syncthreads();
    return warp_best(red[threadIdx.x % 32]);
}
/* An element in its place; ids ascend within a thread. */
__device__ __forceinline__ void take(best *b, float v, int i) {
    if (v > b->v)
        *b = best{v, i};
}
/* The largest logit; the same in all threads, as is *is_nan: one of them is NaN, or it was set. */
__device__ best arg_max(const float *l, int V, best *red, int *is_nan) {
    best b = {-INFINITY, -1};
    int bad = *is_nan;
    const int wide = (uintptr_t)l % 16 == 0 ? V / 4 : 0;
#pragma unroll 8
    /* -inf never; ids ascend within a thread */
    for (int i = threadIdx.x; i < wide; i += THREADS) {
        float4 v = __ldcg((const float4 *)l + i);
        bad |= isnan(v.x) | isnan(v.y) | isnan(v.z) | isnan(v.w);
        take(&b, v.x, 4 * i);
        take(&b, v.y, 4 * i + 1);
        take(&b, v.z, 4 * i + 2);
        take(&b, v.w, 4 * i + 3);
    }
    for (int i = 4 * wide + threadIdx.x; i < V; i += THREADS) {
        float v = __ldcg(&l[i]);
        bad |= isnan(v);
        take(&b, v, i);
    }
    *is_nan = __syncthreads_or(bad);
    return block_best(b, red);
}

/* Of the elements that agree so far, by their next digit: how many, and their mass. */
struct hist {
    u64 mass[BINS];
    unsigned count[BINS];
    u64 sum[32];
};

/* Over the block, for all threads. */
__device__ u64 block_sum(u64 v, hist &h) {
#pragma unroll
    for (int o = 16; o; o >>= 1)
        v += __shfl_xor_sync(~0u, v, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        h.sum[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (int i = 0; i < 32; i++)
        v += h.sum[i];
    return v;
}

/* Where, from the largest key down, the count (by_count) or the mass at this temperature passes
 * `goal`: the key, and how many elements and how much mass lie strictly above it, and the number of
 * ties. goal is passed when running > goal. */
struct place {
    uint32_t key;
    unsigned above;
    unsigned ties;
    u64 mass_above;
};
__device__ place find(const float *l, int V, bool by_count, u64 goal, float top, double temp,
                      hist &h) {
    __shared__ place at;
    uint32_t prefix = 0;
    uint32_t mask = 0;
    unsigned above = 0;
    u64 mass = 0;
    for (int pass = 0; pass < 3; pass++) {
        const int shift = max(21 - 11 * pass, 0); /* digits of 11, 11 and 10 bits */
        const int bins = pass == 2 ? 1024 : 2048;
        for (int i = threadIdx.x; i < BINS; i += THREADS) {
            h.mass[i] = 0;
            h.count[i] = 0;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < V; i += THREADS) {
            float v = l[i];
            uint32_t k = key_of(v);
            if (v == -INFINITY || (k & mask) != prefix)
                continue;
            const uint32_t digit = k >> shift & (bins - 1);
            atomicAdd(&h.count[digit], 1);
            if (!by_count)
                atomicAdd(&h.mass[digit], weigh(v, top, temp));
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int b = bins - 1;
            int last = -1;
            unsigned n = above;
            unsigned n_last = above;
            u64 m = mass;
            u64 m_last = mass;
            for (; b >= 0; b--) {
                if (!h.count[b])
                    continue;
                last = b;
                n_last = n;
                m_last = m;
                n += h.count[b];
                m += h.mass[b];
                const u64 running = by_count ? (u64)n : m;
                if (running > goal)
                    break;
            }
            const uint32_t digit = last < 0 ? 0 : (uint32_t)last;
            at.key = prefix | digit << shift;
            at.above = n_last;
            at.ties = last < 0 ? 0 : h.count[last];
            at.mass_above = m_last;
        }
        __syncthreads();
        prefix = at.key;
        above = at.above;
        mass = at.mass_above;
        mask |= (uint32_t)(bins - 1) << shift;
        __syncthreads();
    }
    place r = at;
    __syncthreads();
    return r;
}

/* The j-th lowest id (from 0) whose key is k. */
__device__ int tie(const float *l, int V, uint32_t k, unsigned j, hist &h) {
    __shared__ int found;
    unsigned before = 0;
    if (threadIdx.x == 0)
        found = -1;
    for (int i0 = 0; i0 < V; i0 += THREADS) {
        int i = i0 + threadIdx.x;
        bool is = i < V && l[i] != -INFINITY && key_of(l[i]) == k;
        unsigned vote = __ballot_sync(~0u, is);
        __syncthreads();
        if (threadIdx.x % 32 == 0)
            h.count[threadIdx.x / 32] = __popc(vote);
        __syncthreads();
        unsigned mine = before + __popc(vote & ((1u << threadIdx.x % 32) - 1));
        for (int w = 0; w < (int)threadIdx.x / 32; w++)
            mine += h.count[w];
        if (is && mine == j)
            found = i;
        for (int w = 0; w < 32; w++)
            before += h.count[w];
        if (before > j)
            break;
    }
    __syncthreads();
    return found;
}

/* Word `at` of a slot's row of PARAMS; one that the row lacks is 0. */
__device__ __forceinline__ int32_t param(const cu_rows &rows, int slot, int at) {
    const int32_t *row = rows.at + (int64_t)slot * rows.words;
    if (at < rows.words)
        return __ldcg(&row[at]);
    return 0;
}
#define PARAM_AT(field) ((int)(offsetof(mn_slot_params, field) / 4))

/* All but the stop ids. Rows are usually long enough: then the words are fetched at once, eight
 * bytes at a time. */
__device__ __forceinline__ void read_params(const cu_rows &rows, int slot, mn_slot_params *p) {
    enum { PAIRS = PARAM_AT(stop) / 2, MIN_NEW = PARAM_AT(min_new) };
    int2 words[PAIRS];
    const int2 *from = (const int2 *)(rows.at + (int64_t)slot * rows.words);
    const bool whole = rows.words > MIN_NEW;
    int min_new = 0;
    if (whole) {
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            words[i] = __ldcg(&from[i]);
        min_new = __ldcg(&((const int *)from)[MIN_NEW]);
    } else {
        for (int i = 0; i < PAIRS; i++) {
            words[i].x = param(rows, slot, 2 * i);
            words[i].y = param(rows, slot, 2 * i + 1);
        }
        min_new = param(rows, slot, MIN_NEW);
    }
    memcpy(p, words, sizeof words);
    p->n_stop = min(p->n_stop, MN_MAX_STOP);
    p->min_new = min_new;
}
static_assert(offsetof(mn_slot_params, stop) % 8 == 0, "read_params fetches pairs of words");

/* Lowers the logits l of what the last ids of the slot's history hold; count: room for a.V. */
__device__ void penalise(const cu_sample &a, const mn_slot_params &p, float *l, int32_t *count,
                         const int32_t *history, int pos) {
    int hi = pos < a.C ? pos : a.C;
    int lo = p.penalty_last_n < 0 || p.penalty_last_n > hi ? 0 : hi - p.penalty_last_n;
    for (int i = threadIdx.x; i < a.V; i += THREADS)
        count[i] = 0;
    __syncthreads();
    for (int i = lo + threadIdx.x; i < hi; i += THREADS) {
        int id = __ldcg(&history[i]);
        if (id >= 0 && id < a.V)
            atomicAdd(&count[id], 1);
    }
    __syncthreads();
    for (int id = threadIdx.x; id < a.V; id += THREADS) {
        int n = __ldcg(&count[id]);
        if (!n)
            continue;
        float v = l[id];
        if (p.repeat_penalty != 0)
            v = v > 0 ? __fdiv_rn(v, p.repeat_penalty) : __fmul_rn(v, p.repeat_penalty);
        const float frequency = __fmul_rn(p.frequency_penalty, (float)n);
        v = __fsub_rn(v, __fadd_rn(frequency, p.presence_penalty));
        l[id] = isnan(v) ? -INFINITY : fminf(v, FLT_MAX);
    }
    __syncthreads();
}

/* Philox4x32-10 (Salmon 2011), keyed by the seed, of the position: its first word as u in [0,
 * 1). */
__device__ float philox(u64 seed, uint32_t pos) {
    uint32_t k0 = (uint32_t)seed;
    uint32_t k1 = (uint32_t)(seed >> 32);
    uint32_t c[4] = {pos, 0, 0, 0};
    for (int r = 0; r < 10; r++) {
        u64 x = (u64)0xD2511F53u * c[0];
        u64 y = (u64)0xCD9E8D57u * c[2];
        uint32_t n0 = (uint32_t)(y >> 32) ^ c[1] ^ k0;
        uint32_t n2 = (uint32_t)(x >> 32) ^ c[3] ^ k1;
        c[0] = n0;
        c[1] = (uint32_t)y;
        c[2] = n2;
        c[3] = (uint32_t)x;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (float)(c[0] >> 8) * 0x1p-24f;
}

/* The mass of all logits with a larger key; for all threads. */
__device__ u64 mass_above(const float *l, int V, uint32_t key, float top, double temp, hist &h) {
    u64 mass = 0;
    for (int i = threadIdx.x; i < V; i += THREADS) {
        if (l[i] != -INFINITY && key_of(l[i]) > key)
            mass += weigh(l[i], top, temp);
    }
    return block_sum(mass, h);
}

/* The id that a row draws by top_k, top_p, min_p and temperature, for all threads. keep: of the
 * order of logits, how many of the first may be drawn. */
__device__ int draw(const float *l, int V, const mn_slot_params &p, int pos, best top, hist &h) {
    u64 finite = 0;
    u64 strong = 0;
    const double temp = p.temp;
    for (int i = threadIdx.x; i < V; i += THREADS) {
        finite += l[i] != -INFINITY;
        if (p.min_p > 0) {
            const double share = exp((double)l[i] - (double)top.v);
            strong += l[i] != -INFINITY && share >= (double)p.min_p;
        }
    }
    u64 keep = block_sum(finite, h);
    if (p.min_p > 0)
        strong = block_sum(strong, h);
    if (p.top_k > 0 && (u64)p.top_k < keep)
        keep = p.top_k;
    if (p.top_p > 0 && p.top_p < 1) {
        place end = find(l, V, true, keep - 1, top.v, 1, h); /* the last kept element */
        u64 mass = mass_above(l, V, end.key, top.v, 1, h);
        mass += (keep - end.above) * weigh(logit_of(end.key), top.v, 1);
        u64 goal = (u64)((double)p.top_p * (double)mass);
        /* first prefix that reaches the goal */
        place cut = find(l, V, false, goal ? goal - 1 : 0, top.v, 1, h);
        u64 w = weigh(logit_of(cut.key), top.v, 1);
        u64 need = goal > cut.mass_above ? goal - cut.mass_above : 0;
        u64 n = w ? (need + w - 1) / w : cut.ties;
        if (n < 1)
            n = 1;
        else if (n > cut.ties)
            n = cut.ties;
        if (cut.above + n < keep)
            keep = cut.above + n;
    }
    if (p.min_p > 0 && strong < keep)
        keep = strong ? strong : 1;
    place end = find(l, V, true, keep - 1, top.v, 1, h);
    const u64 tied = weigh(logit_of(end.key), top.v, temp);
    const u64 last_ones = (keep - end.above) * tied;
    const u64 mass = mass_above(l, V, end.key, top.v, temp, h) + last_ones;
    const double random = philox(p.seed, (uint32_t)pos);
    u64 goal = (u64)(random * (double)mass);
    place at = find(l, V, false, goal, top.v, temp, h);
    if (at.key < end.key)
        at = end; /* rounding: the last kept one */
    u64 w = weigh(logit_of(at.key), top.v, temp);
    u64 j = w && goal > at.mass_above ? (goal - at.mass_above) / w : 0;
    u64 most = at.key == end.key ? keep - end.above : at.ties;
    const u64 nth = j < most ? j : most - 1;
    return tie(l, V, at.key, (unsigned)nth, h);
}

/* log of the sum of exp(l), less top.v, which is the largest; for all threads. */
__device__ double log_of_all(const float *l, int V, best top, hist &h) {
    double part = 0;
    for (int i = threadIdx.x; i < V && top.i >= 0; i += THREADS)
        part += exp((double)l[i] - (double)top.v);
    double *sums = (double *)h.sum;
#pragma unroll
    for (int o = 16; o; o >>= 1)
        part += __shfl_xor_sync(~0u, part, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = part;
    __syncthreads();
    part = 0;
    for (int i = 0; i < 32; i++)
        part += sums[i];
    __syncthreads();
    return log(part);
}

/* Of an id among logits whose largest is top.v; of_all: log_of_all. */
__device__ __forceinline__ float log_prob(const float *l, int V, int id, best top, double of_all) {
    if (top.i < 0 || id < 0 || id >= V)
        return -INFINITY;
    return (float)((double)l[id] - (double)top.v - of_all);
}

/* The n best in order, each found as the best of those behind the last one; n is small. */
__device__ void write_top(const cu_sample &a, const float *l, int row, best top, double of_all,
                          best *red) {
    best now = top;
    for (int k = 0; k < a.n_top; k++) {
        if (k && now.i >= 0) {
            best b = {-INFINITY, -1};
            for (int i = threadIdx.x; i < a.V; i += THREADS) {
                float v = l[i];
                const bool behind = v < now.v || (v == now.v && i > now.i);
                if (behind && v > b.v)
                    b = best{v, i};
            }
            __syncthreads();
            now = block_best(b, red);
        }
        if (threadIdx.x)
            continue;
        const int64_t at = (int64_t)row * a.n_top + k;
        if (a.top_ids)
            a.top_ids[at] = now.i;
        if (a.top_logprobs)
            a.top_logprobs[at] = log_prob(l, a.V, now.i, top, of_all);
    }
    __syncthreads();
}

/* A row with a TARGET: what its logits say of it. */
__device__ void score_target(const cu_sample &a, int row, int target, hist &h, best *red) {
    const float *l = a.logits + (int64_t)row * a.V;
    int is_nan = 0;
    const best top = arg_max(l, a.V, red, &is_nan);
    const double of_all = is_nan ? (double)NAN : log_of_all(l, a.V, top, h);
    if (a.n_top)
        write_top(a, l, row, top, of_all, red);
    if (a.logprob && !threadIdx.x)
        a.logprob[row] = log_prob(l, a.V, target, top, of_all);
}

/* The logits of a row with sparse bias, bias and mask, in `to`; true = one is NaN. */
__device__ bool adjust(const cu_sample &a, int row, int slot, float *to) {
    const float *l = a.logits + (int64_t)row * a.V;
    const float *bias = a.bias ? a.bias + (int64_t)row * a.V : NULL;
    const int mask_words = (a.V + 31) / 32;
    const uint32_t *mask = a.mask ? a.mask + (int64_t)row * mask_words : NULL;
    for (int i = threadIdx.x; i < a.V; i += THREADS) {
        const float v = __ldcg(&l[i]);
        to[i] = v > FLT_MAX ? FLT_MAX : v;
    }
    __syncthreads();
    for (int i = threadIdx.x; a.bias_ids && i < a.n_bias_ids; i += THREADS) {
        const int64_t at = (int64_t)slot * a.n_bias_ids + i;
        const int id = __ldcg(&a.bias_ids[at]);
        if (id >= 0 && id < a.V)
            to[id] += __ldcg(&a.bias_values[at]);
    }
    __syncthreads();
    bool is_nan = false;
    for (int i = threadIdx.x; i < a.V; i += THREADS) {
        float v = to[i];
        if (bias)
            v += __ldcg(&bias[i]);
        is_nan |= isnan(v);
        if (v > FLT_MAX)
            v = FLT_MAX;
        const bool masked = mask && !(__ldcg(&mask[i / 32]) >> i % 32 & 1);
        to[i] = masked ? -INFINITY : v;
    }
    return __syncthreads_or(is_nan);
}

/* The id that a slot draws from a row. */
__device__ int draw_row(const cu_sample &a, int row, int slot, const mn_slot_params &p, int pos,
                        bool may_stop, hist &h, best *red) {
    const float *l = a.logits + (int64_t)row * a.V;
    const bool repeats = p.repeat_penalty != 0 && p.repeat_penalty != 1;
    const bool counts = p.frequency_penalty != 0 || p.presence_penalty != 0;
    const bool penal = p.penalty_last_n != 0 && (repeats || counts);
    const bool greedy = !(p.temp > 0);
    const bool reports = a.n_top || a.logprob;
    const bool plain = !a.bias && !a.mask && !a.bias_ids && !penal && may_stop;
    int is_nan = 0;
    if (greedy && plain && !reports) {
        const best top = arg_max(l, a.V, red, &is_nan);
        if (is_nan)
            return MN_ID_NAN;
        return top.i;
    }
    float *to = a.adjusted + (int64_t)row * a.V;
    is_nan = adjust(a, row, slot, to);
    for (int i = threadIdx.x; !may_stop && i < p.n_stop; i += THREADS) {
        const int id = param(a.params, slot, PARAM_AT(stop) + i);
        if (id >= 0 && id < a.V)
            to[id] = -INFINITY;
    }
    __syncthreads();
    if (penal) {
        int32_t *count = a.count + (int64_t)row * a.V;
        penalise(a, p, to, count, a.history + (int64_t)slot * a.C, pos);
    }
    const best top = arg_max(to, a.V, red, &is_nan);
    double of_all = (double)NAN;
    if (reports && !is_nan)
        of_all = log_of_all(to, a.V, top, h);
    if (a.n_top)
        write_top(a, to, row, top, of_all, red);
    int id = top.i;
    if (is_nan)
        id = MN_ID_NAN;
    else if (!greedy && id >= 0)
        id = draw(to, a.V, p, pos, top, h);
    if (a.logprob && !threadIdx.x)
        a.logprob[row] = log_prob(to, a.V, id, top, of_all);
    return id;
}

/* Writes a drawn id into the slot; without one it has failed. One thread. */
__device__ void advance(const cu_sample &a, mn_slot *s, int slot, const mn_slot_params &p, int id,
                        int n_drawn) {
    int now = id < 0 ? MN_SLOT_FAILED : MN_SLOT_RUNNING;
    if (id >= 0) {
        s->last_id = id;
        s->n_drawn = n_drawn + 1;
        if (p.max_new > 0 && n_drawn + 1 >= p.max_new)
            now = MN_SLOT_LENGTH;
        for (int i = 0; i < p.n_stop; i++) {
            if (param(a.params, slot, PARAM_AT(stop) + i) == id)
                now = MN_SLOT_STOPPED;
        }
    }
    if (now)
        s->done = now;
}

/* The slot that draws from a row; -1 = none. */
__device__ __forceinline__ int slot_of(const cu_sample &a, int row) {
    if (a.target && __ldcg(&a.target[row]) >= 0)
        return -1;
    const int slot = __ldcg(&a.out_slot[row]);
    if (slot < a.S)
        return slot;
    return -1;
}

/* The rows from `row` on that verify drafts of one another, 1 = it is alone. The slot goes back to
 * the first one's position: EMBED has moved it behind the last. A slot that is done stays. */
__device__ int begin_tied(const cu_sample &a, int row, int slot) {
    int n = 1;
    if (!a.draft)
        return n;
    while (row + n < a.O && __ldcg(&a.draft[row + n - 1]) >= 0 && slot_of(a, row + n) == slot)
        n++;
    mn_slot *s = (mn_slot *)(a.slots.at + (int64_t)slot * a.slots.words);
    if (n > 1 && !threadIdx.x && !__ldcg(&s->done))
        s->pos -= n - 1;
    __threadfence();
    __syncthreads();
    return n;
}

/* Whether the row drew its draft, and its slot goes on: then to the next row's position. */
__device__ bool accept(const cu_sample &a, mn_slot *s, int row, int id) {
    const bool goes_on = id >= 0 && id == __ldcg(&a.draft[row]) && !__ldcg(&s->done);
    __syncthreads();
    if (goes_on && !threadIdx.x)
        s->pos++;
    __threadfence();
    __syncthreads();
    return goes_on;
}

__global__ void __launch_bounds__(THREADS) sample_rows(cu_sample a) {
    __shared__ hist h;
    __shared__ best red[32];
    cu_next();
    cu_wait();
    const int row = blockIdx.x;
    const int slot = slot_of(a, row);
    if (slot < 0) {
        if (!threadIdx.x)
            a.ids[row] = MN_ID_NONE;
        const int target = a.target ? __ldcg(&a.target[row]) : -1;
        if (target >= 0 && (a.n_top || a.logprob))
            score_target(a, row, target, h, red);
        return;
    }
    /* A slot that draws twice in a step draws in order: its first row's block does all its rows. */
    for (int r = 0; r < row; r++) {
        if (slot_of(a, r) == slot)
            return;
    }
    int n_tied = 0; /* rows from r on that verify drafts of one another, or 0 */
    for (int r = row; r < a.O; r++) {
        if (slot_of(a, r) != slot)
            continue;
        if (!n_tied)
            n_tied = begin_tied(a, r, slot);
        mn_slot_params p;
        read_params(a.params, slot, &p);
        mn_slot *s = (mn_slot *)(a.slots.at + (int64_t)slot * a.slots.words);
        const int pos = __ldcg(&s->pos);
        const int n_drawn = __ldcg(&s->n_drawn);
        const int done = __ldcg(&s->done);
        __syncthreads();
        int id = MN_ID_NONE;
        if (!done) {
            const bool may_stop = n_drawn >= p.min_new || !p.n_stop;
            id = draw_row(a, r, slot, p, pos, may_stop, h, red);
            if (!threadIdx.x)
                advance(a, s, slot, p, id, n_drawn);
        }
        if (!threadIdx.x)
            a.ids[r] = id;
        __threadfence();
        __syncthreads();
        n_tied--;
        if (n_tied > 0 && !accept(a, s, r, id)) {
            for (int i = threadIdx.x; i < n_tied; i += THREADS)
                a.ids[r + 1 + i] = MN_ID_NONE;
            r += n_tied;
            n_tied = 0;
        }
    }
}
void cu_sample_run(cudaStream_t s, const cu_sample *a) {
    launch(s, sample_rows, dim3(a->O), THREADS, 0, *a);
}
