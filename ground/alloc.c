/* alloc.c -- malloc with overflow checks, failures injected by tests, and a bump allocator. */
#include "alloc.h"
#include "ground.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int64_t fail_after = -1; /* only tests set these */
static atomic_bool fail_once, failed;

static void inject(int64_t k, bool once) {
    atomic_store(&failed, false);
    atomic_store(&fail_once, once);
    atomic_store(&fail_after, k);
}
void mn_alloc_fail_after(int64_t k) {
    inject(k, false);
}
void mn_alloc_fail_once(int64_t k) {
    inject(k, true);
}
bool mn_alloc_failed(void) {
    return atomic_load(&failed);
}

/* Counts down to 1 and stays there: from then on every allocation fails, or this one. */
static bool injected_failure(void) {
    int64_t left = atomic_load_explicit(&fail_after, memory_order_relaxed);
    while (left > 1)
        if (atomic_compare_exchange_weak(&fail_after, &left, left - 1))
            return false;
    if (left < 0)
        return false;
    if (atomic_load(&fail_once))
        atomic_store(&fail_after, -1);
    atomic_store(&failed, true);
    errno = ENOMEM;
    return true;
}

/* n * size, at least 1 (so that 0 gives a pointer too); 0 = overflow. Beyond PTRDIFF_MAX no object
 * can exist. */
static size_t checked_bytes(size_t n, size_t size) {
    uint64_t bytes;
    if (!mn_mul_u64(n, size, &bytes) || bytes > PTRDIFF_MAX) {
        errno = ENOMEM;
        return 0;
    }
    return bytes ? (size_t)bytes : 1;
}

void *mn_alloc(size_t n, size_t size) {
    size_t bytes = checked_bytes(n, size);
    return !bytes || injected_failure() ? NULL : malloc(bytes);
}

void *mn_calloc(size_t n, size_t size) {
    size_t bytes = checked_bytes(n, size);
    return !bytes || injected_failure() ? NULL : calloc(1, bytes);
}

void *mn_realloc(void *ptr, size_t n, size_t size) {
    size_t bytes = checked_bytes(n, size);
    return !bytes || injected_failure() ? NULL : realloc(ptr, bytes);
}

void *mn_alloc_aligned(size_t bytes, size_t align) {
    if (!align || (align & (align - 1)) || bytes > PTRDIFF_MAX || injected_failure())
        return NULL;
    void *ptr = NULL;
    return posix_memalign(&ptr, MN_MAX(align, sizeof(void *)), bytes ? bytes : 1) ? NULL : ptr;
}

void mn_free(void *ptr) {
    free(ptr);
}

char *mn_strndup(const char *s, size_t n) {
    char *copy = n < SIZE_MAX ? mn_alloc(n + 1, 1) : NULL;
    if (!copy)
        return NULL;
    if (n)
        memcpy(copy, s, n);
    copy[n] = 0;
    return copy;
}

bool mn_grow(void **ptr, size_t *cap, size_t want, size_t size) {
    if (want <= *cap)
        return true;
    size_t more = *cap < SIZE_MAX / 2 ? MN_MAX(MN_MAX(*cap * 2, want), 8) : want;
    void *grown = mn_realloc(*ptr, more, size);
    if (!grown)
        return false;
    *ptr = grown;
    *cap = more;
    return true;
}

/* ---- arena: a list of blocks, the newest first; only the head has room left that counts ------ */
#define ARENA_ALIGN 16u
#define ARENA_BLOCK (64u << 10)
typedef struct mn_arena_block {
    struct mn_arena_block *next;
    size_t used;
    size_t cap;
} mn_arena_block;
#define ARENA_HEADER ((sizeof(mn_arena_block) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN)

static void *arena_take(mn_arena_block *block, size_t bytes) {
    void *ptr = (char *)block + ARENA_HEADER + block->used;
    block->used += bytes;
    return ptr;
}

void *mn_arena_alloc(mn_arena *a, size_t n, size_t size) {
    size_t bytes = checked_bytes(n, size);
    if (!bytes || bytes > PTRDIFF_MAX - ARENA_BLOCK)
        return NULL;
    bytes = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (a->head && a->head->cap - a->head->used >= bytes)
        return arena_take(a->head, bytes);
    size_t cap = MN_MAX(bytes, ARENA_BLOCK - ARENA_HEADER);
    mn_arena_block *block = mn_calloc(1, ARENA_HEADER + cap);
    if (!block)
        return NULL;
    block->cap = cap;
    if (a->head && bytes == cap) { /* a block for this alone: the head's room stays in use */
        block->next = a->head->next;
        a->head->next = block;
    } else {
        block->next = a->head;
        a->head = block;
    }
    return arena_take(block, bytes);
}

char *mn_arena_strndup(mn_arena *a, const char *s, size_t n) {
    char *copy = n < SIZE_MAX ? mn_arena_alloc(a, n + 1, 1) : NULL;
    if (copy && n)
        memcpy(copy, s, n);
    return copy;
}

void mn_arena_free(mn_arena *a) {
    for (mn_arena_block *block = a->head, *next; block; block = next) {
        next = block->next;
        mn_free(block);
    }
    a->head = NULL;
}
