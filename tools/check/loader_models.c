/* loader_models.c -- small valid models in GGUF, SafeTensors and MLX, files that are models of
 * no format, and models read from disk for --model. A model_files owns the bytes of its files
 * until model_free; once memory runs out it is marked failed, and the functions that add to it
 * have no effect. */
#include "loader.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- growing files --------------------------------------------------------------------------- */
static model_file *loader_model_add(model_files *m, const char *name) {
    if (m->n == LOADER_FILES)
        return NULL;
    model_file *f = &m->file[m->n++];
    *f = (model_file){.n = 0};
    snprintf(f->name, sizeof f->name, "%s", name);
    return f;
}
static void loader_model_put(model_files *m, model_file *f, const void *src, uint64_t n) {
    uint8_t *p = NULL;
    if (!m->failed)
        p = realloc(f->bytes, f->n + n + 1);
    if (!p) {
        m->failed = true;
        return;
    }
    if (src)
        memcpy(p + f->n, src, n);
    else
        memset(p + f->n, 0, n);
    f->bytes = p;
    f->n += n;
}

/* n bytes, little-endian. */
static void put_int(model_files *m, model_file *f, uint64_t v, uint32_t n) {
    uint8_t b[8];
    for (uint32_t i = 0; i < n; i++)
        b[i] = (uint8_t)(v >> 8 * i);
    loader_model_put(m, f, b, n);
}

static void loader_model_put_text(model_files *m, model_file *f, const char *s) {
    loader_model_put(m, f, s, strlen(s));
}

/* ---- gguf: version 3 ------------------------------------------------------------------------- */
/* Ids of value types in the file. */
enum { G_U32 = 4, G_F32 = 6, G_BOOL = 7, G_STRING = 8, G_ARRAY = 9, G_U64 = 10 };

static void g_string(model_files *m, model_file *f, const char *s) {
    put_int(m, f, strlen(s), 8);
    loader_model_put_text(m, f, s);
}

static void g_key(model_files *m, model_file *f, const char *key, uint32_t type) {
    g_string(m, f, key);
    put_int(m, f, type, 4);
}

static void g_text(model_files *m, model_file *f, const char *key, const char *value) {
    g_key(m, f, key, G_STRING);
    g_string(m, f, value);
}

/* A number or a bool. */
static void g_int(model_files *m, model_file *f, const char *key, uint32_t type, uint64_t v) {
    uint32_t width = 4;
    if (type == G_U64)
        width = 8;
    if (type == G_BOOL)
        width = 1;
    g_key(m, f, key, type);
    put_int(m, f, v, width);
}

/* The head of an array of n values, which the caller writes. */
static void g_array(model_files *m, model_file *f, const char *key, uint32_t type, uint64_t n) {
    g_key(m, f, key, G_ARRAY);
    put_int(m, f, type, 4);
    put_int(m, f, n, 8);
}

/* rows 0: a vector. offset: from the start of the data. */
static void g_tensor(model_files *m, model_file *f, const char *name, uint64_t cols, uint64_t rows,
                     uint32_t type, uint64_t offset) {
    g_string(m, f, name);
    put_int(m, f, rows ? 2 : 1, 4);
    put_int(m, f, cols, 8);
    if (rows)
        put_int(m, f, rows, 8);
    put_int(m, f, type, 4);
    put_int(m, f, offset, 8);
}

