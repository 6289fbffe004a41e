/* facts.c -- what Linux says about the machine: CPU name, memory with the cgroup's limit, a stable
 * id. No allocation. */
#include "ground.h"
#include "mnc.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

static bool slurp(const char *path, char *buf, size_t cap) { /* the first cap - 1 bytes */
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    if (fd < 0)
        return false;
    for (ssize_t got; n < cap - 1 && (got = read(fd, buf + n, cap - 1 - n)) > 0;)
        n += (size_t)got;
    close(fd);
    buf[n] = 0;
    return n > 0;
}

/* The number behind a key of /proc/cpuinfo or /proc/meminfo; 0 if the key is not there. */
static uint64_t number_after(const char *text, const char *key) {
    const char *at = strstr(text, key);
    if (at)
        return strtoull(at + strlen(key), NULL, 10);
    return 0;
}

static void cpu_name(char *out, size_t cap) {
    char buf[4096];
    struct utsname u;
    char *at = NULL;
    if (slurp("/proc/cpuinfo", buf, sizeof buf))
        at = strstr(buf, "model name");
    if (at)
        at = strchr(at, ':');
    if (at) {
        at += 1 + strspn(at + 1, " \t");
        at[strcspn(at, "\n")] = 0;
        snprintf(out, cap, "%s", at);
    } else if (!uname(&u))
        snprintf(out, cap, "%.40s CPU", u.machine);
    else
        snprintf(out, cap, "CPU");
}

/* Lowers *total and *left to what one cgroup folder allows; the file cache it could drop counts as
 * free. */
static void cap_by(const char *folder, const char *limit_file, const char *usage_file,
                   const char *cache_key, uint64_t *total, uint64_t *left) {
    char path[512];
    char buf[4096];
    snprintf(path, sizeof path, "%s/%s", folder, limit_file);
    if (!slurp(path, buf, sizeof buf) || buf[0] < '0' || buf[0] > '9')
        return; /* "max" */
    uint64_t limit = strtoull(buf, NULL, 10);
    uint64_t used = 0;
    uint64_t cache = 0;
    if (limit >= *total)
        return;
    snprintf(path, sizeof path, "%s/%s", folder, usage_file);
    if (slurp(path, buf, sizeof buf))
        used = strtoull(buf, NULL, 10);
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (slurp(path, buf, sizeof buf))
        cache = number_after(buf, cache_key);
    used -= cache < used ? cache : used;
    uint64_t room = 0;
    if (used < limit)
        room = limit - used;
    *total = limit;
    if (room < *left)
        *left = room;
}

/* Of the machine or of the control group that holds us, whichever is smaller. */
static void cpu_facts_memory(uint64_t *total, uint64_t *left) {
    char buf[4096];
    char folder[400];
    if (slurp("/proc/meminfo", buf, sizeof buf)) {
        *total = number_after(buf, "MemTotal:") * 1024;
        *left = number_after(buf, "MemAvailable:") * 1024;
    }
    cap_by("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
           "total_inactive_file ", total, left);
    cap_by("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file ", total, left);
    char *at = NULL;
    if (slurp("/proc/self/cgroup", buf, sizeof buf))
        at = strstr(buf, "0::/");
    if (!at || (at != buf && at[-1] != '\n'))
        return;
    at += 3;
    at[strcspn(at, "\n")] = 0;
    /* a parent may be narrower */
    for (char *end = at + strlen(at); end > at + 1; end = strrchr(at, '/')) {
        *end = 0;
        snprintf(folder, sizeof folder, "/sys/fs/cgroup%.300s", at);
        cap_by(folder, "memory.max", "memory.current", "inactive_file ", total, left);
    }
}

/* device_name: what the plugin calls its CPU; NULL: as the system does. */
void mnc_facts(mn_device_info *info, const char *device_name) {
    char id[128] = "";
    if (device_name)
        snprintf(info->name, sizeof info->name, "%s", device_name);
    else
        cpu_name(info->name, sizeof info->name);
    if (!slurp("/etc/machine-id", id, sizeof id))
        snprintf(id, sizeof id, "%s", info->name);
    const uint64_t h = mn_fnv_z(MN_FNV_BASIS, id); /* the machine's id itself is not for logs */
    snprintf(info->uid, sizeof info->uid, "cpu-%016llx", (unsigned long long)h);
    snprintf(info->mem_pool, sizeof info->mem_pool, "host");
    cpu_facts_memory(&info->mem_total, &info->mem_free);
    info->max_alloc = info->mem_total;
}

mn_status mnc_device_memory(mn_device *d, uint64_t *free_bytes, uint64_t *total, mn_error *err) {
    (void)d;
    *free_bytes = *total = 0;
    cpu_facts_memory(total, free_bytes);
    if (*total)
        return MN_OK;
    return mnp_fail(err, MN_UNSUPPORTED, ~0u,
                    "/proc/meminfo does not say how much memory there is");
}
