/* shard.c -- the plan of a group: which rows, columns and heads each member has, and where the
 * members exchange results. Decided in this order: attention, one KV group after the other, for all
 * layers of a group share the shape of their pages; feed-forward parts, from their activation; the
 * embedding; then every product that is still open. What a divided tensor needs is followed from
 * its reader back to the product that makes it. The plan owns its arrays, the host the graph. */
#include "shard_impl.h"

/* ---- shares ---------------------------------------------------------------------------------- */
/* total in units, as even as they go; the last member has the rest of total, too. */
static void even_shares(uint32_t n, int64_t total, int64_t unit, mnp_share *out) {
    const int64_t units = total / unit;
    for (uint32_t r = 0; r < n; r++) {
        out[r].lo = (int64_t)r * units / n * unit;
        out[r].hi = ((int64_t)r + 1) * units / n * unit;
    }
    out[n - 1].hi = total;
}

static void scale_shares(uint32_t n, const mnp_share *in, int64_t factor, mnp_share *out) {
    for (uint32_t r = 0; r < n; r++) {
        out[r].lo = in[r].lo * factor;
        out[r].hi = in[r].hi * factor;
    }
}

static bool is_aligned(uint32_t n, const mnp_share *shares, int64_t grain, int64_t total) {
    for (uint32_t r = 0; r < n; r++) {
        const bool ends_whole = shares[r].hi == total || shares[r].hi % grain == 0;
        if (shares[r].lo % grain || !ends_whole)
            return false;
    }
    return true;
}

static int64_t shard_common_multiple(int64_t a, int64_t b) {
    int64_t m = a;
    while (m % b)
        m += a;
    return m;
}

/* Rows of F8_E4M3_128 share scales by 128. */
static int64_t row_grain(const mn_tensor *weight) {
    return weight->dtype.id == MN_F8_E4M3_128 ? 128 : 1;
}

/* ---- pieces ---------------------------------------------------------------------------------- */
static void set_piece(mnp_shard *s, uint32_t t, uint32_t source, int32_t dim,
                      const mnp_share *shares) {
    s->pieces[t].source = source;
    s->pieces[t].dim = dim;
    if (dim >= 0)
        memcpy(shard_shares(s, t), shares, s->n * sizeof *shares);
}

static uint32_t append_piece(mnp_shard *s, uint32_t source, int32_t dim, const mnp_share *shares) {
    const uint32_t t = s->n_tensors++;
    set_piece(s, t, source, dim, shares);
    return t;
}

static bool is_piece(const mnp_shard *s, uint32_t t, uint32_t source, int32_t dim,
                     const mnp_share *shares) {
    if (s->pieces[t].source != source || s->pieces[t].dim != dim)
        return false;
    return dim < 0 || !memcmp(shard_shares(s, t), shares, s->n * sizeof *shares);
}

/* The operand of a node is this piece of its weight; dim -1: the whole. Absent: nothing. */
static void cut_weight(mnp_shard *s, uint32_t node, uint32_t operand, int32_t dim,
                       const mnp_share *shares) {
    const mn_node *n = mnp_node(s->g, node);
    const int32_t t = mnp_in(s->g, n, operand);
    if (t < 0)
        return;
    const uint32_t source = (uint32_t)t;
    int32_t *to = &s->operands[n->in_off + operand];
    s->decided[n->in_off + operand] = true;
    if (!s->placed[source]) {
        s->placed[source] = true;
        set_piece(s, source, source, dim, shares);
    }
    if (is_piece(s, source, source, dim, shares))
        return;
    for (uint32_t i = s->g->n_tensors; i < s->n_tensors; i++)
        if (is_piece(s, i, source, dim, shares)) {
            *to = (int32_t)i;
            return;
        }
    *to = (int32_t)append_piece(s, source, dim, shares);
}

/* Takes note of what the members do before node `at`. */
static void shard_exchange(mnp_shard *s, uint32_t at, uint32_t kind, uint32_t from, uint32_t to,
                           uint32_t dim) {
    mnp_exchange *e = &s->exchanges[s->n_exchanges++];
    e->at = at;
    e->kind = kind;
    e->from = from;
    e->to = to;
    e->dim = dim;
}

