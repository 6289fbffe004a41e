/* parsed.c -- the parsed model: entries, tensors, and the checks that every format needs. A
 * loader fills an mn_parsed while it reads its files and hands it to the host, which closes it.
 * Strings and arrays are cut from large blocks and freed together; the two arrays of entries
 * grow by doubling. Everything comes from the host's allocator, so that a test can refuse any of
 * it. */
#include "common.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#ifndef BLOCK_BYTES /* a test has smaller ones, to see each allocation fail */
#define BLOCK_BYTES 65536u
#endif
#define BLOCK_HEAD 16u /* holds the link to the older block and keeps what follows aligned */

mn_parsed *mn_parsed_new(const mn_host *host) {
    mn_parsed *p = host->alloc(host->self, sizeof *p, 16);
    if (!p)
        return NULL;
    memset(p, 0, sizeof *p);
    p->host = host;
    return p;
}

/* Each block begins with the address of the older one. */
void mn_parsed_free(mn_parsed *p) {
    if (!p)
        return;
    const mn_host *host = p->host;
    for (void *block = p->blocks, *older; block; block = older) {
        memcpy(&older, block, sizeof older);
        host->release(host->self, block);
    }
    host->release(host->self, p->meta);
    host->release(host->self, p->tensors);
    host->release(host->self, p);
}

void *mn_parsed_room(mn_parsed *p, uint64_t n, uint64_t size) {
    uint64_t bytes;
    if (!mn_mul_u64(n, size, &bytes))
        return NULL;
    if (bytes > UINT64_MAX / 4)
        return NULL;
    bytes = bytes ? (bytes + 15) / 16 * 16 : 16; /* an empty array has an address too */
    if (bytes > p->left) {
        uint64_t room = BLOCK_BYTES;
        if (bytes > BLOCK_BYTES)
            room = bytes;
        if (room > SIZE_MAX - BLOCK_HEAD)
            return NULL;
        char *block = p->host->alloc(p->host->self, room + BLOCK_HEAD, 16);
        if (!block)
            return NULL;
        memcpy(block, &p->blocks, sizeof p->blocks);
        p->blocks = block;
        p->next = block + BLOCK_HEAD;
        p->left = room;
    }
    void *out = p->next;
    p->next += bytes;
    p->left -= bytes;
    return out;
}

void *mn_parsed_alloc(mn_parsed *p, uint64_t n, uint64_t size) {
    void *out = mn_parsed_room(p, n, size);
    if (out)
        memset(out, 0, (size_t)(n * size));
    return out;
}

mn_str mn_parsed_copy(mn_parsed *p, mn_str s) {
    char *out = mn_parsed_alloc(p, s.len + 1, 1);
    if (!out)
        return (mn_str){NULL, 0};
    if (s.len)
        memcpy(out, s.ptr, (size_t)s.len);
    return (mn_str){out, s.len};
}

mn_str mn_parsed_printf(mn_parsed *p, const char *fmt, ...) {
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return mn_parsed_copy(p, mn_str_of(text));
}

/* Room for one more element of size bytes. */
static bool parsed_grow(mn_parsed *p, void **array, uint64_t n, uint64_t *cap, uint64_t size) {
    if (n < *cap)
        return true;
    uint64_t want = 64;
    if (*cap)
        want = *cap * 2;
    uint64_t bytes;
    if (!mn_mul_u64(want, size, &bytes))
        return false;
    void *bigger = p->host->alloc(p->host->self, bytes, 16);
    if (!bigger)
        return false;
    if (n)
        memcpy(bigger, *array, (size_t)(n * size));
    p->host->release(p->host->self, *array);
    *array = bigger;
    *cap = want;
    return true;
}

/* The array moves when it grows: pointers to entries are good until the next one is added. */
mn_parsed_meta *mn_parsed_add_meta(mn_parsed *p) {
    void *array = p->meta;
    bool ok = parsed_grow(p, &array, p->n_meta, &p->cap_meta, sizeof *p->meta);
    p->meta = array;
    if (!ok)
        return NULL;
    mn_parsed_meta *m = &p->meta[p->n_meta++];
    memset(m, 0, sizeof *m);
    m->value.size = sizeof m->value;
    return m;
}

mn_parsed_tensor *mn_parsed_add_tensor(mn_parsed *p) {
    void *array = p->tensors;
    bool ok = parsed_grow(p, &array, p->n_tensors, &p->cap_tensors, sizeof *p->tensors);
    p->tensors = array;
    if (!ok)
        return NULL;
    mn_parsed_tensor *t = &p->tensors[p->n_tensors++];
    memset(t, 0, sizeof *t);
    return t;
}

