/* registry.c -- the search for plugins, and the list of their devices. */
#include "registry/registry.h"
#include "registry/internal.h"
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUILD_TREE_MARK "runtime/registry/minerva-build-tree" /* written by meson, below the root of the build */
#define MAX_DEVICES 1024u                                     /* of one plugin; more is a mistake of its */

struct mn_registry {
    const mn_config *cfg;
    mn_pool *pool;
    mn_plugin_record *records;
    size_t n_records, cap_records;
    mn_plugin_folder *folders;
    size_t n_folders, cap_folders;
    mn_progress_fn progress;
    void *progress_arg;
    pthread_mutex_t lock; /* of what follows */
    bool listed;
    mn_device_record *devices;
    mn_device **open; /* [n_devices] */
    size_t n_devices, cap_devices;
};

/* ---- files ---- */

static mn_plugin_record *add_record(mn_registry *reg, const char *path) {
    void *ptr = reg->records;
    if (!mn_grow(&ptr, &reg->cap_records, reg->n_records + 1, sizeof *reg->records)) return NULL;
    reg->records = ptr;
    mn_plugin_record *rec = &reg->records[reg->n_records++];
    *rec = (mn_plugin_record){.kind = "", .status = ""};
    rec->path = mn_strndup(path, strlen(path));
    char **const texts[] = {&rec->reason, &rec->vendor, &rec->version, &rec->build_id};
    bool done = rec->path != NULL;
    for (size_t i = 0; i < MN_COUNT(texts); i++) done = (*texts[i] = mn_strndup("", 0)) && done;
    rec->host = mn_calloc(1, sizeof *rec->host);
    if (!done || !rec->host) return NULL; /* freed with the registry */
    mn_plugin_host_init(rec->host, reg, path);
    return rec;
}

/* The same file by another path says nothing new. */
static bool seen_before(const mn_registry *reg, const mn_plugin_record *rec) {
    for (const mn_plugin_record *r = reg->records; r < rec; r++)
        if (rec->file_ino && r->file_ino == rec->file_ino && r->file_dev == rec->file_dev) return true;
    return false;
}

static void free_record(mn_plugin_record *rec) {
    mn_plugin_unload(rec);
    mn_free(rec->path);
    mn_free((void *)(uintptr_t)rec->id.ptr);
    mn_free(rec->reason);
    mn_free(rec->vendor);
    mn_free(rec->version);
    mn_free(rec->build_id);
    mn_free(rec->host);
}

static mn_status shadow(mn_registry *reg, mn_plugin_record *rec, mn_error *err) {
    const mn_plugin_record *first = mn_registry_plugin(reg, rec->id);
    if (strcmp(rec->status, "ok") != 0 || first == rec) return MN_OK;
    mn_plugin_unload(rec);
    return mn_plugin_reject(rec, "shadowed", "%s has the same id and comes first", first->path)
               ? MN_OK
               : mn_fail_memory(err, 0);
}

static mn_status try_file(mn_registry *reg, const mn_trust *trust, const char *path, mn_error *err) {
    char real[PATH_MAX];
    mn_error why = MN_ERROR_INIT;
    mn_plugin_record *rec = add_record(reg, path);
    if (!rec) return mn_fail_memory(err, sizeof *rec);
    mn_status status = mn_plugin_file_check(trust, path, real, &rec->file_dev, &rec->file_ino, &why);
    if (seen_before(reg, rec)) {
        free_record(rec);
        reg->n_records--;
        return MN_OK;
    }
    if (status != MN_OK) return mn_plugin_reject(rec, "refused", "%s", why.msg) ? MN_OK : mn_fail_memory(err, 0);
    status = mn_plugin_load(rec, real, err);
    return status == MN_OK ? shadow(reg, rec, err) : status;
}

/* ---- folders ---- */

