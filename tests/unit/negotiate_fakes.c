/* negotiate_fakes.c -- see negotiate_fakes.h. The registry is the test's own, so that the real one
 * is not linked; all state is the program's. */
#include "negotiate_fakes.h"
#include <math.h>

struct mn_device {
    fake *f;
};
typedef struct {
    mn_op_contract table[32];
    uint32_t n;
} known;

fake *fakes;
static uint32_t n_fakes;
static mn_device opened[MAX_FAKES];
static mn_plugin plugins[MAX_FAKES];
mn_plugin_record records[MAX_FAKES + 2];
uint32_t n_extra;
mn_device_record devices[MAX_FAKES];
const mn_model_graph *graph;
int n_in_use; /* devices that were opened and not released */
int n_retries[MAX_FAKES];
uint64_t row_scratch;
fake_rates product_rates[MAX_FAKES];

const mn_device_record *mn_registry_devices(mn_registry *reg, size_t *n) {
    return (void)reg, *n = n_fakes, devices;
}
const mn_plugin_record *mn_registry_plugins(const mn_registry *reg, size_t *n) {
    return (void)reg, *n = n_fakes + n_extra, records;
}
const mn_plugin_record *mn_registry_no_memory(const mn_registry *reg, const char *kind) {
    (void)reg, (void)kind;
    for (size_t i = 0; i < n_fakes + n_extra; i++)
        if (records[i].no_memory)
            return &records[i];
    return NULL;
}
const mn_device_record *mn_registry_device(mn_registry *reg, mn_str name) {
    (void)reg;
    for (uint32_t i = 0; i < n_fakes; i++)
        if (mn_str_is(name, devices[i].name))
            return &devices[i];
    return NULL;
}
mn_status mn_registry_device_open(mn_registry *reg, const mn_device_record *rec, mn_device **out,
                                  mn_error *err) {
    (void)reg, (void)err;
    *out = &opened[rec - devices];
    n_in_use++;
    return MN_OK;
}
void mn_registry_device_release(mn_registry *reg, const mn_device_record *rec, mn_device *device) {
    (void)reg;
    assert_ptr_equal(device, &opened[rec - devices]);
    n_in_use--;
}
void mn_registry_retry(mn_registry *reg, const mn_device_record *rec) {
    (void)reg;
    n_retries[rec - devices]++;
}
void mn_registry_say_lost(mn_registry *reg, const mn_device_record *rec, char *out, size_t cap) {
    (void)reg;
    snprintf(out, cap, "%s", rec->reason);
}
void mn_registry_quarantine(mn_registry *reg, const mn_device_record *rec, const char *why) {
    (void)reg, (void)why;
    devices[rec - devices].reason = "lost: it said so";
    devices[rec - devices].lost = true;
    devices[rec - devices].usable = false;
}

