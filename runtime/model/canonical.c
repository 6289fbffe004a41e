/* canonical.c -- a path to a checked model: which loader, what it says, and whether every plane lies inside its file. */
#include "model/model.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_TENSORS = 1 << 20, MAX_META = 1 << 20, MAX_PLANES = 1 << 20 };

static mn_status choose_loader(mn_canonical *m, const mn_loader_ref *loaders, uint32_t n, const mn_loader_ref **out,
                               mn_error *err) {
    mn_text said = {0};
    uint32_t best = 0;
    *out = NULL;
    for (uint32_t i = 0; i < n; i++) {
        mn_guess g = {.size = sizeof g};
        if (loaders[i].loader->guess(loaders[i].self, m->files.files, m->files.n, sizeof(mn_file), &g)) continue;
        g.format[sizeof g.format - 1] = g.why[sizeof g.why - 1] = 0;
        mn_text_printf(&said, "%s%.*s: %s", said.len ? "; " : "", MN_STR_ARG(loaders[i].id),
                       g.why[0] ? g.why : "not its format");
        if (g.confidence <= best) {
            if (best && g.confidence == best)
                mn_log(MN_LOG_WARN, "%s: %.*s and %.*s both claim it; the first is used", m->path,
                       MN_STR_ARG((*out)->id), MN_STR_ARG(loaders[i].id));
            continue;
        }
        best = g.confidence;
        *out = &loaders[i];
        mn_free(m->format);
        m->format = mn_strndup(g.format, strlen(g.format));
    }
    mn_status st = MN_OK;
    if (!n)
        st = mn_fail(err, MN_UNSUPPORTED, "%s: no loader plugin is installed (see `minerva plugins`)", m->path);
    else if (!*out)
        st = mn_fail(err, MN_BAD_FILE, "%s: not a model of a known format (%s)", m->path, said.ptr ? said.ptr : "");
    else if (!m->format)
        st = mn_fail_memory(err, 32);
    mn_text_free(&said);
    return st;
}

static mn_status read_meta(mn_canonical *m, mn_error *err) {
    size_t cap = 0;
    for (uint32_t i = 0;; i++) {
        mn_meta_entry e = {.value = {.size = sizeof(mn_value)}};
        mn_status st = m->loader->meta_at(m->parsed, i, &e.key, &e.native, &e.value);
        if (st == MN_END) return MN_OK;
        if (st || i >= MAX_META) return mn_fail(err, MN_BAD_FILE, "%s: metadata entry %u cannot be read", m->path, i);
        if (!mn_grow((void **)&m->meta.entries, &cap, i + 1u, sizeof e))
            return mn_fail_memory(err, (i + 1u) * sizeof e);
        m->meta.entries[m->meta.n++] = e;
    }
}

/* The file that holds [ptr, ptr + bytes), or NULL. */
static const mn_file *file_of(const mn_canonical *m, const uint8_t *ptr, uint64_t bytes) {
    for (uint32_t i = 0; i < m->files.n; i++) {
        const uint8_t *lo = m->files.files[i].map;
        uint64_t n = m->files.files[i].bytes;
        if (ptr >= lo && ptr <= lo + n && bytes <= n - (uint64_t)(ptr - lo)) return &m->files.files[i];
    }
    return NULL;
}

/* Bytes from the plane's start to the end of its last block, by its own strides; false = overflow or negative stride. */
static bool plane_extent(const mn_plane *p, uint32_t n_dim, mn_dtype t, uint64_t *out) {
    uint64_t end = t.block_bytes;
    for (uint32_t d = 0; d < n_dim; d++) {
        uint64_t steps = (uint64_t)p->dim[d], span;
        if (p->dim[d] <= 0 || p->stride[d] < 0) return false;
        if (d + 1 == n_dim) {
            if (steps % t.block_elems) return false;
            steps /= t.block_elems;
        }
        if (!mn_mul_u64(steps - 1, (uint64_t)p->stride[d], &span) || !mn_add_u64(end, span, &end)) return false;
    }
    *out = end;
    return true;
}

static mn_status check_tensor(const mn_canonical *m, mn_model_tensor_entry *e, mn_error *err) {
    const mn_tensor_info *t = &e->info;
    e->n_elements = 1;
    e->bytes = 0;
    if (!t->n_dim || t->n_dim > MN_MAX_DIM || !t->n_parts || !t->n_planes || !t->planes ||
        (uint64_t)t->n_parts * t->n_planes > MAX_PLANES || t->plane_stride < MN_UP_TO(mn_plane, stride))
        return mn_fail(err, MN_BAD_FILE, "%s: tensor %.*s: the loader's description is incomplete", m->path,
                       MN_STR_ARG(t->name));
    for (uint32_t d = 0; d < t->n_dim; d++)
        if (t->dim[d] <= 0 || !mn_mul_u64(e->n_elements, (uint64_t)t->dim[d], &e->n_elements) ||
            e->n_elements > INT64_MAX / 16)
            return mn_fail(err, MN_BAD_FILE, "%s: tensor %.*s: dimension %u is %lld", m->path, MN_STR_ARG(t->native), d,
                           (long long)t->dim[d]);
    for (uint32_t i = 0; i < t->n_parts * t->n_planes; i++) {
        const mn_plane *p = (const mn_plane *)((const uint8_t *)t->planes + (size_t)i * t->plane_stride);
        mn_dtype dt;
        uint64_t extent;
        if (!mn_dtype_by_id(p->dtype, &dt) || !plane_extent(p, t->n_dim, dt, &extent) || extent > p->bytes ||
            !file_of(m, p->ptr, p->bytes))
            return mn_fail(err, MN_BAD_FILE, "%s: tensor %.*s does not lie inside its file", m->path,
                           MN_STR_ARG(t->native));
        e->bytes += p->bytes;
    }
    return MN_OK;
}

