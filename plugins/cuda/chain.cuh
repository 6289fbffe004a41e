/* chain.cuh -- the samplers of SAMPLE and the draw, by one block per row. The
 * candidates are what lies between two places of the order of logits; every sampler moves one end
 * or both. Where a running sum passes a goal is found by a histogram over the distance from the
 * best logit, and among the few elements of the bin by comparing each with each: nothing is
 * sorted. Once few candidates are left they are kept in a list. Formulas: docs/ops.md, SAMPLE. */
#ifndef CU_CHAIN_CUH
#define CU_CHAIN_CUH
#include "sample.cuh"

enum { LIST = 512, BINS = 2048 };

/* An element's place in an order in which something is sought: far first, then tie; ascending. */
struct mark {
    u64 far, tie;
};

/* Shared memory of a chain. */
struct chain_room {
    u64 list[LIST]; /* the candidates, once they are few */
    mark near[LIST];
    u64 mass[LIST];
    unsigned n; /* of list, or of near */
    u64 bin_mass[BINS];
    unsigned bin_count[BINS];
    u64 part_mass[32];
    unsigned part_count[32];
    int bin;
    u64 before_mass;
    unsigned before_count;
    u64 red[32];
    double real[32];
    mark at;
    unsigned up_to;
};

/* One row between its biases and its id; the same in all threads. Places are numbers: a larger
 * logit has the larger one, of equal logits the lower id. */
struct chain {
    const cu_sample *a;
    const mn_slot_params *p;
    chain_room *room;
    float *l;       /* [V], as adjusted */
    int32_t *count; /* [V], scratch */
    int slot, pos;
    u64 left;        /* samplers to come */
    u64 first, last; /* the candidates: places from first down to last */
    unsigned n;      /* of them */
    unsigned listed; /* elements in room->list, or 0: they are read from l */
    float max;       /* the logit at first */
    double temp, per_temp;
    bool ordered;   /* first and last are known */
    bool rewritten; /* l was changed behind the first samplers */
};

__device__ __forceinline__ u64 place_of(float l, int id) {
    return (u64)key_of(l) << 32 | (uint32_t)~id;
}
__device__ __forceinline__ int id_at(u64 place) {
    return (int)~(uint32_t)place;
}
__device__ __forceinline__ double logit_at(u64 place) {
    return logit_of((uint32_t)(place >> 32));
}

__device__ u64 block_max(u64 v, chain_room *room) {
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        const u64 other = __shfl_xor_sync(~0u, v, o);
        v = other > v ? other : v;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        room->red[threadIdx.x / 32] = v;
    __syncthreads();
    for (int i = 0; i < WARPS; i++)
        v = room->red[i] > v ? room->red[i] : v;
    return v;
}
__device__ __forceinline__ u64 block_min(u64 v, chain_room *room) {
    return ~block_max(~v, room);
}

/* f(place) for each candidate; the threads share them out. Loads of a round go out together. */
template <class F> __device__ __forceinline__ void each(const chain &c, F f) {
    enum { AT_ONCE = 4 };
    const int V = c.a->V;
    if (c.listed) {
        for (unsigned i = threadIdx.x; i < c.listed; i += THREADS) {
            const u64 place = c.room->list[i];
            if (place <= c.first && place >= c.last)
                f(place);
        }
        return;
    }
    for (int from = threadIdx.x; from < V; from += AT_ONCE * THREADS) {
        float v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int i = from + k * THREADS;
            v[k] = i < V ? c.l[i] : -INFINITY;
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const u64 place = place_of(v[k], from + k * THREADS);
            if (v[k] != -INFINITY && place <= c.first && place >= c.last)
                f(place);
        }
    }
}

/* How far a logit lies below the first candidate's, at the temperature so far. */
__device__ __forceinline__ double below(const chain &c, u64 place) {
    return ((double)c.max - logit_at(place)) * c.per_temp;
}
/* What an element counts for, against the first candidate; and that in fixed point. */
__device__ __forceinline__ double weight_at(const chain &c, u64 place) {
    return exp(-below(c, place));
}
__device__ __forceinline__ u64 mass_at(const chain &c, u64 place) {
    return (u64)(weight_at(c, place) * 0x1p45 + 0.5);
}

