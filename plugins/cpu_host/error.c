/* error.c -- messages, attributes, shares of work and the barrier: what ops call. */
#include "mnc.h"
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>

mn_status mnc_fail(mn_error *err, mn_status status, uint32_t node, const char *fmt, ...) {
    if (!err)
        return status;
    mn_error e = {sizeof e, status, 0, node, 0, {0}};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e.msg, sizeof e.msg, fmt, ap);
    va_end(ap);
    uint32_t n = err->size && err->size < sizeof e ? err->size : (uint32_t)sizeof e;
    e.size = n;
    memcpy(err, &e, n);
    if (n > offsetof(mn_error, msg) && n < MNC_UP_TO(mn_error, msg))
        ((char *)err)[n - 1] = 0;
    return status;
}

int64_t mnc_attr_int(const mnc_call *c, uint32_t i) {
    return i < c->n_attr ? (int64_t)c->attr[i] : 0;
}

double mnc_attr_f64(const mnc_call *c, uint32_t i) {
    double v = 0;
    if (i < c->n_attr)
        memcpy(&v, &c->attr[i], sizeof v);
    return v;
}

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
