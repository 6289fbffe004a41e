/* unpack.cuh -- whole rows of a weight: looked up (EMBED), widened to 16 bits for a product of many
 * rows, and made from stored blocks at import. No products: tests run this on a CPU
 * (tests/kernels/test_cuda_types.cpp). */
#ifndef CU_UNPACK_CUH
#define CU_UNPACK_CUH
#include "weight.cuh"

/* Threads of blocks of 256, counted through the grid; their number. */
__device__ __forceinline__ int64_t grid_thread() {
    const int64_t block = blockIdx.x;
    return block * 256 + threadIdx.x;
}
__device__ __forceinline__ int64_t grid_threads() {
    const int64_t blocks = gridDim.x;
    return blocks * 256;
}
/* So many blocks that each thread has one of n, at most `most`. */
static inline unsigned grid_for(int64_t n, int64_t most) {
    const int64_t blocks = (n + 255) / 256;
    if (blocks < most)
        return (unsigned)blocks;
    return (unsigned)most;
}

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
            int at = T::column(v, i / 4) - e.first;
            at += i % 4;
            if (at < 0 || at >= e.D)
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
    const int64_t step = grid_threads();
    const bool odd = threadIdx.x % 2;
    for (int64_t i = grid_thread(); i < n * nv; i += step) {
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
    const unsigned grid = grid_for(n * (ld / T::E), 8192);
    launch(s, expand_rows<T>, dim3(grid), 256, 0, *w, row, n, ld, pitch, (uint16_t *)out);
}

/* ---- import ---------------------------------------------------------------------------------- */
/* Little pieces of stored blocks. */
__device__ __forceinline__ int nibble_of(const uint8_t *q, int i) {
    if (i < 16)
        return q[i] & 15;
    return q[i - 16] >> 4;
}
/* Element 2i in the low half of byte i. */
__device__ __forceinline__ int nibble_at(const uint8_t *q, int i) {
    const int both = q[i / 2];
    return both >> 4 * (i % 2) & 15;
}
/* So many bits of a word, from bit `at` on. */
__device__ __forceinline__ int field_of(uint32_t word, int at, int bits) {
    const uint32_t mask = (1u << bits) - 1;
    word >>= at;
    return (int)(word & mask);
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

/* A group of 32 and where its scales belong: group `at` of its row, `sub` of its stored block, `to`
 * of the matrix. */
struct group_place {
    const cu_import &im;
    int64_t row, to;
    int at, sub;
    /* of the row */
    __device__ const float *scales() const {
        return im.scale + row * im.values;
    }
    __device__ const float *biases() const {
        return im.bias + row * im.values;
    }
    /* plane 2: a byte, or two of 16 elements each; 16 or 32 bits, as they are stored */
    __device__ void keep_byte(int scale) const {
        uint8_t *plane = (uint8_t *)im.to.at[2];
        plane[to] = (uint8_t)scale;
    }
    __device__ void keep_two(int first, int second) const {
        uint8_t *plane = (uint8_t *)im.to.at[2];
        plane[2 * to] = (uint8_t)first;
        plane[2 * to + 1] = (uint8_t)second;
    }
    __device__ void keep_half(const uint8_t *stored) const {
        uint16_t *plane = (uint16_t *)im.to.at[2];
        plane[to] = u16_of(stored);
    }
    __device__ void keep_word(const uint8_t *stored) const {
        uint32_t *plane = (uint32_t *)im.to.at[2];
        plane[to] = u32_of(stored);
    }
    /* E8M0, which the host hands as 2^(e - 127) in f32: e is its exponent; 2^-127 is subnormal */
    __device__ void keep_exponent() const {
        const uint32_t bits = __float_as_uint(scales()[at]);
        keep_byte((int)(bits >> 23));
    }
    /* plane 3, of a block of 256: 16 or 32 bits */
    __device__ void block_half(uint16_t d) const {
        uint16_t *plane = (uint16_t *)im.to.at[3];
        if (sub == 0)
            plane[to / 8] = d;
    }
    __device__ void block_word(const uint8_t *stored) const {
        uint32_t *plane = (uint32_t *)im.to.at[3];
        if (sub == 0)
            plane[to / 8] = u32_of(stored);
    }
};

/* Q4_K and Q5_K: the group's scale and minimum from the block's {f16 d, dmin; u8 scale[12]}. */
__device__ __forceinline__ void import_scale_k(const uint8_t *block, const group_place &to) {
    const uint8_t *s = block + 4 + to.sub;
    int scale = s[0] & 63;
    int min = s[4] & 63;
    if (to.sub >= 4) {
        const int low = s[4];
        const int scale_high = s[-4] >> 6;
        const int min_high = s[0] >> 6;
        scale = (low & 15) | scale_high << 4;
        min = low >> 4 | min_high << 4;
    }
    to.keep_two(scale, min);
    to.block_word(block);
}

/* A thread makes one group of 32: codes by F::code(block, element), scales by F::scales(block,
 * place). */
template <class F> __global__ void __launch_bounds__(256) import_groups(cu_import im) {
    using C = typename F::weight::codes;
    cu_wait();
    const int per_row = im.blocks * F::BLOCK / 32;
    const int of_block = F::BLOCK / 32;
    const int64_t n = im.rows * per_row;
    const int64_t groups = im.ld / 32;
    const int64_t step = grid_threads();
    uint8_t *low = (uint8_t *)im.to.at[0];
    uint8_t *high = (uint8_t *)im.to.at[1];
    for (int64_t i = grid_thread(); i < n; i += step) {
        const int64_t row = i / per_row;
        const int at = (int)(i % per_row);
        const int sub = at % of_block;
        const int64_t first = row * groups;
        const int64_t n_block = row * im.blocks + at / of_block;
        const uint8_t *block = im.data + n_block * F::BYTES;
        for (int t = 0; t < 4; t++) {
            const int64_t lane = first + at / 4 * 4 + t;
            auto code = [&](int j) {
                const int element = lane_element(t, j);
                return F::code(block, 32 * sub + element);
            };
            C::pack(low, high, lane, at % 4, code);
        }
        F::scales(block, group_place{im, row, first + at, at, sub});
    }
}

template <class F> static void import_run(cudaStream_t s, const cu_import *i) {
    const int64_t groups = i->rows * i->blocks * (F::BLOCK / 32);
    const dim3 grid(grid_for(groups, 16384));
    if (groups)
        launch(s, import_groups<F>, grid, 256, 0, *i);
}

/* The table's row of a packed type, but for its products; F: its stored form (w_*.cu). */
template <class F> static constexpr cu_type stored_type(uint32_t dtype, const char *name) {
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
    t.expand = expand_run<W>;
    t.embed = embed_run<W>;
    t.import = import_run<F>;
    return t;
}
#endif
