/* canonical.c -- a path to a checked model: which loader, what it says, and whether every plane
 * lies inside its file.
 *
 * An mn_canonical owns the maps of its files and what the loader made of them; names, metadata and
 * planes point into either and are valid until mn_canonical_close. It is checked once, here:
 * whoever reads it afterwards believes it. Read-only once it is open, for any thread. */
#include "model/model.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_TENSORS = 1 << 20, MAX_META = 1 << 20, MAX_PLANES = 1 << 20 };

typedef struct {
    const mn_loader_ref *ref;
    uint32_t confidence;
    char format[sizeof(((mn_guess *)0)->format)];
} claim;

/* One loader's answer, made plain text. */
static mn_status canonical_guess(const mn_canonical *m, const mn_loader_ref *l, mn_guess *g) {
    mn_status st = MN_OK;
    *g = (mn_guess){.size = sizeof *g};
    MN_WATCHED(l->callee, "guess",
               st = l->loader->guess(l->self, m->given, m->files.n, sizeof(mn_file), g));
    mn_plain_array(g->format, sizeof g->format);
    mn_plain_array(g->why, sizeof g->why);
    return st;
}

/* Adds a claim: the most confident first, earlier loaders first among equals. */
static void add_claim(claim *claims, uint32_t *n, const mn_loader_ref *ref, const mn_guess *g) {
    uint32_t at = (*n)++;
    for (; at && claims[at - 1].confidence < g->confidence; at--)
        claims[at] = claims[at - 1];
    claims[at] = (claim){
        .ref = ref,
        .confidence = g->confidence,
    };
    memcpy(claims[at].format, g->format, sizeof g->format);
}

/* Asks every loader. claims: room for n. */
static mn_status ask_loaders(const mn_canonical *m, const mn_loader_ref *loaders, uint32_t n,
                             claim *claims, uint32_t *n_claims, mn_error *err) {
    mn_text said = {0};
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < n && !st; i++) {
        mn_guess g;
        const mn_status guessed = canonical_guess(m, &loaders[i], &g);
        if (guessed == MN_OUT_OF_MEMORY)
            st = mn_fail_memory(err, 0);
        if (guessed)
            continue;
        mn_text_printf(&said, "%s%.*s: %s", said.len ? "; " : "", MN_STR_ARG(loaders[i].id),
                       g.why[0] ? g.why : "not its format");
        if (g.confidence)
            add_claim(claims, n_claims, &loaders[i], &g);
    }
    if (st)
        *n_claims = 0;
    else if (!*n_claims)
        st = mn_fail(err, MN_BAD_FILE, "%s: not a model of a known format (%s)", m->path,
                     said.ptr ? said.ptr : "");
    else if (*n_claims > 1 && claims[0].confidence == claims[1].confidence)
        mn_log(MN_LOG_WARN, "%s: %.*s and %.*s both claim it; the first is tried first", m->path,
               MN_STR_ARG(claims[0].ref->id), MN_STR_ARG(claims[1].ref->id));
    mn_text_free(&said);
    return st;
}

/* All entries, in the loader's order; a key may be there twice: the first counts. */
static mn_status canonical_read_meta(mn_canonical *m, mn_error *err) {
    size_t cap = 0;
    for (uint32_t i = 0;; i++) {
        mn_meta_entry e = {.value = {.size = sizeof(mn_value)}};
        mn_status st = MN_OK;
        MN_WATCHED(m->callee, "meta_at",
                   st = m->loader->meta_at(m->parsed, i, &e.key, &e.native, &e.value));
        if (st == MN_END)
            return MN_OK;
        if (st || i >= MAX_META)
            return mn_fail(err, MN_BAD_FILE, "%s: metadata entry %u cannot be read", m->path, i);
        if (!mn_grow((void **)&m->meta.entries, &cap, i + 1u, sizeof e))
            return mn_fail_memory(err, (i + 1u) * sizeof e);
        m->meta.entries[m->meta.n++] = e;
    }
}

/* Marks the file that holds [ptr, ptr + bytes); false = none does. */
static bool mark_file(const mn_canonical *m, const uint8_t *ptr, uint64_t bytes) {
    for (uint32_t i = 0; i < m->files.n; i++) {
        const uint8_t *lo = m->files.files[i].map;
        const uint64_t n = m->files.files[i].bytes;
        if (ptr < lo || ptr > lo + n || bytes > n - (uint64_t)(ptr - lo))
            continue;
        m->files.has_weights[i] = true;
        return true;
    }
    return false;
}

