/* graph_weights.c -- weights of the graph: the model's tensors by name and shape, parts of their
 * rows, small ones widened. */
#include "graph/build.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 128 };

/* "blk.%d.attn_q.weight" with the layer's number. */
static void full_name(const char *name, int layer, char full[NAME]) {
    const char *mark = strstr(name, "%d");
    if (mark)
        snprintf(full, NAME, "%.*s%d%s", (int)(mark - name), name, layer, mark + 2);
    else
        snprintf(full, NAME, "%s", name);
}

/* "blk.3.attn_q.bias" of the first layer, or of the next: what a whole model has, its layers
 * have. */
static const mn_model_tensor_entry *of_other_layer(const mn_model_graph *g, const char *full) {
    char other[NAME];
    char *end;
    if (strncmp(full, "blk.", 4))
        return NULL;
    const long layer = strtol(full + 4, &end, 10);
    snprintf(other, sizeof other, "blk.%ld%s", layer ? 0 : layer + 1, end);
    return mn_canonical_tensor(g->model, other);
}

/* Names of checkpoints are those of their loader; the model's own tensors tell them. */
static void absent(mn_model_graph *g, const char *full, bool optional) {
    static const char *const top[][2] = {{"token_embd.weight", "model.embed_tokens.weight"},
                                         {"output_norm.weight", "model.norm.weight"},
                                         {"output.weight", "lm_head.weight"}};
    const mn_model_tensor_entry *other = of_other_layer(g, full);
    const char *native = NULL;
    for (size_t i = 0; i < MN_COUNT(top); i++)
        if (!strcmp(full, top[i][0]))
            native = top[i][1];
    if (other)
        mn_gb_fail(g, mn_fail(g->err, MN_BAD_FILE,
                              "%s: tensor %s is missing; another layer has it as %.*s",
                              g->model->path, full, MN_STR_ARG(other->info.native)));
    else if (!optional)
        mn_gb_fail(g, mn_fail(g->err, MN_BAD_FILE, "%s: tensor %s is missing%s%s%s", g->model->path,
                              full, native ? " (in checkpoints such as " : "", native ? native : "",
                              native ? ")" : ""));
}

static const mn_model_tensor_entry *find(mn_model_graph *g, const char *full, bool optional) {
    if (g->status)
        return NULL;
    const mn_model_tensor_entry *e = mn_canonical_tensor(g->model, full);
    if (e)
        g->asked[e - g->model->tensors] = 1;
    if (!e)
        absent(g, full, optional);
    return e;
}

void mn_gb_check_biases(mn_model_graph *g) {
    char weight[NAME];
    for (size_t i = 0; i < g->model->n_tensors && !g->status; i++) {
        const mn_tensor_info *t = &g->model->tensors[i].info;
        if (g->asked[i] || !mn_str_ends(t->name, ".bias"))
            continue;
        snprintf(weight, sizeof weight, "%.*s.weight", (int)MN_MIN(t->name.len - 5, NAME - 8),
                 t->name.ptr);
        const mn_model_tensor_entry *e = mn_canonical_tensor(g->model, weight);
        if (e && g->asked[e - g->model->tensors])
            mn_gb_fail(g, mn_fail(g->err, MN_UNSUPPORTED,
                                  "%s: tensor %.*s: the architecture %s has no bias here; expected "
                                  "its weight alone",
                                  g->model->path, MN_STR_ARG(t->native), g->hp.arch));
    }
}

static bool check_shape(mn_model_graph *g, const mn_tensor_info *t, uint32_t n_dim,
                        const int64_t *want) {
    bool same = t->n_dim == n_dim;
    for (uint32_t i = 0; same && i < n_dim; i++)
        same = t->dim[i] == want[i];
    if (same)
        return true;
    mn_text found = {0};
    mn_text expected = {0};
    for (uint32_t i = 0; i < t->n_dim; i++)
        mn_text_printf(&found, "%s%lld", i ? ", " : "", (long long)t->dim[i]);
    for (uint32_t i = 0; i < n_dim; i++)
        mn_text_printf(&expected, "%s%lld", i ? ", " : "", (long long)want[i]);
    mn_gb_fail(g, mn_fail(g->err, MN_BAD_FILE,
                          "%s: tensor %.*s has the shape [%s]; the hyper-parameters say [%s]",
                          g->model->path, MN_STR_ARG(t->native), found.ptr ? found.ptr : "",
                          expected.ptr ? expected.ptr : ""));
    mn_text_free(&found);
    mn_text_free(&expected);
    return false;
}

/* Bare integers are not numbers that a model multiplies with. */
static bool check_type(mn_model_graph *g, const mn_tensor_info *t) {
    const uint32_t id = t->dtype.id;
    if (mn_dtype_is_weight(id))
        return true;
    return mn_gb_fail(g, mn_fail(g->err, MN_UNSUPPORTED,
                                 "%s: tensor %.*s has the type %s; expected a type of weights",
                                 g->model->path, MN_STR_ARG(t->native), mn_dtype_name(id)));
}

