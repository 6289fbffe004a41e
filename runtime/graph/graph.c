/* graph.c -- the life of a graph: tensors and nodes appended, what every graph begins with
 * (symbols, inputs, state), the architecture's own part (arch_*.c), the check and the digest at the
 * end.
 *
 * An mn_model_graph owns its arrays, names and constants, which end in read-only pages;
 * its weights point into the canonical model, which outlives it. While it is built the first
 * failure is kept in g->status and every later append does nothing, so that builders need no checks
 * between two calls. */
#include "graph/build.h"
#include "graph/vendor.h"
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

bool mn_g_next_layer(mn_model_graph *g) {
    g->layer = (int)MN_MAX(g->layer + 1, g->hp.first_layer);
    if (g->layer < g->hp.n_layer)
        return true;
    g->layer = -1;
    return false;
}

bool mn_g_next_encoder_layer(mn_model_graph *g) {
    g->of_text = g->layer + 1 < g->hp.n_encoder;
    g->layer += g->of_text;
    return g->of_text;
}

/* ---- appending ------------------------------------------------------------------------------- */
/* Room for one more of an array that is const to plugins and ours to write. array: where the
 * pointer to it is; n: how many it holds. The new element; NULL: g has failed. */
static void *graph_append(mn_model_graph *g, const void *array, size_t *cap, uint64_t n,
                          size_t size) {
    void *own;
    memcpy(&own, array, sizeof own);
    if (!mn_grow(&own, cap, n + 1, size)) {
        mn_gb_no_memory(g);
        return NULL;
    }
    memcpy((void *)(uintptr_t)array, &own, sizeof own);
    return (char *)own + n * size;
}

int32_t mn_gb_tensor(mn_model_graph *g, const char *name, uint32_t role, uint32_t dtype,
                     uint32_t n_dim, const int64_t *dim) {
    mn_graph *abi = &g->abi;
    if (g->status)
        return -1;
    char *copy = mn_arena_strndup(&g->arena, name, strlen(name));
    if (!copy)
        mn_gb_no_memory(g);
    mn_tensor *t = graph_append(g, &abi->tensors, &g->cap_tensors, abi->n_tensors, sizeof *t);
    if (!copy || !t)
        return -1;
    *t = (mn_tensor){
        .role = role,
        .n_dim = n_dim,
        .alias_of = -1,
    };
    t->name = mn_str_of(copy);
    mn_vendor_dtype(g->model->types, dtype, &t->dtype);
    for (uint32_t i = 0; i < n_dim; i++)
        t->dim[i] = dim[i];
    return (int32_t)abi->n_tensors++;
}

int32_t mn_gb_interior(mn_model_graph *g, const char *name, int64_t rows, int64_t a, int64_t b) {
    const int64_t dim[] = {rows, a, b};
    char full[64];
    if (g->layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "%s.%d", name, g->layer);
    return mn_gb_tensor(g, full, MN_ROLE_INTERIOR, MN_F32, b ? 3 : 2, dim);
}

void mn_gb_make_output(mn_model_graph *g, int32_t t, const char *name) {
    if (g->status)
        return;
    mn_tensor *tensors;
    memcpy(&tensors, &g->abi.tensors, sizeof tensors); /* const to plugins, ours to write */
    tensors[t].role = MN_ROLE_OUTPUT;
    tensors[t].name = mn_str_of(name);
}

/* ---- nodes ----------------------------------------------------------------------------------- */
void mn_gb_begin(mn_model_graph *g, uint32_t op) {
    g->node = (mn_node){
        .op = op,
        .layer = g->layer,
        .in_off = g->abi.n_operands,
        .attr_off = (uint32_t)g->abi.n_attrs,
    };
}

static void push_operand(mn_model_graph *g, int32_t t) {
    mn_graph *abi = &g->abi;
    if (g->status)
        return;
    int32_t *to = graph_append(g, &abi->operands, &g->cap_operands, abi->n_operands, sizeof *to);
    if (!to)
        return;
    *to = t;
    abi->n_operands++;
}

void mn_gb_in(mn_model_graph *g, int32_t t) {
    push_operand(g, t);
    g->node.n_in++;
}

void mn_gb_out(mn_model_graph *g, int32_t t) {
    push_operand(g, t);
    g->node.n_out++;
}

void mn_gb_attr(mn_model_graph *g, uint64_t bits) {
    mn_graph *abi = &g->abi;
    if (g->status)
        return;
    uint64_t *to = graph_append(g, &abi->attrs, &g->cap_attrs, abi->n_attrs, sizeof *to);
    if (!to)
        return;
    *to = bits;
    abi->n_attrs++;
    g->node.n_attr++;
}

