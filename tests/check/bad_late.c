/* bad_late.c -- bad_backend.c for the rules about what happens after the seal, behind an event, in
 * memory that the host shares, and with a vendor's bytes: BAD_GROUP_NAME says which is broken, what
 * comes behind the rule's name tells ways to break it apart. */
#include "stub.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

MN_PLUGIN_NOTE("bad", MN_KIND_BACKEND, "");

/* ---- call.updates ---------------------------------------------------------------------------- */
#if defined(BAD_CALL_UPDATES) || defined(BAD_CALL_UPDATES_TYPE) ||                                 \
    defined(BAD_CALL_UPDATES_SEALED) || defined(BAD_CALL_UPDATES_LATE) ||                          \
    defined(BAD_CALL_UPDATES_SOURCE) || defined(BAD_CALL_UPDATES_LAST)
/* The last set that was opened with the flag, once it is sealed. */
static const mn_weights *flagged;
static const mn_weights *sealed;
static mn_status weights_open(mn_device *d, const mn_compile *c, mn_weights **out, mn_error *err) {
    const mn_status st = stub_inner->weights_open(d, c, out, err);
    if (!st && c->flags & MN_COMPILE_UPDATES)
        flagged = *out;
    return st;
}
static mn_status weights_seal(mn_weights *w, mn_queue *q, uint32_t *how, mn_error *err) {
    if (w == flagged)
        sealed = w;
    return stub_inner->weights_seal(w, q, how, err);
}
static void weights_free(mn_weights *w) {
    if (w == flagged)
        flagged = sealed = NULL;
    stub_inner->weights_free(w);
}
static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **ev,
                             mn_error *err);
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err);
static void change(void) {
    stub_table.weights_open = weights_open;
    stub_table.weights_seal = weights_seal;
    stub_table.weights_free = weights_free;
    stub_table.weights_put = weights_put;
    stub_table.execute = execute;
}
#endif

#if defined(BAD_CALL_UPDATES) || defined(BAD_CALL_UPDATES_TYPE) || defined(BAD_CALL_UPDATES_SEALED)
/* A put after the seal is passed over; one of another type is taken; one without the flag is. */
static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **ev,
                             mn_error *err) {
    mn_error e = {.size = sizeof e};
    if (ev)
        *ev = NULL;
#if defined(BAD_CALL_UPDATES)
    if (sealed == w)
        return MN_OK;
#endif
    const mn_status st = stub_inner->weights_put(w, q, src, ev, &e);
#if defined(BAD_CALL_UPDATES_TYPE)
    if (sealed == w)
        return MN_OK;
#elif defined(BAD_CALL_UPDATES_SEALED)
    if (strstr(e.msg, "is sealed"))
        return MN_OK;
#endif
    if (st && err)
        *err = e;
    return st;
}
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    return stub_inner->execute(c, step, ev, err);
}
#elif defined(BAD_CALL_UPDATES_LATE) || defined(BAD_CALL_UPDATES_SOURCE) ||                        \
    defined(BAD_CALL_UPDATES_LAST)
/* Puts after the seal wait: until a step has run with the old values; until the next step, and they
 * are read again before each later one, when the sources are gone; or all but the last tensor are
 * dropped. */
enum { MOST = 64, PLANES = 32 };
static struct {
    mn_weights *set;
    mn_queue *queue;
    mn_weight_src src;
    mn_plane planes[PLANES];
} waiting[MOST];
static uint32_t n_waiting;

