/* text.c -- characters of marked strings: walking, searching, letter case, splitting. What Python
 * says about a character is answered by utf8proc, and by tables where Unicode has a property that
 * it lacks.
 *
 * Results are slices of what came in, with its marks, or new strings in the context's arena. Every
 * function counts the bytes that it looks at (mn_jcharge): a template may ask for any of this in a
 * loop. */
#include "text/jinja/text.h"
#include <string.h>
#include <utf8proc.h>

size_t mn_jchar(mn_jstr s, size_t at, uint32_t *code) {
    const char *p = s.ptr + at;
    const int n = mn_utf8_decode(p, s.len - at, code);
    if (n > 0)
        return (size_t)n;
    *code = MN_J_BAD_BYTE + (uint8_t)*p;
    return 1;
}

/* The character that ends at end > 0. */
static size_t jtext_char_before(mn_jstr s, size_t end, uint32_t *code) {
    for (size_t n = 1; n <= 4 && n <= end; n++) {
        uint32_t u;
        if (((uint8_t)s.ptr[end - n] & 0xC0) == 0x80)
            continue;
        if (mn_utf8_decode(s.ptr + end - n, n, &u) == (int)n) {
            *code = u;
            return n;
        }
        break;
    }
    *code = MN_J_BAD_BYTE + (uint8_t)s.ptr[end - 1];
    return 1;
}

/* How many characters; bytes that are not UTF-8 count as one each. */
size_t mn_jchars(mn_jctx *c, mn_jstr s) {
    size_t n = 0;
    uint32_t code;
    if (!mn_jcharge(c, MN_J_PER_CHAR, s.len))
        return 0;
    for (size_t at = 0; at < s.len; n++)
        at += mn_jchar(s, at, &code);
    return n;
}

/* Where a character begins, in bytes. */
size_t mn_joffset(mn_jctx *c, mn_jstr s, size_t chars) {
    size_t at = 0;
    uint32_t code;
    while (chars-- && at < s.len)
        at += mn_jchar(s, at, &code);
    return mn_jcharge(c, MN_J_PER_CHAR, at) ? at : 0;
}

/* memmem may compare up to 256 bytes of what at each place. A megabyte at a time, so that the work
 * is counted soon after it is done. */
size_t mn_jfind(mn_jctx *c, mn_jstr in, mn_jstr what, size_t from) {
    const size_t chunk = ((size_t)1 << 20) + what.len;
    if (from > in.len || what.len > in.len - from)
        return SIZE_MAX;
    if (!what.len)
        return from;
    const size_t compared = MN_MIN(what.len, (size_t)256);
    const size_t per_place = what.len < 2 ? 1 : 3 + compared / 8;
    for (;;) {
        const size_t n = MN_MIN(in.len - from, chunk);
        const char *p = memmem(in.ptr + from, n, what.ptr, what.len);
        const size_t found = p ? (size_t)(p - in.ptr) : SIZE_MAX;
        const size_t end = p ? found + what.len : from + n;
        const size_t places = (end - from) * per_place;
        if (!mn_jcharge(c, MN_J_PER_BYTE, 64 + places + what.len))
            return SIZE_MAX;
        if (p || end == in.len)
            return found;
        from = end - what.len + 1;
    }
}

size_t mn_jrfind(mn_jctx *c, mn_jstr in, mn_jstr what, size_t end) {
    if (what.len > end)
        return SIZE_MAX;
    if (!what.len)
        return end;
    size_t last = end - what.len + 1; // places in front of it are to be tried
    while (last) {
        const char *p = memrchr(in.ptr, what.ptr[0], last);
        const size_t at = p ? (size_t)(p - in.ptr) : 0;
        if (!mn_jcharge(c, MN_J_PER_BYTE, last - at) || !p)
            return SIZE_MAX;
        if (!mn_jcharge(c, MN_J_PER_BYTE, 16 + what.len))
            return SIZE_MAX;
        if (!memcmp(p, what.ptr, what.len))
            return at;
        last = at;
    }
    return SIZE_MAX;
}

typedef struct {
    uint32_t first, last;
} code_range;

