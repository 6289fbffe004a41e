/* model.c -- from the files of a folder to one model: which are its parts, in what order, and do
 * they agree. A model is one GGUF file or PREFIX-00001-of-00003.gguf and so on; metadata are
 * those of the first part. read.c parses a file; here its keys are held against its name. */
#include "gguf.h"
#include <string.h>

#define ALIGNMENT_DEFAULT 32u
#define ALIGNMENT_MAX (1u << 30)

bool gguf_has_magic(const mn_file *f) {
    return f->bytes >= 4 && !memcmp(f->map, "GGUF", 4);
}
bool gguf_is_ours(const mn_file *f) {
    return gguf_has_magic(f) || mn_str_ends(f->name, ".gguf");
}

/* An integer key of this reader's file; *out keeps its value if the key is absent. */
static mn_status own_int(const gguf_reader *r, const char *key, int64_t lo, int64_t hi,
                         int64_t *out) {
    for (uint64_t i = r->first_meta; i < r->parsed->n_meta; i++) {
        const mn_parsed_meta *m = &r->parsed->meta[i];
        if (!mn_str_is(m->key, key))
            continue;
        if (m->value.type != MN_VALUE_INT)
            return mnl_fail(r->err, MN_BAD_FILE, "%.*s: key '%s' is not an integer, expected one",
                            MN_STR_ARG(r->file->name), key);
        if (m->value.i < lo || m->value.i > hi)
            return mnl_fail(r->err, MN_BAD_FILE, "%.*s: key '%s' is %lld, expected %lld to %lld",
                            MN_STR_ARG(r->file->name), key, (long long)m->value.i, (long long)lo,
                            (long long)hi);
        *out = m->value.i;
    }
    return MN_OK;
}

/* The data of tensors begin at multiples of it, 32 bytes unless the file says otherwise. */
static mn_status find_alignment(gguf_reader *r) {
    int64_t a = ALIGNMENT_DEFAULT;
    mn_status status = own_int(r, "general.alignment", 1, ALIGNMENT_MAX, &a);
    if (status)
        return status;
    if (a & (a - 1))
        return mnl_fail(r->err, MN_BAD_FILE,
                        "%.*s: key 'general.alignment' is %lld, expected a power of two",
                        MN_STR_ARG(r->file->name), (long long)a);
    r->alignment = (uint64_t)a;
    return MN_OK;
}

/* part: 0-based place of the file by its name, of count; count 1 = not split by name. */
static mn_status check_split(const gguf_reader *r, uint32_t part, uint32_t count) {
    int64_t no = 0;
    int64_t n = 1;
    mn_status status = own_int(r, "split.count", 0, 65535, &n);
    if (!status)
        status = own_int(r, "split.no", 0, 65535, &no);
    if (status)
        return status;
    if (n == 0)
        n = 1; /* written by some tools for a file that is whole */
    if (n != count)
        return mnl_fail(
            r->err, MN_BAD_FILE,
            "%.*s: key 'split.count' says %lld parts, the file's name says %u: expected "
            "PREFIX-%05u-of-%05lld.gguf",
            MN_STR_ARG(r->file->name), (long long)n, count, (unsigned)no + 1, (long long)n);
    if (no != part)
        return mnl_fail(r->err, MN_BAD_FILE,
                        "%.*s: key 'split.no' is %lld, expected %u by the file's name",
                        MN_STR_ARG(r->file->name), (long long)no, part);
    return MN_OK;
}

/* All of one file. Tensors come last: their offsets need the alignment. */
static mn_status gguf_read_file(gguf_reader *r, uint32_t part, uint32_t count) {
    mn_status status = gguf_read_header(r);
    if (!status)
        status = gguf_read_meta(r);
    if (!status)
        status = check_split(r, part, count);
    if (!status)
        status = find_alignment(r);
    if (!status)
        status = gguf_read_tensors(r);
    return status;
}

/* Without it the keys of the model have no prefix, and nothing can be said about its shapes. */
static mn_status check_architecture(mn_parsed *p, const mn_file *file, mn_error *err) {
    const mn_parsed_meta *arch = mn_parsed_find(p, "general.architecture");
    if (!arch)
        return mnl_fail(err, MN_BAD_FILE, "%.*s: key 'general.architecture' is missing",
                        MN_STR_ARG(file->name));
    if (arch->value.type == MN_VALUE_STR)
        return MN_OK;
    return mnl_fail(err, MN_BAD_FILE,
                    "%.*s: key 'general.architecture' is not a string, expected one",
                    MN_STR_ARG(file->name));
}

/* Whether the architecture's name ends so; all encoders are some "bert". */
static bool is_arch(const mn_parsed *p, const char *ending) {
    const mn_parsed_meta *arch = mn_parsed_find(p, "general.architecture");
    return arch && arch->value.type == MN_VALUE_STR && mn_str_ends(arch->value.s, ending);
}

/* Whether the file's head scores texts (pooling_type 4): then it is part of the model. */
static bool scores_texts(const mn_parsed *p) {
    enum { RANK = 4 };
    for (uint64_t i = 0; i < p->n_meta; i++)
        if (mn_str_ends(p->meta[i].key, ".pooling_type"))
            return p->meta[i].value.type == MN_VALUE_INT && p->meta[i].value.i == RANK;
    return false;
}

/* parts[0..count): the model's files in order. Metadata is the first one's; the others bring
 * tensors. */
