/* mad.cl -- products of many rows with a matrix of any packed type on Intel's matrix engines, by
 * cl_intel_subgroup_matrix_multiply_accumulate (mad8 in common.cl). A row of f32 goes as two
 * halves, its rounded value and what that leaves; weights do, too, but for types whose codes halves
 * hold exactly, whose scales multiply sums of 16: the precision of mma.cl and pieces.cl. A
 * group has 64 rows and MAD outputs for each of its sub-groups: an item unpacks the weights of one
 * output, which are its operand as they are; rows are staged 32 elements at a time, in the order in
 * which items read them. Rows beyond the range of halves: row_fits in common.cl. */
#ifdef MAD
enum {
    ROWS = OCL_MAD_ROWS,
    TILES = ROWS / 8,
    ITEMS_OF_GROUP = MAD * OCL_MAD_SUBS,
    QUADS = ROWS * 8 / ITEMS_OF_GROUP /* of 32 elements of all rows, for each item */
};

static uint8 halves16(float16 v) {
    uint8 bits;
    vstore_half16_rte(v, 0, (private half *)&bits);
    return bits;
}
static float16 floats16(uint8 bits) {
    return vload_half16(0, (const private half *)&bits);
}
static uint2 halves4(float4 v) {
    uint2 bits;
    vstore_half4_rte(v, 0, (private half *)&bits);
    return bits;
}
static float4 floats4(uint2 bits) {
    return vload_half4(0, (const private half *)&bits);
}

/* ---- rows ------------------------------------------------------------------------------------ */
typedef struct {
    float4 quad[QUADS];
} held_rows;

static held_rows load_rows(global const float *x, int row, int k, const ocl_linear_args *p) {
    const int item = get_local_id(0) + MAD * get_local_id(1);
    held_rows h;
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        const int j = item + ITEMS_OF_GROUP * i;
        const int r = min(row + j / 8, p->rows - 1);
        h.quad[i] = *(global const float4 *)(x + (ulong)r * p->K + k + 4 * (j % 8));
    }
    return h;
}

/* Two words of two halves: elements from 4 q on of row r, to [TILES][2][MAD][8]. */
static void keep_words(local mad_unit *to, int r, int q, uint2 words) {
    local mad_unit *tile = to + (r / 8 * 2 + q / 4) * 8 * MAD + r % 8;
#if MAD == 8
    const int lane = 2 * (q % 4);
    tile[8 * lane] = words.x;
    tile[8 * lane + 8] = words.y;
#else
    const int lane = 4 * (q % 4);
    const ushort4 v = as_ushort4(words);
    tile[8 * lane] = v.x;
    tile[8 * lane + 8] = v.y;
    tile[8 * lane + 16] = v.z;
    tile[8 * lane + 24] = v.w;
#endif
}

static void keep_rows(held_rows h, row_fits fits, local mad_unit *high, local mad_unit *low) {
    const int item = get_local_id(0) + MAD * get_local_id(1);
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        const int j = item + ITEMS_OF_GROUP * i;
        const float4 v = fitted_quad(fits, j / 8, h.quad[i]);
        const uint2 bits = halves4(v);
        keep_words(high, j / 8, j % 8, bits);
        keep_words(low, j / 8, j % 8, halves4(v - floats4(bits)));
    }
}

/* ---- weights: piece i of an output as an operand, and what multiplies the sum ---------------- */
typedef struct {
    int8 high;
    int8 low; /* not of types with HAS_HALVES */
    float factor;
} held_weights;

#ifdef HAS_HALVES
#define codes_f16(row, i) *(global const uint8 *)((row) + 32 * (i))
#define factor_f16(scale, i) 1.0f
#define codes_q8_0(row, i) halves16(signed16((row) + 16 * (i)))
#define factor_q8_0(scale, i) half_at((scale) + 2 * ((i) / 2))
#define codes_mxfp4(row, i) halves16(e2m1(row, i) * 16384.0f)
#define factor_mxfp4(scale, i) e8m0((scale)[(i) / 2])

