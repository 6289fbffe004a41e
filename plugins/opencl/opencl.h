/* opencl.h -- what the parts of the OpenCL plugin share: the plugin, its devices, memory, queues,
 * weights. Prefix ocl_. Addresses do not exist here: an operand is a buffer and a byte offset
 * (ocl_ref), and kernels get both. */
#ifndef OCL_OPENCL_H
#define OCL_OPENCL_H
#include "icd.h"
#include "kernels/args.h"
#include "units.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

enum {
    OCL_PAGE_TOKENS = 64,
    OCL_PIECE = 16, /* elements that kernels unpack at once: rows of weights are padded to it */
    OCL_MAX_FOUND = 64,
    OCL_WARP_LOCAL = 36 << 10, /* bytes of local memory that kernels of whole units take */
    OCL_MAX_SOURCES = 16
};

/* A device that a platform showed, before it is opened. */
typedef struct {
    cl_platform_id platform;
    cl_device_id id;
} ocl_found;

typedef struct {
    const mn_host *host;
    mn_plugin api;
    pthread_mutex_t lock; /* of icd, found and n_found, which are filled once */
    ocl_icd icd;
    ocl_found found[OCL_MAX_FOUND];
    uint32_t n_found;
    bool searched;
} ocl_plugin;

/* A built program: one source, specialised for one weight type or for none. */
typedef struct ocl_built ocl_built;
struct ocl_built {
    uint32_t source; /* OCL_SOURCE_* */
    uint32_t type;   /* row of the types' table; OCL_NO_TYPE; of step.cl: its variant */
    cl_program program;
    ocl_built *next;
};

/* A group of linear.cl: items that share an output, outputs. */
typedef struct {
    uint32_t lanes;
    uint32_t outputs;
} ocl_shape;

/* cl_khr_command_buffer, version 0.9. */
typedef struct ocl_command_buffer_khr *ocl_command_buffer;
typedef struct {
    ocl_command_buffer(CL_API_CALL *create)(cl_uint n_queues, const cl_command_queue *queues,
                                            const cl_ulong *properties, cl_int *code);
    cl_int(CL_API_CALL *kernel)(ocl_command_buffer to, cl_command_queue queue,
                                const cl_ulong *properties, cl_kernel kernel, cl_uint n_dim,
                                const size_t *offset, const size_t *global, const size_t *local,
                                cl_uint n_before, const cl_uint *before, cl_uint *point,
                                void **handle);
    cl_int(CL_API_CALL *finalize)(ocl_command_buffer buffer);
    cl_int(CL_API_CALL *enqueue)(cl_uint n_queues, cl_command_queue *queues,
                                 ocl_command_buffer buffer, cl_uint n_before,
                                 const cl_event *before, cl_event *event);
    cl_int(CL_API_CALL *release)(ocl_command_buffer buffer);
} ocl_commands;

struct mn_event {
    mn_device *dev;
    cl_event ev;
    mn_event *next; /* of the device's spares */
};
struct mn_device {
    ocl_plugin *plugin;
    const ocl_icd *cl;
    cl_device_id id;
    cl_context context;         /* NULL until ocl_start */
    cl_command_queue own;       /* for zeroing; used under no lock: the API is thread-safe */
    pthread_mutex_t start_lock; /* of making context and own */
    pthread_mutex_t lock;       /* of built and spare */
    mn_event *spare;            /* freed ones: a step allocates nothing */
    ocl_built *built;
    atomic_uint freed; /* buffers so far */
    uint64_t max_alloc;
    uint64_t max_buffer;   /* weights and caches that are larger lie in several */
    atomic_ullong kv_page; /* bytes of the largest page of a cache that was asked about */
    uint32_t lanes;        /* work-items of a group that shares a row */
    uint32_t linear_lanes; /* of them on one output of a product */
    uint32_t sample_lanes; /* of them on a row of logits */
    bool warps;            /* 32 items work together: kernels of whole units (warps.cl) */
    bool mma;              /* tensor cores of f16, in warps of 32, and PTX for them */
    uint32_t mad;          /* items of a sub-group that multiplies matrices; 0: none does */
    bool ptx;              /* the compiler takes NVIDIA's inline assembly */
    uint32_t step_groups;  /* of a kernel that runs many operations (step.c); 0: there is none */
    uint32_t step_warps;   /* of such a group */
    mn_queue *stepper;     /* that such a kernel was last enqueued to; under lock */
    bool is_cpu;
    bool sub_groups;  /* of SUB_GROUPS in common.cl */
    bool shares_host; /* its memory is the host's: weights are written where they stay */
    bool has_double;
    bool keeps_binaries; /* between processes */
    bool asks_shapes;    /* groups of linear.cl are measured (shapes.c) */
    uint32_t most_items; /* of a group */
    pthread_mutex_t shape_lock;
    ocl_shape *shapes; /* [OCL_N_TYPES]; lanes 0: not measured yet */
    ocl_commands commands;
    atomic_bool has_commands;
    char options[320]; /* of the compiler: what this device has */
    char name[64];
    char uid[64];
    char driver[64];
};
/* One that is larger than the driver gives at once lies in several parts, of part_bytes but for the
 * last: it can be the cache of keys and values alone. Byte n is at n % room of part n / room; room
 * is whole pages from the first binding on, which says how large a page is: least_room or more. */
