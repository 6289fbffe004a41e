/* graphs.c -- the graphs of a model, which belong to it: each is built when a session or an
 * explanation first needs it, under the model's lock, and lives as long as the model. */
#include "opened/opened.h"

/* Files may have f64, and convert reads it; no backend multiplies with it. */
static mn_status check_types(const mn_model *m, const mn_model_graph *g, mn_error *err) {
    for (uint32_t i = 0; i < g->n_weights; i++) {
        const mn_model_tensor_entry *e = g->weights[i].source;
        if (e && e->info.dtype.id == MN_F64)
            return mn_fail(err, MN_UNSUPPORTED,
                           "%s: tensor %.*s has the type f64, which is not computed with; expected "
                           "f32 or a smaller type (minerva convert --type f32 writes such a file)",
                           m->canonical->path, MN_STR_ARG(e->info.native));
    }
    return MN_OK;
}

/* Once per model, for all its graphs. */
static void tell_unused(mn_model *m, const mn_model_graph *g) {
    if (g->remark && !m->told_unused)
        mn_log(MN_LOG_WARN, "%s: %s", m->canonical->path, g->remark);
    m->told_unused = true;
}

/* *g, if it is not there. */
static mn_status build_graph(mn_model *m, uint32_t n_ctx, uint32_t end, mn_division division,
                             mn_model_graph **g, mn_error *err) {
    if (*g)
        return MN_OK;
    mn_status st = mn_model_graph_build_divided(m->canonical, n_ctx, end, division, g, err);
    if (!st)
        st = check_types(m, *g, err);
    if (st) {
        mn_model_graph_free(*g);
        *g = NULL;
        return st;
    }
    tell_unused(m, *g);
    return MN_OK;
}

/* Under the lock. *which: 0, or 1 where the context needs other constants. */
static mn_status find_graph(mn_model *m, uint32_t n_ctx, uint32_t end, int *which, mn_error *err) {
    mn_model_graph **graphs = m->graphs[end];
    const mn_division whole = {.on = false};
    *which = 0;
    mn_status st = mn_adapters_decide(m->adapters, &m->canonical->room, err);
    if (!st)
        st = build_graph(m, n_ctx, end, whole, &graphs[0], err);
    if (!st && n_ctx)
        *which = mn_model_graph_differs(graphs[0], n_ctx);
    if (!st)
        st = build_graph(m, n_ctx, end, whole, &graphs[*which], err);
    return st;
}

mn_status mn_model_graph_for(mn_model *m, uint32_t n_ctx, uint32_t end, const mn_model_graph **out,
                             mn_error *err) {
    int which;
    pthread_mutex_lock(&m->lock);
    const mn_status st = find_graph(m, n_ctx, end, &which, err);
    *out = st ? NULL : m->graphs[end][which];
    pthread_mutex_unlock(&m->lock);
    return st;
}

/* ---- with divided experts -------------------------------------------------------------------- */
typedef struct mn_divided_graph {
    struct mn_divided_graph *next;
    mn_model_graph *graph;
    mn_division division;
    uint32_t end;
    int which; /* as in mn_model.graphs */
} mn_divided_graph;

static bool same_division(const mn_division *a, const mn_division *b) {
    return a->on == b->on && a->n_first == b->n_first && a->layer_lo == b->layer_lo;
}

/* Under the lock; a new one at the head of the list, without its graph. NULL: out of memory. */
static mn_divided_graph *divided_graph(mn_model *m, uint32_t end, int which,
                                       const mn_division *division) {
    mn_divided_graph *d = m->divided;
    while (d && (d->end != end || d->which != which || !same_division(&d->division, division)))
        d = d->next;
    if (d)
        return d;
    d = mn_calloc(1, sizeof *d);
    if (!d)
        return NULL;
    *d = (mn_divided_graph){
        .next = m->divided,
        .division = *division,
        .end = end,
        .which = which,
    };
    m->divided = d;
    return d;
}

mn_status mn_model_graph_divided(mn_model *m, uint32_t n_ctx, uint32_t end, mn_division division,
                                 const mn_model_graph **out, mn_error *err) {
    int which;
    if (!division.on || end == MN_GRAPH_HEAD)
        return mn_model_graph_for(m, n_ctx, end, out, err);
    pthread_mutex_lock(&m->lock);
    mn_status st = find_graph(m, n_ctx, end, &which, err);
    mn_divided_graph *d = st ? NULL : divided_graph(m, end, which, &division);
    if (!st && !d)
        st = mn_fail_memory(err, sizeof *d);
    if (!st)
        st = build_graph(m, n_ctx, end, division, &d->graph, err);
    *out = st ? NULL : d->graph;
    pthread_mutex_unlock(&m->lock);
    return st;
}

void mn_model_graphs_free(mn_model *m) {
    for (int i = 0; i < 2 * MN_GRAPH_ENDS; i++)
        mn_model_graph_free(m->graphs[i / 2][i % 2]);
    mn_model_graph_free(m->adapted);
    while (m->divided) {
        mn_divided_graph *d = m->divided;
        m->divided = d->next;
        mn_model_graph_free(d->graph);
        mn_free(d);
    }
}

/* ---- of the whole model ---------------------------------------------------------------------- */
mn_status mn_model_graph_adapted(mn_model *m, const mn_model_graph **out, mn_error *err) {
    static const mn_lora_room one = {.n = 1, .rank = 1, .dtype = MN_F32};
    const uint32_t end = mn_hparams_is_encoder(m->canonical) ? MN_GRAPH_EMBEDS : MN_GRAPH_DRAWS;
    mn_status st = MN_OK;
    pthread_mutex_lock(&m->lock);
    const mn_lora_room *own = m->canonical->room;
    m->canonical->room = &one;
    if (!m->adapted)
        st = mn_model_graph_build(m->canonical, 0, end, &m->adapted, err);
    m->canonical->room = own;
    *out = m->adapted;
    pthread_mutex_unlock(&m->lock);
    return st;
}

mn_status mn_model_graph_of(mn_model *m, const mn_model_graph **out, mn_error *err) {
    return mn_model_graph_for(m, 0, false, out, err);
}
