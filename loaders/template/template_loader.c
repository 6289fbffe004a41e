/* template_loader.c -- a whole Minerva loader plugin for a format of our own invention, in one
 * file.
 *
 * The format, "mnt": a text header, then the tensors' bytes.
 *
 *     MNT 1
 *     general.architecture = "llama"
 *     llama.attention.layer_norm_rms_epsilon = 1e-05
 *     llama.block_count = 1
 *     tensor blk.0.attn_k.weight = F32 [16, 16] @ 1024
 *     END
 *
 * Keys are GGUF's, in ascending order (as bytes). A point or an exponent makes a number a float, of
 * at most 15 digits; else it is an integer; true and false are booleans. Tensors' names ascend;
 * dims come outermost first; types are those of plugin.h with one plane; offsets ascend, and are
 * multiples of 64 from the file's start.
 *
 * What every loader has to do, and what this one shows: the host maps the files and hands over
 * views; a loader opens nothing, computes nothing, believes no number of a file before it is
 * compared with the file's size, and describes tensors as planes inside the map. The order that the
 * format asks for makes doubled keys and overlapping tensors visible in one pass. */
#include <minerva/plugin.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define T_ID "template_loader"
#define T_VERSION "0.1"
#define MAGIC "MNT 1\n"
#define MAX_HEADER (4u << 20)

MN_PLUGIN_NOTE(T_ID, MN_KIND_LOADER, "");

/* ---- what is handed out: made by open, read-only afterwards, so any thread may ask ----------- */
typedef struct {
    mn_str key;
    mn_value value; /* its string points into the map */
} t_meta;
typedef struct {
    mn_str name;
    mn_dtype dtype;
    int64_t dim[MN_MAX_DIM];
    uint32_t n_dim;
    mn_plane plane;
} t_tensor;
struct mn_parsed {
    const mn_host *host;
    t_meta *meta;
    t_tensor *tensors;
    uint64_t n_meta;
    uint64_t n_tensors;
};

typedef struct {
    mn_plugin api;
    const mn_host *host;
} t_plugin;

/* ---- errors: file, key, found, expected ------------------------------------------------------ */
#define ARG(s) (int)((s).len > 80 ? 80 : (s).len), (s).len ? (s).ptr : ""
static mn_status fail(mn_error *err, mn_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static mn_status fail(mn_error *err, mn_status status, const char *fmt, ...) {
    if (!err)
        return status;
    mn_error e = {.size = sizeof e, .status = status, .node = ~0u};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e.msg, sizeof e.msg, fmt, ap);
    va_end(ap);
    /* bytes of a bad file are no text */
    for (char *c = e.msg; *c; c++)
        if ((unsigned char)*c < 32 || (unsigned char)*c > 126)
            *c = '?';
    if (err->size < e.size)
        e.size = err->size; /* R4 */
    memcpy(err, &e, e.size);
    if (e.size > offsetof(mn_error, msg) && e.size < sizeof e)
        ((char *)err)[e.size - 1] = 0;
    return status;
}

/* R4: both structs begin with their size. */
static mn_status give(void *dst, const void *src) {
    uint32_t capacity;
    uint32_t size;
    memcpy(&capacity, dst, sizeof capacity);
    memcpy(&size, src, sizeof size);
    if (capacity < sizeof size)
        return MN_INVALID;
    if (size > capacity)
        size = capacity;
    memcpy(dst, src, size);
    memcpy(dst, &size, sizeof size);
    return MN_OK;
}

/* ---- cutting text: a view that shrinks from the left; nothing here reads past its end -------- */
static bool is(mn_str s, const char *z) {
    return s.len == strlen(z) && (!s.len || !memcmp(s.ptr, z, s.len));
}
static bool begins(mn_str s, const char *z) {
    return s.len >= strlen(z) && !memcmp(s.ptr, z, strlen(z));
}
static mn_str skip(mn_str s, uint64_t n) {
    return (mn_str){s.ptr + n, s.len - n};
}

