/* probe_plugin.c -- the prober: opens the plugin, tries what the host will do with it, and compares
 * the process before and after. It reports line by line, so that after a crash the watcher
 * (probe_watch.c), which gave it its descriptors, knows how far it came. Everything here ends with
 * the process. */
#include "registry/guest.h"
#include "registry/probe_main.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WORKERS 1                  /* the host waits: no other thread has to be scheduled */
#define CHILD_GRACE_NS 50000000u   /* for a process that is about to end */
#define THREAD_GRACE_NS 200000000u /* for threads that were told to end */
#define PAUSE_NS 1000000u

static pid_t own_pid;
static probe_shared *shared; /* the report; the watcher reads it */
static mn_guest_state before;
static uint32_t threads_before;
/* Of what is sent at once: a line's fields have at most 900 bytes, escapes included. Nothing is
 * allocated, so that what a plugin leaves of the memory does not decide what is said of it. */
static char line_room[8192];

/* ---- the report ------------------------------------------------------------------------------ */

/* A copy of this process, which a plugin made by fork and let run on, says nothing; the watcher
 * ends it. */
static void stop_copies(void) {
    while (getpid() != own_pid)
        pause();
}

/* Where the plugin closed the descriptor, the watcher has seen its end. */
static void wake_watcher(void) {
    const ssize_t unused = write(MN_REPORT_FD, "", 1);
    (void)unused;
}

/* A report that is full waits for the watcher, who sees that. */
static void send_bytes(const char *bytes, size_t n) {
    const uint32_t len = atomic_load_explicit(&shared->len, memory_order_relaxed);
    stop_copies();
    const size_t room = sizeof shared->bytes - len;
    const size_t fits = MN_MIN(n, room);
    memcpy(shared->bytes + len, bytes, fits);
    atomic_store_explicit(&shared->len, len + (uint32_t)fits, memory_order_release);
    if (fits < n)
        wake_watcher();
    while (fits < n)
        pause();
}

void probe_tell(const char *key, const char *fmt, ...) {
    char value[1024];
    mn_text line = {line_room, 0, sizeof line_room, false};
    va_list args;
    va_start(args, fmt);
    vsnprintf(value, sizeof value, fmt, args);
    va_end(args);
    mn_report_put(&line, key, "%s", value);
    send_bytes(line.ptr, line.len);
}

void probe_phase(const char *doing) {
    probe_tell("phase", "%s", doing);
}

/* The watcher sees the signal; where it comes from a write into what plugins are given as const,
 * the report says so. */
static void on_fault(int number, siginfo_t *info, void *context) {
    static const char line[] = "wrote\t1\n";
    const bool is_fault = info->si_code > 0;
    (void)context;
    if (is_fault && mn_sealed_has(info->si_addr))
        send_bytes(line, sizeof line - 1);
    if (!is_fault)
        raise(number);
}

