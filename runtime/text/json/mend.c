/* mend.c -- JSON that is nearly JSON (mend.h): each byte is looked at before the automaton of run.c
 * sees it, and that gets what stands in the output instead. So the output is JSON by construction,
 * and its open brackets are the automaton's. The state is plain data of its owner. */
#include "text/json/mend.h"
#include <stdio.h>
#include <string.h>

/* ---- what is made ---------------------------------------------------------------------------- */
static void mend_give(mn_text *out, const char *bytes, size_t n) {
    if (out)
        mn_text_put(out, bytes, n);
}

/* What is held is decided: it belongs to the value. */
static void give_held(mn_json_mend *m, mn_text *out) {
    mend_give(out, m->held, m->n_held);
    m->n_held = 0;
}

static void end_hold(mn_json_mend *m, mn_text *out) {
    give_held(m, out);
    m->holding = false;
    m->spilled = false;
}

static void begin_hold(mn_json_mend *m) {
    m->holding = true;
    m->spilled = false;
    m->n_held = 0;
}

/* The automaton takes a byte, which is given or held. */
static mn_json_step mend_take(mn_json_mend *m, char c, mn_text *out) {
    const mn_json_step step = mn_json_run_push(&m->run, c);
    if (step == MN_JSON_BAD)
        return step;
    if (!m->holding) {
        mend_give(out, &c, 1);
        return step;
    }
    if (m->n_held == sizeof m->held) {
        give_held(m, out);
        m->spilled = true;
    }
    m->held[m->n_held++] = c;
    return step;
}

static mn_json_step mend_take_all(mn_json_mend *m, const char *bytes, size_t n, mn_text *out) {
    mn_json_step step = MN_JSON_MORE;
    for (size_t i = 0; i < n && step != MN_JSON_BAD; i++)
        step = mend_take(m, bytes[i], out);
    return step;
}

/* ---- strings --------------------------------------------------------------------------------- */
/* A byte of a string as it is, or as an escape. */
static mn_json_step mend_put_char(mn_json_mend *m, char c, mn_text *out) {
    char code[8];
    if ((unsigned char)c >= 0x20)
        return mend_take(m, c, out);
    return mend_take_all(m, code, mn_json_escape((unsigned char)c, code), out);
}

/* What began like an escape is none: the backslash means itself. */
static mn_json_step spoil_escape(mn_json_mend *m, char c, mn_text *out) {
    mn_json_step step = mend_take_all(m, "\\\\", 2, out);
    for (uint8_t i = 1; i < m->n_escape && step != MN_JSON_BAD; i++)
        step = mend_put_char(m, m->escape[i], out);
    m->n_escape = 0;
    return step == MN_JSON_BAD ? step : mn_json_mend_push(m, c, out);
}

static mn_json_step mend_in_escape(mn_json_mend *m, char c, mn_text *out) {
    const bool letter = m->n_escape == 1;
    if (letter && m->single && c == '\'') {
        m->n_escape = 0;
        return mend_take(m, c, out);
    }
    const bool known = c && strchr("\"\\/bfnrtu", c);
    if (letter ? !known : mn_hex_digit(c) < 0)
        return spoil_escape(m, c, out);
    m->escape[m->n_escape++] = c;
    if (m->escape[1] == 'u' && m->n_escape < MN_JSON_MEND_ESCAPE)
        return MN_JSON_MORE;
    const uint8_t n = m->n_escape;
    m->n_escape = 0;
    return mend_take_all(m, m->escape, n, out);
}

