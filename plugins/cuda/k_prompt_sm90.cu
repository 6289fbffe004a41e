/* k_prompt_sm90.cu -- attention of many rows on Hopper over keys and values in f16
 * (prompt_sm90.cuh). */
#include "prompt_sm90.cuh"

const prompt_sm90_kernel prompt_sm90_f16[PROMPT_SM90_KERNELS] = {
    prompt_blocks<prompt_shape<64, 3, 128, 3, 2, true>>::row(),
    prompt_blocks<prompt_shape<128, 2, 128, 2, 2, true>>::row(),
    prompt_blocks<prompt_shape<256, 2, 64, 2, 1, false>>::row()};
