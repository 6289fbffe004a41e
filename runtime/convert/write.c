/* write.c -- rows of the model, converted on all threads and written in order.
 *
 * A chunk is as many rows of one tensor as fill CHUNK_BYTES of the output: the threads of the pool
 * take rows of it from one counter, each with scratch of its own, then the calling thread writes
 * it. Where a stored form holds the same codes as the wanted one they are moved, not computed
 * anew. */
#include "convert/convert.h"
#include "model/rows.h"
#include "convert/quant.h"
#include "convert/output.h"
#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { CHUNK_BYTES = 16 << 20 };

typedef struct {
    const mn_out_tensor *t;
    const mn_vendor_types *types; /* of the model */
    uint64_t first, n;            /* rows of this chunk */
    uint8_t *out;
    float *scratch; /* [workers][2 * widest row] */
    uint64_t widest;
    _Atomic uint64_t next;
    /* 1 + the first row found with a value that the type cannot hold; 0 = none */
    _Atomic uint64_t bad;
} chunk;

static bool is_plain_copy(const mn_out_tensor *t) {
    if (!t->src || t->add != 0 || t->factors || t->n_merges ||
        t->columns.width % t->type.block_elems)
        return false;
    return t->src->dtype.id == t->type.id && t->src->n_planes == 1;
}

static void copy_row(const mn_out_tensor *t, uint64_t row, uint8_t *out) {
    const mn_row_place p = mn_row_find(t->src, row, 0);
    const uint64_t block = t->type.block_bytes;
    const uint64_t n = t->row_bytes / block;
    if (p.step == (int64_t)block && !t->columns.width) {
        memcpy(out, p.at, t->row_bytes);
        return;
    }
    mn_row_order blocks = t->columns;
    blocks.width /= t->type.block_elems;
    for (uint64_t b = 0; b < n; b++)
        memcpy(out + b * block, p.at + (int64_t)mn_row_of(blocks, b) * p.step, block);
}

/* MXFP4 with its scales apart -> in one block: nibbles of neighbours -> of the two halves. */
static void join_mxfp4(const mn_out_tensor *t, uint64_t row, uint8_t *out) {
    const mn_row_place d = mn_row_find(t->src, row, 0);
    const mn_row_place s = mn_row_find(t->src, row, 1);
    const int64_t n = (int64_t)(t->cols / 32);
    for (int64_t b = 0; b < n; b++) {
        const uint8_t *pairs = d.at + b * d.step;
        uint8_t q[32];
        for (int i = 0; i < 16; i++) {
            q[2 * i] = pairs[i] & 15;
            q[2 * i + 1] = pairs[i] >> 4;
        }
        out[0] = s.at[b * s.step];
        mn_put_nibbles(q, out + 1);
        out += 17;
    }
}

/* MLX of up to four bits whose scales and biases are f16: the same codes in blocks of 32. */
static void join_mlx(const mn_out_tensor *t, uint64_t row, uint8_t *out) {
    const mn_row_place d = mn_row_find(t->src, row, 0);
    const mn_row_place s = mn_row_find(t->src, row, 1);
    const mn_row_place m = mn_row_find(t->src, row, 2);
    const uint32_t bits = mn_mlx_bits(t->src->dtype.id);
    const uint32_t scale_type = mn_tensor_plane(t->src, 0, 1)->dtype;
    const uint32_t bias_type = mn_tensor_plane(t->src, 0, 2)->dtype;
    const int64_t group = t->src->dtype.block_elems;
    for (int64_t at = 0; at < (int64_t)t->cols; at += 32) {
        const int64_t b = at / group;
        const uint8_t *codes = d.at + b * d.step;
        uint8_t q[32];
        for (int i = 0; i < 32; i++)
            q[i] = (uint8_t)mn_bit_stream(codes, at % group + i, bits);
        mn_put_half(out, mn_plane_value(scale_type, s.at + b * s.step));
        mn_put_half(out + 2, mn_plane_value(bias_type, m.at + b * m.step));
        mn_put_nibbles(q, out + 4);
        out += 20;
    }
}

