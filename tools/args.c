/* args.c -- parses a command line by the tables of a page (args.h): values, flags, operands, the
 * help text, and messages with the closest known name.
 *
 * A row names the field that its value is stored in, by type and offset, so that each subcommand
 * only has a table and a struct. Lists (arg_ints, arg_texts) are the subcommand's to free; texts
 * point into argv, or are converted to UTF-8 by codeset.c. The same tables are printed as man
 * pages and shell completions by document.c. */
#include "args.h"
#include "codeset.h"
#include "out.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAMES 128
#define MAX_INTS 16777216u /* of a list: more than any context */

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

/* *out: the index of s in "a|b|c". 0: it is none of them. */
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

/* One element of a list: N, or with ranges also A-B, A-B+STEP, A-B*FACTOR. */
typedef struct {
    int64_t first, last, step;
    char op; /* '+' or '*' */
} int_range;

/* Parses one element of n bytes. 0: not a range, a bound of the row exceeded, or no progress:
 * first > last, or a step that would never reach last. */
static int parse_range(const arg_row *row, const char *s, size_t n, int_range *r) {
    const char *dash = row->kind == ARG_RANGES && n > 1 ? memchr(s + 1, '-', n - 1) : NULL;
    const char *end = s + n;
    *r = (int_range){.step = 1, .op = '+'};
    if (!dash) {
        if (!parse_int(s, n, &r->first))
            return 0;
        r->last = r->first;
    } else {
        const char *op = dash + 1;
        while (op < end && *op != '+' && *op != '*')
            op++;
        if (!parse_int(s, (size_t)(dash - s), &r->first) ||
            !parse_int(dash + 1, (size_t)(op - dash - 1), &r->last))
            return 0;
        if (op < end) {
            r->op = *op;
            if (!parse_int(op + 1, (size_t)(end - op - 1), &r->step))
                return 0;
        }
    }
    const int grows = r->op == '+' ? r->step >= 1 : r->step >= 2 && r->first >= 1;
    return grows && r->first <= r->last && (double)r->first >= row->lo &&
           (double)r->last <= row->hi;
}

/* 0: out of memory, or more than MAX_INTS. The space doubles when n is a power of 2. */
static int add_int(arg_ints *list, int64_t v) {
    if (list->n >= MAX_INTS)
        return 0;
    if ((list->n & (list->n - 1)) == 0) {
        int64_t *grown = realloc(list->v, (list->n ? 2 * list->n : 1) * sizeof *grown);
        if (!grown)
            return 0;
        list->v = grown;
    }
    list->v[list->n++] = v;
    return 1;
}

static int add_range(arg_ints *list, const int_range *r) {
    for (int64_t v = r->first; v <= r->last; v = r->op == '+' ? v + r->step : v * r->step)
        if (!add_int(list, v))
            return 0;
    return 1;
}

/* Replaces *out by the list s. 0: *out is unchanged. */
static int parse_ints(const arg_row *row, const char *s, arg_ints *out) {
    arg_ints list = {NULL, 0, 1};
    const char *at = s;
    int ok = 1;
    while (ok) {
        const size_t len = strcspn(at, ",");
        int_range r;
        ok = parse_range(row, at, len, &r) && add_range(&list, &r);
        at += len;
        if (!*at)
            break;
        at++;
    }
    if (!ok) {
        args_free_ints(&list);
        return 0;
    }
    if (out->given)
        args_free_ints(out);
    *out = list;
    return 1;
}

/* Appends the two numbers of s to *out: a flag with pairs may be given several times. */
static int parse_pair(const arg_row *row, const char *s, arg_ints *out) {
    arg_ints pair = {0};
    int ok = parse_ints(row, s, &pair) && pair.n == 2;
    if (ok && !out->given)
        *out = (arg_ints){NULL, 0, 1};
    ok = ok && add_int(out, pair.v[0]) && add_int(out, pair.v[1]);
    args_free_ints(&pair);
    return ok;
}

static int args_add_text(arg_texts *list, const char *s) {
    const char **grown = realloc(list->v, (list->n + 1) * sizeof *grown);
    if (!grown)
        return 0;
    list->v = grown;
    list->v[list->n++] = s;
    return 1;
}

