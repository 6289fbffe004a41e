/* cpus.c -- how many threads this process can keep busy: the affinity mask, the topology of its
 * processors, the quotas of its control groups (v1 and v2). Read once, when a pool is made. Files
 * are looked for below a root, which is not / in tests. What cannot be read limits nothing. */
#include "base/base.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CPUS 16384 /* a cpu_set_t ends at 1024 */
#define WORD_BITS (8 * sizeof(unsigned long))

typedef struct {
    unsigned long bits[MAX_CPUS / WORD_BITS];
} cpu_mask;

static cpu_set_t *as_set(cpu_mask *m) {
    return (cpu_set_t *)(void *)m->bits;
}

/* The first line of a file, without its end; "" if there is none. */
static void first_line(const char *path, char *line, int cap) {
    line[0] = 0;
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    if (!fgets(line, cap, f))
        line[0] = 0;
    line[strcspn(line, "\n")] = 0;
    fclose(f);
}

/* ---- quotas ---------------------------------------------------------------------------------- */

/* Whole processors of a quota, at least 1; 0 = no limit. */
static uint32_t processors_of(long long quota, long long period) {
    if (quota <= 0 || period <= 0)
        return 0;
    if (quota / period > MAX_CPUS)
        return 0;
    return quota < period ? 1 : (uint32_t)(quota / period);
}

/* Of one group: v2 has "quota period" or "max period" in one file, v1 two files. */
static uint32_t quota_of(const char *folder, bool is_v2) {
    char path[1400];
    char line[64];
    long long quota = 0;
    long long period = 0;
    if (is_v2) {
        snprintf(path, sizeof path, "%s/cpu.max", folder);
        first_line(path, line, sizeof line);
        if (sscanf(line, "%lld %lld", &quota, &period) != 2)
            return 0;
        return processors_of(quota, period);
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    first_line(path, line, sizeof line);
    quota = strtoll(line, NULL, 10);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    first_line(path, line, sizeof line);
    period = strtoll(line, NULL, 10);
    return processors_of(quota, period);
}

/* Is "cpu" one of the names in a,b,c? */
static bool names_cpu(const char *list, size_t n) {
    while (n) {
        const char *comma = memchr(list, ',', n);
        const size_t len = comma ? (size_t)(comma - list) : n;
        if (len == 3 && !memcmp(list, "cpu", 3))
            return true;
        if (!comma)
            return false;
        list += len + 1;
        n -= len + 1;
    }
    return false;
}

/* The tightest quota of a group and those above it, 0 = none. A container may see its own group as
 * the root: then only the last step finds a file. */
static uint32_t tightest(const char *root, const char *mount, char *group, bool is_v2) {
    uint32_t least = 0;
    for (;;) {
        char folder[1300];
        snprintf(folder, sizeof folder, "%s/sys/fs/cgroup%s%s", root, mount, group);
        const uint32_t n = quota_of(folder, is_v2);
        if (n && (!least || n < least))
            least = n;
        char *slash = strrchr(group, '/');
        if (!slash)
            return least;
        *slash = 0;
    }
}

/* Lines of /proc/self/cgroup are number:controllers:group; v2's is 0::group. */
static uint32_t quota(const char *root) {
    char path[1200];
    char line[1024];
    uint32_t least = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':');
        char *group = names ? strchr(names + 1, ':') : NULL;
        if (!group)
            continue;
        names++;
        const bool is_v2 = group == names;
        if (!is_v2 && !names_cpu(names, (size_t)(group - names)))
            continue;
        const uint32_t n = tightest(root, is_v2 ? "" : "/cpu", group + 1, is_v2);
        if (n && (!least || n < least))
            least = n;
    }
    fclose(f);
    return least;
}

/* ---- topology -------------------------------------------------------------------------------- */

/* Is cpu the first of the mask among the processors of its core? Their list is 0,64 or 0-1. */
static bool leads_core(const char *root, cpu_mask *mask, unsigned cpu) {
    char path[1200];
    char line[256];
    snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list",
             root, cpu);
    first_line(path, line, sizeof line);
    for (const char *at = line; *at;) {
        char *end;
        const unsigned long first = strtoul(at, &end, 10);
        unsigned long last = first;
        if (end == at)
            return true;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long i = first; i <= last && i < cpu; i++)
            if (CPU_ISSET_S(i, sizeof mask->bits, as_set(mask)))
                return false;
        at = *end == ',' ? end + 1 : "";
    }
    return true;
}

mn_cpus mn_cpus_read(const char *root) {
    mn_cpus n = {1, 1, quota(root)};
    cpu_mask mask = {{0}};
    if (sched_getaffinity(0, sizeof mask.bits, as_set(&mask)))
        return n;
    n.processors = (uint32_t)CPU_COUNT_S(sizeof mask.bits, as_set(&mask));
    n.cores = 0;
    for (unsigned cpu = 0; cpu < MAX_CPUS; cpu++)
        if (CPU_ISSET_S(cpu, sizeof mask.bits, as_set(&mask)))
            n.cores += leads_core(root, &mask, cpu);
    return n;
}

uint32_t mn_cpus_default(const mn_cpus *n) {
    if (n->quota && n->quota < n->cores)
        return n->quota;
    return MN_MAX(n->cores, 1);
}
