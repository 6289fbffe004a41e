/* chars.c -- sets of characters as ranges of code points, and their expression over the bytes of
 * UTF-8. Surrogates are no characters and never match. Inside a JSON string a quote, a backslash
 * and control characters are written as escapes, everything else as it is. */
#include "grammar/grammar_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { LAST = 0x10ffff };

void mn_gchars_add(mn_gchars *c, uint32_t lo, uint32_t hi) {
    if (lo > hi || c->failed)
        return;
    if (!mn_grow((void **)&c->at, &c->cap, c->n + 1u, sizeof *c->at)) {
        c->failed = true;
        return;
    }
    c->at[c->n++] = (mn_grange){lo, MN_MIN(hi, LAST)};
}

void mn_gchars_merge(mn_gchars *c, const mn_gchars *more) {
    for (uint32_t i = 0; i < more->n; i++)
        mn_gchars_add(c, more->at[i].lo, more->at[i].hi);
    c->failed |= more->failed;
}

void mn_gchars_free(mn_gchars *c) {
    mn_free(c->at);
    *c = (mn_gchars){0};
}

static int by_lo(const void *a, const void *b) {
    const mn_grange *x = a;
    const mn_grange *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

/* Without surrogates: a range that holds them becomes two. */
static void drop_surrogates(mn_gchars *c) {
    const uint32_t n = c->n;
    for (uint32_t i = 0; i < n; i++) {
        const mn_grange r = c->at[i];
        if (r.hi < 0xd800 || r.lo > 0xdfff)
            continue;
        if (r.hi > 0xdfff)
            mn_gchars_add(c, 0xe000, r.hi);
        if (r.lo < 0xd800)
            c->at[i].hi = 0xd7ff;
        else
            c->at[i] = (mn_grange){1, 0};
    }
}

void mn_gchars_sort(mn_gchars *c) {
    if (!c->n)
        return;
    drop_surrogates(c);
    qsort(c->at, c->n, sizeof *c->at, by_lo);
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        const mn_grange r = c->at[i];
        if (r.lo > r.hi)
            continue;
        if (n && r.lo <= c->at[n - 1].hi + 1)
            c->at[n - 1].hi = MN_MAX(c->at[n - 1].hi, r.hi);
        else
            c->at[n++] = r;
    }
    c->n = n;
}

void mn_gchars_invert(mn_gchars *c) {
    mn_gchars out = {.failed = c->failed};
    uint32_t from = 0;
    mn_gchars_sort(c);
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->at[i].lo > from)
            mn_gchars_add(&out, from, c->at[i].lo - 1);
        from = c->at[i].hi + 1;
    }
    mn_gchars_add(&out, from, LAST);
    mn_gchars_sort(&out);
    mn_gchars_free(c);
    *c = out;
}

/* Characters whose encodings have the same length and whose bytes behind the first `same` all span
 * their full range: one byte range each. */
static mn_gexpr *byte_ranges(mn_gbuild *b, const char *lo, const char *hi, int n) {
    mn_gexpr *seq = mn_gx_new(b, MN_GX_SEQ);
    for (int i = 0; i < n; i++) {
        if (!mn_gx_add(b, seq, mn_gx_bytes(b, (uint8_t)lo[i], (uint8_t)hi[i])))
            return NULL;
    }
    return seq;
}

/* Adds to alt the characters lo to hi, split where the bytes of UTF-8 do not run in full. */
static bool chars_add_range(mn_gbuild *b, mn_gexpr *alt, uint32_t lo, uint32_t hi) {
    static const uint32_t last_of_length[] = {0x7f, 0x7ff, 0xffff};
    for (uint32_t i = 0; i < MN_COUNT(last_of_length); i++) {
        const uint32_t last = last_of_length[i];
        if (lo <= last && last < hi)
            return chars_add_range(b, alt, lo, last) && chars_add_range(b, alt, last + 1, hi);
    }
    for (uint32_t bits = 6; bits <= 18 && lo > 0x7f; bits += 6) {
        const uint32_t low = (1u << bits) - 1;
        if ((lo | low) == (hi | low))
            continue;
        if (lo & low)
            return chars_add_range(b, alt, lo, lo | low) &&
                   chars_add_range(b, alt, (lo | low) + 1, hi);
        if ((hi & low) != low)
            return chars_add_range(b, alt, lo, (hi & ~low) - 1) &&
                   chars_add_range(b, alt, hi & ~low, hi);
    }
    char first[4];
    char last[4];
    const int n = mn_utf8_encode(lo, first);
    mn_utf8_encode(hi, last);
    return mn_gx_add(b, alt, byte_ranges(b, first, last, n));
}