static mn_status add_folder(mn_registry *reg, const char *path, size_t n, const char *origin, const char *reason,
                            mn_error *err) {
    void *ptr = reg->folders;
    if (!mn_grow(&ptr, &reg->cap_folders, reg->n_folders + 1, sizeof *reg->folders))
        return mn_fail_memory(err, sizeof *reg->folders);
    reg->folders = ptr;
    char *copy = mn_strndup(path, n);
    if (!copy) return mn_fail_memory(err, n);
    reg->folders[reg->n_folders++] = (mn_plugin_folder){copy, origin, reason};
    return MN_OK;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Names in the folder that end so, sorted: the order in a folder means nothing. NULL out = out of memory. */
static mn_status list_names(DIR *dir, const char *ending, char ***out, size_t *n, mn_error *err) {
    size_t cap = 0;
    void *ptr = NULL;
    *out = NULL, *n = 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || !mn_str_ends(mn_str_of(entry->d_name), ending)) continue;
        if (!mn_grow(&ptr, &cap, *n + 1, sizeof **out)) return mn_fail_memory(err, cap * sizeof **out);
        *out = ptr;
        char *name = mn_strndup(entry->d_name, strlen(entry->d_name));
        if (!name) return mn_fail_memory(err, strlen(entry->d_name));
        (*out)[(*n)++] = name;
    }
    if (*n) qsort(*out, *n, sizeof **out, by_name);
    return MN_OK;
}

/* Calls each(reg, trust, "folder/name", ...) for the sorted names of a folder that end so. */
static mn_status walk(mn_registry *reg, const mn_trust *trust, const char *folder, const char *ending,
                      mn_status (*each)(mn_registry *, const mn_trust *, const char *path, mn_error *), bool *found,
                      mn_error *err) {
    DIR *dir = opendir(folder);
    *found = dir != NULL;
    if (!dir) return MN_OK;
    char **names;
    size_t n;
    mn_status status = list_names(dir, ending, &names, &n, err);
    closedir(dir);
    for (size_t i = 0; i < n; i++) {
        char *path = status == MN_OK ? mn_path_join(folder, names[i]) : NULL;
        if (status == MN_OK) status = path ? each(reg, trust, path, err) : mn_fail_memory(err, strlen(folder));
        mn_free(path);
        mn_free(names[i]);
    }
    mn_free(names);
    return status;
}

static mn_status search_folder(mn_registry *reg, const mn_trust *trust, const char *folder, const char *origin,
                               mn_error *err) {
    mn_status status = add_folder(reg, folder, strlen(folder), origin, "", err);
    if (status != MN_OK) return status;
    size_t at = reg->n_folders - 1;
    bool found;
    status = walk(reg, trust, folder, ".so", try_file, &found, err);
    if (!found) reg->folders[at].reason = mn_path_exists(folder) ? "cannot be read" : "does not exist";
    return status;
}

static mn_status search_built(mn_registry *reg, const mn_trust *trust, const char *folder, mn_error *err) {
    bool objects = mn_str_ends(mn_str_of(folder), ".p"); /* meson's own */
    return objects || !mn_path_is_dir(folder) ? MN_OK : search_folder(reg, trust, folder, "build tree", err);
}

/* An entry of a path list: a folder, or one plugin's file. */
static mn_status search_entry(mn_registry *reg, const mn_trust *trust, const char *entry, size_t n, const char *origin,
                              mn_error *err) {
    if (*entry != '/') return add_folder(reg, entry, n, origin, "refused: expected an absolute path", err);
    char *path = mn_strndup(entry, n);
    if (!path) return mn_fail_memory(err, n);
    bool is_file = mn_str_ends(mn_str_of(path), ".so") && !mn_path_is_dir(path);
    mn_status status = is_file ? try_file(reg, trust, path, err) : search_folder(reg, trust, path, origin, err);
    mn_free(path);
    return status;
}

