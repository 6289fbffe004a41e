/* test_shared.c -- sessions of one model on one device share their weights: the linker puts
 * __wrap_mn_weights_import between segments and their imports, which it counts. */
#include "engine/weights.h"
#include "serving.h"
#include <pthread.h>

enum { N_DRAWN = 24, MAX_DIM = 4096 };

static int n_imports;

mn_status __real_mn_weights_import(const mn_import *in, mn_weights **out, uint32_t *kept_how,
                                   mn_error *err);
mn_status __wrap_mn_weights_import(const mn_import *in, mn_weights **out, uint32_t *kept_how,
                                   mn_error *err);
mn_status __wrap_mn_weights_import(const mn_import *in, mn_weights **out, uint32_t *kept_how,
                                   mn_error *err) {
    n_imports++;
    return __real_mn_weights_import(in, out, kept_how, err);
}

/* ---- what sessions do ------------------------------------------------------------------------ */
static uint64_t weight_bytes(const mn_session *s) {
    mn_session_info info = {.size = sizeof info};
    assert_int_equal(mn_session_get_info(s, &info), MN_OK);
    return info.weight_bytes;
}

static mn_session *open_embedding(void) {
    return open_with((mn_session_params){.flags = MN_SESSION_EMBED, .n_ctx = 256});
}

static mn_session *open_drawing(void) {
    return open_with((mn_session_params){.n_ctx = 256, .n_seq = 2});
}

static void embed(mn_session *s, float *out) {
    mn_error err = MN_ERROR;
    int32_t ids[40];
    const mn_embed_text text = {.ids = ids, .n = words(3, 40, ids)};
    if (mn_session_embed(s, &text, 1, NULL, out, MAX_DIM, &err))
        fail_msg("%s", err.msg);
}

static void draw(mn_session *s, served *out) {
    const mn_sample_params some = {.size = sizeof some, .max_new = N_DRAWN};
    int32_t ids[40];
    submit(s, (mn_request_params){.ids = ids, .n_ids = words(5, 40, ids), .sample = &some}, out);
    finish_all(s, out, 1);
}

/* What each tells in a world of its own. */
static served drawn_alone;
static float embedded_alone[MAX_DIM];

static int alone(void **state) {
    (void)state;
    mn_session *s = open_drawing();
    draw(s, &drawn_alone);
    mn_session_free(s);
    s = open_embedding();
    embed(s, embedded_alone);
    mn_session_free(s);
    assert_int_equal(n_imports, 2);
    return 0;
}

static void check_drawn(mn_session *s) {
    static served got;
    draw(s, &got);
    same_ids(&got, &drawn_alone);
}

static void check_embedded(mn_session *s) {
    float got[MAX_DIM] = {0};
    embed(s, got);
    assert_memory_equal(got, embedded_alone, sizeof got);
}

/* ---- tests ----------------------------------------------------------------------------------- */
static void test_imported_once(void **state) {
    (void)state;
    n_imports = 0;
    mn_session *draws = open_drawing();
    mn_session *embeds = open_embedding();
    assert_int_equal(n_imports, 1);
    assert_int_equal(weight_bytes(embeds), 0);
    check_embedded(embeds);
    check_drawn(draws);
    mn_session_free(embeds);
    check_drawn(draws);
    mn_session_free(draws);
}

/* The set lives as long as its last user, and no longer. */
static void test_outlives_first(void **state) {
    (void)state;
    n_imports = 0;
    mn_session *draws = open_drawing();
    mn_session *embeds = open_embedding();
    mn_session_free(draws);
    check_embedded(embeds);
    draws = open_drawing();
    assert_int_equal(n_imports, 1);
    mn_session_free(embeds);
    check_drawn(draws);
    mn_session_free(draws);
    mn_session_free(open_drawing());
    assert_int_equal(n_imports, 2);
}

/* Another class packs weights in another way. */
static void test_class_apart(void **state) {
    (void)state;
    mn_error err = MN_ERROR;
    mn_session *s = NULL;
    const mn_session_params p = {.size = sizeof p,
                                 .device = device,
                                 .flags = MN_SESSION_EMBED,
                                 .precision = MN_PRECISION_A8,
                                 .n_ctx = 256};
    mn_session *draws = open_drawing();
    n_imports = 0;
    if (mn_session_create(model, &p, &s, &err))
        fail_msg("%s", err.msg);
    mn_session_info info = {.size = sizeof info};
    mn_session_get_info(s, &info);
    assert_int_equal(n_imports, info.precision != MN_PRECISION_EXACT);
    mn_session_free(s);
    mn_session_free(draws);
}

static void *embed_often(void *arg) {
    for (uint32_t i = 0; i < 8; i++)
        check_embedded(arg);
    return NULL;
}

/* Programs read a sealed set on any threads at once. */
static void test_at_once(void **state) {
    (void)state;
    pthread_t thread;
    mn_session *draws = open_drawing();
    mn_session *embeds = open_embedding();
    assert_int_equal(pthread_create(&thread, NULL, embed_often, embeds), 0);
    for (uint32_t i = 0; i < 3; i++)
        check_drawn(draws);
    assert_int_equal(pthread_join(thread, NULL), 0);
    mn_session_free(draws);
    mn_session_free(embeds);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_imported_once), cmocka_unit_test(test_outlives_first),
        cmocka_unit_test(test_class_apart), cmocka_unit_test(test_at_once)};
    if (open_model(argc, argv))
        return 1;
    return close_model(cmocka_run_group_tests_name("shared", tests, alone, NULL));
}
