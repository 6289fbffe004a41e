/* weights.c -- streams a segment's weights into a device's set.
 *
 * The next weight is put before the events of those before it: up to IN_FLIGHT of them are waited
 * for, oldest first. A device whose put may be called from several threads gets some, each with a
 * queue and a share of IN_FLIGHT of its own; they take weights from one counter, in the order of
 * the graph, so that a file is still read from front to back. These threads are not the pool's:
 * they wait for devices and disks, and a plugin may use the pool inside of put. */
#include "engine/weights.h"
#include "engine/engine_impl.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { IN_FLIGHT = 16, MAX_THREADS = 8, BYTES_PER_THREAD = 32 << 20 };

typedef struct {
    const mn_import *in;
    mn_weights *set;
    const bool *wanted; /* by tensor */
    uint64_t bytes;     /* of the weights that are wanted */
    _Atomic uint32_t next;
    _Atomic bool stop; /* somebody failed */
} importer;

/* One thread of an import. */
typedef struct {
    importer *all;
    mn_queue *queue;
    uint32_t in_flight; /* events of its own at most */
    uint32_t failed_at; /* the weight that its status is about; n_weights: a wait at the end */
    mn_status status;
    mn_error err;
    pthread_t thread;
} putter;

/* A constant of the host: one dense F32 plane. */
static void describe_constant(const mn_tensor *t, const void *data, mn_plane *plane) {
    int64_t stride = 4;
    *plane = (mn_plane){
        .ptr = data,
        .kind = MN_PLANE_DATA,
        .dtype = MN_F32,
    };
    for (uint32_t d = t->n_dim; d-- > 0;) {
        plane->dim[d] = t->dim[d];
        plane->stride[d] = stride;
        stride *= t->dim[d];
    }
    plane->bytes = (uint64_t)stride;
}

/* bytes: of the import, for an event may wait for all that was put before. */
static mn_status settle_put(const mn_import *in, uint64_t bytes, mn_event **event, mn_error *err) {
    return mn_event_settle(in->backend, in->callee, MN_MOVES_NS(bytes), event, err);
}

mn_weight_src mn_weight_describe(const mn_graph *g, const mn_graph_weight *w, mn_plane *plane) {
    mn_weight_src src = {
        .size = sizeof src,
        .tensor = (uint32_t)w->tensor,
        .n_parts = 1,
        .n_planes = 1,
        .plane_stride = sizeof *plane,
        .planes = plane,
        .dtype = g->tensors[w->tensor].dtype,
    };
    if (w->source) {
        const mn_tensor_info *t = &w->source->info;
        src.n_parts = t->n_parts;
        src.n_planes = t->n_planes;
        src.plane_stride = t->plane_stride;
        src.planes = t->planes;
        src.dtype = t->dtype;
    } else
        describe_constant(&g->tensors[w->tensor], w->constant, plane);
    return src;
}

/* A weight of a vendor's type with the plugin's own id of it. *planes: freed by the caller. */
static mn_status vendor_rename(mn_weight_src *src, mn_dtype own, mn_plane **planes, mn_error *err) {
    const size_t n = (size_t)src->n_parts * src->n_planes;
    *planes = mn_alloc(n, sizeof **planes);
    if (!*planes)
        return mn_fail_memory(err, n * sizeof **planes);
    for (size_t i = 0; i < n; i++) {
        const char *from = (const char *)src->planes + i * src->plane_stride;
        (*planes)[i] = *(const mn_plane *)(const void *)from;
        if ((*planes)[i].dtype == src->dtype.id)
            (*planes)[i].dtype = own.id;
    }
    src->planes = *planes;
    src->plane_stride = sizeof **planes;
    src->dtype = own;
    return MN_OK;
}

