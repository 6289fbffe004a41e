/* probe_watch.c -- the watcher: starts the prober, reads what it reports and prints, and gives the
 * verdict, which goes to the host and into the cache. A first verdict that is good is followed by a
 * watch: the prober idles for PROBE_WATCH_NS with the plugin open, closes it, and reports again;
 * that verdict is only in the cache, for the next start. Nothing of the plugin runs in this
 * process, so it survives whatever happens there, and it is the parent of whatever the prober
 * leaves behind (PR_SET_CHILD_SUBREAPER), which it counts and ends. */
#include "registry/guest.h"
#include "registry/probe_main.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_NS 500000000u /* for a killed process to go; one that hangs in a driver does not */
#define ORPHAN_GRACE_NS 100000000u
/* Descriptors beside those of the report that the prober has open, to see whether they stay so. */
#define FIRST_DECOY (MN_REPORT_FD + 1)
#define LAST_DECOY 15

enum { REPORT, STANDARD_OUT, STANDARD_ERROR, N_PIPES };

typedef struct {
    const probe_request *rq;
    pid_t pid;            /* the prober's, and its session's; 0 = it has ended */
    int how;              /* as of waitpid */
    int pipe[N_PIPES];    /* what the prober writes; -1 = closed */
    int signals;          /* of ended children */
    probe_shared *shared; /* what the prober reports */
    uint32_t n_taken;     /* of its bytes, which are in report */
    mn_text report;       /* without the lines MN_REPORT_END */
    bool is_complete;     /* such a line came since it was last waited for */
    bool too_long;
    bool host_is_gone;
    char tail[200]; /* the end of what it printed */
    size_t n_tail;
    char printed[80]; /* the begin of what it printed on standard output */
    size_t n_printed;
} watcher;

/* ---- starting -------------------------------------------------------------------------------- */

static void close_from(int first) {
#ifdef SYS_close_range
    if (!syscall(SYS_close_range, first, ~0u, 0))
        return;
#endif
    for (int fd = first; fd < 1024; fd++)
        close(fd);
}

/* The new process: a session of its own, nothing of the watcher's but the pipes, and descriptors
 * that a plugin has no business with. */
static _Noreturn void become_prober(const watcher *w, const int *ends, pid_t parent) {
    static const int place[N_PIPES] = {MN_REPORT_FD, STDOUT_FILENO, STDERR_FILENO};
    sigset_t none;
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1); /* it went before the line above */
    for (int i = 0; i < N_PIPES; i++)
        dup2(ends[i], place[i]);
    fcntl(MN_REPORT_FD, F_SETFD, FD_CLOEXEC);
    close_from(FIRST_DECOY);
    for (int fd = FIRST_DECOY; fd <= LAST_DECOY; fd++)
        dup3(STDIN_FILENO, fd, O_CLOEXEC);
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    probe_plugin(w->rq, w->shared);
}

/* false: errno says why. */
static bool start_prober(watcher *w) {
    int ends[N_PIPES];
    const pid_t self = getpid();
    for (int i = 0; i < N_PIPES; i++) {
        int both[2];
        if (pipe2(both, O_CLOEXEC))
            return false;
        w->pipe[i] = both[0];
        ends[i] = both[1];
        fcntl(w->pipe[i], F_SETFL, O_NONBLOCK);
    }
    w->pid = fork();
    if (!w->pid)
        become_prober(w, ends, self);
    for (int i = 0; i < N_PIPES; i++)
        close(ends[i]);
    return w->pid > 0;
}

/* Ended children are told by a descriptor, and a host that left by an error of write. False: errno
 * says why. */
