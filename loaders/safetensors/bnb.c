/* bnb.c -- matrices as bitsandbytes stores them.
 *
 * nf4, fp4: X.weight, U8 [N * K / 2, 1], codes of all rows behind one another, the first in the
 * high nibble; X.weight.absmax, a scale for each `blocksize` codes, F32, or U8 where scales are
 * quantised, too: then X.weight.nested_absmax and X.weight.nested_quant_map say what these are.
 * X.weight.quant_map is the table of values, X.weight.quant_state.bitsandbytes__nf4 (or __fp4) JSON
 * with the shape. Codes stay where they are, and so do scales of F32 in blocks of 64.
 *
 * int8: X.weight, I8 [N, K]; X.SCB, F32 [N]: x = code * SCB / 127. */
#include "affine.h"
#include <math.h>
#include <string.h>

enum { BLOCK = 64, MAP = 16, NESTED_MAP = 256, STATE_MAX = 1 << 16 };

/* What quant_state says. offset, nested: of scales that are quantised. */
typedef struct {
    int64_t rows, cols;
    int64_t block, nested;
    float offset;
} nf4_state;

/* Value i of a tensor of F32, at any address. */
static float bnb_f32(const mn_parsed_tensor *t, int64_t i) {
    float value;
    memcpy(&value, (const char *)t->plane.ptr + 4 * i, sizeof value);
    return value;
}

/* A tensor of n values of a type, whatever its shape. */
static bool bnb_holds(const mn_parsed_tensor *t, uint32_t dtype, int64_t n) {
    if (!t)
        return false;
    if (t->dtype.id != dtype)
        return false;
    return t->plane.bytes == (uint64_t)n * t->dtype.block_bytes;
}

static bool is_size(const cJSON *item, int64_t *out) {
    return json_is_int(item, 1, INT64_C(1) << 31, out);
}

static bool state_read(const cJSON *json, nf4_state *s) {
    const cJSON *shape = json_get(json, "shape");
    const cJSON *offset = json_get(json, "nested_offset");
    const cJSON *nested = json_get(json, "nested_blocksize");
    s->nested = 256;
    if (cJSON_IsNumber(offset))
        s->offset = (float)offset->valuedouble;
    if (nested && !is_size(nested, &s->nested))
        return false;
    if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) != 2)
        return false;
    if (!is_size(shape->child, &s->rows))
        return false;
    if (!is_size(shape->child->next, &s->cols))
        return false;
    return is_size(json_get(json, "blocksize"), &s->block);
}

static mn_status nf4_state_of(const mn_parsed *p, const mn_parsed_tensor *t, nf4_state *s,
                              mn_error *err) {
    cJSON *json = NULL;
    const mn_status st =
        json_parse(p->host, t->file, t->offset, t->plane.bytes, STATE_MAX, &json, err);
    if (st == MN_OUT_OF_MEMORY)
        return st;
    const bool read = !st && state_read(json, s);
    cJSON_Delete(json);
    if (read)
        return MN_OK;
    return packed_bad(t, "JSON with shape [rows, columns] and blocksize", err);
}

/* The table is the one that the type has: to seven digits, as others may print it. */
static bool is_map_of(const mn_parsed_tensor *map, const float *values) {
    if (!bnb_holds(map, MN_F32, MAP))
        return false;
    for (int64_t i = 0; i < MAP; i++) {
        const float off = bnb_f32(map, i) - values[i];
        if (!(fabsf(off) < 1e-6f))
            return false;
    }
    return true;
}

/* Scales of n blocks: as they are, or quantised with what says how. */
static mn_status nf4_check_scales(const packed_matrix *x, const nf4_state *s, int64_t n,
                                  mn_error *err) {
    const int64_t nested = (n + s->nested - 1) / s->nested;
    if (bnb_holds(x->scale, MN_F32, n))
        return MN_OK;
    if (!bnb_holds(x->scale, MN_U8, n))
        return packed_bad(x->scale, "f32 or u8, one for each block of the matrix", err);
    const bool has_map = bnb_holds(x->nested_map, MN_F32, NESTED_MAP);
    if (has_map && bnb_holds(x->nested, MN_F32, nested))
        return MN_OK;
    return packed_bad(x->scale,
                      "X.weight.nested_quant_map, 256 f32, and X.weight.nested_absmax, one f32 for "
                      "each block of scales",
                      err);
}

static mn_status nf4_check(const packed_matrix *x, const nf4_state *s, mn_error *err) {
    const int64_t n = s->rows * s->cols;
    const mn_parsed_tensor *table = x->data;
    if (x->map)
        table = x->map;
    if (!bnb_holds(x->data, MN_U8, n / 2))
        return packed_bad(x->data, "half a byte for each element of quant_state's shape", err);
    if (s->cols % BLOCK || s->block % BLOCK)
        return mnl_fail(err, MN_UNSUPPORTED,
                        "tensor '%.*s': rows of %lld elements, a scale for %lld; expected "
                        "multiples of %d",
                        MN_STR_ARG(x->data->native), (long long)s->cols, (long long)s->block,
                        BLOCK);
    if (x->is_fp4 && !is_map_of(x->map, mn_fp4_values))
        return packed_bad(table, "the table of FP4 in X.weight.quant_map", err);
    if (!x->is_fp4 && !is_map_of(x->map, mn_nf4_values))
        return packed_bad(table, "the table of NF4 in X.weight.quant_map", err);
    return nf4_check_scales(x, s, (n + s->block - 1) / s->block, err);
}

