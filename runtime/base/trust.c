/* trust.c -- may this file be executed, loaded or believed? Looks at owners and modes of a file and
 * of the folders above it; holds nothing. The answer is for everybody who derives a path from where
 * the library lies (search.c, probe.c, api/model.c) and for plugins (plugin_file.c). */
#include "base/trust.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Written by meson beside libminerva and beside the tests that hold its parts: one line, the way
 * from there to the root of the build. Never installed. */
#define BUILD_TREE_MARK "minerva-build-tree"
#define MARK_MAX 64

void mn_trust_init(mn_trust *trust) {
    *trust = (mn_trust){.uid = geteuid()};
    struct stat st;
    if (mn_path_of_object((const void *)(uintptr_t)&mn_trust_init, trust->dir) &&
        !stat(trust->dir, &st)) {
        trust->uid = st.st_uid;
        trust->gid = st.st_gid;
        trust->has_gid = st.st_mode & S_IWGRP;
    } else {
        trust->dir[0] = 0;
    }
}

static bool owner_trusted(const mn_trust *trust, uid_t uid) {
    return uid == 0 || uid == geteuid() || uid == trust->uid;
}

/* A user's private group, which bears the user's number, has no other members. */
static bool group_trusted(const mn_trust *trust, gid_t gid) {
    return gid == 0 || (gid == getegid() && gid == geteuid()) ||
           (trust->has_gid && gid == trust->gid);
}

/* What makes writing by others possible; NULL = nothing. */
static const char *open_to_others(const mn_trust *trust, const struct stat *st) {
    if (st->st_mode & S_IWOTH)
        return "everybody may write it";
    if ((st->st_mode & S_IWGRP) && !group_trusted(trust, st->st_gid))
        return "another group may write it";
    if (!owner_trusted(trust, st->st_uid))
        return "it belongs to neither root nor yourself";
    return NULL;
}

/* A folder that holds libminerva too: who may write there needs no plugin. */
static bool holds_library(const mn_trust *trust, const char *folder) {
    size_t n = strlen(folder);
    return !strncmp(trust->dir, folder, n) && (n == 1 || trust->dir[n] == '/' || !trust->dir[n]);
}

/* Cuts the last name off an absolute path; false at the root. */
static bool to_parent(char *path) {
    char *slash = strrchr(path, '/');
    if (!slash || !path[1])
        return false;
    slash[slash == path] = 0;
    return true;
}

mn_status mn_trust_stat(const mn_trust *trust, const struct stat *st, mn_error *err) {
    const char *why = open_to_others(trust, st);
    if (!why)
        return MN_OK;
    return mn_fail(err, MN_BAD_FILE, "unsafe %s: %s (mode %03o, user %u)",
                   S_ISDIR(st->st_mode) ? "folder" : "file", why, st->st_mode & 0777u,
                   (unsigned)st->st_uid);
}

mn_status mn_trust_folders(const mn_trust *trust, const char *real, mn_error *err) {
    char folder[PATH_MAX];
    memcpy(folder, real, strlen(real) + 1);
    for (bool own = true; to_parent(folder); own = false) {
        struct stat st;
        if (holds_library(trust, folder))
            return MN_OK; /* and so do those above */
        if (stat(folder, &st))
            return mn_fail(err, MN_BAD_FILE, "cannot look at its folder %s: %s", folder,
                           strerror(errno));
        const char *why = open_to_others(trust, &st);
        bool only_own_files = !own && (st.st_mode & S_ISVTX) && st.st_uid == 0; /* /tmp */
        if (why && !only_own_files)
            return mn_fail(err, MN_BAD_FILE, "unsafe folder %s: %s (mode %03o, user %u)", folder,
                           why, st.st_mode & 0777u, (unsigned)st.st_uid);
    }
    return MN_OK;
}

mn_status mn_trust_path(const mn_trust *trust, const char *path, char real[PATH_MAX],
                        mn_error *err) {
    struct stat st;
    if (!realpath(path, real) || stat(real, &st))
        return mn_fail(err, MN_BAD_FILE, "%s: %s", path, strerror(errno));
    mn_status status = mn_trust_stat(trust, &st, err);
    if (status == MN_OK)
        status = mn_trust_folders(trust, real, err);
    return status == MN_OK ? MN_OK : mn_fail_in(err, status, "%s", path);
}

/* Reads the one line of the mark, which must be a file of its own that nobody else may write. */
static bool read_mark(const mn_trust *trust, const char *path, char line[MARK_MAX]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    struct stat st;
    ssize_t n = 0;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && mn_trust_stat(trust, &st, NULL) == MN_OK)
        n = read(fd, line, MARK_MAX - 1);
    close(fd);
    line[MN_MAX(n, 0)] = 0;
    line[strcspn(line, "\n")] = 0;
    return *line != 0;
}

/* No allocation: out of memory must not make a build tree look like an installed prefix. */
bool mn_trust_build_root(const mn_trust *trust, char root[PATH_MAX]) {
    char path[PATH_MAX];
    char up[MARK_MAX];
    int n = snprintf(path, sizeof path, "%s/" BUILD_TREE_MARK, trust->dir);
    if (!*trust->dir || n < 0 || (size_t)n >= sizeof path || !read_mark(trust, path, up))
        return false;
    n = snprintf(path, sizeof path, "%s/%s", trust->dir, up);
    return n > 0 && (size_t)n < sizeof path && mn_trust_path(trust, path, root, NULL) == MN_OK;
}
