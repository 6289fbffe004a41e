/* decoder.c -- the stages between a token's spelling and the text that it gives: a chain, each
 * stage handing on what it made of a token. A tokeniser owns its list of stages; each text that is
 * decoded has a state per stage (mn_decoder), so that texts can be decoded at the same time.
 *
 * A stage may hold something back until it knows what follows. Behind FUSE and BYTES there is one
 * token that never ends, and what arrives are parts of it. detokenizer.c makes whole characters of
 * the bytes that come out; json_decoder.c reads the stages of a tokenizer.json. */
#include "text/tokenizer/tokenizer_impl.h"
#include <string.h>

mn_status mn_decode_add(mn_decode_stages *s, mn_decode_kind kind, mn_str content,
                        mn_decode_stage **out, mn_error *err) {
    void *grown = s->stage;
    const bool ok = mn_grow(&grown, &s->cap, s->n + 1, sizeof *s->stage);
    s->stage = grown;
    if (!ok)
        return mn_fail_memory(err, sizeof *s->stage);
    mn_decode_stage *stage = &s->stage[s->n];
    *stage = (mn_decode_stage){.kind = kind, .fused = s->fused};
    stage->content = mn_strndup(content.ptr ? content.ptr : "", (size_t)content.len);
    if (!stage->content)
        return mn_fail_memory(err, content.len);
    stage->content_len = (size_t)content.len;
    s->n++;
    s->fused |= kind == MN_DECODE_FUSE || kind == MN_DECODE_BYTES;
    if (out)
        *out = stage;
    return MN_OK;
}

mn_status mn_decode_add_replace(mn_decode_stages *s, mn_str from, mn_str to, mn_error *err) {
    mn_decode_stage *stage = NULL;
    mn_status st = mn_decode_add(s, MN_DECODE_REPLACE, to, &stage, err);
    return st ? st : mn_regex_literal(&stage->pattern, from, err);
}

mn_status mn_decode_add_strip(mn_decode_stages *s, mn_str what, uint32_t left, uint32_t right,
                              mn_error *err) {
    mn_decode_stage *stage = NULL;
    mn_status st = mn_decode_add(s, MN_DECODE_STRIP, what, &stage, err);
    if (st)
        return st;
    stage->left = what.len ? left : 0;
    stage->right = what.len ? right : 0;
    return MN_OK;
}

/* Only spaces that are written U+2581 go at the start: neither the byte <0x20> nor a user's symbol
 * of spaces. */
mn_status mn_decode_sentencepiece(mn_decode_stages *s, uint32_t strip, mn_error *err) {
    const mn_str block = mn_str_of(MN_BLOCK);
    const mn_str none = mn_str_of("");
    mn_status st = mn_decode_add(s, MN_DECODE_FUSE, none, NULL, err);
    if (!st && strip)
        st = mn_decode_add_strip(s, block, strip, 0, err);
    if (!st)
        st = mn_decode_add_replace(s, block, mn_str_of(" "), err);
    return st ? st : mn_decode_add(s, MN_DECODE_FALLBACK, none, NULL, err);
}

void mn_decode_free(mn_decode_stages *s) {
    for (size_t i = 0; i < s->n; i++) {
        mn_regex_free(&s->stage[i].pattern);
        mn_free(s->stage[i].content);
    }
    mn_free(s->stage);
    memset(s, 0, sizeof *s);
}

/* ---- state ----------------------------------------------------------------------------------- */

bool mn_decoder_init(mn_decoder *d, const mn_decode_stages *stages) {
    d->stages = stages;
    d->state = mn_calloc(stages->n + 1, sizeof *d->state);
    return d->state != NULL;
}

void mn_decoder_free(mn_decoder *d) {
    for (size_t i = 0; d->state && i < d->stages->n; i++) {
        mn_text_free(&d->state[i].held);
        mn_text_free(&d->state[i].made);
    }
    mn_free(d->state);
}

