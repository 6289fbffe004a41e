/* graph.c -- appends nodes and tensors; one function per op. */
#include "graph/graph.h"
#include <stdio.h>
#include <string.h>

static bool fail(mn_model_graph *g, mn_status st) {
    if (!g->status) g->status = st;
    return false;
}

static bool no_memory(mn_model_graph *g) { return fail(g, mn_fail_memory(g->err, 64)); }

static int32_t add_tensor(mn_model_graph *g, const char *name, uint32_t role, uint32_t dtype, uint32_t n_dim,
                          const int64_t *dim) {
    if (g->status) return -1;
    mn_tensor t = {.role = role, .n_dim = n_dim, .alias_of = -1};
    char *copy = mn_arena_strndup(&g->arena, name, strlen(name));
    if (!copy || !mn_grow((void **)&g->abi.tensors, &g->cap_tensors, g->abi.n_tensors + 1u, sizeof t))
        return no_memory(g), -1;
    t.name = mn_str_of(copy);
    mn_dtype_by_id(dtype, &t.dtype);
    for (uint32_t i = 0; i < n_dim; i++) t.dim[i] = dim[i];
    ((mn_tensor *)(uintptr_t)g->abi.tensors)[g->abi.n_tensors] = t;
    return (int32_t)g->abi.n_tensors++;
}

/* An interior f32 tensor [rows, a] or [rows, a, b]. */
static int32_t interior(mn_model_graph *g, const char *name, int layer, int64_t rows, int64_t a, int64_t b) {
    char full[64];
    snprintf(full, sizeof full, layer < 0 ? "%s" : "%s.%d", name, layer);
    return add_tensor(g, full, MN_ROLE_INTERIOR, MN_F32, b ? 3 : 2, (int64_t[]){rows, a, b});
}

static const mn_tensor *tensor(const mn_model_graph *g, int32_t t) { return &g->abi.tensors[t]; }

static bool push_operands(mn_model_graph *g, const int32_t *ids, uint32_t n) {
    if (!mn_grow((void **)&g->abi.operands, &g->cap_operands, g->abi.n_operands + n, sizeof *ids)) return no_memory(g);
    if (n) memcpy((int32_t *)(uintptr_t)g->abi.operands + g->abi.n_operands, ids, n * sizeof *ids);
    g->abi.n_operands += n;
    return true;
}

static uint64_t f64(double d) {
    uint64_t bits;
    memcpy(&bits, &d, sizeof bits);
    return bits;
}

static void add_node(mn_model_graph *g, uint32_t op, int layer, const int32_t *in, uint32_t n_in, const int32_t *out,
                     uint32_t n_out, const uint64_t *attr, uint32_t n_attr) {
    if (g->status) return;
    mn_node n = {
        .op = op, .contract = mn_op_find(op)->contract, .n_in = n_in, .n_out = n_out, .n_attr = n_attr, .layer = layer};
    n.in_off = g->abi.n_operands;
    if (!push_operands(g, in, n_in)) return;
    n.out_off = g->abi.n_operands;
    if (!push_operands(g, out, n_out)) return;
    n.attr_off = (uint32_t)g->abi.n_attrs;
    if (!mn_grow((void **)&g->abi.attrs, &g->cap_attrs, g->abi.n_attrs + n_attr, sizeof *attr) ||
        !mn_grow((void **)&g->abi.nodes, &g->cap_nodes, g->abi.n_nodes + 1u, sizeof n)) {
        no_memory(g);
        return;
    }
    if (n_attr) memcpy((uint64_t *)(uintptr_t)g->abi.attrs + g->abi.n_attrs, attr, n_attr * sizeof *attr);
    g->abi.n_attrs += n_attr;
    ((mn_node *)(uintptr_t)g->abi.nodes)[g->abi.n_nodes++] = n;
}
#define LIST(...) (const int32_t[]){__VA_ARGS__}, (uint32_t)MN_COUNT(((int32_t[]){__VA_ARGS__}))
#define ATTRS(...) (const uint64_t[]){__VA_ARGS__}, (uint32_t)MN_COUNT(((uint64_t[]){__VA_ARGS__}))
#define NO_ATTRS NULL, 0

static int32_t add_weight(mn_model_graph *g, const char *name, uint32_t dtype, uint32_t n_dim, const int64_t *dim,
                          mn_graph_weight w) {
    w.tensor = add_tensor(g, name, MN_ROLE_WEIGHT, dtype, n_dim, dim);
    if (w.tensor < 0) return -1;
    if (!mn_grow((void **)&g->weights, &g->cap_weights, g->n_weights + 1u, sizeof w)) return no_memory(g), -1;
    g->weights[g->n_weights++] = w;
    return w.tensor;
}

