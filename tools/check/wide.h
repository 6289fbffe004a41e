/* wide.h -- a backend seen through a host of a later minor: every struct, array element and output
 * is longer than the plugin knows, with garbage in what it does not know, and guards behind what it
 * may write. */
#ifndef MINERVA_CHECK_WIDE_H
#define MINERVA_CHECK_WIDE_H
#include "case.h"

/* A table that widens what goes through it, graphs but those of wide_do excepted. One at a time; it
 * lasts until the next call. */
const mn_backend *wide_backend(const mn_backend *be);
/* The same for the whole process, with graphs: wide_backend of what goes through it adds nothing.
 * NULL is passed on. */
const mn_backend *wide_always(const mn_backend *be);
const mn_loader *wide_loader(const mn_loader *ld); /* wide_loader.c; NULL is passed on */
/* Of mn.profile/1 and mn.kv/1 (wide_tables.c); what is of another id, or NULL, is passed on. */
const void *wide_table(const char *id, const void *table);
/* What the plugin wrote where it must not, since wide_backend; "" = nothing. */
const char *wide_breach(void);
int wide_compiled(void); /* compile was reached since wide_backend */

/* Gives the graph of c node, tensor and symbol arrays with garbage between the elements. 0 = out of
 * memory. Freed by wide_undo, which gives c its own arrays back. */
typedef struct {
    mn_graph was;
    void *arrays[3];
} wide_graph;
int wide_do(wide_graph *w, op_case *c);
void wide_undo(wide_graph *w, op_case *c);
#endif
