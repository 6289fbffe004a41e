/* message.c -- bytes of messages. A graph is its arrays, one after the other, in the host's own
 * structs, whose strides it may have; views of texts become texts with their length. */
#include "graph/graph.h"
#include "ranks/ranks_impl.h"
#include <string.h>

#define MAX_INLINE (UINT64_C(64) << 20)
#define IN_MESSAGE UINT32_MAX /* instead of the index of a file */

void mn_put(mn_text *to, const void *bytes, size_t n) {
    if (n)
        mn_text_put(to, bytes, n);
}

void mn_put_u32(mn_text *to, uint32_t v) {
    mn_put(to, &v, sizeof v);
}

void mn_put_u64(mn_text *to, uint64_t v) {
    mn_put(to, &v, sizeof v);
}

void mn_put_bytes(mn_text *to, const void *bytes, uint64_t n) {
    mn_put_u64(to, n);
    mn_put(to, bytes, (size_t)n);
}

/* Bytes that are not read yet; 0 once the reader is bad. */
static uint64_t message_left(const mn_reader *r) {
    return r->bad ? 0 : (uint64_t)(r->end - r->at);
}

void mn_take(mn_reader *r, void *out, size_t n) {
    if (n > message_left(r)) {
        r->bad = true;
        memset(out, 0, n);
        return;
    }
    if (n)
        memcpy(out, r->at, n);
    r->at += n;
}

uint32_t mn_take_u32(mn_reader *r) {
    uint32_t v;
    mn_take(r, &v, sizeof v);
    return v;
}

uint64_t mn_take_u64(mn_reader *r) {
    uint64_t v;
    mn_take(r, &v, sizeof v);
    return v;
}

mn_str mn_take_bytes(mn_reader *r) {
    const uint64_t n = mn_take_u64(r);
    if (n > message_left(r)) {
        r->bad = true;
        return (mn_str){"", 0};
    }
    const mn_str s = {(const char *)r->at, n};
    r->at += n;
    return s;
}

/* n elements of a message, copied, for they may lie at any address; NULL: there are not as many, or
 * out of memory. */
static void *take_array(mn_reader *r, mn_arena *arena, uint64_t n, size_t size) {
    if (n > message_left(r) / size) {
        r->bad = true;
        return NULL;
    }
    void *to = mn_arena_alloc(arena, (size_t)n + 1, size);
    if (to)
        mn_take(r, to, (size_t)n * size);
    return to;
}

/* ---- graphs ---------------------------------------------------------------------------------- */
/* Counts first, so that a reader can tell a message that is cut from one that is not. */
static void put_graph(mn_text *to, const mn_graph *g) {
    const uint32_t counts[] = {g->n_nodes, g->n_tensors, g->n_symbols, g->n_operands};
    mn_put(to, counts, sizeof counts);
    mn_put_u64(to, g->n_attrs);
    mn_put_u32(to, g->n_blobs);
    mn_put(to, g->digest, sizeof g->digest);
    mn_put(to, &g->step, sizeof g->step);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        mn_put(to, (const char *)g->nodes + (size_t)i * g->node_stride, sizeof *g->nodes);
    for (uint32_t i = 0; i < g->n_symbols; i++)
        mn_put(to, (const char *)g->symbols + (size_t)i * g->symbol_stride, sizeof *g->symbols);
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        mn_tensor t;
        memcpy(&t, (const char *)g->tensors + (size_t)i * g->tensor_stride, sizeof t);
        const mn_str name = t.name;
        t.name = (mn_str){NULL, 0};
        mn_put(to, &t, sizeof t);
        mn_put_bytes(to, name.ptr, name.len);
    }
    mn_put(to, g->operands, g->n_operands * sizeof *g->operands);
    mn_put(to, g->attrs, (size_t)g->n_attrs * sizeof *g->attrs);
    for (uint32_t i = 0; i < g->n_blobs; i++)
        mn_put_bytes(to, g->blobs[i].ptr, g->blobs[i].len);
}

/* With names that live in the arena; NULL as take_array. */
static mn_tensor *take_tensors(mn_reader *r, mn_arena *arena, uint32_t n) {
    if (n > message_left(r) / sizeof(mn_tensor)) {
        r->bad = true;
        return NULL;
    }
    mn_tensor *t = mn_arena_alloc(arena, (size_t)n + 1, sizeof *t);
    for (uint32_t i = 0; t && i < n; i++) {
        mn_take(r, &t[i], sizeof t[i]);
        const mn_str name = mn_take_bytes(r);
        t[i].name.len = name.len;
        t[i].name.ptr = mn_arena_strndup(arena, name.ptr, (size_t)name.len);
        if (!t[i].name.ptr)
            return NULL;
    }
    return t;
}

