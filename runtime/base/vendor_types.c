/* vendor_types.c -- see vendor_types.h. What a plugin says is checked here once: the numbers of a
 * type decide where planes end, so that none of them may be absurd. */
#include "base/vendor_types.h"
#include <string.h>

/* Elements and bytes of a block, and planes, at most: no format has more. */
enum { MOST_ELEMENTS = 65536, MOST_BYTES = 1 << 20, MOST_PLANES = MN_PLANE_KINDS };

static bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || mn_is_digit(c) || c == '_' || c == '.';
}

/* A letter first, then [a-z0-9_.] with a '.' between two others. */
static bool is_spelled(mn_str name) {
    bool dot = false;
    if (!name.ptr || name.len < 3 || name.len >= sizeof(((mn_vendor_type *)0)->spelled))
        return false;
    if (!memcmp(name.ptr, "mn.", 3)) /* ours */
        return false;
    if (name.ptr[0] < 'a' || name.ptr[0] > 'z' || name.ptr[name.len - 1] == '.')
        return false;
    for (uint64_t i = 0; i < name.len; i++) {
        if (!is_name_character(name.ptr[i]))
            return false;
        dot = dot || name.ptr[i] == '.';
    }
    return dot;
}

static bool has_sane_numbers(const mn_dtype *t) {
    return t->block_elems && t->block_elems <= MOST_ELEMENTS && t->block_bytes &&
           t->block_bytes <= MOST_BYTES && t->n_planes && t->n_planes <= MOST_PLANES;
}

static mn_status check_type(const mn_vendor_types *list, const mn_type *t, bool unpacks,
                            mn_error *err) {
    const uint32_t i = list->n;
    if (!is_spelled(t->name))
        return mn_fail(err, MN_BAD_INPUT,
                       "its type %u is misspelled: expected a-z, 0-9, _ and at least one '.', a "
                       "letter first, at most 63 characters, and no \"mn.\" in front",
                       i);
    if (!mn_is_vendor_type(t->dtype.id))
        return mn_fail(err, MN_BAD_INPUT, "its type %.*s has the id %u: expected one with bit 31",
                       MN_STR_ARG(t->name), t->dtype.id);
    if (!has_sane_numbers(&t->dtype))
        return mn_fail(
            err, MN_BAD_INPUT, "its type %.*s has blocks of %u elements in %u bytes and %u planes",
            MN_STR_ARG(t->name), t->dtype.block_elems, t->dtype.block_bytes, t->dtype.n_planes);
    if (unpacks && !t->to_f32)
        return mn_fail(err, MN_BAD_INPUT, "its type %.*s lacks the function to_f32",
                       MN_STR_ARG(t->name));
    for (uint32_t k = 0; k < i; k++)
        if (mn_str_is(t->name, list->at[k].spelled) || list->at[k].type.dtype.id == t->dtype.id)
            return mn_fail(err, MN_BAD_INPUT, "its types %u and %u have one name or one id", k, i);
    return MN_OK;
}

static mn_status read_all(const mn_types *table, bool unpacks, mn_vendor_types *list,
                          mn_error *err) {
    for (;;) {
        mn_type t = {.size = sizeof t};
        mn_status st = table->type_at(list->self, list->n, &t, err);
        if (st == MN_END)
            return MN_OK;
        if (st)
            return mn_fail(err, MN_BAD_INPUT, "its type %u cannot be read", list->n);
        if (list->n == MN_MAX_VENDOR_TYPES)
            return mn_fail(err, MN_BAD_INPUT, "it has more than %d types of its own", list->n);
        if (t.size < MN_UP_TO(mn_type, dtype))
            return mn_fail(err, MN_BAD_INPUT, "its type %u has %u bytes", list->n, t.size);
        if (t.size < MN_UP_TO(mn_type, to_f32))
            t.to_f32 = NULL;
        st = check_type(list, &t, unpacks, err);
        if (st)
            return st;
        mn_vendor_type *to = &list->at[list->n++];
        to->type = t;
        memcpy(to->spelled, t.name.ptr, t.name.len);
    }
}

mn_status mn_vendor_types_read(const mn_types *table, void *self, bool unpacks,
                               mn_vendor_types *out, mn_error *err) {
    mn_vendor_types list = {.self = self};
    list.at = mn_calloc(MN_MAX_VENDOR_TYPES, sizeof *list.at);
    if (!list.at)
        return mn_fail_memory(err, MN_MAX_VENDOR_TYPES * sizeof *list.at);
    const mn_status st = read_all(table, unpacks, &list, err);
    if (st)
        mn_vendor_types_free(&list);
    *out = list;
    return st;
}

void mn_vendor_types_free(mn_vendor_types *list) {
    mn_free(list->at);
    *list = (mn_vendor_types){0};
}

const mn_vendor_type *mn_vendor_type_of(const mn_vendor_types *list, uint32_t id) {
    for (uint32_t i = 0; list && i < list->n; i++)
        if (list->at[i].type.dtype.id == id)
            return &list->at[i];
    return NULL;
}

const mn_vendor_type *mn_vendor_type_named(const mn_vendor_types *list, const char *name) {
    for (uint32_t i = 0; list && i < list->n; i++)
        if (!strcmp(list->at[i].spelled, name))
            return &list->at[i];
    return NULL;
}

bool mn_vendor_types_agree(const mn_vendor_type *a, const mn_vendor_type *b) {
    const mn_dtype *x = &a->type.dtype;
    const mn_dtype *y = &b->type.dtype;
    return x->block_elems == y->block_elems && x->block_bytes == y->block_bytes &&
           x->n_planes == y->n_planes;
}

bool mn_vendor_dtype(const mn_vendor_types *list, uint32_t id, mn_dtype *out) {
    const mn_vendor_type *t = mn_vendor_type_of(list, id);
    if (!mn_is_vendor_type(id))
        return mn_dtype_by_id(id, out);
    if (t)
        *out = t->type.dtype;
    return t != NULL;
}

const char *mn_vendor_dtype_name(const mn_vendor_types *list, uint32_t id) {
    const mn_vendor_type *t = mn_vendor_type_of(list, id);
    if (t)
        return t->spelled;
    return mn_dtype_name(id);
}
