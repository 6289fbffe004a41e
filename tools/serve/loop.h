/* loop.h -- the front's event loop: one thread, epoll, and functions that are called when a
 * descriptor is ready. */
#ifndef MINERVA_SERVE_LOOP_H
#define MINERVA_SERVE_LOOP_H
#include <stdint.h>

/* Owned by whoever waits for the descriptor; it must outlive the registration and the events of the
 * round in which that ends: free it in an idle function, never in `ready` of another watch. */
typedef struct {
    void (*ready)(void *arg, uint32_t events); /* EPOLL* */
    void *arg;
} watch;

/* Each 0, or -1 with errno. A descriptor that is closed leaves the set by itself. */
int loop_create(void); /* the set */
int loop_add(int set, int fd, uint32_t events, watch *w);
int loop_change(int set, int fd, uint32_t events, watch *w);
void loop_remove(int set, int fd);
/* Waits at most timeout_ms (-1: no limit), and calls `ready` of what is ready. */
void loop_wait(int set, int timeout_ms);
#endif
