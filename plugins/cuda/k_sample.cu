/* k_sample.cu -- SAMPLE: one block per output row. Greedy without penalties is one arg max; what
 * else turns logits into an id is chain.cuh's. Here are biases and masks, probabilities beside the
 * id, drafts, and the slot that moves on. */
#include "chain.cuh"
#include "common.h"

/* log of the sum of exp(l), less top.v, which is the largest; for all threads. */
__device__ double log_of_all(const float *l, int V, best top, chain_room *room) {
    double part = 0;
    for (int i = threadIdx.x; i < V && top.i >= 0; i += THREADS)
        part += exp((double)l[i] - (double)top.v);
    return log(block_sum(part, room->real));
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
__device__ void score_target(const cu_sample &a, int row, int target, chain_room *room, best *red) {
    const float *l = a.logits + (int64_t)row * a.V;
    int is_nan = 0;
    const best top = arg_max(l, a.V, red, &is_nan);
    const double of_all = is_nan ? (double)NAN : log_of_all(l, a.V, top, room);
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

/* adjust, and stop ids that may not be drawn yet; true = a logit is NaN. */
__device__ bool prepare(const cu_sample &a, int row, int slot, const mn_slot_params &p,
                        bool may_stop, float *to) {
    const bool is_nan = adjust(a, row, slot, to);
    for (int i = threadIdx.x; !may_stop && i < p.n_stop; i += THREADS) {
        const int id = param(a.params, slot, PARAM_AT(stop) + i);
        if (id >= 0 && id < a.V)
            to[id] = -INFINITY;
    }
    __syncthreads();
    return is_nan;
}

/* A row that draws. mu: the slot's, or NULL. */
struct drawing {
    int row, slot, pos;
    bool may_stop;
    float *mu;
    chain_room *room;
    best *red;
};

__device__ chain chain_of(const cu_sample &a, const drawing &d, const mn_slot_params &p) {
    chain c;
    c.a = &a;
    c.p = &p;
    c.room = d.room;
    c.l = a.adjusted + (int64_t)d.row * a.V;
    c.count = a.count + (int64_t)d.row * a.V;
    c.slot = d.slot;
    c.pos = d.pos;
    c.rewritten = false;
    return c;
}

/* The id that a slot draws from a row. */
__device__ int draw_row(const cu_sample &a, const drawing &d, const mn_slot_params &p) {
    const bool greedy = !(p.temp > 0);
    const bool reports = a.n_top || a.logprob;
    const bool biased = a.bias || a.mask || a.bias_ids;
    const bool plain = !biased && !mnp_has_penalties(&p) && !mnp_has_dry(&p) && d.may_stop;
    int is_nan = 0;
    if (greedy && plain && !reports) {
        const best top = arg_max(a.logits + (int64_t)d.row * a.V, a.V, d.red, &is_nan);
        if (is_nan)
            return MN_ID_NAN;
        return top.i;
    }
    chain c = chain_of(a, d, p);
    is_nan = prepare(a, d.row, d.slot, p, d.may_stop, c.l);
    if (!is_nan)
        chain_begin(c, greedy);
    const best top = arg_max(c.l, a.V, d.red, &is_nan);
    double of_all = (double)NAN;
    if (reports && !is_nan)
        of_all = log_of_all(c.l, a.V, top, d.room);
    if (a.n_top)
        write_top(a, c.l, d.row, top, of_all, d.red);
    int id = top.i;
    if (is_nan)
        id = MN_ID_NAN;
    else if (!greedy && id >= 0)
        id = chain_draw(c, d.mu);
    if (c.rewritten && a.logprob) {
        prepare(a, d.row, d.slot, p, d.may_stop, c.l); /* logprobs are those before the chain */
        chain_begin(c, greedy);
    }
    if (a.logprob && !threadIdx.x)
        a.logprob[d.row] = log_prob(c.l, a.V, id, top, of_all);
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

/* Whether a row in [from, to) is drawn by the slot. All threads; ends with a barrier. */
__device__ bool draws_in(const cu_sample &a, int slot, int from, int to) {
    bool found = false;
    for (int r = from + threadIdx.x; r < to; r += THREADS)
        found |= slot_of(a, r) == slot;
    return __syncthreads_or(found);
}

__global__ void __launch_bounds__(THREADS) sample_rows(cu_sample a) {
    __shared__ chain_room room;
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
            score_target(a, row, target, &room, red);
        return;
    }
    /* A slot that draws twice in a step draws in order: its first row's block does all its rows. */
    if (draws_in(a, slot, 0, row))
        return;
    const int end = draws_in(a, slot, row + 1, a.O) ? a.O : row + 1;
    int n_tied = 0; /* rows from r on that verify drafts of one another, or 0 */
    for (int r = row; r < end; r++) {
        if (slot_of(a, r) != slot)
            continue;
        if (!n_tied)
            n_tied = begin_tied(a, r, slot);
        mn_slot_params p;
        read_params(a.params, slot, &p);
        read_samplers(a, slot, &p);
        mn_slot *s = (mn_slot *)(a.slots.at + (int64_t)slot * a.slots.words);
        const bool has_mu = a.samplers && a.slots.words * 4 >= (int)MNP_UP_TO(mn_slot, mu);
        const int pos = __ldcg(&s->pos);
        const int n_drawn = __ldcg(&s->n_drawn);
        const int done = __ldcg(&s->done);
        float mu = has_mu ? __ldcg(&s->mu) : 0;
        __syncthreads();
        int id = MN_ID_NONE;
        if (!done) {
            const bool may_stop = n_drawn >= p.min_new || !p.n_stop;
            const drawing d = {r, slot, pos, may_stop, has_mu ? &mu : NULL, &room, red};
            id = draw_row(a, d, p);
            if (!threadIdx.x)
                advance(a, s, slot, p, id, n_drawn);
            if (!threadIdx.x && has_mu)
                s->mu = mu;
            if (!threadIdx.x && has_mu && a.mu)
                a.mu[r] = mu;
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
