/* w_mlx5.cu -- MLX, groups of 5 bits (mlx.cuh). */
#include "mlx.cuh"

MLX_ALL(5);
