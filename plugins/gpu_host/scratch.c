/* scratch.c -- the scratch of contexts. Steps of one queue run one after another and leave nothing
 * in their scratch but counters, so that all contexts of a queue share one room, as large as the
 * largest needs (the draft mn.x.scratch/1 says so to the host). Contexts hold the room, the queue
 * knows the one that new contexts join; it is freed with its last context.
 *
 * A room grows until a step has begun: captured graphs and recorded arguments hold its address. A
 * context that needs more after that makes a new one. */
#include "gpu_table.h"

/* What the room would be with the program in it, too. */
static mng_room with_program(const mng_room *room, const mng_program *p) {
    const mng_backend *b = mng_backend_of(p->dev);
    const uint64_t rest = p->scratch + b->limits.slack;
    mng_room r = *room;
    r.base = 0;
    for (uint32_t i = 0; i < MNG_MAX_NEEDS; i++) {
        if (b->kept_needs >> i & 1 && p->needs.bytes[i] > r.kept[i])
            r.kept[i] = p->needs.bytes[i];
        r.kept_at[i] = r.base;
        r.base += (uint64_t)mnp_round((int64_t)r.kept[i], 256);
    }
    if (rest > r.rest)
        r.rest = rest;
    return r;
}

static bool is_as_large(const mng_room *a, const mng_room *b) {
    return a->mem && a->base == b->base && a->rest == b->rest;
}

/* The room that it is to become; after an error it has the memory that it had, if that can be had
 * again. */
static mn_status grow(mn_queue *queue, mng_room *room, mng_room to, mn_error *err) {
    mn_device *d = mng_queue_of(queue)->dev;
    const mng_backend *b = mng_backend_of(d);
    const uint64_t before = room->base + room->rest;
    const bool had = room->mem;
    mn_status st = had ? b->queue_finish(queue, err) : MN_OK;
    if (st)
        return st;
    if (had)
        b->memory_free(d, room->mem);
    room->mem = NULL;
    st = b->memory_alloc(d, to.base + to.rest, MNG_WRITTEN, "scratch", &to.mem, err);
    if (!st)
        *room = to;
    else if (had)
        b->memory_alloc(d, before, MNG_WRITTEN, "scratch", &room->mem, NULL);
    return st;
}

static mn_status make_room(mn_queue *queue, const mng_program *p, mng_room **out, mn_error *err) {
    mn_device *d = p->dev;
    mng_room *room = mng_new(d, sizeof *room);
    if (!room)
        return mnp_fail_memory(err, sizeof *room, "a context");
    const mn_status st = grow(queue, room, with_program(room, p), err);
    if (st)
        mng_delete(d, room);
    else
        *out = room;
    return st;
}

mn_status mng_room_join(mn_context *ctx, mn_error *err) {
    mng_context *c = mng_context_of(ctx);
    mng_queue *q = mng_queue_of(c->queue);
    const mng_program *p = mng_program_of(c->prog);
    mng_room *room = q->room;
    mn_status st = MN_OK;
    if (room) {
        const mng_room with = with_program(room, p);
        if (!is_as_large(room, &with) && room->used)
            room = NULL;
        else if (!is_as_large(room, &with))
            st = grow(c->queue, room, with, err);
    }
    if (!room)
        st = make_room(c->queue, p, &room, err);
    if (st)
        return st;
    q->room = room;
    room->n_contexts++;
    c->room = room;
    return MN_OK;
}

void mng_room_leave(mn_context *ctx) {
    mng_context *c = mng_context_of(ctx);
    mng_room *room = c->room;
    mn_device *d = mng_program_of(c->prog)->dev;
    if (!room || --room->n_contexts)
        return;
    if (mng_queue_of(c->queue)->room == room)
        mng_queue_of(c->queue)->room = NULL;
    if (room->mem)
        mng_backend_of(d)->memory_free(d, room->mem);
    mng_delete(d, room);
}
