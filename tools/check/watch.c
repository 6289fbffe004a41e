/* watch.c -- see watch.h. The state is static, since a rule runs in a process of its own with
 * one plugin: copies of the plugin's tables, and the rule that runs. What the parent reads is in
 * the shared memory of that rule's result (check_run.c). One line per function of a table makes the
 * function that passes calls on. */
#include "watch.h"
#include <stdatomic.h>
#include <string.h>

static check *judge;
static mn_backend real_backend; /* copies: a table may be freed with the plugin's self */
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

/* name: the member of the table; params, args: in parentheses. */
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
BACKEND_STATUS(device_open,
               (void *a, uint32_t i, const mn_open_params *p, mn_device **b, mn_error *e),
               (a, i, p, b, e))
BACKEND_VOID(device_close, (mn_device *a), (a))
BACKEND_STATUS(device_memory, (mn_device *a, uint64_t *b, uint64_t *c, mn_error *e), (a, b, c, e))
BACKEND_STATUS(self_test, (mn_device *a, mn_error *e), (a, e))
BACKEND_STATUS(contracts, (void *a, const mn_op_contract **b, uint32_t *c, uint32_t *n),
               (a, b, c, n))
BACKEND_STATUS(supports,
               (mn_device *a, const mn_compile *c, mn_verdict *v, uint32_t n, mn_error *e),
               (a, c, v, n, e))
BACKEND_STATUS(reason, (void *a, uint32_t r, char *b, uint32_t n), (a, r, b, n))
BACKEND_STATUS(estimate,
               (mn_device *a, const mn_compile *c, mn_estimate *b, mn_error *e), (a, c, b, e))
BACKEND_STATUS(alloc,
               (mn_device *a, const mn_alloc_params *p, mn_buffer **b, mn_error *e), (a, p, b, e))
BACKEND_STATUS(wrap,
               (mn_device *a, void *p, uint64_t n, mn_buffer **b, mn_error *e), (a, p, n, b, e))
BACKEND_VOID(buffer_free, (mn_buffer *a), (a))
BACKEND_STATUS(map, (mn_buffer *a, void **b, mn_error *e), (a, b, e))
BACKEND_STATUS(queue_create,
               (mn_device *a, const mn_queue_params *p, mn_queue **b, mn_error *e), (a, p, b, e))
BACKEND_VOID(queue_free, (mn_queue *a), (a))
BACKEND_STATUS(write,
               (mn_queue *a, mn_buffer *b, uint64_t at, const void *p, uint64_t n, mn_error *e),
               (a, b, at, p, n, e))
BACKEND_STATUS(read,
               (mn_queue *a, const mn_buffer *b, uint64_t at, mn_buffer *c, uint64_t to, uint64_t n,
                mn_event **v, mn_error *e), (a, b, at, c, to, n, v, e))
BACKEND_STATUS(copy,
               (mn_queue *a, mn_buffer *b, uint64_t to, const mn_buffer *c, uint64_t at, uint64_t n,
                mn_event **v, mn_error *e), (a, b, to, c, at, n, v, e))
BACKEND_STATUS(wait, (mn_event *a, uint64_t ns, mn_error *e), (a, ns, e))
BACKEND_STATUS(queue_wait, (mn_queue *a, mn_event *b, mn_error *e), (a, b, e))
BACKEND_VOID(event_free, (mn_event *a), (a))
BACKEND_STATUS(event_on_ready,
               (mn_event *a, void (*fn)(void *, mn_status), void *b, mn_error *e), (a, fn, b, e))
BACKEND_STATUS(abort, (mn_queue *a), (a))
BACKEND_STATUS(weights_open,
               (mn_device *a, const mn_compile *c, mn_weights **b, mn_error *e), (a, c, b, e))
BACKEND_STATUS(weights_put,
               (mn_weights *a, mn_queue *q, const mn_weight_src *s, mn_event **v, mn_error *e),
               (a, q, s, v, e))
BACKEND_STATUS(weights_seal,
               (mn_weights *a, mn_queue *q, uint32_t *how, mn_error *e), (a, q, how, e))
BACKEND_VOID(weights_free, (mn_weights *a), (a))
BACKEND_STATUS(memory_layout,
               (mn_device *a, const mn_compile *c, uint32_t g, mn_memory_layout *b, mn_error *e),
               (a, c, g, b, e))
BACKEND_STATUS(compile,
               (mn_device *a, const mn_compile *c, mn_program **b, mn_error *e), (a, c, b, e))
BACKEND_VOID(program_free, (mn_program *a), (a))
BACKEND_STATUS(program_save, (const mn_program *a, void *b, uint64_t *n), (a, b, n))
BACKEND_STATUS(context_create,
               (mn_program *a, const mn_context_params *p, mn_context **b, mn_error *e),
               (a, p, b, e))