/* ---- the fakes' table ------------------------------------------------------------------------ */
static mn_status f_contracts(void *self, const mn_op_contract **table, uint32_t *n,
                             uint32_t *stride) {
    static known k;
    const fake *f = self;
    k.n = 0;
    for (uint32_t op = 1; op < 32; op++)
        if ((f->ops | f->old_ops) >> op & 1) {
            k.table[k.n].op = op;
            k.table[k.n++].contract = f->old_ops >> op & 1 ? 0 : 1;
        }
    *table = f->lies == NO_TABLE ? NULL : k.table;
    *n = k.n;
    *stride = sizeof k.table[0];
    return MN_OK;
}
static bool has_f64(const mn_graph *g, uint32_t i) {
    for (uint32_t j = 0; j < g->nodes[i].n_in; j++) {
        int32_t t = g->operands[g->nodes[i].in_off + j];
        if (t >= 0 && g->tensors[t].dtype.id == MN_F64)
            return true;
    }
    return false;
}
static mn_status f_supports(mn_device *d, const mn_compile *c, mn_verdict *v, uint32_t stride,
                            mn_error *err) {
    const mn_graph *g = c->graph;
    (void)err;
    d->f->n_supports++;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        mn_verdict *one = (mn_verdict *)(void *)((char *)v + (size_t)i * stride);
        *one = (mn_verdict){MN_VERDICT_NATIVE, 7, NAN, -1};
        if (d->f->lies == NO_F64 && has_f64(g, i))
            *one = (mn_verdict){.verdict = MN_VERDICT_NO};
        if (d->f->lies == BAD_VERDICT && g->nodes[i].op == MN_OP_LINEAR)
            one->verdict = 42;
    }
    return MN_OK;
}
static mn_status f_reason(void *self, uint32_t reason, char *buf, uint32_t cap) {
    (void)self;
    memset(buf, 'x', cap); /* without an end */
    if (reason != 7)
        memset(buf, 0, cap);
    return MN_OK;
}
/* What the devices were asked about runs of nodes in the last negotiation. */
typedef struct {
    const mn_device *device;
    uint32_t node_lo, node_hi, precision, group; /* group: of memory_layout; UINT32_MAX: estimate */
} question;
static question questions[1 << 14];
static size_t n_questions;

static void note_question(const mn_device *d, const mn_compile *c, uint32_t group) {
    if (n_questions < MN_COUNT(questions))
        questions[n_questions++] = (question){d, c->node_lo, c->node_hi, c->precision, group};
}
/* No device was asked the same twice. */
void check_questions(void) {
    for (size_t i = 0; i < n_questions; i++)
        for (size_t k = 0; k < i; k++) {
            const question *a = &questions[i], *b = &questions[k];
            if (a->device == b->device && a->node_lo == b->node_lo && a->node_hi == b->node_hi &&
                a->precision == b->precision && a->group == b->group)
                fail_msg("%s was asked twice about nodes [%u, %u)", a->device->f->name, a->node_lo,
                         a->node_hi);
        }
}

/* Each product by its bytes: those that a token reads, and of a prompt all or what 512 rows
 * multiply. */
static void add_products(const fake_rates *f, const mn_compile *c, mn_estimate *e) {
    for (uint32_t i = c->node_lo; i < c->node_hi; i++) {
        const mn_segment node = {.node_lo = i, .node_hi = i + 1};
        const double bytes = mn_node_bytes(c->graph, i);
        const double all_us = mn_segment_bytes(c->graph, &node) / f->gbps * 1e-3;
        const double flop_us = 2 * 512 * bytes / 4 / f->tflops * 1e-6;
        e->decode_us += bytes / f->gbps * 1e-3;
        e->prefill_us += flop_us > all_us ? flop_us : all_us;
    }
}

