/* loader_parse.c -- one parse from open to close, with everything that is handed out looked at. */
#include "loader.h"
#include "case.h"
#include <stdlib.h>
#include <string.h>

#define MOST_ENTRIES (1u << 20) /* more than any file of ours can hold */

/* ---- the host: what asks for too much believed a number of the file -------------------------- */
static void *(*host_alloc)(void *self, uint64_t bytes, uint64_t align);
static uint64_t too_much;
static void *limited_alloc(void *self, uint64_t bytes, uint64_t align) {
    if (bytes <= LOADER_MOST_BYTES)
        return host_alloc(self, bytes, align);
    too_much = bytes;
    return NULL;
}

static bool claims_and_opens(loader *l) {
    mapped_files m;
    mn_parsed *p = NULL;
    bool good = mapped_make(&m, &l->model, MAP_BEGIN) && loader_guess(l, &m) > 0;
    check_doing(l->c, "open of a small %s model ran", l->model.format);
    if (good)
        good = l->plugin.ld->open(l->plugin.api->self, m.views, m.n, sizeof(mn_file), &p, NULL) ==
                   MN_OK &&
               p;
    if (good)
        l->plugin.ld->close(p);
    mapped_free(&m);
    return good;
}

int loader_open(check *c, loader *l) {
    memset(l, 0, sizeof *l);
    l->c = c;
    check_host_init(&l->host);
    host_alloc = l->host.api.alloc, l->host.api.alloc = limited_alloc;
    if (!check_open(c, &l->plugin, &l->host))
        return 0;
    if (!l->plugin.ld) {
        check_fail(c, "query(\"" MN_LOADER_ID "\"): found NULL, expected a table");
        return 0;
    }
    if (!patterns_read(c, &l->plugin, &l->patterns))
        return 0;
    if (c->model) {
        const char *wrong = model_read(&l->model, c->model, &l->patterns);
        if (wrong)
            check_skip(c, "--model %s: %s", c->model, wrong);
        return !wrong;
    }
    for (uint32_t i = 0; i < LOADER_MODELS && !check_over(c); i++) {
        model_make(&l->model, i);
        if (!l->model.failed && claims_and_opens(l))
            return 1;
        model_free(&l->model);
    }
    check_skip(c, "a format of its own: give a small model of it by --model PATH");
    return 0;
}

void loader_close(loader *l) {
    model_free(&l->model);
    check_close(l->c, &l->plugin);
}

int loader_guess(loader *l, const mapped_files *m) {
    mn_guess g = {.size = sizeof g};
    check_doing(l->c, "guess on %s ran", l->model.format ? l->model.format : "files");
    mn_status s = l->plugin.ld->guess(l->plugin.api->self, m->views, m->n, sizeof(mn_file), &g);
    if (s) {
        check_fail(l->c, "guess on %s: found status 0x%x, expected MN_OK and a confidence",
                   l->model.format, (unsigned)s);
        return -1;
    }
    if (g.confidence > 100 || g.size < offsetof(mn_guess, format) ||
        !memchr(g.format, 0, sizeof g.format) || !memchr(g.why, 0, sizeof g.why)) {
        check_fail(
            l->c, "guess on %s: found confidence %u, size %u, expected 0..100 and strings that end",
            l->model.format, g.confidence, g.size);
        return -1;
    }
    return (int)g.confidence;
}

/* ---- what is handed out ---------------------------------------------------------------------- */
static void mix(uint64_t *h, const void *p, uint64_t n) { /* FNV-1a; reads every byte */
    for (uint64_t i = 0; i < n; i++)
        *h = (*h ^ ((const uint8_t *)p)[i]) * UINT64_C(0x100000001b3);
}
static void mix_str(uint64_t *h, mn_str s) {
    mix(h, &s.len, sizeof s.len);
    if (s.len)
        mix(h, s.ptr, s.len);
}

