/* family_keys.c -- keys of config.json that only some families have: what families.h calls
 * `prepare` and `extra`. */
#include "family_keys.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double zero = 0;

/* A number that is used as it is; absent or null: nothing is put. */
void family_put_if(config_reader *c, const char *key, const char *native, double lo, double hi) {
    if (json_get(c->root, native))
        config_put_float(c, key, "", native, config_float(c, c->root, "", native, lo, hi, &zero));
}

/* A flag for a variant of the architecture that no graph builder knows. */
static void refuse_true(config_reader *c, const char *key) {
    if (config_bool(c, key, false) && !c->status)
        c->status = mnl_fail(c->err, MN_UNSUPPORTED,
                             "%.*s: key '%s' is true, which is unsupported; expected false",
                             MN_STR_ARG(c->file->name), key);
}

/* A constant of the graph, which config.json may repeat. */
static void expect_number(config_reader *c, const char *key, double value) {
    const double found = config_float(c, c->root, "", key, -DBL_MAX, DBL_MAX, &value);
    if (c->status)
        return;
    if (!(found < value || found > value))
        return;
    c->status = mnl_fail(c->err, MN_UNSUPPORTED, "%.*s: key '%s' is %g, expected %g",
                         MN_STR_ARG(c->file->name), key, found, value);
}

void family_expect_one(config_reader *c, const char *key) {
    if (json_get(c->root, key))
        expect_number(c, key, 1);
}

/* Attention in both directions is EmbeddingGemma's, an architecture of its own. */
void family_gemma(config_reader *c) {
    if (!c->family->arch_both_ways)
        refuse_true(c, "use_bidirectional_attention");
}

/* attention.scale is 1 / sqrt(query_pre_attn_scalar), whatever the heads' size is. A cap on the
 * scores stands in configurations of Gemma 3, too; its attention has none. */
void family_gemma3(config_reader *c) {
    family_gemma(c);
    family_put_if(c, "final_logit_softcapping", "final_logit_softcapping", FLT_MIN, 1e6);
    if (!json_get(c->root, "query_pre_attn_scalar"))
        return;
    const double scalar = config_float(c, c->root, "", "query_pre_attn_scalar", 1e-3, 1e9, NULL);
    config_put_float(c, "attention.scale", "", "query_pre_attn_scalar", 1 / sqrt(scalar));
}

void family_gemma2(config_reader *c) {
    family_gemma3(c);
    family_put_if(c, "attn_logit_softcapping", "attn_logit_softcapping", FLT_MIN, 1e6);
}

static void put_expert_width(config_reader *c, const char *native) {
    config_put_int(c, "expert_feed_forward_length", "", native,
                   config_int(c, c->root, "", native, 1, 1 << 24, NULL));
}

/* How many experts there are, and how many a token uses. */
static void put_expert_counts(config_reader *c, const char *count, const char *used) {
    const int64_t n = config_int(c, c->root, "", count, 1, 65536, NULL);
    config_put_int(c, "expert_count", "", count, n);
    config_put_int(c, "expert_used_count", "", used,
                   config_int(c, c->root, "", used, 1, n > 0 ? n : 1, NULL));
}

void family_put_experts(config_reader *c, const char *count, const char *width) {
    put_expert_counts(c, count, "num_experts_per_tok");
    put_expert_width(c, width);
}

static void put_count(config_reader *c, const char *key, const char *native, int64_t hi) {
    const int64_t none = 0;
    const int64_t n = config_int(c, c->root, "", native, 0, hi, &none);
    if (n)
        config_put_int(c, key, "", native, n);
}

void family_gemma4(config_reader *c) {
    put_count(c, "embedding_length_per_layer_input", "hidden_size_per_layer_input", 1 << 20);
    put_count(c, "attention.shared_kv_layers", "num_kv_shared_layers", c->n_layer);
    if (config_bool(c, "enable_moe_block", false)) {
        put_expert_counts(c, "num_experts", "top_k_experts");
        put_expert_width(c, "moe_intermediate_size");
    }
    const cJSON *both = json_get(c->root, "use_bidirectional_attention"); /* "vision": of images */
    if (both && !(cJSON_IsString(both) && !strcmp(both->valuestring, "vision")) && !c->status)
        c->status = mnl_fail(c->err, MN_UNSUPPORTED,
                             "%.*s: key 'use_bidirectional_attention' is %s, expected null",
                             MN_STR_ARG(c->file->name), json_describe(both).s);
    family_put_if(c, "final_logit_softcapping", "final_logit_softcapping", FLT_MIN, 1e6);
}

/* The number below which a share p of a normal distribution lies, in (0, 1): Newton's method on its
 * integral, from 0. */
static double normal_below(double p) {
    const double root = sqrt(2);
    const double density = 0.3989422804014327; /* 1 / sqrt(2 pi) */
    double x = 0;
    for (int i = 0; i < 100; i++) {
        const double off = 0.5 * erfc(-x / root) - p;
        const double step = off / (density * exp(-0.5 * x * x));
        x -= fmax(-1, fmin(1, step));
    }
    return x;
}

/* How many deviations above its mean the gate of each layer's MLP is cut; minus infinity: it is
 * not. The shares are f32 where models are made. */
