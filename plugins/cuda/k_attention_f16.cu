/* k_attention_f16.cu -- attention of few rows over keys and values in f16 (attend.cuh). */
#include "attend.cuh"

void cu_attend_f16(cudaStream_t s, const cu_attend_args *x, dim3 grid) {
    by_rows<__half>(s, x, grid);
}
