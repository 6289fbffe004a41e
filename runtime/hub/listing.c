/* listing.c -- folders as lists: the files below one, with size and last access, and the names in
 * one; small files; paths that variables name. All lists are sorted, so that what is found does not
 * depend on the file system. The lists own their texts. */
#include "hub/names.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ALL UINT32_MAX /* depth: every level */

/* ---- names ----------------------------------------------------------------------------------- */
static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static mn_status add_name(mn_names *names, const char *name, mn_error *err) {
    void *grown = names->at;
    if (names->n >= MN_HUB_MAX_FILES)
        return mn_fail(err, MN_IO_ERROR, "found more than %u entries", MN_HUB_MAX_FILES);
    if (!mn_grow(&grown, &names->cap, names->n + 1u, sizeof *names->at))
        return mn_fail_memory(err, (names->n + 1u) * sizeof *names->at);
    names->at = grown;
    names->at[names->n] = mn_strndup(name, strlen(name));
    if (!names->at[names->n])
        return mn_fail_memory(err, strlen(name));
    names->n++;
    return MN_OK;
}

static bool is_wanted(const char *name, bool all) {
    return name[0] != '.' || (all && strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
}

/* all: as mn_names_read_all. */
static mn_status read_names(const char *folder, bool all, mn_names *out, mn_error *err) {
    DIR *d = opendir(folder);
    mn_names names = {0};
    mn_status st = MN_OK;
    if (!d && errno == ENOMEM)
        return mn_fail_memory(err, 0);
    if (!d && all && errno != ENOENT)
        return mn_fail_errno(err, folder, "cannot read");
    while (d && !st) {
        errno = 0; /* readdir sets it where it returns NULL before the end */
        const struct dirent *e = readdir(d);
        if (!e)
            break;
        if (is_wanted(e->d_name, all))
            st = add_name(&names, e->d_name, err);
    }
    if (!st && d && all && errno)
        st = mn_fail_errno(err, folder, "cannot read");
    else if (st)
        mn_fail_in(err, st, "%s", folder);
    if (d)
        closedir(d);
    if (st) {
        mn_names_free(&names);
        return st;
    }
    if (names.n)
        qsort(names.at, names.n, sizeof *names.at, by_text);
    *out = names;
    return MN_OK;
}

mn_status mn_names_read(const char *folder, mn_names *out, mn_error *err) {
    return read_names(folder, false, out, err);
}

mn_status mn_names_read_all(const char *folder, mn_names *out, mn_error *err) {
    return read_names(folder, true, out, err);
}

void mn_names_free(mn_names *names) {
    for (uint32_t i = 0; i < names->n; i++)
        mn_free(names->at[i]);
    mn_free(names->at);
    *names = (mn_names){0};
}

/* ---- files ----------------------------------------------------------------------------------- */
static mn_status add_file(mn_listing *list, const char *name, const struct stat *at,
                          mn_error *err) {
    void *files = list->files;
    void *used = list->used;
    if (list->n >= MN_HUB_MAX_FILES)
        return mn_fail(err, MN_IO_ERROR, "found more than %u files", MN_HUB_MAX_FILES);
    const bool grown = mn_grow(&files, &list->cap, list->n + 1u, sizeof *list->files);
    list->files = files;
    const bool both = grown && mn_grow(&used, &list->cap_used, list->n + 1u, sizeof *list->used);
    list->used = used;
    char *copy = both ? mn_strndup(name, strlen(name)) : NULL;
    if (!copy)
        return mn_fail_memory(err, strlen(name));
    list->files[list->n] = (mn_hub_file){{copy, strlen(copy)}, (uint64_t)at->st_size};
    list->used[list->n++] = at->st_atime;
    return MN_OK;
}

/* prefix: of the names, "" or "sub/". depth ALL: as mn_listing_read_all. */
static mn_status add_folder(mn_listing *list, const char *folder, const char *prefix,
                            uint32_t depth, mn_error *err) {
    mn_names names = {0};
    mn_status st = read_names(folder, depth == ALL, &names, err);
    const uint32_t below = depth == ALL ? ALL : depth - 1; /* of folders, where depth is not 0 */
    for (uint32_t i = 0; i < names.n && !st; i++) {
        struct stat at;
        struct stat link;
        mn_text name = {0};
        mn_text_printf(&name, "%s%s", prefix, names.at[i]);
        char *path = name.failed ? NULL : mn_path_join(folder, names.at[i]);
        if (!path)
            st = mn_fail_memory(err, strlen(names.at[i]));
        else if (lstat(path, &link) || stat(path, &at))
            st = MN_OK; /* a link to nothing, or a file that went away */
        else if (S_ISREG(at.st_mode))
            st = add_file(list, name.ptr, &at, err);
        else if (S_ISDIR(link.st_mode) && depth) {
            mn_text_puts(&name, "/");
            st =
                name.failed ? mn_fail_memory(err, 1) : add_folder(list, path, name.ptr, below, err);
        }
        mn_free(path);
        mn_text_free(&name);
    }
    mn_names_free(&names);
    return st;
}

mn_status mn_listing_read_all(const char *folder, mn_listing *out, mn_error *err) {
    return mn_listing_read(folder, ALL, out, err);
}

mn_status mn_listing_read(const char *folder, uint32_t depth, mn_listing *out, mn_error *err) {
    mn_listing list = {0};
    const mn_status st = add_folder(&list, folder, "", depth, err);
    if (st)
        mn_listing_free(&list);
    else
        *out = list;
    return st;
}

void mn_listing_free(mn_listing *list) {
    for (uint32_t i = 0; i < list->n; i++)
        mn_free((char *)(uintptr_t)list->files[i].name.ptr);
    mn_free(list->files);
    mn_free(list->used);
    *list = (mn_listing){0};
}

/* ---- paths and small files ------------------------------------------------------------------- */
/* A path of the user's, absolute and without slashes at its end: "~" is the home, and what else
 * does not begin with a slash lies in the working folder. NULL: no home, or out of memory. */
static char *whole_path(const char *path, bool *no_memory) {
    const char *home = secure_getenv("HOME");
    const bool tilde = path[0] == '~' && (path[1] == '/' || !path[1]);
    char here[PATH_MAX];
    if (tilde && (!home || *home != '/'))
        return NULL;
    if (!tilde && *path != '/' && !getcwd(here, sizeof here))
        return NULL;
    mn_text t = {0};
    if (tilde)
        mn_text_puts(&t, home);
    else if (*path != '/')
        mn_text_printf(&t, "%s/", here);
    mn_text_puts(&t, path + tilde);
    while (t.len > 1 && t.ptr[t.len - 1] == '/')
        t.ptr[--t.len] = 0;
    char *whole = mn_text_take(&t);
    *no_memory = !whole;
    return whole;
}

mn_status mn_user_path(const char *variable, const char *otherwise, const char *tail, char **out,
                       mn_error *err) {
    const char *said = variable ? secure_getenv(variable) : NULL;
    bool no_memory = false;
    *out = NULL;
    if (!said || !*said)
        said = otherwise;
    if (!said)
        return MN_OK;
    char *base = whole_path(said, &no_memory);
    if (base && tail) {
        *out = mn_path_join(base, tail);
        no_memory = !*out;
        mn_free(base);
    } else
        *out = base;
    return no_memory ? mn_fail_memory(err, strlen(said)) : MN_OK;
}

mn_status mn_small_file(const char *path, uint64_t max, mn_text *out, mn_error *err) {
    char *data = NULL;
    uint64_t n = 0;
    const mn_status st = mn_read_file(path, max, &data, &n, NULL); /* MN_END has no message */
    if (st == MN_OUT_OF_MEMORY)
        return mn_fail_memory(err, n);
    if (st || memchr(data, 0, (size_t)n)) {
        mn_free(data);
        return MN_END;
    }
    *out = (mn_text){data, (size_t)n, (size_t)n + 1, false};
    return MN_OK;
}
