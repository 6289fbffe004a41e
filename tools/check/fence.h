/* fence.h -- memory before a page without access: reading or writing one byte too many is a
 * SIGSEGV. */
#ifndef MINERVA_CHECK_FENCE_H
#define MINERVA_CHECK_FENCE_H
#include <stddef.h>

typedef struct {
    /* n bytes of 0xEE, then the fence; NULL = out of memory. Aligned to 8 if n is a multiple of
     * 8 */
    void *at;
    void *base;
    size_t mapped;
} fence;
fence fence_new(size_t n);
void fence_free(fence *f);
#endif
