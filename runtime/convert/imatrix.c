/* imatrix.c -- reads the importance matrices of llama.cpp. The file is mapped and untrusted: every
 * length is compared with what is left of it before it is used.
 *
 * GGUF form: for each matrix NAME two tensors of F32, NAME.in_sum2 (sums of squares, of each expert
 * in turn) and NAME.counts (rows summed, one or one for each expert). Older form, little-endian
 * int32 and float: number of entries; of each: length and bytes of its name, number of calls,
 * number of values, the values (mean squares times calls); then calls, length and bytes of the
 * dataset. */
#include "convert/imatrix.h"
#include <math.h>
#include <string.h>

enum { MAX_ENTRIES = 8192 }; /* each is searched for by name */

typedef struct {
    const char *path;
    const uint8_t *begin;
    uint64_t at, bytes;
    mn_error *err;
} cursor;

static mn_status imatrix_ends(const cursor *c, const char *what) {
    return mn_fail(c->err, MN_BAD_FILE, "%s: the file ends at byte %llu, expected %s", c->path,
                   (unsigned long long)c->bytes, what);
}

/* The next n bytes; NULL: the file has fewer. */
static const uint8_t *imatrix_take(cursor *c, uint64_t n) {
    if (n > c->bytes - c->at)
        return NULL;
    c->at += n;
    return c->begin + (c->at - n);
}

static mn_status take_uint(cursor *c, int bytes, uint64_t *out, const char *what) {
    const uint8_t *p = imatrix_take(c, (uint64_t)bytes);
    *out = 0;
    if (!p)
        return imatrix_ends(c, what);
    for (int i = bytes; i-- > 0;)
        *out = *out << 8 | p[i];
    return MN_OK;
}

/* length: bytes of the number in front of the text. */
static mn_status take_text(cursor *c, int length, mn_str *out, const char *what) {
    uint64_t n;
    const mn_status st = take_uint(c, length, &n, what);
    if (st)
        return st;
    const uint8_t *p = imatrix_take(c, n);
    if (!p)
        return imatrix_ends(c, what);
    *out = (mn_str){(const char *)p, n};
    return MN_OK;
}

