/* run.c -- a JSON automaton (run.h): one state and a stack of what is open, so that a text which
 * comes in pieces is read once, in constant memory, and refused at its first wrong byte. The
 * grammar is that of RFC 8259. */
#include "text/json/run.h"
#include <string.h>

/* ---- values ---------------------------------------------------------------------------------- */
static mn_json_step go(mn_json_run *r, mn_json_state state) {
    r->state = state;
    return MN_JSON_MORE;
}

static mn_json_step end_value(mn_json_run *r) {
    if (r->depth)
        return go(r, MN_JSON_AFTER);
    r->state = MN_JSON_DONE;
    return MN_JSON_END;
}

static mn_json_step open(mn_json_run *r, bool object) {
    if (r->depth == MN_JSON_RUN_DEPTH)
        return MN_JSON_BAD;
    r->is_object[r->depth++] = object;
    return go(r, object ? MN_JSON_FIRST_KEY : MN_JSON_FIRST_VALUE);
}

static mn_json_step close(mn_json_run *r, char c) {
    const bool object = r->is_object[r->depth - 1];
    if (c != (object ? '}' : ']'))
        return MN_JSON_BAD;
    r->depth--;
    return end_value(r);
}

static mn_json_step begin_string(mn_json_run *r, bool key) {
    r->in_key = key;
    return go(r, MN_JSON_STRING);
}

static mn_json_step begin_word(mn_json_run *r, const char *rest) {
    r->word = rest;
    return go(r, MN_JSON_WORD);
}

static mn_json_step json_run_begin_value(mn_json_run *r, char c) {
    switch (c) {
    case '{':
        return open(r, true);
    case '[':
        return open(r, false);
    case '"':
        return begin_string(r, false);
    case 't':
        return begin_word(r, "rue");
    case 'f':
        return begin_word(r, "alse");
    case 'n':
        return begin_word(r, "ull");
    case '-':
        return go(r, MN_JSON_MINUS);
    case '0':
        return go(r, MN_JSON_ZERO);
    default:
        return mn_is_digit(c) ? go(r, MN_JSON_DIGITS) : MN_JSON_BAD;
    }
}

/* ---- between values -------------------------------------------------------------------------- */
static mn_json_step after_value(mn_json_run *r, char c) {
    if (c != ',')
        return close(r, c);
    return go(r, r->is_object[r->depth - 1] ? MN_JSON_KEY : MN_JSON_VALUE);
}

static mn_json_step structure(mn_json_run *r, char c) {
    if (mn_is_blank(c))
        return MN_JSON_MORE;
    switch (r->state) {
    case MN_JSON_VALUE:
        return json_run_begin_value(r, c);
    case MN_JSON_FIRST_VALUE:
        return c == ']' ? close(r, c) : json_run_begin_value(r, c);
    case MN_JSON_FIRST_KEY:
        if (c == '}')
            return close(r, c);
        return c == '"' ? begin_string(r, true) : MN_JSON_BAD;
    case MN_JSON_KEY:
        return c == '"' ? begin_string(r, true) : MN_JSON_BAD;
    case MN_JSON_COLON:
        return c == ':' ? go(r, MN_JSON_VALUE) : MN_JSON_BAD;
    default:
        return after_value(r, c);
    }
}

/* ---- inside of values ------------------------------------------------------------------------ */
static mn_json_step json_run_in_string(mn_json_run *r, char c) {
    if (c == '\\')
        return go(r, MN_JSON_ESCAPE);
    if (c != '"')
        return (unsigned char)c < 0x20 ? MN_JSON_BAD : MN_JSON_MORE;
    return r->in_key ? go(r, MN_JSON_COLON) : end_value(r);
}

static mn_json_step in_escape(mn_json_run *r, char c) {
    if (c == 'u') {
        r->at = 0;
        return go(r, MN_JSON_HEX);
    }
    return c && strchr("\"\\/bfnrt", c) ? go(r, MN_JSON_STRING) : MN_JSON_BAD;
}

static mn_json_step in_hex(mn_json_run *r, char c) {
    if (mn_hex_digit(c) < 0)
        return MN_JSON_BAD;
    r->at++;
    return r->at == 4 ? go(r, MN_JSON_STRING) : MN_JSON_MORE;
}

static mn_json_step json_run_in_word(mn_json_run *r, char c) {
    if (c != *r->word)
        return MN_JSON_BAD;
    r->word++;
    return *r->word ? MN_JSON_MORE : end_value(r);
}

