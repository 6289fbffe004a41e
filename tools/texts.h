/* texts.h -- what embed and rerank do alike with their texts: lines of a file, the longest that a
 * session reads, blocks. One thread. */
#ifndef MINERVA_TEXTS_H
#define MINERVA_TEXTS_H
#include "app.h"

enum { TEXTS_BLOCK = 256 }; /* texts that one call of the library gets */

/* A text of the job: 0, or the exit code with its message printed. */
typedef int (*texts_add)(void *job, const char *text, size_t bytes);
/* Adds each line of a file ("-": standard input) without its end; what follows the last end is a
 * line unless empty. *data: the file, which the texts point into, the caller's to free, also when
 * this fails. 0, or the exit code. */
int texts_of_file(const char *file, char **data, texts_add add, void *job);

/* Tokens that the session of a reads of one text at most; *flag: the flag to change that, for a
 * message. The library checks lengths block by block, and counts from the block's first text. */
uint32_t texts_most_tokens(const app *a, const char **flag);

/* Texts [first, first + n) of the job, n <= TEXTS_BLOCK: 0, or the exit code. */
typedef int (*texts_block)(void *job, uint32_t first, uint32_t n);
/* All of n texts in blocks, in order, under a progress bar that says what; ends with the first exit
 * code that is not 0. */
int texts_in_blocks(const char *what, uint32_t n, texts_block block, void *job);
#endif
