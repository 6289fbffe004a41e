/* rules.c -- PATTERN=TYPE of the user: a type for the matrices whose names match a regular
 * expression. The rules belong to the plan. */
#include "convert/convert.h"
#include <string.h>

/* The type that the rule names. */
static mn_status rule_type(mn_convert_rule *r, const char *text, mn_error *err) {
    const mn_convert_type *type = mn_convert_type_find(r->name.value.ptr);
    if (!type)
        return mn_fail(err, MN_INVALID, "\"%.200s\": unknown type \"%.40s\"", text,
                       r->name.value.ptr);
    if (type != mn_convert_type_of(type->dtype)) /* the first of a type has no letter */
        return mn_fail(err, MN_INVALID, "\"%.200s\": %s is a mix of types, expected one type", text,
                       type->name);
    r->dtype = type->dtype;
    return MN_OK;
}

mn_status mn_convert_rules_read(const char *const *texts, uint32_t n, mn_convert_rules *out,
                                mn_error *err) {
    mn_status st = MN_OK;
    if (!n)
        return MN_OK;
    if (!texts)
        return mn_fail(err, MN_INVALID, "mn_convert_params.types is NULL, but n_types is %u", n);
    out->at = mn_calloc(n, sizeof *out->at);
    if (!out->at)
        return mn_fail_memory(err, n * sizeof *out->at);
    for (; out->n < n && !st; out->n++) {
        const char *text = texts[out->n] ? texts[out->n] : "";
        mn_convert_rule *r = &out->at[out->n];
        st = mn_name_rule_read(mn_str_of(text), "PATTERN=TYPE, as in attn_v=q8_0", &r->name, err);
        if (!st)
            st = rule_type(r, text, err);
    }
    return st;
}

mn_status mn_convert_rules_find(mn_convert_rules *r, mn_str name, uint32_t *dtype, mn_error *err) {
    bool found = false;
    *dtype = 0;
    for (size_t i = 0; i < r->n && !found; i++) {
        mn_status st = mn_name_rule_find(&r->at[i].name, name, &found, err);
        if (st)
            return st;
        if (found)
            *dtype = r->at[i].dtype;
    }
    return MN_OK;
}

void mn_convert_rules_free(mn_convert_rules *r) {
    for (size_t i = 0; i < r->n; i++)
        mn_name_rule_free(&r->at[i].name);
    mn_free(r->at);
    *r = (mn_convert_rules){0};
}