static bool mend_in_word(char c) {
    const char low = (char)(c | 0x20);
    return (low >= 'a' && low <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static mn_json_step mend_in_string(mn_json_mend *m, char c, mn_text *out) {
    if (m->bare && !mend_in_word(c)) {
        m->bare = false;
        mend_take(m, '"', out);
        return mn_json_mend_push(m, c, out);
    }
    if (m->n_escape)
        return mend_in_escape(m, c, out);
    if (m->single && c == '"')
        return mend_take_all(m, "\\\"", 2, out);
    if (m->single && c == '\'') {
        m->single = false;
        return mend_take(m, '"', out);
    }
    if (c != '\\')
        return mend_put_char(m, c, out);
    m->escape[m->n_escape++] = c;
    return MN_JSON_MORE;
}

/* ---- between values -------------------------------------------------------------------------- */
/* A bracket behind a comma: the comma was too much. */
static bool ends_early(const mn_json_mend *m, char c) {
    const mn_json_state state = m->run.state;
    return (c == '}' || c == ']') && m->holding && !m->spilled && m->run.depth &&
           (state == MN_JSON_KEY || state == MN_JSON_VALUE) && m->held[0] == ',' &&
           m->run.is_object[m->run.depth - 1] == (c == '}') && (state == MN_JSON_KEY || c == ']');
}

static mn_json_step mend_begin_value(mn_json_mend *m, char c, mn_text *out) {
    if (!c || !strchr("{[\"-0123456789tfnTFN", c))
        return MN_JSON_BAD;
    end_hold(m, out);
    if (c == 'N') {
        m->skip = "one";
        return mend_take_all(m, "null", 4, out);
    }
    const mn_json_step step = mend_take(m, c == 'T' || c == 'F' ? (char)(c | 0x20) : c, out);
    if (step != MN_JSON_BAD && m->run.state == MN_JSON_FIRST_KEY)
        begin_hold(m);
    return step;
}

static bool is_value_next(mn_json_state state) {
    return state == MN_JSON_VALUE || state == MN_JSON_FIRST_VALUE;
}

mn_json_step mn_json_mend_push(mn_json_mend *m, char c, mn_text *out) {
    const mn_json_state state = m->run.state;
    if (m->skip && c == *m->skip) {
        m->skip = m->skip[1] ? m->skip + 1 : NULL;
        return MN_JSON_MORE;
    }
    m->skip = NULL;
    if (state == MN_JSON_STRING)
        return mend_in_string(m, c, out);
    if ((state == MN_JSON_KEY || state == MN_JSON_FIRST_KEY) && mend_in_word(c)) {
        m->bare = true;
        mend_take(m, '"', out);
        return mend_take(m, c, out);
    }
    if (c == '\'' && state <= MN_JSON_KEY) {
        m->single = true;
        c = '"';
    }
    if (ends_early(m, c)) {
        m->n_held = 0;
        m->holding = false;
        m->run.state = MN_JSON_AFTER;
        return mend_take(m, c, out);
    }
    if (is_value_next(state) && !mn_is_blank(c) && !(state == MN_JSON_FIRST_VALUE && c == ']'))
        return mend_begin_value(m, c, out);
    const bool begins = c == ',' && !m->holding;
    if (begins)
        begin_hold(m);
    const mn_json_step step = mend_take(m, c, out);
    if (begins && step == MN_JSON_BAD)
        m->holding = false;
    if (m->holding && (m->run.state == MN_JSON_AFTER || m->run.state == MN_JSON_DONE))
        end_hold(m, out);
    return step;
}

/* ---- the end --------------------------------------------------------------------------------- */
/* What the innermost value lacks, whose beginning has been given. */
static void close_value(const mn_json_mend *m, mn_text *out) {
    const mn_json_run *r = &m->run;
    switch (r->state) {
    case MN_JSON_VALUE:
        mend_give(out, "null", 4);
        break;
    case MN_JSON_KEY:
        mend_give(out, "\"\":null", 7);
        break;
    case MN_JSON_COLON:
        mend_give(out, ":null", 5);
        break;
    case MN_JSON_STRING:
        mend_give(out, r->in_key ? "\":null" : "\"", r->in_key ? 6 : 1);
        break;
    case MN_JSON_WORD:
        mend_give(out, r->word, strlen(r->word));
        break;
    case MN_JSON_MINUS:
    case MN_JSON_POINT:
    case MN_JSON_E:
    case MN_JSON_E_SIGN:
        mend_give(out, "0", 1);
        break;
    default:
        break;
    }
}

void mn_json_mend_close(mn_json_mend *m, mn_text *out) {
    mn_json_run *r = &m->run;
    const bool begun = r->depth || (r->state != MN_JSON_VALUE && r->state != MN_JSON_DONE);
    if (m->holding && m->spilled)
        give_held(m, out);
    if (begun && (!m->holding || m->spilled))
        close_value(m, out);
    m->n_held = 0;
    m->n_escape = 0;
    m->holding = false;
    while (r->depth) {
        r->depth--;
        mend_give(out, r->is_object[r->depth] ? "}" : "]", 1);
    }
    r->state = MN_JSON_DONE;
}
