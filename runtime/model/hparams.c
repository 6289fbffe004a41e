/* hparams.c -- hyper-parameters out of metadata: typed, in range, free of contradictions. */
#include "model/hparams_read.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* What an architecture fixes and its files leave out (archs.def). Zero: nothing fixed. */
typedef struct {
    const char *arch, *pre_tokenizer;
    uint32_t act;
    int64_t window_period; /* of p layers the last sees everything, or the first */
    bool full_first;
    bool whole_window;      /* the window counts both sides: half of it before a row, half behind */
    int64_t no_rope_period; /* every p-th layer has no rotation */
    bool asks_rope;         /* none has, unless rope.scaling.finetuned is true */
    bool no_rope_with_window; /* where some layers slide, the others have no rotation */
    double rope_theta_swa;    /* base of window layers, which no scaling applies to */
    bool swa_unscaled;        /* the same with the base of the full layers */
    bool no_attn_softcap;     /* a key says one, and no implementation applies it */
    double attn_scale;        /* of q k^T */
    double alibi;             /* as in mn_hparams */
    int64_t alibi_n_layer;    /* a model of so many layers has alibi, and no rotation; 0: any has */
    bool yarn_whole;          /* the ramp does not begin and end at whole pairs */
    bool route_normalise;
    bool adjacent; /* GGUF's rows of q and k are reordered: neighbouring elements rotate */
    /* as in mn_hparams */
    bool head_norms, row_norms, rotate_first, post_norms, zero_window, bidirectional;
    bool heads_in_turn;   /* GGUF's heads of v read those of q and k in turn */
    bool logit_factor;    /* logit_scale multiplies; else it divides */
    bool has_encoder;     /* layers that read a text stand in front: block_count of them */
    int64_t window;       /* where no key says one; 0: then no layer slides */
    bool needs_window;    /* some layers always slide */
    bool chunks;          /* what slides elsewhere sees chunks; without them all layers rotate */
    mn_q_growth q_growth; /* where some layers see chunks */
    int64_t unit_norms_unless; /* unit_norms, unless the model has so many experts; 0: no */
    bool weigh_inputs;
    uint32_t route;
    bool sigmoid_if_biased; /* the route, where no key says one and a bias corrects the choice */
    double route_jitter;
    /* a model of so many layers scales attention by n_embd / n_head, not by the head's size */
    int64_t attn_scale_from_embd_n_layer;
} arch_facts;
#define NOTHING .act = 0
#define MN_ARCH(name, builder, pre, special, ...) {.arch = name, .pre_tokenizer = pre, __VA_ARGS__},
static const arch_facts archs[] = {
#include "model/archs.def"
};
#undef MN_ARCH
#undef NOTHING

/* NULL: an architecture that this build does not know. */
static const arch_facts *find_facts(mn_str name) {
    for (size_t i = 0; i < MN_COUNT(archs); i++)
        if (mn_str_is(name, archs[i].arch))
            return &archs[i];
    return NULL;
}

/* Those of an architecture that is not known fix nothing. */
static arch_facts hparams_facts_of(const char *arch) {
    const arch_facts *known = find_facts(mn_str_of(arch));
    return known ? *known : (arch_facts){0};
}

const char *mn_arch_pre_tokenizer(const mn_meta *meta) {
    mn_str name = {NULL, 0};
    mn_meta_str(meta, "general.architecture", &name, NULL);
    const arch_facts *known = find_facts(name);
    return known ? known->pre_tokenizer : NULL;
}

uint32_t mn_arch_pairing(const char *arch) {
    return hparams_facts_of(arch).adjacent ? MN_ROPE_ADJACENT : MN_ROPE_HALVES;
}

/* The architecture's name, short and printable: it becomes part of keys and messages. */
static mn_status read_arch(const mn_canonical *m, mn_hparams *h, mn_error *err) {
    mn_str arch;
    mn_status st = mn_meta_str(&m->meta, "general.architecture", &arch, err);
    if (st == MN_END)
        return mn_fail(err, MN_BAD_FILE, "%s: missing key general.architecture", m->path);
    if (st)
        return mn_fail_in(err, st, "%s", m->path);
    bool plain = arch.len && arch.len < sizeof h->arch;
    for (uint64_t i = 0; plain && i < arch.len; i++)
        plain = arch.ptr[i] > ' ' && arch.ptr[i] < 0x7F; /* a NUL would hide what follows */
    if (plain) {
        memcpy(h->arch, arch.ptr, arch.len);
        return MN_OK;
    }
    mn_text shown = {0};
    mn_text_json(&shown, (mn_str){arch.ptr, MN_MIN(arch.len, 100)});
    st = mn_fail(err, MN_BAD_FILE,
                 "%s: general.architecture is %s; expected a short name of letters and digits",
                 m->path, shown.ptr ? shown.ptr : "");
    mn_text_free(&shown);
    return st;
}

/* ---- what a layer is ------------------------------------------------------------------------- */
static bool has_in_layer(const mn_canonical *m, int64_t layer, const char *name) {
    char full[64];
    snprintf(full, sizeof full, "blk.%lld.%s", (long long)layer, name);
    return mn_canonical_tensor(m, full) != NULL;
}

