/* buffer.c -- the growing text of the command (buffer.h): typed lines, output to a terminal, texts
 * made of pieces.
 *
 * The owner frees it (buffer_free) or takes the text (buffer_take). A failed allocation sets
 * `failed` instead of an error of each call, so that the caller tests once, at the end. */
#include "buffer.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Space for more bytes and a NUL. 0: out of memory, now or before. */
static int reserve(buffer *b, size_t more) {
    if (b->failed || more > SIZE_MAX / 2 - b->n) {
        b->failed = 1;
        return 0;
    }
    size_t want = b->n + more + 1;
    if (want <= b->cap)
        return 1;
    size_t cap = b->cap * 2 > want ? b->cap * 2 : want + 62;
    char *grown = realloc(b->p, cap);
    if (!grown) {
        b->failed = 1;
        return 0;
    }
    b->p = grown;
    b->cap = cap;
    return 1;
}

void buffer_insert(buffer *b, size_t at, const char *bytes, size_t n) {
    if (!reserve(b, n))
        return;
    memmove(b->p + at + n, b->p + at, b->n - at);
    if (n)
        memcpy(b->p + at, bytes, n);
    b->n += n;
    b->p[b->n] = 0;
}

void buffer_put(buffer *b, const char *bytes, size_t n) {
    buffer_insert(b, b->n, bytes, n);
}

void buffer_z(buffer *b, const char *z) {
    buffer_insert(b, b->n, z, strlen(z));
}

void buffer_add(buffer *b, const buffer *more) {
    buffer_put(b, more->p ? more->p : "", more->n);
    b->failed |= more->failed;
}

void buffer_remove(buffer *b, size_t from, size_t to) {
    if (from >= to)
        return;
    memmove(b->p + from, b->p + to, b->n - to);
    b->n -= to - from;
    b->p[b->n] = 0;
}

void buffer_clear(buffer *b) {
    b->n = 0;
    if (b->p)
        b->p[0] = 0;
}

void buffer_free(buffer *b) {
    free(b->p);
    memset(b, 0, sizeof *b);
}

char *buffer_take(buffer *b) {
    buffer_put(b, "", 0);
    char *text = b->p;
    if (b->failed) {
        free(text);
        text = NULL;
    }
    memset(b, 0, sizeof *b);
    return text;
}