static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **ev,
                             mn_error *err) {
    const uint32_t n = src->n_parts * src->n_planes;
    if (sealed != w || n > PLANES || n_waiting == MOST || src->planes->dtype != MN_F32)
        return stub_inner->weights_put(w, q, src, ev, err);
#if defined(BAD_CALL_UPDATES_LAST)
    n_waiting = 0;
#endif
    waiting[n_waiting].set = w;
    waiting[n_waiting].queue = q;
    waiting[n_waiting].src = *src;
    for (uint32_t i = 0; i < n; i++)
        memcpy(&waiting[n_waiting].planes[i], (const char *)src->planes + i * src->plane_stride,
               sizeof(mn_plane));
    waiting[n_waiting].src.plane_stride = sizeof(mn_plane);
    n_waiting++;
    if (ev)
        *ev = NULL;
    return MN_OK;
}
static void apply(void) {
    for (uint32_t i = 0; i < n_waiting; i++) {
        waiting[i].src.planes = waiting[i].planes;
        if (waiting[i].set == sealed)
            stub_inner->weights_put(waiting[i].set, waiting[i].queue, &waiting[i].src, NULL, NULL);
    }
#if !defined(BAD_CALL_UPDATES_SOURCE)
    n_waiting = 0;
#endif
}
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
#if !defined(BAD_CALL_UPDATES_LATE)
    apply();
#endif
    const mn_status st = stub_inner->execute(c, step, ev, err);
#if defined(BAD_CALL_UPDATES_LATE)
    apply();
#endif
    return st;
}
#elif defined(BAD_CALL_UPDATES_EARLY)
/* A device that works by itself, whose puts overtake the steps before them: a step without an event
 * runs, and its results are read, when somebody waits or the next step comes. */
static struct {
    mn_context *context;
    uint32_t set;
    int64_t values[16];
    mn_queue *queue;
    const mn_buffer *from;
    mn_buffer *to;
    uint64_t off, to_off, n;
} step_late;
static void run_late(void) {
    if (!step_late.context)
        return;
    const mn_step step = mn_usual_step(step_late.set, step_late.values);
    stub_inner->execute(step_late.context, &step, NULL, NULL);
    if (step_late.n)
        stub_inner->read(step_late.queue, step_late.from, step_late.off, step_late.to,
                         step_late.to_off, step_late.n, NULL, NULL);
    memset(&step_late, 0, sizeof step_late);
}
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    run_late();
    if (ev)
        return stub_inner->execute(c, step, ev, err);
    step_late.context = c;
    step_late.set = step->set;
    memcpy(step_late.values, step->values, 3 * sizeof *step->values);
    return MN_OK;
}
static mn_status read_late(mn_queue *q, const mn_buffer *b, uint64_t off, mn_buffer *to,
                           uint64_t to_off, uint64_t n, mn_event **ev, mn_error *err) {
    if (!step_late.context || step_late.n || !ev)
        return stub_inner->read(q, b, off, to, to_off, n, ev, err);
    step_late.queue = q;
    step_late.from = b;
    step_late.to = to;
    step_late.off = off;
    step_late.to_off = to_off;
    step_late.n = n;
    *ev = (mn_event *)(void *)&step_late;
    return MN_OK;
}
static mn_status wait_late(mn_event *e, uint64_t ns, mn_error *err) {
    run_late();
    return (void *)e == &step_late ? MN_OK : stub_inner->wait(e, ns, err);
}
static void free_late(mn_event *e) {
    if ((void *)e != &step_late)
        stub_inner->event_free(e);
}
static void context_free(mn_context *c) {
    run_late();
    stub_inner->context_free(c);
}
static void change(void) {
    stub_table.execute = execute;
    stub_table.read = read_late;
    stub_table.wait = wait_late;
    stub_table.event_free = free_late;
    stub_table.context_free = context_free;
}
#elif defined(BAD_CALL_UPDATES_ESTIMATE)
static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    mn_compile own = *c;
    own.flags &= ~(uint64_t)MN_COMPILE_UPDATES;
    return stub_inner->estimate(d, &own, out, err);
}
static void change(void) {
    stub_table.estimate = estimate;
}
#elif defined(BAD_CALL_UPDATES_KEPT)
static mn_status weights_seal(mn_weights *w, mn_queue *q, uint32_t *how, mn_error *err) {
    const mn_status st = stub_inner->weights_seal(w, q, how, err);
    *how |= MN_KEPT_ALIASED;
    return st;
}
static void change(void) {
    stub_table.weights_seal = weights_seal;
}

