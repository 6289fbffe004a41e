/* moe.cl -- MOE_ROUTE and MOE_COMBINE: which experts a token goes to, and the sum of what they
 * give. Products of experts: linear.cl. */
/* MN_ROUTE_* */
enum { ROUTE_SOFTMAX = 0, ROUTE_TOPK_SOFTMAX = 1, ROUTE_SIGMOID = 2, ROUTE_SPARSEMIXER = 3 };

/* A larger value is a larger key, and of equal values the lower index; 0 is below all. */
static ulong order_of(float v, int index) {
    const uint bits = as_uint(v == 0.0f ? 0.0f : v);
    const uint key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (ulong)key << 32 | (uint)~index;
}

typedef struct {
    global const float *logits;
    global const float *bias;
    global int *experts;
    global float *weights;
} route_refs;

/* The local memory of a group. score: what an expert counts for; pick: what the choice goes by;
 * group: scores of groups of experts. */
typedef struct {
    local float *red;
    local ulong *red64;
    local float *score;
    local float *pick;
    local float *group;
} route_room;

/* The best of n values in the order of those below `before`; 0: there is none. */
static ulong best_below(local const float *values, int n, ulong before, int from, int step) {
    ulong best = 0;
    for (int i = from; i < n; i += step) {
        const ulong own = order_of(values[i], i);
        best = own < before ? max(best, own) : best;
    }
    return best;
}

/* Experts of groups that are not among the best are taken out of the choice; by all items. */
static void drop_groups(ARGS ocl_route_args *p, route_room room) {
    const int lane = GROUP_ITEM;
    const int size = p->E / p->n_group;
    SYNC_LOCAL;
    for (int g = lane; g < p->n_group; g += LANES) {
        ulong before = ~(ulong)0;
        float sum = 0;
        for (int j = 0; j < p->group_score && j < size; j++) {
            before = best_below(room.pick + g * size, size, before, 0, 1);
            sum += before ? room.pick[g * size + (int)~(uint)before] : 0.0f;
        }
        room.group[g] = sum;
    }
    SYNC_LOCAL;
    ulong last = ~(ulong)0; /* the worst that is used */
    for (int j = 0; j < p->groups_used; j++)
        last = group_max_u64(best_below(room.group, p->n_group, last, lane, LANES), room.red64);
    for (int e = lane; e < p->E; e += LANES)
        if (order_of(room.group[e / size], e / size) < last)
            room.pick[e] = NAN;
    SYNC_LOCAL;
}

/* Of sparsemixer: the part that expert `best` has of a softmax over the logits near it that are
 * left. Every item gets it. */
static float near_part(ARGS ocl_route_args *p, local const float *score, local const float *pick,
                       int best, local float *red) {
    const float most = pick[best];
    float sum = 0;
    for (int e = GROUP_ITEM; e < p->E; e += LANES) {
        const bool is_far = (most - pick[e]) / fmax(fabs(score[e]), most) > 2.0f * p->jitter;
        if (!isnan(pick[e]) && !is_far)
            sum += exp(pick[e] - most);
    }
    return 1.0f / group_sum(sum, red);
}

/* Token t, by the LANES items of a group. With neither a bias nor a tie of rounded scores the
 * choice is that of the logits. */
