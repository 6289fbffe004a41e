/* test_negotiate.c -- who gets which nodes, and what the record says: a graph by hand, and devices
 * that are tables of numbers. */
#include "negotiate/offer.h"
#include "unit.h"
#include <cjson/cJSON.h>
#include <math.h>

/* ---- a registry of fakes: what the negotiation needs of one, so that the real one is not linked
 * ---- */
#define ALL_OPS (~0u)
#define OP(name) (1u << MN_OP_##name)
enum { MAX_FAKES = 4, N_LAYERS = 8, D = 256, V = 2048 };

typedef enum {
    HONEST,
    BAD_VERDICT,
    NO_CLASS,
    COARSE,
    ABSURD,
    NOT_A_NUMBER,
    NO_PAGES,
    LOST,
    NO_TABLE,
    IN_PLACE,
    NO_F64
} lie; /* IN_PLACE and NO_F64 are none: weights stay in their file; no kernels for F64 */
typedef struct {
    const char *name;
    uint32_t kind, ops, old_ops; /* old_ops: known by a contract of version 0 */
    uint64_t flags, mem_free;
    double us_per_node;
    const char *pool;
    lie lies;
    uint32_t n_supports;
    double prefill; /* a prompt takes so many times a drawn id */
} fake;
struct mn_device {
    fake *f;
};
typedef struct {
    uint32_t table[32][2], n;
} known;

static fake *fakes;
static uint32_t n_fakes;
static mn_device opened[MAX_FAKES];
static mn_plugin plugins[MAX_FAKES];
static mn_plugin_record records[MAX_FAKES + 2];
static uint32_t n_extra;
static mn_device_record devices[MAX_FAKES];
static const mn_model_graph *graph;
static int n_in_use; /* devices that were opened and not released */
static int n_retries[MAX_FAKES];

