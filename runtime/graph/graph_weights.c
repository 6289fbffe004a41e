/* graph_weights.c -- weights of the graph: the model's tensors by name, shape and type.
 *
 * Data stays where the loader's planes point. Every failure names file and tensor as the checkpoint
 * calls it. */
#include "graph/weights.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mn_gb_full_name(const mn_model_graph *g, const char *name, char full[MN_GB_NAME]) {
    const char *mark = strstr(name, "%d");
    if (!mark) {
        snprintf(full, MN_GB_NAME, "%s", name);
        return;
    }
    const int before = (int)(mark - name);
    const bool decodes = g->hp.n_encoder && g->layer >= g->hp.n_encoder;
    const char *half = "";
    int layer = g->layer;
    if (g->hp.n_encoder)
        half = decodes ? "dec." : "enc.";
    if (decodes)
        layer -= (int)g->hp.n_encoder;
    snprintf(full, MN_GB_NAME, "%s%.*s%d%s", half, before, name, layer, mark + 2);
}

/* "blk.3.attn_q.bias" of the first layer, or of the next: what a whole model has, its layers
 * have. */
static const mn_model_tensor_entry *of_other_layer(const mn_model_graph *g, const char *full) {
    char other[MN_GB_NAME];
    char *end;
    if (strncmp(full, "blk.", 4))
        return NULL;
    const long layer = strtol(full + 4, &end, 10);
    snprintf(other, sizeof other, "blk.%ld%s", layer ? 0 : layer + 1, end);
    return mn_canonical_tensor(g->model, other);
}

/* What most checkpoints call the tensors outside of layers; NULL = not one of these. */
static const char *native_name(const char *full) {
    static const char *const top[][2] = {{"token_embd.weight", "model.embed_tokens.weight"},
                                         {"output_norm.weight", "model.norm.weight"},
                                         {"output.weight", "lm_head.weight"}};
    for (size_t i = 0; i < MN_COUNT(top); i++)
        if (!strcmp(full, top[i][0]))
            return top[i][1];
    return NULL;
}

/* A tensor that is missing: an error unless it is optional and no other layer has it. */
static void absent(mn_model_graph *g, const char *full, bool optional) {
    const mn_model_tensor_entry *other = of_other_layer(g, full);
    const char *path = g->model->path;
    const char *native = native_name(full);
    if (!other && optional)
        return;
    if (other)
        mn_fail(g->err, MN_BAD_FILE, "%s: tensor %s is missing; another layer has it as %.*s", path,
                full, MN_STR_ARG(other->info.native));
    else if (native)
        mn_fail(g->err, MN_BAD_FILE, "%s: tensor %s is missing (in checkpoints such as %s)", path,
                full, native);
    else
        mn_fail(g->err, MN_BAD_FILE, "%s: tensor %s is missing", path, full);
    mn_gb_fail(g, MN_BAD_FILE);
}

const mn_model_tensor_entry *mn_gb_find(mn_model_graph *g, const char *full, bool optional) {
    if (g->status)
        return NULL;
    const mn_model_tensor_entry *e = mn_canonical_tensor(g->model, full);
    if (e)
        g->asked[e - g->model->tensors] = 1;
    if (!e)
        absent(g, full, optional);
    return e;
}

/* Whether the weight that the bias `name` belongs to is part of the graph. */
static bool has_used_weight(const mn_model_graph *g, mn_str name) {
    const size_t stem = name.len - strlen(".bias");
    char weight[MN_GB_NAME];
    snprintf(weight, sizeof weight, "%.*s.weight", (int)MN_MIN(stem, MN_GB_NAME - 8), name.ptr);
    const mn_model_tensor_entry *e = mn_canonical_tensor(g->model, weight);
    return e && g->asked[e - g->model->tensors];
}

void mn_gb_check_biases(mn_model_graph *g) {
    const mn_canonical *m = g->model;
    for (size_t i = 0; i < m->n_tensors && !g->status; i++) {
        const mn_tensor_info *t = &m->tensors[i].info;
        if (g->asked[i] || !mn_str_ends(t->name, ".bias") || !has_used_weight(g, t->name))
            continue;
        mn_status st = mn_fail(g->err, MN_UNSUPPORTED,
                               "%s: tensor %.*s: the architecture %s has no bias here; expected "
                               "its weight alone",
                               m->path, MN_STR_ARG(t->native), g->hp.arch);
        mn_gb_fail(g, st);
    }
}

/* "4096, 512" into text; it ends early where it does not fit. */
static void print_shape(const int64_t *dim, uint32_t n_dim, char *text, size_t cap) {
    size_t len = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < n_dim && len < cap; i++) {
        const char *comma = "";
        if (i)
            comma = ", ";
        len += (size_t)snprintf(text + len, cap - len, "%s%lld", comma, (long long)dim[i]);
    }
}

bool mn_gb_check_shape(mn_model_graph *g, const mn_tensor_info *t, uint32_t n_dim,
                       const int64_t *want) {
    char found[MN_MAX_DIM * 24];
    char expected[MN_MAX_DIM * 24];
    if (t->n_dim == n_dim && !memcmp(t->dim, want, n_dim * sizeof *want))
        return true;
    print_shape(t->dim, t->n_dim, found, sizeof found);
    print_shape(want, n_dim, expected, sizeof expected);
    mn_status st = mn_fail(g->err, MN_BAD_FILE,
                           "%s: tensor %.*s has the shape [%s]; the hyper-parameters say [%s]",
                           g->model->path, MN_STR_ARG(t->native), found, expected);
    return mn_gb_fail(g, st);
}

