/* guest.c -- bad guests: plugins that work and do one thing to the process that opens them. STUB_ID
 * names the plugin; STUB_AT_CONSTRUCTOR, STUB_AT_ENTRY and STUB_AT_EXECUTE name one of the
 * functions below, which is called there. stub_test.py says what becomes of each. */
#include "stub.h"
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

MN_PLUGIN_NOTE(STUB_ID, MN_KIND_BACKEND, "");

/* ---- processes and threads ------------------------------------------------------------------- */

/* A child that keeps every descriptor open. */
static inline void fork_child(void) {
    if (!fork())
        for (;;)
            pause();
}
/* Both go on. */
static inline void fork_twin(void) {
    const pid_t pid = fork();
    (void)pid;
}
/* A child that nobody waits for, and whose parent is gone. */
static inline void fork_daemon(void) {
    const pid_t pid = fork();
    if (!pid) {
        setsid();
        fork_child();
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

static _Atomic int n_steps;
static inline void count_step(void) {
    n_steps++;
}
/* A second after the last of its steps: not before the first verdict, however slow the machine, and
 * not where no step is executed, as in the process that lists it. */
static inline void *crash_later(void *arg) {
    int seen = 0;
    for (int quiet = 0; quiet < 50; quiet++) {
        usleep(20000);
        if (!n_steps || n_steps != seen)
            quiet = 0;
        seen = n_steps;
    }
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
    return arg;
}
static inline void *work_on(void *arg) {
    for (;;)
        usleep(20000);
    return arg;
}
static inline void start(void *(*fn)(void *)) {
    pthread_t thread;
    if (!pthread_create(&thread, NULL, fn, NULL))
        pthread_detach(thread);
}
static inline void start_crash(void) {
    start(crash_later);
}
static inline void start_work(void) {
    start(work_on);
}

/* ---- state of the process -------------------------------------------------------------------- */

static inline void close_all(void) {
    for (int fd = 0; fd < 64; fd++)
        close(fd);
}
static inline void close_one(void) {
    close(7);
}
static inline void change_folder(void) {
    if (chdir("/"))
        _exit(1);
}
static inline void change_umask(void) {
    umask(0);
}
static inline void change_limits(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 40;
    setrlimit(RLIMIT_NOFILE, &limit);
}
static inline void change_rounding(void) {
    fesetround(FE_UPWARD);
}
static inline void ignore_signal(void) {
    signal(SIGTERM, SIG_IGN);
}
/* Slower than the CPU's kernels under any sanitizer: whoever measures does not choose it. */
static inline void be_slow(void) {
    usleep(250000);
}
static inline void print(void) {
    puts("welcome to this driver");
}

/* ---- what it says ---------------------------------------------------------------------------- */

#ifdef STUB_CLAIMS
/* A thousand million GB/s, and a cache of keys and values in f32 alone. */
static mn_status device_info(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    const mn_status st = stub_boast(self, i, out, err);
    out->mem_gbps = out->h2d_gbps = 1e9;
    return st;
}
static mn_status refuse_kv(const mn_compile *c, mn_error *err) {
    int is_f16 = 0;
    for (uint32_t i = 0; i < c->n_memory; i++) {
        const mn_memory_params *m = c->memory[i].params; /* the stride is this host's */
        is_f16 = is_f16 || m->k_dtype == MN_F16 || m->v_dtype == MN_F16;
    }
    if (!is_f16)
        return MN_OK;
    return stub_fail(err, MN_UNSUPPORTED, ~0u, "keys and values in f32 alone");
}
static mn_status weights_open(mn_device *d, const mn_compile *c, mn_weights **out, mn_error *err) {
    const mn_status st = refuse_kv(c, err);
    return st ? st : stub_inner->weights_open(d, c, out, err);
}
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    const mn_status st = refuse_kv(c, err);
    return st ? st : stub_inner->compile(d, c, out, err);
}
#endif

#ifdef STUB_ESCAPES
#define RED "\x1b[31mred\x1b[0m\a"
static mn_status device_info(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    const mn_status st = stub_boast(self, i, out, err);
    strcpy(out->name, RED);
    strcpy(out->driver, "\xc2\x9b"
                        "31m \xe2\x80\xae \xff");
    return st;
}
static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *out, uint32_t stride,
                          mn_error *err) {
    (void)d, (void)err;
    for (uint32_t i = 0; i < c->node_hi - c->node_lo; i++) {
        mn_verdict *v = (mn_verdict *)(void *)((char *)out + (size_t)i * stride);
        *v = (mn_verdict){.verdict = MN_VERDICT_NO, .reason = 1};
    }
    return MN_OK;
}
static mn_status reason(void *self, uint32_t why, char *buf, uint32_t cap) {
    (void)self, (void)why;
    snprintf(buf, cap, "not in " RED);
    return MN_OK;
}
#endif

/* ---- the plugin ------------------------------------------------------------------------------ */

#ifdef STUB_AT_CONSTRUCTOR
static __attribute__((constructor)) void at_load(void) {
    STUB_AT_CONSTRUCTOR();
}
#endif

#ifdef STUB_AT_EXECUTE
static mn_status execute(mn_context *c, const mn_step *step, mn_event **event, mn_error *err) {
    STUB_AT_EXECUTE();
    return stub_inner->execute(c, step, event, err);
}
#endif

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    mn_plugin *p = (mn_plugin *)(uintptr_t)stub_enter(host, err, STUB_ID);
    if (!p)
        return NULL;
#ifdef STUB_AT_ENTRY
    STUB_AT_ENTRY();
#endif
#ifdef STUB_AT_EXECUTE
    stub_table.execute = execute;
#endif
#ifdef STUB_STAYS
    p->flags &= ~(uint64_t)MN_PLUGIN_UNLOADABLE;
#endif
#ifdef STUB_CLAIMS
    stub_table.device_info = device_info;
    stub_table.weights_open = weights_open;
    stub_table.compile = compile;
#endif
#ifdef STUB_ESCAPES
    static const char version[] = "1.0" RED;
    static const char words[] = "the log, too: " RED;
    p->version = (mn_str){version, sizeof version - 1};
    host->log(host->self, MN_LOG_WARN, (mn_str){words, sizeof words - 1});
    stub_table.device_info = device_info;
    stub_table.supports = supports;
    stub_table.reason = reason;
#endif
    return p;
}
