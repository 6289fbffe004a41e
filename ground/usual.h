/* usual.h -- calls of a backend whose parameters (R10 of plugin.h) are the usual ones: what is not
 * an argument here is 0. Contracts are those of mn_backend. */
#ifndef MN_USUAL_H
#define MN_USUAL_H
#include <minerva/plugin.h>

static inline mn_status mn_usual_open(const mn_backend *b, void *self, uint32_t i, mn_device **out,
                                      mn_error *err) {
    const mn_open_params p = {.size = sizeof p};
    return b->device_open(self, i, &p, out, err);
}

/* kind: MN_MEM_*, zeroed. */
static inline mn_status mn_usual_alloc(const mn_backend *b, mn_device *d, uint64_t bytes,
                                       uint32_t kind, mn_buffer **out, mn_error *err) {
    const mn_alloc_params a = {.size = sizeof a, .kind = kind, .bytes = bytes};
    return b->alloc(d, &a, out, err);
}

static inline mn_status mn_usual_queue(const mn_backend *b, mn_device *d, mn_queue **out,
                                       mn_error *err) {
    const mn_queue_params p = {.size = sizeof p};
    return b->queue_create(d, &p, out, err);
}

/* Verdicts of all nodes of a graph, with these sizes. */
static inline mn_status mn_usual_supports(const mn_backend *b, mn_device *d, const mn_graph *g,
                                          const int64_t *symbol_max, mn_verdict *verdicts,
                                          uint32_t stride, mn_error *err) {
    const mn_compile c = {
        .size = sizeof c, .graph = g, .node_hi = g->n_nodes, .symbol_max = symbol_max};
    return b->supports(d, &c, verdicts, stride, err);
}

static inline mn_status mn_usual_context(const mn_backend *b, mn_program *program, mn_queue *q,
                                         mn_context **out, mn_error *err) {
    const mn_context_params p = {.size = sizeof p, .queue = q};
    return b->context_create(program, &p, out, err);
}

static inline mn_step mn_usual_step(uint32_t set, const int64_t *values) {
    return (mn_step){.size = sizeof(mn_step), .set = set, .values = values};
}

static inline mn_status mn_usual_prepare(const mn_backend *b, mn_context *c, uint32_t set,
                                         const int64_t *values, mn_error *err) {
    const mn_step step = mn_usual_step(set, values);
    return b->context_prepare(c, &step, err);
}

static inline mn_status mn_usual_execute(const mn_backend *b, mn_context *c, uint32_t set,
                                         const int64_t *values, mn_event **event, mn_error *err) {
    const mn_step step = mn_usual_step(set, values);
    return b->execute(c, &step, event, err);
}

static inline mn_status mn_usual_profile(const mn_profile *p, mn_context *c, uint32_t set,
                                         const int64_t *values, mn_profile_unit *units,
                                         uint32_t stride, uint32_t *n, mn_error *err) {
    const mn_step step = mn_usual_step(set, values);
    return p->execute(c, &step, units, stride, n, err);
}
#endif