static int32_t known_weight(const mn_model_graph *g, const mn_model_tensor_entry *e) {
    for (uint32_t i = 0; i < g->n_weights; i++)
        if (g->weights[i].source == e) return g->weights[i].tensor;
    return -1;
}

int32_t mn_g_weight(mn_model_graph *g, const char *name, int layer, bool optional, uint32_t n_dim, int64_t dim0,
                    int64_t dim1) {
    char full[128];
    if (g->status) return -1;
    const char *mark = strstr(name, "%d");
    if (mark)
        snprintf(full, sizeof full, "%.*s%d%s", (int)(mark - name), name, layer, mark + 2);
    else
        snprintf(full, sizeof full, "%s", name);
    const mn_model_tensor_entry *e = mn_canonical_tensor(g->model, full);
    if (!e) {
        if (!optional) fail(g, mn_fail(g->err, MN_BAD_FILE, "%s: tensor %s is missing", g->model->path, full));
        return -1;
    }
    const mn_tensor_info *t = &e->info;
    int64_t want[2] = {dim0, dim1};
    bool same = t->n_dim == n_dim;
    for (uint32_t i = 0; same && i < n_dim; i++) same = t->dim[i] == want[i];
    if (!same) {
        mn_text dims = {0};
        for (uint32_t i = 0; i < t->n_dim; i++) mn_text_printf(&dims, "%s%lld", i ? ", " : "", (long long)t->dim[i]);
        char second[32] = "";
        if (n_dim > 1) snprintf(second, sizeof second, ", %lld", (long long)dim1);
        fail(g, mn_fail(g->err, MN_BAD_FILE, "%s: tensor %.*s has the shape [%s]; the hyper-parameters say [%lld%s]",
                        g->model->path, MN_STR_ARG(t->native), dims.ptr ? dims.ptr : "", (long long)dim0, second));
        mn_text_free(&dims);
        return -1;
    }
    int32_t known = known_weight(g, e);
    return known >= 0 ? known : add_weight(g, full, t->dtype.id, t->n_dim, t->dim, (mn_graph_weight){-1, e, NULL});
}

int32_t mn_g_embed(mn_model_graph *g, int32_t table, double scale) {
    mn_graph_io *io = &g->io;
    int32_t x = interior(g, "embd", -1, MN_DIM(MN_SYM_TOKENS), g->hp.n_embd, 0);
    g->row_pos = add_tensor(g, "row_pos", MN_ROLE_INTERIOR, MN_I32, 1, (int64_t[]){MN_DIM(MN_SYM_TOKENS)});
    add_node(g, MN_OP_EMBED, -1, LIST(io->src, io->pos, io->row_slot, table, io->slots, io->history),
             LIST(x, g->row_pos), ATTRS(f64(scale)));
    return x;
}

static int32_t like(mn_model_graph *g, const char *name, int layer, int32_t x) {
    if (g->status) return -1;
    const mn_tensor *t = tensor(g, x);
    return interior(g, name, layer, t->dim[0], t->dim[1], t->n_dim > 2 ? t->dim[2] : 0);
}

int32_t mn_g_rms_norm(mn_model_graph *g, int layer, int32_t x, int32_t weight) {
    int32_t y = like(g, "norm", layer, x);
    add_node(g, MN_OP_RMS_NORM, layer, LIST(x, weight), LIST(y), ATTRS(f64(g->hp.norm_eps), f64(g->hp.norm_offset)));
    return y;
}

void mn_g_linear(mn_model_graph *g, int layer, int32_t x, uint32_t n, const int32_t *w, const int32_t *b,
                 const int64_t *head_dim, int32_t *y) {
    enum { MAX = 8 };
    int32_t in[1 + 2 * MAX] = {x};
    for (uint32_t i = 0; i < n; i++) {
        y[i] = -1;
        if (g->status) continue;
        int64_t rows = tensor(g, w[i])->dim[0], hd = head_dim ? head_dim[i] : 0;
        y[i] = interior(g, "linear", layer, tensor(g, x)->dim[0], hd ? rows / hd : rows, hd);
        in[1 + 2 * i] = w[i];
        in[2 + 2 * i] = b ? b[i] : -1;
    }
    add_node(g, MN_OP_LINEAR, layer, in, 1 + 2 * n, y, n, NO_ATTRS);
}

int32_t mn_g_rope(mn_model_graph *g, int layer, int32_t x) {
    int32_t y = like(g, "rope", layer, x);
    add_node(g, MN_OP_ROPE, layer, LIST(x, g->row_pos, g->freqs), LIST(y),
             ATTRS(g->hp.rope_pairing, (uint64_t)g->hp.n_rot, f64(g->rope_mscale)));
    return y;
}

