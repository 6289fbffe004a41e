/* methods.c -- quantization_config of config.json: which methods of quantisation are read, and one
 * sentence for those that are not: the name, what is missing, and the nearest form that works. The
 * tensors themselves say bits and groups; here counts what they cannot say. */
#include "affine.h"
#include <string.h>

/* Is the member `key` of an object this word? */
static bool says(const cJSON *object, const char *key, const char *word) {
    const cJSON *item = json_get(object, key);
    if (!cJSON_IsString(item))
        return false;
    return !strcmp(item->valuestring, word);
}

/* A format of a method that is read. key NULL: the method, whatever its format; optional: so is a
 * config that does not say the format. */
typedef struct {
    const char *method;
    const char *key;
    const char *word;
    bool optional;
} read_form;
static const read_form read_forms[] = {
    {"mxfp4", NULL, NULL, false},
    {"fp8", NULL, NULL, false},
    {"fbgemm_fp8", NULL, NULL, false},
    {"modelopt", "quant_algo", "FP8", false},
    {"modelopt", "quant_algo", "NVFP4", false},
    {"compressed-tensors", "format", "float-quantized", false},
    {"compressed-tensors", "format", "pack-quantized", false},
    {"compressed-tensors", "format", "mixed-precision", false},
    {"compressed-tensors", "format", "int-quantized", false},
    {"compressed-tensors", "format", "naive-quantized", false},
    {"compressed-tensors", "format", "mxfp4-pack-quantized", false},
    {"compressed-tensors", "format", "nvfp4-pack-quantized", false},
    {"gptq", "checkpoint_format", "gptq", true},
    {"gptq", "checkpoint_format", "gptq_v2", true},
    {"awq", "version", "gemm", true},
    {"awq", "version", "GEMM", true},
    {"bitsandbytes", "bnb_4bit_quant_type", "nf4", false},
    {"bitsandbytes", "bnb_4bit_quant_type", "fp4", false},
    {"hqq", NULL, NULL, false},
    {"torchao", NULL, NULL, false},
    {"auto-round", "packing_format", "auto_round:auto_gptq", false},
    {"auto-round", "packing_format", "auto_round:auto_awq", false},
};

/* What to do with a method that is not read. */
static const struct {
    const char *method;
    const char *instead;
} others[] = {
    {"aqlm", "its codebooks are not; the nearest is 2 bits of gptq, or GGUF's Q2_K"},
    {"quip", "its codebooks are not; the nearest is 2 bits of gptq, or GGUF's Q2_K"},
    {"vptq", "its codebooks are not; the nearest is 2 bits of gptq, or GGUF's Q2_K"},
    {"higgs", "its rotations are not; the nearest is awq or gptq of 4 bits"},
    {"spqr", "its outliers are not; the nearest is gptq of 3 or 4 bits"},
    {"eetq", "its order of bytes is not; the nearest is int-quantized of compressed-tensors"},
    {"quark", "its names are not; the nearest is float-quantized of compressed-tensors"},
    {"bitnet", "its ternary codes are not; the nearest is GGUF's Q2_K"},
    {"exl2", "its mixed groups are not; the nearest is gptq of 4 bits"},
    {"exl3", "its trellis is not; the nearest is gptq of 4 bits"},
};

static mn_status method_refuse(const cJSON *q, mn_error *err) {
    const char *instead =
        "no reader is there for it; expected plain weights, or gptq, awq, "
        "compressed-tensors, hqq, torchao, fp8, mxfp4, bitsandbytes, ModelOpt's NVFP4";
    const cJSON *method = json_get(q, "quant_method");
    for (size_t i = 0; i < MN_COUNT(read_forms); i++)
        if (read_forms[i].key && says(q, "quant_method", read_forms[i].method))
            return mnl_fail(err, MN_UNSUPPORTED,
                            "config.json: key 'quantization_config.%s' is %s (quant_method %s), "
                            "which is not read; the nearest that is read is \"%s\"",
                            read_forms[i].key, json_describe(json_get(q, read_forms[i].key)).s,
                            json_describe(method).s, read_forms[i].word);
    for (size_t i = 0; i < MN_COUNT(others); i++)
        if (says(q, "quant_method", others[i].method))
            instead = others[i].instead;
    return mnl_fail(err, MN_UNSUPPORTED,
                    "config.json: key 'quantization_config': weights of quant_method %s are not "
                    "read: %s",
                    json_describe(method).s, instead);
}