static bool take(mn_str *s, const char *z) {
    if (!begins(*s, z))
        return false;
    *s = skip(*s, strlen(z));
    return true;
}
/* Up to `sep`, which is taken away too; false = it is not there. */
static bool cut(mn_str *s, const char *sep, mn_str *out) {
    for (uint64_t i = 0; i < s->len; i++)
        if (begins(skip(*s, i), sep)) {
            *out = (mn_str){s->ptr, i};
            *s = skip(*s, i + strlen(sep));
            return true;
        }
    return false;
}
static bool take_number(mn_str *s, uint64_t *out) { /* at most 18 digits: no overflow */
    uint64_t v = 0;
    uint64_t n = 0;
    for (; n < s->len && s->ptr[n] >= '0' && s->ptr[n] <= '9'; n++) {
        if (n == 18)
            return false;
        v = v * 10 + (uint64_t)(s->ptr[n] - '0');
    }
    *s = skip(*s, n);
    *out = v;
    return n > 0;
}

/* Digits, point, exponent. Exact, and without strtod, whose point depends on the user's language:
 * with at most 15 digits and an exponent within 22 the digits and the power of ten are exact in
 * double, and one division or product rounds once. */
static bool take_float(mn_str *s, double *out) {
    uint64_t digits = 0;
    uint64_t part = 0;
    int64_t exponent = 0;
    double power = 1;
    mn_str before = *s;
    if (!take_number(s, &digits))
        return false;
    uint64_t n = before.len - s->len;
    if (take(s, ".")) {
        mn_str from = *s;
        for (; s->len && s->ptr[0] >= '0' && s->ptr[0] <= '9' && n < 16; n++, exponent--) {
            digits = digits * 10 + (uint64_t)(s->ptr[0] - '0');
            *s = skip(*s, 1);
        }
        if (from.len == s->len)
            return false;
    }
    if (take(s, "e")) {
        bool minus = take(s, "-");
        if (!minus)
            (void)take(s, "+");
        if (!take_number(s, &part) || part > 99)
            return false;
        exponent += minus ? -(int64_t)part : (int64_t)part;
    }
    if (n > 15 || exponent < -22 || exponent > 22)
        return false;
    for (int64_t i = exponent < 0 ? -exponent : exponent; i > 0; i--)
        power *= 10;
    *out = exponent < 0 ? (double)digits / power : (double)digits * power;
    return true;
}

/* ---- the header ------------------------------------------------------------------------------ */
static mn_status parse_value(const mn_file *f, mn_str key, mn_str text, mn_value *v,
                             mn_error *err) {
    mn_str all = text;
    mn_str number;
    uint64_t n;
    *v = (mn_value){.size = sizeof *v};
    if (take(&text, "\"")) {
        v->type = MN_VALUE_STR;
        if (cut(&text, "\"", &v->s) && !text.len)
            return MN_OK;
    } else if (is(text, "true") || is(text, "false")) {
        v->type = MN_VALUE_BOOL;
        v->i = is(text, "true");
        return MN_OK;
    } else {
        bool minus = take(&text, "-");
        number = text;
        if (take_number(&text, &n) && !text.len) {
            v->type = MN_VALUE_INT;
            v->i = minus ? -(int64_t)n : (int64_t)n;
            return MN_OK;
        }
        v->type = MN_VALUE_FLOAT;
        if (take_float(&number, &v->f) && !number.len) {
            if (minus)
                v->f = -v->f;
            return MN_OK;
        }
    }
    return fail(err, MN_BAD_FILE,
                "%.*s: key %.*s: found %.*s, expected \"text\", true, false, an integer or a float",
                ARG(f->name), ARG(key), ARG(all));
}

static bool type_of(mn_str name, mn_dtype *out) {
#define ROW(n, id, elems, bytes, planes) {#n, {id, elems, bytes, planes}},
    static const struct {
        const char *name;
        mn_dtype dtype;
    } types[] = {MN_DTYPES(ROW)};
#undef ROW
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is(name, types[i].name)) {
            *out = types[i].dtype;
            return out->n_planes == 1;
        }
    return false;
}

static bool parse_dims(mn_str text, t_tensor *t) {
    for (t->n_dim = 0; t->n_dim < MN_MAX_DIM;) {
        uint64_t n;
        if (!take_number(&text, &n) || !n)
            return false;
        t->dim[t->n_dim++] = (int64_t)n;
        if (!text.len)
            return true;
        if (!take(&text, ", "))
            return false;
    }
    return false;
}

