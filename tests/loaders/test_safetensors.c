/* The SafeTensors loader: good folders, config.json key by key, every header field, shards,
 * truncation, damage, memory. */
#include "host.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static test_plugin st;

#define HEAD                                                                                       \
    "{\"model.norm.weight\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"            \
    "\"model.embed_tokens.weight\":{\"dtype\":\"F16\",\"shape\":[2,4],\"data_offsets\":[16,32]}} " \
    "  "
#define CONFIG_BASE                                                                                \
    "\"max_position_embeddings\":64,\"hidden_size\":8,\"num_hidden_layers\":2,\"intermediate_"     \
    "size\":16,"                                                                                   \
    "\"vocab_size\":2,\"rms_norm_eps\":1e-5"
#define LLAMA "\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],"
#define CONFIG "{" LLAMA "\"num_attention_heads\":4," CONFIG_BASE "}"

/* Adds a weight file of this header (padded to 8) and n bytes of data. */
static void add_weights(test_files *f, const char *name, const char *header, size_t n) {
    bytes b = {0};
    size_t len = strlen(header);
    size_t pad = (8 - len % 8) % 8;
    put_int(&b, len + pad, 8);
    put(&b, header, len);
    while (pad--)
        put(&b, " ", 1);
    while (n--)
        put_int(&b, 3, 1);
    test_add(f, name, b.ptr, b.len);
    free(b.ptr);
}

static test_files folder(const char *config) {
    test_files f = {0};
    add_weights(&f, "model.safetensors", HEAD, 32);
    if (config)
        test_add_text(&f, "config.json", config);
    return f;
}

static void refuse_config(const char *config, mn_status status, const char *text,
                          const char *text2) {
    test_files f = folder(config);
    test_refuse(st, &f, status, text, text2);
    test_clear(&f);
}

/* The base config with `rest` (members) instead of the head count. */
static void refuse_with(const char *rest, mn_status status, const char *text, const char *text2) {
    char config[4096];
    snprintf(config, sizeof config, "{" LLAMA "%s," CONFIG_BASE "}", rest);
    refuse_config(config, status, text, text2);
}

static void refuse_header(const char *header, size_t n_data, mn_status status, const char *text,
                          const char *text2) {
    test_files f = {0};
    add_weights(&f, "model.safetensors", header, n_data);
    test_add_text(&f, "config.json", CONFIG);
    test_refuse(st, &f, status, text, text2);
    test_clear(&f);
}

static mn_parsed *opened(const test_files *f) {
    mn_parsed *m = NULL;
    mn_error err;
    if (test_open(st, f, &m, &err))
        fail_msg("%s", err.msg);
    return m;
}

static mn_parsed *open_config(test_files *f, const char *config) {
    *f = folder(config);
    return opened(f);
}

static void shut(test_files *f, mn_parsed *m) {
    st.loader->close(m);
    test_clear(f);
}
static int64_t int_of(mn_parsed *m, const char *key) {
    return test_value(st, m, key, NULL).i;
}
static double float_of(mn_parsed *m, const char *key) {
    return test_value(st, m, key, NULL).f;
}
static bool str_is(mn_parsed *m, const char *key, const char *want) {
    return test_is(test_value(st, m, key, NULL).s, want);
}

/* ---- good ------------------------------------------------------------------------------------ */
static test_files fixture(const char *root, const char *dir, int n, const char *const *names) {
    test_files f = {0};
    for (int i = 0; i < n; i++) {
        char path[8192];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        test_add_path(&f, names[i], root, path);
    }
    return f;
}

static const char *const plain[] = {"config.json", "model.safetensors", "golden.safetensors"};

static void good_fixtures(void **state) {
    (void)state;
    static const struct {
        const char *dir;
        const char *arch;
        uint32_t dtype;
        uint32_t n_tensors;
        int64_t head_dim;
    } list[] = {
        {"fixtures/llama", "llama", MN_F32, 21, 16},
        {"fixtures/llama3-rope", "llama", MN_BF16, 20, 32},
        {"fixtures/qwen2", "qwen2", MN_F32, 26, 16},
        {"fixtures/qwen3", "qwen3", MN_F32, 25, 32},
    };
    for (int i = 0; i < 4; i++) {
        test_files f = fixture("MINERVA_TEST_DATA", list[i].dir, 3, plain);
        mn_guess g = {.size = sizeof g};
        mn_tensor_info t;
        char key[80];
        assert_int_equal(st.loader->guess(st.plugin->self, f.file, f.n, sizeof(mn_file), &g),
                         MN_OK);
        assert_int_equal(g.confidence, 90);
        mn_parsed *m = opened(&f);
        assert_true(str_is(m, "general.architecture", list[i].arch));
        assert_int_equal(test_n_tensors(st, m), list[i].n_tensors);
        assert_true(test_tensor(st, m, "blk.1.attn_k.weight", &t));
        assert_true(t.dtype.id == list[i].dtype);
        assert_true(test_is(t.native, "model.layers.1.self_attn.k_proj.weight"));
        snprintf(key, sizeof key, "%s.attention.key_length", list[i].arch);
        assert_int_equal(int_of(m, key), list[i].head_dim);
        assert_true(str_is(m, "minerva.rope.pairing", "halves"));
        st.loader->close(m);
        test_every_allocation(st, &f);
        test_clear(&f);
    }
}