/* What the type cannot hold: NaN and infinities, and what is over the range of f16 and NVFP4. */
static bool convert_write_fits(const float *x, uint64_t n, uint32_t dtype) {
    float most = 3.4e38f;
    if (dtype == MN_F16)
        most = 65519.0f;
    if (dtype == MN_NVFP4_64)
        most = 2688.0f; /* 6 times the largest scale */
    uint32_t bad = 0;
    for (uint64_t i = 0; i < n; i++)
        bad |= !(fabsf(x[i]) <= most);
    return !bad;
}

/* A vector's own elements are what an order moves. */
static void reorder(const mn_out_tensor *t, float *x, float *spare) {
    const mn_row_order o = t->n_dim == 1 ? t->order : t->columns;
    if (!mn_row_order_moves(&o))
        return;
    memcpy(spare, x, t->cols * sizeof *x);
    for (uint64_t i = 0; i < t->cols; i++) {
        const uint64_t from = mn_row_of(o, i);
        x[i] = spare[from];
    }
}

/* Row `row` of t, if its stored form can be moved without computing values. */
static bool move_row(const mn_out_tensor *t, uint64_t row, uint8_t *out) {
    if (t->values)
        memcpy(out, t->values + row * t->cols, t->row_bytes);
    else if (is_plain_copy(t) && (t->n_dim > 1 || !mn_row_order_moves(&t->order)))
        copy_row(t, row, out);
    else if (t->src->dtype.id == MN_MXFP4_SPLIT && t->type.id == MN_MXFP4 && !t->n_merges &&
             !t->factors && !t->columns.width)
        join_mxfp4(t, row, out);
    else if (t->codes)
        join_mlx(t, row, out);
    else
        return false;
    return true;
}

/* x: scratch of twice the widest row. false: the row has a value that the type cannot hold. */
static bool make_row(const chunk *c, uint64_t row, float *x, uint8_t *out) {
    const mn_out_tensor *t = c->t;
    uint64_t from = row;
    if (t->n_dim > 1)
        from = mn_row_of(t->order, row);
    if (move_row(t, from, out))
        return true;
    mn_row_unpack(c->types, t->src, from, x, NULL); /* a row of NaN is found below */
    for (uint32_t i = 0; i < t->n_merges; i++)
        mn_lora_add_row(t->merges[i].product, t->merges[i].factor, from, x);
    for (uint64_t i = 0; t->factors && i < t->cols; i++)
        x[i] *= t->factors[t->n_dim > 1 ? from : i];
    reorder(t, x, x + c->widest);
    for (uint64_t i = 0; i < t->cols && t->add != 0; i++)
        x[i] += t->add;
    if (!convert_write_fits(x, t->cols, t->type.id))
        return false;
    const float *weights = NULL;
    if (t->weights)
        weights = t->weights + row / t->weight_rows * t->cols;
    mn_quant_row(t->type.id, x, weights, (int64_t)t->cols, out);
    return true;
}

/* Rows [lo, hi) of the chunk; false: one had a value that the type cannot hold. */
static bool make_rows(chunk *c, uint64_t lo, uint64_t hi, float *x) {
    for (uint64_t r = lo; r < hi; r++) {
        uint8_t *out = c->out + r * c->t->row_bytes;
        uint64_t none = 0;
        if (make_row(c, c->first + r, x, out))
            continue;
        atomic_compare_exchange_strong(&c->bad, &none, c->first + r + 1);
        return false;
    }
    return true;
}

/* One worker of the pool: some rows at a time, about 64 KiB, until none is left. */
static void run_chunk(void *arg, uint32_t worker, uint32_t n_workers) {
    (void)n_workers;
    chunk *c = arg;
    const uint64_t grain = 65536 / (c->t->row_bytes + 1) + 1;
    float *x = c->scratch + 2 * c->widest * worker;
    bool good = true;
    while (good && !atomic_load(&c->bad)) {
        const uint64_t lo = atomic_fetch_add(&c->next, grain);
        if (lo >= c->n)
            return;
        good = make_rows(c, lo, MN_MIN(lo + grain, c->n), x);
    }
}

