/* args.c -- see args.h. */
#include "args.h"
#include "out.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAMES 128

/* ---- values ---------------------------------------------------------------------------------- */
int parse_int(const char *s, size_t n, int64_t *out) {
    char buf[32], *end;
    size_t i = n > 0 && (s[0] == '-' || s[0] == '+');
    if (n >= sizeof buf || i == n)
        return 0;
    for (; i < n; i++)
        if (s[i] < '0' || s[i] > '9')
            return 0;
    memcpy(buf, s, n);
    buf[n] = 0;
    errno = 0;
    long long v = strtoll(buf, &end, 10);
    *out = v;
    return errno == 0 && *end == 0;
}

static int parse_float(const char *s, double *out) {
    char *end;
    if (!*s || s[strspn(s, "+-.0123456789eE")])
        return 0;
    errno = 0;
    *out = strtod(s, &end);
    return *end == 0 && isfinite(*out);
}

static int parse_seed(const char *s, uint64_t *out) {
    char *end;
    if (!*s || s[strspn(s, "0123456789")])
        return 0;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    *out = v;
    return errno == 0 && *end == 0;
}

static int parse_choice(const char *choices, const char *s, int *out) {
    size_t n = strlen(s);
    for (int i = 0;; i++) {
        size_t len = strcspn(choices, "|");
        if (len == n && memcmp(choices, s, n) == 0) {
            *out = i;
            return 1;
        }
        if (!choices[len])
            return 0;
        choices += len + 1;
    }
}

static int parse_ints(const arg_row *row, const char *s, arg_ints *out) {
    size_t n = 1, i = 0;
    for (const char *c = s; *c; c++)
        n += *c == ',';
    int64_t *v = calloc(n, sizeof *v);
    for (; v && i < n; i++, s++) {
        size_t len = strcspn(s, ",");
        if (!parse_int(s, len, &v[i]) || (double)v[i] < row->lo || (double)v[i] > row->hi)
            break;
        s += len;
    }
    if (!v || i < n) {
        free(v);
        return 0;
    }
    args_free_ints(out);
    out->v = v;
    out->n = n;
    out->given = 1;
    return 1;
}

void args_free_ints(arg_ints *list) {
    free(list->v);
    list->v = NULL;
    list->n = 0;
}

/* ---- messages -------------------------------------------------------------------------------- */
static size_t distance(const char *a, const char *b) {
    size_t row[64], na = strlen(a), nb = strlen(b);
    if (na >= 64 || nb >= 64)
        return 64;
    for (size_t j = 0; j <= nb; j++)
        row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[nb];
}

const char *closest(const char *typed, const char *const *names, size_t n) {
    const char *best = NULL;
    size_t least = strlen(typed) / 3 + 2;
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(typed, names[i]);
        if (d < least)
            least = d, best = names[i];
    }
    return best;
}

static void expected(const arg_row *row, char *dst, size_t n) {
    const char *list =
        row->kind == ARG_INTS ? "whole numbers separated by commas, each " : "a whole number ";
    if (row->kind == ARG_CHOICE)
        snprintf(dst, n, "one of %s", row->choices);
    else if (row->kind == ARG_FLOAT)
        snprintf(dst, n, "a number from %g to %g", row->lo, row->hi);
    else if (row->kind == ARG_SEED)
        snprintf(dst, n, "a whole number from 0 to 18446744073709551615");
    else if (row->kind == ARG_TEXT)
        snprintf(dst, n, "%s", row->value);
    else
        snprintf(dst, n, "%sfrom %.0f to %.0f", list, row->lo, row->hi);
}

static int bad_value(const arg_page *page, const arg_row *row, const char *flag,
                     const char *found) {
    char want[160];
    expected(row, want, sizeof want);
    if (!found)
        return complain(EXIT_USAGE, "%s: found nothing after it, expected %s", flag, want);
    return complain(EXIT_USAGE, "%s: found \"%s\", expected %s (minerva %s --help)", flag, found,
                    want, page->name);
}

static size_t all_flags(const arg_page *page, char *store, size_t bytes, const char **names) {
    size_t n = 0, at = 0;
    for (size_t g = 0; g < page->n_groups; g++)
        for (size_t r = 0; r < page->groups[g].n; r++) {
            const char *s = page->groups[g].rows[r].flags;
            while (*s == '-' && n < MAX_NAMES) {
                size_t len = strcspn(s, " ");
                if (at + len + 1 > bytes)
                    return n;
                names[n++] = memcpy(store + at, s, len);
                store[at + len] = 0;
                at += len + 1;
                s += len + strspn(s + len, " ");
            }
        }
    return n;
}

static int unknown_flag(const arg_page *page, const char *flag) {
    char store[4096];
    const char *names[MAX_NAMES];
    size_t n = all_flags(page, store, sizeof store, names);
    const char *near = closest(flag, names, n);
    if (near)
        return complain(EXIT_USAGE, "unknown flag %s of minerva %s; did you mean %s?", flag,
                        page->name, near);
    return complain(EXIT_USAGE, "unknown flag %s; minerva %s --help lists those there are", flag,
                    page->name);
}

