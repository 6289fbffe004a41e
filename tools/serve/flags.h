/* flags.h -- the flags of minerva serve that are its own; app_flags and sampling_flags are those
 * that it shares with other commands. */
#ifndef MINERVA_SERVE_FLAGS_H
#define MINERVA_SERVE_FLAGS_H
#include "args.h"

typedef struct {
    const char *host, *key_file, *tls_cert, *tls_key, *chat_template, *replica_ca, *settings,
        *models_file;
    int64_t port, n_seq, max_queue, max_connections, max_body, max_unfinished, drain, per_key,
        kv_mb, receive, ping, engine_timeout, models_max, models_memory, responses;
    arg_count keep_alive;
    int insecure, embeddings, no_cache, metrics_open, metrics_names, manage, all_models, log_format;
    arg_texts models, replicas, more_replicas, aliases, origins;
    arg_texts loras; /* [NAME=]FILE[:SCALE] */
    int64_t max_loras, max_lora_rank;
    int lora_type;
} serve_flags;
#endif
