/* engine_impl.h -- what an engine is made of: one record per device, one per segment, one per
 * tensor that crosses. Seen by engine/ alone. */
#ifndef MN_ENGINE_IMPL_H
#define MN_ENGINE_IMPL_H
#include "engine/engine.h"
#include "negotiate/crossing.h"
#include "memory_uses.h"
#include "usual.h"
#include <string.h>

/* One device of the placement: a queue, and what its segments share. */
typedef struct mn_engine_device {
    const mn_device_record *record;
    const mn_backend *backend;
    mn_device *device;
    mn_queue *queue;
    bool unified; /* its buffers can be mapped */
    /* what the nodes of its segments remember; kv: page_bytes 0 = nothing of the group here */
    mn_memory_uses memory;
    mn_memory_layout kv[MN_MAX_KV_GROUP];
    uint64_t group_bytes[MN_MAX_KV_GROUP];
    mn_buffer *pages_kv[MN_MAX_KV_GROUP];
    uint32_t row_pages;               /* as in mn_engine, by its own pages */
    int64_t symbol_max[MN_SYM_COUNT]; /* with its own pages */
    mn_input_layout in;
    int32_t *packed; /* the inputs with its own page table; NULL: the caller's block serves */
    mn_buffer *inputs, *slots, *history, *params;
    /* blocks of inputs in pinned memory, one per step in flight; NULL: inputs are written */
    mn_buffer *pinned;
    int32_t *pinned_map;
    /* [graph's n_tensors]: ids, logits if wanted, and what crosses segments; by root. What crosses
     * lies in `places`, [n_places of mn_engine], NULL where the place is another device's */
    mn_buffer **at, **places;
    mn_buffer *staging; /* host-pinned, for what leaves a device that cannot be mapped */
    void *staging_map;
    void *given; /* what a write is given: a copy of the host's bytes, or of another device's */
    size_t given_cap;
    bool says_changes; /* the log has said that its execute changes the arithmetic */
} mn_engine_device;

/* Nodes [node_lo, node_hi) on one device. */
typedef struct mn_engine_segment {
    uint32_t device, node_lo, node_hi, precision, k_dtype, v_dtype, row_grain, kept_how;
    uint64_t weight_bytes, scratch_bytes;
    mn_weights *weights;
    mn_held *held; /* the weight set that other sessions may share; NULL: none may */
    mn_program *program;
    mn_context *context;
    mn_sealed *pages;             /* what the program was compiled of */
    double row_us;                /* as in mn_segment */
    int64_t stream_group;         /* likewise */
    bool is_mapped;               /* other devices read what it makes through a map */
    mn_event *done;               /* of the step, where is_mapped: until the first of them reads */
    uint32_t *tensors, n_tensors; /* what its nodes read and write but weights: roots, each once */
} mn_engine_segment;

/* Rows of a step go from one device's buffer to another's: read once segment `made` is enqueued,
 * and there before segment `before` runs. */
typedef struct mn_transfer {
    uint32_t tensor, from, to, made, before;
    const void *map;                /* of the source; NULL = read it */
    uint64_t staged_at, staged_end; /* where in the staging memory of the source */
    mn_event *read;                 /* of the step: this read and those in front of it are over */
} mn_transfer;

/* A call that fails with MN_CLASS_TRANSIENT is made again, a bounded number of times. */
#define MN_RETRIES 8
#define MN_RETRY(st, call)                                                                         \
    do {                                                                                           \
        for (uint32_t tries_ = 0; ((st) = (call)) && tries_ < MN_RETRIES; tries_++)                \
            if (MN_STATUS_CLASS(st) != MN_CLASS_TRANSIENT)                                         \
                break;                                                                             \
    } while (0)

/* The step of one call: a copy, with the symbol values, which the host does not read after it. */
typedef struct {
    mn_step step;
    int64_t value[MN_SYM_COUNT];
} mn_given_step;
static inline const mn_step *mn_step_give(mn_given_step *copy, uint32_t set,
                                          const int64_t *values) {
    memcpy(copy->value, values, sizeof copy->value);
    copy->step = mn_usual_step(set, copy->value);
    return &copy->step;
}

/* The device of the last segment: slots, history and ids are there. */
static inline uint32_t mn_engine_output_index(const mn_engine *e) {
    return e->segments[e->n_segments - 1].device;
}
/* For MN_WATCHED around calls of its plugin. */
static inline const mn_callee *mn_callee_of(const mn_engine_device *d) {
    return d->record->plugin->callee;
}
static inline mn_engine_device *mn_engine_output_device(const mn_engine *e) {
    return &e->devices[mn_engine_output_index(e)];
}

/* ---- engine.c -------------------------------------------------------------------------------- */
/* keeps the fault; gives st back */
mn_status mn_engine_note(mn_engine *e, uint32_t device, mn_status st);
/* kind: MN_MEM_*, with MN_UNZEROED where the contents may be anything. */
#define MN_UNZEROED 0x100u
mn_status mn_engine_alloc(mn_engine *e, uint32_t device, uint64_t bytes, uint32_t kind,
                          mn_buffer **out, mn_error *err);

