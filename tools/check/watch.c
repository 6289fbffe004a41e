/* watch.c -- see watch.h. The state is the process's: a rule runs in a process of its own, with one
 * plugin. What the parent reads lies in the shared memory of the rule's result. */
#include "watch.h"
#include <stdatomic.h>
#include <string.h>

static check *judge;
static mn_backend real_backend; /* copies: a table may go with its self */
static mn_loader real_loader;
static void (*after)(void *arg, const char *name);
static void *after_arg;

void watch_begin(check *c, const char *name) {
    judge = c;
    atomic_store(&c->result->call, name);
    atomic_fetch_add(&c->result->n_calls, 1);
    atomic_fetch_add(&c->result->in_call, 1);
}

void watch_end(const char *name) {
    atomic_fetch_sub(&judge->result->in_call, 1);
    atomic_fetch_add(&judge->result->n_calls, 1);
    if (after)
        after(after_arg, name);
}

void watch_after(void (*fn)(void *arg, const char *name), void *arg) {
    after_arg = arg;
    after = fn;
}

/* name: the member of the table; params, args: with their parentheses. */
#define PASS_STATUS(real, prefix, name, params, args)                                              \
    static mn_status prefix##name params {                                                         \
        watch_begin(judge, #name);                                                                 \
        const mn_status status = real.name args;                                                   \
        watch_end(#name);                                                                          \
        return status;                                                                             \
    }
#define PASS_VOID(real, prefix, name, params, args)                                                \
    static void prefix##name params {                                                              \
        watch_begin(judge, #name);                                                                 \
        real.name args;                                                                            \
        watch_end(#name);                                                                          \
    }
#define BACKEND_STATUS(...) PASS_STATUS(real_backend, backend_, __VA_ARGS__)
#define BACKEND_VOID(...) PASS_VOID(real_backend, backend_, __VA_ARGS__)
#define LOADER_STATUS(...) PASS_STATUS(real_loader, loader_, __VA_ARGS__)
#define LOADER_VOID(...) PASS_VOID(real_loader, loader_, __VA_ARGS__)

/* clang-format off */
BACKEND_STATUS(device_count, (void *a, uint32_t *b, mn_error *e), (a, b, e))
BACKEND_STATUS(device_info, (void *a, uint32_t i, mn_device_info *b, mn_error *e), (a, i, b, e))
BACKEND_STATUS(device_open, (void *a, uint32_t i, mn_device **b, mn_error *e), (a, i, b, e))
BACKEND_VOID(device_close, (mn_device *a), (a))
BACKEND_STATUS(device_memory, (mn_device *a, uint64_t *b, uint64_t *c, mn_error *e), (a, b, c, e))
BACKEND_STATUS(self_test, (mn_device *a, mn_error *e), (a, e))
BACKEND_STATUS(contracts, (void *a, const uint32_t (**b)[2], uint32_t *c), (a, b, c))
BACKEND_STATUS(supports, (mn_device *a, const mn_graph *g, const int64_t *at, mn_verdict *v, uint32_t n, mn_error *e), (a, g, at, v, n, e))
BACKEND_STATUS(reason, (void *a, uint32_t r, char *b, uint32_t n), (a, r, b, n))
BACKEND_STATUS(estimate, (mn_device *a, const mn_compile *c, mn_estimate *b, mn_error *e), (a, c, b, e))
BACKEND_STATUS(alloc, (mn_device *a, uint64_t n, uint32_t kind, mn_buffer **b, mn_error *e), (a, n, kind, b, e))
BACKEND_STATUS(wrap, (mn_device *a, void *p, uint64_t n, mn_buffer **b, mn_error *e), (a, p, n, b, e))
BACKEND_VOID(buffer_free, (mn_buffer *a), (a))
BACKEND_STATUS(map, (mn_buffer *a, void **b, mn_error *e), (a, b, e))
BACKEND_STATUS(queue_create, (mn_device *a, mn_queue **b, mn_error *e), (a, b, e))
BACKEND_VOID(queue_free, (mn_queue *a), (a))
BACKEND_STATUS(write, (mn_queue *a, mn_buffer *b, uint64_t at, const void *p, uint64_t n, mn_error *e), (a, b, at, p, n, e))
BACKEND_STATUS(read, (mn_queue *a, const mn_buffer *b, uint64_t at, mn_buffer *c, uint64_t to, uint64_t n, mn_event **v, mn_error *e), (a, b, at, c, to, n, v, e))
BACKEND_STATUS(copy, (mn_queue *a, mn_buffer *b, uint64_t to, const mn_buffer *c, uint64_t at, uint64_t n, mn_event **v, mn_error *e), (a, b, to, c, at, n, v, e))
BACKEND_STATUS(wait, (mn_event *a, uint64_t ns, mn_error *e), (a, ns, e))
BACKEND_STATUS(queue_wait, (mn_queue *a, mn_event *b, mn_error *e), (a, b, e))
BACKEND_VOID(event_free, (mn_event *a), (a))
BACKEND_STATUS(abort, (mn_queue *a), (a))
BACKEND_STATUS(weights_open, (mn_device *a, const mn_compile *c, mn_weights **b, mn_error *e), (a, c, b, e))
BACKEND_STATUS(weights_put, (mn_weights *a, mn_queue *q, const mn_weight_src *s, mn_event **v, mn_error *e), (a, q, s, v, e))
BACKEND_STATUS(weights_seal, (mn_weights *a, mn_queue *q, uint32_t *how, mn_error *e), (a, q, how, e))
BACKEND_VOID(weights_free, (mn_weights *a), (a))
BACKEND_STATUS(kv_layout, (mn_device *a, const mn_compile *c, uint32_t g, mn_kv_layout *b, mn_error *e), (a, c, g, b, e))
BACKEND_STATUS(compile, (mn_device *a, const mn_compile *c, mn_program **b, mn_error *e), (a, c, b, e))
BACKEND_VOID(program_free, (mn_program *a), (a))
BACKEND_STATUS(program_save, (const mn_program *a, void *b, uint64_t *n), (a, b, n))
BACKEND_STATUS(context_create, (mn_program *a, mn_queue *q, mn_context **b, mn_error *e), (a, q, b, e))
BACKEND_VOID(context_free, (mn_context *a), (a))

LOADER_STATUS(guess, (void *a, const mn_file *f, uint32_t n, uint32_t step, mn_guess *g), (a, f, n, step, g))
LOADER_STATUS(open, (void *a, const mn_file *f, uint32_t n, uint32_t step, mn_parsed **p, mn_error *e), (a, f, n, step, p, e))
LOADER_STATUS(meta_at, (mn_parsed *p, uint32_t i, mn_str *k, mn_str *n, mn_value *v), (p, i, k, n, v))
LOADER_STATUS(tensor_at, (mn_parsed *p, uint32_t i, mn_tensor_info *t), (p, i, t))
LOADER_VOID(close, (mn_parsed *p), (p))
BACKEND_STATUS(kv_copy, (mn_queue *a, mn_buffer *b, const mn_kv_layout *l, const mn_page_copy *p, uint32_t n, uint32_t step, mn_event **v, mn_error *e), (a, b, l, p, n, step, v, e))
BACKEND_STATUS(context_bind, (mn_context *a, uint32_t set, const mn_binding *b, uint32_t n, uint32_t step, mn_error *e), (a, set, b, n, step, e))
BACKEND_STATUS(context_prepare, (mn_context *a, uint32_t set, const int64_t *v, mn_error *e), (a, set, v, e))
BACKEND_STATUS(execute, (mn_context *a, uint32_t set, const int64_t *v, mn_event **b, mn_error *e), (a, set, v, b, e))
LOADER_STATUS(patterns, (void *a, uint32_t i, mn_file_pattern *p), (a, i, p))
/* clang-format on */

/* Where the plugin has a function, the table gets the one that passes calls on to it. */
#define WATCH(T, table, real, prefix, name)                                                        \
    if (MN_HAS(T, real, name))                                                                     \
        table.name = prefix##name;

const mn_backend *watch_backend(check *c, const mn_backend *be) {
    static mn_backend table;
    if (!be)
        return NULL;
    judge = c;
    memset(&real_backend, 0, sizeof real_backend);
    memcpy(&real_backend, be, be->size < sizeof real_backend ? be->size : sizeof real_backend);
    table = (mn_backend){.size = be->size < sizeof table ? be->size : (uint32_t)sizeof table};
    if (be->size >= offsetof(mn_backend, flags) + sizeof be->flags)
        table.flags = be->flags;
    WATCH(mn_backend, table, be, backend_, device_count)
    WATCH(mn_backend, table, be, backend_, device_info)
    WATCH(mn_backend, table, be, backend_, device_open)
    WATCH(mn_backend, table, be, backend_, device_close)
    WATCH(mn_backend, table, be, backend_, device_memory)
    WATCH(mn_backend, table, be, backend_, self_test)
    WATCH(mn_backend, table, be, backend_, contracts)
    WATCH(mn_backend, table, be, backend_, supports)
    WATCH(mn_backend, table, be, backend_, reason)
    WATCH(mn_backend, table, be, backend_, estimate)
    WATCH(mn_backend, table, be, backend_, alloc)
    WATCH(mn_backend, table, be, backend_, wrap)
    WATCH(mn_backend, table, be, backend_, buffer_free)
    WATCH(mn_backend, table, be, backend_, map)
    WATCH(mn_backend, table, be, backend_, queue_create)
    WATCH(mn_backend, table, be, backend_, queue_free)
    WATCH(mn_backend, table, be, backend_, write)
    WATCH(mn_backend, table, be, backend_, read)
    WATCH(mn_backend, table, be, backend_, copy)
    WATCH(mn_backend, table, be, backend_, wait)
    WATCH(mn_backend, table, be, backend_, queue_wait)
    WATCH(mn_backend, table, be, backend_, event_free)
    WATCH(mn_backend, table, be, backend_, abort)
    WATCH(mn_backend, table, be, backend_, weights_open)
    WATCH(mn_backend, table, be, backend_, weights_put)
    WATCH(mn_backend, table, be, backend_, weights_seal)
    WATCH(mn_backend, table, be, backend_, weights_free)
    WATCH(mn_backend, table, be, backend_, kv_layout)
    WATCH(mn_backend, table, be, backend_, kv_copy)
    WATCH(mn_backend, table, be, backend_, compile)
    WATCH(mn_backend, table, be, backend_, program_free)
    WATCH(mn_backend, table, be, backend_, program_save)
    WATCH(mn_backend, table, be, backend_, context_create)
    WATCH(mn_backend, table, be, backend_, context_bind)
    WATCH(mn_backend, table, be, backend_, context_prepare)
    WATCH(mn_backend, table, be, backend_, execute)
    WATCH(mn_backend, table, be, backend_, context_free)
    return &table;
}

const mn_loader *watch_loader(check *c, const mn_loader *ld) {
    static mn_loader table;
    if (!ld)
        return NULL;
    judge = c;
    memset(&real_loader, 0, sizeof real_loader);
    memcpy(&real_loader, ld, ld->size < sizeof real_loader ? ld->size : sizeof real_loader);
    table = (mn_loader){.size = ld->size < sizeof table ? ld->size : (uint32_t)sizeof table};
    if (ld->size >= offsetof(mn_loader, flags) + sizeof ld->flags)
        table.flags = ld->flags;
    WATCH(mn_loader, table, ld, loader_, guess)
    WATCH(mn_loader, table, ld, loader_, open)
    WATCH(mn_loader, table, ld, loader_, meta_at)
    WATCH(mn_loader, table, ld, loader_, tensor_at)
    WATCH(mn_loader, table, ld, loader_, close)
    WATCH(mn_loader, table, ld, loader_, patterns)
    return &table;
}
