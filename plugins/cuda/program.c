/* program.c -- what CUDA adds to a compiled segment: which nodes make a unit, which tensors are
 * kept in 16 bits, in which splits long caches are attended. A program belongs to its device. */
#include "gemm.h"
#include "ops.h"

uint32_t cu_precision(const mn_compile *c) {
    /* nothing here rounds to 8 bits */
    if (c->precision == MN_PRECISION_A8)
        return MN_PRECISION_A16;
    if (c->precision != MN_PRECISION_AUTO)
        return c->precision;
    for (uint32_t i = c->node_lo; i < c->node_hi; i++) {
        const mn_node *n = mnp_node(c->graph, i);
        int32_t w = mnp_in(c->graph, n, MN_LINEAR_WEIGHT);
        if (n->op == MN_OP_LINEAR && w >= 0 && mnp_tensor(c->graph, w)->dtype.id != MN_F32)
            return MN_PRECISION_A16;
    }
    return MN_PRECISION_EXACT;
}

const mnp_pattern *const *cu_patterns(const mn_device *d, uint32_t *n) {
    static const mnp_pattern *const patterns[] = {&mnp_pattern_linear, &mnp_pattern_store,
                                                  &mnp_pattern_moe_linear, &mnp_pattern_combine};
    (void)d;
    *n = sizeof patterns / sizeof *patterns;
    return patterns;
}

/* The symbol that says whether each sequence of a step has one row; -1 = none. */
static int32_t find_seq_rows(const mn_graph *g) {
    for (uint32_t i = 0; i < g->n_symbols; i++) {
        const mn_symbol *s = mnp_symbol(g, i);
        if (s->kind == MN_SYMBOL_FACT && !strncmp(s->name, "seq_rows", sizeof s->name))
            return i;
    }
    return -1;
}

/* as: cu_member, or NULL. */
mn_status cu_program_begin(mn_program *p, const mn_compile *c, const void *as, mn_error *err) {
    const cu_member *of = as;
    const uint64_t n = c->graph->n_tensors;
    p->seq_rows = find_seq_rows(c->graph);
    if (of) {
        p->plan = of->plan;
        p->rank = of->rank;
    }
    p->half = mng_new(p->base.dev, n);
    if (p->half)
        return MN_OK;
    return mnp_fail_memory(err, n, "a program");
}

void cu_program_free(mn_program *p) {
    mng_delete(p->base.dev, p->half);
    mng_delete(p->base.dev, p->stops);
}

/* ---- units ----------------------------------------------------------------------------------- */
void cu_program_uses(mn_program *p) {
    if (p->plan)
        mnp_shard_uses(p->plan, p->base.uses);
}

/* Links a store with the later unit of the attention that may take it in: of caches all f32 or all
 * f16. */
static void link_attention(mng_program *p, uint32_t store, int32_t attention) {
    for (uint32_t i = store + 1; i < p->n_units && attention >= 0; i++) {
        if (p->units[i].node == (uint32_t)attention) {
            p->units[i].with = store;
            p->units[store].with = i;
        }
    }
}

/* How matrix units want x of a product, if it reads tensor t as x, all its weights agree, and rows
 * need no padding; else 0. With experts one row goes to matrix units, too. */
static uint8_t half_of(const mn_graph *g, const mn_node *n, int32_t t) {
    const bool experts = n->op == MN_OP_MOE_LINEAR;
    const uint32_t first = experts ? (uint32_t)MN_MOE_LINEAR_WEIGHT : (uint32_t)MN_LINEAR_WEIGHT;
    if ((n->op != MN_OP_LINEAR && !experts) || mnp_in(g, n, 0) != t)
        return 0;
    const mn_tensor *w = mnp_in_tensor(g, n, first);
    const int64_t K = w->dim[w->n_dim - 1];
    const cu_type *type = cu_type_for(w->dtype.id, K);
    const uint32_t n_dim = mnp_tensor(g, t)->n_dim;
    if (!experts && w->n_dim == 3) /* of heads */
        return 0;
    if (K % CU_K_ALIGN || (experts && n_dim != 3))
        return 0;
    for (uint32_t i = 1; i < n->n_out; i++) {
        const mn_tensor *other = mnp_in_tensor(g, n, first + 2 * i);
        if (cu_type_for(other->dtype.id, K)->half != type->half)
            return 0;
    }
    if (type->half == CU_F32 || !experts)
        return (uint8_t)type->half;
    const int always = type->import ? 0 : CU_ALWAYS;
    return (uint8_t)(type->half | CU_PAIRS | always);
}

