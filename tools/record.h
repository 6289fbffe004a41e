/* record.h -- values of the records that the library gives as JSON (mn_model_explain), for those
 * that print them. Any thread; what is returned belongs to the object. */
#ifndef RECORD_H
#define RECORD_H
#include <cjson/cJSON.h>

/* The text of a key; "" where it is missing or no text. */
const char *record_text(const cJSON *object, const char *key);
/* The number of a key; 0 where it is missing or no number. */
double record_number(const cJSON *object, const char *key);

/* What a sequence takes of the memory of a placement's devices, in bytes. */
typedef struct {
    double state;     /* however long it is; 0: no layer remembers a state */
    double per_token; /* of windows as long as they are not full */
} record_cost;
record_cost record_sequence_cost(const cJSON *placement);
/* "a sequence: 22.50 KiB of state, 96 B for each token" */
const char *record_cost_text(const record_cost *cost, char dst[96]);

#endif
