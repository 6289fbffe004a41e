/* program.cu -- fuses runs of nodes into units and gives tensors their places. */
#include "program.h"
#include <stdlib.h>

static const mn_tensor *in_of(const mn_graph *g, const mn_node *n, uint32_t i) {
    return cu_in(g, n, i) < 0 ? NULL : cu_tensor(g, cu_in(g, n, i));
}

/* Read once, inside, and not a view: may live in registers alone. */
static bool private_to(const mn_program *p, int32_t t) {
    return t >= 0 && p->homes[t].uses == 1 && !p->homes[t].crosses &&
           cu_tensor(p->graph, t)->role == MN_ROLE_INTERIOR && cu_tensor(p->graph, t)->alias_of < 0;
}
static const mn_node *at(const mn_program *p, uint32_t i, uint32_t op) {
    return i < p->hi && cu_node(p->graph, i)->op == op ? cu_node(p->graph, i) : NULL;
}

static void count_uses(mn_program *p) {
    const mn_graph *g = p->graph;
    for (uint32_t i = p->lo; i < p->hi; i++)
        for (uint32_t j = 0; j < cu_node(g, i)->n_in; j++) {
            int32_t t = cu_in(g, cu_node(g, i), j);
            if (t < 0)
                continue;
            p->homes[t].uses++;
            /* views end every fusion */
            if (cu_root(g, t) != (uint32_t)t)
                p->homes[cu_root(g, t)].uses += 2;
        }
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t j = 0; j < cu_node(g, i)->n_in && (i < p->lo || i >= p->hi); j++) {
            int32_t t = cu_in(g, cu_node(g, i), j);
            if (t >= 0)
                p->homes[t].crosses = p->homes[cu_root(g, t)].crosses = true;
        }
}

/* Whether the LINEAR at i can take the node behind it as its epilogue. */
static bool takes(const mn_program *p, uint32_t i) {
    const mn_graph *g = p->graph;
    const mn_node *l = cu_node(g, i), *add = at(p, i + 1, MN_OP_ADD),
                  *glu = at(p, i + 1, MN_OP_GLU);
    if (add && l->n_out == 1 && private_to(p, cu_out(g, l, 0))) {
        int32_t y = cu_out(g, l, 0), a = cu_in(g, add, 0), b = cu_in(g, add, 1);
        return (a == y) != (b == y);
    }
    return glu && l->n_out == 2 && private_to(p, cu_out(g, l, 0)) &&
           private_to(p, cu_out(g, l, 1)) && cu_in(g, glu, MN_GLU_GATE) == cu_out(g, l, 0) &&
           cu_in(g, glu, MN_GLU_UP) == cu_out(g, l, 1) &&
           in_of(g, l, 1)->dtype.id == in_of(g, l, 3)->dtype.id &&
           in_of(g, l, 1)->dim[0] == in_of(g, l, 3)->dim[0];
}

/* ROPE, ROPE, KV_STORE from node i, then the ATTENTION that alone reads the turned q, over the same
 * cache. */
static bool joins(const mn_program *p, uint32_t i) {
    const mn_graph *g = p->graph;
    const mn_node *q = cu_node(g, i), *k = cu_node(g, i + 1), *s = cu_node(g, i + 2),
                  *a = at(p, i + 3, MN_OP_ATTENTION);
    if (!a || !private_to(p, cu_out(g, q, 0)) || cu_in(g, a, MN_ATTENTION_Q) != cu_out(g, q, 0))
        return false;
    for (int j = 0; j < 3; j++)
        if (cu_attr(g, q, j) != cu_attr(g, k, j))
            return false;
    return cu_in(g, q, MN_ROPE_FREQS) == cu_in(g, k, MN_ROPE_FREQS) &&
           cu_in(g, a, MN_ATTENTION_KV) == cu_in(g, s, MN_KV_STORE_KV) &&
           cu_in(g, a, MN_ATTENTION_PAGES) == cu_in(g, s, MN_KV_STORE_PAGES) &&
           cu_in(g, a, MN_ATTENTION_ROW_POS) == cu_in(g, s, MN_KV_STORE_ROW_POS) &&
           cu_in(g, a, MN_ATTENTION_ROW_SLOT) == cu_in(g, s, MN_KV_STORE_ROW_SLOT) &&
           cu_attr(g, a, MN_ATTENTION_ATTR_KV_LAYER) == cu_attr(g, s, MN_KV_STORE_ATTR_KV_LAYER) &&
           cu_attr(g, a, MN_ATTENTION_ATTR_GROUP) == cu_attr(g, s, MN_KV_STORE_ATTR_GROUP) &&
           in_of(g, q, 0)->dim[2] == in_of(g, k, 0)->dim[2];
}

