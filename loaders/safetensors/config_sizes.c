/* config_sizes.c -- config.json: sizes of the model, of its heads and of its MLPs. They may differ
 * from layer to layer, by an array or by per_layer_config; where a key is missing, the shapes of
 * tensors may say it. */
#include "families.h"
#include <float.h>
#include <math.h>
#include <string.h>

/* A family's own name of a key, or the usual one. */
static const char *hf_key_of(const char *own, const char *usual) {
    if (own)
        return own;
    return usual;
}

/* A count from 1 to hi, put under `key` and returned. */
static int64_t put_size(config_reader *c, const char *key, const char *native, int64_t hi) {
    int64_t v = config_int(c, c->root, "", native, 1, hi, NULL);
    config_put_int(c, key, "", native, v);
    return v;
}

/* What a matrix of the text model says where config.json does not, by its name without a prefix:
 * its rows in units; else fallback. */
static int64_t by_matrix(const config_reader *c, const char *name, int64_t unit, int64_t fallback) {
    for (uint64_t i = 0; i < c->parsed->n_tensors; i++) {
        const mn_parsed_tensor *t = &c->parsed->tensors[i];
        if (mn_str_is(mnl_inner_name(t->native), name) && t->n_dim == 2 && t->dim[0] % unit == 0)
            return t->dim[0] / unit;
    }
    return fallback;
}

/* As many as the embedding has rows: Transformers makes its table by the key, and loads no
 * other. */
static void read_vocab(config_reader *c) {
    if (!json_get(c->root, "vocab_size"))
        return;
    const int64_t n = put_size(c, "vocab_size", "vocab_size", 1 << 26);
    const int64_t rows = by_matrix(c, "embed_tokens.weight", 1,
                                   by_matrix(c, "wte.weight", 1,
                                             by_matrix(c, "embeddings.word_embeddings.weight", 1,
                                                       by_matrix(c, "embeddings.weight", 1, n))));
    if (!c->status && n != rows)
        c->status =
            mnl_fail(c->err, MN_BAD_FILE,
                     "%.*s: key 'vocab_size' is %lld, expected %lld: the rows of the embedding",
                     MN_STR_ARG(c->file->name), (long long)n, (long long)rows);
}

/* ---- sizes that may differ from layer to layer ----------------------------------------------- */

/* The layer that a member of per_layer_config names, "07" or "7"; -1 = none. */
static int64_t named_layer(const config_reader *c, const cJSON *member) {
    int64_t layer = 0;
    const char *s = member->string;
    if (!*s)
        return -1;
    for (; *s; s++) {
        if (*s < '0' || *s > '9')
            return -1;
        if (layer > c->n_layer)
            return -1;
        layer = layer * 10 + (*s - '0');
    }
    if (layer < c->n_layer)
        return layer;
    return -1;
}

/* per_layer_config: {"1": {"intermediate_size": 96}, ...}: what differs from the model's keys. */
static void find_layers(config_reader *c) {
    /* the last of the families that have wide_full */
    static const char *const known[] = {"num_attention_heads", "num_key_value_heads",
                                        "intermediate_size", "head_dim"};
    const size_t n_known = MN_COUNT(known) - !c->family->wide_full;
    const cJSON *all = json_get(c->root, "per_layer_config");
    if (c->status || !all)
        return;
    if (!cJSON_IsObject(all)) {
        config_fail(c, "", "per_layer_config", all, "an object with a member per layer");
        return;
    }
    c->layers = mn_parsed_alloc(c->parsed, (uint64_t)c->n_layer, sizeof *c->layers);
    if (!c->layers)
        c->status = mnl_fail_memory(c->err);
    for (const cJSON *l = all->child; l && !c->status; l = l->next) {
        const int64_t at = named_layer(c, l);
        if (at < 0 || !cJSON_IsObject(l)) {
            config_fail(c, "per_layer_config.", l->string, l, "the number of a layer, an object");
            return;
        }
        c->layers[at] = l;
        for (const cJSON *k = l->child; k && !c->status; k = k->next) {
            bool found = false;
            for (size_t i = 0; i < n_known; i++)
                found = found || !strcmp(k->string, known[i]);
            if (!found)
                c->status = mnl_fail(c->err, MN_UNSUPPORTED,
                                     "%.*s: key 'per_layer_config.%s.%.60s' is unsupported; known: "
                                     "num_attention_heads, num_key_value_heads, intermediate_size",
                                     MN_STR_ARG(c->file->name), l->string, k->string);
        }
    }
}

