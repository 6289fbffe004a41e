/* metrics.c -- the text of /metrics. One table of bounds serves all histograms: from the time
 * between two tokens of a fast GPU to the minutes of a long answer on a CPU. */
#include "serve/metrics.h"
#include "serve/json.h"
#include "app.h"

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

void metrics_head(mn_text *out, const char *name, const char *kind, const char *help) {
    mn_text_printf(out, "# HELP minerva_%s %s\n# TYPE minerva_%s %s\n", name, help, name, kind);
}

/* A metric with one value. */
static void put_one(mn_text *out, const char *name, const char *kind, const char *help,
                    const char *label, double value) {
    metrics_head(out, name, kind, help);
    mn_text_printf(out, "minerva_%s{%s} %.17g\n", name, label, value);
}

/* Buckets are cumulative in this format. */
void metrics_histogram(mn_text *out, const char *name, const char *help, const char *label,
                       const histogram *h) {
    uint64_t n = 0;
    metrics_head(out, name, "histogram", help);
    for (size_t i = 0; i < METRICS_MAX_BUCKETS; i++) {
        n += h->counts[i];
        mn_text_printf(out, "minerva_%s_bucket{%s,le=\"%g\"} %llu\n", name, label, bounds[i],
                       (unsigned long long)n);
    }
    n += h->counts[METRICS_MAX_BUCKETS];
    mn_text_printf(out, "minerva_%s_bucket{%s,le=\"+Inf\"} %llu\n", name, label,
                   (unsigned long long)n);
    mn_text_printf(out, "minerva_%s_sum{%s} %.9g\nminerva_%s_count{%s} %llu\n", name, label, h->sum,
                   name, label, (unsigned long long)n);
}

/* One line per reason, also of those that have not occurred. */
static void put_finished(mn_text *out, const metrics *m, const char *label) {
    static const char *const reasons[N_FINISHED] = {"stop", "length", "tool_calls", "abort",
                                                    "error"};
    metrics_head(out, "request_success_total", "counter", "Generations that ended, by reason.");
    for (size_t i = 0; i < N_FINISHED; i++)
        mn_text_printf(out, "minerva_request_success_total{%s,finished_reason=\"%s\"} %llu\n",
                       label, reasons[i], (unsigned long long)m->finished[i]);
}

void metrics_http(mn_text *out, const metrics *m, const metrics_now *now) {
    metrics_head(out, "http_requests_total", "counter", "Answers, by status.");
    const struct {
        const char *status;
        uint64_t n;
    } rows[] = {{"2xx", m->http_2xx}, {"4xx", m->http_4xx}, {"5xx", m->http_5xx}};
    for (size_t i = 0; i < MN_COUNT(rows); i++)
        mn_text_printf(out, "minerva_http_requests_total{status=\"%s\"} %llu\n", rows[i].status,
                       (unsigned long long)rows[i].n);
    metrics_head(out, "http_connections", "gauge", "Open connections.");
    mn_text_printf(out, "minerva_http_connections %u\n", now->n_connections);
}

void metrics_put(mn_text *out, const metrics *m, const metrics_now *now, const char *model) {
    mn_text name = {0};
    char label[300];
    json_stringz(&name, model); /* the escapes of labels are some of JSON's */
    snprintf(label, sizeof label, "model_name=%.280s", name.ptr ? name.ptr : "\"\"");
    mn_text_free(&name);
    const struct {
        const char *name, *kind, *help;
        double value;
    } rows[] = {
        {"num_requests_running", "gauge", "Generations that run.", (double)now->n_running},
        {"num_requests_waiting", "gauge", "Generations that wait for a sequence or memory.",
         (double)now->n_waiting},
        {"kv_cache_usage_perc", "gauge", "Share of the KV cache in use, 0 to 1.", now->kv_usage},
        {"prefix_cache_queries_total", "counter", "Prompt tokens looked for in the prefix cache.",
         (double)now->cache_queries},
        {"prefix_cache_hits_total", "counter", "Prompt tokens found there.",
         (double)now->cache_hits},
        {"num_preemptions_total", "counter", "Sequences that gave their memory to others.",
         (double)now->n_preempted},
        {"spec_decode_num_draft_tokens_total", "counter", "Draft tokens that were verified.",
         (double)now->n_drafted},
        {"spec_decode_num_accepted_tokens_total", "counter", "Draft tokens that held.",
         (double)now->n_accepted},
        {"forced_tokens_total", "counter",
         "Tokens that a constraint left no choice about, without a step each.",
         (double)now->n_forced},
        {"form_seconds_total", "counter", "Processor time of steps for the forms of answers.",
         (double)now->forms_ns * 1e-9},
        {"form_seconds_step_max", "gauge", "The most of one step, since its engine was started.",
         (double)now->forms_most_ns * 1e-9},
        {"prompt_tokens_total", "counter", "Tokens of prompts.", (double)m->prompt_tokens},
        {"generation_tokens_total", "counter", "Generated tokens.", (double)m->generation_tokens},
        {"engine_restarts_total", "counter", "Starts of an engine after one had died.",
         (double)now->n_restarts},
        {"engines_ready", "gauge", "Engines that accept requests.", (double)now->n_ready},
        {"requests_resubmitted_total", "counter",
         "Generations that went on in another engine process.", (double)m->resubmitted},
    };
    for (size_t i = 0; i < MN_COUNT(rows); i++)
        put_one(out, rows[i].name, rows[i].kind, rows[i].help, label, rows[i].value);
    put_finished(out, m, label);
    metrics_histogram(out, "time_to_first_token_seconds", "From the request to its first token.",
                      label, &m->first_token);
    metrics_histogram(out, "inter_token_latency_seconds", "Between two tokens.", label,
                      &m->inter_token);
    metrics_histogram(out, "e2e_request_latency_seconds", "From the request to its last token.",
                      label, &m->e2e);
    metrics_histogram(out, "request_queue_time_seconds", "Before the prompt is begun.", label,
                      &m->queue);
    metrics_histogram(out, "request_prefill_time_seconds", "Of the prompt.", label, &m->prefill);
    metrics_histogram(out, "request_decode_time_seconds", "From the first token to the last.",
                      label, &m->decode);
    metrics_http(out, m, now);
}
