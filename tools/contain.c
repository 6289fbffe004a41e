/* contain.c -- plugins that hang, crash or end the process: the command ends with a message that
 * names the plugin and the call, and records a crash in the crash journal.
 *
 * The library never exits and installs no handler for these signals, which a program must
 * decide; the command does both here. The variables belong to the process, as the handlers of
 * signals and exit do. Handlers use async-signal-safe functions only. */
#include "app.h"
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the kernel saves, which is 11 KiB with AMX, and room for the handlers: those of models
 * (MN_MODEL_GUARD) want 16 KiB. */
enum { HANDLER_STACK = 128 << 10 };

static const int deadly[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
static const char *const deadly_names[] = {"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"};
static struct sigaction before[MN_COUNT(deadly)];
static _Alignas(64) char handler_stack[HANDLER_STACK];
static int installed;
static int told_fd = -1; /* of contain_tell */

/* Writes n words as one line on standard error; async-signal-safe. On a terminal it begins a new
 * line. */
static void write_line(const char *const *words, size_t n) {
    char line[4608];
    size_t at = 0;
    if (isatty(STDERR_FILENO))
        line[at++] = '\n';
    for (size_t i = 0; i < n; i++)
        for (const char *c = words[i]; *c && at < sizeof line - 1; c++)
            line[at++] = *c;
    line[at++] = '\n';
    const ssize_t wrote = write(STDERR_FILENO, line, at);
    (void)wrote;
}

/* ---- a call that hangs ----------------------------------------------------------------------- */

static atomic_int ends_with = -1; /* of contain_ends; -1 = the command still works */

void contain_ends(int code) {
    ends_with = code;
}

/* Whether the command is done and the plugin alone is not: its exit code is known. */
static int is_last_call(const char *call) {
    return ends_with >= 0 && (!strcmp(call, "shutdown") || !strcmp(call, "its destructors"));
}

/* Called by the runtime's watch thread. */
static void on_stuck(void *arg, const mn_plugin_call *call) {
    char after[48];
    const int is_last = is_last_call(call->call);
    (void)arg;
    snprintf(after, sizeof after, "%.1f s", (double)call->waited_ms * 1e-3);
    const char *const words[] = {is_last ? "minerva: warning: plugin " : "minerva: error: plugin ",
                                 call->plugin,
                                 " (",
                                 call->path,
                                 ") did not return from ",
                                 call->call,
                                 " within ",
                                 after,
                                 " (setting ",
                                 call->is_step ? "step_timeout" : "call_timeout",
                                 "): move the file away, or name other devices"};
    write_line(words, MN_COUNT(words));
    _exit(is_last ? ends_with : EXIT_FAILED);
}

/* ---- a crash --------------------------------------------------------------------------------- */

static size_t index_of(int number) {
    size_t i = 0;
    while (i + 1 < MN_COUNT(deadly) && deadly[i] != number)
        i++;
    return i;
}

void contain_tell(int fd) {
    told_fd = fd;
}

/* For the process that started this one: CONTAIN_CRASHED or CONTAIN_WROTE, and the id. */
static void tell_plugin(char what, const char *id) {
    char words[128] = {what};
    size_t n = 1;
    if (told_fd < 0)
        return;
    for (const char *c = id; *c && n < sizeof words; c++)
        words[n++] = *c;
    const ssize_t done = write(told_fd, words, n);
    (void)done;
}

/* Names the plugin whose call the process crashed in, then lets the signal end the process. */
static void on_death(int number, siginfo_t *info, void *context) {
    const size_t i = index_of(number);
    const int faulted = info->si_code > 0;
    mn_plugin_call call;
    (void)context;
    /* a signal from another process is not caused by a plugin */
    if ((faulted || info->si_pid == getpid()) && mn_plugin_call_now(&call)) {
        const int is = mn_plugin_crashed_at(number, faulted ? info->si_addr : NULL);
        const char *const wrote = ": it wrote into memory that it was given as const";
        const char *const words[] = {"minerva: error: plugin ",
                                     call.plugin,
                                     " (",
                                     call.path,
                                     ") crashed: ",
                                     deadly_names[i],
                                     " in ",
                                     call.call,
                                     is & MN_CRASH_WROTE ? wrote : ""};
        write_line(words, MN_COUNT(words));
        tell_plugin(is & MN_CRASH_WROTE ? CONTAIN_WROTE : CONTAIN_CRASHED, call.plugin);
    }
    sigaction(number, &before[i], NULL);
    /* a fault is raised again by the instruction, with its address */
    if (!faulted || number == SIGBUS)
        raise(number);
}

/* The handler needs its own stack: a stack overflow is one of the crashes. */
static void set_handler_stack(void) {
    const stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    sigaltstack(&stack, NULL);
}

static void catch_deaths(void) {
    struct sigaction action = {.sa_sigaction = on_death, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < MN_COUNT(deadly); i++)
        sigaction(deadly[i], &action, &before[i]);
}

/* ---- an exit --------------------------------------------------------------------------------- */

static int over; /* 1: main has returned */

void contain_over(void) {
    over = 1;
}

/* Called at exit. The command ends by returning from main; any other exit is called by a plugin. */
static void on_exit_inside(void) {
    static const char *const outside[] = {
        "minerva: error: a plugin's thread ended the process: exit was called between two calls"};
    mn_plugin_call call;
    if (over)
        return;
    if (mn_plugin_call_now(&call)) {
        const char *const words[] = {"minerva: error: plugin ",
                                     call.plugin,
                                     " (",
                                     call.path,
                                     ") ended the process: exit was called in ",
                                     call.call};
        write_line(words, MN_COUNT(words));
    } else
        write_line(outside, MN_COUNT(outside));
    _exit(EXIT_FAILED);
}

void contain_plugins(mn_runtime_params *params) {
    params->flags |= MN_RUNTIME_JOURNAL;
    params->call_limit_ms = MN_LIMIT_SETTING;
    params->step_limit_ms = MN_LIMIT_SETTING;
    params->stuck = on_stuck;
    if (installed)
        return;
    installed = 1;
    set_handler_stack();
    catch_deaths();
    atexit(on_exit_inside);
}
