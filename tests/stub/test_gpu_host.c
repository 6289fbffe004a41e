/* test_gpu_host.c -- plugins/gpu_host through the toy backend, with what no host should ask for:
 * objects of another device, copies onto themselves, buffers without bytes, transfers longer than
 * the ring, events that are waited for again: test_gpu_host GPU_TOY.so. The toy itself refuses a
 * call on a device that is not entered. */
#include "gpu_host.h"
#include "harness.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern const mn_host h_host; /* tests/kernels/host.c */
static const char *so;
static mn_error err;

/* Two devices with a queue each: one card opened twice. */
typedef struct {
    h_plugin p;
    mn_device *other;
    mn_queue *queue;
} pair;

static void pair_open(pair *o) {
    err = (mn_error){.size = sizeof err};
    assert_true(h_open(&o->p, so));
    assert_int_equal(mn_usual_open(o->p.be, o->p.api->self, 0, &o->other, &err), MN_OK);
    assert_int_equal(mn_usual_queue(o->p.be, o->other, &o->queue, &err), MN_OK);
}

static void pair_close(pair *o) {
    o->p.be->queue_free(o->queue);
    o->p.be->device_close(o->other);
    h_close(&o->p);
}

static mn_buffer *buffer_of(const pair *o, mn_device *d, uint64_t bytes, uint32_t kind) {
    mn_buffer *b = NULL;
    assert_int_equal(mn_usual_alloc(o->p.be, d, bytes, kind, &b, &err), MN_OK);
    return b;
}

static void is_foreign(mn_status st, const char *what) {
    assert_int_equal(st, MN_INVALID);
    assert_non_null(strstr(err.msg, what));
    assert_non_null(strstr(err.msg, "of another device"));
    err.msg[0] = 0;
}

static void foreign_buffers(void **state) {
    pair o;
    mn_event *copied = NULL;
    (void)state;
    pair_open(&o);
    const mn_backend *be = o.p.be;
    mn_buffer *own = buffer_of(&o, o.p.dev, 64, MN_MEM_DEVICE);
    mn_buffer *theirs = buffer_of(&o, o.other, 64, MN_MEM_DEVICE);
    mn_buffer *host = buffer_of(&o, o.other, 64, MN_MEM_HOST_PINNED);
    char bytes[64] = {0};
    const mn_memory_layout layout = {.size = sizeof layout, .page_tokens = 64, .page_bytes = 32};
    const mn_page_copy page = {0, 1, 1, 0};
    is_foreign(be->write(o.p.queue, theirs, 0, bytes, 64, &err), "a buffer");
    is_foreign(be->read(o.p.queue, theirs, 0, host, 0, 64, NULL, &err), "a buffer");
    is_foreign(be->copy(o.p.queue, own, 0, theirs, 0, 64, NULL, &err), "a buffer");
    is_foreign(be->copy(o.p.queue, theirs, 0, own, 0, 64, NULL, &err), "a buffer");
    is_foreign(be->memory_copy(o.p.queue, theirs, &layout, &page, 1, sizeof page, NULL, &err),
               "a buffer");
    /* pinned memory is the host's */
    assert_int_equal(be->copy(o.p.queue, own, 0, host, 0, 64, &copied, &err), MN_OK);
    assert_int_equal(be->wait(copied, UINT64_MAX, &err), MN_OK); /* before both are freed */
    be->event_free(copied);
    be->buffer_free(own);
    be->buffer_free(theirs);
    be->buffer_free(host);
    pair_close(&o);
}

static void foreign_queues(void **state) {
    pair o;
    case_plan *plan;
    (void)state;
    pair_open(&o);
    const case_on mixed = {.be = o.p.be, .dev = o.p.dev, .queue = o.queue};
    op_case *linear = case_random(MN_OP_LINEAR, MN_F32, &(op_shape){.rows = 2, .k = 8, .n = 4}, 1);
    op_case *add = case_random(MN_OP_ADD, MN_F32, &(op_shape){.rows = 2, .k = 8}, 1);
    is_foreign(case_open(&mixed, linear, MN_PRECISION_EXACT, &plan, &err), "a queue"); /* put */
    is_foreign(case_open(&mixed, add, MN_PRECISION_EXACT, &plan, &err), "a queue");    /* seal */
    case_free(linear);
    case_free(add);
    pair_close(&o);
}

