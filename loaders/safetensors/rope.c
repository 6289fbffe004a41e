/* rope.c -- rotary position keys of config.json: `rope_theta` and `rope_scaling`, or the newer
 * `rope_parameters`. */
#include "families.h"
#include <math.h>
#include <string.h>

/* Where the parameters are: an object (or NULL) and the path in front of its keys for messages. */
typedef struct {
    const cJSON *object;
    const char *in;
} section;

/* New configs may hold one set per layer type: that of full attention if there are several, whose
 * window layers may have another base (Gemma 3). */
static section hf_rope_flat(config_reader *c, section s) {
    const cJSON *child = s.object->child;
    if (!child || !cJSON_IsObject(child))
        return s;
    if (!child->next && strcmp(child->string, "full_attention") &&
        strcmp(child->string, "sliding_attention")) {
        config_fail(c, "rope_parameters.", child->string, child,
                    "a number or a word (or full_attention as the name of a set)");
        return s;
    }
    if (child->next) {
        const cJSON *full = json_get(s.object, "full_attention");
        const cJSON *local = json_get(s.object, "sliding_attention");
        if (!full || !local || child->next->next) {
            config_fail(c, "", "rope_parameters", s.object,
                        "one set, or full_attention and sliding_attention");
            return s;
        }
        const char *type =
            config_str(c, local, "rope_parameters.sliding_attention.", "rope_type", "default");
        if (strcmp(type, "default"))
            config_fail(c, "rope_parameters.sliding_attention.", "rope_type",
                        json_get(local, "rope_type"), "default");
        const double base = 10000; /* whatever that of full attention is */
        config_put_float(c, "rope.freq_base_swa", "rope_parameters.sliding_attention.",
                         "rope_theta",
                         config_float(c, local, "rope_parameters.sliding_attention.", "rope_theta",
                                      1e-3, 1e15, &base));
        child = full;
    }
    mn_str in = mn_parsed_printf(c->parsed, "rope_parameters.%.80s.", child->string);
    if (!in.ptr)
        c->status = mnl_fail_memory(c->err);
    return (section){child, in.ptr ? in.ptr : ""};
}

/* Keys of a section are numbers, words and lists. What is to be scaled by says how, too. */
static void hf_rope_check_section(config_reader *c, section s) {
    const cJSON *factor = json_get(s.object, "factor");
    for (const cJSON *v = s.object->child; v && !c->status; v = v->next)
        if (cJSON_IsObject(v))
            config_fail(c, s.in, v->string, v, "a number, a word or a list");
    if (factor && !json_get(s.object, "rope_type") && !json_get(s.object, "type"))
        config_fail(c, s.in, "rope_type", NULL, "a kind of scaling, because there is 'factor'");
}

/* The section that counts, with its keys checked; object NULL: the model has none. */
static section find_section(config_reader *c) {
    static const char *const names[2] = {"rope_scaling", "rope_parameters"};
    static const char *const paths[2] = {"rope_scaling.", "rope_parameters."};
    for (int i = 0; i < 2; i++) { /* who adds rope_scaling to a newer file means it to count */
        const cJSON *o = json_get(c->root, names[i]);
        if (!o)
            continue;
        if (i == 0 && cJSON_IsObject(o) && !o->child)
            continue;
        section s = {o, paths[i]};
        if (!cJSON_IsObject(o))
            return config_fail(c, "", names[i], o, "an object or null"), s;
        if (i == 1)
            s = hf_rope_flat(c, s);
        if (!c->status)
            c->status = json_unique(c->parsed->host, c->file, s.object, c->err);
        hf_rope_check_section(c, s);
        return s;
    }
    return (section){NULL, ""};
}

/* A number that may stand inside the section or at top level: the same if in both. */
static double hf_rope_either(config_reader *c, section s, const char *key, double lo, double hi,
                             double fallback, const char **in) {
    bool inside = json_get(s.object, key);
    bool outside = json_get(c->root, key);
    double a = config_float(c, s.object, s.in, key, lo, hi, &fallback);
    double b = config_float(c, c->root, "", key, lo, hi, &fallback);
    if (!c->status && inside && outside && (a > b || a < b))
        c->status = mnl_fail(c->err, MN_BAD_FILE,
                             "%.*s: key '%s%s' is %g and key '%s' is %g, expected the same",
                             MN_STR_ARG(c->file->name), s.in, key, a, key, b);
    *in = "";
    if (inside)
        *in = s.in;
    if (inside)
        return a;
    return b;
}

