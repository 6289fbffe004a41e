/* context.c -- bindings to pointers, and the run: a step is one team of the host's pool, whose
 * phases are stages of nodes (phases.c). */
#include "mnc.h"
#include "words.h"
#include <stdio.h>

/* One set of bindings, empty. The caller frees it, also after an error. */
static mn_status create_set(mn_context *c, mnc_set *set, mn_error *err) {
    mn_device *d = c->prog->dev;
    const mn_graph *g = c->prog->graph;
    const uint64_t n_steps = c->prog->n_steps;
    set->symbol = mnc_new(d, (uint64_t)g->n_symbols * sizeof *set->symbol);
    set->bindings = mnc_new(d, (uint64_t)g->n_tensors * sizeof *set->bindings);
    set->calls = mnc_new(d, n_steps * sizeof *set->calls);
    set->active = mnc_new(d, n_steps * sizeof *set->active);
    set->joins = mnc_new(d, 2 * n_steps * sizeof *set->joins);
    if (set->symbol && set->bindings && set->calls && set->active && set->joins)
        return MN_OK;
    return mnp_fail_memory(err, n_steps * sizeof *set->calls, "the bindings of a context");
}

/* Also of a set that create_set left half made: absent parts are NULL. */
static void free_set(mn_device *d, mnc_set *set) {
    mnc_delete(d, set->symbol);
    mnc_delete(d, set->bindings);
    mnc_delete(d, set->calls);
    mnc_delete(d, set->active);
    mnc_delete(d, set->joins);
}

/* All memory that a step needs is allocated here: running allocates nothing. */
mn_status mnc_context_create(mn_program *p, const mn_context_params *params, mn_context **out,
                             mn_error *err) {
    mn_device *d = p->dev;
    mn_queue *q;
    mn_status st = mnp_read_context(params, &q, err);
    if (st)
        return st;
    mn_context *c = mnc_new(d, sizeof *c);
    if (!c)
        return mnp_fail_memory(err, sizeof *c, "a context");
    c->prog = p;
    c->queue = q;
    c->scratch_bytes = mnc_worker_scratch(p, p->n_workers);
    c->next = mnc_new(d, (uint64_t)p->graph->n_symbols * sizeof *c->next);
    c->needed = mnc_new(d, (uint64_t)p->graph->n_tensors * sizeof *c->needed);
    c->phase = mnc_new(d, 2 * (uint64_t)p->n_steps * sizeof *c->phase);
    c->last = mnc_new(d, p->n_workers * sizeof *c->last);
    c->scratch = mnc_new(d, c->scratch_bytes);
    if (!c->next || !c->needed || !c->phase || !c->last || !c->scratch)
        st = mnp_fail_memory(err, c->scratch_bytes, "the scratch of a context");
    for (uint32_t i = 0; i < p->n_sets && !st; i++)
        st = create_set(c, &c->sets[i], err);
    if (st)
        mnc_context_free(c);
    else
        *out = c;
    return st;
}

/* Also of a context that mnc_context_create left half made; buffers that were bound stay the
 * caller's. */
void mnc_context_free(mn_context *c) {
    if (!c)
        return;
    mn_device *d = c->prog->dev;
    for (uint32_t i = 0; i < c->prog->n_sets; i++)
        free_set(d, &c->sets[i]);
    mnc_delete(d, c->next);
    mnc_delete(d, c->needed);
    mnc_delete(d, c->phase);
    mnc_delete(d, c->last);
    mnc_delete(d, c->scratch);
    mnc_delete(d, c);
}

/* Where the bytes of a binding begin; NULL where nothing is bound. */
static uint8_t *bound_ptr(const mn_binding *b) {
    if (b->buffer)
        return b->buffer->ptr + b->offset;
    return NULL;
}

/* Is an output of the node bound, or read by a node behind it? */
static bool context_is_wanted(const mn_context *c, const mn_node *n) {
    const mn_graph *g = c->prog->graph;
    const mn_binding *bindings = c->at->bindings;
    for (uint32_t j = 0; j < n->n_out; j++) {
        const int32_t t = mnp_out(g, n, j);
        if (t < 0)
            continue;
        const uint32_t root = mnp_root(g, (uint32_t)t);
        if (c->needed[root])
            return true;
        if (bindings[root].buffer)
            return true;
        if (bindings[t].buffer)
            return true;
    }
    return false;
}

