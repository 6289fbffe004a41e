/* test_base.c -- errors, memory, strings, numbers, data types, files. */
#include "unit.h"
#include "base/ledger.h"
#include "base/sealed.h"
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void errors(void **state) {
    (void)state;
    mn_error err = MN_ERROR_INIT;
    assert_int_equal(mn_fail(&err, MN_BAD_FILE, "%s: found %d", "key", 3), MN_BAD_FILE);
    assert_string_equal(err.msg, "key: found 3");
    assert_int_equal(err.node, ~0u);
    assert_int_equal(mn_fail_in(&err, MN_INVALID, "file %s", "a.gguf"), MN_BAD_FILE);
    assert_string_equal(err.msg, "file a.gguf: key: found 3");
    mn_fail(&err, MN_BAD_FILE, "again: %s", err.msg); /* an argument inside the target */
    assert_string_equal(err.msg, "again: file a.gguf: key: found 3");
    assert_int_equal(mn_fail_node(&err, MN_UNSUPPORTED, 7, "op"), MN_UNSUPPORTED);
    assert_int_equal(err.node, 7);
    mn_fail(&err, MN_BAD_FILE, "key \"%s\"", "a\x1b[31m\n\x7f\xC3\xA4");
    assert_string_equal(err.msg, "key \"a\\x1b[31m \\x7f\xC3\xA4\"");
    assert_int_equal(mn_fail(NULL, MN_INVALID, "nobody listens"), MN_INVALID);
    assert_int_equal(mn_fail_in(NULL, MN_INVALID, "nobody"), MN_INVALID);

    char longer[1000];
    /* cut between characters */
    for (size_t i = 0; i < 998; i += 2)
        memcpy(longer + i, "\xC3\xA4", 2);
    longer[998] = 0;
    mn_fail(&err, MN_INVALID, "x%s", longer);
    assert_int_equal(strlen(err.msg), 487);
    mn_fail(&err, MN_INVALID, "%s", longer);
    assert_int_equal(strlen(err.msg), 486);
    assert_int_equal(mn_utf8_check(err.msg, 486), 486);

    struct {
        mn_error err;
    } old = {{.size = offsetof(mn_error, msg) + 8}}; /* of an older struct */
    memset(old.err.msg, '#', sizeof old.err.msg);
    mn_fail(&old.err, MN_INVALID, "0123456789");
    assert_string_equal(old.err.msg, "0123456");
    assert_int_equal(old.err.msg[8], '#');
}

static void memory(void **state) {
    (void)state;
    assert_null(mn_alloc(SIZE_MAX, 2));
    assert_null(mn_calloc(SIZE_MAX / 2, 4));
    assert_null(mn_alloc_aligned(16, 3));
    void *ptr = mn_alloc(0, 8);
    assert_non_null(ptr);
    mn_free(ptr);
    ptr = mn_alloc_aligned(100, 4096);
    assert_int_equal((uintptr_t)ptr % 4096, 0);
    mn_free(ptr);
    mn_alloc_fail_after(2);
    ptr = mn_alloc(1, 1);
    assert_non_null(ptr);
    assert_null(mn_realloc(ptr, 2, 1));
    assert_null(mn_strndup("x", 1));
    assert_null(mn_alloc_aligned(1, 1));
    mn_alloc_fail_after(-1);
    mn_free(ptr);

    size_t cap = 0;
    ptr = NULL;
    assert_true(mn_grow(&ptr, &cap, 3, 8) && cap >= 3);
    assert_false(mn_grow(&ptr, &cap, SIZE_MAX / 4, 8));
    mn_free(ptr);

    mn_arena arena = {0};
    assert_null(mn_arena_alloc(&arena, SIZE_MAX, 1));
    for (size_t i = 0; i < 3000; i++) {
        unsigned char *p = mn_arena_alloc(&arena, i % 100 == 7 ? 70000 : i % 50, 3);
        assert_true(p && (uintptr_t)p % 16 == 0 && !p[0]);
        memset(p, 0xFF, (i % 100 == 7 ? 70000 : i % 50) * 3);
    }
    assert_string_equal(mn_arena_strndup(&arena, "abc", 2), "ab");
    mn_arena_free(&arena);
}

