/* weight_rows.c -- rows of a weight on their way to the device. They are written where they leave
 * from: into a segment of the queue's ring, so that the copy of one segment overlaps with filling
 * the next, or into device memory itself where that is the host's. Holds nothing. */
#include "gpu_table.h"

/* ---- what a row becomes ---------------------------------------------------------------------- */
void mng_write_blocks(const mng_weight *w, const mnp_source_row *s, uint8_t *to) {
    (void)w;
    const mn_plane *p = mnp_plane(s->s, s->part, 0);
    const uint8_t *from = mnp_row_at(s, 0, 1);
    const uint32_t last = s->t->n_dim - 1;
    const uint32_t bytes = s->t->dtype.block_bytes;
    const int64_t blocks = p->dim[last] / s->t->dtype.block_elems;
    if (p->stride[last] == bytes) {
        memcpy(to, from, (size_t)blocks * bytes);
        return;
    }
    for (int64_t b = 0; b < blocks; b++)
        memcpy(to + b * bytes, from + b * p->stride[last], bytes);
}

void mng_write_unpacked(const mng_weight *w, const mnp_source_row *s, uint8_t *to) {
    const mn_stored_row stored = mnp_stored_row(s);
    mn_dequant_row(&stored, w->cols, (float *)(void *)to);
}

static void write_values(const mng_weight *w, const mnp_source_row *s, uint32_t plane,
                         uint8_t *to) {
    const mn_plane *p = mnp_plane(s->s, s->part, plane);
    const uint8_t *at = mnp_row_at(s, plane, 1);
    const int64_t blocks = w->cols / s->t->dtype.block_elems;
    float *values = (float *)(void *)to;
    for (int64_t i = 0; i < blocks; i++)
        values[i] = mn_plane_value(p->dtype, at + i * p->stride[s->t->n_dim - 1]);
}
void mng_write_scales(const mng_weight *w, const mnp_source_row *s, uint8_t *to) {
    write_values(w, s, 1, to);
}
void mng_write_biases(const mng_weight *w, const mnp_source_row *s, uint8_t *to) {
    write_values(w, s, 2, to);
}

/* ---- the way there --------------------------------------------------------------------------- */
/* Writes n rows one after another; padding becomes zeros. */
static void write_rows(const mng_weight *w, mng_row_fn write, uint64_t row_bytes, mnp_source_row *s,
                       int64_t n, uint8_t *to) {
    if (w->ld > w->cols)
        memset(to, 0, (uint64_t)n * row_bytes);
    for (int64_t r = 0; r < n; r++, mnp_next_row(s))
        write(w, s, to + (uint64_t)r * row_bytes);
}

/* A row that is longer than a segment. */
static mn_status send_long_row(mn_queue *q, const mng_weight *w, mng_row_fn write,
                               uint64_t row_bytes, mnp_source_row *s, mng_ref to, mn_error *err) {
    const mn_device *dev = mng_queue_of(q)->dev;
    uint8_t *row = mng_new(dev, row_bytes);
    if (!row)
        return mnp_fail_memory(err, row_bytes, "a row of a weight");
    write_rows(w, write, row_bytes, s, 1, row);
    const mn_status st = mng_send(q, to, row, row_bytes, err);
    mng_delete(dev, row);
    return st;
}

mn_status mng_send_rows(mn_queue *q, const mng_weight *w, mng_row_fn write, uint64_t row_bytes,
                        mnp_source_row *s, int64_t n, mng_ref to, mn_error *err) {
    const int64_t fit = row_bytes ? (int64_t)(mng_queue_of(q)->segment_bytes / row_bytes) : n;
    mn_status st = MN_OK;
    for (int64_t done = 0; done < n && !st;) {
        const mng_ref at = {to.mem, to.at + (uint64_t)done * row_bytes};
        const int64_t m = n - done < fit ? n - done : fit;
        mng_segment segment;
        if (!m) {
            st = send_long_row(q, w, write, row_bytes, s, at, err);
            done++;
            continue;
        }
        st = mng_segment_begin(q, &segment, err);
        if (st)
            break;
        write_rows(w, write, row_bytes, s, m, (uint8_t *)segment.host);
        st = mng_segment_send(q, &segment, at, (uint64_t)m * row_bytes, err);
        done += m;
    }
    return st;
}

/* The same where the memory is the host's: nothing is copied twice. */
static mn_status map_rows(mn_queue *q, const mng_weight *w, mng_row_fn write, uint64_t row_bytes,
                          mnp_source_row *s, int64_t n, mng_ref to, mn_error *err) {
    enum { CHUNK = 1 << 20 };
    const mng_backend *b = mng_backend_of(mng_queue_of(q)->dev);
    const int64_t fit = row_bytes && row_bytes < CHUNK ? (int64_t)(CHUNK / row_bytes) : 1;
    mn_status st = MN_OK;
    for (int64_t done = 0; done < n && !st;) {
        const mng_ref at = {to.mem, to.at + (uint64_t)done * row_bytes};
        const int64_t m = n - done < fit ? n - done : fit;
        void *host;
        st = b->map(q, at, (uint64_t)m * row_bytes, &host, err);
        if (st)
            break;
        write_rows(w, write, row_bytes, s, m, host);
        st = b->unmap(q, at, host, err);
        done += m;
    }
    return st;
}

mn_status mng_put_plane(mn_queue *q, const mng_weight *w, mng_row_fn write, uint64_t at,
                        uint64_t row_bytes, mnp_source_row s, mn_error *err) {
    const bool maps = mng_device_of(mng_queue_of(q)->dev)->maps;
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < w->n_parts && !st; i++) {
        const int64_t first = (int64_t)i * w->part_rows;
        const int64_t left = w->rows - first;
        const int64_t n = left < w->part_rows ? left : w->part_rows;
        const mng_ref to = {w->mem[i], w->at + at};
        if (maps)
            st = map_rows(q, w, write, row_bytes, &s, n, to, err);
        else
            st = mng_send_rows(q, w, write, row_bytes, &s, n, to, err);
    }
    return st;
}
