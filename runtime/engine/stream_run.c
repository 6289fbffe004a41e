/* stream_run.c -- a step whose layers' experts a card computes by groups, as stream.h says: the
 * pairs of row and expert, sorted; their products, room after room; their sum. All of it on the
 * engine's thread. */
#include "engine/stream.h"

/* ---- a step ---------------------------------------------------------------------------------- */
bool mn_stream_has(const mn_engine *e, uint32_t segment) {
    return e->stream && e->stream->active && e->stream->layer_at[segment];
}

bool mn_stream_skips(const mn_engine *e, const mn_transfer *t) {
    if (!e->stream || !e->stream->active)
        return false;
    if (e->stream->layer_at[t->made])
        return true;
    const uint32_t at = e->stream->layer_at[t->before];
    return at && t != e->stream->layers[at - 1].chosen;
}

void mn_stream_begin(mn_engine *e, const mn_engine_step *step) {
    mn_engine_stream *x = e->stream;
    if (!x || step->profile || e->step_rows < e->stream_rows)
        return;
    pthread_mutex_lock(&x->lock);
    for (uint32_t r = 0; r < x->n_rooms; r++) {
        x->threads[r].next = r;
        x->threads[r].err = (mn_error)MN_ERROR_INIT;
    }
    x->failed = MN_OK;
    x->active = true;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
}

static bool some_busy(const mn_engine_stream *x) {
    for (uint32_t r = 0; r < x->n_rooms; r++)
        if (x->threads[r].busy)
            return true;
    return false;
}

void mn_stream_end(mn_engine *e) {
    mn_engine_stream *x = e->stream;
    if (!x || !x->active)
        return;
    pthread_mutex_lock(&x->lock);
    x->active = false;
    while (some_busy(x))
        pthread_cond_wait(&x->changed, &x->lock);
    /* of a step that failed: what was put is put again */
    for (uint32_t i = 0; i < x->n_kinds; i++)
        for (uint32_t r = 0; r < x->n_rooms; r++)
            x->kinds[i].room[r].phase = MN_ROOM_FREE;
    x->n_steps++;
    pthread_mutex_unlock(&x->lock);
}

/* ---- the pairs of a layer -------------------------------------------------------------------- */
/* chosen: [rows, n_chosen]. Into x: begin, pairs and places. Pairs of experts that the list leaves
 * out have no place. An index that is no expert's counts as 0, as in MOE_LINEAR. */
static mn_status sort_pairs(mn_engine_stream *x, const mn_engine *e, const mn_stream_layer *l,
                            const int32_t *chosen, int64_t rows, int64_t all, mn_error *err) {
    const mn_stream_graph *g = &l->graph;
    const int64_t n = rows * g->n_chosen;
    const bool partly = g->of_resident >= 0;
    const int64_t first = partly ? e->graph->division.n_first : 0;
    void *pairs = x->pairs;
    void *places = x->places;
    void *begin = x->begin;
    const bool room = mn_grow(&pairs, &x->cap_pairs, (size_t)all, 4) &&
                      mn_grow(&places, &x->cap_places, (size_t)all, 4) &&
                      mn_grow(&begin, &x->cap_begin, (size_t)g->n_expert + 2, 4);
    x->pairs = pairs;
    x->places = places;
    x->begin = begin;
    if (!room)
        return mn_fail_memory(err, (size_t)all * 8);
    memset(x->begin, 0, ((size_t)g->n_expert + 2) * sizeof *x->begin);
    for (int64_t i = 0; i < all; i++)
        x->places[i] = -1;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < n; i++) {
            const bool exists = chosen[i] >= 0 && chosen[i] < g->n_expert;
            const int64_t expert = exists ? chosen[i] : 0;
            if (partly && expert < first)
                continue;
            if (!pass) {
                x->begin[expert + 2]++;
                continue;
            }
            const uint32_t place = x->begin[expert + 1]++;
            x->pairs[place] = (int32_t)i;
            x->places[i] = (int32_t)place;
        }
        for (int64_t i = 0; i < g->n_expert && !pass; i++)
            x->begin[i + 2] += x->begin[i + 1];
    }
    return MN_OK;
}

/* ---- a layer --------------------------------------------------------------------------------- */
/* What the functions below work on: one layer in one step. */
typedef struct {
    mn_engine *e;
    mn_engine_stream *x;
    const mn_stream_layer *l;
    mn_stream_kind *kind;
    const int32_t *chosen; /* [rows, n_chosen] */
    uint64_t expected_ns;  /* of a program */
    int64_t symbols[MN_STREAM_SYMBOLS];
} layer_run;

