/* config.c -- config.json: from the keys of Hugging Face to the canonical ones. Values are
 * checked one by one and against each other; whether they agree with the tensors is the host's
 * question. The first error stays (config_reader.status) and makes all further calls return at
 * once, so that the readers need no checks between their lines. families.c says what each
 * architecture has of its own; config_sizes.c reads sizes, config_layers.c which layers slide and
 * which do not rotate, rope.c rotary keys. */
#include "families.h"
#include "family_keys.h"
#include <stdio.h>
#include <string.h>

/* ---- access with a sticky status ------------------------------------------------------------- */

/* `in` is the path in front of the key for messages: "" at top level, "rope_scaling." in a
 * section. */
void config_fail(config_reader *c, const char *in, const char *key, const cJSON *found,
                 const char *expected) {
    if (c->status)
        return;
    if (!found)
        c->status = mnl_fail(c->err, MN_BAD_FILE, "%.*s: key '%s%s' is missing, expected %s",
                             MN_STR_ARG(c->file->name), in, key, expected);
    else
        c->status = mnl_fail(c->err, MN_BAD_FILE, "%.*s: key '%s%s' is %s, expected %s",
                             MN_STR_ARG(c->file->name), in, key, json_describe(found).s, expected);
}

/* An integer in [lo, hi]; fallback: what a missing key means, NULL: it must be there. lo after
 * an error. */
int64_t config_int(config_reader *c, const cJSON *object, const char *in, const char *key,
                   int64_t lo, int64_t hi, const int64_t *fallback) {
    int64_t v = lo;
    const cJSON *item = json_get(object, key);
    if (c->status || (!item && fallback))
        return fallback ? *fallback : v;
    if (json_is_int(item, lo, hi, &v))
        return v;
    char expected[80];
    snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)lo,
             (long long)hi);
    config_fail(c, in, key, item, expected);
    return lo;
}

/* As config_int, for numbers that need not be whole. */
double config_float(config_reader *c, const cJSON *object, const char *in, const char *key,
                    double lo, double hi, const double *fallback) {
    const cJSON *item = json_get(object, key);
    if (c->status || (!item && fallback))
        return fallback ? *fallback : lo;
    if (item && cJSON_IsNumber(item) && item->valuedouble >= lo && item->valuedouble <= hi)
        return item->valuedouble;
    char expected[80];
    snprintf(expected, sizeof expected, "a number from %g to %g", lo, hi);
    config_fail(c, in, key, item, expected);
    return lo;
}

/* A missing key is `fallback`; anything but a boolean is an error. */
bool config_bool(config_reader *c, const char *key, bool fallback) {
    const cJSON *item = json_get(c->root, key);
    if (item && !cJSON_IsBool(item))
        config_fail(c, "", key, item, "true or false");
    if (item)
        return cJSON_IsTrue(item);
    return fallback;
}

/* A string that is not empty; it lives as long as the JSON tree. "" after an error. */
const char *config_str(config_reader *c, const cJSON *object, const char *in, const char *key,
                       const char *fallback) {
    const cJSON *item = json_get(object, key);
    if (!item && fallback)
        return fallback;
    if (item && cJSON_IsString(item) && item->valuestring[0])
        return item->valuestring;
    config_fail(c, in, key, item, "a string");
    return "";
}

/* A new entry, whose value the caller fills; NULL after an error. Keys that are not general,
 * minerva's own or xielu's begin with the architecture. */
mn_value *config_put(config_reader *c, const char *key, const char *in, const char *native) {
    if (c->status)
        return NULL;
    bool own =
        !strncmp(key, "general.", 8) || !strncmp(key, "minerva.", 8) || !strncmp(key, "xielu.", 6);
    mn_parsed_meta *m = mn_parsed_add_meta(c->parsed);
    if (m)
        m->key = mn_parsed_printf(c->parsed, "%s%s%s", own ? "" : c->arch, own ? "" : ".", key);
    if (m)
        m->native = mn_parsed_printf(c->parsed, "%s%s", in, native);
    if (!m || !m->key.ptr || !m->native.ptr)
        return c->status = mnl_fail_memory(c->err), NULL;
    return &m->value;
}

