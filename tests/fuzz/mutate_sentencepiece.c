/* mutate_sentencepiece.c -- mutations of SentencePiece models that stay protocol buffers: one field
 * is taken out, doubled, or gets another value, and the lengths around it are written anew. */
#include "fuzz.h"
#include <stdlib.h>
#include <string.h>

#define PART "=== tokenizer.model\n"
enum { GROWTH = 64 };

/* ---- drawing --------------------------------------------------------------------------------- */
static uint64_t state;
static uint32_t draw(uint32_t n) { /* 0 .. n - 1; Marsaglia's xorshift */
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % n;
}

static uint64_t telling_varint(void) {
    static const uint64_t v[] = {0,          1,          2,          3,          4,
                                 5,          6,          7,          127,        128,
                                 0x7fffffff, 0x80000000, 0xffffffff, UINT64_MAX, 1ull << 63};
    return draw(4) ? v[draw(MN_COUNT(v))] : draw(1u << 16);
}

/* -1, -0.5, 0, -0, 1, 3e38, -FLT_MAX, infinities, NaN, the smallest */
static uint32_t telling_float(void) {
    static const uint32_t v[] = {0xbf800000, 0xbf000000, 0,          0x80000000,
                                 0x3f800000, 0x7f61b1e6, 0xff7fffff, 0x7f800000,
                                 0xff800000, 0x7fc00000, 1};
    return draw(4) ? v[draw(MN_COUNT(v))] : 0xc0000000 + draw(1u << 24);
}

/* ---- fields ---------------------------------------------------------------------------------- */
typedef struct {
    uint64_t tag;
    const uint8_t *at, *payload, *end; /* of LEN: payload behind the length; of others: the value */
} field;

static bool varint(const uint8_t **at, const uint8_t *end, uint64_t *out) {
    *out = 0;
    for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
        const uint8_t b = *(*at)++;
        *out |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80)
            return true;
    }
    return false;
}

static bool next(const uint8_t *at, const uint8_t *end, field *f) {
    uint64_t n = 0;
    f->at = at;
    if (at == end || !varint(&at, end, &f->tag))
        return false;
    f->payload = at;
    switch (f->tag & 7) {
    case 0:
        if (!varint(&at, end, &n))
            return false;
        f->end = at;
        return true;
    case 1:
        n = 8;
        break;
    case 5:
        n = 4;
        break;
    case 2:
        if (!varint(&at, end, &n))
            return false;
        f->payload = at;
        break;
    default:
        return false;
    }
    if (n > (uint64_t)(end - at))
        return false;
    f->end = at + n;
    return true;
}

typedef struct {
    uint8_t *data;
    size_t n;
    size_t cap;
} output; /* what does not fit is left out */

static void put(output *o, const void *bytes, size_t n) {
    if (n > o->cap - o->n)
        return;
    if (n)
        memcpy(o->data + o->n, bytes, n);
    o->n += n;
}

static void put_varint(output *o, uint64_t v) {
    uint8_t bytes[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        bytes[n++] = (uint8_t)(v | 0x80);
    bytes[n++] = (uint8_t)v;
    put(o, bytes, n);
}

static void put_bytes(output *o, uint64_t tag, const uint8_t *bytes, size_t n) {
    put_varint(o, tag);
    put_varint(o, n);
    put(o, bytes, n);
}

static void edit(const uint8_t *data, size_t n, bool top, output *o);

/* Another payload of a LEN field: of the top's fields, which are messages, mostly with one field
 * changed. */
static void put_edited(const field *f, bool top, output *o) {
    const size_t n = (size_t)(f->end - f->payload);
    const size_t cap = n + GROWTH;
    output inner = {malloc(cap), 0, cap};
    FUZZ_CHECK(inner.data);
    if (top && draw(8))
        edit(f->payload, n, false, &inner);
    else {
        put(&inner, f->payload, n);
        if (!inner.n)
            inner.data[inner.n++] = (uint8_t)draw(256);
        inner.n = LLVMFuzzerMutate(inner.data, inner.n, cap);
    }
    put_bytes(o, f->tag, inner.data, inner.n);
    free(inner.data);
}

static void put_changed(const field *f, bool top, output *o) {
    const uint32_t word = telling_float();
    const uint64_t tag = draw(16) ? f->tag : (uint64_t)(1 + draw(48)) << 3 | (f->tag & 7);
    switch (f->tag & 7) {
    case 0:
        put_varint(o, tag);
        put_varint(o, telling_varint());
        break;
    case 5:
        put_varint(o, tag);
        put(o, &word, sizeof word);
        break;
    case 2:
        if (tag == f->tag)
            put_edited(f, top, o);
        else
            put_bytes(o, tag, f->payload, (size_t)(f->end - f->payload));
        break;
    default:
        put(o, f->at, (size_t)(f->end - f->at));
    }
}

/* Pieces are many: half of the draws are from what follows them. */
static uint32_t pick(const uint8_t *data, const uint8_t *end, bool top) {
    uint32_t n = 0;
    uint32_t others = 0;
    uint32_t k = 0;
    field f;
    for (const uint8_t *at = data; next(at, end, &f); at = f.end) {
        n++;
        others += !top || f.tag >> 3 != 1;
    }
    if (!n || !others || draw(2))
        return n ? draw(n) : 0;
    uint32_t which = draw(others);
    for (const uint8_t *at = data; next(at, end, &f); at = f.end, k++)
        if ((!top || f.tag >> 3 != 1) && !which--)
            break;
    return k;
}

/* data with one field changed. Where it is no protocol buffer, the rest goes along as it is. */
static void edit(const uint8_t *data, size_t n, bool top, output *o) {
    const uint8_t *at = data;
    const uint8_t *end = data + n;
    uint32_t which = pick(data, end, top);
    field f;
    for (; next(at, end, &f); at = f.end) {
        if (which--) {
            put(o, f.at, (size_t)(f.end - f.at));
            continue;
        }
        const uint32_t how = draw(10);
        if (how == 0)
            continue;
        if (how == 1)
            put(o, f.at, (size_t)(f.end - f.at));
        put_changed(&f, top, o);
        if (how == 2) { /* a field that was not there */
            put_varint(o, (uint64_t)(1 + draw(48)) << 3);
            put_varint(o, telling_varint());
        }
    }
    put(o, at, (size_t)(end - at));
}

/* ---- the input ------------------------------------------------------------------------------- */
static size_t find(const uint8_t *data, size_t n, const char *what, size_t from) {
    const size_t len = strlen(what);
    for (size_t i = from; i + len <= n; i++)
        if (!memcmp(data + i, what, len))
            return i;
    return n;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t cap, unsigned seed) {
    const bool has_parts = n >= 4 && !memcmp(data, "=== ", 4);
    size_t lo = has_parts ? find(data, n, PART, 0) : 0;
    state = seed * 2654435761u | 1;
    if (seed % 4 == 0 || lo == n)
        return LLVMFuzzerMutate(data, n, cap);
    lo += has_parts ? sizeof PART - 1 : 0;
    const size_t hi = has_parts ? find(data, n, "\n=== ", lo) : n;
    const size_t most = MN_MIN(n + 2 * GROWTH, cap);
    output o = {malloc(most + 1), 0, most};
    FUZZ_CHECK(o.data);
    put(&o, data, lo);
    edit(data + lo, hi - lo, true, &o);
    put(&o, data + hi, n - hi);
    memcpy(data, o.data, o.n);
    n = o.n;
    free(o.data);
    return n;
}