/* A weight of a vendor's type as f32, which the set keeps as long as it may read it. */
static mn_status vendor_unpack(const importer *all, const mn_graph_weight *w, mn_plane *plane,
                               mn_weight_src *src, mn_error *err) {
    const mn_model_graph *g = all->in->graph;
    mn_sealed *pages = NULL;
    const mn_status st = mn_graph_unpack(g, w, plane, &pages, err);
    if (st)
        return st;
    if (!mn_graph_keep(g, all->set, pages)) {
        mn_sealed_free(pages);
        return mn_fail_memory(err, 0);
    }
    src->n_parts = 1;
    src->n_planes = 1;
    src->plane_stride = sizeof *plane;
    src->planes = plane;
    mn_dtype_by_id(MN_F32, &src->dtype);
    return MN_OK;
}

/* As the plugin's graph says: its own id, or f32. */
static mn_status vendor_describe(putter *p, const mn_graph_weight *w, mn_plane *plane,
                                 mn_weight_src *src, mn_plane **planes) {
    const mn_dtype own = p->all->in->compile->graph->tensors[w->tensor].dtype;
    if (!mn_is_vendor_type(src->dtype.id) || own.id == src->dtype.id)
        return MN_OK;
    if (mn_is_vendor_type(own.id))
        return vendor_rename(src, own, planes, &p->err);
    return vendor_unpack(p->all, w, plane, src, &p->err);
}

static mn_status put_weight(putter *p, const mn_graph_weight *w, mn_event **event) {
    const mn_import *in = p->all->in;
    uint64_t bytes = 0;
    mn_plane plane;
    mn_plane *planes = NULL;
    /* planes of files are in sealed pages; the rest is a copy of each call's own */
    mn_weight_src src = mn_weight_describe(&in->graph->abi, w, &plane);
    mn_status st = vendor_describe(p, w, &plane, &src, &planes);
    if (st)
        return st;
    if (w->source)
        bytes = w->source->bytes;
    MN_WATCHED_FOR(
        in->callee, "weights_put", MN_MOVES_NS(bytes),
        MN_RETRY(st, in->backend->weights_put(p->all->set, p->queue, &src, event, &p->err)));
    mn_free(planes);
    return st;
}

static void settle_all(putter *p, mn_event **events) {
    const importer *all = p->all;
    for (uint32_t i = 0; i < p->in_flight; i++) {
        mn_status st = settle_put(all->in, all->bytes, &events[i], p->status ? NULL : &p->err);
        if (st && !p->status) {
            p->status = st;
            p->failed_at = all->in->graph->n_weights;
        }
    }
}

/* Tells the watcher, if this is the calling thread; MN_CANCELLED: it wants no more. */
static mn_status report(putter *p, uint32_t weight) {
    const mn_import *in = p->all->in;
    if (!in->watcher.fn || p->queue != in->queue)
        return MN_OK;
    const float here = (float)weight / (float)in->graph->n_weights;
    const float done = ((float)in->part + here) / (float)MN_MAX(in->n_parts, 1u);
    if (in->watcher.fn(in->watcher.arg, done, "weights"))
        return mn_fail(&p->err, MN_CANCELLED, "the import of the weights was cancelled");
    return MN_OK;
}

/* Puts weights until none is left or somebody has failed; every event is over afterwards. */
static void *put_some(void *arg) {
    putter *p = arg;
    importer *all = p->all;
    const mn_import *in = all->in;
    mn_event *events[IN_FLIGHT] = {0};
    for (uint32_t n = 0; !p->status && !all->stop;) {
        const uint32_t i = all->next++;
        if (i >= in->graph->n_weights)
            break;
        const mn_graph_weight *w = &in->graph->weights[i];
        if (!all->wanted[w->tensor])
            continue;
        mn_event **event = &events[n++ % p->in_flight];
        p->failed_at = i;
        p->status = settle_put(in, all->bytes, event, &p->err);
        if (!p->status)
            p->status = report(p, i);
        if (!p->status)
            p->status = put_weight(p, w, event);
    }
    if (p->status)
        all->stop = true;
    settle_all(p, events);
    if (p->status)
        all->stop = true;
    return NULL;
}

/* Bytes of the weights that the segment reads, as stored. */
static uint64_t bytes_to_put(const mn_import *in, const bool *wanted) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < in->graph->n_weights; i++) {
        const mn_graph_weight *w = &in->graph->weights[i];
        if (wanted[w->tensor] && w->source)
            sum += MN_MIN(w->source->bytes, UINT64_MAX - sum);
    }
    return sum;
}