/* ---- call.on_ready --------------------------------------------------------------------------- */
#elif defined(BAD_CALL_ON_READY) || defined(BAD_CALL_ON_READY_NEVER) ||                            \
    defined(BAD_CALL_ON_READY_STATUS) || defined(BAD_CALL_ON_READY_CLOSED) ||                      \
    defined(BAD_CALL_ON_READY_AGAIN)
/* Calls twice; never; with a status of its own; once more when the device is closed; once more from
 * a thread, a while later. */
static void (*last_fn)(void *arg, mn_status status);
static void *last_arg;
#if defined(BAD_CALL_ON_READY_AGAIN)
static void *call_again(void *arg) {
    const struct timespec t = {0, 40000000};
    (void)arg;
    nanosleep(&t, NULL);
    last_fn(last_arg, MN_CANCELLED);
    return NULL;
}
#endif
static mn_status event_on_ready(mn_event *e, void (*fn)(void *arg, mn_status), void *arg,
                                mn_error *err) {
    (void)e;
    (void)err;
    last_fn = fn;
    last_arg = arg;
#if defined(BAD_CALL_ON_READY_STATUS)
    fn(arg, MN_TIMEOUT);
#elif !defined(BAD_CALL_ON_READY_NEVER)
    fn(arg, MN_OK);
#endif
#if defined(BAD_CALL_ON_READY)
    fn(arg, MN_OK);
#endif
#if defined(BAD_CALL_ON_READY_AGAIN)
    static uint32_t calls;
    pthread_t thread;
    if (++calls == 23 && !pthread_create(&thread, NULL, call_again, NULL)) /* the rule's last */
        pthread_detach(thread);
#endif
    return MN_OK;
}
static void device_close(mn_device *d) {
    stub_inner->device_close(d);
#if defined(BAD_CALL_ON_READY_CLOSED)
    if (last_fn)
        last_fn(last_arg, MN_OK);
#endif
}
static void change(void) {
    stub_table.event_on_ready = event_on_ready;
    stub_table.device_close = device_close;
}
#elif defined(BAD_CALL_ON_READY_EARLY)
/* Bytes are read when somebody waits for them; who is called is called at once. */
static struct {
    mn_queue *queue;
    const mn_buffer *from;
    mn_buffer *to;
    uint64_t off, to_off, n;
} late;
static void finish(void) {
    if (late.n)
        stub_inner->read(late.queue, late.from, late.off, late.to, late.to_off, late.n, NULL, NULL);
    late.n = 0;
}
static mn_status read_late(mn_queue *q, const mn_buffer *b, uint64_t off, mn_buffer *to,
                           uint64_t to_off, uint64_t n, mn_event **ev, mn_error *err) {
    finish();
    if (n != 1 << 20 || !ev)
        return stub_inner->read(q, b, off, to, to_off, n, ev, err);
    late.queue = q;
    late.from = b;
    late.to = to;
    late.off = off;
    late.to_off = to_off;
    late.n = n;
    *ev = (mn_event *)(void *)&late;
    return MN_OK;
}
static mn_status wait_late(mn_event *e, uint64_t ns, mn_error *err) {
    finish();
    return (void *)e == &late ? MN_OK : stub_inner->wait(e, ns, err);
}
static void free_late(mn_event *e) {
    finish();
    if ((void *)e != &late)
        stub_inner->event_free(e);
}
static mn_status event_on_ready(mn_event *e, void (*fn)(void *arg, mn_status), void *arg,
                                mn_error *err) {
    (void)e;
    (void)err;
    fn(arg, MN_OK);
    return MN_OK;
}
static void change(void) {
    stub_table.read = read_late;
    stub_table.wait = wait_late;
    stub_table.event_free = free_late;
    stub_table.event_on_ready = event_on_ready;
}

