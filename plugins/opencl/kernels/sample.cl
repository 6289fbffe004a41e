/* sample.cl -- SAMPLE: one group for each output row. Nothing is sorted. An element's place in the
 * order of logits, ties to the lower id, is one number (order_of); every filter keeps the elements
 * from some number on, and the draw asks at which number a running sum passes a goal, found bit by
 * bit. Probabilities are sums in 2^-45 fixed point, so that no sum depends on an order. */
#define FLT_LARGEST 3.402823466e+38f
enum { ID_NONE = -1, ID_NAN = -2, MAX_STOP = 32 };
/* Words of an mn_slot and of an mn_slot_params. */
enum { SLOT_LAST_ID, SLOT_POS, SLOT_N_DRAWN, SLOT_DONE };
enum { RUNNING, STOPPED, LENGTH, FAILED };
enum {
    SEED_LOW,
    SEED_HIGH,
    TEMP,
    TOP_K,
    TOP_P,
    MIN_P,
    REPEAT,
    FREQUENCY,
    PRESENCE,
    LAST_N,
    MAX_NEW,
    N_STOP,
    STOP,
    MIN_NEW = STOP + MAX_STOP
};

/* A slot's row of PARAMS; a word that the row lacks is 0. */
typedef struct {
    global const int *at;
    int words;
} params_row;
static int word(params_row p, int i) {
    return i < p.words ? p.at[i] : 0;
}
static float number(params_row p, int i) {
    return as_float(word(p, i));
}
static int count_stops(params_row p) {
    return min(word(p, N_STOP), (int)MAX_STOP);
}

/* A row that draws: its logits as adjusted, a number per id (counts of penalties, then masses). */
typedef struct {
    global float *l;
    global ulong *mass;
    local ulong *red;
    int V;
} row_state;

static ulong order_of(float v, int id) {
    const uint bits = as_uint(v == 0.0f ? 0.0f : v);
    const uint key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (ulong)key << 32 | (uint)~id;
}
static int id_of(ulong order) {
    return order ? (int)~(uint)order : ID_NONE;
}

/* The best element below `under`; 0 = none. -inf is no element. */
static ulong best_under(const row_state *r, global const float *l, ulong under) {
    ulong best = 0;
    for (int i = get_local_id(0); i < r->V; i += LANES) {
        const float v = l[i];
        const ulong order = order_of(v, i);
        if (v != -INFINITY && !isnan(v) && order < under)
            best = max(best, order);
    }
    return group_max_u64(best, r->red);
}

static bool any_nan(const row_state *r, global const float *l) {
    ulong bad = 0;
    for (int i = get_local_id(0); i < r->V; i += LANES)
        bad |= isnan(l[i]) ? 1 : 0;
    return group_max_u64(bad, r->red) != 0;
}

/* Against the largest logit, in fixed point. */
static ulong weigh(float l, float top, float temp) {
    const real below = ((real)l - (real)top) / (real)temp;
    return (ulong)(exp(below) * (real)0x1p45f);
}

/* The masses at a temperature of all from `cut` on, 0 for the others; their sum. */
static ulong weigh_all(const row_state *r, ulong cut, float top, float temp) {
    ulong sum = 0;
    for (int i = get_local_id(0); i < r->V; i += LANES) {
        const float v = r->l[i];
        const bool kept = v != -INFINITY && order_of(v, i) >= cut;
        const ulong mass = kept ? weigh(v, top, temp) : 0;
        r->mass[i] = mass;
        sum += mass;
    }
    return group_sum_u64(sum, r->red);
}

/* The count (by_count) or mass of what is at or above an order. */
static ulong sum_from(const row_state *r, ulong order, bool by_count) {
    ulong sum = 0;
    for (int i = get_local_id(0); i < r->V; i += LANES) {
        const float v = r->l[i];
        if (v != -INFINITY && order_of(v, i) >= order)
            sum += by_count ? 1 : r->mass[i];
    }
    return group_sum_u64(sum, r->red);
}

/* The element at which, from the best down, the running sum passes the goal. Bits of ids that none
 * has (they are inverted) are ones from the beginning. */
static ulong find(const row_state *r, ulong goal, bool by_count) {
    const int id_bits = 32 - clz(r->V | 1);
    const ulong unused = (0xffffffffu >> id_bits) << id_bits;
    ulong at = 0;
    for (int bit = 63; bit >= 0; bit--) {
        if (bit < 32 && bit >= id_bits)
            continue;
        const ulong next = at | (ulong)1 << bit;
        const ulong order = bit < 32 ? next | unused : next;
        if (sum_from(r, order, by_count) > goal)
            at = next;
    }
    return at | unused;
}