/* The thread that a failure is reported of: a lost device above all, then the earliest weight. */
static const putter *worst_of(const putter *p, uint32_t n) {
    const putter *worst = &p[0];
    for (uint32_t i = 1; i < n; i++) {
        const bool lost = MN_STATUS_CLASS(p[i].status) == MN_CLASS_LOST;
        const bool known = MN_STATUS_CLASS(worst->status) == MN_CLASS_LOST;
        const bool earlier = !worst->status || p[i].failed_at < worst->failed_at;
        if (p[i].status && (lost != known ? lost : earlier))
            worst = &p[i];
    }
    return worst;
}

/* Up to n_wanted of them, each but the first with a queue and a thread of its own; how many there
 * are. *st: why p[that number] has no queue, with the message in its err. */
static uint32_t start_putters(importer *all, putter *p, uint32_t n_wanted, mn_status *st) {
    const mn_import *in = all->in;
    const mn_backend *b = in->backend;
    uint32_t n = 0;
    *st = MN_OK;
    for (; n < n_wanted && !*st; n += !*st) {
        p[n] = (putter){
            .all = all,
            .queue = in->queue,
            .err = MN_ERROR_INIT,
        };
        p[n].in_flight = IN_FLIGHT / n_wanted;
        if (n)
            *st = mn_usual_queue(b, in->device, &p[n].queue, &p[n].err);
        if (!*st && n && pthread_create(&p[n].thread, NULL, put_some, &p[n])) {
            b->queue_free(p[n].queue);
            break;
        }
    }
    return n;
}

/* Threads and queues that cannot be had are done without, unless the device is lost. */
static mn_status put_all(importer *all, mn_error *err) {
    const mn_import *in = all->in;
    all->bytes = bytes_to_put(in, all->wanted);
    const uint64_t useful = 1 + all->bytes / BYTES_PER_THREAD;
    const uint64_t most = MN_MIN(in->n_threads, (uint32_t)MAX_THREADS);
    const uint32_t n_wanted = (uint32_t)MN_MAX(MN_MIN(useful, most), (uint64_t)1);
    putter p[MAX_THREADS];
    mn_status st = MN_OK;
    const uint32_t n = start_putters(all, p, n_wanted, &st);
    const bool lost = MN_STATUS_CLASS(st) == MN_CLASS_LOST;
    if (lost) {
        mn_fail(err, st, "%s", p[n].err.msg);
        all->stop = true;
    }
    put_some(&p[0]);
    for (uint32_t i = 1; i < n; i++) {
        pthread_join(p[i].thread, NULL);
        in->backend->queue_free(p[i].queue);
    }
    if (lost)
        return st;
    const putter *worst = worst_of(p, n);
    if (worst->status)
        mn_fail_node(err, worst->status, worst->err.node, "%s", worst->err.msg);
    return worst->status;
}

mn_status mn_weights_import(const mn_import *in, mn_weights **out, uint32_t *kept_how,
                            mn_error *err) {
    const mn_backend *b = in->backend;
    mn_weights *set = NULL;
    const mn_compile *c = in->compile;
    bool *wanted = mn_graph_reads(&in->graph->abi, c->node_lo, c->node_hi);
    if (!wanted)
        return mn_fail_memory(err, in->graph->abi.n_tensors * sizeof *wanted);
    mn_status st = MN_OK;
    MN_WATCHED(in->callee, "weights_open",
               st = b->weights_open(in->device, in->compile, &set, err));
    importer all = {
        .in = in,
        .set = set,
        .wanted = wanted,
    };
    if (!st)
        st = put_all(&all, err);
    if (!st)
        MN_WATCHED_FOR(in->callee, "weights_seal", MN_MOVES_NS(all.bytes),
                       st = b->weights_seal(set, in->queue, kept_how, err));
    if (st && set)
        MN_WATCHED(in->callee, "weights_free", b->weights_free(set));
    else
        *out = set;
    if (st || !(*kept_how & MN_KEPT_ALIASED))
        mn_graph_drop(in->graph, set);
    mn_free(wanted);
    return st;
}
