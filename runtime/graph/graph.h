/* graph.h -- a canonical model as a graph of operations, built once with symbolic sizes.
 *
 * One graph serves prefill, decode and mixed batches. An architecture is one file arch_*.c with one
 * build function and one line in the table of arch.c. Nodes are appended by the mn_g_* functions
 * below, one per op. */
#ifndef MN_GRAPH_H
#define MN_GRAPH_H
#include "base/sealed.h"
#include "model/model.h"
#include <minerva/minerva.h>

/* Symbols, in the order of symbol values everywhere. */
enum {
    MN_SYM_TOKENS,   /* SHAPE: rows of the step */
    MN_SYM_OUTPUTS,  /* SHAPE: rows that give logits */
    MN_SYM_SEQS,     /* SHAPE: sequences in the step */
    MN_SYM_SLOTS,    /* BOUND: slots of the session */
    MN_SYM_PAGES,    /* BOUND: pages per slot */
    MN_SYM_CTX,      /* BOUND: positions per slot */
    MN_SYM_SEQ_ROWS, /* FACT: 1 = each sequence of the step has one row, else the maximum */
    MN_SYM_TEXT,     /* SHAPE: rows of texts that an encoder reads; of graphs with one alone */
    MN_SYM_COUNT
};
/* Rows of a step that has no prompt, or the end of one: one sequence with its drafts. */
enum { MN_FEW_ROWS = MN_MAX_DRAFT + 1 };
#define MN_DIM(symbol) (~(int64_t)(symbol)) /* a symbolic dim in mn_tensor.dim */

/* The tensors that the host binds, as indices in the graph. */
typedef struct {
    int32_t step, src, pos, row_slot, seqs, out_row, out_slot; /* inputs, all I32 */
    /* of a graph with room for adapters, else -1: which one a row of the step [T], and a row of the
     * outputs [O], has; -1 = none */
    int32_t adapter, out_adapter;
    int32_t slots, history, params; /* state */
    /* by KV group, n_kv of the hyper-parameters: the page table (an input) and the pages; of the
     * group of states the table has two pages for each slot */
    int32_t pages[MN_MAX_KV_GROUP], kv[MN_MAX_KV_GROUP];
    /* of a graph with masks, and of one that scores; else -1: which ids may be drawn [O, V / 32] */
    int32_t mask;
    /* of a graph that scores; else -1. Biases of ids by slot [S, B], an id to score instead of
     * drawing one; the most likely ids and their logprobs [O, N], the logprob of the id drawn */
    int32_t bias_ids, bias_values, target, top_ids, top_logprobs, logprob;
    /* of a graph with all samplers; else -1: breakers of DRY [S, V / 32], mu of mirostat [O] */
    int32_t breakers, mu;
    int32_t draft; /* of a graph that verifies drafts [O]; else -1 */
    /* of a graph with an encoder; else -1: as src, pos, row_slot and seqs, of rows of texts; the
     * length of each slot's text [S] */
    int32_t text_src, text_pos, text_row_slot, text_seqs, text_length;
    /* of a graph whose queries grow with their position (mn_grows), else -1: a state that
     * the host writes once, for each position the row of mn_g_growth's table [S, C] */
    int32_t growth_row;
    /* of a graph with divided experts, else -1: states [E] that the host writes once: which experts
     * of a layer the second half computes, and which ones the first half */
    int32_t resident_rest, resident_first;
    /* outputs; logits and ids are -1 where the graph embeds, hidden is -1 where it does not */
    int32_t logits, ids, hidden;
    /* of a model that has a draft head, where asked for, and of the head; else -1: an output, the
     * hidden states that the logits are made of, of all rows [T, D] */
    int32_t hidden_out;
    int32_t
        hidden_in; /* of a head; else -1: an input, the hidden states of the rows before [T, D] */
} mn_graph_io;

/* Where a weight of the graph comes from: the model's tensor, or sealed memory of the graph, dense
 * F32. */
typedef struct {
    int32_t tensor;
    const mn_model_tensor_entry *source;
    const void *constant;
    /* of a matrix that is row_lo and following rows of the model's; NULL: another weight */
    const mn_model_tensor_entry *whole;
    int64_t row_lo;
    /* [n_joined] the model's tensors, if rows of several stand in it; else n_joined is 0 */
    const mn_model_tensor_entry *const *joined;
    uint32_t n_joined;
} mn_graph_weight;

typedef struct mn_graph_vendor mn_graph_vendor; /* vendor.h */