const mn_device_record *mn_registry_devices(mn_registry *reg, size_t *n) {
    return (void)reg, *n = n_fakes, devices;
}
const mn_plugin_record *mn_registry_plugins(const mn_registry *reg, size_t *n) {
    return (void)reg, *n = n_fakes + n_extra, records;
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
static mn_status f_contracts(void *self, const uint32_t (**table)[2], uint32_t *n) {
    static known k;
    const fake *f = self;
    k.n = 0;
    for (uint32_t op = 1; op <= MN_OP_MOE_COMBINE; op++)
        if ((f->ops | f->old_ops) >> op & 1) {
            k.table[k.n][0] = op;
            k.table[k.n++][1] = f->old_ops >> op & 1 ? 0 : 1;
        }
    *table = f->lies == NO_TABLE ? NULL : (const uint32_t(*)[2])(uintptr_t)k.table;
    *n = k.n;
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
static mn_status f_supports(mn_device *d, const mn_graph *g, const int64_t *at, mn_verdict *v,
                            uint32_t stride, mn_error *err) {
    (void)at, (void)err;
    d->f->n_supports++;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        mn_verdict *one = (mn_verdict *)(void *)((char *)v + (size_t)i * stride);
        *one = (mn_verdict){MN_VERDICT_NATIVE, 7, NAN, 99};
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
    uint32_t node_lo, node_hi, precision, group; /* group: of kv_layout; UINT32_MAX: estimate */
} question;
static question questions[1 << 14];
static size_t n_questions;

static void note_question(const mn_device *d, const mn_compile *c, uint32_t group) {
    if (n_questions < MN_COUNT(questions))
        questions[n_questions++] = (question){d, c->node_lo, c->node_hi, c->precision, group};
}
/* No device was asked the same twice. */
static void check_questions(void) {
    for (size_t i = 0; i < n_questions; i++)
        for (size_t k = 0; k < i; k++) {
            const question *a = &questions[i], *b = &questions[k];
            if (a->device == b->device && a->node_lo == b->node_lo && a->node_hi == b->node_hi &&
                a->precision == b->precision && a->group == b->group)
                fail_msg("%s was asked twice about nodes [%u, %u)", a->device->f->name, a->node_lo,
                         a->node_hi);
        }
}

static mn_status f_estimate(mn_device *d, const mn_compile *c, mn_estimate *e, mn_error *err) {
    const fake *f = d->f;
    note_question(d, c, UINT32_MAX);
    for (uint32_t i = c->node_lo; i < c->node_hi; i++) {
        if (!(f->ops >> c->graph->nodes[i].op & 1))
            return mn_fail(err, MN_UNSUPPORTED, "asked for what it cannot");
        e->weights += (uint64_t)mn_node_bytes(c->graph, i);
    }
    e->precision = MN_PRECISION_EXACT;
    e->scratch = 1 << 10;
    e->decode_us = f->us_per_node * (c->node_hi - c->node_lo);
    e->prefill_us = e->decode_us * f->prefill;
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
static mn_status f_kv_layout(mn_device *d, const mn_compile *c, uint32_t group, mn_kv_layout *out,
                             mn_error *err) {
    (void)err;
    uint32_t layers = 0;
    note_question(d, c, group);
    for (uint32_t i = c->node_lo; i < c->node_hi; i++)
        layers += c->graph->nodes[i].op == MN_OP_KV_STORE;
    *out = (mn_kv_layout){sizeof *out, d->f->lies == NO_PAGES ? 0 : 64, layers * 4096ull, 0, 0};
    return MN_OK;
}
static mn_status f_queue(mn_device *d, mn_queue **q, mn_error *err) {
    (void)d, (void)q;
    return mn_fail(err, MN_UNSUPPORTED, "a table of numbers has no queue");
}
static const mn_backend backend = {.size = sizeof backend,
                                   .contracts = f_contracts,
                                   .supports = f_supports,
                                   .reason = f_reason,
                                   .estimate = f_estimate,
                                   .kv_layout = f_kv_layout,
                                   .queue_create = f_queue};

/* The devices of one test. */
static void install(fake *f, uint32_t n) {
    static char paths[MAX_FAKES][64];
    fakes = f, n_fakes = n, n_extra = 0;
    memset(n_retries, 0, sizeof n_retries);
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
#define INSTALL(...)                                                                               \
    fake list_[] = {__VA_ARGS__};                                                                  \
    install(list_, (uint32_t)MN_COUNT(list_))
#define CPU                                                                                        \
    { "cpu", MN_DEVICE_CPU, ALL_OPS, 0, 0, 0, 10, "host", HONEST, 0, 10 }
#define ORACLE                                                                                     \
    { "oracle", MN_DEVICE_CPU, ALL_OPS, 0, MN_DEVICE_ORACLE, 0, 1, "host", HONEST, 0, 10 }
#define GPU(memory)                                                                                \
    { "gpu", MN_DEVICE_GPU, ALL_OPS, 0, 0, memory, 1, "gpu0", HONEST, 0, 10 }
#define VENDOR(us)                                                                                 \
    { "vendor", MN_DEVICE_NPU, OP(RMS_NORM) | OP(LINEAR), 0, 0, 0, us, "npu", HONEST, 0, 10 }

/* ---- the graph: EMBED, N_LAYERS of eight nodes, GATHER_ROWS, norm, LINEAR, SAMPLE ------------ */
static mn_node nodes[8 * N_LAYERS + 8];
static mn_tensor tensors[16 * N_LAYERS + 64];
static int32_t operands[64 * N_LAYERS + 128];
static uint64_t attrs[64];
static mn_symbol symbols[MN_SYM_COUNT];
static uint32_t n_nodes, n_tensors, n_operands;
static int32_t f64_bias; /* nobody's, until a test gives it to a node */

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

static int build(void **state) {
    static mn_model_graph g;
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
        NODE(ACT, i, act, sum);
        x = act;
    }
    int32_t rows = inner(O), n = inner(O), logits = add_tensor(MN_ROLE_OUTPUT, MN_F32, O, V),
            ids = add_tensor(MN_ROLE_OUTPUT, MN_I32, O, 0);
    NODE(GATHER_ROWS, -1, rows, x, in);
    NODE(RMS_NORM, -1, n, rows, norm);
    NODE(LINEAR, -1, logits, n, weight(V), -1);
    NODE(SAMPLE, -1, ids, logits, in, st, st, st);
    g.abi = (mn_graph){.size = sizeof g.abi,
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
    if (mn_graph_check(&g.abi, &err))
        return fprintf(stderr, "%s\n", err.msg), -1;
    graph = &g;
    (void)state;
    return 0;
}

/* ---- helpers --------------------------------------------------------------------------------- */
static mn_request ask(const char *list) {
    return (mn_request){
        .devices = list, .n_ctx = 128, .n_seq = 1, .n_batch = 4, .n_outputs = 1, .threads = 2};
}
static mn_placement negotiate(const char *list) {
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    mn_request r = ask(list);
    n_questions = 0;
    if (mn_negotiate(NULL, graph, &r, &p, &err))
        fail_msg("%s: %s", list, err.msg);
    check_questions();
    return p;
}
static void refused(const char *list, mn_status status, const char *words) {
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    mn_request r = ask(list);
    n_questions = 0;
    assert_int_equal(mn_negotiate(NULL, graph, &r, &p, &err), status);
    check_questions();
    assert_null(p.offers);
    if (!strstr(err.msg, words))
        fail_msg("\"%s\" lacks \"%s\"", err.msg, words);
}
static mn_offer *offer_of(const mn_placement *p, const char *name) {
    for (uint32_t i = 0; i < p->n_offers; i++)
        if (!strcmp(p->offers[i].record->name, name))
            return &p->offers[i];
    fail_msg("%s made no offer", name);
    return p->offers;
}
static const char *at_node(const mn_placement *p, uint32_t node) {
    for (uint32_t k = 0; k < p->n_segments; k++)
        if (node >= p->segments[k].node_lo && node < p->segments[k].node_hi)
            return p->offers[p->segments[k].offer].record->name;
    fail_msg("node %u is nowhere", node);
    return NULL;
}
static int32_t cache_layer(uint32_t i) {
    return nodes[i].op == MN_OP_KV_STORE || nodes[i].op == MN_OP_ATTENTION ? nodes[i].layer : -1;
}

/* What holds of every placement. */
static void check(const mn_placement *p) {
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
        uint64_t sum = 0;
        for (uint32_t k = 0; k < p->n_segments; k++)
            sum += p->segments[k].offer == i ? p->segments[k].need : 0;
        assert_true(!p->offers[i].free_bytes || sum <= p->offers[i].free_bytes);
        assert_true(*mn_outcome_name(p->offers[i].outcome));
        if (sum)
            assert_int_equal(p->offers[i].outcome, MN_OUTCOME_CHOSEN);
    }
    assert_non_null(p->why);
}
static void only_on(const mn_placement *p, const char *name) {
    check(p);
    assert_int_equal(p->n_segments, 1);
    assert_int_equal(p->n_copies, 0);
    assert_string_equal(p->offers[p->chosen].record->name, name);
}
static void has_words(const char *text, const char *words) {
    if (!strstr(text, words))
        fail_msg("\"%s\" lacks \"%s\"", text, words);
}

/* ---- one device ------------------------------------------------------------------------------ */
static void test_one_is_enough(void **state) {
    (void)state;
    INSTALL(CPU, GPU(0), ORACLE, VENDOR(20));
    mn_placement p = negotiate("auto");
    only_on(&p, "gpu");
    has_words(p.why, "the fastest of 3 usable devices");
    assert_false(p.fallback);
    assert_int_equal(offer_of(&p, "cpu")->outcome, MN_OUTCOME_SLOWER);
    assert_int_equal(offer_of(&p, "oracle")->outcome, MN_OUTCOME_ORACLE);
    assert_int_equal(offer_of(&p, "vendor")->outcome, MN_OUTCOME_PARTIAL);
    assert_int_equal(p.symbol_max[MN_SYM_PAGES], 2); /* 128 positions in pages of 64 */
    assert_int_equal(p.segments[0].n_pages[0], 2);
    assert_int_equal(p.segments[0].kv_bytes, 2 * 4096 * N_LAYERS);
    mn_placement_free(&p);
    p = negotiate("cpu");
    only_on(&p, "cpu");
    mn_placement_free(&p);
}

/* Rates that cannot be measured are the plugin's claims, and the record says so. */
/* gpt-oss-20b at 131,072 positions, f16: 12 layers that see 128 positions, 12 that see all; 2 KiB
 * per layer and position. Before window layers gave pages back it was 6 GiB. */
static void test_pages_of_windows(void **state) {
    const mn_kv_group all = {0, 8, 64, 64, 0}, some = {128, 8, 64, 64, 0};
    int64_t max[MN_SYM_COUNT] = {[MN_SYM_TOKENS] = 512, [MN_SYM_SLOTS] = 1, [MN_SYM_CTX] = 131072};
    const uint64_t page = 64 * 12 * 2048;
    (void)state;
    assert_int_equal(mn_kv_pages(&all, 64, max, 1) * page, 3221225472);
    assert_int_equal(mn_kv_pages(&all, 64, max, 1) * page + mn_kv_pages(&some, 64, max, 1) * page,
                     3241672704);
    /* the window, what 8 steps add, an unaligned page at each end; two batches */
    assert_int_equal(mn_kv_pages_of_one(&some, 64, 131072, 8), 3 + 2);
    assert_int_equal(mn_kv_pages(&some, 64, max, 8), 3 + 2 + 2 * 8);
    max[MN_SYM_SLOTS] = 20;
    assert_int_equal(mn_kv_pages(&some, 64, max, 8), 20 * (3 + 2) + 2 * 8);
    assert_int_equal(mn_kv_pages(&some, 256, max, 8), 20 * (1 + 2) + 2 * 2);
    /* of an encoder: a batch of texts, each of which may leave a page half full */
    const mn_kv_group encoder = {0, 8, 64, 64, 1};
    assert_int_equal(mn_kv_pages(&encoder, 64, max, 8), 8 + 20);
    /* never more than whole rows */
    max[MN_SYM_CTX] = 100;
    assert_int_equal(mn_kv_pages(&some, 64, max, 8), 20 * 2);
    assert_int_equal(mn_kv_pages(&all, 64, max, 8), 20 * 2);
}

/* The size of a cache that sequences share: by bytes, or by what a device has left where not all of
 * them fit at full length. */
static void test_shared_cache(void **state) {
    (void)state;
    INSTALL(CPU, GPU(0));
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    mn_request r = ask("gpu");
    const uint64_t page = 4096 * N_LAYERS;
    r.n_seq = 1000;
    assert_int_equal(mn_negotiate_kv(NULL, graph, &r, &p, &err), MN_OK);
    only_on(&p, "gpu");
    assert_int_equal(p.kv_positions, 0); /* all at full length */
    assert_int_equal(p.segments[0].n_pages[0], 2000);
    const uint64_t rest = p.segments[0].need - p.segments[0].kv_bytes;
    mn_placement_free(&p);
    devices[1].info.mem_free = (rest + 100 * page) / 15 * 16 + (1 << 10);
    assert_int_equal(mn_negotiate_kv(NULL, graph, &r, &p, &err), MN_OK);
    only_on(&p, "gpu");
    assert_in_range(p.kv_positions, 64 * 98, 64 * 101);
    assert_in_range(p.segments[0].n_pages[0], 98, 101);
    assert_true(p.segments[0].need < devices[1].info.mem_free);
    mn_placement_free(&p);
    r.kv_bytes = 7 * page + 1;
    assert_int_equal(mn_negotiate_kv(NULL, graph, &r, &p, &err), MN_OK);
    assert_int_equal(p.kv_positions, 7 * 64);
    assert_int_equal(p.segments[0].kv_bytes, 7 * page);
    mn_placement_free(&p);
    r.kv_bytes = page - 1;
    assert_int_equal(mn_negotiate_kv(NULL, graph, &r, &p, &err), MN_OUT_OF_MEMORY);
    has_words(err.msg, "one batch of 4 positions");
}

static void test_claims(void **state) {
    (void)state;
    INSTALL(CPU, GPU(0), ORACLE);
    mn_placement p = negotiate("auto");
    assert_int_equal(offer_of(&p, "gpu")->rates.source, MN_RATES_CLAIMED);
    has_words(offer_of(&p, "gpu")->rates.note, "has no queue");
    assert_string_equal(offer_of(&p, "oracle")->rates.note, ""); /* nobody asks how fast it is */
    mn_placement_free(&p);
    p = negotiate("gpu"); /* nothing to decide */
    assert_string_equal(offer_of(&p, "gpu")->rates.note, "");
    mn_placement_free(&p);
}

/* No claim makes a device faster than the fastest memory that is known. */
static void test_claims_too_high(void **state) {
    (void)state;
    INSTALL({"boaster", MN_DEVICE_GPU, ALL_OPS, 0, 0, 0, 1e-15, "a", HONEST, 0, 1});
    devices[0].info.mem_gbps = 1e9;
    mn_placement p = negotiate("boaster");
    double bytes = 0;
    for (uint32_t i = 0; i < n_nodes; i++)
        bytes += mn_node_bytes(&graph->abi, i);
    const double least_us = bytes / MN_MOST_MEM_GBPS * 1e-3;
    assert_true(least_us > 1e-12);
    assert_float_equal(p.segments[0].decode_us, least_us, least_us * 1e-6);
    assert_true(p.segments[0].prefill_us >= least_us * 0.999999);
    mn_placement_free(&p);
    assert_true(mn_capped(1e9, MN_MOST_BUS_GBPS) == MN_MOST_BUS_GBPS);
    assert_true(mn_capped(20, MN_MOST_BUS_GBPS) == 20);
    assert_true(mn_capped(NAN, MN_MOST_BUS_GBPS) == 0);
}

/* 128 drawn ids count as much as the prompt of 512: a slow prompt is outweighed by quick ids, up to
 * 128 times what each of them saves. */
static void test_drawn_ids_outweigh_the_prompt(void **state) {
    (void)state;
    INSTALL({"quick", MN_DEVICE_GPU, ALL_OPS, 0, 0, 0, 1, "a", HONEST, 0, 300},
            {"steady", MN_DEVICE_GPU, ALL_OPS, 0, 0, 0, 5, "b", HONEST, 0, 2});
    mn_placement p = negotiate("auto");
    only_on(&p, "quick"); /* 128 + 300 < 128 * 5 + 10 */
    assert_float_equal(offer_of(&p, "quick")->score, (128 + 300) * n_nodes / 640.0, 1e-9);
    assert_float_equal(offer_of(&p, "steady")->score, (128 * 5 + 10) * n_nodes / 640.0, 1e-9);
    mn_placement_free(&p);
    list_[1].us_per_node = 3;
    p = negotiate("auto");
    only_on(&p, "steady"); /* 128 * 3 + 6 < 128 + 300 */
    mn_placement_free(&p);
}

static void test_oracle_last(void **state) {
    (void)state;
    INSTALL(ORACLE, CPU);
    mn_placement p = negotiate("auto");
    only_on(&p, "cpu");
    mn_placement_free(&p);
    devices[1].usable = false;
    /* words of the plugin's that are no quarantine */
    devices[1].reason = "lost: two and two make five";
    p = negotiate("auto");
    only_on(&p, "oracle");
    assert_true(p.fallback);
    has_words(p.why, "two and two make five");
    assert_int_equal(offer_of(&p, "cpu")->outcome, MN_OUTCOME_FAILED);
    mn_placement_free(&p);
    p = negotiate("oracle");
    assert_false(p.fallback);
    mn_placement_free(&p);
}

static void test_quarantine(void **state) {
    (void)state;
    INSTALL(GPU(0), CPU);
    mn_registry_quarantine(NULL, &devices[0], "");
    mn_placement p = negotiate("auto");
    only_on(&p, "cpu");
    assert_int_equal(offer_of(&p, "gpu")->outcome, MN_OUTCOME_QUARANTINED);
    mn_placement_free(&p);
    assert_int_equal(n_retries[0], 1);
    refused("gpu", MN_NO_DEVICE, "lost: it said so");
    p = negotiate("gpu,cpu");
    only_on(&p, "cpu");
    mn_placement_free(&p);
    assert_int_equal(n_retries[0], 3);
    p = negotiate("cpu"); /* not for those who do not ask for it */
    mn_placement_free(&p);
    assert_int_equal(n_retries[0], 3);
    assert_int_equal(n_retries[1], 0);
    assert_int_equal(n_in_use, 0);
}

/* ---- names ----------------------------------------------------------------------------------- */
static void test_names(void **state) {
    (void)state;
    INSTALL(GPU(0), CPU, VENDOR(1));
    mn_log_level(MN_LOG_ERROR);
    refused("nope", MN_NO_DEVICE, "there is no device \"nope\"; there are: gpu, cpu, vendor");
    refused("nope,gpu", MN_NO_DEVICE, "\"nope\"");
    mn_placement p = negotiate("nope,cpu");
    only_on(&p, "cpu");
    mn_placement_free(&p);
    p = negotiate("nope,auto");
    only_on(&p, "gpu");
    mn_placement_free(&p);
    p = negotiate("gpu,cpu"); /* the second has nothing left to take */
    only_on(&p, "gpu");
    assert_int_equal(offer_of(&p, "cpu")->outcome, MN_OUTCOME_SLOWER);
    mn_placement_free(&p);
    refused("vendor", MN_NO_DEVICE,
            "cannot run EMBED with f32 weights, ROPE with f32 weights, KV_STORE");
    records[3] = (mn_plugin_record){.path = (char *)(uintptr_t) "/plugins/broken.so",
                                    .kind = "",
                                    .status = MN_RECORD_CRASHED,
                                    .reason = (char *)(uintptr_t) "crashed: SIGILL in its entry"};
    n_extra = 1;
    refused("broken:0", MN_NO_DEVICE, "crashed: SIGILL in its entry");
}

/* ---- a part of the operations ---------------------------------------------------------------- */
static void test_part_by_list(void **state) {
    (void)state;
    INSTALL(CPU, VENDOR(1000));
    mn_placement p = negotiate("vendor,cpu");
    check(&p);
    assert_int_equal(p.n_segments, 2 + 3 * N_LAYERS + N_LAYERS + 1);
    for (uint32_t i = 0; i < n_nodes; i++) {
        bool its = nodes[i].op == MN_OP_RMS_NORM || nodes[i].op == MN_OP_LINEAR;
        assert_string_equal(at_node(&p, i), its ? "vendor" : "cpu");
    }
    assert_string_equal(p.offers[p.chosen].record->name, "vendor"); /* all weights are there */
    assert_true(p.n_copies > 4 * N_LAYERS);
    has_words(p.why, "vendor RMS_NORM, LINEAR, cpu the rest: named by the user");
    mn_placement_free(&p);
}

static void test_part_under_auto(void **state) {
    (void)state;
    INSTALL(CPU, VENDOR(1000));
    mn_placement p = negotiate("auto");
    only_on(&p, "cpu");
    const mn_offer *v = offer_of(&p, "vendor");
    assert_int_equal(v->outcome, MN_OUTCOME_PARTIAL);
    assert_true(v->trial.result && v->trial.score > p.score && v->trial.n_copies > 4 * N_LAYERS);
    has_words(v->trial.reason, "us per token");
    has_words(v->trial.reason, "cpu alone takes");
    mn_placement_free(&p);
    /* Where the CPU is slow enough, the copies are worth it. */
    list_[0].us_per_node = 1e6, list_[1].us_per_node = 1;
    p = negotiate("auto");
    check(&p);
    assert_true(p.n_segments > 1);
    assert_int_equal(offer_of(&p, "vendor")->outcome, MN_OUTCOME_CHOSEN);
    assert_true(p.score < offer_of(&p, "cpu")->score);
    mn_placement_free(&p);
    /* Nobody can do all, but two can together: without asking what it costs. */
    list_[0].ops = ~(OP(LINEAR) | OP(RMS_NORM)), list_[0].us_per_node = 1,
    list_[1].us_per_node = 1000;
    p = negotiate("auto");
    check(&p);
    assert_true(p.n_segments > 1);
    mn_placement_free(&p);
    list_[0].ops &= ~OP(ADD);
    refused("auto", MN_NO_DEVICE, "ADD");
    refused("vendor,cpu", MN_NO_DEVICE, "none of the devices can run ADD");
}

/* ATTENTION without KV_STORE is of no use, nor EMBED without SAMPLE. */
static void test_what_stays_together(void **state) {
    (void)state;
    INSTALL(CPU, {"half", MN_DEVICE_NPU, OP(ATTENTION) | OP(EMBED) | OP(LINEAR), 0, 0, 0, 1, "npu",
                  HONEST, 0, 10});
    mn_placement p = negotiate("half,cpu");
    check(&p);
    for (uint32_t i = 0; i < n_nodes; i++)
        assert_string_equal(at_node(&p, i), nodes[i].op == MN_OP_LINEAR ? "half" : "cpu");
    mn_placement_free(&p);
}

static void test_old_contract(void **state) {
    (void)state;
    INSTALL(CPU, {"old", MN_DEVICE_GPU, ALL_OPS & ~OP(ROPE), OP(ROPE), 0, 0, 1, "o", HONEST, 0, 10},
            {"older", MN_DEVICE_GPU, 0, ALL_OPS, 0, 0, 1, "p", HONEST, 0, 10});
    mn_placement p = negotiate("auto");
    has_words(offer_of(&p, "old")->reason,
              "ROPE with f32 weights: newer than the plugin's contract");
    assert_int_equal(offer_of(&p, "old")->n_can, n_nodes - N_LAYERS);
    assert_int_equal(offer_of(&p, "older")->outcome, MN_OUTCOME_UNSUPPORTED);
    assert_int_equal(list_[2].n_supports, 0); /* a no without a call */
    assert_int_equal(list_[1].n_supports, 1);
    mn_placement_free(&p);
}

/* Of a node's weights any may be why it is refused: all their types are named, and the tensor of a
 * type that its like do not have. */
static void test_types_of_all_weights(void **state) {
    (void)state;
    INSTALL(CPU, {"vendor", MN_DEVICE_GPU, ALL_OPS, 0, 0, 0, 1, "v", NO_F64, 0, 10});
    int32_t *bias[2] = {NULL};
    for (uint32_t i = 0, n = 0; i < n_nodes && n < 2; i++)
        if (nodes[i].op == MN_OP_LINEAR)
            bias[n++] = &operands[nodes[i].in_off + MN_LINEAR_WEIGHT + 1];
    *bias[0] = *bias[1] = f64_bias;
    mn_placement p = negotiate("auto");
    assert_string_equal(offer_of(&p, "vendor")->reason,
                        "cannot run LINEAR with f32, f64 weights (t is f64)");
    assert_int_equal(offer_of(&p, "vendor")->n_can, n_nodes - 2);
    mn_placement_free(&p);
    *bias[0] = *bias[1] = -1;
}

/* ---- memory ---------------------------------------------------------------------------------- */
enum { LAYER = 2 * D * D * 4 + 2 * 4096, HEAD = V * D * 4, SPARE = 128 << 10 };

static void test_layers_over_two(void **state) {
    (void)state;
    INSTALL(CPU, GPU(5 * LAYER + HEAD + SPARE));
    list_[0].us_per_node = 100;
    mn_placement p = negotiate("auto");
    check(&p);
    /* front and end with the first layers: EMBED and SAMPLE share the slots */
    assert_int_equal(p.n_segments, 3);
    for (uint32_t i = 0; i < n_nodes; i++)
        assert_string_equal(at_node(&p, i), nodes[i].layer >= 5 ? "cpu" : "gpu");
    assert_int_equal(p.segments[1].kv_bytes, 2 * 4096 * 3);
    /* what crosses, for a batch of 4: rows of D and their positions, on both sides */
    assert_int_equal(p.segments[0].boundary_bytes, 4 * D * 4 + 4 * 4);
    assert_int_equal(p.segments[1].boundary_bytes, 2 * 4 * D * 4 + 4 * 4);
    assert_int_equal(p.segments[2].boundary_bytes, 4 * D * 4);
    assert_int_equal(p.n_copies, 3); /* the residual there and back, positions there */
    has_words(p.why, "gpu layers 0-4, cpu the rest: 0.0 GiB would be needed, 0.0 are free");
    assert_string_equal(p.offers[p.chosen].record->name, "gpu");
    mn_placement_free(&p);
    p = negotiate("gpu,cpu");
    check(&p);
    assert_int_equal(p.n_segments, 3);
    mn_placement_free(&p);
    refused("gpu", MN_OUT_OF_MEMORY, "gpu: needs");
    /* A CPU that is as fast does it alone. */
    list_[0].us_per_node = 1, list_[1].us_per_node = 0.99;
    p = negotiate("auto");
    only_on(&p, "cpu");
    assert_int_equal(offer_of(&p, "gpu")->outcome, MN_OUTCOME_OUT_OF_MEMORY);
    assert_true(offer_of(&p, "gpu")->trial.result);
    mn_placement_free(&p);
}

/* The number of layers that the memory holds: to the byte. */
static void test_layers_that_just_fit(void **state) {
    (void)state;
    INSTALL(CPU, GPU(5 * LAYER + HEAD + SPARE));
    mn_placement p = negotiate("gpu,cpu");
    uint64_t need = 0;
    for (uint32_t k = 0; k < p.n_segments; k++)
        need += p.segments[k].offer == p.chosen ? p.segments[k].need : 0;
    mn_placement_free(&p);
    for (uint32_t less = 0; less < 2; less++) {
        devices[1].info.mem_free = need - less;
        p = negotiate("gpu,cpu");
        check(&p);
        for (uint32_t i = 0; i < n_nodes; i++)
            assert_string_equal(at_node(&p, i), nodes[i].layer >= (less ? 4 : 5) ? "cpu" : "gpu");
        mn_placement_free(&p);
    }
}

/* A split is worth its trouble from a tenth on: rates are those of a busy machine. */
static void test_split_gains(void **state) {
    (void)state;
    INSTALL(CPU, GPU(5 * LAYER + HEAD + SPARE));
    list_[0].us_per_node = 100;
    list_[1].us_per_node = 91;
    mn_placement p = negotiate("auto");
    only_on(&p, "cpu"); /* 45 of 69 nodes gain 9 us each: 6 of 100 */
    mn_placement_free(&p);
    list_[1].us_per_node = 80;
    p = negotiate("auto");
    assert_int_equal(p.n_segments, 3); /* 13 of 100 */
    mn_placement_free(&p);
}

/* Layers go to the CPU last, however fast it is: it has other things to do. */
static void test_cpu_takes_the_rest(void **state) {
    (void)state;
    INSTALL(CPU, GPU(5 * LAYER + HEAD + SPARE));
    list_[0].us_per_node = 0.5;
    devices[0].info.mem_free = 5 * LAYER + HEAD + SPARE;
    mn_placement p = negotiate("auto");
    check(&p);
    for (uint32_t i = 0; i < n_nodes; i++)
        assert_string_equal(at_node(&p, i), nodes[i].layer >= 5 ? "cpu" : "gpu");
    mn_placement_free(&p);
}

static void test_three_and_a_pool(void **state) {
    (void)state;
    INSTALL(GPU(4 * LAYER + HEAD + SPARE),
            {"gpu2", MN_DEVICE_GPU, ALL_OPS, 0, 0, 3 * LAYER + SPARE, 2, "gpu1", HONEST, 0, 10},
            CPU);
    list_[2].us_per_node = 1000;
    mn_placement p = negotiate("auto");
    check(&p);
    for (uint32_t i = 0; i < n_nodes; i++)
        assert_string_equal(at_node(&p, i), nodes[i].layer < 4   ? "gpu"
                                            : nodes[i].layer < 7 ? "gpu2"
                                                                 : "cpu");
    mn_placement_free(&p);
    /* The same two on one memory have it once. */
    snprintf(devices[1].info.mem_pool, sizeof devices[1].info.mem_pool, "gpu0");
    devices[1].info.mem_free = devices[0].info.mem_free;
    p = negotiate("auto");
    check(&p);
    for (uint32_t i = 0; i < n_nodes; i++)
        assert_true(strcmp(at_node(&p, i), "gpu2") != 0);
    mn_placement_free(&p);
}

/* One card by two plugins: the one that claims more takes part, unless the user names the other. */
static void test_same_card(void **state) {
    (void)state;
    INSTALL({"open", MN_DEVICE_GPU, ALL_OPS, 0, 0, 0, 0.5, "gpu0", HONEST, 0, 10},
            GPU(3 * LAYER + SPARE), CPU);
    snprintf(devices[0].info.uid, sizeof devices[0].info.uid, "pci-0000:00:06");
    snprintf(devices[1].info.uid, sizeof devices[1].info.uid, "pci-0000:00:06");
    devices[1].info.mem_gbps = 4800;
    mn_placement p = negotiate("auto"); /* memory for three layers is no reason to open it twice */
    check(&p);
    assert_int_equal(offer_of(&p, "open")->outcome, MN_OUTCOME_SAME_CARD);
    assert_int_equal(offer_of(&p, "open")->rates.source, MN_RATES_NONE);
    assert_string_equal(at_node(&p, 1), "gpu");
    mn_placement_free(&p);
    p = negotiate("open");
    only_on(&p, "open");
    mn_placement_free(&p);
    p = negotiate("open,gpu");
    only_on(&p, "open");
    mn_placement_free(&p);
    devices[1].usable = false; /* then the other one has the card */
    fakes[1].ops = 0;
    p = negotiate("auto");
    only_on(&p, "open");
    mn_placement_free(&p);
    fakes[1].ops = ALL_OPS;
    devices[1].usable = true;
    devices[1].info.mem_gbps = 0; /* of equal claims the first counts */
    devices[1].info.mem_free = 0;
    p = negotiate("auto");
    only_on(&p, "open");
    assert_int_equal(offer_of(&p, "gpu")->outcome, MN_OUTCOME_SAME_CARD);
    mn_placement_free(&p);
}

static void test_share(void **state) {
    (void)state;
    INSTALL(CPU, GPU(LAYER + SPARE / 2)); /* one layer of eight and the output: under a tenth */
    list_[0].us_per_node = 100;
    mn_placement p = negotiate("auto");
    only_on(&p, "cpu");
    assert_int_equal(offer_of(&p, "gpu")->outcome, MN_OUTCOME_LEFT_OUT);
    has_words(offer_of(&p, "gpu")->trial.reason, "share of the work would be");
    mn_placement_free(&p);
    p = negotiate("gpu,cpu"); /* what the user names, the user gets */
    check(&p);
    assert_true(p.n_segments > 1);
    mn_placement_free(&p);
    devices[1].info.mem_free = 1;
    refused("gpu,vendor", MN_NO_DEVICE, "vendor");
    p = negotiate("gpu,cpu");
    only_on(&p, "cpu");
    mn_placement_free(&p);
}

/* ---- weights that stay in their file --------------------------------------------------------- */
static char logged[1024];
static void keep(void *arg, int32_t level, const char *msg) {
    (void)arg, (void)level;
    snprintf(logged, sizeof logged, "%s", msg);
}

static const char *warned_of(uint64_t mem_free) {
    INSTALL(CPU);
    list_[0].lies = IN_PLACE;
    devices[0].info.mem_free = mem_free;
    logged[0] = 0;
    mn_log_level(MN_LOG_WARN);
    mn_log_to(keep, NULL);
    mn_placement p = negotiate("cpu");
    mn_log_to(NULL, NULL);
    only_on(&p, "cpu");
    mn_placement_free(&p);
    return logged;
}

static void test_weights_in_their_file(void **state) {
    const uint64_t weights = 4ull * D * (2 * D * N_LAYERS + V), rest = SPARE;
    (void)state;
    assert_string_equal(warned_of(0), ""); /* it does not say how much there is */
    assert_string_equal(warned_of(weights + rest), "");
    has_words(warned_of(weights / 2), "cpu uses 0.01 GiB of weights where they lie in their file");
}

static void test_words(void **state) {
    (void)state;
    INSTALL(GPU(1000), VENDOR(1),
            {"none", MN_DEVICE_NPU, OP(MOE_ROUTE), 0, 0, 0, 1, "n", HONEST, 0, 10});
    refused("gpu", MN_OUT_OF_MEMORY, "gpu: needs");
    refused("none", MN_NO_DEVICE, "cannot run EMBED");
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    mn_request r = ask("auto");
    r.flags = MN_REQUEST_EXPLAIN;
    assert_int_equal(mn_negotiate(NULL, graph, &r, &p, &err), MN_NO_DEVICE);
    assert_int_equal(offer_of(&p, "gpu")->outcome, MN_OUTCOME_OUT_OF_MEMORY);
    assert_int_equal(offer_of(&p, "vendor")->outcome, MN_OUTCOME_PARTIAL);
    assert_int_equal(offer_of(&p, "none")->outcome, MN_OUTCOME_UNSUPPORTED);
    assert_int_equal(p.n_segments, 0);
    mn_placement_free(&p);
}

/* ---- claims that cannot be true -------------------------------------------------------------- */
static void test_lies(void **state) {
    (void)state;
    static const struct {
        lie lies;
        mn_outcome outcome;
        const char *reason;
    } cases[] = {{BAD_VERDICT, MN_OUTCOME_LEFT_OUT, "the plugin gave no valid verdict"},
                 {NO_CLASS, MN_OUTCOME_UNSUPPORTED, "states no precision class"},
                 {ABSURD, MN_OUTCOME_UNSUPPORTED, "absurd"},
                 {NO_PAGES, MN_OUTCOME_UNSUPPORTED, "KV pages"},
                 {LOST, MN_OUTCOME_QUARANTINED, "fell off the bus"},
                 {NO_TABLE, MN_OUTCOME_UNSUPPORTED, "cannot list the operations"},
                 {COARSE, MN_OUTCOME_UNSUPPORTED, "coarser"}};
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        INSTALL(CPU, GPU(0));
        list_[1].lies = cases[i].lies;
        mn_placement p;
        mn_error err = MN_ERROR_INIT;
        mn_request r = ask("auto");
        r.precision = MN_PRECISION_EXACT;
        assert_int_equal(mn_negotiate(NULL, graph, &r, &p, &err), MN_OK);
        only_on(&p, "cpu");
        const mn_offer *o = offer_of(&p, "gpu");
        if (o->outcome != cases[i].outcome || !strstr(o->reason, cases[i].reason))
            fail_msg("case %zu: %s: %s", i, mn_outcome_name(o->outcome), o->reason);
        mn_placement_free(&p);
    }
    INSTALL(CPU, GPU(0));
    /* unknown, not infinitely fast; the bytes at an assumed rate stand in */
    list_[1].lies = NOT_A_NUMBER;
    mn_placement p = negotiate("auto");
    assert_true(offer_of(&p, "gpu")->score > 0 && offer_of(&p, "gpu")->score < 1e12);
    assert_int_equal(offer_of(&p, "gpu")->estimate.row_grain, 0);
    mn_placement_free(&p);
}

/* ---- the record ------------------------------------------------------------------------------ */
static char *explained(const char *list, mn_status *status) {
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    mn_request r = ask(list);
    mn_text text = {0};
    r.flags = MN_REQUEST_EXPLAIN;
    n_questions = 0;
    *status = mn_negotiate(NULL, graph, &r, &p, &err);
    check_questions();
    mn_text_puts(&text, "{");
    mn_placement_explain(&p, NULL, graph, &r, &err, &text);
    mn_text_puts(&text, "}");
    mn_placement_free(&p);
    if (text.failed)
        mn_text_free(&text);
    return text.ptr;
}
static const char *member(const cJSON *o, const char *key) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key));
}
static const cJSON *candidate(const cJSON *record, const char *path) {
    const cJSON *c;
    cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(
                              record, "candidates")) if (!strcmp(member(c, "path"), path)) return c;
    fail_msg("no candidate %s", path);
    return NULL;
}
static const cJSON *step_of(const cJSON *c, const char *name) {
    const cJSON *s;
    cJSON_ArrayForEach(s, cJSON_GetObjectItemCaseSensitive(
                              c, "steps")) if (!strcmp(member(s, "step"), name)) return s;
    fail_msg("no step %s", name);
    return NULL;
}

