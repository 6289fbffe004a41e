/* between.c -- stands between the host and the plugin inner/NAME.so beside it, and plays the
 * release whose plugin.h it was compiled with toward both. Toward the plugin every struct and array
 * is a block of its own, exactly as large as in that release, and whatever the real host did not
 * fill is garbage: a read or write past what the release has is seen by the address sanitizer, a
 * use of what was not filled by what comes out. It uses fields of the first release alone.
 *   BETWEEN_ID "reference"   BETWEEN_KIND MN_KIND_BACKEND
 * Options: older = 1: claims the contract before its own for every op, and still answers
 * "native". */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UP_TO(T, f) (offsetof(T, f) + sizeof(((T *)0)->f))
#define GARBAGE 0xA5
#define BLOCK(T, from) ((T *)block((from), (from)->size, sizeof(T)))

MN_PLUGIN_NOTE(BETWEEN_ID, BETWEEN_KIND, "");

/* Everything that must live until the end hangs here. */
typedef struct kept {
    struct kept *next;
    const void *key;
    uint64_t digest[4];
    void *value;
} kept;
static kept *list;
static const mn_plugin *inner;
static const mn_backend *backend;
static const mn_loader *loader;
static mn_backend *self_backend;
static mn_loader *self_loader;
static mn_op_contract *own_contracts;
static uint32_t n_contracts;
static bool older;

static void *must(void *p) {
    if (!p)
        abort(); /* a test: there is no other answer */
    return p;
}

static void *fresh(uint64_t bytes) {
    void *p = must(malloc(bytes ? bytes : 1));
    memset(p, GARBAGE, bytes);
    return p;
}

/* A struct of this release: what the other side filled of it, and garbage. */
static void *block(const void *from, uint32_t have, uint32_t size) {
    void *p = fresh(size);
    memcpy(p, from, have < size ? have : size);
    memcpy(p, &size, sizeof size);
    return p;
}

/* An array of this release's elements. */
static void *array(const void *from, uint64_t n, uint32_t have, uint32_t size) {
    char *p = fresh(n * size);
    for (uint64_t i = 0; i < n; i++)
        memcpy(p + i * size, (const char *)from + i * have, have < size ? have : size);
    return p;
}

static void *keep(const void *key, void *value) {
    kept *k = must(calloc(1, sizeof *k));
    *k = (kept){.next = list, .key = key, .value = value};
    list = k;
    return value;
}

static void broken(const char *what) {
    fprintf(stderr, "between %s: %s\n", BETWEEN_ID, what);
    abort();
}

/* Hands an output back: the plugin says how much it filled, and has left the rest alone. */
static void give(void *to, void *from, uint32_t capacity, bool filled) {
    uint32_t size;
    uint32_t room;
    memcpy(&size, from, sizeof size);
    memcpy(&room, to, sizeof room);
    if (size > capacity)
        broken("an output says that it is larger than its capacity");
    for (uint32_t i = size; i < capacity; i++)
        if (((uint8_t *)from)[i] != GARBAGE)
            broken("an output was written past the size that it states");
    if (filled) {
        uint32_t n = size < room ? size : room;
        memcpy(to, from, n);
        memcpy(to, &n, sizeof n);
    }
    free(from);
}

/* ---- backend --------------------------------------------------------------------------------- */
static const mn_graph *graph(const mn_graph *g) {
    for (kept *k = list; k; k = k->next)
        if (k->key == g && !memcmp(k->digest, g->digest, sizeof k->digest))
            return k->value;
    mn_graph *o = BLOCK(mn_graph, g);
    o->node_stride = sizeof(mn_node);
    o->tensor_stride = sizeof(mn_tensor);
    o->symbol_stride = sizeof(mn_symbol);
    o->nodes = keep(NULL, array(g->nodes, g->n_nodes, g->node_stride, sizeof(mn_node)));
    o->tensors = keep(NULL, array(g->tensors, g->n_tensors, g->tensor_stride, sizeof(mn_tensor)));
    o->symbols = keep(NULL, array(g->symbols, g->n_symbols, g->symbol_stride, sizeof(mn_symbol)));
    o->operands = keep(NULL, array(g->operands, g->n_operands, 4, 4));
    o->attrs = keep(NULL, array(g->attrs, g->n_attrs, 8, 8));
    keep(g, o);
    memcpy(list->digest, g->digest, sizeof list->digest);
    return o;
}