static int32_t known_weight(const mn_model_graph *g, const mn_model_tensor_entry *e) {
    for (uint32_t i = 0; i < g->n_weights; i++)
        if (g->weights[i].source == e)
            return g->weights[i].tensor;
    return -1;
}

static int32_t whole(mn_model_graph *g, const char *name, int layer, bool optional, uint32_t n_dim,
                     const int64_t *dim) {
    char full[NAME];
    full_name(name, layer, full);
    const mn_model_tensor_entry *e = find(g, full, optional);
    if (!e || !check_shape(g, &e->info, n_dim, dim) || !check_type(g, &e->info))
        return -1;
    int32_t known = known_weight(g, e);
    return known >= 0 ? known
                      : mn_gb_weight(g, full, e->info.dtype.id, n_dim, dim,
                                     (mn_graph_weight){-1, e, NULL});
}

int32_t mn_g_vector(mn_model_graph *g, const char *name, int layer, bool optional, int64_t n) {
    return whole(g, name, layer, optional, 1, &n);
}

int32_t mn_g_matrix(mn_model_graph *g, const char *name, int layer, bool optional, int64_t rows,
                    int64_t cols) {
    return whole(g, name, layer, optional, 2, (int64_t[]){rows, cols});
}

int32_t mn_g_experts(mn_model_graph *g, const char *name, int layer, bool optional, int64_t n,
                     int64_t rows, int64_t cols) {
    return whole(g, name, layer, optional, 3, (int64_t[]){n, rows, cols});
}

bool mn_g_has(const mn_model_graph *g, const char *name, int layer) {
    char full[NAME];
    full_name(name, layer, full);
    return mn_canonical_tensor(g->model, full) != NULL;
}

/* ---- parts of rows --------------------------------------------------------------------------- */

static const mn_plane *plane_at(const mn_tensor_info *t, uint32_t part, uint32_t plane) {
    return (const mn_plane *)(const void *)((const char *)t->planes +
                                            ((size_t)part * t->n_planes + plane) * t->plane_stride);
}

/* Rows [lo, lo + n) of a plane; a plane with one value for all rows stays as it is. */
static mn_plane cut_plane(const mn_plane *p, int64_t lo, int64_t n) {
    mn_plane cut = *p;
    const uint64_t skipped = (uint64_t)lo * (uint64_t)p->stride[0];
    cut.ptr = (const char *)p->ptr + skipped;
    cut.dim[0] = n;
    cut.bytes = p->bytes - skipped;
    if (p->stride[0] * p->dim[0] == (int64_t)p->bytes)
        cut.bytes = (uint64_t)(n * p->stride[0]);
    return cut;
}

/* Rows per part of a cut: plugins want parts of one height (but the last), also where the cut
 * begins inside one. */
