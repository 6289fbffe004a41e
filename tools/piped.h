/* piped.h -- standard input as the beginning of a prompt: cat log | minerva run "Summarise:" */
#ifndef MINERVA_PIPED_H
#define MINERVA_PIPED_H
#include <stddef.h>

/* All that a pipe or a file on standard input holds, without its last line end; *text is malloc'ed,
 * or NULL where standard input is something else (a terminal, /dev/null, a socket, closed) or is
 * empty. A pipe that says nothing for 2 s is told on standard error, unless quiet, and waited for.
 * 0, or the exit code with the error printed. */
int piped_text(int quiet, char **text, size_t *n);
#endif
