/* out.c -- writes output files and messages: errors of write are remembered and reported once,
 * files appear only when they are complete, messages begin a line of their own.
 *
 * Each out_file has its first error. Two variables belong to the process: whether the last byte
 * on standard output ended a line (on a terminal, messages and answers share lines), and the
 * buffer of complain_into. Used from the main thread only. Interface: out.h. */
#include "out.h"
#include "codeset.h"
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A standard descriptor that is closed would be the next file that is opened, such as the
 * journal of crashes, and what is printed would go there. It becomes one that fails in its
 * direction. */
static void fill_descriptors(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            return;
}

void out_begin_program(void) {
    fill_descriptors();
    signal(SIGPIPE, SIG_IGN);
}

out_file out_stdout(void) {
    out_file o = {.f = stdout, .name = "standard output"};
    o.encode = isatty(STDOUT_FILENO) && codeset_is_other();
    return o;
}

/* Keeps the first error of o. */
static void out_remember(out_file *o) {
    if (!o->error)
        o->error = errno ? errno : EIO;
}

/* 1: the last byte written to standard output is not a line end. */
static int line_is_open;

static void remember_line(const out_file *o, char last) {
    if (o->f == stdout)
        line_is_open = last != '\n';
}

/* Writes UTF-8 bytes in the codeset of the terminal. */
static void put_encoded(out_file *o, const char *bytes, size_t n) {
    mn_text encoded = {0};
    codeset_encode(bytes, n, &encoded);
    if (encoded.failed)
        errno = ENOMEM;
    if (encoded.failed || fwrite(encoded.ptr, 1, encoded.len, o->f) != encoded.len)
        out_remember(o);
    mn_text_free(&encoded);
}

void out_put(out_file *o, const char *bytes, size_t n) {
    if (o->error || n == 0)
        return;
    errno = 0;
    if (o->encode)
        put_encoded(o, bytes, n);
    else if (fwrite(bytes, 1, n, o->f) != n)
        out_remember(o);
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
        out_remember(o);
    va_end(args);
    remember_line(o, fmt[strlen(fmt) - 1]);
}

void out_flush(out_file *o) {
    errno = 0;
    if (!o->error && fflush(o->f) != 0)
        out_remember(o);
}

/* Prints the error of o, except EPIPE: the reader (head, a pager) has ended and wants no more. The
 * exit code. */
static int write_failed(const out_file *o, int code) {
    int failed = EXIT_PIPE;
    if (o->error != EPIPE)
        failed = complain(o->error == ENOMEM ? EXIT_NO_MEMORY : EXIT_FAILED,
                          "cannot write to %s: %s", o->name, strerror(o->error));
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

static void json_put(void *to, const char *bytes, size_t n) {
    out_put(to, bytes, n);
}

json_out out_json(out_file *o) {
    return (json_out){.put = json_put, .to = o};
}

/* 1 for a folder, device or pipe, which a rename must not replace. */
static int is_special(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

/* A stream of fd with the permissions of a new file; NULL: errno says why. */
static FILE *open_stream(int fd) {
    const mode_t mask = umask(0);
    umask(mask);
    return fchmod(fd, 0666 & ~mask) == 0 ? fdopen(fd, "wb") : NULL;
}

/* A new file beside path, open for writing; *temp: its name, the caller's to free. NULL: errno says
 * why, nothing is left. */
static FILE *open_temp(const char *path, char **temp) {
    size_t n = strlen(path) + sizeof ".XXXXXX";
    char *name = malloc(n);
    if (!name)
        return NULL;
    snprintf(name, n, "%s.XXXXXX", path);
    int fd = mkstemp(name);
    FILE *f = fd >= 0 ? open_stream(fd) : NULL;
    if (f) {
        *temp = name;
        return f;
    }
    const int e = errno;
    if (fd >= 0) {
        close(fd);
        unlink(name);
    }
    free(name);
    errno = e;
    return NULL;
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

/* Makes the new name last: a rename is a change of the folder. A folder that cannot be read, or a
 * file system that syncs none, is no error. 0: it failed, errno says why. */
static int sync_folder(const char *path) {
    char *copy = strdup(path);
    const int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    const int ok = fd >= 0 ? fsync(fd) == 0 || errno == EINVAL : errno == EACCES;
    const int e = errno;
    if (fd >= 0)
        close(fd);
    free(copy);
    errno = e;
    return ok;
}

int out_commit(out_target *t, int code) {
    if (t->out.f == stdout)
        return out_finish(&t->out, code);
    out_flush(&t->out);
    if (t->temp && !t->out.error && code == 0 && fsync(fileno(t->out.f)) != 0 && errno != EINVAL)
        out_remember(&t->out);
    errno = 0;
    if (fclose(t->out.f) != 0)
        out_remember(&t->out);
    if (t->temp && code == 0 && !t->out.error && rename(t->temp, t->path) != 0)
        out_remember(&t->out);
    else if (t->temp && code == 0 && !t->out.error && !sync_folder(t->path))
        out_remember(&t->out);
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

/* Ends the line of the answer, if it is open and both streams are the same terminal. */
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

const char *plain_message(const char *message) {
    static const char end[] = "_params.";
    const size_t n = strspn(message, "abcdefghijklmnopqrstuvwxyz_");
    if (strncmp(message, "mn_", 3) != 0 || n + 1 < sizeof end || message[n] != '.' ||
        memcmp(message + n + 1 - (sizeof end - 1), end, sizeof end - 1) != 0)
        return message;
    return message + n + 1;
}

int no_memory(void) {
    return complain(EXIT_NO_MEMORY, "out of memory");
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
