/* test_hub.c -- names of models: what they say, where they are found, which files make a model, and
 * what a removal leaves. */
#include "pattern_loader.h"
#include "unit.h"

/* A home of its own; nothing of the user's counts. */
static int setup(void **state) {
    static const char *const variables[] = {
        "HF_HUB_CACHE",    "HUGGINGFACE_HUB_CACHE", "HF_HOME",    "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME", "OLLAMA_MODELS",         "HF_ENDPOINT"};
    if (unit_setup(state) || pattern_loader_read(6000))
        return -1;
    for (size_t i = 0; i < MN_COUNT(variables); i++)
        unsetenv(variables[i]);
    setenv("HOME", *state, 1);
    return 0;
}

static int teardown(void **state) {
    mn_patterns_free(&patterns);
    return unit_teardown(state);
}

/* ---- what a name says ------------------------------------------------------------------------ */
static void names(void **state) {
    static const struct {
        const char *text;
        int status;
        const char *repo, *revision, *what, *plain;
        mn_store only;
    } cases[] = {
        {"org/repo", 0, "org/repo", "", "", "org/repo", MN_STORE_ANY},
        {"org/repo:Q4_K_M", 0, "org/repo", "", "Q4_K_M", "org/repo", MN_STORE_ANY},
        {"org/repo@v1.0:q8_0", 0, "org/repo", "v1.0", "q8_0", "org/repo", MN_STORE_ANY},
        {"org/repo@refs/pr/1", 0, "org/repo", "refs/pr/1", "", "org/repo", MN_STORE_ANY},
        {"org/repo:sub/a-Q8_0.gguf", 0, "org/repo", "", "sub/a-Q8_0.gguf", "org/repo", 0},
        {"hf:org/repo", 0, "org/repo", "", "", "org/repo", MN_STORE_HUB},
        {"hf://org/repo:Q2_K", 0, "org/repo", "", "Q2_K", "org/repo", MN_STORE_HUB},
        {"hf.co/org/repo:Q2_K", 0, "org/repo", "", "Q2_K", "org/repo", MN_STORE_HUB},
        {"HuggingFace.co/org/repo", 0, "org/repo", "", "", "org/repo", MN_STORE_HUB},
        {"https://huggingface.co/org/repo/", 0, "org/repo", "", "", "org/repo", MN_STORE_HUB},
        {"https://huggingface.co/org/repo/tree/dev", 0, "org/repo", "dev", "", "org/repo",
         MN_STORE_HUB},
        {"https://hf.co/org/repo/blob/main/x/a.gguf?download=true", 0, "org/repo", "main",
         "x/a.gguf", "org/repo", MN_STORE_HUB},
        {"https://huggingface.co/org/repo/resolve/v2/a.gguf#L1", 0, "org/repo", "v2", "a.gguf",
         "org/repo", MN_STORE_HUB},
        {"hf:org/repo/a.gguf", 0, "org/repo", "", "a.gguf", "org/repo", MN_STORE_HUB},
        {"http://mirror.example:81/x/org/repo", 0, "org/repo", "", "", "org/repo", MN_STORE_HUB},
        {"llama3.2", 0, "", "", "", "llama3.2", MN_STORE_ANY},
        {"llama3.2:1b", 0, "", "", "1b", "llama3.2", MN_STORE_ANY},
        {"ollama:user/model:7b", 0, "", "", "7b", "user/model", MN_STORE_OLLAMA},
        {"reg.example/ns/model:t", 0, "", "", "t", "reg.example/ns/model", MN_STORE_ANY},
        {"lmstudio:org/repo", 0, "org/repo", "", "", "org/repo", MN_STORE_LMSTUDIO},
        {"/abs/path", MN_END, 0, 0, 0, 0, 0},
        {"./x", MN_END, 0, 0, 0, 0, 0},
        {"", MN_END, 0, 0, 0, 0, 0},
        {"a/../b", MN_END, 0, 0, 0, 0, 0},
        {"a\nb", MN_END, 0, 0, 0, 0, 0},
        {"hf:repo", MN_BAD_INPUT, 0, 0, 0, 0, 0},
        {"hf:../../etc", MN_BAD_INPUT, 0, 0, 0, 0, 0},
        {"hf:org/..", MN_BAD_INPUT, 0, 0, 0, 0, 0},
        {"hf:org/a--b", MN_BAD_INPUT, 0, 0, 0, 0, 0},
        {"hf:org/repo@../x", MN_BAD_INPUT, 0, 0, 0, 0, 0},
        {"hf:org/repo:../../x", MN_BAD_INPUT, 0, 0, 0, 0, 0},
        {"https://huggingface.co/org/repo/blob/main/../../x", MN_BAD_INPUT, 0, 0, 0, 0, 0},
        {"https://huggingface.co/datasets/org/data", MN_BAD_INPUT, 0, 0, 0, 0, 0},
        {"https://example.org/m.gguf", MN_BAD_INPUT, 0, 0, 0, 0, 0},
        {"https://huggingface.co.example.org/org/repo", MN_BAD_INPUT, 0, 0, 0, 0, 0},
    };
    (void)state;
    setenv("HF_ENDPOINT", "http://mirror.example:81/x/", 1);
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        mn_model_name n = {0};
        mn_error err = MN_ERROR_INIT;
        const mn_status st = mn_name_parse(cases[i].text, &n, &err);
        if (st != cases[i].status)
            fail_msg("%s: status %d: %s", cases[i].text, st, err.msg);
        if (st)
            continue;
        assert_string_equal(n.repo, cases[i].repo);
        assert_string_equal(n.revision, cases[i].revision);
        assert_string_equal(n.what, cases[i].what);
        assert_string_equal(n.plain, cases[i].plain);
        assert_int_equal(n.only, cases[i].only);
        mn_name_free(&n);
    }
    unsetenv("HF_ENDPOINT");
}

