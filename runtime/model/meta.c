/* meta.c -- asking for a model's metadata by key and type. The entries are the loader's and stay
 * so; MN_END is a key that is absent, and an error names the key as the user's file spells it. The
 * file's own name is put in front by the caller, who knows it. */
#include "model/meta.h"

const mn_meta_entry *mn_meta_find(const mn_meta *meta, const char *key) {
    mn_str want = mn_str_of(key);
    for (size_t i = 0; i < meta->n; i++)
        if (mn_str_eq(meta->entries[i].key, want))
            return &meta->entries[i];
    return NULL;
}

/* For messages. */
static const char *type_name(uint32_t type) {
    switch (type) {
    case MN_VALUE_INT:
        return "an integer";
    case MN_VALUE_FLOAT:
        return "a number with a fraction";
    case MN_VALUE_BOOL:
        return "true or false";
    case MN_VALUE_STR:
        return "a string";
    case MN_VALUE_ARRAY | MN_VALUE_INT:
        return "an array of integers";
    case MN_VALUE_ARRAY | MN_VALUE_FLOAT:
        return "an array of numbers";
    case MN_VALUE_ARRAY | MN_VALUE_BOOL:
        return "an array of true and false";
    case MN_VALUE_ARRAY | MN_VALUE_STR:
        return "an array of strings";
    default:
        return "a value of unknown type";
    }
}

mn_str mn_meta_shown_key(const mn_meta_entry *e) {
    if (e->native.len)
        return e->native;
    return e->key;
}

/* The value is of another type: what it is, and what it must be. */
static mn_status fail_type(const mn_meta_entry *e, const char *expected, mn_error *err) {
    mn_str key = mn_meta_shown_key(e);
    if (e->value.type == MN_VALUE_STR)
        return mn_fail(err, MN_BAD_FILE, "%.*s: found \"%.*s\", expected %s", MN_STR_ARG(key),
                       MN_STR_ARG(e->value.s), expected);
    if (e->value.type == MN_VALUE_FLOAT)
        return mn_fail(err, MN_BAD_FILE, "%.*s: found %g, expected %s", MN_STR_ARG(key), e->value.f,
                       expected);
    return mn_fail(err, MN_BAD_FILE, "%.*s: found %s, expected %s", MN_STR_ARG(key),
                   type_name(e->value.type), expected);
}

mn_status mn_meta_i64(const mn_meta *meta, const char *key, int64_t lo, int64_t hi, int64_t *out,
                      mn_error *err) {
    const mn_meta_entry *e = mn_meta_find(meta, key);
    if (!e)
        return MN_END;
    if (e->value.type != MN_VALUE_INT)
        return fail_type(e, "an integer", err);
    if (e->value.i < lo || e->value.i > hi)
        return mn_fail(err, MN_BAD_FILE, "%.*s: found %lld, expected %lld to %lld",
                       MN_STR_ARG(mn_meta_shown_key(e)), (long long)e->value.i, (long long)lo,
                       (long long)hi);
    *out = e->value.i;
    return MN_OK;
}

mn_status mn_meta_f64(const mn_meta *meta, const char *key, double *out, mn_error *err) {
    const mn_meta_entry *e = mn_meta_find(meta, key);
    if (!e)
        return MN_END;
    if (e->value.type != MN_VALUE_FLOAT && e->value.type != MN_VALUE_INT)
        return fail_type(e, "a number", err);
    double value = e->value.type == MN_VALUE_INT ? (double)e->value.i : e->value.f;
    if (value - value != 0) /* infinite or not a number */
        return mn_fail(err, MN_BAD_FILE, "%.*s: found %g, expected a finite number",
                       MN_STR_ARG(mn_meta_shown_key(e)), value);
    *out = value;
    return MN_OK;
}

mn_status mn_meta_bool(const mn_meta *meta, const char *key, bool *out, mn_error *err) {
    const mn_meta_entry *e = mn_meta_find(meta, key);
    if (!e)
        return MN_END;
    if (e->value.type != MN_VALUE_BOOL)
        return fail_type(e, type_name(MN_VALUE_BOOL), err);
    *out = e->value.i != 0;
    return MN_OK;
}

mn_status mn_meta_str(const mn_meta *meta, const char *key, mn_str *out, mn_error *err) {
    const mn_meta_entry *e = mn_meta_find(meta, key);
    if (!e)
        return MN_END;
    if (e->value.type != MN_VALUE_STR)
        return fail_type(e, "a string", err);
    *out = e->value.s;
    return MN_OK;
}

mn_status mn_meta_array(const mn_meta *meta, const char *key, uint32_t element_type,
                        const void **out, uint64_t *n, mn_error *err) {
    const mn_meta_entry *e = mn_meta_find(meta, key);
    if (!e)
        return MN_END;
    if (e->value.type != (MN_VALUE_ARRAY | element_type))
        return fail_type(e, type_name(MN_VALUE_ARRAY | element_type), err);
    *out = e->value.array;
    *n = e->value.n;
    return MN_OK;
}
