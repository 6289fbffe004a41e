/* engine.h -- a placement made real: weights imported, programs compiled, memory bound, steps
 * enqueued. One thread at a time. Knows nothing of sequences: it moves a packed block of inputs,
 * and ids back.
 *
 * One segment: a step is one write, one execute and one read, all enqueued; the caller may run
 * ahead. Several: tensors that cross from one device to another are waited for and moved between
 * the executes, so that only the last segment of a step is in flight when mn_engine_submit returns:
 * the caller cannot run ahead, and ring is 1. */
#ifndef MN_ENGINE_H
#define MN_ENGINE_H
#include <minerva/minerva.h>
#include "negotiate/negotiate.h"

/* Where each input lies in the packed block (offsets in int32). pages: a table per KV group, one
 * behind the other, behind the first `head` int32, which have all else. */
typedef struct {
    uint32_t step, src, pos, row_slot, seqs, pages[MN_MAX_KV_GROUP], out_row, out_slot, target,
        draft, adapter, out_adapter, head, total;
    /* of graphs with an encoder, else of no length: rows of texts, and each slot's text's length */
    uint32_t text_src, text_pos, text_row_slot, text_seqs, text_length;
} mn_input_layout;

/* The pages of one KV group as the caller counts them. A page holds page_tokens positions, a
 * multiple of each device's. An entry of its table that holds no page is -1. A group of states has
 * page_tokens 0, and a row of two entries: the page that a step begins with, the one that it
 * leaves. */
typedef struct {
    uint32_t page_tokens;
    uint32_t row;     /* entries of a sequence's row of the table */
    uint32_t n_pages; /* of them, those that are in use */
    uint32_t n_total; /* pages that there are */
    uint32_t n_own;   /* of them, a sequence's share (mn_kv_pages_of_one) */
} mn_engine_group;

/* n int32 of the packed block from `at` on. */
typedef struct {
    uint32_t at, n;
} mn_input_range;

/* The programs of the last segment (scoring.c): SAMPLE without optional operands; with drafts; with
 * a mask; with a mask, biases, targets and logprobs, which is the program that scores; and that
 * with all samplers. Each can do what the one before it can; the last three verify drafts where
 * their graphs say so. Those are SAMPLE alone: what is in front of it is a program that they share
 * (parts.c), so that a step can begin before its masks are known. */
enum { MN_RUN_PLAIN, MN_RUN_DRAFTS, MN_RUN_MASKS, MN_RUN_SCORES, MN_RUN_SAMPLERS, MN_RUNS };
typedef struct {
    const mn_model_graph *graph;
    mn_program *program;
    mn_context *context;
    mn_sealed *pages; /* what the program was compiled of */
    bool ready;
} mn_engine_program;

/* What the operands of the programs that score are bound to. */
typedef struct {
    mn_buffer *bias_ids, *bias_values, *top_ids, *top_logprobs, *logprob, *mu; /* on the device */
    mn_buffer *breakers; /* [slots][mask words] on the device; NULL: without all samplers */
    mn_buffer *host;     /* [ring] places of place_bytes */
    const char *map;
    uint64_t place_bytes;
    bool ready;
} mn_scoring;
/* Of one output row. */
typedef struct {
    float logprob;
    float mu;               /* of the slot behind it; of MN_RUN_SAMPLERS and of the sampler */
    const int32_t *top_ids; /* [MN_MAX_TOP_LOGPROBS] */
    const float *top_logprobs;
} mn_score;

/* A row that the sampler draws for (sampler.c). */
typedef struct {
    uint32_t row, slot;
    const mn_slot_params *params;
    const uint32_t *mask;     /* [mn_engine_mask_words]; NULL: all ids */
    const uint32_t *breakers; /* likewise; NULL: none */
    const mn_logit_bias *bias;
    uint32_t n_bias;
} mn_sampler_row;
typedef struct mn_engine_sampler mn_engine_sampler;
typedef struct mn_engine_stream mn_engine_stream; /* stream.c */

typedef struct mn_engine_pages mn_engine_pages; /* pages.c */

/* Hidden states of the steps in flight (hidden.c): [ring][rows, n_embd]. host NULL: the graph has
 * no such output. */
typedef struct {
    uint32_t device;
    mn_buffer *host;
    const float *map;
} mn_engine_rows;

struct mn_engine_device;
struct mn_engine_segment;
struct mn_transfer;