/* The candidates become n, from place first to last. */
__device__ void keep(chain &c, u64 first, u64 last, unsigned n) {
    c.first = first;
    c.last = last;
    c.n = n;
    c.max = (float)logit_at(first);
    if (c.listed || n > LIST)
        return;
    __syncthreads();
    if (!threadIdx.x)
        c.room->n = 0;
    __syncthreads();
    each(c, [&](u64 place) { c.room->list[atomicAdd(&c.room->n, 1u)] = place; });
    __syncthreads();
    c.listed = n;
}

/* Of the candidates that pass a test: the ends, and how many there are. */
struct range {
    u64 first, last;
    unsigned n;
};
template <class F> __device__ range survey(const chain &c, F passes) {
    u64 first = 0;
    u64 last = ~(u64)0;
    u64 n = 0;
    each(c, [&](u64 place) {
        if (!passes(place))
            return;
        first = place > first ? place : first;
        last = place < last ? place : last;
        n++;
    });
    range r;
    r.first = block_max(first, c.room);
    r.last = block_min(last, c.room);
    r.n = (unsigned)block_sum(n, c.room->red);
    return r;
}

/* The candidates that pass a test, at least one, become all there are. */
template <class F> __device__ void keep_those(chain &c, F passes) {
    const range r = survey(c, passes);
    keep(c, r.first, r.last, r.n);
}

/* Finds the ends of the order. false = no logit is finite. */
__device__ bool make_order(chain &c) {
    if (c.ordered)
        return true;
    c.first = ~(u64)0;
    c.last = 0;
    const range all = survey(c, [](u64) { return true; });
    if (!all.n)
        return false;
    keep(c, all.first, all.last, all.n);
    c.ordered = true;
    return true;
}

/* The weight of all candidates, and the sum of how far each lies below the first, by weight. */
struct weights {
    double all, below;
};
__device__ weights weigh_all(const chain &c) {
    u64 mass = 0;
    double moment = 0;
    each(c, [&](u64 place) {
        const double far = below(c, place);
        const double weight = exp(-far);
        mass += (u64)(weight * 0x1p45 + 0.5);
        if (weight > 0)
            moment += weight * far;
    });
    weights w;
    w.all = (double)block_sum(mass, c.room->red) * 0x1p-45;
    w.below = block_sum(moment, c.room->real);
    return w;
}

/* ---- where a running sum passes a goal ------------------------------------------------------- */
/* Distances are measured from `centre`, as `below` is. At 0 that is the order of logits. Elsewhere
 * the nearest elements, and those behind the centre, are met in that order, too, others with the
 * same logit in the reverse one: so that what has been met is a range at any time. */
struct ruler {
    double centre;
    u64 nearest;
};
__device__ __forceinline__ mark mark_of(const chain &c, const ruler &r, u64 place) {
    const double off = below(c, place) - r.centre;
    const u64 far = (u64)(fmin(fabs(off), 0x1p22) * 0x1p40);
    const bool behind = off >= 0;
    mark m;
    m.far = far << 1 | behind;
    m.tie = behind || m.far == r.nearest ? ~place : place;
    return m;
}
__device__ __forceinline__ bool up_to(const mark &a, const mark &b) {
    return a.far < b.far || (a.far == b.far && a.tie <= b.tie);
}

/* What is sought: the count-th element from 1 on, or (count 0) the first one with which the sum
 * reaches the share of all (reach), or exceeds it. */
struct aim {
    unsigned count;
    double share;
    bool reach;
};
/* The element; how many there are up to it; the mass of all. */
struct found {
    mark at;
    unsigned up_to;
    u64 all;
};

/* Marks from lo to hi: of far, or of tie among those with the same far. */
struct window {
    u64 lo, hi, far;
    bool ties;
};
__device__ __forceinline__ bool inside(const window &w, const mark &m, u64 *offset) {
    const u64 at = w.ties ? m.tie : m.far;
    *offset = at - w.lo;
    return at >= w.lo && at <= w.hi && (!w.ties || m.far == w.far);
}
__device__ __forceinline__ int bin_bits(const window &w) {
    const int bits = 64 - __clzll((long long)(w.hi - w.lo));
    return bits > 11 ? bits - 11 : 0;
}