const mn_parsed_meta *mn_parsed_find(const mn_parsed *p, const char *key) {
    mn_str want = mn_str_of(key);
    for (uint64_t i = 0; i < p->n_meta; i++)
        if (mn_str_eq(p->meta[i].key, want))
            return &p->meta[i];
    return NULL;
}

/* Sizes and strides of a dense row-major plane; false = overflow. */
static bool plane_sizes(mn_parsed_tensor *t, uint64_t *bytes) {
    uint64_t step = t->dtype.block_bytes;
    for (uint32_t i = t->n_dim; i-- > 0;) {
        uint64_t n = (uint64_t)t->dim[i];
        if (step > INT64_MAX)
            return false;
        t->plane.dim[i] = t->dim[i];
        t->plane.stride[i] = (int64_t)step;
        if (i == t->n_dim - 1)
            n /= t->dtype.block_elems;
        if (!mn_mul_u64(step, n, &step))
            return false;
    }
    *bytes = step;
    return step <= INT64_MAX;
}

/* The name, type, dimensions and offset come from the file; nothing of them has been believed so
 * far. */
mn_status mn_tensor_place(mn_parsed_tensor *t, uint64_t *bytes, mn_error *err) {
    const mn_file *f = t->file;
    for (uint32_t i = 0; i < t->n_dim; i++)
        if (t->dim[i] <= 0)
            return mnl_fail(err, MN_BAD_FILE,
                            "%.*s: tensor '%.*s': dimension %u is %lld, expected at least 1",
                            MN_STR_ARG(f->name), MN_STR_ARG(t->native), i, (long long)t->dim[i]);
    int64_t row = t->dim[t->n_dim - 1];
    if (row % t->dtype.block_elems)
        return mnl_fail(
            err, MN_BAD_FILE,
            "%.*s: tensor '%.*s': rows of %lld elements, expected a multiple of %u (the "
            "block of %s)",
            MN_STR_ARG(f->name), MN_STR_ARG(t->native), (long long)row, t->dtype.block_elems,
            mn_dtype_name(t->dtype.id));
    if (!plane_sizes(t, bytes))
        return mnl_fail(err, MN_BAD_FILE,
                        "%.*s: tensor '%.*s': the product of its dimensions overflows 63 bits",
                        MN_STR_ARG(f->name), MN_STR_ARG(t->native));
    if (t->offset > f->bytes || *bytes > f->bytes - t->offset)
        return mnl_fail(
            err, MN_BAD_FILE,
            "%.*s: tensor '%.*s': %llu bytes at offset %llu pass the end of the file (%llu bytes): "
            "truncated or corrupt",
            MN_STR_ARG(f->name), MN_STR_ARG(t->native), (unsigned long long)*bytes,
            (unsigned long long)t->offset, (unsigned long long)f->bytes);
    t->plane.ptr = (const char *)f->map + t->offset;
    t->plane.bytes = *bytes;
    t->plane.kind = MN_PLANE_DATA;
    t->plane.dtype = t->dtype.id;
    return MN_OK;
}

/* Orders for mnl_sort: entries by key, tensors by name, tensors by file and place in it. */
static int parsed_by_key(const void *a, const void *b) {
    return mn_str_cmp(((const mn_parsed_meta *)a)->key, ((const mn_parsed_meta *)b)->key);
}
static int parsed_by_name(const void *a, const void *b) {
    return mn_str_cmp(((const mn_parsed_tensor *)a)->name, ((const mn_parsed_tensor *)b)->name);
}

