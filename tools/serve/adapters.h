/* adapters.h -- LoRA adapters of a served model: those of --lora, and those that are loaded and
 * unloaded while the server runs.
 *
 * The list is the front's. Engines get it when they start, and each change as a message; a change
 * is answered when all engines that were ready have answered. A request names an adapter by its
 * model: "MODEL:ADAPTER", or the adapter's name alone. */
#ifndef MINERVA_SERVE_ADAPTERS_H
#define MINERVA_SERVE_ADAPTERS_H
#include "serve/engine_link.h"
#include "serve/flags.h"
#include "serve/wire.h"

struct serve;
struct served;

typedef struct {
    char *name, *path;
    double scale;
    int of_flags; /* --lora: without it the model does not start */
} served_adapter;
typedef struct {
    served_adapter *v;
    unsigned n;
    mn_text lines; /* as WIRE_OPEN has them */
} served_adapters;

/* The adapters of --lora. 0, or the exit code with the error printed. */
int adapters_read_flags(struct served *m);
void adapters_free(struct served *m);
/* The list and the room for it, into m->open. */
void adapters_put_open(struct served *m);
/* The adapter that a request means with this name of a model; NULL: none. */
const char *adapters_of(const struct served *m, const char *model);
/* An engine has made a change, or not (message); 0: the id is none of a change. */
int adapters_changed(struct serve *s, const engine_link *l, uint64_t id, const mn_str *message);
/* The engine has ended: nothing more comes of it. */
void adapters_down(struct serve *s, const engine_link *l);
/* The server ends: nobody waits any more. */
void adapters_end(struct serve *s);
#endif