void mn_decoder_start(mn_decoder *d, bool goes_on) {
    for (size_t i = 0; i < d->stages->n; i++) {
        mn_decode_state *s = &d->state[i];
        s->held.len = 0;
        s->made.len = 0;
        s->started = goes_on;
        s->left = goes_on ? 0 : d->stages->stage[i].left;
    }
}

/* ---- texts ----------------------------------------------------------------------------------- */

static bool decoder_begins(mn_str s, const char *what, size_t n) {
    return s.len >= n && !memcmp(s.ptr, what, n);
}

static mn_str decoder_behind(mn_str s, size_t n) {
    return (mn_str){s.ptr + n, s.len - n};
}

static mn_str all_of(const mn_text *t) {
    return (mn_str){t->ptr ? t->ptr : "", t->failed ? 0 : t->len};
}

static void decoder_put_str(mn_text *out, mn_str s) {
    mn_text_put(out, s.ptr, (size_t)s.len);
}

static void put_byte(mn_text *out, int byte) {
    const char c = (char)byte;
    mn_text_put(out, &c, 1);
}

static void drop_front(mn_text *t, size_t n) {
    if (t->failed || !n)
        return;
    memmove(t->ptr, t->ptr + n, t->len - n);
    t->len -= n;
}

/* The next place of what, which is not empty, in s; NULL = none. */
static const char *decoder_find(mn_str s, mn_str what) {
    return memmem(s.ptr, (size_t)s.len, what.ptr, (size_t)what.len);
}

/* s with each `from` (if it is not empty) replaced. */
static void put_literal(mn_text *out, mn_str s, mn_str from, mn_str to) {
    const char *at = from.len ? decoder_find(s, from) : NULL;
    for (; at; at = decoder_find(s, from)) {
        const size_t n = (size_t)(at - s.ptr);
        mn_text_put(out, s.ptr, n);
        decoder_put_str(out, to);
        s = decoder_behind(s, n + (size_t)from.len);
    }
    decoder_put_str(out, s);
}

/* ---- stages: each appends to s->made what it hands on ---------------------------------------- */

/* BYTES: visible characters back to bytes; a piece that holds another character was never byte-
 * coded and stands for itself. */
static void decoder_put_bytes(mn_text *out, mn_str piece) {
    const size_t mark = out->len;
    for (size_t i = 0; i < piece.len;) {
        uint32_t code = 0;
        const int n = mn_utf8_decode(piece.ptr + i, (size_t)piece.len - i, &code);
        const int byte = n > 0 ? mn_byte_of_char(code) : -1;
        if (byte < 0) {
            if (!out->failed)
                out->len = mark;
            decoder_put_str(out, piece);
            return;
        }
        put_byte(out, byte);
        i += (size_t)n;
    }
}

/* FALLBACK: the characters that the held bytes complete, at the end of a run all; a byte that can
 * belong to none gives a U+FFFD of its own. */
static void release_bytes(mn_decode_state *s, bool end) {
    const mn_str held = all_of(&s->held);
    const size_t n = (size_t)held.len;
    const size_t usable = end ? n : mn_utf8_complete(held.ptr, n);
    size_t i = 0;
    while (i < usable) {
        const size_t good = mn_utf8_check(held.ptr + i, usable - i);
        mn_text_put(&s->made, held.ptr + i, good);
        i += good;
        if (i == usable)
            break;
        mn_text_puts(&s->made, "\xef\xbf\xbd");
        i++;
    }
    drop_front(&s->held, i);
}

/* false: nothing yet, not even an empty token */
static bool put_fallback(mn_decode_state *s, const mn_decode_piece *p) {
    const bool is_byte = p->byte >= 0;
    if (is_byte)
        put_byte(&s->held, p->byte);
    release_bytes(s, !is_byte);
    if (!is_byte)
        decoder_put_str(&s->made, p->text);
    return !is_byte || s->made.len;
}

