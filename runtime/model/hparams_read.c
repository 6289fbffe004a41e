/* hparams_read.c -- typed access to {arch}.* keys: each is absent, which leaves *out as it was, or
 * of the type and range that is asked for; else an error that names the file and the key as the
 * checkpoint calls it. */
#include "model/hparams_read.h"
#include <stdio.h>
#include <string.h>

enum { KEY = 128 };
/* "llama.block_count" */
static void full_key(const mn_hp_reader *r, const char *key, char full[KEY]) {
    snprintf(full, KEY, "%s.%s", r->arch, key);
}

/* MN_END = absent, which is fine; else the file's name goes in front. */
static mn_status hparams_read_named(const mn_hp_reader *r, mn_status st) {
    if (!st || st == MN_END)
        return MN_OK;
    return mn_fail_in(r->err, st, "%s", r->m->path);
}

mn_status mn_hp_int(const mn_hp_reader *r, const char *key, int64_t lo, int64_t hi, int64_t *out) {
    char full[KEY];
    full_key(r, key, full);
    mn_status st = mn_meta_i64(&r->m->meta, full, lo, hi, out, r->err);
    return hparams_read_named(r, st);
}

/* Of an array with a value per layer. */
static bool is_length(const mn_hp_reader *r, uint64_t n, int64_t n_layer) {
    return n == (uint64_t)n_layer || n == (uint64_t)(n_layer + r->n_behind);
}

/* Whether the key's value is an array with an integer per layer. */
static mn_status check_each(const mn_hp_reader *r, const mn_meta_entry *e, int64_t n_layer) {
    const bool ints = e->value.type == (MN_VALUE_ARRAY | MN_VALUE_INT);
    const char *what = "values of another type";
    if (ints)
        what = "integers";
    if (ints && is_length(r, e->value.n, n_layer))
        return MN_OK;
    return mn_fail(r->err, MN_BAD_FILE,
                   "%s: key %.*s is an array of %llu %s; expected one integer, or an array of "
                   "%lld: one per layer",
                   r->m->path, MN_STR_ARG(mn_meta_shown_key(e)), (unsigned long long)e->value.n,
                   what, (long long)n_layer);
}

mn_status mn_hp_each_int(const mn_hp_reader *r, const char *key, int64_t n_layer, int64_t lo,
                         int64_t hi, int64_t *out) {
    char full[KEY];
    full_key(r, key, full);
    const mn_meta_entry *e = mn_meta_find(&r->m->meta, full);
    if (!e || !(e->value.type & MN_VALUE_ARRAY)) {
        mn_status st = mn_hp_int(r, key, lo, hi, &out[0]);
        for (int64_t i = 1; i < n_layer; i++)
            out[i] = out[0];
        return st;
    }
    mn_status st = check_each(r, e, n_layer);
    if (st)
        return st;
    const int64_t *v = e->value.array;
    for (int64_t i = 0; i < n_layer; i++) {
        if (v[i] < lo || v[i] > hi)
            return mn_fail(r->err, MN_BAD_FILE,
                           "%s: key %.*s has %lld for layer %lld; expected %lld to %lld",
                           r->m->path, MN_STR_ARG(mn_meta_shown_key(e)), (long long)v[i],
                           (long long)i, (long long)lo, (long long)hi);
        out[i] = v[i];
    }
    return MN_OK;
}

mn_status mn_hp_need(const mn_hp_reader *r, const char *key, int64_t value) {
    if (value)
        return MN_OK;
    return mn_fail(r->err, MN_BAD_FILE, "%s: missing key %s.%s", r->m->path, r->arch, key);
}

mn_status mn_hp_need_int(const mn_hp_reader *r, const char *key, int64_t lo, int64_t hi,
                         int64_t *out) {
    char full[KEY];
    full_key(r, key, full);
    mn_status st = mn_meta_i64(&r->m->meta, full, lo, hi, out, r->err);
    if (st == MN_END)
        return mn_fail(r->err, MN_BAD_FILE, "%s: missing key %s", r->m->path, full);
    return hparams_read_named(r, st);
}

mn_status mn_hp_real(const mn_hp_reader *r, const char *key, double lo, double hi, double *out) {
    char full[KEY];
    double v = *out;
    full_key(r, key, full);
    mn_status st = mn_meta_f64(&r->m->meta, full, &v, r->err);
    if (st)
        return hparams_read_named(r, st);
    if (!(v >= lo && v <= hi)) {
        const mn_meta_entry *e = mn_meta_find(&r->m->meta, full);
        return mn_fail(r->err, MN_BAD_FILE, "%s: key %.*s is %g; expected %g to %g", r->m->path,
                       MN_STR_ARG(mn_meta_shown_key(e)), v, lo, hi);
    }
    *out = v;
    return MN_OK;
}