static uint64_t bytes_here(const layer_run *r, int32_t tensor) {
    uint64_t bytes = 0;
    mn_tensor_bytes(&r->kind->graph.abi, (uint32_t)tensor, r->symbols, &bytes);
    return bytes;
}

/* Between buffers of the card, enqueued. */
static mn_status copy_here(const layer_run *r, mn_buffer *to, uint64_t at, const mn_buffer *from,
                           uint64_t bytes, mn_event **done, mn_error *err) {
    const mn_engine_device *d = mn_stream_card(r->x);
    mn_status st = MN_OK;
    if (bytes)
        MN_WATCHED_FOR(mn_stream_callee(r->x), "copy", MN_MOVES_NS(bytes),
                       MN_RETRY(st, d->backend->copy(d->queue, to, at, from, 0, bytes, done, err)));
    return mn_engine_note(r->e, r->x->device, st);
}

static mn_status execute(const layer_run *r, mn_context *context, const int64_t *symbols,
                         mn_error *err) {
    mn_status st;
    MN_WATCHED_FOR(mn_stream_callee(r->x), "execute", r->expected_ns,
                   MN_RETRY(st, mn_usual_execute(mn_stream_card(r->x)->backend, context, 0, symbols,
                                                 NULL, err)));
    return mn_engine_note(r->e, r->x->device, st);
}

/* What the layer reads, out of the memory that tensors which cross have in turns. */
static mn_status copy_inputs(const layer_run *r, mn_error *err) {
    const mn_stream_graph *g = &r->l->graph;
    const mn_stream_kind *k = r->kind;
    mn_buffer *const *at = mn_stream_card(r->x)->at;
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < g->n_in && !st; i++)
        st = copy_here(r, k->in[i], 0, at[g->of_in[i]], bytes_here(r, g->in[i]), NULL, err);
    if (!st && g->weights >= 0)
        st = copy_here(r, k->weights, 0, at[g->of_weights], bytes_here(r, g->weights), NULL, err);
    if (!st && g->chosen >= 0)
        st = copy_here(r, k->chosen, 0, at[g->of_chosen], bytes_here(r, g->chosen), NULL, err);
    return st;
}

/* The rows and the experts of pairs [from, from + n), which are of one group, for the products. */
static mn_status write_pairs(const layer_run *r, uint32_t group, uint32_t from, uint32_t n,
                             mn_error *err) {
    mn_engine_stream *x = r->x;
    const mn_stream_kind *k = r->kind;
    const mn_stream_graph *g = &k->graph;
    const int32_t first = (int32_t)(group * (uint32_t)g->group);
    const int64_t padded = mn_stream_pairs(x, k, n);
    const uint64_t bytes = k->experts_at + (uint64_t)padded * 4;
    void *given = x->given;
    const bool room = mn_grow(&given, &x->cap_given, bytes, 1);
    x->given = given;
    if (!room)
        return mn_fail_memory(err, bytes);
    memset(given, 0, bytes);
    int32_t *rows = x->given;
    int32_t *experts = x->given + k->experts_at / 4;
    for (int64_t i = 0; i < padded; i++) {
        rows[i] = -1;
        if (i >= (int64_t)n)
            continue;
        const int32_t pair = x->pairs[from + i];
        rows[i] = pair / (int32_t)g->n_chosen;
        experts[i] = MN_MAX(r->chosen[pair] - first, 0); /* below 0: an index that counts as 0 */
        if (experts[i] >= (int32_t)g->group)
            experts[i] = 0;
    }
    return mn_engine_note(r->e, x->device,
                          mn_engine_write(mn_stream_card(x), k->index, 0, given, bytes, err));
}

/* The products of a group's pairs, in as many runs as they need; *used: their end. */
static mn_status run_group(const layer_run *r, const mn_stream_room *room, uint32_t group,
                           mn_event **used, mn_error *err) {
    const mn_stream_graph *g = &r->kind->graph;
    const uint64_t row = (uint64_t)g->dim * 4;
    const uint32_t most = (uint32_t)g->abi.symbols[MN_STREAM_PAIRS].max;
    const uint32_t end = r->x->begin[(group + 1) * (uint32_t)g->group];
    mn_status st = MN_OK;
    for (uint32_t at = r->x->begin[group * (uint32_t)g->group]; at < end && !st; at += most) {
        const uint32_t n = MN_MIN(end - at, most);
        int64_t symbols[MN_STREAM_SYMBOLS];
        mn_stream_run_symbols(r->kind, mn_stream_pairs(r->x, r->kind, n), symbols);
        st = write_pairs(r, group, at, n, err);
        if (!st)
            st = execute(r, room->context, symbols, err);
        if (!st)
            st = copy_here(r, r->kind->all, at * row, r->kind->made, n * row,
                           at + n == end ? used : NULL, err);
    }
    return st;
}

