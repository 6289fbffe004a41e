/* source_rules.c -- how the sources of weights lie in memory, and how long: rules call.sources and
 * honesty.kept. A table stands before the plugin's; its weights_put gives each source memory of its
 * own, transposed and in two parts where a rule wants it, and its weights_seal spoils that memory
 * where the plugin says that it is not used any more. The table and the memory are static: a rule
 * has its process for itself. */
#include "life.h"
#include "wide.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BLOCKS = 256, SPOILED = 0xff };

static const mn_backend *real;
static bool strided;
static uint32_t kept; /* what weights_seal said last */
static struct {
    void *at;
    uint64_t n;
} blocks[MOST_BLOCKS]; /* of the sources of one set */
static uint32_t n_blocks;

static uint8_t *block_new(uint64_t n) {
    if (n_blocks == MOST_BLOCKS)
        return NULL;
    uint8_t *p = malloc(n + 1);
    if (!p)
        return NULL;
    memset(p, SPOILED, n + 1);
    blocks[n_blocks].at = p;
    blocks[n_blocks].n = n;
    n_blocks++;
    return p;
}

static void blocks_free(void) {
    for (uint32_t i = 0; i < n_blocks; i++)
        free(blocks[i].at);
    n_blocks = 0;
}

/* ---- one part in another layout -------------------------------------------------------------- */
/* Steps along dim d of a plane: blocks in the last. */
static int64_t steps(const mn_plane *p, uint32_t n_dim, uint32_t d) {
    return d + 1 == n_dim ? p->dim[d] / case_dtype(p->dtype).block_elems : p->dim[d];
}

/* Strides of rows [first, first + n) along dim 0 in memory of their own: the last two dims change
 * places where an element is a value; blocks stay together, with gaps between rows; a vector has
 * gaps. */
static void strides_of(mn_plane *p, uint32_t n_dim) {
    const mn_dtype t = case_dtype(p->dtype);
    int64_t stride = t.block_bytes;
    const uint32_t last = n_dim - 1;
    if (n_dim == 1 || t.block_elems > 1) {
        p->stride[last] = stride;
        if (n_dim == 1)
            p->stride[0] = 3 * stride;
        stride *= steps(p, n_dim, last) + 1;
        for (uint32_t d = last; d-- > 0; stride *= p->dim[d])
            p->stride[d] = stride;
        return;
    }
    p->stride[last - 1] = stride;
    p->stride[last] = stride * p->dim[last - 1];
    stride = p->stride[last] * p->dim[last];
    if (n_dim == 3)
        p->stride[0] = stride;
}

/* Copies part of a plane: n of its steps along dim 0 from `first` on, at most three dims. false =
 * out of memory. */
static bool part_move(const mn_plane *from, uint32_t n_dim, int64_t first, int64_t n,
                      mn_plane *to) {
    const uint32_t size = case_dtype(from->dtype).block_bytes;
    int64_t at[3] = {0};
    int64_t count[3] = {1, 1, 1};
    *to = *from;
    to->dim[0] = n_dim == 1 ? n * case_dtype(from->dtype).block_elems : n;
    strides_of(to, n_dim);
    to->bytes = size;
    for (uint32_t d = 0; d < n_dim; d++) {
        count[d] = steps(to, n_dim, d);
        to->bytes += (uint64_t)((count[d] - 1) * to->stride[d]);
    }
    uint8_t *block = block_new(to->bytes);
    to->ptr = block;
    if (!block)
        return false;
    for (at[0] = 0; at[0] < count[0]; at[0]++)
        for (at[1] = 0; at[1] < count[1]; at[1]++)
            for (at[2] = 0; at[2] < count[2]; at[2]++) {
                int64_t x = first * from->stride[0];
                int64_t y = 0;
                for (uint32_t d = 0; d < n_dim; d++) {
                    x += at[d] * from->stride[d];
                    y += at[d] * to->stride[d];
                }
                memcpy(block + y, (const uint8_t *)from->ptr + x, size);
            }
    return true;
}

/* ---- the table ------------------------------------------------------------------------------- */
/* The source in memory of its own as it is. */
static bool copy_source(const mn_weight_src *src, mn_plane *planes) {
    const uint64_t n = (uint64_t)src->n_parts * src->n_planes;
    for (uint64_t i = 0; i < n; i++) {
        const void *p = (const char *)src->planes + i * src->plane_stride;
        memcpy(&planes[i], p, sizeof *planes);
        uint8_t *block = block_new(planes[i].bytes);
        if (!block)
            return false;
        memcpy(block, planes[i].ptr, planes[i].bytes);
        planes[i].ptr = block;
    }
    return true;
}

/* A source of one plane in one part, as two parts with other strides; a vector has one. The number
 * of parts, 0 = out of memory. n_dim: of its tensor. */
static uint32_t move_source(const mn_weight_src *src, mn_plane *planes) {
    const mn_plane *from = src->planes;
    uint32_t n_dim = 0;
    while (n_dim < 3 && from->dim[n_dim])
        n_dim++;
    const int64_t n = steps(from, n_dim, 0);
    const int64_t half = n_dim == 1 || n == 1 ? n : (n + 1) / 2;
    if (!part_move(from, n_dim, 0, half, &planes[0]))
        return 0;
    if (half == n)
        return 1;
    return part_move(from, n_dim, half, n - half, &planes[1]) ? 2 : 0;
}

