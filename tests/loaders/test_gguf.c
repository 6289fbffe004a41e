/* The GGUF loader: good files, every header field at its limits, truncation at every byte, random
 * damage, memory. */
#include "host.h"
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

static test_plugin gguf;

/* ---- building files -------------------------------------------------------------------------- */
static void put_str(bytes *b, const char *s) {
    put_int(b, strlen(s), 8);
    put(b, s, strlen(s));
}
static void kv_str(bytes *b, const char *key, const char *v) {
    put_str(b, key);
    put_int(b, 8, 4);
    put_str(b, v);
}
static void kv_u32(bytes *b, const char *key, uint32_t v) {
    put_str(b, key);
    put_int(b, 4, 4);
    put_int(b, v, 4);
}
static void head(bytes *b, uint32_t version, uint64_t n_tensors, uint64_t n_kv) {
    put(b, "GGUF", 4);
    put_int(b, version, 4);
    put_int(b, n_tensors, 8);
    put_int(b, n_kv, 8);
}
static void tensor(bytes *b, const char *name, uint32_t n_dim, uint64_t d0, uint64_t d1,
                   uint32_t type, uint64_t offset) {
    put_str(b, name);
    put_int(b, n_dim, 4);
    put_int(b, d0, 8);
    if (n_dim > 1)
        put_int(b, d1, 8);
    for (uint32_t i = 2; i < n_dim && i < 8; i++)
        put_int(b, 1, 8);
    put_int(b, type, 4);
    put_int(b, offset, 8);
}
static void pad(bytes *b, size_t align) {
    while (b->len % align)
        put_int(b, 0, 1);
}
static void fill(bytes *b, size_t n) {
    while (n--)
        put_int(b, 7, 1);
}

/* Every metadata type, two tensors: f32 [3, 4] and q8_0 [2, 32]. header: its length. */
static bytes small(size_t *header) {
    bytes b = {0};
    head(&b, 3, 2, 17);
    kv_str(&b, "general.architecture", "llama");
    for (uint32_t type = 0; type < 13; type++) { /* one scalar and one array of each */
        static const int size[13] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
        char key[32];
        if (type == 8 || type == 9)
            continue;
        snprintf(key, sizeof key, "k%u", type);
        put_str(&b, key);
        put_int(&b, type, 4);
        put_int(&b, 1, size[type]);
    }
    put_str(&b, "a.int");
    put_int(&b, 9, 4);
    put_int(&b, 5, 4);
    put_int(&b, 3, 8);
    put_int(&b, 1, 4);
    put_int(&b, (uint64_t)-2, 4);
    put_int(&b, 3, 4);
    put_str(&b, "a.f32");
    put_int(&b, 9, 4);
    put_int(&b, 6, 4);
    put_int(&b, 1, 8);
    put_int(&b, 0x3FC00000, 4);
    put_str(&b, "a.str");
    put_int(&b, 9, 4);
    put_int(&b, 8, 4);
    put_int(&b, 2, 8);
    put_str(&b, "ab");
    put_str(&b, "");
    put_str(&b, "a.bool");
    put_int(&b, 9, 4);
    put_int(&b, 7, 4);
    put_int(&b, 2, 8);
    put_int(&b, 1, 2);
    kv_u32(&b, "general.alignment", 32);
    tensor(&b, "one", 2, 4, 3, 0, 0);
    tensor(&b, "two", 2, 32, 2, 8, 64);
    if (header)
        *header = b.len;
    pad(&b, 32);
    fill(&b, 64 + 68);
    return b;
}

static void refuse(bytes b, mn_status status, const char *text, const char *text2) {
    test_files f = {0};
    test_add(&f, "m.gguf", b.ptr, b.len);
    test_refuse(gguf, &f, status, text, text2);
    test_clear(&f);
    free(b.ptr);
}

