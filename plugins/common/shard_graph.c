/* shard_graph.c -- what follows from a plan: the graph that each member executes, and its pieces of
 * the weights' sources. A member's graph has the host's nodes and symbols, tensors with the dims of
 * its pieces, operands that name pieces, and the KV heads of its own in ATTENTION. The plan owns
 * all of it but what it shares with the host's graph. */
#include "shard_impl.h"
#include <stdio.h>

enum { NAME = 96 };

/* ---- graphs ---------------------------------------------------------------------------------- */
/* Tensor t as a member has it. */
static mn_tensor member_tensor(const mnp_shard *s, uint32_t rank, uint32_t t) {
    const mnp_piece *p = &s->pieces[t];
    mn_tensor x = *mnp_tensor(s->g, p->source);
    if (p->dim >= 0) {
        const mnp_share share = shard_shares(s, t)[rank];
        x.dim[p->dim] = share.hi - share.lo;
    }
    if (t < s->g->n_tensors)
        return x;
    char *name = &s->names[(uint64_t)(t - s->g->n_tensors) * NAME];
    if (x.role != MN_ROLE_WEIGHT)
        x.role = MN_ROLE_INTERIOR;
    snprintf(name, NAME, "%.*s@%d", (int)(x.name.len > 80 ? 80 : x.name.len), x.name.ptr, p->dim);
    x.name = mnp_str(name);
    return x;
}

/* Biases of sums are read by member 0 alone. */
static void fill_operands(const mnp_shard *s) {
    const uint32_t n = s->g->n_operands;
    for (uint32_t i = 0; i < n; i++) {
        s->member_operands[i] = s->operands[i];
        s->member_operands[n + i] = s->first_only[i] ? -1 : s->operands[i];
    }
}

static void fill_attrs(const mnp_shard *s, uint32_t rank, uint64_t *attrs) {
    for (uint64_t i = 0; i < s->g->n_attrs; i++)
        attrs[i] = s->g->attrs[i];
    for (uint32_t i = s->lo; i < s->hi; i++) {
        const mn_node *n = mnp_node(s->g, i);
        const mnp_share kv = s->kv[(uint64_t)i * s->n + rank];
        if (n->op == MN_OP_ATTENTION && kv.hi > kv.lo)
            attrs[n->attr_off + MN_ATTENTION_ATTR_N_HEAD_KV] = (uint64_t)(kv.hi - kv.lo);
    }
}

static void make_graph(const mnp_shard *s, uint32_t rank) {
    mn_graph *g = &s->graphs[rank];
    mn_tensor *tensors = &s->tensors[(uint64_t)rank * s->n_tensors];
    uint64_t *attrs = &s->attrs[rank * s->g->n_attrs];
    mnp_read(g, sizeof *g, s->g, s->g->size);
    g->size = sizeof *g;
    for (uint32_t t = 0; t < s->n_tensors; t++)
        tensors[t] = member_tensor(s, rank, t);
    fill_attrs(s, rank, attrs);
    g->tensors = tensors;
    g->n_tensors = s->n_tensors;
    g->tensor_stride = sizeof *tensors;
    g->operands = &s->member_operands[rank ? s->g->n_operands : 0];
    g->attrs = attrs;
    g->digest[3] ^= (uint64_t)s->n << 32 | (rank + 1);
}

mn_status shard_make_graphs(mnp_shard *s, mn_error *err) {
    const mn_graph *g = s->g;
    const uint64_t n_extra = s->n_tensors - g->n_tensors;
    s->graphs = mnp_new(s->host, s->n * sizeof *s->graphs);
    s->tensors = mnp_new(s->host, (uint64_t)s->n * s->n_tensors * sizeof *s->tensors);
    s->member_operands = mnp_new(s->host, 2 * (uint64_t)g->n_operands * sizeof *s->operands);
    s->attrs = mnp_new(s->host, s->n * g->n_attrs * sizeof *s->attrs);
    s->names = mnp_new(s->host, n_extra * NAME);
    if (!s->graphs || !s->tensors || !s->member_operands || !s->attrs || !s->names)
        return mnp_fail_memory(err, (uint64_t)s->n * s->n_tensors * sizeof *s->tensors,
                               "the graphs of a group");
    fill_operands(s);
    for (uint32_t rank = 0; rank < s->n; rank++)
        make_graph(s, rank);
    return MN_OK;
}

/* ---- reading a plan -------------------------------------------------------------------------- */
uint32_t mnp_shard_members(const mnp_shard *s) {
    return s->n;
}

const mn_graph *mnp_shard_graph(const mnp_shard *s, uint32_t rank) {
    return &s->graphs[rank];
}

const mnp_exchange *mnp_shard_exchanges(const mnp_shard *s, uint32_t *n) {
    *n = s->n_exchanges;
    return s->exchanges;
}

mnp_piece mnp_shard_piece(const mnp_shard *s, uint32_t tensor) {
    return s->pieces[tensor];
}

mnp_share mnp_shard_share(const mnp_shard *s, uint32_t tensor, uint32_t rank) {
    const mnp_share none = {0, 0};
    return s->pieces[tensor].dim < 0 ? none : shard_shares(s, tensor)[rank];
}

