/* toy_loader.c -- a format of a third party in shards, or in folders: what a host does by file
 * patterns alone. -DFORMAT=SHARDS: NAME.part1of3.toy and so on. -DFORMAT=FOLDERS: TOY.list marks
 * the folder and has the names of its *.toyf files, one a line. -DTYPED=HOW: matrices are of a type
 * of its own, toy.b8 (blocks of 16: a float, then 16 bytes that it multiplies); other words than
 * GOOD break the contract of its list in one way. A file is
 *
 *   magic "TOY1", u32 n_meta, u32 n_tensors, then rows of meta and rows of tensor as below
 *
 * Metadata is that of the files in order; loaders_test.py writes them. Values are little-endian. */
#include <minerva/plugin.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SHARDS 1
#define FOLDERS 2
#ifndef TYPED
#define TYPED NONE
#endif
enum { NONE, GOOD, NO_UNPACK, NO_BIT, ABSURD, TWICE, MISSPELLED, FAILS };
/* A block of matrices: elements and bytes. */
enum { ELEMS = TYPED == NONE ? 1 : 16, BYTES = TYPED == NONE ? 4 : 20 };
#define OWN_ID (TYPED == NO_BIT ? 1000u : MN_VENDOR | 5u)
#define TYPE_ID (TYPED == NONE ? MN_F32 : OWN_ID)

MN_PLUGIN_NOTE(STUB_ID, MN_KIND_LOADER, "");

typedef struct {
    char key[64]; /* ends with NUL */
    uint32_t type;
    uint32_t pad;
    int64_t i;
    double f;
    char s[40];
} meta_row;
typedef struct {
    char name[64];
    int64_t dim[2];  /* dim[1] 0: a vector */
    uint64_t offset; /* of F32 values or blocks, from the beginning of the file */
} tensor_row;

enum { MOST_FILES = 16, HEAD = 12 };
struct mn_parsed {
    uint32_t n_meta;
    uint32_t n_tensors;
    meta_row *meta;
    tensor_row *tensors;
    mn_plane *planes;
};
static const mn_host *host;

static mn_status fail(mn_error *err, mn_status st, const char *fmt, ...) {
    va_list args;
    if (!err)
        return st;
    err->status = st;
    va_start(args, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, args);
    va_end(args);
    return st;
}

static mn_status give(void *dst, const void *src, uint32_t size) {
    uint32_t room;
    memcpy(&room, dst, sizeof room);
    memcpy(dst, src, room < size ? room : size);
    size = room < size ? room : size;
    memcpy(dst, &size, sizeof size);
    return MN_OK;
}

static const mn_file *file_at(const mn_file *files, uint32_t i, uint32_t stride) {
    return (const mn_file *)(const void *)((const char *)files + (uint64_t)i * stride);
}
static bool is_toy(const mn_file *f) {
    return f->bytes >= HEAD && !memcmp(f->map, "TOY1", 4);
}

/* ---- which files, in which order ------------------------------------------------------------- */
/* The number and the count of NAME.partNofM.toy; the host has seen to it that all are there. */
static bool shard_of(mn_str name, uint32_t *no, uint32_t *count) {
    char text[256];
    const char *part = NULL;
    if (name.len >= sizeof text)
        return false;
    memcpy(text, name.ptr, name.len);
    text[name.len] = 0;
    for (const char *at = text; (at = strstr(at, ".part")); at++)
        part = at;
    return part && sscanf(part, ".part%5uof%5u.toy", no, count) == 2;
}

static uint32_t shards(const mn_file *files, uint32_t n, uint32_t stride, const mn_file **order,
                       mn_error *err) {
    uint32_t no;
    uint32_t count = 0;
    uint32_t n_found = 0;
    uint32_t of;
    for (uint32_t i = 0; i < n; i++) {
        const mn_file *f = file_at(files, i, stride);
        if (!is_toy(f) || !shard_of(f->name, &no, &of))
            continue;
        if (no < 1 || no > of || of > MOST_FILES || (count && of != count) || order[no - 1])
            return fail(err, MN_BAD_FILE, "%.*s: does not fit the shards before it",
                        (int)f->name.len, f->name.ptr),
                   0;
        order[no - 1] = f;
        count = of;
        n_found++;
    }
    if (!count || n_found != count)
        return fail(err, MN_BAD_FILE, "found %u shards of %u", n_found, count), 0;
    return count;
}