mn_status mn_hp_reals(const mn_hp_reader *r, const char *key, uint64_t n, double *out) {
    char full[KEY];
    const void *array = NULL;
    uint64_t found = 0;
    full_key(r, key, full);
    mn_status st = mn_meta_array(&r->m->meta, full, MN_VALUE_FLOAT, &array, &found, r->err);
    if (st)
        return hparams_read_named(r, st);
    if (found != n)
        return mn_fail(r->err, MN_BAD_FILE, "%s: key %s has %llu numbers; expected %llu",
                       r->m->path, full, (unsigned long long)found, (unsigned long long)n);
    memcpy(out, array, n * sizeof *out);
    return MN_OK;
}

mn_status mn_hp_each_own(const mn_hp_reader *r, const char *key, int64_t n, double *out) {
    const mn_meta_entry *e = mn_meta_find(&r->m->meta, key);
    const bool many = e && e->value.type & MN_VALUE_ARRAY;
    const void *array = NULL;
    uint64_t found = 0;
    mn_status st;
    if (many)
        st = mn_meta_array(&r->m->meta, key, MN_VALUE_FLOAT, &array, &found, r->err);
    else
        st = mn_meta_f64(&r->m->meta, key, &out[0], r->err);
    if (st)
        return hparams_read_named(r, st);
    if (many && found != (uint64_t)n)
        return mn_fail(r->err, MN_BAD_FILE,
                       "%s: key %s has %llu numbers; expected %lld: one per layer", r->m->path, key,
                       (unsigned long long)found, (long long)n);
    for (int64_t i = 0; i < n; i++)
        out[i] = many ? ((const double *)array)[i] : out[0];
    return MN_OK;
}

mn_status mn_hp_bool(const mn_hp_reader *r, const char *key, bool *out) {
    char full[KEY];
    full_key(r, key, full);
    mn_status st = mn_meta_bool(&r->m->meta, full, out, r->err);
    return hparams_read_named(r, st);
}

mn_status mn_hp_word(const mn_hp_reader *r, const char *key, const char *const *words,
                     const uint32_t *values, size_t n, uint32_t *out) {
    mn_str s;
    mn_status st = mn_meta_str(&r->m->meta, key, &s, r->err);
    if (st)
        return hparams_read_named(r, st);
    for (size_t i = 0; i < n; i++)
        if (mn_str_is(s, words[i])) {
            *out = values[i];
            return MN_OK;
        }
    mn_text known = {0};
    for (size_t i = 0; i < n; i++)
        mn_text_printf(&known, "%s%s", i ? ", " : "", words[i]);
    const mn_meta_entry *e = mn_meta_find(&r->m->meta, key);
    st = mn_fail(r->err, MN_UNSUPPORTED, "%s: key %.*s is \"%.*s\"; known: %s", r->m->path,
                 MN_STR_ARG(mn_meta_shown_key(e)), MN_STR_ARG(s), known.ptr ? known.ptr : "");
    mn_text_free(&known);
    return st;
}

mn_status mn_hp_layers(const mn_hp_reader *r, const char *key, int64_t n_layer, uint8_t *flags,
                       bool *seen) {
    char full[KEY];
    full_key(r, key, full);
    const mn_meta_entry *e = mn_meta_find(&r->m->meta, full);
    *seen = e != NULL;
    if (!e)
        return MN_OK;
    if (!(e->value.type & MN_VALUE_ARRAY)) {
        int64_t period = 1;
        mn_status st = mn_hp_int(r, key, 1, MN_MAX_LAYER, &period);
        for (int64_t i = 0; !st && i < n_layer; i++)
            flags[i] = i % period < period - 1;
        return st;
    }
    const bool ints = e->value.type == (MN_VALUE_ARRAY | MN_VALUE_INT);
    const bool known = ints || e->value.type == (MN_VALUE_ARRAY | MN_VALUE_BOOL);
    if (!known || !is_length(r, e->value.n, n_layer))
        return mn_fail(r->err, MN_BAD_FILE,
                       "%s: key %.*s: expected an array of %lld times true or false", r->m->path,
                       MN_STR_ARG(mn_meta_shown_key(e)), (long long)n_layer);
    const int64_t *numbers = e->value.array;
    const uint8_t *bools = e->value.array;
    for (int64_t i = 0; i < n_layer; i++) {
        if (ints)
            flags[i] = numbers[i] != 0;
        else
            flags[i] = bools[i] != 0;
    }
    return MN_OK;
}
