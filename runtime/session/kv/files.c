/* files.c -- blocks of the prefix cache in files (disk.h), and slots whose beginning comes from
 * there.
 *
 * A block is noted when a sequence has stored it, and read out of the device while its pages are
 * still named, so that nothing waits for a file when the pages are needed. What was read is written
 * once the steps are complete that were enqueued by then: a step that fails leaves nothing behind.
 * Bytes of a block: its pages of each group, groups and pages in order (mn_engine_fetch_page). */
#include "session/kv/pool.h"
#include <string.h>
#include <time.h>

#define STAGE_BYTES (UINT64_C(64) << 20) /* of all places, about */
enum { FEW_PLACES = 2 };

/* ---- life ------------------------------------------------------------------------------------ */
static mn_disk_params params_of(const mn_kv *kv, const char *dir, uint64_t most, mn_str about) {
    mn_disk_params p = {.dir = dir, .most_bytes = most, .about = about, .n_groups = kv->n_groups};
    for (uint32_t i = 0; i < kv->n_groups; i++)
        p.group_bytes[i] = mn_prefix_pages(kv, i) * mn_engine_page_bytes(kv->engine, i);
    return p;
}

/* Places for blocks on their way. */
static mn_status make_places(mn_kv *kv, const mn_disk_params *p, mn_error *err) {
    uint32_t n_pages[MN_MAX_KV_GROUP] = {0};
    uint64_t bytes = 1;
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        n_pages[i] = mn_prefix_pages(kv, i);
        bytes += p->group_bytes[i];
    }
    const uint64_t n = MN_MAX(STAGE_BYTES / bytes, (uint64_t)FEW_PLACES);
    kv->files.n_places = (uint32_t)MN_MIN(n, (uint64_t)MN_FILES_PLACES);
    return mn_engine_make_places(kv->engine, kv->files.n_places, n_pages, err);
}

mn_status mn_files_open(mn_kv *kv, const char *dir, uint64_t most_bytes, mn_str about,
                        mn_error *err) {
    mn_files *f = &kv->files;
    if (!kv->prefix.block)
        return mn_fail(err, MN_UNSUPPORTED, "this session shares no pages");
    if (kv->state_group >= 0)
        return mn_fail(err, MN_UNSUPPORTED, "states of recurrent layers are not kept in files");
    mn_status st = mn_engine_test_pages(kv->engine, (1u << kv->n_groups) - 1, err);
    if (st)
        return st;
    const mn_disk_params p = params_of(kv, dir, most_bytes, about);
    st = make_places(kv, &p, err);
    if (!st)
        st = mn_disk_open(&p, &f->disk, err);
    if (st)
        return st;
    memcpy(kv->prefix.key, mn_disk_key(f->disk), sizeof kv->prefix.key);
    f->last_ns = mn_now_ns();
    return MN_OK;
}

void mn_files_close(mn_kv *kv) {
    mn_files *f = &kv->files;
    for (uint32_t i = 0; kv->slots && i < kv->n_seq; i++)
        mn_files_load_end(kv, i);
    mn_files_forget(kv);
    mn_disk_close(f->disk);
    mn_free(f->noted);
    *f = (mn_files){.n_tokens = f->n_tokens};
}

void mn_files_count(const mn_kv *kv, mn_session_load *load) {
    if (!kv->files.disk)
        return;
    const mn_disk_counts c = mn_disk_count(kv->files.disk);
    load->disk_hits = kv->files.n_tokens;
    load->disk_read = c.bytes_read;
    load->disk_written = c.bytes_written;
    load->disk_damaged = c.n_damaged;
}

uint64_t mn_files_turn(mn_kv *kv) {
    const uint64_t now = mn_now_ns();
    const uint64_t ns = now - kv->files.last_ns;
    kv->files.last_ns = now;
    return ns;
}

/* ---- out: noted, read, written --------------------------------------------------------------- */
/* The ring, in order, in memory for twice as many; false: out of memory. */
static bool grow_noted(mn_files *f) {
    const size_t cap = f->cap_noted ? 2 * f->cap_noted : 1024;
    uint64_t(*noted)[2] = mn_alloc(cap, sizeof *noted);
    if (!noted)
        return false;
    for (size_t i = 0; i < f->n_noted; i++)
        memcpy(noted[i], f->noted[(f->first_noted + i) % f->cap_noted], sizeof *noted);
    mn_free(f->noted);
    f->noted = noted;
    f->cap_noted = cap;
    f->first_noted = 0;
    return true;
}