/* A unit beginning at node i; returns how many nodes it takes. */
static uint32_t unit_at(mn_program *p, uint32_t i, cu_unit *u) {
    const mn_graph *g = p->graph;
    *u = cu_unit{CU_UNIT_NODE, i, -1, -1, -1, -1, -1, false, {}};
    uint32_t k = i;
    const mn_node *gather = at(p, k, MN_OP_GATHER_ROWS);
    if (gather && at(p, k + 1, MN_OP_RMS_NORM) && private_to(p, cu_out(g, gather, 0)) &&
        cu_in(g, cu_node(g, k + 1), 0) == cu_out(g, gather, 0))
        u->gather = (int32_t)k++;
    const mn_node *norm = at(p, k, MN_OP_RMS_NORM);
    if (norm && at(p, k + 1, MN_OP_LINEAR) && private_to(p, cu_out(g, norm, 0)) &&
        cu_in(g, cu_node(g, k + 1), 0) == cu_out(g, norm, 0) && in_of(g, norm, 0)->n_dim == 2)
        u->norm = (int32_t)k++;
    else if (u->gather >= 0)
        u->gather = -1, k = i;
    if (at(p, k, MN_OP_LINEAR)) {
        u->kind = CU_UNIT_LINEAR, u->node = k;
        if (takes(p, k))
            u->epi = (int32_t)++k;
        return k + 1 - i;
    }
    const mn_node *q = at(p, i, MN_OP_ROPE), *kr = at(p, i + 1, MN_OP_ROPE),
                  *store = at(p, i + 2, MN_OP_KV_STORE);
    if (q && kr && store && private_to(p, cu_out(g, kr, 0)) &&
        cu_in(g, store, MN_KV_STORE_K) == cu_out(g, kr, 0) &&
        cu_in(g, store, MN_KV_STORE_ROW_POS) == cu_in(g, kr, MN_ROPE_ROW_POS) &&
        cu_in(g, store, MN_KV_STORE_ROW_POS) == cu_in(g, q, MN_ROPE_ROW_POS)) {
        u->kind = CU_UNIT_STORE, u->node = i + 2, u->rope_q = (int32_t)i,
        u->rope_k = (int32_t)i + 1;
        u->joins = joins(p, i);
        return 3;
    }
    if (at(p, i, MN_OP_KV_STORE))
        u->kind = CU_UNIT_STORE;
    return 1;
}

/* Tensors that only matrix products with one 16-bit type read. */
static void choose_half(mn_program *p) {
    const mn_graph *g = p->graph;
    if (p->precision == MN_PRECISION_EXACT || (p->flags & MN_COMPILE_DETERMINISTIC))
        return;
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const mn_node *n = cu_node(g, i);
        int32_t y = cu_out(g, n, 0);
        if (n->op != MN_OP_ATTENTION && n->op != MN_OP_RMS_NORM && n->op != MN_OP_GLU)
            continue;
        if (!private_to(p, y) || i + 1 >= p->hi)
            continue;
        const mn_node *l = at(p, i + 1, MN_OP_LINEAR);
        if (!l || cu_in(g, l, 0) != y)
            continue;
        uint32_t type = in_of(g, l, 1)->dtype.id;
        bool one = (type == MN_F16 || type == MN_BF16) && in_of(g, l, 1)->dim[1] % CU_K_ALIGN == 0;
        for (uint32_t k = 1; k < n->n_out; k++)
            one = false;
        for (uint32_t k = 1; k < l->n_out; k++)
            one &= in_of(g, l, 1 + 2 * k)->dtype.id == type;
        p->homes[y].half = one ? type == MN_F16 ? CU_HALF : CU_BF16 : 0;
    }
}

