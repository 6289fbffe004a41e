/* loader.h -- the loader rules: models to try a loader on, files in memory that end at a page
 * which cannot be read, and one parse with all its checks. */
#ifndef CHECK_LOADER_H
#define CHECK_LOADER_H
#include "check.h"
#include <stdbool.h>

#define LOADER_FILES 64

/* ---- the names that a loader states (loader_patterns.c) -------------------------------------- */
#define LOADER_PATTERNS 64
typedef struct {
    mn_file_pattern at[LOADER_PATTERNS];
    uint32_t n;
} loader_patterns;
/* false: the rule has failed. */
bool patterns_read(check *c, const check_plugin *plugin, loader_patterns *out);
/* Bits 1 << MN_PATTERN_* of those that match. */
uint32_t patterns_kinds(const loader_patterns *p, const char *name);
#define PATTERNS_FILE (1u << MN_PATTERN_MODEL | 1u << MN_PATTERN_SHARD)
/* Whether file `name` of a folder belongs to the model that the user named by the file `named`
 * (NULL: by the folder). */
bool patterns_take(const loader_patterns *p, const char *named, const char *name);

/* ---- models (loader_models.c) ---------------------------------------------------------------- */
typedef struct {
    char name[256]; /* base name */
    uint8_t *bytes; /* owned */
    uint64_t n;
    bool named; /* MN_FILE_NAMED */
} model_file;
typedef struct {
    const char *format; /* "gguf"; what the report calls it */
    model_file file[LOADER_FILES];
    uint32_t n;
    bool failed; /* out of memory */
} model_files;
/* gguf, safetensors, mlx: small, valid, with 64 KiB of one tensor so that data has pages of its
     * own */
#define LOADER_MODELS 3
void model_make(model_files *m, uint32_t which);
/* A file with its shards and companions, or the files of a folder, that the patterns match; at most
 * 64 MiB together. NULL, or why they cannot be used. */
const char *model_read(model_files *m, const char *path, const loader_patterns *patterns);
/* In the order of names, as a host does. */
void model_sort(model_files *m);
#define LOADER_GARBAGE 5 /* no file, an empty one, zeros, noise, prose: models of no format */
void model_make_garbage(model_files *m, uint32_t which);
void model_free(model_files *m);

/* ---- files as a host maps them, before a closed page (loader_map.c) -------------------------- */
typedef struct {
    uint8_t *map; /* map_bytes long; the page behind them is closed: any access is a SIGSEGV */
    uint64_t map_bytes;
} mapped_file;
typedef struct {
    mapped_file file[LOADER_FILES];
    mn_file views[LOADER_FILES]; /* what the loader is given */
    uint32_t n;
} mapped_files;
/* at the start of a page, as mmap does it: bytes up to the end of the last page are 0 */
#define MAP_BEGIN 0
#define MAP_END 1 /* the last byte is the last one that can be read */
/* false = out of memory; mapped_free after it in either case. */
bool mapped_make(mapped_files *to, const model_files *from, int how);
/* File i becomes the first n bytes of its model, as with MAP_END. */
void mapped_cut(mapped_files *to, const model_files *from, uint32_t i, uint64_t n);
void mapped_free(mapped_files *m);
/* Closes the whole pages of [ptr, ptr + bytes) inside file i. Number of pages. */
uint64_t mapped_close(mapped_files *m, uint32_t i, const void *ptr, uint64_t bytes);

/* ---- one loader on one model (loader_parse.c) ------------------------------------------------ */
typedef struct {
    check *c;
    check_host host;
    check_plugin plugin;
    loader_patterns patterns;
    model_files model; /* of its format */
} loader;
/* Opens the plugin without a model. 1, or 0 and the rule is over. */
int loader_enter(check *c, loader *l);
void loader_close(loader *l); /* after loader_enter, also where it failed */
/* Opens the plugin, finds a model of its format (--model, or the built-in one that it claims and
 * opens), maps it, calls fn, and closes all. The rule is skipped where there is no model. */
typedef void (*loader_fn)(loader *l, mapped_files *m);
void loader_on_model(check *c, int how, loader_fn fn);
/* The confidence; -1 = the rule has failed. */
int loader_guess(loader *l, const mapped_files *m);
/* Of a valid model: each key and each name of a tensor is there once, and what counts is an
 * integer. */
void loader_once(loader *l, const mapped_files *m);
/* open of the loader's table. */
mn_status loader_open(const loader *l, const mapped_files *m, mn_parsed **out, mn_error *err);
/* Opens, reads and checks all metadata and tensors twice, closes, and looks for leaks; the rule
 * fails at the first fault. digest (may be NULL): of all answers, independent of the files'
 * addresses. The status of open. what: the input, for messages. */
mn_status loader_parse(loader *l, const mapped_files *m, const char *what, uint64_t *digest);
/* The most that a loader may allocate for a built-in model: one that asks for more has used a
 * number of the file without checking it against the file's size. */
#define LOADER_MOST_BYTES (UINT64_C(256) << 20)
/* The digest alone, from any thread; 0 = it does not open. */
uint64_t loader_digest(loader *l, const mapped_files *m);
/* The same for another array of the files of m. */
uint64_t loader_digest_of(loader *l, const mapped_files *m, const void *files, uint32_t stride);
/* Calls fn for every plane of the model, with the file that it lies in. */
typedef void (*loader_plane_fn)(void *arg, uint32_t file, const mn_plane *p);
void loader_each_plane(loader *l, const mapped_files *m, loader_plane_fn fn, void *arg);
/* Where tensor data begins: the smallest offset of a plane in file i, or the file's size. */
uint64_t loader_header_bytes(loader *l, const mapped_files *m, uint32_t i);
#endif
