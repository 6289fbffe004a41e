/* honesty.c -- group honesty: what a backend claims is true. Verdicts, memory, repeated steps,
 * estimates, waits, device flags and outputs that are not bound, each against what the device
 * then does. Memory is counted by the host of the stage (host.c), and outside of it by
 * device_memory or this process. */
#include "allocs.h"
#include "life.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- verdicts -------------------------------------------------------------------------------- */
/* If the verdict is yes, the case compiles. *n_programs counts. */
static void must_compile(check *c, stage *s, uint32_t op, uint32_t dtype, uint32_t *n_programs) {
    const char *name = case_op_name(op);
    const char *type = mn_dtype_name(dtype);
    op_shape shape = life_shape();
    shape.k = 256; // whole blocks of every type
    shape.n = 256;
    op_case *o = case_random(op, dtype, &shape, 5);
    CHECK(c, o, "out of memory");
    check_doing(c, "supports met %s with weights in %s", name, type);
    const int32_t least = case_verdict(&s->on, o);
    const char *verdict = "slow";
    if (least == MN_VERDICT_NATIVE)
        verdict = "native";
    for (uint32_t p = MN_PRECISION_AUTO; p <= MN_PRECISION_EXACT && least > MN_VERDICT_NO; p++) {
        case_plan *plan = NULL;
        mn_error err = check_error();
        mn_status st = case_open(&s->on, o, p, &plan, &err);
        CHECK_OK(c, st, &err, "%s with weights in %s, class %s, of which the verdict is %s", name,
                 type, check_class_name(p), verdict);
        case_close(plan);
        ++*n_programs;
    }
    case_free(o);
}

void check_honesty_native(check *c) {
    stage s;
    op_contracts list;
    uint32_t n_programs = 0;
    if (!stage_device(c, &s) || !stage_contracts(c, &s, &list))
        return;
    for (uint32_t i = 0; i < list.n; i++) {
        const uint32_t op = op_contract(&list, i)->op;
        for (uint32_t k = 0; mn_dtype_at(k) && case_op_name(op) && !check_over(c); k++)
            if (case_is_weight_type(mn_dtype_at(k)))
                must_compile(c, &s, op, mn_dtype_at(k), &n_programs);
    }
    if (check_over(c))
        return;
    stage_close(c, &s);
    check_found(c, "%u programs", n_programs);
}

/* The verdict of an op that is not in the table of contracts is no. */
void check_honesty_contracts(check *c) {
    stage s;
    op_contracts list;
    if (!stage_device(c, &s) || !stage_contracts(c, &s, &list))
        return;
    for (uint32_t op = 1; case_op_name(op); op++) {
        uint32_t i = 0;
        while (i < list.n && op_contract(&list, i)->op != op)
            i++;
        if (i < list.n)
            continue;
        op_case *o = life_case(c, op);
        if (!o)
            return;
        check_doing(c, "supports met %s, which contracts does not name", case_op_name(op));
        CHECK(c, !case_supported(&s.on, o),
              "%s: found a yes, expected no: contracts does not name it", case_op_name(op));
        case_free(o);
    }
    stage_close(c, &s);
}

/* ---- memory ---------------------------------------------------------------------------------- */
/* Granted to a program for its own records. Bounds that are too low by more are found. */
#define SLACK (UINT64_C(1) << 20)
/* Granted to the growth of a program with the rows of a step: sizes are rounded up to
 * alignments. */
#define GROWTH_SLACK (UINT64_C(64) << 10)
/* Granted outside of host->alloc: other processes may use the device at the same time, and
 * drivers and the C library allocate in large pieces. */
#define OUTSIDE_SLACK (UINT64_C(64) << 20)
enum { FEW_ROWS = 64, MANY_ROWS = 1024 };

