/* unit.h -- what the unit tests of base and registry share: cmocka, and a folder of their own. */
#ifndef UNIT_H
#define UNIT_H
#include "base/base.h"
#include <setjmp.h>
#include <cmocka.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static inline int unit_remove(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

/* A fresh folder; *state is its path. */
static inline int unit_setup(void **state) {
    char path[] = "/tmp/minerva-unit-XXXXXX";
    if (!mkdtemp(path))
        return -1;
    return *state = strdup(path), 0;
}

static inline int unit_teardown(void **state) {
    nftw(*state, unit_remove, 16, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return 0;
}

/* "folder/name", in one of four buffers used in turn. */
static inline const char *unit_path(const char *folder, const char *name) {
    static char paths[4][2048];
    static int turn;
    char joined[sizeof paths[0]]; /* folder may be one of the four */
    snprintf(joined, sizeof joined, "%s/%s", folder, name);
    return memcpy(paths[turn++ % 4], joined, sizeof joined);
}

static inline void unit_write(const char *path, const void *data, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline void unit_copy(const char *from, const char *to) {
    char *data;
    uint64_t n;
    assert_int_equal(mn_read_file(from, 1 << 26, &data, &n, NULL), MN_OK);
    unit_write(to, data, (size_t)n);
    mn_free(data);
}
#endif
