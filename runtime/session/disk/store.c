/* store.c -- the blocks that files hold, and the one thread that reads and writes files.
 *
 * The index (index.h) knows the blocks. The thread alone changes it, under the lock; other threads
 * look things up. Blocks to be written and loads are lists under the same lock, which is not held
 * while a file is read or written. */
#include "session/disk/index.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)
#define PACK_BYTES (UINT64_C(64) << 20)    /* of a pack, about */
#define WAITING_BYTES (UINT64_C(64) << 20) /* of blocks that wait to be written */
#define AHEAD_BYTES (UINT64_C(32) << 20)   /* of blocks of a load that are read ahead */
#define SAMPLE_BYTES (UINT64_C(8) << 20)   /* read at the start, to measure the disk */
#define SURE_BYTES (UINT64_C(256) << 20)   /* rates: older bytes count half */
#define UNMEASURED 10.0                    /* ns per byte: 100 MB/s */
#define QUIET_NS (SECOND / 4)              /* without a block, until the open pack gets its name */
enum { PAUSE_S = 60, FEW = 2 };

typedef struct block {
    struct block *next;
    uint64_t hash[2];
    uint32_t groups;
    char *bytes;
} block;

struct mn_disk_load {
    mn_disk_load *next;
    uint64_t (*hashes)[2];
    block *ready, **ready_end;
    block *taken; /* what the caller has */
    uint64_t ready_bytes;
    uint32_t n, n_read;
    bool reading, ended; /* ended: nobody wants it any more */
    mn_status failed;
    int fd; /* of the pack that was read last; the thread's */
    int32_t pack;
};

struct mn_disk {
    mn_disk_folder folder;
    uint64_t most, group_bytes[32];
    uint32_t n_groups;
    pthread_mutex_t lock;
    pthread_cond_t work, done; /* for the thread; for others */
    pthread_t thread;
    bool started, closing, look, flushing, paused_said;
    mn_disk_index index;
    uint64_t scanned; /* mn_disk_folder_changed at the last scan */
    /* lists */
    block *writes, **writes_end;
    uint64_t waiting_bytes;
    uint32_t n_waiting;
    bool writing, packing; /* packing: a pack is open */
    mn_disk_load *loads;
    /* the thread's own */
    mn_pack_writer open;
    char open_name[MN_PACK_NAME];
    uint64_t paused_until, packed_bytes; /* packed: since the folder was measured last */
    double read_ns, read_bytes;
    mn_disk_counts counts;
};

static void pack_name(const uint64_t name[2], char to[MN_PACK_NAME]) {
    snprintf(to, MN_PACK_NAME, "%016llx%016llx.kv", (unsigned long long)name[0],
             (unsigned long long)name[1]);
}

/* ---- packs on disk: the thread --------------------------------------------------------------- */
/* Whether rows are such as this model's blocks are. */
static bool rows_fit(const mn_disk *d, const mn_pack_row *rows, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (rows[i].groups >> d->n_groups ||
            rows[i].bytes != mn_disk_block_bytes(d, rows[i].groups))
            return false;
    return true;
}

/* A pack that cannot be used: it is removed, so that its blocks are written again. */
static void refuse_pack(mn_disk *d, const char *name, const char *why) {
    mn_log(MN_LOG_WARN, "cache_dir: %s is not used: %s", name, why);
    mn_disk_folder_remove(&d->folder, name);
    pthread_mutex_lock(&d->lock);
    d->counts.n_damaged++;
    pthread_mutex_unlock(&d->lock);
}

/* The name of a pack is that of a hash. */
static bool name_of(const char *text, uint64_t name[2]) {
    unsigned long long a;
    unsigned long long b;
    if (sscanf(text, "%16llx%16llx.kv", &a, &b) != 2)
        return false;
    name[0] = a;
    name[1] = b;
    return true;
}

