/* table.h -- tables: aligned text, Markdown or CSV. */
#ifndef MINERVA_TABLE_H
#define MINERVA_TABLE_H
#include "out.h"
#include <stdint.h>

typedef enum { TABLE_PLAIN, TABLE_MARKDOWN, TABLE_CSV } table_style;
typedef struct {
    char **cells;
    size_t n_cols, n, cap;
    uint64_t right;
    int failed;
} table; /* row 0 is the heading */

/* columns: the headings, NULL-terminated; right: bit i set = column i is aligned to the right. */
void table_begin(table *t, const char *const *columns, uint64_t right);
void table_cell(table *t, const char *fmt, ...) MN_PRINTF(2, 3); /* fills row after row */
/* The beginning of a text, whole characters, at most `most` bytes on one line. */
void table_text(table *t, const char *text, size_t bytes, size_t most);
/* Memory that was short for a cell is an error of out. */
void table_print(const table *t, table_style style, out_file *out);
void table_free(table *t);

/* A table that is printed while it grows: table_widths raises width[n_cols] to the widths of the
 * cells so far; table_print_row prints one row, 0 = the heading. */
#define TABLE_MAX_COLUMNS 64
void table_widths(const table *t, int *width);
void table_print_row(const table *t, size_t row, table_style style, const int *width,
                     out_file *out);
size_t table_rows(const table *t); /* complete rows, with the heading */

/* "1.50 GiB", "512 B"; "1.10 B", "5.24 M": into dst, which is returned. */
const char *human_bytes(uint64_t bytes, char dst[32]);
const char *human_count(uint64_t count, char dst[32]);
#endif
