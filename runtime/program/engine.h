/* engine.h -- a placement made real: weights imported, program compiled, memory bound, steps enqueued.
 * One thread at a time. Knows nothing of sequences: it moves a packed block of inputs, and ids back. */
#ifndef MN_ENGINE_H
#define MN_ENGINE_H
#include "negotiate/negotiate.h"

/* Where each input lies in the packed block that one write carries (offsets in int32). */
typedef struct {
    uint32_t src, pos, row_slot, seqs, pages, out_row, out_slot, total;
} mn_input_layout;

typedef struct {
    const mn_backend *backend;
    mn_device *device;
    const mn_model_graph *graph;
    int64_t symbol_max[MN_SYM_COUNT];
    mn_kv_layout kv;
    uint32_t precision, kv_dtype, n_pages, kept_how;
    uint64_t weight_bytes, kv_bytes, scratch_bytes;
    bool async;
    mn_input_layout in;
    uint32_t ring; /* steps whose ids can wait to be read */
    mn_queue *queue;
    mn_weights *weights;
    mn_program *program;
    mn_context *context;
    mn_buffer *inputs, *slots, *history, *params, *pages_kv, *ids, *ids_host, *logits, *logits_host;
    int32_t *ids_map;
    float *logits_map;
} mn_engine;

/* ring: steps in flight at most. The graph and the model's files outlive the engine. */
mn_status mn_engine_create(const mn_placement *p, const mn_model_graph *g, uint32_t ring, mn_engine **out,
                           mn_error *err);
void mn_engine_free(mn_engine *e); /* waits for what is enqueued */

/* Enqueues: the packed inputs (NULL = unchanged since the last step), one step, and the read of n_outputs ids into place
 * `at` of the ring. *event is the caller's. */
mn_status mn_engine_submit(mn_engine *e, const int32_t *inputs, const int64_t symbols[MN_SYM_COUNT], uint32_t at,
                           mn_event **event, mn_error *err);
/* Waits at most timeout_ns; MN_TIMEOUT = not yet (event kept). Otherwise the event is freed. */
mn_status mn_engine_wait(mn_engine *e, mn_event **event, uint64_t timeout_ns, mn_error *err);
const int32_t *mn_engine_ids(const mn_engine *e, uint32_t at); /* [n_outputs] */

/* All in queue order. */
mn_status mn_engine_reset_slot(mn_engine *e, uint32_t slot, const mn_slot *state, const mn_slot_params *params,
                               mn_error *err);
mn_status mn_engine_write_history(mn_engine *e, uint32_t slot, const int32_t *ids, uint32_t n, mn_error *err);
mn_status mn_engine_copy_page(mn_engine *e, mn_page_copy copy, mn_error *err);

/* Binds or unbinds the logits. While bound, mn_engine_logits copies those of the last step (after its wait). */
mn_status mn_engine_want_logits(mn_engine *e, bool want, mn_error *err);
mn_status mn_engine_logits(mn_engine *e, uint32_t n_rows, const float **rows, mn_error *err);
#endif
