/* What the SafeTensors and MLX loaders refuse in families and quantised forms that the fixtures do
 * not show, and that each of their allocations, cJSON's too, may fail: the loaders are built with
 * blocks so small that each array is an allocation of the host. */
#include "host.h"
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static test_plugin st;
static test_plugin mlx;

/* cJSON allocates by itself; here its allocations are counted with those of the loader. */
static void *json_alloc(size_t n) {
    if (test_fail_after == 0) {
        errno = ENOMEM; /* as malloc does */
        return NULL;
    }
    if (test_fail_after > 0)
        test_fail_after--;
    return malloc(n);
}

/* ---- folders --------------------------------------------------------------------------------- */
#define BASE                                                                                       \
    "\"max_position_embeddings\":64,\"hidden_size\":8,\"num_hidden_layers\":2,"                    \
    "\"intermediate_size\":16,\"vocab_size\":2,\"rms_norm_eps\":1e-5,\"num_attention_heads\":4"
#define LLAMA "\"model_type\":\"llama\"," BASE
#define GPT_OSS                                                                                    \
    "\"model_type\":\"gpt_oss\"," BASE                                                             \
    ",\"num_local_experts\":2,\"num_experts_per_tok\":1,\"head_dim\":2"
#define GPT2                                                                                       \
    "\"model_type\":\"gpt2\",\"n_positions\":64,\"n_embd\":8,\"n_layer\":2,\"n_head\":4,"          \
    "\"vocab_size\":2,\"layer_norm_epsilon\":1e-5"
#define GEMMA4                                                                                     \
    "\"model_type\":\"gemma4_text\"," BASE ",\"num_key_value_heads\":2,\"head_dim\":4,\"global_"   \
    "head_dim\":8,\"hidden_size_per_layer_input\":0"

typedef struct {
    const char *name;
    const char *dtype;
    const char *shape; /* "2,4" */
    unsigned bytes;
} tensor;

enum { MAX_TENSORS = 4 };

/* A weight file of these tensors, until one without a name, and a config.json of these members. */
static test_files folder(const tensor *list, const char *members) {
    test_files f = {0};
    char text[4096];
    bytes file = {0};
    unsigned at = 0;
    size_t n = (size_t)snprintf(text, sizeof text, "{");
    for (int i = 0; i < MAX_TENSORS && list[i].name; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%u,%u]}",
                              i ? "," : "", list[i].name, list[i].dtype, list[i].shape, at,
                              at + list[i].bytes);
        at += list[i].bytes;
    }
    n += (size_t)snprintf(text + n, sizeof text - n, "}");
    put_int(&file, n, 8);
    put(&file, text, n);
    for (unsigned i = 0; i < at; i++)
        put_int(&file, 1, 1);
    test_add(&f, "model.safetensors", file.ptr, file.len);
    free(file.ptr);
    snprintf(text, sizeof text, "{%s}", members);
    test_add_text(&f, "config.json", text);
    return f;
}

static const tensor one_norm[MAX_TENSORS] = {{"model.norm.weight", "F32", "8", 32}};

