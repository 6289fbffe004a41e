/* bad_process.c -- the reference plugin with one rule of `minerva plugins check` broken that is
 * about what a plugin does beside its work: to the process that loads it and to data of the host,
 * and what it says of its memory. BAD_GROUP_NAME says which; BAD_HANG does not return. */
#include "stub.h"
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <fenv.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

MN_PLUGIN_NOTE("bad", MN_KIND_BACKEND, "");

#if defined(BAD_HONESTY_KEPT)
static mn_status weights_seal(mn_weights *w, mn_queue *q, uint32_t *how, mn_error *err) {
    const mn_status s = stub_inner->weights_seal(w, q, how, err);
    *how = MN_KEPT_COPIED;
    return s;
}
#elif defined(BAD_HONESTY_MEMORY)
static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    mn_status s = stub_inner->estimate(d, c, out, err);
    out->weights = out->scratch = out->import_peak = 0;
    return s;
}
static const mn_host *the_host;
static void *hoard;
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    if (!hoard)
        hoard = the_host->alloc(the_host->self, 8 << 20, 64);
    return stub_inner->compile(d, c, out, err);
}
static void device_close(mn_device *d) {
    the_host->release(the_host->self, hoard);
    hoard = NULL;
    stub_inner->device_close(d);
}
#elif defined(BAD_HONESTY_MEMORY_SCRATCH)
/* Forgets the scratch, which is less than what is granted for bookkeeping where rows are few. */
static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    mn_status s = stub_inner->estimate(d, c, out, err);
    out->scratch = 0;
    return s;
}
#elif defined(BAD_HONESTY_EXECUTE_ALLOCATES)
static const mn_host *the_host;
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    the_host->release(the_host->self, the_host->alloc(the_host->self, 1, 1));
    return stub_inner->execute(c, step, ev, err);
}
#elif defined(BAD_HONESTY_EXECUTE_ALLOCATES_MALLOC)
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    char *volatile scratch = malloc(64);
    free(scratch);
    return stub_inner->execute(c, step, ev, err);
}
#elif defined(BAD_PROCESS_CALLS_ENVIRONMENT)
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    setenv("OMP_NUM_THREADS", "1", 1);
    return stub_inner->execute(c, step, ev, err);
}
#elif defined(BAD_PROCESS_THREADS)
static void *wait_for_ever(void *arg) {
    for (;;)
        pause();
    return arg;
}
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    static int started;
    pthread_t t;
    if (!started++ && !pthread_create(&t, NULL, wait_for_ever, NULL))
        pthread_detach(t);
    return stub_inner->execute(c, step, ev, err);
}
#elif defined(BAD_HONESTY_ESTIMATE)
static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    static uint64_t calls;
    mn_status s = stub_inner->estimate(d, c, out, err);
    out->scratch += ++calls;
    return s;
}
#elif defined(BAD_HONESTY_FLAGS)
static mn_status wrap(mn_device *d, void *host, uint64_t bytes, mn_buffer **out, mn_error *err) {
    (void)d, (void)host, (void)bytes, (void)out;
    return stub_fail(err, MN_UNSUPPORTED, ~0u, "no wrap after all");
}
#elif defined(BAD_HONESTY_OUTPUTS)
static mn_status context_bind(mn_context *c, uint32_t set, const mn_binding *b, uint32_t n,
                              uint32_t stride, mn_error *err) {
    static uint32_t most;
    if (n < most)
        return stub_fail(err, MN_INVALID, ~0u, "an output is not bound");
    most = n;
    return stub_inner->context_bind(c, set, b, n, stride, err);
}
#elif defined(BAD_PROCESS_CONST)
static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *out, uint32_t stride,
                          mn_error *err) {
    for (uint32_t i = 0; i < c->graph->n_nodes; i++)
        ((mn_node *)(uintptr_t)c->graph->nodes)[i].pad = 0; // as it was: still written
    return stub_inner->supports(d, c, out, stride, err);
}
#elif defined(BAD_PROCESS_CONST_COMPILE)
static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    ((mn_compile *)(uintptr_t)c)->precision = MN_PRECISION_EXACT;
    return stub_inner->estimate(d, c, out, err);
}
#elif defined(BAD_PROCESS_CONST_VALUES)
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    mn_status s = stub_inner->execute(c, step, ev, err);
    ((int64_t *)(uintptr_t)step->values)[0] = 0;
    return s;
}
#elif defined(BAD_PROCESS_CALLS) || defined(BAD_PROCESS_CALLS_FOLDER) ||                           \
    defined(BAD_PROCESS_CALLS_LOCALE) || defined(BAD_PROCESS_SILENT) ||                            \
    defined(BAD_PROCESS_CHILDREN)
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
#if defined(BAD_PROCESS_CALLS)
    signal(SIGUSR2, SIG_IGN);
