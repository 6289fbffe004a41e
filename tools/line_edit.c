/* line_edit.c -- the edited text (line_edit.h): begin and width of its characters, and the effect
 * of the usual Emacs keys.
 *
 * The text is UTF-8 with "\n" between lines; the line_edit owns it and the killed text. The
 * cursor is a byte offset, between two characters after each key that moves it. Characters are
 * grapheme clusters of utf8proc. Nothing is drawn here. */
#include "line_edit.h"
#include <string.h>
#include <utf8proc.h>

/* ---- characters ------------------------------------------------------------------------------ */
/* The code point at text, or -1 for a byte that begins none; *length its bytes. */
static utf8proc_int32_t code_point(const char *text, size_t n, size_t *length) {
    utf8proc_int32_t c = -1;
    utf8proc_ssize_t got =
        utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &c);
    *length = got > 0 ? (size_t)got : 1;
    return got > 0 ? c : -1;
}

size_t line_next(const char *text, size_t n, size_t at) {
    size_t length;
    utf8proc_int32_t state = 0, c = code_point(text + at, n - at, &length);
    at += length;
    while (c >= 0x20 && at < n) {
        utf8proc_int32_t next = code_point(text + at, n - at, &length);
        if (next < 0x20 || utf8proc_grapheme_break_stateful(c, next, &state))
            break;
        c = next;
        at += length;
    }
    return at;
}

static int code_width(utf8proc_int32_t c) {
    if (c == '\t')
        return 4;
    if (c >= 0 && (c < 0x20 || c == 127))
        return 2; // ^X
    if (c < 0xA0)
        return 1;
    int width = utf8proc_charwidth(c);
    // characters that are newer than utf8proc's tables: terminals show them in one column
    return width == 0 && utf8proc_category(c) == UTF8PROC_CATEGORY_CN ? 1 : width;
}

int line_width(const char *character, size_t n) {
    int width = 0;
    size_t length;
    for (size_t at = 0; at < n; at += length)
        width += code_width(code_point(character + at, n - at, &length));
    return width;
}

/* ---- positions ------------------------------------------------------------------------------- */
static size_t line_begin(const line_edit *e, size_t at) {
    while (at > 0 && e->text.ptr[at - 1] != '\n')
        at--;
    return at;
}

static size_t line_end(const line_edit *e, size_t at) {
    while (at < e->text.len && e->text.ptr[at] != '\n')
        at++;
    return at;
}

static size_t right(const line_edit *e, size_t at) {
    return at < e->text.len ? line_next(e->text.ptr, e->text.len, at) : at;
}

/* The begin of the character before at. Characters can only be found from the left: from the
 * begin of the line. */
static size_t left(const line_edit *e, size_t at) {
    size_t place = line_begin(e, at);
    if (place == at)
        return at ? at - 1 : 0;
    for (size_t next = right(e, place); next < at; next = right(e, place))
        place = next;
    return place;
}

/* 1: the character at `at` is a letter, mark or number. */
static int is_word(const line_edit *e, size_t at) {
    size_t length;
    utf8proc_int32_t c = code_point(e->text.ptr + at, e->text.len - at, &length);
    if (c < 0)
        return 1;
    utf8proc_category_t kind = utf8proc_category(c);
    return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NO;
}

static size_t word_right(const line_edit *e, size_t at) {
    while (at < e->text.len && !is_word(e, at))
        at = right(e, at);
    while (at < e->text.len && is_word(e, at))
        at = right(e, at);
    return at;
}

static size_t word_left(const line_edit *e, size_t at) {
    while (at > 0 && !is_word(e, left(e, at)))
        at = left(e, at);
    while (at > 0 && is_word(e, left(e, at)))
        at = left(e, at);
    return at;
}

/* The begin of the word before at, as Ctrl-W counts: words are separated by white space. */
static size_t blank_left(const line_edit *e, size_t at) {
    while (at > 0 && strchr(" \t\n", e->text.ptr[at - 1]))
        at--;
    while (at > 0 && !strchr(" \t\n", e->text.ptr[at - 1]))
        at--;
    return at;
}

/* Moves the cursor to the end of its character: inserted or cut text may join its neighbours. */
static void line_edit_settle(line_edit *e) {
    size_t place = line_begin(e, e->at);
    while (place < e->at)
        place = right(e, place);
    e->at = place;
}

/* ---- changes --------------------------------------------------------------------------------- */
void edit_insert(line_edit *e, const char *text, size_t n) {
    size_t before = e->text.len;
    mn_text_insert(&e->text, e->at, text, n);
    e->at += e->text.len - before;
}