/* Where a character of a number leads; MN_JSON_DONE: it is none of this one. */
static mn_json_state in_number(mn_json_state state, char c) {
    const bool digit = mn_is_digit(c);
    const bool e = c == 'e' || c == 'E';
    switch (state) {
    case MN_JSON_MINUS:
        if (c == '0')
            return MN_JSON_ZERO;
        return digit ? MN_JSON_DIGITS : MN_JSON_DONE;
    case MN_JSON_ZERO:
    case MN_JSON_DIGITS:
        if (digit && state == MN_JSON_DIGITS)
            return MN_JSON_DIGITS;
        if (c == '.')
            return MN_JSON_POINT;
        return e ? MN_JSON_E : MN_JSON_DONE;
    case MN_JSON_POINT:
        return digit ? MN_JSON_FRACTION : MN_JSON_DONE;
    case MN_JSON_FRACTION:
        if (digit)
            return MN_JSON_FRACTION;
        return e ? MN_JSON_E : MN_JSON_DONE;
    case MN_JSON_E:
        if (c == '+' || c == '-')
            return MN_JSON_E_SIGN;
        return digit ? MN_JSON_E_DIGITS : MN_JSON_DONE;
    default:
        return digit ? MN_JSON_E_DIGITS : MN_JSON_DONE;
    }
}

static bool ends_number(mn_json_state state) {
    return state == MN_JSON_ZERO || state == MN_JSON_DIGITS || state == MN_JSON_FRACTION ||
           state == MN_JSON_E_DIGITS;
}

static mn_json_step json_run_number(mn_json_run *r, char c) {
    const mn_json_state next = in_number(r->state, c);
    if (next != MN_JSON_DONE)
        return go(r, next);
    if (!ends_number(r->state) || !r->depth)
        return MN_JSON_BAD;
    r->state = MN_JSON_AFTER;
    return structure(r, c);
}

mn_json_step mn_json_run_push(mn_json_run *r, char c) {
    switch (r->state) {
    case MN_JSON_STRING:
        return json_run_in_string(r, c);
    case MN_JSON_ESCAPE:
        return in_escape(r, c);
    case MN_JSON_HEX:
        return in_hex(r, c);
    case MN_JSON_WORD:
        return json_run_in_word(r, c);
    case MN_JSON_DONE:
        return MN_JSON_BAD;
    default:
        return r->state >= MN_JSON_MINUS ? json_run_number(r, c) : structure(r, c);
    }
}

bool mn_json_run_whole(const mn_json_run *r) {
    return r->state == MN_JSON_DONE || (!r->depth && ends_number(r->state));
}

/* ---- strings without escapes ----------------------------------------------------------------- */
/* A code unit of \u: half a pair waits for the other one. */
static int put_unit(mn_json_chars *s, uint32_t unit, char out[8]) {
    const uint32_t high = s->high;
    const bool low = unit >= 0xdc00 && unit < 0xe000;
    s->high = unit >= 0xd800 && unit < 0xdc00 ? unit : 0;
    if (high && low)
        return mn_utf8_encode(0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00), out);
    int n = high ? mn_utf8_encode(0xfffd, out) : 0;
    if (!s->high)
        n += mn_utf8_encode(low ? 0xfffd : unit, out + n);
    return n;
}

/* A character that no escape made. */
static int put_plain(mn_json_chars *s, char c, char out[8]) {
    int n = s->high ? mn_utf8_encode(0xfffd, out) : 0;
    s->high = 0;
    out[n] = c;
    return n + 1;
}

static int json_run_put_escape(mn_json_chars *s, char c, char out[8]) {
    static const char letters[] = "bfnrt";
    static const char means[] = "\b\f\n\r\t";
    const char *letter = strchr(letters, c);
    s->escape = false;
    if (c == 'u') {
        s->left = 4;
        s->code = 0;
        return 0;
    }
    return put_plain(s, letter && c ? means[letter - letters] : c, out);
}

int mn_json_chars_push(mn_json_chars *s, char c, char out[8]) {
    if (s->left) {
        s->code = s->code << 4 | (uint32_t)mn_hex_digit(c);
        s->left--;
        return s->left ? 0 : put_unit(s, s->code, out);
    }
    if (s->escape)
        return json_run_put_escape(s, c, out);
    if (c != '\\')
        return put_plain(s, c, out);
    s->escape = true;
    return 0;
}
