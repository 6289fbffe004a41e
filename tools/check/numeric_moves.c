/* numeric_moves.c -- rule numeric.kv_moves: pages in the form that all devices share (mn.kv/1);
 * numeric_state_moves.c has those of states.
 * Layers of two groups store the same keys and values on the plugin's device and on that of
 * `reference`, whose pages may have another size: what both tell of each token is compared. Then
 * the plugin takes its pages back at other places, and tells the same bits again. */
#include "case_plan.h"
#include "numeric.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4 /* two of each group */, TOKENS = 155, NEW = 5, MOST_PAGES = 64 };

static const op_shape shapes[CASE_GROUPS] = {
    {.rows = NEW, .n_head = 4, .n_head_kv = 1, .dim = 32, .past = TOKENS - NEW},
    {.rows = NEW, .n_head = 4, .n_head_kv = 2, .dim = 64, .past = TOKENS - NEW},
};

/* A plugin with the pages of all tokens, and room for as many. */
typedef struct {
    const case_on *on;
    const mn_kv_moves *moves;
    op_shape shape[CASE_GROUPS];
    op_case *first;
    case_plan *plan;
    mn_buffer *host; /* of one page in the shared form, for any group */
    float *map;
} mover;

/* ---- sizes ----------------------------------------------------------------------------------- */
static uint64_t values_of_row(const op_shape *s) { /* of a token: keys, or values, of a layer */
    return (uint64_t)(s->n_head_kv * s->dim);
}
static uint64_t values_of_tokens(const op_shape *s) { /* numbers of all tokens */
    return 2 * (LAYERS / CASE_GROUPS) * TOKENS * values_of_row(s);
}
static uint32_t pages_of_tokens(const op_shape *s) {
    return (TOKENS + s->page_tokens - 1) / s->page_tokens;
}
static uint32_t tokens_in(const op_shape *s, uint32_t page) { /* in the text's order */
    const uint32_t left = TOKENS - page * s->page_tokens;
    return left < s->page_tokens ? left : s->page_tokens;
}

/* ---- one side -------------------------------------------------------------------------------- */
/* The tokens of the pages, as the plugin lays out each group. */
static mn_status ask_layouts_of_side(mover *m, mn_error *err) {
    op_case *c = case_groups(m->shape, LAYERS, 7);
    mn_status st = c && !c->failed ? MN_OK : MN_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < CASE_GROUPS && !st; i++) {
        mn_memory_layout l = {.size = sizeof l};
        const mn_compile ask = case_question(c, MN_PRECISION_EXACT);
        st = m->on->be->memory_layout(m->on->dev, &ask, i, &l, err);
        m->shape[i].page_tokens = l.page_tokens;
    }
    case_free(c);
    return st;
}

/* All tokens are stored. */
static mn_status store_all(mover *m, mn_error *err) {
    m->first = case_groups(m->shape, LAYERS, 7);
    if (!m->first || m->first->failed)
        return MN_OUT_OF_MEMORY;
    if (!case_supported(m->on, m->first))
        return MN_UNSUPPORTED;
    for (uint32_t i = 0; i < CASE_GROUPS; i++)
        m->first->kv[i].pages = 2 * pages_of_tokens(&m->shape[i]) + 1;
    mn_status st = case_open(m->on, m->first, MN_PRECISION_EXACT, &m->plan, err);
    return st ? st : case_step(m->plan, m->first, err);
}

static mn_status open_mover(mover *m, const case_on *on, const mn_kv_moves *moves,
                            uint32_t kv_dtype, mn_error *err) {
    void *map = NULL;
    m->on = on;
    m->moves = moves;
    for (uint32_t i = 0; i < CASE_GROUPS; i++) {
        m->shape[i] = shapes[i];
        m->shape[i].kv_dtype = kv_dtype;
    }
    mn_status st = ask_layouts_of_side(m, err);
    if (!st)
        st = store_all(m, err);
    if (!st)
        st = mn_usual_alloc(on->be, on->dev, values_of_tokens(&shapes[1]) * sizeof *m->map,
                            MN_MEM_HOST_PINNED, &m->host, err);
    if (!st)
        st = on->be->map(m->host, &map, err);
    m->map = map;
    return st;
}

static void close_mover(mover *m) {
    if (m->host)
        m->on->be->buffer_free(m->host);
    case_close(m->plan);
    case_free(m->first);
}

/* ---- a page ---------------------------------------------------------------------------------- */
static const mn_memory_params *group_params(const mover *m, uint32_t group) {
    const mn_compile *ask = &m->plan->ask;
    for (uint32_t i = 0; i < ask->n_memory; i++) {
        const char *at = (const char *)ask->memory + (uint64_t)i * ask->memory_stride;
        const mn_memory_use *use = (const mn_memory_use *)(const void *)at;
        if (use->params->group == group)
            return use->params;
    }
    return NULL;
}

/* Through the host's buffer, and waits. */
static mn_status move_and_wait(mover *m, uint32_t group, uint32_t page, uint32_t n_tokens, bool out,
                               mn_error *err) {
    mn_memory_layout l = {.size = sizeof l};
    mn_event *ev = NULL;
    mn_status st = case_memory_layout(m->plan, group, &l, err);
    const mn_kv_page p = {.size = sizeof p,
                          .page = page,
                          .n_tokens = n_tokens,
                          .params = group_params(m, group),
                          .layout = &l,
                          .memory = m->plan->buffer[m->first->kv[group].tensor],
                          .host = m->host};
    if (st)
        return st;
    st =
        out ? m->moves->get(m->on->queue, &p, &ev, err) : m->moves->put(m->on->queue, &p, &ev, err);
    return case_wait(m->on->be, st, &ev, err);
}

