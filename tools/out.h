/* out.h -- writing so that a full disk is an error, not a loss, and a reader may leave. */
#ifndef MINERVA_OUT_H
#define MINERVA_OUT_H
#include <stddef.h>
#include <stdio.h>

#if defined(__GNUC__)
#define OUT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define OUT_PRINTF(fmt, args)
#endif

#define EXIT_FAILED 1
#define EXIT_USAGE 2
#define EXIT_NO_MEMORY 4
#define EXIT_INTERRUPTED 130
#define EXIT_PIPE 141 /* the reader of the output left: as if SIGPIPE (128 + 13) had ended it */

/* error: errno of the first write that failed; later writes do nothing. */
typedef struct {
    FILE *f;
    const char *name;
    int error;
    int encode; /* a terminal of another codeset than UTF-8: whole characters are written */
} out_file;

out_file out_stdout(void);
void out_put(out_file *o, const char *bytes, size_t n);
void out_puts(out_file *o, const char *z);
void out_printf(out_file *o, const char *fmt, ...) OUT_PRINTF(2, 3);
void out_flush(out_file *o);
/* Flushes and says what went wrong, if anything did. The exit code: code, or, if code was 0 and a
 * write failed, 1; EXIT_PIPE, and nothing said, where the reader left. */
int out_finish(out_file *o, int code);
/* After Ctrl-C, which terminals echo as ^C: what follows begins a line there. */
void out_break(out_file *o);

/* A file that appears under its name only when all of it was written: a temporary beside it,
 * renamed by out_commit. "-" is standard output; devices and pipes are written to as they are. */
typedef struct {
    out_file out;
    const char *path;
    char *temp;
} out_target;
int out_open(out_target *t, const char *path); /* 0, or 1 with a message printed */
/* code != 0: throws the temporary away; the exit code */
int out_commit(out_target *t, int code);

/* From now on what complain is given goes to dst (n bytes) instead of standard error; NULL: no
 * more. For an error that is one of many, and is said with its place. */
void complain_into(char *dst, size_t n);
/* "minerva: error: ..." on stderr, on a line of its own; returns code. */
int complain(int code, const char *fmt, ...) OUT_PRINTF(2, 3);
int no_memory(void); /* complain(EXIT_NO_MEMORY, "out of memory") */
/* "minerva: ..." on stderr: what the user should know and a script may ignore. */
void note(const char *fmt, ...) OUT_PRINTF(1, 2);
/* 1 if escape sequences are welcome there: a terminal, without NO_COLOR. */
int has_color(FILE *f);
#endif
