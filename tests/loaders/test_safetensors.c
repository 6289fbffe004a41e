/* The SafeTensors loader: good folders, every header field, shards, truncation, damage, memory.
 * test_safetensors_config.c has config.json. */
#include "safetensors_files.h"

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
    if (given)
        snprintf(root, sizeof root, "%s", given);
    else
        snprintf(root, sizeof root, "%s/../shared", source ? source : ".");
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
    test_refuse(st, &f, MN_BAD_FILE, "no weights", NULL);
    add_weights(&f, "adapter_model.safetensors", SHARD("a"), 1);
    test_refuse(st, &f, MN_BAD_FILE, "adapter_config.json is missing", NULL);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_fixtures),  cmocka_unit_test(good_storyteller),
        cmocka_unit_test(names_and_ties), cmocka_unit_test(values_not_read),
        cmocka_unit_test(header_bad),     cmocka_unit_test(header_length),
        cmocka_unit_test(deep_nesting),   cmocka_unit_test(end_of_map),
        cmocka_unit_test(other_fixtures), cmocka_unit_test(shards),
        cmocka_unit_test(bad_index),      cmocka_unit_test(every_truncation),
        cmocka_unit_test(random_damage),  cmocka_unit_test(arguments),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
