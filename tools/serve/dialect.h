/* dialect.h -- interfaces that are no OpenAI chat: each is a translation of a request to one of
 * /v1/chat/completions, and of the answer back. Prompts, queue, engines and streams are the chat's.
 *
 *   dialect.c            which dialect a path has; errors; the way through an answer
 *   dialect_build.c      what requests are built of
 *   dialect_messages.c, dialect_messages_request.c   Anthropic Messages
 *   dialect_responses.h   OpenAI Responses
 *   dialect_ollama.h     Ollama
 *   dialect_llama.h      llama-server's own paths
 *
 * A dialect has one choice per request. While the answer runs, the pieces of a stream are gathered
 * in g->content as they go to the client, with everything that is around them; whole answers use
 * the texts of the generation as they like. */
#ifndef MINERVA_SERVE_DIALECT_H
#define MINERVA_SERVE_DIALECT_H
#include "serve/answer.h"

typedef struct dialect {
    const char *paths[12]; /* of its endpoints, or what they begin with before a '/'; then NULL */
    const char *but_for;   /* paths that begin with it are none of its; NULL: there are none */
    const char *id_header; /* answers have the request's id in it, too; NULL: none */
    const char *stream_type;
    const char *ping; /* sent in an idle stream; NULL: nothing is */

    /* ---- in any thread ---- */
    /* The same request for /v1/chat/completions, freed by cJSON_Delete; NULL: the error is set, or
     * out of memory. Fields that the chat reads are checked by it: only what has another name or
     * another form is checked here. */
    cJSON *(*request)(const cJSON *body, json_error *e);
    /* How long the model stays without requests, in seconds, below 0: for good. NULL: a request
     * cannot say it. 0: this one does not, or not rightly, which `request` refuses. */
    int (*stay)(const cJSON *body, double *seconds);
    /* The chat has refused the request: puts its sentence into the dialect's words. NULL: they are
     * the same. */
    void (*refused)(const served *m, json_error *e);

    /* ---- in the loop; all append to out ---- */
    void (*begin)(answer *a, mn_text *out); /* what a stream begins with */
    /* What g has since the last piece of a stream, which is cleared; NULL: g->content. */
    void (*pieces)(answer *a, generation *g, mn_text *out);
    void (*end)(answer *a, generation *g, mn_text *out);   /* what it ends with */
    void (*whole)(answer *a, generation *g, mn_text *out); /* a whole answer */
    /* The answer to a request that needs no generation; NULL: there is none such. 0: it is answered
     * already. */
    int (*empty)(answer *a, mn_text *out);
    /* The body of an error of a status. */
    void (*error)(const http_request *r, const json_error *e, mn_text *out);
    /* The same error in a stream that has begun; the stream ends with it. */
    void (*stream_error)(const http_request *r, const json_error *e, mn_text *out);
    void (*free)(void *own); /* `own` of an answer, or NULL; NULL: there is none */
} dialect;

/* The dialect of a path; NULL: OpenAI's. */
const dialect *dialect_of(const char *path);
/* Whole errors of a path with a dialect. */
void dialect_error(const dialect *d, http_request *r, const json_error *e);
/* Adds the dialect's header with the id of the request; once, before its answer begins. */
void dialect_name_request(const dialect *d, http_request *r);
/* answer_form.read of a dialect: translates the request and reads it as a chat. */
int dialect_read(answer *a, json_error *e);
/* A route that counts the tokens of a prompt: with the translated request. 0: the error is set. */
int dialect_count(served *m, const dialect *d, const cJSON *body, uint32_t *n, json_error *e);
/* The same of a request of the chat itself. */
int dialect_count_plain(served *m, const cJSON *chat, uint32_t *n, json_error *e);
/* The same with the chat's request, which it takes over; NULL: out of memory. */
int dialect_count_chat(served *m, const dialect *d, cJSON *chat, uint32_t *n, json_error *e);

/* ---- building the chat's request; each 0: out of memory -------------------------------------- */
/* Takes v over, also on failure. */
int dialect_add(cJSON *object, const char *name, cJSON *v);
int dialect_push(cJSON *list, cJSON *v);
int dialect_copy(cJSON *object, const char *name, const cJSON *v); /* v NULL: nothing is added */

/* ---- the dialects ---------------------------------------------------------------------------- */
extern const dialect dialect_messages;
extern const dialect dialect_responses;
extern const dialect dialect_ollama;
extern const dialect dialect_llama;
extern const dialect dialect_cohere; /* of errors alone */
#endif