/* Tensors that only products of matrix units read. */
static void choose_half(mn_program *prog) {
    const mng_program *p = &prog->base;
    const mn_graph *g = p->graph;
    const mnp_lowering l = {g, p->lo, p->hi, p->uses};
    if (!cu_rounds(prog))
        return;
    for (uint32_t i = p->lo; i < p->hi; i++) {
        const mn_node *n = mnp_node(g, i);
        const int32_t y = mnp_out(g, n, 0);
        if (n->op != MN_OP_ATTENTION && n->op != MN_OP_RMS_NORM && n->op != MN_OP_GLU)
            continue;
        const mn_tensor *norm = mnp_in_tensor(g, n, MN_RMS_NORM_WEIGHT);
        if (n->op == MN_OP_RMS_NORM && norm->n_dim == 1 &&
            norm->dim[0] < mnp_tensor(g, (uint32_t)y)->dim[mnp_tensor(g, (uint32_t)y)->n_dim - 1])
            continue; /* of a part of each row */
        if (n->n_out == 1 && mnp_is_private(&l, y))
            prog->half[y] = half_of(g, mnp_node(g, p->uses[y].reader), y);
    }
}

mn_status cu_program_lowered(mn_program *prog, const mnp_unit *lowered, mn_error *err) {
    mng_program *p = &prog->base;
    for (uint32_t i = 0; i < p->n_units; i++) {
        const mnp_kv *kv = &p->units[i].kv;
        const bool floats = kv->k_dtype != MN_Q8_0 && kv->k_dtype == kv->v_dtype;
        if (lowered[i].pattern == &mnp_pattern_store && floats)
            link_attention(p, i, lowered[i].part[MNP_STORE_ATTENTION]);
    }
    const mn_status st = prog->plan ? cu_find_stops(prog, err) : MN_OK;
    if (!st)
        choose_half(prog);
    return st;
}

/* ---- memory ---------------------------------------------------------------------------------- */
/* A store that an attention may take in lives until then, and what a router's norm may run lives
 * from then on; behind the last unit, what exchanges touch. */
void cu_program_live(mn_program *prog, uint32_t i) {
    const mng_program *p = &prog->base;
    const mng_unit *u = &p->units[i];
    const int32_t nodes[] = {u->node, u->gather, u->norm, cu_epilogue_of(u), u->rope_q, u->rope_k};
    for (uint32_t k = 0; k < sizeof nodes / sizeof *nodes && u->with > (int32_t)i; k++)
        if (nodes[k] >= 0)
            mnp_arena_live(p->graph, nodes[k], u->with, p->allocations);
    for (uint32_t k = 1; k <= 2 && cu_is_router(prog, i); k++)
        mnp_arena_live(p->graph, u[k].node, i, p->allocations);
    if (i + 1 == p->n_units)
        cu_stops_live(prog);
}

/* Long caches are attended in splits of so many positions, summed up at the end: one length for all
 * KV groups, by the one with the longest rows of PAGES; in class exact the same for every length of
 * the context, so that sessions of different ones have the same bits. */
static void choose_splits(mn_program *prog) {
    const mng_program *p = &prog->base;
    int64_t most = 0;
    for (uint32_t i = 0; i < p->n_units; i++) {
        const mn_node *n = mnp_node(p->graph, p->units[i].node);
        if (n->op != MN_OP_ATTENTION)
            continue;
        const mn_tensor *pages = mnp_in_tensor(p->graph, n, MN_ATTENTION_PAGES);
        const int64_t positions = mnp_dim(p->graph, p->symbol_max, pages->dim[1]) * CU_PAGE_TOKENS;
        if (positions > most)
            most = positions;
    }
    prog->split = most > 8192 && p->precision != MN_PRECISION_EXACT ? 1024 : 256;
    prog->max_splits = (int)((most + prog->split - 1) / prog->split);
}

void cu_program_needs(mn_program *p, mng_needs *needs) {
    choose_splits(p);
    mng_need(needs, CU_NEED_GEMM, cu_gemm_scratch(&p->base.dev->card));
}

/* ---- estimates ------------------------------------------------------------------------------- */
/* Queues that may import at once (MN_DEVICE_PARALLEL_PUT): each has a staging area of its own. */
static uint32_t importers(const mn_device *d) {
    const mn_host *h = d->base.host;
    if (!MN_HAS(mn_host, h, workers))
        return 1;
    const uint32_t n = h->workers(h->self);
    if (n)
        return n;
    return 1;
}

/* What measurements said of one H200: about half of the bandwidth, 2 us a unit; a prompt of 512
 * rows on matrix units. */
void cu_estimate(const mn_program *p, double streamed, mn_estimate *e) {
    const mn_device *d = p->base.dev;
    const double gbps = d->gbps > 0 ? d->gbps : 500;
    const double launches_us = 2.0 * p->base.n_units;
    e->import_peak = (uint64_t)CU_STAGE_BYTES * importers(d);
    e->decode_us = streamed / (gbps * 0.5) * 1e-3 + launches_us;
    e->prefill_us = e->decode_us * (p->base.precision == MN_PRECISION_EXACT ? 100 : 16);
    e->row_grain = 8; /* rows of x go by eight, on the matrix units and off them */
}
