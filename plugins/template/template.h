/* template.h -- what the files of this plugin share. plugin.h is the contract with Minerva; this
 * file is the plugin's own.
 *
 * The template is a whole backend whose "device" is the host's memory and whose queue does
 * everything at once. Replace it part by part; each part keeps working while the others are still
 * the template's:
 *
 *   template.c   who the plugin is, the facts of its devices, self-test, the table (begin here)
 *   kernels.c    one function per operation, and which nodes it can take (then your kernels)
 *   program.c    verdicts, estimates, compiling a segment, running a step (then your command lists)
 *   memory.c     buffers, queue, events, weights (then your memory)
 *   profile.c    where the time of a step goes (then your timestamps; optional)
 *
 * Rename "template" in T_ID, the Makefile and meson.build. Prefix t_ = this plugin's own. */
#ifndef TEMPLATE_H
#define TEMPLATE_H
#include <minerva/plugin.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define T_ID "template"
#define T_UID "template-0" /* of the one device */
#define T_VERSION "0.1"
#define T_ALIGN 64u
#define T_MAX_LINEAR 8u                 /* products that share one input */
#define T_MAX_IN (1 + 2 * T_MAX_LINEAR) /* X, then weight and bias of each */
#define T_NO_PLACE UINT64_MAX
#define T_MAX_SETS 8u /* of bindings: a context has as many as mn_compile.n_sets asks for */
#define T_N_KERNELS 4 /* rows of t_kernels */

/* Nothing but minerva_plugin_entry may be exported, also when somebody compiles without
 * -fvisibility=hidden. */
#pragma GCC visibility push(hidden)

/* ---- the opaque types of plugin.h are ours to define ----------------------------------------- */
typedef struct {
    mn_plugin api; /* what the host sees; api.self points back here */
    const mn_host *host;
    uint32_t max_workers;                  /* option `workers` */
    mn_op_contract contracts[T_N_KERNELS]; /* of each kernel */
} t_plugin;

struct mn_event {
    uint8_t unused; /* put your fence or completion word here */
};
struct mn_device {
    t_plugin *plugin;
    mn_event over; /* nothing here is asynchronous: one event that is always over serves all */
};
struct mn_buffer {
    mn_device *dev;
    uint8_t *ptr;
    uint64_t bytes;
    bool owned; /* false: wrap() */
};
struct mn_queue {
    mn_device *dev;
    atomic_bool aborted;
};

typedef struct {
    uint8_t *data; /* [rows, cols], dense, in the type of the file; a vector has one row */
    uint32_t dtype;
    uint32_t elem;
    int64_t rows;
    int64_t cols;
    bool wanted;
} t_weight;
/* bytes per element of the weight types that we take; 0 = not one of them */
static inline uint32_t t_elem(uint32_t dtype) {
    if (dtype == MN_F32)
        return 4;
    return dtype == MN_F16 || dtype == MN_BF16 ? 2 : 0;
}
struct mn_weights {
    mn_device *dev;
    const mn_graph *graph;
    t_weight w[]; /* [n_tensors] */
};

struct mn_program {
    mn_device *dev;
    const mn_graph *graph;
    const t_weight **w; /* [n_tensors] entries of the weight set */
    uint32_t lo, hi;    /* nodes of the segment */
    uint32_t n_sets;    /* of bindings */
    uint64_t scratch_bytes;
    uint64_t weight_bytes;
    int64_t *symbol_max; /* [n_symbols] */
    uint64_t *place;     /* [n_tensors] in scratch, of what the segment makes; else T_NO_PLACE */
};
/* A step that is being profiled (profile.c). */
typedef struct {
    mn_profile_unit *units; /* the caller's: room of them, stride bytes apart */
    uint32_t stride;
    uint32_t room;
    uint32_t n;       /* units so far */
    uint64_t last_ns; /* when the one before ended */
} t_profiling;
struct mn_context {
    const mn_program *prog;
    mn_queue *queue;
    int64_t *values;              /* [n_symbols] of this step */
    mn_binding *sets[T_MAX_SETS]; /* [n_tensors] each; buffer NULL = not bound */
    bool bound[T_MAX_SETS];       /* the first n_sets of the program */
    const mn_binding *bindings;   /* of this step: one of sets */
    uint8_t *scratch;
    t_profiling *profiling; /* NULL: nobody asks where the time goes */
};