static bool bytes_of(const mn_graph *g, const mn_tensor *t, const int64_t *sym, uint64_t *bytes) {
    uint64_t n = 4;
    for (uint32_t i = 0; i < t->n_dim; i++) {
        int64_t d = cu_dim(g, sym, t->dim[i]);
        if (d < 0 || __builtin_mul_overflow(n, (uint64_t)d, &n))
            return false;
    }
    return *bytes = n, n < (uint64_t)1 << 46;
}

static void live(mn_program *p, uint32_t node, int32_t unit) {
    const mn_graph *g = p->graph;
    const mn_node *n = cu_node(g, node);
    for (uint32_t i = 0; i < n->n_in + n->n_out; i++) {
        int32_t t = i < n->n_in ? cu_in(g, n, i) : cu_out(g, n, i - n->n_in);
        if (t < 0 || cu_tensor(g, t)->role == MN_ROLE_WEIGHT)
            continue;
        cu_home *h = &p->homes[cu_root(g, t)];
        if (h->first < 0)
            h->first = unit;
        h->last = unit;
        h->produced |= i >= n->n_in;
    }
}

/* Each at the lowest place that no tensor alive at the same time holds; the largest first. */
static int by_size(const void *a, const void *b, void *arg) {
    const cu_home *h = (const cu_home *)arg;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return h[x].bytes != h[y].bytes ? (h[x].bytes < h[y].bytes ? 1 : -1) : x < y ? -1 : 1;
}
static void place(mn_program *p, uint32_t *order, uint32_t n) {
    cu_home *homes = p->homes;
    qsort_r(order, n, sizeof *order, by_size, homes);
    for (uint32_t i = 0; i < n; i++) {
        cu_home *h = &homes[order[i]];
        uint64_t at = 0;
        for (bool moved = true; moved;) {
            moved = false;
            for (uint32_t j = 0; j < i; j++) {
                const cu_home *o = &homes[order[j]];
                if (o->last < h->first || o->first > h->last || o->place >= at + h->bytes ||
                    o->place + o->bytes <= at)
                    continue;
                at = o->place + o->bytes, moved = true;
            }
        }
        h->place = at;
        if (at + h->bytes > p->arena)
            p->arena = at + h->bytes;
    }
}

static uint64_t reserve(mn_program *p, uint64_t bytes) {
    uint64_t at = p->scratch;
    p->scratch += (uint64_t)cu_round((int64_t)bytes, 256);
    return at;
}

/* What kernels need beside tensors: 16-bit copies of inputs, partial attention, resolved ids,
 * adjusted logits. */
static void extras(mn_program *p) {
    const mn_graph *g = p->graph;
    uint64_t half = 0, partial = 0, arrived = 0, ids = 0, logits = 0;
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const mn_node *n = cu_node(g, i);
        const mn_tensor *x = in_of(g, n, 0);
        uint64_t rows = x && x->n_dim ? (uint64_t)cu_dim(g, p->symbol_max, x->dim[0]) : 1, want = 0;
        if (n->op == MN_OP_LINEAR)
            want = rows * (uint64_t)cu_round(in_of(g, n, 1)->dim[1], CU_K_ALIGN) * 2;
        half = want > half ? want : half;
        if (n->op == MN_OP_EMBED)
            ids = rows * 4;
        if (n->op == MN_OP_SAMPLE)
            logits = rows * (uint64_t)cu_dim(g, p->symbol_max, x->dim[1]) * 4;
        if (n->op != MN_OP_ATTENTION)
            continue;
        const mn_tensor *pages = in_of(g, n, MN_ATTENTION_PAGES),
                        *y = cu_tensor(g, cu_out(g, n, 0));
        int64_t positions = cu_dim(g, p->symbol_max, pages->dim[1]) * CU_PAGE_TOKENS;
        p->split = positions > 8192 ? 1024 : 256;
        p->max_splits = (int)((positions + p->split - 1) / p->split);
        uint64_t heads = rows * (uint64_t)x->dim[1], most = 16ull * p->dev->sms;
        heads = heads < most ? heads : most;
        want = heads * (uint64_t)p->max_splits * (uint64_t)(y->dim[2] + 2) * 4;
        partial = want > partial ? want : partial;
        arrived = heads * 4 > arrived ? heads * 4 : arrived;
    }
    p->scratch = (uint64_t)cu_round((int64_t)p->arena, 256);
    p->half_at = reserve(p, half), p->partial_at = reserve(p, partial),
    p->arrived_at = reserve(p, arrived), p->ids_at = reserve(p, ids);
    p->adjusted_at = reserve(p, logits), p->count_at = reserve(p, logits);
}