static void inner_paths(void **state) {
    static const char *const bad[] = {"",    "/a",  "a/",   "a//b",  "..",   "a/../b",
                                      "./a", "a/.", "a\\b", "a\x01", "a\xff"};
    (void)state;
    assert_true(mn_is_inner_path("a/b.c", 5));
    assert_true(mn_is_inner_path("...", 3));
    for (size_t i = 0; i < MN_COUNT(bad); i++)
        if (mn_is_inner_path(bad[i], strlen(bad[i])))
            fail_msg("%s is taken", bad[i]);
}

static void labels(void **state) {
    static const char *const cases[][2] = {{"Model-7B-Q4_K_M", "Q4_K_M"},
                                           {"model.q8_0", "q8_0"},
                                           {"m-IQ3_XXS", "IQ3_XXS"},
                                           {"m-UD-Q4_K_XL", "Q4_K_XL"},
                                           {"m-BF16", "BF16"},
                                           {"gpt-oss-MXFP4_MOE", "MXFP4_MOE"},
                                           {"Qwen2-7B", ""},
                                           {"m-Q4_0_4_4-imat", "Q4_0_4_4"},
                                           {"q8-model-Q2_K", "Q2_K"},
                                           {"TinyLlama-TQ1_0", "TQ1_0"},
                                           {"m_f16", "f16"},
                                           {"m-f160", ""}};
    (void)state;
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        const mn_str l = mn_quant_label(mn_str_of(cases[i][0]));
        if (!mn_str_is(l, cases[i][1]))
            fail_msg("%s: %.*s", cases[i][0], MN_STR_ARG(l));
    }
}

/* ---- which files ----------------------------------------------------------------------------- */
/* files: "name=bytes ..." */
static uint32_t make_files(char *text, mn_hub_file *files) {
    uint32_t n = 0;
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        files[n].bytes = equals ? strtoull(equals + 1, NULL, 10) : 1;
        if (equals)
            *equals = 0;
        files[n++].name = mn_str_of(word);
    }
    return n;
}

