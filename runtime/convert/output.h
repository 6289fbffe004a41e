/* output.h -- a large file that appears under its name only when it is complete. */
#ifndef MN_OUTPUT_H
#define MN_OUTPUT_H
#include "base/base.h"

typedef struct {
    const char *path; /* the caller's, until mn_output_close */
    char *temp;       /* NULL: the file has no name yet, and disappears with the process */
    char *folder;     /* of path; made early: memory must not run out after the rename */
    int fd;
    bool force;
} mn_output;

/* bytes: the size that will be written; too little room is an error at once. force: a file of this
 * name is replaced. Errors name the path. */
mn_status mn_output_open(const char *path, uint64_t bytes, bool force, mn_output *out,
                         mn_error *err);
mn_status mn_output_put(mn_output *f, const void *data, uint64_t bytes, mn_error *err);
/* status MN_OK: the file is synced and renamed, then its folder is synced; if only the folder's
 * sync fails, the file stays. Any other status: the file is removed, and the status is returned. */
mn_status mn_output_close(mn_output *f, mn_status status, mn_error *err);
#endif