/* 0: there is no room for it. */
static int append_entry(arg_list *list, const char *s) {
    const char *text = codeset_argument(s);
    const size_t n = strlen(list->text);
    const size_t left = sizeof list->text - n;
    const int need = snprintf(list->text + n, left, "%s%s", n ? "," : "", text);
    if (need >= 0 && (size_t)need < left)
        return 1;
    list->text[n] = 0;
    return 0;
}

int parse_ids(const char *text, size_t n, const char *name, arg_ids *out) {
    static const char between[] = " \t\r\n,[]";
    for (size_t at = 0, len = 0; at < n; at += len) {
        int64_t id = 0;
        len = strspn(text + at, between);
        if (len)
            continue;
        len = strcspn(text + at, between);
        if (!parse_int(text + at, len, &id) || id < 0 || id > INT32_MAX)
            return complain(EXIT_USAGE, "%s: byte %zu: found \"%.*s\", expected a token id", name,
                            at, (int)(len < 20 ? len : 20), text + at);
        if (out->n == out->cap) {
            const size_t cap = out->cap ? 2 * out->cap : 4096;
            int32_t *grown = realloc(out->v, cap * sizeof *grown);
            if (!grown)
                return no_memory();
            out->v = grown;
            out->cap = cap;
        }
        out->v[out->n++] = (int32_t)id;
    }
    return 0;
}

void args_free_ints(arg_ints *list) {
    free(list->v);
    list->v = NULL;
    list->n = 0;
}

void args_free_texts(arg_texts *list) {
    free(list->v);
    list->v = NULL;
    list->n = 0;
}

/* ---- messages -------------------------------------------------------------------------------- */
#define MAX_WORD 48
/* The edit distance: characters to add, remove, change or swap with their neighbour. */
static size_t distance(const char *a, const char *b) {
    size_t d[MAX_WORD + 1][MAX_WORD + 1], na = strlen(a), nb = strlen(b);
    if (na > MAX_WORD || nb > MAX_WORD)
        return MAX_WORD;
    for (size_t i = 0; i <= na; i++)
        d[i][0] = i;
    for (size_t j = 0; j <= nb; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= na; i++)
        for (size_t j = 1; j <= nb; j++) {
            size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            const int swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[na][nb];
}

const char *closest(const char *typed, const char *const *names, size_t n) {
    typed += strspn(typed, "-");
    const size_t len = strlen(typed);
    const char *best = NULL, *longer = NULL;
    size_t least = (len < 6 ? 1 : len / 3) + 1;
    if (len < 3)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        const char *name = names[i] + strspn(names[i], "-");
        const size_t d = distance(typed, name);
        if (strlen(name) < 3)
            continue;
        if (d < least) {
            least = d;
            best = names[i];
        }
        if (!longer && strncmp(name, typed, len) == 0)
            longer = names[i];
    }
    return best ? best : longer;
}

/* What the row accepts, as the end of "found ..., expected ...". */
static void expected(const arg_row *row, char *dst, size_t n) {
    switch (row->kind) {
    case ARG_CHOICE:
        snprintf(dst, n, "one of %s", row->choices);
        break;
    case ARG_FLOAT:
        snprintf(dst, n, "a number from %g to %g", row->lo, row->hi);
        break;
    case ARG_SEED:
        snprintf(dst, n, "a whole number from 0 to 18446744073709551615");
        break;
    case ARG_TEXT:
    case ARG_TEXTS:
    case ARG_FILE:
    case ARG_FILES:
    case ARG_LIST:
        snprintf(dst, n, "%s%s", row->value, row->flags[0] == '-' ? ", not empty" : "");
        break;
    case ARG_INTS:
        snprintf(dst, n, "whole numbers separated by commas, each from %.0f to %.0f", row->lo,
                 row->hi);
        break;
    case ARG_RANGES:
        snprintf(dst, n, "whole numbers from %.0f to %.0f: 1,2,4 or a range 8-64+8 or 8-64*2",
                 row->lo, row->hi);
        break;
    case ARG_PAIRS:
        snprintf(dst, n, "two whole numbers A,B, each from %.0f to %.0f", row->lo, row->hi);
        break;
    default:
        snprintf(dst, n, "a whole number from %.0f to %.0f", row->lo, row->hi);
    }
}

/* found NULL: the flag is the last word. Returns EXIT_USAGE. */
static int bad_value(const arg_page *page, const arg_row *row, const char *flag,
                     const char *found) {
    char want[160];
    expected(row, want, sizeof want);
    if (!found)
        return complain(EXIT_USAGE, "%s: found no value, expected %s", flag,
                        row->value ? row->value : want);
    return complain(EXIT_USAGE, "%s: found \"%s\", expected %s (minerva %s --help)", flag, found,
                    want, page->name);
}

