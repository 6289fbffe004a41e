/* fuzz_host.h -- the host of the fuzz targets: opens a model, reads all that it hands out, aborts if a plane leaves its file. */
#ifndef FUZZ_HOST_H
#define FUZZ_HOST_H
#include <minerva/plugin.h>
#include <stdlib.h>
#include <string.h>

static void *fuzz_alloc(void *self, uint64_t n, uint64_t align) {
    (void)self;
    (void)align;
    return n > (uint64_t)1 << 28 ? NULL : malloc(n ? (size_t)n : 1);
}
static void fuzz_release(void *self, void *p) {
    (void)self;
    free(p);
}

static void fuzz_value(const mn_value *v) {
    volatile uint64_t sum = 0;
    for (uint64_t i = 0; v->type == MN_VALUE_STR && i < v->s.len; i++) sum += (uint64_t)v->s.ptr[i];
    for (uint64_t i = 0; v->type == (MN_VALUE_ARRAY | MN_VALUE_STR) && i < v->n; i++) {
        const mn_str *s = (const mn_str *)v->array + i;
        if (s->len) sum += (uint64_t)s->ptr[0] + (uint64_t)s->ptr[s->len - 1];
    }
    if (v->n && (v->type == (MN_VALUE_ARRAY | MN_VALUE_INT) || v->type == (MN_VALUE_ARRAY | MN_VALUE_FLOAT)))
        sum += ((const uint64_t *)v->array)[v->n - 1];
}

static int fuzz_inside(const mn_file *files, uint32_t n, const mn_plane *p) {
    for (uint32_t i = 0; i < n; i++) {
        uintptr_t lo = (uintptr_t)files[i].map, at = (uintptr_t)p->ptr;
        if (at >= lo && at - lo <= files[i].bytes && p->bytes <= files[i].bytes - (at - lo)) return 1;
    }
    return 0;
}

static void fuzz_model(const mn_file *files, uint32_t n) {
    static mn_host host = {.size = sizeof host,
                           .abi = MN_ABI_VERSION,
                           .abi_min = MN_ABI_VERSION,
                           .alloc = fuzz_alloc,
                           .release = fuzz_release};
    mn_error err = {.size = sizeof err};
    mn_guess guess = {.size = sizeof guess};
    mn_parsed *m = NULL;
    mn_str key, native;
    const mn_plugin *plugin = minerva_plugin_entry(&host, &err);
    const mn_loader *loader = plugin->query(plugin->self, MN_LOADER_ID);
    loader->guess(plugin->self, files, n, sizeof *files, &guess);
    if (loader->open(plugin->self, files, n, sizeof *files, &m, &err) == MN_OK) {
        mn_value v = {.size = sizeof v};
        for (uint32_t i = 0; loader->meta_at(m, i, &key, &native, &v) == MN_OK; i++) fuzz_value(&v);
        mn_tensor_info t = {.size = sizeof t};
        for (uint32_t i = 0; loader->tensor_at(m, i, &t) == MN_OK; i++)
            if (!fuzz_inside(files, n, t.planes)) abort();
        loader->close(m);
    } else if (!err.msg[0])
        abort();
    plugin->shutdown(plugin->self);
}
#endif
