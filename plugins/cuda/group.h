/* group.h -- mn.group/1: several GPUs as one device, tensor parallel by the plan of
 * plugins/common/shard.h. By `open` all members are in this process, by `join` one of them, and the
 * others in processes of their own.
 *
 * Every object of a group is one of each member that is here, in the order of ranks; the functions
 * of the table ask these members one after the other (group*.cu). A step is one captured
 * graph per member, with the exchanges inside. One thread launches all of them before anybody
 * waits, and kernels of exchanges are small enough to run at once beside whatever else runs there,
 * so that members which wait for each other always meet (group_step.c). Because of that, nothing
 * of a group is launched kernel by kernel, but for a profile, whose kernels are all loaded.
 *
 * Members exchange through each other's memory (k_group.cu) where every card reads every other;
 * else, with members in other processes, or by the option `collectives` = "nccl", through NCCL,
 * which is opened at run time and only carries bytes (nccl.c). Either way sums are added in the
 * order of ranks: the same bits in every run, by either way.
 *
 * A member that fails, or does not answer for CU_PATIENCE seconds over peer memory, loses the
 * group: later calls return MN_DEVICE_LOST, and the message names it. Of a process that ended the
 * host knows: it ends the others. */
#ifndef CU_GROUP_H
#define CU_GROUP_H
#include "exchange.h"
#include "program.h"
#include "shard.h"

/* NCCL's communicators of a group, one per member that is here; nccl.c. */
typedef struct cu_nccl cu_nccl;

/* What memory_layout was told by the members; its address is the cookie. */
typedef struct cu_group_layout cu_group_layout;
struct cu_group_layout {
    cu_group_layout *next;
    mn_memory_layout of[CU_MAX_MEMBERS];
};

/* Objects of members in other processes are NULL, here and below. */
typedef struct {
    mn_device base;
    uint32_t n;
    uint32_t lo, hi; /* the members that are here: 0 and n, or one */
    mn_device *of[CU_MAX_MEMBERS];
    bool peers;     /* every member reads and writes the memory of every other */
    bool one_card;  /* members that are here share a card: a test (option repeat) */
    cu_nccl *nccl;  /* NULL: it is not used */
    bool stuck;     /* a member did not answer: closing waits for none */
    uint64_t small; /* sums of at most so many bytes are sent whole to every member */
    uint64_t least; /* memory of the smallest card, also of other processes */
    /* by rank, in memory of the host: 1 + the rank of a member that this one waited for in vain */
    uint32_t *missed;
    cu_group_layout *layouts; /* under lock, as spare */
} cu_group;
typedef struct {
    mn_buffer base;
    uint32_t n; /* 1: memory of the host, which all members share */
    mn_buffer *of[CU_MAX_MEMBERS];
} cu_group_buffer;
typedef struct {
    mn_queue base;
    mn_queue *of[CU_MAX_MEMBERS];
} cu_group_queue;
typedef struct {
    mn_event base;
    mn_event *of[CU_MAX_MEMBERS]; /* NULL: that member has nothing to do */
} cu_group_event;
typedef struct {
    mn_weights base;
    mnp_shard *plan;
    mn_weights *of[CU_MAX_MEMBERS];
} cu_group_weights;
typedef struct {
    mn_program base;
    mnp_shard *whole; /* the plan of its members */
    mn_program *of[CU_MAX_MEMBERS];
} cu_group_program;
typedef struct {
    mn_context base;
    mn_context *of[CU_MAX_MEMBERS];
    cu_mailbox *mail[CU_MAX_MEMBERS]; /* on each member; NULL without peer memory */
    float *arrivals[CU_MAX_MEMBERS];  /* on each member: what NCCL brings; NULL without NCCL */
} cu_group_context;

/* The index of a group among devices. */
enum { CU_GROUP = -1 };
static inline bool cu_is_group(const mn_device *d) {
    return d->index == CU_GROUP;
}
/* The objects of a group. */
static inline cu_group *cu_group_of(mn_device *d) {
    return (cu_group *)d;
}
static inline cu_group *cu_group_of_queue(const cu_group_queue *q) {
    return cu_group_of(q->base.base.dev);
}
static inline cu_group *cu_group_of_program(const mn_program *p) {
    return cu_group_of(p->base.dev);
}
static inline cu_group *cu_group_of_context(const cu_group_context *c) {
    return cu_group_of_program(c->base.base.prog);
}
/* The members that are here, by rank, as long as `more`. */
#define CU_EACH_MEMBER(g, rank, more)                                                              \
    for (uint32_t rank = (g)->lo; rank < (g)->hi && (more); rank++)
/* Whether members are in other processes. */
static inline bool cu_is_joined_group(const cu_group *g) {
    return g->hi - g->lo < g->n;
}
/* The card of a member; of one in another process, a card of its kind. */
static inline mn_device *cu_member_device(const cu_group *g, uint32_t rank) {
    return g->of[rank] ? g->of[rank] : g->of[g->lo];
}
static inline mn_buffer *cu_member_buffer(const mn_buffer *b, uint32_t rank) {
    const cu_group_buffer *x = (const cu_group_buffer *)b;
    return x->of[x->n == 1 ? 0 : rank];
}

