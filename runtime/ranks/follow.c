/* follow.c -- the ranks that follow: they make the calls that rank 0 tells, on their own member,
 * with weights from their own files. What rank 0 waits for is answered; an error of anything else
 * ends the group, for this rank has fallen behind. Objects are freed when the work that may use
 * them is over: the last event of each queue tells. */
#include "ranks/ranks_impl.h"
#include "usual.h"
#include <string.h>

typedef enum { NOTHING, BUFFER, QUEUE, WEIGHTS, LAYOUT, PROGRAM, CONTEXT } object_kind;
/* A segment that rank 0 tells of, in sealed pages. */
typedef struct {
    const mn_compile *compile;
    mn_sealed *graph, *pages;
} question;
typedef struct {
    object_kind kind;
    void *what;
    question ask;   /* of weights and programs */
    mn_arena arena; /* bytes of weights that came with messages */
    mn_event *last; /* of a queue */
    uint32_t queue; /* of a context */
    uint32_t n_symbols;
    mn_memory_layout layout;
} object;

enum { MAX_OBJECTS = 1 << 20 };
typedef struct {
    mn_ranks *r;
    const mn_plugin_record *plugin;
    const mn_backend *b;
    void *self;
    mn_device *device;
    object *objects;
    size_t n, cap;
    mn_reader in;
    mn_frame *frame; /* that is being done */
    mn_error err;
} follower;

/* ---- objects --------------------------------------------------------------------------------- */
static mn_status fail_message(follower *f, const char *what) {
    return mn_fail(&f->err, MN_BAD_INPUT, "%s: %s is not there", mn_say_name(f->frame->say), what);
}

/* The next number of the message, as an object of that kind; NULL: it is none. */
static object *follower_take(follower *f, object_kind kind) {
    const uint32_t id = mn_take_u32(&f->in);
    object *o = id < f->n ? &f->objects[id] : NULL;
    return o && o->kind == kind ? o : NULL;
}

/* A place for the next number; NULL: it is in use, or out of memory. Moves the others. */
static object *follower_place(follower *f) {
    const uint32_t id = mn_take_u32(&f->in);
    void *all = f->objects;
    if (!id || id > MAX_OBJECTS || !mn_grow(&all, &f->cap, id + 1, sizeof *f->objects))
        return NULL;
    f->objects = all;
    if (id >= f->n) {
        memset(f->objects + f->n, 0, (id + 1 - f->n) * sizeof *f->objects);
        f->n = id + 1;
    }
    return f->objects[id].kind == NOTHING ? &f->objects[id] : NULL;
}

/* All that was enqueued is over. */
static mn_status follower_settle(follower *f) {
    mn_status st = MN_OK;
    for (size_t i = 0; i < f->n; i++) {
        object *q = &f->objects[i];
        if (q->kind != QUEUE || !q->last)
            continue;
        do
            st = f->b->wait(q->last, UINT64_C(1000000000), &f->err);
        while (MN_STATUS_CLASS(st) == MN_CLASS_TRANSIENT && !f->r->broken);
        f->b->event_free(q->last);
        q->last = NULL;
    }
    return st;
}

static void free_question(question *q) {
    mn_sealed_free(q->graph);
    mn_sealed_free(q->pages);
}

static void follower_drop(follower *f, object *o) {
    switch (o->kind) {
    case BUFFER:
        f->b->buffer_free(o->what);
        break;
    case QUEUE:
        f->b->queue_free(o->what);
        break;
    case WEIGHTS:
        f->b->weights_free(o->what);
        break;
    case PROGRAM:
        f->b->program_free(o->what);
        break;
    case CONTEXT:
        f->b->context_free(o->what);
        break;
    case LAYOUT:
    case NOTHING:
        break;
    }
    mn_arena_free(&o->arena);
    free_question(&o->ask);
    *o = (object){.kind = NOTHING};
}

/* What rank 0 has left when it closes the device: layouts; all, if it breaks off. */
static void follower_close_device(follower *f) {
    static const object_kind order[] = {CONTEXT, PROGRAM, WEIGHTS, BUFFER, LAYOUT, QUEUE};
    follower_settle(f);
    for (size_t k = 0; k < MN_COUNT(order); k++)
        for (size_t i = 0; i < f->n; i++)
            if (f->objects[i].kind == order[k])
                follower_drop(f, &f->objects[i]);
    if (f->device)
        f->b->device_close(f->device);
    f->device = NULL;
}