/* The arena's; NULL as take_array. */
static mn_str *take_blobs(mn_reader *r, mn_arena *arena, uint32_t n) {
    if (n > message_left(r) / sizeof(uint64_t)) {
        r->bad = true;
        return NULL;
    }
    mn_str *blobs = mn_arena_alloc(arena, (size_t)n + 1, sizeof *blobs);
    for (uint32_t i = 0; blobs && i < n; i++) {
        const mn_str at = mn_take_bytes(r);
        char *to = mn_arena_alloc(arena, (size_t)at.len + 1, 1);
        if (!to)
            return NULL;
        if (at.len)
            memcpy(to, at.ptr, (size_t)at.len);
        blobs[i] = (mn_str){to, at.len};
    }
    return blobs;
}

static mn_status message_check_nodes(const mn_graph *g, mn_error *err) {
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const mn_node *n = &g->nodes[i];
        const uint64_t in = (uint64_t)n->in_off + n->n_in;
        const uint64_t out = (uint64_t)n->out_off + n->n_out;
        const uint64_t attrs = (uint64_t)n->attr_off + n->n_attr;
        if (in > g->n_operands || out > g->n_operands || attrs > g->n_attrs)
            return mn_fail(err, MN_BAD_INPUT, "node %u has operands that are not there", i);
    }
    for (uint32_t i = 0; i < g->n_operands; i++)
        if (g->operands[i] < -1 || g->operands[i] >= (int64_t)g->n_tensors)
            return mn_fail(err, MN_BAD_INPUT, "operand %u is no tensor", i);
    return MN_OK;
}

static mn_status check_tensors(const mn_graph *g, mn_error *err) {
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const mn_tensor *t = &g->tensors[i];
        if (t->n_dim > MN_MAX_DIM || t->alias_of < -1 || t->alias_of >= (int64_t)g->n_tensors)
            return mn_fail(err, MN_BAD_INPUT, "tensor %u has no shape", i);
        for (uint32_t k = 0; k < t->n_dim; k++)
            if (t->dim[k] < 0 && ~t->dim[k] >= (int64_t)g->n_symbols)
                return mn_fail(err, MN_BAD_INPUT, "tensor %u has a symbol that is not there", i);
    }
    return MN_OK;
}

/* Places within their arrays, and the host's own rules. */
static mn_status message_check_graph(const mn_graph *g, mn_error *err) {
    mn_status st = message_check_nodes(g, err);
    if (!st)
        st = check_tensors(g, err);
    if (st)
        return st;
    for (uint32_t i = 0; i < g->n_symbols; i++)
        if (g->symbols[i].base < -1 || g->symbols[i].base >= (int64_t)i)
            return mn_fail(err, MN_BAD_INPUT, "symbol %u has a base that is not there", i);
    if (g->step < -1 || g->step >= (int64_t)g->n_tensors)
        return mn_fail(err, MN_BAD_INPUT, "the facts of a step are no tensor");
    return mn_graph_check(g, err);
}

/* Whatever the bytes are, a graph that is returned is one that the host could have made. */
static mn_status take_graph(mn_reader *r, mn_arena *arena, const mn_graph **out, mn_error *err) {
    mn_graph *g = mn_arena_alloc(arena, 1, sizeof *g);
    if (!g)
        return mn_fail_memory(err, sizeof *g);
    g->size = sizeof *g;
    g->n_nodes = mn_take_u32(r);
    g->n_tensors = mn_take_u32(r);
    g->n_symbols = mn_take_u32(r);
    g->n_operands = mn_take_u32(r);
    g->n_attrs = mn_take_u64(r);
    g->n_blobs = mn_take_u32(r);
    g->node_stride = sizeof(mn_node);
    g->tensor_stride = sizeof(mn_tensor);
    g->symbol_stride = sizeof(mn_symbol);
    mn_take(r, g->digest, sizeof g->digest);
    mn_take(r, &g->step, sizeof g->step);
    g->nodes = take_array(r, arena, g->n_nodes, sizeof *g->nodes);
    g->symbols = take_array(r, arena, g->n_symbols, sizeof *g->symbols);
    g->tensors = take_tensors(r, arena, g->n_tensors);
    g->operands = take_array(r, arena, g->n_operands, sizeof *g->operands);
    g->attrs = take_array(r, arena, g->n_attrs, sizeof *g->attrs);
    g->blobs = take_blobs(r, arena, g->n_blobs);
    if (r->bad)
        return mn_fail(err, MN_BAD_INPUT, "the message ends inside of a graph");
    if (!g->nodes || !g->symbols || !g->tensors || !g->operands || !g->attrs || !g->blobs)
        return mn_fail_memory(err, message_left(r));
    *out = g;
    return message_check_graph(g, err);
}