/* ---- one node in one step: what kernels see -------------------------------------------------- */
typedef struct {
    float *x;               /* activations are f32, dense, row-major */
    const t_weight *w;      /* or a weight. Both NULL: the operand is absent */
    int64_t first, last, n; /* dim[0], last dim, number of elements */
} t_operand;
typedef struct {
    t_operand in[T_MAX_IN];
    t_operand out[T_MAX_LINEAR];
    uint32_t n_in;
    uint32_t n_out;
    uint32_t n_attr;
    const uint64_t *attr;
} t_call;

/* Why a node is refused: the host hands the number back to reason() and shows the text to users. */
enum {
    T_YES,
    T_OP,
    T_CONTRACT,
    T_ACTIVATION,
    T_WEIGHT,
    T_VECTOR,
    T_SHAPE,
    T_VIEW,
    T_ACT,
    T_EXTRA,
    T_N_REASONS
};
extern const char *const t_reasons[T_N_REASONS];

/* A kernel is one row: the op, the newest contract version it obeys, how many operands and
 * attributes that version has, what it says about a node, and the work, of which worker i of n does
 * its share. Adding an op is a row and two functions in kernels.c. */
typedef struct {
    uint32_t op;
    uint32_t contract;
    uint32_t n_in;
    uint32_t n_out;
    uint32_t n_attr;
    uint32_t (*judge)(const mn_graph *g, const mn_node *n);
    void (*run)(const t_call *c, uint32_t i, uint32_t n);
} t_kernel;
extern const t_kernel t_kernels[T_N_KERNELS];
const t_kernel *t_kernel_of(uint32_t op); /* NULL = not ours */

/* ---- the graph: arrays travel with a stride, so that their elements can grow (R1) ------------ */
/* Whether what the other side has reaches to the end of field f. */
#define COVERS(size, T, f) ((size) >= offsetof(T, f) + sizeof(((T *)0)->f))
static inline const mn_node *t_node(const mn_graph *g, uint32_t i) {
    return (const mn_node *)((const char *)g->nodes + (uint64_t)i * g->node_stride);
}
static inline const mn_tensor *t_tensor(const mn_graph *g, int32_t i) {
    return (const mn_tensor *)((const char *)g->tensors + (uint64_t)(uint32_t)i * g->tensor_stride);
}
static inline const mn_symbol *t_symbol(const mn_graph *g, uint32_t i) {
    return (const mn_symbol *)((const char *)g->symbols + (uint64_t)i * g->symbol_stride);
}
/* Operand i of a node as a tensor index; -1 = absent. A newer contract may have more operands than
 * the node at hand. */
static inline int32_t t_in(const mn_graph *g, const mn_node *n, uint32_t i) {
    return i < n->n_in ? g->operands[n->in_off + i] : -1;
}
static inline int32_t t_out(const mn_graph *g, const mn_node *n, uint32_t i) {
    return i < n->n_out ? g->operands[n->out_off + i] : -1;
}
static inline int64_t t_dim(const mn_tensor *t, uint32_t i, const int64_t *values) {
    return t->dim[i] >= 0 ? t->dim[i] : values[~t->dim[i]];
}

/* program.c: dims and elements of a tensor at these symbol values; false = overflow or a negative
 * size. */
bool t_size(const mn_graph *g, const mn_tensor *t, const int64_t *values, t_operand *o);
/* Copies what the host gave (by its size), and checks it. */
mn_status t_read_compile(const mn_compile *in, mn_compile *out, mn_error *err);