struct mn_buffer {
    mn_device *dev;
    cl_mem mem[OCL_KV_PARTS];
    uint32_t n_parts;
    uint64_t part_bytes;
    uint64_t room;
    uint64_t least_room;
    char *host; /* pinned: mapped for its whole life */
    uint64_t bytes;
    uint32_t kind;
};

/* Writes go through a ring of pinned segments on the host, so that the source is free on return and
 * the copy stays asynchronous. */
enum { OCL_SEGMENTS = 16, OCL_SEGMENT_BYTES = 1 << 18 };
struct mn_queue {
    mn_device *dev;
    cl_command_queue cl;
    mn_buffer *ring;
    uint64_t segment_bytes;      /* OCL_SEGMENT_BYTES, less where buffers are small */
    cl_event used[OCL_SEGMENTS]; /* the last copy of each; NULL = none */
    uint32_t next;
    atomic_bool aborted;
};

/* A weight on the device: rows in the form of its type (types.h), or `flat`, f32 without padding:
 * norms, biases, sinks, frequencies, learned positions. Experts are rows, one after the other. A
 * matrix that is larger than a buffer may be lies in several, its parts: as many rows in each (the
 * last may have fewer), whole experts, each with its own planes. */
typedef struct ocl_type ocl_type;
typedef struct {
    const ocl_type *type;
    cl_mem *mem; /* [n_parts] */
    uint32_t n_parts;
    int64_t part_rows;
    int64_t rows;
    int64_t cols;
    uint64_t row_bytes; /* of the DATA plane, padded */
    uint64_t scale_at;  /* planes beside DATA, as f32, a value per block */
    uint64_t bias_at;
    bool wanted;
    bool put;
    bool flat;
} ocl_weight;
struct mn_weights {
    mn_device *dev;
    const mn_graph *graph;
    ocl_weight *w; /* [n_tensors] */
};

/* An operand of a kernel; mem NULL = absent. */
typedef struct {
    cl_mem mem;
    uint64_t at;
} ocl_ref;

/* ---- error.c --------------------------------------------------------------------------------- */
/* What a code means for the host; OpenCL's codes are not sticky, but after a failed step nothing is
 * known of the device's memory: it is lost. */
mn_status ocl_check(cl_int code, mn_error *err, const char *what);
/* The same of an allocation: without room it is the host's to ask for less. */
mn_status ocl_check_room(cl_int code, uint64_t bytes, mn_error *err, const char *what);
const char *ocl_code_name(cl_int code);
#define OCL_TRY(call, err, what)                                                                   \
    do {                                                                                           \
        const mn_status st_ = ocl_check((call), (err), (what));                                    \
        if (st_)                                                                                   \
            return st_;                                                                            \
    } while (0)

static inline void *ocl_new(const mn_device *d, uint64_t bytes) { /* zeroed */
    return mnp_new(d->plugin->host, bytes);
}
static inline void ocl_delete(const mn_device *d, void *p) {
    mnp_delete(d->plugin->host, p);
}
void ocl_log(const ocl_plugin *p, int32_t level, const char *fmt, ...) MNP_FORMAT(3, 4);
/* An option of the plugin's section of minerva.ini as a number; `otherwise` where it is not set or
 * is none. */
int64_t ocl_option(const mn_host *h, const char *key, int64_t otherwise);

/* ---- device.c -------------------------------------------------------------------------------- */
/* Makes the device's context and queue where they are not there yet; any thread. Whatever makes
 * children of the context calls it first. */
mn_status ocl_start(mn_device *d, mn_error *err);

/* ---- commands.c ------------------------------------------------------------------------------ */
/* Fills d->commands where the driver has all of them. */
void ocl_commands_find(mn_device *d, cl_platform_id platform);

/* ---- signals.c ------------------------------------------------------------------------------- */
enum { OCL_N_SIGNALS = 65 };
typedef struct {
    struct sigaction action[OCL_N_SIGNALS];
    bool known[OCL_N_SIGNALS];
} ocl_signals;
/* What handles each signal now; and the way back, for those that have changed since. */
void ocl_signals_keep(ocl_signals *kept);
void ocl_signals_restore(const ocl_signals *kept);

