/* cache.c -- small files that are the user's own, below $XDG_CACHE_HOME/minerva: what probes found,
 * what devices were measured at. Everybody who keeps something there does it by these functions.
 *
 * The folder that XDG_CACHE_HOME or HOME names is taken as the user meant it: links are followed, a
 * folder such as /tmp will do. From `minerva` on nobody else has a say: each folder is opened from
 * the one before, never through a link, and must belong to the user and be closed to others. A file
 * is read only if it is a regular file of the user's, and is replaced as a whole: a pipe, a device
 * or a link at its place is never opened for writing, and nobody waits for one. */
#include "base/base.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_FOLDER (O_RDONLY | O_DIRECTORY | O_CLOEXEC)

static mn_status cache_fail_errno(mn_error *err, const char *path, const char *what) {
    int code = errno;
    mn_fail(err, MN_IO_ERROR, "cache: %s: %s: %s", path, what, strerror(code));
    if (err)
        err->vendor_code = code;
    return MN_IO_ERROR;
}

/* ---- the folder that the environment names --------------------------------------------------- */

/* A process of root that was given another user's HOME would leave files there that the user could
 * not write. */
static bool is_own(const struct stat *st) {
    return st->st_uid == geteuid() || st->st_uid == 0;
}

/* Whether path is folder, or lies in it. */
static bool lies_in(const char *path, const char *folder) {
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    return !strncmp(path, folder, n) && (n == 1 || path[n] == '/' || !path[n]);
}

/* Makes the folders of path that are missing, but never a home: a user without one has no cache. */
static mn_status cache_make_folders(const char *path, mn_error *err) {
    const char *home = secure_getenv("HOME");
    struct stat st;
    if (home && *home == '/' && lies_in(path, home)) {
        if (stat(home, &st))
            return cache_fail_errno(err, home, "cannot look at the home");
        if (!is_own(&st))
            return mn_fail(err, MN_IO_ERROR, "cache: %s: belongs to user %u", home,
                           (unsigned)st.st_uid);
    }
    char part[PATH_MAX];
    const size_t n = strlen(path);
    for (size_t i = 1; i <= n && n < sizeof part; i++) {
        if (path[i] && path[i] != '/')
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0700) && errno != EEXIST)
            return cache_fail_errno(err, part, "cannot make the folder");
    }
    return MN_OK;
}

/* Opens $XDG_CACHE_HOME, else ~/.cache. MN_END: there is no such place. */
static mn_status open_base(bool make, int *fd, mn_error *err) {
    char path[PATH_MAX];
    const char *base = secure_getenv("XDG_CACHE_HOME");
    const char *tail = "";
    if (!base || *base != '/') {
        base = secure_getenv("HOME");
        tail = "/.cache";
    }
    if (!base || *base != '/')
        return mn_fail(err, MN_END, "cache: neither XDG_CACHE_HOME nor HOME names a folder");
    int n = snprintf(path, sizeof path, "%s%s", base, tail);
    if (n < 0 || (size_t)n >= sizeof path)
        return mn_fail(err, MN_END, "cache: the path of its folder is too long");
    *fd = open(path, OPEN_FOLDER);
    if (*fd < 0 && errno == ENOENT && make) {
        mn_status status = cache_make_folders(path, err);
        if (status != MN_OK)
            return status;
        *fd = open(path, OPEN_FOLDER);
    }
    if (*fd < 0)
        return cache_fail_errno(err, path, "cannot open the folder");
    struct stat st;
    if (!fstat(*fd, &st) && is_own(&st))
        return MN_OK;
    close(*fd);
    return mn_fail(err, MN_IO_ERROR, "cache: %s: belongs to user %u", path, (unsigned)st.st_uid);
}

/* ---- from there on --------------------------------------------------------------------------- */

static const char *not_private(const struct stat *st) {
    if (st->st_uid != geteuid())
        return "it belongs to another user";
    return st->st_mode & (S_IWGRP | S_IWOTH) ? "others may write it" : NULL;
}

/* Goes from the open folder *at into the one of n bytes of name, made if need be; *at is closed and
 * replaced, or closed. */
