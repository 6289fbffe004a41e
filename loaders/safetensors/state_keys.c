/* state_keys.c -- keys of config.json of the families whose layers remember a state: what a layer
 * is, sizes of states, factors. The names of canonical keys are GGUF's where it has them. */
#include "state_keys.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- what each layer is ---------------------------------------------------------------------- */
static layer_kind kind_of_word(const char *word) {
    static const struct {
        const char *word;
        layer_kind kind;
    } rows[] = {{"full_attention", LAYER_ATTENDS},
                {"attention", LAYER_ATTENDS},
                {"linear_attention", LAYER_STATE},
                {"mamba", LAYER_STATE},
                {"conv", LAYER_STATE},
                {"mlp", LAYER_MLP},
                {"moe", LAYER_EXPERTS},
                {"*", LAYER_ATTENDS},
                {"M", LAYER_STATE},
                {"-", LAYER_MLP},
                {"E", LAYER_EXPERTS}};
    for (size_t i = 0; i < MN_COUNT(rows); i++)
        if (!strcmp(rows[i].word, word))
            return rows[i].kind;
    return LAYER_UNKNOWN;
}

/* Room for n layers, and that num_hidden_layers says n, or nothing. */
static layer_kind *kinds_open(config_reader *c, const char *key, int64_t n) {
    const int64_t said = config_int(c, c->root, "", "num_hidden_layers", 1, 4096, &n);
    if (!c->status && said != n)
        c->status = mnl_fail(c->err, MN_BAD_FILE,
                             "%.*s: key '%s' has %lld entries, expected %lld (num_hidden_layers)",
                             MN_STR_ARG(c->file->name), key, (long long)n, (long long)said);
    if (c->status)
        return NULL;
    if (!json_get(c->root, "num_hidden_layers") &&
        !cJSON_AddNumberToObject(c->root, "num_hidden_layers", (double)n))
        c->status = mnl_fail_memory(c->err);
    if (c->status)
        return NULL;
    layer_kind *kinds = mn_parsed_alloc(c->parsed, (uint64_t)n, sizeof *kinds);
    if (!kinds)
        c->status = mnl_fail_memory(c->err);
    c->kinds = kinds;
    return kinds;
}

/* layer_types and its like: a word for each layer. */
static void kinds_of_list(config_reader *c, const char *key, const cJSON *list) {
    if (!cJSON_IsArray(list) || !list->child) {
        config_fail(c, "", key, list, "an array with a word for each layer");
        return;
    }
    layer_kind *kinds = kinds_open(c, key, cJSON_GetArraySize(list));
    for (const cJSON *i = list->child; i && kinds && !c->status; i = i->next) {
        *kinds = cJSON_IsString(i) ? kind_of_word(i->valuestring) : LAYER_UNKNOWN;
        if (!*kinds++)
            config_fail(c, "", key, i,
                        "full_attention, attention, linear_attention, mamba, conv, mlp or moe");
    }
}

/* hybrid_override_pattern: a letter for each layer. */
static void kinds_of_pattern(config_reader *c, const char *key, const cJSON *pattern) {
    char word[2] = "";
    if (!cJSON_IsString(pattern) || !pattern->valuestring[0]) {
        config_fail(c, "", key, pattern, "a letter for each layer");
        return;
    }
    const char *s = pattern->valuestring;
    layer_kind *kinds = kinds_open(c, key, (int64_t)strlen(s));
    for (; kinds && *s && !c->status; s++) {
        word[0] = *s;
        *kinds = kind_of_word(word);
        if (!*kinds++)
            config_fail(c, "", key, pattern, "M, *, - or E for each layer");
    }
}

