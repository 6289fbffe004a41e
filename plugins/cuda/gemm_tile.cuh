/* gemm_tile.cuh -- what the kernels of the matrix product share: which rows and columns a tile has,
 * and what becomes of its sums.
 *
 * Columns of all segments form one line of pieces of P columns, each of one segment; with GLU
 * pieces of gate and up take turns, so that a warp that holds two neighbours can join them. The
 * sums are in the layout of the matrix units: a lane has, of every 8 columns, the two at
 * 2 * (lane % 4) of the rows lane / 4 and lane / 4 + 8. */
#ifndef CU_GEMM_TILE_H
#define CU_GEMM_TILE_H
#include "device.cuh"
#include "gemm_args.h"
/* ---- tiles ----------------------------------------------------------------------------------- */
struct gemm_tile {
    int group, row, end; /* rows from row, those from end on are another's */
    int piece;
};

/* starts[g]: tiles of rows before group g. By one warp; the caller synchronizes. */
__device__ __forceinline__ void gemm_starts(const gemm_args &a, int height, int *starts) {
    const int lane = threadIdx.x % 32;
    int total = 0;
    for (int base = 0; base < a.n_groups; base += 32) {
        const int g = base + lane;
        int own = 0;
        if (g < a.n_groups) {
            const int end = __ldcg(a.offsets + g + 1);
            const int rows = end - __ldcg(a.offsets + g);
            own = (rows + height - 1) / height;
        }
        const int sum = warp_sum_until(own);
        if (g < a.n_groups)
            starts[g + 1] = total + sum;
        total += __shfl_sync(~0u, sum, 31);
    }
    if (lane == 0)
        starts[0] = 0;
}

__device__ __forceinline__ int gemm_tiles(const gemm_args &a, int height, const int *starts) {
    const int whole = (a.rows + height - 1) / height;
    return a.col_tiles * (a.offsets ? starts[a.n_groups] : whole);
}

/* Tiles go through a band of rows column by column, then through the next band, then through the
 * next group. */
__device__ __forceinline__ gemm_tile gemm_tile_at(const gemm_args &a, int height, int width,
                                                  const int *starts, int t) {
    gemm_tile r = {0, 0, a.rows, 0};
    if (a.offsets) {
        const int x = t / a.col_tiles;
        int high = a.n_groups;
        while (r.group + 1 < high) { /* the last group that starts at x or before */
            const int middle = (r.group + high) / 2;
            if (starts[middle] <= x)
                r.group = middle;
            else
                high = middle;
        }
        t -= starts[r.group] * a.col_tiles;
        r.row = __ldcg(a.offsets + r.group);
        r.end = __ldcg(a.offsets + r.group + 1);
    }
    const int row_tiles = (r.end - r.row + height - 1) / height;
    const int band_tiles = a.band * a.col_tiles;
    int first = 0; /* tile of rows of the band */
    while (t >= band_tiles) {
        first += a.band;
        t -= band_tiles;
    }
    const int high = min(a.band, row_tiles - first);
    const int column = t / high;
    r.row += (first + t - column * high) * height;
    r.piece = column * width;
    return r;
}

/* A piece's segment and first column there; behind the last piece: columns that nobody has. */
struct gemm_place {
    int seg;
    int col;
};
template <int P> __device__ __forceinline__ gemm_place gemm_place_of(const gemm_args &a, int p) {
    if (a.epi == CU_EPI_GLU)
        return gemm_place{p % 2, p / 2 * P};
    int s = 0;
    while (s + 1 < a.n_seg && p >= a.seg[s + 1].first)
        s++;
    return gemm_place{s, (p - a.seg[s].first) * P};
}

/* ---- epilogue -------------------------------------------------------------------------------- */
/* As cu_glu_of, with rough exp and division: far closer than the 16 bits of the operands. */
__device__ __forceinline__ float gemm_silu(const cu_glu &p, float gate, float up) {
    if (p.limit != 0) { /* NaN stays NaN */
        gate = gate > p.limit ? p.limit : gate;
        up = up > p.limit ? p.limit : up;
        up = up < -p.limit ? -p.limit : up;
    }
    const float below = 1.0f + __expf(-p.alpha * gate);
    return __fdividef(gate, below) * (up + p.up_offset);
}
__device__ __forceinline__ float gemm_glu(const cu_glu &p, float gate, float up) {
    if (p.kind == MN_ACT_SILU)
        return gemm_silu(p, gate, up);
    return cu_glu_of(p, gate, up);
}