/* ---- config.json ----------------------------------------------------------------------------- */
static void bad_config(void **state) {
    (void)state;
    static const struct {
        const char *members;
        mn_status status;
        const char *text;
        const char *text2;
    } list[] = {
        {LLAMA ",\"_name_or_path\":3", MN_BAD_FILE, "_name_or_path", "a string"},
        {"\"tie_word_embeddings\":1,\"text_config\":{" LLAMA "}", MN_BAD_FILE,
         "tie_word_embeddings", "true or false"},
        {"\"text_config\":{" LLAMA ",\"vocab_size\":2}", MN_BAD_FILE, "vocab_size", "twice"},
        {"\"model_type\":\"smollm3\"," BASE ",\"no_rope_layers\":[1]", MN_BAD_FILE,
         "no_rope_layers", "a number per layer"},
        {"\"model_type\":\"smollm3\"," BASE ",\"no_rope_layers\":[1,\"x\"]", MN_BAD_FILE,
         "no_rope_layers", "else 0"},
        {"\"model_type\":\"gemma2\"," BASE ",\"layer_types\":3", MN_BAD_FILE, "layer_types",
         "an array of strings"},
        {"\"model_type\":\"qwen2\"," BASE
         ",\"use_sliding_window\":false,\"layer_types\":[\"sliding_attention\",\"full_attention\"]",
         MN_BAD_FILE, "use_sliding_window", "layer_types"},
        {LLAMA ",\"per_layer_config\":{\"\":{}}", MN_BAD_FILE, "per_layer_config",
         "the number of a layer"},
        {LLAMA ",\"rope_parameters\":{\"other\":{}}", MN_BAD_FILE, "rope_parameters.other",
         "full_attention"},
        {LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"more\":{}}", MN_BAD_FILE,
         "rope_scaling.more", "a number, a word or a list"},
        {GEMMA4 ",\"per_layer_config\":{\"0\":{\"head_dim\":4},\"1\":{\"head_dim\":8}},"
                "\"layer_types\":[\"full_attention\",\"full_attention\"]",
         MN_UNSUPPORTED, "head_dim", "expected the same"},
        {"\"model_type\":\"bert\"," BASE ",\"architectures\":[\"BertForSequenceClassification\"],"
         "\"id2label\":{\"0\":\"a\",\"2\":\"b\"}",
         MN_BAD_FILE, "id2label.1", "missing"},
        {"\"model_type\":\"electra\"," BASE ",\"embedding_size\":4", MN_BAD_FILE, "embedding_size",
         "4"},
        {LLAMA ",\"x\":\"\xe2\x82\"", MN_BAD_FILE, "config.json", "UTF-8"},
        {LLAMA ",\"x\":\"\xed\xa0\x80\"", MN_BAD_FILE, "config.json", "UTF-8"},
        {LLAMA ",\"x\":\"\xf0\x80\x80\x80\"", MN_BAD_FILE, "config.json", "UTF-8"},
        {LLAMA ",\"x\":\"\\u0000\"", MN_BAD_FILE, "config.json", "NUL"},
        {GPT_OSS ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2,\"mscale\":[1]}",
         MN_BAD_FILE, "mscale", NULL},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        test_files f = folder(one_norm, list[i].members);
        test_refuse(st, &f, list[i].status, list[i].text, list[i].text2);
        test_clear(&f);
    }
}

/* What configurations may say besides what the fixtures say. */
static void good_config(void **state) {
    (void)state;
    static const char *const list[] = {
        "\"model_type\":\"smollm3\"," BASE,
        "\"model_type\":\"smollm3\"," BASE ",\"no_rope_layers\":[1,0]",
        "\"model_type\":\"gemma3_text\"," BASE ",\"head_dim\":2,\"rope_local_base_freq\":1e4,"
        "\"sliding_window\":8,\"sliding_window_pattern\":2",
        "\"tie_word_embeddings\":true,\"text_config\":{" LLAMA "}",
        GPT_OSS,
        GEMMA4 ",\"attention_k_eq_v\":true,\"num_global_key_value_heads\":1",
        GEMMA4 ",\"rope_parameters\":null",
        GEMMA4 ",\"layer_types\":[\"sliding_attention\",\"full_attention\"]",
        GEMMA4 ",\"enable_moe_block\":true,\"num_experts\":4,\"top_k_experts\":2,"
               "\"moe_intermediate_size\":8",
        "\"model_type\":\"gemma3_text\"," BASE
        ",\"head_dim\":2,\"use_bidirectional_attention\":true",
        "\"model_type\":\"electra\"," BASE ",\"embedding_size\":8,\"architectures\":["
        "\"ElectraForSequenceClassification\"],\"id2label\":{\"0\":\"a\",\"1\":\"b\"}",
        "\"model_type\":\"gemma2\"," BASE ",\"head_dim\":2,\"query_pre_attn_scalar\":null",
        GPT2 ",\"scale_attn_weights\":false",
        LLAMA ",\"_name_or_path\":\"owner/name\"",
        LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"mscale\":1,"
              "\"mscale_all_dim\":0.5}",
        LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"factor\":4,\"short_factor\":[1],"
              "\"long_factor\":[2],\"original_max_position_embeddings\":16}",
        LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"attention_factor\":1.5,"
              "\"short_factor\":[1],\"long_factor\":[2],\"original_max_position_embeddings\":16}",
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        test_files f = folder(one_norm, list[i]);
        mn_parsed *m = NULL;
        mn_error err = {.size = sizeof err};
        if (test_open(st, &f, &m, &err))
            fail_msg("%s: %s", list[i], err.msg);
        st.loader->close(m);
        test_every_allocation(st, &f);
        test_clear(&f);
    }
}

