/* w_mlx8_128.cu -- MLX, groups of 128 of 8 bits (mlx.cuh). */
#include "mlx.cuh"

MLX(8, 128);
