/* world.h -- a registry over a folder of stub plugins, for the tests of the registry. */
#ifndef WORLD_H
#define WORLD_H
#include "registry/registry.h"
#include "unit.h"

typedef struct {
    mn_config *cfg;
    mn_pool *pool;
    mn_registry *reg;
} world;

/* Puts stubs/stub_<name>.so into the folder, under another name if `as` is set. */
static inline const char *put(const char *dir, const char *stub, const char *as) {
    char from[1200], file[128];
    snprintf(from, sizeof from, "%s/stub_%s.so", MINERVA_STUBS, stub);
    snprintf(file, sizeof file, "%s.so", as ? as : stub);
    const char *to = unit_path(dir, file);
    unit_copy(from, to);
    return to;
}

static inline void open_world_with(world *w, const mn_config_override *over, size_t n) {
    mn_error err = MN_ERROR_INIT;
    *w = (world){0};
    if (mn_config_load(over, n, &w->cfg, &err) != MN_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(mn_pool_create(2, &w->pool, &err), MN_OK);
    if (mn_registry_create(w->cfg, w->pool, NULL, &w->reg, &err) != MN_OK)
        fail_msg("%s", err.msg);
}

static inline void open_world(world *w, const char *key, const char *path) {
    const mn_config_override over[] = {{key, path, NULL},
                                       {"plugin.stub.greeting", "hello", NULL},
                                       {"plugin.good.greeting", "early", NULL}};
    open_world_with(w, over, MN_COUNT(over));
}

static inline void close_world(world *w) {
    mn_registry_free(w->reg);
    mn_pool_free(w->pool);
    mn_config_free(w->cfg);
}

static inline const mn_plugin_record *record_of(const world *w, const char *path) {
    size_t n;
    const mn_plugin_record *records = mn_registry_plugins(w->reg, &n);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(records[i].path, path))
            return &records[i];
    fail_msg("no record of %s", path);
    return NULL;
}

static inline void expect(const world *w, const char *path, const char *status,
                          const char *reason) {
    const mn_plugin_record *rec = record_of(w, path);
    if (strcmp(mn_record_status_name(rec->status), status) || !strstr(rec->reason, reason))
        fail_msg("%s: %s: %s, expected %s: %s", path, mn_record_status_name(rec->status),
                 rec->reason, status, reason);
    bool ok = !strcmp(status, "ok");
    assert_true(ok == (rec->plugin != NULL));
    assert_true(ok == (rec->backend || rec->loader));
    assert_true(ok == !*rec->reason);
}
#endif
