/* disk.h -- the room of files: blocks of pages that are kept on disk, where they outlive the
 * memory of a session and its process. It knows blocks by hashes and as bytes; neither engines nor
 * sequences. kv/files.c says which blocks are worth keeping, and what is in them.
 *
 * The folder (folder.c), the user's own, mode 700; several processes may use one at the same time:
 *
 *     DIR/key               16 random bytes that all hashes here are keyed with, and a digest
 *     DIR/lock              flock: who holds it removes files
 *     DIR/IDENTITY/         32 hexadecimal digits: hash of what the bytes of pages depend on
 *     DIR/IDENTITY/about    the same as text: model, build of the plugin, device, class, types
 *     DIR/IDENTITY/NAME.kv  a pack, mode 600; NAME stands for the blocks in it
 *     DIR/IDENTITY/NAME.tmp a pack that a living process writes (it holds an flock), or the
 *                           remains of one that was killed, which the next scan removes
 *
 * A pack (pack.c) is written once, under its .tmp name, and then renamed. It is a head, the bytes
 * of blocks one behind the other, and a table of them:
 *
 *     0            mn_pack_head            its `digest` is over all in front of it
 *     64           bytes of block 0, 1 ... each with a digest in its row of the table
 *     head.table   mn_pack_row [n_blocks]  head.table_digest is over all rows; the file ends here
 *
 * Numbers are the writer's own: a file of another byte order has another `order`. Digests (mn_hash)
 * find any change within eight bytes, and all but one in 2^64 of the other changes; they do not
 * protect against somebody who may write to the folder, and only the user may. Nothing here is
 * encrypted.
 *
 * A file that is not as described counts as absent: its blocks are computed again. No fsync: after
 * a crash of the machine the digests tell what has arrived.
 *
 * A pack in the store of a process (store.c):
 *
 *            mn_disk_put: blocks are          it is large, or nothing came for 250 ms, or
 *            written by the store's thread    mn_disk_flush                      a scan finds one
 *     none --------------------------> open -------------------------> known <------------------
 *      ^                                |  the disk is full               |
 *      +--------------------------------+---------------------------------+
 *                                          damaged, removed as the least recently used, or gone
 *
 * The thread of a store reads and writes the files of pages; open and close read and write the
 * small files on their caller's thread. Other functions hold its lock for moments only. Reads of
 * blocks go before writes. */
#ifndef MN_DISK_H
#define MN_DISK_H
#include "base/base.h"

/* ---- pack.c: the format ---------------------------------------------------------------------- */
#define MN_PACK_MAGIC "MnvPack1"
typedef struct {
    char magic[8];
    uint32_t order; /* 0x01020304 */
    uint32_t n_blocks;
    uint64_t identity[2];
    uint64_t table; /* offset of the table */
    uint64_t table_digest;
    uint64_t pad;
    uint64_t digest;
} mn_pack_head;
typedef struct {
    uint64_t hash[2];   /* of the block's tokens and all before them */
    uint64_t at, bytes; /* in the file */
    uint64_t digest;    /* of the bytes and the hash */
    uint32_t groups;    /* bit i: pages of KV group i are in it, in the order of groups */
    uint32_t pad;
} mn_pack_row;

/* Head and table of an open file; *rows: mn_free. MN_BAD_FILE: not a pack of this identity, not
 * complete, or damaged; the message says which. MN_IO_ERROR: cannot be read. */
mn_status mn_pack_read(int fd, const uint64_t identity[2], mn_pack_row **rows, uint32_t *n,
                       mn_error *err);
/* The bytes of one block into to[row->bytes]. MN_BAD_FILE: damaged. */
mn_status mn_pack_read_block(int fd, const mn_pack_row *row, void *to, mn_error *err);

/* A pack that is being written. */
typedef struct {
    int fd; /* -1: none */
    uint64_t at;
    mn_pack_row *rows;
    uint32_t n;
    size_t cap;
} mn_pack_writer;
/* fd: an empty file, the writer's from now on. */
mn_status mn_pack_begin(mn_pack_writer *w, int fd, mn_error *err);
mn_status mn_pack_add(mn_pack_writer *w, const mn_pack_row *block, const void *bytes,
                      mn_error *err); /* of block: hash, bytes, groups */
/* Table and head; the file is complete. */
mn_status mn_pack_finish(mn_pack_writer *w, const uint64_t identity[2], mn_error *err);
void mn_pack_drop(mn_pack_writer *w); /* closes the file, and frees */