static bool mix_value(uint64_t *h, const mn_value *v) {
    uint32_t of = v->type & ~MN_VALUE_ARRAY;
    mix(h, &v->type, sizeof v->type);
    if (of < MN_VALUE_INT || of > MN_VALUE_STR || (v->type & ~(MN_VALUE_ARRAY | 7u)))
        return false;
    if (v->type & MN_VALUE_ARRAY) {
        static const uint64_t size[] = {0, 8, 8, 1};
        mix(h, &v->n, sizeof v->n);
        if (v->n && !v->array)
            return false;
        if (of == MN_VALUE_STR)
            for (uint64_t i = 0; i < v->n; i++)
                mix_str(h, ((const mn_str *)v->array)[i]);
        else
            mix(h, v->array, v->n * size[of]);
        return true;
    }
    if (of == MN_VALUE_STR)
        mix_str(h, v->s);
    else
        mix(h, of == MN_VALUE_FLOAT ? (const void *)&v->f : (const void *)&v->i, 8);
    return of != MN_VALUE_BOOL || v->i == 0 || v->i == 1;
}

static const mn_file *file_of(const mapped_files *m, const void *ptr, uint64_t bytes) {
    for (uint32_t i = 0; i < m->n; i++) {
        const uint8_t *lo = m->views[i].map, *p = ptr;
        uint64_t n = m->views[i].bytes;
        if (p >= lo && (uint64_t)(p - lo) <= n && bytes <= n - (uint64_t)(p - lo))
            return &m->views[i];
    }
    return NULL;
}

/* Bytes from the first to the last that the strides reach; false: broken dims or strides, or
 * overflow. */
static bool extent_of(const mn_plane *p, uint32_t n_dim, uint64_t *out) {
    mn_dtype t = case_dtype(p->dtype);
    uint64_t end = t.block_bytes, span;
    if (!t.id)
        return false;
    for (uint32_t d = 0; d < n_dim; d++) {
        uint64_t steps = (uint64_t)p->dim[d];
        if (p->dim[d] <= 0 || p->stride[d] < 0 || (d + 1 == n_dim && steps % t.block_elems))
            return false;
        if (d + 1 == n_dim)
            steps /= t.block_elems;
        if (__builtin_mul_overflow(steps - 1, (uint64_t)p->stride[d], &span) ||
            __builtin_add_overflow(end, span, &end))
            return false;
    }
    *out = end;
    return true;
}

static const mn_plane *plane_at(const mn_tensor_info *t, uint64_t i) {
    return (const mn_plane *)((const char *)t->planes + i * t->plane_stride);
}

/* The phrase that says what is wrong with a tensor; NULL = nothing. */
static const char *tensor_fault(const mapped_files *m, const mn_tensor_info *t) {
    mn_dtype known = case_dtype(t->dtype.id);
    int64_t rows = 0;
    if (!t->name.len || !t->name.ptr || !t->native.len || !t->native.ptr)
        return "has no name";
    if (!t->n_dim || t->n_dim > MN_MAX_DIM || !t->n_parts || !t->n_planes ||
        t->n_planes > MN_PLANE_KINDS || !t->planes || t->plane_stride < sizeof(mn_plane))
        return "is described incompletely";
    if (!known.id || memcmp(&known, &t->dtype, sizeof known))
        return "has a type that plugin.h does not have";
    for (uint32_t d = 0; d < t->n_dim; d++)
        if (t->dim[d] <= 0)
            return "has a dimension below 1";
    for (uint64_t i = 0; i < (uint64_t)t->n_parts * t->n_planes; i++) {
        const mn_plane *p = plane_at(t, i);
        uint64_t extent;
        bool data = p->kind == MN_PLANE_DATA;
        if (p->kind < MN_PLANE_DATA || p->kind > MN_PLANE_KINDS)
            return "has a plane of an unknown kind";
        if (!extent_of(p, t->n_dim, &extent))
            return "has a plane whose dimensions or strides make no sense";
        if (extent > p->bytes)
            return "has a plane whose strides lead out of it";
        if (!file_of(m, p->ptr, p->bytes))
            return "has a plane outside of its file";
        if (!data)
            continue;
        if (p->dtype != t->dtype.id)
            return "has a data plane of another type";
        for (uint32_t d = 1; d < t->n_dim; d++)
            if (p->dim[d] != t->dim[d])
                return "has a data plane of another shape";
        if (__builtin_add_overflow(rows, p->dim[0], &rows))
            return "has parts without end";
    }
    return rows == t->dim[0] ? NULL : "has parts that do not add up to its first dimension";
}

