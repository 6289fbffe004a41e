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
    const mn_tensor *x = cu_tensor(r->g, t);
    const uint32_t root = cu_root(r->g, t);
    const mn_binding *b = r->c->bindings;
    if (b[t].buffer)
        return b[t].buffer->ptr + b[t].offset;
    if (b[root].buffer)
        return b[root].buffer->ptr + b[root].offset + x->offset * 4;
    if (r->p->homes[root].place == CU_NOWHERE)
        return NULL;
    return r->c->scratch + r->p->homes[root].place + (root != (uint32_t)t ? x->offset * 4 : 0);
}
static float *f32(const run *r, int32_t t) {
    return (float *)ptr_of(r, t);
}
static const int32_t *i32(const run *r, int32_t t) {
    return (const int32_t *)ptr_of(r, t);
}
static int64_t dim(const run *r, int32_t t, uint32_t i) {
    return t >= 0 && i < cu_tensor(r->g, t)->n_dim
               ? cu_dim(r->g, r->sym, cu_tensor(r->g, t)->dim[i])
               : 1;
}
static int64_t last_dim(const run *r, int32_t t) {
    return dim(r, t, cu_tensor(r->g, t)->n_dim - 1);
}
static int64_t elements(const run *r, int32_t t) {
    int64_t n = 1;
    for (uint32_t i = 0; i < cu_tensor(r->g, t)->n_dim; i++)
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
    return r->p->homes[t].half && dim(r, t, 0) > 1 ? r->p->homes[t].half : CU_F32;
}

/* ---- LINEAR ---------------------------------------------------------------------------------- */
static void linear_part(const run *r, const cu_unit *u, const mn_node *n, cu_linear a,
                        uint32_t from, uint32_t count, int x_kind) {
    const cu_weight *w = weight(r, cu_in(r->g, n, 1 + 2 * from));
    const bool units = r->p->precision != MN_PRECISION_EXACT &&
                       !(r->p->flags & MN_COMPILE_DETERMINISTIC) && a.rows > 1 &&
                       (w->dtype == MN_F16 || w->dtype == MN_BF16);
    const mn_node *epi = u->epi >= 0 ? cu_node(r->g, u->epi) : NULL;
    a.K = (int)w->cols, a.ld = (int)w->ld, a.n_seg = (int)count, a.epi = CU_EPI_NONE;
    for (uint32_t i = 0; i < count; i++) {
        const cu_weight *x = weight(r, cu_in(r->g, n, 1 + 2 * (from + i)));
        a.seg[i] = cu_seg{x->data, x->scale, vector(r, cu_in(r->g, n, 2 + 2 * (from + i))),
                          f32(r, cu_out(r->g, n, from + i)), (int)x->rows};
        a.total += (int)x->rows;
    }
    bool glu_after = false;
    if (epi && epi->op == MN_OP_ADD) {
        int32_t y = cu_out(r->g, n, 0),
                other = cu_in(r->g, epi, 0) == y ? cu_in(r->g, epi, 1) : cu_in(r->g, epi, 0);
        a.epi = CU_EPI_ADD, a.residual = f32(r, other), a.seg[0].y = f32(r, cu_out(r->g, epi, 0));
    } else if (epi && (units || a.rows == 1)) {
        a.epi = CU_EPI_GLU, a.act = (int)cu_attr(r->g, epi, MN_GLU_ATTR_KIND);
        a.total = a.seg[0].rows, a.seg[0].y = f32(r, cu_out(r->g, epi, 0)),
        a.y_kind = kind_of(r, cu_out(r->g, epi, 0));
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
        int32_t y = cu_out(r->g, epi, 0);
        cu_elementwise(r->s, CU_EW_GLU, a.seg[0].y, a.seg[1].y, f32(r, y), elements(r, y),
                       (int)cu_attr(r->g, epi, MN_GLU_ATTR_KIND), 0, CU_F32);
    }
}