/* ---- call.wrap ------------------------------------------------------------------------------- */
#elif defined(BAD_CALL_WRAP)
/* A copy, which the host's own writes through map reach, too. */
static mn_status wrap(mn_device *d, void *host, uint64_t bytes, mn_buffer **out, mn_error *err) {
    void *at;
    mn_status st = mn_usual_alloc(stub_inner, d, bytes, MN_MEM_DEVICE, out, err);
    if (!st)
        st = stub_inner->map(*out, &at, err);
    if (!st)
        memcpy(at, host, bytes);
    return st;
}
static void change(void) {
    stub_table.wrap = wrap;
}
#elif defined(BAD_CALL_WRAP_FREE)
/* Takes the host's memory for its own. */
static const mn_buffer *wrapped;
static void *memory;
static mn_status wrap(mn_device *d, void *host, uint64_t bytes, mn_buffer **out, mn_error *err) {
    const mn_status st = stub_inner->wrap(d, host, bytes, out, err);
    wrapped = st ? NULL : *out;
    memory = host;
    return st;
}
static void buffer_free(mn_buffer *b) {
    if (b && b == wrapped)
        memset(memory, 0xff, 4096), munmap(memory, 4096);
    wrapped = b == wrapped ? NULL : wrapped;
    stub_inner->buffer_free(b);
}
static void change(void) {
    stub_table.wrap = wrap;
    stub_table.buffer_free = buffer_free;
}

/* ---- call.words ------------------------------------------------------------------------------ */
#elif defined(BAD_CALL_WORDS) || defined(BAD_CALL_WORDS_WAITS) || defined(BAD_CALL_WORDS_WRONG)
/* The first word stands for all; or a step that waits runs at once; or words that lie wrong are
 * left out. */
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    mn_step own = *step;
#if defined(BAD_CALL_WORDS)
    mn_word words[64] = {{0}};
    for (uint32_t i = 0; i < own.n_signals && i < 64; i++)
        words[i] = own.signals[0];
    own.signals = words;
    own.word_stride = sizeof *words;
#elif defined(BAD_CALL_WORDS_WAITS)
    own.n_waits = 0;
#else
    mn_step none = own;
    none.n_signals = 0;
    if (own.n_signals && stub_inner->execute(c, &own, ev, NULL) == MN_INVALID)
        return stub_inner->execute(c, &none, ev, err);
#endif
    return stub_inner->execute(c, &own, ev, err);
}
static void change(void) {
    stub_table.execute = execute;
}

/* ---- graph.blobs ----------------------------------------------------------------------------- */
#elif defined(BAD_GRAPH_BLOBS) || defined(BAD_GRAPH_BLOBS_YES)
/* Reads all blobs before it knows whose they are; or takes every operation of a vendor. */
static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *v, uint32_t stride,
                          mn_error *err) {
    const mn_graph *g = c->graph;
#if defined(BAD_GRAPH_BLOBS)
    volatile char sum = 0;
    for (uint32_t i = 0; i < g->n_blobs; i++)
        sum = (char)(sum + g->blobs[i].ptr[0]);
#endif
    const mn_status st = stub_inner->supports(d, c, v, stride, err);
#if defined(BAD_GRAPH_BLOBS_YES)
    for (uint32_t i = c->node_lo; i < c->node_hi && !st; i++) {
        const mn_node *n = (const void *)((const char *)g->nodes + (uint64_t)i * g->node_stride);
        mn_verdict *at = (void *)((char *)v + (uint64_t)(i - c->node_lo) * stride);
        if (n->op & MN_VENDOR && g->n_blobs)
            at->verdict = MN_VERDICT_NATIVE;
    }
#endif
    return st;
}
static void change(void) {
    stub_table.supports = supports;
}
#endif

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    const mn_plugin *p = stub_enter(host, err, "bad");
    if (p)
        change();
    return p;
}