static mn_compile *compile_of(const mn_compile *c) {
    mn_compile *o = BLOCK(mn_compile, c);
    o->graph = graph(c->graph);
    o->symbol_max = array(c->symbol_max, c->graph->n_symbols, 8, 8);
    return o;
}

static void drop(mn_compile *c) {
    free((void *)c->symbol_max);
    free(c);
}

static mn_status device_info(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    mn_device_info *own = fresh(sizeof *own);
    own->size = sizeof *own;
    mn_status st = backend->device_info(self, i, own, err);
    give(out, own, sizeof *own, !st);
    return st;
}

static mn_status contracts(void *self, const mn_op_contract **table, uint32_t *n,
                           uint32_t *stride) {
    const mn_op_contract *from;
    uint32_t step;
    mn_status st = backend->contracts(self, &from, &n_contracts, &step);
    if (st)
        return st;
    if (!own_contracts) {
        own_contracts = keep(NULL, array(from, n_contracts, step, sizeof *own_contracts));
        for (uint32_t i = 0; i < n_contracts; i++)
            own_contracts[i].contract -= older;
    }
    *table = own_contracts;
    *n = n_contracts;
    *stride = sizeof *own_contracts;
    return MN_OK;
}

static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *out, uint32_t stride,
                          mn_error *err) {
    mn_compile *ask = compile_of(c);
    const uint32_t n = c->node_hi - c->node_lo;
    mn_verdict *own = fresh(n * sizeof *own);
    mn_status st = backend->supports(d, ask, own, sizeof *own, err);
    for (uint32_t i = 0; i < n && !st; i++)
        memcpy((char *)out + (uint64_t)i * stride, &own[i],
               stride < sizeof *own ? stride : sizeof *own);
    free(own);
    drop(ask);
    return st;
}

static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    mn_compile *ask = compile_of(c);
    mn_estimate *own = fresh(sizeof *own);
    own->size = sizeof *own;
    mn_status st = backend->estimate(d, ask, own, err);
    give(out, own, sizeof *own, !st);
    drop(ask);
    return st;
}

static mn_status memory_layout(mn_device *d, const mn_compile *c, uint32_t group,
                               mn_memory_layout *out, mn_error *err) {
    mn_compile *ask = compile_of(c);
    mn_memory_layout *own = fresh(sizeof *own);
    own->size = sizeof *own;
    mn_status st = backend->memory_layout(d, ask, group, own, err);
    give(out, own, sizeof *own, !st);
    drop(ask);
    return st;
}

static mn_status memory_copy(mn_queue *q, mn_buffer *kv, const mn_memory_layout *l,
                             const mn_page_copy *copies, uint32_t n, uint32_t stride,
                             mn_event **event, mn_error *err) {
    mn_memory_layout *layout = BLOCK(mn_memory_layout, l);
    mn_page_copy *own = array(copies, n, stride, sizeof *own);
    mn_status st = backend->memory_copy(q, kv, layout, own, n, sizeof *own, event, err);
    free(own);
    free(layout);
    return st;
}

static mn_status weights_open(mn_device *d, const mn_compile *c, mn_weights **out, mn_error *err) {
    mn_compile *ask = compile_of(c);
    mn_status st = backend->weights_open(d, ask, out, err);
    drop(ask);
    return st;
}

static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **event,
                             mn_error *err) {
    mn_weight_src *own = BLOCK(mn_weight_src, src);
    /* may be read until the event */
    own->planes = keep(NULL, array(src->planes, (uint64_t)src->n_parts * src->n_planes,
                                   src->plane_stride, sizeof(mn_plane)));
    own->plane_stride = sizeof(mn_plane);
    mn_status st = backend->weights_put(w, q, own, event, err);
    keep(NULL, own);
    return st;
}