static bool probe_watch_settle(watcher *w) {
    sigset_t ended;
    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ended, NULL);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    w->signals = signalfd(-1, &ended, SFD_CLOEXEC | SFD_NONBLOCK);
    w->shared =
        mmap(NULL, sizeof *w->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return w->signals >= 0 && w->shared != MAP_FAILED;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Takes out the next line MN_REPORT_END: whole reports follow each other. */
static void find_end(watcher *w) {
    static const char end[] = "\n" MN_REPORT_END;
    mn_text *report = &w->report;
    char *at = report->len ? memmem(report->ptr, report->len, end, sizeof end - 1) : NULL;
    if (!at)
        return;
    const size_t n = strlen(MN_REPORT_END);
    const size_t from = (size_t)(at - report->ptr) + 1;
    memmove(report->ptr + from, report->ptr + from + n, report->len - from - n);
    report->len -= n;
    w->is_complete = true;
}

/* What the prober has written since the last time. */
static void take_report(watcher *w) {
    const uint32_t len = atomic_load_explicit(&w->shared->len, memory_order_acquire);
    w->too_long = len >= sizeof w->shared->bytes;
    if (w->too_long || len <= w->n_taken)
        return;
    mn_text_put(&w->report, w->shared->bytes + w->n_taken, len - w->n_taken);
    w->n_taken = len;
}

static void probe_watch_take_output(watcher *w, const char *bytes, size_t n, bool standard) {
    const size_t keep = MN_MIN(n, sizeof w->tail);
    const size_t old = MN_MIN(w->n_tail, sizeof w->tail - keep);
    memmove(w->tail, w->tail + w->n_tail - old, old);
    memcpy(w->tail + old, bytes + n - keep, keep);
    w->n_tail = old + keep;
    if (!standard)
        return;
    const size_t first = MN_MIN(n, sizeof w->printed - w->n_printed);
    memcpy(w->printed + w->n_printed, bytes, first);
    w->n_printed += first;
}

/* What is there now, but not more than a few pages: there are other pipes. */
static void probe_watch_read_pipe(watcher *w, int which) {
    char chunk[4096];
    for (int i = 0; i < 16 && w->pipe[which] >= 0; i++) {
        const ssize_t n = read(w->pipe[which], chunk, sizeof chunk);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            close(w->pipe[which]);
            w->pipe[which] = -1;
        } else if (which != REPORT) {
            probe_watch_take_output(w, chunk, (size_t)n, which == STANDARD_OUT);
        }
    }
}

static void read_pipes(watcher *w) {
    for (int i = 0; i < N_PIPES; i++)
        probe_watch_read_pipe(w, i);
    take_report(w);
    if (!w->is_complete)
        find_end(w);
}

/* Collects ended children: the prober, and those that it left. */
static void probe_watch_reap(watcher *w) {
    struct signalfd_siginfo told;
    const ssize_t unused = read(w->signals, &told, sizeof told);
    (void)unused;
    for (;;) {
        int how = 0;
        const pid_t pid = waitpid(-1, &how, WNOHANG);
        if (pid <= 0)
            return;
        if (pid != w->pid)
            continue;
        w->pid = 0;
        w->how = how;
    }
}

static int ms_until(uint64_t until_ns) {
    const uint64_t now = mn_now_ns();
    const uint64_t ms = until_ns > now ? (until_ns - now + 999999) / 1000000 : 0;
    return (int)MN_MIN(ms, (uint64_t)60000);
}

static void wait_some(watcher *w, uint64_t until_ns, bool for_host) {
    struct pollfd fds[N_PIPES + 2];
    for (int i = 0; i < N_PIPES; i++)
        fds[i] = (struct pollfd){w->pipe[i], POLLIN, 0};
    fds[N_PIPES] = (struct pollfd){w->signals, POLLIN, 0};
    fds[N_PIPES + 1] = (struct pollfd){for_host ? MN_REPORT_FD : -1, 0, 0};
    poll(fds, MN_COUNT(fds), ms_until(until_ns));
    w->host_is_gone = fds[N_PIPES + 1].revents != 0;
    probe_watch_reap(w); /* before its last words are read */
    read_pipes(w);
}

/* Until the prober has written a whole report, has ended, or time is up. A plugin that closes its
 * pipe does not matter: the prober finds that out itself, reports, and ends. for_host: or until the
 * host is gone. */
static void wait_for_report(watcher *w, uint64_t until_ns, bool for_host) {
    w->is_complete = false;
    find_end(w);
    while (!w->is_complete && w->pid && !w->too_long && !w->host_is_gone && mn_now_ns() < until_ns)
        wait_some(w, until_ns, for_host);
}

/* ---- what is left behind --------------------------------------------------------------------- */

/* Calls fn for each child of this process; how many there are beside the prober. 0 where the kernel
 * does not list them. */
