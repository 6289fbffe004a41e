/* decoder.c -- the steps between a token's spelling and the text that it gives: a chain,
 * each step handing on what it made of a token. A step may hold something back until it knows what
 * follows. Behind FUSE and BYTES there is one token that never ends, and what arrives are parts of
 * it. */
#include "text/tokenizer/tokenizer_impl.h"
#include <string.h>

mn_status mn_decode_add(mn_decode_steps *s, mn_decode_kind kind, mn_str content,
                        mn_decode_step **out, mn_error *err) {
    void *grown = s->step;
    bool ok = mn_grow(&grown, &s->cap, s->n + 1, sizeof *s->step);
    s->step = grown;
    if (!ok)
        return mn_fail_memory(err, sizeof *s->step);
    mn_decode_step *step = &s->step[s->n];
    *step = (mn_decode_step){.kind = kind, .fused = s->fused};
    step->content = mn_strndup(content.ptr ? content.ptr : "", (size_t)content.len);
    if (!step->content)
        return mn_fail_memory(err, content.len);
    step->content_len = (size_t)content.len;
    s->n++;
    s->fused |= kind == MN_DECODE_FUSE || kind == MN_DECODE_BYTES;
    if (out)
        *out = step;
    return MN_OK;
}

mn_status mn_decode_add_replace(mn_decode_steps *s, mn_str from, mn_str to, mn_error *err) {
    mn_decode_step *step = NULL;
    mn_status st = mn_decode_add(s, MN_DECODE_REPLACE, to, &step, err);
    return st ? st : mn_pattern_literal(&step->pattern, from, err);
}

mn_status mn_decode_add_strip(mn_decode_steps *s, mn_str what, uint32_t left, uint32_t right,
                              mn_error *err) {
    mn_decode_step *step = NULL;
    mn_status st = mn_decode_add(s, MN_DECODE_STRIP, what, &step, err);
    if (st)
        return st;
    step->left = what.len ? left : 0;
    step->right = what.len ? right : 0;
    return MN_OK;
}

/* Only spaces that are written U+2581 go at the start: neither the byte <0x20> nor a user's symbol
 * of spaces. */
mn_status mn_decode_sentencepiece(mn_decode_steps *s, uint32_t strip, mn_error *err) {
    const mn_str block = mn_str_of(MN_BLOCK), none = mn_str_of("");
    mn_status st = mn_decode_add(s, MN_DECODE_FUSE, none, NULL, err);
    if (!st && strip)
        st = mn_decode_add_strip(s, block, strip, 0, err);
    if (!st)
        st = mn_decode_add_replace(s, block, mn_str_of(" "), err);
    return st ? st : mn_decode_add(s, MN_DECODE_FALLBACK, none, NULL, err);
}

void mn_decode_free(mn_decode_steps *s) {
    for (size_t i = 0; i < s->n; i++) {
        mn_pattern_free(&s->step[i].pattern);
        mn_free(s->step[i].content);
        mn_free(s->step[i].extra);
    }
    mn_free(s->step);
    memset(s, 0, sizeof *s);
}

/* ---- state ----------------------------------------------------------------------------------- */
bool mn_decoder_init(mn_decoder *d, const mn_decode_steps *steps) {
    d->steps = steps;
    d->state = mn_calloc(steps->n + 1, sizeof *d->state);
    return d->state != NULL;
}

void mn_decoder_free(mn_decoder *d) {
    for (size_t i = 0; d->state && i < d->steps->n; i++) {
        mn_text_free(&d->state[i].held);
        mn_text_free(&d->state[i].made);
    }
    mn_free(d->state);
}

void mn_decoder_start(mn_decoder *d, bool goes_on) {
    for (size_t i = 0; i < d->steps->n; i++) {
        mn_decode_state *s = &d->state[i];
        s->held.len = s->made.len = 0;
        s->holds = false;
        s->started = goes_on;
        s->left = goes_on ? 0 : d->steps->step[i].left;
    }
}

/* ---- steps: each appends to s->made what it hands on; false: nothing yet, not even an empty token
 * ---- */
static bool begins(mn_str s, const char *what, size_t n) {
    return s.len >= n && !memcmp(s.ptr, what, n);
}
static mn_str all_of(const mn_text *t) {
    return (mn_str){t->ptr ? t->ptr : "", t->failed ? 0 : t->len};
}

static void put_str(mn_text *out, mn_str s) {
    mn_text_put(out, s.ptr, (size_t)s.len);
}

static void drop_front(mn_text *t, size_t n) {
    if (t->failed || !n)
        return;
    memmove(t->ptr, t->ptr + n, t->len - n);
    t->len -= n;
}

/* Visible characters back to bytes; a piece that holds another character was never byte-coded and
 * stands for itself. */
static void put_bytes(mn_text *out, mn_str piece) {
    uint32_t code = 0;
    size_t mark = out->len;
    for (size_t i = 0; i < piece.len;) {
        int n = mn_utf8_decode(piece.ptr + i, (size_t)piece.len - i, &code);
        int byte = n > 0 ? mn_byte_of_char(code) : -1;
        if (byte < 0) {
            if (!out->failed)
                out->len = mark;
            put_str(out, piece);
            return;
        }
        mn_text_put(out, &(char){(char)byte}, 1);
        i += (size_t)n;
    }
}

