/* stream.c -- see stream.h. The nodes of a layer's experts are copied with other shapes: rows [T,
 * J] become pairs [P, 1], and E experts of a weight become a group of them. What the layer reads
 * from outside is gathered first. Arrays are of fixed size: a layer has few nodes. */
#include "graph/stream.h"
#include "graph/build.h"
#include <string.h>

enum { MAX_NODES = 16, MAX_TENSORS = 64, MAX_OPERANDS = 128, MAX_ATTRS = 64 };

typedef struct {
    const mn_graph *from;
    const mn_model_graph *model;
    mn_stream_graph *out;
    mn_error *err;
    mn_node nodes[MAX_NODES];
    mn_tensor tensors[MAX_TENSORS];
    int32_t operands[MAX_OPERANDS];
    uint64_t attrs[MAX_ATTRS];
    mn_symbol symbols[MN_STREAM_SYMBOLS];
    uint32_t n_nodes, n_tensors, n_operands, n_attrs;
    int32_t *here; /* [n_tensors of from] the tensor that it became; -1: none yet */
    mn_status st;
} streamer;

/* Why the layer cannot be streamed. */
static void refuse(streamer *s, const char *why) {
    if (!s->st)
        s->st = mn_fail(s->err, MN_UNSUPPORTED, "experts that cannot be streamed: %s", why);
}

/* ---- tensors --------------------------------------------------------------------------------- */
static int32_t add_tensor(streamer *s, const char *name, uint32_t role, mn_dtype type,
                          uint32_t n_dim, const int64_t *dim) {
    if (s->n_tensors == MAX_TENSORS)
        refuse(s, "too many tensors");
    if (s->st)
        return -1;
    mn_tensor *t = &s->tensors[s->n_tensors];
    *t = (mn_tensor){
        .dtype = type, .role = role, .n_dim = n_dim, .alias_of = -1, .name = mn_str_of(name)};
    memcpy(t->dim, dim, n_dim * sizeof *dim);
    return (int32_t)s->n_tensors++;
}

static int32_t add_plain(streamer *s, const char *name, uint32_t role, uint32_t type,
                         uint32_t n_dim, const int64_t *dim) {
    mn_dtype t = {0};
    mn_dtype_by_id(type, &t);
    return add_tensor(s, name, role, t, n_dim, dim);
}

static const mn_tensor *tensor_of(const streamer *s, int32_t t) {
    return &s->from->tensors[t];
}

static const mn_graph_weight *weight_of(const streamer *s, int32_t tensor) {
    for (uint32_t i = 0; i < s->model->n_weights; i++)
        if (s->model->weights[i].tensor == tensor)
            return &s->model->weights[i];
    return NULL;
}

/* A weight or bias of all experts as one of a group; -1: there is none. */
static int32_t group_weight(streamer *s, int32_t tensor) {
    static const char *const names[MN_STREAM_WEIGHTS] = {"w0",  "w1",  "w2",  "w3", "w4",  "w5",
                                                         "w6",  "w7",  "w8",  "w9", "w10", "w11",
                                                         "w12", "w13", "w14", "w15"};
    mn_stream_graph *out = s->out;
    if (tensor < 0 || s->st)
        return -1;
    if (s->here[tensor] >= 0)
        return s->here[tensor];
    mn_tensor t = *tensor_of(s, tensor);
    const mn_graph_weight *all = weight_of(s, tensor);
    if (!all || t.alias_of >= 0 || t.dim[0] != out->n_expert || mn_is_vendor_type(t.dtype.id))
        refuse(s, "a weight is a view, of a vendor's type, or not of all experts");
    if (out->n_weights == MN_STREAM_WEIGHTS)
        refuse(s, "too many weights");
    if (s->st)
        return -1;
    t.dim[0] = out->group;
    const int32_t at =
        add_tensor(s, names[out->n_weights], MN_ROLE_WEIGHT, t.dtype, t.n_dim, t.dim);
    if (at < 0)
        return -1;
    out->weight[out->n_weights++] = (mn_stream_weight){at, all};
    s->here[tensor] = at;
    return at;
}

