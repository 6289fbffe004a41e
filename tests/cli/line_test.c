/* line_test.c -- the parts of the line reader under random keys: whatever is typed, pasted or
 * resized, all bytes are used, the cursor stands between two characters and inside the terminal,
 * and nothing that was typed reaches the terminal as a control sequence. */
#include "line_edit.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define CHECK(ok)                                                                                  \
    do {                                                                                           \
        if (!(ok)) {                                                                               \
            fprintf(stderr, "line_test.c:%d: not so: %s (round %u)\n", __LINE__, #ok, round_now);  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static unsigned round_now;
static uint64_t state = 88172645463325252u;

static unsigned draw(unsigned n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 33) % n;
}

/* What terminals send, whole and broken. */
static const char *const pieces[] = {
    "a",
    "b ",
    "word",
    "  ",
    "\xC3\xA9",
    "\xE6\x97\xA5",
    "e\xCC\x81",
    "\xCC\x81",
    "\xF0\x9F\x91\x8D",
    "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7",
    "\xFF",
    "\xC3",
    "\xE6\x97",
    "\xED\xA0\x80",
    "\xC2\x9B",
    "\xE2\x80\xA8",
    "\033[A",
    "\033[B",
    "\033[C",
    "\033[D",
    "\033[H",
    "\033[F",
    "\033[3~",
    "\033[1;5C",
    "\033[1;5D",
    "\033b",
    "\033f",
    "\033d",
    "\033\x7f",
    "\033\r",
    "\033OA",
    "\033O",
    "\033[",
    "\033[1;",
    "\033[99;9x",
    "\033",
    "\033[200~",
    "\033[201~",
    "\033[200~a\r\nb\tc\033[31m\r",
    "\x01",
    "\x02",
    "\x04",
    "\x05",
    "\x06",
    "\x08",
    "\x0b",
    "\x0e",
    "\x10",
    "\x14",
    "\x15",
    "\x17",
    "\x19",
    "\x7f",
    "\t",
    "\x1d",
    "\xD8\xA7\xD9\x91",
    "\xE2\x9D\xA4\xEF\xB8\x8F",
    "0123456789",
    "\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E",
};

static int is_border(const line_edit *e) {
    size_t at = 0;
    while (at < e->at)
        at = e->text.ptr[at] == '\n' ? at + 1 : line_next(e->text.ptr, e->text.len, at);
    return at == e->at;
}

/* Sequences of the picture: ESC [ number letter; else no control characters but \r and \n. */
static void check_picture(const mn_text *out) {
    for (size_t i = 0; i < out->len; i++) {
        const unsigned char c = (unsigned char)out->ptr[i];
        if (c == 27) {
            CHECK(out->ptr[++i] == '[');
            do
                i++;
            while (strchr("0123456789", out->ptr[i]));
            CHECK(strchr("ABCJm", out->ptr[i]));
        } else {
            CHECK(c >= 32 || c == '\r' || c == '\n');
            CHECK(c != 127);
            CHECK(!(c == 0xC2 && (unsigned char)out->ptr[i + 1] < 0xA0));
        }
    }
}

static void check_view(const line_view *v) {
    CHECK(v->at_column >= 0 && v->at_column < v->columns);
    CHECK(v->at_row >= 0 && v->at_row < v->rows && v->at_row < v->n_drawn);
    for (int i = 0; i < v->n_drawn; i++)
        CHECK(v->widths[i] <= v->columns);
}

static void draw_picture(line_view *v, const line_edit *e) {
    mn_text out = {0};
    line_draw(v, "> ", (int)draw(2), e, &out);
    CHECK(!out.failed);
    check_picture(&out);
    check_view(v);
    mn_text_free(&out);
}

/* Keys until the bytes are used up, or the last one waits for more; *pasting goes along. */
static size_t type(line_edit *e, const mn_text *in, int no_more, int *pasting) {
    size_t at = 0;
    while (at < in->len) {
        line_key key;
        size_t used = line_key_of(in->ptr + at, in->len - at, *pasting, no_more, &key);
        CHECK(at + used <= in->len);
        CHECK(used || !no_more);
        if (!used)
            break;
        at += used;
        if (key.kind == KEY_PASTE_BEGIN || key.kind == KEY_PASTE_END)
            *pasting = key.kind == KEY_PASTE_BEGIN;
        edit_key(e, &key);
        if (key.kind >= KEY_LEFT && key.kind <= KEY_END)
            CHECK(is_border(e));
        CHECK(e->at <= e->text.len && !e->text.failed && !e->killed.failed);
    }
    return at;
}

static void play(unsigned n_pieces) {
    line_edit e = {0};
    line_view v = {0};
    mn_text in = {0};
    int pasting = 0;
    edit_replace(&e, "", 0);
    line_resize(&v, (int)draw(60), (int)draw(12));
    for (unsigned i = 0; i < n_pieces; i++) {
        mn_text_puts(&in, pieces[draw(COUNT(pieces))]);
        if (draw(2))
            continue; // the next one comes with it
        mn_text_remove(&in, 0, type(&e, &in, draw(3) == 0, &pasting));
        if (draw(9) == 0)
            line_resize(&v, (int)draw(60), (int)draw(12));
        draw_picture(&v, &e);
    }
    mn_text_free(&in);
    edit_free(&e);
    free(v.widths);
}

/* What is typed without marks and sequences arrives as it is, in pieces of any length. */
static void arrives(void) {
    static const char text[] = "a\xC3\xA9\xE6\x97\xA5\xF0\x9F\x91\x8D\xFF z\xC3";
    for (size_t cut = 0; cut < sizeof text; cut++) {
        line_edit e = {0};
        mn_text in = {0};
        int pasting = 0;
        edit_replace(&e, "", 0);
        mn_text_put(&in, text, cut);
        mn_text_remove(&in, 0, type(&e, &in, 0, &pasting));
        mn_text_put(&in, text + cut, sizeof text - 1 - cut);
        type(&e, &in, 1, &pasting);
        CHECK(e.text.len == sizeof text - 1 && memcmp(e.text.ptr, text, sizeof text - 1) == 0);
        CHECK(is_border(&e));
        mn_text_free(&in);
        edit_free(&e);
    }
}

int main(void) {
    arrives();
    for (round_now = 1; round_now <= 300; round_now++)
        play(20 + draw(200));
    puts("ok");
    return 0;
}