/* REPLACE with a regular expression, in a whole token. */
static void put_matches(mn_text *out, const mn_decode_stage *stage, mn_str s) {
    mn_matcher m;
    size_t done = 0;
    size_t from = 0;
    mn_status st = mn_matcher_init(&m, &stage->pattern, NULL);
    while (!st && from <= s.len) {
        size_t lo = 0;
        size_t hi = 0;
        st = mn_matcher_next(&m, s.ptr, (size_t)s.len, from, &lo, &hi, NULL);
        if (st)
            break;
        mn_text_put(out, s.ptr + done, lo - done);
        mn_text_put(out, stage->content, stage->content_len);
        done = hi;
        from = hi;
        if (hi == lo) // an empty match: on by a character
            from += MN_MAX(1, mn_char_length(s.ptr + hi, (size_t)s.len - hi));
    }
    decoder_put_str(out, decoder_behind(s, done));
    mn_matcher_free(&m);
    out->failed |= st && st != MN_END;
}

/* Bytes at the end of s that may begin `what`, which is longer. */
static size_t open_end(mn_str s, mn_str what) {
    size_t k = (size_t)MN_MIN(what.len - 1, s.len);
    for (; k > 0; k--) {
        const char *end = s.ptr + s.len - k;
        if (!memcmp(end, what.ptr, k))
            break;
    }
    return k;
}

/* How much of s is certain, whatever follows: its matches, and what cannot begin another. */
static size_t certain(mn_str s, mn_str from) {
    mn_str rest = s;
    if (!from.len)
        return (size_t)s.len;
    for (const char *at = decoder_find(rest, from); at; at = decoder_find(rest, from)) {
        const size_t n = (size_t)(at - rest.ptr);
        rest = decoder_behind(rest, n + (size_t)from.len);
    }
    return (size_t)s.len - open_end(rest, from);
}

static void put_replaced(const mn_decode_stage *stage, mn_decode_state *s,
                         const mn_decode_piece *p) {
    const char *literal = stage->pattern.literal;
    const mn_str from = {literal ? literal : "", literal ? stage->pattern.len : 0};
    const mn_str to = {stage->content, stage->content_len};
    if (stage->fused && !p->verbatim) { // a match may go on in the next part
        decoder_put_str(&s->held, p->text);
        mn_str held = all_of(&s->held);
        held.len = certain(held, from);
        put_literal(&s->made, held, from, to);
        drop_front(&s->held, (size_t)held.len);
        return;
    }
    decoder_put_str(&s->made, all_of(&s->held));
    s->held.len = 0;
    if (p->verbatim)
        decoder_put_str(&s->made, p->text);
    else if (stage->pattern.code)
        put_matches(&s->made, stage, p->text);
    else
        put_literal(&s->made, p->text, from, to);
}

/* STRIP: of a token, or of all that follows FUSE; what may be the end is held there. */
static void put_stripped(const mn_decode_stage *stage, mn_decode_state *s, mn_str text) {
    const size_t n = stage->content_len;
    if (!stage->fused)
        s->left = stage->left;
    for (; s->left && decoder_begins(text, stage->content, n); s->left--)
        text = decoder_behind(text, n);
    if (text.len)
        s->left = 0;
    decoder_put_str(&s->held, text);
    const mn_str held = all_of(&s->held);
    size_t keep = (size_t)held.len;
    for (uint32_t i = 0; i < stage->right && keep >= n; i++) {
        if (memcmp(held.ptr + keep - n, stage->content, n) != 0)
            break;
        keep -= n;
    }
    mn_text_put(&s->made, held.ptr, keep);
    drop_front(&s->held, keep);
    if (!stage->fused)
        s->held.len = 0;
}

/* In place, since nothing gets longer. */
static void decoder_shorten(mn_text *t, mn_str from, mn_str to) {
    const size_t gone = (size_t)(from.len - to.len);
    char *end = t->ptr + t->len;
    char *at = memmem(t->ptr, t->len, from.ptr, (size_t)from.len);
    while (at) {
        memcpy(at, to.ptr, (size_t)to.len);
        at += to.len;
        end -= gone;
        memmove(at, at + gone, (size_t)(end - at));
        at = memmem(at, (size_t)(end - at), from.ptr, (size_t)from.len);
    }
    t->len = (size_t)(end - t->ptr);
}

