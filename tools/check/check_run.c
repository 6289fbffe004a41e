/* check_run.c -- the runner: tries the rules of a group in forked children, and judges children
 * that crash, hang or take too long. The report is in memory that parent and children share (mmap),
 * so that it holds what a child had found when it ended. The child writes the result of the rule
 * that it runs, the parent those of rules that no child runs. Functions that rules call to report
 * are here, too. */
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

void check_doing(check *c, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(c->result->doing, sizeof c->result->doing, fmt, args);
    va_end(args);
}

void check_fail(check *c, const char *fmt, ...) {
    va_list args;
    if (c->result->status == CHECK_FAILED)
        return;
    va_start(args, fmt);
    vsnprintf(c->result->message, sizeof c->result->message, fmt, args);
    va_end(args);
    c->result->status = CHECK_FAILED;
}

void check_skip(check *c, const char *fmt, ...) {
    va_list args;
    if (check_over(c))
        return;
    va_start(args, fmt);
    vsnprintf(c->result->message, sizeof c->result->message, fmt, args);
    va_end(args);
    c->result->status = CHECK_SKIPPED;
}

void check_found(check *c, const char *fmt, ...) {
    va_list args;
    if (check_over(c))
        return;
    va_start(args, fmt);
    vsnprintf(c->result->message, sizeof c->result->message, fmt, args);
    va_end(args);
}

int check_over(const check *c) {
    return c->result->status == CHECK_FAILED || c->result->status == CHECK_SKIPPED;
}

int check_status(check *c, mn_status st, const mn_error *err, const char *fmt, ...) {
    char what[600];
    va_list args;
    if (st == MN_OK)
        return 0;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    const char *why = "no message";
    if (err && err->msg[0])
        why = err->msg;
    check_fail(c, "%s: found status 0x%x (%s), expected MN_OK", what, (unsigned)st, why);
    return 1;
}

void check_page(const check_rule *rule, char *dst, size_t n) {
    snprintf(dst, n, "docs/plugin-howto.md#rule-%s-%s", rule->group, rule->name);
}

/* ---- the child ------------------------------------------------------------------------------- */
/* Runs rules [lo, hi) until one fails. Standard output is the report's: what the plugin prints
 * goes to standard error. */
