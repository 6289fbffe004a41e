/* notify.c -- datagrams to the socket that NOTIFY_SOCKET names: a path, or '@' and an abstract
 * name. The library of systemd would add nothing but a dependency. A manager that does not listen
 * is no error. */
#include "serve/notify.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void notify_send(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const size_t n = path ? strlen(path) : 0;
    if (!n || n >= sizeof to.sun_path || (*path != '/' && *path != '@'))
        return;
    memcpy(to.sun_path, path, n);
    if (*path == '@')
        to.sun_path[0] = 0;
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, size);
    close(fd);
}

notify_watchdog notify_watchdog_open(void) {
    const char *limit = getenv("WATCHDOG_USEC");
    const char *pid = getenv("WATCHDOG_PID");
    const double us = limit ? strtod(limit, NULL) : 0;
    if (!(us > 0) || us > 1e15 || (pid && strtol(pid, NULL, 10) != (long)getpid()))
        return (notify_watchdog){0};
    return (notify_watchdog){.every_s = us * 1e-6 / 3};
}

void notify_tick(notify_watchdog *w, double now) {
    if (!(w->every_s > 0) || now < w->next_at)
        return;
    w->next_at = now + w->every_s;
    notify_send("WATCHDOG=1");
}
