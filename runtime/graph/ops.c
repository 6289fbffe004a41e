/* ops.c -- ops.def as data, and the check of a finished graph against it.
 *
 * The rows of an operation give its counts and the names of its operands. The check holds every
 * graph, whoever built it, to what plugins may take for granted: counts, indices, definition before
 * use, and the shapes that a product ties together. */
#include "graph/graph.h"
#include <string.h>

enum { REQUIRED, OPTIONAL, REPEATED };
enum { OP, IN, OUT, ATTR, TEXT };
typedef struct {
    int kind;
    uint32_t id;
    uint32_t contract;
    int need;
    const char *name;
    const char *type; /* of an attribute: "INT", "F64" or "BLOB" */
    const char *doc;  /* begins with "contract N" if that one brought the operand or attribute */
} row;
static const row rows[] = {
#define MN_OP(n, i, c, s) {OP, i, c, 0, #n, NULL, s},
#define MN_IN(n, o, t, s, need, d) {IN, MN_OP_##n, 0, need, #o, NULL, d},
#define MN_OUT(n, o, t, s, need, d) {OUT, MN_OP_##n, 0, need, #o, NULL, d},
#define MN_ATTR(n, a, t, d) {ATTR, MN_OP_##n, 0, 0, #a, #t, d},
#define MN_TEXT(n, t)
#include "graph/ops.def"
};

enum { N_OPS = 32 };

static void count_input(mn_op_info *op, int need) {
    op->n_in++;
    if (need == REPEATED)
        op->n_in_repeated++;
    else if (op->n_in_repeated)
        op->n_in_after++;
    if (need == REQUIRED)
        op->n_in_required = op->n_in;
}

/* Adds what a row of ops.def says of its operation. */
static void ops_count(mn_op_info *op, const row *r) {
    switch (r->kind) {
    case OP:
        op->name = r->name;
        op->id = r->id;
        op->contract = r->contract;
        break;
    case IN:
        count_input(op, r->need);
        break;
    case OUT:
        op->n_out++;
        if (r->need == REQUIRED)
            op->n_out_required = op->n_out;
        break;
    case ATTR:
        op->n_attr++;
        break;
    default:
        break;
    }
}

const mn_op_info *mn_op_find(uint32_t id) {
    static const mn_op_info table[N_OPS] = {
#define MN_IN(n, o, t, s, need, d)
#define MN_OUT(n, o, t, s, need, d)
#define MN_ATTR(n, a, t, d)
#define MN_TEXT(n, t)
#define MN_OP(n, i, c, s) [i] = {.name = #n, .id = i, .contract = c},
#include "graph/ops.def"
    };
    if (id < N_OPS && table[id].name)
        return &table[id];
    return NULL;
}

/* The counts of one op, from the rows. */
static mn_op_info op_shape(uint32_t id) {
    mn_op_info op = {0};
    for (size_t i = 0; i < MN_COUNT(rows); i++)
        if (rows[i].id == id)
            ops_count(&op, &rows[i]);
    return op;
}

/* ---- names ----------------------------------------------------------------------------------- */
/* The i-th row of a kind; NULL = there is none. */
static const row *nth(uint32_t id, int kind, uint32_t i) {
    for (size_t k = 0; k < MN_COUNT(rows); k++) {
        if (rows[k].id != id || rows[k].kind != kind)
            continue;
        if (!i)
            return &rows[k];
        i--;
    }
    return NULL;
}

/* The row of input i, in whose group it may be. */
static const row *input_row(const mn_node *n, uint32_t i) {
    uint32_t lead = 0;
    const uint32_t per_group = op_shape(n->op).n_in_repeated;
    const row *r = nth(n->op, IN, 0);
    while (r && r->need != REPEATED)
        r = nth(n->op, IN, ++lead);
    if (per_group && i >= lead + per_group * n->n_out)
        i -= per_group * (n->n_out - 1);
    else if (per_group && i >= lead)
        i = lead + (i - lead) % per_group;
    return nth(n->op, IN, i);
}

const char *mn_op_input_name(const mn_node *n, uint32_t i) {
    const row *r = input_row(n, i);
    if (r)
        return r->name;
    return "?";
}