/* ---- what is compiled ------------------------------------------------------------------------ */
static void put_memory(mn_text *to, const mn_compile *c) {
    for (uint32_t i = 0; i < c->n_memory; i++) {
        const mn_memory_use *use =
            (const mn_memory_use *)(const void *)((const char *)c->memory +
                                                  (size_t)i * c->memory_stride);
        const mn_memory_params *m = use->params;
        const uint32_t plain[] = {m->group, m->kind, m->k_dtype, m->v_dtype, m->n_layers};
        const mn_memory_layout none = {0};
        mn_put(to, plain, sizeof plain);
        for (uint32_t k = 0; k < m->n_layers; k++)
            mn_put(to, (const char *)m->layers + (size_t)k * m->layer_stride, sizeof *m->layers);
        mn_put(to, use->layout ? use->layout : &none, sizeof none);
    }
}

/* The next group; its layers and layout are the arena's. */
static mn_memory_use take_memory(mn_reader *r, mn_arena *arena) {
    mn_memory_params *m = mn_arena_alloc(arena, 1, sizeof *m);
    mn_memory_layout *layout = mn_arena_alloc(arena, 1, sizeof *layout);
    if (!m || !layout) {
        r->bad = true;
        return (mn_memory_use){0};
    }
    m->size = sizeof *m;
    m->group = mn_take_u32(r);
    m->kind = mn_take_u32(r);
    m->k_dtype = mn_take_u32(r);
    m->v_dtype = mn_take_u32(r);
    m->n_layers = mn_take_u32(r);
    m->layer_stride = sizeof *m->layers;
    m->layers = take_array(r, arena, m->n_layers, sizeof *m->layers);
    mn_take(r, layout, sizeof *layout);
    return (mn_memory_use){m, layout->size ? layout : NULL};
}

void mn_put_compile(mn_text *to, const mn_compile *c) {
    const uint32_t n_sets = MN_HAS(mn_compile, c, n_sets) ? c->n_sets : 0;
    const uint32_t plain[] = {c->precision, c->node_lo, c->node_hi, c->n_memory, n_sets};
    mn_put(to, plain, sizeof plain);
    mn_put_u64(to, MN_HAS(mn_compile, c, flags) ? c->flags : 0);
    put_graph(to, c->graph);
    mn_put(to, c->symbol_max, c->graph->n_symbols * sizeof *c->symbol_max);
    put_memory(to, c);
}

mn_status mn_take_compile(mn_reader *r, mn_arena *arena, mn_compile *out, mn_error *err) {
    *out = (mn_compile){.size = sizeof *out};
    out->precision = mn_take_u32(r);
    out->node_lo = mn_take_u32(r);
    out->node_hi = mn_take_u32(r);
    out->n_memory = mn_take_u32(r);
    out->n_sets = mn_take_u32(r);
    out->flags = mn_take_u64(r);
    const mn_status st = take_graph(r, arena, &out->graph, err);
    if (st)
        return st;
    out->symbol_max = take_array(r, arena, out->graph->n_symbols, sizeof *out->symbol_max);
    if (!out->symbol_max || out->node_lo > out->node_hi || out->node_hi > out->graph->n_nodes)
        return mn_fail(err, MN_BAD_INPUT, "a segment that is not in its graph");
    if (out->n_memory > message_left(r) / sizeof(mn_memory_layout))
        return mn_fail(err, MN_BAD_INPUT, "the message ends inside of the memory of a segment");
    mn_memory_use *uses = mn_arena_alloc(arena, out->n_memory + 1ull, sizeof *uses);
    for (uint32_t i = 0; uses && i < out->n_memory; i++)
        uses[i] = take_memory(r, arena);
    out->memory = uses;
    out->memory_stride = sizeof *uses;
    if (!uses || r->bad)
        return mn_fail(err, MN_BAD_INPUT, "the message ends inside of the memory of a segment");
    return MN_OK;
}