static void good_storyteller(void **state) {
    (void)state;
    test_files f = fixture("MINERVA_SOURCE_ROOT", "models/storyteller", 2, plain);
    mn_tensor_info t;
    mn_parsed *m = opened(&f);
    assert_true(test_tensor(st, m, "token_embd.weight", &t));
    assert_true(t.dim[0] == 2048);
    assert_true(t.dim[1] == 256);
    assert_int_equal(int_of(m, "llama.block_count"), 6);
    assert_int_equal(int_of(m, "llama.attention.head_count_kv"), 2);
    assert_int_equal(int_of(m, "llama.rope.dimension_count"), 64);
    assert_int_equal(int_of(m, "minerva.tie_word_embeddings"), 1);
    assert_true(str_is(m, "minerva.hidden_act", "silu"));
    shut(&f, m);
}

#define TENSOR(name, dtype, shape, offsets)                                                        \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define ALL_BUT_EMBEDDING                                                                          \
    "{\"__metadata__\":{\"format\":\"pt\"}," TENSOR(                                               \
        "layers.12.self_attn.q_proj.bias", "F32", "[1]",                                           \
        "[0,4]") "," TENSOR("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", "[1]",          \
                            "[4,8]") "," TENSOR("lm_head.weight", "F32", "[2,1]",                  \
                                                "[8,16]") "," TENSOR("model.layers.01.mlp.up_"     \
                                                                     "proj.weight",                \
                                                                     "F32", "[]", "[16,20]") ","

/* tied: a copy of the embedding is no tensor of its own, another matrix is the model's. */
static void names_and_ties(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t n;
        bool tied;
        bool has_output;
    } list[] = {
        {ALL_BUT_EMBEDDING TENSOR("model.embed_tokens.weight", "F32", "[2,1]", "[20,28]") "}", 28,
         false, true},
        {ALL_BUT_EMBEDDING TENSOR("model.embed_tokens.weight", "F32", "[2,1]", "[20,28]") "}", 28,
         true, false},
        {ALL_BUT_EMBEDDING TENSOR("model.embed_tokens.weight", "F16", "[2,1]", "[20,24]") "}", 24,
         true, true},
        {ALL_BUT_EMBEDDING TENSOR("model.embed_tokens.weight", "F32", "[2,2]", "[20,36]") "}", 36,
         true, true},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        test_files f = {0};
        mn_tensor_info t;
        add_weights(&f, "model.safetensors", list[i].header, list[i].n);
        test_add_text(
            &f, "config.json",
            list[i].tied ? "{" LLAMA
                           "\"tie_word_embeddings\":true,\"num_attention_heads\":4," CONFIG_BASE "}"
                         : CONFIG);
        mn_parsed *m = opened(&f);
        assert_true(test_tensor(st, m, "blk.12.attn_q.bias", &t));
        assert_true(test_tensor(st, m, "model.layers.01.mlp.up_proj.weight", &t));
        assert_true(t.n_dim == 1);
        assert_true(t.dim[0] == 1);
        assert_false(test_tensor(st, m, "model.layers.0.self_attn.rotary_emb.inv_freq", &t));
        assert_int_equal(test_tensor(st, m, "output.weight", &t), list[i].has_output);
        if (list[i].tied)
            assert_int_equal(int_of(m, "minerva.tie_word_embeddings"), !list[i].has_output);
        shut(&f, m);
    }
}

/* Values that no graph reads may be of any type, or none at all. */
static void values_not_read(void **state) {
    (void)state;
    static const char header[] = "{" TENSOR("a.tag", "F32", "[0]", "[0,0]") "," TENSOR(
        "b.tag", "F4", "[4]",
        "[0,2]") "," TENSOR("model.layers.0.past", "BF16", "[2,0]",
                            "[2,2]") "," TENSOR("model.layers.0.self_attn.q_proj.weight_extra",
                                                "C64", "[2]", "[2,18]") "," TENSOR("lm_head.weight",
                                                                                   "F16", "[2,1]",
                                                                                   "[18,22]") "}";
    test_files f = {0};
    mn_tensor_info t;
    add_weights(&f, "model.safetensors", header, 22);
    test_add_text(&f, "config.json", CONFIG);
    mn_parsed *m = opened(&f);
    assert_int_equal(test_n_tensors(st, m), 3);
    assert_false(test_tensor(st, m, "a.tag", &t));
    assert_false(test_tensor(st, m, "model.layers.0.past", &t));
    assert_true(test_tensor(st, m, "model.layers.0.self_attn.q_proj.weight_extra", &t));
    assert_int_equal(t.dtype.id, MN_U8);
    assert_int_equal(t.dim[0], 16);
    st.loader->close(m);
    test_every_allocation(st, &f);
    test_clear(&f);
}

/* ---- config.json ----------------------------------------------------------------------------- */
static void config_defaults(void **state) {
    (void)state;
    test_files f;
    mn_str native;
    mn_parsed *m = open_config(&f, CONFIG);
    assert_int_equal(int_of(m, "llama.attention.head_count_kv"), 4);
    assert_int_equal(int_of(m, "llama.attention.key_length"), 2);
    assert_int_equal(int_of(m, "llama.vocab_size"), 2);
    assert_true(float_of(m, "llama.rope.freq_base") == 10000);
    assert_true(float_of(m, "llama.attention.layer_norm_rms_epsilon") == 1e-5);
    assert_false(test_has_key(st, m, "llama.attention.sliding_window"));
    assert_false(test_has_key(st, m, "minerva.tie_word_embeddings")); /* then the tensors tell */
    test_value(st, m, "llama.embedding_length", &native);
    assert_true(test_is(native, "hidden_size"));
    shut(&f, m);
}

