/* guest.c -- what a plugin could change of the process that it is a guest in, as a state that is
 * looked at twice. Holds nothing between calls: the states are the callers', who are the probing
 * process (probe_plugin.c) and the host while it loads a plugin (search.c). The conformance kit has
 * a look of its own (tools/check/process.c), which compares after each call: it knows plugin.h
 * alone. */
#include "registry/guest.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- looking --------------------------------------------------------------------------------- */

/* Whether subnormals count as zero and which exceptions trap; without the flags that arithmetic
 * raises. */
static uint32_t fp_mode(void) {
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr() & 0x9fc0u;
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return (uint32_t)fpcr & ~0xc00000u;
#else
    return 0;
#endif
}

void mn_guest_look(mn_guest_state *out) {
    memset(out, 0, sizeof *out);
    for (int i = 1; i < NSIG; i++)
        sigaction(i, NULL, &out->action[i]);
    pthread_sigmask(SIG_BLOCK, NULL, &out->blocked);
    fegetenv(&out->arithmetic);
    out->rounding = fegetround();
    out->fp_mode = fp_mode();
    if (!getcwd(out->folder, sizeof out->folder) || out->folder[0] != '/')
        out->folder[0] = 0;
    out->mask = umask(077);
    umask(out->mask);
    for (int i = 0; i < (int)RLIM_NLIMITS; i++)
        getrlimit((__rlimit_resource_t)i, &out->limit[i]);
    for (int i = 0; i < MN_GUEST_DESCRIPTORS; i++)
        out->is_open[i] = fcntl(i, F_GETFD) >= 0;
}

bool mn_guest_has_children(void) {
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

uint32_t mn_guest_threads(void) {
    DIR *dir = opendir("/proc/self/task");
    uint32_t n = 0;
    if (!dir)
        return 0;
    for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Adds a clause, as far as there is room. */
static void guest_add(char *text, size_t cap, const char *fmt, ...) MN_PRINTF(3, 4);
static void guest_add(char *text, size_t cap, const char *fmt, ...) {
    char clause[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(clause, sizeof clause, fmt, args);
    va_end(args);
    const size_t len = strlen(text);
    snprintf(text + len, cap - len, "%s%s", len ? ", " : "", clause);
}

static void compare_signals(const mn_guest_state *was, const mn_guest_state *is,
                            mn_guest_changes *out) {
    for (int i = 1; i < NSIG; i++) {
        const char *name = sigabbrev_np(i);
        const bool other_handler = was->action[i].sa_handler != is->action[i].sa_handler;
        const bool other_mask = sigismember(&was->blocked, i) != sigismember(&is->blocked, i);
        if (other_handler)
            guest_add(out->harm, sizeof out->harm, "SIG%s has another handler", name ? name : "RT");
        else if (other_mask)
            guest_add(out->harm, sizeof out->harm, "SIG%s is blocked or no longer so",
                      name ? name : "RT");
    }
}

static void compare_descriptors(const mn_guest_state *was, const mn_guest_state *is,
                                mn_guest_changes *out) {
    uint32_t n = 0;
    int first = -1;
    for (int i = 0; i < MN_GUEST_DESCRIPTORS; i++) {
        if (!was->is_open[i] || is->is_open[i])
            continue;
        n++;
        if (first < 0)
            first = i;
    }
    if (n == 1)
        guest_add(out->harm, sizeof out->harm, "descriptor %d is closed", first);
    if (n > 1)
        guest_add(out->harm, sizeof out->harm, "descriptor %d and %u others are closed", first,
                  n - 1);
}

static const char *limit_name(int resource) {
    switch (resource) {
    case RLIMIT_AS:
        return "RLIMIT_AS";
    case RLIMIT_CPU:
        return "RLIMIT_CPU";
    case RLIMIT_DATA:
        return "RLIMIT_DATA";
    case RLIMIT_FSIZE:
        return "RLIMIT_FSIZE";
    case RLIMIT_MEMLOCK:
        return "RLIMIT_MEMLOCK";
    case RLIMIT_NOFILE:
        return "RLIMIT_NOFILE";
    case RLIMIT_STACK:
        return "RLIMIT_STACK";
    default:
        return "a resource limit";
    }
}

static void compare_limits(const mn_guest_state *was, const mn_guest_state *is,
                           mn_guest_changes *out) {
    for (int i = 0; i < (int)RLIM_NLIMITS; i++) {
        const struct rlimit *old = &was->limit[i];
        const struct rlimit *new = &is->limit[i];
        if (old->rlim_cur == new->rlim_cur && old->rlim_max == new->rlim_max)
            continue;
        guest_add(out->odd, sizeof out->odd, "%s is %lld", limit_name(i), (long long)new->rlim_cur);
    }
}

void mn_guest_compare(const mn_guest_state *was, const mn_guest_state *is, mn_guest_changes *out) {
    char folder[200];
    *out = (mn_guest_changes){0};
    compare_descriptors(was, is, out);
    compare_signals(was, is, out);
    mn_plain(folder, sizeof folder, mn_str_of(is->folder));
    if (was->folder[0] && is->folder[0] && strcmp(was->folder, is->folder) != 0)
        guest_add(out->odd, sizeof out->odd, "the working directory is %s", folder);
    if (was->mask != is->mask)
        guest_add(out->odd, sizeof out->odd, "the umask is %03o", is->mask);
    if (was->rounding != is->rounding)
        guest_add(out->odd, sizeof out->odd, "floating-point numbers are rounded another way");
    if (was->fp_mode != is->fp_mode)
        guest_add(out->odd, sizeof out->odd,
                  "the floating-point mode is %#x, not %#x (-ffast-math does that)", is->fp_mode,
                  was->fp_mode);
    compare_limits(was, is, out);
}

/* ---- a visit --------------------------------------------------------------------------------- */

void mn_guest_begin(mn_guest_visit *visit) {
    mn_guest_look(&visit->was);
    fflush(stdout);
    visit->output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (visit->output >= 0)
        dup2(STDERR_FILENO, STDOUT_FILENO);
}

/* What cannot be set back stays: a folder that is gone, a limit above a hard one that was
 * lowered. */
static void restore(const mn_guest_state *was) {
    const bool back = was->folder[0] && chdir(was->folder) == 0;
    (void)back;
    umask(was->mask);
    fesetenv(&was->arithmetic);
    for (int i = 0; i < (int)RLIM_NLIMITS; i++) {
        const __rlimit_resource_t which = (__rlimit_resource_t)i;
        struct rlimit now;
        if (getrlimit(which, &now) || now.rlim_cur == was->limit[i].rlim_cur)
            continue;
        now.rlim_cur = MN_MIN(was->limit[i].rlim_cur, now.rlim_max);
        setrlimit(which, &now);
    }
}

void mn_guest_end(const mn_guest_visit *visit) {
    restore(&visit->was);
    if (visit->output < 0)
        return;
    fflush(stdout);
    dup2(visit->output, STDOUT_FILENO);
    close(visit->output);
}
