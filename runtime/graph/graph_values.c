/* graph_values.c -- numbers of small tensors: widened to F32, summed, repeated, in the graph's
 * arena. */
#include "graph/weights.h"
#include "model/rows.h"
#include <stdio.h>
#include <string.h>

enum { MAX_POSITIONS = 1 << 17 };

/* ---- values ---------------------------------------------------------------------------------- */

/* The file may be unaligned: bytes are copied out one value at a time. */
static float value_at(const mn_plane *p, int64_t i) {
    const char *at = (const char *)p->ptr + i * p->stride[0];
    uint16_t half;
    float f;
    if (p->dtype == MN_F32) {
        memcpy(&f, at, sizeof f);
        return f;
    }
    memcpy(&half, at, sizeof half);
    if (p->dtype == MN_F16)
        return mn_f16_to_f32(half);
    return mn_bf16_to_f32(half);
}

bool mn_gb_check_widenable(mn_model_graph *g, const mn_tensor_info *t) {
    const uint32_t type = t->dtype.id;
    if (type == MN_F32 || type == MN_F16 || type == MN_BF16)
        return true;
    mn_status st = mn_fail(
        g->err, MN_UNSUPPORTED, "%s: tensor %.*s has the type %s; expected f32, f16 or bf16",
        g->model->path, MN_STR_ARG(t->native), mn_vendor_dtype_name(g->model->types, type));
    return mn_gb_fail(g, st);
}

/* A matrix of one row of n, in which llama.cpp writes the bias of Ernie's experts. */
static bool is_one_row(const mn_tensor_info *t, int64_t n) {
    return t->n_dim == 2 && t->n_parts == 1 && t->dim[0] == 1 && t->dim[1] == n;
}

const float *mn_gb_widen_vector(mn_model_graph *g, const mn_tensor_info *t) {
    const uint32_t last = t->n_dim - 1;
    if (!mn_gb_check_widenable(g, t))
        return NULL;
    float *wide = mn_arena_alloc(&g->arena, (size_t)t->dim[last], sizeof *wide);
    int64_t n = 0;
    for (uint32_t p = 0; wide && p < t->n_parts; p++) {
        mn_plane part = *mn_tensor_plane(t, p, 0);
        part.stride[0] = part.stride[last];
        for (int64_t i = 0; i < part.dim[last]; i++)
            wide[n++] = value_at(&part, i);
    }
    if (!wide)
        mn_gb_no_memory(g);
    return wide;
}

const float *mn_gb_widen(mn_model_graph *g, const char *full, bool optional, int64_t n) {
    const mn_model_tensor_entry *e = mn_gb_find(g, full, optional);
    if (!e || (!is_one_row(&e->info, n) && !mn_gb_check_shape(g, &e->info, 1, &n)))
        return NULL;
    return mn_gb_widen_vector(g, &e->info);
}

/* All elements of a tensor in the order of its dims, its parts one behind the other. */
static void flat_values(const mn_tensor_info *t, float *to) {
    for (uint32_t p = 0; p < t->n_parts; p++) {
        const mn_plane *part = mn_tensor_plane(t, p, 0);
        int64_t at[MN_MAX_DIM] = {0};
        int64_t n = 1;
        for (uint32_t d = 0; d < t->n_dim; d++)
            n *= part->dim[d];
        for (int64_t i = 0; i < n; i++) {
            mn_plane one = *part;
            for (uint32_t d = 0; d < t->n_dim; d++)
                one.ptr = (const char *)one.ptr + at[d] * part->stride[d];
            *to++ = value_at(&one, 0);
            for (uint32_t d = t->n_dim; d-- && ++at[d] == part->dim[d];)
                at[d] = 0;
        }
    }
}

int64_t mn_gb_flat(mn_model_graph *g, const char *name, bool optional, float *to, int64_t room) {
    char full[MN_GB_NAME];
    mn_gb_full_name(g, name, full);
    const mn_model_tensor_entry *e = mn_gb_find(g, full, optional);
    if (!e || !mn_gb_check_widenable(g, &e->info))
        return 0;
    if ((int64_t)e->n_elements <= room)
        flat_values(&e->info, to);
    return (int64_t)e->n_elements;
}

/* ---- widened --------------------------------------------------------------------------------- */

int32_t mn_g_vector_f32(mn_model_graph *g, const char *name, bool optional, int64_t n) {
    char full[MN_GB_NAME];
    mn_gb_full_name(g, name, full);
    const mn_graph_weight w = {.constant = mn_gb_widen(g, full, optional, n)};
    if (w.constant)
        return mn_gb_weight(g, full, MN_F32, 1, &n, w);
    return -1;
}

