/* case_plan.h -- the inside of a case_plan, for rules that use its parts in other ways than
 * case_step does. */
#ifndef CASE_PLAN_H
#define CASE_PLAN_H
#include "case.h"

struct case_plan {
    case_on on;
    op_case *first; /* whose weights are in */
    mn_compile ask;
    int64_t max[CASE_SYMBOLS];
    mn_weights *weights; /* ours; NULL where the caller's are used */
    uint32_t kept;       /* MN_KEPT_* of ours */
    mn_program *program;
    mn_queue *queues[2]; /* ours; the first context runs on the caller's */
    mn_context *contexts[2];
    uint32_t at, set; /* the context and the set of bindings in use */
    uint64_t guard, host_bytes, kv_bytes[CASE_GROUPS];
    mn_buffer *buffer[CASE_TENSORS], *host;
    void *host_map;
    mn_binding binding[CASE_TENSORS];
    uint32_t n_bindings;
    uint8_t *scratch; /* one buffer's bytes as they are written */
    char breach[200];
};

/* Weight i of a case as a source; planes: [CASE_MOST_PLANES], which the source points to. */
#define CASE_MOST_PLANES 64
mn_weight_src case_source(const op_case *c, uint32_t i, mn_plane *planes);
/* weights_put of weight i of the plan's case into a set of the caller's. */
mn_status case_put_weight(const case_plan *p, mn_weights *w, mn_queue *q, uint32_t i, mn_event **ev,
                          mn_error *err);
/* All weights of the plan's case by so many threads, and the seal; sets kept. */
mn_status case_put_weights(case_plan *p, uint32_t n_threads, mn_error *err);
/* Sets err, if there is one, and returns st. */
mn_status case_plan_fail(mn_error *err, mn_status st, const char *msg);
#endif