/* Characters that the held bytes complete; a byte that can belong to none gives a mark of its
 * own. */
static void release_bytes(mn_decode_state *s, bool end) {
    const mn_str held = all_of(&s->held);
    const size_t usable = end ? (size_t)held.len : mn_utf8_complete(held.ptr, (size_t)held.len);
    size_t i = 0;
    while (i < usable) {
        const size_t good = mn_utf8_check(held.ptr + i, usable - i);
        mn_text_put(&s->made, held.ptr + i, good);
        i += good;
        if (i < usable)
            mn_text_puts(&s->made, "\xef\xbf\xbd"), i++;
    }
    drop_front(&s->held, i);
}

static bool put_fallback(mn_decode_state *s, const mn_decode_piece *p) {
    if (p->byte >= 0)
        mn_text_put(&s->held, &(char){(char)p->byte}, 1);
    release_bytes(s, p->byte < 0);
    if (p->byte < 0)
        put_str(&s->made, p->text);
    return p->byte < 0 || s->made.len;
}

static void put_literal(mn_text *out, mn_str s, mn_str from, mn_str to) {
    const char *at = NULL;
    while (from.ptr && from.len &&
           (at = memmem(s.ptr, (size_t)s.len, from.ptr, (size_t)from.len))) {
        const uint64_t n = (uint64_t)(at - s.ptr);
        mn_text_put(out, s.ptr, (size_t)n);
        put_str(out, to);
        s = (mn_str){at + from.len, s.len - n - from.len};
    }
    put_str(out, s);
}

static void put_matches(mn_text *out, const mn_decode_step *step, mn_str s) {
    mn_matcher m;
    size_t done = 0, from = 0, lo = 0, hi = 0;
    mn_status st = mn_matcher_init(&m, &step->pattern, NULL);
    while (!st && from <= s.len &&
           !(st = mn_matcher_next(&m, s.ptr, (size_t)s.len, from, &lo, &hi, NULL))) {
        mn_text_put(out, s.ptr + done, lo - done);
        mn_text_put(out, step->content, step->content_len);
        done = hi;
        from = hi > lo ? hi : hi + MN_MAX(1, mn_char_length(s.ptr + hi, (size_t)s.len - hi));
    }
    mn_text_put(out, s.ptr + done, (size_t)s.len - done);
    mn_matcher_free(&m);
    out->failed |= st && st != MN_END;
}

/* How much of s is certain, whatever follows: its matches, and what cannot begin another. */
static size_t certain(mn_str s, mn_str from) {
    mn_str rest = s;
    const char *at = NULL;
    while (from.len && (at = memmem(rest.ptr, (size_t)rest.len, from.ptr, (size_t)from.len)))
        rest = (mn_str){at + from.len, rest.len - (uint64_t)(at - rest.ptr) - from.len};
    for (size_t k = from.len ? (size_t)MN_MIN(from.len - 1, rest.len) : 0; k > 0; k--)
        if (!memcmp(rest.ptr + rest.len - k, from.ptr, k))
            return (size_t)s.len - k;
    return (size_t)s.len;
}

static void put_replaced(const mn_decode_step *step, mn_decode_state *s, const mn_decode_piece *p) {
    const mn_str from = {step->pattern.literal ? step->pattern.literal : "", step->pattern.len},
                 to = {step->content, step->content_len};
    if (step->fused && !p->verbatim) { /* a match may go on in the next part */
        put_str(&s->held, p->text);
        mn_str held = all_of(&s->held);
        held.len = certain(held, from);
        put_literal(&s->made, held, from, to);
        drop_front(&s->held, (size_t)held.len);
        return;
    }
    put_str(&s->made, all_of(&s->held));
    s->held.len = 0;
    if (p->verbatim)
        put_str(&s->made, p->text);
    else if (step->pattern.code)
        put_matches(&s->made, step, p->text);
    else
        put_literal(&s->made, p->text, from, to);
}

static void put_stripped(const mn_decode_step *step, mn_decode_state *s, mn_str text) {
    const size_t n = step->content_len;
    if (!step->fused)
        s->left = step->left;
    for (; s->left && begins(text, step->content, n); s->left--)
        text.ptr += n, text.len -= n;
    if (text.len)
        s->left = 0;
    put_str(&s->held, text);
    const mn_str held = all_of(&s->held);
    size_t keep = (size_t)held.len; /* what may be the end stays */
    for (uint32_t i = 0;
         i < step->right && keep >= n && !memcmp(held.ptr + keep - n, step->content, n); i++)
        keep -= n;
    mn_text_put(&s->made, held.ptr, keep);
    drop_front(&s->held, keep);
    if (!step->fused)
        s->held.len = 0;
}

/* In place; to is not longer. */
static void replace_in(mn_text *t, const char *from, const char *to) {
    const size_t n = strlen(from), m = strlen(to);
    char *at = t->ptr;
    while (n && t->len && !t->failed &&
           (at = memmem(at, t->len - (size_t)(at - t->ptr), from, n))) {
        memcpy(at, to, m);
        memmove(at + m, at + n, t->len - (size_t)(at + n - t->ptr));
        t->len -= n - m;
        at += m;
    }
}