/* A list of the layers that attend, which are counted from `first` on. */
static void kinds_of_layers(config_reader *c, const char *key, const cJSON *list, int64_t first) {
    const int64_t n = config_int(c, c->root, "", "num_hidden_layers", 1, 4096, NULL);
    layer_kind *kinds = kinds_open(c, "num_hidden_layers", n);
    int64_t at = 0;
    for (int64_t i = 0; i < n && kinds; i++)
        kinds[i] = LAYER_STATE;
    if (!cJSON_IsArray(list)) {
        config_fail(c, "", key, list, "an array of layers");
        return;
    }
    for (const cJSON *i = list->child; i && kinds && !c->status; i = i->next) {
        if (json_is_int(i, first, first + n - 1, &at))
            kinds[at - first] = LAYER_ATTENDS;
        else
            config_fail(c, "", key, i, "a layer");
    }
}

static void kinds_of_indices(config_reader *c, const char *key, const cJSON *list) {
    kinds_of_layers(c, key, list, 0);
}

/* Every p-th layer attends. */
static void kinds_by_period(config_reader *c, int64_t period) {
    const int64_t n = config_int(c, c->root, "", "num_hidden_layers", 1, 4096, NULL);
    layer_kind *kinds = kinds_open(c, "num_hidden_layers", n);
    for (int64_t i = 0; i < n && kinds; i++)
        kinds[i] = (i + 1) % period ? LAYER_STATE : LAYER_ATTENDS;
}

/* By the first of the keys that is there; false: by none of them. */
static bool find_kinds(config_reader *c) {
    static const struct {
        const char *key;
        void (*read)(config_reader *c, const char *key, const cJSON *value);
    } rows[] = {{"layer_types", kinds_of_list},
                {"layers_block_type", kinds_of_list},
                {"hybrid_override_pattern", kinds_of_pattern},
                {"attn_layer_indices", kinds_of_indices},
                {"full_attn_idxs", kinds_of_indices}};
    for (size_t i = 0; i < MN_COUNT(rows); i++) {
        const cJSON *value = json_get(c->root, rows[i].key);
        if (!value)
            continue;
        rows[i].read(c, rows[i].key, value);
        return true;
    }
    return false;
}

static void need_kinds(config_reader *c) {
    if (!find_kinds(c))
        config_fail(c, "", "layer_types", NULL, "a word for each layer");
}

static bool has_kind(config_reader *c, layer_kind kind) {
    const int64_t n = config_int(c, c->root, "", "num_hidden_layers", 1, 4096, NULL);
    if (!c->kinds)
        return false;
    for (int64_t i = 0; i < n; i++)
        if (c->kinds[i] == kind)
            return true;
    return false;
}

/* ---- sizes of states ------------------------------------------------------------------------- */
static int64_t state_size(config_reader *c, const char *native) {
    return config_int(c, c->root, "", native, 1, 1 << 24, NULL);
}

static void put_state_size(config_reader *c, const char *key, const char *native) {
    config_put_int(c, key, "", native, state_size(c, native));
}

/* A number of time_step_limit, perhaps as Transformers 5 writes an infinity. */
static double limit_at(config_reader *c, const cJSON *list, int i) {
    const cJSON *v = cJSON_GetArrayItem(list, i);
    const cJSON *inner = NULL;
    if (v)
        inner = json_get(v, "__float__");
    if (inner && cJSON_IsString(inner) && !strcmp(inner->valuestring, "Infinity"))
        return INFINITY;
    if (v && cJSON_IsNumber(v) && v->valuedouble >= 0)
        return v->valuedouble;
    config_fail(c, "", "time_step_limit", list, "two numbers from 0 to infinity");
    return 0;
}

/* 0 and infinity bound nothing. */
static void put_limits(config_reader *c) {
    const cJSON *list = json_get(c->root, "time_step_limit");
    if (!list)
        return;
    const double lo = limit_at(c, list, 0);
    const double hi = limit_at(c, list, 1);
    if (lo > 0)
        config_put_float(c, "ssm.time_step_min", "", "time_step_limit", lo);
    if (hi <= DBL_MAX)
        config_put_float(c, "ssm.time_step_max", "", "time_step_limit", hi);
}

typedef struct {
    const char *heads, *dim, *groups, *state, *conv;
} mamba_keys;
static const mamba_keys usual_keys = {"mamba_n_heads", "mamba_d_head", "mamba_n_groups",
                                      "mamba_d_state", "mamba_d_conv"};