uint64_t mn_gb_blob(mn_model_graph *g, const void *bytes, size_t n) {
    mn_graph *abi = &g->abi;
    if (g->status)
        return 0;
    char *own = mn_arena_alloc(&g->arena, n + 1, 1);
    if (!own)
        mn_gb_no_memory(g);
    mn_str *to = graph_append(g, &abi->blobs, &g->cap_blobs, abi->n_blobs, sizeof *to);
    if (!own || !to)
        return 0;
    if (n)
        memcpy(own, bytes, n);
    *to = (mn_str){own, n};
    abi->n_blobs++;
    return abi->n_blobs;
}

void mn_gb_attr_f64(mn_model_graph *g, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    mn_gb_attr(g, bits);
}

void mn_gb_end(mn_model_graph *g) {
    mn_graph *abi = &g->abi;
    mn_node *n = &g->node;
    if (g->status)
        return;
    n->out_off = n->in_off + n->n_in;
    n->contract = mn_op_contract_of(abi, n);
    mn_node *to = graph_append(g, &abi->nodes, &g->cap_nodes, abi->n_nodes, sizeof *to);
    if (!to)
        return;
    *to = *n;
    abi->n_nodes++;
}

/* ---- weights --------------------------------------------------------------------------------- */
int32_t mn_gb_weight(mn_model_graph *g, const char *name, uint32_t dtype, uint32_t n_dim,
                     const int64_t *dim, mn_graph_weight w) {
    w.tensor = mn_gb_tensor(g, name, MN_ROLE_WEIGHT, dtype, n_dim, dim);
    if (w.tensor < 0)
        return -1;
    mn_graph_weight *to = graph_append(g, &g->weights, &g->cap_weights, g->n_weights, sizeof *to);
    if (!to)
        return -1;
    *to = w;
    g->n_weights++;
    return w.tensor;
}

/* ---- before and after the architecture's own part -------------------------------------------- */
/* The sizes that a step chooses: what kind each is, and what a plugin may expect. */
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
                            [MN_SYM_SEQ_ROWS] = {"seq_rows", MN_SYMBOL_FACT, 1, 1},
                            [MN_SYM_TEXT] = {"n_text", MN_SYMBOL_SHAPE, 0, 1}};
    mn_symbol *s = mn_arena_alloc(&g->arena, MN_SYM_COUNT, sizeof *s);
    if (!s) {
        mn_gb_no_memory(g);
        return;
    }
    for (int i = 0; i < MN_SYM_COUNT; i++) {
        s[i] = (mn_symbol){
            .min = rows[i].min,
            .max = INT32_MAX,
            .typical = rows[i].typical,
            .kind = rows[i].kind,
            .base = -1,
            .mul = 1,
        };
        snprintf(s[i].name, sizeof s[i].name, "%s", rows[i].name);
    }
    g->abi.symbols = s;
    g->abi.n_symbols = g->hp.n_encoder ? MN_SYM_COUNT : MN_SYM_TEXT;
}

static int32_t vector(mn_model_graph *g, const char *name, uint32_t role, int64_t n) {
    return mn_gb_tensor(g, name, role, MN_I32, 1, &n);
}

static int32_t matrix(mn_model_graph *g, const char *name, uint32_t role, int64_t rows,
                      int64_t cols) {
    const int64_t dim[] = {rows, cols};
    return mn_gb_tensor(g, name, role, MN_I32, 2, dim);
}

/* [S, P]; of states [S, 2]: what a step begins with, and what it leaves. */
static int32_t graph_page_table(mn_model_graph *g, uint32_t i) {
    const int64_t n_slots = MN_DIM(MN_SYM_SLOTS);
    char name[32] = "pages";
    if (g->hp.kv[i].state)
        return matrix(g, "states", MN_ROLE_INPUT, n_slots, 2);
    if (i)
        snprintf(name, sizeof name, "pages.%u", i);
    return matrix(g, name, MN_ROLE_INPUT, n_slots, MN_DIM(MN_SYM_PAGES));
}

/* Page table and pages of KV group i > 0; how large pages are is the plugin's. */
static void graph_add_group(mn_model_graph *g, uint32_t i) {
    const int64_t one = 1;
    char kv[32];
    snprintf(kv, sizeof kv, "kv.%u", i);
    g->io.pages[i] = graph_page_table(g, i);
    g->io.kv[i] = mn_gb_tensor(g, kv, MN_ROLE_STATE, MN_U8, 1, &one);
}

