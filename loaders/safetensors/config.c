/* config.c -- config.json: from the keys of Hugging Face to the canonical ones. Values are checked one by one and against
 * each other; whether they agree with the tensors is the host's question. */
#include "safetensors.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- access with a sticky status ---- */

void config_fail(config_reader *c, const char *in, const char *key, const cJSON *found, const char *expected) {
    if (c->status) return;
    if (!found)
        c->status = mn_fail(c->err, MN_BAD_FILE, "%.*s: key '%s%s' is missing, expected %s", MN_STR_ARG(c->file->name),
                            in, key, expected);
    else
        c->status = mn_fail(c->err, MN_BAD_FILE, "%.*s: key '%s%s' is %s, expected %s", MN_STR_ARG(c->file->name), in,
                            key, json_describe(found).s, expected);
}

int64_t config_int(config_reader *c, const cJSON *object, const char *in, const char *key, int64_t lo, int64_t hi,
                   const int64_t *fallback) {
    int64_t v = lo;
    const cJSON *item = json_get(object, key);
    if (c->status || (!item && fallback)) return fallback ? *fallback : v;
    if (json_is_int(item, lo, hi, &v)) return v;
    char expected[80];
    snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)lo, (long long)hi);
    config_fail(c, in, key, item, expected);
    return lo;
}

double config_float(config_reader *c, const cJSON *object, const char *in, const char *key, double lo, double hi,
                    const double *fallback) {
    const cJSON *item = json_get(object, key);
    if (c->status || (!item && fallback)) return fallback ? *fallback : lo;
    if (item && cJSON_IsNumber(item) && item->valuedouble >= lo && item->valuedouble <= hi) return item->valuedouble;
    char expected[80];
    snprintf(expected, sizeof expected, "a number from %g to %g", lo, hi);
    config_fail(c, in, key, item, expected);
    return lo;
}

bool config_bool(config_reader *c, const char *key, bool fallback) {
    const cJSON *item = json_get(c->root, key);
    if (item && !cJSON_IsBool(item)) config_fail(c, "", key, item, "true or false");
    return item ? cJSON_IsTrue(item) : fallback;
}

const char *config_str(config_reader *c, const cJSON *object, const char *in, const char *key, const char *fallback) {
    const cJSON *item = json_get(object, key);
    if (!item && fallback) return fallback;
    if (item && cJSON_IsString(item) && item->valuestring[0]) return item->valuestring;
    config_fail(c, in, key, item, "a string");
    return "";
}

mn_value *config_put(config_reader *c, const char *key, const char *in, const char *native) {
    if (c->status) return NULL;
    bool own = !strncmp(key, "general.", 8) || !strncmp(key, "minerva.", 8);
    mn_parsed_meta *m = mn_parsed_add_meta(c->parsed);
    if (m) m->key = mn_parsed_printf(c->parsed, "%s%s%s", own ? "" : c->arch, own ? "" : ".", key);
    if (m) m->native = mn_parsed_printf(c->parsed, "%s%s", in, native);
    if (!m || !m->key.ptr || !m->native.ptr) return c->status = mn_fail_memory(c->err), NULL;
    return &m->value;
}

void config_put_int(config_reader *c, const char *key, const char *in, const char *native, int64_t v) {
    mn_value *out = config_put(c, key, in, native);
    if (out) out->type = MN_VALUE_INT, out->i = v;
}

void config_put_float(config_reader *c, const char *key, const char *in, const char *native, double v) {
    mn_value *out = config_put(c, key, in, native);
    if (out) out->type = MN_VALUE_FLOAT, out->f = v;
}

void config_put_str(config_reader *c, const char *key, const char *in, const char *native, const char *v) {
    mn_value *out = config_put(c, key, in, native);
    mn_str copy = {0};
    if (out) copy = mn_parsed_copy(c->parsed, mn_str_of(v)); /* the JSON tree is freed at the end of open */
    if (!out) return;
    if (!copy.ptr) {
        c->status = mn_fail_memory(c->err);
        return;
    }
    out->type = MN_VALUE_STR;
    out->s = copy;
}

static void put_bool(config_reader *c, const char *key, const char *native, bool v) {
    mn_value *out = config_put(c, key, "", native);
    if (out) out->type = MN_VALUE_BOOL, out->i = v;
}

/* ---- which model is this ---- */