/* ---- nodes ----------------------------------------------------------------------------------- */
/* A node with the attributes of another one, or with none; its operands follow. */
static mn_node *begin_node(streamer *s, uint32_t op, const mn_node *like) {
    const uint32_t n_attr = like ? like->n_attr : 0;
    if (s->n_nodes == MAX_NODES || s->n_attrs + n_attr > MAX_ATTRS)
        refuse(s, "too many operations");
    if (s->st)
        return NULL;
    mn_node *n = &s->nodes[s->n_nodes++];
    *n = (mn_node){.op = op, .in_off = s->n_operands, .attr_off = s->n_attrs, .n_attr = n_attr};
    n->contract = like ? like->contract : 1;
    if (n_attr)
        memcpy(s->attrs + s->n_attrs, s->from->attrs + like->attr_off, n_attr * sizeof *s->attrs);
    s->n_attrs += n_attr;
    return n;
}

static void add_operand(streamer *s, int32_t tensor) {
    if (s->n_operands == MAX_OPERANDS)
        refuse(s, "too many operands");
    if (!s->st)
        s->operands[s->n_operands++] = tensor;
}

/* The operands so far are those that the node reads. */
static void begin_outputs(const streamer *s, mn_node *n) {
    if (!n)
        return;
    n->n_in = s->n_operands - n->in_off;
    n->out_off = s->n_operands;
}

static void end_node(const streamer *s, mn_node *n) {
    if (n)
        n->n_out = s->n_operands - n->out_off;
}

static void add_gather(streamer *s, int32_t x, int32_t rows, int32_t y) {
    mn_node *n = begin_node(s, MN_OP_GATHER_ROWS, NULL);
    add_operand(s, x);
    add_operand(s, rows);
    begin_outputs(s, n);
    add_operand(s, y);
    end_node(s, n);
}

/* Rows of the step that pairs read: gathered in front of the first node that reads them. */
static int32_t rows_of_pairs(streamer *s, int32_t tensor) {
    static const char *const names[MN_STREAM_IN] = {"x0", "x1"};
    static const char *const of_pairs[MN_STREAM_IN] = {"x0_of_pairs", "x1_of_pairs"};
    mn_stream_graph *out = s->out;
    const mn_tensor *t = tensor_of(s, tensor);
    const uint32_t i = out->n_in;
    if (t->n_dim != 2 || t->dim[0] != MN_DIM(MN_SYM_TOKENS) || t->dim[1] < 1 || t->alias_of >= 0 ||
        t->role == MN_ROLE_WEIGHT || i == MN_STREAM_IN)
        refuse(s, "what they read is not the rows of the step");
    if (s->st)
        return -1;
    const int64_t step[] = {MN_DIM(MN_STREAM_ROWS), t->dim[1]};
    const int64_t pairs[] = {MN_DIM(MN_STREAM_PAIRS), t->dim[1]};
    out->of_in[i] = tensor;
    out->in[i] = add_plain(s, names[i], MN_ROLE_INPUT, MN_F32, 2, step);
    const int32_t y = add_plain(s, of_pairs[i], MN_ROLE_INTERIOR, MN_F32, 2, pairs);
    out->n_in++;
    add_gather(s, out->in[i], out->rows, y);
    s->here[tensor] = y;
    return y;
}

static int32_t operand_here(streamer *s, int32_t tensor) {
    if (tensor < 0 || s->st)
        return -1;
    return s->here[tensor] >= 0 ? s->here[tensor] : rows_of_pairs(s, tensor);
}

/* What a node makes [T, J, N] as [P, 1, N]. */
static void add_results(streamer *s, const mn_node *from) {
    for (uint32_t i = 0; i < from->n_out && !s->st; i++) {
        const int32_t tensor = s->from->operands[from->out_off + i];
        if (tensor < 0) {
            refuse(s, "a result is not there");
            return;
        }
        const mn_tensor *t = tensor_of(s, tensor);
        const bool fits = t->n_dim == 3 && t->dim[0] == MN_DIM(MN_SYM_TOKENS) &&
                          t->dim[1] == s->out->n_chosen && t->alias_of < 0 && t->dim[2] > 0;
        if (!fits) {
            refuse(s, "a result is not one row for each chosen expert");
            return;
        }
        const int64_t dim[] = {MN_DIM(MN_STREAM_PAIRS), 1, t->dim[2]};
        s->here[tensor] = add_plain(s, "y", MN_ROLE_INTERIOR, MN_F32, 3, dim);
        add_operand(s, s->here[tensor]);
    }
}

