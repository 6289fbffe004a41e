/* imatrix.h -- an importance matrix: how large the inputs of each matrix of a model are in the
 * mean, as the weights of the quantisers. */
#ifndef MN_CONVERT_IMATRIX_H
#define MN_CONVERT_IMATRIX_H
#include "base/base.h"

typedef struct {
    mn_str name; /* of the matrix */
    /* n weights above 0: for each matrix in turn its weights, with a mean of about 1 */
    uint64_t n;
    float *weights;
    bool used; /* for a tensor of the file */
    /* how many rows each matrix has seen [n_counts]; NULL: not stated (the older form) */
    double *counts;
    uint64_t n_counts;
} mn_imatrix_entry;
typedef struct {
    mn_map map; /* names point into it */
    mn_imatrix_entry *at;
    size_t n, cap;
    uint64_t n_values; /* of all entries: the file has a float for each */
    mn_str dataset;    /* name of the data set, as the file states it; may be empty */
    uint64_t chunks;   /* pieces of text; 0 = not stated */
} mn_imatrix;
/* Reads llama.cpp's imatrix file in either form: GGUF with NAME.in_sum2 and NAME.counts, or the
 * older one without a magic number. MN_BAD_FILE names the file, the entry, found and expected.
 * After an error, too, out is to be freed. */
mn_status mn_imatrix_read(const char *path, mn_imatrix *out, mn_error *err);
mn_imatrix_entry *mn_imatrix_find(const mn_imatrix *m, mn_str name); /* NULL = none */
void mn_imatrix_free(mn_imatrix *m);

/* ---- imatrix_out.c --------------------------------------------------------------------------- */
/* Of one weight: sums of squares [n_mat][n_cols] and how many rows each matrix has seen [n_mat]. */
typedef struct {
    mn_str name;
    uint64_t n_cols, n_mat;
    double *sums;
    uint64_t *counts;
} mn_imatrix_sums;
typedef struct {
    const mn_imatrix_sums *at;
    size_t n;
    mn_str dataset;
    uint32_t n_chunks, chunk_tokens; /* texts that were run; tokens of one */
    bool old, only_layers;           /* the form without a magic number; weights of layers alone */
} mn_imatrix_made;
/* Writes what mn_imatrix_read and llama.cpp read, the weights by name. force: a file that is there
 * is replaced. MN_INVALID: no weight is left to write. */
mn_status mn_imatrix_write(const char *path, const mn_imatrix_made *m, bool force, mn_error *err);
#endif
