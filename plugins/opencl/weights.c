/* weights.c -- weights stream from the mapped file to the device: rows of blocks as stored, padded
 * to whole pieces of 16; scales beside them as f32, or as stored where they stood in front of
 * blocks. A type without a row in the table, and everything that is no matrix, is unpacked to f32
 * by dtype/ on the host.
 *
 * Sources are the host's until the event; bytes travel through the queue's ring, or, where memory
 * is shared, are written into the mapped buffer. */
#include "backend.h"
#include "source_rows.h"
#include "types.h"

bool ocl_is_matrix(const mn_node *n, uint32_t i) {
    switch (n->op) {
    case MN_OP_EMBED:
        return i == MN_EMBED_WEIGHT;
    case MN_OP_LINEAR:
        return i >= MN_LINEAR_WEIGHT && (i - MN_LINEAR_WEIGHT) % 2 == 0;
    case MN_OP_MOE_LINEAR:
        return i >= MN_MOE_LINEAR_WEIGHT && (i - MN_MOE_LINEAR_WEIGHT) % 2 == 0;
    default:
        return false;
    }
}

static mn_dtype dtype_of(const ocl_weight *w) {
    mn_dtype t = {0};
    mn_dtype_by_id(w->type->dtype, &t);
    return t;
}

int ocl_blocks(const ocl_weight *w) {
    const mn_dtype t = dtype_of(w);
    if (t.n_planes < 2 && !w->type->head)
        return 0;
    return (int)(w->cols / t.block_elems);
}

/* Bytes of a row of the plane of scales. */
static uint64_t value_bytes(const ocl_weight *w) {
    const uint64_t each = w->type->head ? w->type->head : sizeof(float);
    return (uint64_t)ocl_blocks(w) * each;
}

enum { SLACK = 256 /* behind a weight: kernels read whole vectors */ };

/* Where the planes of a part lie; its bytes. */
static uint64_t shape_part(ocl_weight *w) {
    const uint64_t data = w->row_bytes * (uint64_t)w->part_rows;
    const uint64_t plane = value_bytes(w) * (uint64_t)w->part_rows;
    w->scale_at = (uint64_t)mnp_round((int64_t)data, 64);
    w->bias_at = (uint64_t)mnp_round((int64_t)(w->scale_at + plane), 64);
    return w->bias_at + plane + SLACK;
}

/* Parts of at most so many bytes, where rows are no longer than that. together: rows that stay in
 * one part. Returns the bytes of a part. */
static uint64_t split(ocl_weight *w, int64_t together, uint64_t most) {
    const uint64_t one = (w->row_bytes + 2 * value_bytes(w)) * (uint64_t)together;
    const uint64_t room = most > 2 * SLACK ? most - 2 * SLACK : 0;
    const int64_t all = w->rows / together;
    int64_t fit = one ? (int64_t)(room / one) : all;
    if (fit < 1)
        fit = 1;
    const int64_t n = (all + fit - 1) / fit;
    w->part_rows = (all + n - 1) / n * together;
    w->n_parts = (uint32_t)((w->rows + w->part_rows - 1) / w->part_rows);
    return shape_part(w);
}

uint64_t ocl_weight_shape(const mn_device *d, const mn_tensor *t, bool matrix, ocl_weight *w) {
    w->flat = !matrix;
    w->type = ocl_type_of(matrix ? t->dtype.id : (uint32_t)MN_F32);
    w->rows = 1;
    for (uint32_t i = 0; i + 1 < t->n_dim; i++)
        w->rows *= t->dim[i];
    w->cols = t->dim[t->n_dim - 1];
    const mn_dtype type = dtype_of(w);
    int64_t elements = w->cols;
    if (matrix && type.block_elems < OCL_PIECE)
        elements = mnp_round(elements, OCL_PIECE);
    w->row_bytes = (uint64_t)elements / type.block_elems * (type.block_bytes - w->type->head);
    w->n_parts = 1;
    w->part_rows = w->rows;
    const uint64_t bytes = shape_part(w);
    if (!matrix || bytes <= d->max_buffer)
        return bytes;
    return split(w, t->n_dim > 2 ? t->dim[t->n_dim - 2] : 1, d->max_buffer);
}

