/* file.c -- reading files; paths. Model files are opened by map.c, what is kept for later starts is
 * in cache.c. */
#include "base/base.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

mn_status mn_fail_errno(mn_error *err, const char *path, const char *what) {
    int code = errno;
    mn_fail(err, code == ENOMEM ? MN_OUT_OF_MEMORY : MN_IO_ERROR, "%s: %s: %s", path, what,
            strerror(code));
    if (err)
        err->vendor_code = code;
    return code == ENOMEM ? MN_OUT_OF_MEMORY : MN_IO_ERROR;
}

/* O_NONBLOCK: opening a FIFO must not wait for a writer; it is refused right after. */
mn_status mn_open_regular(const char *path, int *fd, struct stat *st, mn_error *err) {
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return mn_fail_errno(err, path, "cannot open");
    mn_status status = MN_OK;
    if (fstat(*fd, st))
        status = mn_fail_errno(err, path, "cannot stat");
    else if (S_ISDIR(st->st_mode))
        status = mn_fail(err, MN_IO_ERROR, "%s: is a folder, expected a file", path);
    else if (!S_ISREG(st->st_mode))
        status = mn_fail(err, MN_IO_ERROR,
                         "%s: is a device, pipe or socket, expected a regular file", path);
    if (status != MN_OK)
        close(*fd);
    return status;
}

/* Appends all that fd holds, one byte beyond max at most. */
static mn_status file_read_all(int fd, const char *path, uint64_t max, mn_text *text,
                               mn_error *err) {
    char chunk[1 << 14];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return mn_fail_errno(err, path, "cannot read");
        if (n == 0)
            return MN_OK;
        if ((uint64_t)n > max - text->len)
            return mn_fail(err, MN_IO_ERROR, "%s: is larger than the %llu bytes allowed here", path,
                           (unsigned long long)max);
        mn_text_put(text, chunk, (size_t)n);
        if (text->failed)
            return mn_fail_memory(err, text->len + (size_t)n);
    }
}

bool mn_is_companion(const char *name) {
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "tokenizer.model",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "chat_template.jinja",
                                        "generation_config.json",
                                        "config.json",
                                        "modules.json",
                                        "spiece.model",
                                        "spm.model",
                                        "sentencepiece.bpe.model",
                                        "tiktoken.model"};
    for (size_t i = 0; i < MN_COUNT(names); i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

const mn_file *mn_file_named(const mn_file *files, uint32_t n, const char *name) {
    for (uint32_t i = 0; i < n; i++)
        if (mn_str_is(files[i].name, name))
            return &files[i];
    return NULL;
}

mn_status mn_companion_text(mn_str *text, uint32_t max, const char *name, mn_error *err) {
    static const char mark[] = "\xEF\xBB\xBF";
    if (text->len > max)
        return mn_fail(err, MN_BAD_FILE, "%s: found %llu bytes, expected at most %u", name,
                       (unsigned long long)text->len, max);
    if (text->len >= 3 && !memcmp(text->ptr, mark, 3)) {
        text->ptr += 3;
        text->len -= 3;
    }
    return MN_OK;
}

mn_status mn_companion(const mn_file *files, uint32_t n, const char *name, uint32_t max,
                       mn_str *out, mn_error *err) {
    if (!mn_is_companion(name)) /* it is never mapped */
        return mn_fail(err, MN_INVALID, "%s: not in the list of companion files", name);
    const mn_file *file = mn_file_named(files, n, name);
    *out = file ? (mn_str){file->map, file->bytes} : (mn_str){NULL, 0};
    return mn_companion_text(out, max, name, err);
}

mn_status mn_read_file(const char *path, uint64_t max, char **data, uint64_t *bytes,
                       mn_error *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* nobody waits for a pipe's writer */
    if (fd < 0)
        return mn_fail_errno(err, path, "cannot open");
    mn_text text = {0};
    struct stat st;
    mn_status status = MN_OK;
    if (fstat(fd, &st))
        status = mn_fail_errno(err, path, "cannot stat");
    else if (S_ISDIR(st.st_mode))
        status = mn_fail(err, MN_IO_ERROR, "%s: is a folder, expected a file", path);
    else if (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode))
        status = mn_fail(err, MN_IO_ERROR, "%s: is a pipe or socket, expected a file", path);
    else
        status = file_read_all(fd, path, max, &text, err);
    close(fd);
    if (status == MN_OK)
        mn_text_put(&text, "", 0); /* the NUL, also for an empty file */
    if (status == MN_OK && text.failed)
        status = mn_fail_memory(err, 1);
    if (status != MN_OK)
        return mn_text_free(&text), status;
    *data = text.ptr;
    if (bytes)
        *bytes = text.len;
    return MN_OK;
}

bool mn_path_is_dir(const char *path) {
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

bool mn_path_exists(const char *path) {
    struct stat st;
    return !stat(path, &st);
}

char *mn_path_join(const char *a, const char *b) {
    mn_text path = {0};
    size_t n = strlen(a);
    mn_text_put(&path, a, n);
    if (n && a[n - 1] != '/' && *b)
        mn_text_put(&path, "/", 1);
    mn_text_puts(&path, b);
    if (!path.failed)
        return path.ptr;
    mn_text_free(&path);
    return NULL;
}

bool mn_path_of_object(const void *address, char out[PATH_MAX]) {
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return false;
    /* The program itself has no name there, and argv[0] may be anything. */
    if (!realpath(map->l_name[0] ? map->l_name : "/proc/self/exe", out))
        return false;
    char *slash = strrchr(out, '/');
    if (slash)
        slash[slash == out] = 0;
    return slash != NULL;
}
