/* probe_cache.c -- what probes of earlier starts found: one file per plugin in the folder `probe`
 * of the cache (base/cache.c), whose first lines are the key. The host computes the key and hands
 * it to minerva-probe, so that both mean the same file; minerva-probe alone writes, for it may find
 * more after the host has gone on. */
#include "registry/internal.h"
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_BYTES 65536u      /* of a cache file */
#define WATCH_SLACK_MS 10000u /* for the second verdict to be late on a busy machine */

/* ---- the key: all that an answer depends on -------------------------------------------------- */

static uint64_t hash_file(uint64_t hash, int folder, const char *path) {
    char data[1024];
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return hash;
    ssize_t n = read(fd, data, sizeof data);
    close(fd);
    return n > 0 ? mn_hash(data, (size_t)n, hash) : hash;
}

/* The file `version` of every folder in this one: how drivers tell theirs. */
static uint64_t hash_versions(uint64_t hash, const char *path) {
    DIR *dir = opendir(path);
    if (!dir)
        return hash;
    uint64_t sum = 0; /* the order of a folder means nothing */
    for (const struct dirent *entry; (entry = readdir(dir));) {
        char name[sizeof entry->d_name + 16];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/version", entry->d_name);
        uint64_t seed = mn_hash(name, strlen(name), 0), one = hash_file(seed, dirfd(dir), name);
        if (one != seed)
            sum += one;
    }
    closedir(dir);
    return mn_hash(&sum, sizeof sum, hash);
}

static uint64_t hash_stat(uint64_t hash, const char *path) {
    struct stat st;
    uint64_t facts[4] = {0};
    if (!stat(path, &st))
        memcpy(facts,
               (uint64_t[]){st.st_ino, (uint64_t)st.st_size, (uint64_t)st.st_mtim.tv_sec,
                            (uint64_t)st.st_mtim.tv_nsec},
               sizeof facts);
    return mn_hash(facts, sizeof facts, hash);
}

extern char **environ;

/* Variables that decide which driver is found and which devices it shows. */
static uint64_t hash_environment(uint64_t hash) {
    uint64_t sum = 0;
    for (char **var = environ; var && *var; var++) {
        mn_str name = {*var, strcspn(*var, "=")};
        if (mn_str_ends(name, "VISIBLE_DEVICES") || !strncmp(*var, "LD_", 3) ||
            !strncmp(*var, "OCL_", 4))
            sum += mn_hash(*var, strlen(*var), 0);
    }
    return mn_hash(&sum, sizeof sum, hash);
}

/* Kernel drivers, the libraries that are installed (the linker's cache changes with them), what
 * leads to one of them. */
static uint64_t drivers(void) {
    uint64_t hash = hash_versions(0, "/proc/driver");
    hash = hash_versions(hash, "/sys/module");
    hash = hash_stat(hash, "/etc/ld.so.cache");
    hash = hash_stat(hash, "/etc/OpenCL/vendors");
    return hash_environment(hash);
}

/* Plugins' own settings: they may decide what a plugin does in its entry. */
static uint64_t probe_cache_settings(const mn_config *cfg) {
    const char *name, *value, *origin;
    uint64_t hash = 0;
    for (size_t i = 0; mn_config_at(cfg, i, &name, &value, &origin); i++)
        if (!strncmp(name, "plugin.", 7))
            hash = mn_hash(value, strlen(value), mn_hash(name, strlen(name), hash));
    return hash;
}

static void put_host(mn_text *key, const mn_config *cfg, const char *program) {
    mn_report_put(key, "host", "%s, ABI %u.%u, %016" PRIx64, MN_VERSION, MN_ABI_VERSION >> 16,
                  MN_ABI_VERSION & 0xFFFF, hash_stat(0, program));
    mn_report_put(key, "drivers", "%016" PRIx64, drivers());
    mn_report_put(key, "boot", "%016" PRIx64,
                  hash_file(0, AT_FDCWD, "/proc/sys/kernel/random/boot_id"));
    mn_report_put(key, "settings", "%016" PRIx64, probe_cache_settings(cfg));
}

static void probe_cache_put_key(const mn_probe_cache *cache, const mn_plugin_file *file,
                                mn_text *key) {
    mn_text_puts(key, "minerva probe 1\n");
    mn_report_put(key, "path", "%s", file->real);
    mn_report_put(key, "file", "%" PRIx64 ":%" PRIx64 " %" PRIu64 " bytes, %" PRIu64 " ns",
                  file->dev, file->ino, file->size, file->mtime_ns);
    mn_report_put(key, "build", "%s", file->note.build_id);
    if (cache->host.len)
        mn_text_put(key, cache->host.ptr, cache->host.len);
    mn_text_puts(key, "\n");
}

/* ---- its files ------------------------------------------------------------------------------- */

bool mn_probe_cache_open(mn_probe_cache *cache, const mn_config *cfg, const char *program) {
    *cache = (mn_probe_cache){0};
    cache->forget = !mn_config_get_bool(cfg, "probe_cache");
    put_host(&cache->host, cfg, program);
    return !cache->host.failed;
}

void mn_probe_cache_close(mn_probe_cache *cache) {
    mn_text_free(&cache->host);
    *cache = (mn_probe_cache){0};
}

static void probe_cache_name_of(const mn_plugin_file *file, char name[40]) {
    snprintf(name, 40, "probe/%016" PRIx64, mn_hash(file->real, strlen(file->real), 0));
}

/* Whether a first verdict waits for a second one that will not come any more. */
static bool is_abandoned(const mn_text *report) {
    int64_t until_ms = 0;
    const bool watched = mn_parse_i64(mn_report_get(report, "watch"), &until_ms) && until_ms > 0;
    return watched && mn_now_ns() / 1000000 > (uint64_t)until_ms + WATCH_SLACK_MS;
}

bool mn_probe_cache_find(const mn_probe_cache *cache, const mn_plugin_file *file, mn_text *report) {
    char name[40];
    mn_text key = {0};
    mn_text found = {0};
    probe_cache_name_of(file, name);
    if (cache->forget)
        mn_cache_remove(name);
    if (cache->forget || mn_cache_read(name, MAX_BYTES, &found, NULL) != MN_OK)
        return false;
    probe_cache_put_key(cache, file, &key);
    const bool fits = !key.failed && found.len > key.len && !memchr(found.ptr, 0, found.len) &&
                      !memcmp(found.ptr, key.ptr, key.len);
    if (fits)
        mn_text_put(report, found.ptr + key.len, found.len - key.len);
    if (report->failed || !mn_report_complete(report) || is_abandoned(report))
        mn_text_free(report);
    mn_text_free(&key);
    mn_text_free(&found);
    return report->len > 0;
}

void mn_probe_cache_keep(const mn_probe_cache *cache, const mn_plugin_file *file,
                         const mn_text *report, bool replace) {
    char name[40];
    mn_text text = {0};
    if (cache->forget)
        return;
    probe_cache_name_of(file, name);
    const bool gone = replace && mn_cache_read(name, MAX_BYTES, &text, NULL) != MN_OK;
    mn_text_free(&text);
    if (gone)
        return;
    probe_cache_put_key(cache, file, &text);
    mn_text_put(&text, report->ptr, report->len);
    if (!text.failed && text.len < MAX_BYTES)
        mn_cache_write(name, text.ptr, text.len, NULL);
    mn_text_free(&text);
}