static mn_status f_estimate(mn_device *d, const mn_compile *c, mn_estimate *e, mn_error *err) {
    const fake *f = d->f;
    note_question(d, c, UINT32_MAX);
    for (uint32_t i = c->node_lo; i < c->node_hi; i++) {
        if (!(f->ops >> c->graph->nodes[i].op & 1))
            return mn_fail(err, MN_UNSUPPORTED, "asked for what it cannot");
    }
    const mn_segment all = {.node_lo = c->node_lo, .node_hi = c->node_hi};
    e->weights = (uint64_t)mn_segment_bytes(c->graph, &all);
    e->precision = MN_PRECISION_EXACT;
    e->scratch = (1 << 10) + row_scratch * (uint64_t)c->symbol_max[MN_SYM_TOKENS];
    e->decode_us = f->us_per_node * (c->node_hi - c->node_lo);
    e->prefill_us = e->decode_us * f->prefill;
    if (product_rates[f - fakes].gbps > 0)
        add_products(&product_rates[f - fakes], c, e);
    if (f->lies == NO_CLASS)
        e->precision = 77;
    if (f->lies == COARSE)
        e->precision = MN_PRECISION_A8;
    if (f->lies == IN_PLACE)
        e->weights = 0;
    if (f->lies == ABSURD)
        e->weights = UINT64_MAX - 5;
    if (f->lies == NOT_A_NUMBER)
        e->decode_us = NAN, e->prefill_us = -1, e->row_grain = UINT32_MAX;
    if (f->lies == LOST)
        return mn_fail(err, MN_DEVICE_LOST, "it fell off the bus");
    return MN_OK;
}
static mn_status f_memory_layout(mn_device *d, const mn_compile *c, uint32_t group,
                                 mn_memory_layout *out, mn_error *err) {
    (void)err;
    uint32_t layers = 0;
    note_question(d, c, group);
    for (uint32_t i = c->node_lo; i < c->node_hi; i++)
        layers += c->graph->nodes[i].op == MN_OP_KV_STORE;
    *out = (mn_memory_layout){sizeof *out, d->f->lies == NO_PAGES ? 0 : 64, layers * 4096ull, 0, 0};
    return MN_OK;
}
static mn_status f_queue(mn_device *d, const mn_queue_params *params, mn_queue **q, mn_error *err) {
    (void)d, (void)q, (void)params;
    return mn_fail(err, MN_UNSUPPORTED, "a table of numbers has no queue");
}
static const mn_backend backend = {.size = sizeof backend,
                                   .contracts = f_contracts,
                                   .supports = f_supports,
                                   .reason = f_reason,
                                   .estimate = f_estimate,
                                   .memory_layout = f_memory_layout,
                                   .queue_create = f_queue};

/* The devices of one test. */
void install_fakes(fake *f, uint32_t n) {
    static char paths[MAX_FAKES][64];
    fakes = f, n_fakes = n, n_extra = 0, row_scratch = 0;
    memset(n_retries, 0, sizeof n_retries);
    memset(product_rates, 0, sizeof product_rates);
    for (uint32_t i = 0; i < n; i++) {
        f[i].n_supports = 0;
        opened[i].f = &f[i];
        plugins[i] = (mn_plugin){.size = sizeof plugins[i], .abi = MN_ABI_VERSION, .self = &f[i]};
        snprintf(paths[i], sizeof paths[i], "/plugins/%s.so", f[i].name);
        records[i] = (mn_plugin_record){.path = paths[i],
                                        .id = mn_str_of(f[i].name),
                                        .kind = "backend",
                                        .abi = MN_ABI_VERSION,
                                        .status = MN_RECORD_OK,
                                        .reason = (char *)(uintptr_t) "",
                                        .plugin = &plugins[i],
                                        .backend = &backend};
        memset(&devices[i], 0, sizeof devices[i]);
        snprintf(devices[i].name, sizeof devices[i].name, "%s", f[i].name);
        devices[i].plugin = &records[i];
        devices[i].info = (mn_device_info){.size = sizeof devices[i].info,
                                           .kind = f[i].kind,
                                           .flags = f[i].flags,
                                           .mem_free = f[i].mem_free};
        snprintf(devices[i].info.mem_pool, sizeof devices[i].info.mem_pool, "%s",
                 f[i].pool ? f[i].pool : "");
        devices[i].reason = "";
        devices[i].usable = true;
    }
}
/* ---- the graph ------------------------------------------------------------------------------- */
mn_node nodes[MAX_NODES];
static mn_tensor tensors[48 * N_LAYERS + 64];
int32_t operands[MAX_OPERANDS];
static uint64_t attrs[64];
static mn_symbol symbols[MN_SYM_COUNT];
uint32_t n_nodes;
static uint32_t n_tensors, n_operands;
int32_t f64_bias; /* nobody's, until a test gives it to a node */

