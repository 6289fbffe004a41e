/* elf_file.h -- a shared object read as bytes, never opened: what the dynamic linker would use,
 * from the segments (sections may be missing or wrong). The bytes are untrusted: every offset is
 * checked against the file's size. 64-bit, this byte order. */
#ifndef MINERVA_CHECK_ELF_FILE_H
#define MINERVA_CHECK_ELF_FILE_H
#include <elf.h>
#include <stdint.h>

#define ELF_MAX_SEGMENTS 64
typedef struct {
    const uint8_t *bytes;
    uint64_t n;
    Elf64_Ehdr head;
    Elf64_Phdr segment[ELF_MAX_SEGMENTS];
    uint32_t n_segments;
    uint64_t dynamic, n_dynamic; /* file offset, entries */
    uint64_t strings, n_strings; /* file offset, bytes */
    uint64_t symbols, n_symbols; /* file offset, entries */
} elf_file;

/* NULL, or what is wrong with it, in words. The bytes stay the caller's and must outlive f. */
const char *elf_open(elf_file *f, const void *bytes, uint64_t n);
int elf_is_elf(const void *bytes, uint64_t n);        /* the first four bytes */
int elf_is_native(const void *bytes, uint64_t n);     /* 64-bit, this byte order */
Elf64_Dyn elf_dynamic(const elf_file *f, uint64_t i); /* i < n_dynamic */
Elf64_Sym elf_symbol(const elf_file *f, uint64_t i);  /* i < n_symbols */
/* NUL-terminated inside the table; "" where it is outside */
const char *elf_string(const elf_file *f, uint64_t off);
#endif
