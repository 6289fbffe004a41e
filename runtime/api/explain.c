/* explain.c -- what a model becomes, as JSON: mn_model_explain, the way from plugin files to a
 * decision, whether or not there is one; mn_model_graph_json, its graph. Both write into one text,
 * which becomes the caller's (mn_json_free) when it is whole. */
#include "opened/opened.h"
#include <string.h>

/* Whether the arguments of either will do; then the model's graph, and *out empty. */
static mn_status begin(mn_model *m, char **out, const char *function, const mn_model_graph **g,
                       mn_error *err) {
    const mn_arg args[] = {{"m", m}, {"json", out}, {0}};
    mn_status st = mn_args_need(err, function, args);
    if (!st)
        st = mn_args_same_process(err, function, m->rt);
    if (st)
        return st;
    *out = NULL;
    return mn_model_graph_of(m, g, err);
}

/* Hands the text out, unless memory ran out while it was written. */
static mn_status give(mn_text *text, char **out, mn_error *err) {
    if (text->failed) {
        mn_text_free(text);
        return mn_fail_memory(err, 0);
    }
    *out = text->ptr;
    return MN_OK;
}

static void say_model(const mn_model *m, const mn_model_graph *g, json_out *j) {
    mn_model_info info = {.size = sizeof info};
    mn_model_get_info(m, &info);
    json_put_object(j, "model");
    json_put_z(j, "path", info.path ? info.path : "");
    json_put_z(j, "arch", info.arch ? info.arch : "");
    json_put_uint(j, "nodes", g->abi.n_nodes);
    json_put_uint(j, "bytes", info.n_bytes);
    json_close(j);
}

typedef struct {
    mn_model *m;
    uint32_t n_ctx;
} explained;

/* The model's graph, as mn_model_graph_of, with divided experts. */
static mn_status divide_explained(void *arg, mn_division division, const mn_model_graph **out,
                                  mn_error *err) {
    const explained *x = arg;
    return mn_model_graph_divided(x->m, x->n_ctx, MN_GRAPH_DRAWS, division, out, err);
}

mn_status mn_model_explain(mn_model *m, const mn_session_params *params, char **out,
                           mn_error *err) {
    const mn_model_graph *g;
    mn_request r;
    mn_placement p = {0};
    mn_error why = MN_ERROR_INIT;
    mn_text text = {0};
    mn_status st = begin(m, out, __func__, &g, err);
    if (!st)
        st = mn_request_make(m, g, params, &r, err);
    if (st)
        return st;
    r.flags |= MN_REQUEST_EXPLAIN;
    explained x = {m, r.n_ctx};
    const mn_divider divider = {divide_explained, &x};
    /* an error is part of the record */
    if (!mn_negotiate_divided(m->rt->registry, &g, &divider, &r, &p, &why))
        mn_negotiate_streams(&p, g, &r, NULL);
    json_out j = json_to_text(&text);
    json_open(&j, '{');
    say_model(m, g, &j);
    mn_placement_explain(&p, m->rt->registry, g, &r, &why, &j);
    json_close(&j);
    mn_placement_free(&p);
    return give(&text, out, err);
}

mn_status mn_model_graph_json(mn_model *m, char **out, mn_error *err) {
    const mn_model_graph *g;
    mn_text text = {0};
    mn_status st = begin(m, out, __func__, &g, err);
    if (st)
        return st;
    mn_graph_json(g, &text);
    return give(&text, out, err);
}

void mn_json_free(char *json) {
    mn_free(json);
}