static const struct {
    const char *family, *class_name, *arch;
} known[] = {
    {"llama", "LlamaForCausalLM", "llama"},
    {"mistral", "MistralForCausalLM", "llama"},
    {"qwen2", "Qwen2ForCausalLM", "qwen2"},
    {"qwen3", "Qwen3ForCausalLM", "qwen3"},
};

static void refuse_quantised(config_reader *c) {
    const cJSON *mlx = json_get(c->root, "quantization"), *other = json_get(c->root, "quantization_config");
    if (c->status || (!mlx && !other)) return;
    const cJSON *bits = json_get(mlx, "bits"), *group = json_get(mlx, "group_size"),
                *method = json_get(other, "quant_method");
    if (mlx && bits && group)
        c->status = mn_fail(c->err, MN_UNSUPPORTED,
                            "%.*s: key 'quantization': MLX weights (%s bits in groups of %s), which this loader does "
                            "not read; expected plain weights",
                            MN_STR_ARG(c->file->name), json_describe(bits).s, json_describe(group).s);
    else
        c->status =
            mn_fail(c->err, MN_UNSUPPORTED,
                    "%.*s: key '%s': quantised weights (quant_method %s), which this loader does not read; expected "
                    "plain weights",
                    MN_STR_ARG(c->file->name), mlx ? "quantization" : "quantization_config", json_describe(method).s);
}

static void unknown_model(config_reader *c, const char *key, const char *found) {
    if (c->status) return;
    c->status = mn_fail(c->err, MN_UNSUPPORTED,
                        "%.*s: key '%s': unknown architecture '%.80s'; known: llama (LlamaForCausalLM), mistral "
                        "(MistralForCausalLM), qwen2 (Qwen2ForCausalLM), qwen3 (Qwen3ForCausalLM)",
                        MN_STR_ARG(c->file->name), key, found);
}

static void read_architecture(config_reader *c) {
    const char *family = config_str(c, c->root, "", "model_type", NULL);
    const cJSON *classes = json_get(c->root, "architectures");
    size_t k = 0;
    if (c->status) return;
    while (k < MN_COUNT(known) && strcmp(known[k].family, family)) k++;
    if (k == MN_COUNT(known)) {
        unknown_model(c, "model_type", family);
        return;
    }
    if (classes && (!cJSON_IsArray(classes) || (classes->child && !cJSON_IsString(classes->child)))) {
        config_fail(c, "", "architectures", classes, "an array of strings");
        return;
    }
    if (classes && classes->child && strcmp(classes->child->valuestring, known[k].class_name)) {
        unknown_model(c, "architectures", classes->child->valuestring);
        return;
    }
    c->family = known[k].family;
    c->arch = known[k].arch;
    config_put_str(c, "general.architecture", "", "model_type", c->arch);
    config_put_str(c, "general.name", "", "_name_or_path", config_str(c, c->root, "", "_name_or_path", c->family));
}

/* ---- sizes ---- */

static int64_t put_size(config_reader *c, const char *key, const char *native, int64_t hi) {
    int64_t v = config_int(c, c->root, "", native, 1, hi, NULL);
    config_put_int(c, key, "", native, v);
    return v;
}

static void read_heads(config_reader *c) {
    c->n_head = put_size(c, "attention.head_count", "num_attention_heads", 65536);
    c->n_head_kv = config_int(c, c->root, "", "num_key_value_heads", 1, 65536, &c->n_head);
    if (c->status) return;
    if (c->n_head % c->n_head_kv) {
        c->status = mn_fail(
            c->err, MN_BAD_FILE,
            "%.*s: key 'num_attention_heads' is %lld, expected a multiple of 'num_key_value_heads', which is %lld",
            MN_STR_ARG(c->file->name), (long long)c->n_head, (long long)c->n_head_kv);
        return;
    }
    if (!json_get(c->root, "head_dim") && c->n_embd % c->n_head) {
        c->status = mn_fail(c->err, MN_BAD_FILE,
                            "%.*s: key 'hidden_size' is %lld, expected a multiple of 'num_attention_heads', which is "
                            "%lld (there is no 'head_dim')",
                            MN_STR_ARG(c->file->name), (long long)c->n_embd, (long long)c->n_head);
        return;
    }
    int64_t share = c->n_embd / c->n_head;
    c->head_dim = config_int(c, c->root, "", "head_dim", 1, 65536, &share);
    config_put_int(c, "attention.head_count_kv", "", "num_key_value_heads", c->n_head_kv);
    config_put_int(c, "attention.key_length", "", "head_dim", c->head_dim);
    config_put_int(c, "attention.value_length", "", "head_dim", c->head_dim);
}

