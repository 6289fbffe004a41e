/* call.h -- calls into plugins as observed from outside: a thread of the runtime detects calls that
 * hang, and a signal handler finds the call in which the process crashed.
 *
 * Every call into a plugin is announced by MN_WATCHED around it. MN_WATCHED costs some tens of
 * nanoseconds and no system call, except for the first call after seconds without calls. */
#ifndef MN_CALL_H
#define MN_CALL_H
#include "base/base.h"

typedef struct mn_watch mn_watch;

/* A plugin that is called: part of its host table, freed when no call is in flight. */
typedef struct {
    const char *id, *path; /* may change between two calls */
    char key[17];          /* of its file, for the crash journal; "" = not known */
    mn_watch *watch;       /* of its runtime; NULL = calls are not watched */
} mn_callee;

/* ---- announcing ------------------------------------------------------------------------------ */

typedef struct mn_call mn_call;
/* what: a literal, the function's name in plugin.h. expected_ns: 0 = it returns at once; else the
 * expected time of a step. callee NULL, or too many calls at a time: the call is not watched, and
 * NULL is returned. Any thread. */
mn_call *mn_call_begin(const mn_callee *callee, const char *what, uint64_t expected_ns);
void mn_call_end(mn_call *call); /* by the same thread; NULL is fine */

#define MN_WATCHED_FOR(callee, what, expected_ns, statement)                                       \
    do {                                                                                           \
        mn_call *call_ = mn_call_begin(callee, what, expected_ns);                                 \
        statement;                                                                                 \
        mn_call_end(call_);                                                                        \
    } while (0)
#define MN_WATCHED(callee, what, statement) MN_WATCHED_FOR(callee, what, 0, statement)
/* The expected time of a call that moves so many bytes, at 1 GB/s. */
#define MN_MOVES_NS(bytes) ((uint64_t)(bytes) + 1)

/* ---- watching: a thread per runtime ---------------------------------------------------------- */

/* A call as the watch sees it. */
typedef struct {
    const mn_callee *callee;
    const char *what;
    uint64_t expected_ns, waited_ns, limit_ns; /* limit: including the extra time of a step */
} mn_call_seen;
typedef struct {
    uint64_t say_ns;                  /* a call of that age is named in the log */
    uint64_t limit_ns, step_limit_ns; /* a call of that age is reported to stuck; 0 = never */
    void (*stuck)(void *arg,
                  const mn_call_seen *call); /* on the thread of the watch; may be NULL */
    void *arg;
} mn_watch_params;
/* A step gets extra time: 10 times its expected time until it is named, 100 times until it is
 * reported. NULL = no memory or thread; nothing is watched then. */
mn_watch *mn_watch_create(const mn_watch_params *p);
/* Call it when no call of its callees is in flight; waits for stuck to return. NULL is fine. */
void mn_watch_free(mn_watch *w);

/* ---- for handlers: async-signal-safe --------------------------------------------------------- */

/* Returns true and sets callee and what: the call of this thread, else a call of another thread.
 * alone (may be NULL): true if it is this thread's, or if all calls in flight have that callee. */
bool mn_call_now(const mn_callee **callee, const char **what, bool *alone);
/* In the child of a fork: forgets the calls of the parent's threads. */
void mn_call_fork(void);
#endif
