/* vendor.c -- see vendor.h. Copies of the graph are made at the first question of a plugin and kept
 * until the graph is freed: there are as many as plugins with types of their own, and one more. The
 * lock guards the two lists; what is in them does not change. */
#include "graph/vendor.h"
#include "graph/build.h"
#include "model/rows.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct view {
    struct view *next;
    const mn_vendor_types *types; /* NULL: of no type */
    const mn_graph *given;
    mn_sealed *pages;
} view;
typedef struct kept {
    struct kept *next;
    const mn_weights *set;
    mn_sealed *pages;
} kept;
struct mn_graph_vendor {
    pthread_mutex_t lock;
    view *views;
    kept *kept;
};

mn_status mn_graph_vendor_begin(mn_model_graph *g) {
    bool any = false;
    for (uint32_t i = 0; i < g->abi.n_tensors; i++)
        any = any || mn_is_vendor_type(g->abi.tensors[i].dtype.id);
    if (!any)
        return MN_OK;
    g->vendor = mn_calloc(1, sizeof *g->vendor);
    if (!g->vendor)
        return mn_fail_memory(g->err, sizeof *g->vendor);
    pthread_mutex_init(&g->vendor->lock, NULL);
    return MN_OK;
}

void mn_graph_vendor_free(mn_graph_vendor *v) {
    if (!v)
        return;
    for (view *x = v->views; x; x = v->views) {
        v->views = x->next;
        mn_sealed_free(x->pages);
        mn_free(x);
    }
    for (kept *x = v->kept; x; x = v->kept) {
        v->kept = x->next;
        mn_sealed_free(x->pages);
        mn_free(x);
    }
    pthread_mutex_destroy(&v->lock);
    mn_free(v);
}

/* ---- the graph of a plugin ------------------------------------------------------------------- */
/* What the plugin calls the loader's type. */
static mn_status vendor_translate(const mn_model_graph *g, const mn_vendor_types *types,
                                  mn_dtype *type, mn_error *err) {
    const mn_vendor_type *stored = mn_vendor_type_of(g->model->types, type->id);
    const mn_vendor_type *own = mn_vendor_type_named(types, stored->spelled);
    if (!own) {
        mn_dtype_by_id(MN_F32, type);
        return MN_OK;
    }
    if (!mn_vendor_types_agree(stored, own))
        return mn_fail(err, MN_UNSUPPORTED,
                       "has blocks of %u elements in %u bytes for %s, the model's loader %u in %u",
                       own->type.dtype.block_elems, own->type.dtype.block_bytes, stored->spelled,
                       stored->type.dtype.block_elems, stored->type.dtype.block_bytes);
    *type = own->type.dtype;
    return MN_OK;
}

static mn_status make_view(const mn_model_graph *g, view *v, mn_error *err) {
    mn_graph copy = g->abi;
    const size_t n = copy.n_tensors;
    mn_tensor *tensors = mn_alloc(n, sizeof *tensors);
    mn_status st = MN_OK;
    if (!tensors)
        return mn_fail_memory(err, n * sizeof *tensors);
    memcpy(tensors, copy.tensors, n * sizeof *tensors);
    for (size_t i = 0; i < n && !st; i++)
        if (mn_is_vendor_type(tensors[i].dtype.id))
            st = vendor_translate(g, v->types, &tensors[i].dtype, err);
    copy.tensors = tensors;
    mn_gb_digest(&copy);
    if (!st)
        v->given = mn_given_graph(&copy, &v->pages);
    mn_free(tensors);
    if (!st && !v->given)
        st = mn_fail_memory(err, n * sizeof *tensors);
    return st;
}

/* Under the lock. */
static mn_status find_view(const mn_model_graph *g, const mn_vendor_types *types,
                           const mn_graph **out, mn_error *err) {
    view *v = g->vendor->views;
    while (v && v->types != types)
        v = v->next;
    if (!v) {
        v = mn_calloc(1, sizeof *v);
        if (!v)
            return mn_fail_memory(err, sizeof *v);
        v->types = types;
        const mn_status st = make_view(g, v, err);
        if (st) {
            mn_free(v);
            return st;
        }
        v->next = g->vendor->views;
        g->vendor->views = v;
    }
    *out = v->given;
    return MN_OK;
}

