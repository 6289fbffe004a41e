/* adapter.c -- LoRA adapters as PEFT stores them: adapter_config.json beside
 * adapter_model.safetensors. What comes out has the form of GGUF's adapters: the key general.type
 * is "adapter", and each matrix that is adapted has two tensors, NAME.lora_a [r, K] and NAME.lora_b
 * [N, r], NAME being canonical. PEFT stores some matrices of the model beside them (the output
 * matrix, where it is adapted): NAME.base, which the host compares with the model's. The factor of
 * each product follows from config.json alone (alpha, patterns of modules, rslora); it goes to the
 * host as a key of its own, since GGUF's one key for alpha cannot say it.
 *
 * An adapter does not say its family, so names are looked up in the tables of all families: those
 * of matrices do not contradict each other. Everything that changes the result and is not read here
 * is an error that names the key. */
#include "families.h"
#include <math.h>
#include <string.h>

#define CONFIG_NAME "adapter_config.json"
#define WEIGHTS_NAME "adapter_model.safetensors"

typedef struct {
    mn_parsed *parsed;
    const mn_file *file; /* adapter_config.json */
    cJSON *root;
    double r, alpha;
    bool by_root; /* rslora: alpha / sqrt(r) */
    mn_error *err;
} adapter_reader;

bool adapter_is_ours(const mn_file *files, uint32_t n, uint32_t stride) {
    const mn_file *named = mnl_file_named(files, n, stride);
    if (!model_file(files, n, stride, WEIGHTS_NAME))
        return false;
    if (!named)
        return !model_is_ours(files, n, stride);
    return mn_str_is(named->name, WEIGHTS_NAME) || mn_str_is(named->name, CONFIG_NAME);
}

/* ---- adapter_config.json --------------------------------------------------------------------- */

static mn_status adapter_refuse(const adapter_reader *r, const char *key, const char *expected) {
    return mnl_fail(
        r->err, MN_UNSUPPORTED, "%.*s: key '%s' is %s, which is unsupported; expected %s",
        MN_STR_ARG(r->file->name), key, json_describe(json_get(r->root, key)).s, expected);
}

/* An empty list or object, an empty text, false or null: as if the key were not there. */
static bool adapter_is_unset(const cJSON *item) {
    if (!item || cJSON_IsFalse(item))
        return true;
    if (cJSON_IsString(item))
        return !item->valuestring[0];
    return (cJSON_IsArray(item) || cJSON_IsObject(item)) && !item->child;
}

/* What would change the result, each with the sentence on what is read. */
static mn_status adapter_check_kind(const adapter_reader *r) {
    static const char *const refused[][2] = {
        {"use_dora", "false: DoRA's magnitudes are not applied"},
        {"modules_to_save",
         "none: weights that were trained whole (merge the adapter into the model)"},
        {"trainable_token_indices", "none: embeddings that were trained (merge the adapter)"},
        {"lora_bias", "false"},
        {"layer_replication", "none"},
        {"megatron_config", "none"},
        {"target_parameters", "none: matrices of experts are not adapted"},
        {"alora_invocation_tokens", "none: an adapter that acts on some tokens alone"},
        {"use_qalora", "false"},
        {"use_bdlora", "none"},
        {"arrow_config", "none"},
        {"monteclora_config", "none"},
        {"kasa_config", "none"},
    };
    const cJSON *type = json_get(r->root, "peft_type");
    const cJSON *bias = json_get(r->root, "bias");
    const cJSON *init = json_get(r->root, "init_lora_weights");
    if (!type || !cJSON_IsString(type) || strcmp(type->valuestring, "LORA"))
        return adapter_refuse(r, "peft_type", "\"LORA\"");
    if (bias && (!cJSON_IsString(bias) || strcmp(bias->valuestring, "none")))
        return adapter_refuse(r, "bias", "\"none\": biases that were trained are not applied");
    if (init && cJSON_IsString(init) &&
        (!strncmp(init->valuestring, "pissa", 5) || !strcmp(init->valuestring, "olora") ||
         !strcmp(init->valuestring, "corda")))
        return adapter_refuse(r, "init_lora_weights",
                              "an initialisation that leaves the model's weights as they are (PEFT "
                              "converts such an adapter when it saves it)");
    for (size_t i = 0; i < MN_COUNT(refused); i++)
        if (!adapter_is_unset(json_get(r->root, refused[i][0])))
            return adapter_refuse(r, refused[i][0], refused[i][1]);
    return MN_OK;
}

static mn_status adapter_number(const adapter_reader *r, const cJSON *item, const char *key,
                                double *out) {
    if (item && cJSON_IsNumber(item) && isfinite(item->valuedouble)) {
        *out = item->valuedouble;
        return MN_OK;
    }
    return mnl_fail(r->err, MN_BAD_FILE, "%.*s: key '%s' is %s, expected a number",
                    MN_STR_ARG(r->file->name), key, json_describe(item).s);
}

