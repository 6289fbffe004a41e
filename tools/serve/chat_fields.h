/* chat_fields.h -- fields of a chat that its template reads, and how its prompt ends. */
#ifndef MINERVA_SERVE_CHAT_FIELDS_H
#define MINERVA_SERVE_CHAT_FIELDS_H
#include "serve/json.h"

/* The variables of the template as JSON, freed by cJSON_free; NULL: the error is set. */
char *chat_variables(const cJSON *body, json_error *e);
/* How the prompt ends: *flags gets MN_CHAT_CONTINUE, where the answer continues the last message
 * (continue_final_message), or MN_CHAT_NO_HEADER (add_generation_prompt: false). 0: the error is
 * set. */
int chat_read_end(const cJSON *body, uint32_t *flags, json_error *e);
#endif