static mn_status search_list(mn_registry *reg, const mn_trust *trust, const char *key, mn_error *err) {
    mn_status status = MN_OK;
    for (const char *at = mn_config_get_str(reg->cfg, key); *at && status == MN_OK;) {
        size_t n = strcspn(at, ":");
        if (n) status = search_entry(reg, trust, at, n, key, err);
        at += n + (at[n] == ':');
    }
    return status;
}

static mn_status search_user(mn_registry *reg, const mn_trust *trust, mn_error *err) {
    const char *base = secure_getenv("XDG_DATA_HOME"), *tail = "minerva/plugins";
    if (!base || *base != '/') base = secure_getenv("HOME"), tail = ".local/share/minerva/plugins";
    if (!base || *base != '/') return MN_OK;
    char *folder = mn_path_join(base, tail);
    mn_status status = folder ? search_folder(reg, trust, folder, "user", err) : mn_fail_memory(err, strlen(base));
    mn_free(folder);
    return status;
}

/* <build>/plugins/X and <build>/loaders/X, if the library lies in a folder of a build tree. */
static mn_status search_build_tree(mn_registry *reg, const mn_trust *trust, bool *found, mn_error *err) {
    static const char *const parts[] = {"plugins", "loaders"};
    char root[PATH_MAX], path[PATH_MAX];
    memcpy(root, trust->dir, sizeof root);
    *found = false;
    for (int up = 0; up < 2 && !*found;
         up++) { /* <build>/runtime; a test that links the registry: <build>/tests/unit */
        char *slash = strrchr(root, '/');
        if (!slash || slash == root) return MN_OK;
        *slash = 0;
        int n = snprintf(path, sizeof path, "%s/" BUILD_TREE_MARK, root);
        *found = n > 0 && (size_t)n < sizeof path && mn_path_exists(path);
    }
    mn_status status = MN_OK;
    for (size_t i = 0; i < MN_COUNT(parts) && *found && status == MN_OK; i++) {
        int n = snprintf(path, sizeof path, "%s/%s", root, parts[i]);
        bool any;
        if (n > 0 && (size_t)n < sizeof path) status = walk(reg, trust, path, "", search_built, &any, err);
    }
    return status;
}

static mn_status search_installed(mn_registry *reg, const mn_trust *trust, mn_error *err) {
    if (!*trust->dir) return MN_OK;
    char *folder = mn_path_join(trust->dir, "minerva/plugins");
    if (!folder) return mn_fail_memory(err, strlen(trust->dir));
    bool built = false;
    mn_status status = mn_path_is_dir(folder) ? MN_OK : search_build_tree(reg, trust, &built, err);
    if (status == MN_OK && !built) status = search_folder(reg, trust, folder, "installed", err);
    mn_free(folder);
    return status;
}

static mn_status search(mn_registry *reg, mn_error *err) {
    mn_trust trust;
    mn_trust_init(&trust);
    if (*mn_config_get_str(reg->cfg, "plugin_path_only")) return search_list(reg, &trust, "plugin_path_only", err);
    mn_status status = search_list(reg, &trust, "plugin_path", err);
    if (status == MN_OK) status = search_user(reg, &trust, err);
    return status == MN_OK ? search_installed(reg, &trust, err) : status;
}

/* ---- life ---- */

mn_status mn_registry_create(const mn_config *cfg, mn_pool *pool, mn_registry **out, mn_error *err) {
    mn_registry *reg = mn_calloc(1, sizeof *reg);
    if (!reg) return mn_fail_memory(err, sizeof *reg);
    reg->cfg = cfg;
    reg->pool = pool;
    pthread_mutex_init(&reg->lock, NULL);
    mn_status status = search(reg, err);
    if (status != MN_OK) return mn_registry_free(reg), status;
    *out = reg;
    return MN_OK;
}

