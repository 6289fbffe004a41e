/* mnc.h -- what the files of cpu_host share; no op and no plugin sees it. */
#ifndef MNC_INTERNAL_H
#define MNC_INTERNAL_H
#include "cpu_host.h"
#include "numa.h"
#include <stdatomic.h>
#include <string.h>

#define MNC_ALIGN 64u
/* Areas of shared scratch that nodes take in turn: of two in one phase each has its own. */
#define MNC_SHARED 2u
#ifndef MNC_PAGE_TOKENS /* a test's stub has others */
#define MNC_PAGE_TOKENS 64u
#endif

typedef struct {
    mn_plugin api;
    const mn_host *host;
    const mnc_ops *ops;
    void *self;
    mnc_numa *numa; /* NULL: memory of one node, or treated as such */
} mnc_plugin;

struct mn_event {
    uint32_t unused;
};
struct mn_device {
    mnc_plugin *plugin;
    struct mn_event done; /* everything is synchronous: one event, always over, serves all */
};
struct mn_buffer {
    mn_device *dev;
    uint8_t *ptr;
    uint64_t bytes;
    bool owned;  /* ptr is the host's memory, freed with the buffer */
    bool mapped; /* ptr is pages of our own, given back with the buffer */
};
struct mn_queue {
    mn_device *dev;
    atomic_bool aborted;
};

/* Of a weight of which a set holds some of the experts (experts.c). */
typedef struct mnc_room mnc_room;

typedef struct {
    mnc_weight w;
    mnc_room *room; /* NULL: all of them */
    void *copy;
    uint64_t copy_bytes; /* of pages of the system's; 0: copy is memory of the host */
    void *groups;
    uint8_t *repack_to; /* where a second layout goes; NULL: there is none */
    bool wanted;
    bool put;
} mnc_kept;
struct mn_weights {
    mn_device *dev;
    const mn_graph *graph;
    uint32_t precision;
    _Atomic uint32_t kept_how; /* MN_KEPT_*; puts of several threads add to it */
    uint8_t *repacked;         /* second layouts, or NULL */
    uint64_t repacked_bytes;
    bool updates; /* MN_COMPILE_UPDATES: nothing of a source is used in place */
    bool sealed;
    uint32_t n;      /* graph->n_tensors */
    mnc_kept kept[]; /* by tensor */
};

/* One node that runs, in order. */
typedef struct {
    uint32_t node;
    mnc_op op;
    mnp_kv kv;          /* KV_STORE and ATTENTION */
    mnp_state state;    /* CONV_STATE, SSM_SCAN and GATED_DELTA */
    uint64_t shared_at; /* behind the arena: where mnc_call.shared begins */
} mnc_step;
struct mn_program {
    mn_device *dev;
    const mn_graph *graph;
    const mnc_kept **kept; /* [n_tensors] entries of the weight set; NULL where it has none */
    uint32_t lo;
    uint32_t hi;
    uint32_t precision;
    uint32_t n_workers;
    uint32_t n_steps;
    uint32_t n_sets;
    bool updates; /* asked of estimate */
    uint64_t arena_bytes;
    uint64_t shared_bytes; /* MNC_SHARED areas of the largest mnc_op.shared_bytes */
    uint64_t worker_bytes;
    int64_t *symbol_max;         /* [n_symbols] */
    mnc_step *steps;             /* [hi - lo] */
    mnp_allocation *allocations; /* [n_tensors] */
};

/* Bytes of a context's scratch before worker i's: the arena, the shared areas, other workers'. */
static inline uint64_t mnc_worker_scratch(const mn_program *p, uint32_t i) {
    return p->arena_bytes + p->shared_bytes + i * p->worker_bytes;
}

/* One set of bindings, and what follows from it. */
typedef struct {
    int64_t *symbol; /* [n_symbols] values that the calls are filled for */
    bool bound;
    bool filled;
    mn_binding *bindings; /* [n_tensors]; buffer NULL = not bound */
    mnc_call *calls;      /* [n_steps] */
    uint32_t *active;     /* [n_steps] calls to run */
    uint32_t n_active;
    /* [2 * n_steps] by stage, 2 * index into active + MNC_FIRST or MNC_MAIN: runs in one phase with
     * the stage before */
    bool *joins;
} mnc_set;

/* The phase that a thread was in last; a line of the cache for each. */
typedef struct {
    _Alignas(64) uint64_t phase;
} mnc_last;

/* What a profile notes of a call (profile.c). */
typedef struct {
    uint64_t time_ns;
    uint64_t positions; /* of the cache that it reads or writes */
    uint64_t pairs;     /* ATTENTION: of a row and a position that it sees */
} mnc_note;

