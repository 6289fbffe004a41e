/* arch.c -- the table of architectures: one line and one file each. */
#include "graph/arch.h"
#include <string.h>

static const mn_arch archs[] = {
    {"llama", mn_arch_llama}, /* Llama 2 and 3, TinyLlama, Mistral */
    {"qwen2", mn_arch_llama}, /* with biases on q, k, v: found by their presence */
    {"qwen3", mn_arch_llama}, /* with norms on the heads of q and k: likewise */
};

const mn_arch *mn_arch_find(const char *name) {
    for (size_t i = 0; i < MN_COUNT(archs); i++)
        if (!strcmp(archs[i].arch, name)) return &archs[i];
    return NULL;
}

void mn_arch_list(mn_text *out) {
    for (size_t i = 0; i < MN_COUNT(archs); i++) mn_text_printf(out, "%s%s", i ? ", " : "", archs[i].arch);
}