/* "gelu" was a slip of Gemma's first configurations alone; the later ones have a key of their own
 * and mean what it says. */
static void config_act(void **state) {
    (void)state;
    static const struct {
        const char *family;
        const char *class_name;
        const char *members;
        const char *act;
    } list[] = {
        {"gemma", "GemmaForCausalLM", "\"hidden_act\":\"gelu\"", "gelu_pytorch_tanh"},
        {"gemma", "GemmaForCausalLM", "\"hidden_act\":\"gelu\",\"hidden_activation\":\"relu\"",
         "relu"},
        {"gemma2", "Gemma2ForCausalLM", "\"hidden_activation\":\"gelu\"", "gelu"},
        {"gemma2", "Gemma2ForCausalLM", "\"hidden_act\":\"gelu\"", "gelu_pytorch_tanh"},
        {"llama", "LlamaForCausalLM", "\"hidden_act\":\"gelu\"", "gelu"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char config[2048];
        test_files f;
        snprintf(config, sizeof config,
                 "{\"model_type\":\"%s\",\"architectures\":[\"%s\"],\"num_attention_heads\":4,%"
                 "s," CONFIG_BASE "}",
                 list[i].family, list[i].class_name, list[i].members);
        mn_parsed *m = open_config(&f, config);
        assert_true(str_is(m, "minerva.hidden_act", list[i].act));
        shut(&f, m);
    }
}

static void config_rope(void **state) {
    (void)state;
    test_files f;
    mn_str native;
    mn_parsed *m =
        open_config(&f, "{" LLAMA "\"num_attention_heads\":2,\"rope_theta\":5e5,\"rope_scaling\":{"
                        "\"type\":\"linear\",\"factor\":2}," CONFIG_BASE "}");
    assert_true(float_of(m, "llama.rope.freq_base") == 5e5);
    assert_true(float_of(m, "llama.rope.scaling.factor") == 2);
    assert_true(str_is(m, "llama.rope.scaling.type", "linear"));
    test_value(st, m, "llama.rope.scaling.factor", &native);
    assert_true(test_is(native, "rope_scaling.factor"));
    shut(&f, m);
    m = open_config(
        &f,
        "{" LLAMA "\"num_attention_heads\":2,\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_"
        "theta\":7e5,\"factor\":8,\"low_freq_factor\":1,"
        "\"high_freq_factor\":4,\"original_max_position_embeddings\":32}," CONFIG_BASE "}");
    assert_true(float_of(m, "llama.rope.freq_base") == 7e5);
    assert_true(float_of(m, "llama.rope.scaling.high_freq_factor") == 4);
    assert_int_equal(int_of(m, "llama.rope.scaling.original_context_length"), 32);
    shut(&f, m);
    m = open_config(
        &f, "{" LLAMA
            "\"num_attention_heads\":2,\"rope_parameters\":{\"full_attention\":{\"rope_type\":"
            "\"yarn\",\"rope_theta\":7e5,\"factor\":8,"
            "\"beta_fast\":30,\"beta_slow\":2,\"attention_factor\":1.5}}," CONFIG_BASE "}");
    assert_true(float_of(m, "llama.rope.scaling.beta_fast") == 30);
    assert_true(float_of(m, "llama.rope.scaling.yarn_attn_factor") == 1.5);
    assert_int_equal(int_of(m, "llama.rope.scaling.original_context_length"), 64);
    shut(&f, m);
    m = open_config(
        &f,
        "{" LLAMA "\"num_attention_heads\":2,\"partial_rotary_factor\":0.5,\"original_max_position_"
        "embeddings\":16,"
        "\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1],\"long_factor\":[2]}," CONFIG_BASE
        "}");
    mn_value v = test_value(st, m, "llama.rope.scaling.long_factor", NULL);
    assert_true(v.n == 1);
    assert_true(((const double *)v.array)[0] == 2);
    assert_true(int_of(m, "llama.rope.dimension_count") == 2);
    assert_true(str_is(m, "llama.rope.scaling.type", "longrope"));
    shut(&f, m);
}

static void config_bad_rope(void **state) {
    (void)state;
    static const struct {
        const char *members;
        mn_status status;
        const char *text;
        const char *text2;
    } list[] = {
        {"\"rope_scaling\":{\"type\":\"spiral\",\"factor\":2}", MN_UNSUPPORTED, "spiral", "known"},
        {"\"rope_scaling\":{\"type\":\"dynamic\"}", MN_BAD_FILE, "rope_scaling.factor", "missing"},
        {"\"rope_scaling\":3", MN_BAD_FILE, "rope_scaling", "3"},
        {"\"rope_scaling\":{\"rope_type\":7}", MN_BAD_FILE, "rope_scaling.rope_type", "7"},
        {"\"rope_scaling\":{\"type\":\"linear\"}", MN_BAD_FILE, "rope_scaling.factor", "missing"},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":-1}", MN_BAD_FILE, "rope_scaling.factor",
         "-1"},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":1,\"factor\":2}", MN_BAD_FILE, "factor",
         "twice"},
        {"\"rope_theta\":0", MN_BAD_FILE, "rope_theta", "0"},
        {"\"rope_theta\":1e999", MN_BAD_FILE, "rope_theta", NULL},
        {"\"rope_theta\":5,\"rope_parameters\":{\"rope_theta\":6}", MN_BAD_FILE, "rope_theta",
         "same"},
        {"\"rope_parameters\":{\"full_attention\":{},\"sliding_attention\":{\"rope_theta\":0}}",
         MN_BAD_FILE, "rope_parameters.sliding_attention.rope_theta", "0"},
        {"\"rope_parameters\":{\"full_attention\":{},\"other\":{}}", MN_BAD_FILE, "rope_parameters",
         "one set"},
        {"\"rope_parameters\":{\"full_attention\":{},\"sliding_attention\":{\"rope_type\":"
         "\"linear\",\"rope_theta\":"
         "1e4}}",
         MN_BAD_FILE, "rope_parameters.sliding_attention.rope_type", "default"},
        {"\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_"
         "freq_factor\":4,"
         "\"original_max_position_embeddings\":32}",
         MN_BAD_FILE, "low_freq_factor", NULL},
        {"\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_"
         "freq_factor\":4,"
         "\"original_max_position_embeddings\":0}",
         MN_BAD_FILE, "original_max_position_embeddings", "0"},
        {"\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":8,\"truncate\":0}", MN_BAD_FILE,
         "truncate", "true or"},
        {"\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":8,\"mscale\":-1}", MN_BAD_FILE,
         "mscale", "-1"},
        {"\"rope_parameters\":{\"rope_type\":\"longrope\",\"original_max_position_embeddings\":8,"
         "\"short_factor\":[1],"
         "\"long_factor\":[1,2]}",
         MN_BAD_FILE, "short_factor", "expected 2"},
        {"\"rope_parameters\":{\"rope_type\":\"longrope\",\"original_max_position_embeddings\":8,"
         "\"short_factor\":[1,0]"
         "}",
         MN_BAD_FILE, "short_factor", NULL},
        {"\"partial_rotary_factor\":0.3", MN_BAD_FILE, "partial_rotary_factor", "even"},
        {"\"partial_rotary_factor\":2", MN_BAD_FILE, "partial_rotary_factor", "2"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char members[1024];
        snprintf(members, sizeof members, "\"num_attention_heads\":2,%s", list[i].members);
        refuse_with(members, list[i].status, list[i].text, list[i].text2);
    }
}