static void strings(void **state) {
    (void)state;
    assert_true(mn_str_is(mn_str_of("abc"), "abc"));
    assert_false(mn_str_is(mn_str_of("abc"), "ab"));
    assert_true(mn_str_eq((mn_str){NULL, 0}, mn_str_of("")));
    assert_true(mn_str_ends(mn_str_of("a.so"), ".so"));
    assert_false(mn_str_ends(mn_str_of("so"), ".so"));

    mn_text t = {0};
    mn_text_printf(&t, "%d-", 42);
    for (int i = 0; i < 100; i++)
        mn_text_puts(&t, "0123456789");
    assert_int_equal(t.len, 1003);
    assert_int_equal(strlen(t.ptr), 1003);
    mn_text_free(&t);
    mn_text_json(&t, (mn_str){"a\"\\\n\x01\0\xC3\xA4\xFF\xE2\x82z", 12});
    assert_string_equal(
        t.ptr, "\"a\\\"\\\\\\n\\u0001\\u0000\xC3\xA4\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz\"");
    mn_text_free(&t);
    mn_alloc_fail_after(1);
    mn_text_puts(&t, "lost");
    mn_alloc_fail_after(-1);
    mn_text_puts(&t, "also");
    assert_true(t.failed && !t.len);
    mn_text_free(&t);
}

/* What a plugin or a file says, as a terminal may have it. */
static void plain_text(void **state) {
    static const struct {
        mn_str from;
        const char *to;
    } cases[] = {
        {{"plain \xC3\xA4 \\ \xE2\x82\xAC", 14}, "plain \xC3\xA4 \\ \xE2\x82\xAC"},
        {{"a\tb\r\nc", 6}, "a b  c"},
        {{"\x1b[2J\0\x7f", 6}, "\\x1b[2J\\x00\\x7f"},
        {{"\xC2\x9B"
          "1m",
          4},
         "\\xc2\\x9b1m"},                         /* CSI of C1 */
        {{"\xE2\x80\xAE", 3}, "\\xe2\\x80\\xae"}, /* right to left from here */
        {{"\xE2\x80\xA8\xE2\x81\xA6", 6}, "\\xe2\\x80\\xa8\\xe2\\x81\\xa6"},
        {{"\xFF\xE2\x82", 3}, "\\xff\\xe2\\x82"}, /* no UTF-8, and half a character */
    };
    char out[64];
    char array[8] = {'a', '\x1b', 'b', 'c', 'd', 'e', 'f', 'g'}; /* without an end */
    (void)state;
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        assert_int_equal(mn_plain(out, sizeof out, cases[i].from), strlen(cases[i].to));
        assert_string_equal(out, cases[i].to);
        for (size_t cap = 1; cap < sizeof out;
             cap++) { /* cut between characters, never written behind */
            memset(out, '#', sizeof out);
            const size_t n = mn_plain(out, cap, cases[i].from);
            assert_true(n < cap && !out[n] && out[cap] == '#');
            assert_memory_equal(out, cases[i].to, n);
            assert_int_equal(mn_utf8_check(out, n), n);
        }
    }
    mn_plain_array(array, sizeof array);
    assert_string_equal(array, "a\\x1bbc");
}

static void utf8(void **state) {
    (void)state;
    char out[4];
    uint32_t code;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        if (c >= 0xD800 && c <= 0xDFFF)
            continue;
        int n = mn_utf8_encode(c, out);
        if (mn_utf8_decode(out, (size_t)n, &code) != n || code != c)
            fail_msg("U+%04X", c);
        if (n > 1 && mn_utf8_complete(out, (size_t)n - 1) != 0)
            fail_msg("U+%04X is not awaited", c);
    }
    static const char *const bad[] = {
        "\xC0\x80",         "\xC1\xBF",         "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\x80",         "\xFF",         "\xC3("};
    for (size_t i = 0; i < MN_COUNT(bad); i++) {
        assert_int_equal(mn_utf8_decode(bad[i], strlen(bad[i]), &code), 0);
        assert_int_equal(mn_utf8_check(bad[i], strlen(bad[i])), 0);
        /* no byte can mend it */
        assert_int_equal(mn_utf8_complete(bad[i], strlen(bad[i])), strlen(bad[i]));
    }
    assert_int_equal(mn_utf8_decode("", 0, &code), 0);
    assert_int_equal(mn_utf8_check("ab\xC3", 3), 2);
    assert_int_equal(mn_utf8_complete("ab\xF0\x9F\x98", 5), 2);
    assert_int_equal(mn_utf8_complete("", 0), 0);
}