/* A file that is being written. */
typedef struct {
    const mn_convert_plan *plan;
    const mn_convert_run *run;
    mn_output file;
    chunk chunk;
    uint64_t done; /* bytes of data */
} writer;

static mn_status put_data(writer *w, const void *data, uint64_t bytes, mn_error *err) {
    const mn_convert_run *run = w->run;
    mn_status st = mn_output_put(&w->file, data, bytes, err);
    w->done += bytes;
    if (st || !run->progress)
        return st;
    if (run->progress(run->arg, w->done, w->plan->data_bytes))
        return mn_fail(err, MN_CANCELLED, "stopped before it was done");
    return MN_OK;
}

/* Rows [chunk.first, chunk.first + chunk.n). */
static mn_status write_chunk(writer *w, mn_error *err) {
    chunk *c = &w->chunk;
    const char *path = w->plan->model->path;
    mn_pool *pool = w->run->pool;
    c->types = w->plan->model->types;
    atomic_store(&c->next, 0);
    mn_status st = mn_pool_run(pool, mn_pool_workers(pool), run_chunk, c);
    if (st)
        return mn_fail(err, st, "%s: the threads are in use", path);
    const unsigned long long bad = atomic_load(&c->bad);
    if (bad)
        return mn_fail(err, MN_BAD_FILE,
                       "%s: tensor %.*s: row %llu holds a value that %s cannot: NaN, an infinity "
                       "or too large",
                       path, MN_STR_ARG(c->t->src->native), bad - 1, mn_dtype_name(c->t->type.id));
    return put_data(w, c->out, c->n * c->t->row_bytes, err);
}

static mn_status write_tensor(writer *w, const mn_out_tensor *t, mn_error *err) {
    static const char zeros[MN_GGUF_ALIGNMENT] = {0};
    const uint64_t step = MN_MAX(CHUNK_BYTES / t->row_bytes, 1);
    const uint64_t beyond = t->bytes % MN_GGUF_ALIGNMENT;
    chunk *c = &w->chunk;
    mn_status st = MN_OK;
    c->t = t;
    for (uint64_t first = 0; first < t->rows && !st; first += step) {
        c->first = first;
        c->n = MN_MIN(step, t->rows - first);
        st = write_chunk(w, err);
    }
    if (st || !beyond)
        return st;
    return put_data(w, zeros, MN_GGUF_ALIGNMENT - beyond, err);
}

static mn_status write_parts(writer *w, const mn_text *head, mn_error *err) {
    const mn_convert_plan *p = w->plan;
    const size_t n_workers = mn_pool_workers(w->run->pool);
    chunk *c = &w->chunk;
    uint64_t largest = CHUNK_BYTES;
    for (size_t i = 0; i < p->n_tensors; i++) {
        c->widest = MN_MAX(c->widest, p->tensors[i].cols);
        largest = MN_MAX(largest, p->tensors[i].row_bytes);
    }
    c->out = mn_alloc(1, largest);
    c->scratch = mn_alloc(2 * n_workers, c->widest * sizeof *c->scratch);
    mn_status st = MN_OK;
    if (!c->out || !c->scratch)
        st = mn_fail_memory(err, largest);
    if (!st)
        st = mn_output_put(&w->file, head->ptr, head->len, err);
    for (size_t i = 0; i < p->n_tensors && !st; i++)
        st = write_tensor(w, &p->tensors[i], err);
    mn_free(c->out);
    mn_free(c->scratch);
    return st;
}

mn_status mn_convert_write(const mn_convert_plan *p, const char *path, const mn_convert_run *run,
                           mn_error *err) {
    mn_text head = {0};
    writer w = {
        .plan = p,
        .run = run,
    };
    mn_status st = mn_gguf_header(p, &head, err);
    if (!st)
        st = mn_output_open(path, head.len + p->data_bytes, run->force, &w.file, err);
    if (!st) {
        st = write_parts(&w, &head, err);
        st = mn_canonical_settle(p->model, true, st, err);
        st = mn_output_close(&w.file, st, err);
    }
    mn_text_free(&head);
    return st;
}
