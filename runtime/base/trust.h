/* trust.h -- which users may write the files that are executed, loaded or believed: plugins, the
 * program minerva-probe, the mark of a build tree, the demo model.
 *
 * Paths that are derived from the library's own folder may lead outside of what was installed:
 * `../libexec` of a library that somebody copied to /tmp/lib is /tmp/libexec, which any user can
 * make. Every file that is found by such a path passes the same check as a plugin's file before it
 * is used. */
#ifndef MN_TRUST_H
#define MN_TRUST_H
#include "base/base.h"
#include <limits.h>
#include <sys/types.h>

/* Users whose write access is no danger: root, the user, and those who can write libminerva itself
 * and so control the process already. */
typedef struct {
    char dir[PATH_MAX]; /* libminerva's folder, without links; "" = unknown */
    uid_t uid;          /* owner of that folder */
    gid_t gid;          /* its group, if that may write it */
    bool has_gid;
} mn_trust;
void mn_trust_init(mn_trust *trust);

struct stat;
/* MN_BAD_FILE, with mode and owner, where others may write the file that st describes. */
mn_status mn_trust_stat(const mn_trust *trust, const struct stat *st, mn_error *err);
/* Checks the folders above `real`, an absolute path without links, up to the first folder that
 * holds libminerva, or the root. */
mn_status mn_trust_folders(const mn_trust *trust, const char *real, mn_error *err);
/* Both checks for the file or folder that `path` leads to; real: where it lies, to be used in its
 * place. The message begins with the path. */
mn_status mn_trust_path(const mn_trust *trust, const char *path, char real[PATH_MAX],
                        mn_error *err);

/* The root of the build tree that the library belongs to; false = it was installed. The mark lies
 * beside the library, so that only users who can write there can make one. */
bool mn_trust_build_root(const mn_trust *trust, char root[PATH_MAX]);
#endif