static void mix_tensor(uint64_t *h, const mapped_files *m, const mn_tensor_info *t) {
    mix_str(h, t->name), mix_str(h, t->native);
    mix(h, t->dim, t->n_dim * sizeof *t->dim);
    for (uint64_t i = 0; i < (uint64_t)t->n_parts * t->n_planes; i++) {
        const mn_plane *p = plane_at(t, i);
        const mn_file *f = file_of(m, p->ptr, p->bytes);
        uint64_t words[4] = {(uint64_t)((const char *)p->ptr - (const char *)f->map), p->bytes,
                             p->kind, p->dtype};
        mix_str(h, f->name);
        mix(h, words, sizeof words);
        mix(h, p->dim, t->n_dim * sizeof *p->dim), mix(h, p->stride, t->n_dim * sizeof *p->stride);
    }
}

/* Dense planes [ptr, bytes) in order; strided ones may lie between each other. */
typedef struct {
    const uint8_t *lo;
    uint64_t n;
    mn_str name;
} span;
static int by_place(const void *a, const void *b) {
    const span *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}
static const char *overlap(span *s, uint64_t n) {
    qsort(s, n, sizeof *s, by_place);
    for (uint64_t i = 1; i < n; i++)
        if (s[i].lo < s[i - 1].lo + s[i - 1].n)
            return "shares bytes with another one";
    return NULL;
}

static bool read_tensors(loader *l, const mapped_files *m, mn_parsed *p, const char *what,
                         uint64_t *h) {
    span *spans = NULL;
    uint64_t n = 0;
    const char *fault = NULL;
    mn_tensor_info t = {.size = sizeof t};
    for (uint32_t i = 0; !fault; i++, t = (mn_tensor_info){.size = sizeof t}) {
        mn_status s = l->plugin.ld->tensor_at(p, i, &t);
        if (s == MN_END)
            break;
        fault = s || i == MOST_ENTRIES ? "cannot be read, or there is no end of them"
                                       : tensor_fault(m, &t);
        if (fault)
            break;
        mix_tensor(h, m, &t);
        for (uint64_t k = 0; k < (uint64_t)t.n_parts * t.n_planes; k++) {
            const mn_plane *pl = plane_at(&t, k);
            uint64_t extent = 0, blocks = 1;
            extent_of(pl, t.n_dim, &extent);
            for (uint32_t d = 0; d < t.n_dim; d++)
                blocks *= (uint64_t)pl->dim[d] /
                          (d + 1 == t.n_dim ? case_dtype(pl->dtype).block_elems : 1);
            if (extent != blocks * case_dtype(pl->dtype).block_bytes)
                continue;
            span *more = realloc(spans, (n + 1) * sizeof *spans);
            if (!more)
                break;
            spans = more, spans[n++] = (span){pl->ptr, extent, t.name};
        }
    }
    if (!fault && n)
        fault = overlap(spans, n);
    if (fault)
        check_fail(l->c, "%s: tensor '%.*s' %s", what, (int)(t.name.len > 80 ? 80 : t.name.len),
                   t.name.ptr ? t.name.ptr : "", fault);
    free(spans);
    return !fault;
}

static bool read_meta(loader *l, mn_parsed *p, const char *what, uint64_t *h) {
    for (uint32_t i = 0;; i++) {
        mn_str key = {NULL, 0}, native = {NULL, 0};
        mn_value v = {.size = sizeof v};
        mn_status s = l->plugin.ld->meta_at(p, i, &key, &native, &v);
        if (s == MN_END)
            return true;
        if (s || i == MOST_ENTRIES || !key.len || !key.ptr || !mix_value(h, &v)) {
            check_fail(l->c,
                       "%s: metadata %u: found status 0x%x, type %u, a key of %llu bytes, expected "
                       "a key and a value",
                       what, i, (unsigned)s, v.type, (unsigned long long)key.len);
            return false;
        }
        mix_str(h, key), mix_str(h, native);
    }
}