static void linear(const run *r, const cu_unit *u, bool late) {
    const mn_graph *g = r->g;
    const mn_node *n = cu_node(g, u->node), *norm = u->norm >= 0 ? cu_node(g, u->norm) : NULL,
                  *gather = u->gather >= 0 ? cu_node(g, u->gather) : NULL;
    int32_t x = cu_in(g, n, 0), source = gather ? cu_in(g, gather, 0)
                                         : norm ? cu_in(g, norm, 0)
                                                : x;
    cu_linear a = {};
    a.rows = (int)dim(r, x, 0), a.late = late;
    if (!a.rows)
        return;
    const int32_t *rows = gather ? i32(r, cu_in(g, gather, MN_GATHER_ROWS_ROWS)) : NULL;
    int x_kind = CU_F32;
    a.x = f32(r, x);
    if (norm) {
        const float *w = vector(r, cu_in(g, norm, MN_RMS_NORM_WEIGHT)),
                    eps = (float)cu_attr_f64(g, norm, MN_RMS_NORM_ATTR_EPS),
                    offset = (float)cu_attr_f64(g, norm, MN_RMS_NORM_ATTR_OFFSET);
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
        uint32_t type = weight(r, cu_in(g, n, 1 + 2 * i))->dtype;
        for (count = 1; i + count < n->n_out && count < CU_MAX_SEG &&
                        weight(r, cu_in(g, n, 1 + 2 * (i + count)))->dtype == type;)
            count++;
        linear_part(r, u, n, a, i, count, x_kind);
    }
}

/* ---- the cache ------------------------------------------------------------------------------- */
static cu_cache cache(const run *r, const cu_unit *u, int32_t row_pos, int32_t row_slot,
                      int32_t pages, int32_t kv) {
    cu_cache c = {};
    const cu_kv *k = &u->kv;
    c.row_pos = i32(r, row_pos), c.row_slot = i32(r, row_slot), c.pages = i32(r, pages),
    c.kv = (char *)ptr_of(r, kv);
    c.n_pages = (int64_t)(r->c->bindings[kv].bytes / k->page_bytes);
    c.T = (int)dim(r, row_pos, 0), c.S = (int)dim(r, pages, 0), c.P = (int)dim(r, pages, 1),
    c.Hkv = (int)k->n_head_kv;
    c.dk = (int)k->dim_k, c.dv = (int)k->dim_v, c.pk = (int)k->pad_k, c.pv = (int)k->pad_v,
    c.dtype = k->dtype;
    c.page_bytes = k->page_bytes, c.layer_at = (uint64_t)k->layer * k->layer_bytes,
    c.v_offset = k->v_offset;
    return c;
}

static cu_rope rope(const run *r, const mn_node *n) {
    const mn_graph *g = r->g;
    cu_rope o = {};
    int32_t x = cu_in(g, n, 0);
    double m = cu_attr_f64(g, n, MN_ROPE_ATTR_MSCALE);
    o.x = f32(r, x), o.row_pos = i32(r, cu_in(g, n, MN_ROPE_ROW_POS)),
    o.freqs = vector(r, cu_in(g, n, MN_ROPE_FREQS)), o.y = f32(r, cu_out(g, n, 0));
    o.T = (int)dim(r, x, 0), o.H = (int)dim(r, x, 1), o.D = (int)dim(r, x, 2),
    o.n_rot = (int)cu_attr(g, n, MN_ROPE_ATTR_N_ROT);
    if (!o.n_rot)
        o.n_rot = o.D;
    o.adjacent = cu_attr(g, n, MN_ROPE_ATTR_PAIRING) == MN_ROPE_ADJACENT,
    o.mscale = m == 0 ? 1 : (float)m;
    return o;
}

static void store(const run *r, const cu_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = cu_node(g, u->node);
    cu_store a = {};
    a.c = cache(r, u, cu_in(g, n, MN_KV_STORE_ROW_POS), cu_in(g, n, MN_KV_STORE_ROW_SLOT),
                cu_in(g, n, MN_KV_STORE_PAGES), cu_in(g, n, MN_KV_STORE_KV));
    a.k = f32(r, cu_in(g, n, MN_KV_STORE_K)), a.v = f32(r, cu_in(g, n, MN_KV_STORE_V));
    if ((a.rope = u->rope_q >= 0))
        a.q = rope(r, cu_node(g, u->rope_q)), a.kr = rope(r, cu_node(g, u->rope_k));
    if (a.c.T)
        cu_store_run(r->s, &a);
}