/* The default action follows when the instruction faults again, or the signal is raised again. */
static void probe_plugin_catch_faults(void) {
    struct sigaction action = {.sa_sigaction = on_fault,
                               .sa_flags = SA_SIGINFO | (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, NULL);
}

/* What the plugin left in the buffer of standard output counts as printed. */
static void send_verdict(mn_record_status status, const char *reason) {
    mn_text lines = {line_room, 0, sizeof line_room, false};
    fflush(stdout);
    mn_report_verdict(&lines, status, "%s", reason);
    mn_text_puts(&lines, MN_REPORT_END);
    send_bytes(lines.ptr, lines.len);
    wake_watcher();
}

static _Noreturn void probe_plugin_finish(mn_record_status status, const char *reason) {
    send_verdict(status, reason);
    _exit(0); /* not through what the plugin's libraries have registered for the end */
}

/* The plugin failed, or there was no memory to try it. */
static _Noreturn void finish_failed(bool no_memory, const char *reason) {
    if (no_memory)
        probe_tell("memory", "1");
    probe_plugin_finish(MN_RECORD_FAILED, reason);
}

/* ---- before and after ------------------------------------------------------------------------ */

static bool leaves_children(void) {
    const uint64_t until = mn_now_ns() + CHILD_GRACE_NS;
    bool any = mn_guest_has_children();
    while (any && mn_now_ns() < until) {
        nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
        any = mn_guest_has_children();
    }
    return any;
}

/* Ends with a refusal where the process is not what a program could live with. after: "its
 * constructors and its entry" */
static void check_process(const char *after) {
    static mn_guest_state now;
    mn_guest_changes changes;
    char reason[600];
    mn_guest_look(&now);
    mn_guest_compare(&before, &now, &changes);
    if (*changes.odd)
        probe_tell("changes", "%s", changes.odd);
    if (leaves_children()) {
        snprintf(reason, sizeof reason,
                 "leaves a process that it started, running or not waited for, after %s", after);
        probe_plugin_finish(MN_RECORD_REFUSED, reason);
    }
    if (!*changes.harm)
        return;
    snprintf(reason, sizeof reason, "changes the process that opens it: after %s, %s", after,
             changes.harm);
    probe_plugin_finish(MN_RECORD_REFUSED, reason);
}

/* Threads beyond those that were there, once those that end have ended. */
static uint32_t leaves_threads(void) {
    const uint64_t until = mn_now_ns() + THREAD_GRACE_NS;
    uint32_t n = mn_guest_threads();
    while (n > threads_before && mn_now_ns() < until) {
        nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
        n = mn_guest_threads();
    }
    return n > threads_before ? n - threads_before : 0;
}

/* ---- the plugin ------------------------------------------------------------------------------ */

/* The configuration of this process is that of the host but for its command line, whose part about
 * plugins is in our arguments. */
static mn_status probe_plugin_load_config(int n, char **settings, mn_config **cfg, mn_error *err) {
    mn_config_override *over = mn_calloc((size_t)n + 1, sizeof *over);
    if (!over)
        return mn_fail_memory(err, 0);
    for (int i = 0; i < n; i++) {
        char *equals = strchr(settings[i], '=');
        if (!equals)
            continue;
        *equals = 0;
        over[i] = (mn_config_override){settings[i], equals + 1, NULL};
    }
    const mn_status st = mn_config_load(over, (size_t)n, cfg, err);
    mn_free(over);
    return st;
}

static void tell_facts(const mn_plugin_record *rec) {
    if (rec->id.len)
        probe_tell("id", "%s", rec->id.ptr);
    probe_tell("kind", "%s", rec->kind);
    probe_tell("abi", "%u", rec->abi);
    probe_tell("vendor", "%s", rec->vendor);
    probe_tell("version", "%s", rec->version);
    probe_tell("build_id", "%s", rec->build_id);
    probe_tell("entry_ms", "%u", rec->probe.entry_ms);
}

/* Opens it, up to its tables. */
static void open_plugin(const probe_request *rq, mn_services *services, mn_plugin_record *rec) {
    mn_config *cfg;
    mn_error err = MN_ERROR_INIT;
    mn_status st = probe_plugin_load_config(rq->n_settings, rq->settings, &cfg, &err);
    if (!st)
        st = mn_pool_create(WORKERS, &services->pool, &err);
    if (st)
        finish_failed(st == MN_OUT_OF_MEMORY, err.msg);
    services->cfg = cfg;
    if (rq->look == MN_OUT_OF_MEMORY || !mn_plugin_record_init(rec, services, rq->path))
        finish_failed(true, "out of memory");
    if (rq->look) {
        probe_tell("again", "1");
        probe_plugin_finish(MN_RECORD_REFUSED, "changed while it was being looked at");
    }
    rec->has_note = rq->file.note.found;
    rec->note_abi_oldest = rq->file.note.abi_oldest;
    threads_before = mn_guest_threads();
    mn_guest_look(&before);
    if (mn_plugin_load(rec, &rq->file, &err) != MN_OK)
        finish_failed(true, err.msg);
    tell_facts(rec);
    check_process("its constructors and its entry");
    if (rec->no_memory)
        probe_tell("memory", "1");
    if (rec->status != MN_RECORD_OK)
        probe_plugin_finish(rec->status, rec->reason);
}

/* Shutdown, and only then, if its threads allow it, dlclose. */
static void close_plugin(const probe_request *rq, mn_plugin_record *rec) {
    char reason[200];
    const bool unloads = rec->plugin->flags & MN_PLUGIN_UNLOADABLE;
    void *hold = dlopen(rq->file.real, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    probe_phase("shutting down");
    mn_plugin_unload(rec);
    const uint32_t n = leaves_threads();
    if (n && unloads) {
        snprintf(reason, sizeof reason,
                 "says that it may be unloaded, and leaves %u thread%s running after its shutdown, "
                 "without code then",
                 n, n == 1 ? "" : "s");
        probe_plugin_finish(MN_RECORD_REFUSED, reason);
    }
    if (n)
        probe_tell("leaves", "%u", n);
    if (unloads && hold) {
        probe_phase("being unloaded");
        dlclose(hold);
    }
    check_process("its shutdown");
}

_Noreturn void probe_plugin(const probe_request *rq, probe_shared *report) {
    static mn_services services = {.phase = probe_phase};
    mn_plugin_record rec;
    mn_error err = MN_ERROR_INIT;
    own_pid = getpid();
    shared = report;
    probe_phase("being started");
    probe_plugin_catch_faults();
    open_plugin(rq, &services, &rec);
    if (rec.backend)
        probe_devices(&rec);
    const mn_status st = rec.loader ? probe_loader(&rec, &err) : MN_OK;
    if (st)
        finish_failed(st == MN_OUT_OF_MEMORY, err.msg);
    check_process("a step on its devices and its samples");
    if (probe_is_watched(rq)) {
        probe_phase("being watched for 2 s");
        send_verdict(MN_RECORD_OK, "");
        nanosleep(&(struct timespec){PROBE_WATCH_NS / 1000000000, PROBE_WATCH_NS % 1000000000},
                  NULL);
    }
    close_plugin(rq, &rec);
    probe_plugin_finish(MN_RECORD_OK, "");
}
