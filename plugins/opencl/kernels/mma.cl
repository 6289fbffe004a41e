/* mma.cl -- products of several rows with a matrix on NVIDIA's tensor cores, by inline PTX: of f16,
 * or of codes that halves hold exactly, whose scales are of 32 and multiply sums of 32. A row of
 * f32 goes as two halves, its rounded value and what that leaves, so that a product has the error
 * of f32 sums; one beyond the range of halves is multiplied by a power of two (row_fits in
 * common.cl; of few rows a warp multiplies its part of the elements). Which of its 32 elements a
 * lane has is free as long as both sides agree: lane t of 4 takes 8 neighbours, which are one load,
 * for two steps of 16. step.cl has this file once for each weight type; in front of pieces.cl there
 * are only the parts that it needs. */
#if !defined STEP_WARPS && !defined PIECES
#define HAS_HALVES /* it is compiled for such types alone */
#endif
#if defined PTX && !defined MMA_CL
#define MMA_CL
typedef struct {
    uint4 high;
    uint4 low;
} two_parts;

/* Two floats as halves, the first in the lower bits. */
static uint halves_of(float2 v) {
    uint bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(v.y), "f"(v.x));
    return bits;
}

/* high and low of two floats within halves. */
static uint2 parts_of(float2 v) {
    const uint high = halves_of(v);
    return (uint2)(high, halves_of(v - two_halves(high)));
}

static two_parts parts_of8(float4 a, float4 b) {
    const uint2 x = parts_of(a.lo);
    const uint2 y = parts_of(a.hi);
    const uint2 z = parts_of(b.lo);
    const uint2 w = parts_of(b.hi);
    two_parts p;
    p.high = (uint4)(x.x, y.x, z.x, w.x);
    p.low = (uint4)(x.y, y.y, z.y, w.y);
    return p;
}

/* sum [16 outputs, 8 rows] += 16 elements of each. */
static float4 mma(float4 sum, uint a0, uint a1, uint a2, uint a3, uint b0, uint b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum.x), "+f"(sum.y), "+f"(sum.z), "+f"(sum.w)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    return sum;
}

/* 32 elements: a, a8 of outputs g and g + 8. */
static float4 mma32(float4 sum, uint4 a, uint4 a8, two_parts b) {
    sum = mma(sum, a.x, a8.x, a.y, a8.y, b.high.x, b.high.y);
    sum = mma(sum, a.x, a8.x, a.y, a8.y, b.low.x, b.low.y);
    sum = mma(sum, a.z, a8.z, a.w, a8.w, b.high.z, b.high.w);
    return mma(sum, a.z, a8.z, a.w, a8.w, b.low.z, b.low.w);
}

/* ---- a lane's 8 of 32 codes as halves, from element k on, and their scale -------------------- */
static uint4 halves_f16(global const uchar *row, int k, int t) {
    return words4(row + 2 * k + 16 * t);
}
static float factor_f16(global const uchar *scale, int block) {
    return 1.0f;
}
static uint4 halves_q8_0(global const uchar *row, int k, int t) {
    const uint2 codes = *(global const uint2 *)(row + k + 8 * t) ^ 0x80808080u;
    return (uint4)(two_bytes(codes.x, 0x4140), two_bytes(codes.x, 0x4342),
                   two_bytes(codes.y, 0x4140), two_bytes(codes.y, 0x4342));
}
static float factor_q8_0(global const uchar *scale, int block) {
    return half_at(scale + 2 * block);
}
static uint2 halves_of_e2m1(uint codes) {
    const uint low = (codes & 0xff) | (codes & 0xff00) << 8;
    const uint high = (codes >> 16 & 0xff) | (codes >> 8 & 0xff0000);
    return (uint2)((low & 0x70007) << 9 | (low & 0x80008) << 12,
                   (high & 0x70007) << 9 | (high & 0x80008) << 12);
}
static uint4 halves_mxfp4(global const uchar *row, int k, int t) {
    const uint2 both = *(global const uint2 *)(row + k / 2 + 8 * (t % 2));
    const uint2 codes = (t < 2 ? both : both >> 4) & 0x0f0f0f0fu;
    return (uint4)(halves_of_e2m1(codes.x), halves_of_e2m1(codes.y));
}
static float factor_mxfp4(global const uchar *scale, int block) {
    const uint e = scale[block];
    if (e == 255)
        return NAN;
    return (e ? as_float(e << 23) : 0x1p-127f) * 16384.0f;
}
static void put(global float *y, global const float *b, global const float *add, float v, int row,
                int n, int rows, int N) {
    const ulong to = (ulong)row * N + n;
    if (row >= rows || n >= N)
        return;
    v = b ? v + b[n] : v;
    y[to] = add ? v + add[to] : v;
}