uint64_t ocl_weight_bytes(const mn_device *d, const mn_tensor *t, bool matrix) {
    ocl_weight w = {0};
    const uint64_t part = ocl_weight_shape(d, t, matrix, &w);
    return w.n_parts * (part + SLACK);
}

/* Marks what the segment reads, and what of it is a matrix. */
static void mark(mn_weights *w, const mn_compile *c) {
    for (uint32_t node = c->node_lo; node < c->node_hi; node++) {
        const mn_node *n = mnp_node(c->graph, node);
        for (uint32_t i = 0; i < n->n_in; i++) {
            const int32_t t = mnp_in(c->graph, n, i);
            if (t < 0 || mnp_tensor(c->graph, (uint32_t)t)->role != MN_ROLE_WEIGHT)
                continue;
            if (!w->w[t].wanted)
                w->w[t].flat = true;
            w->w[t].wanted = true;
            if (ocl_is_matrix(n, i))
                w->w[t].flat = false;
        }
    }
}

mn_status ocl_weights_open(mn_device *d, const mn_compile *in, mn_weights **out, mn_error *err) {
    mn_compile c;
    const mn_status st = mnp_read_compile(in, &c, err);
    if (st)
        return st;
    const uint64_t bytes = c.graph->n_tensors * sizeof(ocl_weight);
    mn_weights *w = ocl_new(d, sizeof *w);
    if (w)
        w->w = ocl_new(d, bytes);
    if (!w || !w->w) {
        ocl_delete(d, w);
        return mnp_fail_memory(err, bytes, "a weight set");
    }
    w->dev = d;
    w->graph = c.graph;
    mark(w, &c);
    *out = w;
    return MN_OK;
}

/* ---- sources --------------------------------------------------------------------------------- */
/* A source against the tensor it is for; puts come once. */
static mn_status check(const mn_weights *w, const mn_weight_src *s, mn_error *err) {
    mn_status st = mnp_check_source(w->graph, s, 3, err);
    if (st)
        return st;
    const mn_tensor *t = mnp_tensor(w->graph, s->tensor);
    if (w->w[s->tensor].put)
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s was put before", MNP_NAME(t));
    if (s->n_planes < t->dtype.n_planes)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%.*s: %u planes, the type has %u", MNP_NAME(t),
                        s->n_planes, t->dtype.n_planes);
    for (uint32_t i = 0; i < s->n_parts && !st; i++)
        for (uint32_t k = 1; k < s->n_planes && !st; k++)
            st = mnp_check_extra_plane(t, mnp_plane(s, i, 0), mnp_plane(s, i, k), k, err);
    return st;
}

/* ---- rows gather on the host and leave together, or are written where they stay -------------- */
enum { CHUNK = 1 << 20 };

/* Writes the next row to `to`; one for each plane of a weight. */
typedef void (*row_fn)(const ocl_weight *w, const mnp_source_row *s, uint8_t *to);

static void write_blocks(const ocl_weight *w, const mnp_source_row *s, uint8_t *to) {
    const mn_plane *p = mnp_plane(s->s, s->part, 0);
    const uint8_t *from = mnp_row_at(s, 0, 1);
    const uint32_t last = s->t->n_dim - 1;
    const uint32_t bytes = s->t->dtype.block_bytes;
    const uint32_t head = w->type->head;
    const int64_t blocks = p->dim[last] / s->t->dtype.block_elems;
    if (!head && p->stride[last] == bytes) {
        memcpy(to, from, (size_t)blocks * bytes);
        return;
    }
    for (int64_t b = 0; b < blocks; b++)
        memcpy(to + b * (bytes - head), from + b * p->stride[last] + head, bytes - head);
}

/* The scales that stand in front of the blocks. */
static void write_heads(const ocl_weight *w, const mnp_source_row *s, uint8_t *to) {
    const mn_plane *p = mnp_plane(s->s, s->part, 0);
    const uint8_t *from = mnp_row_at(s, 0, 1);
    const int64_t step = p->stride[s->t->n_dim - 1];
    for (int i = 0; i < ocl_blocks(w); i++)
        memcpy(to + i * w->type->head, from + i * step, w->type->head);
}