static void test_record(void **state) {
    (void)state;
    INSTALL(CPU, VENDOR(1000), ORACLE);
    static const char *const bad[][2] = {{"crashed", "crashed: \"SIGSEGV\"\nwhile listing devices"},
                                         {"hung", "hung for 10 s"}};
    for (int i = 0; i < 2; i++)
        records[3 + i] = (mn_plugin_record){
            .path = (char *)(uintptr_t)(i ? "/plugins/hung.so" : "/plugins/crashed.so"),
            .kind = "",
            .status = mn_record_status_of(mn_str_of(bad[i][0])),
            .reason = (char *)(uintptr_t)bad[i][1]};
    n_extra = 2;
    mn_status st;
    char *once = explained("vendor,cpu", &st), *twice = explained("vendor,cpu", &st);
    assert_int_equal(st, MN_OK);
    assert_string_equal(once, twice);
    cJSON *record = cJSON_Parse(once);
    assert_non_null(record);
    assert_true(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(record, "error")));
    assert_string_equal(member(candidate(record, "/plugins/crashed.so"), "outcome"), "crashed");
    assert_string_equal(member(candidate(record, "/plugins/crashed.so"), "reason"), bad[0][1]);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(
        step_of(candidate(record, "/plugins/hung.so"), "probe"), "ok")));
    const cJSON *vendor = candidate(record, "/plugins/vendor.so");
    assert_string_equal(member(vendor, "outcome"), "chosen");
    /* why auto would not have taken it */
    has_words(member(step_of(vendor, "split"), "text"), "us per token");
    assert_int_equal(
        cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(step_of(vendor, "verdicts"), "ops")),
        10);
    assert_string_equal(member(candidate(record, "/plugins/oracle.so"), "outcome"), "oracle");
    const cJSON *segments = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(record, "placement"), "segments");
    assert_int_equal(cJSON_GetArraySize(segments), 3 + 4 * N_LAYERS);
    cJSON_Delete(record);
    mn_free(once);
    mn_free(twice);
    once = explained("nope", &st);
    record = cJSON_Parse(once);
    assert_int_equal(st, MN_NO_DEVICE);
    assert_true(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(record, "placement")));
    has_words(member(cJSON_GetObjectItemCaseSensitive(record, "error"), "message"), "nope");
    assert_string_equal(member(cJSON_GetObjectItemCaseSensitive(record, "error"), "status"),
                        "no device");
    assert_string_equal(member(candidate(record, "/plugins/cpu.so"), "outcome"), "not named");
    cJSON_Delete(record);
    mn_free(once);
}

