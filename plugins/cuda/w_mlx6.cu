/* w_mlx6.cu -- MLX, groups of 6 bits (mlx.cuh). */
#include "mlx.cuh"

MLX_ALL(6);
