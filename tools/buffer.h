/* buffer.h -- a text that grows. */
#ifndef MINERVA_BUFFER_H
#define MINERVA_BUFFER_H
#include <stddef.h>

/* p: n bytes and a NUL, or NULL while it is empty. failed: out of memory, the text is
 * incomplete; tested once, at the end. All zero: an empty buffer. */
typedef struct {
    char *p;
    size_t n, cap;
    int failed;
} buffer;

void buffer_put(buffer *b, const char *bytes, size_t n);
void buffer_z(buffer *b, const char *z);
void buffer_add(buffer *b, const buffer *more); /* fails if `more` has failed */
void buffer_insert(buffer *b, size_t at, const char *bytes, size_t n);
void buffer_remove(buffer *b, size_t from, size_t to);
void buffer_clear(buffer *b); /* keeps the memory */
void buffer_free(buffer *b);
/* Returns the text, the caller's to free, and empties the buffer. NULL: out of memory. */
char *buffer_take(buffer *b);
#endif