static mn_status cache_enter(int *at, const char *name, size_t n, bool make, mn_error *err) {
    char folder[NAME_MAX + 1];
    struct stat st;
    int fd = -1;
    if (n < sizeof folder) {
        memcpy(folder, name, n);
        folder[n] = 0;
        if (make)
            mkdirat(*at, folder, 0700); /* there already, most of the time */
        fd = openat(*at, folder, OPEN_FOLDER | O_NOFOLLOW);
    } else
        errno = ENAMETOOLONG;
    mn_status status = MN_OK;
    if (fd < 0 || fstat(fd, &st))
        status = cache_fail_errno(err, name, "cannot open its folder");
    else if (not_private(&st))
        status = mn_fail(err, MN_IO_ERROR, "cache: %s: unsafe folder: %s (mode %03o, user %u)",
                         folder, not_private(&st), st.st_mode & 0777u, (unsigned)st.st_uid);
    close(*at);
    if (status != MN_OK && fd >= 0)
        close(fd);
    *at = fd;
    return status;
}

/* Opens the folder of `name`; *leaf: the file's name in it. */
static mn_status open_folder(const char *name, bool make, int *fd, const char **leaf,
                             mn_error *err) {
    mn_status status = open_base(make, fd, err);
    if (status == MN_OK)
        status = cache_enter(fd, "minerva", strlen("minerva"), make, err);
    *leaf = name;
    for (const char *slash; status == MN_OK && (slash = strchr(*leaf, '/')); *leaf = slash + 1)
        status = cache_enter(fd, *leaf, (size_t)(slash - *leaf), make, err);
    return status;
}

static mn_status check_own(int fd, const char *name, mn_error *err) {
    struct stat st;
    if (fstat(fd, &st))
        return cache_fail_errno(err, name, "cannot look at it");
    if (!S_ISREG(st.st_mode))
        return mn_fail(err, MN_IO_ERROR, "cache: %s: not a regular file", name);
    if (not_private(&st))
        return mn_fail(err, MN_IO_ERROR, "cache: %s: %s (mode %03o, user %u)", name,
                       not_private(&st), st.st_mode & 0777u, (unsigned)st.st_uid);
    return MN_OK;
}

static mn_status fail_too_large(mn_error *err, const char *name, uint64_t max) {
    const mn_status st = mn_fail(err, MN_IO_ERROR, "cache: %s: is larger than %llu bytes", name,
                                 (unsigned long long)max);
    if (err)
        err->vendor_code = EFBIG;
    return st;
}

static mn_status cache_read_file(int fd, const char *name, uint64_t max, mn_text *out,
                                 mn_error *err) {
    char chunk[4096];
    uint64_t total = 0;
    mn_status st = check_own(fd, name, err);
    if (st)
        return st;
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0)
            return cache_fail_errno(err, name, "cannot read");
        if (n == 0)
            break;
        total += (uint64_t)n;
        if (total > max)
            return fail_too_large(err, name, max);
        mn_text_put(out, chunk, (size_t)n);
    }
    return out->failed ? mn_fail_memory(err, total) : MN_OK;
}