/* The width of a head: a number, or "auto" or nothing: all heads are `expand` times as wide as the
 * layers. */
static int64_t head_width(config_reader *c, const char *key, int64_t n_head) {
    const cJSON *said = json_get(c->root, key);
    const bool is_auto = !said || (cJSON_IsString(said) && !strcmp(said->valuestring, "auto"));
    if (!is_auto)
        return state_size(c, key);
    const int64_t all = state_size(c, "mamba_expand") * state_size(c, "hidden_size");
    if (!c->status && all % n_head)
        config_fail(c, "", key, said, "a number, for mamba_n_heads do not divide the width");
    return all / n_head;
}

static int64_t put_mamba(config_reader *c, const mamba_keys *k) {
    const int64_t n_head = state_size(c, k->heads);
    const int64_t inner = n_head * head_width(c, k->dim, n_head);
    put_state_size(c, "ssm.conv_kernel", k->conv);
    put_state_size(c, "ssm.state_size", k->state);
    put_state_size(c, "ssm.group_count", k->groups);
    put_state_size(c, "ssm.time_step_rank", k->heads);
    config_put_int(c, "ssm.inner_size", "", k->dim, inner);
    put_limits(c);
    return inner;
}

void family_mamba2(config_reader *c) {
    static const mamba_keys keys = {"num_heads", "head_dim", "n_groups", "state_size",
                                    "conv_kernel"};
    put_mamba(c, &keys);
}

/* ---- Nemotron-H ------------------------------------------------------------------------------ */
void family_nemotron_keys(config_reader *c) {
    need_kinds(c);
    if (has_kind(c, LAYER_EXPERTS))
        c->arch = c->family->arch_experts;
}

static void put_positive(config_reader *c, const char *key, const char *native) {
    const int64_t none = 0;
    const int64_t n = config_int(c, c->root, "", native, 0, 1 << 24, &none);
    if (n)
        config_put_int(c, key, "", native, n);
}

void family_nemotron(config_reader *c) {
    static const mamba_keys keys = {"mamba_num_heads", "mamba_head_dim", "n_groups",
                                    "ssm_state_size", "conv_kernel"};
    put_mamba(c, &keys);
    family_put_if(c, "ssm.time_step_min", "time_step_min", 0, 1e9);
    if (!has_kind(c, LAYER_EXPERTS))
        return;
    family_expect_one(c, "n_group");
    family_put_experts(c, "n_routed_experts", "moe_intermediate_size");
    put_positive(c, "expert_shared_count", "n_shared_experts");
    put_positive(c, "expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size");
    put_positive(c, "moe_latent_size", "moe_latent_size");
    config_put_int(c, "expert_gating_func", "", "model_type", 2); /* sigmoid */
    config_put_bool(c, "expert_weights_norm", "norm_topk_prob",
                    config_bool(c, "norm_topk_prob", true));
    family_put_if(c, "expert_weights_scale", "routed_scaling_factor", FLT_MIN, 1e6);
}

/* ---- Granite 4, Bamba ------------------------------------------------------------------------ */
/* Without states and without experts the models of this class are Granite. */
void family_granite_hybrid_keys(config_reader *c) {
    const int64_t none = 0;
    const int64_t n = config_int(c, c->root, "", "num_local_experts", 0, 65536, &none);
    need_kinds(c);
    if (n) {
        c->own = granite_expert_names;
        c->width_of_all = "intermediate_size"; /* of each expert: there is no other MLP */
    } else if (!has_kind(c, LAYER_STATE))
        c->arch = "granite";
}

/* "rope", or anything else: no layer rotates. */
static void put_rotates(config_reader *c) {
    const char *kind = "nope";
    if (json_get(c->root, "position_embedding_type"))
        kind = config_str(c, c->root, "", "position_embedding_type", kind);
    if (strcmp(kind, "rope") && strcmp(kind, "nope") && !c->status)
        config_fail(c, "", "position_embedding_type", json_get(c->root, "position_embedding_type"),
                    "\"rope\", \"nope\" or null");
    config_put_bool(c, "rope.scaling.finetuned", "position_embedding_type", !strcmp(kind, "rope"));
}

