/* emulated.h -- kernels of plugins/cuda as C++ on the CPU, for tests without a GPU. Included before
 * everything else by -include; CUDA's headers come first, then the words of the language that they
 * leave to nvcc are defined here. Threads of a block are fibers that take turns: what they exchange
 * in a warp, and __syncthreads, are where they meet. No caches, no time: only what is computed. */
#ifndef EMULATED_H
#define EMULATED_H
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <algorithm>
#include <math.h>
#include <cstdint>
#include <cstring>
#include <tuple>

#define CU_EMULATED 1
#define __CUDACC__ 1
#undef __shared__
#define __shared__ static
#undef __forceinline__
#define __forceinline__ inline
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __global__
#define __global__
#undef __device__
#define __device__
#undef __host__
#define __host__

struct emulated_index {
    unsigned x, y, z;
};
extern emulated_index threadIdx, blockIdx, gridDim, blockDim;

/* Runs fn(arg) for every thread of every block, one block after the other. */
void emulated_run(dim3 grid, int threads, void (*fn)(void *), void *arg);
/* All threads of the block that have not ended. */
void emulated_sync();
/* The same; whether one of them has other than 0. */
int emulated_any(int value);
/* The value of a lane of this warp, once all of its lanes are here. */
uint32_t emulated_lane(uint32_t value, int lane);
/* Whether no lane of the warp has 0. */
int emulated_all(uint32_t value);

template <class T> uint32_t emulated_bits(T value) {
    uint32_t bits;
    static_assert(sizeof value == sizeof bits, "words of a warp");
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
template <class T> T emulated_value(uint32_t bits) {
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#define __syncthreads emulated_sync
#define __syncthreads_or emulated_any
template <class T> T __shfl_sync(unsigned, T value, int lane) {
    return emulated_value<T>(emulated_lane(emulated_bits(value), lane % 32));
}
template <class T> T __shfl_up_sync(unsigned, T value, int distance) {
    const int lane = (int)threadIdx.x % 32;
    return __shfl_sync(~0u, value, lane < distance ? lane : lane - distance);
}
template <class T> T __shfl_xor_sync(unsigned, T value, int mask) {
    const int lane = ((int)threadIdx.x % 32) ^ mask;
    if constexpr (sizeof value == 8) { /* two words, one after the other */
        uint32_t words[2];
        memcpy(words, &value, sizeof words);
        for (uint32_t &word : words)
            word = emulated_lane(word, lane);
        memcpy(&value, words, sizeof words);
        return value;
    } else {
        return emulated_value<T>(emulated_lane(emulated_bits(value), lane));
    }
}
inline unsigned __ballot_sync(unsigned, int value) {
    unsigned votes = 0;
    for (int lane = 0; lane < 32; lane++)
        votes |= (emulated_lane(value != 0, lane) ? 1u : 0u) << lane;
    return votes;
}
inline int __all_sync(unsigned, int value) {
    return emulated_all(value != 0);
}
inline void __syncwarp() {
    emulated_lane(0, 0);
}
inline void __threadfence() {
}

/* Bytes of a (0 to 3) and b (4 to 7), one for each of the four hexadecimal digits of `which`. */
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned which) {
    const uint64_t both = (uint64_t)b << 32 | a;
    unsigned y = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned from = which >> (4 * i) & 7;
        y |= (unsigned)(both >> (8 * from) & 255) << (8 * i);
    }
    return y;
}
inline unsigned __activemask() {
    return ~0u;
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
    return __hadd2(__hmul2(a, b), c); /* rounds twice */
}
inline float emulated_half(uint32_t pair, int upper) {
    const unsigned short bits = (unsigned short)(pair >> (16 * upper));
    __half h;
    memcpy(&h, &bits, sizeof h);
    return __half2float(h);
}
/* c [16, 8] += a [16, 16] b [16, 8] of halves, as mma.sync.m16n8k16 deals them to lanes. */
template <int KIND>
void mma(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    const int lane = (int)threadIdx.x % 32;
    const uint32_t a[4] = {a0, a1, a2, a3};
    const uint32_t b[2] = {b0, b1};
    uint32_t rows[4][4];
    uint32_t columns[2][4][2];
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++)
            rows[i][j] = emulated_lane(a[j], lane / 4 * 4 + i);
        for (int j = 0; j < 4; j++)
            columns[j / 2][i][j % 2] = emulated_lane(b[j % 2], (lane % 4 * 2 + j / 2) * 4 + i);
    }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 16; k++) {
            const uint32_t x = rows[k % 8 / 2][i / 2 + k / 8 * 2];
            const uint32_t y = columns[i % 2][k % 8 / 2][k / 8];
            c[i] += emulated_half(x, k % 2) * emulated_half(y, k % 2);
        }
}