static void write_unpacked(const ocl_weight *w, const mnp_source_row *s, uint8_t *to) {
    const mn_stored_row stored = mnp_stored_row(s);
    mn_dequant_row(&stored, w->cols, (float *)(void *)to);
}

static void write_values(const ocl_weight *w, const mnp_source_row *s, uint32_t plane,
                         uint8_t *to) {
    const mn_plane *p = mnp_plane(s->s, s->part, plane);
    const uint8_t *at = mnp_row_at(s, plane, 1);
    float *values = (float *)(void *)to;
    for (int i = 0; i < ocl_blocks(w); i++)
        values[i] = mn_plane_value(p->dtype, at + i * p->stride[s->t->n_dim - 1]);
}
static void write_scales(const ocl_weight *w, const mnp_source_row *s, uint8_t *to) {
    write_values(w, s, 1, to);
}
static void write_biases(const ocl_weight *w, const mnp_source_row *s, uint8_t *to) {
    write_values(w, s, 2, to);
}

/* A plane on its way to the device: its rows begin at `at` of each part. */
typedef struct {
    const ocl_weight *w;
    row_fn write;
    uint64_t at;
    uint64_t row_bytes;
} plane_to;

/* Rows [first, first + n) of a plane, which lie in one part; s: at the first one, moved on. buffer:
 * room for them, zeroed: padding is never written. */
static mn_status send_rows(mn_queue *q, const plane_to *p, mnp_source_row *s, int64_t first,
                           int64_t n, uint8_t *buffer, mn_error *err) {
    const uint64_t at = p->at + (uint64_t)(first % p->w->part_rows) * p->row_bytes;
    for (int64_t r = 0; r < n; r++, mnp_next_row(s))
        p->write(p->w, s, buffer + (uint64_t)r * p->row_bytes);
    return ocl_send(q, p->w->mem[first / p->w->part_rows], at, buffer, (uint64_t)n * p->row_bytes,
                    err);
}

/* The same where the memory is the host's: nothing is copied twice. */
static mn_status map_rows(mn_queue *q, const plane_to *p, mnp_source_row *s, int64_t first,
                          int64_t n, mn_error *err) {
    const ocl_icd *cl = q->dev->cl;
    const uint64_t at = p->at + (uint64_t)(first % p->w->part_rows) * p->row_bytes;
    cl_mem mem = p->w->mem[first / p->w->part_rows];
    cl_int code;
    uint8_t *to = cl->EnqueueMapBuffer(q->cl, mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, at,
                                       (uint64_t)n * p->row_bytes, 0, NULL, NULL, &code);
    OCL_TRY(code, err, "mapping a weight");
    for (int64_t r = 0; r < n; r++, mnp_next_row(s))
        p->write(p->w, s, to + (uint64_t)r * p->row_bytes);
    return ocl_check(cl->EnqueueUnmapMemObject(q->cl, mem, to, 0, NULL, NULL), err,
                     "unmapping a weight");
}

/* All rows of a plane, as many at a time as CHUNK has room for. buffer: NULL where they are
 * mapped. */
static mn_status put_plane(mn_queue *q, const plane_to *p, mnp_source_row s, uint8_t *buffer,
                           mn_error *err) {
    const uint64_t fit = CHUNK / (p->row_bytes ? p->row_bytes : 1);
    const int64_t most = fit ? (int64_t)fit : 1;
    mn_status st = MN_OK;
    for (int64_t first = 0; first < p->w->rows && !st;) {
        const int64_t in_part = p->w->part_rows - first % p->w->part_rows;
        const int64_t left = p->w->rows - first < in_part ? p->w->rows - first : in_part;
        const int64_t n = left < most ? left : most;
        if (buffer)
            st = send_rows(q, p, &s, first, n, buffer, err);
        else
            st = map_rows(q, p, &s, first, n, err);
        first += n;
    }
    return st;
}

