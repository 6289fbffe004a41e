/* types.c -- the tensor types of the GGUF format. */
#include "gguf.h"

static const struct {
    uint32_t ggml, id;
} types[] = {
    {0, MN_F32},   {1, MN_F16},   {2, MN_Q4_0},    {3, MN_Q4_1},    {6, MN_Q5_0},   {7, MN_Q5_1},
    {8, MN_Q8_0},  {9, MN_Q8_1},  {10, MN_Q2_K},   {11, MN_Q3_K},   {12, MN_Q4_K},  {13, MN_Q5_K},
    {14, MN_Q6_K}, {15, MN_Q8_K}, {20, MN_IQ4_NL}, {23, MN_IQ4_XS}, {24, MN_I8},    {25, MN_I16},
    {26, MN_I32},  {27, MN_I64},  {28, MN_F64},    {30, MN_BF16},   {39, MN_MXFP4},
};

bool gguf_dtype(uint32_t ggml_type, mn_dtype *out) {
    for (size_t i = 0; i < MN_COUNT(types); i++)
        if (types[i].ggml == ggml_type) return mn_dtype_by_id(types[i].id, out);
    return false;
}