/* Bytes from the plane's start to the end of its last block, by its own strides; false = overflow
 * or negative stride. */
static bool plane_extent(const mn_plane *p, uint32_t n_dim, mn_dtype t, uint64_t *out) {
    uint64_t end = t.block_bytes;
    for (uint32_t d = 0; d < n_dim; d++) {
        const bool last = d + 1 == n_dim;
        uint64_t per_step = 1;
        if (last)
            per_step = t.block_elems;
        const uint64_t n = (uint64_t)p->dim[d];
        uint64_t span;
        if (p->dim[d] <= 0 || p->stride[d] < 0 || n % per_step)
            return false;
        if (!mn_mul_u64(n / per_step - 1, (uint64_t)p->stride[d], &span))
            return false;
        if (!mn_add_u64(end, span, &end))
            return false;
    }
    *out = end;
    return true;
}

/* Whether what the loader gave is a description at all, before any of it is believed. */
static bool canonical_is_complete(const mn_tensor_info *t) {
    const uint64_t n = (uint64_t)t->n_parts * t->n_planes;
    if (!t->n_dim || t->n_dim > MN_MAX_DIM || !t->planes || !n || n > MAX_PLANES)
        return false;
    return t->plane_stride >= MN_UP_TO(mn_plane, stride);
}

/* Bounded far below what 64 bits hold, so that sizes in bytes cannot overflow later. */
static mn_status canonical_count_elements(const mn_canonical *m, mn_model_tensor_entry *e,
                                          mn_error *err) {
    const mn_tensor_info *t = &e->info;
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->n_dim; d++) {
        const int64_t dim = t->dim[d];
        if (dim <= 0 || !mn_mul_u64(n, (uint64_t)dim, &n) || n > INT64_MAX / 16)
            return mn_fail(err, MN_BAD_FILE, "%s: tensor %.*s: dimension %u is %lld", m->path,
                           MN_STR_ARG(t->native), d, (long long)dim);
    }
    e->n_elements = n;
    return MN_OK;
}

/* Whether the plane's blocks are within its bytes, and these in one file; or in one block of the
 * loader's memory, where it has put what the format stores in another order. */
static bool lies_in_file(const mn_canonical *m, const mn_plane *p, uint32_t n_dim) {
    mn_dtype t;
    uint64_t extent;
    if (!mn_vendor_dtype(m->types, p->dtype, &t) || !plane_extent(p, n_dim, t, &extent))
        return false;
    if (extent > p->bytes)
        return false;
    return mark_file(m, p->ptr, p->bytes) || mn_ledger_holds(m->memory, p->ptr, p->bytes);
}

/* Whether the parts of a vector, which the host gathers, are its elements and of its type. Parts of
 * matrices go to plugins, which check them. */
static bool parts_are_vector(const mn_tensor_info *t) {
    int64_t n = 0;
    if (t->n_dim != 1 || t->n_parts == 1)
        return true;
    for (uint32_t i = 0; i < t->n_parts; i++) {
        const mn_plane *part = mn_tensor_plane(t, i, 0);
        if (part->dtype != t->dtype.id || part->dim[0] > t->dim[0] - n)
            return false;
        n += part->dim[0];
    }
    return n == t->dim[0];
}

/* Whether the parts are the tensor, which the host unpacks by its own dims. */
static bool parts_are_tensor(const mn_tensor_info *t) {
    int64_t n = 0;
    for (uint32_t i = 0; i < t->n_parts; i++) {
        const mn_plane *part = mn_tensor_plane(t, i, 0);
        if (part->dtype != t->dtype.id || part->dim[0] < 1 || part->dim[0] > t->dim[0] - n)
            return false;
        for (uint32_t d = 1; d < t->n_dim; d++)
            if (part->dim[d] != t->dim[d])
                return false;
        n += part->dim[0];
    }
    return n == t->dim[0];
}

