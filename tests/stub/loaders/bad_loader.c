/* bad_loader.c -- loaders that go wrong, each in one way: a -D of WHAT makes one plugin. All claim
 * GGUF files. The sly ones are good as long as a model is small, so that no probe with a sample
 * finds them out. */
#include <minerva/plugin.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CRASH 1          /* dies in open */
#define HANG 2           /* never returns from open */
#define GREEDY 3         /* claims every file */
#define OUTSIDE 4        /* describes a plane behind the end of the file */
#define SLY_GREEDY 5     /* claims every model, the large ones in vain */
#define SLY_OUTSIDE 6    /* describes large models as OUTSIDE does */
#define OPENS_FILES 7    /* looks for itself instead of taking what it gets */
#define READS_DATA 8     /* adds up a tensor in open */
#define FORGETFUL 9      /* leaks */
#define TRUSTING 10      /* takes the file's length for granted */
#define NO_PATTERNS 11   /* states no names of files */
#define BAD_PATTERN 12   /* states one that means every file */
#define ENDLESS 13       /* its list has no end */
#define FICKLE 14        /* states other ones each time */
#define OTHER_PATTERN 15 /* claims files that none of its patterns names */
#define SNOB 16          /* passes over files with a flag that it does not know */
#define FLOAT_LAYERS 17  /* counts layers by a float */
#define KEY_TWICE 18     /* has a key twice */
#define NAME_TWICE 19    /* has two tensors of one name */
#define NO_FORMAT 20     /* claims models of a format without a name */
#define SIZEOF_STRIDE 21 /* steps through the files by the size of its own struct */
#define EXACT_FLAG 22    /* compares flags, where it should look at a bit */
#define LEAKS_ERROR 23   /* keeps a copy of each name of a file that it cannot read */
#define LEAKS_LIBRARY 24 /* the same, where a library allocates for it */

MN_PLUGIN_NOTE(STUB_ID, MN_KIND_LOADER, "");

enum { LARGE = 200000 };
struct mn_parsed {
    mn_plane plane, second;
    int64_t count;
};
static const mn_host *host;
static uint32_t asked;
static void *volatile lost;

static const mn_file *gguf_of(const mn_file *files, uint32_t n, uint32_t stride,
                              uint64_t *largest) {
    const mn_file *found = NULL;
    *largest = 0;
    if (WHAT == SIZEOF_STRIDE)
        stride = sizeof(mn_file);
    for (uint32_t i = 0; i < n; i++) {
        const mn_file *f =
            (const mn_file *)(const void *)((const char *)files + (uint64_t)i * stride);
        if (WHAT == SNOB && (f->flags & ~MN_FILE_NAMED))
            continue;
        if (WHAT == EXACT_FLAG && (f->flags & MN_FILE_NAMED) && f->flags != MN_FILE_NAMED)
            continue;
        if (f->bytes >= 128 && !memcmp(f->map, "GGUF", 4))
            found = f;
        if (f->bytes > *largest)
            *largest = f->bytes;
    }
    return found;
}

static mn_status guess(void *self, const mn_file *files, uint32_t n, uint32_t stride,
                       mn_guess *out) {
    mn_guess g = {.size = sizeof g, .format = "stub", .why = "a stub's"};
    uint64_t largest;
    const mn_file *f = gguf_of(files, n, stride, &largest);
    (void)self;
    if (f || WHAT == GREEDY || (WHAT == SLY_GREEDY && largest > LARGE))
        g.confidence = 100;
    if (WHAT == NO_FORMAT)
        g.format[0] = 0;
    g.size = out->size < sizeof g ? out->size : (uint32_t)sizeof g;
    memcpy(out, &g, g.size);
    return MN_OK;
}

static mn_status fail(mn_error *err, mn_status s, const char *msg) {
    if (!err)
        return s;
    err->status = s;
    snprintf(err->msg, sizeof err->msg, "%s", msg);
    return s;
}

/* What some do in open before they look at anything. */
static void misbehave(void) {
    if (WHAT == CRASH)
        raise(SIGSEGV);
    for (volatile int forever = WHAT == HANG; forever;)
        sleep(1);
    if (WHAT == OPENS_FILES) {
        FILE *in = fopen("/etc/passwd", "r");
        if (in)
            fclose(in);
    }
}

