/* hash.c -- a quick 64-bit hash: eight bytes at a time, multiplied by an odd constant and folded.
 * The same on every machine of one byte order. */
#include "base/base.h"
#include <string.h>

static uint64_t fold(uint64_t h, uint64_t word) {
    h = (h ^ word) * UINT64_C(0x9E3779B97F4A7C15); /* 2^64 / golden ratio */
    return h ^ h >> 29;
}

uint64_t mn_hash(const void *data, size_t n, uint64_t seed) {
    const unsigned char *p = data;
    uint64_t h = fold(seed, n);
    uint64_t word;
    for (; n >= sizeof word; n -= sizeof word, p += sizeof word) {
        memcpy(&word, p, sizeof word);
        h = fold(h, word);
    }
    word = 0;
    if (n)
        memcpy(&word, p, n);
    h = fold(h, word);
    return fold(h, h >> 32);
}
