/* loader_parse.c -- one parse from open to close, with all that the loader returns read and
 * checked: values, planes inside their files, dims, strides, parts, and that no two dense planes
 * overlap. All answers go into a digest (FNV-1a), by which two parses are compared; addresses do
 * not, so that the files may be mapped elsewhere. Also how a rule gets its loader and a model of
 * its format (loader_on_model). */
#include "loader.h"
#include "case.h"
#include "types.h"
#include <stdlib.h>
#include <string.h>

#define MOST_ENTRIES (1u << 20) /* more than any file of the check can hold */

/* ---- the loader and its model ---------------------------------------------------------------- */
static void *(*host_alloc)(void *self, uint64_t bytes, uint64_t align);
static plugin_types own_types; /* of the loader that was entered last */
static uint64_t too_much;      /* bytes of the allocation that was refused for its size; 0 = none */

static void *limited_alloc(void *self, uint64_t bytes, uint64_t align) {
    if (bytes <= LOADER_MOST_BYTES)
        return host_alloc(self, bytes, align);
    too_much = bytes;
    return NULL;
}

int loader_enter(check *c, loader *l) {
    memset(l, 0, sizeof *l);
    l->c = c;
    check_host_init(&l->host);
    host_alloc = l->host.api.alloc;
    l->host.api.alloc = limited_alloc;
    if (!check_open(c, &l->plugin, &l->host))
        return 0;
    if (!l->plugin.ld)
        check_fail(c, "query(\"" MN_LOADER_ID "\"): found NULL, expected a table");
    else
        types_read(c, &l->plugin, &own_types);
    return l->plugin.ld != NULL && !check_over(c);
}

void loader_close(loader *l) {
    model_free(&l->model);
    check_close(l->c, &l->plugin);
}

mn_status loader_open(const loader *l, const mapped_files *m, mn_parsed **out, mn_error *err) {
    const check_plugin *p = &l->plugin;
    return p->ld->open(p->api->self, m->views, m->n, sizeof *m->views, out, err);
}

/* Whether l->model is of its format. */
static bool claims_and_opens(loader *l) {
    mapped_files m;
    mn_parsed *p = NULL;
    const bool claimed = mapped_make(&m, &l->model, MAP_BEGIN) && loader_guess(l, &m) > 0;
    check_doing(l->c, "open of a small %s model ran", l->model.format);
    const bool opened = claimed && !loader_open(l, &m, &p, NULL) && p;
    if (opened)
        l->plugin.ld->close(p);
    mapped_free(&m);
    return opened;
}

/* Fills l->model. 1, or 0 and the rule is over. */
static int find_model(check *c, loader *l) {
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
    check_skip(c,
               "found a format that the check has no model of, expected --model PATH with a small "
               "one");
    return 0;
}

void loader_on_model(check *c, int how, loader_fn fn) {
    loader l;
    mapped_files m;
    if (loader_enter(c, &l) && patterns_read(c, &l.plugin, &l.patterns) && find_model(c, &l)) {
        if (mapped_make(&m, &l.model, how))
            fn(&l, &m);
        mapped_free(&m);
    }
    loader_close(&l);
}

int loader_guess(loader *l, const mapped_files *m) {
    const check_plugin *p = &l->plugin;
    const char *format = "files";
    if (l->model.format)
        format = l->model.format;
    mn_guess g = {.size = sizeof g};
    check_doing(l->c, "guess on %s ran", format);
    const mn_status st = p->ld->guess(p->api->self, m->views, m->n, sizeof *m->views, &g);
    if (check_status(l->c, st, NULL, "guess on %s", format))
        return -1;
    const bool has_ends = memchr(g.format, 0, sizeof g.format) && memchr(g.why, 0, sizeof g.why);
    if (g.confidence <= 100 && g.size >= offsetof(mn_guess, format) && has_ends)
        return (int)g.confidence;
    check_fail(l->c,
               "guess on %s: found confidence %u, size %u, expected 0 to 100 and strings that end",
               format, g.confidence, g.size);
    return -1;
}

/* ---- the digest: reads every byte ------------------------------------------------------------ */
static void mix(uint64_t *h, const void *p, uint64_t n) {
    *h = mn_fnv(*h, p, n);
}

static void mix_str(uint64_t *h, mn_str s) {
    mix(h, &s.len, sizeof s.len);
    if (s.len)
        mix(h, s.ptr, s.len);
}