static void numbers(void **state) {
    (void)state;
    uint64_t product;
    assert_true(mn_mul_u64(1ull << 32, (1ull << 32) - 1, &product));
    assert_false(mn_mul_u64(1ull << 32, 1ull << 32, &product));
    assert_false(mn_add_u64(UINT64_MAX, 1, &product));
    int64_t i;
    assert_true(mn_parse_i64(mn_str_of("-9223372036854775808"), &i) && i == INT64_MIN);
    assert_true(mn_parse_i64(mn_str_of("+9223372036854775807"), &i) && i == INT64_MAX);
    static const char *const no_int[] = {
        "",   "-",   "+",   "9223372036854775808",    "-9223372036854775809", "1x", " 1",
        "1 ", "0x1", "1.0", "99999999999999999999999"};
    for (size_t k = 0; k < MN_COUNT(no_int); k++)
        assert_false(mn_parse_i64(mn_str_of(no_int[k]), &i));
    double f;
    setlocale(LC_ALL, "de_DE.UTF-8"); /* where it is installed, a comma must not become the point */
    assert_true(mn_parse_f64(mn_str_of("1.5"), &f) && f == 1.5);
    setlocale(LC_ALL, "C");
    assert_true(mn_parse_f64(mn_str_of("-.5e+1"), &f) && f == -5);
    assert_true(mn_parse_f64(mn_str_of("7."), &f) && f == 7);
    static const char *const no_float[] = {"",    ".",     "-",   "1e",   "1e+", "e5",    "nan",
                                           "inf", "0x1p3", "1,5", "1.5 ", " 1",  "1e999", "1.2.3"};
    for (size_t k = 0; k < MN_COUNT(no_float); k++)
        assert_false(mn_parse_f64(mn_str_of(no_float[k]), &f));
}

static void halves(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = mn_f16_to_f32((uint16_t)h);
        uint16_t back = mn_f32_to_f16(f);
        if (isnan(f) ? (back & 0x7C00) != 0x7C00 || !(back & 0x3FF) : back != h)
            fail_msg("%04x becomes %04x", h, back);
    }
    /* between two neighbours: the even one; a little more: the upper */
    for (uint32_t h = 0; h < 0x7BFF; h++) {
        float mid =
            (float)(((double)mn_f16_to_f32((uint16_t)h) + mn_f16_to_f32((uint16_t)(h + 1))) / 2);
        if (mn_f32_to_f16(mid) != h + (h & 1))
            fail_msg("middle above %04x", h);
        if (mn_f32_to_f16(nextafterf(mid, 1e9f)) != h + 1 ||
            mn_f32_to_f16(nextafterf(mid, -1.f)) != h)
            fail_msg("beside the middle above %04x", h);
    }
    assert_int_equal(mn_f32_to_f16(65504), 0x7BFF);
    assert_int_equal(mn_f32_to_f16(65519.996f), 0x7BFF);
    assert_int_equal(mn_f32_to_f16(65520), 0x7C00);
    assert_int_equal(mn_f32_to_f16(-1e30f), 0xFC00);
    assert_int_equal(mn_f32_to_f16(1e-30f), 0);
    assert_true(mn_bf16_to_f32(0x3FC0) == 1.5f);
}

