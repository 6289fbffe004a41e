/* shard_memory.c -- the memory of sequences on several devices: a member keeps its KV heads of a
 * group whose attention is divided, and everything of the others. */
#include "common.h"
#include "shard_impl.h"

/* The KV heads that a member keeps of a group, by the first ATTENTION that was divided; 0: all. */
static uint32_t heads_of_member(const mnp_shard *s, uint32_t rank, uint32_t group) {
    for (uint32_t i = s->lo; i < s->hi; i++) {
        const mn_node *n = mnp_node(s->g, i);
        const mnp_share kv = s->kv[(uint64_t)i * s->n + rank];
        if (n->op != MN_OP_ATTENTION || kv.hi <= kv.lo)
            continue;
        if ((uint32_t)mnp_attr(s->g, n, MN_ATTENTION_ATTR_GROUP) == group)
            return (uint32_t)(kv.hi - kv.lo);
    }
    return 0;
}

/* The layers of one group, as member `rank` has them. */
static void member_layers(const mnp_shard *s, uint32_t rank, const mn_memory_params *m,
                          mn_memory_layer *to) {
    uint32_t n_head = 0;
    if (m->kind == MN_MEMORY_PAGED)
        n_head = heads_of_member(s, rank, m->group);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        mnp_read(&to[i], sizeof to[i], mnp_memory_layer(m, i), m->layer_stride);
        if (n_head)
            to[i].n_head = n_head;
    }
}

static void member_memory(mnp_shard *s, uint32_t rank, const mn_compile *c) {
    mn_memory_layer *layers = s->layers + (uint64_t)rank * s->n_layers;
    for (uint32_t i = 0; i < s->n_memory; i++) {
        const mn_memory_use *use = (const mn_memory_use *)mnp_entry(c->memory, i, c->memory_stride);
        mn_memory_params *m = &s->params[(uint64_t)rank * s->n_memory + i];
        mnp_read(m, sizeof *m, use->params, use->params->size);
        member_layers(s, rank, use->params, layers);
        m->size = sizeof *m;
        m->layers = layers;
        m->layer_stride = sizeof *layers;
        s->memory[(uint64_t)rank * s->n_memory + i] = (mn_memory_use){m, NULL};
        layers += m->n_layers;
    }
}

mn_status shard_make_memory(mnp_shard *s, const mn_compile *c, mn_error *err) {
    s->n_memory = c->n_memory;
    for (uint32_t i = 0; i < c->n_memory; i++)
        s->n_layers +=
            ((const mn_memory_use *)mnp_entry(c->memory, i, c->memory_stride))->params->n_layers;
    const uint64_t uses = (uint64_t)s->n * s->n_memory;
    const uint64_t layers = (uint64_t)s->n * s->n_layers * sizeof *s->layers;
    s->memory = mnp_new(s->host, uses * sizeof *s->memory);
    s->params = mnp_new(s->host, uses * sizeof *s->params);
    s->layers = mnp_new(s->host, layers);
    if (!s->memory || !s->params || !s->layers)
        return mnp_fail_memory(err, layers, "the memory of a group");
    for (uint32_t r = 0; r < s->n; r++)
        member_memory(s, r, c);
    return MN_OK;
}

mn_compile mnp_shard_compile(const mnp_shard *s, uint32_t rank, const mn_compile *c) {
    mn_compile own = *c;
    own.graph = mnp_shard_graph(s, rank);
    own.memory = s->memory + (uint64_t)rank * s->n_memory;
    own.memory_stride = sizeof *s->memory;
    return own;
}
