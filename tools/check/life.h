/* life.h -- what the rules about backends do again and again: open device 0, find an op that it
 * runs, compile a small case of it, run a whole life of the plugin. */
#ifndef MINERVA_CHECK_LIFE_H
#define MINERVA_CHECK_LIFE_H
#include "case_plan.h"
#include "check.h"

/* ---- cases ----------------------------------------------------------------------------------- */
op_shape life_shape(void); /* of every small case */
/* A small case of an op with weights in f32; equal calls give equal cases. NULL = out of memory,
 * and the rule has failed. Freed by case_free. */
op_case *life_case(check *c, uint32_t op);
uint32_t life_node(const op_case *o, uint32_t op); /* the first node of that op */

/* ---- a stage: the plugin with device 0 open, for one rule ------------------------------------ */
typedef struct {
    check_host host;
    check_plugin p;
    case_on on;      /* the plugin's device and queue */
    op_case *o;      /* stage_case and stage_plan */
    case_plan *plan; /* stage_plan: o compiled, with buffers and a bound context */
} stage;
/* Each 1, or 0 and the rule is over: skipped where there is no device, or none of its ops can be
 * made a case of. stage_case: a small case of the first op that the device supports, LINEAR
 * first. A rule that fails later need not close its stage: its process ends. */
int stage_device(check *c, stage *s);
int stage_case(check *c, stage *s);
int stage_plan(check *c, stage *s);
void stage_close(check *c, stage *s); /* frees all of it; nothing of the host's may be left then */
/* The table of contracts, as the plugin has it. */
typedef struct {
    const mn_op_contract *at;
    uint32_t n, stride;
} op_contracts;
const mn_op_contract *op_contract(const op_contracts *list, uint32_t i);
/* 1, or 0 and the rule has failed. */
int stage_contracts(check *c, const stage *s, op_contracts *list);

/* Calls fn with life_case of each op that the device supports, until the rule is over; closes
 * the stage and reports the number of ops. The rule is skipped where there is none. */
typedef void (*stage_fn)(check *c, stage *s, op_case *o, uint32_t op);
void stage_each_op(check *c, stage *s, stage_fn fn);

/* ---- a life ---------------------------------------------------------------------------------- */
/* Entry, device, one case, shutdown on that host. The first status that is not MN_OK, with its
 * error; for a plugin without devices, entry and shutdown alone. A status is not a failure of
 * the rule, since some hosts make the plugin refuse; memory that is not released is one. */
mn_status life_run(check *c, check_host *host, mn_error *err);
#endif
