/* held.c -- the sets of weights that a model's sessions share (held.h).
 *
 * A set is compared weight by weight: the same tensor of the model's files, or a constant with the
 * same bytes (the factors of long contexts differ from those of short ones), under the same name,
 * type and dims, since that is how plugins find it. Devices need no comparison beyond the pointer:
 * one that was lost stays open until its last user has released it. */
#include "negotiate/held.h"
#include "base/base.h"
#include <pthread.h>
#include <string.h>

struct mn_held {
    mn_held *next;
    mn_held_question from; /* what it was imported for */
    mn_weights *set;
    uint32_t kept_how, users;
};

struct mn_held_list {
    pthread_mutex_t lock;
    mn_held *first;
};

mn_held_list *mn_held_create(void) {
    mn_held_list *list = mn_calloc(1, sizeof *list);
    if (list)
        pthread_mutex_init(&list->lock, NULL);
    return list;
}

void mn_held_free(mn_held_list *list) {
    if (!list)
        return;
    pthread_mutex_destroy(&list->lock);
    mn_free(list);
}

/* ---- comparison ------------------------------------------------------------------------------ */
static bool held_same_shape(const mn_tensor *a, const mn_tensor *b) {
    const bool same_name =
        a->name.len == b->name.len && !memcmp(a->name.ptr, b->name.ptr, a->name.len);
    return same_name && a->dtype.id == b->dtype.id && a->n_dim == b->n_dim &&
           !memcmp(a->dim, b->dim, a->n_dim * sizeof *a->dim);
}

/* Constants are dense f32. */
static bool same_constant(const mn_tensor *t, const void *a, const void *b) {
    size_t bytes = sizeof(float);
    for (uint32_t i = 0; i < t->n_dim; i++)
        bytes *= (size_t)t->dim[i];
    return a == b || !memcmp(a, b, bytes);
}

/* The same entry of the model; or the same bytes of its files, where graphs cut rows out of one. */
static bool same_source(const mn_model_tensor_entry *a, const mn_model_tensor_entry *b) {
    if (a == b || !a || !b)
        return a == b;
    const mn_tensor_info *x = &a->info;
    const mn_tensor_info *y = &b->info;
    bool same = x->n_parts == y->n_parts && x->n_planes == y->n_planes;
    for (size_t i = 0; same && i < (size_t)x->n_parts * x->n_planes; i++) {
        const char *p = (const char *)x->planes + i * x->plane_stride;
        const char *q = (const char *)y->planes + i * y->plane_stride;
        same = !memcmp(p, q, sizeof *x->planes);
    }
    return same;
}

static bool same_weight(const mn_model_graph *ga, const mn_graph_weight *a,
                        const mn_model_graph *gb, const mn_graph_weight *b) {
    const mn_tensor *t = &ga->abi.tensors[a->tensor];
    if (!same_source(a->source, b->source) || !held_same_shape(t, &gb->abi.tensors[b->tensor]))
        return false;
    return a->source || same_constant(t, a->constant, b->constant);
}

/* Whether the set has the weight. *at: where the last one was found, since graphs of one model have
 * them in one order. */
static bool has_weight(const mn_held *h, const bool *kept, const mn_model_graph *g,
                       const mn_graph_weight *w, uint32_t *at) {
    const mn_model_graph *own = h->from.graph;
    for (uint32_t i = 0; i < own->n_weights; i++) {
        const uint32_t k = (*at + i) % own->n_weights;
        const mn_graph_weight *x = &own->weights[k];
        if (!kept[x->tensor] || !same_weight(g, w, own, x))
            continue;
        *at = k;
        return true;
    }
    return false;
}

/* Without memory to compare them two sets are different. */
static bool serves(const mn_held *h, const mn_held_question *q) {
    if (h->from.device != q->device || h->from.precision != q->precision)
        return false;
    bool *kept = mn_graph_reads(&h->from.graph->abi, h->from.node_lo, h->from.node_hi);
    bool *wanted = mn_graph_reads(&q->graph->abi, q->node_lo, q->node_hi);
    bool all = kept && wanted;
    uint32_t at = 0;
    for (uint32_t i = 0; all && i < q->graph->n_weights; i++) {
        const mn_graph_weight *w = &q->graph->weights[i];
        if (wanted[w->tensor])
            all = has_weight(h, kept, q->graph, w, &at);
    }
    mn_free(kept);
    mn_free(wanted);
    return all;
}

static mn_held *held_find(const mn_held_list *list, const mn_held_question *q) {
    mn_held *h = list->first;
    while (h && !serves(h, q))
        h = h->next;
    return h;
}

/* ---- users ----------------------------------------------------------------------------------- */
bool mn_held_has(mn_held_list *list, const mn_held_question *q) {
    if (!list)
        return false;
    pthread_mutex_lock(&list->lock);
    const bool has = held_find(list, q);
    pthread_mutex_unlock(&list->lock);
    return has;
}

mn_held *mn_held_take(mn_held_list *list, const mn_held_question *q) {
    if (!list)
        return NULL;
    pthread_mutex_lock(&list->lock);
    mn_held *h = held_find(list, q);
    if (h)
        h->users++;
    pthread_mutex_unlock(&list->lock);
    return h;
}

mn_held *mn_held_add(mn_held_list *list, const mn_held_question *q, mn_weights *set,
                     uint32_t kept_how) {
    mn_held *h = list ? mn_calloc(1, sizeof *h) : NULL;
    if (!h)
        return NULL;
    *h = (mn_held){.from = *q, .set = set, .kept_how = kept_how, .users = 1};
    pthread_mutex_lock(&list->lock);
    h->next = list->first;
    list->first = h;
    pthread_mutex_unlock(&list->lock);
    return h;
}

mn_weights *mn_held_set(const mn_held *h, uint32_t *kept_how) {
    *kept_how = h->kept_how;
    return h->set;
}

bool mn_held_release(mn_held_list *list, mn_held *h) {
    if (!h)
        return true;
    pthread_mutex_lock(&list->lock);
    const bool last = --h->users == 0;
    mn_held **at = &list->first;
    while (last && *at != h)
        at = &(*at)->next;
    if (last)
        *at = h->next;
    pthread_mutex_unlock(&list->lock);
    if (last)
        mn_free(h);
    return last;
}
