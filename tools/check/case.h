/* case.h -- a case: one small graph with its data, built by hand or at random, run through a
 * plugin's table and compared. Shared by `minerva plugins check` and tests/kernels. Depends on
 * plugin.h and dtype.h alone; no function here ends the process.
 *
 * Functions that build a case record errors in it: once memory or a table was too small,
 * `failed` is set, later calls have no effect, and case_open refuses the case. Threads: one at a
 * time per case and per plan. */
#ifndef CASE_H
#define CASE_H
#include "dtype.h"
#include "memory_uses.h"
#include "usual.h"
#include <minerva/plugin.h>
#include <stdbool.h>

#define CASE_TENSORS 48
#define CASE_NODES 12
#define CASE_SYMBOLS 8
#define CASE_OPERANDS 256
#define CASE_ATTRS 128
#define CASE_GROUPS 2

/* ---- numbers and types (case_type.c) --------------------------------------------------------- */
mn_dtype case_dtype(uint32_t id); /* id 0 in the result: unknown */
/* A linear congruential generator; its upper bits are good. Here, since cases are noise by the
 * megabyte. */
static inline uint64_t case_random_bits(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed;
}
/* uniform in [-1, 1) */
static inline float case_rand(uint64_t *seed) {
    return (float)(case_random_bits(seed) >> 40) * 0x1p-23f - 1;
}
/* |got - want| / |want|; NaN counts as infinity */
double case_rel_l2(const float *got, const float *want, int64_t n);
/* of the DATA plane of n elements */
uint64_t case_plane_bytes(uint32_t dtype, int64_t n);
/* F32 F16 BF16 Q8_0 Q4_0 */
void case_quantise(uint32_t dtype, const float *x, int64_t n, void *out);
void case_dequantise(uint32_t dtype, const void *x, int64_t n, float *out);
/* Random valid blocks of any weight type: scales bounded, nothing that decodes to NaN or Inf. F32,
 * F16, BF16, Q8_0 and Q4_0 are quantised noise. out: the planes behind one another,
 * case_weight_bytes of them. */
void case_random_weight(uint32_t dtype, int64_t rows, int64_t cols, uint64_t *seed, void *out);
uint64_t case_weight_bytes(uint32_t dtype, int64_t rows, int64_t cols);
bool case_is_weight_type(uint32_t id);

/* ---- a graph with its data (case.c) ---------------------------------------------------------- */
typedef struct {
    mn_graph g;
    mn_tensor t[CASE_TENSORS];
    mn_node n[CASE_NODES];
    mn_symbol sym[CASE_SYMBOLS];
    int64_t value[CASE_SYMBOLS]; /* of the step; case_symbol sets it to the maximum */
    int64_t most[CASE_SYMBOLS];  /* symbol_max of the program; 0 = the symbol's maximum */
    int32_t operands[CASE_OPERANDS];
    uint64_t attrs[CASE_ATTRS];
    void *data[CASE_TENSORS];   /* weights, inputs and states before the run; owned */
    void *result[CASE_TENSORS]; /* outputs, and states and inputs after the run; owned */
    uint64_t bytes[CASE_TENSORS];
    bool unbound[CASE_TENSORS];   /* outputs that the run does not bind */
    bool every_row[CASE_TENSORS]; /* an output that is defined in padded rows, too */
    /* [maximum of the symbol] per row symbol: 1 = padding, outputs undefined; 2 = spoiled, the
     * output must be NaN; NULL = none */
    uint8_t *dead[CASE_SYMBOLS];
    uint32_t kv_dtype, v_dtype; /* of keys, of values */
    uint64_t flags;             /* of mn_compile */
    struct {
        int32_t tensor; /* the KV buffer of the group, or -1 */
        uint32_t pages;
    } kv[CASE_GROUPS];         /* by KV group */
    uint32_t node_lo, node_hi; /* the segment that is compiled and run; hi 0: all nodes */
    mn_memory_uses memory;     /* of case_question; all zeros before */
    bool failed;
} op_case;

op_case *case_new(void); /* NULL = out of memory */
void case_free(op_case *c);
/* Adds a SHAPE or BOUND symbol; returns the number that denotes it in a tensor's dims. */
int64_t case_symbol(op_case *c, const char *name, int64_t max, uint32_t kind);
/* Adds a tensor; data (may be NULL = zeros) is copied. dims: n_dim of int64_t, < 0 = a symbol. */
int32_t case_tensor(op_case *c, uint32_t role, uint32_t dtype, uint32_t n_dim, const int64_t *dim,
                    const void *data, const char *name);
int64_t case_most(const op_case *c, uint32_t symbol); /* symbol_max of the program */
int32_t case_vec(op_case *c, uint32_t role, uint32_t dtype, int64_t d0, const void *data,
                 const char *name);
