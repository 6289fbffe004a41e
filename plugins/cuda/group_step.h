/* group_step.h -- a step of a group while it is launched: its members' units and exchanges in the
 * order of the plan. group_step.c launches it under capture, profile.c with events between. */
#ifndef CU_GROUP_STEP_H
#define CU_GROUP_STEP_H
#include "group.h"
#include "ops.h"

typedef struct {
    cu_group_context *c;
    cu_group *g;
    const mnp_shard *plan;
    mng_run run[CU_MAX_MEMBERS];   /* of the members that are here */
    uint32_t unit[CU_MAX_MEMBERS]; /* that is launched next */
    uint32_t n_exchanges;          /* through mailboxes so far */
} cu_joint_step;
/* Makes the member's device the current one. */
mn_status cu_choose_member(const cu_group *g, uint32_t rank, mn_error *err);

/* ---- group_exchange.c ----------------------------------------------------------------------- */
/* Bytes that a context has on each member for its exchanges. */
uint64_t cu_exchange_bytes(const cu_group *g);
mn_status cu_exchange_room(cu_group_context *c, uint32_t rank, mn_error *err);
void cu_exchange_room_free(cu_group_context *c, uint32_t rank);
/* Whether what exchange e makes is wanted: an output that is not bound is not. */
bool cu_is_exchanged(const cu_joint_step *s, const mnp_exchange *e);
/* Exchange k of the plan, on the members that are here. */
mn_status cu_launch_exchange(cu_joint_step *s, uint32_t k, const mnp_exchange *e, mn_error *err);
/* Behind the last exchange of a step. */
mn_status cu_end_exchanges(const cu_joint_step *s, mn_error *err);

/* ---- group_step.c --------------------------------------------------------------------------- */
/* The step for the symbols of the members' contexts, on the streams under capture or on those of
 * their queues; nothing of it is launched. */
cu_joint_step cu_joint_step_of(cu_group_context *c, bool captures);
/* A step as its members' graphs, found or made; execs: by rank. */
mn_status cu_group_get_ready(cu_group_context *c, const mn_step *step, bool prepare,
                             cudaGraphExec_t *execs, mn_error *err);
#endif
