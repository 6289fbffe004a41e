/* nvfp4.c -- matrices of NVFP4 as NVIDIA's ModelOpt writes them: X.weight, U8 [N, K/2] with two
 * E2M1 nibbles in a byte; X.weight_scale, F8_E4M3 [N, K/16]; X.weight_scale_2, one F32. All three
 * are described where they lie. X.input_scale, which is for kernels that quantise activations, was
 * dropped before (model.c). */
#include "safetensors.h"

enum { GROUP = 16 };
enum { DATA, SCALE, TENSOR_SCALE, N_PLANES };

static mn_status nvfp4_bad(const mn_parsed_tensor *t, const mn_parsed_tensor *weight,
                           const char *expected, mn_error *err) {
    return mnl_fail(err, MN_BAD_FILE,
                    "tensor '%.*s' (%s, %u dimensions): expected %s, for '%.*s' is packed NVFP4",
                    MN_STR_ARG(t->native), mn_dtype_name(t->dtype.id), t->n_dim, expected,
                    MN_STR_ARG(weight->native));
}

/* A scalar is stored with no dimensions or with dimensions of 1. */
static bool is_one_value(const mn_parsed_tensor *t) {
    for (uint32_t i = 0; i < t->n_dim; i++)
        if (t->dim[i] != 1)
            return false;
    return true;
}

/* The scales of blocks as they lie; the scale of the tensor is repeated for all rows and blocks
 * by strides of 0. */
static void scale_planes(mn_plane *planes, const mn_parsed_tensor *scale,
                         const mn_parsed_tensor *whole) {
    planes[SCALE] = scale->plane;
    planes[SCALE].kind = MN_PLANE_SCALE;
    planes[TENSOR_SCALE] = whole->plane;
    planes[TENSOR_SCALE].kind = MN_PLANE_TENSOR_SCALE;
    for (uint32_t d = 0; d < 2; d++) {
        planes[TENSOR_SCALE].dim[d] = 1;
        planes[TENSOR_SCALE].stride[d] = 0;
    }
}

/* t, read as U8 [N, K/2], becomes [N, K] of MN_NVFP4 with three planes. Shapes and types of all
 * three are checked here; whole NULL, as all that does not fit, is MN_BAD_FILE. */
mn_status nvfp4_read(mn_parsed *p, mn_parsed_tensor *t, const mn_parsed_tensor *scale,
                     const mn_parsed_tensor *whole, mn_error *err) {
    mn_dtype type;
    if (!whole)
        return mnl_fail(err, MN_BAD_FILE,
                        "tensor '%.*s' has no '%.*s_2', expected the scale of the whole tensor",
                        MN_STR_ARG(scale->native), MN_STR_ARG(scale->native));
    if (t->n_dim != 2 || t->dim[1] > INT64_MAX / 2 || t->dim[1] * 2 % GROUP)
        return nvfp4_bad(t, t, "rows of whole groups of 16 elements, 8 bytes each", err);
    const int64_t cols = t->dim[1] * 2;
    if (scale->n_dim != 2 || scale->dim[0] != t->dim[0] || scale->dim[1] != cols / GROUP)
        return nvfp4_bad(scale, t, "as many rows, and a scale for each 16 elements of them", err);
    if (whole->dtype.id != MN_F32 || !is_one_value(whole))
        return nvfp4_bad(whole, t, "one f32", err);
    mn_plane *planes = mn_tensor_planes(p, t, 1, N_PLANES);
    if (!planes || !mn_dtype_by_id(MN_NVFP4, &type))
        return mnl_fail_memory(err);
    planes[DATA] = t->plane;
    planes[DATA].dtype = type.id;
    planes[DATA].dim[1] = t->dim[1] = cols;
    planes[DATA].stride[1] = type.block_bytes;
    scale_planes(planes, scale, whole);
    t->dtype = type;
    return MN_OK;
}