/* Whether a type of a vendor is one of the loader's list, with its numbers. */
static bool is_listed(const mn_canonical *m, const mn_tensor_info *t) {
    const mn_vendor_type *own = mn_vendor_type_of(m->types, t->dtype.id);
    if (!mn_is_vendor_type(t->dtype.id))
        return true;
    return own && !memcmp(&own->type.dtype, &t->dtype, sizeof t->dtype) &&
           t->n_planes == t->dtype.n_planes && parts_are_tensor(t);
}

/* Fills n_elements and bytes of e, whose info the loader has given. */
static mn_status check_tensor(const mn_canonical *m, mn_model_tensor_entry *e, mn_error *err) {
    const mn_tensor_info *t = &e->info;
    if (!canonical_is_complete(t))
        return mn_fail(err, MN_BAD_FILE, "%s: tensor %.*s: the loader's description is incomplete",
                       m->path, MN_STR_ARG(t->name));
    if (!is_listed(m, t))
        return mn_fail(err, MN_BAD_FILE,
                       "%s: tensor %.*s: its type %u is not as the loader's list of types says",
                       m->path, MN_STR_ARG(t->native), t->dtype.id);
    mn_status st = canonical_count_elements(m, e, err);
    if (st)
        return st;
    for (uint32_t i = 0; i < t->n_parts * t->n_planes; i++) {
        const mn_plane *p = mn_tensor_plane(t, 0, i);
        if (!lies_in_file(m, p, t->n_dim))
            return mn_fail(err, MN_BAD_FILE, "%s: tensor %.*s does not lie inside its file",
                           m->path, MN_STR_ARG(t->native));
        e->bytes += p->bytes;
    }
    if (!parts_are_vector(t))
        return mn_fail(err, MN_BAD_FILE,
                       "%s: tensor %.*s: its parts are not %lld elements of %s in all", m->path,
                       MN_STR_ARG(t->native), (long long)t->dim[0], mn_dtype_name(t->dtype.id));
    return MN_OK;
}

/* The planes of all tensors where no plugin can write: backends import by them, whoever opened the
 * model. */
static mn_status seal_planes(mn_canonical *m, mn_error *err) {
    size_t n = 0;
    for (size_t i = 0; i < m->n_tensors; i++)
        n += (size_t)m->tensors[i].info.n_parts * m->tensors[i].info.n_planes;
    mn_sealed *pages = mn_sealed_open(mn_sealed_room(n, sizeof(mn_plane)));
    mn_plane *to = pages ? mn_sealed_take(pages, n, sizeof *to) : NULL;
    for (size_t i = 0; i < m->n_tensors && to; i++) {
        mn_tensor_info *t = &m->tensors[i].info;
        const uint32_t count = t->n_parts * t->n_planes;
        for (uint32_t k = 0; k < count; k++)
            to[k] = *mn_tensor_plane(t, 0, k);
        t->planes = to;
        t->plane_stride = sizeof *to;
        to += count;
    }
    if (!pages || !mn_sealed_close(pages))
        return mn_fail_memory(err, n * sizeof *to);
    m->plane_pages = pages;
    return MN_OK;
}

/* All tensors, each checked. */
static mn_status canonical_read_tensors(mn_canonical *m, mn_error *err) {
    size_t cap = 0;
    for (uint32_t i = 0;; i++) {
        mn_model_tensor_entry e = {.info = {.size = sizeof(mn_tensor_info)}};
        mn_status st = MN_OK;
        MN_WATCHED(m->callee, "tensor_at", st = m->loader->tensor_at(m->parsed, i, &e.info));
        if (st == MN_END)
            return MN_OK;
        if (st || i >= MAX_TENSORS)
            return mn_fail(err, MN_BAD_FILE, "%s: tensor %u cannot be read", m->path, i);
        st = check_tensor(m, &e, err);
        if (st)
            return st;
        if (!mn_grow((void **)&m->tensors, &cap, i + 1u, sizeof e))
            return mn_fail_memory(err, (i + 1u) * sizeof e);
        m->tensors[m->n_tensors++] = e;
        m->n_params += e.n_elements;
        m->n_bytes += e.bytes;
    }
}

static int canonical_compare(mn_str a, mn_str b) {
    const size_t n = MN_MIN(a.len, b.len);
    int c = 0;
    if (n)
        c = memcmp(a.ptr, b.ptr, n);
    if (c)
        return c;
    return (a.len > b.len) - (a.len < b.len);
}

