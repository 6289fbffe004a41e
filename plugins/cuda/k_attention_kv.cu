/* k_attention_kv.cu -- attention of few rows over keys and values in q8_0, and over those that have
 * a type each, which the kernel asks for at run time (attend.cuh). The new row is stored by a
 * kernel of its own before (k_cache.cu). */
#include "attend.cuh"

template <class KT> static void by_heads(cudaStream_t s, const cu_attend_args *x, dim3 grid) {
    if (x->per == 1)
        by_dim<KT, 1, false>(s, x, grid);
    else
        by_dim<KT, GROUP, false>(s, x, grid);
}

void cu_attend_q8_0(cudaStream_t s, const cu_attend_args *x, dim3 grid) {
    by_heads<q8_type>(s, x, grid);
}
void cu_attend_any(cudaStream_t s, const cu_attend_args *x, dim3 grid) {
    by_heads<any_type>(s, x, grid);
}
