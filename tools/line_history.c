/* line_history.c -- the history of typed lines (line.h): a list in memory and a file of the user.
 *
 * Each entry is appended to the file at once, so that several chats can share it and a killed
 * one loses nothing. An entry is one line of the file, with \n for line ends and \\ for
 * backslashes. The file is only used if it is a regular file of this user alone; it is opened
 * for each entry. Errors of the file are a note; the list in memory works without it. */
#include "line.h"
#include "text_buffer.h"
#include "out.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_ENTRIES 1000            /* of the file, when it is shortened */
#define MOST_BYTES ((size_t)1 << 20) /* read of the file: its end */
#define LONGEST ((size_t)64 << 10)   /* a longer entry stays in memory */

struct line_history {
    char **entries;
    size_t n, cap;
    char *path; /* NULL: no file */
};

/* ---- the list -------------------------------------------------------------------------------- */
/* Appends an entry, unless it is the same as the newest one. Out of memory: it is not kept. */
static void line_history_remember(line_history *h, const char *text, size_t n) {
    if (h->n && strlen(h->entries[h->n - 1]) == n && memcmp(h->entries[h->n - 1], text, n) == 0)
        return;
    if (h->n == h->cap) {
        size_t cap = h->cap * 2 + 64;
        char **grown = realloc(h->entries, cap * sizeof *grown);
        if (!grown)
            return;
        h->entries = grown;
        h->cap = cap;
    }
    char *copy = strndup(text, n);
    if (copy)
        h->entries[h->n++] = copy;
}

size_t history_count(const line_history *h) {
    return h->n;
}

const char *history_entry(const line_history *h, size_t i) {
    return h->entries[i];
}

/* ---- the file -------------------------------------------------------------------------------- */
static int usable_folder(const char *path) {
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

/* The path of the file, malloc'ed; makes its folders, but never a home folder. NULL: no file. */
static char *file_path(void) {
    static const char *const below_home[] = {"/.local", "/state", "/minerva"};
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    mn_text path = {0};
    int ok = 0;
    if (state && state[0] == '/') {
        mn_text_puts(&path, state);
        ok = !path.failed && usable_folder(path.ptr);
        mn_text_puts(&path, "/minerva");
        ok = ok && !path.failed && usable_folder(path.ptr);
    } else if (home && home[0] == '/' && access(home, F_OK) == 0) {
        mn_text_puts(&path, home);
        ok = 1;
        for (size_t i = 0; i < sizeof below_home / sizeof below_home[0]; i++) {
            mn_text_puts(&path, below_home[i]);
            ok = ok && !path.failed && usable_folder(path.ptr);
        }
    }
    if (path.len && !ok)
        note("the chat history is not stored: cannot make the folder %s: %s", path.ptr,
             strerror(errno));
    mn_text_puts(&path, "/chat_history");
    if (ok)
        return mn_text_take(&path);
    mn_text_free(&path);
    return NULL;
}

/* Opens or creates the file. -1: errno; EPERM: not a regular file that only this user can read. */
static int open_file(const char *path, int flags) {
    struct stat st;
    int fd = open(path, flags | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_nlink == 1 &&
        ((st.st_mode & 077) == 0 || fchmod(fd, 0600) == 0))
        return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

static void line_history_write_all(int fd, const char *bytes, size_t n) {
    while (n) {
        ssize_t wrote = write(fd, bytes, n);
        if (wrote <= 0)
            return; // a full disk: only the history is incomplete
        bytes += wrote;
        n -= (size_t)wrote;
    }
}

/* Appends the line of an entry. */
static void line_history_put_entry(mn_text *b, const char *text) {
    for (const char *s = text; *s; s++) {
        if (*s == '\\')
            mn_text_puts(b, "\\\\");
        else if (*s == '\n')
            mn_text_puts(b, "\\n");
        else
            mn_text_put(b, s, 1);
    }
    mn_text_puts(b, "\n");
}

static void append_entry(const line_history *h, const char *text) {
    mn_text line = {0};
    int fd = open_file(h->path, O_WRONLY | O_APPEND);
    line_history_put_entry(&line, text);
    if (fd >= 0 && !line.failed)
        line_history_write_all(fd, line.ptr, line.len);
    if (fd >= 0)
        close(fd);
    mn_text_free(&line);
}

/* Adds the entry of a line of n bytes to the list. */
static void take_entry(line_history *h, const char *line, size_t n) {
    mn_text text = {0};
    for (size_t i = 0; i < n; i++) {
        const int escaped = line[i] == '\\' && i + 1 < n;
        i += escaped;
        mn_text_put(&text, escaped && line[i] == 'n' ? "\n" : line + i, 1);
    }
    if (text.len && !text.failed && !memchr(text.ptr, 0, text.len))
        line_history_remember(h, text.ptr, text.len);
    mn_text_free(&text);
}

/* Reads the last MOST_BYTES of the file, from the first complete line on. */
static void take_file(line_history *h, int fd, off_t size) {
    off_t begin = size > (off_t)MOST_BYTES ? size - (off_t)MOST_BYTES : 0;
    char *bytes = malloc(MOST_BYTES);
    ssize_t n = bytes ? pread(fd, bytes, MOST_BYTES, begin) : 0;
    const char *at = bytes, *end = n > 0 ? bytes + n : bytes;
    int whole = begin == 0;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop)
            break;
        if (whole)
            take_entry(h, at, (size_t)(stop - at));
        whole = 1;
        at = stop + 1;
    }
    free(bytes);
}