const char *mn_op_output_name(const mn_node *n, uint32_t i) {
    const row *r = nth(n->op, OUT, op_shape(n->op).n_in_repeated ? 0 : i);
    if (r)
        return r->name;
    return "?";
}

const char *mn_op_attr_name(const mn_node *n, uint32_t i, bool *is_f64) {
    const row *r = nth(n->op, ATTR, i);
    *is_f64 = r && !strcmp(r->type, "F64");
    if (r)
        return r->name;
    return "?";
}

/* ---- contracts ------------------------------------------------------------------------------- */
/* The contract that brought a row; rows of the first do not say so. */
static uint32_t row_contract(const row *r) {
    static const char word[] = "contract ";
    if (r && !strncmp(r->doc, word, sizeof word - 1))
        return (uint32_t)(r->doc[sizeof word - 1] - '0');
    return 1;
}

static uint32_t contract_of_norm(const mn_tensor *x, const mn_tensor *w) {
    if (w->n_dim == 1 && w->dim[0] < x->dim[x->n_dim - 1])
        return 3;
    return w->n_dim;
}

/* What no row of its own brought: a value of an attribute, a shape, an operand that is left out. */
static uint32_t contract_of_case(const mn_graph *g, const mn_node *n) {
    const int32_t *in = g->operands + n->in_off;
    switch (n->op) {
    case MN_OP_RMS_NORM:
        return contract_of_norm(&g->tensors[in[MN_RMS_NORM_X]],
                                &g->tensors[in[MN_RMS_NORM_WEIGHT]]);
    case MN_OP_LINEAR:
        return g->tensors[in[MN_LINEAR_WEIGHT]].n_dim - 1;
    case MN_OP_KV_STORE:
        return in[MN_KV_STORE_V] < 0 ? 2 : 1;
    case MN_OP_MOE_COMBINE:
        return in[MN_MOE_COMBINE_WEIGHTS] < 0 ? 2 : 1;
    case MN_OP_ACT:
    case MN_OP_GLU: /* KIND is the first attribute of both */
        if (mn_node_attr(g, n, MN_ACT_ATTR_KIND) == MN_ACT_XIELU)
            return 3;
        return mn_node_attr(g, n, MN_ACT_ATTR_KIND) >= MN_ACT_SIGMOID ? 2 : 1;
    case MN_OP_MOE_ROUTE:
        return mn_node_attr(g, n, MN_MOE_ROUTE_ATTR_KIND) == MN_ROUTE_SPARSEMIXER ? 2 : 1;
    case MN_OP_SAMPLE: /* LOGPROB, TOP_IDS and ids of NaN */
        return 2;
    default:
        return 1;
    }
}

uint32_t mn_op_contract_of(const mn_graph *g, const mn_node *n) {
    uint32_t contract = contract_of_case(g, n);
    for (uint32_t i = 0; i < n->n_in; i++)
        if (g->operands[n->in_off + i] >= 0)
            contract = MN_MAX(contract, row_contract(input_row(n, i)));
    for (uint32_t i = 0; i < n->n_attr; i++)
        if (g->attrs[n->attr_off + i])
            contract = MN_MAX(contract, row_contract(nth(n->op, ATTR, i)));
    return contract;
}

/* ---- the check ------------------------------------------------------------------------------- */
/* Whether an op of that shape may have the node's numbers of inputs and outputs; with repeated
 * inputs (a weight and its bias) one group per output. */
static bool ops_fits(const mn_op_info *op, const mn_node *n) {
    if (!op->n_in_repeated)
        return n->n_in >= op->n_in_required && n->n_in <= op->n_in && n->n_out <= op->n_out;
    const uint32_t fixed = op->n_in - op->n_in_repeated - op->n_in_after;
    const uint64_t least = fixed + (uint64_t)n->n_out * op->n_in_repeated;
    return n->n_out >= 1 && n->n_in >= least && n->n_in <= least + op->n_in_after;
}