/* ---- good ------------------------------------------------------------------------------------ */
static void good_small(void **state) {
    (void)state;
    bytes b = small(NULL);
    test_files f = {0};
    test_add(&f, "m.gguf", b.ptr, b.len);
    mn_parsed *m;
    mn_error err;
    mn_tensor_info t;
    assert_int_equal(test_open(gguf, &f, &m, &err), MN_OK);
    assert_true(test_tensor(gguf, m, "one", &t));
    assert_true(t.n_dim == 2);
    assert_true(t.dim[0] == 3);
    assert_true(t.dim[1] == 4);
    assert_true(t.dtype.id == MN_F32);
    assert_true(t.planes->stride[0] == 16);
    assert_true(t.planes->stride[1] == 4);
    assert_true(test_tensor(gguf, m, "two", &t));
    assert_true(t.dtype.id == MN_Q8_0);
    assert_true(t.planes->stride[0] == 34);
    assert_true(t.planes->stride[1] == 34);
    assert_true(t.planes->bytes == 68);
    mn_value v = test_value(gguf, m, "a.int", NULL);
    assert_true(v.type == (MN_VALUE_ARRAY | MN_VALUE_INT));
    assert_true(v.n == 3);
    assert_true(((const int64_t *)v.array)[1] == -2);
    v = test_value(gguf, m, "a.f32", NULL);
    assert_true(v.type == (MN_VALUE_ARRAY | MN_VALUE_FLOAT));
    assert_true(((const double *)v.array)[0] == 1.5);
    v = test_value(gguf, m, "a.str", NULL);
    assert_true(v.n == 2);
    assert_true(test_is(((const mn_str *)v.array)[0], "ab"));
    assert_true(test_is(((const mn_str *)v.array)[1], ""));
    /* R4: an older host's smaller struct is not written past its end */
    struct {
        uint32_t size;
        uint32_t type;
        uint64_t guard;
    } little = {8, 0, 77};
    assert_int_equal(gguf.loader->meta_at(m, 0, NULL, NULL, (mn_value *)(void *)&little), MN_OK);
    assert_true(little.guard == 77);
    assert_true(little.type == MN_VALUE_STR);
    gguf.loader->close(m);
    test_every_allocation(gguf, &f);
    test_clear(&f);
    free(b.ptr);
}

static void good_storyteller(void **state) {
    (void)state;
    static const struct {
        const char *file;
        uint32_t dtype;
    } list[] = {{"storyteller-q4_0.gguf", MN_Q4_0}, {"storyteller-q8_0.gguf", MN_Q8_0}};
    for (int i = 0; i < 2; i++) {
        test_files f = {0};
        mn_parsed *m;
        mn_error err;
        mn_tensor_info t;
        test_add_path(&f, list[i].file, "MINERVA_TEST_DATA", list[i].file);
        mn_guess g = {.size = sizeof g};
        assert_int_equal(gguf.loader->guess(gguf.plugin->self, f.file, f.n, sizeof(mn_file), &g),
                         MN_OK);
        assert_int_equal(g.confidence, 100);
        assert_string_equal(g.format, "gguf");
        if (test_open(gguf, &f, &m, &err))
            fail_msg("%s", err.msg);
        assert_true(test_tensor(gguf, m, "blk.0.attn_q.weight", &t));
        assert_true(t.dtype.id == list[i].dtype);
        assert_true(t.dim[0] == 256);
        assert_true(t.dim[1] == 256);
        assert_true(test_tensor(gguf, m, "token_embd.weight", &t));
        assert_true(t.dim[0] == 2048);
        assert_true(t.dim[1] == 256);
        assert_int_equal(test_value(gguf, m, "llama.block_count", NULL).i, 6);
        gguf.loader->close(m);
        test_every_allocation(gguf, &f);
        test_clear(&f);
    }
}

static void good_vocabulary_only(void **state) {
    (void)state;
    bytes b = {0};
    head(&b, 2, 0, 1);
    kv_str(&b, "general.architecture", "qwen2");
    test_files f = {0};
    mn_parsed *m;
    mn_error err;
    test_add(&f, "vocab.gguf", b.ptr, b.len);
    assert_int_equal(test_open(gguf, &f, &m, &err), MN_OK);
    assert_int_equal(test_n_tensors(gguf, m), 0);
    gguf.loader->close(m);
    test_clear(&f);
    free(b.ptr);
}

