/* interrupt.c -- signals: Ctrl-C during a generation, and all signals while a line is typed.
 *
 * The state belongs to the process, because a signal handler gets no other data. During a
 * generation the handler cancels the session; while a line is typed it writes to a pipe, which
 * the line reader polls. Handlers use async-signal-safe functions only. */
#include "app.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static mn_session *volatile watched;
static volatile sig_atomic_t seen, catching;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    mn_session *s = watched;
    if ((!s && !catching) || seen)
        _exit(EXIT_INTERRUPTED); // no session to cancel, or a second Ctrl-C
    seen = 1;
    if (s)
        mn_session_cancel(s);
}

/* Installs the handler, unless SIGINT is ignored: nohup, background jobs of scripts. */
static void catch_interrupts(void) {
    struct sigaction action, old;
    if (sigaction(SIGINT, NULL, &old) == 0 && old.sa_handler == SIG_IGN)
        return;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

void interrupt_watch(mn_session *s) {
    watched = s;
    if (s)
        catch_interrupts();
}

void interrupt_catch(void) {
    catching = 1;
    catch_interrupts();
}

int interrupt_seen(void) {
    return seen != 0;
}
void interrupt_release(void) {
    catching = 0;
}
void interrupt_again(void) {
    seen = 0;
}

/* ---- while a line is typed ------------------------------------------------------------------- */
/* A pipe rather than EINTR: the signal may interrupt any thread. */
static int signal_pipe[2] = {-1, -1};
static const int typed_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGCONT};
static struct sigaction before[MN_COUNT(typed_signals)];

static void on_signal(int number) {
    const int e = errno;
    const unsigned char byte = (unsigned char)number;
    ssize_t wrote = write(signal_pipe[1], &byte, 1); // a full pipe wakes the reader, too
    (void)wrote;
    errno = e;
}

static int open_signal_pipe(void) {
    if (signal_pipe[0] >= 0)
        return 1;
    if (pipe(signal_pipe) != 0)
        return 0;
    for (int i = 0; i < 2; i++) {
        fcntl(signal_pipe[i], F_SETFL, O_NONBLOCK);
        fcntl(signal_pipe[i], F_SETFD, FD_CLOEXEC);
    }
    return 1;
}

int signals_to_pipe(void) {
    struct sigaction action;
    if (!open_signal_pipe())
        return -1;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < MN_COUNT(typed_signals); i++) {
        sigaction(typed_signals[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) // nohup
            sigaction(typed_signals[i], &action, NULL);
    }
    return signal_pipe[0];
}

void signals_restore(void) {
    char bytes[64];
    if (signal_pipe[0] < 0)
        return;
    for (size_t i = 0; i < MN_COUNT(typed_signals); i++)
        sigaction(typed_signals[i], &before[i], NULL);
    while (read(signal_pipe[0], bytes, sizeof bytes) > 0)
        continue;
}

void signals_pass_on(int number) {
    if (number == SIGTSTP) {
        kill(0, number); // to the whole process group, as the terminal does
        return;
    }
    signal(number, SIG_DFL);
    raise(number);
}
