/* k_prompt_f16.cu -- attention of many rows over keys and values in f16 (prompt.cuh). */
#include "prompt.cuh"

const cu_prompt_kernel cu_prompt_f16[CU_PROMPT_KERNELS] = {
    prompt_kernel<64, false>(), prompt_kernel<96, false>(), prompt_kernel<128, false>(),
    prompt_kernel<256, false>()};