__device__ __forceinline__ float4 gemm_four(const float *v) {
    return make_float4(v[0], v[1], v[2], v[3]);
}

/* Four columns from col on; those from `end` on are not written. */
__device__ __forceinline__ void gemm_put(const gemm_segment &s, int kind, int64_t row, int col,
                                         const float v[4]) {
    void *y = s.y;
    const int64_t at = row * s.ld + col;
    if (!s.vectors) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (col + i < s.end)
                put(y, at + i, v[i], kind);
        }
        return;
    }
    if (col >= s.end)
        return;
    if (kind == CU_F32) {
        *(float4 *)((float *)y + at) = gemm_four(v);
        return;
    }
    uint16_t h[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        put(h, i, v[i], kind);
    const uint32_t low = h[0] | (uint32_t)h[1] << 16;
    const uint32_t high = h[2] | (uint32_t)h[3] << 16;
    *(uint2 *)((uint16_t *)y + at) = make_uint2(low, high);
}

/* The bias of a segment of n columns for a group; NULL = none. */
__device__ __forceinline__ const float *gemm_bias_of(const gemm_segment &s, int group, int n) {
    if (s.bias)
        return s.bias + (int64_t)group * n;
    return NULL;
}
__device__ __forceinline__ void gemm_bias(const float *bias, int n, int col, float v[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = bias && col + i < n ? __ldg(bias + col + i) : 0.0f;
}

__device__ __forceinline__ float4 gemm_residual(const float *residual, const gemm_segment &s,
                                                int64_t row, int col) {
    const float *from = residual + row * s.ld + col;
    if (s.vectors && col + 4 <= s.n)
        return __ldcg((const float4 *)from);
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = col + i < s.n ? __ldcg(from + i) : 0.0f;
    return gemm_four(v);
}

/* A warp's epilogue goes in chunks of 16 rows by 32 columns through its own shared memory, from
 * where rows leave in whole vectors. With GLU a chunk is 16 columns of gate, then the 16 of up. */
enum { GEMM_CHUNK = 32, GEMM_PITCH = 40, GEMM_STAGING = 16 * GEMM_PITCH };

/* Half a chunk, 16 columns of sums in the layout of the matrix units. */
__device__ __forceinline__ void gemm_stage(float *staging, int col, const float *d) {
    const int lane = threadIdx.x % 32;
    float *at = staging + lane / 4 * GEMM_PITCH + col + 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const float *four = d + 4 * j;
        float *to = at + 8 * j;
        *(float2 *)to = make_float2(four[0], four[1]);
        *(float2 *)(to + 8 * GEMM_PITCH) = make_float2(four[2], four[3]);
    }
}

/* Where a lane's part of a chunk lies and what is added to it. */
struct gemm_part {
    gemm_place at;
    float bias[4];  /* GLU: of gate */
    float4 more[4]; /* residual; GLU: bias of up */
};

/* With GLU a lane has 4 columns of rows lane / 4 and 8 more, else of rows lane / 8, 4, 8, 12
 * more. */
template <int P>
__device__ __forceinline__ void gemm_read(const gemm_args &a, int group, int row, int end,
                                          int piece, int c, gemm_part *x) {
    const int lane = threadIdx.x % 32;
    if (a.epi == CU_EPI_GLU) {
        constexpr int PAIR = P / 16; /* chunks in a piece of gate and its piece of up */
        const gemm_segment &s = a.seg[0];
        const int pair = piece / 2 + c / PAIR;
        const int col = pair * P + c % PAIR * 16 + 4 * (lane % 4);
        x->at = gemm_place{0, col};
        gemm_bias(gemm_bias_of(s, group, s.n), s.n, col, x->bias);
        float up[4];
        gemm_bias(gemm_bias_of(a.seg[1], group, s.n), s.n, col, up);
        x->more[0] = gemm_four(up);
        return;
    }
    constexpr int IN_PIECE = P / GEMM_CHUNK;
    x->at = gemm_place_of<P>(a, piece + c / IN_PIECE);
    x->at.col += c % IN_PIECE * GEMM_CHUNK + 4 * (lane % 8);
    const gemm_segment &s = a.seg[x->at.seg];
    gemm_bias(gemm_bias_of(s, group, s.n), s.n, x->at.col, x->bias);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = row + lane / 8 + 4 * i;
        x->more[i] = make_float4(0, 0, 0, 0);
        if (a.epi == CU_EPI_ADD && r < end)
            x->more[i] = gemm_residual(a.residual, s, r, x->at.col);
    }
}

