/* record.h -- values of the records that the library gives as JSON (mn_model_explain), for those
 * that print them. Any thread; what is returned belongs to the object. */
#ifndef RECORD_H
#define RECORD_H
#include <cjson/cJSON.h>

/* The text of a key; "" where it is missing or no text. */
const char *record_text(const cJSON *object, const char *key);
/* The number of a key; 0 where it is missing or no number. */
double record_number(const cJSON *object, const char *key);

#endif
