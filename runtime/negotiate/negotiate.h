/* negotiate.h -- which devices run the graph, and why.
 *
 * Every candidate makes an offer: verdict per node, memory upper bound, estimated time by rates
 * that the host measured. One device runs the whole graph if one is enough; else contiguous
 * segments of nodes over several. KV_STORE and ATTENTION of a layer stay on one device, and so do
 * EMBED and SAMPLE (they share the slots). The record explains itself: mn_placement_explain.
 * docs/negotiation.md has the rules. Statements of a plugin are bounded claims; they are never
 * assumed to be consistent. */
#ifndef MN_NEGOTIATE_H
#define MN_NEGOTIATE_H
#include "base/base.h"
#include "graph/vendor.h"
#include "json_out.h"
#include "negotiate/held.h"
#include "registry/registry.h"

/* every device is asked and measured, and *out is filled even if nothing can run the graph */
#define MN_REQUEST_EXPLAIN 1u

#define MN_REQUEST_MEASURE 2u /* rates that are remembered are measured again */

#define MN_REQUEST_AHEAD 4u  /* run_ahead comes from the caller and holds for every device */
#define MN_REQUEST_STRICT 8u /* a device of the list that cannot be used is an error */
/* the same devices were asked just before, for other sizes: no warning is repeated, and no
 * remembered rate is measured again */
#define MN_REQUEST_AGAIN 16u

#define MN_EXPERTS_NONE UINT32_MAX

/* Sets of bindings of a context: a step with the logits, and one without. */
#define MN_BINDING_SETS 2u

/* Is called with the progress of an import; done: 0 to 1; a non-zero result cancels. fn may be
 * NULL. */
typedef struct {
    int32_t (*fn)(void *arg, float done, const char *what);
    void *arg;
} mn_watcher;

/* The request of a session; zeros were replaced by defaults before. */
typedef struct {
    const char *devices;       /* "auto" or a list of names, best first */
    uint32_t precision;        /* MN_PRECISION_* */
    uint32_t k_dtype, v_dtype; /* MN_DTYPE_NONE = by the class */
    uint32_t n_ctx, n_seq, n_batch, n_outputs;
    /* rows of a step where a GPU has the whole graph, is fast and has memory to spare; 0 = n_batch.
     * mn_placement.symbol_max says which it became */
    uint32_t n_batch_wide;
    uint32_t threads; /* of the host's pool; measured rates of a CPU depend on it */
    uint32_t flags;   /* MN_REQUEST_* */
    /* of the KV cache: 0 = room for all sequences at full length. kv_bytes: for mn_negotiate_kv,
     * which sets kv_positions */
    uint64_t kv_bytes, kv_positions;
    mn_watcher watcher;
    mn_held_list *held; /* weights that are on devices already; NULL: none are shared */
    /* steps in flight at most, on an asynchronous device; 0 = 1 */
    uint32_t run_ahead;
    /* number of layers, from the first on, whose routed experts are on the CPU; no others are (more
     * than the model has: all); 0 = as is fastest, MN_EXPERTS_NONE = no layer */
    uint32_t n_cpu_moe;
    /* experts of each layer, from the first on, that a device in front of the CPU has; the CPU has
     * the others; 0 = as is fastest, MN_EXPERTS_NONE = none, and no layer is divided */
    uint32_t n_gpu_experts;
    /* "PATTERN=DEVICE,...": matrices whose names match are on that device; NULL or "": none */
    const char *tensor_devices;
    uint64_t device_memory; /* bytes of each device that is no CPU at most; 0 = what is free */
    /* rows of a step from which on a card computes experts that a CPU has, which are copied to it;
     * 0 = by the rates, and never in class exact; MN_EXPERTS_NONE = never */
    uint32_t stream_rows;
    /* [n_passed_over] devices that auto and cpu do not ask, because they broke a claim */
    const mn_device_record *const *passed_over;
    uint32_t n_passed_over;
} mn_request;

