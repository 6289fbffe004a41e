/* devices.c -- minerva devices: lists the devices of all plugins; with --explain prints each step
 * by which the host chooses the devices for a model.
 *
 * The rows are the runtime's (mn_runtime_device). --explain prints the JSON record of
 * mn_model_explain, unchanged or as text; its keys: docs/negotiation.md. */
#include "app.h"
#include "record.h"
#include <string.h>

static void devices_command_as_json(const app *a, out_file *out) {
    json_out j = out_json(out);
    mn_device_item d;
    json_open(&j, '[');
    for (uint32_t i = 0; mn_runtime_device(a->rt, i, &d) == MN_OK; i++) {
        json_open(&j, '{');
        json_put_z(&j, "name", d.name);
        json_put_z(&j, "plugin", d.plugin);
        json_put_z(&j, "description", d.description);
        json_put_z(&j, "uid", d.uid);
        json_put_uint(&j, "mem_total", d.mem_total);
        json_key(&j, "mem_free");
        if (d.mem_free)
            json_uint(&j, d.mem_free);
        else
            json_null(&j); // unknown
        json_put_bool(&j, "usable", d.usable);
        json_put_z(&j, "reason", d.reason);
        json_put_uint(&j, "retry_s", (uint64_t)d.retry_s);
        json_close(&j);
    }
    json_close(&j);
    json_line(&j);
}

/* mem_free 0: unknown; some devices report it only while a session uses them. */
static const char *free_text(const mn_device_item *d, char dst[32]) {
    if (d->mem_free)
        return human_bytes(d->mem_free, dst);
    return d->usable ? "not asked" : "-";
}

static void devices_command_as_table(const app *a, out_file *out) {
    static const char *const columns[] = {"device",      "memory", "free",
                                          "description", "usable", NULL};
    table t;
    mn_device_item d;
    char total[32], unused[32];
    table_begin(&t, columns, 6);
    for (uint32_t i = 0; mn_runtime_device(a->rt, i, &d) == MN_OK; i++) {
        table_cell(&t, "%s", d.name);
        table_cell(&t, "%s", d.mem_total ? human_bytes(d.mem_total, total) : "-");
        table_cell(&t, "%s", free_text(&d, unused));
        table_cell(&t, "%s", d.description);
        if (d.retry_s)
            table_cell(&t, "no: %s; tried again in %d s", d.reason, d.retry_s);
        else
            table_cell(&t, "%s%s%s", d.usable ? "yes" : "no", d.reason[0] ? ": " : "", d.reason);
    }
    table_print(&t, TABLE_PLAIN, out);
    table_free(&t);
}

/* ---- --explain ------------------------------------------------------------------------------- */
static const char *devices_command_bytes_of(const cJSON *o, const char *key, char dst[32]) {
    return human_bytes((uint64_t)record_number(o, key), dst);
}

/* ---- details of a step: one function per kind of step ---------------------------------------- */
/* Nodes per verdict, for each op and type of weights. */
static void print_verdicts(const cJSON *step, out_file *out) {
    const cJSON *op;
    out_printf(out, "; %.0f of %.0f nodes", record_number(step, "supported"),
               record_number(step, "nodes"));
    cJSON_ArrayForEach(op, cJSON_GetObjectItemCaseSensitive(step, "ops")) {
        static const char *const verdicts[] = {"native", "slow", "ask", "no"};
        const char *type = record_text(op, "type"), *reason = record_text(op, "reason");
        out_printf(out, "\n              %s%s%s:", record_text(op, "op"), *type ? " " : "", type);
        for (size_t i = 0; i < MN_COUNT(verdicts); i++)
            if (record_number(op, verdicts[i]) > 0)
                out_printf(out, " %.0f %s", record_number(op, verdicts[i]), verdicts[i]);
        if (*reason)
            out_printf(out, " (%s)", reason);
    }
}

/* Needed and free bytes, and the precision class. */
static void print_memory(const cJSON *step, out_file *out) {
    char a[32], b[32], c[32], d[32], e[32];
    if (cJSON_HasObjectItem(step, "need"))
        out_printf(
            out, "; weights %s, KV %s (%s), scratch %s: %s of %s free",
            devices_command_bytes_of(step, "weights", a), devices_command_bytes_of(step, "kv", b),
            record_text(step, "k_type"), devices_command_bytes_of(step, "scratch", c),
            devices_command_bytes_of(step, "need", d), devices_command_bytes_of(step, "free", e));
    out_printf(out, "; class %s", record_text(step, "class"));
}

