/* moves.c -- pages of the memory of sequences from and to the form that all devices share
 * (mn.kv/1), in memory of the host. A backend whose heads lie otherwise than kv.c states has rows
 * of its own. Holds nothing. */
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

/* The types that the cache has, whatever class chose them. */
static mn_status moves_geometry(mnp_moves *m, const mnp_kv_rules *rules, mn_error *err) {
    m->params.k_dtype = MNP_COOKIE_K(m->layout.cookie);
    m->params.v_dtype = MNP_COOKIE_V(m->layout.cookie);
    mn_status st = mnp_kv_of(&m->params, MN_PRECISION_EXACT, rules, &m->kv, err);
    if (!st && m->kv.page_bytes != m->layout.page_bytes)
        st = mnp_fail(
            err, MN_INVALID, ~0u, "a layout with pages of %llu bytes; its layers have %llu",
            (unsigned long long)m->layout.page_bytes, (unsigned long long)m->kv.page_bytes);
    return st;
}

static mn_status check_tokens(const mnp_moves *m, mn_error *err) {
    const uint32_t n = m->page.n_tokens;
    const uint32_t most = m->layout.page_tokens;
    if (m->params.kind == MN_MEMORY_STATE ? !n : n && n <= most)
        return MN_OK;
    return mnp_fail(err, MN_INVALID, ~0u, "%u tokens of a page of %u", n, most);
}

mn_status mnp_moves_of(const mn_kv_page *in, const mnp_kv_rules *rules, mnp_moves *out,
                       mn_error *err) {
    memset(out, 0, sizeof *out);
    mnp_read(&out->page, sizeof out->page, in, in->size);
    if (!out->page.params || !out->page.layout || !out->page.memory || !out->page.host)
        return mnp_fail(err, MN_INVALID, ~0u, "a page without params, layout, memory or host");
    mnp_read(&out->params, sizeof out->params, out->page.params, out->page.params->size);
    mnp_read(&out->layout, sizeof out->layout, out->page.layout, out->page.layout->size);
    mn_status st = MN_OK;
    if (out->params.kind == MN_MEMORY_PAGED)
        st = moves_geometry(out, rules, err);
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
static void move_state(const mnp_moves *m, uint8_t *page, float *x, bool out) {
    for (uint32_t i = 0; i < m->params.n_layers; i++) {
        const mn_memory_layer *l = mnp_memory_layer(&m->params, i);
        const uint64_t bytes = l->n_state * sizeof *x;
        if (out)
            memcpy(x, page, bytes);
        else
            memcpy(page, x, bytes);
        x += l->n_state;
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
