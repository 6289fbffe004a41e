/* test_registry.c -- plugins good and bad, devices, the services of the host. */
#include "base/trust.h"
#include "world.h"
#include <elf.h>
#include <glob.h>
#include <link.h>

static void good_and_bad(void **state) {
    const char *dir = *state;
    const struct {
        const char *stub, *as, *status, *reason, *kind;
    } cases[] = {
        {"good", NULL, "ok", "", "backend"},
        {"twin", NULL, "shadowed", "good.so has the same id", "backend"},
        {"loader", NULL, "ok", "", "loader"},
        {"gpu", NULL, "ok", "", "backend"},
        {"no_patterns", NULL, "failed", "states no file pattern", "loader"},
        {"every_file", NULL, "failed", "names every file", "loader"},
        {"half_shard", NULL, "failed", "not two '#'", "loader"},
        {"companions", NULL, "failed", "MODEL, SHARD or FOLDER", "loader"},
        {"empty", NULL, "failed", "neither mn.backend/1 nor mn.loader/1", ""},
        {"lacks", NULL, "failed", "lacks the function execute", "backend"},
        {"null", NULL, "failed", "this stub never works", ""},
        {"abi", NULL, "incompatible", "ABI 9.0", ""},
        {"misspelled", NULL, "failed", "misspelled", ""},
        {"reserved", NULL, "failed", "reserved word \"cpu\"", ""},
        {"noentry", NULL, "failed", "exports no minerva_plugin_entry", ""},
    };
    for (size_t i = 0; i < MN_COUNT(cases); i++)
        put(dir, cases[i].stub, cases[i].as);
    /* "ignored.so.1.so" ends right: a second file of the same id */
    put(dir, "good", "ignored.so.1");
    world w;
    open_world(&w, "plugin_path_only", dir);
    size_t n;
    mn_registry_plugins(w.reg, &n);
    assert_int_equal(n, MN_COUNT(cases) + 1);
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        char file[64];
        snprintf(file, sizeof file, "%s.so", cases[i].stub);
        expect(&w, unit_path(dir, file), cases[i].status, cases[i].reason);
        assert_string_equal(record_of(&w, unit_path(dir, file))->kind, cases[i].kind);
    }
    assert_int_equal(record_of(&w, unit_path(dir, "abi.so"))->abi, MN_ABI(9, 0));
    assert_true(mn_str_is(record_of(&w, unit_path(dir, "twin.so"))->id, "stub"));
    const mn_plugin_record *good = mn_registry_plugin(w.reg, mn_str_of("stub"));
    assert_string_equal(good->path, unit_path(dir, "good.so"));
    assert_null(mn_registry_plugin(w.reg, mn_str_of("lacks")));
    /* asked in its entry: the id is the file's name yet */
    assert_true(mn_str_is(good->plugin->version, "early"));
    close_world(&w);
}

/* Where the last segment that is loaded ends in the file. */
static uint64_t end_of_segments(const char *path) {
    ElfW(Ehdr) head;
    uint64_t end = 0;
    FILE *f = fopen(path, "rb");
    assert_true(f && fread(&head, sizeof head, 1, f) == 1);
    for (unsigned i = 0; i < head.e_phnum; i++) {
        ElfW(Phdr) s;
        assert_int_equal(fseek(f, (long)(head.e_phoff + i * sizeof s), SEEK_SET), 0);
        assert_int_equal(fread(&s, sizeof s, 1, f), 1);
        if (s.p_type == PT_LOAD)
            end = MN_MAX(end, s.p_offset + s.p_filesz);
    }
    fclose(f);
    return end;
}

