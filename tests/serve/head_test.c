/* head_test.c -- the lines of a head: nothing is read behind what is there (run with a sanitizer),
 * a beginning of a head is never clean, and which changes of a byte are still a head. */
#include "serve/head.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const char whole[] = "Host: localhost\r\nX:\r\nContent-Length: 47\r\nAccept: \t*/*\r\n\r\n";

/* The verdict over n bytes, of which n_come have come, in memory of that size, which h points into
 * until the next call. */
static head_verdict verdict(const char *text, size_t n_come, size_t n, head_fields *h) {
    static char *bytes;
    free(bytes);
    bytes = calloc(n ? n : 1, 1);
    size_t used = 0;
    assert(bytes);
    memcpy(bytes, text, n_come);
    *h = (head_fields){0};
    const head_verdict v = head_lines(bytes, n, &used, h);
    assert(v != HEAD_CLEAN || used == sizeof whole - 1);
    assert(v != HEAD_BAD || h->why);
    return v;
}

static void beginnings(void) {
    head_fields h;
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        assert(verdict(whole, n, n, &h) == HEAD_UNSEEN);
        assert(verdict(whole, n, n + 100, &h) == HEAD_UNSEEN);
    }
    assert(verdict(whole, sizeof whole - 1, sizeof whole - 1, &h) == HEAD_CLEAN);
    assert(!head_check(&h, 1) && h.length.n == 2 && h.host.n == 9);
}

/* No changed line end, and no NUL, is clean or unseen. */
static void changes(void) {
    static const char others[] = {0, '\n', '\r', ' ', '\t', 1, 127};
    head_fields h;
    for (size_t i = 0; i < sizeof whole - 1; i++)
        for (size_t k = 0; k < sizeof others; k++) {
            char text[sizeof whole];
            memcpy(text, whole, sizeof whole);
            const int is_end = text[i] == '\r' || text[i] == '\n';
            const int last = i + 2 > sizeof whole - 2;
            if (text[i] == others[k])
                continue;
            text[i] = others[k];
            const head_verdict v = verdict(text, sizeof whole - 1, sizeof whole + 40, &h);
            if (others[k] == 0)
                assert(v == HEAD_BAD || (v == HEAD_UNSEEN && last));
            else if (is_end || (others[k] != ' ' && others[k] != '\t'))
                assert(v == HEAD_BAD);
            else
                assert(v != HEAD_UNSEEN);
        }
}

static head_text text_of(const char *z) {
    return (head_text){z, strlen(z)};
}

/* What one field of a head of HTTP/1.1 with a Host is refused for, or NULL. */
static const char *check(const char *name, const char *value) {
    head_fields h = {0};
    head_field(&h, text_of("host"), text_of("a"));
    head_field(&h, text_of(name), text_of(value));
    return head_check(&h, 1);
}

int main(void) {
    static const char *const lengths[] = {"",
                                          "+47",
                                          "-1",
                                          "0x2f",
                                          "047",
                                          "47,47",
                                          "47 ",
                                          " 47",
                                          "4 7",
                                          "4e1",
                                          "٤٧",
                                          "00",
                                          "1234567890123456789"};
    beginnings();
    changes();
    assert(!check("CONTENT-LENGTH", "0") && !check("content-length", "47"));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        assert(check("Content-Length", lengths[i]));
    assert(!check("Transfer-Encoding", "Chunked") && check("Transfer-Encoding", "chunked "));
    assert(check("Transfer-Encoding", "identity") && check("Host", "a") && check("a b", "c"));
    assert(!check("X", "caf\xc3\xa9") && check("X", "a\x7f") && check("X", "a\nb"));
    assert(!head_target("/a?b=%20") && !head_target("*") && !head_target("http://a/"));
    assert(head_target("a") && head_target("/a b") && head_target("/%00") && head_target("/\x80"));
    assert(!strcmp(head_path("HTTP://Ab/c", text_of("aB")), "/c"));
    assert(!strcmp(head_path("http://a", text_of("a")), "/"));
    assert(!head_path("http://a.b/c", text_of("a")) &&
           !strcmp(head_path("/x://y", text_of("")), "/x://y"));
    return 0;
}
