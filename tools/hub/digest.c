/* digest.c -- SHA-256 and SHA-1 by FIPS 180-4, in the standard's letters: blocks of 64 bytes, words
 * of 32 bits, the first byte of a word the highest. */
#include "digest.h"
#include <stdio.h>
#include <string.h>

enum { BLOCK = 64, LENGTH_AT = 56, ROUNDS_1 = 80, ROUNDS_256 = 64 };

static const uint32_t k256[ROUNDS_256] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotated(uint32_t x, int bits) {
    return x << bits | x >> (32 - bits);
}

static uint32_t word_at(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Round t. The eight words are named from it on: what the standard calls a is s[-t mod 8], and no
 * word is moved. */
static inline void round_256(uint32_t s[8], int t, uint32_t w) {
    const uint32_t e = s[(4 - t) & 7];
    const uint32_t a = s[(0 - t) & 7];
    const uint32_t b = s[(1 - t) & 7];
    const uint32_t c = s[(2 - t) & 7];
    const uint32_t big1 = rotated(e, 26) ^ rotated(e, 21) ^ rotated(e, 7);
    const uint32_t choose = (e & s[(5 - t) & 7]) ^ (~e & s[(6 - t) & 7]);
    const uint32_t t1 = s[(7 - t) & 7] + big1 + choose + k256[t] + w;
    const uint32_t big0 = rotated(a, 30) ^ rotated(a, 19) ^ rotated(a, 10);
    const uint32_t most = (a & b) ^ (a & c) ^ (b & c);
    s[(3 - t) & 7] += t1;
    s[(7 - t) & 7] = t1 + big0 + most;
}

static void block_256(uint32_t h[8], const uint8_t *p) {
    uint32_t w[ROUNDS_256];
    uint32_t s[8];
    for (int t = 0; t < 16; t++)
        w[t] = word_at(p + 4 * t);
    for (int t = 16; t < ROUNDS_256; t++) {
        const uint32_t a = w[t - 15];
        const uint32_t b = w[t - 2];
        const uint32_t low = rotated(a, 25) ^ rotated(a, 14) ^ a >> 3;
        const uint32_t high = rotated(b, 15) ^ rotated(b, 13) ^ b >> 10;
        w[t] = w[t - 16] + low + w[t - 7] + high;
    }
    memcpy(s, h, sizeof s);
    for (int t = 0; t < ROUNDS_256; t += 8) { // eight rounds name the words as before
        round_256(s, t, w[t]);
        round_256(s, t + 1, w[t + 1]);
        round_256(s, t + 2, w[t + 2]);
        round_256(s, t + 3, w[t + 3]);
        round_256(s, t + 4, w[t + 4]);
        round_256(s, t + 5, w[t + 5]);
        round_256(s, t + 6, w[t + 6]);
        round_256(s, t + 7, w[t + 7]);
    }
    for (int i = 0; i < 8; i++)
        h[i] += s[i];
}

/* f of round t, with its constant. */
static uint32_t mixed_1(int t, uint32_t b, uint32_t c, uint32_t d) {
    if (t < 20)
        return ((b & c) | (~b & d)) + 0x5a827999;
    if (t < 40)
        return (b ^ c ^ d) + 0x6ed9eba1;
    if (t < 60)
        return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
    return (b ^ c ^ d) + 0xca62c1d6;
}

static void block_1(uint32_t h[8], const uint8_t *p) {
    uint32_t w[ROUNDS_1];
    uint32_t s[5];
    for (int t = 0; t < 16; t++)
        w[t] = word_at(p + 4 * t);
    for (int t = 16; t < ROUNDS_1; t++)
        w[t] = rotated(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    memcpy(s, h, sizeof s);
    for (int t = 0; t < ROUNDS_1; t++) {
        const uint32_t next = rotated(s[0], 5) + mixed_1(t, s[1], s[2], s[3]) + s[4] + w[t];
        memmove(s + 1, s, 4 * sizeof *s);
        s[2] = rotated(s[2], 30);
        s[0] = next;
    }
    for (int i = 0; i < 5; i++)
        h[i] += s[i];
}

static void one_block(digest *d, const uint8_t *p) {
    if (d->kind == DIGEST_SHA1)
        block_1(d->h, p);
    else
        block_256(d->h, p);
}

void digest_begin(digest *d, digest_kind kind) {
    static const uint32_t first[2][8] = {
        {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0},
        {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
         0x5be0cd19}};
    memset(d, 0, sizeof *d);
    d->kind = kind;
    memcpy(d->h, first[kind == DIGEST_SHA256], sizeof d->h);
}

void digest_put(digest *d, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    const size_t held = (size_t)(d->n % BLOCK);
    d->n += n;
    if (held) {
        const size_t room = BLOCK - held;
        const size_t part = n < room ? n : room;
        memcpy(d->block + held, p, part);
        if (part < room)
            return;
        one_block(d, d->block);
        p += part;
        n -= part;
    }
    for (; n >= BLOCK; n -= BLOCK, p += BLOCK)
        one_block(d, p);
    if (n)
        memcpy(d->block, p, n);
}

void digest_end(digest *d, char hex[65]) {
    static const uint8_t padding[BLOCK] = {0x80};
    const uint64_t bits = d->n * 8;
    const size_t held = (size_t)(d->n % BLOCK);
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    digest_put(d, padding, held < LENGTH_AT ? LENGTH_AT - held : BLOCK + LENGTH_AT - held);
    digest_put(d, length, sizeof length);
    const int n_words = d->kind == DIGEST_SHA1 ? 5 : 8;
    for (int i = 0; i < n_words; i++)
        snprintf(hex + 8 * i, 9, "%08x", (unsigned)d->h[i]);
}