static void chosen_files(void **state) {
    static const char quants[] = "README.md m-Q2_K.gguf=1000 m-Q4_K_M.gguf=2000 m-Q8_0.gguf=4000 "
                                 "m-F16.gguf=8000 mmproj-m-F16.gguf=500 imatrix.gguf=10";
    static const char without[] = "m-Q2_K.gguf=1000 m-Q5_K_S.gguf=2500 m-Q8_0.gguf=9000";
    static const char shards[] = "q/m-Q8_0-00001-of-00002.gguf=10 q/m-Q8_0-00002-of-00002.gguf=10 "
                                 "m-Q2_K-00001-of-00002.gguf=9";
    static const char folder[] =
        "config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
        "model.safetensors.index.json tokenizer.json modeling_x.py pytorch_model.bin run.sh "
        "original/model.safetensors extra.safetensors .gitattributes onnx/model.onnx setup.py";
    static const struct {
        const char *files, *what;
        int status;
        const char *chosen, *said;
    } cases[] = {
        {quants, "", 0, "m-Q4_K_M.gguf", "Q4_K_M of Q2_K, Q4_K_M, Q8_0, F16"},
        {quants, "q8_0", 0, "m-Q8_0.gguf", ""},
        {quants, "m-F16.gguf", 0, "m-F16.gguf", ""},
        {quants, "Q3_K", MN_END, "", "found no Q3_K, expected one of Q2_K, Q4_K_M"},
        {without, "", 0, "m-Q5_K_S.gguf", "Q5_K_S of"},
        {"a-Q8_0.gguf=9000 a-F16.gguf=19000", "", 0, "a-Q8_0.gguf", "too large"},
        {"a-Q4_K_M.gguf=9000 a-Q2_K.gguf=4000", "", 0, "a-Q2_K.gguf", "Q2_K of"},
        {shards, "", 0, "q/m-Q8_0-00001-of-00002.gguf q/m-Q8_0-00002-of-00002.gguf", ""},
        {shards, "Q2_K", MN_END, "", "found no Q2_K, expected one of Q8_0"},
        {"a-Q8_0.gguf b-Q8_0.gguf", "", MN_BAD_INPUT, "", "a-Q8_0.gguf, b-Q8_0.gguf"},
        {"a-Q8_0.gguf b-Q8_0.gguf", "Q8_0", MN_BAD_INPUT, "", "name one of these files"},
        {"a-Q8_0.gguf b-Q8_0.gguf", "b", 0, "b-Q8_0.gguf", ""},
        {"m-Q4_K_XL.gguf m-UD-Q4_K_XL.gguf", "UD-Q4_K_XL", 0, "m-UD-Q4_K_XL.gguf", ""},
        {folder, "", 0,
         "config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
         "model.safetensors.index.json tokenizer.json",
         ""},
        {folder, "Q8_0", MN_END, "", "one model, without a choice"},
        {"config.json model-00001-of-00002.safetensors", "", MN_END, "", "not all shards"},
        {"config.json weights.safetensors a.py", "", 0, "config.json weights.safetensors", ""},
        {"config.json pytorch_model.bin", "", MN_END, "", "no files of a model"},
        {"1_Pooling/config.json 2_Dense/config.json 2_Dense/model.safetensors "
         "2_Dense/pytorch_model.bin config.json model.safetensors modules.json x/config.json",
         "", 0,
         "1_Pooling/config.json 2_Dense/config.json 2_Dense/model.safetensors config.json "
         "model.safetensors modules.json",
         ""},
        {"1_Pooling/config.json config.json model.safetensors", "", 0,
         "config.json model.safetensors", ""},
        {"README.md", "", MN_END, "", "no files of a model"},
        {"m-00001-of-00003.gguf m-00002-of-00003.gguf", "", MN_END, "", "shards are missing"},
    };
    (void)state;
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        char text[600];
        char got[600] = "";
        mn_hub_file files[32];
        uint8_t chosen[32];
        mn_error err = MN_ERROR_INIT;
        mn_hub_choice choice = {.size = sizeof choice};
        snprintf(text, sizeof text, "%s", cases[i].files);
        const uint32_t n = make_files(text, files);
        const mn_status st =
            mn_choose_files(&how, files, n, cases[i].what, chosen, &choice, NULL, &err);
        for (uint32_t k = 0; k < n && !st; k++)
            if (chosen[k])
                snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", got[0] ? " " : "",
                         files[k].name.ptr);
        if (st != cases[i].status || strcmp(got, cases[i].chosen) ||
            !strstr(st ? err.msg : choice.remark, cases[i].said))
            fail_msg("%zu: status %d, \"%s\", %s%s", i, st, got, err.msg, choice.remark);
    }
}

static void many_files(void **state) {
    enum { N = MN_HUB_MAX_FILES + 1 };
    mn_error err = MN_ERROR_INIT;
    mn_hub_choice choice = {.size = sizeof choice};
    mn_hub_file *files = mn_calloc(N, sizeof *files);
    uint8_t *chosen = mn_calloc(N, 1);
    (void)state;
    for (uint32_t i = 0; i < N; i++)
        files[i] = (mn_hub_file){{"a.txt", 5}, 1};
    assert_int_equal(mn_choose_files(&how, files, N, "", chosen, &choice, NULL, &err),
                     MN_BAD_INPUT);
    assert_non_null(strstr(err.msg, "100001 files"));
    assert_int_equal(mn_choose_files(&how, files, N - 1, "", chosen, &choice, NULL, &err), MN_END);
    mn_free(files);
    mn_free(chosen);
}

/* ---- places ---------------------------------------------------------------------------------- */
#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define OTHER "fedcba9876543210fedcba9876543210fedcba98"

/* A file below the home, with its folders. */
static void put(const char *home, const char *name, const char *text) {
    char path[2048];
    snprintf(path, sizeof path, "%s/%s", home, name);
    for (char *c = path + strlen(home) + 1; *c; c++)
        if (*c == '/') {
            *c = 0;
            mkdir(path, 0700);
            *c = '/';
        }
    unit_write(path, text, strlen(text));
}

