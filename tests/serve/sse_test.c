/* sse_test.c -- the reader of event streams: the same events however the bytes are cut, for every
 * way to end a line; a stream that never ends an event is an error. */
#include "sse.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(ok)                                                                                  \
    do {                                                                                           \
        if (!(ok)) {                                                                               \
            fprintf(stderr, "sse_test.c:%d: not so: %s\n", __LINE__, #ok);                         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* The events, each behind a '<' and before a '>'. */
static int collect(void *arg, const char *data, size_t n) {
    mn_text *all = arg;
    CHECK(strlen(data) == n);
    mn_text_puts(all, "<");
    mn_text_put(all, data, n);
    mn_text_puts(all, ">");
    return strcmp(data, "stop") ? 0 : 7;
}

/* The stream in two cuts, at every pair of places. */
static void check_cuts(const char *stream, const char *expected, int code) {
    const size_t n = strlen(stream);
    for (size_t a = 0; a <= n; a++)
        for (size_t b = a; b <= n; b++) {
            sse s = {0};
            mn_text all = {0};
            const size_t cuts[] = {0, a, b, n};
            int found = 0;
            for (int i = 0; i < 3 && found == 0; i++)
                found = sse_feed(&s, stream + cuts[i], cuts[i + 1] - cuts[i], collect, &all);
            CHECK(found == code);
            CHECK(!strcmp(all.ptr ? all.ptr : "", expected));
            sse_free(&s);
            mn_text_free(&all);
        }
}

static void check_endless(const char *piece) {
    sse s = {0};
    mn_text all = {0};
    int code = 0;
    for (size_t i = 0; i < SSE_MAX && code == 0; i++)
        code = sse_feed(&s, piece, strlen(piece), collect, &all);
    CHECK(code == SSE_TOO_LONG);
    CHECK(all.len == 0);
    sse_free(&s);
}

int main(void) {
    char long_line[4097];
    memset(long_line, 'x', sizeof long_line - 1);
    long_line[sizeof long_line - 1] = 0;
    check_cuts("data: a\n\ndata:b\n\n", "<a><b>", 0);
    check_cuts("data: a\r\n\r\ndata:  b\r\n\r\n", "<a>< b>", 0);
    check_cuts("data: a\r\rdata: \xC3\xA9\r\r", "<a><\xC3\xA9>", 0);
    check_cuts("\xEF\xBB\xBF"
               "data: a\n\n",
               "<a>", 0);
    check_cuts(": hello\n\nid: 3\nevent: x\ndata: a\ndata: b\ndata\n\n", "<a\nb\n>", 0);
    check_cuts("datax: a\n\ndat: b\n\ndata: whole\n\ndata: cut off\n", "<whole>", 0);
    check_cuts("data: a\n\ndata: stop\n\ndata: b\n\n", "<a><stop>", 7);
    check_cuts("\n\n\r\n\rdata:\n\n", "<>", 0);
    check_endless(long_line);
    strcpy(long_line + sizeof long_line - 10, "\ndata: a\n");
    memcpy(long_line, "data: ", 6);
    check_endless(long_line);
    return 0;
}
