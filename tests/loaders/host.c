#include "host.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t test_fail_after = -1, test_live = 0;

static void *host_alloc(void *self, uint64_t n, uint64_t align) {
    (void)self;
    if (test_fail_after == 0)
        return NULL;
    if (n > (uint64_t)1 << 32)
        return NULL; /* a test never needs that much: a count was believed */
    if (test_fail_after > 0)
        test_fail_after--;
    void *p = NULL;
    if (posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : (size_t)align,
                       n ? (size_t)n : 1))
        return NULL;
    memset(p, 0xA5, (size_t)n);
    test_live++;
    return p;
}

static void host_release(void *self, void *p) {
    (void)self;
    if (p)
        test_live--;
    free(p);
}

static mn_host host = {.size = sizeof host,
                       .abi = MN_ABI_VERSION,
                       .abi_min = MN_ABI_VERSION,
                       .alloc = host_alloc,
                       .release = host_release};

test_plugin test_load(const char *relative_path) {
    char path[4096];
    const char *root = getenv("MINERVA_BUILD_ROOT");
    snprintf(path, sizeof path, "%s/%s", root ? root : ".", relative_path);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        fail_msg("%s", dlerror());
    mn_entry_fn entry = NULL;
    *(void **)&entry = dlsym(object, MN_ENTRY_NAME);
    assert_non_null(entry);
    mn_error err = {.size = sizeof err};
    mn_host other = host;
    mn_host bare = host;
    other.abi = other.abi_min = MN_ABI(99, 0);
    bare.size = offsetof(mn_host, log);
    assert_null(entry(&other, &err));
    assert_null(entry(&bare, &err));
    assert_null(entry(NULL, NULL));
    test_fail_after = 0;
    assert_null(entry(&host, &err));
    assert_int_equal(err.status, MN_OUT_OF_MEMORY);
    test_fail_after = -1;
    const mn_plugin *plugin = entry(&host, &err);
    assert_non_null(plugin);
    assert_null(plugin->query(plugin->self, "mn.backend/1"));
    const mn_loader *loader = plugin->query(plugin->self, MN_LOADER_ID);
    assert_non_null(loader);
    return (test_plugin){plugin, loader};
}

void test_add(test_files *f, const char *name, const void *data, size_t n) {
    assert_true(f->n < 16);
    void *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    if (n)
        memcpy(copy, data, n);
    char *own = strdup(name);
    f->file[f->n++] = (mn_file){{own, strlen(own)}, copy, n, 0, 0};
}

void test_add_text(test_files *f, const char *name, const char *text) {
    test_add(f, name, text, strlen(text));
}

void test_add_path(test_files *f, const char *name, const char *root_env,
                   const char *relative_path) {
    char path[4096];
    const char *root = getenv(root_env);
    snprintf(path, sizeof path, "%s/%s", root ? root : ".", relative_path);
    FILE *in = fopen(path, "rb");
    if (!in)
        fail_msg("%s: cannot be opened", path);
    fseek(in, 0, SEEK_END);
    size_t n = (size_t)ftell(in);
    rewind(in);
    void *data = malloc(n ? n : 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, n, in), n);
    fclose(in);
    test_add(f, name, data, n);
    free(data);
}

void test_clear(test_files *f) {
    for (uint32_t i = 0; i < f->n; i++) {
        free((void *)f->file[i].map);
        free((char *)f->file[i].name.ptr);
    }
    f->n = 0;
}

mn_file *test_file(test_files *f, const char *name) {
    for (uint32_t i = 0; i < f->n; i++)
        if (test_is(f->file[i].name, name))
            return &f->file[i];
    fail_msg("no file %s", name);
    return NULL;
}

void test_drop(test_files *f, const char *name) {
    mn_file *file = test_file(f, name);
    free((void *)file->map);
    free((char *)file->name.ptr);
    *file = f->file[--f->n];
}

