/* codes.cuh -- how the codes of 32 elements lie in memory, and how kernels turn them into numbers.
 * A code is an unsigned number of 2 to 8 bits; the value of an element is (code - ZERO) * scale +
 * min, or table[code] in place of code.
 *
 * Order, chosen so that four elements in a row become the four bytes of a word with one shift and
 * one mask. Of the 32 elements of a group, word k of the result holds elements 4k to 4k + 3:
 *   nibbles  16 bytes: byte i holds element i in its low half, element 16 + i in its high one
 *   pairs    8 bytes (2 bits): byte j of word h has element 16h + 4k + j at bit 2k
 *   bits     4 bytes (1 bit): byte j has element 4k + j at bit k
 *   bytes    32 bytes, in order */
#ifndef CU_CODES_CUH
#define CU_CODES_CUH
#include <stdint.h>

/* ---- packing, at import: code of each element -> planes --------------------------------------- */
template <class F> __device__ __forceinline__ void pack_nibbles(uint8_t *to, F code) {
    for (int i = 0; i < 16; i++)
        to[i] = (uint8_t)((code(i) & 15) | (code(16 + i) & 15) << 4);
}
template <class F> __device__ __forceinline__ void pack_pairs(uint8_t *to, F code) {
    for (int h = 0; h < 2; h++)
        for (int j = 0; j < 4; j++) {
            int byte = 0;
            for (int k = 0; k < 4; k++)
                byte |= (code(16 * h + 4 * k + j) & 3) << 2 * k;
            to[4 * h + j] = (uint8_t)byte;
        }
}
template <class F> __device__ __forceinline__ void pack_bits(uint8_t *to, F code) {
    for (int j = 0; j < 4; j++) {
        int byte = 0;
        for (int k = 0; k < 8; k++)
            byte |= (code(4 * k + j) & 1) << k;
        to[j] = (uint8_t)byte;
    }
}

/* ---- code formats: what a lane loads, and the bytes that it becomes ---------------------------- */
/* LOW and HIGH: bytes of 32 elements in plane 0 and plane 1. bytes: w[8], four codes in each. */
struct codes2 {
    enum { LOW = 8, HIGH = 0 };
    uint2 low;
    __device__ __forceinline__ void load(const char *p0, const char *, int64_t group) {
        low = __ldcs((const uint2 *)p0 + group);
    }
    __device__ __forceinline__ void bytes(uint32_t *w) const {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            w[k] = low.x >> 2 * k & 0x03030303u;
            w[4 + k] = low.y >> 2 * k & 0x03030303u;
        }
    }
    template <class F> static __device__ __forceinline__ void pack(uint8_t *p0, uint8_t *, F code) {
        pack_pairs(p0, code);
    }
};

struct codes3 {
    enum { LOW = 8, HIGH = 4 };
    uint2 low;
    uint32_t high;
    __device__ __forceinline__ void load(const char *p0, const char *p1, int64_t group) {
        low = __ldcs((const uint2 *)p0 + group);
        high = __ldcs((const uint32_t *)p1 + group);
    }
    __device__ __forceinline__ void bytes(uint32_t *w) const {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            w[k] = (low.x >> 2 * k & 0x03030303u) | (high >> k & 0x01010101u) << 2;
            w[4 + k] = (low.y >> 2 * k & 0x03030303u) | (high >> (4 + k) & 0x01010101u) << 2;
        }
    }
    template <class F>
    static __device__ __forceinline__ void pack(uint8_t *p0, uint8_t *p1, F code) {
        pack_pairs(p0, code);
        pack_bits(p1, [&](int i) { return code(i) >> 2; });
    }
};

__device__ __forceinline__ void nibble_bytes(uint4 q, uint32_t *w) {
    const uint32_t in[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        w[k] = in[k] & 0x0f0f0f0fu;
        w[4 + k] = in[k] >> 4 & 0x0f0f0f0fu;
    }
}

struct codes4 {
    enum { LOW = 16, HIGH = 0 };
    uint4 low;
    __device__ __forceinline__ void load(const char *p0, const char *, int64_t group) {
        low = __ldcs((const uint4 *)p0 + group);
    }
    __device__ __forceinline__ void bytes(uint32_t *w) const {
        nibble_bytes(low, w);
    }
    template <class F> static __device__ __forceinline__ void pack(uint8_t *p0, uint8_t *, F code) {
        pack_nibbles(p0, code);
    }
};

