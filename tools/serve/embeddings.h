/* embeddings.h -- /v1/embeddings: requests that wait for vectors of an engine. */
#ifndef MINERVA_SERVE_EMBEDDINGS_H
#define MINERVA_SERVE_EMBEDDINGS_H
#include "serve/serve.h"

/* Requests of an engine that died (crashed: by its own fault) wait for the next one, unless they
 * may be why; those without an engine are sent. */
void embeddings_down(serve *s, const engine_link *l, int crashed);
void embeddings_resume(serve *s);
/* All of a model end with an error. */
void embeddings_fail(const served *m, unsigned status, const char *message);
#endif