void family_granite_hybrid(config_reader *c) {
    family_granite(c);
    put_rotates(c);
    if (has_kind(c, LAYER_STATE))
        put_mamba(c, &usual_keys);
    if (c->own != granite_expert_names)
        return;
    family_put_experts(c, "num_local_experts", "intermediate_size");
    put_positive(c, "expert_shared_feed_forward_length", "shared_intermediate_size");
}

/* The width that rotates, in the first files, is half of the head in newer ones. */
void family_bamba_keys(config_reader *c) {
    if (!find_kinds(c))
        config_fail(c, "", "attn_layer_indices", NULL, "an array of layers");
}

void family_bamba(config_reader *c) {
    put_mamba(c, &usual_keys);
    config_put_bool(c, "rope.scaling.finetuned", "model_type", true);
}

/* ---- Falcon-H1 ------------------------------------------------------------------------------- */
/* Five numbers; nothing is put where they are all 1. */
static void put_parts(config_reader *c) {
    enum { N = 5 };
    const cJSON *list = json_get(c->root, "ssm_multipliers");
    if (!list || c->status)
        return;
    double *parts = mn_parsed_alloc(c->parsed, N, sizeof *parts);
    if (!parts) {
        c->status = mnl_fail_memory(c->err);
        return;
    }
    for (int i = 0; i < N; i++) {
        const cJSON *v = cJSON_GetArrayItem(list, i);
        const bool fits = v && cJSON_IsNumber(v) && v->valuedouble > 0;
        if (!fits || cJSON_GetArraySize(list) != N)
            config_fail(c, "", "ssm_multipliers", list, "five numbers above 0");
        parts[i] = fits ? v->valuedouble : 1;
    }
    mn_value *v = config_put(c, "ssm.part_scales", "", "ssm_multipliers");
    if (!v)
        return;
    v->type = MN_VALUE_ARRAY | MN_VALUE_FLOAT;
    v->array = parts;
    v->n = N;
}

/* A number of a list of two. */
static void put_of_two(config_reader *c, const char *key, const char *native, int at) {
    const cJSON *list = json_get(c->root, native);
    if (!list)
        return;
    const cJSON *v = cJSON_GetArrayItem(list, at);
    if (v && cJSON_IsNumber(v) && v->valuedouble > 0 && cJSON_GetArraySize(list) == 2)
        config_put_float(c, key, "", native, v->valuedouble);
    else
        config_fail(c, "", native, list, "two numbers above 0");
}

/* The factor of keys goes into the scale of their products with q. */
static void put_key_factor(config_reader *c) {
    const double one = 1;
    const double factor = config_float(c, c->root, "", "key_multiplier", FLT_MIN, 1e9, &one);
    if (!c->status)
        config_put_float(c, "attention.scale", "", "key_multiplier",
                         factor / sqrt((double)c->head_dim));
}

void family_falcon_h1(config_reader *c) {
    const int64_t inner = put_mamba(c, &usual_keys);
    const int64_t said = config_int(c, c->root, "", "mamba_d_ssm", 1, 1 << 24, &inner);
    if (!c->status && said != inner)
        config_fail(c, "", "mamba_d_ssm", json_get(c->root, "mamba_d_ssm"),
                    "mamba_n_heads times mamba_d_head");
    family_put_if(c, "embedding_scale", "embedding_multiplier", FLT_MIN, 1e9);
    family_put_if(c, "logit_scale", "lm_head_multiplier", FLT_MIN, 1e9);
    family_put_if(c, "attention.in_scale", "attention_in_multiplier", FLT_MIN, 1e9);
    family_put_if(c, "attention.out_scale", "attention_out_multiplier", FLT_MIN, 1e9);
    family_put_if(c, "ssm.in_scale", "ssm_in_multiplier", FLT_MIN, 1e9);
    family_put_if(c, "ssm.out_scale", "ssm_out_multiplier", FLT_MIN, 1e9);
    put_key_factor(c);
    put_parts(c);
    put_of_two(c, "feed_forward.gate_scale", "mlp_multipliers", 0);
    put_of_two(c, "feed_forward.down_scale", "mlp_multipliers", 1);
    config_put_bool(c, "ssm.norm_before_gate", "mamba_norm_before_gate",
                    config_bool(c, "mamba_norm_before_gate", true));
}