/* ---- group.c -------------------------------------------------------------------------------- */
extern const mn_group cu_group_table;
void cu_group_device_close(mn_device *);
mn_status cu_group_device_memory(mn_device *, uint64_t *, uint64_t *, mn_error *);
mn_status cu_group_self_test(mn_device *, mn_error *);
mn_status cu_group_supports(mn_device *, const mn_compile *, mn_verdict *, uint32_t, mn_error *);
/* Puts the name of the member, which is here, before the message of a status that is not MN_OK. */
mn_status cu_group_blame(const cu_group *g, uint32_t rank, mn_status st, mn_error *err);

/* ---- group_memory.c ------------------------------------------------------------------------- */
mn_status cu_group_alloc(mn_device *, const mn_alloc_params *, mn_buffer **, mn_error *);
mn_status cu_group_wrap(mn_device *, void *, uint64_t, mn_buffer **, mn_error *);
void cu_group_buffer_free(mn_buffer *);
mn_status cu_group_map(mn_buffer *, void **, mn_error *);
mn_status cu_group_queue_create(mn_device *, const mn_queue_params *, mn_queue **, mn_error *);
void cu_group_queue_free(mn_queue *);
mn_status cu_group_write(mn_queue *, mn_buffer *, uint64_t, const void *, uint64_t, mn_error *);
mn_status cu_group_read(mn_queue *, const mn_buffer *, uint64_t, mn_buffer *, uint64_t, uint64_t,
                        mn_event **, mn_error *);
mn_status cu_group_copy(mn_queue *, mn_buffer *, uint64_t, const mn_buffer *, uint64_t, uint64_t,
                        mn_event **, mn_error *);
mn_status cu_group_wait_event(mn_event *, uint64_t, mn_error *);
mn_status cu_group_queue_wait(mn_queue *, mn_event *, mn_error *);
void cu_group_event_free(mn_event *);
mn_status cu_group_abort(mn_queue *);
/* Behind all that the members' queues have; without events: for a caller that fills in some. */
mn_status cu_group_event_new(cu_group_queue *q, mn_event **out, mn_error *err);
mn_status cu_group_event_empty(cu_group *g, cu_group_event **out, mn_error *err);

/* ---- group_model.c -------------------------------------------------------------------------- */
mn_status cu_group_estimate(mn_device *, const mn_compile *, mn_estimate *, mn_error *);
mn_status cu_group_member_estimate(mn_device *, uint32_t rank, const mn_compile *, mn_estimate *,
                                   mn_error *);
mn_status cu_group_memory_layout(mn_device *, const mn_compile *, uint32_t, mn_memory_layout *,
                                 mn_error *);
mn_status cu_group_memory_copy(mn_queue *, mn_buffer *, const mn_memory_layout *,
                               const mn_page_copy *, uint32_t, uint32_t, mn_event **, mn_error *);
mn_status cu_group_weights_open(mn_device *, const mn_compile *, mn_weights **, mn_error *);
mn_status cu_group_weights_put(mn_weights *, mn_queue *, const mn_weight_src *, mn_event **,
                               mn_error *);
mn_status cu_group_weights_seal(mn_weights *, mn_queue *, uint32_t *, mn_error *);
void cu_group_weights_free(mn_weights *);
mn_status cu_group_compile(mn_device *, const mn_compile *, mn_program **, mn_error *);
void cu_group_program_free(mn_program *);

/* ---- group_step.c --------------------------------------------------------------------------- */
mn_status cu_group_context_create(mn_program *, const mn_context_params *, mn_context **,
                                  mn_error *);
mn_status cu_group_context_bind(mn_context *, uint32_t, const mn_binding *, uint32_t, uint32_t,
                                mn_error *);
mn_status cu_group_context_prepare(mn_context *, const mn_step *, mn_error *);
mn_status cu_group_execute(mn_context *, const mn_step *, mn_event **, mn_error *);
void cu_group_context_free(mn_context *);

/* ---- nccl.c --------------------------------------------------------------------------------- */
/* The library (option `nccl`: its path) and a communicator per member. MN_UNSUPPORTED: it is not
 * there, or does not start; the message states why. */
mn_status cu_nccl_open(cu_group *g, mn_error *err);
/* A communicator for the member that is here, when all others have come; MN_TIMEOUT: not all have
 * within timeout_ns. */
mn_status cu_nccl_join(cu_group *g, const uint8_t *id, uint64_t timeout_ns, mn_error *err);
void cu_nccl_close(cu_group *g);
/* id: [CU_NCCL_ID_BYTES] */
enum { CU_NCCL_ID_BYTES = 128 };
mn_status cu_nccl_make_id(const mng_plugin *p, uint8_t *id, mn_error *err);
/* What a member sends to another one and has from it: elements of f32. */
typedef struct {
    const float *from;
    float *to;
    int64_t n_from, n_to;
} cu_parcel;
/* of: by the rank of the other; with itself a member exchanges nothing. */
typedef struct {
    cu_parcel of[CU_MAX_MEMBERS];
} cu_parcels;
/* All members exchange at once; parcels, streams: by rank, of those that are here. The streams may
 * be under capture. What rank a sends to b is what b has from a. */
mn_status cu_nccl_swap(cu_group *g, const cu_parcels *parcels, const cudaStream_t *streams,
                       mn_error *err);
/* MN_DEVICE_LOST, if NCCL has noticed by itself that a member is gone. */
mn_status cu_nccl_check(const cu_group *g, mn_error *err);
#endif
