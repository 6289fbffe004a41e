/* write.c -- rows of the model, turned on all threads and written in order. */
#include "convert/convert.h"
#include "convert/rows.h"
#include "convert/quant.h"
#include "convert/output.h"
#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { CHUNK_BYTES = 16 << 20 };

typedef struct {
    const mn_out_tensor *t;
    uint64_t first, n; /* rows of this chunk */
    uint8_t *out;
    float *scratch; /* [workers][2 * widest row] */
    uint64_t widest;
    _Atomic uint64_t next;
    /* 1 + the first row found with a value that the type cannot hold; 0 = none */
    _Atomic uint64_t bad;
} chunk;

static bool is_plain_copy(const mn_out_tensor *t) {
    return t->src && t->src->dtype.id == t->type.id && t->src->n_planes == 1 && t->add == 0;
}

static void copy_row(const mn_out_tensor *t, uint64_t row, uint8_t *out) {
    const mn_row_place p = mn_row_find(t->src, row, 0);
    if (p.step == (int64_t)t->type.block_bytes) {
        memcpy(out, p.at, t->row_bytes);
        return;
    }
    for (uint64_t b = 0; b < t->row_bytes / t->type.block_bytes; b++)
        memcpy(out + b * t->type.block_bytes, p.at + (int64_t)b * p.step, t->type.block_bytes);
}

/* MXFP4 with its scales apart -> in one block: nibbles of neighbours -> of the two halves. */
static void join_mxfp4(const mn_out_tensor *t, uint64_t row, uint8_t *out) {
    const mn_row_place d = mn_row_find(t->src, row, 0);
    const mn_row_place s = mn_row_find(t->src, row, 1);
    for (int64_t b = 0; b < (int64_t)(t->cols / 32); b++, out += 17) {
        const uint8_t *q = d.at + b * d.step;
        out[0] = s.at[b * s.step];
        for (int i = 0; i < 16; i++) {
            const int low = q[i / 2] >> 4 * (i % 2) & 15;
            const int high = q[8 + i / 2] >> 4 * (i % 2) & 15;
            out[1 + i] = (uint8_t)(low | high << 4);
        }
    }
}

/* MLX of up to four bits whose scales and biases are f16: the same codes in blocks of 32. */
static void join_mlx(const mn_out_tensor *t, uint64_t row, uint8_t *out) {
    const mn_row_place d = mn_row_find(t->src, row, 0);
    const mn_row_place s = mn_row_find(t->src, row, 1);
    const mn_row_place m = mn_row_find(t->src, row, 2);
    const uint32_t bits = mn_mlx_bits(t->src->dtype.id);
    const mn_plane *scale =
        (const mn_plane *)(const void *)((const char *)t->src->planes + t->src->plane_stride);
    const mn_plane *bias =
        (const mn_plane *)(const void *)((const char *)t->src->planes + 2 * t->src->plane_stride);
    for (int64_t at = 0; at < (int64_t)t->cols; at += 32, out += 20) {
        const int64_t b = at / t->src->dtype.block_elems;
        const int64_t from = at % t->src->dtype.block_elems;
        mn_put_half(out, mn_plane_value(scale->dtype, s.at + b * s.step));
        mn_put_half(out + 2, mn_plane_value(bias->dtype, m.at + b * m.step));
        for (int i = 0; i < 16; i++)
            out[4 + i] = (uint8_t)(mn_bit_stream(d.at + b * d.step, from + i, bits) |
                                   mn_bit_stream(d.at + b * d.step, from + 16 + i, bits) << 4);
    }
}

/* What the type cannot hold: NaN and infinities, and in f16 what is over its range. */
static bool fits(const float *x, uint64_t n, uint32_t dtype) {
    const float most = dtype == MN_F16 ? 65519.0f : 3.4e38f;
    uint32_t bad = 0;
    for (uint64_t i = 0; i < n; i++)
        bad |= !(fabsf(x[i]) <= most);
    return !bad;
}

/* A vector's own elements are what an order moves. */
static void reorder(const mn_out_tensor *t, float *x, float *spare) {
    if (t->n_dim != 1 || !t->order.head)
        return;
    memcpy(spare, x, t->cols * sizeof *x);
    for (uint64_t i = 0; i < t->cols; i++)
        x[i] = spare[mn_row_of(t->order, i)];
}