/* Writes the newest entries to a new file and renames it to the old one. */
static void shorten_file(const line_history *h) {
    mn_text name = {0}, text = {0};
    mn_text_puts(&name, h->path);
    mn_text_puts(&name, ".new");
    for (size_t i = h->n > MOST_ENTRIES ? h->n - MOST_ENTRIES : 0; i < h->n; i++)
        line_history_put_entry(&text, h->entries[i]);
    if (!name.failed && !text.failed) {
        unlink(name.ptr);
        int fd = open(name.ptr, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0) {
            line_history_write_all(fd, text.ptr, text.len);
            if (fsync(fd) != 0 || close(fd) != 0 || rename(name.ptr, h->path) != 0)
                unlink(name.ptr);
        }
    }
    mn_text_free(&name);
    mn_text_free(&text);
}

/* Reads the file; one that cannot be used is not used from now on, with a note. */
static void line_history_read_file(line_history *h) {
    struct stat st;
    int fd = open_file(h->path, O_RDONLY);
    if (fd < 0) {
        const char *why = errno == EPERM ? "expected a regular file of this user" : strerror(errno);
        note("the chat history is not stored in %s: %s", h->path, why);
        free(h->path);
        h->path = NULL;
        return;
    }
    if (fstat(fd, &st) != 0)
        st.st_size = 0;
    take_file(h, fd, st.st_size);
    close(fd);
    if (h->n > 2 * (size_t)MOST_ENTRIES || st.st_size > (off_t)MOST_BYTES)
        shorten_file(h);
}

line_history *history_open(int keep) {
    line_history *h = calloc(1, sizeof *h);
    if (h && keep)
        h->path = file_path();
    if (h && h->path)
        line_history_read_file(h);
    return h;
}

void history_add(line_history *h, const char *text, size_t n) {
    if (n == 0 || memchr(text, 0, n))
        return;
    size_t before = h->n;
    line_history_remember(h, text, n);
    if (h->path && h->n > before && n <= LONGEST)
        append_entry(h, h->entries[before]);
}

void history_close(line_history *h) {
    if (!h)
        return;
    for (size_t i = 0; i < h->n; i++)
        free(h->entries[i]);
    free(h->entries);
    free(h->path);
    free(h);
}
