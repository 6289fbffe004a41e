/* flaky.h -- a runtime that finds the stub of stubs/flaky.c beside the build's own plugins. */
#ifndef TEST_FLAKY_H
#define TEST_FLAKY_H
#include <minerva/minerva.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char flaky_dir[64], flaky_file[96], flaky_demo[4096];

/* Copies the stub to a folder of its own: others of its folder are not for here. 0 = it was not
 * built. */
static int flaky_setup(void) {
    const char *root = getenv("MINERVA_SOURCE_ROOT");
    char buf[65536];
    size_t n;
    FILE *from = fopen(MINERVA_FLAKY, "rb"), *to;
    if (!from)
        return 0;
    snprintf(flaky_demo, sizeof flaky_demo, "%s/models/storyteller", root ? root : ".");
    snprintf(flaky_dir, sizeof flaky_dir, "/tmp/minerva-flaky-XXXXXX");
    if (!mkdtemp(flaky_dir))
        abort();
    snprintf(flaky_file, sizeof flaky_file, "%s/flaky.so", flaky_dir);
    if (!(to = fopen(flaky_file, "wb")))
        abort();
    while ((n = fread(buf, 1, sizeof buf, from)) > 0)
        fwrite(buf, 1, n, to);
    fclose(from);
    fclose(to);
    chmod(flaky_file, 0755);
    return 1;
}

static void flaky_teardown(void) {
    unlink(flaky_file);
    rmdir(flaky_dir);
}

/* options: pairs "lost_after", "7", ..., NULL */
static mn_status flaky_runtime(const char *const *options, mn_runtime **rt, mn_error *err) {
    /* workers that wait for a busy machine only cost time */
    mn_setting settings[13] = {{"plugin_path", flaky_dir}, {"threads", "1"}};
    char keys[11][48];
    uint32_t n = 2;
    for (; options && *options && n < 13; options += 2, n++) {
        snprintf(keys[n - 2], sizeof keys[0], "plugin.flaky.%s", options[0]);
        settings[n] = (mn_setting){keys[n - 2], options[1]};
    }
    mn_runtime_params p = {.size = sizeof p, .n_settings = n, .settings = settings};
    return mn_runtime_create(&p, rt, err);
}
#endif