bool test_is(mn_str s, const char *z) {
    return s.len == strlen(z) && (!s.len || !memcmp(s.ptr, z, s.len));
}

static void check_tensor(const test_files *f, const mn_tensor_info *t) {
    assert_true(t->name.len > 0);
    assert_true(t->native.len > 0);
    assert_true(t->n_parts == 1);
    assert_true(t->n_planes == 1);
    assert_true(t->plane_stride >= sizeof(mn_plane));
    assert_true(t->n_dim >= 1);
    assert_true(t->n_dim <= MN_MAX_DIM);
    const mn_plane *p = t->planes;
    int64_t step = t->dtype.block_bytes;
    for (uint32_t i = t->n_dim; i-- > 0;) {
        assert_true(t->dim[i] > 0);
        assert_true(p->dim[i] == t->dim[i]);
        assert_true(p->stride[i] == step);
        int64_t n = i + 1 == t->n_dim ? t->dim[i] / t->dtype.block_elems : t->dim[i];
        assert_false(__builtin_mul_overflow(step, n, &step));
    }
    assert_true(p->bytes == (uint64_t)step);
    assert_true(p->kind == MN_PLANE_DATA);
    assert_true(p->dtype == t->dtype.id);
    bool inside = false;
    for (uint32_t i = 0; i < f->n; i++) {
        const char *lo = f->file[i].map;
        const char *at = p->ptr;
        inside |= at >= lo && at <= lo + f->file[i].bytes &&
                  p->bytes <= (uint64_t)(lo + f->file[i].bytes - at);
    }
    assert_true(inside);
}

/* Touches every byte that a value stands for, so that the sanitizer sees what is not there. */
static void check_value(const mn_value *v) {
    volatile uint64_t sum = 0;
    uint32_t of = v->type & ~MN_VALUE_ARRAY;
    assert_true(of >= MN_VALUE_INT);
    assert_true(of <= MN_VALUE_STR);
    if (v->type == MN_VALUE_STR)
        for (uint64_t i = 0; i < v->s.len; i++)
            sum += (uint64_t)v->s.ptr[i];
    if (!(v->type & MN_VALUE_ARRAY))
        return;
    for (uint64_t i = 0; i < v->n; i++) {
        if (of == MN_VALUE_BOOL)
            assert_true(((const uint8_t *)v->array)[i] <= 1);
        else if (of != MN_VALUE_STR)
            sum += ((const uint64_t *)v->array)[i];
        else if (((const mn_str *)v->array)[i].len)
            sum +=
                (uint64_t)((const mn_str *)v->array)[i].ptr[((const mn_str *)v->array)[i].len - 1];
    }
}

mn_status test_open(test_plugin p, const test_files *f, mn_parsed **out, mn_error *err) {
    mn_parsed *m = NULL;
    *err = (mn_error){.size = sizeof *err};
    mn_status status = p.loader->open(p.plugin->self, f->file, f->n, sizeof(mn_file), &m, err);
    if (status) {
        assert_int_equal(err->status, status);
        assert_true(err->msg[0]);
        assert_true(memchr(err->msg, 0, sizeof err->msg));
        assert_null(m);
        return status;
    }
    mn_str key;
    mn_str native;
    mn_value v = {.size = sizeof v};
    for (uint32_t i = 0; p.loader->meta_at(m, i, &key, &native, &v) == MN_OK; i++) {
        assert_true(key.len > 0);
        check_value(&v);
        v = (mn_value){.size = sizeof v};
    }
    mn_tensor_info t = {.size = sizeof t};
    for (uint32_t i = 0; p.loader->tensor_at(m, i, &t) == MN_OK; i++) {
        check_tensor(f, &t);
        t = (mn_tensor_info){.size = sizeof t};
    }
    *out = m;
    return MN_OK;
}

