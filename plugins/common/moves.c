/* moves.c -- pages of the memory of sequences from and to the form that all devices share
 * (mn.kv/1), in memory of the host. A backend whose heads lie otherwise than kv.c states has rows
 * of its own; how its states lie it says by a number of columns (mnp_state_cols). Holds nothing. */
#include "moves.h"

static uint64_t numbers_of(const mnp_moves *m) {
    const uint64_t n_tokens = m->page.n_tokens;
    uint64_t n = 0;
    for (uint32_t i = 0; i < m->params.n_layers; i++) {
        const mn_memory_layer *l = mnp_memory_layer(&m->params, i);
        if (m->params.kind == MN_MEMORY_STATE)
            n += l->n_state;
        else
            n += n_tokens * l->n_head * ((uint64_t)l->dim_k + l->dim_v);
    }
    return n;
}

/* What the layers say, compared with the layout. The types are those that the cache has, whatever
 * class chose them. */
static mn_status moves_geometry(mnp_moves *m, const mnp_kv_rules *rules, mn_error *err) {
    uint64_t page_bytes = 0;
    mn_status st;
    if (m->params.kind == MN_MEMORY_STATE) {
        st = mnp_state_bytes(&m->params, &page_bytes, err);
    } else {
        m->params.k_dtype = MNP_COOKIE_K(m->layout.cookie);
        m->params.v_dtype = MNP_COOKIE_V(m->layout.cookie);
        st = mnp_kv_of(&m->params, MN_PRECISION_EXACT, rules, &m->kv, err);
        page_bytes = m->kv.page_bytes;
    }
    if (!st && page_bytes != m->layout.page_bytes)
        st = mnp_fail(err, MN_INVALID, ~0u,
                      "a layout with pages of %llu bytes; its layers have %llu",
                      (unsigned long long)m->layout.page_bytes, (unsigned long long)page_bytes);
    return st;
}

static mn_status check_tokens(const mnp_moves *m, mn_error *err) {
    const uint32_t n = m->page.n_tokens;
    const uint32_t most = m->layout.page_tokens;
    if (m->params.kind == MN_MEMORY_STATE ? !n : n && n <= most)
        return MN_OK;
    return mnp_fail(err, MN_INVALID, ~0u, "%u tokens of a page of %u", n, most);
}

mn_status mnp_moves_of(const mn_kv_page *in, const mnp_kv_rules *rules, const mnp_state_cols *cols,
                       mnp_moves *out, mn_error *err) {
    memset(out, 0, sizeof *out);
    out->cols = *cols;
    mnp_read(&out->page, sizeof out->page, in, in->size);
    if (!out->page.params || !out->page.layout || !out->page.memory || !out->page.host)
        return mnp_fail(err, MN_INVALID, ~0u, "a page without params, layout, memory or host");
    mnp_read(&out->params, sizeof out->params, out->page.params, out->page.params->size);
    mnp_read(&out->layout, sizeof out->layout, out->page.layout, out->page.layout->size);
    mn_status st = moves_geometry(out, rules, err);
    if (!st)
        st = check_tokens(out, err);
    out->bytes = numbers_of(out) * sizeof(float);
    return st;
}

mn_status mnp_moves_check(const mnp_moves *m, uint64_t memory_bytes, uint64_t host_bytes,
                          mn_error *err) {
    const uint64_t at = m->page.offset;
    const uint64_t page_bytes = m->layout.page_bytes;
    if (!page_bytes || m->page.page >= memory_bytes / page_bytes)
        return mnp_fail(err, MN_INVALID, ~0u, "page %u of a buffer of %llu bytes", m->page.page,
                        (unsigned long long)memory_bytes);
    if (at % sizeof(float) || at > host_bytes || m->bytes > host_bytes - at)
        return mnp_fail(err, MN_INVALID, ~0u, "%llu bytes at %llu of a host's buffer of %llu",
                        (unsigned long long)m->bytes, (unsigned long long)at,
                        (unsigned long long)host_bytes);
    return MN_OK;
}

/* ---- keys and values ------------------------------------------------------------------------- */
/* All rows of the keys, or of the values, of a layer. plane: in the page; x: [n_tokens, n_head,
 * dim], from there or to there. */
