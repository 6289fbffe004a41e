/* patterns.c -- the fusions that several backends have kernels for. Constant tables; a backend
 * names those that it can do. Why a unit needs what it needs is in units.h. */
#include "units.h"

/* ---- [gather] [norm] LINEAR [add | glu] ------------------------------------------------------ */
/* Each refuse_: why the candidate `node` cannot join unit u, NULL: it can. */
static const char of_heads[] = "each head has a matrix of its own";

static bool has_heads(const mnp_lowering *l, const mnp_unit *u) {
    const mn_node *n = mnp_node(l->g, u->node);
    const mn_tensor *w = mnp_in_tensor(l->g, n, MN_LINEAR_WEIGHT);
    return n->op == MN_OP_LINEAR && w && w->n_dim == 3;
}

static const char *refuse_norm(const mnp_lowering *l, const mnp_unit *u, uint32_t node) {
    const mn_node *n = mnp_node(l->g, node);
    const mn_tensor *x = mnp_in_tensor(l->g, n, MN_RMS_NORM_X);
    const mn_tensor *w = mnp_in_tensor(l->g, n, MN_RMS_NORM_WEIGHT);
    if (has_heads(l, u))
        return of_heads;
    if (!x || x->n_dim != 2)
        return "it normalises heads";
    if (w && w->n_dim == 1 && w->dim[0] == x->dim[1])
        return NULL;
    return "it normalises a part of each row";
}

static const char *refuse_add(const mnp_lowering *l, const mnp_unit *u, uint32_t node) {
    (void)node;
    if (has_heads(l, u))
        return of_heads;
    if (mnp_node(l->g, u->node)->n_out == 1)
        return NULL;
    return "there are several products";
}

/* One kernel computes both products of a weight row's block: they must be alike. */
static const char *refuse_glu(const mnp_lowering *l, const mnp_unit *u, uint32_t node) {
    const mn_graph *g = l->g;
    const mn_node *x = mnp_node(g, u->node);
    const mn_node *glu = mnp_node(g, node);
    uint32_t first = MN_MOE_LINEAR_WEIGHT;
    if (x->op == MN_OP_LINEAR)
        first = MN_LINEAR_WEIGHT;
    if (has_heads(l, u))
        return of_heads;
    const mn_tensor *a = mnp_in_tensor(g, x, first);
    const mn_tensor *b = mnp_in_tensor(g, x, first + 2);
    if (x->n_out != 2 || !a || !b)
        return "there are not two products";
    if (x->op == MN_OP_MOE_LINEAR && mnp_in(g, x, first + 2 * x->n_out) >= 0)
        return "experts get weighted inputs";
    const bool gate_first = mnp_in(g, glu, MN_GLU_GATE) == mnp_out(g, x, 0);
    const bool up_second = mnp_in(g, glu, MN_GLU_UP) == mnp_out(g, x, 1);
    if (!gate_first || !up_second)
        return "the products are not gate, then up";
    const bool same_size = a->dim[0] == b->dim[0] && a->dim[1] == b->dim[1];
    if (a->dtype.id != b->dtype.id || !same_size)
        return "gate and up are of different types or sizes";
    return NULL;
}

const mnp_pattern mnp_pattern_linear = {.name = "linear",
                                        .op = MN_OP_LINEAR,
                                        .n_parts = 4,
                                        .parts = {
                                            [MNP_LINEAR_NORM] = {.name = "norm",
                                                                 .op = MN_OP_RMS_NORM,
                                                                 .edge = MNP_MAKER,
                                                                 .operand = MN_LINEAR_X,
                                                                 .flags = MNP_PRIVATE,
                                                                 .of = MNP_ANCHOR,
                                                                 .refuse = refuse_norm},
                                            [MNP_LINEAR_GATHER] = {.name = "gather",
                                                                   .op = MN_OP_GATHER_ROWS,
                                                                   .edge = MNP_MAKER,
                                                                   .operand = MN_RMS_NORM_X,
                                                                   .flags = MNP_PRIVATE,
                                                                   .of = MNP_LINEAR_NORM},
                                            [MNP_LINEAR_ADD] = {.name = "add",
                                                                .op = MN_OP_ADD,
                                                                .edge = MNP_READER,
                                                                .of = MNP_ANCHOR,
                                                                .refuse = refuse_add},
                                            [MNP_LINEAR_GLU] = {.name = "glu",
                                                                .op = MN_OP_GLU,
                                                                .edge = MNP_READER,
                                                                .of = MNP_ANCHOR,
                                                                .refuse = refuse_glu},
                                        }};

/* ---- [rope q, rope k] KV_STORE [attention] --------------------------------------------------- */
static const char *refuse_rope(const mnp_lowering *l, const mnp_unit *u, uint32_t node) {
    const mn_graph *g = l->g;
    const int32_t rotated = mnp_in(g, mnp_node(g, node), MN_ROPE_ROW_POS);
    const int32_t stored = mnp_in(g, mnp_node(g, u->node), MN_KV_STORE_ROW_POS);
    if (rotated == stored)
        return NULL;
    return "it rotates at other positions";
}

