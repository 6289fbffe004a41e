/* test_hparams.c -- what architectures fix and files leave out: windows, rotations and scales per
 * layer, from metadata made by hand. The fixtures have too few layers for the rules of the large
 * models. */
#include "model/model.h"
#include "unit.h"
#include <math.h>

enum { MAX_KEYS = 16, WIDTH = 96, HEADS = 4, HEAD_DIM = 32 };

/* A model of metadata and one tensor; keys are copied to `names`. */
typedef struct {
    mn_canonical model;
    mn_meta_entry entries[MAX_KEYS];
    char names[MAX_KEYS][96];
    mn_model_tensor_entry embedding;
    uint32_t first;
    mn_arena arena;
    mn_hparams hp;
} world;

static mn_value *put(world *w, const char *key) {
    const size_t i = w->model.meta.n++;
    assert_true(i < MAX_KEYS);
    snprintf(w->names[i], sizeof w->names[i], "%s", key);
    w->entries[i] = (mn_meta_entry){.key = mn_str_of(w->names[i])};
    return &w->entries[i].value;
}

static void put_int(world *w, const char *arch, const char *key, int64_t v) {
    char full[96];
    snprintf(full, sizeof full, "%s.%s", arch, key);
    *put(w, full) = (mn_value){.type = MN_VALUE_INT, .i = v};
}

static void begin(world *w, const char *arch, int64_t n_layer) {
    *w = (world){.model = {.path = (char *)(uintptr_t) "m", .n_tensors = 1}};
    w->model.meta.entries = w->entries;
    w->embedding.info =
        (mn_tensor_info){.name = mn_str_of("token_embd.weight"), .n_dim = 2, .dim = {100, WIDTH}};
    w->model.tensors = &w->embedding;
    w->model.by_name = &w->first;
    *put(w, "general.architecture") = (mn_value){.type = MN_VALUE_STR, .s = mn_str_of(arch)};
    put_int(w, arch, "block_count", n_layer);
    put_int(w, arch, "embedding_length", WIDTH);
    put_int(w, arch, "feed_forward_length", 64);
    put_int(w, arch, "attention.head_count", HEADS);
    put_int(w, arch, "attention.key_length", HEAD_DIM);
}

static const mn_hparams *read_it(world *w) {
    mn_error err = MN_ERROR_INIT;
    if (mn_hparams_read(&w->model, &w->arena, &w->hp, &err))
        fail_msg("%s", err.msg);
    return &w->hp;
}

/* Gemma's models of so many layers alone scale by the embedding's share of a head. */
static void test_attention_scale(void **state) {
    static const struct {
        const char *arch;
        int64_t n_layer, width;
    } rows[] = {
        {"gemma2", 45, HEAD_DIM}, {"gemma2", 46, WIDTH / HEADS}, {"gemma2", 47, HEAD_DIM},
        {"gemma2", 62, HEAD_DIM}, {"gemma3", 62, WIDTH / HEADS}, {"gemma3", 63, HEAD_DIM},
        {"gemma3", 46, HEAD_DIM}, {"llama", 46, HEAD_DIM},
    };
    (void)state;
    for (size_t i = 0; i < MN_COUNT(rows); i++) {
        world w;
        begin(&w, rows[i].arch, rows[i].n_layer);
        put_int(&w, rows[i].arch, "attention.sliding_window", 8);
        const mn_hparams *h = read_it(&w);
        const double want = 1 / sqrt((double)rows[i].width);
        for (int64_t l = 0; l < h->n_layer; l++)
            assert_float_equal(h->layer[l].attn_scale, want, 1e-12);
        mn_arena_free(&w.arena);
    }
}

/* Of p layers the last sees everything; every p-th does not rotate. 0: no layer does. */
static void test_layer_rules(void **state) {
    static const struct {
        const char *arch;
        int64_t full, no_rope;
    } rows[] = {
        {"gemma2", 2, 0}, {"gemma3", 6, 0}, {"gpt-oss", 2, 0}, {"olmo2", 4, 0}, {"smollm3", 0, 4}};
    enum { N = 13, WINDOW = 8 };
    (void)state;
    for (size_t i = 0; i < MN_COUNT(rows); i++) {
        world w;
        begin(&w, rows[i].arch, N);
        put_int(&w, rows[i].arch, "attention.sliding_window", rows[i].full ? WINDOW : 0);
        const mn_hparams *h = read_it(&w);
        for (int64_t l = 0; l < N; l++) {
            const bool slides = rows[i].full && (l + 1) % rows[i].full;
            const bool still = rows[i].no_rope && (l + 1) % rows[i].no_rope == 0;
            assert_int_equal(h->layer[l].window, slides ? WINDOW : 0);
            assert_int_equal(h->layer[l].rope < 0, still);
        }
        assert_int_equal(h->n_kv, rows[i].full ? 2 : 1);
        mn_arena_free(&w.arena);
    }
}

static void put_real(world *w, const char *arch, const char *key, double v) {
    char full[96];
    snprintf(full, sizeof full, "%s.%s", arch, key);
    *put(w, full) = (mn_value){.type = MN_VALUE_FLOAT, .f = v};
}