void mn_registry_free(mn_registry *reg) {
    if (!reg) return;
    for (size_t i = reg->n_devices; i-- > 0;)
        if (reg->open[i]) reg->devices[i].plugin->backend->device_close(reg->open[i]);
    for (size_t i = reg->n_records; i-- > 0;) free_record(&reg->records[i]);
    for (size_t i = 0; i < reg->n_folders; i++) mn_free(reg->folders[i].path);
    pthread_mutex_destroy(&reg->lock);
    mn_free(reg->open);
    mn_free(reg->devices);
    mn_free(reg->folders);
    mn_free(reg->records);
    mn_free(reg);
}

const mn_plugin_record *mn_registry_plugins(const mn_registry *reg, size_t *n) {
    return *n = reg->n_records, reg->records;
}

const mn_plugin_folder *mn_registry_folders(const mn_registry *reg, size_t *n) {
    return *n = reg->n_folders, reg->folders;
}

const mn_plugin_record *mn_registry_plugin(const mn_registry *reg, mn_str id) {
    for (size_t i = 0; i < reg->n_records; i++)
        if (!strcmp(reg->records[i].status, "ok") && mn_str_eq(reg->records[i].id, id)) return &reg->records[i];
    return NULL;
}

const mn_config *mn_registry_config(const mn_registry *reg) { return reg->cfg; }

mn_pool *mn_registry_pool(const mn_registry *reg) { return reg->pool; }

void mn_registry_on_progress(mn_registry *reg, mn_progress_fn fn, void *arg) {
    reg->progress = fn;
    reg->progress_arg = arg;
}

int32_t mn_registry_progress(const mn_registry *reg, float done, mn_str what) {
    return reg->progress ? reg->progress(reg->progress_arg, done, what) : 0;
}

/* ---- devices ---- */

static mn_device_record *add_device(mn_registry *reg, const mn_plugin_record *plugin) {
    void *ptr = reg->devices;
    if (!mn_grow(&ptr, &reg->cap_devices, reg->n_devices + 1, sizeof *reg->devices)) return NULL;
    reg->devices = ptr;
    mn_device_record *dev = &reg->devices[reg->n_devices++];
    memset(dev, 0, sizeof *dev);
    dev->plugin = plugin;
    dev->reason = "";
    snprintf(dev->name, sizeof dev->name, "%s", plugin->id.ptr);
    return dev;
}

static void set_reason(mn_device_record *dev, mn_error *why, const char *otherwise) {
    why->msg[sizeof why->msg - 1] = 0;
    size_t n = strlen(why->msg);
    if (n >= sizeof dev->text) why->msg[mn_utf8_complete(why->msg, sizeof dev->text - 1)] = 0;
    snprintf(dev->text, sizeof dev->text, "%.399s", n ? why->msg : otherwise);
}

static void ask_device(mn_device_record *dev, uint32_t index, uint32_t n) {
    mn_error why = MN_ERROR_INIT;
    const mn_plugin_record *plugin = dev->plugin;
    mn_device_info *info = &dev->info;
    info->size = sizeof *info;
    dev->index = index;
    dev->usable = plugin->backend->device_info(plugin->plugin->self, index, info, &why) == MN_OK;
    if (!dev->usable) {
        *info = (mn_device_info){.size = sizeof *info};
        set_reason(dev, &why, "the plugin cannot describe it and gave no reason");
    }
    info->name[sizeof info->name - 1] = info->uid[sizeof info->uid - 1] = 0;
    info->driver[sizeof info->driver - 1] = info->mem_pool[sizeof info->mem_pool - 1] = 0;
    if (n > 1 || (dev->usable && info->kind != MN_DEVICE_CPU))
        snprintf(dev->name, sizeof dev->name, "%s:%u", plugin->id.ptr, index);
}