static _Noreturn void child(check c, check_result *results, uint32_t lo, uint32_t hi,
                            pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (getppid() != parent || null < 0 || dup2(null, 0) < 0 || dup2(2, 1) < 0)
        _exit(1);
    for (uint32_t i = lo; i < hi; i++) {
        c.result = &results[i];
        c.result->status = CHECK_RUNNING;
        check_rules[i].fn(&c);
        if (c.result->status == CHECK_RUNNING)
            c.result->status = CHECK_PASSED;
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

/* How a child ended. */
typedef enum {
    ENDED, /* by itself */
    SLOW,  /* one rule took longer than its group allows */
    HUNG   /* one call did not return */
} end_of_child;

/* A call hangs if it runs for longer than call_ns, and no call begins or returns meanwhile. */
typedef struct {
    unsigned long long n_calls; /* at the last look */
    uint64_t since;             /* ns; when n_calls changed */
} call_clock;

static int hangs(check_result *r, call_clock *k, uint64_t call_ns) {
    const unsigned long long n = atomic_load(&r->n_calls);
    if (n != k->n_calls || !atomic_load(&r->in_call)) {
        k->n_calls = n;
        k->since = check_now_ns();
    }
    return check_now_ns() - k->since > call_ns;
}

/* Kills a child and its process group. One that cannot be reaped within 2 s is left alone. */
static void check_run_end(pid_t pid, int *how) {
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    for (int i = 0; i < 1000 && waitpid(pid, how, WNOHANG) != pid; i++)
        nap();
}

/* What one child may take: seconds for each rule, ns for each call. */
typedef struct {
    uint32_t seconds;
    uint64_t call_ns;
} time_limits;

static int is_done(const check_result *r) {
    return *(const volatile uint32_t *)&r->status > CHECK_RUNNING;
}

/* Waits for the child that runs rules [lo, hi), or ends it. *how: its wait status, if it ended by
 * itself. */
static end_of_child watch(pid_t pid, check_result *r, uint32_t lo, uint32_t hi,
                          const time_limits *limits, int *how) {
    uint64_t began = check_now_ns();
    call_clock clock = {0, began};
    uint32_t at = lo;
    while (waitpid(pid, how, WNOHANG) != pid) {
        while (at < hi && is_done(&r[at])) {
            at++;
            began = check_now_ns();
        }
        const int hung = at < hi && hangs(&r[at], &clock, limits->call_ns);
        if (hung || check_now_ns() - began > limits->seconds * SECOND) {
            check_run_end(pid, how);
            if (hung)
                return HUNG;
            return SLOW;
        }
        nap();
    }
    return ENDED;
}

/* The result of the rule that a child was running when it ended. */
static void died(check_result *r, end_of_child ended, int how, const time_limits *limits) {
    const char *doing = "the rule was tried";
    if (r->doing[0])
        doing = r->doing;
    const char *call = atomic_load(&r->call);
    char *msg = r->message;
    const size_t n = sizeof r->message;
    r->doing[sizeof r->doing - 1] = 0;
    if (ended == HUNG) {
        snprintf(msg, n, "%s did not return within %.3g s while %s", call ? call : "a call",
                 (double)limits->call_ns / 1e9, doing);
    } else if (ended == SLOW) {
        snprintf(msg, n, "did not return within %u s while %s", limits->seconds, doing);
    } else if (WIFSIGNALED(how)) {
        const char *name = sigabbrev_np(WTERMSIG(how));
        snprintf(msg, n, "crashed with SIG%s while %s", name ? name : "?", doing);
    } else {
        snprintf(msg, n, "ended the process with exit code %d while %s", WEXITSTATUS(how), doing);
    }
    r->status = CHECK_FAILED;
}

static void skip_rules(check_result *results, uint32_t lo, uint32_t hi, const char *fmt, ...)
    MN_PRINTF(4, 5);
static void skip_rules(check_result *results, uint32_t lo, uint32_t hi, const char *fmt, ...) {
    for (uint32_t i = lo; i < hi; i++) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(results[i].message, sizeof results[i].message, fmt, args);
        va_end(args);
        results[i].status = CHECK_SKIPPED;
    }
}

/* One child with rules [lo, hi). The rule that failed; hi = none. *no_process: fork failed. */
static uint32_t run_child(const check *c, check_report *report, uint32_t lo, uint32_t hi,
                          const time_limits *limits, int *no_process) {
    check_result *results = report->result;
    const pid_t self = getpid();
    const uint64_t began = check_now_ns();
    const pid_t pid = fork();
    uint32_t at = lo;
    int how = 0;
    *no_process = pid < 0;
    if (pid < 0)
        return hi;
    if (pid == 0)
        child(*c, results, lo, hi, self);
    const end_of_child ended = watch(pid, results, lo, hi, limits, &how);
    kill(-pid, SIGKILL); // processes that it has left
    if (ended == HUNG)
        report->hung_ns += limits->call_ns;
    if (ended == SLOW)
        report->hung_ns += check_now_ns() - began;
    while (at < hi && (results[at].status == CHECK_PASSED || results[at].status == CHECK_SKIPPED))
        at++;
    if (at < hi && results[at].status != CHECK_FAILED)
        died(&results[at], ended, how, limits);
    return at;
}

/* Rules [lo, hi) of one group. In a group that later groups depend on, a rule that fails ends
 * the group: the next one would fail, too, and as slowly. 0 = fork failed. */
static int run_rules(const check *c, check_report *report, uint32_t lo, uint32_t hi,
                     const check_group *group) {
    const uint64_t patience = c->patience * SECOND;
    const time_limits limits = {group->seconds, patience / 3};
    int no_process = 0;
    while (lo < hi && !no_process) {
        if (report->hung_ns >= patience) {
            skip_rules(report->result, lo, hi,
                       "calls that hang have taken %u s, and the check waits no longer (--limit)",
                       c->patience);
            break;
        }
        const uint32_t at = run_child(c, report, lo, hi, &limits, &no_process);
        lo = at + 1;
        if (at < hi && group->first) {
            skip_rules(report->result, lo, hi, "%s failed", check_rules[at].id);
            break;
        }
    }
    return !no_process;
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

/* The end of the group whose first rule is lo. */
static uint32_t end_of_group(uint32_t lo, const check_group *group) {
    uint32_t hi = lo;
    while (hi < check_n_rules && !strcmp(check_rules[hi].group, group->name))
        hi++;
    return hi;
}

/* A host that the plugin has to refuse (--abi) can try the file, and that it is refused. */
static int can_try(const check *c, const check_rule *rule) {
    uint32_t oldest;
    check_note_abi(c, &oldest);
    return check_host_played() >= oldest || !strcmp(rule->group, "static") ||
           !strcmp(rule->id, "host.minor");
}

/* The wanted rules among [lo, hi); all of them in a group that others depend on. 0 = no process
 * could be made. */
static int run_wanted(const check *c, check_report *r, uint32_t lo, uint32_t hi, const char *only,
                      const check_group *group) {
    if (group->first && can_try(c, &check_rules[lo]))
        return run_rules(c, r, lo, hi, group);
    while (lo < hi) {
        uint32_t end = lo;
        while (end < hi && wanted(check_rules[end].id, only) && can_try(c, &check_rules[end]))
            end++;
        if (!run_rules(c, r, lo, end, group))
            return 0;
        lo = end + 1;
    }
    return 1;
}

/* The id of the first rule among [lo, hi) that failed; NULL = none. */
static const char *first_failed(const check_report *r, uint32_t lo, uint32_t hi) {
    for (uint32_t i = lo; i < hi; i++)
        if (r->result[i].status == CHECK_FAILED)
            return check_rules[i].id;
    return NULL;
}

/* Results of rules outside of `only` are removed at the end. 0 = no process could be made. */
static int run_groups(check *c, check_report *r, const char *only) {
    const char *broken = NULL;
    uint32_t lo = 0;
    for (uint32_t g = 0; g < check_n_groups; g++) {
        const check_group *group = &check_groups[g];
        const uint32_t hi = end_of_group(lo, group);
        const int applies = group->kinds == CHECK_ANY || (group->kinds & r->facts.kinds);
        if (applies && broken)
            skip_rules(r->result, lo, hi, "%s failed", broken);
        else if (applies && !run_wanted(c, r, lo, hi, only, group))
            return 0;
        if (group->first && !broken)
            broken = first_failed(r, lo, hi);
        lo = hi;
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
