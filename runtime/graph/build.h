/* build.h -- functions that append tensors and nodes to a graph; the first failure is
 * kept. */
#ifndef MN_GRAPH_BUILD_H
#define MN_GRAPH_BUILD_H
#include "graph/graph.h"

/* Keeps the first failure; returns false. */
bool mn_gb_fail(mn_model_graph *g, mn_status st);
bool mn_gb_no_memory(mn_model_graph *g);
/* -1 after a failure. The name is copied. */
/* Over all that a compiled program depends on; fills digest. */
void mn_gb_digest(mn_graph *a);
int32_t mn_gb_tensor(mn_model_graph *g, const char *name, uint32_t role, uint32_t dtype,
                     uint32_t n_dim, const int64_t *dim);
/* An interior f32 tensor [rows, a] or, with b > 0, [rows, a, b]. */
int32_t mn_gb_interior(mn_model_graph *g, const char *name, int64_t rows, int64_t a, int64_t b);
/* Makes an interior tensor an output, which the host binds. */
void mn_gb_make_output(mn_model_graph *g, int32_t t, const char *name);
int32_t mn_gb_weight(mn_model_graph *g, const char *name, uint32_t dtype, uint32_t n_dim,
                     const int64_t *dim, mn_graph_weight w);
/* The constant of this name; -1: there is none yet. */
int32_t mn_gb_constant(const mn_model_graph *g, const char *name);
/* One node: begin, its inputs (-1: one that is not there), its outputs, its attributes in the order
 * of ops.def, end. */
void mn_gb_begin(mn_model_graph *g, uint32_t op);
void mn_gb_in(mn_model_graph *g, int32_t t);
void mn_gb_out(mn_model_graph *g, int32_t t);
void mn_gb_attr(mn_model_graph *g, uint64_t bits);
void mn_gb_attr_f64(mn_model_graph *g, double value);
/* Bytes that are copied, for an attribute of kind BLOB: its value, for mn_gb_attr. */
uint64_t mn_gb_blob(mn_model_graph *g, const void *bytes, size_t n);
void mn_gb_end(mn_model_graph *g);

/* graph_lora.c: behind the product y of x and the weight, what adapters add to it, where the graph
 * has room for that; the sum, else y. to: what the sum is written to; -1: an interior tensor. */
int32_t mn_gb_adapt(mn_model_graph *g, int32_t x, int32_t weight, int32_t y, int32_t to);
/* Whether the next product, with this weight, gets such a node. */
bool mn_gb_adapts_next(const mn_model_graph *g, int32_t weight);

/* graph_values.c: the tensor's n values as F32 in the graph's memory; NULL = absent, or g
 * failed. */
const float *mn_gb_widen(mn_model_graph *g, const char *name, bool optional, int64_t n);
/* All elements of the tensor into to, if there is room for them; how many there are. 0: it is
 * absent, or g has failed. "%d" in name is the layer that g is at. */
int64_t mn_gb_flat(mn_model_graph *g, const char *name, bool optional, float *to, int64_t room);
void mn_gb_check_biases(mn_model_graph *g); /* after all others: fails if a bias was left over */
/* graph_unused.c, after all others: fails if a tensor is left over that the model needs. */
void mn_gb_check_unused(mn_model_graph *g);
/* graph_rope.c: makes the angles; sets g->freqs and g->rope_mscale */
void mn_gb_freqs(mn_model_graph *g);
/* The slopes of n heads (ALiBi), made once; -1: the model has none. */
int32_t mn_gb_slopes(mn_model_graph *g, int64_t n);
/* The rows of mn_g_growth's table, n numbers each, made once; -1: queries do not grow. */
int32_t mn_gb_growth(mn_model_graph *g, int64_t n);
/* The angles of table `at` for the last elements of heads of `width`, those in front of them 0: a
 * constant [width / 2], made once. */
int32_t mn_gb_freqs_behind(mn_model_graph *g, int32_t at, int64_t width);
#endif
