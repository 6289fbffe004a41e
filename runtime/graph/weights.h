/* weights.h -- what graph_weights.c, graph_pieces.c and graph_values.c ask of a model's tensors. */
#ifndef MN_GRAPH_WEIGHTS_H
#define MN_GRAPH_WEIGHTS_H
#include "graph/build.h"

enum { MN_GB_NAME = 128 }; /* bytes of a tensor's name with its 0; longer ones are cut */

/* "blk.%d.attn_q.weight" with the number of the layer that g is at. */
void mn_gb_full_name(const mn_model_graph *g, const char *name, char full[MN_GB_NAME]);
/* The tensor, which counts as used; NULL: it is absent, or g has failed. */
const mn_model_tensor_entry *mn_gb_find(mn_model_graph *g, const char *full, bool optional);
/* The three below: false: g has failed. */
bool mn_gb_check_shape(mn_model_graph *g, const mn_tensor_info *t, uint32_t n_dim,
                       const int64_t *want);
bool mn_gb_check_widenable(mn_model_graph *g, const mn_tensor_info *t); /* F32, F16 or BF16 */
/* Shape and type are those of a weight [dim]. */
bool mn_gb_fits(mn_model_graph *g, const mn_tensor_info *t, uint32_t n_dim, const int64_t *dim);
/* All elements of a vector, whatever its parts, or of a matrix of one row; NULL: g has failed. */
const float *mn_gb_widen_vector(mn_model_graph *g, const mn_tensor_info *t);
/* A weight of the graph from an entry; a vector in parts is gathered: plugins get it as one. */
int32_t mn_gb_weight_of(mn_model_graph *g, const char *name, uint32_t n_dim, const int64_t *dim,
                        mn_graph_weight w);
#endif
