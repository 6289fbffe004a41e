/* dtype.c -- plugin.h's table of data types, asked by id and by name. */
#include "base/base.h"

#define ROW(name, id, elems, bytes, planes) {{id, elems, bytes, planes}, #name},
static const struct {
    mn_dtype type;
    const char *name;
} dtypes[] = {MN_DTYPES(ROW)};
#undef ROW

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

bool mn_dtype_by_id(uint32_t id, mn_dtype *out) {
    for (size_t i = 0; i < MN_COUNT(dtypes); i++)
        if (dtypes[i].type.id == id)
            return *out = dtypes[i].type, true;
    return false;
}

bool mn_dtype_by_name(mn_str name, mn_dtype *out) {
    for (size_t i = 0; i < MN_COUNT(dtypes); i++) {
        mn_str row = mn_str_of(dtypes[i].name);
        size_t same = 0;
        while (same < name.len && same < row.len && lower(name.ptr[same]) == lower(row.ptr[same]))
            same++;
        if (same == name.len && same == row.len)
            return *out = dtypes[i].type, true;
    }
    return false;
}

/* A switch, so that the strings are constants: the table's names are in upper case. */
const char *mn_dtype_name(uint32_t id) {
    switch (id) {
    case MN_F32:
        return "f32";
    case MN_F16:
        return "f16";
    case MN_BF16:
        return "bf16";
    case MN_F64:
        return "f64";
    case MN_I8:
        return "i8";
    case MN_I16:
        return "i16";
    case MN_I32:
        return "i32";
    case MN_I64:
        return "i64";
    case MN_U8:
        return "u8";
    case MN_F8_E4M3:
        return "f8_e4m3";
    case MN_F8_E5M2:
        return "f8_e5m2";
    case MN_F8_E4M3_128:
        return "f8_e4m3_128";
    case MN_Q4_0:
        return "q4_0";
    case MN_Q4_1:
        return "q4_1";
    case MN_Q5_0:
        return "q5_0";
    case MN_Q5_1:
        return "q5_1";
    case MN_Q8_0:
        return "q8_0";
    case MN_Q8_1:
        return "q8_1";
    case MN_Q2_K:
        return "q2_k";
    case MN_Q3_K:
        return "q3_k";
    case MN_Q4_K:
        return "q4_k";
    case MN_Q5_K:
        return "q5_k";
    case MN_Q6_K:
        return "q6_k";
    case MN_Q8_K:
        return "q8_k";
    case MN_IQ4_NL:
        return "iq4_nl";
    case MN_IQ4_XS:
        return "iq4_xs";
    case MN_MXFP4:
        return "mxfp4";
    case MN_MXFP4_SPLIT:
        return "mxfp4_split";
    case MN_MLX2_32:
        return "mlx2_32";
    case MN_MLX2_64:
        return "mlx2_64";
    case MN_MLX2_128:
        return "mlx2_128";
    case MN_MLX3_32:
        return "mlx3_32";
    case MN_MLX3_64:
        return "mlx3_64";
    case MN_MLX3_128:
        return "mlx3_128";
    case MN_MLX4_32:
        return "mlx4_32";
    case MN_MLX4_64:
        return "mlx4_64";
    case MN_MLX4_128:
        return "mlx4_128";
    case MN_MLX6_32:
        return "mlx6_32";
    case MN_MLX6_64:
        return "mlx6_64";
    case MN_MLX6_128:
        return "mlx6_128";
    case MN_MLX8_32:
        return "mlx8_32";
    case MN_MLX8_64:
        return "mlx8_64";
    case MN_MLX8_128:
        return "mlx8_128";
    default:
        return "?";
    }
}

bool mn_dtype_bytes(mn_dtype t, uint64_t n_elements, uint64_t *bytes) {
    if (!t.block_elems || n_elements % t.block_elems)
        return false;
    return mn_mul_u64(n_elements / t.block_elems, t.block_bytes, bytes);
}
