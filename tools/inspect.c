/* inspect.c -- minerva inspect: metadata, tensors, totals per type of a model, whether it runs on
 * this machine, and its graph of operations (--graph; printed by inspect_graph.c).
 *
 * Weights are not read. Metadata and tensors are the model's (mn_model_meta, mn_model_tensor)
 * and valid until it is closed; whether it runs is the record of mn_model_explain. Long strings
 * and arrays are cut in text, never in JSON. */
#include "inspect.h"
#include "record.h"
#include "utf8.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *model;
    int graph, dot;
} inspect_flags;

static const arg_row rows[] = {
    {"MODEL", "a model", ARG_FILE, offsetof(inspect_flags, model), 0, 0, NULL,
     "the same as -m MODEL"},
};
static const arg_row graph_rows[] = {
    {"--graph", NULL, ARG_FLAG, offsetof(inspect_flags, graph), 0, 0, NULL,
     "instead: the model's graph of operations, its symbols and KV groups"},
    {"--dot", NULL, ARG_FLAG, offsetof(inspect_flags, dot), 0, 0, NULL,
     "with --graph: for Graphviz (minerva inspect --graph --dot | dot -Tsvg)"},
};

/* Element i of an array as a value of its own. */
static mn_value element(const mn_value *v, uint64_t i) {
    mn_value e = {sizeof e, v->type & 15u, 0, 0, {0, 0}, NULL, 0};
    switch (e.type) {
    case MN_VALUE_INT:
        e.i = ((const int64_t *)v->array)[i];
        break;
    case MN_VALUE_FLOAT:
        e.f = ((const double *)v->array)[i];
        break;
    case MN_VALUE_BOOL:
        e.i = ((const uint8_t *)v->array)[i];
        break;
    case MN_VALUE_STR:
        e.s = ((const mn_str *)v->array)[i];
        break;
    default:
        break;
    }
    return e;
}

/* A value that is no array, in JSON. */
static void json_scalar(json_out *j, const mn_value *v) {
    switch (v->type) {
    case MN_VALUE_INT:
        json_int(j, v->i);
        break;
    case MN_VALUE_FLOAT:
        json_num(j, v->f);
        break;
    case MN_VALUE_BOOL:
        json_bool(j, v->i != 0);
        break;
    case MN_VALUE_STR:
        json_str(j, v->s.ptr ? v->s.ptr : "", v->s.len);
        break;
    default:
        json_null(j);
    }
}

static void json_value(json_out *j, const mn_value *v) {
    if (!(v->type & MN_VALUE_ARRAY)) {
        json_scalar(j, v);
        return;
    }
    json_open(j, '[');
    for (uint64_t i = 0; i < v->n; i++) {
        mn_value e = element(v, i);
        json_scalar(j, &e);
    }
    json_close(j);
}

/* ---- totals per type ------------------------------------------------------------------------- */
#define MAX_TYPES 64
/* The tensors of one type. dtype is the model's. */
typedef struct {
    const char *dtype;
    uint64_t count, params, bytes;
} type_total;

static void inspect_add_tensor(type_total *total, const mn_tensor_item *t) {
    uint64_t params = 1;
    for (uint32_t d = 0; d < t->n_dim && d < MN_MAX_DIM; d++)
        params *= (uint64_t)t->dim[d];
    total->count++;
    total->params += params;
    total->bytes += t->bytes;
}

static int largest_first(const void *x, const void *y) {
    const type_total *a = x;
    const type_total *b = y;
    return (a->bytes < b->bytes) - (a->bytes > b->bytes);
}

/* Fills types, MAX_TYPES long, the largest first; their number. */
static size_t add_types(const app *a, type_total *types) {
    mn_tensor_item t;
    size_t n = 0;
    for (uint32_t i = 0; mn_model_tensor(a->model, i, &t) == MN_OK; i++) {
        size_t k = 0;
        while (k < n && strcmp(types[k].dtype, t.dtype))
            k++;
        if (k == MAX_TYPES)
            continue;
        if (k == n)
            types[n++] = (type_total){t.dtype, 0, 0, 0};
        inspect_add_tensor(&types[k], &t);
    }
    qsort(types, n, sizeof *types, largest_first);
    return n;
}

/* 1 if a session could be created; why: the device and the reason, or what prevents it; cost: of a
 * sequence there. */
static int runs_here(app *a, char *why, size_t cap, record_cost *cost) {
    char *text = NULL;
    *cost = (record_cost){0};
    if (mn_model_explain(a->model, NULL, &text, &a->err) != MN_OK) {
        snprintf(why, cap, "%s", a->err.msg);
        return 0;
    }
    cJSON *json = cJSON_Parse(text);
    const cJSON *placement = cJSON_GetObjectItemCaseSensitive(json, "placement");
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(json, "error");
    const char *device =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(placement, "device"));
    const char *reason = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(placement, "why"));
    const char *message = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(error, "message"));
    if (device)
        snprintf(why, cap, "%s: %s", device, reason ? reason : "");
    else
        snprintf(why, cap, "%s", message ? message : "no device can");
    if (!json)
        snprintf(why, cap, "out of memory");
    *cost = record_sequence_cost(placement);
    cJSON_Delete(json);
    mn_json_free(text);
    return device != NULL;
}

