/* launch.cu -- a program's units as kernel launches for one set of symbol values. */
#include "program.h"

struct run {
    mn_context *c;
    const mn_program *p;
    const mn_graph *g;
    const int64_t *sym;
    cudaStream_t s;
};

static void *ptr_of(const run *r, int32_t t) {
    if (t < 0)
        return NULL;
    const mn_tensor *x = mnp_tensor(r->g, t);
    const uint32_t root = mnp_root(r->g, t);
    const mn_binding *b = r->c->bindings;
    if (b[t].buffer)
        return b[t].buffer->ptr + b[t].offset;
    if (b[root].buffer)
        return b[root].buffer->ptr + b[root].offset + x->offset * 4;
    if (r->p->allocations[root].place == MNP_NOWHERE)
        return NULL;
    return r->c->scratch + r->p->allocations[root].place +
           (root != (uint32_t)t ? x->offset * 4 : 0);
}
static float *f32(const run *r, int32_t t) {
    return (float *)ptr_of(r, t);
}
static const int32_t *i32(const run *r, int32_t t) {
    return (const int32_t *)ptr_of(r, t);
}
static int64_t dim(const run *r, int32_t t, uint32_t i) {
    return t >= 0 && i < mnp_tensor(r->g, t)->n_dim
               ? mnp_dim(r->g, r->sym, mnp_tensor(r->g, t)->dim[i])
               : 1;
}
static int64_t last_dim(const run *r, int32_t t) {
    return dim(r, t, mnp_tensor(r->g, t)->n_dim - 1);
}
static int64_t elements(const run *r, int32_t t) {
    int64_t n = 1;
    for (uint32_t i = 0; i < mnp_tensor(r->g, t)->n_dim; i++)
        n *= dim(r, t, i);
    return n;
}
static const cu_weight *weight(const run *r, int32_t t) {
    return t < 0 ? NULL : r->p->w[t];
}
static const float *vector(const run *r, int32_t t) {
    return t < 0 ? NULL : (const float *)weight(r, t)->data;
}

/* SLOTS or PARAMS: rows lie 4 * dim[1] bytes apart. */
static cu_rows rows_of(const run *r, int32_t t) {
    return cu_rows{(int32_t *)ptr_of(r, t), (int)dim(r, t, 1)};
}

/* How rows of this tensor lie in this step. */
static int kind_of(const run *r, int32_t t) {
    return r->p->half[t] && dim(r, t, 0) > 1 ? r->p->half[t] : CU_F32;
}

/* ---- LINEAR ---------------------------------------------------------------------------------- */
static void linear_part(const run *r, const cu_unit *u, const mn_node *n, cu_linear a,
                        uint32_t from, uint32_t count, int x_kind) {
    const cu_weight *w = weight(r, mnp_in(r->g, n, 1 + 2 * from));
    const bool units = r->p->precision != MN_PRECISION_EXACT &&
                       !(r->p->flags & MN_COMPILE_DETERMINISTIC) && a.rows > 1 &&
                       (w->dtype == MN_F16 || w->dtype == MN_BF16);
    const mn_node *epi = u->epi >= 0 ? mnp_node(r->g, u->epi) : NULL;
    a.K = (int)w->cols, a.ld = (int)w->ld, a.n_seg = (int)count, a.epi = CU_EPI_NONE;
    for (uint32_t i = 0; i < count; i++) {
        const cu_weight *x = weight(r, mnp_in(r->g, n, 1 + 2 * (from + i)));
        a.seg[i] = cu_seg{x->data, x->scale, vector(r, mnp_in(r->g, n, 2 + 2 * (from + i))),
                          f32(r, mnp_out(r->g, n, from + i)), (int)x->rows};
        a.total += (int)x->rows;
    }
    bool glu_after = false;
    if (epi && epi->op == MN_OP_ADD) {
        int32_t y = mnp_out(r->g, n, 0),
                other = mnp_in(r->g, epi, 0) == y ? mnp_in(r->g, epi, 1) : mnp_in(r->g, epi, 0);
        a.epi = CU_EPI_ADD, a.residual = f32(r, other), a.seg[0].y = f32(r, mnp_out(r->g, epi, 0));
    } else if (epi && (units || a.rows == 1)) {
        a.epi = CU_EPI_GLU, a.act = (int)mnp_attr(r->g, epi, MN_GLU_ATTR_KIND);
        a.total = a.seg[0].rows, a.seg[0].y = f32(r, mnp_out(r->g, epi, 0)),
        a.y_kind = kind_of(r, mnp_out(r->g, epi, 0));
    } else
        glu_after = epi != NULL;
    if (units && x_kind == CU_F32) {
        const int kind = w->dtype == MN_F16 ? CU_HALF : CU_BF16;
        void *half = r->c->scratch + r->p->half_at;
        cu_to_half(r->s, (const float *)a.x, half, a.rows, a.K, a.ld, kind);
        a.x = half;
    }
    if (units)
        cu_mma(r->p->dev, r->s, w->dtype, &a);
    else
        cu_gemv(r->p->dev, r->s, w->dtype, &a);
    if (glu_after) {
        int32_t y = mnp_out(r->g, epi, 0);
        cu_elementwise(r->s, CU_EW_GLU, a.seg[0].y, a.seg[1].y, f32(r, y), elements(r, y),
                       (int)mnp_attr(r->g, epi, MN_GLU_ATTR_KIND), 0, kind_of(r, y));
    }
}

