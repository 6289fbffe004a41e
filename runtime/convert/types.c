/* types.c -- what --type may say: types and mixes of types, with GGUF's general.file_type for each
 * (llama.h of llama.cpp, which the specification names). */
#include "convert/convert.h"
#include <strings.h>

static const mn_convert_type kinds[] = {
    {"f32", MN_F32, 0, 0, 0},
    {"f16", MN_F16, 0, 0, 1},
    {"bf16", MN_BF16, 0, 0, 32},
    {"q8_0", MN_Q8_0, 0, 0, 7},
    {"q4_0", MN_Q4_0, 0, 0, 2},
    {"q4_1", MN_Q4_1, 0, 0, 3},
    {"q5_0", MN_Q5_0, 0, 0, 8},
    {"q5_1", MN_Q5_1, 0, 0, 9},
    {"q2_k", MN_Q2_K, 0, 0, 10},
    {"q3_k", MN_Q3_K, 0, 0, 11},
    {"q4_k", MN_Q4_K, 0, 0, 14},
    {"q5_k", MN_Q5_K, 0, 0, 16},
    {"q6_k", MN_Q6_K, 0, 0, 18},
    {"iq4_nl", MN_IQ4_NL, 0, 0, 25},
    {"iq4_xs", MN_IQ4_XS, 0, 0, 30},
    {"q4_k_m", MN_Q4_K, MN_Q6_K, MN_Q5_K, 15},
    {"q5_k_m", MN_Q5_K, MN_Q6_K, MN_Q6_K, 17},
    {"mxfp4", MN_MXFP4, 0, 0, 38},
};

const mn_convert_type *mn_convert_type_find(const char *name) {
    for (size_t i = 0; i < MN_COUNT(kinds); i++)
        if (!strcasecmp(kinds[i].name, name))
            return &kinds[i];
    return NULL;
}

const mn_convert_type *mn_convert_type_of(uint32_t dtype) {
    for (size_t i = 0; i < MN_COUNT(kinds); i++)
        if (kinds[i].dtype == dtype && !kinds[i].more)
            return &kinds[i];
    return NULL;
}

void mn_convert_type_list(mn_text *out) {
    for (size_t i = 0; i < MN_COUNT(kinds); i++)
        mn_text_printf(out, "%s%s", i ? ", " : "", kinds[i].name);
}