static void link_to(const char *home, const char *name, const char *target) {
    put(home, name, "");
    remove(unit_path(home, name));
    assert_int_equal(symlink(target, unit_path(home, name)), 0);
}

#define HUB ".cache/huggingface/hub/"
/* org/quants with two quants, the smaller of which another snapshot has, too. */
static void make_cache(const char *home) {
    put(home, HUB "models--org--quants/refs/main", COMMIT);
    put(home, HUB "models--org--quants/blobs/aaaa", "12345");
    put(home, HUB "models--org--quants/blobs/bbbb", "123");
    link_to(home, HUB "models--org--quants/snapshots/" COMMIT "/m-Q4_K_M.gguf", "../../blobs/aaaa");
    link_to(home, HUB "models--org--quants/snapshots/" COMMIT "/m-Q2_K.gguf", "../../blobs/bbbb");
    link_to(home, HUB "models--org--quants/snapshots/" OTHER "/m-Q2_K.gguf", "../../blobs/bbbb");
    link_to(home, HUB "models--org--quants/snapshots/" COMMIT "/m-Q8_0.gguf", "../../blobs/gone");
    put(home, HUB "models--one--twin/snapshots/" COMMIT "/a.gguf", "x");
    put(home, HUB "models--two--twin/snapshots/" COMMIT "/a.gguf", "x");
    put(home, HUB "models--half--loaded/refs/main", COMMIT);
    put(home, HUB "models--half--loaded/snapshots/" COMMIT "/config.json", "{}");
    put(home, HUB "datasets--org--data/refs/main", COMMIT);
}

/* Finds text; the path below the home (or whole), "" = nothing. */
static void expect(const char *home, const char *text, const char *path, const char *place) {
    mn_found *found = NULL;
    mn_error err = MN_ERROR_INIT;
    const mn_status st = mn_find_model(&how, unit_path(home, "models"), text, &found, &err);
    if (st)
        fail_msg("%s: %s", text, err.msg);
    const char *got = found->n ? found->at[0].path : "";
    if (!strncmp(got, home, strlen(home)))
        got += strlen(home) + 1;
    if (strcmp(got, path) || (found->n && strcmp(found->at[0].place, place)))
        fail_msg("%s: found \"%s\" in %s\n%s", text, got, found->n ? found->at[0].place : "-",
                 found->explain.ptr);
    mn_found_free(found);
}

static void expect_status(const char *text, mn_status status, const char *words) {
    mn_found *found = NULL;
    mn_error err = MN_ERROR_INIT;
    assert_int_equal(mn_find_model(&how, "", text, &found, &err), status);
    if (!strstr(err.msg, words))
        fail_msg("%s: %s", text, err.msg);
}

static void expect_error(const char *text, const char *words) {
    expect_status(text, MN_BAD_INPUT, words);
}

static void cache_of_hugging_face(void **state) {
    const char *home = *state;
    make_cache(home);
#define SNAPSHOT HUB "models--org--quants/snapshots/" COMMIT
    expect(home, "org/quants", SNAPSHOT "/m-Q4_K_M.gguf", "huggingface");
    expect(home, "quants", SNAPSHOT "/m-Q4_K_M.gguf", "huggingface");
    expect(home, "QUANTS:q2_k", SNAPSHOT "/m-Q2_K.gguf", "huggingface");
    expect(home, "org/quants:Q8_0", "", "");
    expect(home, "org/quants@" OTHER, HUB "models--org--quants/snapshots/" OTHER "/m-Q2_K.gguf",
           "huggingface");
    expect(home, "org/quants@v9", "", "");
    expect(home, "half/loaded", "", "");
    expect(home, "org/none", "", "");
    expect(home, "one/twin", HUB "models--one--twin/snapshots/" COMMIT "/a.gguf", "huggingface");
    expect_error("twin", "one/twin, two/twin");
    setenv("HF_HOME", unit_path(home, "elsewhere"), 1);
    expect(home, "org/quants", "", "");
    setenv("HF_HUB_CACHE", unit_path(home, HUB), 1);
    expect(home, "half/loaded", "", "");
    setenv("HF_HUB_CACHE", "~/" HUB, 1);
    expect(home, "org/quants", SNAPSHOT "/m-Q4_K_M.gguf", "huggingface");
    char here[2048];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(home), 0);
    setenv("HF_HUB_CACHE", "not/there/yet", 1);
    expect(home, "org/quants", "", "");
    setenv("HF_HUB_CACHE", ".cache/huggingface/hub", 1);
    expect(home, "org/quants", SNAPSHOT "/m-Q4_K_M.gguf", "huggingface");
    assert_int_equal(chdir(here), 0);
    unsetenv("HF_HOME");
    unsetenv("HF_HUB_CACHE");
}

