/* vendor.h -- graphs whose weights have types of a vendor (mn.types/1), as each plugin gets them.
 *
 * The host's own graph has the ids of the loader. A plugin gets a copy: a type whose name is in the
 * plugin's list with the plugin's id, any other one as F32, which the host unpacks. Without such
 * weights there is one graph for all, mn_model_graph.given. All functions: any thread. */
#ifndef MN_GRAPH_VENDOR_H
#define MN_GRAPH_VENDOR_H
#include "graph/graph.h"

/* Behind the last change of the graph, before it is sealed. */
mn_status mn_graph_vendor_begin(mn_model_graph *g);
void mn_graph_vendor_free(mn_graph_vendor *v); /* NULL is fine */

/* The graph for a plugin with these types (n 0: none), which lives as long as g. MN_UNSUPPORTED: a
 * type of the plugin's has the name and not the blocks of one of the loader's. */
mn_status mn_graph_for(const mn_model_graph *g, const mn_vendor_types *types, const mn_graph **out,
                       mn_error *err);
/* "12 weights of toy.b8 are unpacked to f32", of a graph of mn_graph_for; "": none is. */
void mn_graph_unpacked(const mn_model_graph *g, const mn_graph *given, char *out, size_t cap);

/* The values of a weight of a vendor's type as one dense F32 plane, [dims of the weight], in sealed
 * pages. */
mn_status mn_graph_unpack(const mn_model_graph *g, const mn_graph_weight *w, mn_plane *plane,
                          mn_sealed **pages, mn_error *err);
/* Pages that a set of weights may read in place: until mn_graph_drop, or until g is freed. false =
 * out of memory; the pages stay the caller's. */
bool mn_graph_keep(const mn_model_graph *g, const mn_weights *set, mn_sealed *pages);
void mn_graph_drop(const mn_model_graph *g, const mn_weights *set);
#endif
