/* graph_pieces.c -- weights of the graph that are parts of the model's tensors: rows, columns,
 * experts.
 *
 * Data stays where the loader's planes point: a part is a new entry, in the graph's arena, with
 * planes that begin further on. */
#include "graph/weights.h"
#include "model/rows.h"
#include <stdio.h>
#include <string.h>

enum { MAX_RUNS = 4 };

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
            to[i] = mn_plane_rows(whole, lo, n);
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
static int32_t rows_weight(mn_model_graph *g, const char *name, bool optional, mn_row_part part,
                           uint32_t n_dim, int64_t cols) {
    char full[MN_GB_NAME];
    char own[MN_GB_NAME + 32];
    const int64_t stored[] = {part.total, cols};
    const int64_t dim[] = {part.n, cols};
    mn_gb_full_name(g, name, full);
    const mn_model_tensor_entry *e = mn_gb_find(g, full, optional);
    if (!e || !mn_gb_fits(g, &e->info, n_dim, stored))
        return -1;
    const row_piece piece = {e, part.lo, part.n};
    const mn_model_tensor_entry *cut = cut_rows(g, &piece, 1);
    if (!cut)
        return -1;
    snprintf(own, sizeof own, "%s[%lld]", full, (long long)part.lo);
    const mn_graph_weight w = {.source = cut, .whole = e, .row_lo = part.lo};
    return mn_gb_weight_of(g, own, n_dim, dim, w);
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
    char full[MN_GB_NAME];
    char own[MN_GB_NAME + 32];
    const int64_t stored[] = {rows, total};
    const int64_t dim[] = {rows, cols};
    mn_gb_full_name(g, name, full);
    const mn_model_tensor_entry *e = mn_gb_find(g, full, false);
    if (!e || !mn_gb_fits(g, &e->info, 2, stored))
        return -1;
    const mn_model_tensor_entry *cut = entry_of_columns(g, e, first, cols);
    if (!cut)
        return -1;
    snprintf(own, sizeof own, "%s[:%lld]", full, (long long)first);
    return mn_gb_weight_of(g, own, 2, dim, (mn_graph_weight){.source = cut});
}

/* Rows of two tensors stand in one weight: they have to be stored alike. */
static bool are_alike(const mn_tensor_info *a, const mn_tensor_info *b) {
    return a->dtype.id == b->dtype.id && a->n_planes == b->n_planes;
}

