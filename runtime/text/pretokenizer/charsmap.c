/* charsmap.c -- SentencePiece's "precompiled_charsmap": a table of texts and what each becomes,
 * searched by a double-array trie (Aoe 1989) in the layout of Darts-clone. All little-endian: the
 * trie's size in bytes, its 32-bit units, then the results, each ended by a NUL; a leaf holds the
 * offset of its result. A unit is
 *   bits 0..7 label, 8 "has a leaf", 10..30 offset (bit 9: shifted by 8 more); of a leaf, bits
 *   0..30 are the value.
 *
 * SentencePiece replaces the longest text that stands at a place; the "tokenizers" library reads
 * the same table by graphemes, with other results. A file says which of the two it was made for.
 * Most texts are ASCII that no entry changes: that is found once (find_kept) and copied in runs. */
#include "text/pretokenizer/stages.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct mn_charsmap {
    uint32_t *unit;
    size_t n_unit, n_text;
    char *text;
    bool graphemes;
    bool kept[128]; /* this ASCII character, before another one, stays as it is */
    mn_str *symbol; /* [n_symbol] texts that stay as they are, sorted; in symbols */
    size_t n_symbol;
    mn_text symbols;
    bool begins[256]; /* a symbol does, with this byte */
};

static void find_kept(mn_charsmap *m);

static uint32_t read_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

void mn_charsmap_free(mn_charsmap *m) {
    if (!m)
        return;
    mn_free(m->unit);
    mn_free(m->text);
    mn_free(m->symbol);
    mn_text_free(&m->symbols);
    mn_free(m);
}

mn_status mn_charsmap_create(mn_str blob, bool graphemes, const char *where, mn_charsmap **out,
                             mn_error *err) {
    const uint8_t *p = (const uint8_t *)blob.ptr;
    const uint64_t bytes = blob.len >= 4 ? read_u32(p) : 0;
    if (!bytes || bytes % 4 || bytes > blob.len - 4)
        return mn_fail(err, MN_BAD_FILE,
                       "%s: precompiled_charsmap: found a trie of %llu bytes in %llu", where,
                       (unsigned long long)bytes, (unsigned long long)blob.len);
    mn_charsmap *m = mn_calloc(1, sizeof *m);
    if (!m)
        return mn_fail_memory(err, sizeof *m);
    m->n_unit = (size_t)bytes / 4;
    m->n_text = (size_t)(blob.len - 4 - bytes);
    m->graphemes = graphemes;
    m->unit = mn_alloc(m->n_unit, sizeof *m->unit);
    m->text = mn_strndup(blob.ptr + 4 + bytes, m->n_text);
    if (!m->unit || !m->text) {
        mn_charsmap_free(m);
        return mn_fail_memory(err, blob.len);
    }
    for (size_t i = 0; i < m->n_unit; i++)
        m->unit[i] = read_u32(p + 4 + 4 * i);
    find_kept(m);
    *out = m;
    return MN_OK;
}

static void put_u32(mn_text *out, uint32_t v) {
    const char bytes[] = {(char)v, (char)(v >> 8), (char)(v >> 16), (char)(v >> 24)};
    mn_text_put(out, bytes, sizeof bytes);
}

void mn_charsmap_blob(const mn_charsmap *m, mn_text *out) {
    put_u32(out, (uint32_t)(m->n_unit * 4));
    for (size_t i = 0; i < m->n_unit; i++)
        put_u32(out, m->unit[i]);
    mn_text_put(out, m->text, m->n_text);
}

bool mn_charsmap_graphemes(const mn_charsmap *m) {
    return m->graphemes;
}