/* What a graph with an encoder has besides. */
static void add_text_io(mn_model_graph *g) {
    const int64_t R = MN_DIM(MN_SYM_TEXT);
    mn_graph_io *io = &g->io;
    io->text_src = vector(g, "text_src", MN_ROLE_INPUT, R);
    io->text_pos = vector(g, "text_pos", MN_ROLE_INPUT, R);
    io->text_row_slot = vector(g, "text_row_slot", MN_ROLE_INPUT, R);
    io->text_seqs = matrix(g, "text_seqs", MN_ROLE_INPUT, MN_DIM(MN_SYM_SEQS), 4);
    io->text_length = vector(g, "text_length", MN_ROLE_INPUT, MN_DIM(MN_SYM_SLOTS));
}

/* The tensors that the host binds, in the order in which plugins have always seen them. */
static void add_io(mn_model_graph *g) {
    const int64_t T = MN_DIM(MN_SYM_TOKENS);
    const int64_t O = MN_DIM(MN_SYM_OUTPUTS);
    const int64_t Q = MN_DIM(MN_SYM_SEQS);
    const int64_t S = MN_DIM(MN_SYM_SLOTS);
    const int64_t C = MN_DIM(MN_SYM_CTX);
    const int64_t slot = (int64_t)(sizeof(mn_slot) / 4);
    const int64_t params = (int64_t)(sizeof(mn_slot_params) / 4);
    const int64_t one = 1;
    mn_graph_io *io = &g->io;
    io->step = vector(g, "step", MN_ROLE_INPUT, MN_STEP_WORDS);
    io->src = vector(g, "src", MN_ROLE_INPUT, T);
    io->pos = vector(g, "pos", MN_ROLE_INPUT, T);
    io->row_slot = vector(g, "row_slot", MN_ROLE_INPUT, T);
    io->seqs = matrix(g, "seqs", MN_ROLE_INPUT, Q, 4);
    io->pages[0] = graph_page_table(g, 0);
    io->out_row = vector(g, "out_row", MN_ROLE_INPUT, O);
    io->out_slot = vector(g, "out_slot", MN_ROLE_INPUT, O);
    io->slots = matrix(g, "slots", MN_ROLE_STATE, S, slot);
    io->history = matrix(g, "history", MN_ROLE_STATE, S, C);
    io->params = matrix(g, "params", MN_ROLE_STATE, S, params);
    io->kv[0] = mn_gb_tensor(g, "kv.0", MN_ROLE_STATE, MN_U8, 1, &one);
    for (uint32_t i = 1; i < g->hp.n_kv; i++)
        graph_add_group(g, i);
    /* a draft head guesses without them: the model checks what it guessed */
    const bool adapts = g->model->room && !g->head;
    if (g->head) {
        const int64_t dim[] = {T, g->hp.n_embd};
        io->hidden_in = mn_gb_tensor(g, "hidden_in", MN_ROLE_INPUT, MN_F32, 2, dim);
    }
    if (g->hp.n_encoder)
        add_text_io(g);
    io->growth_row = -1;
    if (mn_grows(&g->hp, g->n_ctx))
        io->growth_row = matrix(g, "growth_row", MN_ROLE_STATE, S, C);
    io->adapter = adapts ? vector(g, "adapter", MN_ROLE_INPUT, T) : -1;
    io->out_adapter = adapts ? vector(g, "out_adapter", MN_ROLE_INPUT, O) : -1;
}

/* 64 bits over all that a compiled program depends on; weights' data is not part of it. */
static uint64_t digest_part(const mn_graph *a, uint64_t seed) {
    uint64_t h = mn_hash(a->nodes, a->n_nodes * sizeof *a->nodes, seed);
    h = mn_hash(a->operands, a->n_operands * sizeof *a->operands, h);
    h = mn_hash(a->attrs, a->n_attrs * sizeof *a->attrs, h);
    for (uint32_t i = 0; i < a->n_blobs; i++) {
        h = mn_hash(&a->blobs[i].len, sizeof a->blobs[i].len, h);
        h = mn_hash(a->blobs[i].ptr, a->blobs[i].len, h);
    }
    for (uint32_t i = 0; i < a->n_tensors; i++) {
        const mn_tensor *t = &a->tensors[i];
        h = mn_hash(&t->dtype, sizeof t->dtype, h);
        h = mn_hash(t->dim, sizeof t->dim, h);
    }
    return h;
}

void mn_gb_digest(mn_graph *a) {
    for (uint64_t i = 0; i < 4; i++)
        a->digest[i] = digest_part(a, i + 1);
}