/* r: ascending. */
static bool in_ranges(uint32_t u, const code_range *r, size_t n) {
    size_t i = 0;
    while (i < n && u > r[i].last)
        i++;
    return i < n && u >= r[i].first;
}
bool mn_jcode_space(uint32_t u) {
    static const code_range spaces[] = {
        {9, 13},          {0x1C, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
        {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
    return in_ranges(u, spaces, MN_COUNT(spaces));
}

/* Bytes that are not UTF-8 are no characters: unassigned. */
static utf8proc_category_t category(uint32_t u) {
    return u < 0x110000 ? utf8proc_category((utf8proc_int32_t)u) : UTF8PROC_CATEGORY_CN;
}

/* Of white space only the space. */
bool mn_jcode_print(uint32_t u) {
    switch (category(u)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return u == ' ';
    default:
        return true;
    }
}

bool mn_jcode_alpha(uint32_t u) {
    utf8proc_category_t k = category(u);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool mn_jcode_decimal(uint32_t u) {
    return category(u) == UTF8PROC_CATEGORY_ND;
}

bool mn_jcode_digit(uint32_t u) {
    /* raised, lowered and circled ones: Numeric_Type=Digit */
    static const code_range digits[] = {
        {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
        {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
        {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
        {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
        {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
    return mn_jcode_decimal(u) || in_ranges(u, digits, MN_COUNT(digits));
}

bool mn_jcode_numeric(uint32_t u) { // but for Chinese numerals, which are letters
    utf8proc_category_t k = category(u);
    return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

bool mn_jcode_upper(uint32_t u) {
    static const code_range others[] = {// Other_Uppercase
                                        {0x2160, 0x216F},
                                        {0x24B6, 0x24CF},
                                        {0x1F130, 0x1F149},
                                        {0x1F150, 0x1F169},
                                        {0x1F170, 0x1F189}};
    return category(u) == UTF8PROC_CATEGORY_LU || in_ranges(u, others, MN_COUNT(others));
}

bool mn_jcode_lower(uint32_t u) {
    static const code_range others[] = {
        // Other_Lowercase
        {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},
        {0x2E0, 0x2E4},     {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},
        {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},   {0x207F, 0x207F},
        {0x2090, 0x209C},   {0x2170, 0x217F},   {0x24D0, 0x24E9},   {0x2C7C, 0x2C7D},
        {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},   {0xAB5C, 0xAB5F},
        {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
    return category(u) == UTF8PROC_CATEGORY_LL || in_ranges(u, others, MN_COUNT(others));
}

bool mn_jcode_title(uint32_t u) {
    return category(u) == UTF8PROC_CATEGORY_LT;
}

/* Is this character in the set (NULL: white space)? */
static bool one_of(mn_jctx *c, uint32_t code, const mn_jstr *chars) {
    if (!mn_jcharge(c, MN_J_PER_CHAR, 2 + (chars ? chars->len : 0)))
        return false;
    if (!chars)
        return mn_jcode_space(code);
    uint32_t u;
    for (size_t at = 0; at < chars->len;) {
        at += mn_jchar(*chars, at, &u);
        if (u == code)
            return true;
    }
    return false;
}

mn_jstr mn_jstrip(mn_jctx *c, mn_jstr s, const mn_jstr *chars, int sides) {
    size_t from = 0;
    size_t to = s.len;
    uint32_t u;
    while (sides & 1 && from < to) {
        const size_t n = mn_jchar(s, from, &u);
        if (!one_of(c, u, chars))
            break;
        from += n;
    }
    while (sides & 2 && to > from) {
        const size_t n = jtext_char_before(s, to, &u);
        if (!one_of(c, u, chars))
            break;
        to -= n;
    }
    return mn_jstr_slice(s, from, MN_MAX(from, to));
}

/* ---- letter case: the common ones of Unicode's SpecialCasing where a character becomes several
 * ---- */

static const struct {
    uint32_t code;
    const char *upper, *title;
} specials[] = {
    {0xDF, "SS", "Ss"},
    {0x149, "\xCA\xBCN", "\xCA\xBCN"},
    {0x1F0, "J\xCC\x8C", "J\xCC\x8C"},
    {0xFB00, "FF", "Ff"},
    {0xFB01, "FI", "Fi"},
    {0xFB02, "FL", "Fl"},
    {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"},
    {0xFB05, "ST", "St"},
    {0xFB06, "ST", "St"},
};

/* title: as the first letter of a word, where that differs. */
static bool put_upper(mn_jctx *c, mn_jbuf *b, uint32_t u, uint8_t mark, bool title) {
    for (size_t i = 0; i < MN_COUNT(specials); i++) {
        const char *special = title ? specials[i].title : specials[i].upper;
        if (specials[i].code == u)
            return mn_jbuf_puts(c, b, special, mark);
    }
    const utf8proc_int32_t code = (utf8proc_int32_t)u;
    if (u < 0x110000)
        u = (uint32_t)(title ? utf8proc_totitle(code) : utf8proc_toupper(code));
    return mn_jbuf_code(c, b, u, mark);
}

/* Is it a letter that has two forms? */
static bool cased(uint32_t u) {
    return mn_jcode_upper(u) || mn_jcode_lower(u) || mn_jcode_title(u);
}

/* A capital sigma at the end of a word becomes the final one. */
static bool final_sigma(mn_jstr s, size_t at, size_t n) {
    uint32_t u;
    if (!at)
        return false;
    jtext_char_before(s, at, &u);
    if (!cased(u))
        return false;
    if (at + n >= s.len)
        return true;
    mn_jchar(s, at + n, &u);
    return !cased(u);
}

/* n: bytes of the character at s[at]. */
static bool put_lower(mn_jctx *c, mn_jbuf *b, mn_jstr s, size_t at, size_t n, uint32_t u) {
    const uint8_t mark = mn_jstr_mark(s, at);
    if (u == 0x130)
        return mn_jbuf_puts(c, b, "i\xCC\x87", mark);
    if (u == 0x3A3)
        u = final_sigma(s, at, n) ? 0x3C2 : 0x3C3;
    else if (u < 0x110000)
        u = (uint32_t)utf8proc_tolower((utf8proc_int32_t)u);
    return mn_jbuf_code(c, b, u, mark);
}

/* What a word of the filter title begins behind; the method begins one behind any character without
 * case. */
static bool title_break(uint32_t u) {
    return u == '-' || u == '(' || u == '{' || u == '[' || u == '<' || mn_jcode_space(u);
}

bool mn_jcase_of(mn_jctx *c, mn_jstr s, mn_jcase how, mn_jval *out) {
    const bool title = how == MN_J_CAPITAL || how == MN_J_TITLE_METHOD;
    mn_jbuf b = {0};
    bool start = how != MN_J_LOWER;               // of a word, or of anything that is raised
    if (!mn_jcharge(c, MN_J_PER_CHAR, 2 * s.len)) // decoded, then looked up
        return false;
    for (size_t at = 0, n; at < s.len; at += n) {
        uint32_t u;
        n = mn_jchar(s, at, &u);
        const uint8_t mark = mn_jstr_mark(s, at);
        if (start ? !put_upper(c, &b, u, mark, title) : !put_lower(c, &b, s, at, n, u))
            return false;
        if (how == MN_J_TITLE_METHOD)
            start = !cased(u);
        else if (how == MN_J_TITLE_FILTER)
            start = title_break(u);
        else
            start = how == MN_J_UPPER;
    }
    return mn_jbuf_value(c, &b, out);
}

/* ---- replace, split -------------------------------------------------------------------------- */

/* An empty string is found between all characters. */
bool mn_jreplace(mn_jctx *c, mn_jstr s, mn_jstr old, mn_jstr with, int64_t count, mn_jval *out) {
    mn_jbuf b = {0};
    size_t at = 0;
    uint32_t u;
    while (count != 0) {
        size_t hit = mn_jfind(c, s, old, at);
        if (hit == SIZE_MAX)
            break;
        if (!mn_jbuf_put(c, &b, mn_jstr_slice(s, at, hit)) || !mn_jbuf_put(c, &b, with) ||
            !mn_jcharge(c, MN_J_PER_ITEM, 1))
            return false;
        at = hit + old.len;
        if (count > 0)
            count--;
        if (old.len)
            continue;
        if (at >= s.len)
            return mn_jbuf_value(c, &b, out); // an empty needle sits between all characters
        size_t n = mn_jchar(s, at, &u);
        if (!mn_jbuf_put(c, &b, mn_jstr_slice(s, at, at + n)))
            return false;
        at += n;
    }
    return mn_jbuf_put(c, &b, mn_jstr_slice(s, at, s.len)) && mn_jbuf_value(c, &b, out);
}

/* s[from..to) as a value. */
static bool add_piece(mn_jctx *c, mn_jlist *l, mn_jstr s, size_t from, size_t to) {
    mn_jval v;
    return mn_j_string(c, mn_jstr_slice(s, from, to), &v) && mn_jlist_add(c, l, v);
}

/* Runs of white space separate; there are no empty pieces. */
static bool split_space(mn_jctx *c, mn_jlist *l, mn_jstr s, int64_t max) {
    for (s = mn_jstrip(c, s, NULL, 1); s.len; s = mn_jstrip(c, s, NULL, 1)) {
        size_t at = 0;
        if (max >= 0 && (int64_t)l->n >= max)
            return add_piece(c, l, s, 0, s.len); // the rest as it is
        while (at < s.len) {
            uint32_t u;
            const size_t n = mn_jchar(s, at, &u);
            if (mn_jcode_space(u))
                break;
            at += n;
        }
        if (!mn_jcharge(c, MN_J_PER_CHAR, at) || !add_piece(c, l, s, 0, at))
            return false;
        s = mn_jstr_slice(s, at, s.len);
    }
    return true;
}

/* The same from the right; pieces come in reverse. */
static bool rsplit_space(mn_jctx *c, mn_jlist *l, mn_jstr s, int64_t max) {
    for (s = mn_jstrip(c, s, NULL, 2); s.len; s = mn_jstrip(c, s, NULL, 2)) {
        size_t at = s.len;
        if (max >= 0 && (int64_t)l->n >= max)
            return add_piece(c, l, s, 0, s.len);
        while (at) {
            uint32_t u;
            const size_t n = jtext_char_before(s, at, &u);
            if (mn_jcode_space(u))
                break;
            at -= n;
        }
        if (!mn_jcharge(c, MN_J_PER_CHAR, s.len - at) || !add_piece(c, l, s, at, s.len))
            return false;
        s = mn_jstr_slice(s, 0, at);
    }
    return true;
}

/* Pieces that were found from the right. */
static void reverse(mn_jlist *l) {
    for (size_t i = 0, j = l->n; i + 1 < j; i++) {
        mn_jval v = l->items[i];
        l->items[i] = l->items[--j];
        l->items[j] = v;
    }
}

/* At each separator; how many pieces there are at most is one more than max. */
static bool split_at(mn_jctx *c, mn_jlist *l, mn_jstr s, mn_jstr sep, int64_t max) {
    size_t from = 0;
    while (max < 0 || (int64_t)l->n < max) {
        const size_t hit = mn_jfind(c, s, sep, from);
        if (hit == SIZE_MAX)
            break;
        if (!add_piece(c, l, s, from, hit))
            return false;
        from = hit + sep.len;
    }
    return add_piece(c, l, s, from, s.len);
}

/* The same from the right; pieces come in reverse. */
static bool rsplit_at(mn_jctx *c, mn_jlist *l, mn_jstr s, mn_jstr sep, int64_t max) {
    size_t end = s.len;
    while (max < 0 || (int64_t)l->n < max) {
        const size_t hit = mn_jrfind(c, s, sep, end);
        if (hit == SIZE_MAX)
            break;
        if (!add_piece(c, l, s, hit + sep.len, end))
            return false;
        end = hit;
    }
    return add_piece(c, l, s, 0, end);
}

bool mn_jsplit(mn_jctx *c, mn_jstr s, const mn_jstr *sep, int64_t max, bool from_right,
               mn_jval *out) {
    mn_jlist *l = mn_jlist_new(c, 0);
    bool ok;
    if (!l)
        return false;
    *out = mn_j_listval(MN_J_LIST, l);
    if (sep && !sep->len)
        return mn_jfail(c, "empty separator");
    if (sep)
        ok = (from_right ? rsplit_at : split_at)(c, l, s, *sep, max);
    else
        ok = (from_right ? rsplit_space : split_space)(c, l, s, max);
    if (from_right)
        reverse(l);
    return ok && c->status == MN_OK;
}

/* What str.splitlines() breaks at. */
static bool line_break(uint32_t u) {
    return (u >= 10 && u <= 13) || (u >= 0x1C && u <= 0x1E) || u == 0x85 || u == 0x2028 ||
           u == 0x2029;
}

/* \r\n is one break; the last line needs none. */
bool mn_jsplitlines(mn_jctx *c, mn_jstr s, bool keep_ends, mn_jval *out) {
    mn_jlist *l = mn_jlist_new(c, 0);
    if (!l)
        return false;
    *out = mn_j_listval(MN_J_LIST, l);
    size_t from = 0, n;
    uint32_t u;
    if (!mn_jcharge(c, MN_J_PER_CHAR, s.len))
        return false;
    for (size_t at = 0; at < s.len; at += n) {
        n = mn_jchar(s, at, &u);
        if (!line_break(u))
            continue;
        if (u == '\r' && at + 1 < s.len && s.ptr[at + 1] == '\n')
            n = 2;
        if (!add_piece(c, l, s, from, keep_ends ? at + n : at))
            return false;
        from = at + n;
    }
    return from >= s.len || add_piece(c, l, s, from, s.len);
}