static int parsed_by_place(const void *a, const void *b) {
    const mn_parsed_tensor *x = a;
    const mn_parsed_tensor *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Sorting keeps it at n log n for files that have a hundred thousand keys on purpose. */
mn_status mn_parsed_check_keys(mn_parsed *p, const mn_file *file, uint64_t from, mn_error *err) {
    uint64_t n = p->n_meta - from;
    if (n < 2)
        return MN_OK;
    const mn_host *host = p->host;
    const void **order = host->alloc(host->self, n * sizeof *order, 16);
    if (!order)
        return mnl_fail_memory(err);
    for (uint64_t i = 0; i < n; i++)
        order[i] = &p->meta[from + i];
    mnl_sort(order, n, parsed_by_key);
    mn_status status = MN_OK;
    for (uint64_t i = 1; i < n && !status; i++)
        if (!parsed_by_key(order[i - 1], order[i]))
            status = mnl_fail(err, MN_BAD_FILE, "%.*s: key '%.*s' appears twice, expected once",
                              MN_STR_ARG(file->name),
                              MN_STR_ARG(((const mn_parsed_meta *)order[i])->key));
    host->release(host->self, (void *)order);
    return status;
}

/* order: all tensors; sorted here. Names are canonical, so two native ones may be the same. */
static mn_status parsed_check_names(const void **order, uint64_t n, mn_error *err) {
    mnl_sort(order, n, parsed_by_name);
    for (uint64_t i = 1; i < n; i++) {
        const mn_parsed_tensor *a = order[i - 1];
        const mn_parsed_tensor *b = order[i];
        if (parsed_by_name(a, b))
            continue;
        if (mn_str_eq(a->native, b->native))
            return mnl_fail(
                err, MN_BAD_FILE, "%.*s: tensor '%.*s' appears twice (also in %.*s), expected once",
                MN_STR_ARG(b->file->name), MN_STR_ARG(b->native), MN_STR_ARG(a->file->name));
        return mnl_fail(err, MN_BAD_FILE,
                        "%.*s: tensors '%.*s' and '%.*s' both are '%.*s', expected one of them",
                        MN_STR_ARG(b->file->name), MN_STR_ARG(a->native), MN_STR_ARG(b->native),
                        MN_STR_ARG(b->name));
    }
    return MN_OK;
}

/* Two tensors that share bytes are damage, or an attempt to have them counted once. */
static mn_status parsed_check_overlap(const void **order, uint64_t n, mn_error *err) {
    const mn_parsed_tensor *a = NULL;
    mnl_sort(order, n, parsed_by_place);
    for (uint64_t i = 0; i < n; i++) {
        const mn_parsed_tensor *b = order[i];
        if (!b->plane.bytes) /* empty: it shares nothing */
            continue;
        if (a && a->file == b->file && b->offset - a->offset < a->plane.bytes)
            return mnl_fail(
                err, MN_BAD_FILE,
                "%.*s: tensors '%.*s' (%llu bytes at offset %llu) and '%.*s' (at offset "
                "%llu) overlap",
                MN_STR_ARG(b->file->name), MN_STR_ARG(a->native),
                (unsigned long long)a->plane.bytes, (unsigned long long)a->offset,
                MN_STR_ARG(b->native), (unsigned long long)b->offset);
        a = b;
    }
    return MN_OK;
}

/* Calls a check with an array of pointers to all tensors, which it may sort. */
static mn_status check_sorted(mn_parsed *p, mn_status (*check)(const void **, uint64_t, mn_error *),
                              mn_error *err) {
    if (p->n_tensors < 2)
        return MN_OK;
    const mn_host *host = p->host;
    const void **order = host->alloc(host->self, p->n_tensors * sizeof *order, 16);
    if (!order)
        return mnl_fail_memory(err);
    for (uint64_t i = 0; i < p->n_tensors; i++)
        order[i] = &p->tensors[i];
    mn_status status = check(order, p->n_tensors, err);
    host->release(host->self, (void *)order);
    return status;
}

mn_status mn_parsed_check_names(mn_parsed *p, mn_error *err) {
    return check_sorted(p, parsed_check_names, err);
}

mn_status mn_parsed_check_tensors(mn_parsed *p, mn_error *err) {
    mn_status status = mn_parsed_check_names(p, err);
    if (status)
        return status;
    return check_sorted(p, parsed_check_overlap, err);
}

/* Strings stay the model's own: valid until it is closed. */
mn_status mn_parsed_meta_at(mn_parsed *p, uint32_t i, mn_str *key, mn_str *native,
                            mn_value *value) {
    if (i >= p->n_meta)
        return MN_END;
    if (key)
        *key = p->meta[i].key;
    if (native)
        *native = p->meta[i].native;
    if (value)
        return mnl_out(value, &p->meta[i].value);
    return MN_OK;
}

/* A tensor without planes of its own is one plane of one part. */
mn_status mn_parsed_tensor_at(mn_parsed *p, uint32_t i, mn_tensor_info *info) {
    if (i >= p->n_tensors)
        return MN_END;
    const mn_parsed_tensor *t = &p->tensors[i];
    mn_tensor_info own = {.size = sizeof own,
                          .n_parts = t->planes ? t->n_parts : 1,
                          .n_planes = t->planes ? t->n_planes : 1,
                          .plane_stride = sizeof(mn_plane),
                          .name = t->name,
                          .native = t->native,
                          .dtype = t->dtype,
                          .n_dim = t->n_dim,
                          .planes = t->planes ? t->planes : &t->plane};
    memcpy(own.dim, t->dim, sizeof own.dim);
    return mnl_out(info, &own);
}
