/* honesty.c -- group honesty: what the plugin claims holds. */
#include "life.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *class_name(uint32_t precision) {
    static const char *const names[] = {"auto", "exact", "a16", "a8"};
    return precision < 4 ? names[precision] : "?";
}

/* ---- native compiles ------------------------------------------------------------------------- */
static void compiles(check *c, const check_plugin *p, uint32_t op, uint32_t dtype, uint32_t *seen) {
    op_shape shape = life_shape();
    case_on on = life_on(p);
    mn_verdict v[CASE_NODES] = {{0}};
    int32_t least = MN_VERDICT_NATIVE;
    shape.k = shape.n = 256; // whole blocks of every type
    op_case *o = case_random(op, dtype, &shape, 5);
    CHECK(c, o, "out of memory");
    check_doing(c, "%s with weights in %s was offered", case_op_name(op), mn_dtype_name(dtype));
    mn_status st =
        o->failed ? MN_INVALID : p->be->supports(p->dev, &o->g, o->value, v, sizeof v[0], NULL);
    for (uint32_t i = 0; i < o->g.n_nodes; i++)
        if (v[i].verdict < least)
            least = v[i].verdict;
    for (uint32_t class = MN_PRECISION_AUTO;
         class <= MN_PRECISION_EXACT && !st && least > MN_VERDICT_NO; class ++) {
        case_plan *plan = NULL;
        mn_error err = check_error();
        st = case_open(&on, o, class, &plan, &err);
        if (st)
            check_fail(
                c, "%s with weights in %s, class %s: found verdict %s, and then status 0x%x (%s)",
                case_op_name(op), mn_dtype_name(dtype), class_name(class),
                least == MN_VERDICT_NATIVE ? "native" : "slow", (unsigned)st, err.msg);
        else
            case_close(plan), ++*seen;
    }
    case_free(o);
}

void check_honesty_native(check *c) {
    check_host h;
    check_plugin p;
    const uint32_t(*table)[2] = NULL;
    uint32_t n = 0, seen = 0;
    check_host_init(&h);
    if (!check_open_device(c, &p, &h))
        return;
    CHECK(c, !p.be->contracts(p.api->self, &table, &n), "contracts failed");
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; mn_dtype_at(k) && case_op_name(table[i][0]) && !check_over(c); k++)
            if (case_is_weight_type(mn_dtype_at(k)))
                compiles(c, &p, table[i][0], mn_dtype_at(k), &seen);
    if (check_over(c))
        return;
    check_close(c, &p);
    check_found(c, "%u programs", seen);
}

/* What is not in the table of contracts is a no. */
void check_honesty_contracts(check *c) {
    check_host h;
    check_plugin p;
    const uint32_t(*table)[2] = NULL;
    uint32_t n = 0;
    op_shape shape = life_shape();
    check_host_init(&h);
    if (!check_open_device(c, &p, &h))
        return;
    case_on on = life_on(&p);
    CHECK(c, !p.be->contracts(p.api->self, &table, &n), "contracts failed");
    for (uint32_t op = 1; case_op_name(op); op++) {
        uint32_t i = 0;
        while (i < n && table[i][0] != op)
            i++;
        if (i < n)
            continue;
        op_case *o = case_random(op, MN_F32, &shape, 5);
        check_doing(c, "%s, which contracts does not name, was offered", case_op_name(op));
        CHECK(c, !o || !case_supported(&on, o, NULL), "%s: found a yes; contracts does not name it",
              case_op_name(op));
        case_free(o);
    }
    check_close(c, &p);
}

/* ---- memory ---------------------------------------------------------------------------------- */
/* Above this, a bound that is too low is found; below it, a program is granted its bookkeeping. */
#define SLACK (UINT64_C(1) << 20)
#define GROWTH_SLACK (UINT64_C(64) << 10) /* roundings to alignment */
enum { FEW_ROWS = 64, MANY_ROWS = 1024 };

