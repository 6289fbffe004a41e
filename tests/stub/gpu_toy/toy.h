/* toy.h -- a GPU that is a thread: the smallest backend on plugins/gpu_host, and the example of
 * docs/adding.md. Its memory is apart from the host's, of which it copies what it needs; its
 * stream is a thread that runs commands in order, its kernels are the operations of the reference
 * plugin, with addresses and sizes that were copied when they were launched. What a real backend
 * writes itself stands in plugin.c (facts, memory, the table), stream.c (queues, events) and ops.c
 * (weights, launches). */
#ifndef TOY_H
#define TOY_H
#include "gpu_host.h"
#include "reference.h"

enum { TOY_PAGE_TOKENS = 64, TOY_MAX_HEAD = 512, TOY_MAX_EXPERTS = 1024, TOY_SLACK = 256 };
#define TOY_MEMORY (UINT64_C(2) << 30)

/* ---- objects --------------------------------------------------------------------------------- */
/* A place in a queue, counted by its owner and by the command that reaches it. */
typedef struct {
    int refs;   /* atomic */
    int passed; /* atomic */
    bool own;   /* one of the device's, which are used again once refs is 0 */
} toy_event;
enum { TOY_EVENTS = 256 };
/* Who is told when an event passes. */
typedef struct toy_told toy_told;
struct toy_told {
    toy_told *next;
    toy_event *event;
    void (*fn)(void *arg, mn_status status);
    void *arg;
};
struct mn_device {
    mng_device base;
    uint64_t used;      /* atomic: bytes of device memory */
    uint64_t peak;      /* the most of it; under base.lock */
    int64_t lost_after; /* kernels; then the device is lost. The option of that name; -1: never */
    int64_t n_kernels;  /* atomic: that ran */
    int64_t kernel_us;  /* that each takes at least. The option of that name; 0: no time */
    int64_t n_beside;   /* atomic: rows that came while kernels were under way, with kernel_us */
    toy_event events[TOY_EVENTS];
    toy_told *told; /* under base.lock, as is the passing of an event */
};
struct mn_program {
    mng_program base;
};
struct mn_context {
    mng_context base;
};
/* The one weight type: f32, which dtype/ unpacks every other to. */
struct mng_type {
    uint32_t dtype;
};

/* A kernel with its operands, as it is launched. */
typedef struct {
    const ref_op *op;
    mnc_call call;
    mnc_weight weights[MNC_MAX_IN]; /* that the operands of `call` point to, by their index */
    void *scratch;
} toy_kernel;
typedef struct {
    char *to;
    const char *from;
    uint64_t n;
} toy_copy;

typedef struct {
    uint32_t *at;
    uint32_t value;
} toy_word;

/* What the stream runs: a kernel, a copy of bytes or of a view, an event that passes, a wait for
 * one or at a gate, the writing of a word. */
typedef enum { TOY_KERNEL, TOY_COPY, TOY_VIEW, TOY_RECORD, TOY_WAIT, TOY_WORD_WRITE } toy_what;
typedef struct {
    toy_what what;
    union {
        toy_kernel kernel;
        toy_copy copy;
        mng_view view;
        toy_event *event;
        toy_word word;
    } u;
} toy_command;

/* Commands [done, pushed) of a ring are under way. */
enum { TOY_COMMANDS = 64 };
struct mn_queue {
    mng_queue base;
    pthread_t thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t moved; /* pushed, done or ends has changed */
    bool runs;
    bool ends;
    uint64_t pushed;
    uint64_t done;
    toy_command *commands; /* [TOY_COMMANDS] */
};

/* MN_INVALID where gpu_host has not made the device this thread's, as it says in gpu_host.h. */
mn_status toy_check_entered(const mn_device *d, mn_error *err);

static inline char *toy_at(mng_ref ref) {
    return mng_is_there(ref) ? (char *)ref.mem + ref.at : NULL;
}

/* ---- stream.c -------------------------------------------------------------------------------- */
/* A free command, which the caller fills; then its way into the stream. One thread at a time. */
toy_command *toy_begin(mn_queue *q);
void toy_push(mn_queue *q);
mn_status toy_queue_open(mn_queue *, mn_error *);
void toy_queue_close(mn_queue *);
mn_status toy_queue_finish(mn_queue *, mn_error *);
mn_status toy_copy_in(mn_queue *, mng_ref, const char *, uint64_t, void **, mn_error *);
mn_status toy_copy_out(mn_queue *, char *, mng_ref, uint64_t, mn_error *);
mn_status toy_copy_on(mn_queue *, mng_ref, mng_ref, uint64_t, mn_error *);
mn_status toy_event_record(mn_queue *, void **, mn_error *);
mn_status toy_event_poll(mn_device *, void *, bool *, mn_error *);
mn_status toy_event_wait(mn_device *, void *, mn_error *);
mn_status toy_event_join(mn_queue *, void *, mn_error *);
void toy_event_free(mn_device *, void *);
mn_status toy_gate_close(mn_queue *, void **, mn_error *);
void toy_gate_open(mn_device *, void *);
mn_status toy_word_write(mn_queue *, mng_ref, uint32_t, mn_error *);
mn_status toy_event_tell(mn_device *, void *, void (*)(void *, mn_status), void *, mn_error *);

/* ---- ops.c ----------------------------------------------------------------------------------- */
enum { TOY_N_OPS = 23 };
extern const mng_op *const toy_ops[TOY_N_OPS];
void toy_weight_shape(const mn_device *, const mn_tensor *, mng_weight *);
mn_status toy_weight_put(mn_queue *, const mng_weight *, const mnp_source_row *, mn_error *);
void toy_copy_view(mng_run *, const mng_view *);
/* On the stream's thread. */
void toy_run_kernel(const toy_kernel *k);
void toy_run_view(const mng_view *v);
#endif
