/* run.c -- tries the rules, each in a process that it may kill. Results lie in memory shared with
 * the children, so that what a child had found when it died is not lost. */
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void text(char *dst, size_t n, const char *fmt, va_list args) {
    vsnprintf(dst, n, fmt, args);
}

void check_doing(check *c, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    text(c->result->doing, sizeof c->result->doing, fmt, args);
    va_end(args);
}

void check_fail(check *c, const char *fmt, ...) {
    va_list args;
    if (c->result->status == CHECK_FAILED)
        return;
    va_start(args, fmt);
    text(c->result->message, sizeof c->result->message, fmt, args);
    va_end(args);
    c->result->status = CHECK_FAILED;
}

void check_skip(check *c, const char *fmt, ...) {
    va_list args;
    if (check_over(c))
        return;
    va_start(args, fmt);
    text(c->result->message, sizeof c->result->message, fmt, args);
    va_end(args);
    c->result->status = CHECK_SKIPPED;
}

void check_found(check *c, const char *fmt, ...) {
    va_list args;
    if (check_over(c))
        return;
    va_start(args, fmt);
    text(c->result->message, sizeof c->result->message, fmt, args);
    va_end(args);
}

int check_over(const check *c) {
    return c->result->status == CHECK_FAILED || c->result->status == CHECK_SKIPPED;
}

void check_page(const check_rule *rule, char *dst, size_t n) {
    snprintf(dst, n, "docs/plugin-howto.md#rule-%s-%s", rule->group, rule->name);
}

/* ---- the child ------------------------------------------------------------------------------- */
static _Noreturn void child(check c, check_result *results, uint32_t lo, uint32_t hi,
                            pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (getppid() != parent || null < 0 || dup2(null, 0) < 0 || dup2(2, 1) < 0)
        _exit(1); // stdout is the report's
    for (uint32_t i = lo; i < hi; i++) {
        c.result = &results[i];
        c.result->status = CHECK_RUNNING;
        check_rules[i].fn(&c);
        if (c.result->status == CHECK_RUNNING)
            c.result->status = CHECK_OK;
        if (c.result->status == CHECK_FAILED)
            break;
    }
    fflush(NULL);
    _exit(0);
}

/* ---- the parent ------------------------------------------------------------------------------ */
static void nap(void) {
    nanosleep(&(struct timespec){0, 2000000}, NULL);
}

#define SECOND UINT64_C(1000000000)

/* How a child that was watched came to its end. */
typedef enum {
    ENDED, /* by itself */
    SLOW,  /* one rule took longer than its group allows */
    HUNG   /* one call did not return */
} end_of_child;

/* A call that runs for longer than call_ns, with none beginning or ending meanwhile, hangs. */
typedef struct {
    unsigned long long n_calls; /* when it was looked at last */
    uint64_t since;
} call_clock;

static int hangs(check_result *r, call_clock *k, uint64_t call_ns) {
    const unsigned long long n = atomic_load(&r->n_calls);
    if (n != k->n_calls || !atomic_load(&r->in_call)) {
        k->n_calls = n;
        k->since = check_now_ns();
    }
    return check_now_ns() - k->since > call_ns;
}

static void end(pid_t pid, int *how) {
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    for (int i = 0; i < 1000 && waitpid(pid, how, WNOHANG) != pid; i++)
        nap(); // then it is abandoned
}

/* Waits for the child, or ends it. *how: its wait status, if it ended by itself. */
static end_of_child watch(pid_t pid, check_result *r, uint32_t lo, uint32_t hi, uint32_t seconds,
                          uint64_t call_ns, int *how) {
    uint64_t began = check_now_ns();
    call_clock clock = {0, began};
    for (uint32_t at = lo;;) {
        if (waitpid(pid, how, WNOHANG) == pid)
            return ENDED;
        while (at<hi &&*(volatile uint32_t *)&r[at].status> CHECK_RUNNING) {
            at++;
            began = check_now_ns();
        }
        const int hung = at < hi && hangs(&r[at], &clock, call_ns);
        if (hung || check_now_ns() - began > seconds * SECOND) {
            end(pid, how);
            return hung ? HUNG : SLOW;
        }
        nap();
    }
}

static void died(check_result *r, end_of_child ended, int how, uint32_t seconds, uint64_t call_ns) {
    const char *doing = r->doing[0] ? r->doing : "the rule was tried";
    const char *call = atomic_load(&r->call);
    char *msg = r->message;
    size_t n = sizeof r->message;
    r->doing[sizeof r->doing - 1] = 0;
    if (ended == HUNG)
        snprintf(msg, n, "%s did not return within %.3g s while %s", call ? call : "a call",
                 (double)call_ns / 1e9, doing);
    else if (ended == SLOW)
        snprintf(msg, n, "did not return within %u s while %s", seconds, doing);
    else if (WIFSIGNALED(how))
        snprintf(msg, n, "crashed with SIG%s while %s",
                 sigabbrev_np(WTERMSIG(how)) ? sigabbrev_np(WTERMSIG(how)) : "?", doing);
    else
        snprintf(msg, n, "ended the process with exit code %d while %s", WEXITSTATUS(how), doing);
    r->status = CHECK_FAILED;
}

