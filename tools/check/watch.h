/* watch.h -- every call of the plugin, observed by the check: a table that records which function
 * runs before it passes the call on. The parent (check_run.c) sees so which call hangs, and the
 * rules about the process (process.c) look at what a call has left behind. */
#ifndef MINERVA_CHECK_WATCH_H
#define MINERVA_CHECK_WATCH_H
#include "check.h"

/* A call begins and ends, also one of another kind (dlopen). name: a string constant. Any
 * thread. */
void watch_begin(check *c, const char *name);
void watch_end(const char *name);

/* Tables that pass everything on to the plugin's own. A function that the plugin lacks is NULL
 * here, too. They last as long as the process; one plugin per process, whose selves share its
 * functions. */
const mn_backend *watch_backend(check *c, const mn_backend *be);
const mn_loader *watch_loader(check *c, const mn_loader *ld);

/* From now on called after each call, in the thread that made it. NULL: nothing is. */
void watch_after(void (*fn)(void *arg, const char *name), void *arg);
#endif
