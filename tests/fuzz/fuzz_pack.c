/* fuzz_pack.c -- a file of cache_dir. Input: a byte that chooses, and a file. Whatever it is, the
 * reader stays inside it. 0: as it is; 1: with head and digests as they should be, so that the
 * table is read; 2: what a writer makes of the bytes is read back as it was, and with a byte
 * changed it is not. */
#include "fuzz.h"
#include "session/disk/disk.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const uint64_t identity[2] = {0x0123456789abcdef, 0xfedcba9876543210};

static int file_of(mn_str bytes) {
    const int fd = memfd_create("pack", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(write(fd, bytes.ptr ? bytes.ptr : "", (size_t)bytes.len) == (ssize_t)bytes.len);
    return fd;
}

static void read_blocks(int fd, const mn_pack_row *rows, uint32_t n) {
    mn_error err = MN_ERROR_INIT;
    for (uint32_t i = 0; i < n; i++) {
        char *to = mn_alloc((size_t)rows[i].bytes, 1);
        if (!to) {
            fuzz_well(MN_OUT_OF_MEMORY);
            continue;
        }
        const mn_status st = mn_pack_read_block(fd, &rows[i], to, &err);
        FUZZ_CHECK(!st || st == MN_BAD_FILE);
        if (!st)
            fuzz_answered(to, (size_t)rows[i].bytes);
        mn_free(to);
    }
}

/* The head and the digests of head and table are right, whatever they are of. */
static void mend(char *bytes, uint64_t n) {
    mn_pack_head h;
    if (n < sizeof h)
        return;
    memcpy(&h, bytes, sizeof h);
    memcpy(h.magic, MN_PACK_MAGIC, sizeof h.magic);
    h.order = 0x01020304;
    memcpy(h.identity, identity, sizeof h.identity);
    h.n_blocks %= 1 + (uint32_t)(n / sizeof(mn_pack_row));
    const uint64_t table = h.n_blocks * sizeof(mn_pack_row);
    if (table <= n - sizeof h) {
        h.table = n - table;
        h.table_digest = mn_hash(bytes + h.table, (size_t)table, 2);
    }
    h.digest = mn_hash(&h, offsetof(mn_pack_head, digest), 1);
    memcpy(bytes, &h, sizeof h);
}

static void check_file(mn_str bytes) {
    mn_error err = MN_ERROR_INIT;
    mn_pack_row *rows = NULL;
    uint32_t n = 0;
    const int fd = file_of(bytes);
    const mn_status st = mn_pack_read(fd, identity, &rows, &n, &err);
    fuzz_well(st);
    FUZZ_CHECK(!st == (rows != NULL));
    if (!st) {
        fuzz_accepted = true;
        for (uint32_t i = 0; i < n; i++)
            FUZZ_CHECK(rows[i].at + rows[i].bytes <= bytes.len);
        read_blocks(fd, rows, n);
    }
    mn_free(rows);
    close(fd);
}

/* One byte of the file, whichever, is another: the file or a block of it is refused. */
static void check_changed(int fd, const mn_pack_row *rows, uint32_t n, uint8_t where) {
    mn_error err = MN_ERROR_INIT;
    mn_pack_row *found = NULL;
    char to[64];
    char c;
    const uint64_t size = rows[n - 1].at + rows[n - 1].bytes + n * sizeof *rows;
    const off_t at = (off_t)(where * size / 256);
    FUZZ_CHECK(pread(fd, &c, 1, at) == 1);
    c ^= (char)(1 << where % 8);
    FUZZ_CHECK(pwrite(fd, &c, 1, at) == 1);
    mn_status st = mn_pack_read(fd, identity, &found, &n, &err);
    for (uint32_t i = 0; i < n && !st; i++)
        st = mn_pack_read_block(fd, &found[i], to, &err);
    FUZZ_CHECK(st);
    mn_free(found);
}

/* Blocks of a few bytes each. */
static void check_sound(mn_str bytes) {
    enum { BLOCK = 24 };
    mn_error err = MN_ERROR_INIT;
    mn_pack_writer w = {.fd = -1};
    mn_pack_row *rows = NULL;
    uint32_t n = 0;
    const int fd = memfd_create("pack", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0);
    const int again = dup(fd);
    mn_status st = mn_pack_begin(&w, fd, &err);
    for (uint64_t at = 0; at + BLOCK <= bytes.len && !st; at += BLOCK) {
        mn_pack_row row = {.bytes = BLOCK, .groups = 1};
        memcpy(row.hash, bytes.ptr + at, sizeof row.hash);
        st = mn_pack_add(&w, &row, bytes.ptr + at, &err);
    }
    if (!st && w.n)
        st = mn_pack_finish(&w, identity, &err);
    fuzz_well(st);
    if (!st && w.n) {
        st = mn_pack_read(again, identity, &rows, &n, &err);
        fuzz_well(st);
        FUZZ_CHECK(st || n == w.n);
    }
    for (uint32_t i = 0; i < n; i++) {
        char to[BLOCK];
        FUZZ_CHECK(!mn_pack_read_block(again, &rows[i], to, &err));
        FUZZ_CHECK(!memcmp(to, bytes.ptr + (size_t)i * BLOCK, BLOCK));
    }
    if (n)
        check_changed(again, rows, n, (uint8_t)bytes.ptr[0]);
    fuzz_accepted |= n > 0;
    mn_free(rows);
    mn_pack_drop(&w);
    close(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    enum { HOWS = 3 };
    if (n < 1 || n > 1 << 16)
        return 0;
    char *copy = malloc(n);
    FUZZ_CHECK(copy);
    memcpy(copy, data + 1, n - 1);
    const mn_str bytes = {copy, n - 1};
    const int how = data[0] % HOWS;
    if (how == 1)
        mend(copy, bytes.len);
    if (how == 2)
        check_sound(bytes);
    else
        check_file(bytes);
    free(copy);
    return 0;
}
