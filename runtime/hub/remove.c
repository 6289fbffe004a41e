/* remove.c -- removes a model from the cache of Hugging Face. A snapshot holds links to blobs,
 * which snapshots share: links go first, then the blobs that no link leads to any more, so that
 * whatever happens in between, no snapshot is broken. Links to folders are never followed. */
#include "hub/names.h"
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DESCRIPTORS = 16 };

/* ---- a whole repository ---------------------------------------------------------------------- */
static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

/* 0 where it is gone; a path that is a link is not followed. */
static int remove_tree(const char *path) {
    struct stat at;
    if (lstat(path, &at))
        return errno == ENOENT ? 0 : -1;
    return nftw(path, remove_entry, DESCRIPTORS, FTW_DEPTH | FTW_PHYS);
}

/* Bytes of the regular files below a folder. */
static mn_status add_bytes(const char *folder, uint64_t *bytes, mn_error *err) {
    mn_names names = {0};
    mn_status st = mn_names_read_all(folder, &names, err);
    for (uint32_t i = 0; i < names.n && !st; i++) {
        struct stat at;
        char *path = mn_path_join(folder, names.at[i]);
        if (!path)
            st = mn_fail_memory(err, strlen(folder));
        else if (!lstat(path, &at) && S_ISREG(at.st_mode))
            *bytes += (uint64_t)at.st_size;
        else if (!lstat(path, &at) && S_ISDIR(at.st_mode))
            st = add_bytes(path, bytes, err);
        mn_free(path);
    }
    mn_names_free(&names);
    return st;
}

static mn_status remove_repo(const struct mn_found *found, bool only_ask, uint64_t *bytes,
                             mn_error *err) {
    const char *base = strrchr(found->folder, '/') + 1;
    mn_text locks = {0};
    mn_status st = add_bytes(found->folder, bytes, err);
    mn_text_printf(&locks, "%s/.locks/%s", found->cache, base);
    if (!st && locks.failed)
        st = mn_fail_memory(err, strlen(found->cache));
    if (!st && !only_ask && remove_tree(found->folder))
        st = mn_fail_errno(err, found->folder, "cannot remove");
    if (!st && !only_ask)
        remove_tree(locks.ptr);
    mn_text_free(&locks);
    return st;
}

/* ---- files of one snapshot ------------------------------------------------------------------- */
/* What a link leads to, without links; "" = nothing. */
static bool target_of(const char *path, char real[PATH_MAX]) {
    if (realpath(path, real))
        return true;
    real[0] = 0;
    return false;
}

/* How many of the files below folder lead to `real`. All of them have to be seen: a blob that
 * another snapshot needs would be removed. */
static mn_status count_links(const char *folder, const char *real, uint32_t *n, mn_error *err) {
    mn_listing list = {0};
    mn_status st = mn_listing_read_all(folder, &list, err);
    for (uint32_t i = 0; i < list.n && !st; i++) {
        char other[PATH_MAX];
        char *path = mn_path_join(folder, list.files[i].name.ptr);
        if (!path)
            st = mn_fail_memory(err, strlen(folder));
        else if (target_of(path, other) && !strcmp(other, real))
            ++*n;
        mn_free(path);
    }
    mn_listing_free(&list);
    return st;
}

/* Whether a path without links lies below a folder without links. */
static bool is_below(const char *real, const char *folder) {
    const size_t n = strlen(folder);
    return !strncmp(real, folder, n) && real[n] == '/';
}

/* One file of a snapshot, and its blob if nothing else leads there. */
static mn_status remove_file(const char *snapshots, const char *path, const char *repo_real,
                             bool only_ask, uint64_t *bytes, mn_error *err) {
    char real[PATH_MAX];
    struct stat at;
    uint32_t n = 0;
    const bool leads = target_of(path, real) && !stat(real, &at);
    mn_status st = leads ? count_links(snapshots, real, &n, err) : MN_OK;
    const bool own = leads && is_below(real, repo_real);
    if (st)
        return st;
    if (own && n <= 1)
        *bytes += (uint64_t)at.st_size;
    if (only_ask)
        return MN_OK;
    if (unlink(path) && errno != ENOENT)
        return mn_fail_errno(err, path, "cannot remove");
    if (own && n <= 1 && unlink(real) && errno != ENOENT)
        return mn_fail_errno(err, real, "cannot remove");
    return MN_OK;
}

