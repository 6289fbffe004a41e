/* state.c -- what CONV_STATE, SSM_SCAN and GATED_DELTA of the oracle share. Holds nothing. */
#include "states.h"
#include "reference.h"
#include <math.h>
#include <string.h>

bool ref_has_state(const mnc_query *q) {
    return mnp_n_state(q->graph, q->node) > 0;
}

void ref_state_begin(const float *from, float *to, int64_t n) {
    if (!from)
        memset(to, 0, (size_t)n * sizeof *to);
    else
        memmove(to, from, (size_t)n * sizeof *to);
}

double ref_softplus(double x) {
    const double above = x < 0 ? 0 : x; /* NaN stays NaN */
    return above + log1p(exp(-fabs(x)));
}

double ref_rate(double a, bool is_log) {
    if (is_log)
        return -exp(a);
    return a;
}
