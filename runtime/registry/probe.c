/* probe.c -- asks plugins in other processes, all at the same time, under one deadline: what hangs
 * or crashes there costs a record. */
#include "registry/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define REPORT_MAX (1u << 20)
#define GRACE_NS 500000000u /* for a killed process to go; one that hangs in a driver does not */
#define ENTRY_MS 50         /* the contract */
#define BLIND_POLL_MS 5     /* where the kernel has no pidfd */

extern char **environ;

typedef struct {
    mn_probe_candidate *candidate;
    const char *failed; /* why it could not be asked at all; NULL = it was */
    int error;
    pid_t pid; /* 0 = not running */
    int how;   /* as of waitpid; -1 = somebody else took it */
    bool late, too_long;
    int pidfd, report_fd, output_fd; /* -1 = none */
    char tail[200];                  /* the end of what it printed */
    size_t n_tail;
    uint64_t ended_ns;
} child;

typedef struct {
    const char *program; /* as named; what is started is real */
    char real[PATH_MAX];
    mn_error untrusted; /* why it is not started at all; status 0 = it may be */
    /* of minerva-probe: [0] its name, [1] our process, [2] the plugin, then KEY=VALUE, NULL */
    char **args;
    child *children;
    struct pollfd *fds; /* [3 * n] */
    size_t n;
    uint64_t begin_ns, timeout_ns;
} probe_run;

/* ---- starting -------------------------------------------------------------------------------- */

/* A pipe whose ends lie above the descriptors that the child gets, so that none is overwritten. */
static bool open_pipe(int ends[2]) {
    int low[2];
    if (pipe2(low, O_CLOEXEC))
        return false;
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, MN_REPORT_FD + 1);
        close(low[i]);
    }
    if (ends[0] >= 0 && ends[1] >= 0)
        return fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0;
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    return false;
}

/* Its own process group, so that what it starts is killed with it; no signal ignored or blocked. 0,
 * or an errno. */
static int spawn(const probe_run *run, child *c, int report, int output) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    int error = posix_spawn_file_actions_init(&files);
    if (error)
        return error;
    if ((error = posix_spawnattr_init(&how)))
        return posix_spawn_file_actions_destroy(&files), error;
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF |
                                       POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigdefault(&how, &all);
    posix_spawnattr_setsigmask(&how, &none);
    error = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&files, output, 1);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&files, output, 2);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&files, report, MN_REPORT_FD);
    run->args[2] = c->candidate->file.real;
    if (!error)
        error = posix_spawn(&c->pid, run->real, &files, &how, run->args, environ);
    if (error)
        c->pid = 0;
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

static void start(const probe_run *run, child *c) {
    int report[2], output[2];
    c->failed = "cannot make a pipe";
    if (!open_pipe(report)) {
        c->error = errno;
        return;
    }
    if (open_pipe(output)) {
        c->failed = "cannot start";
        c->error = spawn(run, c, report[1], output[1]);
        close(output[1]);
        c->output_fd = output[0];
    } else
        c->error = errno;
    close(report[1]);
    c->report_fd = report[0];
    if (!c->pid)
        return;
    c->failed = NULL;
#ifdef SYS_pidfd_open
    c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
#endif
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void close_fd(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* What is there now, but not more than a few pages: another child waits, too. */
static void read_report(child *c) {
    char chunk[4096];
    mn_text *report = &c->candidate->report;
    for (int i = 0; i < 16 && c->report_fd >= 0; i++) {
        ssize_t n = read(c->report_fd, chunk, sizeof chunk);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0)
            close_fd(&c->report_fd);
        if (n > 0 && report->len + (size_t)n > REPORT_MAX)
            c->too_long = true;
        if (n > 0 && !c->too_long)
            mn_text_put(report, chunk, (size_t)n);
    }
}

static void read_output(child *c) {
    char chunk[4096];
    for (int i = 0; i < 16 && c->output_fd >= 0; i++) {
        ssize_t n = read(c->output_fd, chunk, sizeof chunk);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            close_fd(&c->output_fd);
            return;
        }
        size_t keep = MN_MIN((size_t)n, sizeof c->tail),
               old = MN_MIN(c->n_tail, sizeof c->tail - keep);
        memmove(c->tail, c->tail + c->n_tail - old, old);
        memcpy(c->tail + old, chunk + n - keep, keep);
        c->n_tail = old + keep;
    }
}