static mn_status check_shape(const mn_program *p, uint32_t i, mn_error *err) {
    const mn_graph *g = p->graph;
    const mn_node *n = cu_node(g, i);
    uint32_t r = cu_verdict(p->dev, g, i);
    if (r)
        return cu_fail(err, MN_UNSUPPORTED, i, "node %u (op %u): %s", i, n->op, cu_reason_text(r));
    for (uint32_t j = 0; j < n->n_in + n->n_out; j++) {
        int32_t t = j < n->n_in ? cu_in(g, n, j) : cu_out(g, n, j - n->n_in);
        if (t < 0)
            continue;
        const mn_tensor *x = cu_tensor(g, t);
        int64_t dense = 1;
        for (uint32_t d = x->n_dim; x->alias_of >= 0 && d-- > 0;) {
            int64_t size = cu_dim(g, p->symbol_max, x->dim[d]);
            if (x->stride[d] != dense && size != 1)
                return cu_fail(err, MN_UNSUPPORTED, i, "node %u: only dense views are supported",
                               i);
            dense *= size;
        }
    }
    return MN_OK;
}

static mn_status plan(mn_program *p, mn_error *err) {
    const mn_graph *g = p->graph;
    uint32_t n = 0;
    mn_status s = MN_OK;
    for (uint32_t i = 0; i < g->n_tensors; i++)
        p->homes[i] = cu_home{CU_NOWHERE, 0, -1, -1, 0, false, false, 0};
    for (uint32_t i = p->lo; i < p->hi && !s; i++)
        s = check_shape(p, i, err);
    if (s)
        return s;
    count_uses(p);
    choose_half(p);
    for (uint32_t i = p->lo, took; i < p->hi; i += took) {
        cu_unit *u = &p->units[p->n_units++];
        took = unit_at(p, i, u);
        for (uint32_t k = i; k < i + took; k++)
            live(p, k, (int32_t)p->n_units - 1);
        if (u->joins) /* the attention may be the one to read q, k and v */
            for (uint32_t k = i; k < i + took; k++)
                live(p, k, (int32_t)p->n_units);
        const mn_node *node = cu_node(g, u->node);
        bool store = node->op == MN_OP_KV_STORE;
        if (!store && node->op != MN_OP_ATTENTION)
            continue;
        uint32_t group = (uint32_t)cu_attr(
            g, node, store ? (uint32_t)MN_KV_STORE_ATTR_GROUP : (uint32_t)MN_ATTENTION_ATTR_GROUP);
        int64_t layer = cu_attr(g, node,
                                store ? (uint32_t)MN_KV_STORE_ATTR_KV_LAYER
                                      : (uint32_t)MN_ATTENTION_ATTR_KV_LAYER);
        if ((s = cu_kv_of(g, p->lo, p->hi, group, p->k_dtype, p->v_dtype, &u->kv, err)))
            return s;
        if ((u->kv.layer = cu_kv_rank(g, p->lo, p->hi, group, layer)) < 0)
            return cu_fail(err, MN_INVALID, u->node, "node %u: no KV_STORE for KV layer %lld",
                           u->node, (long long)layer);
        int32_t pages =
            cu_in(g, node, store ? (uint32_t)MN_KV_STORE_PAGES : (uint32_t)MN_ATTENTION_PAGES);
        if (pages < 0 || cu_tensor(g, pages)->n_dim != 2)
            return cu_fail(err, MN_INVALID, u->node, "node %u: PAGES is absent", u->node);
    }
    uint32_t *order = (uint32_t *)cu_new(p->dev, g->n_tensors * sizeof *order);
    if (!order)
        return cu_fail(err, MN_OUT_OF_MEMORY, ~0u, "out of memory: planning");
    for (uint32_t i = 0; i < g->n_tensors && !s; i++) {
        const mn_tensor *t = cu_tensor(g, i);
        cu_home *h = &p->homes[i];
        if (!h->produced || (t->role != MN_ROLE_INTERIOR && t->role != MN_ROLE_OUTPUT))
            continue;
        if (!bytes_of(g, t, p->symbol_max, &h->bytes))
            s = cu_fail(err, MN_INVALID, ~0u, "tensor %u: its size overflows", i);
        h->bytes = (uint64_t)cu_round((int64_t)h->bytes, 256);
        order[n++] = i;
    }
    if (!s)
        place(p, order, n), extras(p);
    cu_delete(p->dev, order);
    return s;
}