/* Walks back: a node runs if it changes state, or if something wants one of its outputs. */
static void choose_active(mn_context *c) {
    const mn_program *p = c->prog;
    const mn_graph *g = p->graph;
    memset(c->needed, 0, g->n_tensors * sizeof *c->needed);
    mnc_set *set = c->at;
    uint32_t n_active = 0;
    for (uint32_t i = p->n_steps; i-- > 0;) {
        const mn_node *n = mnp_node(g, p->steps[i].node);
        if (!mnp_changes_state(n->op) && !context_is_wanted(c, n))
            continue;
        n_active++;
        set->active[p->n_steps - n_active] = i;
        for (uint32_t j = 0; j < n->n_in; j++) {
            const int32_t t = mnp_in(g, n, j);
            if (t >= 0)
                c->needed[mnp_root(g, (uint32_t)t)] = true;
        }
    }
    const uint32_t *first = set->active + p->n_steps - n_active;
    memmove(set->active, first, n_active * sizeof *first);
    set->n_active = n_active;
}

/* An operand's pointer, once all that a node needs is known to be bound. */
static void context_resolve(const mn_context *c, int32_t t, mnc_operand *o) {
    const mn_program *p = c->prog;
    const mn_graph *g = p->graph;
    memset(o, 0, sizeof *o);
    if (t < 0)
        return;
    const mn_tensor *x = mnp_tensor(g, (uint32_t)t);
    o->n_dim = x->n_dim;
    o->dtype = mnp_elem_dtype(x);
    if (x->role == MN_ROLE_WEIGHT) {
        o->weight = &p->kept[t]->w;
        return;
    }
    const uint32_t root = mnp_root(g, (uint32_t)t);
    const uint64_t place = p->allocations[root].place;
    const uint64_t offset = root == (uint32_t)t ? 0 : (uint64_t)x->offset * mnp_elem_bytes(x);
    if (c->at->bindings[t].buffer)
        o->ptr = bound_ptr(&c->at->bindings[t]);
    else if (c->at->bindings[root].buffer)
        o->ptr = bound_ptr(&c->at->bindings[root]) + offset;
    else if (place != MNP_NOWHERE)
        o->ptr = c->scratch + place + offset;
}

/* Where the pages of the node's group lie, and the table that names them. */
static void fill_memory(const mn_context *c, const mnc_step *step, mnc_call *call) {
    const mn_program *p = c->prog;
    const mn_graph *g = p->graph;
    mnp_memory_node at;
    if (!mnp_memory_node_of(call->node, &at))
        return;
    const mn_tensor *pages = mnp_in_tensor(g, call->node, at.pages);
    const uint64_t bytes = c->at->bindings[mnp_in(g, call->node, at.memory)].bytes;
    uint8_t *base = call->in[at.memory].ptr;
    const int32_t *table = call->in[at.pages].ptr;
    if (call->node->op == MN_OP_KV_STORE || call->node->op == MN_OP_ATTENTION)
        call->kv = (mnc_kv){.geo = step->kv,
                            .pages = table,
                            .max_pages = mnp_dim(g, p->symbol_max, pages->dim[1]),
                            .n_pages = (int64_t)(bytes / step->kv.page_bytes),
                            .base = base};
    else
        call->states = (mnc_states){.geo = step->state,
                                    .pages = table,
                                    .n_pages = (int64_t)(bytes / step->state.page_bytes),
                                    .base = base};
}

/* What step i is called with, as far as it does not depend on the values of symbols. */
static mn_status context_fill_call(mn_context *c, uint32_t i, mn_error *err) {
    const mn_program *p = c->prog;
    const mn_graph *g = p->graph;
    const mnc_step *step = &p->steps[i];
    const mn_node *n = mnp_node(g, step->node);
    mnc_call *call = &c->at->calls[i];
    mn_status st =
        mnp_check_bound(g, step->node, p->allocations, p->symbol_max, c->at->bindings, err);
    if (st)
        return st;
    call->node = n;
    call->attr = g->attrs + n->attr_off;
    call->n_attr = n->n_attr;
    call->user = step->op.user;
    call->maker = NULL;
    call->shared = c->scratch + p->arena_bytes + step->shared_at;
    for (uint32_t j = 0; j < n->n_in; j++)
        context_resolve(c, mnp_in(g, n, j), &call->in[j]);
    for (uint32_t j = 0; j < n->n_out; j++)
        context_resolve(c, mnp_out(g, n, j), &call->out[j]);
    const mn_tensor *lead = mnp_in_tensor(g, n, 0);
    call->max_rows = 1;
    if (lead && lead->n_dim)
        call->max_rows = mnp_dim(g, p->symbol_max, lead->dim[0]);
    fill_memory(c, step, call);
    return MN_OK;
}

