/* header.c -- one .safetensors file: u64 length, a JSON object that describes the tensors, their
 * bytes without holes. */
#include "safetensors.h"
#include <string.h>

#define HEADER_MAX 100000000u /* the limit of the format's own library */

/* Exactly the three known members, each once. */
static mn_status entry_fields(const mn_file *f, const cJSON *entry, const cJSON *field[3],
                              mn_error *err) {
    static const char *const names[3] = {"dtype", "shape", "data_offsets"};
    if (!cJSON_IsObject(entry))
        return mnl_fail(err, MN_BAD_FILE, "%.*s: tensor '%.120s' is %s, expected an object",
                        MN_STR_ARG(f->name), entry->string, json_describe(entry).s);
    for (const cJSON *m = entry->child; m; m = m->next) {
        int which = 0;
        while (which < 3 && strcmp(names[which], m->string))
            which++;
        if (which == 3 || field[which])
            return mnl_fail(err, MN_BAD_FILE,
                            "%.*s: tensor '%.120s': field '%.40s' is %s, expected dtype, shape and "
                            "data_offsets",
                            MN_STR_ARG(f->name), entry->string, m->string,
                            which == 3 ? "unknown" : "there twice");
        field[which] = m;
    }
    for (int i = 0; i < 3; i++)
        if (!field[i])
            return mnl_fail(err, MN_BAD_FILE, "%.*s: tensor '%.120s': field '%s' is missing",
                            MN_STR_ARG(f->name), entry->string, names[i]);
    return MN_OK;
}

/* A type that is not known is a problem of the tensor's, with the list of those that are. */
static mn_status entry_dtype(mn_parsed *p, const mn_file *f, const cJSON *entry, const cJSON *dtype,
                             mn_parsed_tensor *t, mn_error *err) {
    if (!cJSON_IsString(dtype))
        return mnl_fail(err, MN_BAD_FILE, "%.*s: tensor '%.120s': dtype is %s, expected a string",
                        MN_STR_ARG(f->name), entry->string, json_describe(dtype).s);
    if (dtype_by_safetensors_name(dtype->valuestring, &t->dtype))
        return MN_OK;
    t->problem = mn_parsed_printf(p, ": dtype '%.40s' is not known here; known: %s",
                                  dtype->valuestring, safetensors_known_types)
                     .ptr;
    return t->problem ? MN_OK : mnl_fail_memory(err);
}

/* A scalar (empty shape) becomes one row of one element. A dimension of 0 is a problem of the
 * tensor's. */
static mn_status entry_shape(const mn_file *f, const cJSON *entry, const cJSON *shape,
                             mn_parsed_tensor *t, mn_error *err) {
    if (!cJSON_IsArray(shape))
        return mnl_fail(err, MN_BAD_FILE, "%.*s: tensor '%.120s': shape is %s, expected an array",
                        MN_STR_ARG(f->name), entry->string, json_describe(shape).s);
    for (const cJSON *d = shape->child; d; d = d->next) {
        if (t->n_dim == MN_MAX_DIM)
            return mnl_fail(err, MN_BAD_FILE, "%.*s: tensor '%.120s' has more than %d dimensions",
                            MN_STR_ARG(f->name), entry->string, MN_MAX_DIM);
        if (!json_is_int(d, 0, INT64_MAX, &t->dim[t->n_dim]))
            return mnl_fail(err, MN_BAD_FILE,
                            "%.*s: tensor '%.120s': dimension %u of its shape is %s, expected an "
                            "integer from 1 to 2^53",
                            MN_STR_ARG(f->name), entry->string, t->n_dim, json_describe(d).s);
        if (!t->dim[t->n_dim])
            t->problem = ": a dimension of its shape is 0, expected an integer from 1 to 2^53";
        t->n_dim++;
    }
    if (!t->n_dim)
        t->dim[t->n_dim++] = 1;
    return MN_OK;
}

/* data: offset of the data section in the file; the entry's offsets count from there. */
static mn_status entry_place(const mn_file *f, const cJSON *entry, const cJSON *offsets,
                             uint64_t data, mn_parsed_tensor *t, mn_error *err) {
    const cJSON *begin = NULL;
    if (cJSON_IsArray(offsets))
        begin = offsets->child;
    const cJSON *end = NULL;
    if (begin)
        end = begin->next;
    const int64_t room = (int64_t)(f->bytes - data);
    int64_t from;
    int64_t to;
    uint64_t bytes;
    if (!end || end->next)
        return mnl_fail(err, MN_BAD_FILE,
                        "%.*s: tensor '%.120s': data_offsets is not an array of two numbers",
                        MN_STR_ARG(f->name), entry->string);
    if (!json_is_int(begin, 0, INT64_MAX, &from) || !json_is_int(end, 0, INT64_MAX, &to) ||
        from > to || to > room)
        return mnl_fail(err, MN_BAD_FILE,
                        "%.*s: tensor '%.120s': data_offsets are [%s, %s], expected a range inside "
                        "the %lld bytes of "
                        "data: truncated or corrupt",
                        MN_STR_ARG(f->name), entry->string, json_describe(begin).s,
                        json_describe(end).s, (long long)room);
    t->offset = data + (uint64_t)from;
    if (mn_tensor_is_empty(t) && to != from)
        return mnl_fail(err, MN_BAD_FILE,
                        "%.*s: tensor '%.120s': data_offsets span %lld bytes, expected 0 for its "
                        "shape",
                        MN_STR_ARG(f->name), entry->string, (long long)(to - from));
    if (t->problem) {
        mn_tensor_place_bytes(t, (uint64_t)(to - from));
        return MN_OK;
    }
    mn_status status = mn_tensor_place(t, &bytes, err);
    if (status)
        return status;
    if (bytes != (uint64_t)(to - from))
        return mnl_fail(
            err, MN_BAD_FILE,
            "%.*s: tensor '%.120s': data_offsets span %lld bytes, expected %llu for its "
            "shape in %s",
            MN_STR_ARG(f->name), entry->string, (long long)(to - from), (unsigned long long)bytes,
            mn_dtype_name(t->dtype.id));
    return MN_OK;
}