static const mn_file *named(const mn_file *files, uint32_t n, uint32_t stride, mn_str name) {
    for (uint32_t i = 0; i < n; i++) {
        const mn_file *f = file_at(files, i, stride);
        if (f->name.len == name.len && (!name.len || !memcmp(f->name.ptr, name.ptr, name.len)))
            return f;
    }
    return NULL;
}

static uint32_t listed(const mn_file *files, uint32_t n, uint32_t stride, const mn_file **order,
                       mn_error *err) {
    const mn_file *list = named(files, n, stride, (mn_str){"TOY.list", 8});
    uint32_t count = 0;
    if (!list)
        return fail(err, MN_BAD_FILE, "TOY.list is missing"), 0;
    const char *at = list->map;
    const char *end = at + list->bytes;
    while (at < end && count < MOST_FILES) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        const mn_str name = {at, (uint64_t)((line ? line : end) - at)};
        const mn_file *f = named(files, n, stride, name);
        if (!f || !is_toy(f))
            return fail(err, MN_BAD_FILE, "TOY.list: file %u is missing or no toy", count + 1), 0;
        order[count++] = f;
        at = line ? line + 1 : end;
    }
    if (!count || at < end)
        return fail(err, MN_BAD_FILE, "TOY.list: expected 1 to %d files", MOST_FILES), 0;
    return count;
}

static uint32_t find(const mn_file *files, uint32_t n, uint32_t stride, const mn_file **order,
                     mn_error *err) {
    return (FORMAT == SHARDS ? shards : listed)(files, n, stride, order, err);
}

/* ---- parsing --------------------------------------------------------------------------------- */
static uint32_t count_at(const mn_file *f, uint32_t at) {
    uint32_t v;
    memcpy(&v, (const char *)f->map + at, sizeof v);
    return v;
}

static bool counts_fit(const mn_file *f) {
    const uint64_t n = f->bytes - HEAD;
    const uint64_t meta = count_at(f, 4);
    const uint64_t tensors = count_at(f, 8);
    return meta <= n / sizeof(meta_row) && tensors <= n / sizeof(tensor_row) &&
           meta * sizeof(meta_row) + tensors * sizeof(tensor_row) <= n;
}

static bool text_ends(const char *text, size_t n) {
    return text[0] && memchr(text, 0, n);
}

static mn_status add_meta(mn_parsed *p, const mn_file *f, const char *at, mn_error *err) {
    meta_row *m = &p->meta[p->n_meta++];
    memcpy(m, at, sizeof *m);
    if (text_ends(m->key, sizeof m->key) && m->type >= MN_VALUE_INT && m->type <= MN_VALUE_STR &&
        memchr(m->s, 0, sizeof m->s) && (m->type != MN_VALUE_BOOL || m->i == 0 || m->i == 1))
        return MN_OK;
    return fail(err, MN_BAD_FILE, "%.*s: key %u is damaged", (int)f->name.len, f->name.ptr,
                p->n_meta);
}

/* Data lies behind the header, and behind the tensor before it. */
static mn_status add_tensor(mn_parsed *p, const mn_file *f, const char *at, uint64_t *end,
                            mn_error *err) {
    tensor_row *t = &p->tensors[p->n_tensors];
    mn_plane *plane = &p->planes[p->n_tensors++];
    memcpy(t, at, sizeof *t);
    const uint64_t rows = (uint64_t)t->dim[0];
    const uint64_t cols = t->dim[1] ? (uint64_t)t->dim[1] : 1;
    const bool typed = t->dim[1] > 0;
    const uint64_t elems = typed ? ELEMS : 1;
    const uint64_t bytes = typed ? BYTES : 4;
    const uint64_t room = t->offset <= f->bytes ? (f->bytes - t->offset) / bytes * elems : 0;
    if (!text_ends(t->name, sizeof t->name) || t->dim[0] < 1 || t->dim[1] < 0 || t->offset < *end ||
        cols % elems || rows > room || cols > room / rows)
        return fail(err, MN_BAD_FILE, "%.*s: tensor %u is damaged or truncated", (int)f->name.len,
                    f->name.ptr, p->n_tensors);
    for (uint32_t i = 0; i + 1 < p->n_tensors; i++)
        if (!strcmp(p->tensors[i].name, t->name))
            return fail(err, MN_BAD_FILE, "%.*s: a tensor is there twice", (int)f->name.len,
                        f->name.ptr);
    const uint64_t row_bytes = cols / elems * bytes;
    *end = t->offset + rows * row_bytes;
    *plane = (mn_plane){.ptr = (const char *)f->map + t->offset,
                        .bytes = rows * row_bytes,
                        .kind = MN_PLANE_DATA,
                        .dtype = typed ? TYPE_ID : MN_F32,
                        .dim = {t->dim[0], t->dim[1]},
                        .stride = {typed ? (int64_t)row_bytes : 4, (int64_t)bytes}};
    return MN_OK;
}

