/* stages.c -- runs the stages of stages.h over the pieces of a text. A tokeniser owns two lists of
 * stages, its normaliser and its splitter, which do not change; the pieces (mn_pieces) are scratch
 * of one encoding: spans of one text, and a spare text and spare spans that a stage writes to
 * before the two are swapped.
 *
 * Which bytes stem from the first character of the user's text is carried along (lead): Metaspace's
 * scheme "first" asks for it, and a normaliser may have put something in front. */
#include "text/pretokenizer/stages.h"
#include <string.h>
#include <utf8proc.h>

/* ---- lists of stages ------------------------------------------------------------------------- */

mn_stage *mn_stages_add(mn_stages *s, mn_stage_kind kind) {
    void *grown = s->stage;
    const bool ok = mn_grow(&grown, &s->cap, s->n + 1, sizeof *s->stage);
    s->stage = grown;
    if (!ok)
        return NULL;
    mn_stage *stage = &s->stage[s->n++];
    memset(stage, 0, sizeof *stage);
    stage->kind = kind;
    return stage;
}

mn_status mn_stages_add_split(mn_stages *s, const char *regex, mn_split_behavior behavior,
                              bool invert, const char *where, mn_error *err) {
    mn_stage *stage = mn_stages_add(s, MN_STAGE_SPLIT);
    if (!stage)
        return mn_fail_memory(err, sizeof *stage);
    stage->behavior = behavior;
    stage->invert = invert;
    return mn_regex_compile(&stage->pattern, mn_str_of(regex), where, err);
}

mn_stage *mn_stages_add_content(mn_stages *s, mn_stage_kind kind, mn_str content, mn_error *err) {
    mn_stage *stage = mn_stages_add(s, kind);
    if (stage)
        stage->content = mn_strndup(content.ptr ? content.ptr : "", (size_t)content.len);
    if (!stage || !stage->content) {
        mn_fail_memory(err, content.len + sizeof *stage);
        return NULL;
    }
    stage->content_len = (size_t)content.len;
    return stage;
}

mn_status mn_stages_add_replace(mn_stages *s, mn_str literal, mn_str content, mn_error *err) {
    mn_stage *stage = mn_stages_add_content(s, MN_STAGE_REPLACE, content, err);
    return stage ? mn_regex_literal(&stage->pattern, literal, err) : MN_OUT_OF_MEMORY;
}

mn_status mn_stages_add_rewrite(mn_stages *s, const char *regex, const char *content, bool around,
                                const char *where, mn_error *err) {
    mn_stage *stage = mn_stages_add_content(s, MN_STAGE_REPLACE, mn_str_of(content), err);
    if (!stage)
        return MN_OUT_OF_MEMORY;
    stage->left = around;
    stage->right = around;
    return mn_regex_compile(&stage->pattern, mn_str_of(regex), where, err);
}

mn_status mn_stages_add_prepend(mn_stages *s, mn_str content, bool unless_present, bool only_first,
                                mn_error *err) {
    mn_stage *stage = mn_stages_add_content(s, MN_STAGE_PREPEND, content, err);
    if (!stage)
        return MN_OUT_OF_MEMORY;
    stage->unless_present = unless_present;
    stage->only_first = only_first;
    return MN_OK;
}