/* stage_case, with so many rows and columns. */
static int open_large(check *c, stage *s, int64_t rows, int64_t k) {
    op_shape shape = life_shape();
    if (!stage_case(c, s))
        return 0;
    const uint32_t op = s->o->n[0].op;
    case_free(s->o);
    shape.rows = rows;
    shape.k = k;
    shape.n = k;
    s->o = case_random(op, MN_F32, &shape, 3);
    if (!s->o || s->o->failed)
        check_fail(c, "out of memory");
    return !check_over(c);
}

/* open_large, and the case compiled. */
static int open_large_plan(check *c, stage *s, int64_t rows, int64_t k) {
    if (!open_large(c, s, rows, k))
        return 0;
    mn_status st = case_open(&s->on, s->o, MN_PRECISION_EXACT, &s->plan, &s->p.err);
    return !check_status(c, st, &s->p.err, "compiling a small graph");
}

/* Bytes of the device in use; 0 = not known. */
static uint64_t device_held(const check_plugin *p) {
    uint64_t free_bytes = 0;
    uint64_t total = 0;
    if (!MN_HAS(mn_backend, p->be, device_memory))
        return 0;
    if (p->be->device_memory(p->dev, &free_bytes, &total, NULL))
        return 0;
    return total - free_bytes;
}

/* Bytes of this process in physical memory; 0 = not known. */
static uint64_t resident_bytes(void) {
    unsigned long long all = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f)
        return 0;
    const int n = fscanf(f, "%llu %llu", &all, &resident);
    fclose(f);
    if (n == 2)
        return resident * (uint64_t)sysconf(_SC_PAGESIZE);
    return 0;
}

/* Memory in use where allocations that bypass host->alloc show. For a device in the host's
 * memory that is this process: the free memory of the machine changes with every other program. */
static uint64_t outside_held(const check_plugin *p, const mn_device_info *info) {
    if (strcmp(info->mem_pool, "host"))
        return device_held(p);
    return resident_bytes();
}

/* The estimate of a program, and the memory that it took. */
typedef struct {
    mn_estimate stated;
    uint64_t buffers;    /* bytes of the check's own buffers */
    uint64_t held, peak; /* of host->alloc */
    uint64_t outside;    /* more than before, outside of host->alloc */
} taken;

/* Bytes of the check's own buffers: those bound, and the one that it reads back into, which the
 * plugin may allocate from the host or the device. */
static uint64_t buffer_bytes(const stage *s) {
    const case_plan *plan = s->plan;
    uint64_t n = plan->host_bytes;
    for (uint32_t i = 0; i < plan->n_bindings; i++)
        n += s->o->bytes[plan->binding[i].tensor] + 2 * plan->guard;
    return n;
}

/* Compiles the stage's case, runs it once, and counts. */
static void honesty_take(check *c, stage *s, const mn_device_info *info, taken *t) {
    const mn_compile ask = case_question(s->o, MN_PRECISION_EXACT);
    *t = (taken){.stated = {.size = sizeof t->stated}};
    mn_status st = s->p.be->estimate(s->p.dev, &ask, &t->stated, &s->p.err);
    CHECK_OK(c, st, &s->p.err, "estimate");
    check_host_mark(&s->host);
    const uint64_t before = (uint64_t)atomic_load(&s->host.bytes);
    const uint64_t outside = outside_held(&s->p, info);
    check_doing(c, "a graph was compiled and its memory counted");
    st = case_open(&s->on, s->o, MN_PRECISION_EXACT, &s->plan, &s->p.err);
    if (!st)
        st = case_step(s->plan, s->o, &s->p.err);
    CHECK_OK(c, st, &s->p.err, "a graph whose estimate fits");
    t->buffers = buffer_bytes(s);
    t->held = (uint64_t)atomic_load(&s->host.bytes) - before;
    t->peak = (uint64_t)atomic_load(&s->host.peak) - before;
    const uint64_t now = outside_held(&s->p, info);
    if (now > outside)
        t->outside = now - outside;
    else
        t->outside = 0;
}