/* Every flag of the page, NUL-terminated in store, listed in names; their number. */
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

/* 1 if the n bytes of name are one of the blank-separated flags. */
static int has_name(const char *flags, const char *name, size_t n) {
    for (const char *s = flags; *s; s += strspn(s, " ")) {
        size_t len = strcspn(s, " ");
        if (len == n && memcmp(s, name, n) == 0)
            return 1;
        s += len;
    }
    return 0;
}

/* Flags of other tools, and what Minerva has for them. */
typedef struct {
    const char *flags; /* blank-separated */
    const char *hint;
} foreign_flag;
static const foreign_flag foreign_flags[] = {
    {"-ngl --n-gpu-layers --gpu-layers",
     "layers go where they fit and are fastest: --device auto, --device cuda:0,cpu; "
     "minerva devices --explain -m MODEL shows it"},
    {"-hf -hfr --hf --hf-repo --hf-file -mu --model-url",
     "-m org/repo:QUANT, or the URL; minerva pull downloads it"},
    {"-fa --flash-attn", "attention is always computed that way and needs no flag"},
    {"-np", "sequences are as many as the KV cache holds: --kv-size; run --prompts has --parallel"},
    {"--jinja --no-jinja", "chat templates are always used; --raw does without, in run"},
    {"--lora-scaled", "--lora FILE:SCALE has a factor"},
    {"--lora-modules --enable-lora", "--lora [NAME=]FILE[:SCALE] of minerva serve is an adapter"},
    {"--lora", "commands that compute have --lora FILE[:SCALE]; "
               "minerva convert --merge FILE makes a model of "
               "both"},
    {"--max-tokens --max-new-tokens --n_predict", "-n N is the number of tokens"},
    {"--max-model-len --num-ctx --ctx_size", "-c N is the context"},
    {"-ts --tensor-split -sm --split-mode -tp --tensor-parallel-size -mg --main-gpu",
     "--device cuda:0,cuda:1 has a model on several devices, --device cuda:0+cuda:1 in one group"},
    {"--mlock --no-mmap --mmap", "weights are read where they lie; --numa places them"},
    {"--gpu-memory-utilization --mem-fraction-static",
     "--kv-size MIB of minerva serve is the KV cache; without it, all sequences if there is room"},
    {"--cpu --gpu --cuda", "--device cpu, --device cuda:0; minerva devices lists them"},
    {"--stream --no-stream", "run prints an answer while it grows, and whole with --json"},
    {"--served-model-name", "--alias NAME is the name"},
    {"-cnv --conversation -i --interactive", "minerva chat is a conversation"},
    {"--repetition-penalty", "--repeat-penalty"},
};

static const char *foreign_hint(const char *flag) {
    for (size_t i = 0; i < sizeof foreign_flags / sizeof *foreign_flags; i++)
        if (has_name(foreign_flags[i].flags, flag, strcspn(flag, "=")))
            return foreign_flags[i].hint;
    return NULL;
}

static int unknown_flag(const arg_page *page, const char *flag) {
    char store[4096];
    const char *hint = foreign_hint(flag);
    if (hint)
        return complain(EXIT_USAGE, "minerva %s has no flag %s: %s", page->name, flag, hint);
    const char *names[MAX_NAMES];
    size_t n = all_flags(page, store, sizeof store, names);
    const char *near = closest(flag, names, n);
    if (near)
        return complain(EXIT_USAGE, "unknown flag %s of minerva %s; did you mean %s?", flag,
                        page->name, near);
    return complain(EXIT_USAGE, "unknown flag %s; minerva %s --help lists the flags", flag,
                    page->name);
}

/* ---- the help page --------------------------------------------------------------------------- */
/* One row of the help text: flags and value in 26 columns, then the help, whose lines are
 * indented. */
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

