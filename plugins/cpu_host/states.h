/* states.h -- what both CPU plugins ask in a step about CONV_STATE, SSM_SCAN and GATED_DELTA:
 * shapes, and which rows and pages a sequence has. Pure functions; any thread. */
#ifndef MNC_STATES_H
#define MNC_STATES_H
#include "cpu_host.h"
#include "state_nodes.h"

/* For functions of a step. */
mn_conv_shape mnc_conv_of(const mnc_call *c);
mn_ssm_shape mnc_ssm_of(const mnc_call *c);
mn_delta_shape mnc_delta_of(const mnc_call *c);

/* A sequence of a step. Its rows are those of [row_lo, row_hi) that are not padding. */
typedef struct {
    int64_t row_lo;
    int64_t row_hi;
    const float *from; /* NULL: zeros */
    float *to;         /* may be from */
} mnc_sequence;
/* Entry i of SEQS. False: it is unused, or its slot has no page. */
bool mnc_sequence_at(const mnc_call *c, int64_t i, mnc_sequence *out);
/* Entries of SEQS, and ROW_POS [T], of any of the three operations. */
int64_t mnc_n_sequences(const mnc_call *c);
const int32_t *mnc_row_pos(const mnc_call *c);

#endif