typedef struct {
    check_host host;
    check_plugin p;
    op_case *o;
} stage;
/* A case large enough that its weights and scratch are more than the slack. */
static int stage_open(check *c, stage *s, int64_t rows, int64_t k) {
    op_shape shape = life_shape();
    check_host_init(&s->host);
    s->o = NULL;
    if (!check_open_device(c, &s->p, &s->host))
        return 0;
    op_case *small = life_case(c, &s->p);
    uint32_t op = small ? small->n[0].op : 0;
    case_free(small);
    shape.rows = rows, shape.k = shape.n = k;
    s->o = op ? case_random(op, MN_F32, &shape, 3) : NULL;
    if (op && (!s->o || s->o->failed))
        check_fail(c, "out of memory");
    if (!s->o || check_over(c))
        check_close(c, &s->p);
    return s->o && !check_over(c);
}
static void stage_close(check *c, stage *s) {
    case_free(s->o);
    check_close(c, &s->p);
}

static uint64_t device_held(const check_plugin *p) {
    uint64_t free_bytes = 0, total = 0;
    if (!MN_HAS(mn_backend, p->be, device_memory) ||
        p->be->device_memory(p->dev, &free_bytes, &total, NULL))
        return 0;
    return total - free_bytes;
}

/* Pages of this process in memory, in bytes; 0 = not known. */
static uint64_t resident_bytes(void) {
    unsigned long long all = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    const int n = f ? fscanf(f, "%llu %llu", &all, &resident) : 0;
    if (f)
        fclose(f);
    return n == 2 ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

/* Memory taken past host->alloc shows here. The host's own is read off this process: what the
 * machine has free is every program's doing. */
static uint64_t elsewhere_held(const check_plugin *p, const mn_device_info *info) {
    return strcmp(info->mem_pool, "host") ? device_held(p) : resident_bytes();
}

/* What one program was said to take, and took. */
typedef struct {
    mn_estimate said;
    uint64_t buffers; /* the check's own */
    uint64_t held, peak, elsewhere;
} taken;

/* Asks for the estimate of the stage's case, then compiles it, runs it once, and counts. */
static void take(check *c, stage *s, const mn_device_info *info, taken *t) {
    case_plan *plan = NULL;
    int64_t max[CASE_SYMBOLS];
    for (uint32_t i = 0; i < s->o->g.n_symbols; i++)
        max[i] = s->o->sym[i].max;
    const mn_compile ask = {
        sizeof ask, MN_PRECISION_EXACT, &s->o->g, 0, 1, max, NULL, {0}, MN_F32, MN_F32, 0};
    *t = (taken){.said = {.size = sizeof t->said}};
    mn_status st = s->p.be->estimate(s->p.dev, &ask, &t->said, &s->p.err);
    CHECK(c, !st, "estimate: found status 0x%x (%s)", (unsigned)st, s->p.err.msg);
    const case_on on = life_on(&s->p);
    check_host_mark(&s->host);
    const uint64_t before = (uint64_t)atomic_load(&s->host.bytes);
    const uint64_t outside = elsewhere_held(&s->p, info);
    check_doing(c, "a graph was compiled and its memory counted");
    st = case_open(&on, s->o, MN_PRECISION_EXACT, &plan, &s->p.err);
    if (!st)
        st = case_step(plan, s->o, &s->p.err);
    CHECK(c, !st, "a graph whose estimate fits: found status 0x%x (%s)", (unsigned)st,
          s->p.err.msg);
    for (uint32_t i = 0; i < plan->n_bindings; i++)
        t->buffers += s->o->bytes[plan->binding[i].tensor] + 2 * plan->guard;
    t->buffers += plan->host_bytes; // which the plugin makes of either memory
    t->held = (uint64_t)atomic_load(&s->host.bytes) - before;
    t->peak = (uint64_t)atomic_load(&s->host.peak) - before;
    const uint64_t now = elsewhere_held(&s->p, info);
    t->elsewhere = now > outside ? now - outside : 0;
    case_close(plan);
}

static uint64_t said_in_all(const taken *t) {
    return t->said.weights + t->said.scratch + t->said.host_pinned + t->buffers;
}

/* Others may use the device at the same time, and drivers and the C library take memory by the
 * piece: 64 MiB are granted. */
#define PIECE (UINT64_C(64) << 20)

static void judge_bound(check *c, const stage *s, const taken *t) {
    const uint64_t bound = said_in_all(t) + SLACK;
    CHECK(c, t->held <= bound,
          "host->alloc: found %llu bytes held, expected at most %llu: weights %llu, scratch %llu, "
          "host_pinned %llu, "
          "buffers %llu, 1 MiB granted",
          (unsigned long long)t->held, (unsigned long long)bound,
          (unsigned long long)t->said.weights, (unsigned long long)t->said.scratch,
          (unsigned long long)t->said.host_pinned, (unsigned long long)t->buffers);
    CHECK(c, t->peak <= bound + t->said.import_peak,
          "host->alloc: found %llu bytes at the peak, expected at most %llu with import_peak",
          (unsigned long long)t->peak, (unsigned long long)(bound + t->said.import_peak));
    CHECK(c, t->elsewhere <= bound + PIECE,
          "memory of device %s: found %llu bytes more held, expected at most %llu and 64 MiB "
          "granted",
          s->p.api->id.ptr, (unsigned long long)t->elsewhere, (unsigned long long)bound);
}

/* Bookkeeping does not grow with the rows of a step: what grows is scratch. */
static void judge_growth(check *c, const taken *few, const taken *many) {
    const uint64_t said = said_in_all(many) + GROWTH_SLACK;
    const uint64_t grown = many->held > few->held ? many->held - few->held : 0;
    const uint64_t most = said > said_in_all(few) ? said - said_in_all(few) : 0;
    CHECK(c, grown <= most,
          "host->alloc: found %llu bytes more held for %d rows than for %d, expected at most %llu: "
          "by the estimates weights %llu and %llu, scratch %llu and %llu",
          (unsigned long long)grown, MANY_ROWS, FEW_ROWS, (unsigned long long)most,
          (unsigned long long)many->said.weights, (unsigned long long)few->said.weights,
          (unsigned long long)many->said.scratch, (unsigned long long)few->said.scratch);
}

static void check_growth(check *c, const mn_device_info *info) {
    static const int64_t rows[2] = {FEW_ROWS, MANY_ROWS};
    taken t[2];
    for (int i = 0; i < 2; i++) {
        stage s;
        if (!stage_open(c, &s, rows[i], 256))
            return;
        take(c, &s, info, &t[i]);
        if (check_over(c))
            return;
        stage_close(c, &s);
    }
    judge_growth(c, &t[0], &t[1]);
}

void check_honesty_memory(check *c) {
    stage s;
    taken t;
    mn_device_info info = {.size = sizeof info};
    if (!stage_open(c, &s, 64, 1024))
        return;
    mn_status st = s.p.be->device_info(s.p.api->self, 0, &info, &s.p.err);
    CHECK(c, !st, "device_info: found status 0x%x (%s)", (unsigned)st, s.p.err.msg);
    take(c, &s, &info, &t);
    if (check_over(c))
        return;
    CHECK(c, t.said.weights <= info.mem_total && t.said.scratch <= info.mem_total - t.said.weights,
          "a graph of one %s with 4 MiB of weights: found an estimate of %llu bytes of weights and "
          "%llu of scratch, of "
          "a device with %llu",
          case_op_name(s.o->n[0].op), (unsigned long long)t.said.weights,
          (unsigned long long)t.said.scratch, (unsigned long long)info.mem_total);
    judge_bound(c, &s, &t);
    if (check_over(c))
        return;
    stage_close(c, &s);
    check_growth(c, &info);
    if (check_over(c))
        return;
    check_found(c, "estimate %llu + %llu bytes, held %llu beside %llu of buffers",
                (unsigned long long)t.said.weights, (unsigned long long)t.said.scratch,
                (unsigned long long)(t.held > t.buffers ? t.held - t.buffers : 0),
                (unsigned long long)t.buffers);
}

void check_honesty_execute_allocates(check *c) {
    stage s;
    case_plan *plan = NULL;
    mn_event *ev = NULL;
    if (!stage_open(c, &s, 32, 128))
        return;
    const mn_backend *be = s.p.be;
    case_on on = life_on(&s.p);
    mn_status st = case_open(&on, s.o, MN_PRECISION_EXACT, &plan, &s.p.err);
    CHECK(c, !st, "a small graph: found status 0x%x (%s)", (unsigned)st, s.p.err.msg);
    for (int64_t rows = 1; rows <= 32; rows *= 2) {
        s.o->value[0] = rows;
        check_doing(c, "context_prepare ran for %lld rows", (long long)rows);
        st = MN_HAS(mn_backend, be, context_prepare)
                 ? be->context_prepare(plan->contexts[0], 0, s.o->value, &s.p.err)
                 : MN_OK;
        CHECK(c, !st, "context_prepare: found status 0x%x (%s)", (unsigned)st, s.p.err.msg);
        for (int i = 0; i < 3; i++) {
            long long calls = atomic_load(&s.host.calls);
            ev = NULL;
            check_doing(c, "execute ran for %lld rows", (long long)rows);
            st = be->execute(plan->contexts[0], 0, s.o->value, &ev, &s.p.err);
            calls = atomic_load(&s.host.calls) - calls;
            if (!st && ev)
                st = be->wait(ev, 20000000000u, &s.p.err);
            if (ev)
                be->event_free(ev);
            CHECK(c, !st, "execute: found status 0x%x (%s)", (unsigned)st, s.p.err.msg);
            CHECK(c, !calls,
                  "execute of %lld rows: found %lld calls of host->alloc, expected none after "
                  "context_prepare",
                  (long long)rows, calls);
        }
    }
    case_close(plan);
    stage_close(c, &s);
}

/* ---- the same every time --------------------------------------------------------------------- */
#define STEPS 40
void check_honesty_repeat(check *c) {
    stage s;
    case_plan *plan = NULL;
    mn_estimate e = {.size = sizeof e};
    void *first[CASE_TENSORS] = {0};
    if (!stage_open(c, &s, 32, 128))
        return;
    case_on on = life_on(&s.p);
    mn_status st = case_open(&on, s.o, MN_PRECISION_EXACT, &plan, &s.p.err);
    if (!st)
        st = s.p.be->estimate(s.p.dev, &plan->ask, &e, &s.p.err);
    CHECK(c, !st, "a small graph: found status 0x%x (%s)", (unsigned)st, s.p.err.msg);
    for (int i = 0; i < STEPS; i++) {
        check_doing(c, "step %d of %d ran", i + 1, STEPS);
        st = case_step(plan, s.o, &s.p.err);
        CHECK(c, !st, "step %d of %d: found status 0x%x (%s)", i + 1, STEPS, (unsigned)st,
              s.p.err.msg);
        CHECK(c, !case_breach(plan)[0], "%s", case_breach(plan));
        for (uint32_t t = 0; t < s.o->g.n_tensors; t++) {
            if (s.o->t[t].role != MN_ROLE_OUTPUT || !(e.flags & MN_ESTIMATE_DETERMINISTIC))
                continue;
            CHECK(c, !first[t] || !memcmp(first[t], s.o->result[t], s.o->bytes[t]),
                  "step %d of %d: found other bits than at first; the estimate says "
                  "MN_ESTIMATE_DETERMINISTIC",
                  i + 1, STEPS);
            if (!first[t] && (first[t] = malloc(s.o->bytes[t] + 1)))
                memcpy(first[t], s.o->result[t], s.o->bytes[t]);
        }
    }
    for (uint32_t t = 0; t < CASE_TENSORS; t++)
        free(first[t]);
    case_close(plan);
    check_found(c, "%d steps%s", STEPS, e.flags & MN_ESTIMATE_DETERMINISTIC ? ", bit for bit" : "");
    stage_close(c, &s);
}

void check_honesty_estimate(check *c) {
    stage s;
    mn_estimate a, b;
    int64_t max[CASE_SYMBOLS];
    if (!stage_open(c, &s, 32, 128))
        return;
    for (uint32_t i = 0; i < s.o->g.n_symbols; i++)
        max[i] = s.o->sym[i].max;
    for (uint32_t class = MN_PRECISION_AUTO; class <= MN_PRECISION_A8; class ++) {
        const mn_compile ask = {sizeof ask, class, &s.o->g, 0,      1, max,
                                NULL,       {0},   MN_F32,  MN_F32, 0};
        memset(&a, 0, sizeof a), memset(&b, 0, sizeof b);
        a.size = b.size = sizeof a;
        long long live = atomic_load(&s.host.live);
        check_doing(c, "estimate ran twice for class %s", class_name(class));
        mn_status st = s.p.be->estimate(s.p.dev, &ask, &a, &s.p.err),
                  again = s.p.be->estimate(s.p.dev, &ask, &b, &s.p.err);
        CHECK(c, st == again && (!st || class > MN_PRECISION_EXACT),
              "estimate for class %s: found status 0x%x, then 0x%x (%s)", class_name(class),
              (unsigned)st, (unsigned)again, s.p.err.msg);
        if (st)
            continue;
        CHECK(c, !memcmp(&a, &b, sizeof a),
              "estimate for class %s: found another answer the second time", class_name(class));
        CHECK(c, atomic_load(&s.host.live) == live, "estimate for class %s: found %lld blocks kept",
              class_name(class), (long long)atomic_load(&s.host.live) - live);
        CHECK(c,
              a.precision >= MN_PRECISION_EXACT && a.precision <= MN_PRECISION_A8 &&
                  (!class || a.precision <= class),
              "estimate for class %s: found class %s, expected that one or a finer one",
              class_name(class), class_name(a.precision));
        CHECK(c, a.decode_us >= 0 && a.prefill_us >= 0,
              "estimate for class %s: found times of %g and %g us", class_name(class), a.decode_us,
              a.prefill_us);
    }
    stage_close(c, &s);
}

/* ---- waits ----------------------------------------------------------------------------------- */
void check_honesty_waits(check *c) {
    stage s;
    case_plan *plan = NULL;
    mn_event *ev = NULL;
    if (!stage_open(c, &s, 64, 512))
        return;
    const mn_backend *be = s.p.be;
    case_on on = life_on(&s.p);
    mn_status st = case_open(&on, s.o, MN_PRECISION_EXACT, &plan, &s.p.err);
    if (!st)
        st = case_step(plan, s.o, &s.p.err);
    if (!st)
        st = be->execute(plan->contexts[0], 0, s.o->value, &ev, &s.p.err);
    CHECK(c, !st, "execute: found status 0x%x (%s)", (unsigned)st, s.p.err.msg);
    check_doing(c, "wait, queue_wait and event_free met an event that is NULL");
    st = be->wait(NULL, 0, &s.p.err);
    CHECK(c, !st, "wait for an event that is NULL: found status 0x%x, expected MN_OK",
          (unsigned)st);
    st = be->queue_wait(s.p.queue, NULL, &s.p.err);
    CHECK(c, !st, "queue_wait for an event that is NULL: found status 0x%x, expected MN_OK",
          (unsigned)st);
    be->event_free(NULL);
    for (uint64_t ns = 0; ns <= 1000000; ns += 1000000) {
        check_doing(c, "wait ran with a limit of %llu ns", (unsigned long long)ns);
        uint64_t began = check_now_ns();
        st = be->wait(ev, ns, &s.p.err);
        uint64_t took = check_now_ns() - began;
        CHECK(c, !st || st == MN_TIMEOUT,
              "wait: found status 0x%x (%s), expected MN_OK or MN_TIMEOUT", (unsigned)st,
              s.p.err.msg);
        CHECK(c, took < UINT64_C(5000000000), "wait with a limit of %llu ns: found %.1f s",
              (unsigned long long)ns, (double)took / 1e9);
    }
    check_doing(c, "wait ran until the step was over");
    st = be->wait(ev, UINT64_C(20000000000), &s.p.err);
    CHECK(c, !st, "wait: found status 0x%x (%s) after 20 s", (unsigned)st, s.p.err.msg);
    st = be->wait(ev, 0, &s.p.err);
    CHECK(c, !st, "a poll of an event that is over: found status 0x%x, expected MN_OK",
          (unsigned)st);
    check_doing(c, "queue_wait ran on an event that is over");
    st = be->queue_wait(s.p.queue, ev, &s.p.err);
    CHECK(c, !st, "queue_wait: found status 0x%x (%s)", (unsigned)st, s.p.err.msg);
    be->event_free(ev);
    case_close(plan);
    stage_close(c, &s);
}

/* ---- flags ----------------------------------------------------------------------------------- */
static void judge_map(check *c, stage *s, uint32_t kind, const char *what) {
    const mn_backend *be = s->p.be;
    mn_buffer *b = NULL, *pin = NULL;
    uint8_t *at = NULL, *back = NULL;
    mn_event *ev = NULL;
    mn_status st = be->alloc(s->p.dev, 256, kind, &b, &s->p.err);
    if (!st)
        st = be->alloc(s->p.dev, 256, MN_MEM_HOST_PINNED, &pin, &s->p.err);
    if (!st)
        st = be->map(pin, (void **)&back, &s->p.err);
    CHECK(c, !st, "alloc and map: found status 0x%x (%s)", (unsigned)st, s->p.err.msg);
    check_doing(c, "map of %s memory ran", what);
    st = be->map(b, (void **)&at, &s->p.err);
    CHECK(c, !st && at, "map of %s memory: found status 0x%x (%s)", what, (unsigned)st,
          s->p.err.msg);
    memset(at, 0x3c, 256);
    st = be->read(s->p.queue, b, 0, pin, 0, 256, &ev, &s->p.err);
    if (!st && ev)
        st = be->wait(ev, 10000000000u, &s->p.err);
    if (ev)
        be->event_free(ev);
    CHECK(c, !st && back[0] == 0x3c && back[255] == 0x3c,
          "read of %s memory that was written through map: found status 0x%x, byte 0x%x", what,
          (unsigned)st, back[0]);
    be->buffer_free(b), be->buffer_free(pin);
}

static void judge_wrap(check *c, stage *s, int must) {
    _Alignas(4096) static uint8_t mine[8192];
    mn_buffer *b = NULL;
    void *at = NULL;
    if (!MN_HAS(mn_backend, s->p.be, wrap)) {
        CHECK(c, !must, "found MN_DEVICE_WRAPS and no wrap");
        return;
    }
    check_doing(c, "wrap ran");
    mn_status st = s->p.be->wrap(s->p.dev, mine, sizeof mine, &b, &s->p.err);
    CHECK(c, !st || MN_STATUS_CLASS(st) == MN_CLASS_REFUSE,
          "wrap: found status 0x%x (%s), expected MN_OK or MN_UNSUPPORTED", (unsigned)st,
          s->p.err.msg);
    CHECK(c, !st || !must, "wrap: found status 0x%x (%s); the device says MN_DEVICE_WRAPS",
          (unsigned)st, s->p.err.msg);
    if (st)
        return;
    if (!s->p.be->map(b, &at, &s->p.err))
        CHECK(c, at == mine, "wrap: found a copy, expected the memory itself");
    s->p.be->buffer_free(b);
}

void check_honesty_flags(check *c) {
    stage s;
    mn_device_info a = {.size = sizeof a}, b = {.size = sizeof b};
    check_host_init(&s.host);
    if (!check_open_device(c, &s.p, &s.host))
        return;
    mn_status st = s.p.be->device_info(s.p.api->self, 0, &a, &s.p.err);
    if (!st)
        st = s.p.be->device_info(s.p.api->self, 0, &b, &s.p.err);
    CHECK(c,
          !st && a.flags == b.flags && a.kind == b.kind && a.mem_total == b.mem_total &&
              !strcmp(a.uid, b.uid),
          "device_info: found another device the second time");
    judge_map(c, &s, MN_MEM_HOST_PINNED, "host-pinned");
    if (!check_over(c) && a.flags & MN_DEVICE_UNIFIED)
        judge_map(c, &s, MN_MEM_DEVICE, "device");
    if (!check_over(c))
        judge_wrap(c, &s, (a.flags & MN_DEVICE_WRAPS) != 0);
    if (check_over(c))
        return;
    check_close(c, &s.p);
    check_found(c, "%s%s%s", a.flags & MN_DEVICE_UNIFIED ? "unified " : "",
                a.flags & MN_DEVICE_ASYNC ? "async " : "",
                a.flags & MN_DEVICE_WRAPS ? "wraps " : "");
}

/* ---- outputs that nobody binds --------------------------------------------------------------- */
static void judge_outputs(check *c, const check_plugin *p, uint32_t op) {
    op_shape shape = life_shape();
    case_on on = life_on(p);
    mn_error err = check_error();
    shape.variant = op == MN_OP_LINEAR ? 1 : 0; // two weights, two outputs
    op_case *all = case_random(op, MN_F32, &shape, 9), *some = case_random(op, MN_F32, &shape, 9);
    CHECK(c, all && some, "out of memory");
    if (case_supported(&on, all, NULL)) {
        mn_status st = case_run(&on, all, MN_PRECISION_EXACT, &err);
        CHECK(c, !st, "%s: found status 0x%x (%s)", case_op_name(op), (unsigned)st, err.msg);
        for (uint32_t drop = 0; drop < some->n[life_node(some, op)].n_out && !check_over(c);
             drop++) {
            int32_t t = some->operands[some->n[life_node(some, op)].out_off + drop];
            if (t < 0)
                continue;
            some->unbound[t] = true;
            check_doing(c, "%s ran without output %u", case_op_name(op), drop);
            st = case_run(&on, some, MN_PRECISION_EXACT, &err);
            CHECK(c, !st,
                  "%s without output %u: found status 0x%x (%s), expected that it is not computed",
                  case_op_name(op), drop, (unsigned)st, err.msg);
            double d = case_differ(some, all, NULL);
            CHECK(c, d < 1e-5, "%s without output %u: the others differ by %g", case_op_name(op),
                  drop, d);
            some->unbound[t] = false;
        }
    }
    case_free(all);
    case_free(some);
}

void check_honesty_outputs(check *c) {
    check_host h;
    check_plugin p;
    const uint32_t(*table)[2] = NULL;
    uint32_t n = 0;
    check_host_init(&h);
    if (!check_open_device(c, &p, &h))
        return;
    CHECK(c, !p.be->contracts(p.api->self, &table, &n), "contracts failed");
    for (uint32_t i = 0; i < n && !check_over(c); i++)
        if (case_op_name(table[i][0]))
            judge_outputs(c, &p, table[i][0]);
    if (!check_over(c))
        check_close(c, &p);
}
