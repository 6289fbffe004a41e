/* k_prompt_sm90_q8.cu -- attention of many rows on Hopper over keys and values in q8_0
 * (prompt_sm90.cuh). */
#include "prompt_sm90.cuh"

const prompt_sm90_kernel prompt_sm90_q8_0[PROMPT_SM90_Q8_KERNELS] = {
    prompt_blocks<prompt_shape<64, 2, 128, 3, 2, true, true>>::row(),
    prompt_blocks<prompt_shape<128, 2, 128, 2, 2, true, true>>::row()};