/* ---- few rows: a group has 16 outputs of 32 rows at a time; its warps share the elements ----- */
enum { TILES = 4, AT_ONCE = 8 * TILES };

/* The pairs of an expert into the list, in any order; their number. */
static int pairs_of(global const int *experts, int expert, int n, int n_experts, local int *list,
                    local int *count) {
    const int item = get_local_id(0) + 32 * get_local_id(1);
    if (item == 0)
        *count = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = item; i < n; i += 32 * WARPS) {
        const int given = experts[i];
        const int own = given < 0 || given >= n_experts ? 0 : given;
        if (own == expert)
            list[atomic_inc(count)] = i;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return *count;
}

/* Operands of a group's products; 0: absent. */
typedef struct {
    global const float *x;
    global const int *experts;
    global const uchar *w;
    global const float *b;
    global const float *add;
    global float *y;
} product_refs;

/* The local memory of a group: [WARPS][TILES][32]; the pairs of an expert. */
typedef struct {
    local float4 *part;
    local int *list;
    local int *count;
} few_room;

/* What the row of a lane is multiplied by, for a warp's part of its elements; own: the lane's
 * first. All lanes of a warp come here together, as they do to the next two. */
static float fit_of_part(global const float *own, int warp, int K) {
    float top = 0;
    for (int k = 32 * warp; k < K; k += 32 * WARPS) {
        global const float4 *v = (global const float4 *)(own + k);
        top = fmax(top, fmax(largest4(v[0]), largest4(v[1])));
    }
    const uint4 all = quarters(as_uint(top)); /* floats above 0 are in the order of their bits */
    return fit_of(as_float(max(max(all.x, all.y), max(all.z, all.w))));
}

/* What brings the sums of rows 2 t and 2 t + 1 of a tile back, whose fits lanes 8 t and 8 t + 4
 * have. */
static float2 backs_of(float fit, int t) {
    uint2 v;
    asm("shfl.sync.idx.b32 %0, %1, %2, 31, -1;" : "=r"(v.x) : "r"(as_uint(fit)), "r"(8 * t));
    asm("shfl.sync.idx.b32 %0, %1, %2, 31, -1;" : "=r"(v.y) : "r"(as_uint(fit)), "r"(8 * t + 4));
    return (float2)(back_of(as_float(v.x)), back_of(as_float(v.y)));
}

static bool any_of_warp(bool own) {
    uint any;
    asm volatile("{ .reg .pred a, b; setp.ne.u32 a, %1, 0; vote.sync.any.pred b, a, -1; "
                 "selp.u32 %0, 1, 0, b; }"
                 : "=r"(any)
                 : "r"(own ? 1u : 0u));
    return any != 0;
}
#endif

#if defined PTX && defined TYPE && defined HAS_HALVES
/* A warp's part of the elements for N tiles of rows: nothing is computed before all that a step
 * needs is asked for. FIT: what happens to the elements of tile i before they become halves. */
