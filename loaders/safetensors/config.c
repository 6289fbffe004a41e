/* config.c -- config.json: from the keys of Hugging Face to the canonical ones. Values are
 * checked one by one and against each other; whether they agree with the tensors is the host's
 * question. The first error stays (config_reader.status) and makes all further calls return at
 * once, so that the readers need no checks between their lines. families.c says what each
 * architecture has of its own, rope.c reads its rotary keys. */
#include "families.h"
#include "family_keys.h"
#include <float.h>
#include <stdio.h>
#include <math.h>
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

/* ---- sizes ----------------------------------------------------------------------------------- */

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

/* ---- layers without rotation, sliding window ------------------------------------------------- */

/* layers: [n_layer], in the model's memory. */
static void hf_put_layers(config_reader *c, const char *key, const char *native,
                          const int64_t *layers) {
    mn_value *v = config_put(c, key, "", native);
    if (v) {
        v->type = MN_VALUE_ARRAY | MN_VALUE_INT;
        v->array = layers;
        v->n = (uint64_t)c->n_layer;
    }
}

/* [n_layer] zeros in the model's memory; NULL after an error. */
static int64_t *new_layers(config_reader *c) {
    int64_t *layers =
        c->status ? NULL : mn_parsed_alloc(c->parsed, (uint64_t)c->n_layer, sizeof *layers);
    if (!layers && !c->status)
        c->status = mnl_fail_memory(c->err);
    return layers;
}

/* no_rope_layers: 1 where a layer rotates; else every no_rope_layer_interval-th does not. */
static void hf_read_no_rope(config_reader *c) {
    const cJSON *list = json_get(c->root, "no_rope_layers");
    if (list && (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != c->n_layer))
        config_fail(c, "", "no_rope_layers", list, "an array with a number per layer");
    const int64_t four = 4;
    const int64_t every = config_int(c, c->root, "", "no_rope_layer_interval", 1, 65536, &four);
    int64_t *none = new_layers(c);
    int64_t i = 0;
    if (!none)
        return;
    for (i = 0; i < c->n_layer; i++)
        none[i] = (i + 1) % every == 0;
    i = 0;
    for (const cJSON *n = list ? list->child : NULL; n; n = n->next) {
        if (!cJSON_IsNumber(n) && !cJSON_IsBool(n))
            config_fail(c, "", "no_rope_layers", n, "1 for a layer that rotates, else 0");
        none[i++] = !(cJSON_IsTrue(n) || (cJSON_IsNumber(n) && n->valueint));
    }
    c->no_rope = none;
    hf_put_layers(c, "rope.no_rope_layers", "no_rope_layers", none);
}

void config_put_no_rope(config_reader *c) {
    int64_t *none = new_layers(c);
    for (int64_t i = 0; none && i < c->n_layer; i++)
        none[i] = 1;
    if (none)
        hf_put_layers(c, "rope.no_rope_layers", "rope_parameters", none);
}

/* By layer_types, one per layer; how many slide. -1 = the key is absent. */
static int64_t sliding_by_types(config_reader *c, int64_t *slides) {
    const cJSON *types = json_get(c->root, "layer_types");
    int64_t n = 0;
    int64_t n_sliding = 0;
    if (!types)
        return -1;
    if (!cJSON_IsArray(types))
        return config_fail(c, "", "layer_types", types, "an array of strings"), -1;
    for (const cJSON *t = types->child; t; t = t->next, n++) {
        const char *named = c->family->chunks ? "chunked_attention" : "sliding_attention";
        bool sliding = cJSON_IsString(t) && !strcmp(t->valuestring, named);
        if (!sliding && !(cJSON_IsString(t) && !strcmp(t->valuestring, "full_attention")))
            return config_fail(c, "", "layer_types", t,
                               c->family->chunks
                                   ? "\"full_attention\" or \"chunked_attention\" per layer"
                                   : "\"full_attention\" or \"sliding_attention\" per layer"),
                   -1;
        if (n < c->n_layer)
            slides[n] = sliding;
        n_sliding += sliding;
    }
    if (n != c->n_layer && !c->status)
        c->status =
            mnl_fail(c->err, MN_BAD_FILE,
                     "%.*s: key 'layer_types' has %lld entries, expected %lld (num_hidden_layers)",
                     MN_STR_ARG(c->file->name), (long long)n, (long long)c->n_layer);
    return n_sliding;
}

