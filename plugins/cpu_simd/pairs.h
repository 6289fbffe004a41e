/* pairs.h -- sums of the matrix products of Armv8.6, which multiply two x rows with two weight
 * rows: up to PAIR_MOST x rows with PAIR_SIDE weight rows, both given before. In y they are
 * rows, in registers {x0 w0, x0 w1, x1 w0, x1 w1}. */
enum { PAIRS = PAIR_SIDE / 2 };
typedef struct {
    float32x4_t of[PAIR_MOST / 2][PAIRS]; /* [pair of x rows][pair of weight rows] */
} pair_sums;

/* The bytes of a row of sums whose first `left` ones count. */
INLINE size_t pairs_bytes(int64_t left) {
    const int64_t n = left < PAIR_SIDE ? left : PAIR_SIDE;
    return (size_t)n * sizeof(float);
}

/* mr x rows, in np pairs. first: zeros. */
INLINE void pairs_load(pair_sums *to, const mnk_pair *pair, int64_t mr, int64_t y0, int64_t left,
                       bool first, const int np) {
    float y[PAIR_MOST][PAIR_SIDE] = {0};
    const size_t bytes = pairs_bytes(left);
    for (int64_t i = 0; i < mr && !first; i++)
        memcpy(y[i], pair[i].y + y0, bytes);
    for (int i = 0; i < np; i++)
        for (int j = 0; j < PAIRS; j++) {
            const float *row = y[2 * i] + 2 * j;
            const float32x2_t low = vld1_f32(row);
            to->of[i][j] = vcombine_f32(low, vld1_f32(row + PAIR_SIDE));
        }
}
INLINE void pairs_store(const pair_sums *s, const mnk_pair *pair, int64_t mr, int64_t y0,
                        int64_t left, const int np) {
    float y[PAIR_MOST][PAIR_SIDE];
    const size_t bytes = pairs_bytes(left);
    for (int i = 0; i < np; i++)
        for (int j = 0; j < PAIRS; j++) {
            float *row = y[2 * i] + 2 * j;
            vst1_f32(row, vget_low_f32(s->of[i][j]));
            vst1_f32(row + PAIR_SIDE, vget_high_f32(s->of[i][j]));
        }
    for (int64_t i = 0; i < mr; i++)
        memcpy(pair[i].y + y0, y[i], bytes);
}