static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    mn_compile *ask = compile_of(c);
    mn_status st = backend->compile(d, ask, out, err);
    drop(ask);
    return st;
}

static mn_status device_open(void *self, uint32_t i, const mn_open_params *params, mn_device **out,
                             mn_error *err) {
    mn_open_params *own = BLOCK(mn_open_params, params);
    mn_status st = backend->device_open(self, i, own, out, err);
    free(own);
    return st;
}

static mn_status buffer_alloc(mn_device *d, const mn_alloc_params *params, mn_buffer **out,
                              mn_error *err) {
    mn_alloc_params *own = BLOCK(mn_alloc_params, params);
    mn_status st = backend->alloc(d, own, out, err);
    free(own);
    return st;
}

static mn_status queue_create(mn_device *d, const mn_queue_params *params, mn_queue **out,
                              mn_error *err) {
    mn_queue_params *own = BLOCK(mn_queue_params, params);
    mn_status st = backend->queue_create(d, own, out, err);
    free(own);
    return st;
}

static mn_status context_create(mn_program *p, const mn_context_params *params, mn_context **out,
                                mn_error *err) {
    mn_context_params *own = BLOCK(mn_context_params, params);
    mn_status st = backend->context_create(p, own, out, err);
    free(own);
    return st;
}

static mn_status context_prepare(mn_context *c, const mn_step *step, mn_error *err) {
    mn_step *own = BLOCK(mn_step, step);
    mn_status st = backend->context_prepare(c, own, err);
    free(own);
    return st;
}

static mn_status execute(mn_context *c, const mn_step *step, mn_event **event, mn_error *err) {
    mn_step *own = BLOCK(mn_step, step);
    mn_status st = backend->execute(c, own, event, err);
    free(own);
    return st;
}

static mn_status context_bind(mn_context *c, uint32_t set, const mn_binding *bindings, uint32_t n,
                              uint32_t stride, mn_error *err) {
    mn_binding *own = array(bindings, n, stride, sizeof *own);
    mn_status st = backend->context_bind(c, set, own, n, sizeof *own, err);
    free(own);
    return st;
}

/* The plugin's table as this release has it: what the plugin lacks is NULL. */
static const mn_backend *backend_of(const mn_backend *from) {
    if (self_backend)
        return self_backend;
    backend = from;
    mn_backend *o = self_backend = keep(NULL, must(calloc(1, sizeof *o)));
    memcpy(o, from, from->size < sizeof *o ? from->size : sizeof *o);
    o->size = sizeof *o;
    o->device_info = device_info;
    o->contracts = contracts;
    o->supports = supports;
    o->estimate = estimate;
    o->memory_layout = memory_layout;
    o->memory_copy = memory_copy;
    o->weights_open = weights_open;
    o->weights_put = weights_put;
    o->compile = compile;
    o->context_bind = context_bind;
    o->device_open = device_open;
    o->alloc = buffer_alloc;
    o->queue_create = queue_create;
    o->context_create = context_create;
    if (o->context_prepare)
        o->context_prepare = context_prepare;
    o->execute = execute;
    return o;
}

/* ---- loader ---------------------------------------------------------------------------------- */
static mn_status guess(void *self, const mn_file *files, uint32_t n, uint32_t stride,
                       mn_guess *out) {
    mn_file *own_files = array(files, n, stride, sizeof *own_files);
    mn_guess *own = fresh(sizeof *own);
    own->size = sizeof *own;
    mn_status st = loader->guess(self, own_files, n, sizeof *own_files, own);
    give(out, own, sizeof *own, !st);
    free(own_files);
    return st;
}

static mn_status open_model(void *self, const mn_file *files, uint32_t n, uint32_t stride,
                            mn_parsed **out, mn_error *err) {
    return loader->open(self, keep(NULL, array(files, n, stride, sizeof(mn_file))), n,
                        sizeof(mn_file), out, err);
}

static mn_status meta_at(mn_parsed *p, uint32_t i, mn_str *key, mn_str *native, mn_value *out) {
    mn_value *own = fresh(sizeof *own);
    own->size = sizeof *own;
    mn_status st = loader->meta_at(p, i, key, native, own);
    give(out, own, sizeof *own, !st);
    return st;
}

