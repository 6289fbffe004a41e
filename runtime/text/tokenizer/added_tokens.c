/* added_tokens.c -- finds tokens that are written out in a text: the leftmost, and of those the
 * longest. Vocabularies add up to thousands of them, most with the same first byte, so candidates
 * are looked up by length: one search in a table for each length that occurs.
 *
 * A tokeniser has two sets, matched before and after its normaliser; they do not change once they
 * are indexed. The texts belong to the vocabulary. */
#include "text/tokenizer/tokenizer_impl.h"
#include <string.h>
#include <utf8proc.h>

mn_status mn_added_put(mn_added_set *s, const mn_added *item, mn_error *err) {
    if (item->text.len == 0)
        return MN_OK;
    void *grown = s->item;
    const bool ok = mn_grow(&grown, &s->cap, s->n + 1, sizeof *s->item);
    s->item = grown;
    if (!ok)
        return mn_fail_memory(err, (s->n + 1) * sizeof *s->item);
    s->item[s->n++] = *item;
    return MN_OK;
}

/* The slot of this text, or the free one where it belongs. */
static size_t added_find_slot(const mn_added_set *s, mn_str text) {
    const size_t last = s->n_slot - 1;
    size_t i = (size_t)mn_hash(text.ptr, (size_t)text.len, 0) & last;
    while (s->slot[i]) {
        const mn_added *there = &s->item[s->slot[i] - 1];
        if (mn_str_eq(there->text, text))
            break;
        i = (i + 1) & last;
    }
    return i;
}

/* Enters n among the distinct lengths, longest first. */
static void note_length(mn_added_set *s, size_t n) {
    size_t i = 0;
    while (i < s->n_len && s->len[i] > n)
        i++;
    if (i < s->n_len && s->len[i] == n)
        return;
    memmove(s->len + i + 1, s->len + i, (s->n_len - i) * sizeof *s->len);
    s->len[i] = n;
    s->n_len++;
}

mn_status mn_added_index(mn_added_set *s, const char *where, mn_error *err) {
    if (!s->n)
        return MN_OK;
    s->n_slot = mn_vocab_slots(s->n);
    s->slot = mn_calloc(s->n_slot, sizeof *s->slot);
    s->len = mn_alloc(s->n, sizeof *s->len);
    if (!s->slot || !s->len)
        return mn_fail_memory(err, s->n_slot * sizeof *s->slot);
    for (size_t k = 0; k < s->n; k++) {
        const mn_str t = s->item[k].text;
        uint32_t *slot = &s->slot[added_find_slot(s, t)];
        if (*slot)
            return mn_fail(err, MN_BAD_FILE, "%s: added token \"%.*s\" is given twice", where,
                           MN_STR_ARG(t));
        *slot = (uint32_t)k + 1;
        s->first[(uint8_t)t.ptr[0]] = true;
        note_length(s, (size_t)t.len);
    }
    return MN_OK;
}

void mn_added_free(mn_added_set *s) {
    mn_free(s->item);
    mn_free(s->slot);
    mn_free(s->len);
    memset(s, 0, sizeof *s);
}

/* Unicode's UTS 18, annex C: letters, marks, digits, connectors and joiners; four rows of circled
 * letters are alphabetic. */
static bool added_is_word(uint32_t c) {
    static const uint32_t circled[][2] = {
        {0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    if (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL)
        return true;
    for (size_t i = 0; i < MN_COUNT(circled); i++)
        if (c >= circled[i][0] && c <= circled[i][1])
            return true;
    return k == UTF8PROC_CATEGORY_PC || c == 0x200c || c == 0x200d;
}

/* The character that ends at hi; its first byte is at the offset returned. */
static size_t char_before(mn_str text, size_t hi, uint32_t *code) {
    size_t lo = hi - 1;
    while (lo > 0 && hi - lo < 4 && ((unsigned char)text.ptr[lo] & 0xc0) == 0x80)
        lo--;
    *code = 0;
    mn_utf8_decode(text.ptr + lo, hi - lo, code);
    return lo;
}

/* No word character touches text[lo..hi). */
static bool stands_alone(mn_str text, size_t lo, size_t hi) {
    uint32_t code = 0;
    if (lo > 0) {
        char_before(text, lo, &code);
        if (added_is_word(code))
            return false;
    }
    if (hi >= text.len)
        return true;
    code = 0;
    mn_utf8_decode(text.ptr + hi, (size_t)text.len - hi, &code);
    return !added_is_word(code);
}

static bool any_set(const uint8_t *p, size_t n) {
    size_t i = 0;
    while (i < n && !p[i])
        i++;
    return i < n;
}

/* May this token be recognised at lo? Special ones only if it is asked for, and nowhere in what a
 * user typed. */
static bool allowed(const mn_added *a, size_t lo, const uint8_t *plain, bool parse_special) {
    if (!a->special)
        return true;
    if (!parse_special)
        return false;
    return !plain || !any_set(plain + lo, (size_t)a->text.len);
}

/* lstrip and rstrip: the token takes the white space beside it. */
static void added_widen(const mn_added *a, mn_str text, size_t from, size_t *lo, size_t *hi) {
    uint32_t code = 0;
    while (a->lstrip && *lo > from) {
        const size_t before = char_before(text, *lo, &code);
        if (before < from || !mn_is_space(code))
            break;
        *lo = before;
    }
    while (a->rstrip && *hi < text.len) {
        const int n = mn_utf8_decode(text.ptr + *hi, (size_t)text.len - *hi, &code);
        if (n <= 0 || !mn_is_space(code))
            break;
        *hi += (size_t)n;
    }
}

/* The longest token that stands at text[at] and may be recognised there; NULL = none. */
static const mn_added *token_at(const mn_added_set *s, mn_str text, size_t at, const uint8_t *plain,
                                bool parse_special) {
    const char *here = text.ptr + at;
    if (!s->first[(uint8_t)*here])
        return NULL;
    for (size_t k = 0; k < s->n_len; k++) {
        const mn_str part = {here, s->len[k]};
        if (part.len > text.len - at)
            continue;
        const uint32_t found = s->slot[added_find_slot(s, part)];
        const mn_added *a = found ? &s->item[found - 1] : NULL;
        if (a && allowed(a, at, plain, parse_special))
            return a;
    }
    return NULL;
}

bool mn_added_next(const mn_added_set *s, mn_str text, size_t from, size_t at, const uint8_t *plain,
                   bool parse_special, mn_added_match *out) {
    for (; s->n && at < text.len; at++) {
        const mn_added *a = token_at(s, text, at, plain, parse_special);
        if (!a)
            continue;
        const size_t end = at + (size_t)a->text.len;
        *out = (mn_added_match){at, end, end, a};
        if (!a->single_word || stands_alone(text, at, end)) {
            added_widen(a, text, from, &out->lo, &out->hi);
            if (a->lstrip && out->lo < from)
                out->lo = from;
            if (out->lo < out->hi)
                return true; // else all of it was taken before
        }
        at = end - 1; // no token then, nor what is inside it
    }
    return false;
}
