/* sample.cl -- SAMPLE: one group for each output row. Nothing is sorted. An element's place in the
 * order of logits, ties to the lower id, is one number (order_of); every filter keeps the elements
 * from some number on, and the draw asks at which number a running sum passes a goal, found bit by
 * bit. Probabilities are sums in 2^-45 fixed point, so that no sum depends on an order. */
#define FLT_LARGEST 3.402823466e+38f
enum { ID_NONE = -1, ID_NAN = -2, MAX_STOP = 32 };
/* Words of an mn_slot and of an mn_slot_params. */
enum { SLOT_LAST_ID, SLOT_POS, SLOT_N_DRAWN, SLOT_DONE, SLOT_MU };
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
    MIN_NEW = STOP + MAX_STOP,
    SAMPLERS = MIN_NEW + 2, /* two words */
    DRY_MULTIPLIER = SAMPLERS + 2,
    DRY_BASE,
    DRY_ALLOWED,
    DRY_LAST_N,
    TOP_N_SIGMA,
    TYPICAL_P,
    XTC_PROBABILITY,
    XTC_THRESHOLD,
    DYNATEMP_RANGE,
    DYNATEMP_EXPONENT,
    MIROSTAT,
    MIROSTAT_TAU,
    MIROSTAT_ETA
};
/* Samplers in SAMPLERS, 4 bits each, and their usual order. */
enum { USE_PENALTIES = 1, USE_DRY, USE_SIGMA, USE_TOP_K, USE_TYPICAL };
enum { USE_TOP_P = 6, USE_MIN_P, USE_XTC, USE_TEMPERATURE };
#define USUAL_ORDER 0x987654321ul

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

/* What changes a row's logits before all samplers; 0 = not there. */
typedef struct {
    global const float *logits;
    global const int *bias_ids;
    global const float *bias_values;
    int n_bias_ids;
    global const float *bias;
    global const uint *mask;
} row_inputs;

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
static ulong weigh(float l, float top, real temp) {
    const real below = ((real)l - (real)top) / temp;
    return (ulong)(exp(below) * (real)0x1p45f);
}

/* The mass of what is at or above an order. */
static ulong sum_from(const row_state *r, ulong order) {
    ulong sum = 0;
    for (int i = get_local_id(0); i < r->V; i += LANES)
        if (r->mass[i] && order_of(r->l[i], i) >= order)
            sum += r->mass[i];
    return group_sum_u64(sum, r->red);
}

/* The element at which, from the best down, the running sum passes the goal. Bits of ids that none
 * has (they are inverted) are ones from the beginning. */
static ulong find(const row_state *r, ulong goal) {
    const int id_bits = 32 - clz(r->V | 1);
    const ulong unused = (0xffffffffu >> id_bits) << id_bits;
    ulong at = 0;
    for (int bit = 63; bit >= 0; bit--) {
        if (bit < 32 && bit >= id_bits)
            continue;
        const ulong next = at | (ulong)1 << bit;
        const ulong order = bit < 32 ? next | unused : next;
        if (sum_from(r, order) > goal)
            at = next;
    }
    return at | unused;
}

