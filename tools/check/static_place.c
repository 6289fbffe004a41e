/* static_place.c -- group static: the file's name, owner and folders, the folders that its
 * libraries are searched in, and whether all its symbols resolve. The last is asked of the
 * dynamic linker in a process of its own, as ldd -r does it, since that process must hold no
 * symbol of the host. */
#include "check.h"
#include "elf_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

void check_static_name(check *c) {
    const char *slash = strrchr(c->path, '/');
    const char *base = slash ? slash + 1 : c->path;
    const char *dot = strrchr(base, '.');
    CHECK(c, dot && dot != base && !strcmp(dot, ".so"),
          "found the name %s, expected NAME.so: the host ignores other names", base);
}

/* Path becomes its folder: "/a/b" -> "/a" -> "/". 0 = it has none. */
static int to_folder(char *path) {
    char *slash = strrchr(path, '/');
    if (!slash || !path[1])
        return 0;
    slash[slash == path] = 0;
    return 1;
}

/* Whether every user can put a file into the folder, or replace a folder above it. Folders that
 * do not exist are ignored. In a sticky folder above (/tmp), files can be replaced by their
 * owner alone. */
static int open_to_all(const char *folder) {
    char at[4096];
    struct stat st;
    int is_first = 1;
    snprintf(at, sizeof at, "%s", folder);
    do {
        if (stat(at, &st))
            continue;
        const int sticky = st.st_mode & S_ISVTX;
        if (st.st_mode & S_IWOTH && (is_first || !sticky))
            return 1;
        is_first = 0;
    } while (to_folder(at));
    return 0;
}

void check_static_writable(check *c) {
    struct stat st;
    char folder[4096];
    CHECK(c, !stat(c->path, &st), "stat of %s fails", c->path);
    CHECK(c, !(st.st_mode & S_IWOTH),
          "found mode %04o, which lets every user write the file, expected chmod o-w",
          (unsigned)st.st_mode & 07777);
    CHECK(c, st.st_uid == 0 || st.st_uid == geteuid(),
          "found owner %u, expected root or %u, the user of this process", (unsigned)st.st_uid,
          (unsigned)geteuid());
    snprintf(folder, sizeof folder, "%s", c->path);
    to_folder(folder);
    CHECK(c, !open_to_all(folder),
          "found %s or a folder above it writable by every user; the host refuses such a plugin",
          folder);
}

/* One element of a search path, n bytes. "" and "lib" mean the current directory of the process
 * that opens the plugin. */
static void judge_folder(check *c, const char *at, size_t n) {
    char folder[4096];
    if (n >= sizeof folder)
        n = sizeof folder - 1;
    memcpy(folder, at, n);
    folder[n] = 0;
    CHECK(c, n, "found an empty element in RPATH or RUNPATH: it means the current directory");
    if (!strncmp(folder, "$ORIGIN", 7) || !strncmp(folder, "${ORIGIN}", 9))
        return;
    CHECK(c, folder[0] == '/',
          "found \"%s\" in RPATH or RUNPATH, expected a path from / or $ORIGIN", folder);
    CHECK(c, !open_to_all(folder),
          "found \"%s\" in RPATH or RUNPATH, where every user can put a library", folder);
}

void check_static_runpath(check *c) {
    elf_file f;
    if (elf_open(&f, c->bytes, c->n_bytes)) {
        check_skip(c, "the file cannot be read as a plugin (static.elf, static.machine)");
        return;
    }
    for (uint64_t i = 0; i < f.n_dynamic; i++) {
        Elf64_Dyn d = elf_dynamic(&f, i);
        if (d.d_tag != DT_RPATH && d.d_tag != DT_RUNPATH)
            continue;
        const char *path = elf_string(&f, d.d_un.d_val);
        check_found(c, "%s", path);
        size_t n = strcspn(path, ":");
        judge_folder(c, path, n);
        while (path[n]) {
            path += n + 1;
            n = strcspn(path, ":");
            judge_folder(c, path, n);
        }
    }
}

/* ---- symbols --------------------------------------------------------------------------------- */
/* The start of this program's own file; the number of bytes. */
static size_t read_self(char *head, size_t room) {
    FILE *self = fopen("/proc/self/exe", "rb");
    if (!self)
        return 0;
    const size_t n = fread(head, 1, room, self);
    fclose(self);
    return n;
}

/* The path of the dynamic linker that this program names; 0 = none. */
static int interpreter(char dst[256]) {
    char head[4096];
    const size_t n = read_self(head, sizeof head);
    Elf64_Ehdr e;
    if (!elf_is_native(head, n) || n < sizeof e)
        return 0;
    memcpy(&e, head, sizeof e);
    for (uint64_t i = 0; i < e.e_phnum; i++) {
        Elf64_Phdr p;
        const uint64_t at = e.e_phoff + i * sizeof p;
        if (at > n || n - at < sizeof p)
            return 0;
        memcpy(&p, head + at, sizeof p);
        if (p.p_type != PT_INTERP)
            continue;
        if (p.p_offset > n || p.p_filesz > n - p.p_offset || !p.p_filesz || p.p_filesz > 256)
            return 0;
        memcpy(dst, head + p.p_offset, p.p_filesz);
        dst[p.p_filesz - 1] = 0;
        return 1;
    }
    return 0;
}

/* Starts the dynamic linker on the file as ldd -r does, with its output to descriptor `to`. */
static pid_t trace(const char *linker, const char *file, int to) {
    pid_t pid = fork();
    if (pid)
        return pid;
    dup2(to, 1);
    dup2(to, 2);
    unsetenv("LD_PRELOAD");
    unsetenv("LD_LIBRARY_PATH");
    setenv("LD_TRACE_LOADED_OBJECTS", "1", 1);
    setenv("LD_WARN", "yes", 1);
    setenv("LD_BIND_NOW", "yes", 1);
    execl(linker, linker, file, (char *)NULL);
    _exit(127);
}

/* Whether a line of ld.so's output reports that something was not found. */
static int is_complaint(const char *line) {
    return strstr(line, "undefined symbol") || strstr(line, "not found") ||
           strstr(line, "error while loading");
}

void check_static_resolves(check *c) {
    char linker[256];
    char line[1024];
    char first[512] = "";
    int ends[2];
    int how = 0;
    elf_file f;
    if (elf_open(&f, c->bytes, c->n_bytes) || !interpreter(linker)) {
        check_skip(c, "no dynamic linker for such a file here");
        return;
    }
    CHECK(c, !pipe(ends), "pipe fails");
    pid_t pid = trace(linker, c->path, ends[1]);
    close(ends[1]);
    FILE *in = fdopen(ends[0], "r");
    while (in && fgets(line, sizeof line, in))
        if (is_complaint(line) && !first[0])
            snprintf(first, sizeof first, "%.*s", (int)strcspn(line, "\n"),
                     line + strspn(line, " \t"));
    if (in)
        fclose(in);
    waitpid(pid, &how, 0);
    CHECK(c, !first[0],
          "the dynamic linker does not find all libraries and symbols of the plugin: %s", first);
    if (!WIFEXITED(how) || WEXITSTATUS(how) == 127)
        check_skip(c, "%s does not run", linker);
}
