/* wide_loader.c -- a loader seen through a host of a later minor: longer elements in the list of
 * files, a flag that the loader does not know on each, and longer outputs (wide_args.h). */
#include "wide.h"
#include "wide_args.h"
#include <stdlib.h>
#include <string.h>

enum { UNKNOWN_FLAG = 1 << 30 };

static mn_loader parser; /* a copy: a table may be freed with the plugin's self */

/* The caller frees. */
static mn_file *wide_files(const mn_file *f, uint32_t n, uint32_t stride) {
    char *wide = wide_spread(f, n, sizeof *f, stride);
    for (uint32_t i = 0; i < n && wide; i++)
        ((mn_file *)(void *)(wide + i * (sizeof *f + WIDE_MORE)))->flags |= UNKNOWN_FLAG;
    return (mn_file *)(void *)wide;
}

static mn_status guess(void *self, const mn_file *f, uint32_t n, uint32_t stride, mn_guess *out) {
    wide_out w;
    mn_file *wide = wide_files(f, n, stride);
    if (!wide)
        return MN_OUT_OF_MEMORY;
    const mn_status st =
        parser.guess(self, wide, n, sizeof *f + WIDE_MORE, wide_out_begin(&w, out, sizeof *out));
    wide_out_end(&w, out, sizeof *out, !st, "guess");
    free(wide);
    return st;
}

static mn_status open_files(void *self, const mn_file *f, uint32_t n, uint32_t stride,
                            mn_parsed **out, mn_error *err) {
    wide_out e;
    mn_file *wide = wide_files(f, n, stride);
    if (!wide)
        return MN_OUT_OF_MEMORY;
    const mn_status st =
        parser.open(self, wide, n, sizeof *f + WIDE_MORE, out, wide_error_begin(&e, err));
    free(wide);
    return wide_error_end(&e, err, st, "open");
}

static mn_status meta_at(mn_parsed *p, uint32_t i, mn_str *key, mn_str *native, mn_value *out) {
    wide_out w;
    const mn_status st = parser.meta_at(p, i, key, native, wide_out_begin(&w, out, sizeof *out));
    wide_out_end(&w, out, sizeof *out, !st, "meta_at");
    return st;
}

static mn_status tensor_at(mn_parsed *p, uint32_t i, mn_tensor_info *out) {
    wide_out w;
    const mn_status st = parser.tensor_at(p, i, wide_out_begin(&w, out, sizeof *out));
    wide_out_end(&w, out, sizeof *out, !st, "tensor_at");
    return st;
}

static mn_status patterns(void *self, uint32_t i, mn_file_pattern *out) {
    wide_out w;
    const mn_status st = parser.patterns(self, i, wide_out_begin(&w, out, sizeof *out));
    wide_out_end(&w, out, sizeof *out, !st, "patterns");
    return st;
}

#define WIDEN(name, fn)                                                                            \
    if (table.name)                                                                                \
        table.name = fn;

const mn_loader *wide_loader(const mn_loader *ld) {
    static mn_loader table;
    if (!ld)
        return NULL;
    memset(&parser, 0, sizeof parser);
    memcpy(&parser, ld, ld->size < sizeof parser ? ld->size : sizeof parser);
    table = parser;
    WIDEN(guess, guess)
    WIDEN(open, open_files)
    WIDEN(meta_at, meta_at)
    WIDEN(tensor_at, tensor_at)
    WIDEN(patterns, patterns)
    return &table;
}