static uint64_t stated_in_all(const taken *t) {
    return t->stated.weights + t->stated.scratch + t->stated.host_pinned + t->buffers;
}

static void judge_bound(check *c, const stage *s, const taken *t) {
    const mn_estimate *e = &t->stated;
    const uint64_t bound = stated_in_all(t) + SLACK;
    CHECK(c, t->held <= bound,
          "host->alloc: found %llu bytes held, expected at most %llu: weights %llu, scratch %llu, "
          "host_pinned %llu, buffers %llu, 1 MiB granted",
          (unsigned long long)t->held, (unsigned long long)bound, (unsigned long long)e->weights,
          (unsigned long long)e->scratch, (unsigned long long)e->host_pinned,
          (unsigned long long)t->buffers);
    CHECK(c, t->peak <= bound + e->import_peak,
          "host->alloc: found %llu bytes at the peak, expected at most %llu with import_peak",
          (unsigned long long)t->peak, (unsigned long long)(bound + e->import_peak));
    CHECK(c, t->outside <= bound + OUTSIDE_SLACK,
          "memory of device %s: found %llu bytes more in use, expected at most %llu and 64 MiB "
          "granted",
          s->p.api->id.ptr, (unsigned long long)t->outside, (unsigned long long)bound);
}

/* A program's records do not grow with the rows of a step: what grows is scratch. */
static void judge_growth(check *c, const taken *few, const taken *many) {
    const uint64_t stated = stated_in_all(many) + GROWTH_SLACK;
    uint64_t grown = 0;
    if (many->held > few->held)
        grown = many->held - few->held;
    const uint64_t most = stated > stated_in_all(few) ? stated - stated_in_all(few) : 0;
    CHECK(c, grown <= most,
          "host->alloc: found %llu bytes more held for %d rows than for %d, expected at most %llu: "
          "by the estimates weights %llu and %llu, scratch %llu and %llu",
          (unsigned long long)grown, MANY_ROWS, FEW_ROWS, (unsigned long long)most,
          (unsigned long long)many->stated.weights, (unsigned long long)few->stated.weights,
          (unsigned long long)many->stated.scratch, (unsigned long long)few->stated.scratch);
}

/* take, on a stage of its own. */
static int take_rows(check *c, const mn_device_info *info, int64_t rows, taken *t) {
    stage s;
    if (!open_large(c, &s, rows, 256))
        return 0;
    honesty_take(c, &s, info, t);
    if (!check_over(c))
        stage_close(c, &s);
    return !check_over(c);
}

/* The case is large enough that its weights and scratch are more than the slack. */
void check_honesty_memory(check *c) {
    stage s;
    taken t;
    taken few;
    taken many;
    mn_device_info info = {.size = sizeof info};
    const mn_estimate *e = &t.stated;
    if (!open_large(c, &s, 64, 1024))
        return;
    mn_status st = s.p.be->device_info(s.p.api->self, 0, &info, &s.p.err);
    CHECK_OK(c, st, &s.p.err, "device_info");
    honesty_take(c, &s, &info, &t);
    if (check_over(c))
        return;
    CHECK(c, e->weights <= info.mem_total && e->scratch <= info.mem_total - e->weights,
          "a graph of one %s with 4 MiB of weights: found an estimate of %llu bytes of weights and "
          "%llu of scratch, expected at most the device's %llu",
          case_op_name(s.o->n[0].op), (unsigned long long)e->weights,
          (unsigned long long)e->scratch, (unsigned long long)info.mem_total);
    judge_bound(c, &s, &t);
    if (check_over(c))
        return;
    stage_close(c, &s);
    if (!take_rows(c, &info, FEW_ROWS, &few) || !take_rows(c, &info, MANY_ROWS, &many))
        return;
    judge_growth(c, &few, &many);
    check_found(c, "estimate %llu + %llu bytes, held %llu beside %llu of buffers",
                (unsigned long long)e->weights, (unsigned long long)e->scratch,
                (unsigned long long)(t.held > t.buffers ? t.held - t.buffers : 0),
                (unsigned long long)t.buffers);
}

