/* sse.h -- reads a stream of server-sent events (HTML standard, section 9.2). */
#ifndef MINERVA_SSE_H
#define MINERVA_SSE_H
#include "text_buffer.h"

#define SSE_MAX ((size_t)16 << 20) /* bytes of one event at most */

/* All zero: a stream that begins. */
typedef struct {
    mn_text line, data;
    int after_cr, has_data, past_first_line;
} sse;

/* The data of one event, a NUL behind it, valid during the call. Not 0: sse_feed ends with it. */
typedef int (*sse_event)(void *arg, const char *data, size_t n);

enum { SSE_NO_MEMORY = -1, SSE_TOO_LONG = -2 };
/* The next bytes as they arrive, cut anywhere. 0, SSE_*, or what fn returned. */
int sse_feed(sse *s, const char *bytes, size_t n, sse_event fn, void *arg);
void sse_free(sse *s);
#endif
