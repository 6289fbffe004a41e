/* latent.c -- kv_b_proj [heads (nope + v), rank] of latent attention, of each head its rows of k,
 * then of v, as the two tensors that graphs read: k_b_proj [heads, rank, nope], with which q is
 * multiplied instead of the keys, and v_b_proj [heads, v, rank].
 *
 * Plain numbers stay where they lie: the planes have other strides. So do blocks of F8 where heads
 * end at their borders, but for the rows of k: bytes of a block lie side by side, so that those are
 * transposed into the model's memory. F8 with other scales is unpacked to f32 there. */
#include "families.h"
#include <stdio.h>
#include <string.h>

enum { BLOCK = 128 };

typedef struct {
    mn_str stem; /* up to and with the dot before kv_b_proj */
    int64_t n, nope, v, rank;
} heads;

static mn_status latent_bad(const mn_parsed_tensor *t, mn_error *err) {
    return mnl_fail(err, MN_BAD_FILE,
                    "tensor '%.*s' (%s, %u dimensions): expected rows of k and of v for each head",
                    MN_STR_ARG(t->native), mn_dtype_name(t->dtype.id), t->n_dim);
}

static mn_status find_heads(const mn_parsed_tensor *t, const model_facts *facts, heads *h,
                            mn_error *err) {
    const uint64_t ending = strlen("kv_b_proj.weight");
    *h = (heads){.stem = {t->native.ptr, t->native.len - ending},
                 .n = facts->n_head,
                 .v = facts->head_dim_v,
                 .rank = t->dim[1]};
    h->nope = t->dim[0] / h->n - h->v;
    if (t->n_dim != 2 || t->dim[0] % h->n || h->nope < 1)
        return latent_bad(t, err);
    return MN_OK;
}

/* A tensor [n, rows, cols] of n_planes planes. t: the one that it comes of. */
static mn_status latent_add(mn_parsed *p, const mn_parsed_tensor *t, const heads *h,
                            const char *name, const int64_t dim[3], const mn_plane *planes,
                            uint32_t n_planes, uint32_t dtype, mn_error *err) {
    mn_parsed_tensor out = *t;
    mn_plane *own = mn_tensor_planes(p, &out, 1, n_planes);
    out.native = out.name = mn_parsed_printf(p, "%.*s%s", MN_STR_ARG(h->stem), name);
    mn_parsed_tensor *to = own && out.native.ptr ? mn_parsed_add_tensor(p) : NULL;
    if (!to)
        return mnl_fail_memory(err);
    memcpy(own, planes, n_planes * sizeof *own);
    memset(out.dim, 0, sizeof out.dim);
    memcpy(out.dim, dim, 3 * sizeof *dim);
    out.n_dim = 3;
    mn_dtype_by_id(dtype, &out.dtype);
    *to = out;
    return MN_OK;
}

/* Both tensors: k and v have n_planes planes each. */
static mn_status add_both(mn_parsed *p, const mn_parsed_tensor *t, const heads *h,
                          const mn_plane *k, const mn_plane *v, uint32_t n_planes, uint32_t dtype,
                          mn_error *err) {
    const mn_parsed_tensor from = *t; /* the array may move */
    const int64_t k_dim[3] = {h->n, h->rank, h->nope};
    const int64_t v_dim[3] = {h->n, h->v, h->rank};
    const mn_status status =
        latent_add(p, &from, h, "k_b_proj.weight", k_dim, k, n_planes, dtype, err);
    if (status)
        return status;
    return latent_add(p, &from, h, "v_b_proj.weight", v_dim, v, n_planes, dtype, err);
}

/* of, `skip` bytes further on, with these dims and strides in bytes. */
static mn_plane latent_plane(const mn_plane *of, int64_t skip, const int64_t dim[3],
                             const int64_t stride[3]) {
    mn_plane out = *of;
    out.ptr = (const char *)of->ptr + skip;
    out.bytes = of->bytes - (uint64_t)skip;
    memset(out.dim, 0, sizeof out.dim);
    memset(out.stride, 0, sizeof out.stride);
    memcpy(out.dim, dim, 3 * sizeof *dim);
    memcpy(out.stride, stride, 3 * sizeof *stride);
    return out;
}

mn_status latent_split(mn_parsed *p, uint64_t at, const model_facts *facts, mn_error *err) {
    const mn_parsed_tensor *t = &p->tensors[at];
    heads h;
    const mn_status status = find_heads(t, facts, &h, err);
    if (status)
        return status;
    if (t->planes || t->dtype.block_elems != 1)
        return mnl_fail(err, MN_UNSUPPORTED,
                        "tensor '%.*s' (%s): the rows of k are read as columns; expected f32, f16, "
                        "bf16 or f8",
                        MN_STR_ARG(t->native), mn_dtype_name(t->dtype.id));
    const int64_t row = t->plane.stride[0];
    const int64_t es = t->plane.stride[1];
    const int64_t each = (h.nope + h.v) * row;
    const mn_plane k =
        latent_plane(&t->plane, 0, (int64_t[]){h.n, h.rank, h.nope}, (int64_t[]){each, es, row});
    const mn_plane v = latent_plane(&t->plane, h.nope * row, (int64_t[]){h.n, h.v, h.rank},
                                    (int64_t[]){each, row, es});
    return add_both(p, t, &h, &k, &v, 1, t->dtype.id, err);
}

