/* loader_bad.c -- group loader: damaged files, and a host without memory. Knows no format: it
 * cuts files and changes bytes of headers, and each input must be refused with a sentence or
 * described rightly (loader_parse). Files are mapped so that a read beyond their end is a crash. */
#include "loader.h"
#include <stdio.h>
#include <string.h>

/* Places that are changed, in all headers together; of longer headers every second, third ...
 * byte. */
#define MOST_PLACES 4096

/* One file of the model while it is damaged. */
typedef struct {
    loader *l;
    mapped_files *m;
    uint32_t file;
    uint64_t header; /* its bytes */
    uint64_t step;   /* from one place to the next */
    uint64_t n;      /* inputs tried, in all files */
    char what[400];  /* the damage, for messages */
} damage;

/* Calls fn for each file of the model. */
static void each_file(loader *l, mapped_files *m, void (*fn)(damage *d)) {
    uint64_t header[LOADER_FILES];
    uint64_t all = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        header[i] = loader_header_bytes(l, m, i);
        all += header[i];
    }
    damage d = {
        .l = l,
        .m = m,
        .step = all / MOST_PLACES + 1,
    };
    for (d.file = 0; d.file < m->n && !check_over(l->c); d.file++) {
        d.header = header[d.file];
        fn(&d);
    }
    check_found(l->c, "%llu inputs", (unsigned long long)d.n);
}

static const char *file_name(const damage *d) {
    return d->l->model.file[d->file].name;
}

static uint8_t *loader_bad_bytes_of(const damage *d) {
    return (uint8_t *)(uintptr_t)d->m->views[d->file].map;
}

/* guess and a parse of the damaged files; d->what is set. */
static void try_input(damage *d) {
    const loader *l = d->l;
    mn_guess g = {.size = sizeof g};
    check_doing(l->c, "guess on %s ran", d->what);
    l->plugin.ld->guess(l->plugin.api->self, d->m->views, d->m->n, sizeof(mn_file), &g);
    loader_parse(d->l, d->m, d->what, NULL);
    d->n++;
}

/* ---- cut ------------------------------------------------------------------------------------- */
/* At many places of the header, and at 64 of the data. */
static void cut_file(damage *d) {
    const uint64_t n = d->l->model.file[d->file].n;
    const uint64_t dense = d->header + 64;
    uint64_t data_step = 1;
    if (n > dense)
        data_step = (n - dense) / 64 + 1;
    uint64_t at = 0;
    while (at < n && !check_over(d->l->c)) {
        snprintf(d->what, sizeof d->what, "%s cut to %llu of %llu bytes", file_name(d),
                 (unsigned long long)at, (unsigned long long)n);
        mapped_cut(d->m, &d->l->model, d->file, at);
        try_input(d);
        at += at < dense ? d->step : data_step;
    }
    mapped_cut(d->m, &d->l->model, d->file, n);
}

static void truncated(loader *l, mapped_files *m) {
    each_file(l, m, cut_file);
}

void check_loader_truncated(check *c) {
    loader_on_model(c, MAP_END, truncated);
}

/* ---- one byte changed ------------------------------------------------------------------------ */
static void set_byte(damage *d, uint64_t at, uint8_t value) {
    uint8_t *byte = loader_bad_bytes_of(d) + at;
    const uint8_t was = *byte;
    if (value == was || check_over(d->l->c))
        return;
    *byte = value;
    snprintf(d->what, sizeof d->what, "%s with byte %llu = 0x%02x", file_name(d),
             (unsigned long long)at, value);
    try_input(d);
    *byte = was;
}

static void flip_file(damage *d) {
    static const uint8_t values[] = {0x00, 0xff, 0x7f, '"', '}'};
    for (uint64_t at = 0; at < d->header && !check_over(d->l->c); at += d->step) {
        const uint8_t was = loader_bad_bytes_of(d)[at];
        for (uint32_t k = 0; k < sizeof values; k++)
            set_byte(d, at, values[k]);
        set_byte(d, at, was ^ 0x01);
        set_byte(d, at, was ^ 0x80);
    }
}

static void flipped(loader *l, mapped_files *m) {
    each_file(l, m, flip_file);
}

void check_loader_flipped(check *c) {
    loader_on_model(c, MAP_END, flipped);
}

