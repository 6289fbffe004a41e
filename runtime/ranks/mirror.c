/* mirror.c -- the backend of rank 0's sessions: each call is told to the other ranks, then made on
 * the member of this process. One lock holds both together, so that all ranks make the same calls
 * in the same order. What changes contents only is told without waiting; what can fail for want of
 * memory is answered by all, and the first error is everybody's.
 *
 * Objects are numbers to the others, from 1; a free one is used again. Pinned memory is rank 0's
 * alone: a copy out of it is told as a write of its bytes. Events are the member's own. */
#include "ranks/mirror.h"
#include "usual.h"
#include <stdio.h>
#include <string.h>

/* ---- discovery ------------------------------------------------------------------------------- */
static mn_status device_count(void *self, uint32_t *n, mn_error *err) {
    (void)self, (void)err;
    *n = 1;
    return MN_OK;
}

mn_status mn_ranks_device_info(const mn_ranks *r, mn_device_info *out, mn_error *err) {
    mn_device_info info = {.size = sizeof info};
    const uint32_t n = r->params.place.n_ranks;
    const mn_status st = r->inner->device_info(r->inner_self, r->params.device->index, &info, err);
    if (st)
        return st;
    char text[sizeof info.name];
    snprintf(text, sizeof text, "%u x %.50s", n, info.name);
    memcpy(info.name, text, sizeof text);
    snprintf(text, sizeof text, "%u x %.50s", n, info.uid);
    memcpy(info.uid, text, sizeof text);
    info.flags &= MN_DEVICE_ASYNC | MN_DEVICE_ORACLE;
    info.mem_free = 0;
    info.mem_gbps *= n;
    info.fp16_tflops *= n;
    info.int8_tops *= n;
    const uint32_t room = out->size;
    memcpy(out, &info, MN_MIN(room, sizeof info));
    out->size = MN_MIN(room, (uint32_t)sizeof info);
    return MN_OK;
}

static mn_status device_info(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    if (i)
        return mn_fail(err, MN_NO_DEVICE, "device %u; there is one", i);
    return mn_ranks_device_info(self, out, err);
}

/* All ranks are inside join at the same time: the others are told first, and answer last. */
static mn_status device_open(void *self, uint32_t i, const mn_open_params *params, mn_device **out,
                             mn_error *err) {
    mn_ranks *r = self;
    const mn_group *g = r->params.device->plugin->group;
    uint8_t id[MN_MAX_GROUP_ID];
    (void)i;
    (void)params; /* there is one device, whose uid is the mirror's own */
    mn_status st = g->make_id(r->inner_self, id, err);
    if (st)
        return st;
    mn_mirror_object *o = mn_mirror_make(r, MN_MIRROR_DEVICE, false);
    if (!o)
        return mn_mirror_fail_make(r, err);
    mn_mirror_begin(r, MN_SAY_JOIN);
    mn_put(&r->out, id, g->id_bytes);
    mn_mirror_end(r);
    mn_mirror_flush(r);
    mn_device *inner = NULL;
    st = g->join(r->inner_self, r->params.device->index, 0, r->params.place.n_ranks, id, &inner,
                 err);
    /* who waited in vain is told by another one why that did not come */
    const bool waited = st == MN_TIMEOUT;
    const mn_status theirs = mn_mirror_answers(r, st && !waited ? NULL : err);
    if (waited && theirs)
        st = theirs;
    o->inner = inner;
    if (st || theirs) {
        mn_mirror_begin(r, MN_SAY_CLOSE);
        mn_mirror_end(r);
        mn_mirror_flush(r);
        if (!st)
            r->inner->device_close(inner);
        mn_free(o);
    } else
        *out = (mn_device *)(void *)o;
    pthread_mutex_unlock(&r->lock);
    return st ? st : theirs;
}