static void linear(const run *r, const cu_unit *u, bool late) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node), *norm = u->norm >= 0 ? mnp_node(g, u->norm) : NULL,
                  *gather = u->gather >= 0 ? mnp_node(g, u->gather) : NULL;
    int32_t x = mnp_in(g, n, 0), source = gather ? mnp_in(g, gather, 0)
                                          : norm ? mnp_in(g, norm, 0)
                                                 : x;
    cu_linear a = {};
    a.rows = (int)dim(r, x, 0), a.late = late;
    if (!a.rows)
        return;
    const int32_t *rows = gather ? i32(r, mnp_in(g, gather, MN_GATHER_ROWS_ROWS)) : NULL;
    int x_kind = CU_F32;
    a.x = f32(r, x);
    if (norm) {
        const float *w = vector(r, mnp_in(g, norm, MN_RMS_NORM_WEIGHT)),
                    eps = (float)mnp_attr_f64(g, norm, MN_RMS_NORM_ATTR_EPS),
                    offset = (float)mnp_attr_f64(g, norm, MN_RMS_NORM_ATTR_OFFSET);
        if (a.rows == 1)
            a.x = f32(r, source), a.gather = rows, a.x_rows = (int)dim(r, source, 0), a.norm = w,
            a.eps = eps, a.offset = offset;
        else {
            x_kind = kind_of(r, x);
            cu_rms_norm(r->s, f32(r, source), rows, (int)dim(r, source, 0), w, ptr_of(r, x), a.rows,
                        (int)last_dim(r, x), eps, offset, x_kind);
        }
    } else
        x_kind = kind_of(r, x);
    for (uint32_t i = 0, count; i < n->n_out; i += count) { /* weights of one type together */
        uint32_t type = weight(r, mnp_in(g, n, 1 + 2 * i))->dtype;
        for (count = 1; i + count < n->n_out && count < CU_MAX_SEG &&
                        weight(r, mnp_in(g, n, 1 + 2 * (i + count)))->dtype == type;)
            count++;
        linear_part(r, u, n, a, i, count, x_kind);
    }
}

/* ---- the cache ------------------------------------------------------------------------------- */
static cu_cache cache(const run *r, const cu_unit *u, int32_t row_pos, int32_t row_slot,
                      int32_t pages, int32_t kv) {
    cu_cache c = {};
    const mnp_kv *k = &u->kv;
    c.row_pos = i32(r, row_pos), c.row_slot = i32(r, row_slot), c.pages = i32(r, pages),
    c.kv = (char *)ptr_of(r, kv);
    c.n_pages = (int64_t)(r->c->bindings[kv].bytes / k->page_bytes);
    c.T = (int)dim(r, row_pos, 0), c.S = (int)dim(r, pages, 0), c.P = (int)dim(r, pages, 1),
    c.Hkv = (int)k->n_head_kv;
    c.dk = (int)k->dim_k, c.dv = (int)k->dim_v, c.pk = (int)k->pad_k, c.pv = (int)k->pad_v,
    c.dtype = k->k_dtype;
    c.page_bytes = k->page_bytes, c.layer_at = (uint64_t)k->layer * k->layer_bytes,
    c.v_offset = k->v_offset;
    return c;
}

