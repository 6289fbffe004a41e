/* hash.c -- two hashes: one for tables, and a keyed one that resists those who choose its input.
 * The first: a quick 64-bit hash: eight bytes at a time, multiplied by an odd constant and folded.
 * The same on every machine of one byte order. */
#include "base/base.h"
#include <string.h>

static uint64_t hash_fold(uint64_t h, uint64_t word) {
    h = (h ^ word) * UINT64_C(0x9E3779B97F4A7C15); /* 2^64 / golden ratio */
    return h ^ h >> 29;
}

uint64_t mn_hash(const void *data, size_t n, uint64_t seed) {
    const unsigned char *p = data;
    uint64_t h = hash_fold(seed, n);
    uint64_t word;
    for (; n >= sizeof word; n -= sizeof word, p += sizeof word) {
        memcpy(&word, p, sizeof word);
        h = hash_fold(h, word);
    }
    word = 0;
    if (n)
        memcpy(&word, p, n);
    h = hash_fold(h, word);
    return hash_fold(h, h >> 32);
}

/* ---- SipHash-2-4-128 ------------------------------------------------------------------------- */
static uint64_t hash_rotated(uint64_t x, int bits) {
    return x << bits | x >> (64 - bits);
}

static void sip_round(uint64_t v[4]) {
    v[0] += v[1];
    v[1] = hash_rotated(v[1], 13) ^ v[0];
    v[0] = hash_rotated(v[0], 32);
    v[2] += v[3];
    v[3] = hash_rotated(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = hash_rotated(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = hash_rotated(v[1], 17) ^ v[2];
    v[2] = hash_rotated(v[2], 32);
}

static void sip_word(uint64_t v[4], uint64_t word) {
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

static uint64_t sip_end(uint64_t v[4], uint64_t mark) {
    enum { FINAL = 4 };
    v[mark == 0xee ? 2 : 1] ^= mark;
    for (int i = 0; i < FINAL; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void mn_hash_keyed(const uint64_t key[2], const uint64_t before[2], const void *data, size_t n,
                   uint64_t out[2]) {
    const unsigned char *p = data;
    uint64_t v[4] = {
        key[0] ^ UINT64_C(0x736f6d6570736575),
        key[1] ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
        key[0] ^ UINT64_C(0x6c7967656e657261),
        key[1] ^ UINT64_C(0x7465646279746573),
    };
    sip_word(v, before[0]);
    sip_word(v, before[1]);
    const uint64_t length = (uint64_t)(n + 16) << 56;
    uint64_t word;
    for (; n >= sizeof word; n -= sizeof word, p += sizeof word) {
        memcpy(&word, p, sizeof word);
        sip_word(v, word);
    }
    word = 0;
    memcpy(&word, p, n);
    sip_word(v, word | length);
    out[0] = sip_end(v, 0xee);
    out[1] = sip_end(v, 0xdd);
}