static mn_status learn_pack(void *arg, const char *text) {
    mn_disk *d = arg;
    uint64_t name[2];
    mn_pack_row *rows = NULL;
    uint32_t n = 0;
    mn_error why = MN_ERROR_INIT;
    if (!name_of(text, name))
        return MN_OK;
    pthread_mutex_lock(&d->lock);
    const int32_t known = mn_disk_index_find_pack(&d->index, name);
    if (known >= 0)
        d->index.packs[known].seen = true;
    pthread_mutex_unlock(&d->lock);
    const int fd = known >= 0 ? -1 : mn_disk_folder_open_pack(&d->folder, text);
    if (fd < 0)
        return MN_OK;
    mn_status st = mn_pack_read(fd, d->folder.identity, &rows, &n, &why);
    if (!st && !rows_fit(d, rows, n))
        st = mn_fail(&why, MN_BAD_FILE, "its blocks have another size");
    close(fd);
    if (st == MN_BAD_FILE)
        refuse_pack(d, text, why.msg);
    pthread_mutex_lock(&d->lock);
    const int32_t at = st ? MN_DISK_NONE : mn_disk_index_new_pack(&d->index, name);
    for (uint32_t i = 0; i < n && at >= 0; i++)
        mn_disk_index_add(&d->index, &rows[i], at);
    pthread_mutex_unlock(&d->lock);
    mn_free(rows);
    return MN_OK;
}

/* What other processes have written or removed since the last time. */
static void disk_scan(mn_disk *d) {
    const uint64_t changed = mn_disk_folder_changed(&d->folder);
    if (changed && changed == d->scanned)
        return;
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->index.n_packs; i++)
        d->index.packs[i].seen = false;
    pthread_mutex_unlock(&d->lock);
    if (mn_disk_folder_scan(&d->folder, learn_pack, d))
        return;
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->index.n_packs; i++)
        if (d->index.packs[i].used && !d->index.packs[i].seen)
            mn_disk_index_forget_pack(&d->index, (int32_t)i);
    pthread_mutex_unlock(&d->lock);
    d->scanned = changed;
}

/* How fast the disk is, by a file that is not in memory, as far as the system does what it is told.
 * Without a file nothing is known, and the first load tells. */
static void measure_disk(mn_disk *d) {
    char name[MN_PACK_NAME];
    struct stat st;
    if (!d->index.n_packs)
        return;
    pack_name(d->index.packs[0].name, name);
    const int fd = mn_disk_folder_open_pack(&d->folder, name);
    char *to = mn_alloc(SAMPLE_BYTES, 1);
    if (fd >= 0 && to && !fstat(fd, &st)) {
        const size_t bytes = (size_t)MN_MIN((uint64_t)st.st_size, SAMPLE_BYTES);
        posix_fadvise(fd, 0, (off_t)bytes, POSIX_FADV_DONTNEED);
        const uint64_t begin = mn_now_ns();
        if (pread(fd, to, bytes, 0) == (ssize_t)bytes) {
            d->read_ns = (double)(mn_now_ns() - begin);
            d->read_bytes = (double)bytes;
        }
    }
    mn_free(to);
    if (fd >= 0)
        close(fd);
}

/* ---- writing: the thread --------------------------------------------------------------------- */
/* The blocks without a file that are in the open pack have none any more, or that of `at`. Those
 * that still wait keep waiting. */
static void settle_pending(mn_disk *d, const mn_pack_writer *w, int32_t at) {
    for (uint32_t i = 0; i < w->n; i++) {
        const int32_t e = mn_disk_index_find(&d->index, w->rows[i].hash);
        if (e >= 0 && d->index.entries[e].pack < 0) {
            mn_disk_index_remove(&d->index, e);
        }
        if (at >= 0)
            mn_disk_index_add(&d->index, &w->rows[i], at);
    }
}

/* One line, not one for each block; then nothing is written for a while. */
static void disk_pause(mn_disk *d, const mn_error *why) {
    if (!d->paused_said)
        mn_log(MN_LOG_WARN, "cache_dir: %s: what leaves memory is not kept for now", why->msg);
    d->paused_said = true;
    d->paused_until = mn_now_ns() + PAUSE_S * SECOND;
}