static mn_status check_counts(const mn_graph *g, uint32_t i, mn_error *err) {
    const mn_node *n = &g->nodes[i];
    if (!mn_op_find(n->op))
        return mn_fail_node(err, MN_UNSUPPORTED, i, "node %u: op %u is unknown", i, n->op);
    const mn_op_info op = op_shape(n->op);
    const bool known = n->contract >= 1 && n->contract <= op.contract;
    if (known && n->n_attr <= op.n_attr && ops_fits(&op, n))
        return MN_OK;
    return mn_fail_node(err, MN_INVALID, i,
                        "node %u (%s): %u inputs, %u outputs, %u attributes do not fit the op", i,
                        op.name, n->n_in, n->n_out, n->n_attr);
}

/* Of a repeated group (a weight and its bias) the first is required; what follows the groups is
 * not. */
static bool in_required(const mn_op_info *op, uint32_t n_out, uint32_t j) {
    const uint32_t fixed = op->n_in - op->n_in_repeated - op->n_in_after;
    const uint32_t groups = op->n_in_repeated * n_out;
    if (!op->n_in_repeated || j < fixed) {
        const row *r = nth(op->id, IN, j);
        return r && r->need == REQUIRED;
    }
    return j < fixed + groups && (j - fixed) % op->n_in_repeated == 0;
}

static bool is_made_by_nodes(const mn_tensor *t) {
    return t->role == MN_ROLE_INTERIOR || t->role == MN_ROLE_OUTPUT;
}

static mn_status fail_operand(const mn_graph *g, uint32_t i, uint32_t j, int32_t t, mn_error *err) {
    const char *op = mn_op_find(g->nodes[i].op)->name;
    return mn_fail_node(err, MN_INVALID, i, "node %u (%s): operand %u is tensor %d", i, op, j, t);
}

/* Required inputs are there, and are written before they are read. written: by tensor. */
static mn_status check_inputs(const mn_graph *g, uint32_t i, const uint8_t *written,
                              mn_error *err) {
    const mn_node *n = &g->nodes[i];
    const mn_op_info op = op_shape(n->op);
    for (uint32_t j = 0; j < n->n_in; j++) {
        const int32_t t = g->operands[n->in_off + j];
        if (t >= (int32_t)g->n_tensors || (t < 0 && in_required(&op, n->n_out, j)))
            return fail_operand(g, i, j, t, err);
        if (t < 0 || written[t] || !is_made_by_nodes(&g->tensors[t]))
            continue;
        return mn_fail_node(err, MN_INVALID, i, "node %u (%s) reads %.*s before it is written", i,
                            op.name, MN_STR_ARG(g->tensors[t].name));
    }
    return MN_OK;
}

/* Required outputs are there, and each is written once. */
static mn_status ops_check_outputs(const mn_graph *g, uint32_t i, uint8_t *written, mn_error *err) {
    const mn_node *n = &g->nodes[i];
    const mn_op_info op = op_shape(n->op);
    const uint32_t n_required = MN_MAX(op.n_out_required, 1u);
    for (uint32_t j = 0; j < n->n_out; j++) {
        const int32_t t = g->operands[n->out_off + j];
        if (t >= (int32_t)g->n_tensors || (t < 0 && j < n_required))
            return fail_operand(g, i, n->n_in + j, t, err);
        if (t < 0)
            continue;
        if (written[t] || !is_made_by_nodes(&g->tensors[t]))
            return mn_fail_node(err, MN_INVALID, i,
                                "node %u (%s) writes %.*s, which is not its to write", i, op.name,
                                MN_STR_ARG(g->tensors[t].name));
        written[t] = 1;
    }
    return MN_OK;
}

/* Elements of a row, over all dimensions but the first. */
static int64_t columns(const mn_tensor *t) {
    int64_t n = 1;
    for (uint32_t i = 1; i < t->n_dim; i++)
        n *= t->dim[i];
    return n;
}

// x: [T, H, K + M]   w: [H, N, K]   y: [T, H, N + M]
static bool fits_heads(const mn_tensor *x, const mn_tensor *w, const mn_tensor *y) {
    if (x->n_dim != 3 || y->n_dim != 3 || x->dim[0] != y->dim[0])
        return false;
    return x->dim[1] == w->dim[0] && y->dim[1] == w->dim[0] && x->dim[2] >= w->dim[2] &&
           y->dim[2] - w->dim[1] == x->dim[2] - w->dim[2];
}

