/* common.h -- shared by the loader plugins: errors, memory from the host, and the parsed model that
 * they return. A static library with hidden symbols, linked into each plugin; it needs ground and
 * plugin.h. mnl_ functions repeat functions of runtime/base, which plugins do not link. Threads: an
 * mn_parsed is built by one thread; once open has returned it is read-only. */
#ifndef MN_LOADERS_COMMON_H
#define MN_LOADERS_COMMON_H
#include "dtype.h"
#include "ground.h"
#include "utf8.h"
#include <minerva/plugin.h>

/* For "%.*s": names from files may be long, messages are short. */
#define MN_STR_ARG(s) (int)((s).len > 120 ? 120 : (s).len), (s).len ? (s).ptr : ""

/* ---- util.c ---------------------------------------------------------------------------------- */
/* Fills err (may be NULL) and returns status. Control characters and broken UTF-8 in the message
 * become '?'. */
mn_status mnl_fail(mn_error *err, mn_status status, const char *fmt, ...) MN_PRINTF(3, 4);
mn_status mnl_fail_memory(mn_error *err); /* MN_OUT_OF_MEMORY */
/* Heap sort: no memory, no recursion, n log n for any input (names come from untrusted files). */
void mnl_sort(const void **items, uint64_t n, int (*cmp)(const void *, const void *));
/* "PREFIX-00002-of-00003SUFFIX": fills the prefix, 2 and 3; false if the name is not of this
 * form. */
bool mnl_shard_name(mn_str name, const char *suffix, mn_str *prefix, uint32_t *no, uint32_t *count);
/* File i of the host's array. */
const mn_file *mnl_file_at(const mn_file *files, uint32_t i, uint32_t stride);
/* The one that the user named; NULL: a folder was. */
const mn_file *mnl_file_named(const mn_file *files, uint32_t n, uint32_t stride);
/* R4: copies min(capacity, own size) bytes of src into dst, both beginning with their size, and
 * sets dst's. */
mn_status mnl_out(void *dst, const void *src);

/* ---- parsed.c -------------------------------------------------------------------------------- */
typedef struct {
    mn_str key;
    mn_str native;
    mn_value value;
} mn_parsed_meta;
typedef struct {
    mn_str name;
    mn_str native;
    const mn_file *file; /* during open only: the host's array need not outlive it */
    uint64_t offset;     /* of the data, from the beginning of the file */
    mn_dtype dtype;
    int64_t dim[MN_MAX_DIM];
    uint32_t n_dim;
    mn_plane plane; /* the bytes as stored */
    /* why its values cannot be read (": dimension 0 ..."); NULL: they can be read. An unreadable
     * tensor is described as bytes, and settled by mn_parsed_settle_unreadable. */
    const char *problem;
    /* A tensor made of other ones' bytes: [n_parts][n_planes], in the model's memory. NULL = the
     * one plane above. */
    mn_plane *planes;
    uint32_t n_parts;
    uint32_t n_planes;
} mn_parsed_tensor;

/* A model as parsed. All memory comes from the host and is given back by mn_parsed_free. */
struct mn_parsed {
    const mn_host *host;
    void *blocks;  /* chain of blocks that strings and arrays are cut from */
    uint64_t left; /* bytes left in the newest block */
    char *next;
    mn_parsed_meta *meta;
    mn_parsed_tensor *tensors;
    uint64_t n_meta;
    uint64_t cap_meta;
    uint64_t n_tensors;
    uint64_t cap_tensors;
};

mn_parsed *mn_parsed_new(const mn_host *host); /* NULL = out of memory */
void mn_parsed_free(mn_parsed *p);             /* NULL is fine */
/* n elements of size bytes, zeroed, 16-byte aligned, until mn_parsed_free. NULL = out of memory or
 * overflow. */
void *mn_parsed_alloc(mn_parsed *p, uint64_t n, uint64_t size);
/* The same, not zeroed: for codes and scales of matrices, all of which the caller writes. */
void *mn_parsed_room(mn_parsed *p, uint64_t n, uint64_t size);
/* A formatted string in the model's memory, at most 1023 bytes; ptr NULL = out of memory. */
mn_str mn_parsed_printf(mn_parsed *p, const char *fmt, ...) MN_PRINTF(2, 3);
mn_str mn_parsed_copy(mn_parsed *p, mn_str s);
/* Appends one entry, zeroed; NULL = out of memory. The pointer is valid until the next call. */
mn_parsed_meta *mn_parsed_add_meta(mn_parsed *p);
mn_parsed_tensor *mn_parsed_add_tensor(mn_parsed *p);
const mn_parsed_meta *mn_parsed_find(const mn_parsed *p, const char *key); /* NULL = absent */

