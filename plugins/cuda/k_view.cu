/* k_view.cu -- copies between a dense tensor and a view of another, element by element; four bytes
 * each, whatever they are. */
#include "device.cuh"

__global__ void __launch_bounds__(256) copy_view(cu_view v) {
    cu_next();
    cu_wait();
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    const int64_t first = (int64_t)blockIdx.x * blockDim.x;
    for (int64_t i = first + threadIdx.x; i < v.n; i += step) {
        int64_t left = i;
        int64_t at = 0;
        for (int d = v.n_dim - 1; d >= 0; d--) {
            const int64_t index = left % v.dim[d];
            at += index * v.stride[d];
            left /= v.dim[d];
        }
        if (v.to_apart)
            v.apart[at] = __ldcg(&v.dense[i]);
        else
            v.dense[i] = __ldcg(&v.apart[at]);
    }
}

void cu_copy_view(cudaStream_t s, const cu_view *v) {
    const int64_t blocks = (v->n + 255) / 256;
    const unsigned grid = (unsigned)(blocks < 4096 ? blocks : 4096);
    if (v->n > 0)
        launch(s, copy_view, dim3(grid), 256, 0, *v);
}