static cu_rope rope(const run *r, const mn_node *n) {
    const mn_graph *g = r->g;
    cu_rope o = {};
    int32_t x = mnp_in(g, n, 0);
    double m = mnp_attr_f64(g, n, MN_ROPE_ATTR_MSCALE);
    o.x = f32(r, x), o.row_pos = i32(r, mnp_in(g, n, MN_ROPE_ROW_POS)),
    o.freqs = vector(r, mnp_in(g, n, MN_ROPE_FREQS)), o.y = f32(r, mnp_out(g, n, 0));
    o.T = (int)dim(r, x, 0), o.H = (int)dim(r, x, 1), o.D = (int)dim(r, x, 2),
    o.n_rot = (int)mnp_attr(g, n, MN_ROPE_ATTR_N_ROT);
    if (!o.n_rot)
        o.n_rot = o.D;
    o.adjacent = mnp_attr(g, n, MN_ROPE_ATTR_PAIRING) == MN_ROPE_ADJACENT,
    o.mscale = m == 0 ? 1 : (float)m;
    return o;
}

static void store(const run *r, const cu_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    cu_store a = {};
    a.c = cache(r, u, mnp_in(g, n, MN_KV_STORE_ROW_POS), mnp_in(g, n, MN_KV_STORE_ROW_SLOT),
                mnp_in(g, n, MN_KV_STORE_PAGES), mnp_in(g, n, MN_KV_STORE_KV));
    a.k = f32(r, mnp_in(g, n, MN_KV_STORE_K)), a.v = f32(r, mnp_in(g, n, MN_KV_STORE_V));
    if ((a.rope = u->rope_q >= 0))
        a.q = rope(r, mnp_node(g, u->rope_q)), a.kr = rope(r, mnp_node(g, u->rope_k));
    if (a.c.T)
        cu_store_run(r->s, &a);
}

static void attention(const run *r, const cu_unit *u, const cu_unit *joined, bool early) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    cu_attend a = {};
    a.c = cache(r, u, mnp_in(g, n, MN_ATTENTION_ROW_POS), mnp_in(g, n, MN_ATTENTION_ROW_SLOT),
                mnp_in(g, n, MN_ATTENTION_PAGES), mnp_in(g, n, MN_ATTENTION_KV));
    int32_t y = mnp_out(g, n, 0), q = mnp_in(g, n, 0);
    a.q = f32(r, q), a.sinks = vector(r, mnp_in(g, n, MN_ATTENTION_SINKS)), a.y = ptr_of(r, y),
    a.y_kind = kind_of(r, y), a.H = (int)dim(r, q, 1);
    a.partial = (float *)(r->c->scratch + r->p->partial_at),
    a.arrived = (unsigned *)(r->c->scratch + r->p->arrived_at), a.split = r->p->split,
    a.max_splits = r->p->max_splits;
    a.scale = (float)mnp_attr_f64(g, n, MN_ATTENTION_ATTR_SCALE),
    a.softcap = (float)mnp_attr_f64(g, n, MN_ATTENTION_ATTR_SOFTCAP),
    a.window = (int)mnp_attr(g, n, MN_ATTENTION_ATTR_WINDOW);
    if (joined) {
        const mn_node *st = mnp_node(g, joined->node);
        a.one = true, a.early = early;
        a.st.v = f32(r, mnp_in(g, st, MN_KV_STORE_V)),
        a.st.q = rope(r, mnp_node(g, joined->rope_q)),
        a.st.kr = rope(r, mnp_node(g, joined->rope_k));
    }
    if (a.c.T)
        cu_attend_run(r->p->dev, r->s, &a);
}

