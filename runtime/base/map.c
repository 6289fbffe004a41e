/* map.c -- files of a model in memory, mapped or read, and what happens to them meanwhile.
 *
 * A mapped file that becomes shorter, or whose disk fails, raises SIGBUS at the instruction that
 * touches a missing page. With MN_MAP_GUARD the process has a handler for that while such maps are
 * open. It never jumps: it puts zero pages under the rest of the map, sets a flag and returns, so
 * that the code that was interrupted, which may be a plugin's or a driver's, ends as always; the
 * flag is asked before its results are used. Every other SIGBUS goes to the handler that was there
 * before.
 *
 * The handler looks maps up in a list of slots that only grows: a slot is filled and emptied under
 * a lock, but read without one. A map whose fault is handled is in use, hence its slot is not being
 * emptied. */
#include "base/sealed.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct guard_slot {
    struct guard_slot *next;
    atomic_uintptr_t begin, end; /* whole pages; begin 0 = the slot is free */
    atomic_bool faulted;
} guard_slot;

typedef struct mn_watch {
    char *path, *real;    /* as given, for messages; where it is whatever the working folder */
    struct stat was;      /* when it was mapped */
    guard_slot *guard;    /* NULL = not guarded */
    atomic_bool modified; /* found by its size or time */
} watch;

/* ---- the guard ------------------------------------------------------------------------------- */
static pthread_mutex_t guard_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(guard_slot *) slots; /* all there ever were; never freed */
static uint32_t n_guarded;
static bool installed;          /* ours is the handler, or below one that came later */
static struct sigaction before; /* what was installed when ours came */
static uintptr_t page_bytes;

/* Puts zeros from the page of the fault to the end of its map. false = the fault is not ours. */
static bool mend(const siginfo_t *info) {
    const uintptr_t at = (uintptr_t)info->si_addr;
    if (info->si_code != BUS_ADRERR) /* sent by a process, or memory that failed */
        return false;
    for (guard_slot *s = atomic_load(&slots); s; s = s->next) {
        const uintptr_t begin = atomic_load(&s->begin);
        const uintptr_t end = atomic_load(&s->end);
        if (!begin || at < begin || at >= end || atomic_load(&s->begin) != begin)
            continue;
        const uintptr_t page = at & ~(page_bytes - 1);
        atomic_store(&s->faulted, true);
        return mmap((void *)page, end - page, PROT_READ,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
    }
    return false;
}

/* To the handler that was there before; the default one ends the process, with the instruction run
 * again, or the signal sent again, where it was sent. */
static void forward(int number, siginfo_t *info, void *context) {
    const bool sent = info->si_code <= 0;
    if (before.sa_flags & (int)SA_RESETHAND)
        signal(number, SIG_DFL);
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler == SIG_DFL || (before.sa_handler == SIG_IGN && !sent)) {
        signal(number, SIG_DFL);
        if (sent)
            raise(number);
    } else if (before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    }
}

static void on_fault(int number, siginfo_t *info, void *context) {
    const int saved = errno;
    if (!mend(info))
        forward(number, info, context);
    errno = saved;
}

static bool is_function(const struct sigaction *a) {
    return (a->sa_flags & SA_SIGINFO) || (a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN);
}

/* SA_ONSTACK: a thread with an alternate stack may have no other that signals fit on. A handler
 * that came after ours and is still there is not put below it: it would call ours, and ours it. */
static bool install(void) {
    struct sigaction now;
    struct sigaction ours = {.sa_sigaction = on_fault};
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (sigaction(SIGBUS, NULL, &now))
        return false;
    if (installed && is_function(&now))
        return true;
    before = now;
    ours.sa_mask = now.sa_mask;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (now.sa_flags & (SA_NODEFER | SA_RESTART));
    installed = !sigaction(SIGBUS, &ours, NULL);
    return installed;
}

/* Only if nobody has put another handler on top, who may call ours. */
static void uninstall(void) {
    struct sigaction now;
    if (sigaction(SIGBUS, NULL, &now) || !(now.sa_flags & SA_SIGINFO) ||
        now.sa_sigaction != on_fault)
        return;
    sigaction(SIGBUS, &before, NULL);
    installed = false;
}

static guard_slot *map_free_slot(void) {
    for (guard_slot *s = atomic_load(&slots); s; s = s->next)
        if (!atomic_load(&s->begin))
            return s;
    guard_slot *s = mn_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->next = atomic_load(&slots);
    atomic_store(&slots, s);
    return s;
}

static mn_status guard(watch *w, const mn_map *map, mn_error *err) {
    const uintptr_t begin = (uintptr_t)map->ptr;
    mn_status st = MN_OK;
    pthread_mutex_lock(&guard_lock);
    guard_slot *s = map_free_slot();
    if (!s)
        st = mn_fail_memory(err, sizeof *s);
    else if (!n_guarded && !install())
        st = mn_fail_errno(err, w->path, "cannot guard its map");
    if (!st) {
        n_guarded++;
        atomic_store(&s->faulted, false);
        atomic_store(&s->end, begin + ((map->bytes + page_bytes - 1) & ~(page_bytes - 1)));
        atomic_store(&s->begin, begin);
        w->guard = s;
    }
    pthread_mutex_unlock(&guard_lock);
    return st;
}

void mn_map_fork(bool before_it) {
    if (before_it)
        pthread_mutex_lock(&guard_lock);
    else
        pthread_mutex_unlock(&guard_lock);
}

static void unguard(guard_slot *s) {
    pthread_mutex_lock(&guard_lock);
    atomic_store(&s->begin, 0);
    if (!--n_guarded)
        uninstall();
    pthread_mutex_unlock(&guard_lock);
}

