/* hparams.c -- hyper-parameters out of metadata: typed, in range, free of contradictions. */
#include "model/hparams_read.h"
#include <math.h>
#include <string.h>

/* What an architecture fixes and its files leave out. Zero: nothing fixed. */
typedef struct {
    const char *arch;
    uint32_t act;
    int64_t window_period;  /* of p layers the last sees everything */
    int64_t no_rope_period; /* every p-th layer has no rotation */
    double rope_theta_swa;  /* base of window layers */
    bool yarn_whole;        /* the ramp does not begin and end at whole pairs */
    bool route_normalise;
    bool adjacent; /* GGUF's q and k are turned: pairs of neighbours rotate */
    /* a model of so many layers scales attention by n_embd / n_head, not by the head's size */
    int64_t broad_layers;
} arch_facts;
static const arch_facts facts[] = {
    {.arch = "gemma", .act = MN_ACT_GELU_TANH},
    {.arch = "gemma2", .act = MN_ACT_GELU_TANH, .window_period = 2, .broad_layers = 46}, /* 27B */
    {.arch = "gemma3",
     .act = MN_ACT_GELU_TANH,
     .window_period = 6,
     .rope_theta_swa = 10000,
     .broad_layers = 62},
    {.arch = "granite", .adjacent = true},
    {.arch = "gpt-oss", .window_period = 2, .yarn_whole = true},
    {.arch = "gpt2", .act = MN_ACT_GELU_TANH, .no_rope_period = 1},
    {.arch = "llama", .route_normalise = true /* Mixtral */, .adjacent = true},
    {.arch = "phi2", .act = MN_ACT_GELU_TANH},
    {.arch = "qwen3moe", .route_normalise = true},
    {.arch = "smollm3", .no_rope_period = 4, .adjacent = true},
};

static arch_facts facts_of(const char *arch) {
    for (size_t i = 0; i < MN_COUNT(facts); i++)
        if (!strcmp(facts[i].arch, arch))
            return facts[i];
    return (arch_facts){0};
}

static mn_status read_arch(const mn_canonical *m, mn_hparams *h, mn_error *err) {
    mn_str arch;
    mn_status st = mn_meta_str(&m->meta, "general.architecture", &arch, err);
    if (st == MN_END)
        return mn_fail(err, MN_BAD_FILE, "%s: missing key general.architecture", m->path);
    if (st)
        return mn_fail_in(err, st, "%s", m->path);
    if (!arch.len || arch.len >= sizeof h->arch)
        return mn_fail(err, MN_BAD_FILE,
                       "%s: general.architecture is \"%.*s\"; expected a short name", m->path,
                       MN_STR_ARG(arch));
    memcpy(h->arch, arch.ptr, arch.len);
    return MN_OK;
}

static mn_status read_heads(const mn_hp_reader *r, mn_hparams *h) {
    mn_status st = mn_hp_same_int(r, "attention.head_count", h->n_layer, 65536, &h->n_head);
    if (!st)
        st = mn_hp_need(r, "attention.head_count", h->n_head);
    h->n_head_kv = h->n_head;
    if (!st)
        st = mn_hp_same_int(r, "attention.head_count_kv", h->n_layer, 65536, &h->n_head_kv);
    if (!st)
        st = mn_hp_int(r, "attention.key_length", 1, 65536, &h->head_dim_k);
    if (st)
        return st;
    if (h->n_head % h->n_head_kv)
        return mn_fail(
            r->err, MN_BAD_FILE,
            "%s: %s.attention.head_count %lld is not a multiple of %s.attention.head_count_kv %lld",
            r->m->path, r->arch, (long long)h->n_head, r->arch, (long long)h->n_head_kv);
    if (!h->head_dim_k) {
        if (h->n_embd % h->n_head)
            return mn_fail(r->err, MN_BAD_FILE,
                           "%s: %s.embedding_length %lld is not a multiple of "
                           "%s.attention.head_count %lld, and there "
                           "is no %s.attention.key_length",
                           r->m->path, r->arch, (long long)h->n_embd, r->arch, (long long)h->n_head,
                           r->arch);
        h->head_dim_k = h->n_embd / h->n_head;
    }
    h->head_dim_v = h->head_dim_k;
    return mn_hp_int(r, "attention.value_length", 1, 65536, &h->head_dim_v);
}