static mn_status read_file(mn_parsed *p, const mn_file *f, mn_error *err) {
    const char *at = (const char *)f->map + HEAD;
    const uint32_t n_meta = count_at(f, 4);
    const uint32_t n_tensors = count_at(f, 8);
    uint64_t end = HEAD + n_meta * sizeof(meta_row) + n_tensors * sizeof(tensor_row);
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < n_meta && !st; i++, at += sizeof(meta_row))
        st = add_meta(p, f, at, err);
    for (uint32_t i = 0; i < n_tensors && !st; i++, at += sizeof(tensor_row))
        st = add_tensor(p, f, at, &end, err);
    return st;
}

static void *room_for(uint64_t n, uint64_t size) {
    void *p = host->alloc(host->self, n * size + 1, 16);
    return p ? memset(p, 0, n * size + 1) : NULL;
}

static void close_model(mn_parsed *p) {
    host->release(host->self, p->meta);
    host->release(host->self, p->tensors);
    host->release(host->self, p->planes);
    host->release(host->self, p);
}

static mn_status read_files(mn_parsed *p, const mn_file *const *order, uint32_t count,
                            mn_error *err) {
    uint64_t meta = 0;
    uint64_t tensors = 0;
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < count; i++) {
        if (!counts_fit(order[i]))
            return fail(err, MN_BAD_FILE, "%.*s: its header is truncated", (int)order[i]->name.len,
                        order[i]->name.ptr);
        meta += count_at(order[i], 4);
        tensors += count_at(order[i], 8);
    }
    p->meta = room_for(meta, sizeof *p->meta);
    p->tensors = room_for(tensors, sizeof *p->tensors);
    p->planes = room_for(tensors, sizeof *p->planes);
    if (!p->meta || !p->tensors || !p->planes)
        return fail(err, MN_OUT_OF_MEMORY, "out of memory");
    for (uint32_t i = 0; i < count && !st; i++)
        st = read_file(p, order[i], err);
    return st;
}

/* ---- the table ------------------------------------------------------------------------------- */
static mn_status guess(void *self, const mn_file *files, uint32_t n, uint32_t stride,
                       mn_guess *out) {
    const mn_file *order[MOST_FILES] = {0};
    mn_guess g = {.size = sizeof g, .format = STUB_ID, .why = "no toys"};
    (void)self;
    if (find(files, n, stride, order, NULL)) {
        g.confidence = 100;
        strcpy(g.why, "all of its files begin with TOY1");
    }
    return give(out, &g, sizeof g);
}

static mn_status open_model(void *self, const mn_file *files, uint32_t n, uint32_t stride,
                            mn_parsed **out, mn_error *err) {
    const mn_file *order[MOST_FILES] = {0};
    const uint32_t count = find(files, n, stride, order, err);
    (void)self;
    if (!count)
        return MN_BAD_FILE;
    mn_parsed *p = room_for(1, sizeof *p);
    if (!p)
        return fail(err, MN_OUT_OF_MEMORY, "out of memory");
    mn_status st = read_files(p, order, count, err);
    if (st)
        close_model(p);
    else
        *out = p;
    return st;
}

static mn_status meta_at(mn_parsed *p, uint32_t i, mn_str *key, mn_str *native, mn_value *out) {
    if (i >= p->n_meta)
        return MN_END;
    const meta_row *m = &p->meta[i];
    *key = *native = (mn_str){m->key, strlen(m->key)};
    const mn_value v = {
        .size = sizeof v, .type = m->type, .i = m->i, .f = m->f, .s = {m->s, strlen(m->s)}};
    return give(out, &v, sizeof v);
}

