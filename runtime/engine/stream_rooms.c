/* stream_rooms.c -- the threads that copy experts to a card, one for each room of stream.h, and
 * what they put: some experts of a weight, described as a source of their own. */
#include "engine/stream.h"

/* ---- a group of a weight's experts ----------------------------------------------------------- */
static const mn_plane *plane_at(const mn_weight_src *s, uint32_t part, uint32_t k) {
    const size_t at = ((size_t)part * s->n_planes + k) * s->plane_stride;
    return (const mn_plane *)(const void *)((const char *)s->planes + at);
}

/* Experts [lo, hi) of the part's. */
static mn_plane plane_of_experts(const mn_plane *p, int64_t n_part, int64_t lo, int64_t hi) {
    mn_plane some = *p;
    const uint64_t skipped = (uint64_t)lo * (uint64_t)p->stride[0];
    some.ptr = (const char *)p->ptr + skipped;
    some.bytes = p->bytes - skipped;
    if (p->dim[0] == n_part)
        some.dim[0] = hi - lo;
    return some;
}

/* Experts [first, first + n) as a source of their own, whose planes the thread keeps until the next
 * one. */
static mn_status group_source(mn_stream_thread *w, const mn_weight_src *all, uint32_t tensor,
                              int64_t first, int64_t n, mn_weight_src *out, mn_error *err) {
    const size_t most = (size_t)all->n_parts * all->n_planes;
    void *more = w->planes;
    if (!mn_grow(&more, &w->cap_planes, most, sizeof *w->planes))
        return mn_fail_memory(err, most * sizeof *w->planes);
    w->planes = more;
    *out = *all;
    out->tensor = tensor;
    out->n_parts = 0;
    out->planes = w->planes;
    out->plane_stride = sizeof *w->planes;
    int64_t at = 0;
    for (uint32_t i = 0; i < all->n_parts; i++) {
        const int64_t n_part = plane_at(all, i, 0)->dim[0];
        const int64_t lo = MN_MAX(first - at, 0);
        const int64_t hi = MN_MIN(first + n - at, n_part);
        at += n_part;
        if (lo >= hi)
            continue;
        mn_plane *to = w->planes + (size_t)out->n_parts++ * all->n_planes;
        for (uint32_t k = 0; k < all->n_planes; k++)
            to[k] = plane_of_experts(plane_at(all, i, k), n_part, lo, hi);
    }
    return MN_OK;
}

mn_status mn_stream_put(mn_stream_thread *w, const mn_stream_layer *l, mn_weights *set, uint32_t at,
                        mn_event **event, mn_error *err) {
    const mn_engine_stream *x = w->stream;
    const mn_backend *b = mn_stream_card(x)->backend;
    const mn_stream_graph *g = &l->graph;
    const mn_stream_graph *kind = &x->kinds[l->kind].graph;
    mn_status st = MN_OK;
    *event = NULL;
    for (uint32_t i = 0; i < g->n_weights && !st; i++) {
        mn_event **done = i + 1 == g->n_weights ? event : NULL;
        mn_weight_src src;
        st = group_source(w, &l->all[i], (uint32_t)kind->weight[i].tensor, (int64_t)at * g->group,
                          g->group, &src, err);
        const uint64_t bytes = st ? 0 : plane_at(&src, 0, 0)->bytes;
        if (!st)
            MN_WATCHED_FOR(mn_stream_callee(x), "weights_put", MN_MOVES_NS(bytes),
                           MN_RETRY(st, b->weights_put(set, w->queue, &src, done, err)));
    }
    return st;
}

/* ---- the threads ----------------------------------------------------------------------------- */
/* The layer of an item of a step, and which of its groups that is. */
static const mn_stream_layer *layer_of_item(const mn_engine_stream *x, uint32_t item,
                                            uint32_t *group) {
    for (uint32_t i = 0; i < x->n_layers; i++) {
        const mn_stream_layer *l = &x->layers[i];
        if (item < l->n_groups) {
            *group = l->first + item;
            return l;
        }
        item -= l->n_groups;
    }
    return NULL;
}

/* Fills the room behind its last products. Without the lock; the room is FREE, and so nobody
 * else's. */
static mn_status put_room(mn_stream_thread *w, uint32_t item, mn_event *used, mn_event **put) {
    const mn_engine_stream *x = w->stream;
    uint32_t group = 0;
    const mn_stream_layer *l = layer_of_item(x, item, &group);
    mn_stream_room *room = &x->kinds[l->kind].room[w->at];
    mn_status st = mn_event_settle(mn_stream_card(x)->backend, mn_stream_callee(x),
                                   MN_MOVES_NS(UINT32_MAX), &used, &w->err);
    return st ? st : mn_stream_put(w, l, room->set, group, put, &w->err);
}

/* The next item of the thread if it can begin now; NULL: there is none, or its room is not free. */
static mn_stream_room *next_room(const mn_engine_stream *x, const mn_stream_thread *w) {
    uint32_t group;
    if (!x->active || x->failed || w->next >= x->n_items)
        return NULL;
    const mn_stream_layer *l = layer_of_item(x, w->next, &group);
    mn_stream_room *room = &x->kinds[l->kind].room[w->at];
    return room->phase == MN_ROOM_FREE ? room : NULL;
}

static void *fill_rooms(void *arg) {
    mn_stream_thread *w = arg;
    mn_engine_stream *x = w->stream;
    pthread_mutex_lock(&x->lock);
    while (!x->quit) {
        mn_stream_room *room = next_room(x, w);
        if (!room) {
            pthread_cond_wait(&x->changed, &x->lock);
            continue;
        }
        mn_event *put = NULL;
        mn_event *used = room->event;
        room->event = NULL;
        w->busy = true;
        pthread_mutex_unlock(&x->lock);
        const mn_status st = put_room(w, w->next, used, &put);
        pthread_mutex_lock(&x->lock);
        w->busy = false;
        room->event = put;
        if (st)
            x->failed = st;
        else
            room->phase = MN_ROOM_PUT;
        w->next += x->n_rooms;
        pthread_cond_broadcast(&x->changed);
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

mn_status mn_stream_threads_start(mn_engine_stream *x, mn_error *err) {
    for (uint32_t r = 0; r < x->n_rooms; r++) {
        mn_stream_thread *w = &x->threads[r];
        if (pthread_create(&w->thread, NULL, fill_rooms, w))
            return mn_fail(err, MN_OUT_OF_MEMORY, "out of memory: no thread that copies experts");
        w->started = true;
    }
    return MN_OK;
}

void mn_stream_threads_stop(mn_engine_stream *x) {
    pthread_mutex_lock(&x->lock);
    x->quit = true;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
    for (uint32_t r = 0; r < x->n_rooms; r++)
        if (x->threads[r].started)
            pthread_join(x->threads[r].thread, NULL);
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
}
