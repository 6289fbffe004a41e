/* graph_weights.c -- weights of the graph: the model's tensors by name and shape, parts of their
 * rows, small ones widened to F32.
 *
 * Data stays where the loader's planes point: a part of the rows is a new entry with planes that
 * begin further on. Only what the host widens or makes is memory of the graph's own (its arena).
 * Every failure names file and tensor as the checkpoint calls it. */
#include "graph/build.h"
#include "model/rows.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 128, MAX_POSITIONS = 1 << 17, MAX_RUNS = 4 };

/* "blk.%d.attn_q.weight" with the number of the layer that g is at. */
static void full_name(const mn_model_graph *g, const char *name, char full[NAME]) {
    const char *mark = strstr(name, "%d");
    if (!mark) {
        snprintf(full, NAME, "%s", name);
        return;
    }
    const int before = (int)(mark - name);
    const bool decodes = g->hp.n_encoder && g->layer >= g->hp.n_encoder;
    const char *half = "";
    int layer = g->layer;
    if (g->hp.n_encoder)
        half = decodes ? "dec." : "enc.";
    if (decodes)
        layer -= (int)g->hp.n_encoder;
    snprintf(full, NAME, "%s%.*s%d%s", half, before, name, layer, mark + 2);
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

/* What most checkpoints call the tensors outside of layers; NULL = not one of these. */
static const char *native_name(const char *full) {
    static const char *const top[][2] = {{"token_embd.weight", "model.embed_tokens.weight"},
                                         {"output_norm.weight", "model.norm.weight"},
                                         {"output.weight", "lm_head.weight"}};
    for (size_t i = 0; i < MN_COUNT(top); i++)
        if (!strcmp(full, top[i][0]))
            return top[i][1];
    return NULL;
}

/* A tensor that is missing: an error unless it is optional and no other layer has it. */
static void absent(mn_model_graph *g, const char *full, bool optional) {
    const mn_model_tensor_entry *other = of_other_layer(g, full);
    const char *path = g->model->path;
    const char *native = native_name(full);
    if (!other && optional)
        return;
    if (other)
        mn_fail(g->err, MN_BAD_FILE, "%s: tensor %s is missing; another layer has it as %.*s", path,
                full, MN_STR_ARG(other->info.native));
    else if (native)
        mn_fail(g->err, MN_BAD_FILE, "%s: tensor %s is missing (in checkpoints such as %s)", path,
                full, native);
    else
        mn_fail(g->err, MN_BAD_FILE, "%s: tensor %s is missing", path, full);
    mn_gb_fail(g, MN_BAD_FILE);
}

/* NULL: the tensor is absent, or g has failed. */
static const mn_model_tensor_entry *graph_weight_find(mn_model_graph *g, const char *full,
                                                      bool optional) {
    if (g->status)
        return NULL;
    const mn_model_tensor_entry *e = mn_canonical_tensor(g->model, full);
    if (e)
        g->asked[e - g->model->tensors] = 1;
    if (!e)
        absent(g, full, optional);
    return e;
}

/* Whether the weight that the bias `name` belongs to is part of the graph. */
static bool has_used_weight(const mn_model_graph *g, mn_str name) {
    const size_t stem = name.len - strlen(".bias");
    char weight[NAME];
    snprintf(weight, sizeof weight, "%.*s.weight", (int)MN_MIN(stem, NAME - 8), name.ptr);
    const mn_model_tensor_entry *e = mn_canonical_tensor(g->model, weight);
    return e && g->asked[e - g->model->tensors];
}

void mn_gb_check_biases(mn_model_graph *g) {
    const mn_canonical *m = g->model;
    for (size_t i = 0; i < m->n_tensors && !g->status; i++) {
        const mn_tensor_info *t = &m->tensors[i].info;
        if (g->asked[i] || !mn_str_ends(t->name, ".bias") || !has_used_weight(g, t->name))
            continue;
        mn_status st = mn_fail(g->err, MN_UNSUPPORTED,
                               "%s: tensor %.*s: the architecture %s has no bias here; expected "
                               "its weight alone",
                               m->path, MN_STR_ARG(t->native), g->hp.arch);
        mn_gb_fail(g, st);
    }
}

/* "4096, 512" into text; it ends early where it does not fit. */
static void print_shape(const int64_t *dim, uint32_t n_dim, char *text, size_t cap) {
    size_t len = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < n_dim && len < cap; i++) {
        const char *comma = "";
        if (i)
            comma = ", ";
        len += (size_t)snprintf(text + len, cap - len, "%s%lld", comma, (long long)dim[i]);
    }
}