typedef struct {
    const mn_model_graph *graph;
    int64_t symbol_max[MN_SYM_COUNT];
    mn_engine_group group[MN_MAX_KV_GROUP]; /* [n_kv of the hyper-parameters] */
    uint64_t kv_positions;                  /* as in mn_placement */
    mn_watcher watcher;                     /* of the import; as in mn_placement */
    mn_held_list *held;                     /* sets that it may share; NULL: none */
    uint32_t row_pages; /* MN_SYM_PAGES: the longest row of a table of positions */
    uint32_t precision, kept_how;
    uint64_t weight_bytes; /* bytes of the sets that it imported, without shared sets */
    uint64_t kv_bytes, scratch_bytes;
    mn_input_layout in;
    uint32_t ring; /* steps whose ids can wait to be read */
    /* the device of the first call that said MN_CLASS_LOST; NULL = none */
    const mn_device_record *fault;
    const mn_device_record *failed; /* the device of the last call that failed in any way */
    mn_step_unit *units;            /* of the last step with a profile */
    size_t n_units, cap_units;
    mn_engine_program programs[MN_RUNS]; /* [MN_RUN_PLAIN]: not used, it is the segment's own */
    struct mn_engine_parts *parts;       /* of the last segment; NULL: no program has a mask yet */
    mn_buffer *masks; /* [outputs][mask words] on the device; NULL: no program has a mask yet */
    mn_scoring scoring;
    mn_engine_rows hidden;
    mn_engine_sampler *sampler; /* NULL: there is none */
    mn_engine_stream *stream;   /* NULL: no experts are streamed */
    uint32_t stream_rows;       /* of a step, from which on they are */
    uint32_t step_rows;         /* of the last step whose inputs were written */
    mn_engine_pages *pages;     /* NULL: none are fetched */
    uint64_t input_bytes;       /* written so far, to one device */
    /* the rest is engine/'s own */
    struct mn_engine_device *devices;
    struct mn_engine_segment *segments;
    struct mn_transfer *transfers;
    uint32_t n_devices, n_segments, n_transfers, n_places;
    mn_buffer *ids_host, *logits_host;
    int32_t *ids_map;
    float *logits_map;
    uint32_t logits_device;
    bool logits_made, logits_crosses; /* crosses: bound even where no step wants it */
} mn_engine;

/* The row of a sequence in a group's page table: [row] of the packed inputs. */
static inline uint32_t mn_engine_row(const mn_engine *e, uint32_t group, uint32_t slot) {
    return e->in.pages[group] + slot * e->group[group].row;
}
/* ring: steps in flight at most. The graph and the model's files outlive the engine. MN_INVALID:
 * the placement separates nodes that must be on one device. *fault (may be NULL), when creation
 * failed: the device that is lost, or that refuses what it claimed (a status of class REFUSE); then
 * *err has the device's own words alone. */
mn_status mn_engine_create(const mn_placement *p, const mn_model_graph *g, uint32_t ring,
                           mn_engine **out, const mn_device_record **fault, mn_error *err);
/* waits for what is enqueued; a lost device's objects are freed as well */
void mn_engine_free(mn_engine *e);

/* What a step holds. */
typedef struct {
    uint32_t n_rows, n_out, n_seqs;
    uint32_t max_rows; /* the most rows of one sequence */
    uint32_t longest;  /* positions of the longest sequence, this step's rows among them */
    uint32_t n_text;   /* rows of texts that an encoder reads; of n_texts sequences */
    uint32_t n_texts;
} mn_step_size;
/* Symbol values of a step: SHAPE values rounded up as the devices want it, in the combinations that
 * plugin.h promises; BOUND values for the longest sequence; never above the maxima. */
void mn_engine_symbols(const mn_engine *e, const mn_step_size *size, int64_t *symbols);
/* Whether SHAPE values are rounded: devices prepare something for each combination of them. */
bool mn_engine_rounds(const mn_engine *e);
/* Writes the step facts (MN_STEP_*) into a packed block of inputs. */
void mn_engine_describe(const mn_engine *e, const mn_step_size *size, int32_t *packed);
/* One step: what it reads, which program runs it, and what comes back. The engine reads it during
 * the calls below and keeps nothing of it. */
