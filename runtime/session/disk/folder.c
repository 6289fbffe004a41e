/* folder.c -- the folder of packs (disk.h): opened and checked, its key, names of files, and which
 * of them go when there are too many bytes. Files are named from folders that are held open, never
 * through links, and must be the user's own. Any thread. */
#include "session/disk/disk.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_CLOEXEC)
#define OPEN_FILE (O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)
enum { HEX = 32, ABOUT_MAX = 1 << 16 };

static mn_status disk_errno(mn_error *err, const char *path, const char *what) {
    const int code = errno;
    mn_fail(err, MN_IO_ERROR, "%s: %s: %s", path, what, strerror(code));
    if (err)
        err->vendor_code = code;
    return MN_IO_ERROR;
}

/* ---- opening --------------------------------------------------------------------------------- */
/* Makes the folder and those above it. */
static mn_status disk_make_folders(const char *path, mn_error *err) {
    char part[PATH_MAX];
    const size_t n = strlen(path);
    if (!n || n >= sizeof part)
        return mn_fail(err, MN_IO_ERROR, "cache_dir: found a path of %zu bytes", n);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] && path[i] != '/')
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0700) && errno != EEXIST)
            return disk_errno(err, part, "cannot make the folder of cache_dir");
    }
    return MN_OK;
}

