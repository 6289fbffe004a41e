/* queue_scratch.h -- the draft mn.x.scratch/1, beside a backend: contexts of one queue, whose steps
 * run one after another, share their scratch, which is as large as the largest estimate of their
 * programs. A backend without it has a scratch for each context. It holds for single devices, not
 * for groups. */
#ifndef MN_QUEUE_SCRATCH_H
#define MN_QUEUE_SCRATCH_H
#include <stdint.h>

#define MN_QUEUE_SCRATCH_ID "mn.x.scratch/1"
typedef struct {
    uint32_t size, flags; /* flags: 0 */
} mn_queue_scratch;
#endif