/* Rates of one device, measured or claimed. */
#define MN_MAX_RATES 8
typedef struct {
    uint32_t dtype, pad;
    double decode_gbps;    /* weight bytes per second of a LINEAR with one row */
    double prefill_tflops; /* of a LINEAR with 512 rows */
    /* the same of a MOE_LINEAR of the model's shape: the experts of one row; as many rows of each
     * expert as 512 of a prompt have. 0 = not measured, as LINEAR then */
    double experts_gbps, experts_tflops;
} mn_type_rate;
typedef enum {
    MN_RATES_NONE,     /* not asked for */
    MN_RATES_CLAIMED,  /* by the plugin */
    MN_RATES_CACHED,   /* measured at an earlier start */
    MN_RATES_MEASURED, /* now */
} mn_rates_source;
const char *mn_rates_source_name(mn_rates_source source); /* "" of MN_RATES_NONE */
typedef struct {
    mn_rates_source source;
    char note[200]; /* why it is only a claim */
    mn_type_rate type[MN_MAX_RATES];
    uint32_t n_types;
    double node_us, step_us;   /* launch: of each node; of each segment of a step */
    double copy_us, copy_gbps; /* between host and device: of a small row; of many */
    double exchange_us;        /* of a group, measured: between its members, of a small row */
    double measured_ms;        /* time that measuring took now; 0 = none */
} mn_rates;

typedef enum {
    MN_TRIAL_NONE,
    MN_TRIAL_TAKEN,
    MN_TRIAL_FAILED,      /* the devices cannot run the graph that way */
    MN_TRIAL_SMALL_SHARE, /* the device's part would not be worth the copies */
    MN_TRIAL_TOO_SLOW,    /* than what it would replace */
} mn_trial_result;
/* A split that auto tried: nodes of this device, and another device for the rest. */
typedef struct {
    mn_trial_result result;
    double score, copy_us, share; /* as mn_offer.score; share: of the weight bytes read per token */
    uint32_t n_segments, n_copies;
    char reason[200]; /* why it was not taken; "" = it was, or was not tried */
} mn_trial;

/* A placement that was considered because a card lacks memory: routed experts of some layers on the
 * CPU; 0 layers: whole layers there instead. */
typedef struct {
    uint32_t n_layers;             /* whose experts are on the CPU */
    uint32_t n_first;              /* of a divided layer, the experts that are not */
    bool divided;                  /* shared experts and the first ones are computed meanwhile */
    uint32_t device, cpu;          /* offers: the first device, the CPU that has the experts */
    uint32_t n_segments, n_copies; /* 0: it failed */
    double decode_us, prefill_us, score; /* as in mn_plan */
    uint64_t need,
        room; /* of the first device: bytes that it needs, and that it has; 0 = unknown */
    bool chosen;
    bool spills;      /* whole layers are on the CPU, too: the others do not fit */
    char reason[160]; /* why it failed; "" = it did not */
} mn_option;

/* The steps of an offer; the offer has the last step that it reached. */
typedef enum {
    MN_STAGE_PLUGIN,    /* it has no backend */
    MN_STAGE_DEVICE,    /* not usable */
    MN_STAGE_OPEN,      /* could not be opened */
    MN_STAGE_CONTRACTS, /* does not list the operations that it knows */
    MN_STAGE_VERDICTS,  /* refused while answering for the nodes, or can run none */
    MN_STAGE_MEMORY,    /* no class, or no memory for the whole graph, or only a part of it */
    MN_STAGE_OFFERED    /* can run the whole graph */
} mn_offer_stage;

/* The outcome for a device; docs/negotiation.md. */
typedef enum {
    MN_OUTCOME_CHOSEN,
    MN_OUTCOME_QUARANTINED, /* lost, and not tried again yet */
    MN_OUTCOME_LEFT_OUT,    /* MN_TRIAL_SMALL_SHARE */
    MN_OUTCOME_OUT_OF_MEMORY,
    MN_OUTCOME_FAILED,  /* no answer for the nodes */
    MN_OUTCOME_PARTIAL, /* can run some nodes */
    MN_OUTCOME_UNSUPPORTED,
    MN_OUTCOME_NOT_NAMED, /* by the user */
    MN_OUTCOME_SAME_CARD, /* as a device of another plugin that takes part */
    MN_OUTCOME_ORACLE,
    MN_OUTCOME_SLOWER /* than what was chosen */
} mn_outcome;
const char *mn_outcome_name(mn_outcome outcome);

