/* rows.cl -- operations on elements and rows: norms, activations, sums, gathered rows, rotation. */

/* A row of D, the first n of which are normalised, by the LANES items of a group. */
static void norm_row(global const float *x, global const float *w, global float *y,
                     ARGS ocl_norm_args *p, local float *red) {
    enum { HELD_OF_NORM = LANES > 1 ? 8 : 1 };
    const int lane = GROUP_ITEM;
    float squares = 0;
    float held[HELD_OF_NORM];
    float weight[HELD_OF_NORM];
#pragma unroll
    for (int e = 0; e < HELD_OF_NORM; e++) {
        const int i = lane + e * LANES;
        held[e] = i < p->n ? x[i] : 0.0f;
        weight[e] = i < p->n ? w[i] : 0.0f;
    }
#pragma unroll
    for (int e = 0; e < HELD_OF_NORM; e++)
        squares += held[e] * held[e];
    for (int i = lane + HELD_OF_NORM * LANES; i < p->n; i += LANES)
        squares += x[i] * x[i];
    const float mean = group_sum(squares, red) / (float)p->n;
    const float factor = 1.0f / sqrt(mean + p->eps);
#pragma unroll
    for (int e = 0; e < HELD_OF_NORM; e++)
        if (lane + e * LANES < p->n)
            y[lane + e * LANES] = held[e] * factor * (weight[e] + p->offset);
    for (int i = lane + HELD_OF_NORM * LANES; i < p->n; i += LANES)
        y[i] = x[i] * factor * (w[i] + p->offset);
    for (int i = p->n + lane; i < p->D; i += LANES)
        y[i] = x[i];
}

#ifndef STEP_WARPS
/* One group for each row. */
kernel void rms_norm(REF(x), REF(w), REF(y), const ocl_norm_args p) {
    local float red[LANES];
    const ulong row = (ulong)get_group_id(0) * p.D;
    const ulong own = (ulong)(get_group_id(0) % p.w_rows) * p.n;
    norm_row(PTR(const float, x) + row, PTR(const float, w) + own, PTR(float, y) + row, &p, red);
}

kernel void layer_norm(REF(x), REF(w), REF(b), REF(y), const ocl_norm_args p) {
    local float red[LANES];
    const int lane = get_local_id(0);
    const ulong row = (ulong)get_group_id(0) * p.D;
    const ulong own = (ulong)(get_group_id(0) % p.w_rows) * p.D;
    global const float *x = PTR(const float, x) + row;
    global const float *w = PTR(const float, w) + own;
    global const float *b = PTR(const float, b);
    global float *y = PTR(float, y) + row;
    float sum = 0;
    float squares = 0;
    for (int i = lane; i < p.D; i += LANES)
        sum += x[i];
    const float mean = group_sum(sum, red) / (float)p.D;
    for (int i = lane; i < p.D; i += LANES) {
        const float v = x[i] - mean;
        squares += v * v;
    }
    const float factor = 1.0f / sqrt(group_sum(squares, red) / (float)p.D + p.eps);
    for (int i = lane; i < p.D; i += LANES) {
        const float bias = b ? b[own + i] : 0.0f;
        y[i] = (x[i] - mean) * factor * w[i] + bias;
    }
}

#endif

/* ---- elements -------------------------------------------------------------------------------- */
/* Of xielu; NaN stays. */
static float xielu_of(ARGS ocl_elementwise_args *p, float a) {
    const float least = a > p->factor ? p->factor : a;
    const float own = a > 0.0f ? p->alpha * a * a : p->limit * (expm1(least) - a);
    return isnan(a) ? a : own + p->offset * a;
}

/* Of element i the second operand; 0: there is none. */
static float second_of(ARGS ocl_elementwise_args *p, global const float *b, ulong i) {
    if (!b)
        return 0.0f;
    return b[p->what == OCL_PAIRS ? i / (ulong)p->kind : i];
}

/* Of a and b, which is ignored where there is one operand. */
static float element_of(ARGS ocl_elementwise_args *p, float a, float b) {
    switch (p->what) {
    case OCL_ACT:
        return activate(p->kind, a, 1.0f);
    case OCL_XIELU:
        return xielu_of(p, a);
    case OCL_GLU:
        return gate(p->kind, p->alpha, p->limit, p->offset, a, b);
    case OCL_ADD:
        return a + b;
    case OCL_MUL:
    case OCL_PAIRS:
        return a * b;
    case OCL_SCALE:
        return a * p->factor;
    default: /* OCL_SOFTCAP */
        return isnan(a) ? a : p->factor * tanh_of(a / p->factor);
    }
}

/* A padded row is zero. */
static void gather_row(global const float *x, int from, global float *y, ARGS ocl_gather_args *p) {
    const bool there = from >= 0 && from < p->rows;
    x += (ulong)(there ? from : 0) * p->D;
    for (int i = GROUP_ITEM; i < p->D; i += LANES)
        y[i] = there ? x[i] : 0.0f;
}

#ifndef STEP_WARPS
/* One item for each element; b is absent where there is one operand. */
kernel void elementwise(REF(a), REF(b), REF(y), const ocl_elementwise_args p) {
    const ulong i = get_global_id(0);
    if (i >= p.n)
        return;
    global const float *second = PTR(const float, b);
    PTR(float, y)[i] = element_of(&p, PTR(const float, a)[i], second_of(&p, second, i));
}

/* One group for each output row. */
kernel void gather_rows(REF(x), REF(rows), REF(y), const ocl_gather_args p) {
    const int to = get_group_id(0);
    gather_row(PTR(const float, x), PTR(const int, rows)[to], PTR(float, y) + (ulong)to * p.D, &p);
}

/* One item for each element of a view: four bytes, whatever they are. */
kernel void copy_view(REF(dense), REF(apart), const ocl_view_args p) {
    const ulong i = get_global_id(0);
    ulong left = i;
    ulong at = 0;
    if (i >= p.n)
        return;
    for (int d = p.n_dim - 1; d >= 0; d--) {
        at += left % p.dim[d] * p.stride[d];
        left /= p.dim[d];
    }
    if (p.out)
        PTR(uint, apart)[at] = PTR(const uint, dense)[i];
    else
        PTR(uint, dense)[i] = PTR(const uint, apart)[at];
}

/* ---- rotation -------------------------------------------------------------------------------- */
/* One item for each pair of a head: elements behind n_rot are copied. */
kernel void rope(REF(x), REF(row_pos), REF(freqs), REF(y), const ocl_rope_args p) {
    const int i = get_global_id(0);
    const int head = get_global_id(1);
    const int t = get_global_id(2);
    const int half_rot = p.n_rot / 2;
    const ulong at = ((ulong)t * p.H + head) * p.D;
    global const float *x = PTR(const float, x) + at;
    global float *y = PTR(float, y) + at;
    if (i >= (p.D + 1) / 2)
        return;
    if (i >= half_rot) {
        const int k = p.n_rot + 2 * (i - half_rot);
        y[k] = x[k];
        if (k + 1 < p.D)
            y[k + 1] = x[k + 1];
        return;
    }
    const int first = p.adjacent ? 2 * i : i;
    const int second = p.adjacent ? 2 * i + 1 : i + half_rot;
    const float2 turn = p.mscale * turn_of(PTR(const int, row_pos)[t], PTR(const float, freqs)[i]);
    const float a = x[first];
    const float b = x[second];
    y[first] = a * turn.y - b * turn.x;
    y[second] = a * turn.x + b * turn.y;
}
#endif
