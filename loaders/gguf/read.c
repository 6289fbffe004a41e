/* read.c -- reads one GGUF file: header, metadata, tensor descriptions. No byte of it is
 * trusted. */
#include "gguf.h"
#include <string.h>

enum {
    KV_U8,
    KV_I8,
    KV_U16,
    KV_I16,
    KV_U32,
    KV_I32,
    KV_F32,
    KV_BOOL,
    KV_STR,
    KV_ARRAY,
    KV_U64,
    KV_I64,
    KV_F64,
    KV_TYPES
};

/* value: MN_VALUE_*; min_bytes: the least that one element takes in the file. */
static const struct {
    const char *name;
    uint32_t value;
    uint32_t min_bytes;
} kv_types[KV_TYPES] = {
    {"uint8", MN_VALUE_INT, 1},     {"int8", MN_VALUE_INT, 1},   {"uint16", MN_VALUE_INT, 2},
    {"int16", MN_VALUE_INT, 2},     {"uint32", MN_VALUE_INT, 4}, {"int32", MN_VALUE_INT, 4},
    {"float32", MN_VALUE_FLOAT, 4}, {"bool", MN_VALUE_BOOL, 1},  {"string", MN_VALUE_STR, 8},
    {"array", MN_VALUE_ARRAY, 12},  {"uint64", MN_VALUE_INT, 8}, {"int64", MN_VALUE_INT, 8},
    {"float64", MN_VALUE_FLOAT, 8},
};
#define KEY_MAX 65535u
#define NAME_MAX_BYTES 1024u
#define MIN_META_BYTES (8 + 1 + 4 + 1) /* key length, key, type, value */
/* name length, name, n_dim, one dim, type, offset */
#define MIN_TENSOR_BYTES (8 + 1 + 4 + 8 + 4 + 8)

/* Bytes of the file that have not been read. */
static uint64_t gguf_left(const gguf_reader *r) {
    return r->file->bytes - r->at;
}

/* "key 'a.b': " while its value is read. */
#define KEY_ARG(r) (r)->key.len ? "key '" : "", MN_STR_ARG((r)->key), (r)->key.len ? "': " : ""

/* The next n bytes, or NULL with the error filled. */
static const unsigned char *gguf_take(gguf_reader *r, uint64_t n, const char *what) {
    if (n > gguf_left(r)) {
        mnl_fail(r->err, MN_BAD_FILE,
                 "%.*s: %s%.*s%struncated or corrupt: %s needs %llu bytes at offset %llu, the file "
                 "has %llu in all",
                 MN_STR_ARG(r->file->name), KEY_ARG(r), what, (unsigned long long)n,
                 (unsigned long long)r->at, (unsigned long long)r->file->bytes);
        return NULL;
    }
    const unsigned char *s = (const unsigned char *)r->file->map + r->at;
    r->at += n;
    return s;
}

static uint64_t little_endian(const unsigned char *s, uint32_t n) {
    uint64_t v = 0;
    for (uint32_t i = n; i-- > 0;)
        v = v << 8 | s[i];
    return v;
}

static mn_status read_uint(gguf_reader *r, uint32_t bytes, const char *what, uint64_t *out) {
    const unsigned char *s = gguf_take(r, bytes, what);
    if (!s)
        return MN_BAD_FILE;
    *out = little_endian(s, bytes);
    return MN_OK;
}

/* A string of the file, in place. */
static mn_status read_str(gguf_reader *r, const char *what, mn_str *out) {
    uint64_t n;
    if (read_uint(r, 8, what, &n))
        return MN_BAD_FILE;
    const unsigned char *s = gguf_take(r, n, what);
    if (!s)
        return MN_BAD_FILE;
    if (mn_utf8_check((const char *)s, n) < n)
        return mnl_fail(r->err, MN_BAD_FILE,
                        "%.*s: %s%.*s%s%s at offset %llu is not valid UTF-8, expected text",
                        MN_STR_ARG(r->file->name), KEY_ARG(r), what,
                        (unsigned long long)(r->at - n));
    *out = (mn_str){(const char *)s, n};
    return MN_OK;
}