static void drop_open(mn_disk *d) {
    pthread_mutex_lock(&d->lock);
    settle_pending(d, &d->open, MN_DISK_NONE);
    d->counts.n_dropped += d->open.n;
    pthread_mutex_unlock(&d->lock);
    mn_disk_folder_remove(&d->folder, d->open_name);
    mn_pack_drop(&d->open);
}

/* All packs together are measured when a good part of what is allowed was written. */
static void disk_shrink(mn_disk *d, uint64_t bytes) {
    d->packed_bytes += bytes;
    const uint64_t part = MN_MIN(d->most / 16, PACK_BYTES);
    if (d->packed_bytes < part && d->packed_bytes > bytes)
        return;
    d->packed_bytes = 1;
    mn_disk_folder_shrink(&d->folder, d->most - MN_MIN(d->most, part));
    disk_scan(d);
}

/* The open pack gets its table and its name, which stands for all that is in it: two packs of one
 * name have the same blocks at the same places, whoever wrote them. */
static void close_pack(mn_disk *d) {
    mn_error why = MN_ERROR_INIT;
    char name[MN_PACK_NAME];
    mn_pack_writer *w = &d->open;
    const uint64_t named[2] = {w->rows[w->n - 1].hash[0],
                               mn_hash(w->rows, w->n * sizeof *w->rows, 4)};
    mn_status st = mn_pack_finish(w, d->folder.identity, &why);
    pack_name(named, name);
    if (!st && !mn_disk_folder_keep(&d->folder, d->open_name, name))
        st = mn_fail(&why, MN_IO_ERROR, "cannot rename a file: %s", strerror(errno));
    if (st) {
        disk_pause(d, &why);
        drop_open(d);
        return;
    }
    pthread_mutex_lock(&d->lock);
    const int32_t old = mn_disk_index_find_pack(&d->index, named);
    if (old >= 0)
        mn_disk_index_forget_pack(&d->index, old);
    settle_pending(d, w, mn_disk_index_new_pack(&d->index, named));
    d->counts.bytes_written += w->at;
    pthread_mutex_unlock(&d->lock);
    const uint64_t bytes = w->at;
    mn_pack_drop(w);
    disk_shrink(d, bytes);
}

static mn_status open_pack(mn_disk *d, mn_error *err) {
    const int fd = mn_disk_folder_new_pack(&d->folder, d->open_name);
    if (fd < 0)
        return mn_fail(err, MN_IO_ERROR, "cannot make a file: %s", strerror(errno));
    return mn_pack_begin(&d->open, fd, err);
}

/* What could not be written is not waited for. */
static void forget_block(mn_disk *d, const block *b) {
    pthread_mutex_lock(&d->lock);
    const int32_t e = mn_disk_index_find(&d->index, b->hash);
    if (e >= 0 && d->index.entries[e].pack < 0) {
        mn_disk_index_remove(&d->index, e);
    }
    d->counts.n_dropped++;
    pthread_mutex_unlock(&d->lock);
}

static void write_block(mn_disk *d, const block *b) {
    mn_error why = MN_ERROR_INIT;
    const mn_pack_row row = {.hash = {b->hash[0], b->hash[1]},
                             .groups = b->groups,
                             .bytes = mn_disk_block_bytes(d, b->groups)};
    mn_status st = MN_OK;
    if (mn_now_ns() < d->paused_until) {
        forget_block(d, b);
        return;
    }
    if (d->open.fd < 0)
        st = open_pack(d, &why);
    if (!st)
        st = mn_pack_add(&d->open, &row, b->bytes, &why);
    if (st) {
        disk_pause(d, &why);
        forget_block(d, b);
        if (d->open.fd >= 0)
            drop_open(d);
        return;
    }
    if (d->open.at >= MN_MIN(PACK_BYTES, d->most / 16))
        close_pack(d);
}

