/* threads.h -- tasks and teams of a host, with a thread per task: what mn_host.parallel and
 * mn_host.team promise, for the host of the check and for that of tests/kernels. */
#ifndef MINERVA_CHECK_THREADS_H
#define MINERVA_CHECK_THREADS_H
#include <minerva/plugin.h>

enum { CHECK_MAX_THREADS = 16 };

/* fn(arg, i, n) for every i below n, each on a thread of its own, task 0 on the caller's; returns
 * when all have. More than CHECK_MAX_THREADS: MN_INVALID. */
mn_status check_run_tasks(uint32_t n, void (*fn)(void *arg, uint32_t i, uint32_t n), void *arg);
/* The phases of t, one after the other, by n threads. */
mn_status check_run_team(uint32_t n, const mn_team *t);
#endif