/* Bare integers are not numbers that a model multiplies with. */
static bool check_type(mn_model_graph *g, const mn_tensor_info *t) {
    const uint32_t id = t->dtype.id;
    if (mn_dtype_is_weight(id) || mn_is_vendor_type(id))
        return true;
    mn_status st = mn_fail(g->err, MN_UNSUPPORTED,
                           "%s: tensor %.*s has the type %s; expected a type of weights",
                           g->model->path, MN_STR_ARG(t->native), mn_dtype_name(id));
    return mn_gb_fail(g, st);
}

bool mn_gb_fits(mn_model_graph *g, const mn_tensor_info *t, uint32_t n_dim, const int64_t *dim) {
    return mn_gb_check_shape(g, t, n_dim, dim) && check_type(g, t);
}

/* Tied weights are asked for twice and are one tensor; -1 = not there yet. */
static int32_t known_weight(const mn_model_graph *g, const mn_model_tensor_entry *e) {
    for (uint32_t i = 0; i < g->n_weights; i++)
        if (g->weights[i].source == e)
            return g->weights[i].tensor;
    return -1;
}

int32_t mn_gb_weight_of(mn_model_graph *g, const char *name, uint32_t n_dim, const int64_t *dim,
                        mn_graph_weight w) {
    const mn_model_tensor_entry *e = w.source;
    uint32_t type = e->info.dtype.id;
    if (n_dim == 1 && e->info.n_parts > 1) {
        w = (mn_graph_weight){.constant = mn_gb_widen_vector(g, &e->info)};
        type = MN_F32;
        if (!w.constant)
            return -1;
    }
    return mn_gb_weight(g, name, type, n_dim, dim, w);
}

/* The model's tensor of this name, all of it; -1 = absent, or g has failed. */
static int32_t whole_weight(mn_model_graph *g, const char *name, bool optional, uint32_t n_dim,
                            const int64_t *dim) {
    char full[MN_GB_NAME];
    mn_gb_full_name(g, name, full);
    const mn_model_tensor_entry *e = mn_gb_find(g, full, optional);
    if (!e || !mn_gb_fits(g, &e->info, n_dim, dim))
        return -1;
    const int32_t known = known_weight(g, e);
    if (known >= 0)
        return known;
    return mn_gb_weight_of(g, full, n_dim, dim, (mn_graph_weight){.source = e, .whole = e});
}

int32_t mn_g_vector(mn_model_graph *g, const char *name, bool optional, int64_t n) {
    return whole_weight(g, name, optional, 1, &n);
}

int32_t mn_g_matrix(mn_model_graph *g, const char *name, bool optional, int64_t rows,
                    int64_t cols) {
    const int64_t dim[] = {rows, cols};
    return whole_weight(g, name, optional, 2, dim);
}

int32_t mn_g_table(mn_model_graph *g, const char *name, int64_t cols) {
    const mn_model_tensor_entry *e = mn_canonical_tensor(g->model, name);
    return mn_g_matrix(g, name, false, e ? e->info.dim[0] : 0, cols);
}

int32_t mn_g_experts(mn_model_graph *g, const char *name, bool optional, int64_t n, int64_t rows,
                     int64_t cols) {
    const int64_t dim[] = {n, rows, cols};
    return whole_weight(g, name, optional, 3, dim);
}

bool mn_g_has(const mn_model_graph *g, const char *name) {
    char full[MN_GB_NAME];
    mn_gb_full_name(g, name, full);
    return mn_canonical_tensor(g->model, full) != NULL;
}

int64_t mn_g_rows_of(const mn_model_graph *g, const char *name) {
    char full[MN_GB_NAME];
    mn_gb_full_name(g, name, full);
    const mn_model_tensor_entry *e = mn_canonical_tensor(g->model, full);
    return e ? e->info.dim[0] : 0;
}

void mn_g_ignore(mn_model_graph *g, const char *name) {
    char full[MN_GB_NAME];
    mn_gb_full_name(g, name, full);
    const mn_model_tensor_entry *e = mn_canonical_tensor(g->model, full);
    if (e && !g->status)
        g->asked[e - g->model->tensors] = 1;
}

void mn_g_need(mn_model_graph *g, const char *key) {
    if (g->status)
        return;
    mn_gb_fail(
        g, mn_fail(g->err, MN_BAD_FILE, "%s: missing key %s.%s", g->model->path, g->hp.arch, key));
}

void mn_g_refuse(mn_model_graph *g, const char *key, const char *what) {
    char full[MN_GB_NAME];
    int64_t n = 0;
    if (g->status)
        return;
    snprintf(full, sizeof full, "%s.%s", g->hp.arch, key);
    mn_status st = mn_meta_i64(&g->model->meta, full, 0, INT32_MAX, &n, g->err);
    if (st && st != MN_END)
        mn_gb_fail(g, mn_fail_in(g->err, st, "%s", g->model->path));
    if (!n)
        return;
    st = mn_fail(g->err, MN_UNSUPPORTED, "%s: key %s is %lld: %s are not supported; expected 0",
                 g->model->path, full, (long long)n, what);
    mn_gb_fail(g, st);
}