static void add_product(streamer *s, const mn_node *from) {
    const int32_t *in = s->from->operands + from->in_off;
    const uint32_t groups = MN_MOE_LINEAR_WEIGHT + 2 * from->n_out;
    if (from->n_in > groups && in[groups] >= 0)
        refuse(s, "their inputs are weighted");
    if (in[MN_MOE_LINEAR_EXPERTS] != s->out->of_chosen)
        refuse(s, "products of several choices");
    if (from->n_in > groups + 1 && in[groups + 1] >= 0)
        s->out->of_resident = in[groups + 1];
    int32_t weights[MN_STREAM_WEIGHTS];
    const int32_t x = operand_here(s, in[MN_MOE_LINEAR_X]);
    if (from->n_out > MN_STREAM_WEIGHTS / 2)
        refuse(s, "too many weights");
    for (uint32_t i = 0; i < 2 * from->n_out && !s->st; i++)
        weights[i] = group_weight(s, in[MN_MOE_LINEAR_WEIGHT + i]);
    mn_node *n = begin_node(s, MN_OP_MOE_LINEAR, from);
    add_operand(s, x);
    add_operand(s, s->out->experts);
    for (uint32_t i = 0; i < 2 * from->n_out && !s->st; i++)
        add_operand(s, weights[i]);
    begin_outputs(s, n);
    add_results(s, from);
    end_node(s, n);
}

/* An operation on the elements of rows of pairs. */
static void add_elements(streamer *s, const mn_node *from) {
    int32_t in[MAX_NODES];
    if (from->n_in > MAX_NODES)
        refuse(s, "an operation of many operands");
    for (uint32_t i = 0; i < from->n_in && !s->st; i++) {
        const int32_t t = s->from->operands[from->in_off + i];
        if (t < 0 || s->here[t] < 0)
            refuse(s, "an operation that reads more than the products");
        in[i] = s->st ? -1 : s->here[t];
    }
    mn_node *n = begin_node(s, from->op, from);
    for (uint32_t i = 0; i < from->n_in && !s->st; i++)
        add_operand(s, in[i]);
    begin_outputs(s, n);
    add_results(s, from);
    end_node(s, n);
}

/* The sum over the experts of each row, in the order of EXPERTS. */
static void add_sum(streamer *s, const mn_node *from) {
    mn_stream_graph *out = s->out;
    const int32_t *in = s->from->operands + from->in_off;
    const int64_t J = out->n_chosen;
    const int64_t D = out->dim;
    const int64_t T = MN_DIM(MN_STREAM_ROWS);
    const int64_t three[] = {T, J, D};
    const int64_t two[] = {T, J};
    const int64_t y[] = {T, D};
    const bool partly = from->n_in > MN_MOE_COMBINE_RESIDENT && in[MN_MOE_COMBINE_RESIDENT] >= 0;
    if (from->n_in > MN_MOE_COMBINE_BASE && in[MN_MOE_COMBINE_BASE] >= 0)
        refuse(s, "their sum begins with another one");
    if (from->n_in > MN_MOE_COMBINE_EXPERTS && in[MN_MOE_COMBINE_EXPERTS] >= 0 &&
        in[MN_MOE_COMBINE_EXPERTS] != out->of_chosen)
        refuse(s, "a sum of another choice");
    if (partly != (out->of_resident >= 0) ||
        (partly && in[MN_MOE_COMBINE_RESIDENT] != out->of_resident))
        refuse(s, "a sum of other experts than the products'");
    out->again = add_plain(s, "again", MN_ROLE_INPUT, MN_F32, 3, three);
    if (from->n_in > MN_MOE_COMBINE_WEIGHTS)
        out->of_weights = in[MN_MOE_COMBINE_WEIGHTS];
    if (out->of_weights >= 0)
        out->weights = add_plain(s, "weights", MN_ROLE_INPUT, MN_F32, 2, two);
    if (partly) {
        const int64_t all[] = {out->n_expert};
        out->chosen = add_plain(s, "chosen", MN_ROLE_INPUT, MN_I32, 2, two);
        out->resident = add_plain(s, "resident", MN_ROLE_INPUT, MN_I32, 1, all);
    }
    out->sum = add_plain(s, "sum", MN_ROLE_OUTPUT, MN_F32, 2, y);
    mn_node *n = begin_node(s, MN_OP_MOE_COMBINE, from);
    add_operand(s, out->again);
    add_operand(s, out->weights);
    if (partly) {
        add_operand(s, out->chosen);
        add_operand(s, out->resident);
    }
    begin_outputs(s, n);
    add_operand(s, out->sum);
    end_node(s, n);
    out->of_sum = s->from->operands[from->out_off];
}

