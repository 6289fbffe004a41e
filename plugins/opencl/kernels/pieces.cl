/* pieces.cl -- products of many rows with a matrix of any packed type on NVIDIA's tensor cores: 16
 * weights at a time become two halves each, as the elements of x do (mma.cl, which comes before
 * this file for its parts), so that a product has the error of f32 sums. A group has 128 outputs
 * of 64 rows, staged 32 elements at a time: one piece for each of its items. */
#ifdef PTX
enum { OUTPUTS = OCL_MMA_OUTPUTS, ROWS = OCL_MMA_ROWS, W_WORDS = 4 * OUTPUTS, X_WORDS = 4 * ROWS };

/* Of 32 elements: half of an output's, four floats of two rows. */
typedef struct {
    float16 w;
    float4 x[2];
} held;

static held load(global const uchar *w, global const float *x, int first, int row, int k,
                 ARGS ocl_linear_args *p) {
    const int item = get_local_id(0) + 32 * get_local_id(1);
    held h;
    h.w = matrix_piece(w, &p->w, min(first + item / 2, p->N - 1), k / 16 + item % 2);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int j = item + 256 * i;
        const int r = min(row + j / 8, p->rows - 1);
        h.x[i] = *(global const float4 *)(x + (ulong)r * p->K + k + 4 * (j % 8));
    }
    return h;
}

static void keep(held h, local uint4 *w_high, local uint4 *w_low, local uint2 *high,
                 local uint2 *low) {
    const int item = get_local_id(0) + 32 * get_local_id(1);
    const two_parts first = parts_of8(h.w.s0123, h.w.s4567);
    const two_parts second = parts_of8(h.w.s89ab, h.w.scdef);
    w_high[2 * item] = first.high;
    w_high[2 * item + 1] = second.high;
    w_low[2 * item] = first.low;
    w_low[2 * item + 1] = second.low;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint2 a = parts_of(h.x[i].lo);
        const uint2 b = parts_of(h.x[i].hi);
        high[item + 256 * i] = (uint2)(a.x, b.x);
        low[item + 256 * i] = (uint2)(a.y, b.y);
    }
}

/* What the weights' rounding lost, with the rounded x: 32 elements. */
static float4 mma32_low(float4 sum, uint4 a, uint4 a8, uint4 b) {
    sum = mma(sum, a.x, a8.x, a.y, a8.y, b.x, b.y);
    return mma(sum, a.z, a8.z, a.w, a8.w, b.z, b.w);
}

kernel __attribute__((reqd_work_group_size(32, WARPS, 1))) void
linear_pieces(REF(x), REF(experts), REF(w), REF(b), REF(add), REF(y), const ocl_linear_args p) {
    local uint4 w_high[W_WORDS];
    local uint4 w_low[W_WORDS];
    local uint4 x_high[X_WORDS];
    local uint4 x_low[X_WORDS];
    const int lane = get_local_id(0);
    const int warp = get_local_id(1);
    const int g = lane / 4;
    const int t = lane % 4;
    const int first = OUTPUTS * get_group_id(0);
    const int row = ROWS * get_group_id(1);
    const int own_n = 32 * (warp % 4);
    const int own_row = 32 * (warp / 4);
    global const uchar *w = PTR(const uchar, w);
    global const float *x = PTR(const float, x);
    float4 sum[2][4];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            sum[i][j] = 0;
    held h = load(w, x, first, row, 0, &p);
    for (int k = 0; k < p.K; k += 32) {
        keep(h, w_high, w_low, (local uint2 *)x_high, (local uint2 *)x_low);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (k + 32 < p.K)
            h = load(w, x, first, row, k + 32, &p);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int at = 4 * (own_n + 16 * i + g) + t;
            const uint4 a = w_high[at];
            const uint4 a8 = w_high[at + 32];
            const uint4 low = w_low[at];
            const uint4 low8 = w_low[at + 32];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                two_parts b;
                b.high = x_high[4 * (own_row + 8 * j + g) + t];
                b.low = x_low[4 * (own_row + 8 * j + g) + t];
                sum[i][j] = mma32(sum[i][j], a, a8, b);
                sum[i][j] = mma32_low(sum[i][j], low, low8, b.high);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    global float *y = PTR(float, y);
    global const float *b = PTR(const float, b);
    global const float *add = PTR(const float, add);
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int n = first + own_n + 16 * i + g;
            const int to = row + own_row + 8 * j + 2 * t;
            put(y, b, add, sum[i][j].x, to, n, p.rows, p.N);
            put(y, b, add, sum[i][j].y, to + 1, n, p.rows, p.N);
            put(y, b, add, sum[i][j].z, to, n + 8, p.rows, p.N);
            put(y, b, add, sum[i][j].w, to + 1, n + 8, p.rows, p.N);
        }
}
#endif