/* A number that the kind of scaling needs, from key `native` of the section to `key`. */
static void hf_rope_put_number(config_reader *c, section s, const char *key, const char *native,
                               double lo, double hi) {
    config_put_float(c, key, s.in, native, config_float(c, s.object, s.in, native, lo, hi, NULL));
}

/* As put_number, if it is there. */
static void put_optional(config_reader *c, section s, const char *key, const char *native,
                         double lo, double hi) {
    if (json_get(s.object, native))
        hf_rope_put_number(c, s, key, native, lo, hi);
}

/* At top level, or else inside the section, or else what the model has. */
static int64_t put_original_length(config_reader *c, section s) {
    const char *key = "original_max_position_embeddings";
    const bool outside = json_get(c->root, key);
    const char *in = s.in;
    if (outside)
        in = "";
    const int64_t v = config_int(c, outside ? c->root : s.object, in, key, 1, INT32_MAX, &c->n_ctx);
    config_put_int(c, "rope.scaling.original_context_length", in, key, v);
    return v;
}

/* Llama 3.1's scaling by wave length: three factors and the length that it was trained with. */
static void read_llama3(config_reader *c, section s) {
    hf_rope_put_number(c, s, "rope.scaling.factor", "factor", 1e-3, 1e6);
    hf_rope_put_number(c, s, "rope.scaling.low_freq_factor", "low_freq_factor", 1e-3, 1e6);
    hf_rope_put_number(c, s, "rope.scaling.high_freq_factor", "high_freq_factor", 1e-3, 1e6);
    put_original_length(c, s);
    if (c->status)
        return;
    double low = json_get(s.object, "low_freq_factor")->valuedouble;
    double high = json_get(s.object, "high_freq_factor")->valuedouble;
    if (low >= high)
        c->status = mnl_fail(c->err, MN_BAD_FILE,
                             "%.*s: key '%slow_freq_factor' is %g, expected less than "
                             "'high_freq_factor', which is %g",
                             MN_STR_ARG(c->file->name), s.in, low, high);
}

/* What sin and cos are multiplied by for a context that is `factor` times longer (Peng et al. 2023,
 * eq. 22, times m). */
static double yarn_magnitude(double factor, double m) {
    if (factor > 1)
        return 0.1 * m * log(factor) + 1;
    return 1;
}

/* attention_factor, or as a ratio: mscale over mscale_all_dim, if both are there and not 0. */
static void put_yarn_magnitude(config_reader *c, section s, double factor) {
    const double none = 0;
    const double m = config_float(c, s.object, s.in, "mscale", 0, 1e3, &none);
    const double all = config_float(c, s.object, s.in, "mscale_all_dim", 0, 1e3, &none);
    if (json_get(s.object, "attention_factor"))
        hf_rope_put_number(c, s, "rope.scaling.yarn_attn_factor", "attention_factor", 1e-3, 1e3);
    else if (m > 0 && all > 0)
        config_put_float(c, "rope.scaling.yarn_attn_factor", s.in, "mscale",
                         yarn_magnitude(factor, m) / yarn_magnitude(factor, all));
}

/* YaRN (Peng et al. 2023). `factor` may be null: then it is the ratio of the two lengths. */
static void read_yarn(config_reader *c, section s) {
    const double ratio = (double)c->n_ctx / (double)put_original_length(c, s);
    const bool null = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(s.object, "factor"));
    const double factor =
        config_float(c, s.object, s.in, "factor", 1e-3, 1e6, null ? &ratio : NULL);
    config_put_float(c, "rope.scaling.factor", s.in, "factor", factor);
    put_yarn_magnitude(c, s, factor);
    put_optional(c, s, "rope.scaling.beta_fast", "beta_fast", 1e-3, 1e6);
    put_optional(c, s, "rope.scaling.beta_slow", "beta_slow", 1e-3, 1e6);
    const cJSON *truncate = json_get(s.object, "truncate");
    if (truncate && !cJSON_IsBool(truncate))
        config_fail(c, s.in, "truncate", truncate, "true or false");
    config_put_bool(c, "rope.scaling.yarn_truncate", "truncate",
                    !truncate || cJSON_IsTrue(truncate));
}