/* A program with weights of the other device; a context with its queue and with its buffers. */
static void foreign_programs(void **state) {
    pair o;
    (void)state;
    pair_open(&o);
    const mn_backend *be = o.p.be;
    op_case *c = case_random(MN_OP_ADD, MN_F32, &(op_shape){.rows = 2, .k = 8}, 1);
    int64_t max[CASE_SYMBOLS];
    for (uint32_t i = 0; i < c->g.n_symbols; i++)
        max[i] = c->sym[i].max;
    mn_compile ask = case_question(c, MN_PRECISION_EXACT);
    mn_weights *weights;
    mn_program *program;
    mn_context *context;
    ask.symbol_max = max;
    assert_int_equal(be->weights_open(o.other, &ask, &weights, &err), MN_OK);
    ask.weights = weights;
    is_foreign(be->compile(o.p.dev, &ask, &program, &err), "a weight set");
    ask.weights = NULL;
    assert_int_equal(be->compile(o.p.dev, &ask, &program, &err), MN_OK);
    is_foreign(mn_usual_context(be, program, o.queue, &context, &err), "a queue");
    assert_int_equal(mn_usual_context(be, program, o.p.queue, &context, &err), MN_OK);
    mn_buffer *theirs = buffer_of(&o, o.other, 4096, MN_MEM_DEVICE);
    mn_binding b[3];
    for (uint32_t i = 0; i < 3; i++)
        b[i] = (mn_binding){.tensor = i, .buffer = theirs, .offset = 1024 * i, .bytes = 1024};
    assert_int_equal(c->g.n_tensors, 3);
    is_foreign(be->context_bind(context, 0, b, 3, sizeof *b, &err), "a buffer");
    assert_int_equal(mn_usual_execute(be, context, 0, max, NULL, &err),
                     MN_INVALID); /* nothing is bound */
    be->context_free(context);
    be->program_free(program);
    be->weights_free(weights);
    be->buffer_free(theirs);
    case_free(c);
    pair_close(&o);
}

static void copies_onto_themselves(void **state) {
    pair o;
    mn_event *copied = NULL;
    (void)state;
    pair_open(&o);
    const mn_backend *be = o.p.be;
    mn_buffer *b = buffer_of(&o, o.p.dev, 96, MN_MEM_DEVICE);
    mn_buffer *host = buffer_of(&o, o.p.dev, 96, MN_MEM_HOST_PINNED);
    assert_int_equal(be->copy(o.p.queue, b, 0, b, 31, 32, NULL, &err), MN_INVALID);
    assert_non_null(strstr(err.msg, "overlap"));
    assert_int_equal(be->copy(o.p.queue, b, 31, b, 0, 32, NULL, &err), MN_INVALID);
    assert_int_equal(be->copy(o.p.queue, b, 0, b, 0, 96, NULL, &err), MN_INVALID);
    assert_int_equal(be->copy(o.p.queue, b, 0, b, 32, 32, NULL, &err), MN_OK);
    assert_int_equal(be->copy(o.p.queue, b, 8, b, 8, 0, NULL, &err), MN_OK);
    assert_int_equal(be->copy(o.p.queue, host, 0, host, 1, 95, &copied, &err), MN_OK);
    assert_int_equal(be->wait(copied, UINT64_MAX, &err), MN_OK); /* and all before it */
    be->event_free(copied);
    be->buffer_free(b);
    be->buffer_free(host);
    pair_close(&o);
}

/* No bytes at all, and more than the ring has: each byte arrives. */
static void sizes(void **state) {
    enum { MANY = (32 << 18) + 4099, PLACE = 13 };
    pair o;
    void *read;
    mn_event *event = NULL;
    (void)state;
    pair_open(&o);
    const mn_backend *be = o.p.be;
    for (uint32_t kind = MN_MEM_DEVICE; kind <= MN_MEM_HOST_PINNED; kind++) {
        mn_buffer *none = buffer_of(&o, o.p.dev, 0, kind);
        mn_buffer *host = buffer_of(&o, o.p.dev, 0, MN_MEM_HOST_PINNED);
        assert_int_equal(be->write(o.p.queue, none, 0, "", 0, &err), MN_OK);
        assert_int_equal(be->write(o.p.queue, none, 0, "", 1, &err), MN_INVALID);
        assert_int_equal(be->write(o.p.queue, none, 1, "", 0, &err), MN_INVALID);
        assert_int_equal(be->write(o.p.queue, none, UINT64_MAX, "", 2, &err), MN_INVALID);
        assert_int_equal(be->read(o.p.queue, none, 0, host, 0, 0, NULL, &err), MN_OK);
        be->buffer_free(none);
        be->buffer_free(host);
    }
    uint8_t *bytes = malloc(MANY);
    uint64_t seed = 3;
    for (int i = 0; i < MANY; i++)
        bytes[i] = (uint8_t)(case_random_bits(&seed) >> 40);
    mn_buffer *b = buffer_of(&o, o.p.dev, MANY + PLACE, MN_MEM_DEVICE);
    mn_buffer *host = buffer_of(&o, o.p.dev, MANY, MN_MEM_HOST_PINNED);
    assert_int_equal(be->write(o.p.queue, b, PLACE, bytes, MANY, &err), MN_OK);
    assert_int_equal(be->read(o.p.queue, b, PLACE, host, 0, MANY, &event, &err), MN_OK);
    assert_int_equal(be->wait(event, UINT64_MAX, &err), MN_OK);
    assert_int_equal(be->map(host, &read, &err), MN_OK);
    assert_memory_equal(read, bytes, MANY);
    be->event_free(event);
    be->buffer_free(b);
    be->buffer_free(host);
    free(bytes);
    pair_close(&o);
}