static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **ev,
                             mn_error *err) {
    mn_plane planes[64] = {{0}};
    mn_weight_src own = *src;
    const bool one = src->n_parts == 1 && src->n_planes == 1;
    own.planes = planes;
    own.plane_stride = sizeof *planes;
    if (strided && one)
        own.n_parts = move_source(src, planes);
    else if (src->n_parts * src->n_planes > 64 || !copy_source(src, planes))
        own.n_parts = 0;
    if (!own.n_parts)
        return MN_OUT_OF_MEMORY;
    return real->weights_put(w, q, &own, ev, err);
}

static mn_status weights_seal(mn_weights *w, mn_queue *q, uint32_t *how, mn_error *err) {
    const mn_status st = real->weights_seal(w, q, how, err);
    kept = st ? 0 : *how;
    for (uint32_t i = 0; i < n_blocks && !st && !(kept & MN_KEPT_ALIASED); i++)
        memset(blocks[i].at, SPOILED, blocks[i].n);
    return st;
}

static const mn_backend *sources_backend(const mn_backend *be, bool moved) {
    static mn_backend table;
    real = be;
    strided = moved;
    memset(&table, 0, sizeof table);
    memcpy(&table, be, be->size < sizeof table ? be->size : sizeof table);
    table.weights_put = weights_put;
    table.weights_seal = weights_seal;
    return &table;
}

/* ---- the rules ------------------------------------------------------------------------------- */
static uint32_t n_aliased, n_programs;

static bool has_weights(const op_case *o) {
    for (uint32_t i = 0; i < o->g.n_tensors; i++)
        if (o->t[i].role == MN_ROLE_WEIGHT)
            return true;
    return false;
}

/* plain and moved are twins: one runs with the sources as they are, the other through the table. */
static void compare_sources(check *c, stage *s, op_case *plain, op_case *moved, const char *what) {
    mn_error err = check_error();
    case_on on = s->on;
    on.be = sources_backend(strided ? wide_backend(s->p.be) : s->p.be, strided);
    mn_status st = case_run(&s->on, plain, MN_PRECISION_EXACT, &err);
    CHECK_OK(c, st, &err, "%s", what);
    check_doing(c, "%s ran with sources of weights %s", what,
                strided ? "transposed and in two parts" : "that are spoiled behind weights_seal");
    st = case_run(&on, moved, MN_PRECISION_EXACT, &err);
    blocks_free();
    if (strided)
        CHECK_OK(c, st, &err, "%s with weights transposed, or with gaps, and in two parts", what);
    else
        CHECK_OK(c, st, &err, "%s", what);
    const double d = case_differ(moved, plain, NULL);
    if (strided)
        CHECK(c, d < 1e-5,
              "%s with weights transposed, or with gaps, and in two parts: results differ by %g "
              "from those of dense weights, expected the same",
              what, d);
    CHECK(c, d < 1e-5,
          "%s: weights_seal says 0x%x, without MN_KEPT_ALIASED, and the results differ by %g when "
          "the sources are overwritten afterwards, expected the same",
          what, kept, d);
    n_aliased += (kept & MN_KEPT_ALIASED) != 0;
    n_programs++;
}

static void sources_of(check *c, stage *s, uint32_t op, uint32_t dtype) {
    op_shape shape = life_shape();
    char what[80];
    if (dtype != MN_F32)
        shape.k = 256; /* whole blocks of every type */
    op_case *plain = case_random(op, dtype, &shape, 7);
    op_case *moved = case_random(op, dtype, &shape, 7);
    CHECK(c, plain && moved, "out of memory");
    snprintf(what, sizeof what, "%s with weights in %s", case_op_name(op), mn_dtype_name(dtype));
    if (has_weights(plain) && case_supported(&s->on, plain))
        compare_sources(c, s, plain, moved, what);
    case_free(plain);
    case_free(moved);
}

/* In f32; LINEAR in every type. */
static void sources_of_op(check *c, stage *s, op_case *o, uint32_t op) {
    (void)o;
    sources_of(c, s, op, MN_F32);
    for (uint32_t k = 0; op == MN_OP_LINEAR && mn_dtype_at(k) && !check_over(c); k++)
        if (mn_dtype_at(k) != MN_F32 && case_is_weight_type(mn_dtype_at(k)))
            sources_of(c, s, op, mn_dtype_at(k));
}

void check_call_sources(check *c) {
    stage s;
    strided = true;
    if (stage_device(c, &s))
        stage_each_op(c, &s, sources_of_op);
    check_found(c, "%u programs", n_programs);
}

void check_honesty_kept(check *c) {
    stage s;
    strided = false;
    if (stage_device(c, &s))
        stage_each_op(c, &s, sources_of_op);
    check_found(c, "%u programs, %u of which use weights in place", n_programs, n_aliased);
}