/* One dense plane: bytes per step of each dim, of the last one per block. false = overflow, or rows
 * that are no whole blocks. */
static bool lay_out(t_tensor *t) {
    int64_t step = t->dtype.block_bytes;
    for (uint32_t i = t->n_dim; i-- > 0;) {
        int64_t n = t->dim[i];
        t->plane.dim[i] = n;
        t->plane.stride[i] = step;
        if (i + 1 == t->n_dim) {
            if (n % t->dtype.block_elems)
                return false;
            n /= t->dtype.block_elems;
        }
        if (__builtin_mul_overflow(step, n, &step))
            return false;
    }
    t->plane.bytes = (uint64_t)step;
    return true;
}

/* "NAME = TYPE [D0, D1] @ OFFSET"; end: where the tensor before this one ends, or the header. */
static mn_status parse_tensor(const mn_file *f, mn_str line, t_tensor *t, uint64_t *end,
                              mn_error *err) {
    mn_str type;
    mn_str dims;
    mn_str all = line;
    uint64_t at;
    if (!cut(&line, " = ", &t->name) || !t->name.len || !cut(&line, " [", &type) ||
        !cut(&line, "] @ ", &dims) || !take_number(&line, &at) || line.len)
        return fail(err, MN_BAD_FILE,
                    "%.*s: found \"tensor %.*s\", expected tensor NAME = TYPE [DIMS] @ OFFSET",
                    ARG(f->name), ARG(all));
    if (!type_of(type, &t->dtype))
        return fail(err, MN_UNSUPPORTED, "%.*s: tensor %.*s: type %.*s is unknown", ARG(f->name),
                    ARG(t->name), ARG(type));
    if (!parse_dims(dims, t) || !lay_out(t))
        return fail(err, MN_BAD_FILE,
                    "%.*s: tensor %.*s: dimensions [%.*s], expected 1 to %d of 1 or more, whole "
                    "blocks of %u",
                    ARG(f->name), ARG(t->name), ARG(dims), MN_MAX_DIM, t->dtype.block_elems);
    if (at % 64 || at < *end)
        return fail(err, MN_BAD_FILE,
                    "%.*s: tensor %.*s: offset %llu, expected a multiple of 64 from %llu on",
                    ARG(f->name), ARG(t->name), (unsigned long long)at, (unsigned long long)*end);
    if (at > f->bytes || t->plane.bytes > f->bytes - at) /* never at + bytes: it may overflow */
        return fail(err, MN_BAD_FILE,
                    "%.*s: tensor %.*s: %llu bytes at %llu, the file has %llu: truncated",
                    ARG(f->name), ARG(t->name), (unsigned long long)t->plane.bytes,
                    (unsigned long long)at, (unsigned long long)f->bytes);
    t->plane.kind = MN_PLANE_DATA;
    t->plane.dtype = t->dtype.id;
    t->plane.ptr = (const char *)f->map + at;
    *end = at + t->plane.bytes;
    return MN_OK;
}

/* a < b, as bytes. */
static bool ascends(mn_str a, mn_str b) {
    uint64_t n = a.len < b.len ? a.len : b.len;
    int c = n ? memcmp(a.ptr, b.ptr, n) : 0;
    return c ? c < 0 : a.len < b.len;
}

/* The header's lines without MNT and END, and how many of each kind: what is allocated for them is
 * bounded by what is there. false = there is no END within MAX_HEADER, or a line that is too short
 * to be one. */
static bool header_of(const mn_file *f, mn_str *header, uint64_t *n_meta, uint64_t *n_tensors) {
    mn_str rest = {f->map, f->bytes < MAX_HEADER ? f->bytes : MAX_HEADER};
    mn_str line;
    rest = skip(rest, strlen(MAGIC));
    *header = rest;
    *n_meta = *n_tensors = 0;
    while (cut(&rest, "\n", &line)) {
        if (is(line, "END")) {
            header->len = (uint64_t)(line.ptr - header->ptr);
            return true;
        }
        if (line.len < strlen("a = 1"))
            return false;
        ++*(begins(line, "tensor ") ? n_tensors : n_meta);
    }
    return false;
}