/* Until the thread has put the room's experts, or failed. */
static mn_status wait_for_room(const layer_run *r, mn_stream_room *room, mn_event **put,
                               mn_error *err) {
    mn_engine_stream *x = r->x;
    pthread_mutex_lock(&x->lock);
    while (room->phase != MN_ROOM_PUT && !x->failed)
        pthread_cond_wait(&x->changed, &x->lock);
    const mn_status st = x->failed;
    *put = st ? NULL : room->event;
    if (!st)
        room->event = NULL;
    pthread_mutex_unlock(&x->lock);
    if (!st)
        return MN_OK;
    const mn_stream_thread *w = x->threads;
    while (w + 1 < x->threads + x->n_rooms && !*w->err.msg)
        w++;
    return mn_engine_note(r->e, x->device, mn_fail(err, st, "%s", w->err.msg));
}

/* The room's experts are used, and it is its thread's again. */
static mn_status run_room(const layer_run *r, mn_stream_room *room, uint32_t group, mn_error *err) {
    mn_engine_stream *x = r->x;
    const mn_engine_device *d = mn_stream_card(x);
    mn_event *put = NULL;
    mn_event *used = NULL;
    mn_status st = wait_for_room(r, room, &put, err);
    if (st)
        return st;
    MN_WATCHED(mn_stream_callee(x), "queue_wait", st = d->backend->queue_wait(d->queue, put, err));
    if (put)
        MN_WATCHED(mn_stream_callee(x), "event_free", d->backend->event_free(put));
    mn_engine_note(r->e, x->device, st);
    if (!st)
        st = run_group(r, room, group, &used, err);
    pthread_mutex_lock(&x->lock);
    room->event = used;
    room->phase = MN_ROOM_FREE;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
    return st;
}

/* All pairs in the order of the step, and their sum to where the next segment reads it. */
static mn_status finish_layer(const layer_run *r, mn_error *err) {
    const mn_stream_kind *k = r->kind;
    const mn_stream_graph *g = &k->graph;
    mn_engine_device *d = mn_stream_card(r->x);
    const uint64_t bytes = (uint64_t)r->symbols[MN_STREAM_ALL] * 4;
    mn_status st = mn_engine_note(r->e, r->x->device,
                                  mn_engine_write(d, k->order_rows, 0, r->x->places, bytes, err));
    if (!st)
        st = execute(r, k->order_context, r->symbols, err);
    if (!st)
        st = execute(r, k->sum_context, r->symbols, err);
    if (st)
        return st;
    return copy_here(r, d->at[r->l->graph.of_sum], 0, k->result, bytes_here(r, g->sum), NULL, err);
}

/* The items of the step up to the layer's. */
static uint32_t items_before(const mn_engine_stream *x, const mn_stream_layer *l) {
    uint32_t n = 0;
    for (const mn_stream_layer *i = x->layers; i < l; i++)
        n += i->n_groups;
    return n;
}

mn_status mn_stream_run(mn_engine *e, uint32_t segment, const mn_engine_step *step, mn_error *err) {
    mn_engine_stream *x = e->stream;
    const mn_stream_layer *l = &x->layers[x->layer_at[segment] - 1];
    const mn_stream_graph *g = &l->graph;
    const int64_t rows = step->symbols[MN_SYM_TOKENS];
    const void *chosen;
    layer_run r = {.e = e, .x = x, .l = l, .kind = &x->kinds[l->kind]};
    r.expected_ns = mn_engine_segment_ns(&e->segments[segment], step->symbols);
    r.symbols[MN_STREAM_ROWS] = rows;
    r.symbols[MN_STREAM_PAIRS] = 0; /* not read there */
    r.symbols[MN_STREAM_ALL] = mn_engine_round(rows * g->n_chosen, x->row_grain,
                                               r.kind->graph.abi.symbols[MN_STREAM_ALL].max);
    mn_status st = copy_inputs(&r, err);
    if (!st)
        st = mn_boundary_rows(e, l->chosen, step->symbols, &chosen, err);
    if (st)
        return st;
    r.chosen = chosen;
    const int64_t live = MN_MIN((int64_t)e->step_rows, rows);
    st = sort_pairs(x, e, l, r.chosen, live, r.symbols[MN_STREAM_ALL], err);
    for (uint32_t i = 0, item = items_before(x, l); i < l->n_groups && !st; i++, item++)
        st = run_room(&r, &r.kind->room[item % x->n_rooms], l->first + i, err);
    x->n_bytes += mn_stream_bytes(l);
    return st ? st : finish_layer(&r, err);
}
