/* listing.c -- the hub's answer about a revision: its commit and its files. Only what is used is
 * read; a file with a name that would leave the snapshot is passed over, and what is no number or
 * no hash counts as not said. */
#include "hub.h"
#include "json_strict.h"
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int hub_is_hex(const char *text, size_t digits) {
    return strspn(text, "0123456789abcdef") == digits && !text[digits];
}

int hub_is_inner_path(const char *path) {
    const char *part = path;
    if (!*path || strlen(path) > 1024)
        return 0;
    for (const char *c = path;; c++) {
        const size_t n = (size_t)(c - part);
        if (*c && *c != '/') {
            if ((unsigned char)*c < 32 || *c == 127 || *c == '\\')
                return 0;
            continue;
        }
        if (!n || n > 255 || (n == 1 && part[0] == '.') || (n == 2 && !memcmp(part, "..", 2)))
            return 0;
        if (!*c)
            return 1;
        part = c + 1;
    }
}

static const char *text_of(const cJSON *object, const char *key) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsString(v) ? v->valuestring : "";
}

static uint64_t bytes_of(const cJSON *object) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, "size");
    return cJSON_IsNumber(v) && v->valuedouble >= 0 && v->valuedouble < 1e18
               ? (uint64_t)v->valuedouble
               : 0;
}

/* 0: out of memory. */
static int read_file(const cJSON *item, hub_listing *out) {
    hub_file *f = &out->files[out->n];
    const cJSON *lfs = cJSON_GetObjectItemCaseSensitive(item, "lfs");
    const char *name = text_of(item, "rfilename");
    const char *sha256 = text_of(lfs, "sha256");
    const char *sha1 = text_of(item, "blobId");
    if (!hub_is_inner_path(name))
        return 1;
    f->bytes = bytes_of(cJSON_IsObject(lfs) ? lfs : item);
    f->hash[0] = 0;
    if (hub_is_hex(sha256, 64))
        memcpy(f->hash, sha256, 65);
    else if (!cJSON_IsObject(lfs) && hub_is_hex(sha1, 40))
        memcpy(f->hash, sha1, 41);
    f->name = strdup(name);
    out->n += f->name != NULL;
    return f->name != NULL;
}

static int without_memory(char *dst, size_t n_dst) {
    snprintf(dst, n_dst, "out of memory");
    return EXIT_NO_MEMORY;
}

static int read_files(const cJSON *json, hub_listing *out, char *dst, size_t n_dst) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "siblings");
    const cJSON *item = NULL;
    uint32_t n = 0;
    cJSON_ArrayForEach(item, list) {
        n++;
    }
    snprintf(out->commit, sizeof out->commit, "%s", text_of(json, "sha"));
    dst[0] = 0;
    if (!hub_is_hex(out->commit, 40))
        snprintf(dst, n_dst, "found no commit of 40 digits (\"sha\")");
    else if (!cJSON_IsArray(list))
        snprintf(dst, n_dst, "found no list of files (\"siblings\")");
    else if (n > HUB_FILES_MAX)
        snprintf(dst, n_dst, "found %u files, expected at most %u", n, HUB_FILES_MAX);
    if (dst[0])
        return EXIT_FAILED;
    out->files = calloc(n + 1u, sizeof *out->files);
    int ok = out->files != NULL;
    cJSON_ArrayForEach(item, list) {
        ok = ok && read_file(item, out);
    }
    return ok ? 0 : without_memory(dst, n_dst);
}

int hub_listing_parse(const char *json, size_t n, hub_listing *out, char *dst, size_t n_dst) {
    memset(out, 0, sizeof *out);
    errno = 0; // malloc sets it, and nothing else that cJSON calls after a failure does
    cJSON *tree = cJSON_ParseWithLength(json, n);
    int code = EXIT_FAILED;
    if (!tree && errno == ENOMEM)
        code = without_memory(dst, n_dst);
    else if (!cJSON_IsObject(tree))
        snprintf(dst, n_dst, "found no JSON object");
    else if (!json_keep_last(tree))
        code = without_memory(dst, n_dst);
    else
        code = read_files(tree, out, dst, n_dst);
    cJSON_Delete(tree);
    if (code)
        hub_listing_free(out);
    return code;
}

void hub_listing_free(hub_listing *list) {
    for (uint32_t i = 0; i < list->n; i++)
        free(list->files[i].name);
    free(list->files);
    memset(list, 0, sizeof *list);
}