/* What the products made of all pairs, in the order of the step. */
static void add_order(streamer *s) {
    mn_stream_graph *out = s->out;
    const int64_t rows[] = {MN_DIM(MN_STREAM_ALL), out->dim};
    out->all = add_plain(s, "all", MN_ROLE_INPUT, MN_F32, 2, rows);
    out->order = add_plain(s, "order", MN_ROLE_INPUT, MN_I32, 1, rows);
    out->sorted = add_plain(s, "sorted", MN_ROLE_OUTPUT, MN_F32, 2, rows);
    add_gather(s, out->all, out->order, out->sorted);
}

/* ---- the whole ------------------------------------------------------------------------------- */
static void set_choice(streamer *s, const mn_node *first) {
    mn_stream_graph *out = s->out;
    const int32_t chosen = s->from->operands[first->in_off + MN_MOE_LINEAR_EXPERTS];
    const int32_t weight = s->from->operands[first->in_off + MN_MOE_LINEAR_WEIGHT];
    const int64_t pairs[] = {MN_DIM(MN_STREAM_PAIRS), 1};
    if (chosen < 0 || weight < 0 || tensor_of(s, chosen)->n_dim != 2 ||
        tensor_of(s, weight)->n_dim != 3 || tensor_of(s, chosen)->alias_of >= 0) {
        refuse(s, "no list of chosen experts");
        return;
    }
    out->of_chosen = chosen;
    out->n_chosen = tensor_of(s, chosen)->dim[1];
    out->n_expert = tensor_of(s, weight)->dim[0];
    if (out->group < 1 || out->n_chosen < 1 || out->n_expert % out->group)
        refuse(s, "their number is not a multiple of the group's");
    out->rows = add_plain(s, "rows", MN_ROLE_INPUT, MN_I32, 1, pairs);
    out->experts = add_plain(s, "experts", MN_ROLE_INPUT, MN_I32, 2, pairs);
}

static void stream_nodes(streamer *s, uint32_t lo, uint32_t hi) {
    const mn_graph *g = s->from;
    const mn_node *sum = &g->nodes[hi - 1];
    mn_stream_graph *out = s->out;
    if (g->nodes[lo].op != MN_OP_MOE_LINEAR || sum->op != MN_OP_MOE_COMBINE) {
        refuse(s, "not from the first product to the sum");
        return;
    }
    set_choice(s, &g->nodes[lo]);
    for (uint32_t i = lo; i + 1 < hi && !s->st; i++) {
        const mn_node *n = &g->nodes[i];
        if (n->op == MN_OP_MOE_LINEAR)
            add_product(s, n);
        else if (n->op == MN_OP_GLU || n->op == MN_OP_ACT || n->op == MN_OP_MUL)
            add_elements(s, n);
        else
            refuse(s, "operations that are none of theirs");
    }
    if (s->st)
        return;
    const int32_t last = g->operands[sum->in_off + MN_MOE_COMBINE_X];
    out->made = s->here[last];
    if (out->made < 0) {
        refuse(s, "a sum of something else");
        return;
    }
    s->tensors[out->made].role = MN_ROLE_OUTPUT;
    out->dim = s->tensors[out->made].dim[2];
    out->n_product = s->n_nodes;
    add_order(s);
    add_sum(s, sum);
}