/* Each type with two rows of 256: id and size by the ABI's table, one byte less refused. */
static void good_types(void **state) {
    (void)state;
#define ROW(name, id, elems, size, planes) {id, elems, size},
    static const struct { uint32_t id, elems, size; } abi[] = {MN_DTYPES(ROW)};
    static const struct {
        uint32_t ggml;
        uint32_t id;
    } list[] = {
        {0, MN_F32},      {1, MN_F16},    {2, MN_Q4_0},      {3, MN_Q4_1},     {6, MN_Q5_0},
        {7, MN_Q5_1},     {8, MN_Q8_0},   {9, MN_Q8_1},      {10, MN_Q2_K},    {11, MN_Q3_K},
        {12, MN_Q4_K},    {13, MN_Q5_K},  {14, MN_Q6_K},     {15, MN_Q8_K},    {20, MN_IQ4_NL},
        {23, MN_IQ4_XS},  {24, MN_I8},    {25, MN_I16},      {26, MN_I32},     {27, MN_I64},
        {28, MN_F64},     {30, MN_BF16},  {39, MN_MXFP4},    {16, MN_IQ2_XXS}, {17, MN_IQ2_XS},
        {18, MN_IQ3_XXS}, {19, MN_IQ1_S}, {21, MN_IQ3_S},    {22, MN_IQ2_S},   {29, MN_IQ1_M},
        {34, MN_TQ1_0},   {35, MN_TQ2_0}, {40, MN_NVFP4_64}, {41, MN_Q1_0},    {42, MN_Q2_0}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        size_t k = 0;
        while (abi[k].id != list[i].id)
            k++;
        bytes b = {0};
        head(&b, 3, 1, 1);
        kv_str(&b, "general.architecture", "llama");
        tensor(&b, "t", 2, 256, 2, list[i].ggml, 0);
        pad(&b, 32);
        fill(&b, 512 / abi[k].elems * abi[k].size);
        test_files f = {0};
        mn_parsed *m;
        mn_error err;
        mn_tensor_info t;
        test_add(&f, "m.gguf", b.ptr, b.len);
        if (test_open(gguf, &f, &m, &err))
            fail_msg("%s", err.msg);
        assert_true(test_tensor(gguf, m, "t", &t));
        assert_true(t.dtype.id == list[i].id);
        assert_true(t.planes->stride[0] == 256 / abi[k].elems * abi[k].size);
        gguf.loader->close(m);
        test_clear(&f);
        b.len--;
        refuse(b, MN_BAD_FILE, "end of the file", "'t'");
    }
}

/* ---- splits ---------------------------------------------------------------------------------- */
static bytes split(uint32_t no, uint32_t count, uint32_t total, const char *name) {
    bytes b = {0};
    head(&b, 3, 1, 4);
    kv_str(&b, "general.architecture", "llama");
    kv_u32(&b, "split.no", no);
    kv_u32(&b, "split.count", count);
    kv_u32(&b, "split.tensors.count", total);
    tensor(&b, name, 1, 8, 0, 0, 0);
    pad(&b, 32);
    fill(&b, 32);
    return b;
}

static void add_split(test_files *f, const char *file, uint32_t no, uint32_t count, uint32_t total,
                      const char *name) {
    bytes b = split(no, count, total, name);
    test_add(f, file, b.ptr, b.len);
    free(b.ptr);
}