/* For reading; the caller closes *fd. */
static mn_status cache_open_entry(const char *name, int *fd, mn_error *err) {
    int folder;
    const char *leaf;
    mn_status status = open_folder(name, false, &folder, &leaf, err);
    if (status != MN_OK)
        return status;
    *fd = openat(folder, leaf, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (*fd < 0)
        status = cache_fail_errno(err, name, "cannot open");
    close(folder);
    return status;
}

static mn_status cache_map_file(int fd, const char *name, uint64_t max, mn_str *out,
                                mn_error *err) {
    struct stat file;
    mn_status st = check_own(fd, name, err);
    if (st)
        return st;
    if (fstat(fd, &file))
        return cache_fail_errno(err, name, "cannot look at it");
    if ((uint64_t)file.st_size > max)
        return fail_too_large(err, name, max);
    if (!file.st_size)
        return mn_fail(err, MN_IO_ERROR, "cache: %s: is empty", name);
    void *at = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return cache_fail_errno(err, name, "cannot map");
    *out = (mn_str){at, (uint64_t)file.st_size};
    return MN_OK;
}

static mn_status cache_map_entry(const char *name, uint64_t max, mn_str *out, mn_error *err) {
    int fd;
    mn_status status = cache_open_entry(name, &fd, err);
    if (status != MN_OK)
        return status;
    status = cache_map_file(fd, name, max, out, err);
    close(fd);
    return status;
}

static mn_status cache_read_entry(const char *name, uint64_t max, mn_text *out, mn_error *err) {
    int fd;
    mn_status status = cache_open_entry(name, &fd, err);
    if (status != MN_OK)
        return status;
    status = cache_read_file(fd, name, max, out, err);
    close(fd);
    if (status != MN_OK)
        mn_text_free(out);
    return status;
}

static mn_status write_file(int fd, const char *name, const char *data, uint64_t bytes,
                            mn_error *err) {
    while (bytes) {
        ssize_t n = write(fd, data, (size_t)MN_MIN(bytes, (uint64_t)1 << 30));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cache_fail_errno(err, name, "cannot write");
        data += n;
        bytes -= (uint64_t)n;
    }
    return MN_OK;
}

/* No fsync: what a crash of the machine leaves behind is checked by who reads it. */
static mn_status write_entry(const char *name, const mn_str *parts, uint32_t n, mn_error *err) {
    char tmp[64]; /* threads may write the same name */
    int folder;
    const char *leaf;
    mn_status status = open_folder(name, true, &folder, &leaf, err);
    if (status != MN_OK)
        return status;
    snprintf(tmp, sizeof tmp, ".tmp-%ld-%ld", (long)getpid(), (long)gettid());
    unlinkat(folder, tmp, 0); /* left by a process of this number that was killed */
    int fd = openat(folder, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        status = cache_fail_errno(err, name, "cannot create");
    for (uint32_t i = 0; i < n && status == MN_OK; i++)
        status = write_file(fd, name, parts[i].ptr, parts[i].len, err);
    if (fd >= 0 && close(fd) && status == MN_OK)
        status = cache_fail_errno(err, name, "cannot write");
    if (status == MN_OK && renameat(folder, tmp, folder, leaf))
        status = cache_fail_errno(err, name, "cannot replace");
    if (fd >= 0 && status != MN_OK)
        unlinkat(folder, tmp, 0);
    close(folder);
    return status;
}

/* Nobody is told of a cache that is passed over but who asks: it costs time, not results. */
static mn_status cache_tell(mn_status status, const mn_error *why, mn_error *err) {
    if (status == MN_OK || (status == MN_IO_ERROR && why->vendor_code == ENOENT && !err))
        return status;
    mn_log(MN_LOG_DEBUG, "%s", why->msg);
    mn_fail(err, status, "%s", why->msg);
    if (err)
        err->vendor_code = why->vendor_code;
    return status;
}

mn_status mn_cache_read(const char *name, uint64_t max, mn_text *out, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    return cache_tell(cache_read_entry(name, max, out, &why), &why, err);
}

mn_status mn_cache_map(const char *name, uint64_t max, mn_str *out, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    return cache_tell(cache_map_entry(name, max, out, &why), &why, err);
}

void mn_cache_unmap(mn_str mapped) {
    munmap((void *)(uintptr_t)mapped.ptr, (size_t)mapped.len);
}

mn_status mn_cache_write_parts(const char *name, const mn_str *parts, uint32_t n, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    return cache_tell(write_entry(name, parts, n, &why), &why, err);
}

mn_status mn_cache_write(const char *name, const void *data, uint64_t bytes, mn_error *err) {
    const mn_str all = {data, bytes};
    return mn_cache_write_parts(name, &all, 1, err);
}

static mn_status open_append(int folder, const char *leaf, const char *name, int *fd,
                             mn_error *err) {
    const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    *fd = openat(folder, leaf, flags | O_NOCTTY, 0600);
    if (*fd < 0)
        return cache_fail_errno(err, name, "cannot open");
    mn_status st = check_own(*fd, name, err);
    if (st)
        close(*fd);
    return st;
}

/* What cannot be appended to is replaced, as by writing. */
static mn_status cache_append_entry(const char *name, int *fd, mn_error *err) {
    int folder;
    const char *leaf;
    mn_status st = open_folder(name, true, &folder, &leaf, err);
    if (st)
        return st;
    st = open_append(folder, leaf, name, fd, err);
    if (st && !unlinkat(folder, leaf, 0))
        st = open_append(folder, leaf, name, fd, err);
    close(folder);
    return st;
}

mn_status mn_cache_append(const char *name, int *fd, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    return cache_tell(cache_append_entry(name, fd, &why), &why, err);
}

void mn_cache_remove(const char *name) {
    int folder;
    const char *leaf;
    if (open_folder(name, false, &folder, &leaf, NULL) != MN_OK)
        return;
    unlinkat(folder, leaf, 0);
    close(folder);
}
