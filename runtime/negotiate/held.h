/* held.h -- the sealed sets of weights that sessions of one model have on devices, so that a second
 * session (of embeddings beside one that generates) imports nothing again. A set serves every
 * segment on the same device and in the same class that reads no other weights: programs of several
 * graphs may share one set (plugin.h). The model owns the list; any thread. */
#ifndef MN_HELD_H
#define MN_HELD_H
#include "graph/graph.h"

/* A set with the number of its users. */
typedef struct mn_held mn_held;
typedef struct mn_held_list mn_held_list;

/* The weights that a segment needs on a device; its graph lives as long as the list. */
typedef struct {
    mn_device *device;
    const mn_model_graph *graph;
    uint32_t node_lo, node_hi, precision;
} mn_held_question;

mn_held_list *mn_held_create(void);    /* NULL: out of memory */
void mn_held_free(mn_held_list *list); /* has no set any more. NULL is fine */
/* Whether there is a set for the segment now. list NULL: no. */
bool mn_held_has(mn_held_list *list, const mn_held_question *q);
/* Adds a user to such a set; NULL: there is none. */
mn_held *mn_held_take(mn_held_list *list, const mn_held_question *q);
/* Adds a set that was imported for the segment, with its first user. NULL: out of memory, or list
 * is NULL; the set then belongs to the caller alone. */
mn_held *mn_held_add(mn_held_list *list, const mn_held_question *q, mn_weights *set,
                     uint32_t kept_how);
mn_weights *mn_held_set(const mn_held *h, uint32_t *kept_how);
/* Removes a user. true: it was the last user, and the caller frees the set. h NULL: true. */
bool mn_held_release(mn_held_list *list, mn_held *h);
#endif