/* Every operation with a state is behind a convolution. */
static bool has_state(const mn_canonical *m, int64_t layer) {
    return has_in_layer(m, layer, "ssm_conv1d.weight") ||
           has_in_layer(m, layer, "ssm_conv1d_q.weight") ||
           has_in_layer(m, layer, "shortconv.conv.weight");
}

/* Where no layer has a state, all attend: what is missing then is said by the graph. The delta
 * rule's layers have an attn_qkv, too. state_group becomes 0 where there are states. */
static void find_mixers(const mn_canonical *m, mn_hparams *h, mn_layer_shape *layers) {
    h->state_group = -1;
    for (int64_t i = h->first_layer; i < h->n_layer; i++)
        if (has_state(m, i))
            h->state_group = 0;
    for (int64_t i = h->first_layer; i < h->n_layer; i++) {
        const bool fused = has_in_layer(m, i, "attn_qkv.weight") && !has_state(m, i);
        const bool of_state = has_in_layer(m, i, "ssm_conv1d_q.weight"); /* Kimi Linear's q, k, v */
        const bool own = fused || (has_in_layer(m, i, "attn_k.weight") && !of_state) ||
                         has_in_layer(m, i, "attn_kv_a_mqa.weight");
        layers[i].attends = own || h->state_group < 0;
    }
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* Of a model with an encoder: the layers of both halves, and what the decoder begins with. */
static mn_status read_halves(const mn_hp_reader *r, mn_hparams *h) {
    int64_t n = h->n_layer;
    h->n_encoder = n;
    mn_status st = mn_hp_int(r, "decoder_block_count", 1, MN_MAX_LAYER, &n);
    h->n_layer += n;
    if (!st && h->n_layer > MN_MAX_LAYER)
        st = mn_fail(r->err, MN_BAD_FILE, "%s: %lld layers, at most %d", r->m->path,
                     (long long)h->n_layer, MN_MAX_LAYER);
    if (!st)
        st = mn_hp_int(r, "decoder_start_token_id", 0, INT32_MAX, &h->start_id);
    return st ? st : mn_hp_need(r, "attention.relative_buckets_count", h->n_buckets);
}

static mn_status read_buckets(const mn_hp_reader *r, mn_hparams *h) {
    mn_status st = mn_hp_int(r, "attention.relative_buckets_count", 4, 65536, &h->n_buckets);
    h->far_distance = 128; /* files of GGUF do not say it */
    if (!st)
        st = mn_hp_int(r, "attention.relative_max_distance", 1, INT32_MAX, &h->far_distance);
    if (!st)
        st = mn_hp_bool(r, "attention.relative_keys", &h->rel_keys);
    if (!st)
        st = mn_hp_bool(r, "attention.relative_queries", &h->rel_queries);
    if (!st && (h->rel_keys || h->rel_queries) && h->far_distance > 32768)
        st = mn_fail(r->err, MN_BAD_FILE,
                     "%s: key %s.attention.relative_max_distance is %lld, expected 1 to 32768",
                     r->m->path, r->arch, (long long)h->far_distance);
    return st;
}

/* The convolution of encoders: an odd number of rows, so that one is in the middle. */
static mn_status read_taps(const mn_hp_reader *r, mn_hparams *h) {
    static const char *const acts[] = {"tanh", "gelu", "relu", "silu", "swish", "gelu_new"};
    static const uint32_t ids[] = {MN_TAPS_TANH, MN_ACT_GELU_ERF, MN_ACT_RELU,
                                   MN_ACT_SILU,  MN_ACT_SILU,     MN_ACT_GELU_TANH};
    char act[64]; /* the key with the name of the architecture */
    snprintf(act, sizeof act, "%s.text_conv.activation", r->arch);
    h->taps_act = MN_TAPS_TANH;
    h->n_tap_groups = 1;
    mn_status st = mn_hp_int(r, "text_conv.kernel_size", 1, MN_MAX_TAPS, &h->n_taps);
    if (!st)
        st = mn_hp_int(r, "text_conv.groups", 1, h->n_embd, &h->n_tap_groups);
    if (!st && h->n_taps)
        st = mn_hp_word(r, act, acts, ids, MN_COUNT(acts), &h->taps_act);
    if (!st && (h->n_taps % 2 == 0) && h->n_taps)
        st =
            mn_fail(r->err, MN_BAD_FILE, "%s: key %.*s is %lld, expected an odd number", r->m->path,
                    MN_STR_ARG(mn_hp_shown_key(r, "text_conv.kernel_size")), (long long)h->n_taps);
    if (!st && h->n_embd % h->n_tap_groups)
        st = mn_fail(r->err, MN_BAD_FILE, "%s: key %.*s is %lld, expected a divisor of %lld",
                     r->m->path, MN_STR_ARG(mn_hp_shown_key(r, "text_conv.groups")),
                     (long long)h->n_tap_groups, (long long)h->n_embd);
    return st;
}

/* Layers that guess further tokens are counted, and come last; of a head the first of them. */
static mn_status read_layer_counts(mn_hp_reader *r, const arch_facts *f, bool head, mn_hparams *h) {
    int64_t ahead = 0;
    mn_status st = mn_hp_need_int(r, "block_count", 1, MN_MAX_LAYER, &h->n_layer);
    if (!st)
        st = read_buckets(r, h);
    if (!st && f->has_encoder)
        st = read_halves(r, h);
    if (!st)
        st = mn_hp_int(r, "nextn_predict_layers", 0, h->n_layer - 1, &ahead);
    if (st)
        return st;
    h->n_layer -= ahead;
    h->has_head = ahead && has_in_layer(r->m, h->n_layer, "nextn.eh_proj.weight");
    r->n_behind = ahead;
    if (!head)
        return MN_OK;
    if (!h->has_head)
        return mn_fail(r->err, MN_UNSUPPORTED,
                       "%s: the model has no draft head (tensors nextn.*, in checkpoints mtp.*)",
                       r->m->path);
    h->first_layer = h->n_layer++;
    r->n_behind = ahead - 1;
    return MN_OK;
}

static mn_status read_shape(mn_hp_reader *r, const arch_facts *f, bool head, mn_hparams *h) {
    enum { BIG = 1 << 24 };
    mn_status st = read_layer_counts(r, f, head, h);
    if (!st)
        st = mn_hp_need_int(r, "embedding_length", 1, BIG, &h->n_embd);
    if (!st)
        st = read_taps(r, h);
    if (st)
        return st;
    return mn_hp_int(r, "context_length", 1, INT32_MAX, &h->n_ctx_train);
}

/* Widths of the feed-forward blocks, dense and of experts. */
static mn_status read_widths(const mn_hp_reader *r, const mn_hparams *h, mn_layer_shape *layers) {
    enum { BIG = 1 << 24 };
    int64_t ff[MN_MAX_LAYER] = {0};
    int64_t expert[MN_MAX_LAYER] = {0};
    const int64_t lo = mn_hp_all_attend(h); /* else a layer may be nothing but its state */
    mn_status st = mn_hp_each_int(r, "expert_feed_forward_length", h->n_layer, lo, BIG, expert);
    memcpy(ff, expert, sizeof ff); /* a model of experts alone may leave it out */
    if (!st)
        st = mn_hp_each_int(r, "feed_forward_length", h->n_layer, lo, BIG, ff);
    if (!st && lo)
        st = mn_hp_need(r, "feed_forward_length", ff[0]);
    for (int64_t i = 0; i < h->n_layer && !st; i++) {
        layers[i].n_ff = ff[i];
        if (expert[i])
            layers[i].n_ff_expert = expert[i];
        else
            layers[i].n_ff_expert = ff[i];
    }
    return st;
}

/* The rows of the experts that every token uses, of files that do not say it; 0: there are none. */
static int64_t rows_of_shared(const mn_canonical *m, int64_t layer) {
    char name[64];
    snprintf(name, sizeof name, "blk.%lld.ffn_up_shexp.weight", (long long)layer);
    const mn_model_tensor_entry *e = mn_canonical_tensor(m, name);
    return e ? e->info.dim[0] : 0;
}

/* Of the experts that every token uses: their width together, or the width of each and how many. */
static mn_status read_shared(const mn_hp_reader *r, const mn_hparams *h, mn_layer_shape *layers) {
    enum { BIG = 1 << 24 };
    int64_t width = 0;
    int64_t n = 0;
    mn_status st = mn_hp_int(r, "expert_shared_feed_forward_length", 0, BIG, &width);
    if (!st)
        st = mn_hp_int(r, "expert_shared_count", 0, 65536, &n);
    for (int64_t i = 0; i < h->n_layer && !st; i++) {
        layers[i].n_ff_shared = width;
        if (!width)
            layers[i].n_ff_shared = n * layers[i].n_ff_expert;
        if (!width && !n)
            layers[i].n_ff_shared = rows_of_shared(r->m, i);
    }
    return st;
}

/* Whether layer i of periods of p layers slides; p 0: all do. */
static bool slides_by_rule(const arch_facts *f, int64_t p, int64_t i) {
    if (!p)
        return true;
    if (f->full_first)
        return i % p != 0;
    return i % p < p - 1;
}

/* A pattern that is one number is a period, which begins as the architecture's does. */
static mn_status read_period(const mn_hp_reader *r, const arch_facts *f, int64_t n_layer,
                             uint8_t *slides) {
    static const char key[] = "attention.sliding_window_pattern";
    char full[64];
    int64_t period = 0;
    snprintf(full, sizeof full, "%s.%s", r->arch, key);
    const mn_meta_entry *e = mn_meta_find(&r->m->meta, full);
    if (!f->full_first || !e || e->value.type != MN_VALUE_INT)
        return MN_OK;
    mn_status st = mn_hp_int(r, key, 1, MN_MAX_LAYER, &period);
    for (int64_t i = 0; !st && i < n_layer; i++)
        slides[i] = slides_by_rule(f, period, i);
    return st;
}

/* How many positions each layer sees; 0 = all. The file's pattern, else the architecture's rule. */
static mn_status read_window(const mn_hp_reader *r, const arch_facts *f, const mn_hparams *h,
                             mn_layer_shape *layers) {
    uint8_t slides[MN_MAX_LAYER] = {0};
    bool told = false;
    int64_t window = f->window;
    int64_t n = 0;
    mn_status st = mn_hp_int(r, "attention.sliding_window", 0, INT32_MAX, &window);
    if (!st)
        st = mn_hp_layers(r, "attention.sliding_window_pattern", h->n_layer, slides, &told);
    if (!st)
        st = read_period(r, f, h->n_layer, slides);
    if (f->whole_window && window)
        window = window / 2 + 1;
    for (int64_t i = 0; !st && i < h->n_layer; i++) {
        bool does = slides_by_rule(f, f->window_period, i);
        if (told)
            does = slides[i];
        if (does)
            layers[i].window = window;
        else
            layers[i].window = 0;
        layers[i].chunked = f->chunks && layers[i].window;
        n += does && (told || f->needs_window);
    }
    if (!st && !window && n)
        st = mn_fail(r->err, MN_BAD_FILE,
                     "%s: key %s.attention.sliding_window is missing or 0, expected how many "
                     "positions the %lld layers see that slide",
                     r->m->path, r->arch, (long long)n);
    return st;
}

/* Layers without rotation get rope -1. */
static mn_status read_no_rope(const mn_hp_reader *r, const arch_facts *f, const mn_hparams *h,
                              mn_layer_shape *layers) {
    uint8_t none[MN_MAX_LAYER] = {0};
    bool told = false;
    bool any_slides = false;
    bool asked = false;
    mn_status st = mn_hp_layers(r, "rope.no_rope_layers", h->n_layer, none, &told);
    if (!st)
        st = mn_hp_bool(r, "rope.scaling.finetuned", &asked);
    for (int64_t i = 0; i < h->n_layer; i++)
        any_slides = any_slides || layers[i].window;
    for (int64_t i = 0; !st && i < h->n_layer; i++) {
        bool without = f->no_rope_period && (i + 1) % f->no_rope_period == 0;
        if (f->chunks && !any_slides)
            without = false;
        if (f->no_rope_with_window)
            without = any_slides && !layers[i].window;
        if (f->asks_rope)
            without = !asked;
        if (f->alibi_n_layer)
            without = h->n_layer == f->alibi_n_layer;
        if (told)
            without = none[i];
        if (without || !layers[i].attends)
            layers[i].rope = -1;
        else
            layers[i].rope = 0;
    }
    return st;
}

/* Some layers of a model with experts may be dense: those without a router. */
static bool has_router(const mn_canonical *m, int64_t layer) {
    return has_in_layer(m, layer, "ffn_gate_inp.weight");
}

/* Every layer has experts if none has a router: that one is missing is said by the graph. */
static void set_experts(const mn_canonical *m, const mn_hparams *h, int64_t n_used,
                        mn_layer_shape *layers) {
    bool routed = false;
    for (int64_t i = 0; i < h->n_layer; i++)
        routed = routed || has_router(m, i);
    for (int64_t i = 0; i < h->n_layer; i++) {
        if (routed && !has_router(m, i))
            continue;
        layers[i].n_expert = h->n_expert;
        layers[i].n_expert_used = n_used;
        layers[i].expert_share = mn_canonical_expert_share(m, i);
    }
}

/* Groups that are all used are none. */
static mn_status read_route_groups(const mn_hp_reader *r, mn_hparams *h, int64_t used) {
    mn_status st = mn_hp_int(r, "expert_group_count", 0, h->n_expert, &h->route_groups);
    if (!st && h->route_groups > 1)
        st =
            mn_hp_need_int(r, "expert_group_used_count", 1, h->route_groups, &h->route_groups_used);
    if (st || h->route_groups < 2 || h->route_groups == h->route_groups_used) {
        h->route_groups = 0;
        return st;
    }
    const int64_t each = h->n_expert / h->route_groups;
    if (h->n_expert % h->route_groups || each * h->route_groups_used < used)
        return mn_fail(
            r->err, MN_BAD_FILE,
            "%s: %s.expert_group_count is %lld, of which %lld are used; expected groups "
            "of equal size of the %lld experts, with at least %lld experts in those used",
            r->m->path, r->arch, (long long)h->route_groups, (long long)h->route_groups_used,
            (long long)h->n_expert, (long long)used);
    return MN_OK;
}

static mn_status read_experts(const mn_hp_reader *r, const arch_facts *f, mn_hparams *h,
                              mn_layer_shape *layers) {
    static const uint32_t kinds[] = {0, MN_ROUTE_SOFTMAX, MN_ROUTE_SIGMOID, MN_ROUTE_TOPK_SOFTMAX};
    int64_t gating = 0;
    int64_t used = 0;
    mn_status st = mn_hp_int(r, "expert_count", 0, 65536, &h->n_expert);
    if (st || !h->n_expert)
        return st;
    st = mn_hp_need_int(r, "expert_used_count", 1, h->n_expert, &used);
    set_experts(r->m, h, used, layers);
    h->route_normalise = f->route_normalise;
    h->weigh_inputs = f->weigh_inputs;
    h->route = f->route;
    h->route_jitter = f->route_jitter;
    if (!st)
        st = mn_hp_int(r, "expert_gating_func", 0, 3, &gating);
    if (!st && gating)
        h->route = kinds[gating];
    else if (!st && f->sigmoid_if_biased && has_in_layer(r->m, h->n_layer - 1, "exp_probs_b.bias"))
        h->route = MN_ROUTE_SIGMOID;
    if (!st)
        st = mn_hp_int(r, "moe_latent_size", 0, 1 << 24, &h->n_latent);
    if (!st)
        st = mn_hp_bool(r, "expert_weights_norm", &h->route_normalise);
    if (!st)
        st = mn_hp_real(r, "expert_weights_scale", 0, 1e6, &h->route_scale);
    if (!st)
        st = mn_hp_real(r, "expert_route_jitter", 0, 1, &h->route_jitter);
    if (!st)
        st = read_route_groups(r, h, used);
    return st;
}

/* {arch}.attention.scale; else 1 / sqrt of the head's size, or of the embedding's share. */
static mn_status read_attn_scale(const mn_hp_reader *r, const arch_facts *f, const mn_hparams *h,
                                 mn_layer_shape *layers) {
    const bool from_embd =
        f->attn_scale_from_embd_n_layer && h->n_layer == f->attn_scale_from_embd_n_layer;
    double said = f->attn_scale;
    mn_status st = mn_hp_real(r, "attention.scale", 0, 1e9, &said);
    for (int64_t i = 0; i < h->n_layer; i++) {
        if (!layers[i].attends)
            continue;
        int64_t width = from_embd ? h->n_embd / layers[i].n_head : layers[i].head_dim_k;
        if (h->latent.n_kv)
            width = h->latent.dim_k;
        if (said > 0)
            layers[i].attn_scale = said;
        else
            layers[i].attn_scale = 1 / sqrt((double)width);
    }
    return st;
}

/* Of latent attention yarn's magnitude is in the scale of q k^T (DeepSeek-AI 2024): the part of a
 * head that does not rotate has it, too. */
static void scale_latent(const mn_hparams *h, mn_layer_shape *layers) {
    const bool is_yarn = h->rope_scaling == MN_ROPE_SCALING_YARN && h->rope_factor > 1;
    const double by = 1 + h->latent.yarn_log * log(h->rope_factor);
    for (int64_t i = 0; i < h->n_layer && is_yarn && h->latent.n_kv; i++)
        layers[i].attn_scale *= by * by;
}

/* The streams of AltUp, and where the gates of MLPs are cut: of each layer the deviations above the
 * mean, minus infinity where nothing is. */
static mn_status read_altup(const mn_hp_reader *r, mn_arena *arena, mn_hparams *h,
                            mn_layer_shape *layers) {
    mn_altup *a = &h->altup;
    double *spread = mn_arena_alloc(arena, (size_t)h->n_layer, sizeof *spread);
    if (!spread)
        return mn_fail_memory(r->err, (uint64_t)h->n_layer * sizeof *spread);
    for (int64_t i = 0; i < h->n_layer; i++)
        spread[i] = -INFINITY;
    a->scales = true;
    mn_status st = mn_hp_int(r, "altup.num_inputs", 2, MN_MAX_STREAMS, &a->n);
    if (!st && a->n)
        st = mn_hp_int(r, "altup.active_idx", 0, a->n - 1, &a->active);
    if (!st)
        st = mn_hp_bool(r, "altup.scales", &a->scales);
    if (!st)
        st = mn_hp_reals(r, "activation_sparsity_scale", (uint64_t)h->n_layer, spread);
    for (int64_t i = 0; i < h->n_layer; i++) {
        layers[i].sparse = spread[i] > -INFINITY;
        layers[i].spread = layers[i].sparse ? spread[i] : 0;
    }
    return st;
}

/* Kimi delta attention has as many heads of k as of v, and of the layers that attend unless a key
 * says another number, all of one width. */
static mn_status read_kda(const mn_hp_reader *r, mn_hparams *h) {
    int64_t width = 0;
    int64_t n = 0;
    mn_status st = mn_hp_int(r, "kda.head_dim", 1, 65536, &width);
    if (st || !width)
        return st;
    st = mn_hp_need_int(r, "attention.head_count", 1, 65536, &n);
    if (!st)
        st = mn_hp_int(r, "kda.head_count", 1, 65536, &n);
    h->ssm.n_head = h->ssm.n_group = n;
    h->ssm.state = width;
    h->ssm.inner = n * width;
    return st;
}

/* Sizes of the states; whether they agree with the tensors is the graph's question. */
static mn_status read_ssm(const mn_hp_reader *r, mn_hparams *h) {
    enum { BIG = 1 << 24 };
    mn_ssm *s = &h->ssm;
    const struct {
        const char *key;
        int64_t *to;
    } sizes[] = {{"ssm.conv_kernel", &s->conv},      {"shortconv.l_cache", &s->conv},
                 {"ssm.state_size", &s->state},      {"ssm.inner_size", &s->inner},
                 {"ssm.time_step_rank", &s->n_head}, {"ssm.group_count", &s->n_group}};
    const struct {
        const char *key;
        double *to;
    } numbers[] = {{"ssm.time_step_min", &s->dt_min},
                   {"ssm.time_step_max", &s->dt_max},
                   {"ssm.beta_scale", &s->beta_scale},
                   {"ssm.in_scale", &s->in_scale},
                   {"ssm.out_scale", &s->out_scale}};
    mn_status st = MN_OK;
    s->n_group = 1;
    for (size_t i = 0; i < MN_COUNT(sizes) && !st; i++)
        st = mn_hp_int(r, sizes[i].key, 1, BIG, sizes[i].to);
    if (!st)
        st = read_kda(r, h);
    for (size_t i = 0; i < MN_COUNT(numbers) && !st; i++)
        st = mn_hp_real(r, numbers[i].key, 0, 1e9, numbers[i].to);
    if (!st)
        st = mn_hp_reals(r, "ssm.part_scales", MN_COUNT(s->parts), s->parts);
    if (!st)
        st = mn_hp_bool(r, "ssm.norm_before_gate", &s->norm_first);
    if (!st)
        st = mn_hp_bool(r, "ssm.heads_in_turn", &s->heads_in_turn);
    if (st)
        return st;
    st = mn_meta_bool(&r->m->meta, "minerva.heads_in_turn", &s->heads_in_turn, r->err);
    return st == MN_END ? MN_OK : st;
}

static mn_status fail_ssm(const mn_hp_reader *r, const char *key, int64_t found, const char *what) {
    return mn_fail(r->err, MN_BAD_FILE, "%s: key %.*s is %lld, expected %s", r->m->path,
                   MN_STR_ARG(mn_hp_shown_key(r, key)), (long long)found, what);
}

/* Whether some layer has a state of heads, not that of a convolution alone. */
static bool has_heads(const mn_canonical *m, const mn_hparams *h) {
    for (int64_t i = 0; i < h->n_layer; i++)
        if (has_in_layer(m, i, "ssm_conv1d.weight") || has_in_layer(m, i, "ssm_conv1d_q.weight"))
            return true;
    return false;
}

/* What the blocks of a layer divide by, where some layer has the operation. */
static mn_status check_ssm(const mn_hp_reader *r, const mn_hparams *h) {
    const mn_ssm *s = &h->ssm;
    const char *conv = has_heads(r->m, h) ? "ssm.conv_kernel" : "shortconv.l_cache";
    if (h->state_group < 0)
        return MN_OK;
    if (has_heads(r->m, h) && !s->inner)
        return mn_hp_need(r, "ssm.inner_size", 0);
    if (!s->conv)
        return mn_hp_need(r, conv, 0);
    if (s->conv < 2)
        return fail_ssm(r, conv, s->conv, "2 or more rows");
    if (!s->inner)
        return MN_OK;
    if (!s->n_head)
        return mn_hp_need(r, "ssm.time_step_rank", 0);
    if (s->inner % s->n_head)
        return fail_ssm(r, "ssm.inner_size", s->inner, "a multiple of ssm.time_step_rank");
    if (s->n_head % s->n_group)
        return fail_ssm(r, "ssm.time_step_rank", s->n_head, "a multiple of ssm.group_count");
    if (!s->state)
        return mn_hp_need(r, "ssm.state_size", 0);
    return MN_OK;
}

/* What layers with chunks bring: queries that grow in the others, and heads of length 1. */
static mn_status read_growth(const mn_hp_reader *r, const arch_facts *f, mn_hparams *h) {
    bool any = false;
    for (int64_t i = 0; i < h->n_layer; i++)
        any = any || h->layer[i].chunked;
    if (any || f->q_growth.in_all)
        h->q_growth = f->q_growth;
    h->unit_norms = f->unit_norms_unless && h->n_expert != f->unit_norms_unless;
    mn_status st = mn_hp_real(r, "attention.temperature_scale", 0, 1e3, &h->q_growth.scale);
    if (!st && f->q_growth.in_all)
        st =
            mn_hp_int(r, "rope.scaling.original_context_length", 1, INT32_MAX, &h->q_growth.length);
    if (!st)
        st = mn_hp_int(r, "attention.temperature_length", 1, INT32_MAX, &h->q_growth.length);
    if (!st)
        st = mn_hp_bool(r, "attention.unit_norms", &h->unit_norms);
    if (!st && h->q_growth.scale > 0 && !h->q_growth.length)
        st = mn_hp_need(r, "attention.temperature_length", 0);
    return st;
}

/* The four numbers of xIELU, by layer; keys of GGUF without the architecture's name. The factors of
 * x^2 are softplus(alpha_p) and beta + softplus(alpha_n). */
static mn_status read_xielu(const mn_hp_reader *r, const mn_hparams *h, mn_layer_shape *layers) {
    static const struct {
        const char *key;
        size_t at;
    } rows[] = {{"xielu.alpha_p", offsetof(mn_xielu, alpha_p)},
                {"xielu.alpha_n", offsetof(mn_xielu, alpha_n)},
                {"xielu.beta", offsetof(mn_xielu, beta)},
                {"xielu.eps", offsetof(mn_xielu, eps)}};
    for (size_t k = 0; k < MN_COUNT(rows); k++) {
        double all[MN_MAX_LAYER];
        const mn_status st = mn_hp_each_own(r, rows[k].key, h->n_layer, all);
        if (st)
            return st;
        for (int64_t i = 0; i < h->n_layer; i++)
            *(double *)(void *)((char *)&layers[i].xielu + rows[k].at) = all[i];
    }
    for (int64_t i = 0; i < h->n_layer && mn_meta_find(&r->m->meta, rows[0].key); i++) {
        mn_xielu *x = &layers[i].xielu;
        x->alpha_p = log1p(exp(x->alpha_p));
        x->alpha_n = x->beta + log1p(exp(x->alpha_n));
    }
    return MN_OK;
}

/* Everything that may differ by layer. Windows come first: other keys depend on them. */
static mn_status read_layers(const mn_hp_reader *r, const arch_facts *f, mn_arena *arena,
                             mn_hparams *h) {
    mn_layer_shape *layers = mn_arena_alloc(arena, (size_t)h->n_layer, sizeof *layers);
    if (!layers)
        return mn_fail_memory(r->err, (uint64_t)h->n_layer * sizeof *layers);
    h->layer = layers;
    find_mixers(r->m, h, layers);
    mn_status st = read_window(r, f, h, layers);
    if (!st)
        st = mn_hp_read_latent(r, h);
    if (!st)
        st = mn_hp_read_heads(r, h, layers);
    if (!st)
        st = read_widths(r, h, layers);
    if (!st)
        st = read_shared(r, h, layers);
    if (!st)
        st = read_experts(r, f, h, layers);
    if (!st)
        st = read_growth(r, f, h);
    if (!st && f->act == MN_ACT_XIELU)
        st = read_xielu(r, h, layers);
    if (!st)
        st = read_attn_scale(r, f, h, layers);
    if (!st)
        st = read_no_rope(r, f, h, layers);
    if (!st)
        st = mn_rope_read(r, h, layers, f->swa_unscaled ? MN_ROPE_THETA_SAME : f->rope_theta_swa);
    scale_latent(h, layers);
    if (!st)
        st = mn_hp_read_shared_caches(r, h, layers);
    if (!st)
        st = mn_hp_int(r, "embedding_length_per_layer_input", 0, 1 << 20, &h->n_of_layer);
    if (!st)
        st = read_altup(r, arena, h, layers);
    if (!st)
        st = mn_hp_group_layers(r, h, layers);
    h->ssm.heads_in_turn = f->heads_in_turn;
    if (!st)
        st = read_ssm(r, h);
    if (st)
        return st;
    return check_ssm(r, h);
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* Factors and epsilons, each in its field; absent ones stay 0, norm_eps at its default. */
static mn_status read_scales(const mn_hp_reader *r, mn_hparams *h) {
    static const struct {
        const char *key;
        double lo;
        size_t at;
    } rows[] = {
        {"embedding_scale", 0, offsetof(mn_hparams, embd_scale)},
        {"residual_scale", 0, offsetof(mn_hparams, residual_scale)},
        {"attn_logit_softcapping", 0, offsetof(mn_hparams, attn_softcap)},
        {"logit_scale", 0, offsetof(mn_hparams, logit_scale)},
        {"final_logit_softcapping", 0, offsetof(mn_hparams, logit_softcap)},
        {"attention.max_alibi_bias", 0, offsetof(mn_hparams, alibi)},
        {"attention.in_scale", 0, offsetof(mn_hparams, attn_in_scale)},
        {"attention.out_scale", 0, offsetof(mn_hparams, attn_out_scale)},
        {"feed_forward.gate_scale", 0, offsetof(mn_hparams, gate_scale)},
        {"feed_forward.down_scale", 0, offsetof(mn_hparams, down_scale)},
        {"attention.layer_norm_epsilon", 0, offsetof(mn_hparams, norm_eps)},
        {"attention.layer_norm_rms_epsilon", 0, offsetof(mn_hparams, norm_eps)},
    };
    mn_status st = MN_OK;
    for (size_t i = 0; i < MN_COUNT(rows) && !st; i++) {
        char *at = (char *)h + rows[i].at;
        st = mn_hp_real(r, rows[i].key, rows[i].lo, 1e9, (double *)(void *)at);
    }
    if (st)
        return st;
    return mn_hp_bool(r, "use_parallel_residual", &h->parallel_residual);
}

/* The activation by the names that checkpoints use, and the offset of norm weights. */
static mn_status read_act(const mn_hp_reader *r, const arch_facts *f, mn_hparams *h) {
    static const char *const acts[] = {
        "silu",        "swish",         "gelu",      "gelu_new",         "gelu_pytorch_tanh",
        "gelu_python", "gelu_accurate", "gelu_fast", "gelu_python_tanh", "relu",
        "relu2",       "xielu"};
    static const uint32_t ids[] = {MN_ACT_SILU,      MN_ACT_SILU,      MN_ACT_GELU_ERF,
                                   MN_ACT_GELU_TANH, MN_ACT_GELU_TANH, MN_ACT_GELU_ERF,
                                   MN_ACT_GELU_TANH, MN_ACT_GELU_TANH, MN_ACT_GELU_TANH,
                                   MN_ACT_RELU,      MN_ACT_RELU2,     MN_ACT_XIELU};
    const size_t n = MN_COUNT(acts) - (f->act != MN_ACT_XIELU); /* the last is of few */
    mn_status st = mn_hp_word(r, "minerva.hidden_act", acts, ids, n, &h->act);
    if (!st && h->act == MN_ACT_XIELU && !(h->layer[0].xielu.alpha_p > 0))
        st = mn_fail(r->err, MN_BAD_FILE, "%s: missing key xielu.alpha_p", r->m->path);
    if (st)
        return st;
    st = mn_meta_f64(&r->m->meta, "minerva.norm.offset", &h->norm_offset, r->err);
    if (st == MN_END)
        return MN_OK;
    return st;
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

/* What the tables of embeddings say: vocabulary, learned positions, whether the output is tied. */
static mn_status hparams_read_tables(const mn_hp_reader *r, mn_hparams *h) {
    const mn_canonical *m = r->m;
    mn_error *err = r->err;
    const mn_model_tensor_entry *embd = mn_canonical_tensor(m, "token_embd.weight");
    const mn_model_tensor_entry *pos = mn_canonical_tensor(m, "position_embd.weight");
    if (pos)
        h->n_pos = pos->info.dim[0];
    if (!embd || embd->info.n_dim != 2)
        return mn_fail(err, MN_BAD_FILE, "%s: tensor token_embd.weight is missing or not a matrix",
                       m->path);
    h->n_vocab = embd->info.dim[0];
    if (h->n_vocab > INT32_MAX)
        return mn_fail(err, MN_BAD_FILE, "%s: token_embd.weight has %lld rows", m->path,
                       (long long)h->n_vocab);
    h->tied = !mn_canonical_tensor(m, "output.weight");
    const mn_status st = mn_meta_bool(&m->meta, "minerva.tie_word_embeddings", &h->tied, err);
    if (st && st != MN_END)
        return mn_fail_in(err, st, "%s", m->path);
    return check_vocab(r, h);
}

/* T5 divides the logits of a tied output matrix by the root of its width. */
static mn_status check_halves(const mn_hp_reader *r, mn_hparams *h) {
    if (h->tied && h->logit_scale == 0)
        h->logit_scale = sqrt((double)h->n_embd);
    if (h->start_id < h->n_vocab)
        return MN_OK;
    return mn_fail(r->err, MN_BAD_FILE,
                   "%s: key %.*s is %lld, expected an id of the vocabulary of %lld", r->m->path,
                   MN_STR_ARG(mn_hp_shown_key(r, "decoder_start_token_id")), (long long)h->start_id,
                   (long long)h->n_vocab);
}

/* {arch}.attention.causal: false of encoders, whose architecture says so without the key. */
static mn_status read_causal(const mn_hp_reader *r, const arch_facts *f, mn_hparams *h) {
    bool causal = !f->bidirectional;
    mn_status st = mn_hp_bool(r, "attention.causal", &causal);
    h->bidirectional = !causal;
    if (!st && causal && f->bidirectional)
        st = mn_fail(r->err, MN_UNSUPPORTED,
                     "%s: key %s.attention.causal is true, expected false: %s is an encoder",
                     r->m->path, r->arch, r->arch);
    return st;
}

bool mn_hparams_is_encoder(const mn_canonical *m) {
    mn_hparams h = {0};
    if (read_arch(m, &h, NULL))
        return false;
    const arch_facts f = hparams_facts_of(h.arch);
    const mn_hp_reader r = {m, h.arch, NULL, 0};
    return !read_causal(&r, &f, &h) && h.bidirectional;
}

bool mn_hparams_has_head(const mn_canonical *m) {
    mn_hparams h = {0};
    if (read_arch(m, &h, NULL))
        return false;
    const arch_facts f = hparams_facts_of(h.arch);
    mn_hp_reader r = {m, h.arch, NULL, 0};
    return !read_layer_counts(&r, &f, false, &h) && h.has_head;
}

/* head: of the model's draft head. */
static mn_status hparams_read(const mn_canonical *m, mn_arena *arena, bool head, mn_hparams *out,
                              mn_error *err) {
    mn_hparams h = {.norm_eps = 1e-5};
    mn_status st = read_arch(m, &h, err);
    if (st)
        return st;
    const arch_facts f = hparams_facts_of(h.arch);
    mn_hp_reader r = {m, h.arch, err, 0};
    h.act = f.act;
    h.head_norms = f.head_norms;
    h.row_norms = f.row_norms;
    h.rotate_first = f.rotate_first;
    h.post_norms = f.post_norms;
    h.zero_window = f.zero_window;
    if (!f.alibi_n_layer)
        h.alibi = f.alibi;
    h.yarn_truncate = !f.yarn_whole;
    h.rope_pairing = mn_arch_pairing(h.arch);
    st = read_causal(&r, &f, &h);
    if (!st)
        st = read_shape(&r, &f, head, &h);
    if (!st)
        st = read_layers(&r, &f, arena, &h);
    if (!st)
        st = read_scales(&r, &h);
    if (f.no_attn_softcap)
        h.attn_softcap = 0;
    if (f.alibi_n_layer && h.n_layer == f.alibi_n_layer)
        h.alibi = f.alibi;
    if (f.logit_factor && h.logit_scale > 0)
        h.logit_scale = 1 / h.logit_scale;
    if (h.n_encoder && mn_canonical_tensor(m, "enc.blk.0.ffn_gate.weight"))
        h.act = MN_ACT_GELU_TANH; /* of T5 1.1; files of GGUF do not say it */
    if (!st)
        st = read_act(&r, &f, &h);
    if (!st)
        st = hparams_read_tables(&r, &h);
    if (!st && h.n_encoder)
        st = check_halves(&r, &h);
    if (!st)
        *out = h;
    return st;
}

mn_status mn_hparams_read(const mn_canonical *m, mn_arena *arena, mn_hparams *out, mn_error *err) {
    return hparams_read(m, arena, false, out, err);
}

mn_status mn_hparams_read_head(const mn_canonical *m, mn_arena *arena, mn_hparams *out,
                               mn_error *err) {
    return hparams_read(m, arena, true, out, err);
}