/* Counts and masses of the window's bins; returns the sum of the masses. */
__device__ u64 fill_bins(const chain &c, const ruler &r, const window &w, bool by_count) {
    const int bits = bin_bits(w);
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += THREADS) {
        c.room->bin_mass[i] = 0;
        c.room->bin_count[i] = 0;
    }
    __syncthreads();
    u64 all = 0;
    each(c, [&](u64 place) {
        u64 offset;
        if (!inside(w, mark_of(c, r, place), &offset))
            return;
        const u64 mass = by_count ? 0 : mass_at(c, place);
        atomicAdd(&c.room->bin_count[offset >> bits], 1u);
        if (mass)
            atomicAdd(&c.room->bin_mass[offset >> bits], mass);
        all += mass;
    });
    return block_sum(all, c.room->red);
}

/* The bin in which the running count or mass passes the goal, into room: its number and what lies
 * before it. One warp sums 64 bins per lane, one thread goes through lanes, then through bins. */
__device__ void pass_bins(const chain &c, bool by_count, u64 goal) {
    enum { PER_LANE = BINS / 32 };
    chain_room *room = c.room;
    const int lane = threadIdx.x;
    if (lane < 32) {
        u64 mass = 0;
        unsigned count = 0;
        for (int i = 0; i < PER_LANE; i++) {
            const int bin = lane * PER_LANE + (i + lane) % PER_LANE;
            mass += c.room->bin_mass[bin];
            count += c.room->bin_count[bin];
        }
        room->part_mass[lane] = mass;
        room->part_count[lane] = count;
    }
    __syncthreads();
    if (lane == 0) {
        u64 mass = room->before_mass;
        unsigned count = room->before_count;
        int bin = 0;
        for (int i = 0; i < 31; i++) {
            const u64 next_mass = mass + room->part_mass[i];
            const unsigned next_count = count + room->part_count[i];
            if ((by_count ? next_count : next_mass) > goal)
                break;
            mass = next_mass;
            count = next_count;
            bin += PER_LANE;
        }
        const int end = bin + PER_LANE - 1;
        for (; bin < end; bin++) {
            const u64 next_mass = mass + c.room->bin_mass[bin];
            const unsigned next_count = count + c.room->bin_count[bin];
            if ((by_count ? next_count : next_mass) > goal)
                break;
            mass = next_mass;
            count = next_count;
        }
        room->before_mass = mass;
        room->before_count = count;
        room->bin = bin;
    }
    __syncthreads();
}

/* The window's bin that pass_bins has found. */
__device__ void enter_bin(const chain &c, window *w) {
    const int bits = bin_bits(*w);
    const u64 width = (u64)1 << bits;
    const u64 lo = w->lo + ((u64)c.room->bin << bits);
    w->hi = w->hi - lo < width ? w->hi : lo + width - 1;
    w->lo = lo;
    if (w->ties || w->lo != w->hi)
        return;
    w->ties = true;
    w->far = lo;
    w->lo = 0;
    w->hi = ~(u64)0;
}

/* The marks and masses of the window's elements, at most LIST, into room; returns the sum. */
__device__ u64 list_window(const chain &c, const ruler &r, const window &w, bool by_count) {
    chain_room *room = c.room;
    __syncthreads();
    if (!threadIdx.x)
        room->n = 0;
    __syncthreads();
    u64 all = 0;
    each(c, [&](u64 place) {
        u64 offset;
        const mark m = mark_of(c, r, place);
        if (!inside(w, m, &offset))
            return;
        const unsigned i = atomicAdd(&room->n, 1u);
        room->near[i] = m;
        room->mass[i] = by_count ? 0 : mass_at(c, place);
        all += room->mass[i];
    });
    return block_sum(all, room->red);
}

/* Which of the listed elements passes the goal, into room: its mark, and how many there are up to
 * it. */
