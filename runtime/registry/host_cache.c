/* host_cache.c -- "mn.cache/1": entries that plugins keep between processes, one file each below
 * the user's cache folder (base/cache.c, which replaces files as a whole). The name of the file
 * stands for plugin and entry, so that a new stamp replaces the old one and nothing piles up. A
 * file is a head line, the key, padding, a seal, and the data: whatever does not agree is an entry
 * that is not there. The seal ends where the data begins, at a multiple of 64 bytes, so that the
 * data can be used in place, and is all that unmap needs. */
#include "registry/internal.h"
#include <stdio.h>
#include <string.h>

#define HEAD "minerva plugin cache 2\n"
enum { MOST_HEAD = 4096, DATA_ALIGN = 64 };
#define MOST_BYTES (UINT64_C(8) << 30) /* of an entry */

/* As bytes: the file never leaves this machine. */
typedef struct {
    uint64_t bytes; /* of the data */
    uint64_t digest;
    uint64_t before; /* where the data begins */
    uint64_t zero;
} seal;

static uint64_t digest(const void *data, uint64_t bytes) {
    return mn_hash(data, (size_t)bytes, bytes);
}

static void cache_name(const mn_plugin_host *host, mn_str name, char file[40]) {
    const uint64_t plugin = mn_hash(host->id, strlen(host->id), 1);
    const uint64_t entry = mn_hash(name.ptr, (size_t)name.len, plugin);
    snprintf(file, 40, "plugin/%016llx", (unsigned long long)entry);
}

/* What stands in front of the seal. */
static void put_head(const mn_plugin_host *host, mn_str name, mn_str stamp, mn_text *to) {
    static const char zeros[DATA_ALIGN] = {0};
    mn_text_printf(to, HEAD "%s %llu %llu\n", host->id, (unsigned long long)name.len,
                   (unsigned long long)stamp.len);
    mn_text_put(to, name.ptr, (size_t)name.len);
    mn_text_put(to, stamp.ptr, (size_t)stamp.len);
    const size_t over = (to->len + sizeof(seal)) % DATA_ALIGN;
    mn_text_put(to, zeros, over ? DATA_ALIGN - over : 0);
}

/* The data of a file with this head; NULL: another stamp, or damaged, which is logged. */
static const char *find_data(mn_str file, const mn_text *head, const char *name, uint64_t *bytes) {
    seal s;
    const size_t before = head->len + sizeof s;
    if (file.len < before || memcmp(file.ptr, head->ptr, head->len))
        return NULL;
    memcpy(&s, file.ptr + head->len, sizeof s);
    const char *data = file.ptr + before;
    *bytes = file.len - before;
    if (s.bytes == *bytes && s.before == before && s.digest == digest(data, *bytes))
        return data;
    mn_log(MN_LOG_INFO, "cache: %s is damaged; it is made anew", name);
    return NULL;
}

static void unmap_entry(void *self, const void *data) {
    seal s;
    (void)self;
    if (!data)
        return;
    memcpy(&s, (const char *)data - sizeof s, sizeof s);
    mn_cache_unmap((mn_str){(const char *)data - s.before, s.before + s.bytes});
}

static mn_status map_entry(void *self, mn_str name, mn_str stamp, const void **data,
                           uint64_t *bytes) {
    const mn_plugin_host *host = self;
    char file[40];
    mn_text head = {0};
    mn_str found;
    *data = NULL;
    *bytes = 0;
    put_head(host, name, stamp, &head);
    cache_name(host, name, file);
    if (!head.failed && !mn_cache_map(file, MOST_BYTES + MOST_HEAD, &found, NULL)) {
        *data = find_data(found, &head, file, bytes);
        if (!*data)
            mn_cache_unmap(found);
    }
    mn_text_free(&head);
    return *data ? MN_OK : MN_END;
}

/* A copy that the plugin owns. Read, not mapped: a disk that fails is then an entry that is not
 * there, where a page of a mapping would end the process. */
static mn_status read_entry(void *self, mn_str name, mn_str stamp, void **data, uint64_t *bytes) {
    const mn_plugin_host *host = self;
    char file[40];
    mn_text head = {0};
    mn_text found = {0};
    mn_status st = MN_END;
    *data = NULL;
    *bytes = 0;
    put_head(host, name, stamp, &head);
    cache_name(host, name, file);
    if (!head.failed && !mn_cache_read(file, MOST_BYTES + MOST_HEAD, &found, NULL)) {
        const char *at = find_data((mn_str){found.ptr, found.len}, &head, file, bytes);
        if (at) {
            *data = mn_alloc_aligned((size_t)*bytes + 1, DATA_ALIGN);
            st = *data ? MN_OK : MN_OUT_OF_MEMORY;
        }
        if (*data)
            memcpy(*data, at, (size_t)*bytes);
    }
    mn_text_free(&head);
    mn_text_free(&found);
    return st;
}

static mn_status write_entry(void *self, mn_str name, mn_str stamp, const void *data,
                             uint64_t bytes) {
    const mn_plugin_host *host = self;
    char file[40];
    mn_text head = {0};
    if (bytes > MOST_BYTES || name.len + stamp.len > MOST_HEAD / 2)
        return MN_INVALID;
    put_head(host, name, stamp, &head);
    const seal s = {bytes, digest(data, bytes), head.len + sizeof s, 0};
    const mn_str parts[] = {{head.ptr, head.len}, {(const char *)&s, sizeof s}, {data, bytes}};
    cache_name(host, name, file);
    mn_status st = MN_OUT_OF_MEMORY;
    if (!head.failed)
        st = mn_cache_write_parts(file, parts, MN_COUNT(parts), NULL);
    mn_text_free(&head);
    return st;
}

const mn_cache mn_plugin_cache = {
    .size = sizeof(mn_cache),
    .read = read_entry,
    .write = write_entry,
    .most = MOST_BYTES,
    .map = map_entry,
    .unmap = unmap_entry,
};