static void splits(void **state) {
    (void)state;
    test_files f = {0};
    mn_parsed *m;
    mn_error err;
    mn_tensor_info t;
    add_split(&f, "m-00003-of-00003.gguf", 2, 3, 3, "c");
    add_split(&f, "m-00001-of-00003.gguf", 0, 3, 3, "a");
    add_split(&f, "m-00002-of-00003.gguf", 1, 3, 3, "b");
    test_add_text(&f, "tokenizer.json", "{}");
    if (test_open(gguf, &f, &m, &err))
        fail_msg("%s", err.msg);
    assert_true(test_n_tensors(gguf, m) == 3);
    assert_true(test_tensor(gguf, m, "b", &t));
    mn_value v = {.size = sizeof v};
    mn_str key;
    mn_str native;
    uint32_t n_meta = 0; /* the first part's keys alone */
    while (gguf.loader->meta_at(m, n_meta, &key, &native, &v) == MN_OK)
        n_meta++;
    assert_int_equal(n_meta, 4);
    gguf.loader->close(m);
    test_every_allocation(gguf, &f);
    test_drop(&f, "m-00002-of-00003.gguf");
    test_refuse(gguf, &f, MN_BAD_FILE, "m-00002-of-00003.gguf", "missing");
    add_split(&f, "m-00002-of-00003.gguf", 1, 3, 3, "a");
    test_refuse(gguf, &f, MN_BAD_FILE, "'a'", "twice");
    test_drop(&f, "m-00002-of-00003.gguf");
    for (uint32_t no = 0; no < 3; no += 2) {
        add_split(&f, "m-00002-of-00003.gguf", no, 3, 3, "b");
        test_refuse(gguf, &f, MN_BAD_FILE, "split.no", "m-00002");
        test_drop(&f, "m-00002-of-00003.gguf");
    }
    add_split(&f, "n-00002-of-00003.gguf", 1, 3, 3, "b");
    test_refuse(gguf, &f, MN_BAD_FILE, "not parts of one model", NULL);
    test_clear(&f);
    add_split(&f, "m-00001-of-00002.gguf", 0, 2, 7, "a");
    add_split(&f, "m-00002-of-00002.gguf", 1, 2, 7, "b");
    test_refuse(gguf, &f, MN_BAD_FILE, "split.tensors.count", "7");
    test_clear(&f);
    add_split(&f, "renamed.gguf", 0, 2, 2, "a");
    test_refuse(gguf, &f, MN_BAD_FILE, "split.count", "renamed.gguf");
    add_split(&f, "other.gguf", 0, 1, 1, "a");
    test_refuse(gguf, &f, MN_BAD_FILE, "not parts of one model", "other.gguf");
    test_clear(&f);
    /* a whole file may say that it has no parts */
    add_split(&f, "whole.gguf", 0, 0, 1, "a");
    if (test_open(gguf, &f, &m, &err))
        fail_msg("%s", err.msg);
    gguf.loader->close(m);
    test_clear(&f);
    add_split(&f, "m-00001-of-00002.gguf", 0, 2, 2, "a");
    add_split(&f, "m-00001-of-00002.gguf", 0, 2, 2, "a");
    test_refuse(gguf, &f, MN_BAD_FILE, "m-00001-of-00002.gguf", "twice");
    test_clear(&f);
    add_split(&f, "m-00000-of-00002.gguf", 0, 2, 2, "a");
    test_refuse(gguf, &f, MN_BAD_FILE, "part number 0", NULL);
    test_clear(&f);
    test_refuse(gguf, &f, MN_BAD_FILE, "no GGUF file", NULL);
}

/* ---- bad ------------------------------------------------------------------------------------- */
static void bad_header(void **state) {
    (void)state;
    bytes b = {0};
    refuse(b, MN_BAD_FILE, "m.gguf", "truncated");
    b = small(NULL);
    memcpy(b.ptr, "GGML", 4);
    refuse(b, MN_BAD_FILE, "not a GGUF file", NULL);
    b = (bytes){0};
    head(&b, 1, 0, 0);
    refuse(b, MN_UNSUPPORTED, "version 1", "2 or 3");
    b = (bytes){0};
    head(&b, 4, 0, 0);
    refuse(b, MN_UNSUPPORTED, "version 4", NULL);
    b = (bytes){0};
    head(&b, 0, 0, 0);
    refuse(b, MN_UNSUPPORTED, "version 0", NULL);
    b = (bytes){0};
    head(&b, 0x03000000, 0, 0);
    refuse(b, MN_UNSUPPORTED, "big-endian", NULL);
    b = (bytes){0};
    head(&b, 3, UINT64_MAX, 0);
    refuse(b, MN_BAD_FILE, "tensors do not fit", NULL);
    b = (bytes){0};
    head(&b, 3, 0, UINT64_MAX);
    refuse(b, MN_BAD_FILE, "metadata pairs do not fit", NULL);
    b = (bytes){0};
    head(&b, 3, 0, 0);
    refuse(b, MN_BAD_FILE, "general.architecture", "missing");
    b = (bytes){0};
    head(&b, 3, 0, 1);
    kv_u32(&b, "general.architecture", 3);
    refuse(b, MN_BAD_FILE, "general.architecture", "not a string");
}