static void put_sparsity(config_reader *c) {
    const char *key = "activation_sparsity_pattern";
    const cJSON *list = json_get(c->root, key);
    const int n_usual = c->n_layer > 10 ? 10 : 0; /* layers of 0.95 */
    double *at = mn_parsed_alloc(c->parsed, (uint64_t)c->n_layer, sizeof *at);
    if (!at && !c->status)
        c->status = mnl_fail_memory(c->err);
    for (int64_t i = 0; i < c->n_layer && !c->status; i++) {
        const cJSON *v = cJSON_IsArray(list) ? cJSON_GetArrayItem(list, (int)i) : list;
        double share = i < n_usual ? 0.95 : 0;
        if (list && !cJSON_IsNull(list))
            share = v && cJSON_IsNumber(v) ? v->valuedouble : -1;
        if (!(share >= 0 && share < 1))
            config_fail(c, "", key, list, "a share below 1 for each layer");
        at[i] = share > 0 ? normal_below((double)(float)share) : -INFINITY;
    }
    if (!c->status && cJSON_IsArray(list) && cJSON_GetArraySize(list) != c->n_layer)
        config_fail(c, "", key, list, "a share below 1 for each layer");
    mn_value *v = c->status ? NULL : config_put(c, "activation_sparsity_scale", "", key);
    if (!v)
        return;
    v->type = MN_VALUE_ARRAY | MN_VALUE_FLOAT;
    v->array = at;
    v->n = (uint64_t)c->n_layer;
}

void family_gemma3n(config_reader *c) {
    const int64_t four = 4;
    const int64_t first = 0;
    put_count(c, "embedding_length_per_layer_input", "hidden_size_per_layer_input", 1 << 20);
    put_count(c, "attention.shared_kv_layers", "num_kv_shared_layers", c->n_layer);
    config_put_int(c, "altup.num_inputs", "", "altup_num_inputs",
                   config_int(c, c->root, "", "altup_num_inputs", 2, 8, &four));
    config_put_int(c, "altup.active_idx", "", "altup_active_idx",
                   config_int(c, c->root, "", "altup_active_idx", 0, 7, &first));
    if (!config_bool(c, "altup_correct_scale", true))
        config_put_bool(c, "altup.scales", "altup_correct_scale", false);
    put_sparsity(c);
    refuse_true(c, "attention_bias");
    family_put_if(c, "final_logit_softcapping", "final_logit_softcapping", FLT_MIN, 1e6);
}

/* Four factors that other families lack. logits_scaling goes on as it stands: the graph builder
 * divides by it. */
void family_granite(config_reader *c) {
    family_put_if(c, "embedding_scale", "embedding_multiplier", FLT_MIN, 1e9);
    family_put_if(c, "residual_scale", "residual_multiplier", FLT_MIN, 1e9);
    family_put_if(c, "attention.scale", "attention_multiplier", FLT_MIN, 1e9);
    family_put_if(c, "logit_scale", "logits_scaling", FLT_MIN, 1e9);
}

/* count: the first of these keys that is there; Qwen3-MoE has used both. */
void family_experts(config_reader *c) {
    const char *count = "num_experts";
    if (json_get(c->root, "num_local_experts"))
        count = "num_local_experts";
    put_expert_counts(c, count, "num_experts_per_tok");
}

/* The experts have a width of their own, and the weights of a token's choice are normalised only
 * where norm_topk_prob says so. */
void family_qwen3_moe(config_reader *c) {
    family_experts(c);
    config_put_int(c, "expert_feed_forward_length", "", "moe_intermediate_size",
                   config_int(c, c->root, "", "moe_intermediate_size", 1, 1 << 24, NULL));
    config_put_bool(c, "expert_weights_norm", "norm_topk_prob",
                    config_bool(c, "norm_topk_prob", false));
}

/* The clamp and the slope of its activation are constants of the graph: another value is
 * refused. */
void family_gpt_oss(config_reader *c) {
    family_experts(c);
    expect_number(c, "swiglu_limit", 7);
    expect_number(c, "swiglu_alpha", 1.702);
}

void family_phi(config_reader *c) {
    refuse_true(c, "qk_layernorm");
}

void family_stablelm(config_reader *c) {
    config_put_bool(c, "use_parallel_residual", "use_parallel_residual",
                    config_bool(c, "use_parallel_residual", false));
}

/* Without scale_attn_weights the scores are not divided by the root of the heads' size. */
void family_gpt2(config_reader *c) {
    refuse_true(c, "scale_attn_by_inverse_layer_idx");
    if (!config_bool(c, "scale_attn_weights", true))
        config_put_float(c, "attention.scale", "", "scale_attn_weights", 1);
}

/* Embedding by distances between positions and cross attention are other graphs. */
void family_encoder(config_reader *c) {
    const char *kind = config_str(c, c->root, "", "position_embedding_type", "absolute");
    refuse_true(c, "is_decoder");
    refuse_true(c, "add_cross_attention");
    if (!c->status && strcmp(kind, "absolute"))
        c->status = mnl_fail(c->err, MN_UNSUPPORTED,
                             "%.*s: key 'position_embedding_type' is \"%.40s\", expected "
                             "\"absolute\"",
                             MN_STR_ARG(c->file->name), kind);
    config_put_bool(c, "attention.causal", "model_type", false);
}