static void config_windows(void **state) {
    (void)state;
    static const struct {
        const char *family;
        const char *class_name;
        const char *members;
        int64_t window;
        mn_status status;
    } list[] = {
        {"mistral", "MistralForCausalLM", "\"sliding_window\":16", 16, MN_OK},
        {"mistral", "MistralForCausalLM", "\"sliding_window\":null", 0, MN_OK},
        {"qwen2", "Qwen2ForCausalLM", "\"sliding_window\":16", 0, MN_OK},
        {"qwen2", "Qwen2ForCausalLM",
         "\"sliding_window\":16,\"use_sliding_window\":true,\"max_window_layers\":2", 0, MN_OK},
        {"qwen2", "Qwen2ForCausalLM",
         "\"sliding_window\":16,\"use_sliding_window\":true,\"max_window_layers\":0", 16, MN_OK},
        {"qwen2", "Qwen2ForCausalLM",
         "\"sliding_window\":16,\"use_sliding_window\":true,\"max_window_layers\":1", 16, MN_OK},
        {"qwen3", "Qwen3ForCausalLM",
         "\"sliding_window\":16,\"use_sliding_window\":true,\"layer_types\":[\"sliding_attention\","
         "\"sliding_"
         "attention\"]",
         16, MN_OK},
        {"qwen3", "Qwen3ForCausalLM",
         "\"sliding_window\":16,\"use_sliding_window\":true,\"layer_types\":[\"sliding_"
         "attention\"]",
         0, MN_BAD_FILE},
        {"mistral", "MistralForCausalLM", "\"sliding_window\":0", 0, MN_BAD_FILE},
        {"mistral", "MistralForCausalLM", "\"sliding_window\":2.5", 0, MN_BAD_FILE},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char config[2048];
        char key[64];
        snprintf(config, sizeof config,
                 "{\"model_type\":\"%s\",\"architectures\":[\"%s\"],\"num_attention_heads\":4,%"
                 "s," CONFIG_BASE "}",
                 list[i].family, list[i].class_name, list[i].members);
        snprintf(key, sizeof key, "%s.attention.sliding_window",
                 list[i].family[0] == 'm' ? "llama" : list[i].family);
        if (list[i].status) {
            refuse_config(config, list[i].status, "config.json", NULL);
            continue;
        }
        test_files f;
        mn_parsed *m = open_config(&f, config);
        assert_int_equal(test_has_key(st, m, key) ? int_of(m, key) : 0, list[i].window);
        shut(&f, m);
    }
}