static void dtypes(void **state) {
    (void)state;
    mn_dtype t;
    assert_true(mn_dtype_by_id(MN_Q8_0, &t) && t.block_bytes == 34);
    assert_true(mn_dtype_by_name(mn_str_of("q4_K"), &t) && t.id == MN_Q4_K);
    assert_false(mn_dtype_by_name(mn_str_of("q4_"), &t));
    assert_false(mn_dtype_by_id(999, &t));
    assert_string_equal(mn_dtype_name(MN_BF16), "bf16");
    assert_string_equal(mn_dtype_name(999), "?");
#define SAME(type_name, number, elems, bytes, planes)                                              \
    assert_true(mn_dtype_by_name(mn_str_of(#type_name), &t) && t.id == number &&                   \
                !strcasecmp(mn_dtype_name(number), #type_name));
    MN_DTYPES(SAME)
    uint64_t bytes;
    mn_dtype_by_id(MN_Q8_0, &t);
    assert_true(mn_dtype_bytes(t, 64, &bytes) && bytes == 68);
    assert_false(mn_dtype_bytes(t, 33, &bytes));
    mn_dtype_by_id(MN_F32, &t);
    assert_false(mn_dtype_bytes(t, UINT64_MAX / 2, &bytes));
}

static void files(void **state) {
    const char *dir = *state, *path = unit_path(dir, "file");
    mn_error err = MN_ERROR_INIT;
    mn_map map;
    unit_write(path, "hello", 5);
    assert_int_equal(mn_map_file(path, 0, &map, &err), MN_OK);
    assert_memory_equal(map.ptr, "hello", 5);
    assert_int_equal(unlink(path), 0); /* the map stays */
    unit_write(path, "", 0);
    assert_memory_equal(map.ptr, "hello", 5);
    mn_unmap(&map);
    assert_int_equal(mn_map_file(path, 0, &map, &err), MN_OK);
    assert_true(map.ptr && !map.bytes);
    mn_unmap(&map);
    char *data;
    uint64_t n;
    assert_int_equal(mn_read_file(path, 0, &data, &n, &err), MN_OK);
    assert_true(!n && !data[0]);
    mn_free(data);
    unit_write(path, "123456", 6);
    assert_int_equal(mn_read_file(path, 6, &data, &n, &err), MN_OK);
    assert_string_equal(data, "123456");
    mn_free(data);
    assert_int_equal(mn_read_file(path, 5, &data, &n, &err), MN_IO_ERROR);
    assert_non_null(strstr(err.msg, "larger than the 5 bytes"));
    assert_int_equal(mn_map_file(dir, 0, &map, &err), MN_IO_ERROR);
    assert_non_null(strstr(err.msg, "is a folder"));
    assert_int_equal(mn_read_file(dir, 5, &data, &n, &err), MN_IO_ERROR);
    assert_non_null(strstr(err.msg, "is a folder"));
    const char *fifo = unit_path(dir, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(mn_map_file(fifo, 0, &map, &err), MN_IO_ERROR); /* and does not wait */
    assert_int_equal(mn_map_file("/dev/null", 0, &map, &err), MN_IO_ERROR);
    assert_int_equal(mn_map_file(unit_path(dir, "absent"), 0, &map, &err), MN_IO_ERROR);
    assert_non_null(strstr(err.msg, "No such file"));
    assert_int_equal(mn_read_file(fifo, 5, &data, &n, &err), MN_IO_ERROR); /* nor does this */
    assert_non_null(strstr(err.msg, "pipe"));
    assert_int_equal(mn_read_file("/dev/null", 5, &data, &n, &err), MN_OK);
    assert_int_equal(n, 0);
    mn_free(data);
    assert_int_equal(mn_read_file("/dev/zero", 5, &data, &n, &err), MN_IO_ERROR);
    assert_true(mn_path_is_dir(dir) && mn_path_exists(path) && !mn_path_is_dir(path));
}

/* ---- cache ----------------------------------------------------------------------------------- */

static uint32_t mode_of(const char *path) {
    struct stat st;
    return lstat(path, &st) ? 0 : st.st_mode;
}

static bool cache_holds(const char *name, const char *expected) {
    mn_text text = {0};
    mn_error err = MN_ERROR_INIT;
    bool same = mn_cache_read(name, 100, &text, &err) == MN_OK &&
                mn_str_is((mn_str){text.ptr, text.len}, expected);
    mn_text_free(&text);
    return same;
}

static void cache_refuses(const char *name, const char *why) {
    mn_text text = {0};
    mn_error err = MN_ERROR_INIT;
    assert_int_equal(mn_cache_read(name, 100, &text, &err), MN_IO_ERROR);
    if (!strstr(err.msg, why))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, why);
    assert_null(text.ptr);
}

/* What lies at an entry's place is never waited for, followed or written through. */
static void cache_entries(void **state) {
    char entry[1200], victim[1200];
    snprintf(entry, sizeof entry, "%s/cache/minerva/a/b", (const char *)*state);
    snprintf(victim, sizeof victim, "%s/victim", (const char *)*state);
    unit_write(victim, "mine", 4);
    setenv("XDG_CACHE_HOME", unit_path(*state, "cache"), 1);
    cache_refuses("a/b", "No such file");
    mn_cache_remove("a/b");
    assert_false(mn_path_exists(unit_path(*state, "cache"))); /* reading makes no folder */
    assert_int_equal(mn_cache_write("a/b", "one", 3, NULL), MN_OK);
    assert_true(cache_holds("a/b", "one"));
    assert_int_equal(mode_of(entry), S_IFREG | 0600);
    assert_int_equal(mode_of(unit_path(*state, "cache/minerva/a")), S_IFDIR | 0700);
    unlink(entry);
    assert_int_equal(mkfifo(entry, 0600), 0);
    cache_refuses("a/b", "not a regular file");
    assert_int_equal(mn_cache_write("a/b", "two", 3, NULL), MN_OK);
    assert_true(cache_holds("a/b", "two"));
    static const char *const targets[] = {"/dev/zero", "/dev/null", "/nowhere"};
    for (size_t i = 0; i <= MN_COUNT(targets); i++) {
        unlink(entry);
        assert_int_equal(symlink(i < MN_COUNT(targets) ? targets[i] : victim, entry), 0);
        cache_refuses("a/b", "a/b");
        assert_int_equal(mn_cache_write("a/b", "three", 5, NULL), MN_OK);
        assert_int_equal(mode_of(entry), S_IFREG | 0600);
    }
    chmod(entry, 0620);
    cache_refuses("a/b", "others may write it");
    if (geteuid() == 0) {
        chmod(entry, 0600);
        assert_int_equal(chown(entry, 12345, 12345), 0);
        cache_refuses("a/b", "another user");
        assert_int_equal(mn_cache_write("a/b", "four", 4, NULL), MN_OK);
        assert_true(cache_holds("a/b", "four"));
    }
    char big[101] = {0};
    assert_int_equal(mn_cache_write("a/b", big, sizeof big, NULL), MN_OK);
    cache_refuses("a/b", "larger than 100 bytes");
    mn_cache_remove("a/b");
    assert_int_equal(mkdir(entry, 0700), 0);
    cache_refuses("a/b", "not a regular file");
    assert_int_equal(mn_cache_write("a/b", "five", 4, NULL), MN_IO_ERROR);
    rmdir(entry);
    assert_int_equal(rmdir(unit_path(*state, "cache/minerva/a")), 0); /* nothing is left behind */
    char *data;
    assert_int_equal(mn_read_file(victim, 100, &data, NULL, NULL), MN_OK);
    assert_string_equal(data, "mine");
    mn_free(data);
}

/* Folders that others could have made, or could change, are not entered. */
static void cache_folders(void **state) {
    char folder[1200];
    mn_error err = MN_ERROR_INIT;
    setenv("XDG_CACHE_HOME", *state, 1);
    snprintf(folder, sizeof folder, "%s/minerva", (const char *)*state);
    mkdir(unit_path(*state, "elsewhere"), 0700);
    assert_int_equal(symlink("elsewhere", folder), 0);
    assert_int_equal(mn_cache_write("a", "x", 1, &err), MN_IO_ERROR);
    assert_int_equal(rmdir(unit_path(*state, "elsewhere")), 0); /* still empty */
    unlink(folder);
    mkdir(folder, 0700);
    chmod(folder, 0770);
    assert_int_equal(mn_cache_write("a", "x", 1, &err), MN_IO_ERROR);
    assert_non_null(strstr(err.msg, "others may write it"));
    chmod(folder, 0700);
    if (geteuid() == 0) {
        assert_int_equal(chown(folder, 12345, 12345), 0);
        assert_int_equal(mn_cache_write("a", "x", 1, &err), MN_IO_ERROR);
        assert_non_null(strstr(err.msg, "another user"));
        assert_int_equal(chown(folder, 0, 0), 0);
        assert_int_equal(chown(*state, 12345, 12345), 0); /* another user's home: XDG or HOME */
        assert_int_equal(mn_cache_write("a", "x", 1, &err), MN_IO_ERROR);
        assert_int_equal(chown(*state, 0, 0), 0);
    }
    assert_int_equal(mn_cache_write("a", "x", 1, &err), MN_OK);
}

/* A home that does not exist is not made. */
static void cache_home(void **state) {
    mn_error err = MN_ERROR_INIT;
    char *home = getenv("HOME");
    char old[1200];
    snprintf(old, sizeof old, "%s", home ? home : "");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", unit_path(*state, "none"), 1);
    assert_int_equal(mn_cache_write("a", "x", 1, &err), MN_IO_ERROR);
    setenv("XDG_CACHE_HOME", unit_path(*state, "none/cache"), 1);
    assert_int_equal(mn_cache_write("a", "x", 1, &err), MN_IO_ERROR);
    assert_false(mn_path_exists(unit_path(*state, "none")));
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", *state, 1);
    assert_int_equal(mn_cache_write("a", "x", 1, &err), MN_OK);
    assert_int_equal(mode_of(unit_path(*state, ".cache/minerva/a")), S_IFREG | 0600);
    setenv("HOME", "relative", 1);
    assert_int_equal(mn_cache_write("a", "x", 1, &err), MN_END);
    setenv("XDG_CACHE_HOME", unit_path(*state, "deep/er"), 1); /* asked for by name */
    assert_int_equal(mn_cache_write("a", "x", 1, &err), MN_OK);
    assert_true(cache_holds("a", "x"));
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", old, 1);
}

static void paths(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"}, {"a", "", "a"}, {"/", "b", "/b"}};
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        char *path = mn_path_join(cases[i][0], cases[i][1]);
        assert_string_equal(path, cases[i][2]);
        mn_free(path);
    }
    char dir[PATH_MAX];
    assert_true(mn_path_of_object((const void *)(uintptr_t)&mn_path_join, dir));
    assert_true(mn_path_is_dir(dir));
    assert_false(mn_path_of_object(dir, dir)); /* the stack belongs to no object */
}

static void hashes(void **state) {
    (void)state;
    assert_true(mn_hash("abc", 3, 0) == mn_hash("abc", 3, 0));
    assert_true(mn_hash("abc", 3, 0) != mn_hash("abd", 3, 0));
    assert_true(mn_hash("abc", 3, 0) != mn_hash("abc", 3, 1));
    assert_true(mn_hash("\0", 1, 0) != mn_hash("\0\0", 2, 0));
    assert_true(mn_hash(NULL, 0, 0) == mn_hash("", 0, 0));
}

static void on_log(void *arg, int32_t level, const char *msg) {
    snprintf(arg, 64, "%d %.50s", level, msg);
}

static void logs(void **state) {
    (void)state;
    char seen[64] = "";
    mn_log_to(on_log, seen);
    mn_log(MN_LOG_INFO, "not shown");
    assert_string_equal(seen, "");
    mn_log_level(MN_LOG_DEBUG);
    mn_log(MN_LOG_DEBUG, "n = %d", 4);
    assert_string_equal(seen, "3 n = 4");
    mn_log(MN_LOG_DEBUG, "%s", "a\x1b[2J\nb");
    assert_string_equal(seen, "3 a\\x1b[2J b");
    mn_log_level(MN_LOG_WARN);
    mn_log_to(NULL, NULL);
}

/* ---- memory that plugins are given as const -------------------------------------------------- */
/* The signal by which a process ends that writes a byte there; 0 = none. */
static int write_at(const void *at) {
    int how = 0;
    const pid_t pid = fork();
    if (!pid) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile char *)(uintptr_t)at = 1;
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return WIFSIGNALED(how) ? WTERMSIG(how) : 0;
}

static void refuses_writes(const void *at) {
    assert_int_equal(write_at(at), SIGSEGV);
    assert_true(mn_sealed_has(at));
}

static void sealed_graph(void **state) {
    (void)state;
    const mn_node node = {.op = MN_OP_ADD, .n_in = 2, .n_out = 1};
    const int32_t operands[] = {0, 0, 0};
    const uint64_t attr = 7;
    char bytes[] = "bytes";
    const mn_str blobs[] = {{bytes, 5}, {NULL, 0}};
    char name[] = "x";
    mn_tensor tensor = {.n_dim = 1, .alias_of = -1, .name = {name, 1}};
    const mn_symbol symbol = {.name = "n", .max = 5};
    const mn_graph g = {.size = sizeof g,
                        .n_nodes = 1,
                        .n_tensors = 1,
                        .n_symbols = 1,
                        .n_operands = 3,
                        .nodes = &node,
                        .tensors = &tensor,
                        .symbols = &symbol,
                        .operands = operands,
                        .attrs = &attr,
                        .n_attrs = 1,
                        .n_blobs = 2,
                        .blobs = blobs};
    mn_sealed *pages;
    mn_sealed *more;
    const mn_graph *given = mn_given_graph(&g, &pages);
    assert_non_null(given);
    name[0] = bytes[0] = 'y'; /* nothing of the copy is shared */
    tensor.n_dim = 2;
    assert_int_equal(given->tensors[0].n_dim, 1);
    assert_string_equal(given->tensors[0].name.ptr, "x");
    assert_int_equal(given->attrs[0], 7);
    assert_int_equal(given->blobs[0].len, 5);
    assert_memory_equal(given->blobs[0].ptr, "bytes", 5);
    assert_int_equal(given->blobs[1].len, 0);
    const void *all[] = {
        given,           given->nodes, given->tensors, given->tensors[0].name.ptr, given->symbols,
        given->operands, given->attrs, given->blobs,   given->blobs[0].ptr};
    for (size_t i = 0; i < MN_COUNT(all); i++)
        refuses_writes(all[i]);
    const int64_t most = 5;
    const mn_compile c = {.size = sizeof c, .graph = given, .symbol_max = &most};
    const mn_compile *ask = mn_given_compile(&c, &more);
    assert_non_null(ask);
    refuses_writes(ask);
    refuses_writes(ask->symbol_max);
    assert_ptr_equal(ask->graph, given);
    const void *was = ask;
    mn_sealed_free(more);
    assert_false(mn_sealed_has(was));
    mn_sealed_free(pages);
    mn_sealed_free(NULL);
}

static void sealed_rest(void **state) {
    (void)state;
    mn_sealed *pages;
    const mn_file files[] = {{.name = {"a", 1}, .bytes = 3}, {.name = {"bc", 2}, .bytes = 4}};
    const mn_file *given = mn_given_files(files, 2, &pages);
    assert_non_null(given);
    refuses_writes(&given[1]);
    refuses_writes(given[1].name.ptr);
    assert_string_equal(given[1].name.ptr, "bc");
    mn_sealed_free(pages);
    const void *none = mn_given_array(NULL, 0, 8, &pages); /* no elements: still a pointer */
    assert_non_null(none);
    mn_sealed_free(pages);
    assert_null(mn_given_array(files, SIZE_MAX / 2, sizeof *files, &pages));
    assert_null(pages);
    for (int64_t k = 1; k < 8; k++) { /* out of memory is NULL, with nothing left */
        mn_alloc_fail_once(k);
        given = mn_given_files(files, 2, &pages);
        assert_true(given || mn_alloc_failed());
        mn_alloc_fail_once(-1);
        mn_sealed_free(given ? pages : NULL);
    }
    assert_false(mn_sealed_has(files));
}

/* The memory of a loader, of which planes may be made. */
static void ledger(void **state) {
    (void)state;
    mn_ledger l = {0};
    mn_ledger_init(&l);
    uint8_t *before = mn_ledger_alloc(&l, 64, 16);
    assert_false(mn_ledger_holds(&l, before, 1)); /* nothing is noted yet */
    atomic_store(&l.notes, true);
    uint8_t *a = mn_ledger_alloc(&l, 64, 64);
    uint8_t *b = mn_ledger_alloc(&l, 100, 16);
    assert_true(mn_ledger_holds(&l, a, 64));
    assert_true(mn_ledger_holds(&l, b + 99, 1));
    assert_true(mn_ledger_holds(&l, b + 100, 0));
    assert_false(mn_ledger_holds(&l, b + 99, 2));
    assert_false(mn_ledger_holds(&l, b + 1, UINT64_MAX));
    assert_false(mn_ledger_holds(&l, before, 1));
    assert_false(mn_ledger_holds(NULL, a, 1));
    mn_ledger_free(&l, a);
    mn_ledger_free(&l, before);
    mn_ledger_free(&l, NULL);
    assert_true(mn_ledger_holds(&l, b, 100));
    mn_ledger_free(&l, b);
    assert_false(mn_ledger_holds(&l, b, 1));
    mn_ledger_clear(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors),
        cmocka_unit_test(ledger),
        cmocka_unit_test(memory),
        cmocka_unit_test(strings),
        cmocka_unit_test(plain_text),
        cmocka_unit_test(utf8),
        cmocka_unit_test(numbers),
        cmocka_unit_test(halves),
        cmocka_unit_test(dtypes),
        cmocka_unit_test_setup_teardown(files, unit_setup, unit_teardown),
        cmocka_unit_test_setup_teardown(cache_entries, unit_setup, unit_teardown),
        cmocka_unit_test_setup_teardown(cache_folders, unit_setup, unit_teardown),
        cmocka_unit_test_setup_teardown(cache_home, unit_setup, unit_teardown),
        cmocka_unit_test(paths),
        cmocka_unit_test(hashes),
        cmocka_unit_test(logs),
        cmocka_unit_test(sealed_graph),
        cmocka_unit_test(sealed_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
