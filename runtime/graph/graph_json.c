/* graph_json.c -- a graph as one JSON object, for people and tools: symbols, KV groups, tensors
 * with types and shapes, nodes in order with operands and attributes by their names in ops.def.
 * docs/command.md names the fields. Written from the graph alone, into the caller's text, whose
 * `failed` says that memory ran out. */
#include "graph/graph.h"
#include "json_out.h"
#include <stdio.h>
#include <string.h>

/* words[i]; "?" for a number that has none. */
static const char *graph_json_word(const char *const *words, uint32_t n, uint32_t i) {
    if (i < n && words[i])
        return words[i];
    return "?";
}

static void put_dim(json_out *j, const mn_graph *g, int64_t dim) {
    if (dim >= 0)
        json_int(j, dim);
    else if (~dim < (int64_t)g->n_symbols)
        json_z(j, g->symbols[~dim].name);
    else
        json_null(j);
}

static void symbol(json_out *j, const mn_graph *g, uint32_t i) {
    static const char *const kinds[] = {NULL, "shape", "bound", "fact"};
    const mn_symbol *s = &g->symbols[i];
    json_open(j, '{');
    json_put_z(j, "name", s->name);
    json_put_z(j, "kind", graph_json_word(kinds, MN_COUNT(kinds), s->kind));
    json_put_int(j, "min", s->min);
    json_put_int(j, "max", s->max);
    json_put_int(j, "typical", s->typical);
    if (s->base >= 0 && s->base < (int32_t)g->n_symbols) {
        json_put_z(j, "base", g->symbols[s->base].name);
        json_put_int(j, "mul", s->mul);
        json_put_int(j, "add", s->add);
    }
    json_close(j);
}

static void kv_group(json_out *j, const mn_hparams *hp, uint32_t i) {
    const mn_kv_group *kv = &hp->kv[i];
    json_open(j, '{');
    json_put_int(j, "window", kv->window);
    json_put_int(j, "n_head_kv", kv->n_head_kv);
    json_put_int(j, "head_dim_k", kv->head_dim_k);
    json_put_int(j, "head_dim_v", kv->head_dim_v);
    json_put_array(j, "layers");
    for (int64_t l = 0; l < hp->n_layer; l++)
        if (hp->layer[l].kv_group == i)
            json_int(j, l);
    json_close(j);
    json_close(j);
}

static void graph_json_tensor(json_out *j, const mn_graph *g, uint32_t i) {
    static const char *const roles[] = {NULL, "input", "output", "weight", "state", "interior"};
    const mn_tensor *t = &g->tensors[i];
    json_open(j, '{');
    json_key(j, "name");
    json_mn_str(j, t->name);
    json_put_z(j, "role", graph_json_word(roles, MN_COUNT(roles), t->role));
    json_put_z(j, "type", mn_dtype_name(t->dtype.id));
    json_put_array(j, "shape");
    for (uint32_t d = 0; d < t->n_dim; d++)
        put_dim(j, g, t->dim[d]);
    json_close(j);
    if (t->alias_of >= 0) {
        json_put_int(j, "view_of", t->alias_of);
        json_put_int(j, "offset", t->offset);
        json_put_array(j, "stride");
        for (uint32_t d = 0; d < t->n_dim; d++)
            json_int(j, t->stride[d]);
        json_close(j);
    }
    json_close(j);
}

/* The operands that are there; is_in: inputs, else outputs. */
static void operands(json_out *j, const mn_graph *g, const mn_node *n, bool is_in) {
    for (uint32_t i = 0; i < (is_in ? n->n_in : n->n_out); i++) {
        const int32_t t = g->operands[(is_in ? n->in_off : n->out_off) + i];
        if (t < 0)
            continue;
        json_open(j, '{');
        json_put_z(j, "operand", is_in ? mn_op_input_name(n, i) : mn_op_output_name(n, i));
        json_put_int(j, "tensor", t);
        json_close(j);
    }
}

/* Integers as they are, F64 with all digits; what is no number of JSON is null. */
static void attributes(json_out *j, const mn_graph *g, const mn_node *n) {
    for (uint32_t i = 0; i < n->n_attr; i++) {
        bool is_f64;
        const char *name = mn_op_attr_name(n, i, &is_f64);
        const uint64_t bits = g->attrs[n->attr_off + i];
        double v;
        memcpy(&v, &bits, sizeof v);
        if (is_f64)
            json_put_num(j, name, v);
        else
            json_put_int(j, name, (int64_t)bits);
    }
}

static void node(json_out *j, const mn_graph *g, uint32_t i) {
    const mn_node *n = &g->nodes[i];
    const mn_op_info *op = mn_op_find(n->op);
    json_open(j, '{');
    json_put_z(j, "op", op ? op->name : "?");
    json_put_uint(j, "contract", n->contract);
    json_put_int(j, "layer", n->layer);
    json_put_array(j, "in");
    operands(j, g, n, true);
    json_close(j);
    json_put_array(j, "out");
    operands(j, g, n, false);
    json_close(j);
    json_put_object(j, "attributes");
    attributes(j, g, n);
    json_close(j);
    json_close(j);
}

/* Their bytes are not for people: how many there are, and a hash of them. An attribute that is a
 * blob is its index here + 1. */
static void graph_json_blob(json_out *j, const mn_graph *g, uint32_t i) {
    char hash[17];
    snprintf(hash, sizeof hash, "%016llx",
             (unsigned long long)mn_hash(g->blobs[i].ptr, g->blobs[i].len, 0));
    json_open(j, '{');
    json_put_uint(j, "bytes", g->blobs[i].len);
    json_put_z(j, "hash", hash);
    json_close(j);
}

/* "key":[...] of n elements. */
static void graph_json_each(json_out *j, const char *key, const mn_graph *g, uint32_t n,
                            void (*put)(json_out *, const mn_graph *, uint32_t)) {
    json_put_array(j, key);
    for (uint32_t i = 0; i < n; i++)
        put(j, g, i);
    json_close(j);
}

void mn_graph_json(const mn_model_graph *g, mn_text *out) {
    json_out j = json_to_text(out);
    json_open(&j, '{');
    json_put_z(&j, "arch", g->hp.arch);
    json_put_int(&j, "layers", g->hp.n_layer);
    json_put_array(&j, "kv_groups");
    for (uint32_t i = 0; i < g->hp.n_kv; i++)
        kv_group(&j, &g->hp, i);
    json_close(&j);
    graph_json_each(&j, "symbols", &g->abi, g->abi.n_symbols, symbol);
    graph_json_each(&j, "tensors", &g->abi, g->abi.n_tensors, graph_json_tensor);
    graph_json_each(&j, "nodes", &g->abi, g->abi.n_nodes, node);
    graph_json_each(&j, "blobs", &g->abi, g->abi.n_blobs, graph_json_blob);
    json_close(&j);
}
