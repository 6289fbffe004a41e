/* alias.c -- the list of names that the user gave to models: $XDG_CONFIG_HOME/minerva/aliases.ini,
 * else below ~/.config, a line "name = target" each; '#' and ';' begin comments. It is read as a
 * whole each time, and replaced as a whole. Comments do not survive a change. */
#include "hub/names.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIST_MAX = 1 << 20, ALIASES_MAX = 5000, NAME_BYTES = 96, TARGET_BYTES = 1024 };

/* Letters, digits, '.', '_' and '-', none of the last three in front. */
static bool is_name(mn_str s) {
    static const char chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    if (!s.len || s.len > NAME_BYTES || strchr("_.-", s.ptr[0]))
        return false;
    for (uint64_t i = 0; i < s.len; i++)
        if (!s.ptr[i] || !strchr(chars, s.ptr[i]))
            return false;
    return true;
}

static bool is_target(mn_str s) {
    for (uint64_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] < 32)
            return false;
    return s.len && s.len <= TARGET_BYTES && mn_utf8_check(s.ptr, (size_t)s.len) == s.len;
}

void mn_aliases_free(mn_aliases *a) {
    for (uint32_t i = 0; i < a->n; i++) {
        mn_free(a->names[i]);
        mn_free(a->targets[i]);
    }
    mn_free(a->names);
    mn_free(a->targets);
    mn_free(a->path);
    *a = (mn_aliases){0};
}

const char *mn_aliases_target(const mn_aliases *a, const char *name) {
    for (uint32_t i = 0; i < a->n; i++)
        if (!strcmp(a->names[i], name))
            return a->targets[i];
    return NULL;
}

/* Appends a pair, or replaces the target of a name that is there. */
static mn_status put(mn_aliases *a, mn_str name, mn_str target, mn_error *err) {
    char *copy = mn_strndup(target.ptr, (size_t)target.len);
    if (!copy)
        return mn_fail_memory(err, target.len);
    for (uint32_t i = 0; i < a->n; i++)
        if (mn_str_is(name, a->names[i])) {
            mn_free(a->targets[i]);
            a->targets[i] = copy;
            return MN_OK;
        }
    if (a->n == ALIASES_MAX) {
        mn_free(copy);
        return mn_fail(err, MN_BAD_INPUT, "%s: found more than %d aliases, expected at most that",
                       a->path, ALIASES_MAX);
    }
    void *names = a->names;
    void *targets = a->targets;
    const bool one = mn_grow(&names, &a->cap_names, a->n + 1u, sizeof *a->names);
    const bool two = mn_grow(&targets, &a->cap_targets, a->n + 1u, sizeof *a->targets);
    a->names = names;
    a->targets = targets;
    char *key = one && two ? mn_strndup(name.ptr, (size_t)name.len) : NULL;
    if (!key) {
        mn_free(copy);
        return mn_fail_memory(err, name.len);
    }
    a->names[a->n] = key;
    a->targets[a->n++] = copy;
    return MN_OK;
}

static mn_str trim(const char *from, const char *to) {
    while (from < to && strchr(" \t\r", *from))
        from++;
    while (to > from && strchr(" \t\r", to[-1]))
        to--;
    return (mn_str){from, (uint64_t)(to - from)};
}

static mn_status read_lines(mn_aliases *a, const char *text, mn_error *err) {
    mn_status st = MN_OK;
    int line = 0;
    while (*text && !st) {
        const char *end = text + strcspn(text, "\n");
        const char *equals = memchr(text, '=', (size_t)(end - text));
        const mn_str whole = trim(text, end);
        const mn_str name = equals ? trim(text, equals) : whole;
        const mn_str target = equals ? trim(equals + 1, end) : (mn_str){end, 0};
        line++;
        text = end + (*end == '\n');
        if (!whole.len || whole.ptr[0] == '#' || whole.ptr[0] == ';')
            continue;
        if (!is_name(name) || !is_target(target))
            st = mn_fail(err, MN_BAD_INPUT, "%s:%d: found \"%.*s\", expected name = target",
                         a->path, line, MN_STR_ARG(whole));
        else
            st = put(a, name, target, err);
    }
    return st;
}

/* The list as text; *out NULL: there is none. One that cannot be read is an error: mn_aliases_set
 * would put a list in its place that has none of its names. */
static mn_status read_list(const char *path, char **out, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    uint64_t n = 0;
    const mn_status st = mn_read_file(path, LIST_MAX, out, &n, &why);
    if (st == MN_OUT_OF_MEMORY)
        return mn_fail_memory(err, n);
    if (st && (why.vendor_code == ENOENT || why.vendor_code == ENOTDIR))
        return MN_OK;
    if (st)
        return mn_fail(err, st, "%s", why.msg);
    if (memchr(*out, 0, (size_t)n))
        return mn_fail(err, MN_BAD_INPUT, "%s: found a NUL, expected lines of text", path);
    return MN_OK;
}

