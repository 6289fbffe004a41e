/* offer.h -- interfaces between the parts of negotiation: the offer of one device (offer.c), the
 * reasons of a refusal (refusal.c), the cost of a segment (segment.c, cost.c), the assignment of
 * nodes to devices (split_plan.c), runs of experts (experts.c). choose.h has the choice among
 * plans. */
#ifndef MN_OFFER_H
#define MN_OFFER_H
#include "memory_uses.h"
#include "negotiate/negotiate.h"

/* ---- offer.c --------------------------------------------------------------------------------- */
/* Fills *o, which is released by mn_offer_free in any case; a refusal is o->status and o->reason.
 * An error is out of memory. */
mn_status mn_offer_ask(mn_registry *reg, const mn_device_record *rec, const mn_model_graph *g,
                       const mn_request *r, mn_offer *o, mn_error *err);
void mn_offer_free(mn_offer *o);
/* Nodes with the same number stay on one device: KV_STORE and ATTENTION of a layer's cache, also if
 * several layers read it; EMBED, SAMPLE and LOOKUP, which share HISTORY. 0 = the node is free. */
uint64_t mn_node_bond(const mn_graph *g, uint32_t i);
static inline bool mn_offer_is_oracle(const mn_offer *o) {
    return o->record->info.flags & MN_DEVICE_ORACLE;
}
static inline bool mn_offer_is_cpu(const mn_offer *o) {
    return o->record->info.kind == MN_DEVICE_CPU;
}
/* Whether the device supports every op of the graph; memory is not considered. */
static inline bool mn_offer_is_whole(const mn_offer *o, const mn_model_graph *g) {
    return o->can && o->n_can == g->abi.n_nodes;
}

/* ---- refusal.c ------------------------------------------------------------------------------- */
/* The origin of a verdict: mn_offer.said. */
enum { MN_SAID, MN_SAID_UNKNOWN_OP, MN_SAID_OLD_CONTRACT, MN_SAID_NO_VERDICT };
/* why not; "" = it does not say */
void mn_offer_node_reason(const mn_offer *o, uint32_t i, char *out, size_t cap);
/* Status and reason of an offer that cannot run some nodes: "cannot run EMBED with f32 weights,
 * ROPE with f32 weights: no such op; LINEAR with q4_0, f64 weights (blk.0.attn_q.bias is f64):
 * ...", each reason once. */
void mn_offer_refuse_nodes(mn_offer *o, const mn_graph *g);
/* "LINEAR with q4_0 weights" */
void mn_offer_node_kind(const mn_graph *g, uint32_t i, char *out, size_t cap);
#define MN_TYPES_CAP 64
/* "q4_0, f32"; "" = no weights */
void mn_node_weight_types(const mn_graph *g, uint32_t i, char *out, size_t cap);
/* op and weight types */
bool mn_node_same_kind(const mn_graph *g, uint32_t a, uint32_t b);

/* ---- segment.c ------------------------------------------------------------------------------- */
/* Asks the device for memory and time of nodes [s->node_lo, node_hi): fills estimate, kv, n_pages,
 * kv_bytes and need (without boundaries). Impossible answers are refused. The error is the error of
 * the device, without its name. The class of o is known already; the device is asked once per
 * segment, and o keeps the answer. */
mn_status mn_segment_ask(mn_offer *o, const mn_model_graph *g, const mn_request *r, mn_segment *s,
                         mn_error *err);
void mn_segment_answers_free(mn_offer *o);
/* What a device is asked about nodes; memory is the caller's to free. */
typedef struct {
    mn_compile compile;
    mn_memory_uses memory;
} mn_question;
/* Of nodes [lo, hi) of o->given; symbols: [MN_SYM_COUNT], maxima, which stay the caller's. */
mn_status mn_segment_question(const mn_offer *o, const mn_model_graph *g, mn_node_range nodes,
                              uint32_t precision, uint32_t k_dtype, uint32_t v_dtype,
                              const int64_t *symbols, mn_question *out, mn_error *err);
/* maxima; MN_SYM_PAGES is n_pages */
void mn_request_symbols(const mn_request *r, int64_t n_pages, int64_t *max);
/* What segments of one device need together: scratch of one queue may be one for all of them
 * (mn_device_shares_scratch). */
