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
        if (types[i].ggml == ggml_type)
            return mn_dtype_by_id(types[i].id, out);
    return false;
}

const char gguf_known_types[] =
    "F64 F32 F16 BF16 I8 to I64, Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q8_1, Q2_K to Q6_K Q8_K, IQ4_NL "
    "IQ4_XS, MXFP4";

const char *gguf_other_type(uint32_t ggml_type) {
    static const struct {
        uint32_t ggml;
        const char *name;
    } others[] = {
        {4, "Q4_2"},        {5, "Q4_3"},        {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
        {19, "IQ1_S"},      {21, "IQ3_S"},      {22, "IQ2_S"},   {29, "IQ1_M"},  {31, "Q4_0_4_4"},
        {32, "Q4_0_4_8"},   {33, "Q4_0_8_8"},   {34, "TQ1_0"},   {35, "TQ2_0"},  {36, "IQ4_NL_4_4"},
        {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}, {40, "NVFP4"},   {41, "Q1_0"},   {42, "Q2_0"},
    };
    for (size_t i = 0; i < MN_COUNT(others); i++)
        if (others[i].ggml == ggml_type)
            return others[i].name;
    return "unknown";
}
