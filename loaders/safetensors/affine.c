/* affine.c -- see affine.h. Rows are made by the threads of the host's pool, some at a time, since
 * formats store columns first and a line of the cache holds several rows. */
#include "affine.h"
#include <string.h>

uint32_t affine_word(const mn_parsed_tensor *t, int64_t i) {
    uint32_t word;
    memcpy(&word, (const char *)t->plane.ptr + 4 * i, sizeof word);
    return word;
}

double affine_value(const mn_parsed_tensor *t, int64_t at) {
    return mn_plane_value(t->dtype.id, (const uint8_t *)t->plane.ptr + at);
}

mn_status packed_bad(const mn_parsed_tensor *t, const char *expected, mn_error *err) {
    return mnl_fail(err, MN_BAD_FILE,
                    "tensor '%.*s' (%s, %u dimensions, the first is %lld): expected %s",
                    MN_STR_ARG(t->native), mn_dtype_name(t->dtype.id), t->n_dim,
                    (long long)t->dim[0], expected);
}

/* The group of column k. */
static int64_t group_of(const affine_matrix *m, int64_t k) {
    return (int32_t)affine_word(m->order, k);
}

mn_status packed_in_order(const mn_parsed_tensor *order, affine_matrix *m, mn_error *err) {
    const int64_t groups = m->cols / m->group;
    bool in_order = true;
    if (!order)
        return MN_OK;
    if (order->dtype.id != MN_I32 || order->n_dim != 1 || order->dim[0] != m->cols)
        return packed_bad(order, "i32, a group for each column of its weight", err);
    m->order = order;
    for (int64_t k = 0; k < m->cols; k++) {
        const int64_t group = group_of(m, k);
        if (group < 0 || group >= groups)
            return mnl_fail(
                err, MN_BAD_FILE, "tensor '%.*s': column %lld is in group %lld; expected 0 to %lld",
                MN_STR_ARG(order->native), (long long)k, (long long)group, (long long)(groups - 1));
        if (group != k / m->group)
            in_order = false;
    }
    if (in_order)
        m->order = NULL;
    return MN_OK;
}

/* The largest group of a type that divides the format's; 0: none does. */
static int64_t type_group(int64_t group) {
    for (int64_t g = 128; g >= 32; g /= 2)
        if (group % g == 0)
            return g;
    return 0;
}

/* That of columns in another order. */
static bool pick_type(const affine_matrix *m, mn_dtype *out) {
    if (m->group % 32)
        return false;
    if (m->bits == 4)
        return mn_dtype_by_id(MN_PICK4_32, out);
    if (m->bits == 8)
        return mn_dtype_by_id(MN_PICK8_32, out);
    return false;
}

/* The affine type; false: there is none. */
static bool affine_type(const affine_matrix *m, mn_dtype *out) {
    if (m->order)
        return pick_type(m, out);
    static const uint32_t ids[][2] = {{2, MN_MLX2_32}, {3, MN_MLX3_32}, {4, MN_MLX4_32},
                                      {5, MN_MLX5_32}, {6, MN_MLX6_32}, {8, MN_MLX8_32}};
    const int64_t g = type_group(m->group);
    for (uint32_t i = 0; i < MN_COUNT(ids) && g && m->cols % m->group == 0; i++)
        if (ids[i][0] == m->bits)
            return mn_dtype_by_id(ids[i][1] + (g == 128 ? 2 : (uint32_t)(g / 64)), out);
    return false;
}

/* ---- rows ------------------------------------------------------------------------------------ */
/* What the threads share. */
typedef struct {
    const affine_matrix *m;
    int64_t group, groups; /* that share a scale: columns, and how many of them a row has */
    int64_t scale_bytes;
    uint8_t *codes; /* NULL: they stay where they are; so do scales */
    uint8_t *scales;
    uint8_t *biases;
    int32_t *pick; /* of columns in another order, else NULL: then scales are F32, as biases are */
    uint32_t bias_type;
    _Atomic bool rounded; /* a bias is no value of its type */
} affine_job;

