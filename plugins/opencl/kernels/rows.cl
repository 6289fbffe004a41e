/* rows.cl -- operations on elements and rows: norms, activations, sums, gathered rows, rotation. */

/* One group for each row of D. */
kernel void rms_norm(REF(x), REF(w), REF(y), const ocl_norm_args p) {
    local float red[LANES];
    const int lane = get_local_id(0);
    const ulong row = (ulong)get_group_id(0) * p.D;
    global const float *x = PTR(const float, x) + row;
    global const float *w = PTR(const float, w);
    global float *y = PTR(float, y) + row;
    float squares = 0;
    for (int i = lane; i < p.D; i += LANES)
        squares += x[i] * x[i];
    const float mean = group_sum(squares, red) / (float)p.D;
    const float factor = 1.0f / sqrt(mean + p.eps);
    for (int i = lane; i < p.D; i += LANES)
        y[i] = x[i] * factor * (w[i] + p.offset);
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

/* ---- elements -------------------------------------------------------------------------------- */
enum { SILU = 0, GELU_ERF = 1, GELU_TANH = 2, RELU = 3 }; /* MN_ACT_* */

/* Some drivers' tanh stays short of 1 for an infinity. */
static float tanh_of(float v) {
    if (fabs(v) > 20.0f)
        return copysign(1.0f, v);
    return tanh(v);
}

static float activate(int kind, float v, float alpha) {
    const float cubic = 0.7978845608028654f * (v + 0.044715f * v * v * v);
    if (isnan(v)) /* tanh and exp of some drivers make a number of it */
        return v;
    switch (kind) {
    case GELU_ERF:
        return 0.5f * v * (1.0f + erf(v * 0.7071067811865476f));
    case GELU_TANH:
        return 0.5f * v * (1.0f + tanh_of(cubic));
    case RELU:
        return v > 0.0f ? v : 0.0f;
    default:
        return v / (1.0f + exp(-alpha * v));
    }
}

static float gate(const ocl_elementwise_args p, float g, float up) {
    if (p.limit != 0.0f) {
        g = g > p.limit ? p.limit : g;
        up = up > p.limit ? p.limit : up;
        up = up < -p.limit ? -p.limit : up;
    }
    return activate(p.kind, g, p.alpha) * (up + p.offset);
}

/* One item for each element; b is absent where there is one operand. */
kernel void elementwise(REF(a), REF(b), REF(y), const ocl_elementwise_args p) {
    const ulong i = get_global_id(0);
    if (i >= p.n)
        return;
    global const float *second = PTR(const float, b);
    const float a = PTR(const float, a)[i];
    const float b = second ? second[i] : 0.0f;
    float y = a;
    switch (p.what) {
    case OCL_ACT:
        y = activate(p.kind, a, 1.0f);
        break;
    case OCL_GLU:
        y = gate(p, a, b);
        break;
    case OCL_ADD:
        y = a + b;
        break;
    case OCL_MUL:
        y = a * b;
        break;
    case OCL_SCALE:
        y = a * p.factor;
        break;
    case OCL_SOFTCAP:
        y = isnan(a) ? a : p.factor * tanh_of(a / p.factor);
        break;
    }
    PTR(float, y)[i] = y;
}

/* One group for each output row; a padded one is zero. */
kernel void gather_rows(REF(x), REF(rows), REF(y), const ocl_gather_args p) {
    const int to = get_group_id(0);
    const int from = PTR(const int, rows)[to];
    const bool there = from >= 0 && from < p.rows;
    global const float *x = PTR(const float, x) + (ulong)(there ? from : 0) * p.D;
    global float *y = PTR(float, y) + (ulong)to * p.D;
    for (int i = get_local_id(0); i < p.D; i += LANES)
        y[i] = there ? x[i] : 0.0f;
}

/* ---- rotation -------------------------------------------------------------------------------- */
/* sin and cos of pos * freq. Without doubles the product is kept in two floats, and whole turns are
 * taken off in three steps. */
static float2 turn_of(int pos, float freq) {
#ifdef HAS_DOUBLE
    const double angle = (double)pos * (double)freq;
    return (float2)((float)sin(angle), (float)cos(angle));
#else
    const float x = (float)pos;
    const float high = x * freq;
    const float low = fma(x, freq, -high);
    const float turns = rint(high * 0.15915494309189535f);
    float r = fma(-turns, 6.28125f, high);
    r = fma(-turns, 0.0019350051879882812f, r);
    r = fma(-turns, 3.0199159819567955e-07f, r) + low;
    return (float2)(sin(r), cos(r));
#endif
}

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
