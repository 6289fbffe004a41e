/* rules.c -- PATTERN=TYPE of the user: a type for the matrices whose names match a regular
 * expression. The compiled expressions belong to the plan; memory is the library's, so that it
 * counts and can fail like any other. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "convert/convert.h"
#include <pcre2.h>
#include <string.h>
#include <strings.h>

static void *rules_alloc(size_t n, void *unused) {
    (void)unused;
    return mn_alloc(n, 1);
}

static void rules_release(void *p, void *unused) {
    (void)unused;
    mn_free(p);
}

static mn_status rules_no_memory(mn_error *err, size_t n) {
    return mn_fail_memory(err, n);
}

/* The n bytes of the rule's pattern, and what a search needs. */
static mn_status compile_pattern(mn_convert_rule *r, size_t n, mn_error *err) {
    pcre2_general_context *general = pcre2_general_context_create(rules_alloc, rules_release, NULL);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    int fault = PCRE2_ERROR_NOMEMORY;
    PCRE2_SIZE at = 0;
    if (context)
        r->code =
            pcre2_compile((PCRE2_SPTR)r->text, n, PCRE2_NEVER_BACKSLASH_C, &fault, &at, context);
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    if (r->code) {
        r->data = pcre2_match_data_create_from_pattern(r->code, NULL);
        return r->data ? MN_OK : rules_no_memory(err, n);
    }
    if (fault == PCRE2_ERROR_NOMEMORY || fault == PCRE2_ERROR_HEAP_FAILED)
        return rules_no_memory(err, n);
    PCRE2_UCHAR why[120] = {0};
    pcre2_get_error_message(fault, why, sizeof why);
    return mn_fail(err, MN_INVALID,
                   "\"%.200s\": the pattern is no regular expression: %s at byte %u", r->text,
                   (const char *)why, (unsigned)at);
}

/* The type behind the last '=': a pattern may have others. */
static mn_status read_rule(const char *text, mn_convert_rule *out, mn_error *err) {
    const char *sign = text ? strrchr(text, '=') : NULL;
    if (!sign || sign == text)
        return mn_fail(err, MN_INVALID,
                       "found \"%.200s\", expected PATTERN=TYPE, as in attn_v=q8_0",
                       text ? text : "");
    const mn_convert_type *type = mn_convert_type_find(sign + 1);
    if (!type)
        return mn_fail(err, MN_INVALID, "\"%.200s\": unknown type \"%.40s\"", text, sign + 1);
    if (strcasecmp(type->name, mn_dtype_name(type->dtype)))
        return mn_fail(err, MN_INVALID, "\"%.200s\": %s is a mix of types, expected one type", text,
                       type->name);
    out->text = text;
    out->dtype = type->dtype;
    return compile_pattern(out, (size_t)(sign - text), err);
}

mn_status mn_convert_rules_read(const char *const *texts, uint32_t n, mn_convert_rules *out,
                                mn_error *err) {
    mn_status st = MN_OK;
    if (!n)
        return MN_OK;
    if (!texts)
        return mn_fail(err, MN_INVALID, "mn_convert_params.types is NULL, but n_types is %u", n);
    out->at = mn_alloc(n, sizeof *out->at);
    if (!out->at)
        return mn_fail_memory(err, n * sizeof *out->at);
    memset(out->at, 0, n * sizeof *out->at);
    for (; out->n < n && !st; out->n++)
        st = read_rule(texts[out->n], &out->at[out->n], err);
    return st;
}

mn_status mn_convert_rules_find(mn_convert_rules *r, mn_str name, uint32_t *dtype, mn_error *err) {
    *dtype = 0;
    for (size_t i = 0; i < r->n; i++) {
        mn_convert_rule *rule = &r->at[i];
        const int found =
            pcre2_match(rule->code, (PCRE2_SPTR)name.ptr, name.len, 0, 0, rule->data, NULL);
        if (found == PCRE2_ERROR_NOMATCH)
            continue;
        if (found == PCRE2_ERROR_NOMEMORY || found == PCRE2_ERROR_HEAPLIMIT)
            return rules_no_memory(err, name.len);
        if (found < 0)
            return mn_fail(err, MN_INVALID,
                           "\"%.200s\": the search for its pattern in %.*s takes too long",
                           rule->text, MN_STR_ARG(name));
        rule->used = true;
        *dtype = rule->dtype;
        return MN_OK;
    }
    return MN_OK;
}

static void rule_free(mn_convert_rule *r) {
    pcre2_match_data_free(r->data);
    pcre2_code_free(r->code);
}

void mn_convert_rules_free(mn_convert_rules *r) {
    for (size_t i = 0; i < r->n; i++)
        rule_free(&r->at[i]);
    mn_free(r->at);
    *r = (mn_convert_rules){0};
}
