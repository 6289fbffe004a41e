/* w_mlx4_128.cu -- MLX, groups of 128 of 4 bits (mlx.cuh). */
#include "mlx.cuh"

MLX(4, 128);
