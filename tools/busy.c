/* busy.c -- how many CPUs other programs use during a measurement: a rate that is measured on a
 * busy machine is too low, which minerva bench warns of.
 *
 * /proc/stat counts the time that each CPU worked for all processes; the time of this process is
 * subtracted. Only CPUs that this process may run on count: the others do not slow it. */
#include "bench.h"
#include <inttypes.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Seconds of work of the CPUs in set since the machine was started; n: how many they are. */
static int worked(const cpu_set_t *set, double *work, uint32_t *n) {
    char line[512];
    FILE *f = fopen("/proc/stat", "r");
    const long hz = sysconf(_SC_CLK_TCK);
    *work = 0;
    *n = 0;
    if (!f)
        return 0;
    while (fgets(line, sizeof line, f)) {
        unsigned cpu = 0;
        uint64_t t[8] = {0}; /* user nice system idle iowait irq softirq steal */
        if (sscanf(line,
                   "cpu%u %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                   " %" SCNu64 " %" SCNu64,
                   &cpu, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) < 5 ||
            cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, set))
            continue;
        *work += (double)(t[0] + t[1] + t[2] + t[5] + t[6] + t[7]) / (double)hz;
        ++*n;
    }
    fclose(f);
    return *n > 0 && hz > 0;
}

static double own_seconds(void) {
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u) != 0)
        return 0;
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

void busy_begin(busy_mark *m) {
    memset(m, 0, sizeof *m);
    m->ok = sched_getaffinity(0, sizeof m->cpus, &m->cpus) == 0 &&
            worked(&m->cpus, &m->work, &m->n_cpu);
    m->own = own_seconds();
    m->at = seconds();
}

double busy_others(const busy_mark *m) {
    double work = 0;
    uint32_t n = 0;
    const double spent = seconds() - m->at;
    /* the counters have a resolution of 10 ms for each CPU */
    if (!m->ok || spent < 0.1 || !worked(&m->cpus, &work, &n) || n != m->n_cpu)
        return -1;
    const double others = (work - m->work - (own_seconds() - m->own)) / spent;
    return others < 0 ? 0 : others;
}

int busy_matters(const busy_mark *m, double others) {
    const double some = 0.05 * m->n_cpu;
    return others > (some > 0.25 ? some : 0.25);
}