static bool check_shape(mn_model_graph *g, const mn_tensor_info *t, uint32_t n_dim,
                        const int64_t *want) {
    char found[MN_MAX_DIM * 24];
    char expected[MN_MAX_DIM * 24];
    if (t->n_dim == n_dim && !memcmp(t->dim, want, n_dim * sizeof *want))
        return true;
    print_shape(t->dim, t->n_dim, found, sizeof found);
    print_shape(want, n_dim, expected, sizeof expected);
    mn_status st = mn_fail(g->err, MN_BAD_FILE,
                           "%s: tensor %.*s has the shape [%s]; the hyper-parameters say [%s]",
                           g->model->path, MN_STR_ARG(t->native), found, expected);
    return mn_gb_fail(g, st);
}

/* Bare integers are not numbers that a model multiplies with. */
static bool check_type(mn_model_graph *g, const mn_tensor_info *t) {
    const uint32_t id = t->dtype.id;
    if (mn_dtype_is_weight(id) || mn_is_vendor_type(id))
        return true;
    mn_status st = mn_fail(g->err, MN_UNSUPPORTED,
                           "%s: tensor %.*s has the type %s; expected a type of weights",
                           g->model->path, MN_STR_ARG(t->native), mn_dtype_name(id));
    return mn_gb_fail(g, st);
}

/* Shape and type are those of a weight [dim]; false: g has failed. */
static bool graph_weight_fits(mn_model_graph *g, const mn_tensor_info *t, uint32_t n_dim,
                              const int64_t *dim) {
    return check_shape(g, t, n_dim, dim) && check_type(g, t);
}