/* Of a block that cannot be noted nothing is kept, no more. */
void mn_files_note(mn_kv *kv, const uint64_t hash[2]) {
    mn_files *f = &kv->files;
    if (!f->disk || (f->n_noted == f->cap_noted && !grow_noted(f)))
        return;
    uint64_t *to = f->noted[(f->first_noted + f->n_noted) % f->cap_noted];
    to[0] = hash[0];
    to[1] = hash[1];
    f->n_noted++;
}

/* Groups whose pages the node names. */
static uint32_t groups_of(const mn_kv *kv, int32_t node) {
    uint32_t groups = 0;
    for (uint32_t i = 0; node >= 0 && i < kv->n_groups; i++)
        if (mn_prefix_pages_of(kv, node, i)[0] >= 0)
            groups |= 1u << i;
    return groups;
}

static mn_status fetch_group(mn_kv *kv, uint32_t place, int32_t node, uint32_t group, char *to,
                             mn_error *err) {
    const int32_t *pages = mn_prefix_pages_of(kv, node, group);
    const uint64_t bytes = mn_engine_page_bytes(kv->engine, group);
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < mn_prefix_pages(kv, group) && !st; i++)
        st = mn_engine_fetch_page(kv->engine, place, group, pages[i], to + i * bytes, err);
    return st;
}

/* Enqueues reading the node's pages into a free place; the bytes that are moved, 0: an error, after
 * which the engine's next step says more. */
static uint64_t fetch_node(mn_kv *kv, int32_t node, uint32_t groups, const uint64_t hash[2]) {
    mn_files *f = &kv->files;
    const uint32_t at = (f->first_place + f->n_busy) % f->n_places;
    const uint64_t bytes = mn_disk_block_bytes(f->disk, groups);
    mn_files_place *x = &f->place[at];
    *x = (mn_files_place){.hash = {hash[0], hash[1]},
                          .groups = groups,
                          .after = kv->clock->enqueued,
                          .bytes = mn_alloc((size_t)bytes, 1)};
    mn_status st = x->bytes ? MN_OK : MN_OUT_OF_MEMORY;
    uint64_t done = 0;
    for (uint32_t i = 0; i < kv->n_groups && !st; i++) {
        if (!(groups >> i & 1))
            continue;
        st = fetch_group(kv, at, node, i, x->bytes + done, NULL);
        done += mn_disk_block_bytes(f->disk, 1u << i);
    }
    if (!st) {
        f->n_busy++;
        return bytes;
    }
    mn_engine_fetch_drop(kv->engine, at);
    mn_free(x->bytes);
    x->bytes = NULL;
    return 0;
}

/* Whether the oldest place is over: read, and of steps that are complete. */
static bool place_is_over(mn_kv *kv) {
    mn_files *f = &kv->files;
    mn_files_place *x = &f->place[f->first_place];
    if (!x->fetched) {
        const mn_status st = mn_engine_fetch_poll(kv->engine, f->first_place, NULL);
        if (st == MN_TIMEOUT)
            return false;
        x->fetched = true;
        if (st) { /* its bytes are not there */
            mn_engine_fetch_drop(kv->engine, f->first_place);
            mn_free(x->bytes);
            x->bytes = NULL;
        }
    }
    return x->after <= kv->clock->completed;
}

static void hand_over(mn_kv *kv) {
    mn_files *f = &kv->files;
    while (f->n_busy && place_is_over(kv)) {
        mn_files_place *x = &f->place[f->first_place];
        if (x->bytes)
            mn_disk_put(f->disk, x->hash, x->groups, x->bytes);
        *x = (mn_files_place){0};
        f->first_place = (f->first_place + 1) % f->n_places;
        f->n_busy--;
    }
}

void mn_files_save(mn_kv *kv, uint64_t most) {
    mn_files *f = &kv->files;
    uint64_t moved = 0;
    hand_over(kv);
    while (f->n_noted && f->n_busy < f->n_places && (!moved || moved < most) &&
           mn_disk_has_room(f->disk)) {
        const uint64_t *noted = f->noted[f->first_noted];
        const uint64_t hash[2] = {noted[0], noted[1]};
        const int32_t node = mn_prefix_find(&kv->prefix, hash);
        const uint32_t groups = groups_of(kv, node);
        f->first_noted = (f->first_noted + 1) % f->cap_noted;
        f->n_noted--;
        if (groups & ~mn_disk_has(f->disk, hash))
            moved += fetch_node(kv, node, groups, hash);
        hand_over(kv);
    }
}

bool mn_files_saving(const mn_kv *kv) {
    return kv->files.n_noted || kv->files.n_busy;
}

