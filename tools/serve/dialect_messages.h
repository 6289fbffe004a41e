/* dialect_messages.h -- the two halves of Anthropic Messages. */
#ifndef MINERVA_SERVE_DIALECT_MESSAGES_H
#define MINERVA_SERVE_DIALECT_MESSAGES_H
#include "serve/dialect.h"

/* What ids of calls begin with for clients; the chat has the rest. */
#define MESSAGES_CALL_PREFIX "toolu_"

/* dialect.request of Messages (dialect_messages_request.c). */
cJSON *messages_request(const cJSON *body, json_error *e);
#endif