static void unsafe_files(void **state) {
    const char *dir = *state;
    Elf64_Ehdr head = {
        .e_ident = {0x7F, 'E', 'L', 'F', sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32},
        .e_type = ET_DYN,
        .e_machine = EM_SPARCV9};
    uint16_t one = 1;
    head.e_ident[EI_DATA] = *(unsigned char *)&one ? ELFDATA2LSB : ELFDATA2MSB;
    unit_write(unit_path(dir, "machine.so"), &head, sizeof head);
    head.e_type = ET_EXEC;
    unit_write(unit_path(dir, "program.so"), &head, sizeof head);
    head.e_ident[EI_CLASS] = sizeof(void *) == 8 ? ELFCLASS32 : ELFCLASS64;
    unit_write(unit_path(dir, "class.so"), &head, sizeof head);
    head.e_ident[EI_CLASS] = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32;
    head.e_ident[EI_DATA] = (unsigned char)(3 - head.e_ident[EI_DATA]);
    unit_write(unit_path(dir, "order.so"), &head, sizeof head);
    unit_write(unit_path(dir, "text.so"), "just text, twenty bytes and more", 32);
    unit_write(unit_path(dir, "short.so"),
               "\x7F"
               "ELF",
               4);
    unit_write(unit_path(dir, "void.so"), "", 0);
    put(dir, "good", "cut");
    assert_int_equal(truncate(unit_path(dir, "cut.so"), 700), 0);
    const char *nearly = put(dir, "good", "nearly");
    assert_int_equal(truncate(nearly, (off_t)end_of_segments(nearly) - 1), 0);
    chmod(put(dir, "good", "writable"), 0757);
    mkdir(unit_path(dir, "folder.so"), 0755);
    mkfifo(unit_path(dir, "fifo.so"), 0600);
    assert_int_equal(symlink("/nowhere", unit_path(dir, "dangling.so")), 0);
    world w;
    open_world(&w, "plugin_path_only", dir);
    expect(&w, unit_path(dir, "machine.so"), "refused", "built for another machine");
    expect(&w, unit_path(dir, "program.so"), "refused", "not a shared object");
    expect(&w, unit_path(dir, "class.so"), "refused", "-bit");
    expect(&w, unit_path(dir, "order.so"), "refused", "byte order");
    expect(&w, unit_path(dir, "text.so"), "refused", "not an ELF file");
    expect(&w, unit_path(dir, "short.so"), "refused", "not an ELF file");
    expect(&w, unit_path(dir, "void.so"), "refused", "not an ELF file");
    expect(&w, unit_path(dir, "cut.so"), "refused", "truncated");
    expect(&w, unit_path(dir, "nearly.so"), "refused", "truncated");
    expect(&w, unit_path(dir, "writable.so"), "refused", "everybody may write it");
    expect(&w, unit_path(dir, "folder.so"), "refused", "not a regular file");
    expect(&w, unit_path(dir, "fifo.so"), "refused", "not a regular file");
    expect(&w, unit_path(dir, "dangling.so"), "refused", "No such file");
    size_t n;
    const mn_device_record *none = mn_registry_devices(w.reg, &n);
    assert_true(none && n == 0);
    close_world(&w);
}

static void unsafe_folders(void **state) {
    char dir[1100], list[4000];
    snprintf(dir, sizeof dir, "%s/open", (const char *)*state);
    mkdir(dir, 0755);
    mkdir(unit_path(dir, "inside"), 0755);
    mkdir(unit_path(*state, "sticky"), 0755);
    put(dir, "good", NULL);
    put(unit_path(dir, "inside"), "gpu", NULL);
    put(unit_path(*state, "sticky"), "loader", NULL);
    chmod(dir, 0777);
    chmod(unit_path(*state, "sticky"), 01777); /* as the file's own folder this is no excuse */
    snprintf(list, sizeof list, "%s:%s/inside::%s/sticky:relative:/does/not/exist", dir, dir,
             (const char *)*state);
    world w;
    open_world(&w, "plugin_path_only", list);
    expect(&w, unit_path(dir, "good.so"), "refused", "unsafe folder");
    expect(&w, unit_path(dir, "inside/gpu.so"), "refused", "unsafe folder");
    expect(&w, unit_path(*state, "sticky/loader.so"), "refused", "unsafe folder");
    size_t n;
    const mn_plugin_folder *folders = mn_registry_folders(w.reg, &n);
    assert_int_equal(n, 5);
    assert_string_equal(folders[0].reason, "");
    assert_string_equal(folders[3].path, "relative");
    assert_non_null(strstr(folders[3].reason, "absolute"));
    assert_string_equal(folders[4].reason, "does not exist");
    close_world(&w);
}

/* The mark of a build tree counts beside the library alone, and only as a file that nobody else may
 * write. */
