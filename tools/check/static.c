/* static.c -- group static: what the file states before it is opened: format, machine, symbols,
 * link options and the note. The file is read as bytes (elf_file.h), since a file that breaks
 * these rules must not be opened. Where it lies is judged in static_place.c, what the host says
 * of it in static_host.c. */
#include "check.h"
#include "elf_file.h"
#include <stdio.h>
#include <string.h>

/* 0 = the rule is skipped: static.elf reports why. */
static int readable(check *c, elf_file *f) {
    const char *wrong = elf_open(f, c->bytes, c->n_bytes);
    if (wrong)
        check_skip(c, "the file cannot be read as a plugin (static.elf, static.machine)");
    return !wrong;
}

void check_static_elf(check *c) {
    elf_file f;
    if (elf_is_elf(c->bytes, c->n_bytes) && !elf_is_native(c->bytes, c->n_bytes)) {
        check_found(c, "for another machine: not read further");
        return;
    }
    const char *wrong = elf_open(&f, c->bytes, c->n_bytes);
    CHECK(c, !wrong, "%s", wrong);
}

static const char *machine_name(unsigned machine) {
    switch (machine) {
    case EM_X86_64:
        return "x86-64";
    case EM_AARCH64:
        return "AArch64";
    case EM_386:
        return "x86 of 32 bits";
    case EM_ARM:
        return "Arm of 32 bits";
    default:
        return "another machine";
    }
}

static unsigned machine_here(void) {
#if defined(__x86_64__)
    return EM_X86_64;
#elif defined(__aarch64__)
    return EM_AARCH64;
#else
    return EM_NONE;
#endif
}

void check_static_machine(check *c) {
    Elf64_Ehdr head;
    if (!elf_is_elf(c->bytes, c->n_bytes) || c->n_bytes < sizeof head) {
        check_skip(c, "no ELF file (static.elf)");
        return;
    }
    memcpy(&head, c->bytes, sizeof head);
    CHECK(c, elf_is_native(c->bytes, c->n_bytes) && head.e_machine == machine_here(),
          "found a file for %s (machine %u), expected %s", machine_name(head.e_machine),
          head.e_machine, machine_name(machine_here()));
    check_found(c, "%s", machine_name(head.e_machine));
}

/* ---- symbols --------------------------------------------------------------------------------- */
/* Names that older linkers put into every shared object. */
static int is_linkers(const char *name) {
    static const char *const names[] = {"_init", "_fini", "_edata", "_end", "__bss_start"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(name, names[i]))
            return 1;
    return 0;
}

/* The first eight names, and how many there are. */
typedef struct {
    char text[700];
    uint32_t n;
} name_list;

static void static_rule_add_name(name_list *l, const char *name) {
    const size_t at = strlen(l->text);
    const size_t room = sizeof l->text - at;
    if (l->n < 8 && strlen(name) + 3 < room)
        snprintf(l->text + at, room, "%s%s", at ? ", " : "", name);
    l->n++;
}

/* Whether another object can see the symbol. */
static int is_exported(const Elf64_Sym *s, const char *name) {
    const unsigned visibility = ELF64_ST_VISIBILITY(s->st_other);
    if (s->st_shndx == SHN_UNDEF || ELF64_ST_BIND(s->st_info) == STB_LOCAL || is_linkers(name))
        return 0;
    return visibility != STV_HIDDEN && visibility != STV_INTERNAL;
}

/* Weak and unique definitions count, too. Those of C++ templates would be replaced by the copy
 * of the host or of another plugin (weak), or shared with it for the life of the process
 * (unique), though another compiler may have made that copy. */
void check_static_exports(check *c) {
    elf_file f;
    name_list others = {{0}, 0};
    int entry = 0;
    if (!readable(c, &f))
        return;
    for (uint64_t i = 1; i < f.n_symbols; i++) {
        Elf64_Sym s = elf_symbol(&f, i);
        const char *name = elf_string(&f, s.st_name);
        if (!is_exported(&s, name))
            continue;
        if (!strcmp(name, MN_ENTRY_NAME) && ELF64_ST_TYPE(s.st_info) == STT_FUNC)
            entry = 1;
        else
            static_rule_add_name(&others, name);
    }
    CHECK(c, entry, "found no function %s, expected it as the one exported symbol%s%s",
          MN_ENTRY_NAME, others.n ? "; found " : "", others.text);
    CHECK(c, !others.n,
          "found %u more exported symbols (%s%s), expected %s alone: build with "
          "-fvisibility=hidden, or link with a "
          "version script",
          others.n, others.text, others.n > 8 ? ", ..." : "", MN_ENTRY_NAME);
}