/* ---- layout.c: the packed block -------------------------------------------------------------- */
void mn_inputs_lay_out(const int64_t *symbol_max, const mn_model_graph *g, mn_input_layout *l);
/* How many pages of the device make one of the caller's. */
static inline uint32_t mn_page_ratio(const mn_engine *e, const mn_engine_device *d,
                                     uint32_t group) {
    const uint32_t own = d->kv[group].page_tokens;
    return own ? e->group[group].page_tokens / own : 1;
}
/* The caller's pages into the device's own: page p becomes pages p * ratio, p * ratio + 1 ... */
void mn_inputs_expand(const mn_engine *e, mn_engine_device *d, const int32_t *packed);

/* ---- adapters.c ------------------------------------------------------------------------------ */
/* The state of adapters that the device's segments read. */
mn_status mn_engine_adapters_create(mn_engine *e, uint32_t device, mn_error *err);

/* ---- memory.c: what sequences remember on a device ------------------------------------------- */
/* Layouts of all groups of the device, once its segments are listed. */
mn_status mn_engine_memory_ask(mn_engine *e, uint32_t device, mn_error *err);
/* The buffers, once it is known how many pages there are. */
mn_status mn_engine_memory_create(mn_engine *e, uint32_t device, mn_error *err);
void mn_engine_memory_free(mn_engine_device *d);

/* ---- segment.c ------------------------------------------------------------------------------- */
mn_status mn_engine_segment_create(mn_engine *e, mn_engine_segment *s, mn_error *err);
/* The sets of bindings: without the logits, and with them. */
enum { MN_SET_PLAIN, MN_SET_LOGITS };
/* set: under which number; content: what it holds. */
mn_status mn_engine_segment_bind(mn_engine *e, const mn_engine_segment *s, uint32_t set,
                                 uint32_t content, mn_error *err);
/* The same with any bindings, of a context of its device. */
mn_status mn_engine_context_bind(mn_engine *e, const mn_engine_segment *s, mn_context *context,
                                 uint32_t set, const mn_binding *bindings, uint32_t n,
                                 mn_error *err);
mn_status mn_engine_segment_prepare(mn_engine *e, mn_engine_segment *s, const int64_t *symbols,
                                    mn_error *err);
mn_status mn_engine_segment_execute(mn_engine *e, mn_engine_segment *s, const mn_engine_step *x,
                                    mn_event **event, mn_error *err);
/* A program of some or all of its nodes, with a set of bindings. */
mn_status mn_engine_context_execute(mn_engine *e, const mn_engine_segment *s, mn_context *context,
                                    uint32_t set, const mn_engine_step *x, mn_event **event,
                                    mn_error *err);
/* About how long a step with these symbol values takes there. */
uint64_t mn_engine_segment_ns(const mn_engine_segment *s, const int64_t *symbols);
void mn_engine_segment_free(mn_engine *e, mn_engine_segment *s);

/* Lists the tensors of its nodes. */
mn_status mn_engine_segment_list(const mn_engine *e, mn_engine_segment *s, mn_error *err);
/* The segment as input of the device's supports, estimate and compile, in sealed pages that *owner
 * holds. NULL: out of memory, and err is filled. */
const mn_compile *mn_engine_segment_question(const mn_engine *e, const mn_engine_segment *s,
                                             const mn_model_graph *graph, mn_sealed **owner,
                                             mn_error *err);
/* Bindings of one set; how many, at most n_tensors + 1. */
uint32_t mn_engine_segment_bindings(const mn_engine *e, const mn_engine_segment *s, uint32_t set,
                                    mn_binding *to);

/* ---- parts.c: the last segment in two: SAMPLE, and what is in front of it -------------------- */
typedef struct mn_engine_parts {
    /* Both have the last segment's weights and pages. front: program NULL: it has no node. The
     * programs of sample are those of mn_engine. */
    mn_engine_segment front, sample;
} mn_engine_parts;
/* Once per engine. */
mn_status mn_engine_parts_create(mn_engine *e, mn_error *err);
void mn_engine_parts_free(mn_engine *e);
/* Whether the step runs in parts. */
static inline bool mn_engine_in_parts(const mn_engine_step *x) {
    return x->run >= MN_RUN_MASKS;
}

/* ---- sampler.c: SAMPLE on another device ----------------------------------------------------- */
void mn_engine_sampler_free(mn_engine *e);
/* Draws for the step's rows of the sampler, behind what is enqueued. */
mn_status mn_sampler_draw(mn_engine *e, const mn_engine_step *x, mn_error *err);

/* ---- scoring.c ------------------------------------------------------------------------------- */
/* The operands of programs that score; once per engine. */
mn_status mn_engine_scoring_create(mn_engine *e, mn_error *err);
/* The program with drafts, if there is one, gets its second set of bindings. */
mn_status mn_engine_drafts_bind_logits(mn_engine *e, mn_error *err);
void mn_engine_programs_free(mn_engine *e);
mn_status mn_engine_read_scores(mn_engine *e, const mn_engine_step *step, mn_event **done,
                                mn_error *err);

