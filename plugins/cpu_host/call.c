/* call.c -- what ops, prepare and verdict call: operands and attributes, shares of work, the
 * barrier. Holds nothing: a call belongs to its context, a worker to the stack of its thread. */
#include "mnc.h"
#include <sched.h>

const mn_tensor *mnc_query_in(const mnc_query *q, uint32_t i) {
    return mnp_in_tensor(q->graph, q->node, i);
}
const mn_tensor *mnc_query_out(const mnc_query *q, uint32_t i) {
    return mnp_out_tensor(q->graph, q->node, i);
}
/* Dimension i for the symbol values of the query; 1 behind the last. */
int64_t mnc_query_dim(const mnc_query *q, const mn_tensor *t, uint32_t i) {
    if (i < t->n_dim)
        return mnp_dim(q->graph, q->symbol, t->dim[i]);
    return 1;
}

int64_t mnc_attr_int(const mnc_call *c, uint32_t i) {
    if (i < c->n_attr)
        return (int64_t)c->attr[i];
    return 0;
}

double mnc_attr_f64(const mnc_call *c, uint32_t i) {
    double v = 0;
    if (i < c->n_attr)
        memcpy(&v, &c->attr[i], sizeof v);
    return v;
}

/* Worker i's part of [0, total); the last grain may be short. */
void mnc_range(const mnc_worker *w, int64_t total, int64_t grain, int64_t *lo, int64_t *hi) {
    int64_t units = (total + grain - 1) / grain;
    *lo = units * w->i / w->n * grain;
    *hi = units * (w->i + 1) / w->n * grain;
    if (*lo > total)
        *lo = total;
    if (*hi > total)
        *hi = total;
}

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* The generation is the sense: the last to arrive turns it. Spins, then yields, since the cores may
 * be shared. */
void mnc_barrier(mnc_worker *w) {
    mnc_team *t = w->team;
    if (w->n == 1)
        return;
    uint32_t g = atomic_load_explicit(&t->generation, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) + 1 == t->n) {
        atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&t->generation, g + 1, memory_order_release);
        return;
    }
    for (uint32_t spins = 0; atomic_load_explicit(&t->generation, memory_order_acquire) == g;
         spins++)
        if (spins < 1000)
            relax();
        else
            sched_yield();
}