/* Lays out a tensor whose name, file, offset, dtype and dims are set as one dense plane, and checks
 * it: dims positive, whole blocks, no overflow, inside the file, at any address. *bytes: the size
 * of the data. */
mn_status mn_tensor_place(mn_parsed_tensor *t, uint64_t *bytes, mn_error *err);
/* No two entries [from, n_meta) have one key. */
mn_status mn_parsed_check_keys(mn_parsed *p, const mn_file *file, uint64_t from, mn_error *err);
/* No two tensors have one name. */
mn_status mn_parsed_check_names(mn_parsed *p, mn_error *err);
/* No two tensors have one name, and no two share bytes of a file. */
mn_status mn_parsed_check_tensors(mn_parsed *p, mn_error *err);
/* planes.c: room for n_parts x n_planes planes, zeroed; NULL = out of memory. */
mn_plane *mn_tensor_planes(mn_parsed *p, mn_parsed_tensor *t, uint32_t n_parts, uint32_t n_planes);
/* Tensors that checkpoints keep one by one become parts of one: blk.3.ffn_gate.0.weight, .1.weight,
 * ... -> blk.3.ffn_gate_exps.weight [E, N, K]; likewise ffn_up, ffn_down, and the heads of
 * attn_q_norm and attn_k_norm [H, D]. Names are canonical. */
mn_status mn_parsed_join(mn_parsed *p, mn_error *err);

/* ---- unused.c -------------------------------------------------------------------------------- */
/* The name without the prefix of a text model that is part of another model or has heads. */
mn_str mnl_inner_name(mn_str native);
/* Removes the tensors that no text model needs, by a list of native names, and logs their number by
 * reason. heads: also removes those on top of an encoder's hidden states. */
void mn_parsed_drop_unused(mn_parsed *p, bool heads);
bool mn_tensor_is_empty(const mn_parsed_tensor *t); /* a dimension is 0 */
/* As mn_tensor_place for a tensor with a problem, at its offset: so many bytes, which lie in the
 * file; 0 = it is empty. */
void mn_tensor_place_bytes(mn_parsed_tensor *t, uint64_t bytes);
/* Names are canonical. A tensor with a problem is an error if some architecture reads it; other
 * tensors are removed if they are empty. */
mn_status mn_parsed_settle_unreadable(mn_parsed *p, mn_error *err);

/* ---- parsed.c -------------------------------------------------------------------------------- */
/* The table's functions that read a model. */
mn_status mn_parsed_meta_at(mn_parsed *p, uint32_t i, mn_str *key, mn_str *native, mn_value *value);
mn_status mn_parsed_tensor_at(mn_parsed *p, uint32_t i, mn_tensor_info *info);

/* ---- plugin.c: the plugin object and its table ----------------------------------------------- */
/* One row of a loader's patterns: MN_FILE_PATTERN(MODEL, "*.gguf", MN_PATTERN_WHOLE). */
#define MN_FILE_PATTERN(what, text, flags)                                                         \
    { sizeof(mn_file_pattern), MN_PATTERN_##what, {text, sizeof text - 1}, flags, 0 }
/* What one loader has of its own. The functions get arguments that were checked. */
typedef struct {
    const char *id; /* of the plugin and of the format */
    /* g: this format, confidence 0, why it is not ours; set otherwise if it is. */
    mn_status (*guess)(const mn_host *host, const mn_file *files, uint32_t n, uint32_t stride,
                       mn_guess *g);
    const char *why_not;
    mn_status (*open)(const mn_host *host, const mn_file *files, uint32_t n, uint32_t stride,
                      mn_parsed **out, mn_error *err);
    const mn_file_pattern *patterns; /* static; as long as the plugin */
    uint32_t n_patterns;
} mn_loader_kind;
/* The body of minerva_plugin_entry. */
const mn_plugin *mn_loader_plugin(const mn_host *host, const mn_loader_kind *kind, mn_error *err);

#endif