int32_t mn_g_attention(mn_model_graph *g, int layer, int32_t q, int32_t k, int32_t v) {
    const mn_hparams *h = &g->hp;
    const mn_graph_io *io = &g->io;
    uint64_t at = (uint64_t)layer;
    int32_t y = interior(g, "attn", layer, MN_DIM(MN_SYM_TOKENS), h->n_head, h->head_dim_v);
    add_node(g, MN_OP_KV_STORE, layer, LIST(k, v, g->row_pos, io->row_slot, io->pages, io->kv), NULL, 0, ATTRS(at, 0));
    add_node(g, MN_OP_ATTENTION, layer, LIST(q, g->row_pos, io->row_slot, io->seqs, io->pages, io->kv, -1), LIST(y),
             ATTRS(f64(1.0 / __builtin_sqrt((double)h->head_dim_k)), (uint64_t)h->window, 0, at, 0,
                   (uint64_t)h->n_head_kv, (uint64_t)h->head_dim_v));
    return y;
}

int32_t mn_g_glu(mn_model_graph *g, int layer, int32_t gate, int32_t up) {
    int32_t y = like(g, "glu", layer, gate);
    add_node(g, MN_OP_GLU, layer, LIST(gate, up), LIST(y), ATTRS(g->hp.act));
    return y;
}

int32_t mn_g_add(mn_model_graph *g, int layer, int32_t a, int32_t b) {
    int32_t y = like(g, "add", layer, a);
    add_node(g, MN_OP_ADD, layer, LIST(a, b), LIST(y), NO_ATTRS);
    return y;
}

void mn_g_output(mn_model_graph *g, int32_t x, int32_t norm, int32_t table, int32_t bias) {
    mn_graph_io *io = &g->io;
    int64_t outputs = MN_DIM(MN_SYM_OUTPUTS);
    int32_t rows = interior(g, "out_rows", -1, outputs, g->hp.n_embd, 0);
    add_node(g, MN_OP_GATHER_ROWS, -1, LIST(x, io->out_row), LIST(rows), NO_ATTRS);
    int32_t y = mn_g_rms_norm(g, -1, rows, norm);
    io->logits = add_tensor(g, "logits", MN_ROLE_OUTPUT, MN_F32, 2, (int64_t[]){outputs, g->hp.n_vocab});
    add_node(g, MN_OP_LINEAR, -1, LIST(y, table, bias), LIST(io->logits), NO_ATTRS);
    io->ids = add_tensor(g, "ids", MN_ROLE_OUTPUT, MN_I32, 1, &outputs);
    add_node(g, MN_OP_SAMPLE, -1, LIST(io->logits, io->out_slot, io->params, io->slots, io->history, -1),
             LIST(io->ids, -1, -1), NO_ATTRS);
}

