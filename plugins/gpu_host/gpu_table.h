/* gpu_table.h -- the functions of mng_table, by file, for the files of gpu_host and for a backend
 * that has a table of its own beside it. Contracts: minerva/plugin.h. */
#ifndef MNG_GPU_TABLE_H
#define MNG_GPU_TABLE_H
#include "gpu_host.h"
#ifdef __cplusplus
extern "C" {
#endif

static inline const mng_backend *mng_backend_of(const mn_device *d) {
    return mng_device_of(d)->backend;
}
/* Segments of a queue's ring. */
static inline uint32_t mng_segments(const mng_backend *b) {
    return b->limits.segments ? b->limits.segments : (uint32_t)MNG_SEGMENTS;
}
/* Makes the device the calling thread's, where the backend wants that. */
static inline mn_status mng_enter(const mn_device *d, mn_error *err) {
    const mng_backend *b = mng_backend_of(d);
    return b->enter ? b->enter(d, err) : MN_OK;
}

/* MN_INVALID: an argument belongs to another device; what: its name, "the queue". */
mn_status mng_check_device(const mn_device *own, const mn_device *of, const char *what, mn_error *);
/* The same for a buffer; pinned memory belongs to the host, whichever device made it. */
mn_status mng_check_buffer(const mn_device *own, const mn_buffer *b, mn_error *err);

/* ---- device.c -------------------------------------------------------------------------------- */
mn_status mng_device_count(void *, uint32_t *, mn_error *);
mn_status mng_device_info(void *, uint32_t, mn_device_info *, mn_error *);
mn_status mng_device_open(void *, uint32_t, const mn_open_params *, mn_device **, mn_error *);
void mng_device_close(mn_device *);
mn_status mng_device_memory(mn_device *, uint64_t *, uint64_t *, mn_error *);
mn_status mng_self_test(mn_device *, mn_error *);

/* ---- memory.c -------------------------------------------------------------------------------- */
mn_status mng_alloc(mn_device *, const mn_alloc_params *, mn_buffer **, mn_error *);
mn_status mng_wrap(mn_device *, void *, uint64_t, mn_buffer **, mn_error *);
void mng_buffer_free(mn_buffer *);
mn_status mng_map(mn_buffer *, void **, mn_error *);

/* ---- queue.c --------------------------------------------------------------------------------- */
mn_status mng_queue_create(mn_device *, const mn_queue_params *, mn_queue **, mn_error *);
void mng_queue_free(mn_queue *);
mn_status mng_write(mn_queue *, mn_buffer *, uint64_t, const void *, uint64_t, mn_error *);
mn_status mng_read(mn_queue *, const mn_buffer *, uint64_t, mn_buffer *, uint64_t, uint64_t,
                   mn_event **, mn_error *);
mn_status mng_copy(mn_queue *, mn_buffer *, uint64_t, const mn_buffer *, uint64_t, uint64_t,
                   mn_event **, mn_error *);
mn_status mng_abort(mn_queue *);

/* ---- event.c --------------------------------------------------------------------------------- */
mn_status mng_wait(mn_event *, uint64_t, mn_error *);
mn_status mng_queue_wait(mn_queue *, mn_event *, mn_error *);
void mng_event_free(mn_event *);
mn_status mng_event_on_ready(mn_event *, void (*fn)(void *arg, mn_status), void *arg, mn_error *);
/* Of a device that is closed: its spares, with what the backend made for them. */
void mng_events_drop(mn_device *d);

/* A pause of a thread that polls, i: how often it did; past_ns: for how long. None at first, since
 * a step is short; it sleeps after the device's patience. */
void mng_pause(const mng_device *d, uint64_t past_ns, uint32_t i);

/* ---- words.c --------------------------------------------------------------------------------- */
/* Whether the words of a step lie where words may. */
mn_status mng_words_check(const mn_context *c, const mn_step *step, mn_error *err);
/* Runs the step (dry: false) between its words, which are checked. */
mn_status mng_words_around(mn_context *c, const mn_step *step,
                           mn_status (*run)(mn_context *, bool dry, mn_error *), mn_error *err);
/* No word of the queue, or in the buffer, is watched any more. Behind mng_enter. */
void mng_watch_forget_queue(const mn_queue *q);
void mng_watch_forget_buffer(const mn_buffer *b);
void mng_watch_free(mn_device *d);

/* ---- weights.c ------------------------------------------------------------------------------- */
mn_status mng_weights_open(mn_device *, const mn_compile *, mn_weights **, mn_error *);
mn_status mng_weights_put(mn_weights *, mn_queue *, const mn_weight_src *, mn_event **, mn_error *);
mn_status mng_weights_seal(mn_weights *, mn_queue *, uint32_t *, mn_error *);
void mng_weights_free(mn_weights *);

/* ---- kv.c ------------------------------------------------------------------------------------ */
mn_status mng_memory_layout(mn_device *, const mn_compile *, uint32_t, mn_memory_layout *,
                            mn_error *);
mn_status mng_memory_copy(mn_queue *, mn_buffer *, const mn_memory_layout *, const mn_page_copy *,
                          uint32_t, uint32_t, mn_event **, mn_error *);
/* The class that a program of c runs in. */
uint32_t mng_precision(const mng_backend *b, const mn_compile *c);

/* ---- verdict.c ------------------------------------------------------------------------------- */
mn_status mng_contracts(void *, const mn_op_contract **, uint32_t *, uint32_t *);
mn_status mng_supports(mn_device *, const mn_compile *, mn_verdict *, uint32_t, mn_error *);
mn_status mng_reason(void *, uint32_t, char *, uint32_t);
/* The text of a reason, [room]. */
void mng_reason_text(const mng_backend *b, uint32_t reason, char *to, size_t room);

/* ---- program.c ------------------------------------------------------------------------------- */
mn_status mng_estimate(mn_device *, const mn_compile *, mn_estimate *, mn_error *);
mn_status mng_compile(mn_device *, const mn_compile *, mn_program **, mn_error *);
void mng_program_free(mn_program *);
mn_status mng_program_save(const mn_program *, void *, uint64_t *);

/* ---- scratch.c ------------------------------------------------------------------------------- */
/* The scratch of a new context: the queue's, if it is large enough or can still grow, else one that
 * later contexts of the queue share. */
mn_status mng_room_join(mn_context *, mn_error *);
/* The queue is finished. Frees the room behind its last context. */
void mng_room_leave(mn_context *);

/* ---- context.c ------------------------------------------------------------------------------- */
mn_status mng_context_create(mn_program *, const mn_context_params *, mn_context **, mn_error *);
mn_status mng_context_bind(mn_context *, uint32_t, const mn_binding *, uint32_t, uint32_t,
                           mn_error *);
mn_status mng_context_prepare(mn_context *, const mn_step *, mn_error *);
mn_status mng_execute(mn_context *, const mn_step *, mn_event **, mn_error *);
void mng_context_free(mn_context *);

#ifdef __cplusplus
}
#endif
#endif
