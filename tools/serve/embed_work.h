/* embed_work.h -- the embeddings of an engine process: a session of its own, in a thread of its
 * own, one request after the other. */
#ifndef MINERVA_SERVE_EMBED_WORK_H
#define MINERVA_SERVE_EMBED_WORK_H
#include "app.h"
#include "serve/wire.h"

typedef struct embed_work embed_work;
/* The answer of a request: its vectors, or (st) why there are none; v->id is set in both. */
typedef void (*embed_done_fn)(void *arg, const wire_vector *v, mn_status st, const char *why);

int embed_work_is_encoder(const app *a); /* the model generates nothing */
/* asked: --embeddings */
int embed_work_is_wanted(const app *a, uint32_t asked);
/* Creates session and thread, which live until the process ends; done is called from that thread.
 * Else a->err says why not. */
mn_status embed_work_create(app *a, embed_done_fn done, void *arg, embed_work **out);
/* Copies and queues a request. 0: out of memory. Any thread. */
int embed_work_submit(embed_work *w, const wire_embed *m);
#endif