/* Output i of a node is divided; all members get the whole behind it. */
static void shard_gather(mnp_shard *s, uint32_t node, uint32_t i, int32_t dim,
                         const mnp_share *shares) {
    const mn_node *n = mnp_node(s->g, node);
    const uint32_t t = (uint32_t)mnp_out(s->g, n, i);
    const uint32_t piece = append_piece(s, t, dim, shares);
    s->pieces[t].dim = -1;
    s->operands[n->out_off + i] = (int32_t)piece;
    shard_exchange(s, node + 1, MNP_GATHER, piece, t, (uint32_t)dim);
}

/* ---- products -------------------------------------------------------------------------------- */
/* Products of heads, each with a matrix of its own, stay whole. */
static bool is_product(const mnp_shard *s, const mn_node *n) {
    if (n->op == MN_OP_MOE_LINEAR)
        return true;
    if (n->op != MN_OP_LINEAR)
        return false;
    const mn_tensor *w = mnp_in_tensor(s->g, n, MN_LINEAR_WEIGHT);
    return w && w->n_dim == 2;
}
/* The operand of weight i; its bias follows. */
static uint32_t weight_operand(const mn_node *n, uint32_t i) {
    const uint32_t first = n->op == MN_OP_LINEAR ? MN_LINEAR_WEIGHT : MN_MOE_LINEAR_WEIGHT;
    return first + 2 * i;
}
/* Experts are [E, N, K]. */
static int32_t row_dim(const mn_node *n) {
    return n->op == MN_OP_LINEAR ? 0 : 1;
}

/* Output i of a product is divided along dim into these shares: its weight is cut by rows. False:
 * rows do not end there. */
static bool shard_cut_rows(mnp_shard *s, uint32_t node, uint32_t i, int32_t dim,
                           const mnp_share *shares) {
    mnp_share rows[MNP_MAX_MEMBERS];
    const mn_node *n = mnp_node(s->g, node);
    const uint32_t operand = weight_operand(n, i);
    const mn_tensor *w = mnp_in_tensor(s->g, n, operand);
    const int64_t width = mnp_out_tensor(s->g, n, i)->dim[dim];
    const int32_t x = mnp_in(s->g, n, 0);
    if (s->how[node] == SHARD_COLUMNS || s->pieces[x].dim >= 0)
        return false;
    const int64_t n_rows = w->dim[row_dim(n)];
    if (width <= 0 || n_rows % width)
        return false;
    scale_shares(s->n, shares, n_rows / width, rows);
    if (!is_aligned(s->n, rows, row_grain(w), n_rows))
        return false;
    s->how[node] = SHARD_ROWS;
    cut_weight(s, node, operand, row_dim(n), rows);
    cut_weight(s, node, operand + 1, row_dim(n), rows);
    return true;
}

/* The least number of elements of a divided input at which all weights of a product can be cut. */
static int64_t column_grain(const mnp_shard *s, const mn_node *n) {
    int64_t grain = 1;
    for (uint32_t i = 0; i < n->n_out; i++) {
        const mn_tensor *w = mnp_in_tensor(s->g, n, weight_operand(n, i));
        grain = shard_common_multiple(grain, w->dtype.block_elems);
    }
    return grain;
}

/* Where a sum of products can wait: MOE_COMBINE is linear in them, and smaller. With BASE it is
 * not: each member would add that. */
static uint32_t sum_behind(const mnp_shard *s, uint32_t node, uint32_t t) {
    const mnp_lowering l = {s->g, s->lo, s->hi, s->uses};
    const uint32_t reader = (uint32_t)s->uses[t].reader;
    if (!mnp_is_private(&l, (int32_t)t))
        return node;
    const mn_node *n = mnp_node(s->g, reader);
    if (n->op != MN_OP_MOE_COMBINE || mnp_in(s->g, n, MN_MOE_COMBINE_BASE) >= 0)
        return node;
    return mnp_in(s->g, n, MN_MOE_COMBINE_X) == (int32_t)t ? reader : node;
}

/* A product of a divided input: each member has columns, the results are sums. */
static void cut_columns(mnp_shard *s, uint32_t node, const mnp_share *columns) {
    const mn_node *n = mnp_node(s->g, node);
    s->how[node] = SHARD_COLUMNS;
    for (uint32_t i = 0; i < n->n_out; i++) {
        const uint32_t operand = weight_operand(n, i);
        cut_weight(s, node, operand, row_dim(n) + 1, columns);
        cut_weight(s, node, operand + 1, -1, NULL);
        if (operand + 1 < n->n_in)
            s->first_only[n->in_off + operand + 1] = true;
        const uint32_t y = (uint32_t)mnp_out(s->g, n, i);
        const uint32_t last = sum_behind(s, node, y);
        const uint32_t sum = (uint32_t)mnp_out(s->g, mnp_node(s->g, last), last == node ? i : 0);
        shard_exchange(s, last + 1, MNP_SUM, sum, sum, 0);
    }
}

