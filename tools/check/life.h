/* life.h -- what the rules about backends do over and over: find an op that the device runs, and
 * run it. */
#ifndef MINERVA_CHECK_LIFE_H
#define MINERVA_CHECK_LIFE_H
#include "case_plan.h"
#include "check.h"

/* The shape of every small case. */
op_shape life_shape(void);
/* A small case of the first op that the device says yes to (LINEAR first), in f32. NULL and the
 * rule is skipped: none. */
op_case *life_case(check *c, const check_plugin *p);
uint32_t life_node(const op_case *o, uint32_t op); /* the first node of that op */
case_on life_on(const check_plugin *p);
/* Once through everything: entry, device, case, shutdown. The first status that is not MN_OK, with
 * its error; for a plugin without devices, entry and shutdown. *ran (may be NULL): 1 if a case ran.
 * Nothing of a host that refuses is the rule's failure. */
mn_status life_run(check *c, check_host *host, int *ran, mn_error *err);
#endif
