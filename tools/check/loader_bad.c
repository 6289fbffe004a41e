/* loader_bad.c -- what a loader makes of bad files, and of a host without memory. Knows no format:
 * bytes are cut and changed. */
#include "loader.h"
#include <stdio.h>
#include <string.h>

/* of all headers together, that are changed one by one; of longer ones every second, third
     * ... */
#define MOST_PLACES 4096

typedef struct {
    uint64_t header, step; /* bytes of the header; from one place to the next */
    uint64_t n;            /* inputs tried */
} places;
typedef void (*damage_fn)(loader *l, mapped_files *m, uint32_t file, places *at);
/* Runs fn on each file of the model, mapped so that a byte too far is a crash. */
static void each_file(check *c, damage_fn fn) {
    loader l;
    mapped_files m;
    uint64_t header[LOADER_FILES], all = 0;
    if (loader_open(c, &l) && mapped_make(&m, &l.model, MAP_END)) {
        for (uint32_t i = 0; i < m.n; i++)
            all += header[i] = loader_header_bytes(&l, &m, i);
        places at = {0, all / MOST_PLACES + 1, 0};
        for (uint32_t i = 0; i < m.n && !check_over(c); i++) {
            at.header = header[i];
            fn(&l, &m, i, &at);
        }
        check_found(c, "%llu inputs", (unsigned long long)at.n);
        mapped_free(&m);
    }
    loader_close(&l);
}

static void try_input(loader *l, const mapped_files *m, const char *what, places *at) {
    mn_guess g = {.size = sizeof g};
    check_doing(l->c, "guess on %s ran", what);
    l->plugin.ld->guess(l->plugin.api->self, m->views, m->n, sizeof(mn_file), &g);
    loader_parse(l, m, what, NULL);
    at->n++;
}

/* ---- cut ------------------------------------------------------------------------------------- */
static void cut_file(loader *l, mapped_files *m, uint32_t i, places *p) {
    const model_file *f = &l->model.file[i];
    char what[400];
    uint64_t dense = p->header + 64, rest = f->n - (dense < f->n ? dense : f->n);
    for (uint64_t at = 0; at < f->n && !check_over(l->c);
         at += at < dense ? p->step : rest / 64 + 1) {
        snprintf(what, sizeof what, "%s cut to %llu of %llu bytes", f->name, (unsigned long long)at,
                 (unsigned long long)f->n);
        mapped_cut(m, &l->model, i, at);
        try_input(l, m, what, p);
    }
    mapped_cut(m, &l->model, i, f->n);
}
void check_loader_truncated(check *c) {
    each_file(c, cut_file);
}

/* ---- one byte changed ------------------------------------------------------------------------ */
static void flip_file(loader *l, mapped_files *m, uint32_t i, places *p) {
    static const uint8_t sets[] = {0x00, 0xff, 0x7f, '"', '}'}, flips[] = {0x01, 0x80};
    uint8_t *bytes = (uint8_t *)(uintptr_t)m->views[i].map;
    char what[400];
    for (uint64_t at = 0; at < p->header && !check_over(l->c); at += p->step) {
        uint8_t was = bytes[at];
        for (uint32_t k = 0; k < 7 && !check_over(l->c); k++) {
            bytes[at] = k < 5 ? sets[k] : (uint8_t)(was ^ flips[k - 5]);
            if (bytes[at] == was)
                continue;
            snprintf(what, sizeof what, "%s with byte %llu = 0x%02x", l->model.file[i].name,
                     (unsigned long long)at, bytes[at]);
            try_input(l, m, what, p);
        }
        bytes[at] = was;
    }
}
void check_loader_flipped(check *c) {
    each_file(c, flip_file);
}

