/* test_config.c -- the order of the sources, origins, and every kind of mistake. */
#include "base/config.h"
#include "unit.h"

static int setup(void **state) {
    if (unit_setup(state))
        return -1;
    setenv("XDG_CONFIG_HOME", *state, 1);
    static const char *const names[] = {
        "MINERVA_DEVICE",  "MINERVA_THREADS",      "MINERVA_LOG",      "MINERVA_PLUGIN_PATH",
        "MINERVA_CPU_ISA", "MINERVA_CPU_SIMD_ISA", "MINERVA_STUB_KEY", "MINERVA_CUDA_GRAPHS"};
    for (size_t i = 0; i < MN_COUNT(names); i++)
        unsetenv(names[i]);
    return mkdir(unit_path(*state, "minerva"), 0755);
}

static const char *ini(const char *dir, const char *text) {
    const char *path = unit_path(dir, "minerva/minerva.ini");
    unit_write(path, text, strlen(text));
    return path;
}

static mn_config *load(const mn_config_override *o, size_t n) {
    mn_error err = MN_ERROR_INIT;
    mn_config *cfg = NULL;
    if (mn_config_load(o, n, &cfg, &err) != MN_OK)
        fail_msg("%s", err.msg);
    return cfg;
}

static const char *origin_of(const mn_config *cfg, const char *key) {
    const char *name, *value, *origin;
    for (size_t i = 0; mn_config_at(cfg, i, &name, &value, &origin); i++)
        if (!strcmp(name, key))
            return origin;
    return NULL;
}

static void defaults(void **state) {
    (void)state;
    mn_config *cfg = load(NULL, 0);
    assert_string_equal(mn_config_get_str(cfg, "device"), "auto");
    assert_int_equal(mn_config_get_int(cfg, "threads"), 0);
    assert_int_equal(mn_config_log_level(cfg), MN_LOG_WARN);
    assert_string_equal(origin_of(cfg, "device"), "default");
    assert_false(mn_config_is_set(cfg, "device"));
    assert_null(mn_config_option(cfg, "cpu_simd", "isa"));
    assert_string_equal(mn_config_get_str(cfg, "no such key"), "");
    mn_config_free(cfg);
    mn_config_free(NULL);
}

static void order(void **state) {
    char where[1100];
    const char *path =
        ini(*state, "# comment\ndevice = gpu ; why not\n[minerva]\nthreads=3\n  log_level = "
                    "info\n\n[plugin.stub]\nkey = file\nother=x\n");
    mn_config *cfg = load(NULL, 0);
    assert_string_equal(mn_config_get_str(cfg, "device"), "gpu");
    assert_int_equal(mn_config_get_int(cfg, "threads"), 3);
    assert_int_equal(mn_config_log_level(cfg), MN_LOG_INFO);
    snprintf(where, sizeof where, "%s:4", path);
    assert_string_equal(origin_of(cfg, "threads"), where);
    snprintf(where, sizeof where, "%s:5", path);
    assert_string_equal(origin_of(cfg, "log_level"), where);
    assert_string_equal(mn_config_option(cfg, "stub", "key"), "file");
    assert_null(mn_config_option(cfg, "stub", "absent"));
    mn_config_free(cfg);

    setenv("MINERVA_THREADS", "5", 1);
    setenv("MINERVA_DEVICE", "", 1); /* empty: not set */
    setenv("MINERVA_STUB_KEY", "environment", 1);
    setenv("MINERVA_CPU_ISA", "avx2", 1);
    setenv("MINERVA_CPU_SIMD_ISA", "generic", 1);
    cfg = load(NULL, 0);
    assert_int_equal(mn_config_get_int(cfg, "threads"), 5);
    assert_string_equal(origin_of(cfg, "threads"), "environment MINERVA_THREADS");
    assert_string_equal(mn_config_get_str(cfg, "device"), "gpu");
    assert_string_equal(mn_config_option(cfg, "stub", "key"), "environment");
    assert_string_equal(origin_of(cfg, "plugin.stub.key"), "environment MINERVA_STUB_KEY");
    assert_string_equal(mn_config_option(cfg, "cpu_simd", "isa"), "avx2");
    mn_config_free(cfg);

    const mn_config_override over[] = {{"threads", "7", "-t"}, {"plugin.stub.key", "flag", NULL}};
    cfg = load(over, 2);
    assert_int_equal(mn_config_get_int(cfg, "threads"), 7);
    assert_string_equal(origin_of(cfg, "threads"), "command line");
    assert_string_equal(mn_config_option(cfg, "stub", "key"), "flag");
    mn_config_free(cfg);
}