static void route_token(const route_refs *u, ARGS ocl_route_args *p, int t, route_room room) {
    const int lane = GROUP_ITEM;
    global const float *logits = u->logits + (ulong)t * p->E;
    global int *experts = u->experts + (ulong)t * p->J;
    global float *weights = u->weights + (ulong)t * p->J;
    local float *score = room.score;
    local float *pick = room.pick;
    float top = -INFINITY;
    float sum = 0;
    float bad = 0;
    for (int e = lane; e < p->E; e += LANES)
        top = fmax(top, logits[e]);
    top = group_max(top, room.red);
    for (int e = lane; e < p->E; e += LANES)
        sum += exp(logits[e] - top);
    sum = group_sum(sum, room.red);
    for (int e = lane; e < p->E; e += LANES) {
        float s = logits[e];
        if (p->kind == ROUTE_SOFTMAX)
            s = exp(s - top) / sum;
        if (p->kind == ROUTE_SIGMOID)
            s = 1.0f / (1.0f + exp(-s));
        score[e] = s;
        pick[e] = u->bias ? s + u->bias[e] : logits[e];
        bad = isnan(s) || isnan(pick[e]) ? 1.0f : bad;
    }
    bad = group_max(bad, room.red);
    if (p->n_group)
        drop_groups(p, room);
    float chosen = 0;
    for (int j = 0; j < p->J; j++) {
        ulong best = 0;
        for (int e = lane; e < p->E; e += LANES)
            best = isnan(pick[e]) ? best : max(best, order_of(pick[e], e));
        best = group_max_u64(best, room.red64);
        const int e = best ? (int)~(uint)best : 0;
        const float own =
            p->kind == ROUTE_SPARSEMIXER ? near_part(p, score, pick, e, room.red) : score[e];
        if (lane == 0) {
            experts[j] = bad > 0.0f ? j : e;
            weights[j] = own;
            pick[e] = NAN; /* taken */
        }
        /* the first is the largest: of TOPK_SOFTMAX logits are weighed against it */
        top = j ? top : score[e];
        chosen += p->kind == ROUTE_TOPK_SOFTMAX ? exp(score[e] - top) : own;
        SYNC_LOCAL;
    }
    float factor = p->scale;
    if (p->normalise && p->kind != ROUTE_TOPK_SOFTMAX)
        factor /= chosen;
    SYNC_GLOBAL;
    for (int j = lane; j < p->J; j += LANES) {
        float w = weights[j];
        if (p->kind == ROUTE_TOPK_SOFTMAX)
            w = exp(w - top) / chosen;
        weights[j] = bad > 0.0f ? NAN : w * factor;
    }
}

#ifndef STEP_WARPS
/* One group for each token. */
kernel void moe_route(REF(logits), REF(bias), REF(experts), REF(weights), const ocl_route_args p) {
    local float red[LANES];
    local ulong red64[LANES];
    local float score[OCL_MAX_EXPERTS];
    local float pick[OCL_MAX_EXPERTS];
    local float group[OCL_MAX_EXPERT_GROUPS];
    const route_refs u = {PTR(const float, logits), PTR(const float, bias), PTR(int, experts),
                          PTR(float, weights)};
    const route_room room = {red, red64, score, pick, group};
    route_token(&u, &p, get_group_id(0), room);
}
#endif

/* Element i of the sums. */
static float combined(ARGS ocl_combine_args *p, global const float *x, global const float *weights,
                      ulong i) {
    const ulong t = i / p->D;
    x += t * p->J * p->D + i % p->D;
    float sum = 0;
    for (int j = 0; j < p->J; j++)
        sum += (weights ? weights[t * p->J + j] : 1.0f) * x[(ulong)j * p->D];
    return sum;
}

#ifndef STEP_WARPS
/* One item for each element of y; add: an operand of the sum behind, or absent. */
kernel void moe_combine(REF(x), REF(weights), REF(add), REF(y), const ocl_combine_args p) {
    const ulong i = get_global_id(0);
    if (i >= p.n)
        return;
    global const float *add = PTR(const float, add);
    const float sum = combined(&p, PTR(const float, x), PTR(const float, weights), i);
    PTR(float, y)[i] = add ? sum + add[i] : sum;
}

/* The same of the experts that are there, behind base, which may be absent; experts, with
 * resident. */
kernel void moe_combine_part(REF(x), REF(weights), REF(experts), REF(resident), REF(base), REF(add),
                             REF(y), const ocl_part_args p) {
    const ulong i = get_global_id(0);
    if (i >= p.whole.n)
        return;
    const ulong t = i / p.whole.D;
    global const float *weights = PTR(const float, weights);
    global const int *resident = PTR(const int, resident);
    global const float *base = PTR(const float, base);
    global const float *add = PTR(const float, add);
    global const float *x = PTR(const float, x) + t * p.whole.J * p.whole.D + i % p.whole.D;
    float sum = base ? base[i] : 0.0f;
    for (int j = 0; j < p.whole.J; j++) {
        const ulong pair = t * p.whole.J + j;
        if (resident) {
            const int e = PTR(const int, experts)[pair];
            if (!resident[e < 0 || e >= p.n_experts ? 0 : e])
                continue;
        }
        sum += (weights ? weights[pair] : 1.0f) * x[(ulong)j * p.whole.D];
    }
    PTR(float, y)[i] = add ? sum + add[i] : sum;
}
#endif