/* Memory of the host that runs out anywhere is an error, and leaks nothing (under ASan). */
static void test_no_memory(void **state) {
    (void)state;
    static const char *const lists[] = {"auto", "vendor,cpu", "gpu,cpu", "nope,cpu", "nope"};
    INSTALL(CPU, GPU(3 * LAYER + HEAD + SPARE), VENDOR(1000), ORACLE);
    mn_log_level(MN_LOG_ERROR - 1);
    for (size_t i = 0; i < MN_COUNT(lists); i++)
        for (int64_t k = 1, done = 0; !done; k++) {
            mn_status st;
            mn_alloc_fail_after(k);
            char *text = explained(lists[i], &st);
            mn_alloc_fail_after(-1);
            done = text && st != MN_OUT_OF_MEMORY;
            mn_free(text);
            assert_true(k < 100000);
        }
    mn_log_level(MN_LOG_WARN);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_is_enough),
                                       cmocka_unit_test(test_drawn_ids_outweigh_the_prompt),
                                       cmocka_unit_test(test_pages_of_windows),
                                       cmocka_unit_test(test_claims),
                                       cmocka_unit_test(test_claims_too_high),
                                       cmocka_unit_test(test_oracle_last),
                                       cmocka_unit_test(test_quarantine),
                                       cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_part_by_list),
                                       cmocka_unit_test(test_part_under_auto),
                                       cmocka_unit_test(test_what_stays_together),
                                       cmocka_unit_test(test_old_contract),
                                       cmocka_unit_test(test_types_of_all_weights),
                                       cmocka_unit_test(test_layers_over_two),
                                       cmocka_unit_test(test_layers_that_just_fit),
                                       cmocka_unit_test(test_split_gains),
                                       cmocka_unit_test(test_cpu_takes_the_rest),
                                       cmocka_unit_test(test_three_and_a_pool),
                                       cmocka_unit_test(test_same_card),
                                       cmocka_unit_test(test_share),
                                       cmocka_unit_test(test_weights_in_their_file),
                                       cmocka_unit_test(test_words),
                                       cmocka_unit_test(test_lies),
                                       cmocka_unit_test(test_shared_cache),
                                       cmocka_unit_test(test_record),
                                       cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, build, NULL);
}
