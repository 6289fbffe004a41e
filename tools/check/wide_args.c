/* wide_args.c -- see wide_args.h. Copies of structs lie in the caller's unions, copies of arrays in
 * blocks of malloc; the only state is the first fault that was found, of the rule's process. */
#include "wide_args.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GARBAGE 0xee

char wide_found[160];

void wide_look(const char *what, const void *at, uint64_t n) {
    for (uint64_t i = 0; i < n && !wide_found[0]; i++)
        if (((const uint8_t *)at)[i] != GARBAGE)
            snprintf(wide_found, sizeof wide_found,
                     "%s: bytes behind those that the plugin knows were written", what);
}

static uint32_t size_at(const void *p) {
    uint32_t size;
    memcpy(&size, p, sizeof size);
    return size;
}

void *wide_spread(const void *from, uint64_t n, uint64_t size, uint64_t stride) {
    const uint64_t wide = size + WIDE_MORE;
    char *to = malloc(n * wide + 1);
    if (to)
        memset(to, GARBAGE, n * wide + 1);
    for (uint64_t i = 0; to && from && i < n; i++)
        memcpy(to + i * wide, (const char *)from + i * stride, size);
    return to;
}

/* ---- structs --------------------------------------------------------------------------------- */
const void *wide_input(wide_in *w, const void *from, uint32_t known) {
    if (size_at(from) != known)
        return from;
    memset(w, GARBAGE, sizeof *w);
    memcpy(w, from, known);
    w->size = known + WIDE_MORE;
    return w;
}

void *wide_out_begin(wide_out *w, void *out, uint32_t known) {
    if (size_at(out) != known)
        return out;
    memset(w, GARBAGE, sizeof *w);
    w->u.size = known + WIDE_ROOM;
    return w;
}

void wide_out_end(wide_out *w, void *out, uint32_t known, bool filled, const char *what) {
    const uint32_t size = w->u.size;
    const uint32_t all = known + WIDE_ROOM;
    if (size_at(out) != known)
        return;
    if (size > all)
        snprintf(wide_found, sizeof wide_found,
                 "%s: found size %u, expected at most %u, the room given", what, size, all);
    else
        wide_look(what, (char *)w + size, all - size);
    if (!filled)
        return;
    memcpy(out, w, size < known ? size : known);
    if (size > known)
        memcpy(out, &known, sizeof known);
}

mn_error *wide_error_begin(wide_out *w, mn_error *err) {
    if (!err)
        return NULL;
    mn_error *to = wide_out_begin(w, err, sizeof *err);
    if (to != err)
        memcpy((char *)to + sizeof to->size, (char *)err + sizeof err->size,
               sizeof *err - sizeof err->size);
    return to;
}

mn_status wide_error_end(wide_out *w, mn_error *err, mn_status st, const char *what) {
    if (err)
        wide_out_end(w, err, sizeof *err, true, what);
    return st;
}

/* ---- mn_compile: memory of sequences --------------------------------------------------------- */
/* Longer params and a longer layout of one group. */
typedef struct {
    mn_memory_params params;
    uint8_t more[WIDE_MORE];
    mn_memory_layout layout;
    uint8_t more_layout[WIDE_MORE];
} wide_group;

static const mn_memory_use *use_at(const mn_compile *c, uint32_t i) {
    return (const mn_memory_use *)(const void *)((const char *)c->memory +
                                                 (uint64_t)i * c->memory_stride);
}

static uint64_t layers_of(const mn_compile *c) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < c->n_memory; i++)
        n += use_at(c, i)->params->n_layers;
    return n;
}

/* The group of `use`, whose layers go to `layers`; how many bytes they take there. */
static uint64_t widen_group(wide_group *g, mn_memory_use *use, char *layers) {
    const mn_memory_params *p = use->params;
    const uint64_t step = sizeof(mn_memory_layer) + WIDE_MORE;
    memset(g, GARBAGE, sizeof *g);
    g->params = *p;
    g->params.size = sizeof g->params + WIDE_MORE;
    g->params.layer_stride = (uint32_t)step;
    g->params.layers = (const mn_memory_layer *)(const void *)layers;
    for (uint32_t i = 0; i < p->n_layers; i++)
        memcpy(layers + i * step, (const char *)p->layers + (uint64_t)i * p->layer_stride,
               sizeof(mn_memory_layer));
    use->params = &g->params;
    if (!use->layout)
        return p->n_layers * step;
    g->layout = *use->layout;
    g->layout.size = sizeof g->layout + WIDE_MORE;
    use->layout = &g->layout;
    return p->n_layers * step;
}