__device__ __forceinline__ void gemm_write_glu(const gemm_args &a, const float *staging, int row,
                                               int end, const gemm_part &x) {
    const int lane = threadIdx.x % 32;
    const int own = 4 * (lane % 4);
    const float *b = x.bias;
    const float4 c = x.more[0];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int r = lane / 4 + 8 * i;
        const float *at = staging + r * GEMM_PITCH + own;
        const float4 gate = *(const float4 *)at;
        const float4 up = *(const float4 *)(at + 16);
        float v[4];
        v[0] = gemm_glu(a.glu, gate.x + b[0], up.x + c.x);
        v[1] = gemm_glu(a.glu, gate.y + b[1], up.y + c.y);
        v[2] = gemm_glu(a.glu, gate.z + b[2], up.z + c.z);
        v[3] = gemm_glu(a.glu, gate.w + b[3], up.w + c.w);
        if (row + r < end)
            gemm_put(a.seg[0], a.y_kind, row + r, x.at.col, v);
    }
}

__device__ __forceinline__ void gemm_write_sum(const gemm_args &a, const float *staging, int row,
                                               int end, const gemm_part &x) {
    const int lane = threadIdx.x % 32;
    const int own = 4 * (lane % 8);
    const gemm_segment &s = a.seg[x.at.seg];
    const float *b = x.bias;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = lane / 8 + 4 * i;
        const float4 sum = *(const float4 *)(staging + r * GEMM_PITCH + own);
        const float4 residual = x.more[i];
        float v[4];
        v[0] = residual.x + (sum.x + b[0]);
        v[1] = residual.y + (sum.y + b[1]);
        v[2] = residual.z + (sum.z + b[2]);
        v[3] = residual.w + (sum.w + b[3]);
        if (row + r < end)
            gemm_put(s, a.y_kind, row + r, x.at.col, v);
    }
}

/* Chunk c of the sums d to the staging. Registers have no index at run time: the loop is unrolled
 * and one turn of it taken. */
template <int P, int CHUNKS>
__device__ __forceinline__ void gemm_stage_chunk(float *staging, const float *d, int c, bool glu) {
    constexpr int PAIR = P / 16;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        if (i != c)
            continue;
        const int pair = i / PAIR * 2 * P;
        const int within = i % PAIR * 16;
        if (glu) {
            gemm_stage(staging, 0, d + (pair + within) / 2);
            gemm_stage(staging, 16, d + (pair + P + within) / 2);
        } else {
            gemm_stage(staging, 0, d + i * 16);
            gemm_stage(staging, 16, d + i * 16 + 8);
        }
    }
}

/* The epilogue of a warp, for every case: 16 rows from row on by COLS columns, in pieces of P from
 * piece on. d: [columns / 8][2 rows][2] */
template <int P, int COLS>
__device__ __forceinline__ void gemm_finish_staged(const gemm_args &a, const float *d,
                                                   float *staging, int group, int row, int end,
                                                   int piece) {
    constexpr int CHUNKS = COLS / GEMM_CHUNK;
    const bool glu = a.epi == CU_EPI_GLU;
#pragma unroll 1
    for (int c = 0; c < CHUNKS; c++) {
        gemm_part part;
        gemm_stage_chunk<P, CHUNKS>(staging, d, c, glu);
        __syncwarp();
        gemm_read<P>(a, group, row, end, piece, c, &part);
        if (glu)
            gemm_write_glu(a, staging, row, end, part);
        else
            gemm_write_sum(a, staging, row, end, part);
        __syncwarp();
    }
}

/* ---- the same, straight from registers ------------------------------------------------------- */
/* Whole pieces of whole vectors, which nearly all tiles have. Accesses are 16 bytes a lane, 64 a
 * row: 8 bytes would make the copies twice as long. */
template <int P, int N>
__device__ __forceinline__ bool gemm_is_plain(const gemm_args &a, int piece) {
    const int whole = a.y_kind == CU_F32 ? 4 : 8; /* elements of a vector */
    if (a.epi == CU_EPI_GLU) {
        {
            const gemm_segment &s = a.seg[0];
            const bool inside = (piece + N) / 2 * P <= s.n;
            return inside && s.vectors && s.ld % whole == 0 && a.glu.kind == MN_ACT_SILU;
        }
    }
    if (a.epi == CU_EPI_ADD && a.y_kind != CU_F32)
        return false;
    bool plain = true;
#pragma unroll
    for (int p = 0; p < N; p++) {
        const gemm_place at = gemm_place_of<P>(a, piece + p);
        const gemm_segment &s = a.seg[at.seg];
        const bool inside = at.col + P <= s.n;
        plain = plain && inside && s.vectors && s.ld % whole == 0;
    }
    return plain;
}

