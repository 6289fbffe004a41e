/* serve.h -- the front process: what its parts share.
 *
 *   serve.c        flags, start, the loop, the end          routes.c       which function answers
 *   generation.c   one generation: tokens, text, engine     answer.c       one answer of several
 *   reading.c      bodies of requests, long ones in threads (tasks.c)
 *   chat.c, completion.c, embeddings.c, text_routes.c, info_routes.c       the endpoints
 *   dialect.h      other interfaces than OpenAI's, translated to the chat
 *
 * One thread, but for what reading.h says. A request of the HTTP side (http.h) has an answer as its
 * owner while generations run for it; the answer frees them. Engines (engine_link.h) call back with
 * events of generations. */
#ifndef MINERVA_SERVE_SERVE_H
#define MINERVA_SERVE_SERVE_H
#include "app.h"
#include "serve/ask.h"
#include "serve/engine_link.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/models.h"

struct answer;
struct embedding;
struct generation;
#define SERVE_TABLE 4096
/* A request that was in so many engines when they crashed is not sent again: it may be why. */
#define SERVE_MAX_CRASHES 3

typedef struct serve {
    serve_flags *flags; /* serve_read_settings changes some */
    serve_flags given;  /* as on the command line */
    const app_flags *app_flags;
    const sampling_flags *sampling;
    app a;      /* of the front itself: its flags, for remarks */
    char *name; /* in the line with the URL */
    int64_t created;
    models models;
    int set; /* of loop.h */
    http_server *http;
    access_rules access;
    struct relay *relay; /* instead of engines: --replicas URL; else NULL */
    unsigned n_per_key[256];
    struct tasks *tasks;                    /* threads that read long requests; NULL: none */
    struct generation *table[SERVE_TABLE];  /* by id; those that engines know or will */
    struct answer *answers;                 /* all that run */
    struct responses_store *responses;      /* of /v1/responses; NULL: none is kept */
    struct embedding *embeddings;           /* requests that wait for vectors */
    struct adapter_change *adapter_changes; /* that wait for engines (adapters.c) */
    unsigned n_generations;                 /* of them, not finished */
    unsigned n_reading;                     /* requests of generations that threads read */
    uint64_t next_id;
    unsigned n_trims; /* that are left, once no request is */
    metrics metrics;  /* of all requests; each model has its own of generations */
    int draining, over;
    double drain_end, last_tick;
} serve;

/* ---- routes.c -------------------------------------------------------------------------------- */
void serve_request(void *s, http_request *r);
void serve_gone(void *s, http_request *r);
void serve_ended(void *s, const http_request *r); /* any request: it is counted */
/* Answers with the error; *e has failed. */
void serve_refuse(serve *s, http_request *r, const json_error *e);
/* The count of the requests of r's key; clients without a key share one. */
unsigned *serve_in_flight(serve *s, const http_request *r);
/* The type of OpenAI's errors of a status. */
const char *serve_error_type(unsigned status);
/* Appends OpenAI's error: {"error": {"message", "type", "param", "code"}, "request_id"}. */
void serve_put_error(const http_request *r, const char *type, const char *param, const char *code,
                     const char *message, mn_text *out);
/* A whole JSON answer of status 200. */
void serve_json(serve *s, http_request *r, mn_text *body);
/* Appends the event of an error in a stream that has begun, in the form of r's path. */
void serve_stream_error(const http_request *r, unsigned status, const char *type,
                        const char *message, mn_text *out);
/* 1 if one request may have n generations; else 0 with the error set. */
int serve_check_number(const serve *s, uint64_t n, json_error *e);
/* 1 if n more generations may be queued; else 0: answered with 429 or 503. Asked before the work of
 * reading a request, too. */
int serve_has_room(serve *s, http_request *r, unsigned n);
/* The same, and the request counts from now on. */
int serve_admit(serve *s, http_request *r, unsigned n);
/* The request does not count any more. */
void serve_leave(serve *s, http_request *r);
/* 1 if a text of n bytes may fit in the context; else 0 with the error set: nothing is tokenised
 * that is too long whatever its tokens are. */
int serve_may_fit(const served *m, size_t n, const char *param, json_error *e);
/* The error of a prompt that leaves no room for an answer, in the words that clients look for.
 * Returns 0. */
