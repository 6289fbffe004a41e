/* gpu_ops.h -- the table of operations of a GPU backend: one row for each operation of docs/ops.md
 * with what the backend can do of it, what memory it needs beside its tensors, and how it is
 * launched. Contracts, verdicts and sizes follow from the rows (verdict.c, program.c).
 *
 * A launch function runs once for each step, or once for each combination of symbol values where
 * the backend captures steps: what it chooses (a kernel for so many rows) then holds for all steps
 * with these values. */
#ifndef MNG_GPU_OPS_H
#define MNG_GPU_OPS_H
#include "gpu_objects.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Why a node does not run here; the texts are in verdict.c. */
enum {
    MNG_OK,
    MNG_WEIGHT_TYPE,
    MNG_FLAT_TYPE,
    MNG_WANTS_F32,
    MNG_SHAPE,
    MNG_HEAD,
    MNG_LENGTH,
    MNG_NO_KERNEL,
    MNG_EXPERTS,
    MNG_VIEW,
    MNG_DISTANCES,
    MNG_N_REASONS
};

typedef struct {
    uint32_t op;
    uint32_t contract;
    /* checks beyond those of all operations (operands are there, weights have types that can be
     * kept, only activations have views); a reason, or MNG_OK; NULL: none */
    uint32_t (*verdict)(const mn_device *d, const mn_graph *g, const mn_node *n);
    /* raises the program's needs for this node; NULL: it has none */
    void (*needs)(const mn_program *p, const mn_node *n, mng_needs *needs);
    void (*launch)(mng_run *r, const mng_unit *u);
} mng_op;

/* Verdicts by shapes, for rows of the table: what kernels of every backend rely on. Heads and
 * experts are compared with backend->limits. */
uint32_t mng_embed_verdict(const mn_device *d, const mn_graph *g, const mn_node *n);
uint32_t mng_lookup_verdict(const mn_device *d, const mn_graph *g, const mn_node *n);
uint32_t mng_lora_verdict(const mn_device *d, const mn_graph *g, const mn_node *n);
uint32_t mng_pair_verdict(const mn_device *d, const mn_graph *g, const mn_node *n);
uint32_t mng_linear_verdict(const mn_device *d, const mn_graph *g, const mn_node *n);
uint32_t mng_moe_linear_verdict(const mn_device *d, const mn_graph *g, const mn_node *n);
uint32_t mng_rope_verdict(const mn_device *d, const mn_graph *g, const mn_node *n);
uint32_t mng_store_verdict(const mn_device *d, const mn_graph *g, const mn_node *n);
uint32_t mng_attention_verdict(const mn_device *d, const mn_graph *g, const mn_node *n);
uint32_t mng_route_verdict(const mn_device *d, const mn_graph *g, const mn_node *n);
uint32_t mng_combine_verdict(const mn_device *d, const mn_graph *g, const mn_node *n);
uint32_t mng_sample_verdict(const mn_device *d, const mn_graph *g, const mn_node *n);
uint32_t mng_state_verdict(const mn_device *d, const mn_graph *g, const mn_node *n);
/* The verdict of a node by its row; MNG_OK or a reason. */
uint32_t mng_verdict(const mn_device *d, const mn_graph *g, uint32_t node);
/* The row of an operation; NULL: none. */
const mng_op *mng_op_of(const mng_backend *b, uint32_t op);

/* ---- a step under way ------------------------------------------------------------------------ */
/* The backend's part of it: which stream, what is collected (run_begin). */
typedef struct mng_step mng_step;
/* The first error stays, and nothing is launched after it. */
struct mng_run {
    mn_context *c;
    const mn_program *p;
    const mn_graph *g;
    mn_device *dev;
    const int64_t *sym;
    mng_step *step;
    bool dry; /* prepares kernels and room only; launches nothing */
    mn_status status;
    mn_error *err;
};
/* A step of c->symbol; dry: as above. */
mng_run mng_run_of(mn_context *c, bool dry, mn_error *err);
/* Unit i with the copies of its views around it; nothing where another unit runs it
 * (backend->unit_absorbed). */
void mng_launch_unit(mng_run *r, uint32_t i);
/* A node that a unit took in, by itself; -1: nothing to do. */
void mng_launch_node(mng_run *r, int32_t node);
/* The nodes of a unit in the order in which they run, [MNG_UNIT_NODES]; their number. */
uint32_t mng_nodes_of(const mng_run *r, const mng_unit *u, int32_t *nodes);

/* ---- operands in this step ------------------------------------------------------------------- */
/* Where a tensor lies: in what the host has bound, in a weight, in the scratch, or nowhere. */
mng_ref mng_operand(const mng_run *r, int32_t t);
mng_ref mng_in(const mng_run *r, const mn_node *n, uint32_t i);
mng_ref mng_out(const mng_run *r, const mn_node *n, uint32_t i);
mng_ref mng_absent(const mng_run *r);
mng_ref mng_scratch(const mng_run *r, uint64_t at);
/* The place of what the program needs beside tensors. */
mng_ref mng_needed(const mng_run *r, uint32_t which);
/* n floats behind a place, if it is there. */
mng_ref mng_behind(mng_ref ref, int64_t n);
/* 1 where the tensor has no such dim, or is absent. */
int64_t mng_dim(const mng_run *r, int32_t t, uint32_t i);
int64_t mng_last_dim(const mng_run *r, int32_t t);
int64_t mng_elements(const mng_run *r, int32_t t);
/* NULL: absent. */
const mng_weight *mng_weight_of(const mng_run *r, int32_t t);
/* A part of a weight: rows from `first` on. */
typedef struct {
    mng_ref at;
    int64_t first;
    int64_t rows;
} mng_part;
mng_part mng_part_of(const mng_weight *w, uint32_t i);