static mn_status adapter_read_config(adapter_reader *r) {
    int64_t rank = 0;
    mn_status st = adapter_check_kind(r);
    if (st)
        return st;
    if (!json_is_int(json_get(r->root, "r"), 1, 1 << 20, &rank))
        return mnl_fail(r->err, MN_BAD_FILE,
                        "%.*s: key 'r' is %s, expected a rank from 1 to 1048576",
                        MN_STR_ARG(r->file->name), json_describe(json_get(r->root, "r")).s);
    r->r = (double)rank;
    r->by_root = cJSON_IsTrue(json_get(r->root, "use_rslora"));
    return adapter_number(r, json_get(r->root, "lora_alpha"), "lora_alpha", &r->alpha);
}

/* ---- patterns of modules --------------------------------------------------------------------- */

/* Whether the module is the pattern, or ends with a dot and it; "\." is a dot. */
static bool adapter_pattern_fits(mn_str module, const char *pattern) {
    uint64_t at = module.len;
    size_t i = strlen(pattern);
    while (i > 0) {
        if (!at || module.ptr[at - 1] != pattern[i - 1])
            return false;
        at--;
        i--;
        if (i && pattern[i] == '.' && pattern[i - 1] == '\\')
            i--;
    }
    return !at || module.ptr[at - 1] == '.';
}

/* Other expressions than names are not evaluated here. */
static bool adapter_is_name(const char *pattern) {
    for (const char *c = pattern; *c; c++) {
        if (*c == '\\' && c[1] == '.')
            continue;
        if (strchr("^$*+?()[]{}|\\", *c))
            return false;
    }
    return *pattern;
}

