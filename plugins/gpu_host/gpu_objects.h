/* gpu_objects.h -- the objects of a GPU backend's host side, and what every part of it calls on
 * them. mn_buffer, mn_event and mn_weights are whole here. mn_device, mn_queue, mn_program and
 * mn_context are structs of the backend: each begins with a field `base` of the struct below, the
 * rest is the backend's (`struct mn_queue { mng_queue base; cudaStream_t stream; };`). gpu_host
 * allocates them, zeroed, by the sizes of the backend's table (gpu_host.h).
 *
 * Memory has no address here: a place is a handle of the backend and a byte offset (mng_ref). A
 * backend with addresses adds the two.
 *
 * C11 that also compiles as C++ (nvcc reads these structs in files of kernels). Threads and errors
 * as in common.h. Prefix mng_ = GPU host. */
#ifndef MNG_GPU_OBJECTS_H
#define MNG_GPU_OBJECTS_H
#include "distances.h"
#include "source_rows.h"
#include "units.h"
#include <pthread.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct mng_backend mng_backend;
typedef struct mng_watch mng_watch; /* words.c */
typedef struct mng_room mng_room;   /* scratch.c */
typedef struct mng_run mng_run;
typedef struct mng_unit mng_unit;
/* A row of the backend's table of weight types. */
typedef struct mng_type mng_type;

/* A place in device memory. Of an operand that is absent `at` is MNG_ABSENT, and mem is the scratch
 * of the context, for an interface that wants memory for every argument. */
typedef struct {
    void *mem;
    uint64_t at;
} mng_ref;
#define MNG_ABSENT UINT64_MAX
static inline bool mng_is_there(mng_ref ref) {
    return ref.at != MNG_ABSENT;
}

/* ---- plugin and device ----------------------------------------------------------------------- */
/* One for each host; a backend's own begins with it (backend->plugin_bytes). */
enum { MNG_MAX_OPS = 64 };
typedef struct {
    const mn_host *host;
    const mng_backend *backend;
    mn_plugin api;
    mn_op_contract contracts[MNG_MAX_OPS]; /* of the table of operations */
} mng_plugin;

/* Facts of one open device. gpu_host fills the first block; device_open of the backend fills the
 * second, where 0 is the default that a line states. */
typedef struct {
    mng_plugin *plugin;
    const mng_backend *backend;
    const mn_host *host;
    pthread_mutex_t lock; /* of spare; the backend may guard fields of its own with it */
    mn_event *spare;      /* freed events: a step allocates nothing */
    uint64_t kv_page;     /* atomic: bytes of the largest page of a cache that was asked about */
    char name[64];
    char uid[64];
    char driver[64];

    uint64_t max_alloc;   /* bytes of one allocation; 0: any number */
    uint64_t max_buffer;  /* bytes of one part of weights or of a cache; 0: any number */
    uint64_t patience_ns; /* how long a wait polls before it sleeps; 0: 2 ms */
    bool maps;            /* its memory is the host's: weights are written where they stay */
    bool has_words;       /* steps may have words: gate_close works on this device */
    mng_watch *watch;     /* atomic: of words; NULL: no step had any yet */
} mng_device;
static inline mng_device *mng_device_of(const mn_device *d) {
    return (mng_device *)(uintptr_t)d;
}

/* Zeroed memory of the device's host; freed with mng_delete. NULL: out of memory. */
static inline void *mng_new(const mn_device *d, uint64_t bytes) {
    return mnp_new(mng_device_of(d)->host, bytes);
}
static inline void mng_delete(const mn_device *d, void *p) {
    mnp_delete(mng_device_of(d)->host, p);
}
/* The base of a device with its lock; `bytes` of the whole struct. For devices that a backend makes
 * beside device_open (a group); freed with mng_device_delete, spare events included. */
mn_device *mng_device_new(mng_plugin *p, uint64_t bytes, const mn_device_info *info);
void mng_device_delete(mn_device *d);

/* A line of the plugin's log; without a log it is dropped. */
void mng_log(const mn_host *h, int32_t level, const char *fmt, ...) MNP_FORMAT(3, 4);
/* An option of the plugin's section of minerva.ini as a number; `otherwise` where it is not set or
 * is no number. */
int64_t mng_option(const mn_host *h, const char *key, int64_t otherwise);