bool method_is_bnb(const cJSON *config) {
    return says(config, "quant_method", "bitsandbytes");
}

static bool is_read_method(const cJSON *q) {
    if (method_is_bnb(q) && cJSON_IsTrue(json_get(q, "load_in_8bit")))
        return true; /* whatever it says of 4 bits */
    for (size_t i = 0; i < MN_COUNT(read_forms); i++) {
        const read_form *f = &read_forms[i];
        if (!says(q, "quant_method", f->method))
            continue;
        if (!f->key || says(q, f->key, f->word) || (f->optional && !json_get(q, f->key)))
            return true;
    }
    return false;
}

bool method_is_awq(const cJSON *config) {
    return says(config, "quant_method", "awq") ||
           says(config, "packing_format", "auto_round:auto_awq");
}

/* What would be another model if it were not heeded. */
static mn_status check_extras(const cJSON *q, mn_error *err) {
    const cJSON *block = json_get(q, "weight_block_size");
    const cJSON *sparse = json_get(q, "sparsity_config");
    const cJSON *turned = json_get(q, "transform_config");
    if (block && (!cJSON_IsArray(block) || cJSON_GetArraySize(block) != 2 ||
                  block->child->valueint != 128 || block->child->next->valueint != 128))
        return mnl_fail(err, MN_UNSUPPORTED,
                        "config.json: key 'quantization_config.weight_block_size' is not [128, "
                        "128], which alone is read");
    if (cJSON_IsObject(sparse) && sparse->child && !says(sparse, "format", "dense"))
        return mnl_fail(err, MN_UNSUPPORTED,
                        "config.json: key 'quantization_config.sparsity_config.format' is %s: "
                        "sparse weights are not read; expected \"dense\"",
                        json_describe(json_get(sparse, "format")).s);
    if (cJSON_IsObject(turned) && turned->child)
        return mnl_fail(err, MN_UNSUPPORTED,
                        "config.json: key 'quantization_config.transform_config' rotates "
                        "activations, which no graph does; expected a model without it");
    return MN_OK;
}

/* For `inspect`: the method and its format, as config.json names them. */
static mn_status method_tell(mn_parsed *p, const cJSON *q, mn_error *err) {
    const cJSON *method = json_get(q, "quant_method");
    const char *format = "";
    for (size_t i = 0; i < MN_COUNT(read_forms); i++)
        if (read_forms[i].key && says(q, "quant_method", read_forms[i].method) &&
            says(q, read_forms[i].key, read_forms[i].word))
            format = read_forms[i].word;
    mn_parsed_meta *m = mn_parsed_add_meta(p);
    if (!m)
        return mnl_fail_memory(err);
    m->key = mn_str_of("minerva.quantization");
    m->native = mn_str_of("quantization_config.quant_method");
    m->value.type = MN_VALUE_STR;
    m->value.s = mn_parsed_printf(p, "%s%s%s", method->valuestring, *format ? " " : "", format);
    return m->value.s.ptr ? MN_OK : mnl_fail_memory(err);
}

mn_status layout_accept(mn_parsed *p, const model_facts *facts, mn_error *err) {
    const cJSON *mlx = json_get(facts->config, "quantization");
    const cJSON *other = json_get(facts->config, "quantization_config");
    if (mlx)
        return mnl_fail(err, MN_UNSUPPORTED,
                        "config.json: key 'quantization': MLX weights (%s bits in groups of %s), "
                        "which the loader mlx "
                        "reads; expected plain weights",
                        json_describe(json_get(mlx, "bits")).s,
                        json_describe(json_get(mlx, "group_size")).s);
    if (!other)
        return MN_OK;
    if (!is_read_method(other))
        return method_refuse(other, err);
    const mn_status status = check_extras(other, err);
    return status ? status : method_tell(p, other, err);
}