/* ---- the chain ------------------------------------------------------------------------------- */
/* Logits with sparse bias, bias and mask into r->l; true = one is NaN. */
static bool adjust(const row_state *r, global const float *logits, global const int *bias_ids,
                   global const float *bias_values, int n_bias_ids, global const float *bias,
                   global const uint *mask) {
    const int lane = get_local_id(0);
    ulong bad = 0;
    for (int i = lane; i < r->V; i += LANES) {
        const float v = logits[i];
        r->l[i] = v > FLT_LARGEST ? FLT_LARGEST : v;
    }
    SYNC_GLOBAL;
    for (int i = lane; bias_ids && bias_values && i < n_bias_ids; i += LANES) {
        const int id = bias_ids[i];
        if (id >= 0 && id < r->V)
            r->l[id] += bias_values[i];
    }
    SYNC_GLOBAL;
    for (int i = lane; i < r->V; i += LANES) {
        float v = r->l[i];
        v = bias ? v + bias[i] : v;
        bad |= isnan(v) ? 1 : 0;
        v = v > FLT_LARGEST ? FLT_LARGEST : v;
        const bool masked = mask && !(mask[i / 32] >> i % 32 & 1);
        r->l[i] = masked ? -INFINITY : v;
    }
    SYNC_GLOBAL;
    return group_max_u64(bad, r->red) != 0;
}

/* Once for each id of the newest part of the history. */
static void penalise(const row_state *r, params_row p, global const int *history, int C, int pos) {
    const int lane = get_local_id(0);
    global int *count = (global int *)r->mass;
    const int last_n = word(p, LAST_N);
    const int hi = min(pos, C);
    const int lo = last_n < 0 || last_n > hi ? 0 : hi - last_n;
    const float repeat = number(p, REPEAT);
    for (int i = lane; i < r->V; i += LANES)
        count[i] = 0;
    SYNC_GLOBAL;
    for (int i = lo + lane; i < hi; i += LANES) {
        const int id = history[i];
        if (id >= 0 && id < r->V)
            atomic_inc(&count[id]);
    }
    SYNC_GLOBAL;
    for (int i = lane; i < r->V; i += LANES) {
        float v = r->l[i];
        const int n = count[i];
        if (!n)
            continue;
        if (repeat != 0.0f)
            v = v > 0.0f ? v / repeat : v * repeat;
        v -= number(p, FREQUENCY) * (float)n + number(p, PRESENCE);
        r->l[i] = isnan(v) ? -INFINITY : fmin(v, FLT_MAX);
    }
    SYNC_GLOBAL;
}

static bool has_penalties(params_row p) {
    const float repeat = number(p, REPEAT);
    const bool counts = number(p, FREQUENCY) != 0.0f || number(p, PRESENCE) != 0.0f;
    return word(p, LAST_N) != 0 && ((repeat != 0.0f && repeat != 1.0f) || counts);
}

