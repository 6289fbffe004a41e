/* gpu_host.h -- what a GPU backend supplies, and what it gets for it. The backend fills one
 * mng_backend: facts of its devices, memory, queues and events, its weight types, one row for each
 * operation (gpu_ops.h), and optional hooks around what gpu_host does by itself. gpu_host then is
 * the whole mn_backend: devices, verdicts, estimates, buffers in parts, transfers through a pinned
 * ring, import of weights, KV pages, programs, contexts, views, profiles.
 *
 * CUDA graphs, OpenCL command buffers and the like stay in the backend, in its `step`.
 *
 * Hooks: called on the thread of the mn_backend function that needs them, under no lock of
 * gpu_host. NULL where a line says "optional". Errors: a status, with the message in err, which may
 * be NULL. gpu_host calls `enter` before any other hook that is given a device, queue, program or
 * context, once in each mn_backend function; of functions that are given a queue and buffers, with
 * the device of the queue. */
#ifndef MNG_GPU_HOST_H
#define MNG_GPU_HOST_H
#include "gpu_ops.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Limits of the kernels. */
typedef struct {
    mnp_kv_rules kv;      /* pages, padding of heads, the longest head */
    uint32_t max_experts; /* of a routed layer */
    uint32_t max_taps;    /* of CONV_STATE; 0: any number */
    uint32_t max_state;   /* numbers of a column of SSM_SCAN and GATED_DELTA; 0: any */
    uint32_t view_align;  /* elements: dense views that begin at others are copied; 0: 1 */
    uint32_t slack;       /* bytes behind the scratch: kernels read whole vectors */
    uint32_t segments;    /* of a queue's ring, up to MNG_SEGMENTS; 0: so many */
} mng_limits;

/* How device memory is allocated. */
enum {
    MNG_ZEROED,
    MNG_WRITTEN /* written before it is read: need not be zeroed */
};

struct mng_backend {
    /* ---- the plugin ---- */
    const char *id;
    const char *vendor;
    const char *version;
    uint32_t plugin_bytes; /* of the backend's struct that begins with mng_plugin */
    uint32_t device_bytes;
    uint32_t queue_bytes;
    uint32_t program_bytes;
    uint32_t context_bytes;
    mng_limits limits;
    /* optional: at entry, without touching a driver; at shutdown */
    mn_status (*init)(mng_plugin *p, mn_error *err);
    void (*fini)(mng_plugin *p);
    /* optional: tables beside mn.backend and mn.profile; NULL: none of this id */
    const void *(*query)(mng_plugin *p, const char *id);
    /* optional: in the place of mng_table, mng_profile and mng_moves, for backends with several
     * kinds of devices */
    const mn_backend *table;
    const mn_profile *profile;
    const mn_kv_moves *moves;
    /* (moves.h) NULL: rows of a head lie one behind the other, blocks of Q8_0 whole */
    const struct mnp_rows *rows;
    mnp_state_cols state_cols; /* how states lie in pages */

    /* ---- facts ---- */
    mn_status (*device_count)(mng_plugin *p, uint32_t *n, mn_error *err);
    /* info: zeroed, with size and align 256; i is below the count */
    mn_status (*device_info)(mng_plugin *p, uint32_t i, mn_device_info *info, mn_error *err);
    /* fills the backend's part of d, whose base is filled; after an error device_close is called */
    mn_status (*device_open)(mng_plugin *p, uint32_t i, mn_device *d, mn_error *err);
    /* frees what device_open made; also of a device that is half open */
    void (*device_close)(mn_device *d);
    mn_status (*device_memory)(mn_device *d, uint64_t *free_bytes, uint64_t *total, mn_error *err);
    mn_status (*self_test)(mn_device *d, mn_error *err);
    /* optional: makes the device the calling thread's */
    mn_status (*enter)(const mn_device *d, mn_error *err);

