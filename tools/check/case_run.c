/* case_run.c -- a case on a device: its program, buffers between guard bytes and contexts (a
 * case_plan, freed by case_close), and steps. All goes through the plugin's table, as the host does
 * it. case_weights.c puts the weights, case_compare.c compares two runs. Rules that use the parts
 * in another way include case_plan.h. */
#include "case_plan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTE 0xa5
#define WAIT_NS UINT64_C(60000000000)

mn_status case_plan_fail(mn_error *err, mn_status st, const char *msg) {
    if (err && err->size >= sizeof *err) {
        err->status = st;
        snprintf(err->msg, sizeof err->msg, "%s", msg);
    }
    return st;
}

mn_status case_wait(const mn_backend *be, mn_status st, mn_event **ev, mn_error *err) {
    if (!*ev)
        return st;
    if (!st)
        st = be->wait(*ev, WAIT_NS, err);
    be->event_free(*ev);
    *ev = NULL;
    return st;
}

/* ---- buffers --------------------------------------------------------------------------------- */
/* A buffer is: guard | payload | guard. The cache has no guard before it, as memory_copy works on
 * whole buffers of pages. The bytes before the payload of tensor i: */
static uint64_t lead(const case_plan *p, const op_case *c, uint32_t i) {
    if (case_kv_group(c, i) >= 0)
        return 0;
    return p->guard;
}

static uint64_t case_run_buffer_bytes(const case_plan *p, const op_case *c, uint32_t i) {
    return lead(p, c, i) + c->bytes[i] + p->guard;
}

static bool is_bound(const op_case *c, uint32_t i) {
    const uint32_t role = case_role(c, i);
    if (role == MN_ROLE_WEIGHT || role == MN_ROLE_INTERIOR || c->t[i].alias_of >= 0)
        return false;
    return !c->unbound[i] && case_in_segment(c, i);
}

/* The device's layout states how large the cache is: makes room for it in the case's results. */
static mn_status fit_kv(const case_plan *p, op_case *c) {
    for (uint32_t i = 0; i < CASE_GROUPS; i++) {
        const int32_t t = c->kv[i].tensor;
        if (t < 0 || c->bytes[t] == p->kv_bytes[i])
            continue;
        void *r = realloc(c->result[t], p->kv_bytes[i] + 1);
        if (!r)
            return MN_OUT_OF_MEMORY;
        c->result[t] = r;
        c->bytes[t] = p->kv_bytes[i];
    }
    return MN_OK;
}

static mn_status size_kv(case_plan *p, mn_error *err) {
    op_case *c = p->first;
    for (uint32_t i = 0; i < CASE_GROUPS; i++) {
        const int32_t t = c->kv[i].tensor;
        mn_memory_layout l = {.size = sizeof l};
        if (t < 0 || !case_in_segment(c, (uint32_t)t))
            continue;
        mn_status st = case_memory_layout(p, i, &l, err);
        if (st)
            return st;
        p->kv_bytes[i] = l.page_bytes * c->kv[i].pages;
    }
    if (fit_kv(p, c))
        return case_plan_fail(err, MN_OUT_OF_MEMORY, "out of memory");
    return MN_OK;
}

/* A buffer and its binding for each tensor that is bound; host_bytes becomes the largest size. */
static mn_status alloc_bound(case_plan *p, mn_error *err) {
    const op_case *c = p->first;
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < c->g.n_tensors && !st; i++) {
        const uint64_t n = case_run_buffer_bytes(p, c, i);
        if (!is_bound(c, i))
            continue;
        st = mn_usual_alloc(p->on.be, p->on.dev, n, MN_MEM_DEVICE, &p->buffer[i], err);
        p->binding[p->n_bindings] = (mn_binding){
            .tensor = i,
            .buffer = p->buffer[i],
            .offset = lead(p, c, i),
            .bytes = c->bytes[i],
        };
        p->n_bindings++;
        if (n > p->host_bytes)
            p->host_bytes = n;
    }
    return st;
}

/* The guards behind caches are written once: a cache keeps its contents from step to step. */
static mn_status write_kv_guards(case_plan *p, mn_error *err) {
    mn_status st = MN_OK;
    memset(p->scratch, GUARD_BYTE, p->guard);
    for (uint32_t i = 0; i < CASE_GROUPS && !st; i++) {
        const int32_t t = p->first->kv[i].tensor;
        mn_buffer *b = t < 0 ? NULL : p->buffer[t];
        if (b)
            st = p->on.be->write(p->on.queue, b, p->kv_bytes[i], p->scratch, p->guard, err);
    }
    return st;
}

