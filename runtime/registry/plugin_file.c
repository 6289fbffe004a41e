/* plugin_file.c -- may this file be opened as a plugin? dlopen runs whatever the file holds, so the
 * questions come first: who may write it (trust.c), is it an ELF file for this machine, what does
 * its note say. */
#include "registry/internal.h"
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- for this processor? --------------------------------------------------------------------- */

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#elif defined(__riscv)
#define OWN_MACHINE EM_RISCV
#elif defined(__powerpc64__)
#define OWN_MACHINE EM_PPC64
#elif defined(__s390x__)
#define OWN_MACHINE EM_S390
#elif defined(__loongarch__)
#define OWN_MACHINE 258
#elif defined(__i386__)
#define OWN_MACHINE EM_386
#elif defined(__arm__)
#define OWN_MACHINE EM_ARM
#else
#define OWN_MACHINE 0 /* not known here: dlopen decides */
#endif

static const char *plugin_file_machine_name(unsigned machine) {
    switch (machine) {
    case EM_X86_64:
        return "x86-64";
    case EM_AARCH64:
        return "aarch64";
    case EM_RISCV:
        return "riscv";
    case EM_PPC64:
        return "ppc64";
    case EM_S390:
        return "s390";
    case EM_386:
        return "i386";
    case EM_ARM:
        return "arm";
    case 258:
        return "loongarch";
    default:
        return "another machine";
    }
}

/* A file cut short, by a full disk or a broken download, would be mapped and then crash the
 * process: dlopen does not look. */
static mn_status plugin_file_check_segments(int fd, uint64_t bytes, mn_error *err) {
    ElfW(Ehdr) head;
    if (pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head)
        return mn_fail(err, MN_BAD_FILE, "truncated: %llu bytes", (unsigned long long)bytes);
    if (head.e_phentsize != sizeof(ElfW(Phdr)) || !head.e_phnum)
        return mn_fail(err, MN_BAD_FILE, "no segments to load");
    for (unsigned i = 0; i < head.e_phnum; i++) {
        ElfW(Phdr) segment;
        uint64_t at, end;
        if (!mn_add_u64(head.e_phoff, (uint64_t)i * sizeof segment, &at) || at > bytes ||
            pread(fd, &segment, sizeof segment, (off_t)at) != (ssize_t)sizeof segment)
            return mn_fail(err, MN_BAD_FILE, "truncated: %llu bytes", (unsigned long long)bytes);
        if (segment.p_type != PT_LOAD && segment.p_type != PT_DYNAMIC)
            continue;
        if (!mn_add_u64(segment.p_offset, segment.p_filesz, &end))
            end = UINT64_MAX;
        if (end > bytes)
            return mn_fail(err, MN_BAD_FILE, "truncated: %llu bytes, expected %llu or more",
                           (unsigned long long)bytes, (unsigned long long)end);
    }
    return MN_OK;
}

static mn_status check_elf(int fd, uint64_t bytes, mn_error *err) {
    unsigned char head[20]; /* e_ident, e_type, e_machine: the same place in 32 and 64 bits */
    uint16_t type, machine, one = 1;
    if (pread(fd, head, sizeof head, 0) != (ssize_t)sizeof head ||
        memcmp(head, ELFMAG, SELFMAG) != 0)
        return mn_fail(err, MN_BAD_FILE, "not an ELF file");
    int own_class = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32;
    if (head[EI_CLASS] != own_class)
        return mn_fail(err, MN_BAD_FILE, "built for %s-bit programs, expected %d-bit",
                       head[EI_CLASS] == ELFCLASS32 ? "32" : "64", (int)sizeof(void *) * 8);
    if (head[EI_DATA] != (*(unsigned char *)&one ? ELFDATA2LSB : ELFDATA2MSB))
        return mn_fail(err, MN_BAD_FILE, "built for the other byte order");
    memcpy(&type, head + 16, sizeof type);
    memcpy(&machine, head + 18, sizeof machine);
    if (type != ET_DYN)
        return mn_fail(err, MN_BAD_FILE, "not a shared object");
    if (OWN_MACHINE && machine != OWN_MACHINE)
        return mn_fail(err, MN_BAD_FILE, "built for %s, expected %s",
                       plugin_file_machine_name(machine), plugin_file_machine_name(OWN_MACHINE));
    return plugin_file_check_segments(fd, bytes, err);
}

void mn_plugin_file_identify(mn_plugin_file *out, const struct stat *st) {
    out->dev = st->st_dev;
    out->ino = st->st_ino;
    out->size = (uint64_t)st->st_size;
    out->mtime_ns = (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;
}

static mn_status plugin_file_check_file(const mn_trust *trust, int fd, mn_plugin_file *out,
                                        mn_error *err) {
    struct stat st;
    if (fstat(fd, &st))
        return mn_fail(err, MN_BAD_FILE, "cannot look at it: %s", strerror(errno));
    mn_plugin_file_identify(out, &st);
    if (!S_ISREG(st.st_mode))
        return mn_fail(err, MN_BAD_FILE, "not a regular file");
    mn_status status = mn_trust_stat(trust, &st, err);
    if (status == MN_OK)
        status = check_elf(fd, (uint64_t)st.st_size, err);
    return status == MN_OK ? mn_plugin_note_read(fd, &out->note, err) : status;
}

mn_status mn_plugin_file_check(const mn_trust *trust, const char *path, mn_plugin_file *out,
                               mn_error *err) {
    *out = (mn_plugin_file){0};
    if (!mn_str_ends(mn_str_of(path), ".so"))
        return mn_fail(err, MN_BAD_FILE, "its name does not end in .so");
    if (!realpath(path, out->real))
        return mn_fail(err, MN_BAD_FILE, "cannot open: %s", strerror(errno));
    int fd = open(out->real, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return mn_fail(err, MN_BAD_FILE, "cannot open: %s", strerror(errno));
    mn_status status = plugin_file_check_file(trust, fd, out, err);
    close(fd);
    return status == MN_OK ? mn_trust_folders(trust, out->real, err) : status;
}

/* Between this look and dlopen only those can change the file who may write it or a folder above:
 * root and the user, which is what the checks have made sure of. Opening /proc/self/fd/N instead
 * would close even that gap, but the C library knows a library by that name then: the next one in
 * descriptor N would be taken for it, $ORIGIN would be /proc/self/fd, and messages, debuggers and
 * dladdr would lose the path. */
bool mn_plugin_file_same(const mn_plugin_file *file) {
    struct stat st;
    mn_plugin_file now;
    if (stat(file->real, &st))
        return false;
    mn_plugin_file_identify(&now, &st);
    return now.dev == file->dev && now.ino == file->ino && now.size == file->size &&
           now.mtime_ns == file->mtime_ns;
}