/* ---- modules --------------------------------------------------------------------------------- */
#define DENSE "\"in_features\":8,\"out_features\":2"

/* A folder of sentence-transformers' module Dense, whose matrix is [2, 8]. */
static void dense_module(void **state) {
    (void)state;
    static const tensor matrix[MAX_TENSORS] = {{"linear.weight", "F32", "2,8", 64}};
    static const struct {
        const char *members;
        mn_status status;
        const char *text;
    } list[] = {
        {DENSE, MN_OK, NULL},
        {DENSE ",\"activation_function\":\"torch.nn.modules.linear.Identity\",\"bias\":false",
         MN_OK, NULL},
        {DENSE ",\"activation_function\":\"torch.nn.ELU\"", MN_UNSUPPORTED, "ELU"},
        {DENSE ",\"activation_function\":\"os.Tanh\"", MN_UNSUPPORTED, "os.Tanh"},
        {DENSE ",\"activation_function\":3", MN_BAD_FILE, "activation_function"},
        {DENSE ",\"use_residual\":true", MN_UNSUPPORTED, "use_residual"},
        {DENSE ",\"module_output_name\":\"x\"", MN_UNSUPPORTED, "module_output_name"},
        {"\"in_features\":8,\"out_features\":3", MN_BAD_FILE, "linear.weight"},
        {"\"in_features\":0,\"out_features\":2", MN_BAD_FILE, "in_features"},
        {"\"in_features\":8", MN_BAD_FILE, "model_type"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        test_files f = folder(matrix, list[i].members);
        mn_parsed *m = NULL;
        mn_error err = {.size = sizeof err};
        if (list[i].status) {
            test_refuse(st, &f, list[i].status, list[i].text, NULL);
        } else if (test_open(st, &f, &m, &err)) {
            fail_msg("%s: %s", list[i].members, err.msg);
        } else {
            st.loader->close(m);
            test_every_allocation(st, &f);
        }
        test_clear(&f);
    }
    test_files f = folder(one_norm, DENSE);
    test_refuse(st, &f, MN_BAD_FILE, "linear.weight", "missing");
    test_clear(&f);
}

/* ---- tensors --------------------------------------------------------------------------------- */
#define FP8 LLAMA ",\"quantization_config\":{\"quant_method\":\"fp8\"}"
#define MOE                                                                                        \
    "\"model_type\":\"qwen3_moe\"," BASE                                                           \
    ",\"num_experts\":2,\"num_experts_per_tok\":1,\"moe_intermediate_size\":4,\"head_dim\":2"
#define GRANITE                                                                                    \
    "\"model_type\":\"granitemoehybrid\"," BASE                                                    \
    ",\"shared_intermediate_size\":16,\"num_local_experts\":0,\"attention_multiplier\":1,"         \
    "\"embedding_multiplier\":1,\"logits_scaling\":1,\"residual_multiplier\":1,\"position_"        \
    "embedding_type\":\"rope\","                                                                   \
    "\"layer_types\":[\"attention\",\"attention\"]"

typedef struct {
    tensor list[MAX_TENSORS];
    const char *members;
    mn_status status;
    const char *text;
    const char *text2;
} tensor_case;

static const tensor_case bad[] = {
    {{{"a.weight", "F8_E4M3", "4,4", 16}, {"a.weight_scale", "F32", "1,1,1", 4}},
     FP8,
     MN_BAD_FILE,
     "a.weight_scale",
     "128 x 128"},
    {{{"a.weight", "F8_E4M3", "4", 4}, {"a.weight_scale", "F32", "1", 4}},
     FP8,
     MN_UNSUPPORTED,
     "a.weight",
     "matrices"},
    {{{"a.weight", "F8_E5M2", "4,4", 16}, {"a.weight_scale", "F32", "1", 4}},
     FP8,
     MN_UNSUPPORTED,
     "a.weight",
     "f8_e4m3"},
    {{{"a.weight", "F8_E4M3", "4,4", 16}, {"a.weight_scale", "I32", "1", 4}},
     FP8,
     MN_UNSUPPORTED,
     "a.weight_scale",
     "f32, bf16, f16 or e8m0"},
    {{{"a.experts.down_proj", "F8_E4M3", "2,4,4", 32},
      {"a.experts.down_proj_scale", "F32", "2,2", 16}},
     FP8,
     MN_BAD_FILE,
     "down_proj_scale",
     "128 x 128"},
    {{{"a.experts.gate_up_proj", "F8_E4M3", "2,3,4", 24},
      {"a.experts.gate_up_proj_scale", "F32", "2,1", 8}},
     FP8,
     MN_UNSUPPORTED,
     "gate_up_proj",
     "multiple of 2"},
    {{{"a.weight", "U8", "4,3", 12},
      {"a.weight_scale", "F8_E4M3", "4,1", 4},
      {"a.weight_scale_2", "F32", "1", 4}},
     FP8,
     MN_BAD_FILE,
     "a.weight",
     "whole groups of 16"},
    {{{"a.weight", "U8", "4,8", 32},
      {"a.weight_scale", "F8_E4M3", "4,2", 8},
      {"a.weight_scale_2", "F32", "1", 4}},
     FP8,
     MN_BAD_FILE,
     "a.weight_scale",
     "as many rows"},
    {{{"a.weight", "U8", "4,8", 32},
      {"a.weight_scale", "F8_E4M3", "4,1", 4},
      {"a.weight_scale_2", "F32", "2", 8}},
     FP8,
     MN_BAD_FILE,
     "a.weight_scale_2",
     "one f32"},
    {{{"a.weight", "U8", "4,8", 32}, {"a.weight_scale", "F8_E4M3", "4,1", 4}},
     FP8,
     MN_BAD_FILE,
     "a.weight_scale",
     "_2"},
    {{{"model.layers.0.shared_mlp.input_linear.weight", "F32", "3,4", 48}},
     GRANITE,
     MN_BAD_FILE,
     "input_linear",
     "gate and up"},
    {{{"model.layers.0.mlp.experts.gate_up_proj_bias", "F32", "2,3", 24}},
     GPT_OSS,
     MN_BAD_FILE,
     "gate_up_proj_bias",
     "experts x (gate and up)"},
    {{{"model.layers.0.mlp.experts.gate_up_proj", "F32", "2,4,3", 96}},
     GPT_OSS,
     MN_BAD_FILE,
     "gate_up_proj",
     "inputs"},
    {{{"h.0.attn.c_attn.weight", "F32", "4", 16}}, GPT2, MN_BAD_FILE, "c_attn", "a matrix"},
    {{{"model.layers.0.mlp.experts.0.up_proj.weight", "F32", "1,1,1,1,1,1", 4}},
     MOE,
     MN_BAD_FILE,
     "experts.0.up_proj",
     "too many dimensions"},
    {{{"model.layers.0.mlp.experts.0.up_proj.weight", "F32", "2,2", 16},
      {"model.layers.0.mlp.experts.2.up_proj.weight", "F32", "2,2", 16}},
     MOE,
     MN_BAD_FILE,
     "experts.2.up_proj",
     "expected number 1"},
};

static void bad_tensors(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        test_files f = folder(bad[i].list, bad[i].members);
        test_refuse(st, &f, bad[i].status, bad[i].text, bad[i].text2);
        test_clear(&f);
    }
}

