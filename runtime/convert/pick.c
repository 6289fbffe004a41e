/* pick.c -- the type of each tensor of a converted file: by a rule of the user, by the mix that
 * --type names, or the one that holds what is stored.
 *
 * A mix stores in more bits what a model is sensitive to: the output matrix, attn_v, ffn_down. The
 * table of mixes is the choice of llama-quantize (llama.cpp of 2026), so that a name means the same
 * file everywhere. Nothing is read here but rows of scales, where a type depends on them. */
#include "convert/convert.h"
#include "model/rows.h"
#include <stdio.h>
#include <string.h>

static bool pick_begins(mn_str s, const char *z) {
    return s.len >= strlen(z) && !memcmp(s.ptr, z, strlen(z));
}

static bool is_experts(mn_str rest) {
    return mn_str_ends(rest, "_exps.weight");
}

/* Small, or read as f32 by every reader: norms, biases, routers, sinks, learned positions,
 * angles. */
static bool stays_f32(const mn_tensor_info *t, mn_str rest) {
    if (t->n_dim < 2 || mn_str_ends(rest, ".bias") || mn_str_ends(rest, "norm.weight"))
        return true;
    return mn_str_is(rest, "ffn_gate_inp.weight") || mn_str_is(rest, "position_embd.weight") ||
           mn_str_is(rest, "token_types.weight") || pick_begins(rest, "cls.") ||
           pick_begins(rest, "dense_") || mn_str_is(rest, "altup_router.weight") ||
           mn_str_ends(rest, "_coef.weight") || pick_begins(rest, "ssm_conv1d_") ||
           mn_str_is(rest, "rel_embd.weight") || pick_begins(rest, "text_conv");
}

/* ---- as stored ------------------------------------------------------------------------------- */

/* Every scale and offset is an f16: then Q4_1 holds the same values. */
static bool halves_suffice(const mn_tensor_info *t) {
    const uint64_t rows = mn_row_count(t);
    const int64_t n = t->dim[t->n_dim - 1] / t->dtype.block_elems;
    for (uint32_t plane = 1; plane < 3; plane++) {
        const uint32_t type = mn_tensor_plane(t, 0, plane)->dtype;
        for (uint64_t r = 0; r < rows; r++) {
            const mn_row_place p = mn_row_find(t, r, plane);
            for (int64_t b = 0; b < n; b++) {
                const float v = mn_plane_value(type, p.at + b * p.step);
                const float half = mn_f16_to_f32(mn_f32_to_f16(v));
                if (!(half == v))
                    return false;
            }
        }
    }
    return true;
}

bool mn_convert_fits_q4_1(const mn_tensor_info *t) {
    const uint32_t bits = mn_mlx_bits(t->dtype.id);
    return bits && bits <= 4 && halves_suffice(t);
}

/* GGUF's type for one that it lacks, and that holds the same values, or nearly: f16. */
static uint32_t kept_type(const mn_tensor_info *t) {
    uint32_t number;
    if (t->dtype.id == MN_F64) /* nothing computes with it */
        return MN_F32;
    if (mn_dtype_ggml(t->dtype.id, &number) && t->n_planes == 1)
        return t->dtype.id;
    if (t->dtype.id == MN_MXFP4_SPLIT)
        return MN_MXFP4;
    if (mn_convert_fits_q4_1(t))
        return MN_Q4_1;
    return MN_F16;
}

/* ---- mixes ----------------------------------------------------------------------------------- */

/* Of n tensors of a kind, one of each layer: which ones a choice is for. */
typedef enum {
    NOWHERE,
    EVERYWHERE,
    FIRST_2,
    FIRST_4,
    FIRST_16TH,
    FIRST_8TH,
    SPREAD, /* the first and last eighth, and of the others every third */
} place;
typedef struct {
    place at;
    uint32_t dtype;
} choice;
enum { CHOICES = 2 };
/* The first choice that applies counts; where none does, and for 0, the type is the mix's own. */
typedef struct {
    choice value[CHOICES]; /* attn_v, attn_qkv, attn_kv_b */
    uint32_t grouped;      /* the same, where four heads of q or more share one of k and v */
    choice down[CHOICES];  /* ffn_down */
    uint32_t attn_output;
    uint32_t attn_output_8; /* the same of models with eight experts */
    choice falcon[CHOICES]; /* ffn_down of Falcon */
    uint32_t falcon_output; /* attn_output of Falcon */
} mix;

