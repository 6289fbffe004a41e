/* pairs.h -- sums of the matrix products of Armv8.6, which multiply two x rows with two weight
 * rows: up to MOST x rows with SIDE weight rows, both given before. In y they are rows, in
 * registers {x0 w0, x0 w1, x1 w0, x1 w1}. */
enum { PAIRS = SIDE / 2 };
typedef struct {
    float32x4_t of[MOST / 2][PAIRS]; /* [pair of x rows][pair of weight rows] */
} pair_sums;

/* The bytes of a row of sums whose first `left` ones count. */
INLINE size_t bytes_of(int64_t left) {
    const int64_t n = left < SIDE ? left : SIDE;
    return (size_t)n * sizeof(float);
}

/* mr x rows, in np pairs. first: zeros. */
INLINE void load_sums(pair_sums *to, const mnk_pair *pair, int64_t mr, int64_t y0, int64_t left,
                      bool first, const int np) {
    float y[MOST][SIDE] = {0};
    const size_t bytes = bytes_of(left);
    for (int64_t i = 0; i < mr && !first; i++)
        memcpy(y[i], pair[i].y + y0, bytes);
    for (int i = 0; i < np; i++)
        for (int j = 0; j < PAIRS; j++) {
            const float *row = y[2 * i] + 2 * j;
            const float32x2_t low = vld1_f32(row);
            to->of[i][j] = vcombine_f32(low, vld1_f32(row + SIDE));
        }
}
INLINE void store_sums(const pair_sums *s, const mnk_pair *pair, int64_t mr, int64_t y0,
                       int64_t left, const int np) {
    float y[MOST][SIDE];
    const size_t bytes = bytes_of(left);
    for (int i = 0; i < np; i++)
        for (int j = 0; j < PAIRS; j++) {
            float *row = y[2 * i] + 2 * j;
            vst1_f32(row, vget_low_f32(s->of[i][j]));
            vst1_f32(row + SIDE, vget_high_f32(s->of[i][j]));
        }
    for (int64_t i = 0; i < mr; i++)
        memcpy(pair[i].y + y0, y[i], bytes);
}