static void path_lists_add_up(void **state) {
    const char *path = ini(*state, "plugin_path = /file/a\nplugin_path = /file/b\n");
    setenv("MINERVA_PLUGIN_PATH", "/env", 1);
    const mn_config_override over = {"plugin_path", "/flag", NULL};
    mn_config *cfg = load(&over, 1);
    char where[2200];
    assert_string_equal(mn_config_get_str(cfg, "plugin_path"), "/flag:/env:/file/a:/file/b");
    snprintf(where, sizeof where, "command line, environment MINERVA_PLUGIN_PATH, %s:1, %s:2", path,
             path);
    assert_string_equal(origin_of(cfg, "plugin_path"), where);
    mn_config_free(cfg);
}

static void refuse(const char *words[3]) {
    mn_error err = MN_ERROR_INIT;
    mn_config *cfg = NULL;
    assert_int_equal(mn_config_load(NULL, 0, &cfg, &err), MN_BAD_INPUT);
    for (int i = 0; i < 3; i++)
        if (!strstr(err.msg, words[i]))
            fail_msg("no \"%s\" in: %s", words[i], err.msg);
    assert_null(cfg);
}

static void mistakes_in_files(void **state) {
    char longer[400] = "device ";
    memset(longer + 7, 'x', 380);
    const struct {
        const char *text, *words[3];
    } cases[] = {
        {"\n\nthreads = many\n", {"minerva.ini:3", "\"many\"", "from 0 to 4096"}},
        {"threads = 4097\n", {"minerva.ini:1", "threads", "from 0 to 4096"}},
        {"log_level = loud\n", {"minerva.ini:1", "\"loud\"", "error|warn|info|debug"}},
        {"devise = cpu\n", {"minerva.ini:1", "devise", "device, threads"}},
        {"[other]\ndevice = cpu\n", {"minerva.ini:1", "[other]", "[minerva] or [plugin.ID]"}},
        {"\n[Minerva]\n", {"minerva.ini:2", "[Minerva]", "expected"}},
        {"[plugin.Bad]\nx = 1\n", {"minerva.ini:1", "[plugin.Bad]", "expected"}},
        {"[plugin.]\n", {"minerva.ini:1", "[plugin.]", "expected"}},
        {"[plugins.stub]\n", {"minerva.ini:1", "[plugins.stub]", "expected"}},
        {"[ minerva ]\n", {"minerva.ini:1", "[ minerva ]", "expected"}},
        {"[minerva] device = cpu\n", {"minerva.ini:1", "\"device = cpu\"", "a line of its own"}},
        {"[plugin.cpu_simd]\nisas = avx2\n",
         {"minerva.ini:2", "plugin.cpu_simd.isas", "one of isa"}},
        {"[plugin.cpu_simd]\nisa = sse\n", {"minerva.ini:2", "\"sse\"", "generic|avx2"}},
        {"[plugin.cuda]\ngraphs = maybe\n", {"minerva.ini:2", "\"maybe\"", "0|1"}},
        {"[plugin.opencl]\ncommand_buffers = 2\n", {"command_buffers", "\"2\"", "auto|0|1"}},
        {"[plugin.opencl]\nmad = 4\n", {"plugin.opencl.mad", "\"4\"", "-1|0|8|16"}},
        {"[plugin.opencl]\nshapes = 2\n", {"plugin.opencl.shapes", "\"2\"", "-1|0|1"}},
        {"[plugin.opencl]\nsub_groups = 12\n", {"sub_groups", "\"12\"", "-1|0|8|16|32|64"}},
        {"[plugin.opencl]\nunified = yes\n", {"plugin.opencl.unified", "\"yes\"", "auto|0|1"}},
        {"[plugin.stub]\na.b = 1\n", {"minerva.ini:2", "plugin.stub.a.b", "expected"}},
        {"Device = cpu\n", {"minerva.ini:1", "\"Device\"", "device, threads"}},
        {"= cpu\n", {"minerva.ini:1", "unknown key \"\"", "device, threads"}},
        {"device =\n", {"minerva.ini:1", "device: found \"\"", "auto, or a list"}},
        {"threads = ; none\n", {"minerva.ini:1", "threads: found \"\"", "whole number"}},
        {"threads = 4 # four\n", {"minerva.ini:1", "4 # four", "whole number"}},
        {"threads = 1\nthreads\n", {"minerva.ini:2", "\"threads\"", "key = value"}},
        {"threads = 1\n[minerva]\nthreads = 1\n",
         {"minerva.ini:3", "second time", "minerva.ini:1"}},
        {"[plugin.stub]\nk = 1\n[plugin.stub]\nk = 1\n",
         {"minerva.ini:4", "second time", "minerva.ini:2"}},
        {"device = cpu\rthreads = 4\n", {"minerva.ini:1", "byte 13", "expected text"}},
        {"\xEF\xBB\xBFthreads = x\n", {"minerva.ini:1", "\"x\"", "whole number"}},
        {"probe_cache = perhaps\n", {"minerva.ini:1", "\"perhaps\"", "true or false"}},
        {"probe_timeout = 1e9\n", {"minerva.ini:1", "\"1e9\"", "a number from"}},
        {"plugin.cpu_simd.isa = avx2\n", {"minerva.ini:1", "plugin.cpu_simd.isa", "[plugin.ID]"}},
        {"device = cpu\nnonsense\nthreads = x\n", {"minerva.ini:2", "\"nonsense\"", "key = value"}},
        {"[broken\n", {"minerva.ini:1", "[broken", "[section]"}},
        {"device = a\n\ndevice = b\n", {"minerva.ini:3", "second time", "minerva.ini:1"}},
        {longer, {"minerva.ini:1", "387 bytes", "key = value"}},
        {"[plugin.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]\nx = 1\n",
         {"minerva.ini:1", "at most 48 bytes", ""}},
        {"[plugin.stub]\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa = 1\n",
         {"minerva.ini:2", "49 bytes or more", ""}},
    };
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        ini(*state, cases[i].text);
        refuse((const char **)cases[i].words);
    }
    unit_write(unit_path(*state, "minerva/minerva.ini"), "dev\0ice = x\n", 12);
    refuse((const char *[]){"minerva.ini:1", "byte 0", "expected text"});
}

