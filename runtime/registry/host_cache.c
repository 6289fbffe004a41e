/* host_cache.c -- "mn.cache/1": entries that plugins keep between processes, one file each below
 * the user's cache folder (base/cache.c, which replaces files as a whole). The name of the file
 * stands for plugin and entry, so that a new stamp replaces the old one and nothing piles up. A
 * file is a head line, the key, the size and digest of the data, and the data: whatever does not
 * agree is an entry that is not there. */
#include "registry/internal.h"
#include <stdio.h>
#include <string.h>

#define HEAD "minerva plugin cache 1\n"
enum { MOST_HEAD = 4096 };

static uint64_t digest(const void *data, uint64_t bytes) {
    return mn_hash(data, (size_t)bytes, bytes);
}

static void cache_name(const mn_plugin_host *host, mn_str name, char file[40]) {
    const uint64_t plugin = mn_hash(host->id, strlen(host->id), 1);
    const uint64_t entry = mn_hash(name.ptr, (size_t)name.len, plugin);
    snprintf(file, 40, "plugin/%016llx", (unsigned long long)entry);
}

/* What stands in front of the data. */
static void put_head(const mn_plugin_host *host, mn_str name, mn_str stamp, mn_text *to) {
    mn_text_printf(to, HEAD "%s %llu %llu\n", host->id, (unsigned long long)name.len,
                   (unsigned long long)stamp.len);
    mn_text_put(to, name.ptr, (size_t)name.len);
    mn_text_put(to, stamp.ptr, (size_t)stamp.len);
}

/* Size and digest of the data, as bytes: the file never leaves this machine. */
typedef struct {
    uint64_t bytes;
    uint64_t digest;
} seal;

/* The data of a file with this head; NULL: another stamp, or damaged, which is logged. */
static const char *find_data(const mn_text *file, const mn_text *head, const char *name,
                             uint64_t *bytes) {
    seal s;
    const size_t before = head->len + sizeof s;
    if (file->len < before || memcmp(file->ptr, head->ptr, head->len))
        return NULL;
    memcpy(&s, file->ptr + head->len, sizeof s);
    const char *data = file->ptr + before;
    *bytes = file->len - before;
    if (s.bytes == *bytes && s.digest == digest(data, *bytes))
        return data;
    mn_log(MN_LOG_INFO, "cache: %s is damaged; it is made anew", name);
    return NULL;
}

/* A copy that the plugin owns. */
static mn_status host_cache_hand_over(const char *from, uint64_t bytes, void **data) {
    void *to = mn_alloc_aligned((size_t)bytes + 1, 64);
    if (!to)
        return MN_OUT_OF_MEMORY;
    memcpy(to, from, (size_t)bytes);
    *data = to;
    return MN_OK;
}

static mn_status read_entry(void *self, mn_str name, mn_str stamp, void **data, uint64_t *bytes) {
    const mn_plugin_host *host = self;
    char file[40];
    mn_text head = {0};
    mn_text found = {0};
    *data = NULL;
    *bytes = 0;
    put_head(host, name, stamp, &head);
    cache_name(host, name, file);
    mn_status st = MN_END;
    if (!head.failed && !mn_cache_read(file, MN_CACHE_MAX + MOST_HEAD, &found, NULL)) {
        const char *at = find_data(&found, &head, file, bytes);
        if (at)
            st = host_cache_hand_over(at, *bytes, data);
    }
    mn_text_free(&head);
    mn_text_free(&found);
    return st;
}

static mn_status write_entry(void *self, mn_str name, mn_str stamp, const void *data,
                             uint64_t bytes) {
    const mn_plugin_host *host = self;
    char file[40];
    mn_text all = {0};
    if (bytes > MN_CACHE_MAX || name.len + stamp.len > MOST_HEAD / 2)
        return MN_INVALID;
    const seal s = {bytes, digest(data, bytes)};
    put_head(host, name, stamp, &all);
    mn_text_put(&all, (const char *)&s, sizeof s);
    mn_text_put(&all, data, (size_t)bytes);
    cache_name(host, name, file);
    mn_status st = MN_OUT_OF_MEMORY;
    if (!all.failed)
        st = mn_cache_write(file, all.ptr, all.len, NULL);
    mn_text_free(&all);
    return st;
}

const mn_cache mn_plugin_cache = {
    .size = sizeof(mn_cache),
    .read = read_entry,
    .write = write_entry,
};