/* Whether the checkpoint has a tensor of this name, whatever stands in front of it. */
static bool has_tensor(const config_reader *c, const char *name) {
    for (uint64_t i = 0; i < c->parsed->n_tensors; i++)
        if (mn_str_is(mnl_inner_name(c->parsed->tensors[i].native), name))
            return true;
    return false;
}

/* ELECTRA is BERT; small ones have embeddings of a width of their own, and a matrix behind them. */
void family_electra(config_reader *c) {
    const int64_t width = config_int(c, c->root, "", "embedding_size", 1, 1 << 24, NULL);
    family_encoder(c);
    if (!c->status && width != c->n_embd && !has_tensor(c, "embeddings_project.weight"))
        c->status = mnl_fail(c->err, MN_BAD_FILE,
                             "%.*s: key 'embedding_size' is %lld, expected 'hidden_size' %lld: "
                             "there is no tensor 'embeddings_project.weight'",
                             MN_STR_ARG(c->file->name), (long long)width, (long long)c->n_embd);
}

/* The distances that count as one are a constant of its class. */
void family_mpnet(config_reader *c) {
    static const char key[] = "relative_attention_num_buckets";
    family_encoder(c);
    config_put_int(c, "attention.relative_buckets_count", "", key,
                   config_int(c, c->root, "", key, 4, 65536, NULL));
}

/* Whether pos_att_type, "p2c|c2p" or a list of these, has the word. */
static bool has_term(config_reader *c, const char *word) {
    const cJSON *said = json_get(c->root, "pos_att_type");
    if (cJSON_IsString(said))
        return strstr(said->valuestring, word) != NULL;
    for (const cJSON *i = cJSON_IsArray(said) ? said->child : NULL; i; i = i->next)
        if (cJSON_IsString(i) && !strcmp(i->valuestring, word))
            return true;
    return false;
}

void family_deberta_keys(config_reader *c) {
    family_copy_key(c, "pooler_hidden_act", "classifier_activation");
}

/* A key that has to be true or false, as what the file has says. */
static void expect_flag(config_reader *c, const char *key, bool usual, bool wanted,
                        const char *why) {
    if (config_bool(c, key, usual) != wanted && !c->status)
        c->status = mnl_fail(c->err, MN_UNSUPPORTED, "%.*s: key '%s' is %s, expected %s: %s",
                             MN_STR_ARG(c->file->name), key, wanted ? "false" : "true",
                             wanted ? "true" : "false", why);
}

/* The convolution behind the first layer: rows that it sees, groups of channels, activation. */
static void deberta_conv(config_reader *c) {
    const int64_t none = 0;
    const int64_t one = 1;
    const int64_t n = config_int(c, c->root, "", "conv_kernel_size", 0, 15, &none);
    if (!n)
        return;
    config_put_int(c, "text_conv.kernel_size", "", "conv_kernel_size", n);
    config_put_int(c, "text_conv.groups", "", "conv_groups",
                   config_int(c, c->root, "", "conv_groups", 1, 1 << 24, &one));
    config_put_str(c, "text_conv.activation", "", "conv_act",
                   config_str(c, c->root, "", "conv_act", "tanh"));
}

/* How distances join the scores: buckets of them, from which on they are one, whether they have
 * keys and queries. Each term is scaled as if all were one product. */
void family_deberta(config_reader *c) {
    const int64_t none = -1;
    const bool has_positions = has_tensor(c, "embeddings.position_embeddings.weight");
    const bool keys = has_term(c, "c2p");
    const bool queries = has_term(c, "p2c");
    family_encoder(c);
    expect_flag(c, "relative_attention", false, true, "attention without distances is BERT's");
    expect_flag(c, "position_biased_input", true, has_positions,
                "that is whether there are position_embeddings");
    deberta_conv(c);
    int64_t far = config_int(c, c->root, "", "max_relative_positions", -1, 32768, &none);
    if (far < 1)
        far = config_int(c, c->root, "", "max_position_embeddings", 1, 32768, NULL);
    const int64_t buckets = config_int(c, c->root, "", "position_buckets", -1, 32768, &none);
    if (buckets > 0)
        config_put_int(c, "attention.relative_buckets_count", "", "position_buckets", buckets);
    config_put_int(c, "attention.relative_max_distance", "", "max_relative_positions", far);
    config_put_bool(c, "attention.relative_keys", "pos_att_type", keys);
    config_put_bool(c, "attention.relative_queries", "pos_att_type", queries);
    if (!c->status && !keys && !queries)
        config_fail(c, "", "pos_att_type", json_get(c->root, "pos_att_type"),
                    "\"c2p\", \"p2c\" or both");
    config_put_float(c, "attention.scale", "", "pos_att_type",
                     1 / sqrt((double)(c->head_dim * (1 + keys + queries))));
}

/* id2label of a head with several labels: "0" to the last, all of them. The default names of
 * Transformers say nothing. */
