/* opencl.h -- what the parts of the OpenCL plugin share: the plugin, its devices, memory, queues,
 * weights. Prefix ocl_. Addresses do not exist here: an operand is a buffer and a byte offset
 * (mng_ref), and kernels get both. What is not OpenCL's alone is plugins/gpu_host. */
#ifndef OCL_OPENCL_H
#define OCL_OPENCL_H
#include "gpu_host.h"
#include "icd.h"
#include "kernels/args.h"
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
    mng_plugin base;
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

struct mn_device {
    mng_device base;
    ocl_plugin *plugin;
    const ocl_icd *cl;
    cl_device_id id;
    cl_context context;         /* NULL until ocl_start */
    cl_command_queue own;       /* for zeroing; used under no lock: the API is thread-safe */
    pthread_mutex_t start_lock; /* of making context and own */
    ocl_built *built;           /* under base.lock */
    atomic_uint freed;          /* memory objects so far */
    uint32_t lanes;             /* work-items of a group that shares a row */
    uint32_t linear_lanes;      /* of them on one output of a product */
    uint32_t sample_lanes;      /* of them on a row of logits */
    bool warps;                 /* 32 items work together: kernels of whole units (warps.cl) */
    bool mma;                   /* tensor cores of f16, in warps of 32, and PTX for them */
    uint32_t mad;               /* items of a sub-group that multiplies matrices; 0: none does */
    bool ptx;                   /* the compiler takes NVIDIA's inline assembly */
    uint32_t step_groups; /* of a kernel that runs many operations (step.c); 0: there is none */
    uint32_t step_warps;  /* of such a group */
    mn_queue *stepper;    /* that such a kernel was last enqueued to; under base.lock */
    bool is_cpu;
    bool sub_groups; /* of SUB_GROUPS in common.cl */
    bool has_double;
    bool keeps_binaries; /* between processes */
    bool asks_shapes;    /* groups of linear.cl are measured (shapes.c) */
    uint32_t most_items; /* of a group */
    pthread_mutex_t shape_lock;
    ocl_shape *shapes; /* [OCL_N_TYPES]; lanes 0: not measured yet */
    ocl_commands commands;
    atomic_bool has_commands;
    char options[320]; /* of the compiler: what this device has */
};
struct mn_queue {
    mng_queue base;
    cl_command_queue cl;
};

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

/* ---- start.c --------------------------------------------------------------------------------- */
/* Makes the device's context and queue where they are not there yet; any thread. Whatever makes
 * children of the context calls it first. */
mn_status ocl_start(mn_device *d, mn_error *err);
/* A number that the driver states of the device, of so many bytes; 0: it does not. */
uint64_t ocl_number(const mn_device *d, cl_device_info what, size_t bytes);
/* The largest power of two that is neither above `most` nor above what the device can have in a
 * group. */
uint32_t ocl_group_size(const mn_device *d, uint32_t most);

/* ---- options.c ------------------------------------------------------------------------------- */
/* What kernels are specialised by on this device (kernels/common.cl). */
void ocl_choose_options(mn_device *d);

/* ---- commands.c ------------------------------------------------------------------------------ */
/* Fills d->commands where the driver has all of them. */
void ocl_commands_find(mn_device *d, cl_platform_id platform);

/* ---- signals.c ------------------------------------------------------------------------------- */
enum { OCL_N_SIGNALS = 65, OCL_N_VARIABLES = 4 };
typedef struct {
    struct sigaction action[OCL_N_SIGNALS];
    bool known[OCL_N_SIGNALS];
    bool is_set[OCL_N_VARIABLES];
    char *value[OCL_N_VARIABLES]; /* copies, of those that are set */
} ocl_signals;
/* What handles each signal now, and the variables that drivers change; and the way back, once for
 * each ocl_signals_keep. */
void ocl_signals_keep(ocl_signals *kept);
void ocl_signals_restore(ocl_signals *kept);

/* ---- build.c --------------------------------------------------------------------------------- */
/* The program of a source for a weight type (OCL_NO_TYPE: none) or variant (step.cl), built at its
 * first use or read from the cache; any thread. shape: of linear.cl, which has one for each type
 * (ocl_shape_of); else NULL. It belongs to the device. */