int32_t case_mat(op_case *c, uint32_t role, uint32_t dtype, int64_t d0, int64_t d1,
                 const void *data, const char *name);
int32_t case_cube(op_case *c, uint32_t role, uint32_t dtype, int64_t d0, int64_t d1, int64_t d2,
                  const void *data, const char *name);
/* opaque [d0] */
int32_t case_state(op_case *c, const void *data, uint64_t bytes, int64_t d0, const char *name);
/* sized by the plugin's layout when it runs */
int32_t case_kv(op_case *c, uint32_t dtype, uint32_t n_pages);
/* the same, of any KV group */
int32_t case_kv_of(op_case *c, uint32_t dtype, uint32_t n_pages, uint32_t group);
/* the group whose KV buffer the tensor is, or -1 */
int32_t case_kv_group(const op_case *c, uint32_t tensor);
/* does a node of the segment read or write the tensor? */
bool case_in_segment(const op_case *c, uint32_t tensor);
/* The role that the tensor has for the segment: one that is INTERIOR and crosses its ends is bound
 * like an OUTPUT where the segment makes it, like an INPUT where it reads it. */
uint32_t case_role(const op_case *c, uint32_t tensor);
void case_node(op_case *c, uint32_t op, const int32_t *in, uint32_t n_in, const int32_t *out,
               uint32_t n_out, const uint64_t *attr, uint32_t n_attr);
uint64_t case_f64(double v); /* an attribute */

/* ---- random cases, one per op (case_ops.c) --------------------------------------------------- */
typedef struct {
    int64_t rows; /* the maximum of rows of a step: T or O */
    /* rows that count, 0 = all; the rest is padding and holds NaN */
    int64_t live;
    /* LINEAR: K, N; norms and elementwise: k = D; EMBED and SAMPLE: n = V */
    int64_t k, n;
    int64_t n_head, n_head_kv, dim; /* ROPE, KV, ATTENTION, operations with a state */
    int64_t dim_v;                  /* ATTENTION, GATED_DELTA; of the first 0 = dim */
    int64_t n_rot;                  /* ROPE; 0 = dim */
    /* ATTENTION: tokens before the step; ROPE, EMBED: the first position */
    int64_t past;
    int64_t n_seqs;           /* ATTENTION: sequences sharing the rows; 0 = 1 */
    int64_t n_expert, n_used; /* MOE_*: E and J */
    /* ROPE: bit 0 pairing, 1 POS, 2 axes of it; ACT, GLU: case_act_kind, GLU bit 2: alpha, limit,
     * offset; ATTENTION: bit 0 window, 1 softcap, 2 sinks, 3 bidirectional, 4 slopes, 5 values of
     * keys, 6 chunks, 7 lengths, 8 biases of distances, 9 ancestors, 10 relative keys, 11 relative
     * queries; LINEAR: number of weights - 1, 4 heads; RMS_NORM: bit 1 of a row's first part;
     * EMBED: bit 0 POS_WEIGHT, 1 ROWS; LAYER_NORM: bit 0 no bias; SAMPLE: bit 0 BIAS, bit 1
     * greedy, bit 2 what contract 2 adds, bit 3 drafts, bit 4 all samplers; MOE_ROUTE: kind, bit 2
     * normalise and scale, bit 3 bias, bit 4 groups; MOE_LINEAR: bit 0 a row per expert, bit 1 two
     * weights and a bias, bit 2 X_WEIGHTS, bit 3 RESIDENT; MOE_COMBINE: bit 0 no weights, 1
     * RESIDENT, 2 BASE; LORA (n_used: the rank): bit 0 F16, 1 x of 3 dims; operations with a
     * state: case_state.c */
    int64_t variant;
    uint32_t kv_dtype, page_tokens; /* 0 = F32, 64 */
    uint32_t v_dtype;               /* of cached values; 0 = that of the keys */
    uint32_t kv_free;               /* 1: the class chooses the types (MN_DTYPE_NONE) */
    uint32_t kv_group;              /* of KV_STORE and ATTENTION */
    /* one live row holds NaN and Inf (ATTENTION: and one sequence; ops of two inputs: and one
     * row of each input alone): other rows must not change */
    bool spoil;
    /* all values are NaN and Inf, as an earlier step may leave them in scratch and pages */
    bool dirty;
    uint32_t phase; /* of operations with a state: 0 to CASE_PHASES - 1, case_state.c */
} op_shape;
#define CASE_PHASES 3u
/* MN_ACT_* of a variant of ACT or GLU, from its bits 0, 1 and 3 */
static inline int64_t case_act_kind(int64_t variant) {
    return (variant & 3) + (variant & 8) / 2;
}
/* NULL = out of memory */
op_case *case_random(uint32_t op, uint32_t dtype, const op_shape *s, uint64_t seed);
/* Two KV groups whose layers alternate: layer i is KV layer i / 2 of group i % 2, and has a
 * KV_STORE and an ATTENTION. shape: [CASE_GROUPS], with the same rows, live, past and n_seqs. */
