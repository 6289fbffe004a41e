/* Input: which file the bytes are (first byte), the others being sound. 0: config.json, 1: the index, else the weights. */
#include "fuzz_host.h"

static const char config[] =
    "{\"model_type\":\"llama\",\"num_attention_heads\":4,\"max_position_embeddings\":64,\"hidden_size\":8,"
    "\"num_hidden_layers\":2,\"intermediate_size\":16,\"vocab_size\":10,\"rms_norm_eps\":1e-5}";
static const char index_json[] = "{\"weight_map\":{\"t\":\"model.safetensors\"}}";
static const char weights[] = "\x38\0\0\0\0\0\0\0{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}   x";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    mn_file files[3] = {{{"config.json", 11}, config, sizeof config - 1},
                        {{"model.safetensors", 17}, weights, sizeof weights - 1},
                        {{"model.safetensors.index.json", 28}, index_json, sizeof index_json - 1}};
    uint32_t n_files = 2;
    if (!n) return 0;
    uint8_t which = data[0] & 3;
    mn_file *victim = which == 0 ? &files[0] : which == 1 ? &files[2] : &files[1];
    if (which == 1 || which == 2) n_files = 3;
    victim->map = data + 1;
    victim->bytes = n - 1;
    fuzz_model(files, n_files);
    return 0;
}
