/* rows.cuh -- whole rows of a weight: looked up (EMBED), widened to 16 bits for a product of many
 * rows, and made from stored blocks at import; and the row of a type in the table. */
#ifndef CU_ROWS_CUH
#define CU_ROWS_CUH
#include "gemv.cuh"
#include "one_row.cuh"
#include "few_rows.cuh"

template <class T> __global__ void __launch_bounds__(256) embed_rows(cu_embed e) {
    constexpr int E = T::E;
    cu_next();
    cu_wait();
    const int t = blockIdx.x;
    const int id = __ldcg(&e.ids[t]);
    float *x = e.x + (int64_t)t * e.D;
    const float *add = NULL;
    if (e.positions && id >= 0) {
        const int pos = min(__ldcg(&e.row_pos[t]), e.n_positions - 1);
        add = e.positions + (int64_t)pos * e.D;
    }
    for (int v = threadIdx.x; v < e.ld / E; v += 256) {
        float f[E];
        T w;
        const int64_t row = max(id, 0);
        w.load(e.table, row * (e.ld / E) + v);
        w.to_float(f);
#pragma unroll
        for (int i = 0; i < E; i++) {
            const int at = T::column(v, i / 4) + i % 4;
            if (at >= e.D)
                continue;
            const float position = add ? add[at] : 0;
            x[at] = id < 0 ? 0 : e.factor * f[i] + position;
        }
    }
}
template <class T> static void embed_run(cudaStream_t s, const cu_embed *e) {
    launch(s, embed_rows<T>, dim3(e->T), 256, 0, *e);
}

/* Rows of `pitch` elements, times CU_LOWERED where x is lowered by it; what a row of the weight has
 * beyond is padding. Of each group a lane
 * has two runs of four elements, and its neighbour the runs behind them: they swap one each, so
 * that both write eight in a row. */
template <class T>
__global__ void __launch_bounds__(256)
    expand_rows(cu_planes w, int64_t row, int64_t n, int ld, int pitch, uint16_t *out) {
    constexpr int E = T::E;
    cu_next();
    cu_wait();
    const int64_t nv = ld / E;
    const int64_t step = (int64_t)gridDim.x * 256;
    const bool odd = threadIdx.x % 2;
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < n * nv; i += step) {
        float f[E];
        T v;
        v.load(w, row * nv + i);
        v.to_float(f);
        if ((int)T::HALF == CU_LOW) {
#pragma unroll
            for (int k = 0; k < E; k++)
                f[k] *= CU_LOWERED;
        }
        uint16_t *to = out + i / nv * pitch;
#pragma unroll
        for (int q = 0; q < E / 4; q += 2) {
            const float4 *x = (const float4 *)&f[4 * q];
            const uint2 a = round4(x[0]);
            const uint2 b = round4(x[1]);
            if (!T::PACKED) {
                *(uint4 *)(to + T::column((int)(i % nv), q)) = make_uint4(a.x, a.y, b.x, b.y);
                continue;
            }
            uint2 mine = odd ? b : a;
            uint2 other = odd ? a : b;
            /* whole quads run, since nv is a multiple of four */
            other.x = __shfl_xor_sync(__activemask(), other.x, 1);
            other.y = __shfl_xor_sync(__activemask(), other.y, 1);
            const int at = T::column((int)(i % nv), odd ? q + 1 : q) - (odd ? 4 : 0);
            const uint4 eight = odd ? make_uint4(other.x, other.y, mine.x, mine.y)
                                    : make_uint4(mine.x, mine.y, other.x, other.y);
            if (at < pitch)
                *(uint4 *)(to + at) = eight;
        }
    }
}
template <class T>
static void expand_run(cudaStream_t s, const cu_planes *w, int64_t row, int64_t n, int ld,
                       int pitch, void *out) {
    const int64_t blocks = (n * (ld / T::E) + 255) / 256;
    const unsigned grid = (unsigned)(blocks < 8192 ? blocks : 8192);
    launch(s, expand_rows<T>, dim3(grid), 256, 0, *w, row, n, ld, pitch, (uint16_t *)out);
}

