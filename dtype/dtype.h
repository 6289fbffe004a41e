/* dtype.h -- descriptions of data types: the one table that the runtime, the loaders, the tools and
 * the CPU plugins ask (dtype.def beside MN_DTYPES of plugin.h), and the dequantiser that the plugin
 * `reference` and `minerva convert` share. Uses plugin.h and the C library alone; a static library
 * with hidden symbols, linked into each. Plain data and pure functions: any thread. */
#ifndef MN_DTYPE_H
#define MN_DTYPE_H
#include <minerva/plugin.h>
#include <stdbool.h>

/* ---- dtype.c: the table ---------------------------------------------------------------------- */
bool mn_dtype_by_id(uint32_t id, mn_dtype *out);
bool mn_dtype_by_name(mn_str name, mn_dtype *out); /* case-insensitive: "q8_0" */
const char *mn_dtype_name(uint32_t id);            /* lower case; "?" if unknown */
/* The id of row i, MN_DTYPE_NONE past the last one. */
uint32_t mn_dtype_at(uint32_t i);
/* Bytes of n_elements of the type in its DATA plane; false = not a multiple of the block, or
 * overflow. */
bool mn_dtype_bytes(mn_dtype t, uint64_t n_elements, uint64_t *bytes);
/* Floats and quantised types, which a matrix may be stored in; false: integers, unknown ids. */
bool mn_dtype_is_weight(uint32_t id);
/* What the address of a block must be a multiple of where a weight is used in place; 1 if
 * unknown. */
uint32_t mn_dtype_align(uint32_t id);
/* Where a block of the type holds its f16 scale and its second one or its minimum; -1: nowhere. */
void mn_dtype_halves(uint32_t id, int32_t at[2]);
/* The numbers of GGUF files; false: no such type on the other side. */
bool mn_dtype_by_ggml(uint32_t ggml, mn_dtype *out);
bool mn_dtype_ggml(uint32_t id, uint32_t *ggml);

/* How the values of one plane lie over the rows of a matrix. */
typedef struct {
    uint32_t kind;  /* MN_PLANE_* */
    uint32_t dtype; /* of its values; of the ones that may vary (is_float) the usual one */
    /* rows that share a row of values: 1, 128, ...; 0: one row of values for all rows */
    uint32_t rows;
    bool by_block; /* a value per block of the DATA plane; else one for the whole row */
    bool is_float; /* F32, F16 and BF16 are equally good */
    bool optional; /* the plane may be left out: the values count as 1 */
    /* beside by_block: a value per column instead; some values, of which PICK says one for each
     * column: at most one per block, unless columns were left out */
    bool by_column;
    bool picked;
} mn_plane_spec;
/* Plane i of a type: 0 is DATA, then in the order in which planes stand in mn_weight_src and
 * mn_tensor_info. false: the type has no such plane. One that is optional counts here and not in
 * mn_dtype.n_planes. */
bool mn_dtype_plane(uint32_t id, uint32_t i, mn_plane_spec *out);
/* Values of the plane in a row of n elements; of a picked one at most. */
int64_t mn_plane_values(const mn_plane_spec *spec, mn_dtype t, int64_t n);
/* True if values of plane_dtype may stand in that plane. */
bool mn_plane_takes(const mn_plane_spec *spec, uint32_t plane_dtype);

/* ---- dequant*.c: rows as f32 ----------------------------------------------------------------- */
/* One row in one plane: block b's values begin at `at` + b * step. at NULL: there is no such
 * plane. */
typedef struct {
    const uint8_t *at;
    int64_t step;   /* bytes; 0: one value for the whole row */
    uint32_t dtype; /* of the values */
} mn_plane_row;
/* A row of a weight. plane[kind - 1] for each MN_PLANE_* kind; plane[0], DATA, is always there. */
#define MN_PLANE_KINDS 5
typedef struct {
    mn_dtype dtype;
    mn_plane_row plane[MN_PLANE_KINDS];
} mn_stored_row;

bool mn_dequant_has(uint32_t dtype);
/* The n values of the row (n: whole blocks; the type is one that mn_dequant_has). Products and sums
 * are exact in f32 where they fit, else rounded once from double. */
void mn_dequant_row(const mn_stored_row *row, int64_t n, float *out);

/* ---- cached.c: rows of a KV cache, F32, F16 or Q8_0 ------------------------------------------ */
/* A row of n elements; the last block of Q8_0 is filled with zeros. A block with a NaN or an
 * infinity becomes NaN. */
void mn_cached_put(uint32_t dtype, const float *x, int64_t n, uint8_t *to);
void mn_cached_get(uint32_t dtype, const uint8_t *from, int64_t n, float *x);

/* Pieces of the above, for those that convert codes. */
float mn_f16_to_f32(uint16_t h);
uint16_t mn_f32_to_f16(float f); /* nearest even */
float mn_bf16_to_f32(uint16_t h);
float mn_e2m1_to_f32(uint32_t nibble); /* OCP MX 1.0: sign, 2 exponent bits, 1 mantissa bit */
float mn_e8m0_to_f32(uint8_t e);       /* 2^(e - 127); 255 is NaN */
float mn_e4m3_to_f32(uint8_t b);       /* OCP FP8, finite form: no infinities, 0x7f is NaN */
/* One value of a plane beside DATA: F32, F16, BF16, F8_E4M3, U8 (E8M0). */
float mn_plane_value(uint32_t dtype, const uint8_t *p);
float mn_ue4m3_to_f32(uint8_t b);     /* GGUF's E4M3 without sign: 0x7f is 0, 0xff is 480 */
uint32_t mn_mlx_bits(uint32_t dtype); /* of MLXb_g; 0 = another type */
/* Element i of a little-endian stream of values of `bits` bits. */
uint32_t mn_bit_stream(const uint8_t *p, int64_t i, uint32_t bits);
extern const int8_t mn_iq4_values[16];   /* of IQ4_NL and IQ4_XS, by code */
extern const int8_t mn_e2m1_doubled[16]; /* E2M1, twice the value */
extern const float mn_nf4_values[16];    /* QLoRA's NormalFloat, by code */
extern const float mn_fp4_values[16];    /* bitsandbytes' FP4, by code */
/* Codebooks of the IQ types, packed; grids.h says how. */
extern const uint16_t mn_grid_iq2_xxs[256];
extern const uint16_t mn_grid_iq2_xs[512];
extern const uint16_t mn_grid_iq2_s[1024];
extern const uint16_t mn_grid_iq3_xxs[256];
extern const uint16_t mn_grid_iq3_s[512];
extern const uint16_t mn_grid_iq1[2048]; /* IQ1_S, IQ1_M */

#endif