template <int P>
__device__ __forceinline__ void gemm_add_bias(float *d, const float *bias, int col) {
    if (!bias)
        return;
    bias += col + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int j = 0; j < P / 8; j++) {
        const float b0 = __ldg(bias + 8 * j);
        const float b1 = __ldg(bias + 8 * j + 1);
        d[4 * j] += b0;
        d[4 * j + 1] += b1;
        d[4 * j + 2] += b0;
        d[4 * j + 3] += b1;
    }
}

/* Two neighbours trade halves of 16 columns of a row: each then has four columns after each other,
 * from gemm_column on. */
__device__ __forceinline__ int gemm_column() {
    const int t = threadIdx.x % 4;
    return 8 * (t % 2) + 4 * (t / 2);
}
/* yes ? a : b, as one instruction: the compiler would make two branches of the whole epilogue */
__device__ __forceinline__ float gemm_select(unsigned yes, float a, float b) {
    float r;
    asm("{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\nselp.f32 %0, %2, %3, p;\n}"
        : "=f"(r)
        : "r"(yes), "f"(a), "f"(b));
    return r;
}
__device__ __forceinline__ float4 gemm_trade(const float *d) {
    const unsigned odd = threadIdx.x & 1;
    const float give_x = gemm_select(odd, d[0], d[4]);
    const float x = __shfl_xor_sync(~0u, give_x, 1);
    const float give_y = gemm_select(odd, d[1], d[5]);
    const float y = __shfl_xor_sync(~0u, give_y, 1);
    float4 v;
    v.x = gemm_select(odd, x, d[0]);
    v.y = gemm_select(odd, y, d[1]);
    v.z = gemm_select(odd, d[4], x);
    v.w = gemm_select(odd, d[5], y);
    return v;
}

/* This lane's part of P columns of the residual, in gemm_trade's order: [P / 16][2 rows]. */
template <int P>
__device__ __forceinline__ void gemm_read_plain(const gemm_args &a, int row, int end, int piece,
                                                float4 *v) {
    const gemm_place at = gemm_place_of<P>(a, piece);
    const int64_t ld = a.seg[at.seg].ld;
    row += threadIdx.x % 32 / 4;
    const float *from = a.residual + row * ld + at.col + gemm_column();
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int q = 0; q < P / 16; q++) {
            const float *at = from + 8 * h * ld + 16 * q;
            float4 &to = v[2 * q + h];
            to = make_float4(0, 0, 0, 0);
            if (row + 8 * h < end)
                to = __ldcg((const float4 *)at);
        }
    }
}

/* Writes this lane's two rows of P columns in f32; residual as read, or NULL. */
template <int P>
__device__ __forceinline__ void gemm_write_f32(const gemm_segment &s, int row, int end, int col,
                                               const float *d, const float4 *residual) {
    row += threadIdx.x % 32 / 4;
    float *to = (float *)s.y + (int64_t)row * s.ld + col + gemm_column();
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int q = 0; q < P / 16; q++) {
            float4 v = gemm_trade(d + 8 * q + 2 * h);
            if (residual) {
                const float4 r = residual[2 * q + h];
                v.x = r.x + v.x;
                v.y = r.y + v.y;
                v.z = r.z + v.z;
                v.w = r.w + v.w;
            }
            if (row + 8 * h < end) {
                float *at = to + (int64_t)8 * h * s.ld;
                *(float4 *)(at + 16 * q) = v;
            }
        }
    }
}

/* two of 16 bits, in a register of floats */
__device__ __forceinline__ float gemm_pack(float a, float b, int kind) {
    uint16_t pair[2];
    put(pair, 0, a, kind);
    put(pair, 1, b, kind);
    return __uint_as_float(pair[0] | (uint32_t)pair[1] << 16);
}
/* Among the four lanes of a row: v[j] of lane i becomes v[i] of lane j. */
__device__ __forceinline__ void gemm_swap(float &low, float &high, unsigned upper, int lanes) {
    const float got = __shfl_xor_sync(~0u, gemm_select(upper, low, high), lanes);
    low = gemm_select(upper, got, low);
    high = gemm_select(upper, high, got);
}
__device__ __forceinline__ void gemm_transpose(float v[4]) {
    const unsigned odd = threadIdx.x & 1;
    const unsigned upper = threadIdx.x & 2;
    gemm_swap(v[0], v[1], odd, 1);
    gemm_swap(v[2], v[3], odd, 1);
    gemm_swap(v[0], v[2], upper, 2);
    gemm_swap(v[1], v[3], upper, 2);
}