static int32_t add_tensor(uint32_t role, uint32_t dtype, int64_t a, int64_t b) {
    mn_tensor *t = &tensors[n_tensors];
    *t = (mn_tensor){
        .dim = {a, b}, .n_dim = b ? 2 : 1, .role = role, .alias_of = -1, .name = mn_str_of("t")};
    assert_true(mn_dtype_by_id(dtype, &t->dtype));
    return (int32_t)n_tensors++;
}
static int32_t inner(int64_t rows) {
    return add_tensor(MN_ROLE_INTERIOR, MN_F32, rows, D);
}
static int32_t weight(int64_t rows) {
    return add_tensor(MN_ROLE_WEIGHT, MN_F32, rows, D);
}
static void add_node(uint32_t op, int32_t layer, const int32_t *in, uint32_t n_in,
                     const int32_t *out, uint32_t n_out) {
    mn_node *n = &nodes[n_nodes++];
    *n = (mn_node){.op = op,
                   .contract = 1,
                   .in_off = n_operands,
                   .n_in = n_in,
                   .n_out = n_out,
                   .layer = layer};
    n->out_off = n_operands + n_in;
    for (uint32_t i = 0; i < n_in; i++)
        operands[n_operands++] = in[i];
    for (uint32_t i = 0; i < n_out; i++)
        operands[n_operands++] = out[i];
    bool att = op == MN_OP_ATTENTION;
    if (att || op == MN_OP_KV_STORE) {
        n->attr_off = (uint32_t)(layer * 5),
        n->n_attr = att ? 4 : 1; /* KV_LAYER is attribute 3 of one, 0 of the other */
        attrs[layer * 5 + 3] = (uint64_t)layer;
        if (!att)
            n->attr_off += 3;
    }
}
#define NODE(op, layer, out, ...)                                                                  \
    add_node(MN_OP_##op, layer, (const int32_t[]){__VA_ARGS__},                                    \
             (uint32_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)),                 \
             (out) < 0 ? NULL : (const int32_t[]){out}, (out) >= 0)

static int32_t shaped(uint32_t role, uint32_t dtype, int64_t a, int64_t b, int64_t c) {
    const int32_t t = add_tensor(role, dtype, a, b);
    tensors[t].dim[2] = c;
    tensors[t].n_dim = 3;
    return t;
}

/* As mn_b_moe divides them; -1: there are none in the first half. */
static int32_t first_half(int32_t layer, int32_t x, int32_t chosen, uint32_t n) {
    const int64_t T = MN_DIM(MN_SYM_TOKENS);
    const int32_t up = shaped(MN_ROLE_INTERIOR, MN_F32, T, 2, D);
    const int32_t act = shaped(MN_ROLE_INTERIOR, MN_F32, T, 2, D);
    const int32_t down = shaped(MN_ROLE_INTERIOR, MN_F32, T, 2, D);
    NODE(MOE_LINEAR, layer, up, x, chosen, shaped(MN_ROLE_WEIGHT, MN_F32, n, D, D), -1);
    NODE(ACT, layer, act, up);
    NODE(MOE_LINEAR, layer, down, act, chosen, shaped(MN_ROLE_WEIGHT, MN_F32, n, D, D), -1);
    return down;
}