/* The product that alone reads tensor t as its input; -1 = there is none. */
static int32_t product_of(const mnp_shard *s, int32_t t) {
    const mnp_lowering l = {s->g, s->lo, s->hi, s->uses};
    if (!mnp_is_private(&l, t))
        return -1;
    const int32_t reader = s->uses[t].reader;
    const mn_node *n = mnp_node(s->g, (uint32_t)reader);
    return is_product(s, n) && mnp_in(s->g, n, 0) == t ? reader : -1;
}

/* Output 0 of a node is divided along dim: the product behind it is cut by columns, or it is
 * gathered. */
static void shard_finish(mnp_shard *s, uint32_t node, int32_t dim, const mnp_share *shares) {
    mnp_share columns[MNP_MAX_MEMBERS];
    const uint32_t t = (uint32_t)mnp_out(s->g, mnp_node(s->g, node), 0);
    const mn_tensor *y = mnp_tensor(s->g, t);
    const int32_t reader = product_of(s, (int32_t)t);
    if (reader >= 0 && s->how[reader] == SHARD_OPEN) {
        const mn_node *p = mnp_node(s->g, (uint32_t)reader);
        const mn_tensor *w = mnp_in_tensor(s->g, p, weight_operand(p, 0));
        const int64_t width = w->dim[row_dim(p) + 1];
        scale_shares(s->n, shares, width / y->dim[dim], columns);
        if (is_aligned(s->n, columns, column_grain(s, p), width)) {
            set_piece(s, t, t, dim, shares);
            cut_columns(s, (uint32_t)reader, columns);
            return;
        }
    }
    shard_gather(s, node, 0, dim, shares);
}

/* ---- from a reader back to the product ------------------------------------------------------- */
static void want(mnp_shard *s, uint32_t node, uint32_t operand, int32_t dim,
                 const mnp_share *shares);

/* Whether a norm acts on each head of [T, H, D] by itself. */
static bool is_norm_of_heads(const mnp_shard *s, const mn_node *n) {
    const bool norm = n->op == MN_OP_RMS_NORM || n->op == MN_OP_LAYER_NORM;
    return norm && mnp_in_tensor(s->g, n, 0)->n_dim == 3 && mnp_out_tensor(s->g, n, 0)->n_dim == 3;
}

/* Makes tensor t a piece on every member, by dividing what makes it. False: not possible. */
static bool shard_divide(mnp_shard *s, uint32_t t, int32_t dim, const mnp_share *shares) {
    if (s->uses[t].maker < 0)
        return false;
    const uint32_t node = (uint32_t)s->uses[t].maker;
    const mn_node *n = mnp_node(s->g, node);
    const bool by_head = dim == 1 && is_norm_of_heads(s, n);
    if (is_product(s, n)) {
        uint32_t i = 0;
        while (mnp_out(s->g, n, i) != (int32_t)t)
            i++;
        if (!shard_cut_rows(s, node, i, dim, shares))
            return false;
    } else if (n->op == MN_OP_ROPE || n->op == MN_OP_SCALE || by_head) {
        want(s, node, 0, dim, shares);
    } else {
        return false;
    }
    for (uint32_t i = 1; by_head && i < n->n_in; i++) {
        const mn_tensor *w = mnp_in_tensor(s->g, n, i);
        if (w)
            cut_weight(s, node, i, w->n_dim == 2 ? 0 : -1, shares);
    }
    set_piece(s, t, t, dim, shares);
    return true;
}

/* A node reads its share of an operand: what makes it is divided, else the member takes its share
 * of the whole. */
static void want(mnp_shard *s, uint32_t node, uint32_t operand, int32_t dim,
                 const mnp_share *shares) {
    const mnp_lowering l = {s->g, s->lo, s->hi, s->uses};
    const mn_node *n = mnp_node(s->g, node);
    const uint32_t t = (uint32_t)mnp_in(s->g, n, operand);
    if (mnp_is_private(&l, (int32_t)t) && shard_divide(s, t, dim, shares))
        return;
    const uint32_t piece = append_piece(s, t, dim, shares);
    s->operands[n->in_off + operand] = (int32_t)piece;
    shard_exchange(s, node, MNP_TAKE, t, piece, (uint32_t)dim);
}

