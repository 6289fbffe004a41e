/* follow.c -- minerva serve on the ranks that follow. As on rank 0, the computing process is apart
 * from the one that the launcher started, which starts another one when the group has broken: rank
 * 0's front does the same with its engine, and both meet again. */
#include "serve/follow.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOST = 75, QUICK_S = 5, MAX_DELAY_S = 30 };

/* In the child; it does not return but with an error. */
static int follow_compute(const app_flags *flags, pid_t parent, const sigset_t *mask) {
    app a = {0};
    sigprocmask(SIG_SETMASK, mask, NULL);
    signal(SIGINT, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0);
    app_set_lost_code(LOST);
    int code = app_open_ranked(&a, flags);
    if (code == 0)
        code = complain(EXIT_USAGE, "found rank 0 where another was expected");
    app_close(&a);
    return code;
}

/* Waits for the child or for a signal that ends the server. 1: the child has ended. */
static int await(const sigset_t *set, pid_t child, int *status) {
    for (;;) {
        const int number = sigwaitinfo(set, NULL);
        if (number == SIGCHLD && waitpid(child, status, WNOHANG) == child)
            return 1;
        if (number == SIGTERM || number == SIGINT)
            return 0;
    }
}

int serve_follow(const app_flags *flags) {
    sigset_t set;
    sigset_t before;
    const pid_t self = getpid();
    int delay_s = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, &before);
    for (;;) {
        int status = 0;
        const double begin = seconds();
        const pid_t child = fork();
        if (child == 0) {
            const int code = follow_compute(flags, self, &before);
            contain_over();
            exit(code);
        }
        if (child < 0)
            return complain(EXIT_FAILED, "cannot start a process");
        if (!await(&set, child, &status)) {
            kill(child, SIGKILL);
            waitpid(child, NULL, 0);
            return 0;
        }
        if (WIFEXITED(status) && WEXITSTATUS(status) != LOST)
            return WEXITSTATUS(status);
        if (seconds() - begin > QUICK_S)
            delay_s = 0;
        note("warning: the engine of this rank has ended; starting it again");
        struct timespec wait = {.tv_sec = delay_s};
        nanosleep(&wait, NULL);
        delay_s = delay_s ? delay_s * 2 : 1;
        delay_s = delay_s < MAX_DELAY_S ? delay_s : MAX_DELAY_S;
    }
}