static mn_status read_tensors(mn_canonical *m, mn_error *err) {
    size_t cap = 0;
    for (uint32_t i = 0;; i++) {
        mn_model_tensor_entry e = {.info = {.size = sizeof(mn_tensor_info)}};
        mn_status st = m->loader->tensor_at(m->parsed, i, &e.info);
        if (st == MN_END) return MN_OK;
        if (st || i >= MAX_TENSORS) return mn_fail(err, MN_BAD_FILE, "%s: tensor %u cannot be read", m->path, i);
        if ((st = check_tensor(m, &e, err))) return st;
        if (!mn_grow((void **)&m->tensors, &cap, i + 1u, sizeof e)) return mn_fail_memory(err, (i + 1u) * sizeof e);
        m->tensors[m->n_tensors++] = e;
        m->n_params += e.n_elements;
        m->n_bytes += e.bytes;
    }
}

static int compare(mn_str a, mn_str b) {
    size_t n = MN_MIN(a.len, b.len);
    int c = n ? memcmp(a.ptr, b.ptr, n) : 0;
    return c ? c : (a.len > b.len) - (a.len < b.len);
}

static int by_name(const void *a, const void *b, void *arg) {
    const mn_model_tensor_entry *t = arg;
    return compare(t[*(const uint32_t *)a].info.name, t[*(const uint32_t *)b].info.name);
}

static mn_status sort_names(mn_canonical *m, mn_error *err) {
    m->by_name = mn_alloc(m->n_tensors, sizeof *m->by_name);
    if (!m->by_name) return mn_fail_memory(err, m->n_tensors * sizeof *m->by_name);
    for (size_t i = 0; i < m->n_tensors; i++) m->by_name[i] = (uint32_t)i;
    qsort_r(m->by_name, m->n_tensors, sizeof *m->by_name, by_name, m->tensors);
    for (size_t i = 1; i < m->n_tensors; i++) {
        const mn_tensor_info *a = &m->tensors[m->by_name[i - 1]].info, *b = &m->tensors[m->by_name[i]].info;
        if (mn_str_eq(a->name, b->name))
            return mn_fail(err, MN_BAD_FILE, "%s: tensors %.*s and %.*s are both %.*s", m->path, MN_STR_ARG(a->native),
                           MN_STR_ARG(b->native), MN_STR_ARG(a->name));
    }
    return MN_OK;
}

const mn_model_tensor_entry *mn_canonical_tensor(const mn_canonical *m, const char *name) {
    mn_str key = mn_str_of(name);
    size_t lo = 0, hi = m->n_tensors;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int c = compare(m->tensors[m->by_name[mid]].info.name, key);
        if (!c) return &m->tensors[m->by_name[mid]];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

mn_status mn_canonical_open(const char *path, const mn_loader_ref *loaders, uint32_t n_loaders, mn_canonical **out,
                            mn_error *err) {
    const mn_loader_ref *ref = NULL;
    mn_canonical *m = mn_calloc(1, sizeof *m);
    if (!m) return mn_fail_memory(err, sizeof *m);
    mn_status st = (m->path = mn_strndup(path, strlen(path))) ? MN_OK : mn_fail_memory(err, strlen(path));
    if (!st) st = mn_file_set_open(path, &m->files, err);
    if (!st) st = choose_loader(m, loaders, n_loaders, &ref, err);
    if (!st) {
        m->loader = ref->loader;
        st = m->loader->open(ref->self, m->files.files, m->files.n, sizeof(mn_file), &m->parsed, err);
        if (st) mn_fail_in(err, st, "%s", path);
    }
    if (!st) st = read_meta(m, err);
    if (!st) st = read_tensors(m, err);
    if (!st) st = sort_names(m, err);
    if (st)
        mn_canonical_close(m);
    else
        *out = m;
    return st;
}

void mn_canonical_close(mn_canonical *m) {
    if (!m) return;
    if (m->parsed) m->loader->close(m->parsed);
    mn_file_set_close(&m->files);
    mn_free(m->meta.entries);
    mn_free(m->tensors);
    mn_free(m->by_name);
    mn_free(m->format);
    mn_free(m->path);
    mn_free(m);
}