/* A weight counts where it is read first. */
static bool is_read_before(const mn_graph *g, uint32_t lo, mnp_cursor end, int32_t t) {
    mnp_cursor at = {lo, 0};
    uint32_t node;
    for (int32_t w; (w = mnp_next_weight(g, end.node + 1, &at, &node)) >= 0;) {
        if (at.node == end.node && at.operand >= end.operand)
            return false;
        if (w == t)
            return true;
    }
    return false;
}

uint64_t mnp_shard_weight_bytes(const mnp_shard *s, uint32_t rank) {
    const mn_graph *g = &s->graphs[rank];
    mnp_cursor at = {s->lo, 0};
    uint64_t sum = 0;
    uint64_t bytes;
    uint32_t node;
    for (int32_t t; (t = mnp_next_weight(g, s->hi, &at, &node)) >= 0;)
        if (!is_read_before(g, s->lo, at, t) &&
            mnp_bytes(g, mnp_tensor(g, (uint32_t)t), NULL, &bytes))
            sum += bytes;
    return sum;
}

/* ---- sources --------------------------------------------------------------------------------- */
/* How many elements of a weight along dim one value of a plane beside DATA stands for; 0: it has
 * one value for all. */
static int64_t plane_step(const mn_tensor *t, const mn_plane *p, int64_t n_data, uint32_t dim) {
    const bool last = dim + 1 == t->n_dim;
    const bool picked = t->dtype.id == MN_PICK4_32 || t->dtype.id == MN_PICK8_32;
    if (p->kind == MN_PLANE_TENSOR_SCALE || p->dim[dim] <= 1)
        return 0;
    if (last && picked) /* all columns pick from all values of their rows */
        return p->kind == MN_PLANE_PICK;
    if (last && t->n_dim > 1)
        return t->dtype.block_elems;
    return p->dim[dim] == n_data ? 1 : 128;
}

/* The share of a part's plane along dim, counted in elements from the part's beginning. */
static void shard_graph_cut_plane(mn_plane *p, mnp_share share, int64_t step, int64_t stride_step,
                                  uint32_t dim) {
    const int64_t skipped = share.lo / stride_step * p->stride[dim];
    p->ptr = (const char *)p->ptr + skipped;
    p->bytes -= (uint64_t)skipped;
    p->dim[dim] = (share.hi - share.lo + step - 1) / step;
}

/* Whether a share of a plane begins and ends between its values. */
static bool may_cut(mnp_share share, int64_t step, int64_t n) {
    return share.lo % step == 0 && (share.hi % step == 0 || share.hi == n);
}

/* All planes of a part. False: a border lies inside of a block. */
static bool shard_graph_cut_part(const mn_tensor *t, const mn_weight_src *in, uint32_t part,
                                 uint32_t dim, mnp_share share, mn_plane *to) {
    const mn_plane *data = mnp_plane(in, part, 0);
    const int64_t block = t->dtype.block_elems;
    const bool last = dim + 1 == t->n_dim;
    if (last && !may_cut(share, block, data->dim[dim]))
        return false;
    for (uint32_t i = 0; i < in->n_planes; i++) {
        to[i] = *mnp_plane(in, part, i);
        if (i == 0) {
            shard_graph_cut_plane(&to[i], share, 1, last ? block : 1, dim);
            continue;
        }
        const int64_t step = plane_step(t, &to[i], data->dim[dim], dim);
        if (step && !may_cut(share, step, data->dim[dim]))
            return false;
        if (step)
            shard_graph_cut_plane(&to[i], share, step, step, dim);
    }
    return true;
}

/* What a share along dim 0 has of a part, which begins at row `begin`. */
static mnp_share share_of_part(mnp_share share, int64_t begin, int64_t n) {
    mnp_share x = {share.lo - begin, share.hi - begin};
    if (x.lo < 0)
        x.lo = 0;
    if (x.hi > n)
        x.hi = n;
    return x;
}

mn_status mnp_shard_source(const mnp_shard *s, uint32_t rank, uint32_t tensor,
                           const mn_weight_src *in, mn_plane *planes, mn_weight_src *out,
                           mn_error *err) {
    const mnp_piece piece = s->pieces[tensor];
    const mn_tensor *t = mnp_tensor(s->g, piece.source);
    const mnp_share share = mnp_shard_share(s, tensor, rank);
    const uint32_t dim = piece.dim < 0 ? 0 : (uint32_t)piece.dim;
    int64_t begin = 0;
    mnp_read(out, sizeof *out, in, in->size);
    out->size = sizeof *out;
    out->tensor = tensor;
    if (piece.dim < 0)
        return MN_OK;
    out->n_parts = 0;
    out->planes = planes;
    out->plane_stride = sizeof *planes;
    for (uint32_t i = 0; i < in->n_parts; i++) {
        const int64_t n = mnp_plane(in, i, 0)->dim[0];
        const mnp_share here = dim == 0 ? share_of_part(share, begin, n) : share;
        begin += n;
        if (here.hi <= here.lo)
            continue;
        if (!shard_graph_cut_part(t, in, i, dim, here,
                                  &planes[(uint64_t)out->n_parts * in->n_planes]))
            return mnp_fail(err, MN_UNSUPPORTED, ~0u,
                            "%.*s: elements %lld to %lld of dim %u cannot be cut out of its blocks",
                            MNP_NAME(t), (long long)share.lo, (long long)share.hi, dim);
        out->n_parts++;
    }
    return MN_OK;
}
