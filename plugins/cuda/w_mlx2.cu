/* w_mlx2.cu -- MLX, groups of 2 bits (mlx.cuh). */
#include "mlx.cuh"

MLX_ALL(2);
