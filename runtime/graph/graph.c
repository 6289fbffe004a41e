/* graph.c -- appends tensors and nodes, and what every graph begins and ends with. */
#include "graph/build.h"
#include <stdio.h>
#include <string.h>

bool mn_gb_fail(mn_model_graph *g, mn_status st) {
    if (!g->status)
        g->status = st;
    return false;
}

bool mn_gb_no_memory(mn_model_graph *g) {
    return mn_gb_fail(g, mn_fail_memory(g->err, 64));
}

int32_t mn_gb_tensor(mn_model_graph *g, const char *name, uint32_t role, uint32_t dtype,
                     uint32_t n_dim, const int64_t *dim) {
    if (g->status)
        return -1;
    mn_tensor t = {.role = role, .n_dim = n_dim, .alias_of = -1};
    char *copy = mn_arena_strndup(&g->arena, name, strlen(name));
    if (!copy ||
        !mn_grow((void **)&g->abi.tensors, &g->cap_tensors, g->abi.n_tensors + 1u, sizeof t))
        return mn_gb_no_memory(g), -1;
    t.name = mn_str_of(copy);
    mn_dtype_by_id(dtype, &t.dtype);
    for (uint32_t i = 0; i < n_dim; i++)
        t.dim[i] = dim[i];
    ((mn_tensor *)(uintptr_t)g->abi.tensors)[g->abi.n_tensors] = t;
    return (int32_t)g->abi.n_tensors++;
}

int32_t mn_gb_interior(mn_model_graph *g, const char *name, int layer, int64_t rows, int64_t a,
                       int64_t b) {
    char full[64];
    snprintf(full, sizeof full, layer < 0 ? "%s" : "%s.%d", name, layer);
    return mn_gb_tensor(g, full, MN_ROLE_INTERIOR, MN_F32, b ? 3 : 2, (int64_t[]){rows, a, b});
}

static bool push_operands(mn_model_graph *g, const int32_t *ids, uint32_t n) {
    if (!mn_grow((void **)&g->abi.operands, &g->cap_operands, g->abi.n_operands + n, sizeof *ids))
        return mn_gb_no_memory(g);
    if (n)
        memcpy((int32_t *)(uintptr_t)g->abi.operands + g->abi.n_operands, ids, n * sizeof *ids);
    g->abi.n_operands += n;
    return true;
}

uint64_t mn_gb_f64(double d) {
    uint64_t bits;
    memcpy(&bits, &d, sizeof bits);
    return bits;
}

/* The lowest contract that describes a node: builders use what later ones add only where they must. */
static uint32_t contract_of(uint32_t op, const uint64_t *attr, uint32_t n_attr) {
    if (op == MN_OP_ATTENTION)
        return n_attr > MN_ATTENTION_ATTR_BIDIRECTIONAL && attr[MN_ATTENTION_ATTR_BIDIRECTIONAL]
                   ? 2
                   : 1;
    return mn_op_find(op)->contract;
}

void mn_gb_node(mn_model_graph *g, uint32_t op, int layer, const int32_t *in, uint32_t n_in,
                const int32_t *out, uint32_t n_out, const uint64_t *attr, uint32_t n_attr) {
    if (g->status)
        return;
    mn_node n = {.op = op,
                 .contract = contract_of(op, attr, n_attr),
                 .n_in = n_in,
                 .n_out = n_out,
                 .n_attr = n_attr,
                 .layer = layer};
    n.in_off = g->abi.n_operands;
    if (!push_operands(g, in, n_in))
        return;
    n.out_off = g->abi.n_operands;
    if (!push_operands(g, out, n_out))
        return;
    n.attr_off = (uint32_t)g->abi.n_attrs;
    if (!mn_grow((void **)&g->abi.attrs, &g->cap_attrs, g->abi.n_attrs + n_attr, sizeof *attr) ||
        !mn_grow((void **)&g->abi.nodes, &g->cap_nodes, g->abi.n_nodes + 1u, sizeof n)) {
        mn_gb_no_memory(g);
        return;
    }
    if (n_attr)
        memcpy((uint64_t *)(uintptr_t)g->abi.attrs + g->abi.n_attrs, attr, n_attr * sizeof *attr);
    g->abi.n_attrs += n_attr;
    ((mn_node *)(uintptr_t)g->abi.nodes)[g->abi.n_nodes++] = n;
}