static mn_status parse(mn_parsed *p, const mn_file *f, mn_str header, mn_error *err) {
    /* behind "END\n" */
    uint64_t end = (uint64_t)(header.ptr + header.len - (const char *)f->map) + 4;
    mn_str line;
    mn_status s = MN_OK;
    while (!s && cut(&header, "\n", &line)) {
        if (take(&line, "tensor ")) {
            t_tensor *t = &p->tensors[p->n_tensors++];
            s = parse_tensor(f, line, t, &end, err);
            if (!s && p->n_tensors > 1 && !ascends(t[-1].name, t->name))
                s = fail(err, MN_BAD_FILE, "%.*s: tensor %.*s after %.*s, expected ascending names",
                         ARG(f->name), ARG(t->name), ARG(t[-1].name));
            continue;
        }
        t_meta *m = &p->meta[p->n_meta++];
        if (!cut(&line, " = ", &m->key) || !m->key.len)
            return fail(err, MN_BAD_FILE, "%.*s: found the line \"%.*s\", expected KEY = VALUE",
                        ARG(f->name), ARG(line));
        s = parse_value(f, m->key, line, &m->value, err);
        if (!s && p->n_meta > 1 && !ascends(m[-1].key, m->key))
            s = fail(err, MN_BAD_FILE, "%.*s: key %.*s after %.*s, expected ascending keys",
                     ARG(f->name), ARG(m->key), ARG(m[-1].key));
    }
    return s;
}

/* ---- the table ------------------------------------------------------------------------------- */
static const mn_file *file_at(const mn_file *files, uint32_t i, uint32_t stride) {
    return (const mn_file *)((const char *)files + (uint64_t)i * stride);
}
static bool is_mnt(const mn_file *f) {
    return begins((mn_str){f->map, f->bytes}, MAGIC);
}

/* The folder's other files come along: companion files such as tokenizer.json, which the host reads
 * itself. Reads headers only. */
static mn_status guess(void *self, const mn_file *files, uint32_t n, uint32_t stride,
                       mn_guess *out) {
    (void)self;
    mn_guess g = {.size = sizeof g, .format = "mnt", .why = "no file begins with MNT 1"};
    for (uint32_t i = 0; i < n; i++)
        if (is_mnt(file_at(files, i, stride))) {
            g.confidence = 100;
            strcpy(g.why, "a file begins with MNT 1");
        }
    return give(out, &g);
}

static void *zeroed(const mn_host *h, uint64_t n, uint64_t size) {
    uint64_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    void *m = h->alloc(h->self, bytes ? bytes : 1, 16);
    return m ? memset(m, 0, bytes) : NULL;
}

static void close_parsed(mn_parsed *p) {
    if (!p)
        return;
    const mn_host *h = p->host;
    h->release(h->self, p->meta);
    h->release(h->self, p->tensors);
    h->release(h->self, p);
}

static mn_status open_files(void *self, const mn_file *files, uint32_t n, uint32_t stride,
                            mn_parsed **out, mn_error *err) {
    const mn_host *h = ((t_plugin *)self)->host;
    const mn_file *f = NULL;
    mn_str header;
    uint64_t n_meta;
    uint64_t n_tensors;
    for (uint32_t i = 0; i < n; i++) {
        if (!is_mnt(file_at(files, i, stride)))
            continue;
        if (f)
            return fail(err, MN_BAD_FILE, "%.*s and %.*s: two models, expected one", ARG(f->name),
                        ARG(file_at(files, i, stride)->name));
        f = file_at(files, i, stride);
    }
    if (!f)
        return fail(err, MN_BAD_FILE, "no file begins with MNT 1");
    if (!header_of(f, &header, &n_meta, &n_tensors))
        return fail(err, MN_BAD_FILE,
                    "%.*s: found no header of whole lines, expected one that ends in END: "
                    "truncated or corrupt",
                    ARG(f->name));
    mn_parsed *p = zeroed(h, 1, sizeof *p);
    if (!p)
        return fail(err, MN_OUT_OF_MEMORY, "out of memory");
    p->host = h;
    p->meta = zeroed(h, n_meta, sizeof *p->meta);
    p->tensors = zeroed(h, n_tensors, sizeof *p->tensors);
    mn_status s = p->meta && p->tensors ? parse(p, f, header, err)
                                        : fail(err, MN_OUT_OF_MEMORY, "out of memory");
    if (s)
        close_parsed(p);
    else
        *out = p;
    return s;
}