/* Philox4x32-10 (Salmon 2011) of the position, keyed by the seed: its first word. */
static uint philox(uint k0, uint k1, uint pos) {
    uint4 c = (uint4)(pos, 0, 0, 0);
    for (int round = 0; round < 10; round++) {
        const uint high_a = mul_hi(0xD2511F53u, c.x);
        const uint high_b = mul_hi(0xCD9E8D57u, c.z);
        c = (uint4)(high_b ^ c.y ^ k0, 0xCD9E8D57u * c.z, high_a ^ c.w ^ k1, 0xD2511F53u * c.x);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c.x;
}

/* From which element on min_p keeps; at least the best. */
static ulong min_p_cut(const row_state *r, float min_p, float top) {
    ulong lowest = 0; /* inverted */
    for (int i = get_local_id(0); i < r->V; i += LANES) {
        const float v = r->l[i];
        if (v != -INFINITY && exp((real)v - (real)top) >= (real)min_p)
            lowest = max(lowest, ~order_of(v, i));
    }
    return ~group_max_u64(lowest, r->red);
}

/* top_k, top_p, min_p, temperature, the draw. best: the largest logit's element. */
static ulong draw(const row_state *r, params_row p, int pos, ulong best) {
    const float top = r->l[id_of(best)];
    const float temp = number(p, TEMP);
    const float top_p = number(p, TOP_P);
    const int top_k = word(p, TOP_K);
    ulong cut = 0;
    if (top_k > 0 && top_k < r->V && sum_from(r, 0, true) > (ulong)top_k)
        cut = find(r, top_k - 1, true);
    if (top_p > 0.0f && top_p < 1.0f) {
        const ulong sum = weigh_all(r, cut, top, 1.0f);
        const ulong goal = (ulong)((real)top_p * (real)sum);
        cut = max(cut, find(r, goal ? goal - 1 : 0, false));
    }
    if (number(p, MIN_P) > 0.0f)
        cut = max(cut, min_p_cut(r, number(p, MIN_P), top));
    cut = min(cut, best);
    const ulong sum = weigh_all(r, cut, top, temp);
    const uint random = philox(word(p, SEED_LOW), word(p, SEED_HIGH), pos) >> 8;
    const ulong goal = (ulong)((real)random * (real)0x1p-24f * (real)sum);
    return max(find(r, min(goal, sum - 1), false), cut);
}

/* log of the sum of exp(l - top); NaN where it is none. */
static real log_of_all(const row_state *r, global const float *l, ulong best) {
    ulong sum = 0;
    const float top = best ? l[id_of(best)] : 0.0f;
    for (int i = get_local_id(0); i < r->V && best; i += LANES)
        sum += l[i] == -INFINITY || isinf(top) ? 0 : weigh(l[i], top, 1.0f);
    sum = group_sum_u64(sum, r->red);
    if (isinf(top))
        return NAN;
    return log((real)sum * (real)0x1p-45f);
}

static float log_prob(global const float *l, int id, ulong best, real of_all) {
    if (id < 0 || !best)
        return -INFINITY;
    return (float)((real)l[id] - (real)l[id_of(best)] - of_all);
}

/* The n best in order. */
static void write_top(const row_state *r, global const float *l, int n, ulong best, real of_all,
                      global int *ids, global float *probs) {
    ulong now = best;
    for (int k = 0; k < n; k++) {
        if (k && now)
            now = best_under(r, l, now);
        if (get_local_id(0) == 0) {
            if (ids)
                ids[k] = id_of(now);
            if (probs)
                probs[k] = log_prob(l, id_of(now), best, of_all);
        }
    }
}

/* Writes a drawn id into the slot; without one it has failed. One item. */
static void advance(global int *slot, params_row p, int id) {
    if (id < 0) {
        slot[SLOT_DONE] = FAILED;
        return;
    }
    const int n_drawn = slot[SLOT_N_DRAWN] + 1;
    slot[SLOT_LAST_ID] = id;
    slot[SLOT_N_DRAWN] = n_drawn;
    if (word(p, MAX_NEW) > 0 && n_drawn >= word(p, MAX_NEW))
        slot[SLOT_DONE] = LENGTH;
    for (int i = 0; i < count_stops(p); i++)
        if (word(p, STOP + i) == id)
            slot[SLOT_DONE] = STOPPED;
}

/* The slot that draws from a row; -1 = none. */
static int slot_of(global const int *out_slot, global const int *target, int row, int S) {
    if (target && target[row] >= 0)
        return -1;
    return out_slot[row] < S ? out_slot[row] : -1;
}

/* How many rows from this one on verify drafts of one another; 1 = it is alone. */
static int count_tied(global const int *out_slot, global const int *target, global const int *draft,
                      int row, const ocl_sample_args *a) {
    const int slot = slot_of(out_slot, target, row, a->S);
    int n = 1;
    while (draft && row + n < a->O && draft[row + n - 1] >= 0 &&
           slot_of(out_slot, target, row + n, a->S) == slot)
        n++;
    return n;
}

kernel void sample(REF(logits), REF(out_slot), REF(params), REF(slots), REF(history), REF(bias),
                   REF(mask), REF(bias_ids), REF(bias_values), REF(target), REF(draft), REF(ids),
                   REF(top_ids), REF(top_logprobs), REF(logprob), REF(adjusted), REF(mass),
                   const ocl_sample_args a) {
    local ulong red[LANES];
    const int lane = get_local_id(0);
    const int first = get_group_id(0);
    global const int *out_slot = PTR(const int, out_slot);
    global const int *target = PTR(const int, target);
    global const int *draft = PTR(const int, draft);
    global int *ids = PTR(int, ids);
    global float *logprob = PTR(float, logprob);
    const int mask_words = (a.V + 31) / 32;
    const int slot = slot_of(out_slot, target, first, a.S);
    const int goal = target ? target[first] : -1;
    bool mine = true;
    int n_tied = 0; /* rows from this one on that verify drafts of one another, or 0 */
    /* a slot that draws twice in a step draws in order: its first row's group does all its rows */
    for (int r = 0; r < first && slot >= 0; r++)
        mine = mine && slot_of(out_slot, target, r, a.S) != slot;
    for (int row = first; row < a.O && mine; row++) {
        const bool draws = slot >= 0 && slot_of(out_slot, target, row, a.S) == slot;
        if (row != first && !draws)
            continue;
        global const float *logits = PTR(const float, logits) + (ulong)row * a.V;
        row_state r;
        r.l = PTR(float, adjusted) + (ulong)row * a.V;
        r.mass = PTR(ulong, mass) + (ulong)row * a.V;
        r.red = red;
        r.V = a.V;
        global int *top_ids = PTR(int, top_ids);
        global float *top_probs = PTR(float, top_logprobs);
        top_ids = top_ids ? top_ids + (ulong)row * a.n_top : 0;
        top_probs = top_probs ? top_probs + (ulong)row * a.n_top : 0;
        int id = ID_NONE;
        if (goal >= 0 && (a.n_top || logprob)) {
            const bool bad = any_nan(&r, logits);
            const ulong best = bad ? 0 : best_under(&r, logits, ~(ulong)0);
            const real of_all = bad ? (real)NAN : log_of_all(&r, logits, best);
            write_top(&r, logits, a.n_top, best, of_all, top_ids, top_probs);
            const int known = goal < a.V ? goal : -1;
            if (logprob && lane == 0)
                logprob[row] = bad ? NAN : log_prob(logits, known, best, of_all);
        }
        global int *state = PTR(int, slots) + (ulong)max(slot, 0) * a.slot_words;
        if (draws && !n_tied) {
            n_tied = count_tied(out_slot, target, draft, row, &a);
            /* back to the first row's position: EMBED has moved the slot behind the last one's */
            if (lane == 0 && !state[SLOT_DONE])
                state[SLOT_POS] -= n_tied - 1;
            SYNC_GLOBAL;
        }
        const bool live = draws && !state[SLOT_DONE];
        const int pos = state[SLOT_POS];
        const int n_drawn = state[SLOT_N_DRAWN];
        SYNC_GLOBAL;
        if (live) {
            params_row p;
            p.at = PTR(const int, params) + (ulong)slot * a.param_words;
            p.words = a.param_words;
            global const float *bias = PTR(const float, bias);
            global const uint *mask = PTR(const uint, mask);
            global const int *bias_ids = PTR(const int, bias_ids);
            global const float *bias_values = PTR(const float, bias_values);
            const bool bad =
                adjust(&r, logits, bias_ids ? bias_ids + (ulong)slot * a.n_bias_ids : 0,
                       bias_values ? bias_values + (ulong)slot * a.n_bias_ids : 0, a.n_bias_ids,
                       bias ? bias + (ulong)row * a.V : 0,
                       mask ? mask + (ulong)row * mask_words : 0);
            for (int i = lane; n_drawn < word(p, MIN_NEW) && i < count_stops(p); i += LANES) {
                const int stop = word(p, STOP + i);
                if (stop >= 0 && stop < a.V)
                    r.l[stop] = -INFINITY;
            }
            SYNC_GLOBAL;
            if (has_penalties(p))
                penalise(&r, p, PTR(const int, history) + (ulong)slot * a.C, a.C, pos);
            const ulong best = bad ? 0 : best_under(&r, r.l, ~(ulong)0);
            real of_all = NAN;
            if (!bad && (a.n_top || logprob))
                of_all = log_of_all(&r, r.l, best);
            write_top(&r, r.l, a.n_top, best, of_all, top_ids, top_probs);
            id = id_of(best);
            if (best && number(p, TEMP) > 0.0f)
                id = id_of(draw(&r, p, pos, best));
            if (bad)
                id = ID_NAN;
            if (lane == 0) {
                if (logprob)
                    logprob[row] = log_prob(r.l, id, best, of_all);
                advance(state, p, id);
            }
        }
        if (lane == 0)
            ids[row] = id;
        SYNC_GLOBAL;
        n_tied = max(n_tied - 1, 0);
        if (!n_tied)
            continue;
        const bool goes_on = id >= 0 && id == draft[row] && !state[SLOT_DONE];
        SYNC_GLOBAL;
        if (goes_on && lane == 0)
            state[SLOT_POS]++;
        for (; !goes_on && n_tied; n_tied--)
            ids[++row] = ID_NONE;
        SYNC_GLOBAL;
    }
}