static mn_status check_private(int fd, const char *path, mn_error *err) {
    struct stat st;
    if (fstat(fd, &st))
        return disk_errno(err, path, "cannot look at it");
    if (st.st_uid != geteuid())
        return mn_fail(err, MN_IO_ERROR, "%s: belongs to user %u, expected a folder of user %u",
                       path, (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & 077)
        return mn_fail(
            err, MN_IO_ERROR,
            "%s: others may use it (mode %03o), expected mode 700: it holds what prompts "
            "say",
            path, st.st_mode & 0777u);
    return MN_OK;
}

static mn_status open_top(const char *dir, int *fd, mn_error *err) {
    mn_status st = disk_make_folders(dir, err);
    if (st)
        return st;
    *fd = open(dir, OPEN_DIR);
    if (*fd < 0)
        return disk_errno(err, dir, "cannot open the folder of cache_dir");
    st = check_private(*fd, dir, err);
    if (!st && faccessat(*fd, ".", W_OK | X_OK, AT_EACCESS))
        st = disk_errno(err, dir, "cannot write to the folder of cache_dir");
    return st;
}

/* ---- the key --------------------------------------------------------------------------------- */
typedef struct {
    uint64_t key[2], digest;
} key_file;

static bool key_is_good(const key_file *k) {
    return k->digest == mn_hash(k->key, sizeof k->key, 3);
}

static bool read_key(int top, key_file *k) {
    const int fd = openat(top, "key", O_RDONLY | OPEN_FILE);
    if (fd < 0)
        return false;
    const bool good = read(fd, k, sizeof *k) == (ssize_t)sizeof *k && key_is_good(k);
    close(fd);
    return good;
}

/* Writes the key under a name of this process, then gives it its own name, which another process
 * may have done in between. */
static bool make_key(int top, const key_file *k) {
    char name[64];
    snprintf(name, sizeof name, "key.%ld.%016llx", (long)getpid(), (unsigned long long)k->key[0]);
    const int fd = openat(top, name, O_WRONLY | O_CREAT | O_EXCL | OPEN_FILE, 0600);
    if (fd < 0)
        return false;
    bool ok = write(fd, k, sizeof *k) == (ssize_t)sizeof *k;
    ok = !close(fd) && ok;
    ok = ok && (!linkat(top, name, top, "key", 0) || errno == EEXIST);
    unlinkat(top, name, 0);
    return ok;
}

/* One that is damaged is replaced: all that it was for is not found any more, and goes in time. */
static mn_status need_key(const char *dir, mn_disk_folder *f, mn_error *err) {
    enum { TRIES = 3 };
    key_file k = {.digest = 1};
    for (int i = 0; i < TRIES && !read_key(f->top, &k); i++) {
        if (getrandom(k.key, sizeof k.key, 0) != (ssize_t)sizeof k.key)
            return disk_errno(err, dir, "no random numbers for its key");
        k.digest = mn_hash(k.key, sizeof k.key, 3);
        if (i) /* there is one, and it is damaged */
            unlinkat(f->top, "key", 0);
        if (!make_key(f->top, &k))
            return disk_errno(err, dir, "cannot write its key");
    }
    if (!read_key(f->top, &k))
        return mn_fail(err, MN_IO_ERROR, "%s: its key cannot be read", dir);
    memcpy(f->key, k.key, sizeof f->key);
    return MN_OK;
}

/* ---- the identity ---------------------------------------------------------------------------- */
static void write_about(int own, mn_str about) {
    const int fd = openat(own, "about", O_WRONLY | O_CREAT | O_EXCL | OPEN_FILE, 0600);
    if (fd < 0)
        return;
    if (write(fd, about.ptr, (size_t)MN_MIN(about.len, (uint64_t)ABOUT_MAX)) < 0)
        unlinkat(own, "about", 0); /* it is for people alone */
    close(fd);
}

static mn_status open_own(const char *dir, mn_str about, mn_disk_folder *f, mn_error *err) {
    static const uint64_t none[2];
    char name[HEX + 1];
    mn_hash_keyed(f->key, none, about.ptr, (size_t)about.len, f->identity);
    snprintf(name, sizeof name, "%016llx%016llx", (unsigned long long)f->identity[0],
             (unsigned long long)f->identity[1]);
    if (mkdirat(f->top, name, 0700) && errno != EEXIST)
        return disk_errno(err, dir, "cannot make a folder in it");
    f->own = openat(f->top, name, OPEN_DIR | O_NOFOLLOW);
    if (f->own < 0)
        return disk_errno(err, dir, "cannot open a folder in it");
    const mn_status st = check_private(f->own, dir, err);
    if (!st)
        write_about(f->own, about);
    return st;
}

mn_status mn_disk_folder_open(const char *dir, mn_str about, mn_disk_folder *out, mn_error *err) {
    *out = (mn_disk_folder){.top = -1, .own = -1};
    mn_status st = open_top(dir, &out->top, err);
    if (!st)
        st = need_key(dir, out, err);
    if (!st)
        st = open_own(dir, about, out, err);
    if (st)
        mn_disk_folder_close(out);
    return st;
}

void mn_disk_folder_close(mn_disk_folder *f) {
    if (f->own >= 0)
        close(f->own);
    if (f->top >= 0)
        close(f->top);
    *f = (mn_disk_folder){.top = -1, .own = -1};
}

/* ---- files ----------------------------------------------------------------------------------- */
static bool is_hex(const char *s, size_t n) {
    return strspn(s, "0123456789abcdef") >= n;
}

static bool names_pack(const char *name) {
    return is_hex(name, HEX) && !strcmp(name + HEX, ".kv");
}

static bool names_temporary(const char *name) {
    const size_t n = strspn(name, "0123456789abcdef");
    return n && !strcmp(name + n, ".tmp");
}

/* The entries of a folder, which stays open; NULL: errno says why. */
static DIR *list_of(int folder) {
    const int fd = openat(folder, ".", OPEN_DIR);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list && fd >= 0)
        close(fd);
    return list;
}

/* A living writer holds a flock on it. */
static void remove_if_left(int folder, const char *name) {
    const int fd = openat(folder, name, O_RDONLY | OPEN_FILE);
    if (fd < 0)
        return;
    if (!flock(fd, LOCK_EX | LOCK_NB))
        unlinkat(folder, name, 0);
    close(fd);
}

mn_status mn_disk_folder_scan(const mn_disk_folder *f, mn_pack_fn fn, void *arg) {
    mn_status st = MN_OK;
    DIR *list = list_of(f->own);
    if (!list)
        return MN_IO_ERROR;
    for (const struct dirent *e = readdir(list); e && !st; e = readdir(list)) {
        if (names_pack(e->d_name))
            st = fn(arg, e->d_name);
        else if (names_temporary(e->d_name))
            remove_if_left(f->own, e->d_name);
    }
    closedir(list);
    return st;
}

