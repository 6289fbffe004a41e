/* ledger.c -- see ledger.h. An array in no order under a lock: loaders take their memory in large
 * blocks, some hundreds for a model, and give back the newest first. */
#include "base/ledger.h"
#include <string.h>

void mn_ledger_init(mn_ledger *l) {
    pthread_mutex_init(&l->lock, NULL);
}

void *mn_ledger_alloc(mn_ledger *l, size_t bytes, size_t align) {
    void *ptr = mn_alloc_aligned(bytes, align);
    if (!ptr || !atomic_load(&l->notes))
        return ptr;
    pthread_mutex_lock(&l->lock);
    const bool room = mn_grow((void **)&l->lent, &l->cap, l->n + 1, sizeof *l->lent);
    if (room)
        l->lent[l->n++] = (mn_lent){ptr, bytes};
    pthread_mutex_unlock(&l->lock);
    if (room)
        return ptr;
    mn_free(ptr);
    return NULL;
}

void mn_ledger_free(mn_ledger *l, void *ptr) {
    if (!ptr || !atomic_load(&l->notes)) {
        mn_free(ptr);
        return;
    }
    pthread_mutex_lock(&l->lock);
    for (size_t i = l->n; i-- > 0;)
        if (l->lent[i].at == ptr) {
            l->lent[i] = l->lent[--l->n];
            break;
        }
    pthread_mutex_unlock(&l->lock);
    mn_free(ptr);
}

bool mn_ledger_holds(mn_ledger *l, const void *ptr, uint64_t bytes) {
    const uintptr_t at = (uintptr_t)ptr;
    bool held = false;
    if (!l)
        return false;
    pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < l->n && !held; i++) {
        const uintptr_t begin = (uintptr_t)l->lent[i].at;
        const size_t n = l->lent[i].bytes;
        held = at >= begin && at - begin <= n && bytes <= n - (at - begin);
    }
    pthread_mutex_unlock(&l->lock);
    return held;
}

void mn_ledger_clear(mn_ledger *l) {
    mn_free(l->lent);
    pthread_mutex_destroy(&l->lock);
    *l = (mn_ledger){0};
}