#elif defined(BAD_PROCESS_CALLS_LOCALE)
    uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
#elif defined(BAD_PROCESS_CALLS_FOLDER)
    if (chdir("/"))
        return MN_INVALID;
#elif defined(BAD_PROCESS_SILENT)
    printf("compiling"); // stays in the buffer
#else
    if (fork() == 0) { // a compiler server, say
        alarm(30);
        pause();
        _exit(0);
    }
#endif
    return stub_inner->compile(d, c, out, err);
}
#elif defined(BAD_HANG)
/* MINERVA_TEST_HANG names the call that does not return. */
static void maybe(const char *call) {
    const char *wanted = getenv("MINERVA_TEST_HANG");
    while (wanted && !strcmp(wanted, call))
        pause();
}
static mn_status device_open(void *self, uint32_t i, const mn_open_params *params, mn_device **out,
                             mn_error *err) {
    maybe("device_open");
    return stub_inner->device_open(self, i, params, out, err);
}
static mn_status weights_seal(mn_weights *w, mn_queue *q, uint32_t *how, mn_error *err) {
    maybe("weights_seal");
    return stub_inner->weights_seal(w, q, how, err);
}
static void context_free(mn_context *c) {
    maybe("context_free");
    stub_inner->context_free(c);
}
#endif

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
#if defined(BAD_PROCESS_LOAD)
    if (open("/dev/null", O_RDONLY) < 0)
        return NULL;
#elif defined(BAD_PROCESS_LOAD_UMASK)
    umask(0);
#elif defined(BAD_PROCESS_LOAD_ROUNDING)
    fesetround(FE_UPWARD);
#elif defined(BAD_PROCESS_CONST_HOST)
    ((mn_host *)(uintptr_t)host)->pad = 0;
#elif defined(BAD_HANG)
    maybe("minerva_plugin_entry");
#endif
    const mn_plugin *p = stub_enter(host, err, "bad");
#if defined(BAD_HONESTY_KEPT)
    stub_table.weights_seal = weights_seal;
#elif defined(BAD_HONESTY_MEMORY)
    the_host = host, stub_table.estimate = estimate, stub_table.compile = compile,
    stub_table.device_close = device_close;
#elif defined(BAD_PROCESS_CONST)
    stub_table.supports = supports;
#elif defined(BAD_PROCESS_CONST_COMPILE)
    stub_table.estimate = estimate;
#elif defined(BAD_PROCESS_CONST_VALUES)
    stub_table.execute = execute;
#elif defined(BAD_HONESTY_EXECUTE_ALLOCATES)
    the_host = host, stub_table.execute = execute;
#elif defined(BAD_HONESTY_EXECUTE_ALLOCATES_MALLOC) || defined(BAD_PROCESS_CALLS_ENVIRONMENT)
    stub_table.execute = execute;
#elif defined(BAD_PROCESS_THREADS)
    ((mn_plugin *)(uintptr_t)p)->flags |= MN_PLUGIN_UNLOADABLE;
    stub_table.execute = execute;
#elif defined(BAD_HONESTY_ESTIMATE) || defined(BAD_HONESTY_MEMORY_SCRATCH)
    stub_table.estimate = estimate;
#elif defined(BAD_HONESTY_FLAGS)
    stub_table.wrap = wrap;
#elif defined(BAD_HONESTY_OUTPUTS)
    stub_table.context_bind = context_bind;
#elif defined(BAD_PROCESS_CALLS) || defined(BAD_PROCESS_CALLS_FOLDER) ||                           \
    defined(BAD_PROCESS_CALLS_LOCALE) || defined(BAD_PROCESS_SILENT) ||                            \
    defined(BAD_PROCESS_CHILDREN)
    stub_table.compile = compile;
#elif defined(BAD_HANG)
    stub_table.device_open = device_open, stub_table.weights_seal = weights_seal;
    stub_table.context_free = context_free;
#endif
    return p;
}
