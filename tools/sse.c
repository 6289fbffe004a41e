/* sse.c -- a stream of server-sent events as the data of its events (sse.h).
 *
 * Lines end with LF, CR LF or CR, and the bytes arrive in pieces that are cut anywhere: between CR
 * and LF, too, and inside of a character. So a line is collected until its end is seen. Of the
 * fields only data counts; comments, which servers send to keep a connection open, are left
 * out. Both buffers belong to the sse and are limited: a server that never ends a line or an event
 * is an error, not a program without memory. */
#include "sse.h"
#include <string.h>

static const char byte_order_mark[] = "\xEF\xBB\xBF";

/* One line without its end. */
static void take_line(sse *s) {
    const char *line = s->line.len ? s->line.ptr : "";
    size_t n = s->line.len;
    if (!s->past_first_line && n >= 3 && !memcmp(line, byte_order_mark, 3)) {
        line += 3;
        n -= 3;
    }
    if (n < 4 || memcmp(line, "data", 4) != 0)
        return;
    size_t at = 4;
    if (n > at && line[at] != ':')
        return;
    at += n > at;
    at += n > at && line[at] == ' ';
    if (s->has_data)
        mn_text_put(&s->data, "\n", 1);
    mn_text_put(&s->data, line + at, n - at);
    s->has_data = 1;
}

/* The end of a line; an empty one ends the event. */
static int end_line(sse *s, sse_event fn, void *arg) {
    int code = 0;
    if (s->line.len) {
        take_line(s);
    } else if (s->has_data) {
        mn_text_put(&s->data, "", 0);
        code = s->data.failed ? 0 : fn(arg, s->data.ptr, s->data.len);
        mn_text_clear(&s->data);
        s->has_data = 0;
    }
    s->past_first_line = 1;
    mn_text_clear(&s->line);
    if (s->line.failed || s->data.failed)
        return SSE_NO_MEMORY;
    return code;
}

int sse_feed(sse *s, const char *bytes, size_t n, sse_event fn, void *arg) {
    size_t at = 0;
    while (at < n) {
        size_t end = at;
        if (s->after_cr && bytes[at] == '\n') {
            s->after_cr = 0; // CR and this LF are one end
            at++;
            continue;
        }
        s->after_cr = 0;
        while (end < n && bytes[end] != '\n' && bytes[end] != '\r')
            end++;
        mn_text_put(&s->line, bytes + at, end - at);
        if (s->line.failed)
            return SSE_NO_MEMORY;
        if (s->line.len + s->data.len > SSE_MAX)
            return SSE_TOO_LONG;
        at = end;
        if (end == n)
            break;
        s->after_cr = bytes[end] == '\r';
        at++;
        const int code = end_line(s, fn, arg);
        if (code)
            return code;
    }
    return 0;
}

void sse_free(sse *s) {
    mn_text_free(&s->line);
    mn_text_free(&s->data);
}