static int is_hosts(const char *name) {
    return !strncmp(name, "mn_", 3) || !strncmp(name, "minerva_", 8);
}

void check_static_undefined(check *c) {
    elf_file f;
    name_list hosts = {{0}, 0};
    if (!readable(c, &f))
        return;
    for (uint64_t i = 1; i < f.n_symbols; i++) {
        Elf64_Sym s = elf_symbol(&f, i);
        if (s.st_shndx == SHN_UNDEF && is_hosts(elf_string(&f, s.st_name)))
            static_rule_add_name(&hosts, elf_string(&f, s.st_name));
    }
    CHECK(c, !hosts.n,
          "found undefined symbols of the host (%s), expected none: all that a plugin may call is "
          "in mn_host",
          hosts.text);
    for (uint64_t i = 0; i < f.n_dynamic; i++) {
        Elf64_Dyn d = elf_dynamic(&f, i);
        const char *needed = "";
        if (d.d_tag == DT_NEEDED)
            needed = elf_string(&f, d.d_un.d_val);
        CHECK(c, strncmp(needed, "libminerva", 10),
              "found the needed library %s, expected none of the host's", needed);
    }
}

/* ---- how it is linked ------------------------------------------------------------------------ */
static int has_dynamic(const elf_file *f, int64_t tag, uint64_t bits) {
    for (uint64_t i = 0; i < f->n_dynamic; i++) {
        Elf64_Dyn d = elf_dynamic(f, i);
        if (d.d_tag == tag && (!bits || d.d_un.d_val & bits))
            return 1;
    }
    return 0;
}

void check_static_textrel(check *c) {
    elf_file f;
    if (!readable(c, &f))
        return;
    CHECK(c, !has_dynamic(&f, DT_TEXTREL, 0) && !has_dynamic(&f, DT_FLAGS, DF_TEXTREL),
          "found text relocations (DT_TEXTREL), expected none: compile with -fPIC");
}

void check_static_stack(check *c) {
    elf_file f;
    if (!readable(c, &f))
        return;
    for (uint32_t i = 0; i < f.n_segments; i++) {
        if (f.segment[i].p_type != PT_GNU_STACK)
            continue;
        CHECK(c, !(f.segment[i].p_flags & PF_X),
              "found an executable stack (PT_GNU_STACK), expected none: link with -z noexecstack");
        return;
    }
    check_fail(c,
               "found no PT_GNU_STACK, which means an executable stack: link with -z noexecstack");
}

void check_static_wx(check *c) {
    elf_file f;
    if (!readable(c, &f))
        return;
    for (uint32_t i = 0; i < f.n_segments; i++)
        CHECK(c, f.segment[i].p_type != PT_LOAD || ~f.segment[i].p_flags & (PF_W | PF_X),
              "found segment %u writable and executable, expected one or the other", i);
}

/* ---- the note -------------------------------------------------------------------------------- */
static uint64_t aligned(uint64_t n, uint64_t to) {
    return (n + to - 1) & ~(to - 1);
}

/* The description of Minerva's note is mn_note from `size` on. */
#define NOTE_BYTES (sizeof(mn_note) - offsetof(mn_note, size))

static void read_note(mn_note *note, const uint8_t *desc, uint32_t n) {
    memset(note, 0, sizeof *note);
    memcpy((uint8_t *)note + offsetof(mn_note, size), desc, n < NOTE_BYTES ? n : NOTE_BYTES);
}

/* The number of Minerva's notes in one segment; the last one is copied to `note`, the length of its
 * description to *n_desc. -1 = a note does not end inside the segment. */
static int read_notes(const elf_file *f, const Elf64_Phdr *s, uint32_t *n_desc, mn_note *note) {
    const uint8_t *p = f->bytes + s->p_offset;
    uint64_t align = 4;
    if (s->p_align == 8)
        align = 8;
    uint64_t at = 0;
    int found = 0;
    while (at + 12 <= s->p_filesz) {
        uint32_t head[3]; // bytes of the name, bytes of the description, type
        memcpy(head, p + at, sizeof head);
        const uint64_t desc = at + aligned(12 + (uint64_t)head[0], align);
        const uint64_t end = desc + head[1];
        if (desc > s->p_filesz || end > s->p_filesz)
            return -1;
        const int is_type = head[0] == 8 && head[2] == 1;
        if (is_type && !memcmp(p + at + 12, "Minerva", 8)) {
            read_note(note, p + desc, head[1]);
            *n_desc = head[1];
            found++;
        }
        at = aligned(end, align);
    }
    return found;
}

