/* codes.cuh -- how the codes of packed weights lie in memory, and how kernels turn them into
 * numbers. A code is an unsigned number of 2 to 8 bits; the value of an element is (code - ZERO) *
 * scale + min.
 *
 * A unit is 128 elements of a row: four groups of 32 with a scale each. It is read by four lanes,
 * lane t has elements 4t to 4t + 3 and 16 + 4t to 16 + 4t + 3 of each group: with these a matrix
 * unit's 16 k are one half of one group, so that a scale may multiply the weights or their sum.
 *
 * The eight elements of a lane and group make four registers of two 16-bit numbers: e0 e1, e2 e3,
 * e4 e5, e6 e7. An f16 whose bits are 0x6400 | code is 1024 + code, without arithmetic. Where codes
 * are narrow, registers 1 and 3 take them four bits higher, which saves a shift: 1024 + 16 code.
 *
 * Words of a lane and group:
 *   nibbles  32 bits: register r takes bits 4r to 4r + 3, and those 16 above
 *   pairs    16 bits: register r takes bits 4r and 4r + 1, and the two above these
 *   bits     8 bits: register r takes bits 2r and 2r + 1
 *   bytes    64 bits, in order */
#ifndef CU_CODES_CUH
#define CU_CODES_CUH
#include <stdint.h>

/* Element j < 8 of lane t in its group of 32. */
__host__ __device__ __forceinline__ int lane_element(int t, int j) {
    if (j < 4)
        return 4 * t + j;
    return 12 + 4 * t + j;
}

/* Where a weight is read from: global memory, of which codes are read once and scales by several
 * lanes; or what lies in shared memory already. */
struct from_global {
    template <class V> static __device__ __forceinline__ V code(const V *p) {
        return __ldcs(p);
    }
    template <class V> static __device__ __forceinline__ V scale(const V *p) {
        return __ldg(p);
    }
};
struct from_shared {
    template <class V> static __device__ __forceinline__ V code(const V *p) {
        return *p;
    }
    template <class V> static __device__ __forceinline__ V scale(const V *p) {
        return *p;
    }
};

/* (x & mask) | bits in one instruction */
template <uint32_t MASK, uint32_t BITS> __device__ __forceinline__ uint32_t and_or(uint32_t x) {
#ifdef CU_EMULATED /* tests run this on a CPU */
    return (x & MASK) | BITS;
#else
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(x), "n"(MASK), "n"(BITS));
    return r;
#endif
}

/* Word i of four. */
__device__ __forceinline__ uint32_t word_of(uint4 v, int i) {
    if (i == 0)
        return v.x;
    if (i == 1)
        return v.y;
    if (i == 2)
        return v.z;
    return v.w;
}
/* The 16 bits of group g, in the low half; what is above is another group's. */
__device__ __forceinline__ uint32_t half_word(uint2 v, int g) {
    const uint32_t word = g < 2 ? v.x : v.y;
    return word >> 16 * (g % 2);
}

/* Four bytes of `low` and four of `high` as registers of 1024 + code. */
__device__ __forceinline__ void byte_halves(uint32_t low, uint32_t high, uint32_t *r) {
    const uint32_t bits = 0x64646464u;
    r[0] = __byte_perm(low, bits, 0x4140u);
    r[1] = __byte_perm(low, bits, 0x4342u);
    r[2] = __byte_perm(high, bits, 0x4140u);
    r[3] = __byte_perm(high, bits, 0x4342u);
}

/* Pairs of 16 bits as nibbles, single bits of 8 as nibbles: in the order of a word of nibbles. */
__device__ __forceinline__ uint32_t pairs_to_nibbles(uint32_t w) {
    const uint32_t first = w & 0x3333u;
    return first | (w << 14 & 0x33330000u);
}
__device__ __forceinline__ uint32_t bits_to_nibbles(uint32_t h) {
    h &= 0xffu;
    h = (h | h << 15) & 0x00550055u;
    h = (h | h << 4) & 0x05050505u;
    h = (h | h << 2) & 0x11111111u;
    return h;
}

/* Registers of a nibble word, as 1024 + code and 1024 + 16 code. */
__device__ __forceinline__ void nibble_halves(uint32_t q, uint32_t *r) {
    r[0] = and_or<0x000f000fu, 0x64006400u>(q);
    r[1] = and_or<0x00f000f0u, 0x64006400u>(q);
    r[2] = and_or<0x000f000fu, 0x64006400u>(q >> 8);
    r[3] = and_or<0x00f000f0u, 0x64006400u>(q >> 8);
}

/* Adds to codes in registers what stands above four bits: a nibble of `word` each. MASK: the bits
 * where those of registers 0 and 2 go. */
template <uint32_t MASK> __device__ __forceinline__ void add_above(uint32_t word, uint32_t *r) {
    const uint32_t up = word << 4;
    const uint32_t down = word >> 4;
    r[0] |= up & MASK;
    r[1] |= up & MASK << 4;
    r[2] |= down & MASK;
    r[3] |= down & MASK << 4;
}

