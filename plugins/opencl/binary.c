/* binary.c -- compiled programs between processes, in the host's cache ("mn.cache/1"). An entry is
 * one program: its name says device, source, variant and options, its stamp what it was made
 * from, so that another driver or another version of the plugin replaces it. A driver that does not
 * take its own binary back costs the time of a compilation. Holds nothing. */
#include "ground.h"
#include "types.h"

enum { MOST_KEY = 1024 };
typedef struct {
    char name[MOST_KEY];
    char stamp[MOST_KEY];
} key;

/* It tells versions of our own texts apart. */
static uint64_t digest(const char *const *texts, uint32_t n) {
    uint64_t h = MN_FNV_BASIS;
    for (uint32_t i = 0; i < n; i++)
        h = mn_fnv_z(h, texts[i]);
    return h;
}

static key key_of(const mn_device *d, const ocl_source *s) {
    key k;
    snprintf(k.name, sizeof k.name, "%s|%s|%x|%s", d->base.uid, s->name, s->variant, s->options);
    snprintf(k.stamp, sizeof k.stamp, "%s|%s|%016llx", d->base.name, d->base.driver,
             (unsigned long long)digest(s->texts, s->n_texts));
    return k;
}

/* NULL: the host has none, or the option `cache` is 0. */
static const mn_cache *cache_of(const mn_device *d) {
    const mn_host *h = d->base.host;
    if (!d->keeps_binaries || !MN_HAS(mn_host, h, query))
        return NULL;
    const mn_cache *c = h->query(h->self, MN_CACHE_ID);
    if (c && MN_HAS(mn_cache, c, read) && MN_HAS(mn_cache, c, write) && MN_HAS(mn_cache, c, most))
        return c;
    return NULL;
}

cl_program ocl_binary_find(const mn_device *d, const ocl_source *s) {
    const mn_host *h = d->base.host;
    const mn_cache *cache = cache_of(d);
    void *data;
    uint64_t bytes;
    cl_int code;
    if (!cache)
        return NULL;
    const key k = key_of(d, s);
    if (cache->read(h->self, mnp_str(k.name), mnp_str(k.stamp), &data, &bytes))
        return NULL;
    const size_t size = (size_t)bytes;
    const unsigned char *binary = data;
    cl_program program =
        d->cl->CreateProgramWithBinary(d->context, 1, &d->id, &size, &binary, NULL, &code);
    h->release(h->self, data);
    if (!program)
        return NULL;
    if (d->cl->BuildProgram(program, 1, &d->id, s->options, NULL, NULL) == CL_SUCCESS)
        return program;
    d->cl->ReleaseProgram(program);
    mng_log(d->base.host, MN_LOG_INFO, "%s: the driver refuses its own binary of %s.cl",
            d->base.name, s->name);
    return NULL;
}

void ocl_binary_keep(const mn_device *d, const ocl_source *s, cl_program program) {
    const mn_host *h = d->base.host;
    const mn_cache *cache = cache_of(d);
    size_t size = 0;
    if (!cache)
        return;
    if (d->cl->GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL) ||
        !size || size > cache->most)
        return;
    unsigned char *binary = mng_new(d, size);
    if (!binary)
        return;
    const cl_int code =
        d->cl->GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL);
    const key k = key_of(d, s);
    if (code == CL_SUCCESS)
        cache->write(h->self, mnp_str(k.name), mnp_str(k.stamp), binary, size);
    mng_delete(d, binary);
}
