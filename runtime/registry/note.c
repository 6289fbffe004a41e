/* note.c -- what a plugin's file says of itself without being opened: its ELF notes. The file may
 * be anything: every number in it is checked against the file's size, every string against its end,
 * and no more than MAX_BYTES are looked at. */
#include "registry/internal.h"
#include <elf.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#define MAX_SEGMENTS 64
#define MAX_BYTES 65536u /* of one note segment; what lies behind is not looked at */
#define NOTE_HEAD 12u    /* n_name, n_desc, type */

static bool is_name(const uint8_t *at, uint32_t n, const char *name) {
    size_t len = strlen(name) + 1;
    return n == len && !memcmp(at, name, len);
}

static bool ends_inside(const char *text, size_t n) {
    return memchr(text, 0, n) != NULL;
}

/* desc: the note from its `size` on. A longer one is a newer one, a shorter one lacks its last
 * fields. */
static bool take_minerva(const uint8_t *desc, uint32_t n, mn_plugin_note *out) {
    const size_t skipped = offsetof(mn_note, size), least = offsetof(mn_note, id) - skipped;
    mn_note note = {0};
    memcpy((uint8_t *)&note + skipped, desc, MN_MIN(n, sizeof note - skipped));
    if (n < least || note.size < least || !ends_inside(note.id, sizeof note.id) ||
        !ends_inside(note.isa, sizeof note.isa))
        return false;
    out->found = true;
    out->abi = note.abi;
    out->abi_oldest = note.abi_oldest;
    out->kinds = note.kinds;
    memcpy(out->id, note.id, sizeof out->id);
    memcpy(out->isa, note.isa, sizeof out->isa);
    return true;
}

static void take_build_id(const uint8_t *desc, uint32_t n, mn_plugin_note *out) {
    for (uint32_t i = 0; i < n && i * 2 + 2 < sizeof out->build_id; i++) {
        out->build_id[i * 2] = "0123456789abcdef"[desc[i] >> 4];
        out->build_id[i * 2 + 1] = "0123456789abcdef"[desc[i] & 15];
    }
}

static uint64_t aligned(uint64_t n, uint64_t to) {
    return (n + to - 1) & ~(to - 1);
}

mn_status mn_notes_parse(const uint8_t *bytes, size_t n, uint64_t align, mn_plugin_note *out,
                         mn_error *err) {
    uint64_t at = 0, step = align == 8 ? 8 : 4;
    while (n >= NOTE_HEAD && at <= n - NOTE_HEAD) {
        uint32_t head[3]; /* n_name, n_desc, type */
        memcpy(head, bytes + at, sizeof head);
        uint64_t name = at + NOTE_HEAD, desc = aligned(name + head[0], step), end = desc + head[1];
        if (end > n)
            return mn_fail(err, MN_BAD_FILE, "its ELF notes are damaged");
        if (is_name(bytes + name, head[0], "GNU") && head[2] == NT_GNU_BUILD_ID)
            take_build_id(bytes + desc, head[1], out);
        if (is_name(bytes + name, head[0], "Minerva") && head[2] == 1 && !out->found &&
            !take_minerva(bytes + desc, head[1], out))
            return mn_fail(err, MN_BAD_FILE, "its note .note.minerva is damaged");
        at = aligned(end, step);
    }
    return MN_OK;
}

static mn_status read_segment(int fd, const ElfW(Phdr) * segment, mn_plugin_note *out,
                              mn_error *err) {
    uint64_t n = MN_MIN(segment->p_filesz, (uint64_t)MAX_BYTES);
    if (segment->p_offset > INT64_MAX)
        return mn_fail(err, MN_BAD_FILE, "its ELF notes lie outside the file");
    uint8_t *bytes = mn_alloc(n ? n : 1, 1);
    if (!bytes)
        return mn_fail_memory(err, n);
    mn_status status = MN_OK;
    if (pread(fd, bytes, n, (off_t)segment->p_offset) != (ssize_t)n)
        status = mn_fail(err, MN_BAD_FILE, "its ELF notes lie outside the file");
    else
        status = mn_notes_parse(bytes, n, segment->p_align, out, err);
    mn_free(bytes);
    return status;
}

mn_status mn_plugin_note_read(int fd, mn_plugin_note *out, mn_error *err) {
    ElfW(Ehdr) head;
    *out = (mn_plugin_note){0};
    if (pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        head.e_phentsize != sizeof(ElfW(Phdr)))
        return mn_fail(err, MN_BAD_FILE, "no ELF header");
    mn_status status = MN_OK;
    for (unsigned i = 0; i < MN_MIN(head.e_phnum, MAX_SEGMENTS) && status == MN_OK; i++) {
        ElfW(Phdr) segment;
        uint64_t at;
        if (!mn_add_u64(head.e_phoff, (uint64_t)i * sizeof segment, &at) || at > INT64_MAX ||
            pread(fd, &segment, sizeof segment, (off_t)at) != (ssize_t)sizeof segment)
            return mn_fail(err, MN_BAD_FILE, "its ELF program headers lie outside the file");
        if (segment.p_type == PT_NOTE)
            status = read_segment(fd, &segment, out, err);
    }
    return status;
}

/* ---- versions -------------------------------------------------------------------------------- */

uint32_t mn_abi_oldest(uint32_t abi) {
    return abi < MN_ABI(1, 0) ? abi : abi & ~0xFFFFu;
}

bool mn_abi_fits(uint32_t host, uint32_t host_oldest, uint32_t plugin, uint32_t plugin_oldest) {
    if (host < MN_ABI(1, 0) || plugin < MN_ABI(1, 0))
        return host == plugin;
    return host >> 16 == plugin >> 16 && plugin >= host_oldest && host >= plugin_oldest;
}
