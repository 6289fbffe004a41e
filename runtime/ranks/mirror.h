/* mirror.h -- between mirror.c and mirror_objects.c: objects of rank 0's backend, and the frames by
 * which calls on them are told to the other ranks. The lock of the ranks is held in all functions
 * but make and release. */
#ifndef MN_MIRROR_H
#define MN_MIRROR_H
#include "ranks/ranks_impl.h"

typedef enum {
    MN_MIRROR_DEVICE,
    MN_MIRROR_BUFFER,
    MN_MIRROR_QUEUE,
    MN_MIRROR_WEIGHTS,
    MN_MIRROR_PROGRAM,
    MN_MIRROR_CONTEXT,
    MN_MIRROR_LAYOUT
} mn_mirror_kind;

/* Of every kind: the member's object and what others call it. */
typedef struct mn_mirror_object {
    mn_ranks *r;
    mn_mirror_kind kind;
    void *inner;
    uint32_t id; /* 0: the others have none */
    uint32_t n_symbols;
    uint8_t *pinned;               /* a buffer's memory, NULL: the device's */
    mn_memory_layout kept;         /* of a layout, which is the cookie */
    struct mn_mirror_object *next; /* layouts of a device */
} mn_mirror_object;

static inline mn_mirror_object *mn_mirror_of(const void *opaque) {
    return (mn_mirror_object *)(uintptr_t)opaque;
}

/* Room for its return is made when it is given out: it cannot fail. */
void mn_mirror_give_id(mn_ranks *r, uint32_t id);
/* A frame in `out`; its length is known at end(). Frames are sent together by the next flush: what
 * only changes contents waits for the step that reads it. */
void mn_mirror_begin(mn_ranks *r, uint32_t say);
void mn_mirror_end(mn_ranks *r);
/* Takes back what begin and later puts made. */
void mn_mirror_forget(mn_ranks *r);
/* All that was told goes out, in one write per rank. */
void mn_mirror_flush(mn_ranks *r);
mn_status mn_mirror_fail_broken(const mn_ranks *r, mn_error *err);
/* The answer of one rank; what is behind status and message goes to `more`, up to n bytes. */
mn_status mn_mirror_answer(mn_ranks *r, mn_link *l, void *more, size_t n, mn_error *err);
/* Those of all; the first error. */
mn_status mn_mirror_answers(mn_ranks *r, mn_error *err);
/* The lock is held. */
void mn_mirror_tell_free(mn_ranks *r, uint32_t id);
void mn_mirror_drop(const mn_mirror_object *o);
/* A new object with its number; NULL: out of memory. The lock is taken, with or without it. */
mn_mirror_object *mn_mirror_make(mn_ranks *r, mn_mirror_kind kind, bool told);
/* Of an object that was told: st is the member's word, the others' is waited for. On an error all
 * is freed. Gives the lock back. */
mn_status mn_mirror_finish(mn_mirror_object *o, mn_status st, mn_error *err);
mn_status mn_mirror_fail_make(mn_ranks *r, mn_error *err);
/* NULL is fine. */
void mn_mirror_release(mn_mirror_object *o);
#endif