static mn_status make_buffers(case_plan *p, mn_error *err) {
    const mn_backend *be = p->on.be;
    mn_status st = size_kv(p, err);
    if (!st)
        st = alloc_bound(p, err);
    if (st || !p->host_bytes)
        return st;
    p->scratch = malloc(p->host_bytes);
    if (!p->scratch)
        return case_plan_fail(err, MN_OUT_OF_MEMORY, "out of memory");
    st = mn_usual_alloc(be, p->on.dev, p->host_bytes, MN_MEM_HOST_PINNED, &p->host, err);
    if (!st)
        st = be->map(p->host, &p->host_map, err);
    if (!st)
        st = write_kv_guards(p, err);
    return st;
}

mn_status case_memory_layout(case_plan *p, uint32_t group, mn_memory_layout *out, mn_error *err) {
    return p->on.be->memory_layout(p->on.dev, &p->ask, group, out, err);
}

static mn_status make_context(case_plan *p, uint32_t i, mn_queue *q, mn_error *err) {
    const mn_backend *be = p->on.be;
    mn_status st = mn_usual_context(be, p->program, q, &p->contexts[i], err);
    if (!st)
        st =
            be->context_bind(p->contexts[i], 0, p->binding, p->n_bindings, sizeof *p->binding, err);
    p->at = i;
    return st;
}

mn_status case_second_context(case_plan *p, mn_error *err) {
    mn_status st = mn_usual_queue(p->on.be, p->on.dev, &p->queues[1], err);
    if (st)
        return st;
    p->on.queue = p->queues[1];
    return make_context(p, 1, p->queues[1], err);
}

mn_compile case_question(op_case *c, uint32_t precision) {
    const mn_node_range nodes = {c->node_lo, c->node_hi ? c->node_hi : c->g.n_nodes};
    mn_compile ask = {
        .size = sizeof(mn_compile),
        .precision = precision,
        .graph = &c->g,
        .node_lo = nodes.lo,
        .node_hi = nodes.hi,
        .symbol_max = c->value,
        .n_sets = 1,
        .flags = c->flags,
    };
    if (!c->memory.block &&
        !mn_memory_uses_find(&c->g, &nodes, 1, c->kv_dtype, c->v_dtype, &c->memory))
        c->failed = true;
    mn_memory_uses_give(&c->memory, &ask);
    return ask;
}

/* The layouts that compile is given. */
static mn_status ask_layouts(case_plan *p, mn_error *err) {
    mn_memory_uses *memory = &p->first->memory;
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < memory->n && !st; i++) {
        mn_memory_layout l = {.size = sizeof l};
        st = case_memory_layout(p, memory->params[i].group, &l, err);
        mn_memory_uses_know(memory, memory->params[i].group, &l);
    }
    return st;
}

/* A plan without weights, program and buffers. */
static mn_status case_plan_new(const case_on *on, op_case *c, uint32_t precision, case_plan **out,
                               mn_error *err) {
    case_plan *p = NULL;
    if (c && !c->failed)
        p = calloc(1, sizeof *p);
    if (!p)
        return case_plan_fail(err, MN_OUT_OF_MEMORY, "out of memory for a case");
    p->on = *on;
    p->first = c;
    if (on->align > 256)
        p->guard = on->align;
    else
        p->guard = 256;
    for (uint32_t i = 0; i < c->g.n_symbols; i++)
        p->max[i] = case_most(c, i);
    p->ask = case_question(c, precision);
    p->ask.symbol_max = p->max;
    *out = p;
    return MN_OK;
}

/* Program, buffers and a context of a plan whose ask is complete; closes the plan after an error
 * st or of its own. */
static mn_status case_plan_finish(case_plan *p, mn_status st, case_plan **out, mn_error *err) {
    if (!st)
        st = ask_layouts(p, err);
    if (!st)
        st = p->on.be->compile(p->on.dev, &p->ask, &p->program, err);
    if (!st)
        st = make_buffers(p, err);
    if (!st)
        st = make_context(p, 0, p->on.queue, err);
    if (st)
        case_close(p);
    else
        *out = p;
    return st;
}

mn_status case_open(const case_on *on, op_case *c, uint32_t precision, case_plan **out,
                    mn_error *err) {
    return case_open_puts(on, c, precision, 1, out, err);
}

mn_status case_open_puts(const case_on *on, op_case *c, uint32_t precision, uint32_t n_threads,
                         case_plan **out, mn_error *err) {
    const mn_backend *be = on->be;
    case_plan *p = NULL;
    mn_estimate est = {.size = sizeof est};
    mn_status st = case_plan_new(on, c, precision, &p, err);
    if (st)
        return st;
    st = be->estimate(on->dev, &p->ask, &est, err);
    if (!st)
        st = be->weights_open(on->dev, &p->ask, &p->weights, err);
    if (!st)
        st = case_put_weights(p, n_threads, err);
    p->ask.weights = p->weights;
    return case_plan_finish(p, st, out, err);
}