// x: [T, K or H, D]   w: [N, K]   y: [T, N or H, D]
static bool fits_linear(const mn_tensor *x, const mn_tensor *w, const mn_tensor *y) {
    if (w->n_dim == 3)
        return fits_heads(x, w, y);
    if (w->n_dim != 2 || x->dim[0] != y->dim[0])
        return false;
    return w->dim[1] == columns(x) && w->dim[0] == columns(y);
}

// x: [T, K] or [T, J, K]   w: [E, N, K]   y: [T, J, N]
static bool fits_moe_linear(const mn_tensor *x, const mn_tensor *w, const mn_tensor *y) {
    if (w->n_dim != 3 || y->n_dim != 3 || x->dim[0] != y->dim[0])
        return false;
    if (x->n_dim == 3 && x->dim[1] != y->dim[1])
        return false;
    return w->dim[2] == x->dim[x->n_dim - 1] && w->dim[1] == y->dim[2];
}

/* Every weight of LINEAR or MOE_LINEAR between its input and its output. */
static mn_status check_product(const mn_graph *g, uint32_t i, mn_error *err) {
    const mn_node *n = &g->nodes[i];
    const bool moe = n->op == MN_OP_MOE_LINEAR;
    const int32_t *in = g->operands + n->in_off;
    const int32_t *weights = in + (moe ? MN_MOE_LINEAR_WEIGHT : 1);
    const mn_tensor *x = &g->tensors[in[0]];
    for (uint32_t j = 0; j < n->n_out; j++) {
        const mn_tensor *w = &g->tensors[weights[2 * j]];
        const mn_tensor *y = &g->tensors[g->operands[n->out_off + j]];
        const bool fit = moe ? fits_moe_linear(x, w, y) : fits_linear(x, w, y);
        if (!fit)
            return mn_fail_node(err, MN_INVALID, i,
                                "node %u (%s): %.*s does not fit its input and output", i,
                                mn_op_find(n->op)->name, MN_STR_ARG(w->name));
    }
    return MN_OK;
}

static mn_status check_blobs(const mn_graph *g, mn_error *err) {
    if (g->n_blobs && !g->blobs)
        return mn_fail(err, MN_INVALID, "%u blobs that are not there", g->n_blobs);
    for (uint32_t i = 0; i < g->n_blobs; i++)
        if (g->blobs[i].len && !g->blobs[i].ptr)
            return mn_fail(err, MN_INVALID, "blob %u of %llu bytes is not there", i,
                           (unsigned long long)g->blobs[i].len);
    return MN_OK;
}

/* Attributes that are blobs name one of the graph, or 0. */
static mn_status check_attributes(const mn_graph *g, uint32_t i, mn_error *err) {
    const mn_node *n = &g->nodes[i];
    for (uint32_t j = 0; j < n->n_attr; j++) {
        const row *r = nth(n->op, ATTR, j);
        const uint64_t blob = mn_node_attr(g, n, j);
        if (r && !strcmp(r->type, "BLOB") && blob > g->n_blobs)
            return mn_fail_node(err, MN_INVALID, i, "node %u (%s): %s is blob %llu of %u", i,
                                mn_op_find(n->op)->name, r->name, (unsigned long long)blob,
                                g->n_blobs);
    }
    return MN_OK;
}

mn_status mn_graph_check(const mn_graph *g, mn_error *err) {
    uint8_t *written = mn_calloc(g->n_tensors ? g->n_tensors : 1, 1);
    if (!written)
        return mn_fail_memory(err, g->n_tensors);
    mn_status st = check_blobs(g, err);
    for (uint32_t i = 0; i < g->n_nodes && !st; i++) {
        const uint32_t op = g->nodes[i].op;
        st = check_counts(g, i, err);
        if (!st)
            st = check_attributes(g, i, err);
        if (!st)
            st = check_inputs(g, i, written, err);
        if (!st)
            st = ops_check_outputs(g, i, written, err);
        if (!st && (op == MN_OP_LINEAR || op == MN_OP_MOE_LINEAR))
            st = check_product(g, i, err);
    }
    mn_free(written);
    return st;
}
