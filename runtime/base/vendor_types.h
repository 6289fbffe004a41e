/* vendor_types.h -- types that plugins bring along (mn.types/1): a copy of a plugin's list. Types
 * of two plugins are the same if their names are the same. Each plugin chooses its own ids: an id
 * has a meaning only with the list that it comes from. */
#ifndef MN_VENDOR_TYPES_H
#define MN_VENDOR_TYPES_H
#include "base/base.h"
#include "base/call.h"

#define MN_MAX_VENDOR_TYPES 64
typedef struct {
    mn_type type; /* name: the plugin's text, which lives as long as it does */
    char spelled[64];
} mn_vendor_type;
typedef struct {
    mn_vendor_type *at;
    uint32_t n;
    void *self; /* of the plugin, for to_f32 */
    const mn_callee *callee;
} mn_vendor_types;

static inline bool mn_is_vendor_type(uint32_t id) {
    return (id & MN_VENDOR) != 0;
}

/* MN_BAD_INPUT: the list breaks its contract; the message, without the plugin's name, says how.
 * unpacks: every type has to have to_f32 (of a loader). */
mn_status mn_vendor_types_read(const mn_types *table, void *self, bool unpacks,
                               mn_vendor_types *out, mn_error *err);
void mn_vendor_types_free(mn_vendor_types *list);
/* list NULL: there is none. NULL: not in it. */
const mn_vendor_type *mn_vendor_type_of(const mn_vendor_types *list, uint32_t id);
const mn_vendor_type *mn_vendor_type_named(const mn_vendor_types *list, const char *name);
/* Whether both have the same blocks and planes. */
bool mn_vendor_types_agree(const mn_vendor_type *a, const mn_vendor_type *b);

/* The type of an id: from the list if a vendor owns the id, else from dtype.h. */
bool mn_vendor_dtype(const mn_vendor_types *list, uint32_t id, mn_dtype *out);
/* "vendor.q3x", or the name of dtype.h. */
const char *mn_vendor_dtype_name(const mn_vendor_types *list, uint32_t id);
#endif
