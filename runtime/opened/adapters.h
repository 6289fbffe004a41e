/* adapters.h -- the adapters of a model: which are loaded, under which names, and in which of the
 * places that the model's graphs have for them.
 *
 * An adapter is one or several files, whose products are stacked: the sum of what each adds. It is
 * found by its name until it is unloaded, and keeps its place until the last sequence that uses it
 * is gone:
 *
 *   free --- mn_adapters_load ---> listed --- mn_adapters_unload ---> unlisted
 *    ^                               | no holder                        | the last holder
 *    +-------------------------------+ (unloaded)  <--------------------+
 *
 * The room for adapters is decided once, with the first graph of the model. All functions but
 * create and free: any thread. */
#ifndef MN_ADAPTERS_H
#define MN_ADAPTERS_H
#include "graph/graph.h"
#include "model/lora.h"

typedef struct mn_adapters mn_adapters;

typedef struct {
    mn_lora lora;
    double factor;                   /* of the caller */
    const mn_lora_product **by_site; /* [n_sites]: NULL = it does not adapt that product */
} mn_adapter_file;

typedef struct mn_adapter {
    char *name;
    uint32_t slot;   /* its place: what LORA's operand ADAPTER calls it */
    uint64_t order;  /* of loading: no two adapters of a model have the same */
    uint64_t digest; /* of all that it adds; never 0 */
    uint32_t rank, room_rank, n_files, n_sites;
    mn_adapter_file *files;
    /* ---- under the lock ---- */
    uint32_t refs;
    bool listed;
} mn_adapter;

mn_adapters *mn_adapters_create(void); /* NULL: out of memory */
void mn_adapters_free(mn_adapters *x); /* NULL is fine */

/* What the application wants; before the first graph. */
mn_status mn_adapters_want(mn_adapters *x, const mn_lora_room *room, mn_error *err);
/* Decides the room, if it is not decided: with the first graph of the model. *out NULL: none. */
mn_status mn_adapters_decide(mn_adapters *x, const mn_lora_room **out, mn_error *err);
/* all: a graph of the model with room in every product. files: bound to the model; taken over, also
 * after an error. */
mn_status mn_adapters_load(mn_adapters *x, const mn_model_graph *all, const char *name,
                           mn_adapter_file *files, uint32_t n, mn_error *err);
mn_status mn_adapters_unload(mn_adapters *x, const char *name, mn_error *err);
/* The i-th that is listed, copied to *out under the lock; MN_END past the last. */
mn_status mn_adapters_get(mn_adapters *x, uint32_t i, mn_adapter_item *out);

/* One holder more of the adapter of this name. MN_BAD_INPUT lists those that there are. */
mn_status mn_adapter_find(mn_adapters *x, const char *name, const mn_adapter **out, mn_error *err);
void mn_adapter_hold(mn_adapters *x, const mn_adapter *a);    /* NULL: nothing */
void mn_adapter_release(mn_adapters *x, const mn_adapter *a); /* likewise */
/* mn_adapter_fill_fn, of an mn_adapter. */
void mn_adapter_fill(const void *adapter, const mn_graph_site *site, float *a, float *b);
#endif
