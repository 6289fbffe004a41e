/* Input: a template, alone or as the part "template", and "vars", a JSON object. */
#include "fuzz.h"
#include "text/jinja/jinja.h"
#include <string.h>

static mn_status render(const mn_jinja *t, mn_str vars, const char *const *trusted, mn_text *out,
                        mn_text *marks) {
    mn_error err = MN_ERROR_INIT;
    mn_status st = mn_jinja_render(t, vars, trusted, 1700000000, out, marks, &err);
    fuzz_ok(st, &err);
    FUZZ_CHECK(out->len == marks->len);
    FUZZ_CHECK(st == MN_OK || !out->len);
    return st;
}

static bool marked(const mn_text *marks) {
    for (size_t i = 0; i < marks->len; i++) {
        FUZZ_CHECK(marks->ptr[i] == 0 || marks->ptr[i] == 1);
        if (marks->ptr[i])
            return true;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_parts parts;
    mn_jinja *t = NULL;
    mn_error err = MN_ERROR_INIT;
    fuzz_split(data, n, "template", &parts);
    const mn_str vars = fuzz_text(&parts, "vars", "{}");
    if (fuzz_ok(mn_jinja_parse(fuzz_text(&parts, "template", ""), &t, &err), &err)) {
        mn_text once = {0};
        mn_text again = {0};
        mn_text marks = {0};
        mn_text more = {0};
        mn_status st = render(t, vars, NULL, &once, &marks);
        FUZZ_CHECK(render(t, vars, NULL, &again, &more) == st);
        fuzz_answered(once.ptr, once.len);
        fuzz_answered(marks.ptr, marks.len);
        FUZZ_CHECK(once.len == again.len);
        const size_t n_same = MN_MIN(once.len, again.len); /* less than all where memory ran out */
        FUZZ_CHECK(!n_same || !memcmp(once.ptr, again.ptr, n_same));
        FUZZ_CHECK(!n_same || !memcmp(marks.ptr, more.ptr, n_same));
        fuzz_accepted = st == MN_OK;
        again.len = more.len = 0; /* without data, all text is the template's own */
        if (!render(t, mn_str_of("{}"), NULL, &again, &more))
            FUZZ_CHECK(!marked(&more));
        mn_text_free(&once);
        mn_text_free(&again);
        mn_text_free(&marks);
        mn_text_free(&more);
    }
    mn_jinja_free(t);
    fuzz_free(&parts);
    return 0;
}