static void attention(const run *r, const cu_unit *u, const cu_unit *joined, bool early) {
    const mn_graph *g = r->g;
    const mn_node *n = cu_node(g, u->node);
    cu_attend a = {};
    a.c = cache(r, u, cu_in(g, n, MN_ATTENTION_ROW_POS), cu_in(g, n, MN_ATTENTION_ROW_SLOT),
                cu_in(g, n, MN_ATTENTION_PAGES), cu_in(g, n, MN_ATTENTION_KV));
    int32_t y = cu_out(g, n, 0), q = cu_in(g, n, 0);
    a.q = f32(r, q), a.sinks = vector(r, cu_in(g, n, MN_ATTENTION_SINKS)), a.y = ptr_of(r, y),
    a.y_kind = kind_of(r, y), a.H = (int)dim(r, q, 1);
    a.partial = (float *)(r->c->scratch + r->p->partial_at),
    a.arrived = (unsigned *)(r->c->scratch + r->p->arrived_at), a.split = r->p->split,
    a.max_splits = r->p->max_splits;
    a.scale = (float)cu_attr_f64(g, n, MN_ATTENTION_ATTR_SCALE),
    a.softcap = (float)cu_attr_f64(g, n, MN_ATTENTION_ATTR_SOFTCAP),
    a.window = (int)cu_attr(g, n, MN_ATTENTION_ATTR_WINDOW);
    if (joined) {
        const mn_node *st = cu_node(g, joined->node);
        a.one = true, a.early = early;
        a.st.v = f32(r, cu_in(g, st, MN_KV_STORE_V)), a.st.q = rope(r, cu_node(g, joined->rope_q)),
        a.st.kr = rope(r, cu_node(g, joined->rope_k));
    }
    if (a.c.T)
        cu_attend_run(r->p->dev, r->s, &a);
}