/* ---- attention ------------------------------------------------------------------------------- */
/* Attribute GROUP of a node of the cache; -1 for others. */
static int64_t group_of(const mn_graph *g, const mn_node *n) {
    if (n->op == MN_OP_KV_STORE)
        return mnp_attr(g, n, MN_KV_STORE_ATTR_GROUP);
    if (n->op == MN_OP_ATTENTION)
        return mnp_attr(g, n, MN_ATTENTION_ATTR_GROUP);
    return -1;
}

typedef struct {
    int64_t n_head;
    int64_t n_kv;
    int64_t per_kv; /* query heads of a KV head */
    int64_t grain;  /* query heads at whose multiples the product behind can be cut */
} heads;

/* Of an ATTENTION. False: its operands are not [T, H, D]. */
static bool shard_read_heads(const mnp_shard *s, const mn_node *n, heads *h) {
    const mn_tensor *q = mnp_in_tensor(s->g, n, MN_ATTENTION_Q);
    const mn_tensor *y = mnp_out_tensor(s->g, n, 0);
    h->n_kv = mnp_attr(s->g, n, MN_ATTENTION_ATTR_N_HEAD_KV);
    if (!q || q->n_dim != 3 || y->n_dim != 3 || h->n_kv <= 0)
        return false;
    h->n_head = q->dim[1];
    if (h->n_head < (int64_t)s->n || h->n_head % h->n_kv || y->dim[1] != h->n_head)
        return false;
    h->per_kv = h->n_head / h->n_kv;
    h->grain = 1;
    const int32_t reader = product_of(s, mnp_out(s->g, n, 0));
    if (reader >= 0) {
        const int64_t columns = column_grain(s, mnp_node(s->g, (uint32_t)reader));
        h->grain = shard_common_multiple(columns, y->dim[2]) / y->dim[2];
    }
    return true;
}

/* The KV heads of each member, for all layers of a group. False: the group stays whole. */
static bool share_kv(const mnp_shard *s, int64_t group, mnp_share *kv) {
    int64_t n_kv = 0;
    int64_t unit = 1; /* KV heads */
    for (uint32_t i = s->lo; i < s->hi; i++) {
        const mn_node *n = mnp_node(s->g, i);
        heads h;
        if (group_of(s->g, n) != group)
            continue;
        if (n->op == MN_OP_KV_STORE) {
            const mn_tensor *k = mnp_in_tensor(s->g, n, MN_KV_STORE_K);
            const mn_tensor *v = mnp_in_tensor(s->g, n, MN_KV_STORE_V);
            if (k->n_dim != 3 || !v || v->n_dim != 3)
                return false;
            continue;
        }
        if (mnp_in(s->g, n, MN_ATTENTION_ALIBI) >= 0 ||
            mnp_in(s->g, n, MN_ATTENTION_DISTANCE_BIAS) >= 0 ||
            mnp_in(s->g, n, MN_ATTENTION_RELATIVE_K) >= 0 ||
            mnp_in(s->g, n, MN_ATTENTION_RELATIVE_Q) >= 0)
            return false;
        if (!shard_read_heads(s, n, &h) || (n_kv && h.n_kv != n_kv))
            return false;
        n_kv = h.n_kv;
        const int64_t least = shard_common_multiple(h.grain, h.per_kv) / h.per_kv;
        unit = shard_common_multiple(unit, least);
    }
    if (!n_kv)
        return false;
    if (n_kv / unit < s->n)
        unit = 1;
    for (uint32_t r = 0; r < s->n && n_kv < s->n; r++) {
        kv[r].lo = (int64_t)r * n_kv / s->n;
        kv[r].hi = kv[r].lo + 1;
    }
    if (n_kv >= s->n)
        even_shares(s->n, n_kv, unit, kv);
    return true;
}

/* The query heads of each member: those of its KV heads, divided among the members that have the
 * same one. */