static void set_symbols(streamer *s, int64_t max_rows, int64_t max_pairs) {
    static const char *const names[] = {"n_tokens", "n_pairs", "n_all"};
    const int64_t max[] = {max_rows, max_pairs, max_rows * s->out->n_chosen};
    for (uint32_t i = 0; i < MN_STREAM_SYMBOLS; i++) {
        s->symbols[i] = (mn_symbol){.min = 0,
                                    .max = max[i],
                                    .typical = max[i],
                                    .kind = MN_SYMBOL_SHAPE,
                                    .base = -1,
                                    .mul = 1};
        memcpy(s->symbols[i].name, names[i], strlen(names[i]));
    }
}

static mn_status seal(streamer *s) {
    mn_stream_graph *out = s->out;
    mn_graph g = {
        .size = sizeof g,
        .n_nodes = s->n_nodes,
        .n_tensors = s->n_tensors,
        .n_symbols = MN_STREAM_SYMBOLS,
        .node_stride = sizeof *s->nodes,
        .tensor_stride = sizeof *s->tensors,
        .symbol_stride = sizeof *s->symbols,
        .n_operands = s->n_operands,
        .nodes = s->nodes,
        .tensors = s->tensors,
        .symbols = s->symbols,
        .operands = s->operands,
        .attrs = s->attrs,
        .n_attrs = s->n_attrs,
        .step = -1,
    };
    for (uint32_t i = 0; i < s->n_nodes; i++)
        s->nodes[i].contract = mn_op_contract_of(&g, &s->nodes[i]);
    mn_gb_digest(&g);
    const mn_status st = mn_graph_check(&g, s->err);
    if (st)
        return st;
    out->given = mn_given_graph(&g, &out->pages);
    if (!out->given)
        return mn_fail_memory(s->err, sizeof g);
    out->abi = *out->given;
    return MN_OK;
}

mn_status mn_stream_graph_make(const mn_model_graph *g, uint32_t lo, uint32_t hi, int64_t group,
                               int64_t max_rows, int64_t max_pairs, mn_stream_graph *out,
                               mn_error *err) {
    *out = (mn_stream_graph){.group = group,
                             .in = {-1, -1},
                             .weights = -1,
                             .chosen = -1,
                             .resident = -1,
                             .of_in = {-1, -1},
                             .of_weights = -1,
                             .of_resident = -1};
    streamer *s = mn_calloc(1, sizeof *s);
    if (s)
        s->here = mn_alloc(g->abi.n_tensors, sizeof *s->here);
    if (!s || !s->here) {
        mn_free(s);
        return mn_fail_memory(err, sizeof *s);
    }
    s->from = &g->abi;
    s->model = g;
    s->out = out;
    s->err = err;
    for (uint32_t i = 0; i < g->abi.n_tensors; i++)
        s->here[i] = -1;
    stream_nodes(s, lo, hi);
    set_symbols(s, max_rows, max_pairs);
    mn_status st = s->st;
    if (!st)
        st = seal(s);
    mn_free(s->here);
    mn_free(s);
    return st;
}

void mn_stream_graph_free(mn_stream_graph *s) {
    mn_sealed_free(s->pages);
    s->pages = NULL;
    s->given = NULL;
}

void mn_stream_symbols(const mn_stream_graph *s, int64_t *max) {
    for (uint32_t i = 0; i < MN_STREAM_SYMBOLS; i++)
        max[i] = s->abi.symbols[i].max;
}

int64_t mn_stream_group(int64_t n_expert, double bytes, double most) {
    const double each = n_expert > 0 ? bytes / (double)n_expert : 0;
    for (int64_t group = n_expert / 2; group > 1; group--)
        if (n_expert % group == 0 && each * (double)group <= most)
            return group;
    return 1;
}
