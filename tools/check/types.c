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
enum { BLOCKS = 70, PATTERNS = 64, GAP = 4 };
#define MARK 12345.5f

/* A row of BLOCKS blocks, and what to_f32 made of it. */
typedef struct {
    const mn_type *type;
    uint8_t *data;  /* blocks, with room for gaps */
    float *values;  /* of the other planes: one per block */
    float *out[2];  /* [BLOCKS * block_elems + 1] */
    uint64_t n_out; /* BLOCKS * block_elems */
    mn_plane planes[MN_PLANE_KINDS];
} type_row;

static void types_row_free(type_row *r) {
    free(r->data);
    free(r->values);
    free(r->out[0]);
    free(r->out[1]);
}

static bool types_row_make(type_row *r, const mn_type *t) {
    const uint64_t step = (uint64_t)t->dtype.block_bytes + GAP;
    *r = (type_row){.type = t, .n_out = (uint64_t)BLOCKS * t->dtype.block_elems};
    r->data = malloc(BLOCKS * step);
    r->values = malloc(BLOCKS * sizeof *r->values);
    for (int i = 0; i < 2; i++)
        r->out[i] = malloc((r->n_out + 1) * sizeof **r->out);
    return r->data && r->values && r->out[0] && r->out[1];
}

/* Noise: in every block other bytes, or (same) one block again and again. gap: bytes between. */
static void types_row_fill(type_row *r, uint64_t pattern, bool same, uint32_t gap) {
    const mn_dtype *d = &r->type->dtype;
    const uint64_t step = (uint64_t)d->block_bytes + gap;
    for (uint64_t b = 0; b < BLOCKS; b++) {
        uint64_t seed = 1 + pattern * BLOCKS + (same ? 0 : b);
        for (uint64_t i = 0; i < d->block_bytes; i++)
            r->data[b * step + i] = (uint8_t)(case_random_bits(&seed) >> 40);
        for (uint64_t i = 0; i < gap && b + 1 < BLOCKS; i++)
            r->data[b * step + d->block_bytes + i] = 0xee;
        r->values[b] = 1 + (float)(case_random_bits(&seed) >> 60);
    }
    for (uint32_t i = 0; i < d->n_planes; i++)
        r->planes[i] = (mn_plane){.ptr = i ? (const void *)r->values : r->data,
                                  .bytes = i ? BLOCKS * sizeof *r->values : BLOCKS * step - gap,
                                  .kind = i + 1,
                                  .dtype = i ? (uint32_t)MN_F32 : d->id,
                                  .dim = {i ? BLOCKS : BLOCKS * (int64_t)d->block_elems},
                                  .stride = {i ? 4 : (int64_t)step}};
}

/* The row as `at_once` blocks each into out[to]. */
static mn_status types_row_unpack(type_row *r, void *self, uint64_t at_once, int to) {
    const mn_type *t = r->type;
    mn_status st = MN_OK;
    for (uint64_t i = 0; i <= r->n_out; i++)
        r->out[to][i] = MARK;
    for (uint64_t b = BLOCKS / at_once; b-- > 0 && !st;)
        st = t->to_f32(self, r->planes, t->dtype.n_planes, b * at_once, at_once,
                       r->out[to] + b * at_once * t->dtype.block_elems);
    return st;
}

static bool types_row_differs(const type_row *r) {
    return memcmp(r->out[0], r->out[1], r->n_out * sizeof **r->out);
}

/* A phrase that names the fault; NULL: none. */
static const char *fault_of_row(type_row *r, void *self) {
    types_row_fill(r, 0, false, 0);
    if (types_row_unpack(r, self, BLOCKS, 0) || types_row_unpack(r, self, 1, 1))
        return "fails, expected MN_OK";
    if (types_row_differs(r))
        return "found other numbers block by block than at once, expected the same";
    if (r->out[0][r->n_out] != MARK || r->out[1][r->n_out] != MARK)
        return "writes behind its last block";
    types_row_fill(r, 0, false, GAP);
    if (types_row_unpack(r, self, BLOCKS, 1) || types_row_differs(r))
        return "found other numbers where blocks are further apart (stride[0]), expected the same";
    return NULL;
}

/* Of one block at every place of the row: it is the same there. */
static const char *fault_of_place(type_row *r, void *self) {
    const uint64_t n = r->type->dtype.block_elems;
    types_row_fill(r, 1, true, 0);
    if (types_row_unpack(r, self, BLOCKS, 0))
        return "fails, expected MN_OK";
    for (uint64_t b = 1; b < BLOCKS; b++)
        if (memcmp(r->out[0], r->out[0] + b * n, n * sizeof **r->out))
            return "found other numbers of the same bytes at another place of the row, expected "
                   "the same";
    return NULL;
}

/* Of other bytes each element of a block has another value at some time. */
static const char *fault_of_element(type_row *r, void *self) {
    const uint64_t n = r->type->dtype.block_elems;
    uint8_t *moved = calloc(n, 1);
    const char *fault = moved ? NULL : "out of memory";
    uint64_t n_moved = 0;
    for (uint64_t k = 0; k < PATTERNS && !fault && n_moved < n; k++) {
        types_row_fill(r, 2 + k, true, 0);
        if (types_row_unpack(r, self, BLOCKS, k % 2))
            fault = "fails, expected MN_OK";
        for (uint64_t i = 0; i < n && k && !fault; i++) {
            const bool moves = !moved[i] && memcmp(r->out[0] + i, r->out[1] + i, sizeof **r->out);
            moved[i] |= moves;
            n_moved += moves;
        }
    }
    free(moved);
    if (!fault && n_moved < n)
        fault = "found an element that is the same whatever the bytes, expected their number";
    return fault;
}

static void try_to_f32(check *c, const check_plugin *p, const mn_type *t) {
    type_row r;
    void *self = p->api->self;
    const char *fault = "out of memory";
    check_doing(c, "to_f32 of %.*s ran", (int)t->name.len, t->name.ptr);
    if (types_row_make(&r, t))
        fault = fault_of_row(&r, self);
    if (!fault)
        fault = fault_of_place(&r, self);
    if (!fault)
        fault = fault_of_element(&r, self);
    if (fault)
        check_fail(c, "to_f32 of %.*s: %s", (int)t->name.len, t->name.ptr, fault);
    types_row_free(&r);
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
