/* model_facts.c -- facts of an open model (model_facts.h): of its tensors and keys. */
#include "model_facts.h"
#include "ground.h"
#include <stdio.h>
#include <string.h>

void model_main_type(const mn_model *m, char dst[32]) {
    struct {
        const char *dtype;
        uint64_t bytes;
    } types[64];
    size_t n = 0;
    size_t best = 0;
    mn_tensor_item t;
    for (uint32_t i = 0; mn_model_tensor(m, i, &t) == MN_OK; i++) {
        size_t k = 0;
        while (k < n && strcmp(types[k].dtype, t.dtype) != 0)
            k++;
        if (k == MN_COUNT(types))
            continue;
        if (k == n) {
            types[n].dtype = t.dtype;
            types[n++].bytes = 0;
        }
        types[k].bytes += t.bytes;
        if (types[k].bytes > types[best].bytes)
            best = k;
    }
    snprintf(dst, 32, "%s", n ? types[best].dtype : "");
}

int64_t model_int(const mn_model *m, const char *key, int64_t otherwise) {
    mn_str name;
    mn_value v = {.size = sizeof v};
    const size_t n = strlen(key);
    for (uint32_t i = 0; mn_model_meta(m, i, &name, &v) == MN_OK; i++)
        if (name.len == n && !memcmp(name.ptr, key, n))
            return v.type == MN_VALUE_INT ? v.i : otherwise;
    return otherwise;
}
