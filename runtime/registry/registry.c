/* registry.c -- the registry's life and its lists. It owns the records of plugins and devices and
 * the watch of calls into them; the order in which it frees them is that in which plugins must
 * end. */
#include "registry/internal.h"
#include <string.h>

/* Between two attempts to open a lost device again. */
#define FIRST_DELAY_NS UINT64_C(1000000000)
#define MOST_DELAY_NS (300 * FIRST_DELAY_NS)

mn_status mn_registry_create(const mn_config *cfg, mn_pool *pool, const mn_containment *how,
                             mn_registry **out, mn_error *err) {
    mn_registry *reg = mn_calloc(1, sizeof *reg);
    if (!reg)
        return mn_fail_memory(err, sizeof *reg);
    reg->services.cfg = cfg;
    reg->services.pool = pool;
    if (how) {
        reg->services.watch = mn_watch_create(&how->watch);
        reg->services.journal = how->journal;
        reg->services.no_backends = how->no_backends;
    }
    pthread_mutex_init(&reg->lock, NULL);
    mn_registry_set_delays(reg, FIRST_DELAY_NS, MOST_DELAY_NS);
    const mn_status st = mn_search(reg, err);
    if (st)
        mn_registry_free(reg);
    else
        *out = reg;
    return st;
}

void mn_registry_free(mn_registry *reg) {
    if (!reg)
        return;
    mn_registry_close_devices(reg);
    for (size_t i = reg->n_records; i-- > 0;)
        mn_plugin_unload(&reg->records[i]);
    mn_watch_free(reg->services.watch); /* nothing is called any more, and it reads the records */
    for (size_t i = reg->n_records; i-- > 0;)
        mn_plugin_record_clear(&reg->records[i]);
    for (size_t i = 0; i < reg->n_folders; i++)
        mn_free(reg->folders[i].path);
    if (reg->notes_crashes)
        mn_journal_close();
    pthread_mutex_destroy(&reg->lock);
    mn_free(reg->state);
    mn_free(reg->devices);
    mn_free(reg->folders);
    mn_free(reg->records);
    mn_free(reg);
}

const mn_plugin_record *mn_registry_plugins(const mn_registry *reg, size_t *n) {
    *n = reg->n_records;
    return reg->records;
}

const mn_plugin_folder *mn_registry_folders(const mn_registry *reg, size_t *n) {
    *n = reg->n_folders;
    return reg->folders;
}

const mn_plugin_record *mn_registry_plugin(const mn_registry *reg, mn_str id) {
    for (size_t i = 0; i < reg->n_records; i++)
        if (reg->records[i].status == MN_RECORD_OK && mn_str_eq(reg->records[i].id, id))
            return &reg->records[i];
    return NULL;
}

const mn_plugin_record *mn_registry_no_memory(const mn_registry *reg, const char *kind) {
    for (size_t i = 0; i < reg->n_records; i++) {
        const mn_plugin_record *r = &reg->records[i];
        if (r->no_memory && (!*r->kind || strstr(r->kind, kind)))
            return r;
    }
    return NULL;
}

void mn_registry_on_progress(mn_registry *reg, mn_progress_fn fn, void *arg) {
    reg->services.progress = fn;
    reg->services.progress_arg = arg;
}