/* ---- absurd numbers: every place of the header as a binary number, every number of a text ---- */
static void binary_counts(loader *l, mapped_files *m, uint32_t i, places *p) {
    static const uint64_t absurd[] = {~UINT64_C(0),         INT64_MAX,
                                      UINT64_C(1) << 63,    UINT64_C(1) << 32,
                                      UINT64_C(0x7fffffff), UINT64_C(1) << 60};
    uint8_t *bytes = (uint8_t *)(uintptr_t)m->views[i].map;
    char what[400];
    for (uint64_t at = 0; at + 8 <= p->header && !check_over(l->c); at += p->step)
        for (uint32_t k = 0; k < 12 && !check_over(l->c); k++) {
            uint8_t was[8];
            uint64_t width = k < 6 ? 8 : 4;
            memcpy(was, bytes + at, 8);
            memcpy(bytes + at, &absurd[k % 6], width);
            snprintf(what, sizeof what, "%s with the %u bytes at %llu = 0x%llx",
                     l->model.file[i].name, (unsigned)width, (unsigned long long)at,
                     (unsigned long long)absurd[k % 6]);
            try_input(l, m, what, p);
            memcpy(bytes + at, was, 8);
        }
}

static bool is_digit(uint8_t b) {
    return b >= '0' && b <= '9';
}
static void text_counts(loader *l, mapped_files *m, uint32_t i, places *p) {
    uint8_t *bytes = (uint8_t *)(uintptr_t)m->views[i].map, was[64];
    char what[400];
    for (uint64_t at = 0; at < p->header && !check_over(l->c); at += p->step) {
        uint64_t len = 0;
        if (at && is_digit(bytes[at - 1]))
            continue;
        while (at + len < p->header && len < sizeof was && is_digit(bytes[at + len]))
            len++;
        if (!len)
            continue;
        memcpy(was, bytes + at, len);
        for (uint32_t k = 0; k < 4 && !check_over(l->c); k++) {
            memset(bytes + at, k == 1 ? '0' : '9', len); /* 999, 000, -99, 9e9 */
            if (k == 2)
                bytes[at] = '-';
            if (k == 3 && len > 2)
                bytes[at + 1] = 'e';
            snprintf(what, sizeof what, "%s with '%.*s' at byte %llu", l->model.file[i].name,
                     (int)len, (char *)bytes + at, (unsigned long long)at);
            try_input(l, m, what, p);
        }
        memcpy(bytes + at, was, len);
    }
}

static void absurd_counts(loader *l, mapped_files *m, uint32_t i, places *p) {
    binary_counts(l, m, i, p);
    text_counts(l, m, i, p);
}
void check_loader_counts(check *c) {
    each_file(c, absurd_counts);
}

/* ---- memory that fails ----------------------------------------------------------------------- */
void check_loader_memory(check *c) {
    loader l;
    mapped_files m;
    if (loader_open(c, &l) && mapped_make(&m, &l.model, MAP_BEGIN)) {
        long long live = atomic_load(&l.host.live), k = 0;
        mn_status s = MN_OUT_OF_MEMORY;
        for (; s && k < 100000 && !check_over(c); k++) {
            mn_parsed *p = NULL;
            mn_error e = check_error();
            atomic_store(&l.host.fail_in, k);
            check_doing(c, "open ran, with allocation %lld and all later ones failing", k);
            s = l.plugin.ld->open(l.plugin.api->self, m.views, m.n, sizeof(mn_file), &p, &e);
            atomic_store(&l.host.fail_in, -1);
            if (s && (MN_STATUS_CLASS(s) != MN_CLASS_SMALLER || !e.msg[0]))
                check_fail(c,
                           "allocation %lld failed: found status 0x%x (%s), expected "
                           "MN_OUT_OF_MEMORY and a sentence",
                           k, (unsigned)s, e.msg);
            if (!s && p)
                l.plugin.ld->close(p);
            if (atomic_load(&l.host.live) != live)
                check_fail(c, "allocation %lld failed: open left %lld blocks behind, expected none",
                           k, (long long)atomic_load(&l.host.live) - live);
        }
        check_found(c, "%lld allocations", k - 1);
        mapped_free(&m);
    }
    loader_close(&l);
}
