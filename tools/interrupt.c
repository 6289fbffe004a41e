/* interrupt.c -- SIGINT. The one place with state that outlives a call: a signal handler has no
 * other way to know. */
#include "app.h"
#include <signal.h>
#include <string.h>
#include <unistd.h>

static mn_session *volatile watched;
static volatile sig_atomic_t seen, catching;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    mn_session *s = watched;
    if ((!s && !catching) || seen)
        _exit(EXIT_INTERRUPTED); // nothing to save, or asked twice
    seen = 1;
    if (s)
        mn_session_cancel(s);
}

static void catch_interrupts(void) {
    struct sigaction action, old;
    if (sigaction(SIGINT, NULL, &old) == 0 && old.sa_handler == SIG_IGN)
        return; // nohup and scripts' background jobs
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
void interrupt_again(void) {
    seen = 0;
}
