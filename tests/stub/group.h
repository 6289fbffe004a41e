/* group.h -- the plugin that has four devices and joins them to groups, by the plan of
 * plugins/common/shard.h: what a mn.group/1 does, with host memory and threads of the host's
 * pool. Every object is one of the reference plugin per member; of a single device there is one
 * member, and no plan. */
#ifndef STUB_GROUP_H
#define STUB_GROUP_H
#include "mnc.h"
#include "shard.h"
#include "usual.h"

#define GROUP_MAX 4u

typedef struct group_link group_link;

extern const mn_backend *group_inner; /* the members' */
extern const mn_host *group_host;     /* the real one */

/* The parts of one table of functions; the host's opaque types are these. */
typedef struct {
    uint32_t n;
    uint32_t lo, hi;  /* members of this process; objects of others are NULL */
    group_link *link; /* to members in other processes; NULL: all are here */
    mn_device *of[GROUP_MAX];
    struct group_layout *layouts;
} group_device;
/* What memory_layout was told by the members; its address is the cookie. */
typedef struct group_layout {
    struct group_layout *next;
    mn_memory_layout of[GROUP_MAX];
} group_layout;
typedef struct {
    group_device *dev;
    uint32_t n; /* 1: memory of the host, which all members share */
    mn_buffer *of[GROUP_MAX];
} group_buffer;
typedef struct {
    group_device *dev;
    mn_queue *of[GROUP_MAX];
} group_queue;
typedef struct {
    group_device *dev;
    mnp_shard *plan; /* NULL: one member */
    const mn_graph *graph;
    mn_weights *of[GROUP_MAX];
} group_weights;
typedef struct {
    group_device *dev;
    mnp_shard *plan;
    const mn_graph *graph;
    uint32_t lo;
    uint32_t hi;
    int64_t *symbol_max; /* [n_symbols] */
    mn_program *of[GROUP_MAX];
} group_program;
/* Of a step: nodes [lo, hi) of every member, or an exchange. */
typedef struct {
    const mnp_exchange *exchange; /* NULL: nodes */
    uint32_t lo;
    uint32_t hi;
} group_phase;
typedef struct {
    group_program *prog;
    mn_context *of[GROUP_MAX];
    mn_buffer *room[GROUP_MAX]; /* of the tensors that exchanges read and write */
    uint64_t *place;            /* [n_tensors] in room; MNP_NOWHERE */
    group_phase *phases;
    uint32_t n_phases;
} group_context;

/* The graph of a member; plan NULL: the host's. */
static inline const mn_graph *group_graph(const mnp_shard *plan, const mn_graph *g, uint32_t r) {
    return plan ? mnp_shard_graph(plan, r) : g;
}

enum { GROUP_ID_BYTES = 128 };
/* group_link.c: what members in several processes share. id: GROUP_ID_BYTES that no other group
 * has had. Returns when all n have come; MN_TIMEOUT: after a minute. */
mn_status group_link_new_id(uint8_t *id, mn_error *);
mn_status group_link_open(const uint8_t *id, uint32_t rank, uint32_t n, group_link **out,
                          mn_error *);
void group_link_close(group_link *); /* NULL is fine */
/* Memory of a member that all processes see: GROUP_PLACE bytes. */
#define GROUP_PLACE (UINT64_C(64) << 20)
float *group_link_place(const group_link *, uint32_t rank);
/* Waits until all processes are here; for ever, if one has ended. */
void group_link_meet(group_link *);

/* group_step.c */
mn_status group_context_create(mn_program *, const mn_context_params *, mn_context **, mn_error *);
mn_status group_context_bind(mn_context *, uint32_t set, const mn_binding *, uint32_t n,
                             uint32_t stride, mn_error *);
mn_status group_execute(mn_context *, const mn_step *, mn_event **, mn_error *);
void group_context_free(mn_context *);

#endif
