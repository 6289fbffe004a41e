/* gguf.h -- the parts of the GGUF loader: plugin.c (the table), model.c (files and splits), read.c
 * (one file's bytes), nvfp4.c (scales beside matrices), types.c (words). The format: little-endian
 * header, metadata pairs, tensor descriptions, then aligned data. */
#ifndef MN_GGUF_H
#define MN_GGUF_H
#include "../common/common.h"

/* One file while it is read. Every function that fails fills err and names the file. */
typedef struct {
    mn_parsed *parsed;
    const mn_file *file;
    mn_error *err;
    uint64_t at; /* next byte to read, <= file->bytes */
    mn_str key;  /* whose value is read; len 0 = none */
    uint64_t n_meta;
    uint64_t n_tensors;
    uint64_t alignment;
    uint64_t first_meta; /* of this file, in parsed->meta */
} gguf_reader;

/* ---- read.c ---------------------------------------------------------------------------------- */
mn_status gguf_read_header(gguf_reader *r); /* magic, version, counts */
mn_status gguf_read_meta(gguf_reader *r);   /* appends n_meta entries to parsed->meta */
/* appends n_tensors to parsed->tensors, placed; needs alignment */
mn_status gguf_read_tensors(gguf_reader *r);

/* ---- model.c --------------------------------------------------------------------------------- */
bool gguf_has_magic(const mn_file *f);
bool gguf_is_ours(const mn_file *f); /* by magic or by name */
mn_status gguf_open(const mn_host *host, const mn_file *files, uint32_t n, uint32_t stride,
                    mn_parsed **out, mn_error *err);

/* ---- nvfp4.c --------------------------------------------------------------------------------- */
/* Scales of whole tensors become planes of their matrices, and are no tensors any more. */
mn_status gguf_join_scales(mn_parsed *p, mn_error *err);

/* ---- types.c --------------------------------------------------------------------------------- */
/* For messages: the names of all types that are read, as many as fit into cap bytes. */
const char *gguf_known_types(char *list, size_t cap);
/* One that is not read; NULL = its number is none of the format. */
typedef struct {
    uint32_t ggml;
    const char *name, *nearest;
} gguf_absent_type;
const gguf_absent_type *gguf_other_type(uint32_t ggml_type);

#endif