#define FEW_STEPS(M, N, STEPS, FIT)                                                                \
    STEPS for (int k = 32 * warp; k < p->K; k += 32 * WARPS) {                                     \
        uint4 a[2 * M];                                                                            \
        float d[2 * M];                                                                            \
        float4 v[N][2];                                                                            \
        _Pragma("unroll") for (int m = 0; m < 2 * M; m++) {                                        \
            a[m] = FN(halves)(w[m], k, t);                                                         \
            d[m] = FN(factor)(scale[m], k / 32);                                                   \
        }                                                                                          \
        _Pragma("unroll") for (int i = 0; i < N; i++) {                                            \
            v[i][0] = ((global const float4 *)(own[i] + k))[0];                                    \
            v[i][1] = ((global const float4 *)(own[i] + k))[1];                                    \
        }                                                                                          \
        _Pragma("unroll") for (int i = 0; i < N; i++) {                                            \
            top = fmax(top, fmax(largest4(v[i][0]), largest4(v[i][1])));                           \
            FIT                                                                                    \
            const two_parts x = parts_of8(v[i][0], v[i][1]);                                       \
            _Pragma("unroll") for (int m = 0; m < M; m++) {                                        \
                const float4 c = mma32((float4)(0), a[2 * m], a[2 * m + 1], x);                    \
                sum[m][i].lo += c.lo * d[2 * m];                                                   \
                sum[m][i].hi += c.hi * d[2 * m + 1];                                               \
            }                                                                                      \
        }                                                                                          \
    }

/* The 16 M outputs from 16 M gx on, of the 32 rows from 32 gy on, or of the pairs of expert gy. All
 * items of a group come here together. */
#define PRODUCTS_FEW(name, M, STEPS)                                                               \
    static void name(const product_refs *u, ARGS ocl_linear_args *p, int gx, int gy,               \
                     few_room room) {                                                              \
        const int lane = get_local_id(0);                                                          \
        const int warp = get_local_id(1);                                                          \
        const int g = lane / 4;                                                                    \
        const int t = lane % 4;                                                                    \
        const bool paired = u->experts != 0;                                                       \
        local const int *list = room.list;                                                         \
        int from = AT_ONCE * gy;                                                                   \
        int end = min(p->rows, from + AT_ONCE);                                                    \
        long expert = 0;                                                                           \
        if (paired) {                                                                              \
            expert = gy;                                                                           \
            from = 0;                                                                              \
            end = pairs_of(u->experts, expert, p->rows, p->n_experts, room.list, room.count);      \
        }                                                                                          \
        global const uchar *w[2 * M];                                                              \
        global const uchar *scale[2 * M];                                                          \
        _Pragma("unroll") for (int m = 0; m < 2 * M; m++) {                                        \
            const long n = expert * p->N + min(16 * M * gx + 8 * m + g, p->N - 1);                 \
            w[m] = u->w + n * (long)p->w.row_bytes;                                                \
            scale[m] = u->w + p->w.scale_at + n * p->w.blocks * HEAD;                              \
        }                                                                                          \
        global const float *b = u->b ? u->b + expert * p->N : 0;                                   \
        for (int row = from; row < end; row += AT_ONCE) {                                          \
            const int tiles = min((end - row + 7) / 8, (int)TILES);                                \
            float4 sum[M][TILES];                                                                  \
            global const float *own[TILES];                                                        \
            _Pragma("unroll") for (int i = 0; i < TILES; i++) {                                    \
                const int at = min(row + 8 * i + g, end - 1);                                      \
                own[i] = u->x + (ulong)((paired ? list[at] : at) / p->per_x) * p->K + 8 * t;       \
                _Pragma("unroll") for (int m = 0; m < M; m++) sum[m][i] = 0;                       \
            }                                                                                      \
            float top = 0;                                                                         \
            if (tiles <= 2)                                                                        \
                FEW_STEPS(M, 2, STEPS, )                                                           \
            else if (tiles == 3)                                                                   \
                FEW_STEPS(M, 3, STEPS, )                                                           \
            else                                                                                   \
                FEW_STEPS(M, 4, STEPS, )                                                           \
            if (any_of_warp(top > HALF_MOST)) {                                                    \
                float fit[TILES];                                                                  \
                _Pragma("unroll") for (int i = 0; i < TILES; i++) {                                \
                    fit[i] = fit_of_part(own[i], warp, p->K);                                      \
                    _Pragma("unroll") for (int m = 0; m < M; m++) sum[m][i] = 0;                   \
                }                                                                                  \
                FEW_STEPS(M, TILES, _Pragma("unroll 1"), v[i][0] *= fit[i]; v[i][1] *= fit[i];)    \
                _Pragma("unroll") for (int i = 0; i < TILES; i++) {                                \
                    const float2 back = backs_of(fit[i], t);                                       \
                    _Pragma("unroll") for (int m = 0; m < M; m++) sum[m][i] *= back.xyxy;          \
                }                                                                                  \
            }                                                                                      \
            _Pragma("unroll") for (int m = 0; m < M; m++) {                                        \
                _Pragma("unroll") for (int i = 0; i < TILES; i++)                                  \
                    room.part[(warp * TILES + i) * 32 + lane] = sum[m][i];                         \
                barrier(CLK_LOCAL_MEM_FENCE);                                                      \
                if (warp < tiles) {                                                                \
                    const int n = 16 * (M * gx + m) + g;                                           \
                    float4 all = 0;                                                                \
                    for (int i = 0; i < WARPS; i++)                                                \
                        all += room.part[(i * TILES + warp) * 32 + lane];                          \
                    const int at = row + 8 * warp + 2 * t;                                         \
                    int r0 = p->rows, r1 = p->rows;                                                \
                    if (at < end)                                                                  \
                        r0 = paired ? list[at] : at;                                               \
                    if (at + 1 < end)                                                              \
                        r1 = paired ? list[at + 1] : at + 1;                                       \
                    put(u->y, b, u->add, all.x, r0, n, p->rows, p->N);                             \
                    put(u->y, b, u->add, all.y, r1, n, p->rows, p->N);                             \
                    put(u->y, b, u->add, all.z, r0, n + 8, p->rows, p->N);                         \
                    put(u->y, b, u->add, all.w, r1, n + 8, p->rows, p->N);                         \
                }                                                                                  \
                barrier(CLK_LOCAL_MEM_FENCE);                                                      \
            }                                                                                      \
        }                                                                                          \
    }
