/* linear.cl -- products of rows with a matrix of one type, as stored, sums in f32. SHAPE_LANES
 * items share an output, OUTPUTS outputs a group, as shapes.c found best (SHAPE_OUTPUTS) or by
 * default. How a sum is ordered depends on K alone, never on how many rows there are: a row has the
 * same bits alone and among others. */
#ifdef SHAPE_OUTPUTS
#define OUTPUTS SHAPE_OUTPUTS
#elif defined IS_CPU
#define OUTPUTS 8
#else
#define OUTPUTS 4
#endif
#ifndef SHAPE_LANES
#define SHAPE_LANES LINEAR_LANES
#endif

#ifdef IS_CPU
typedef float16 partial_sum; /* a register of 16 floats */
static partial_sum multiply_add(partial_sum sum, float16 a, float16 b) {
    return sum + a * b;
}
static float total_of(partial_sum sum) {
    return sum16(sum);
}
#else
typedef float partial_sum;
static partial_sum multiply_add(partial_sum sum, float16 a, float16 b) {
    return sum + sum16(a * b);
}
static float total_of(partial_sum sum) {
    return sum;
}
#endif

/* The sum over the lanes of an output, for the first of them; red: [OUTPUTS SHAPE_LANES]. */
static float lanes_sum(float v, local float *red) {
#if SHAPE_LANES > 1 && defined SUB_GROUPS
    return neighbours_sum(v, SHAPE_LANES, red);
#elif SHAPE_LANES > 1
    const int lane = get_local_id(0);
    local float *own = red + get_local_id(1) * SHAPE_LANES;
    barrier(CLK_LOCAL_MEM_FENCE);
    own[lane] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int n = SHAPE_LANES / 2; n; n /= 2) {
        if (lane < n)
            own[lane] += own[lane + n];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    return own[0];
#else
    return v;
#endif
}

/* y = x W^T + b for ROWS rows of x at a time: the weight is unpacked once for all of them. */
#define LINEAR(name, ROWS)                                                                         \
    kernel void name(REF(x), REF(w), REF(b), REF(add), REF(y), const ocl_linear_args p) {          \
        local float red[OUTPUTS * SHAPE_LANES];                                                    \
        const int lane = get_local_id(0);                                                          \
        const int n = get_group_id(0) * OUTPUTS + get_local_id(1);                                 \
        const int own = min(n, p.N - 1);                                                           \
        const int row = get_group_id(1) * ROWS;                                                    \
        global const float *x = PTR(const float, x);                                               \
        global const float *b = PTR(const float, b);                                               \
        global const float *add = PTR(const float, add);                                           \
        partial_sum sum[ROWS];                                                                     \
        for (int r = 0; r < ROWS; r++)                                                             \
            sum[r] = 0;                                                                            \
        for (int i = lane; i < p.w.pieces; i += SHAPE_LANES) {                                     \
            const float16 w = matrix_piece(PTR(const uchar, w), &p.w, own, i);                     \
            for (int r = 0; r < ROWS; r++) {                                                       \
                const ulong at = (ulong)min(row + r, p.rows - 1) * p.K;                            \
                sum[r] = multiply_add(sum[r], row_piece(x + at, i, p.K), w);                       \
            }                                                                                      \
        }                                                                                          \
        for (int r = 0; r < ROWS; r++) {                                                           \
            float v = lanes_sum(total_of(sum[r]), red);                                            \
            const ulong to = (ulong)(row + r) * p.stride + n;                                      \
            if (lane == 0 && n < p.N && row + r < p.rows) {                                        \
                v = b ? v + b[n] : v;                                                              \
                PTR(float, y)[to] = add ? v + add[to] : v;                                         \
            }                                                                                      \
        }                                                                                          \
    }
LINEAR(linear_one, 1)
LINEAR(linear_few, 4)

/* The same for pairs of a row and one of its experts, that is there (resident; absent: all are).
 * Experts absent: pair r H + h is head h of row r, and each head has a matrix of its own. */
kernel void linear_experts(REF(x), REF(experts), REF(w), REF(b), REF(resident), REF(y),
                           const ocl_linear_args p) {
    local float red[OUTPUTS * SHAPE_LANES];
    const int lane = get_local_id(0);
    const int n = get_group_id(0) * OUTPUTS + get_local_id(1);
    const int pair = get_group_id(1);
    global const int *experts = PTR(const int, experts);
    const int given = experts ? experts[pair] : pair % p.n_experts;
    const int expert = given < 0 || given >= p.n_experts ? 0 : given;
    global const int *resident = PTR(const int, resident);
    if (expert < p.first || expert >= p.first + p.count || (resident && !resident[expert]))
        return;
    const long first = (long)expert * p.N;
    const long own = (long)(expert - p.first) * p.N + min(n, p.N - 1);
    global const float *x = PTR(const float, x) + (ulong)(pair / p.per_x) * (p.K + p.behind);
    global float *y = PTR(float, y) + (ulong)pair * (p.N + p.behind);
    global const float *b = PTR(const float, b);
    partial_sum sum = 0;
    for (int i = lane; i < p.w.pieces; i += SHAPE_LANES)
        sum = multiply_add(sum, row_piece(x, i, p.K),
                           matrix_piece(PTR(const uchar, w), &p.w, own, i));
    const float v = lanes_sum(total_of(sum), red);
    if (lane == 0 && n < p.N)
        y[n] = b ? v + b[first + n] : v;
    for (int i = n; lane == 0 && i < p.behind; i += get_num_groups(0) * OUTPUTS)
        y[p.N + i] = x[p.K + i];
}