/* ---- reading: the thread --------------------------------------------------------------------- */
static void free_block(block *b) {
    if (b)
        mn_free(b->bytes);
    mn_free(b);
}

static void free_load(mn_disk_load *x) {
    for (block *b = x->ready, *next; b; b = next) {
        next = b->next;
        free_block(b);
    }
    free_block(x->taken);
    if (x->fd >= 0)
        close(x->fd);
    mn_free(x->hashes);
    mn_free(x);
}

static bool wants_block(const mn_disk_load *x) {
    return !x->ended && !x->failed && x->n_read < x->n &&
           (!x->ready || x->ready_bytes < AHEAD_BYTES);
}

/* A load that is to be read on; those that nobody wants any more are freed. Under the lock. */
static mn_disk_load *next_load(mn_disk *d) {
    mn_disk_load **at = &d->loads;
    while (*at) {
        mn_disk_load *x = *at;
        if (x->ended) {
            *at = x->next;
            free_load(x);
            continue;
        }
        if (wants_block(x))
            return x;
        at = &x->next;
    }
    return NULL;
}

/* The pack of the block, open; used: now. */
static mn_status open_for(mn_disk *d, mn_disk_load *x, int32_t at, const uint64_t name[2]) {
    char text[MN_PACK_NAME];
    if (x->fd >= 0 && x->pack == at)
        return MN_OK;
    if (x->fd >= 0)
        close(x->fd);
    pack_name(name, text);
    x->fd = mn_disk_folder_open_pack(&d->folder, text);
    x->pack = at;
    if (x->fd < 0)
        return MN_IO_ERROR;
    futimens(x->fd, NULL);
    return MN_OK;
}

/* A pack that is gone or damaged is not known any more. */
static void lose_pack(mn_disk *d, int32_t at, const uint64_t name[2], mn_status st,
                      const char *why) {
    char text[MN_PACK_NAME];
    pack_name(name, text);
    if (st == MN_BAD_FILE)
        refuse_pack(d, text, why);
    pthread_mutex_lock(&d->lock);
    if (mn_disk_index_is_pack(&d->index, at, name))
        mn_disk_index_forget_pack(&d->index, at);
    pthread_mutex_unlock(&d->lock);
}

static void count_read(mn_disk *d, uint64_t ns, uint64_t bytes) {
    if (d->read_bytes > (double)SURE_BYTES) {
        d->read_ns /= 2;
        d->read_bytes /= 2;
    }
    d->read_ns += (double)ns;
    d->read_bytes += (double)bytes;
    d->counts.bytes_read += bytes;
}

/* The next block of the load. The entry is a copy: the index may change meanwhile. */
static mn_status load_block(mn_disk *d, mn_disk_load *x, const mn_disk_entry *e,
                            const uint64_t name[2], block **out) {
    mn_error why = MN_ERROR_INIT;
    block *b = mn_calloc(1, sizeof *b);
    if (b)
        b->bytes = mn_alloc((size_t)e->row.bytes, 1);
    if (!b || !b->bytes) {
        free_block(b);
        return MN_OUT_OF_MEMORY;
    }
    b->groups = e->row.groups;
    const uint64_t begin = mn_now_ns();
    mn_status st = open_for(d, x, e->pack, name);
    if (!st)
        st = mn_pack_read_block(x->fd, &e->row, b->bytes, &why);
    if (st) {
        free_block(b);
        lose_pack(d, e->pack, name, st, why.msg);
        return st;
    }
    pthread_mutex_lock(&d->lock);
    count_read(d, mn_now_ns() - begin, e->row.bytes);
    pthread_mutex_unlock(&d->lock);
    *out = b;
    return MN_OK;
}