/* What was built, as far as it is not sealed. */
static void free_arrays(const mn_graph *abi) {
    mn_free((void *)(uintptr_t)abi->nodes);
    mn_free((void *)(uintptr_t)abi->tensors);
    mn_free((void *)(uintptr_t)abi->operands);
    mn_free((void *)(uintptr_t)abi->attrs);
    mn_free((void *)(uintptr_t)abi->blobs);
}

/* Of a constant's values. */
static size_t graph_count_of(const mn_graph *abi, const mn_graph_weight *w) {
    const mn_tensor *t = &abi->tensors[w->tensor];
    size_t n = 1;
    for (uint32_t i = 0; i < t->n_dim; i++)
        n *= (size_t)t->dim[i];
    return n;
}

/* Values of constants, which plugins import from where they are. */
static mn_status seal_constants(mn_model_graph *g) {
    size_t room = 0;
    for (uint32_t i = 0; i < g->n_weights; i++)
        if (g->weights[i].constant)
            room = mn_sealed_sum(room, mn_sealed_room(graph_count_of(&g->abi, &g->weights[i]), 4));
    if (!room)
        return MN_OK;
    mn_sealed *pages = mn_sealed_open(room);
    for (uint32_t i = 0; i < g->n_weights && pages; i++) {
        mn_graph_weight *w = &g->weights[i];
        if (w->constant)
            w->constant = mn_sealed_copy(pages, w->constant, graph_count_of(&g->abi, w), 4);
    }
    if (!pages || !mn_sealed_close(pages))
        return mn_fail_memory(g->err, room);
    g->constants = pages;
    return MN_OK;
}

/* Everything that plugins see of it goes into sealed pages. */
static mn_status graph_seal(mn_model_graph *g) {
    const mn_graph built = g->abi;
    g->given = mn_given_graph(&built, &g->pages);
    if (!g->given)
        return mn_fail_memory(g->err, sizeof built);
    g->abi = *g->given;
    free_arrays(&built);
    return seal_constants(g);
}

/* Sizes, digest and check. From here on the graph does not change. */
static mn_status graph_finish(mn_model_graph *g) {
    mn_graph *a = &g->abi;
    a->size = sizeof *a;
    a->node_stride = sizeof(mn_node);
    a->tensor_stride = sizeof(mn_tensor);
    a->symbol_stride = sizeof(mn_symbol);
    a->step = g->io.step;
    if (g->status)
        return g->status;
    mn_gb_digest(a);
    mn_status st = mn_graph_check(a, g->err);
    if (!st)
        st = mn_graph_vendor_begin(g);
    return st ? st : graph_seal(g);
}

/* What an architecture of the field needs that no builder has; NULL: nothing is known of it. */
static const char *graph_missing(const char *arch) {
#define MN_MISSING(gguf, model_type, what) {gguf, what},
    static const char *const rows[][2] = {
#include "missing.def"
    };
#undef MN_MISSING
    for (size_t i = 0; i < MN_COUNT(rows); i++)
        if (*arch && !strcmp(rows[i][0], arch))
            return rows[i][1];
    return NULL;
}

mn_status mn_arch_unknown(const mn_canonical *m, const char *arch, mn_error *err) {
    const char *missing = graph_missing(arch);
    mn_text known = {0};
    if (missing)
        return mn_fail(
            err, MN_UNSUPPORTED,
            "%s: general.architecture is \"%s\", which does not run here yet; missing: %s", m->path,
            arch, missing);
    mn_arch_list(&known);
    mn_status st = mn_fail(err, MN_UNSUPPORTED, "%s: general.architecture is \"%s\"; known: %s",
                           m->path, arch, known.ptr ? known.ptr : "");
    mn_text_free(&known);
    return st;
}

/* The architecture that the file names. An unknown one is an error that lists those that are known;
 * a file without the key fails where the hyper-parameters are read. */
static mn_status find_arch(const mn_canonical *m, const mn_arch **out, mn_error *err) {
    mn_str name = {0};
    char arch[64] = "";
    *out = NULL;
    if (mn_meta_str(&m->meta, "general.architecture", &name, NULL))
        return MN_OK;
    if (name.len < sizeof arch)
        memcpy(arch, name.ptr, name.len);
    *out = mn_arch_find(arch);
    if (*out || !arch[0])
        return MN_OK;
    return mn_arch_unknown(m, arch, err);
}

