/* lora.cl -- LORA: A x of the rows that have an adapter, an item for each of its numbers; then y,
 * and B of that. A sum has one order, whatever rows are beside it. */
static float lora_value(global const char *m, bool half_width, ulong i) {
    if (half_width)
        return half_at((global const uchar *)m + 2 * i);
    return ((global const float *)m)[i];
}

/* The sum of n numbers of m from `at` on times those of row. */
static float lora_dot(global const char *m, bool half_width, ulong at, global const float *row,
                      int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++)
        sum = fma(lora_value(m, half_width, at + i), row[i], sum);
    return sum;
}

/* The adapter of row t; -1: none. */
static int lora_adapter(global const int *adapter, int t, const ocl_lora_args *p) {
    const int a = adapter[t];
    return a >= 0 && a < p->n_adapters ? a : -1;
}

kernel void lora_shrink(REF(x), REF(a), REF(adapter), REF(h), const ocl_lora_args p) {
    const int q = get_global_id(0);
    const int t = get_global_id(1);
    if (q >= p.Q || t >= p.T)
        return;
    const int which = lora_adapter(PTR(const int, adapter), t, &p);
    if (which < 0)
        return;
    global const float *row = PTR(const float, x) + (ulong)t * p.K;
    const ulong at = ((ulong)which * p.Q + q) * p.K;
    PTR(float, h)[(ulong)t * p.Q + q] = lora_dot(PTR(const char, a), p.half_width, at, row, p.K);
}

kernel void lora_expand(REF(y), REF(b), REF(adapter), REF(h), REF(z), const ocl_lora_args p) {
    const int n = get_global_id(0);
    const int t = get_global_id(1);
    if (n >= p.N || t >= p.T)
        return;
    const int which = lora_adapter(PTR(const int, adapter), t, &p);
    const ulong to = (ulong)t * p.N + n;
    const float from = PTR(const float, y)[to];
    if (which < 0) {
        PTR(float, z)[to] = from;
        return;
    }
    global const float *row = PTR(const float, h) + (ulong)t * p.Q;
    const ulong at = ((ulong)which * p.N + n) * p.Q;
    PTR(float, z)[to] = from + lora_dot(PTR(const char, b), p.half_width, at, row, p.Q);
}
