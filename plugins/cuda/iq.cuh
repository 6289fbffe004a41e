/* iq.cuh -- GGUF's IQ1, IQ2 and IQ3: an index into a codebook stands for eight or four elements,
 * and signs lie apart. A lane has four and four elements of two entries of a codebook; an index of
 * each with the signs would be as many bits as the elements' own codes. So import looks the entries
 * up, and a code is kept for each element: 3 bits (IQ2, IQ1_M), 2 (IQ1_S), 4 (IQ3). */
#ifndef CU_IQ_CUH
#define CU_IQ_CUH
#include "floats.cuh"
#include "grids.h"

#define IQ_ENTRY(entry) entry,

/* The values that codes stand for, 128 added; word(i): four of them, bytes. */
template <int... VALUES> struct table_of {
    static __device__ __forceinline__ constexpr uint32_t word(int i) {
        constexpr int values[] = {VALUES...};
        uint32_t w = 0;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int v = values[4 * i + k] + 128;
            w |= (uint32_t)v << 8 * k;
        }
        return w;
    }
};

/* 3 bits, which count as TABLE[code]. Elements 0 to 3 of a lane in the low half of the word of
 * nibbles, so that a half selects four entries at once. */
template <class TABLE> struct codes_table3 : codes3 {
    enum { ODD = 0 };
    static __device__ __forceinline__ uint32_t look_up(uint32_t four) {
        return __byte_perm(TABLE::word(0), TABLE::word(1), four);
    }
    __device__ __forceinline__ void halves(int g, uint32_t *r) const {
        const uint32_t index = nibbles(g);
        const uint32_t a = look_up(index);
        const uint32_t b = look_up(index >> 16);
        byte_halves(a, b, r);
    }
    template <class F>
    static __device__ __forceinline__ void pack(uint8_t *p0, uint8_t *p1, int64_t to, int g,
                                                F code) {
        auto in_halves = [&](int j) {
            const int half = j % 2;
            return code(j / 2 + 4 * half);
        };
        codes3::pack(p0, p1, to, g, in_halves);
    }
};

/* Eight signs of which seven are stored: the number of negative ones is even. */
__device__ __forceinline__ uint32_t with_eighth_sign(uint32_t seven) {
    seven &= 127;
    const uint32_t odd = __popc(seven) & 1;
    return seven | odd << 7;
}
#endif