static const mix mixes[MN_MIX_COUNT] = {
    [MN_MIX_Q2_K] =
        {
            .value = {{EVERYWHERE, MN_Q3_K}},
            .grouped = MN_Q4_K,
            .down = {{EVERYWHERE, MN_Q3_K}},
            .attn_output = MN_Q3_K,
            .attn_output_8 = MN_Q5_K,
            .falcon = {{EVERYWHERE, MN_Q3_K}},
        },
    [MN_MIX_Q2_K_S] =
        {
            .grouped = MN_Q4_K,
            .down = {{FIRST_8TH, MN_Q4_K}},
            .falcon = {{FIRST_8TH, MN_Q4_K}},
        },
    [MN_MIX_Q3_K_S] =
        {
            .attn_output_8 = MN_Q5_K,
        },
    [MN_MIX_Q3_K_M] =
        {
            .value = {{FIRST_2, MN_Q5_K}, {EVERYWHERE, MN_Q4_K}},
            .down = {{FIRST_16TH, MN_Q5_K}, {EVERYWHERE, MN_Q4_K}},
            .attn_output = MN_Q4_K,
            .attn_output_8 = MN_Q5_K,
            .falcon = {{FIRST_16TH, MN_Q5_K}, {SPREAD, MN_Q4_K}},
        },
    [MN_MIX_Q3_K_L] =
        {
            .value = {{EVERYWHERE, MN_Q5_K}},
            .down = {{EVERYWHERE, MN_Q5_K}},
            .attn_output = MN_Q5_K,
            .falcon = {{EVERYWHERE, MN_Q4_K}},
            .falcon_output = MN_Q4_K,
        },
    [MN_MIX_Q4_K_S] =
        {
            .value = {{FIRST_4, MN_Q5_K}},
            .down = {{FIRST_8TH, MN_Q5_K}},
            .attn_output_8 = MN_Q5_K,
        },
    [MN_MIX_Q4_K_M] =
        {
            .value = {{SPREAD, MN_Q6_K}},
            .down = {{SPREAD, MN_Q6_K}},
            .attn_output_8 = MN_Q5_K,
            .falcon = {{FIRST_16TH, MN_Q6_K}, {SPREAD, MN_Q5_K}},
        },
    [MN_MIX_Q5_K_S] = {.grouped = 0},
    [MN_MIX_Q5_K_M] =
        {
            .value = {{SPREAD, MN_Q6_K}},
            .down = {{SPREAD, MN_Q6_K}},
            .falcon = {{SPREAD, MN_Q6_K}},
        },
};

static bool applies(place at, int64_t i, int64_t n) {
    const int64_t eighth = n / 8;
    switch (at) {
    case NOWHERE:
        return false;
    case EVERYWHERE:
        return true;
    case FIRST_2:
        return i < 2;
    case FIRST_4:
        return i < 4;
    case FIRST_16TH:
        return i < n / 16;
    case FIRST_8TH:
        return i < eighth;
    case SPREAD:
        return i < eighth || i >= 7 * n / 8 || (i - eighth) % 3 == 2;
    }
    return false;
}

/* The type of number i of n such tensors. */
static uint32_t choose_type(const choice *choices, int64_t i, int64_t n, uint32_t otherwise) {
    for (int k = 0; k < CHOICES; k++)
        if (applies(choices[k].at, i, n))
            return choices[k].dtype;
    return otherwise;
}

static bool is_value(mn_str rest) {
    return mn_str_is(rest, "attn_v.weight") || mn_str_is(rest, "attn_qkv.weight") ||
           mn_str_is(rest, "attn_kv_b.weight");
}

static bool is_down(mn_str rest) {
    return pick_begins(rest, "ffn_down");
}

/* How many tensors of a kind are in the layers below. */
static int64_t count_below(const mn_canonical *m, int64_t layer, bool (*is)(mn_str rest)) {
    int64_t n = 0;
    for (size_t i = 0; i < m->n_tensors; i++) {
        mn_str rest;
        const int64_t l = mn_tensor_layer(m->tensors[i].info.name, &rest);
        n += l >= 0 && l < layer && mn_str_ends(rest, ".weight") && is(rest);
    }
    return n;
}

/* The first layer's heads of q for each of k and v. */
static int64_t heads_per_value(const mn_hparams *h) {
    if (h->n_layer > 0 && h->layer[0].n_head_kv > 0)
        return h->layer[0].n_head / h->layer[0].n_head_kv;
    return 1;
}

static uint32_t value_type(const mn_convert_plan *p, int64_t layer) {
    const mix *m = &mixes[p->type->mix];
    const int64_t shared = heads_per_value(&p->hp);
    const int64_t i = count_below(p->model, layer, is_value);
    const int64_t n = count_below(p->model, MN_MAX_LAYER, is_value);
    uint32_t type = choose_type(m->value, i, n, p->type->dtype);
    if (shared >= 4 && m->grouped)
        type = m->grouped;
    /* the layers of a 70B, whose heads share so much that these matrices are small */
    if (p->hp.n_layer == 80 && shared > 1 && (type == MN_Q3_K || type == MN_Q4_K))
        type = MN_Q5_K;
    return type;
}

static uint32_t down_type(const mn_convert_plan *p, int64_t layer, bool falcon) {
    const mix *m = &mixes[p->type->mix];
    int64_t i = layer;
    if (p->hp.n_expert < 2)
        i = count_below(p->model, layer, is_down);
    return choose_type(falcon ? m->falcon : m->down, i, p->hp.n_layer, p->type->dtype);
}