static void share_queries(const mnp_shard *s, const heads *h, const mnp_share *kv, mnp_share *q) {
    scale_shares(s->n, kv, h->per_kv, q);
    if (h->n_kv >= s->n)
        return;
    for (uint32_t r = 0; r < s->n;) {
        uint32_t same = 1;
        while (r + same < s->n && kv[r + same].lo == kv[r].lo)
            same++;
        mnp_share part[MNP_MAX_MEMBERS];
        const bool fits = h->per_kv % h->grain == 0 && h->per_kv / h->grain >= same;
        even_shares(same, h->per_kv, fits ? h->grain : 1, part);
        for (uint32_t i = 0; i < same; i++) {
            const int64_t first = q[r + i].lo;
            q[r + i].lo = first + part[i].lo;
            q[r + i].hi = first + part[i].hi;
        }
        r += same;
    }
}

static void divide_group(mnp_shard *s, int64_t group) {
    mnp_share kv[MNP_MAX_MEMBERS];
    mnp_share q[MNP_MAX_MEMBERS];
    if (!share_kv(s, group, kv))
        return;
    for (uint32_t i = s->lo; i < s->hi; i++) {
        const mn_node *n = mnp_node(s->g, i);
        heads h;
        if (group_of(s->g, n) != group)
            continue;
        if (n->op == MN_OP_KV_STORE) {
            want(s, i, MN_KV_STORE_K, 1, kv);
            want(s, i, MN_KV_STORE_V, 1, kv);
            continue;
        }
        shard_read_heads(s, n, &h);
        share_queries(s, &h, kv, q);
        memcpy(&s->kv[(uint64_t)i * s->n], kv, s->n * sizeof *kv);
        want(s, i, MN_ATTENTION_Q, 1, q);
        cut_weight(s, i, MN_ATTENTION_SINKS, 0, q);
        shard_finish(s, i, 1, q);
    }
}

static void divide_attention(mnp_shard *s) {
    int64_t last = -1;
    for (uint32_t i = s->lo; i < s->hi; i++) {
        const int64_t group = group_of(s->g, mnp_node(s->g, i));
        if (group > last)
            last = group;
    }
    for (int64_t group = 0; group <= last && group < MN_MAX_DEVICES; group++)
        divide_group(s, group);
}

/* ---- feed-forward ---------------------------------------------------------------------------- */
/* The rows at whose multiples the product that alone makes input i of an activation can be cut; 0:
 * there is no such product. */
static int64_t maker_grain(const mnp_shard *s, const mn_node *n, uint32_t i) {
    const mnp_lowering l = {s->g, s->lo, s->hi, s->uses};
    const int32_t t = mnp_in(s->g, n, i);
    if (t < 0 || !mnp_is_private(&l, t) || s->uses[t].maker < 0)
        return 0;
    const uint32_t node = (uint32_t)s->uses[t].maker;
    const mn_node *p = mnp_node(s->g, node);
    if (!is_product(s, p) || s->how[node] == SHARD_COLUMNS)
        return 0;
    uint32_t k = 0;
    while (mnp_out(s->g, p, k) != t)
        k++;
    return row_grain(mnp_in_tensor(s->g, p, weight_operand(p, k)));
}

/* Matrix units want columns in whole steps; shares are a little less even then. */
static int64_t wide_unit(const mnp_shard *s, int64_t unit, int64_t width) {
    const int64_t wide = shard_common_multiple(unit, 64);
    return width / wide >= 8 * (int64_t)s->n ? wide : unit;
}

/* From an activation: gate and up by rows, down by columns. */
static void divide_activation(mnp_shard *s, uint32_t node) {
    mnp_share shares[MNP_MAX_MEMBERS];
    const mn_node *n = mnp_node(s->g, node);
    const uint32_t n_inputs = n->op == MN_OP_GLU ? 2 : 1;
    const mn_tensor *y = mnp_out_tensor(s->g, n, 0);
    const int32_t dim = (int32_t)y->n_dim - 1;
    const int32_t reader = product_of(s, mnp_out(s->g, n, 0));
    if (reader < 0 || dim < 1)
        return;
    int64_t rows = 1;
    for (uint32_t i = 0; i < n_inputs; i++) {
        const int64_t grain = maker_grain(s, n, i);
        if (!grain || mnp_in_tensor(s->g, n, i)->n_dim != y->n_dim)
            return;
        rows = shard_common_multiple(rows, grain);
    }
    const int64_t columns = column_grain(s, mnp_node(s->g, (uint32_t)reader));
    int64_t unit = shard_common_multiple(rows, columns);
    if (y->dim[dim] / unit < s->n)
        unit = rows;
    if (y->dim[dim] / unit < s->n)
        return;
    even_shares(s->n, y->dim[dim], wide_unit(s, unit, y->dim[dim]), shares);
    for (uint32_t i = 0; i < n_inputs; i++)
        want(s, node, i, dim, shares);
    shard_finish(s, node, dim, shares);
}