/* ---- attributes, by the words of docs/ops.md ------------------------------------------------- */
/* alpha with its default, 1; limit 0: none */
typedef struct {
    int32_t kind; /* MN_ACT_* */
    float alpha;
    float limit;
    float up_offset;
} mng_glu;
mng_glu mng_glu_of(const mn_graph *g, const mn_node *n);
/* n_rot and mscale with their defaults: the whole head, 1. */
typedef struct {
    int T, H, D, n_rot, adjacent;
    float mscale;
} mng_rope;
mng_rope mng_rope_of(const mng_run *r, const mn_node *n);
/* The cache of a KV_STORE or ATTENTION unit: tensors, sizes, this node's layer in a page. */
typedef struct {
    const mnp_kv *kv;
    int32_t row_pos, row_slot, pages, cache; /* tensors */
    int T, S, P;                             /* rows; slots; pages of a slot */
    uint64_t n_pages;                        /* of the buffer */
    uint64_t part_pages;                     /* of one of its parts */
    uint64_t layer_at;
} mng_cache;
mng_cache mng_cache_of(const mng_run *r, const mng_unit *u);
/* The pages of a CONV_STATE, SSM_SCAN or GATED_DELTA unit. A sequence is an entry of SEQS: its rows
 * are the rows [seq[0], seq[0] + seq[1]) whose ROW_POS is not negative, its pages are row seq[2] of
 * STATES. A sequence is left unchanged if seq[1] is 0, its slot does not exist, or it has no page
 * to leave. */
typedef struct {
    const mnp_state *state;
    int32_t row_pos, seqs, states, memory; /* tensors */
    int T, Q, S;                           /* rows; entries of SEQS; slots */
    uint64_t n_pages;                      /* of the buffer */
    uint64_t part_pages;                   /* of one of its parts */
} mng_states;
mng_states mng_states_of(const mng_run *r, const mng_unit *u);
/* SSM_SCAN and GATED_DELTA as one recurrence: H heads of dim columns, each a state of n numbers. In
 * a row of `rows`, of `width` elements, x or v [H, dim] is at x_at, what is written (B, k) and read
 * with (C, q), [G, n], at write_at and read_at; in_turn: head h has group h % G, else h / (H / G).
 * Factors have their defaults: scale, beta_scale; dt_max 0: none. */
typedef struct {
    int32_t rows, step, a, dt_bias, y; /* tensors; step: DT or GATE */
    int32_t beta, d;                   /* of GATED_DELTA; of SSM_SCAN; else -1 */
    int width, x_at, write_at, read_at;
    int H, dim, G, n;
    float dt_min, dt_max, eps, scale, beta_scale;
    bool a_log, each, in_turn;
} mng_scan;
/* The numbers of one as initialisers, for a backend's struct with fields of the same names. */
#define MNG_SCAN_NUMBERS(scan)                                                                     \
    .width = (scan)->width, .x_at = (scan)->x_at, .write_at = (scan)->write_at,                    \
    .read_at = (scan)->read_at, .H = (scan)->H, .dim = (scan)->dim, .G = (scan)->G,                \
    .n = (scan)->n, .dt_min = (scan)->dt_min, .dt_max = (scan)->dt_max, .eps = (scan)->eps,        \
    .scale = (scan)->scale, .beta_scale = (scan)->beta_scale, .a_log = (scan)->a_log,              \
    .each = (scan)->each, .in_turn = (scan)->in_turn
mng_scan mng_scan_of(const mn_graph *g, const mn_node *n);
typedef struct {
    int H, window, chunk, bidirectional;
    float scale, softcap;
} mng_attention;
mng_attention mng_attention_of(const mng_run *r, const mn_node *n);
/* Whether it has an operand of contract 4 or 5: DISTANCE_BIAS, LENGTHS, ANCESTORS, RELATIVE_*. */
bool mng_attends_distances(const mn_graph *g, const mn_node *n);
/* Of an ADD that a unit took in behind tensor y: the operand that is not y. */
int32_t mng_addend(const mn_graph *g, int32_t add, int32_t y);

/* ---- views ----------------------------------------------------------------------------------- */
/* A copy between the dense place of a view and what it views, whose first element is at `apart`:
 * n elements of 4 bytes. */
typedef struct {
    mng_ref dense;
    mng_ref apart;
    int64_t dim[MN_MAX_DIM];
    int64_t stride[MN_MAX_DIM];
    int64_t n;
    uint32_t n_dim;
    bool out; /* into what is viewed */
} mng_view;
/* Whether the views among a node's operands are of activations. */
bool mng_accepts_views(const mn_graph *g, const mn_node *n);
/* Reserves places, behind all else, for views of the segment that kernels cannot use in place. */
mn_status mng_place_views(mng_program *p, mn_error *err);
/* Copies the views that the unit's nodes read (out: that they wrote). Returns whether there are
 * any. */
bool mng_copy_views(mng_run *r, const mng_unit *u, bool out);

/* ---- profiles -------------------------------------------------------------------------------- */
/* Name, bytes and operations of a unit in this step; time_ns is 0. */
mn_profile_unit mng_describe_unit(const mng_run *r, const mng_unit *u);

#ifdef __cplusplus
}
#endif
#endif