static mn_status put_planes(mn_queue *q, const ocl_weight *w, const mnp_source_row *s,
                            mn_error *err) {
    const uint64_t values = value_bytes(w);
    const uint64_t longest = w->row_bytes > values ? w->row_bytes : values;
    const uint64_t room = longest > CHUNK ? longest : CHUNK;
    uint8_t *buffer = NULL;
    if (!q->dev->shares_host)
        buffer = ocl_new(q->dev, room);
    if (!buffer && !q->dev->shares_host)
        return mnp_fail_memory(err, room, "rows of a weight");
    const bool as_stored = !w->flat && w->type->dtype == s->t->dtype.id;
    const plane_to data = {w, as_stored ? write_blocks : write_unpacked, 0, w->row_bytes};
    const plane_to scales = {w, w->type->head ? write_heads : write_scales, w->scale_at, values};
    const plane_to biases = {w, write_biases, w->bias_at, values};
    mn_status st = put_plane(q, &data, *s, buffer, err);
    if (!st && values)
        st = put_plane(q, &scales, *s, buffer, err);
    if (!st && values && s->s->n_planes > 2)
        st = put_plane(q, &biases, *s, buffer, err);
    ocl_delete(q->dev, buffer);
    return st;
}

/* Memory of all parts; what is there after an error goes with the weight set. */
static mn_status take_parts(mn_device *d, ocl_weight *w, uint64_t bytes, mn_error *err) {
    const uint64_t list = w->n_parts * sizeof *w->mem;
    mn_status st = MN_OK;
    w->mem = ocl_new(d, list);
    if (!w->mem)
        return mnp_fail_memory(err, list, "a weight");
    for (uint32_t i = 0; i < w->n_parts && !st; i++)
        st = ocl_take_written(d, bytes, "weights", &w->mem[i], err);
    return st;
}

mn_status ocl_weights_put(mn_weights *set, mn_queue *q, const mn_weight_src *in, mn_event **event,
                          mn_error *err) {
    mn_weight_src src;
    mnp_read(&src, sizeof src, in, in->size);
    if (event)
        *event = NULL;
    mn_status st = check(set, &src, err);
    if (!st)
        st = ocl_check_abort(q, err);
    if (st || !set->w[src.tensor].wanted)
        return st;
    const mn_tensor *t = mnp_tensor(set->graph, src.tensor);
    ocl_weight *w = &set->w[src.tensor];
    const uint64_t bytes = ocl_weight_shape(set->dev, t, !w->flat, w);
    if ((uint64_t)w->rows >> 40 || (uint64_t)w->cols >> 31 || bytes >> 46)
        return mnp_fail(err, MN_INVALID, ~0u, "%.*s: its size overflows", MNP_NAME(t));
    st = take_parts(set->dev, w, bytes, err);
    if (st)
        return st;
    mnp_source_row s = mnp_first_row(t, &src);
    /* the file's bytes are read when this returns; an event is not needed for them */
    st = put_planes(q, w, &s, err);
    w->put = !st;
    if (st || !event)
        return st;
    return ocl_event_new(q, event, err);
}

mn_status ocl_weights_seal(mn_weights *w, mn_queue *q, uint32_t *kept_how, mn_error *err) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->graph->n_tensors; i++) {
        if (w->w[i].wanted && !w->w[i].put)
            return mnp_fail(err, MN_INVALID, ~0u, "weight %.*s is missing",
                            MNP_NAME(mnp_tensor(w->graph, i)));
        if (w->w[i].put)
            kept |= MN_KEPT_COPIED;
    }
    OCL_TRY(w->dev->cl->Finish(q->cl), err, "weights");
    if (kept_how)
        *kept_how = kept;
    return MN_OK;
}

static void free_parts(const mn_device *d, ocl_weight *w) {
    for (uint32_t i = 0; w->mem && i < w->n_parts; i++)
        if (w->mem[i])
            d->cl->ReleaseMemObject(w->mem[i]);
    ocl_delete(d, w->mem);
}

void ocl_weights_free(mn_weights *w) {
    if (!w)
        return;
    for (uint32_t i = 0; i < w->graph->n_tensors; i++)
        free_parts(w->dev, &w->w[i]);
    ocl_delete(w->dev, w->w);
    ocl_delete(w->dev, w);
}