static uint32_t each_child(const watcher *w, void (*fn)(pid_t)) {
    char path[64];
    uint32_t n = 0;
    long pid = 0;
    snprintf(path, sizeof path, "/proc/self/task/%ld/children", (long)getpid());
    FILE *f = fopen(path, "re");
    while (f && fscanf(f, "%ld", &pid) == 1) {
        n += pid != w->pid;
        if (fn)
            fn((pid_t)pid);
    }
    if (f)
        fclose(f);
    return n;
}

static void end_process(pid_t pid) {
    kill(pid, SIGKILL);
}

/* Ends the prober and all that it started: what was its child becomes ours when it is gone. False:
 * something cannot even be killed. */
static bool clear(watcher *w) {
    const uint64_t until = mn_now_ns() + GRACE_NS;
    const pid_t session = w->pid;
    if (session)
        kill(-session, SIGKILL);
    for (;;) {
        each_child(w, end_process);
        probe_watch_reap(w);
        const bool any = mn_guest_has_children();
        if (!any || mn_now_ns() > until)
            return !any;
        usleep(500);
    }
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
static void last_words(const watcher *w, char *dst, size_t cap) {
    size_t n = w->n_tail;
    size_t from = 0;
    while (n && (unsigned char)w->tail[n - 1] <= ' ')
        n--;
    for (size_t i = 0; i < n; i++)
        if (w->tail[i] == '\n')
            from = i + 1;
    /* the rest of a character that was cut */
    while (from < n && (w->tail[from] & 0xC0) == 0x80)
        from++;
    *dst = 0;
    if (n > from)
        snprintf(dst, cap, "; its last words: %.*s", (int)(n - from), w->tail + from);
}

/* The last line that began. */
static mn_str probe_watch_phase(const watcher *w) {
    const mn_str at = mn_report_get(&w->report, "phase");
    return at.len ? at : mn_str_of("being started");
}

static void put_end(watcher *w) {
    char words[sizeof w->tail + 32];
    const mn_str at = probe_watch_phase(w);
    last_words(w, words, sizeof words);
    if (WIFSIGNALED(w->how)) {
        const int number = WTERMSIG(w->how);
        const char *name = sigabbrev_np(number);
        const bool wrote = mn_report_number(&w->report, "wrote");
        mn_report_verdict(&w->report, MN_RECORD_CRASHED, "crashed: SIG%s%s while %.*s%s%s",
                          name ? name : "?", signal_note(number), MN_STR_ARG(at),
                          wrote ? ", by a write into memory that it was given as const" : "",
                          words);
        return;
    }
    mn_report_verdict(&w->report, MN_RECORD_CRASHED, "crashed: exited with code %d while %.*s%s",
                      WEXITSTATUS(w->how), MN_STR_ARG(at), words);
}

static void put_hang(watcher *w) {
    const mn_str at = probe_watch_phase(w);
    const double s = (double)w->rq->timeout_ns * 1e-9;
    const bool gone = clear(w);
    mn_report_verdict(&w->report, MN_RECORD_HUNG, "hung for %g s while %.*s%s", s, MN_STR_ARG(at),
                      gone ? "" : "; it could not even be killed");
}

/* Processes whose parents in the prober's session are gone; those that end now do not count. */
static uint32_t count_orphans(watcher *w) {
    const uint64_t until = mn_now_ns() + ORPHAN_GRACE_NS;
    uint32_t n = each_child(w, NULL);
    while (n && mn_now_ns() < until) {
        wait_some(w, until, false);
        n = each_child(w, NULL);
    }
    return n;
}

/* What the prober could not see or say itself. */
static void probe_watch_judge(watcher *w) {
    const uint32_t n_orphans = count_orphans(w);
    if (w->report.len && w->report.ptr[w->report.len - 1] != '\n')
        mn_text_puts(&w->report, "\n"); /* a line that was cut short */
    if (w->too_long)
        mn_report_verdict(&w->report, MN_RECORD_FAILED, "its report is longer than %u bytes",
                          MN_REPORT_MAX);
    else if (!w->is_complete && !w->pid)
        put_end(w);
    else if (!w->is_complete)
        put_hang(w);
    else if (n_orphans && mn_report_status(&w->report) == MN_RECORD_OK)
        mn_report_verdict(&w->report, MN_RECORD_REFUSED,
                          "leaves %u process%s running that it started", n_orphans,
                          n_orphans == 1 ? "" : "es");
    while (w->n_printed && (unsigned char)w->printed[w->n_printed - 1] <= ' ')
        w->n_printed--;
    if (w->n_printed)
        mn_report_put(&w->report, "prints", "%.*s", (int)w->n_printed, w->printed);
}

/* ---- host and cache -------------------------------------------------------------------------- */

static bool is_worth_keeping(const mn_text *report) {
    const mn_record_status status = mn_report_status(report);
    if (mn_report_number(report, "again") || mn_report_number(report, "memory"))
        return false;
    return status == MN_RECORD_OK || status == MN_RECORD_CRASHED || status == MN_RECORD_HUNG ||
           status == MN_RECORD_REFUSED;
}

static void probe_watch_keep(const watcher *w, bool second) {
    mn_probe_cache cache = {0};
    mn_text record = {0};
    mn_text_put(&record, w->report.ptr, w->report.len);
    mn_text_puts(&record, MN_REPORT_END);
    mn_text_puts(&cache.host, w->rq->key);
    const bool enough_memory = !record.failed && !cache.host.failed;
    if (enough_memory && probe_is_watched(w->rq) && is_worth_keeping(&record))
        mn_probe_cache_keep(&cache, &w->rq->file, &record, second);
    mn_text_free(&record);
    mn_probe_cache_close(&cache);
}

/* The host waits for this, and for nothing after it. */
static void send_report(watcher *w) {
    static const char no_memory[] = "memory\t1\nstatus\tfailed\nreason\tout of memory while it was "
                                    "probed\n" MN_REPORT_END;
    mn_text_puts(&w->report, MN_REPORT_END);
    const mn_str all =
        w->report.failed ? mn_str_of(no_memory) : (mn_str){w->report.ptr, w->report.len};
    for (size_t at = 0; at < all.len;) {
        const ssize_t n = write(MN_REPORT_FD, all.ptr + at, all.len - at);
        if (n <= 0)
            break; /* nobody listens any more */
        at += (size_t)n;
    }
    close(MN_REPORT_FD);
    if (!w->report.failed)
        w->report.len -= strlen(MN_REPORT_END);
}

/* What the host had to wait for: the limit where something hangs. */
static void put_ms(watcher *w) {
    const bool hung = mn_report_status(&w->report) == MN_RECORD_HUNG;
    const uint64_t ns = hung ? w->rq->timeout_ns : mn_now_ns() - w->rq->begin_ns;
    mn_report_put(&w->report, "ms", "%" PRIu64, ns / 1000000);
    if (hung)
        mn_report_put(&w->report, "hung_at_s", "%" PRIu32, (uint32_t)(mn_now_ns() / 1000000000u));
}

/* When the watch ends; 0 = there is none, or it is over. */
static void put_watch(watcher *w, uint64_t until_ns) {
    mn_report_put(&w->report, "watch", "%" PRIu64, until_ns / 1000000);
}

/* The second verdict. */
static void watch_on(watcher *w) {
    wait_for_report(w, mn_now_ns() + PROBE_WATCH_NS + w->rq->timeout_ns, false);
    probe_watch_judge(w);
    if (mn_report_status(&w->report) == MN_RECORD_HUNG)
        put_ms(w);
    put_watch(w, 0);
    probe_watch_keep(w, true);
}

_Noreturn void probe_watch(const probe_request *rq) {
    watcher w = {.rq = rq, .pipe = {-1, -1, -1}, .signals = -1};
    if (probe_watch_settle(&w) && start_prober(&w)) {
        wait_for_report(&w, rq->begin_ns + rq->timeout_ns, true);
        if (!w.host_is_gone)
            probe_watch_judge(&w);
    } else {
        const int why = errno;
        if (why == ENOMEM)
            mn_report_put(&w.report, "memory", "1");
        mn_report_verdict(&w.report, MN_RECORD_FAILED, "cannot be probed: %s", strerror(why));
    }
    const bool is_ok = mn_report_status(&w.report) == MN_RECORD_OK && !w.host_is_gone;
    const bool goes_on = is_ok && probe_is_watched(rq);
    if (!w.host_is_gone) {
        const uint64_t until_ns = mn_now_ns() + PROBE_WATCH_NS + rq->timeout_ns;
        put_ms(&w);
        put_watch(&w, goes_on ? until_ns : 0);
        probe_watch_keep(&w, false);
        send_report(&w);
    }
    if (goes_on)
        watch_on(&w);
    clear(&w);
    _exit(0);
}
