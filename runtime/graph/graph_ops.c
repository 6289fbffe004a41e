/* graph_ops.c -- one function per op: shapes of its outputs, its attributes, one node. */
#include "graph/build.h"

static const mn_tensor *tensor(const mn_model_graph *g, int32_t t) {
    return &g->abi.tensors[t];
}

static int32_t like(mn_model_graph *g, const char *name, int layer, int32_t x) {
    if (g->status)
        return -1;
    const mn_tensor *t = tensor(g, x);
    return mn_gb_interior(g, name, layer, t->dim[0], t->dim[1], t->n_dim > 2 ? t->dim[2] : 0);
}

int32_t mn_g_embed(mn_model_graph *g, int32_t table, double scale, int32_t positions) {
    mn_graph_io *io = &g->io;
    int32_t x = mn_gb_interior(g, "embd", -1, MN_DIM(MN_SYM_TOKENS), g->hp.n_embd, 0);
    g->row_pos =
        mn_gb_tensor(g, "row_pos", MN_ROLE_INTERIOR, MN_I32, 1, (int64_t[]){MN_DIM(MN_SYM_TOKENS)});
    mn_gb_node(
        g, MN_OP_EMBED, -1,
        (int32_t[]){io->src, io->pos, io->row_slot, table, io->slots, io->history, positions},
        positions < 0 ? 6 : 7, MN_GB_LIST(x, g->row_pos), MN_GB_ATTRS(mn_gb_f64(scale)));
    return x;
}

static void rms_norm(mn_model_graph *g, int layer, int32_t x, int32_t weight, int32_t y) {
    mn_gb_node(g, MN_OP_RMS_NORM, layer, MN_GB_LIST(x, weight), MN_GB_LIST(y),
               MN_GB_ATTRS(mn_gb_f64(g->hp.norm_eps), mn_gb_f64(g->hp.norm_offset)));
}

int32_t mn_g_rms_norm(mn_model_graph *g, int layer, int32_t x, int32_t weight) {
    int32_t y = like(g, "norm", layer, x);
    rms_norm(g, layer, x, weight, y);
    return y;
}

int32_t mn_g_rms_norm_heads(mn_model_graph *g, int layer, int32_t x, int32_t weight,
                            int64_t head_dim) {
    if (g->status)
        return -1;
    int32_t y = mn_gb_interior(g, "norm", layer, tensor(g, x)->dim[0],
                               tensor(g, x)->dim[1] / head_dim, head_dim);
    rms_norm(g, layer, x, weight, y);
    return y;
}

int32_t mn_g_layer_norm(mn_model_graph *g, int layer, int32_t x, int32_t weight, int32_t bias) {
    int32_t y = like(g, "norm", layer, x);
    mn_gb_node(g, MN_OP_LAYER_NORM, layer, MN_GB_LIST(x, weight, bias), MN_GB_LIST(y),
               MN_GB_ATTRS(mn_gb_f64(g->hp.norm_eps)));
    return y;
}

enum { MAX_WEIGHTS = 8 };
static void put_weights(int32_t *in, uint32_t n, const int32_t *w, const int32_t *b) {
    for (uint32_t i = 0; i < n; i++) {
        in[2 * i] = w[i];
        in[2 * i + 1] = b ? b[i] : -1;
    }
}

void mn_g_linear(mn_model_graph *g, int layer, int32_t x, uint32_t n, const int32_t *w,
                 const int32_t *b, const int64_t *head_dim, int32_t *y) {
    int32_t in[1 + 2 * MAX_WEIGHTS] = {x};
    for (uint32_t i = 0; i < n; i++) {
        y[i] = -1;
        if (g->status)
            continue;
        int64_t rows = tensor(g, w[i])->dim[0];
        int64_t hd = head_dim ? head_dim[i] : 0;
        y[i] = mn_gb_interior(g, "linear", layer, tensor(g, x)->dim[0], hd ? rows / hd : rows, hd);
    }
    put_weights(in + 1, n, w, b);
    mn_gb_node(g, MN_OP_LINEAR, layer, in, 1 + 2 * n, y, n, MN_GB_NO_ATTRS);
}

