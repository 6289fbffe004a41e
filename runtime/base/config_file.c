/* config_file.c -- a minerva.ini line by line, on top of inih. inih cuts long lines silently, takes
 * an indented line for more of the one before, and believes any section: here each line stands for
 * itself, may be as long as the file, and is text. */
#include "base/config_file.h"
#include <errno.h>
#include <ini.h>
#include <string.h>

typedef struct {
    mn_config_line_fn on_line;
    void *arg;
    const char *path, *rest, *end; /* rest: what inih has not read yet */
    int line;
    char *value;      /* of a line that is too long for inih; else NULL */
    mn_status status; /* of the first mistake: reading ends there */
    mn_error *err;
} ini_file;

bool mn_config_is_id(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9') || s[i] == '_'))
            return false;
    return n > 0;
}

static bool ini_is_blank(char c) {
    return c == ' ' || c == '\t';
}

/* [minerva] or [plugin.ID], and a comment behind it. inih itself believes any name and drops what
 * follows. */
static mn_status check_section(const ini_file *f, const char *at, size_t n) {
    const char *close = memchr(at, ']', n);
    const char *name = at + 1;
    if (!close)
        return MN_OK; /* inih says what is wrong */
    size_t len = (size_t)(close - name);
    size_t rest = n - len - 2;
    bool known = len == 7 && !memcmp(name, "minerva", 7);
    known = known || (len > 7 && len < MN_CONFIG_NAME_CAP && !memcmp(name, "plugin.", 7) &&
                      mn_config_is_id(name + 7, len - 7));
    while (rest && ini_is_blank(close[1])) {
        close++;
        rest--;
    }
    if (known && (!rest || close[1] == ';' || close[1] == '#'))
        return MN_OK;
    if (known)
        return mn_fail(f->err, MN_BAD_INPUT,
                       "%s:%d: found \"%.*s\" behind a section, expected a line of its own",
                       f->path, f->line, (int)MN_MIN(rest, (size_t)80), close + 1);
    return mn_fail(
        f->err, MN_BAD_INPUT,
        "%s:%d: found section [%.*s], expected [minerva] or [plugin.ID], at most %d bytes", f->path,
        f->line, (int)MN_MIN(len, (size_t)80), name, MN_CONFIG_NAME_CAP - 1);
}

/* A line longer than inih's: it gets the key and one letter, the value is kept here, cut at " ;" as
 * inih would. */
static size_t ini_shorten(ini_file *f, const char *at, size_t n, char *out, size_t cap) {
    size_t head = 0;
    while (head < n && at[head] != '=' && at[head] != ':')
        head++;
    if (head == n || head + 4 > cap || *at == '[') {
        f->status = mn_fail(f->err, MN_BAD_INPUT,
                            "%s:%d: found %zu bytes, expected [section] or key = value", f->path,
                            f->line, n);
        return 0;
    }
    const char *value = at + head + 1;
    size_t len = n - head - 1;
    while (len && ini_is_blank(*value)) {
        value++;
        len--;
    }
    for (size_t i = 0; i < len; i++)
        if (value[i] == ';' && (!i || ini_is_blank(value[i - 1])))
            len = i;
    while (len && ini_is_blank(value[len - 1]))
        len--;
    f->value = mn_strndup(value, len);
    if (!f->value)
        f->status = mn_fail_memory(f->err, len);
    memcpy(out, at, head + 1);
    memcpy(out + head + 1, "~", 2);
    return head + 2;
}

/* The next line, without a byte order mark, blanks at its start and the line end: its length, 0 for
 * a comment. */
static size_t ini_take_line(ini_file *f, const char **line) {
    const char *eol = memchr(f->rest, '\n', (size_t)(f->end - f->rest));
    const char *end = eol ? eol : f->end;
    const char *at = f->rest;
    f->rest = eol ? eol + 1 : f->end;
    if (!f->line++ && end - at >= 3 && !memcmp(at, "\xEF\xBB\xBF", 3))
        at += 3;
    if (end > at && end[-1] == '\r')
        end--;
    while (at < end && ini_is_blank(*at))
        at++;
    *line = at;
    if (at < end && (*at == ';' || *at == '#'))
        return 0;
    return (size_t)(end - at);
}

/* inih's fgets: the library cuts long lines silently and takes an indented line for more of the one
 * before; here both are lines like any other. */
static char *ini_read_line(char *out, int cap, void *arg) {
    ini_file *f = arg;
    mn_free(f->value); /* inih passes over lines that it cannot read */
    f->value = NULL;
    if (f->rest == f->end || f->status != MN_OK)
        return NULL;
    const char *at = NULL;
    size_t n = ini_take_line(f, &at);
    for (size_t i = 0; i < n && f->status == MN_OK; i++)
        if ((unsigned char)at[i] < 32 && at[i] != '\t')
            f->status = mn_fail(f->err, MN_BAD_INPUT, "%s:%d: found a byte %d, expected text",
                                f->path, f->line, at[i]);
    if (f->status == MN_OK && n && *at == '[')
        f->status = check_section(f, at, n);
    if (f->status == MN_OK && n + 2 > (size_t)cap)
        n = ini_shorten(f, at, n, out, (size_t)cap);
    else if (f->status == MN_OK)
        memcpy(out, at, n);
    if (f->status != MN_OK)
        return NULL;
    memcpy(out + n, "\n", 2);
    return out;
}

static int ini_on_line(void *arg, const char *section, const char *name, const char *value) {
    ini_file *f = arg;
    const mn_config_line line = {
        .path = f->path,
        .line = f->line,
        .section = section,
        .name = name,
        .value = f->value ? f->value : value,
    };
    if (f->status == MN_OK)
        f->status = f->on_line(f->arg, &line, f->err);
    mn_free(f->value);
    f->value = NULL;
    return f->status == MN_OK;
}

/* The text of a line that is neither [section] nor key = value. */
static mn_status fail_syntax(const ini_file *f, const char *data, int line) {
    for (int i = 1; i < line; i++)
        data += strcspn(data, "\n") + 1;
    return mn_fail(f->err, MN_BAD_INPUT, "%s:%d: found \"%.*s\", expected [section] or key = value",
                   f->path, line, (int)MN_MIN(strcspn(data, "\r\n"), (size_t)80), data);
}

mn_status mn_config_read_file(const char *path, mn_config_line_fn on_line, void *arg,
                              mn_error *err) {
    char *data = NULL;
    uint64_t bytes = 0;
    mn_error why = MN_ERROR_INIT;
    mn_status status = mn_read_file(path, 1 << 20, &data, &bytes, &why);
    if (status != MN_OK) {
        if (why.vendor_code == ENOENT || why.vendor_code == ENOTDIR)
            return MN_OK;
        return mn_fail(err, status, "%s", why.msg);
    }
    ini_file f = {
        .on_line = on_line,
        .arg = arg,
        .path = path,
        .rest = data,
        .end = data + bytes,
        .err = err,
    };
    int code = ini_parse_stream(ini_read_line, &f, ini_on_line, &f);
    status = f.status;
    if (code > 0 && (status == MN_OK || code < f.line))
        status = fail_syntax(&f, data, code);
    if (code < 0 && status == MN_OK)
        status = mn_fail_memory(err, bytes);
    mn_free(f.value);
    mn_free(data);
    return status;
}
