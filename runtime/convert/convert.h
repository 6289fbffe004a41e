/* convert.h -- a model, of whatever format, as one GGUF file (version 3, little-endian).
 *
 * plan.c decides which tensors the file holds and in which form; pick.c in which type; imatrix.c
 * reads the weights of the quantisers; meta.c decides which keys the file has; gguf_out.c lays both
 * out; write.c turns rows and writes them. Convention keys of loaders (minerva.*) are applied, so
 * that readers of GGUF find GGUF's conventions. */
#ifndef MN_CONVERT_H
#define MN_CONVERT_H
#include "base/name_rule.h"
#include "convert/imatrix.h"
#include "model/lora.h"
#include "text/tokenizer/tokenizer.h"

#define MN_GGUF_ALIGNMENT 32 /* of the data of each tensor; what readers expect without a key */

/* ---- types.c: what --type asks for ----------------------------------------------------------- */
typedef enum {
    MN_MIX_NONE, /* one type for all */
    MN_MIX_Q2_K,
    MN_MIX_Q2_K_S,
    MN_MIX_Q3_K_S,
    MN_MIX_Q3_K_M,
    MN_MIX_Q3_K_L,
    MN_MIX_Q4_K_S,
    MN_MIX_Q4_K_M,
    MN_MIX_Q5_K_S,
    MN_MIX_Q5_K_M,
    MN_MIX_COUNT
} mn_convert_mix; /* which tensors have another type: pick.c */
typedef struct {
    const char *name; /* "q4_k_m" */
    uint32_t dtype;   /* of matrices */
    mn_convert_mix mix;
    uint32_t file_type; /* general.file_type */
} mn_convert_type;
const mn_convert_type *mn_convert_type_find(const char *name); /* NULL = unknown */
const mn_convert_type *mn_convert_type_of(uint32_t dtype);     /* the first one; NULL = none */
void mn_convert_type_list(mn_text *out);

/* ---- rules.c: PATTERN=TYPE ------------------------------------------------------------------- */
typedef struct {
    mn_name_rule name; /* used: some tensor has its type by this rule */
    uint32_t dtype;
} mn_convert_rule;
typedef struct {
    mn_convert_rule *at;
    size_t n;
} mn_convert_rules;
/* MN_INVALID: which text is no PATTERN=TYPE, and why. */
mn_status mn_convert_rules_read(const char *const *texts, uint32_t n, mn_convert_rules *out,
                                mn_error *err);
/* dtype: the type by the first rule that matches, which is marked as used; 0 = none does.
 * MN_INVALID: the search for a pattern takes too long. */
mn_status mn_convert_rules_find(mn_convert_rules *r, mn_str name, uint32_t *dtype, mn_error *err);
void mn_convert_rules_free(mn_convert_rules *r);

/* ---- plan.c ---------------------------------------------------------------------------------- */
typedef struct {
    mn_str name;
    const mn_tensor_info *src; /* NULL: values alone */
    const float *values;
    mn_dtype type;
    uint32_t wanted; /* the type that was wanted, if the width of rows does not allow it; else 0 */
    uint32_t n_dim;
    int64_t dim[MN_MAX_DIM];
    float add;            /* to every value */
    const float *factors; /* [dim[0]]: of each row, or of each value of a vector; NULL: none */
    mn_row_order order;
    mn_row_order columns; /* of the elements of each row */
    /* MLX into Q4_1: the same codes, scales and offsets */
    bool codes;
    const struct mn_convert_merge *merges; /* [n_merges]: what adapters add to its rows */
    uint32_t n_merges;
    const float *weights; /* of the importance matrix, [rows / weight_rows][cols]; NULL = none */
    uint64_t weight_rows;
    uint64_t rows, cols, row_bytes, bytes, offset; /* offset: in the data section */
} mn_out_tensor;

/* ---- merge.c: adapters that become part of the matrices -------------------------------------- */
typedef struct mn_convert_merge {
    const mn_lora_product *product;
    double factor;
} mn_convert_merge;
typedef struct {
    mn_lora lora;
    double factor; /* of the user */
} mn_convert_adapter;

typedef struct {
    const mn_canonical *model;
    mn_convert_adapter *adapters; /* [n_adapters], freed with the plan */
    uint32_t n_adapters;
    const mn_convert_type *type; /* NULL: as stored */
    mn_convert_rules rules;      /* freed with the plan */
    mn_imatrix imatrix;          /* no entries: none; freed with the plan */
    const char *imatrix_path;
    mn_hparams hp, plain; /* plain: as read by a program that knows no minerva.* key */
    mn_arena arena;
    mn_out_tensor *tensors;
    size_t n_tensors, cap_tensors;
    mn_meta_entry *meta;
    size_t n_meta, cap_meta;
    uint64_t data_bytes;
    uint32_t n_left_out; /* tensors that GGUF has no name for */
} mn_convert_plan;
/* What the checkpoint's order of heads of v becomes in GGUF; nothing where both are one. columns:
 * as in mn_row_order_in_turn. */
