/* The SafeTensors loader: config.json key by key, and what of it is refused. */
#include "safetensors_files.h"

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
    refuse_with("\"num_attention_heads\":4,\"quantization_config\":{\"quant_method\":\"aqlm\"}",
                MN_UNSUPPORTED, "aqlm", "quantization_config");
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_act),     cmocka_unit_test(config_defaults),
        cmocka_unit_test(config_rope),    cmocka_unit_test(config_bad_rope),
        cmocka_unit_test(config_windows), cmocka_unit_test(config_bad),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
