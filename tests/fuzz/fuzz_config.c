/* Input: a minerva.ini. */
#include "base/config.h"
#include "fuzz.h"
#include <stdio.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    fuzz_quiet();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    mn_config *cfg = NULL;
    mn_error err = MN_ERROR_INIT;
    const char *name;
    const char *value;
    const char *origin;
    fuzz_file("minerva.ini", (mn_str){(const char *)data, n}, 0);
    if (fuzz_ok(mn_config_load(NULL, 0, &cfg, &err), &err)) {
        fuzz_accepted = true;
        for (size_t i = 0; mn_config_at(cfg, i, &name, &value, &origin); i++) {
            FUZZ_CHECK(*name && value && *origin);
            fuzz_answered(value, strlen(value));
        }
        mn_config_get_bool(cfg, "probe_cache");
        FUZZ_CHECK(mn_config_get_int(cfg, "threads") >= 0 &&
                   mn_config_get_int(cfg, "threads") <= 4096);
        FUZZ_CHECK(mn_config_log_level(cfg) >= 0);
        mn_config_option(cfg, "vendor", "key");
    } else /* where the mistake is */
        FUZZ_CHECK(strstr(err.msg, "minerva.ini:"));
    mn_config_free(cfg);
    fuzz_files_remove();
    return 0;
}