/* Between a page in the shared form and all tokens: [layer][keys, values][token][row]. */
static void copy_tokens(const op_shape *s, uint32_t page, float *shared, float *all, bool out) {
    const uint64_t row = values_of_row(s);
    const uint64_t n = tokens_in(s, page) * row;
    for (uint32_t i = 0; i < 2 * (LAYERS / CASE_GROUPS); i++) {
        float *to = all + (i * TOKENS + (uint64_t)page * s->page_tokens) * row;
        if (out)
            memcpy(to, shared + i * n, n * sizeof *to);
        else
            memcpy(shared + i * n, to, n * sizeof *to);
    }
}

/* All pages, from `first` pages behind where the step has them; pages of a text descend
 * (case_cache.c). */
static mn_status move_all(mover *m, uint32_t group, uint32_t first, float *all, bool out,
                          mn_error *err) {
    const op_shape *s = &m->shape[group];
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < pages_of_tokens(s) && !st; i++) {
        if (!out)
            copy_tokens(s, i, m->map, all, false);
        st = move_and_wait(m, group, first + pages_of_tokens(s) - i, tokens_in(s, i), out, err);
        if (out && !st)
            copy_tokens(s, i, m->map, all, true);
    }
    return st;
}

/* ---- the rule -------------------------------------------------------------------------------- */
static double moves_differ(const float *got, const float *want, uint64_t n) {
    double off = 0;
    double size = 0;
    for (uint64_t i = 0; i < n; i++) {
        off += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += (double)want[i] * want[i];
    }
    return sqrt(off / (size > 0 ? size : 1));
}

/* What rounding may differ by: of F16 and Q8_0 one step, for ties. */
static double rounding_limit(uint32_t kv_dtype) {
    if (kv_dtype == MN_F32)
        return 0;
    return kv_dtype == MN_F16 ? 1e-4 : 2e-3;
}

static void compare_group(numeric *n, mover *mine, mover *theirs, uint32_t group,
                          uint32_t kv_dtype) {
    check *c = n->c;
    const char *type = mn_dtype_name(kv_dtype);
    const op_shape *s = &mine->shape[group];
    const uint64_t count = values_of_tokens(s);
    mn_error err = check_error();
    float *got = calloc(count, sizeof *got);
    float *want = calloc(count, sizeof *want);
    float *back = calloc(count, sizeof *back);
    mn_status st = got && want && back ? MN_OK : MN_OUT_OF_MEMORY;
    if (!st)
        st = move_all(theirs, group, 0, want, true, &err);
    if (!st)
        st = move_all(mine, group, 0, got, true, &err);
    check_status(c, st, &err, "get of group %u, KV %s", group, type);
    const double e = st ? 0 : moves_differ(got, want, count);
    if (!st && !(e <= rounding_limit(kv_dtype)))
        check_fail(c,
                   "get of group %u, KV %s: found relative L2 %g beside what reference tells of "
                   "the same tokens, expected at most %g",
                   group, type, e, rounding_limit(kv_dtype));
    if (!st)
        st = move_all(mine, group, pages_of_tokens(s), got, false, &err);
    if (!st)
        st = move_all(mine, group, pages_of_tokens(s), back, true, &err);
    check_status(c, st, &err, "put of group %u, KV %s", group, type);
    if (!st && kv_dtype != MN_Q8_0 && memcmp(back, got, count * sizeof *got) != 0)
        check_fail(c, "group %u, KV %s: get behind put found other bits, expected those of the put",
                   group, type);
    n->n_cases += !st;
    free(got);
    free(want);
    free(back);
}

static void moves_of_type(numeric *n, uint32_t kv_dtype) {
    mover mine = {0};
    mover theirs = {0};
    mn_error err = check_error();
    const mn_plugin *oracle = n->oracle.api;
    check_doing(n->c, "pages were moved, KV %s", mn_dtype_name(kv_dtype));
    mn_status st =
        open_mover(&theirs, &n->there, oracle->query(oracle->self, MN_KV_ID), kv_dtype, &err);
    if (!st)
        st = open_mover(&mine, &n->here, check_table(&n->plugin, MN_KV_ID), kv_dtype, &err);
    if (!st && pages_of_tokens(&mine.shape[0]) > MOST_PAGES)
        st = MN_UNSUPPORTED;
    if (!st && theirs.moves)
        for (uint32_t i = 0; i < CASE_GROUPS && !check_over(n->c); i++)
            compare_group(n, &mine, &theirs, i, kv_dtype);
    if (st && MN_STATUS_CLASS(st) != MN_CLASS_REFUSE)
        check_status(n->c, st, &err, "a cache of %s", mn_dtype_name(kv_dtype));
    close_mover(&mine);
    close_mover(&theirs);
}

static void moves_of_types(numeric *n) {
    static const uint32_t types[] = {MN_F32, MN_F16, MN_Q8_0};
    const mn_kv_moves *moves = check_table(&n->plugin, MN_KV_ID);
    if (!moves) {
        check_skip(n->c, "the plugin has no " MN_KV_ID);
        return;
    }
    if (!MN_HAS(mn_kv_moves, moves, put) || !moves->get || !moves->put) {
        check_fail(n->c, MN_KV_ID ": found a table of %u bytes without get or put, expected both",
                   moves->size);
        return;
    }
    for (uint32_t i = 0; i < sizeof types / sizeof *types && !check_over(n->c); i++)
        moves_of_type(n, types[i]);
    if (!check_over(n->c))
        numeric_state_moves(n);
    if (!n->n_cases)
        check_skip(n->c, "the plugin supports neither a cache nor an operation with a state%s",
                   check_no_text(&n->plugin));
}

void check_numeric_kv_moves(check *c) {
    numeric n;
    if (numeric_open(c, &n))
        moves_of_types(&n);
    numeric_close(&n);
}