/* What editors of all systems write, and lines longer than inih's. */
static void spellings(void **state) {
    char text[6000], path[1500] = "/";
    memset(path + 1, 'p', 1400);
    snprintf(text, sizeof text,
             "\xEF\xBB\xBF[minerva] ; a comment\r\n"
             "  device: gpu\t\r\n"
             "; %s = \n"
             "\tmodel = %s ; and why\r\n"
             "plugin_path=/a;b\n"
             "probe_cache = off\n"
             "probe_timeout = 2.5\n"
             "[plugin.stub] # another\n"
             "key =\n"
             "long = %s;x",
             path, path, path);
    ini(*state, text);
    mn_config *cfg = load(NULL, 0);
    char where[1200];
    assert_string_equal(mn_config_get_str(cfg, "device"), "gpu");
    assert_string_equal(mn_config_get_str(cfg, "model"), path);
    snprintf(where, sizeof where, "%s:4", unit_path(*state, "minerva/minerva.ini"));
    assert_string_equal(origin_of(cfg, "model"), where);
    assert_string_equal(mn_config_get_str(cfg, "plugin_path"), "/a;b");
    assert_false(mn_config_get_bool(cfg, "probe_cache"));
    assert_true(mn_config_get_float(cfg, "probe_timeout") == 2.5);
    assert_string_equal(mn_config_option(cfg, "stub", "key"), "");
    memcpy(path + 1401, ";x", 3);
    assert_string_equal(mn_config_option(cfg, "stub", "long"), path);
    mn_config_free(cfg);
    ini(*state, "");
    mn_config_free(load(NULL, 0));
    /* empty is a value where the default is empty: the user's file undoes the system's */
    ini(*state, "model =\n");
    cfg = load(NULL, 0);
    assert_string_equal(mn_config_get_str(cfg, "model"), "");
    assert_true(mn_config_is_set(cfg, "model"));
    mn_config_free(cfg);
}

/* $XDG_CONFIG_HOME, else $HOME/.config; a relative path counts as not set. */
static void user_folders(void **state) {
    ini(*state, "device = xdg\n");
    char dir[1200];
    snprintf(dir, sizeof dir, "%s", unit_path(*state, "home"));
    assert_int_equal(mkdir(dir, 0755), 0);
    snprintf(dir, sizeof dir, "%s", unit_path(*state, "home/.config"));
    assert_int_equal(mkdir(dir, 0755), 0);
    snprintf(dir, sizeof dir, "%s", unit_path(*state, "home/.config/minerva"));
    assert_int_equal(mkdir(dir, 0755), 0);
    unit_write(unit_path(*state, "home/.config/minerva/minerva.ini"), "device = home\n", 14);
    setenv("HOME", unit_path(*state, "home"), 1);
    const char *const xdg[] = {*state, "", "relative", "/nonexistent"}, *const want[] = {
                                                                            "xdg", "home", "home",
                                                                            "auto"};
    for (size_t i = 0; i < MN_COUNT(xdg); i++) {
        setenv("XDG_CONFIG_HOME", xdg[i], 1);
        mn_config *cfg = load(NULL, 0);
        assert_string_equal(mn_config_get_str(cfg, "device"), want[i]);
        mn_config_free(cfg);
    }
}