/* ---- F8 -------------------------------------------------------------------------------------- */

/* Blocks of 128 x 128, of which no head has a part. */
static mn_status split_blocks(mn_parsed *p, const mn_parsed_tensor *t, const f8_scales *sc,
                              const mn_plane *scales, const heads *h, mn_error *err) {
    const int64_t rows = h->nope + h->v;
    const int64_t tall = h->nope / BLOCK;
    const int64_t wide = h->rank / BLOCK;
    const uint8_t *from = t->plane.ptr;
    uint8_t *turned = mn_parsed_alloc(p, (uint64_t)(h->n * h->rank * h->nope), 1);
    if (!turned)
        return mnl_fail_memory(err);
    for (int64_t i = 0; i < h->n; i++)
        for (int64_t r = 0; r < h->nope; r++)
            for (int64_t c = 0; c < h->rank; c++)
                turned[(i * h->rank + c) * h->nope + r] = from[(i * rows + r) * h->rank + c];
    mn_plane data = t->plane;
    data.dtype = MN_F8_E4M3_128;
    mn_plane own_scales = *scales;
    own_scales.kind = MN_PLANE_SCALE;
    mn_plane own = data;
    own.ptr = turned;
    own.bytes = (uint64_t)(h->n * h->rank * h->nope);
    const int64_t head = rows / BLOCK * sc->row; /* bytes of a head's scales */
    const mn_plane k[2] = {latent_plane(&own, 0, (int64_t[]){h->n, h->rank, h->nope},
                                        (int64_t[]){h->rank * h->nope, h->nope, BLOCK}),
                           latent_plane(&own_scales, 0, (int64_t[]){h->n, wide, tall},
                                        (int64_t[]){head, sc->col, sc->row})};
    const mn_plane v[2] = {latent_plane(&data, h->nope * h->rank, (int64_t[]){h->n, h->v, h->rank},
                                        (int64_t[]){rows * h->rank, h->rank, BLOCK}),
                           latent_plane(&own_scales, tall * sc->row,
                                        (int64_t[]){h->n, h->v / BLOCK, wide},
                                        (int64_t[]){head, sc->row, sc->col})};
    return add_both(p, t, h, k, v, 2, MN_F8_E4M3_128, err);
}

/* Every element as f32 in the model's memory, [rows, rank], and that split. */
static mn_status split_unpacked(mn_parsed *p, const mn_parsed_tensor *t, const f8_scales *sc,
                                const mn_plane *scales, const heads *h, mn_error *err) {
    const int64_t rows = t->dim[0];
    const int64_t row = h->rank * (int64_t)sizeof(float);
    const int64_t each = (h->nope + h->v) * row;
    const uint8_t *from = t->plane.ptr;
    float *wide = mn_parsed_alloc(p, (uint64_t)(rows * h->rank), sizeof *wide);
    char text[300];
    if (!wide)
        return mnl_fail_memory(err);
    for (int64_t i = 0; i < rows * h->rank; i++) {
        const int64_t r = i / h->rank / (sc->blocks ? BLOCK : 1);
        const int64_t c = i % h->rank / (sc->blocks ? BLOCK : 1);
        const uint8_t *at = (const uint8_t *)scales->ptr + r * sc->row + c * sc->col;
        wide[i] = mn_e4m3_to_f32(from[i]) * mn_plane_value(scales->dtype, at);
    }
    snprintf(text, sizeof text,
             "tensor '%.*s' is unpacked to f32: heads do not end where the blocks of its scales do",
             MN_STR_ARG(t->native));
    if (MN_HAS(mn_host, p->host, log))
        p->host->log(p->host->self, MN_LOG_INFO, mn_str_of(text));
    mn_plane own = t->plane;
    own.ptr = wide;
    own.bytes = (uint64_t)(rows * row);
    own.dtype = MN_F32;
    const mn_plane k = latent_plane(&own, 0, (int64_t[]){h->n, h->rank, h->nope},
                                    (int64_t[]){each, sizeof *wide, row});
    const mn_plane v = latent_plane(&own, h->nope * row, (int64_t[]){h->n, h->v, h->rank},
                                    (int64_t[]){each, row, sizeof *wide});
    return add_both(p, t, h, &k, &v, 1, MN_F32, err);
}

mn_status latent_split_f8(mn_parsed *p, uint64_t at, const mn_parsed_tensor *stored,
                          const model_facts *facts, mn_error *err) {
    const mn_parsed_tensor *t = &p->tensors[at];
    mn_parsed_tensor scales;
    f8_scales sc;
    heads h;
    mn_status status = f8_scales_of(p, t, stored, &scales, &sc, err);
    if (!status)
        status = find_heads(t, facts, &h, err);
    if (status)
        return status;
    if (sc.blocks && h.nope % BLOCK == 0 && h.v % BLOCK == 0)
        return split_blocks(p, t, &sc, &scales.plane, &h, err);
    return split_unpacked(p, t, &sc, &scales.plane, &h, err);
}
