/* imatrix_out.c -- writes importance matrices in llama.cpp's two forms, which imatrix.c describes.
 * Head and values are made in memory: a number for each column of each matrix. */
#include "convert/convert.h"
#include "convert/output.h"
#include <stdlib.h>
#include <string.h>

static int imatrix_compare(const void *a, const void *b) {
    const mn_str x = (*(const mn_imatrix_sums *const *)a)->name;
    const mn_str y = (*(const mn_imatrix_sums *const *)b)->name;
    const int order = memcmp(x.ptr, y.ptr, MN_MIN(x.len, y.len));
    return order ? order : (x.len > y.len) - (x.len < y.len);
}

/* The most rows that one of its matrices has seen. */
static uint64_t rows_seen(const mn_imatrix_sums *w) {
    uint64_t most = 0;
    for (uint64_t i = 0; i < w->n_mat; i++)
        most = MN_MAX(most, w->counts[i]);
    return most;
}

/* ---- GGUF ------------------------------------------------------------------------------------ */
enum { IMATRIX_U32 = 4, IMATRIX_STR = 8, IMATRIX_LIST = 9 };

static uint64_t imatrix_padded(uint64_t bytes) {
    return (bytes + MN_GGUF_ALIGNMENT - 1) / MN_GGUF_ALIGNMENT * MN_GGUF_ALIGNMENT;
}

static void imatrix_pad(mn_text *out) {
    while (!out->failed && out->len % MN_GGUF_ALIGNMENT)
        mn_text_put(out, "", 1);
}

static void put_sums_keys(mn_text *out, const mn_imatrix_made *m) {
    mn_gguf_put_str(out, mn_str_of("general.type"));
    mn_gguf_put_uint(out, IMATRIX_STR, 4);
    mn_gguf_put_str(out, mn_str_of("imatrix"));
    mn_gguf_put_str(out, mn_str_of("imatrix.datasets"));
    mn_gguf_put_uint(out, IMATRIX_LIST, 4);
    mn_gguf_put_uint(out, IMATRIX_STR, 4);
    mn_gguf_put_uint(out, 1, 8);
    mn_gguf_put_str(out, m->dataset);
    mn_gguf_put_str(out, mn_str_of("imatrix.chunk_count"));
    mn_gguf_put_uint(out, IMATRIX_U32, 4);
    mn_gguf_put_uint(out, m->n_chunks, 4);
    mn_gguf_put_str(out, mn_str_of("imatrix.chunk_size"));
    mn_gguf_put_uint(out, IMATRIX_U32, 4);
    mn_gguf_put_uint(out, m->chunk_tokens, 4);
}

/* A matrix of F32 [n_mat][cols], innermost first, or a vector; *at: where the next one lies. */
static void describe_sums(mn_text *out, mn_str name, const char *part, uint64_t cols,
                          uint64_t n_mat, uint64_t *at) {
    mn_gguf_put_uint(out, name.len + strlen(part), 8);
    mn_text_put(out, name.ptr, name.len);
    mn_text_put(out, part, strlen(part));
    mn_gguf_put_uint(out, n_mat > 1 ? 2 : 1, 4);
    mn_gguf_put_uint(out, cols, 8);
    if (n_mat > 1)
        mn_gguf_put_uint(out, n_mat, 8);
    mn_gguf_put_uint(out, 0, 4);
    mn_gguf_put_uint(out, *at, 8);
    *at += imatrix_padded(4 * cols * n_mat);
}

static void put_new(mn_text *out, const mn_imatrix_made *m, const mn_imatrix_sums *const *list,
                    size_t n) {
    uint64_t at = 0;
    mn_text_put(out, "GGUF", 4);
    mn_gguf_put_uint(out, 3, 4);
    mn_gguf_put_uint(out, 2 * n, 8);
    mn_gguf_put_uint(out, 4, 8);
    put_sums_keys(out, m);
    for (size_t i = 0; i < n; i++) {
        describe_sums(out, list[i]->name, ".in_sum2", list[i]->n_cols, list[i]->n_mat, &at);
        describe_sums(out, list[i]->name, ".counts", 1, list[i]->n_mat, &at);
    }
    for (size_t i = 0; i < n && !out->failed; i++) {
        const mn_imatrix_sums *w = list[i];
        imatrix_pad(out);
        for (uint64_t k = 0; k < w->n_cols * w->n_mat; k++)
            mn_gguf_put_f32(out, w->sums[k]);
        imatrix_pad(out);
        for (uint64_t k = 0; k < w->n_mat; k++)
            mn_gguf_put_f32(out, (double)w->counts[k]);
    }
    imatrix_pad(out);
}

/* ---- the older form -------------------------------------------------------------------------- */
/* Mean squares times calls, a call for every chunk_tokens rows; of an expert that has seen no row a
 * mean of 1. */
static void put_old_entry(mn_text *out, const mn_imatrix_sums *w, uint64_t chunk_tokens) {
    const uint64_t calls = (rows_seen(w) + chunk_tokens - 1) / chunk_tokens;
    mn_gguf_put_uint(out, w->name.len, 4);
    mn_text_put(out, w->name.ptr, w->name.len);
    mn_gguf_put_uint(out, calls, 4);
    mn_gguf_put_uint(out, w->n_cols * w->n_mat, 4);
    for (uint64_t k = 0; k < w->n_cols * w->n_mat; k++) {
        const uint64_t rows = w->counts[k / w->n_cols];
        const double mean = rows ? w->sums[k] / (double)rows : 1;
        mn_gguf_put_f32(out, mean * (double)calls);
    }
}

static void put_old(mn_text *out, const mn_imatrix_made *m, const mn_imatrix_sums *const *list,
                    size_t n) {
    mn_gguf_put_uint(out, n, 4);
    for (size_t i = 0; i < n && !out->failed; i++)
        put_old_entry(out, list[i], MN_MAX(m->chunk_tokens, 1u));
    mn_gguf_put_uint(out, m->n_chunks, 4);
    mn_gguf_put_uint(out, m->dataset.len, 4);
    mn_text_put(out, m->dataset.ptr, m->dataset.len);
}

/* ---- the file -------------------------------------------------------------------------------- */
static mn_status put_file(const char *path, const mn_text *content, bool force, mn_error *err) {
    mn_output file = {0};
    mn_status st = mn_output_open(path, content->len, force, &file, err);
    if (st)
        return st;
    st = mn_output_put(&file, content->ptr, content->len, err);
    return mn_output_close(&file, st, err);
}

mn_status mn_imatrix_write(const char *path, const mn_imatrix_made *m, bool force, mn_error *err) {
    const mn_imatrix_sums **list = mn_alloc(m->n + 1, sizeof *list);
    mn_text content = {0};
    size_t n = 0;
    mn_status st = MN_OK;
    if (!list)
        return mn_fail_memory(err, m->n * sizeof *list);
    for (size_t i = 0; i < m->n; i++) {
        mn_str rest;
        if (rows_seen(&m->at[i]) && (!m->only_layers || mn_tensor_layer(m->at[i].name, &rest) >= 0))
            list[n++] = &m->at[i];
    }
    qsort(list, n, sizeof *list, imatrix_compare);
    if (!n)
        st = mn_fail(err, MN_INVALID, "%s: there are no sums of inputs to write", path);
    else if (m->old)
        put_old(&content, m, list, n);
    else
        put_new(&content, m, list, n);
    if (content.failed)
        st = mn_fail_memory(err, content.len);
    if (!st)
        st = put_file(path, &content, force, err);
    mn_text_free(&content);
    mn_free(list);
    return st;
}