/* Elements of type `of`. false = an array without elements. */
static bool mix_array(uint64_t *h, const mn_value *v, uint32_t of) {
    static const uint64_t size[] = {0, 8, 8, 1};
    mix(h, &v->n, sizeof v->n);
    if (v->n && !v->array)
        return false;
    if (of != MN_VALUE_STR) {
        mix(h, v->array, v->n * size[of]);
        return true;
    }
    const mn_str *texts = v->array;
    for (uint64_t i = 0; i < v->n; i++)
        mix_str(h, texts[i]);
    return true;
}

/* false = not a value. */
static bool mix_value(uint64_t *h, const mn_value *v) {
    const uint32_t of = v->type & ~MN_VALUE_ARRAY;
    mix(h, &v->type, sizeof v->type);
    if (of < MN_VALUE_INT || of > MN_VALUE_STR)
        return false;
    if (v->type & MN_VALUE_ARRAY)
        return mix_array(h, v, of);
    if (of == MN_VALUE_STR)
        mix_str(h, v->s);
    else if (of == MN_VALUE_FLOAT)
        mix(h, &v->f, sizeof v->f);
    else
        mix(h, &v->i, sizeof v->i);
    return of != MN_VALUE_BOOL || v->i == 0 || v->i == 1;
}

/* ---- one tensor ------------------------------------------------------------------------------ */
/* The file that holds all of [ptr, ptr + bytes); NULL = none. */
static const mn_file *loader_parse_file_of(const mapped_files *m, const void *ptr, uint64_t bytes) {
    const uint8_t *p = ptr;
    for (uint32_t i = 0; i < m->n; i++) {
        const mn_file *f = &m->views[i];
        const uint8_t *lo = f->map;
        if (p < lo)
            continue;
        const uint64_t at = (uint64_t)(p - lo);
        if (at <= f->bytes && bytes <= f->bytes - at)
            return f;
    }
    return NULL;
}

/* Adds steps * stride to *end; true = overflow. */
static bool loader_parse_add_span(uint64_t *end, uint64_t steps, int64_t stride) {
    uint64_t span;
    if (__builtin_mul_overflow(steps, (uint64_t)stride, &span))
        return true;
    return __builtin_add_overflow(*end, span, end);
}

/* Bytes from the first to the last that the strides reach; false: broken dims or strides, or
 * overflow. */
static bool extent_of(const mn_plane *p, uint32_t n_dim, uint64_t *out) {
    const mn_dtype t = types_find(&own_types, p->dtype);
    uint64_t end = t.block_bytes;
    if (!t.id)
        return false;
    for (uint32_t d = 0; d < n_dim; d++) {
        uint64_t elems = 1; // of one step
        if (d + 1 == n_dim)
            elems = t.block_elems;
        const uint64_t dim = (uint64_t)p->dim[d];
        if (p->dim[d] <= 0 || p->stride[d] < 0 || dim % elems)
            return false;
        if (loader_parse_add_span(&end, dim / elems - 1, p->stride[d]))
            return false;
    }
    *out = end;
    return true;
}

static const mn_plane *plane_at(const mn_tensor_info *t, uint64_t i) {
    return (const mn_plane *)((const char *)t->planes + i * t->plane_stride);
}

static uint64_t count_planes(const mn_tensor_info *t) {
    return (uint64_t)t->n_parts * t->n_planes;
}

/* Each fault_of: a phrase that names the fault; NULL = nothing. */
static const char *fault_of_head(const mn_tensor_info *t) {
    const mn_dtype known = types_find(&own_types, t->dtype.id);
    const bool has_names = t->name.len && t->name.ptr && t->native.len && t->native.ptr;
    if (!has_names)
        return "has no name";
    if (!t->n_dim || t->n_dim > MN_MAX_DIM || !t->n_parts)
        return "is described incompletely";
    if (!t->n_planes || t->n_planes > MN_PLANE_KINDS || !t->planes)
        return "is described incompletely";
    if (t->plane_stride < sizeof(mn_plane))
        return "is described incompletely";
    if (!known.id || memcmp(&known, &t->dtype, sizeof known))
        return "has a type that neither plugin.h nor the plugin's list has";
    for (uint32_t d = 0; d < t->n_dim; d++)
        if (t->dim[d] <= 0)
            return "has a dimension below 1";
    return NULL;
}