static void bad_meta(void **state) {
    (void)state;
    bytes b = {0};
    head(&b, 3, 0, 2);
    kv_str(&b, "same.key", "x");
    kv_u32(&b, "same.key", 3);
    refuse(b, MN_BAD_FILE, "same.key", "twice");
    b = (bytes){0};
    head(&b, 3, 0, 1);
    put_str(&b, "");
    put_int(&b, 4, 4);
    put_int(&b, 4, 4);
    refuse(b, MN_BAD_FILE, "metadata key of 0 bytes", NULL);
    b = (bytes){0};
    head(&b, 3, 0, 1);
    put_str(&b, "k");
    put_int(&b, 13, 4);
    fill(&b, 9);
    refuse(b, MN_BAD_FILE, "unknown type 13", "'k'");
    b = (bytes){0};
    head(&b, 3, 0, 1);
    put_str(&b, "k");
    put_int(&b, 9, 4);
    put_int(&b, 9, 4);
    put_int(&b, 1, 8);
    fill(&b, 30);
    refuse(b, MN_UNSUPPORTED, "array of arrays", "'k'");
    b = (bytes){0};
    head(&b, 3, 0, 1);
    put_str(&b, "k");
    put_int(&b, 9, 4);
    put_int(&b, 99, 4);
    put_int(&b, 1, 8);
    refuse(b, MN_BAD_FILE, "unknown type 99", NULL);
    for (uint32_t type = 0; type < 13; type++) {
        if (type == 9)
            continue;
        b = (bytes){0};
        head(&b, 3, 0, 1);
        put_str(&b, "huge");
        put_int(&b, 9, 4);
        put_int(&b, type, 4);
        put_int(&b, UINT64_MAX / 2, 8);
        refuse(b, MN_BAD_FILE, "huge", "does not fit");
    }
    b = (bytes){0};
    head(&b, 3, 0, 1);
    put_str(&b, "k");
    put_int(&b, 7, 4);
    put_int(&b, 2, 1);
    refuse(b, MN_BAD_FILE, "bool", "'k'");
    b = (bytes){0};
    head(&b, 3, 0, 1);
    put_str(&b, "k");
    put_int(&b, 10, 4);
    put_int(&b, UINT64_MAX, 8);
    refuse(b, MN_BAD_FILE, "2^63-1", "'k'");
    b = (bytes){0};
    head(&b, 3, 0, 1);
    kv_str(&b, "k", "\xff\xfe");
    refuse(b, MN_BAD_FILE, "UTF-8", "'k'");
    b = (bytes){0};
    head(&b, 3, 0, 1);
    kv_str(&b, "\xc0\x80", "x");
    refuse(b, MN_BAD_FILE, "UTF-8", NULL);
    b = (bytes){0};
    head(&b, 3, 0, 1);
    put_str(&b, "k");
    put_int(&b, 8, 4);
    put_int(&b, UINT64_MAX - 3, 8);
    fill(&b, 9);
    refuse(b, MN_BAD_FILE, "truncated", "'k'");
    static const uint32_t alignments[] = {0, 3, 48, 0x80000000u, UINT32_MAX};
    for (int i = 0; i < 5; i++) {
        b = (bytes){0};
        head(&b, 3, 0, 1);
        kv_u32(&b, "general.alignment", alignments[i]);
        refuse(b, MN_BAD_FILE, "general.alignment", NULL);
    }
    static const char *const integers[] = {"general.alignment", "split.count", "split.no"};
    for (int i = 0; i < 3; i++) {
        b = (bytes){0};
        head(&b, 3, 0, 1);
        kv_str(&b, integers[i], "2");
        refuse(b, MN_BAD_FILE, integers[i], "not an integer");
    }
}

