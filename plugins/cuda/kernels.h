/* kernels.h -- launches: the one way from the host's C to the kernels. They are functions with C
 * linkage that *.cu export; beside them stand the rows of types (types.h), of tiles of attention
 * (below) and of matrix products (gemm_args.h). All pointers are device memory; x and y are dense
 * f32 rows unless a line says otherwise. Every kernel lets its successor start early and waits for
 * its predecessor before it reads what that wrote (programmatic dependent launch). Rows that are
 * padding (slot or position -1) are harmless. */
#ifndef CU_KERNELS_H
#define CU_KERNELS_H
#include <cuda_runtime_api.h>
#include <minerva/plugin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#ifdef __cplusplus
extern "C" {
#endif

enum {
    CU_PAGE_TOKENS = 64,
    CU_K_ALIGN = 64 /* rows of weights are padded with zeros to this many elements */,
    CU_MAX_SEG = 4
};

/* What launches choose by: processors, bytes of shared memory that a block may have, compute
 * capability times 10. */
typedef struct {
    int sms;
    int smem_max;
    int cc;
} cu_card;

/* How activations lie in memory. CU_LOW: f16 of x / CU_LOWERED, for weights of bf16: what such
 * models compute may exceed f16, whose range then ends at 2^20. */
enum { CU_F32, CU_HALF, CU_BF16, CU_LOW };
enum { CU_LOWERED = 16 };
enum { CU_EPI_NONE, CU_EPI_ADD, CU_EPI_GLU };

/* Planes of a weight as kernels see them; what a plane holds is its type's (types.h). */
enum { CU_MAX_PLANES = 4 };
typedef struct {
    const char *at[CU_MAX_PLANES];
} cu_planes;

/* docs/ops.md, GLU; alpha 0 = 1, limit 0 = none */
typedef struct {
    int kind;
    float alpha, limit, up_offset;
} cu_glu;

/* Which pairs of token and choice an expert has. of: [n_pairs], the expert of each; pair p reads
 * row p / x_div of x and writes row p of y. The rest, for matrix units, is what cu_moe_sort made of
 * it: pairs sorted by expert, where each expert's begin [n + 1], and the experts that have any
 * [n_active], -1 behind the last. */
typedef struct {
    const int32_t *of, *pairs, *start, *active;
    int n, n_active, x_div;
    int typical; /* rows of an expert if they spread */
    int most;    /* that it may have */
} cu_experts;

typedef struct {
    cu_planes w;
    const float *bias;
    float *y;
    int rows; /* of experts: of one */
} cu_seg;
/* y_i = epilogue(prologue(x) W_i^T + b_i). GLU: seg[0] is gate, seg[1] up, out in seg[0].y. */
typedef struct {
    const void *x;
    const int32_t *gather; /* row of x for each row, or NULL */
    const float *norm;     /* weights of a fused RMS norm, or NULL */
    const float *residual; /* EPI_ADD */
    float eps, offset;
    /* x_rows: bound of gather; total: weight rows of all segments, GLU: of one */
    int n_seg, rows, x_rows, total;
    /* late: the successor starts once this kernel's input is there: older work is then over */
    int K, ld, epi, y_kind, late;
    int x_kind; /* CU_F32: rows of K; else 16-bit rows of x_ld, zeros behind K */
    int x_ld;   /* K up to a multiple of CU_K_ALIGN */
    cu_glu glu;
    cu_experts experts; /* of NULL: an ordinary product; else rows counts pairs */
    cu_seg seg[CU_MAX_SEG];
} cu_linear;

void cu_to_half(cudaStream_t s, const float *x, void *y, int rows, int K, int ld, int kind);
/* y = x / rms * (w + offset) of rows of D; row r has row r % w_rows of w; gather: which row of x,
 * or NULL; half: a second copy of y in 16 bits, rows of ld elements, or NULL. */
typedef struct {
    const float *x, *w;
    const int32_t *gather;
    void *y, *half;
    int x_rows, w_rows, rows, D, ld, y_kind, half_kind;
    float eps, offset;
} cu_norm;
void cu_rms_norm(cudaStream_t s, const cu_norm *a);
/* The first n elements of rows alone, to f32; the others are passed on. */
void cu_rms_part(cudaStream_t s, const cu_norm *a, int n);
/* LINEAR with a matrix for each head (k_heads.cu): x [T, H, K + behind] f32; dense [T H, K], NULL
 * where nothing is behind; pairs in their order and by head, where each head's begin. */
typedef struct {
    const float *x;
    float *dense;
    int32_t *order, *pairs, *start, *active;
    int T, H, K, behind;
} cu_heads;
void cu_heads_in(cudaStream_t s, const cu_heads *a);
/* product [T H, N] to y [T, H, N + behind] */
void cu_heads_out(cudaStream_t s, const cu_heads *a, const float *product, float *y, int N);
/* w, b: [w_rows, D]; row r has those of r % w_rows */
void cu_layer_norm(cudaStream_t s, const float *x, const float *w, const float *b, float *y,
                   int rows, int w_rows, int D, float eps);

/* Rows of mn_slot or mn_slot_params, `words` apart. */
typedef struct {
    int32_t *at;
    int words;
} cu_rows;

typedef struct {
    const int32_t *src, *pos, *row_slot;
    cu_planes table;
    const float *positions; /* [n_positions, D], or NULL */
    cu_rows slots;
    int32_t *history, *row_pos, *ids;
    float *x;
    int T, S, C, V, D, ld, n_positions;
    int first; /* column of the table; D columns from there on are written */
    float factor;
} cu_embed;
/* LOOKUP: ids by HISTORY instead; row_pos is an input, and src, pos, positions and slots are not
 * there. */
void cu_lookup_ids(cudaStream_t s, const cu_embed *e);
/* Resolves ids and positions and advances the slots; the rows themselves: cu_type.embed. */
void cu_embed_state(cudaStream_t s, const cu_embed *e);

/* LORA: z = y, and what the row's adapter adds to it; a [n_adapters, Q, K], b [n_adapters, N, Q] in
 * f32, or f16 (half); h [T, Q]: room for A x. */
typedef struct {
    const float *x, *y;
    const void *a, *b;
    const int32_t *adapter;
    float *h, *z;
    int T, K, N, Q, n_adapters, half;
} cu_lora;
void cu_lora_run(cudaStream_t s, const cu_lora *a);

typedef struct {
    const float *x;
    const int32_t *row_pos;
    const float *freqs;
    float *y;
    int T, H, D, n_rot, adjacent;
    float mscale;
} cu_rope;
void cu_rope_run(cudaStream_t s, const cu_rope *r);

enum { CU_MAX_HEAD = 576 }; /* elements: of a latent row, and what rotates beside it */
typedef struct {
    const int32_t *row_pos, *row_slot, *pages;
    char *kv;
    int64_t n_pages;
    int T, S, P, Hkv, dk, dv, pk, pv;
    uint32_t dtype; /* of keys and of values; MN_DTYPE_NONE: they differ */
    uint32_t k_dtype, v_dtype;
    uint64_t page_bytes, layer_at, v_offset;
} cu_cache;
/* k (and with q also q) turned on the way: q: rope input, q_out its output; NULL freqs = stored as
 * they are */
typedef struct {
    cu_cache c;
    const float *k, *v;
    cu_rope q, kr;
    bool rope;
} cu_store;
void cu_store_run(cudaStream_t s, const cu_store *a);
/* The same for a cache that is not all f32 or all f16 (k_cache.cu). */
void cu_store_kept(cudaStream_t s, const cu_store *a);

/* one: each sequence has one row, whose q and k are turned and whose k and v are stored on the way
 * (st); early: what the rows' positions and pages say may be read before the predecessor is over;
 * rounds: p may be rounded to 16 bits, and sums may be taken in any order; ahead: tiles of a warp
 * on their way to L2 in front of the one it reads (cu_attend_run sets it)
 * apart: sequences of one row are cu_attend_run's, those of more rows cu_prompt_run's, and each
 * leaves alone what is the other's
 * tile_sums, tiles_arrived: what blocks that share a tile leave each other, the latter 0 and left
 * so; NULL = none share; tile_slots: of a head of keys (cu_prompt_run sets it) */
typedef struct {
    cu_cache c;
    const float *q, *sinks, *slopes;
    void *y;
    float *partial;
    unsigned *arrived;
    const int32_t *seqs; /* [n_seqs, 4]: first row, rows, slot, 0 */
    int n_seqs, bidirectional;
    int H, split, max_splits, window, chunk, y_kind, ahead;
    float scale, softcap;
    bool one, early, rounds, apart;
    float *tile_sums;
    unsigned *tiles_arrived;
    int tile_slots;
    cu_store st;
} cu_attend;
/* Keys and values in f32, in f16, in f16 on matrix units, in q8_0, and in a type each that the
 * kernel asks for at run time (k_attention_*.cu); the last two want x->a.one false. */
enum { CU_ATTEND_GROUP = 4, CU_ATTEND_TILE_HEADS = 8, CU_ATTEND_THREADS = 256 };
/* Heads of any length that the cache has, slopes, chunks (k_attention_long.cu): once for each
 * device; splits of 1 << log_split positions, dealt to `slices` blocks. */
enum { CU_LONG_HEADS = 8 };
void cu_attend_long_init(const cu_card *d);
void cu_attend_long(cudaStream_t s, const cu_attend *a, int log_split, int slices);
/* Latent rows: one head of keys, whose first elements are the values, on Hopper's matrix units
 * (k_attention_latent.cu). A block has a tile of CU_LATENT_ROWS pairs of row and head; of few tiles
 * several blocks share the pages of each.
 * least, most: sequences of so many rows in this step; others are left alone
 * sharing: blocks that the pages of all tiles are dealt to, nearly; 0: a tile has one block
 * parts: what blocks that share a tile leave, of CU_LATENT_PART floats for each block */
enum { CU_LATENT_ROWS = 64, CU_LATENT_KEYS = 576, CU_LATENT_VALUES = 512 };
enum { CU_LATENT_PART = CU_LATENT_ROWS * (CU_LATENT_VALUES + 2) };
typedef struct {
    cu_attend a;
    int least, most;
    int sharing;
    float *parts;
} cu_latent;
bool cu_latent_kernel_init(void); /* false: built without code for 9.0 */
void cu_attend_latent(cudaStream_t s, const cu_latent *p, int blocks);
/* Adds up the parts of rows; many: of all rows of the step, else of sequences of one row. */
void cu_merge_latent(cudaStream_t s, const cu_latent *p, bool many);
/* cu_attend, and how heads and splits are dealt to blocks: `group` heads share keys, a block has
 * `per` of them at once, `parts` times that is all; `blocks` share these parts. Grid: blocks of
 * each head of keys, row (of a.apart: sequence), slices of the splits; of rows that are stored on
 * the way: blocks of each row, head of keys, slice. */
typedef struct {
    cu_attend a;
    int group;
    int parts;
    int blocks;
    int per;
    int log_split;
} cu_attend_args;
void cu_attend_f32(cudaStream_t s, const cu_attend_args *x, dim3 grid);
void cu_attend_f16(cudaStream_t s, const cu_attend_args *x, dim3 grid);
void cu_attend_tiles_init(void);
void cu_attend_tiles(cudaStream_t s, const cu_attend_args *x, dim3 grid);
void cu_attend_q8_0(cudaStream_t s, const cu_attend_args *x, dim3 grid);
void cu_attend_any(cudaStream_t s, const cu_attend_args *x, dim3 grid);
/* Many rows of a sequence by tiles (prompt.cuh): a block has CU_PROMPT_ROWS pairs of query row and
 * head. A row of the table is for heads of up to `dims` elements; by dims. */
enum { CU_PROMPT_ROWS = 64, CU_PROMPT_THREADS = 128, CU_PROMPT_KERNELS = 4 };
typedef struct {
    int dims;
    int shared_bytes; /* of a block */
    void (*launch)(cudaStream_t s, const cu_attend *a, dim3 grid);
} cu_prompt_kernel;
extern const cu_prompt_kernel cu_prompt_f16[CU_PROMPT_KERNELS];
extern const cu_prompt_kernel cu_prompt_q8_0[CU_PROMPT_KERNELS];

/* ---- attend.c ------------------------------------------------------------------------------- */
bool cu_attends_long(const cu_attend *a); /* by the kernel for long heads */
void cu_attend_run(const cu_card *d, cudaStream_t s, const cu_attend *a);
/* Rows of sequences by tiles: whether it can, and does. */
bool cu_prompt_fits(const cu_card *d, const cu_attend *a);
void cu_prompt_run(const cu_card *d, cudaStream_t s, const cu_attend *a);
/* The same on Hopper (prompt_sm90.c): once for each device; whether it can, and pays; does
 * it. false: the driver has no maps for it, nothing was launched. */
void cu_prompt_sm90_init(const cu_card *d);
bool cu_prompt_sm90_fits(const cu_card *d, const cu_attend *a);
bool cu_prompt_sm90_run(const cu_card *d, cudaStream_t s, const cu_attend *a);
/* Latent rows on Hopper: once for each device; whether it can; does it; bytes of a.partial for so
 * many rows and sequences. */
void cu_latent_init(const cu_card *d);
bool cu_latent_fits(const cu_card *d, const cu_attend *a);
void cu_latent_run(const cu_card *d, cudaStream_t s, const cu_attend *a);
uint64_t cu_latent_bytes(const cu_card *d, int64_t rows, int64_t heads, int64_t n_seqs);
/* Blocks that share tiles at most, for heads of so many dims; bytes of the sums that they leave. */
int cu_tile_blocks(const cu_card *d, int dims);
uint64_t cu_tile_bytes(const cu_card *d, int dims);

/* Elements of 4 bytes of a dense tensor and of a view, whose first is at `apart`. */
typedef struct {
    uint32_t *dense, *apart;
    int64_t dim[MN_MAX_DIM], stride[MN_MAX_DIM], n;
    int n_dim;
    bool to_apart;
} cu_view;
void cu_copy_view(cudaStream_t s, const cu_view *v);

enum {
    CU_EW_ACT,
    CU_EW_XIELU,
    CU_EW_GLU,
    CU_EW_ADD,
    CU_EW_MUL,
    CU_EW_PAIRS,
    CU_EW_SCALE,
    CU_EW_SOFTCAP
};
typedef struct {
    float alpha_p, alpha_n, beta, eps;
} cu_xielu;
/* glu.kind: of ACT, too; f: factor or cap; PAIRS: element i of a times element i / n_b of b, and y
 * may be a */
typedef struct {
    int what;
    const float *a, *b;
    void *y;
    int64_t n;
    int64_t n_b;
    cu_glu glu;
    cu_xielu xielu;
    float f;
    int y_kind;
} cu_elementwise;
void cu_elementwise_run(cudaStream_t s, const cu_elementwise *e);
void cu_gather(cudaStream_t s, const float *x, const int32_t *rows, float *y, int O, int T, int D);

/* A product of f32 weights with few outputs for several rows, as scores of experts are: whether it
 * is one, and does it. The order of sums is not that of a single row. */
void cu_scores_run(cudaStream_t s, const cu_linear *a);
/* MOE_ROUTE: scores of n experts per token -> the k best and their weights, [T, k]. */
typedef struct {
    const float *logits, *bias;
    int32_t *experts;
    float *weights;
    int T, n, k, kind;
    int n_group, groups_used, group_score; /* n_group 0: no groups; at most 32 */
    bool normalise;
    float scale;
    float jitter;
} cu_route;
/* Pairs sorted by expert: fills pairs [n_pairs], start [n + 1], active [n_active]. An expert
 * outside of [0, n) counts as 0. The order within an expert is any. resident: [n], NULL: pairs of
 * experts where it is 0 are of none, behind start[n]. */
typedef struct {
    const int32_t *of;
    const int32_t *resident;
    int32_t *pairs, *start, *active;
    int n_pairs, n, n_active;
} cu_sort;
void cu_moe_sort(cudaStream_t s, const cu_sort *a);
/* Routes, and sorts what came out. */
void cu_route_run(cudaStream_t s, const cu_route *r, const cu_sort *then);
/* Norm, scores and route of one row in one kernel: y = norm(x), scores = w y + bias, which route
 * then reads. D <= CU_ROUTER_MOST, a multiple of 4; w in f32, f16 or
 * bf16 (w_dtype), rows of ld; 32 experts at most. */
typedef struct {
    const float *x, *norm, *bias;
    const void *w;
    float *y, *scores;
    unsigned *arrived; /* 0, and left so */
    int D, ld;
    uint32_t w_dtype;
    float eps, offset;
    cu_route route;
} cu_router;
enum { CU_ROUTER_MOST = 4096 };
void cu_router_run(cudaStream_t s, const cu_router *a);
/* Rows of pairs in the order of `pairs`: y[i] = x[pairs[i] / x_div] in 16 bits, ld elements each,
 * from rows of K f32 or of ld 16-bit elements (x_kind). */
typedef struct {
    const void *x;
    void *y;
    const int32_t *pairs;
    int n_pairs, x_div, K, ld, x_kind, kind;
} cu_sorted;
void cu_sort_rows(cudaStream_t s, const cu_sorted *a);
/* The reverse: y[pairs[i]] = x[i], rows of `bytes`, a multiple of 4. */
void cu_unsort_rows(cudaStream_t s, const void *x, void *y, const int32_t *pairs, int n_pairs,
                    int bytes);
/* y[t] = residual[t] + sum over j of weights[t, j] x[t, j]; residual may be NULL, and so may
 * weights, which are 1 then */
void cu_moe_combine(cudaStream_t s, const float *x, const float *weights, const float *residual,
                    float *y, int T, int k, int D);
/* The same of the experts where resident, [n], is not 0; NULL: of all. experts: [T, k], with
 * resident; base: [T, D], what the sum begins with, or NULL. */
typedef struct {
    const float *x, *weights, *base, *residual;
    const int32_t *experts, *resident;
    float *y;
    int T, k, D, n;
} cu_combine;
void cu_moe_combine_part(cudaStream_t s, const cu_combine *a);

/* ---- operations with a state (k_state.cu) ---------------------------------------------------- */
/* Sequences of a step and the pages of states (mng_states); layer_at: bytes of a page in front of
 * the node's layer. */
typedef struct {
    const int32_t *row_pos, *seqs, *states; /* [T], [Q, 4], [S, 2] */
    char *memory;
    int64_t n_pages;
    uint64_t page_bytes, layer_at;
    int T, Q, S;
} cu_states;
/* CONV_STATE: x, y: [T, C]; weight: [C, W]; bias: [C] or NULL. */
enum { CU_CONV_MOST = 64 }; /* taps */
typedef struct {
    cu_states s;
    const float *x, *weight, *bias;
    float *y;
    int C, W;
} cu_conv;
void cu_conv_run(cudaStream_t s, const cu_conv *a);
/* SSM_SCAN, and with beta GATED_DELTA: H heads of dim columns, each a state of n numbers. rows: [T,
 * width]: XBC or QKV, with x or v [H, dim] at x_at, what is written (B, k) and read with (C, q),
 * [G, n], at write_at and read_at; in_turn: head h has group h % G, else h / (H / G). step: DT or
 * GATE, of `each` for each element. y: [T, H, dim]. */
typedef struct {
    cu_states s;
    const float *rows, *step, *beta;
    const float *a, *dt_bias, *d; /* d: of SSM_SCAN */
    float *y;
    int width, x_at, write_at, read_at;
    int H, dim, G, n;
    float dt_min, dt_max; /* dt_max 0 = none */
    float eps, scale, beta_scale;
    bool a_log, each, in_turn;
    bool aligned; /* all by 16 bytes (cu_scan_run sets it) */
    /* cu_scan_run leaves out sequences of so many rows in this step, and cu_chunks_run others; 0:
     * neither leaves out any */
    int chunks_from;
} cu_scan;
enum { CU_SCAN_MOST = 256 }; /* n */
void cu_scan_run(cudaStream_t s, const cu_scan *a);

typedef struct {
    const float *logits, *bias;
    const int32_t *out_slot;
    cu_rows params, slots;
    const int32_t *history;
    /* contract 2, each NULL = not there; bias_ids and bias_values: [S, n_bias_ids] */
    const uint32_t *mask;
    const int32_t *bias_ids, *target;
    const float *bias_values;
    int n_bias_ids;
    float *logprob;
    const int32_t *draft; /* contract 3; NULL = no rows are tied */
    /* contract 4: NULL = no token breaks sequences; samplers: rows may have those of contract 4 */
    const uint32_t *breakers;
    float *mu;
    bool samplers;
    int32_t *ids;
    float *adjusted;
    int32_t *count;
    int O, S, C, V;
    int32_t *top_ids;
    float *top_logprobs;
    int n_top;
} cu_sample;
void cu_sample_run(cudaStream_t s, const cu_sample *a);
#ifdef __cplusplus
}
#endif
#endif