/* Measured or claimed rates per type of weights, and the times of nodes, segments and copies. */
static void print_rates(const cJSON *step, out_file *out) {
    const cJSON *type;
    out_printf(out, "; %s", record_text(step, "source"));
    cJSON_ArrayForEach(type, cJSON_GetObjectItemCaseSensitive(step, "types"))
        out_printf(out, "; %s %.3g GB/s, %.3g TFLOP/s", record_text(type, "type"),
                   record_number(type, "decode_gbps"), record_number(type, "prefill_tflops"));
    out_printf(out, "; %.3g us per node, %.3g per segment, %.3g per copy",
               record_number(step, "node_us"), record_number(step, "step_us"),
               record_number(step, "copy_us"));
}

static void print_device(const cJSON *step, out_file *out) {
    char total[32];
    if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(step, "ok")))
        return;
    out_printf(out, "; %s (%s), %s, driver %s", record_text(step, "description"),
               record_text(step, "kind"), devices_command_bytes_of(step, "mem_total", total),
               record_text(step, "driver"));
}

static void print_score(const cJSON *step, out_file *out) {
    out_printf(out, "; %.4g us per token", record_number(step, "us_per_token"));
}

/* One line: name, ok or NO, text and the details of its kind. */
static void print_step(const cJSON *step, out_file *out) {
    static const struct {
        const char *step;
        void (*print)(const cJSON *, out_file *);
    } more[] = {{"verdicts", print_verdicts},
                {"memory", print_memory},
                {"rates", print_rates},
                {"device", print_device},
                {"score", print_score}};
    const char *name = record_text(step, "step"), *text = record_text(step, "text");
    int ok = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(step, "ok"));
    out_printf(out, "  %-10s  %s%s%s", name, ok ? "ok" : "NO", *text ? ": " : "", text);
    for (size_t i = 0; i < MN_COUNT(more); i++)
        if (!strcmp(more[i].step, name))
            more[i].print(step, out);
    out_puts(out, "\n");
}

/* Placements that were considered because memory is short. */
static void print_options(const cJSON *placement, out_file *out) {
    char need[32], room[32];
    const cJSON *o;
    cJSON_ArrayForEach(o, cJSON_GetObjectItemCaseSensitive(placement, "options")) {
        const double n = record_number(o, "experts_on_cpu");
        const int whole = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "whole_layers"));
        const int chosen = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "chosen"));
        const double first = record_number(o, "experts_on_card");
        const int divided = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "divided"));
        char which[80] = "experts";
        if (first > 0)
            snprintf(which, sizeof which, "experts but %.0f", first);
        if (n > 0)
            out_printf(out, "  option: %s of %.0f layer%s on the CPU%s%s", which, n,
                       n > 1 ? "s" : "", divided ? " meanwhile" : "",
                       whole ? ", and whole layers" : "");
        else
            out_printf(out, "  option: whole layers on the CPU");
        if (*record_text(o, "reason"))
            out_printf(out, ": %s", record_text(o, "reason"));
        else
            out_printf(out, ": %.4g t/s, prompts %.4g t/s; %s of %s",
                       record_number(o, "decode_tokens_per_s"),
                       record_number(o, "prompt_tokens_per_s"),
                       devices_command_bytes_of(o, "need", need),
                       devices_command_bytes_of(o, "free", room));
        out_printf(out, "%s\n", chosen ? "; chosen: the fastest" : "");
    }
}

/* What each device of the placement needs for all its segments. */
static void print_totals(const cJSON *placement, out_file *out) {
    char a[32], b[32], c[32], d[32], e[32], f[32];
    const cJSON *t;
    cJSON_ArrayForEach(t, cJSON_GetObjectItemCaseSensitive(placement, "devices")) {
        out_printf(
            out, "  %s: %.0f segment%s, weights %s, KV %s, scratch %s, crossing %s: %s",
            record_text(t, "device"), record_number(t, "segments"),
            record_number(t, "segments") > 1 ? "s" : "", devices_command_bytes_of(t, "weights", a),
            devices_command_bytes_of(t, "kv", b), devices_command_bytes_of(t, "scratch", c),
            devices_command_bytes_of(t, "boundary", d), devices_command_bytes_of(t, "need", e));
        if (record_number(t, "free") > 0)
            out_printf(out, " of %s free", devices_command_bytes_of(t, "free", f));
        out_puts(out, "\n");
    }
}