/* ---- the help page --------------------------------------------------------------------------- */
static void help_row(out_file *out, const arg_row *row) {
    char left[80];
    size_t n = 0;
    for (const char *s = row->flags; *s && n < 60; s++) {
        if (*s == ' ')
            left[n++] = ',';
        left[n++] = *s;
    }
    left[n] = 0;
    if (row->value && row->kind != ARG_FLAG && row->flags[0] == '-')
        snprintf(left + n, sizeof left - n, " %s", row->value);
    out_printf(out, "  %-26s ", left);
    if (strlen(left) > 26)
        out_printf(out, "\n  %-26s ", "");
    for (const char *s = row->help; *s; s++) {
        out_put(out, s, 1);
        if (*s == '\n')
            out_printf(out, "  %-26s ", "");
    }
    if (row->kind == ARG_CHOICE)
        out_printf(out, " (%s)", row->choices);
    out_puts(out, "\n");
}

static int help(const arg_page *page) {
    out_file out = out_stdout();
    out_printf(&out, "Usage: minerva %s %s\n\n%s\n", page->name, page->usage, page->about);
    for (size_t g = 0; g < page->n_groups; g++) {
        if (page->groups[g].title[0])
            out_printf(&out, "\n%s\n", page->groups[g].title);
        for (size_t r = 0; r < page->groups[g].n; r++)
            help_row(&out, &page->groups[g].rows[r]);
    }
    return out_finish(&out, 0);
}

/* ---- parsing --------------------------------------------------------------------------------- */
static int has_name(const char *flags, const char *name, size_t n) {
    for (const char *s = flags; *s; s += strspn(s, " ")) {
        size_t len = strcspn(s, " ");
        if (len == n && memcmp(s, name, n) == 0)
            return 1;
        s += len;
    }
    return 0;
}

/* The row of a flag, or (name NULL) the operand's. */
static const arg_row *find_row(const arg_page *page, const char *name, size_t n, char **field) {
    for (size_t g = 0; g < page->n_groups; g++)
        for (size_t r = 0; r < page->groups[g].n; r++) {
            const arg_row *row = &page->groups[g].rows[r];
            if (name ? !has_name(row->flags, name, n) : row->flags[0] == '-')
                continue;
            *field = (char *)page->groups[g].values + row->offset;
            return row;
        }
    return NULL;
}

static int store(const arg_row *row, char *field, const char *s) {
    int64_t i = 0;
    double d = 0;
    switch (row->kind) {
    case ARG_FLAG:
        *(int *)(void *)field = 1;
        return 1;
    case ARG_TEXT:
        *(const char **)(void *)field = s;
        return 1;
    case ARG_INT:
        if (!parse_int(s, strlen(s), &i) || (double)i < row->lo || (double)i > row->hi)
            return 0;
        *(int64_t *)(void *)field = i;
        return 1;
    case ARG_FLOAT:
        if (!parse_float(s, &d) || d < row->lo || d > row->hi)
            return 0;
        *(double *)(void *)field = d;
        return 1;
    case ARG_SEED: {
        arg_seed *seed = (arg_seed *)(void *)field;
        return seed->given = parse_seed(s, &seed->v);
    }
    case ARG_INTS:
        return parse_ints(row, s, (arg_ints *)(void *)field);
    case ARG_CHOICE:
        return parse_choice(row->choices, s, (int *)(void *)field);
    }
    return 0;
}

static int parse_flag(const arg_page *page, int argc, char **argv, int *at) {
    const char *arg = argv[*at], *equals = arg[1] == '-' ? strchr(arg, '=') : NULL;
    size_t n = equals ? (size_t)(equals - arg) : strlen(arg);
    char *field = NULL;
    const arg_row *row = find_row(page, arg, n, &field);
    if (!row)
        return unknown_flag(page, arg);
    if (row->kind == ARG_FLAG) {
        if (equals)
            return complain(EXIT_USAGE, "%.*s: found \"%s\", expected no value", (int)n, arg,
                            equals + 1);
        return store(row, field, NULL) ? ARGS_OK : EXIT_USAGE;
    }
    char *name = strndup(arg, n);
    const char *value = equals ? equals + 1 : *at + 1 < argc ? argv[++*at] : NULL;
    int code = ARGS_OK;
    if (!name)
        code = complain(EXIT_NO_MEMORY, "out of memory");
    else if (!value || !store(row, field, value))
        code = bad_value(page, row, name, value);
    free(name);
    return code;
}

static int parse_operand(const arg_page *page, const char *arg, int *n_operands) {
    char *field = NULL;
    const arg_row *row = find_row(page, NULL, 0, &field);
    if (!row || (*n_operands)++ > 0)
        return complain(EXIT_USAGE, "found \"%s\", expected a flag (minerva %s --help)", arg,
                        page->name);
    return store(row, field, arg) ? ARGS_OK : bad_value(page, row, row->flags, arg);
}

int args_parse(const arg_page *page, int argc, char **argv) {
    int n_operands = 0, only_operands = 0, code = ARGS_OK;
    for (int i = 1; i < argc && code == ARGS_OK; i++) {
        const char *arg = argv[i];
        if (only_operands || arg[0] != '-' || arg[1] == 0)
            code = parse_operand(page, arg, &n_operands);
        else if (strcmp(arg, "--") == 0)
            only_operands = 1;
        else if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)
            code = help(page);
        else
            code = parse_flag(page, argc, argv, &i);
    }
    return code;
}