/* A string of 1 to max bytes, valid UTF-8: keys and names of tensors. */
static mn_status gguf_read_name(gguf_reader *r, const char *what, uint64_t max, mn_str *out) {
    if (read_str(r, what, out))
        return MN_BAD_FILE;
    if (out->len >= 1 && out->len <= max)
        return MN_OK;
    return mnl_fail(r->err, MN_BAD_FILE,
                    "%.*s: %s of %llu bytes before offset %llu, expected 1 to %llu",
                    MN_STR_ARG(r->file->name), what, (unsigned long long)out->len,
                    (unsigned long long)r->at, (unsigned long long)max);
}

/* Magic, version and the two counts, each of which the rest of the file must be able to hold. */
mn_status gguf_read_header(gguf_reader *r) {
    const unsigned char *magic = gguf_take(r, 4, "the magic number");
    uint64_t version;
    if (!magic)
        return MN_BAD_FILE;
    if (memcmp(magic, "GGUF", 4))
        return mnl_fail(
            r->err, MN_BAD_FILE,
            "%.*s: not a GGUF file: begins with %02x %02x %02x %02x, expected 47 47 55 46 (GGUF)",
            MN_STR_ARG(r->file->name), magic[0], magic[1], magic[2], magic[3]);
    if (read_uint(r, 4, "the version", &version))
        return MN_BAD_FILE;
    if (version && !(version & 0xFFFF))
        return mnl_fail(
            r->err, MN_UNSUPPORTED,
            "%.*s: a big-endian GGUF file (version field %08llx), expected little-endian",
            MN_STR_ARG(r->file->name), (unsigned long long)version);
    if (version != 2 && version != 3)
        return mnl_fail(r->err, MN_UNSUPPORTED, "%.*s: GGUF version %llu, expected 2 or 3",
                        MN_STR_ARG(r->file->name), (unsigned long long)version);
    if (read_uint(r, 8, "the number of tensors", &r->n_tensors) ||
        read_uint(r, 8, "the number of metadata pairs", &r->n_meta))
        return MN_BAD_FILE;
    uint64_t bytes = gguf_left(r);
    if (r->n_meta > bytes / MIN_META_BYTES)
        return mnl_fail(
            r->err, MN_BAD_FILE,
            "%.*s: %llu metadata pairs do not fit into the file's %llu bytes: truncated or corrupt",
            MN_STR_ARG(r->file->name), (unsigned long long)r->n_meta,
            (unsigned long long)r->file->bytes);
    if (r->n_tensors > (bytes - r->n_meta * MIN_META_BYTES) / MIN_TENSOR_BYTES)
        return mnl_fail(
            r->err, MN_BAD_FILE,
            "%.*s: %llu tensors do not fit into the file's %llu bytes: truncated or corrupt",
            MN_STR_ARG(r->file->name), (unsigned long long)r->n_tensors,
            (unsigned long long)r->file->bytes);
    return MN_OK;
}

/* ---- metadata -------------------------------------------------------------------------------- */

