/* plugin.c -- the plugin object of a loader and its table. One object per host: two hosts in one
 * process are two selves. */
#include "common.h"
#include <stdio.h>
#include <string.h>

typedef struct {
    mn_plugin plugin;
    const mn_host *host;
    const mn_loader_kind *kind;
} loader_self;

/* The host's mn_file may be older or newer than ours: it has the fields up to `flags`, or it is
 * refused. */
static bool files_are_given(const mn_file *files, uint32_t n, uint32_t stride) {
    return (files || !n) && stride >= MN_UP_TO(mn_file, flags);
}

/* The loader's own guess sees arguments that were checked and an answer that says no. */
static mn_status table_guess(void *self, const mn_file *files, uint32_t n, uint32_t stride,
                             mn_guess *out) {
    const loader_self *s = self;
    mn_guess g = {.size = sizeof g};
    if (!files_are_given(files, n, stride))
        return MN_INVALID;
    snprintf(g.format, sizeof g.format, "%s", s->kind->id);
    snprintf(g.why, sizeof g.why, "%s", s->kind->why_not);
    const mn_status status = s->kind->guess(s->host, files, n, stride, &g);
    if (status)
        return status;
    return mnl_out(out, &g);
}

/* *out is NULL unless a model was read. */
static mn_status table_open(void *self, const mn_file *files, uint32_t n, uint32_t stride,
                            mn_parsed **out, mn_error *err) {
    const loader_self *s = self;
    if (!files_are_given(files, n, stride) || !out)
        return mnl_fail(err, MN_INVALID,
                        "%s: open needs files, their stride and a place for the model",
                        s->kind->id);
    *out = NULL;
    return s->kind->open(s->host, files, n, stride, out, err);
}

static mn_status table_patterns(void *self, uint32_t i, mn_file_pattern *out) {
    const mn_loader_kind *kind = ((const loader_self *)self)->kind;
    if (i < kind->n_patterns)
        return mnl_out(out, &kind->patterns[i]);
    return MN_END;
}

static const mn_loader table = {.size = sizeof table,
                                .guess = table_guess,
                                .open = table_open,
                                .meta_at = mn_parsed_meta_at,
                                .tensor_at = mn_parsed_tensor_at,
                                .close = mn_parsed_free,
                                .patterns = table_patterns};

/* The one interface that these plugins offer. */
static const void *self_query(void *self, const char *interface_id) {
    (void)self;
    if (interface_id && !strcmp(interface_id, MN_LOADER_ID))
        return &table;
    return NULL;
}

static void self_shutdown(void *self) {
    const mn_host *host = ((loader_self *)self)->host;
    host->release(host->self, self);
}

/* Below 1.0 a host of another minor is refused here; nothing but abi is read of it. */
const mn_plugin *mn_loader_plugin(const mn_host *host, const mn_loader_kind *kind, mn_error *err) {
    const char *id = kind->id;
    if (!host)
        return mnl_fail(err, MN_INVALID, "%s: no host", id), NULL;
    /* Of another major, the first 16 bytes are all that may be read. */
    if (host->abi < MN_ABI_OLDEST || host->abi_min > MN_ABI_VERSION) {
        mnl_fail(err, MN_UNSUPPORTED, "%s: the host's ABI is %u.%u, expected %u.%u", id,
                 host->abi >> 16, host->abi & 0xFFFF, MN_ABI_OLDEST >> 16, MN_ABI_OLDEST & 0xFFFF);
        return NULL;
    }
    if (!MN_HAS(mn_host, host, alloc) || !MN_HAS(mn_host, host, release)) {
        mnl_fail(err, MN_INVALID, "%s: the host offers no alloc and release", id);
        return NULL;
    }
    loader_self *s = host->alloc(host->self, sizeof *s, 16);
    if (!s)
        return mnl_fail_memory(err), NULL;
    *s = (loader_self){{.size = sizeof s->plugin,
                        .abi = MN_ABI_VERSION,
                        .self = s,
                        .id = mn_str_of(id),
                        .vendor = mn_str_of("Minerva"),
                        .version = mn_str_of(MN_PLUGIN_VERSION),
                        .flags = MN_PLUGIN_UNLOADABLE,
                        .query = self_query,
                        .shutdown = self_shutdown},
                       host,
                       kind};
    return &s->plugin;
}
