/* output.h -- a large file that appears under its name only when it is whole. */
#ifndef MN_OUTPUT_H
#define MN_OUTPUT_H
#include "base/base.h"

typedef struct {
    const char *path; /* the caller's, until mn_output_close */
    char *temp;       /* NULL: the file has no name yet, and goes with the process */
    char *folder;     /* that holds path: after the rename nothing may lack memory */
    int fd;
    bool force;
} mn_output;

/* bytes: what will be written; too little room is an error now. force: a file of this name is
 * replaced. Errors name the path. */
mn_status mn_output_open(const char *path, uint64_t bytes, bool force, mn_output *out,
                         mn_error *err);
mn_status mn_output_put(mn_output *f, const void *data, uint64_t bytes, mn_error *err);
/* status MN_OK: synced and given its name, and its folder is synced: an error of that alone leaves
 * the file where it is. Else thrown away, and the status is returned. */
mn_status mn_output_close(mn_output *f, mn_status status, mn_error *err);
#endif