/* Two of N_EXPERTS for each row of x; what they make of it. */
static int32_t add_experts(int32_t layer, int32_t x, const mn_division *d) {
    const int64_t T = MN_DIM(MN_SYM_TOKENS);
    const int32_t scores = add_tensor(MN_ROLE_INTERIOR, MN_F32, T, N_EXPERTS);
    const int32_t chosen = add_tensor(MN_ROLE_INTERIOR, MN_I32, T, 2);
    const int32_t shares = add_tensor(MN_ROLE_INTERIOR, MN_F32, T, 2);
    const int32_t up = shaped(MN_ROLE_INTERIOR, MN_F32, T, 2, D);
    const int32_t act = shaped(MN_ROLE_INTERIOR, MN_F32, T, 2, D);
    const int32_t down = shaped(MN_ROLE_INTERIOR, MN_F32, T, 2, D);
    const int32_t y = inner(T);
    const int32_t w_up = shaped(MN_ROLE_WEIGHT, MN_F32, N_EXPERTS, D, D);
    const int32_t w_down = shaped(MN_ROLE_WEIGHT, MN_F32, N_EXPERTS, D, D);
    NODE(LINEAR, layer, scores, x, weight(N_EXPERTS), -1);
    add_node(MN_OP_MOE_ROUTE, layer, (int32_t[]){scores, -1}, 2, (int32_t[]){chosen, shares}, 2);
    nodes[n_nodes - 1].attr_off = MN_COUNT(attrs) - 3;
    nodes[n_nodes - 1].n_attr = 3;
    if (!d->on || layer < d->layer_lo || !d->n_first) {
        NODE(MOE_LINEAR, layer, up, x, chosen, w_up, -1);
        NODE(ACT, layer, act, up);
        NODE(MOE_LINEAR, layer, down, act, chosen, w_down, -1);
        NODE(MOE_COMBINE, layer, y, down, shares);
        return y;
    }
    const int32_t first = first_half(layer, x, chosen, d->n_first);
    const int32_t here = add_tensor(MN_ROLE_STATE, MN_I32, N_EXPERTS, 0);
    const int32_t there = add_tensor(MN_ROLE_STATE, MN_I32, N_EXPERTS, 0);
    const int32_t part = inner(T);
    NODE(MOE_LINEAR, layer, up, x, chosen, w_up, -1, -1, there);
    NODE(ACT, layer, act, up);
    NODE(MOE_LINEAR, layer, down, act, chosen, w_down, -1, -1, there);
    NODE(MOE_COMBINE, layer, part, down, shares, chosen, there);
    NODE(MOE_COMBINE, layer, y, first, shares, chosen, here, part);
    return y;
}

/* Names of weights, as files have them: rules go by them. */
static void name_weights(void) {
    static char names[48 * N_LAYERS + 64][48];
    for (uint32_t i = 0; i < n_nodes; i++)
        for (uint32_t j = 0; j < nodes[i].n_in; j++) {
            static const char *const of_op[MN_OP_MOE_COMBINE + 1] = {
                [MN_OP_RMS_NORM] = "norm", [MN_OP_LINEAR] = "attn", [MN_OP_ROPE] = "freqs"};
            const int32_t t = operands[nodes[i].in_off + j];
            if (t < 0 || tensors[t].role != MN_ROLE_WEIGHT || tensors[t].name.len > 1)
                continue;
            const char *kind = of_op[nodes[i].op] ? of_op[nodes[i].op] : "token_embd";
            if (nodes[i].op == MN_OP_MOE_LINEAR)
                kind = nodes[i + 1].op == MN_OP_ACT ? "ffn_up_exps" : "ffn_down_exps";
            if (nodes[i].layer < 0 || tensors[t].n_dim < 2)
                snprintf(names[t], sizeof names[t], "%s.weight", kind);
            else
                snprintf(names[t], sizeof names[t], "blk.%d.%s%u.weight", nodes[i].layer, kind, i);
            tensors[t].name = mn_str_of(names[t]);
        }
}

