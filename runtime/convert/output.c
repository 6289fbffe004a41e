/* output.c -- see output.h. Where the file system can, the file has no name until the end: nothing
 * is left of it, whatever happens. Elsewhere it is a temporary file beside the wanted one, which is
 * removed when anything fails. An mn_output belongs to one thread, from open to close. */
#include "convert/output.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static mn_status fail_errno(mn_error *err, const char *path, const char *what) {
    return mn_fail(err, MN_IO_ERROR, "%s: %s: %s", path, what, strerror(errno));
}

/* The folder that holds path; NULL = out of memory. */
static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash)
        return mn_strndup(".", 1);
    return mn_strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* An error where the file system says that the bytes do not fit: sooner than after hours. */
static mn_status output_check_room(const char *path, const char *folder, uint64_t bytes,
                                   mn_error *err) {
    struct statvfs v;
    if (statvfs(folder, &v))
        return fail_errno(err, folder, "cannot be written to");
    const uint64_t room = (uint64_t)v.f_bavail * v.f_frsize;
    if (room >= bytes)
        return MN_OK;
    return mn_fail(err, MN_IO_ERROR, "%s: needs %llu bytes, the file system has %llu left", path,
                   (unsigned long long)bytes, (unsigned long long)room);
}

/* A name beside path for this thread alone; NULL = out of memory. */
static char *temp_name(const char *path) {
    mn_text name = {0};
    mn_text_printf(&name, "%s.tmp-%ld-%ld", path, (long)getpid(), (long)gettid());
    if (!name.failed)
        return name.ptr;
    mn_text_free(&name);
    return NULL;
}

/* A file without a name is given one through /proc. */
static mn_status output_open_temp(mn_output *f, const char *folder, mn_error *err) {
    const bool nameless = !access("/proc/self/fd", X_OK);
    if (nameless)
        f->fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    else
        f->fd = -1;
    if (f->fd >= 0)
        return MN_OK;
    if (!nameless)
        errno = EOPNOTSUPP;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)
        return fail_errno(err, f->path, "cannot create");
    f->temp = temp_name(f->path);
    if (!f->temp)
        return mn_fail_memory(err, strlen(f->path));
    unlink(f->temp); /* left by a process of this number that was killed */
    f->fd = open(f->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (f->fd >= 0)
        return MN_OK;
    return fail_errno(err, f->path, "cannot create");
}

mn_status mn_output_open(const char *path, uint64_t bytes, bool force, mn_output *out,
                         mn_error *err) {
    struct stat st;
    const bool there = !stat(path, &st);
    *out = (mn_output){
        .path = path,
        .fd = -1,
        .force = force,
    };
    if (there && !S_ISREG(st.st_mode))
        return mn_fail(err, MN_IO_ERROR, "%s: is no regular file, expected a name for a new file",
                       path);
    if (there && !force)
        return mn_fail(err, MN_IO_ERROR, "%s: is there already; --force replaces it", path);
    out->folder = folder_of(path);
    if (!out->folder)
        return mn_fail_memory(err, strlen(path));
    mn_status status = output_check_room(path, out->folder, bytes, err);
    if (!status)
        status = output_open_temp(out, out->folder, err);
    if (status) {
        mn_free(out->temp);
        mn_free(out->folder);
    }
    return status;
}

mn_status mn_output_put(mn_output *f, const void *data, uint64_t bytes, mn_error *err) {
    const char *at = data;
    while (bytes) {
        const ssize_t n = write(f->fd, at, (size_t)MN_MIN(bytes, (uint64_t)1 << 30));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_errno(err, f->path, "cannot write");
        at += n;
        bytes -= (uint64_t)n;
    }
    return MN_OK;
}

/* The nameless file gets a name: its own if that must be free, else a temporary one, which replaces
 * what is there. */
static mn_status give_name(mn_output *f, mn_error *err) {
    char self[40];
    snprintf(self, sizeof self, "/proc/self/fd/%d", f->fd);
    if (!f->temp && !f->force) {
        if (!linkat(AT_FDCWD, self, AT_FDCWD, f->path, AT_SYMLINK_FOLLOW))
            return MN_OK;
        return fail_errno(err, f->path, "cannot create");
    }
    if (!f->temp) {
        f->temp = temp_name(f->path);
        if (!f->temp)
            return mn_fail_memory(err, strlen(f->path));
        unlink(f->temp);
        if (linkat(AT_FDCWD, self, AT_FDCWD, f->temp, AT_SYMLINK_FOLLOW))
            return fail_errno(err, f->path, "cannot create");
    }
    if (rename(f->temp, f->path))
        return fail_errno(err, f->path, "cannot replace");
    return MN_OK;
}

/* Makes the file's new name last: a rename and a link are changes of their folder. EINVAL: the file
 * system syncs no folders; EACCES: this user may write to it, not read it. */
static mn_status output_sync_folder(const char *folder, mn_error *err) {
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool failed = fd >= 0 ? fsync(fd) && errno != EINVAL : errno != EACCES;
    mn_status status = MN_OK;
    if (failed)
        status = fail_errno(err, folder, "cannot sync the folder");
    if (fd >= 0)
        close(fd);
    return status;
}

mn_status mn_output_close(mn_output *f, mn_status status, mn_error *err) {
    if (!status && fsync(f->fd) && errno != EINVAL)
        status = fail_errno(err, f->path, "cannot write");
    if (!status)
        status = give_name(f, err);
    if (close(f->fd) && !status)
        status = fail_errno(err, f->path, "cannot write");
    if (status && f->temp)
        unlink(f->temp);
    mn_free(f->temp);
    if (!status)
        status = output_sync_folder(f->folder, err);
    mn_free(f->folder);
    return status;
}