/* Entry `layer` of an array of integers up to hi, one for each layer. */
static int64_t config_int_at(config_reader *c, const cJSON *list, const char *native, int64_t layer,
                             int64_t hi) {
    const cJSON *v = cJSON_GetArrayItem(list, (int)layer);
    const double n = v && cJSON_IsNumber(v) ? v->valuedouble : 0;
    const bool whole = n >= 1 && n <= (double)hi && !(n > floor(n));
    if (whole && cJSON_GetArraySize(list) == c->n_layer)
        return (int64_t)n;
    config_fail(c, "", native, list, "a positive integer for each layer");
    return 1;
}

/* One integer per layer: what per_layer_config says of it, else the model's, which may be an array,
 * else fallback (NULL: a failure). NULL after a failure. */
static int64_t *each_layer(config_reader *c, const char *native, int64_t hi,
                           const int64_t *fallback) {
    int64_t *each = config_new_layers(c);
    const cJSON *list = json_get(c->root, native);
    for (int64_t i = 0; each && i < c->n_layer && !c->status; i++) {
        const cJSON *own = NULL;
        if (c->layers)
            own = c->layers[i];
        if (own && json_get(own, native))
            each[i] = config_int(c, own, "per_layer_config.", native, 1, hi, NULL);
        else if (cJSON_IsArray(list))
            each[i] = config_int_at(c, list, native, i, hi);
        else
            each[i] = config_int(c, c->root, "", native, 1, hi, fallback);
    }
    if (c->status)
        return NULL;
    return each;
}

/* As one integer where all layers are equal. */
static void put_each(config_reader *c, const char *key, const char *native, const int64_t *each) {
    bool equal = true;
    for (int64_t i = 1; i < c->n_layer; i++)
        equal = equal && each[i] == each[0];
    mn_value *v = config_put(c, key, "", native);
    if (v && equal) {
        v->type = MN_VALUE_INT;
        v->i = each[0];
    } else if (v) {
        v->type = MN_VALUE_ARRAY | MN_VALUE_INT;
        v->array = each;
        v->n = (uint64_t)c->n_layer;
    }
}

/* head_dim, or the width by the number of heads. */
static void read_head_dim(config_reader *c, const char *embd, const char *heads) {
    int64_t share = by_matrix(c, "layers.0.self_attn.q_proj.weight", c->n_head, 0);
    if (!json_get(c->root, "head_dim") && !share && c->n_embd % c->n_head) {
        c->status = mnl_fail(c->err, MN_BAD_FILE,
                             "%.*s: key '%s' is %lld, expected a multiple of '%s', which is %lld "
                             "(there is no 'head_dim')",
                             MN_STR_ARG(c->file->name), embd, (long long)c->n_embd, heads,
                             (long long)c->n_head);
        return;
    }
    if (!share)
        share = c->n_embd / c->n_head;
    c->head_dim = config_int(c, c->root, "", "head_dim", 1, 65536, &share);
    config_put_int(c, "attention.key_length", "", "head_dim", c->head_dim);
    config_put_int(c, "attention.value_length", "", "head_dim", c->head_dim);
}

/* The value of the layers that slide, or of those that do not: they must agree. 0 = there are
 * none. */
