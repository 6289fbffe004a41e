/* graph_lora.c -- room for adapters: behind the product of each matrix a node LORA, whose small
 * matrices are state that the host writes between steps. A graph of a model without room has none
 * of it.
 *
 * All products of matrices are counted, whether they get a node or not, in the order in which the
 * builders append them: that is how room is said and found (mn_graph_site.index). */
#include "graph/build.h"
#include "model/lora.h"
#include <stdio.h>

/* The weight that a tensor of the graph is; NULL: none. */
static const mn_graph_weight *lora_weight(const mn_model_graph *g, int32_t tensor) {
    for (uint32_t i = g->n_weights; i-- > 0;)
        if (g->weights[i].tensor == tensor)
            return &g->weights[i];
    return NULL;
}

/* The next product, without a node yet; NULL: it has no matrix of the model, or g has failed. */
static mn_graph_site *lora_next_site(mn_model_graph *g, int32_t weight) {
    const mn_graph_weight *w = lora_weight(g, weight);
    if (g->status || g->io.adapter < 0 || !w || !w->whole)
        return NULL;
    void *list = g->sites;
    if (!mn_grow(&list, &g->cap_sites, g->n_sites + 1u, sizeof *g->sites)) {
        mn_gb_no_memory(g);
        return NULL;
    }
    g->sites = list;
    mn_graph_site *site = &g->sites[g->n_sites];
    *site = (mn_graph_site){.index = g->n_sites, .a = -1, .b = -1, .whole = w->whole};
    site->row_lo = w->row_lo;
    site->rows = g->abi.tensors[weight].dim[0];
    site->cols = g->abi.tensors[weight].dim[1];
    g->n_sites++;
    return site;
}

static bool lora_has_room(const mn_lora_room *room, uint32_t index) {
    return !room->sites || room->sites[index / 8] >> index % 8 & 1;
}

static int32_t lora_state(mn_model_graph *g, const char *side, uint32_t index, int64_t rows,
                          int64_t cols) {
    const mn_lora_room *room = g->model->room;
    const int64_t dim[] = {room->n, rows, cols};
    char name[48];
    snprintf(name, sizeof name, "lora_%s.%u", side, index);
    return mn_gb_tensor(g, name, MN_ROLE_STATE, room->dtype, 3, dim);
}

/* As y, interior. */
static int32_t lora_sum(mn_model_graph *g, int32_t y) {
    const mn_tensor *t = &g->abi.tensors[y];
    return mn_gb_interior(g, "lora", t->dim[0], t->dim[1], t->n_dim > 2 ? t->dim[2] : 0);
}

int32_t mn_gb_adapt(mn_model_graph *g, int32_t x, int32_t weight, int32_t y, int32_t to) {
    mn_graph_site *site = lora_next_site(g, weight);
    if (!site || !lora_has_room(g->model->room, site->index))
        return y;
    const bool outputs = g->abi.tensors[x].dim[0] == MN_DIM(MN_SYM_OUTPUTS);
    site->head = to >= 0;
    site->a = lora_state(g, "a", site->index, g->model->room->rank, site->cols);
    site->b = lora_state(g, "b", site->index, site->rows, g->model->room->rank);
    if (to < 0 && !g->status)
        to = lora_sum(g, y);
    mn_gb_begin(g, MN_OP_LORA);
    mn_gb_in(g, x);
    mn_gb_in(g, y);
    mn_gb_in(g, site->a);
    mn_gb_in(g, site->b);
    mn_gb_in(g, outputs ? g->io.out_adapter : g->io.adapter);
    mn_gb_out(g, to);
    mn_gb_end(g);
    return to;
}

bool mn_gb_adapts_next(const mn_model_graph *g, int32_t weight) {
    const mn_graph_weight *w = lora_weight(g, weight);
    return w && w->whole && g->io.adapter >= 0 && lora_has_room(g->model->room, g->n_sites);
}