/* in, native: where config.json has the value, for messages about the canonical key; both are
 * copied. */
void config_put_int(config_reader *c, const char *key, const char *in, const char *native,
                    int64_t v) {
    mn_value *out = config_put(c, key, in, native);
    if (out) {
        out->type = MN_VALUE_INT;
        out->i = v;
    }
}

void config_put_float(config_reader *c, const char *key, const char *in, const char *native,
                      double v) {
    mn_value *out = config_put(c, key, in, native);
    if (out) {
        out->type = MN_VALUE_FLOAT;
        out->f = v;
    }
}

/* v is copied: it may be of the JSON tree, which is freed when the model is open. */
void config_put_str(config_reader *c, const char *key, const char *in, const char *native,
                    const char *v) {
    mn_value *out = config_put(c, key, in, native);
    mn_str copy = {0};
    /* the JSON tree is freed at the end of open */
    if (out)
        copy = mn_parsed_copy(c->parsed, mn_str_of(v));
    if (!out)
        return;
    if (!copy.ptr) {
        c->status = mnl_fail_memory(c->err);
        return;
    }
    out->type = MN_VALUE_STR;
    out->s = copy;
}

void config_put_bool(config_reader *c, const char *key, const char *native, bool v) {
    mn_value *out = config_put(c, key, "", native);
    if (out) {
        out->type = MN_VALUE_BOOL;
        out->i = v;
    }
}

/* ---- which model is this --------------------------------------------------------------------- */

/* What a family of the field needs that no graph builder has; NULL: nothing is known of it. */
static const char *hf_missing(const char *model_type) {
#define MN_MISSING(gguf, type, what) {type, what},
    static const char *const rows[][2] = {
#include "missing.def"
    };
#undef MN_MISSING
    for (size_t i = 0; i < MN_COUNT(rows); i++)
        if (*model_type && !strcmp(rows[i][0], model_type))
            return rows[i][1];
    return NULL;
}

/* The message lists what is known: the file may be newer than this loader, or the key misspelt. */
static void unknown_type(config_reader *c, const char *found) {
    const char *missing = hf_missing(found);
    if (missing && !c->status)
        c->status = mnl_fail(c->err, MN_UNSUPPORTED,
                             "%.*s: key 'model_type' is '%.60s', which does not run here yet; "
                             "missing: %s",
                             MN_STR_ARG(c->file->name), found, missing);
    const mn_str known = family_list(c->parsed);
    if (c->status)
        return;
    c->status = mnl_fail(
        c->err, MN_UNSUPPORTED, "%.*s: key 'model_type': unknown architecture '%.60s'; known: %.*s",
        MN_STR_ARG(c->file->name), found, (int)known.len, known.ptr ? known.ptr : "");
}

/* The same type with another head is another model: classification, a reward, vision. */
static void unknown_class(config_reader *c, const char *found) {
    c->status =
        mnl_fail(c->err, MN_UNSUPPORTED,
                 "%.*s: key 'architectures': unknown architecture '%.60s'; expected '%s', "
                 "the class of model_type '%s'",
                 MN_STR_ARG(c->file->name), found, c->family->class_name, c->family->model_type);
}

/* Transformers writes no key whose value is its default: each family has a table of them. */
static void fill_defaults(config_reader *c) {
    for (const key_default *d = c->family->defaults; d && d->key && !c->status; d++)
        if (!cJSON_GetObjectItemCaseSensitive(c->root, d->key) &&
            !cJSON_AddNumberToObject(c->root, d->key, d->value))
            c->status = mnl_fail_memory(c->err);
    if (c->status)
        return;
    if (!c->family->rope)
        return;
    if (json_get(c->root, "rope_parameters"))
        return;
    if (json_get(c->root, "rope_scaling"))
        return;
    cJSON *rope = cJSON_Parse(c->family->rope);
    cJSON_DeleteItemFromObjectCaseSensitive(c->root, "rope_parameters"); /* a null */
    if (rope && cJSON_AddItemToObject(c->root, "rope_parameters", rope))
        return;
    cJSON_Delete(rope);
    c->status = mnl_fail_memory(c->err);
}

