/* responses_store.h -- the last responses of this process (/v1/responses): what GET shows of them,
 * and the items that the next request continues with previous_response_id.
 *
 * Any thread: a lock is inside. Texts are copied. An entry belongs to the key of its request; for
 * other keys it does not exist. */
#ifndef MINERVA_SERVE_RESPONSES_STORE_H
#define MINERVA_SERVE_RESPONSES_STORE_H
#include "text_buffer.h"

typedef struct responses_store responses_store;

/* most: bytes of all texts; the oldest entries leave. NULL: out of memory. */
responses_store *responses_store_open(size_t most);
void responses_store_free(responses_store *t);
/* Keeps a response under its id: its JSON, the items of its prompt (a JSON list) and its output
 * (likewise). What is larger than the store, or finds no memory, is not kept. */
void responses_store_put(responses_store *t, const char *id, int key, const mn_text *response,
                         const mn_text *input, const mn_text *output);
/* Appends copies; NULL: not wanted. 0: there is no such response. */
int responses_store_get(responses_store *t, const char *id, int key, mn_text *response,
                        mn_text *input, mn_text *output);
/* 0: there is no such response. */
int responses_store_drop(responses_store *t, const char *id, int key);
#endif
