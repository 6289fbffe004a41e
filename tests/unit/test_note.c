/* test_note.c -- what a plugin's file says of itself before it is opened; and files that lie about
 * it. */
#include "registry/internal.h"
#include "unit.h"
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>

static char *load_stub(const char *name, uint64_t *n) {
    char path[1200], *data;
    snprintf(path, sizeof path, "%s/stub_%s.so", MINERVA_STUBS, name);
    assert_int_equal(mn_read_file(path, 1 << 26, &data, n, NULL), MN_OK);
    return data;
}

static mn_status read_bytes(const void *data, uint64_t n, mn_plugin_note *note, mn_error *err) {
    int fd = memfd_create("note", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, (size_t)n), n);
    mn_status status = mn_plugin_note_read(fd, note, err);
    close(fd);
    return status;
}

static void found(void **state) {
    (void)state;
    uint64_t n;
    mn_plugin_note note;
    char *data = load_stub("noted", &n);
    assert_int_equal(read_bytes(data, n, &note, NULL), MN_OK);
    mn_free(data);
    assert_true(note.found);
    assert_string_equal(note.id, "noted");
    assert_string_equal(note.isa, "");
    assert_int_equal(note.abi, MN_ABI_VERSION);
    assert_int_equal(note.abi_oldest, MN_ABI_OLDEST);
    assert_int_equal(note.kinds, MN_KIND_BACKEND);
    data = load_stub("good", &n);
    assert_int_equal(read_bytes(data, n, &note, NULL), MN_OK);
    mn_free(data);
    assert_false(note.found);
}

static void sane(const mn_plugin_note *note) {
    assert_non_null(memchr(note->id, 0, sizeof note->id));
    assert_non_null(memchr(note->isa, 0, sizeof note->isa));
    assert_non_null(memchr(note->build_id, 0, sizeof note->build_id));
}

/* Every cut, then bytes of the headers and of the notes replaced: an answer or an error, and
 * strings that end. */
static void damaged(void **state) {
    (void)state;
    uint64_t n, seed = 1, n_wrong = 0;
    char *data = load_stub("noted", &n), *copy = mn_alloc(n, 1);
    assert_true(copy && n > 4096);
    mn_plugin_note note;
    for (uint64_t cut = 0; cut < 1500; cut++) {
        mn_status status = read_bytes(data, cut, &note, NULL);
        assert_true(status == MN_OK || status == MN_BAD_FILE);
        n_wrong += status != MN_OK;
        sane(&note);
    }
    assert_true(n_wrong > 500);
    for (int round = 0; round < 20000; round++) {
        memcpy(copy, data, n);
        for (int k = 0; k < 1 + round % 4; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            uint64_t at = (seed >> 33) % 1400; /* header, program headers, notes */
            copy[at] = round % 3 ? (char)(seed >> 25) : (char)0xFF;
        }
        mn_status status = read_bytes(copy, 4096, &note, NULL);
        assert_true(status == MN_OK || status == MN_BAD_FILE);
        sane(&note);
    }
    mn_free(copy);
    mn_free(data);
}

/* One note as the linker lays it, with what is to be wrong with it. */
static size_t make(uint8_t *at, uint32_t n_name, uint32_t n_desc, uint32_t size, char all_of_id) {
    mn_note note = {n_name, n_desc, 1, "Minerva", size, MN_ABI(0, 9), MN_ABI(0, 9), 1, "id", "avx"};
    if (all_of_id)
        memset(note.id, all_of_id, sizeof note.id);
    memcpy(at, &note, sizeof note);
    return sizeof note;
}