/* Reads one block; called and left with the lock. */
static void read_for(mn_disk *d, mn_disk_load *x) {
    const int32_t i = mn_disk_index_find(&d->index, x->hashes[x->n_read]);
    block *b = NULL;
    mn_status st = MN_IO_ERROR;
    if (i >= 0 && d->index.entries[i].pack >= 0) {
        const mn_disk_entry e = d->index.entries[i];
        const mn_disk_pack p = d->index.packs[e.pack];
        x->reading = true;
        pthread_mutex_unlock(&d->lock);
        st = load_block(d, x, &e, p.name, &b);
        pthread_mutex_lock(&d->lock);
        x->reading = false;
    }
    x->failed = st;
    if (!st) {
        *x->ready_end = b;
        x->ready_end = &b->next;
        x->ready_bytes += mn_disk_block_bytes(d, b->groups);
        x->n_read++;
    }
    pthread_cond_broadcast(&d->done);
}

/* ---- the thread ------------------------------------------------------------------------------ */
static void disk_deadline(uint64_t ns, struct timespec *t) {
    clock_gettime(CLOCK_MONOTONIC, t);
    const uint64_t end = (uint64_t)t->tv_sec * SECOND + (uint64_t)t->tv_nsec + ns;
    t->tv_sec = (time_t)(end / SECOND);
    t->tv_nsec = (long)(end % SECOND);
}

/* One write; called and left with the lock. */
static void write_next(mn_disk *d) {
    block *b = d->writes;
    d->writes = b->next;
    if (!d->writes)
        d->writes_end = &d->writes;
    d->writing = true;
    pthread_mutex_unlock(&d->lock);
    write_block(d, b);
    pthread_mutex_lock(&d->lock);
    d->writing = false;
    d->packing = d->open.fd >= 0;
    d->waiting_bytes -= mn_disk_block_bytes(d, b->groups);
    d->n_waiting--;
    free_block(b);
    pthread_cond_broadcast(&d->done);
}

/* The open pack, and what is to be looked up; called and left with the lock. */
static void disk_tidy(mn_disk *d, bool pack_up) {
    const bool look = d->look;
    d->look = false;
    pthread_mutex_unlock(&d->lock);
    if (pack_up && d->open.fd >= 0 && d->open.n)
        close_pack(d);
    if (look)
        disk_scan(d);
    pthread_mutex_lock(&d->lock);
    d->packing = d->open.fd >= 0;
    pthread_cond_broadcast(&d->done);
}

