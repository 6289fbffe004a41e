/* loader_leaks.c -- rule loader.leaks: files are opened again and again, most of them damaged, as a
 * server does it that looks through a folder every minute. What the loader's own code takes from
 * the C library is counted block by block (allocs.h); what libraries take on its behalf shows in
 * the size of the heap. A first series makes what a process keeps for good. */
#include "allocs.h"
#include "loader.h"
#include <string.h>
#if defined(__GLIBC__)
#include <malloc.h>
#if __GLIBC_PREREQ(2, 33)
#define HAS_MALLINFO
#endif
#endif

enum { SERIES = 1000 /* files of one series */, LEAST = 16 /* bytes of a block of the heap */ };

/* Opens a file of the series and closes it; every tenth is whole, and is read. header: bytes of the
 * first file's; another file may be shorter. */
static void open_one(loader *l, mapped_files *m, uint32_t i, uint64_t header) {
    const uint32_t at = i % m->n;
    const uint64_t whole = l->model.file[at].n;
    const uint64_t first = header < whole ? header : whole;
    const uint64_t place = first * i / SERIES; /* below first, if there are bytes */
    mn_parsed *p = NULL;
    mn_error err = check_error();
    if (i % 10 == 0) {
        loader_digest(l, m);
        return;
    }
    if (i % 2) {
        mapped_cut(m, &l->model, at, place * i / SERIES); /* most of them early */
        loader_open(l, m, &p, &err);
        mapped_cut(m, &l->model, at, whole);
    } else if (whole) {
        uint8_t *byte = (uint8_t *)(uintptr_t)m->views[at].map + place;
        *byte ^= 0x55;
        loader_open(l, m, &p, &err);
        *byte ^= 0x55;
    }
    if (p)
        l->plugin.ld->close(p);
}

/* Bytes of the heap that are in use; 0 where the C library does not say. */
static size_t heap_bytes(void) {
#if defined(HAS_MALLINFO)
    return mallinfo2().uordblks;
#else
    return 0;
#endif
}

/* How many bytes the heap has grown by in a series. */
static uint64_t open_series(loader *l, mapped_files *m, uint64_t header) {
    const size_t before = heap_bytes();
    for (uint32_t i = 0; i < SERIES && !check_over(l->c); i++)
        open_one(l, m, i, header);
    const size_t after = heap_bytes();
    return after > before ? after - before : 0;
}

static void leaks(loader *l, mapped_files *m) {
    check *c = l->c;
    const void *code = NULL;
    const uint64_t header = loader_header_bytes(l, m, 0);
    memcpy(&code, &l->plugin.api->query, sizeof code); /* ISO C has no cast */
    check_doing(c, "%d files, most of them damaged, were opened", SERIES);
    open_series(l, m, header);
    if (check_over(c))
        return;
    if (!allocs_track(code, &c->result->call)) {
        check_skip(c, "the allocator of this process is not the C library's");
        return;
    }
    const uint64_t grown = open_series(l, m, header);
    const allocs_left left = allocs_stop();
    CHECK(
        c, !left.n,
        "%d files were opened, most of them damaged: found %llu blocks of malloc, calloc, realloc "
        "or aligned_alloc (%llu bytes) not freed, one of them allocated during %s, expected none",
        SERIES, (unsigned long long)left.n, (unsigned long long)left.bytes,
        left.call ? left.call : "no call");
    const uint64_t again = open_series(l, m, header);
    CHECK(
        c, grown < SERIES / 20 * LEAST || again < SERIES / 20 * LEAST,
        "%d files were opened, most of them damaged: found a heap that grew by %llu bytes, and by "
        "%llu when they were opened again, expected one that does not grow",
        SERIES, (unsigned long long)grown, (unsigned long long)again);
    check_found(c, "%d opens", 3 * SERIES);
}

void check_loader_leaks(check *c) {
    loader_on_model(c, MAP_END, leaks);
}
