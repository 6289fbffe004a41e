/* Input: a regular expression in the first line, and a text that it cuts. */
#include "fuzz.h"
#include "text/pretokenizer/stages.h"
#include <string.h>

static void cut(mn_str expression, mn_str text, mn_split_behavior behavior, bool invert) {
    mn_stages steps = {0};
    mn_pieces p = {0};
    mn_error err = MN_ERROR_INIT;
    char *z = mn_strndup(expression.ptr, expression.len);
    if (fuzz_well(z ? MN_OK : MN_OUT_OF_MEMORY) &&
        fuzz_ok(mn_stages_add_split(&steps, z, behavior, invert, "input", &err), &err) &&
        fuzz_ok(mn_pieces_set(&p, text.ptr, text.len, mn_char_length(text.ptr, text.len), &err),
                &err) &&
        fuzz_ok(mn_stages_run(&steps, &p, &err), &err)) {
        size_t at = 0;
        for (size_t i = 0; i < p.n; i++)
            fuzz_answered(&(size_t[]){p.span[i].off, p.span[i].len}, 2 * sizeof(size_t));
        for (size_t i = 0; i < p.n; i++) {
            FUZZ_CHECK(p.span[i].len && p.span[i].off >= at &&
                       p.span[i].off + p.span[i].len <= p.text.len);
            if (behavior != MN_SPLIT_REMOVED)
                FUZZ_CHECK(p.span[i].off == at);
            at = p.span[i].off + p.span[i].len;
        }
        if (behavior != MN_SPLIT_REMOVED)
            FUZZ_CHECK(at == p.text.len);
        fuzz_accepted = true;
    }
    mn_pieces_free(&p);
    mn_stages_free(&steps);
    mn_free(z);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const char *eol = n ? memchr(data, '\n', n) : NULL;
    if (!eol)
        return 0;
    const mn_str expression = {(const char *)data, (uint64_t)(eol - (const char *)data)};
    const mn_str text = {eol + 1, n - expression.len - 1};
    if (memchr(expression.ptr, 0, expression.len) || mn_utf8_check(text.ptr, text.len) != text.len)
        return 0;
    for (int b = MN_SPLIT_ISOLATED; b <= MN_SPLIT_CONTIGUOUS; b++)
        cut(expression, text, (mn_split_behavior)b, b & 1);
    cut(expression, text, MN_SPLIT_ISOLATED, true);
    return 0;
}