/* ---- the rest -------------------------------------------------------------------------------- */
static void embed(const run *r, const mn_node *n) {
    const mn_graph *g = r->g;
    const cu_weight *w = weight(r, mnp_in(g, n, MN_EMBED_WEIGHT));
    int32_t history = mnp_in(g, n, MN_EMBED_HISTORY);
    double scale = mnp_attr_f64(g, n, MN_EMBED_ATTR_SCALE);
    cu_embed e = {i32(r, mnp_in(g, n, 0)),
                  i32(r, mnp_in(g, n, 1)),
                  i32(r, mnp_in(g, n, 2)),
                  w->data,
                  w->scale,
                  w->dtype,
                  rows_of(r, mnp_in(g, n, MN_EMBED_SLOTS)),
                  (int32_t *)i32(r, history),
                  (int32_t *)i32(r, mnp_out(g, n, MN_EMBED_OUT_ROW_POS)),
                  (int32_t *)(r->c->scratch + r->p->ids_at),
                  f32(r, mnp_out(g, n, 0)),
                  (int)dim(r, mnp_in(g, n, 0), 0),
                  (int)dim(r, history, 0),
                  (int)dim(r, history, 1),
                  (int)w->rows,
                  (int)w->cols,
                  (int)w->ld,
                  scale == 0 ? 1 : (float)scale};
    if (e.T)
        cu_embed_run(r->s, &e);
}

static void sample(const run *r, const mn_node *n) {
    const mn_graph *g = r->g;
    int32_t logits = mnp_in(g, n, 0), history = mnp_in(g, n, MN_SAMPLE_HISTORY);
    cu_sample a = {f32(r, logits),
                   f32(r, mnp_in(g, n, MN_SAMPLE_BIAS)),
                   i32(r, mnp_in(g, n, MN_SAMPLE_OUT_SLOT)),
                   rows_of(r, mnp_in(g, n, MN_SAMPLE_PARAMS)),
                   rows_of(r, mnp_in(g, n, MN_SAMPLE_SLOTS)),
                   i32(r, history),
                   (int32_t *)i32(r, mnp_out(g, n, 0)),
                   (float *)(r->c->scratch + r->p->adjusted_at),
                   (int32_t *)(r->c->scratch + r->p->count_at),
                   (int)dim(r, logits, 0),
                   (int)dim(r, history, 0),
                   (int)dim(r, history, 1),
                   (int)dim(r, logits, 1)};
    int32_t ids = mnp_out(g, n, MN_SAMPLE_OUT_TOP_IDS),
            probs = mnp_out(g, n, MN_SAMPLE_OUT_TOP_LOGPROBS);
    a.top_ids = (int32_t *)ptr_of(r, ids), a.top_logprobs = f32(r, probs);
    if (a.top_ids || a.top_logprobs) /* not bound = not computed */
        a.n_top = (int)dim(r, ids >= 0 ? ids : probs, 1);
    if (a.O)
        cu_sample_run(r->s, &a);
}

static void norm(const run *r, const mn_node *n) {
    const mn_graph *g = r->g;
    int32_t x = mnp_in(g, n, 0), y = mnp_out(g, n, 0);
    const int D = (int)last_dim(r, x), rows = (int)(elements(r, x) / D);
    const float *w = vector(r, mnp_in(g, n, 1));
    if (!rows)
        return;
    if (n->op == MN_OP_RMS_NORM)
        cu_rms_norm(r->s, f32(r, x), NULL, rows, w, ptr_of(r, y), rows, D,
                    (float)mnp_attr_f64(g, n, MN_RMS_NORM_ATTR_EPS),
                    (float)mnp_attr_f64(g, n, MN_RMS_NORM_ATTR_OFFSET), kind_of(r, y));
    else
        cu_layer_norm(r->s, f32(r, x), w, vector(r, mnp_in(g, n, MN_LAYER_NORM_BIAS)), f32(r, y),
                      rows, D, (float)mnp_attr_f64(g, n, MN_LAYER_NORM_ATTR_EPS));
}

