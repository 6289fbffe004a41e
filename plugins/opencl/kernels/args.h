/* args.h -- what kernels get by value beside their operands: one struct for each family, read by
 * the compiler of the plugin and by that of the device. Members of 8 bytes come first, so that both
 * lay them out alike; each compiler checks the sizes. */
#ifndef OCL_ARGS_H
#define OCL_ARGS_H

#ifdef __OPENCL_VERSION__
typedef ulong ocl_u64;
#else
#include <stdint.h>
typedef uint64_t ocl_u64;
#endif

#define OCL_ABSENT (~(ocl_u64)0) /* the offset of an operand that is not there */
#define OCL_MAX_HEAD 576         /* elements of a head: 512 of a latent row and 64 beside them */
#define OCL_MAX_EXPERTS 1024
#define OCL_MAX_EXPERT_GROUPS 64
#define OCL_MAX_DIMS 6
#define OCL_KV_PARTS 8 /* buffers of a cache that is larger than one may be */
/* Which extension has exchanges within sub-groups. */
#define OCL_SUB_EMULATED 0
#define OCL_SUB_KHR 1
#define OCL_SUB_INTEL 2

/* How a matrix lies behind its operand: rows of row_bytes, then planes, a float for each block. */
typedef struct {
    ocl_u64 row_bytes;
    ocl_u64 scale_at;
    ocl_u64 bias_at;
    int blocks; /* of a row */
    int pieces; /* of 16 elements, the padding included */
} ocl_matrix;

/* SLOTS or PARAMS, HISTORY: words of a row, rows. */
typedef struct {
    ocl_matrix w;
    float factor;
    int T;
    int S;
    int C;
    int V;
    int D;
    int slot_words;
    int n_positions;
    int first; /* of the rows that the matrix has; ids of others are left out */
    int count;
    int column; /* of the matrix: D elements from there on are written */
    int pad;
} ocl_embed_args;

typedef struct {
    float eps;
    float offset;
    int D;
    int w_rows; /* rows of weight and bias, which rows of x take in turn */
    int n;      /* elements of a row that are normalised; the others are passed on */
} ocl_norm_args;

typedef struct {
    ocl_matrix w;
    int K;
    int N;
    int rows;  /* of x; of experts: pairs */
    int per_x; /* pairs that share a row of x */
    int n_experts;
    int stride; /* of rows of y: N, more where the matrix is a part of a weight */
    int first;  /* of the experts that the matrix has; pairs of others are left out */
    int count;
    int behind; /* of heads: elements behind the K of a row of x, passed on behind those of y */
    int pad;
} ocl_linear_args;

/* Of a group of linear_mma; pairs of a row and an expert at most. */
enum { OCL_MMA_OUTPUTS = 128, OCL_MMA_ROWS = 64, OCL_MMA_PAIRS = 2048 };

/* Of a group of linear_mad: rows, sub-groups. */
enum { OCL_MAD_ROWS = 64, OCL_MAD_SUBS = 8 };

/* Up to three matrices of one type and width: their products with a row. */
enum { OCL_WARPS = 8, OCL_STAGED = 8192 }; /* of a group; elements of x held at once */
typedef struct {
    ocl_matrix w[3];
    int N[3];
    int units; /* pairs of outputs; the second of a pair stands `apart` behind the first, and pairs
                  fill as many places after each other: 1 one after the other, N[0] gate and up */
    int apart;
    int K;
    int per_x; /* rows of the output that share a row of x */
    int n_experts;
    int normalise; /* x by its root mean square and the norm's weights: at most OCL_STAGED */
    int glu;       /* the products are gate and up: one output */
    int kind;      /* MN_ACT_* */
    float alpha;
    float limit;
    float up_offset;
    float eps;
    float offset;
} ocl_warp_args;

/* XIELU: alpha, limit, offset and factor are ALPHA_P, ALPHA_N, BETA and EPS. PAIRS: element i of a
 * times element i / kind of b. */
enum { OCL_ACT, OCL_XIELU, OCL_GLU, OCL_ADD, OCL_MUL, OCL_PAIRS, OCL_SCALE, OCL_SOFTCAP };
typedef struct {
    ocl_u64 n;
    int what;
    int kind; /* MN_ACT_* */
    float alpha;
    float limit;
    float offset;
    float factor;
} ocl_elementwise_args;

typedef struct {
    int rows; /* of x */
    int D;
} ocl_gather_args;

/* A view: element (i0, i1, ...) lies at i0 stride[0] + i1 stride[1] + ... */
typedef struct {
    ocl_u64 n;
    ocl_u64 dim[OCL_MAX_DIMS];
    ocl_u64 stride[OCL_MAX_DIMS];
    int n_dim;
    int out; /* from the dense tensor into the view */
} ocl_view_args;

typedef struct {
    float mscale;
    int T;
    int H;
    int D;
    int n_rot;
    int adjacent;
} ocl_rope_args;

/* The cache of a layer: pages of one group, their tables. */
typedef struct {
    ocl_u64 page_bytes;
    ocl_u64 layer_at;
    ocl_u64 v_offset;
    ocl_u64 n_pages;
    ocl_u64 part_pages; /* of them in each buffer of the cache */
    int S;
    int P;
    int T;
    int Hkv;
    int dk;
    int dv;
    int k_row; /* bytes of a head at one position */
    int v_row;
    int k_type; /* MN_F32, MN_F16 or MN_Q8_0 */
    int v_type;
} ocl_cache;