/* ---- errors of a vendor's interface ---------------------------------------------------------- */
/* An error code of the interface: "what: name (API error code)", with the words that the device is
 * lost to this process where the status says so. api: "CUDA", "OpenCL". Returns status. After
 * MN_DEVICE_LOST nothing is known of the device's memory: the host opens the device again. */
typedef struct {
    const char *api;
    const char *name; /* of the code */
    int32_t code;
    mn_status status; /* what the code means for the host */
} mng_vendor_error;
mn_status mng_fail_vendor(const mng_vendor_error *e, mn_error *err, const char *what);
/* The same of an allocation that found no room; left: bytes that are free, of all; all 0: not
 * known. */
mn_status mng_fail_room(const mng_vendor_error *e, uint64_t bytes, uint64_t left, uint64_t all,
                        mn_error *err, const char *what);

/* ---- events ---------------------------------------------------------------------------------- */
struct mn_event {
    mn_device *dev;
    void *native; /* the backend's; NULL: not recorded yet */
    mn_event *next;
};
/* An event behind everything in the queue. */
mn_status mng_event_new(mn_queue *q, mn_event **out, mn_error *err);
/* Ensures that so many events can be made without an allocation. */
mn_status mng_events_reserve(mn_device *d, uint32_t n, mn_error *err);

/* ---- buffers --------------------------------------------------------------------------------- */
enum { MNG_MAX_PARTS = 8, MNG_ALIGN = 256 };
/* A buffer larger than max_buffer lies in several parts of part_bytes, of which the last may be
 * smaller; only a cache of keys and values can be such a buffer. Byte n is byte n % room of part n
 * / room. The first binding states the size of a page; from then on room, least_room or more, is
 * whole pages. */
struct mn_buffer {
    mn_device *dev;
    void *mem[MNG_MAX_PARTS];
    uint32_t n_parts;
    uint32_t kind; /* MN_MEM_DEVICE or MN_MEM_HOST_PINNED */
    uint64_t bytes;
    char *host;   /* of pinned memory: its address for its whole life */
    bool wrapped; /* pinned memory of the host's own */
    uint64_t part_bytes;
    uint64_t room;
    uint64_t least_room;
};
/* Where byte `at` of a buffer lies. Returns how many bytes from there on lie in one piece. */
uint64_t mng_place_in(const mn_buffer *b, uint64_t at, mng_ref *out);
/* Of a buffer in several parts, before it is used as a cache of such pages. */
mn_status mng_buffer_pages(mn_buffer *b, uint64_t page_bytes, mn_error *err);

/* ---- queues ---------------------------------------------------------------------------------- */
/* A stream of the device, in order. Bytes of pageable memory travel through a ring of pinned
 * segments: the source is free on return, and copies of earlier segments overlap with filling the
 * next. A segment is used again when its last copy has passed. */
enum { MNG_SEGMENTS = 32, MNG_SEGMENT_BYTES = 1 << 18 };
typedef struct {
    mn_device *dev;
    mng_room *room; /* that new contexts share; NULL: there is no context */
    mn_buffer *ring;
    uint64_t segment_bytes;   /* MNG_SEGMENT_BYTES, less where allocations are small */
    uint32_t n_segments;      /* limits.segments */
    void *used[MNG_SEGMENTS]; /* the event of each segment's last copy; NULL: none yet */
    bool pending[MNG_SEGMENTS];
    uint32_t next;
    bool opened;      /* the backend's part */
    int aborted;      /* atomic; set from any thread */
    uint64_t read_ns; /* host time of reads */
    uint64_t n_reads;
} mng_queue;
static inline mng_queue *mng_queue_of(const mn_queue *q) {
    return (mng_queue *)(uintptr_t)q;
}
/* MN_CANCELLED after abort. */
mn_status mng_check_abort(const mn_queue *q, mn_error *err);
/* A segment of the ring that the caller fills: begin waits until its last copy is over
 * (MN_CANCELLED after abort); send copies its first n bytes to a place in device memory. */
typedef struct {
    uint32_t index;
    char *host;
    uint64_t room;
} mng_segment;
mn_status mng_segment_begin(mn_queue *q, mng_segment *s, mn_error *err);
mn_status mng_segment_send(mn_queue *q, const mng_segment *s, mng_ref to, uint64_t n,
                           mn_error *err);
/* n bytes through the ring to a place in device memory. */
mn_status mng_send(mn_queue *q, mng_ref to, const void *from, uint64_t n, mn_error *err);

