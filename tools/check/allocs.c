/* allocs.c -- see allocs.h. The functions below are the whole process's, since a program's symbols
 * come before those of libraries; each is the C library's own with a look at who calls. Memory that
 * a library allocates on the plugin's behalf (a driver, the C++ runtime) has another caller and
 * does not count. */
#include "allocs.h"
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>

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

/* Libraries see these only if they are exported. */
#define OVER_LIBC __attribute__((visibility("default")))

static void note(const void *caller) {
    const uintptr_t at = (uintptr_t)caller;
    if (at >= atomic_load(&code_lo) && at < atomic_load(&code_hi))
        atomic_fetch_add(&n_calls, 1);
}

OVER_LIBC void *malloc(size_t n) {
    note(__builtin_return_address(0));
    return __libc_malloc(n);
}
OVER_LIBC void *calloc(size_t n, size_t size) {
    note(__builtin_return_address(0));
    return __libc_calloc(n, size);
}
OVER_LIBC void *realloc(void *p, size_t n) {
    note(__builtin_return_address(0));
    return __libc_realloc(p, n);
}
OVER_LIBC void *aligned_alloc(size_t align, size_t n) {
    note(__builtin_return_address(0));
    return __libc_memalign(align, n);
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
#else
int allocs_begin(const void *in_file) {
    (void)in_file;
    return 0;
}
uint64_t allocs_end(void) {
    return 0;
}
#endif
