/* metrics.c -- the text of /metrics. One table of bounds serves all histograms: from the time
 * between two tokens of a fast GPU to the minutes of a long answer on a CPU. */
#include "serve/metrics.h"
#include "serve/json.h"
#include "app.h"
#include <stdlib.h>
#include <string.h>
#include <string.h>

static const double bounds[METRICS_MAX_BUCKETS] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                   0.1,    0.25,  0.5,    1,     2.5,  5,     10,
                                                   20,     40,    80,     160,   320,  640};

void histogram_add(histogram *h, double seconds) {
    size_t i = 0;
    while (i < METRICS_MAX_BUCKETS && seconds > bounds[i])
        i++;
    h->counts[i]++;
    h->sum += seconds;
}

void metrics_head(mn_text *out, const char *prefix, const char *name, const char *kind,
                  const char *help) {
    mn_text_printf(out, "# HELP %s%s %s\n# TYPE %s%s %s\n", prefix, name, help, prefix, name, kind);
}

/* Buckets are cumulative in this format. */
static void put_buckets(mn_text *out, const char *prefix, const char *name, const char *label,
                        const histogram *h) {
    uint64_t n = 0;
    for (size_t i = 0; i < METRICS_MAX_BUCKETS; i++) {
        n += h->counts[i];
        mn_text_printf(out, "%s%s_bucket{%s,le=\"%g\"} %llu\n", prefix, name, label, bounds[i],
                       (unsigned long long)n);
    }
    n += h->counts[METRICS_MAX_BUCKETS];
    mn_text_printf(out, "%s%s_bucket{%s,le=\"+Inf\"} %llu\n", prefix, name, label,
                   (unsigned long long)n);
    mn_text_printf(out, "%s%s_sum{%s} %.9g\n%s%s_count{%s} %llu\n", prefix, name, label, h->sum,
                   prefix, name, label, (unsigned long long)n);
}

void metrics_histogram(mn_text *out, const char *prefix, const char *name, const char *help,
                       const char *label, const histogram *h) {
    metrics_head(out, prefix, name, "histogram", help);
    put_buckets(out, prefix, name, label, h);
}

/* ---- one table for both sets of names -------------------------------------------------------- */

#define OWN "minerva_"
#define VLLM "vllm:"

/* A metric: its value if h is NULL, else the histogram. labels: more than the model's, or NULL. */
typedef struct {
    const char *name; /* in Minerva's set; NULL: the set does not have it */
    const char *vllm; /* in vLLM's; "": the same name; NULL: vLLM has no such metric */
    const char *kind, *help;
    double value;
    const histogram *h;
    const char *labels;
} metric_row;

#define GAUGE(name, vllm, help, value)                                                             \
    { name, vllm, "gauge", help, (double)(value), NULL, NULL }
#define COUNTER(name, vllm, help, value)                                                           \
    { name, vllm, "counter", help, (double)(value), NULL, NULL }
#define INFO(name, vllm, help, value, labels)                                                      \
    { name, vllm, "gauge", help, value, NULL, labels }
#define HISTOGRAM(name, vllm, help, h)                                                             \
    { name, vllm, "histogram", help, 0, h, NULL }
#define NO_ADAPTERS "max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\""

/* The lines of one row; is_first: with those that begin the metric. */
static void put_as(mn_text *out, const metric_row *row, const char *prefix, const char *name,
                   const char *label, int is_first) {
    if (is_first)
        metrics_head(out, prefix, name, row->kind, row->help);
    if (row->h)
        put_buckets(out, prefix, name, label, row->h);
    else
        mn_text_printf(out, "%s%s{%s%s%s} %.17g\n", prefix, name, label, row->labels ? "," : "",
                       row->labels ? row->labels : "", row->value);
}

/* With vLLM's names, what vLLM does not have keeps Minerva's. */
static int has_own(const metric_row *row, metrics_names names) {
    return row->name && (names != METRICS_VLLM || !row->vllm);
}

static int has_vllm(const metric_row *row, metrics_names names) {
    return row->vllm && names != METRICS_MINERVA;
}

/* The reasons of one set, one line each, also of those that have not occurred. In vLLM's set an
 * answer that calls a tool has stopped. */