    /* ---- memory ---- */
    /* device memory, how: MNG_ZEROED or MNG_WRITTEN; bytes may be 0. what: for the message */
    mn_status (*memory_alloc)(mn_device *d, uint64_t bytes, uint32_t how, const char *what,
                              void **mem, mn_error *err);
    void (*memory_free)(mn_device *d, void *mem);
    /* pinned memory of the host, zeroed, at *host for its whole life */
    mn_status (*pinned_alloc)(mn_device *d, uint64_t bytes, void **mem, char **host, mn_error *err);
    void (*pinned_free)(mn_device *d, void *mem, char *host);
    /* optional: memory of the host's as pinned memory, where it is, and its end; NULL: wrap is
     * MN_UNSUPPORTED, and the devices have no MN_DEVICE_WRAPS. host: at a multiple of MNG_ALIGN */
    mn_status (*wrap)(mn_device *d, char *host, uint64_t bytes, void **mem, mn_error *err);
    void (*unwrap)(mn_device *d, void *mem, char *host);

    /* ---- queues ---- */
    /* fills the backend's part of q; after an error queue_close is called */
    mn_status (*queue_open)(mn_queue *q, mn_error *err);
    void (*queue_close)(mn_queue *q); /* no work of it is in flight */
    /* waits until all work in the queue is complete */
    mn_status (*queue_finish)(mn_queue *q, mn_error *err);
    /* optional: starts the work in the queue, without waiting */
    mn_status (*queue_flush)(mn_queue *q, mn_error *err);
    /* Copies in the queue, which do not wait. host: pinned, within one buffer of it, whose handle
     * is not passed. event: as in event_record, behind this copy; NULL: none is wanted. */
    mn_status (*copy_in)(mn_queue *q, mng_ref to, const char *host, uint64_t n, void **event,
                         mn_error *err);
    mn_status (*copy_out)(mn_queue *q, char *host, mng_ref from, uint64_t n, mn_error *err);
    /* the ranges are apart */
    mn_status (*copy)(mn_queue *q, mng_ref to, mng_ref from, uint64_t n, mn_error *err);
    /* with mng_device.maps alone: n bytes of device memory as the host's, for writing; and back */
    mn_status (*map)(mn_queue *q, mng_ref at, uint64_t n, void **host, mn_error *err);
    mn_status (*unmap)(mn_queue *q, mng_ref at, void *host, mn_error *err);

    /* ---- events: handles of the backend ---- */
    /* Puts an event behind all work in the queue into *event, and starts that work without waiting.
     * *event before: NULL, or an earlier event to be reused or freed; its queue may not have
     * reached it, but no caller waits for it any more */
    mn_status (*event_record)(mn_queue *q, void **event, mn_error *err);
    /* optional: an event before its first record, so that a step makes none */
    mn_status (*event_make)(mn_device *d, void **event, mn_error *err);
    mn_status (*event_poll)(mn_device *d, void *event, bool *passed, mn_error *err);
    mn_status (*event_wait)(mn_device *d, void *event, mn_error *err);
    /* later work of the queue waits for the event */
    mn_status (*event_join)(mn_queue *q, void *event, mn_error *err);
    void (*event_free)(mn_device *d, void *event);
    /* optional, for devices with has_words: what the queue does later waits at a gate, which
     * gate_open opens once, on a thread of gpu_host's that entered the device; the gate is the
     * backend's again then. Never a kernel that spins */
    mn_status (*gate_close)(mn_queue *q, void **gate, mn_error *err);
    void (*gate_open)(mn_device *d, void *gate);
    /* optional: the device writes a word of pinned memory behind what the queue did so far; NULL:
     * the host does, and the queue waits for it at a gate */
    mn_status (*word_write)(mn_queue *q, mng_ref word, uint32_t value, mn_error *err);
    /* optional: once the event has passed fn(arg, status) is called once, from any thread, with
     * MN_OK or with what event_poll would return; the event may be freed or recorded again
     * meanwhile. After an error it is not called. NULL: event_on_ready is MN_UNSUPPORTED */
    mn_status (*event_tell)(mn_device *d, void *event, void (*fn)(void *arg, mn_status), void *arg,
                            mn_error *err);
    bool events_once; /* an event holds resources: it is freed with its mn_event, not kept */

    /* ---- weights ---- */
    /* optional: why a matrix of the tensor's type or size cannot be kept; NULL: whatever dtype/
     * unpacks can */
    uint32_t (*weight_verdict)(const mn_device *d, const mn_tensor *t);
    /* Of a weight with rows, cols, group_rows, flat, one part: fills type, ld, row_bytes, planes
     * and part_bytes; may split it into parts. */
    void (*weight_shape)(const mn_device *d, const mn_tensor *t, mng_weight *w);
    /* the source's rows to the device; s: at the first row. Called at once for several weights,
     * each with a queue of its own, where the device says MN_DEVICE_PARALLEL_PUT */
    mn_status (*weight_put)(mn_queue *q, const mng_weight *w, const mnp_source_row *s,
                            mn_error *err);
    uint32_t (*weight_kept)(const mng_weight *w); /* optional: MN_KEPT_*; NULL: COPIED */
    bool weights_together; /* one allocation for all, at open: where the driver rounds each up */