mn_status mn_graph_for(const mn_model_graph *g, const mn_vendor_types *types, const mn_graph **out,
                       mn_error *err) {
    *out = g->given;
    if (!g->vendor)
        return MN_OK;
    if (types && !types->n)
        types = NULL;
    pthread_mutex_lock(&g->vendor->lock);
    const mn_status st = find_view(g, types, out, err);
    pthread_mutex_unlock(&g->vendor->lock);
    return st;
}

void mn_graph_unpacked(const mn_model_graph *g, const mn_graph *given, char *out, size_t cap) {
    size_t len = 0;
    out[0] = 0;
    if (!g->vendor)
        return;
    const mn_vendor_types *types = g->model->types;
    for (uint32_t k = 0; k < types->n && len < cap; k++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < given->n_tensors; i++)
            n += g->abi.tensors[i].dtype.id == types->at[k].type.dtype.id &&
                 given->tensors[i].dtype.id == MN_F32;
        if (n)
            len += (size_t)snprintf(out + len, cap - len, "%s%u weights of %s", len ? ", " : "", n,
                                    types->at[k].spelled);
    }
    if (len && len < cap)
        snprintf(out + len, cap - len, " are unpacked to f32");
}

/* ---- values ---------------------------------------------------------------------------------- */
static void describe_dense(const mn_tensor *t, const float *values, mn_plane *plane) {
    int64_t stride = sizeof *values;
    *plane = (mn_plane){.ptr = values, .kind = MN_PLANE_DATA, .dtype = MN_F32};
    for (uint32_t d = t->n_dim; d-- > 0;) {
        plane->dim[d] = t->dim[d];
        plane->stride[d] = stride;
        stride *= t->dim[d];
    }
    plane->bytes = (uint64_t)stride;
}

mn_status mn_graph_unpack(const mn_model_graph *g, const mn_graph_weight *w, mn_plane *plane,
                          mn_sealed **pages, mn_error *err) {
    const mn_tensor_info *info = &w->source->info;
    const uint64_t rows = mn_row_count(info);
    const uint64_t cols = (uint64_t)info->dim[info->n_dim - 1];
    *pages = mn_sealed_open(mn_sealed_room(rows * cols, sizeof(float)));
    if (!*pages)
        return mn_fail_memory(err, rows * cols * sizeof(float));
    float *to = mn_sealed_take(*pages, rows * cols, sizeof *to);
    mn_status st = MN_OK;
    for (uint64_t r = 0; r < rows && !st; r++)
        st = mn_row_unpack(g->model->types, info, r, to + r * cols, err);
    describe_dense(&g->abi.tensors[w->tensor], to, plane);
    if (st)
        mn_sealed_free(*pages);
    else if (!mn_sealed_close(*pages))
        st = mn_fail_memory(err, rows * cols * sizeof *to);
    if (st)
        *pages = NULL;
    return st;
}

bool mn_graph_keep(const mn_model_graph *g, const mn_weights *set, mn_sealed *pages) {
    kept *k = mn_calloc(1, sizeof *k);
    if (!k)
        return false;
    k->set = set;
    k->pages = pages;
    pthread_mutex_lock(&g->vendor->lock);
    k->next = g->vendor->kept;
    g->vendor->kept = k;
    pthread_mutex_unlock(&g->vendor->lock);
    return true;
}

void mn_graph_drop(const mn_model_graph *g, const mn_weights *set) {
    if (!g->vendor)
        return;
    pthread_mutex_lock(&g->vendor->lock);
    for (kept **at = &g->vendor->kept; *at;) {
        kept *k = *at;
        if (k->set != set) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        mn_sealed_free(k->pages);
        mn_free(k);
    }
    pthread_mutex_unlock(&g->vendor->lock);
}