static void config_bad(void **state) {
    (void)state;
    refuse_config(NULL, MN_BAD_FILE, "config.json is missing", NULL);
    refuse_config("", MN_BAD_FILE, "config.json", "0 bytes");
    refuse_config("[]", MN_BAD_FILE, "not an object", NULL);
    refuse_config("{", MN_BAD_FILE, "not valid JSON", NULL);
    refuse_config("{}x", MN_BAD_FILE, "after the end", NULL);
    refuse_config("{\"model_type\":\"\xff\"}", MN_BAD_FILE, "UTF-8", NULL);
    refuse_config("{}", MN_BAD_FILE, "model_type", "missing");
    refuse_config("{\"model_type\":7}", MN_BAD_FILE, "model_type", "7");
    refuse_config("{\"model_type\":\"gpt9\"}", MN_UNSUPPORTED, "gpt9", "known: llama");
    refuse_config("{\"model_type\":\"llama\",\"architectures\":[\"LlamaForVision\"]}",
                  MN_UNSUPPORTED, "LlamaForVision", "expected 'LlamaForCausalLM'");
    refuse_config("{\"model_type\":\"llama\",\"architectures\":\"x\"}", MN_BAD_FILE,
                  "architectures", NULL);
    refuse_with("\"num_attention_heads\":4,\"quantization\":{\"bits\":4,\"group_size\":64}",
                MN_UNSUPPORTED, "MLX", "4 bits");
    refuse_with("\"num_attention_heads\":4,\"quantization_config\":{\"quant_method\":\"gptq\"}",
                MN_UNSUPPORTED, "gptq", "quantization_config");
    refuse_with("\"num_attention_heads\":4,\"vocab_size\":3", MN_BAD_FILE, "vocab_size", "twice");
    refuse_with("\"num_attention_heads\":3", MN_BAD_FILE, "hidden_size", "num_attention_heads");
    refuse_with("\"num_attention_heads\":4,\"num_key_value_heads\":3", MN_BAD_FILE,
                "num_attention_heads", "num_key_value_heads");
    refuse_with("\"x\":1", MN_BAD_FILE, "num_attention_heads", "missing");
    refuse_with("\"num_attention_heads\":4,\"head_dim\":3", MN_BAD_FILE, "head_dim", "even");
    refuse_with("\"num_attention_heads\":4,\"hidden_act\":3", MN_BAD_FILE, "hidden_act", "3");
    refuse_with("\"num_attention_heads\":4,\"tie_word_embeddings\":1", MN_BAD_FILE,
                "tie_word_embeddings", "true or false");
    static const char *const bad[] = {"0",     "-4",   "1.5", "1e30", "1e999",
                                      "\"4\"", "true", "[4]", "{}",   "9223372036854775808"};
    static const char *const keys[] = {"num_attention_heads", "num_key_value_heads", "head_dim"};
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            char members[200];
            snprintf(members, sizeof members, "%s\"%s\":%s", k ? "\"num_attention_heads\":4," : "",
                     keys[k], bad[i]);
            refuse_with(members, MN_BAD_FILE, keys[k], "config.json");
        }
    static const char *const sizes[] = {
        "max_position_embeddings", "vocab_size",        "hidden_size",
        "num_hidden_layers",       "intermediate_size", "rms_norm_eps"};
    /* each renamed, then each wrong value */
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        char config[2048];
        strcpy(config, CONFIG);
        char *at = strstr(config, sizes[k]);
        at[0] = 'X';
        /* the others have defaults */
        if (k > 1 && k < 5)
            refuse_config(config, MN_BAD_FILE, sizes[k], "missing");
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            if (k == 5 && i == 2)
                i++; /* a fraction is the right kind there, though too large */
            char *value = strstr(strcpy(config, CONFIG), sizes[k]) + strlen(sizes[k]) + 2;
            char rest[1024];
            strcpy(rest, value + strcspn(value, ",}"));
            sprintf(value, "%s%s", bad[i], rest);
            refuse_config(config, MN_BAD_FILE, sizes[k], "config.json");
        }
    }
}

/* ---- the header ------------------------------------------------------------------------------ */
#define ENTRY(dtype, shape, offsets)                                                               \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

