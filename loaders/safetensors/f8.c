/* f8.c -- matrices of F8 and their scales: one for the matrix, one for each row, or one for each
 * 128 x 128 elements; of experts stored as one [E, N, K] the same for each expert. Scales of E8M0
 * become bf16. */
#include "families.h"
#include <string.h>

/* How the scales s [.., R, C] lie over t [.., N, K]; false: in no way that is known. */
static bool scales_of(const mn_parsed_tensor *t, const mn_parsed_tensor *s, f8_scales *out) {
    const int64_t N = t->dim[t->n_dim - 2];
    const int64_t K = t->dim[t->n_dim - 1];
    const int64_t es = s->dtype.block_bytes;
    const uint32_t lead = t->n_dim - 2;
    if (s->n_dim > t->n_dim)
        return false;
    if (lead && s->dim[0] != t->dim[0])
        return false;
    int64_t R = 1;
    if (s->n_dim > lead)
        R = s->dim[lead];
    int64_t C = 1;
    if (s->n_dim > lead + 1)
        C = s->dim[lead + 1];
    *out = (f8_scales){.expert = lead ? R * C * es : 0};
    if (R == 1 && C == 1)
        return true;
    if (R == N && C == 1)
        return out->row = es, true;
    out->blocks = K % 128 == 0 && C == K / 128 && R == (N + 127) / 128;
    out->halves = !out->blocks && lead && R == 2 && C == 1;
    out->row = C * es;
    out->col = es;
    return out->blocks || out->halves;
}

/* One message for all that scales_of refuses: it names the three forms that are read. */
static mn_status bad_scales(const mn_parsed_tensor *t, const mn_parsed_tensor *s, mn_error *err) {
    return mnl_fail(
        err, MN_BAD_FILE,
        "tensor '%.*s' (%s, %u dimensions, the first is %lld): expected one scale, one for each "
        "row, or one "
        "for each 128 x 128 elements of its weight, whose last two dimensions are %lld and %lld",
        MN_STR_ARG(s->native), mn_dtype_name(s->dtype.id), s->n_dim, (long long)s->dim[0],
        (long long)t->dim[t->n_dim - 2], (long long)t->dim[t->n_dim - 1]);
}

/* Rows [lo, lo + n) of each matrix of t, `times` of them, as one part at planes. */
static void f8_describe(const mn_parsed_tensor *t, const mn_parsed_tensor *s, const f8_scales *sc,
                        int64_t lo, int64_t n, mn_plane *planes) {
    const uint32_t lead = t->n_dim - 2;
    int64_t E = 1;
    if (lead)
        E = t->dim[0];
    const int64_t N = t->dim[lead];
    const int64_t K = t->dim[lead + 1];
    int64_t skip = lo * sc->row;
    if (sc->halves)
        skip = lo / n * sc->row;
    else if (sc->blocks)
        skip = lo / 128 * sc->row;
    mn_plane *data = &planes[0];
    mn_plane *scale = &planes[1];
    *data = t->plane;
    *scale = s->plane;
    data->ptr = (const char *)data->ptr + lo * K;
    data->bytes = (uint64_t)(((E - 1) * N + n) * K);
    data->dtype = MN_F8_E4M3;
    if (sc->blocks)
        data->dtype = MN_F8_E4M3_128;
    scale->ptr = (const char *)scale->ptr + skip;
    scale->bytes -= (uint64_t)skip;
    scale->kind = MN_PLANE_SCALE;
    const int64_t dim[] = {E, n, K};
    const int64_t stride[] = {N * K, K, sc->blocks ? 128 : 1};
    const int64_t s_dim[] = {E, sc->blocks ? (n + 127) / 128 : n, sc->blocks ? K / 128 : 1};
    const int64_t s_stride[] = {sc->expert, sc->halves ? 0 : sc->row, sc->blocks ? sc->col : 0};
    for (uint32_t i = 0; i < t->n_dim; i++) {
        data->dim[i] = dim[i + 1 - lead];
        data->stride[i] = stride[i + 1 - lead];
        scale->dim[i] = s_dim[i + 1 - lead];
        scale->stride[i] = s_stride[i + 1 - lead];
    }
}

/* A matrix that is no expert's, in blocks: a part for each 128 rows. */
static mn_status in_parts(mn_parsed *p, mn_parsed_tensor *t, const mn_parsed_tensor *s,
                          const f8_scales *sc, mn_error *err) {
    const int64_t N = t->dim[0];
    const int64_t parts = (N + 127) / 128;
    mn_plane *planes = mn_tensor_planes(p, t, (uint32_t)parts, 2);
    if (!planes)
        return mnl_fail_memory(err);
    for (int64_t i = 0; i < parts; i++) {
        f8_describe(t, s, sc, i * 128, N - i * 128 < 128 ? N - i * 128 : 128, planes + 2 * i);
        planes[2 * i + 1].bytes = (uint64_t)sc->row;
    }
    mn_dtype_by_id(MN_F8_E4M3_128, &t->dtype);
    return MN_OK;
}

/* Rows [lo, lo + n) of t's matrices as the tensor `to`; native: its name. */
static mn_status in_one(mn_parsed *p, const mn_parsed_tensor *t, const mn_parsed_tensor *s,
                        const f8_scales *sc, int64_t lo, int64_t n, mn_str native,
                        mn_parsed_tensor *to, mn_error *err) {
    mn_parsed_tensor out = *t;
    mn_plane *planes = mn_tensor_planes(p, &out, 1, 2);
    if (!planes || !native.ptr)
        return mnl_fail_memory(err);
    f8_describe(t, s, sc, lo, n, planes);
    out.native = out.name = native;
    out.dim[t->n_dim - 2] = n;
    mn_dtype_by_id(planes[0].dtype, &out.dtype);
    *to = out;
    return MN_OK;
}

