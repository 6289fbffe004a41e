/* pieces.cl -- products of many rows with a matrix of any packed type on NVIDIA's tensor cores: 16
 * weights at a time become two halves each, as the elements of x do (mma.cl, which comes before
 * this file for its parts), so that a product has the error of f32 sums. A group has 128 outputs
 * of 64 rows, staged 32 elements at a time: one piece for each of its items. */
#ifdef PTX
/* Of 32 elements: half of an output's for each item. */
static float16 load_piece(global const uchar *w, int first, int k, ARGS ocl_linear_args *p) {
    const int item = get_local_id(0) + 32 * get_local_id(1);
    return matrix_piece(w, &p->w, min(first + item / 2, p->N - 1), k / 16 + item % 2);
}

/* To the largest of halves; NaN stays. */
static float near_half(float v) {
    asm("{ .reg .f32 a; min.NaN.f32 a, %1, 0f477FE000; max.NaN.f32 %0, a, 0fC77FE000; }"
        : "=f"(v)
        : "f"(v));
    return v;
}
static float4 near_halves(float4 v) {
    return (float4)(near_half(v.x), near_half(v.y), near_half(v.z), near_half(v.w));
}

static void keep_piece(float16 w, local uint4 *high, local uint4 *low) {
    const int item = get_local_id(0) + 32 * get_local_id(1);
    const two_parts first = parts_of8(near_halves(w.s0123), near_halves(w.s4567));
    const two_parts second = parts_of8(near_halves(w.s89ab), near_halves(w.scdef));
    high[2 * item] = first.high;
    high[2 * item + 1] = second.high;
    low[2 * item] = first.low;
    low[2 * item + 1] = second.low;
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
    local uint tops[ROWS];
    local float fits_of[ROWS];
    local uint beyond;
    const row_fits fits = {tops, fits_of, &beyond};
    const int lane = get_local_id(0);
    const int warp = get_local_id(1);
    const int item = lane + 32 * warp;
    const int g = lane / 4;
    const int t = lane % 4;
    const int first = OUTPUTS * get_group_id(0);
    const int row = ROWS * get_group_id(1);
    const int own_n = 32 * (warp % 4);
    const int own_row = 32 * (warp / 4);
    global const uchar *w = PTR(const uchar, w);
    global const float *x = PTR(const float, x);
    float4 sum[2][4];
    begin_fits(fits, ROWS, item, 32 * WARPS);
    for (int pass = 0; pass < 2; pass++) {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                sum[i][j] = 0;
        float16 hw = load_piece(w, first, 0, &p);
        held_x hx = load_x(x, row, 0, &p);
        for (int k = 0; k < p.K; k += 32) {
            keep_piece(hw, w_high, w_low);
            keep_x(hx, fits, x_high, x_low);
            barrier(CLK_LOCAL_MEM_FENCE);
            if (k + 32 < p.K) {
                hw = load_piece(w, first, k + 32, &p);
                hx = load_x(x, row, k + 32, &p);
            }
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
        if (!fit_rows(fits, ROWS, item, 32 * WARPS))
            break;
    }
    put_tiles(sum, fits.fits + own_row, PTR(const float, b), PTR(const float, add), PTR(float, y),
              first + own_n, row + own_row, &p);
}
#endif