static void lm_studio(void **state) {
    const char *home = *state;
    put(home, ".lmstudio/models/pub/repo/m-Q4_0.gguf", "x");
    put(home, ".lmstudio/hub/models/maker/thing/manifest.json",
        "{\"dependencies\":[{\"type\":\"model\",\"sources\":[{\"user\":\"no\",\"repo\":\"no\"},"
        "{\"user\":\"..\",\"repo\":\"..\"},{\"user\":\"pub\",\"repo\":\"repo\"}]}]}");
    expect(home, "pub/repo", ".lmstudio/models/pub/repo/m-Q4_0.gguf", "lmstudio");
    expect(home, "lmstudio:repo", ".lmstudio/models/pub/repo/m-Q4_0.gguf", "lmstudio");
    expect(home, "maker/thing", ".lmstudio/models/pub/repo/m-Q4_0.gguf", "lmstudio");
    /* what only the cache of Hugging Face has: neither found, nor what rm and pull would mean */
    make_cache(home);
    mn_found *none = NULL;
    mn_error err = MN_ERROR_INIT;
    assert_int_equal(mn_find_model(&how, "", "lmstudio:org/quants", &none, &err), MN_OK);
    assert_int_equal(none->n, 0);
    assert_null(none->folder);
    mn_found_free(none);
    char settings[1200];
    snprintf(settings, sizeof settings, "{\"downloadsFolder\":\"%s/big\"}", home);
    put(home, ".lmstudio/settings.json", settings);
    put(home, "big/pub/other/x.gguf", "x");
    expect(home, "pub/repo", "", "");
    expect(home, "other", "big/pub/other/x.gguf", "lmstudio");
    char pointer[1200];
    snprintf(pointer, sizeof pointer, "%s/moved\n", home);
    put(home, ".lmstudio-home-pointer", pointer);
    put(home, "moved/models/a/b/c.gguf", "x");
    expect(home, "a/b", "moved/models/a/b/c.gguf", "lmstudio");
    expect(home, "other", "", "");
}

#define DIGEST "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define MODEL_LAYER                                                                                \
    "{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":\"sha256:" DIGEST            \
    "\",\"size\":4}"
static void ollama(void **state) {
    const char *home = *state;
    put(home, ".ollama/models/blobs/sha256-" DIGEST, "GGUF");
    put(home, ".ollama/models/manifests/registry.ollama.ai/library/llama3.2/latest",
        "{\"layers\":[" MODEL_LAYER ",{\"mediaType\":\"application/vnd.ollama.image.template\"}]}");
    put(home, ".ollama/models/manifests/registry.ollama.ai/user/own/7b",
        "{\"layers\":[" MODEL_LAYER "]}");
    put(home, ".ollama/models/manifests/hf.co/org/repo/Q4_K_M", "{\"layers\":[" MODEL_LAYER "]}");
    put(home, ".ollama/models/manifests/registry.ollama.ai/library/tuned/latest",
        "{\"layers\":[" MODEL_LAYER ",{\"mediaType\":\"application/vnd.ollama.image.adapter\"}]}");
    put(home, ".ollama/models/manifests/registry.ollama.ai/library/short/latest",
        "{\"layers\":[{\"mediaType\":\"application/"
        "vnd.ollama.image.model\",\"digest\":\"sha256:" DIGEST "\",\"size\":9}]}");
    put(home, ".ollama/models/manifests/registry.ollama.ai/library/escape/latest",
        "{\"layers\":[{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":\"sha256:../"
        "../x\"}]}");
    put(home, ".ollama/models/manifests/registry.ollama.ai/library/no/latest", "no json");
    const char *blob = ".ollama/models/blobs/sha256-" DIGEST;
    expect(home, "llama3.2", blob, "ollama");
    expect(home, "llama3.2:latest", blob, "ollama");
    expect(home, "ollama:user/own:7b", blob, "ollama");
    expect(home, "user/own:7b", blob, "ollama");
    expect(home, "hf.co/org/repo:Q4_K_M", blob, "ollama");
    expect(home, "registry.ollama.ai/library/llama3.2", blob, "ollama");
    expect(home, "llama3.2:1b", "", "");
    expect(home, "short", "", "");
    mn_found *found = NULL;
    mn_error err = MN_ERROR_INIT;
    static const char *const broken[] = {"tuned", "escape", "no"};
    for (size_t i = 0; i < MN_COUNT(broken); i++)
        assert_int_equal(mn_find_model(&how, "", broken[i], &found, &err), MN_BAD_FILE);
    assert_int_equal(mn_find_model(&how, "", "llama3.2", &found, &err), MN_OK);
    assert_int_equal(found->at[0].flags, MN_FOUND_FOREIGN_TEMPLATE);
    mn_found_free(found);
}

