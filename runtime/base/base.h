/* base.h -- what every part of the runtime uses: errors, files, log, numbers, threads, and,
 * from ground, memory, strings and texts. Knows nothing of models or plugins beyond plugin.h's
 * status and dtype vocabulary. All functions: any thread. */
#ifndef MN_BASE_H
#define MN_BASE_H
#include "alloc.h"
#include "dtype.h"
#include "ground.h"
#include "text_buffer.h"
#include "utf8.h"
#include <minerva/plugin.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- error.c --------------------------------------------------------------------------------- */
/* Fills err (may be NULL; sized by err->size, 0 counts as the whole struct) and returns status.
 * Long messages are cut at a character boundary; control characters from files and plugins are
 * replaced (mn_plain). */
mn_status mn_fail(mn_error *err, mn_status status, const char *fmt, ...) MN_PRINTF(3, 4);
mn_status mn_fail_node(mn_error *err, mn_status status, uint32_t node, const char *fmt, ...)
    MN_PRINTF(4, 5);
/* Puts "prefix: " in front of a filled error's message; returns err's status (status if err is
 * NULL). */
mn_status mn_fail_in(mn_error *err, mn_status status, const char *fmt, ...) MN_PRINTF(3, 4);
mn_status mn_fail_memory(mn_error *err, uint64_t bytes); /* "out of memory: N bytes" */
/* A message that a plugin wrote: ended and made plain. */
void mn_fail_plain(mn_error *err);
#define MN_ERROR_INIT                                                                              \
    {                                                                                              \
        sizeof(mn_error), 0, 0, ~0u, 0, {                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* for "%.*s" in messages */
#define MN_STR_ARG(s) (int)((s).len > 300 ? 300 : (s).len), (s).ptr ? (s).ptr : ""

/* ---- plain.c --------------------------------------------------------------------------------- */
/* Makes foreign text, such as a plugin's names and messages, safe for a terminal or a log: tabs and
 * line ends become spaces; bytes of other control characters (C0, DEL, C1), of characters that turn
 * the direction of text or end a line (U+202A to 202E, 2066 to 2069, 2028, 2029) and bytes that are
 * no UTF-8 become "\\xNN". Cut at a character where dst is too small; dst may not overlap s.
 * Returns the length without the NUL. cap >= 1 */
size_t mn_plain(char *dst, size_t cap, mn_str s);
/* As mn_plain, for a char array of fixed size, in place; its NUL may be missing. */
void mn_plain_array(char *text, size_t cap);

/* ---- number.c -------------------------------------------------------------------------------- */
bool mn_parse_i64(mn_str s, int64_t *out); /* the whole of s, decimal */
bool mn_parse_f64(mn_str s, double *out);  /* independent of the locale */
/* A number of bytes: "20GiB", "1.5 GB", "500M" (powers of 1024, but for KB to TB), "4096". */
bool mn_parse_bytes(mn_str s, uint64_t *out);

/* ---- file.c ---------------------------------------------------------------------------------- */
/* Fills err with "path: what: strerror(errno)"; MN_OUT_OF_MEMORY for ENOMEM, else MN_IO_ERROR. */
mn_status mn_fail_errno(mn_error *err, const char *path, const char *what);
struct stat;
/* Opens a regular file for reading, close(*fd) by the caller; everything else is an error, and a
 * FIFO is not waited for. */
mn_status mn_open_regular(const char *path, int *fd, struct stat *st, mn_error *err);
/* Whole file, NUL-terminated, mn_free by the caller; a file over max bytes is an error, and so is a
 * pipe. A device may be read (/dev/null: an empty file). */
mn_status mn_read_file(const char *path, uint64_t max, char **data, uint64_t *bytes, mn_error *err);
/* The list of the companion files that the runtime itself reads, for models of every format. They
 * are mapped beside the files that the patterns of loaders name. */
bool mn_is_companion(const char *name);
/* The one of n mapped files with this base name; NULL = none. */
const mn_file *mn_file_named(const mn_file *files, uint32_t n, const char *name);
/* The maximum size of a tokeniser's file: the limit that SafeTensors sets for its JSON. */
#define MN_TOKENIZER_MAX 100000000u
/* And all other companion files; where they are JSON, a tree of it takes up to forty times that. */
#define MN_COMPANION_MAX (16u << 20)
/* Every text of a model passes here: checks its size and removes a byte order mark. MN_BAD_FILE
 * names the file and both sizes. */
mn_status mn_companion_text(mn_str *text, uint32_t max, const char *name, mn_error *err);
/* As mn_companion_text, for the mapped file with this base name. MN_INVALID: mn_is_companion does
 * not know the name; out->ptr NULL = there is no such file. */
mn_status mn_companion(const mn_file *files, uint32_t n, const char *name, uint32_t max,
                       mn_str *out, mn_error *err);
bool mn_path_is_dir(const char *path);
bool mn_path_exists(const char *path);
char *mn_path_join(const char *a, const char *b); /* mn_free; NULL = out of memory */
/* Folder of the shared object or program that holds address; false: none does. For finding plugins
 * when the prefix was moved. No allocation. */
bool mn_path_of_object(const void *address, char out[PATH_MAX]);

/* ---- map.c: files in memory, and whether they have changed ----------------------------------- */
typedef struct {
    const uint8_t *ptr; /* never NULL, also for an empty file */
    uint64_t bytes;
    struct mn_watch *watch;        /* NULL: read; later changes of the file have no effect */
    struct mn_sealed_range *range; /* finds the plugin that writes there (sealed.h) */
} mn_map;
#define MN_MAP_READ 1u  /* read into memory of the process */
#define MN_MAP_GUARD 2u /* a fault inside the map is caught, and mn_map_changed reports it */
/* Regular files alone; the memory is read-only. A file that changes while it is read is an
 * error. */
mn_status mn_map_file(const char *path, uint32_t flags, mn_map *out, mn_error *err);
void mn_unmap(mn_map *map);
/* For fork: holds the lock of the guards from before it (true) until after it (false), in both
 * processes. */
void mn_map_fork(bool before);
/* MN_OK, or MN_IO_ERROR that names the file: a guarded fault, or (look) a size or time of last
 * modification that is not what it was. Once changed, always changed. A file that was replaced by
 * another one stays mapped unchanged. Any thread. */
mn_status mn_map_changed(const mn_map *map, bool look, mn_error *err);
/* The file's time of last modification as it was mapped, in ns; 0: not known. */
uint64_t mn_map_modified(const mn_map *map);

/* ---- pattern.c: the file names of a loader's format ------------------------------------------ */
#define MN_MAX_PATTERN 64
typedef struct {
    uint32_t kind, flags; /* MN_PATTERN_*; unknown kinds are kept, and match nothing here */
    char *text;
} mn_name_pattern;
typedef struct {
    mn_name_pattern *at;
    uint32_t n;
} mn_patterns;
/* The parts of a name that stand for '*' and '#'. */
typedef struct {
    mn_str star[2], number[2];
} mn_name_hit;
/* Copies the patterns of a loader. MN_BAD_INPUT: a pattern is not valid, none names a model, or the
 * list does not end; the message, without the plugin's name, says which pattern and why. */
mn_status mn_patterns_read(const mn_loader *loader, void *self, mn_patterns *out, mn_error *err);
void mn_patterns_free(mn_patterns *p);
/* hit (may be NULL): set where the name matches, parts of name. */
bool mn_name_match(const mn_name_pattern *p, const char *name, mn_name_hit *hit);
/* Bits 1 << MN_PATTERN_* of the patterns that match. */
uint32_t mn_patterns_kinds(const mn_patterns *p, const char *name);

/* ---- cache.c: small files of the user's own, below $XDG_CACHE_HOME/minerva or ~/.cache/minerva */
/* name: "rates-01ab", "probe/01ab". Appends all of the file, at most max bytes. MN_END: there is no
 * place for a cache. MN_IO_ERROR, which says why: no such file (vendor_code ENOENT), more than max
 * (EFBIG), or other users can write the file or a folder, or it is no regular file. These functions
 * never wait. */
mn_status mn_cache_read(const char *name, uint64_t max, mn_text *out, mn_error *err);
/* The file as it is now, read-only in memory until mn_cache_unmap: replacing the file does not
 * change the mapping. An empty file is MN_IO_ERROR. */
mn_status mn_cache_map(const char *name, uint64_t max, mn_str *out, mn_error *err);
void mn_cache_unmap(mn_str mapped);
/* Replaces the whole file; folders are created for this user only; a home folder that does not
 * exist is not created. */
mn_status mn_cache_write(const char *name, const void *data, uint64_t bytes, mn_error *err);
/* The same with the content in n parts, which are written one after the other. */
mn_status mn_cache_write_parts(const char *name, const mn_str *parts, uint32_t n, mn_error *err);
void mn_cache_remove(const char *name);
/* Opens the file for appending, and creates it if need be; each line is one write; close(*fd) by
 * the caller. Checks and errors as above. */
mn_status mn_cache_append(const char *name, int *fd, mn_error *err);

/* ---- log.c ----------------------------------------------------------------------------------- */
typedef void (*mn_log_fn)(void *arg, int32_t level, const char *msg);
/* NULL = stderr ("minerva: warning: ..."), the default; set before threads start */
void mn_log_to(mn_log_fn fn, void *arg);
void mn_log_release(const void *arg);     /* to stderr again, unless another function was set */
void mn_log_level(int32_t highest_shown); /* MN_LOG_*; default MN_LOG_WARN */
void mn_log(int32_t level, const char *fmt, ...) MN_PRINTF(2, 3);

/* ---- clock.c --------------------------------------------------------------------------------- */
uint64_t mn_now_ns(void); /* monotonic */
/* processor time of the calling thread; 0: unknown */
uint64_t mn_thread_ns(void);

/* ---- hash.c ---------------------------------------------------------------------------------- */
/* for tables and digests of our own; not for security */
uint64_t mn_hash(const void *data, size_t n, uint64_t seed);
/* SipHash-2-4 with 128 bits (Aumasson and Bernstein 2012) of `before` and data:
 * without the key, two inputs with equal hashes cannot be found. out may be `before`. */
void mn_hash_keyed(const uint64_t key[2], const uint64_t before[2], const void *data, size_t n,
                   uint64_t out[2]);

/* ---- cpus.c: how many threads this process can keep busy ------------------------------------- */
typedef struct {
    uint32_t processors; /* in the affinity mask */
    uint32_t cores;      /* cores of these processors */
    uint32_t quota; /* whole processors of the control group's time, at least 1; 0 = no limit */
} mn_cpus;
/* root: "", or a folder with a proc/ and a sys/ of its own. */
mn_cpus mn_cpus_read(const char *root);
/* One thread per core, at most as many as the quota allows. */
uint32_t mn_cpus_default(const mn_cpus *n);

/* ---- pool.c: the process's CPU threads ------------------------------------------------------- */
typedef struct mn_pool mn_pool;
/* 0 = mn_cpus_default. More threads than processors: teams leave the rest of them asleep. */
mn_status mn_pool_create(uint32_t n_threads, mn_pool **out, mn_error *err);
void mn_pool_free(mn_pool *p);
uint32_t mn_pool_workers(const mn_pool *p);
/* Whether this process was forked from the process that made the pool, and so lacks its threads.
 * Running is MN_INVALID then, and freeing leaks. */
bool mn_pool_is_stranded(const mn_pool *p);
/* See mn_host.parallel. The caller is worker 0; workers spin briefly between calls, then sleep.
 * MN_INVALID: n is more than the workers, or the call comes from inside fn. */
mn_status mn_pool_run(mn_pool *p, uint32_t n, void (*fn)(void *arg, uint32_t i, uint32_t n),
                      void *arg);
/* See mn_host.team. MN_INVALID: from inside a task or a team, a struct too short, or a phase of
 * more than 2^24 - 1 chunks, which ends it. */
mn_status mn_pool_team(mn_pool *p, const mn_team *team);

#endif