static int make_graph(bool experts, mn_division division, mn_model_graph *g) {
    const int64_t T = MN_DIM(MN_SYM_TOKENS), O = MN_DIM(MN_SYM_OUTPUTS);
    int32_t in = add_tensor(MN_ROLE_INPUT, MN_I32, T, 0),
            st = add_tensor(MN_ROLE_STATE, MN_I32, 4, 4);
    int32_t x = inner(T), pos = add_tensor(MN_ROLE_INTERIOR, MN_I32, T, 0);
    int32_t norm = add_tensor(MN_ROLE_WEIGHT, MN_F32, D, 0),
            freqs = add_tensor(MN_ROLE_WEIGHT, MN_F32, D / 2, 0);
    f64_bias = add_tensor(MN_ROLE_WEIGHT, MN_F64, D, 0);
    add_node(MN_OP_EMBED, -1, (int32_t[]){in, in, in, weight(V), st, st}, 6, (int32_t[]){x, pos},
             2);
    for (int32_t i = 0; i < N_LAYERS; i++) {
        int32_t a = inner(T), q = inner(T), r = inner(T), y = inner(T), z = inner(T),
                sum = inner(T);
        NODE(RMS_NORM, i, a, x, norm);
        NODE(LINEAR, i, q, a, weight(D), -1);
        NODE(ROPE, i, r, q, pos, freqs);
        NODE(KV_STORE, i, -1, r, q, pos, in, in, st);
        NODE(ATTENTION, i, y, r, pos, in, in, in, st);
        NODE(LINEAR, i, z, y, weight(D), -1);
        NODE(ADD, i, sum, x, z);
        int32_t act = inner(T);
        if (experts)
            NODE(ADD, i, act, sum, add_experts(i, sum, &division));
        else
            NODE(ACT, i, act, sum);
        x = act;
    }
    int32_t rows = inner(O), n = inner(O), logits = add_tensor(MN_ROLE_OUTPUT, MN_F32, O, V),
            ids = add_tensor(MN_ROLE_OUTPUT, MN_I32, O, 0);
    NODE(GATHER_ROWS, -1, rows, x, in);
    NODE(RMS_NORM, -1, n, rows, norm);
    NODE(LINEAR, -1, logits, n, weight(V), -1);
    NODE(SAMPLE, -1, ids, logits, in, st, st, st);
    if (experts && !division.on)
        name_weights();
    g->division = division;
    g->abi = (mn_graph){.size = sizeof g->abi,
                        .n_nodes = n_nodes,
                        .n_tensors = n_tensors,
                        .n_symbols = MN_SYM_COUNT,
                        .node_stride = sizeof *nodes,
                        .tensor_stride = sizeof *tensors,
                        .symbol_stride = sizeof *symbols,
                        .n_operands = n_operands,
                        .nodes = nodes,
                        .tensors = tensors,
                        .symbols = symbols,
                        .operands = operands,
                        .attrs = attrs,
                        .n_attrs = MN_COUNT(attrs)};
    mn_error err = MN_ERROR_INIT;
    g->given = &g->abi;
    if (mn_graph_check(&g->abi, &err))
        return fprintf(stderr, "%s\n", err.msg), -1;
    return 0;
}

static int build_graph(bool experts) {
    static mn_model_graph g;
    graph = &g;
    return make_graph(experts, (mn_division){.on = false}, &g);
}

static void *copy_of(const void *from, size_t bytes) {
    void *copy = malloc(bytes);
    assert_non_null(copy);
    return memcpy(copy, from, bytes);
}

/* The arrays are those of the undivided graph again, once the divided one has copies. */
const mn_model_graph *divided_graph(mn_division d) {
    static mn_model_graph made[N_LAYERS][N_EXPERTS];
    static mn_node saved_nodes[MAX_NODES];
    static mn_tensor saved_tensors[MN_COUNT(tensors)];
    static int32_t saved_operands[MAX_OPERANDS];
    mn_model_graph *g = &made[d.layer_lo][d.n_first];
    if (g->abi.n_nodes)
        return g;
    const uint32_t counts[] = {n_nodes, n_tensors, n_operands};
    memcpy(saved_nodes, nodes, sizeof nodes);
    memcpy(saved_tensors, tensors, sizeof tensors);
    memcpy(saved_operands, operands, sizeof operands);
    n_nodes = n_tensors = n_operands = 0;
    assert_int_equal(make_graph(true, d, g), 0);
    g->abi.nodes = copy_of(nodes, sizeof nodes);
    g->abi.tensors = copy_of(tensors, sizeof tensors);
    g->abi.operands = copy_of(operands, sizeof operands);
    memcpy(nodes, saved_nodes, sizeof nodes);
    memcpy(tensors, saved_tensors, sizeof tensors);
    memcpy(operands, saved_operands, sizeof operands);
    n_nodes = counts[0];
    n_tensors = counts[1];
    n_operands = counts[2];
    return g;
}

