/* name_rule.c -- see name_rule.h: what PCRE2 needs to compile a user's pattern and to search it. A
 * rule owns both until it is freed; it is used by one thread at a time. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/name_rule.h"
#include <pcre2.h>
#include <string.h>

static void *name_rule_alloc(size_t n, void *unused) {
    (void)unused;
    return mn_alloc(n, 1);
}

static void name_rule_release(void *p, void *unused) {
    (void)unused;
    mn_free(p);
}

/* The pattern, and what a search needs. */
static mn_status compile_pattern(mn_name_rule *r, mn_str pattern, mn_error *err) {
    pcre2_general_context *general =
        pcre2_general_context_create(name_rule_alloc, name_rule_release, NULL);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    int fault = PCRE2_ERROR_NOMEMORY;
    PCRE2_SIZE at = 0;
    if (context)
        r->code = pcre2_compile((PCRE2_SPTR)pattern.ptr, pattern.len, PCRE2_NEVER_BACKSLASH_C,
                                &fault, &at, context);
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    if (r->code) {
        r->data = pcre2_match_data_create_from_pattern(r->code, NULL);
        return r->data ? MN_OK : mn_fail_memory(err, pattern.len);
    }
    if (fault == PCRE2_ERROR_NOMEMORY || fault == PCRE2_ERROR_HEAP_FAILED)
        return mn_fail_memory(err, pattern.len);
    PCRE2_UCHAR why[120] = {0};
    pcre2_get_error_message(fault, why, sizeof why);
    return mn_fail(err, MN_INVALID, "\"%.*s\": the pattern is no regular expression: %s at byte %u",
                   MN_STR_ARG(r->text), (const char *)why, (unsigned)at);
}

mn_status mn_name_rule_read(mn_str text, const char *like, mn_name_rule *out, mn_error *err) {
    uint64_t sign = text.len;
    *out = (mn_name_rule){.text = text};
    while (sign && text.ptr[sign - 1] != '=')
        sign--;
    if (sign < 2)
        return mn_fail(err, MN_INVALID, "found \"%.*s\", expected %s", MN_STR_ARG(text), like);
    out->value = (mn_str){text.ptr + sign, text.len - sign};
    return compile_pattern(out, (mn_str){text.ptr, sign - 1}, err);
}

mn_status mn_name_rule_find(mn_name_rule *r, mn_str name, bool *found, mn_error *err) {
    const int n = pcre2_match(r->code, (PCRE2_SPTR)name.ptr, name.len, 0, 0, r->data, NULL);
    *found = n >= 0;
    if (n == PCRE2_ERROR_NOMATCH)
        return MN_OK;
    if (n == PCRE2_ERROR_NOMEMORY || n == PCRE2_ERROR_HEAPLIMIT)
        return mn_fail_memory(err, name.len);
    if (n < 0)
        return mn_fail(err, MN_INVALID,
                       "\"%.*s\": the search for its pattern in %.*s takes too long",
                       MN_STR_ARG(r->text), MN_STR_ARG(name));
    r->used = true;
    return MN_OK;
}

void mn_name_rule_free(mn_name_rule *r) {
    pcre2_match_data_free(r->data);
    pcre2_code_free(r->code);
    *r = (mn_name_rule){0};
}
