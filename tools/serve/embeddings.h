/* embeddings.h -- /v1/embeddings: requests that wait for vectors of an engine. */
#ifndef MINERVA_SERVE_EMBEDDINGS_H
#define MINERVA_SERVE_EMBEDDINGS_H
#include "serve/serve.h"

/* Requests of an engine that died (crashed: by its own fault) wait for the next one, unless they
 * may be why; those without an engine are sent. */
void embeddings_down(serve *s, const engine_link *l, int crashed);
void embeddings_resume(serve *s);
/* All of a model end with an error. */
void embeddings_fail(const served *m, unsigned status, const char *message);

/* Vectors, for who writes the answer. */
typedef struct {
    const char *model; /* as it was asked for */
    uint32_t n_texts, n_dim, n_ids;
    const float *values; /* [n_texts][n_dim]; of pairs one score each */
    const cJSON *body;   /* of the request */
    const char *id;      /* of the request */
    int64_t created;     /* seconds since 1970 */
    double since;        /* seconds() when the request had arrived */
} embed_answer;
/* Another form than that of /v1/embeddings. */
typedef struct {
    /* Brings the body into OpenAI's form, in any thread. *cuts 1: texts that are too long are cut.
     * 0: the error is set, or out of memory. NULL: it is in that form. */
    int (*request)(cJSON *body, int *cuts, json_error *e);
    void (*put)(const embed_answer *v, mn_text *out); /* the answer, in the loop */
    /* Of scores, in any thread: brings the pairs by the two functions below. 0: the error is set.
     * NULL: texts are embedded. */
    int (*pairs)(struct embedding *m, const cJSON *body, json_error *e);
} embed_form;
/* Room for n pairs; logits: the numbers of the head are asked for. param: the field, for
 * errors. */
int embeddings_pairs(struct embedding *m, uint32_t n, int logits, const char *param, json_error *e);
/* instruction: NULL = none. */
int embeddings_add_pair(struct embedding *m, const char *query, const char *text,
                        const char *instruction, const char *param, json_error *e);
/* The route of a form; NULL: OpenAI's. */
void embeddings_serve(serve *s, http_request *r, const embed_form *form);
/* v: [n] f32, as a list of numbers, or as base64 of little-endian floats with its quotes. */
void embeddings_put_vector(mn_text *out, const float *v, uint32_t n, int base64);
#endif