/* A child that the application's own handler took from us has ended, too: how, nobody tells. */
static void take_end(child *c) {
    int how = 0;
    pid_t pid = waitpid(c->pid, &how, WNOHANG);
    if (!pid || (pid < 0 && errno == EINTR))
        return;
    c->how = pid > 0 ? how : -1;
    kill(-c->pid, SIGKILL); /* what it started and left */
    c->pid = 0;
    c->ended_ns = mn_now_ns();
    read_report(c);
    read_output(c);
}

static void wait_some(probe_run *run, uint64_t until_ns) {
    uint64_t now = mn_now_ns(), left_ms = until_ns > now ? (until_ns - now + 999999) / 1000000 : 0;
    int ms = (int)MN_MIN(left_ms, (uint64_t)60000);
    for (size_t i = 0; i < run->n; i++) {
        const child *c = &run->children[i];
        const int fd[3] = {c->pidfd, c->report_fd, c->output_fd};
        for (size_t k = 0; k < 3; k++)
            run->fds[i * 3 + k] = (struct pollfd){c->pid ? fd[k] : -1, POLLIN, 0};
        if (c->pid && c->pidfd < 0)
            ms = MN_MIN(ms, BLIND_POLL_MS);
    }
    poll(run->fds, run->n * 3, ms);
    for (size_t i = 0; i < run->n; i++) {
        child *c = &run->children[i];
        if (!c->pid)
            continue;
        read_report(c);
        read_output(c);
        if (c->too_long)
            kill(-c->pid, SIGKILL);
        take_end(c);
    }
}

static bool any_running(const probe_run *run) {
    for (size_t i = 0; i < run->n; i++)
        if (run->children[i].pid)
            return true;
    return false;
}

static void kill_running(const probe_run *run) {
    for (size_t i = 0; i < run->n; i++)
        if (run->children[i].pid)
            kill(-run->children[i].pid, SIGKILL);
}

/* One deadline for all. What cannot even be killed is left behind: it sits in its driver and ends
 * with it, or with the machine. */
static void wait_all(probe_run *run) {
    uint64_t deadline = run->begin_ns + run->timeout_ns;
    while (any_running(run) && mn_now_ns() < deadline)
        wait_some(run, deadline);
    for (size_t i = 0; i < run->n; i++)
        run->children[i].late = run->children[i].pid != 0;
    kill_running(run);
    for (uint64_t until = mn_now_ns() + GRACE_NS; any_running(run) && mn_now_ns() < until;)
        wait_some(run, until);
}

/* ---- the verdict ----------------------------------------------------------------------------- */

static const char *signal_note(int number) {
    switch (number) {
    case SIGABRT:
        return " (aborted)";
    case SIGILL:
        return " (illegal instruction: built for another CPU?)";
    default:
        return "";
    }
}

/* "; its last words: ..." of what it printed */
static void last_words(const child *c, char *dst, size_t cap) {
    size_t n = c->n_tail, from = 0;
    while (n && (unsigned char)c->tail[n - 1] <= ' ')
        n--;
    for (size_t i = 0; i < n; i++)
        if (c->tail[i] == '\n')
            from = i + 1;
    /* the rest of a character that was cut */
    while (from < n && (c->tail[from] & 0xC0) == 0x80)
        from++;
    *dst = 0;
    if (n > from && mn_utf8_check(c->tail + from, n - from) == n - from)
        snprintf(dst, cap, "; its last words: %.*s", (int)(n - from), c->tail + from);
}

static void put_verdict(mn_text *report, mn_record_status status, const char *what,
                        const char *more) {
    mn_str at = mn_report_get(report, "phase");
    if (!at.len)
        at = mn_str_of("being started");
    mn_report_put(report, "status", "%s", mn_record_status_name(status));
    mn_report_put(report, "reason", "%s while %.*s%s", what, MN_STR_ARG(at), more);
}

static void put_hang(const probe_run *run, const child *c, mn_text *report) {
    char what[64];
    snprintf(what, sizeof what, "hung for %g s", (double)run->timeout_ns * 1e-9);
    put_verdict(report, MN_RECORD_HUNG, what, c->pid ? "; it could not even be killed" : "");
}

static void put_end(const child *c, mn_text *report) {
    char what[128], words[sizeof c->tail + 32];
    last_words(c, words, sizeof words);
    if (c->how < 0)
        snprintf(what, sizeof what, "crashed: ended without a complete report");
    else if (WIFSIGNALED(c->how)) {
        const char *name = sigabbrev_np(WTERMSIG(c->how));
        snprintf(what, sizeof what, "crashed: SIG%s%s", name ? name : "?",
                 signal_note(WTERMSIG(c->how)));
    } else
        snprintf(what, sizeof what, "crashed: exited with code %d", WEXITSTATUS(c->how));
    put_verdict(report, MN_RECORD_CRASHED, what, words);
}

