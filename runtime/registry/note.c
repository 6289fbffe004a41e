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
#define NOTE_TYPE 1u     /* of ours */

typedef struct {
    uint32_t n_name, n_desc, type;
} note_head;

static bool note_is_name(const uint8_t *at, uint32_t n, const char *name) {
    size_t len = strlen(name) + 1;
    return n == len && !memcmp(at, name, len);
}

static bool ends_inside(const char *text, size_t n) {
    return memchr(text, 0, n) != NULL;
}

/* desc: the note from its `size` on. A longer one is a newer one, a shorter one lacks its last
 * fields. */
static bool take_minerva(const uint8_t *desc, uint32_t n, mn_plugin_note *out) {
    const size_t skipped = offsetof(mn_note, size);
    const size_t least = offsetof(mn_note, id) - skipped;
    mn_note note = {0};
    memcpy((uint8_t *)&note + skipped, desc, MN_MIN(n, sizeof note - skipped));
    const bool has_ends =
        ends_inside(note.id, sizeof note.id) && ends_inside(note.isa, sizeof note.isa);
    if (n < least || note.size < least || !has_ends)
        return false;
    out->found = true;
    out->abi = note.abi;
    out->abi_oldest = note.abi_oldest;
    out->kinds = note.kinds;
    memcpy(out->id, note.id, sizeof out->id);
    memcpy(out->isa, note.isa, sizeof out->isa);
    return true;
}

/* In hexadecimal, as far as there is room. */
static void take_build_id(const uint8_t *desc, uint32_t n, mn_plugin_note *out) {
    static const char digits[] = "0123456789abcdef";
    const uint32_t room = (uint32_t)sizeof out->build_id / 2;
    char *at = out->build_id;
    for (uint32_t i = 0; i < MN_MIN(n, room); i++) {
        *at++ = digits[desc[i] >> 4];
        *at++ = digits[desc[i] & 15];
    }
}

static uint64_t note_aligned(uint64_t n, uint64_t to) {
    return (n + to - 1) & ~(to - 1);
}

/* One note that lies inside the segment: the linker's build id, or the first of ours. */
static mn_status take_note(const note_head *head, const uint8_t *name, const uint8_t *desc,
                           mn_plugin_note *out, mn_error *err) {
    const bool is_build_id =
        head->type == NT_GNU_BUILD_ID && note_is_name(name, head->n_name, "GNU");
    const bool is_ours = head->type == NOTE_TYPE && note_is_name(name, head->n_name, "Minerva");
    if (is_build_id)
        take_build_id(desc, head->n_desc, out);
    if (!is_ours || out->found || take_minerva(desc, head->n_desc, out))
        return MN_OK;
    return mn_fail(err, MN_BAD_FILE, "its note .note.minerva is damaged");
}

mn_status mn_notes_parse(const uint8_t *bytes, size_t n, uint64_t align, mn_plugin_note *out,
                         mn_error *err) {
    const uint64_t step = align == 8 ? 8 : 4;
    uint64_t at = 0;
    mn_status st = MN_OK;
    while (!st && n >= sizeof(note_head) && at <= n - sizeof(note_head)) {
        note_head head;
        memcpy(&head, bytes + at, sizeof head);
        const uint64_t name = at + sizeof head;
        const uint64_t desc = note_aligned(name + head.n_name, step);
        const uint64_t end = desc + head.n_desc;
        if (end > n)
            return mn_fail(err, MN_BAD_FILE, "its ELF notes are damaged");
        st = take_note(&head, bytes + name, bytes + desc, out, err);
        at = note_aligned(end, step);
    }
    return st;
}

static mn_status read_segment(int fd, const ElfW(Phdr) * segment, mn_plugin_note *out,
                              mn_error *err) {
    const uint64_t n = MN_MIN(segment->p_filesz, (uint64_t)MAX_BYTES);
    if (segment->p_offset > INT64_MAX)
        return mn_fail(err, MN_BAD_FILE, "its ELF notes lie outside the file");
    uint8_t *bytes = mn_alloc(n ? n : 1, 1);
    if (!bytes)
        return mn_fail_memory(err, n);
    mn_status st = MN_OK;
    if (pread(fd, bytes, n, (off_t)segment->p_offset) != (ssize_t)n)
        st = mn_fail(err, MN_BAD_FILE, "its ELF notes lie outside the file");
    else
        st = mn_notes_parse(bytes, n, segment->p_align, out, err);
    mn_free(bytes);
    return st;
}

/* Program header i; false: it is not in the file. */
static bool read_header(int fd, const ElfW(Ehdr) * head, unsigned i, ElfW(Phdr) * out) {
    const uint64_t from = (uint64_t)i * sizeof *out;
    uint64_t at;
    if (!mn_add_u64(head->e_phoff, from, &at) || at > INT64_MAX)
        return false;
    return pread(fd, out, sizeof *out, (off_t)at) == (ssize_t)sizeof *out;
}

mn_status mn_plugin_note_read(int fd, mn_plugin_note *out, mn_error *err) {
    ElfW(Ehdr) head;
    *out = (mn_plugin_note){0};
    const bool is_whole = pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head;
    if (!is_whole || head.e_phentsize != sizeof(ElfW(Phdr)))
        return mn_fail(err, MN_BAD_FILE, "no ELF header");
    const unsigned n = MN_MIN(head.e_phnum, MAX_SEGMENTS);
    mn_status st = MN_OK;
    for (unsigned i = 0; i < n && !st; i++) {
        ElfW(Phdr) segment;
        if (!read_header(fd, &head, i, &segment))
            return mn_fail(err, MN_BAD_FILE, "its ELF program headers lie outside the file");
        if (segment.p_type == PT_NOTE)
            st = read_segment(fd, &segment, out, err);
    }
    return st;
}

/* ---- versions -------------------------------------------------------------------------------- */

/* Below 1.0 a side understands itself alone, from 1.0 on its major. */
uint32_t mn_abi_oldest(uint32_t abi) {
    return abi < MN_ABI(1, 0) ? abi : abi & ~0xFFFFu;
}

bool mn_abi_fits(uint32_t host, uint32_t host_oldest, uint32_t plugin, uint32_t plugin_oldest) {
    if (host < MN_ABI(1, 0) || plugin < MN_ABI(1, 0))
        return host == plugin;
    const bool same_major = host >> 16 == plugin >> 16;
    return same_major && plugin >= host_oldest && host >= plugin_oldest;
}