/* A product that has room for adapters: state that the host writes (LORA in docs/ops.md). */
typedef struct {
    uint32_t index;                     /* among all products that could have room */
    int32_t a, b;                       /* tensors [N_A, R, cols], [N_A, rows, R]; -1: no room */
    const mn_model_tensor_entry *whole; /* the model's matrix, and its rows in this product */
    int64_t row_lo, rows, cols;
    bool head; /* the product that makes the logits */
} mn_graph_site;

/* The routed experts of layers from layer_lo on are made for two devices: the products of experts
 * [0, n_first) and the shared experts stand in front of what the other experts make, so that one
 * device computes the former while another one computes the latter. What both make is added up
 * behind them: the rest, then the first. n_first 0: the shared experts alone stand in front. */
typedef struct {
    bool on;
    uint32_t n_first;
    int32_t layer_lo;
} mn_division;

typedef struct {
    /* Once it is built, arrays and names are in sealed pages. given: the graph that plugins get, a
     * struct in those pages; abi is the host's own copy */
    mn_graph abi;
    const mn_graph *given;
    mn_sealed *pages, *constants; /* constants: of the weights; NULL = there are none */
    /* of a graph whose weights have types of a vendor, which plugins get by mn_graph_for; else
     * NULL */
    mn_graph_vendor *vendor;
    mn_graph_io io;
    mn_graph_weight *weights;
    uint32_t n_weights;
    /* of a graph with room for adapters: all products that could have some, by index */
    mn_graph_site *sites;
    uint32_t n_sites;
    mn_hparams hp;
    mn_arena arena;
    /* while building */
    const mn_canonical *model;
    mn_error *err;
    uint8_t *asked;   /* per tensor of the model: whether a builder asked for it */
    mn_status status; /* the first failure; later appends do nothing */
    size_t cap_nodes, cap_tensors, cap_operands, cap_attrs, cap_blobs, cap_weights, cap_sites;
    mn_node node;      /* between mn_gb_begin and mn_gb_end */
    uint32_t n_states; /* operations with a state so far */
    int layer;         /* of nodes and of names with "%d"; -1 = none: begin and end of the graph */
    bool of_text;      /* the builder is at the encoder: rows are rows of texts */
    int32_t row_pos, freqs[MN_MAX_ROPE]; /* freqs: one per table of the hyper-parameters */
    int32_t text_row_pos;
    int32_t distance_bias;          /* of mn_g_attention, the same in all layers; -1: none */
    int32_t relative_k, relative_q; /* of the next mn_g_attention; -1: none */
    double rope_mscale[MN_MAX_ROPE];
    uint32_t n_ctx; /* positions that a session wants; 0 = what the model was trained for */
    bool masks;     /* SAMPLE has a mask */
    bool scores;    /* SAMPLE has masks, biases, targets and logprobs */
    bool samplers;  /* and what contract 4 adds */
    bool drafts;    /* SAMPLE has drafts, whatever else it has */
    bool tells;     /* its hidden states are an output (mn_graph_io.hidden_out) */
    bool head;      /* it is the model's draft head */
    mn_division division;
    bool embeds; /* it ends with hidden states [O, D], not with logits and SAMPLE */
    bool typed;  /* ids from n_vocab on belong to a second text: mn_g_typed_tokens */
    /* a remark for users on tensors that are not used, printed behind "MODEL: "; NULL: none */
    const char *remark;
} mn_model_graph;
/* The output that the host may read row by row, and the numbers in a row. */
static inline int32_t mn_graph_rows(const mn_model_graph *g) {
    return g->embeds ? g->io.hidden : g->io.logits;
}
static inline int64_t mn_graph_row_width(const mn_model_graph *g) {
    return g->embeds ? g->hp.n_embd : g->hp.n_vocab;
}

typedef struct {
    const char *arch;
    void (*build)(mn_model_graph *g); /* a failure is g->status */
} mn_arch;
const mn_arch *mn_arch_find(const char *name); /* NULL = unknown */
/* MN_UNSUPPORTED, with the list of known architectures. */
mn_status mn_arch_unknown(const mn_canonical *m, const char *arch, mn_error *err);
void mn_arch_list(mn_text *out); /* "llama, qwen2, ..." */

/* How a graph ends: with SAMPLE; with hidden states; with a SAMPLE that has a mask; that also
 * scores; that also has all samplers. Each end but the second exists with drafts and without. The
 * graphs differ in a few tensors behind the others only. */