struct mn_context {
    mn_program *prog;
    mn_queue *queue;
    /* Of the step that runs: the phase at work, its stages as in mnc_set.joins, and its parts.
     * Written by one thread at a time, while no part runs. */
    uint32_t *phase; /* [2 * n_steps], the first n_phase of them */
    uint32_t n_phase;
    uint32_t n_parts;
    /* Above 1: the parts are as many ranges, one of each node, and so many of them are taken. */
    uint32_t n_nodes;
    _Atomic uint32_t n_taken[MNC_NUMA_NODES];
    /* The cells of a phase of several stages. whole: a part has all rows. */
    int64_t rows;
    int64_t n_units;
    bool whole;
    bool closed;                /* no further stage joins it */
    uint64_t n_opened;          /* phases so far, of all steps */
    mnc_last *last;             /* [n_workers] */
    uint32_t next_stage;        /* behind the phase */
    uint32_t n_noted;           /* calls that a profile has begun */
    uint64_t noted_ns;          /* when it noted a time last */
    uint32_t n_barriers;        /* phases that threads waited behind, of this step */
    uint32_t n_logged;          /* the number of them that was logged last */
    bool stopped;               /* the queue was aborted */
    mnc_set sets[MNP_MAX_SETS]; /* the first prog->n_sets */
    mnc_set *at;                /* the set that is being bound or run */
    int64_t *next;              /* [n_symbols] scratch */
    bool *needed;               /* [n_tensors], while binding */
    mnc_note *notes;            /* [n_active] of a profile, by call; else NULL */
    uint8_t *scratch;           /* arena, shared, n_workers * worker */
    uint64_t scratch_bytes;
};

/* ---- the parts of the table ------------------------------------------------------------------ */
/* mnp_read_compile, and as many operands as a call holds */
mn_status mnc_read_compile(const mn_compile *in, mn_compile *out, mn_error *err);
uint32_t mnc_precision(const mn_device *d, const mn_compile *c);
/* bytes [n_tensors] of the second layouts that the weights of nodes [lo, hi) get, and their sum.
 * None has any where all would take too long to make, or too much memory. */
uint64_t mnc_repacked_bytes(mn_device *d, const mn_graph *g, uint32_t lo, uint32_t hi,
                            uint32_t precision, uint64_t *bytes);
/* Room for them all; the set has none where there is no memory. */
void mnc_repack_open(mn_weights *w, uint32_t lo, uint32_t hi);
void mnc_repack_close(mn_weights *w);
/* Fills k->w.repacked of a weight that is to have one. */
void mnc_repack(const mn_weights *w, mnc_kept *k);
/* k->copy; NULL: out of memory. */
void mnc_allocate_copy(mn_device *d, uint64_t bytes, mnc_kept *k);
/* A plane of a weight without gaps, row-major, to `to`; the place behind it. */
uint8_t *mnc_copy_plane(const mn_tensor *t, const mn_plane *p, uint8_t *to);
/* All planes of a source into k->copy; *out describes them, with planes that mnc_delete frees. */
mn_status mnc_copy_source(mn_device *d, const mn_tensor *t, const mn_weight_src *s, mnc_kept *k,
                          mn_weight_src *out, mn_plane **planes, mn_error *err);
/* The bytes of such a copy, at most. */
uint64_t mnc_copied_bytes(const mn_graph *g, const mn_tensor *t);
extern const mnp_kv_rules mnc_kv_rules;
void mnc_facts(mn_device_info *info, const char *device_name);
extern const mn_backend mnc_backend;

mn_status mnc_device_count(void *, uint32_t *, mn_error *);
mn_status mnc_device_info(void *, uint32_t, mn_device_info *, mn_error *);
mn_status mnc_device_open(void *, uint32_t, const mn_open_params *, mn_device **, mn_error *);
void mnc_device_close(mn_device *);
mn_status mnc_device_memory(mn_device *, uint64_t *, uint64_t *, mn_error *);
mn_status mnc_self_test(mn_device *, mn_error *);
mn_status mnc_contracts(void *, const mn_op_contract **, uint32_t *, uint32_t *);
mn_status mnc_supports(mn_device *, const mn_compile *, mn_verdict *, uint32_t, mn_error *);
mn_status mnc_reason(void *, uint32_t, char *, uint32_t);
mn_status mnc_estimate(mn_device *, const mn_compile *, mn_estimate *, mn_error *);
mn_status mnc_alloc(mn_device *, const mn_alloc_params *, mn_buffer **, mn_error *);
mn_status mnc_wrap(mn_device *, void *, uint64_t, mn_buffer **, mn_error *);
void mnc_buffer_free(mn_buffer *);
mn_status mnc_map(mn_buffer *, void **, mn_error *);
mn_status mnc_queue_create(mn_device *, const mn_queue_params *, mn_queue **, mn_error *);
void mnc_queue_free(mn_queue *);
mn_status mnc_write(mn_queue *, mn_buffer *, uint64_t, const void *, uint64_t, mn_error *);
mn_status mnc_read(mn_queue *, const mn_buffer *, uint64_t, mn_buffer *, uint64_t, uint64_t,
                   mn_event **, mn_error *);
