/* loader_map.c -- files in memory whose end is a closed page: a read beyond is a crash, and so a
 * finding. */
#include "loader.h"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t page(void) {
    return (uint64_t)sysconf(_SC_PAGESIZE);
}
static uint64_t round_up(uint64_t n) {
    return (n + page() - 1) / page() * page();
}

bool mapped_make(mapped_files *to, const model_files *from, int how) {
    memset(to, 0, sizeof *to);
    for (uint32_t i = 0; i < from->n; i++) {
        mapped_file *f = &to->file[i];
        const model_file *m = &from->file[i];
        f->map_bytes = round_up(m->n ? m->n : 1);
        void *p = mmap(NULL, f->map_bytes + page(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            return false;
        f->map = p, to->n = i + 1;
        mprotect(f->map + f->map_bytes, page(), PROT_NONE);
        uint8_t *at = how == MAP_END ? f->map + f->map_bytes - m->n : f->map;
        if (m->n)
            memcpy(at, m->bytes, m->n);
        f->view = to->views[i] =
            (mn_file){{m->name, strlen(m->name)}, at, m->n, m->named ? MN_FILE_NAMED : 0, 0};
    }
    return true;
}

void mapped_cut(mapped_files *to, const model_files *from, uint32_t i, uint64_t n) {
    uint8_t *at = to->file[i].map + to->file[i].map_bytes - n;
    if (n)
        memcpy(at, from->file[i].bytes, n);
    to->views[i].map = at, to->views[i].bytes = n;
}

void mapped_free(mapped_files *m) {
    for (uint32_t i = 0; i < m->n; i++)
        munmap(m->file[i].map, m->file[i].map_bytes + page());
    memset(m, 0, sizeof *m);
}

uint64_t mapped_close(mapped_files *m, uint32_t i, const void *ptr, uint64_t bytes) {
    uint64_t at = (uint64_t)((const uint8_t *)ptr - m->file[i].map), lo = round_up(at),
             hi = (at + bytes) / page() * page();
    if (lo >= hi || mprotect(m->file[i].map + lo, hi - lo, PROT_NONE))
        return 0;
    return (hi - lo) / page();
}