void mn_stages_free(mn_stages *s) {
    for (size_t i = 0; i < s->n; i++) {
        mn_regex_free(&s->stage[i].pattern);
        mn_free(s->stage[i].content);
        mn_charsmap_free(s->stage[i].charsmap);
    }
    mn_free(s->stage);
    memset(s, 0, sizeof *s);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

size_t mn_char_length(const char *s, size_t n) {
    uint32_t code = 0;
    return n ? (size_t)MN_MAX(1, mn_utf8_decode(s, n, &code)) : 0;
}

/* Where the next search begins: an empty match is left by one character. */
static size_t stage_search_from(const char *s, size_t n, size_t lo, size_t hi) {
    if (hi > lo)
        return hi;
    return hi < n ? hi + mn_char_length(s + hi, n - hi) : hi + 1;
}

mn_status mn_pieces_set(mn_pieces *p, const char *text, size_t n, size_t lead, mn_error *err) {
    void *grown = p->span;
    p->lead = lead;
    p->text.len = 0;
    p->text.failed = false;
    mn_text_put(&p->text, text, n);
    const bool ok = mn_grow(&grown, &p->cap, 1, sizeof *p->span);
    p->span = grown;
    if (!ok || p->text.failed)
        return mn_fail_memory(err, n + sizeof *p->span);
    p->span[0] = (mn_span){0, n, false};
    p->n = n ? 1 : 0;
    return MN_OK;
}

void mn_pieces_free(mn_pieces *p) {
    mn_text_free(&p->text);
    mn_text_free(&p->spare);
    mn_free(p->span);
    mn_free(p->spare_span);
    memset(p, 0, sizeof *p);
}

static bool spare_add(mn_pieces *p, size_t off, size_t len, bool match) {
    if (p->spare_n == p->spare_cap) {
        void *grown = p->spare_span;
        const bool ok = mn_grow(&grown, &p->spare_cap, p->spare_n + 1, sizeof *p->spare_span);
        p->spare_span = grown;
        if (!ok)
            return false;
    }
    p->spare_span[p->spare_n++] = (mn_span){off, len, match};
    return true;
}

static void swap_spans(mn_pieces *p) {
    mn_span *span = p->span;
    const size_t cap = p->cap;
    p->span = p->spare_span;
    p->cap = p->spare_cap;
    p->n = p->spare_n;
    p->spare_span = span;
    p->spare_cap = cap;
    p->spare_n = 0;
}

/* ---- SPLIT ----------------------------------------------------------------------------------- */

/* Appends to the spare spans what covers s: matches and the gaps between them, in order. */
static mn_status cover(mn_pieces *p, mn_matcher *m, mn_span s, bool invert, mn_error *err) {
    const char *text = p->text.ptr + s.off;
    size_t done = 0;
    size_t from = 0;
    bool ok = true;
    while (ok && from <= s.len) {
        size_t lo = 0;
        size_t hi = 0;
        mn_status st = mn_matcher_next(m, text, s.len, from, &lo, &hi, err);
        if (st == MN_END)
            break;
        if (st)
            return st;
        if (lo > done)
            ok = spare_add(p, s.off + done, lo - done, invert);
        ok = ok && spare_add(p, s.off + lo, hi - lo, !invert);
        done = hi;
        from = stage_search_from(text, s.len, lo, hi);
    }
    if (ok && done < s.len)
        ok = spare_add(p, s.off + done, s.len - done, invert);
    return ok ? MN_OK : mn_fail_memory(err, p->spare_cap * sizeof(mn_span));
}

/* Joins neighbours in span[lo..n) as the behaviour says, in place; returns the new end. */
static size_t merge_forward(mn_span *span, size_t lo, size_t n, mn_split_behavior behavior) {
    size_t out = lo;
    bool previous = false;
    for (size_t i = lo; i < n; i++) {
        const bool match = span[i].match;
        const bool join = behavior == MN_SPLIT_CONTIGUOUS ? match == previous : match && !previous;
        if (out > lo && join)
            span[out - 1].len += span[i].len;
        else
            span[out++] = span[i];
        previous = match;
    }
    return out;
}

/* The same from behind: a match joins what follows it. */
static size_t merge_with_next(mn_span *span, size_t lo, size_t n) {
    size_t out = n;
    bool previous = false;
    for (size_t i = n; i-- > lo;) {
        const bool match = span[i].match;
        if (out < n && match && !previous) {
            span[out].off = span[i].off;
            span[out].len += span[i].len;
        } else
            span[--out] = span[i];
        previous = match;
    }
    memmove(span + lo, span + out, (n - out) * sizeof *span);
    return lo + (n - out);
}

/* Without empty spans, and if so without matches; returns the new end. */
static size_t stage_drop(mn_span *span, size_t lo, size_t n, bool matches) {
    size_t out = lo;
    for (size_t i = lo; i < n; i++)
        if (span[i].len && !(matches && span[i].match))
            span[out++] = span[i];
    return out;
}

/* Cuts each piece, then joins or drops the parts of it as the behaviour says. */
static mn_status run_split(const mn_stage *stage, mn_pieces *p, mn_error *err) {
    const mn_split_behavior how = stage->behavior;
    mn_matcher m;
    mn_status st = mn_matcher_init(&m, &stage->pattern, err);
    p->spare_n = 0;
    for (size_t i = 0; !st && i < p->n; i++) {
        const size_t lo = p->spare_n;
        st = cover(p, &m, p->span[i], stage->invert, err);
        if (st)
            break;
        mn_span *span = p->spare_span;
        if (how == MN_SPLIT_WITH_PREVIOUS || how == MN_SPLIT_CONTIGUOUS)
            p->spare_n = merge_forward(span, lo, p->spare_n, how);
        if (how == MN_SPLIT_WITH_NEXT)
            p->spare_n = merge_with_next(span, lo, p->spare_n);
        p->spare_n = stage_drop(span, lo, p->spare_n, how == MN_SPLIT_REMOVED);
    }
    mn_matcher_free(&m);
    if (!st)
        swap_spans(p);
    return st;
}

/* ---- stages that rewrite ---------------------------------------------------------------------
 * Each appends the new form of s[0..n) to out. *lead: bytes at the start of s that stem from the
 * text's first character; then, of what was appended. */

/* One match, s[lo..hi), as the stage says: its content instead, or on its sides. */
static void put_one_replaced(mn_text *out, const mn_stage *stage, const char *s, size_t lo,
                             size_t hi) {
    const bool around = stage->left || stage->right;
    if (stage->left || !around)
        mn_text_put(out, stage->content, stage->content_len);
    if (around)
        mn_text_put(out, s + lo, hi - lo);
    if (stage->right)
        mn_text_put(out, stage->content, stage->content_len);
}

/* Each match in s by what put_one_replaced makes of it; what stands between stays. */
static mn_status stage_put_replaced(mn_text *out, mn_matcher *m, const mn_stage *stage,
                                    const char *s, size_t n, size_t *lead, mn_error *err) {
    const bool around = stage->left || stage->right;
    const size_t leads = *lead;
    size_t done = 0;
    size_t from = 0;
    *lead = 0;
    while (from <= n) {
        size_t lo = 0;
        size_t hi = 0;
        mn_status st = mn_matcher_next(m, s, n, from, &lo, &hi, err);
        if (st == MN_END)
            break;
        if (st)
            return st;
        mn_text_put(out, s + done, lo - done);
        const size_t mark = out->len;
        put_one_replaced(out, stage, s, lo, hi);
        /* What replaces a match stands where the match's last character stood. */
        *lead += MN_MIN(lo, leads) - MN_MIN(done, leads);
        if (around ? lo < leads : hi <= leads)
            *lead += out->len - mark;
        done = hi;
        from = stage_search_from(s, n, lo, hi);
    }
    mn_text_put(out, s + done, n - done);
    *lead += leads - MN_MIN(done, leads);
    return MN_OK;
}

static bool is_ascii(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= 0x80)
            return false;
    return true;
}

