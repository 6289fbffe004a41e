/* inspect_graph.c -- minerva inspect --graph: prints the graph of operations of mn_model_graph_json
 * as text or for Graphviz.
 *
 * Works on the parsed JSON, which the caller owns; its keys: docs/command.md. A missing value is
 * printed as "?". */
#include "inspect.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const cJSON *inspect_graph_get(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static const char *inspect_graph_text_of(const cJSON *object, const char *key) {
    const char *z = cJSON_GetStringValue(inspect_graph_get(object, key));
    return z ? z : "?";
}

static int64_t inspect_graph_number_of(const cJSON *object, const char *key, int64_t missing) {
    const cJSON *v = inspect_graph_get(object, key);
    return cJSON_IsNumber(v) ? (int64_t)v->valuedouble : missing;
}

/* ---- tensors by index ------------------------------------------------------------------------ */
typedef struct {
    const cJSON **v;
    size_t n;
} tensor_list;

/* list->v is malloc'ed. 0, or the exit code with the error printed. */
static int list_tensors(const cJSON *graph, tensor_list *list) {
    const cJSON *all = inspect_graph_get(graph, "tensors"), *item;
    list->n = 0;
    list->v = malloc(((size_t)cJSON_GetArraySize(all) + 1) * sizeof *list->v);
    if (!list->v)
        return no_memory();
    cJSON_ArrayForEach(item, all) list->v[list->n++] = item;
    return 0;
}

/* The tensor of an operand; *index: its number. NULL: there is none. */
static const cJSON *tensor_of(const tensor_list *list, const cJSON *operand, int64_t *index) {
    *index = inspect_graph_number_of(operand, "tensor", -1);
    return *index >= 0 && (size_t)*index < list->n ? list->v[*index] : NULL;
}

/* "[n_tokens, 8, 32]" */
static void put_shape(out_file *out, const cJSON *tensor) {
    const cJSON *d;
    const char *comma = "";
    out_puts(out, "[");
    cJSON_ArrayForEach(d, inspect_graph_get(tensor, "shape")) {
        if (cJSON_IsString(d))
            out_printf(out, "%s%s", comma, d->valuestring);
        else
            out_printf(out, "%s%.0f", comma, d->valuedouble);
        comma = ", ";
    }
    out_puts(out, "]");
}

/* ---- text ------------------------------------------------------------------------------------ */
/* "0-5, 7" */
static void put_layers(out_file *out, const cJSON *layers) {
    const int n = cJSON_GetArraySize(layers);
    for (int i = 0; i < n; i++) {
        const int first = cJSON_GetArrayItem(layers, i)->valueint;
        int last = first;
        while (i + 1 < n && cJSON_GetArrayItem(layers, i + 1)->valueint == last + 1) {
            last++;
            i++;
        }
        out_printf(out, "%s%d", first == cJSON_GetArrayItem(layers, 0)->valueint ? "" : ", ",
                   first);
        if (last > first)
            out_printf(out, "-%d", last);
    }
}

/* Name, kind, limits and the symbol that it is computed from. */
static void put_symbols(out_file *out, const cJSON *graph) {
    const cJSON *s;
    out_puts(out, "\nsymbols\n");
    cJSON_ArrayForEach(s, inspect_graph_get(graph, "symbols")) {
        out_printf(out, "  %-10s %-5s from %" PRId64, inspect_graph_text_of(s, "name"),
                   inspect_graph_text_of(s, "kind"), inspect_graph_number_of(s, "min", 0));
        if (inspect_graph_number_of(s, "max", INT32_MAX) < INT32_MAX)
            out_printf(out, " to %" PRId64, inspect_graph_number_of(s, "max", 0));
        if (inspect_graph_get(s, "base"))
            out_printf(out, ", %" PRId64 " * %s + %" PRId64, inspect_graph_number_of(s, "mul", 0),
                       inspect_graph_text_of(s, "base"), inspect_graph_number_of(s, "add", 0));
        out_puts(out, "\n");
    }
}

