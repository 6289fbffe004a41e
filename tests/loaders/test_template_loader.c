/* test_template_loader.c -- the template that loader authors clone: its format mnt, good and bad.
 * test_template_loader PLUGIN.so The path is relative to the build root. */
#include "host.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static test_plugin plugin;

/* A header, padded with zeros to `size` bytes of file. */
static void model(test_files *f, const char *header, size_t size) {
    char *file = calloc(1, size);
    assert_non_null(file);
    memcpy(file, header, strlen(header) < size ? strlen(header) : size);
    test_clear(f);
    test_add(f, "a.mnt", file, size);
    free(file);
}

static const char good[] = "MNT 1\n"
                           "a.flag = true\n"
                           "a.int = -42\n"
                           "a.real = 2.5e-3\n"
                           "a.text = \"two words\"\n"
                           "tensor q = Q8_0 [2, 64] @ 320\n"
                           "tensor v = F32 [3] @ 512\n"
                           "END\n";

static void reads(void **state) {
    test_files f = {0};
    mn_parsed *m = NULL;
    mn_error err = {.size = sizeof err};
    mn_str native;
    mn_tensor_info t;
    mn_guess g = {.size = sizeof g};
    (void)state;
    model(&f, good, 524);
    assert_int_equal(plugin.loader->guess(plugin.plugin->self, f.file, f.n, sizeof *f.file, &g),
                     MN_OK);
    assert_int_equal(g.confidence, 100);
    assert_int_equal(test_open(plugin, &f, &m, &err), MN_OK);
    assert_int_equal(test_value(plugin, m, "a.flag", &native).i, 1);
    assert_int_equal(test_value(plugin, m, "a.int", &native).i, -42);
    assert_true(test_value(plugin, m, "a.real", &native).f == 2.5e-3);
    assert_true(test_is(test_value(plugin, m, "a.text", &native).s, "two words"));
    assert_int_equal(test_n_tensors(plugin, m), 2);
    assert_true(test_tensor(plugin, m, "q", &t));
    assert_true(t.n_dim == 2);
    assert_true(t.dim[1] == 64);
    assert_true(t.dtype.id == MN_Q8_0);
    assert_true(t.planes[0].bytes == 2 * 2 * 34);
    assert_true(t.planes[0].stride[0] == 68);
    assert_true(t.planes[0].stride[1] == 34);
    plugin.loader->close(m);
    test_every_allocation(plugin, &f);
    test_clear(&f);
}

static void refuses(void **state) {
    static const struct {
        const char *header;
        mn_status status;
        const char *text;
        const char *text2;
    } bad[] = {
        {"GGUF", MN_BAD_FILE, "MNT 1", NULL},
        {"MNT 1\na = 1\n", MN_BAD_FILE, "a.mnt", "END"},
        {"MNT 1\n\n\nEND\n", MN_BAD_FILE, "a.mnt", "END"},
        {"MNT 1\na.b.c=1\nEND\n", MN_BAD_FILE, "a.b.c=1", "KEY = VALUE"},
        {"MNT 1\nkey = yes\nEND\n", MN_BAD_FILE, "key key", "yes"},
        {"MNT 1\nkey = 1234567890123456789\nEND\n", MN_BAD_FILE, "key key", "1234567890123456789"},
        {"MNT 1\nkey = 1.5e99\nEND\n", MN_BAD_FILE, "key key", "1.5e99"},
        {"MNT 1\nkey = \"open\nEND\n", MN_BAD_FILE, "key key", "open"},
        {"MNT 1\nk = 12\nk = 13\nEND\n", MN_BAD_FILE, "key k", "ascending"},
        {"MNT 1\ntensor t = F32 [4]\nEND\n", MN_BAD_FILE, "t = F32", "OFFSET"},
        {"MNT 1\ntensor t = F31 [4] @ 64\nEND\n", MN_UNSUPPORTED, "tensor t", "F31"},
        {"MNT 1\ntensor t = MLX4_64 [64] @ 64\nEND\n", MN_UNSUPPORTED, "tensor t", "MLX4_64"},
        {"MNT 1\ntensor t = F32 [0] @ 64\nEND\n", MN_BAD_FILE, "tensor t", "[0]"},
        {"MNT 1\ntensor t = F32 [1, 1, 1, 1, 1, 1, 1] @ 64\nEND\n", MN_BAD_FILE, "tensor t",
         "1 to 6"},
        {"MNT 1\ntensor t = Q8_0 [33] @ 64\nEND\n", MN_BAD_FILE, "tensor t", "blocks of 32"},
        {"MNT 1\ntensor t = F32 [999999999999999999, 9] @ 64\nEND\n", MN_BAD_FILE, "tensor t",
         "999999999999999999"},
        {"MNT 1\ntensor t = F32 [4] @ 65\nEND\n", MN_BAD_FILE, "tensor t", "multiple of 64"},
        {"MNT 1\ntensor t = F32 [4] @ 0\nEND\n", MN_BAD_FILE, "tensor t", "offset 0"},
        {"MNT 1\ntensor t = F32 [4] @ 960\nEND\n", MN_OK, NULL, NULL},
        {"MNT 1\ntensor t = F32 [17] @ 960\nEND\n", MN_BAD_FILE, "68 bytes at 960", "truncated"},
        {"MNT 1\ntensor t = F32 [4] @ 999999999999999936\nEND\n", MN_BAD_FILE, "tensor t",
         "truncated"},
        {"MNT 1\ntensor t = F32 [17] @ 128\ntensor u = F32 [4] @ 192\nEND\n", MN_BAD_FILE,
         "tensor u", "from 196"},
        {"MNT 1\ntensor u = F32 [4] @ 128\ntensor t = F32 [4] @ 192\nEND\n", MN_BAD_FILE,
         "tensor t", "ascending"},
    };
    test_files f = {0};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        model(&f, bad[i].header, 1024);
        if (bad[i].status)
            test_refuse(plugin, &f, bad[i].status, bad[i].text, bad[i].text2);
        else
            test_survive(plugin, &f);
    }
    model(&f, good, 524);
    test_add_text(&f, "b.mnt", "MNT 1\nEND\n");
    test_refuse(plugin, &f, MN_BAD_FILE, "a.mnt", "b.mnt");
    test_clear(&f);
}

/* Every truncation, and every byte of the header turned into others. */
static void survives(void **state) {
    test_files f = {0};
    char text[sizeof good];
    uint64_t seed = 1;
    (void)state;
    for (size_t n = 0; n < 524; n++) {
        model(&f, good, n);
        if (n < strlen(good))
            test_refuse(plugin, &f, MN_BAD_FILE, NULL, NULL);
        else
            test_survive(plugin, &f);
    }
    for (size_t i = 0; i + 1 < sizeof good; i++)
        for (int k = 0; k < 12; k++) {
            memcpy(text, good, sizeof good);
            text[i] = k < 10 ? "\n\"=0 9[@.\xff"[k] : (char)(test_random(&seed) % 255 + 1);
            model(&f, text, 524);
            test_survive(plugin, &f);
        }
    test_clear(&f);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads), cmocka_unit_test(refuses),
                                       cmocka_unit_test(survives)};
    if (argc < 2)
        return 77;
    plugin = test_load(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