typedef struct {
    const int32_t *inputs;        /* the packed block; NULL: unchanged since the last step */
    const mn_input_range *ranges; /* its ranges that differ from the last step */
    uint32_t n_ranges;            /* 0: all of it */
    uint32_t at;                  /* its place of the ring */
    uint32_t run;                 /* the program, MN_RUN_* */
    uint32_t n_sampler_rows;
    const mn_sampler_row *sampler_rows; /* rows whose out_slot is -1: the sampler draws for them */
    /* of a draft head: hidden states in front of its rows, [n_hidden_in, n_embd] */
    const float *hidden_in;
    uint32_t n_hidden_in;
    bool
        hidden; /* mn_engine_hidden has its rows after the wait; only of a graph with that output */
    bool logits;  /* mn_engine_logits reads them; after mn_engine_make_logits */
    bool profile; /* runs through mn.profile/1, and is over when mn_engine_submit returns */
    int64_t symbols[MN_SYM_COUNT]; /* mn_engine_symbols */
} mn_engine_step;
/* Enqueues the inputs, one step, and the read of n_outputs ids into its place of the ring. *event
 * is the caller's: mn_engine_wait or mn_engine_drop. */
mn_status mn_engine_submit(mn_engine *e, const mn_engine_step *x, mn_event **event, mn_error *err);
/* mn_engine_submit in two calls: begin enqueues all parts but the last, finish the last part and
 * the read. Between them only masks and biases may be enqueued, and sampler_rows may change. */
mn_status mn_engine_begin(mn_engine *e, const mn_engine_step *x, mn_error *err);
mn_status mn_engine_finish(mn_engine *e, const mn_engine_step *x, mn_event **event, mn_error *err);
/* MN_UNSUPPORTED names a device whose plugin has no mn.profile/1. */
mn_status mn_engine_can_profile(const mn_engine *e, mn_error *err);
/* About how long a step with these symbol values takes. */
uint64_t mn_engine_step_ns(const mn_engine *e, const int64_t symbols[MN_SYM_COUNT]);
/* Announces that such a step is waited for, by one mn_engine_wait or several, until mn_call_end. */
mn_call *mn_engine_await(const mn_engine *e, uint64_t expected_ns);
/* Waits at most timeout_ns; MN_TIMEOUT = not yet (event kept). Otherwise the event is freed. */
mn_status mn_engine_wait(mn_engine *e, mn_event **event, uint64_t timeout_ns, mn_error *err);
void mn_engine_drop(mn_engine *e, mn_event **event);           /* frees it without waiting */
const int32_t *mn_engine_ids(const mn_engine *e, uint32_t at); /* [n_outputs] */
/* Hidden states of a complete step, at its place of the ring: [rows, n_embd]. */
const float *mn_engine_hidden(const mn_engine *e, uint32_t at);

/* Checks output i of a complete step, at its place of the ring: it must be an id of the vocabulary,
 * MN_ID_NONE or MN_ID_NAN; with scores, the likeliest ids, too. MN_DEVICE_LOST: it is not; the
 * device at fault is named and counts as lost. */
mn_status mn_engine_check_output(mn_engine *e, uint32_t at, uint32_t i, bool scores, mn_error *err);

/* The device that computes the logits. */
const char *mn_engine_logits_name(const mn_engine *e);

/* All in queue order. */
mn_status mn_engine_reset_slot(mn_engine *e, uint32_t slot, const mn_slot *state,
                               const mn_slot_params *params, mn_error *err);
mn_status mn_engine_write_history(mn_engine *e, uint32_t slot, const int32_t *ids, uint32_t n,
                                  mn_error *err);
/* Makes program `run` (not MN_RUN_PLAIN), for steps that want it; once per engine. g: of the same
 * model, with such an end (MN_GRAPH_*); it outlives the engine. Rows of the mask and of the
 * breakers have any content until they are written. MN_UNSUPPORTED names a device that cannot. */
mn_status mn_engine_make_program(mn_engine *e, uint32_t run, const mn_model_graph *g,
                                 mn_error *err);
/* Masks of the next step's outputs [first, first + n): n rows of mn_engine_mask_words. */
mn_status mn_engine_write_masks(mn_engine *e, uint32_t first, uint32_t n, const uint32_t *rows,
                                mn_error *err);
static inline uint32_t mn_engine_mask_words(const mn_engine *e) {
    return (uint32_t)MN_MASK_WORDS(e->graph->hp.n_vocab);
}
/* Replaces the biases of a slot: n <= MN_MAX_BIAS, each id once. */
mn_status mn_engine_write_bias(mn_engine *e, uint32_t slot, const mn_logit_bias *bias, uint32_t n,
                               mn_error *err);
/* Replaces the breakers of a slot: mn_engine_mask_words. With MN_RUN_SAMPLERS. */
mn_status mn_engine_write_breakers(mn_engine *e, uint32_t slot, const uint32_t *words,
                                   mn_error *err);