static void make_gguf(model_files *m) {
    model_file *f = loader_model_add(m, "model.gguf");
    m->format = "gguf";
    f->named = true;
    loader_model_put_text(m, f, "GGUF");
    put_int(m, f, 3, 4);  // version
    put_int(m, f, 3, 8);  // tensors
    put_int(m, f, 10, 8); // keys
    g_text(m, f, "general.architecture", "llama");
    g_text(m, f, "general.name", "a model of nothing");
    g_int(m, f, "llama.block_count", G_U32, 1);
    g_int(m, f, "llama.context_length", G_U64, 512);
    g_int(m, f, "llama.embedding_length", G_U32, 64);
    g_int(m, f, "llama.attention.layer_norm_rms_epsilon", G_F32, 0x3727c5ac); /* 1e-5 */
    g_int(m, f, "tokenizer.ggml.add_bos_token", G_BOOL, 1);
    g_array(m, f, "tokenizer.ggml.tokens", G_STRING, 3);
    g_string(m, f, "<s>");
    g_string(m, f, "");
    g_string(m, f, "a");
    g_array(m, f, "tokenizer.ggml.scores", G_F32, 3);
    loader_model_put(m, f, NULL, 3 * 4);
    g_array(m, f, "tokenizer.ggml.token_type", G_U32, 3);
    put_int(m, f, 1, 8);
    put_int(m, f, 1, 4);
    g_tensor(m, f, "token_embd.weight", 64, 256, 0, 0);              /* F32 */
    g_tensor(m, f, "blk.0.attn_q.weight", 64, 64, 8, 65536);         /* Q8_0 */
    g_tensor(m, f, "output_norm.weight", 64, 0, 0, 65536 + 64 * 68); /* F32 */
    loader_model_put(m, f, NULL, (32 - f->n % 32) % 32);
    loader_model_put(m, f, NULL, 65536 + 64 * 68 + 256);
}

/* ---- safetensors and mlx --------------------------------------------------------------------- */
static const char config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"bos_token_id\": 1, \"eos_token_id\": [2, 3],\n"
    " \"head_dim\": 16, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": "
    "128,\n"
    " \"max_position_embeddings\": 512, \"model_type\": \"llama\", \"num_attention_heads\": 4,\n"
    " \"num_hidden_layers\": 1, \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-05,\n"
    " \"rope_theta\": 10000.0, \"tie_word_embeddings\": true, \"vocab_size\": 256";

/* config.json with `more` behind it, and a SafeTensors file of that header and `data` bytes. */
static void make_folder(model_files *m, const char *format, const char *more, const char *header,
                        uint64_t data) {
    model_file *f = loader_model_add(m, "config.json");
    m->format = format;
    loader_model_put_text(m, f, config);
    loader_model_put_text(m, f, more);
    f = loader_model_add(m, "model.safetensors");
    uint64_t n = strlen(header);
    uint64_t pad = (8 - n % 8) % 8;
    put_int(m, f, n + pad, 8);
    loader_model_put_text(m, f, header);
    loader_model_put(m, f, "        ", pad);
    loader_model_put(m, f, NULL, data);
}

static void make_safetensors(model_files *m) {
    make_folder(
        m, "safetensors", "}\n",
        "{\"__metadata__\": {\"format\": \"pt\"},"
        "\"model.embed_tokens.weight\": {\"dtype\": \"F32\", \"shape\": [256, 64], "
        "\"data_offsets\": [0, 65536]},"
        "\"model.layers.0.mlp.up_proj.weight\": {\"dtype\": \"BF16\", \"shape\": [128, 64], "
        "\"data_offsets\": [65536, 81920]},"
        "\"model.norm.weight\": {\"dtype\": \"F32\", \"shape\": [64], \"data_offsets\": [81920, "
        "82176]}}",
        82176);
}

static void make_mlx(model_files *m) {
    make_folder(m, "mlx", ", \"quantization\": {\"group_size\": 64, \"bits\": 4}}\n",
                "{\"__metadata__\": {\"format\": \"mlx\"},"
                "\"model.embed_tokens.weight\": {\"dtype\": \"F16\", \"shape\": [256, 64], "
                "\"data_offsets\": [0, 32768]},"
                "\"model.layers.0.mlp.up_proj.weight\": {\"dtype\": \"U32\", \"shape\": [128, 8], "
                "\"data_offsets\": [32768, 36864]},"
                "\"model.layers.0.mlp.up_proj.scales\": {\"dtype\": \"F16\", \"shape\": [128, 1], "
                "\"data_offsets\": [36864, 37120]},"
                "\"model.layers.0.mlp.up_proj.biases\": {\"dtype\": \"F16\", \"shape\": [128, 1], "
                "\"data_offsets\": [37120, 37376]},"
                "\"model.norm.weight\": {\"dtype\": \"F16\", \"shape\": [64], \"data_offsets\": "
                "[37376, 37504]}}",
                37504);
}

