/* sealed.h -- memory that plugins receive as const: separate pages, which the host writes once and
 * then makes read-only, for itself, too. A plugin that writes there gets a SIGSEGV inside its call,
 * at an address that mn_sealed_has finds: the plugin is named, and no other plugin computes with
 * changed data. given.c copies structs into such pages.
 *
 * Sealing costs system calls: use it for objects made before steps, not for arguments of a step. */
#ifndef MN_SEALED_H
#define MN_SEALED_H
#include "base/base.h"

/* ---- sealed.c -------------------------------------------------------------------------------- */
typedef struct mn_sealed mn_sealed;
/* Zeroed, room for so many bytes (a sum of mn_sealed_room), to be filled by mn_sealed_copy. NULL =
 * out of memory. */
mn_sealed *mn_sealed_open(size_t room);
/* Room that n elements of size bytes take; SIZE_MAX = too many. */
size_t mn_sealed_room(size_t n, size_t size);
size_t mn_sealed_sum(size_t a, size_t b); /* SIZE_MAX = overflow */
/* Aligned to 16; to be written before mn_sealed_close. There is as much room as was asked for. */
void *mn_sealed_take(mn_sealed *s, size_t n, size_t size);
void *mn_sealed_copy(mn_sealed *s, const void *from, size_t n, size_t size);
/* Makes the memory read-only. false = the system refuses (out of memory); s is freed. */
bool mn_sealed_close(mn_sealed *s);
void mn_sealed_free(mn_sealed *s); /* NULL is fine */

/* Other read-only memory that plugins receive: maps of files. */
typedef struct mn_sealed_range mn_sealed_range;
/* NULL = out of memory. */
mn_sealed_range *mn_sealed_note(const void *begin, size_t bytes);
void mn_sealed_forget(mn_sealed_range *range); /* NULL is fine */
/* Whether the address lies in any such memory of the process. Async-signal-safe. */
bool mn_sealed_has(const void *address);

/* ---- given.c: copies in sealed pages, which *owner holds and mn_sealed_free frees; NULL = out of
 * memory ---- */
/* n elements of size bytes without pointers: bindings, symbol values, tables. */
const void *mn_given_array(const void *from, size_t n, size_t size, mn_sealed **owner);
/* With its arrays, by the strides of this host, the names of tensors, and blobs, which begin at
 * multiples of 16. */
const mn_graph *mn_given_graph(const mn_graph *g, mn_sealed **owner);
/* With symbol_max and cache; the graph, which is sealed already, stays where it is. */
const mn_compile *mn_given_compile(const mn_compile *c, mn_sealed **owner);
/* With their names. */
const mn_file *mn_given_files(const mn_file *files, uint32_t n, mn_sealed **owner);
#endif
