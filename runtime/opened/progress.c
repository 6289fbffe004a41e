/* progress.c -- what a session that is being created has done, reported to the application through
 * the runtime's callback. */
#include "opened/opened.h"

int32_t mn_runtime_progress(void *arg, float done, const char *what) {
    mn_runtime *rt = arg;
    pthread_mutex_lock(&rt->progress_lock);
    rt->progress_done = done;
    const int32_t stop = rt->progress(rt->callback_arg, done, what);
    pthread_mutex_unlock(&rt->progress_lock);
    return stop;
}