/* ---- weights --------------------------------------------------------------------------------- */
enum { MNG_MAX_PLANES = 4 };
/* A weight on the device: rows in the form of its type, or `flat`, f32 without padding: norms,
 * biases, sinks, frequencies, learned positions. Experts are rows, one after the other. A matrix
 * that is larger than max_buffer may lie in several parts: as many rows in each (the last may have
 * fewer), whole experts, each part with its own planes. */
typedef struct {
    const mng_type *type;
    void **mem;  /* [n_parts] */
    uint64_t at; /* where part 0 begins in mem[0]: 0 but with backend->weights_together */
    uint32_t n_parts;
    int64_t part_rows;
    int64_t rows;
    int64_t cols;
    int64_t group_rows;             /* rows of one expert; else rows */
    int64_t ld;                     /* elements of a row with its padding; of flat ones cols */
    uint64_t row_bytes;             /* of plane 0 */
    uint64_t plane[MNG_MAX_PLANES]; /* where planes begin, from the begin of a part */
    uint64_t part_bytes;
    bool wanted;
    bool put;
    bool flat;
} mng_weight;
struct mn_weights {
    mn_device *dev;
    const mn_graph *graph;
    mng_weight *w; /* [n_tensors]; threads that put at once share nothing else */
    void *mem;     /* with backend->weights_together: all of them */
    bool updates;  /* MN_COMPILE_UPDATES: a tensor may be put again once the set is sealed */
    bool sealed;
};

/* Whether operand i of a node is a matrix, which is kept by its type; else a weight is flat. */
bool mng_is_matrix(const mn_node *n, uint32_t i);
/* Bytes on the device of a weight of the graph, at most. */
uint64_t mng_weight_bytes(const mn_device *d, const mn_tensor *t, bool matrix);

/* Writes the row that s stands at to `to`, which is zeroed: padding is not written. */
typedef void (*mng_row_fn)(const mng_weight *w, const mnp_source_row *s, uint8_t *to);
/* The blocks of the DATA plane as stored. */
void mng_write_blocks(const mng_weight *w, const mnp_source_row *s, uint8_t *to);
/* Unpacked to f32 on the host. */
void mng_write_unpacked(const mng_weight *w, const mnp_source_row *s, uint8_t *to);
/* The values of the planes beside DATA, a float for each block: SCALE and BIAS. */
void mng_write_scales(const mng_weight *w, const mnp_source_row *s, uint8_t *to);
void mng_write_biases(const mng_weight *w, const mnp_source_row *s, uint8_t *to);

/* Sends n rows from *s on, each row_bytes, to a place in device memory, through the ring, and moves
 * *s on. The source may be freed when this returns. */
mn_status mng_send_rows(mn_queue *q, const mng_weight *w, mng_row_fn write, uint64_t row_bytes,
                        mnp_source_row *s, int64_t n, mng_ref to, mn_error *err);
/* All rows of a weight's plane, of all its parts; `at`: where the plane begins in a part. Where the
 * device maps its memory, rows are written in their place. s stands at the first row. */
mn_status mng_put_plane(mn_queue *q, const mng_weight *w, mng_row_fn write, uint64_t at,
                        uint64_t row_bytes, mnp_source_row s, mn_error *err);

/* ---- programs -------------------------------------------------------------------------------- */
/* What runs at once: a node and the nodes that it absorbed (common/patterns.c); -1 = absent.
 * with: index of another unit that this one may run with, which a backend's program_lowered sets
 * (the attention of a store, the store of an attention); -1. */
struct mng_unit {
    uint32_t node;
    int32_t gather;
    int32_t norm;
    int32_t rope_q;
    int32_t rope_k;
    int32_t add;
    int32_t glu;
    int32_t with;
    mnp_kv kv;                /* KV_STORE and ATTENTION */
    mnp_state state;          /* CONV_STATE, SSM_SCAN and GATED_DELTA */
    mnp_distances *distances; /* of the table of an ATTENTION; NULL: it has none */
};
enum { MNG_UNIT_NODES = 12 };

/* Bytes that kernels need in the scratch beside tensors; what each index is for is the backend's
 * enum. */