/* ---- folder.c -------------------------------------------------------------------------------- */
#define MN_PACK_NAME 40 /* "0123...cdef.kv" */
typedef struct {
    int top, own; /* DIR; DIR/IDENTITY; -1: not open */
    uint64_t key[2], identity[2];
} mn_disk_folder;
/* Makes the folders that are missing. MN_IO_ERROR names the folder: it cannot be made or written,
 * belongs to another user, or others may use it. about: what the bytes of pages depend on. */
mn_status mn_disk_folder_open(const char *dir, mn_str about, mn_disk_folder *out, mn_error *err);
void mn_disk_folder_close(mn_disk_folder *f);
/* Called for each pack of DIR/IDENTITY; a status other than MN_OK ends it. Removes what killed
 * writers left. */
typedef mn_status (*mn_pack_fn)(void *arg, const char *name);
mn_status mn_disk_folder_scan(const mn_disk_folder *f, mn_pack_fn fn, void *arg);
/* When DIR/IDENTITY changed last, in ns; 0: not known. */
uint64_t mn_disk_folder_changed(const mn_disk_folder *f);
/* A regular file of the user's in DIR/IDENTITY; -1: there is none. */
int mn_disk_folder_open_pack(const mn_disk_folder *f, const char *name);
/* A new file for a pack, with its flock, and its name; -1: errno says why. */
int mn_disk_folder_new_pack(const mn_disk_folder *f, char name[MN_PACK_NAME]);
/* Renames what new_pack named; false: errno says why. */
bool mn_disk_folder_keep(const mn_disk_folder *f, const char *temporary, const char *name);
void mn_disk_folder_remove(const mn_disk_folder *f, const char *name);
/* Removes packs of all identities, least recently used first, until they have at most so many bytes
 * together. */
void mn_disk_folder_shrink(const mn_disk_folder *f, uint64_t most);

/* ---- store.c --------------------------------------------------------------------------------- */
typedef struct mn_disk mn_disk;
typedef struct {
    const char *dir;
    uint64_t most_bytes;      /* of all packs in the folder */
    mn_str about;             /* what the bytes of pages depend on */
    uint64_t group_bytes[32]; /* of a block, by KV group */
    uint32_t n_groups;
} mn_disk_params;
/* Opens the folder, learns what it holds, starts the thread. MN_IO_ERROR as above; MN_BAD_INPUT: a
 * block is larger than the folder may be. */
mn_status mn_disk_open(const mn_disk_params *p, mn_disk **out, mn_error *err);
/* Drops what waits to be written. NULL is fine; all loads were ended. */
void mn_disk_close(mn_disk *d);
const uint64_t *mn_disk_key(const mn_disk *d); /* [2] of the folder */

/* Groups whose pages of the block are in a file, or wait to be written. 0: none. */
uint32_t mn_disk_has(mn_disk *d, const uint64_t hash[2]);
/* Other processes may have written since: the thread looks when it has time. */
void mn_disk_look(mn_disk *d);
uint64_t mn_disk_block_bytes(const mn_disk *d, uint32_t groups);
/* About how long reading so many bytes takes, by what reading took so far. */
double mn_disk_read_ns(mn_disk *d, double bytes);

/* Whether a block may be given to mn_disk_put now. */
bool mn_disk_has_room(mn_disk *d);
/* Writes a block; bytes: of mn_alloc, the store's from now on. */
void mn_disk_put(mn_disk *d, const uint64_t hash[2], uint32_t groups, char *bytes);
/* Waits until all is written, at most so long; false: it is not. */
bool mn_disk_flush(mn_disk *d, uint64_t timeout_ns);

/* Blocks that are read ahead, in order. */
typedef struct mn_disk_load mn_disk_load;
/* Starts reading n blocks, whose hashes are copied; NULL: out of memory. */
mn_disk_load *mn_disk_load_begin(mn_disk *d, const uint64_t (*hashes)[2], uint32_t n);
/* The next block: *bytes and *groups, valid until the next call for this load. MN_TIMEOUT: it is
 * not read yet. MN_BAD_FILE, MN_IO_ERROR: it cannot be used; nor can those behind it. MN_END: there
 * are no more. */
mn_status mn_disk_load_next(mn_disk *d, mn_disk_load *x, const char **bytes, uint32_t *groups);
void mn_disk_load_end(mn_disk *d, mn_disk_load *x); /* NULL is fine */
/* Waits until some load has a block, at most so long. */
void mn_disk_wait(mn_disk *d, uint64_t timeout_ns);

typedef struct {
    uint64_t bytes_read, bytes_written, n_damaged, n_dropped;
} mn_disk_counts;
mn_disk_counts mn_disk_count(mn_disk *d);
#endif
