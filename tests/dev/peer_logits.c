/* peer_logits.c -- the logits of llama.cpp, for peer_files.py, which compiles this against its
 * header and library: peer_logits MODEL.gguf IDS OUT. IDS: numbers with commas, at most 512; OUT:
 * f32 [ids, vocabulary]. Caches in f32, no fused attention: as exact as it can. */
#include "llama.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_IDS = 512 };

static void log_errors(enum ggml_log_level level, const char *text, void *arg) {
    (void)arg;
    if (level >= GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

static struct llama_context *context_of(struct llama_model *model) {
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = p.n_batch = p.n_ubatch = MAX_IDS;
    p.n_threads = p.n_threads_batch = 1;
    p.type_k = p.type_v = GGML_TYPE_F32;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    return llama_init_from_model(model, p);
}

static struct llama_batch batch_of(char *ids) {
    struct llama_batch b = llama_batch_init(MAX_IDS, 0, 1);
    for (char *id = strtok(ids, ","); id && b.n_tokens < MAX_IDS; id = strtok(NULL, ",")) {
        const int i = b.n_tokens++;
        b.token[i] = atoi(id);
        b.pos[i] = i;
        b.n_seq_id[i] = 1;
        b.seq_id[i][0] = 0;
        b.logits[i] = 1;
    }
    return b;
}

static int fail(const char *what) {
    fprintf(stderr, "%s failed\n", what);
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return fail("the command line: MODEL IDS OUT");
    llama_log_set(log_errors, NULL);
    llama_backend_init();
    struct llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    struct llama_context *context = model ? context_of(model) : NULL;
    if (!context)
        return fail("loading");
    const struct llama_batch batch = batch_of(argv[2]);
    if (llama_decode(context, batch))
        return fail("decoding");
    const size_t n_vocab = (size_t)llama_vocab_n_tokens(llama_model_get_vocab(model));
    FILE *out = fopen(argv[3], "wb");
    for (int i = 0; out && i < batch.n_tokens; i++)
        fwrite(llama_get_logits_ith(context, i), sizeof(float), n_vocab, out);
    return out && !fclose(out) ? 0 : fail("writing");
}