/* ---- what is told ---------------------------------------------------------------------------- */
static mn_status do_join(follower *f, mn_text *more) {
    const mn_ranks_params *p = &f->r->params;
    uint8_t id[MN_MAX_GROUP_ID] = {0};
    mn_device *device = NULL;
    (void)more;
    mn_take(&f->in, id, f->plugin->group->id_bytes);
    if (f->device)
        return mn_fail(&f->err, MN_INVALID, "the group is open");
    const mn_status st = f->plugin->group->join(f->self, p->device->index, p->place.rank,
                                                p->place.n_ranks, id, &device, &f->err);
    f->device = st ? NULL : device;
    return st;
}

static mn_status do_close(follower *f, mn_text *more) {
    (void)more;
    follower_close_device(f);
    return MN_OK;
}

static mn_status do_memory(follower *f, mn_text *more) {
    uint64_t free_bytes = 0;
    uint64_t total = 0;
    const mn_status st = f->b->device_memory(f->device, &free_bytes, &total, &f->err);
    mn_put_u64(more, free_bytes);
    mn_put_u64(more, total);
    return st;
}

/* What was enqueued may still use it. */
static mn_status do_free(follower *f, mn_text *more) {
    const uint32_t id = mn_take_u32(&f->in);
    (void)more;
    if (id >= f->n || f->objects[id].kind == NOTHING)
        return MN_OK;
    const mn_status st = follower_settle(f);
    follower_drop(f, &f->objects[id]);
    return st;
}

static mn_status do_alloc(follower *f, mn_text *more) {
    object *o = follower_place(f);
    mn_alloc_params want = {.size = sizeof want};
    want.kind = mn_take_u32(&f->in);
    want.bytes = mn_take_u64(&f->in);
    want.align = mn_take_u64(&f->in);
    want.flags = mn_take_u64(&f->in);
    mn_buffer *buffer = NULL;
    (void)more;
    if (!o)
        return fail_message(f, "a place");
    const mn_status st = f->b->alloc(f->device, &want, &buffer, &f->err);
    if (!st)
        *o = (object){.kind = BUFFER, .what = buffer};
    return st;
}

static mn_status do_queue(follower *f, mn_text *more) {
    object *o = follower_place(f);
    mn_queue_params params = {.size = sizeof params};
    params.flags = mn_take_u32(&f->in);
    params.priority = (int32_t)mn_take_u32(&f->in);
    mn_queue *queue = NULL;
    (void)more;
    if (!o)
        return fail_message(f, "a place");
    const mn_status st = f->b->queue_create(f->device, &params, &queue, &f->err);
    if (!st)
        *o = (object){.kind = QUEUE, .what = queue};
    return st;
}

static mn_status do_write(follower *f, mn_text *more) {
    const object *q = follower_take(f, QUEUE);
    const object *to = follower_take(f, BUFFER);
    const uint64_t at = mn_take_u64(&f->in);
    const mn_str bytes = mn_take_bytes(&f->in);
    (void)more;
    if (!q || !to)
        return fail_message(f, "a queue or a buffer");
    return f->b->write(q->what, to->what, at, bytes.ptr, bytes.len, &f->err);
}

static mn_status do_copy(follower *f, mn_text *more) {
    const object *q = follower_take(f, QUEUE);
    const object *to = follower_take(f, BUFFER);
    const uint64_t at = mn_take_u64(&f->in);
    const object *from = follower_take(f, BUFFER);
    const uint64_t from_at = mn_take_u64(&f->in);
    const uint64_t n = mn_take_u64(&f->in);
    (void)more;
    if (!q || !to || !from)
        return fail_message(f, "a queue or a buffer");
    return f->b->copy(q->what, to->what, at, from->what, from_at, n, NULL, &f->err);
}

static mn_status do_wait(follower *f, mn_text *more) {
    (void)more;
    return follower_settle(f);
}