/* OLMo 3: YaRN is for the full layers; the base of window layers is theirs unless a key says it. */
static void test_unscaled_windows(void **state) {
    (void)state;
    for (int own = 0; own < 2; own++) {
        world w;
        begin(&w, "olmo2", 8);
        put_int(&w, "olmo2", "attention.sliding_window", 8);
        *put(&w, "olmo2.rope.scaling.type") =
            (mn_value){.type = MN_VALUE_STR, .s = mn_str_of("yarn")};
        put_real(&w, "olmo2", "rope.scaling.factor", 8);
        put_int(&w, "olmo2", "rope.scaling.original_context_length", 64);
        put_real(&w, "olmo2", "rope.freq_base", 5e5);
        if (own)
            put_real(&w, "olmo2", "rope.freq_base_swa", 1e4);
        const mn_hparams *h = read_it(&w);
        for (int64_t l = 0; l < 8; l++) {
            const mn_rope_table *t = &h->rope[h->layer[l].rope];
            assert_int_equal(t->scaled, l % 4 == 3);
            assert_float_equal(t->theta, own && !t->scaled ? 1e4 : 5e5, 1e-6);
        }
        mn_arena_free(&w.arena);
    }
}

/* A cap on the scores of Gemma 3 is a key that no implementation applies. */
static void test_softcaps(void **state) {
    static const char *const archs[] = {"gemma2", "gemma3"};
    (void)state;
    for (size_t i = 0; i < MN_COUNT(archs); i++) {
        world w;
        begin(&w, archs[i], 2);
        put_int(&w, archs[i], "attention.sliding_window", 8);
        put_real(&w, archs[i], "attn_logit_softcapping", 50);
        put_real(&w, archs[i], "final_logit_softcapping", 30);
        const mn_hparams *h = read_it(&w);
        assert_float_equal(h->attn_softcap, i ? 0 : 50, 1e-9);
        assert_float_equal(h->logit_softcap, 30, 1e-9);
        mn_arena_free(&w.arena);
    }
}

/* Layers of one group are numbered by their order in it. */
static void test_groups(void **state) {
    world w;
    (void)state;
    begin(&w, "gemma3", 13);
    put_int(&w, "gemma3", "attention.sliding_window", 8);
    const mn_hparams *h = read_it(&w);
    uint32_t next[2] = {0};
    for (int64_t l = 0; l < 13; l++) {
        const uint32_t group = (l + 1) % 6 == 0;
        assert_int_equal(h->layer[l].kv_group, group);
        assert_int_equal(h->layer[l].kv_layer, next[group]++);
    }
    mn_arena_free(&w.arena);
}

/* Files that name no pre-tokeniser mean that of their architecture, where it has one of its own. */
static void test_pre_tokenizer(void **state) {
    static const char *const list[][2] = {
        {"qwen2", "qwen2"}, {"qwen2vl", "qwen2"}, {"gpt2", "gpt-2"},
        {"llama", NULL},    {"other", NULL},
    };
    (void)state;
    for (size_t i = 0; i < MN_COUNT(list); i++) {
        world w;
        begin(&w, list[i][0], 2);
        const char *pre = mn_arch_pre_tokenizer(&w.model.meta);
        assert_true(pre ? list[i][1] && !strcmp(pre, list[i][1]) : !list[i][1]);
    }
    assert_null(mn_arch_pre_tokenizer(&(mn_meta){0}));
}

/* Layers that guess ahead are counted in block_count and left out; what all experts share has the
 * width that is said, or a width of an expert each. */
static void test_experts(void **state) {
    (void)state;
    for (int said = 0; said < 2; said++) {
        world w;
        begin(&w, "glm4moe", 5);
        put_int(&w, "glm4moe", "nextn_predict_layers", 1);
        put_int(&w, "glm4moe", "expert_feed_forward_length", 24);
        put_int(&w, "glm4moe", "expert_shared_count", 2);
        if (said)
            put_int(&w, "glm4moe", "expert_shared_feed_forward_length", 40);
        const mn_hparams *h = read_it(&w);
        assert_int_equal(h->n_layer, 4);
        for (int64_t l = 0; l < h->n_layer; l++)
            assert_int_equal(h->layer[l].n_ff_shared, said ? 40 : 48);
        mn_arena_free(&w.arena);
    }
}

/* Where layers slide, the full ones do not rotate; where none does, all rotate. */
static void test_full_layers_still(void **state) {
    (void)state;
    for (int64_t window = 0; window <= 8; window += 8) {
        world w;
        begin(&w, "exaone4", 8);
        put_int(&w, "exaone4", "attention.sliding_window", window);
        const mn_hparams *h = read_it(&w);
        for (int64_t l = 0; l < 8; l++)
            assert_int_equal(h->layer[l].rope < 0, window && l % 4 == 3);
        mn_arena_free(&w.arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_experts),          cmocka_unit_test(test_full_layers_still),
        cmocka_unit_test(test_pre_tokenizer),    cmocka_unit_test(test_attention_scale),
        cmocka_unit_test(test_layer_rules),      cmocka_unit_test(test_groups),
        cmocka_unit_test(test_unscaled_windows), cmocka_unit_test(test_softcaps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
