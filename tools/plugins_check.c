/* plugins_check.c -- minerva plugins check: its help and what is wrong in its command line, then it
 * becomes the program minerva-check (tools/check), which tries the rules. That lies in the build
 * tree below this program, or in libexec of the prefix, which is found relative to this program's
 * own file, wherever the prefix moved. */
#include "app.h"
#include "check_flags.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where the program may be, from the folder of this one; an absolute path is meant as it is. */
static const char *const places[] = {MINERVA_CHECK_PATH, "check/minerva-check"};

/* The folder of this program's file, without links. 0: unknown, errno says why. */
static int own_folder(char dst[PATH_MAX]) {
    const ssize_t n = readlink("/proc/self/exe", dst, PATH_MAX - 1);
    if (n <= 0)
        return 0;
    dst[n] = 0;
    char *slash = strrchr(dst, '/');
    if (!slash)
        return 0;
    *slash = 0;
    return 1;
}

static void place_of(size_t i, const char *folder, char *dst, size_t n) {
    if (places[i][0] == '/')
        snprintf(dst, n, "%s", places[i]);
    else
        snprintf(dst, n, "%s/%s", folder, places[i]);
}

/* Becomes the first of the places that is a program; returns, with the error printed, if none
 * is. */
static int become_check(char **argv) {
    char folder[PATH_MAX];
    char path[MN_COUNT(places)][2 * PATH_MAX];
    if (!own_folder(folder))
        return complain(EXIT_FAILED, "cannot find minerva-check: /proc/self/exe: %s",
                        strerror(errno));
    for (size_t i = 0; i < MN_COUNT(places); i++) {
        place_of(i, folder, path[i], sizeof path[i]);
        execv(path[i], argv);
        if (errno != ENOENT && errno != ENOTDIR)
            return complain(EXIT_FAILED, "cannot run %s: %s", path[i], strerror(errno));
    }
    return complain(EXIT_FAILED,
                    "cannot find minerva-check: found neither %s nor %s; it is installed with "
                    "minerva",
                    path[0], path[1]);
}

int cmd_plugins_check(int argc, char **argv) {
    check_flags f;
    const int code = check_flags_parse(argc, argv, &f);
    if (code != ARGS_OK)
        return code;
    fflush(stdout);
    return become_check(argv);
}
