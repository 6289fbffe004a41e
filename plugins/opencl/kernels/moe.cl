/* moe.cl -- MOE_ROUTE and MOE_COMBINE: which experts a token goes to, and the sum of what they
 * give. Products of experts: linear.cl. */
enum { ROUTE_SOFTMAX = 0, ROUTE_TOPK_SOFTMAX = 1, ROUTE_SIGMOID = 2 }; /* MN_ROUTE_* */

/* A larger value is a larger key, and of equal values the lower index; 0 is below all. */
static ulong order_of(float v, int index) {
    const uint bits = as_uint(v == 0.0f ? 0.0f : v);
    const uint key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (ulong)key << 32 | (uint)~index;
}

/* One group for each token. score: what an expert counts for; pick: what the choice goes by. With
 * neither a bias nor a tie of rounded scores the choice is that of the logits. */
kernel void moe_route(REF(logits), REF(bias), REF(experts), REF(weights), const ocl_route_args p) {
    local float red[LANES];
    local ulong red64[LANES];
    local float score[OCL_MAX_EXPERTS];
    local float pick[OCL_MAX_EXPERTS];
    const int lane = get_local_id(0);
    const int t = get_group_id(0);
    global const float *logits = PTR(const float, logits) + (ulong)t * p.E;
    global const float *bias = PTR(const float, bias);
    global int *experts = PTR(int, experts) + (ulong)t * p.J;
    global float *weights = PTR(float, weights) + (ulong)t * p.J;
    float top = -INFINITY;
    float sum = 0;
    float bad = 0;
    for (int e = lane; e < p.E; e += LANES)
        top = fmax(top, logits[e]);
    top = group_max(top, red);
    for (int e = lane; e < p.E; e += LANES)
        sum += exp(logits[e] - top);
    sum = group_sum(sum, red);
    for (int e = lane; e < p.E; e += LANES) {
        float s = logits[e];
        if (p.kind == ROUTE_SOFTMAX)
            s = exp(s - top) / sum;
        if (p.kind == ROUTE_SIGMOID)
            s = 1.0f / (1.0f + exp(-s));
        score[e] = s;
        pick[e] = bias ? s + bias[e] : logits[e];
        bad = isnan(s) || isnan(pick[e]) ? 1.0f : bad;
    }
    bad = group_max(bad, red);
    float chosen = 0;
    for (int j = 0; j < p.J; j++) {
        ulong best = 0;
        for (int e = lane; e < p.E; e += LANES)
            best = isnan(pick[e]) ? best : max(best, order_of(pick[e], e));
        best = group_max_u64(best, red64);
        const int e = best ? (int)~(uint)best : 0;
        if (lane == 0) {
            experts[j] = bad > 0.0f ? j : e;
            weights[j] = score[e];
            pick[e] = NAN; /* taken */
        }
        /* the first is the largest: of TOPK_SOFTMAX logits are weighed against it */
        top = j ? top : score[e];
        chosen += p.kind == ROUTE_TOPK_SOFTMAX ? exp(score[e] - top) : score[e];
        SYNC_LOCAL;
    }
    float factor = p.scale;
    if (p.normalise && p.kind != ROUTE_TOPK_SOFTMAX)
        factor /= chosen;
    SYNC_GLOBAL;
    for (int j = lane; j < p.J; j += LANES) {
        float w = weights[j];
        if (p.kind == ROUTE_TOPK_SOFTMAX)
            w = exp(w - top) / chosen;
        weights[j] = bad > 0.0f ? NAN : w * factor;
    }
}

/* One item for each element of y; add: an operand of the sum behind, or absent. */
kernel void moe_combine(REF(x), REF(weights), REF(add), REF(y), const ocl_combine_args p) {
    const ulong i = get_global_id(0);
    if (i >= p.n)
        return;
    const ulong t = i / p.D;
    global const float *x = PTR(const float, x) + t * p.J * p.D + i % p.D;
    global const float *weights = PTR(const float, weights) + t * p.J;
    global const float *add = PTR(const float, add);
    float sum = 0;
    for (int j = 0; j < p.J; j++)
        sum += weights[j] * x[(ulong)j * p.D];
    PTR(float, y)[i] = add ? sum + add[i] : sum;
}