mn_status mnc_copy(mn_queue *, mn_buffer *, uint64_t, const mn_buffer *, uint64_t, uint64_t,
                   mn_event **, mn_error *);
mn_status mnc_wait(mn_event *, uint64_t, mn_error *);
mn_status mnc_queue_wait(mn_queue *, mn_event *, mn_error *);
void mnc_event_free(mn_event *);
mn_status mnc_event_on_ready(mn_event *, void (*fn)(void *arg, mn_status), void *arg, mn_error *);
mn_status mnc_abort(mn_queue *);
/* MN_CANCELLED after abort. */
mn_status mnc_check_abort(mn_queue *q, mn_error *err);
mn_status mnc_weights_open(mn_device *, const mn_compile *, mn_weights **, mn_error *);
mn_status mnc_weights_put(mn_weights *, mn_queue *, const mn_weight_src *, mn_event **, mn_error *);
mn_status mnc_weights_seal(mn_weights *, mn_queue *, uint32_t *, mn_error *);
void mnc_weights_free(mn_weights *);
/* Everything about a source, before a byte of it is read. */
mn_status mnc_check_source(const mn_weights *, const mn_weight_src *, mn_error *);
/* How plane k > 0 is stepped through, the same for all parts; where the weight keeps it. */
mnc_extra *mnc_set_extra(const mn_tensor *, const mn_weight_src *, uint32_t k, mnc_weight *);
extern const mn_experts mnc_experts;
void mnc_room_free(mn_device *, mnc_room *);
mn_status mnc_memory_layout(mn_device *, const mn_compile *, uint32_t, mn_memory_layout *,
                            mn_error *);
mn_status mnc_memory_copy(mn_queue *, mn_buffer *, const mn_memory_layout *, const mn_page_copy *,
                          uint32_t, uint32_t, mn_event **, mn_error *);
mn_status mnc_compile(mn_device *, const mn_compile *, mn_program **, mn_error *);
void mnc_program_free(mn_program *);
mn_status mnc_program_save(const mn_program *, void *, uint64_t *);
mn_status mnc_context_create(mn_program *, const mn_context_params *, mn_context **, mn_error *);
mn_status mnc_context_bind(mn_context *, uint32_t, const mn_binding *, uint32_t, uint32_t,
                           mn_error *);
mn_status mnc_execute(mn_context *, const mn_step *, mn_event **, mn_error *);
/* Runs the steps of a bound set on the host's pool, and returns when they are done. */
mn_status mnc_run(mn_context *, uint32_t set, const int64_t *values, mn_error *);
extern const mn_profile mnc_profile;
/* By one thread at a time, while c->notes is there: before call k runs; when the phase, or a stage
 * that ran by itself, is done. */
void mnc_note_begin(mn_context *, uint32_t k);
void mnc_note_phase(mn_context *);
/* Fills joins of the set at work, whose calls are filled in. */
void mnc_join_stages(mn_context *);
/* The step that is about to run. */
mn_team mnc_phases(mn_context *);
static inline uint32_t mnc_n_stages(const mn_context *c) {
    return 2 * c->at->n_active;
}
static inline const mnc_op *mnc_op_of(const mn_context *c, uint32_t stage) {
    return &c->prog->steps[c->at->active[stage / 2]].op;
}
static inline const mnc_call *mnc_call_of(const mn_context *c, uint32_t stage) {
    return &c->at->calls[c->at->active[stage / 2]];
}
/* Active call k does not run in this step: the next one does what it would. */
bool mnc_taken(const mn_context *, uint32_t k);
/* What a stage that the node has is in this step. */
mnc_work mnc_work_of(const mn_context *, uint32_t stage);
void mnc_context_free(mn_context *);

/* As mnp_new and mnp_delete, with the device's host. */
static inline void *mnc_new(const mn_device *d, uint64_t bytes) {
    return mnp_new(d->plugin->host, bytes);
}
static inline void mnc_delete(const mn_device *d, void *p) {
    mnp_delete(d->plugin->host, p);
}

#endif
