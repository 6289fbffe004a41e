/* config_layers.c -- config.json: which layers do not rotate, and which slide: lists of one entry
 * per layer, or a rule of the family where a file has none. */
#include "families.h"
#include <string.h>

/* layers: [n_layer], in the model's memory. */
static void config_put_layers(config_reader *c, const char *key, const char *native,
                              const int64_t *layers) {
    mn_value *v = config_put(c, key, "", native);
    if (v) {
        v->type = MN_VALUE_ARRAY | MN_VALUE_INT;
        v->array = layers;
        v->n = (uint64_t)c->n_layer;
    }
}

int64_t *config_new_layers(config_reader *c) {
    int64_t *layers =
        c->status ? NULL : mn_parsed_alloc(c->parsed, (uint64_t)c->n_layer, sizeof *layers);
    if (!layers && !c->status)
        c->status = mnl_fail_memory(c->err);
    return layers;
}

/* 1 where a layer rotates; else every no_rope_layer_interval-th does not. */
void config_read_no_rope(config_reader *c) {
    const cJSON *list = json_get(c->root, "no_rope_layers");
    if (list && (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != c->n_layer))
        config_fail(c, "", "no_rope_layers", list, "an array with a number per layer");
    const int64_t four = 4;
    const int64_t every = config_int(c, c->root, "", "no_rope_layer_interval", 1, 65536, &four);
    int64_t *none = config_new_layers(c);
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
    config_put_layers(c, "rope.no_rope_layers", "no_rope_layers", none);
}

void config_put_no_rope(config_reader *c) {
    int64_t *none = config_new_layers(c);
    for (int64_t i = 0; none && i < c->n_layer; i++)
        none[i] = 1;
    if (none)
        config_put_layers(c, "rope.no_rope_layers", "rope_parameters", none);
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

void config_find_sliding(config_reader *c, int64_t *slides) {
    if (sliding_by_types(c, slides) < 0 && !c->status)
        sliding_by_rule(c, slides);
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

void config_read_window(config_reader *c) {
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
    int64_t *slides = config_new_layers(c);
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
    config_put_layers(c, "attention.sliding_window_pattern", "layer_types", slides);
}