static float float_at(const uint8_t *p) {
    const uint32_t bits =
        (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* ---- entries --------------------------------------------------------------------------------- */
/* n weights of one matrix from its sums. A little is added to each: an input that was always 0 in
 * one text is not in every other. */
static mn_status weigh(const cursor *c, mn_str name, const uint8_t *sums, uint64_t n, bool counted,
                       float *out) {
    double total = 0;
    for (uint64_t i = 0; i < n; i++) {
        const float v = float_at(sums + 4 * i);
        if (!(v >= 0 && v <= 3.4e38f))
            return mn_fail(c->err, MN_BAD_FILE,
                           "%s: %.*s: value %llu is %g, expected a finite number from 0 on",
                           c->path, MN_STR_ARG(name), (unsigned long long)i, (double)v);
        total += (double)v;
    }
    const double mean = total / (double)n;
    for (uint64_t i = 0; i < n; i++) {
        const double v = (double)float_at(sums + 4 * i);
        out[i] = counted && mean > 0 ? (float)(v / mean + 1e-6) : 1;
    }
    return MN_OK;
}

static mn_status keep_counts(mn_imatrix_entry *e, const cursor *c, const uint8_t *counts,
                             uint64_t n) {
    e->counts = mn_alloc(n, sizeof *e->counts);
    e->n_counts = e->counts ? n : 0;
    if (!e->counts)
        return mn_fail_memory(c->err, n * sizeof *e->counts);
    for (uint64_t i = 0; i < n; i++) {
        const float v = float_at(counts + 4 * i);
        if (!(v >= 0 && v <= 3.4e38f))
            return mn_fail(c->err, MN_BAD_FILE,
                           "%s: %.*s: count %llu is %g, expected a finite number from 0 on",
                           c->path, MN_STR_ARG(e->name), (unsigned long long)i, (double)v);
        e->counts[i] = (double)v;
    }
    return MN_OK;
}

/* counts: n_mat floats; NULL: all were counted. */
static mn_status add_entry(mn_imatrix *m, const cursor *c, mn_str name, const uint8_t *sums,
                           uint64_t n, const uint8_t *counts, uint64_t n_mat) {
    void *list = m->at;
    mn_status st = MN_OK;
    if (!n || !n_mat || n % n_mat)
        return mn_fail(c->err, MN_BAD_FILE,
                       "%s: %.*s: found %llu values of %llu matrices, expected as many of each",
                       c->path, MN_STR_ARG(name), (unsigned long long)n, (unsigned long long)n_mat);
    if (mn_imatrix_find(m, name))
        return mn_fail(c->err, MN_BAD_FILE, "%s: found %.*s twice, expected each matrix once",
                       c->path, MN_STR_ARG(name));
    /* entries that share bytes would make a small file as large as one likes */
    if (n > c->bytes / 4 - m->n_values)
        return mn_fail(c->err, MN_BAD_FILE,
                       "%s: %.*s: the values of the entries so far are more than the file holds, "
                       "expected each to have its own",
                       c->path, MN_STR_ARG(name));
    m->n_values += n;
    if (!mn_grow(&list, &m->cap, m->n + 1, sizeof *m->at))
        return mn_fail_memory(c->err, sizeof *m->at);
    m->at = list;
    float *weights = mn_alloc(n, sizeof *weights);
    if (!weights)
        return mn_fail_memory(c->err, n * sizeof *weights);
    m->at[m->n++] = (mn_imatrix_entry){.name = name, .n = n, .weights = weights};
    if (counts)
        st = keep_counts(&m->at[m->n - 1], c, counts, n_mat);
    const uint64_t cols = n / n_mat;
    for (uint64_t i = 0; i < n_mat && !st; i++) {
        const bool counted = !counts || float_at(counts + 4 * i) > 0;
        st = weigh(c, name, sums + 4 * i * cols, cols, counted, weights + i * cols);
    }
    return st;
}

/* ---- the older form -------------------------------------------------------------------------- */
static mn_status read_old_entry(mn_imatrix *m, cursor *c) {
    mn_str name;
    uint64_t calls;
    uint64_t n = 0;
    mn_status st = take_text(c, 4, &name, "the name of an entry");
    if (!st)
        st = take_uint(c, 4, &calls, "the number of calls of an entry");
    if (!st)
        st = take_uint(c, 4, &n, "the number of values of an entry");
    if (st)
        return st;
    const uint8_t *values = imatrix_take(c, 4 * n);
    if (!name.len || !values)
        return mn_fail(c->err, MN_BAD_FILE,
                       "%s: entry %zu (\"%.*s\") has %llu values, but %llu bytes are left: no "
                       "importance matrix of llama.cpp, or a part of one",
                       c->path, m->n + 1, MN_STR_ARG(name), (unsigned long long)n,
                       (unsigned long long)(c->bytes - c->at));
    return add_entry(m, c, name, values, n, NULL, 1);
}

static mn_status read_old(mn_imatrix *m, cursor *c) {
    uint64_t n;
    mn_status st = take_uint(c, 4, &n, "the number of entries");
    if (st)
        return st;
    if (!n || n > MAX_ENTRIES || n > c->bytes / 12)
        return mn_fail(c->err, MN_BAD_FILE,
                       "%s: found neither the magic number GGUF nor a number of entries (%llu), "
                       "expected an importance matrix of llama.cpp",
                       c->path, (unsigned long long)n);
    for (uint64_t i = 0; i < n && !st; i++)
        st = read_old_entry(m, c);
    if (st || c->at == c->bytes) /* the oldest end here */
        return st;
    st = take_uint(c, 4, &m->chunks, "the number of calls");
    if (!st)
        st = take_text(c, 4, &m->dataset, "the name of the dataset");
    return st;
}

/* ---- GGUF ------------------------------------------------------------------------------------ */
enum { GGUF_U32 = 4, GGUF_STR = 8, GGUF_LIST = 9, GGUF_TYPES = 13 };

typedef struct {
    mn_str name;
    uint64_t n, offset, n_dim;
} stored_sums;

/* Bytes of a number of the type; 0: it is no number. */
static uint64_t number_bytes(uint64_t type) {
    static const uint8_t bytes[GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < GGUF_TYPES ? bytes[type] : 0;
}

static mn_status skip_list(cursor *c, mn_str key, mn_str *text) {
    uint64_t type;
    uint64_t n = 0;
    mn_status st = take_uint(c, 4, &type, "the type of a list");
    if (!st)
        st = take_uint(c, 8, &n, "the length of a list");
    if (st)
        return st;
    const uint64_t bytes = number_bytes(type);
    if (type == GGUF_STR) {
        for (uint64_t i = 0; i < n && !st; i++)
            st = take_text(c, 8, text, "a text of a list");
        return st;
    }
    if (!bytes)
        return mn_fail(c->err, MN_BAD_FILE, "%s: key %.*s: a list of type %llu, expected 0 to 12",
                       c->path, MN_STR_ARG(key), (unsigned long long)type);
    if (n > c->bytes / bytes || !imatrix_take(c, n * bytes))
        return imatrix_ends(c, "the values of a list");
    return MN_OK;
}

static mn_status imatrix_read_key(mn_imatrix *m, cursor *c, uint64_t *alignment) {
    mn_str key;
    mn_str text = {0};
    uint64_t type = 0;
    uint64_t v = 0;
    mn_status st = take_text(c, 8, &key, "a key");
    if (!st)
        st = take_uint(c, 4, &type, "the type of a key");
    if (st)
        return st;
    if (type == GGUF_STR)
        st = take_text(c, 8, &text, "the text of a key");
    else if (type == GGUF_LIST)
        st = skip_list(c, key, &text);
    else if (number_bytes(type))
        st = take_uint(c, (int)number_bytes(type), &v, "the value of a key");
    else
        st = mn_fail(c->err, MN_BAD_FILE, "%s: key %.*s has type %llu, expected 0 to 12", c->path,
                     MN_STR_ARG(key), (unsigned long long)type);
    if (st)
        return st;
    if (mn_str_is(key, "general.type") && !mn_str_is(text, "imatrix"))
        return mn_fail(c->err, MN_BAD_FILE,
                       "%s: key general.type is \"%.*s\", expected \"imatrix\"", c->path,
                       MN_STR_ARG(text));
    if (mn_str_is(key, "general.alignment") && type == GGUF_U32)
        *alignment = v;
    if (mn_str_is(key, "imatrix.chunk_count") && type == GGUF_U32)
        m->chunks = v;
    if (mn_str_is(key, "imatrix.datasets"))
        m->dataset = text;
    return MN_OK;
}

static mn_status read_sums(cursor *c, stored_sums *t) {
    uint64_t type = 0;
    mn_status st = take_text(c, 8, &t->name, "the name of a tensor");
    if (!st)
        st = take_uint(c, 4, &t->n_dim, "the dimensions of a tensor");
    if (st)
        return st;
    if (t->n_dim > 4)
        return mn_fail(c->err, MN_BAD_FILE, "%s: tensor %.*s has %llu dimensions, expected up to 4",
                       c->path, MN_STR_ARG(t->name), (unsigned long long)t->n_dim);
    t->n = 1;
    for (uint64_t i = 0; i < t->n_dim && !st; i++) {
        uint64_t dim;
        st = take_uint(c, 8, &dim, "the dimensions of a tensor");
        if (!st && (!mn_mul_u64(t->n, dim, &t->n) || t->n > c->bytes / 4))
            st = mn_fail(c->err, MN_BAD_FILE, "%s: tensor %.*s has more values than the file",
                         c->path, MN_STR_ARG(t->name));
    }
    if (!st)
        st = take_uint(c, 4, &type, "the type of a tensor");
    if (!st && type)
        st = mn_fail(c->err, MN_BAD_FILE, "%s: tensor %.*s has type %llu, expected 0 (F32)",
                     c->path, MN_STR_ARG(t->name), (unsigned long long)type);
    return st ? st : take_uint(c, 8, &t->offset, "the place of a tensor");
}

/* Where the tensor's values are in the file; NULL: not in it. data: where all begin. */
static const uint8_t *values_of(const cursor *c, const stored_sums *t, uint64_t data) {
    uint64_t end;
    if (data > c->bytes || !mn_add_u64(t->offset, 4 * t->n, &end) || end > c->bytes - data)
        return NULL;
    return c->begin + data + t->offset;
}

static mn_status join_sums(mn_imatrix *m, const cursor *c, const stored_sums *list, uint64_t n,
                           uint64_t data) {
    static const char sums[] = ".in_sum2";
    static const char counts[] = ".counts";
    mn_status st = MN_OK;
    for (uint64_t i = 0; i < n && !st; i++) {
        const stored_sums *t = &list[i];
        const stored_sums *of = NULL;
        if (!mn_str_ends(t->name, sums))
            continue;
        const mn_str name = {t->name.ptr, t->name.len - strlen(sums)};
        for (uint64_t k = 0; k < n && !of; k++)
            if (mn_str_ends(list[k].name, counts) &&
                list[k].name.len == name.len + strlen(counts) &&
                !memcmp(list[k].name.ptr, name.ptr, name.len))
                of = &list[k];
        if (!of)
            return mn_fail(c->err, MN_BAD_FILE, "%s: found %.*s.in_sum2 without %.*s.counts",
                           c->path, MN_STR_ARG(name), MN_STR_ARG(name));
        const uint8_t *values = values_of(c, t, data);
        const uint8_t *rows = values_of(c, of, data);
        if (!values || !rows)
            return mn_fail(c->err, MN_BAD_FILE,
                           "%s: the values of %.*s are beyond the file's end at byte %llu", c->path,
                           MN_STR_ARG(name), (unsigned long long)c->bytes);
        st = add_entry(m, c, name, values, t->n, rows, of->n);
    }
    return st;
}

static mn_status read_gguf(mn_imatrix *m, cursor *c) {
    uint64_t version;
    uint64_t n = 0;
    uint64_t n_keys = 0;
    uint64_t alignment = 32;
    mn_status st = take_uint(c, 4, &version, "the version of GGUF");
    if (!st && (version < 2 || version > 3))
        st = mn_fail(c->err, MN_BAD_FILE, "%s: GGUF version %llu, expected 2 or 3", c->path,
                     (unsigned long long)version);
    if (!st)
        st = take_uint(c, 8, &n, "the number of tensors");
    if (!st)
        st = take_uint(c, 8, &n_keys, "the number of keys");
    for (uint64_t i = 0; i < n_keys && !st; i++)
        st = imatrix_read_key(m, c, &alignment);
    if (!st && (!n || n > 2 * MAX_ENTRIES || n > c->bytes / 24))
        st = mn_fail(c->err, MN_BAD_FILE, "%s: found %llu tensors, expected 2 to %d that fit",
                     c->path, (unsigned long long)n, 2 * MAX_ENTRIES);
    if (!st && (!alignment || alignment & (alignment - 1)))
        st = mn_fail(c->err, MN_BAD_FILE,
                     "%s: key general.alignment is %llu, expected a power of two", c->path,
                     (unsigned long long)alignment);
    if (st)
        return st;
    stored_sums *list = mn_alloc(n, sizeof *list);
    if (!list)
        return mn_fail_memory(c->err, n * sizeof *list);
    for (uint64_t i = 0; i < n && !st; i++)
        st = read_sums(c, &list[i]);
    if (!st)
        st = join_sums(m, c, list, n, (c->at + alignment - 1) & ~(alignment - 1));
    if (!st && !m->n)
        st = mn_fail(c->err, MN_BAD_FILE,
                     "%s: none of its %llu tensors is NAME.in_sum2: a model, or another file, "
                     "expected an importance matrix of llama.cpp",
                     c->path, (unsigned long long)n);
    mn_free(list);
    return st;
}

/* ---- the file -------------------------------------------------------------------------------- */
mn_status mn_imatrix_read(const char *path, mn_imatrix *out, mn_error *err) {
    mn_status st = mn_map_file(path, MN_MAP_READ, &out->map, err);
    if (st)
        return st;
    cursor c = {path, out->map.ptr, 0, out->map.bytes, err};
    if (c.bytes < 4 || memcmp(c.begin, "GGUF", 4))
        return read_old(out, &c);
    c.at = 4;
    return read_gguf(out, &c);
}

mn_imatrix_entry *mn_imatrix_find(const mn_imatrix *m, mn_str name) {
    for (size_t i = 0; i < m->n; i++)
        if (m->at[i].name.len == name.len && !memcmp(m->at[i].name.ptr, name.ptr, name.len))
            return &m->at[i];
    return NULL;
}

void mn_imatrix_free(mn_imatrix *m) {
    for (size_t i = 0; i < m->n; i++)
        mn_free(m->at[i].weights), mn_free(m->at[i].counts);
    mn_free(m->at);
    if (m->map.ptr)
        mn_unmap(&m->map);
    *m = (mn_imatrix){0};
}
