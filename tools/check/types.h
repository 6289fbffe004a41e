/* types.h -- the types that a plugin brings along (mn.types/1), as the rules read them. */
#ifndef MINERVA_CHECK_TYPES_H
#define MINERVA_CHECK_TYPES_H
#include "check.h"

#define TYPES_MOST 64
typedef struct {
    mn_type at[TYPES_MOST];
    uint32_t n;
} plugin_types;

/* Of an entered plugin; n 0: it has none. A list that breaks its contract fails the rule. */
void types_read(check *c, const check_plugin *p, plugin_types *out);
/* A type of the list or of plugin.h; id 0: neither. */
mn_dtype types_find(const plugin_types *list, uint32_t id);
#endif
