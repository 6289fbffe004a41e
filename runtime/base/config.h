/* config.h -- settings and where each came from: the command line, the environment (MINERVA_*), the
 * user's minerva.ini, the system's, the defaults; the first source that has a setting wins. The two
 * path lists of folders are joined instead, the stronger source in front.
 *
 * A minerva.ini holds `key = value` lines for the keys of mn_config_keys (at the top or under
 * [minerva]), and sections [plugin.ID] with the keys of that plugin. If mn_config_keys lists keys
 * of a plugin, it lists all of them, and others are errors. MINERVA_<ID>_<KEY> in upper case sets a
 * plugin's key, too. */
#ifndef MN_CONFIG_H
#define MN_CONFIG_H
#include "base/base.h"

typedef enum {
    MN_CONFIG_BOOL,
    MN_CONFIG_INT,
    MN_CONFIG_FLOAT,
    MN_CONFIG_STRING,
    MN_CONFIG_CHOICE,
    MN_CONFIG_PATHS
} mn_config_type;
typedef struct {
    const char *name, *env; /* "device", "MINERVA_DEVICE" */
    mn_config_type type;
    const char *preset;  /* the default */
    double lo, hi;       /* of numbers */
    const char *choices; /* "error|warn|info|debug" */
    bool adds_up;        /* a path list that all sources add to */
    const char *help;
} mn_config_key;
const mn_config_key *mn_config_keys(size_t *n);

/* A setting of the command line. name: a known key or "plugin.ID.KEY"; flag: the user's spelling,
 * for messages ("-t"). */
typedef struct {
    const char *name, *value, *flag;
} mn_config_override;

typedef struct mn_config mn_config; /* immutable once loaded: any thread */

/* Strings are copied. MN_BAD_INPUT: an unknown key or a bad value; the message names file and line,
 * variable or flag, what was found and what was expected. A file that does not exist is no error; a
 * file that cannot be read is an error. */
mn_status mn_config_load(const mn_config_override *overrides, size_t n, mn_config **out,
                         mn_error *err);
void mn_config_free(mn_config *cfg);

/* name: one of mn_config_keys, of that type; an unknown name gives "", 0, false. Strings live as
 * long as cfg. */
/* also of path lists: colon-separated */
const char *mn_config_get_str(const mn_config *cfg, const char *name);
int64_t mn_config_get_int(const mn_config *cfg, const char *name);
double mn_config_get_float(const mn_config *cfg, const char *name);
bool mn_config_get_bool(const mn_config *cfg, const char *name);
bool mn_config_is_set(const mn_config *cfg, const char *name); /* by anything but the default */
int32_t mn_config_log_level(const mn_config *cfg);             /* MN_LOG_* of "log_level" */

/* A plugin's own key; NULL = not set. */
const char *mn_config_option(const mn_config *cfg, const char *plugin_id, const char *key);

/* The i-th MINERVA_* variable that is set and that no key names; NULL past the last. A plugin may
 * read such a variable if it is MINERVA_ID_... and mn_config_keys lists no keys of ID. */
const char *mn_config_variable(const mn_config *cfg, size_t i);
/* The variable of a key that is spelled most like name; NULL = none is. */
const char *mn_config_nearest(const char *name);

/* The i-th setting, for listing: its value and where it came from: "default", "environment
 * MINERVA_DEVICE", "/path/minerva.ini:3", "command line". false past the last. */
bool mn_config_at(const mn_config *cfg, size_t i, const char **name, const char **value,
                  const char **origin);
#endif
