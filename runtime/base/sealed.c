/* sealed.c -- pages that are written once (sealed.h), and the list of all memory that plugins are
 * given as const, for the handler of a SIGSEGV.
 *
 * The list has one range for each piece of such memory. It only grows: a range is filled and
 * emptied under a lock but read without one, as the handler may interrupt anything. The range that
 * a fault lies in is in use, hence not being emptied. */
#include "base/sealed.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGN = 16 };

struct mn_sealed_range {
    mn_sealed_range *next;
    atomic_uintptr_t begin, end; /* begin 0 = free */
};
struct mn_sealed {
    char *base;
    size_t bytes, used; /* bytes: whole pages */
    mn_sealed_range *range;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(mn_sealed_range *) ranges; /* all there ever were; never freed */

/* ---- the list -------------------------------------------------------------------------------- */
/* A free one; NULL = out of memory. The lock is held. */
static mn_sealed_range *free_range(void) {
    for (mn_sealed_range *r = atomic_load(&ranges); r; r = r->next)
        if (!atomic_load(&r->begin))
            return r;
    mn_sealed_range *r = mn_calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->next = atomic_load(&ranges);
    atomic_store(&ranges, r);
    return r;
}

mn_sealed_range *mn_sealed_note(const void *begin, size_t bytes) {
    pthread_mutex_lock(&lock);
    mn_sealed_range *r = free_range();
    if (r) {
        atomic_store(&r->end, (uintptr_t)begin + bytes);
        atomic_store(&r->begin, (uintptr_t)begin);
    }
    pthread_mutex_unlock(&lock);
    return r;
}

void mn_sealed_forget(mn_sealed_range *range) {
    if (range)
        atomic_store(&range->begin, 0);
}

bool mn_sealed_has(const void *address) {
    const uintptr_t at = (uintptr_t)address;
    for (const mn_sealed_range *r = atomic_load(&ranges); r; r = r->next) {
        const uintptr_t begin = atomic_load(&r->begin);
        if (begin && at >= begin && at < atomic_load(&r->end))
            return true;
    }
    return false;
}

/* ---- pages ----------------------------------------------------------------------------------- */
size_t mn_sealed_sum(size_t a, size_t b) {
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

size_t mn_sealed_room(size_t n, size_t size) {
    uint64_t bytes;
    if (!mn_mul_u64(n, size, &bytes) || bytes > PTRDIFF_MAX)
        return SIZE_MAX;
    return ((size_t)bytes + ALIGN - 1) / ALIGN * ALIGN;
}

mn_sealed *mn_sealed_open(size_t room) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (room > PTRDIFF_MAX - page)
        return NULL;
    mn_sealed *s = mn_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->bytes = (MN_MAX(room, (size_t)1) + page - 1) / page * page;
    void *base = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        mn_free(s);
        return NULL;
    }
    s->base = base;
    return s;
}

void *mn_sealed_take(mn_sealed *s, size_t n, size_t size) {
    void *at = s->base + s->used;
    s->used += mn_sealed_room(n, size);
    return at;
}

void *mn_sealed_copy(mn_sealed *s, const void *from, size_t n, size_t size) {
    void *to = mn_sealed_take(s, n, size);
    if (n)
        memcpy(to, from, n * size);
    return to;
}

bool mn_sealed_close(mn_sealed *s) {
    if (!mprotect(s->base, s->bytes, PROT_READ))
        s->range = mn_sealed_note(s->base, s->bytes);
    if (s->range)
        return true;
    mn_sealed_free(s);
    return false;
}

void mn_sealed_free(mn_sealed *s) {
    if (!s)
        return;
    mn_sealed_forget(s->range);
    munmap(s->base, s->bytes);
    mn_free(s);
}
