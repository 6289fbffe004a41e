/* dialect_llama.h -- what the files of llama-server's paths share. */
#ifndef MINERVA_SERVE_DIALECT_LLAMA_H
#define MINERVA_SERVE_DIALECT_LLAMA_H
#include "serve/dialect.h"

/* ---- dialect_llama_request.c ----------------------------------------------------------------- */

/* The request of a text completion of a body of /completion; of /infill. *kept: what the answer
 * needs of the body itself, or NULL. NULL: the error is set, or out of memory. */
cJSON *llama_completion_request(const served *m, const cJSON *body, cJSON **kept, json_error *e);
cJSON *llama_infill_request(const served *m, const cJSON *body, cJSON **kept, json_error *e);

/* ---- llama_parts.c: members of answers ------------------------------------------------------- */

/* The members of "generation_settings", an object; a NULL: those of requests that say nothing. */
void llama_put_settings(const served *m, const answer *a, mn_text *out);
/* "timings": an object. */
void llama_put_timings(const generation *g, mn_text *out);
/* The text of ids with special tokens by their names, as a string of JSON. */
void llama_put_text_of(const served *m, const int32_t *ids, uint32_t n, mn_text *out);
/* Of a whole answer only the members that `fields` names, as "a" or "a/b"; it replaces *answer. */
void llama_choose_fields(const cJSON *fields, mn_text *answer);
#endif