static void device_close(mn_device *device) {
    mn_mirror_object *o = mn_mirror_of(device);
    if (!o)
        return;
    pthread_mutex_lock(&o->r->lock);
    mn_mirror_begin(o->r, MN_SAY_CLOSE);
    mn_mirror_end(o->r);
    mn_mirror_flush(o->r);
    for (mn_mirror_object *l = o->next, *next; l; l = next) {
        next = l->next;
        mn_mirror_give_id(o->r, l->id);
        mn_free(l);
    }
    o->r->inner->device_close(o->inner);
    pthread_mutex_unlock(&o->r->lock);
    mn_free(o);
}

/* The least free of all ranks. */
static mn_status device_memory(mn_device *device, uint64_t *free_bytes, uint64_t *total,
                               mn_error *err) {
    const mn_mirror_object *o = mn_mirror_of(device);
    mn_ranks *r = o->r;
    pthread_mutex_lock(&r->lock);
    mn_mirror_begin(r, MN_SAY_MEMORY);
    mn_mirror_end(r);
    mn_mirror_flush(r);
    mn_status st = r->inner->device_memory(o->inner, free_bytes, total, err);
    for (uint32_t k = 0; k < r->n_links; k++) {
        uint64_t now[2] = {0, 0};
        const mn_status one = mn_mirror_answer(r, &r->links[k], now, sizeof now, st ? NULL : err);
        st = st ? st : one;
        if (st)
            continue;
        *free_bytes = MN_MIN(*free_bytes, now[0]);
        *total = MN_MIN(*total, now[1]);
    }
    pthread_mutex_unlock(&r->lock);
    return st;
}

static mn_status contracts(void *self, const mn_op_contract **list, uint32_t *n, uint32_t *stride) {
    const mn_ranks *r = self;
    return r->inner->contracts(r->inner_self, list, n, stride);
}

static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *v, uint32_t stride,
                          mn_error *err) {
    return mn_mirror_of(d)->r->inner->supports(mn_mirror_of(d)->inner, c, v, stride, err);
}

static mn_status reason(void *self, uint32_t why, char *buf, uint32_t cap) {
    const mn_ranks *r = self;
    return r->inner->reason(r->inner_self, why, buf, cap);
}

/* The layouts of c->memory are objects here: *own gets those of the member, *sent the numbers that
 * the other ranks know them by. Both are freed by mn_free. False: out of memory. */
static bool translate_layouts(const mn_compile *c, mn_memory_use **own, mn_memory_use **sent) {
    const size_t bytes = sizeof **own + sizeof(mn_memory_layout);
    mn_memory_use *both[2] = {mn_alloc(c->n_memory + 1ull, bytes),
                              mn_alloc(c->n_memory + 1ull, bytes)};
    *own = both[0];
    *sent = both[1];
    for (uint32_t k = 0; k < 2 && both[0] && both[1]; k++) {
        mn_memory_layout *layouts = (mn_memory_layout *)(void *)(both[k] + c->n_memory);
        for (uint32_t i = 0; i < c->n_memory; i++) {
            both[k][i] = c->memory[i];
            if (!c->memory[i].layout)
                continue;
            const mn_mirror_object *o =
                mn_mirror_of((const void *)(uintptr_t)c->memory[i].layout->cookie);
            layouts[i] = o->kept;
            if (k)
                layouts[i].cookie = o->id;
            both[k][i].layout = &layouts[i];
        }
    }
    return both[0] && both[1];
}

/* As the member understands it, in sealed pages; the graph is the host's. told: as the other ranks
 * do, with pointers into the sealed pages and into *sent. NULL: out of memory. */
static const mn_compile *inner_compile(const mn_compile *c, mn_sealed **pages, mn_compile *told,
                                       mn_memory_use **sent, mn_error *err) {
    mn_memory_use *own;
    mn_compile in = {0};
    const mn_compile *given = NULL;
    *pages = NULL;
    memcpy(&in, c, MN_MIN(c->size, sizeof in));
    in.size = sizeof in;
    in.weights = c->weights ? mn_mirror_of(c->weights)->inner : NULL;
    in.cache = (mn_str){NULL, 0};
    if (translate_layouts(c, &own, sent)) {
        in.memory = own;
        in.memory_stride = sizeof *own;
        given = mn_given_compile(&in, pages);
        *told = in;
        told->memory = *sent;
    }
    mn_free(own);
    if (given)
        return given;
    mn_free(*sent);
    *sent = NULL;
    mn_fail_memory(err, sizeof in);
    return NULL;
}