static void put_labels(config_reader *c) {
    const cJSON *names = json_get(c->root, "id2label");
    const int n = cJSON_IsObject(names) ? cJSON_GetArraySize(names) : 0;
    char number[16];
    if (n < 2 || n > 4096 || c->status)
        return;
    mn_str *list = mn_parsed_alloc(c->parsed, (uint64_t)n, sizeof *list);
    if (!list) {
        c->status = mnl_fail_memory(c->err);
        return;
    }
    for (int i = 0; i < n; i++) {
        snprintf(number, sizeof number, "%d", i);
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(names, number);
        if (!cJSON_IsString(name)) {
            config_fail(c, "id2label.", number, name, "a string");
            return;
        }
        list[i] = mn_parsed_copy(c->parsed, mn_str_of(name->valuestring));
        if (!list[i].ptr)
            c->status = mnl_fail_memory(c->err);
    }
    mn_value *v = config_put(c, "classifier.output_labels", "", "id2label");
    if (v) {
        v->type = MN_VALUE_ARRAY | MN_VALUE_STR;
        v->array = list;
        v->n = (uint64_t)n;
    }
}

/* How a text is pooled for the head, and the activation between the head's two matrices. Where
 * config.json says nothing of the pooling, an encoder's is the first token and a decoder's the
 * last. */
void family_classifier(config_reader *c) {
    enum { RANK = 4 };
    const char *act = c->family->head_act ? c->family->head_act : "tanh";
    config_put_int(c, "pooling_type", "", "architectures", RANK);
    put_labels(c);
    if (json_get(c->root, "classifier_activation"))
        act = config_str(c, c->root, "", "classifier_activation", act);
    config_put_str(c, "minerva.classifier.activation", "", "classifier_activation", act);
    if (json_get(c->root, "classifier_pooling"))
        config_put_str(c, "minerva.classifier.pooling", "", "classifier_pooling",
                       config_str(c, c->root, "", "classifier_pooling", "cls"));
}

void family_copy_key(config_reader *c, const char *from, const char *to) {
    const cJSON *v = json_get(c->root, from);
    if (!v || json_get(c->root, to) || c->status)
        return;
    cJSON *copy = cJSON_Duplicate(v, false);
    cJSON_DeleteItemFromObjectCaseSensitive(c->root, to); /* a null */
    if (copy && cJSON_AddItemToObject(c->root, to, copy))
        return;
    cJSON_Delete(copy);
    c->status = mnl_fail_memory(c->err);
}

/* Which layers slide: all but each n-th, which begins with the first. */
static void add_layer_types(config_reader *c) {
    const int64_t n_layer = config_int(c, c->root, "", "num_hidden_layers", 1, 4096, NULL);
    const int64_t n = config_int(c, c->root, "", "global_attn_every_n_layers", 1, 4096, NULL);
    cJSON *types = c->status ? NULL : cJSON_AddArrayToObject(c->root, "layer_types");
    for (int64_t i = 0; types && i < n_layer; i++)
        cJSON_AddItemToArray(types,
                             cJSON_CreateString(i % n ? "sliding_attention" : "full_attention"));
    if (!c->status && (!types || cJSON_GetArraySize(types) != n_layer))
        c->status = mnl_fail_memory(c->err);
}

void family_modern_bert(config_reader *c) {
    family_copy_key(c, "local_attention", "sliding_window");
    if (!json_get(c->root, "rope_parameters")) {
        family_copy_key(c, "global_rope_theta", "rope_theta");
        family_copy_key(c, "local_rope_theta", "rope_local_base_freq");
    }
    if (!json_get(c->root, "layer_types"))
        add_layer_types(c);
}

/* ---- experts and what else later families have ----------------------------------------------- */

static int64_t keys_count(config_reader *c, const char *key, int64_t fallback) {
    return config_int(c, c->root, "", key, 0, 1 << 24, &fallback);
}

/* The width of all experts that every token uses. */
static void put_shared(config_reader *c, const char *native, int64_t width) {
    const cJSON *found = json_get(c->root, native);
    if (width > 1 << 24 && found)
        config_fail(c, "", native, found, "a width of at most 16777216 of all shared experts");
    else if (width)
        config_put_int(c, "expert_shared_feed_forward_length", "", native, width);
}

void family_qwen2_moe(config_reader *c) {
    family_qwen3_moe(c);
    put_shared(c, "shared_expert_intermediate_size",
               keys_count(c, "shared_expert_intermediate_size", 0));
}

/* In a text the three positions of M-RoPE are one. The sections are for programs that see. */
void family_put_sections(config_reader *c, const int64_t *usual) {
    const cJSON *rope = json_get(c->root, "rope_scaling");
    if (!rope)
        rope = json_get(c->root, "rope_parameters");
    const cJSON *list = rope ? json_get(rope, "mrope_section") : NULL;
    if ((!list && !usual) || c->status)
        return;
    int64_t *sections = mn_parsed_alloc(c->parsed, 4, sizeof *sections);
    int64_t n = 0;
    if (!sections) {
        c->status = mnl_fail_memory(c->err);
        return;
    }
    bool good = !list || (cJSON_IsArray(list) && cJSON_GetArraySize(list) == 3);
    for (; !list && n < 3; n++)
        sections[n] = usual[n];
    for (const cJSON *s = list && good ? list->child : NULL; s && good; s = s->next)
        good = json_is_int(s, 0, 65536, &sections[n++]);
    if (!good) {
        config_fail(c, "rope_parameters.", "mrope_section", list, "three numbers of pairs");
        return;
    }
    mn_value *v = config_put(c, "rope.dimension_sections", "", "mrope_section");
    if (v) {
        v->type = MN_VALUE_ARRAY | MN_VALUE_INT;
        v->array = sections;
        v->n = 4;
    }
}