/* Without layer_types: by the family's rule. */
static int64_t sliding_by_rule(config_reader *c, int64_t *slides) {
    const struct model_family *f = c->family;
    int64_t period = f->window_period;
    int64_t n = 0;
    int64_t first = 0;
    if (f->period_key)
        period = config_int(c, c->root, "", "sliding_window_pattern", 1, 4096, &period);
    if (f->window_from)
        first = config_int(c, c->root, "", "max_window_layers", 0, INT32_MAX, &first);
    for (int64_t i = 0; i < c->n_layer; i++) {
        const bool in_period = i >= first && (!period || i % period < period - 1);
        slides[i] = in_period;
        if (f->no_rope)
            slides[i] = c->no_rope[i];
        n += slides[i];
    }
    return n;
}

/* No window, though layers slide: what the files say contradicts itself. */
static void check_no_window(config_reader *c, int64_t n_sliding) {
    const bool off = c->family->asks_window && !config_bool(c, "use_sliding_window", false);
    if (c->status || n_sliding <= 0)
        return;
    c->status =
        mnl_fail(c->err, MN_BAD_FILE,
                 "%.*s: key '%s' is %s, expected %s: %lld layers have sliding attention%s",
                 MN_STR_ARG(c->file->name), off ? "use_sliding_window" : "sliding_window",
                 off ? "false or missing" : "null", off ? "true" : "a number of positions",
                 (long long)n_sliding, json_get(c->root, "layer_types") ? " (layer_types)" : "");
}

/* The window's size, and which layers slide if only some of them do. */
static void hf_read_window(config_reader *c) {
    const bool some = c->family->window == WINDOW_SOME;
    const bool asks = c->family->asks_window;
    const cJSON *window = NULL;
    if (c->family->window)
        window = json_get(c->root, "sliding_window");
    if (window && asks && !config_bool(c, "use_sliding_window", false))
        window = NULL;
    if (c->status || (!window && !some))
        return;
    int64_t size = 0;
    if (window)
        size = config_int(c, c->root, "", "sliding_window", 1, INT32_MAX, NULL);
    int64_t *slides = new_layers(c);
    if (!slides)
        return;
    int64_t n = -1;
    if (some)
        n = sliding_by_types(c, slides);
    if (n < 0 && (window || !asks)) /* without a window, those that are asked do not slide */
        n = sliding_by_rule(c, slides);
    if (!window)
        check_no_window(c, n);
    if (c->status || (n <= 0 && asks))
        return;
    config_put_int(c, "attention.sliding_window", "", "sliding_window", n > 0 ? size : 0);
    hf_put_layers(c, "attention.sliding_window_pattern", "layer_types", slides);
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
    int64_t *each =
        c->status ? NULL : mn_parsed_alloc(c->parsed, (uint64_t)c->n_layer, sizeof *each);
    const cJSON *list = json_get(c->root, native);
    if (!each && !c->status)
        c->status = mnl_fail_memory(c->err);
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
    int64_t *slides = new_layers(c);
    if (slides)
        if (sliding_by_types(c, slides) < 0 && !c->status)
            sliding_by_rule(c, slides);
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

/* The sizes that every model has. Sizes of layers come before heads, which may differ by layer. */
static void read_sizes(config_reader *c) {
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
        read_sizes(c);
    if (c->status)
        return;
    if (c->family->no_rope)
        hf_read_no_rope(c);
    hf_read_window(c);
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