static void *disk_run(void *arg) {
    mn_disk *d = arg;
    pthread_mutex_lock(&d->lock);
    while (!d->closing) {
        mn_disk_load *x = next_load(d);
        struct timespec until;
        if (x) {
            read_for(d, x);
        } else if (d->writes) {
            write_next(d);
        } else if (d->look || (d->flushing && d->packing)) {
            disk_tidy(d, d->flushing);
        } else if (!d->packing) {
            pthread_cond_wait(&d->work, &d->lock);
        } else {
            disk_deadline(QUIET_NS, &until);
            if (pthread_cond_timedwait(&d->work, &d->lock, &until) == ETIMEDOUT)
                disk_tidy(d, true);
        }
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* Signals are for other threads. */
static bool start_thread(mn_disk *d) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    d->started = !pthread_create(&d->thread, NULL, disk_run, d);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return d->started;
}

/* ---- life ------------------------------------------------------------------------------------ */
static bool init_locks(mn_disk *d) {
    pthread_condattr_t attr;
    if (pthread_mutex_init(&d->lock, NULL))
        return false;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    const bool ok = !pthread_cond_init(&d->work, &attr) && !pthread_cond_init(&d->done, &attr);
    pthread_condattr_destroy(&attr);
    return ok;
}

mn_status mn_disk_open(const mn_disk_params *p, mn_disk **out, mn_error *err) {
    mn_disk *d = mn_calloc(1, sizeof *d);
    if (!d)
        return mn_fail_memory(err, sizeof *d);
    d->most = p->most_bytes;
    d->n_groups = p->n_groups;
    d->index.free_entry = MN_DISK_NONE;
    d->index.pending = MN_DISK_NONE;
    d->open.fd = -1;
    d->folder = (mn_disk_folder){.top = -1, .own = -1};
    d->writes_end = &d->writes;
    memcpy(d->group_bytes, p->group_bytes, sizeof d->group_bytes);
    const uint64_t largest = mn_disk_block_bytes(d, (uint32_t)((UINT64_C(1) << p->n_groups) - 1));
    if (!init_locks(d)) {
        mn_free(d);
        return mn_fail_memory(err, sizeof *d);
    }
    mn_status st = mn_disk_folder_open(p->dir, p->about, &d->folder, err);
    if (!st && largest > d->most / FEW)
        st = mn_fail(
            err, MN_BAD_INPUT,
            "cache_disk: found %llu bytes, expected at least %llu: a file of this model has "
            "%llu bytes or more",
            (unsigned long long)d->most, (unsigned long long)(FEW * largest),
            (unsigned long long)largest);
    if (!st) {
        mn_disk_folder_shrink(&d->folder, d->most);
        disk_scan(d);
        measure_disk(d);
    }
    if (!st && !start_thread(d))
        st = mn_fail(err, MN_OUT_OF_MEMORY, "cannot start a thread for files of pages");
    if (st)
        mn_disk_close(d);
    else
        *out = d;
    return st;
}

static void free_lists(mn_disk *d) {
    for (block *b = d->writes, *next; b; b = next) {
        next = b->next;
        free_block(b);
    }
    for (mn_disk_load *x = d->loads, *next; x; x = next) {
        next = x->next;
        free_load(x);
    }
}

void mn_disk_close(mn_disk *d) {
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->closing = true;
    pthread_cond_broadcast(&d->work);
    pthread_mutex_unlock(&d->lock);
    if (d->started)
        pthread_join(d->thread, NULL);
    if (d->open.fd >= 0 && d->open.n)
        close_pack(d);
    if (d->open.fd >= 0)
        drop_open(d);
    free_lists(d);
    mn_disk_folder_close(&d->folder);
    pthread_cond_destroy(&d->work);
    pthread_cond_destroy(&d->done);
    pthread_mutex_destroy(&d->lock);
    mn_free(d->index.entries);
    mn_free(d->index.heads);
    mn_free(d->index.packs);
    mn_free(d);
}

const uint64_t *mn_disk_key(const mn_disk *d) {
    return d->folder.key;
}

/* ---- other threads --------------------------------------------------------------------------- */
uint64_t mn_disk_block_bytes(const mn_disk *d, uint32_t groups) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < MN_COUNT(d->group_bytes); i++)
        if (groups >> i & 1)
            bytes += d->group_bytes[i];
    return bytes;
}

uint32_t mn_disk_has(mn_disk *d, const uint64_t hash[2]) {
    pthread_mutex_lock(&d->lock);
    const int32_t i = mn_disk_index_find(&d->index, hash);
    const uint32_t groups = i < 0 ? 0 : d->index.entries[i].row.groups;
    pthread_mutex_unlock(&d->lock);
    return groups;
}

void mn_disk_look(mn_disk *d) {
    pthread_mutex_lock(&d->lock);
    d->look = true;
    pthread_cond_signal(&d->work);
    pthread_mutex_unlock(&d->lock);
}

double mn_disk_read_ns(mn_disk *d, double bytes) {
    pthread_mutex_lock(&d->lock);
    const double per_byte = d->read_bytes > 0 ? d->read_ns / d->read_bytes : UNMEASURED;
    pthread_mutex_unlock(&d->lock);
    return bytes * per_byte;
}

bool mn_disk_has_room(mn_disk *d) {
    pthread_mutex_lock(&d->lock);
    const bool room = d->waiting_bytes < WAITING_BYTES || d->n_waiting < FEW;
    pthread_mutex_unlock(&d->lock);
    return room;
}