/* Tied weights are asked for twice and are one tensor; -1 = not there yet. */
static int32_t known_weight(const mn_model_graph *g, const mn_model_tensor_entry *e) {
    for (uint32_t i = 0; i < g->n_weights; i++)
        if (g->weights[i].source == e)
            return g->weights[i].tensor;
    return -1;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The file may be unaligned: bytes are copied out one value at a time. */
static float graph_weight_value_at(const mn_plane *p, int64_t i) {
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

/* false: g has failed. */
static bool check_widenable(mn_model_graph *g, const mn_tensor_info *t) {
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

/* All elements of a vector, whatever its parts, or of one row; NULL: g has failed. */
static const float *widen_vector(mn_model_graph *g, const mn_tensor_info *t) {
    const uint32_t last = t->n_dim - 1;
    if (!check_widenable(g, t))
        return NULL;
    float *wide = mn_arena_alloc(&g->arena, (size_t)t->dim[last], sizeof *wide);
    int64_t n = 0;
    for (uint32_t p = 0; wide && p < t->n_parts; p++) {
        mn_plane part = *mn_tensor_plane(t, p, 0);
        part.stride[0] = part.stride[last];
        for (int64_t i = 0; i < part.dim[last]; i++)
            wide[n++] = graph_weight_value_at(&part, i);
    }
    if (!wide)
        mn_gb_no_memory(g);
    return wide;
}

const float *mn_gb_widen(mn_model_graph *g, const char *full, bool optional, int64_t n) {
    const mn_model_tensor_entry *e = graph_weight_find(g, full, optional);
    if (!e || (!is_one_row(&e->info, n) && !check_shape(g, &e->info, 1, &n)))
        return NULL;
    return widen_vector(g, &e->info);
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
            *to++ = graph_weight_value_at(&one, 0);
            for (uint32_t d = t->n_dim; d-- && ++at[d] == part->dim[d];)
                at[d] = 0;
        }
    }
}

int64_t mn_gb_flat(mn_model_graph *g, const char *name, bool optional, float *to, int64_t room) {
    char full[NAME];
    full_name(g, name, full);
    const mn_model_tensor_entry *e = graph_weight_find(g, full, optional);
    if (!e || !check_widenable(g, &e->info))
        return 0;
    if ((int64_t)e->n_elements <= room)
        flat_values(&e->info, to);
    return (int64_t)e->n_elements;
}

/* A weight of the graph from an entry; a vector in parts is gathered: plugins get it as one. */
static int32_t weight_of(mn_model_graph *g, const char *name, uint32_t n_dim, const int64_t *dim,
                         mn_graph_weight w) {
    const mn_model_tensor_entry *e = w.source;
    uint32_t type = e->info.dtype.id;
    if (n_dim == 1 && e->info.n_parts > 1) {
        w = (mn_graph_weight){.constant = widen_vector(g, &e->info)};
        type = MN_F32;
        if (!w.constant)
            return -1;
    }
    return mn_gb_weight(g, name, type, n_dim, dim, w);
}

/* The model's tensor of this name, all of it; -1 = absent, or g has failed. */
static int32_t graph_weight_whole(mn_model_graph *g, const char *name, bool optional,
                                  uint32_t n_dim, const int64_t *dim) {
    char full[NAME];
    full_name(g, name, full);
    const mn_model_tensor_entry *e = graph_weight_find(g, full, optional);
    if (!e || !graph_weight_fits(g, &e->info, n_dim, dim))
        return -1;
    const int32_t known = known_weight(g, e);
    if (known >= 0)
        return known;
    return weight_of(g, full, n_dim, dim, (mn_graph_weight){.source = e, .whole = e});
}

int32_t mn_g_vector(mn_model_graph *g, const char *name, bool optional, int64_t n) {
    return graph_weight_whole(g, name, optional, 1, &n);
}

int32_t mn_g_matrix(mn_model_graph *g, const char *name, bool optional, int64_t rows,
                    int64_t cols) {
    const int64_t dim[] = {rows, cols};
    return graph_weight_whole(g, name, optional, 2, dim);
}

int32_t mn_g_table(mn_model_graph *g, const char *name, int64_t cols) {
    const mn_model_tensor_entry *e = mn_canonical_tensor(g->model, name);
    return mn_g_matrix(g, name, false, e ? e->info.dim[0] : 0, cols);
}

int32_t mn_g_experts(mn_model_graph *g, const char *name, bool optional, int64_t n, int64_t rows,
                     int64_t cols) {
    const int64_t dim[] = {n, rows, cols};
    return graph_weight_whole(g, name, optional, 3, dim);
}

bool mn_g_has(const mn_model_graph *g, const char *name) {
    char full[NAME];
    full_name(g, name, full);
    return mn_canonical_tensor(g->model, full) != NULL;
}

int64_t mn_g_rows_of(const mn_model_graph *g, const char *name) {
    char full[NAME];
    full_name(g, name, full);
    const mn_model_tensor_entry *e = mn_canonical_tensor(g->model, full);
    return e ? e->info.dim[0] : 0;
}

void mn_g_ignore(mn_model_graph *g, const char *name) {
    char full[NAME];
    full_name(g, name, full);
    const mn_model_tensor_entry *e = mn_canonical_tensor(g->model, full);
    if (e && !g->status)
        g->asked[e - g->model->tensors] = 1;
}

/* ---- parts of rows --------------------------------------------------------------------------- */

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

/* Rows [lo, lo + n) of a tensor: what a weight of the graph is put together from. */
typedef struct {
    const mn_model_tensor_entry *e;
    int64_t lo, n;
} row_piece;

static int64_t rows_of_part(const mn_tensor_info *t) {
    return mn_tensor_plane(t, 0, 0)->dim[0];
}

static int64_t greatest_divisor(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Rows per part of a cut: plugins want parts of one height (but the last), also where a piece
 * begins inside of a stored part. */
static int64_t cut_height(const row_piece *p, uint32_t n) {
    int64_t height = 0;
    if (n == 1 && p->e->info.n_parts == 1)
        height = p->n;
    for (uint32_t i = 0; i < n; i++) {
        const mn_tensor_info *t = &p[i].e->info;
        if (n > 1)
            height = greatest_divisor(height, p[i].n);
        if (t->n_parts == 1)
            continue;
        height = greatest_divisor(height, rows_of_part(t));
        height = greatest_divisor(height, p[i].lo % rows_of_part(t));
    }
    return height;
}

/* Rows [lo, lo + n) of part p, whose planes go to `to`. */
static void cut_part(const mn_tensor_info *t, uint32_t p, int64_t lo, int64_t n, mn_plane *to) {
    const int64_t rows = mn_tensor_plane(t, p, 0)->dim[0];
    for (uint32_t i = 0; i < t->n_planes; i++) {
        const mn_plane *whole = mn_tensor_plane(t, p, i);
        if (whole->dim[0] == rows)
            to[i] = cut_plane(whole, lo, n);
        else
            to[i] = *whole;
    }
}

/* Rows [lo, lo + n) of the tensor as parts of `height` rows, into planes; returns how many
 * parts. */
static uint32_t cut_parts(const mn_tensor_info *t, int64_t lo, int64_t n, int64_t height,
                          mn_plane *planes) {
    uint32_t n_parts = 0;
    int64_t at = 0; /* first row of the stored part */
    for (uint32_t p = 0; p < t->n_parts; p++) {
        const int64_t rows = mn_tensor_plane(t, p, 0)->dim[0];
        const int64_t to = MN_MIN(lo + n, at + rows);
        for (int64_t from = MN_MAX(lo, at); from < to; from += height) {
            const int64_t taken = MN_MIN(height, to - from);
            cut_part(t, p, from - at, taken, planes + (size_t)n_parts * t->n_planes);
            n_parts++;
        }
        at += rows;
    }
    return n_parts;
}

/* An entry of the graph's own with the pieces one behind the other; NULL = out of memory, and g has
 * failed. */
static mn_model_tensor_entry *cut_rows(mn_model_graph *g, const row_piece *p, uint32_t n) {
    const int64_t height = cut_height(p, n);
    size_t most = 0;
    int64_t rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        most += (size_t)(p[i].n / height) + p[i].e->info.n_parts;
        rows += p[i].n;
    }
    const mn_tensor_info *t = &p->e->info;
    const uint64_t total = (uint64_t)t->dim[0];
    mn_model_tensor_entry *cut = mn_arena_alloc(&g->arena, 1, sizeof *cut);
    mn_plane *planes = mn_arena_alloc(&g->arena, most * t->n_planes, sizeof *planes);
    if (!cut || !planes) {
        mn_gb_no_memory(g);
        return NULL;
    }
    *cut = *p->e;
    cut->info.planes = planes;
    cut->info.plane_stride = sizeof *planes;
    cut->info.n_parts = 0;
    for (uint32_t i = 0; i < n; i++)
        cut->info.n_parts += cut_parts(&p[i].e->info, p[i].lo, p[i].n, height,
                                       planes + (size_t)cut->info.n_parts * t->n_planes);
    cut->info.dim[0] = rows;
    cut->n_elements = p->e->n_elements / total * (uint64_t)rows;
    cut->bytes = p->e->bytes / total * (uint64_t)rows;
    return cut;
}

/* Some rows of a tensor, as one of the graph with a name of its own. */
static int32_t graph_weight_part_of(mn_model_graph *g, const char *name, bool optional,
                                    mn_row_part part, uint32_t n_dim, int64_t cols) {
    char full[NAME];
    char own[NAME + 32];
    const int64_t stored[] = {part.total, cols};
    const int64_t dim[] = {part.n, cols};
    full_name(g, name, full);
    const mn_model_tensor_entry *e = graph_weight_find(g, full, optional);
    if (!e || !graph_weight_fits(g, &e->info, n_dim, stored))
        return -1;
    const row_piece piece = {e, part.lo, part.n};
    const mn_model_tensor_entry *cut = cut_rows(g, &piece, 1);
    if (!cut)
        return -1;
    snprintf(own, sizeof own, "%s[%lld]", full, (long long)part.lo);
    const mn_graph_weight w = {.source = cut, .whole = e, .row_lo = part.lo};
    return weight_of(g, own, n_dim, dim, w);
}

/* Columns [first, first + n) of a plane of `cols` columns, which may be blocks; false: a block has
 * columns on both sides, or what the plane says of a column depends on others. */
static bool cut_columns(mn_plane *p, int64_t block, int64_t cols, int64_t first, int64_t n) {
    const bool data = p->kind == MN_PLANE_DATA;
    if (p->kind == MN_PLANE_TENSOR_SCALE)
        return true;
    if (p->kind == MN_PLANE_PICK || p->dim[1] < 1 || cols % p->dim[1])
        return false;
    const int64_t each = data ? block : cols / p->dim[1]; /* columns of a step of the stride */
    if (first % each || n % each)
        return false;
    const uint64_t skipped = (uint64_t)(first / each * p->stride[1]);
    p->ptr = (const char *)p->ptr + skipped;
    p->dim[1] = data ? n : n / each;
    p->bytes = (uint64_t)((p->dim[0] - 1) * p->stride[0] + n / each * p->stride[1]);
    return true;
}

/* An entry of the graph's own; NULL: g has failed. */
static const mn_model_tensor_entry *
entry_of_columns(mn_model_graph *g, const mn_model_tensor_entry *e, int64_t first, int64_t n) {
    const mn_tensor_info *t = &e->info;
    const size_t n_planes = (size_t)t->n_parts * t->n_planes;
    mn_model_tensor_entry *cut = mn_arena_alloc(&g->arena, 1, sizeof *cut);
    mn_plane *planes = mn_arena_alloc(&g->arena, n_planes, sizeof *planes);
    bool can = true;
    if (!cut || !planes) {
        mn_gb_no_memory(g);
        return NULL;
    }
    for (size_t i = 0; i < n_planes; i++) {
        planes[i] = *mn_tensor_plane(t, (uint32_t)(i / t->n_planes), (uint32_t)(i % t->n_planes));
        can = can && cut_columns(&planes[i], t->dtype.block_elems, t->dim[1], first, n);
    }
    if (!can) {
        mn_gb_fail(g, mn_fail(g->err, MN_UNSUPPORTED,
                              "%s: tensor %.*s: blocks of %s have columns of both of its halves",
                              g->model->path, MN_STR_ARG(t->native), mn_dtype_name(t->dtype.id)));
        return NULL;
    }
    *cut = *e;
    cut->info.planes = planes;
    cut->info.plane_stride = sizeof *planes;
    cut->info.dim[1] = n;
    cut->n_elements = e->n_elements / (uint64_t)t->dim[1] * (uint64_t)n;
    cut->bytes = e->bytes / (uint64_t)t->dim[1] * (uint64_t)n;
    return cut;
}

int32_t mn_g_columns(mn_model_graph *g, const char *name, int64_t rows, int64_t total,
                     int64_t first, int64_t cols) {
    char full[NAME];
    char own[NAME + 32];
    const int64_t stored[] = {rows, total};
    const int64_t dim[] = {rows, cols};
    full_name(g, name, full);
    const mn_model_tensor_entry *e = graph_weight_find(g, full, false);
    if (!e || !graph_weight_fits(g, &e->info, 2, stored))
        return -1;
    const mn_model_tensor_entry *cut = entry_of_columns(g, e, first, cols);
    if (!cut)
        return -1;
    snprintf(own, sizeof own, "%s[:%lld]", full, (long long)first);
    return weight_of(g, own, 2, dim, (mn_graph_weight){.source = cut});
}

/* Rows of two tensors stand in one weight: they have to be stored alike. */
static bool check_alike(mn_model_graph *g, const mn_tensor_info *a, const mn_tensor_info *b) {
    const bool alike = a->dtype.id == b->dtype.id && a->n_planes == b->n_planes;
    if (alike)
        return true;
    mn_status st = mn_fail(g->err, MN_UNSUPPORTED,
                           "%s: tensor %.*s has the type %s; expected %s, as tensor %.*s has, "
                           "whose rows are in the same product",
                           g->model->path, MN_STR_ARG(b->native), mn_dtype_name(b->dtype.id),
                           mn_dtype_name(a->dtype.id), MN_STR_ARG(a->native));
    return mn_gb_fail(g, st);
}

/* The entry of a run's tensor; NULL: it is absent, or g has failed. first: of the run before it. */
static const mn_model_tensor_entry *find_run(mn_model_graph *g, const char *ending, bool optional,
                                             const mn_row_run *r, int64_t cols,
                                             const mn_model_tensor_entry *first) {
    const int64_t stored[] = {r->total, cols};
    char name[NAME];
    char full[NAME];
    snprintf(name, sizeof name, "%s%s", r->stem, ending);
    full_name(g, name, full);
    const mn_model_tensor_entry *e = graph_weight_find(g, full, optional && !first);
    if (!e || !graph_weight_fits(g, &e->info, cols ? 2 : 1, stored))
        return NULL;
    if (first && !check_alike(g, &first->info, &e->info))
        return NULL;
    return e;
}

/* The tensors of the runs into e [n]; false: one is absent, or g has failed. How many pieces there
 * are follows from keys: they are believed once they fit the tensors. */
static bool find_runs(mn_model_graph *g, const char *ending, bool optional, const mn_row_run *runs,
                      uint32_t n, int64_t cols, const mn_model_tensor_entry **e) {
    for (uint32_t i = 0; i < n; i++) {
        e[i] = find_run(g, ending, optional, &runs[i], cols, i ? e[i - 1] : NULL);
        if (!e[i])
            return false;
    }
    return true;
}

/* All pieces of the runs, [*n_pieces]; NULL: a tensor is absent, or g has failed. */
static row_piece *pieces_of(mn_model_graph *g, const char *ending, bool optional,
                            const mn_row_run *runs, uint32_t n, int64_t cols, uint32_t *n_pieces) {
    const mn_model_tensor_entry *e[MAX_RUNS];
    *n_pieces = 0;
    if (!find_runs(g, ending, optional, runs, n, cols, e))
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        *n_pieces += (uint32_t)runs[i].count;
    row_piece *pieces = mn_arena_alloc(&g->arena, *n_pieces, sizeof *pieces);
    if (!pieces)
        mn_gb_no_memory(g);
    row_piece *to = pieces;
    for (uint32_t i = 0; i < n && pieces; i++) {
        const mn_row_run *r = &runs[i];
        for (int64_t k = 0; k < r->count; k++) {
            to->e = e[i];
            to->lo = r->lo + k * r->step;
            to->n = r->n;
            to++;
        }
    }
    return pieces;
}

int32_t mn_g_runs(mn_model_graph *g, const char *own, const char *ending, bool optional,
                  const mn_row_run *runs, uint32_t n, int64_t cols) {
    char name[NAME];
    char full[NAME];
    uint32_t n_pieces;
    int64_t dim[] = {0, cols};
    row_piece *pieces = pieces_of(g, ending, optional, runs, n, cols, &n_pieces);
    if (!pieces)
        return -1;
    const mn_model_tensor_entry *e = cut_rows(g, pieces, n_pieces);
    if (!e)
        return -1;
    for (uint32_t i = 0; i < n_pieces; i++)
        dim[0] += pieces[i].n;
    snprintf(name, sizeof name, "%s%s", own, ending);
    full_name(g, name, full);
    return weight_of(g, full, cols ? 2 : 1, dim, (mn_graph_weight){.source = e});
}

int32_t mn_g_part_vector(mn_model_graph *g, const char *name, bool optional, mn_row_part part) {
    return graph_weight_part_of(g, name, optional, part, 1, 0);
}

int32_t mn_g_part_matrix(mn_model_graph *g, const char *name, bool optional, mn_row_part part,
                         int64_t cols) {
    return graph_weight_part_of(g, name, optional, part, 2, cols);
}

/* An entry of the graph's own with rows [lo, lo + n) of every expert of e; NULL as above. The bytes
 * between two experts' rows belong to other parts. */
static mn_model_tensor_entry *cut_experts(mn_model_graph *g, const mn_model_tensor_entry *e,
                                          mn_row_part part) {
    const size_t n_planes = (size_t)e->info.n_parts * e->info.n_planes;
    mn_model_tensor_entry *cut = mn_arena_alloc(&g->arena, 1, sizeof *cut);
    mn_plane *planes = mn_arena_alloc(&g->arena, n_planes, sizeof *planes);
    if (!cut || !planes) {
        mn_gb_no_memory(g);
        return NULL;
    }
    *cut = *e;
    for (size_t i = 0; i < n_planes; i++) {
        mn_plane *p = &planes[i];
        *p = *mn_tensor_plane(&e->info, (uint32_t)i / e->info.n_planes,
                              (uint32_t)i % e->info.n_planes);
        if (p->dim[1] != part.total) /* one value for all rows */
            continue;
        const uint64_t skipped = (uint64_t)part.lo * (uint64_t)p->stride[1];
        p->ptr = (const char *)p->ptr + skipped;
        p->bytes -= skipped;
        p->dim[1] = part.n;
    }
    cut->info.planes = planes;
    cut->info.plane_stride = sizeof *planes;
    cut->info.dim[1] = part.n;
    cut->n_elements = e->n_elements / (uint64_t)part.total * (uint64_t)part.n;
    cut->bytes = e->bytes / (uint64_t)part.total * (uint64_t)part.n;
    return cut;
}

int32_t mn_g_part_experts(mn_model_graph *g, const char *name, int64_t n, mn_row_part part,
                          int64_t cols) {
    char full[NAME];
    char own[NAME + 32];
    const int64_t stored[] = {n, part.total, cols};
    const int64_t dim[] = {n, part.n, cols};
    full_name(g, name, full);
    const mn_model_tensor_entry *e = graph_weight_find(g, full, false);
    if (!e || !graph_weight_fits(g, &e->info, 3, stored))
        return -1;
    const mn_model_tensor_entry *cut = cut_experts(g, e, part);
    if (!cut)
        return -1;
    snprintf(own, sizeof own, "%s[%lld]", full, (long long)part.lo);
    return weight_of(g, own, 3, dim, (mn_graph_weight){.source = cut});
}

/* ---- widened --------------------------------------------------------------------------------- */

int32_t mn_g_vector_f32(mn_model_graph *g, const char *name, bool optional, int64_t n) {
    char full[NAME];
    full_name(g, name, full);
    const mn_graph_weight w = {.constant = mn_gb_widen(g, full, optional, n)};
    if (w.constant)
        return mn_gb_weight(g, full, MN_F32, 1, &n, w);
    return -1;
}

int32_t mn_g_vector_plus(mn_model_graph *g, const char *name, int64_t n, double offset) {
    char full[NAME];
    full_name(g, name, full);
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
    char full[NAME];
    full_name(g, name, full);
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

/* The constant of this name; -1: there is none yet. */
static int32_t known_constant(const mn_model_graph *g, const char *name) {
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
    const int32_t known = known_constant(g, name);
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
    char full[NAME];
    char own[NAME + 32];
    float whole[MOST];
    full_name(g, name, full);
    const mn_model_tensor_entry *e = graph_weight_find(g, full, false);
    const int64_t stored[] = {rows, cols};
    if (!e || !check_shape(g, &e->info, 2, stored))
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

int32_t mn_g_one_of(mn_model_graph *g, const char *name, int64_t at, int64_t n, int64_t rows,
                    int64_t cols) {
    const int64_t stored[] = {n, rows, cols};
    char full[NAME];
    char own[NAME + 32];
    full_name(g, name, full);
    const mn_model_tensor_entry *e = graph_weight_find(g, full, false);
    if (!e || !graph_weight_fits(g, &e->info, 3, stored))
        return -1;
    const row_piece piece = {e, at, 1};
    mn_model_tensor_entry *cut = cut_rows(g, &piece, 1);
    if (!cut)
        return -1;
    mn_plane *planes = mn_arena_alloc(&g->arena, cut->info.n_planes, sizeof *planes);
    if (!planes) {
        mn_gb_no_memory(g);
        return -1;
    }
    for (uint32_t i = 0; i < cut->info.n_planes; i++) {
        planes[i] = *mn_tensor_plane(&cut->info, 0, i);
        for (uint32_t d = 0; d + 1 < MN_MAX_DIM; d++) {
            planes[i].dim[d] = planes[i].dim[d + 1];
            planes[i].stride[d] = planes[i].stride[d + 1];
        }
    }
    cut->info.planes = planes;
    cut->info.n_dim = 2;
    cut->info.dim[0] = rows;
    cut->info.dim[1] = cols;
    snprintf(own, sizeof own, "%s[%lld]", full, (long long)at);
    return weight_of(g, own, 2, stored + 1, (mn_graph_weight){.source = cut});
}

/* Row `row` of a table [rows, n], a plain float type, added to out [n]. */
static void graph_weight_add_row(const mn_tensor_info *t, int64_t row, int64_t n, float *out) {
    const uint32_t last = t->n_dim - 1;
    mn_plane line = *t->planes;
    if (last)
        line.ptr = (const char *)line.ptr + row * line.stride[0];
    line.stride[0] = line.stride[last];
    for (int64_t i = 0; i < n; i++)
        out[i] += graph_weight_value_at(&line, i);
}

/* The sum of each position's row and that of type 0; pos may be NULL. */
static int32_t sum_tables(mn_model_graph *g, const mn_tensor_info *pos,
                          const mn_tensor_info *types) {
    const int64_t dim[] = {g->hp.n_ctx_train, g->hp.n_embd};
    if ((pos && !check_widenable(g, pos)) || !check_widenable(g, types))
        return -1;
    float *sums = mn_arena_alloc(&g->arena, (size_t)(dim[0] * dim[1]), sizeof *sums);
    if (!sums) {
        mn_gb_no_memory(g);
        return -1;
    }
    for (int64_t i = 0; i < dim[0]; i++) {
        float *row = sums + i * dim[1]; // [D], zeroed by the arena
        graph_weight_add_row(types, 0, dim[1], row);
        if (pos)
            graph_weight_add_row(pos, i, dim[1], row);
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
    const bool rotates = g->hp.layer[0].rope >= 0;
    const mn_model_tensor_entry *pos = graph_weight_find(g, "position_embd.weight", rotates);
    const mn_model_tensor_entry *types = graph_weight_find(g, "token_types.weight", true);
    if (g->status || (pos && !check_shape(g, &pos->info, 2, dim)))
        return -1;
    if (!types)
        return mn_g_matrix(g, "position_embd.weight", true, dim[0], dim[1]);
    const mn_tensor_info *t = &types->info;
    if (!pos && !check_context(g))
        return -1;
    const int64_t as_stored[] = {t->n_dim == 2 ? t->dim[0] : dim[1], dim[1]};
    if (!check_shape(g, t, t->n_dim == 2 ? 2 : 1, as_stored))
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
    const mn_model_tensor_entry *e = graph_weight_find(g, "token_embd.weight", false);
    if (!e || !graph_weight_fits(g, &e->info, 2, (const int64_t[]){V, D}) ||
        !check_widenable(g, &types->info) ||
        !check_shape(g, &types->info, 2, (const int64_t[]){types->info.dim[0], D}))
        return -1;
    float *rows = mn_arena_alloc(&g->arena, (size_t)(2 * V * D), sizeof *rows);
    float *change = mn_arena_alloc(&g->arena, (size_t)D, sizeof *change); // [D]: type 1 - type 0
    if (!rows || !change) {
        mn_gb_no_memory(g);
        return -1;
    }
    graph_weight_add_row(&types->info, 0, D, change);
    for (int64_t d = 0; d < D; d++)
        change[d] = -change[d];
    graph_weight_add_row(&types->info, 1, D, change);
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
    char full[NAME];
    full_name(g, name, full);
    const float *factor = mn_gb_widen(g, full, true, 1);
    if (factor)
        return mn_g_scale(g, x, (double)*factor);
    return x;
}

void mn_g_need(mn_model_graph *g, const char *key) {
    if (g->status)
        return;
    mn_gb_fail(
        g, mn_fail(g->err, MN_BAD_FILE, "%s: missing key %s.%s", g->model->path, g->hp.arch, key));
}

void mn_g_refuse(mn_model_graph *g, const char *key, const char *what) {
    char full[NAME];
    int64_t n = 0;
    if (g->status)
        return;
    snprintf(full, sizeof full, "%s.%s", g->hp.arch, key);
    mn_status st = mn_meta_i64(&g->model->meta, full, 0, INT32_MAX, &n, g->err);
    if (st && st != MN_END)
        mn_gb_fail(g, mn_fail_in(g->err, st, "%s", g->model->path));
    if (!n)
        return;
    st = mn_fail(g->err, MN_UNSUPPORTED, "%s: key %s is %lld: %s are not supported; expected 0",
                 g->model->path, full, (long long)n, what);
    mn_gb_fail(g, st);
}