mn_status mn_aliases_read(mn_aliases *out, mn_error *err) {
    static const char tail[] = "minerva/aliases.ini";
    mn_aliases a = {0};
    char *text = NULL;
    mn_status st = mn_user_path("XDG_CONFIG_HOME", "~/.config", tail, &a.path, err);
    if (!st && a.path)
        st = read_list(a.path, &text, err);
    if (!st && text)
        st = read_lines(&a, text, err);
    mn_free(text);
    if (st)
        mn_aliases_free(&a);
    else
        *out = a;
    return st;
}

/* ---- writing --------------------------------------------------------------------------------- */
static mn_status write_all(int fd, const char *path, const mn_text *text, mn_error *err) {
    for (size_t at = 0; at < text->len;) {
        const ssize_t n = write(fd, text->ptr + at, text->len - at);
        if (n < 0 && errno != EINTR)
            return mn_fail_errno(err, path, "cannot write");
        at += n > 0 ? (size_t)n : 0;
    }
    return fsync(fd) ? mn_fail_errno(err, path, "cannot write") : MN_OK;
}

/* The folders above the file; what is there already is no error. */
static void make_folders(const char *path) {
    char part[PATH_MAX];
    for (size_t i = 1; path[i] && i < sizeof part; i++)
        if (path[i] == '/') {
            memcpy(part, path, i);
            part[i] = 0;
            mkdir(part, 0700);
        }
}

static mn_status replace(const char *path, const mn_text *text, mn_error *err) {
    mn_text temp = {0};
    mn_text_printf(&temp, "%s.tmp-%ld", path, (long)getpid());
    if (temp.failed)
        return mn_fail_memory(err, strlen(path));
    make_folders(path);
    unlink(temp.ptr);
    const int fd = open(temp.ptr, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    mn_status st =
        fd < 0 ? mn_fail_errno(err, path, "cannot write") : write_all(fd, path, text, err);
    if (fd >= 0 && close(fd) && !st)
        st = mn_fail_errno(err, path, "cannot write");
    if (!st && rename(temp.ptr, path))
        st = mn_fail_errno(err, path, "cannot replace");
    if (st && fd >= 0)
        unlink(temp.ptr);
    mn_text_free(&temp);
    return st;
}

static mn_status write_list(const mn_aliases *a, const char *without, mn_error *err) {
    mn_text text = {0};
    mn_text_puts(&text, "# names of models, written by minerva alias\n");
    for (uint32_t i = 0; i < a->n; i++)
        if (!without || strcmp(a->names[i], without))
            mn_text_printf(&text, "%s = %s\n", a->names[i], a->targets[i]);
    mn_status st = text.failed ? mn_fail_memory(err, text.len) : replace(a->path, &text, err);
    mn_text_free(&text);
    return st;
}

/* Whether the chain of targets from name comes back to name. */
static bool is_circle(const mn_aliases *a, const char *name) {
    const char *at = mn_aliases_target(a, name);
    for (uint32_t i = 0; at && i <= a->n; i++) {
        if (!strcmp(at, name))
            return true;
        at = mn_aliases_target(a, at);
    }
    return at != NULL;
}

mn_status mn_aliases_set(const char *name, const char *target, mn_error *err) {
    mn_aliases a = {0};
    if (!is_name(mn_str_of(name)))
        return mn_fail(err, MN_BAD_INPUT,
                       "\"%.100s\" is no name of an alias: expected 1 to %d letters, digits, '.', "
                       "'_' and '-', a letter or digit first",
                       name, NAME_BYTES);
    if (target && !is_target(mn_str_of(target)))
        return mn_fail(err, MN_BAD_INPUT, "\"%.100s\" is no name of a model", target);
    mn_status st = mn_aliases_read(&a, err);
    if (!st && !a.path)
        st = mn_fail(err, MN_IO_ERROR, "there is no home folder for the list of aliases");
    if (!st && !target && !mn_aliases_target(&a, name))
        st = mn_fail(err, MN_END, "%s: there is no such alias", name);
    if (!st && target)
        st = put(&a, mn_str_of(name), mn_str_of(target), err);
    if (!st && target && is_circle(&a, name))
        st = mn_fail(err, MN_BAD_INPUT, "%s = %s: the alias would stand for itself", name, target);
    if (!st)
        st = write_list(&a, target ? NULL : name, err);
    mn_aliases_free(&a);
    return st;
}