    /* ---- operations ---- */
    const mng_op *const *ops;
    uint32_t n_ops; /* up to MNG_MAX_OPS */

    /* ---- programs: all optional ---- */
    /* the class that a program of c runs in; NULL: exact */
    uint32_t (*precision)(const mn_compile *c);
    /* which nodes make one unit; NULL: each node is one */
    const mnp_pattern *const *(*patterns)(const mn_device *d, uint32_t *n);
    /* of a pattern of the backend's own, which mnp_taken_in does not know: fills u */
    void (*unit_of)(const mnp_unit *m, mng_unit *u);
    /* before anything is planned: allocates the backend's part; as: of mng_compile_as */
    mn_status (*program_begin)(mn_program *p, const mn_compile *c, const void *as, mn_error *err);
    /* corrects p->uses, before the lowering (mnp_shard_uses) */
    void (*program_uses)(mn_program *p);
    /* behind the lowering; lowered: [n_units] what the units were made of */
    mn_status (*program_lowered)(mn_program *p, const mnp_unit *lowered, mn_error *err);
    /* marks tensors that live at time i beside those of unit i's nodes (mnp_arena_live) */
    void (*program_live)(mn_program *p, uint32_t i);
    /* bit i: need i is only for kernels, which find there what an earlier step left (counters at
     * 0); all others are written in the step that reads them */
    uint32_t kept_needs;
    /* adds needs of the program itself; called before the needs of its nodes */
    void (*program_needs)(mn_program *p, mng_needs *needs);
    void (*program_free)(mn_program *p); /* also of a program that is half made */
    /* times, row_grain, flags, peak of the import; streamed: bytes of weights that a step of one
     * row reads. The rest of e is filled */
    void (*estimate)(const mn_program *p, double streamed, mn_estimate *e);

    /* ---- contexts and steps: all optional ---- */
    /* the room is allocated, MNG_WRITTEN, and may be that of other contexts of the queue, between
     * two of their steps: zeroes what kernels expect to be zero, its first room->base bytes */
    mn_status (*context_open)(mn_context *c, mn_error *err);
    void (*context_close)(mn_context *c); /* the queue is finished; also of one that is half open */
    /* called before a set is bound anew: drops what holds its addresses */
    void (*context_rebind)(mn_context *c, uint32_t set);
    /* A step of c->symbol, begun: sizes are not checked yet (mng_check_sizes). dry: prepare.
     * NULL: mng_check_sizes and mng_run_units. Graphs of the vendor are found, captured around
     * mng_run_units and launched here. */
    mn_status (*step)(mn_context *c, bool dry, mn_error *err);
    /* sets r->step, which lives as long as the context */
    void (*run_begin)(mng_run *r);
    /* enqueues what launches have collected */
    void (*run_flush)(mng_run *r);
    /* another unit runs unit i in this step */
    bool (*unit_absorbed)(const mng_run *r, uint32_t i);
    /* around the launch of unit i; views: some were copied */
    void (*unit_begin)(mng_run *r, uint32_t i);
    void (*unit_end)(mng_run *r, uint32_t i, bool views);
    /* nodes that the unit runs beside its own in this step: appended; the new number */
    uint32_t (*unit_nodes)(const mng_run *r, const mng_unit *u, int32_t *nodes, uint32_t n);
    /* not optional: an element-wise copy of a view */
    void (*copy_view)(mng_run *r, const mng_view *v);
};

/* The body of minerva_plugin_entry. NULL: err says why. */
const mn_plugin *mng_plugin_entry(const mn_host *host, const mng_backend *b, mn_error *err);

/* ---- the tables: contracts in minerva/plugin.h ----------------------------------------------- */
extern const mn_backend mng_table;
extern const mn_profile mng_profile;
extern const mn_kv_moves mng_moves;

#ifdef __cplusplus
}
#endif
#endif