/* Forms that are read; each allocation on the way may fail. */
static const tensor_case good[] = {
    {.list = {{"a.weight", "F8_E4M3", "130,128", 130 * 128},
              {"a.weight_scale_inv", "F32", "2,1", 8}},
     .members = FP8},
    {.list = {{"a.weight", "F8_E4M3", "4,4", 16}, {"a.weight_scale", "BF16", "4,1", 8}},
     .members = FP8},
    {.list = {{"a.experts.gate_up_proj", "F8_E4M3", "2,4,4", 32},
              {"a.experts.gate_up_proj_scale", "F32", "2,2,1", 16}},
     .members = FP8},
    {.list = {{"a.weight", "U8", "4,8", 32},
              {"a.weight_scale", "F8_E4M3", "4,1", 4},
              {"a.weight_scale_2", "F32", "1", 4},
              {"a.input_scale", "F32", "1", 4}},
     .members = FP8},
    /* as the format's library writes them: by type, then by name */
    {.list = {{"a.weight_scale_2", "F32", "1", 4},
              {"a.weight_scale", "F8_E4M3", "4,1", 4},
              {"a.weight", "U8", "4,8", 32}},
     .members = FP8},
    {.list = {{"model.layers.0.shared_mlp.input_linear.weight", "F32", "4,4", 64}},
     .members = GRANITE},
    {.list = {{"model.layers.0.mlp.experts.0.up_proj.weight", "F32", "2,2", 16},
              {"model.layers.0.mlp.experts.1.up_proj.weight", "F32", "2,2", 16}},
     .members = MOE},
    {.list = {{"model.layers.0.mlp.experts.0.up_proj.weight", "F8_E4M3", "128,128", 128 * 128},
              {"model.layers.0.mlp.experts.0.up_proj.weight_scale_inv", "F32", "1,1", 4}},
     .members = FP8},
    {.list = {{"a.weight", "F8_E4M3", "4,4", 16}}, .members = LLAMA},
    {.list = {{"model.layers.0.mlp.experts.gate_up_proj", "F32", "2,4,3", 96}}, .members = MOE},
    {.list = {{"model.layers.0.mlp.experts.1234567.up_proj.weight", "F32", "1", 4},
              {"model.layers.0.none.weight", "F32", "1", 4},
              {"model.layers.01.mlp.up_proj.weight", "F32", "1", 4},
              {"vision_tower.a.weight", "F32", "1", 4}},
     .members = MOE},
    {.list = {{"h.0.attn.c_attn.weight", "F32", "2,2", 16}, {"h.0.attn.bias", "F32", "1", 4}},
     .members = GPT2},
    {.list = {{"model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", "2,2,1,16", 64},
              {"model.layers.0.mlp.experts.gate_up_proj_scales", "U8", "2,2,1", 4},
              {"model.layers.0.mlp.experts.gate_up_proj_bias", "F32", "2,2", 16}},
     .members = GPT_OSS},
};

