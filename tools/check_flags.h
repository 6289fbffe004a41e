/* check_flags.h -- the command line of minerva plugins check: for minerva, which prints its help,
 * pages and completion, and for minerva-check, which minerva becomes. */
#ifndef MINERVA_CHECK_FLAGS_H
#define MINERVA_CHECK_FLAGS_H
#include "args.h"

/* Texts are those of argv; NULL: not given. */
typedef struct {
    const char *file, *only, *model, *abi;
    int json;
    int64_t limit; /* seconds */
} check_flags;

/* As args_parse (args.h): ARGS_OK with *out filled, else the exit code. */
int check_flags_parse(int argc, char **argv, check_flags *out);
#endif