PRODUCTS_FEW(FN(products_few), 1, _Pragma("unroll 2"))
#ifdef STEP_WARPS
PRODUCTS_FEW(FN(products_few_wide), 2, _Pragma("unroll 1"))
#endif
#endif

#if defined PTX && !defined STEP_WARPS && !defined PIECES
kernel __attribute__((reqd_work_group_size(32, WARPS, 1))) void
linear_mma_few(REF(x), REF(experts), REF(w), REF(b), REF(add), REF(y), const ocl_linear_args p) {
    local float4 part[WARPS * TILES * 32];
    local int list[OCL_MMA_PAIRS];
    local int count;
    const product_refs u = {PTR(const float, x), PTR(const int, experts), PTR(const uchar, w),
                            PTR(const float, b), PTR(const float, add),   PTR(float, y)};
    const few_room room = {part, list, &count};
    FN(products_few)(&u, &p, get_group_id(0), get_group_id(1), room);
}
#endif

#if defined PTX && !defined STEP_WARPS
/* ---- many rows: a group has 128 outputs of 64 rows, staged 32 elements at a time ------------- */
enum { OUTPUTS = OCL_MMA_OUTPUTS, ROWS = OCL_MMA_ROWS, W_WORDS = 4 * OUTPUTS, X_WORDS = 4 * ROWS };

/* Of 32 elements from k on: four floats of two rows for each item. */
typedef struct {
    float4 quad[2];
} held_x;

static held_x load_x(global const float *x, int row, int k, ARGS ocl_linear_args *p) {
    const int item = get_local_id(0) + 32 * get_local_id(1);
    held_x h;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int j = item + 256 * i;
        const int r = min(row + j / 8, p->rows - 1);
        h.quad[i] = *(global const float4 *)(x + (ulong)r * p->K + k + 4 * (j % 8));
    }
    return h;
}

