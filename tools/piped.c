/* piped.c -- standard input as the beginning of a prompt.
 *
 * A pipe or a file that somebody put there is meant; a terminal, /dev/null and sockets are what a
 * program finds there without anybody's doing (shells, services, ssh). A pipe that is inherited by
 * accident and never closed would be waited for without an end: so a line says what is waited for.
 * The text is the caller's. Used by run.c. */
#include "piped.h"
#include "app.h"
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATIENCE_MS = 2000 };

/* Whether somebody put something on standard input. */
static int is_piped(void) {
    struct stat st;
    return fstat(STDIN_FILENO, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode));
}

int piped_text(int quiet, char **text, size_t *n) {
    struct pollfd p = {STDIN_FILENO, POLLIN, 0};
    *text = NULL;
    *n = 0;
    if (!is_piped())
        return 0;
    if (poll(&p, 1, PATIENCE_MS) == 0 && !quiet)
        note("waiting for standard input, which is a pipe: it is put in front of the prompt "
             "(--no-stdin does without)");
    int code = read_all_text("-", text, n);
    if (code)
        return code;
    if (*n && (*text)[*n - 1] == '\n')
        *n -= 1 + (*n > 1 && (*text)[*n - 2] == '\r');
    if (!*n) {
        free(*text);
        *text = NULL;
    }
    return 0;
}
