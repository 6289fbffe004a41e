/* test_config_system.c -- the system's minerva.ini below the user's. Compiled with a system folder
 * of its own. */
#include "base/config.h"
#include "unit.h"

static void put(const char *folder, const char *text) {
    char path[1200];
    mkdir(folder, 0755);
    snprintf(path, sizeof path, "%s/minerva", folder);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/minerva/minerva.ini", folder);
    unit_write(path, text, strlen(text));
}

static void shown(const mn_config *cfg, const char *key, const char *value, const char *folder,
                  int line) {
    const char *name, *found, *origin;
    char where[1200];
    snprintf(where, sizeof where, "%s/minerva/minerva.ini:%d", folder, line);
    for (size_t i = 0; mn_config_at(cfg, i, &name, &found, &origin); i++)
        if (!strcmp(name, key)) {
            assert_string_equal(found, value);
            assert_string_equal(origin, where);
            return;
        }
    fail_msg("no key %s", key);
}

static void layers(void **state) {
    mn_error err = MN_ERROR_INIT;
    mn_config *cfg = NULL;
    const char *user = *state;
    setenv("XDG_CONFIG_HOME", user, 1);
    unsetenv("MINERVA_DEVICE"), unsetenv("MINERVA_THREADS"), unsetenv("MINERVA_PLUGIN_PATH");
    put(MN_SYSCONF_DIR, "device = system\nthreads = 3\nplugin_path = /system\n[plugin.stub]\na = "
                        "system\nb = system\n");
    put(user, "device = user\nplugin_path = /user\n\n[plugin.stub]\na = user\n");
    assert_int_equal(mn_config_load(NULL, 0, &cfg, &err), MN_OK);
    shown(cfg, "device", "user", user, 1); /* stands in both: no duplicate */
    shown(cfg, "threads", "3", MN_SYSCONF_DIR, 2);
    shown(cfg, "plugin.stub.a", "user", user, 5);
    shown(cfg, "plugin.stub.b", "system", MN_SYSCONF_DIR, 6);
    assert_string_equal(mn_config_get_str(cfg, "plugin_path"), "/user:/system");
    mn_config_free(cfg);
    put(MN_SYSCONF_DIR, "device = system\nthreads = no\n");
    assert_int_equal(mn_config_load(NULL, 0, &cfg, &err), MN_BAD_INPUT);
    assert_non_null(strstr(err.msg, MN_SYSCONF_DIR "/minerva/minerva.ini:2"));
    unlink(MN_SYSCONF_DIR "/minerva/minerva.ini");
}

/* Anybody could have written it: the presets hold, and no error. */
static void open_to_others(void **state) {
    mn_error err = MN_ERROR_INIT;
    mn_config *cfg = NULL;
    setenv("XDG_CONFIG_HOME", *state, 1);
    unsetenv("MINERVA_THREADS");
    put(MN_SYSCONF_DIR, "threads = 3\n");
    assert_int_equal(chmod(MN_SYSCONF_DIR "/minerva/minerva.ini", 0666), 0);
    assert_int_equal(mn_config_load(NULL, 0, &cfg, &err), MN_OK);
    assert_string_not_equal(mn_config_get_str(cfg, "threads"), "3");
    mn_config_free(cfg);
    unlink(MN_SYSCONF_DIR "/minerva/minerva.ini");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(layers, unit_setup, unit_teardown),
        cmocka_unit_test_setup_teardown(open_to_others, unit_setup, unit_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