static void inspect_graph_put_groups(out_file *out, const cJSON *graph) {
    const cJSON *g;
    int i = 0;
    out_puts(out, "\nKV groups\n");
    cJSON_ArrayForEach(g, inspect_graph_get(graph, "kv_groups")) {
        out_printf(out, "  %d  %" PRId64 " heads, keys of %" PRId64 ", values of %" PRId64 ", ",
                   i++, inspect_graph_number_of(g, "n_head_kv", 0),
                   inspect_graph_number_of(g, "head_dim_k", 0),
                   inspect_graph_number_of(g, "head_dim_v", 0));
        if (inspect_graph_number_of(g, "window", 0))
            out_printf(out, "window %" PRId64, inspect_graph_number_of(g, "window", 0));
        else
            out_puts(out, "no window");
        out_puts(out, ", layers ");
        put_layers(out, inspect_graph_get(g, "layers"));
        out_puts(out, "\n");
    }
}

static void put_attributes(out_file *out, const cJSON *node) {
    const cJSON *a;
    cJSON_ArrayForEach(a, inspect_graph_get(node, "attributes")) {
        if (cJSON_IsNumber(a) && a->valuedouble != 0)
            out_printf(out, "  %s %.10g", a->string, a->valuedouble);
        if (!cJSON_IsNumber(a))
            out_printf(out, "  %s ?", a->string);
    }
}

/* One line per operand; mark: < in, > out. */
static void put_operands(out_file *out, const tensor_list *tensors, const cJSON *operands,
                         const char *mark) {
    const cJSON *o;
    int64_t index;
    cJSON_ArrayForEach(o, operands) {
        const cJSON *t = tensor_of(tensors, o, &index);
        out_printf(out, "        %s %-10s %s #%" PRId64 "  %s ", mark,
                   inspect_graph_text_of(o, "operand"), inspect_graph_text_of(t, "name"), index,
                   inspect_graph_text_of(t, "type"));
        put_shape(out, t);
        if (inspect_graph_get(t, "view_of"))
            out_printf(out, " view of #%" PRId64, inspect_graph_number_of(t, "view_of", -1));
        if (strcmp(inspect_graph_text_of(t, "role"), "interior"))
            out_printf(out, "  %s", inspect_graph_text_of(t, "role"));
        out_puts(out, "\n");
    }
}

int graph_as_text(const cJSON *graph, out_file *out) {
    tensor_list tensors;
    const cJSON *n;
    int i = 0, code = list_tensors(graph, &tensors);
    if (code)
        return code;
    out_printf(out, "%s: %" PRId64 " layers, %d nodes, %zu tensors\n",
               inspect_graph_text_of(graph, "arch"), inspect_graph_number_of(graph, "layers", 0),
               cJSON_GetArraySize(inspect_graph_get(graph, "nodes")), tensors.n);
    put_symbols(out, graph);
    inspect_graph_put_groups(out, graph);
    out_puts(out, "\nnodes (attributes that are 0 are omitted)\n");
    cJSON_ArrayForEach(n, inspect_graph_get(graph, "nodes")) {
        const int64_t layer = inspect_graph_number_of(n, "layer", -1);
        out_printf(out, "  %4d  %s", i++, inspect_graph_text_of(n, "op"));
        if (layer >= 0)
            out_printf(out, ", layer %" PRId64, layer);
        put_attributes(out, n);
        out_puts(out, "\n");
        put_operands(out, &tensors, inspect_graph_get(n, "in"), "<");
        put_operands(out, &tensors, inspect_graph_get(n, "out"), ">");
    }
    free(tensors.v);
    return 0;
}

/* ---- Graphviz -------------------------------------------------------------------------------- */
/* Escapes text for a quoted string. */
static void put_dot(out_file *out, const char *z) {
    for (; *z; z++) {
        if (*z == '"' || *z == '\\')
            out_puts(out, "\\");
        out_printf(out, "%c", (unsigned char)*z < 32 ? ' ' : *z);
    }
}

static int has_role(const cJSON *tensor, const char *role) {
    return !strcmp(inspect_graph_text_of(tensor, "role"), role);
}

/* A box with the op and its weights. */
static void dot_node(out_file *out, const tensor_list *tensors, const cJSON *node, int i) {
    const cJSON *o;
    int64_t index;
    out_printf(out, "    n%d [label=\"%s", i, inspect_graph_text_of(node, "op"));
    cJSON_ArrayForEach(o, inspect_graph_get(node, "in")) {
        const cJSON *t = tensor_of(tensors, o, &index);
        if (!has_role(t, "weight"))
            continue;
        out_puts(out, "\\n");
        put_dot(out, inspect_graph_text_of(t, "name"));
        out_printf(out, " %s ", inspect_graph_text_of(t, "type"));
        put_shape(out, t);
    }
    out_puts(out, "\"];\n");
}