void mn_disk_put(mn_disk *d, const uint64_t hash[2], uint32_t groups, char *bytes) {
    const mn_pack_row row = {.hash = {hash[0], hash[1]}, .groups = groups};
    block *b = mn_calloc(1, sizeof *b);
    if (!b) {
        mn_free(bytes);
        return;
    }
    *b = (block){.hash = {hash[0], hash[1]}, .groups = groups, .bytes = bytes};
    pthread_mutex_lock(&d->lock);
    if (mn_disk_index_find(&d->index, hash) < 0) /* else a file has other groups of it */
        mn_disk_index_insert(&d->index, &row, MN_DISK_NONE);
    *d->writes_end = b;
    d->writes_end = &b->next;
    d->waiting_bytes += mn_disk_block_bytes(d, groups);
    d->n_waiting++;
    pthread_cond_signal(&d->work);
    pthread_mutex_unlock(&d->lock);
}

bool mn_disk_flush(mn_disk *d, uint64_t timeout_ns) {
    struct timespec until;
    bool over = false;
    disk_deadline(timeout_ns, &until);
    pthread_mutex_lock(&d->lock);
    d->flushing = true;
    pthread_cond_signal(&d->work);
    while (!over && (d->writes || d->writing || d->packing))
        over = pthread_cond_timedwait(&d->done, &d->lock, &until) == ETIMEDOUT;
    d->flushing = false;
    pthread_mutex_unlock(&d->lock);
    return !over;
}

mn_disk_load *mn_disk_load_begin(mn_disk *d, const uint64_t (*hashes)[2], uint32_t n) {
    mn_disk_load *x = mn_calloc(1, sizeof *x);
    if (!x)
        return NULL;
    *x = (mn_disk_load){.n = n, .fd = -1, .pack = MN_DISK_NONE};
    x->ready_end = &x->ready;
    x->hashes = mn_alloc(n, sizeof *x->hashes);
    if (!x->hashes) {
        mn_free(x);
        return NULL;
    }
    memcpy(x->hashes, hashes, n * sizeof *x->hashes);
    pthread_mutex_lock(&d->lock);
    x->next = d->loads;
    d->loads = x;
    pthread_cond_signal(&d->work);
    pthread_mutex_unlock(&d->lock);
    return x;
}

mn_status mn_disk_load_next(mn_disk *d, mn_disk_load *x, const char **bytes, uint32_t *groups) {
    mn_status st = MN_TIMEOUT;
    pthread_mutex_lock(&d->lock);
    free_block(x->taken);
    x->taken = x->ready;
    if (x->taken) {
        x->ready = x->taken->next;
        if (!x->ready)
            x->ready_end = &x->ready;
        x->ready_bytes -= mn_disk_block_bytes(d, x->taken->groups);
        *bytes = x->taken->bytes;
        *groups = x->taken->groups;
        st = MN_OK;
        pthread_cond_signal(&d->work);
    } else if (x->failed) {
        st = x->failed;
    } else if (x->n_read == x->n) {
        st = MN_END;
    }
    pthread_mutex_unlock(&d->lock);
    return st;
}

void mn_disk_load_end(mn_disk *d, mn_disk_load *x) {
    if (!x)
        return;
    pthread_mutex_lock(&d->lock);
    x->ended = true; /* the thread frees it, which may be reading for it now */
    pthread_cond_signal(&d->work);
    pthread_mutex_unlock(&d->lock);
}

void mn_disk_wait(mn_disk *d, uint64_t timeout_ns) {
    struct timespec until;
    disk_deadline(timeout_ns, &until);
    pthread_mutex_lock(&d->lock);
    bool ready = false;
    bool any = false;
    for (const mn_disk_load *x = d->loads; x; x = x->next) {
        any = any || !x->ended;
        ready = ready || (!x->ended && (x->ready || x->failed || x->n_read == x->n));
    }
    if (any && !ready)
        pthread_cond_timedwait(&d->done, &d->lock, &until);
    pthread_mutex_unlock(&d->lock);
}

mn_disk_counts mn_disk_count(mn_disk *d) {
    pthread_mutex_lock(&d->lock);
    const mn_disk_counts counts = d->counts;
    pthread_mutex_unlock(&d->lock);
    return counts;
}
