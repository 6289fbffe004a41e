/* log.c -- messages for people, to stderr or to the application. The one state of the process that
 * is not in a handle: a message may come from where no handle is at hand. Names of files and words
 * of plugins are in messages: they are made plain. */
#include "base/base.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static struct {
    mn_log_fn fn;
    void *arg;
} sink;
/* Held while the function runs, which may log by itself: it is not called after mn_log_release. */
static pthread_mutex_t lock;
static atomic_bool listened;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic int32_t shown = MN_LOG_WARN;

static void make_lock(void) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &attr);
    pthread_mutexattr_destroy(&attr);
}

static void hold(void) {
    pthread_once(&once, make_lock);
    pthread_mutex_lock(&lock);
}

void mn_log_to(mn_log_fn fn, void *arg) {
    hold();
    sink.fn = fn;
    sink.arg = arg;
    atomic_store(&listened, fn != NULL);
    pthread_mutex_unlock(&lock);
}

void mn_log_release(const void *arg) {
    hold();
    if (sink.arg == arg) {
        sink.fn = NULL;
        atomic_store(&listened, false);
    }
    pthread_mutex_unlock(&lock);
}

void mn_log_level(int32_t highest_shown) {
    atomic_store(&shown, highest_shown);
}

/* One call, one line: stderr is unbuffered, and threads would mix theirs. */
static void to_stderr(int32_t level, const char *msg) {
    static const char *const prefix[] = {"error: ", "warning: ", "", "debug: "};
    fprintf(stderr, "minerva: %s%s\n",
            level >= 0 && level < (int32_t)MN_COUNT(prefix) ? prefix[level] : "", msg);
}

void mn_log(int32_t level, const char *fmt, ...) {
    if (level > atomic_load_explicit(&shown, memory_order_relaxed))
        return;
    char text[2048];
    char msg[sizeof text];
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0)
        return;
    const size_t len = MN_MIN((size_t)n, sizeof text - 1);
    mn_plain(msg, sizeof msg, (mn_str){text, mn_utf8_complete(text, len)}); /* one line, too */
    if (!atomic_load(&listened)) {
        to_stderr(level, msg);
        return;
    }
    hold();
    if (sink.fn)
        sink.fn(sink.arg, level, msg);
    pthread_mutex_unlock(&lock);
}