static void order_and_aliases(void **state) {
    const char *home = *state;
    mn_error err = MN_ERROR_INIT;
    make_cache(home);
    expect(home, "org/quants", SNAPSHOT "/m-Q4_K_M.gguf", "huggingface");
    put(home, "models/org/quants/m-Q4_K_M.gguf", "x");
    put(home, "models/my model.gguf", "x");
    expect(home, "org/quants:Q4_K_M", "models/org/quants/m-Q4_K_M.gguf", "model_path");
    expect(home, "org/quants", "models/org/quants", "model_path");
    expect(home, "hf:org/quants", SNAPSHOT "/m-Q4_K_M.gguf", "huggingface");
    expect(home, "my model.gguf", "models/my model.gguf", "model_path");
    expect(home, "../models/my model.gguf", "", "");
    assert_int_equal(mn_aliases_set("small", "hf:org/quants:Q2_K", &err), MN_OK);
    assert_int_equal(mn_aliases_set("tiny", "small", &err), MN_OK);
    expect(home, "tiny", SNAPSHOT "/m-Q2_K.gguf", "huggingface");
    assert_int_equal(mn_aliases_set("small", "tiny", &err), MN_BAD_INPUT);
    assert_int_equal(mn_aliases_set("a/b", "tiny", &err), MN_BAD_INPUT);
    assert_int_equal(mn_aliases_set("x", "a\nb = c", &err), MN_BAD_INPUT);
    assert_int_equal(mn_aliases_set("tiny", NULL, &err), MN_OK);
    assert_int_equal(mn_aliases_set("tiny", NULL, &err), MN_END);
    expect(home, "tiny", "", "");
    expect(home, "small", SNAPSHOT "/m-Q2_K.gguf", "huggingface");
    put(home, ".config/minerva/aliases.ini", "# a comment\n\nx = org/quants\nbroken\n");
    expect_error("x", "aliases.ini:4: found \"broken\"");
}

/* A list that cannot be read is an error, and never replaced by one that lacks its names. */
static void broken_lists_of_aliases(void **state) {
    enum { BYTES = (1 << 20) + 10, MANY = 5001 };
    const char *home = *state;
    const char *list = ".config/minerva/aliases.ini";
    mn_error err = MN_ERROR_INIT;
    mn_aliases a;
    char *text = malloc(BYTES);
    assert_non_null(text);
    memset(text, '\n', BYTES);
    put(home, list, "");
    unit_write(unit_path(home, list), text, BYTES);
    expect_status("x", MN_IO_ERROR, "aliases.ini");
    assert_int_equal(mn_aliases_set("x", "org/quants", &err), MN_IO_ERROR);
    unit_write(unit_path(home, list), "a = b\n\0c = d\n", 13);
    expect_error("x", "found a NUL");
    assert_int_equal(mn_aliases_set("x", "org/quants", &err), MN_BAD_INPUT);
    size_t n = 0;
    for (int i = 0; i < MANY; i++)
        n += (size_t)snprintf(text + n, BYTES - n, "a%d = a%d\n", i, i + 1);
    unit_write(unit_path(home, list), text, n);
    expect_error("x", "more than 5000 aliases");
    put(home, list, "a = b\n");
    remove(unit_path(home, list));
    assert_int_equal(mkdir(unit_path(home, list), 0700), 0);
    assert_int_equal(mn_aliases_set("x", "org/quants", &err), MN_IO_ERROR);
    assert_int_equal(rmdir(unit_path(home, list)), 0);
    assert_int_equal(mn_aliases_set("x", "org/quants", &err), MN_OK);
    assert_int_equal(mn_aliases_read(&a, &err), MN_OK);
    assert_string_equal(mn_aliases_target(&a, "x"), "org/quants");
    mn_aliases_free(&a);
    free(text);
}

