/* fuzz_sse.c -- a stream of server-sent events from any server. Input: a byte that chooses how the
 * stream is cut, and the stream. However it is cut, the events are those that the whole text has by
 * the standard's rules (section 9.2.6), of which this file has a reading of its own: lines first,
 * then fields, then events. */
#include "fuzz.h"
#include "sse.h"
#include <string.h>

/* Events as they come: length, then bytes. */
typedef struct {
    mn_text all;
    uint32_t n;
} events;

static int collect(void *arg, const char *data, size_t n) {
    events *to = arg;
    const uint32_t len = (uint32_t)n;
    FUZZ_CHECK(data[n] == 0);
    mn_text_put(&to->all, (const char *)&len, sizeof len);
    mn_text_put(&to->all, data, n);
    to->n++;
    return 0;
}

/* The events are all there, or memory ran out on the way. */
static void is_whole(const events *to, bool starved) {
    fuzz_well(starved || to->all.failed ? MN_OUT_OF_MEMORY : MN_OK);
}

/* cut: 0 = whole, else pieces of 1 to cut bytes. */
static void read_cut(mn_str text, uint32_t cut, events *to) {
    sse s = {0};
    uint32_t k = cut;
    int code = 0;
    while (text.len && !code) {
        k = k * 1103515245u + 12345u;
        const uint64_t want = cut ? 1 + (k >> 16) % cut : text.len;
        const uint64_t n = MN_MIN(want, text.len);
        code = sse_feed(&s, text.ptr, (size_t)n, collect, to);
        text.ptr += n;
        text.len -= n;
    }
    is_whole(to, code == SSE_NO_MEMORY);
    FUZZ_CHECK(!code);
    sse_free(&s);
}

/* The next line of the text, which loses it and its end; false: none is complete. */
static bool next_line(mn_str *text, mn_str *line) {
    uint64_t n = 0;
    while (n < text->len && text->ptr[n] != '\n' && text->ptr[n] != '\r')
        n++;
    if (n == text->len)
        return false;
    *line = (mn_str){text->ptr, n};
    const bool both = text->ptr[n] == '\r' && n + 1 < text->len && text->ptr[n + 1] == '\n';
    text->ptr += n + 1 + both;
    text->len -= n + 1 + both;
    return true;
}

/* The value of a line of the field "data"; false: it is another line. */
static bool data_of(mn_str line, mn_str *value) {
    const char *colon = memchr(line.ptr, ':', (size_t)line.len);
    const uint64_t n_name = colon ? (uint64_t)(colon - line.ptr) : line.len;
    if (n_name != 4 || memcmp(line.ptr, "data", 4) != 0)
        return false;
    uint64_t at = n_name + (colon != NULL);
    at += colon && at < line.len && line.ptr[at] == ' ';
    *value = (mn_str){line.ptr + at, line.len - at};
    return true;
}

static void read_by_rules(mn_str text, events *to) {
    mn_text data = {0};
    mn_str line;
    mn_str value;
    uint32_t n_lines = 0;
    if (text.len >= 3 && !memcmp(text.ptr, "\xEF\xBB\xBF", 3)) {
        text.ptr += 3;
        text.len -= 3;
    }
    while (next_line(&text, &line)) {
        if (!line.len && n_lines)
            collect(to, data.len ? data.ptr : "", data.len);
        if (!line.len) {
            mn_text_clear(&data);
            n_lines = 0;
        } else if (data_of(line, &value)) {
            mn_text_puts(&data, n_lines++ ? "\n" : "");
            mn_text_put(&data, value.ptr, (size_t)value.len);
        }
    }
    is_whole(to, data.failed);
    mn_text_free(&data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 1 || n > 1 << 16)
        return 0;
    events want = {0};
    const mn_str text = {(const char *)data + 1, n - 1};
    const uint32_t cuts[] = {0, 1, 1 + data[0] % 16};
    read_by_rules(text, &want);
    for (size_t i = 0; i < MN_COUNT(cuts); i++) {
        events got = {0};
        read_cut(text, cuts[i], &got);
        const mn_str expected = {want.all.ptr, want.all.len};
        FUZZ_CHECK(got.n == want.n);
        FUZZ_CHECK(mn_str_eq((mn_str){got.all.ptr, got.all.len}, expected));
        mn_text_free(&got.all);
    }
    fuzz_accepted |= want.n > 0;
    fuzz_answered(want.all.ptr, want.all.len);
    mn_text_free(&want.all);
    return 0;
}