static void lengths(void **state) {
    (void)state;
    const uint32_t whole = sizeof(mn_note) - 20;
    uint8_t bytes[1024] = {0};
    mn_plugin_note note = {0};
    size_t n = make(bytes, 8, whole, whole, 0);
    assert_int_equal(mn_notes_parse(bytes, n, 4, &note, NULL), MN_OK);
    assert_true(note.found && !strcmp(note.isa, "avx"));
    assert_int_equal(mn_notes_parse(bytes, n - 1, 4, &note, NULL), MN_BAD_FILE);
    note = (mn_plugin_note){0};
    make(bytes, 8, whole + 64, whole + 64, 0); /* a newer one with more fields */
    assert_int_equal(mn_notes_parse(bytes, n + 64, 4, &note, NULL), MN_OK);
    assert_true(note.found && !strcmp(note.id, "id"));
    note = (mn_plugin_note){0};
    make(bytes, 8, 16, 16, 0); /* one without strings */
    assert_int_equal(mn_notes_parse(bytes, 36, 4, &note, NULL), MN_OK);
    assert_true(note.found && !*note.id && note.abi == MN_ABI(0, 9));
    make(bytes, 8, 15, 15, 0);
    assert_int_equal(mn_notes_parse(bytes, 36, 4, &(mn_plugin_note){0}, NULL), MN_BAD_FILE);
    make(bytes, 8, whole, whole, 'x'); /* an id without an end */
    assert_int_equal(mn_notes_parse(bytes, n, 4, &(mn_plugin_note){0}, NULL), MN_BAD_FILE);
    const uint32_t huge[] = {0xFFFFFFFFu, 0xFFFFFFF0u, 0x80000000u, (uint32_t)n};
    for (size_t i = 0; i < MN_COUNT(huge); i++) {
        make(bytes, huge[i], whole, whole, 0);
        assert_int_equal(mn_notes_parse(bytes, n, 4, &(mn_plugin_note){0}, NULL), MN_BAD_FILE);
        make(bytes, 8, huge[i], whole, 0);
        assert_int_equal(mn_notes_parse(bytes, n, 8, &(mn_plugin_note){0}, NULL), MN_BAD_FILE);
    }
    assert_int_equal(mn_notes_parse(bytes, 0, 4, &note, NULL), MN_OK);
    assert_int_equal(mn_notes_parse(bytes, 11, 0, &note, NULL), MN_OK);
}

static void versions(void **state) {
    (void)state;
#define V(major, minor) MN_ABI(major, minor)
    const struct {
        uint32_t host, plugin;
        bool fits;
    } cases[] = {
        {V(0, 9), V(0, 9), true},      {V(0, 9), V(0, 8), false},     {V(0, 8), V(0, 9), false},
        {V(0, 9), V(0, 10), false},    {V(0, 12), V(0, 9), false},    {V(0, 9), V(1, 0), false},
        {V(1, 0), V(0, 9), false},     {V(1, 0), V(1, 5), true},      {V(1, 5), V(1, 0), true},
        {V(2, 0), V(1, 65535), false}, {V(1, 65535), V(2, 0), false}, {V(1, 0), V(0, 8), false},
        {V(0, 9), 0, false},           {V(0, 9), 0xFFFFFFFFu, false},
    };
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        bool fits = mn_abi_fits(cases[i].host, mn_abi_oldest(cases[i].host), cases[i].plugin,
                                mn_abi_oldest(cases[i].plugin));
        if (fits != cases[i].fits)
            fail_msg("host %x, plugin %x: %d", cases[i].host, cases[i].plugin, fits);
    }
    assert_int_equal(mn_abi_oldest(MN_ABI_VERSION), MN_ABI_OLDEST);
    assert_false(mn_abi_fits(V(1, 2), V(1, 0), V(1, 5), V(1, 3))); /* it needs a newer host */
    assert_false(mn_abi_fits(V(1, 5), V(1, 3), V(1, 2), V(1, 0)));
    assert_true(mn_abi_fits(V(1, 5), V(1, 3), V(1, 4), V(1, 4)));
    /* whatever it says: below 1.0 nothing mixes */
    assert_false(mn_abi_fits(V(0, 9), 0, V(0, 10), 0));
}

static void instruction_sets(void **state) {
    (void)state;
    mn_error err = MN_ERROR_INIT;
    assert_int_equal(mn_isa_check("", NULL), MN_OK);
    assert_int_equal(mn_isa_check("  ", NULL), MN_OK);
#if defined(__x86_64__)
    assert_int_equal(mn_isa_check("sse2", NULL), MN_OK);
    assert_int_equal(mn_isa_check(" sse  sse2 ", NULL), MN_OK);
    assert_int_equal(mn_isa_check("sse2 xop", &err) == MN_OK, __builtin_cpu_supports("xop") != 0);
    if (err.msg[0])
        assert_string_equal(err.msg, "needs xop, which this CPU lacks");
    assert_int_equal(mn_isa_check("avx2", NULL) == MN_OK, __builtin_cpu_supports("avx2") != 0);
#elif defined(__aarch64__)
    assert_int_equal(mn_isa_check("asimd", NULL), MN_OK);
#endif
    assert_int_equal(mn_isa_check("ss", &err), MN_BAD_FILE);
    assert_string_equal(err.msg,
                        "needs the instruction set \"ss\", which this Minerva does not know");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(found), cmocka_unit_test(damaged),
                                       cmocka_unit_test(lengths), cmocka_unit_test(versions),
                                       cmocka_unit_test(instruction_sets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