struct mn_segment_answer;
typedef struct {
    mn_registry *registry;
    const mn_device_record *record;
    mn_device *device; /* the registry's, in use until mn_offer_free; NULL: could not be opened */
    /* the graph as its plugin gets it (graph/vendor.h); NULL: it was not asked */
    const mn_graph *given;
    mn_status status; /* MN_OK: it can alone; else the class says why not */
    char reason[400]; /* of the refusal */
    uint32_t precision, k_dtype, v_dtype;
    mn_estimate estimate;    /* of the whole graph, as the other three: if it can run all nodes */
    uint64_t kv_bytes, need; /* need: weights + KV + scratch, upper bound */
    double score;            /* microseconds per token of a typical mix; lower is better */
    mn_offer_stage stage;
    /* [n_nodes] verdicts of the device, impossible ones corrected; NULL = it was not asked */
    mn_verdict *verdicts;
    uint8_t *said; /* [n_nodes] the source of each verdict: MN_SAID_* */
    /* [n_nodes] 1: may be placed there, with the nodes that must stay together */
    uint8_t *can;
    uint32_t n_can;
    uint32_t sample_contract; /* the newest of SAMPLE that the plugin knows; 0 = none */
    bool asked;               /* part of the choice: named by the user, or under auto */
    uint64_t free_bytes;      /* of its memory now; 0 = it does not say */
    double share;             /* of the weight bytes read per token that the placement gives it */
    mn_outcome outcome;
    mn_rates rates;
    mn_trial trial;
    /* [n_answers] answers to mn_segment_ask, so that no segment is asked twice (segment.c) */
    struct mn_segment_answer *answers;
    size_t n_answers, cap_answers;
} mn_offer;

/* Nodes [node_lo, node_hi) run on the device of offers[offer]. */
typedef struct {
    uint32_t node_lo, node_hi, offer;
    mn_estimate estimate; /* of the segment; weights 0 where it shares them */
    bool shares;          /* its weights are on the device already: mn_request.held */
    /* by KV group: the layout (page_bytes 0 = no layer of it here); pages of all sequences */
    mn_memory_layout kv[MN_MAX_KV_GROUP];
    uint64_t n_pages[MN_MAX_KV_GROUP];
    uint64_t kv_bytes;            /* the sum of n_pages * kv.page_bytes */
    uint64_t boundary_bytes;      /* for tensors that cross its ends, at symbol_max */
    uint64_t need;                /* all of the above, upper bound */
    double decode_us, prefill_us; /* by the rates; one token, 512 tokens */
    double row_us;                /* of a step, per token, at the slowest: for its time limit */
    bool beside; /* the next one does not wait for it, so that both devices are at work */
    /* experts of a layer that a card may compute, so many at a time (mn_stream_plan); 0: it does
     * not */
    int64_t stream_group;
} mn_segment;

/* Routed experts that a CPU has, computed on a card in steps of many rows: copied there through
 * rooms for a few experts each (engine/stream.c). */
#define MN_STREAM_ROOMS 4u /* at most, for each kind of layers */
#define MN_STREAM_KINDS 4u
typedef struct {
    uint32_t rows;                  /* of a step from which on; 0: never, and why says why not */
    uint32_t card;                  /* offer; of it: */
    const mn_device_record *record; /* NULL: no segment could be streamed */
    uint32_t n_rooms, n_kinds, n_layers, group; /* group: experts of a room */
    uint32_t precision, row_grain;              /* of the programs */
    uint64_t room_bytes, need; /* of the largest room; of the card, beside its segments */
    uint64_t pinned;           /* of main memory */
    double faster_from;        /* rows, by the rates; 0: not measured */
    bool by_rates;             /* rows is; else of the request */
    double gbps;               /* at which experts are taken to reach the card */
    double prefill_us;         /* as in mn_placement */
    char why[200];
} mn_stream_plan;

typedef struct {
    mn_offer *offers;
    uint32_t n_offers, chosen; /* chosen: the offer with the largest share of the work */
    /* in order, covering all nodes; neighbours are on different devices, but where the second is
     * beside what follows it */
    mn_segment *segments;
    uint32_t n_segments; /* 0 = no way was found */
    char *why;           /* one sentence on the choice */
    mn_option *options;  /* [n_options] of experts on the CPU */
    uint32_t n_options;
    bool fallback;
    /* MN_SYM_PAGES: the most that any segment needs */
    int64_t symbol_max[MN_SYM_COUNT];
    uint64_t kv_positions; /* as in mn_request, and so are the next two */
    mn_watcher watcher;
    mn_held_list *held;
    uint32_t n_copies; /* of tensors over segment boundaries, per step */
    /* of these copies within the score; of the whole, as mn_offer.score and as in mn_segment */
    double copy_us, score, decode_us, prefill_us;
    mn_stream_plan stream; /* of mn_negotiate_streams */
} mn_placement;