/* ---- packing, at import: the words of a lane and group; code(j): of its element j ------------ */
template <class F> __device__ __forceinline__ uint32_t pack_nibbles(F code) {
    uint32_t w = 0;
    for (int j = 0; j < 8; j++) {
        const int at = 4 * (j / 2) + 16 * (j % 2);
        w |= (uint32_t)(code(j) & 15) << at;
    }
    return w;
}
template <class F> __device__ __forceinline__ uint16_t pack_pairs(F code) {
    uint32_t w = 0;
    for (int j = 0; j < 8; j++) {
        const int at = 4 * (j / 2) + 2 * (j % 2);
        w |= (uint32_t)(code(j) & 3) << at;
    }
    return (uint16_t)w;
}
template <class F> __device__ __forceinline__ uint8_t pack_bits(F code) {
    uint32_t w = 0;
    for (int j = 0; j < 8; j++)
        w |= (uint32_t)(code(j) & 1) << j;
    return (uint8_t)w;
}

/* ---- code formats ---------------------------------------------------------------------------- */
/* A code format has
 *   LOW, HIGH  bytes of a lane and group in planes 0 and 1
 *   ODD        registers 1 and 3 hold 16 times the code
 *   BASE       what registers hold beside the code: 1024, or 0
 *   load       what a lane reads of a unit: index = row * (ld / 32) + 4 * unit + t
 *   halves     registers of group g
 *   pack       at import; to: the index above, g the group in the unit
 */

struct codes2 {
    enum { LOW = 2, HIGH = 0, ODD = 1, BASE = 1024 };
    uint2 low;
    template <class R = from_global>
    __device__ __forceinline__ void load(const char *p0, const char *, int64_t index) {
        low = R::code((const uint2 *)p0 + index);
    }
    __device__ __forceinline__ void halves(int g, uint32_t *r) const {
        const uint32_t q = pairs_to_nibbles(half_word(low, g));
        nibble_halves(q, r);
    }
    template <class F>
    static __device__ __forceinline__ void pack(uint8_t *p0, uint8_t *, int64_t to, int g, F code) {
        ((uint16_t *)p0)[to * 4 + g] = pack_pairs(code);
    }
};

struct codes3 {
    enum { LOW = 2, HIGH = 1, ODD = 1, BASE = 1024 };
    uint2 low;
    uint32_t high;
    template <class R = from_global>
    __device__ __forceinline__ void load(const char *p0, const char *p1, int64_t index) {
        low = R::code((const uint2 *)p0 + index);
        high = R::code((const uint32_t *)p1 + index);
    }
    /* codes of group g as nibbles */
    __device__ __forceinline__ uint32_t nibbles(int g) const {
        const uint32_t q = half_word(low, g);
        const uint32_t third = bits_to_nibbles(high >> 8 * g);
        return pairs_to_nibbles(q) | third << 2;
    }
    __device__ __forceinline__ void halves(int g, uint32_t *r) const {
        nibble_halves(nibbles(g), r);
    }
    template <class F>
    static __device__ __forceinline__ void pack(uint8_t *p0, uint8_t *p1, int64_t to, int g,
                                                F code) {
        ((uint16_t *)p0)[to * 4 + g] = pack_pairs(code);
        auto third = [&](int j) { return code(j) >> 2; };
        p1[to * 4 + g] = pack_bits(third);
    }
};

struct codes4 {
    enum { LOW = 4, HIGH = 0, ODD = 1, BASE = 1024 };
    uint4 low;
    template <class R = from_global>
    __device__ __forceinline__ void load(const char *p0, const char *, int64_t index) {
        low = R::code((const uint4 *)p0 + index);
    }
    __device__ __forceinline__ void halves(int g, uint32_t *r) const {
        nibble_halves(word_of(low, g), r);
    }
    template <class F>
    static __device__ __forceinline__ void pack(uint8_t *p0, uint8_t *, int64_t to, int g, F code) {
        ((uint32_t *)p0)[to * 4 + g] = pack_nibbles(code);
    }
};

struct codes5 {
    enum { LOW = 4, HIGH = 1, ODD = 1, BASE = 1024 };
    codes4 q;
    uint32_t high;
    template <class R = from_global>
    __device__ __forceinline__ void load(const char *p0, const char *p1, int64_t index) {
        q.template load<R>(p0, NULL, index);
        high = R::code((const uint32_t *)p1 + index);
    }
    __device__ __forceinline__ void halves(int g, uint32_t *r) const {
        const uint32_t fifth = bits_to_nibbles(high >> 8 * g);
        q.halves(g, r);
        add_above<0x00100010u>(fifth, r);
    }
    template <class F>
    static __device__ __forceinline__ void pack(uint8_t *p0, uint8_t *p1, int64_t to, int g,
                                                F code) {
        codes4::pack(p0, NULL, to, g, code);
        auto fifth = [&](int j) { return code(j) >> 4; };
        p1[to * 4 + g] = pack_bits(fifth);
    }
};

