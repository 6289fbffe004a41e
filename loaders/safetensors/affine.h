/* affine.h -- matrices of small integers in groups, x = scale * (code - zero), as the planes of an
 * affine type (MLXb_g of plugin.h; PICKb_32 where the columns of a group are no neighbours): its
 * bias is -scale * zero. What lies in the file as the type wants it is described there; codes and
 * scales in another order are moved, and biases computed, into the model's memory. No value is
 * rounded: where that would be needed, it is an error. */
#ifndef MN_AFFINE_H
#define MN_AFFINE_H
#include "safetensors.h"

typedef struct affine_matrix affine_matrix;
struct affine_matrix {
    mn_parsed_tensor *t; /* of the codes; becomes the matrix */
    int64_t rows, cols;
    int64_t group; /* columns that share a scale */
    uint32_t bits;
    uint32_t stored_bits; /* of a code in the file, for `codes`; 0: bits */
    /* moves the codes of rows [n, n + count) to `to`, rows of cols * bits / 8 bytes; count
     * <= AFFINE_ROWS. NULL: they lie in the file as they should */
    void (*codes)(const affine_matrix *m, int64_t n, int64_t count, uint8_t *to);
    const mn_parsed_tensor *scale;
    int64_t scale_row, scale_col; /* bytes from row to row, from group to group; 0: shared */
    const mn_parsed_tensor *zero; /* NULL: `middle` for all */
    /* of row n and group g, in codes; of finite values */
    double (*zero_at)(const affine_matrix *m, int64_t n, int64_t g);
    /* The bias of row n and group g, of formats that do not store small integers: rounded to F32
     * where it is no value of it. NULL: -zero * scale */
    double (*bias_at)(const affine_matrix *m, int64_t n, int64_t g);
    int64_t middle;
    int64_t added;                 /* to zeros as stored */
    const mn_parsed_tensor *order; /* the group of each column; NULL: group after group */
};
/* A multiple of 8 */
#define AFFINE_ROWS 64

/* m->t gets the planes. MN_UNSUPPORTED: bits or groups that no type has. The caller has checked
 * that all tensors have the shapes that m says. */
mn_status affine_make(mn_parsed *p, const affine_matrix *m, mn_error *err);
uint32_t affine_word(const mn_parsed_tensor *t, int64_t i); /* word i of its data, at any address */

/* The tensors of one matrix; NULL = it has no such tensor. */
typedef struct {
    mn_str stem; /* "model.layers.0.mlp.up_proj" */
    mn_parsed_tensor *data, *scale, *zero, *shape, *order, *whole, *bias;
    mn_parsed_tensor *axis, *packing;                    /* of HQQ; axis is of no dimensions */
    mn_parsed_tensor *map, *state, *nested, *nested_map; /* of bitsandbytes */
    bool is_fp4;                                         /* its state is of fp4, not of nf4 */
} packed_matrix;
/* For MN_BAD_FILE of one of them. */
mn_status packed_bad(const mn_parsed_tensor *t, const char *expected, mn_error *err);
/* m->order, of the columns' groups (I32 [cols], of tensor `order`), where these are not those of
 * neighbours; order NULL: they are. m has its shape and group. */
mn_status packed_in_order(const mn_parsed_tensor *order, affine_matrix *m, mn_error *err);

/* Each gives x->data the planes of a matrix; the caller renames it and drops the others.
 * compressed.c: what compressed-tensors packs, and its int-quantized */
mn_status compressed_read(mn_parsed *p, const packed_matrix *x, const cJSON *config, mn_error *err);
mn_status bytes_read(mn_parsed *p, const packed_matrix *x, const cJSON *config, mn_error *err);
/* gptq.c: X.qweight by GPTQ, or by AWQ where config is AWQ's (methods.c) */
mn_status columns_read(mn_parsed *p, const packed_matrix *x, const cJSON *config, mn_error *err);
/* bnb.c: what bitsandbytes packs in 4 bits, and its int8 */
mn_status nf4_read(mn_parsed *p, const packed_matrix *x, const cJSON *config, mn_error *err);
mn_status int8_read(mn_parsed *p, const packed_matrix *x, const cJSON *config, mn_error *err);
/* hqq.c: X.W_q; torchao.c: X._weight_qdata */
mn_status hqq_read(mn_parsed *p, const packed_matrix *x, const cJSON *config, mn_error *err);
mn_status torchao_read(mn_parsed *p, const packed_matrix *x, const cJSON *config, mn_error *err);
/* The value of a scale or zero at `at`, of F16, BF16 or F32. */
double affine_value(const mn_parsed_tensor *t, int64_t at);
/* methods.c: quantization_config says that X.qweight is packed as AWQ does it; that X.weight is as
 * bitsandbytes does it */
bool method_is_awq(const cJSON *config);
bool method_is_bnb(const cJSON *config);
#endif