/* ---- before and after the architecture's own part ---- */
static void set_symbols(mn_model_graph *g) {
    static const struct {
        const char *name;
        uint32_t kind;
        int64_t min, typical;
    } rows[MN_SYM_COUNT] = {
        [MN_SYM_TOKENS] = {"n_tokens", MN_SYMBOL_SHAPE, 1, 1}, [MN_SYM_OUTPUTS] = {"n_outputs", MN_SYMBOL_SHAPE, 0, 1},
        [MN_SYM_SEQS] = {"n_seqs", MN_SYMBOL_SHAPE, 1, 1},     [MN_SYM_SLOTS] = {"n_slots", MN_SYMBOL_BOUND, 1, 1},
        [MN_SYM_PAGES] = {"n_pages", MN_SYMBOL_BOUND, 1, 32},  [MN_SYM_CTX] = {"n_ctx", MN_SYMBOL_BOUND, 1, 2048}};
    mn_symbol *s = mn_arena_alloc(&g->arena, MN_SYM_COUNT, sizeof *s);
    if (!s) {
        no_memory(g);
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
    const int64_t T = MN_DIM(MN_SYM_TOKENS), O = MN_DIM(MN_SYM_OUTPUTS), Q = MN_DIM(MN_SYM_SEQS),
                  S = MN_DIM(MN_SYM_SLOTS);
    const int64_t P = MN_DIM(MN_SYM_PAGES), C = MN_DIM(MN_SYM_CTX);
    const int64_t slot = (int64_t)(sizeof(mn_slot) / 4), params = (int64_t)(sizeof(mn_slot_params) / 4);
    mn_graph_io *io = &g->io;
    io->src = add_tensor(g, "src", MN_ROLE_INPUT, MN_I32, 1, &T);
    io->pos = add_tensor(g, "pos", MN_ROLE_INPUT, MN_I32, 1, &T);
    io->row_slot = add_tensor(g, "row_slot", MN_ROLE_INPUT, MN_I32, 1, &T);
    io->seqs = add_tensor(g, "seqs", MN_ROLE_INPUT, MN_I32, 2, (int64_t[]){Q, 4});
    io->pages = add_tensor(g, "pages", MN_ROLE_INPUT, MN_I32, 2, (int64_t[]){S, P});
    io->out_row = add_tensor(g, "out_row", MN_ROLE_INPUT, MN_I32, 1, &O);
    io->out_slot = add_tensor(g, "out_slot", MN_ROLE_INPUT, MN_I32, 1, &O);
    io->slots = add_tensor(g, "slots", MN_ROLE_STATE, MN_I32, 2, (int64_t[]){S, slot});
    io->history = add_tensor(g, "history", MN_ROLE_STATE, MN_I32, 2, (int64_t[]){S, C});
    io->params = add_tensor(g, "params", MN_ROLE_STATE, MN_I32, 2, (int64_t[]){S, params});
    io->kv = add_tensor(g, "kv.0", MN_ROLE_STATE, MN_U8, 1, (int64_t[]){1}); /* pages: their size is the plugin's */
}

static void add_freqs(mn_model_graph *g) {
    const mn_model_tensor_entry *factors = mn_canonical_tensor(g->model, "rope_freqs.weight");
    int64_t n = g->hp.n_rot / 2;
    if (factors && (factors->info.dtype.id != MN_F32 || factors->info.n_dim != 1 || factors->info.dim[0] != n)) {
        fail(g, mn_fail(g->err, MN_BAD_FILE, "%s: tensor rope_freqs.weight is not F32 [%lld]", g->model->path,
                        (long long)n));
        return;
    }
    float *copy = mn_arena_alloc(&g->arena, (size_t)n, sizeof *copy),
          *freqs = mn_arena_alloc(&g->arena, (size_t)n, sizeof *freqs);
    if (!copy || !freqs) {
        no_memory(g);
        return;
    }
    if (factors) memcpy(copy, factors->info.planes->ptr, (size_t)n * sizeof *copy); /* the file may be unaligned */
    mn_rope_freqs(&g->hp, factors ? copy : NULL, freqs, &g->rope_mscale);
    g->freqs = add_weight(g, "rope.freqs", MN_F32, 1, &n, (mn_graph_weight){-1, NULL, freqs});
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
    if (g->status) return g->status;
    for (uint64_t i = 0; i < 4; i++) a->digest[i] = digest_part(a, i + 1);
    return mn_graph_check(a, g->err);
}

static mn_status unknown_arch(const mn_canonical *m, const char *arch, mn_error *err) {
    mn_text known = {0};
    mn_arch_list(&known);
    mn_status st = mn_fail(err, MN_UNSUPPORTED, "%s: general.architecture is \"%s\"; known: %s", m->path, arch,
                           known.ptr ? known.ptr : "");
    mn_text_free(&known);
    return st;
}

mn_status mn_model_graph_build(const mn_canonical *m, mn_model_graph **out, mn_error *err) {
    mn_str name;
    char arch_name[64] = "";
    if (mn_meta_str(&m->meta, "general.architecture", &name, NULL) == MN_OK && name.len < sizeof arch_name)
        memcpy(arch_name, name.ptr, name.len);
    const mn_arch *arch = mn_arch_find(arch_name);
    if (arch_name[0] && !arch) return unknown_arch(m, arch_name, err);
    mn_model_graph *g = mn_calloc(1, sizeof *g);
    if (!g) return mn_fail_memory(err, sizeof *g);
    g->model = m;
    g->err = err;
    g->row_pos = g->freqs = -1;
    g->status = mn_hparams_read(m, &g->hp, err);
    if (!g->status) {
        set_symbols(g);
        add_io(g);
        add_freqs(g);
    }
    if (!g->status) arch->build(g);
    mn_status st = finish(g);
    g->err = NULL;
    if (st)
        mn_model_graph_free(g);
    else
        *out = g;
    return st;
}

void mn_model_graph_free(mn_model_graph *g) {
    if (!g) return;
    mn_free((void *)(uintptr_t)g->abi.nodes);
    mn_free((void *)(uintptr_t)g->abi.tensors);
    mn_free((void *)(uintptr_t)g->abi.operands);
    mn_free((void *)(uintptr_t)g->abi.attrs);
    mn_free(g->weights);
    mn_arena_free(&g->arena);
    mn_free(g);
}
