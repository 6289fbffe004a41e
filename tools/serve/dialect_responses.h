/* dialect_responses.h -- the parts of OpenAI Responses: requests (dialect_responses_request.c),
 * answers and streams (dialect_responses.c), and its routes with the responses that are kept
 * (responses_routes.c, responses_store.h). */
#ifndef MINERVA_SERVE_DIALECT_RESPONSES_H
#define MINERVA_SERVE_DIALECT_RESPONSES_H
#include "serve/dialect.h"

/* What ids of calls begin with for clients; the chat has the rest. */
#define RESPONSES_CALL_PREFIX "call_"

/* Of one response, as `own` of its answer. All texts are JSON. */
typedef struct responses_state {
    mn_text asked;  /* members of the response that repeat the request, a comma before each */
    mn_text input;  /* the list of items that the prompt is made of */
    mn_text output; /* items that are whole, with commas between */
    mn_text text;   /* of the open item, without quotes */
    mn_text name;   /* of the open call */
    int is_kept;    /* "store" */
} responses_state;

/* ---- dialect_responses_request.c ------------------------------------------------------------- */
/* The items of a body's input as a new list. Those without an id get one: `name` and a number, from
 * `first` on. NULL: the error is set, or out of memory. */
cJSON *responses_items(const cJSON *body, const char *name, int first, json_error *e);
/* The chat's request of a body whose input are the items. NULL likewise. */
cJSON *responses_chat(const cJSON *body, const cJSON *items, json_error *e);
/* dialect.request: of the body's own input. */
cJSON *responses_request(const cJSON *body, json_error *e);
/* The members of a response that repeat the request. 0: out of memory. */
int responses_put_asked(const cJSON *body, const mn_sample_params *sample, mn_text *out);
/* dialect.refused. */
void responses_refused(const served *m, json_error *e);

/* ---- dialect_responses.c --------------------------------------------------------------------- */
extern const answer_form responses_form;

/* ---- responses_routes.c ---------------------------------------------------------------------- */
/* answer_form.read: with the items of previous_response_id before the request's own. */
int responses_read(answer *a, json_error *e);
#endif