enum {
    MN_GRAPH_DRAWS,
    MN_GRAPH_EMBEDS,
    MN_GRAPH_MASKS,
    MN_GRAPH_SCORES,
    MN_GRAPH_SAMPLERS,
    MN_GRAPH_DRAFTS,
    MN_GRAPH_MASKS_DRAFTS,
    MN_GRAPH_SCORES_DRAFTS,
    MN_GRAPH_SAMPLERS_DRAFTS,
    MN_GRAPH_TELLS, /* one of the ends above and this one: hidden states are an output, too */
    MN_GRAPH_HEAD = 2 * MN_GRAPH_TELLS, /* the model's draft head, which draws */
    MN_GRAPH_ENDS
};
enum { MN_GRAPH_BIAS = 320, MN_GRAPH_TOP = 20 };       /* B and N of a graph that scores */
#define MN_MASK_WORDS(n_vocab) (((n_vocab) + 31) / 32) /* of a row of the mask */

/* Builds and validates. n_ctx decides only what a model keeps in two sets: longrope's factors (long
 * above its original context). end: MN_GRAPH_*; an encoder has no other end than EMBEDS.
 * Errors name the file and the tensor or key; an unknown architecture lists the known ones. */
mn_status mn_model_graph_build(const mn_canonical *m, uint32_t n_ctx, uint32_t end,
                               mn_model_graph **out, mn_error *err);
/* The same with divided experts. Layers whose number of experts is not that of the first divided
 * one, or not above n_first, stay whole. */
mn_status mn_model_graph_build_divided(const mn_canonical *m, uint32_t n_ctx, uint32_t end,
                                       mn_division division, mn_model_graph **out, mn_error *err);
void mn_model_graph_free(mn_model_graph *g);

/* Attribute i; 0 where the node's contract is older than the attribute. */
static inline uint64_t mn_node_attr(const mn_graph *g, const mn_node *n, uint32_t i) {
    return i < n->n_attr ? g->attrs[n->attr_off + i] : 0;
}
/* Whether the node is the KV_STORE that fills what the ATTENTION reads. */
bool mn_node_stores_for(const mn_graph *g, const mn_node *n, const mn_node *attention);
uint32_t mn_tensor_root(const mn_graph *g, uint32_t tensor); /* what a view is a view of */
/* [n_tensors]: roots that the nodes [lo, hi) read; freed by mn_free. NULL = out of memory. */
bool *mn_graph_reads(const mn_graph *g, uint32_t lo, uint32_t hi);
/* Whether a graph for n_ctx positions would differ from g. */
bool mn_model_graph_differs(const mn_model_graph *g, uint32_t n_ctx);

/* ---- for arch_*.c. All return tensor indices; after a failure they return -1 and g->status says
 * why. ---- */
/* On to the next layer; false: that was the last one, and g is at none again. */
bool mn_g_next_layer(mn_model_graph *g);
/* The same up to the encoder's last layer, at which g stays. In layers of the encoder and behind
 * them "blk." in names is "enc.blk." and "dec.blk.", and "%d" counts from 0 in each. */
bool mn_g_next_encoder_layer(mn_model_graph *g);
/* graph_weights.c, graph_pieces.c: the tensor of this name and shape; "%d" in name is the
 * layer that g is at. Optional: -1 if the model has none. experts: [n, rows, cols]. part_*: rows
 * [lo, lo + n) of a tensor of `total` rows (q, k and v stored as one). */
int32_t mn_g_vector(mn_model_graph *g, const char *name, bool optional, int64_t n);
int32_t mn_g_matrix(mn_model_graph *g, const char *name, bool optional, int64_t rows, int64_t cols);
/* A matrix of these columns, and of as many rows as the file has. */
int32_t mn_g_table(mn_model_graph *g, const char *name, int64_t cols);
int32_t mn_g_experts(mn_model_graph *g, const char *name, bool optional, int64_t n, int64_t rows,
                     int64_t cols);
typedef struct {
    int64_t total, lo, n;
} mn_row_part;
/* The first n of n_stored experts, of each the rows of the part; a tensor of its own. */
int32_t mn_g_first_experts(mn_model_graph *g, const char *name, int64_t n_stored, int64_t n,
                           mn_row_part part, int64_t cols);
/* `count` runs of n rows, the first from lo on, each step rows behind the one before, of the tensor
 * stem.weight (or .bias) of `total` rows. */
