/* graph_json.c -- a graph as one JSON object, for people and tools: symbols, KV groups, tensors
 * with types and shapes, nodes in order with operands and attributes by their names in ops.def.
 * docs/command.md names the fields. Written from the graph alone, into the caller's text, whose
 * `failed` says that memory ran out. */
#include "graph/graph.h"
#include <string.h>

/* words[i]; "?" for a number that has none. */
static const char *word(const char *const *words, uint32_t n, uint32_t i) {
    if (i < n && words[i])
        return words[i];
    return "?";
}

static void put_key(mn_text *out, const char *key, mn_str value) {
    mn_text_printf(out, "\"%s\":", key);
    mn_text_json(out, value);
}

/* Comma-separated, before all but the first. */
static void next(mn_text *out, uint32_t i) {
    if (i)
        mn_text_puts(out, ",");
}

static void put_dim(mn_text *out, const mn_graph *g, int64_t dim) {
    if (dim >= 0)
        mn_text_printf(out, "%lld", (long long)dim);
    else if (~dim < (int64_t)g->n_symbols)
        mn_text_json(out, mn_str_of(g->symbols[~dim].name));
    else
        mn_text_puts(out, "null");
}

static void symbol(mn_text *out, const mn_graph *g, uint32_t i) {
    static const char *const kinds[] = {NULL, "shape", "bound", "fact"};
    const mn_symbol *s = &g->symbols[i];
    mn_text_puts(out, "{");
    put_key(out, "name", mn_str_of(s->name));
    mn_text_printf(out, ",\"kind\":\"%s\",\"min\":%lld,\"max\":%lld,\"typical\":%lld",
                   word(kinds, MN_COUNT(kinds), s->kind), (long long)s->min, (long long)s->max,
                   (long long)s->typical);
    if (s->base >= 0 && s->base < (int32_t)g->n_symbols) {
        mn_text_puts(out, ",");
        put_key(out, "base", mn_str_of(g->symbols[s->base].name));
        mn_text_printf(out, ",\"mul\":%lld,\"add\":%lld", (long long)s->mul, (long long)s->add);
    }
    mn_text_puts(out, "}");
}

static void kv_group(mn_text *out, const mn_hparams *hp, uint32_t i) {
    const mn_kv_group *kv = &hp->kv[i];
    uint32_t n = 0;
    mn_text_printf(out,
                   "{\"window\":%lld,\"n_head_kv\":%lld,\"head_dim_k\":%lld,\"head_dim_v\":%lld,"
                   "\"layers\":[",
                   (long long)kv->window, (long long)kv->n_head_kv, (long long)kv->head_dim_k,
                   (long long)kv->head_dim_v);
    for (int64_t l = 0; l < hp->n_layer; l++) {
        if (hp->layer[l].kv_group != i)
            continue;
        next(out, n++);
        mn_text_printf(out, "%lld", (long long)l);
    }
    mn_text_puts(out, "]}");
}

static void tensor(mn_text *out, const mn_graph *g, uint32_t i) {
    static const char *const roles[] = {NULL, "input", "output", "weight", "state", "interior"};
    const mn_tensor *t = &g->tensors[i];
    mn_text_puts(out, "{");
    put_key(out, "name", t->name);
    mn_text_printf(out, ",\"role\":\"%s\",", word(roles, MN_COUNT(roles), t->role));
    put_key(out, "type", mn_str_of(mn_dtype_name(t->dtype.id)));
    mn_text_puts(out, ",\"shape\":[");
    for (uint32_t d = 0; d < t->n_dim; d++) {
        next(out, d);
        put_dim(out, g, t->dim[d]);
    }
    mn_text_puts(out, "]");
    if (t->alias_of >= 0) {
        mn_text_printf(out, ",\"view_of\":%d,\"offset\":%lld,\"stride\":[", t->alias_of,
                       (long long)t->offset);
        for (uint32_t d = 0; d < t->n_dim; d++) {
            next(out, d);
            mn_text_printf(out, "%lld", (long long)t->stride[d]);
        }
        mn_text_puts(out, "]");
    }
    mn_text_puts(out, "}");
}

/* The operands that are there; is_in: inputs, else outputs. */
static void operands(mn_text *out, const mn_graph *g, const mn_node *n, bool is_in) {
    uint32_t said = 0;
    for (uint32_t i = 0; i < (is_in ? n->n_in : n->n_out); i++) {
        const int32_t t = g->operands[(is_in ? n->in_off : n->out_off) + i];
        if (t < 0)
            continue;
        next(out, said++);
        mn_text_printf(out, "{\"operand\":\"%s\",\"tensor\":%d}",
                       is_in ? mn_op_input_name(n, i) : mn_op_output_name(n, i), t);
    }
}

/* Integers as they are, F64 with all digits; what is no number of JSON is null. */
static void attributes(mn_text *out, const mn_graph *g, const mn_node *n) {
    for (uint32_t i = 0; i < n->n_attr; i++) {
        bool is_f64;
        const char *name = mn_op_attr_name(n, i, &is_f64);
        const uint64_t bits = g->attrs[n->attr_off + i];
        double v;
        memcpy(&v, &bits, sizeof v);
        next(out, i);
        mn_text_printf(out, "\"%s\":", name);
        if (!is_f64)
            mn_text_printf(out, "%lld", (long long)(int64_t)bits);
        else if (v > -1e300 && v < 1e300)
            mn_text_printf(out, "%.17g", v);
        else
            mn_text_puts(out, "null");
    }
}

static void node(mn_text *out, const mn_graph *g, uint32_t i) {
    const mn_node *n = &g->nodes[i];
    const mn_op_info *op = mn_op_find(n->op);
    mn_text_printf(out, "{\"op\":\"%s\",\"contract\":%u,\"layer\":%d,\"in\":[", op ? op->name : "?",
                   n->contract, n->layer);
    operands(out, g, n, true);
    mn_text_puts(out, "],\"out\":[");
    operands(out, g, n, false);
    mn_text_puts(out, "],\"attributes\":{");
    attributes(out, g, n);
    mn_text_puts(out, "}}");
}

/* "key":[...] of n elements. */
static void each(mn_text *out, const char *key, const mn_graph *g, uint32_t n,
                 void (*put)(mn_text *, const mn_graph *, uint32_t)) {
    mn_text_printf(out, ",\"%s\":[", key);
    for (uint32_t i = 0; i < n; i++) {
        next(out, i);
        put(out, g, i);
    }
    mn_text_puts(out, "]");
}

void mn_graph_json(const mn_model_graph *g, mn_text *out) {
    mn_text_puts(out, "{");
    put_key(out, "arch", mn_str_of(g->hp.arch));
    mn_text_printf(out, ",\"layers\":%lld,\"kv_groups\":[", (long long)g->hp.n_layer);
    for (uint32_t i = 0; i < g->hp.n_kv; i++) {
        next(out, i);
        kv_group(out, &g->hp, i);
    }
    mn_text_puts(out, "]");
    each(out, "symbols", &g->abi, g->abi.n_symbols, symbol);
    each(out, "tensors", &g->abi, g->abi.n_tensors, tensor);
    each(out, "nodes", &g->abi, g->abi.n_nodes, node);
    mn_text_puts(out, "}");
}
