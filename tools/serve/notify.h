/* notify.h -- what a service manager is told (systemd's protocol): ready, stopping, and that the
 * loop still turns. One thread; nothing without NOTIFY_SOCKET. */
#ifndef MINERVA_SERVE_NOTIFY_H
#define MINERVA_SERVE_NOTIFY_H

typedef struct {
    double every_s; /* between two signs of life; 0: none is wanted */
    double next_at;
} notify_watchdog;

/* One datagram: "READY=1", or several lines. */
void notify_send(const char *state);
/* What the manager wants of this process: WATCHDOG_USEC, unless WATCHDOG_PID is another one's. */
notify_watchdog notify_watchdog_open(void);
/* In each round of the loop: a sign of life when it is due. now: seconds(). */
void notify_tick(notify_watchdog *w, double now);
#endif