static void json_types(const app *a, json_out *j) {
    type_total types[MAX_TYPES];
    const size_t n = add_types(a, types);
    json_open(j, '[');
    for (size_t i = 0; i < n; i++) {
        json_open(j, '{');
        json_put_z(j, "dtype", types[i].dtype);
        json_put_uint(j, "count", types[i].count);
        json_put_uint(j, "params", types[i].params);
        json_put_uint(j, "bytes", types[i].bytes);
        json_close(j);
    }
    json_close(j);
}

static void json_tensors(const app *a, json_out *j) {
    mn_tensor_item t;
    json_open(j, '[');
    for (uint32_t i = 0; mn_model_tensor(a->model, i, &t) == MN_OK; i++) {
        json_open(j, '{');
        json_key(j, "name");
        json_str(j, t.name.ptr, t.name.len);
        json_put_z(j, "dtype", t.dtype);
        json_put_array(j, "dim");
        for (uint32_t d = 0; d < t.n_dim && d < MN_MAX_DIM; d++)
            json_int(j, t.dim[d]);
        json_close(j);
        json_put_uint(j, "bytes", t.bytes);
        json_key(j, "native");
        json_str(j, t.native.ptr ? t.native.ptr : "", t.native.len);
        json_key(j, "file");
        json_str(j, t.file.ptr, t.file.len);
        json_close(j);
    }
    json_close(j);
}

/* The whole output as one JSON object; its keys: docs/command.md. */
static void inspect_as_json(app *a, out_file *out) {
    char why[600];
    record_cost cost;
    const int runs = runs_here(a, why, sizeof why, &cost);
    json_out j = out_json(out);
    mn_str key;
    mn_value v = {.size = sizeof v};
    json_open(&j, '{');
    json_put_z(&j, "format", a->info.format);
    json_put_z(&j, "arch", a->info.arch);
    json_put_uint(&j, "params", a->info.n_params);
    json_put_uint(&j, "bytes", a->info.n_bytes);
    json_key(&j, "metadata");
    json_open(&j, '{');
    for (uint32_t i = 0; mn_model_meta(a->model, i, &key, &v) == MN_OK; i++) {
        json_key_n(&j, key.ptr, key.len);
        json_value(&j, &v);
    }
    json_close(&j);
    json_key(&j, "tensors");
    json_tensors(a, &j);
    json_key(&j, "types");
    json_types(a, &j);
    json_put_bool(&j, "draft_head", a->info.draft_head);
    json_put_bool(&j, "runs", runs);
    json_put_z(&j, "why", why);
    json_put_uint(&j, "state_bytes", (uint64_t)cost.state);
    json_put_uint(&j, "token_bytes", (uint64_t)cost.per_token);
    json_close(&j);
    json_line(&j);
}

/* ---- text: long strings and arrays are cut, with their length -------------------------------- */
#define SHOWN_BYTES 100
#define SHOWN_ELEMENTS 8

/* A value that is no array; a string is cut after SHOWN_BYTES, between characters. */
static void text_scalar(out_file *out, const mn_value *v) {
    json_out j = out_json(out);
    mn_value part = *v;
    if (v->type != MN_VALUE_STR || v->s.len <= SHOWN_BYTES) {
        json_scalar(&j, v);
        return;
    }
    for (part.s.len = 0; part.s.len < SHOWN_BYTES;) {
        int len = mn_utf8_length(v->s.ptr + part.s.len, v->s.len - part.s.len);
        part.s.len += len ? (uint64_t)len : 1;
    }
    json_scalar(&j, &part);
    out_printf(out, "... (%" PRIu64 " bytes)", v->s.len);
}

/* Any value; an array is cut after SHOWN_ELEMENTS. */
static void text_value(out_file *out, const mn_value *v) {
    if (!(v->type & MN_VALUE_ARRAY)) {
        text_scalar(out, v);
        return;
    }
    out_puts(out, "[");
    for (uint64_t i = 0; i < v->n && i < SHOWN_ELEMENTS; i++) {
        mn_value e = element(v, i);
        if (i)
            out_puts(out, ", ");
        text_scalar(out, &e);
    }
    if (v->n > SHOWN_ELEMENTS)
        out_printf(out, ", ... (%" PRIu64 " elements)", v->n);
    out_puts(out, "]");
}

static void tensor_table(const app *a, out_file *out) {
    static const char *const columns[] = {"tensor",           "type", "dim", "size", "file",
                                          "name in the file", NULL};
    table t;
    mn_tensor_item item;
    char dims[160], bytes[32];
    table_begin(&t, columns, 8);
    for (uint32_t i = 0; mn_model_tensor(a->model, i, &item) == MN_OK; i++) {
        size_t n = 0;
        dims[0] = 0;
        for (uint32_t d = 0; d < item.n_dim && d < MN_MAX_DIM; d++)
            n += (size_t)snprintf(dims + n, sizeof dims - n, "%s%" PRId64, d ? " x " : "",
                                  item.dim[d]);
        table_cell(&t, "%.*s", (int)item.name.len, item.name.ptr);
        table_cell(&t, "%s", item.dtype);
        table_cell(&t, "%s", dims);
        table_cell(&t, "%s", human_bytes(item.bytes, bytes));
        table_cell(&t, "%.*s", (int)item.file.len, item.file.ptr);
        table_cell(&t, "%.*s", (int)item.native.len, item.native.ptr ? item.native.ptr : "");
    }
    table_print(&t, TABLE_PLAIN, out);
    table_free(&t);
}