void family_sections(config_reader *c) {
    family_put_sections(c, NULL);
}

/* The weights of a token's choice are always normalised. */
void family_qwen3_vl_moe(config_reader *c) {
    family_experts(c);
    put_expert_width(c, "moe_intermediate_size");
    family_sections(c);
}

void family_olmoe(config_reader *c) {
    if (json_get(c->root, "clip_qkv"))
        expect_number(c, "clip_qkv", 0);
    family_experts(c);
    put_expert_width(c, "intermediate_size");
    config_put_bool(c, "expert_weights_norm", "norm_topk_prob",
                    config_bool(c, "norm_topk_prob", false));
}

void family_routed_keys(config_reader *c) {
    family_copy_key(c, "n_routed_experts", "num_experts");
}

void family_routed(config_reader *c, int gating, bool normalised) {
    family_experts(c);
    put_expert_width(c, "moe_intermediate_size");
    const int64_t width = config_int(c, c->root, "", "moe_intermediate_size", 1, 1 << 24, NULL);
    const int64_t n = keys_count(c, "n_shared_experts", 0);
    if (n)
        config_put_int(c, "expert_shared_count", "", "n_shared_experts", n);
    put_shared(c, "n_shared_experts", n * width);
    config_put_int(c, "leading_dense_block_count", "", "first_k_dense_replace",
                   keys_count(c, "first_k_dense_replace", 0));
    config_put_int(c, "expert_gating_func", "", "model_type", gating);
    config_put_bool(c, "expert_weights_norm", "norm_topk_prob",
                    config_bool(c, "norm_topk_prob", normalised));
    family_put_if(c, "expert_weights_scale", "routed_scaling_factor", FLT_MIN, 1e6);
}

/* No model of these families chooses by groups of experts. */
static void routed_at_once(config_reader *c, bool normalised) {
    if (json_get(c->root, "n_group"))
        expect_number(c, "n_group", 1);
    family_routed(c, FAMILY_SIGMOID, normalised);
}

void family_glm4_moe(config_reader *c) {
    routed_at_once(c, true);
}

void family_dots1(config_reader *c) {
    routed_at_once(c, false);
}

/* rotary_dim of head_dim, unless the share is there. */
void family_minimax_keys(config_reader *c) {
    const int64_t none = 0;
    const int64_t width = config_int(c, c->root, "", "head_dim", 1, 65536, NULL);
    const int64_t turn = config_int(c, c->root, "", "rotary_dim", 0, 65536, &none);
    const cJSON *rope = json_get(c->root, "rope_parameters");
    const bool said = json_get(c->root, "partial_rotary_factor") ||
                      (rope && json_get(rope, "partial_rotary_factor"));
    if (c->status || !turn || said)
        return;
    if (!cJSON_AddNumberToObject(c->root, "partial_rotary_factor", (double)turn / (double)width))
        c->status = mnl_fail_memory(c->err);
}

void family_minimax(config_reader *c) {
    if (!config_bool(c, "use_qk_norm", true) && !c->status)
        c->status =
            mnl_fail(c->err, MN_UNSUPPORTED,
                     "%.*s: key 'use_qk_norm' is false, which is unsupported; expected true",
                     MN_STR_ARG(c->file->name));
    family_experts(c);
    put_expert_width(c, "intermediate_size");
    config_put_int(c, "expert_gating_func", "", "model_type", 2); /* sigmoid */
    config_put_bool(c, "expert_weights_norm", "model_type", true);
}

void family_ernie_moe_keys(config_reader *c) {
    family_copy_key(c, "moe_num_experts", "num_experts");
    family_copy_key(c, "moe_k", "num_experts_per_tok");
}

/* Which layers have experts follows from the tensors; the keys are for other programs. */
void family_ernie_moe(config_reader *c) {
    family_experts(c);
    put_expert_width(c, "moe_intermediate_size");
    const int64_t width = config_int(c, c->root, "", "moe_intermediate_size", 1, 1 << 24, NULL);
    const int64_t n = keys_count(c, "moe_num_shared_experts", 0);
    config_put_int(c, "expert_shared_count", "", "moe_num_shared_experts", n);
    put_shared(c, "moe_num_shared_experts", n * width);
    config_put_int(c, "interleave_moe_layer_step", "", "moe_layer_interval",
                   keys_count(c, "moe_layer_interval", 1));
    config_put_int(c, "leading_dense_block_count", "", "moe_layer_start_index",
                   keys_count(c, "moe_layer_start_index", 1));
}