/* One positive number per pair of rotated dims. */
static void hf_rope_put_factors(config_reader *c, section s, const char *key, const char *native,
                                int64_t n) {
    const cJSON *list = json_get(s.object, native);
    int64_t i = 0;
    if (!list || !cJSON_IsArray(list))
        config_fail(c, s.in, native, list, "an array of numbers");
    if (c->status)
        return;
    double *out = mn_parsed_alloc(c->parsed, (uint64_t)n, sizeof *out);
    if (!out) {
        c->status = mnl_fail_memory(c->err);
        return;
    }
    for (const cJSON *f = list->child; f && !c->status; f = f->next, i++) {
        if (!cJSON_IsNumber(f) || !(f->valuedouble > 1e-6 && f->valuedouble < 1e6))
            config_fail(c, s.in, native, f, "positive numbers");
        else if (i < n)
            out[i] = f->valuedouble;
    }
    if (!c->status && i != n)
        c->status = mnl_fail(
            c->err, MN_BAD_FILE,
            "%.*s: key '%s%s' has %lld numbers, expected %lld (half of the rotated dimensions)",
            MN_STR_ARG(c->file->name), s.in, native, (long long)i, (long long)n);
    mn_value *v = config_put(c, key, s.in, native);
    if (v) {
        v->type = MN_VALUE_ARRAY | MN_VALUE_FLOAT;
        v->array = out;
        v->n = (uint64_t)n;
    }
}

/* factor stands for the ratio of the two lengths, which decides about the magnitude of sin and cos
 * alone. */
static void read_longrope(config_reader *c, section s, int64_t n_rot) {
    const double one = 1;
    const double factor = config_float(c, s.object, s.in, "factor", 1e-3, 1e6, &one);
    const int64_t original = put_original_length(c, s);
    if (json_get(s.object, "attention_factor"))
        hf_rope_put_number(c, s, "rope.scaling.attn_factor", "attention_factor", 1e-3, 1e3);
    else if (json_get(s.object, "factor"))
        config_put_float(c, "rope.scaling.attn_factor", s.in, "factor",
                         factor > 1 ? sqrt(1 + log(factor) / log((double)original)) : 1);
    hf_rope_put_factors(c, s, "rope.scaling.short_factor", "short_factor", n_rot / 2);
    hf_rope_put_factors(c, s, "rope.scaling.long_factor", "long_factor", n_rot / 2);
}

/* Gemma 4's full layers. */
static bool is_proportional(section s) {
    const cJSON *type = NULL;
    if (s.object)
        type = json_get(s.object, "rope_type");
    if (!cJSON_IsString(type))
        return false;
    return !strcmp(type->valuestring, "proportional");
}

/* Angles as if the whole head turned; behind the first pairs they are 0. Scaled by nothing. */
static void read_proportional(config_reader *c, section s, double part) {
    const int64_t pairs = (int64_t)(part * (double)c->head_dim / 2);
    const double one = 1;
    const double factor = config_float(c, s.object, s.in, "factor", 1, 1e6, &one);
    if (!c->status && factor > 1)
        c->status = mnl_fail(c->err, MN_UNSUPPORTED,
                             "%.*s: key '%sfactor' is %g with rope_type \"proportional\", expected "
                             "1",
                             MN_STR_ARG(c->file->name), s.in, factor);
    config_put_int(c, "rope.turning_count", s.in, "partial_rotary_factor", pairs);
    config_put_int(c, "rope.dimension_count", s.in, "partial_rotary_factor", c->head_dim);
}

/* Hunyuan's "dynamic" with alpha is another base, whatever the length. */
static bool is_fixed_base(section s) {
    const cJSON *alpha = NULL;
    if (s.object)
        alpha = json_get(s.object, "alpha");
    return alpha && !(cJSON_IsNumber(alpha) && alpha->valuedouble == 0);
}

