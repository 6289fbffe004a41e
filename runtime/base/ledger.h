/* ledger.h -- the memory that a loader holds. The host notes the blocks that it lends: a plane that
 * lies in no file of the model must lie in one of them. For a plugin that loads no models nothing
 * is noted. */
#ifndef MN_LEDGER_H
#define MN_LEDGER_H
#include "base/base.h"
#include <pthread.h>
#include <stdatomic.h>

typedef struct {
    const uint8_t *at;
    size_t bytes;
} mn_lent;
/* Zeroed, then mn_ledger_init. Any thread. */
typedef struct {
    pthread_mutex_t lock;
    _Atomic bool notes; /* set once, before the first block that is to be noted */
    mn_lent *lent;      /* in no order */
    size_t n, cap;
} mn_ledger;

void mn_ledger_init(mn_ledger *l);
/* As mn_alloc_aligned; NULL also if there is no room for the note. */
void *mn_ledger_alloc(mn_ledger *l, size_t bytes, size_t align);
/* ptr: of mn_ledger_alloc, before or since notes was set; NULL is fine. */
void mn_ledger_free(mn_ledger *l, void *ptr);
/* Whether [ptr, ptr + bytes) lies in one block that was noted and not freed. l NULL: no. */
bool mn_ledger_holds(mn_ledger *l, const void *ptr, uint64_t bytes);
/* The notes, not the blocks. */
void mn_ledger_clear(mn_ledger *l);

#endif