/* ---- the gated delta rule -------------------------------------------------------------------- */
void family_delta_keys(config_reader *c) {
    const int64_t four = 4;
    if (!find_kinds(c))
        kinds_by_period(c, config_int(c, c->root, "", "full_attention_interval", 1, 4096, &four));
}

static void put_delta(config_reader *c) {
    put_state_size(c, "ssm.conv_kernel", "linear_conv_kernel_dim");
    put_state_size(c, "ssm.state_size", "linear_key_head_dim");
    put_state_size(c, "ssm.group_count", "linear_num_key_heads");
    put_state_size(c, "ssm.time_step_rank", "linear_num_value_heads");
    const int64_t n_head = state_size(c, "linear_num_value_heads");
    const int64_t width = state_size(c, "linear_value_head_dim");
    config_put_int(c, "ssm.inner_size", "", "linear_value_head_dim", n_head * width);
}

void family_qwen3_next(config_reader *c) {
    put_delta(c);
    family_put_experts(c, "num_experts", "moe_intermediate_size");
    put_positive(c, "expert_shared_feed_forward_length", "shared_expert_intermediate_size");
    config_put_bool(c, "expert_weights_norm", "norm_topk_prob",
                    config_bool(c, "norm_topk_prob", true));
}

/* Where mrope_section is left out. */
static const int64_t usual_sections[3] = {11, 11, 10};

/* Heads of v that read one head of k stand side by side here; in GGUF's files they do not. */
void family_qwen3_5(config_reader *c) {
    put_delta(c);
    family_put_sections(c, usual_sections);
    config_put_bool(c, "minerva.heads_in_turn", "model_type", false);
}

void family_qwen3_5_moe(config_reader *c) {
    family_qwen3_5(c);
    family_put_experts(c, "num_experts", "moe_intermediate_size");
    put_positive(c, "expert_shared_feed_forward_length", "shared_expert_intermediate_size");
}

/* ---- OLMo hybrid ----------------------------------------------------------------------------- */
static void fill_number(config_reader *c, const char *key, int64_t value) {
    if (json_get(c->root, key) || c->status)
        return;
    cJSON_DeleteItemFromObjectCaseSensitive(c->root, key); /* a null */
    if (!cJSON_AddNumberToObject(c->root, key, (double)value))
        c->status = mnl_fail_memory(c->err);
}

/* Heads of the rule are as many as attention's; those of k three quarters as wide, those of v twice
 * as wide as those of k. */
void family_olmo_hybrid_keys(config_reader *c) {
    const int64_t n = config_int(c, c->root, "", "num_attention_heads", 1, 65536, NULL);
    family_delta_keys(c);
    fill_number(c, "linear_num_key_heads", n);
    fill_number(c, "linear_num_value_heads", n);
    if (c->status)
        return;
    const int64_t heads = state_size(c, "linear_num_key_heads");
    fill_number(c, "linear_key_head_dim", state_size(c, "hidden_size") * 3 / 4 / heads);
    fill_number(c, "linear_value_head_dim", 2 * state_size(c, "linear_key_head_dim"));
}

/* Without a base no layer rotates. */
void family_olmo_hybrid(config_reader *c) {
    const cJSON *rope = json_get(c->root, "rope_parameters");
    const bool rotates = json_get(c->root, "rope_theta") || (rope && json_get(rope, "rope_theta"));
    put_delta(c);
    if (config_bool(c, "linear_allow_neg_eigval", true))
        config_put_float(c, "ssm.beta_scale", "", "linear_allow_neg_eigval", 2);
    if (!rotates)
        config_put_no_rope(c);
}