typedef struct {
    const char *stem;
    int64_t total, lo, n, step, count;
} mn_row_run;
/* The runs, at most 4, one behind the other as a matrix of the graph, called own and ending; as F32
 * that the graph owns where they are of several types. cols 0: a vector, F32. Optional: -1 if the
 * model has none of them. */
int32_t mn_g_runs(mn_model_graph *g, const char *own, const char *ending, bool optional,
                  const mn_row_run *runs, uint32_t n, int64_t cols);
/* All elements of n tensors one behind the other, F32 that the graph owns: small ones, whose dims
 * of 1 do not matter. factors [dim[0]]: of each row; NULL: none. */
int32_t mn_g_dense_f32(mn_model_graph *g, const char *const *names, uint32_t n, bool optional,
                       uint32_t n_dim, const int64_t *dim, const float *factors);
/* n zeros in the graph's memory while it is built; NULL: g has failed. */
float *mn_g_scratch(mn_model_graph *g, int64_t n);
int32_t mn_g_part_vector(mn_model_graph *g, const char *name, bool optional, mn_row_part part);
int32_t mn_g_part_matrix(mn_model_graph *g, const char *name, bool optional, mn_row_part part,
                         int64_t cols);
/* Columns [first, first + cols) of a matrix [rows, total]. */
int32_t mn_g_columns(mn_model_graph *g, const char *name, int64_t rows, int64_t total,
                     int64_t first, int64_t cols);
/* The same rows of each of n experts [n, total, cols]. */
int32_t mn_g_part_experts(mn_model_graph *g, const char *name, int64_t n, mn_row_part part,
                          int64_t cols);
/* A factor for each of n experts as matrices of one column [n, rows, 1], F32 that the graph owns:
 * times 1 each is `rows` times the factor. -1: the model has no such vector. */
int32_t mn_g_expert_factors(mn_model_graph *g, const char *name, int64_t n, int64_t rows);
/* A short vector that an op wants in F32, widened by the host where the file has F16 or BF16. */
int32_t mn_g_vector_f32(mn_model_graph *g, const char *name, bool optional, int64_t n);
/* A vector with offset added to each element, F32 that the graph owns. */
int32_t mn_g_vector_plus(mn_model_graph *g, const char *name, int64_t n, double offset);
/* Learned positions and the embedding of token type 0, which every row has, as one table
 * [n_ctx_train, D] for mn_g_embed; -1: the model has neither. Where both are there, it is F32 that
 * the graph owns. */
int32_t mn_g_positions(mn_model_graph *g);
/* Of a model that scores pairs of texts and has two token types, the embeddings of all tokens [2 V,
 * D], F32 that the graph owns: as they are, and with the difference of the two types added, for the
 * tokens of the second text (id + V); sets g->typed. -1: another model. */
int32_t mn_g_typed_tokens(mn_model_graph *g);
/* n times 1: the weight of a norm without one */
int32_t mn_g_ones(mn_model_graph *g, int64_t n);
/* One value everywhere; made once for each value and shape. n_dim: 1 or 2. */
int32_t mn_g_filled(mn_model_graph *g, double value, uint32_t n_dim, const int64_t *dim);
/* Row `row` of a small matrix [rows, cols], n times below itself: the product by it is a number for
 * each row of a step, as wide as n. F32 that the graph owns. */
int32_t mn_g_row_repeated(mn_model_graph *g, const char *name, int64_t rows, int64_t cols,
                          int64_t row, int64_t n);
/* Matrix `at` of n, [n, rows, cols]. */
int32_t mn_g_one_of(mn_model_graph *g, const char *name, int64_t at, int64_t n, int64_t rows,
                    int64_t cols);
/* Fails if the model's key {arch}.key is there and not 0: no builder supports it. */
void mn_g_refuse(mn_model_graph *g, const char *key, const char *what);
void mn_g_need(mn_model_graph *g, const char *key); /* fails: {arch}.key is missing */
bool mn_g_has(const mn_model_graph *g, const char *name);
int64_t mn_g_rows_of(const mn_model_graph *g,
                     const char *name); /* its first dimension; 0: absent */
/* The tensor may be in files and is not read. */
void mn_g_ignore(mn_model_graph *g, const char *name);