typedef struct {
    ocl_cache c;
    ocl_rope_args r; /* T, D: of k, too; H: of q */
} ocl_store_args;

typedef struct {
    ocl_cache c;
    float scale;
    float softcap;
    int window;
    int chunk;
    int bidirectional;
    int H;
} ocl_attend_args;

/* attend_distance; exact, places, step: mnp_distances */
#define OCL_DISTANCE_STEPS 128
typedef struct {
    ocl_attend_args a;
    int n_words; /* of ANCESTORS of a row */
    int exact;
    int places;
    int n_steps;
    int step[OCL_DISTANCE_STEPS];
} ocl_distance_args;

typedef struct {
    float scale;
    int E;
    int J;
    int kind; /* MN_ROUTE_* */
    int normalise;
    float jitter;
    int n_group; /* 0: none */
    int groups_used;
    int group_score;
} ocl_route_args;

typedef struct {
    ocl_u64 n; /* T D */
    int J;
    int D;
} ocl_combine_args;

/* moe_combine_part */
typedef struct {
    ocl_combine_args whole;
    int n_experts;
    int unused;
} ocl_part_args;

/* step.cl: operations of one kernel, one after the other. An operand is a buffer, by its place
 * among the kernel's, and an offset; args: the struct of the operation's own kernel. */
enum { OCL_STEP_MEMS = 256, OCL_STEP_MEMS_ANY = 96, OCL_STEP_REFS = 13, OCL_STEP_ARGS = 160 };
enum {
    OCL_STEP_PRODUCTS,
    OCL_STEP_FEW,
    OCL_STEP_ATTEND,
    OCL_STEP_ATTEND_FOUR,
    OCL_STEP_ROPE_STORE,
    OCL_STEP_TURNED, /* rotation and store, which the products before it do */
    OCL_STEP_RMS_NORM,
    OCL_STEP_ELEMENTWISE,
    OCL_STEP_GATHER,
    OCL_STEP_ROUTE,
    OCL_STEP_COMBINE,
    OCL_N_STEPS
};
typedef struct {
    ocl_u64 at;
    int mem;
    int pad;
} ocl_step_ref;
typedef struct {
    ocl_u64 args[OCL_STEP_ARGS / 8];
    ocl_step_ref refs[OCL_STEP_REFS];
    int what;   /* OCL_STEP_* */
    int type;   /* row of the types' table */
    int n[3];   /* groups of its own kernel */
    int beside; /* needs nothing of the operation before it */
    int share;  /* of products: 1 << share warps have a pair, or a block of pairs (row.cl) */
    int least;  /* of the n[1] blocks each group has these or one more */
} ocl_step_op;

typedef struct {
    int O;
    int S;
    int C;
    int V;
    int param_words;
    int slot_words;
    int n_bias_ids;
    int n_top;
} ocl_sample_args;

/* Pages of states: part_pages in each buffer. */
typedef struct {
    ocl_u64 page_bytes;
    ocl_u64 layer_at;
    ocl_u64 n_pages;
    ocl_u64 part_pages;
    int T;
    int S;
} ocl_states;

#define OCL_CONV_MOST 64 /* taps */
typedef struct {
    ocl_states s;
    int C;
    int W;
} ocl_conv_args;

/* Of LORA: a [n_adapters, Q, K], b [n_adapters, N, Q]. */
typedef struct {
    int T;
    int K;
    int N;
    int Q;
    int n_adapters;
    int half_width;
} ocl_lora_args;

/* mng_scan of gpu_host. */
typedef struct {
    ocl_states s;
    float dt_min;
    float dt_max;
    float eps;
    float scale;
    float beta_scale;
    int width;
    int x_at;
    int write_at;
    int read_at;
    int H;
    int dim;
    int G;
    int n;
    int a_log;
    int each;
    int in_turn;
} ocl_scan_args;

/* Both compilers refuse another size. */
#define OCL_SIZE(type, bytes) typedef char type##_size[sizeof(type) == (bytes) ? 1 : -1];
OCL_SIZE(ocl_matrix, 32)
OCL_SIZE(ocl_embed_args, 80)
OCL_SIZE(ocl_norm_args, 20)
OCL_SIZE(ocl_linear_args, 72)
OCL_SIZE(ocl_warp_args, 160)
OCL_SIZE(ocl_elementwise_args, 32)
OCL_SIZE(ocl_gather_args, 8)
OCL_SIZE(ocl_view_args, 112)
OCL_SIZE(ocl_rope_args, 24)
OCL_SIZE(ocl_cache, 80)
OCL_SIZE(ocl_store_args, 104)
OCL_SIZE(ocl_attend_args, 104)
OCL_SIZE(ocl_distance_args, 632)
OCL_SIZE(ocl_route_args, 36)
OCL_SIZE(ocl_combine_args, 16)
OCL_SIZE(ocl_part_args, 24)
OCL_SIZE(ocl_step_ref, 16)
OCL_SIZE(ocl_step_op, 400)
OCL_SIZE(ocl_sample_args, 32)
OCL_SIZE(ocl_states, 40)
OCL_SIZE(ocl_conv_args, 48)
OCL_SIZE(ocl_lora_args, 24)
OCL_SIZE(ocl_scan_args, 104)
#undef OCL_SIZE

#endif
