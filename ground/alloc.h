/* alloc.h -- malloc with overflow checks and failures that tests inject, and a bump allocator. All
 * functions but those of the arena: any thread. */
#ifndef MN_ALLOC_H
#define MN_ALLOC_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As malloc does, each sets errno to ENOMEM where it returns NULL. */
/* Uninitialised; NULL = out of memory or n * size overflows; n == 0 gives a pointer. */
void *mn_alloc(size_t n, size_t size);
void *mn_calloc(size_t n, size_t size);
void *mn_realloc(void *ptr, size_t n, size_t size); /* old stays valid on NULL */
void *mn_alloc_aligned(size_t bytes, size_t align);
void mn_free(void *ptr); /* all of the above; NULL is fine */
char *mn_strndup(const char *s, size_t n);
/* Tests: the k-th allocation from now (1 = the next one) fails, and all after it; < 0 = none. */
void mn_alloc_fail_after(int64_t k);
void mn_alloc_fail_once(int64_t k); /* the k-th alone */
bool mn_alloc_failed(void);         /* since one of these was called: whether it came to that */
/* Grows *ptr (elements of size bytes, *cap of them) to hold at least want; false = out of memory,
 * nothing changed. */
bool mn_grow(void **ptr, size_t *cap, size_t want, size_t size);

/* Bump allocator: everything is freed at once. Not thread-safe. */
typedef struct mn_arena {
    struct mn_arena_block *head;
} mn_arena;
/* zeroed, 16-byte aligned; NULL = out of memory */
void *mn_arena_alloc(mn_arena *a, size_t n, size_t size);
char *mn_arena_strndup(mn_arena *a, const char *s, size_t n); /* NUL-terminated */
void mn_arena_free(mn_arena *a);

#endif