/* ---- what everything uses (template.c) ------------------------------------------------------- */
mn_status t_fail(mn_error *err, mn_status status, uint32_t node, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
mn_status t_no_memory(mn_error *err, uint64_t bytes, const char *what);
void t_give(void *dst, uint32_t capacity, void *src, uint32_t size); /* R4 */
/* Parameters of a call, which begin with their size: what is behind it is 0 (R10). */
void t_see(void *to, uint32_t room, const void *params);
/* MN_UNSUPPORTED for flags of a call that has none here. */
mn_status t_no_flags(uint64_t flags, const char *call, mn_error *err);
uint64_t t_total_bytes(void); /* of the device */
/* zeroed; NULL = out of memory */
static inline void *t_new(const t_plugin *p, uint64_t bytes) {
    void *m = p->host->alloc(p->host->self, bytes ? bytes : 1, T_ALIGN);
    return m ? memset(m, 0, bytes) : NULL;
}
static inline void t_delete(const t_plugin *p, void *m) {
    p->host->release(p->host->self, m);
}
#define T_NAME(t)                                                                                  \
    (int)((t)->name.len > 100 ? 100 : (t)->name.len), (t)->name.len ? (t)->name.ptr : ""

/* ---- the functions of the table, by file ----------------------------------------------------- */
/* memory.c */
mn_status t_alloc(mn_device *, const mn_alloc_params *, mn_buffer **, mn_error *);
mn_status t_wrap(mn_device *, void *, uint64_t, mn_buffer **, mn_error *);
void t_buffer_free(mn_buffer *);
mn_status t_map(mn_buffer *, void **, mn_error *);
mn_status t_queue_create(mn_device *, const mn_queue_params *, mn_queue **, mn_error *);
void t_queue_free(mn_queue *);
mn_status t_write(mn_queue *, mn_buffer *, uint64_t, const void *, uint64_t, mn_error *);
mn_status t_read(mn_queue *, const mn_buffer *, uint64_t, mn_buffer *, uint64_t, uint64_t,
                 mn_event **, mn_error *);
mn_status t_copy(mn_queue *, mn_buffer *, uint64_t, const mn_buffer *, uint64_t, uint64_t,
                 mn_event **, mn_error *);
mn_status t_wait(mn_event *, uint64_t, mn_error *);
mn_status t_queue_wait(mn_queue *, mn_event *, mn_error *);
void t_event_free(mn_event *);
mn_status t_abort(mn_queue *);
mn_status t_weights_open(mn_device *, const mn_compile *, mn_weights **, mn_error *);
mn_status t_weights_put(mn_weights *, mn_queue *, const mn_weight_src *, mn_event **, mn_error *);
mn_status t_weights_seal(mn_weights *, mn_queue *, uint32_t *, mn_error *);
void t_weights_free(mn_weights *);
mn_status t_memory_layout(mn_device *, const mn_compile *, uint32_t, mn_memory_layout *,
                          mn_error *);
mn_status t_memory_copy(mn_queue *, mn_buffer *, const mn_memory_layout *, const mn_page_copy *,
                        uint32_t, uint32_t, mn_event **, mn_error *);
/* program.c */
mn_status t_supports(mn_device *, const mn_compile *, mn_verdict *, uint32_t, mn_error *);
mn_status t_estimate(mn_device *, const mn_compile *, mn_estimate *, mn_error *);
mn_status t_compile(mn_device *, const mn_compile *, mn_program **, mn_error *);
void t_program_free(mn_program *);
mn_status t_program_save(const mn_program *, void *, uint64_t *);
mn_status t_context_create(mn_program *, const mn_context_params *, mn_context **, mn_error *);
mn_status t_context_bind(mn_context *, uint32_t, const mn_binding *, uint32_t, uint32_t,
                         mn_error *);
/* what execute and the profile have of a step; MN_UNSUPPORTED, MN_INVALID */
mn_status t_see_step(const mn_context *, const mn_step *in, mn_step *out, mn_error *);
mn_status t_execute(mn_context *, const mn_step *, mn_event **, mn_error *);
void t_context_free(mn_context *);
/* profile.c */
extern const mn_profile t_profile;
void t_profile_node(t_profiling *p, const mn_host *h, uint32_t node, uint32_t op, const t_call *c);

#pragma GCC visibility pop
#endif
