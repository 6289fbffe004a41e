/* fence.c -- see fence.h. Two mappings in one: pages for the n bytes, and one page without
 * access behind them. The caller owns the fence. */
#include "fence.h"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

fence fence_new(size_t n) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t room = (n + page - 1) / page * page;
    fence f = {.mapped = room + page};
    char *base = mmap(NULL, f.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return f;
    f.base = base;
    if (mprotect(base + room, page, PROT_NONE)) {
        fence_free(&f);
        return f;
    }
    f.at = base + room - n;
    memset(f.at, 0xee, n);
    return f;
}

void fence_free(fence *f) {
    if (f->base)
        munmap(f->base, f->mapped);
    f->base = NULL;
    f->at = NULL;
}