static const char *fault_of_plane(const mapped_files *m, const mn_tensor_info *t,
                                  const mn_plane *p) {
    uint64_t extent;
    if (p->kind < MN_PLANE_DATA || p->kind > MN_PLANE_KINDS)
        return "has a plane of an unknown kind";
    if (!extent_of(p, t->n_dim, &extent))
        return "has a plane whose dimensions or strides are invalid";
    if (extent > p->bytes)
        return "has a plane whose strides lead out of it";
    if (!loader_parse_file_of(m, p->ptr, p->bytes))
        return "has a plane outside of its file";
    if (p->kind != MN_PLANE_DATA)
        return NULL;
    if (p->dtype != t->dtype.id)
        return "has a data plane of another type";
    for (uint32_t d = 1; d < t->n_dim; d++)
        if (p->dim[d] != t->dim[d])
            return "has a data plane of another shape";
    return NULL;
}

static const char *loader_parse_fault_of(const mapped_files *m, const mn_tensor_info *t) {
    int64_t rows = 0;
    const char *fault = fault_of_head(t);
    if (fault)
        return fault;
    for (uint64_t i = 0; i < count_planes(t); i++) {
        const mn_plane *p = plane_at(t, i);
        fault = fault_of_plane(m, t, p);
        if (fault)
            return fault;
        int64_t more = 0;
        if (p->kind == MN_PLANE_DATA)
            more = p->dim[0];
        if (__builtin_add_overflow(rows, more, &rows))
            return "has parts whose rows overflow";
    }
    if (rows == t->dim[0])
        return NULL;
    return "has parts that do not add up to its first dimension";
}

static void mix_plane(uint64_t *h, const mapped_files *m, const mn_plane *p, uint32_t n_dim) {
    const mn_file *f = loader_parse_file_of(m, p->ptr, p->bytes);
    const uint64_t offset = (uint64_t)((const char *)p->ptr - (const char *)f->map);
    const uint64_t words[4] = {offset, p->bytes, p->kind, p->dtype};
    mix_str(h, f->name);
    mix(h, words, sizeof words);
    mix(h, p->dim, n_dim * sizeof *p->dim);
    mix(h, p->stride, n_dim * sizeof *p->stride);
}

/* t has no fault. */
static void mix_tensor(uint64_t *h, const mapped_files *m, const mn_tensor_info *t) {
    mix_str(h, t->name);
    mix_str(h, t->native);
    mix(h, t->dim, t->n_dim * sizeof *t->dim);
    for (uint64_t i = 0; i < count_planes(t); i++)
        mix_plane(h, m, plane_at(t, i), t->n_dim);
}

/* ---- all tensors ----------------------------------------------------------------------------- */
/* Dense planes: they must not overlap. Planes with gaps may lie inside each other's gaps. */
typedef struct {
    const uint8_t *lo;
    uint64_t n;
    mn_str tensor;
} span;

typedef struct {
    span *v;
    uint64_t n;
} span_list;