static mn_status make(mn_device *d, const mn_compile *in, mn_program **out, mn_error *err) {
    mn_compile c;
    uint32_t bad = 0;
    mn_status s = cu_read_compile(in, &c, err);
    if (s)
        return s;
    const mn_graph *g = c.graph;
    mn_program *p = (mn_program *)cu_new(d, sizeof *p);
    if (!p)
        return cu_fail(err, MN_OUT_OF_MEMORY, ~0u, "out of memory: a program");
    p->dev = d;
    p->graph = g;
    p->lo = c.node_lo;
    p->hi = c.node_hi;
    p->flags = (uint32_t)c.flags;
    p->precision = cu_precision(&c);
    p->k_dtype = cu_kv_dtype(c.k_dtype, p->precision);
    p->v_dtype = cu_kv_dtype(c.v_dtype, p->precision);
    p->symbol_max = (int64_t *)cu_new(d, g->n_symbols * sizeof *p->symbol_max);
    p->units = (cu_unit *)cu_new(d, (p->hi - p->lo) * sizeof *p->units);
    p->homes = (cu_home *)cu_new(d, g->n_tensors * sizeof *p->homes);
    p->w = (const cu_weight **)cu_new(d, g->n_tensors * sizeof *p->w);
    if (!p->symbol_max || !p->units || !p->homes || !p->w)
        s = cu_fail(err, MN_OUT_OF_MEMORY, ~0u, "out of memory: a program");
    else if (!cu_symbols(g, c.symbol_max, NULL, p->symbol_max, &bad))
        s = cu_fail(err, MN_INVALID, ~0u, "symbol_max of %.24s is %lld", cu_symbol(g, bad)->name,
                    (long long)c.symbol_max[bad]);
    else
        s = plan(p, err);
    if (s)
        cu_program_free(p);
    else
        *out = p;
    return s;
}

static uint64_t weight_bytes(const mn_program *p, bool streamed_only) {
    uint64_t sum = 0;
    for (uint32_t t = 0; t < p->graph->n_tensors; t++) {
        const mn_tensor *x = cu_tensor(p->graph, t);
        if (x->role != MN_ROLE_WEIGHT || !p->homes[t].uses || !x->dtype.block_elems)
            continue;
        bool table = false;
        for (uint32_t i = p->lo; i < p->hi && streamed_only; i++)
            table |= cu_node(p->graph, i)->op == MN_OP_EMBED &&
                     cu_in(p->graph, cu_node(p->graph, i), MN_EMBED_WEIGHT) == (int32_t)t;
        if (table && p->homes[t].uses == 1)
            continue;
        uint64_t cols = (uint64_t)(x->n_dim > 1 ? cu_round(x->dim[1], CU_K_ALIGN) : x->dim[0]),
                 rows = x->n_dim > 1 ? (uint64_t)x->dim[0] : 1;
        sum +=
            (x->n_dim > 1 ? rows * cols / x->dtype.block_elems * x->dtype.block_bytes : cols * 4) +
            512;
    }
    return sum;
}

