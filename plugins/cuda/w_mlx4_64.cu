/* w_mlx4_64.cu -- MLX, groups of 64 of 4 bits (mlx.cuh). */
#include "mlx.cuh"

MLX(4, 64);
