/* table.c -- the table of the backend: each function is gpu_host's, for a device by itself, or that
 * of a group of devices (group.h), by the device of what it is given. */
#include "group.h"

static const mn_backend grouped = {
    .size = sizeof(mn_backend),
    .device_count = mng_device_count,
    .device_info = mng_device_info,
    .device_open = mng_device_open,
    .device_close = cu_group_device_close,
    .device_memory = cu_group_device_memory,
    .self_test = cu_group_self_test,
    .contracts = mng_contracts,
    .supports = cu_group_supports,
    .reason = mng_reason,
    .estimate = cu_group_estimate,
    .alloc = cu_group_alloc,
    .wrap = cu_group_wrap,
    .buffer_free = cu_group_buffer_free,
    .map = cu_group_map,
    .queue_create = cu_group_queue_create,
    .queue_free = cu_group_queue_free,
    .write = cu_group_write,
    .read = cu_group_read,
    .copy = cu_group_copy,
    .wait = cu_group_wait_event,
    .queue_wait = cu_group_queue_wait,
    .event_free = cu_group_event_free,
    .abort = cu_group_abort,
    .weights_open = cu_group_weights_open,
    .weights_put = cu_group_weights_put,
    .weights_seal = cu_group_weights_seal,
    .weights_free = cu_group_weights_free,
    .memory_layout = cu_group_memory_layout,
    .memory_copy = cu_group_memory_copy,
    .compile = cu_group_compile,
    .program_free = cu_group_program_free,
    .program_save = mng_program_save,
    .context_create = cu_group_context_create,
    .context_bind = cu_group_context_bind,
    .context_prepare = cu_group_context_prepare,
    .execute = cu_group_execute,
    .context_free = cu_group_context_free,
};

static const mn_backend *table_of(const mn_device *d) {
    if (cu_is_group(d))
        return &grouped;
    return &mng_table;
}