/* The same in 16 bits: a lane gets 8 columns of every 32. */
template <int P>
__device__ __forceinline__ void gemm_write_16(const gemm_segment &s, int kind, int row, int end,
                                              int col, const float *d) {
    row += threadIdx.x % 32 / 4;
    uint16_t *y = (uint16_t *)s.y + (int64_t)row * s.ld;
    uint16_t *to = y + col + 8 * (threadIdx.x % 4);
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int q = 0; q < P / 32; q++) {
            const float *from = d + 16 * q + 2 * h;
            float v[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = gemm_pack(from[4 * i], from[4 * i + 1], kind);
            gemm_transpose(v);
            if (row + 8 * h < end) {
                {
                    uint16_t *at = to + (int64_t)8 * h * s.ld;
                    *(float4 *)(at + 32 * q) = gemm_four(v);
                }
            }
        }
    }
}

/* Nothing of this piece begins before the last one is over: there are no registers for it. */
template <int N> __device__ __forceinline__ void gemm_one_by_one(float *d, int *col) {
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
    asm volatile("" : "+r"(*col)::"memory");
}

template <int P, int COLS>
__device__ __forceinline__ void gemm_finish_glu(const gemm_args &a, float *d, int group, int row,
                                                int end, int piece) {
    const gemm_segment &s = a.seg[0];
    const float *gate_bias = gemm_bias_of(s, group, s.n);
    const float *up_bias = gemm_bias_of(a.seg[1], group, s.n);
#pragma unroll
    for (int p = 0; p < COLS / P; p += 2) {
        float *gate = d + p * (P / 2);
        float *up = gate + P / 2;
        int col = (piece + p) / 2 * P;
        gemm_one_by_one<P>(gate, &col);
        gemm_add_bias<P>(gate, gate_bias, col);
        gemm_add_bias<P>(up, up_bias, col);
#pragma unroll
        for (int i = 0; i < P / 2; i++)
            gate[i] = gemm_silu(a.glu, gate[i], up[i]);
        if (a.y_kind == CU_F32)
            gemm_write_f32<P>(s, row, end, col, gate, NULL);
        else
            gemm_write_16<P>(s, a.y_kind, row, end, col, gate);
    }
}

/* So many pieces of the residual are read before the sums are there. */
template <int P, int COLS> struct gemm_ahead {
    static constexpr int OF_64 = P >= 64 ? 1 : 64 / P;
    static constexpr int PIECES = COLS <= 128 ? COLS / P : OF_64;
    float4 v[PIECES][P / 8];
};
template <int P, int COLS>
__device__ __forceinline__ void gemm_read_ahead(const gemm_args &a, int row, int end, int piece,
                                                gemm_ahead<P, COLS> *ahead) {
    if (a.epi != CU_EPI_ADD)
        return;
#pragma unroll
    for (int p = 0; p < ahead->PIECES; p++)
        gemm_read_plain<P>(a, row, end, piece + p, ahead->v[p]);
}

/* ahead: of gemm_read_ahead, used up */
template <int P, int COLS>
__device__ __forceinline__ void gemm_finish_plain(const gemm_args &a, float *d, int group, int row,
                                                  int end, int piece, gemm_ahead<P, COLS> *ahead) {
    constexpr int AHEAD = gemm_ahead<P, COLS>::PIECES;
    if (a.epi == CU_EPI_GLU)
        return gemm_finish_glu<P, COLS>(a, d, group, row, end, piece);
#pragma unroll
    for (int p = 0; p < COLS / P; p++) {
        gemm_place at = gemm_place_of<P>(a, piece + p);
        const gemm_segment &s = a.seg[at.seg];
        float *v = d + p * (P / 2);
        gemm_one_by_one<P / 2>(v, &at.col);
        gemm_add_bias<P>(v, gemm_bias_of(s, group, s.n), at.col);
        if (a.epi == CU_EPI_ADD) {
            float4 *residual = ahead->v[p % AHEAD];
            gemm_write_f32<P>(s, row, end, at.col, v, residual);
            if (p + AHEAD < COLS / P)
                gemm_read_plain<P>(a, row, end, piece + p + AHEAD, residual);
        } else if (a.y_kind == CU_F32) {
            gemm_write_f32<P>(s, row, end, at.col, v, NULL);
        } else {
            gemm_write_16<P>(s, a.y_kind, row, end, at.col, v);
        }
    }
}
#endif