static mn_status meta_at(mn_parsed *p, uint32_t i, mn_str *key, mn_str *native, mn_value *value) {
    if (i >= p->n_meta)
        return MN_END;
    if (key)
        *key = p->meta[i].key;
    /* a format with names of its own says the file's name here: messages show it */
    if (native)
        *native = p->meta[i].key;
    return value ? give(value, &p->meta[i].value) : MN_OK;
}

static mn_status tensor_at(mn_parsed *p, uint32_t i, mn_tensor_info *out) {
    if (i >= p->n_tensors)
        return MN_END;
    const t_tensor *t = &p->tensors[i];
    mn_tensor_info info = {.size = sizeof info,
                           .n_parts = 1,
                           .n_planes = 1,
                           .plane_stride = sizeof t->plane,
                           .name = t->name,
                           .native = t->name,
                           .dtype = t->dtype,
                           .n_dim = t->n_dim,
                           .planes = &t->plane};
    memcpy(info.dim, t->dim, sizeof info.dim);
    return give(out, &info);
}

/* Files that may reach guess and open: the host looks for them by these names. A format in shards
 * would add {.kind = MN_PATTERN_SHARD, .text = "*-#-of-#.mnt"}, one in folders the name of a file
 * that only such folders have. Tokeniser and template are not inside: no MN_PATTERN_WHOLE. */
static mn_status patterns(void *self, uint32_t i, mn_file_pattern *out) {
    (void)self;
    const mn_file_pattern p = {
        .size = sizeof p, .kind = MN_PATTERN_MODEL, .text = {"*.mnt", strlen("*.mnt")}};
    return i ? MN_END : give(out, &p);
}

static const mn_loader loader = {.size = sizeof loader,
                                 .guess = guess,
                                 .open = open_files,
                                 .meta_at = meta_at,
                                 .tensor_at = tensor_at,
                                 .close = close_parsed,
                                 .patterns = patterns};

/* ---- the entry ------------------------------------------------------------------------------- */
static const void *query(void *self, const char *id) {
    (void)self;
    return strcmp(id, MN_LOADER_ID) ? NULL : &loader;
}
static void shutdown(void *self) {
    const mn_host *h = ((t_plugin *)self)->host;
    h->release(h->self, self);
}
static mn_str str(const char *z) {
    return (mn_str){z, strlen(z)};
}

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    /* these mean the same for every major */
    uint32_t abi = host ? host->abi : 0;
    uint32_t oldest = host ? host->abi_min : 0;
    if (abi >> 16 != MN_ABI_VERSION >> 16 || abi < MN_ABI_OLDEST || oldest > MN_ABI_VERSION) {
        fail(err, MN_UNSUPPORTED, T_ID " is for ABI %u.%u, the host has %u.%u",
             MN_ABI_VERSION >> 16, MN_ABI_VERSION & 0xffff, abi >> 16, abi & 0xffff);
        return NULL;
    }
    if (!MN_HAS(mn_host, host, alloc) || !MN_HAS(mn_host, host, release)) {
        fail(err, MN_INVALID, T_ID ": the host offers no alloc and release");
        return NULL;
    }
    t_plugin *p = zeroed(host, 1, sizeof *p);
    if (!p) {
        fail(err, MN_OUT_OF_MEMORY, "out of memory");
        return NULL;
    }
    p->host = host;
    p->api = (mn_plugin){.size = sizeof p->api,
                         .abi = MN_ABI_VERSION,
                         .self = p,
                         .id = str(T_ID),
                         .vendor = str("Example Corp."),
                         .version = str(T_VERSION),
                         .build_id = str(T_VERSION " " __DATE__ " " __TIME__),
                         .flags = MN_PLUGIN_UNLOADABLE,
                         .query = query,
                         .shutdown = shutdown};
    return &p->api;
}
