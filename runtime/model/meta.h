/* meta.h -- typed key/value pairs from a loader, and functions that read one by its key. Entries
 * point into the loader's memory: valid while the model is open. */
#ifndef MN_META_H
#define MN_META_H
#include "base/base.h"

typedef struct {
    mn_str key, native;
    mn_value value;
} mn_meta_entry; /* native: the file's own key, for messages */
typedef struct {
    mn_meta_entry *entries;
    size_t n;
} mn_meta;

const mn_meta_entry *mn_meta_find(const mn_meta *meta, const char *key); /* NULL = absent */

/* Each fills *out and returns MN_OK; MN_END if the key is absent (no error filled, *out untouched:
 * the caller's default stays); MN_BAD_FILE if it has another type or does not fit, naming the key,
 * what it holds and what was expected. Integers are accepted where a float is asked for. */
mn_status mn_meta_i64(const mn_meta *meta, const char *key, int64_t lo, int64_t hi, int64_t *out,
                      mn_error *err);
mn_status mn_meta_f64(const mn_meta *meta, const char *key, double *out, mn_error *err);
mn_status mn_meta_bool(const mn_meta *meta, const char *key, bool *out, mn_error *err);
mn_status mn_meta_str(const mn_meta *meta, const char *key, mn_str *out, mn_error *err);
/* The array's elements, of exactly this element type (MN_VALUE_INT, ...). */
mn_status mn_meta_array(const mn_meta *meta, const char *key, uint32_t element_type,
                        const void **out, uint64_t *n, mn_error *err);

/* The key as the user finds it in the file. */
mn_str mn_meta_shown_key(const mn_meta_entry *e);
#endif
