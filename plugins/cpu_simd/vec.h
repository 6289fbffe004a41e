/* vec.h -- the vocabulary of an instruction set, which bodies (rows_*.c) are written in. A body is
 * compiled once for each instruction set that meson.build names for it, and includes this file
 * alone. The build says which instruction set that is: VEC_ISA, the last part of the names that
 * the object exports, and VEC_FILE, the header that spells the vocabulary. Several instruction
 * sets may share a header, and then differ by the compiler's flags.
 *
 * All functions are inlined, pure, and need no alignment above a byte's. What a header has:
 *
 * 1. Floats, in every header.
 *   VF                      VL floats in a register; VL divides 32
 *   MR, NR                  rows of x and of weights whose VF sums the registers have room for
 *   v_load(p), v_store(p, v), v_set1(x)
 *   v_add, v_sub, v_mul, v_div(a, b), v_fma(a, b, c) = a b + c, v_abs(a)
 *   v_min, v_max(a, b)      b where either is a NaN
 *   v_sel_lt(a, b, x, y)    of each lane a < b ? x : y
 *   v_copysign(a, s)        the size of a with the sign of s
 *   v_sum(a), v_top(a)      of all lanes: the sum, in the order of its header, and the largest
 *   v_round(a)              to whole numbers, nearest even, |a| < 2^22
 *   v_pow2(n)               2^n of whole n from -126 to 127
 *   v_f16, v_bf16, v_e4m3, v_e5m2(p)  VL values of that type at p
 *   v_store_f16(p, v)       nearest even
 *   v_of(u, e)              bytes [e, e + VL) of a VB as floats, which have a sign
 *   v_table16(table, p)     entries of 16 floats, of which nibbles from p on are the numbers: the
 *                           high one of a byte, then its low one
 *   v_f16_1(p), v_f16_2(p, a, b)      one f16; two in a row
 *   v_widen8(bytes, less, by, d)      d[i] = by * (byte i - less), i < 8
 *   v_prefetch(p)
 *   Optional: V_SUMS: v_sums(a) is v_sum of VL registers, each in its lane.
 *
 * 2. Bytes, in every header: VB holds 32 without a sign; weight types (types_*.h) are taken apart
 *    with them.
 *   vb_load(p)
 *   vb_halves(p)            16 bytes: their low nibbles, then their high ones
 *   vb_pairs(p)             16 bytes: low and high nibble of each
 *   vb_stream(p, bits)      32 fields of 2, 3 or 6 bits; bytes_plain.h has it for those without
 *                           a better way
 *   vb_field(v, shift, mask)  each byte moved down by shift bits, up where that is negative, and
 *                           the bits of mask, which must come from the same byte
 *   vb_or(a, b), vb_less(v, n) modulo 256, vb_flip(v) the upper bit
 *   vb_bits(bits, to)       byte i: `to` if bit i is set, else 0
 *   vb_lookup(v, table)     v < 16
 *   vb_words(a, b, c, d)    four u64
 *   vb_mirror(v, bits, top) byte i: top less it if bit i is set, else itself
 *   vb_ternary(v, by)       3 (v by modulo 256) >> 8
 *   Optional: V_SCALES8: v_scales8(p, dtype, shift, d), v_e8m0_half8(bytes, d), eight scales at
 *   once (bytes_avx2.h).
 *
 * 3. Products of 32 bytes with 32 of x, for rows_dot8.c, in every header that is built for it.
 *   VX, vx_load(x, sum4, off)  32 columns of x; sum4: their sums by four, off: how much too large
 *                           the weights' bytes are
 *   vx_fold(acc, u, x, d, group, off)  acc + d (u - off) . x; d: the scale, or two of groups of 16
 *
 * 4. Panels of bytes, for rows_panels8.c and rows_panels8_wide.c: panel.h says what a header has.
 *
 * 5. Lanes, of weight rows that lie side by side (lanes.h), for rows_lanes8.c. VEC_LANES.
 *   LB, LI                  4 VL bytes; VL whole numbers of 32 bits
 *   l_load(p), l_field(v, shift, mask), l_or(a, b)   as those of VB
 *   l_u8(p), l_i8(p)        VL bytes as floats; l_float(i) whole numbers as floats
 *   l_spread(p)             four bytes at p, in every lane
 *   l_dot(first, u, x, n, fit)  first + the sum of u[i] times x[i]; of sums of two products `fit`
 *                           fit into 16 bits
 *
 * 6. Tiles of 16 rows of 64 bytes: tiles.h, and amx.h for processors that multiply them.
 *
 * Exponentials (vec_math.h) and the weight types are spelled in 1 and 2, so that a body has them
 * on every instruction set. */
#ifndef MNK_VEC_H
#define MNK_VEC_H
#include "rows.h"

#define INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))

#ifndef VEC_ISA /* tools that compile a body without the build */
#define VEC_ISA generic
#define VEC_FILE "vec_generic.h"
#endif
#define VEC_PASTE_(name, isa) name##_##isa
#define VEC_PASTE(name, isa) VEC_PASTE_(name, isa)
#define VEC_TEXT_(isa) #isa
#define VEC_TEXT(isa) VEC_TEXT_(isa)
/* The name of this instruction set, and that of an object that it exports. */
#define V_NAME VEC_TEXT(VEC_ISA)
#define V_ID(name) VEC_PASTE(name, VEC_ISA)

#include VEC_FILE
#include "vec_math.h"
#include "types_block32.h"
#include "types_k.h"
#include "types_iq.h"
#include "types_planes.h"
#ifdef VEC_LANES
#include "lanes_types.h"
#endif

/* A type of blocks as bodies pass it on, constant after inlining: types.h says what it has. */
typedef struct {
    int64_t elems;
    int64_t bytes;
    int group;
    int off;
    int min;
    void (*scales)(const mnc_weight *, const mnk_at *, int64_t b, float *d, float *m);
    VB (*u)(const uint8_t *p, int j);
} a8_type;
#endif