void mn_files_forget(mn_kv *kv) {
    mn_files *f = &kv->files;
    f->n_noted = 0;
    for (; f->n_busy; f->n_busy--) {
        mn_files_place *x = &f->place[f->first_place];
        mn_engine_fetch_drop(kv->engine, f->first_place);
        mn_free(x->bytes);
        *x = (mn_files_place){0};
        f->first_place = (f->first_place + 1) % f->n_places;
    }
}

bool mn_files_flush(mn_kv *kv, uint64_t timeout_ns) {
    enum { PAUSE_NS = 1000000 };
    const uint64_t end = mn_now_ns() + timeout_ns;
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    while (mn_files_saving(kv) && mn_now_ns() < end) {
        mn_files_save(kv, UINT64_MAX);
        if (mn_files_saving(kv))
            nanosleep(&pause, NULL);
    }
    const uint64_t now = mn_now_ns();
    return mn_disk_flush(kv->files.disk, now < end ? end - now : 0) && !mn_files_saving(kv);
}

/* ---- back: which blocks ---------------------------------------------------------------------- */
/* Groups that see all positions: a block without their pages is of no use. */
static uint32_t whole_groups(const mn_kv *kv) {
    uint32_t groups = 0;
    for (uint32_t i = 0; i < kv->n_groups; i++)
        if (!kv->layout[i].window)
            groups |= 1u << i;
    return groups;
}

/* What is known of a text's blocks in files. */
typedef struct {
    uint64_t (*hashes)[2]; /* from the slot's first that is missing */
    uint32_t end;          /* blocks that the slot may have */
    double bytes;          /* of those in front of end */
} files_found;

/* How far the slot may come: to a block behind which the pages of every window are there, too. */
static void look_up(mn_kv *kv, const mn_kv_slot *q, mn_memory_text text, files_found *out) {
    const mn_prefix *x = &kv->prefix;
    const uint32_t whole = whole_groups(kv);
    const uint32_t most = (text.n_tokens - 1) / x->block;
    uint32_t run[MN_MAX_KV_GROUP]; /* blocks up to here with the group */
    uint64_t h[2] = {q->hash[0], q->hash[1]};
    double bytes = 0;
    for (uint32_t i = 0; i < kv->n_groups; i++)
        run[i] = q->n_blocks;
    for (uint32_t b = q->n_blocks; b < most; b++) {
        bool usable = true;
        mn_prefix_hash(x, text.tokens, b, h);
        const uint32_t has = mn_disk_has(kv->files.disk, h);
        if (!has || whole & ~has)
            return;
        memcpy(out->hashes[b - q->n_blocks], h, sizeof h);
        bytes += (double)mn_disk_block_bytes(kv->files.disk, has);
        for (uint32_t i = 0; i < kv->n_groups; i++) {
            run[i] = has >> i & 1 ? run[i] + 1 : 0;
            const uint32_t first = mn_pages_first_seen(kv, i, (b + 1) * x->block) / x->block;
            usable = usable && first + run[i] > b;
        }
        if (!usable)
            continue;
        out->end = b + 1;
        out->bytes = bytes;
    }
}

/* Window groups begin where the row behind all blocks sees them; what lies in between is not
 * loaded. */
static void skip_unseen(mn_kv *kv, uint32_t slot, uint32_t n_blocks) {
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        mn_entries *e = mn_tables_entries(kv, i, slot);
        const uint32_t first = mn_pages_first(kv, i, n_blocks * kv->prefix.block);
        if (first <= e->hi)
            continue;
        mn_pages_give_back(kv, i, slot, e->lo, e->hi);
        *e = (mn_entries){first, first};
    }
}

bool mn_files_load(mn_kv *kv, uint32_t slot, mn_memory_text text, double row_ns) {
    mn_kv_slot *q = &kv->slots[slot];
    const mn_prefix *x = &kv->prefix;
    files_found found = {.end = q->n_blocks};
    if (!kv->files.disk || !q->shares || text.n_stored != q->n_blocks * x->block ||
        text.n_tokens <= text.n_stored + x->block)
        return false;
    found.hashes = mn_alloc(text.n_tokens / x->block, sizeof *found.hashes);
    if (found.hashes)
        look_up(kv, q, text, &found);
    mn_disk_look(kv->files.disk);
    const uint64_t(*const hashes)[2] = (const uint64_t(*)[2])(uintptr_t)found.hashes;
    const uint32_t n = found.end - q->n_blocks;
    if (n && mn_disk_read_ns(kv->files.disk, found.bytes) < row_ns * n * x->block)
        q->load = mn_disk_load_begin(kv->files.disk, hashes, n);
    mn_free(found.hashes);
    if (!q->load)
        return false;
    q->load_end = found.end;
    kv->files.n_loading++;
    skip_unseen(kv, slot, found.end);
    return true;
}