/* graph_ops.c: one per op. positions: learned ones, or -1. */
int32_t mn_g_embed(mn_model_graph *g, int32_t table, double scale, int32_t positions);
int32_t mn_g_rms_norm(mn_model_graph *g, int32_t x, int32_t weight);
/* With an epsilon of its own and no offset. weight: [D], or [H, D] with x [T, H, D]. */
int32_t mn_g_rms_norm_of(mn_model_graph *g, int32_t x, int32_t weight, double eps);
/* RMS norm over all heads at once: x [T, H * D] in, [T, H, D] out. */
int32_t mn_g_rms_norm_heads(mn_model_graph *g, int32_t x, int32_t weight, int64_t head_dim);
int32_t mn_g_layer_norm(mn_model_graph *g, int32_t x, int32_t weight, int32_t bias);
int32_t mn_g_layer_norm_of(mn_model_graph *g, int32_t x, int32_t weight, int32_t bias, double eps);
/* A weight and its bias; -1: it has none. */
typedef struct {
    int32_t weight, bias;
} mn_g_product;
/* y[i] = x W_i^T + b_i for n weights of [rows_i, K]; head_dim[i] > 0 splits the rows into heads:
 * [T, rows / head_dim, head_dim]. */
void mn_g_linear(mn_model_graph *g, int32_t x, uint32_t n, const mn_g_product *p,
                 const int64_t *head_dim, int32_t *y);
static inline const mn_layer_shape *mn_g_layer(const mn_model_graph *g) {
    return &g->hp.layer[g->layer];
}
/* y[t, h] = x[t, h] W[h]^T, and behind it what x has beyond K: x [T, H, K + M], weight [H, N, K], y
 * [T, H, N + M]. */
int32_t mn_g_heads(mn_model_graph *g, int32_t x, int32_t weight);
/* x itself where the layer has no rotation */
int32_t mn_g_rope(mn_model_graph *g, int32_t x);
/* The last elements of each head alone rotate, neighbours together: x [T, H, D]. */
int32_t mn_g_rope_behind(mn_model_graph *g, int32_t x);
/* KV_STORE and ATTENTION of one layer, in its KV group; of a layer that reads another one's keys
 * and values (shares) ATTENTION alone. v: -1: the first elements of keys. sinks: -1 = none. */
int32_t mn_g_attention(mn_model_graph *g, int32_t q, int32_t k, int32_t v, int32_t sinks);
/* What the attention of one layer reads; -1: nothing. bias: [buckets, H], by distance. reads_text:
 * k and v belong to rows of texts; rows of a decoder read them from now on. */
typedef struct {
    int32_t q, k, v, sinks, bias;
    bool reads_text;
} mn_g_attended;
int32_t mn_g_attention_of(mn_model_graph *g, const mn_g_attended *a);
/* Columns [first, first + n) of the rows of a table of as many columns as it has, by the ids of the
 * step: [T, n]. Behind mn_g_embed. */
int32_t mn_g_lookup(mn_model_graph *g, int32_t table, int64_t first, int64_t n, double scale);
/* By how much queries grow with their position, as rows of n equal numbers [T, n]; -1: they do not.
 * Behind mn_g_embed. */
int32_t mn_g_growth(mn_model_graph *g, int64_t n);
/* graph_relative.c. The embeddings of distances, normalised, [B, D] in the graph's memory; NULL: g
 * has failed. Then relative keys or queries of a layer: they times the matrix and bias stem, as a
 * constant [B, H, Dk]. */
const float *mn_g_distances(mn_model_graph *g);
int32_t mn_g_relative(mn_model_graph *g, const char *stem, const float *distances);
/* graph_text_conv.c: the convolution of x [T, D] over the rows of its text, behind its activation
 * [T, 1, D]. */