#define HEAD_OF(dtype, shape, offsets)                                                             \
    "{\"lm_head.weight\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void header_bad(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t n;
        mn_status status;
        const char *text;
        const char *text2;
    } list[] = {
        {HEAD_OF("\"C64\"", "[4]", "[0,16]"), 16, MN_UNSUPPORTED, "C64", "'lm_head.weight'"},
        {HEAD_OF("\"F4\"", "[4]", "[0,2]"), 2, MN_UNSUPPORTED, "F4", "known: F64"},
        {HEAD_OF("\"F4\"", "[0]", "[0,0]"), 0, MN_BAD_FILE, "dimension", "'lm_head.weight'"},
        {ENTRY("\"F4\"", "[0]", "[0,2]"), 2, MN_BAD_FILE, "span 2", "expected 0"},
        {ENTRY("3", "[4]", "[0,16]"), 16, MN_BAD_FILE, "dtype", "'t'"},
        {ENTRY("\"F32\"", "4", "[0,16]"), 16, MN_BAD_FILE, "shape", "'t'"},
        {HEAD_OF("\"F32\"", "[0]", "[0,0]"), 0, MN_BAD_FILE, "dimension", "'lm_head.weight'"},
        {HEAD_OF("\"F32\"", "[4,0]", "[0,0]"), 0, MN_BAD_FILE, "dimension", "'lm_head.weight'"},
        {ENTRY("\"F32\"", "[0]", "[0,16]"), 16, MN_BAD_FILE, "span 16", "expected 0"},
        {ENTRY("\"F32\"", "[-4]", "[0,16]"), 16, MN_BAD_FILE, "-4", "'t'"},
        {ENTRY("\"F32\"", "[4.5]", "[0,16]"), 16, MN_BAD_FILE, "4.5", "'t'"},
        {ENTRY("\"F32\"", "[\"4\"]", "[0,16]"), 16, MN_BAD_FILE, "dimension", "'t'"},
        {ENTRY("\"F32\"", "[9223372036854775807]", "[0,16]"), 16, MN_BAD_FILE, "dimension", "'t'"},
        {ENTRY("\"F32\"", "[9007199254740992,9007199254740992]", "[0,16]"), 16, MN_BAD_FILE,
         "overflows", "'t'"},
        {ENTRY("\"F32\"", "[4294967296,4294967296]", "[0,16]"), 16, MN_BAD_FILE, "overflows",
         "'t'"},
        {ENTRY("\"F32\"", "[1,1,1,1,1,1,4]", "[0,16]"), 16, MN_BAD_FILE, "dimensions", "'t'"},
        {ENTRY("\"F32\"", "[4]", "[0,12]"), 12, MN_BAD_FILE, "end of the file", "'t'"},
        {ENTRY("\"F32\"", "[3]", "[0,16]"), 16, MN_BAD_FILE, "span 16", "expected 12"},
        {ENTRY("\"F32\"", "[4]", "[0,20]"), 16, MN_BAD_FILE, "data_offsets", "20"},
        {ENTRY("\"F32\"", "[4]", "[16,0]"), 16, MN_BAD_FILE, "data_offsets", "'t'"},
        {ENTRY("\"F32\"", "[4]", "[-16,0]"), 16, MN_BAD_FILE, "data_offsets", "-16"},
        {ENTRY("\"F32\"", "[4]", "[0]"), 16, MN_BAD_FILE, "data_offsets", "two"},
        {ENTRY("\"F32\"", "[4]", "[0,16,32]"), 16, MN_BAD_FILE, "data_offsets", "two"},
        {ENTRY("\"F32\"", "[4]", "{}"), 16, MN_BAD_FILE, "data_offsets", "two"},
        {ENTRY("\"F32\"", "[4]", "[0,18446744073709551615]"), 16, MN_BAD_FILE, "data_offsets",
         "'t'"},
        {ENTRY("\"F32\"", "[3]", "[2,14]"), 16, MN_BAD_FILE, "cover 12", "16"},
        {ENTRY("\"F32\"", "[4]", "[0,16]"), 20, MN_BAD_FILE, "cover 16", "20"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[4]}}", 16, MN_BAD_FILE, "data_offsets", "missing"},
        {"{\"t\":{\"shape\":[4],\"data_offsets\":[0,16]}}", 16, MN_BAD_FILE, "dtype", "missing"},
        {"{\"t\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16,
         MN_BAD_FILE, "dtype", "twice"},
        {"{\"t\":{\"dtype\":\"F32\",\"color\":1,\"shape\":[4],\"data_offsets\":[0,16]}}", 16,
         MN_BAD_FILE, "color", "unknown"},
        {"{\"t\":[]}", 0, MN_BAD_FILE, "'t'", "object"},
        {"{\"\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, MN_BAD_FILE,
         "name is empty", NULL},
        {"{\"__metadata__\":3}", 0, MN_BAD_FILE, "__metadata__", NULL},
        {"[]", 0, MN_BAD_FILE, "'{'", NULL},
        {"{]", 0, MN_BAD_FILE, "not valid JSON", NULL},
        {"{}{}", 0, MN_BAD_FILE, "after the end", NULL},
        {"{\"\xff\":1}", 0, MN_BAD_FILE, "UTF-8", NULL},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"t\":{\"dtype\":\"U8\","
         "\"shape\":[1],\"data_"
         "offsets\":[1,2]}}",
         2, MN_BAD_FILE, "'t'", "twice"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\","
         "\"shape\":[2],\"data_"
         "offsets\":[1,3]}}",
         4, MN_BAD_FILE, "overlap", "'b'"},
        {"{\"norm.weight\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"model.norm."
         "weight\":{\"dtype\":"
         "\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
         2, MN_BAD_FILE, "output_norm.weight", "both"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        refuse_header(list[i].header, list[i].n, list[i].status, list[i].text, list[i].text2);
}

static void header_length(void **state) {
    (void)state;
    static const uint64_t values[] = {0,
                                      1,
                                      7,
                                      100000000,
                                      100000001,
                                      0x7FFFFFFF,
                                      0xFFFFFFFF,
                                      INT64_MAX,
                                      (uint64_t)1 << 63,
                                      UINT64_MAX,
                                      UINT64_MAX - 7};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        test_files f = folder(CONFIG);
        for (int k = 0; k < 8; k++)
            ((unsigned char *)test_file(&f, "model.safetensors")->map)[k] =
                (unsigned char)(values[i] >> 8 * k);
        test_refuse(st, &f, MN_BAD_FILE, "model.safetensors", NULL);
        test_clear(&f);
    }
    for (uint64_t over = 1; over <= 8; over++) { /* behind the file by less than the length's own */
        test_files f = folder(CONFIG);
        mn_file *file = test_file(&f, "model.safetensors");
        const uint64_t n = file->bytes - 8 + over;
        for (int k = 0; k < 8; k++)
            ((unsigned char *)(uintptr_t)file->map)[k] = (unsigned char)(n >> 8 * k);
        test_refuse(st, &f, MN_BAD_FILE, "at most what follows in the file", NULL);
        test_clear(&f);
    }
}

static void deep_nesting(void **state) {
    (void)state;
    static char deep[200001];
    memset(deep, '[', sizeof deep - 1);
    memcpy(deep, "{\"a\":", 5);
    refuse_config(deep, MN_BAD_FILE, "not valid JSON", NULL);
}