static void skip_rules(check_result *results, uint32_t lo, uint32_t hi, const char *why) {
    for (; lo < hi; lo++) {
        results[lo].status = CHECK_SKIPPED;
        snprintf(results[lo].message, sizeof results[lo].message, "%s failed", why);
    }
}

static void no_patience(check_result *results, uint32_t lo, uint32_t hi, uint32_t seconds) {
    for (; lo < hi; lo++) {
        results[lo].status = CHECK_SKIPPED;
        snprintf(results[lo].message, sizeof results[lo].message,
                 "calls that hang have taken %u s, and the check waits no longer (--limit)",
                 seconds);
    }
}

/* Rules [lo, hi) of one group. What hangs or dies in a group that others stand on ends it: the next
 * rule would too, as slowly. 0 = no process could be made. */
static int run_rules(const check *c, check_report *report, uint32_t lo, uint32_t hi,
                     const check_group *group) {
    check_result *results = report->result;
    const uint64_t patience = c->patience * SECOND;
    while (lo < hi) {
        if (report->hung_ns >= patience) {
            no_patience(results, lo, hi, c->patience);
            break;
        }
        pid_t self = getpid(), pid = fork();
        int how = 0;
        if (pid < 0)
            return 0;
        if (pid == 0)
            child(*c, results, lo, hi, self);
        const uint64_t began = check_now_ns();
        const end_of_child ended = watch(pid, results, lo, hi, group->seconds, patience / 3, &how);
        kill(-pid, SIGKILL); // what it has left behind
        if (ended != ENDED)
            report->hung_ns += ended == HUNG ? patience / 3 : check_now_ns() - began;
        uint32_t at = lo;
        while (at < hi && (results[at].status == CHECK_OK || results[at].status == CHECK_SKIPPED))
            at++;
        if (at < hi && results[at].status != CHECK_FAILED)
            died(&results[at], ended, how, group->seconds, patience / 3);
        lo = at + 1;
        if (at < hi && group->first) {
            skip_rules(results, lo, hi, check_rules[at].id);
            break;
        }
    }
    return 1;
}

static int wanted(const char *id, const char *only) {
    return !only || !strncmp(id, only, strlen(only));
}

int check_selects(const char *only) {
    for (uint32_t i = 0; i < check_n_rules; i++)
        if (wanted(check_rules[i].id, only))
            return 1;
    return 0;
}

/* Rules outside of `only` are forgotten again, but for those of the first groups: the others stand
 * on what they find. */
static int run_groups(check *c, check_report *r, const char *only) {
    const char *broken = NULL;
    for (uint32_t g = 0, lo = 0, hi; g < check_n_groups; g++, lo = hi) {
        const check_group *group = &check_groups[g];
        for (hi = lo; hi < check_n_rules && !strcmp(check_rules[hi].group, group->name);)
            hi++;
        if (group->kinds != CHECK_ANY && !(group->kinds & r->facts.kinds))
            continue;
        if (broken) {
            skip_rules(r->result, lo, hi, broken);
            continue;
        }
        for (uint32_t i = lo, end = hi; i < hi; i = end) {
            end = group->first ? hi : i + 1;
            while (!group->first && end < hi &&
                   wanted(check_rules[end].id, only) == wanted(check_rules[i].id, only))
                end++;
            if ((group->first || wanted(check_rules[i].id, only)) &&
                !run_rules(c, r, i, end, group))
                return 0;
        }
        for (uint32_t i = lo; i < hi && !broken; i++)
            if (group->first && r->result[i].status == CHECK_FAILED)
                broken = check_rules[i].id;
    }
    for (uint32_t i = 0; i < check_n_rules; i++)
        if (!wanted(check_rules[i].id, only))
            r->result[i].status = CHECK_WAITING;
    return 1;
}

check_report *check_run(const check *plugin, const char *only) {
    size_t n = sizeof(check_report) + check_n_rules * sizeof(check_result);
    check_report *r = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r == MAP_FAILED)
        return NULL;
    check c = *plugin;
    c.facts = &r->facts;
    if (run_groups(&c, r, only))
        return r;
    check_report_free(r);
    return NULL;
}

void check_report_free(check_report *r) {
    if (r)
        munmap(r, sizeof *r + check_n_rules * sizeof(check_result));
}