/* WORDPIECE: spaces that written English has not. */
static void clean_up(mn_text *t) {
    static const char *const table[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                           {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                           {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                           {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < MN_COUNT(table); i++)
        if (t->len && !t->failed)
            decoder_shorten(t, mn_str_of(table[i][0]), mn_str_of(table[i][1]));
}

static void decoder_put_word(const mn_decode_stage *stage, mn_decode_state *s, mn_str text) {
    const bool inside = decoder_begins(text, stage->content, stage->content_len);
    if (s->started && inside)
        text = decoder_behind(text, stage->content_len);
    else if (s->started)
        mn_text_puts(&s->made, " ");
    decoder_put_str(&s->made, text);
    if (stage->cleanup)
        clean_up(&s->made);
}

static void put_metaspace(const mn_decode_stage *stage, mn_decode_state *s,
                          const mn_decode_piece *p) {
    const mn_str space = mn_str_of(s->started ? " " : "");
    mn_str block = {stage->content, stage->content_len};
    if (p->verbatim)
        block.len = 0;
    put_literal(&s->made, p->text, block, space);
}

/* ---- the chain ------------------------------------------------------------------------------- */

/* false: nothing to hand on yet */
static bool decoder_make(const mn_decode_stage *stage, mn_decode_state *s,
                         const mn_decode_piece *p) {
    bool goes_on = true;
    switch (stage->kind) {
    case MN_DECODE_BYTES:
        if (p->plain)
            decoder_put_str(&s->made, p->text);
        else
            decoder_put_bytes(&s->made, p->text);
        break;
    case MN_DECODE_FALLBACK:
        goes_on = put_fallback(s, p);
        break;
    case MN_DECODE_FUSE:
        decoder_put_str(&s->made, p->text);
        break;
    case MN_DECODE_REPLACE:
        put_replaced(stage, s, p);
        break;
    case MN_DECODE_STRIP:
        put_stripped(stage, s, p->text);
        break;
    case MN_DECODE_METASPACE:
        put_metaspace(stage, s, p);
        break;
    case MN_DECODE_WORDPIECE:
        decoder_put_word(stage, s, p->text);
        break;
    }
    s->started |= !stage->fused;
    return goes_on;
}

/* What a stage still has when the text ends; false: nothing. */
static bool decoder_release(const mn_decode_stage *stage, mn_decode_state *s) {
    s->made.len = 0;
    if (stage->kind == MN_DECODE_FALLBACK)
        release_bytes(s, true);
    if (stage->kind == MN_DECODE_REPLACE)
        decoder_put_str(&s->made, all_of(&s->held));
    return s->made.len || s->made.failed;
}

/* A token through the stages from number k on; what comes out is appended. */
static bool push_from(mn_decoder *d, size_t k, mn_decode_piece p, mn_text *out) {
    for (; k < d->stages->n; k++) {
        mn_decode_state *s = &d->state[k];
        s->made.len = 0;
        const bool goes_on = decoder_make(&d->stages->stage[k], s, &p);
        if (s->made.failed || s->held.failed)
            return false;
        if (!goes_on)
            return true;
        p.text = all_of(&s->made);
        if (d->stages->stage[k].kind == MN_DECODE_FALLBACK)
            p.byte = -1;
    }
    decoder_put_str(out, p.text);
    return !out->failed;
}

bool mn_decoder_push(mn_decoder *d, mn_decode_piece p, mn_text *out) {
    return push_from(d, 0, p, out);
}

bool mn_decoder_finish(mn_decoder *d, mn_text *out) {
    bool ok = true;
    for (size_t k = 0; ok && k < d->stages->n; k++) {
        mn_decode_state *s = &d->state[k];
        if (!decoder_release(&d->stages->stage[k], s))
            continue;
        const mn_decode_piece last = {.text = all_of(&s->made), .byte = -1};
        ok = !s->made.failed && push_from(d, k + 1, last, out);
    }
    return ok;
}