/* ---- the rest -------------------------------------------------------------------------------- */
static void embed(const run *r, const mn_node *n) {
    const mn_graph *g = r->g;
    const cu_weight *w = weight(r, cu_in(g, n, MN_EMBED_WEIGHT));
    int32_t history = cu_in(g, n, MN_EMBED_HISTORY);
    double scale = cu_attr_f64(g, n, MN_EMBED_ATTR_SCALE);
    cu_embed e = {i32(r, cu_in(g, n, 0)),
                  i32(r, cu_in(g, n, 1)),
                  i32(r, cu_in(g, n, 2)),
                  w->data,
                  w->scale,
                  w->dtype,
                  rows_of(r, cu_in(g, n, MN_EMBED_SLOTS)),
                  (int32_t *)i32(r, history),
                  (int32_t *)i32(r, cu_out(g, n, MN_EMBED_OUT_ROW_POS)),
                  (int32_t *)(r->c->scratch + r->p->ids_at),
                  f32(r, cu_out(g, n, 0)),
                  (int)dim(r, cu_in(g, n, 0), 0),
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
    int32_t logits = cu_in(g, n, 0), history = cu_in(g, n, MN_SAMPLE_HISTORY);
    cu_sample a = {f32(r, logits),
                   f32(r, cu_in(g, n, MN_SAMPLE_BIAS)),
                   i32(r, cu_in(g, n, MN_SAMPLE_OUT_SLOT)),
                   rows_of(r, cu_in(g, n, MN_SAMPLE_PARAMS)),
                   rows_of(r, cu_in(g, n, MN_SAMPLE_SLOTS)),
                   i32(r, history),
                   (int32_t *)i32(r, cu_out(g, n, 0)),
                   (float *)(r->c->scratch + r->p->adjusted_at),
                   (int32_t *)(r->c->scratch + r->p->count_at),
                   (int)dim(r, logits, 0),
                   (int)dim(r, history, 0),
                   (int)dim(r, history, 1),
                   (int)dim(r, logits, 1)};
    int32_t ids = cu_out(g, n, MN_SAMPLE_OUT_TOP_IDS),
            probs = cu_out(g, n, MN_SAMPLE_OUT_TOP_LOGPROBS);
    a.top_ids = (int32_t *)ptr_of(r, ids), a.top_logprobs = f32(r, probs),
    a.n_top = (int)(ids >= 0     ? dim(r, ids, 1)
                    : probs >= 0 ? dim(r, probs, 1)
                                 : 0);
    if (a.O)
        cu_sample_run(r->s, &a);
}

static void norm(const run *r, const mn_node *n) {
    const mn_graph *g = r->g;
    int32_t x = cu_in(g, n, 0), y = cu_out(g, n, 0);
    const int D = (int)last_dim(r, x), rows = (int)(elements(r, x) / D);
    const float *w = vector(r, cu_in(g, n, 1));
    if (!rows)
        return;
    if (n->op == MN_OP_RMS_NORM)
        cu_rms_norm(r->s, f32(r, x), NULL, rows, w, ptr_of(r, y), rows, D,
                    (float)cu_attr_f64(g, n, MN_RMS_NORM_ATTR_EPS),
                    (float)cu_attr_f64(g, n, MN_RMS_NORM_ATTR_OFFSET), kind_of(r, y));
    else
        cu_layer_norm(r->s, f32(r, x), w, vector(r, cu_in(g, n, MN_LAYER_NORM_BIAS)), f32(r, y),
                      rows, D, (float)cu_attr_f64(g, n, MN_LAYER_NORM_ATTR_EPS));
}

static void elementwise(const run *r, const mn_node *n) {
    const mn_graph *g = r->g;
    int32_t a = cu_in(g, n, 0), b = cu_in(g, n, 1), y = cu_out(g, n, 0);
    const bool acts = n->op == MN_OP_ACT || n->op == MN_OP_GLU,
               two = n->op == MN_OP_GLU || n->op == MN_OP_ADD || n->op == MN_OP_MUL;
    const int what = n->op == MN_OP_ACT     ? CU_EW_ACT
                     : n->op == MN_OP_GLU   ? CU_EW_GLU
                     : n->op == MN_OP_ADD   ? CU_EW_ADD
                     : n->op == MN_OP_MUL   ? CU_EW_MUL
                     : n->op == MN_OP_SCALE ? CU_EW_SCALE
                                            : CU_EW_SOFTCAP;
    cu_elementwise(r->s, what, f32(r, a), two ? f32(r, b) : NULL, ptr_of(r, y), elements(r, y),
                   acts ? (int)cu_attr(g, n, 0) : 0, acts ? 0 : (float)cu_attr_f64(g, n, 0),
                   kind_of(r, y));
}

static void single(const run *r, const cu_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = cu_node(g, u->node);
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
        int32_t x = cu_in(g, n, 0), y = cu_out(g, n, 0);
        if (dim(r, y, 0))
            cu_gather(r->s, f32(r, x), i32(r, cu_in(g, n, 1)), f32(r, y), (int)dim(r, y, 0),
                      (int)dim(r, x, 0), (int)last_dim(r, x));
        return;
    }
    default:
        return elementwise(r, n);
    }
}

static bool joined(const run *r, const cu_unit *u) {
    return u->joins && dim(r, cu_in(r->g, cu_node(r->g, u->node), MN_KV_STORE_ROW_POS), 0) == 1;
}

mn_status cu_launch_units(mn_context *c, const int64_t *symbol, cudaStream_t s, mn_error *err) {
    const run r = {c, c->prog, c->prog->graph, symbol, s};
    for (uint32_t i = 0; i < c->prog->n_units; i++) {
        const cu_unit *u = &c->prog->units[i];
        const cu_unit *next = i + 1 < c->prog->n_units ? u + 1 : NULL, *last = i ? u - 1 : NULL;
        if (u->kind == CU_UNIT_LINEAR)
            linear(&r, u, next && joined(&r, next));
        else if (joined(&r, u)) { /* the predecessor of the attention is then the unit before */
            attention(&r, u + 1, u, last && last->kind == CU_UNIT_LINEAR);
            i++;
        } else if (u->kind == CU_UNIT_STORE)
            store(&r, u);
        else
            single(&r, u);
        cudaError_t e = cudaPeekAtLastError();
        if (e == cudaSuccess)
            continue;
        mn_status st = cu_check(e, err, "launching");
        if (err && err->size >= CU_UP_TO(mn_error, node))
            err->node = u->node;
        return st;
    }
    return MN_OK;
}