mn_status ocl_build(mn_device *d, uint32_t source, uint32_t type, const ocl_shape *shape,
                    cl_program *out, mn_error *err);
void ocl_drop_built(mn_device *d);
/* linear.cl for a type with groups of a shape; the caller's. */
mn_status ocl_build_shape(mn_device *d, const mng_type *type, ocl_shape shape, cl_program *out,
                          mn_error *err);

/* ---- shapes.c -------------------------------------------------------------------------------- */
/* Whether the device is asked, and what it answered earlier. */
void ocl_shapes_read(mn_device *d);
/* Of products with a weight type; measured at the first call, any thread. */
ocl_shape ocl_shape_of(mn_device *d, const mng_type *type);
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
/* Device memory of the plugin's own, zeroed; released with cl->ReleaseMemObject. */
mn_status ocl_take_memory(mn_device *d, uint64_t bytes, const char *what, cl_mem *out,
                          mn_error *err);
/* The same for what is written before it is read: with plugin.opencl.fill = 0 it is not zeroed, so
 * that a tool finds what is read too early. */
mn_status ocl_take_written(mn_device *d, uint64_t bytes, const char *what, cl_mem *out,
                           mn_error *err);

/* ---- weights.c ------------------------------------------------------------------------------- */
/* How a matrix lies, for kernels. */
ocl_matrix ocl_matrix_of(const mng_weight *w);

/* ---- hooks of the backend's table (plugin.c), by file. Contracts: gpu_host.h ----------------- */
/* facts.c */
/* Whether the device's memory is the host's. */
bool ocl_shares_host(const ocl_plugin *, cl_device_id);
mn_status ocl_device_count(mng_plugin *, uint32_t *, mn_error *);
mn_status ocl_device_info(mng_plugin *, uint32_t, mn_device_info *, mn_error *);
/* device.c */
mn_status ocl_device_open(mng_plugin *, uint32_t, mn_device *, mn_error *);
void ocl_device_close(mn_device *);
mn_status ocl_device_memory(mn_device *, uint64_t *, uint64_t *, mn_error *);
/* self_test.c */
mn_status ocl_self_test(mn_device *, mn_error *);
/* memory.c */
mn_status ocl_memory_alloc(mn_device *, uint64_t, uint32_t, const char *, void **, mn_error *);
void ocl_memory_free(mn_device *, void *);
mn_status ocl_pinned_alloc(mn_device *, uint64_t, void **, char **, mn_error *);
void ocl_pinned_free(mn_device *, void *, char *);
mn_status ocl_wrap(mn_device *, char *, uint64_t, void **, mn_error *);
void ocl_unwrap(mn_device *, void *, char *);
/* queue.c */
mn_status ocl_queue_open(mn_queue *, mn_error *);
void ocl_queue_close(mn_queue *);
mn_status ocl_queue_finish(mn_queue *, mn_error *);
mn_status ocl_queue_flush(mn_queue *, mn_error *);
mn_status ocl_copy_in(mn_queue *, mng_ref, const char *, uint64_t, void **, mn_error *);
mn_status ocl_copy_out(mn_queue *, char *, mng_ref, uint64_t, mn_error *);
mn_status ocl_copy(mn_queue *, mng_ref, mng_ref, uint64_t, mn_error *);
mn_status ocl_map(mn_queue *, mng_ref, uint64_t, void **, mn_error *);
mn_status ocl_unmap(mn_queue *, mng_ref, void *, mn_error *);
mn_status ocl_event_record(mn_queue *, void **, mn_error *);
mn_status ocl_event_poll(mn_device *, void *, bool *, mn_error *);
mn_status ocl_event_wait(mn_device *, void *, mn_error *);
mn_status ocl_event_join(mn_queue *, void *, mn_error *);
void ocl_event_free(mn_device *, void *);
mn_status ocl_event_tell(mn_device *, void *, void (*)(void *, mn_status), void *, mn_error *);
mn_status ocl_gate_close(mn_queue *, void **, mn_error *);
void ocl_gate_open(mn_device *, void *);
/* weights.c */
void ocl_weight_shape(const mn_device *, const mn_tensor *, mng_weight *);
mn_status ocl_weight_put(mn_queue *, const mng_weight *, const mnp_source_row *, mn_error *);
#endif