static void elementwise(const run *r, const mn_node *n) {
    const mn_graph *g = r->g;
    int32_t a = mnp_in(g, n, 0), b = mnp_in(g, n, 1), y = mnp_out(g, n, 0);
    const bool acts = n->op == MN_OP_ACT || n->op == MN_OP_GLU,
               two = n->op == MN_OP_GLU || n->op == MN_OP_ADD || n->op == MN_OP_MUL;
    const int what = n->op == MN_OP_ACT     ? CU_EW_ACT
                     : n->op == MN_OP_GLU   ? CU_EW_GLU
                     : n->op == MN_OP_ADD   ? CU_EW_ADD
                     : n->op == MN_OP_MUL   ? CU_EW_MUL
                     : n->op == MN_OP_SCALE ? CU_EW_SCALE
                                            : CU_EW_SOFTCAP;
    cu_elementwise(r->s, what, f32(r, a), two ? f32(r, b) : NULL, ptr_of(r, y), elements(r, y),
                   acts ? (int)mnp_attr(g, n, 0) : 0, acts ? 0 : (float)mnp_attr_f64(g, n, 0),
                   kind_of(r, y));
}

static void single(const run *r, const cu_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    switch (n->op) {
    case MN_OP_EMBED:
        return embed(r, n);
    case MN_OP_SAMPLE:
        return sample(r, n);
    case MN_OP_RMS_NORM:
    case MN_OP_LAYER_NORM:
        return norm(r, n);
    case MN_OP_ATTENTION:
        return attention(r, u, NULL, false);
    case MN_OP_ROPE: {
        cu_rope o = rope(r, n);
        if (o.T)
            cu_rope_run(r->s, &o);
        return;
    }
    case MN_OP_GATHER_ROWS: {
        int32_t x = mnp_in(g, n, 0), y = mnp_out(g, n, 0);
        if (dim(r, y, 0))
            cu_gather(r->s, f32(r, x), i32(r, mnp_in(g, n, 1)), f32(r, y), (int)dim(r, y, 0),
                      (int)dim(r, x, 0), (int)last_dim(r, x));
        return;
    }
    default:
        return elementwise(r, n);
    }
}

/* Whether in this step the attention of a STORE and of an ATTENTION unit runs both. */
static bool is_joined(const run *r, const cu_unit *u) {
    if (u->with < 0)
        return false;
    const cu_unit *store = u->kind == CU_UNIT_STORE ? u : &r->p->units[u->with];
    return dim(r, mnp_in(r->g, mnp_node(r->g, store->node), MN_KV_STORE_ROW_POS), 0) == 1;
}

/* The unit that is launched after unit i; NULL = none. A joined store is not launched. */
static const cu_unit *next_launch(const run *r, uint32_t i) {
    for (i++; i < r->p->n_units; i++)
        if (r->p->units[i].kind != CU_UNIT_STORE || !is_joined(r, &r->p->units[i]))
            return &r->p->units[i];
    return NULL;
}

static void launch_unit(const run *r, uint32_t i, const cu_unit *last) {
    const cu_unit *u = &r->p->units[i];
    if (u->kind == CU_UNIT_LINEAR) {
        const cu_unit *next = next_launch(r, i);
        linear(r, u, next && is_joined(r, next));
    } else if (u->kind == CU_UNIT_STORE)
        store(r, u);
    else if (is_joined(r, u))
        attention(r, u, &r->p->units[u->with], last && last->kind == CU_UNIT_LINEAR);
    else
        single(r, u);
}

mn_status cu_launch_units(mn_context *c, const int64_t *symbol, cudaStream_t s, mn_error *err) {
    const run r = {c, c->prog, c->prog->graph, symbol, s};
    const cu_unit *last = NULL;
    for (uint32_t i = 0; i < c->prog->n_units; i++) {
        const cu_unit *u = &c->prog->units[i];
        if (u->kind == CU_UNIT_STORE && is_joined(&r, u))
            continue; /* its attention runs it */
        launch_unit(&r, i, last);
        last = u;
        cudaError_t e = cudaPeekAtLastError();
        if (e == cudaSuccess)
            continue;
        mn_status st = cu_check(e, err, "launching");
        if (err && err->size >= MNP_UP_TO(mn_error, node))
            err->node = u->node;
        return st;
    }
    return MN_OK;
}
