/* test_calls.h -- for test_calls*.c: an answer is fed in pieces, its events become a text. */
#ifndef TEST_CALLS_H
#define TEST_CALLS_H
#include "text/chat/call_types.h"
#include "text/chat/calls.h"
#include "text/chat/chat.h"
#include <cjson/cJSON.h>

/* A call as most families write it. */
#define CALL(name, args) "{\"name\": \"" name "\", \"arguments\": " args "}"

extern const cJSON *tools;  /* of the request; NULL: none */
extern mn_calls_end ending; /* how the answer ends */

uint32_t draw(uint32_t n); /* 0 .. n - 1 */
/* Text as it is, a call as «number name|arguments». */
void write_events(mn_events *events, mn_text *out);
/* All events of a text whose pieces have at most `most` bytes; 0: whole. */
void collect(const mn_call_family *family, mn_str text, uint32_t most, mn_events *all);
const mn_call_family *family(const char *of_template);

/* test_calls_templates.c */
void templates(void **state);
/* test_calls_hostile.c */
void random_answers(void **state);
void hostile(void **state);
#endif