/* ---- the rest -------------------------------------------------------------------------------- */
/* By columns, so that ids mean the same on every member. */
static void divide_embedding(mnp_shard *s, uint32_t node) {
    mnp_share shares[MNP_MAX_MEMBERS];
    const mn_node *n = mnp_node(s->g, node);
    const mn_tensor *table = mnp_in_tensor(s->g, n, MN_EMBED_WEIGHT);
    const mn_tensor *positions = mnp_in_tensor(s->g, n, MN_EMBED_POS_WEIGHT);
    int64_t unit = table->dtype.block_elems;
    if (positions)
        unit = shard_common_multiple(unit, positions->dtype.block_elems);
    if (table->n_dim != 2 || table->dim[1] / unit < s->n)
        return;
    even_shares(s->n, table->dim[1], unit, shares);
    cut_weight(s, node, MN_EMBED_WEIGHT, 1, shares);
    cut_weight(s, node, MN_EMBED_POS_WEIGHT, 1, shares);
    shard_gather(s, node, MN_EMBED_OUT_X, 1, shares);
}

/* Whether experts are chosen by an output: a router is small, and its results are wanted whole. */
static bool is_router(const mnp_shard *s, const mn_node *n) {
    const int32_t reader = s->uses[mnp_out(s->g, n, 0)].reader;
    return reader >= 0 && mnp_node(s->g, (uint32_t)reader)->op == MN_OP_MOE_ROUTE;
}

/* The outputs that nobody wants divided: by rows, and gathered. */
static void divide_product(mnp_shard *s, uint32_t node) {
    mnp_share shares[MNP_MAX_MEMBERS];
    const mn_node *n = mnp_node(s->g, node);
    if (s->how[node] == SHARD_COLUMNS || is_router(s, n))
        return;
    for (uint32_t i = 0; i < n->n_out; i++) {
        const int32_t t = mnp_out(s->g, n, i);
        if (t < 0 || s->pieces[t].dim >= 0)
            continue;
        const mn_tensor *y = mnp_tensor(s->g, (uint32_t)t);
        const mn_tensor *w = mnp_in_tensor(s->g, n, weight_operand(n, i));
        const int32_t dim = n->op == MN_OP_LINEAR ? 1 : (int32_t)y->n_dim - 1;
        const int64_t width = y->dim[dim];
        if (width <= 0)
            continue;
        const int64_t rows = w->dim[row_dim(n)] / width; /* of one step along dim */
        const int64_t unit = shard_common_multiple(row_grain(w), rows) / rows;
        if (width / unit < s->n)
            continue;
        even_shares(s->n, width, unit, shares);
        if (shard_cut_rows(s, node, i, dim, shares))
            shard_gather(s, node, i, dim, shares);
    }
}

/* What is whole on every member. */
static void place_rest(mnp_shard *s) {
    mnp_cursor at = {s->lo, 0};
    uint32_t node;
    for (int32_t t; (t = mnp_next_weight(s->g, s->hi, &at, &node)) >= 0;) {
        const mn_node *n = mnp_node(s->g, node);
        const uint32_t operand = at.operand - 1;
        if (!s->decided[n->in_off + operand])
            cut_weight(s, node, operand, -1, NULL);
    }
}

static bool comes_first(const mnp_exchange *a, const mnp_exchange *b) {
    if (a->at != b->at)
        return a->at < b->at;
    return a->kind != MNP_TAKE && b->kind == MNP_TAKE;
}

/* By node; what a member takes lies whole by then. Of one node in the order in which they were
 * noted. */
static void sort_exchanges(mnp_shard *s) {
    for (uint32_t i = 1; i < s->n_exchanges; i++) {
        const mnp_exchange e = s->exchanges[i];
        uint32_t k = i;
        for (; k > 0 && comes_first(&e, &s->exchanges[k - 1]); k--)
            s->exchanges[k] = s->exchanges[k - 1];
        s->exchanges[k] = e;
    }
}

