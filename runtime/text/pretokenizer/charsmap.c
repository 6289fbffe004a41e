/* charsmap.c -- SentencePiece's "precompiled_charsmap": a table of texts and what each
 * becomes, searched by a double-array trie (Aoe 1989) in the layout of Darts-clone. All
 * little-endian: the trie's size in bytes, its 32-bit units, then the results, each ended by a NUL;
 * a leaf holds the offset of its result. A unit is
 *   bits 0..7 label, 8 "has a leaf", 10..30 offset (bit 9: shifted by 8 more); of a leaf, bits
 *   0..30 are the value. */
#include "text/pretokenizer/split.h"
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
    uint64_t bytes = blob.len >= 4 ? read_u32(p) : 0;
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
    if (!m->unit || !m->text)
        return mn_charsmap_free(m), mn_fail_memory(err, blob.len);
    for (size_t i = 0; i < m->n_unit; i++)
        m->unit[i] = read_u32(p + 4 + 4 * i);
    find_kept(m);
    *out = m;
    return MN_OK;
}

static void put_u32(mn_text *out, uint32_t v) {
    mn_text_put(out, (char[]){(char)v, (char)(v >> 8), (char)(v >> 16), (char)(v >> 24)}, 4);
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

static uint32_t offset_of(uint32_t unit) {
    return (unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* The shortest, or else the longest, text of the table that s[0..n) begins with: its length (0 =
 * none) and result. */
static size_t find_match(const mn_charsmap *m, const char *s, size_t n, bool shortest,
                         mn_str *result) {
    size_t at = offset_of(m->unit[0]), length = 0;
    for (size_t i = 0; i < n && s[i]; i++) {
        at ^= (uint8_t)s[i];
        if (at >= m->n_unit || (m->unit[at] & (1u << 31 | 0xff)) != (uint8_t)s[i])
            break;
        uint32_t unit = m->unit[at];
        at ^= offset_of(unit);
        if (!(unit & 1u << 8) || at >= m->n_unit)
            continue;
        size_t value = m->unit[at] & 0x7fffffffu;
        if (value > m->n_text)
            continue;
        /* mn_strndup ended the last one */
        *result = (mn_str){m->text + value, strlen(m->text + value)};
        length = i + 1;
        if (shortest)
            break;
    }
    return length;
}

/* ---- symbols --------------------------------------------------------------------------------- */
static int by_bytes(const void *a, const void *b) {
    const mn_str *x = a, *y = b;
    int order = memcmp(x->ptr, y->ptr, (size_t)MN_MIN(x->len, y->len));
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
    size_t lo = 0, hi = m->n_symbol, longest = 0;
    if (!n || !m->begins[(uint8_t)*s])
        return 0;
    for (size_t depth = 0; depth < n; depth++) {
        lo = first_from(m, lo, hi, depth, (uint8_t)s[depth]);
        hi = first_from(m, lo, hi, depth, (uint8_t)s[depth] + 1);
        if (lo == hi)
            break;
        if (m->symbol[lo].len == depth + 1)
            longest = depth + 1;
    }
    return longest;
}

/* No text of the table begins with it and an ASCII character. */
static void find_kept(mn_charsmap *m) {
    char s[2];
    mn_str result;
    for (int a = 1; a < 128; a++) {
        m->kept[a] = a != '\r'; /* begins a grapheme of two */
        for (int b = 1; b < 128 && m->kept[a]; b++) {
            s[0] = (char)a, s[1] = (char)b;
            m->kept[a] = !find_match(m, s, 2, false, &result);
        }
    }
}

/* Appends the characters at s that stay as they are, as far as that is cheap to see; how many. */
static size_t put_kept(const mn_charsmap *m, mn_text *out, const char *s, size_t n) {
    size_t len = 0;
    while (len + 1 < n && (uint8_t)s[len] < 128 && (uint8_t)s[len + 1] < 128 && s[len + 1] &&
           m->kept[(uint8_t)s[len]])
        len++;
    if (len)
        mn_text_put(out, s, len);
    return len;
}

static size_t char_at(const char *s, size_t n, uint32_t *code) {
    *code = 0;
    return (size_t)MN_MAX(1, mn_utf8_decode(s, n, code));
}

static size_t grapheme_at(const char *s, size_t n) {
    utf8proc_int32_t state = 0;
    uint32_t code, next;
    size_t len = char_at(s, n, &code);
    while (len < n) {
        size_t more = char_at(s + len, n - len, &next);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)code, (utf8proc_int32_t)next,
                                             &state))
            break;
        len += more;
        code = next;
    }
    return len;
}

/* As the "tokenizers" library reads the table: a grapheme of at most 5 bytes, else a character,
 * becomes as a whole what the shortest match in it says. */
static void put_graphemes(const mn_charsmap *m, mn_text *out, const char *s, size_t n) {
    uint32_t code;
    mn_str result;
    for (size_t i = 0, len; i < n; i += len) {
        if ((len = put_kept(m, out, s + i, n - i)) > 0)
            continue;
        len = grapheme_at(s + i, n - i);
        if (len < 6 && find_match(m, s + i, len, true, &result)) {
            mn_text_put(out, result.ptr, (size_t)result.len);
            continue;
        }
        for (size_t k = 0, c; k < len; k += c) {
            c = char_at(s + i + k, len - k, &code);
            if (find_match(m, s + i + k, c, true, &result))
                mn_text_put(out, result.ptr, (size_t)result.len);
            else
                mn_text_put(out, s + i + k, c);
        }
    }
}

void mn_charsmap_put(const mn_charsmap *m, mn_text *out, const char *s, size_t n) {
    if (m->graphemes) {
        put_graphemes(m, out, s, n);
        return;
    }
    uint32_t code;
    mn_str result;
    for (size_t i = 0, len; i < n; i += len) {
        if ((len = put_kept(m, out, s + i, n - i)) > 0)
            continue;
        if ((len = symbol_at(m, s + i, n - i)) > 0) {
            mn_text_put(out, s + i, len);
            continue;
        }
        len = find_match(m, s + i, n - i, false, &result);
        if (len)
            mn_text_put(out, result.ptr, (size_t)result.len);
        else
            mn_text_put(out, s + i, len = char_at(s + i, n - i, &code));
    }
}