struct codes6 {
    enum { LOW = 4, HIGH = 2, ODD = 1, BASE = 1024 };
    codes4 q;
    uint2 high;
    template <class R = from_global>
    __device__ __forceinline__ void load(const char *p0, const char *p1, int64_t index) {
        q.template load<R>(p0, NULL, index);
        high = R::code((const uint2 *)p1 + index);
    }
    __device__ __forceinline__ void halves(int g, uint32_t *r) const {
        const uint32_t upper = pairs_to_nibbles(half_word(high, g));
        q.halves(g, r);
        add_above<0x00300030u>(upper, r);
    }
    template <class F>
    static __device__ __forceinline__ void pack(uint8_t *p0, uint8_t *p1, int64_t to, int g,
                                                F code) {
        codes4::pack(p0, NULL, to, g, code);
        auto upper = [&](int j) { return code(j) >> 4; };
        ((uint16_t *)p1)[to * 4 + g] = pack_pairs(upper);
    }
};

struct codes8 {
    enum { LOW = 8, HIGH = 0, ODD = 0, BASE = 1024 };
    uint4 low[2];
    template <class R = from_global>
    __device__ __forceinline__ void load(const char *p0, const char *, int64_t index) {
        low[0] = R::code((const uint4 *)p0 + 2 * index);
        low[1] = R::code((const uint4 *)p0 + 2 * index + 1);
    }
    __device__ __forceinline__ void halves(int g, uint32_t *r) const {
        const uint4 &q = low[g / 2];
        const uint32_t a = g % 2 ? q.z : q.x;
        const uint32_t b = g % 2 ? q.w : q.y;
        byte_halves(a, b, r);
    }
    template <class F>
    static __device__ __forceinline__ void pack(uint8_t *p0, uint8_t *, int64_t to, int g, F code) {
        for (int j = 0; j < 8; j++)
            p0[to * 32 + 8 * g + j] = (uint8_t)code(j);
    }
};

/* A nibble counts as TABLE[nibble]; TABLE::word(i): four entries, bytes. prmt selects by three bits
 * of a nibble, once from each half of the table, and once more by the fourth. */
template <class TABLE> struct codes_table {
    enum { LOW = 4, HIGH = 0, ODD = 0, BASE = 1024 };
    uint4 low;
    template <class R = from_global>
    __device__ __forceinline__ void load(const char *p0, const char *, int64_t index) {
        low = R::code((const uint4 *)p0 + index);
    }
    static __device__ __forceinline__ uint32_t look_up(uint32_t q) {
        const uint32_t index = q & 0x7777u;
        const uint32_t half = 0x3210u | (q & 0x8888u) >> 1;
        const uint32_t a = __byte_perm(TABLE::word(0), TABLE::word(1), index);
        const uint32_t b = __byte_perm(TABLE::word(2), TABLE::word(3), index);
        return __byte_perm(a, b, half);
    }
    /* here register r takes nibbles 2r and 2r + 1 of the word */
    __device__ __forceinline__ void halves(int g, uint32_t *r) const {
        const uint32_t q = word_of(low, g);
        const uint32_t a = look_up(q);
        const uint32_t b = look_up(q >> 16);
        byte_halves(a, b, r);
    }
    template <class F>
    static __device__ __forceinline__ void pack(uint8_t *p0, uint8_t *, int64_t to, int g, F code) {
        uint32_t w = 0;
        for (int j = 0; j < 8; j++)
            w |= (uint32_t)(code(j) & 15) << 4 * j;
        ((uint32_t *)p0)[to * 4 + g] = w;
    }
};

/* E2M1: sign, two bits of exponent, one of mantissa, as bits 15, 11, 10, 9 of an f16 that is 2^-14
 * of the value, whatever the exponent. Of the 16 bits of a half word register 0 takes these bits as
 * they lie, register 1 those three below, 2 and 3 what is left. */
struct codes_e2m1 {
    enum { LOW = 4, HIGH = 0, ODD = 0, BASE = 0 };
    uint4 low;
    template <class R = from_global>
    __device__ __forceinline__ void load(const char *p0, const char *, int64_t index) {
        low = R::code((const uint4 *)p0 + index);
    }
    __device__ __forceinline__ void halves(int g, uint32_t *r) const {
        const uint32_t q = word_of(low, g);
        r[0] = q & 0x8e008e00u;
        r[1] = q << 3 & 0x8e008e00u;
        r[2] = (q << 1 & 0x80008000u) | (q << 6 & 0x0e000e00u);
        r[3] = (q << 2 & 0x80008000u) | (q << 9 & 0x0e000e00u);
    }
    template <class F>
    static __device__ __forceinline__ void pack(uint8_t *p0, uint8_t *, int64_t to, int g, F code) {
        uint32_t w = 0;
        for (int j = 0; j < 8; j++) {
            const uint32_t sign = (uint32_t)code(j) >> 3 & 1;
            const uint32_t rest = (uint32_t)code(j) & 7;
            const int r = j / 2;
            const int sign_at = (0xdecf >> 4 * r) & 15; /* 15, 12, 14, 13 */
            const int rest_at = 9 - 3 * r;
            const uint32_t half = sign << sign_at | rest << rest_at;
            w |= half << 16 * (j % 2);
        }
        ((uint32_t *)p0)[to * 4 + g] = w;
    }
};
#endif