mn_row_order mn_convert_turn(const mn_convert_plan *p, mn_str name, bool *columns);
/* Reads hyper-parameters, lists the tensors, chooses their types and places. */
mn_status mn_convert_tensors(mn_convert_plan *p, mn_error *err);
/* Appends values [rows, cols] in F32, which outlive the plan; rows 0: a vector. name is copied. */
mn_status mn_convert_put_matrix(mn_convert_plan *p, const char *name, const float *values,
                                int64_t rows, int64_t cols, mn_error *err);
/* states.c: a small tensor of a layer with a state, in the form that other readers expect; taken:
 * it was one. */
mn_status mn_convert_state(mn_convert_plan *p, const mn_tensor_info *t, bool *taken, mn_error *err);
/* ---- fold.c: factors that become part of the weights ----------------------------------------- */
bool mn_convert_is_folded_key(const mn_convert_plan *p, mn_str rest); /* behind "ARCH." */
/* Sets out->factors, where the tensor of this name and these dims has some. */
mn_status mn_convert_fold(mn_convert_plan *p, mn_out_tensor *out, mn_error *err);
bool mn_convert_needs_output(const mn_convert_plan *p); /* beside the embedding that it is */
/* The tensor's name in the file. */
mn_str mn_convert_name_there(const mn_convert_plan *p, mn_str name);
/* merge.c: finds the matrices of the plan's adapters, once hp is read. */
mn_status mn_convert_bind_adapters(mn_convert_plan *p, mn_error *err);
/* What they add to the tensor t of the model. */
mn_status mn_convert_merge_into(mn_convert_plan *p, const mn_tensor_info *t, mn_out_tensor *out,
                                mn_error *err);
/* Each product has its tensor in the file. */
mn_status mn_convert_check_merged(const mn_convert_plan *p, mn_error *err);
/* The table that the model's rope scaling and factors belong to; NULL = none. */
const mn_rope_table *mn_convert_scaled_table(const mn_convert_plan *p);
void mn_convert_plan_free(mn_convert_plan *p);

/* ---- pick.c: the types of tensors ------------------------------------------------------------ */
/* dtype: the type that is wanted for the tensor, for rows of any width. */
mn_status mn_convert_pick(mn_convert_plan *p, const mn_tensor_info *t, uint32_t *dtype,
                          mn_error *err);
/* That type, or the next one whose blocks fit rows of n. */
uint32_t mn_convert_fitting(uint32_t dtype, int64_t n);
/* MLX whose codes, scales and offsets Q4_1 holds as they are. */
bool mn_convert_fits_q4_1(const mn_tensor_info *t);

/* ---- remarks.c ------------------------------------------------------------------------------- */
/* Warns of parts of the file that other programs do not support, of types that differ from the
 * requested type, and of tensors that are quantised twice. */
void mn_convert_remark(const mn_convert_plan *p);

/* ---- meta.c ---------------------------------------------------------------------------------- */
/* tok: NULL = the model has none. name: general.name. */
mn_status mn_convert_meta(mn_convert_plan *p, const char *name, const mn_tokenizer *tok,
                          mn_error *err);
mn_status mn_convert_real(mn_convert_plan *p, const char *key, double v,
                          mn_error *err); /* unless the model has this key */
mn_status mn_convert_int(mn_convert_plan *p, const char *key, int64_t v, mn_error *err);
/* "ARCH.stem", likewise */
mn_status mn_convert_arch_int(mn_convert_plan *p, const char *stem, int64_t v, mn_error *err);
/* strs [n] outlive the plan. */
mn_status mn_convert_arch_strs(mn_convert_plan *p, const char *stem, const mn_str *strs, uint64_t n,
                               mn_error *err);
mn_status mn_convert_str(mn_convert_plan *p, const char *key, mn_str s, mn_error *err);
mn_status mn_convert_bool(mn_convert_plan *p, const char *key, bool v, mn_error *err);

/* ---- gguf_out.c ------------------------------------------------------------------------------ */
void mn_gguf_put_uint(mn_text *out, uint64_t v, int bytes); /* the lowest `bytes` bytes */
void mn_gguf_put_str(mn_text *out, mn_str s);
void mn_gguf_put_f32(mn_text *out, double d);
mn_status mn_gguf_header(const mn_convert_plan *p, mn_text *out,
                         mn_error *err); /* all that comes before the data, padded */

/* ---- write.c --------------------------------------------------------------------------------- */
typedef struct {
    mn_pool *pool;
    bool force; /* replace a file that is there */
    int (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
} mn_convert_run;
/* The file appears under its name when it is complete; after an error nothing is left. Memory:
 * about 16 MiB. */
mn_status mn_convert_write(const mn_convert_plan *p, const char *path, const mn_convert_run *run,
                           mn_error *err);
#endif