__device__ void pass_list(const chain &c, bool by_count, u64 goal) {
    chain_room *room = c.room;
    const unsigned n = room->n;
    for (unsigned i = threadIdx.x; i < n; i += THREADS) {
        const mark mine = room->near[i];
        u64 mass = room->before_mass;
        unsigned count = room->before_count;
        for (unsigned j = 0; j < n; j++) {
            if (!up_to(room->near[j], mine))
                continue;
            mass += room->mass[j];
            count++;
        }
        const u64 running = by_count ? count : mass;
        const u64 own = by_count ? 1 : room->mass[i];
        if (running > goal && running - own <= goal) {
            room->at = mine;
            room->up_to = count;
        }
    }
    __syncthreads();
}

/* A running sum passes the goal where it exceeds this. */
__device__ __forceinline__ u64 goal_of(const aim &want, u64 all) {
    if (want.count)
        return want.count - 1;
    const double goal = want.share * (double)all;
    u64 at = (u64)goal;
    if (want.reach && (double)at == goal && at)
        at--;
    return at < all ? at : all - 1;
}

__device__ found find(const chain &c, const ruler &r, const aim &want) {
    chain_room *room = c.room;
    const bool by_count = want.count;
    const u64 far_first = mark_of(c, r, c.first).far;
    const u64 far_last = mark_of(c, r, c.last).far;
    const u64 farthest = (far_first > far_last ? far_first : far_last) | 1;
    window w = {0, farthest, 0, false};
    unsigned n = c.n;
    u64 goal = 0;
    found f = {};
    __syncthreads();
    if (!threadIdx.x) {
        room->before_mass = 0;
        room->before_count = 0;
    }
    while (n > LIST) {
        const u64 all = fill_bins(c, r, w, by_count);
        if (n == c.n && !f.all) {
            f.all = all;
            goal = goal_of(want, all);
        }
        pass_bins(c, by_count, goal);
        n = c.room->bin_count[room->bin];
        enter_bin(c, &w);
    }
    const u64 all = list_window(c, r, w, by_count);
    if (c.n <= LIST) {
        f.all = all;
        goal = goal_of(want, all);
    }
    pass_list(c, by_count, goal);
    f.at = room->at;
    f.up_to = room->up_to;
    __syncthreads();
    return f;
}

/* The same in the order of logits: the element's place. */
__device__ u64 find_place(const chain &c, const aim &want, found *f) {
    const ruler along = {0, 0};
    *f = find(c, along, want);
    return ~f->at.tie;
}

/* ---- samplers that narrow the candidates ----------------------------------------------------- */
__device__ void keep_prefix(chain &c, const aim &want) {
    found f;
    const u64 last = find_place(c, want, &f);
    keep(c, c.first, last, f.up_to);
}

/* The first candidate, and those of at least this weight. */
__device__ void keep_heavy(chain &c, double limit) {
    const auto heavy = [&](u64 place) { return place == c.first || weight_at(c, place) >= limit; };
    keep_those(c, heavy);
}

__device__ void top_n_sigma(chain &c, double n_sigma) {
    double sum = 0;
    double square = 0;
    each(c, [&](u64 place) { sum += logit_at(place); });
    const double mean = block_sum(sum, c.room->real) / c.n;
    each(c, [&](u64 place) {
        const double off = logit_at(place) - mean;
        square += off * off;
    });
    const double limit = c.max - n_sigma * sqrt(block_sum(square, c.room->real) / c.n);
    keep_those(c, [&](u64 place) { return place == c.first || logit_at(place) >= limit; });
}

__device__ void typical(chain &c, double p) {
    const weights w = weigh_all(c);
    ruler r = {w.below / w.all, 0};
    u64 nearest = ~(u64)0;
    each(c, [&](u64 place) {
        const u64 far = mark_of(c, r, place).far;
        nearest = far < nearest ? far : nearest;
    });
    r.nearest = block_min(nearest, c.room);
    const aim share = {0, p, true};
    const found f = find(c, r, share);
    keep_those(c, [&](u64 place) { return up_to(mark_of(c, r, place), f.at); });
}