BACKEND_VOID(context_free, (mn_context *a), (a))

LOADER_STATUS(guess,
              (void *a, const mn_file *f, uint32_t n, uint32_t step, mn_guess *g),
              (a, f, n, step, g))
LOADER_STATUS(open,
              (void *a, const mn_file *f, uint32_t n, uint32_t step, mn_parsed **p, mn_error *e),
              (a, f, n, step, p, e))
LOADER_STATUS(meta_at,
              (mn_parsed *p, uint32_t i, mn_str *k, mn_str *n, mn_value *v), (p, i, k, n, v))
LOADER_STATUS(tensor_at, (mn_parsed *p, uint32_t i, mn_tensor_info *t), (p, i, t))
LOADER_VOID(close, (mn_parsed *p), (p))
BACKEND_STATUS(memory_copy,
               (mn_queue *a, mn_buffer *b, const mn_memory_layout *l, const mn_page_copy *p,
                uint32_t n,
                uint32_t step, mn_event **v, mn_error *e), (a, b, l, p, n, step, v, e))
BACKEND_STATUS(context_bind,
               (mn_context *a, uint32_t set, const mn_binding *b, uint32_t n, uint32_t step,
                mn_error *e), (a, set, b, n, step, e))
BACKEND_STATUS(context_prepare, (mn_context *a, const mn_step *s, mn_error *e), (a, s, e))
BACKEND_STATUS(execute,
               (mn_context *a, const mn_step *s, mn_event **b, mn_error *e), (a, s, b, e))
LOADER_STATUS(patterns, (void *a, uint32_t i, mn_file_pattern *p), (a, i, p))
/* clang-format on */

/* Where the plugin has a function, the table gets the one that passes calls on to it. */
#define WATCH_BACKEND(name)                                                                        \
    if (MN_HAS(mn_backend, be, name))                                                              \
        table.name = backend_##name;
#define WATCH_LOADER(name)                                                                         \
    if (MN_HAS(mn_loader, ld, name))                                                               \
        table.name = loader_##name;

/* Copies the plugin's table up to the size that both know; that size. */
static uint32_t copy_table(void *to, uint32_t room, const void *from, uint32_t size) {
    uint32_t known = room;
    if (size < room)
        known = size;
    memset(to, 0, room);
    memcpy(to, from, known);
    return known;
}

const mn_backend *watch_backend(check *c, const mn_backend *be) {
    static mn_backend table;
    if (!be)
        return NULL;
    judge = c;
    table = (mn_backend){.size = copy_table(&real_backend, sizeof real_backend, be, be->size)};
    table.flags = real_backend.flags;
    WATCH_BACKEND(device_count)
    WATCH_BACKEND(device_info)
    WATCH_BACKEND(device_open)
    WATCH_BACKEND(device_close)
    WATCH_BACKEND(device_memory)
    WATCH_BACKEND(self_test)
    WATCH_BACKEND(contracts)
    WATCH_BACKEND(supports)
    WATCH_BACKEND(reason)
    WATCH_BACKEND(estimate)
    WATCH_BACKEND(alloc)
    WATCH_BACKEND(wrap)
    WATCH_BACKEND(buffer_free)
    WATCH_BACKEND(map)
    WATCH_BACKEND(queue_create)
    WATCH_BACKEND(queue_free)
    WATCH_BACKEND(write)
    WATCH_BACKEND(read)
    WATCH_BACKEND(copy)
    WATCH_BACKEND(wait)
    WATCH_BACKEND(queue_wait)
    WATCH_BACKEND(event_free)
    WATCH_BACKEND(event_on_ready)
    WATCH_BACKEND(abort)
    WATCH_BACKEND(weights_open)
    WATCH_BACKEND(weights_put)
    WATCH_BACKEND(weights_seal)
    WATCH_BACKEND(weights_free)
    WATCH_BACKEND(memory_layout)
    WATCH_BACKEND(memory_copy)
    WATCH_BACKEND(compile)
    WATCH_BACKEND(program_free)
    WATCH_BACKEND(program_save)
    WATCH_BACKEND(context_create)
    WATCH_BACKEND(context_bind)
    WATCH_BACKEND(context_prepare)
    WATCH_BACKEND(execute)
    WATCH_BACKEND(context_free)
    return &table;
}

const mn_loader *watch_loader(check *c, const mn_loader *ld) {
    static mn_loader table;
    if (!ld)
        return NULL;
    judge = c;
    table = (mn_loader){.size = copy_table(&real_loader, sizeof real_loader, ld, ld->size)};
    table.flags = real_loader.flags;
    WATCH_LOADER(guess)
    WATCH_LOADER(open)
    WATCH_LOADER(meta_at)
    WATCH_LOADER(tensor_at)
    WATCH_LOADER(close)
    WATCH_LOADER(patterns)
    return &table;
}