void edit_replace(line_edit *e, const char *text, size_t n) {
    mn_text_clear(&e->text);
    mn_text_put(&e->text, text, n);
    e->at = e->text.len;
}

static void line_edit_cut(line_edit *e, size_t from, size_t to) {
    mn_text_remove(&e->text, from, to);
    e->at = from;
}

/* Cuts [from, to) to the killed text. Consecutive kills are joined, those to the left in front. */
static void kill(line_edit *e, size_t from, size_t to) {
    if (!e->killing)
        mn_text_clear(&e->killed);
    if (from < to)
        mn_text_insert(&e->killed, to <= e->at ? 0 : e->killed.len, e->text.ptr + from, to - from);
    line_edit_cut(e, from, to);
    e->killing = 2;
}

/* Ctrl-K: to the end of the line; at its end, the line end. */
static void kill_to_end(line_edit *e) {
    size_t to = line_end(e, e->at);
    kill(e, e->at, to == e->at ? right(e, to) : to);
}

/* Ctrl-T: swaps the characters before and at the cursor. */
static void transpose(line_edit *e) {
    size_t end = e->at;
    if (end == line_end(e, end) && end > 0)
        end = left(e, end);
    size_t middle = end, begin = left(e, middle);
    if (begin == middle || begin < line_begin(e, e->at))
        return;
    end = right(e, middle);
    mn_text first = {0};
    mn_text_put(&first, e->text.ptr + begin, middle - begin);
    line_edit_cut(e, begin, middle);
    e->at = begin + (end - middle);
    edit_insert(e, first.ptr, first.len);
    mn_text_free(&first);
}

/* Moves to the same column of the line above or below, counted in characters. 0: there is no
 * such line. */
static int vertical(line_edit *e, int down) {
    size_t begin = line_begin(e, e->at), end = line_end(e, e->at), column = 0;
    const int is_outermost = down ? end == e->text.len : begin == 0;
    if (is_outermost)
        return 0;
    for (size_t at = begin; at < e->at; at = right(e, at))
        column++;
    size_t to = down ? end + 1 : line_begin(e, begin - 1);
    for (size_t stop = line_end(e, to); column > 0 && to < stop; column--)
        to = right(e, to);
    e->at = to;
    return 1;
}

static int move_key(line_edit *e, int kind) {
    switch (kind) {
    case KEY_LEFT:
    case CTRL('B'):
        e->at = left(e, e->at);
        return 1;
    case KEY_RIGHT:
    case CTRL('F'):
        e->at = right(e, e->at);
        return 1;
    case KEY_HOME:
    case CTRL('A'):
        e->at = line_begin(e, e->at);
        return 1;
    case KEY_END:
    case CTRL('E'):
        e->at = line_end(e, e->at);
        return 1;
    case KEY_WORD_LEFT:
        e->at = word_left(e, e->at);
        return 1;
    case KEY_WORD_RIGHT:
        e->at = word_right(e, e->at);
        return 1;
    case KEY_UP:
    case CTRL('P'):
        return vertical(e, 0);
    case KEY_DOWN:
    case CTRL('N'):
        return vertical(e, 1);
    default:
        return 0;
    }
}

static int change_key(line_edit *e, int kind) {
    switch (kind) {
    case KEY_BACKSPACE:
    case CTRL('H'):
        line_edit_cut(e, left(e, e->at), e->at);
        return 1;
    case KEY_DELETE:
    case CTRL('D'):
        line_edit_cut(e, e->at, right(e, e->at));
        return 1;
    case CTRL('K'):
        kill_to_end(e);
        return 1;
    case CTRL('U'):
        kill(e, line_begin(e, e->at), e->at);
        return 1;
    case CTRL('W'):
        kill(e, blank_left(e, e->at), e->at);
        return 1;
    case KEY_KILL_WORD_LEFT:
        kill(e, word_left(e, e->at), e->at);
        return 1;
    case KEY_KILL_WORD:
        kill(e, e->at, word_right(e, e->at));
        return 1;
    case CTRL('Y'):
        edit_insert(e, e->killed.ptr, e->killed.len);
        return 1;
    case CTRL('T'):
        transpose(e);
        return 1;
    default:
        return 0;
    }
}

int edit_key(line_edit *e, const line_key *key) {
    e->killing = e->killing == 2;
    if (key->kind == KEY_TEXT || key->kind == KEY_NEWLINE) {
        const int text = key->kind == KEY_TEXT;
        edit_insert(e, text ? key->text : "\n", text ? key->n : 1);
        return 1;
    }
    line_edit_settle(e);
    return move_key(e, key->kind) || change_key(e, key->kind);
}

void edit_free(line_edit *e) {
    mn_text_free(&e->text);
    mn_text_free(&e->killed);
}