/* ---- absurd numbers: every place of the header as a binary number, every number of a text ---- */
/* width: 4 or 8 bytes. */
static void set_number(damage *d, uint64_t at, uint64_t value, uint32_t width) {
    uint8_t *place = loader_bad_bytes_of(d) + at;
    uint8_t was[8];
    if (check_over(d->l->c))
        return;
    memcpy(was, place, 8);
    memcpy(place, &value, width);
    snprintf(d->what, sizeof d->what, "%s with the %u bytes at %llu = 0x%llx", file_name(d), width,
             (unsigned long long)at, (unsigned long long)value);
    try_input(d);
    memcpy(place, was, 8);
}

static void binary_counts(damage *d) {
    static const uint64_t absurd[] = {~UINT64_C(0),         INT64_MAX,
                                      UINT64_C(1) << 63,    UINT64_C(1) << 32,
                                      UINT64_C(0x7fffffff), UINT64_C(1) << 60};
    for (uint64_t at = 0; at + 8 <= d->header && !check_over(d->l->c); at += d->step)
        for (uint32_t k = 0; k < sizeof absurd / sizeof *absurd; k++) {
            set_number(d, at, absurd[k], 8);
            set_number(d, at, absurd[k], 4);
        }
}

/* The decimal digits at a place of the header; 0 = none, or not the first ones of a number. */
static uint64_t loader_bad_digits_at(const damage *d, uint64_t at) {
    const uint8_t *bytes = loader_bad_bytes_of(d);
    uint64_t n = 0;
    if (at && mn_is_digit((char)bytes[at - 1]))
        return 0;
    while (at + n < d->header && n < 64 && mn_is_digit((char)bytes[at + n]))
        n++;
    return n;
}

/* n digits become 999, 000, -99 and 9e9. */
static void set_digits(damage *d, uint64_t at, uint64_t n) {
    char *place = (char *)loader_bad_bytes_of(d) + at;
    char was[64];
    memcpy(was, place, n);
    for (uint32_t k = 0; k < 4 && !check_over(d->l->c); k++) {
        memset(place, k == 1 ? '0' : '9', n);
        if (k == 2)
            place[0] = '-';
        if (k == 3 && n > 2)
            place[1] = 'e';
        snprintf(d->what, sizeof d->what, "%s with '%.*s' at byte %llu", file_name(d), (int)n,
                 place, (unsigned long long)at);
        try_input(d);
    }
    memcpy(place, was, n);
}

static void text_counts(damage *d) {
    for (uint64_t at = 0; at < d->header && !check_over(d->l->c); at += d->step) {
        const uint64_t n = loader_bad_digits_at(d, at);
        if (n)
            set_digits(d, at, n);
    }
}

static void absurd_counts(damage *d) {
    binary_counts(d);
    text_counts(d);
}

static void loader_bad_counts(loader *l, mapped_files *m) {
    each_file(l, m, absurd_counts);
}

void check_loader_counts(check *c) {
    loader_on_model(c, MAP_END, loader_bad_counts);
}

/* ---- memory that fails ----------------------------------------------------------------------- */
/* open with allocation k and all later ones failing. */
static mn_status open_without(loader *l, const mapped_files *m, long long k) {
    const long long live = atomic_load(&l->host.live);
    mn_parsed *p = NULL;
    mn_error e = check_error();
    atomic_store(&l->host.fail_in, k);
    check_doing(l->c, "open ran, with allocation %lld and all later ones failing", k);
    const mn_status st = loader_open(l, m, &p, &e);
    atomic_store(&l->host.fail_in, -1);
    if (st && (MN_STATUS_CLASS(st) != MN_CLASS_SMALLER || !e.msg[0]))
        check_fail(
            l->c,
            "allocation %lld failed: found status 0x%x (%s), expected MN_OUT_OF_MEMORY and a "
            "sentence",
            k, (unsigned)st, e.msg);
    if (!st && p)
        l->plugin.ld->close(p);
    const long long left = atomic_load(&l->host.live) - live;
    if (left)
        check_fail(l->c, "allocation %lld failed: found %lld blocks left by open, expected none", k,
                   left);
    return st;
}

static void memory(loader *l, mapped_files *m) {
    mn_status st = MN_OUT_OF_MEMORY;
    long long k = 0;
    while (st && k < 100000 && !check_over(l->c)) {
        st = open_without(l, m, k);
        k++;
    }
    check_found(l->c, "%lld allocations", k - 1);
}

void check_loader_memory(check *c) {
    loader_on_model(c, MAP_BEGIN, memory);
}