static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    mn_sealed *pages;
    mn_memory_use *sent;
    mn_compile told;
    const mn_compile *in = inner_compile(c, &pages, &told, &sent, err);
    mn_status st = MN_OUT_OF_MEMORY;
    if (in)
        st = mn_mirror_of(d)->r->inner->estimate(mn_mirror_of(d)->inner, in, out, err);
    mn_sealed_free(pages);
    mn_free(sent);
    return st;
}

/* ---- memory and queues ----------------------------------------------------------------------- */
static mn_status alloc(mn_device *d, const mn_alloc_params *a, mn_buffer **out, mn_error *err) {
    mn_ranks *r = mn_mirror_of(d)->r;
    const bool pinned = a->kind == MN_MEM_HOST_PINNED;
    mn_buffer *inner = NULL;
    void *map = NULL;
    mn_mirror_object *o = mn_mirror_make(r, MN_MIRROR_BUFFER, !pinned);
    if (!o)
        return mn_mirror_fail_make(r, err);
    if (!pinned) {
        mn_mirror_begin(r, MN_SAY_ALLOC);
        mn_put_u32(&r->out, o->id);
        mn_put_u32(&r->out, a->kind);
        mn_put_u64(&r->out, a->bytes);
        mn_put_u64(&r->out, a->align);
        mn_put_u64(&r->out, a->flags);
        mn_mirror_end(r);
        mn_mirror_flush(r);
    }
    mn_status st = r->inner->alloc(mn_mirror_of(d)->inner, a, &inner, err);
    o->inner = inner;
    if (!st && pinned) {
        st = r->inner->map(inner, &map, err);
        o->pinned = map;
        if (st)
            mn_mirror_drop(o);
    }
    *out = (mn_buffer *)(void *)o;
    return mn_mirror_finish(o, st, err);
}

static void buffer_free(mn_buffer *b) {
    mn_mirror_release(mn_mirror_of(b));
}

static mn_status map(mn_buffer *b, void **out, mn_error *err) {
    if (!mn_mirror_of(b)->pinned)
        return mn_fail(err, MN_UNSUPPORTED, "memory of several processes cannot be mapped");
    *out = mn_mirror_of(b)->pinned;
    return MN_OK;
}

static mn_status queue_create(mn_device *d, const mn_queue_params *params, mn_queue **out,
                              mn_error *err) {
    mn_ranks *r = mn_mirror_of(d)->r;
    mn_queue *inner = NULL;
    mn_mirror_object *o = mn_mirror_make(r, MN_MIRROR_QUEUE, true);
    if (!o)
        return mn_mirror_fail_make(r, err);
    mn_mirror_begin(r, MN_SAY_QUEUE);
    mn_put_u32(&r->out, o->id);
    mn_put_u32(&r->out, params->flags);
    mn_put_u32(&r->out, (uint32_t)params->priority);
    mn_mirror_end(r);
    mn_mirror_flush(r);
    const mn_status st = r->inner->queue_create(mn_mirror_of(d)->inner, params, &inner, err);
    o->inner = inner;
    *out = (mn_queue *)(void *)o;
    return mn_mirror_finish(o, st, err);
}

static void queue_free(mn_queue *q) {
    mn_mirror_release(mn_mirror_of(q));
}

/* The lock is held. */
static void put_write(mn_ranks *r, const mn_queue *q, const mn_buffer *to, uint64_t at,
                      const void *bytes, uint64_t n) {
    mn_mirror_begin(r, MN_SAY_WRITE);
    mn_put_u32(&r->out, mn_mirror_of(q)->id);
    mn_put_u32(&r->out, mn_mirror_of(to)->id);
    mn_put_u64(&r->out, at);
    mn_put_bytes(&r->out, bytes, n);
    mn_mirror_end(r);
}