static void move_plane(const mnp_moves *m, const mnp_rows *rows, bool values, uint8_t *plane,
                       float *x, bool out) {
    const mnp_kv *kv = &m->kv;
    const uint32_t dtype = values ? kv->v_dtype : kv->k_dtype;
    const int64_t dim = values ? kv->dim_v : kv->dim_k;
    const int64_t row = values ? kv->v_row : kv->k_row;
    for (int64_t t = 0; t < m->page.n_tokens; t++)
        for (int64_t h = 0; h < kv->n_head_kv; h++, x += dim) {
            uint8_t *head = plane + h * kv->page_tokens * row;
            if (out)
                rows->get(dtype, head, row, kv->page_tokens, t, dim, x);
            else
                rows->put(dtype, x, row, kv->page_tokens, t, dim, head);
        }
}

static void move_paged(const mnp_moves *m, const mnp_rows *rows, uint8_t *page, float *x,
                       bool out) {
    const mnp_kv *kv = &m->kv;
    const int64_t each = m->page.n_tokens * kv->n_head_kv;
    for (uint32_t i = 0; i < kv->n_layers; i++) {
        uint8_t *layer = page + i * kv->layer_bytes;
        move_plane(m, rows, false, layer, x, out);
        x += each * kv->dim_k;
        if (!kv->dim_v)
            continue;
        move_plane(m, rows, true, layer + kv->v_offset, x, out);
        x += each * kv->dim_v;
    }
}

/* ---- states ---------------------------------------------------------------------------------- */
/* A matrix, from the page to the shared form if `out`, else back. */
typedef struct {
    uint64_t rows;
    uint64_t cols;
    uint64_t row_step; /* in the shared form; from one element to the next */
    uint64_t col_step;
    uint64_t block; /* columns of a block in the page */
    bool out;
} state_matrix;

/* of: [blocks][rows, block], its blocks one behind the other. */
static void move_matrix(const state_matrix *m, float *of, float *shared) {
    for (uint64_t first = 0; first < m->cols; first += m->block) {
        const uint64_t left = m->cols - first;
        const uint64_t width = left < m->block ? left : m->block;
        float *at = shared + first * m->col_step;
        for (uint64_t r = 0; r < m->rows; r++, of += width)
            for (uint64_t c = 0; c < width; c++) {
                float *there = at + r * m->row_step + c * m->col_step;
                if (m->out)
                    *there = of[c];
                else
                    of[c] = *there;
            }
    }
}

/* The matrices of a layer's heads; of CONV_STATE one, which lies as it is shared. */
static state_matrix matrix_of(const mnp_moves *m, const mn_memory_layer *l, bool out) {
    state_matrix x = {.rows = l->dim_k,
                      .cols = l->dim_v,
                      .row_step = l->dim_v,
                      .col_step = 1,
                      .block = l->dim_v,
                      .out = out};
    if (l->op == MN_OP_GATED_DELTA && m->cols.gated_delta)
        x.block = m->cols.gated_delta;
    if (l->op != MN_OP_SSM_SCAN)
        return x;
    x.rows = l->dim_v;
    x.cols = l->dim_k;
    x.row_step = 1;
    x.col_step = l->dim_v;
    x.block = l->dim_k;
    if (m->cols.ssm_scan)
        x.block = m->cols.ssm_scan;
    return x;
}

static void move_state(const mnp_moves *m, uint8_t *page, float *x, bool out) {
    for (uint32_t i = 0; i < m->params.n_layers; i++) {
        const mn_memory_layer *l = mnp_memory_layer(&m->params, i);
        const state_matrix of_head = matrix_of(m, l, out);
        const uint64_t each = of_head.rows * of_head.cols;
        const uint64_t bytes = l->n_state * sizeof *x;
        float *own = (float *)(void *)page;
        for (uint32_t h = 0; h < l->n_head; h++, own += each, x += each)
            move_matrix(&of_head, own, x);
        page += (bytes + MNP_STATE_ALIGN - 1) / MNP_STATE_ALIGN * MNP_STATE_ALIGN;
    }
}

void mnp_moves_get(const mnp_moves *m, const mnp_rows *rows, const uint8_t *page, float *to) {
    uint8_t *from = (uint8_t *)(uintptr_t)page; /* is read alone */
    if (m->params.kind == MN_MEMORY_STATE)
        move_state(m, from, to, true);
    else
        move_paged(m, rows, from, to, true);
}

void mnp_moves_put(const mnp_moves *m, const mnp_rows *rows, const float *from, uint8_t *page) {
    float *x = (float *)(uintptr_t)from; /* is read alone */
    if (m->params.kind == MN_MEMORY_STATE)
        move_state(m, page, x, false);
    else
        move_paged(m, rows, page, x, false);
}