static void put_finished_as(mn_text *out, const metrics *m, const char *prefix, const char *label,
                            int is_first) {
    static const char name[] = "request_success_total";
    static const char *const reasons[N_FINISHED] = {"stop", "length", "tool_calls", "abort",
                                                    "error"};
    const int is_vllm = !strcmp(prefix, VLLM);
    if (is_first)
        metrics_head(out, prefix, name, "counter", "Generations that ended, by reason.");
    for (size_t i = 0; i < N_FINISHED; i++) {
        const uint64_t calls = m->finished[FINISHED_TOOL_CALLS];
        const uint64_t n = m->finished[i] + (is_vllm && i == FINISHED_STOP ? calls : 0);
        if (!is_vllm || i != FINISHED_TOOL_CALLS)
            mn_text_printf(out, "%s%s{%s,finished_reason=\"%s\"} %llu\n", prefix, name, label,
                           reasons[i], (unsigned long long)n);
    }
}

void metrics_http(mn_text *out, const metrics *m, const metrics_now *now) {
    metrics_head(out, OWN, "http_requests_total", "counter", "Answers, by status.");
    const struct {
        const char *status;
        uint64_t n;
    } rows[] = {{"2xx", m->http_2xx}, {"4xx", m->http_4xx}, {"5xx", m->http_5xx}};
    for (size_t i = 0; i < MN_COUNT(rows); i++)
        mn_text_printf(out, OWN "http_requests_total{status=\"%s\"} %llu\n", rows[i].status,
                       (unsigned long long)rows[i].n);
    metrics_head(out, OWN, "http_connections", "gauge", "Open connections.");
    mn_text_printf(out, OWN "http_connections %u\n", now->n_connections);
}

/* The labels of a model's lines. */
typedef struct {
    char model[300], cache[128], state[32];
} metric_labels;

static void set_labels(metric_labels *l, const metrics_model *of) {
    const metrics_now *now = &of->now;
    mn_text name = {0};
    json_stringz(&name, of->name); /* the escapes of labels are some of JSON's */
    snprintf(l->model, sizeof l->model, "model_name=%.280s", name.ptr ? name.ptr : "\"\"");
    mn_text_free(&name);
    snprintf(l->cache, sizeof l->cache,
             "block_size=\"%llu\",num_gpu_blocks=\"%llu\",enable_prefix_caching=\"%s\"",
             (unsigned long long)now->page_tokens, (unsigned long long)now->n_pages,
             now->has_prefix_cache ? "True" : "False");
    snprintf(l->state, sizeof l->state, "state=\"%.16s\"", now->state ? now->state : "");
}

enum { MAX_ROWS_OF_MODEL = 48 };

