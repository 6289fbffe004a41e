/* numeric_state_moves.c -- rule numeric.kv_moves, of states: pages in the form that all devices
 * share. The operations that the plugin supports run a step of the same sequences on its device
 * and on that of `reference`, as layers of one group: what both tell of each layer is compared.
 * Then the plugin takes what `reference` told into a page of no sequence, and tells the same bits
 * again. */
#include "case_plan.h"
#include "numeric.h"
#include <string.h>

enum { ROWS = 10, SEQUENCES = 2, OPS = 3, SPARE = 0 /* a page that no step uses */, AT = 3 };

static const uint32_t ops[OPS] = {MN_OP_CONV_STATE, MN_OP_SSM_SCAN, MN_OP_GATED_DELTA};
static const op_shape shapes[OPS] = {
    {.rows = ROWS, .k = 70, .n = 4, .n_seqs = SEQUENCES},
    {.rows = ROWS, .n_head = 4, .n_head_kv = 2, .dim = 40, .n = 24, .n_seqs = SEQUENCES},
    {.rows = ROWS, .n_head = 4, .n_head_kv = 2, .dim = 24, .dim_v = 72, .n_seqs = SEQUENCES},
};

/* A plugin that ran a step. host: AT numbers, then a page in the shared form. */
typedef struct {
    const case_on *on;
    const mn_kv_moves *moves;
    op_case *c;
    case_plan *plan;
    mn_memory_layout layout;
    uint64_t n; /* numbers of a page */
    mn_buffer *host;
    float *map;
} state_mover;

static const mn_memory_params *state_params(const state_mover *m) {
    return m->plan->ask.memory->params;
}

static const mn_memory_layer *state_layer_at(const mn_memory_params *p, uint32_t i) {
    const char *at = (const char *)p->layers + (uint64_t)i * p->layer_stride;
    return (const mn_memory_layer *)(const void *)at;
}

/* ---- one side -------------------------------------------------------------------------------- */
static mn_status open_state_side(state_mover *m, const case_on *on, const mn_kv_moves *moves,
                                 const uint32_t *op, const op_shape *shape, uint32_t n_ops,
                                 mn_error *err) {
    m->on = on;
    m->moves = moves;
    m->c = case_states(op, shape, n_ops, 11);
    if (!m->c || m->c->failed)
        return MN_OUT_OF_MEMORY;
    mn_status st = case_open(on, m->c, MN_PRECISION_EXACT, &m->plan, err);
    if (!st)
        st = case_step(m->plan, m->c, err);
    m->layout = (mn_memory_layout){.size = sizeof m->layout};
    if (!st)
        st = case_memory_layout(m->plan, 0, &m->layout, err);
    for (uint32_t i = 0; i < n_ops && !st; i++)
        m->n += state_layer_at(state_params(m), i)->n_state;
    if (!st)
        st = mn_usual_alloc(on->be, on->dev, (AT + m->n) * sizeof *m->map, MN_MEM_HOST_PINNED,
                            &m->host, err);
    if (!st)
        st = on->be->map(m->host, (void **)&m->map, err);
    return st;
}

static void close_state_side(state_mover *m) {
    if (m->host)
        m->on->be->buffer_free(m->host);
    case_close(m->plan);
    case_free(m->c);
}

/* Through the host's buffer, and waits. */
static mn_status move_state_page(state_mover *m, uint32_t page, bool out, mn_error *err) {
    mn_event *ev = NULL;
    const mn_kv_page p = {.size = sizeof p,
                          .page = page,
                          .params = state_params(m),
                          .layout = &m->layout,
                          .memory = m->plan->buffer[m->c->kv[0].tensor],
                          .host = m->host,
                          .offset = AT * sizeof *m->map};
    mn_status st = MN_OK;
    if (out)
        st = m->moves->get(m->on->queue, &p, &ev, err);
    else
        st = m->moves->put(m->on->queue, &p, &ev, err);
    return case_wait(m->on->be, st, &ev, err);
}

