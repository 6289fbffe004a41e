/* loop.c -- epoll behind the functions of loop.h. */
#include "serve/loop.h"
#include <sys/epoll.h>

int loop_create(void) {
    return epoll_create1(EPOLL_CLOEXEC);
}

/* The pointer to the watch travels with the event. */
static int control(int set, int operation, int fd, uint32_t events, watch *w) {
    struct epoll_event e = {.events = events, .data = {.ptr = w}};
    return epoll_ctl(set, operation, fd, &e);
}

int loop_add(int set, int fd, uint32_t events, watch *w) {
    return control(set, EPOLL_CTL_ADD, fd, events, w);
}

int loop_change(int set, int fd, uint32_t events, watch *w) {
    return control(set, EPOLL_CTL_MOD, fd, events, w);
}

void loop_remove(int set, int fd) {
    control(set, EPOLL_CTL_DEL, fd, 0, 0);
}

void loop_wait(int set, int timeout_ms) {
    struct epoll_event events[256];
    const int n = epoll_wait(set, events, 256, timeout_ms);
    for (int i = 0; i < n; i++) {
        const watch *w = events[i].data.ptr;
        w->ready(w->arg, events[i].events);
    }
}
