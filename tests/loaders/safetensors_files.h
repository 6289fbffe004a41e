/* safetensors_files.h -- folders of the SafeTensors loader's tests, made in memory: a small weight
 * file and a config.json that the test writes. One loader per program, opened by load. */
#ifndef TEST_SAFETENSORS_FILES_H
#define TEST_SAFETENSORS_FILES_H
#include "host.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static test_plugin st; /* the loader, from load to unload */

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
static inline void add_weights(test_files *f, const char *name, const char *header, size_t n) {
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

static inline test_files folder(const char *config) {
    test_files f = {0};
    add_weights(&f, "model.safetensors", HEAD, 32);
    if (config)
        test_add_text(&f, "config.json", config);
    return f;
}

static inline void refuse_config(const char *config, mn_status status, const char *text,
                                 const char *text2) {
    test_files f = folder(config);
    test_refuse(st, &f, status, text, text2);
    test_clear(&f);
}

/* The base config with `rest` (members) instead of the head count. */
static inline void refuse_with(const char *rest, mn_status status, const char *text,
                               const char *text2) {
    char config[4096];
    snprintf(config, sizeof config, "{" LLAMA "%s," CONFIG_BASE "}", rest);
    refuse_config(config, status, text, text2);
}

static inline void refuse_header(const char *header, size_t n_data, mn_status status,
                                 const char *text, const char *text2) {
    test_files f = {0};
    add_weights(&f, "model.safetensors", header, n_data);
    test_add_text(&f, "config.json", CONFIG);
    test_refuse(st, &f, status, text, text2);
    test_clear(&f);
}

static inline mn_parsed *opened(const test_files *f) {
    mn_parsed *m = NULL;
    mn_error err;
    if (test_open(st, f, &m, &err))
        fail_msg("%s", err.msg);
    return m;
}

static inline mn_parsed *open_config(test_files *f, const char *config) {
    *f = folder(config);
    return opened(f);
}

static inline void shut(test_files *f, mn_parsed *m) {
    st.loader->close(m);
    test_clear(f);
}
static inline int64_t int_of(mn_parsed *m, const char *key) {
    return test_value(st, m, key, NULL).i;
}
static inline double float_of(mn_parsed *m, const char *key) {
    return test_value(st, m, key, NULL).f;
}
static inline bool str_is(mn_parsed *m, const char *key, const char *want) {
    return test_is(test_value(st, m, key, NULL).s, want);
}

/* Of cmocka's group: the loader is opened, and has freed all it held when it is shut down. */
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
#endif
