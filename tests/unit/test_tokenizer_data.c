/* test_tokenizer_data.c -- see the header. Trusts its files. */
#include "test_tokenizer_data.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_under(const char *root, const char *path, uint64_t *bytes) {
    char full[8192], *data = NULL;
    snprintf(full, sizeof full, "%s/%s", root, path);
    return mn_path_exists(full) && mn_read_file(full, 1u << 30, &data, bytes, NULL) == MN_OK ? data
                                                                                             : NULL;
}

static const char *source_root(void) {
    const char *root = getenv("MINERVA_SOURCE_ROOT");
    return root ? root : "../..";
}

char *data_read(const char *path, uint64_t *bytes) {
    return read_under(source_root(), path, bytes);
}

char *data_shared_path(const char *path) {
    const char *root = getenv("MINERVA_SHARED");
    char *full = NULL;
    int n = root ? asprintf(&full, "%s/%s", root, path)
                 : asprintf(&full, "%s/../shared/%s", source_root(), path);
    return n < 0 ? NULL : full;
}

char *data_shared(const char *path, uint64_t *bytes) {
    char *full = data_shared_path(path), *data = NULL;
    if (full && mn_path_exists(full) && mn_read_file(full, 1u << 30, &data, bytes, NULL))
        data = NULL;
    free(full);
    return data;
}

static uint64_t take(const char **p, size_t n) {
    uint64_t v = 0;
    memcpy(&v, *p, n);
    *p += n;
    return v;
}

static mn_str take_str(const char **p) {
    uint64_t n = take(p, 8);
    mn_str s = {*p, n};
    *p += n;
    return s;
}

static const uint8_t size_of[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static int64_t take_int(const char **p, uint32_t type) {
    uint64_t v = take(p, size_of[type]);
    return type == 5 ? (int32_t)v : (int64_t)v;
}

static double take_float(const char **p, uint32_t type) {
    float f;
    double d;
    memcpy(&f, *p, 4);
    memcpy(&d, *p, type == 12 ? 8 : 4);
    *p += size_of[type];
    return type == 12 ? d : (double)f;
}

static void take_array(data_gguf *g, const char **p, mn_value *v) {
    uint32_t type = (uint32_t)take(p, 4);
    v->n = take(p, 8);
    bool str = type == 8, flt = type == 6 || type == 12;
    v->type = MN_VALUE_ARRAY | (flt ? MN_VALUE_FLOAT : MN_VALUE_INT);
    if (str)
        v->type = MN_VALUE_ARRAY | MN_VALUE_STR;
    char *out = mn_arena_alloc(&g->arena, v->n, str ? sizeof(mn_str) : 8);
    for (uint64_t i = 0; i < v->n; i++) {
        if (str)
            ((mn_str *)(void *)out)[i] = take_str(p);
        else if (flt)
            ((double *)(void *)out)[i] = take_float(p, type);
        else
            ((int64_t *)(void *)out)[i] = take_int(p, type);
    }
    v->array = out;
}

bool data_gguf_open(data_gguf *g, const char *path) {
    memset(g, 0, sizeof *g);
    uint64_t bytes;
    if (!(g->bytes = data_shared(path, &bytes)))
        return false;
    const char *p = g->bytes + 16;
    g->meta.n = take(&p, 8);
    g->meta.entries = mn_calloc(g->meta.n, sizeof *g->meta.entries);
    for (size_t i = 0; i < g->meta.n; i++) {
        mn_meta_entry *e = &g->meta.entries[i];
        e->key = e->native = take_str(&p);
        e->value.size = sizeof e->value;
        uint32_t type = (uint32_t)take(&p, 4);
        if (type == 8)
            e->value.type = MN_VALUE_STR, e->value.s = take_str(&p);
        else if (type == 9)
            take_array(g, &p, &e->value);
        else if (type == 6 || type == 12)
            e->value.type = MN_VALUE_FLOAT, e->value.f = take_float(&p, type);
        else
            e->value.type = type == 7 ? MN_VALUE_BOOL : MN_VALUE_INT,
            e->value.i = take_int(&p, type);
    }
    return true;
}

void data_gguf_close(data_gguf *g) {
    mn_free(g->meta.entries);
    mn_arena_free(&g->arena);
    mn_free(g->bytes);
}
