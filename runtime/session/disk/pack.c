/* pack.c -- the format of a file of blocks (disk.h), written in one go and read in parts. The
 * reader believes nothing: sizes are those of the file, and every byte is under a digest. */
#include "session/disk/disk.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ORDER = 0x01020304, MOST_BLOCKS = 1 << 20 };

_Static_assert(sizeof(mn_pack_head) == 64, "no holes");
_Static_assert(sizeof(mn_pack_row) == 48, "no holes");

static mn_status pack_errno(mn_error *err, const char *what) {
    const int code = errno;
    mn_fail(err, MN_IO_ERROR, "%s: %s", what, strerror(code));
    if (err)
        err->vendor_code = code;
    return MN_IO_ERROR;
}

static mn_status read_at(int fd, void *to, uint64_t bytes, uint64_t at, mn_error *err) {
    char *p = to;
    while (bytes) {
        const ssize_t n = pread(fd, p, (size_t)MN_MIN(bytes, (uint64_t)1 << 30), (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return pack_errno(err, "cannot read");
        if (!n)
            return mn_fail(err, MN_BAD_FILE, "ends at byte %llu", (unsigned long long)at);
        p += n;
        at += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return MN_OK;
}

static mn_status write_at(int fd, const void *from, uint64_t bytes, uint64_t at, mn_error *err) {
    const char *p = from;
    while (bytes) {
        const ssize_t n = pwrite(fd, p, (size_t)MN_MIN(bytes, (uint64_t)1 << 30), (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return pack_errno(err, "cannot write");
        p += n;
        at += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return MN_OK;
}

static uint64_t head_digest(const mn_pack_head *h) {
    return mn_hash(h, offsetof(mn_pack_head, digest), 1);
}

static uint64_t block_digest(const mn_pack_row *row, const void *bytes) {
    return mn_hash(bytes, (size_t)row->bytes, row->hash[0] ^ row->hash[1] ^ row->groups);
}

/* ---- reading --------------------------------------------------------------------------------- */
static mn_status check_head(const mn_pack_head *h, uint64_t file_bytes, const uint64_t identity[2],
                            mn_error *err) {
    if (memcmp(h->magic, MN_PACK_MAGIC, sizeof h->magic) || h->order != ORDER)
        return mn_fail(err, MN_BAD_FILE, "no file of pages of this version and byte order");
    if (h->digest != head_digest(h))
        return mn_fail(err, MN_BAD_FILE, "its head is damaged");
    if (memcmp(h->identity, identity, sizeof h->identity))
        return mn_fail(err, MN_BAD_FILE, "pages of another model, device or build");
    if (!h->n_blocks || h->n_blocks > MOST_BLOCKS || h->table < sizeof *h)
        return mn_fail(err, MN_BAD_FILE, "%u blocks", h->n_blocks);
    const uint64_t table_bytes = h->n_blocks * sizeof(mn_pack_row);
    if (file_bytes < table_bytes || h->table != file_bytes - table_bytes)
        return mn_fail(err, MN_BAD_FILE, "%llu bytes, expected %llu",
                       (unsigned long long)file_bytes,
                       (unsigned long long)(h->table + table_bytes));
    return MN_OK;
}

/* Blocks lie one behind the other, from the head to the table. */
static mn_status check_rows(const mn_pack_head *h, const mn_pack_row *rows, mn_error *err) {
    uint64_t at = sizeof *h;
    if (h->table_digest != mn_hash(rows, h->n_blocks * sizeof *rows, 2))
        return mn_fail(err, MN_BAD_FILE, "its table is damaged");
    for (uint32_t i = 0; i < h->n_blocks; i++) {
        if (rows[i].at != at || !rows[i].bytes || rows[i].bytes > h->table - at)
            return mn_fail(err, MN_BAD_FILE, "block %u of its table is out of range", i);
        at += rows[i].bytes;
    }
    if (at != h->table)
        return mn_fail(err, MN_BAD_FILE, "its table leaves a gap");
    return MN_OK;
}

mn_status mn_pack_read(int fd, const uint64_t identity[2], mn_pack_row **rows, uint32_t *n,
                       mn_error *err) {
    mn_pack_head h;
    struct stat file;
    *rows = NULL;
    *n = 0;
    if (fstat(fd, &file))
        return pack_errno(err, "cannot look at it");
    mn_status st = read_at(fd, &h, sizeof h, 0, err);
    if (!st)
        st = check_head(&h, (uint64_t)file.st_size, identity, err);
    if (st)
        return st;
    mn_pack_row *table = mn_alloc(h.n_blocks, sizeof *table);
    if (!table)
        return mn_fail_memory(err, h.n_blocks * sizeof *table);
    st = read_at(fd, table, h.n_blocks * sizeof *table, h.table, err);
    if (!st)
        st = check_rows(&h, table, err);
    if (st) {
        mn_free(table);
        return st;
    }
    *rows = table;
    *n = h.n_blocks;
    return MN_OK;
}

mn_status mn_pack_read_block(int fd, const mn_pack_row *row, void *to, mn_error *err) {
    const mn_status st = read_at(fd, to, row->bytes, row->at, err);
    if (st)
        return st;
    if (row->digest != block_digest(row, to))
        return mn_fail(err, MN_BAD_FILE, "the block at byte %llu is damaged",
                       (unsigned long long)row->at);
    return MN_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */
/* The head comes last: a file without it is none. */
mn_status mn_pack_begin(mn_pack_writer *w, int fd, mn_error *err) {
    static const mn_pack_head none;
    *w = (mn_pack_writer){.fd = fd, .at = sizeof none};
    return write_at(fd, &none, sizeof none, 0, err);
}

mn_status mn_pack_add(mn_pack_writer *w, const mn_pack_row *block, const void *bytes,
                      mn_error *err) {
    void *rows = w->rows;
    if (!mn_grow(&rows, &w->cap, w->n + 1u, sizeof *w->rows))
        return mn_fail_memory(err, (w->n + 1u) * sizeof *w->rows);
    w->rows = rows;
    mn_pack_row row = {.hash = {block->hash[0], block->hash[1]},
                       .at = w->at,
                       .bytes = block->bytes,
                       .groups = block->groups};
    row.digest = block_digest(&row, bytes);
    const mn_status st = write_at(w->fd, bytes, row.bytes, row.at, err);
    if (st)
        return st;
    w->rows[w->n++] = row;
    w->at += row.bytes;
    return MN_OK;
}

mn_status mn_pack_finish(mn_pack_writer *w, const uint64_t identity[2], mn_error *err) {
    mn_pack_head h = {.order = ORDER,
                      .n_blocks = w->n,
                      .identity = {identity[0], identity[1]},
                      .table = w->at,
                      .table_digest = mn_hash(w->rows, w->n * sizeof *w->rows, 2)};
    memcpy(h.magic, MN_PACK_MAGIC, sizeof h.magic);
    h.digest = head_digest(&h);
    const mn_status st = write_at(w->fd, w->rows, w->n * sizeof *w->rows, w->at, err);
    return st ? st : write_at(w->fd, &h, sizeof h, 0, err);
}

void mn_pack_drop(mn_pack_writer *w) {
    if (w->fd >= 0)
        close(w->fd);
    mn_free(w->rows);
    *w = (mn_pack_writer){.fd = -1};
}
