/* weights.h -- hands the weights that a segment reads to its device as one set, described as
 * stored. */
#ifndef MN_WEIGHTS_H
#define MN_WEIGHTS_H
#include "graph/graph.h"

/* Opens for the segment of c, streams, waits and seals. *out is the caller's (weights_free);
 * kept_how: MN_KEPT_* bits. */
mn_status mn_weights_import(const mn_backend *b, mn_device *d, mn_queue *q, const mn_compile *c,
                            const mn_model_graph *g, mn_weights **out, uint32_t *kept_how,
                            mn_error *err);
#endif