static void any_device_close(mn_device *d) {
    if (d)
        table_of(d)->device_close(d);
}
static mn_status any_device_memory(mn_device *d, uint64_t *left, uint64_t *total, mn_error *err) {
    return table_of(d)->device_memory(d, left, total, err);
}
static mn_status any_self_test(mn_device *d, mn_error *err) {
    return table_of(d)->self_test(d, err);
}
static mn_status any_supports(mn_device *d, const mn_compile *c, mn_verdict *v, uint32_t stride,
                              mn_error *err) {
    return table_of(d)->supports(d, c, v, stride, err);
}
static mn_status any_estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    return table_of(d)->estimate(d, c, out, err);
}
static mn_status any_alloc(mn_device *d, const mn_alloc_params *a, mn_buffer **out, mn_error *err) {
    return table_of(d)->alloc(d, a, out, err);
}
static mn_status any_wrap(mn_device *d, void *host, uint64_t bytes, mn_buffer **out,
                          mn_error *err) {
    return table_of(d)->wrap(d, host, bytes, out, err);
}
static void any_buffer_free(mn_buffer *b) {
    if (b)
        table_of(b->dev)->buffer_free(b);
}
static mn_status any_map(mn_buffer *b, void **out, mn_error *err) {
    return table_of(b->dev)->map(b, out, err);
}
static mn_status any_queue_create(mn_device *d, const mn_queue_params *params, mn_queue **out,
                                  mn_error *err) {
    return table_of(d)->queue_create(d, params, out, err);
}
static void any_queue_free(mn_queue *q) {
    if (q)
        table_of(q->base.dev)->queue_free(q);
}
static mn_status any_write(mn_queue *q, mn_buffer *b, uint64_t off, const void *from, uint64_t n,
                           mn_error *err) {
    return table_of(q->base.dev)->write(q, b, off, from, n, err);
}
static mn_status any_read(mn_queue *q, const mn_buffer *b, uint64_t off, mn_buffer *to,
                          uint64_t to_off, uint64_t n, mn_event **event, mn_error *err) {
    return table_of(q->base.dev)->read(q, b, off, to, to_off, n, event, err);
}
static mn_status any_copy(mn_queue *q, mn_buffer *to, uint64_t to_off, const mn_buffer *from,
                          uint64_t off, uint64_t n, mn_event **event, mn_error *err) {
    return table_of(q->base.dev)->copy(q, to, to_off, from, off, n, event, err);
}
static mn_status any_wait(mn_event *e, uint64_t timeout_ns, mn_error *err) {
    if (!e)
        return MN_OK;
    return table_of(e->dev)->wait(e, timeout_ns, err);
}
static mn_status any_queue_wait(mn_queue *q, mn_event *e, mn_error *err) {
    return table_of(q->base.dev)->queue_wait(q, e, err);
}
static void any_event_free(mn_event *e) {
    if (e)
        table_of(e->dev)->event_free(e);
}
/* Events of a group are those of its members: nobody is called. */
static mn_status any_event_on_ready(mn_event *e, void (*fn)(void *arg, mn_status), void *arg,
                                    mn_error *err) {
    if (e && table_of(e->dev) != &mng_table)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "groups of devices call nobody back");
    return mng_event_on_ready(e, fn, arg, err);
}
static mn_status any_abort(mn_queue *q) {
    return table_of(q->base.dev)->abort(q);
}
static mn_status any_weights_open(mn_device *d, const mn_compile *c, mn_weights **out,
                                  mn_error *err) {
    return table_of(d)->weights_open(d, c, out, err);
}
static mn_status any_weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src,
                                 mn_event **event, mn_error *err) {
    return table_of(w->dev)->weights_put(w, q, src, event, err);
}
static mn_status any_weights_seal(mn_weights *w, mn_queue *q, uint32_t *kept_how, mn_error *err) {
    return table_of(w->dev)->weights_seal(w, q, kept_how, err);
}
static void any_weights_free(mn_weights *w) {
    if (w)
        table_of(w->dev)->weights_free(w);
}
static mn_status any_memory_layout(mn_device *d, const mn_compile *c, uint32_t group,
                                   mn_memory_layout *out, mn_error *err) {
    return table_of(d)->memory_layout(d, c, group, out, err);
}
static mn_status any_memory_copy(mn_queue *q, mn_buffer *kv, const mn_memory_layout *l,
                                 const mn_page_copy *copies, uint32_t n, uint32_t stride,
                                 mn_event **event, mn_error *err) {
    return table_of(q->base.dev)->memory_copy(q, kv, l, copies, n, stride, event, err);
}
static mn_status any_compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    return table_of(d)->compile(d, c, out, err);
}
static void any_program_free(mn_program *p) {
    if (p)
        table_of(p->base.dev)->program_free(p);
}
static mn_status any_context_create(mn_program *p, const mn_context_params *params,
                                    mn_context **out, mn_error *err) {
    return table_of(p->base.dev)->context_create(p, params, out, err);
}
static mn_status any_context_bind(mn_context *c, uint32_t set, const mn_binding *given, uint32_t n,
                                  uint32_t stride, mn_error *err) {
    return table_of(c->base.prog->base.dev)->context_bind(c, set, given, n, stride, err);
}
static mn_status any_context_prepare(mn_context *c, const mn_step *step, mn_error *err) {
    return table_of(c->base.prog->base.dev)->context_prepare(c, step, err);
}
static mn_status any_execute(mn_context *c, const mn_step *step, mn_event **event, mn_error *err) {
    return table_of(c->base.prog->base.dev)->execute(c, step, event, err);
}
static void any_context_free(mn_context *c) {
    if (c)
        table_of(c->base.prog->base.dev)->context_free(c);
}

const mn_backend cu_backend = {
    .size = sizeof(mn_backend),
    .device_count = mng_device_count,
    .device_info = mng_device_info,
    .device_open = mng_device_open,
    .device_close = any_device_close,
    .device_memory = any_device_memory,
    .self_test = any_self_test,
    .contracts = mng_contracts,
    .supports = any_supports,
    .reason = mng_reason,
    .estimate = any_estimate,
    .alloc = any_alloc,
    .wrap = any_wrap,
    .buffer_free = any_buffer_free,
    .map = any_map,
    .queue_create = any_queue_create,
    .queue_free = any_queue_free,
    .write = any_write,
    .read = any_read,
    .copy = any_copy,
    .wait = any_wait,
    .queue_wait = any_queue_wait,
    .event_free = any_event_free,
    .event_on_ready = any_event_on_ready,
    .abort = any_abort,
    .weights_open = any_weights_open,
    .weights_put = any_weights_put,
    .weights_seal = any_weights_seal,
    .weights_free = any_weights_free,
    .memory_layout = any_memory_layout,
    .memory_copy = any_memory_copy,
    .compile = any_compile,
    .program_free = any_program_free,
    .program_save = mng_program_save,
    .context_create = any_context_create,
    .context_bind = any_context_bind,
    .context_prepare = any_context_prepare,
    .execute = any_execute,
    .context_free = any_context_free,
};
