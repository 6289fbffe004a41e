/* k_prompt_q8.cu -- attention of many rows over keys and values in q8_0 (prompt.cuh). */
#include "prompt.cuh"

const cu_prompt_kernel cu_prompt_q8_0[CU_PROMPT_KERNELS] = {
    prompt_kernel<64, true>(), prompt_kernel<96, true>(), prompt_kernel<128, true>(),
    prompt_kernel<256, true>()};
