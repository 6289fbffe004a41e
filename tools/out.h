/* out.h -- output files and messages: a full disk is an error, a reader that ends early is not. */
#ifndef MINERVA_OUT_H
#define MINERVA_OUT_H
#include "json_out.h"
#include <stdio.h>

#define EXIT_FAILED 1
#define EXIT_USAGE 2
#define EXIT_NO_MEMORY 4
#define EXIT_INTERRUPTED 130
#define EXIT_PIPE 141 /* the reader of the output has ended: 128 + SIGPIPE (13) */

/* error: errno of the first write that failed; later writes do nothing. */
typedef struct {
    FILE *f;
    const char *name;
    int error;
    int encode; /* 1: a terminal with another codeset than UTF-8 */
} out_file;

/* The first call of a program: standard descriptors that are closed fail from now on as closed ones
 * do, and no file that is opened later gets their number; a closed pipe is an error of write. */
void out_begin_program(void);
out_file out_stdout(void);
void out_put(out_file *o, const char *bytes, size_t n);
void out_puts(out_file *o, const char *z);
void out_printf(out_file *o, const char *fmt, ...) MN_PRINTF(2, 3);
void out_flush(out_file *o);
/* Flushes, and prints the error if there was one. The exit code: code, or, if code is 0 and a write
 * failed, 1; EXIT_PIPE without a message if the reader has ended. */
int out_finish(out_file *o, int code);
/* After Ctrl-C, which terminals echo as ^C: ends that line. */
void out_break(out_file *o);

/* JSON that goes to o, whose error it keeps. */
json_out out_json(out_file *o);

/* A file that appears under its name only when it is complete: a temporary file beside it,
 * renamed by out_commit. "-" is standard output; devices and pipes are written directly. */
typedef struct {
    out_file out;
    const char *path;
    char *temp;
} out_target;
int out_open(out_target *t, const char *path); /* 0, or 1 with a message printed */
/* code != 0: removes the temporary file. The exit code. */
int out_commit(out_target *t, int code);

/* From now on messages of complain go to dst (n bytes) instead of standard error; NULL: to
 * standard error again. For errors that are printed later, with their line. */
void complain_into(char *dst, size_t n);
/* "minerva: error: ..." on stderr, on a line of its own; returns code. */
int complain(int code, const char *fmt, ...) MN_PRINTF(2, 3);
/* A message of the library without the name of a struct of its interface, which users have not
 * seen: "mn_sample_params.mirostat: found 1" becomes "mirostat: found 1". Points into message. */
const char *plain_message(const char *message);
int no_memory(void); /* complain(EXIT_NO_MEMORY, "out of memory") */
/* "minerva: ..." on stderr: information that a script may ignore. */
void note(const char *fmt, ...) MN_PRINTF(1, 2);
/* 1 if escape sequences may be written to f: a terminal, without NO_COLOR. */
int has_color(FILE *f);
#endif
