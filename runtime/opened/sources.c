/* sources.c -- where models come from, by a runtime: the loaders that read them, and the demo model
 * beside the library. */
#include "opened/opened.h"
#include "base/trust.h"
#include <string.h>

mn_status mn_loader_refs(const mn_runtime *rt, mn_loader_ref **out, uint32_t *n, mn_error *err) {
    size_t n_plugins = 0;
    const mn_plugin_record *r = mn_registry_plugins(rt->registry, &n_plugins);
    mn_loader_ref *refs = mn_calloc(n_plugins ? n_plugins : 1, sizeof *refs);
    uint32_t k = 0;
    if (!refs)
        return mn_fail_memory(err, n_plugins * sizeof *refs);
    for (size_t i = 0; i < n_plugins; i++)
        if (r[i].loader)
            refs[k++] = (mn_loader_ref){.loader = r[i].loader,
                                        .self = r[i].plugin->self,
                                        .id = r[i].id,
                                        .patterns = &r[i].patterns,
                                        .callee = r[i].callee,
                                        .memory = r[i].memory,
                                        .types = &r[i].types};
    *out = refs;
    *n = k;
    return MN_OK;
}

/* Where the demo model is installed: beside the library, as the prefix may have been moved. NULL =
 * out of memory. */
static char *installed_demo(const char *libdir) {
    char *lib = mn_strndup(libdir, strlen(libdir));
    for (const char *c = MN_LIBDIR "/"; lib && *c; c++) { /* up to the prefix */
        char *cut = *c == '/' ? strrchr(lib, '/') : NULL;
        if (cut)
            *cut = 0;
    }
    char *path = lib ? mn_path_join(lib, MN_DATADIR "/minerva/models/storyteller") : NULL;
    mn_free(lib);
    return path;
}

/* The demo model: the installed one, or in a build tree the one that models/meson.build links to:
 * the library has no path of the sources. A prefix is left by going up, so what is there must not
 * be another user's. */
mn_status mn_model_demo_path(char **out, mn_error *err) {
    char real[PATH_MAX];
    mn_trust trust;
    mn_trust_init(&trust);
    const bool built = mn_trust_build_root(&trust, real);
    if (built)
        *out = mn_path_join(real, "models/storyteller");
    else
        *out = *trust.dir ? installed_demo(trust.dir) : NULL;
    if (!*out)
        return mn_fail_memory(err, PATH_MAX);
    if (built || !mn_path_exists(*out))
        return MN_OK;
    mn_status st = mn_trust_path(&trust, *out, real, err);
    if (st) {
        mn_free(*out);
        *out = NULL;
        return mn_fail_in(err, st, "the demo model");
    }
    return MN_OK;
}
