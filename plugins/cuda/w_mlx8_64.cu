/* w_mlx8_64.cu -- MLX, groups of 64 of 8 bits (mlx.cuh). */
#include "mlx.cuh"

MLX(8, 64);