static void build_tree_mark(void **state) {
    char root[PATH_MAX], mark[1300], *expected = realpath(*state, NULL);
    mn_trust trust;
    mn_trust_init(&trust);
    assert_true(mn_trust_build_root(&trust, root)); /* this program lies in one */
    assert_non_null(expected);
    mkdir(unit_path(*state, "lib"), 0755);
    mkdir(unit_path(*state, "runtime"), 0755);
    snprintf(trust.dir, sizeof trust.dir, "%s/lib", expected);
    assert_false(mn_trust_build_root(&trust, root));
    unit_write(unit_path(*state, "minerva-build-tree"), "..\n", 3);
    unit_write(unit_path(*state, "runtime/minerva-build-tree"), "..\n", 3);
    assert_false(mn_trust_build_root(&trust, root));
    snprintf(mark, sizeof mark, "%s", unit_path(*state, "lib/minerva-build-tree"));
    assert_int_equal(mkfifo(mark, 0600), 0);
    assert_false(mn_trust_build_root(&trust, root));
    unlink(mark);
    assert_int_equal(symlink("../minerva-build-tree", mark), 0);
    assert_false(mn_trust_build_root(&trust, root));
    unlink(mark);
    unit_write(mark, "..\n", 3);
    assert_true(mn_trust_build_root(&trust, root));
    assert_string_equal(root, expected);
    chmod(mark, 0666);
    assert_false(mn_trust_build_root(&trust, root));
    *trust.dir = 0;
    assert_false(mn_trust_build_root(&trust, root));
    free(expected);
}

static void search_order(void **state) {
    char list[2200];
    setenv("XDG_DATA_HOME", *state, 1);
    mkdir(unit_path(*state, "a"), 0755);
    mkdir(unit_path(*state, "minerva"), 0755);
    mkdir(unit_path(*state, "minerva/plugins"), 0755);
    put(unit_path(*state, "a"), "twin", NULL);
    put(unit_path(*state, "minerva/plugins"), "good", NULL);
    put(*state, "gpu", NULL);
    assert_int_equal(symlink("../../a/twin.so", unit_path(*state, "minerva/plugins/zlink.so")),
                     0); /* the same file: no second record */
    snprintf(list, sizeof list, "%s/a:%s/gpu.so", (const char *)*state, (const char *)*state);
    world w;
    open_world(&w, "plugin_path", list);
    expect(&w, unit_path(*state, "a/twin.so"), "ok", "");
    expect(&w, unit_path(*state, "gpu.so"), "ok", "");
    expect(&w, unit_path(*state, "minerva/plugins/good.so"), "shadowed", "a/twin.so");
    size_t n, n_folders;
    const mn_plugin_record *records = mn_registry_plugins(w.reg, &n);
    for (size_t i = 0; i < n; i++)
        assert_null(strstr(records[i].path, "zlink"));
    const mn_plugin_folder *folders = mn_registry_folders(w.reg, &n_folders);
    assert_string_equal(folders[0].origin, "plugin_path");
    assert_string_equal(folders[1].origin, "user");
    for (size_t i = 2; i < n_folders; i++)
        assert_string_equal(folders[i].origin, "build tree"); /* this program lies in one */
    close_world(&w);
    unsetenv("XDG_DATA_HOME");
}

static void device_list(void **state) {
    put(*state, "good", NULL);
    put(*state, "gpu", NULL);
    put(*state, "driverless", NULL);
    world w;
    open_world(&w, "plugin_path_only", *state);
    size_t n;
    const mn_device_record *dev = mn_registry_devices(w.reg, &n);
    assert_int_equal(n, 5); /* in the order of the file names */
    assert_string_equal(dev[0].name, "driverless");
    assert_false(dev[0].usable);
    assert_string_equal(dev[0].reason, "no driver on this machine");
    assert_string_equal(dev[1].name, "stub");
    assert_true(dev[1].usable);
    assert_int_equal(strlen(dev[1].info.name), sizeof dev[1].info.name - 1);
    assert_string_equal(dev[2].name, "gpu:0");
    assert_string_equal(dev[4].name, "gpu:2");
    assert_false(dev[4].usable);
    assert_ptr_equal(mn_registry_device(w.reg, mn_str_of("stub:0")), &dev[1]);
    assert_ptr_equal(mn_registry_device(w.reg, mn_str_of("stub")), &dev[1]);
    assert_ptr_equal(mn_registry_device(w.reg, mn_str_of("gpu")), &dev[2]);
    assert_ptr_equal(mn_registry_device(w.reg, mn_str_of("gpu:1")), &dev[3]);
    assert_null(mn_registry_device(w.reg, mn_str_of("gpu:7")));
    assert_null(mn_registry_device(w.reg, mn_str_of("stub:1")));
    assert_null(mn_registry_device(w.reg, mn_str_of("")));

    mn_error err = MN_ERROR_INIT;
    mn_device *a = NULL, *b = NULL;
    const int *n_open = dev[1].plugin->plugin->query(NULL, "test.open"),
              *n_shutdown = dev[1].plugin->plugin->query(NULL, "test.shutdown");
    assert_int_equal(mn_registry_device_open(w.reg, &dev[1], &a, &err), MN_OK);
    assert_int_equal(mn_registry_device_open(w.reg, &dev[1], &b, &err), MN_OK);
    assert_true(a && a == b && *n_open == 1);
    assert_int_equal(mn_registry_device_open(w.reg, &dev[3], &a, &err), MN_DEVICE_LOST);
    assert_string_equal(err.msg, "device gpu:1 cannot be opened: out of order");
    assert_int_equal(mn_registry_device_open(w.reg, &dev[0], &a, &err), MN_NO_DEVICE);
    close_world(&w);
    /* the stub stays loaded: it did not say it may go */
    assert_true(*n_open == 0 && *n_shutdown == 1);
}

