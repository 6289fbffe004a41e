/* static_place.c -- group static: where the file lies, and where its libraries are looked for. */
#include "check.h"
#include "elf_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

void check_static_name(check *c) {
    const char *slash = strrchr(c->path, '/'), *base = slash ? slash + 1 : c->path,
               *dot = strrchr(base, '.');
    CHECK(c, dot && dot != base && !strcmp(dot, ".so"),
          "found the name %s, expected NAME.so: the host looks at these only", base);
}

/* May anybody put a file of this name there? The nearest folder that exists decides; /tmp and its
 * like are open to all, but what lies in them is its owner's. own: the folder that holds the file
 * itself. */
static int open_to_all(const char *path) {
    char at[4096];
    struct stat st;
    snprintf(at, sizeof at, "%s", path);
    for (int own = 1; at[0];) {
        int there = stat(at, &st) == 0;
        if (there && st.st_mode & S_IWOTH && (own || !(st.st_mode & S_ISVTX)))
            return 1;
        if (there)
            own = 0;
        char *slash = strrchr(at, '/');
        if (!slash || !at[1])
            break;
        slash[slash == at] = 0;
    }
    return 0;
}

void check_static_writable(check *c) {
    struct stat st;
    char folder[4096];
    CHECK(c, !stat(c->path, &st), "%s cannot be looked at", c->path);
    CHECK(c, !(st.st_mode & S_IWOTH),
          "found mode %04o: everybody may write the file; expected chmod o-w",
          (unsigned)st.st_mode & 07777);
    CHECK(c, st.st_uid == 0 || st.st_uid == geteuid(),
          "found owner %u, expected root or %u, who runs this", (unsigned)st.st_uid,
          (unsigned)geteuid());
    snprintf(folder, sizeof folder, "%s", c->path);
    if (strrchr(folder, '/'))
        strrchr(folder, '/')[strrchr(folder, '/') == folder] = 0;
    CHECK(
        c, !open_to_all(folder),
        "found %s or a folder above it open for everybody to write; the host refuses such a plugin",
        folder);
}

/* One element of a search path: "" and "lib" mean the current directory of whoever runs the
 * host. */
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
          "found \"%s\" in RPATH or RUNPATH: everybody may put a library there", folder);
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
        for (size_t n; n = strcspn(path, ":"), judge_folder(c, path, n), path[n];)
            path += n + 1;
    }
}

/* ---- does it resolve? Asked of the dynamic linker as ldd -r does, in a process that holds nothing
 * of the host's ---- */
static int interpreter(char dst[256]) {
    char head[4096];
    FILE *self = fopen("/proc/self/exe", "rb");
    size_t n = self ? fread(head, 1, sizeof head, self) : 0;
    Elf64_Ehdr e;
    Elf64_Phdr p;
    if (self)
        fclose(self);
    if (!elf_is_native(head, n) || n < sizeof e)
        return 0;
    memcpy(&e, head, sizeof e);
    for (uint64_t i = 0, at; i < e.e_phnum; i++) {
        at = e.e_phoff + i * sizeof p;
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

static pid_t trace(const char *linker, const char *file, int to) {
    pid_t pid = fork();
    if (pid)
        return pid;
    dup2(to, 1), dup2(to, 2);
    unsetenv("LD_PRELOAD");
    unsetenv("LD_LIBRARY_PATH");
    setenv("LD_TRACE_LOADED_OBJECTS", "1", 1);
    setenv("LD_WARN", "yes", 1);
    setenv("LD_BIND_NOW", "yes", 1);
    execl(linker, linker, file, (char *)NULL);
    _exit(127);
}

/* ld.so's words for what it did not find. */
static int complains(const char *line) {
    return strstr(line, "undefined symbol") || strstr(line, "not found") ||
           strstr(line, "error while loading");
}

void check_static_resolves(check *c) {
    char linker[256], line[1024], first[512] = "";
    int ends[2], how = 0;
    elf_file f;
    if (elf_open(&f, c->bytes, c->n_bytes) || !interpreter(linker)) {
        check_skip(c, "no dynamic linker for such a file here");
        return;
    }
    CHECK(c, !pipe(ends), "no pipe");
    pid_t pid = trace(linker, c->path, ends[1]);
    close(ends[1]);
    FILE *in = fdopen(ends[0], "r");
    while (in && fgets(line, sizeof line, in))
        if (complains(line) && !first[0])
            snprintf(first, sizeof first, "%.*s", (int)strcspn(line, "\n"),
                     line + strspn(line, " \t"));
    if (in)
        fclose(in);
    waitpid(pid, &how, 0);
    CHECK(c, !first[0],
          "the dynamic linker, which was given the plugin and what it links against, says: %s",
          first);
    if (!WIFEXITED(how) || WEXITSTATUS(how) == 127)
        check_skip(c, "%s does not run", linker);
}