void test_refuse(test_plugin p, const test_files *f, mn_status status, const char *text,
                 const char *text2) {
    mn_error err;
    mn_parsed *m = NULL;
    int64_t before = test_live;
    mn_status got = test_open(p, f, &m, &err);
    if (got == MN_OK)
        fail_msg("opened, expected an error about %s", text ? text : "something");
    if ((text && !strstr(err.msg, text)) || (text2 && !strstr(err.msg, text2)) || got != status)
        fail_msg("status %x, message: %s; expected status %x, '%s' and '%s'", (unsigned)got,
                 err.msg, (unsigned)status, text ? text : "", text2 ? text2 : "");
    assert_int_equal(test_live, before);
}

void test_survive(test_plugin p, const test_files *f) {
    mn_error err;
    mn_parsed *m = NULL;
    int64_t before = test_live;
    mn_guess g = {.size = sizeof g};
    assert_int_equal(p.loader->guess(p.plugin->self, f->file, f->n, sizeof(mn_file), &g), MN_OK);
    if (test_open(p, f, &m, &err) == MN_OK)
        p.loader->close(m);
    assert_int_equal(test_live, before);
}

void test_every_allocation(test_plugin p, const test_files *f) {
    for (int64_t k = 0;; k++) {
        mn_error err = {.size = sizeof err};
        mn_parsed *m = NULL;
        int64_t before = test_live;
        test_fail_after = k;
        mn_status status = p.loader->open(p.plugin->self, f->file, f->n, sizeof(mn_file), &m, &err);
        bool all = test_fail_after > 0;
        test_fail_after = -1;
        if (status == MN_OK)
            p.loader->close(m);
        assert_int_equal(test_live, before);
        if (status == MN_OK && all)
            return;
        if (status != MN_OK)
            assert_int_equal(status, MN_OUT_OF_MEMORY);
        assert_true(k < 10000);
    }
}

static bool find_value(test_plugin p, mn_parsed *m, const char *key, mn_str *native, mn_value *v) {
    mn_str k;
    mn_str own;
    *v = (mn_value){.size = sizeof *v};
    for (uint32_t i = 0; p.loader->meta_at(m, i, &k, &own, v) == MN_OK; i++) {
        if (test_is(k, key)) {
            if (native)
                *native = own;
            return true;
        }
        *v = (mn_value){.size = sizeof *v};
    }
    return false;
}

mn_value test_value(test_plugin p, mn_parsed *m, const char *key, mn_str *native) {
    mn_value v;
    if (!find_value(p, m, key, native, &v))
        fail_msg("no key %s", key);
    return v;
}

bool test_has_key(test_plugin p, mn_parsed *m, const char *key) {
    mn_value v;
    return find_value(p, m, key, NULL, &v);
}

bool test_tensor(test_plugin p, mn_parsed *m, const char *name, mn_tensor_info *info) {
    *info = (mn_tensor_info){.size = sizeof *info};
    for (uint32_t i = 0; p.loader->tensor_at(m, i, info) == MN_OK; i++) {
        if (test_is(info->name, name))
            return true;
        *info = (mn_tensor_info){.size = sizeof *info};
    }
    return false;
}

uint32_t test_n_tensors(test_plugin p, mn_parsed *m) {
    mn_tensor_info t = {.size = sizeof t};
    uint32_t n = 0;
    while (p.loader->tensor_at(m, n, &t) == MN_OK)
        n++;
    return n;
}

uint32_t test_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

void put(bytes *b, const void *src, size_t n) {
    if (b->len + n > b->cap) {
        b->cap = (b->len + n) * 2;
        b->ptr = realloc(b->ptr, b->cap);
        assert_non_null(b->ptr);
    }
    if (n)
        memcpy(b->ptr + b->len, src, n);
    b->len += n;
}

void put_int(bytes *b, uint64_t v, int n) {
    for (int i = 0; i < n; i++) {
        unsigned char c = (unsigned char)(v >> 8 * i);
        put(b, &c, 1);
    }
}
