/* states.h -- what both CPU plugins ask about CONV_STATE, SSM_SCAN and GATED_DELTA: which shapes
 * are legal, and which rows and pages a sequence of a step has. Pure functions; any thread. */
#ifndef MNC_STATES_H
#define MNC_STATES_H
#include "cpu_host.h"
#include "state_shapes.h"

/* For verdict and prepare. n_state is 0 where operands are missing or do not fit together. */
mn_conv_shape mnc_conv_asked(const mnc_query *q);
mn_ssm_shape mnc_ssm_asked(const mnc_query *q);
mn_delta_shape mnc_delta_asked(const mnc_query *q);
/* n_state of the query's node, which is one of the three; 0: its operands do not fit. */
uint64_t mnc_n_state(const mnc_query *q);

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