/* A number, or a list of the same number per layer, under `to`. */
static void copy_equal(config_reader *c, const char *from, const char *to) {
    const cJSON *v = json_get(c->root, from);
    if (!cJSON_IsArray(v)) {
        family_copy_key(c, from, to);
        return;
    }
    int64_t first = 0;
    int64_t n = 0;
    for (const cJSON *i = v->child; i && !c->status; i = i->next) {
        if (!json_is_int(i, 0, 1 << 24, &n) || (i != v->child && n != first))
            config_fail(c, "", from, v, "a number, or the same for each layer");
        first = n;
    }
    if (c->status)
        return;
    cJSON_DeleteItemFromObjectCaseSensitive(c->root, to);
    if (!cJSON_AddNumberToObject(c->root, to, (double)first))
        c->status = mnl_fail_memory(c->err);
}

void family_hunyuan_moe_keys(config_reader *c) {
    copy_equal(c, "moe_topk", "num_experts_per_tok");
    copy_equal(c, "num_shared_expert", "num_shared_expert");
    copy_equal(c, "moe_intermediate_size", "moe_intermediate_size");
    family_copy_key(c, "intermediate_size", "moe_intermediate_size");
}

void family_hunyuan_moe(config_reader *c) {
    family_experts(c);
    put_expert_width(c, "moe_intermediate_size");
    const int64_t width = config_int(c, c->root, "", "moe_intermediate_size", 1, 1 << 24, NULL);
    put_shared(c, "num_shared_expert", keys_count(c, "num_shared_expert", 1) * width);
}

void family_cohere(config_reader *c) {
    family_put_if(c, "logit_scale", "logit_scale", FLT_MIN, 1e9);
}

void family_granite_moe(config_reader *c) {
    family_granite(c);
    family_experts(c);
    put_expert_width(c, "intermediate_size");
    put_shared(c, "shared_intermediate_size", keys_count(c, "shared_intermediate_size", 0));
}

/* ---- Llama 4 --------------------------------------------------------------------------------- */

/* Which layers attend in chunks, where layer_types does not say it: those that rotate. Chunks are
 * told as windows are. */
void family_llama4_keys(config_reader *c) {
    const int64_t four = 4;
    const int64_t n = config_int(c, c->root, "", "num_hidden_layers", 1, 4096, NULL);
    const int64_t every = config_int(c, c->root, "", "no_rope_layer_interval", 1, 65536, &four);
    const cJSON *rotate = json_get(c->root, "no_rope_layers");
    const cJSON *at = rotate ? rotate->child : NULL;
    const bool chunks = json_get(c->root, "attention_chunk_size") != NULL;
    family_copy_key(c, "attention_chunk_size", "sliding_window");
    if (c->status || json_get(c->root, "layer_types"))
        return;
    cJSON *types = cJSON_AddArrayToObject(c->root, "layer_types");
    for (int64_t i = 0; types && i < n; i++) {
        bool rotates = (i + 1) % every != 0;
        if (at) {
            rotates = at->valueint != 0 || cJSON_IsTrue(at);
            at = at->next;
        }
        cJSON_AddItemToArray(
            types, cJSON_CreateString(chunks && rotates ? "chunked_attention" : "full_attention"));
    }
    if (!types || cJSON_GetArraySize(types) != n)
        c->status = mnl_fail_memory(c->err);
}

/* attn_temperature_tuning is true, false or, in the first configurations, a number. */
static bool is_tuned(config_reader *c) {
    const cJSON *v = json_get(c->root, "attn_temperature_tuning");
    if (v && cJSON_IsNumber(v))
        return v->valuedouble > 0;
    return config_bool(c, "attn_temperature_tuning", true);
}

void family_llama4(config_reader *c) {
    family_put_experts(c, "num_local_experts", "intermediate_size");
    put_shared(c, "intermediate_size",
               config_int(c, c->root, "", "intermediate_size", 1, 1 << 24, NULL));
    config_put_int(c, "interleave_moe_layer_step", "", "interleave_moe_layer_step",
                   keys_count(c, "interleave_moe_layer_step", 1));
    config_put_bool(c, "attention.unit_norms", "use_qk_norm", config_bool(c, "use_qk_norm", true));
    config_put_float(c, "attention.temperature_scale", "", "attn_scale",
                     is_tuned(c) ? config_float(c, c->root, "", "attn_scale", 0, 1e3, NULL) : 0);
    config_put_int(c, "attention.temperature_length", "", "floor_scale",
                   config_int(c, c->root, "", "floor_scale", 1, INT32_MAX, NULL));
}

/* How queries grow beyond the original context is among the numbers of the rotation. */
void family_ministral3(config_reader *c) {
    static const char *const names[] = {"rope_scaling", "rope_parameters"};
    static const char *const paths[] = {"rope_scaling.", "rope_parameters."};
    for (int i = 0; i < 2; i++) {
        const cJSON *rope = json_get(c->root, names[i]);
        if (!rope || !json_get(rope, "llama_4_scaling_beta"))
            continue;
        config_put_float(c, "attention.temperature_scale", paths[i], "llama_4_scaling_beta",
                         config_float(c, rope, paths[i], "llama_4_scaling_beta", 0, 1e3, NULL));
        config_put_int(
            c, "attention.temperature_length", paths[i], "original_max_position_embeddings",
            config_int(c, rope, paths[i], "original_max_position_embeddings", 1, INT32_MAX, NULL));
        return;
    }
}

