/* args.h -- the command line as a table: the parser, its errors, --help, man pages and
 * completions use one row per flag. */
#ifndef MINERVA_ARGS_H
#define MINERVA_ARGS_H
#include "ground.h"

typedef enum {
    ARG_FLAG,   /* int: 1 */
    ARG_TEXT,   /* const char *: into argv; at least lo bytes */
    ARG_FILE,   /* the same, not empty; shells complete it as a file's name */
    ARG_TEXTS,  /* arg_texts: each use adds one; as an operand: all of them */
    ARG_FILES,  /* the same of names of files */
    ARG_LIST,   /* arg_list: each use adds one, with a comma between */
    ARG_INT,    /* int64_t in lo..hi */
    ARG_COUNT,  /* arg_count in lo..hi: 0 is a value, different from none */
    ARG_SEED,   /* arg_seed */
    ARG_FLOAT,  /* double in lo..hi */
    ARG_INTS,   /* arg_ints: a list with commas, each in lo..hi */
    ARG_RANGES, /* arg_ints: the same with ranges: 1,2,4 or 8-12 or 8-64+8 or 8-64*2 */
    ARG_PAIRS,  /* arg_ints: A,B; each use adds a pair */
    ARG_CHOICE, /* int: index into choices, "a|b|c" */
} arg_kind;

typedef struct {
    int64_t *v;
    size_t n;
    int given;
} arg_ints; /* freed by args_free_ints */
typedef struct {
    const char **v; /* into argv */
    size_t n;
} arg_texts; /* freed by args_free_texts */
#define ARG_LIST_MAX 2048
typedef struct {
    char text[ARG_LIST_MAX]; /* empty: not given */
} arg_list;
typedef struct {
    int64_t v;
    int given;
} arg_count;
typedef struct {
    uint64_t v;
    int given;
} arg_seed;

typedef struct {
    /* "-n --n-predict": messages name the first; "M" without a dash: an operand */
    const char *flags;
    const char *value; /* the name of the value in --help */
    arg_kind kind;
    size_t offset; /* of the field in the group's struct */
    double lo, hi;
    const char *choices;
    const char *help; /* with \n between its lines */
} arg_row;

typedef struct {
    const char *title; /* empty: the rows belong to the group before */
    const arg_row *rows;
    size_t n;
    void *values;
} arg_group;
typedef struct {
    const char *name, *usage, *about;
    const arg_group *groups;
    size_t n_groups;
} arg_page;

#define EXIT_CODES                                                                                 \
    "0, 1 failure, 2 usage, 3 no usable device, 4 out of memory, 130 interrupted, 141 the reader " \
    "of the output left."

#define ARGS_OK (-1)
/* Fills the groups' structs, which hold the defaults. ARGS_OK: the command continues; else the
 * exit code: 0 after --help (on stdout), 2 after an error (on stderr: the flag, found,
 * expected). --help=FORM prints the page in another form: document.c. argv[0] is the name of the
 * subcommand. */
int args_parse(const arg_page *page, int argc, char **argv);
void args_free_ints(arg_ints *list);
void args_free_texts(arg_texts *list);

/* A list of ids that grows; v is malloc'ed. */
typedef struct {
    int32_t *v;
    uint32_t n;
    size_t cap;
} arg_ids;
/* Adds the numbers in text, with blanks, commas or brackets between them; 0, or the exit code with
 * the error printed. name: of the file or the operand. */
int parse_ids(const char *text, size_t n, const char *name, arg_ids *out);

/* Stores one value of a row in its field; 0, or 2 with an error printed that begins with name. */
int args_store(const arg_row *row, void *field, const char *name, const char *value);

/* The whole of s as a decimal number; 0 = not one, or out of range. No white space, no inf, no
 * hexadecimal. */
int parse_int(const char *s, size_t n, int64_t *out);
/* The one of n names with the smallest edit distance to what was typed, or that begins with it;
 * NULL if none is close. */
const char *closest(const char *typed, const char *const *names, size_t n);

/* ---- document.c: a page as a man page and as completion of shells ---------------------------- */
/* form: man, bash, zsh, fish. 0, or 2 if it is none of them. */
int args_document(const arg_page *page, const char *form);
/* The head and the end of a shell's completion file, around the parts of all pages. names: the
 * commands; abouts: one line about each. */
int args_completion_begin(const char *shell, const char *const *names, const char *const *abouts,
                          size_t n);
void args_completion_end(const char *shell);
#endif