static void flush_some(mn_ranks *r) {
    if (r->out.len > (1u << 20))
        mn_mirror_flush(r);
}

/* Inputs of a step: a few kilobytes, which go with the step. */
static mn_status write_all(mn_queue *q, mn_buffer *to, uint64_t at, const void *bytes, uint64_t n,
                           mn_error *err) {
    mn_ranks *r = mn_mirror_of(q)->r;
    pthread_mutex_lock(&r->lock);
    /* before the call: the member's plugin might write into what it is given */
    r->frame_at = r->out.len;
    if (mn_mirror_of(to)->id)
        put_write(r, q, to, at, bytes, n);
    const mn_status st =
        r->inner->write(mn_mirror_of(q)->inner, mn_mirror_of(to)->inner, at, bytes, n, err);
    if (st)
        mn_mirror_forget(r);
    else
        flush_some(r);
    pthread_mutex_unlock(&r->lock);
    return st;
}

/* Results are the same on all members. */
static mn_status read_here(mn_queue *q, const mn_buffer *from, uint64_t at, mn_buffer *to,
                           uint64_t to_at, uint64_t n, mn_event **event, mn_error *err) {
    mn_ranks *r = mn_mirror_of(q)->r;
    pthread_mutex_lock(&r->lock);
    const mn_status st = r->inner->read(mn_mirror_of(q)->inner, mn_mirror_of(from)->inner, at,
                                        mn_mirror_of(to)->inner, to_at, n, event, err);
    pthread_mutex_unlock(&r->lock);
    return st;
}

/* Its source does not change before the queue reads it, if it is the host's. */
static mn_status copy_all(mn_queue *q, mn_buffer *to, uint64_t at, const mn_buffer *from,
                          uint64_t from_at, uint64_t n, mn_event **event, mn_error *err) {
    mn_ranks *r = mn_mirror_of(q)->r;
    pthread_mutex_lock(&r->lock);
    const mn_status st = r->inner->copy(mn_mirror_of(q)->inner, mn_mirror_of(to)->inner, at,
                                        mn_mirror_of(from)->inner, from_at, n, event, err);
    if (!st && mn_mirror_of(to)->id && mn_mirror_of(from)->pinned) {
        put_write(r, q, to, at, mn_mirror_of(from)->pinned + from_at, n);
        flush_some(r);
    } else if (!st && mn_mirror_of(to)->id) {
        mn_mirror_begin(r, MN_SAY_COPY);
        mn_put_u32(&r->out, mn_mirror_of(q)->id);
        mn_put_u32(&r->out, mn_mirror_of(to)->id);
        mn_put_u64(&r->out, at);
        mn_put_u32(&r->out, mn_mirror_of(from)->id);
        mn_put_u64(&r->out, from_at);
        mn_put_u64(&r->out, n);
        mn_mirror_end(r);
    }
    pthread_mutex_unlock(&r->lock);
    return st;
}

static mn_status queue_wait(mn_queue *q, mn_event *event, mn_error *err) {
    mn_ranks *r = mn_mirror_of(q)->r;
    pthread_mutex_lock(&r->lock);
    const mn_status st = r->inner->queue_wait(mn_mirror_of(q)->inner, event, err);
    mn_mirror_begin(r, MN_SAY_WAIT);
    mn_put_u32(&r->out, mn_mirror_of(q)->id);
    mn_mirror_end(r);
    pthread_mutex_unlock(&r->lock);
    return st;
}