/* What prompt.cuh has of shared memory: `p` is this lane's row of eight halves of a matrix; of
 * each of four matrices a lane gets two halves of a row, or of a column (transposed). */
inline const __half *emulated_row(const __half *p, int lane) {
    const uint64_t at = (uint64_t)(uintptr_t)p;
    const uint64_t low = emulated_lane((uint32_t)at, lane);
    const uint64_t high = emulated_lane((uint32_t)(at >> 32), lane);
    return (const __half *)(uintptr_t)(high << 32 | low);
}
inline uint32_t emulated_pair(const __half *low, const __half *high) {
    const __half both[2] = {*low, *high};
    uint32_t word;
    memcpy(&word, both, sizeof word);
    return word;
}
inline void load_matrices(uint32_t *r, const __half *p) {
    const int lane = (int)threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        const __half *row = emulated_row(p, 8 * i + lane / 4) + lane % 4 * 2;
        r[i] = emulated_pair(row, row + 1);
    }
}
inline void load_transposed(uint32_t *r, const __half *p) {
    const int lane = (int)threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        const __half *first = emulated_row(p, 8 * i + lane % 4 * 2);
        const __half *second = emulated_row(p, 8 * i + lane % 4 * 2 + 1);
        r[i] = emulated_pair(first + lane / 4, second + lane / 4);
    }
}
inline void product(float c[4], const uint32_t *a, uint32_t b0, uint32_t b1) {
    mma<0>(c, a[0], a[1], a[2], a[3], b0, b1);
}
inline void copy16(__half *to, const __half *from, bool in) {
    if (in)
        memcpy(to, from, 16);
    else
        memset(to, 0, 16);
}
/* What warpgroups have of shared memory, whose addresses count from the 1,024 bytes that p lies
 * in, as those of the one array that a kernel may ask about. */
inline char *emulated_shared;
inline uint32_t shared_at(const void *p) {
    const uintptr_t at = (uintptr_t)p;
    emulated_shared = (char *)(at / 1024 * 1024);
    return (uint32_t)(at % 1024);
}
inline void copy16(uint32_t to, const void *from, bool in) {
    if (in)
        memcpy(emulated_shared + to, from, 16);
    else
        memset(emulated_shared + to, 0, 16);
}
inline void shared_store(uint32_t to, uint32_t a, uint32_t b) {
    memcpy(emulated_shared + to, &a, 4);
    memcpy(emulated_shared + to + 4, &b, 4);
}
/* Operands as words of 64 bits: where they begin, in 16 bytes, 14 bits; bytes between groups of 64
 * columns, bits 16 to 29; between eight rows, bits 32 to 45. */