/* ---- the comparison -------------------------------------------------------------------------- */
/* got, want: the layers of a page. */
static void compare_layers(check *c, const mn_memory_params *p, const float *got,
                           const float *want) {
    const double limit = check_class_limit(MN_PRECISION_EXACT);
    for (uint32_t i = 0; i < p->n_layers && !check_over(c); i++) {
        const mn_memory_layer *l = state_layer_at(p, i);
        const double e = case_rel_l2(got, want, (int64_t)l->n_state);
        if (!(e <= limit))
            check_fail(c,
                       "get of a state of %s [%u, %u, %u], layer %u of %u: found relative L2 %g "
                       "beside what reference tells of the same rows, expected at most %g",
                       case_op_name(l->op), l->n_head, l->dim_k, l->dim_v, i, p->n_layers, e,
                       limit);
        got += l->n_state;
        want += l->n_state;
    }
}

static void compare_page(numeric *n, state_mover *mine, state_mover *theirs, uint32_t page) {
    check *c = n->c;
    mn_error err = check_error();
    const uint64_t bytes = mine->n * sizeof *mine->map;
    float *got = mine->map + AT;
    float *want = theirs->map + AT;
    memset(got, 0xff, bytes);
    mn_status st = move_state_page(theirs, page, true, &err);
    check_status(c, st, &err, "reference: get of a state");
    if (!st)
        st = move_state_page(mine, page, true, &err);
    check_status(c, st, &err, "get of a page of states");
    if (!st)
        compare_layers(c, state_params(mine), got, want);
    if (check_over(c))
        return;
    memcpy(got, want, bytes);
    st = move_state_page(mine, SPARE, false, &err);
    memset(got, 0xff, bytes);
    if (!st)
        st = move_state_page(mine, SPARE, true, &err);
    check_status(c, st, &err, "put of a page of states");
    if (!st && memcmp(got, want, bytes) != 0)
        check_fail(c, "states: get behind put found other bits, expected those of the put");
    n->n_cases++;
}

/* What the plugin supports of the operations. */
static uint32_t choose_state_op(numeric *n, uint32_t *op, op_shape *shape) {
    uint32_t n_ops = 0;
    for (uint32_t i = 0; i < OPS; i++) {
        op_case *c = case_random(ops[i], MN_F32, &shapes[i], 11);
        if (c && !c->failed && case_supported(&n->here, c)) {
            op[n_ops] = ops[i];
            shape[n_ops++] = shapes[i];
        }
        case_free(c);
    }
    return n_ops;
}

/* The page that the step left of each sequence. */
static void compare_pages(numeric *n, state_mover *mine, state_mover *theirs) {
    const op_case *c = mine->c;
    uint32_t at = 0;
    while (strcmp(c->t[at].name.ptr, "states"))
        at++;
    const int32_t *states = c->data[at]; /* [slots, 2] */
    for (uint32_t i = 0; i < SEQUENCES && !check_over(n->c); i++)
        compare_page(n, mine, theirs, (uint32_t)states[2 * i + 1]);
}

void numeric_state_moves(numeric *n) {
    uint32_t op[OPS];
    op_shape shape[OPS];
    state_mover mine = {0};
    state_mover theirs = {0};
    mn_error err = check_error();
    check_doing(n->c, "states were moved");
    const uint32_t n_ops = choose_state_op(n, op, shape);
    if (!n_ops)
        return;
    const mn_plugin *oracle = n->oracle.api;
    const mn_kv_moves *moves = oracle->query(oracle->self, MN_KV_ID);
    mn_status st = open_state_side(&theirs, &n->there, moves, op, shape, n_ops, &err);
    if (!st)
        st = open_state_side(&mine, &n->here, check_table(&n->plugin, MN_KV_ID), op, shape, n_ops,
                             &err);
    check_status(n->c, st, &err, "a group of states");
    if (!st && theirs.moves)
        compare_pages(n, &mine, &theirs);
    close_state_side(&mine);
    close_state_side(&theirs);
}