/* ---- build.c --------------------------------------------------------------------------------- */
/* The program of a source for a weight type (OCL_NO_TYPE: none) or variant (step.cl), built at its
 * first use or read from the cache; any thread. It belongs to the device. */
mn_status ocl_build(mn_device *d, uint32_t source, uint32_t type, cl_program *out, mn_error *err);
void ocl_drop_built(mn_device *d);
/* linear.cl for a type with groups of a shape; the caller's. */
mn_status ocl_build_shape(mn_device *d, const ocl_type *type, ocl_shape shape, cl_program *out,
                          mn_error *err);

/* ---- shapes.c -------------------------------------------------------------------------------- */
/* Whether the device is asked, and what it answered earlier. */
void ocl_shapes_read(mn_device *d);
/* Of products with a weight type; measured at the first call, any thread. */
ocl_shape ocl_shape_of(mn_device *d, const ocl_type *type);
ocl_shape ocl_default_shape(const mn_device *d);

/* ---- step.c ---------------------------------------------------------------------------------- */
/* The queue ends: no kernel of it runs any more. */
void ocl_step_forget(mn_queue *q);

/* ---- binary.c -------------------------------------------------------------------------------- */
/* What a program is made of; own: what is generated, which some texts point into. */
enum { OCL_MAX_TEXTS = 128 };
typedef struct {
    const char *name;
    uint32_t variant; /* of step.cl; else the row of a type */
    const char *texts[OCL_MAX_TEXTS];
    uint32_t n_texts;
    char options[512];
    char own[8192];
} ocl_source;
/* The texts of step.cl (step.c) for the weight types and head sizes of a model, its variant. */
void ocl_step_texts(const mn_device *d, uint32_t variant, ocl_source *to);
/* A program as an earlier process built it, built; NULL: there is none. */
cl_program ocl_binary_find(const mn_device *d, const ocl_source *s);
/* For later processes. */
void ocl_binary_keep(const mn_device *d, const ocl_source *s, cl_program program);

/* ---- describe.c ------------------------------------------------------------------------------ */
/* Logs what drivers say of themselves, and the last build that failed in any process. */
void ocl_describe(const ocl_plugin *p);
void ocl_describe_failure(const ocl_plugin *p, const char *text);
/* The host's cache; NULL: there is none. */
const mn_cache *ocl_cache_of_host(const ocl_plugin *p);

/* ---- memory.c -------------------------------------------------------------------------------- */
mn_status ocl_check_abort(const mn_queue *q, mn_error *err); /* MN_CANCELLED after abort */
/* Behind everything in the queue. */
mn_status ocl_event_new(mn_queue *q, mn_event **out, mn_error *err);
/* So many can be had without an allocation. */
mn_status ocl_events_reserve(mn_device *d, uint32_t n, mn_error *err);
/* Device memory of the plugin's own, zeroed; released with cl->ReleaseMemObject. */
mn_status ocl_take_memory(mn_device *d, uint64_t bytes, const char *what, cl_mem *out,
                          mn_error *err);
/* The same for what is written before it is read: with plugin.opencl.fill = 0 it is not zeroed, so
 * that a tool finds what is read too early. */
mn_status ocl_take_written(mn_device *d, uint64_t bytes, const char *what, cl_mem *out,
                           mn_error *err);
/* n bytes through the ring to a place in device memory. */
mn_status ocl_send(mn_queue *q, cl_mem to, uint64_t at, const void *from, uint64_t n,
                   mn_error *err);

/* ---- weights.c ------------------------------------------------------------------------------- */
/* Whether operand i of a node is a matrix, which is kept by its type; else a weight is flat. */
bool ocl_is_matrix(const mn_node *n, uint32_t i);
/* Values of a plane beside DATA in a row; 0 = the type has none. */
int ocl_blocks(const ocl_weight *w);
/* Bytes on the device of a weight of the graph. */
uint64_t ocl_weight_bytes(const mn_device *d, const mn_tensor *t, bool matrix);
/* Sizes of a weight and of its parts. Returns the bytes of a part. */
uint64_t ocl_weight_shape(const mn_device *d, const mn_tensor *t, bool matrix, ocl_weight *w);

/* Where byte `at` of a buffer lies; result: as many bytes lie there in one piece. */
uint64_t ocl_place_in(const mn_buffer *b, uint64_t at, ocl_ref *out);

/* ---- kv.c ------------------------------------------------------------------------------------ */
/* Of a buffer in several parts, before it is used as a cache of such pages. */
mn_status ocl_kv_pages(mn_buffer *b, uint64_t page_bytes, mn_error *err);
extern const mnp_kv_rules ocl_kv_rules;
/* The class that a program of c runs in. */
uint32_t ocl_precision(const mn_compile *c);

extern const mn_backend ocl_backend;
extern const mn_profile ocl_profile; /* profile.c */
#endif