uint64_t mn_disk_folder_changed(const mn_disk_folder *f) {
    struct stat st;
    if (fstat(f->own, &st))
        return 0;
    return (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
}

int mn_disk_folder_open_pack(const mn_disk_folder *f, const char *name) {
    struct stat st;
    const int fd = openat(f->own, name, O_RDONLY | OPEN_FILE);
    if (fd < 0)
        return -1;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid())
        return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

int mn_disk_folder_new_pack(const mn_disk_folder *f, char name[MN_PACK_NAME]) {
    uint64_t random = mn_now_ns();
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) < 0)
        random ^= (uint64_t)getpid() << 32;
    snprintf(name, MN_PACK_NAME, "%016llx.tmp", (unsigned long long)random);
    const int fd = openat(f->own, name, O_RDWR | O_CREAT | O_EXCL | OPEN_FILE, 0600);
    if (fd >= 0)
        flock(fd, LOCK_EX | LOCK_NB);
    return fd;
}

bool mn_disk_folder_keep(const mn_disk_folder *f, const char *temporary, const char *name) {
    return !renameat(f->own, temporary, f->own, name);
}

void mn_disk_folder_remove(const mn_disk_folder *f, const char *name) {
    unlinkat(f->own, name, 0);
}

/* ---- least recently used --------------------------------------------------------------------- */
typedef struct {
    char path[HEX + 1 + MN_PACK_NAME]; /* IDENTITY/NAME.kv */
    int64_t used_ns;
    uint64_t bytes;
} aged;

typedef struct {
    aged *at;
    size_t n, cap;
    uint64_t bytes;
} aged_list;

static void add_aged(aged_list *l, int folder, const char *identity, const char *name) {
    struct stat st;
    void *at = l->at;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
        return;
    if (!mn_grow(&at, &l->cap, l->n + 1, sizeof *l->at))
        return;
    l->at = at;
    aged *a = &l->at[l->n++];
    *a = (aged){.used_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
                .bytes = (uint64_t)st.st_size};
    snprintf(a->path, sizeof a->path, "%.32s/%.39s", identity, name);
    l->bytes += a->bytes;
}

/* The packs of one identity, and what killed writers left there. */
static void add_identity(aged_list *l, const mn_disk_folder *f, const char *identity) {
    const int fd = openat(f->top, identity, OPEN_DIR | O_NOFOLLOW);
    DIR *list = fd < 0 ? NULL : list_of(fd);
    for (const struct dirent *e = list ? readdir(list) : NULL; e; e = readdir(list)) {
        if (names_pack(e->d_name))
            add_aged(l, fd, identity, e->d_name);
        else if (names_temporary(e->d_name))
            remove_if_left(fd, e->d_name);
    }
    if (list)
        closedir(list);
    if (fd >= 0)
        close(fd);
}

static int by_age(const void *a, const void *b) {
    const aged *x = a;
    const aged *y = b;
    return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

/* Of a process that is not killed another one waits for the lock, for moments. */
static int lock_folder(const mn_disk_folder *f) {
    const int fd = openat(f->top, "lock", O_RDWR | O_CREAT | OPEN_FILE, 0600);
    if (fd >= 0)
        while (flock(fd, LOCK_EX) && errno == EINTR) {
        }
    return fd;
}

void mn_disk_folder_shrink(const mn_disk_folder *f, uint64_t most) {
    aged_list all = {0};
    const int lock = lock_folder(f);
    DIR *list = lock < 0 ? NULL : list_of(f->top);
    for (const struct dirent *e = list ? readdir(list) : NULL; e; e = readdir(list))
        if (strlen(e->d_name) == HEX && is_hex(e->d_name, HEX))
            add_identity(&all, f, e->d_name);
    if (list)
        closedir(list);
    if (all.bytes > most)
        qsort(all.at, all.n, sizeof *all.at, by_age);
    for (size_t i = 0; i < all.n && all.bytes > most; i++) {
        unlinkat(f->top, all.at[i].path, 0);
        all.bytes -= all.at[i].bytes;
    }
    mn_free(all.at);
    if (lock >= 0)
        close(lock);
}