int32_t mn_gb_weight(mn_model_graph *g, const char *name, uint32_t dtype, uint32_t n_dim,
                     const int64_t *dim, mn_graph_weight w) {
    w.tensor = mn_gb_tensor(g, name, MN_ROLE_WEIGHT, dtype, n_dim, dim);
    if (w.tensor < 0)
        return -1;
    if (!mn_grow((void **)&g->weights, &g->cap_weights, g->n_weights + 1u, sizeof w))
        return mn_gb_no_memory(g), -1;
    g->weights[g->n_weights++] = w;
    return w.tensor;
}

/* ---- before and after the architecture's own part -------------------------------------------- */
static void set_symbols(mn_model_graph *g) {
    static const struct {
        const char *name;
        uint32_t kind;
        int64_t min;
        int64_t typical;
    } rows[MN_SYM_COUNT] = {[MN_SYM_TOKENS] = {"n_tokens", MN_SYMBOL_SHAPE, 1, 1},
                            [MN_SYM_OUTPUTS] = {"n_outputs", MN_SYMBOL_SHAPE, 0, 1},
                            [MN_SYM_SEQS] = {"n_seqs", MN_SYMBOL_SHAPE, 1, 1},
                            [MN_SYM_SLOTS] = {"n_slots", MN_SYMBOL_BOUND, 1, 1},
                            [MN_SYM_PAGES] = {"n_pages", MN_SYMBOL_BOUND, 1, 32},
                            [MN_SYM_CTX] = {"n_ctx", MN_SYMBOL_BOUND, 1, 2048},
                            [MN_SYM_SEQ_ROWS] = {"seq_rows", MN_SYMBOL_FACT, 1, 1}};
    mn_symbol *s = mn_arena_alloc(&g->arena, MN_SYM_COUNT, sizeof *s);
    if (!s) {
        mn_gb_no_memory(g);
        return;
    }
    for (int i = 0; i < MN_SYM_COUNT; i++) {
        s[i] = (mn_symbol){.min = rows[i].min,
                           .max = INT32_MAX,
                           .typical = rows[i].typical,
                           .kind = rows[i].kind,
                           .base = -1,
                           .mul = 1};
        snprintf(s[i].name, sizeof s[i].name, "%s", rows[i].name);
    }
    g->abi.symbols = s;
    g->abi.n_symbols = MN_SYM_COUNT;
}

static void add_io(mn_model_graph *g) {
    const int64_t T = MN_DIM(MN_SYM_TOKENS);
    const int64_t O = MN_DIM(MN_SYM_OUTPUTS);
    const int64_t Q = MN_DIM(MN_SYM_SEQS);
    const int64_t S = MN_DIM(MN_SYM_SLOTS);
    /* P: of the group that needs most */
    const int64_t P = MN_DIM(MN_SYM_PAGES);
    const int64_t C = MN_DIM(MN_SYM_CTX);
    const int64_t slot = (int64_t)(sizeof(mn_slot) / 4);
    const int64_t params = (int64_t)(sizeof(mn_slot_params) / 4);
    mn_graph_io *io = &g->io;
    io->step = mn_gb_tensor(g, "step", MN_ROLE_INPUT, MN_I32, 1, (int64_t[]){MN_STEP_WORDS});
    io->src = mn_gb_tensor(g, "src", MN_ROLE_INPUT, MN_I32, 1, &T);
    io->pos = mn_gb_tensor(g, "pos", MN_ROLE_INPUT, MN_I32, 1, &T);
    io->row_slot = mn_gb_tensor(g, "row_slot", MN_ROLE_INPUT, MN_I32, 1, &T);
    io->seqs = mn_gb_tensor(g, "seqs", MN_ROLE_INPUT, MN_I32, 2, (int64_t[]){Q, 4});
    io->pages[0] = mn_gb_tensor(g, "pages", MN_ROLE_INPUT, MN_I32, 2, (int64_t[]){S, P});
    io->out_row = mn_gb_tensor(g, "out_row", MN_ROLE_INPUT, MN_I32, 1, &O);
    io->out_slot = mn_gb_tensor(g, "out_slot", MN_ROLE_INPUT, MN_I32, 1, &O);
    io->slots = mn_gb_tensor(g, "slots", MN_ROLE_STATE, MN_I32, 2, (int64_t[]){S, slot});
    io->history = mn_gb_tensor(g, "history", MN_ROLE_STATE, MN_I32, 2, (int64_t[]){S, C});
    io->params = mn_gb_tensor(g, "params", MN_ROLE_STATE, MN_I32, 2, (int64_t[]){S, params});
    /* pages: their size is the plugin's */
    io->kv[0] = mn_gb_tensor(g, "kv.0", MN_ROLE_STATE, MN_U8, 1, (int64_t[]){1});
    for (uint32_t i = 1; i < g->hp.n_kv; i++) {
        char name[32];
        snprintf(name, sizeof name, "pages.%u", i);
        io->pages[i] = mn_gb_tensor(g, name, MN_ROLE_INPUT, MN_I32, 2, (int64_t[]){S, P});
        snprintf(name, sizeof name, "kv.%u", i);
        io->kv[i] = mn_gb_tensor(g, name, MN_ROLE_STATE, MN_U8, 1, (int64_t[]){1});
    }
}

