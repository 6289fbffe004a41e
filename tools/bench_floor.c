/* bench_floor.c -- the least time that a device needs for a unit of work: the longer of its bytes
 * at the bandwidth of memory and its operations at the peak.
 *
 * For processors the rates are those of --peaks (bench_peaks.c). What kind a device is, what it
 * claims and what was measured when it was chosen stands in the record of mn_model_explain, which
 * is read here and belongs to one call of bench_limits_get. Interface: bench.h. */
#include "bench.h"
#include "record.h"
#include <stdlib.h>
#include <string.h>

/* A step of a candidate, or NULL. */
static const cJSON *bench_floor_step_of(const cJSON *candidate, const char *name) {
    const cJSON *step;
    cJSON_ArrayForEach(step, cJSON_GetObjectItemCaseSensitive(candidate, "steps")) {
        if (!strcmp(record_text(step, "step"), name))
            return step;
    }
    return NULL;
}

static double fastest_type(const cJSON *rates, const char *key) {
    const cJSON *type;
    double best = 0;
    cJSON_ArrayForEach(type, cJSON_GetObjectItemCaseSensitive(rates, "types")) {
        const double rate = record_number(type, key);
        if (rate > best)
            best = rate;
    }
    return best;
}

/* Of a device that is no processor. */
static void set_recorded(const cJSON *candidate, bench_limit *l) {
    const cJSON *rates = bench_floor_step_of(candidate, "rates");
    const cJSON *claims = cJSON_GetObjectItemCaseSensitive(rates, "claims");
    const char *from = "claimed by the device";
    l->gbps = record_number(claims, "mem_gbps");
    if (l->gbps <= 0) {
        l->gbps = fastest_type(rates, "decode_gbps");
        from = "measured in decode when the device was chosen";
    }
    if (l->gbps <= 0)
        from = "unknown";
    l->gflops = fastest_type(rates, "prefill_tflops") * 1e3;
    snprintf(l->source, sizeof l->source, "bandwidth %s, products %s", from,
             l->gflops > 0 ? "measured when it was chosen" : "unknown");
}

/* As --peaks measures, which takes a second: once for all tests with this number of threads. */
static int set_processor(const app *a, bench_limit *l) {
    static bench_best best;
    static uint32_t measured_with; /* 0: not measured yet */
    const uint32_t threads = a->session_info.threads ? a->session_info.threads : 1;
    if (measured_with != threads) {
        const int code = bench_best_peaks(threads, &best);
        if (code)
            return code;
        measured_with = threads;
    }
    l->gbps = best.gbps;
    l->gflops = best.gflops;
    snprintf(l->source, sizeof l->source, "measured here as by --peaks, %u threads, %s", threads,
             best.ops);
    return 0;
}

/* The devices of the record that the session uses. By name, not by outcome: beside the session
 * there may be no memory for a second one. */
static int read_record(const app *a, const cJSON *record, bench_limits *out) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(record, "candidates");
    const cJSON *candidate;
    out->v = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *out->v);
    if (!out->v)
        return no_memory();
    cJSON_ArrayForEach(candidate, list) {
        const char *name = record_text(candidate, "device");
        int code = 0;
        if (!name[0] || !strstr(a->session_info.device, name))
            continue;
        bench_limit *l = &out->v[out->n++];
        snprintf(l->device, sizeof l->device, "%s", name);
        if (!strcmp(record_text(bench_floor_step_of(candidate, "device"), "kind"), "cpu"))
            code = set_processor(a, l);
        else
            set_recorded(candidate, l);
        if (code)
            return code;
    }
    return 0;
}

int bench_limits_get(app *a, bench_limits *out) {
    const mn_session_params params = {.size = sizeof params,
                                      .device = a->flags->device,
                                      .precision = (uint32_t)a->flags->precision,
                                      .n_ctx = a->session_info.n_ctx,
                                      .n_seq = a->session_info.n_seq,
                                      .n_batch = a->session_info.n_batch};
    char *json = NULL;
    if (mn_model_explain(a->model, &params, &json, &a->err) != MN_OK)
        return 0; /* floors are unknown */
    cJSON *record = cJSON_Parse(json);
    const int code = record ? read_record(a, record, out) : no_memory();
    cJSON_Delete(record);
    mn_json_free(json);
    return code;
}

void bench_limits_free(bench_limits *l) {
    free(l->v);
    *l = (bench_limits){0};
}

double bench_floor(const bench_limits *l, const char *device, double bytes, double flop) {
    double floor_ns = 0;
    for (size_t i = 0; i < l->n; i++) {
        const bench_limit *limit = &l->v[i];
        if (strcmp(limit->device, device) != 0)
            continue;
        if (limit->gbps > 0)
            floor_ns = bytes / limit->gbps;
        if (limit->gflops > 0 && flop / limit->gflops > floor_ns)
            floor_ns = flop / limit->gflops;
    }
    return floor_ns;
}
