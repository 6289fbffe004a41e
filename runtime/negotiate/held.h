/* held.h -- the sealed sets of weights that sessions of one model have on devices, so that a second
 * session (of embeddings beside one that generates) imports nothing again. A set serves every
 * segment that reads no more than it has, in the same class, on the same device: programs of
 * several graphs may share one (plugin.h). The list is the model's; any thread. */
#ifndef MN_HELD_H
#define MN_HELD_H
#include "graph/graph.h"

/* A set with the number of its users. */
typedef struct mn_held mn_held;
typedef struct mn_held_list mn_held_list;

/* What a segment wants on a device; its graph lives as long as the list. */
typedef struct {
    mn_device *device;
    const mn_model_graph *graph;
    uint32_t node_lo, node_hi, precision;
} mn_held_question;

mn_held_list *mn_held_create(void);    /* NULL: out of memory */
void mn_held_free(mn_held_list *list); /* has no set any more. NULL is fine */
/* Whether there is a set for the segment now. list NULL: no. */
bool mn_held_has(mn_held_list *list, const mn_held_question *q);
/* One user more of such a set; NULL: there is none. */
mn_held *mn_held_take(mn_held_list *list, const mn_held_question *q);
/* Makes a set known that was imported for the segment, with its first user. NULL: out of memory, or
 * list is NULL: the set is the caller's alone. */
mn_held *mn_held_add(mn_held_list *list, const mn_held_question *q, mn_weights *set,
                     uint32_t kept_how);
mn_weights *mn_held_set(const mn_held *h, uint32_t *kept_how);
/* One user less. true: it was the last, and frees the set. h NULL: true. */
bool mn_held_release(mn_held_list *list, mn_held *h);
#endif
