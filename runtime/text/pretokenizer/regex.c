/* regex.c -- searching: PCRE2 with its compiler to machine code where it has one, memmem for
 * literals. A compiled expression is immutable and belongs to a stage; what a search writes to is
 * in the matcher, of which each search has its own. Memory is the library's, so that it counts and
 * can fail like any other. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenizer/regex_syntax.h"
#include "text/pretokenizer/stages.h"
#include <pcre2.h>
#include <string.h>

static void *regex_alloc(size_t n, void *unused) {
    (void)unused;
    return mn_alloc(n, 1);
}

static void regex_release(void *p, void *unused) {
    (void)unused;
    mn_free(p);
}

/* e: the expression as its author wrote it, for messages; own: rewritten for PCRE2. */
static mn_status cut_regex_compile(mn_regex *out, mn_str e, const mn_text *own, const char *where,
                                   mn_error *err) {
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    pcre2_general_context *general = pcre2_general_context_create(regex_alloc, regex_release, NULL);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    int code = PCRE2_ERROR_NOMEMORY;
    PCRE2_SIZE at = 0;
    if (context)
        out->code = pcre2_compile((PCRE2_SPTR)(own->ptr ? own->ptr : ""), (PCRE2_SIZE)own->len,
                                  options, &code, &at, context);
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    if (out->code) {
        (void)pcre2_jit_compile(out->code, PCRE2_JIT_COMPLETE); // else matches are interpreted
        return MN_OK;
    }
    if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
        return mn_fail_memory(err, e.len);
    PCRE2_UCHAR text[120] = {0};
    pcre2_get_error_message(code, text, sizeof text);
    return mn_fail(err, MN_UNSUPPORTED, "%s: regular expression: %s: %.*s", where, (char *)text,
                   MN_STR_ARG(e));
}

mn_status mn_regex_compile(mn_regex *out, mn_str e, const char *where, mn_error *err) {
    memset(out, 0, sizeof *out);
    mn_text own = {0};
    const char *problem = mn_regex_translate(e, &own);
    mn_status st = MN_OK;
    if (own.failed)
        st = mn_fail_memory(err, e.len);
    else if (problem)
        st = mn_fail(err, MN_UNSUPPORTED, "%s: regular expression with %s: %.*s", where, problem,
                     MN_STR_ARG(e));
    else
        st = cut_regex_compile(out, e, &own, where, err);
    mn_text_free(&own);
    return st;
}

mn_status mn_regex_literal(mn_regex *out, mn_str text, mn_error *err) {
    memset(out, 0, sizeof *out);
    out->len = (size_t)text.len;
    out->literal = mn_strndup(text.ptr ? text.ptr : "", out->len);
    return out->literal ? MN_OK : mn_fail_memory(err, text.len + 1);
}

void mn_regex_free(mn_regex *p) {
    pcre2_code_free(p->code);
    mn_free(p->literal);
    memset(p, 0, sizeof *p);
}

mn_status mn_matcher_init(mn_matcher *m, const mn_regex *p, mn_error *err) {
    m->pattern = p;
    m->data = NULL;
    if (!p->code)
        return MN_OK;
    m->data = pcre2_match_data_create_from_pattern(p->code, NULL);
    return m->data ? MN_OK : mn_fail_memory(err, 256);
}

void mn_matcher_free(mn_matcher *m) {
    pcre2_match_data_free(m->data);
    m->data = NULL;
}

/* An empty literal matches nowhere. */
static mn_status next_literal(const mn_regex *p, const char *text, size_t n, size_t from,
                              size_t *lo, size_t *hi) {
    const char *at = p->len ? memmem(text + from, n - from, p->literal, p->len) : NULL;
    if (!at)
        return MN_END;
    *lo = (size_t)(at - text);
    *hi = *lo + p->len;
    return MN_OK;
}

/* Where machine code runs out of stack, the interpreter, which has the heap, tries again. */
mn_status mn_matcher_next(mn_matcher *m, const char *text, size_t n, size_t from, size_t *lo,
                          size_t *hi, mn_error *err) {
    if (!m->pattern->code)
        return next_literal(m->pattern, text, n, from, lo, hi);
    pcre2_code *code = m->pattern->code;
    PCRE2_SPTR s = (PCRE2_SPTR)text;
    int rc = pcre2_match(code, s, n, from, PCRE2_NO_UTF_CHECK, m->data, NULL);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(code, s, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data, NULL);
    if (rc == PCRE2_ERROR_NOMATCH)
        return MN_END;
    if (rc == PCRE2_ERROR_NOMEMORY)
        return mn_fail_memory(err, n);
    if (rc < 0) {
        PCRE2_UCHAR why[120] = {0};
        pcre2_get_error_message(rc, why, sizeof why);
        return mn_fail(err, MN_BAD_INPUT, "splitting the text, at byte %zu: %s", from, (char *)why);
    }
    const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(m->data);
    *lo = bounds[0];
    *hi = bounds[1] < bounds[0] ? bounds[0] : bounds[1]; /* \K can put the start behind the end */
    return MN_OK;
}
