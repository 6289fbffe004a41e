/* store.c -- the cache of Hugging Face, written as huggingface_hub writes it (runtime/hub/hf.c has
 * its layout).
 *
 * A blob grows in blobs/ETAG.incomplete under the lock .locks/.../ETAG.lock, and gets its name by
 * rename when all its bytes are there, their hash is right, and they are on the disk. The snapshot
 * gets its links when all blobs are there, weights last, and the ref comes at the end: at any
 * moment a reader finds the model whole or not at all. A load that was killed leaves .incomplete,
 * whose bytes are summed and kept by the next. */
#include "hub.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int fail(const char *path, const char *what) {
    const int code = errno == ENOMEM ? EXIT_NO_MEMORY : EXIT_FAILED;
    return complain(code, "%s: %s: %s", path, what, strerror(errno));
}

/* a/b/c of printf's kind, malloc'ed; NULL: out of memory. */
static char *joined(const char *a, const char *b, const char *c, const char *end) {
    mn_text t = {0};
    const char *parts[] = {a, b, c, end};
    for (size_t i = 0; i < MN_COUNT(parts); i++)
        mn_text_puts(&t, parts[i]);
    return mn_text_take(&t);
}

/* The folders above path. */
static int make_folders(const char *path) {
    char *copy = strdup(path);
    int code = copy ? 0 : no_memory();
    for (char *c = copy ? copy + 1 : NULL; c && *c && !code; c++) {
        if (*c != '/')
            continue;
        *c = 0;
        if (mkdir(copy, 0777) && errno != EEXIST)
            code = fail(copy, "cannot make the folder");
        *c = '/';
    }
    free(copy);
    return code;
}

/* ---- blobs ----------------------------------------------------------------------------------- */
int hub_blob_is_there(const hub_store *s, const char *etag, uint64_t bytes) {
    struct stat at;
    char *path = joined(s->folder, "/blobs/", etag, "");
    const int there =
        path && !lstat(path, &at) && S_ISREG(at.st_mode) && (uint64_t)at.st_size == bytes;
    free(path);
    return there;
}

uint64_t hub_blob_left(const hub_store *s, const char *etag, uint64_t bytes) {
    struct stat at;
    char *path = etag[0] ? joined(s->folder, "/blobs/", etag, ".incomplete") : NULL;
    const int there = path && !lstat(path, &at) && S_ISREG(at.st_mode);
    free(path);
    return there && (uint64_t)at.st_size <= bytes ? (uint64_t)at.st_size : 0;
}

void hub_blob_close(hub_blob *b) {
    if (b->fd >= 0)
        close(b->fd);
    if (b->lock_fd >= 0)
        close(b->lock_fd);
    free(b->blob);
    free(b->part);
    free(b->lock);
    memset(b, 0, sizeof *b);
    b->fd = b->lock_fd = -1;
}

/* 0, -1: held by another program, or the exit code. */
static int take_lock(hub_blob *b) {
    const int code = make_folders(b->lock);
    if (code)
        return code;
    b->lock_fd = open(b->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (b->lock_fd < 0)
        return fail(b->lock, "cannot open");
    if (!flock(b->lock_fd, LOCK_EX | LOCK_NB))
        return 0;
    return errno == EWOULDBLOCK || errno == EINTR ? -1 : fail(b->lock, "cannot be locked");
}

static void begin_sum(hub_blob *b) {
    char head[40];
    const digest_kind kind = b->sum.kind;
    digest_begin(&b->sum, kind);
    b->summed = 0;
    if (kind == DIGEST_SHA1) { // git's blob: "blob SIZE", a NUL, the bytes
        const int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)b->expected);
        digest_put(&b->sum, head, (size_t)n + 1);
    }
}

static int open_part(hub_blob *b) {
    struct stat at;
    b->fd = open(b->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (b->fd < 0 || fstat(b->fd, &at))
        return fail(b->part, "cannot open");
    if (!S_ISREG(at.st_mode))
        return complain(EXIT_FAILED, "%s: is no regular file", b->part);
    b->have = (uint64_t)at.st_size;
    return b->have > b->expected ? hub_blob_restart(b) : 0;
}

int hub_blob_open(const hub_store *s, const char *etag, uint64_t bytes, digest_kind kind,
                  hub_blob *out) {
    const char *base = strrchr(s->folder, '/') + 1;
    char *locks = joined(s->cache, "/.locks/", base, "/");
    hub_blob b = {.fd = -1, .lock_fd = -1, .expected = bytes};
    snprintf(b.name, sizeof b.name, "%s", etag);
    b.blob = joined(s->folder, "/blobs/", etag, "");
    b.part = joined(s->folder, "/blobs/", etag, ".incomplete");
    b.lock = locks ? joined(locks, etag, ".lock", "") : NULL;
    free(locks);
    int code = b.blob && b.part && b.lock ? make_folders(b.blob) : no_memory();
    if (!code)
        code = take_lock(&b);
    b.sum.kind = kind;
    if (!code)
        code = open_part(&b);
    begin_sum(&b);
    if (code)
        hub_blob_close(&b);
    else
        *out = b;
    return code;
}

int hub_blob_restart(hub_blob *b) {
    if (ftruncate(b->fd, 0))
        return fail(b->part, "cannot be cut");
    b->have = 0;
    begin_sum(b);
    return 0;
}

void hub_blob_drop(hub_blob *b) {
    unlink(b->part);
}

int hub_blob_sum(hub_blob *b, size_t n) {
    static char chunk[1 << 16];
    while (b->summed < b->have && n) {
        const ssize_t got = pread(b->fd, chunk, sizeof chunk, (off_t)b->summed);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            fail(b->part, "cannot read");
            return -1;
        }
        digest_put(&b->sum, chunk, (size_t)got);
        b->summed += (uint64_t)got;
        n -= n < (size_t)got ? n : (size_t)got;
    }
    return b->summed < b->have;
}