/* Positions between snapshots of states within a text. */
#define MN_STATE_EVERY 1024u
/* Pages of a KV group that a session with these symbol values needs for all its sequences. A group
 * of an encoder: pages for the rows of one step. A group without a window: all pages of each
 * sequence. A window group gives back pages that no row can see, and needs: per sequence, pages for
 * the window and for the rows of `ahead` steps in flight; and pages for the rows of one batch (of
 * two if steps overlap) of any sequences. With nothing in flight a whole batch always finds its
 * pages. */
uint64_t mn_kv_pages(const mn_kv_group *group, uint32_t page_tokens, const int64_t *symbol_max,
                     uint32_t ahead);
/* As mn_kv_pages, for a cache of so many positions, which sequences share; 0 = as mn_kv_pages. */
uint64_t mn_kv_pages_for(const mn_kv_group *group, uint32_t page_tokens, const int64_t *symbol_max,
                         uint32_t ahead, uint64_t positions);
/* steps that a session on this device alone has in flight at most */
uint32_t mn_steps_ahead(const mn_device_record *d, const mn_request *r);
/* The pages of one sequence, with nothing in flight. */
uint64_t mn_kv_pages_of_one(const mn_kv_group *group, uint32_t page_tokens, int64_t n_ctx,
                            uint32_t ahead);

/* MN_NO_DEVICE: a name that does not exist (lists those that do), or nothing named can run the
 * graph (says why for each). MN_OUT_OF_MEMORY: only memory is missing (the message lists the needed
 * amounts). *out is freed by the caller; on an error it is empty, except with
 * MN_REQUEST_EXPLAIN. */
mn_status mn_negotiate(mn_registry *reg, const mn_model_graph *g, const mn_request *req,
                       mn_placement *out, mn_error *err);
/* As mn_negotiate, with a KV cache of kv_bytes; 0 = room for n_seq sequences of n_ctx positions or,
 * if memory suffices for one such sequence only, as much as there is memory for. Takes n_batch_wide
 * where that is worth it. */
mn_status mn_negotiate_kv(mn_registry *reg, const mn_model_graph *g, const mn_request *req,
                          mn_placement *out, mn_error *err);
void mn_placement_free(mn_placement *p);

/* Makes the model's graph with divided experts, which the caller owns and keeps. */
typedef struct {
    mn_status (*graph)(void *arg, mn_division division, const mn_model_graph **out, mn_error *err);
    void *arg;
} mn_divider;
/* divide.c: as mn_negotiate_kv with *g; where a card lacks memory for routed experts, also with
 * graphs whose experts are divided, and *g becomes the one that *out is of, the fastest. */
mn_status mn_negotiate_divided(mn_registry *reg, const mn_model_graph **g,
                               const mn_divider *divider, const mn_request *req, mn_placement *out,
                               mn_error *err);
/* streams.c: fills p->stream and stream_group of the segments. An error is out of memory of the
 * host. */
mn_status mn_negotiate_streams(mn_placement *p, const mn_model_graph *g, const mn_request *r,
                               mn_error *err);
/* cut.c: more segments, on the same devices: what a LINEAR or MOE_LINEAR reads is made by an
 * earlier one. A new segment keeps the estimates of the segment that it was part of; no experts are
 * streamed. On an error p
 * is unchanged; MN_UNSUPPORTED: layers share keys and values. */
mn_status mn_placement_cut(mn_placement *p, const mn_model_graph *g, mn_error *err);

/* The record as JSON, in an object that is open: candidates (plugin files and devices, each with
 * its steps and outcome), the placement, the error (NULL or its status MN_OK: none).
 * docs/negotiation.md names the fields. */
void mn_placement_explain(const mn_placement *p, const mn_registry *reg, const mn_model_graph *g,
                          const mn_request *req, const mn_error *error, json_out *j);
#endif
