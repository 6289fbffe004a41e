/* mirror_objects.c -- what calls of rank 0's backend are told by: frames to the other ranks, their
 * answers, and objects, which are numbers to them. */
#include "ranks/mirror.h"
#include "usual.h"
#include <string.h>

/* ---- telling --------------------------------------------------------------------------------- */
static uint32_t mirror_take_id(mn_ranks *r) {
    return r->n_free ? r->free_ids[--r->n_free] : ++r->n_ids;
}

void mn_mirror_give_id(mn_ranks *r, uint32_t id) {
    if (id)
        r->free_ids[r->n_free++] = id;
}

void mn_mirror_begin(mn_ranks *r, uint32_t say) {
    const mn_frame_head head = {say, MN_FRAME_MAGIC, 0};
    r->frame_at = r->out.len;
    mn_put(&r->out, &head, sizeof head);
}

void mn_mirror_end(mn_ranks *r) {
    const uint64_t n = r->out.len - r->frame_at - sizeof(mn_frame_head);
    if (!r->out.failed)
        memcpy(r->out.ptr + r->frame_at + offsetof(mn_frame_head, n), &n, sizeof n);
}

void mn_mirror_forget(mn_ranks *r) {
    r->out.len = r->frame_at;
}

void mn_mirror_flush(mn_ranks *r) {
    if (r->out.failed)
        mn_ranks_break(r, "rank 0: out of memory");
    for (uint32_t i = 0; i < r->n_links && !r->broken && r->out.len; i++)
        mn_link_send(r, &r->links[i], r->out.ptr, r->out.len);
    if (r->out.failed || r->out.cap > (4u << 20))
        mn_text_free(&r->out);
    r->out.len = 0;
    r->out.failed = false;
}

mn_status mn_mirror_fail_broken(const mn_ranks *r, mn_error *err) {
    return mn_fail(err, MN_DEVICE_LOST, "%s", r->broken ? r->why : "the ranks have ended");
}

mn_status mn_mirror_answer(mn_ranks *r, mn_link *l, void *more, size_t n, mn_error *err) {
    mn_frame *f = mn_link_next(r, l);
    if (!f)
        return mn_mirror_fail_broken(r, err);
    mn_reader in = {f->data, f->data + f->n, f->say != MN_SAY_REPLY};
    mn_status st = (mn_status)mn_take_u32(&in);
    const mn_str why = mn_take_bytes(&in);
    if (st)
        mn_fail(err, st, "rank %u: %.*s", l->rank, MN_STR_ARG(why));
    else
        mn_take(&in, more, n);
    const bool bad = in.bad;
    mn_free(f);
    if (!bad)
        return st;
    mn_ranks_break(r, "%s gave an answer that is none", l->name);
    return mn_mirror_fail_broken(r, err);
}

mn_status mn_mirror_answers(mn_ranks *r, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < r->n_links; i++) {
        const mn_status one = mn_mirror_answer(r, &r->links[i], NULL, 0, st ? NULL : err);
        st = st ? st : one;
    }
    return st;
}

void mn_mirror_tell_free(mn_ranks *r, uint32_t id) {
    if (!id)
        return;
    mn_mirror_begin(r, MN_SAY_FREE);
    mn_put_u32(&r->out, id);
    mn_mirror_end(r);
    mn_mirror_flush(r);
    mn_mirror_give_id(r, id);
}

void mn_mirror_drop(const mn_mirror_object *o) {
    const mn_backend *b = o->r->inner;
    switch (o->kind) {
    case MN_MIRROR_DEVICE:
        b->device_close(o->inner);
        break;
    case MN_MIRROR_BUFFER:
        b->buffer_free(o->inner);
        break;
    case MN_MIRROR_QUEUE:
        b->queue_free(o->inner);
        break;
    case MN_MIRROR_WEIGHTS:
        b->weights_free(o->inner);
        break;
    case MN_MIRROR_PROGRAM:
        b->program_free(o->inner);
        break;
    case MN_MIRROR_CONTEXT:
        b->context_free(o->inner);
        break;
    case MN_MIRROR_LAYOUT:
        break;
    }
}

mn_mirror_object *mn_mirror_make(mn_ranks *r, mn_mirror_kind kind, bool told) {
    mn_mirror_object *o = mn_calloc(1, sizeof *o);
    pthread_mutex_lock(&r->lock);
    void *ids = r->free_ids;
    if (!o || !mn_grow(&ids, &r->cap_free, r->n_ids + 2, sizeof *r->free_ids)) {
        mn_free(o);
        return NULL;
    }
    r->free_ids = ids;
    *o = (mn_mirror_object){.r = r, .kind = kind, .id = told ? mirror_take_id(r) : 0};
    return o;
}

mn_status mn_mirror_finish(mn_mirror_object *o, mn_status st, mn_error *err) {
    mn_ranks *r = o->r;
    mn_status theirs = MN_OK;
    if (o->id)
        theirs = mn_mirror_answers(r, st ? NULL : err);
    if (st || theirs) {
        if (!st)
            mn_mirror_drop(o);
        mn_mirror_tell_free(r, o->id);
        mn_free(o);
    }
    pthread_mutex_unlock(&r->lock);
    return st ? st : theirs;
}

mn_status mn_mirror_fail_make(mn_ranks *r, mn_error *err) {
    pthread_mutex_unlock(&r->lock);
    return mn_fail_memory(err, sizeof(mn_mirror_object));
}

void mn_mirror_release(mn_mirror_object *o) {
    if (!o)
        return;
    mn_ranks *r = o->r;
    pthread_mutex_lock(&r->lock);
    mn_mirror_tell_free(r, o->id);
    mn_mirror_drop(o);
    pthread_mutex_unlock(&r->lock);
    mn_free(o);
}
