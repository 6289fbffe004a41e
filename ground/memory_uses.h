/* memory_uses.h -- mn_compile.memory of a segment: the groups and layers that its nodes store or
 * read, made from the graph. */
#ifndef MN_MEMORY_USES_H
#define MN_MEMORY_USES_H
#include <minerva/plugin.h>
#include <stdbool.h>

/* By ascending group; layers by ascending number. Layouts are NULL until mn_memory_uses_know. */
typedef struct {
    uint32_t n;
    mn_memory_use *use;       /* [n] */
    mn_memory_params *params; /* [n] */
    mn_memory_layout *layout; /* [n] */
    mn_memory_layer *layer;   /* of all groups */
    void *block;              /* in which all of it lies */
} mn_memory_uses;

typedef struct {
    uint32_t lo, hi;
} mn_node_range;
/* What the nodes of the ranges, which do not overlap, store or read. A shape that no operation
 * allows has sizes of 0, which plugins refuse. k_dtype, v_dtype: of PAGED groups. False: out of
 * memory. */
bool mn_memory_uses_find(const mn_graph *g, const mn_node_range *ranges, uint32_t n_ranges,
                         uint32_t k_dtype, uint32_t v_dtype, mn_memory_uses *out);
void mn_memory_uses_free(mn_memory_uses *u); /* also of one that is all zeros */
/* The group's parameters; NULL: there is no such group. */
const mn_memory_params *mn_memory_uses_group(const mn_memory_uses *u, uint32_t group);
/* The layout that compile gets for the group, if it is there. */
void mn_memory_uses_know(mn_memory_uses *u, uint32_t group, const mn_memory_layout *layout);
/* c->memory becomes u's, which has to live as long. */
void mn_memory_uses_give(const mn_memory_uses *u, mn_compile *c);
#endif
