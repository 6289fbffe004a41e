/* dialect_ollama.h -- what the files of the dialect of Ollama share. */
#ifndef MINERVA_SERVE_DIALECT_OLLAMA_H
#define MINERVA_SERVE_DIALECT_OLLAMA_H
#include "serve/dialect.h"

/* ---- dialect_ollama_request.c ---------------------------------------------------------------- */

/* The chat's request of a body of /api/chat; NULL: the error is set, or out of memory. */
cJSON *ollama_chat_request(const cJSON *body, json_error *e);
/* The request of a body of /api/generate: for the chat, or with *is_text for text completions: raw,
 * or with a suffix. NULL: as above. */
cJSON *ollama_generate_request(const cJSON *body, int *is_text, json_error *e);
/* 1 if the body asks for no answer but that its model be loaded: there is no message, or no prompt.
 */
int ollama_is_load(const cJSON *body);
/* The seconds of keep_alive: a number, or a duration such as "5m" or "1h30m"; negative: for ever.
 * *given 0: the body has none. 0: the error is set. */
int ollama_keep_alive(const cJSON *body, int *given, double *seconds, json_error *e);
/* The model of a body: "model", or its older name "name". 0: the error is set, also where the body
 * has none. */
int ollama_model(const cJSON *body, const char **out, json_error *e);
/* The texts of fields of the chat that have another name here. */
void ollama_refused(const served *m, json_error *e);

/* ---- dialect_ollama.c ------------------------------------------------------------------------ */

/* Appends "NAME:latest" as a string of JSON, or the name where it has a tag. */
void ollama_put_name(mn_text *out, const char *name);
/* Appends a time as a string of JSON: RFC 3339 in UTC, to the microsecond. at: seconds since 1970.
 */
void ollama_put_time(mn_text *out, double at);
#endif
