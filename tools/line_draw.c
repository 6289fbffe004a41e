/* line_draw.c -- draws the edited text on a terminal (line_edit.h): breaks it into rows and makes
 * the control sequences.
 *
 * The rows are broken here, never by the terminal, so that the cursor's position is known for
 * characters of any width. If the text has more rows than the terminal, the rows around the
 * cursor are shown. Everything is drawn again over the last picture. The view belongs to line.c. */
#include "line_edit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes [begin, end) of the text from column on. */
typedef struct {
    size_t begin, end;
    int column, width; /* width: with what is left of column */
    int wrapped;       /* continues the line of the row before */
} row;

typedef struct {
    row *rows;
    int n, cap, failed;
    int at_row, at_column; /* the cursor */
} layout;

/* A new row; NULL: out of memory. */
static row *line_draw_add_row(layout *l, size_t begin, int column, int wrapped) {
    if (l->n == l->cap) {
        int cap = l->cap * 2 + 16;
        row *grown = realloc(l->rows, (size_t)cap * sizeof *grown);
        if (!grown) {
            l->failed = 1;
            return NULL;
        }
        l->rows = grown;
        l->cap = cap;
    }
    l->rows[l->n] = (row){begin, begin, column, column, wrapped};
    return &l->rows[l->n++];
}

/* The row of a new line of the text: an empty row after a full one is used for it. */
static row *line_draw_add_line(layout *l, row *r, size_t begin, int indent) {
    if (!r->wrapped || r->begin != r->end)
        return line_draw_add_row(l, begin, indent, 0);
    *r = (row){begin, begin, indent, indent, 0};
    return r;
}

/* Breaks the text into rows of at most `columns`. A full row ends at once, so that the cursor
 * always has a column. All lines begin at column `indent`, the width of the prompt. */
static void break_rows(layout *l, const line_edit *e, int indent, int columns) {
    const char *text = e->text.ptr;
    const size_t n = e->text.len;
    row *r = line_draw_add_row(l, 0, indent, 0);
    size_t at = 0, before = 0; // before: the begin of the character before at
    while (r) {
        const int is_character = at < n && text[at] != '\n';
        const size_t next = is_character ? line_next(text, n, at) : at;
        const int width = line_width(text + at, next - at);
        if (r->width + width > columns && r->width > 0)
            r = line_draw_add_row(l, at, 0, 1);
        if (r &&
            (at == e->at || (at > e->at && before < e->at))) { // a mark may join two characters
            l->at_row = l->n - 1;
            l->at_column = r->width;
        }
        if (!r || at == n)
            break;
        before = at;
        at = is_character ? next : at + 1;
        if (is_character) {
            r->end = at;
            r->width += width;
            if (r->width >= columns)
                r = line_draw_add_row(l, at, 0, 1);
        } else {
            r = line_draw_add_line(l, r, at, indent);
        }
    }
}

/* 1: a byte that is not UTF-8, or a control character of Latin-1. */
static int is_unprintable(const char *character, size_t n) {
    const unsigned char *c = (const unsigned char *)character;
    if (n == 1)
        return c[0] >= 0x80;
    return c[0] == 0xC2 && c[1] < 0xA0;
}

/* Appends text without control characters, which are shown as ^X: typed or pasted text must not
 * be a control sequence. */
static void line_draw_put_text(mn_text *out, const char *text, size_t n) {
    for (size_t at = 0; at < n;) {
        size_t next = line_next(text, n, at);
        unsigned char c = (unsigned char)text[at];
        char shown[3] = {'^', (char)(c ^ 0x40), 0};
        if (c == '\t')
            mn_text_puts(out, "    ");
        else if (c < 0x20 || c == 127)
            mn_text_puts(out, shown);
        else if (is_unprintable(text + at, next - at))
            mn_text_puts(out, "\xEF\xBF\xBD");
        else
            mn_text_put(out, text + at, next - at);
        at = next;
    }
}

static void put_move(mn_text *out, int count, char direction) {
    char sequence[24];
    if (count <= 0)
        return;
    snprintf(sequence, sizeof sequence, "\033[%d%c", count, direction);
    mn_text_puts(out, sequence);
}

/* Moves the shown rows no further than needed to show the cursor; their number. */
static int window(line_view *v, const layout *l) {
    int shown = l->n < v->rows ? l->n : v->rows;
    if (v->top > l->at_row)
        v->top = l->at_row;
    if (v->top < l->at_row - shown + 1)
        v->top = l->at_row - shown + 1;
    if (v->top > l->n - shown)
        v->top = l->n - shown;
    return shown;
}

/* Remembers the widths of the shown rows for line_resize. 0: out of memory. */
static int keep_widths(line_view *v, const layout *l, int shown) {
    if (shown > v->cap) {
        int *grown = realloc(v->widths, (size_t)shown * sizeof *grown);
        if (!grown)
            return 0;
        v->widths = grown;
        v->cap = shown;
    }
    for (int i = 0; i < shown; i++)
        v->widths[i] = l->rows[v->top + i].width;
    v->n_drawn = shown;
    return 1;
}

static void put_rows(const line_view *v, const layout *l, const char *prompt, int bold,
                     const line_edit *e, mn_text *out) {
    for (int i = 0; i < v->n_drawn; i++) {
        const row *r = &l->rows[v->top + i];
        if (i)
            mn_text_puts(out, "\r\n");
        if (v->top + i == 0) {
            mn_text_puts(out, bold ? "\033[1m" : "");
            mn_text_puts(out, prompt);
            mn_text_puts(out, bold ? "\033[0m" : "");
        } else {
            put_move(out, r->column, 'C');
        }
        line_draw_put_text(out, e->text.ptr + r->begin, r->end - r->begin);
    }
}

void line_draw(line_view *v, const char *prompt, int bold, const line_edit *e, mn_text *out) {
    layout l = {0};
    int indent = (int)strlen(prompt);
    if (v->columns < indent + 4)
        prompt = "";
    break_rows(&l, e, v->columns < indent + 4 ? 0 : indent, v->columns);
    int shown = l.failed ? 0 : window(v, &l);
    put_move(out, v->at_row, 'A');
    mn_text_puts(out, "\r\033[J");
    v->at_row = 0;
    if (!l.failed && keep_widths(v, &l, shown)) {
        put_rows(v, &l, prompt, bold, e, out);
        v->at_row = l.at_row - v->top;
        v->at_column = l.at_column;
        put_move(out, shown - 1 - v->at_row, 'A');
        mn_text_puts(out, "\r");
        put_move(out, v->at_column, 'C');
    }
    out->failed |= l.failed;
    free(l.rows);
}

void line_leave(line_view *v, mn_text *out) {
    put_move(out, v->n_drawn - 1 - v->at_row, 'B');
    mn_text_puts(out, "\r\n");
    v->at_row = 0;
    v->at_column = 0;
    v->top = 0;
    v->n_drawn = 0;
}

void line_resize(line_view *v, int columns, int rows) {
    v->columns = columns < 4 ? 80 : columns;
    v->rows = rows < 1 ? 24 : rows;
    int above = v->at_column / v->columns;
    for (int i = 0; i < v->at_row && i < v->n_drawn; i++)
        above += v->widths[i] > v->columns ? (v->widths[i] - 1) / v->columns + 1 : 1;
    v->at_row = above < v->rows ? above : v->rows - 1;
}
