/* elf_file.c -- see elf_file.h. Tables are found from the program headers and the dynamic
 * section; the number of symbols follows from a hash table, as for the dynamic linker. Nothing
 * is allocated. */
#include "elf_file.h"
#include <string.h>

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define NATIVE_DATA ELFDATA2LSB
#else
#define NATIVE_DATA ELFDATA2MSB
#endif

/* Copies n bytes at a file offset. 0 = they are not inside the file. */
static int elf_file_take(const elf_file *f, uint64_t off, void *dst, uint64_t n) {
    if (off > f->n || n > f->n - off)
        return 0;
    memcpy(dst, f->bytes + off, n);
    return 1;
}

static int is_inside(const elf_file *f, const Elf64_Phdr *s) {
    return s->p_offset <= f->n && s->p_filesz <= f->n - s->p_offset;
}

/* The file offset of n bytes at a virtual address; 0 = they are not in the file (offset 0 is the
 * header, never a table). */
static uint64_t at_address(const elf_file *f, uint64_t address, uint64_t n) {
    for (uint32_t i = 0; i < f->n_segments; i++) {
        const Elf64_Phdr *s = &f->segment[i];
        const uint64_t within = address - s->p_vaddr;
        if (s->p_type != PT_LOAD || address < s->p_vaddr || within > s->p_filesz)
            continue;
        if (n > s->p_filesz - within || !is_inside(f, s))
            return 0;
        return s->p_offset + within;
    }
    return 0;
}

int elf_is_elf(const void *bytes, uint64_t n) {
    return n >= EI_NIDENT && !memcmp(bytes, ELFMAG, SELFMAG);
}

int elf_is_native(const void *bytes, uint64_t n) {
    const uint8_t *ident = bytes;
    if (!elf_is_elf(bytes, n))
        return 0;
    return ident[EI_CLASS] == ELFCLASS64 && ident[EI_DATA] == NATIVE_DATA;
}

Elf64_Dyn elf_dynamic(const elf_file *f, uint64_t i) {
    Elf64_Dyn d = {0};
    elf_file_take(f, f->dynamic + i * sizeof d, &d, sizeof d);
    return d;
}

Elf64_Sym elf_symbol(const elf_file *f, uint64_t i) {
    Elf64_Sym s = {0};
    elf_file_take(f, f->symbols + i * sizeof s, &s, sizeof s);
    return s;
}

const char *elf_string(const elf_file *f, uint64_t off) {
    if (off >= f->n_strings)
        return "";
    const char *s = (const char *)f->bytes + f->strings + off;
    if (memchr(s, 0, f->n_strings - off))
        return s;
    return "";
}

/* Each count_*: the number of symbols by a hash table at a virtual address; 0 = it is damaged. */
static int count_by_hash(const elf_file *f, uint64_t address, uint64_t *n) {
    uint32_t head[2]; // buckets, chain entries = symbols
    const uint64_t at = at_address(f, address, sizeof head);
    if (!at || !elf_file_take(f, at, head, sizeof head))
        return 0;
    *n = head[1];
    return 1;
}

static int count_by_gnu_hash(const elf_file *f, uint64_t address, uint64_t *n) {
    uint32_t head[4]; // buckets, first hashed symbol, bloom words, bloom shift
    uint32_t last = 0;
    uint32_t link = 0;
    const uint64_t at = at_address(f, address, sizeof head);
    if (!at || !elf_file_take(f, at, head, sizeof head))
        return 0;
    const uint64_t n_buckets = head[0];
    const uint64_t first = head[1];
    const uint64_t buckets = at + sizeof head + (uint64_t)head[2] * 8;
    const uint64_t chains = buckets + n_buckets * 4;
    for (uint64_t i = 0; i < n_buckets; i++) {
        uint32_t b;
        if (!elf_file_take(f, buckets + i * 4, &b, 4))
            return 0;
        if (b > last)
            last = b;
    }
    *n = first;
    if (last < first) // nothing is exported
        return 1;
    for (*n = last; !(link & 1); ++*n) // the chain of the last bucket ends with bit 0 set
        if (!elf_file_take(f, chains + (*n - first) * 4, &link, 4))
            return 0;
    return 1;
}

static const char *read_segments(elf_file *f) {
    const Elf64_Ehdr *h = &f->head;
    if (h->e_phentsize != sizeof(Elf64_Phdr) || h->e_phnum > ELF_MAX_SEGMENTS)
        return "found a damaged program header table";
    for (uint32_t i = 0; i < h->e_phnum; i++) {
        Elf64_Phdr *s = &f->segment[i];
        if (!elf_file_take(f, h->e_phoff + (uint64_t)i * sizeof *s, s, sizeof *s))
            return "found program headers outside the file";
        f->n_segments = i + 1;
        if (s->p_type != PT_LOAD && s->p_type != PT_DYNAMIC && s->p_type != PT_NOTE)
            continue;
        if (!is_inside(f, s))
            return "found a segment outside the file: is it truncated?";
        if (s->p_type == PT_DYNAMIC) {
            f->dynamic = s->p_offset;
            f->n_dynamic = s->p_filesz / sizeof(Elf64_Dyn);
        }
    }
    if (f->n_dynamic)
        return NULL;
    return "found no dynamic section: is it linked with -shared?";
}

static const char *read_dynamic(elf_file *f) {
    uint64_t strings = 0;
    uint64_t symbols = 0;
    uint64_t hash = 0;
    uint64_t gnu = 0;
    for (uint64_t i = 0; i < f->n_dynamic; i++) {
        const Elf64_Dyn d = elf_dynamic(f, i);
        switch (d.d_tag) {
        case DT_NULL:
            f->n_dynamic = i;
            break;
        case DT_STRTAB:
            strings = d.d_un.d_ptr;
            break;
        case DT_STRSZ:
            f->n_strings = d.d_un.d_val;
            break;
        case DT_SYMTAB:
            symbols = d.d_un.d_ptr;
            break;
        case DT_HASH:
            hash = d.d_un.d_ptr;
            break;
        case DT_GNU_HASH:
            gnu = d.d_un.d_ptr;
            break;
        default:
            break;
        }
    }
    f->strings = at_address(f, strings, f->n_strings);
    if (!f->strings)
        return "found no string table inside the file";
    const int counted =
        gnu ? count_by_gnu_hash(f, gnu, &f->n_symbols) : count_by_hash(f, hash, &f->n_symbols);
    if (!counted)
        return "found no symbol hash table inside the file";
    if (f->n_symbols <= f->n / sizeof(Elf64_Sym))
        f->symbols = at_address(f, symbols, f->n_symbols * sizeof(Elf64_Sym));
    if (f->symbols)
        return NULL;
    return "found no symbol table inside the file";
}

const char *elf_open(elf_file *f, const void *bytes, uint64_t n) {
    memset(f, 0, sizeof *f);
    f->bytes = bytes;
    f->n = n;
    if (!elf_is_elf(bytes, n))
        return "found no ELF file, expected a shared object";
    if (!elf_is_native(bytes, n))
        return "found an ELF file of another word size or byte order";
    if (!elf_file_take(f, 0, &f->head, sizeof f->head))
        return "found a truncated ELF header";
    if (f->head.e_type != ET_DYN)
        return "found an ELF file that is not a shared object: is it linked with -shared?";
    const char *wrong = read_segments(f);
    if (wrong)
        return wrong;
    return read_dynamic(f);
}
