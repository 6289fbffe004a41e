/* guest.h -- the state of the process that a plugin could change while it is loaded. The probing
 * process compares the state before and after; the host restores the state that a plugin is known
 * to change. */
#ifndef MN_GUEST_H
#define MN_GUEST_H
#include "base/base.h"
#include <fenv.h>
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#define MN_GUEST_DESCRIPTORS 64 /* those from 0 on that are compared */

typedef struct {
    struct sigaction action[NSIG];
    sigset_t blocked; /* of the calling thread, as the two below */
    fenv_t arithmetic;
    int rounding;
    uint32_t fp_mode;      /* other bits that change results; 0 where they are not known */
    char folder[PATH_MAX]; /* "": somebody removed it; not compared */
    mode_t mask;
    struct rlimit limit[RLIM_NLIMITS];
    uint8_t is_open[MN_GUEST_DESCRIPTORS];
} mn_guest_state;

/* Clauses, separated by commas; "" = there are none. */
typedef struct {
    /* changes that may crash the program: closed descriptors, signal handlers and masks */
    char harm[256];
    /* changes that can be restored: folder, umask, limits, arithmetic */
    char odd[400];
} mn_guest_changes;

/* Reads the umask by setting it: no other thread should make files meanwhile. */
void mn_guest_look(mn_guest_state *out);
void mn_guest_compare(const mn_guest_state *was, const mn_guest_state *is, mn_guest_changes *out);
/* Between the two calls, output of a plugin to standard output goes to standard error; the second
 * call restores folder, umask, soft limits and arithmetic. For plugins that are known to need it:
 * other threads see the difference, too. */
typedef struct {
    mn_guest_state was;
    int output; /* the real standard output; -1 = there is none */
} mn_guest_visit;
void mn_guest_begin(mn_guest_visit *visit);
void mn_guest_end(const mn_guest_visit *visit);
/* Whether the process has a child, running or not waited for. */
bool mn_guest_has_children(void);
/* Threads of the process; 0 = not known. */
uint32_t mn_guest_threads(void);
#endif