/* One step whose values were prepared. */
static void must_not_allocate(check *c, stage *s) {
    const mn_backend *be = s->p.be;
    const long long rows = s->o->value[0];
    const long long before = atomic_load(&s->host.calls);
    const void *code;
    memcpy(&code, &s->p.api->query, sizeof code); /* ISO C has no cast */
    const int counts = allocs_begin(code);
    mn_event *ev = NULL;
    check_doing(c, "execute ran for %lld rows", rows);
    mn_status st = mn_usual_execute(be, s->plan->contexts[0], 0, s->o->value, &ev, &s->p.err);
    const long long calls = atomic_load(&s->host.calls) - before;
    st = case_wait(be, st, &ev, &s->p.err);
    const unsigned long long own = allocs_end();
    CHECK_OK(c, st, &s->p.err, "execute");
    CHECK(c, !counts || !own,
          "execute of %lld rows: found %llu calls of malloc, calloc, realloc or aligned_alloc by "
          "the plugin, expected none after context_prepare",
          rows, own);
    CHECK(c, !calls,
          "execute of %lld rows: found %lld calls of host->alloc, expected none after "
          "context_prepare",
          rows, calls);
}

void check_honesty_execute_allocates(check *c) {
    stage s;
    mn_status st = MN_OK;
    if (!open_large_plan(c, &s, 32, 128))
        return;
    const mn_backend *be = s.p.be;
    for (int64_t rows = 1; rows <= 32; rows *= 2) {
        s.o->value[0] = rows;
        check_doing(c, "context_prepare ran for %lld rows", (long long)rows);
        if (MN_HAS(mn_backend, be, context_prepare))
            st = mn_usual_prepare(be, s.plan->contexts[0], 0, s.o->value, &s.p.err);
        CHECK_OK(c, st, &s.p.err, "context_prepare");
        for (int i = 0; i < 3 && !check_over(c); i++)
            must_not_allocate(c, &s);
    }
    if (!check_over(c))
        stage_close(c, &s);
}

/* ---- repeated steps -------------------------------------------------------------------------- */
#define STEPS 40

/* A copy; NULL = out of memory. */
static void *copy_of(const void *from, uint64_t n) {
    void *to = malloc(n + 1);
    if (to && n)
        memcpy(to, from, n);
    return to;
}

/* Outputs of step i have the bits of `first`, which the first step fills. */
static void same_bits(check *c, const op_case *o, int i, void *first[CASE_TENSORS]) {
    for (uint32_t t = 0; t < o->g.n_tensors; t++) {
        if (o->t[t].role != MN_ROLE_OUTPUT)
            continue;
        if (!first[t])
            first[t] = copy_of(o->result[t], o->bytes[t]);
        CHECK(c, first[t], "out of memory");
        CHECK(
            c, !memcmp(first[t], o->result[t], o->bytes[t]),
            "step %d of %d: found other bits than at first, expected the same: the estimate states "
            "MN_ESTIMATE_DETERMINISTIC",
            i + 1, STEPS);
    }
}

void check_honesty_repeat(check *c) {
    stage s;
    mn_estimate e = {.size = sizeof e};
    void *first[CASE_TENSORS] = {0};
    if (!open_large_plan(c, &s, 32, 128))
        return;
    mn_status st = s.p.be->estimate(s.p.dev, &s.plan->ask, &e, &s.p.err);
    CHECK_OK(c, st, &s.p.err, "estimate");
    const bool exact = e.flags & MN_ESTIMATE_DETERMINISTIC;
    for (int i = 0; i < STEPS && !check_over(c); i++) {
        check_doing(c, "step %d of %d ran", i + 1, STEPS);
        st = case_step(s.plan, s.o, &s.p.err);
        CHECK_OK(c, st, &s.p.err, "step %d of %d", i + 1, STEPS);
        CHECK(c, !case_breach(s.plan)[0], "%s", case_breach(s.plan));
        if (exact)
            same_bits(c, s.o, i, first);
    }
    for (uint32_t t = 0; t < CASE_TENSORS; t++)
        free(first[t]);
    if (check_over(c))
        return;
    check_found(c, "%d steps%s", STEPS, exact ? ", bit for bit" : "");
    stage_close(c, &s);
}