enum { MNG_MAX_NEEDS = 20 };
typedef struct {
    uint64_t bytes[MNG_MAX_NEEDS];
} mng_needs;
static inline void mng_need(mng_needs *needs, uint32_t which, uint64_t bytes) {
    if (bytes > needs->bytes[which])
        needs->bytes[which] = bytes;
}

/* A compiled segment: its units in order, and where tensors lie. It belongs to its device; it reads
 * the weight set's entries, which outlive it. */
typedef struct {
    mn_device *dev;
    const mn_graph *graph;
    const mng_weight **w; /* [n_tensors] entries of the weight set; NULL where it has none */
    uint32_t lo;
    uint32_t hi;
    uint32_t precision; /* the class that it runs in */
    uint32_t flags;     /* MN_COMPILE_* */
    uint32_t n_sets;    /* of bindings, of each context */
    int64_t *symbol_max;
    mng_unit *units; /* [n_units] */
    uint32_t n_units;
    uint32_t n_views;            /* views that are not used in their place */
    mnp_allocation *allocations; /* [n_tensors] */
    mnp_use *uses;               /* [n_tensors] */
    uint64_t *dense;             /* [n_tensors] places in the scratch of such views; else NOWHERE */
    mng_needs needs;
    /* their places in the scratch; those of backend.kept_needs are in front of it, where the room
     * of the context says */
    uint64_t need_at[MNG_MAX_NEEDS];
    uint64_t arena;
    uint64_t scratch; /* bytes, without limits.slack and what is in front */
} mng_program;
static inline mng_program *mng_program_of(const mn_program *p) {
    return (mng_program *)(uintptr_t)p;
}
/* Appends room to the scratch; returns its place. */
uint64_t mng_reserve(mng_program *p, uint64_t bytes);
/* Bytes of needs that are kept from step to step (backend.kept_needs). */
uint64_t mng_kept_bytes(const mng_program *p);
/* The tensor of the pages that a unit writes or reads, and the bytes of one page; -1: it has
 * none. */
int32_t mng_memory_tensor(const mng_program *p, const mng_unit *u, uint64_t *page_bytes);
/* As estimate and compile, for programs that a backend makes in another way (members of a group).
 * as: passed to program_begin; NULL in the functions of the table. */
mn_status mng_estimate_as(mn_device *d, const void *as, const mn_compile *c, mn_estimate *out,
                          mn_error *err);
mn_status mng_compile_as(mn_device *d, const void *as, const mn_compile *c, mn_program **out,
                         mn_error *err);

/* ---- contexts -------------------------------------------------------------------------------- */
/* Scratch of contexts of one queue, whose steps run one after another: as large as the largest
 * program's. In front lie needs that kernels find again in the next step, of each index the largest
 * of all programs, at one place for all of them. */
struct mng_room {
    void *mem;
    uint32_t n_contexts;
    bool used;                    /* a step knows its address: it stays as it is */
    uint64_t kept[MNG_MAX_NEEDS]; /* bytes; 0 of what is not kept */
    uint64_t kept_at[MNG_MAX_NEEDS];
    uint64_t base; /* of the programs' own scratch: the bytes of all that is kept */
    uint64_t rest; /* bytes behind it, with limits.slack */
};
/* Bindings, and the steps of one queue; used by one thread at a time. */
typedef struct {
    mn_program *prog;
    mn_queue *queue;
    mng_room *room;
    int64_t *symbol;                /* [n_symbols] of this step */
    mn_binding *sets[MNP_MAX_SETS]; /* [n_tensors] each; the first n_sets of the program */
    bool bound[MNP_MAX_SETS];
    uint32_t set;         /* the one that is being bound or run */
    mn_binding *bindings; /* sets[set] */
} mng_context;
static inline mng_context *mng_context_of(const mn_context *c) {
    return (mng_context *)(uintptr_t)c;
}
/* Sets c->symbol to the values of a step; a value above its maximum is an error. Sizes of what is
 * bound are not compared: mng_check_sizes. */
mn_status mng_context_begin(mn_context *c, const mn_step *step, mn_error *err);
/* Whether bound buffers hold the step's sizes; one call per combination of values is enough. */
mn_status mng_check_sizes(const mn_context *c, mn_error *err);
/* The units of the step one after another, by rows of the table; dry: as in mng_run. What `step` of
 * a backend calls, under capture or between what it records. */
mn_status mng_run_units(mn_context *c, bool dry, mn_error *err);

#ifdef __cplusplus
}
#endif
#endif
