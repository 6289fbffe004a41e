/* small_graph.h -- a chain of a few nodes, built by the host, on one device through the plugin's
 * table alone: what the probing process tries (probe_device.c) and what negotiation measures
 * (negotiate/measure.c). No model is needed. */
#ifndef MN_SMALL_GRAPH_H
#define MN_SMALL_GRAPH_H
#include "base/call.h"
#include "base/sealed.h"

#define MN_SMALL_CHAIN 64u /* nodes at most */
#define MN_SMALL_ROWS 512  /* rows of a step at most */

/* x -> n nodes -> y. {0} at first. Points into itself: it stays where it was built. */
typedef struct {
    const mn_graph *given; /* in sealed pages: what plugins get */
    mn_sealed *pages;
    mn_graph g;
    mn_symbol symbol;
    mn_node nodes[MN_SMALL_CHAIN];
    mn_tensor tensors[MN_SMALL_CHAIN + 2];
    int32_t operands[MN_SMALL_CHAIN * 4];
    uint64_t attrs[2];
} mn_small_graph;
/* tensors; the last one is y. MN_SMALL_EXPERTS: of a graph of experts, in front of its y */
enum { MN_SMALL_X, MN_SMALL_WEIGHT, MN_SMALL_FIRST_Y, MN_SMALL_EXPERTS = MN_SMALL_FIRST_Y };

/* Replaces the graph that was built before, of which no program may be left; false = out of memory.
 * n nodes of one op, x: [n_tokens, k]: LINEAR with a weight [n_rows, k] of this type (square if n >
 * 1), RMS_NORM with a weight [k], or ADD of x. */
bool mn_small_graph_build(mn_small_graph *s, uint32_t op, uint32_t n, uint32_t dtype,
                          int64_t n_rows, int64_t k);
/* The same of one MOE_LINEAR: x [n_tokens, k], a weight [n_expert, n_rows, k] of this type, of
 * which each row chooses n_chosen experts. */
bool mn_small_experts_build(mn_small_graph *s, uint32_t dtype, int64_t n_expert, int64_t n_chosen,
                            int64_t n_rows, int64_t k);
void mn_small_graph_clear(mn_small_graph *s);

/* Where it runs. The caller makes the queue and owns everything. */
typedef struct {
    const mn_backend *b;
    const mn_callee *callee; /* NULL: calls are not watched */
    mn_device *dev;
    mn_queue *queue;
    uint32_t precision; /* as in mn_compile */
    /* weights and rows; a pattern that every type reads as ordinary numbers */
    const uint8_t *fill;
    uint64_t fill_bytes;
    bool stuck; /* an event did not come within 2 s: nothing more is asked, and the queue aborted */
} mn_small_device;

/* What one compiled graph holds. */
typedef struct {
    mn_sealed *pages; /* what the program was compiled of, beside the graph */
    mn_weights *weights;
    mn_program *program;
    mn_context *context;
    mn_buffer *x, *y;
    mn_buffer *experts; /* of a graph of experts; zeros at first */
} mn_small_run;

/* Imports the weight, compiles, and binds x and y for at most rows_max rows. On an error nothing is
 * held. MN_INVALID: the plugin said that a call worked and returned nothing. */
mn_status mn_small_run_make(mn_small_device *d, const mn_small_graph *s, int64_t rows_max,
                            mn_small_run *out, mn_error *err);
/* The experts of the next steps: n ids, those of a row behind one another. */
mn_status mn_small_run_choose(mn_small_device *d, const mn_small_run *m, const int32_t *ids,
                              uint32_t n, mn_error *err);
/* One step, and its event. */
mn_status mn_small_run_step(mn_small_device *d, const mn_small_run *m, int64_t rows, mn_error *err);
/* Waits for the event, 2 s at most (MN_TIMEOUT, and d->stuck), and frees it; NULL is fine. */
mn_status mn_small_wait(mn_small_device *d, mn_event *event, mn_error *err);
void mn_small_run_drop(mn_small_device *d, mn_small_run *m);
#endif