static void add_one(void *arg, uint32_t i, uint32_t n) {
    ((uint32_t *)arg)[i] += n;
}

static int32_t on_progress(void *arg, float done, mn_str what) {
    *(float *)arg = done;
    return mn_str_is(what, "stop");
}

static void on_log(void *arg, int32_t level, const char *msg) {
    snprintf(arg, 64, "%d %.50s", level, msg);
}

static void services(void **state) {
    put(*state, "good", NULL);
    world w;
    open_world(&w, "plugin_path_only", *state);
    const mn_plugin_record *rec = mn_registry_plugin(w.reg, mn_str_of("stub"));
    const mn_host *host = rec->plugin->query(rec->plugin->self, "test.host");
    assert_int_equal(host->abi, MN_ABI_VERSION);
    void *ptr = host->alloc(host->self, 10, 256);
    assert_true(ptr && (uintptr_t)ptr % 256 == 0);
    host->release(host->self, ptr);
    assert_null(host->alloc(host->self, UINT64_MAX, 64));
    uint32_t counts[2] = {0};
    assert_int_equal(host->workers(host->self), 2);
    assert_int_equal(host->parallel(host->self, 2, add_one, counts), MN_OK);
    assert_true(counts[0] == 2 && counts[1] == 2);
    mn_str value = {0};
    assert_int_equal(host->option(host->self, "greeting", &value), 1);
    assert_true(mn_str_is(value, "hello")); /* by its id now */
    assert_int_equal(host->option(host->self, "absent", &value), 0);
    float done = 0;
    assert_int_equal(host->progress(host->self, .5f, mn_str_of("stop")), 0);
    mn_registry_on_progress(w.reg, on_progress, &done);
    assert_int_equal(host->progress(host->self, .5f, mn_str_of("stop")), 1);
    assert_true(done == .5f);
    assert_true(host->now_ns(host->self) <= host->now_ns(host->self));
    assert_null(host->query(host->self, "anything"));
    char seen[64] = "";
    mn_log_to(on_log, seen);
    host->log(host->self, MN_LOG_WARN, (mn_str){"careful!", 7});
    assert_string_equal(seen, "1 stub: careful");
    mn_log_to(NULL, NULL);
    close_world(&w);
}

/* Writes "abc" and reads it back under name and stamp. */
static mn_status read_back(const mn_host *host, const char *name, const char *stamp) {
    const mn_cache *cache = host->query(host->self, MN_CACHE_ID);
    void *data = NULL;
    uint64_t bytes = 0;
    const mn_status st = cache->read(host->self, mn_str_of(name), mn_str_of(stamp), &data, &bytes);
    if (!st)
        assert_true(bytes == 3 && !memcmp(data, "abc", 3));
    host->release(host->self, data);
    const void *at = NULL;
    assert_int_equal(cache->map(host->self, mn_str_of(name), mn_str_of(stamp), &at, &bytes), st);
    if (!st)
        assert_true(bytes == 3 && !memcmp(at, "abc", 3) && (uintptr_t)at % 64 == 0);
    cache->unmap(host->self, at);
    return st;
}