static int64_t of_kind(config_reader *c, const char *key, const int64_t *each, bool sliding) {
    int64_t first = 0;
    for (int64_t i = 0; i < c->n_layer && !c->status; i++) {
        if ((c->slides[i] != 0) != sliding)
            continue;
        if (first && each[i] != first)
            c->status = mnl_fail(c->err, MN_UNSUPPORTED,
                                 "%.*s: key '%s' is %lld in layer %lld and %lld in another one of "
                                 "its kind, expected the same",
                                 MN_STR_ARG(c->file->name), key, (long long)each[i], (long long)i,
                                 (long long)first);
        first = each[i];
    }
    return first;
}

/* Gemma 4: heads of full layers are wider, and where keys are values, too, fewer. */
static void read_wide_heads(config_reader *c) {
    int64_t *slides = config_new_layers(c);
    if (slides)
        config_find_sliding(c, slides);
    c->slides = slides;
    const int64_t n_kv = config_int(c, c->root, "", "num_key_value_heads", 1, 65536, NULL);
    const int64_t wide = config_int(c, c->root, "", "global_head_dim", 1, 65536, NULL);
    const bool few = config_bool(c, "attention_k_eq_v", false);
    const int64_t n_wide =
        config_int(c, c->root, "", "num_global_key_value_heads", 1, 65536, &n_kv);
    const int64_t *q = each_layer(c, "num_attention_heads", 65536, NULL);
    int64_t *kv = each_layer(c, "num_key_value_heads", 65536, NULL);
    int64_t *dim = each_layer(c, "head_dim", 65536, NULL);
    for (int64_t i = 0; !c->status && i < c->n_layer; i++) {
        if (slides[i] || c->layers)
            continue; /* per_layer_config has said it */
        dim[i] = wide;
        kv[i] = n_kv;
        if (few)
            kv[i] = n_wide;
    }
    if (c->status)
        return;
    c->n_head = q[0];
    c->head_dim = of_kind(c, "head_dim", dim, false);
    c->head_dim_swa = of_kind(c, "head_dim", dim, true);
    if (!c->head_dim)
        c->head_dim = c->head_dim_swa;
    put_each(c, "attention.head_count", "num_attention_heads", q);
    put_each(c, "attention.head_count_kv", "num_key_value_heads", kv);
    config_put_int(c, "attention.key_length", "", "global_head_dim", c->head_dim);
    config_put_int(c, "attention.value_length", "", "global_head_dim", c->head_dim);
    if (!c->head_dim_swa)
        return;
    config_put_int(c, "attention.key_length_swa", "", "head_dim", c->head_dim_swa);
    config_put_int(c, "attention.value_length_swa", "", "head_dim", c->head_dim_swa);
}

/* Counts of heads and their width, the same in all layers or an array of one per layer. */
static void hf_read_heads(config_reader *c, const size_keys *k) {
    const char *embd = hf_key_of(k->n_embd, "hidden_size");
    const char *heads = hf_key_of(k->n_head, "num_attention_heads");
    const int64_t *q = each_layer(c, heads, 65536, NULL);
    if (!q)
        return;
    put_each(c, "attention.head_count", heads, q);
    c->n_head = q[0];
    read_head_dim(c, embd, heads);
    if (c->status)
        return;
    const int64_t said = by_matrix(c, "layers.0.self_attn.k_proj.weight", c->head_dim, c->n_head);
    int64_t *kv = each_layer(c, "num_key_value_heads", 65536, &said);
    for (int64_t i = 0; kv && i < c->n_layer; i++) {
        if (q[i] % kv[i] == 0)
            continue;
        c->status = mnl_fail(
            c->err, MN_BAD_FILE,
            "%.*s: key '%s' is %lld, expected a multiple of 'num_key_value_heads', "
            "which is %lld (layer %lld)",
            MN_STR_ARG(c->file->name), heads, (long long)q[i], (long long)kv[i], (long long)i);
        return;
    }
    if (!kv)
        return;
    c->n_head_kv = kv[0];
    for (int64_t i = 0; c->kinds && !c->family->same_heads && i < c->n_layer; i++)
        if (c->kinds[i] != LAYER_ATTENDS)
            kv[i] = 0;
    put_each(c, "attention.head_count_kv", "num_key_value_heads", kv);
}