inline uint64_t wgmma_operand(uint32_t at) {
    return 64ull << 32 | 1ull << 16 | (at & 0x3ffff) / 16;
}
inline uint64_t wgmma_rows(uint32_t at, int apart) {
    return 64ull << 32 | (uint64_t)(apart / 16) << 16 | (at & 0x3ffff) / 16;
}
inline float emulated_swizzled(uint32_t at) {
    const __half *from = (const __half *)(emulated_shared + (at ^ (at >> 7 & 7) << 4));
    return __half2float(*from);
}
/* Row r, column k of an operand of k columns. */
inline float emulated_column(uint64_t operand, int r, int k) {
    const uint32_t at = (uint32_t)(operand & 0x3fff) * 16;
    const uint32_t eight = (uint32_t)(operand >> 32 & 0x3fff) * 16;
    return emulated_swizzled(at + r / 8 * eight + r % 8 * 128 + k * 2);
}
/* Row k, column n of one of k rows. */
inline float emulated_of_rows(uint64_t operand, int k, int n) {
    const uint32_t at = (uint32_t)(operand & 0x3fff) * 16;
    const uint32_t apart = (uint32_t)(operand >> 16 & 0x3fff) * 16;
    const uint32_t eight = (uint32_t)(operand >> 32 & 0x3fff) * 16;
    return emulated_swizzled(at + n / 64 * apart + k / 8 * eight + k % 8 * 128 + n % 64 * 2);
}
/* d [64, N] = (more ? d : 0) + x [64, 16] w [N, 16]^T, as wgmma deals it to 128 threads. */
template <int KIND, int N> void wgmma(float *d, uint64_t x_at, uint64_t w_at, int more) {
    const int row = (int)threadIdx.x % 128 / 32 * 16 + (int)threadIdx.x % 32 / 4;
    float x[2][16];
    for (int k = 0; k < 16; k++)
        for (int h = 0; h < 2; h++)
            x[h][k] = emulated_column(x_at, row + 8 * h, k);
    for (int j = 0; j < N / 2; j++) {
        const int column = j / 4 * 8 + (int)threadIdx.x % 4 * 2 + j % 2;
        float sum = more ? d[j] : 0;
        for (int k = 0; k < 16; k++)
            sum += x[j / 2 % 2][k] * emulated_column(w_at, column, k);
        d[j] = sum;
    }
}
/* d [64, N] += a [64, 16] x [16, N]; a as in mma, of each warp 16 rows. */
template <int N> void wgmma_by_rows(float *d, const uint32_t a[4], uint64_t x_at) {
    const int lane = (int)threadIdx.x % 32;
    uint32_t rows[4][4];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            rows[i][j] = emulated_lane(a[j], lane / 4 * 4 + i);
    for (int j = 0; j < N / 2; j++) {
        const int column = j / 4 * 8 + lane % 4 * 2 + j % 2;
        for (int k = 0; k < 16; k++) {
            const uint32_t pair = rows[k % 8 / 2][j / 2 % 2 + k / 8 * 2];
            d[j] += emulated_half(pair, k % 2) * emulated_of_rows(x_at, k, column);
        }
    }
}
inline void wgmma_fence() {
}
inline void wgmma_commit() {
}
template <int LEFT> void wgmma_wait() {
}
inline void fence_products() {
}
inline void copy_commit() {
}
template <int LEFT> void copy_wait() {
}
inline float __expf(float x) {
    return expf(x);
}

inline int __popc(unsigned bits) {
    return __builtin_popcount(bits);
}
inline int __clzll(long long bits) {
    return bits ? __builtin_clzll((unsigned long long)bits) : 64;
}

#define __ldcg emulated_load
#define __ldcs emulated_load
#define __ldg emulated_load
template <class T> T emulated_load(const T *p) {
    return *p;
}
#define __stcg emulated_store
template <class T> void emulated_store(T *p, T value) {
    *p = value;
}
template <class T, class U> T atomicAdd(T *p, U value) {
    const T before = *p;
    *p += (T)value;
    return before;
}
inline int atomicMax(int *p, int value) {
    const int before = *p;
    *p = std::max(before, value);
    return before;
}

/* Compiled with -ffp-contract=off: each operation is rounded by itself. */
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline float __fadd_rn(float a, float b) {
    return a + b;
}
inline float __fsub_rn(float a, float b) {
    return a - b;
}
inline float __fdiv_rn(float a, float b) {
    return a / b;
}
inline float __fdividef(float a, float b) {
    return a / b;
}
inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
inline float __uint_as_float(unsigned bits) {
    return emulated_value<float>(bits);
}
inline unsigned __float_as_uint(float value) {
    return emulated_bits(value);
}
inline int min(int a, int b) {
    return a < b ? a : b;
}
inline int max(int a, int b) {
    return a > b ? a : b;
}

#define cudaLaunchKernelEx emulated_launch
template <class... A>
cudaError_t emulated_launch(const cudaLaunchConfig_t *c, void (*kernel)(A...), A... args) {
    struct call {
        void (*kernel)(A...);
        std::tuple<A...> args;
    };
    call x = {kernel, std::tuple<A...>(args...)};
    emulated_run(
        c->gridDim, (int)c->blockDim.x,
        [](void *arg) {
            call *y = (call *)arg;
            std::apply(y->kernel, y->args);
        },
        &x);
    return cudaSuccess;
}
#endif