static bool ask_plugin(mn_registry *reg, const mn_plugin_record *plugin) {
    mn_error why = MN_ERROR_INIT;
    uint32_t n = 0;
    mn_status status = plugin->backend->device_count(plugin->plugin->self, &n, &why);
    if (status != MN_OK || !n || n > MAX_DEVICES) {
        mn_device_record *dev = add_device(reg, plugin);
        if (dev)
            set_reason(dev, &why,
                       status != MN_OK ? "the plugin cannot list its devices and gave no reason"
                       : n             ? "the plugin lists an impossible number of devices"
                                       : "no device found");
        return dev != NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        mn_device_record *dev = add_device(reg, plugin);
        if (!dev) return false;
        ask_device(dev, i, n);
    }
    return true;
}

static bool list_devices(mn_registry *reg) {
    reg->n_devices = 0; /* of an attempt that ran out of memory */
    for (size_t i = 0; i < reg->n_records; i++)
        if (reg->records[i].backend && !ask_plugin(reg, &reg->records[i])) return reg->n_devices = 0, false;
    for (size_t i = 0; i < reg->n_devices; i++) /* the array may have moved while it grew */
        reg->devices[i].reason = reg->devices[i].usable ? "" : reg->devices[i].text;
    reg->open = mn_calloc(reg->n_devices, sizeof *reg->open);
    if (!reg->open) return reg->n_devices = 0, false;
    return true;
}

const mn_device_record *mn_registry_devices(mn_registry *reg, size_t *n) {
    static const mn_device_record none;
    pthread_mutex_lock(&reg->lock);
    if (!reg->listed) reg->listed = list_devices(reg);
    const mn_device_record *devices = !reg->listed ? NULL : reg->n_devices ? reg->devices : &none;
    *n = reg->n_devices;
    pthread_mutex_unlock(&reg->lock);
    return devices;
}

const mn_device_record *mn_registry_device(mn_registry *reg, mn_str name) {
    size_t n;
    const mn_device_record *devices = mn_registry_devices(reg, &n);
    mn_str bare = mn_str_ends(name, ":0") ? (mn_str){name.ptr, name.len - 2} : name;
    for (size_t i = 0; i < n; i++)
        if (mn_str_is(name, devices[i].name) || (!devices[i].index && mn_str_eq(bare, devices[i].plugin->id)))
            return &devices[i];
    return NULL;
}

mn_status mn_registry_device_open(mn_registry *reg, const mn_device_record *rec, mn_device **out, mn_error *err) {
    if (!rec->usable) return mn_fail(err, MN_NO_DEVICE, "device %s cannot be used: %s", rec->name, rec->reason);
    pthread_mutex_lock(&reg->lock);
    mn_device **open = &reg->open[rec - reg->devices];
    mn_error why = MN_ERROR_INIT;
    mn_status status =
        *open ? MN_OK : rec->plugin->backend->device_open(rec->plugin->plugin->self, rec->index, open, &why);
    if (status != MN_OK) *open = NULL;
    *out = *open;
    pthread_mutex_unlock(&reg->lock);
    if (status == MN_OK) return MN_OK;
    why.msg[sizeof why.msg - 1] = 0;
    return mn_fail(err, status, "device %s cannot be opened: %s", rec->name,
                   why.msg[0] ? why.msg : "the plugin gave no reason");
}

mn_device *mn_registry_device_opened(mn_registry *reg, const mn_device_record *rec) {
    pthread_mutex_lock(&reg->lock);
    mn_device *device = reg->open[rec - reg->devices];
    pthread_mutex_unlock(&reg->lock);
    return device;
}

void mn_registry_quarantine(mn_registry *reg, const mn_device_record *rec, const char *why) {
    pthread_mutex_lock(&reg->lock);
    mn_device_record *d = &reg->devices[rec - reg->devices];
    if (d->usable) { /* so nobody reads text yet */
        int n = snprintf(d->text, sizeof d->text, "lost: %s", why);
        if (n >= (int)sizeof d->text) d->text[mn_utf8_complete(d->text, sizeof d->text - 1)] = 0;
        d->reason = d->text;
        d->usable = false;
    }
    pthread_mutex_unlock(&reg->lock);
}