/* Inputs of active nodes that lie in tensor t. */
static uint32_t readers_of(const mn_context *c, uint32_t t) {
    const mn_graph *g = c->prog->graph;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->at->n_active; i++) {
        const mn_node *node = c->at->calls[c->at->active[i]].node;
        for (uint32_t j = 0; j < node->n_in; j++) {
            const int32_t in = mnp_in(g, node, j);
            n += in >= 0 && mnp_root(g, (uint32_t)in) == t;
        }
    }
    return n;
}

/* Fills maker of each call that might do what the call before it does, whose only use it is. */
static void context_find_makers(mn_context *c) {
    const mn_graph *g = c->prog->graph;
    for (uint32_t i = 1; i < c->at->n_active; i++) {
        const mnc_call *before = &c->at->calls[c->at->active[i - 1]];
        mnc_call *call = &c->at->calls[c->at->active[i]];
        const int32_t made = mnp_out(g, before->node, 0);
        if (!c->prog->steps[c->at->active[i]].op.takes)
            continue;
        const bool is_first = call->node->n_in && mnp_in(g, call->node, 0) == made;
        if (made < 0 || before->node->n_out != 1 || !is_first || c->at->bindings[made].buffer)
            continue;
        const bool whole = mnp_root(g, (uint32_t)made) == (uint32_t)made;
        const bool interior = mnp_tensor(g, (uint32_t)made)->role == MN_ROLE_INTERIOR;
        if (whole && interior && readers_of(c, (uint32_t)made) == 1)
            call->maker = before;
    }
}

/* Where a buffer lies, for the check that bindings do not overlap. */
static mnp_extent context_extent(const mn_buffer *b) {
    return (mnp_extent){(uintptr_t)b->ptr, b->bytes};
}

/* What is bound decides what runs; an unbound set cannot be run. */
mn_status mnc_context_bind(mn_context *c, uint32_t set, const mn_binding *bindings, uint32_t n,
                           uint32_t stride, mn_error *err) {
    const mn_graph *g = c->prog->graph;
    if (set >= c->prog->n_sets)
        return mnp_fail(err, MN_INVALID, ~0u, "binding set %u; a context has %u", set,
                        c->prog->n_sets);
    c->at = &c->sets[set];
    c->at->bound = c->at->filled = false;
    mn_status s = mnp_bind(g, c->prog->allocations, bindings, n, stride, context_extent,
                           c->at->bindings, err);
    if (s)
        return s;
    choose_active(c);
    for (uint32_t i = 0; i < c->at->n_active && !s; i++)
        s = context_fill_call(c, c->at->active[i], err);
    if (!s)
        context_find_makers(c);
    c->at->bound = !s;
    return s;
}

/* Shape of one operand under the values of the symbols: dim[i], rows = dim[0], cols = the
 * product of the rest. An absent operand (t < 0) stays as it is. */
static void fill_dims_of(const mn_context *c, int32_t t, mnc_operand *o) {
    const mn_graph *g = c->prog->graph;
    if (t < 0)
        return;
    const mn_tensor *x = mnp_tensor(g, (uint32_t)t);
    o->rows = o->cols = 1;
    for (uint32_t i = 0; i < x->n_dim; i++) {
        o->dim[i] = mnp_dim(g, c->at->symbol, x->dim[i]);
        if (i)
            o->cols *= o->dim[i];
        else
            o->rows = o->dim[i];
    }
}

/* Once per change of the symbols' values: shapes of the operands of all active calls, and which
 * stages are one phase. */