/* The tensor that a view shows a part of; index itself if it is no view. */
static int64_t root_of(const tensor_list *tensors, int64_t index) {
    const int64_t root = inspect_graph_number_of(tensors->v[index], "view_of", index);
    return root >= 0 && (size_t)root < tensors->n ? root : index;
}

/* Edges to node i, from the node that writes a tensor or from the ellipse of an input; maker[t]:
 * the node that writes tensor t, -1: none yet. */
static void dot_edges(out_file *out, const tensor_list *tensors, const cJSON *node, int i,
                      int *maker) {
    const cJSON *o;
    int64_t index;
    cJSON_ArrayForEach(o, inspect_graph_get(node, "in")) {
        const cJSON *t = tensor_of(tensors, o, &index);
        if (!t || has_role(t, "weight"))
            continue;
        const int from = maker[root_of(tensors, index)];
        if (from >= 0)
            out_printf(out, "  n%d -> n%d [label=\"", from, i);
        else
            out_printf(out, "  t%" PRId64 " -> n%d [color=gray, constraint=false, label=\"", index,
                       i);
        if (from >= 0)
            put_shape(out, t);
        out_puts(out, "\"];\n");
    }
    cJSON_ArrayForEach(o, inspect_graph_get(node, "out")) {
        const cJSON *t = tensor_of(tensors, o, &index);
        if (!t)
            continue;
        maker[root_of(tensors, index)] = i;
        if (has_role(t, "output"))
            out_printf(out, "  n%d -> t%" PRId64 ";\n", i, index);
    }
}

/* Inputs and outputs of the model. */
static void dot_ellipses(out_file *out, const tensor_list *tensors) {
    for (size_t i = 0; i < tensors->n; i++) {
        const cJSON *t = tensors->v[i];
        if (has_role(t, "weight") || has_role(t, "interior"))
            continue;
        out_printf(out, "  t%zu [shape=ellipse, label=\"", i);
        put_dot(out, inspect_graph_text_of(t, "name"));
        out_printf(out, "\\n%s ", inspect_graph_text_of(t, "type"));
        put_shape(out, t);
        out_puts(out, "\"];\n");
    }
}

/* The nodes, grouped in one box per layer. */
static void dot_nodes(out_file *out, const tensor_list *tensors, const cJSON *nodes) {
    const cJSON *n;
    int64_t open = -1;
    int i = 0;
    cJSON_ArrayForEach(n, nodes) {
        const int64_t layer = inspect_graph_number_of(n, "layer", -1);
        if (layer != open && open >= 0)
            out_puts(out, "  }\n");
        if (layer != open && layer >= 0)
            out_printf(out, "  subgraph \"cluster_%d\" {\n    label=\"layer %" PRId64 "\";\n", i,
                       layer);
        open = layer;
        dot_node(out, tensors, n, i++);
    }
    if (open >= 0)
        out_puts(out, "  }\n");
}

int graph_as_dot(const cJSON *graph, out_file *out) {
    tensor_list tensors;
    const cJSON *n, *nodes = inspect_graph_get(graph, "nodes");
    int i = 0, code = list_tensors(graph, &tensors);
    int *maker = code ? NULL : malloc((tensors.n + 1) * sizeof *maker);
    if (!maker) {
        if (!code)
            free(tensors.v);
        return code ? code : no_memory();
    }
    for (size_t t = 0; t < tensors.n; t++)
        maker[t] = -1;
    out_puts(out, "digraph model {\n  label=\"");
    put_dot(out, inspect_graph_text_of(graph, "arch"));
    out_puts(out, "\";\n  node [shape=box];\n");
    dot_ellipses(out, &tensors);
    dot_nodes(out, &tensors, nodes);
    cJSON_ArrayForEach(n, nodes) dot_edges(out, &tensors, n, i++, maker);
    out_puts(out, "}\n");
    free(maker);
    free(tensors.v);
    return 0;
}