static bool check_alike(mn_model_graph *g, const mn_tensor_info *a, const mn_tensor_info *b) {
    if (are_alike(a, b))
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
    char name[MN_GB_NAME];
    char full[MN_GB_NAME];
    snprintf(name, sizeof name, "%s%s", r->stem, ending);
    mn_gb_full_name(g, name, full);
    const mn_model_tensor_entry *e = mn_gb_find(g, full, optional && !first);
    if (!e || !mn_gb_fits(g, &e->info, cols ? 2 : 1, stored))
        return NULL;
    if (first && !cols && !check_alike(g, &first->info, &e->info))
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

static bool pieces_are_alike(const row_piece *pieces, uint32_t n) {
    for (uint32_t i = 1; i < n; i++)
        if (!are_alike(&pieces[0].e->info, &pieces[i].e->info))
            return false;
    return true;
}

/* The tensors that pieces are of, each once: where there are several, w->joined. */
static void note_joined(mn_model_graph *g, const row_piece *pieces, uint32_t n,
                        mn_graph_weight *w) {
    const mn_model_tensor_entry **of = mn_arena_alloc(&g->arena, MAX_RUNS, sizeof(void *));
    uint32_t n_of = 0;
    if (!of) {
        mn_gb_no_memory(g);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        bool known = false;
        for (uint32_t k = 0; k < n_of; k++)
            known |= of[k] == pieces[i].e;
        if (!known)
            of[n_of++] = pieces[i].e;
    }
    if (n_of < 2)
        return;
    w->joined = of;
    w->n_joined = n_of;
}

/* The rows of all pieces [n, cols] as F32 that the graph owns: files that quantise v finer than q
 * and k have no type in which they could stand together. */
static int32_t unpack_pieces(mn_model_graph *g, const char *full, const row_piece *pieces,
                             uint32_t n, const int64_t dim[2]) {
    float *values = mn_g_scratch(g, dim[0] * dim[1]);
    float *to = values;
    for (uint32_t i = 0; i < n && values; i++)
        for (int64_t k = 0; k < pieces[i].n; k++, to += dim[1]) {
            const uint64_t row = (uint64_t)(pieces[i].lo + k);
            const mn_status st =
                mn_row_unpack(g->model->types, &pieces[i].e->info, row, to, g->err);
            if (st) {
                mn_gb_fail(g, st);
                return -1;
            }
        }
    if (!values)
        return -1;
    mn_log(MN_LOG_INFO, "%s: %s is unpacked to f32: its rows are of tensors of several types",
           g->model->path, full);
    mn_graph_weight w = {.constant = values};
    note_joined(g, pieces, n, &w);
    return mn_gb_weight(g, full, MN_F32, 2, dim, w);
}

int32_t mn_g_runs(mn_model_graph *g, const char *own, const char *ending, bool optional,
                  const mn_row_run *runs, uint32_t n, int64_t cols) {
    char name[MN_GB_NAME];
    char full[MN_GB_NAME];
    uint32_t n_pieces;
    int64_t dim[] = {0, cols};
    row_piece *pieces = pieces_of(g, ending, optional, runs, n, cols, &n_pieces);
    if (!pieces)
        return -1;
    for (uint32_t i = 0; i < n_pieces; i++)
        dim[0] += pieces[i].n;
    snprintf(name, sizeof name, "%s%s", own, ending);
    mn_gb_full_name(g, name, full);
    if (!pieces_are_alike(pieces, n_pieces))
        return unpack_pieces(g, full, pieces, n_pieces, dim);
    const mn_model_tensor_entry *e = cut_rows(g, pieces, n_pieces);
    if (!e)
        return -1;
    mn_graph_weight w = {.source = e};
    note_joined(g, pieces, n_pieces, &w);
    return mn_gb_weight_of(g, full, cols ? 2 : 1, dim, w);
}

int32_t mn_g_part_vector(mn_model_graph *g, const char *name, bool optional, mn_row_part part) {
    return rows_weight(g, name, optional, part, 1, 0);
}

int32_t mn_g_part_matrix(mn_model_graph *g, const char *name, bool optional, mn_row_part part,
                         int64_t cols) {
    return rows_weight(g, name, optional, part, 2, cols);
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
    char full[MN_GB_NAME];
    char own[MN_GB_NAME + 32];
    const int64_t stored[] = {n, part.total, cols};
    const int64_t dim[] = {n, part.n, cols};
    mn_gb_full_name(g, name, full);
    const mn_model_tensor_entry *e = mn_gb_find(g, full, false);
    if (!e || !mn_gb_fits(g, &e->info, 3, stored))
        return -1;
    const mn_model_tensor_entry *cut = cut_experts(g, e, part);
    if (!cut)
        return -1;
    snprintf(own, sizeof own, "%s[%lld]", full, (long long)part.lo);
    return mn_gb_weight_of(g, own, 3, dim, (mn_graph_weight){.source = cut});
}

int32_t mn_g_first_experts(mn_model_graph *g, const char *name, int64_t n_stored, int64_t n,
                           mn_row_part part, int64_t cols) {
    char full[MN_GB_NAME];
    char own[MN_GB_NAME + 64];
    const int64_t stored[] = {n_stored, part.total, cols};
    const int64_t dim[] = {n, part.n, cols};
    mn_gb_full_name(g, name, full);
    const mn_model_tensor_entry *e = mn_gb_find(g, full, false);
    if (!e || !mn_gb_fits(g, &e->info, 3, stored))
        return -1;
    if (part.n < part.total)
        e = cut_experts(g, e, part);
    if (!e)
        return -1;
    const row_piece piece = {e, 0, n};
    const mn_model_tensor_entry *cut = cut_rows(g, &piece, 1);
    if (!cut)
        return -1;
    snprintf(own, sizeof own, "%s[%lld][:%lld]", full, (long long)part.lo, (long long)n);
    return mn_gb_weight_of(g, own, 3, dim, (mn_graph_weight){.source = cut});
}

int32_t mn_g_one_of(mn_model_graph *g, const char *name, int64_t at, int64_t n, int64_t rows,
                    int64_t cols) {
    const int64_t stored[] = {n, rows, cols};
    char full[MN_GB_NAME];
    char own[MN_GB_NAME + 32];
    mn_gb_full_name(g, name, full);
    const mn_model_tensor_entry *e = mn_gb_find(g, full, false);
    if (!e || !mn_gb_fits(g, &e->info, 3, stored))
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
    return mn_gb_weight_of(g, own, 2, stored + 1, (mn_graph_weight){.source = cut});
}