/* Planes go to the host as this release's, each array a block. */
static mn_status tensor_at(mn_parsed *p, uint32_t i, mn_tensor_info *out) {
    mn_tensor_info *own = fresh(sizeof *own);
    own->size = sizeof *own;
    mn_status st = loader->tensor_at(p, i, own);
    if (!st) {
        own->planes = keep(NULL, array(own->planes, (uint64_t)own->n_parts * own->n_planes,
                                       own->plane_stride, sizeof(mn_plane)));
        own->plane_stride = sizeof(mn_plane);
    }
    give(out, own, sizeof *own, !st);
    return st;
}

static mn_status patterns(void *self, uint32_t i, mn_file_pattern *out) {
    mn_file_pattern *own = fresh(sizeof *own);
    own->size = sizeof *own;
    mn_status st = loader->patterns(self, i, own);
    give(out, own, sizeof *own, !st);
    return st;
}

static const mn_loader *loader_of(const mn_loader *from) {
    if (self_loader)
        return self_loader;
    loader = from;
    mn_loader *o = self_loader = keep(NULL, must(calloc(1, sizeof *o)));
    memcpy(o, from, from->size < sizeof *o ? from->size : sizeof *o);
    o->size = sizeof *o;
    o->guess = guess;
    o->open = open_model;
    o->meta_at = meta_at;
    o->tensor_at = tensor_at;
    o->patterns = patterns;
    return o;
}

/* ---- the plugin ------------------------------------------------------------------------------ */
static const void *query(void *self, const char *id) {
    const void *table = inner->query(self, id);
    if (table && !strcmp(id, MN_BACKEND_ID))
        return backend_of(table);
    if (table && !strcmp(id, MN_LOADER_ID))
        return loader_of(table);
    return table;
}

static void shutdown(void *self) {
    if (MN_HAS(mn_plugin, inner, shutdown))
        inner->shutdown(self);
    for (kept *k = list, *next; k; k = next) {
        next = k->next;
        free(k->value);
        free(k);
    }
    list = NULL;
    self_backend = NULL;
    self_loader = NULL;
    own_contracts = NULL;
}

static mn_entry_fn inner_entry(void) {
    Dl_info own;
    char path[4096];
    if (!dladdr((const void *)&inner, &own))
        return NULL;
    const char *slash = strrchr(own.dli_fname, '/');
    snprintf(path, sizeof path, "%.*s/inner%s", (int)(slash - own.dli_fname), own.dli_fname, slash);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = handle ? dlsym(handle, MN_ENTRY_NAME) : NULL;
    mn_entry_fn entry = NULL;
    if (!symbol)
        fprintf(stderr, "between %s: %s\n", BETWEEN_ID, dlerror());
    memcpy(&entry, &symbol, sizeof entry);
    return entry;
}

static void no_service(void) {
    broken("a service that this release does not have was called");
}

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    mn_entry_fn entry = inner_entry();
    if (!entry)
        return NULL;
    mn_str value;
    older = MN_HAS(mn_host, host, option) && host->option(host->self, "older", &value) == 1 &&
            value.len && value.ptr[0] == '1';
    mn_host *own_host = keep(NULL, BLOCK(mn_host, host));
    own_host->abi = MN_ABI_VERSION;
    own_host->abi_min = MN_ABI_OLDEST;
    for (size_t at = UP_TO(mn_host, team); at + sizeof(void (*)(void)) <= sizeof *own_host;
         at += sizeof(void (*)(void))) {
        void (*fn)(void) = no_service; /* what came after the first release */
        memcpy((char *)own_host + at, &fn, sizeof fn);
    }
    inner = entry(own_host, err);
    if (!inner)
        return NULL;
    mn_plugin *own = keep(NULL, BLOCK(mn_plugin, inner));
    own->abi = MN_ABI_VERSION;
    own->flags = 0;
    own->query = query;
    own->shutdown = shutdown;
    return own;
}