static void put_bias(affine_job *j, double bias, uint8_t *to) {
    const float wide = (float)bias;
    float kept = wide;
    if (j->bias_type == MN_F32)
        memcpy(to, &wide, sizeof wide);
    else if (j->bias_type == MN_F16) {
        const uint16_t half = mn_f32_to_f16(wide);
        kept = mn_f16_to_f32(half);
        memcpy(to, &half, sizeof half);
    } else {
        uint32_t bits;
        memcpy(&bits, &wide, sizeof bits);
        const uint16_t high = (uint16_t)(bits >> 16);
        kept = mn_bf16_to_f32(high);
        memcpy(to, &high, sizeof high);
    }
    if (!((double)kept == bias) && bias == bias && !j->m->bias_at)
        j->rounded = true;
}

/* As F32: value i of all. */
static void put_scale(affine_job *j, int64_t i, const uint8_t *at) {
    const uint32_t stored = j->m->scale->dtype.id;
    const float scale = mn_plane_value(stored, at);
    uint8_t *to = j->scales + i * (int64_t)sizeof scale;
    memcpy(to, &scale, sizeof scale);
}

static double bias_of(const affine_matrix *m, int64_t n, int64_t g, double scale) {
    if (m->bias_at)
        return m->bias_at(m, n, g);
    if (m->zero)
        return -m->zero_at(m, n, g) * scale;
    return -(double)m->middle * scale;
}

/* Scales and biases of row n. */
static void affine_scales(affine_job *j, int64_t n) {
    const affine_matrix *m = j->m;
    const int64_t es = m->scale->dtype.block_bytes;
    const int64_t bs = j->bias_type == MN_F32 ? 4 : 2;
    for (int64_t i = 0; i < j->groups; i++) {
        const int64_t g = i * j->group / m->group;
        const uint8_t *at =
            (const uint8_t *)m->scale->plane.ptr + n * m->scale_row + g * m->scale_col;
        if (j->pick)
            put_scale(j, n * j->groups + i, at);
        else if (j->scales)
            memcpy(j->scales + (n * j->groups + i) * es, at, (size_t)es);
        const double scale = mn_plane_value(m->scale->dtype.id, at);
        put_bias(j, bias_of(m, n, g, scale), j->biases + (n * j->groups + i) * bs);
    }
}

/* For mn_host.parallel: every n-th run of rows. */
static void affine_rows(void *arg, uint32_t i, uint32_t n) {
    affine_job *j = arg;
    const affine_matrix *m = j->m;
    for (int64_t row = (int64_t)i * AFFINE_ROWS; row < m->rows; row += (int64_t)n * AFFINE_ROWS) {
        int64_t count = m->rows - row;
        if (count > AFFINE_ROWS)
            count = AFFINE_ROWS;
        if (j->codes)
            m->codes(m, row, count, j->codes + row * (m->cols * m->bits / 8));
        for (int64_t k = row; k < row + count; k++)
            affine_scales(j, k);
    }
}

/* On all threads of the host, if it has some. */
static mn_status run_rows(const mn_host *h, affine_job *j) {
    const uint32_t most = (uint32_t)((j->m->rows + AFFINE_ROWS - 1) / AFFINE_ROWS);
    uint32_t n = 1;
    if (MN_HAS(mn_host, h, parallel) && MN_HAS(mn_host, h, workers))
        n = h->workers(h->self);
    if (n > most)
        n = most;
    if (n > 1)
        return h->parallel(h->self, n, affine_rows, j);
    affine_rows(j, 0, 1);
    return MN_OK;
}

/* ---- planes ---------------------------------------------------------------------------------- */
/* A dense plane of `last` values of `each` bytes in each row. */
static void dense_plane(mn_plane *plane, uint32_t kind, uint32_t dtype, const void *ptr,
                        int64_t rows, int64_t last, int64_t elems, int64_t each) {
    *plane = (mn_plane){.kind = kind, .dtype = dtype, .ptr = ptr};
    plane->dim[0] = rows;
    plane->dim[1] = last;
    plane->stride[0] = last / elems * each;
    plane->stride[1] = each;
    plane->bytes = (uint64_t)(rows * plane->stride[0]);
}

