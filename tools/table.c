/* table.c -- collects cells and prints them as a table: aligned columns, Markdown or CSV.
 *
 * The table owns its cells, row by row, the heading first. A cell is one line: control
 * characters, which names and messages of plugins may hold, become blanks. Out of memory is
 * remembered (failed), and nothing is printed then. Interface: table.h. */
#include "table.h"
#include "utf8.h"
#include <inttypes.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Adds a malloc'ed cell, which the table owns from now on; NULL: out of memory. */
static void table_append(table *t, char *cell) {
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 64;
        char **grown = realloc(t->cells, cap * sizeof *grown);
        if (grown) {
            t->cells = grown;
            t->cap = cap;
        }
    }
    if (cell && t->n < t->cap) {
        t->cells[t->n++] = cell;
        return;
    }
    free(cell);
    t->failed = 1;
}

void table_begin(table *t, const char *const *columns, uint64_t right) {
    memset(t, 0, sizeof *t);
    t->right = right;
    for (; columns[t->n_cols] && !t->failed; t->n_cols++)
        table_append(t, strdup(columns[t->n_cols]));
}

void table_cell(table *t, const char *fmt, ...) {
    va_list args;
    char *cell = NULL;
    va_start(args, fmt);
    int n = vasprintf(&cell, fmt, args);
    va_end(args);
    for (char *c = cell; n >= 0 && *c; c++)
        if ((unsigned char)*c < 0x20)
            *c = ' ';
    table_append(t, n < 0 ? NULL : cell);
}

void table_text(table *t, const char *text, size_t bytes, size_t most) {
    char label[128];
    size_t n = 0;
    while (n < bytes) {
        const int length = mn_utf8_length(text + n, bytes - n);
        if (length == 0 || n + (size_t)length > most || n + (size_t)length + 4 > sizeof label)
            break;
        memcpy(label + n, text + n, (size_t)length);
        if (length == 1 && (label[n] < ' ' || label[n] == 127))
            label[n] = ' ';
        n += (size_t)length;
    }
    snprintf(label + n, sizeof label - n, "%s", n < bytes ? "..." : "");
    table_cell(t, "%s", label);
}

/* In characters, not bytes. */
static int width_of(const char *s) {
    int n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* Quoted if it holds a comma or a quote (RFC 4180). */
static void csv_cell(out_file *out, const char *s) {
    if (!strpbrk(s, ",\"")) {
        out_puts(out, s);
        return;
    }
    out_put(out, "\"", 1);
    for (; *s; s++) {
        if (*s == '"')
            out_put(out, "\"", 1);
        out_put(out, s, 1);
    }
    out_put(out, "\"", 1);
}

/* A cell with the blanks of its column; the last one has none behind it. */
static void padded(out_file *out, const char *s, int width, int right, int last) {
    int gap = width - width_of(s);
    if (right)
        out_printf(out, "%*s", gap, "");
    out_puts(out, s);
    if (!right && !last)
        out_printf(out, "%*s", gap, "");
}

/* Row 0 is the heading. */
static void print_row(const table *t, size_t row, table_style style, const int *width,
                      out_file *out) {
    const int markdown = style == TABLE_MARKDOWN;
    const char *before = markdown ? "| " : "";
    const char *between = markdown ? " | " : "  ";
    for (size_t c = 0; c < t->n_cols; c++) {
        const char *s = t->cells[row * t->n_cols + c];
        if (style == TABLE_CSV) {
            if (c)
                out_put(out, ",", 1);
            csv_cell(out, s);
            continue;
        }
        out_puts(out, c ? between : before);
        padded(out, s, width[c], t->right >> c & 1, !markdown && c + 1 == t->n_cols);
    }
    out_puts(out, markdown ? " |\n" : "\n");
}

/* The line of dashes below the heading of a Markdown table; a colon aligns right. */
static void print_rule(const table *t, const int *width, out_file *out) {
    for (size_t c = 0; c < t->n_cols; c++) {
        const int right = (int)(t->right >> c & 1);
        out_puts(out, c ? " | " : "| ");
        for (int i = 0; i < width[c] - right; i++)
            out_put(out, "-", 1);
        if (right)
            out_put(out, ":", 1);
    }
    out_puts(out, " |\n");
}

void table_widths(const table *t, int *width) {
    for (size_t i = 0; i < t->n; i++) {
        const int w = width_of(t->cells[i]);
        if (w > width[i % t->n_cols])
            width[i % t->n_cols] = w;
    }
}

size_t table_rows(const table *t) {
    return t->failed || t->n_cols == 0 || t->n_cols > TABLE_MAX_COLUMNS ? 0 : t->n / t->n_cols;
}

void table_print_row(const table *t, size_t row, table_style style, const int *width,
                     out_file *out) {
    print_row(t, row, style, width, out);
    if (row == 0 && style == TABLE_MARKDOWN)
        print_rule(t, width, out);
}

void table_print(const table *t, table_style style, out_file *out) {
    int width[TABLE_MAX_COLUMNS] = {0};
    const size_t n = table_rows(t);
    if (t->failed && !out->error)
        out->error = ENOMEM;
    if (n)
        table_widths(t, width);
    for (size_t row = 0; row < n; row++)
        table_print_row(t, row, style, width, out);
}

void table_free(table *t) {
    for (size_t i = 0; i < t->n; i++)
        free(t->cells[i]);
    free(t->cells);
    memset(t, 0, sizeof *t);
}

const char *human_bytes(uint64_t bytes, char dst[32]) {
    static const char *const unit[] = {"KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes / 1024;
    int u = 0;
    if (bytes < 1024) {
        snprintf(dst, 32, "%" PRIu64 " B", bytes);
        return dst;
    }
    for (; v >= 1024 && u < 3; u++)
        v /= 1024;
    snprintf(dst, 32, "%.2f %s", v, unit[u]);
    return dst;
}

const char *human_count(uint64_t count, char dst[32]) {
    static const char unit[] = "KMBT";
    double v = (double)count / 1000;
    int u = 0;
    if (count < 1000) {
        snprintf(dst, 32, "%" PRIu64, count);
        return dst;
    }
    for (; v >= 1000 && u < 3; u++)
        v /= 1000;
    snprintf(dst, 32, "%.2f %c", v, unit[u]);
    return dst;
}