/* All but the architecture's own part and the end. */
static void graph_begin(mn_model_graph *g) {
    const size_t n = g->model->n_tensors + 1;
    g->row_pos = -1;
    g->layer = -1;
    g->io.logits = -1;
    g->io.ids = -1;
    g->io.hidden = -1;
    g->io.hidden_out = -1;
    g->io.hidden_in = -1;
    g->io.mask = -1;
    g->io.draft = -1;
    g->io.text_src = -1;
    g->io.text_pos = -1;
    g->io.text_row_slot = -1;
    g->io.text_seqs = -1;
    g->io.text_length = -1;
    g->text_row_pos = -1;
    g->io.resident_rest = -1;
    g->io.resident_first = -1;
    g->distance_bias = -1;
    g->relative_k = -1;
    g->relative_q = -1;
    g->io.bias_ids = -1;
    g->io.bias_values = -1;
    g->io.target = -1;
    g->io.breakers = -1;
    g->io.mu = -1;
    g->io.top_ids = -1;
    g->io.top_logprobs = -1;
    g->io.logprob = -1;
    for (size_t i = 0; i < MN_COUNT(g->freqs); i++)
        g->freqs[i] = -1;
    g->asked = mn_arena_alloc(&g->arena, n, 1);
    if (!g->asked)
        mn_gb_no_memory(g);
    else if (g->head)
        g->status = mn_hparams_read_head(g->model, &g->arena, &g->hp, g->err);
    else
        g->status = mn_hparams_read(g->model, &g->arena, &g->hp, g->err);
    if (g->status)
        return;
    g->embeds = g->embeds || g->hp.bidirectional;
    set_symbols(g);
    add_io(g);
    mn_gb_freqs(g);
}

mn_status mn_model_graph_build(const mn_canonical *m, uint32_t n_ctx, uint32_t end,
                               mn_model_graph **out, mn_error *err) {
    return mn_model_graph_build_divided(m, n_ctx, end, (mn_division){0}, out, err);
}

mn_status mn_model_graph_build_divided(const mn_canonical *m, uint32_t n_ctx, uint32_t end,
                                       mn_division division, mn_model_graph **out, mn_error *err) {
    const mn_arch *arch;
    mn_status st = find_arch(m, &arch, err);
    if (st)
        return st;
    mn_model_graph *g = mn_calloc(1, sizeof *g);
    if (!g)
        return mn_fail_memory(err, sizeof *g);
    g->model = m;
    g->err = err;
    g->n_ctx = n_ctx;
    g->division = division;
    g->head = end == MN_GRAPH_HEAD;
    g->tells = end >= MN_GRAPH_TELLS;
    end %= MN_GRAPH_TELLS;
    g->embeds = end == MN_GRAPH_EMBEDS;
    g->samplers = end == MN_GRAPH_SAMPLERS || end == MN_GRAPH_SAMPLERS_DRAFTS;
    g->scores = g->samplers || end == MN_GRAPH_SCORES || end == MN_GRAPH_SCORES_DRAFTS;
    g->masks = g->scores || end == MN_GRAPH_MASKS || end == MN_GRAPH_MASKS_DRAFTS;
    g->drafts = end >= MN_GRAPH_DRAFTS;
    graph_begin(g);
    if (!g->status)
        arch->build(g);
    if (!g->status && !m->ignore_unused)
        mn_gb_check_biases(g);
    if (!g->status && !g->head)
        mn_gb_check_unused(g);
    st = graph_finish(g);
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
    if (!g->pages)
        free_arrays(&g->abi);
    mn_sealed_free(g->pages);
    mn_sealed_free(g->constants);
    mn_graph_vendor_free(g->vendor);
    mn_free(g->weights);
    mn_free(g->sites);
    mn_arena_free(&g->arena);
    mn_free(g);
}

bool mn_node_stores_for(const mn_graph *g, const mn_node *n, const mn_node *attention) {
    return n->op == MN_OP_KV_STORE &&
           mn_node_attr(g, n, MN_KV_STORE_ATTR_GROUP) ==
               mn_node_attr(g, attention, MN_ATTENTION_ATTR_GROUP) &&
           mn_node_attr(g, n, MN_KV_STORE_ATTR_KV_LAYER) ==
               mn_node_attr(g, attention, MN_ATTENTION_ATTR_KV_LAYER);
}

uint32_t mn_tensor_root(const mn_graph *g, uint32_t tensor) {
    while (g->tensors[tensor].alias_of >= 0)
        tensor = (uint32_t)g->tensors[tensor].alias_of;
    return tensor;
}

bool *mn_graph_reads(const mn_graph *g, uint32_t lo, uint32_t hi) {
    bool *reads = mn_calloc(g->n_tensors, sizeof *reads);
    for (uint32_t i = lo; reads && i < hi; i++)
        for (uint32_t j = 0; j < g->nodes[i].n_in; j++) {
            const int32_t t = g->operands[g->nodes[i].in_off + j];
            if (t >= 0)
                reads[mn_tensor_root(g, (uint32_t)t)] = true;
        }
    return reads;
}