/* One tensor described so, then 64 bytes of data. */
static bytes one(const char *name, uint32_t n_dim, uint64_t d0, uint64_t d1, uint32_t type,
                 uint64_t offset) {
    bytes b = {0};
    head(&b, 3, 1, 1);
    kv_str(&b, "general.architecture", "llama");
    tensor(&b, name, n_dim, d0, d1, type, offset);
    pad(&b, 32);
    fill(&b, 64);
    return b;
}

static void bad_tensors(void **state) {
    (void)state;
    refuse(one("t", 0, 4, 1, 0, 0), MN_BAD_FILE, "0 dimensions", "'t'");
    refuse(one("t", 7, 4, 1, 0, 0), MN_BAD_FILE, "7 dimensions", "'t'");
    refuse(one("t", UINT32_MAX, 4, 1, 0, 0), MN_BAD_FILE, "dimensions", "'t'");
    refuse(one("output.weight", 2, 0, 1, 0, 0), MN_BAD_FILE, "dimension of 0", "'output.weight'");
    refuse(one("output.weight", 2, 4, 0, 0, 0), MN_BAD_FILE, "dimension of 0", "'output.weight'");
    refuse(one("t", 2, 4, 1, 99, 128), MN_BAD_FILE, "end of the file", "'t'");
    refuse(one("t", 2, 0, 1, 99, 128), MN_BAD_FILE, "end of the file", "'t'");
    refuse(one("t", 2, UINT64_MAX, 1, 0, 0), MN_BAD_FILE, "dimension of", "'t'");
    refuse(one("t", 2, (uint64_t)1 << 63, 1, 0, 0), MN_BAD_FILE, "dimension of", "'t'");
    refuse(one("t", 2, INT64_MAX, INT64_MAX, 0, 0), MN_BAD_FILE, "overflows", "'t'");
    refuse(one("t", 2, (uint64_t)1 << 32, (uint64_t)1 << 32, 0, 0), MN_BAD_FILE, "overflows",
           "'t'");
    refuse(one("t", 2, (uint64_t)1 << 31, (uint64_t)1 << 31, 0, 0), MN_BAD_FILE, "overflows",
           "'t'");
    refuse(one("t", 2, 4, 5, 0, 0), MN_BAD_FILE, "end of the file", "'t'");
    refuse(one("t", 2, 4, 4, 0, 32), MN_BAD_FILE, "end of the file", "'t'");
    refuse(one("t", 2, 4, 4, 0, UINT64_MAX - 31), MN_BAD_FILE, "overflows", "'t'");
    refuse(one("t", 2, 4, 4, 0, (uint64_t)1 << 62), MN_BAD_FILE, "end of the file", "'t'");
    refuse(one("t", 2, 4, 2, 0, 16), MN_BAD_FILE, "general.alignment", "'t'");
    refuse(one("t", 2, 31, 1, 8, 0), MN_BAD_FILE, "multiple of 32", "q8_0");
    refuse(one("t", 2, 32, 1, 12, 0), MN_BAD_FILE, "multiple of 256", "q4_k");
    static const uint32_t types[] = {4, 5, 31, 36, 43, 38, 1000, UINT32_MAX};
    for (int i = 0; i < 8; i++)
        refuse(one("blk.1.attn_q.weight", 2, 32, 1, types[i], 0), MN_UNSUPPORTED, "GGML type",
               "'blk.1.attn_q.weight'");
    refuse(one("", 2, 4, 4, 0, 0), MN_BAD_FILE, "tensor name of 0 bytes", NULL);
    bytes b = {0};
    head(&b, 3, 2, 1);
    kv_str(&b, "general.architecture", "llama");
    tensor(&b, "same", 1, 8, 0, 0, 0);
    tensor(&b, "same", 1, 8, 0, 0, 32);
    pad(&b, 32);
    fill(&b, 64);
    refuse(b, MN_BAD_FILE, "'same'", "twice");
    b = (bytes){0};
    head(&b, 3, 2, 1);
    kv_str(&b, "general.architecture", "llama");
    tensor(&b, "a", 1, 9, 0, 0, 0);
    tensor(&b, "b", 1, 8, 0, 0, 32);
    pad(&b, 32);
    fill(&b, 64);
    refuse(b, MN_BAD_FILE, "overlap", "'b'");
    refuse(one("output.weight", 2, 256, 1, 31, 0), MN_UNSUPPORTED, "GGML type 31 (Q4_0_4_4)",
           "q4_0");
    refuse(one("output.weight", 2, 256, 1, 36, 0), MN_UNSUPPORTED, "GGML type 36 (IQ4_NL_4_4)",
           "iq4_nl");
    refuse(one("output.weight", 2, 256, 1, 99, 0), MN_UNSUPPORTED, "GGML type 99 (unknown)",
           "'output.weight'");
}