mn_status case_open_shared(const case_on *on, op_case *c, uint32_t precision, mn_weights *weights,
                           case_plan **out, mn_error *err) {
    case_plan *p = NULL;
    const mn_status st = case_plan_new(on, c, precision, &p, err);
    if (st)
        return st;
    p->ask.weights = weights;
    return case_plan_finish(p, MN_OK, out, err);
}

void case_close(case_plan *p) {
    if (!p)
        return;
    const mn_backend *be = p->on.be;
    for (int i = 0; i < 2; i++)
        if (p->contexts[i])
            be->context_free(p->contexts[i]);
    if (p->program)
        be->program_free(p->program);
    if (p->weights)
        be->weights_free(p->weights);
    for (uint32_t i = 0; i < CASE_TENSORS; i++)
        if (p->buffer[i])
            be->buffer_free(p->buffer[i]);
    if (p->host)
        be->buffer_free(p->host);
    if (p->queues[1])
        be->queue_free(p->queues[1]);
    free(p->scratch);
    free(p);
}

/* ---- a step ---------------------------------------------------------------------------------- */
/* What outputs hold before a step: NaN in floats, else a number that no op writes. */
static uint8_t poison(const mn_tensor *t) {
    if (t->dtype.id == MN_F32)
        return 0xff;
    return 0x5b;
}

static mn_status case_run_write_all(case_plan *p, const op_case *c, mn_error *err) {
    for (uint32_t i = 0; i < c->g.n_tensors; i++) {
        if (!p->buffer[i] || case_kv_group(c, i) >= 0)
            continue;
        const uint64_t n = c->bytes[i];
        const uint64_t all = n + 2 * p->guard;
        uint8_t *payload = p->scratch + p->guard;
        memset(p->scratch, GUARD_BYTE, all);
        if (case_role(c, i) == MN_ROLE_OUTPUT)
            memset(payload, poison(&c->t[i]), n);
        else if (n)
            memcpy(payload, c->data[i], n);
        mn_status st = p->on.be->write(p->on.queue, p->buffer[i], 0, p->scratch, all, err);
        if (st)
            return st;
    }
    return MN_OK;
}

/* Bytes of an output at the step's values. */
static uint64_t live_bytes(const op_case *c, uint32_t i) {
    const mn_tensor *t = &c->t[i];
    int64_t n = t->dtype.block_bytes;
    for (uint32_t d = 0; d < t->n_dim; d++) {
        const int64_t dim = t->dim[d];
        n *= dim < 0 ? c->value[~dim] : dim;
    }
    return (uint64_t)n;
}

static bool case_run_all_are(const uint8_t *p, uint64_t n, uint8_t byte) {
    for (uint64_t i = 0; i < n; i++)
        if (p[i] != byte)
            return false;
    return true;
}

/* What was written that must not be, as a format with the tensor's name; NULL = nothing. bytes: the
 * whole buffer of tensor i. */
static const char *breach_of(const case_plan *p, const op_case *c, uint32_t i,
                             const uint8_t *bytes) {
    const mn_tensor *t = &c->t[i];
    const uint64_t before = lead(p, c, i);
    const uint64_t n = c->bytes[i];
    const uint64_t live = live_bytes(c, i);
    const uint8_t *payload = bytes + before;
    if (!case_run_all_are(bytes, before, GUARD_BYTE) ||
        !case_run_all_are(payload + n, p->guard, GUARD_BYTE))
        return "bytes outside of the buffer bound to '%s' were written";
    const uint32_t role = case_role(c, i);
    if (role == MN_ROLE_INPUT && n && memcmp(payload, c->data[i], n))
        return "the input '%s' was written";
    if (role != MN_ROLE_OUTPUT || live >= n)
        return NULL;
    if (!case_run_all_are(payload + live, n - live, poison(t)))
        return "rows of '%s' behind those of the step were written";
    return NULL;
}

static mn_status case_run_read_all(case_plan *p, op_case *c, mn_error *err) {
    const mn_backend *be = p->on.be;
    const uint8_t *bytes = p->host_map;
    for (uint32_t i = 0; i < c->g.n_tensors; i++) {
        mn_event *ev = NULL;
        if (!p->buffer[i])
            continue;
        const uint64_t n = case_run_buffer_bytes(p, c, i);
        mn_status st = be->read(p->on.queue, p->buffer[i], 0, p->host, 0, n, &ev, err);
        st = case_wait(be, st, &ev, err);
        if (st)
            return st;
        const char *breach = breach_of(p, c, i, bytes);
        if (breach && !p->breach[0])
            snprintf(p->breach, sizeof p->breach, breach, c->t[i].name.ptr);
        memcpy(c->result[i], bytes + lead(p, c, i), c->bytes[i]);
    }
    return MN_OK;
}