static held_weights load_weights(global const uchar *w, const ocl_matrix *m, long n, int i) {
    global const uchar *row = w + n * (long)m->row_bytes;
    global const uchar *scale = w + m->scale_at + n * m->blocks * HEAD;
    held_weights h;
    h.high = as_int8(FN(codes)(row, i));
    h.factor = FN(factor)(scale, i);
    return h;
}
#else
static held_weights load_weights(global const uchar *w, const ocl_matrix *m, long n, int i) {
    const float16 v = matrix_piece(w, m, n, i);
    /* to the largest of halves; NaN stays */
    const float16 below = v > HALF_MOST ? (float16)HALF_MOST : v;
    const float16 near = v < -HALF_MOST ? (float16)-HALF_MOST : below;
    const uint8 bits = halves16(near);
    held_weights h;
    h.high = as_int8(bits);
    h.low = as_int8(halves16(near - floats16(bits)));
    return h;
}
#endif

/* ---- products -------------------------------------------------------------------------------- */
static float8 times(float8 sum, const held_weights *w, mad_rows high, mad_rows low,
                    local uint8 *room) {
#ifdef HAS_HALVES
    float8 c = mad8(high, w->high, (float8)(0), room);
    c = mad8(low, w->high, c, room);
    return sum + c * w->factor;
#else
    sum = mad8(high, w->high, sum, room);
    sum = mad8(low, w->high, sum, room);
    return mad8(high, w->low, sum, room);
#endif
}

/* fits: of the eight rows. */
static void put_rows(float8 sum, local const float *fits, global const float *b,
                     global const float *add, global float *y, int row, int n,
                     const ocl_linear_args *p) {
    float v[8];
    vstore8(sum, 0, v);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const ulong to = (ulong)(row + i) * p->N + n;
        if (row + i < p->rows) {
            const float own = v[i] * back_of(fits[i]);
            const float of = b ? own + b[n] : own;
            y[to] = add ? of + add[to] : of;
        }
    }
}

/* tiles: those of 8 rows that the group has, the same for all of its items. Without emulation sums
 * stay in registers, so the loop is unrolled. */
#ifdef MAD_EMULATED
#define EACH_TILE for (int t = 0; t < tiles; t++)
#define ROOM(name) local uint8 name[ITEMS_OF_GROUP];
#else
#define EACH_TILE _Pragma("unroll") for (int t = 0; t < TILES; t++) if (t < tiles)
#define ROOM(name) local uint8 *name = 0;
#endif

kernel MAD_ATTRIBUTES(OCL_MAD_SUBS) void linear_mad(REF(x), REF(experts), REF(w), REF(b), REF(add),
                                                    REF(y), const ocl_linear_args p) {
    local mad_unit highs[TILES * 2 * MAD * 8];
    local mad_unit lows[TILES * 2 * MAD * 8];
    local uint tops[ROWS];
    local float fits_of[ROWS];
    local uint beyond;
    ROOM(room)
    const row_fits fits = {tops, fits_of, &beyond};
    const int lane = get_local_id(0);
    const int item = lane + MAD * get_local_id(1);
    const int row = ROWS * get_group_id(1);
    const int tiles = min((p.rows - row + 7) / 8, (int)TILES);
    const int n = MAD * (OCL_MAD_SUBS * get_group_id(0) + get_local_id(1)) + lane;
    const long own = min(n, p.N - 1);
    global const float *x = PTR(const float, x);
    float8 sum[TILES];
    begin_fits(fits, ROWS, item, ITEMS_OF_GROUP);
    for (int pass = 0; pass < 2; pass++) {
#pragma unroll
        for (int t = 0; t < TILES; t++)
            sum[t] = 0;
        held_rows next = load_rows(x, row, 0, &p);
        for (int k = 0; k < p.K; k += 32) {
            barrier(CLK_LOCAL_MEM_FENCE);
            keep_rows(next, fits, highs, lows);
            barrier(CLK_LOCAL_MEM_FENCE);
            if (k + 32 < p.K)
                next = load_rows(x, row, k + 32, &p);
            for (int part = 0; part < 2; part++) {
                const held_weights w = load_weights(PTR(const uchar, w), &p.w, own, k / 16 + part);
                EACH_TILE {
                    const int at = (2 * t + part) * MAD + lane;
                    const mad_rows high = AS_MAD_ROWS(vload8(at, highs));
                    const mad_rows low = AS_MAD_ROWS(vload8(at, lows));
                    sum[t] = times(sum[t], &w, high, low, room);
                }
            }
        }
        if (!fit_rows(fits, ROWS, item, ITEMS_OF_GROUP))
            break;
    }
    EACH_TILE {
        if (n < p.N)
            put_rows(sum[t], fits.fits + 8 * t, PTR(const float, b), PTR(const float, add),
                     PTR(float, y), row + 8 * t, n, &p);
    }
}
#endif