/* Spaces that written English has not. */
static void clean_up(mn_text *t) {
    static const char *const table[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                           {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                           {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                           {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < MN_COUNT(table); i++)
        replace_in(t, table[i][0], table[i][1]);
}

static void put_word(const mn_decode_step *step, mn_decode_state *s, mn_str text) {
    if (s->started && begins(text, step->content, step->content_len))
        text.ptr += step->content_len, text.len -= step->content_len;
    else if (s->started)
        mn_text_puts(&s->made, " ");
    put_str(&s->made, text);
    if (step->cleanup)
        clean_up(&s->made);
}

/* The token before this one goes on, with a space for its suffix, or at the end nothing. */
static bool put_ended(const mn_decode_step *step, mn_decode_state *s, const char *instead) {
    if (s->holds)
        put_literal(&s->made, all_of(&s->held), (mn_str){step->content, step->content_len},
                    mn_str_of(instead));
    return s->holds;
}

static void hold(mn_decode_state *s, const mn_decode_piece *p) {
    s->holds = true;
    s->verbatim = p->verbatim;
    s->plain = p->plain;
    s->held.len = 0;
    put_str(&s->held, p->text);
}

/* Of tokens that repeat, one counts. */
static bool put_ctc(const mn_decode_step *step, mn_decode_state *s, const mn_decode_piece *p) {
    if (s->holds && mn_str_eq(all_of(&s->held), p->text))
        return false;
    hold(s, p);
    put_literal(&s->made, p->text, (mn_str){step->content, step->content_len}, mn_str_of(""));
    if (step->cleanup) {
        clean_up(&s->made);
        replace_in(&s->made, step->extra, " ");
    }
    return s->made.len;
}

/* next: what goes on is a part of; it may be the token before. */
static bool make(const mn_decode_step *step, mn_decode_state *s, const mn_decode_piece *p,
                 mn_decode_piece *next) {
    const mn_str content = {step->content, step->content_len};
    bool goes_on = true;
    switch (step->kind) {
    case MN_DECODE_BYTES:
        p->plain ? put_str(&s->made, p->text) : put_bytes(&s->made, p->text);
        break;
    case MN_DECODE_FALLBACK:
        goes_on = put_fallback(s, p);
        break;
    case MN_DECODE_FUSE:
        put_str(&s->made, p->text);
        break;
    case MN_DECODE_REPLACE:
        put_replaced(step, s, p);
        break;
    case MN_DECODE_STRIP:
        put_stripped(step, s, p->text);
        break;
    case MN_DECODE_METASPACE:
        put_literal(&s->made, p->text, p->verbatim ? mn_str_of("") : content,
                    mn_str_of(s->started ? " " : ""));
        break;
    case MN_DECODE_WORDS:
        put_word(step, s, p->text);
        break;
    case MN_DECODE_SUFFIX:
        goes_on = put_ended(step, s, " ");
        next->verbatim = s->verbatim, next->plain = s->plain;
        hold(s, p);
        break;
    case MN_DECODE_CTC:
        goes_on = put_ctc(step, s, p);
        break;
    }
    s->started |= !step->fused;
    return goes_on;
}

/* What a step still has when the text ends; false: nothing. */
static bool release(const mn_decode_step *step, mn_decode_state *s) {
    s->made.len = 0;
    switch (step->kind) {
    case MN_DECODE_FALLBACK:
        release_bytes(s, true);
        break;
    case MN_DECODE_REPLACE:
        put_str(&s->made, all_of(&s->held));
        break;
    case MN_DECODE_SUFFIX:
        put_ended(step, s, "");
        break;
    default:
        break;
    }
    return s->made.len || s->made.failed;
}

static bool push_from(mn_decoder *d, size_t k, mn_decode_piece p, mn_text *out) {
    for (; k < d->steps->n; k++) {
        mn_decode_state *s = &d->state[k];
        s->made.len = 0;
        mn_decode_piece next = p;
        const bool goes_on = make(&d->steps->step[k], s, &p, &next);
        if (s->made.failed || s->held.failed)
            return false;
        if (!goes_on)
            return true;
        p = next;
        p.text = all_of(&s->made);
        if (d->steps->step[k].kind == MN_DECODE_FALLBACK)
            p.byte = -1;
    }
    put_str(out, p.text);
    return !out->failed;
}

bool mn_decoder_push(mn_decoder *d, mn_decode_piece p, mn_text *out) {
    return push_from(d, 0, p, out);
}

bool mn_decoder_finish(mn_decoder *d, mn_text *out) {
    bool ok = true;
    for (size_t k = 0; ok && k < d->steps->n; k++)
        if (release(&d->steps->step[k], &d->state[k])) {
            const mn_decode_state *s = &d->state[k];
            mn_decode_piece last = {all_of(&s->made), s->holds && s->verbatim, s->holds && s->plain,
                                    -1};
            ok = !s->made.failed && push_from(d, k + 1, last, out);
        }
    return ok;
}