/* A model is one tensor: the end of the file, 64 KiB of it or 64 bytes. */
static mn_status open_model(void *self, const mn_file *files, uint32_t n, uint32_t stride,
                            mn_parsed **out, mn_error *err) {
    uint64_t largest;
    const mn_file *f = gguf_of(files, n, stride, &largest);
    (void)self;
    *out = NULL;
    misbehave();
    if (WHAT == SLY_GREEDY && largest > LARGE)
        return fail(err, MN_UNSUPPORTED, "the stub had only pretended");
    if (!f && WHAT == LEAKS_ERROR)
        lost = malloc(40);
    if (!f && WHAT == LEAKS_LIBRARY)
        lost = strdup("a name that the C library allocates");
    if (!f || WHAT == GREEDY)
        return fail(err, MN_BAD_FILE, "the stub knows no such thing");
    mn_parsed *p = host->alloc(host->self, sizeof *p, 16);
    if (!p)
        return fail(err, MN_OUT_OF_MEMORY, "out of memory: the stub's model");
    if (WHAT == FORGETFUL)
        host->alloc(host->self, 8, 16);
    const uint8_t *bytes = f->map;
    uint64_t size = f->bytes > 66000 ? 65536 : 64;
    *p = (mn_parsed){.plane = {.ptr = bytes + f->bytes - size,
                               .bytes = size,
                               .kind = MN_PLANE_DATA,
                               .dtype = MN_F32,
                               .dim = {(int64_t)size / 4},
                               .stride = {4}}};
    p->second = p->plane;
    if (WHAT == NAME_TWICE) {
        p->plane.bytes = p->second.bytes = size / 2;
        p->plane.dim[0] = p->second.dim[0] = (int64_t)size / 8;
        p->second.ptr = bytes + f->bytes - size / 2;
    }
    if (WHAT == OUTSIDE || (WHAT == SLY_OUTSIDE && f->bytes > LARGE))
        p->plane.ptr = bytes + f->bytes - size + 4;
    for (uint64_t i = 0; WHAT == READS_DATA && i < f->bytes; i++)
        p->count += bytes[i];
    if (WHAT == TRUSTING)
        p->count = bytes[70000]; /* "there is always more" */
    *out = p;
    return MN_OK;
}

static mn_status meta_at(mn_parsed *p, uint32_t i, mn_str *key, mn_str *native, mn_value *v) {
    (void)p;
    if (i > (WHAT == FLOAT_LAYERS || WHAT == KEY_TWICE ? 1 : 0))
        return MN_END;
    *key = *native = (mn_str){"general.architecture", 20};
    mn_value said = {.size = sizeof said, .type = MN_VALUE_STR, .s = {"llama", 5}};
    if (i && WHAT == FLOAT_LAYERS) {
        *key = *native = (mn_str){"llama.block_count", 17};
        said.type = MN_VALUE_FLOAT;
        said.f = 2;
    }
    memcpy(v, &said, v->size < sizeof said ? v->size : sizeof said);
    return MN_OK;
}

static mn_status tensor_at(mn_parsed *p, uint32_t i, mn_tensor_info *out) {
    if (i > (WHAT == NAME_TWICE ? 1 : 0))
        return MN_END;
    mn_tensor_info t = {.size = sizeof t,
                        .n_parts = 1,
                        .n_planes = 1,
                        .plane_stride = sizeof(mn_plane),
                        .name = {"t", 1},
                        .native = {"t", 1},
                        .dtype = {MN_F32, 1, 4, 1},
                        .dim = {p->plane.dim[0]},
                        .n_dim = 1,
                        .planes = i ? &p->second : &p->plane};
    memcpy(out, &t, out->size < sizeof t ? out->size : sizeof t);
    return MN_OK;
}

static void close_model(mn_parsed *p) {
    host->release(host->self, p);
}

static mn_status patterns(void *self, uint32_t i, mn_file_pattern *out) {
    static const char *const texts[] = {"*.gguf", "config.json"};
    (void)self;
    if (WHAT == NO_PATTERNS || (i > 1 && WHAT != ENDLESS))
        return MN_END;
    mn_file_pattern p = {.size = sizeof p, .kind = i ? MN_PATTERN_FOLDER : MN_PATTERN_MODEL};
    p.text.ptr = WHAT == OTHER_PATTERN ? "*.stub" : texts[i % 2];
    if (WHAT == BAD_PATTERN)
        p.text.ptr = "*";
    p.text.len = strlen(p.text.ptr);
    p.flags = WHAT == FICKLE ? asked++ / 2 % 2 : 0;
    p.size = out->size < sizeof p ? out->size : (uint32_t)sizeof p;
    memcpy(out, &p, p.size);
    return MN_OK;
}

static const mn_loader table = {sizeof table, 0,         guess,       open_model,
                                meta_at,      tensor_at, close_model, patterns};
static const void *query(void *self, const char *id) {
    (void)self;
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