int serve_too_long(const served *m, uint64_t n_tokens, const char *param, json_error *e);
/* An error of the library about the prompt as the error of a request. */
int serve_library_error(const mn_error *err, mn_status st, const char *param, json_error *e);

/* ---- endpoints: each answers r, now or later ------------------------------------------------- */
typedef void (*serve_route)(serve *s, http_request *r);
void route_chat(serve *s, http_request *r);
void route_completion(serve *s, http_request *r);
void route_messages(serve *s, http_request *r);
void route_count_tokens(serve *s, http_request *r);
void route_chat_tokens(serve *s, http_request *r);
void route_responses(serve *s, http_request *r);
void route_input_tokens(serve *s, http_request *r);
void route_response(serve *s, http_request *r);        /* GET /v1/responses/ID */
void route_response_delete(serve *s, http_request *r); /* DELETE likewise */
void route_ollama_chat(serve *s, http_request *r);
void route_ollama_generate(serve *s, http_request *r);
void route_ollama_tags(serve *s, http_request *r);
void route_ollama_show(serve *s, http_request *r);
void route_ollama_ps(serve *s, http_request *r);
void route_ollama_version(serve *s, http_request *r);
void route_ollama_embed(serve *s, http_request *r);
void route_ollama_embeddings(serve *s, http_request *r);
void route_ollama_pull(serve *s, http_request *r);
void route_ollama_delete(serve *s, http_request *r);
void route_ollama_copy(serve *s, http_request *r);
void route_ollama_absent(serve *s, http_request *r); /* what no server of this kind does */
void route_llama_completion(serve *s, http_request *r);
void route_llama_infill(serve *s, http_request *r);
void route_llama_embedding(serve *s, http_request *r);
void route_llama_props(serve *s, http_request *r);
void route_llama_set_props(serve *s, http_request *r);
void route_llama_slots(serve *s, http_request *r);
void route_llama_template(serve *s, http_request *r);
void route_embeddings(serve *s, http_request *r);
void route_rerank(serve *s, http_request *r);
void route_score(serve *s, http_request *r);
void route_tokenize(serve *s, http_request *r);
void route_detokenize(serve *s, http_request *r);
void route_models(serve *s, http_request *r);
void route_model(serve *s, http_request *r); /* /v1/models/ID */
void route_load(serve *s, http_request *r);
void route_unload(serve *s, http_request *r);
void route_load_adapter(serve *s, http_request *r);
void route_unload_adapter(serve *s, http_request *r);
void route_live(serve *s, http_request *r);
void route_ready(serve *s, http_request *r);
void route_metrics(serve *s, http_request *r);
void route_page(serve *s, http_request *r);
/* Health for who has no key: the status alone. 1: r is answered. */
int serve_health_is_short(const serve *s, http_request *r, int ready, const char *status);
/* One line of the access log, if there is one (access_log.c). */
void access_log_write(const serve *s, const http_request *r);
/* The rows of flags that --settings can have, too; NULL: name ("max-queue") is none of them. */
const arg_row *serve_setting(const char *name);
/* The row of a flag that each model can have for itself in the file of --models; NULL: name is none
 * of them. Over serve_flags. */
const arg_row *serve_model_setting(const char *name);
/* Reads --settings into s->flags. 0, or the exit code with the error printed and everything as it
 * was. */
int serve_read_settings(serve *s);
/* Reads settings, keys, certificate and its key again; what cannot be used is not: a line says so
 * (reload.c). */
void serve_reload(serve *s);
/* The texts of --tls-cert and --tls-key, malloc'ed; NULL without these flags. 0, or the exit code
 * with the error printed. */
int serve_read_tls(const serve_flags *f, char **cert, char **key);

/* The ids of messages, tools and template variables of a request (chat.c), freed by mn_ids_free. */
int chat_ids(served *m, const cJSON *body, int has_tools, int32_t **ids, uint32_t *n,
             json_error *e);

/* What engines call (generation.c); arg: the served. */
extern const engine_calls serve_engine_calls;
/* A vector or a refusal for a request of embeddings. 0: the id is none of them. */
int embeddings_vector(serve *s, const engine_link *l, const wire_vector *m);
int embeddings_refused(serve *s, const engine_link *l, const wire_refused *m);
#endif