static void listed(void **state) {
    const char *home = *state;
    mn_found *found = NULL;
    mn_error err = MN_ERROR_INIT;
    char all[2048] = "";
    make_cache(home);
    put(home, "models/one.gguf", "x");
    put(home, "models/fold/config.json", "{}");
    put(home, "models/fold/model.safetensors", "x");
    put(home, "models/fold/notes.txt", "x");
    put(home, ".lmstudio/models/pub/repo/m-Q4_0.gguf", "x");
    put(home, ".ollama/models/blobs/sha256-" DIGEST, "GGUF");
    put(home, ".ollama/models/manifests/registry.ollama.ai/library/llama3.2/1b",
        "{\"layers\":[" MODEL_LAYER "]}");
    assert_int_equal(mn_find_all(&how, unit_path(home, "models"), &found, &err), MN_OK);
    for (size_t i = 0; i < found->n; i++) {
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s|", found->at[i].name);
        expect(home, found->at[i].name, found->at[i].path + strlen(home) + 1, found->at[i].place);
    }
    assert_string_equal(all, "fold|one.gguf|one/twin|org/quants:Q2_K|org/quants:Q4_K_M|two/twin|"
                             "pub/repo:Q4_0|llama3.2:1b|");
    mn_found_free(found);
}

/* ---- removal --------------------------------------------------------------------------------- */
static bool is_there(const char *home, const char *name) {
    struct stat st;
    return !lstat(unit_path(home, name), &st);
}

static uint64_t remove_model(const char *text, bool only_ask) {
    mn_found *found = NULL;
    mn_error err = MN_ERROR_INIT;
    uint64_t bytes = 0;
    assert_int_equal(mn_find_model(&how, "", text, &found, &err), MN_OK);
    const mn_status st = mn_hf_remove_model(&how, found, only_ask, &bytes, &err);
    if (st)
        fail_msg("%s: %s", text, err.msg);
    mn_found_free(found);
    return bytes;
}

static void removals(void **state) {
    const char *home = *state;
    make_cache(home);
    put(home, "precious", "x");
    link_to(home, HUB "models--org--quants/out", home);
    put(home, HUB ".locks/models--org--quants/aaaa.lock", "");
    assert_int_equal(remove_model("org/quants:Q4_K_M", true), 5);
    assert_true(is_there(home, HUB "models--org--quants/blobs/aaaa"));
    assert_int_equal(remove_model("org/quants:Q4_K_M", false), 5);
    assert_false(is_there(home, HUB "models--org--quants/blobs/aaaa"));
    assert_false(is_there(home, SNAPSHOT "/m-Q4_K_M.gguf"));
    assert_int_equal(remove_model("org/quants:Q2_K", false), 0); /* another snapshot has it */
    assert_true(is_there(home, HUB "models--org--quants/blobs/bbbb"));
    assert_int_equal(remove_model("org/quants@" OTHER, false), 3 + strlen(COMMIT));
    assert_false(is_there(home, HUB "models--org--quants"));
    assert_false(is_there(home, HUB ".locks/models--org--quants"));
    assert_true(is_there(home, "precious"));
    remove_model("one/twin", false);
    assert_false(is_there(home, HUB "models--one--twin"));
    assert_true(is_there(home, HUB "models--two--twin"));
}

static void expect_no_removal(const char *text, mn_status status, const char *words) {
    mn_found *found = NULL;
    mn_error err = MN_ERROR_INIT;
    uint64_t bytes = 0;
    assert_int_equal(mn_find_model(&how, "", text, &found, &err), MN_OK);
    assert_int_equal(mn_hf_remove_model(&how, found, false, &bytes, &err), status);
    if (!strstr(err.msg, words))
        fail_msg("%s: %s", text, err.msg);
    mn_found_free(found);
}

/* A blob stays where another snapshot's link to it is deep, hidden, or cannot be seen; what is no
 * model stays, too. */
static void removals_of_shared_blobs(void **state) {
    const char *home = *state;
    const char *blob = HUB "models--org--quants/blobs/aaaa";
    make_cache(home);
    link_to(home, HUB "models--org--quants/snapshots/" OTHER "/.hidden/m-Q4_K_M.gguf",
            "../../../blobs/aaaa");
    assert_int_equal(remove_model("org/quants:Q4_K_M", false), 0);
    assert_true(is_there(home, blob));
    make_cache(home);
    remove(unit_path(home, HUB "models--org--quants/snapshots/" OTHER "/.hidden/m-Q4_K_M.gguf"));
    link_to(home, HUB "models--org--quants/snapshots/" OTHER "/1/2/3/4/5/6/7/8/9/m.bin",
            "../../../../../../../../../../../blobs/aaaa");
    assert_int_equal(remove_model("org/quants:Q4_K_M", false), 0);
    assert_true(is_there(home, blob));
    make_cache(home);
    remove(unit_path(home, HUB "models--org--quants/snapshots/" OTHER "/1/2/3/4/5/6/7/8/9/m.bin"));
    const char *closed = unit_path(home, HUB "models--org--quants/snapshots/" OTHER);
    if (geteuid()) { /* root may read every folder */
        assert_int_equal(chmod(closed, 0), 0);
        expect_no_removal("org/quants:Q4_K_M", MN_IO_ERROR, "cannot read");
        assert_int_equal(chmod(closed, 0700), 0);
        assert_true(is_there(home, blob));
    }
    put(home, HUB "models--org--quants/snapshots/" OTHER "/pytorch_model.bin", "x");
    remove_model("org/quants:Q4_K_M", false);
    remove_model("org/quants:Q2_K", false);
    remove_model("org/quants@" OTHER, false);
    assert_false(is_there(home, blob));
    assert_true(is_there(home, HUB "models--org--quants/snapshots/" OTHER "/pytorch_model.bin"));
}

