/* fail_alloc.c -- a library for LD_PRELOAD: memory runs out at one allocation of a program.
 *
 * The calls of malloc, calloc, realloc, aligned_alloc, posix_memalign and mmap are counted over the
 * program and all that it starts, libraries included; call number N returns NULL. The count lives
 * in a file that they all map. What is behind is glibc's own allocator.
 *
 *   FAIL_ALLOC_COUNT   a file of at least 4096 bytes: the count is its first 8 bytes
 *   FAIL_ALLOC_AT      N, from 1; 0 or absent: all succeed and are counted. "N+": all from N on
 *   FAIL_ALLOC_TRACE   a file that the call chain of the failure is appended to */
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* They take the place of the C library's functions, so they are visible in every build. */
#pragma GCC visibility push(default)
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static _Atomic uint64_t *count; /* NULL: nothing is counted yet, or any more */
static uint64_t fails_at;
static bool fails_on;
static int trace = -1;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAIL_ALLOC_COUNT");
    const char *at = getenv("FAIL_ALLOC_AT");
    const char *to = getenv("FAIL_ALLOC_TRACE");
    const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    char *end = NULL;
    void *frames[4];
    if (fd < 0)
        return;
    if (to) {
        backtrace(frames, 4); /* loads its library now */
        trace = open(to, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    }
    fails_at = at ? strtoull(at, &end, 10) : 0;
    fails_on = end && *end == '+';
    void *page = (void *)syscall(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED)
        count = page;
    close(fd);
}

static bool fails(void) {
    void *frames[64];
    if (!count)
        return false;
    const uint64_t n = atomic_fetch_add(count, 1) + 1;
    if (n != fails_at && (!fails_on || !fails_at || n < fails_at))
        return false;
    if (trace >= 0)
        backtrace_symbols_fd(frames, backtrace(frames, 64), trace);
    errno = ENOMEM;
    return true;
}

void *malloc(size_t n) {
    return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size) {
    return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n) {
    return fails() ? NULL : __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n) {
    return fails() ? NULL : __libc_memalign(align, n);
}

void *memalign(size_t align, size_t n) {
    return fails() ? NULL : __libc_memalign(align, n);
}

int posix_memalign(void **p, size_t align, size_t n) {
    void *got = fails() ? NULL : __libc_memalign(align, n);
    if (!got)
        return ENOMEM;
    *p = got;
    return 0;
}

/* Both names of the call: off_t of 32 and of 64 bits. */
static void *map(void *at, size_t n, int prot, int flags, int fd, int64_t offset) {
    if (fails())
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}
void *map_short(void *, size_t, int, int, int, int64_t) __asm__("mmap");
void *map_long(void *, size_t, int, int, int, int64_t) __asm__("mmap64");

void *map_short(void *at, size_t n, int prot, int flags, int fd, int64_t offset) {
    return map(at, n, prot, flags, fd, offset);
}

void *map_long(void *at, size_t n, int prot, int flags, int fd, int64_t offset) {
    return map(at, n, prot, flags, fd, offset);
}
