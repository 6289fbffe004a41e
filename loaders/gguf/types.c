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

/* A type that GGUF has or had and this loader does not read: its name and the nearest that is
 * read. NULL: the number is none of GGUF's. */
const gguf_absent_type *gguf_other_type(uint32_t ggml_type) {
    static const gguf_absent_type others[] = {
        {4, "Q4_2", "q4_0"},          {5, "Q4_3", "q4_1"},          {31, "Q4_0_4_4", "q4_0"},
        {32, "Q4_0_4_8", "q4_0"},     {33, "Q4_0_8_8", "q4_0"},     {36, "IQ4_NL_4_4", "iq4_nl"},
        {37, "IQ4_NL_4_8", "iq4_nl"}, {38, "IQ4_NL_8_8", "iq4_nl"},
    };
    for (size_t i = 0; i < MN_COUNT(others); i++)
        if (others[i].ggml == ggml_type)
            return &others[i];
    return NULL;
}