typedef struct {
    uint64_t rest, scratch;
} mn_need_sum;
/* false: more than can be counted. */
bool mn_need_add(const mn_offer *o, const mn_segment *s, mn_need_sum *sum);
static inline uint64_t mn_need_total(const mn_need_sum *sum) {
    return sum->rest + sum->scratch;
}
/* Entries of a slot's row of the page tables: of the group with the smallest pages. */
int64_t mn_segment_row(const mn_segment *s, const mn_request *r);
/* Class and KV type by the estimate of the nodes [lo, hi). Fills o->precision, k_dtype, v_dtype. */
mn_status mn_offer_class(mn_offer *o, const mn_model_graph *g, const mn_request *r, uint32_t lo,
                         uint32_t hi, mn_error *err);

/* ---- cost.c ---------------------------------------------------------------------------------- */
typedef struct {
    uint32_t n_copies;
    double decode_us, prefill_us;
} mn_copies;
/* Bytes of weights that one token reads: LINEAR and MOE_LINEAR; of MOE_LINEAR the chosen
 * experts. */
double mn_node_bytes(const mn_graph *g, uint32_t i);
/* Bytes of weights that the segment's products read in the long run: of MOE_LINEAR all experts. */
double mn_segment_bytes(const mn_graph *g, const mn_segment *s);
/* By o->rates: fills s->decode_us and prefill_us. */
void mn_segment_time(const mn_offer *o, const mn_model_graph *g, mn_segment *s);
#define MN_PROMPT_ROWS 512 /* of mn_segment.prefill_us */
/* Microseconds per token for 128 drawn ids after a prompt of 512, a typical request. */
static inline double mn_score(double decode_us, double prefill_us) {
    return (128 * decode_us + prefill_us) / 640;
}
/* Tensors over the boundaries of the n segments: fills boundary_bytes of each, the memory that it
 * needs beside what earlier ones left; *copies (may be NULL): between devices, by the rates. A
 * tensor goes to a device once. */
mn_status mn_boundaries(const mn_offer *offers, const mn_model_graph *g, const mn_request *r,
                        mn_segment *s, uint32_t n, mn_copies *copies, mn_error *err);

/* ---- split_plan.c --------------------------------------------------------------------------- */
#define MN_MAX_SPLIT 16 /* devices of one plan */
typedef struct {
    mn_status status; /* MN_OK, or why these devices cannot: MN_UNSUPPORTED, MN_OUT_OF_MEMORY */
    char reason[400];
    mn_segment *segments;
    uint32_t n_segments;
    mn_copies copies;
    double decode_us, prefill_us, score; /* copies included; as in mn_segment, mn_offer */
    uint32_t n_devices;
    uint32_t device[MN_MAX_SPLIT]; /* offers, in the order of preference */
    double share[MN_MAX_SPLIT];
    /* in bytes; lacks: the need of all its nodes, if they do not fit */
    uint64_t used[MN_MAX_SPLIT], lacks[MN_MAX_SPLIT];
    /* by place in the order asked for: there were nodes for it and no room for any */
    bool starved[MN_MAX_SPLIT];
} mn_plan;
/* A node that is pinned belongs to one device, whatever others could do: pin[i] is its offer, or
 * MN_UNPINNED. */
#define MN_UNPINNED (-1)
/* The first device gets every node that it supports and has memory for, the next device the rest,
 * and so on; pin: [n_nodes], NULL = no node is pinned. An error is out of memory of the host; if
 * the devices cannot run the graph, out->status says why. Freed by mn_plan_free in any case. */
mn_status mn_plan_make(mn_offer *offers, const mn_model_graph *g, const mn_request *r,
                       const uint32_t *order, uint32_t n, const int32_t *pin, mn_plan *out,
                       mn_error *err);
void mn_plan_free(mn_plan *p);
/* By the owner of each node [n_nodes], an offer or below 0 nobody, the segments of a plan, without
 * estimates; mn_free by the caller. A run of nodes of one owner is one segment, or two, of which
 * the second is beside the run that follows. */
mn_status mn_plan_segments(const mn_offer *offers, const mn_model_graph *g, const int32_t *owner,
                           mn_segment **out, uint32_t *n, mn_error *err);
/* Adds up times of the n segments; of two that are at work at one time the longer one counts. */
void mn_plan_times(const mn_segment *s, uint32_t n, double *decode_us, double *prefill_us);
/* Whether the plan places the node on the device of that offer. */
bool mn_plan_owns(const mn_plan *p, uint32_t offer, uint32_t node);
/* "cuda:0 layers 0-20, cpu_simd the rest"; "cuda:0 layers 0-23 but for experts of 12-23, ..." */
void mn_plan_describe(const mn_plan *p, const mn_offer *offers, const mn_model_graph *g,
                      mn_text *out);