/* ---- the chain ------------------------------------------------------------------------------- */
/* Logits with sparse bias, bias and mask into r->l; true = one is NaN. */
static bool adjust(const row_state *r, const row_inputs *in) {
    global const float *bias = in->bias;
    global const uint *mask = in->mask;
    const int lane = get_local_id(0);
    ulong bad = 0;
    for (int i = lane; i < r->V; i += LANES) {
        const float v = in->logits[i];
        r->l[i] = v > FLT_LARGEST ? FLT_LARGEST : v;
    }
    SYNC_GLOBAL;
    for (int i = lane; in->bias_ids && in->bias_values && i < in->n_bias_ids; i += LANES) {
        const int id = in->bias_ids[i];
        if (id >= 0 && id < r->V)
            r->l[id] += in->bias_values[i];
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

/* The same without stop ids that may not be drawn yet. */
static bool prepare(const row_state *r, const row_inputs *in, params_row p, int n_drawn) {
    const bool bad = adjust(r, in);
    for (int i = get_local_id(0); n_drawn < word(p, MIN_NEW) && i < count_stops(p); i += LANES) {
        const int stop = word(p, STOP + i);
        if (stop >= 0 && stop < r->V)
            r->l[stop] = -INFINITY;
    }
    SYNC_GLOBAL;
    return bad;
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

/* Philox4x32-10 (Salmon 2011) of the position, keyed by the seed: its first two words. */
static uint2 philox(uint k0, uint k1, uint pos) {
    uint4 c = (uint4)(pos, 0, 0, 0);
    for (int round = 0; round < 10; round++) {
        const uint high_a = mul_hi(0xD2511F53u, c.x);
        const uint high_b = mul_hi(0xCD9E8D57u, c.z);
        c = (uint4)(high_b ^ c.y ^ k0, 0xCD9E8D57u * c.z, high_a ^ c.w ^ k1, 0xD2511F53u * c.x);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c.xy;
}

/* ---- samplers -------------------------------------------------------------------------------- */
/* One row between its biases and its id: the candidates are the elements from `first` down to
 * `last`, n of them; max is the logit of the first; temp divides, over all temperatures so far. */
typedef struct {
    const row_state *r;
    params_row p;
    global const int *history;
    global const uint *breakers; /* or 0 */
    int C;
    int pos;
    ulong left; /* samplers to come */
    ulong first;
    ulong last;
    int n;
    float max;
    real temp;
    bool ordered;   /* first and last are known */
    bool rewritten; /* the logits were changed behind the first samplers */
} chain_state;

static float logit_at(ulong order) {
    const uint key = (uint)(order >> 32);
    return as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* The element's order if it is a candidate, else 0. */
static ulong candidate(const chain_state *c, int i) {
    const float v = c->r->l[i];
    if (v == -INFINITY)
        return 0;
    const ulong order = order_of(v, i);
    return order <= c->first && order >= c->last ? order : 0;
}

static real below(const chain_state *c, ulong order) {
    return ((real)c->max - (real)logit_at(order)) / c->temp;
}

/* The candidates are those from first to last from now on. */
static void keep(chain_state *c, ulong first, ulong last) {
    ulong n = 0;
    c->first = first;
    c->last = last;
    c->max = logit_at(first);
    for (int i = get_local_id(0); i < c->r->V; i += LANES)
        n += candidate(c, i) ? 1 : 0;
    c->n = (int)group_sum_u64(n, c->r->red);
}

/* false = no logit is finite. */
static bool make_order(chain_state *c) {
    ulong best = 0;
    ulong worst = 0; /* inverted */
    if (c->ordered)
        return true;
    c->first = ~(ulong)0;
    c->last = 0;
    for (int i = get_local_id(0); i < c->r->V; i += LANES) {
        const ulong order = candidate(c, i);
        best = max(best, order);
        worst = max(worst, order ? ~order : 0);
    }
    best = group_max_u64(best, c->r->red);
    worst = group_max_u64(worst, c->r->red);
    if (!best)
        return false;
    keep(c, best, ~worst);
    c->ordered = true;
    return true;
}

GROUP_REDUCE(real, group_sum_real, a + b)
static real sum_real(const chain_state *c, real v) {
    return group_sum_real(v, (local real *)c->r->red);
}

/* Masses of the candidates, 0 for the others (counts: 1 for each); their sum. */
static ulong weigh_all(const chain_state *c, bool counts) {
    ulong sum = 0;
    for (int i = get_local_id(0); i < c->r->V; i += LANES) {
        const ulong order = candidate(c, i);
        ulong mass = 0;
        if (order)
            mass = counts ? 1 : weigh(c->r->l[i], c->max, c->temp);
        c->r->mass[i] = mass;
        sum += mass;
    }
    return group_sum_u64(sum, c->r->red);
}

/* The mean of `below`, by probability. */
static real mean_below(const chain_state *c, real sum) {
    real mean = 0;
    for (int i = get_local_id(0); i < c->r->V; i += LANES) {
        const ulong order = candidate(c, i);
        if (!order)
            continue;
        const real far = below(c, order);
        const real weight = exp(-far);
        mean += weight > 0 ? weight / sum * far : 0;
    }
    return sum_real(c, mean);
}

/* The last candidate of at least this weight; at least the first. */
static ulong last_heavy(const chain_state *c, real limit) {
    ulong lowest = ~c->first; /* inverted */
    for (int i = get_local_id(0); i < c->r->V; i += LANES) {
        const ulong order = candidate(c, i);
        if (order && exp(-below(c, order)) >= limit)
            lowest = max(lowest, ~order);
    }
    return ~group_max_u64(lowest, c->r->red);
}

static real sum_of(ulong mass) {
    return (real)mass * (real)0x1p-45f;
}

/* A running sum reaches the share of all where it exceeds this. */
static ulong goal_of(real share, ulong all) {
    const real goal = share * (real)all;
    const ulong at = (ulong)goal;
    return at && (real)at == goal ? at - 1 : min(at, all - 1);
}

static void top_n_sigma(chain_state *c, real n_sigma) {
    real sum = 0;
    real square = 0;
    ulong lowest = ~c->first; /* inverted */
    for (int i = get_local_id(0); i < c->r->V; i += LANES)
        sum += candidate(c, i) ? (real)c->r->l[i] : 0;
    const real mean = sum_real(c, sum) / c->n;
    for (int i = get_local_id(0); i < c->r->V; i += LANES) {
        const real off = candidate(c, i) ? (real)c->r->l[i] - mean : 0;
        square += off * off;
    }
    const real limit = (real)c->max - n_sigma * sqrt(sum_real(c, square) / c->n);
    for (int i = get_local_id(0); i < c->r->V; i += LANES) {
        const ulong order = candidate(c, i);
        if (order && (real)c->r->l[i] >= limit)
            lowest = max(lowest, ~order);
    }
    keep(c, c->first, ~group_max_u64(lowest, c->r->red));
}

/* ---- typical --------------------------------------------------------------------------------- */
/* Elements by their distance from the centre, on both sides: far first, then tie; ascending. Of
 * those with the same logit before the centre the last comes first, unless they are the nearest of
 * all: so what is kept is a range of the order of logits. */
typedef struct {
    real centre;
    ulong nearest;
} ruler;
static ulong far_of(const chain_state *c, const ruler *u, ulong order) {
    const real off = below(c, order) - u->centre;
    const ulong far = (ulong)(fmin(fabs(off), (real)0x1p22f) * (real)0x1p40f);
    return far << 1 | (off >= 0 ? 1 : 0);
}
static ulong tie_of(const ruler *u, ulong order, ulong far) {
    return far & 1 || far == u->nearest ? ~order : order;
}

/* The mass of what is nearer than far, or (ties) as far, with a tie below `tie`. */
static ulong mass_before(const chain_state *c, const ruler *u, ulong far, ulong tie, bool ties) {
    ulong sum = 0;
    for (int i = get_local_id(0); i < c->r->V; i += LANES) {
        const ulong order = candidate(c, i);
        if (!order || !c->r->mass[i])
            continue;
        const ulong own = far_of(c, u, order);
        if (own < far || (ties && own == far && tie_of(u, order, own) < tie))
            sum += c->r->mass[i];
    }
    return group_sum_u64(sum, c->r->red);
}

/* From where on mass passes a goal: the largest number before which there is no more than it. */
static ulong passing(const chain_state *c, const ruler *u, ulong goal, ulong far, bool ties) {
    ulong at = 0;
    for (int bit = 63; bit >= 0; bit--) {
        const ulong next = at | (ulong)1 << bit;
        if (mass_before(c, u, ties ? far : next, next, ties) <= goal)
            at = next;
    }
    return at;
}

static void typical(chain_state *c, real share) {
    const ulong all = weigh_all(c, false);
    const ulong goal = goal_of(share, all);
    ruler u = {mean_below(c, sum_of(all)), 0};
    ulong nearest = 0; /* inverted, as is lowest */
    ulong highest = 0;
    ulong lowest = 0;
    for (int i = get_local_id(0); i < c->r->V; i += LANES) {
        const ulong order = candidate(c, i);
        nearest = max(nearest, order ? ~far_of(c, &u, order) : 0);
    }
    u.nearest = ~group_max_u64(nearest, c->r->red);
    const ulong far = passing(c, &u, goal, 0, false);
    const ulong tie = passing(c, &u, goal, far, true);
    for (int i = get_local_id(0); i < c->r->V; i += LANES) {
        const ulong order = candidate(c, i);
        const ulong own = order ? far_of(c, &u, order) : ~(ulong)0;
        if (own > far || (own == far && tie_of(&u, order, own) > tie))
            continue;
        highest = max(highest, order);
        lowest = max(lowest, ~order);
    }
    highest = group_max_u64(highest, c->r->red);
    keep(c, highest, ~group_max_u64(lowest, c->r->red));
}

/* ---- the rest of them ------------------------------------------------------------------------ */
static void xtc(chain_state *c, uint random) {
    const real w = (real)(random >> 8) * (real)0x1p-24f;
    if (c->n < 2 || w >= (real)number(c->p, XTC_PROBABILITY))
        return;
    const real sum = sum_of(weigh_all(c, false));
    keep(c, last_heavy(c, (real)number(c->p, XTC_THRESHOLD) * sum), c->last);
}

static void temperature(chain_state *c) {
    real temp = number(c->p, TEMP);
    const real range = number(c->p, DYNATEMP_RANGE);
    if (range > 0 && c->n > 1) {
        const real low = fmax((real)0, temp - range);
        const real sum = sum_of(weigh_all(c, false));
        const real entropy = mean_below(c, sum) + log(sum);
        const real share = entropy / log((real)c->n);
        temp = low + (temp + range - low) * pow(share, (real)number(c->p, DYNATEMP_EXPONENT));
    }
    if (temp > 0)
        c->temp *= temp;
    else
        keep(c, c->first, c->first);
}

static bool has_dry(params_row p) {
    return number(p, DRY_MULTIPLIER) > 0.0f && number(p, DRY_BASE) >= 1.0f && word(p, DRY_LAST_N);
}

/* An id that ends matches, and one that is none. */
static bool breaks(const chain_state *c, int id) {
    if (id < 0 || id >= c->r->V)
        return true;
    return c->breakers && (c->breakers[id / 32] >> id % 32 & 1);
}

/* At most 256 tokens beyond the allowed length are counted: by then the penalty forbids the id. */
static void dry(const chain_state *c) {
    const int lane = get_local_id(0);
    global int *longest = (global int *)c->r->mass;
    const int allowed = word(c->p, DRY_ALLOWED);
    const int last_n = word(c->p, DRY_LAST_N);
    const int hi = min(c->pos, c->C);
    const int lo = last_n < 0 || last_n > hi ? 0 : hi - last_n;
    const int most = allowed < INT_MAX - 256 ? allowed + 256 : INT_MAX;
    for (int i = lane; i < c->r->V; i += LANES)
        longest[i] = 0;
    SYNC_GLOBAL;
    for (int i = lo + lane; i + 1 < hi; i += LANES) {
        const int next = c->history[i + 1];
        int n = 0;
        while (n < most && i - n >= lo && c->history[i - n] == c->history[hi - 1 - n] &&
               !breaks(c, c->history[i - n]))
            n++;
        if (n >= max(allowed, 1) && !breaks(c, next))
            atomic_max(&longest[next], n);
    }
    SYNC_GLOBAL;
    for (int i = lane; i < c->r->V; i += LANES) {
        if (!longest[i])
            continue;
        const real power = pow((real)number(c->p, DRY_BASE), (real)(longest[i] - allowed));
        const real by = (real)number(c->p, DRY_MULTIPLIER) * power;
        c->r->l[i] -= (float)fmin(by, (real)FLT_MAX);
    }
    SYNC_GLOBAL;
}

/* The candidates go back into the logits, for a sampler that changes them. */
static void write_back(chain_state *c) {
    if (!c->ordered)
        return;
    for (int i = get_local_id(0); i < c->r->V; i += LANES) {
        const bool kept = candidate(c, i) != 0;
        c->r->l[i] = kept ? fmin((float)((real)c->r->l[i] / c->temp), FLT_MAX) : -INFINITY;
    }
    SYNC_GLOBAL;
    c->temp = 1;
    c->ordered = false;
}

/* false = the sampler is none of those that change logits. */
static bool run_on_history(chain_state *c, uint sampler) {
    if (sampler != USE_PENALTIES && sampler != USE_DRY)
        return false;
    const bool on = sampler == USE_DRY ? has_dry(c->p) : has_penalties(c->p);
    if (!on)
        return true;
    write_back(c);
    c->rewritten = true;
    if (sampler == USE_DRY)
        dry(c);
    else
        penalise(c->r, c->p, c->history, c->C, c->pos);
    return true;
}

static void narrow(chain_state *c, uint sampler, uint random) {
    const float top_p = number(c->p, TOP_P);
    const float typical_p = number(c->p, TYPICAL_P);
    const int top_k = word(c->p, TOP_K);
    if (word(c->p, MIROSTAT) == 2 && sampler != USE_TEMPERATURE)
        return;
    if (sampler == USE_SIGMA && number(c->p, TOP_N_SIGMA) > 0.0f)
        top_n_sigma(c, number(c->p, TOP_N_SIGMA));
    if (sampler == USE_TOP_K && top_k > 0 && top_k < c->n) {
        weigh_all(c, true);
        keep(c, c->first, find(c->r, top_k - 1));
    }
    if (sampler == USE_TYPICAL && typical_p > 0.0f && typical_p < 1.0f)
        typical(c, typical_p);
    if (sampler == USE_TOP_P && top_p > 0.0f && top_p < 1.0f) {
        const ulong all = weigh_all(c, false);
        keep(c, c->first, find(c->r, goal_of(top_p, all)));
    }
    if (sampler == USE_MIN_P && number(c->p, MIN_P) > 0.0f)
        keep(c, c->first, last_heavy(c, number(c->p, MIN_P)));
    if (sampler == USE_XTC && number(c->p, XTC_THRESHOLD) <= 0.5f)
        xtc(c, random);
    if (sampler == USE_TEMPERATURE)
        temperature(c);
}

/* Runs the samplers of the history that come first; greedy: those of the whole list. */
static void chain_begin(chain_state *c, bool greedy) {
    c->left = (uint)word(c->p, SAMPLERS) | (ulong)(uint)word(c->p, SAMPLERS + 1) << 32;
    if (!c->left)
        c->left = USUAL_ORDER;
    c->temp = 1;
    c->ordered = false;
    while (c->left & 15) {
        const bool done = run_on_history(c, c->left & 15);
        if (!done && !greedy)
            break;
        c->left >>= 4;
    }
    c->rewritten = false;
}

/* Runs the rest and draws: the element, 0 = none. mu: mirostat's, moved; 0 = there is none. */
static ulong chain_draw(chain_state *c, float *mu) {
    const bool mirostat = word(c->p, MIROSTAT) == 2 && mu;
    const uint2 random = philox(word(c->p, SEED_LOW), word(c->p, SEED_HIGH), c->pos);
    for (; c->left & 15; c->left >>= 4) {
        const uint sampler = c->left & 15;
        if (run_on_history(c, sampler))
            continue;
        if (!make_order(c))
            return 0;
        narrow(c, sampler, random.y);
    }
    if (!make_order(c))
        return 0;
    if (mirostat) {
        const real sum = sum_of(weigh_all(c, false));
        keep(c, c->first, last_heavy(c, sum * exp2(-(real)*mu)));
    }
    const ulong all = weigh_all(c, false);
    const ulong goal = (ulong)((real)(random.x >> 8) * (real)0x1p-24f * (real)all);
    const ulong at = max(find(c->r, min(goal, all - 1)), c->last);
    if (mirostat) {
        const real surprise = -log2(exp(-below(c, at)) / sum_of(all));
        const real off = surprise - (real)number(c->p, MIROSTAT_TAU);
        *mu = (float)((real)*mu - (real)number(c->p, MIROSTAT_ETA) * off);
    }
    return at;
}

/* log of the sum of exp(l - top); NaN where it is none. */
static real log_of_all(const row_state *r, global const float *l, ulong best) {
    ulong sum = 0;
    const float top = best ? l[id_of(best)] : 0.0f;
    for (int i = get_local_id(0); i < r->V && best; i += LANES)
        sum += l[i] == -INFINITY || isinf(top) ? 0 : weigh(l[i], top, 1);
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
                   REF(mask), REF(bias_ids), REF(bias_values), REF(target), REF(draft),
                   REF(breakers), REF(ids), REF(top_ids), REF(top_logprobs), REF(logprob), REF(mu),
                   REF(adjusted), REF(mass), const ocl_sample_args a) {
    local ulong red[LANES];
    const int lane = get_local_id(0);
    const int first = get_group_id(0);
    global const int *out_slot = PTR(const int, out_slot);
    global const int *target = PTR(const int, target);
    global const int *draft = PTR(const int, draft);
    global int *ids = PTR(int, ids);
    global float *logprob = PTR(float, logprob);
    global float *mu = PTR(float, mu);
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
        const int pos = live ? state[SLOT_POS] : 0;
        const int n_drawn = live ? state[SLOT_N_DRAWN] : 0;
        SYNC_GLOBAL;
        if (live) {
            params_row p;
            p.at = PTR(const int, params) + (ulong)slot * a.param_words;
            p.words = a.param_words;
            global const uint *breakers = PTR(const uint, breakers);
            row_inputs in;
            in.logits = logits;
            in.bias_ids = PTR(const int, bias_ids);
            in.bias_values = PTR(const float, bias_values);
            in.n_bias_ids = a.n_bias_ids;
            in.bias = PTR(const float, bias);
            in.mask = PTR(const uint, mask);
            in.bias_ids = in.bias_ids ? in.bias_ids + (ulong)slot * a.n_bias_ids : 0;
            in.bias_values = in.bias_values ? in.bias_values + (ulong)slot * a.n_bias_ids : 0;
            in.bias = in.bias ? in.bias + (ulong)row * a.V : 0;
            in.mask = in.mask ? in.mask + (ulong)row * mask_words : 0;
            chain_state c;
            c.r = &r;
            c.p = p;
            c.history = PTR(const int, history) + (ulong)slot * a.C;
            c.breakers = breakers ? breakers + (ulong)slot * mask_words : 0;
            c.C = a.C;
            c.pos = pos;
            c.rewritten = false;
            const bool greedy = !(number(p, TEMP) > 0.0f);
            const bool has_mu = a.slot_words > SLOT_MU;
            float own_mu = has_mu ? as_float(state[SLOT_MU]) : 0.0f;
            const bool bad = prepare(&r, &in, p, n_drawn);
            if (!bad)
                chain_begin(&c, greedy);
            const ulong best = bad ? 0 : best_under(&r, r.l, ~(ulong)0);
            real of_all = NAN;
            if (!bad && (a.n_top || logprob))
                of_all = log_of_all(&r, r.l, best);
            write_top(&r, r.l, a.n_top, best, of_all, top_ids, top_probs);
            id = id_of(best);
            if (best && !greedy)
                id = id_of(chain_draw(&c, has_mu ? &own_mu : 0));
            if (bad)
                id = ID_NAN;
            if (c.rewritten && logprob) { /* logprobs are those before the chain */
                prepare(&r, &in, p, n_drawn);
                chain_begin(&c, greedy);
            }
            if (lane == 0) {
                if (logprob)
                    logprob[row] = log_prob(r.l, id, best, of_all);
                advance(state, p, id);
                if (has_mu)
                    state[SLOT_MU] = as_int(own_mu);
                if (has_mu && mu)
                    mu[row] = own_mu;
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