static bool make_row(const mn_out_tensor *t, uint64_t row, float *x, uint64_t widest,
                     uint8_t *out) {
    const uint64_t from = t->n_dim > 1 ? mn_row_of(t->order, row) : row;
    if (t->values)
        return memcpy(out, t->values, t->bytes), true;
    if (is_plain_copy(t) && (t->n_dim > 1 || !t->order.head))
        return copy_row(t, from, out), true;
    if (t->src->dtype.id == MN_MXFP4_SPLIT && t->type.id == MN_MXFP4)
        return join_mxfp4(t, from, out), true;
    if (t->codes)
        return join_mlx(t, from, out), true;
    mn_row_values(t->src, from, x);
    reorder(t, x, x + widest);
    for (uint64_t i = 0; i < t->cols && t->add != 0; i++)
        x[i] += t->add;
    if (!fits(x, t->cols, t->type.id))
        return false;
    mn_quant_row(t->type.id, x, (int64_t)t->cols, out);
    return true;
}

static void run_chunk(void *arg, uint32_t worker, uint32_t n_workers) {
    (void)n_workers;
    chunk *c = arg;
    const uint64_t grain = c->t->row_bytes < 65536 ? 65536 / (c->t->row_bytes + 1) + 1 : 1;
    float *x = c->scratch + 2 * c->widest * worker;
    for (;;) {
        const uint64_t lo = atomic_fetch_add(&c->next, grain);
        const uint64_t hi = MN_MIN(lo + grain, c->n);
        if (lo >= c->n || atomic_load(&c->bad))
            return;
        for (uint64_t r = lo; r < hi; r++) {
            uint64_t none = 0;
            if (make_row(c->t, c->first + r, x, c->widest, c->out + r * c->t->row_bytes))
                continue;
            atomic_compare_exchange_strong(&c->bad, &none, c->first + r + 1);
            return;
        }
    }
}

static mn_status write_tensor(mn_output *f, const mn_convert_plan *p, chunk *c,
                              const mn_convert_run *run, uint64_t *done, mn_error *err) {
    static const char zeros[32] = {0};
    const mn_out_tensor *t = c->t;
    const uint64_t step = MN_MAX(CHUNK_BYTES / t->row_bytes, 1);
    mn_status st = MN_OK;
    for (c->first = 0; c->first < t->rows && !st; c->first += c->n) {
        c->n = MN_MIN(step, t->rows - c->first);
        atomic_store(&c->next, 0);
        st = mn_pool_run(run->pool, mn_pool_workers(run->pool), run_chunk, c);
        if (st)
            return mn_fail(err, st, "%s: the threads are in use", p->model->path);
        if (atomic_load(&c->bad))
            return mn_fail(err, MN_BAD_FILE,
                           "%s: tensor %.*s: row %llu holds a value that %s cannot: NaN, an "
                           "infinity or too large",
                           p->model->path, MN_STR_ARG(t->src->native),
                           (unsigned long long)atomic_load(&c->bad) - 1, mn_dtype_name(t->type.id));
        st = mn_output_put(f, c->out, c->n * t->row_bytes, err);
        *done += c->n * t->row_bytes;
        if (!st && run->progress && run->progress(run->arg, *done, p->data_bytes))
            st = mn_fail(err, MN_CANCELLED, "stopped before it was done");
    }
    if (!st && t->bytes % 32) {
        st = mn_output_put(f, zeros, 32 - t->bytes % 32, err);
        *done += 32 - t->bytes % 32;
    }
    return st;
}

static mn_status write_all(mn_output *f, const mn_convert_plan *p, const mn_text *head,
                           const mn_convert_run *run, mn_error *err) {
    chunk c = {0};
    uint64_t largest = CHUNK_BYTES;
    uint64_t done = 0;
    for (size_t i = 0; i < p->n_tensors; i++) {
        c.widest = MN_MAX(c.widest, p->tensors[i].cols);
        largest = MN_MAX(largest, p->tensors[i].row_bytes);
    }
    c.out = mn_alloc(1, largest);
    c.scratch = mn_alloc(2 * (size_t)mn_pool_workers(run->pool), c.widest * sizeof *c.scratch);
    mn_status st = c.out && c.scratch ? mn_output_put(f, head->ptr, head->len, err)
                                      : mn_fail_memory(err, largest);
    for (size_t i = 0; i < p->n_tensors && !st; i++) {
        c.t = &p->tensors[i];
        st = write_tensor(f, p, &c, run, &done, err);
    }
    mn_free(c.out);
    mn_free(c.scratch);
    return st;
}

mn_status mn_convert_write(const mn_convert_plan *p, const char *path, const mn_convert_run *run,
                           mn_error *err) {
    mn_text head = {0};
    mn_output f;
    mn_status st = mn_gguf_header(p, &head, err);
    if (!st)
        st = mn_output_open(path, head.len + p->data_bytes, run->force, &f, err);
    if (!st) {
        st = mn_canonical_settle(p->model, true, write_all(&f, p, &head, run, err), err);
        st = mn_output_close(&f, st, err);
    }
    mn_text_free(&head);
    return st;
}