/* An event is waited for twice, by queues of both devices, and freed before these reach it. */
static void events_again(void **state) {
    pair o;
    mn_event *event = NULL;
    mn_event *last = NULL;
    (void)state;
    pair_open(&o);
    const mn_backend *be = o.p.be;
    mn_buffer *b = buffer_of(&o, o.p.dev, 1 << 20, MN_MEM_DEVICE);
    mn_buffer *host = buffer_of(&o, o.p.dev, 1 << 20, MN_MEM_HOST_PINNED);
    assert_int_equal(be->read(o.p.queue, b, 0, host, 0, 1 << 20, &event, &err), MN_OK);
    assert_int_equal(be->queue_wait(o.queue, event, &err), MN_OK);
    assert_int_equal(be->queue_wait(o.p.queue, event, &err), MN_OK);
    assert_int_equal(be->wait(event, UINT64_MAX, &err), MN_OK);
    assert_int_equal(be->wait(event, 0, &err), MN_OK);
    assert_int_equal(be->queue_wait(o.queue, event, &err), MN_OK);
    be->event_free(event);
    assert_int_equal(be->read(o.p.queue, b, 0, host, 0, 1, &last, &err), MN_OK);
    assert_int_equal(be->wait(last, UINT64_MAX, &err), MN_OK);
    be->event_free(last);
    be->buffer_free(b);
    be->buffer_free(host);
    pair_close(&o);
}

/* ---- who is told of an event ----------------------------------------------------------------- */
typedef struct {
    int calls; /* atomic */
    mn_status status;
} told;

static void tell(void *arg, mn_status status) {
    told *t = arg;
    t->status = status;
    __atomic_add_fetch(&t->calls, 1, __ATOMIC_RELEASE);
}

static void is_told(const told *t, mn_status status) {
    const struct timespec nap = {0, 1000000};
    for (int i = 0; i < 20000 && !__atomic_load_n(&t->calls, __ATOMIC_ACQUIRE); i++)
        nanosleep(&nap, NULL);
    assert_int_equal(__atomic_load_n(&t->calls, __ATOMIC_ACQUIRE), 1);
    assert_int_equal(t->status, status);
}

/* Two queues, of which one waits for nothing: each event is told for itself, in whatever order, and
 * may be freed before. */
static void events_are_told(void **state) {
    enum { N = 40, BYTES = 1 << 16 };
    static told who[N];
    pair o;
    (void)state;
    pair_open(&o);
    const mn_backend *be = o.p.be;
    mn_buffer *b[2] = {buffer_of(&o, o.p.dev, BYTES, MN_MEM_DEVICE),
                       buffer_of(&o, o.other, BYTES, MN_MEM_DEVICE)};
    mn_buffer *host = buffer_of(&o, o.p.dev, 2 * BYTES, MN_MEM_HOST_PINNED);
    memset(who, 0, sizeof who);
    for (int i = 0; i < N; i++) {
        mn_event *event = NULL;
        mn_queue *q = i % 2 ? o.queue : o.p.queue;
        assert_int_equal(be->read(q, b[i % 2], 0, host, i % 2 * BYTES, BYTES, &event, &err), MN_OK);
        assert_int_equal(be->event_on_ready(event, tell, &who[i], &err), MN_OK);
        be->event_free(event);
    }
    for (int i = 0; i < N; i++)
        is_told(&who[i], MN_OK);
    be->buffer_free(b[0]);
    be->buffer_free(b[1]);
    be->buffer_free(host);
    pair_close(&o);
}

/* The device is lost behind its first kernel: what was under way is told so, and what comes
 * later. */
