/* w_mlx3.cu -- MLX, groups of 3 bits (mlx.cuh). */
#include "mlx.cuh"

MLX_ALL(3);