mn_status cu_estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    mn_program *p;
    mn_status s = make(d, c, &p, err);
    if (s)
        return s;
    mn_estimate e = {};
    e.size = sizeof e, e.precision = p->precision, e.weights = weight_bytes(p, false),
    e.scratch = p->scratch + CU_SLACK;
    e.host_pinned = (uint64_t)CU_SEGMENTS * CU_SEGMENT_BYTES;
    e.decode_us = (double)weight_bytes(p, true) / ((d->gbps > 0 ? d->gbps : 500) * 0.5) * 1e-3 +
                  2.0 * p->n_units;
    e.prefill_us = e.decode_us * (p->precision == MN_PRECISION_EXACT ? 100 : 16);
    e.row_grain = 8; /* rows of x go by eight, on the matrix units and off them */
    if (p->precision == MN_PRECISION_EXACT)
        e.flags |= MN_ESTIMATE_DETERMINISTIC;
    cu_program_free(p);
    e.size = out->size < sizeof e ? out->size : (uint32_t)sizeof e;
    memcpy(out, &e, e.size);
    return MN_OK;
}

/* The entry of a weight set for a tensor of g: by index if it is the set's own graph, else by name,
 * type and dims. NULL = the set has none, or it was not put. */
static const cu_weight *find_weight(const mn_weights *w, const mn_graph *g, int32_t tensor) {
    const mn_tensor *t = cu_tensor(g, tensor);
    if (w->graph == g)
        return w->w[tensor].put ? &w->w[tensor] : NULL;
    for (uint32_t i = 0; i < w->graph->n_tensors; i++) {
        const mn_tensor *x = cu_tensor(w->graph, i);
        if (w->w[i].put && x->name.len == t->name.len && x->dtype.id == t->dtype.id &&
            !memcmp(x->name.ptr, t->name.ptr, t->name.len))
            return x->n_dim == t->n_dim && !memcmp(x->dim, t->dim, sizeof t->dim) ? &w->w[i] : NULL;
    }
    return NULL;
}

/* Finds what the program's nodes read in the weight set, which may have been opened for another
 * graph. */
static mn_status find_weights(mn_program *p, const mn_weights *w, mn_error *err) {
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const mn_node *n = cu_node(p->graph, i);
        for (uint32_t j = 0; j < n->n_in; j++) {
            const int32_t t = cu_in(p->graph, n, j);
            if (t < 0 || cu_tensor(p->graph, t)->role != MN_ROLE_WEIGHT)
                continue;
            p->w[t] = w ? find_weight(w, p->graph, t) : NULL;
            if (!p->w[t])
                return cu_fail(err, w && w->graph != p->graph ? MN_UNSUPPORTED : MN_INVALID, i,
                               "node %u: a weight is not in the weight set", i);
        }
    }
    return MN_OK;
}

mn_status cu_compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    mn_program *p;
    mn_status s = make(d, c, &p, err);
    if (s)
        return s;
    s = find_weights(p, c->weights, err);
    if (s)
        cu_program_free(p);
    else
        *out = p;
    return s;
}

void cu_program_free(mn_program *p) {
    if (!p)
        return;
    cu_delete(p->dev, p->symbol_max);
    cu_delete(p->dev, p->units);
    cu_delete(p->dev, p->homes);
    cu_delete(p->dev, p->w);
    cu_delete(p->dev, p);
}

mn_status cu_program_save(const mn_program *p, void *dst, uint64_t *bytes) {
    return (void)p, (void)dst, (void)bytes, MN_UNSUPPORTED;
}