/* Models with vision keep the text model's keys in a section of their own. */
static void enter_text(config_reader *c) {
    cJSON *text = cJSON_GetObjectItemCaseSensitive(c->root, "text_config");
    if (!cJSON_IsObject(text))
        return;
    if (!json_get(text, "model_type"))
        return;
    /* the whole model's, which decides */
    const cJSON *tied = json_get(c->root, "tie_word_embeddings");
    if (tied && !cJSON_IsBool(tied))
        config_fail(c, "", "tie_word_embeddings", tied, "true or false");
    if (tied && !c->status) {
        cJSON_DeleteItemFromObjectCaseSensitive(text, "tie_word_embeddings");
        if (!cJSON_AddBoolToObject(text, "tie_word_embeddings", cJSON_IsTrue(tied)))
            c->status = mnl_fail_memory(c->err);
    }
    c->root = text;
    c->nested = true;
    if (c->status)
        return;
    c->status = json_unique(c->parsed->host, c->file, text, c->err);
}

/* "owner/model" or "model" is a name. Checkpoints also have the path that they were saved to, or
 * nothing: then the model has no name of its own. */
static void hf_put_name(config_reader *c) {
    const cJSON *item = json_get(c->root, "_name_or_path");
    if (item && !cJSON_IsString(item))
        config_fail(c, "", "_name_or_path", item, "a string");
    const char *name = "";
    if (item && cJSON_IsString(item))
        name = item->valuestring;
    const char *slash = strchr(name, '/');
    if (!*name)
        return;
    if (strchr("./~", *name))
        return;
    if (strchr(name, '\\'))
        return;
    if (slash && strchr(slash + 1, '/'))
        return;
    config_put_str(c, "general.name", "", "_name_or_path", name);
}

/* What follows the stem of the family's class in the name of a class, "ForCausalLM" of
 * "LlamaForCausalLM"; NULL: another stem. */
static const char *hf_head_of(const struct model_family *f, const char *class_name) {
    static const char *const heads[] = {"ForCausalLM", "LMHeadModel", "TextModel", "Model"};
    const size_t n = strlen(f->class_name);
    for (size_t i = 0; i < MN_COUNT(heads); i++) {
        const size_t head = strlen(heads[i]);
        if (n <= head || strcmp(f->class_name + n - head, heads[i]))
            continue;
        if (strncmp(class_name, f->class_name, n - head))
            return NULL;
        return class_name + n - head;
    }
    return NULL;
}

/* Whether the class differs from the family's in nothing that matters here: "LlamaModel" and
 * "Gemma3TextModel" lack the output matrix, which embeddings do not need; those of an encoder have
 * heads on top of it, and a class that classifies has one that is used. */
static bool is_class(config_reader *c, const char *class_name) {
    const char *head = hf_head_of(c->family, class_name);
    if (!strcmp(class_name, c->family->class_name))
        return true;
    if (!head)
        return false;
    c->headless = !strcmp(head, "Model") || !strcmp(head, "TextModel");
    c->classifies = !strcmp(head, "ForSequenceClassification");
    if (c->headless || c->classifies)
        return true;
    return c->family->encoder && (!strcmp(head, "ForMaskedLM") || !strcmp(head, "ForPreTraining"));
}