static void type_table(const app *a, out_file *out) {
    static const char *const columns[] = {"type", "tensors", "parameters", "size", NULL};
    type_total types[MAX_TYPES];
    const size_t n = add_types(a, types);
    char params[32], bytes[32];
    table t;
    table_begin(&t, columns, 2 | 4 | 8);
    for (size_t i = 0; i < n; i++) {
        table_cell(&t, "%s", types[i].dtype);
        table_cell(&t, "%" PRIu64, types[i].count);
        table_cell(&t, "%s", human_count(types[i].params, params));
        table_cell(&t, "%s", human_bytes(types[i].bytes, bytes));
    }
    table_print(&t, TABLE_PLAIN, out);
    table_free(&t);
}

static void as_text(app *a, out_file *out) {
    char why[600];
    record_cost cost;
    const int runs = runs_here(a, why, sizeof why, &cost);
    mn_str key;
    mn_value v = {.size = sizeof v};
    char params[32], bytes[32];
    out_printf(out, "%s\n", a->info.path);
    out_printf(out, "format %s, architecture %s%s, %s parameters, %s\n", a->info.format,
               a->info.arch, a->info.is_encoder ? " (an encoder: it embeds)" : "",
               human_count(a->info.n_params, params), human_bytes(a->info.n_bytes, bytes));
    if (a->info.draft_head)
        out_puts(out, "a draft head of its own (--draft mtp)\n");
    out_printf(out, "runs here: %s, %s\n", runs ? "yes" : "no", why);
    if (cost.state > 0 || cost.per_token > 0)
        out_printf(out, "%s\n", record_cost_text(&cost, why));
    out_puts(out, "\n");
    for (uint32_t i = 0; mn_model_meta(a->model, i, &key, &v) == MN_OK; i++) {
        out_printf(out, "%.*s = ", (int)key.len, key.ptr);
        text_value(out, &v);
        out_puts(out, "\n");
    }
    out_puts(out, "\n");
    tensor_table(a, out);
    out_puts(out, "\n");
    type_table(a, out);
}

/* ---- the graph ------------------------------------------------------------------------------- */
/* Prints the graph in the form of the flags. 0, or the exit code with the error printed. */
static int print_graph(app *a, const inspect_flags *f, out_file *out) {
    char *text = NULL;
    mn_status st = mn_model_graph_json(a->model, &text, &a->err);
    if (st != MN_OK)
        return app_fail(a, st);
    if (a->flags->json) {
        out_puts(out, text);
        out_puts(out, "\n");
        mn_json_free(text);
        return 0;
    }
    cJSON *graph = cJSON_Parse(text);
    mn_json_free(text);
    if (!graph)
        return no_memory();
    const int code = f->dot ? graph_as_dot(graph, out) : graph_as_text(graph, out);
    cJSON_Delete(graph);
    return code;
}

static int check_forms(const app_flags *flags, const inspect_flags *f) {
    if (f->dot && !f->graph)
        return complain(EXIT_USAGE, "found --dot without --graph, expected both");
    if (f->dot && flags->json)
        return complain(EXIT_USAGE, "found --dot and --json, expected one of them");
    return 0;
}

/* Everything after the parsing of the command line. */
static int inspect(app *a, const app_flags *flags, const inspect_flags *f, out_file *out) {
    int code = check_forms(flags, f);
    if (code == 0)
        code = app_open_model(a, flags);
    if (code == 0 && f->graph)
        code = print_graph(a, f, out);
    else if (code == 0 && flags->json)
        inspect_as_json(a, out);
    else if (code == 0)
        as_text(a, out);
    return code ? code : out_finish(out, 0);
}

int cmd_inspect(int argc, char **argv) {
    app_flags flags = {0};
    inspect_flags f = {0};
    const arg_group groups[] = {
        {"Model", rows, MN_COUNT(rows), &f},
        {"", app_model_rows, APP_MODEL_ROWS, &flags},
        {"Graph", graph_rows, MN_COUNT(graph_rows), &f},
        {"Output", app_json_rows, APP_JSON_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
    };
    const arg_page page = {"inspect", "[MODEL] [--graph [--dot]] [--json]",
                           "Prints a model's metadata and tensors, or its graph. Weights are not "
                           "read.",
                           groups, MN_COUNT(groups)};
    app a = {0};
    out_file out = out_stdout();
    int code = args_parse(&page, argc, argv);
    if (f.model)
        flags.model = f.model;
    if (code == ARGS_OK)
        code = inspect(&a, &flags, &f, &out);
    return app_end(&a, code);
}