/* The only file of the cache of plugins, with a byte changed or its end cut off. */
static void spoil(const char *dir, bool cut) {
    glob_t found;
    assert_int_equal(glob(unit_path(dir, "minerva/plugin/*"), 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1); /* no temporary file either */
    FILE *f = fopen(found.gl_pathv[0], "r+b");
    assert_non_null(f);
    fseek(f, -1, SEEK_END);
    if (cut)
        assert_int_equal(ftruncate(fileno(f), ftell(f)), 0);
    else
        fputc('x', f);
    fclose(f);
    globfree(&found);
}

static void cache(void **state) {
    setenv("XDG_CACHE_HOME", *state, 1);
    put(*state, "good", NULL);
    world w;
    open_world(&w, "plugin_path_only", *state);
    const mn_plugin_record *rec = mn_registry_plugin(w.reg, mn_str_of("stub"));
    const mn_host *host = rec->plugin->query(rec->plugin->self, "test.host");
    const mn_cache *c = host->query(host->self, MN_CACHE_ID);
    const mn_str name = mn_str_of("kernel");
    assert_int_equal(read_back(host, "kernel", "driver 1"), MN_END);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(c->write(host->self, name, mn_str_of("driver 1"), "abc", 3), MN_OK);
        assert_int_equal(read_back(host, "kernel", "driver 1"), MN_OK);
        assert_int_equal(read_back(host, "kernel", "driver 2"), MN_END);
        assert_int_equal(read_back(host, "kerneldriver", " 1"), MN_END);
        if (round == 2)
            break;
        spoil(*state, round);
        assert_int_equal(read_back(host, "kernel", "driver 1"), MN_END);
    }
    /* another stamp takes the place of the first */
    assert_int_equal(c->write(host->self, name, mn_str_of("driver 2"), "abc", 3), MN_OK);
    assert_int_equal(read_back(host, "kernel", "driver 1"), MN_END);
    assert_int_equal(read_back(host, "kernel", "driver 2"), MN_OK);
    /* what is mapped stays while the entry is replaced */
    const void *at = NULL;
    uint64_t bytes = 0;
    assert_int_equal(c->map(host->self, name, mn_str_of("driver 2"), &at, &bytes), MN_OK);
    assert_int_equal(c->write(host->self, name, mn_str_of("driver 2"), "longer", 6), MN_OK);
    assert_memory_equal(at, "abc", 3);
    c->unmap(host->self, at);
    assert_int_equal(c->write(host->self, name, name, "abc", c->most + 1), MN_INVALID);
    close_world(&w);
    unsetenv("XDG_CACHE_HOME");
}

static void unloading(void **state) {
    const char *path = put(*state, "unloadable", NULL);
    for (int i = 0; i < 3; i++) {
        world w;
        open_world(&w, "plugin_path_only", path);
        expect(&w, path, "ok", "");
        close_world(&w);
    }
}

static void out_of_memory(void **state) {
    put(*state, "good", NULL);
    put(*state, "null", NULL);
    put(*state, "twin", NULL);
    put(*state, "gpu", NULL);
    world w = {0};
    const mn_config_override over = {"plugin_path_only", *state, NULL};
    assert_int_equal(mn_config_load(&over, 1, &w.cfg, NULL), MN_OK);
    assert_int_equal(mn_pool_create(1, &w.pool, NULL), MN_OK);
    bool done = false;
    for (int64_t k = 1; !done; k++) {
        mn_error err = MN_ERROR_INIT;
        size_t n = 0;
        mn_alloc_fail_after(k);
        mn_status status = mn_registry_create(w.cfg, w.pool, NULL, &w.reg, &err);
        if (status == MN_OK)
            done = mn_registry_devices(w.reg, &n) != NULL;
        mn_alloc_fail_after(-1);
        assert_true(k < 1000);
        if (status != MN_OK) {
            assert_int_equal(status, MN_OUT_OF_MEMORY);
            assert_non_null(strstr(err.msg, "out of memory"));
            continue;
        }
        assert_true(mn_registry_devices(w.reg, &n) && n == 4); /* a second attempt has the memory */
        mn_registry_free(w.reg);
    }
    w.reg = NULL;
    close_world(&w);
}

int main(void) {
    static const char *const names[] = {"MINERVA_PLUGIN_PATH", "MINERVA_PLUGIN_PATH_ONLY"};
    for (size_t i = 0; i < MN_COUNT(names); i++)
        unsetenv(names[i]);
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
    umask(022);
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, unit_setup, unit_teardown)
    const struct CMUnitTest tests[] = {
        TEST(good_and_bad), TEST(unsafe_files), TEST(unsafe_folders), TEST(build_tree_mark),
        TEST(search_order), TEST(device_list),  TEST(services),       TEST(cache),
        TEST(unloading),    TEST(out_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