int32_t mn_g_text_conv(mn_model_graph *g, int32_t x);
/* The operations with a state; each gets a layer of its own in the group of states. */
int32_t mn_g_conv_state(mn_model_graph *g, int32_t x, int32_t weight, int32_t bias);
typedef struct {
    int32_t xbc, dt, a, d, dt_bias;
    int64_t n_head;
    bool a_is_log;
} mn_g_scan;
int32_t mn_g_ssm_scan(mn_model_graph *g, const mn_g_scan *s); /* [T, G, K / G]; G 1: [T, K] */
typedef struct {
    int32_t qkv, gate, beta, a, dt_bias;
    int64_t n_head, dim_v;
    bool a_is_log;
} mn_g_delta;
int32_t mn_g_gated_delta(mn_model_graph *g, const mn_g_delta *d); /* [T, Hv, Dv] */
int32_t mn_g_act(mn_model_graph *g, int32_t x);                   /* the model's */
int32_t mn_g_act_of(mn_model_graph *g, int32_t x, uint32_t kind); /* MN_ACT_* */
/* kind(gate) times up, whatever the model's activation is */
int32_t mn_g_glu_of(mn_model_graph *g, int32_t gate, int32_t up, uint32_t kind);
typedef struct {
    double alpha, limit, up_offset; /* zero: the plain form; see GLU in docs/ops.md */
} mn_glu_form;
int32_t mn_g_glu(mn_model_graph *g, int32_t gate, int32_t up, mn_glu_form form);
int32_t mn_g_softcap(mn_model_graph *g, int32_t x, double cap);
int32_t mn_g_add(mn_model_graph *g, int32_t a, int32_t b);
int32_t mn_g_mul(mn_model_graph *g, int32_t a, int32_t b);
int32_t mn_g_scale(mn_model_graph *g, int32_t x, double factor);
/* by the tensor of one value; x itself where the model has none */
int32_t mn_g_scale_by(mn_model_graph *g, int32_t x, const char *name);
/* How experts are chosen: MOE_ROUTE's attributes, and how many a token uses. */
typedef struct {
    uint32_t kind; /* MN_ROUTE_* */
    bool normalise;
    double scale; /* 0 = 1 */
    int64_t n_used;
    int64_t n_group, n_group_used; /* 0: no groups */
    double jitter;                 /* of MN_ROUTE_SPARSEMIXER */
} mn_g_route;
/* bias: -1 = none. experts, weights: [T, n_used]. */
void mn_g_moe_route(mn_model_graph *g, int32_t logits, int32_t bias, mn_g_route how,
                    int32_t *experts, int32_t *weights);
/* As mn_g_linear, with weights [E, rows_i, K]; x [T, K] or [T, J, K]; y [T, J, rows_i]. factors:
 * of x for each expert [T, J]; -1: none. */
void mn_g_moe_linear(mn_model_graph *g, int32_t x, int32_t experts, uint32_t n,
                     const mn_g_product *p, int32_t factors, int32_t *y);
/* The same of experts that are in resident [E] alone; -1: of all. */
void mn_g_moe_linear_of(mn_model_graph *g, int32_t x, int32_t experts, uint32_t n,
                        const mn_g_product *p, int32_t factors, int32_t resident, int32_t *y);
/* weights -1: all are 1 */
int32_t mn_g_moe_combine(mn_model_graph *g, int32_t x, int32_t weights);
/* The sum over the experts in resident [E], behind base [T, D]; -1: behind 0. */
typedef struct {
    int32_t x, weights, experts, resident, base;
} mn_g_part_sum;
int32_t mn_g_moe_combine_part(mn_model_graph *g, const mn_g_part_sum *s);
/* Whether the experts of the layer that g is at are divided; with experts in the first half, their
 * states are there. */
bool mn_g_divides(mn_model_graph *g);
int32_t mn_g_gather(mn_model_graph *g, int32_t x); /* the rows that give logits */
/* LINEAR to the logits, scaled and capped as the model wants, and SAMPLE. */
void mn_g_logits(mn_model_graph *g, int32_t x, int32_t table, int32_t bias);
/* x [O, D], made by the last node, is the output of a graph that embeds. */
void mn_g_hidden(mn_model_graph *g, int32_t x);
/* x [T, D], made by the last node, is an output beside the others. */
void mn_g_tell_hidden(mn_model_graph *g, int32_t x);

/* ---- ops.c: the table of ops.def ------------------------------------------------------------- */
typedef struct {
    const char *name;
    uint32_t id, contract, n_in, n_in_required, n_in_repeated, n_in_after, n_out, n_out_required,
        n_attr;
} mn_op_info;
const mn_op_info *mn_op_find(uint32_t id); /* NULL = unknown or reserved */
/* The lowest contract that describes a node of a known op; operands and attributes are set. */
uint32_t mn_op_contract_of(const mn_graph *g, const mn_node *n);
/* Names of operand and attribute i of a node as ops.def has them; "?" = not in the table. */
const char *mn_op_input_name(const mn_node *n, uint32_t i);
const char *mn_op_output_name(const mn_node *n, uint32_t i);
const char *mn_op_attr_name(const mn_node *n, uint32_t i, bool *is_f64);
/* graph_json.c: the graph as one JSON object (mn_model_graph_json). */
void mn_graph_json(const mn_model_graph *g, mn_text *out);
/* Operand counts, indices, roles, definition before use, shapes that an op's contract ties
 * together. */
mn_status mn_graph_check(const mn_graph *g, mn_error *err);
#endif
