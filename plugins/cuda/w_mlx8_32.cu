/* w_mlx8_32.cu -- MLX, groups of 32 of 8 bits (mlx.cuh). */
#include "mlx.cuh"

MLX(8, 32);
