/* given.c -- what plugins are given as const, copied into sealed pages (sealed.h): one function per
 * struct, which copies all that the struct points at, but for what is sealed already and what is
 * the plugin's own. The host builds these structs as it likes and hands over the copies alone. */
#include "base/sealed.h"
#include <string.h>

/* s, closed and now the caller's; what was made in it, or NULL. */
static const void *given_seal(mn_sealed *s, const void *made, mn_sealed **owner) {
    const bool closed = mn_sealed_close(s);
    *owner = closed ? s : NULL;
    return closed ? made : NULL;
}

const void *mn_given_array(const void *from, size_t n, size_t size, mn_sealed **owner) {
    *owner = NULL;
    mn_sealed *s = mn_sealed_open(mn_sealed_room(n, size));
    if (!s)
        return NULL;
    return given_seal(s, mn_sealed_copy(s, from, n, size), owner);
}

/* A text at *at, with the end that a C string has; the next one begins behind it. */
static mn_str copy_text(char **at, mn_str text) {
    const mn_str copy = {*at, text.len};
    if (text.len)
        memcpy(*at, text.ptr, text.len);
    *at += text.len + 1;
    return copy;
}

/* ---- the graph ------------------------------------------------------------------------------- */
static size_t name_bytes(const mn_graph *g) {
    size_t sum = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++)
        sum = mn_sealed_sum(sum, mn_sealed_sum(g->tensors[i].name.len, 1));
    return sum;
}

static size_t blob_bytes(const mn_graph *g) {
    size_t sum = 0;
    for (uint32_t i = 0; i < g->n_blobs; i++)
        sum = mn_sealed_sum(sum, mn_sealed_room(g->blobs[i].len, 1));
    return sum;
}

static size_t graph_room(const mn_graph *g, size_t names) {
    const size_t parts[] = {mn_sealed_room(1, sizeof *g),
                            mn_sealed_room(g->n_nodes, sizeof *g->nodes),
                            mn_sealed_room(g->n_tensors, sizeof *g->tensors),
                            mn_sealed_room(g->n_symbols, sizeof *g->symbols),
                            mn_sealed_room(g->n_operands, sizeof *g->operands),
                            mn_sealed_room(g->n_attrs, sizeof *g->attrs),
                            mn_sealed_room(g->n_blobs, sizeof *g->blobs),
                            blob_bytes(g),
                            mn_sealed_room(names, 1)};
    size_t sum = 0;
    for (size_t i = 0; i < MN_COUNT(parts); i++)
        sum = mn_sealed_sum(sum, parts[i]);
    return sum;
}

const mn_graph *mn_given_graph(const mn_graph *g, mn_sealed **owner) {
    const size_t names = name_bytes(g);
    *owner = NULL;
    mn_sealed *s = mn_sealed_open(graph_room(g, names));
    if (!s)
        return NULL;
    mn_graph *copy = mn_sealed_copy(s, g, 1, sizeof *g);
    mn_tensor *tensors = mn_sealed_copy(s, g->tensors, g->n_tensors, sizeof *tensors);
    copy->tensors = tensors;
    copy->nodes = mn_sealed_copy(s, g->nodes, g->n_nodes, sizeof *g->nodes);
    copy->symbols = mn_sealed_copy(s, g->symbols, g->n_symbols, sizeof *g->symbols);
    copy->operands = mn_sealed_copy(s, g->operands, g->n_operands, sizeof *g->operands);
    copy->attrs = mn_sealed_copy(s, g->attrs, g->n_attrs, sizeof *g->attrs);
    mn_str *blobs = mn_sealed_copy(s, g->blobs, g->n_blobs, sizeof *blobs);
    for (uint32_t i = 0; i < g->n_blobs; i++)
        blobs[i].ptr = mn_sealed_copy(s, blobs[i].ptr, blobs[i].len, 1);
    copy->blobs = blobs;
    char *at = mn_sealed_take(s, names, 1);
    for (uint32_t i = 0; i < g->n_tensors; i++)
        tensors[i].name = copy_text(&at, tensors[i].name);
    return given_seal(s, copy, owner);
}

/* ---- questions about a segment --------------------------------------------------------------- */
static size_t memory_room(const mn_compile *c) {
    size_t room = mn_sealed_room(c->n_memory, sizeof *c->memory);
    for (uint32_t i = 0; i < c->n_memory; i++) {
        const mn_memory_params *m = c->memory[i].params;
        room = mn_sealed_sum(room, mn_sealed_room(1, sizeof *m));
        room = mn_sealed_sum(room, mn_sealed_room(m->n_layers, sizeof *m->layers));
        room = mn_sealed_sum(room, mn_sealed_room(1, sizeof *c->memory[i].layout));
    }
    return room;
}

static void copy_memory(mn_sealed *s, const mn_compile *c, mn_compile *copy) {
    mn_memory_use *uses = mn_sealed_copy(s, c->memory, c->n_memory, sizeof *uses);
    for (uint32_t i = 0; i < c->n_memory; i++) {
        const mn_memory_params *from = c->memory[i].params;
        mn_memory_params *m = mn_sealed_copy(s, from, 1, sizeof *m);
        m->layers = mn_sealed_copy(s, from->layers, from->n_layers, sizeof *m->layers);
        uses[i].params = m;
        if (uses[i].layout)
            uses[i].layout = mn_sealed_copy(s, uses[i].layout, 1, sizeof *uses[i].layout);
    }
    copy->memory = uses;
}

const mn_compile *mn_given_compile(const mn_compile *c, mn_sealed **owner) {
    const uint32_t n = c->graph->n_symbols;
    size_t room = mn_sealed_sum(mn_sealed_room(1, sizeof *c), memory_room(c));
    room = mn_sealed_sum(room, mn_sealed_room(n, sizeof *c->symbol_max));
    room = mn_sealed_sum(room, mn_sealed_room(c->cache.len, 1));
    *owner = NULL;
    mn_sealed *s = mn_sealed_open(room);
    if (!s)
        return NULL;
    mn_compile *copy = mn_sealed_copy(s, c, 1, sizeof *c);
    copy->symbol_max = mn_sealed_copy(s, c->symbol_max, n, sizeof *c->symbol_max);
    if (c->cache.len)
        copy->cache.ptr = mn_sealed_copy(s, c->cache.ptr, c->cache.len, 1);
    copy_memory(s, c, copy);
    return given_seal(s, copy, owner);
}

/* ---- files of a model ------------------------------------------------------------------------ */
const mn_file *mn_given_files(const mn_file *files, uint32_t n, mn_sealed **owner) {
    size_t names = 0;
    for (uint32_t i = 0; i < n; i++)
        names = mn_sealed_sum(names, mn_sealed_sum(files[i].name.len, 1));
    *owner = NULL;
    mn_sealed *s =
        mn_sealed_open(mn_sealed_sum(mn_sealed_room(n, sizeof *files), mn_sealed_room(names, 1)));
    if (!s)
        return NULL;
    mn_file *copy = mn_sealed_copy(s, files, n, sizeof *files);
    char *at = mn_sealed_take(s, names, 1);
    for (uint32_t i = 0; i < n; i++)
        copy[i].name = copy_text(&at, files[i].name);
    return given_seal(s, copy, owner);
}