int32_t mn_g_rope(mn_model_graph *g, int layer, int32_t x) {
    const mn_hparams *h = &g->hp;
    const int32_t at = mn_g_layer(g, layer)->rope;
    if (at < 0)
        return x;
    int32_t y = like(g, "rope", layer, x);
    mn_gb_node(
        g, MN_OP_ROPE, layer, MN_GB_LIST(x, g->row_pos, g->freqs[at]), MN_GB_LIST(y),
        MN_GB_ATTRS(h->rope_pairing, (uint64_t)h->rope[at].n_rot, mn_gb_f64(g->rope_mscale[at])));
    return y;
}

int32_t mn_g_attention(mn_model_graph *g, int layer, int32_t q, int32_t k, int32_t v,
                       int32_t sinks) {
    const mn_layer_shape *l = mn_g_layer(g, layer);
    const mn_graph_io *io = &g->io;
    const uint64_t at = l->kv_layer;
    const uint64_t group = l->kv_group;
    const int32_t pages = io->pages[group];
    const int32_t kv = io->kv[group];
    const uint64_t cap = g->hp.attn_softcap > 0 ? mn_gb_f64(g->hp.attn_softcap) : 0;
    int32_t y = mn_gb_interior(g, "attn", layer, MN_DIM(MN_SYM_TOKENS), l->n_head, l->head_dim_v);
    mn_gb_node(g, MN_OP_KV_STORE, layer, MN_GB_LIST(k, v, g->row_pos, io->row_slot, pages, kv),
               NULL, 0, MN_GB_ATTRS(at, group));
    mn_gb_node(g, MN_OP_ATTENTION, layer,
               MN_GB_LIST(q, g->row_pos, io->row_slot, io->seqs, pages, kv, sinks), MN_GB_LIST(y),
               MN_GB_ATTRS(mn_gb_f64(l->attn_scale), (uint64_t)l->window, cap, at, group,
                           (uint64_t)l->n_head_kv, (uint64_t)l->head_dim_v));
    return y;
}

int32_t mn_g_act(mn_model_graph *g, int layer, int32_t x) {
    int32_t y = like(g, "act", layer, x);
    mn_gb_node(g, MN_OP_ACT, layer, MN_GB_LIST(x), MN_GB_LIST(y), MN_GB_ATTRS(g->hp.act));
    return y;
}

int32_t mn_g_glu(mn_model_graph *g, int layer, int32_t gate, int32_t up, mn_glu_form form) {
    const bool plain = form.alpha == 0 && form.limit == 0 && form.up_offset == 0;
    int32_t y = like(g, "glu", layer, gate);
    const uint64_t attr[] = {g->hp.act, mn_gb_f64(form.alpha), mn_gb_f64(form.limit),
                             mn_gb_f64(form.up_offset)};
    mn_gb_node(g, MN_OP_GLU, layer, MN_GB_LIST(gate, up), MN_GB_LIST(y), attr,
               plain ? 1 : MN_COUNT(attr));
    return y;
}

int32_t mn_g_add(mn_model_graph *g, int layer, int32_t a, int32_t b) {
    int32_t y = like(g, "add", layer, a);
    mn_gb_node(g, MN_OP_ADD, layer, MN_GB_LIST(a, b), MN_GB_LIST(y), MN_GB_NO_ATTRS);
    return y;
}

int32_t mn_g_scale(mn_model_graph *g, int layer, int32_t x, double factor) {
    int32_t y = like(g, "scale", layer, x);
    mn_gb_node(g, MN_OP_SCALE, layer, MN_GB_LIST(x), MN_GB_LIST(y), MN_GB_ATTRS(mn_gb_f64(factor)));
    return y;
}

void mn_g_moe_route(mn_model_graph *g, int layer, int32_t logits, int32_t bias, int32_t *experts,
                    int32_t *weights) {
    const mn_hparams *h = &g->hp;
    const int64_t dim[2] = {MN_DIM(MN_SYM_TOKENS), mn_g_layer(g, layer)->n_expert_used};
    *experts = mn_gb_tensor(g, "experts", MN_ROLE_INTERIOR, MN_I32, 2, dim);
    *weights = mn_gb_interior(g, "expert_weights", layer, dim[0], dim[1], 0);
    mn_gb_node(g, MN_OP_MOE_ROUTE, layer, MN_GB_LIST(logits, bias), MN_GB_LIST(*experts, *weights),
               MN_GB_ATTRS(h->route, h->route_normalise, mn_gb_f64(h->route_scale)));
}