static void the_lost_are_told(void **state) {
    static told before;
    static told later;
    h_plugin p;
    case_plan *plan;
    mn_event *event = NULL;
    (void)state;
    h_host_option("lost_after", "1");
    assert_true(h_open(&p, so));
    const case_on on = {.be = p.be, .dev = p.dev, .queue = p.queue};
    op_case *c = case_random(MN_OP_ADD, MN_F32, &(op_shape){.rows = 2, .k = 8}, 1);
    assert_int_equal(case_open(&on, c, MN_PRECISION_EXACT, &plan, &err), MN_OK);
    mn_buffer *host = NULL;
    assert_int_equal(mn_usual_alloc(p.be, p.dev, 64, MN_MEM_HOST_PINNED, &host, &err), MN_OK);
    assert_int_equal(case_step(plan, c, &err), MN_DEVICE_LOST);
    mn_buffer *b = NULL;
    assert_int_equal(mn_usual_alloc(p.be, p.dev, 64, MN_MEM_DEVICE, &b, &err), MN_OK);
    assert_int_equal(p.be->read(p.queue, b, 0, host, 0, 64, &event, &err), MN_OK);
    assert_int_equal(p.be->event_on_ready(event, tell, &before, &err), MN_OK);
    is_told(&before, p.be->wait(event, UINT64_MAX, &err));
    assert_int_equal(before.status, MN_DEVICE_LOST);
    assert_int_equal(p.be->event_on_ready(event, tell, &later, &err), MN_OK);
    is_told(&later, MN_DEVICE_LOST);
    p.be->event_free(event);
    p.be->buffer_free(host);
    p.be->buffer_free(b);
    case_close(plan);
    case_free(c);
    h_close(&p);
    h_host_option(NULL, NULL);
}

/* ---- scratch --------------------------------------------------------------------------------- */
/* A sum of so many rows, whose scratch is its result's room. */
typedef struct {
    op_case *c;
    mn_program *program;
    uint64_t scratch;
    int64_t values[CASE_SYMBOLS];
} sum;

static sum sum_open(const pair *o, int64_t rows) {
    sum s = {.c = case_random(MN_OP_ADD, MN_F32, &(op_shape){.rows = rows, .k = 256}, 1)};
    mn_compile ask = case_question(s.c, MN_PRECISION_EXACT);
    mn_estimate e = {.size = sizeof e};
    for (uint32_t i = 0; i < s.c->g.n_symbols; i++)
        s.values[i] = s.c->sym[i].max;
    ask.symbol_max = s.values;
    assert_int_equal(o->p.be->estimate(o->p.dev, &ask, &e, &err), MN_OK);
    assert_int_equal(o->p.be->compile(o->p.dev, &ask, &s.program, &err), MN_OK);
    s.scratch = e.scratch;
    return s;
}

static void sum_close(const pair *o, const sum *s) {
    o->p.be->program_free(s->program);
    case_free(s->c);
}

static mn_context *context_of(const pair *o, const sum *s, mn_queue *q) {
    mn_context *context;
    assert_int_equal(mn_usual_context(o->p.be, s->program, q, &context, &err), MN_OK);
    return context;
}

static uint64_t used_by(const pair *o) {
    uint64_t free_bytes;
    uint64_t total;
    assert_int_equal(o->p.be->device_memory(o->p.dev, &free_bytes, &total, &err), MN_OK);
    return total - free_bytes;
}

/* What the toy takes for so many bytes: whole units of 256, one in front. */
static uint64_t block(uint64_t bytes) {
    return (bytes + 255) / 256 * 256 + 256;
}

/* One step, with the buffer as all three operands. */
static void step_of(const pair *o, const sum *s, mn_context *context, mn_buffer *b) {
    mn_binding at[3];
    mn_event *done = NULL;
    for (uint32_t i = 0; i < 3; i++)
        at[i] = (mn_binding){.tensor = i, .buffer = b, .offset = 4096 * i, .bytes = 4096};
    assert_int_equal(o->p.be->context_bind(context, 0, at, 3, sizeof *at, &err), MN_OK);
    assert_int_equal(mn_usual_execute(o->p.be, context, 0, s->values, &done, &err), MN_OK);
    assert_int_equal(o->p.be->wait(done, UINT64_MAX, &err), MN_OK);
    o->p.be->event_free(done);
}

/* Contexts of a queue have one scratch, of the largest; once a step knows where it lies it does not
 * grow, and a context that needs more gets another, which later ones share. */