static int canonical_by_name(const void *a, const void *b, void *arg) {
    const mn_model_tensor_entry *t = arg;
    const uint32_t *i = a;
    const uint32_t *k = b;
    return canonical_compare(t[*i].info.name, t[*k].info.name);
}

/* An index by name; two tensors of one name are an error. */
static mn_status sort_names(mn_canonical *m, mn_error *err) {
    m->by_name = mn_alloc(m->n_tensors, sizeof *m->by_name);
    if (!m->by_name)
        return mn_fail_memory(err, m->n_tensors * sizeof *m->by_name);
    for (size_t i = 0; i < m->n_tensors; i++)
        m->by_name[i] = (uint32_t)i;
    qsort_r(m->by_name, m->n_tensors, sizeof *m->by_name, canonical_by_name, m->tensors);
    for (size_t i = 1; i < m->n_tensors; i++) {
        const mn_tensor_info *a = &m->tensors[m->by_name[i - 1]].info;
        const mn_tensor_info *b = &m->tensors[m->by_name[i]].info;
        if (mn_str_eq(a->name, b->name))
            return mn_fail(err, MN_BAD_FILE, "%s: tensors %.*s and %.*s are both %.*s", m->path,
                           MN_STR_ARG(a->native), MN_STR_ARG(b->native), MN_STR_ARG(a->name));
    }
    return MN_OK;
}

