/* weights.h -- hands the weights that a segment reads to its device as one set, described as
 * stored. */
#ifndef MN_WEIGHTS_H
#define MN_WEIGHTS_H
#include "base/call.h"
#include "graph/graph.h"
#include "negotiate/negotiate.h"

typedef struct {
    const mn_backend *backend;
    const mn_callee *callee; /* for MN_WATCHED; may be NULL */
    mn_device *device;
    mn_queue *queue;    /* the caller's; with several threads each other one has its own */
    uint32_t n_threads; /* at most; above 1 only for a device with MN_DEVICE_PARALLEL_PUT */
    const mn_compile *compile;
    const mn_model_graph *graph;
    mn_watcher watcher;     /* called by the calling thread alone */
    uint32_t part, n_parts; /* of the whole that the watcher sees */
} mn_import;

/* A weight of the graph as it is given; plane: for a constant's, and read as long as the result. */
mn_weight_src mn_weight_describe(const mn_graph *g, const mn_graph_weight *w, mn_plane *plane);

/* Opens for the segment, streams, waits and seals. *out is the caller's (weights_free); kept_how:
 * MN_KEPT_* bits. After an error all threads have ended and everything is freed. The error is the
 * first one that says that the device is lost, else the error of the first failing weight in the
 * graph's order. */
mn_status mn_weights_import(const mn_import *in, mn_weights **out, uint32_t *kept_how,
                            mn_error *err);
#endif