int hub_blob_write(hub_blob *b, const void *bytes, size_t n) {
    const char *at = bytes;
    while (n) {
        const ssize_t put = pwrite(b->fd, at, n, (off_t)b->have);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return fail(b->part, "cannot write");
        digest_put(&b->sum, at, (size_t)put);
        b->have += (uint64_t)put;
        b->summed += (uint64_t)put;
        at += put;
        n -= (size_t)put;
    }
    return 0;
}

int hub_blob_finish(hub_blob *b, const char *hash, char hex[65]) {
    digest_end(&b->sum, hex);
    if (strcmp(hex, hash) != 0)
        return -1;
    if (fsync(b->fd))
        return fail(b->part, "cannot write");
    if (rename(b->part, b->blob))
        return fail(b->blob, "cannot be given its name");
    return 0;
}

/* ---- snapshots and refs ---------------------------------------------------------------------- */
/* A file system without links: the snapshot has the file itself. */
static int move_blob(const hub_store *s, const char *etag, const char *path) {
    char *blob = joined(s->folder, "/blobs/", etag, "");
    int code = blob ? 0 : no_memory();
    if (blob && rename(blob, path))
        code = fail(path, "cannot link");
    free(blob);
    return code;
}

static int link_at(const hub_store *s, const char *path, const char *target, const char *etag) {
    char temp[4200];
    snprintf(temp, sizeof temp, "%s.tmp-%ld", path, (long)getpid());
    unlink(temp);
    if (symlink(target, temp)) {
        if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS)
            return move_blob(s, etag, path);
        return fail(path, "cannot link");
    }
    if (!rename(temp, path))
        return 0;
    const int code = fail(path, "cannot link");
    unlink(temp);
    return code;
}

/* 1: the name leads to that blob already. */
static int is_linked(const char *path, const char *target) {
    char old[256];
    const ssize_t n = readlink(path, old, sizeof old - 1);
    if (n < 0)
        return 0;
    old[n] = 0;
    return !strcmp(old, target);
}

int hub_store_link(const hub_store *s, const char *name, const char *etag) {
    mn_text path = {0};
    mn_text target = {0};
    const char *parts[] = {s->folder, "/snapshots/", s->commit, "/", name};
    for (size_t i = 0; i < MN_COUNT(parts); i++)
        mn_text_puts(&path, parts[i]);
    mn_text_puts(&target, "../../");
    for (const char *c = name; *c; c++)
        if (*c == '/')
            mn_text_puts(&target, "../");
    mn_text_puts(&target, "blobs/");
    mn_text_puts(&target, etag);
    int code = path.failed || target.failed ? no_memory() : make_folders(path.ptr);
    if (!code && path.len > 4096)
        code = complain(EXIT_FAILED, "%s: found a path of %zu bytes, expected at most 4096", name,
                        path.len);
    if (!code && !is_linked(path.ptr, target.ptr))
        code = link_at(s, path.ptr, target.ptr, etag);
    mn_text_free(&path);
    mn_text_free(&target);
    return code;
}

static int write_ref(const char *temp, const char *path, const char *commit) {
    const int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return fail(path, "cannot write");
    const size_t n = strlen(commit);
    const int wrong = write(fd, commit, n) != (ssize_t)n || fsync(fd);
    if (close(fd) || wrong || rename(temp, path)) {
        const int code = fail(path, "cannot write");
        unlink(temp);
        return code;
    }
    return 0;
}

int hub_store_ref(const hub_store *s) {
    char pid[32];
    if (!s->revision)
        return 0;
    snprintf(pid, sizeof pid, ".tmp-%ld", (long)getpid());
    char *path = joined(s->folder, "/refs/", s->revision, "");
    char *temp = path ? joined(path, pid, "", "") : NULL;
    int code = temp ? make_folders(path) : no_memory();
    if (!code)
        code = write_ref(temp, path, s->commit);
    free(path);
    free(temp);
    return code;
}

/* ---- room ------------------------------------------------------------------------------------ */
int hub_store_room(const hub_store *s, uint64_t need) {
    struct statvfs disk;
    char has[32];
    char wants[32];
    char *path = strdup(s->cache);
    if (!path)
        return no_memory();
    while (statvfs(path, &disk) && errno == ENOENT && strrchr(path, '/') != path)
        *strrchr(path, '/') = 0; // the first folder above that is there
    const int known = !statvfs(path, &disk);
    const uint64_t room = known ? (uint64_t)disk.f_bavail * disk.f_frsize : UINT64_MAX;
    free(path);
    if (need <= room)
        return 0;
    return complain(EXIT_FAILED,
                    "%s: the disk has %s free, expected %s: HF_HUB_CACHE names another folder",
                    s->cache, human_bytes(room, has), human_bytes(need, wants));
}