static mn_status remove_chosen(const struct mn_found *found, const char *snapshot,
                               const mn_listing *list, const uint8_t *chosen, bool only_ask,
                               uint64_t *bytes, mn_error *err) {
    char repo[PATH_MAX];
    char real[PATH_MAX];
    char *snapshots = mn_path_join(found->folder, "snapshots");
    mn_status st = snapshots ? MN_OK : mn_fail_memory(err, strlen(found->folder));
    if (!st && !realpath(found->folder, repo))
        st = mn_fail_errno(err, found->folder, "cannot look at");
    if (!st && target_of(snapshot, real) && !is_below(real, repo))
        st = mn_fail(err, MN_UNSUPPORTED,
                     "%s: leads out of the cache to %s, whose files are not removed", snapshot,
                     real);
    for (uint32_t i = 0; i < list->n && !st; i++) {
        char *path = chosen[i] ? mn_path_join(snapshot, list->files[i].name.ptr) : NULL;
        if (path)
            st = remove_file(snapshots, path, repo, only_ask, bytes, err);
        else if (chosen[i])
            st = mn_fail_memory(err, strlen(snapshot));
        mn_free(path);
    }
    mn_free(snapshots);
    return st;
}

static mn_status remove_some(const mn_choose_how *how, const struct mn_found *found, bool only_ask,
                             uint64_t *bytes, mn_error *err) {
    mn_text why = {0};
    mn_listing list = {0};
    mn_hub_choice choice = {.size = sizeof choice};
    char *snapshot = NULL;
    mn_status st = mn_hf_snapshot(found->folder, found->name.revision, &snapshot, &why, err);
    if (!st)
        st = mn_listing_read(snapshot, MN_HF_DEPTH, &list, err);
    uint8_t *chosen = st ? NULL : mn_calloc(list.n + 1u, 1);
    if (!st && !chosen)
        st = mn_fail_memory(err, list.n);
    if (!st)
        st = mn_choose_files(how, list.files, list.n, found->name.what, chosen, &choice, NULL, err);
    if (!st)
        st = remove_chosen(found, snapshot, &list, chosen, only_ask, bytes, err);
    mn_free(chosen);
    mn_listing_free(&list);
    mn_free(snapshot);
    mn_text_free(&why);
    return st;
}

/* Whether a snapshot still has a file, be it another program's. */
static mn_status has_files(const struct mn_found *found, bool *has, mn_error *err) {
    mn_listing list = {0};
    char *snapshots = mn_path_join(found->folder, "snapshots");
    const mn_status st = snapshots ? mn_listing_read_all(snapshots, &list, err)
                                   : mn_fail_memory(err, strlen(found->folder));
    *has = list.n > 0;
    mn_listing_free(&list);
    mn_free(snapshots);
    return st;
}

mn_status mn_hf_remove_model(const mn_choose_how *how, const struct mn_found *found, bool only_ask,
                             uint64_t *bytes, mn_error *err) {
    struct stat at;
    bool has = true;
    uint64_t rest = 0;
    *bytes = 0;
    if (lstat(found->folder, &at))
        return mn_fail_errno(err, found->folder, "cannot look at");
    if (!S_ISDIR(at.st_mode))
        return mn_fail(err, MN_UNSUPPORTED, "%s: is no folder of the cache", found->folder);
    if (!*found->name.what && !*found->name.revision)
        return remove_repo(found, only_ask, bytes, err);
    mn_status st = remove_some(how, found, only_ask, bytes, err);
    if (!st && !only_ask)
        st = has_files(found, &has, err);
    if (st || has)
        return st;
    st = remove_repo(found, false, &rest, err);
    *bytes += rest;
    return st;
}