static mn_status fill_dims(mn_context *c, mn_error *err) {
    const mn_graph *g = c->prog->graph;
    mn_status st = mnp_check_sizes(g, c->at->symbol, c->at->bindings, err);
    for (uint32_t i = 0; i < c->at->n_active && !st; i++) {
        mnc_call *call = &c->at->calls[c->at->active[i]];
        const mn_node *n = call->node;
        for (uint32_t j = 0; j < n->n_in; j++)
            fill_dims_of(c, mnp_in(g, n, j), &call->in[j]);
        for (uint32_t j = 0; j < n->n_out; j++)
            fill_dims_of(c, mnp_out(g, n, j), &call->out[j]);
    }
    c->at->filled = !st;
    if (!st)
        mnc_join_stages(c);
    return st;
}

/* For whoever looks for waits, once per number and not at every step. */
static void log_barriers(mn_context *c) {
    const mn_host *h = c->prog->dev->plugin->host;
    char line[64];
    if (c->n_barriers == c->n_logged || !MN_HAS(mn_host, h, log))
        return;
    c->n_logged = c->n_barriers;
    const int n = snprintf(line, sizeof line, "%u barriers in a step of %u nodes", c->n_barriers,
                           c->at->n_active);
    h->log(h->self, MN_LOG_DEBUG, (mn_str){line, (size_t)n});
}

/* Shapes are filled again only if a symbol has another value than in the last step of the set. */
mn_status mnc_run(mn_context *c, uint32_t set, const int64_t *values, mn_error *err) {
    const mn_program *p = c->prog;
    const mn_host *h = p->dev->plugin->host;
    int64_t *next = c->next;
    if (set >= p->n_sets || !c->sets[set].bound)
        return mnp_fail(err, MN_INVALID, ~0u, "execute before context_bind");
    c->at = &c->sets[set];
    if (atomic_load(&c->queue->aborted))
        return mnp_fail(err, MN_CANCELLED, ~0u, "the queue was aborted");
    mn_status s = mnp_symbols(p->graph, values, p->symbol_max, next, err);
    if (s)
        return s;
    uint64_t bytes = p->graph->n_symbols * sizeof *next;
    if (!c->at->filled || memcmp(c->at->symbol, next, bytes)) {
        memcpy(c->at->symbol, next, bytes);
        s = fill_dims(c, err);
        if (s)
            return s;
    }
    const mn_team team = mnc_phases(c);
    s = h->team(h->self, &team);
    if (s)
        return mnp_fail(err, s, ~0u, "the host's thread pool refused a team of %u phases",
                        team.n_phases);
    if (c->stopped)
        return mnp_fail(err, MN_CANCELLED, ~0u, "the queue was aborted");
    log_barriers(c);
    return MN_OK;
}

/* Words that a step is to write; a device that is not asynchronous waits for none. */
static mn_status check_words(const mn_context *c, const mn_step *step, mn_error *err) {
    mn_status st = MN_OK;
    if (step->n_waits)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "a step that waits for words");
    for (uint32_t i = 0; i < step->n_signals && !st; i++) {
        const mn_word *w = mnp_word(step->signals, i, step->word_stride);
        if (!w->buffer || w->buffer->dev != c->prog->dev)
            return mnp_fail(err, MN_INVALID, ~0u, "word %u is in no buffer of the device", i);
        st = mnp_check_word(w, w->buffer->bytes, err);
    }
    return st;
}

/* Whoever sees a word sees what the step wrote. */
static void write_words(const mn_step *step) {
    for (uint32_t i = 0; i < step->n_signals; i++) {
        const mn_word *w = mnp_word(step->signals, i, step->word_stride);
        uint32_t *at = (uint32_t *)(void *)(w->buffer->ptr + w->offset);
        __atomic_store_n(at, w->value, __ATOMIC_RELEASE);
    }
}

/* Returns when the step is over, so there is no event to wait for: *event is NULL. */
mn_status mnc_execute(mn_context *c, const mn_step *in, mn_event **event, mn_error *err) {
    mn_step step;
    mn_status st = mnp_read_step_words(in, &step, err);
    if (!st && step.n_waits + step.n_signals)
        st = check_words(c, &step, err);
    if (!st)
        st = mnc_run(c, step.set, step.values, err);
    if (!st)
        write_words(&step);
    if (!st && event)
        *event = NULL;
    return st;
}