/* All of this weight or more go, but for the last. */
__device__ void xtc(chain &c, const mn_slot_params &p, float random) {
    if (c.n < 2 || random >= p.xtc_probability)
        return;
    const double limit = p.xtc_threshold * weigh_all(c).all;
    u64 lowest = c.first;
    each(c, [&](u64 place) {
        if (place < lowest && weight_at(c, place) >= limit)
            lowest = place;
    });
    lowest = block_min(lowest, c.room);
    keep_those(c, [&](u64 place) { return place <= lowest; });
}

__device__ void temperature(chain &c, const mn_slot_params &p) {
    double temp = p.temp;
    if (p.dynatemp_range > 0 && c.n > 1) {
        const double low = fmax(0.0, temp - p.dynatemp_range);
        const double high = temp + p.dynatemp_range;
        const weights w = weigh_all(c);
        const double entropy = w.below / w.all + log(w.all);
        const double share = entropy / log((double)c.n);
        temp = low + (high - low) * pow(share, (double)p.dynatemp_exponent);
    }
    if (temp > 0) {
        c.temp *= temp;
        c.per_temp = 1 / c.temp;
    } else {
        keep(c, c.first, c.first, 1);
    }
}

/* ---- samplers that change logits ------------------------------------------------------------- */
/* An id that ends matches of dry, and one that is none. */
__device__ __forceinline__ bool breaks(const cu_sample &a, int slot, int id) {
    if (id < 0 || id >= a.V)
        return true;
    const int words = (a.V + 31) / 32;
    return a.breakers && (__ldcg(&a.breakers[(int64_t)slot * words + id / 32]) >> id % 32 & 1);
}

/* The place in the history that a match ends at against its newest: how many tokens are equal. */
__device__ int match_at(const chain &c, const int32_t *history, int lo, int hi, int i, int most) {
    int n = 0;
    while (n < most && i - n >= lo) {
        const int id = __ldcg(&history[i - n]);
        if (id != __ldcg(&history[hi - 1 - n]) || breaks(*c.a, c.slot, id))
            break;
        n++;
    }
    return n;
}

/* count holds the longest match that an id follows. Tokens of a match beyond dry_allowed_length
 * that are counted are bounded: by then the penalty forbids the id. */
__device__ void dry(const chain &c, const mn_slot_params &p) {
    enum { DRY_MOST = 256 };
    const cu_sample &a = *c.a;
    const int32_t *history = a.history + (int64_t)c.slot * a.C;
    const int hi = c.pos < a.C ? c.pos : a.C;
    const int lo = p.dry_last_n < 0 || p.dry_last_n > hi ? 0 : hi - p.dry_last_n;
    const int allowed = p.dry_allowed_length;
    const int most = allowed < INT32_MAX - DRY_MOST ? allowed + DRY_MOST : INT32_MAX;
    for (int i = threadIdx.x; i < a.V; i += THREADS)
        c.count[i] = 0;
    __syncthreads();
    for (int i = lo + threadIdx.x; i + 1 < hi; i += THREADS) {
        const int next = __ldcg(&history[i + 1]);
        const int match = match_at(c, history, lo, hi, i, most);
        if (match >= max(allowed, 1) && !breaks(a, c.slot, next))
            atomicMax(&c.count[next], match);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < a.V; i += THREADS) {
        const int match = __ldcg(&c.count[i]);
        if (!match)
            continue;
        const double by = p.dry_multiplier * pow((double)p.dry_base, (double)(match - allowed));
        c.l[i] = __fsub_rn(c.l[i], (float)fmin(by, (double)FLT_MAX));
    }
    __syncthreads();
}

/* The candidates go back into the logits, for a sampler that changes them. */
__device__ void write_back(chain &c) {
    if (!c.ordered)
        return;
    __syncthreads();
    for (int i = threadIdx.x; i < c.a->V; i += THREADS) {
        const float v = c.l[i];
        const u64 place = place_of(v, i);
        const bool kept = v != -INFINITY && place <= c.first && place >= c.last;
        c.l[i] = kept ? fminf((float)(v / c.temp), FLT_MAX) : -INFINITY;
    }
    __syncthreads();
    c.temp = 1;
    c.per_temp = 1;
    c.listed = 0;
    c.ordered = false;
}