static bool is_known_question(const mn_compile *c) {
    for (uint32_t i = 0; i < c->n_memory; i++)
        if (use_at(c, i)->params->size != sizeof(mn_memory_params))
            return false;
    return c->n_memory;
}

static bool widen_memory(wide_ask *a) {
    mn_compile *c = &a->c.compile;
    if (!is_known_question(c))
        return true;
    char *uses = wide_spread(c->memory, c->n_memory, sizeof(mn_memory_use), c->memory_stride);
    wide_group *groups = malloc(c->n_memory * sizeof *groups);
    char *layers = wide_spread(NULL, layers_of(c), sizeof(mn_memory_layer), 0);
    a->block[0] = uses;
    a->block[1] = groups;
    a->block[2] = layers;
    if (!uses || !groups || !layers)
        return false;
    c->memory = (const mn_memory_use *)(const void *)uses;
    c->memory_stride = sizeof(mn_memory_use) + WIDE_MORE;
    for (uint32_t i = 0; i < c->n_memory; i++)
        layers += widen_group(&groups[i], (mn_memory_use *)(uintptr_t)use_at(c, i), layers);
    return true;
}

/* ---- mn_compile: the graph ------------------------------------------------------------------- */
/* The graph and its arrays in one block. */
typedef struct {
    mn_graph g;
    uint8_t more[WIDE_MORE];
    uint64_t arrays[];
} wide_graph_block;

/* Appends an array behind those that the block has; its address there. */
static void *append_array(char **at, const void *from, uint64_t n, uint64_t size,
                          uint32_t *stride) {
    char *to = *at;
    for (uint64_t i = 0; i < n; i++)
        memcpy(to + i * (size + WIDE_MORE), (const char *)from + i * *stride, size);
    *stride = (uint32_t)size + WIDE_MORE;
    *at += n * *stride;
    return to;
}

static bool widen_graph(wide_ask *a) {
    const mn_graph *g = a->c.compile.graph;
    if (g->size != sizeof *g)
        return true;
    const uint64_t n = sizeof(wide_graph_block) + g->n_nodes * (sizeof(mn_node) + WIDE_MORE) +
                       g->n_tensors * (sizeof(mn_tensor) + WIDE_MORE) +
                       g->n_symbols * (sizeof(mn_symbol) + WIDE_MORE);
    wide_graph_block *to = malloc(n);
    if (!to)
        return false;
    memset(to, GARBAGE, n);
    char *at = (char *)to->arrays;
    to->g = *g;
    to->g.size = sizeof *g + WIDE_MORE;
    to->g.nodes = append_array(&at, g->nodes, g->n_nodes, sizeof(mn_node), &to->g.node_stride);
    to->g.tensors =
        append_array(&at, g->tensors, g->n_tensors, sizeof(mn_tensor), &to->g.tensor_stride);
    to->g.symbols =
        append_array(&at, g->symbols, g->n_symbols, sizeof(mn_symbol), &to->g.symbol_stride);
    a->graph = to;
    a->c.compile.graph = &to->g;
    return true;
}

const mn_compile *wide_ask_begin(wide_ask *a, const mn_compile *c, bool graph) {
    memset(a, 0, sizeof *a);
    if (c->size != sizeof *c)
        return c;
    memset(&a->c, GARBAGE, sizeof a->c);
    a->c.compile = *c;
    a->c.compile.size = sizeof a->c;
    if (widen_memory(a) && (!graph || widen_graph(a)))
        return &a->c.compile;
    wide_ask_end(a);
    return NULL;
}

void wide_ask_end(wide_ask *a) {
    for (int i = 0; i < 3; i++) {
        free(a->block[i]);
        a->block[i] = NULL;
    }
}