static mn_gexpr *json_escape(mn_gbuild *b, uint32_t code) {
    char text[8];
    const size_t n = mn_json_escape(code, text);
    return mn_gx_text(b, text, n);
}

static bool is_escaped(uint32_t code) {
    return code < 0x20 || code == '"' || code == '\\';
}

bool mn_gchars_json(mn_text *out, mn_str text) {
    for (uint64_t i = 0; i < text.len; i++) {
        const char *at = text.ptr + i;
        char escape[8];
        if (is_escaped((uint8_t)*at))
            mn_text_put(out, escape, mn_json_escape((uint8_t)*at, escape));
        else
            mn_text_put(out, at, 1);
    }
    mn_text_put(out, "", 0);
    return !out->failed;
}

static bool add_json(mn_gbuild *b, mn_gexpr *alt, mn_grange r) {
    uint32_t from = r.lo;
    for (uint32_t code = r.lo; code <= r.hi && code <= '\\'; code++) {
        if (!is_escaped(code))
            continue;
        if (code > from && !chars_add_range(b, alt, from, code - 1))
            return false;
        if (!mn_gx_add(b, alt, json_escape(b, code)))
            return false;
        from = code + 1;
    }
    return from > r.hi || chars_add_range(b, alt, from, r.hi);
}

mn_gexpr *mn_gx_chars(mn_gbuild *b, mn_gchars *c, bool json) {
    mn_gchars_sort(c);
    if (c->failed)
        return mn_gbuild_memory(b);
    if (!mn_gbuild_spend(b, 8ull * c->n)) /* what it took to read, merge and sort them */
        return NULL;
    mn_gexpr *alt = mn_gx_new(b, MN_GX_ALT);
    for (uint32_t i = 0; i < c->n && alt; i++) {
        const mn_grange r = c->at[i];
        const bool ok = json ? add_json(b, alt, r) : chars_add_range(b, alt, r.lo, r.hi);
        if (!ok)
            return NULL;
    }
    return alt;
}

struct mn_gcategory {
    mn_gcategory *next;
    char name[3];
    uint32_t n;
    mn_grange at[];
};

/* Asks for each character: milliseconds. */
static void find_category(mn_gchars *c, mn_str name) {
    for (uint32_t code = 0; code <= LAST; code++) {
        const char *category = utf8proc_category_string((utf8proc_int32_t)code);
        if (strncmp(category, name.ptr, (size_t)name.len))
            continue;
        if (c->n && c->at[c->n - 1].hi + 1 == code)
            c->at[c->n - 1].hi = code;
        else
            mn_gchars_add(c, code, code);
    }
}

/* NULL: out of memory or work, b->status says so. Without characters: there is no such category. */
static const mn_gcategory *category_of(mn_gbuild *b, mn_str name) {
    mn_gchars c = {0};
    for (const mn_gcategory *k = b->categories; k; k = k->next) {
        if (strlen(k->name) == name.len && !memcmp(k->name, name.ptr, (size_t)name.len))
            return k;
    }
    if (!mn_gbuild_spend(b, LAST / 8))
        return NULL;
    find_category(&c, name);
    mn_gcategory *k = NULL;
    if (!c.failed)
        k = mn_arena_alloc(&b->arena, 1, sizeof *k + c.n * sizeof *k->at);
    if (k) {
        *k = (mn_gcategory){.next = b->categories, .n = c.n};
        memcpy(k->name, name.ptr, (size_t)name.len);
        if (c.n)
            memcpy(k->at, c.at, c.n * sizeof *k->at);
        b->categories = k;
    } else {
        mn_gbuild_memory(b);
    }
    mn_gchars_free(&c);
    return k;
}

bool mn_gchars_category(mn_gbuild *b, mn_gchars *c, mn_str name) {
    const bool short_name = name.len == 1 || name.len == 2;
    const mn_gcategory *k = short_name ? category_of(b, name) : NULL;
    for (uint32_t i = 0; k && i < k->n; i++)
        mn_gchars_add(c, k->at[i].lo, k->at[i].hi);
    return k && k->n;
}