/* ---- estimates ------------------------------------------------------------------------------- */
/* What an estimate for class p must say. */
static void judge_estimate(check *c, const mn_estimate *e, uint32_t p) {
    const bool is_class = e->precision >= MN_PRECISION_EXACT && e->precision <= MN_PRECISION_A8;
    const bool is_fine = p == MN_PRECISION_AUTO || e->precision <= p;
    CHECK(c, is_class && is_fine,
          "estimate for class %s: found class %s, expected that one or a finer one",
          check_class_name(p), check_class_name(e->precision));
    CHECK(c, e->decode_us >= 0 && e->prefill_us >= 0,
          "estimate for class %s: found times of %g and %g us, expected none below 0",
          check_class_name(p), e->decode_us, e->prefill_us);
}

/* Asks twice: estimate has no side effects. */
static void estimate_class(check *c, stage *s, uint32_t p) {
    const mn_backend *be = s->p.be;
    const mn_compile ask = case_question(s->o, p);
    const long long live = atomic_load(&s->host.live);
    mn_estimate a;
    mn_estimate b;
    memset(&a, 0, sizeof a); // padding is compared
    memset(&b, 0, sizeof b);
    a.size = sizeof a;
    b.size = sizeof b;
    check_doing(c, "estimate ran twice for class %s", check_class_name(p));
    const mn_status st = be->estimate(s->p.dev, &ask, &a, &s->p.err);
    const mn_status again = be->estimate(s->p.dev, &ask, &b, &s->p.err);
    CHECK(c, st == again && (!st || p > MN_PRECISION_EXACT),
          "estimate for class %s: found status 0x%x, then 0x%x (%s), expected the same, and MN_OK "
          "for auto and exact",
          check_class_name(p), (unsigned)st, (unsigned)again, s->p.err.msg);
    if (st)
        return;
    CHECK(c, !memcmp(&a, &b, sizeof a),
          "estimate for class %s: found another answer the second time, expected the same",
          check_class_name(p));
    const long long kept = atomic_load(&s->host.live) - live;
    CHECK(c, !kept, "estimate for class %s: found %lld blocks kept, expected none",
          check_class_name(p), kept);
    judge_estimate(c, &a, p);
}

void check_honesty_estimate(check *c) {
    stage s;
    if (!open_large(c, &s, 32, 128))
        return;
    for (uint32_t p = MN_PRECISION_AUTO; p <= MN_PRECISION_A8 && !check_over(c); p++)
        estimate_class(c, &s, p);
    if (!check_over(c))
        stage_close(c, &s);
}

/* ---- waits ----------------------------------------------------------------------------------- */
static void wait_for_null(check *c, stage *s) {
    const mn_backend *be = s->p.be;
    check_doing(c, "wait, queue_wait and event_free met an event that is NULL");
    CHECK_OK(c, be->wait(NULL, 0, &s->p.err), &s->p.err, "wait for an event that is NULL");
    mn_status st = be->queue_wait(s->p.queue, NULL, &s->p.err);
    CHECK_OK(c, st, &s->p.err, "queue_wait for an event that is NULL");
    be->event_free(NULL);
}

/* The step may be complete or not; the call returns in time. */
static void wait_at_most(check *c, stage *s, mn_event *ev, uint64_t ns) {
    check_doing(c, "wait ran with a limit of %llu ns", (unsigned long long)ns);
    const uint64_t began = check_now_ns();
    const mn_status st = s->p.be->wait(ev, ns, &s->p.err);
    const uint64_t took = check_now_ns() - began;
    CHECK(c, !st || st == MN_TIMEOUT, "wait: found status 0x%x (%s), expected MN_OK or MN_TIMEOUT",
          (unsigned)st, s->p.err.msg);
    CHECK(c, took < UINT64_C(5000000000),
          "wait with a limit of %llu ns: found %.1f s, expected less than 5 s",
          (unsigned long long)ns, (double)took / 1e9);
}