static mn_status put_decomposed(mn_text *out, const mn_stage *stage, const char *s, size_t n,
                                mn_error *err) {
    const utf8proc_uint8_t *u = (const utf8proc_uint8_t *)s;
    const utf8proc_option_t options = (utf8proc_option_t)stage->form;
    const utf8proc_ssize_t want = utf8proc_decompose(u, (utf8proc_ssize_t)n, NULL, 0, options);
    if (want < 0)
        return mn_fail(err, MN_BAD_INPUT, "normalising the text: %s", utf8proc_errmsg(want));
    utf8proc_int32_t *code = mn_alloc((size_t)want + 1, sizeof *code);
    if (!code)
        return mn_fail_memory(err, (uint64_t)want * sizeof *code);
    utf8proc_decompose(u, (utf8proc_ssize_t)n, code, want, options);
    const utf8proc_ssize_t bytes = utf8proc_reencode(code, want, options);
    if (bytes > 0)
        mn_text_put(out, (const char *)code, (size_t)bytes);
    mn_free(code);
    if (bytes < 0)
        return mn_fail(err, MN_BAD_INPUT, "normalising the text: %s", utf8proc_errmsg(bytes));
    return MN_OK;
}

/* What leads becomes what it would alone, or at least one character, which may have taken in marks
 * behind it. */
static size_t led_by(const mn_text *out, size_t mark, size_t alone) {
    const size_t made = out->len - mark;
    return MN_MIN(MN_MAX(alone, mn_char_length(out->ptr + mark, made)), made);
}