int32_t mn_g_vector_plus(mn_model_graph *g, const char *name, int64_t n, double offset) {
    char full[MN_GB_NAME];
    mn_gb_full_name(g, name, full);
    const float *values = mn_gb_widen(g, full, false, n);
    float *sums = values ? mn_arena_alloc(&g->arena, (size_t)n, sizeof *sums) : NULL;
    if (values && !sums)
        mn_gb_no_memory(g);
    if (!sums)
        return -1;
    for (int64_t i = 0; i < n; i++)
        sums[i] = (float)((double)values[i] + offset);
    return mn_gb_weight(g, full, MN_F32, 1, &n, (mn_graph_weight){.constant = sums});
}

int32_t mn_g_expert_factors(mn_model_graph *g, const char *name, int64_t n, int64_t rows) {
    const int64_t dim[] = {n, rows, 1};
    char full[MN_GB_NAME];
    mn_gb_full_name(g, name, full);
    const float *factors = mn_gb_widen(g, full, true, n);
    if (!factors)
        return -1;
    float *wide = mn_arena_alloc(&g->arena, (size_t)(n * rows), sizeof *wide);
    if (!wide) {
        mn_gb_no_memory(g);
        return -1;
    }
    for (int64_t i = 0; i < n * rows; i++)
        wide[i] = factors[i / rows];
    return mn_gb_weight(g, full, MN_F32, 3, dim, (mn_graph_weight){.constant = wide});
}

int32_t mn_gb_constant(const mn_model_graph *g, const char *name) {
    for (uint32_t i = 0; i < g->n_weights; i++) {
        const int32_t t = g->weights[i].tensor;
        if (g->weights[i].constant && mn_str_is(g->abi.tensors[t].name, name))
            return t;
    }
    return -1;
}

/* A constant of n equal numbers. */
static int32_t add_filled(mn_model_graph *g, const char *name, float value, uint32_t n_dim,
                          const int64_t *dim) {
    int64_t n = 1;
    if (g->status)
        return -1;
    const int32_t known = mn_gb_constant(g, name);
    if (known >= 0)
        return known;
    for (uint32_t i = 0; i < n_dim; i++)
        n *= dim[i];
    float *values = mn_arena_alloc(&g->arena, (size_t)n, sizeof *values);
    if (!values) {
        mn_gb_no_memory(g);
        return -1;
    }
    for (int64_t i = 0; i < n; i++)
        values[i] = value;
    return mn_gb_weight(g, name, MN_F32, n_dim, dim, (mn_graph_weight){.constant = values});
}

int32_t mn_g_ones(mn_model_graph *g, int64_t n) {
    char name[32];
    snprintf(name, sizeof name, "ones.%lld", (long long)n);
    return add_filled(g, name, 1, 1, &n);
}

int32_t mn_g_filled(mn_model_graph *g, double value, uint32_t n_dim, const int64_t *dim) {
    char name[96];
    const long long rows = n_dim > 1 ? (long long)dim[1] : 0;
    snprintf(name, sizeof name, "all.%a.%lld.%lld", value, (long long)dim[0], rows);
    return add_filled(g, name, (float)value, n_dim, dim);
}