/* ---- weights --------------------------------------------------------------------------------- */
static mn_status weights_open(mn_device *d, const mn_compile *c, mn_weights **out, mn_error *err) {
    mn_ranks *r = mn_mirror_of(d)->r;
    mn_sealed *pages;
    mn_memory_use *sent;
    mn_compile told;
    const mn_compile *in = inner_compile(c, &pages, &told, &sent, err);
    mn_weights *inner = NULL;
    if (!in)
        return MN_OUT_OF_MEMORY;
    mn_mirror_object *o = mn_mirror_make(r, MN_MIRROR_WEIGHTS, true);
    if (!o) {
        mn_sealed_free(pages);
        mn_free(sent);
        return mn_mirror_fail_make(r, err);
    }
    mn_mirror_begin(r, MN_SAY_WEIGHTS);
    mn_put_u32(&r->out, o->id);
    mn_put_compile(&r->out, &told);
    mn_free(sent);
    mn_mirror_end(r);
    mn_mirror_flush(r);
    const mn_status st = r->inner->weights_open(mn_mirror_of(d)->inner, in, &inner, err);
    mn_sealed_free(pages);
    o->inner = inner;
    *out = (mn_weights *)(void *)o;
    return mn_mirror_finish(o, st, err);
}

/* Where the bytes are, not the bytes: each rank reads its own files. */
static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **event,
                             mn_error *err) {
    mn_ranks *r = mn_mirror_of(q)->r;
    pthread_mutex_lock(&r->lock);
    mn_mirror_begin(r, MN_SAY_PUT);
    mn_put_u32(&r->out, mn_mirror_of(w)->id);
    mn_put_u32(&r->out, mn_mirror_of(q)->id);
    mn_status st = mn_put_weight(&r->out, r->params.files, src, err);
    mn_mirror_end(r);
    if (st)
        mn_mirror_forget(r);
    else
        mn_mirror_flush(r);
    if (!st)
        st = r->inner->weights_put(mn_mirror_of(w)->inner, mn_mirror_of(q)->inner, src, event, err);
    pthread_mutex_unlock(&r->lock);
    return st;
}

static mn_status weights_seal(mn_weights *w, mn_queue *q, uint32_t *kept_how, mn_error *err) {
    mn_ranks *r = mn_mirror_of(w)->r;
    pthread_mutex_lock(&r->lock);
    mn_mirror_begin(r, MN_SAY_SEAL);
    mn_put_u32(&r->out, mn_mirror_of(w)->id);
    mn_put_u32(&r->out, mn_mirror_of(q)->id);
    mn_mirror_end(r);
    mn_mirror_flush(r);
    const mn_status st =
        r->inner->weights_seal(mn_mirror_of(w)->inner, mn_mirror_of(q)->inner, kept_how, err);
    const mn_status theirs = mn_mirror_answers(r, st ? NULL : err);
    pthread_mutex_unlock(&r->lock);
    return st ? st : theirs;
}

static void weights_free(mn_weights *w) {
    mn_mirror_release(mn_mirror_of(w));
}

/* ---- the cache of keys and values ------------------------------------------------------------ */
/* The layouts of all ranks have pages of one size: the largest share. Their own cookies stay with
 * them; ours is the object, which lives as long as the group. */
static mn_status check_layouts(mn_ranks *r, const mn_memory_layout *own, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t k = 0; k < r->n_links; k++) {
        uint64_t found[2] = {0, 0};
        const mn_status one =
            mn_mirror_answer(r, &r->links[k], found, sizeof found, st ? NULL : err);
        st = st ? st : one;
        if (!st && (found[0] != own->page_tokens || found[1] != own->page_bytes))
            st = mn_fail(err, MN_INVALID, "rank %u has other pages than rank 0", k + 1);
    }
    return st;
}