/* Which family, from model_type; `architectures`, if there, names its class. */
static void read_architecture(config_reader *c) {
    enter_text(c);
    const char *type = config_str(c, c->root, "", "model_type", NULL);
    const cJSON *classes = NULL;
    if (!c->nested)
        classes = json_get(c->root, "architectures");
    if (c->status)
        return;
    c->family = family_by_type(type);
    if (!c->family) {
        unknown_type(c, type);
        return;
    }
    if (classes &&
        (!cJSON_IsArray(classes) || (classes->child && !cJSON_IsString(classes->child)))) {
        config_fail(c, "", "architectures", classes, "an array of strings");
        return;
    }
    if (classes && classes->child && !is_class(c, classes->child->valuestring)) {
        unknown_class(c, classes->child->valuestring);
        return;
    }
    c->arch = c->family->arch;
    c->own = c->family->own;
    if (c->family->arch_both_ways && config_bool(c, "use_bidirectional_attention", false))
        c->arch = c->family->arch_both_ways;
    fill_defaults(c);
    if (c->family->prepare && !c->status)
        c->family->prepare(c);
    config_put_str(c, "general.architecture", "", "model_type", c->arch);
    hf_put_name(c);
}

/* ---- all keys ----------------------------------------------------------------------------- */

/* The name of the activation; some families have two keys for it, of which the older one lies. */
static void hf_read_act(config_reader *c) {
    const char *own = NULL;
    if (c->family->keys)
        own = c->family->keys->act;
    const bool first = c->family->both_acts;
    const char *key = "hidden_act";
    if (own && (!first || json_get(c->root, own)))
        key = own;
    const char *act = config_str(c, c->root, "", key, c->family->act ? c->family->act : "silu");
    if (first && !strcmp(act, "gelu"))
        act = c->family->act;
    config_put_str(c, "minerva.hidden_act", "", key, act);
}

/* The order matters: heads need sizes, windows need layers, rotary keys need heads. */
static void hf_read_all(config_reader *c) {
    read_architecture(c);
    if (!c->status)
        config_read_sizes(c);
    if (c->status)
        return;
    if (c->family->no_rope)
        config_read_no_rope(c);
    config_read_window(c);
    if (!c->family->no_attention)
        config_read_rope(c);
    hf_read_act(c);
    if (c->family->extra)
        c->family->extra(c);
    if (c->classifies)
        family_classifier(c);
    if (!c->family->encoder && !config_bool(c, "is_causal", true)) /* a decoder made an encoder */
        config_put_bool(c, "attention.causal", "is_causal", false);
    c->tied = config_bool(c, "tie_word_embeddings", c->family->tied);
    if (json_get(c->root, "tie_word_embeddings") || c->family->tied || c->headless || c->classifies)
        config_put_bool(c, "minerva.tie_word_embeddings", "tie_word_embeddings", c->tied);
    if (c->family->norm_offset > 0)
        config_put_float(c, "minerva.norm.offset", "", "model_type", c->family->norm_offset);
    config_put_str(c, "minerva.rope.pairing", "", "model_type",
                   c->family->adjacent ? "adjacent" : "halves");
}

/* facts->config is the JSON tree, which the caller deletes, also after an error. */
mn_status config_read(mn_parsed *p, const mn_file *f, model_facts *facts, mn_error *err) {
    mn_status status = json_parse(p->host, f, 0, f->bytes, CONFIG_MAX, &facts->config, err);
    if (status)
        return status;
    config_reader c = {.parsed = p, .file = f, .err = err, .root = facts->config, .arch = ""};
    c.status = json_unique(p->host, f, facts->config, err);
    facts->is_module = !c.status && module_is_dense(facts->config);
    if (facts->is_module)
        return module_read(p, f, facts->config, err);
    if (!c.status)
        hf_read_all(&c);
    facts->tied = c.tied;
    facts->classifies = c.classifies;
    facts->family = c.family;
    facts->own = c.own;
    facts->n_layer = c.n_layer;
    facts->n_head = c.n_head;
    facts->n_head_kv = c.n_head_kv;
    facts->head_dim_v = c.head_dim_v;
    facts->unused_positions = c.unused_positions;
    return c.status;
}