const mn_model_tensor_entry *mn_canonical_tensor(const mn_canonical *m, const char *name) {
    mn_str key = mn_str_of(name);
    size_t lo = 0;
    size_t hi = m->n_tensors;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        const mn_model_tensor_entry *e = &m->tensors[m->by_name[mid]];
        const int c = canonical_compare(e->info.name, key);
        if (!c)
            return e;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* What a loader made of the files, forgotten. */
static void canonical_forget(mn_canonical *m) {
    mn_canonical_orders_free(m);
    if (m->parsed)
        MN_WATCHED(m->callee, "close", m->loader->close(m->parsed));
    mn_free(m->meta.entries);
    mn_free(m->tensors);
    mn_free(m->by_name);
    mn_free(m->format);
    mn_sealed_free(m->plane_pages);
    m->plane_pages = NULL;
    m->parsed = NULL;
    m->tensors = NULL;
    m->by_name = NULL;
    m->format = NULL;
    m->loader = NULL;
    m->types = NULL;
    m->meta.entries = NULL;
    m->meta.n = 0;
    m->n_tensors = 0;
    m->n_params = 0;
    m->n_bytes = 0;
}

/* Removes the file's name from the front of a loader's message where the path ends in it, too: the
 * path is put in front of the message. */
static void drop_name(const char *path, mn_error *err) {
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const size_t n = strlen(name);
    if (!n || strncmp(err->msg, name, n) || strncmp(err->msg + n, ": ", 2))
        return;
    memmove(err->msg, err->msg + n + 2, strlen(err->msg + n + 2) + 1);
}

/* What a file is that was downloaded in place of a model's, by its first bytes. */
static const struct {
    const char *begin;
    const char *what;
} no_models[] = {
    {"version https://git-lfs", "a Git LFS pointer in place of the file (git lfs pull fetches it)"},
    {"<!DOCTYPE", "a web page in place of the file"},
    {"<!doctype", "a web page in place of the file"},
    {"<html", "a web page in place of the file"},
};

/* The error of a loader, with the path in front; a file that is no model's at all is named. */
static mn_status fail_open(const mn_canonical *m, mn_status st, mn_error *err) {
    for (uint32_t i = 0; i < m->files.n; i++) {
        const mn_file *f = &m->files.files[i];
        for (size_t k = 0; k < MN_COUNT(no_models); k++) {
            const size_t n = strlen(no_models[k].begin);
            if (f->bytes < n || memcmp(f->map, no_models[k].begin, n))
                continue;
            mn_fail(err, st, "%.*s: %s", MN_STR_ARG(f->name), no_models[k].what);
        }
    }
    drop_name(m->path, err);
    return mn_fail_in(err, st, "%s", m->path);
}

/* The model as this loader reads it; on a failure `forget` clears up. err: not NULL. */
static mn_status open_as(mn_canonical *m, const claim *c, mn_error *err) {
    m->loader = c->ref->loader;
    m->callee = c->ref->callee;
    m->memory = c->ref->memory;
    m->types = c->ref->types;
    m->format = mn_strndup(c->format, strlen(c->format));
    if (!m->format)
        return mn_fail_memory(err, sizeof c->format);
    mn_status st = MN_OK;
    MN_WATCHED(
        m->callee, "open",
        st = m->loader->open(c->ref->self, m->given, m->files.n, sizeof(mn_file), &m->parsed, err));
    if (st)
        return fail_open(m, st, err);
    if (!m->parsed)
        return mn_fail(err, MN_BAD_FILE, "%s: its loader gave no model", m->path);
    st = canonical_read_meta(m, err);
    if (!st)
        st = canonical_read_tensors(m, err);
    if (!st)
        st = seal_planes(m, err);
    if (st)
        return st;
    return sort_names(m, err);
}

/* A loader that claims a model and then cannot read it is not the last word: the next one tries.
 * Memory and such are. */
static mn_status open_claims(mn_canonical *m, const claim *claims, uint32_t n, mn_error *err) {
    mn_text said = {0};
    mn_status first = MN_OK;
    for (uint32_t i = 0; i < n; i++) {
        mn_error why = MN_ERROR_INIT;
        mn_status st = open_as(m, &claims[i], &why);
        const uint32_t klass = MN_STATUS_CLASS(st);
        const bool final = klass != MN_CLASS_INPUT && klass != MN_CLASS_REFUSE;
        if (!st && said.len)
            mn_log(MN_LOG_WARN, "%.*s opened %s; before it %s", MN_STR_ARG(claims[i].ref->id),
                   m->path, said.ptr);
        if (final || n == 1) {
            mn_text_free(&said);
            if (st)
                return mn_fail(err, st, "%s", why.msg);
            return MN_OK;
        }
        canonical_forget(m);
        if (!first)
            first = st;
        mn_text_printf(&said, "%s%.*s: %s", said.len ? "; " : "", MN_STR_ARG(claims[i].ref->id),
                       why.msg);
    }
    first = mn_fail(err, first, "%s", said.ptr ? said.ptr : "no loader could open it");
    mn_text_free(&said);
    return first;
}

mn_status mn_canonical_settle(const mn_canonical *m, bool look, mn_status st, mn_error *err) {
    for (uint32_t i = 0; i < m->files.n; i++) {
        mn_status changed = mn_map_changed(&m->files.maps[i], look && m->files.has_weights[i], err);
        if (changed)
            return changed;
    }
    return st;
}

static mn_status give_files(mn_canonical *m, mn_error *err) {
    m->given = mn_given_files(m->files.files, m->files.n, &m->file_pages);
    return m->given ? MN_OK : mn_fail_memory(err, m->files.n * sizeof *m->given);
}

mn_status mn_canonical_open(const char *path, uint32_t flags, const mn_loader_ref *loaders,
                            uint32_t n_loaders, mn_canonical **out, mn_error *err) {
    claim *claims;
    uint32_t n = 0;
    mn_canonical *m = mn_calloc(1, sizeof *m);
    if (!m)
        return mn_fail_memory(err, sizeof *m);
    m->path = mn_strndup(path, strlen(path));
    claims = mn_calloc(n_loaders + 1u, sizeof *claims);
    mn_status st = MN_OK;
    if (!m->path || !claims)
        st = mn_fail_memory(err, (n_loaders + 1u) * sizeof *claims);
    if (!st)
        st = mn_file_set_open(path, flags, loaders, n_loaders, &m->files, err);
    if (!st)
        st = give_files(m, err);
    if (!st)
        st = ask_loaders(m, loaders, n_loaders, claims, &n, err);
    if (!st)
        st = open_claims(m, claims, n, err);
    st = mn_canonical_settle(m, true, st, err);
    mn_free(claims);
    if (st)
        mn_canonical_close(m);
    else
        *out = m;
    return st;
}

void mn_canonical_close(mn_canonical *m) {
    if (!m)
        return;
    canonical_forget(m);
    mn_sealed_free(m->file_pages);
    mn_file_set_close(&m->files);
    mn_free(m->path);
    mn_free(m);
}
