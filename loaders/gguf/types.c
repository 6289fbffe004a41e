/* types.c -- words for the tensor types of the GGUF format that this loader does not read; those
 * that it reads have their numbers in dtype/dtype.def. */
#include "gguf.h"
#include <stdio.h>
#include <string.h>

/* Fills list[cap] with the names of the types that are read, with commas between, and returns
 * it. */
const char *gguf_known_types(char *list, size_t cap) {
    uint32_t ggml;
    size_t n = 0;
    list[0] = 0;
    for (uint32_t i = 0; mn_dtype_at(i); i++) {
        const char *name = mn_dtype_name(mn_dtype_at(i));
        if (!mn_dtype_ggml(mn_dtype_at(i), &ggml) || n + strlen(name) + 3 > cap)
            continue;
        n += (size_t)snprintf(list + n, cap - n, "%s%s", n ? ", " : "", name);
    }
    return list;
}

/* The name of a type that GGUF has and this loader does not read. */
const char *gguf_other_type(uint32_t ggml_type) {
    static const struct {
        uint32_t ggml;
        const char *name;
    } others[] = {
        {4, "Q4_2"},      {5, "Q4_3"},        {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},
        {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"},
    };
    for (size_t i = 0; i < MN_COUNT(others); i++)
        if (others[i].ggml == ggml_type)
            return others[i].name;
    return "unknown";
}
