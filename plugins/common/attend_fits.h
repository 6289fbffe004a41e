/* attend_fits.h -- the optional operands of an ATTENTION, for backends that compute all of them. */
#ifndef MNP_ATTEND_FITS_H
#define MNP_ATTEND_FITS_H
#include "common.h"

/* of DISTANCE_BIAS and RELATIVE_*: maximum length of a table of distances */
#define MNP_MAX_DISTANCE 65536
/* Whether these operands may stand together. The node has Q. */
bool mnp_attention_fits(const mn_graph *g, const mn_node *n);
#endif
