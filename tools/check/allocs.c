/* allocs.c -- see allocs.h. The functions below are the whole process's, since a program's symbols
 * come before those of libraries; each is the C library's own with a look at who calls. Memory that
 * a library allocates on the plugin's behalf (a driver, the C++ runtime) has another caller and
 * does not count. */
#include "allocs.h"
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OTHERS_ALLOCATOR
#endif

#if defined(__GLIBC__) && !defined(OTHERS_ALLOCATOR)
static _Atomic uintptr_t code_lo, code_hi;
static atomic_ullong n_calls;

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);
extern void __libc_free(void *p);

/* Libraries see these only if they are exported. */
#define OVER_LIBC __attribute__((visibility("default")))

/* Blocks that are remembered, in a table by address; GONE: the place was one's. */
enum { BLOCKS = 1 << 16 };
#define GONE ((void *)1)
static struct {
    void *at;
    size_t bytes;
    const char *call;
} blocks[BLOCKS];
static _Atomic(_Atomic(const char *) *) tracked; /* NULL = no block is remembered */
static atomic_flag blocks_lock = ATOMIC_FLAG_INIT;

static bool is_own_caller(const void *caller) {
    const uintptr_t at = (uintptr_t)caller;
    return at >= atomic_load(&code_lo) && at < atomic_load(&code_hi);
}

static void blocks_enter(void) {
    while (atomic_flag_test_and_set(&blocks_lock))
        ;
}

static void blocks_leave(void) {
    atomic_flag_clear(&blocks_lock);
}

static size_t first_place(const void *p) {
    return (size_t)((uintptr_t)p >> 4) * 2654435761u % BLOCKS;
}

/* A table that is full remembers no more. */
static void remember(void *p, size_t n, const char *call) {
    blocks_enter();
    for (size_t i = 0, at = first_place(p); i < BLOCKS; i++, at = (at + 1) % BLOCKS) {
        if (blocks[at].at && blocks[at].at != GONE)
            continue;
        blocks[at].at = p;
        blocks[at].bytes = n;
        blocks[at].call = call;
        break;
    }
    blocks_leave();
}

static void forget_block(const void *p) {
    if (!p || !atomic_load(&tracked))
        return;
    blocks_enter();
    for (size_t i = 0, at = first_place(p); i < BLOCKS && blocks[at].at; i++) {
        if (blocks[at].at == p) {
            blocks[at].at = GONE;
            break;
        }
        at = (at + 1) % BLOCKS;
    }
    blocks_leave();
}

/* p: a new block. */
static void *note(const void *caller, void *p, size_t n) {
    _Atomic(const char *) *call = atomic_load(&tracked);
    if (!is_own_caller(caller))
        return p;
    atomic_fetch_add(&n_calls, 1);
    if (p && call)
        remember(p, n, atomic_load(call));
    return p;
}

OVER_LIBC void *malloc(size_t n) {
    return note(__builtin_return_address(0), __libc_malloc(n), n);
}
OVER_LIBC void *calloc(size_t n, size_t size) {
    return note(__builtin_return_address(0), __libc_calloc(n, size), n * size);
}
OVER_LIBC void *realloc(void *p, size_t n) {
    forget_block(p);
    return note(__builtin_return_address(0), __libc_realloc(p, n), n);
}
OVER_LIBC void *aligned_alloc(size_t align, size_t n) {
    return note(__builtin_return_address(0), __libc_memalign(align, n), n);
}
OVER_LIBC void free(void *p) {
    forget_block(p);
    __libc_free(p);
}

typedef struct {
    uintptr_t at, lo, hi;
} file_range;
static int find_range(struct dl_phdr_info *info, size_t size, void *arg) {
    file_range *r = arg;
    uintptr_t lo = UINTPTR_MAX;
    uintptr_t hi = 0;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const uintptr_t begin = (uintptr_t)info->dlpi_addr + p->p_vaddr;
        if (p->p_type != PT_LOAD)
            continue;
        lo = begin < lo ? begin : lo;
        hi = begin + p->p_memsz > hi ? begin + p->p_memsz : hi;
    }
    if (r->at < lo || r->at >= hi)
        return 0;
    r->lo = lo;
    r->hi = hi;
    return 1;
}

int allocs_begin(const void *in_file) {
    file_range r = {.at = (uintptr_t)in_file};
    if (!dl_iterate_phdr(find_range, &r))
        return 0;
    atomic_store(&n_calls, 0);
    atomic_store(&code_hi, r.hi);
    atomic_store(&code_lo, r.lo);
    return 1;
}

uint64_t allocs_end(void) {
    atomic_store(&code_hi, 0);
    return atomic_load(&n_calls);
}

int allocs_track(const void *in_file, _Atomic(const char *) *call) {
    memset(blocks, 0, sizeof blocks);
    if (!allocs_begin(in_file))
        return 0;
    atomic_store(&tracked, call);
    return 1;
}

allocs_left allocs_stop(void) {
    allocs_left left = {0};
    atomic_store(&tracked, NULL);
    allocs_end();
    for (size_t i = 0; i < BLOCKS; i++) {
        if (!blocks[i].at || blocks[i].at == GONE)
            continue;
        left.n++;
        left.bytes += blocks[i].bytes;
        left.call = blocks[i].call;
    }
    return left;
}
#else
int allocs_begin(const void *in_file) {
    (void)in_file;
    return 0;
}
uint64_t allocs_end(void) {
    return 0;
}
int allocs_track(const void *in_file, _Atomic(const char *) *call) {
    (void)in_file;
    (void)call;
    return 0;
}
allocs_left allocs_stop(void) {
    return (allocs_left){0};
}
#endif