/* Positions that a text has: RoBERTa's tables begin with rows for padding, which no token has. */
static void read_positions(config_reader *c, const char *native) {
    if (c->family->from_pad)
        c->unused_positions =
            1 + config_int(c, c->root, "", "pad_token_id", 0, INT32_MAX - 2, NULL);
    const int64_t lo = 1 + c->unused_positions;
    const int64_t n = config_int(c, c->root, "", native, lo, INT32_MAX, NULL);
    c->n_ctx = n - c->unused_positions;
    config_put_int(c, "context_length", "", native, c->n_ctx);
}

/* The last layers, whose keys and values are those of earlier ones. */
static int64_t shared_layers(config_reader *c) {
    const int64_t none = 0;
    return config_int(c, c->root, "", "num_kv_shared_layers", 0, c->n_layer, &none);
}

/* Width i of layers that are one block each: 0 where it is a mixer alone; that of its experts where
 * it has some, as llama.cpp tells its layers apart. */
static int64_t width_of_block(config_reader *c, int64_t i, int64_t mlp) {
    if (c->kinds[i] == LAYER_EXPERTS)
        return config_int(c, c->root, "", "moe_intermediate_size", 1, 1 << 24, NULL);
    return c->kinds[i] == LAYER_MLP ? mlp : 0;
}

/* Widths of MLPs. */
static void read_widths(config_reader *c, const char *ff, const int64_t *fallback) {
    int64_t *width = each_layer(c, ff, 1 << 26, fallback);
    if (!width)
        return;
    for (int64_t i = 0; c->family->one_block && i < c->n_layer; i++)
        width[i] = width_of_block(c, i, width[i]);
    if (c->family->wide_full &&
        config_bool(c, "use_double_wide_mlp", false)) /* where layers share */
        for (int64_t i = c->n_layer - shared_layers(c); i < c->n_layer; i++)
            width[i] *= 2;
    put_each(c, "feed_forward_length", ff, width);
}

/* Sizes of layers come before heads, which may differ by layer. */
void config_read_sizes(config_reader *c) {
    static const size_keys usual = {0};
    const size_keys *k = &usual;
    if (c->family->keys)
        k = c->family->keys;
    const char *ff = hf_key_of(c->width_of_all ? c->width_of_all : k->n_ff, "intermediate_size");
    const char *eps = hf_key_of(k->eps, "rms_norm_eps");
    read_positions(c, hf_key_of(k->n_ctx, "max_position_embeddings"));
    c->n_embd = put_size(c, "embedding_length", hf_key_of(k->n_embd, "hidden_size"), 1 << 24);
    c->n_layer = put_size(c, "block_count", hf_key_of(k->n_layer, "num_hidden_layers"), 4096);
    const int64_t four = 4 * c->n_embd; /* GPT-2 leaves it out */
    find_layers(c);
    if (!c->family->no_attention)
        read_widths(c, ff, k->n_ff ? &four : NULL);
    read_vocab(c);
    if (c->family->wide_full)
        read_wide_heads(c);
    else if (c->family->latent)
        latent_read_heads(c);
    else if (!c->family->no_attention)
        hf_read_heads(c, k);
    config_put_float(c,
                     c->family->layer_norm ? "attention.layer_norm_epsilon"
                                           : "attention.layer_norm_rms_epsilon",
                     "", eps, config_float(c, c->root, "", eps, DBL_MIN, 1, NULL));
    if (c->family->one_block) /* llama.cpp's key, for the draft heads' norm */
        config_put_float(c, "attention.layer_norm_epsilon", "", eps,
                         config_float(c, c->root, "", eps, DBL_MIN, 1, NULL));
}
