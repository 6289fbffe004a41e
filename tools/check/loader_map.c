/* loader_map.c -- the files of a model in anonymous memory before a closed page, so that a read
 * beyond the end is a SIGSEGV, which the runner reports. mapped_files owns the maps; model names
 * are borrowed from model_files, which must live longer. */
#include "loader.h"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t page_bytes(void) {
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t loader_map_round_up(uint64_t n) {
    const uint64_t page = page_bytes();
    return (n + page - 1) / page * page;
}

/* n bytes and a closed page behind them; n is a multiple of the page size. NULL = out of memory. */
static uint8_t *map_closed(uint64_t n) {
    const uint64_t page = page_bytes();
    uint8_t *p = mmap(NULL, n + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    mprotect(p + n, page, PROT_NONE);
    return p;
}

bool mapped_make(mapped_files *to, const model_files *from, int how) {
    memset(to, 0, sizeof *to);
    for (uint32_t i = 0; i < from->n; i++) {
        const model_file *m = &from->file[i];
        const uint64_t bytes = loader_map_round_up(m->n ? m->n : 1);
        uint8_t *map = map_closed(bytes);
        if (!map)
            return false;
        uint8_t *at = map;
        if (how == MAP_END)
            at = map + bytes - m->n;
        if (m->n)
            memcpy(at, m->bytes, m->n);
        to->n++;
        to->file[i] = (mapped_file){map, bytes};
        to->views[i] = (mn_file){
            .name = {m->name, strlen(m->name)},
            .map = at,
            .bytes = m->n,
            .flags = m->named ? MN_FILE_NAMED : 0,
        };
    }
    return true;
}

void mapped_cut(mapped_files *to, const model_files *from, uint32_t i, uint64_t n) {
    const mapped_file *f = &to->file[i];
    uint8_t *at = f->map + f->map_bytes - n;
    if (n)
        memcpy(at, from->file[i].bytes, n);
    to->views[i].map = at;
    to->views[i].bytes = n;
}

void mapped_free(mapped_files *m) {
    for (uint32_t i = 0; i < m->n; i++) {
        const mapped_file *f = &m->file[i];
        munmap(f->map, f->map_bytes + page_bytes());
    }
    memset(m, 0, sizeof *m);
}

uint64_t mapped_close(mapped_files *m, uint32_t i, const void *ptr, uint64_t bytes) {
    uint8_t *map = m->file[i].map;
    const uint64_t page = page_bytes();
    const uint64_t begin = (uint64_t)((const uint8_t *)ptr - map);
    const uint64_t lo = loader_map_round_up(begin);
    const uint64_t hi = (begin + bytes) / page * page;
    if (lo >= hi || mprotect(map + lo, hi - lo, PROT_NONE))
        return 0;
    return (hi - lo) / page;
}