/* The scale of block i of the format: rounded as bitsandbytes does it. */
static float nf4_scale(const packed_matrix *x, const nf4_state *s, int64_t i) {
    if (x->scale->dtype.id == MN_F32)
        return bnb_f32(x->scale, i);
    const uint8_t *codes = x->scale->plane.ptr;
    const float stored = bnb_f32(x->nested_map, codes[i]);
    const float by = bnb_f32(x->nested, i / s->nested);
    const float scaled = stored * by;
    return scaled + s->offset;
}

/* A scale for each 64 elements: those of the file, or made of them in p's memory. NULL = out of
 * memory. */
static const void *nf4_scales(mn_parsed *p, const packed_matrix *x, const nf4_state *s) {
    const int64_t n = s->rows * (s->cols / BLOCK);
    if (x->scale->dtype.id == MN_F32 && s->block == BLOCK)
        return x->scale->plane.ptr;
    float *scales = mn_parsed_room(p, (uint64_t)n, sizeof *scales);
    if (!scales)
        return NULL;
    for (int64_t i = 0; i < n; i++) {
        const int64_t block = i * BLOCK / s->block;
        scales[i] = nf4_scale(x, s, block);
    }
    return scales;
}

/* Rows of `last` values of `each` bytes. */
static void nf4_plane(mn_plane *plane, uint32_t dtype, const void *ptr, const nf4_state *s,
                      int64_t last, int64_t each) {
    const int64_t blocks = s->cols / BLOCK;
    *plane = (mn_plane){.kind = MN_PLANE_DATA};
    plane->dtype = dtype;
    plane->ptr = ptr;
    plane->dim[0] = s->rows;
    plane->dim[1] = last;
    plane->stride[0] = blocks * each;
    plane->stride[1] = each;
    plane->bytes = (uint64_t)(s->rows * blocks * each);
}

mn_status nf4_read(mn_parsed *p, const packed_matrix *x, const cJSON *config, mn_error *err) {
    (void)config;
    mn_parsed_tensor *t = x->data;
    nf4_state s = {0};
    const uint32_t id = x->is_fp4 ? MN_FP4_64 : MN_NF4_64;
    if (!x->state || !x->scale)
        return packed_bad(
            t, "X.weight.absmax and X.weight.quant_state.bitsandbytes__nf4 or __fp4 beside it",
            err);
    mn_status st = nf4_state_of(p, x->state, &s, err);
    if (!st)
        st = nf4_check(x, &s, err);
    if (st)
        return st;
    const void *scales = nf4_scales(p, x, &s);
    mn_plane *planes = mn_tensor_planes(p, t, 1, 2);
    if (!scales || !planes || !mn_dtype_by_id(id, &t->dtype))
        return mnl_fail_memory(err);
    nf4_plane(&planes[0], id, t->plane.ptr, &s, s.cols, t->dtype.block_bytes);
    nf4_plane(&planes[1], MN_F32, scales, &s, s.cols / BLOCK, sizeof(float));
    planes[1].kind = MN_PLANE_SCALE;
    t->n_dim = 2;
    t->dim[0] = s.rows;
    t->dim[1] = s.cols;
    return MN_OK;
}

/* ---- int8 ------------------------------------------------------------------------------------ */
/* Bytes by rows; other orders of theirs have other numbers. */
static bool is_in_rows(const mn_parsed *p, mn_str stem) {
    const mn_parsed_tensor *format = layout_find(p, stem, ".weight_format");
    if (!format || !format->plane.bytes)
        return true;
    const uint8_t *order = format->plane.ptr;
    return *order == 0;
}

mn_status int8_read(mn_parsed *p, const packed_matrix *x, const cJSON *config, mn_error *err) {
    const float by = 1.0f / 127;
    const int64_t rows = x->data->dim[0];
    if (!x->scale)
        return packed_bad(x->data, "X.SCB beside X.weight", err);
    if (x->data->n_dim != 2 || !bnb_holds(x->scale, MN_F32, rows))
        return packed_bad(x->scale, "one f32 for each row of X.weight", err);
    if (!is_in_rows(p, x->stem))
        return packed_bad(x->data, "X.weight_format 0, bytes by rows", err);
    float *scale = mn_parsed_room(p, (uint64_t)rows, sizeof *scale);
    if (!scale)
        return mnl_fail_memory(err);
    for (int64_t i = 0; i < rows; i++) {
        const float most = bnb_f32(x->scale, i);
        scale[i] = most * by;
    }
    mn_parsed_tensor scales = *x->scale;
    packed_matrix scaled = *x;
    scales.plane.ptr = scale;
    scales.n_dim = 1;
    scales.dim[0] = rows;
    scaled.scale = &scales;
    return bytes_read(p, &scaled, config, err);
}