/* Makes the sampler: SAMPLE on the device of an offer of the placement, for rows whose slots need
 * more than the device of the last segment can. g: MN_GRAPH_SAMPLERS. At most one; without it the
 * engine is as before. */
mn_status mn_engine_make_sampler(mn_engine *e, const mn_offer *o, const mn_model_graph *g,
                                 mn_error *err);
/* Before the first step with rows of the sampler: memory on the device of the last segment. */
mn_status mn_engine_need_sampler(mn_engine *e, mn_error *err);
/* Of a step of MN_RUN_SCORES or MN_RUN_SAMPLERS, or of a row of the sampler, that is complete, at
 * its place of the ring. */
mn_score mn_engine_score(const mn_engine *e, uint32_t at, uint32_t row);
/* The matrices of adapter `at` for one product: a [R, cols], b [rows, R], zeroed before. */
typedef void (*mn_adapter_fill_fn)(const void *arg, const mn_graph_site *site, float *a, float *b);
/* Replaces adapter `at` of the graph's room on all devices: rows of steps to come may name it. */
mn_status mn_engine_write_adapter(mn_engine *e, uint32_t at, mn_adapter_fill_fn fill,
                                  const void *arg, mn_error *err);
/* in the caller's pages of the group */
mn_status mn_engine_copy_page(mn_engine *e, uint32_t group, mn_page_copy copy, mn_error *err);

/* ---- observe.c: what the products of a step read --------------------------------------------- */
/* One weight of one product. x: [n_rows, n_each, x_cols], of which a product reads the first
 * n_cols; n_each is 1 where all chosen experts of a row read the same. experts: [n_rows, n_chosen],
 * each in [0, n_mat); NULL: n_mat is n_each, and matrix i (of head i) reads x[., i, .]. Valid
 * during the call. */
typedef struct {
    const mn_tensor_info *weight;
    uint64_t n_rows, n_each, x_cols, n_cols, n_mat, n_chosen;
    const float *x;
    const int32_t *experts;
} mn_product_input;
typedef mn_status (*mn_product_fn)(void *arg, const mn_product_input *in, mn_error *err);
/* Runs a step of an engine whose placement is cut (mn_placement_cut) up to what its last product
 * reads, which is not executed, and waits for it. fn: for each weight of the model, in the order of
 * the nodes. Draws nothing. */
mn_status mn_engine_observe(mn_engine *e, const mn_engine_step *x, const mn_step_size *size,
                            mn_product_fn fn, void *arg, mn_error *err);

/* ---- pages.c: the caller's pages as bytes; in queue order ------------------------------------ */
/* Of a page of the group, over all segments; 0: nothing of the group is stored. */
uint64_t mn_engine_page_bytes(const mn_engine *e, uint32_t group);
/* Tests whether pages can be moved as bytes, on two unused pages of each group of the bit mask,
 * which are zero afterwards. MN_UNSUPPORTED names the device whose pages cannot. */
mn_status mn_engine_test_pages(mn_engine *e, uint32_t groups, mn_error *err);
/* Lines that state all that the bytes of pages depend on, except weights: graph, devices, plugins,
 * types. */
void mn_engine_describe_pages(const mn_engine *e, mn_text *to);
/* Memory to fetch pages with, once per engine: places that are used independently, each for
 * n_pages[group] pages at most. */
mn_status mn_engine_make_places(mn_engine *e, uint32_t n_places, const uint32_t *n_pages,
                                mn_error *err);
/* Enqueues copies of a page: its bytes are in `to` when mn_engine_fetch_poll says MN_OK, once for
 * all pages of the place. MN_TIMEOUT: not yet. The place is free again after MN_OK, and after
 * fetch_drop, which forgets what was enqueued. */
mn_status mn_engine_fetch_page(mn_engine *e, uint32_t place, uint32_t group, int32_t page, char *to,
                               mn_error *err);
mn_status mn_engine_fetch_poll(mn_engine *e, uint32_t place, mn_error *err);
void mn_engine_fetch_drop(mn_engine *e, uint32_t place);
/* Enqueues the opposite; from is free again on return. */
mn_status mn_engine_store_page(mn_engine *e, uint32_t group, int32_t page, const char *from,
                               mn_error *err);

/* Call it before the first step with logits (hidden states, if the graph embeds): makes their
 * memory and a second set of bindings, which are kept. After the wait for such a step
 * mn_engine_logits copies its logits: n_rows of mn_graph_row_width numbers. */
mn_status mn_engine_make_logits(mn_engine *e, mn_error *err);
mn_status mn_engine_logits(mn_engine *e, uint32_t n_rows, const float **rows, mn_error *err);
#endif