/* ---- weights --------------------------------------------------------------------------------- */
/* The file that has these bytes; IN_MESSAGE: none. */
static uint32_t message_file_of(const mn_file_set *files, const void *ptr, uint64_t bytes) {
    const uintptr_t at = (uintptr_t)ptr;
    for (uint32_t i = 0; i < files->n; i++) {
        const uintptr_t begin = (uintptr_t)files->files[i].map;
        const uint64_t size = files->files[i].bytes;
        if (at >= begin && at - begin <= size && bytes <= size - (at - begin))
            return i;
    }
    return IN_MESSAGE;
}

mn_status mn_put_weight(mn_text *to, const mn_file_set *files, const mn_weight_src *src,
                        mn_error *err) {
    const uint32_t counts[] = {src->tensor, src->n_parts, src->n_planes};
    mn_put(to, counts, sizeof counts);
    mn_put(to, &src->dtype, sizeof src->dtype);
    const uint64_t n = (uint64_t)src->n_parts * src->n_planes;
    for (uint64_t i = 0; i < n; i++) {
        mn_plane p;
        memcpy(&p, (const char *)src->planes + i * src->plane_stride, sizeof p);
        const void *bytes = p.ptr;
        const uint32_t file = message_file_of(files, bytes, p.bytes);
        if (file == IN_MESSAGE && p.bytes > MAX_INLINE)
            return mn_fail(err, MN_UNSUPPORTED,
                           "a weight of %llu bytes lies in no file that all ranks have",
                           (unsigned long long)p.bytes);
        p.ptr = NULL;
        mn_put(to, &p, sizeof p);
        mn_put_u32(to, file);
        if (file == IN_MESSAGE)
            mn_put_bytes(to, bytes, p.bytes);
        else
            mn_put_u64(
                to, (uint64_t)((const uint8_t *)bytes - (const uint8_t *)files->files[file].map));
    }
    return MN_OK;
}

/* The bytes of a plane. */
static void take_place(mn_reader *r, const mn_file_set *files, mn_arena *arena, mn_plane *p) {
    const uint32_t file = mn_take_u32(r);
    if (file == IN_MESSAGE) {
        const mn_str bytes = mn_take_bytes(r);
        void *copy = mn_arena_alloc(arena, (size_t)bytes.len + 1, 1);
        r->bad = r->bad || !copy || bytes.len != p->bytes;
        if (!r->bad)
            memcpy(copy, bytes.ptr, (size_t)bytes.len);
        p->ptr = copy;
        return;
    }
    const uint64_t at = mn_take_u64(r);
    if (file >= files->n || at > files->files[file].bytes ||
        p->bytes > files->files[file].bytes - at) {
        r->bad = true;
        return;
    }
    p->ptr = (const uint8_t *)files->files[file].map + at;
}

mn_status mn_take_weight(mn_reader *r, const mn_file_set *files, mn_arena *arena,
                         mn_weight_src *out, mn_error *err) {
    *out = (mn_weight_src){.size = sizeof *out, .plane_stride = sizeof(mn_plane)};
    out->tensor = mn_take_u32(r);
    out->n_parts = mn_take_u32(r);
    out->n_planes = mn_take_u32(r);
    mn_take(r, &out->dtype, sizeof out->dtype);
    const uint64_t n = (uint64_t)out->n_parts * out->n_planes;
    if (r->bad || n > message_left(r) / sizeof(mn_plane))
        return mn_fail(err, MN_BAD_INPUT, "the message ends inside of a weight");
    mn_plane *planes = mn_arena_alloc(arena, (size_t)n + 1, sizeof *planes);
    if (!planes)
        return mn_fail_memory(err, n * sizeof *planes);
    for (uint64_t i = 0; i < n; i++) {
        mn_take(r, &planes[i], sizeof planes[i]);
        take_place(r, files, arena, &planes[i]);
    }
    out->planes = planes;
    return r->bad ? mn_fail(err, MN_BAD_INPUT, "a weight that is not in the model's files") : MN_OK;
}

const char *mn_say_name(uint32_t say) {
    static const char *const names[MN_SAY_COUNT] = {
        "beat",          "reply",           "broken",      "bye",
        "join",          "device_close",    "memory",      "free",
        "alloc",         "queue_create",    "write",       "copy",
        "queue_wait",    "weights_open",    "weights_put", "weights_seal",
        "memory_layout", "memory_copy",     "compile",     "context_create",
        "context_bind",  "context_prepare", "execute"};
    return say < MN_SAY_COUNT ? names[say] : "?";
}
