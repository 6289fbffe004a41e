/* types.c -- what --type may say: types and mixes of types, with GGUF's general.file_type for each
 * (llama.h of llama.cpp, which the specification names). */
#include "convert/convert.h"
#include <strings.h>

static const mn_convert_type kinds[] = {
    {"f32", MN_F32, MN_MIX_NONE, 0},          {"f16", MN_F16, MN_MIX_NONE, 1},
    {"bf16", MN_BF16, MN_MIX_NONE, 32},       {"q8_0", MN_Q8_0, MN_MIX_NONE, 7},
    {"q4_0", MN_Q4_0, MN_MIX_NONE, 2},        {"q4_1", MN_Q4_1, MN_MIX_NONE, 3},
    {"q5_0", MN_Q5_0, MN_MIX_NONE, 8},        {"q5_1", MN_Q5_1, MN_MIX_NONE, 9},
    {"q3_k", MN_Q3_K, MN_MIX_NONE, 11},       {"q4_k", MN_Q4_K, MN_MIX_NONE, 14},
    {"q5_k", MN_Q5_K, MN_MIX_NONE, 16},       {"q6_k", MN_Q6_K, MN_MIX_NONE, 18},
    {"iq4_nl", MN_IQ4_NL, MN_MIX_NONE, 25},   {"iq4_xs", MN_IQ4_XS, MN_MIX_NONE, 30},
    {"mxfp4", MN_MXFP4, MN_MIX_NONE, 38},     {"q2_k", MN_Q2_K, MN_MIX_Q2_K, 10},
    {"q2_k_s", MN_Q2_K, MN_MIX_Q2_K_S, 21},   {"q3_k_s", MN_Q3_K, MN_MIX_Q3_K_S, 11},
    {"q3_k_m", MN_Q3_K, MN_MIX_Q3_K_M, 12},   {"q3_k_l", MN_Q3_K, MN_MIX_Q3_K_L, 13},
    {"q4_k_s", MN_Q4_K, MN_MIX_Q4_K_S, 14},   {"q4_k_m", MN_Q4_K, MN_MIX_Q4_K_M, 15},
    {"q5_k_s", MN_Q5_K, MN_MIX_Q5_K_S, 16},   {"q5_k_m", MN_Q5_K, MN_MIX_Q5_K_M, 17},
    {"iq2_xxs", MN_IQ2_XXS, MN_MIX_NONE, 19}, {"iq2_xs", MN_IQ2_XS, MN_MIX_NONE, 20},
    {"iq2_s", MN_IQ2_S, MN_MIX_NONE, 28},     {"iq3_xxs", MN_IQ3_XXS, MN_MIX_NONE, 23},
    {"iq3_s", MN_IQ3_S, MN_MIX_NONE, 26},     {"nvfp4", MN_NVFP4_64, MN_MIX_NONE, 39},
    {"iq1_s", MN_IQ1_S, MN_MIX_NONE, 24},     {"iq1_m", MN_IQ1_M, MN_MIX_NONE, 31},
    {"tq1_0", MN_TQ1_0, MN_MIX_NONE, 36},     {"tq2_0", MN_TQ2_0, MN_MIX_NONE, 37},
};

const mn_convert_type *mn_convert_type_find(const char *name) {
    for (size_t i = 0; i < MN_COUNT(kinds); i++)
        if (!strcasecmp(kinds[i].name, name))
            return &kinds[i];
    return NULL;
}

const mn_convert_type *mn_convert_type_of(uint32_t dtype) {
    for (size_t i = 0; i < MN_COUNT(kinds); i++)
        if (kinds[i].dtype == dtype)
            return &kinds[i];
    return NULL;
}

void mn_convert_type_list(mn_text *out) {
    for (size_t i = 0; i < MN_COUNT(kinds); i++)
        mn_text_printf(out, "%s%s", i ? ", " : "", kinds[i].name);
}