/* A thread makes one group of 32: codes by F::code, scales by F::scales. */
template <class F> __global__ void __launch_bounds__(256) import_groups(cu_import im) {
    using C = typename F::weight::codes;
    const int per_row = im.blocks * F::BLOCK / 32;
    const int of_block = F::BLOCK / 32;
    const int64_t n = im.rows * per_row;
    const int64_t groups = im.ld / 32;
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * 256) {
        const int64_t row = i / per_row;
        const int at = (int)(i % per_row);
        const int sub = at % of_block;
        const int64_t to = row * groups + at;
        const int64_t n_block = row * im.blocks + at / of_block;
        const uint8_t *block = im.data + n_block * F::BYTES;
        for (int t = 0; t < 4; t++) {
            auto code = [&](int j) { return F::code(block, 32 * sub + lane_element(t, j)); };
            const int64_t lane = row * groups + at / 4 * 4 + t;
            C::pack((uint8_t *)im.to.at[0], (uint8_t *)im.to.at[1], lane, at % 4, code);
        }
        F::scales(block, sub, im, row, at, to);
    }
}
template <class F> static void import_run(cudaStream_t s, const cu_import *i) {
    const int64_t groups = i->rows * i->blocks * (F::BLOCK / 32);
    const int64_t blocks = (groups + 255) / 256;
    const unsigned grid = (unsigned)(blocks < 16384 ? blocks : 16384);
    if (groups)
        import_groups<F><<<grid, 256, 0, s>>>(*i);
}

/* Little pieces of stored blocks. */
__device__ __forceinline__ int nibble_of(const uint8_t *q, int i) {
    if (i < 16)
        return q[i] & 15;
    return q[i - 16] >> 4;
}
__device__ __forceinline__ int fifth_of(const uint8_t *high, int i) {
    return (high[i / 8] >> i % 8 & 1) << 4;
}
__device__ __forceinline__ uint16_t u16_of(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}
__device__ __forceinline__ uint32_t u32_of(const uint8_t *p) {
    return u16_of(p) | (uint32_t)u16_of(p + 2) << 16;
}

template <class T> static void init_run(const cu_card *d) {
    gemv_init<T>(d);
    if constexpr ((int)T::HALF != CU_F32)
        mmv_init<T>(d);
    if constexpr (T::PACKED)
        one_row_init<T>(d);
}

/* The table's row of a packed type; F: its stored form (w_*.cu). */
template <class F> static constexpr cu_type packed_type(uint32_t dtype, const char *name) {
    using W = typename F::weight;
    cu_type t = {};
    t.dtype = dtype;
    t.name = name;
    t.bits[0] = W::codes::LOW * 128;
    t.bits[1] = W::codes::HIGH * 128;
    t.bits[2] = W::scales::BITS2;
    t.bits[3] = W::scales::BITS3;
    t.block = F::BLOCK;
    t.block_bytes = F::BYTES;
    t.planes = F::PLANES;
    t.half = W::HALF;
    t.widens = true;
    t.align = 128;
    t.init = init_run<W>;
    t.gemv = gemv_run<W>;
    t.mmv = mmv_run<W>;
    t.expand = expand_run<W>;
    t.embed = embed_run<W>;
    t.import = import_run<F>;
    return t;
}
/* Of a float type, which is kept as it is stored. */
template <class W>
static constexpr cu_type float_type(uint32_t dtype, const char *name, int bytes) {
    cu_type t = {};
    t.dtype = dtype;
    t.name = name;
    t.bits[0] = 1024 * bytes;
    t.block = 1;
    t.block_bytes = bytes;
    t.align = CU_K_ALIGN;
    t.half = W::HALF;
    t.init = init_run<W>;
    t.gemv = gemv_run<W>;
    t.embed = embed_run<W>;
    if constexpr ((int)W::HALF != CU_F32) {
        t.mmv = mmv_run<W>;
        t.expand = expand_run<W>;
        t.widens = (int)W::HALF == CU_LOW;
    }
    return t;
}
#endif