static void one_scratch_of_a_queue(void **state) {
    pair o;
    (void)state;
    pair_open(&o);
    mn_queue *second;
    assert_int_equal(mn_usual_queue(o.p.be, o.p.dev, &second, &err), MN_OK);
    assert_non_null(o.p.api->query(o.p.api->self, "mn.x.scratch/1"));
    mn_buffer *b = buffer_of(&o, o.p.dev, 3 * 4096, MN_MEM_DEVICE);
    const sum s[] = {sum_open(&o, 4), sum_open(&o, 64), sum_open(&o, 256)};
    assert_true(s[0].scratch < s[1].scratch && s[1].scratch < s[2].scratch);
    const uint64_t before = used_by(&o);
    mn_context *c[6];
    c[0] = context_of(&o, &s[0], o.p.queue);
    assert_int_equal(used_by(&o) - before, block(s[0].scratch));
    c[1] = context_of(&o, &s[1], o.p.queue); /* grows */
    assert_int_equal(used_by(&o) - before, block(s[1].scratch));
    step_of(&o, &s[0], c[0], b);
    c[2] = context_of(&o, &s[0], o.p.queue); /* is small enough */
    assert_int_equal(used_by(&o) - before, block(s[1].scratch));
    c[3] = context_of(&o, &s[2], o.p.queue); /* is not, behind a step */
    assert_int_equal(used_by(&o) - before, block(s[1].scratch) + block(s[2].scratch));
    c[4] = context_of(&o, &s[1], o.p.queue); /* in the new one */
    step_of(&o, &s[0], c[0], b);
    assert_int_equal(used_by(&o) - before, block(s[1].scratch) + block(s[2].scratch));
    c[5] = context_of(&o, &s[0], second); /* another queue's */
    assert_int_equal(used_by(&o) - before,
                     block(s[0].scratch) + block(s[1].scratch) + block(s[2].scratch));
    for (int i = 0; i < 3; i++)
        o.p.be->context_free(c[i]);
    assert_int_equal(used_by(&o) - before, block(s[0].scratch) + block(s[2].scratch));
    for (int i = 3; i < 6; i++)
        o.p.be->context_free(c[i]);
    assert_int_equal(used_by(&o), before);
    for (int i = 0; i < 3; i++)
        sum_close(&o, &s[i]);
    o.p.be->buffer_free(b);
    o.p.be->queue_free(second);
    pair_close(&o);
}

/* A scratch that finds no room to grow stays what it was. */
static void scratch_without_room(void **state) {
    pair o;
    mn_context *large = NULL;
    (void)state;
    pair_open(&o);
    const sum s[] = {sum_open(&o, 4), sum_open(&o, 65536)};
    mn_context *small = context_of(&o, &s[0], o.p.queue);
    const uint64_t used = used_by(&o);
    uint64_t free_bytes;
    uint64_t total;
    assert_int_equal(o.p.be->device_memory(o.p.dev, &free_bytes, &total, &err), MN_OK);
    mn_buffer *all = buffer_of(&o, o.p.dev, free_bytes - s[1].scratch / 2, MN_MEM_DEVICE);
    mn_buffer *b = buffer_of(&o, o.p.dev, 3 * 4096, MN_MEM_DEVICE);
    assert_int_equal(mn_usual_context(o.p.be, s[1].program, o.p.queue, &large, &err),
                     MN_OUT_OF_MEMORY);
    step_of(&o, &s[0], small, b);
    o.p.be->buffer_free(all);
    o.p.be->buffer_free(b);
    assert_int_equal(used_by(&o), used);
    o.p.be->context_free(small);
    for (int i = 0; i < 2; i++)
        sum_close(&o, &s[i]);
    pair_close(&o);
}

/* A table that is longer than gpu_host has room for is no plugin. */
static void tables_too_long(void **state) {
    const mng_backend ops = {.id = "long", .n_ops = MNG_MAX_OPS + 1};
    const mng_backend segments = {.id = "long", .limits.segments = MNG_SEGMENTS + 1};
    (void)state;
    err = (mn_error){.size = sizeof err};
    assert_null(mng_plugin_entry(&h_host, &ops, &err));
    assert_non_null(strstr(err.msg, "65 operations"));
    assert_null(mng_plugin_entry(&h_host, &segments, &err));
    assert_non_null(strstr(err.msg, "33 segments"));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(foreign_buffers),
        cmocka_unit_test(foreign_queues),
        cmocka_unit_test(foreign_programs),
        cmocka_unit_test(copies_onto_themselves),
        cmocka_unit_test(sizes),
        cmocka_unit_test(events_again),
        cmocka_unit_test(events_are_told),
        cmocka_unit_test(the_lost_are_told),
        cmocka_unit_test(one_scratch_of_a_queue),
        cmocka_unit_test(scratch_without_room),
        cmocka_unit_test(tables_too_long),
    };
    if (argc != 2)
        return 1;
    so = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
