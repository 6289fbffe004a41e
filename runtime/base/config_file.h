/* config_file.h -- the lines of a minerva.ini, for config.c, which knows the keys. */
#ifndef MN_CONFIG_FILE_H
#define MN_CONFIG_FILE_H
#include "base/base.h"

enum { MN_CONFIG_NAME_CAP = 49 }; /* inih cuts names and sections there */

/* Strings live until the call returns. */
typedef struct {
    const char *path;
    int line;            /* from 1 */
    const char *section; /* "": none; "minerva", "plugin.ID" */
    const char *name;    /* of MN_CONFIG_NAME_CAP bytes: it was longer */
    const char *value;
} mn_config_line;
typedef mn_status (*mn_config_line_fn)(void *arg, const mn_config_line *line, mn_error *err);

/* Calls on_line for each key = value, in order, up to the first mistake, whose status and message
 * are the result. A file that is not there has no lines. */
mn_status mn_config_read_file(const char *path, mn_config_line_fn on_line, void *arg,
                              mn_error *err);
/* Whether n bytes are a plugin's id: lower case, digits, '_'. */
bool mn_config_is_id(const char *s, size_t n);
#endif