static void good_tensors(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        test_files f = folder(good[i].list, good[i].members);
        mn_parsed *m = NULL;
        mn_error err = {.size = sizeof err};
        if (st.loader->open(st.plugin->self, f.file, f.n, sizeof(mn_file), &m, &err))
            fail_msg("%s: %s", good[i].list[0].name, err.msg);
        st.loader->close(m);
        test_every_allocation(st, &f);
        test_clear(&f);
    }
}

/* ---- MLX ------------------------------------------------------------------------------------- */
static void mlx_forms(void **state) {
    (void)state;
    static const tensor words[MAX_TENSORS] = {{"a.weight", "U32", "2,4", 32},
                                              {"a.scales", "U8", "2,1", 2}};
    static const tensor floats[MAX_TENSORS] = {{"a.weight", "F32", "2,4", 32},
                                               {"a.scales", "U8", "2,1", 2}};
    static const struct {
        const char *members;
        mn_status status;
        const char *text;
        const char *text2;
    } list[] = {
        {LLAMA ",\"quantization\":{\"bits\":4,\"group_size\":32,\"mode\":\"mxfp4\"}", MN_OK, NULL,
         NULL},
        {LLAMA ",\"quantization\":{\"bits\":7,\"group_size\":32}", MN_UNSUPPORTED, "7 bits",
         "2, 3, 4, 5, 6 or 8"},
        {LLAMA ",\"quantization\":{\"bits\":8,\"group_size\":32,\"mode\":\"mxfp4\"}",
         MN_UNSUPPORTED, "8 bits", "mxfp4"},
        {LLAMA ",\"quantization\":{\"bits\":4,\"group_size\":32,\"mode\":\"nvfp4\"}",
         MN_UNSUPPORTED, "groups of 32", "nvfp4"},
        {LLAMA ",\"quantization\":{\"bits\":4,\"group_size\":32,\"mode\":7}", MN_UNSUPPORTED,
         "quantization.mode", "7"},
        {LLAMA ",\"quantization\":{\"bits\":4,\"group_size\":32}", MN_BAD_FILE, "a.weight",
         "biases are missing"},
        {LLAMA ",\"quantization\":{\"bits\":4,\"group_size\":32,\"a\":false}", MN_BAD_FILE,
         "a.scales", "not quantised"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        test_files f = folder(words, list[i].members);
        if (list[i].status)
            test_refuse(mlx, &f, list[i].status, list[i].text, list[i].text2);
        else
            test_every_allocation(mlx, &f);
        test_clear(&f);
    }
    test_files f = folder(floats, list[0].members);
    test_refuse(mlx, &f, MN_BAD_FILE, "a.weight", "words of 32 bits");
    test_clear(&f);
}

/* ---- the host's structs ---------------------------------------------------------------------- */
/* Of an error whose message is shorter than ours, the message ends in a NUL. */
static void small_structs(void **state) {
    (void)state;
    test_files f = folder(one_norm, "\"model_type\":\"none\"");
    mn_parsed *m = NULL;
    mn_error err = {.size = offsetof(mn_error, msg) + 8};
    mn_guess g = {.size = 2};
    memset(err.msg, 'x', sizeof err.msg);
    assert_int_equal(st.loader->open(st.plugin->self, f.file, f.n, sizeof(mn_file), &m, &err),
                     MN_UNSUPPORTED);
    assert_int_equal(strlen(err.msg), 7);
    assert_int_equal(err.msg[8], 'x');
    assert_int_equal(st.loader->guess(st.plugin->self, f.file, f.n, sizeof(mn_file), &g),
                     MN_INVALID);
    g.size = sizeof g;
    assert_int_equal(st.loader->guess(st.plugin->self, f.file, f.n, 8, &g), MN_INVALID);
    test_clear(&f);
}

/* A named file that the model does not consist of. */
static void named_file(void **state) {
    (void)state;
    test_files f = folder(one_norm, LLAMA);
    test_add(&f, "other.safetensors", f.file[0].map, f.file[0].bytes);
    f.file[2].flags = MN_FILE_NAMED;
    test_refuse(st, &f, MN_BAD_FILE, "other.safetensors", "holds no tensor");
    f.file[2].flags = 0;
    f.file[0].flags = MN_FILE_NAMED;
    test_every_allocation(st, &f);
    test_clear(&f);
}

static int load(void **state) {
    (void)state;
    cJSON_Hooks hooks = {.malloc_fn = json_alloc, .free_fn = free};
    cJSON_InitHooks(&hooks);
    st = test_load("tests/loaders/small_blocks_safetensors.so");
    mlx = test_load("tests/loaders/small_blocks_mlx.so");
    return 0;
}

static int unload(void **state) {
    (void)state;
    st.plugin->shutdown(st.plugin->self);
    mlx.plugin->shutdown(mlx.plugin->self);
    return test_live ? -1 : 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_config),    cmocka_unit_test(good_config),
        cmocka_unit_test(dense_module),  cmocka_unit_test(bad_tensors),
        cmocka_unit_test(good_tensors),  cmocka_unit_test(mlx_forms),
        cmocka_unit_test(small_structs), cmocka_unit_test(named_file),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