/* false = the sampler is none of those that change logits. */
__device__ bool run_on_history(chain &c, unsigned sampler) {
    const mn_slot_params &p = *c.p;
    const mnp_on_history how = mnp_sampler_on_history(sampler, &p);
    if (how != MNP_HISTORY_ON)
        return how == MNP_HISTORY_OFF;
    write_back(c);
    c.rewritten = true;
    if (sampler == MN_SAMPLER_PENALTIES)
        penalise(*c.a, p, c.l, c.count, c.a->history + (int64_t)c.slot * c.a->C, c.pos);
    else
        dry(c, p);
    return true;
}

/* ---- the chain ------------------------------------------------------------------------------- */
/* The first sampler to come, off the list; 0 = the list is over. */
__device__ __forceinline__ unsigned take_sampler(chain &c) {
    const unsigned sampler = c.left & 15;
    c.left = sampler ? c.left >> 4 : 0;
    return sampler;
}

/* Runs the samplers of the history that come first; greedy: those of the whole list. */
__device__ void chain_begin(chain &c, bool greedy) {
    c.left = c.p->samplers ? c.p->samplers : MN_SAMPLERS_DEFAULT;
    c.temp = 1;
    c.per_temp = 1;
    c.listed = 0;
    c.ordered = false;
    while (c.left) {
        const u64 left = c.left;
        const bool done = run_on_history(c, take_sampler(c));
        if (done || greedy)
            continue;
        c.left = left;
        break;
    }
    c.rewritten = false;
}

/* Runs a sampler that narrows the candidates, if it is on. */
__device__ void narrow(chain &c, unsigned sampler, float random) {
    const mn_slot_params &p = *c.p;
    if (p.mirostat == 2 && sampler != MN_SAMPLER_TEMPERATURE)
        return;
    switch (sampler) {
    case MN_SAMPLER_TOP_N_SIGMA:
        if (p.top_n_sigma > 0)
            top_n_sigma(c, p.top_n_sigma);
        break;
    case MN_SAMPLER_TOP_K:
        if (p.top_k > 0 && (unsigned)p.top_k < c.n)
            keep_prefix(c, aim{(unsigned)p.top_k, 0, false});
        break;
    case MN_SAMPLER_TYPICAL:
        if (p.typical_p > 0 && p.typical_p < 1)
            typical(c, p.typical_p);
        break;
    case MN_SAMPLER_TOP_P:
        if (p.top_p > 0 && p.top_p < 1)
            keep_prefix(c, aim{0, p.top_p, true});
        break;
    case MN_SAMPLER_MIN_P:
        if (p.min_p > 0)
            keep_heavy(c, p.min_p);
        break;
    case MN_SAMPLER_XTC:
        if (p.xtc_probability > 0 && p.xtc_threshold <= 0.5f)
            xtc(c, p, random);
        break;
    case MN_SAMPLER_TEMPERATURE:
        temperature(c, p);
    }
}

/* Runs the rest and draws: the id, or MN_ID_NONE. *mu: mirostat's, moved; NULL = there is none. */
__device__ int chain_draw(chain &c, float *mu) {
    const mn_slot_params &p = *c.p;
    const bool mirostat = p.mirostat == 2 && mu;
    const float2 random = philox(p.seed, (uint32_t)c.pos);
    found f;
    while (c.left) {
        const unsigned sampler = take_sampler(c);
        if (!sampler || run_on_history(c, sampler))
            continue;
        if (!make_order(c))
            return MN_ID_NONE;
        narrow(c, sampler, random.y);
    }
    if (!make_order(c))
        return MN_ID_NONE;
    if (mirostat)
        keep_heavy(c, weigh_all(c).all * exp2(-(double)*mu));
    const u64 place = find_place(c, aim{0, random.x, false}, &f);
    if (mirostat) {
        const double share = weight_at(c, place) / ((double)f.all * 0x1p-45);
        *mu = (float)(*mu - p.mirostat_eta * (-log2(share) - p.mirostat_tau));
    }
    return id_at(place);
}
#endif