static int by_place(const void *a, const void *b) {
    const span *x = a;
    const span *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

/* The first that begins before the one before it ends; NULL = none. */
static const span *overlap(span_list *s) {
    if (s->n)
        qsort(s->v, s->n, sizeof *s->v, by_place);
    for (uint64_t i = 1; i < s->n; i++) {
        const span *before = &s->v[i - 1];
        if (s->v[i].lo < before->lo + before->n)
            return &s->v[i];
    }
    return NULL;
}

/* Bytes of the plane without gaps. */
static uint64_t dense_bytes(const mn_plane *p, uint32_t n_dim) {
    const mn_dtype t = types_find(&own_types, p->dtype);
    uint64_t elems = 1;
    for (uint32_t d = 0; d < n_dim; d++)
        elems *= (uint64_t)p->dim[d];
    return elems / t.block_elems * t.block_bytes;
}

/* The dense planes of a tensor without fault; where memory runs out they are not compared. */
static void add_spans(span_list *s, const mn_tensor_info *t) {
    for (uint64_t i = 0; i < count_planes(t); i++) {
        const mn_plane *p = plane_at(t, i);
        uint64_t extent = 0;
        extent_of(p, t->n_dim, &extent);
        if (extent != dense_bytes(p, t->n_dim))
            continue;
        span *grown = realloc(s->v, (s->n + 1) * sizeof *grown);
        if (!grown)
            return;
        s->v = grown;
        s->v[s->n] = (span){p->ptr, extent, t->name};
        s->n++;
    }
}

static void fail_tensor(check *c, const char *what, mn_str name, const char *fault) {
    const int n = name.len > 80 ? 80 : (int)name.len;
    check_fail(c, "%s: tensor '%.*s' %s", what, name.ptr ? n : 0, name.ptr, fault);
}

static void read_tensors(loader *l, const mapped_files *m, mn_parsed *p, const char *what,
                         uint64_t *h) {
    span_list spans = {0};
    for (uint32_t i = 0; !check_over(l->c); i++) {
        mn_tensor_info t = {.size = sizeof t};
        const mn_status st = l->plugin.ld->tensor_at(p, i, &t);
        if (st == MN_END)
            break;
        const char *fault = "cannot be read, or there is no end of them";
        if (!st && i < MOST_ENTRIES)
            fault = loader_parse_fault_of(m, &t);
        if (fault) {
            fail_tensor(l->c, what, t.name, fault);
            break;
        }
        mix_tensor(h, m, &t);
        add_spans(&spans, &t);
    }
    const span *second = overlap(&spans);
    if (second)
        fail_tensor(l->c, what, second->tensor, "shares bytes with another one");
    free(spans.v);
}

static void read_meta(loader *l, mn_parsed *p, const char *what, uint64_t *h) {
    for (uint32_t i = 0; !check_over(l->c); i++) {
        mn_str key = {NULL, 0};
        mn_str native = {NULL, 0};
        mn_value v = {.size = sizeof v};
        const mn_status st = l->plugin.ld->meta_at(p, i, &key, &native, &v);
        if (st == MN_END)
            return;
        const bool readable = !st && i < MOST_ENTRIES && key.len && key.ptr;
        CHECK(
            l->c, readable && mix_value(h, &v),
            "%s: metadata %u: found status 0x%x, type %u, a key of %llu bytes, expected a key and "
            "a value",
            what, i, (unsigned)st, v.type, (unsigned long long)key.len);
        mix_str(h, key);
        mix_str(h, native);
    }
}

/* The digest of all answers. */
static uint64_t loader_parse_read_all(loader *l, const mapped_files *m, mn_parsed *p,
                                      const char *what) {
    uint64_t h = MN_FNV_BASIS;
    read_meta(l, p, what, &h);
    read_tensors(l, m, p, what, &h);
    return h;
}

/* ---- what a valid model has once ------------------------------------------------------------- */
typedef struct {
    uint64_t *of; /* digests of texts */
    uint64_t n;
} text_set;

/* false: it is there already. Where memory runs out nothing is compared. */
static bool text_is_new(text_set *set, mn_str s) {
    uint64_t h = MN_FNV_BASIS;
    mix_str(&h, s);
    for (uint64_t i = 0; i < set->n; i++)
        if (set->of[i] == h)
            return false;
    uint64_t *grown = realloc(set->of, (set->n + 1) * sizeof *grown);
    if (!grown)
        return true;
    set->of = grown;
    set->of[set->n++] = h;
    return true;
}

/* Keys that count something, which the host reads as integers. */
static bool is_count(mn_str key) {
    static const char *const ends[] = {".block_count",          ".context_length",
                                       ".embedding_length",     ".feed_forward_length",
                                       ".attention.head_count", ".attention.head_count_kv"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t n = strlen(ends[i]);
        if (key.len > n && !memcmp(key.ptr + key.len - n, ends[i], n))
            return true;
    }
    return false;
}

static void keys_once(loader *l, mn_parsed *p, text_set *set) {
    for (uint32_t i = 0; !check_over(l->c); i++) {
        mn_str key = {NULL, 0};
        mn_str native = {NULL, 0};
        mn_value v = {.size = sizeof v};
        if (l->plugin.ld->meta_at(p, i, &key, &native, &v))
            return;
        const int n = key.len > 80 ? 80 : (int)key.len;
        CHECK(l->c, text_is_new(set, key), "metadata %u: found the key %.*s twice, expected once",
              i, n, key.ptr);
        CHECK(l->c, !is_count(key) || (v.type & ~MN_VALUE_ARRAY) == MN_VALUE_INT,
              "metadata %u: found type %u of %.*s, expected MN_VALUE_INT or an array of it", i,
              v.type, n, key.ptr);
    }
}

static void names_once(loader *l, mn_parsed *p, text_set *set) {
    for (uint32_t i = 0; !check_over(l->c); i++) {
        mn_tensor_info t = {.size = sizeof t};
        if (l->plugin.ld->tensor_at(p, i, &t))
            return;
        if (!text_is_new(set, t.name))
            fail_tensor(l->c, "a valid model", t.name, "is there twice, expected once");
    }
}

void loader_once(loader *l, const mapped_files *m) {
    text_set keys = {0};
    text_set names = {0};
    mn_parsed *p = NULL;
    if (loader_open(l, m, &p, NULL) || !p)
        return;
    keys_once(l, p, &keys);
    names_once(l, p, &names);
    l->plugin.ld->close(p);
    free(keys.of);
    free(names.of);
}

/* ---- one parse ------------------------------------------------------------------------------- */
/* open returned st, which is not MN_OK, and p. */
static void check_refusal(loader *l, mn_status st, const mn_parsed *p, const mn_error *e,
                          const char *what) {
    const uint32_t class = MN_STATUS_CLASS(st);
    const bool out_of_memory = atomic_load(&l->host.refused) != 0;
    CHECK(l->c, !too_much,
          "%s: found an allocation of %llu bytes, expected none by a number that the file's size "
          "contradicts",
          what, (unsigned long long)too_much);
    CHECK(l->c, class == MN_CLASS_INPUT || class == MN_CLASS_REFUSE || out_of_memory,
          "%s: open: found status 0x%x (%s), expected MN_OK, MN_BAD_FILE or MN_UNSUPPORTED", what,
          (unsigned)st, e->msg);
    CHECK(
        l->c, e->msg[0] && memchr(e->msg, 0, sizeof e->msg) && e->status == st,
        "%s: open: found status 0x%x, and 0x%x and '%.100s' in the error, expected the same status "
        "and a sentence",
        what, (unsigned)st, (unsigned)e->status, e->msg);
    CHECK(l->c, !p, "%s: open failed: found a model, expected NULL", what);
}

mn_status loader_parse(loader *l, const mapped_files *m, const char *what, uint64_t *digest) {
    check *c = l->c;
    const long long live = atomic_load(&l->host.live);
    mn_error e = check_error();
    mn_parsed *p = NULL;
    uint64_t first = 0;
    uint64_t second = 0;
    too_much = 0;
    check_doing(c, "open of %s ran", what);
    const mn_status st = loader_open(l, m, &p, &e);
    if (st)
        check_refusal(l, st, p, &e, what);
    else if (!p)
        check_fail(c, "%s: open: found MN_OK and no model, expected one", what);
    check_doing(c, "meta_at and tensor_at of %s ran", what);
    if (!check_over(c) && p) {
        first = loader_parse_read_all(l, m, p, what);
        second = loader_parse_read_all(l, m, p, what);
    }
    if (!check_over(c) && first != second)
        check_fail(c, "%s: found two answers of one parse to the same questions, expected one",
                   what);
    check_doing(c, "close of %s ran", what);
    if (p)
        l->plugin.ld->close(p);
    const long long left = atomic_load(&l->host.live) - live;
    if (left)
        check_fail(c, "%s: found %lld blocks of host->alloc left by open%s, expected none", what,
                   left, st ? ", which failed" : " and close");
    if (digest)
        *digest = first;
    return st;
}

uint64_t loader_digest(loader *l, const mapped_files *m) {
    return loader_digest_of(l, m, m->views, sizeof *m->views);
}

uint64_t loader_digest_of(loader *l, const mapped_files *m, const void *files, uint32_t stride) {
    const check_plugin *plugin = &l->plugin;
    mn_parsed *p = NULL;
    if (plugin->ld->open(plugin->api->self, files, m->n, stride, &p, NULL) || !p)
        return 0;
    const uint64_t h = loader_parse_read_all(l, m, p, l->model.format);
    plugin->ld->close(p);
    if (check_over(l->c))
        return 0;
    return h;
}

/* ---- planes and headers ---------------------------------------------------------------------- */
void loader_each_plane(loader *l, const mapped_files *m, loader_plane_fn fn, void *arg) {
    mn_parsed *p = NULL;
    if (loader_open(l, m, &p, NULL))
        return;
    for (uint32_t i = 0;; i++) {
        mn_tensor_info t = {.size = sizeof t};
        if (l->plugin.ld->tensor_at(p, i, &t))
            break;
        for (uint64_t k = 0; k < count_planes(&t); k++) {
            const mn_plane *plane = plane_at(&t, k);
            const mn_file *f = loader_parse_file_of(m, plane->ptr, plane->bytes);
            if (f)
                fn(arg, (uint32_t)(f - m->views), plane);
        }
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
    const uint8_t *map = f->m->views[file].map;
    const uint64_t at = (uint64_t)((const uint8_t *)p->ptr - map);
    if (file == f->file && at < f->least)
        f->least = at;
}

uint64_t loader_header_bytes(loader *l, const mapped_files *m, uint32_t i) {
    first_plane f = {m, i, m->views[i].bytes};
    loader_each_plane(l, m, earlier, &f);
    return f.least;
}
