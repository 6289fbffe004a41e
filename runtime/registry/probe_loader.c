/* probe_loader.c -- what minerva-probe shows to a loader: files of no format, which it must not
 * claim, and the smallest models of each common one, whose lists it must be able to end. They lie
 * in this program; what is wrong is a sentence for the record. */
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
 * many is stopped. Kept until the process ends. NULL = out of memory. */
static const void *probe_loader_place(const sample_file *f) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t room = (f->n + page) / page * page;
    char *at = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    memcpy(at + room - f->n, f->bytes, f->n);
    mprotect(at, room, PROT_READ);
    mprotect(at + room, page, PROT_NONE);
    return at + room - f->n;
}

/* A sample as the host shows it. */
typedef struct {
    const sample *s;
    mn_file files[MAX_FILES];
    uint32_t n;
    bool named; /* a pattern of the loader's by which a host comes to show a file as a model */
} shown;

/* Whether one of the files holds all of the plane. */
static bool probe_loader_holds(const shown *m, const mn_plane *plane) {
    for (uint32_t i = 0; i < m->n; i++) {
        const mn_file *f = &m->files[i];
        const uintptr_t from = (uintptr_t)f->map;
        const uintptr_t at = (uintptr_t)plane->ptr;
        const bool begins_inside = at >= from && at - from <= f->bytes;
        if (begins_inside && plane->bytes <= f->bytes - (at - from))
            return true;
    }
    return false;
}

/* The error of a loader on a good file: lack of memory is no fault of its. */
static mn_status not_listed(mn_status st, const char *what, const shown *m, mn_error *err) {
    return mn_fail(err, st == MN_OUT_OF_MEMORY ? st : MN_BAD_FILE,
                   "its loader cannot list the %s of %s", what, m->s->what);
}

static mn_status probe_loader_read_keys(const mn_loader *loader, mn_parsed *parsed, const shown *m,
                                        mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i <= MAX_ELEMENTS; i++) {
        mn_str key, native;
        mn_value value = {.size = sizeof value};
        st = loader->meta_at(parsed, i, &key, &native, &value);
        if (st == MN_END)
            return MN_OK;
        if (st)
            break;
    }
    return not_listed(st, "keys", m, err);
}

/* Planes that are there, and not more than a tensor can have. */
static bool probe_loader_is_whole(const mn_tensor_info *t) {
    return t->planes && t->n_parts && t->n_planes && t->n_parts <= MAX_ELEMENTS / t->n_planes;
}

static mn_status check_planes(const mn_tensor_info *t, const shown *m, mn_error *err) {
    const char *at = (const char *)t->planes;
    for (uint32_t p = 0; p < t->n_parts * t->n_planes; p++) {
        const mn_plane *plane = (const mn_plane *)(const void *)(at + (size_t)p * t->plane_stride);
        if (!probe_loader_holds(m, plane))
            return mn_fail(err, MN_BAD_FILE,
                           "its loader describes a tensor of %s that lies outside the file",
                           m->s->what);
    }
    return MN_OK;
}

static mn_status probe_loader_read_tensors(const mn_loader *loader, mn_parsed *parsed,
                                           const shown *m, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i <= MAX_ELEMENTS; i++) {
        mn_tensor_info t = {.size = sizeof t};
        st = loader->tensor_at(parsed, i, &t);
        if (st == MN_END && i > 0)
            return MN_OK;
        if (st || !probe_loader_is_whole(&t))
            break;
        st = check_planes(&t, m, err);
        if (st)
            return st;
    }
    return not_listed(st, "tensors", m, err);
}

static mn_status probe_loader_open_model(const mn_plugin_record *rec, const shown *m,
                                         mn_error *err) {
    const mn_loader *loader = rec->loader;
    mn_error why = MN_ERROR_INIT;
    mn_parsed *parsed = NULL;
    mn_status st = loader->open(rec->plugin->self, m->files, m->n, sizeof *m->files, &parsed, &why);
    if (st || !parsed) {
        mn_fail_plain(&why);
        return mn_fail(err, st == MN_OUT_OF_MEMORY ? st : MN_BAD_FILE,
                       "its loader claims %s and cannot open it: %s", m->s->what, why.msg);
    }
    st = probe_loader_read_keys(loader, parsed, m, err);
    if (!st)
        st = probe_loader_read_tensors(loader, parsed, m, err);
    loader->close(parsed);
    return st;
}

static mn_status probe_loader_lay_out(const mn_plugin_record *rec, const sample *s, shown *out,
                                      mn_error *err) {
    static const uint32_t names_model =
        1u << MN_PATTERN_MODEL | 1u << MN_PATTERN_SHARD | 1u << MN_PATTERN_FOLDER;
    *out = (shown){.s = s};
    for (uint32_t i = 0; i < MAX_FILES && s->files[i].name; i++) {
        const sample_file *f = &s->files[i];
        const void *map = probe_loader_place(f);
        if (!map)
            return mn_fail_memory(err, f->n);
        out->files[out->n++] = (mn_file){mn_str_of(f->name), map, f->n, 0, 0};
        out->named |= (mn_patterns_kinds(&rec->patterns, f->name) & names_model) != 0;
    }
    return MN_OK;
}

static mn_status probe_loader_show(const mn_plugin_record *rec, const sample *s, mn_error *err) {
    shown m;
    mn_guess guess = {.size = sizeof guess};
    mn_status st = probe_loader_lay_out(rec, s, &m, err);
    if (st)
        return st;
    probe_tell("phase", "showing %s to its loader", s->what);
    st = rec->loader->guess(rec->plugin->self, m.files, m.n, sizeof *m.files, &guess);
    if (st || !guess.confidence)
        return MN_OK;
    if (!s->model)
        return mn_fail(err, MN_BAD_FILE, "its loader claims %s", s->what);
    if (!m.named)
        return mn_fail(err, MN_BAD_FILE,
                       "its loader claims %s (%s), which none of its file patterns names", s->what,
                       s->files[m.n - 1].name);
    return probe_loader_open_model(rec, &m, err);
}

mn_status probe_loader(const mn_plugin_record *rec, mn_error *err) {
    mn_status st = MN_OK;
    for (size_t i = 0; i < MN_COUNT(samples) && !st; i++)
        st = probe_loader_show(rec, &samples[i], err);
    return st;
}
