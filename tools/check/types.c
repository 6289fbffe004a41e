/* types.c -- group types, and types.h: names, ids and numbers of the list, and what to_f32 writes.
 * A plugin without a list keeps both rules. */
#include "types.h"
#include "case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool types_is_spelled(mn_str name) {
    bool dot = false;
    if (name.len < 3 || name.len > 63 || !name.ptr || name.ptr[0] < 'a' || name.ptr[0] > 'z' ||
        name.ptr[name.len - 1] == '.')
        return false;
    for (uint64_t i = 0; i < name.len; i++) {
        const char k = name.ptr[i];
        const bool plain = (k >= 'a' && k <= 'z') || (k >= '0' && k <= '9') || k == '_';
        if (!plain && k != '.')
            return false;
        dot = dot || k == '.';
    }
    return dot;
}

/* A phrase that names the fault; NULL: none. */
static const char *fault_of_type(const plugin_types *list, const mn_type *t, bool unpacks) {
    const mn_dtype *d = &t->dtype;
    if (!types_is_spelled(t->name))
        return "has a name that is not a letter and a-z, 0-9, _ with at least one '.'";
    if (!(d->id & MN_VENDOR))
        return "has an id without bit 31";
    if (!d->block_elems || d->block_elems > 65536 || !d->block_bytes || d->block_bytes > 1u << 20 ||
        !d->n_planes || d->n_planes > MN_PLANE_KINDS)
        return "has blocks or planes that no file has";
    if (unpacks && !t->to_f32)
        return "lacks to_f32, which the host needs of a loader's types";
    for (uint32_t i = 0; i < list->n; i++) {
        const mn_type *k = &list->at[i];
        const bool named =
            k->name.len == t->name.len && !memcmp(k->name.ptr, t->name.ptr, t->name.len);
        if (named || k->dtype.id == d->id)
            return "has the name or the id of another one";
    }
    return NULL;
}

void types_read(check *c, const check_plugin *p, plugin_types *out) {
    out->n = 0;
    check_doing(c, "query(\"" MN_TYPES_ID "\") ran");
    const mn_types *table = p->api->query(p->api->self, MN_TYPES_ID);
    if (!table)
        return;
    CHECK(c, MN_HAS(mn_types, table, type_at), MN_TYPES_ID ": found no type_at, expected one");
    for (uint32_t i = 0;; i++) {
        mn_type t = {.size = sizeof t};
        mn_error e = check_error();
        check_doing(c, "type_at(%u) ran", i);
        const mn_status st = table->type_at(p->api->self, i, &t, &e);
        if (st == MN_END)
            return;
        CHECK_OK(c, st, &e, "type_at(%u)", i);
        CHECK(c, i < TYPES_MOST, "type_at: found more than %u types, expected MN_END", TYPES_MOST);
        const char *fault = fault_of_type(out, &t, p->ld != NULL);
        CHECK(c, !fault, "type %u (%.*s) %s", i, t.name.ptr ? (int)(t.name.len & 63) : 0,
              t.name.ptr, fault);
        out->at[out->n++] = t;
    }
}

mn_dtype types_find(const plugin_types *list, uint32_t id) {
    for (uint32_t i = 0; i < list->n; i++)
        if (list->at[i].dtype.id == id)
            return list->at[i].dtype;
    if (id & MN_VENDOR)
        return (mn_dtype){0};
    return case_dtype(id);
}

/* Enters the plugin and reads its list; 0: the rule is over, or there is none. */
static int enter_types(check *c, check_host *h, check_plugin *p, plugin_types *list) {
    check_host_init(h);
    if (!check_open(c, p, h))
        return 0;
    types_read(c, p, list);
    if (!check_over(c) && !list->n)
        check_found(c, "no type of its own");
    return !check_over(c) && list->n;
}

static bool same_type(const mn_type *a, const mn_type *b) {
    return a->name.len == b->name.len && !memcmp(a->name.ptr, b->name.ptr, a->name.len) &&
           !memcmp(&a->dtype, &b->dtype, sizeof a->dtype) && a->to_f32 == b->to_f32;
}

void check_types_list(check *c) {
    static plugin_types list;
    static plugin_types again;
    check_host h;
    check_plugin p;
    if (enter_types(c, &h, &p, &list)) {
        types_read(c, &p, &again);
        bool same = again.n == list.n;
        for (uint32_t i = 0; i < list.n && same; i++)
            same = same_type(&list.at[i], &again.at[i]);
        if (!check_over(c) && !same)
            check_fail(c, "found another list at the second reading, expected the same");
        check_found(c, "%u types", list.n);
    }
    check_close(c, &p);
}

/* ---- to_f32 ---------------------------------------------------------------------------------- */
enum { BLOCKS = 7 };

/* A row of random bytes in each plane; data: of one. */
static void random_planes(const mn_dtype *d, uint8_t *data, uint64_t bytes, mn_plane *planes) {
    for (uint64_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(i * 37 % 61); /* small numbers, whatever they are read as */
    for (uint32_t i = 0; i < d->n_planes; i++)
        planes[i] = (mn_plane){.ptr = data,
                               .bytes = bytes,
                               .kind = i + 1,
                               .dtype = i ? MN_F32 : d->id,
                               .dim = {i ? BLOCKS : BLOCKS * (int64_t)d->block_elems},
                               .stride = {i ? 4 : (int64_t)d->block_bytes}};
}

static void try_to_f32(check *c, const check_plugin *p, const mn_type *t) {
    const mn_dtype *d = &t->dtype;
    const uint64_t n = (uint64_t)BLOCKS * d->block_elems;
    const uint64_t bytes = (uint64_t)BLOCKS * d->block_bytes + BLOCKS * sizeof(float);
    uint8_t *data = malloc(bytes);
    float *all = malloc((n + 1) * sizeof *all);
    float *one = malloc((n + 1) * sizeof *one);
    mn_plane planes[MN_PLANE_KINDS];
    mn_status st = MN_OK;
    CHECK(c, data && all && one, "out of memory");
    random_planes(d, data, bytes, planes);
    for (uint64_t i = 0; i <= n; i++)
        all[i] = one[i] = 12345.5f;
    check_doing(c, "to_f32 of %.*s ran", (int)t->name.len, t->name.ptr);
    st = t->to_f32(p->api->self, planes, d->n_planes, 0, BLOCKS, all);
    for (uint64_t b = BLOCKS; b-- > 0 && !st;)
        st = t->to_f32(p->api->self, planes, d->n_planes, b, 1, one + b * d->block_elems);
    if (check_status(c, st, NULL, "to_f32 of %.*s", (int)t->name.len, t->name.ptr))
        goto out;
    if (memcmp(all, one, n * sizeof *all))
        check_fail(
            c, "to_f32 of %.*s: block by block found other numbers than at once, expected the same",
            (int)t->name.len, t->name.ptr);
    else if (all[n] != 12345.5f || one[n] != 12345.5f)
        check_fail(c, "to_f32 of %.*s writes behind its last block, expected %llu numbers",
                   (int)t->name.len, t->name.ptr, (unsigned long long)n);
out:
    free(data);
    free(all);
    free(one);
}

void check_types_to_f32(check *c) {
    static plugin_types list;
    check_host h;
    check_plugin p;
    if (enter_types(c, &h, &p, &list))
        for (uint32_t i = 0; i < list.n && !check_over(c); i++)
            if (list.at[i].to_f32)
                try_to_f32(c, &p, &list.at[i]);
    check_close(c, &p);
}