static double float_of(const unsigned char *s, uint32_t type) {
    uint64_t bits = little_endian(s, kv_types[type].min_bytes);
    if (type == KV_F32) {
        float f;
        uint32_t half = (uint32_t)bits;
        memcpy(&f, &half, sizeof f);
        return f;
    }
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

/* false: an unsigned number over INT64_MAX. */
static bool int_of(const unsigned char *s, uint32_t type, int64_t *out) {
    uint64_t bits = little_endian(s, kv_types[type].min_bytes);
    switch (type) {
    case KV_I8:
        *out = (int8_t)bits;
        break;
    case KV_I16:
        *out = (int16_t)bits;
        break;
    case KV_I32:
        *out = (int32_t)bits;
        break;
    default:
        *out = (int64_t)bits;
        return type != KV_U64 || bits <= INT64_MAX;
    }
    return true;
}

/* One message for all values that their type does not allow. */
static mn_status gguf_bad_value(gguf_reader *r, mn_str key, const char *found,
                                const char *expected) {
    return mnl_fail(r->err, MN_BAD_FILE, "%.*s: key '%.*s': %s before offset %llu, expected %s",
                    MN_STR_ARG(r->file->name), MN_STR_ARG(key), found, (unsigned long long)r->at,
                    expected);
}

/* Reads n elements of a fixed-size type; out is the array that mn_value documents, or a scalar of
 * the same type. */
static mn_status read_numbers(gguf_reader *r, mn_str key, uint32_t type, uint64_t n, void *out) {
    const uint32_t size = kv_types[type].min_bytes;
    const unsigned char *s = gguf_take(r, n * size, kv_types[type].name);
    if (!s)
        return MN_BAD_FILE;
    for (uint64_t i = 0; i < n; i++, s += size) {
        if (kv_types[type].value == MN_VALUE_FLOAT)
            ((double *)out)[i] = float_of(s, type);
        else if (kv_types[type].value == MN_VALUE_BOOL) {
            if (*s > 1)
                return gguf_bad_value(r, key, "a bool that is neither 0 nor 1", "0 or 1");
            ((uint8_t *)out)[i] = *s;
        } else if (!int_of(s, type, (int64_t *)out + i))
            return gguf_bad_value(r, key, "an uint64 over 2^63-1", "a value that fits 63 bits");
    }
    return MN_OK;
}

static mn_status read_strings(gguf_reader *r, uint64_t n, mn_str *out) {
    for (uint64_t i = 0; i < n; i++)
        if (read_str(r, "a string of an array", &out[i]))
            return MN_BAD_FILE;
    return MN_OK;
}

/* Counts are checked against the file's length before anything is allocated for them. */
static mn_status read_array(gguf_reader *r, mn_str key, mn_value *v) {
    uint64_t type;
    uint64_t n;
    if (read_uint(r, 4, "an array's type", &type) || read_uint(r, 8, "an array's length", &n))
        return MN_BAD_FILE;
    if (type == KV_ARRAY)
        return mnl_fail(r->err, MN_UNSUPPORTED,
                        "%.*s: key '%.*s' is an array of arrays, expected an array of numbers, "
                        "bools or strings",
                        MN_STR_ARG(r->file->name), MN_STR_ARG(key));
    if (type >= KV_TYPES)
        return mnl_fail(
            r->err, MN_BAD_FILE, "%.*s: key '%.*s': array of unknown type %llu, expected 0 to %d",
            MN_STR_ARG(r->file->name), MN_STR_ARG(key), (unsigned long long)type, KV_TYPES - 1);
    if (n > gguf_left(r) / kv_types[type].min_bytes) /* before anything is allocated for it */
        return mnl_fail(r->err, MN_BAD_FILE,
                        "%.*s: key '%.*s': an array of %llu elements (%s) does not fit into the "
                        "%llu bytes that are "
                        "left: truncated or corrupt",
                        MN_STR_ARG(r->file->name), MN_STR_ARG(key), (unsigned long long)n,
                        kv_types[type].name, (unsigned long long)gguf_left(r));
    uint32_t value = kv_types[type].value;
    uint64_t size = sizeof(int64_t);
    if (value == MN_VALUE_BOOL)
        size = 1;
    else if (value == MN_VALUE_STR)
        size = sizeof(mn_str);
    void *array = mn_parsed_alloc(r->parsed, n, size);
    if (!array)
        return mnl_fail_memory(r->err);
    v->type = MN_VALUE_ARRAY | value;
    v->array = array;
    v->n = n;
    return value == MN_VALUE_STR ? read_strings(r, n, array)
                                 : read_numbers(r, key, (uint32_t)type, n, array);
}

static mn_status gguf_read_value(gguf_reader *r, mn_str key, mn_value *v) {
    uint64_t type;
    uint8_t flag = 0;
    if (read_uint(r, 4, "a value's type", &type))
        return MN_BAD_FILE;
    if (type >= KV_TYPES)
        return mnl_fail(
            r->err, MN_BAD_FILE, "%.*s: key '%.*s' has unknown type %llu, expected 0 to %d",
            MN_STR_ARG(r->file->name), MN_STR_ARG(key), (unsigned long long)type, KV_TYPES - 1);
    if (type == KV_ARRAY)
        return read_array(r, key, v);
    v->type = kv_types[type].value;
    if (type == KV_STR)
        return read_str(r, "a string value", &v->s);
    void *out = &v->i;
    if (v->type == MN_VALUE_FLOAT)
        out = &v->f;
    else if (v->type == MN_VALUE_BOOL)
        out = &flag;
    mn_status status = read_numbers(r, key, (uint32_t)type, 1, out);
    if (v->type == MN_VALUE_BOOL)
        v->i = flag;
    return status;
}

/* Values of the model's memory; strings stay where they lie in the file. */
mn_status gguf_read_meta(gguf_reader *r) {
    r->first_meta = r->parsed->n_meta;
    for (uint64_t i = 0; i < r->n_meta; i++) {
        mn_str key;
        mn_status status = gguf_read_name(r, "a metadata key", KEY_MAX, &key);
        if (status)
            return status;
        mn_parsed_meta *m = mn_parsed_add_meta(r->parsed);
        if (!m)
            return mnl_fail_memory(r->err);
        m->key = m->native = key;
        r->key = key;
        status = gguf_read_value(r, key, &m->value);
        if (status)
            return status;
        r->key.len = 0;
    }
    return mn_parsed_check_keys(r->parsed, r->file, r->first_meta, r->err);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Dims are stored innermost first. */
static mn_status read_dims(gguf_reader *r, mn_parsed_tensor *t) {
    uint64_t n;
    uint64_t dim;
    if (read_uint(r, 4, "a tensor's number of dimensions", &n))
        return MN_BAD_FILE;
    if (n < 1 || n > MN_MAX_DIM)
        return mnl_fail(
            r->err, MN_BAD_FILE, "%.*s: tensor '%.*s' has %llu dimensions, expected 1 to %d",
            MN_STR_ARG(r->file->name), MN_STR_ARG(t->name), (unsigned long long)n, MN_MAX_DIM);
    t->n_dim = (uint32_t)n;
    for (uint32_t i = t->n_dim; i-- > 0;) {
        if (read_uint(r, 8, "a tensor's dimension", &dim))
            return MN_BAD_FILE;
        if (dim > INT64_MAX)
            return mnl_fail(r->err, MN_BAD_FILE,
                            "%.*s: tensor '%.*s' has a dimension of %llu, expected 1 to 2^63-1",
                            MN_STR_ARG(r->file->name), MN_STR_ARG(t->name),
                            (unsigned long long)dim);
        if (!dim)
            t->problem = " has a dimension of 0, expected 1 to 2^63-1";
        t->dim[i] = (int64_t)dim;
    }
    return MN_OK;
}

/* A type that is not known is a problem of the tensor's, with a list of those that are. */
static mn_status read_type(gguf_reader *r, mn_parsed_tensor *t) {
    char known[512];
    uint64_t type;
    if (read_uint(r, 4, "a tensor's type", &type))
        return MN_BAD_FILE;
    if (mn_dtype_by_ggml((uint32_t)type, &t->dtype))
        return MN_OK;
    if (t->problem) /* empty, of whatever type */
        return MN_OK;
    const gguf_absent_type *absent = type <= UINT32_MAX ? gguf_other_type((uint32_t)type) : NULL;
    if (absent)
        t->problem = mn_parsed_printf(r->parsed,
                                      " has GGML type %u (%s), an order of bytes that is not read; "
                                      "the nearest that is read is %s",
                                      absent->ggml, absent->name, absent->nearest)
                         .ptr;
    else
        t->problem =
            mn_parsed_printf(r->parsed, " has GGML type %llu (unknown), expected one of %s",
                             (unsigned long long)type, gguf_known_types(known, sizeof known))
                .ptr;
    return t->problem ? MN_OK : mnl_fail_memory(r->err);
}

/* offset stays relative to the data section, whose place is not known yet. */
static mn_status gguf_read_tensor(gguf_reader *r) {
    mn_parsed_tensor *t = mn_parsed_add_tensor(r->parsed);
    if (!t)
        return mnl_fail_memory(r->err);
    t->file = r->file;
    if (gguf_read_name(r, "a tensor name", NAME_MAX_BYTES, &t->name))
        return MN_BAD_FILE;
    t->native = t->name;
    if (read_dims(r, t))
        return MN_BAD_FILE;
    mn_status status = read_type(r, t);
    if (status)
        return status;
    if (read_uint(r, 8, "a tensor's offset", &t->offset))
        return MN_BAD_FILE;
    if (t->offset % r->alignment)
        return mnl_fail(r->err, MN_BAD_FILE,
                        "%.*s: tensor '%.*s' lies at offset %llu of the data, expected a multiple "
                        "of %llu (general.alignment)",
                        MN_STR_ARG(r->file->name), MN_STR_ARG(t->name),
                        (unsigned long long)t->offset, (unsigned long long)r->alignment);
    return MN_OK;
}

/* For mnl_sort. */
static int by_offset(const void *a, const void *b) {
    const uint64_t x = ((const mn_parsed_tensor *)a)->offset;
    const uint64_t y = ((const mn_parsed_tensor *)b)->offset;
    return (x > y) - (x < y);
}

/* The tensors from `first` on, whose offsets are the file's. How long one of an unknown type is
 * follows from where the next one begins. */
static mn_status place_unreadable(gguf_reader *r, uint64_t first, uint64_t n) {
    const mn_host *h = r->parsed->host;
    const void **order = h->alloc(h->self, (n + 1) * sizeof *order, 16);
    if (!order)
        return mnl_fail_memory(r->err);
    for (uint64_t i = 0; i < n; i++)
        order[i] = &r->parsed->tensors[first + i];
    mnl_sort(order, n, by_offset);
    mn_status status = MN_OK;
    uint64_t end = r->file->bytes;
    for (uint64_t i = n; i-- > 0 && !status;) {
        mn_parsed_tensor *t =
            &r->parsed->tensors[(const mn_parsed_tensor *)order[i] - r->parsed->tensors];
        const bool empty = mn_tensor_is_empty(t);
        if (t->problem && t->offset > r->file->bytes)
            status = mnl_fail(r->err, MN_BAD_FILE,
                              "%.*s: tensor '%.*s': offset %llu passes the end of the file (%llu "
                              "bytes): truncated or corrupt",
                              MN_STR_ARG(r->file->name), MN_STR_ARG(t->name),
                              (unsigned long long)t->offset, (unsigned long long)r->file->bytes);
        else if (t->problem)
            mn_tensor_place_bytes(t, empty ? 0 : end - t->offset);
        if (!empty)
            end = t->offset < end ? t->offset : end;
    }
    h->release(h->self, (void *)order);
    return status;
}

/* All descriptions first: the data begin behind the last one, aligned. */
mn_status gguf_read_tensors(gguf_reader *r) {
    mn_status status;
    uint64_t first = r->parsed->n_tensors;
    uint64_t bytes;
    bool readable = true;
    for (uint64_t i = 0; i < r->n_tensors; i++) {
        status = gguf_read_tensor(r);
        if (status)
            return status;
    }
    /* both far below 2^63: a file offset, 2^30 at most */
    uint64_t data = (r->at + r->alignment - 1) & ~(r->alignment - 1);
    for (uint64_t i = first; i < r->parsed->n_tensors; i++) {
        mn_parsed_tensor *t = &r->parsed->tensors[i];
        if (!mn_add_u64(t->offset, data, &t->offset))
            return mnl_fail(
                r->err, MN_BAD_FILE, "%.*s: tensor '%.*s': its offset %llu in the data overflows",
                MN_STR_ARG(r->file->name), MN_STR_ARG(t->name), (unsigned long long)t->offset);
        readable = readable && !t->problem;
        status = t->problem ? MN_OK : mn_tensor_place(t, &bytes, r->err);
        if (status)
            return status;
    }
    return readable ? MN_OK : place_unreadable(r, first, r->parsed->n_tensors - first);
}
