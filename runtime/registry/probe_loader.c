/* probe_loader.c -- what minerva-probe shows to a loader. */
#include "registry/probe_main.h"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_FILES 2
/* of a list that a sample model gives; a loader whose lists have no end is broken */
#define MAX_ELEMENTS 4096u

typedef struct {
    const char *name; /* NULL = no more */
    const char *bytes;
    size_t n;
} sample_file;
typedef struct {
    const char *what;
    bool model; /* false: of no format, which no loader may claim */
    sample_file files[MAX_FILES];
} sample;

#define BYTES(literal) literal, sizeof literal - 1
#define U64(byte) byte "\0\0\0\0\0\0\0"
#define U32(byte) byte "\0\0\0"
/* up to 32 bytes of */
static const char gguf[] = "GGUF" U32("\3") U64("\1") U64("\1")     /* one tensor, one key */
    U64("\24") "general.architecture" U32("\10") U64("\5") "llama"  /* a string */
    U64("\1") "t" U32("\2") U64("\4") U64("\2") U32("\0") U64("\0") /* t: f32, [2, 4] */
    "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    "\0\0\0\0"
    "\0\0\0\0\0\0\0\0\0\0\0\0\0"; /* padding, then 32 of zeros */
static const char config[] =
    "{\"model_type\":\"llama\",\"num_attention_heads\":4,\"max_position_embeddings\":64,\"hidden_"
    "size\":8,"
    "\"num_hidden_layers\":2,\"intermediate_size\":16,\"vocab_size\":10,\"rms_norm_eps\":1e-5}";
static const char safetensors[] =
    U64("\70") "{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}  "
               "\0\0\0\0\0\0\0\0"; /* header, 8 bytes */
static const char noise[] = "\x93\x1f\x07\xe2\x5b\xc8\x00\xff\x6d\xaa\x31\x84\xfe\x12\x99\x40\x7a"
                            "\xd3\x0e\xb7\x68\x2c\xf5\x11"
                            "\x93\x1f\x07\xe2\x5b\xc8\x00\xff\x6d\xaa\x31\x84\xfe\x12\x99\x40\x7a"
                            "\xd3\x0e\xb7\x68\x2c\xf5\x11";

static const sample samples[] = {
    {"an empty file", false, {{"probe.bin", BYTES("")}}},
    {"a file of one byte", false, {{"probe.bin", BYTES("G")}}},
    {"a file of noise", false, {{"probe.bin", BYTES(noise)}}},
    {"a GGUF model", true, {{"probe.gguf", BYTES(gguf)}}},
    {"a SafeTensors model",
     true,
     {{"config.json", BYTES(config)}, {"model.safetensors", BYTES(safetensors)}}},
};

/* The bytes at the very end of readable memory, as a mapped file may have them: who reads one too
 * many is stopped. Kept until the process ends. */
static const void *place(const sample_file *f) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (f->n + page) / page * page;
    char *at = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    memcpy(at + room - f->n, f->bytes, f->n);
    mprotect(at, room, PROT_READ);
    mprotect(at + room, page, PROT_NONE);
    return at + room - f->n;
}

static bool inside(const mn_file *files, uint32_t n, const mn_plane *plane) {
    for (uint32_t i = 0; i < n; i++) {
        uintptr_t from = (uintptr_t)files[i].map, at = (uintptr_t)plane->ptr;
        if (at >= from && at - from <= files[i].bytes &&
            plane->bytes <= files[i].bytes - (at - from))
            return true;
    }
    return false;
}

static bool read_keys(const mn_loader *loader, mn_parsed *parsed, const char *what, mn_error *err) {
    for (uint32_t i = 0;; i++) {
        mn_str key, native;
        mn_value value = {.size = sizeof value};
        mn_status status = loader->meta_at(parsed, i, &key, &native, &value);
        if (status == MN_END)
            return true;
        if (status != MN_OK || i == MAX_ELEMENTS)
            return mn_fail(err, MN_BAD_FILE, "its loader cannot list the keys of %s", what), false;
    }
}

static bool read_tensors(const mn_loader *loader, mn_parsed *parsed, const mn_file *files,
                         uint32_t n, const char *what, mn_error *err) {
    for (uint32_t i = 0;; i++) {
        mn_tensor_info t = {.size = sizeof t};
        mn_status status = loader->tensor_at(parsed, i, &t);
        if (status == MN_END && i > 0)
            return true;
        if (status != MN_OK || i == MAX_ELEMENTS || !t.planes || !t.n_parts || !t.n_planes ||
            t.n_parts > MAX_ELEMENTS / t.n_planes)
            return mn_fail(err, MN_BAD_FILE, "its loader cannot list the tensors of %s", what),
                   false;
        for (uint32_t p = 0; p < t.n_parts * t.n_planes; p++)
            if (!inside(files, n,
                        (const mn_plane *)(const void *)((const char *)t.planes +
                                                         (size_t)p * t.plane_stride)))
                return mn_fail(err, MN_BAD_FILE,
                               "its loader describes a tensor of %s that lies outside the file",
                               what),
                       false;
    }
}

static bool open_model(const mn_plugin_record *rec, const mn_file *files, uint32_t n,
                       const char *what, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    mn_parsed *parsed = NULL;
    if (rec->loader->open(rec->plugin->self, files, n, sizeof *files, &parsed, &why) != MN_OK ||
        !parsed) {
        mn_fail_plain(&why);
        return mn_fail(err, MN_BAD_FILE, "its loader claims %s and cannot open it: %s", what,
                       why.msg),
               false;
    }
    bool done = read_keys(rec->loader, parsed, what, err) &&
                read_tensors(rec->loader, parsed, files, n, what, err);
    rec->loader->close(parsed);
    return done;
}

/* Kinds of patterns by which a host comes to show a file as a model. */
static const uint32_t names_model =
    1u << MN_PATTERN_MODEL | 1u << MN_PATTERN_SHARD | 1u << MN_PATTERN_FOLDER;

static bool show(const mn_plugin_record *rec, const sample *s, mn_error *err) {
    mn_file files[MAX_FILES] = {0};
    uint32_t n = 0;
    mn_guess guess = {.size = sizeof guess};
    for (; n < MAX_FILES && s->files[n].name; n++) {
        files[n] = (mn_file){mn_str_of(s->files[n].name), place(&s->files[n]), s->files[n].n, 0, 0};
        if (!files[n].map)
            return mn_fail_memory(err, s->files[n].n), false;
    }
    bool named = false;
    for (uint32_t i = 0; i < n; i++)
        named |= (mn_patterns_kinds(&rec->patterns, s->files[i].name) & names_model) != 0;
    probe_tell("phase", "showing %s to its loader", s->what);
    if (rec->loader->guess(rec->plugin->self, files, n, sizeof *files, &guess) != MN_OK ||
        !guess.confidence)
        return true;
    if (!s->model)
        return mn_fail(err, MN_BAD_FILE, "its loader claims %s", s->what), false;
    if (!named)
        return mn_fail(err, MN_BAD_FILE,
                       "its loader claims %s (%s), which none of its file patterns names", s->what,
                       s->files[n - 1].name),
               false;
    return open_model(rec, files, n, s->what, err);
}

bool probe_loader(const mn_plugin_record *rec, mn_error *err) {
    for (size_t i = 0; i < MN_COUNT(samples); i++)
        if (!show(rec, &samples[i], err))
            return false;
    return true;
}