/* ---- run.c ----------------------------------------------------------------------------------- */
/* src is free again on return and unchanged: the plugin received a copy. */
mn_status mn_engine_write(mn_engine_device *d, mn_buffer *b, uint64_t at, const void *src,
                          uint64_t bytes, mn_error *err);
/* Writes the changed ranges of the caller's block to every device. A device with smaller pages gets
 * page tables of its own, and then the whole block. */
mn_status mn_engine_write_inputs(mn_engine *e, const mn_engine_step *x, mn_error *err);
/* n rows of a SHAPE symbol as a device with this row_grain wants them. */
int64_t mn_engine_round(int64_t n, uint32_t grain, int64_t max);
bool mn_id_exists(const mn_engine *e, int32_t id); /* in the vocabulary */
/* The rest on the device of the last segment, in queue order. */
mn_status mn_engine_write_output(mn_engine *e, mn_buffer *b, uint64_t at, const void *src,
                                 uint64_t n, mn_error *err);
/* done: may be NULL */
mn_status mn_engine_read_output(mn_engine *e, mn_buffer *from, mn_buffer *to, uint64_t at,
                                uint64_t bytes, mn_event **done, mn_error *err);

/* ---- hidden.c -------------------------------------------------------------------------------- */
/* Behind mn_boundary_create: buffers of what crosses segments are used. MN_UNSUPPORTED: a head that
 * is placed in several segments. */
mn_status mn_engine_hidden_create(mn_engine *e, mn_error *err);
void mn_engine_hidden_free(mn_engine *e);
/* In front of the step, and behind its last segment. */
mn_status mn_engine_write_hidden(mn_engine *e, const mn_engine_step *x, mn_error *err);
/* done: NULL: another read is behind it on the device of the last segment. */
mn_status mn_engine_read_hidden(mn_engine *e, const mn_engine_step *x, mn_event **done,
                                mn_error *err);
/* Whether the step reads hidden states, on the queue of the last segment's device. */
static inline bool mn_engine_tells(const mn_engine *e, const mn_engine_step *x) {
    return x->hidden && e->hidden.host && e->hidden.device == mn_engine_output_index(e);
}

/* ---- pages.c --------------------------------------------------------------------------------- */
void mn_engine_places_free(mn_engine *e);

/* ---- profile.c ------------------------------------------------------------------------------- */
/* Executes the segment through mn.profile/1 of its device; its units follow the units of the
 * engine. set: of bindings; symbols: with the device's own pages. */
mn_status mn_engine_segment_profile(mn_engine *e, const mn_engine_segment *s, mn_context *context,
                                    uint32_t set, const int64_t *symbols, mn_error *err);

/* ---- stream.c, stream_run.c: experts of a CPU, computed on a card ---------------------------- */
/* Behind what tensors are bound to; of a plan without rows nothing is made. */
mn_status mn_engine_stream_create(mn_engine *e, const mn_stream_plan *plan, mn_error *err);
void mn_engine_stream_free(mn_engine *e);
/* Around the segments of a step: whether it has enough rows is decided in begin. */
void mn_stream_begin(mn_engine *e, const mn_engine_step *x);
void mn_stream_end(mn_engine *e);
/* Whether the segment is streamed in this step, which then runs instead of it. */
bool mn_stream_has(const mn_engine *e, uint32_t segment);
mn_status mn_stream_run(mn_engine *e, uint32_t segment, const mn_engine_step *x, mn_error *err);
/* Whether what the transfer moves stays on the card in this step. */
bool mn_stream_skips(const mn_engine *e, const mn_transfer *t);

/* ---- boundary.c ------------------------------------------------------------------------------ */
/* finds what crosses; allocates both sides */
mn_status mn_boundary_create(mn_engine *e, mn_error *err);
/* What the segment has made is read, without waiting for it. */
mn_status mn_boundary_fetch(mn_engine *e, uint32_t made, const int64_t *symbols, mn_error *err);
/* Waits for the reads that the segment needs, and hands the rows to its device. */
mn_status mn_boundary_move(mn_engine *e, uint32_t before, const int64_t *symbols, mn_error *err);
/* Waits for the read of one transfer, which the host reads: *rows. Of the others to its segment,
 * for what makes them, where they are mapped. */
mn_status mn_boundary_rows(mn_engine *e, const mn_transfer *t, const int64_t *symbols,
                           const void **rows, mn_error *err);
/* The events of a step that failed. */
void mn_boundary_drop(mn_engine *e);
/* Waits in slices until the event is over, in about expected_ns, and frees it. A device that does
 * not finish in ten minutes counts as lost. */
mn_status mn_event_settle(const mn_backend *b, const mn_callee *callee, uint64_t expected_ns,
                          mn_event **event, mn_error *err);
#endif