/* ---- maps ------------------------------------------------------------------------------------ */
static bool map_same(const struct stat *a, const struct stat *b) {
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void free_watch(watch *w) {
    if (w->guard)
        unguard(w->guard);
    free(w->real); /* realpath's own */
    mn_free(w->path);
    mn_free(w);
}

static mn_status watch_map(const char *path, const struct stat *st, uint32_t flags, mn_map *map,
                           mn_error *err) {
    watch *w = mn_calloc(1, sizeof *w);
    if (!w)
        return mn_fail_memory(err, sizeof *w);
    w->was = *st;
    w->path = mn_strndup(path, strlen(path));
    w->real = realpath(path, NULL); /* NULL: it has no name any more */
    mn_status status = w->path ? MN_OK : mn_fail_memory(err, strlen(path));
    if (!status && (flags & MN_MAP_GUARD) && map->bytes)
        status = guard(w, map, err);
    if (status)
        free_watch(w);
    else
        map->watch = w;
    return status;
}

static mn_status map_pages(int fd, const char *path, mn_map *map, mn_error *err) {
    void *ptr = mmap(NULL, (size_t)map->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (ptr == MAP_FAILED)
        return mn_fail_errno(err, path, "cannot map");
    map->ptr = ptr;
    return MN_OK;
}

static mn_status map_fill(int fd, const char *path, uint8_t *to, uint64_t bytes, mn_error *err) {
    for (uint64_t at = 0; at < bytes;) {
        ssize_t n = pread(fd, to + at, (size_t)MN_MIN(bytes - at, (uint64_t)1 << 30), (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return mn_fail_errno(err, path, "cannot read");
        if (!n)
            return mn_fail(err, MN_IO_ERROR, "%s: found %llu bytes, expected %llu as it was opened",
                           path, (unsigned long long)at, (unsigned long long)bytes);
        at += (uint64_t)n;
    }
    return MN_OK;
}

static mn_status read_pages(int fd, const char *path, const struct stat *was, mn_map *map,
                            mn_error *err) {
    struct stat now;
    const size_t bytes = (size_t)map->bytes;
    uint8_t *ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ptr == MAP_FAILED)
        return mn_fail_errno(err, path, "cannot be read into memory");
    mn_status st = map_fill(fd, path, ptr, bytes, err);
    if (!st && fstat(fd, &now))
        st = mn_fail_errno(err, path, "cannot stat");
    if (!st && !map_same(was, &now))
        st = mn_fail(err, MN_IO_ERROR, "%s: was modified while it was read", path);
    if (st) {
        munmap(ptr, bytes);
        return st;
    }
    mprotect(ptr, bytes, PROT_READ);
    map->ptr = ptr;
    return MN_OK;
}

mn_status mn_map_file(const char *path, uint32_t flags, mn_map *out, mn_error *err) {
    static const uint8_t nothing[1] = {0};
    int fd;
    struct stat st;
    mn_status status = mn_open_regular(path, &fd, &st, err);
    if (status)
        return status;
    mn_map map = {.ptr = nothing, .bytes = (uint64_t)st.st_size}; /* mmap refuses length 0 */
    if (map.bytes > SIZE_MAX)
        status = mn_fail(err, MN_OUT_OF_MEMORY, "%s: %llu bytes do not fit the address space", path,
                         (unsigned long long)map.bytes);
    else if (map.bytes)
        status = flags & MN_MAP_READ ? read_pages(fd, path, &st, &map, err)
                                     : map_pages(fd, path, &map, err);
    close(fd);
    if (status)
        return status;
    if (map.bytes)
        map.range = mn_sealed_note(map.ptr, (size_t)map.bytes);
    if (map.bytes && !map.range)
        status = mn_fail_memory(err, sizeof map.range);
    if (!status && !(flags & MN_MAP_READ))
        status = watch_map(path, &st, flags, &map, err);
    if (status)
        mn_unmap(&map);
    else
        *out = map;
    return status;
}

void mn_unmap(mn_map *map) {
    if (map->watch)
        free_watch(map->watch);
    mn_sealed_forget(map->range);
    if (map->bytes)
        munmap((void *)(uintptr_t)map->ptr, (size_t)map->bytes);
    *map = (mn_map){0};
}

/* Another file under the name: the one that is mapped lives on without it. */
static bool is_modified(watch *w) {
    struct stat now;
    if (atomic_load(&w->modified))
        return true;
    if (!w->real || stat(w->real, &now) || now.st_dev != w->was.st_dev ||
        now.st_ino != w->was.st_ino || map_same(&w->was, &now))
        return false;
    atomic_store(&w->modified, true);
    return true;
}

mn_status mn_map_changed(const mn_map *map, bool look, mn_error *err) {
    watch *w = map->watch;
    if (!w)
        return MN_OK;
    if (look ? is_modified(w) : atomic_load(&w->modified))
        return mn_fail(
            err, MN_IO_ERROR,
            "%s: the file was modified while it was in use; what was computed from it is "
            "discarded: open the model again",
            w->path);
    if (w->guard && atomic_load(&w->guard->faulted))
        return mn_fail(err, MN_IO_ERROR,
                       "%s: pages of the file are gone while it is in use: it became shorter, or "
                       "its disk cannot be read; what was computed from it is discarded: open the "
                       "model again",
                       w->path);
    return MN_OK;
}

uint64_t mn_map_modified(const mn_map *map) {
    const watch *w = map->watch;
    return w ? (uint64_t)w->was.st_mtim.tv_sec * 1000000000u + (uint64_t)w->was.st_mtim.tv_nsec : 0;
}