/* One kernel rotates q and k alike, stores k and v, and attends over the same rows. */
static const char *refuse_attention(const mnp_lowering *l, const mnp_unit *u, uint32_t node) {
    const mn_graph *g = l->g;
    if (u->part[MNP_STORE_ROPE_K] < 0 || u->part[MNP_STORE_READER] != (int32_t)node)
        return "it attends over another cache, or k is not rotated";
    const mn_node *q = mnp_node(g, (uint32_t)u->part[MNP_STORE_ROPE_Q]);
    const mn_node *k = mnp_node(g, (uint32_t)u->part[MNP_STORE_ROPE_K]);
    const mn_node *s = mnp_node(g, u->node);
    const mn_node *a = mnp_node(g, node);
    for (uint32_t i = MN_ROPE_ATTR_PAIRING; i <= MN_ROPE_ATTR_MSCALE; i++)
        if (mnp_attr(g, q, i) != mnp_attr(g, k, i))
            return "q and k are rotated in different ways";
    const mn_tensor *xq = mnp_in_tensor(g, q, MN_ROPE_X);
    const mn_tensor *xk = mnp_in_tensor(g, k, MN_ROPE_X);
    const bool same_freqs = mnp_in(g, q, MN_ROPE_FREQS) == mnp_in(g, k, MN_ROPE_FREQS);
    if (!same_freqs || !xq || !xk || xq->dim[2] != xk->dim[2])
        return "q and k are rotated in different ways";
    const int32_t attends_at = mnp_in(g, a, MN_ATTENTION_ROW_POS);
    const int32_t attends_for = mnp_in(g, a, MN_ATTENTION_ROW_SLOT);
    if (mnp_attr(g, a, MN_ATTENTION_ATTR_CHUNK) || mnp_attr(g, a, MN_ATTENTION_ATTR_V_OF_K))
        return "its rows see chunks, or its values are keys";
    for (uint32_t i = MN_ATTENTION_ALIBI; i < a->n_in; i++)
        if (mnp_in(g, a, i) >= 0)
            return "distances have a part in its scores, or its rows see other rows than those "
                   "before them";
    if (attends_at != mnp_in(g, s, MN_KV_STORE_ROW_POS) ||
        attends_for != mnp_in(g, s, MN_KV_STORE_ROW_SLOT))
        return "it attends for other rows";
    return NULL;
}

enum { ROPES = 1u << MNP_STORE_ROPE_K | 1u << MNP_STORE_ROPE_Q };
const mnp_pattern mnp_pattern_store = {.name = "store",
                                       .op = MN_OP_KV_STORE,
                                       .n_parts = 4,
                                       .parts = {
                                           [MNP_STORE_READER] = {.name = "attention",
                                                                 .op = MN_OP_ATTENTION,
                                                                 .edge = MNP_ATTENDER,
                                                                 .flags = MNP_LOCATE,
                                                                 .of = MNP_ANCHOR},
                                           [MNP_STORE_ROPE_K] = {.name = "rope k",
                                                                 .op = MN_OP_ROPE,
                                                                 .edge = MNP_MAKER,
                                                                 .operand = MN_KV_STORE_K,
                                                                 .flags = MNP_PRIVATE,
                                                                 .of = MNP_ANCHOR,
                                                                 .with = ROPES,
                                                                 .refuse = refuse_rope},
                                           [MNP_STORE_ROPE_Q] = {.name = "rope q",
                                                                 .op = MN_OP_ROPE,
                                                                 .edge = MNP_MAKER,
                                                                 .operand = MN_ATTENTION_Q,
                                                                 .of = MNP_STORE_READER,
                                                                 .with = ROPES,
                                                                 .refuse = refuse_rope},
                                           [MNP_STORE_ATTENTION] = {.name = "attention",
                                                                    .op = MN_OP_ATTENTION,
                                                                    .edge = MNP_READER,
                                                                    .flags = MNP_APART,
                                                                    .of = MNP_STORE_ROPE_Q,
                                                                    .with = ROPES,
                                                                    .refuse = refuse_attention},
                                       }};

/* ---- experts --------------------------------------------------------------------------------- */
const mnp_pattern mnp_pattern_moe_linear = {.name = "experts",
                                            .op = MN_OP_MOE_LINEAR,
                                            .n_parts = 1,
                                            .parts = {
                                                [MNP_MOE_LINEAR_GLU] = {.name = "glu",
                                                                        .op = MN_OP_GLU,
                                                                        .edge = MNP_READER,
                                                                        .of = MNP_ANCHOR,
                                                                        .refuse = refuse_glu},
                                            }};

const mnp_pattern mnp_pattern_combine = {
    .name = "combine",
    .op = MN_OP_MOE_COMBINE,
    .n_parts = 1,
    .parts = {
        [MNP_COMBINE_ADD] = {.name = "add", .op = MN_OP_ADD, .edge = MNP_READER, .of = MNP_ANCHOR},
    }};

/* ---- what units took in ---------------------------------------------------------------------- */
mnp_taken mnp_taken_in(const mnp_unit *u) {
    mnp_taken t = {-1, -1, -1, -1, -1, -1};
    if (u->pattern == &mnp_pattern_linear) {
        t.norm = u->part[MNP_LINEAR_NORM];
        t.gather = u->part[MNP_LINEAR_GATHER];
        t.add = u->part[MNP_LINEAR_ADD];
        t.glu = u->part[MNP_LINEAR_GLU];
    }
    if (u->pattern == &mnp_pattern_moe_linear)
        t.glu = u->part[MNP_MOE_LINEAR_GLU];
    if (u->pattern == &mnp_pattern_combine)
        t.add = u->part[MNP_COMBINE_ADD];
    if (u->pattern == &mnp_pattern_store) {
        t.rope_q = u->part[MNP_STORE_ROPE_Q];
        t.rope_k = u->part[MNP_STORE_ROPE_K];
    }
    return t;
}