static void put_failure(mn_text *report, const char *fmt, ...) MN_PRINTF(2, 3);
static void put_failure(mn_text *report, const char *fmt, ...) {
    char reason[PATH_MAX + 128];
    va_list args;
    va_start(args, fmt);
    vsnprintf(reason, sizeof reason, fmt, args);
    va_end(args);
    mn_report_put(report, "status", "%s", mn_record_status_name(MN_RECORD_FAILED));
    mn_report_put(report, "reason", "%s", reason);
}

/* Adds how long it took, and the verdict where the child could not give one itself. */
static void conclude(const probe_run *run, child *c) {
    mn_text *report = &c->candidate->report;
    uint64_t end = !c->late && c->ended_ns ? c->ended_ns : run->begin_ns + run->timeout_ns;
    bool complete = mn_report_complete(report) && !c->too_long;
    if (complete)
        report->len -= strlen(MN_REPORT_END);
    else if (report->len && report->ptr[report->len - 1] != '\n')
        mn_text_puts(report, "\n"); /* a line that was cut short */
    mn_report_put(report, "ms", "%u", (unsigned)((end - run->begin_ns) / 1000000));
    if (run->untrusted.status)
        put_failure(report, "cannot be probed: %s", run->untrusted.msg);
    else if (c->failed)
        put_failure(report, "cannot be probed: %s %s: %s", c->failed, run->program,
                    strerror(c->error));
    else if (c->too_long)
        put_failure(report, "its report is longer than %u bytes", REPORT_MAX);
    else if (!complete && c->late)
        put_hang(run, c, report);
    else if (!complete)
        put_end(c, report);
    mn_text_puts(report, MN_REPORT_END);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* The command line but for the plugin: our process, and plugins' own settings. NULL = out of
 * memory. */
static char **make_args(const mn_config *cfg, mn_text *settings) {
    const char *name, *value, *origin;
    size_t n = 0, at = 3;
    for (size_t i = 0; mn_config_at(cfg, i, &name, &value, &origin); i++)
        if (!strncmp(name, "plugin.", 7) && strcmp(origin, "default") != 0 && ++n) {
            mn_text_printf(settings, "%s=%s", name, value);
            mn_text_put(settings, "", 1); /* one after the other, each with its NUL */
        }
    char **args = settings->failed ? NULL : mn_calloc(n + 4, sizeof *args);
    for (size_t i = 0; args && i < settings->len; i += strlen(settings->ptr + i) + 1)
        args[at++] = settings->ptr + i;
    return args;
}

static mn_record_status status_in(const mn_text *report) {
    return mn_record_status_of(mn_report_get(report, "status"));
}

static bool worth_keeping(const mn_text *report) {
    const mn_record_status status = status_in(report);
    if (mn_report_number(report, "again"))
        return false;
    return status == MN_RECORD_OK || status == MN_RECORD_CRASHED || status == MN_RECORD_HUNG;
}

static mn_status run_children(probe_run *run, const mn_config *cfg, const mn_probe_cache *cache,
                              mn_error *err) {
    char parent[24];
    mn_text settings = {0};
    bool enough_memory = true;
    run->args = make_args(cfg, &settings);
    run->fds = mn_calloc(run->n * 3, sizeof *run->fds);
    if (run->args && run->fds) {
        static char name[] = "minerva-probe";
        snprintf(parent, sizeof parent, "%ld", (long)getpid());
        run->args[0] = name;
        run->args[1] = parent;
        run->begin_ns = mn_now_ns();
        for (size_t i = 0; i < run->n && !run->untrusted.status; i++)
            start(run, &run->children[i]);
        wait_all(run);
    }
    for (size_t i = 0; i < run->n && run->fds && run->args; i++) {
        child *c = &run->children[i];
        conclude(run, c);
        enough_memory = enough_memory && !c->candidate->report.failed;
        if (enough_memory && worth_keeping(&c->candidate->report))
            mn_probe_cache_keep(cache, &c->candidate->file, &c->candidate->report);
        close_fd(&c->pidfd), close_fd(&c->report_fd), close_fd(&c->output_fd);
    }
    enough_memory = enough_memory && run->args && run->fds;
    mn_free(run->args);
    mn_free(run->fds);
    mn_text_free(&settings);
    return enough_memory ? MN_OK : mn_fail_memory(err, run->n * sizeof *run->fds);
}

/* A hang is remembered as long as nobody is willing to wait longer. */
static bool remembered(const mn_probe_cache *cache, mn_probe_candidate *c, uint64_t timeout_ns) {
    c->cached = mn_probe_cache_find(cache, &c->file, &c->report);
    if (c->cached && status_in(&c->report) == MN_RECORD_HUNG &&
        (uint64_t)mn_report_number(&c->report, "ms") * 1000000 + 1000000 <= timeout_ns) {
        mn_text_free(&c->report);
        c->cached = false;
    }
    return c->cached;
}

mn_status mn_probe_all(const mn_config *cfg, const mn_trust *trust, const char *program,
                       mn_probe_candidate *list, size_t n, mn_error *err) {
    mn_probe_cache cache;
    probe_run run = {.program = program,
                     .untrusted = MN_ERROR_INIT,
                     .timeout_ns = (uint64_t)(mn_config_get_float(cfg, "probe_timeout") * 1e9)};
    if (!n || !run.timeout_ns)
        return MN_OK;
    run.children = mn_calloc(n, sizeof *run.children);
    mn_trust_path(trust, program, run.real, &run.untrusted);
    bool enough_memory = mn_probe_cache_open(&cache, cfg, program) && run.children;
    for (size_t i = 0; i < n && enough_memory; i++)
        if (!remembered(&cache, &list[i], run.timeout_ns))
            run.children[run.n++] =
                (child){.candidate = &list[i], .pidfd = -1, .report_fd = -1, .output_fd = -1};
    mn_status status = enough_memory ? MN_OK : mn_fail_memory(err, n * sizeof *run.children);
    if (status == MN_OK && run.n)
        status = run_children(&run, cfg, &cache, err);
    mn_probe_cache_close(&cache);
    mn_free(run.children);
    return status;
}

/* ---- from report to record ------------------------------------------------------------------- */

static const char *word_of(mn_str word, const char *const *words, size_t n, const char *otherwise) {
    for (size_t i = 0; i < n; i++)
        if (mn_str_is(word, words[i]))
            return words[i];
    return otherwise;
}

/* What the plugin told before it went wrong; the good ones tell it again when they are loaded. */
static bool take_facts(mn_plugin_record *rec, const mn_text *report) {
    static const char *const kinds[] = {"backend", "loader", "backend+loader"};
    mn_str id = mn_report_get(report, "id");
    uint32_t abi = mn_report_number(report, "abi");
    rec->kind = word_of(mn_report_get(report, "kind"), kinds, MN_COUNT(kinds), rec->kind);
    if (abi)
        rec->abi = abi;
    if (id.len && id.len < 64) {
        char *copy = mn_strndup(id.ptr, id.len);
        if (!copy)
            return false;
        mn_free((void *)(uintptr_t)rec->id.ptr);
        rec->id = (mn_str){copy, id.len};
    }
    return mn_plugin_text(&rec->vendor, mn_report_get(report, "vendor")) &&
           mn_plugin_text(&rec->version, mn_report_get(report, "version")) &&
           mn_plugin_text(&rec->build_id, mn_report_get(report, "build_id"));
}

bool mn_probe_judge(mn_plugin_record *rec, const mn_probe_candidate *c) {
    const mn_text *report = &c->report;
    if (!report->len)
        return true;
    const mn_record_status status = status_in(report);
    const mn_str reason = mn_report_get(report, "reason");
    rec->probe.done = true;
    rec->probe.ok = status == MN_RECORD_OK;
    rec->probe.cached = c->cached;
    rec->probe.ms = mn_report_number(report, "ms");
    rec->probe.entry_ms = mn_report_number(report, "entry_ms");
    int n = snprintf(rec->probe.text, sizeof rec->probe.text, "%s%s in %u ms",
                     c->cached ? "remembered: " : "", mn_record_status_name(status), rec->probe.ms);
    if (rec->probe.entry_ms > ENTRY_MS && n > 0 && (size_t)n < sizeof rec->probe.text)
        snprintf(rec->probe.text + n, sizeof rec->probe.text - (size_t)n,
                 "; its entry took %u ms, at most %d are allowed", rec->probe.entry_ms, ENTRY_MS);
    if (rec->probe.ok)
        return true;
    return take_facts(rec, report) &&
           mn_plugin_reject(rec, status, "%.*s%s", (int)MN_MIN(reason.len, (uint64_t)400),
                            reason.ptr, c->cached ? MN_PROBE_REMEMBERED : "");
}
