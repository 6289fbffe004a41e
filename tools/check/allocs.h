/* allocs.h -- calls of the C library's allocator that a plugin makes itself, seen from outside:
 * this program has malloc and its kin, and knows by the caller's address whose call it is. */
#ifndef MINERVA_CHECK_ALLOCS_H
#define MINERVA_CHECK_ALLOCS_H
#include <stdint.h>

/* Counts calls from the code of the file that holds this address, on any thread, until allocs_end;
 * one file at a time. 0: cannot be told here (a sanitizer or another libc has the allocator). */
int allocs_begin(const void *in_file);
uint64_t allocs_end(void);

/* Remembers the blocks that the code of that file allocates, on any thread, until they are freed,
 * by whomever. call: names what runs, and is read at each allocation. 0: as allocs_begin. */
int allocs_track(const void *in_file, _Atomic(const char *) *call);
typedef struct {
    uint64_t n, bytes;
    const char *call; /* during which one of them was allocated */
} allocs_left;
allocs_left allocs_stop(void); /* those that are not freed */
#endif