/* The base that alpha stands for: NTK-aware scaling of the base by a factor that is fixed. */
static double hf_rope_base(config_reader *c, section s, double theta) {
    if (c->status || !is_fixed_base(s) || c->head_dim < 3)
        return theta;
    const double alpha = config_float(c, s.object, s.in, "alpha", 1e-3, 1e9, NULL);
    return theta * pow(alpha, (double)c->head_dim / (double)(c->head_dim - 2));
}

/* rope_type, formerly type, and the keys that each kind needs. */
static void hf_rope_read_scaling(config_reader *c, section s, int64_t n_rot) {
    const char *key = "type";
    if (json_get(s.object, "rope_type"))
        key = "rope_type";
    const char *type = "default";
    if (s.object)
        type = config_str(c, s.object, s.in, key, "default");
    if (c->status)
        return;
    if (!strcmp(type, "default"))
        type = "none";
    if (!strcmp(type, "mrope") && json_get(s.object, "mrope_section"))
        type = "none"; /* positions of images alone are three numbers */
    if (is_fixed_base(s))
        type = "none";
    if (!strcmp(type, "su"))
        type = "longrope"; /* its first name */
    if (strcmp(type, "none"))
        config_put_str(c, "rope.scaling.type", s.in, key, type);
    if (!strcmp(type, "linear") || !strcmp(type, "dynamic"))
        hf_rope_put_number(c, s, "rope.scaling.factor", "factor", 1e-3, 1e6);
    else if (!strcmp(type, "llama3"))
        read_llama3(c, s);
    else if (!strcmp(type, "yarn"))
        read_yarn(c, s);
    else if (!strcmp(type, "longrope"))
        read_longrope(c, s, n_rot);
    else if (strcmp(type, "none") && !c->status)
        c->status = mnl_fail(c->err, MN_UNSUPPORTED,
                             "%.*s: key '%s%s': unknown rope scaling '%.60s'; known: default, "
                             "linear, dynamic, llama3, yarn, "
                             "longrope",
                             MN_STR_ARG(c->file->name), s.in, key, type);
}

/* Base, the share of each head that is rotated, and how angles are scaled beyond the context of
 * training. */
void config_read_rope(config_reader *c) {
    const char *in;
    section s = find_section(c);
    if (c->status)
        return;
    const double rotary = c->family->rotary > 0 ? c->family->rotary : 1;
    double base = 10000;
    if (c->family->rope_theta > 0)
        base = c->family->rope_theta;
    double theta = hf_rope_either(c, s, "rope_theta", 1e-3, 1e15, base, &in);
    config_put_float(c, "rope.freq_base", in, "rope_theta", hf_rope_base(c, s, theta));
    /* its first configs */
    if (c->family->local_base && json_get(c->root, "rope_local_base_freq"))
        config_put_float(c, "rope.freq_base_swa", "", "rope_local_base_freq",
                         config_float(c, c->root, "", "rope_local_base_freq", 1e-3, 1e15, NULL));
    double part = hf_rope_either(c, s, "partial_rotary_factor", 1e-6, 1, rotary, &in);
    if (c->head_dim_swa)
        config_put_int(c, "rope.dimension_count_swa", "", "head_dim", c->head_dim_swa);
    if (!c->status && is_proportional(s)) {
        read_proportional(c, s, part);
        return;
    }
    int64_t n_rot = (int64_t)((double)c->head_dim * part);
    if (!c->status && (n_rot < 2 || n_rot % 2))
        c->status =
            mnl_fail(c->err, MN_BAD_FILE,
                     "%.*s: %lld of the 'head_dim' %lld dimensions are rotated "
                     "('%spartial_rotary_factor' %g), "
                     "expected an even number from 2 on",
                     MN_STR_ARG(c->file->name), (long long)n_rot, (long long)c->head_dim, in, part);
    config_put_int(c, "rope.dimension_count", in, "partial_rotary_factor", n_rot);
    if (!c->status)
        hf_rope_read_scaling(c, s, n_rot);
}