void mn_files_load_end(mn_kv *kv, uint32_t slot) {
    mn_kv_slot *q = &kv->slots[slot];
    if (!q->load)
        return;
    mn_disk_load_end(kv->files.disk, q->load);
    q->load = NULL;
    kv->files.n_loading--;
}

/* ---- back: into pages ------------------------------------------------------------------------ */
/* The group's part of block b into the row's entries from `from` on, which are in it. */
static mn_status store_group(mn_kv *kv, uint32_t slot, uint32_t group, uint32_t b, uint32_t from,
                             const char *bytes, mn_error *err) {
    const uint32_t per = mn_prefix_pages(kv, group);
    const uint64_t page_bytes = mn_engine_page_bytes(kv->engine, group);
    const int32_t *row = mn_tables_row(kv, group, slot);
    mn_status st = MN_OK;
    for (uint32_t i = MN_MAX(from, b * per); i < (b + 1) * per && !st; i++)
        st = mn_engine_store_page(kv->engine, group, row[i], bytes + (i - b * per) * page_bytes,
                                  err);
    return st;
}

/* Whether the block has what the row lacks in front of its end. */
static bool has_needed(const mn_kv *kv, uint32_t slot, uint32_t b, uint32_t groups) {
    for (uint32_t i = 0; i < kv->n_groups; i++)
        if (!(groups >> i & 1) &&
            mn_tables_entries(kv, i, slot)->hi < (b + 1) * mn_prefix_pages(kv, i))
            return false;
    return true;
}

/* Block b into new pages of the slot. *fits false: it has none, or the block does not do. */
static mn_status take_block(mn_kv *kv, uint32_t slot, uint32_t b, const char *bytes,
                            uint32_t groups, bool *fits, mn_error *err) {
    uint32_t from[MN_MAX_KV_GROUP];
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < kv->n_groups; i++)
        from[i] = mn_tables_entries(kv, i, slot)->hi;
    *fits =
        has_needed(kv, slot, b, groups) && mn_pages_reserve(kv, slot, (b + 1) * kv->prefix.block);
    if (!*fits)
        return MN_OK;
    for (uint32_t i = 0; i < kv->n_groups && !st; i++) {
        if (!(groups >> i & 1))
            continue;
        st = store_group(kv, slot, i, b, from[i], bytes, err);
        bytes += mn_disk_block_bytes(kv->files.disk, 1u << i);
    }
    return st;
}

static bool has_windows(const mn_kv *kv) {
    return whole_groups(kv) != (1u << kv->n_groups) - 1;
}

/* No more blocks come: the slot goes on behind those it has; or, where window groups began further
 * on, with what the prefix cache has in memory. */
static void stop_load(mn_kv *kv, uint32_t slot, mn_memory_text text, bool *anew) {
    mn_files_load_end(kv, slot);
    if (!has_windows(kv) || text.n_stored == kv->slots[slot].load_end * kv->prefix.block)
        return;
    mn_pages_drop(kv, slot, text);
    mn_kv_forget(kv, slot);
    *anew = true;
}

mn_status mn_files_take(mn_kv *kv, uint32_t slot, mn_memory_text text, uint64_t *most,
                        uint32_t *n_more, bool *anew, mn_error *err) {
    mn_kv_slot *q = &kv->slots[slot];
    const uint32_t block = kv->prefix.block;
    bool fits = true;
    mn_status st = MN_OK;
    *n_more = 0;
    *anew = false;
    while (fits && *most && !st) {
        const char *bytes = NULL;
        uint32_t groups = 0;
        const mn_status next = mn_disk_load_next(kv->files.disk, q->load, &bytes, &groups);
        if (next == MN_TIMEOUT)
            return MN_OK;
        fits = !next;
        if (fits)
            st = take_block(kv, slot, text.n_stored / block, bytes, groups, &fits, err);
        if (st || !fits)
            continue;
        *most -= MN_MIN(*most, mn_disk_block_bytes(kv->files.disk, groups));
        text.n_stored += block;
        *n_more += block;
        kv->prefix.n_hits += block;
        kv->files.n_tokens += block;
    }
    if (!fits && !st)
        stop_load(kv, slot, text, anew);
    return st;
}
