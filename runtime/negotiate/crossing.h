/* crossing.h -- tensors that cross segments: which device has them, from when to when, and in which
 * memory. One answer for the negotiation, which counts bytes, and for the engine, which allocates
 * them. */
#ifndef MN_CROSSING_H
#define MN_CROSSING_H
#include "base/base.h"
#include "graph/graph.h"

/* Nodes [lo, hi) on a device, a number below n_devices. */
typedef struct {
    uint32_t lo, hi, device;
} mn_crossing_segment;

#define MN_NOT_MOVED UINT32_MAX
/* A tensor on one device: made there by segment `first`, or moved there just before it; last: the
 * segment that reads it last, or before which it is moved on. */
typedef struct {
    uint32_t tensor, device, first, last;
    uint32_t from;  /* the device that it comes from; MN_NOT_MOVED: made here */
    uint32_t made;  /* the segment that makes it, there or here */
    uint32_t place; /* the memory that it lies in */
} mn_crossing;

/* Memory of a device that tensors have one after the other. */
typedef struct {
    uint64_t bytes;
    uint32_t device;
    uint32_t last; /* as of the tensor that has it last */
    bool kept;     /* one tensor has it for good */
} mn_crossing_place;

typedef struct {
    mn_crossing *at; /* [n] in the order of `first` */
    mn_crossing_place *places;
    uint64_t *new_bytes; /* [n_segments] of places, by the segment that needs them first */
    uint32_t n, n_places;
} mn_crossings;

/* Segments are in order and cover the graph. symbols: [MN_SYM_COUNT] maxima. Outputs have memory
 * of their own, for the host reads them when the step is over. MN_INVALID: a size overflows. Freed
 * in any case. */
mn_status mn_crossings_find(const mn_graph *g, const mn_crossing_segment *s, uint32_t n_segments,
                            uint32_t n_devices, const int64_t *symbols, mn_crossings *out,
                            mn_error *err);
void mn_crossings_free(mn_crossings *x);

/* Bytes of a tensor with these symbol values, as it is bound: dense, FLOAT as f32. false =
 * overflow. */
bool mn_tensor_bytes(const mn_graph *g, uint32_t tensor, const int64_t *symbols, uint64_t *bytes);
#endif
