/* k_attention_f32.cu -- attention of few rows over keys and values in f32 (attend.cuh). */
#include "attend.cuh"

void cu_attend_f32(cudaStream_t s, const cu_attend_args *x, dim3 grid) {
    by_rows<float>(s, x, grid);
}