/* A text that ends in a comma at the very end of a map: nothing behind it may be read. */
static void end_of_map(void **state) {
    (void)state;
    static const char *const texts[] = {"{\"1\":1,", "{\"1\":[1,", "{\"1\":",  "{\"", "{\"a\\",
                                        "{\"a\\u00", "{\"1\":-",   "{\"1\":t", "{"};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map + page, page, PROT_NONE), 0);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t n = strlen(texts[i]);
        memcpy(map + page - n, texts[i], n);
        test_files f = folder(NULL);
        f.file[f.n++] = (mn_file){{"config.json", 11}, map + page - n, n, 0, 0};
        test_refuse(st, &f, MN_BAD_FILE, "config.json", "JSON");
        f.n--;
        test_clear(&f);
    }
    munmap(map, 2 * page);
}

/* Folders that other loaders or later versions read: a clear refusal. Needs the shared fixtures. */
static void other_fixtures(void **state) {
    (void)state;
    static const struct {
        const char *dir;
        mn_status status;
        const char *text;
        const char *text2;
    } list[] = {
        {"llama-mlx4", MN_UNSUPPORTED, "MLX", "4 bits"},
        {"mistral-window", MN_OK, NULL, NULL},
    };
    char root[4096];
    char path[4200];
    const char *given = getenv("MINERVA_SHARED");
    const char *source = getenv("MINERVA_SOURCE_ROOT");
    snprintf(root, sizeof root, "%s%s",
             given    ? given
             : source ? source
                      : ".",
             given ? "" : "/../shared");
    snprintf(path, sizeof path, "%s/fixtures/phi2/config.json", root);
    if (access(path, R_OK)) {
        printf("skipped: no shared fixtures\n");
        skip();
    }
    setenv("TEST_SHARED_ROOT", root, 1);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        snprintf(path, sizeof path, "fixtures/%s", list[i].dir);
        test_files f = fixture("TEST_SHARED_ROOT", path, 2, plain);
        if (list[i].status)
            test_refuse(st, &f, list[i].status, list[i].text, list[i].text2);
        else {
            mn_parsed *m = opened(&f);
            assert_true(int_of(m, "llama.attention.sliding_window") == 16);
            assert_true(str_is(m, "general.architecture", "llama"));
            st.loader->close(m);
        }
        test_clear(&f);
    }
}

/* ---- shards ---------------------------------------------------------------------------------- */
#define SHARD(name) "{\"" name "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"
static const char *const sharded[] = {"config.json", "model.safetensors.index.json",
                                      "model-00001-of-00002.safetensors",
                                      "model-00002-of-00002.safetensors"};

static void shards(void **state) {
    (void)state;
    test_files f = fixture("MINERVA_TEST_DATA", "fixtures/llama-sharded", 4, sharded);
    mn_tensor_info t;
    mn_parsed *m = opened(&f);
    assert_true(test_tensor(st, m, "output.weight", &t));
    assert_true(test_tensor(st, m, "token_embd.weight", &t));
    assert_true(t.dtype.id == MN_F16);
    assert_true(test_tensor(st, m, "blk.0.attn_q.bias", &t));
    st.loader->close(m);
    test_every_allocation(st, &f);
    test_drop(&f, "model-00002-of-00002.safetensors");
    test_refuse(st, &f, MN_BAD_FILE, "model-00002-of-00002.safetensors is missing",
                "tensors of this model");
    test_drop(&f, "model.safetensors.index.json");
    test_refuse(st, &f, MN_BAD_FILE, "model-00002-of-00002.safetensors is missing",
                "shard 2 of the 2");
    test_clear(&f);
    f = fixture("MINERVA_TEST_DATA", "fixtures/llama-sharded", 4, sharded);
    test_drop(&f, "model.safetensors.index.json");
    st.loader->close(opened(&f)); /* the names are enough */
    test_every_allocation(st, &f);
    test_clear(&f);
}

static void refuse_index(const char *index, const char *text, const char *text2) {
    test_files f = {0};
    add_weights(&f, "model-1.safetensors", SHARD("a"), 1);
    add_weights(&f, "model-2.safetensors", SHARD("b"), 1);
    test_add_text(&f, "config.json", CONFIG);
    test_add_text(&f, "model.safetensors.index.json", index);
    test_refuse(st, &f, MN_BAD_FILE, text, text2);
    test_clear(&f);
}

static void bad_index(void **state) {
    (void)state;
    refuse_index("{}", "weight_map", "absent");
    refuse_index("{\"weight_map\":{}}", "weight_map", NULL);
    refuse_index("{\"weight_map\":[]}", "weight_map", "array");
    refuse_index("{\"weight_map\":{\"a\":3}}", "'a'", "file name");
    refuse_index("{\"weight_map\":{\"a\":\"model-1.safetensors\",\"a\":\"model-2.safetensors\"}}",
                 "'a'", "twice");
    refuse_index(
        "{\"weight_map\":{\"a\":\"model-1.safetensors\",\"b\":\"../model-2.safetensors\"}}",
        "../model-2.safetensors is missing", "1 tensors");
    refuse_index("{\"weight_map\":{\"a\":\"model-1.safetensors\",\"c\":\"model-2.safetensors\"}}",
                 "model-2.safetensors", "'c' is missing");
    refuse_index("{\"weight_map\":{\"b\":\"model-1.safetensors\",\"a\":\"model-2.safetensors\"}}",
                 "model-1.safetensors", "'b' is missing");
    refuse_index("{\"weight_map\":", "index.json", "JSON");
    test_files f = {0};
    test_add_text(&f, "config.json", CONFIG);
    test_refuse(st, &f, MN_BAD_FILE, "no weights", NULL);
    add_weights(&f, "golden.safetensors", SHARD("a"), 1);
    add_weights(&f, "adapter_model.safetensors", SHARD("a"), 1);
    test_refuse(st, &f, MN_BAD_FILE, "no weights", NULL);
    add_weights(&f, "model-1.safetensors", SHARD("a"), 1);
    st.loader->close(opened(&f));
    add_weights(&f, "model-2.safetensors", SHARD("b"), 1);
    test_refuse(st, &f, MN_BAD_FILE, "not shards of one model", "model-2.safetensors");
    test_clear(&f);
    f = (test_files){0};
    test_add_text(&f, "config.json", CONFIG);
    add_weights(&f, "model-00001-of-00002.safetensors", SHARD("a"), 1);
    add_weights(&f, "model-00002-of-00002.safetensors", SHARD("a"), 1);
    test_refuse(st, &f, MN_BAD_FILE, "'a'", "twice");
    test_drop(&f, "model-00002-of-00002.safetensors");
    add_weights(&f, "model-00003-of-00002.safetensors", SHARD("b"), 1);
    test_refuse(st, &f, MN_BAD_FILE, "shard number 3", NULL);
    test_clear(&f);
}