/* A segment out of the message, in sealed pages: *q is the caller's, also after an error. */
/* The layouts that the message names, in place of their names. */
static mn_status own_layouts(follower *f, const mn_compile *c) {
    for (uint32_t i = 0; i < c->n_memory; i++) {
        const mn_memory_layout *named = c->memory[i].layout;
        if (!named)
            continue;
        if (named->cookie >= f->n || f->objects[named->cookie].kind != LAYOUT)
            return fail_message(f, "a layout");
        ((mn_memory_use *)c->memory)[i].layout = &f->objects[named->cookie].layout;
    }
    return MN_OK;
}

static mn_status take_question(follower *f, mn_weights *weights, question *q) {
    mn_arena arena = {0};
    mn_compile c;
    *q = (question){0};
    mn_status st = mn_take_compile(&f->in, &arena, &c, &f->err);
    if (!st)
        st = own_layouts(f, &c);
    if (!st)
        c.graph = mn_given_graph(c.graph, &q->graph);
    c.weights = weights;
    if (!st && c.graph)
        q->compile = mn_given_compile(&c, &q->pages);
    if (!st && !q->compile)
        st = mn_fail_memory(&f->err, sizeof c);
    mn_arena_free(&arena);
    return st;
}

static mn_status do_weights(follower *f, mn_text *more) {
    object *o = follower_place(f);
    question ask;
    mn_weights *weights = NULL;
    (void)more;
    if (!o)
        return fail_message(f, "a place");
    mn_status st = take_question(f, NULL, &ask);
    if (!st)
        st = f->b->weights_open(f->device, ask.compile, &weights, &f->err);
    if (st) {
        free_question(&ask);
        return st;
    }
    *o = (object){.kind = WEIGHTS, .what = weights, .ask = ask};
    return MN_OK;
}

/* Bytes that came with the message live as long as the set: its plugin may keep weights where they
 * are. */
static mn_status do_put(follower *f, mn_text *more) {
    object *w = follower_take(f, WEIGHTS);
    const object *q = follower_take(f, QUEUE);
    mn_weight_src src;
    mn_event *event = NULL;
    (void)more;
    if (!w || !q)
        return fail_message(f, "a set of weights or a queue");
    mn_status st = mn_take_weight(&f->in, f->r->params.files, &w->arena, &src, &f->err);
    if (!st)
        st = f->b->weights_put(w->what, q->what, &src, &event, &f->err);
    while (!st && event && !f->r->broken) {
        st = f->b->wait(event, UINT64_C(1000000000), &f->err);
        if (MN_STATUS_CLASS(st) != MN_CLASS_TRANSIENT)
            break;
        st = MN_OK;
    }
    f->b->event_free(event);
    return st;
}

static mn_status do_seal(follower *f, mn_text *more) {
    const object *w = follower_take(f, WEIGHTS);
    const object *q = follower_take(f, QUEUE);
    uint32_t kept_how = 0;
    (void)more;
    if (!w || !q)
        return fail_message(f, "a set of weights or a queue");
    return f->b->weights_seal(w->what, q->what, &kept_how, &f->err);
}

static mn_status do_layout(follower *f, mn_text *more) {
    object *o = follower_place(f);
    const uint32_t group = mn_take_u32(&f->in);
    mn_memory_layout layout = {.size = sizeof layout};
    question ask;
    if (!o)
        return fail_message(f, "a place");
    mn_status st = take_question(f, NULL, &ask);
    if (!st)
        st = f->b->memory_layout(f->device, ask.compile, group, &layout, &f->err);
    free_question(&ask);
    mn_put_u64(more, layout.page_tokens);
    mn_put_u64(more, layout.page_bytes);
    if (!st)
        *o = (object){.kind = LAYOUT, .layout = layout};
    return st;
}

static mn_status do_pages(follower *f, mn_text *more) {
    const object *q = follower_take(f, QUEUE);
    const object *kv = follower_take(f, BUFFER);
    const object *l = follower_take(f, LAYOUT);
    const uint32_t n = mn_take_u32(&f->in);
    (void)more;
    if (!q || !kv || !l || n > (uint64_t)(f->in.end - f->in.at) / sizeof(mn_page_copy))
        return fail_message(f, "a queue, a buffer or a layout");
    mn_page_copy *copies = mn_alloc(n + 1, sizeof *copies);
    if (!copies)
        return mn_fail_memory(&f->err, n * sizeof *copies);
    mn_take(&f->in, copies, n * sizeof *copies);
    const mn_memory_layout layout = l->layout; /* of this call */
    const mn_status st =
        f->b->memory_copy(q->what, kv->what, &layout, copies, n, sizeof *copies, NULL, &f->err);
    mn_free(copies);
    return st;
}