/* Memory for what does not lie in the file as it should. */
static mn_status affine_room(mn_parsed *p, affine_job *j, mn_error *err) {
    const affine_matrix *m = j->m;
    const uint64_t n = (uint64_t)(m->rows * j->groups);
    const int64_t es = j->scale_bytes;
    const bool in_place =
        !m->order && m->group == j->group && m->scale_col == es && m->scale_row == es * j->groups;
    if (m->order)
        j->pick = mn_parsed_room(p, (uint64_t)m->cols, sizeof *j->pick);
    for (int64_t k = 0; j->pick && k < m->cols; k++)
        j->pick[k] = (int32_t)group_of(m, k);
    if (m->codes)
        j->codes = mn_parsed_room(p, (uint64_t)m->rows, (uint64_t)m->cols * m->bits / 8);
    if (!in_place)
        j->scales = mn_parsed_room(p, n, (uint64_t)es);
    j->biases = mn_parsed_room(p, n, j->bias_type == MN_F32 ? 4 : 2);
    if ((m->codes && !j->codes) || (!in_place && !j->scales) || !j->biases ||
        (m->order && !j->pick))
        return mnl_fail_memory(err);
    return MN_OK;
}

static bool is_scale_type(uint32_t id) {
    return id == MN_F16 || id == MN_BF16 || id == MN_F32;
}

/* Planes of t; its codes are of `type`. */
static mn_status affine_planes(mn_parsed *p, const affine_job *j, mn_dtype type, mn_error *err) {
    const affine_matrix *m = j->m;
    const int64_t es = j->scale_bytes;
    mn_parsed_tensor *t = m->t;
    mn_plane *planes = mn_tensor_planes(p, t, 1, type.n_planes);
    if (!planes)
        return mnl_fail_memory(err);
    const void *codes = t->plane.ptr;
    const void *scales = m->scale->plane.ptr;
    uint32_t scale_type = m->scale->dtype.id;
    int64_t bias_bytes = 2;
    if (j->codes)
        codes = j->codes;
    if (j->scales)
        scales = j->scales;
    if (j->pick)
        scale_type = MN_F32;
    if (j->bias_type == MN_F32)
        bias_bytes = 4;
    dense_plane(&planes[0], MN_PLANE_DATA, type.id, codes, m->rows, m->cols, type.block_elems,
                type.block_bytes);
    dense_plane(&planes[1], MN_PLANE_SCALE, scale_type, scales, m->rows, j->groups, 1, es);
    dense_plane(&planes[2], MN_PLANE_BIAS, j->bias_type, j->biases, m->rows, j->groups, 1,
                bias_bytes);
    if (j->pick) { /* the same for all rows */
        dense_plane(&planes[3], MN_PLANE_PICK, MN_I32, j->pick, m->rows, m->cols, 1,
                    sizeof *j->pick);
        planes[3].bytes = (uint64_t)planes[3].stride[0];
        planes[3].stride[0] = 0;
    }
    t->n_dim = 2;
    t->dim[0] = m->rows;
    t->dim[1] = m->cols;
    t->dtype = type;
    return MN_OK;
}

mn_status affine_make(mn_parsed *p, const affine_matrix *m, mn_error *err) {
    mn_dtype type;
    if (!affine_type(m, &type))
        return mnl_fail(err, MN_UNSUPPORTED,
                        "tensor '%.*s': %u bits in groups of %lld of %lld columns%s; expected 2 to "
                        "6 or 8 bits in whole groups of a multiple of 32%s",
                        MN_STR_ARG(m->t->native), m->bits, (long long)m->group, (long long)m->cols,
                        m->order ? ", in the order of activations (act-order)" : "",
                        m->order ? "; 4 or 8 where g_idx has another order" : "");
    if (!is_scale_type(m->scale->dtype.id))
        return packed_bad(m->scale, "scales of f16, bf16 or f32", err);
    affine_job j = {.m = m, .group = type.block_elems, .groups = m->cols / type.block_elems};
    j.scale_bytes = m->scale->dtype.block_bytes;
    j.bias_type = m->zero ? (uint32_t)MN_F32 : m->scale->dtype.id;
    if (m->order) {
        j.group = m->group;
        j.groups = m->cols / m->group;
        j.scale_bytes = sizeof(float);
        j.bias_type = MN_F32;
    }
    mn_status status = affine_room(p, &j, err);
    if (!status)
        status = run_rows(p->host, &j);
    if (status)
        return status;
    if (j.rounded)
        return mnl_fail(err, MN_UNSUPPORTED,
                        "tensor '%.*s': a product of its scale and its zero is no %s, and is not "
                        "rounded here; expected scales of f16 or bf16 with zeros",
                        MN_STR_ARG(m->scale->native), mn_dtype_name(j.bias_type));
    return affine_planes(p, &j, type, err);
}