/* Prompts whose experts a card computes, which a CPU has. */
static void print_streamed(const cJSON *placement, out_file *out) {
    const cJSON *s = cJSON_GetObjectItemCaseSensitive(placement, "streamed");
    char need[32], pinned[32];
    if (!cJSON_IsObject(s))
        return;
    if (record_number(s, "rows") > 0)
        out_printf(
            out,
            "  streamed: experts of %.0f layers, %.0f at a time, to %s in steps of %.0f "
            "rows or more: %s there, %s pinned; prompts %.4g t/s by the rates",
            record_number(s, "layers"), record_number(s, "experts"), record_text(s, "device"),
            record_number(s, "rows"), devices_command_bytes_of(s, "need", need),
            devices_command_bytes_of(s, "pinned", pinned), record_number(s, "prompt_tokens_per_s"));
    else
        out_printf(out, "  streamed: no experts to %s: %s", record_text(s, "device"),
                   record_text(s, "reason"));
    if (record_number(s, "faster_from") > 0)
        out_printf(out, "; faster from %.0f rows on", record_number(s, "faster_from"));
    out_puts(out, "\n");
}

/* The chosen devices, and the nodes and layers of each. */
static void print_placement(const cJSON *placement, out_file *out) {
    const cJSON *s;
    char need[32], text[96];
    out_printf(out, "placement: %s: %s\n", record_text(placement, "device"),
               record_text(placement, "why"));
    cJSON_ArrayForEach(s, cJSON_GetObjectItemCaseSensitive(placement, "segments")) {
        const cJSON *nodes = cJSON_GetObjectItemCaseSensitive(s, "nodes");
        const cJSON *layers = cJSON_GetObjectItemCaseSensitive(s, "layers");
        out_printf(out, "  nodes %d-%d", cJSON_GetArrayItem(nodes, 0)->valueint,
                   cJSON_GetArrayItem(nodes, 1)->valueint - 1);
        if (cJSON_IsArray(layers))
            out_printf(out, ", layers %d-%d", cJSON_GetArrayItem(layers, 0)->valueint,
                       cJSON_GetArrayItem(layers, 1)->valueint);
        out_printf(out, ": %s, %s\n", record_text(s, "device"),
                   devices_command_bytes_of(s, "need", need));
    }
    print_totals(placement, out);
    print_options(placement, out);
    print_streamed(placement, out);
    const record_cost cost = record_sequence_cost(placement);
    out_printf(out, "  %s\n", record_cost_text(&cost, text));
    out_printf(
        out,
        "  %.0f copies between devices per step; %.4g us per token, %.3g of them for copies: "
        "%.4g t/s, prompts %.4g t/s\n",
        record_number(placement, "copies"), record_number(placement, "us_per_token"),
        record_number(placement, "copy_us"), record_number(placement, "decode_tokens_per_s"),
        record_number(placement, "prompt_tokens_per_s"));
}

/* A candidate is a device, or a plugin file without one. */
static void print_candidate(const cJSON *c, out_file *out) {
    const cJSON *step;
    const char *name = record_text(c, "device");
    if (!*name)
        name = record_text(c, "plugin");
    if (!*name)
        name = base_name(record_text(c, "path"));
    out_printf(out, "%s: %s\n", name, record_text(c, "outcome"));
    cJSON_ArrayForEach(step, cJSON_GetObjectItemCaseSensitive(c, "steps")) print_step(step, out);
    out_puts(out, "\n");
}

static void explain_as_text(const cJSON *record, out_file *out) {
    const cJSON *c;
    const cJSON *request = cJSON_GetObjectItemCaseSensitive(record, "request");
    const cJSON *placement = cJSON_GetObjectItemCaseSensitive(record, "placement");
    out_printf(out, "model %s\ndevice %s, class %s, context %.0f x %.0f\n\n",
               record_text(cJSON_GetObjectItemCaseSensitive(record, "model"), "path"),
               record_text(request, "device"), record_text(request, "class"),
               record_number(request, "sequences"), record_number(request, "context"));
    cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(record, "candidates"))
        print_candidate(c, out);
    if (cJSON_IsObject(placement))
        print_placement(placement, out);
    else
        out_printf(out, "placement: none: %s\n",
                   record_text(cJSON_GetObjectItemCaseSensitive(record, "error"), "message"));
}