static mn_status read_parts(mn_parsed *p, const mn_file **parts, uint32_t count, mn_error *err) {
    int64_t total = -1;
    for (uint32_t i = 0; i < count; i++) {
        gguf_reader r = {.parsed = p, .file = parts[i], .err = err};
        mn_status status = gguf_read_file(&r, i, count);
        if (!status && i == 0)
            status = own_int(&r, "split.tensors.count", 0, INT64_MAX, &total);
        if (status)
            return status;
        if (i)
            p->n_meta = r.first_meta;
    }
    if (count > 1 && total >= 0 && p->n_tensors != (uint64_t)total)
        return mnl_fail(err, MN_BAD_FILE,
                        "%.*s: key 'split.tensors.count' says %lld tensors, the %u parts hold %llu",
                        MN_STR_ARG(parts[0]->name), (long long)total, count,
                        (unsigned long long)p->n_tensors);
    mn_status status = mn_parsed_check_tensors(p, err);
    if (!status)
        status = mn_parsed_settle_unreadable(p, err);
    if (!status && !is_arch(p, "clip")) /* whose tensors are those */
        mn_parsed_drop_unused(p, is_arch(p, "bert") && !scores_texts(p));
    /* Mixtral's first files keep experts one by one */
    if (!status)
        status = mn_parsed_join(p, err);
    if (!status)
        status = gguf_join_scales(p, err);
    return status ? status : check_architecture(p, parts[0], err);
}

/* no, count: as in the names, from 1 on. */
static mn_status missing_part(mn_str prefix, uint32_t no, uint32_t count, mn_error *err) {
    return mnl_fail(err, MN_BAD_FILE,
                    "%.*s-%05u-of-%05u.gguf is missing: part %u of the %u that make this model",
                    MN_STR_ARG(prefix), no, count, no, count);
}

/* Puts f where its name says. seen: the first file's prefix and count, which all share. */
static mn_status place_part(const mn_file *f, const mn_file *first, mn_str seen, uint32_t count,
                            const mn_file **parts, mn_error *err) {
    mn_str prefix;
    uint32_t no;
    uint32_t of;
    bool numbered = mnl_shard_name(f->name, ".gguf", &prefix, &no, &of);
    if (f != first && (!numbered || of != count || !mn_str_eq(prefix, seen)))
        return mnl_fail(err, MN_BAD_FILE,
                        "%.*s and %.*s are not parts of one model, expected one GGUF file or "
                        "PREFIX-00001-of-%05u.gguf and so on",
                        MN_STR_ARG(first->name), MN_STR_ARG(f->name), count < 2 ? 2 : count);
    if (!numbered)
        no = 1; /* a whole file: any other one beside it is too much */
    if (no < 1 || no > count)
        return mnl_fail(err, MN_BAD_FILE, "%.*s: part number %u, expected 1 to %u",
                        MN_STR_ARG(f->name), no, count);
    if (parts[no - 1])
        return mnl_fail(err, MN_BAD_FILE, "%.*s was given twice, expected once",
                        MN_STR_ARG(f->name));
    parts[no - 1] = f;
    return MN_OK;
}

/* parts: room for count; all of the files [0, n) that are GGUF are its parts. */
static mn_status sort_parts(const mn_file *files, uint32_t n, uint32_t stride, const mn_file *first,
                            mn_str prefix, uint32_t count, const mn_file **parts, mn_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        const mn_file *f = mnl_file_at(files, i, stride);
        mn_status status =
            gguf_is_ours(f) ? place_part(f, first, prefix, count, parts, err) : MN_OK;
        if (status)
            return status;
    }
    for (uint32_t i = 0; i < count; i++)
        if (!parts[i])
            return missing_part(prefix, i + 1, count, err);
    return MN_OK;
}

/* Files that are no GGUF are left alone; several GGUF files have to be the parts of one model. */
static mn_status gguf_read_model(mn_parsed *p, const mn_file *files, uint32_t n, uint32_t stride,
                                 mn_error *err) {
    const mn_file *first = NULL;
    uint32_t n_ours = 0;
    uint32_t no;
    uint32_t count = 1;
    mn_str prefix = {0};
    for (uint32_t i = 0; i < n; i++) {
        const mn_file *f = mnl_file_at(files, i, stride);
        if (!gguf_is_ours(f))
            continue;
        if (!n_ours++)
            first = f;
    }
    if (!first)
        return mnl_fail(err, MN_BAD_FILE, "no GGUF file among the %u files given", n);
    bool named = mnl_shard_name(first->name, ".gguf", &prefix, &no, &count) && count > 0;
    if (n_ours == 1 && (!named || count == 1))
        return read_parts(p, &first, 1, err);
    if (!named) {
        count = 1;
        prefix = (mn_str){0};
    }
    const mn_file **parts = mn_parsed_alloc(p, count, sizeof *parts);
    if (!parts)
        return mnl_fail_memory(err);
    mn_status status = sort_parts(files, n, stride, first, prefix, count, parts, err);
    return status ? status : read_parts(p, parts, count, err);
}

/* *out belongs to the caller, who closes it with mn_parsed_free. */
mn_status gguf_open(const mn_host *host, const mn_file *files, uint32_t n, uint32_t stride,
                    mn_parsed **out, mn_error *err) {
    mn_parsed *p = mn_parsed_new(host);
    if (!p)
        return mnl_fail_memory(err);
    mn_status status = gguf_read_model(p, files, n, stride, err);
    if (status)
        mn_parsed_free(p);
    else
        *out = p;
    return status;
}