/* The graph stays with the program. */
static mn_status do_compile(follower *f, mn_text *more) {
    object *o = follower_place(f);
    const uint32_t weights = mn_take_u32(&f->in);
    question ask;
    mn_program *program = NULL;
    (void)more;
    if (!o || (weights && (weights >= f->n || f->objects[weights].kind != WEIGHTS)))
        return fail_message(f, "a place or a set of weights");
    mn_weights *set = weights ? f->objects[weights].what : NULL;
    mn_status st = take_question(f, set, &ask);
    if (!st)
        st = f->b->compile(f->device, ask.compile, &program, &f->err);
    if (st) {
        free_question(&ask);
        return st;
    }
    *o = (object){.kind = PROGRAM, .what = program, .ask = ask};
    o->n_symbols = ask.compile->graph->n_symbols;
    return MN_OK;
}

static mn_status do_context(follower *f, mn_text *more) {
    object *o = follower_place(f);
    const object *p = follower_take(f, PROGRAM);
    const object *q = follower_take(f, QUEUE);
    mn_context *context = NULL;
    (void)more;
    if (!o || !p || !q)
        return fail_message(f, "a place, a program or a queue");
    const mn_status st = mn_usual_context(f->b, p->what, q->what, &context, &f->err);
    if (!st)
        *o = (object){.kind = CONTEXT,
                      .what = context,
                      .queue = (uint32_t)(q - f->objects),
                      .n_symbols = p->n_symbols};
    return st;
}

static mn_status do_bind(follower *f, mn_text *more) {
    enum { BYTES = 3 * sizeof(uint32_t) + 2 * sizeof(uint64_t) };
    const object *c = follower_take(f, CONTEXT);
    const uint32_t set = mn_take_u32(&f->in);
    const uint32_t n = mn_take_u32(&f->in);
    (void)more;
    if (!c || n > (uint64_t)(f->in.end - f->in.at) / BYTES)
        return fail_message(f, "a context");
    mn_binding *all = mn_calloc(n + 1, sizeof *all);
    mn_status st = all ? follower_settle(f) : mn_fail_memory(&f->err, n * sizeof *all);
    for (uint32_t i = 0; i < n && !st; i++) {
        all[i].tensor = mn_take_u32(&f->in);
        all[i].flags = mn_take_u32(&f->in);
        const object *buffer = follower_take(f, BUFFER);
        all[i].offset = mn_take_u64(&f->in);
        all[i].bytes = mn_take_u64(&f->in);
        if (!buffer)
            st = fail_message(f, "a buffer");
        else
            all[i].buffer = buffer->what;
    }
    if (!st)
        st = f->b->context_bind(c->what, set, all, n, sizeof *all, &f->err);
    mn_free(all);
    return st;
}

/* Symbol values, mn_free; NULL: there are not as many, or out of memory. */
static int64_t *take_symbols(follower *f, const object *c) {
    int64_t *symbols = c ? mn_calloc(c->n_symbols + 1, sizeof *symbols) : NULL;
    if (symbols)
        mn_take(&f->in, symbols, c->n_symbols * sizeof *symbols);
    return symbols;
}

static mn_status do_prepare(follower *f, mn_text *more) {
    const object *c = follower_take(f, CONTEXT);
    const uint32_t set = mn_take_u32(&f->in);
    int64_t *symbols = take_symbols(f, c);
    (void)more;
    if (!symbols)
        return fail_message(f, "a context");
    mn_status st = MN_OK;
    if (!f->in.bad && MN_HAS(mn_backend, f->b, context_prepare))
        st = mn_usual_prepare(f->b, c->what, set, symbols, &f->err);
    mn_free(symbols);
    return st;
}

/* Without waiting: the next message may be the next step. */
static mn_status do_execute(follower *f, mn_text *more) {
    const object *c = follower_take(f, CONTEXT);
    const uint32_t set = mn_take_u32(&f->in);
    int64_t *symbols = take_symbols(f, c);
    mn_event *event = NULL;
    (void)more;
    if (!symbols)
        return fail_message(f, "a context");
    mn_status st = MN_OK;
    if (!f->in.bad)
        st = mn_usual_execute(f->b, c->what, set, symbols, &event, &f->err);
    mn_free(symbols);
    object *q = &f->objects[c->queue];
    if (q->kind == QUEUE && q->last)
        f->b->event_free(q->last);
    if (q->kind == QUEUE)
        q->last = event;
    return st;
}