/* ---- Apertus --------------------------------------------------------------------------------- */

/* The one value of "model.layers.N.mlp.act_fn.WHAT"; 0 after an error. */
static double act_number(config_reader *c, int64_t layer, const char *what) {
    char name[64];
    const int n = snprintf(name, sizeof name, "layers.%lld.mlp.act_fn.%s", (long long)layer, what);
    for (uint64_t i = 0; i < c->parsed->n_tensors && !c->status; i++) {
        const mn_parsed_tensor *t = &c->parsed->tensors[i];
        const uint32_t type = t->dtype.id;
        if (!mn_str_eq(mnl_inner_name(t->native), (mn_str){name, (uint64_t)n}))
            continue;
        if (t->n_dim == 1 && t->dim[0] == 1 &&
            (type == MN_F32 || type == MN_F16 || type == MN_BF16))
            return mn_plane_value(type, t->plane.ptr);
        c->status = mnl_fail(c->err, MN_BAD_FILE,
                             "tensor '%.*s' (%s): expected one number of f32, f16 or bf16",
                             MN_STR_ARG(t->native), mn_dtype_name(t->dtype.id));
    }
    if (!c->status)
        c->status = mnl_fail(c->err, MN_BAD_FILE, "tensor '%s' is missing", name);
    return 0;
}