/* Folders of a snapshot that are links: what they lead to is not of the cache. */
static void removals_outside(void **state) {
    const char *home = *state;
    put(home, "precious/" COMMIT "/m-Q4_0.gguf", "x");
    link_to(home, HUB "models--org--out/snapshots", unit_path(home, "precious"));
    link_to(home, HUB "models--org--in/snapshots/" COMMIT, unit_path(home, "precious/" COMMIT));
    expect_no_removal("org/out:Q4_0", MN_UNSUPPORTED, "leads out of the cache");
    expect_no_removal("org/in:Q4_0", MN_UNSUPPORTED, "leads out of the cache");
    remove_model("org/out", false);
    remove_model("org/in", false);
    assert_false(is_there(home, HUB "models--org--in"));
    assert_true(is_there(home, "precious/" COMMIT "/m-Q4_0.gguf"));
}

/* ---- without memory -------------------------------------------------------------------------- */
static void no_memory(void **state) {
    static const char *const texts[] = {"org/quants", "twin", "x", "llama3.2",
                                        "hf:org/quants:Q2_K"};
    const char *home = *state;
    make_cache(home);
    put(home, ".config/minerva/aliases.ini", "x = org/quants\n");
    for (size_t i = 0; i < MN_COUNT(texts); i++)
        for (int64_t k = 1;; k++) {
            mn_found *found = NULL;
            mn_error err = MN_ERROR_INIT;
            mn_alloc_fail_once(k);
            const mn_status st = mn_find_model(&how, "", texts[i], &found, &err);
            const bool failed = mn_alloc_failed();
            mn_alloc_fail_once(-1);
            if (failed && st != MN_OUT_OF_MEMORY && st != MN_BAD_INPUT) /* twin */
                fail_msg("%s: allocation %d: %d, %s\n%s", texts[i], (int)k, st, err.msg,
                         found ? found->explain.ptr : "");
            mn_found_free(found);
            if (!failed)
                break;
        }
}

/* Every allocation of a list and of a removal that is only asked for. */
static void lists_without_memory(void **state) {
    const char *home = *state;
    make_cache(home);
    put(home, "models/one.gguf", "x");
    put(home, "models/fold/two.gguf", "x");
    put(home, ".lmstudio/models/pub/repo/m-Q4_0.gguf", "x");
    put(home, ".ollama/models/blobs/sha256-" DIGEST, "GGUF");
    put(home, ".ollama/models/manifests/registry.ollama.ai/library/llama3.2/1b",
        "{\"layers\":[" MODEL_LAYER "]}");
    mn_found *asked = NULL;
    mn_error why = MN_ERROR_INIT;
    assert_int_equal(mn_find_model(&how, "", "org/quants:Q4_K_M", &asked, &why), MN_OK);
    bool failed = true;
    for (int64_t k = 1; failed; k++) {
        mn_found *found = NULL;
        uint64_t bytes = 0;
        mn_error err = MN_ERROR_INIT;
        mn_alloc_fail_once(k);
        mn_status st = mn_find_all(&how, unit_path(home, "models"), &found, &err);
        if (!st)
            st = mn_hf_remove_model(&how, asked, true, &bytes, &err);
        failed = mn_alloc_failed();
        mn_alloc_fail_once(-1);
        if (failed ? st != MN_OUT_OF_MEMORY || err.status != st : st != MN_OK || bytes != 5)
            fail_msg("allocation %d: %d, %s", (int)k, st, err.msg);
        mn_found_free(found);
    }
    mn_found_free(asked);
}

int main(void) {
#define ROW(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {ROW(names),
                                       ROW(inner_paths),
                                       ROW(labels),
                                       ROW(chosen_files),
                                       ROW(many_files),
                                       ROW(cache_of_hugging_face),
                                       ROW(lm_studio),
                                       ROW(ollama),
                                       ROW(order_and_aliases),
                                       ROW(broken_lists_of_aliases),
                                       ROW(listed),
                                       ROW(removals),
                                       ROW(removals_outside),
                                       ROW(removals_of_shared_blobs),
                                       ROW(no_memory),
                                       ROW(lists_without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