/* Whether a segment has the linker's build id. Notes that leave the segment are another rule's. */
static int has_build_id(const elf_file *f, const Elf64_Phdr *s) {
    const uint64_t align = s->p_align == 8 ? 8 : 4;
    uint64_t at = 0;
    while (at + 16 <= s->p_filesz) {
        const uint8_t *p = f->bytes + s->p_offset + at;
        uint32_t head[3]; // bytes of the name, bytes of the description, type
        memcpy(head, p, sizeof head);
        if (head[0] == 4 && head[2] == NT_GNU_BUILD_ID && !memcmp(p + sizeof head, "GNU", 4))
            return head[1] > 0;
        at = aligned(at + aligned(sizeof head + (uint64_t)head[0], align) + head[1], align);
    }
    return 0;
}

int check_has_build_id(const check *c) {
    elf_file f;
    if (elf_open(&f, c->bytes, c->n_bytes))
        return 0;
    for (uint32_t i = 0; i < f.n_segments; i++)
        if (f.segment[i].p_type == PT_NOTE && has_build_id(&f, &f.segment[i]))
            return 1;
    return 0;
}

static int static_rule_is_id(const char *id) {
    return id[0] && !id[strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789_")];
}

static void judge_note(check *c, const mn_note *note, uint32_t n_desc) {
    CHECK(c, note->size >= NOTE_BYTES && note->size <= n_desc,
          "found a note of %u bytes that states %u, expected at least %zu: use MN_PLUGIN_NOTE",
          n_desc, note->size, NOTE_BYTES);
    CHECK(c, memchr(note->id, 0, sizeof note->id) && memchr(note->isa, 0, sizeof note->isa),
          "found an id or isa without its NUL, expected one");
    CHECK(c, static_rule_is_id(note->id), "found id \"%s\", expected characters of [a-z0-9_]",
          note->id);
    CHECK(c, note->kinds && !(note->kinds & ~CHECK_ANY),
          "found kinds 0x%x, expected MN_KIND_BACKEND, MN_KIND_LOADER or both", note->kinds);
    CHECK(c, note->abi_oldest <= note->abi, "found abi_oldest 0x%x above abi 0x%x",
          note->abi_oldest, note->abi);
    CHECK(c, note->abi >= MN_ABI_OLDEST && note->abi_oldest <= MN_ABI_VERSION,
          "found ABI %u.%u (back to %u.%u), expected one that meets %u.%u to %u.%u",
          note->abi >> 16, note->abi & 0xffff, note->abi_oldest >> 16, note->abi_oldest & 0xffff,
          MN_ABI_OLDEST >> 16, MN_ABI_OLDEST & 0xffff, MN_ABI_VERSION >> 16,
          MN_ABI_VERSION & 0xffff);
    c->facts->kinds = note->kinds;
    memcpy(c->facts->id, note->id, sizeof note->id);
    check_found(c, "%s, ABI %u.%u%s%s", note->id, note->abi >> 16, note->abi & 0xffff,
                note->isa[0] ? ", needs " : "", note->isa);
}

/* read_notes of all segments. */
static int all_notes(const elf_file *f, uint32_t *n_desc, mn_note *note) {
    int total = 0;
    for (uint32_t i = 0; i < f->n_segments; i++) {
        if (f->segment[i].p_type != PT_NOTE)
            continue;
        const int found = read_notes(f, &f->segment[i], n_desc, note);
        if (found < 0)
            return -1;
        total += found;
    }
    return total;
}

static int read_only_note(const check *c, mn_note *note) {
    elf_file f;
    uint32_t n_desc;
    return !elf_open(&f, c->bytes, c->n_bytes) && all_notes(&f, &n_desc, note) == 1;
}

uint32_t check_note_kinds(const check *c) {
    mn_note note;
    return read_only_note(c, &note) ? note.kinds : 0;
}

uint32_t check_note_abi(const check *c, uint32_t *oldest) {
    mn_note note;
    const int found = read_only_note(c, &note);
    *oldest = found ? note.abi_oldest : MN_ABI_OLDEST;
    return found ? note.abi : MN_ABI_VERSION;
}

void check_static_note(check *c) {
    elf_file f;
    mn_note note;
    uint32_t n_desc = 0;
    if (!readable(c, &f))
        return;
    const int total = all_notes(&f, &n_desc, &note);
    CHECK(c, total >= 0, "found a note that does not end inside its segment");
    CHECK(c, total == 1, "found %d notes of Minerva, expected 1: MN_PLUGIN_NOTE at file scope",
          total);
    judge_note(c, &note, n_desc);
}