static mn_status read_shape(const mn_hp_reader *r, mn_hparams *h) {
    enum { BIG = 1 << 24 };
    mn_status st = mn_hp_need_int(r, "block_count", 1, MN_MAX_LAYER, &h->n_layer);
    if (!st)
        st = mn_hp_need_int(r, "embedding_length", 1, BIG, &h->n_embd);
    if (!st)
        st = mn_hp_int(r, "expert_feed_forward_length", 1, BIG, &h->n_ff_expert);
    h->n_ff = h->n_ff_expert; /* a model of experts alone may leave it out */
    if (!st)
        st = mn_hp_same_int(r, "feed_forward_length", h->n_layer, BIG, &h->n_ff);
    if (!st)
        st = mn_hp_need(r, "feed_forward_length", h->n_ff);
    if (!h->n_ff_expert)
        h->n_ff_expert = h->n_ff;
    if (!st)
        st = mn_hp_int(r, "context_length", 1, INT32_MAX, &h->n_ctx_train);
    return st ? st : read_heads(r, h);
}

static mn_status read_window(const mn_hp_reader *r, const arch_facts *f, mn_hparams *h) {
    bool told = false;
    mn_status st = mn_hp_int(r, "attention.sliding_window", 0, INT32_MAX, &h->window);
    if (!st && h->window)
        st = mn_hp_layers(r, "attention.sliding_window_pattern", h->n_layer, h->slides, &told);
    for (int64_t i = 0; !st && h->window && !told && i < h->n_layer; i++)
        if (!f->window_period || i % f->window_period < f->window_period - 1)
            h->slides[i / 8] = (uint8_t)(h->slides[i / 8] | 1u << (i % 8));
    return st;
}

static mn_status read_experts(const mn_hp_reader *r, const arch_facts *f, mn_hparams *h) {
    static const uint32_t kinds[] = {0, MN_ROUTE_SOFTMAX, MN_ROUTE_SIGMOID, MN_ROUTE_TOPK_SOFTMAX};
    int64_t gating = 0;
    mn_status st = mn_hp_int(r, "expert_count", 0, 65536, &h->n_expert);
    if (st || !h->n_expert)
        return st;
    st = mn_hp_need_int(r, "expert_used_count", 1, h->n_expert, &h->n_expert_used);
    h->route_normalise = f->route_normalise;
    if (!strcmp(h->arch, "gpt-oss"))
        h->route = MN_ROUTE_TOPK_SOFTMAX;
    if (!st)
        st = mn_hp_int(r, "expert_gating_func", 0, 3, &gating);
    if (!st && gating)
        h->route = kinds[gating];
    if (!st)
        st = mn_hp_bool(r, "expert_weights_norm", &h->route_normalise);
    if (!st)
        st = mn_hp_real(r, "expert_weights_scale", 0, 1e6, &h->route_scale);
    return st;
}

static mn_status read_scales(const mn_hp_reader *r, const arch_facts *f, mn_hparams *h) {
    static const struct {
        const char *key;
        double lo;
        size_t at;
    } rows[] = {
        {"embedding_scale", 0, offsetof(mn_hparams, embd_scale)},
        {"residual_scale", 0, offsetof(mn_hparams, residual_scale)},
        {"attention.scale", 0, offsetof(mn_hparams, attn_scale)},
        {"attn_logit_softcapping", 0, offsetof(mn_hparams, attn_softcap)},
        {"logit_scale", 0, offsetof(mn_hparams, logit_scale)},
        {"final_logit_softcapping", 0, offsetof(mn_hparams, logit_softcap)},
        {"attention.layer_norm_epsilon", 0, offsetof(mn_hparams, norm_eps)},
        {"attention.layer_norm_rms_epsilon", 0, offsetof(mn_hparams, norm_eps)},
    };
    mn_status st = MN_OK;
    for (size_t i = 0; i < MN_COUNT(rows) && !st; i++)
        st =
            mn_hp_real(r, rows[i].key, rows[i].lo, 1e9, (double *)(void *)((char *)h + rows[i].at));
    if (!st && h->attn_scale <= 0 && f->broad_layers && h->n_layer == f->broad_layers)
        h->attn_scale = 1 / sqrt((double)(h->n_embd / h->n_head));
    return st ? st : mn_hp_bool(r, "use_parallel_residual", &h->parallel_residual);
}