static mn_status memory_layout(mn_device *d, const mn_compile *c, uint32_t group,
                               mn_memory_layout *out, mn_error *err) {
    mn_ranks *r = mn_mirror_of(d)->r;
    mn_sealed *pages;
    mn_memory_use *sent;
    mn_compile told;
    const mn_compile *in = inner_compile(c, &pages, &told, &sent, err);
    if (!in)
        return MN_OUT_OF_MEMORY;
    mn_mirror_object *o = mn_mirror_make(r, MN_MIRROR_LAYOUT, true);
    if (!o) {
        mn_sealed_free(pages);
        mn_free(sent);
        return mn_mirror_fail_make(r, err);
    }
    mn_mirror_begin(r, MN_SAY_LAYOUT);
    mn_put_u32(&r->out, o->id);
    mn_put_u32(&r->out, group);
    mn_put_compile(&r->out, &told);
    mn_free(sent);
    mn_mirror_end(r);
    mn_mirror_flush(r);
    o->kept.size = sizeof o->kept;
    mn_status st = r->inner->memory_layout(mn_mirror_of(d)->inner, in, group, &o->kept, err);
    mn_sealed_free(pages);
    const mn_status theirs = check_layouts(r, &o->kept, st ? NULL : err);
    st = st ? st : theirs;
    if (st) {
        mn_mirror_tell_free(r, o->id);
        mn_free(o);
    } else {
        mn_memory_layout all = o->kept;
        const uint32_t room = out->size;
        all.cookie = (uint64_t)(uintptr_t)o;
        all.size = MN_MIN(room, (uint32_t)sizeof all);
        memcpy(out, &all, all.size);
        o->next = mn_mirror_of(d)->next;
        mn_mirror_of(d)->next = o;
    }
    pthread_mutex_unlock(&r->lock);
    return st;
}

static mn_status memory_copy(mn_queue *q, mn_buffer *kv, const mn_memory_layout *layout,
                             const mn_page_copy *copies, uint32_t n, uint32_t stride,
                             mn_event **event, mn_error *err) {
    mn_ranks *r = mn_mirror_of(q)->r;
    mn_mirror_object *l = mn_mirror_of((const void *)(uintptr_t)layout->cookie);
    pthread_mutex_lock(&r->lock);
    mn_mirror_begin(r, MN_SAY_PAGES);
    mn_put_u32(&r->out, mn_mirror_of(q)->id);
    mn_put_u32(&r->out, mn_mirror_of(kv)->id);
    mn_put_u32(&r->out, l->id);
    mn_put_u32(&r->out, n);
    for (uint32_t i = 0; i < n; i++)
        mn_put(&r->out, (const char *)copies + (size_t)i * stride, sizeof *copies);
    mn_mirror_end(r);
    const mn_memory_layout own = l->kept; /* of this call */
    const mn_status st = r->inner->memory_copy(mn_mirror_of(q)->inner, mn_mirror_of(kv)->inner,
                                               &own, copies, n, stride, event, err);
    if (st)
        mn_mirror_forget(r);
    pthread_mutex_unlock(&r->lock);
    return st;
}

/* ---- programs -------------------------------------------------------------------------------- */
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    mn_ranks *r = mn_mirror_of(d)->r;
    mn_sealed *pages;
    mn_memory_use *sent;
    mn_compile told;
    const mn_compile *in = inner_compile(c, &pages, &told, &sent, err);
    mn_program *inner = NULL;
    if (!in)
        return MN_OUT_OF_MEMORY;
    mn_mirror_object *o = mn_mirror_make(r, MN_MIRROR_PROGRAM, true);
    if (!o) {
        mn_sealed_free(pages);
        mn_free(sent);
        return mn_mirror_fail_make(r, err);
    }
    o->n_symbols = c->graph->n_symbols;
    mn_mirror_begin(r, MN_SAY_COMPILE);
    mn_put_u32(&r->out, o->id);
    mn_put_u32(&r->out, c->weights ? mn_mirror_of(c->weights)->id : 0);
    mn_put_compile(&r->out, &told);
    mn_free(sent);
    mn_mirror_end(r);
    mn_mirror_flush(r);
    const mn_status st = r->inner->compile(mn_mirror_of(d)->inner, in, &inner, err);
    mn_sealed_free(pages);
    o->inner = inner;
    *out = (mn_program *)(void *)o;
    return mn_mirror_finish(o, st, err);
}

static void program_free(mn_program *p) {
    mn_mirror_release(mn_mirror_of(p));
}

