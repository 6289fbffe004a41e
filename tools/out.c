/* out.c -- see out.h. Beside the files' own errors this remembers one thing for the process: whether
 * the last byte written to standard output left a line unended, for on a terminal messages and
 * answers share their lines. */
#include "out.h"
#include "codeset.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

out_file out_stdout(void) {
    out_file o = {.f = stdout, .name = "standard output"};
    o.encode = isatty(STDOUT_FILENO) && codeset_is_other();
    return o;
}

static void remember(out_file *o) {
    if (!o->error)
        o->error = errno ? errno : EIO;
}

/* What was written to standard output last did not end its line. */
static int line_is_open;

static void remember_line(const out_file *o, char last) {
    if (o->f == stdout)
        line_is_open = last != '\n';
}

static void put_encoded(out_file *o, const char *bytes, size_t n) {
    buffer encoded = {0};
    codeset_encode(bytes, n, &encoded);
    if (encoded.failed)
        errno = ENOMEM;
    if (encoded.failed || fwrite(encoded.p, 1, encoded.n, o->f) != encoded.n)
        remember(o);
    buffer_free(&encoded);
}

void out_put(out_file *o, const char *bytes, size_t n) {
    if (o->error || n == 0)
        return;
    errno = 0;
    if (o->encode)
        put_encoded(o, bytes, n);
    else if (fwrite(bytes, 1, n, o->f) != n)
        remember(o);
    remember_line(o, bytes[n - 1]);
}

void out_puts(out_file *o, const char *z) {
    out_put(o, z, strlen(z));
}

void out_printf(out_file *o, const char *fmt, ...) {
    va_list args;
    if (o->error)
        return;
    errno = 0;
    va_start(args, fmt);
    if (vfprintf(o->f, fmt, args) < 0)
        remember(o);
    va_end(args);
    remember_line(o, fmt[strlen(fmt) - 1]);
}

void out_flush(out_file *o) {
    errno = 0;
    if (!o->error && fflush(o->f) != 0)
        remember(o);
}

/* A reader that left (head, a pager that was quit) has what it wanted: nothing is said then. */
static int write_failed(const out_file *o, int code) {
    int failed = EXIT_PIPE;
    if (o->error != EPIPE)
        failed = complain(EXIT_FAILED, "cannot write to %s: %s", o->name, strerror(o->error));
    return code ? code : failed;
}

int out_finish(out_file *o, int code) {
    out_flush(o);
    return o->error ? write_failed(o, code) : code;
}

void out_break(out_file *o) {
    if (isatty(STDOUT_FILENO)) {
        out_put(o, "\n", 1);
        out_flush(o);
    } else if (isatty(STDERR_FILENO)) {
        fputc('\n', stderr);
    }
}

/* A folder, device or pipe is not replaced by a rename. */
static int is_special(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

static FILE *open_temp(const char *path, char **temp) {
    size_t n = strlen(path) + sizeof ".XXXXXX";
    char *name = malloc(n);
    FILE *f = NULL;
    if (!name)
        return NULL;
    snprintf(name, n, "%s.XXXXXX", path);
    int fd = mkstemp(name);
    if (fd >= 0) {
        mode_t mask = umask(0);
        umask(mask);
        if (fchmod(fd, 0666 & ~mask) != 0 || !(f = fdopen(fd, "wb"))) {
            int e = errno;
            close(fd);
            unlink(name);
            errno = e;
        }
    }
    if (f)
        *temp = name;
    else
        free(name);
    return f;
}

int out_open(out_target *t, const char *path) {
    memset(t, 0, sizeof *t);
    t->path = path;
    t->out.name = path;
    if (strcmp(path, "-") == 0) {
        t->out = out_stdout();
        return 0;
    }
    errno = 0;
    t->out.f = is_special(path) ? fopen(path, "wb") : open_temp(path, &t->temp);
    if (t->out.f)
        return 0;
    return complain(EXIT_FAILED, "cannot write to %s: %s", path, strerror(errno ? errno : ENOMEM));
}

int out_commit(out_target *t, int code) {
    if (t->out.f == stdout)
        return out_finish(&t->out, code);
    out_flush(&t->out);
    if (t->temp && !t->out.error && code == 0 && fsync(fileno(t->out.f)) != 0 && errno != EINVAL)
        remember(&t->out);
    errno = 0;
    if (fclose(t->out.f) != 0)
        remember(&t->out);
    if (t->temp && code == 0 && !t->out.error && rename(t->temp, t->path) != 0)
        remember(&t->out);
    if (t->temp && (code != 0 || t->out.error))
        unlink(t->temp);
    free(t->temp);
    if (!t->out.error || code)
        return code;
    return write_failed(&t->out, code);
}

int has_color(FILE *f) {
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(f)) && !(none && *none) && term && strcmp(term, "dumb") != 0;
}

/* A message never continues a line of the answer. */
static void begin_message(void) {
    struct stat out, err;
    if (!line_is_open || !isatty(STDOUT_FILENO) || !isatty(STDERR_FILENO))
        return;
    if (fstat(STDOUT_FILENO, &out) != 0 || fstat(STDERR_FILENO, &err) != 0 ||
        out.st_rdev != err.st_rdev)
        return;
    fputc('\n', stdout);
    fflush(stdout);
    line_is_open = 0;
}

static char *captured;
static size_t cap_captured;

void complain_into(char *dst, size_t n) {
    captured = dst;
    cap_captured = n;
}

int complain(int code, const char *fmt, ...) {
    va_list args;
    if (captured) {
        va_start(args, fmt);
        vsnprintf(captured, cap_captured, fmt, args);
        va_end(args);
        return code;
    }
    begin_message();
    fputs(has_color(stderr) ? "minerva: \033[1;31merror:\033[0m " : "minerva: error: ", stderr);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    return code;
}

void note(const char *fmt, ...) {
    va_list args;
    begin_message();
    fputs("minerva: ", stderr);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
}
