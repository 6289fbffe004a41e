/* metrics.h -- counts and times of the server in the text format of Prometheus: with the names of
 * vLLM behind "minerva_", behind "vllm:" for schedulers that know vLLM, or both. One thread. */
#ifndef MINERVA_SERVE_METRICS_H
#define MINERVA_SERVE_METRICS_H
#include "text_buffer.h"
#include <stdint.h>

enum { METRICS_MAX_BUCKETS = 20 };

/* Times in seconds, counted by upper bounds. */
typedef struct {
    uint64_t counts[METRICS_MAX_BUCKETS + 1];
    double sum;
} histogram;

enum {
    FINISHED_STOP,
    FINISHED_LENGTH,
    FINISHED_TOOL_CALLS,
    FINISHED_ABORT,
    FINISHED_ERROR,
    N_FINISHED
};

typedef struct {
    uint64_t prompt_tokens, generation_tokens;
    uint64_t finished[N_FINISHED]; /* generations */
    uint64_t resubmitted;          /* generations that went on after an engine had died */
    uint64_t http_2xx, http_4xx, http_5xx;
    histogram first_token, inter_token, e2e, queue, prefill, decode;
} metrics;

/* What is counted elsewhere, at the time of the call. */
typedef struct {
    uint64_t n_running, n_waiting, n_preempted, cache_queries, cache_hits, n_restarts, n_ready;
    uint64_t n_drafted, n_accepted, n_forced, forms_ns, forms_most_ns;
    uint64_t page_tokens, n_pages; /* of the KV cache; 0: no engine has been ready */
    double kv_usage;               /* 0 to 1 */
    double unix_s;                 /* time of the call */
    int has_prefix_cache;
    unsigned n_connections;
    const char *state; /* of the model: "loaded", ... */
    uint64_t n_loads, n_load_failures, n_awaiting, n_bytes;
} metrics_now;

/* One model. */
typedef struct {
    const char *name;
    const metrics *m;
    metrics_now now;
} metrics_model;

/* Choices of --metrics. */
typedef enum { METRICS_MINERVA, METRICS_VLLM, METRICS_BOTH } metrics_names;
#define METRICS_CHOICES "minerva|vllm|both"

void histogram_add(histogram *h, double seconds);
/* Parts of the text: the lines that begin a metric, a histogram, and what begins with http_. The
 * name is prefix and name. */
void metrics_head(mn_text *out, const char *prefix, const char *name, const char *kind,
                  const char *help);
void metrics_histogram(mn_text *out, const char *prefix, const char *name, const char *help,
                       const char *label, const histogram *h);
void metrics_http(mn_text *out, const metrics *m, const metrics_now *now);
/* All metrics of n models: each metric with a line per model. */
void metrics_put(mn_text *out, const metrics_model *models, size_t n, metrics_names names);
#endif