void check_honesty_waits(check *c) {
    stage s;
    mn_event *ev = NULL;
    if (!open_large_plan(c, &s, 64, 512))
        return;
    const mn_backend *be = s.p.be;
    mn_error *err = &s.p.err;
    mn_status st = case_step(s.plan, s.o, err);
    if (!st)
        st = mn_usual_execute(be, s.plan->contexts[0], 0, s.o->value, &ev, err);
    CHECK_OK(c, st, err, "execute");
    wait_for_null(c, &s);
    if (!check_over(c))
        wait_at_most(c, &s, ev, 0);
    if (!check_over(c))
        wait_at_most(c, &s, ev, 1000000);
    if (check_over(c))
        return;
    check_doing(c, "wait ran until the step was complete");
    CHECK_OK(c, be->wait(ev, UINT64_C(20000000000), err), err, "wait of at most 20 s");
    CHECK_OK(c, be->wait(ev, 0, err), err, "wait for an event that is complete");
    check_doing(c, "queue_wait ran on an event that is complete");
    CHECK_OK(c, be->queue_wait(s.p.queue, ev, err), err, "queue_wait");
    be->event_free(ev);
    stage_close(c, &s);
}

/* ---- device flags ---------------------------------------------------------------------------- */
/* What the host writes through map, the device reads. name: of the kind of memory. */
static void judge_map(check *c, stage *s, uint32_t kind, const char *name) {
    const mn_backend *be = s->p.be;
    mn_error *err = &s->p.err;
    mn_buffer *b = NULL;
    mn_buffer *pin = NULL;
    uint8_t *at = NULL;
    uint8_t *back = NULL;
    mn_event *ev = NULL;
    mn_status st = mn_usual_alloc(be, s->p.dev, 256, kind, &b, err);
    if (!st)
        st = mn_usual_alloc(be, s->p.dev, 256, MN_MEM_HOST_PINNED, &pin, err);
    if (!st)
        st = be->map(pin, (void **)&back, err);
    CHECK_OK(c, st, err, "alloc and map");
    check_doing(c, "map of %s memory ran", name);
    CHECK_OK(c, be->map(b, (void **)&at, err), err, "map of %s memory", name);
    CHECK(c, at, "map of %s memory: found MN_OK and NULL, expected a pointer", name);
    memset(at, 0x3c, 256);
    st = be->read(s->p.queue, b, 0, pin, 0, 256, &ev, err);
    st = case_wait(be, st, &ev, err);
    CHECK_OK(c, st, err, "read of %s memory that was written through map", name);
    CHECK(c, back[0] == 0x3c && back[255] == 0x3c,
          "read of %s memory that was written through map: found byte 0x%x, expected 0x3c", name,
          back[0]);
    be->buffer_free(b);
    be->buffer_free(pin);
}

/* must: the device has MN_DEVICE_WRAPS. */
static void judge_wrap(check *c, stage *s, bool must) {
    _Alignas(4096) static uint8_t mine[8192];
    const mn_backend *be = s->p.be;
    mn_buffer *b = NULL;
    void *at = NULL;
    if (!MN_HAS(mn_backend, be, wrap)) {
        CHECK(c, !must, "wrap: found none, expected a function: the device has MN_DEVICE_WRAPS");
        return;
    }
    check_doing(c, "wrap ran");
    const mn_status st = be->wrap(s->p.dev, mine, sizeof mine, &b, &s->p.err);
    CHECK(c, !st || MN_STATUS_CLASS(st) == MN_CLASS_REFUSE,
          "wrap: found status 0x%x (%s), expected MN_OK or MN_UNSUPPORTED", (unsigned)st,
          s->p.err.msg);
    CHECK(c, !st || !must,
          "wrap: found status 0x%x (%s), expected MN_OK: the device has MN_DEVICE_WRAPS",
          (unsigned)st, s->p.err.msg);
    if (st)
        return;
    if (!be->map(b, &at, &s->p.err))
        CHECK(c, at == mine, "wrap: found a copy, expected the memory itself");
    be->buffer_free(b);
}