/* Every key can be set by its variable, and the listing says so. */
static void every_variable(void **state) {
    (void)state;
    size_t n;
    const mn_config_key *key = mn_config_keys(&n);
    for (size_t i = 0; i < n; i++) {
        char value[64] = "/x", where[100];
        if (key[i].type == MN_CONFIG_CHOICE)
            snprintf(value, sizeof value, "%.*s", (int)strcspn(key[i].choices, "|"),
                     key[i].choices);
        if (key[i].type == MN_CONFIG_INT || key[i].type == MN_CONFIG_FLOAT ||
            key[i].type == MN_CONFIG_BOOL)
            strcpy(value, "1");
        setenv(key[i].env, value, 1);
        mn_config *cfg = load(NULL, 0);
        unsetenv(key[i].env);
        snprintf(where, sizeof where, "environment %s", key[i].env);
        assert_string_equal(mn_config_get_str(cfg, key[i].name), value);
        assert_string_equal(origin_of(cfg, key[i].name), where);
        mn_config_free(cfg);
    }
    setenv("MINERVA_CPU_SIMD_ISA", "avx2", 1);
    mn_config *cfg = load(NULL, 0);
    assert_string_equal(mn_config_option(cfg, "cpu_simd", "isa"), "avx2");
    assert_string_equal(origin_of(cfg, "plugin.cpu_simd.isa"), "environment MINERVA_CPU_SIMD_ISA");
    mn_config_free(cfg);
}

static void mistakes_elsewhere(void **state) {
    (void)state;
    mn_error err = MN_ERROR_INIT;
    mn_config *cfg = NULL;
    setenv("MINERVA_CPU_SIMD_ISA", "sse", 1);
    refuse((const char *[]){"environment", "MINERVA_CPU_SIMD_ISA", "\"sse\""});
    unsetenv("MINERVA_CPU_SIMD_ISA");
    setenv("MINERVA_THREADS", "-1", 1);
    refuse((const char *[]){"environment", "MINERVA_THREADS", "\"-1\""});
    unsetenv("MINERVA_THREADS");
    const mn_config_override bad[] = {{"threads", "x", "-t"},     {"treads", "1", NULL},
                                      {"plugin.X.y", "1", NULL},  {"plugin.a", "1", NULL},
                                      {"device", "", "--device"}, {"plugin.cuda.graph", "1", NULL}};
    const char *const word[] = {"-t",       "treads",   "plugin.X.y",
                                "plugin.a", "--device", "plugin.cuda.graph"};
    for (size_t i = 0; i < MN_COUNT(bad); i++) {
        assert_int_equal(mn_config_load(&bad[i], 1, &cfg, &err), MN_BAD_INPUT);
        assert_non_null(strstr(err.msg, word[i]));
    }
    unlink(unit_path(*state, "minerva/minerva.ini"));
    assert_int_equal(mkdir(unit_path(*state, "minerva/minerva.ini"), 0755), 0); /* not a file */
    assert_int_equal(mn_config_load(NULL, 0, &cfg, &err), MN_IO_ERROR);
}

static void out_of_memory(void **state) {
    char text[600] = "device = gpu\nplugin_path = /a\nplugin_path = /b\n[plugin.stub]\nkey = ";
    memset(text + strlen(text), 'x', 300); /* longer than inih's lines */
    ini(*state, text);
    setenv("MINERVA_PLUGIN_PATH", "/env", 1);
    for (int64_t k = 1;; k++) {
        mn_error err = MN_ERROR_INIT;
        mn_config *cfg = NULL;
        mn_alloc_fail_after(k);
        mn_status status = mn_config_load(NULL, 0, &cfg, &err);
        mn_alloc_fail_after(-1);
        mn_config_free(cfg);
        if (status == MN_OK)
            return;
        assert_int_equal(status, MN_OUT_OF_MEMORY);
        assert_true(k < 1000);
    }
}

int main(void) {
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, unit_teardown)
    const struct CMUnitTest tests[] = {TEST(defaults),           TEST(order),
                                       TEST(path_lists_add_up),  TEST(mistakes_in_files),
                                       TEST(mistakes_elsewhere), TEST(out_of_memory),
                                       TEST(spellings),          TEST(user_folders),
                                       TEST(every_variable)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