/* The numbers of xIELU are tensors of one element, and keys in GGUF. */
void family_apertus(config_reader *c) {
    static const char *const names[] = {"alpha_p", "alpha_n", "beta", "eps"};
    static const char *const keys[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    const char *act = config_str(c, c->root, "", "hidden_act", "xielu");
    for (size_t k = 0; k < MN_COUNT(names) && !strcmp(act, "xielu"); k++) {
        double *all =
            c->status ? NULL : mn_parsed_alloc(c->parsed, (uint64_t)c->n_layer, sizeof *all);
        if (!all && !c->status)
            c->status = mnl_fail_memory(c->err);
        for (int64_t i = 0; all && i < c->n_layer; i++)
            all[i] = act_number(c, i, names[k]);
        mn_value *v = config_put(c, keys[k], "", "hidden_act");
        if (!v)
            return;
        v->type = MN_VALUE_ARRAY | MN_VALUE_FLOAT;
        v->array = all;
        v->n = (uint64_t)c->n_layer;
    }
}

/* ---- Phi-3.5-MoE ----------------------------------------------------------------------------- */

/* What sin and cos are multiplied by is said for short and long contexts, as attention_factor is
 * elsewhere; no graph has two. */
void family_phimoe_keys(config_reader *c) {
    static const char *const names[] = {"rope_scaling", "rope_parameters"};
    for (int i = 0; i < 2 && !c->status; i++) {
        cJSON *rope = cJSON_GetObjectItemCaseSensitive(c->root, names[i]);
        const cJSON *few = rope ? json_get(rope, "short_mscale") : NULL;
        const cJSON *many = rope ? json_get(rope, "long_mscale") : NULL;
        if (!few || !many || json_get(rope, "attention_factor"))
            continue;
        if (!cJSON_IsNumber(few) || !cJSON_IsNumber(many) || few->valuedouble < many->valuedouble ||
            few->valuedouble > many->valuedouble)
            config_fail(c, names[i], ".long_mscale", many, "the number that short_mscale is");
        else if (!cJSON_AddNumberToObject(rope, "attention_factor", few->valuedouble))
            c->status = mnl_fail_memory(c->err);
    }
}

/* Sparsemixer chooses two. */
void family_phimoe(config_reader *c) {
    family_experts(c);
    put_expert_width(c, "intermediate_size");
    expect_number(c, "num_experts_per_tok", 2);
    config_put_float(c, "expert_route_jitter", "", "router_jitter_noise",
                     config_float(c, c->root, "", "router_jitter_noise", 0, 1, NULL));
}

/* ---- older decoders -------------------------------------------------------------------------- */

/* Keys of the first configurations. */
void family_neox_keys(config_reader *c) {
    family_copy_key(c, "rotary_emb_base", "rope_theta");
    family_copy_key(c, "rotary_pct", "partial_rotary_factor");
}

void family_neox(config_reader *c) {
    config_put_bool(c, "use_parallel_residual", "use_parallel_residual",
                    config_bool(c, "use_parallel_residual", true));
}

/* How many heads of keys there are depends on three keys. Slopes in place of rotation, and
 * attention before the MLP, are other graphs. */
void family_falcon_keys(config_reader *c) {
    const bool grouped = config_bool(c, "new_decoder_architecture", false);
    const bool one = !grouped && config_bool(c, "multi_query", true);
    refuse_true(c, "alibi");
    if (!config_bool(c, "parallel_attn", true) && !grouped && !c->status)
        c->status =
            mnl_fail(c->err, MN_UNSUPPORTED,
                     "%.*s: key 'parallel_attn' is false, which is unsupported; expected true",
                     MN_STR_ARG(c->file->name));
    family_copy_key(c, "n_head", "num_attention_heads"); /* the first configurations */
    family_copy_key(c, "n_layer", "num_hidden_layers");
    if (one)
        cJSON_DeleteItemFromObjectCaseSensitive(c->root, "num_kv_heads");
    else
        family_copy_key(c, grouped ? "num_kv_heads" : "num_attention_heads", "num_key_value_heads");
    if (one && !c->status && !cJSON_AddNumberToObject(c->root, "num_key_value_heads", 1))
        c->status = mnl_fail_memory(c->err);
}

void family_olmo(config_reader *c) {
    if (json_get(c->root, "clip_qkv"))
        expect_number(c, "clip_qkv", 0);
}

/* The first configurations have n_embed. */
void family_bloom_keys(config_reader *c) {
    family_copy_key(c, "n_embed", "hidden_size");
}

void family_bloom(config_reader *c) {
    refuse_true(c, "apply_residual_connection_post_layernorm");
}

/* Heads have slopes in place of rotation: attn_config says how steep. */
void family_mpt(config_reader *c) {
    static const char in[] = "attn_config.";
    const cJSON *attn = json_get(c->root, "attn_config");
    const double usual = 8;
    const cJSON *has = attn ? json_get(attn, "alibi") : NULL;
    if (has && !cJSON_IsTrue(has))
        config_fail(c, in, "alibi", has, "true");
    const char *others[] = {"clip_qkv", "qk_ln", "prefix_lm"};
    for (size_t i = 0; i < MN_COUNT(others) && attn; i++) {
        const cJSON *v = json_get(attn, others[i]);
        if (v && !cJSON_IsFalse(v))
            config_fail(c, in, others[i], v, "null or false");
    }
    config_put_float(c, "attention.max_alibi_bias", in, "alibi_bias_max",
                     attn ? config_float(c, attn, in, "alibi_bias_max", 1e-3, 1e3, &usual) : usual);
    if (attn && json_get(attn, "softmax_scale"))
        config_put_float(c, "attention.scale", in, "softmax_scale",
                         config_float(c, attn, in, "softmax_scale", 1e-6, 1e6, NULL));
}

/* ---- T5 -------------------------------------------------------------------------------------- */
/* A key of ours in the tree in place of what was there; NULL: out of memory, or c has failed. */
static void replace_key(config_reader *c, const char *key, cJSON *value) {
    cJSON_DeleteItemFromObjectCaseSensitive(c->root, key);
    if (value && cJSON_AddItemToObject(c->root, key, value))
        return;
    cJSON_Delete(value);
    if (!c->status)
        c->status = mnl_fail_memory(c->err);
}

/* feed_forward_proj is "relu", "gated-gelu", ...: whether it is gated is said by the tensors, too;
 * T5's gated gelu is the one with tanh. d_kv is the size of heads. Logits have a matrix of their
 * own where the files have one, whatever tie_word_embeddings says. */
void family_t5_keys(config_reader *c) {
    const char *act = config_str(c, c->root, "", "feed_forward_proj", c->family->act);
    const int64_t d_kv = config_int(c, c->root, "", "d_kv", 1, 65536, NULL);
    const bool scaled = config_bool(c, "tie_word_embeddings", strcmp(c->family->act, "relu") == 0);
    const bool gated = !strncmp(act, "gated-", 6);
    if (!strcmp(act, "gated-gelu"))
        act = "gelu_new";
    else if (gated)
        act += 6;
    if (c->status)
        return;
    char own[64];
    snprintf(own, sizeof own, "%s", act); /* of the tree, which changes */
    replace_key(c, "hidden_act", cJSON_CreateString(own));
    replace_key(c, "head_dim", cJSON_CreateNumber((double)d_kv));
    if (!json_get(c->root, "scale_decoder_outputs"))
        replace_key(c, "scale_decoder_outputs", cJSON_CreateBool(scaled));
    const bool own_output = layout_find(c->parsed, mn_str_of("lm_head"), ".weight") != NULL;
    replace_key(c, "tie_word_embeddings", cJSON_CreateBool(!own_output));
}

void family_t5(config_reader *c) {
    static const struct {
        const char *key;
        const char *native;
        int64_t lo;
    } rows[] = {{"decoder_start_token_id", "decoder_start_token_id", 0},
                {"attention.relative_buckets_count", "relative_attention_num_buckets", 4},
                {"attention.relative_max_distance", "relative_attention_max_distance", 1}};
    const int64_t n = config_int(c, c->root, "", "num_decoder_layers", 1, 4096, &c->n_layer);
    config_put_int(c, "decoder_block_count", "", "num_decoder_layers", n);
    for (size_t i = 0; i < MN_COUNT(rows); i++)
        config_put_int(c, rows[i].key, "", rows[i].native,
                       config_int(c, c->root, "", rows[i].native, rows[i].lo, INT32_MAX, NULL));
    const bool scaled = config_bool(c, "scale_decoder_outputs", false);
    config_put_float(c, "logit_scale", "", "scale_decoder_outputs",
                     scaled ? sqrt((double)c->n_embd) : 1);
}
