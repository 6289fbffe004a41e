/* nvfp4.c -- the scales of whole tensors that files of NVFP4 keep beside their matrices: one F32,
 * or one for each expert, under the name of the matrix with ".scale" for ".weight". Other programs
 * multiply the product by it; here it is a plane of the matrix, x = scale * d * e2m1. Everything
 * stays where it lies in the file. */
#include "gguf.h"
#include <string.h>

enum { DATA, WHOLE, N_PLANES };

/* NULL: there is none. */
static mn_parsed_tensor *nvfp4_named(const mn_parsed *p, mn_str stem, const char *ending) {
    for (uint64_t i = 0; i < p->n_tensors; i++) {
        const mn_str name = p->tensors[i].name;
        if (name.len <= stem.len)
            continue;
        const mn_str rest = {name.ptr + stem.len, name.len - stem.len};
        if (!mn_str_is(rest, ending))
            continue;
        if (!memcmp(name.ptr, stem.ptr, stem.len))
            return &p->tensors[i];
    }
    return NULL;
}

/* One value at `at` for all blocks and rows of a part. */
static void whole_plane(mn_plane *to, const mn_plane *from, uint32_t n_dim, int64_t at) {
    *to = (mn_plane){.kind = MN_PLANE_TENSOR_SCALE};
    to->dtype = MN_F32;
    to->bytes = sizeof(float);
    to->ptr = (const char *)from->ptr + at;
    for (uint32_t d = 0; d < n_dim; d++)
        to->dim[d] = 1;
}

/* The scale s becomes planes of t; with one for each expert each expert is a part. */
static mn_status nvfp4_scaled(mn_parsed *p, mn_parsed_tensor *t, const mn_parsed_tensor *s,
                              mn_error *err) {
    const int64_t n = s->dim[0];
    const bool by_expert = t->n_dim == 3 && n == t->dim[0];
    if (s->dtype.id != MN_F32 || s->n_dim != 1 || (n != 1 && !by_expert))
        return mnl_fail(err, MN_BAD_FILE,
                        "tensor '%.*s' (%s, %u dimensions, the first is %lld): expected one f32, "
                        "or one for each expert of '%.*s'",
                        MN_STR_ARG(s->native), mn_dtype_name(s->dtype.id), s->n_dim, (long long)n,
                        MN_STR_ARG(t->native));
    mn_plane *planes = mn_tensor_planes(p, t, (uint32_t)n, N_PLANES);
    if (!planes)
        return mnl_fail_memory(err);
    for (int64_t i = 0; i < n; i++, planes += N_PLANES) {
        mn_plane *data = &planes[DATA];
        *data = t->plane;
        data->bytes /= (uint64_t)n;
        data->ptr = (const char *)data->ptr + (uint64_t)i * data->bytes;
        data->dim[0] /= n;
        whole_plane(&planes[WHOLE], &s->plane, t->n_dim, i * (int64_t)sizeof(float));
    }
    return MN_OK;
}

/* "blk.0.attn_q.scale" -> the matrix "blk.0.attn_q.weight", if it is of NVFP4. */
static mn_parsed_tensor *nvfp4_matrix(const mn_parsed *p, mn_str name, const char *ending) {
    if (!mn_str_ends(name, ending))
        return NULL;
    const mn_str stem = {name.ptr, name.len - strlen(ending)};
    mn_parsed_tensor *t = nvfp4_named(p, stem, ".weight");
    if (!t)
        return NULL;
    if (t->dtype.id != MN_NVFP4_64)
        return NULL;
    return t;
}

/* input_scale is for kernels that round activations. */
static bool is_joined(const mn_parsed *p, mn_str name) {
    if (nvfp4_matrix(p, name, ".scale"))
        return true;
    return nvfp4_matrix(p, name, ".input_scale") != NULL;
}

mn_status gguf_join_scales(mn_parsed *p, mn_error *err) {
    mn_status st = MN_OK;
    uint64_t kept = 0;
    for (uint64_t i = 0; i < p->n_tensors && !st; i++) {
        mn_parsed_tensor *t = nvfp4_matrix(p, p->tensors[i].name, ".scale");
        if (t)
            st = nvfp4_scaled(p, t, &p->tensors[i], err);
    }
    if (st)
        return st;
    for (uint64_t i = 0; i < p->n_tensors; i++)
        if (!is_joined(p, p->tensors[i].name))
            p->tensors[kept++] = p->tensors[i];
    p->n_tensors = kept;
    return MN_OK;
}
