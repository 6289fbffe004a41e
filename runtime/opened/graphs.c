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

/* Builds graph i if it is not there. */
static mn_status build_graph(mn_model *m, uint32_t n_ctx, uint32_t end, int i, mn_error *err) {
    mn_model_graph **g = &m->graphs[end][i];
    if (*g)
        return MN_OK;
    mn_status st = mn_model_graph_build(m->canonical, n_ctx, end, g, err);
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

mn_status mn_model_graph_for(mn_model *m, uint32_t n_ctx, uint32_t end, const mn_model_graph **out,
                             mn_error *err) {
    pthread_mutex_lock(&m->lock);
    mn_model_graph **graphs = m->graphs[end];
    mn_status st = mn_adapters_decide(m->adapters, &m->canonical->room, err);
    if (!st)
        st = build_graph(m, n_ctx, end, 0, err);
    const int i = !st && n_ctx && mn_model_graph_differs(graphs[0], n_ctx);
    if (!st)
        st = build_graph(m, n_ctx, end, i, err);
    *out = st ? NULL : graphs[i];
    pthread_mutex_unlock(&m->lock);
    return st;
}

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
