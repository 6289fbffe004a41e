/* index.h -- which blocks the files of a store hold: each block of DIR/IDENTITY by its hash, in
 * which pack it is, and where. Used under the store's lock. */
#ifndef MN_DISK_INDEX_H
#define MN_DISK_INDEX_H
#include "session/disk/disk.h"

enum { MN_DISK_NONE = -1 };
/* A block in a file; or (pack MN_DISK_NONE) one that waits to be written or is in the open pack. */
typedef struct {
    mn_pack_row row;
    int32_t next;         /* with the same head; or the next free one */
    int32_t pack;         /* MN_DISK_NONE: it has no file yet */
    int32_t next_in_pack; /* also of those without a file */
} mn_disk_entry;

typedef struct {
    uint64_t name[2];
    int32_t first; /* entry */
    bool used, seen;
} mn_disk_pack;

/* Of entries and packs by number; chains of entries by the hash. */
typedef struct {
    mn_disk_entry *entries;
    size_t n_entries, cap_entries;
    int32_t free_entry, pending; /* pending: the first without a file */
    int32_t *heads;              /* [n_heads], a power of 2 */
    uint32_t n_heads, n_known;
    mn_disk_pack *packs;
    size_t n_packs, cap_packs;
} mn_disk_index;

/* The entry of a block; MN_DISK_NONE: it is not known. */
int32_t mn_disk_index_find(const mn_disk_index *x, const uint64_t h[2]);
/* MN_DISK_NONE: out of memory; it is as if the block were not there. */
int32_t mn_disk_index_insert(mn_disk_index *x, const mn_pack_row *row, int32_t pack_at);
/* The entry is free again. */
void mn_disk_index_remove(mn_disk_index *x, int32_t i);
/* With all its blocks. */
void mn_disk_index_forget_pack(mn_disk_index *x, int32_t at);
/* Whether the pack at `at` is in use and has this name. */
bool mn_disk_index_is_pack(const mn_disk_index *x, int32_t at, const uint64_t name[2]);
/* MN_DISK_NONE: it is not known. */
int32_t mn_disk_index_find_pack(const mn_disk_index *x, const uint64_t name[2]);
/* MN_DISK_NONE: out of memory. */
int32_t mn_disk_index_new_pack(mn_disk_index *x, const uint64_t name[2]);
/* A block of a pack. Of two files with the block the one with more groups is known. */
void mn_disk_index_add(mn_disk_index *x, const mn_pack_row *row, int32_t pack_at);
#endif