void mn_g_moe_linear(mn_model_graph *g, int layer, int32_t x, int32_t experts, uint32_t n,
                     const int32_t *w, const int32_t *b, int32_t *y) {
    int32_t in[2 + 2 * MAX_WEIGHTS] = {x, experts};
    for (uint32_t i = 0; i < n; i++)
        y[i] = g->status
                   ? -1
                   : mn_gb_interior(g, "moe_linear", layer, MN_DIM(MN_SYM_TOKENS),
                                    mn_g_layer(g, layer)->n_expert_used, tensor(g, w[i])->dim[1]);
    put_weights(in + 2, n, w, b);
    mn_gb_node(g, MN_OP_MOE_LINEAR, layer, in, 2 + 2 * n, y, n, MN_GB_NO_ATTRS);
}

int32_t mn_g_moe_combine(mn_model_graph *g, int layer, int32_t x, int32_t weights) {
    if (g->status)
        return -1;
    int32_t y = mn_gb_interior(g, "moe", layer, tensor(g, x)->dim[0], tensor(g, x)->dim[2], 0);
    mn_gb_node(g, MN_OP_MOE_COMBINE, layer, MN_GB_LIST(x, weights), MN_GB_LIST(y), MN_GB_NO_ATTRS);
    return y;
}

int32_t mn_g_gather(mn_model_graph *g, int32_t x) {
    int32_t rows = mn_gb_interior(g, "out_rows", -1, MN_DIM(MN_SYM_OUTPUTS), g->hp.n_embd, 0);
    mn_gb_node(g, MN_OP_GATHER_ROWS, -1, MN_GB_LIST(x, g->io.out_row), MN_GB_LIST(rows),
               MN_GB_NO_ATTRS);
    return rows;
}

/* The last of the nodes that make the logits writes the output; those before it write interior
 * tensors. */
void mn_g_logits(mn_model_graph *g, int32_t x, int32_t table, int32_t bias) {
    mn_graph_io *io = &g->io;
    const mn_hparams *h = &g->hp;
    const int64_t outputs = MN_DIM(MN_SYM_OUTPUTS);
    const bool scaled = h->logit_scale > 0 && h->logit_scale != 1;
    const bool capped = h->logit_softcap > 0;
    io->logits =
        mn_gb_tensor(g, "logits", MN_ROLE_OUTPUT, MN_F32, 2, (int64_t[]){outputs, h->n_vocab});
    int32_t plain = scaled || capped ? mn_gb_interior(g, "logits.plain", -1, outputs, h->n_vocab, 0)
                                     : io->logits;
    mn_gb_node(g, MN_OP_LINEAR, -1, MN_GB_LIST(x, table, bias), MN_GB_LIST(plain), MN_GB_NO_ATTRS);
    int32_t shrunk = scaled && capped
                         ? mn_gb_interior(g, "logits.scaled", -1, outputs, h->n_vocab, 0)
                         : io->logits;
    if (scaled)
        mn_gb_node(g, MN_OP_SCALE, -1, MN_GB_LIST(plain), MN_GB_LIST(shrunk),
                   MN_GB_ATTRS(mn_gb_f64(1 / h->logit_scale)));
    if (capped)
        mn_gb_node(g, MN_OP_SOFTCAP, -1, MN_GB_LIST(scaled ? shrunk : plain),
                   MN_GB_LIST(io->logits), MN_GB_ATTRS(mn_gb_f64(h->logit_softcap)));
    io->ids = mn_gb_tensor(g, "ids", MN_ROLE_OUTPUT, MN_I32, 1, &outputs);
    mn_gb_node(g, MN_OP_SAMPLE, -1,
               MN_GB_LIST(io->logits, io->out_slot, io->params, io->slots, io->history, -1),
               MN_GB_LIST(io->ids, -1, -1), MN_GB_NO_ATTRS);
}