/* ---- Kimi delta attention -------------------------------------------------------------------- */
static const char kda_section[] = "linear_attn_config";

static const cJSON *kda_object(config_reader *c) {
    const cJSON *own = json_get(c->root, kda_section);
    if (!cJSON_IsObject(own))
        config_fail(c, "", kda_section, own, "an object");
    return c->status ? NULL : own;
}

static int64_t kda_size(config_reader *c, const cJSON *own, const char *key) {
    return config_int(c, own, "linear_attn_config.", key, 1, 65536, NULL);
}

void family_kda_keys(config_reader *c) {
    const cJSON *own = kda_object(c);
    if (own)
        kinds_of_layers(c, "linear_attn_config.full_attn_layers", json_get(own, "full_attn_layers"),
                        1);
}

void family_put_kda(config_reader *c) {
    const cJSON *own = kda_object(c);
    if (!own)
        return;
    const int64_t n_head = kda_size(c, own, "num_heads");
    config_put_int(c, "ssm.conv_kernel", "linear_attn_config.", "short_conv_kernel_size",
                   kda_size(c, own, "short_conv_kernel_size"));
    config_put_int(c, "kda.head_dim", "linear_attn_config.", "head_dim",
                   kda_size(c, own, "head_dim"));
    if (n_head != c->n_head)
        config_put_int(c, "kda.head_count", "linear_attn_config.", "num_heads", n_head);
}

void state_put_one_head(config_reader *c) {
    int64_t *each =
        c->status ? NULL : mn_parsed_alloc(c->parsed, (uint64_t)c->n_layer, sizeof *each);
    if (!each && !c->status)
        c->status = mnl_fail_memory(c->err);
    for (int64_t i = 0; each && i < c->n_layer; i++)
        each[i] = c->kinds[i] == LAYER_ATTENDS;
    mn_value *v = each ? config_put(c, "attention.head_count_kv", "", "num_attention_heads") : NULL;
    if (!v)
        return;
    v->type = MN_VALUE_ARRAY | MN_VALUE_INT;
    v->array = each;
    v->n = (uint64_t)c->n_layer;
}

/* ---- LFM2 ------------------------------------------------------------------------------------ */
/* The width that the class makes of intermediate_size. */
static int64_t adjusted_width(config_reader *c) {
    const double one = 1;
    const int64_t usual = 256;
    const bool adjusts = config_bool(c, "block_auto_adjust_ff_dim", true);
    const int64_t unit = config_int(c, c->root, "", "block_multiple_of", 1, 1 << 20, &usual);
    const double by = config_float(c, c->root, "", "block_ffn_dim_multiplier", FLT_MIN, 1e6, &one);
    int64_t n = state_size(c, "intermediate_size");
    if (!adjusts)
        return n;
    n = (int64_t)(by * (double)(2 * n / 3));
    return (n + unit - 1) / unit * unit;
}

void family_lfm2_keys(config_reader *c) {
    if (json_get(c->root, "block_ff_dim"))
        fill_number(c, "intermediate_size", state_size(c, "block_ff_dim"));
    need_kinds(c);
    const int64_t n = adjusted_width(c);
    if (c->status)
        return;
    cJSON_DeleteItemFromObjectCaseSensitive(c->root, "intermediate_size");
    fill_number(c, "intermediate_size", n);
}

void family_lfm2(config_reader *c) {
    put_state_size(c, "shortconv.l_cache", "conv_L_cache");
}

void family_lfm2_moe_keys(config_reader *c) {
    need_kinds(c);
}

void family_lfm2_moe(config_reader *c) {
    family_lfm2(c);
    family_put_experts(c, "num_experts", "moe_intermediate_size");
    put_positive(c, "leading_dense_block_count", "num_dense_layers");
    config_put_int(c, "expert_gating_func", "", "model_type", 2); /* sigmoid */
    config_put_bool(c, "expert_weights_norm", "norm_topk_prob",
                    config_bool(c, "norm_topk_prob", true));
    family_put_if(c, "expert_weights_scale", "routed_scaling_factor", FLT_MIN, 1e6);
}
