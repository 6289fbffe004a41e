/* w_mlx4_32.cu -- MLX, groups of 32 of 4 bits (mlx.cuh). */
#include "mlx.cuh"

MLX(4, 32);
