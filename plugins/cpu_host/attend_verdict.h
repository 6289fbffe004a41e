/* attend_verdict.h -- for the plugins' verdicts on ATTENTION. */
#ifndef MNC_ATTEND_VERDICT_H
#define MNC_ATTEND_VERDICT_H
#include "attend_fits.h"
#include "cpu_host.h"

/* Whether the optional operands of the query's node, which has Q, go together. */
static inline bool mnc_attention_fits(const mnc_query *q) {
    return mnp_attention_fits(q->graph, q->node);
}
#endif