/* ---- the loop -------------------------------------------------------------------------------- */
typedef struct {
    mn_status (*run)(follower *f, mn_text *more);
    bool answered;
    bool anytime; /* also without a device */
} task;
static const task tasks[MN_SAY_COUNT] = {
    [MN_SAY_JOIN] = {do_join, true, true},         [MN_SAY_CLOSE] = {do_close, false, true},
    [MN_SAY_MEMORY] = {do_memory, true, false},    [MN_SAY_FREE] = {do_free, false, true},
    [MN_SAY_ALLOC] = {do_alloc, true, false},      [MN_SAY_QUEUE] = {do_queue, true, false},
    [MN_SAY_WRITE] = {do_write, false, false},     [MN_SAY_COPY] = {do_copy, false, false},
    [MN_SAY_WAIT] = {do_wait, false, false},       [MN_SAY_WEIGHTS] = {do_weights, true, false},
    [MN_SAY_PUT] = {do_put, false, false},         [MN_SAY_SEAL] = {do_seal, true, false},
    [MN_SAY_LAYOUT] = {do_layout, true, false},    [MN_SAY_PAGES] = {do_pages, false, false},
    [MN_SAY_COMPILE] = {do_compile, true, false},  [MN_SAY_CONTEXT] = {do_context, true, false},
    [MN_SAY_BIND] = {do_bind, true, false},        [MN_SAY_PREPARE] = {do_prepare, true, false},
    [MN_SAY_EXECUTE] = {do_execute, false, false},
};

/* An error and its sentence, or what the question wants. */
static void reply(follower *f, mn_status st, const mn_text *more) {
    mn_text t = {0};
    f->err.msg[sizeof f->err.msg - 1] = 0;
    mn_put_u32(&t, (uint32_t)st);
    mn_put_bytes(&t, f->err.msg, st ? strlen(f->err.msg) : 0);
    mn_put(&t, more->ptr, more->len);
    mn_link_say(f->r, &f->r->links[0], MN_SAY_REPLY, t.ptr, t.len);
    mn_text_free(&t);
}

/* One message, which is freed or kept. */
static void follower_obey(follower *f) {
    const uint32_t say = f->frame->say;
    const task *t = &tasks[say];
    mn_text more = {0};
    mn_status st = MN_OK;
    f->err = (mn_error)MN_ERROR_INIT;
    f->in = (mn_reader){f->frame->data, f->frame->data + f->frame->n, false};
    if (!t->run || (!t->anytime && !f->device))
        st = mn_fail(&f->err, MN_BAD_INPUT, "found %s where it cannot be", mn_say_name(say));
    else
        MN_WATCHED(f->plugin->callee, mn_say_name(say), st = t->run(f, &more));
    if (!st && f->in.bad)
        st = mn_fail(&f->err, MN_BAD_INPUT, "a message that ends too early");
    if (t->answered)
        reply(f, st, &more);
    else if (st)
        mn_ranks_break(f->r, "rank %u: %s: %s", f->r->params.place.rank, mn_say_name(say),
                       f->err.msg);
    mn_text_free(&more);
    mn_free(f->frame);
    f->frame = NULL;
}

mn_status mn_follow(mn_ranks *r, mn_error *err) {
    const mn_plugin_record *p = r->params.device->plugin;
    follower f = {.r = r, .plugin = p, .b = p->backend, .self = p->plugin->self};
    bool bye = false;
    while (!bye) {
        f.frame = mn_link_next(r, &r->links[0]);
        if (!f.frame)
            break;
        bye = f.frame->say == MN_SAY_BYE;
        if (!bye)
            follower_obey(&f);
        else
            mn_free(f.frame);
    }
    r->over = bye;
    follower_close_device(&f);
    mn_free(f.objects);
    if (bye)
        return MN_OK;
    return mn_fail(err, MN_DEVICE_LOST, "%s", r->broken ? r->why : "the ranks have ended");
}