static int print_flags(const arg_page *page) {
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
/* The row of a flag, or of the operand (name NULL), and in *field the address of its value.
 * NULL: the page has none. */
static const arg_row *args_find_row(const arg_page *page, const char *name, size_t n,
                                    char **field) {
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

/* Parses s and stores the value at field, whose type row->kind states. 0: s is no such value. */
static int tools_args_store(const arg_row *row, char *field, const char *s) {
    int64_t i = 0;
    double d = 0;
    switch (row->kind) {
    case ARG_FLAG:
        *(int *)(void *)field = 1;
        return 1;
    case ARG_TEXT:
    case ARG_FILE: // names of files are bytes
        *(const char **)(void *)field = row->kind == ARG_TEXT ? codeset_argument(s) : s;
        return (double)strlen(s) >= (row->kind == ARG_FILE ? 1 : row->lo);
    case ARG_TEXTS:
        return (double)strlen(s) >= row->lo &&
               args_add_text((arg_texts *)(void *)field, codeset_argument(s));
    case ARG_LIST:
        return (double)strlen(s) >= row->lo && append_entry((arg_list *)(void *)field, s);
    case ARG_FILES:
        return *s && args_add_text((arg_texts *)(void *)field, s);
    case ARG_INT:
    case ARG_COUNT:
        if (!parse_int(s, strlen(s), &i) || (double)i < row->lo || (double)i > row->hi)
            return 0;
        if (row->kind == ARG_COUNT)
            *(arg_count *)(void *)field = (arg_count){i, 1};
        else
            *(int64_t *)(void *)field = i;
        return 1;
    case ARG_FLOAT:
        if (!parse_float(s, &d) || d < row->lo || d > row->hi)
            return 0;
        *(double *)(void *)field = d;
        return 1;
    case ARG_SEED: {
        arg_seed *seed = (arg_seed *)(void *)field;
        seed->given = parse_seed(s, &seed->v);
        return seed->given;
    }
    case ARG_INTS:
    case ARG_RANGES:
        return parse_ints(row, s, (arg_ints *)(void *)field);
    case ARG_PAIRS:
        return parse_pair(row, s, (arg_ints *)(void *)field);
    case ARG_CHOICE:
        return parse_choice(row->choices, s, (int *)(void *)field);
    }
    return 0;
}

int args_store(const arg_row *row, void *field, const char *name, const char *value) {
    char want[160];
    if (tools_args_store(row, field, value))
        return 0;
    expected(row, want, sizeof want);
    return complain(EXIT_USAGE, "%s: found \"%s\", expected %s", name, value, want);
}

/* argv[*at] is a flag, its value behind '=' or in the next word, which *at is then moved to. */
static int parse_flag(const arg_page *page, int argc, char **argv, int *at) {
    const char *arg = argv[*at];
    const char *equals = arg[1] == '-' ? strchr(arg, '=') : NULL;
    size_t n = equals ? (size_t)(equals - arg) : strlen(arg);
    char *field = NULL;
    const arg_row *row = args_find_row(page, arg, n, &field);
    if (!row)
        return unknown_flag(page, arg);
    if (row->kind == ARG_FLAG) {
        if (equals)
            return complain(EXIT_USAGE, "%.*s: found \"%s\", expected no value", (int)n, arg,
                            equals + 1);
        return tools_args_store(row, field, NULL) ? ARGS_OK : EXIT_USAGE;
    }
    char *name = strndup(arg, n);
    const char *value = equals ? equals + 1 : NULL;
    int code = ARGS_OK;
    if (!equals && *at + 1 < argc) {
        ++*at;
        value = argv[*at];
    }
    if (!name)
        code = no_memory();
    else if (!value || !tools_args_store(row, field, value))
        code = bad_value(page, row, name, value);
    free(name);
    return code;
}

static int has_model(const arg_page *page) {
    char *field;
    return args_find_row(page, "-m", 2, &field) != NULL;
}

/* A second operand is an error unless the row collects texts. */
static int parse_operand(const arg_page *page, const char *arg, int *n_operands) {
    char *field = NULL;
    const arg_row *row = args_find_row(page, NULL, 0, &field);
    if (!row || ((*n_operands)++ > 0 && row->kind != ARG_TEXTS))
        return complain(EXIT_USAGE, "found \"%s\", expected a flag (minerva %s --help)%s%s", arg,
                        page->name, has_model(page) ? "; a model is -m " : "",
                        has_model(page) ? arg : "");
    return tools_args_store(row, field, arg) ? ARGS_OK : bad_value(page, row, row->flags, arg);
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
            code = print_flags(page);
        else if (strncmp(arg, "--help=", 7) == 0)
            code = args_document(page, arg + 7);
        else
            code = parse_flag(page, argc, argv, &i);
    }
    return code;
}