/* The number of the first pattern that fits, else *out stays. */
static mn_status adapter_pattern(const adapter_reader *r, const char *key, mn_str module,
                                 double *out) {
    const cJSON *patterns = json_get(r->root, key);
    if (patterns && !cJSON_IsObject(patterns))
        return adapter_refuse(r, key, "an object of names of modules and numbers");
    for (const cJSON *p = patterns ? patterns->child : NULL; p; p = p->next) {
        if (!adapter_is_name(p->string))
            return mnl_fail(r->err, MN_UNSUPPORTED,
                            "%.*s: key '%s' has the expression \"%.80s\"; expected the name of a "
                            "module, or its end behind a dot",
                            MN_STR_ARG(r->file->name), key, p->string);
        if (adapter_pattern_fits(module, p->string))
            return adapter_number(r, p, key, out);
    }
    return MN_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* The name of the module in the model, without what PEFT puts in front of it. */
static mn_str adapter_module(mn_str name) {
    static const char *const prefixes[] = {"base_model.model.", "base_model."};
    for (size_t i = 0; i < MN_COUNT(prefixes); i++) {
        const uint64_t n = strlen(prefixes[i]);
        if (mn_str_begins(name, prefixes[i]))
            return (mn_str){name.ptr + n, name.len - n};
    }
    return name;
}

/* The canonical name of the module's matrix, by the first family that knows it. */
static mn_str adapter_canonical(mn_parsed *p, mn_str module) {
    const mn_str native = mn_parsed_printf(p, "%.*s.weight", (int)module.len, module.ptr);
    const struct model_family *f;
    for (size_t i = 0; native.ptr && (f = family_at(i)); i++) {
        const mn_str name = tensor_canonical_name(p, f->own, native);
        if (!name.ptr || !mn_str_eq(name, native))
            return name;
    }
    return native;
}

/* What the tensor is of its module, as the ending of its canonical name; NULL: neither a part of a
 * product nor a matrix of the model. */
static const char *adapter_side(mn_str name, mn_str *module) {
    static const char *const ends[][2] = {
        {".lora_A.weight", "lora_a"},         {".lora_B.weight", "lora_b"},
        {".lora_A.default.weight", "lora_a"}, {".lora_B.default.weight", "lora_b"},
        {".base_layer.weight", "base"},       {".weight", "base"}};
    for (size_t i = 0; i < MN_COUNT(ends); i++) {
        if (!mn_str_ends(name, ends[i][0]))
            continue;
        *module = adapter_module((mn_str){name.ptr, name.len - strlen(ends[i][0])});
        return ends[i][1];
    }
    return NULL;
}

static mn_status adapter_unknown(const adapter_reader *r, const mn_parsed_tensor *t) {
    const mn_str file = t->file->name;
    if (mn_str_ends(t->native, ".lora_embedding_A") || mn_str_ends(t->native, ".lora_embedding_B"))
        return mnl_fail(r->err, MN_UNSUPPORTED,
                        "%.*s: tensor %.*s adapts the embedding, which is unsupported; expected "
                        "matrices of layers and the output matrix (or merge the adapter)",
                        MN_STR_ARG(file), MN_STR_ARG(t->native));
    return mnl_fail(r->err, MN_UNSUPPORTED,
                    "%.*s: tensor %.*s is no part of a LoRA product; expected MODULE.lora_A.weight "
                    "and MODULE.lora_B.weight alone",
                    MN_STR_ARG(file), MN_STR_ARG(t->native));
}

/* The factor of a module's product, under the name of its matrix. */
static mn_status adapter_put_scale(const adapter_reader *r, mn_str module, mn_str canonical,
                                   int64_t rank) {
    double alpha = r->alpha;
    double stated = r->r;
    mn_status st = adapter_pattern(r, "alpha_pattern", module, &alpha);
    if (!st)
        st = adapter_pattern(r, "rank_pattern", module, &stated);
    if (st)
        return st;
    if (stated != (double)rank)
        return mnl_fail(r->err, MN_BAD_FILE,
                        "%.*s: the rank of %.*s is %g by 'r' and 'rank_pattern', and its lora_A "
                        "has %lld rows",
                        MN_STR_ARG(r->file->name), MN_STR_ARG(module), stated, (long long)rank);
    mn_parsed_meta *m = mn_parsed_add_meta(r->parsed);
    if (!m)
        return mnl_fail_memory(r->err);
    m->key = mn_parsed_printf(r->parsed, "minerva.adapter.scale.%.*s", (int)canonical.len,
                              canonical.ptr);
    m->native = mn_str_of("lora_alpha");
    m->value.type = MN_VALUE_FLOAT;
    m->value.f = r->by_root ? alpha / sqrt((double)rank) : alpha / (double)rank;
    return m->key.ptr ? MN_OK : mnl_fail_memory(r->err);
}

static mn_status adapter_name_tensor(const adapter_reader *r, mn_parsed_tensor *t) {
    mn_str module = {0};
    const char *side = adapter_side(t->native, &module);
    if (!side)
        return adapter_unknown(r, t);
    if (t->problem || t->n_dim != 2)
        return mnl_fail(r->err, MN_UNSUPPORTED, "%.*s: tensor %.*s is no matrix that can be read%s",
                        MN_STR_ARG(t->file->name), MN_STR_ARG(t->native),
                        t->problem ? t->problem : "");
    const mn_str canonical = adapter_canonical(r->parsed, module);
    if (!canonical.ptr)
        return mnl_fail_memory(r->err);
    t->name = mn_parsed_printf(r->parsed, "%.*s.%s", (int)canonical.len, canonical.ptr, side);
    if (!t->name.ptr)
        return mnl_fail_memory(r->err);
    if (strcmp(side, "lora_a"))
        return MN_OK;
    return adapter_put_scale(r, module, canonical, t->dim[0]);
}

static mn_status adapter_put_text(mn_parsed *p, const char *key, const char *value, mn_error *err) {
    mn_parsed_meta *m = mn_parsed_add_meta(p);
    if (!m)
        return mnl_fail_memory(err);
    m->key = mn_str_of(key);
    m->native = m->key;
    m->value.type = MN_VALUE_STR;
    m->value.s = mn_str_of(value);
    return MN_OK;
}

static mn_status adapter_read(adapter_reader *r, const mn_file *weights) {
    mn_parsed *p = r->parsed;
    mn_status st = adapter_read_config(r);
    if (!st)
        st = header_read(p, weights, r->err);
    if (!st)
        st = mn_parsed_check_tensors(p, r->err);
    if (!st)
        st = adapter_put_text(p, "general.type", "adapter", r->err);
    if (!st)
        st = adapter_put_text(p, "adapter.type", "lora", r->err);
    if (!st)
        st = adapter_put_text(p, "minerva.adapter.form", "peft", r->err);
    for (uint64_t i = 0; i < p->n_tensors && !st; i++)
        st = adapter_name_tensor(r, &p->tensors[i]);
    return st ? st : mn_parsed_check_names(p, r->err);
}

mn_status adapter_open(const mn_host *host, const mn_file *files, uint32_t n, uint32_t stride,
                       mn_parsed **out, mn_error *err) {
    adapter_reader r = {.file = model_file(files, n, stride, CONFIG_NAME), .err = err};
    if (!r.file)
        return mnl_fail(err, MN_BAD_FILE,
                        CONFIG_NAME " is missing: weights alone do not say the factor of an "
                                    "adapter; expected it beside " WEIGHTS_NAME);
    r.parsed = mn_parsed_new(host);
    if (!r.parsed)
        return mnl_fail_memory(err);
    mn_status st = json_parse(host, r.file, 0, r.file->bytes, CONFIG_MAX, &r.root, err);
    if (!st)
        st = json_unique(host, r.file, r.root, err);
    if (!st)
        st = adapter_read(&r, model_file(files, n, stride, WEIGHTS_NAME));
    cJSON_Delete(r.root);
    if (st)
        mn_parsed_free(r.parsed);
    else
        *out = r.parsed;
    return st;
}