/* How far the children of a unit, or its leaf, stand from it: combined by exclusive or. */
static uint32_t offset_of(uint32_t unit) {
    return (unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* The shortest, or else the longest, text of the table that s[0..n) begins with: its length (0 =
 * none) and result. */
static size_t find_match(const mn_charsmap *m, const char *s, size_t n, bool shortest,
                         mn_str *result) {
    const uint32_t label_bits = 1u << 31 | 0xff;
    const uint32_t has_leaf = 1u << 8;
    size_t at = offset_of(m->unit[0]);
    size_t length = 0;
    for (size_t i = 0; i < n && s[i]; i++) {
        const uint8_t byte = (uint8_t)s[i];
        at ^= byte;
        if (at >= m->n_unit || (m->unit[at] & label_bits) != byte)
            break;
        const uint32_t unit = m->unit[at];
        at ^= offset_of(unit);
        if (!(unit & has_leaf) || at >= m->n_unit)
            continue;
        const size_t value = m->unit[at] & 0x7fffffffu;
        if (value > m->n_text)
            continue;
        *result = mn_str_of(m->text + value); // mn_strndup ended the last one
        length = i + 1;
        if (shortest)
            break;
    }
    return length;
}

/* ---- symbols --------------------------------------------------------------------------------- */
static int by_bytes(const void *a, const void *b) {
    const mn_str *x = a;
    const mn_str *y = b;
    const int order = memcmp(x->ptr, y->ptr, (size_t)MN_MIN(x->len, y->len));
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

mn_status mn_charsmap_keep(mn_charsmap *m, const mn_str *symbol, size_t n, mn_error *err) {
    m->symbol = mn_alloc(n, sizeof *m->symbol);
    for (size_t i = 0; i < n; i++)
        mn_text_put(&m->symbols, symbol[i].ptr, (size_t)symbol[i].len);
    if (!m->symbol || m->symbols.failed)
        return mn_fail_memory(err, n * sizeof *m->symbol);
    const char *at = m->symbols.ptr;
    for (size_t i = 0; i < n; at += symbol[i++].len) {
        if (!symbol[i].len)
            continue;
        m->symbol[m->n_symbol++] = (mn_str){at, symbol[i].len};
        m->begins[(uint8_t)*at] = true;
        if ((uint8_t)*at < 128)
            m->kept[(uint8_t)*at] = false;
    }
    qsort(m->symbol, m->n_symbol, sizeof *m->symbol, by_bytes);
    return MN_OK;
}

/* The first of symbol[lo..hi), which share depth bytes, whose next byte is at least b. */
static size_t first_from(const mn_charsmap *m, size_t lo, size_t hi, size_t depth, int b) {
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        const mn_str t = m->symbol[mid];
        if (t.len <= depth || (uint8_t)t.ptr[depth] < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Bytes of the longest symbol that s[0..n) begins with, 0 = none. */
static size_t symbol_at(const mn_charsmap *m, const char *s, size_t n) {
    size_t lo = 0;
    size_t hi = m->n_symbol;
    size_t longest = 0;
    if (!n || !m->begins[(uint8_t)*s])
        return 0;
    for (size_t depth = 0; depth < n; depth++) {
        const int byte = (uint8_t)s[depth];
        lo = first_from(m, lo, hi, depth, byte);
        hi = first_from(m, lo, hi, depth, byte + 1);
        if (lo == hi)
            break;
        if (m->symbol[lo].len == depth + 1)
            longest = depth + 1;
    }
    return longest;
}

/* ---- characters that stay -------------------------------------------------------------------- */

/* Fills kept: no text of the table begins with this ASCII character and another one behind it. */
static void find_kept(mn_charsmap *m) {
    mn_str result;
    for (int a = 1; a < 128; a++) {
        m->kept[a] = a != '\r'; // begins a grapheme of two
        for (int b = 1; b < 128 && m->kept[a]; b++) {
            const char s[2] = {(char)a, (char)b};
            m->kept[a] = !find_match(m, s, 2, false, &result);
        }
    }
}

static bool stays(const mn_charsmap *m, uint8_t c, uint8_t next) {
    return c < 128 && next < 128 && next && m->kept[c];
}

/* Appends the characters at s that stay as they are, as far as that is cheap to see; how many. */
static size_t put_kept(const mn_charsmap *m, mn_text *out, const char *s, size_t n) {
    size_t len = 0;
    while (len + 1 < n && stays(m, (uint8_t)s[len], (uint8_t)s[len + 1]))
        len++;
    if (len)
        mn_text_put(out, s, len);
    return len;
}

/* ---- reading the table ----------------------------------------------------------------------- */

static size_t char_at(const char *s, size_t n, uint32_t *code) {
    *code = 0;
    return (size_t)MN_MAX(1, mn_utf8_decode(s, n, code));
}

/* Bytes of the grapheme at s (Unicode's UAX 29). */
static size_t grapheme_at(const char *s, size_t n) {
    utf8proc_int32_t state = 0;
    uint32_t code;
    uint32_t next;
    size_t len = char_at(s, n, &code);
    while (len < n) {
        const size_t more = char_at(s + len, n - len, &next);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)code, (utf8proc_int32_t)next,
                                             &state))
            break;
        len += more;
        code = next;
    }
    return len;
}

/* s[0..n) as a whole becomes what the shortest match in it says; false: there is none. */
static bool put_match(const mn_charsmap *m, mn_text *out, const char *s, size_t n) {
    mn_str result;
    if (!find_match(m, s, n, true, &result))
        return false;
    mn_text_put(out, result.ptr, (size_t)result.len);
    return true;
}

/* As the "tokenizers" library reads the table: a grapheme of at most 5 bytes, else each of its
 * characters. */
static void put_grapheme(const mn_charsmap *m, mn_text *out, const char *s, size_t n) {
    if (n < 6 && put_match(m, out, s, n))
        return;
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t code;
        len = char_at(s + i, n - i, &code);
        if (!put_match(m, out, s + i, len))
            mn_text_put(out, s + i, len);
    }
}

/* As SentencePiece does: the longest match, unless a symbol stands there. Returns the bytes
 * used. */
static size_t put_longest(const mn_charsmap *m, mn_text *out, const char *s, size_t n) {
    uint32_t code;
    mn_str result;
    size_t len = symbol_at(m, s, n);
    const size_t match = len ? 0 : find_match(m, s, n, false, &result);
    if (match) {
        mn_text_put(out, result.ptr, (size_t)result.len);
        return match;
    }
    if (!len)
        len = char_at(s, n, &code);
    mn_text_put(out, s, len);
    return len;
}

void mn_charsmap_put(const mn_charsmap *m, mn_text *out, const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        const size_t kept = put_kept(m, out, s + i, n - i);
        i += kept;
        if (kept)
            continue;
        if (!m->graphemes) {
            i += put_longest(m, out, s + i, n - i);
            continue;
        }
        const size_t len = grapheme_at(s + i, n - i);
        put_grapheme(m, out, s + i, len);
        i += len;
    }
}
