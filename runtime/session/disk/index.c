/* index.c -- the table of index.h: entries in chains by their hash, and in a list for each pack. */
#include "session/disk/index.h"
#include <string.h>

static int32_t *index_head(const mn_disk_index *x, const uint64_t h[2]) {
    return &x->heads[h[0] & (x->n_heads - 1)];
}

int32_t mn_disk_index_find(const mn_disk_index *x, const uint64_t h[2]) {
    int32_t i = x->n_heads ? *index_head(x, h) : MN_DISK_NONE;
    while (i >= 0 && memcmp(x->entries[i].row.hash, h, sizeof x->entries[i].row.hash))
        i = x->entries[i].next;
    return i;
}

/* Twice as many heads; false: out of memory. */
static bool grow_heads(mn_disk_index *x) {
    const uint32_t n = x->n_heads ? 2 * x->n_heads : 1024;
    int32_t *heads = mn_alloc(n, sizeof *heads);
    if (!heads)
        return false;
    memset(heads, 0xff, n * sizeof *heads);
    for (uint32_t k = 0; k < x->n_heads; k++)
        for (int32_t i = x->heads[k], next; i >= 0; i = next) {
            int32_t *to = &heads[x->entries[i].row.hash[0] & (n - 1)];
            next = x->entries[i].next;
            x->entries[i].next = *to;
            *to = i;
        }
    mn_free(x->heads);
    x->heads = heads;
    x->n_heads = n;
    return true;
}

static int32_t new_entry(mn_disk_index *x) {
    void *entries = x->entries;
    const int32_t i = x->free_entry;
    if (i >= 0) {
        x->free_entry = x->entries[i].next;
        return i;
    }
    if (x->n_entries >= INT32_MAX ||
        !mn_grow(&entries, &x->cap_entries, x->n_entries + 1, sizeof *x->entries))
        return MN_DISK_NONE;
    x->entries = entries;
    return (int32_t)x->n_entries++;
}

/* The list that the entry is in: of its pack, or of those without a file. */
static int32_t *list_with(mn_disk_index *x, int32_t pack_at) {
    return pack_at < 0 ? &x->pending : &x->packs[pack_at].first;
}

int32_t mn_disk_index_insert(mn_disk_index *x, const mn_pack_row *row, int32_t pack_at) {
    if (x->n_known >= x->n_heads && !grow_heads(x))
        return MN_DISK_NONE;
    const int32_t i = new_entry(x);
    if (i < 0)
        return MN_DISK_NONE;
    int32_t *head = index_head(x, row->hash);
    int32_t *list = list_with(x, pack_at);
    x->entries[i] =
        (mn_disk_entry){.row = *row, .next = *head, .pack = pack_at, .next_in_pack = *list};
    *head = i;
    *list = i;
    x->n_known++;
    return i;
}

/* Off its chain; the caller takes it off its list. */
static void index_forget(mn_disk_index *x, int32_t i) {
    int32_t *at = index_head(x, x->entries[i].row.hash);
    while (*at != i)
        at = &x->entries[*at].next;
    *at = x->entries[i].next;
    x->entries[i].next = x->free_entry;
    x->free_entry = i;
    x->n_known--;
}

static void unlist(mn_disk_index *x, int32_t i) {
    int32_t *at = list_with(x, x->entries[i].pack);
    while (*at != i)
        at = &x->entries[*at].next_in_pack;
    *at = x->entries[i].next_in_pack;
}

void mn_disk_index_remove(mn_disk_index *x, int32_t i) {
    unlist(x, i);
    index_forget(x, i);
}

void mn_disk_index_forget_pack(mn_disk_index *x, int32_t at) {
    for (int32_t i = x->packs[at].first, next; i >= 0; i = next) {
        next = x->entries[i].next_in_pack;
        index_forget(x, i);
    }
    x->packs[at] = (mn_disk_pack){.first = MN_DISK_NONE};
}

bool mn_disk_index_is_pack(const mn_disk_index *x, int32_t at, const uint64_t name[2]) {
    return at >= 0 && x->packs[at].used &&
           !memcmp(x->packs[at].name, name, sizeof x->packs[at].name);
}

int32_t mn_disk_index_find_pack(const mn_disk_index *x, const uint64_t name[2]) {
    for (int32_t i = x->n_heads ? *index_head(x, name) : MN_DISK_NONE; i >= 0;
         i = x->entries[i].next)
        if (mn_disk_index_is_pack(x, x->entries[i].pack, name))
            return x->entries[i].pack;
    for (size_t i = 0; i < x->n_packs; i++)
        if (mn_disk_index_is_pack(x, (int32_t)i, name))
            return (int32_t)i;
    return MN_DISK_NONE;
}

int32_t mn_disk_index_new_pack(mn_disk_index *x, const uint64_t name[2]) {
    void *packs = x->packs;
    size_t at = 0;
    while (at < x->n_packs && x->packs[at].used)
        at++;
    if (at == x->n_packs && !mn_grow(&packs, &x->cap_packs, at + 1, sizeof *x->packs))
        return MN_DISK_NONE;
    x->packs = packs;
    if (at == x->n_packs)
        x->n_packs++;
    x->packs[at] = (mn_disk_pack){
        .name = {name[0], name[1]}, .first = MN_DISK_NONE, .used = true, .seen = true};
    return (int32_t)at;
}

void mn_disk_index_add(mn_disk_index *x, const mn_pack_row *row, int32_t pack_at) {
    const int32_t i = mn_disk_index_find(x, row->hash);
    if (i >= 0 && x->entries[i].pack >= 0 &&
        (x->entries[i].row.groups & row->groups) == row->groups)
        return;
    if (i >= 0)
        mn_disk_index_remove(x, i);
    mn_disk_index_insert(x, row, pack_at);
}