/* One member of the header: a tensor, its type, shape and place in the data. */
static mn_status hf_header_read_entry(mn_parsed *p, const mn_file *f, const cJSON *entry,
                                      uint64_t data, mn_error *err) {
    const cJSON *field[3] = {0};
    if (!entry->string[0])
        return mnl_fail(err, MN_BAD_FILE, "%.*s: a tensor's name is empty", MN_STR_ARG(f->name));
    mn_status status = entry_fields(f, entry, field, err);
    if (status)
        return status;
    mn_parsed_tensor *t = mn_parsed_add_tensor(p);
    if (!t)
        return mnl_fail_memory(err);
    t->file = f;
    t->name = t->native = mn_parsed_copy(p, mn_str_of(entry->string));
    if (!t->name.ptr)
        return mnl_fail_memory(err);
    status = entry_dtype(p, f, entry, field[0], t, err);
    if (!status)
        status = entry_shape(f, entry, field[1], t, err);
    if (status)
        return status;
    return entry_place(f, entry, field[2], data, t, err);
}

/* All tensors of the file to the end of p->tensors. Their bytes must add up to the data section,
 * of which `data` is the offset in the file. */
static mn_status hf_header_read_entries(mn_parsed *p, const mn_file *f, const cJSON *root,
                                        uint64_t data, mn_error *err) {
    uint64_t first = p->n_tensors;
    uint64_t covered = 0;
    for (const cJSON *entry = root->child; entry; entry = entry->next) {
        bool notes = !strcmp(entry->string, "__metadata__");
        if (notes && !cJSON_IsObject(entry))
            return mnl_fail(err, MN_BAD_FILE, "%.*s: __metadata__ is %s, expected an object",
                            MN_STR_ARG(f->name), json_describe(entry).s);
        mn_status status = MN_OK;
        if (!notes)
            status = hf_header_read_entry(p, f, entry, data, err);
        if (status)
            return status;
    }
    for (uint64_t i = first; i < p->n_tensors; i++)
        if (!mn_add_u64(covered, p->tensors[i].plane.bytes, &covered))
            covered = UINT64_MAX;
    /* with the check for overlaps: no holes and nothing behind the last tensor */
    if (covered != f->bytes - data)
        return mnl_fail(
            err, MN_BAD_FILE,
            "%.*s: the tensors cover %llu bytes, the file holds %llu bytes of data: corrupt",
            MN_STR_ARG(f->name), (unsigned long long)covered,
            (unsigned long long)(f->bytes - data));
    return MN_OK;
}

/* 8 bytes with the length of the JSON, the JSON, then the data, which tensors cover without gaps
 * or overlaps. */
mn_status header_read(mn_parsed *p, const mn_file *f, mn_error *err) {
    const unsigned char *s = f->map;
    uint64_t n = 0;
    if (f->bytes < 8)
        return mnl_fail(err, MN_BAD_FILE,
                        "%.*s: %llu bytes, expected a header of at least 8: truncated",
                        MN_STR_ARG(f->name), (unsigned long long)f->bytes);
    for (int i = 8; i-- > 0;)
        n = n << 8 | s[i];
    if (n > HEADER_MAX || n > f->bytes - 8)
        return mnl_fail(
            err, MN_BAD_FILE,
            "%.*s: a header of %llu bytes, expected at most %u and at most what follows "
            "in the file (%llu): "
            "truncated or corrupt",
            MN_STR_ARG(f->name), (unsigned long long)n, HEADER_MAX,
            (unsigned long long)(f->bytes - 8));
    if (n < 2 || s[8] != '{')
        return mnl_fail(err, MN_BAD_FILE,
                        "%.*s: the header does not begin with '{': not a safetensors file",
                        MN_STR_ARG(f->name));
    cJSON *root;
    mn_status status = json_parse(p->host, f, 8, n, JSON_MAX, &root, err);
    if (status)
        return status;
    status = json_unique(p->host, f, root, err);
    if (!status)
        status = hf_header_read_entries(p, f, root, 8 + n, err);
    cJSON_Delete(root);
    return status;
}