static mn_status context_create(mn_program *p, const mn_context_params *params, mn_context **out,
                                mn_error *err) {
    mn_ranks *r = mn_mirror_of(p)->r;
    mn_context *inner = NULL;
    mn_mirror_object *o = mn_mirror_make(r, MN_MIRROR_CONTEXT, true);
    if (!o)
        return mn_mirror_fail_make(r, err);
    o->n_symbols = mn_mirror_of(p)->n_symbols;
    mn_mirror_begin(r, MN_SAY_CONTEXT);
    mn_put_u32(&r->out, o->id);
    mn_put_u32(&r->out, mn_mirror_of(p)->id);
    mn_put_u32(&r->out, mn_mirror_of(params->queue)->id);
    mn_mirror_end(r);
    mn_mirror_flush(r);
    const mn_status st = mn_usual_context(r->inner, mn_mirror_of(p)->inner,
                                          mn_mirror_of(params->queue)->inner, &inner, err);
    o->inner = inner;
    *out = (mn_context *)(void *)o;
    return mn_mirror_finish(o, st, err);
}

/* The bindings with the member's buffers; NULL: out of memory, or pinned memory is among them. */
static mn_binding *inner_bindings(mn_ranks *r, const mn_binding *given, uint32_t n,
                                  uint32_t stride) {
    mn_binding *all = mn_calloc(n + 1, sizeof *all);
    for (uint32_t i = 0; all && i < n; i++) {
        memcpy(&all[i], (const char *)given + (size_t)i * stride, sizeof *all);
        const mn_mirror_object *buffer = mn_mirror_of(all[i].buffer);
        if (!buffer->id) {
            mn_free(all);
            return NULL;
        }
        const uint32_t plain[] = {all[i].tensor, all[i].flags, buffer->id};
        mn_put(&r->out, plain, sizeof plain);
        mn_put_u64(&r->out, all[i].offset);
        mn_put_u64(&r->out, all[i].bytes);
        all[i].buffer = buffer->inner;
    }
    return all;
}

static mn_status context_bind(mn_context *ctx, uint32_t set, const mn_binding *given, uint32_t n,
                              uint32_t stride, mn_error *err) {
    mn_ranks *r = mn_mirror_of(ctx)->r;
    pthread_mutex_lock(&r->lock);
    mn_mirror_begin(r, MN_SAY_BIND);
    mn_put_u32(&r->out, mn_mirror_of(ctx)->id);
    mn_put_u32(&r->out, set);
    mn_put_u32(&r->out, n);
    mn_binding *all = inner_bindings(r, given, n, stride);
    mn_status st = MN_OK;
    if (!all) {
        mn_mirror_forget(r);
        st = mn_fail(err, MN_UNSUPPORTED, "host memory cannot be bound on several ranks");
    } else {
        mn_mirror_end(r);
        mn_mirror_flush(r);
        st = r->inner->context_bind(mn_mirror_of(ctx)->inner, set, all, n, sizeof *all,
                                    err); /* a copy */
        const mn_status theirs = mn_mirror_answers(r, st ? NULL : err);
        st = st ? st : theirs;
    }
    pthread_mutex_unlock(&r->lock);
    mn_free(all);
    return st;
}

/* A step, or the making of one. Its wishes stay here: a deadline that one rank keeps and another
 * does not would let members wait for each other in different steps. */
static void tell_step(const mn_mirror_object *ctx, uint32_t say, const mn_step *step) {
    mn_ranks *r = ctx->r;
    mn_mirror_begin(r, say);
    mn_put_u32(&r->out, ctx->id);
    mn_put_u32(&r->out, step->set);
    mn_put(&r->out, step->values, ctx->n_symbols * sizeof *step->values);
    mn_mirror_end(r);
    mn_mirror_flush(r);
}

static mn_status context_prepare(mn_context *ctx, const mn_step *step, mn_error *err) {
    const mn_mirror_object *o = mn_mirror_of(ctx);
    mn_ranks *r = o->r;
    pthread_mutex_lock(&r->lock);
    tell_step(o, MN_SAY_PREPARE, step);
    const mn_status st = mn_usual_prepare(r->inner, o->inner, step->set, step->values, err);
    const mn_status theirs = mn_mirror_answers(r, st ? NULL : err);
    pthread_mutex_unlock(&r->lock);
    return st ? st : theirs;
}

