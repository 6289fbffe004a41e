/* stream.h -- what stream.c, stream_rooms.c and stream_run.c share: prompts whose routed experts
 * lie in main memory, computed on a card.
 *
 * From so many rows of a step on, the experts of a layer reach the card sooner than a CPU computes
 * them. The card then has rooms for a few experts each: weight sets that are put again and again
 * (MN_COMPILE_UPDATES), each by a thread with a queue of its own, so that experts are copied while
 * others are computed and while the card is at the nodes in between. The engine reads which experts
 * the rows chose, sorts the pairs of row and expert by expert, and runs the products of each room's
 * pairs (graph/stream.h); behind the last room all pairs are put in order and added up.
 *
 * Room r of a kind of layers goes round: FREE -> (thread r: fill_rooms) PUT -> (the engine's
 * thread: run_room) FREE. Thread r has the items r, r + n_rooms, ... of a step, an item being a
 * group of experts of a layer; the engine's thread has all of them in order. An event says when the
 * copy, or the products, of a room are over.
 *
 * Owned by the engine. The threads sleep between steps. lock guards what both kinds of threads
 * change: phases and events of rooms, and the fields that say so. */
#ifndef MN_ENGINE_STREAM_H
#define MN_ENGINE_STREAM_H
#include "engine/engine_impl.h"
#include "engine/weights.h"
#include "graph/stream.h"
#include <pthread.h>

typedef enum { MN_ROOM_FREE, MN_ROOM_PUT } mn_room_phase;

/* Memory for a group of experts, and the products by them. */
typedef struct {
    mn_weights *set;
    mn_program *program;
    mn_context *context;
    mn_sealed *pages;
    mn_room_phase phase;
    mn_event *event; /* PUT: the copy; FREE: the products that read the room last */
} mn_stream_room;

/* Layers whose experts have the same shapes, types and operations. */
typedef struct {
    mn_stream_graph graph;
    mn_stream_room room[MN_STREAM_ROOMS];
    mn_program *order, *sum;
    mn_context *order_context, *sum_context;
    mn_sealed *order_pages, *sum_pages;
    /* of the graph's tensors: in, rows with experts behind them, made, all, order, sorted, weights,
     * chosen, sum; NULL: there is none */
    mn_buffer *in[MN_STREAM_IN], *index, *made, *all, *order_rows, *sorted, *weights, *chosen,
        *result;
    uint64_t experts_at; /* in index */
} mn_stream_kind;

typedef struct {
    uint32_t segment, kind;
    mn_stream_graph graph; /* of this layer; given NULL: its programs are those of the kind */
    mn_weight_src all[MN_STREAM_WEIGHTS];
    mn_plane plane[MN_STREAM_WEIGHTS]; /* of constants */
    const mn_transfer *chosen;
    uint32_t first, n_groups; /* groups that are copied: others' experts are the card's already */
} mn_stream_layer;

typedef struct {
    mn_engine_stream *stream;
    uint32_t at; /* of the rooms, which it fills */
    mn_queue *queue;
    pthread_t thread;
    bool started;
    mn_plane *planes; /* [cap_planes] of a group */
    size_t cap_planes;
    /* under the lock */
    uint32_t next; /* item */
    bool busy;
    mn_error err;
} mn_stream_thread;

struct mn_engine_stream {
    const mn_engine *engine;
    uint32_t device, n_rooms, row_grain;
    uint32_t precision;
    mn_stream_kind *kinds;
    mn_stream_layer *layers; /* in the order of segments */
    uint32_t *layer_at;      /* [n_segments] index + 1; 0: the segment is not streamed */
    uint32_t n_kinds, n_layers, n_items;
    int32_t *pairs;  /* [rows * n_chosen] of a layer, sorted by expert: the pair */
    int32_t *places; /* [rows * n_chosen] where each pair lies */
    int32_t *given;  /* for writes: rows and experts of a run */
    uint32_t *begin; /* [n_expert + 1] */
    size_t cap_pairs, cap_places, cap_given, cap_begin;
    uint64_t n_steps, n_bytes;      /* streamed so far */
    uint64_t trial_ns, trial_bytes; /* of second puts, when it was made */
    mn_stream_thread threads[MN_STREAM_ROOMS];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_lock;
    bool active; /* a step has items; written by the engine's thread, under the lock */
    bool quit;
    mn_status failed; /* of a thread */
};

static inline mn_engine_device *mn_stream_card(const mn_engine_stream *x) {
    return &x->engine->devices[x->device];
}
static inline const mn_callee *mn_stream_callee(const mn_engine_stream *x) {
    return mn_callee_of(mn_stream_card(x));
}

/* So many pairs as a run of the products has: few sizes, four of each power of two, where devices
 * record each one. */
int64_t mn_stream_pairs(const mn_engine_stream *x, const mn_stream_kind *k, int64_t n);
/* Values of the symbols of a run with so many pairs, of which nothing but these is read. */
void mn_stream_run_symbols(const mn_stream_kind *k, int64_t n_pairs, int64_t *symbols);
/* Of the groups of the layer, as stored. */
static inline uint64_t mn_stream_bytes(const mn_stream_layer *l) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < l->graph.n_weights; i++)
        if (l->graph.weight[i].all->source)
            sum += l->graph.weight[i].all->source->bytes;
    const uint64_t n_all = (uint64_t)(l->graph.n_expert / l->graph.group);
    return sum / n_all * l->n_groups;
}

/* ---- stream_rooms.c -------------------------------------------------------------------------- */
/* Group `at` of the layer's experts into a set, on the thread's queue. *event: of all of it. */
mn_status mn_stream_put(mn_stream_thread *w, const mn_stream_layer *l, mn_weights *set, uint32_t at,
                        mn_event **event, mn_error *err);
mn_status mn_stream_threads_start(mn_engine_stream *x, mn_error *err);
/* Ends the threads, and the lock. */
void mn_stream_threads_stop(mn_engine_stream *x);
#endif