static mn_status read_act(const mn_hp_reader *r, mn_hparams *h) {
    static const char *const acts[] = {
        "silu",        "swish",         "gelu",      "gelu_new",         "gelu_pytorch_tanh",
        "gelu_python", "gelu_accurate", "gelu_fast", "gelu_python_tanh", "relu"};
    static const uint32_t ids[] = {
        MN_ACT_SILU,     MN_ACT_SILU,      MN_ACT_GELU_ERF,  MN_ACT_GELU_TANH, MN_ACT_GELU_TANH,
        MN_ACT_GELU_ERF, MN_ACT_GELU_TANH, MN_ACT_GELU_TANH, MN_ACT_GELU_TANH, MN_ACT_RELU};
    mn_status st = mn_hp_word(r, "minerva.hidden_act", acts, ids, MN_COUNT(acts), &h->act);
    if (st)
        return st;
    st = mn_meta_f64(&r->m->meta, "minerva.norm.offset", &h->norm_offset, r->err);
    return st == MN_END ? MN_OK : st;
}

/* {arch}.vocab_size: a table may have more rows, as padding, never fewer. */
static mn_status check_vocab(const mn_hp_reader *r, const mn_hparams *h) {
    int64_t n = h->n_vocab;
    mn_status st = mn_hp_int(r, "vocab_size", 1, INT32_MAX, &n);
    if (!st && n > h->n_vocab)
        st = mn_fail(r->err, MN_BAD_FILE,
                     "%s: key %s.vocab_size is %lld; token_embd.weight has %lld rows", r->m->path,
                     r->arch, (long long)n, (long long)h->n_vocab);
    return st;
}

static mn_status read_tables(const mn_hp_reader *r, mn_hparams *h) {
    const mn_canonical *m = r->m;
    mn_error *err = r->err;
    const mn_model_tensor_entry *embd = mn_canonical_tensor(m, "token_embd.weight"),
                                *pos = mn_canonical_tensor(m, "position_embd.weight");
    if (pos)
        h->n_pos = pos->info.dim[0];
    if (!embd || embd->info.n_dim != 2)
        return mn_fail(err, MN_BAD_FILE, "%s: tensor token_embd.weight is missing or not a matrix",
                       m->path);
    h->n_vocab = embd->info.dim[0];
    if (h->n_vocab > INT32_MAX)
        return mn_fail(err, MN_BAD_FILE, "%s: token_embd.weight has %lld rows", m->path,
                       (long long)h->n_vocab);
    bool tied = false,
         told = mn_meta_bool(&m->meta, "minerva.tie_word_embeddings", &tied, NULL) == MN_OK;
    h->tied = told ? tied : !mn_canonical_tensor(m, "output.weight");
    return check_vocab(r, h);
}

mn_status mn_hparams_read(const mn_canonical *m, mn_hparams *out, mn_error *err) {
    mn_hparams h = {.norm_eps = 1e-5};
    mn_status st = read_arch(m, &h, err);
    if (st)
        return st;
    const arch_facts f = facts_of(h.arch);
    const mn_hp_reader r = {m, h.arch, err};
    h.act = f.act;
    h.yarn_truncate = !f.yarn_whole;
    h.rope_theta_swa = f.rope_theta_swa;
    h.rope_pairing = f.adjacent ? MN_ROPE_ADJACENT : MN_ROPE_HALVES;
    st = read_shape(&r, &h);
    if (!st)
        st = read_window(&r, &f, &h);
    if (!st)
        st = read_experts(&r, &f, &h);
    if (!st)
        st = read_scales(&r, &f, &h);
    if (!st)
        st = read_act(&r, &h);
    if (!st)
        st = mn_rope_read(&r, &h);
    for (int64_t i = 0; f.no_rope_period && i < h.n_layer; i++)
        if ((i + 1) % f.no_rope_period == 0)
            h.no_rope[i / 8] = (uint8_t)(h.no_rope[i / 8] | 1u << (i % 8));
    bool told = false;
    uint8_t none[MN_MAX_LAYER / 8] = {0};
    if (!st)
        st = mn_hp_layers(&r, "rope.no_rope_layers", h.n_layer, none, &told);
    if (told)
        memcpy(h.no_rope, none, sizeof none);
    if (!st)
        st = read_tables(&r, &h);
    if (!st)
        *out = h;
    return st;
}