/* ---- experts.c: the nodes of routed experts -------------------------------------------------- */
/* Nodes [lo, hi) of a layer: its first MOE_LINEAR up to the MOE_COMBINE of what it makes. The
 * router is in front of them, shared experts are behind them. Of divided experts the second half,
 * which begins at the first MOE_LINEAR with RESIDENT. */
typedef struct {
    uint32_t lo, hi;
    int32_t layer;
} mn_expert_range;
/* In order, mn_free by the caller; NULL with *n 0: there are none, or there is no memory, which
 * then is err's. */
mn_status mn_expert_ranges(const mn_graph *g, mn_expert_range **out, uint32_t *n, mn_error *err);
/* Experts of the node's router, a MOE_LINEAR; 0: it is not found. */
int64_t mn_experts_routed(const mn_graph *g, uint32_t node);
/* The share of these experts that the node computes: all but those that the other half of a divided
 * layer has. */
double mn_experts_share(const mn_graph *g, uint32_t node);
/* The share of all choices that fall on them: by counts, where the model has some, else the same.
 * own: g's graph, as a plugin gets it. */
double mn_experts_use(const mn_model_graph *g, const mn_graph *own, uint32_t node);

/* ---- streams.c ------------------------------------------------------------------------------- */
/* Microseconds of a layer's experts: all of them to the card; its launches; a row on the card, and
 * on the CPU. */
typedef struct {
    double bus_us, launch_us, card_us, cpu_us;
} mn_stream_times;
#define MN_STREAM_NEVER 1e9
/* The number of rows from which on the card is faster. */
double mn_stream_rows(const mn_stream_times *t);
/* What placements may expect that have some of the n ranges' experts on offer `cpu` and all else on
 * offer `card`: bytes that the card should keep free; 0: it would not compute experts in prompts.
 * change_us [n]: of a prompt of 512, by each of these layers that is the CPU's; 0: none. */
uint64_t mn_streams_expect(mn_placement *p, uint32_t card, uint32_t cpu, const mn_model_graph *g,
                           const mn_request *r, const mn_expert_range *ranges, uint32_t n,
                           double *change_us);

/* By how much streamed experts change the time of a prompt of 512 with the placement. */
double mn_streams_change(mn_placement *p, const mn_model_graph *g, const mn_request *r);

/* ---- rates.c --------------------------------------------------------------------------------- */
/* Fills o->rates from the cache or by measuring (at most about 0.3 s per type), else from what the
 * plugin claims, with the reason. measure false: claims alone. Uses the device through a queue of
 * its own. */
void mn_rates_get(mn_offer *o, const mn_model_graph *g, const mn_request *r, bool measure);
/* A claimed number, or 0 where it cannot be one. */
static inline double mn_sane(double v) {
    return v > 0 && v < 1e12 ? v : 0;
}
/* Upper bounds of all known devices. A claim that could not be measured is limited to them. */
#define MN_MOST_MEM_GBPS 8000.0 /* 8 stacks of HBM3E: data sheets of NVIDIA B200, AMD MI355X */
#define MN_MOST_BUS_GBPS 450.0  /* NVLink-C2C one way: NVIDIA Grace Hopper white paper */
#define MN_MOST_TFLOPS 15000.0  /* FP4 without sparsity: data sheet of NVIDIA B300 */
/* As mn_sane, limited to `most`. */
static inline double mn_capped(double v, double most) {
    const double sane = mn_sane(v);
    return MN_MIN(sane, most);
}

/* ---- measure.c: rates of one device and weight type, through the plugin's table alone -------- */
/* exchange_us: the exchange between the members of a group behind a small product; for a single
 * device about 0. */
typedef struct {
    double decode_gbps, prefill_tflops, node_us, step_us, copy_us, copy_gbps, exchange_us;
} mn_measured;
/* Measures o->device in the class and with the KV types of the offer. false: note says why. */
bool mn_measure(const mn_offer *o, mn_dtype type, mn_measured *out, char *note, size_t cap);
/* A MOE_LINEAR with a weight [n_expert, n, k], of which each row chooses n_chosen experts. */
typedef struct {
    int64_t n_expert, n_chosen, n, k;
} mn_expert_shape;
typedef struct {
    double gbps, tflops;
} mn_measured_experts;
/* of: what mn_measure found of the type. Of as many of the experts as fit into 128 MiB; chosen ones
 * change from step to step, so that caches do not have them. */
bool mn_measure_experts(const mn_offer *o, mn_dtype type, mn_expert_shape shape,
                        const mn_measured *of, mn_measured_experts *out, char *note, size_t cap);
#endif
