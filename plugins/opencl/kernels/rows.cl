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
        y = gate(p.kind, p.alpha, p.limit, p.offset, a, b);
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
