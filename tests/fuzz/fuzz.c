/* fuzz.c -- inputs of several parts, files in memory, and what must hold. */
#include "fuzz.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK "=== "
enum { PAGE = 4096 };
bool fuzz_accepted, fuzz_only_memory;
uint32_t fuzz_refused;
uint64_t fuzz_answer;
char fuzz_said[256];

void fuzz_broken(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}

bool fuzz_ok(mn_status status, const mn_error *err) {
    if (status && status != MN_END) {
        if (!err->msg[0] || !memchr(err->msg, 0, sizeof err->msg) || err->status != status)
            fuzz_broken(__FILE__, __LINE__, "a failure has a message");
        if (fuzz_only_memory && status != MN_OUT_OF_MEMORY)
            fprintf(stderr, "%s\n", err->msg);
        memcpy(fuzz_said, err->msg, MN_MIN(sizeof fuzz_said, sizeof err->msg) - 1);
    }
    return fuzz_well(status);
}

bool fuzz_well(mn_status status) {
    if (status && status != MN_END) {
        if (fuzz_only_memory && status != MN_OUT_OF_MEMORY)
            fuzz_broken(__FILE__, __LINE__, "memory is what is missing");
        fuzz_refused++;
    }
    return status == MN_OK;
}

void fuzz_answered(const void *bytes, size_t n) {
    if (n)
        fuzz_answer = mn_hash(bytes, n, fuzz_answer + n);
}

/* ---- parts ----------------------------------------------------------------------------------- */
static bool is_mark(const char *at, const char *end) {
    return (size_t)(end - at) >= sizeof MARK - 1 && !memcmp(at, MARK, sizeof MARK - 1);
}

/* The next "\n=== ", or end. */
static const char *next_mark(const char *at, const char *end) {
    for (; (at = memchr(at, '\n', (size_t)(end - at))); at++)
        if (is_mark(at + 1, end))
            return at;
    return end;
}

/* Libraries are not watched by ASan (cJSON, PCRE2): text ends where a page does, before one that
 * nobody may read. Tensors are read by our own code, and want to be aligned. */
static bool is_text(mn_str name) {
    return !mn_str_ends(name, ".gguf") && !mn_str_ends(name, ".safetensors");
}

static size_t pages(size_t n) {
    return (n + PAGE - 1) / PAGE * PAGE;
}

static char *room_for(mn_str name, size_t n) {
    if (!is_text(name))
        return malloc(n ? n : 1);
    char *base =
        mmap(NULL, pages(n) + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FUZZ_CHECK(base != MAP_FAILED);
    FUZZ_CHECK(!mprotect(base + pages(n), PAGE, PROT_NONE));
    return base + pages(n) - n;
}

static void add(fuzz_parts *out, mn_str name, const char *at, size_t n) {
    if (out->n == FUZZ_PARTS || !name.len)
        return;
    char *copy = room_for(name, n);
    FUZZ_CHECK(copy);
    if (n)
        memcpy(copy, at, n);
    out->file[out->n++] = (mn_file){name, copy, n, 0, 0};
}

void fuzz_split(const uint8_t *data, size_t n, const char *alone, fuzz_parts *out) {
    const char *at = (const char *)data;
    const char *end = at + n;
    out->n = 0;
    if (!n || !is_mark(at, end)) {
        add(out, mn_str_of(alone), at, n);
        return;
    }
    while (at < end) {
        const char *name = at + sizeof MARK - 1;
        const char *eol = memchr(name, '\n', (size_t)(end - name));
        const char *body = eol ? eol + 1 : end;
        const char *stop = eol && !is_mark(body, end) ? next_mark(body, end) : body;
        add(out, (mn_str){name, (uint64_t)((eol ? eol : end) - name)}, body, (size_t)(stop - body));
        at = stop < end && *stop == '\n' ? stop + 1 : stop;
    }
}

void fuzz_free(fuzz_parts *parts) {
    for (uint32_t i = 0; i < parts->n; i++) {
        const mn_file *f = &parts->file[i];
        char *at = (char *)(uintptr_t)f->map;
        if (is_text(f->name))
            munmap(at + f->bytes - pages(f->bytes), pages(f->bytes) + PAGE);
        else
            free(at);
    }
    parts->n = 0;
}

const mn_file *fuzz_part(const fuzz_parts *parts, const char *name) {
    for (uint32_t i = 0; i < parts->n; i++)
        if (mn_str_is(parts->file[i].name, name))
            return &parts->file[i];
    return NULL;
}

mn_str fuzz_text(const fuzz_parts *parts, const char *name, const char *otherwise) {
    const mn_file *f = fuzz_part(parts, name);
    return f ? (mn_str){f->map, f->bytes} : mn_str_of(otherwise);
}

/* ---- files ----------------------------------------------------------------------------------- */
static char folder[64], paths[FUZZ_PARTS][160];
static uint32_t n_paths;
static pid_t owner;

static void remove_folder(void) {
    if (getpid() != owner)
        return;
    fuzz_files_remove();
    rmdir(folder);
    *strrchr(folder, '/') = 0;
    rmdir(folder);
}

const char *fuzz_folder(void) {
    if (owner == getpid())
        return folder;
    owner = getpid();
    snprintf(folder, sizeof folder, "%s/minerva-fuzz-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    FUZZ_CHECK(mkdtemp(folder));
    setenv("XDG_CONFIG_HOME", folder, 1);
    strcat(folder, "/minerva");
    FUZZ_CHECK(!mkdir(folder, 0700));
    atexit(remove_folder);
    return folder;
}

void fuzz_file(const char *name, mn_str content, uint64_t zeros) {
    FUZZ_CHECK(n_paths < FUZZ_PARTS);
    char *path = paths[n_paths++];
    int len = snprintf(path, sizeof paths[0], "%s/%s", fuzz_folder(), name);
    FUZZ_CHECK(len > 0 && (size_t)len < sizeof paths[0]);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    FUZZ_CHECK(fd >= 0 && write(fd, content.ptr, content.len) == (ssize_t)content.len);
    FUZZ_CHECK(!zeros || !ftruncate(fd, (off_t)(content.len + zeros)));
    close(fd);
}

void fuzz_files_remove(void) {
    while (n_paths)
        unlink(paths[--n_paths]);
}

/* ---- the world ------------------------------------------------------------------------------- */
static void drop(void *arg, int32_t level, const char *msg) {
    (void)arg;
    (void)level;
    (void)msg;
}

void fuzz_plugins(const char *given, char *path, size_t n) {
    if (*given == '/') {
        snprintf(path, n, "%s", given);
        return;
    }
    char *full = realpath("/proc/self/exe", NULL);
    const char *slash = full ? strrchr(full, '/') : NULL;
    FUZZ_CHECK(slash);
    snprintf(path, n, "%.*s/%s", (int)(slash - full), full, given);
    free(full);
}

void fuzz_quiet(void) {
    mn_log_to(drop, NULL);
    fuzz_folder();
    setenv("TZ", "UTC", 1);
}