op_case *case_groups(const op_shape *shape, uint32_t n_layers, uint64_t seed);
/* CONV_STATE, SSM_SCAN and GATED_DELTA */
bool case_has_state(uint32_t op);
/* One node of each of n operations with a state, on the same sequences, with layers of one group:
 * layer n - 1 is the first node's. shape: [n], with the same rows, live, n_seqs and phase. */
op_case *case_states(const uint32_t *op, const op_shape *shape, uint32_t n, uint64_t seed);
/* NULL = no such op */
const char *case_op_name(uint32_t op);

/* ---- running (case_run.c, case_weights.c), comparing (case_compare.c) ------------------------ */
typedef struct {
    const mn_backend *be;
    mn_device *dev;
    mn_queue *queue;
    uint64_t align; /* of bindings; 0 = 256 */
    void *self;     /* mn_plugin.self, of which reasons are asked; needed where `no` is not NULL */
    /* receives what supports said: the first error that is no refusal, else the last no, with the
     * plugin's own words; may be NULL */
    mn_error *no;
} case_on;
/* one case compiled on one device: weights, program, buffers, contexts */
typedef struct case_plan case_plan;

/* The mn_compile of the case's segment, with the values of the step as maxima; points into the
 * case. */
mn_compile case_question(op_case *c, uint32_t precision);
/* Weights, program, buffers with guard bytes around each binding, a context. kv_dtype and flags of
 * mn_compile come from the case. The case's weights must outlive the plan. */
mn_status case_open(const case_on *on, op_case *c, uint32_t precision, case_plan **out,
                    mn_error *err);
/* The same; n_threads threads put the weights at the same time, each with a queue of its own. */
#define CASE_PUT_THREADS 8
mn_status case_open_puts(const case_on *on, op_case *c, uint32_t precision, uint32_t n_threads,
                         case_plan **out, mn_error *err);
/* The same with a sealed set of weights, which outlives the plan. */
mn_status case_open_shared(const case_on *on, op_case *c, uint32_t precision, mn_weights *weights,
                           case_plan **out, mn_error *err);
/* Writes the inputs and states of c (its layout is that of the case that was opened), poisons
 * the outputs, executes with c->value, and reads all tensors back into c->result. MN_OK with a
 * non-empty case_breach: the plugin wrote where it must not. */
mn_status case_step(case_plan *p, op_case *c, mn_error *err);
/* Later steps run in a second context of the same program, on a queue of its own. */
mn_status case_second_context(case_plan *p, mn_error *err);
mn_status case_memory_layout(case_plan *p, uint32_t group, mn_memory_layout *out, mn_error *err);
/* The buffer of a group becomes that of another plan with the same layout. */
mn_status case_take_pages(case_plan *p, case_plan *from, uint32_t group, mn_error *err);
/* Copies pages of the KV buffer of a group. */
mn_status case_memory_copy(case_plan *p, uint32_t group, const mn_page_copy *pairs, uint32_t n,
                           mn_error *err);
const char *case_breach(const case_plan *p); /* what was written that must not be; "" = nothing */
void case_close(case_plan *p);
/* case_open, case_step, case_close; a breach is an error. */
mn_status case_run(const case_on *on, op_case *c, uint32_t precision, mn_error *err);

/* Completes a call that may have returned an event: if st is MN_OK and *ev is not NULL, waits
 * for it, at most 60 s; then frees *ev and sets it to NULL. The call's status, or that of the
 * wait. */
mn_status case_wait(const mn_backend *be, mn_status st, mn_event **ev, mn_error *err);

/* Largest relative L2 over the FLOAT outputs and f32 states of two runs of one case, INFINITY where
 * integers differ. *where (may be NULL): the tensor at fault. Padded and spoiled rows do not
 * count. */
double case_differ(const op_case *got, const op_case *want, const char **where);
/* The first output with a number in a spoiled row where `want` has NaN; NULL = there is none.
 * loose: an infinity will do, for classes that round. */
const char *case_hides_nan(const op_case *got, const op_case *want, bool loose);
/* supports of the case's segment, with the memory that compile is given. v: [CASE_NODES], zeroed
 * here. */
mn_status case_supports(const case_on *on, op_case *c, mn_verdict *v, mn_error *err);
/* MN_VERDICT_NO if one of the segment's nodes has it or supports fails: on->no tells why. Else the
 * lowest. */
int32_t case_verdict(const case_on *on, op_case *c);
/* Whether the verdict of every node is a yes (native, slow or ask). */
bool case_supported(const case_on *on, op_case *c);
#endif