void model_make(model_files *m, uint32_t which) {
    memset(m, 0, sizeof *m);
    if (which == 0)
        make_gguf(m);
    else if (which == 1)
        make_safetensors(m);
    else
        make_mlx(m);
}

void model_make_garbage(model_files *m, uint32_t which) {
    static const char *const names[] = {"no file", "an empty file", "zeros", "noise", "prose"};
    memset(m, 0, sizeof *m);
    m->format = names[which];
    model_file *f = NULL;
    if (which)
        f = loader_model_add(m, "thing.bin");
    uint64_t seed = 5;
    if (which == 2)
        loader_model_put(m, f, NULL, 5000);
    for (int i = 0; which == 3 && i < 600; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        put_int(m, f, seed >> 8, 7);
    }
    for (int i = 0; which == 4 && i < 40; i++)
        loader_model_put_text(m, f, "Once upon a time there was a {\"thing\": [1, 2, 3]}.\n");
}

void model_free(model_files *m) {
    for (uint32_t i = 0; i < m->n; i++)
        free(m->file[i].bytes);
    memset(m, 0, sizeof *m);
}

/* ---- from disk ------------------------------------------------------------------------------- */
/* A regular file of n bytes into f. false = it cannot be read. */
static bool loader_model_read_bytes(model_files *m, model_file *f, const char *path, uint64_t n) {
    FILE *in = fopen(path, "rb");
    if (!in)
        return false;
    loader_model_put(m, f, NULL, n);
    const bool good = !m->failed && fread(f->bytes, 1, n, in) == n;
    fclose(in);
    return good;
}

/* *left: bytes that the model may still have. NULL, or what is wrong. */
static const char *loader_model_read_file(model_files *m, const char *path, const char *name,
                                          uint64_t *left) {
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode))
        return "cannot be read";
    const uint64_t n = (uint64_t)st.st_size;
    if (n > *left)
        return "found more than 64 MiB, expected a small model of the format";
    model_file *f = loader_model_add(m, name);
    if (!f)
        return "found more than 64 files, expected a small model of the format";
    *left -= n;
    if (loader_model_read_bytes(m, f, path, n))
        return NULL;
    return "cannot be read";
}

static int by_name(const void *a, const void *b) {
    const model_file *x = a;
    const model_file *y = b;
    return strcmp(x->name, y->name);
}

void model_sort(model_files *m) {
    qsort(m->file, m->n, sizeof *m->file, by_name);
}

/* One entry of the folder, if it is a regular file that belongs to the model. */
static const char *read_entry(model_files *m, const char *folder, const char *name, bool is_named,
                              uint64_t *left) {
    char path[4096];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (stat(path, &st) || !S_ISREG(st.st_mode))
        return NULL;
    const char *wrong = loader_model_read_file(m, path, name, left);
    if (!wrong)
        m->file[m->n - 1].named = is_named;
    return wrong;
}

/* named: base name of the file in it; NULL: the folder is meant. */
static const char *read_folder(model_files *m, const char *path, const char *named,
                               const loader_patterns *patterns) {
    uint64_t left = UINT64_C(64) << 20;
    const char *wrong = NULL;
    DIR *d = opendir(path);
    if (!d)
        return "cannot be read";
    for (struct dirent *e = readdir(d); e && !wrong; e = readdir(d)) {
        const char *name = e->d_name;
        const bool is_named = named && !strcmp(named, name);
        if (!is_named && (name[0] == '.' || !patterns_take(patterns, named, name)))
            continue;
        wrong = read_entry(m, path, name, is_named, &left);
    }
    closedir(d);
    model_sort(m);
    if (!wrong && !m->n)
        return "found a folder without a file that a pattern matches";
    return wrong;
}

const char *model_read(model_files *m, const char *path, const loader_patterns *patterns) {
    char folder[4096];
    const char *slash = strrchr(path, '/');
    struct stat st;
    memset(m, 0, sizeof *m);
    m->format = "--model";
    if (stat(path, &st))
        return "no such file or folder";
    if (S_ISDIR(st.st_mode))
        return read_folder(m, path, NULL, patterns);
    if (!slash)
        return read_folder(m, ".", path, patterns);
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    return read_folder(m, slash == path ? "/" : folder, slash + 1, patterns);
}
