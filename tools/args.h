/* args.h -- the command line as a table: one row per flag makes the parser, its errors and the
 * --help page. */
#ifndef MINERVA_ARGS_H
#define MINERVA_ARGS_H
#include <stddef.h>
#include <stdint.h>

typedef enum {
    ARG_FLAG,   /* int: 1 */
    ARG_TEXT,   /* const char *: into argv */
    ARG_INT,    /* int64_t in lo..hi */
    ARG_SEED,   /* arg_seed */
    ARG_FLOAT,  /* double in lo..hi */
    ARG_INTS,   /* arg_ints: a list with commas, each in lo..hi; freed by args_free_ints */
    ARG_CHOICE, /* int: index into choices, "a|b|c" */
} arg_kind;

typedef struct {
    int64_t *v;
    size_t n;
    int given;
} arg_ints;
typedef struct {
    uint64_t v;
    int given;
} arg_seed;

typedef struct {
    /* "-n --n-predict": the first is the one messages name; "M" without a dash: an operand */
    const char *flags;
    const char *value; /* what --help calls the value */
    arg_kind kind;
    size_t offset; /* of the field in the group's struct */
    double lo, hi;
    const char *choices;
    const char *help; /* lines end with \n where they should break */
} arg_row;

typedef struct {
    const char *title;
    const arg_row *rows;
    size_t n;
    void *values;
} arg_group;
typedef struct {
    const char *name, *usage, *about;
    const arg_group *groups;
    size_t n_groups;
} arg_page;

#define ARGS_OK (-1)
/* Fills the groups' structs, which hold the defaults. ARGS_OK to go on, else the exit code: 0 after
 * --help (on stdout), 2 after an error (on stderr: the flag, what was found, what was expected).
 * argv[0] is the subcommand's own name. */
int args_parse(const arg_page *page, int argc, char **argv);
void args_free_ints(arg_ints *list);

/* The whole of s as a decimal number; 0 = not one, or out of range. No white space, no inf, no
 * hexadecimal. */
int parse_int(const char *s, size_t n, int64_t *out);
/* The name among n (every stride bytes a const char *) that is closest to what was typed, or NULL
 * if none is close. */
const char *closest(const char *typed, const char *const *names, size_t n);
#endif