int32_t mn_g_row_repeated(mn_model_graph *g, const char *name, int64_t rows, int64_t cols,
                          int64_t row, int64_t n) {
    enum { MOST = 4096 };
    const int64_t dim[] = {n, cols};
    char full[MN_GB_NAME];
    char own[MN_GB_NAME + 32];
    float whole[MOST];
    mn_gb_full_name(g, name, full);
    const mn_model_tensor_entry *e = mn_gb_find(g, full, false);
    const int64_t stored[] = {rows, cols};
    if (!e || !mn_gb_check_shape(g, &e->info, 2, stored))
        return -1;
    if (mn_gb_flat(g, name, false, whole, MOST) != rows * cols) {
        mn_fail(g->err, MN_UNSUPPORTED, "%s: tensor %s has %lld numbers; at most %d are taken",
                g->model->path, full, (long long)(rows * cols), MOST);
        mn_gb_fail(g, MN_UNSUPPORTED);
        return -1;
    }
    float *wide = mn_arena_alloc(&g->arena, (size_t)(n * cols), sizeof *wide);
    if (!wide) {
        mn_gb_no_memory(g);
        return -1;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(wide + i * cols, whole + row * cols, (size_t)cols * sizeof *wide);
    snprintf(own, sizeof own, "%s[%lld]", full, (long long)row);
    return mn_gb_weight(g, own, MN_F32, 2, dim, (mn_graph_weight){.constant = wide});
}

/* Row `row` of a table [rows, n], a plain float type, added to out [n]. */
static void add_row(const mn_tensor_info *t, int64_t row, int64_t n, float *out) {
    const uint32_t last = t->n_dim - 1;
    mn_plane line = *t->planes;
    if (last)
        line.ptr = (const char *)line.ptr + row * line.stride[0];
    line.stride[0] = line.stride[last];
    for (int64_t i = 0; i < n; i++)
        out[i] += value_at(&line, i);
}

/* The sum of each position's row and that of type 0; pos may be NULL. */
static int32_t sum_tables(mn_model_graph *g, const mn_tensor_info *pos,
                          const mn_tensor_info *types) {
    const int64_t dim[] = {g->hp.n_ctx_train, g->hp.n_embd};
    if ((pos && !mn_gb_check_widenable(g, pos)) || !mn_gb_check_widenable(g, types))
        return -1;
    float *sums = mn_arena_alloc(&g->arena, (size_t)(dim[0] * dim[1]), sizeof *sums);
    if (!sums) {
        mn_gb_no_memory(g);
        return -1;
    }
    for (int64_t i = 0; i < dim[0]; i++) {
        float *row = sums + i * dim[1]; // [D], zeroed by the arena
        add_row(types, 0, dim[1], row);
        if (pos)
            add_row(pos, i, dim[1], row);
    }
    const mn_graph_weight w = {.constant = sums};
    return mn_gb_weight(g, "position_embd.typed", MN_F32, 2, dim, w);
}

/* Without a table of positions the context says how many rows the sum has. */
static bool check_context(mn_model_graph *g) {
    const int64_t n = g->hp.n_ctx_train;
    if (n >= 1 && n <= MAX_POSITIONS)
        return true;
    mn_status st = mn_fail(g->err, MN_UNSUPPORTED,
                           "%s: key %s.context_length is %lld, expected 1 to %d with token types",
                           g->model->path, g->hp.arch, (long long)n, MAX_POSITIONS);
    return mn_gb_fail(g, st);
}

int32_t mn_g_positions(mn_model_graph *g) {
    const int64_t dim[] = {g->hp.n_ctx_train, g->hp.n_embd};
    const bool others = g->hp.layer[0].rope >= 0 || mn_g_has(g, "rel_embd.weight");
    const mn_model_tensor_entry *pos = mn_gb_find(g, "position_embd.weight", others);
    const mn_model_tensor_entry *types = mn_gb_find(g, "token_types.weight", true);
    if (g->status || (pos && !mn_gb_check_shape(g, &pos->info, 2, dim)))
        return -1;
    if (!types)
        return mn_g_matrix(g, "position_embd.weight", true, dim[0], dim[1]);
    const mn_tensor_info *t = &types->info;
    if (!pos && !check_context(g))
        return -1;
    const int64_t as_stored[] = {t->n_dim == 2 ? t->dim[0] : dim[1], dim[1]};
    if (!mn_gb_check_shape(g, t, t->n_dim == 2 ? 2 : 1, as_stored))
        return -1;
    return sum_tables(g, pos ? &pos->info : NULL, t);
}

int32_t mn_g_typed_tokens(mn_model_graph *g) {
    const int64_t V = g->hp.n_vocab;
    const int64_t D = g->hp.n_embd;
    const int64_t dim[] = {2 * V, D};
    const mn_model_tensor_entry *types = mn_canonical_tensor(g->model, "token_types.weight");
    if (g->status || !types || types->info.n_dim != 2 || types->info.dim[0] < 2 ||
        !mn_g_has(g, "cls.output.weight"))
        return -1;
    const mn_model_tensor_entry *e = mn_gb_find(g, "token_embd.weight", false);
    if (!e || !mn_gb_fits(g, &e->info, 2, (const int64_t[]){V, D}) ||
        !mn_gb_check_widenable(g, &types->info) ||
        !mn_gb_check_shape(g, &types->info, 2, (const int64_t[]){types->info.dim[0], D}))
        return -1;
    float *rows = mn_arena_alloc(&g->arena, (size_t)(2 * V * D), sizeof *rows);
    float *change = mn_arena_alloc(&g->arena, (size_t)D, sizeof *change); // [D]: type 1 - type 0
    if (!rows || !change) {
        mn_gb_no_memory(g);
        return -1;
    }
    add_row(&types->info, 0, D, change);
    for (int64_t d = 0; d < D; d++)
        change[d] = -change[d];
    add_row(&types->info, 1, D, change);
    for (int64_t i = 0; i < V; i++) {
        if (mn_row_unpack(g->model->types, &e->info, (uint64_t)i, rows + i * D, g->err)) {
            mn_gb_fail(g, g->err->status);
            return -1;
        }
        for (int64_t d = 0; d < D; d++)
            rows[(V + i) * D + d] = rows[i * D + d] + change[d];
    }
    g->typed = true;
    return mn_gb_weight(g, "token_embd.typed", MN_F32, 2, dim, (mn_graph_weight){.constant = rows});
}

int32_t mn_g_scale_by(mn_model_graph *g, int32_t x, const char *name) {
    char full[MN_GB_NAME];
    mn_gb_full_name(g, name, full);
    const float *factor = mn_gb_widen(g, full, true, 1);
    if (factor)
        return mn_g_scale(g, x, (double)*factor);
    return x;
}
