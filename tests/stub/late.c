/* late.c -- good in the probing process, and later not: the host is the first to meet it. The
 * plugin's options say where and how, so that one file is many plugins: MINERVA_LATE_IN (a
 * function's name, as entry or execute; nothing: it works) and MINERVA_LATE_HOW (hang, exit, slow,
 * or a signal: SIGSEGV, ...; execute: refuse, rounding, chatter; read: nan, or an id that is none;
 * device_info, vendor: claims that cannot be); MINERVA_LATE_AFTER: how many calls of execute go
 * well before. A real fault where the signal has one, so that it comes from the kernel. Slow,
 * anywhere: it works, and every execute takes 20 ms at least, on any machine. With MINERVA_LATE_CPU
 * it is a CPU, else a GPU that boasts, which auto wants. */
#include "stub.h"
#include <errno.h>
#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

MN_PLUGIN_NOTE("late", MN_KIND_BACKEND, "");

static char where[32], how[32], after[16];
static const mn_host *the_host;

static void option(const mn_host *host, const char *key, char *dst, size_t cap) {
    mn_str value;
    dst[0] = 0;
    if (!host->option(host->self, key, &value))
        return;
    const size_t n = value.len < cap ? value.len : cap - 1;
    memcpy(dst, value.ptr, n);
    dst[n] = 0;
}

static void fault(void) {
    volatile int *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *nowhere = 1;
}

static void *exit_soon(void *arg) {
    usleep(100000);
    exit(0);
    return arg;
}

static void *fault_in_thread(void *arg) {
    fault();
    return arg;
}

static int overflow_stack(volatile char *from, int depth) {
    volatile char frame[4096];
    frame[0] = from[0];
    return depth == 1 << 30 ? 0 : overflow_stack(frame, depth + 1) + frame[0];
}

static void misbehave(const char *here) {
    static const struct {
        const char *name;
        int number;
    } signals[] = {
        {"SIGBUS", SIGBUS}, {"SIGILL", SIGILL}, {"SIGFPE", SIGFPE}, {"SIGTERM", SIGTERM}};
    static int leaves;
    char start = 0;
    pthread_t thread;
    if (strcmp(where, here))
        return;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (!strcmp(how, signals[i].name))
            raise(signals[i].number);
    if (!strcmp(how, "SIGSEGV"))
        fault();
    if (!strcmp(how, "stack"))
        overflow_stack(&start, 0);
    if (!strcmp(how, "thread") && !pthread_create(&thread, NULL, fault_in_thread, NULL))
        pthread_join(thread, NULL);
    if (!strcmp(how, "later") && !leaves++) /* one: two exits at a time are undefined in C */
        pthread_create(&thread, NULL, exit_soon, NULL);
    if (!strcmp(how, "SIGABRT"))
        abort();
    if (!strcmp(how, "exit"))
        exit(0);
    while (!strcmp(how, "hang"))
        pause();
}

static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *out, uint32_t stride,
                          mn_error *err) {
    misbehave("supports");
    return stub_inner->supports(d, c, out, stride, err);
}

static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    misbehave("estimate");
    return stub_inner->estimate(d, c, out, err);
}

static mn_status memory_layout(mn_device *d, const mn_compile *c, uint32_t group,
                               mn_memory_layout *out, mn_error *err) {
    misbehave("memory_layout");
    return stub_inner->memory_layout(d, c, group, out, err);
}

static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    misbehave("compile");
    return stub_inner->compile(d, c, out, err);
}

static void device_close(mn_device *d) {
    misbehave("device_close");
    stub_inner->device_close(d);
}

static mn_status execute(mn_context *c, const mn_step *step, mn_event **event, mn_error *err) {
    static int n_done;
    if (!strcmp(where, "execute") && !strcmp(how, "refuse") && n_done >= atoi(after))
        return stub_fail(err, MN_INVALID, ~0u, "driver says no");
    if (!strcmp(where, "execute") && !strcmp(how, "rounding"))
        fesetround(FE_UPWARD);
    for (int i = 0; !strcmp(how, "chatter") && i < 500; i++)
        the_host->log(the_host->self, MN_LOG_WARN, (mn_str){"so it goes", 10});
    if (!strcmp(how, "slow") || !strcmp(how, "later"))
        usleep(20000);
    if (n_done++ >= atoi(after))
        misbehave("execute");
    return stub_inner->execute(c, step, event, err);
}

/* A device that works by itself and never finishes: what is read from it has an event, and waiting
 * for that comes back again and again. */
static char never;

static mn_status read_back(mn_queue *q, const mn_buffer *from, uint64_t at, mn_buffer *to,
                           uint64_t to_at, uint64_t bytes, mn_event **event, mn_error *err) {
    const int hangs = !strcmp(where, "wait") && event;
    mn_status st = stub_inner->read(q, from, at, to, to_at, bytes, hangs ? NULL : event, err);
    const int32_t wrong = !strcmp(how, "nan") ? MN_ID_NAN : 1 << 30;
    void *map = NULL;
    if (!st && !strcmp(where, "read") && bytes == 4 && !stub_inner->map(to, &map, NULL))
        memcpy((char *)map + to_at, &wrong, 4);
    if (hangs)
        *event = (mn_event *)&never;
    return st;
}

static mn_status wait_for(mn_event *event, uint64_t timeout_ns, mn_error *err) {
    if (event != (mn_event *)&never)
        return stub_inner->wait(event, timeout_ns, err);
    usleep((useconds_t)(timeout_ns < 100000000 ? timeout_ns / 1000 : 100000));
    return stub_fail(err, MN_TIMEOUT, ~0u, "not yet");
}

static void event_free(mn_event *event) {
    if (event != (mn_event *)&never)
        stub_inner->event_free(event);
}

static void (*inner_shutdown)(void *self);
static void shut_down(void *self) {
    misbehave("shutdown");
    inner_shutdown(self);
}

static mn_status absurd_info(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    const mn_status st = stub_boast(self, i, out, err);
    if (!strcmp(how, "nan"))
        out->mem_gbps = NAN;
    else
        out->mem_total = UINT64_C(4000000) << 40;
    return st;
}

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    char cpu[4] = "";
    const int in_host = !strstr(program_invocation_short_name, "probe");
    mn_plugin *p = (mn_plugin *)(uintptr_t)stub_enter(host, err, "late");
    if (!p)
        return NULL;
    if (in_host) {
        option(host, "in", where, sizeof where);
        option(host, "how", how, sizeof how);
        option(host, "after", after, sizeof after);
    }
    option(host, "cpu", cpu, sizeof cpu);
    the_host = host;
    if (!strcmp(where, "vendor"))
        p->vendor.len = UINT64_MAX;
    misbehave("entry");
    stub_table.supports = supports;
    stub_table.estimate = estimate;
    stub_table.memory_layout = memory_layout;
    stub_table.compile = compile;
    stub_table.device_close = device_close;
    stub_table.execute = execute;
    stub_table.read = read_back;
    stub_table.wait = wait_for;
    stub_table.event_free = event_free;
    if (!cpu[0])
        stub_table.device_info = stub_boast;
    if (!strcmp(where, "device_info"))
        stub_table.device_info = absurd_info;
    inner_shutdown = p->shutdown;
    p->shutdown = shut_down;
    return p;
}
