/* mutate_gguf.c -- mutations of GGUF files that stay GGUF files: after most of them, lengths and
 * counts are made to fit the bytes again, so that what lies behind the first damaged string is
 * reached too. */
#include "fuzz.h"
#include <string.h>

enum { HEAD = 24, STRING = 8, ARRAY = 9, N_TYPES = 13 };
static const uint8_t type_bytes[N_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

typedef struct {
    uint8_t *data;
    size_t n;
    size_t at;
} cursor;

static bool number(cursor *c, size_t bytes, uint64_t *v) {
    *v = 0;
    if (c->n - c->at < bytes)
        return false;
    memcpy(v, c->data + c->at, bytes);
    c->at += bytes;
    return true;
}

static void put(cursor *c, size_t bytes, uint64_t v) {
    memcpy(c->data + c->at - bytes, &v, bytes);
}

/* A count of things of at least `each` bytes, and then that many of size `take` (0: the caller
 * steps on). */
static bool count(cursor *c, size_t each, size_t take, size_t least, uint64_t *v) {
    if (!number(c, 8, v))
        return false;
    const size_t most = (c->n - c->at) / each;
    if (most < least)
        return false;
    if (*v > most || *v < least)
        put(c, 8, *v = least + *v % MN_MIN(most - least + 1, (size_t)24));
    c->at += (size_t)*v * take;
    return true;
}

static bool value(cursor *c) {
    uint64_t type;
    uint64_t n;
    if (!number(c, 4, &type))
        return false;
    if (type >= N_TYPES)
        put(c, 4, type %= N_TYPES);
    if (type == STRING)
        return count(c, 1, 1, 0, &n);
    if (type != ARRAY)
        return number(c, type_bytes[type], &n);
    if (!number(c, 4, &type))
        return false;
    if (type >= N_TYPES || type == ARRAY)
        put(c, 4, type = STRING);
    if (type != STRING)
        return count(c, type_bytes[type], type_bytes[type], 0, &n);
    if (!count(c, STRING, 0, 0, &n))
        return false;
    for (uint64_t one; n--;)
        if (!count(c, 1, 1, 0, &one))
            return false;
    return true;
}

static bool tensor(cursor *c) {
    uint64_t n;
    uint64_t dim;
    if (!count(c, 1, 1, 1, &n) || !number(c, 4, &n))
        return false;
    if (n < 1 || n > MN_MAX_DIM)
        put(c, 4, n = 1 + n % MN_MAX_DIM);
    while (n--)
        if (!number(c, 8, &dim))
            return false;
    if (!number(c, 4, &dim) || !number(c, 8, &dim))
        return false;
    put(c, 8, dim & ~(uint64_t)31);
    return true;
}

static void fix(uint8_t *data, size_t n) {
    cursor c = {data, n, HEAD};
    uint64_t n_tensors;
    uint64_t n_meta;
    uint64_t i = 0;
    uint64_t k = 0;
    if (n < HEAD)
        return;
    memcpy(data, "GGUF", 4);
    memcpy(&n_tensors, data + 8, 8);
    memcpy(&n_meta, data + 16, 8);
    for (; i < n_meta; i++)
        if (!count(&c, 1, 1, 1, &k) || !value(&c))
            break;
    if (i < n_meta)
        memcpy(data + 16, &i, 8);
    k = 0;
    if (i == n_meta)
        while (k < n_tensors && tensor(&c))
            k++;
    if (k < n_tensors)
        memcpy(data + 8, &k, 8);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t cap, unsigned seed) {
    n = LLVMFuzzerMutate(data, n, cap);
    const size_t skipped = n && data[0] == 'Z'; /* fuzz_model.c: zeros follow */
    if (seed % 4)
        fix(data + skipped, n - skipped);
    return n;
}