/* Values that no graph reads may be of any type, or none at all. */
static void values_not_read(void **state) {
    (void)state;
    bytes b = {0};
    test_files f = {0};
    mn_parsed *m;
    mn_tensor_info t;
    mn_error err;
    head(&b, 3, 6, 1);
    kv_str(&b, "general.architecture", "llama");
    tensor(&b, "empty", 2, 0, 4, 0, 32);
    tensor(&b, "blk.0.attn_q.weight", 1, 8, 0, 0, 64);
    tensor(&b, "odd", 1, 256, 0, 31, 0);
    tensor(&b, "blk.0.odd", 1, 256, 0, 99, 32);
    tensor(&b, "odd.last", 1, 256, 0, 99, 96);
    tensor(&b, "blk.0.attn_rot_embd.weight", 1, 256, 0, 99, 160);
    pad(&b, 32);
    fill(&b, 192);
    test_add(&f, "m.gguf", b.ptr, b.len);
    if (test_open(gguf, &f, &m, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(test_n_tensors(gguf, m), 4);
    assert_true(test_tensor(gguf, m, "odd", &t));
    assert_int_equal(t.dtype.id, MN_U8);
    assert_int_equal(t.dim[0], 32);
    assert_true(test_tensor(gguf, m, "odd.last", &t));
    assert_int_equal(t.dim[0], 64);
    gguf.loader->close(m);
    test_every_allocation(gguf, &f);
    test_clear(&f);
    free(b.ptr);
}

/* The data lies where the file's alignment puts it, also at an odd address. */
static void every_alignment(void **state) {
    (void)state;
    for (uint32_t align = 1; align <= 1u << 16; align *= 2) {
        bytes b = {0};
        test_files f = {0};
        mn_parsed *m;
        mn_tensor_info t;
        mn_error err;
        head(&b, 3, 2, 2);
        kv_str(&b, "general.architecture", "llama");
        kv_u32(&b, "general.alignment", align);
        tensor(&b, "first", 1, 4, 0, 0, 0);
        tensor(&b, "second.", 1, 4, 0, 0, align > 16 ? align : 16);
        pad(&b, align);
        const size_t data = b.len;
        fill(&b, (align > 16 ? align : 16) + 16);
        test_add(&f, "a.gguf", b.ptr, b.len);
        assert_int_equal(test_open(gguf, &f, &m, &err), MN_OK);
        assert_true(test_tensor(gguf, m, "second.", &t));
        assert_ptr_equal(t.planes->ptr,
                         (const char *)f.file[0].map + data + (align > 16 ? align : 16));
        gguf.loader->close(m);
        test_clear(&f);
        free(b.ptr);
    }
}

static void every_truncation(void **state) {
    (void)state;
    size_t header;
    bytes b = small(&header);
    for (size_t n = 0; n < b.len; n++) {
        test_files f = {0};
        test_add(&f, "m.gguf", b.ptr, n);
        test_refuse(gguf, &f, MN_BAD_FILE, "m.gguf", NULL);
        test_clear(&f);
    }
    free(b.ptr);
}

/* Every field of the header is among these places; 1, 2, 4 and 8 bytes wide. */
static void every_boundary(void **state) {
    (void)state;
    size_t header;
    bytes b = small(&header);
    static const uint64_t values[] = {0,          1,
                                      0x7F,       0x80,
                                      0xFF,       0x7FFFFFFF,
                                      0x80000000, 0xFFFFFFFF,
                                      INT64_MAX,  (uint64_t)1 << 63,
                                      UINT64_MAX, UINT64_MAX - 31};
    for (size_t at = 0; at < header; at++)
        for (size_t w = 1; w <= 8; w *= 2)
            for (size_t k = 0; k < sizeof values / sizeof *values && at + w <= header; k++) {
                test_files f = {0};
                test_add(&f, "m.gguf", b.ptr, b.len);
                unsigned char *map = (unsigned char *)f.file[0].map;
                for (size_t i = 0; i < w; i++)
                    map[at + i] = (unsigned char)(values[k] >> 8 * i);
                test_survive(gguf, &f);
                test_clear(&f);
            }
    free(b.ptr);
}

static void random_damage(void **state) {
    (void)state;
    bytes b = small(NULL);
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        test_files f = {0};
        size_t n = test_random(&seed) % 8 ? b.len : test_random(&seed) % b.len;
        test_add(&f, "m.gguf", b.ptr, n);
        for (uint32_t k = 1 + test_random(&seed) % 6; k-- && n;)
            ((unsigned char *)f.file[0].map)[test_random(&seed) % n] =
                (unsigned char)test_random(&seed);
        test_survive(gguf, &f);
        test_clear(&f);
    }
    free(b.ptr);
}

static void arguments(void **state) {
    (void)state;
    mn_parsed *m = NULL;
    mn_error err = {.size = sizeof err};
    mn_guess g = {.size = sizeof g};
    test_files f = {0};
    test_add_text(&f, "x.gguf", "GG");
    assert_int_equal(gguf.loader->open(gguf.plugin->self, NULL, 1, sizeof(mn_file), &m, &err),
                     MN_INVALID);
    assert_int_equal(gguf.loader->open(gguf.plugin->self, f.file, 1, 8, &m, &err), MN_INVALID);
    assert_int_equal(gguf.loader->open(gguf.plugin->self, f.file, 1, sizeof(mn_file), &m, NULL),
                     MN_BAD_FILE);
    assert_int_equal(gguf.loader->guess(gguf.plugin->self, f.file, 1, sizeof(mn_file), &g), MN_OK);
    assert_true(g.confidence > 0);
    assert_true(g.confidence < 100);
    gguf.loader->close(NULL);
    test_clear(&f);

    /* in the folder of a checkpoint the checkpoint is meant, which its loader claims with 90 */
    static const struct {
        const char *others[2];
        bool yields;
    } folders[] = {{{"config.json", "tokenizer.json"}, false},
                   {{"config.json", "adapter_model.safetensors"}, false},
                   {{"other.safetensors", "model.safetensors"}, false},
                   {{"config.json", "model-00001-of-00002.safetensors"}, true}};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        test_add_text(&f, "x.gguf", "GGUF");
        test_add_text(&f, folders[i].others[0], "{}");
        test_add_text(&f, folders[i].others[1], "{}");
        g = (mn_guess){.size = sizeof g};
        assert_int_equal(gguf.loader->guess(gguf.plugin->self, f.file, f.n, sizeof(mn_file), &g),
                         MN_OK);
        assert_true(folders[i].yields ? g.confidence > 0 && g.confidence < 90
                                      : g.confidence == 100);
        test_clear(&f);
    }
}

static int load(void **state) {
    (void)state;
    gguf = test_load("loaders/gguf/gguf.so");
    return test_is(gguf.plugin->id, "gguf") ? 0 : -1;
}

static int unload(void **state) {
    (void)state;
    gguf.plugin->shutdown(gguf.plugin->self);
    return test_live ? -1 : 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_small),
        cmocka_unit_test(good_storyteller),
        cmocka_unit_test(good_vocabulary_only),
        cmocka_unit_test(good_types),
        cmocka_unit_test(splits),
        cmocka_unit_test(bad_header),
        cmocka_unit_test(bad_meta),
        cmocka_unit_test(bad_tensors),
        cmocka_unit_test(values_not_read),
        cmocka_unit_test(every_alignment),
        cmocka_unit_test(every_truncation),
        cmocka_unit_test(every_boundary),
        cmocka_unit_test(random_damage),
        cmocka_unit_test(arguments),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