static void read_sizes(config_reader *c) {
    c->n_ctx = put_size(c, "context_length", "max_position_embeddings", INT32_MAX);
    c->n_embd = put_size(c, "embedding_length", "hidden_size", 1 << 24);
    c->n_layer = put_size(c, "block_count", "num_hidden_layers", 4096);
    put_size(c, "feed_forward_length", "intermediate_size", 1 << 26);
    put_size(c, "vocab_size", "vocab_size", 1 << 26);
    read_heads(c);
    config_put_float(c, "attention.layer_norm_rms_epsilon", "", "rms_norm_eps",
                     config_float(c, c->root, "", "rms_norm_eps", DBL_MIN, 1, NULL));
}

/* ---- sliding window ---- */

/* How many layers slide by layer_types; -1 = the key is absent. */
static int64_t sliding_by_types(config_reader *c) {
    const cJSON *types = json_get(c->root, "layer_types");
    int64_t n = 0, n_sliding = 0;
    if (!types) return -1;
    if (!cJSON_IsArray(types)) return config_fail(c, "", "layer_types", types, "an array of strings"), -1;
    for (const cJSON *t = types->child; t; t = t->next, n++) {
        bool sliding = cJSON_IsString(t) && !strcmp(t->valuestring, "sliding_attention");
        if (!sliding && !(cJSON_IsString(t) && !strcmp(t->valuestring, "full_attention")))
            return config_fail(c, "", "layer_types", t, "\"full_attention\" or \"sliding_attention\" per layer"), -1;
        n_sliding += sliding;
    }
    if (n != c->n_layer && !c->status)
        c->status =
            mn_fail(c->err, MN_BAD_FILE, "%.*s: key 'layer_types' has %lld entries, expected %lld (num_hidden_layers)",
                    MN_STR_ARG(c->file->name), (long long)n, (long long)c->n_layer);
    return n_sliding;
}

static void read_window(config_reader *c) {
    const cJSON *window = json_get(c->root, "sliding_window");
    bool qwen = !strncmp(c->family, "qwen", 4);
    bool wanted = qwen ? config_bool(c, "use_sliding_window", false) : !strcmp(c->family, "mistral");
    if (c->status || !wanted || !window) return;
    int64_t size = config_int(c, c->root, "", "sliding_window", 1, INT32_MAX, NULL);
    int64_t n_sliding = sliding_by_types(c), first = 0;
    if (qwen)
        first = config_int(c, c->root, "", "max_window_layers", 0, INT32_MAX,
                           &first); /* the layers before it see everything */
    if (n_sliding < 0) n_sliding = first < c->n_layer ? c->n_layer - first : 0;
    if (c->status || !n_sliding) return;
    if (n_sliding != c->n_layer) {
        c->status = mn_fail(c->err, MN_UNSUPPORTED,
                            "%.*s: key 'sliding_window': %lld of %lld layers use it, which is not supported for %s; "
                            "expected all or none",
                            MN_STR_ARG(c->file->name), (long long)n_sliding, (long long)c->n_layer, c->family);
        return;
    }
    config_put_int(c, "attention.sliding_window", "", "sliding_window", size);
}

static void read_all(config_reader *c) {
    refuse_quantised(c);
    read_architecture(c);
    if (c->status) return;
    read_sizes(c);
    if (c->status) return;
    read_window(c);
    config_read_rope(c);
    c->tied = config_bool(c, "tie_word_embeddings", false);
    put_bool(c, "minerva.tie_word_embeddings", "tie_word_embeddings", c->tied);
    config_put_str(c, "minerva.hidden_act", "", "hidden_act", config_str(c, c->root, "", "hidden_act", "silu"));
    config_put_str(c, "minerva.rope.pairing", "", "model_type", "halves");
}

mn_status config_read(mn_parsed *p, const mn_file *f, bool *tied, mn_error *err) {
    cJSON *root;
    mn_status status = json_parse(p->host, f, 0, f->bytes, &root, err);
    if (status) return status;
    config_reader c = {.parsed = p, .file = f, .err = err, .root = root, .arch = "", .family = ""};
    c.status = json_unique(p->host, f, root, err);
    if (!c.status) read_all(&c);
    cJSON_Delete(root);
    *tied = c.tied;
    return c.status;
}