/* As two halves each. */
static void keep_x(held_x h, row_fits fits, local uint4 *high, local uint4 *low) {
    const int item = get_local_id(0) + 32 * get_local_id(1);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int j = item + 256 * i;
        const float4 v = fitted_quad(fits, j / 8, h.quad[i]);
        const uint2 a = parts_of(v.lo);
        const uint2 b = parts_of(v.hi);
        ((local uint2 *)high)[j] = (uint2)(a.x, b.x);
        ((local uint2 *)low)[j] = (uint2)(a.y, b.y);
    }
}

/* A warp's 32 outputs of 32 rows, those of one tile of 16 and 8 after the other; fits: of the
 * rows. */
static void put_tiles(float4 sum[2][4], local const float *fits, global const float *b,
                      global const float *add, global float *y, int first, int row,
                      ARGS ocl_linear_args *p) {
    const int g = get_local_id(0) / 4;
    const int t = get_local_id(0) % 4;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int n = first + 16 * i + g;
            const int own = 8 * j + 2 * t;
            const int to = row + own;
            const float back = back_of(fits[own]);
            const float back1 = back_of(fits[own + 1]);
            put(y, b, add, sum[i][j].x * back, to, n, p->rows, p->N);
            put(y, b, add, sum[i][j].y * back1, to + 1, n, p->rows, p->N);
            put(y, b, add, sum[i][j].z * back, to, n + 8, p->rows, p->N);
            put(y, b, add, sum[i][j].w * back1, to + 1, n + 8, p->rows, p->N);
        }
}
#endif

#if defined PTX && !defined STEP_WARPS && !defined PIECES
/* Of 32 elements: 16 bytes of two outputs for each item. */
typedef struct {
    uint4 word[2];
} held_w;

static held_w load_w(global const uchar *w, int first, int k, const ocl_linear_args *p) {
    const int item = get_local_id(0) + 32 * get_local_id(1);
    held_w h;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int j = item + 256 * i;
        const int n = min(first + j / 4, p->N - 1);
        h.word[i] = words4(w + (ulong)n * p->w.row_bytes + 2 * k + 16 * (j % 4));
    }
    return h;
}

kernel __attribute__((reqd_work_group_size(32, WARPS, 1))) void
linear_mma(REF(x), REF(experts), REF(w), REF(b), REF(add), REF(y), const ocl_linear_args p) {
    local uint4 ws[2][W_WORDS];
    local uint4 highs[2][X_WORDS];
    local uint4 lows[2][X_WORDS];
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
        held_w hw = load_w(w, first, 0, &p);
        held_x hx = load_x(x, row, 0, &p);
        int now = 0;
        for (int k = 0; k < p.K; k += 32) {
            ws[now][lane + 32 * warp] = hw.word[0];
            ws[now][lane + 32 * warp + 256] = hw.word[1];
            keep_x(hx, fits, highs[now], lows[now]);
            barrier(CLK_LOCAL_MEM_FENCE);
            if (k + 32 < p.K) {
                hw = load_w(w, first, k + 32, &p);
                hx = load_x(x, row, k + 32, &p);
            }
            uint4 a[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[i] = ws[now][4 * (own_n + 8 * i + g) + t];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                two_parts b;
                b.high = highs[now][4 * (own_row + 8 * j + g) + t];
                b.low = lows[now][4 * (own_row + 8 * j + g) + t];
#pragma unroll
                for (int i = 0; i < 2; i++)
                    sum[i][j] = mma32(sum[i][j], a[2 * i], a[2 * i + 1], b);
            }
            now = 1 - now;
        }
        if (!fit_rows(fits, ROWS, item, 32 * WARPS))
            break;
    }
    put_tiles(sum, fits.fits + own_row, PTR(const float, b), PTR(const float, add), PTR(float, y),
              first + own_n, row + own_row, &p);
}
#endif