/* The record of mn_model_explain as it is (as_is), or as text. */
static int print_record(const char *json, int as_is, out_file *out) {
    if (as_is) {
        out_printf(out, "%s\n", json);
        return 0;
    }
    cJSON *record = cJSON_Parse(json);
    if (!record)
        return no_memory();
    explain_as_text(record, out);
    cJSON_Delete(record);
    return 0;
}

/* Where a name was looked for, place by place; nothing where a path was given. */
static void print_search(app *a, const char *name, out_file *out) {
    mn_found *found = NULL;
    if (!a->info.known_as[0] || mn_model_find(a->rt, name, &found, &a->err) != MN_OK)
        return;
    out_printf(out, "name %s\n", a->info.known_as);
    for (const char *line = mn_found_explain(found); *line;) {
        const size_t n = strcspn(line, "\n");
        out_printf(out, "  %.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
    mn_found_free(found);
}

/* --explain: opens the model, queries the record, prints it. The exit code. */
static int explain(const app_flags *flags) {
    app a = {0};
    char *json = NULL;
    out_file out = out_stdout();
    int code = app_open_model(&a, flags);
    mn_session_params params = {.size = sizeof params,
                                .device = flags->device,
                                .precision = (uint32_t)flags->precision,
                                .n_ctx = (uint32_t)flags->ctx.v,
                                .n_batch = (uint32_t)flags->rows};
    mn_status status = code ? MN_OK : mn_model_explain(a.model, &params, &json, &a.err);
    if (status != MN_OK)
        code = app_fail(&a, status);
    if (code == 0 && !flags->json)
        print_search(&a, flags->model, &out);
    if (code == 0)
        code = print_record(json, flags->json, &out);
    mn_json_free(json);
    return app_end(&a, out_finish(&out, code));
}

typedef struct {
    int explain;
    int report;
} devices_flags;
static const arg_row devices_rows[] = {
    {"--explain", NULL, ARG_FLAG, offsetof(devices_flags, explain), 0, 0, NULL,
     "for every plugin file and device: each step up to the decision for a model"},
    {"--report", NULL, ARG_FLAG, offsetof(devices_flags, report), 0, 0, NULL,
     "one text to send with a problem: versions, plugins, devices and what drivers say; without "
     "secrets"},
};

int cmd_devices(int argc, char **argv) {
    enum { SESSION_ROWS = 3 }; /* -c, -b, --precision */
    app_flags flags = {0};
    devices_flags own = {0};
    const arg_group groups[] = {
        {"Choice", devices_rows, MN_COUNT(devices_rows), &own},
        {"Model (with --explain)", app_model_rows, APP_MODEL_ROWS, &flags},
        {"Device (with --explain)", app_device_rows, APP_DEVICE_ROWS, &flags},
        {"Session (with --explain)", app_session_rows, SESSION_ROWS, &flags},
        {"Output", app_json_rows, APP_JSON_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags}};
    const arg_page page = {"devices",
                           "[--explain [-m MODEL] [--device DEVICES] [-c N] | --report] [--json]",
                           "Lists the devices of all plugins, and why one is not usable; or "
                           "prints which of them would run a model, and why.",
                           groups, MN_COUNT(groups)};
    int code = args_parse(&page, argc, argv);
    if (code != ARGS_OK)
        return code;
    if (own.report && own.explain)
        return complain(EXIT_USAGE, "minerva devices: found --report and --explain, expected one");
    if (own.explain)
        return explain(&flags);
    if (flags.model || flags.device || flags.cpu_moe || flags.n_cpu_moe.given ||
        flags.n_gpu_experts.given || *flags.tensor_devices.text || flags.device_memory ||
        flags.expert_counts || flags.ctx.given || flags.rows || flags.precision)
        return complain(EXIT_USAGE,
                        "minerva devices: found a model, devices or sizes without --explain, "
                        "expected --explain with them");
    if (own.report && flags.json)
        return complain(EXIT_USAGE, "minerva devices: found --report and --json, expected one");
    if (own.report)
        return devices_report(&flags);
    return app_list(&flags, devices_command_as_json, devices_command_as_table);
}
