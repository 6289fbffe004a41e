/* lora.h -- a LoRA adapter as its files have it: pairs of small matrices beside matrices of a
 * model: y += scale B (A x). Both forms, GGUF's adapters and PEFT's folders, come from the loaders
 * as a canonical model whose key general.type is "adapter" and whose tensors are NAME.lora_a [r, K]
 * and NAME.lora_b [N, r], where NAME is the adapted matrix [N, K]. */
#ifndef MN_MODEL_LORA_H
#define MN_MODEL_LORA_H
#include "model/row_order.h"

enum { MN_LORA_MAX_RANK = 4096 };

typedef struct {
    const char *target; /* canonical name of the matrix; the module's own where it has none */
    int64_t rank, n_in, n_out;
    const float *a, *b; /* [rank, n_in], [n_out, rank] */
    double scale;       /* alpha / r, or alpha / sqrt(r) */
    /* ---- of mn_lora_bind ---- */
    const mn_model_tensor_entry *base; /* the matrix */
    bool head;                         /* in its part as the output matrix alone */
    mn_row_order order;                /* of B beside the matrix */
} mn_lora_product;

/* Some rows of a matrix of the model that the adapter's file has, too. */
typedef struct {
    const char *target;
    int64_t n_in, n_out, n_rows;
    const float *rows; /* [n_rows, n_in]: row i is row i * n_out / n_rows */
} mn_lora_copy;

/* Owns all values; the files are closed again. */
typedef struct {
    mn_arena arena;
    const char *path;
    mn_lora_product *at; /* [n] */
    size_t n;
    mn_lora_copy *copies; /* [n_copies] */
    size_t n_copies;
    uint32_t rank;        /* the largest */
    bool checkpoint_rows; /* rows of B in the order of Hugging Face's checkpoints, not of GGUF */
    uint64_t digest;      /* of all that a product is made of */
} mn_lora;

/* Reads and checks it. Errors name the file, and the key or tensor. */
mn_status mn_lora_open(const char *path, const mn_loader_ref *loaders, uint32_t n_loaders,
                       mn_lora *out, mn_error *err);
void mn_lora_close(mn_lora *l); /* zeroed is fine */
/* Whether what was opened is an adapter, not a model. */
bool mn_canonical_is_adapter(const mn_canonical *m);
/* Finds the matrix of each product in the model. MN_BAD_INPUT: it has no such matrix, or one of
 * another shape. MN_UNSUPPORTED: a matrix that cannot be adapted (embeddings, experts), or one that
 * the adapter's file has otherwise. */
mn_status mn_lora_bind(mn_lora *l, const mn_canonical *base, const mn_hparams *hp, mn_error *err);
/* x[0, n_in) += factor times row `row` of scale B A, in the matrix's order of rows. */
void mn_lora_add_row(const mn_lora_product *p, double factor, uint64_t row, float *x);

/* What a model has room for in its graphs (docs/ops.md, LORA). sites: bit i is 1: product i of the
 * graph, in the order in which builders append them, has room; NULL: all have. */
typedef struct mn_lora_room {
    uint32_t n, rank, dtype; /* dtype: MN_F32, MN_F16 */
    const uint8_t *sites;
} mn_lora_room;
#endif