/* ASCII is the same in all four forms. */
static mn_status put_form(mn_text *out, const mn_stage *stage, const char *s, size_t n,
                          size_t *lead, mn_error *err) {
    const size_t mark = out->len;
    mn_text alone = {0};
    if (is_ascii(s, n)) {
        mn_text_put(out, s, n);
        return MN_OK;
    }
    mn_status st = put_decomposed(out, stage, s, n, err);
    if (!st && *lead)
        st = put_decomposed(&alone, stage, s, *lead, err);
    if (!st && *lead && !out->failed)
        *lead = led_by(out, mark, alone.len);
    out->failed |= alone.failed;
    mn_text_free(&alone);
    return st;
}

/* BERT drops the non-spacing marks alone, "StripAccents" all three categories. */
static bool stage_is_mark(uint32_t code, bool nonspacing) {
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)code);
    if (k == UTF8PROC_CATEGORY_MN)
        return true;
    return !nonspacing && (k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME);
}

static void stage_put_char(mn_text *out, const mn_stage *stage, uint32_t code) {
    char utf8[4];
    const bool lower = stage->kind == MN_STAGE_LOWER;
    if (stage->kind == MN_STAGE_UNMARK && stage_is_mark(code, stage->nonspacing))
        return;
    if (lower && code == 0x130) { // the one character that becomes two
        mn_text_puts(out, "i\xcc\x87");
        return;
    }
    if (lower)
        code = (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
    mn_text_put(out, utf8, (size_t)mn_utf8_encode(code, utf8));
}

/* LOWER, UNMARK: one character after the other. */
static void put_by_char(mn_text *out, const mn_stage *stage, const char *s, size_t n,
                        size_t *lead) {
    const size_t mark = out->len;
    const size_t leads = *lead;
    *lead = 0;
    for (size_t i = 0; i < n;) {
        uint32_t code = 0;
        const int len = mn_utf8_decode(s + i, n - i, &code);
        i += (size_t)MN_MAX(len, 1);
        if (len > 0)
            stage_put_char(out, stage, code);
        if (i <= leads)
            *lead = out->len - mark;
    }
}

bool mn_is_space(uint32_t c) {
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    const bool control = (c >= 9 && c <= 13) || c == 0x85;
    return control || k == UTF8PROC_CATEGORY_ZS || k == UTF8PROC_CATEGORY_ZL ||
           k == UTF8PROC_CATEGORY_ZP;
}

/* White space at the ends goes on the sides that the stage names. */
static void stage_put_stripped(mn_text *out, const mn_stage *stage, const char *s, size_t n,
                               size_t *lead) {
    size_t lo = n;
    size_t hi = 0;
    for (size_t i = 0; i < n;) {
        uint32_t code = 0;
        const size_t len = (size_t)MN_MAX(1, mn_utf8_decode(s + i, n - i, &code));
        if (!mn_is_space(code)) {
            lo = MN_MIN(lo, i);
            hi = i + len;
        }
        i += len;
    }
    if (!stage->left)
        lo = 0;
    if (!stage->right)
        hi = n;
    if (hi > lo)
        mn_text_put(out, s + lo, hi - lo);
    *lead = *lead > lo ? *lead - lo : 0;
}

/* Printable Latin-1 stands for itself, the other 68 bytes for U+0100 onwards, in order: OpenAI's
 * GPT-2, encoder.py. */
static bool byte_is_visible(uint32_t b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
}

uint32_t mn_byte_char(uint8_t byte) {
    const uint32_t b = byte;
    if (byte_is_visible(b))
        return b;
    if (b <= 0x20)
        return 0x100 + b;
    return b <= 0xa0 ? 0x100 + 33 + (b - 0x7f) : 0x143; // 0x7f..0xa0, then 0xad
}

int mn_byte_of_char(uint32_t code) {
    if (code < 0x100)
        return byte_is_visible(code) ? (int)code : -1;
    if (code <= 0x120)
        return (int)(code - 0x100);
    if (code <= 0x142)
        return (int)(code - 0x121 + 0x7f);
    return code == 0x143 ? 0xad : -1;
}

/* By chunks: most bytes become one or two, and a call for each would take longer than they do. */
static void stage_put_bytes(mn_text *out, const char *s, size_t n, size_t *lead) {
    const size_t leads = *lead;
    char chunk[512];
    size_t k = 0;
    for (size_t i = 0; i < leads; i++)
        *lead += mn_byte_char((uint8_t)s[i]) >= 0x80;
    for (size_t i = 0; i < n; i++) {
        k += (size_t)mn_utf8_encode(mn_byte_char((uint8_t)s[i]), chunk + k);
        if (k > sizeof chunk - 4) {
            mn_text_put(out, chunk, k);
            k = 0;
        }
    }
    mn_text_put(out, chunk, k);
}

/* A piece that begins with the content already may be left as it is. */
static void put_prepended(mn_text *out, const mn_stage *stage, const char *s, size_t n,
                          size_t *lead) {
    const size_t len = stage->content_len;
    const bool begins = n >= len && !memcmp(s, stage->content, len);
    const bool present = stage->unless_present && begins;
    if (!present && (*lead || !stage->only_first)) {
        mn_text_put(out, stage->content, len);
        if (*lead)
            *lead += len;
    }
    mn_text_put(out, s, n);
}

/* By SentencePiece's table of characters (charsmap.c). */
static void put_mapped(mn_text *out, const mn_stage *stage, const char *s, size_t n, size_t *lead) {
    const size_t mark = out->len;
    mn_text alone = {0};
    mn_charsmap_put(stage->charsmap, out, s, n);
    if (*lead)
        mn_charsmap_put(stage->charsmap, &alone, s, *lead);
    if (*lead && !out->failed)
        *lead = led_by(out, mark, alone.len);
    out->failed |= alone.failed;
    mn_text_free(&alone);
}

/* ---- running --------------------------------------------------------------------------------- */

/* One piece by a stage that is no SPLIT. */
static mn_status rewrite(mn_text *out, mn_matcher *m, const mn_stage *stage, const char *s,
                         size_t n, size_t *lead, mn_error *err) {
    switch (stage->kind) {
    case MN_STAGE_REPLACE:
        return stage_put_replaced(out, m, stage, s, n, lead, err);
    case MN_STAGE_PREPEND:
        put_prepended(out, stage, s, n, lead);
        break;
    case MN_STAGE_FORM:
        return put_form(out, stage, s, n, lead, err);
    case MN_STAGE_STRIP:
        stage_put_stripped(out, stage, s, n, lead);
        break;
    case MN_STAGE_BYTES:
        stage_put_bytes(out, s, n, lead);
        break;
    case MN_STAGE_LOWER:
    case MN_STAGE_UNMARK:
        put_by_char(out, stage, s, n, lead);
        break;
    case MN_STAGE_CHARSMAP:
        put_mapped(out, stage, s, n, lead);
        break;
    case MN_STAGE_SPLIT:
        break;
    }
    return MN_OK;
}

/* Rewrites each piece into the spare text; pieces that become empty are gone. */
static mn_status run_rewrite(const mn_stage *stage, mn_pieces *p, mn_error *err) {
    const size_t leads = p->lead;
    mn_matcher m;
    mn_status st = mn_matcher_init(&m, &stage->pattern, err);
    size_t kept = 0;
    p->lead = 0;
    p->spare.len = 0;
    for (size_t i = 0; !st && i < p->n; i++) {
        const mn_span s = p->span[i];
        const size_t off = p->spare.len;
        size_t lead = s.off < leads ? MN_MIN(leads - s.off, s.len) : 0;
        st = rewrite(&p->spare, &m, stage, p->text.ptr + s.off, s.len, &lead, err);
        if (lead)
            p->lead = off + lead;
        if (p->spare.len > off)
            p->span[kept++] = (mn_span){off, p->spare.len - off, false};
    }
    mn_matcher_free(&m);
    if (!st && p->spare.failed)
        st = mn_fail_memory(err, p->text.len);
    if (st)
        return st;
    const mn_text text = p->text;
    p->text = p->spare;
    p->spare = text;
    p->n = kept;
    return MN_OK;
}

mn_status mn_stages_run(const mn_stages *s, mn_pieces *p, mn_error *err) {
    mn_status st = MN_OK;
    for (size_t i = 0; !st && i < s->n; i++) {
        const mn_stage *stage = &s->stage[i];
        const bool cuts = stage->kind == MN_STAGE_SPLIT;
        st = cuts ? run_split(stage, p, err) : run_rewrite(stage, p, err);
    }
    return st;
}
