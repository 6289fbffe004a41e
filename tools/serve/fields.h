/* fields.h -- the fields of requests by the table in fields.def: numbers and flags into `ask`, and
 * what the server refuses because it would change the answer. */
#ifndef MINERVA_SERVE_FIELDS_H
#define MINERVA_SERVE_FIELDS_H
#include "serve/json.h"

/* The endpoints that have a field. */
typedef enum {
    FIELDS_CHAT = 1,
    FIELDS_TEXT = 2,
} fields_at;

struct ask;
/* The rows NUMBER, INTEGER and FLAG into out, whose members keep their value where a field
 * is absent; then the rows REFUSED. 0: the error is set. */
int fields_read(const cJSON *body, fields_at at, struct ask *out, json_error *e);
#endif
