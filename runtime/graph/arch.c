/* arch.c -- the table of architectures: one line and one file each. */
#include "graph/arch.h"
#include <string.h>

static const mn_arch archs[] = {
    {"llama", mn_arch_llama}, /* Llama 2 and 3, TinyLlama, Mistral, Mixtral */
    {"qwen2", mn_arch_llama},
    {"qwen3", mn_arch_llama},
    {"qwen3moe", mn_arch_llama},
    {"smollm3", mn_arch_llama},
    {"granite", mn_arch_llama},
    {"gemma", mn_arch_gemma},
    {"gemma2", mn_arch_gemma},
    {"gemma4", mn_arch_gemma4},
    {"gemma3", mn_arch_gemma},
    {"phi2", mn_arch_phi2},
    {"phi3", mn_arch_phi3},
    {"gpt-oss", mn_arch_gpt_oss},
    {"olmo2", mn_arch_olmo2},
    {"stablelm", mn_arch_stablelm},
    {"gpt2", mn_arch_gpt2},
    {"bert", mn_arch_bert}, /* RoBERTa and XLM-R, too: their files store positions from 0 on */
    {"nomic-bert", mn_arch_bert},
    {"modern-bert", mn_arch_modern_bert},
};

const mn_arch *mn_arch_find(const char *name) {
    for (size_t i = 0; i < MN_COUNT(archs); i++)
        if (!strcmp(archs[i].arch, name))
            return &archs[i];
    return NULL;
}

void mn_arch_list(mn_text *out) {
    for (size_t i = 0; i < MN_COUNT(archs); i++)
        mn_text_printf(out, "%s%s", i ? ", " : "", archs[i].arch);
}