static void check_refusal(loader *l, mn_status s, const mn_parsed *p, const mn_error *e,
                          const char *what) {
    uint32_t klass = MN_STATUS_CLASS(s);
    if (too_much)
        check_fail(l->c,
                   "%s: it asked the host for %llu bytes, expected no allocation by a number that "
                   "the file's size contradicts",
                   what, (unsigned long long)too_much);
    else if (klass != MN_CLASS_INPUT && klass != MN_CLASS_REFUSE &&
             atomic_load(&l->host.refused) == 0)
        check_fail(l->c,
                   "%s: open gave status 0x%x (%s), expected MN_OK, MN_BAD_FILE or MN_UNSUPPORTED",
                   what, (unsigned)s, e->msg);
    else if (!e->msg[0] || !memchr(e->msg, 0, sizeof e->msg) || e->status != s)
        check_fail(l->c,
                   "%s: open gave status 0x%x; the error says 0x%x and '%.100s', expected the same "
                   "and a sentence",
                   what, (unsigned)s, (unsigned)e->status, e->msg);
    else if (p)
        check_fail(l->c, "%s: open failed and gave a model all the same", what);
}

mn_status loader_parse(loader *l, const mapped_files *m, const char *what, uint64_t *digest) {
    long long live = atomic_load(&l->host.live);
    mn_error e = check_error();
    mn_parsed *p = NULL;
    uint64_t h[2] = {UINT64_C(0xcbf29ce484222325), UINT64_C(0xcbf29ce484222325)};
    too_much = 0;
    check_doing(l->c, "open of %s ran", what);
    mn_status s = l->plugin.ld->open(l->plugin.api->self, m->views, m->n, sizeof(mn_file), &p, &e);
    if (s)
        check_refusal(l, s, p, &e, what);
    else if (!p)
        check_fail(l->c, "%s: open gave MN_OK and no model", what);
    for (int i = 0; i < 2 && !s && p && !check_over(l->c); i++) {
        check_doing(l->c, "meta_at and tensor_at of %s ran", what);
        if (read_meta(l, p, what, &h[i]))
            read_tensors(l, m, p, what, &h[i]);
    }
    if (!s && !check_over(l->c) && h[0] != h[1])
        check_fail(l->c, "%s: one parse gives two answers to the same questions", what);
    check_doing(l->c, "close of %s ran", what);
    if (p)
        l->plugin.ld->close(p);
    if (atomic_load(&l->host.live) != live)
        check_fail(l->c, "%s: open %s left %lld blocks of host->alloc behind, expected none", what,
                   s ? "failed and" : "and close", (long long)atomic_load(&l->host.live) - live);
    if (digest)
        *digest = h[0];
    return s;
}

uint64_t loader_digest(loader *l, const mapped_files *m) {
    return loader_digest_of(l, m, m->views, sizeof(mn_file));
}

uint64_t loader_digest_of(loader *l, const mapped_files *m, const void *files, uint32_t stride) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    mn_parsed *p = NULL;
    if (l->plugin.ld->open(l->plugin.api->self, files, m->n, stride, &p, NULL) || !p)
        return 0;
    bool good = read_meta(l, p, l->model.format, &h) && read_tensors(l, m, p, l->model.format, &h);
    l->plugin.ld->close(p);
    return good ? h : 0;
}

void loader_each_plane(loader *l, const mapped_files *m, loader_plane_fn fn, void *arg) {
    mn_parsed *p = NULL;
    mn_tensor_info t = {.size = sizeof t};
    if (l->plugin.ld->open(l->plugin.api->self, m->views, m->n, sizeof(mn_file), &p, NULL))
        return;
    for (uint32_t k = 0; !l->plugin.ld->tensor_at(p, k, &t);
         k++, t = (mn_tensor_info){.size = sizeof t})
        for (uint64_t j = 0; j < (uint64_t)t.n_parts * t.n_planes; j++) {
            const mn_file *f = file_of(m, plane_at(&t, j)->ptr, plane_at(&t, j)->bytes);
            if (f)
                fn(arg, (uint32_t)(f - m->views), plane_at(&t, j));
        }
    l->plugin.ld->close(p);
}

typedef struct {
    const mapped_files *m;
    uint32_t file;
    uint64_t least;
} first_plane;
static void earlier(void *arg, uint32_t file, const mn_plane *p) {
    first_plane *f = arg;
    uint64_t at = (uint64_t)((const char *)p->ptr - (const char *)f->m->views[file].map);
    if (file == f->file && at < f->least)
        f->least = at;
}
uint64_t loader_header_bytes(loader *l, const mapped_files *m, uint32_t i) {
    first_plane f = {m, i, m->views[i].bytes};
    loader_each_plane(l, m, earlier, &f);
    return f.least;
}