/* ---- the plan -------------------------------------------------------------------------------- */
static void shard_decide(mnp_shard *s) {
    divide_attention(s);
    for (uint32_t i = s->lo; i < s->hi; i++) {
        const uint32_t op = mnp_node(s->g, i)->op;
        if (op == MN_OP_GLU || op == MN_OP_ACT)
            divide_activation(s, i);
        if (op == MN_OP_EMBED)
            divide_embedding(s, i);
    }
    for (uint32_t i = s->lo; i < s->hi; i++)
        if (is_product(s, mnp_node(s->g, i)))
            divide_product(s, i);
    place_rest(s);
    sort_exchanges(s);
}

static mn_status check_no_views(const mnp_shard *s, mn_error *err) {
    for (uint32_t i = s->lo; i < s->hi; i++) {
        const mn_node *n = mnp_node(s->g, i);
        for (uint32_t k = 0; k < n->n_in + n->n_out; k++) {
            const int32_t t = mnp_operand(s->g, n, k);
            if (t >= 0 && mnp_tensor(s->g, (uint32_t)t)->alias_of >= 0)
                return mnp_fail(err, MN_UNSUPPORTED, i,
                                "node %u: operand %u is a view, which a group does not divide", i,
                                k);
        }
    }
    return MN_OK;
}

/* The arrays of the plan, with every tensor whole. */
static mn_status shard_begin(mnp_shard *s, mn_error *err) {
    const mn_graph *g = s->g;
    s->n_tensors = g->n_tensors;
    s->room = g->n_tensors + g->n_operands;
    const uint64_t shares = (uint64_t)s->n * sizeof *s->shares;
    s->pieces = mnp_new(s->host, s->room * sizeof *s->pieces);
    s->shares = mnp_new(s->host, s->room * shares);
    s->operands = mnp_new(s->host, g->n_operands * sizeof *s->operands);
    s->first_only = mnp_new(s->host, g->n_operands * sizeof *s->first_only);
    s->decided = mnp_new(s->host, g->n_operands * sizeof *s->decided);
    s->placed = mnp_new(s->host, g->n_tensors * sizeof *s->placed);
    s->how = mnp_new(s->host, g->n_nodes * sizeof *s->how);
    s->kv = mnp_new(s->host, g->n_nodes * shares);
    s->uses = mnp_new(s->host, g->n_tensors * sizeof *s->uses);
    s->exchanges = mnp_new(s->host, 2 * (uint64_t)g->n_operands * sizeof *s->exchanges);
    const bool has_tensors = s->pieces && s->shares && s->placed && s->uses;
    const bool has_nodes =
        s->operands && s->first_only && s->decided && s->how && s->kv && s->exchanges;
    if (!has_tensors || !has_nodes)
        return mnp_fail_memory(err, s->room * shares, "the plan of a group");
    memcpy(s->operands, g->operands, g->n_operands * sizeof *s->operands);
    for (uint32_t t = 0; t < g->n_tensors; t++)
        set_piece(s, t, t, -1, NULL);
    mnp_count_uses(g, s->lo, s->hi, s->uses);
    return check_no_views(s, err);
}

mn_status mnp_shard_plan(const mn_host *h, const mn_compile *in, uint32_t n, mnp_shard **out,
                         mn_error *err) {
    mn_compile c;
    mn_status st = mnp_read_compile(in, &c, err);
    if (st)
        return st;
    if (n < 2 || n > MNP_MAX_MEMBERS)
        return mnp_fail(err, MN_INVALID, ~0u, "a group of %u members, must be 2 to %u", n,
                        MNP_MAX_MEMBERS);
    mnp_shard *s = mnp_new(h, sizeof *s);
    if (!s)
        return mnp_fail_memory(err, sizeof *s, "the plan of a group");
    s->host = h;
    s->g = c.graph;
    s->lo = c.node_lo;
    s->hi = c.node_hi;
    s->n = n;
    st = shard_begin(s, err);
    if (!st) {
        shard_decide(s);
        st = shard_make_graphs(s, err);
    }
    if (!st)
        st = shard_make_memory(s, &c, err);
    if (st)
        mnp_shard_free(s);
    else
        *out = s;
    return st;
}

/* Also of a plan that is half made. */
void mnp_shard_free(mnp_shard *s) {
    if (!s)
        return;
    void *const arrays[] = {
        s->pieces, s->shares, s->operands,  s->first_only, s->placed,  s->how,
        s->kv,     s->uses,   s->exchanges, s->graphs,     s->tensors, s->member_operands,
        s->attrs,  s->names,  s->memory,    s->params,     s->layers,  s->decided};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        mnp_delete(s->host, arrays[i]);
    mnp_delete(s->host, s);
}
