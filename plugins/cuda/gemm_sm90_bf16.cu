/* gemm_sm90_bf16.cu -- the matrix product on Hopper (gemm_sm90.cuh) of operands in bf16: a kernel
 * for each of cu_gemm_shapes. */
#include "gemm_sm90.cuh"

const gemm_kernel gemm_kernels_bf16[CU_GEMM_SHAPES] = {
    blocks_of<shape<true, 128, 256, 1, 4>>::row(), blocks_of<shape<true, 128, 192, 1, 5>>::row(),
    blocks_of<shape<true, 128, 128, 1, 6>>::row(), blocks_of<shape<true, 128, 128, 2, 5>>::row(),
    blocks_of<shape<true, 64, 256, 1, 5>>::row()};