int fake_graph(void **state) {
    (void)state;
    return build_graph(false);
}
int fake_expert_graph(void **state) {
    (void)state;
    return build_graph(true);
}

/* ---- negotiations ---------------------------------------------------------------------------- */
void forget_questions(void) {
    n_questions = 0;
}

mn_request request_for(const char *list) {
    return (mn_request){
        .devices = list, .n_ctx = 128, .n_seq = 1, .n_batch = 4, .n_outputs = 1, .threads = 2};
}
mn_placement negotiate(const char *list) {
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    mn_request r = request_for(list);
    forget_questions();
    if (mn_negotiate(NULL, graph, &r, &p, &err))
        fail_msg("%s: %s", list, err.msg);
    check_questions();
    return p;
}
void refused(const char *list, mn_status status, const char *words) {
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    mn_request r = request_for(list);
    forget_questions();
    assert_int_equal(mn_negotiate(NULL, graph, &r, &p, &err), status);
    check_questions();
    assert_null(p.offers);
    if (!strstr(err.msg, words))
        fail_msg("\"%s\" lacks \"%s\"", err.msg, words);
}
mn_offer *offer_of(const mn_placement *p, const char *name) {
    for (uint32_t i = 0; i < p->n_offers; i++)
        if (!strcmp(p->offers[i].record->name, name))
            return &p->offers[i];
    fail_msg("%s made no offer", name);
    return p->offers;
}
const char *at_node(const mn_placement *p, uint32_t node) {
    for (uint32_t k = 0; k < p->n_segments; k++)
        if (node >= p->segments[k].node_lo && node < p->segments[k].node_hi)
            return p->offers[p->segments[k].offer].record->name;
    fail_msg("node %u is nowhere", node);
    return NULL;
}
static int32_t cache_layer(uint32_t i) {
    return nodes[i].op == MN_OP_KV_STORE || nodes[i].op == MN_OP_ATTENTION ? nodes[i].layer : -1;
}

void check_placement(const mn_placement *p) {
    assert_int_equal(p->segments[0].node_lo, 0);
    assert_int_equal(p->segments[p->n_segments - 1].node_hi, n_nodes);
    for (uint32_t k = 1; k < p->n_segments; k++) {
        assert_int_equal(p->segments[k].node_lo, p->segments[k - 1].node_hi);
        assert_true(p->segments[k].offer != p->segments[k - 1].offer);
    }
    assert_string_equal(at_node(p, 0), at_node(p, n_nodes - 1)); /* EMBED and SAMPLE */
    for (uint32_t i = 1; i < n_nodes; i++)
        if (cache_layer(i) >= 0 && cache_layer(i) == cache_layer(i - 1))
            assert_string_equal(at_node(p, i), at_node(p, i - 1));
    for (uint32_t i = 0; i < p->n_offers; i++) {
        mn_need_sum sum = {0};
        for (uint32_t k = 0; k < p->n_segments; k++) {
            if (p->segments[k].offer == i)
                assert_true(mn_need_add(&p->offers[i], &p->segments[k], &sum));
        }
        assert_true(!p->offers[i].free_bytes || mn_need_total(&sum) <= p->offers[i].free_bytes);
        assert_true(*mn_outcome_name(p->offers[i].outcome));
        if (mn_need_total(&sum))
            assert_int_equal(p->offers[i].outcome, MN_OUTCOME_CHOSEN);
    }
    assert_non_null(p->why);
}
void only_on(const mn_placement *p, const char *name) {
    check_placement(p);
    assert_int_equal(p->n_segments, 1);
    assert_int_equal(p->n_copies, 0);
    assert_string_equal(p->offers[p->chosen].record->name, name);
}
void has_words(const char *text, const char *words) {
    if (!strstr(text, words))
        fail_msg("\"%s\" lacks \"%s\"", text, words);
}