/* The rows of a model; how many, the same of each. */
static size_t metrics_rows_of(const metrics_model *of, const metric_labels *l,
                              metric_row out[MAX_ROWS_OF_MODEL]) {
    const metrics *m = of->m;
    const metrics_now *now = &of->now;
    const metric_row rows[] = {
        GAUGE("num_requests_running", "", "Generations that run.", now->n_running),
        GAUGE("num_requests_waiting", "", "Generations that wait for a sequence or memory.",
              now->n_waiting),
        GAUGE("kv_cache_usage_perc", "", "Share of the KV cache in use, 0 to 1.", now->kv_usage),
        GAUGE(NULL, "gpu_cache_usage_perc", "kv_cache_usage_perc by its earlier name.",
              now->kv_usage),
        INFO("cache_config_info", "", "Tokens of a page and pages of the KV cache.", 1, l->cache),
        INFO(NULL, "lora_requests_info", "Adapters of running requests: there are none.",
             now->unix_s, NO_ADAPTERS),
        COUNTER("prefix_cache_queries_total", "", "Prompt tokens looked for in the prefix cache.",
                now->cache_queries),
        COUNTER("prefix_cache_hits_total", "", "Prompt tokens found there.", now->cache_hits),
        COUNTER("num_preemptions_total", "", "Sequences that gave their memory to others.",
                now->n_preempted),
        COUNTER("spec_decode_num_draft_tokens_total", "", "Draft tokens that were verified.",
                now->n_drafted),
        COUNTER("spec_decode_num_accepted_tokens_total", "", "Draft tokens that held.",
                now->n_accepted),
        COUNTER("forced_tokens_total", NULL,
                "Tokens that a constraint left no choice about, without a step each.",
                now->n_forced),
        COUNTER("form_seconds_total", NULL, "Processor time of steps for the forms of answers.",
                (double)now->forms_ns * 1e-9),
        GAUGE("form_seconds_step_max", NULL, "The most of one step, since its engine was started.",
              (double)now->forms_most_ns * 1e-9),
        COUNTER("prompt_tokens_total", "", "Tokens of prompts.", m->prompt_tokens),
        COUNTER("generation_tokens_total", "", "Generated tokens.", m->generation_tokens),
        COUNTER("engine_restarts_total", NULL, "Starts of an engine after one had died.",
                now->n_restarts),
        INFO("model_state", NULL, "1: the phase of the model.", 1, l->state),
        COUNTER("model_loads_total", NULL, "How often the model was loaded.", now->n_loads),
        COUNTER("model_load_failures_total", NULL, "How often it could not be.",
                now->n_load_failures),
        GAUGE("model_requests_waiting", NULL, "Requests that wait for the model to be loaded.",
              now->n_awaiting),
        GAUGE("model_bytes", NULL, "Weights and KV cache of its engines.", now->n_bytes),
        GAUGE("engines_ready", NULL, "Engines that accept requests.", now->n_ready),
        COUNTER("requests_resubmitted_total", NULL,
                "Generations that went on in another engine process.", m->resubmitted),
        HISTOGRAM("time_to_first_token_seconds", "", "From the request to its first token.",
                  &m->first_token),
        HISTOGRAM("inter_token_latency_seconds", "", "Between two tokens.", &m->inter_token),
        HISTOGRAM(NULL, "time_per_output_token_seconds",
                  "inter_token_latency_seconds by its earlier name.", &m->inter_token),
        HISTOGRAM("e2e_request_latency_seconds", "", "From the request to its last token.",
                  &m->e2e),
        HISTOGRAM("request_queue_time_seconds", "", "Before the prompt is begun.", &m->queue),
        HISTOGRAM("request_prefill_time_seconds", "", "Of the prompt.", &m->prefill),
        HISTOGRAM("request_decode_time_seconds", "", "From the first token to the last.",
                  &m->decode),
    };
    _Static_assert(sizeof rows <= MAX_ROWS_OF_MODEL * sizeof *rows, "more rows than room");
    memcpy(out, rows, sizeof rows);
    return MN_COUNT(rows);
}

/* One model as the others have it. */
typedef struct {
    metric_row rows[MAX_ROWS_OF_MODEL];
    metric_labels labels;
} metric_model;

static void metrics_put_rows(mn_text *out, const metric_model *all, size_t n, size_t row,
                             metrics_names names) {
    for (size_t i = 0; i < n && has_own(&all[0].rows[row], names); i++)
        put_as(out, &all[i].rows[row], OWN, all[i].rows[row].name, all[i].labels.model, i == 0);
    for (size_t i = 0; i < n && has_vllm(&all[0].rows[row], names); i++) {
        const metric_row *r = &all[i].rows[row];
        put_as(out, r, VLLM, *r->vllm ? r->vllm : r->name, all[i].labels.model, i == 0);
    }
}

void metrics_put(mn_text *out, const metrics_model *models, size_t n, metrics_names names) {
    metric_model *all = calloc(n ? n : 1, sizeof *all);
    size_t n_rows = 0;
    out->failed |= !all;
    for (size_t i = 0; all && i < n; i++) {
        set_labels(&all[i].labels, &models[i]);
        n_rows = metrics_rows_of(&models[i], &all[i].labels, all[i].rows);
    }
    for (size_t row = 0; row < n_rows; row++)
        metrics_put_rows(out, all, n, row, names);
    for (size_t i = 0; all && i < n && names != METRICS_VLLM; i++)
        put_finished_as(out, models[i].m, OWN, all[i].labels.model, i == 0);
    for (size_t i = 0; all && i < n && names != METRICS_MINERVA; i++)
        put_finished_as(out, models[i].m, VLLM, all[i].labels.model, i == 0);
    free(all);
}