/* gate_up_proj of all experts: gates, then ups. */
static mn_status f8_split(mn_parsed *p, uint64_t at, const mn_parsed_tensor *s, const f8_scales *sc,
                          mn_error *err) {
    const mn_parsed_tensor both = p->tensors[at], scales = *s; /* the array may move */
    const int64_t F = both.dim[1] / 2;
    const mn_str stem = {both.native.ptr, both.native.len - strlen("gate_up_proj")};
    if (both.dim[1] % 2 || (sc->blocks && F % 128))
        return mnl_fail(
            err, MN_UNSUPPORTED,
            "tensor '%.*s': gate and up have %lld rows together; expected a multiple of "
            "%d, for blocks are "
            "128 rows high",
            MN_STR_ARG(both.native), (long long)both.dim[1], sc->blocks ? 256 : 2);
    mn_parsed_tensor *up = mn_parsed_add_tensor(p);
    if (!up)
        return mnl_fail_memory(err);
    mn_status status = in_one(p, &both, &scales, sc, F, F,
                              mn_parsed_printf(p, "%.*sup_proj", MN_STR_ARG(stem)), up, err);
    if (status)
        return status;
    return in_one(p, &both, &scales, sc, 0, F,
                  mn_parsed_printf(p, "%.*sgate_proj", MN_STR_ARG(stem)), &p->tensors[at], err);
}

/* Is z anywhere in s? */
static bool f8_holds(mn_str s, const char *z) {
    const uint64_t n = strlen(z);
    for (uint64_t i = 0; i + n <= s.len; i++)
        if (!memcmp(s.ptr + i, z, n))
            return true;
    return false;
}

/* Scales of E8M0 (U8) as the same powers of two in bf16, in p's memory; others as they are. */
static mn_status plain_scales(mn_parsed *p, const mn_parsed_tensor *s, mn_parsed_tensor *out,
                              mn_error *err) {
    *out = *s;
    if (s->dtype.id != MN_U8)
        return MN_OK;
    uint16_t *wide = mn_parsed_alloc(p, s->plane.bytes, sizeof *wide);
    if (!wide)
        return mnl_fail_memory(err);
    const uint8_t *e = s->plane.ptr;
    for (uint64_t i = 0; i < s->plane.bytes; i++) {
        uint32_t bits;
        const float value = mn_e8m0_to_f32(e[i]);
        memcpy(&bits, &value, sizeof bits);
        wide[i] = (uint16_t)(bits >> 16);
    }
    mn_dtype_by_id(MN_BF16, &out->dtype);
    out->plane.ptr = wide;
    out->plane.bytes *= 2;
    out->plane.dtype = MN_BF16;
    return MN_OK;
}

/* Fills *sc if the scales s may lie over t; else says which of the two is not as expected. */
static mn_status f8_check(const mn_parsed_tensor *t, const mn_parsed_tensor *s, bool transposed,
                          f8_scales *sc, mn_error *err) {
    if (t->dtype.id != MN_F8_E4M3)
        return mnl_fail(err, MN_UNSUPPORTED,
                        "tensor '%.*s' is %s and has scales; expected f8_e4m3, which alone is read",
                        MN_STR_ARG(t->native), mn_dtype_name(t->dtype.id));
    if (s->dtype.id != MN_F32 && s->dtype.id != MN_BF16 && s->dtype.id != MN_F16)
        return mnl_fail(err, MN_UNSUPPORTED,
                        "tensor '%.*s' is %s; expected scales of f32, bf16, f16 or e8m0",
                        MN_STR_ARG(s->native), mn_dtype_name(s->dtype.id));
    if (t->n_dim < 2 || t->n_dim > 3 || transposed)
        return mnl_fail(err, MN_UNSUPPORTED,
                        "tensor '%.*s' has scales; expected so of matrices [rows, columns] alone",
                        MN_STR_ARG(t->native));
    if (scales_of(t, s, sc))
        return MN_OK;
    return bad_scales(t, s, err);
}

mn_status f8_scales_of(mn_parsed *p, const mn_parsed_tensor *t, const mn_parsed_tensor *stored,
                       mn_parsed_tensor *scales, f8_scales *sc, mn_error *err) {
    const mn_status status = plain_scales(p, stored, scales, err);
    if (status)
        return status;
    return f8_check(t, scales, false, sc, err);
}

/* The tensor at `at` becomes one with planes, two if it is gate and up of all experts; the
 * caller drops s. */
mn_status f8_read(mn_parsed *p, uint64_t at, const mn_parsed_tensor *stored, bool transposed,
                  mn_error *err) {
    mn_parsed_tensor *t = &p->tensors[at];
    const bool both = t->n_dim == 3 && mn_str_ends(t->native, "gate_up_proj");
    mn_parsed_tensor scales;
    const mn_parsed_tensor *s = &scales;
    f8_scales sc;
    mn_status status = plain_scales(p, stored, &scales, err);
    if (!status)
        status = f8_check(t, s, transposed, &sc, err);
    if (status)
        return status;
    if (sc.halves && !both)
        return bad_scales(t, s, err);
    if (both)
        return f8_split(p, at, s, &sc, err);
    if (sc.blocks && t->n_dim == 2 && !f8_holds(t->native, ".experts."))
        return in_parts(p, t, s, &sc, err);
    return in_one(p, t, s, &sc, 0, t->dim[t->n_dim - 2], t->native, t, err);
}