static uint64_t digest_part(const mn_graph *a, uint64_t seed) {
    uint64_t h = mn_hash(a->nodes, a->n_nodes * sizeof *a->nodes, seed);
    h = mn_hash(a->operands, a->n_operands * sizeof *a->operands, h);
    h = mn_hash(a->attrs, a->n_attrs * sizeof *a->attrs, h);
    for (uint32_t i = 0; i < a->n_tensors; i++) {
        h = mn_hash(&a->tensors[i].dtype, sizeof a->tensors[i].dtype, h);
        h = mn_hash(a->tensors[i].dim, sizeof a->tensors[i].dim, h);
    }
    return h;
}

static mn_status finish(mn_model_graph *g) {
    mn_graph *a = &g->abi;
    a->size = sizeof *a;
    a->node_stride = sizeof(mn_node);
    a->tensor_stride = sizeof(mn_tensor);
    a->symbol_stride = sizeof(mn_symbol);
    a->step = g->io.step;
    if (g->status)
        return g->status;
    for (uint64_t i = 0; i < 4; i++)
        a->digest[i] = digest_part(a, i + 1);
    return mn_graph_check(a, g->err);
}

static mn_status unknown_arch(const mn_canonical *m, const char *arch, mn_error *err) {
    mn_text known = {0};
    mn_arch_list(&known);
    mn_status st = mn_fail(err, MN_UNSUPPORTED, "%s: general.architecture is \"%s\"; known: %s",
                           m->path, arch, known.ptr ? known.ptr : "");
    mn_text_free(&known);
    return st;
}

mn_status mn_model_graph_build(const mn_canonical *m, uint32_t n_ctx, mn_model_graph **out,
                               mn_error *err) {
    mn_str name;
    char arch_name[64] = "";
    if (mn_meta_str(&m->meta, "general.architecture", &name, NULL) == MN_OK &&
        name.len < sizeof arch_name)
        memcpy(arch_name, name.ptr, name.len);
    const mn_arch *arch = mn_arch_find(arch_name);
    if (arch_name[0] && !arch)
        return unknown_arch(m, arch_name, err);
    mn_model_graph *g = mn_calloc(1, sizeof *g);
    if (!g)
        return mn_fail_memory(err, sizeof *g);
    g->model = m;
    g->err = err;
    g->row_pos = -1;
    for (size_t i = 0; i < MN_COUNT(g->freqs); i++)
        g->freqs[i] = -1;
    g->n_ctx = n_ctx;
    g->asked = mn_arena_alloc(&g->arena, m->n_tensors + 1, 1);
    g->status =
        g->asked ? mn_hparams_read(m, &g->arena, &g->hp, err) : mn_fail_memory(err, m->n_tensors);
    if (!g->status) {
        set_symbols(g);
        add_io(g);
        mn_gb_freqs(g);
    }
    if (!g->status)
        arch->build(g);
    if (!g->status)
        mn_gb_check_biases(g);
    mn_status st = finish(g);
    g->err = NULL;
    if (st)
        mn_model_graph_free(g);
    else
        *out = g;
    return st;
}

void mn_model_graph_free(mn_model_graph *g) {
    if (!g)
        return;
    mn_free((void *)(uintptr_t)g->abi.nodes);
    mn_free((void *)(uintptr_t)g->abi.tensors);
    mn_free((void *)(uintptr_t)g->abi.operands);
    mn_free((void *)(uintptr_t)g->abi.attrs);
    mn_free(g->weights);
    mn_arena_free(&g->arena);
    mn_free(g);
}