/* A nibble counts as table[nibble]; TABLE::word(i): four entries. */
template <class TABLE> struct codes_table {
    enum { LOW = 16, HIGH = 0 };
    uint4 low;
    __device__ __forceinline__ void load(const char *p0, const char *, int64_t group) {
        low = __ldcs((const uint4 *)p0 + group);
    }
    /* Entries of the four nibbles in the low half of q: prmt selects by three bits of a nibble, once
     * from each half of the table, and once more by the fourth. */
    static __device__ __forceinline__ uint32_t look_up(uint32_t q) {
        const uint32_t index = q & 0x7777u, half = 0x3210u | (q & 0x8888u) >> 1;
        const uint32_t a = __byte_perm(TABLE::word(0), TABLE::word(1), index);
        const uint32_t b = __byte_perm(TABLE::word(2), TABLE::word(3), index);
        return __byte_perm(a, b, half);
    }
    __device__ __forceinline__ void bytes(uint32_t *w) const {
        const uint32_t in[4] = {low.x, low.y, low.z, low.w};
#pragma unroll
        for (int k = 0; k < 4; k++) { /* elements 0 16 1 17 | 2 18 3 19 of the word */
            const uint32_t a = look_up(in[k]), b = look_up(in[k] >> 16);
            w[k] = __byte_perm(a, b, 0x6420);
            w[4 + k] = __byte_perm(a, b, 0x7531);
        }
    }
    template <class F> static __device__ __forceinline__ void pack(uint8_t *p0, uint8_t *, F code) {
        pack_nibbles(p0, code);
    }
};

struct codes5 {
    enum { LOW = 16, HIGH = 4 };
    uint4 low;
    uint32_t high;
    __device__ __forceinline__ void load(const char *p0, const char *p1, int64_t group) {
        low = __ldcs((const uint4 *)p0 + group);
        high = __ldcs((const uint32_t *)p1 + group);
    }
    __device__ __forceinline__ void bytes(uint32_t *w) const {
        nibble_bytes(low, w);
#pragma unroll
        for (int k = 0; k < 8; k++)
            w[k] |= (high >> k & 0x01010101u) << 4;
    }
    template <class F>
    static __device__ __forceinline__ void pack(uint8_t *p0, uint8_t *p1, F code) {
        pack_nibbles(p0, code);
        pack_bits(p1, [&](int i) { return code(i) >> 4; });
    }
};

struct codes6 {
    enum { LOW = 16, HIGH = 8 };
    uint4 low;
    uint2 high;
    __device__ __forceinline__ void load(const char *p0, const char *p1, int64_t group) {
        low = __ldcs((const uint4 *)p0 + group);
        high = __ldcs((const uint2 *)p1 + group);
    }
    __device__ __forceinline__ void bytes(uint32_t *w) const {
        nibble_bytes(low, w);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            w[k] |= (high.x >> 2 * k & 0x03030303u) << 4;
            w[4 + k] |= (high.y >> 2 * k & 0x03030303u) << 4;
        }
    }
    template <class F>
    static __device__ __forceinline__ void pack(uint8_t *p0, uint8_t *p1, F code) {
        pack_nibbles(p0, code);
        pack_pairs(p1, [&](int i) { return code(i) >> 4; });
    }
};

struct codes8 {
    enum { LOW = 32, HIGH = 0 };
    uint4 low[2];
    __device__ __forceinline__ void load(const char *p0, const char *, int64_t group) {
        low[0] = __ldcs((const uint4 *)p0 + 2 * group);
        low[1] = __ldcs((const uint4 *)p0 + 2 * group + 1);
    }
    __device__ __forceinline__ void bytes(uint32_t *w) const {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            w[4 * h] = low[h].x;
            w[4 * h + 1] = low[h].y;
            w[4 * h + 2] = low[h].z;
            w[4 * h + 3] = low[h].w;
        }
    }
    template <class F> static __device__ __forceinline__ void pack(uint8_t *p0, uint8_t *, F code) {
        for (int i = 0; i < 32; i++)
            p0[i] = (uint8_t)code(i);
    }
};
#endif