static mn_status tensor_at(mn_parsed *p, uint32_t i, mn_tensor_info *out) {
    if (i >= p->n_tensors)
        return MN_END;
    const tensor_row *t = &p->tensors[i];
    const mn_str name = {t->name, strlen(t->name)};
    const mn_tensor_info info = {
        .size = sizeof info,
        .n_parts = 1,
        .n_planes = 1,
        .plane_stride = sizeof(mn_plane),
        .name = name,
        .native = name,
        .dtype = {t->dim[1] ? TYPE_ID : MN_F32, t->dim[1] ? ELEMS : 1, t->dim[1] ? BYTES : 4, 1},
        .dim = {t->dim[0], t->dim[1]},
        .n_dim = t->dim[1] ? 2 : 1,
        .planes = &p->planes[i]};
    return give(out, &info, sizeof info);
}

static mn_status patterns(void *self, uint32_t i, mn_file_pattern *out) {
#define ROW(what, text)                                                                            \
    { sizeof(mn_file_pattern), MN_PATTERN_##what, {text, sizeof text - 1}, 0, 0 }
    static const mn_file_pattern sharded[] = {ROW(SHARD, "*.part#of#.toy")};
    static const mn_file_pattern folder[] = {ROW(FOLDER, "TOY.list"), ROW(COMPANION, "*.toyf")};
    const uint32_t n = FORMAT == SHARDS ? 1 : 2;
    (void)self;
    const mn_file_pattern *of = FORMAT == SHARDS ? sharded : folder;
    return i < n ? give(out, &of[i], sizeof *out) : MN_END;
}

/* ---- its own type ---------------------------------------------------------------------------- */
static mn_status to_f32(void *self, const mn_plane *planes, uint32_t n_planes, uint64_t block,
                        uint64_t n_blocks, float *out) {
    (void)self;
    (void)n_planes;
    for (uint64_t b = block; b < block + n_blocks; b++) {
        const char *at = (const char *)planes->ptr + (int64_t)b * planes->stride[0];
        float scale;
        memcpy(&scale, at, sizeof scale);
        for (int i = 0; i < ELEMS; i++)
            *out++ = scale * (float)(signed char)at[4 + i];
    }
    return TYPED == FAILS ? MN_BAD_FILE : MN_OK;
}
static mn_status type_at(void *self, uint32_t i, mn_type *out, mn_error *err) {
    mn_type t = {.size = sizeof t,
                 .name = {"toy.b8", 6},
                 .dtype = {TYPE_ID, ELEMS, BYTES, 1},
                 .to_f32 = to_f32};
    (void)self;
    (void)err;
    if (i >= (TYPED == TWICE ? 2 : 1))
        return MN_END;
    if (TYPED == MISSPELLED)
        t.name = (mn_str){"Toy", 3};
    if (TYPED == ABSURD)
        t.dtype.block_bytes = 0;
    if (TYPED == NO_UNPACK)
        t.to_f32 = NULL;
    return give(out, &t, sizeof t);
}
static const mn_types types = {sizeof types, 0, type_at};

static const mn_loader table = {sizeof table, 0,         guess,       open_model,
                                meta_at,      tensor_at, close_model, patterns};
static const void *query(void *self, const char *id) {
    (void)self;
    if (TYPED != NONE && !strcmp(id, MN_TYPES_ID))
        return &types;
    return strcmp(id, MN_LOADER_ID) ? NULL : &table;
}
static void shutdown(void *self) {
    (void)self;
}

const mn_plugin *minerva_plugin_entry(const mn_host *h, mn_error *err) {
    static const mn_plugin plugin = {.size = sizeof plugin,
                                     .abi = MN_ABI_VERSION,
                                     .id = {STUB_ID, sizeof STUB_ID - 1},
                                     .vendor = {"stub", 4},
                                     .version = {"1", 1},
                                     .build_id = {__TIME__, 8},
                                     .query = query,
                                     .shutdown = shutdown};
    if (!h || h->size < sizeof *h || h->abi != MN_ABI_VERSION) {
        fail(err, MN_INVALID, "a stub is for its own host");
        return NULL;
    }
    host = h;
    return &plugin;
}