void check_honesty_flags(check *c) {
    stage s;
    mn_device_info a = {.size = sizeof a};
    mn_device_info b = {.size = sizeof b};
    if (!stage_device(c, &s))
        return;
    mn_status st = s.p.be->device_info(s.p.api->self, 0, &a, &s.p.err);
    if (!st)
        st = s.p.be->device_info(s.p.api->self, 0, &b, &s.p.err);
    CHECK_OK(c, st, &s.p.err, "device_info");
    const bool same = a.flags == b.flags && a.kind == b.kind && a.mem_total == b.mem_total;
    CHECK(c, same && !strcmp(a.uid, b.uid),
          "device_info: found another device the second time, expected the same");
    judge_map(c, &s, MN_MEM_HOST_PINNED, "host-pinned");
    if (!check_over(c) && a.flags & MN_DEVICE_UNIFIED)
        judge_map(c, &s, MN_MEM_DEVICE, "device");
    if (!check_over(c))
        judge_wrap(c, &s, a.flags & MN_DEVICE_WRAPS);
    if (check_over(c))
        return;
    stage_close(c, &s);
    check_found(c, "%s%s%s", a.flags & MN_DEVICE_UNIFIED ? "unified " : "",
                a.flags & MN_DEVICE_ASYNC ? "async " : "",
                a.flags & MN_DEVICE_WRAPS ? "wraps " : "");
}

/* ---- outputs that are not bound -------------------------------------------------------------- */
/* name: of the op; all: has been run with every output bound; some: its twin. */
static void run_without(check *c, stage *s, const char *name, const op_case *all, op_case *some,
                        int32_t output) {
    const char *tensor = some->t[output].name.ptr;
    mn_error err = check_error();
    some->unbound[output] = true;
    check_doing(c, "%s ran without output '%s'", name, tensor);
    mn_status st = case_run(&s->on, some, MN_PRECISION_EXACT, &err);
    CHECK_OK(c, st, &err, "%s without output '%s', which then need not be computed", name, tensor);
    const double d = case_differ(some, all, NULL);
    CHECK(c, d < 1e-5, "%s without output '%s': the others differ by %g, expected no difference",
          name, tensor, d);
    some->unbound[output] = false;
}

/* LINEAR with two weights, and so two outputs. */
static void judge_outputs(check *c, stage *s, op_case *usual, uint32_t op) {
    op_shape shape = life_shape();
    mn_error err = check_error();
    (void)usual;
    shape.variant = op == MN_OP_LINEAR;
    op_case *all = case_random(op, MN_F32, &shape, 9);
    op_case *some = case_random(op, MN_F32, &shape, 9);
    CHECK(c, all && some, "out of memory");
    if (case_supported(&s->on, all)) {
        mn_status st = case_run(&s->on, all, MN_PRECISION_EXACT, &err);
        CHECK_OK(c, st, &err, "%s", case_op_name(op));
        const mn_node *node = &some->n[life_node(some, op)];
        const int32_t *outputs = some->operands + node->out_off;
        for (uint32_t i = 0; i < node->n_out && !check_over(c); i++)
            if (outputs[i] >= 0)
                run_without(c, s, case_op_name(op), all, some, outputs[i]);
    }
    case_free(all);
    case_free(some);
}

void check_honesty_outputs(check *c) {
    stage s;
    if (stage_device(c, &s))
        stage_each_op(c, &s, judge_outputs);
}
