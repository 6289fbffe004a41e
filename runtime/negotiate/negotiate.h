/* negotiate.h -- which devices run the graph, and why.
 *
 * Every candidate makes an offer: verdict per node, memory upper bound, estimated time by rates that the host measured. One device runs
 * the whole graph if one is enough; else contiguous segments of nodes over several. KV_STORE and ATTENTION of a layer stay on one
 * device, and so do EMBED and SAMPLE (they share the slots). The record explains itself: mn_placement_explain. */
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
    const char *stage;       /* how far it came: "plugin", "device", "open", "contracts", "verdicts", "memory", "offered" */
    mn_verdict *verdicts;    /* [n_nodes] what the device said; NULL = it was not asked */
} mn_offer;

/* Nodes [node_lo, node_hi) run on the device of offers[offer]. */
typedef struct {
    uint32_t node_lo, node_hi, offer;
} mn_segment;

typedef struct {
    mn_offer *offers;
    uint32_t n_offers, chosen; /* chosen: the offer with the largest share of the work */
    mn_segment *segments;      /* in order, covering all nodes; neighbours are on different devices */
    uint32_t n_segments;       /* 0 = no way was found */
    char *why;                 /* one sentence on the choice */
    bool fallback;
    int64_t symbol_max[MN_SYM_COUNT]; /* MN_SYM_PAGES: with the page size of the chosen offer */
} mn_placement;

/* MN_NO_DEVICE: a name that does not exist (lists those that do), or nothing named can run the graph (says why for each).
 * MN_OUT_OF_MEMORY: memory alone is in the way (says how much is needed for what). *out is freed by the caller. */
mn_status mn_negotiate(mn_registry *reg, const mn_model_graph *g, const mn_request *req, mn_placement *out,
                       mn_error *err);
void mn_placement_free(mn_placement *p);
#endif