/* Words of one process are not seen by another. */
static mn_status check_step(const mn_step *step, mn_error *err) {
    if (!step->flags && !step->n_waits && !step->n_signals)
        return MN_OK;
    return mn_fail(err, MN_UNSUPPORTED, "a step of several processes with flags or words");
}

/* The step is under way on the others before it begins here, since members wait for each other in
 * it. */
static mn_status execute(mn_context *ctx, const mn_step *step, mn_event **event, mn_error *err) {
    const mn_mirror_object *o = mn_mirror_of(ctx);
    mn_ranks *r = o->r;
    mn_status st = check_step(step, err);
    if (st)
        return st;
    pthread_mutex_lock(&r->lock);
    tell_step(o, MN_SAY_EXECUTE, step);
    st = r->broken ? mn_mirror_fail_broken(r, err) : MN_OK;
    if (!st)
        st = mn_usual_execute(r->inner, o->inner, step->set, step->values, event, err);
    pthread_mutex_unlock(&r->lock);
    return st;
}

/* The others execute as ever. */
static mn_status profile(mn_context *ctx, const mn_step *step, mn_profile_unit *units,
                         uint32_t stride, uint32_t *n, mn_error *err) {
    const mn_mirror_object *o = mn_mirror_of(ctx);
    mn_ranks *r = o->r;
    const mn_profile *p = r->params.device->plugin->profile;
    mn_status st = check_step(step, err);
    if (st)
        return st;
    pthread_mutex_lock(&r->lock);
    if (units)
        tell_step(o, MN_SAY_EXECUTE, step);
    st = mn_usual_profile(p, o->inner, step->set, step->values, units, stride, n, err);
    pthread_mutex_unlock(&r->lock);
    return st;
}

static void context_free(mn_context *c) {
    mn_mirror_release(mn_mirror_of(c));
}

/* ---- the table ------------------------------------------------------------------------------- */
/* What the plugin does not have, the mirror does not have. */
static void fill_table(mn_ranks *r) {
    const mn_backend *b = r->inner;
    r->mirror = (mn_backend){.size = sizeof r->mirror,
                             .device_count = device_count,
                             .device_info = device_info,
                             .device_open = device_open,
                             .device_close = device_close,
                             .contracts = contracts,
                             .supports = supports,
                             .estimate = estimate,
                             .alloc = alloc,
                             .buffer_free = buffer_free,
                             .map = map,
                             .queue_create = queue_create,
                             .queue_free = queue_free,
                             .write = write_all,
                             .read = read_here,
                             .copy = copy_all,
                             .wait = b->wait,
                             .queue_wait = queue_wait,
                             .event_free = b->event_free,
                             .weights_open = weights_open,
                             .weights_put = weights_put,
                             .weights_seal = weights_seal,
                             .weights_free = weights_free,
                             .memory_layout = memory_layout,
                             .memory_copy = memory_copy,
                             .compile = compile,
                             .program_free = program_free,
                             .context_create = context_create,
                             .context_bind = context_bind,
                             .execute = execute,
                             .context_free = context_free};
    if (MN_HAS(mn_backend, b, device_memory))
        r->mirror.device_memory = device_memory;
    if (MN_HAS(mn_backend, b, reason))
        r->mirror.reason = reason;
    if (MN_HAS(mn_backend, b, context_prepare))
        r->mirror.context_prepare = context_prepare;
    r->mirror_profile = (mn_profile){.size = sizeof r->mirror_profile, .execute = profile};
}

void mn_mirror_init(mn_ranks *r) {
    const mn_plugin_record *p = r->params.device->plugin;
    r->inner = p->backend;
    r->inner_self = p->plugin->self;
    fill_table(r);
    r->mirror_plugin = *p->plugin;
    r->mirror_plugin.self = r;
    r->record = *p;
    r->record.plugin = &r->mirror_plugin;
    r->record.backend = &r->mirror;
    r->record.profile = p->profile ? &r->mirror_profile : NULL;
    r->record.loader = NULL;
    r->record.group = NULL;
}