/* ---- damage ---------------------------------------------------------------------------------- */
static void every_truncation(void **state) {
    (void)state;
    test_files whole = folder(CONFIG);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "config.json" : "model.safetensors";
        mn_file *victim = test_file(&whole, name);
        for (size_t n = 0; n < victim->bytes; n++) {
            test_files f = {0};
            test_add(&f, name, victim->map, n);
            mn_file *other = &whole.file[victim == &whole.file[0]];
            test_add(&f, i ? "model.safetensors" : "config.json", other->map, other->bytes);
            test_refuse(st, &f, MN_BAD_FILE, name, NULL);
            test_clear(&f);
        }
    }
    test_clear(&whole);
}

static void damage(uint64_t *seed, mn_file *f) {
    static const char alphabet[] = "0123456789{}[],:\"-.eE \\u\xff";
    unsigned char *map = (unsigned char *)f->map;
    for (uint32_t k = 1 + test_random(seed) % 4; k--;) {
        uint32_t r = test_random(seed);
        map[test_random(seed) % f->bytes] =
            r % 3 ? (unsigned char)alphabet[r / 3 % (sizeof alphabet - 1)]
                  : (unsigned char)(r >> 8);
    }
}

static void random_damage(void **state) {
    (void)state;
    uint64_t seed = 2;
    for (int i = 0; i < 20000; i++) {
        test_files f = folder(
            "{" LLAMA "\"num_attention_heads\":4,\"rope_parameters\":{\"rope_type\":\"llama3\","
            "\"rope_theta\":7e5,\"factor\":8,\"low_freq_factor\":1,"
            "\"high_freq_factor\":4,\"original_max_position_embeddings\":32}," CONFIG_BASE "}");
        add_weights(&f, "model-00002-of-00002.safetensors", SHARD("b"), 1);
        test_add_text(&f, "model.safetensors.index.json",
                      "{\"weight_map\":{\"model.norm.weight\":\"model.safetensors\",\"b\":\"model-"
                      "00002-of-00002."
                      "safetensors\"}}");
        damage(&seed, &f.file[i % 4]);
        test_survive(st, &f);
        test_clear(&f);
    }
}

static void arguments(void **state) {
    (void)state;
    mn_parsed *m = NULL;
    mn_error err = {.size = sizeof err};
    test_files f = folder(NULL);
    mn_guess g = {.size = sizeof g};
    assert_int_equal(st.loader->guess(st.plugin->self, f.file, f.n, sizeof(mn_file), &g), MN_OK);
    assert_int_equal(g.confidence, 90); /* so that open can say what is missing */
    assert_int_equal(st.loader->open(st.plugin->self, f.file, f.n, sizeof(mn_file), &m, NULL),
                     MN_BAD_FILE);
    assert_int_equal(st.loader->open(st.plugin->self, f.file, f.n, 8, &m, &err), MN_INVALID);
    f.n = 0;
    assert_int_equal(st.loader->guess(st.plugin->self, f.file, 0, sizeof(mn_file), &g), MN_OK);
    assert_int_equal(g.confidence, 0);
    f.n = 1;
    st.loader->close(NULL);
    test_clear(&f);
}

static int load(void **state) {
    (void)state;
    st = test_load("loaders/safetensors/safetensors.so");
    return test_is(st.plugin->id, "safetensors") ? 0 : -1;
}

static int unload(void **state) {
    (void)state;
    st.plugin->shutdown(st.plugin->self);
    return test_live ? -1 : 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_fixtures),  cmocka_unit_test(good_storyteller),
        cmocka_unit_test(names_and_ties), cmocka_unit_test(values_not_read),
        cmocka_unit_test(config_act),     cmocka_unit_test(config_defaults),
        cmocka_unit_test(config_rope),    cmocka_unit_test(config_bad_rope),
        cmocka_unit_test(config_windows), cmocka_unit_test(config_bad),
        cmocka_unit_test(header_bad),     cmocka_unit_test(header_length),
        cmocka_unit_test(deep_nesting),   cmocka_unit_test(end_of_map),
        cmocka_unit_test(other_fixtures), cmocka_unit_test(shards),
        cmocka_unit_test(bad_index),      cmocka_unit_test(every_truncation),
        cmocka_unit_test(random_damage),  cmocka_unit_test(arguments),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