mn_status case_step(case_plan *p, op_case *c, mn_error *err) {
    mn_event *ev = NULL;
    if (c->failed || fit_kv(p, c))
        return case_plan_fail(err, MN_OUT_OF_MEMORY, "out of memory for a case");
    mn_status st = case_run_write_all(p, c, err);
    if (!st)
        st = mn_usual_execute(p->on.be, p->contexts[p->at], p->set, c->value, &ev, err);
    st = case_wait(p->on.be, st, &ev, err);
    if (st)
        return st;
    return case_run_read_all(p, c, err);
}

/* The pairs lie further apart than they are long. */
mn_status case_memory_copy(case_plan *p, uint32_t group, const mn_page_copy *pairs, uint32_t n,
                           mn_error *err) {
    typedef struct {
        mn_page_copy pair;
        uint32_t unknown[2];
    } longer;
    mn_memory_layout l = {.size = sizeof l};
    mn_status st = case_memory_layout(p, group, &l, err);
    longer *at = malloc(n * sizeof *at + 1);
    if (!at)
        st = case_plan_fail(err, MN_OUT_OF_MEMORY, "out of memory");
    for (uint32_t i = 0; i < n && !st; i++)
        at[i] = (longer){pairs[i], {~0u, ~0u}};
    if (!st)
        st = p->on.be->memory_copy(p->on.queue, p->buffer[p->first->kv[group].tensor], &l,
                                   &at->pair, n, sizeof *at, NULL, err);
    free(at);
    return st;
}

mn_status case_take_pages(case_plan *p, case_plan *from, uint32_t group, mn_error *err) {
    const int32_t t = p->first->kv[group].tensor;
    mn_event *ev = NULL;
    if (t < 0 || !p->buffer[t] || !from->buffer[t])
        return MN_OK;
    const mn_status st = p->on.be->copy(p->on.queue, p->buffer[t], 0, from->buffer[t], 0,
                                        from->kv_bytes[group], &ev, err);
    return case_wait(p->on.be, st, &ev, err);
}

const char *case_breach(const case_plan *p) {
    return p->breach;
}

mn_status case_run(const case_on *on, op_case *c, uint32_t precision, mn_error *err) {
    case_plan *p = NULL;
    mn_status st = case_open(on, c, precision, &p, err);
    if (st)
        return st;
    st = case_step(p, c, err);
    if (!st && p->breach[0])
        st = case_plan_fail(err, MN_INVALID, p->breach);
    case_close(p);
    return st;
}

/* ---- questions ------------------------------------------------------------------------------- */
mn_status case_supports(const case_on *on, op_case *c, mn_verdict *v, mn_error *err) {
    const mn_compile ask = case_question(c, MN_PRECISION_AUTO);
    memset(v, 0, CASE_NODES * sizeof *v);
    if (c->failed)
        return case_plan_fail(err, MN_OUT_OF_MEMORY, "out of memory for a case");
    return on->be->supports(on->dev, &ask, v, sizeof *v, err);
}

/* st: of supports; reason: of a verdict that is no. */
static void say_no(const case_on *on, mn_status st, const mn_error *err, uint32_t reason) {
    mn_error *no = on->no;
    if (!no || (no->status && MN_STATUS_CLASS(no->status) != MN_CLASS_REFUSE))
        return;
    *no = *err;
    no->status = st;
    if (!st && MN_HAS(mn_backend, on->be, reason))
        on->be->reason(on->self, reason, no->msg, sizeof no->msg);
    no->msg[sizeof no->msg - 1] = 0;
}

int32_t case_verdict(const case_on *on, op_case *c) {
    mn_verdict v[CASE_NODES];
    mn_error err = {.size = sizeof err};
    int32_t least = MN_VERDICT_NATIVE;
    uint32_t reason = 0;
    const mn_status st = case_supports(on, c, v, &err);
    const uint32_t n = (c->node_hi ? c->node_hi : c->g.n_nodes) - c->node_lo;
    for (uint32_t i = 0; i < n && !st && least != MN_VERDICT_NO; i++) {
        if (v[i].verdict < least || v[i].verdict == MN_VERDICT_NO)
            least = v[i].verdict;
        reason = v[i].reason;
    }
    if (!st && least != MN_VERDICT_NO)
        return least;
    say_no(on, st, &err, reason);
    return MN_VERDICT_NO;
}

bool case_supported(const case_on *on, op_case *c) {
    return case_verdict(on, c) != MN_VERDICT_NO;
}