static int64_t cut_height(const mn_tensor_info *t, int64_t lo, int64_t n) {
    int64_t a = plane_at(t, 0, 0)->dim[0];
    int64_t b = lo % a;
    if (t->n_parts == 1)
        return n;
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Rows [lo, lo + n) of part p, whose planes go to `to`. */
static void cut_part(const mn_tensor_info *t, uint32_t p, int64_t lo, int64_t n, mn_plane *to) {
    const int64_t rows = plane_at(t, p, 0)->dim[0];
    for (uint32_t i = 0; i < t->n_planes; i++) {
        const mn_plane *whole = plane_at(t, p, i);
        to[i] = whole->dim[0] == rows ? cut_plane(whole, lo, n) : *whole;
    }
}

static mn_model_tensor_entry *cut_rows(mn_model_graph *g, const mn_model_tensor_entry *e,
                                       int64_t lo, int64_t n) {
    const int64_t height = cut_height(&e->info, lo, n);
    const size_t most = (size_t)(n / height) + e->info.n_parts;
    mn_model_tensor_entry *cut = mn_arena_alloc(&g->arena, 1, sizeof *cut);
    mn_plane *planes = mn_arena_alloc(&g->arena, most * e->info.n_planes, sizeof *planes);
    if (!cut || !planes)
        return mn_gb_no_memory(g), NULL;
    *cut = *e;
    cut->info.planes = planes;
    cut->info.plane_stride = sizeof *planes;
    cut->info.n_parts = 0;
    cut->info.dim[0] = n;
    cut->n_elements = e->n_elements / (uint64_t)e->info.dim[0] * (uint64_t)n;
    cut->bytes = e->bytes / (uint64_t)e->info.dim[0] * (uint64_t)n;
    int64_t at = 0; /* of the part's first row */
    for (uint32_t p = 0; p < e->info.n_parts; p++) {
        const int64_t rows = plane_at(&e->info, p, 0)->dim[0];
        const int64_t to = MN_MIN(lo + n, at + rows);
        for (int64_t from = MN_MAX(lo, at); from < to; from += height)
            cut_part(&e->info, p, from - at, MN_MIN(height, to - from),
                     planes + (size_t)cut->info.n_parts++ * e->info.n_planes);
        at += rows;
    }
    return cut;
}

static int32_t part_of(mn_model_graph *g, const char *name, int layer, bool optional,
                       mn_row_part part, uint32_t n_dim, int64_t cols) {
    char full[NAME];
    char own[NAME + 32];
    full_name(name, layer, full);
    const mn_model_tensor_entry *e = find(g, full, optional);
    if (!e || !check_shape(g, &e->info, n_dim, (int64_t[]){part.total, cols}) ||
        !check_type(g, &e->info))
        return -1;
    const mn_model_tensor_entry *cut = cut_rows(g, e, part.lo, part.n);
    snprintf(own, sizeof own, "%s[%lld]", full, (long long)part.lo);
    return cut ? mn_gb_weight(g, own, e->info.dtype.id, n_dim, (int64_t[]){part.n, cols},
                              (mn_graph_weight){-1, cut, NULL})
               : -1;
}

int32_t mn_g_part_vector(mn_model_graph *g, const char *name, int layer, bool optional,
                         mn_row_part part) {
    return part_of(g, name, layer, optional, part, 1, 0);
}

int32_t mn_g_part_matrix(mn_model_graph *g, const char *name, int layer, bool optional,
                         mn_row_part part, int64_t cols) {
    return part_of(g, name, layer, optional, part, 2, cols);
}

/* ---- widened --------------------------------------------------------------------------------- */

/* The file may be unaligned: bytes are copied out one value at a time. */
static float value_at(const mn_plane *p, int64_t i) {
    const char *at = (const char *)p->ptr + i * p->stride[0];
    uint16_t half;
    float f;
    if (p->dtype == MN_F32)
        return memcpy(&f, at, sizeof f), f;
    memcpy(&half, at, sizeof half);
    return p->dtype == MN_F16 ? mn_f16_to_f32(half) : mn_bf16_to_f32(half);
}

const float *mn_gb_widen(mn_model_graph *g, const char *full, bool optional, int64_t n) {
    const mn_model_tensor_entry *e = find(g, full, optional);
    if (!e || !check_shape(g, &e->info, 1, &n))
        return NULL;
    const uint32_t type = e->info.dtype.id;
    if (e->info.n_parts != 1 || (type != MN_F32 && type != MN_F16 && type != MN_BF16)) {
        mn_gb_fail(g, mn_fail(g->err, MN_UNSUPPORTED,
                              "%s: tensor %.*s has the type %s; expected f32, f16 or bf16",
                              g->model->path, MN_STR_ARG(e->info.native), mn_dtype_name(type)));
        return NULL;
    }
    float *wide = mn_arena_alloc(&g->arena, (size_t)n, sizeof *wide);
    if (!wide)
        return mn_gb_no_memory(g), NULL;
    for (int64_t i = 0; i < n; i++)
        wide[i] = value_at(e->info.planes, i);
    return wide;
}

int32_t mn_g_vector_f32(mn_model_graph *g, const char *name, int layer, bool optional, int64_t n) {
    char full[NAME];
    full_name(name, layer, full);
    const float *wide = mn_gb_widen(g, full, optional, n);
    return wide ? mn_gb_weight(g, full, MN_F32, 1, &n, (mn_graph_weight){-1, NULL, wide}) : -1;
}

int32_t mn_g_ones(mn_model_graph *g, int64_t n) {
    char name[32];
    snprintf(name, sizeof name, "ones.%lld", (long long)n);
    for (uint32_t i = 0; i < g->n_weights; i++) {
        const int32_t t = g->weights[i].tensor;
        if (g->weights[i].constant && mn_str_is(g->abi.tensors[t].name, name))
            return t;
    }
    float *ones = g->status ? NULL : mn_arena_alloc(&g->arena, (size_t)n, sizeof *ones);
    if (!ones)
        return g->status ? -1 : (mn_gb_no_memory(g), -1);
    for (int64_t i = 0; i < n; i++)
        ones[i] = 1;
    return mn_gb_weight(g, name, MN_F32, 1, &n, (mn_graph_weight){-1, NULL, ones});
}

int32_t mn_g_scale_by(mn_model_graph *g, int layer, int32_t x, const char *name) {
    char full[NAME];
    full_name(name, layer, full);
    const float *factor = mn_gb_widen(g, full, true, 1);
    return factor ? mn_g_scale(g, layer, x, (double)*factor) : x;
}

void mn_g_refuse(mn_model_graph *g, const char *key, const char *what) {
    char full[NAME];
    int64_t n = 0;
    snprintf(full, sizeof full, "%s.%s", g->hp.arch, key);
    mn_status st =
        g->status ? MN_END : mn_meta_i64(&g->model->meta, full, 0, INT32_MAX, &n, g->err);
    if (st && st != MN_END)
        mn_gb_fail(g, mn_fail_in(g->err, st, "%s", g->model->path));
    if (n)
        mn_gb_fail(g, mn_fail(g->err, MN_UNSUPPORTED,
                              "%s: key %s is %lld: %s are not supported; expected 0",
                              g->model->path, full, (long long)n, what));
}
