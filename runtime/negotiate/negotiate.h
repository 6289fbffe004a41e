/* negotiate.h -- which device runs the graph, and why.
 *
 * Every candidate makes an offer: verdict per node, memory upper bound, estimated time. One device runs the whole graph; splitting it
 * over several, and rates measured by the host instead of stated by the plugin, come on top of this record later. */
#ifndef MN_NEGOTIATE_H
#define MN_NEGOTIATE_H
#include "base/base.h"
#include "graph/graph.h"
#include "registry/registry.h"

/* What the session wants; zeros were replaced by defaults before. */
typedef struct {
    const char *devices; /* "auto" or a list of names, best first */
    uint32_t precision;  /* MN_PRECISION_* */
    uint32_t kv_dtype;   /* MN_DTYPE_NONE = by the class */
    uint32_t n_ctx, n_seq, n_batch, n_outputs;
} mn_request;

typedef struct {
    const mn_device_record *record;
    mn_device *device; /* the registry's; NULL if it could not be opened */
    mn_status status;  /* MN_OK: it can; else the class says why not */
    char reason[400];  /* of the refusal */
    uint32_t precision, kv_dtype;
    mn_estimate estimate;
    mn_kv_layout kv;
    uint32_t n_pages;        /* per slot */
    uint64_t kv_bytes, need; /* need: weights + KV + scratch, upper bound */
    double score;            /* microseconds per token of a typical mix; lower is better */
} mn_offer;

typedef struct {
    mn_offer *offers;
    uint32_t n_offers, chosen;
    char *why; /* one sentence on the choice */
    bool fallback;
    int64_t symbol_max[MN_SYM_COUNT]; /* of the chosen device */
} mn_placement;

/* MN_NO_DEVICE: a name that does not exist (lists those that do), or nothing named can run the graph (says why for each).
 * MN_OUT_OF_MEMORY: memory alone is in the way (says how much is needed for what). *out is freed by the caller. */
mn_status mn_negotiate(mn_registry *reg, const mn_model_graph *g, const mn_request *req, mn_placement *out,
                       mn_error *err);
void mn_placement_free(mn_placement *p);
#endif