/* The matrix that makes the logits, and others that are read like it. */
static bool is_output(const mn_convert_plan *p, mn_str rest) {
    if (p->hp.tied && mn_str_is(rest, "per_layer_token_embd.weight"))
        return true;
    return mn_str_is(rest, p->hp.tied ? "token_embd.weight" : "output.weight");
}

/* Kimi delta attention has q, k and v in one product, for which they are of one type. */
static bool is_of_kda(const mn_convert_plan *p, int64_t layer) {
    char name[64];
    snprintf(name, sizeof name, "blk.%lld.ssm_f_a.weight", (long long)layer);
    return mn_canonical_tensor(p->model, name) != NULL;
}

/* The type that the mix has for the tensor. */
static uint32_t mixed_type(const mn_convert_plan *p, mn_str rest, int64_t layer) {
    const mix *m = &mixes[p->type->mix];
    const bool falcon = !strcmp(p->hp.arch, "falcon");
    const bool eight = p->hp.n_expert == 8; /* attention is a small part of such a model */
    uint32_t type = 0;
    if (p->type->mix == MN_MIX_NONE)
        return p->type->dtype;
    if (is_output(p, rest))
        return falcon ? MN_Q8_0 : MN_Q6_K;
    if (is_value(rest) && is_of_kda(p, layer))
        return p->type->dtype;
    if (eight && (is_value(rest) || mn_str_is(rest, "attn_k.weight")) && !is_of_kda(p, layer))
        return MN_Q8_0;
    if (is_value(rest))
        return value_type(p, layer);
    if (is_down(rest))
        return down_type(p, layer, falcon);
    if (!mn_str_is(rest, "attn_output.weight"))
        return p->type->dtype;
    if (falcon)
        type = m->falcon_output;
    else
        type = eight ? m->attn_output_8 : m->attn_output;
    return type ? type : p->type->dtype;
}

/* ---- of any tensor --------------------------------------------------------------------------- */

uint32_t mn_convert_fitting(uint32_t dtype, int64_t n) {
    static const uint32_t instead[][2] = {
        {MN_Q2_K, MN_IQ4_NL},    {MN_Q3_K, MN_IQ4_NL},   {MN_IQ4_XS, MN_IQ4_NL},
        {MN_IQ2_XXS, MN_IQ4_NL}, {MN_IQ2_XS, MN_IQ4_NL}, {MN_IQ2_S, MN_IQ4_NL},
        {MN_IQ3_XXS, MN_IQ4_NL}, {MN_IQ3_S, MN_IQ4_NL},  {MN_NVFP4_64, MN_IQ4_NL},
        {MN_IQ1_S, MN_IQ4_NL},   {MN_IQ1_M, MN_IQ4_NL},  {MN_TQ1_0, MN_Q4_0},
        {MN_TQ2_0, MN_Q4_0},     {MN_Q4_K, MN_Q5_0},     {MN_Q5_K, MN_Q5_1},
        {MN_Q6_K, MN_Q8_0}};
    mn_dtype t;
    if (mn_dtype_by_id(dtype, &t) && n % t.block_elems == 0)
        return dtype;
    for (size_t i = 0; i < MN_COUNT(instead); i++)
        if (instead[i][0] == dtype)
            return mn_convert_fitting(instead[i][1], n);
    return MN_F16;
}

/* Without a rule; small: stays_f32. */
static uint32_t usual_type(const mn_convert_plan *p, const mn_tensor_info *t, bool small) {
    mn_str rest;
    const int64_t layer = mn_tensor_layer(t->name, &rest);
    if (!p->type && !strcmp(p->model->format, "gguf") && t->n_planes == 1)
        return t->dtype.id;
    if (small)
        return MN_F32;
    if (!p->type)
        return kept_type(t);
    /* MXFP4 was made for experts; what else such a model has is stored finer. */
    if (p->type->dtype == MN_MXFP4 && p->hp.n_expert && !is_experts(rest))
        return MN_Q8_0;
    return mixed_type(p, rest, layer);
}

mn_status mn_convert_pick(mn_convert_plan *p, const mn_tensor_info *t, uint32_t *dtype,
                          mn_error *err) {
    mn_str rest;
    const uint32_t stored = t->dtype.id;
    uint32_t number;
    mn_status st = MN_OK;
    mn_tensor_layer(t->name, &rest);
    const bool small = stays_f32(t, rest);
    *dtype = stored;
    if (!mn_dtype_is_weight(stored) && mn_dtype_ggml(stored, &number))
        return MN_OK;
    *dtype = 0;
    if (!small)
        st = mn_convert_rules_find(&p->rules, t->name, dtype, err);
    if (!st && !*dtype)
        *dtype = usual_type(p, t, small);
    return st;
}
