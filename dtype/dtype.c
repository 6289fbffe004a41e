/* dtype.c -- the table of data types: MN_DTYPES of plugin.h (ids, blocks, number of planes) and
 * dtype.def (names, GGUF's numbers, what the planes hold), joined by the type's name. A type that
 * only one of them has does not compile or fails the test `dtype`. Everything is constant data: no
 * state, no initialisation, any thread. */
#include "dtype.h"
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- planes ---------------------------------------------------------------------------------- */
enum {
    PLANES_INTEGER, /* DATA alone; not a weight */
    PLANES_ONE,     /* DATA alone */
    PLANES_BY_ROW,  /* SCALE, optional: one float per row */
    PLANES_BY_128,  /* SCALE: one float per block, shared by 128 rows */
    PLANES_E8M0,    /* SCALE: U8 per block */
    PLANES_BY_64,   /* SCALE: one float per block */
    PLANES_AFFINE,  /* SCALE and BIAS: one float per block */
    PLANES_PICKED,  /* SCALE and BIAS: some F32 per row; PICK: I32 per column */
    PLANES_NVFP4,   /* SCALE: F8_E4M3 per block; TENSOR_SCALE: one F32 */
    PLANES_BLOCKS,  /* TENSOR_SCALE, optional: one F32 */
};

enum { MAX_EXTRA = MN_PLANE_KINDS - 1 };

/* kind, dtype, rows, by_block, is_float, optional, by_column, picked; a kind of 0: there is
 * none. */
static const mn_plane_spec data_plane = {MN_PLANE_DATA, 0, 1, true, false, false, false, false};
static const mn_plane_spec extra_planes[][MAX_EXTRA] = {
    [PLANES_INTEGER] = {{0}},
    [PLANES_ONE] = {{0}},
    [PLANES_BY_ROW] = {{MN_PLANE_SCALE, MN_F32, 1, false, true, true, false, false}},
    [PLANES_BY_128] = {{MN_PLANE_SCALE, MN_F32, 128, true, true, false, false, false}},
    [PLANES_E8M0] = {{MN_PLANE_SCALE, MN_U8, 1, true, false, false, false, false}},
    [PLANES_BY_64] = {{MN_PLANE_SCALE, MN_F32, 1, true, true, false, false, false}},
    [PLANES_AFFINE] = {{MN_PLANE_SCALE, MN_F16, 1, true, true, false, false, false},
                       {MN_PLANE_BIAS, MN_F16, 1, true, true, false, false, false}},
    [PLANES_PICKED] = {{MN_PLANE_SCALE, MN_F32, 1, true, false, false, false, true},
                       {MN_PLANE_BIAS, MN_F32, 1, true, false, false, false, true},
                       {MN_PLANE_PICK, MN_I32, 1, true, false, false, true, false}},
    [PLANES_NVFP4] = {{MN_PLANE_SCALE, MN_F8_E4M3, 1, true, false, false, false, false},
                      {MN_PLANE_TENSOR_SCALE, MN_F32, 0, false, false, false, false, false}},
    [PLANES_BLOCKS] = {{MN_PLANE_TENSOR_SCALE, MN_F32, 0, false, false, true, false, false}},
};

/* ---- rows ------------------------------------------------------------------------------------ */
typedef struct {
    mn_dtype type;
    const char *name;
    int16_t ggml; /* -1: none */
    uint8_t align;
    uint8_t planes;
    int16_t half[2];
} dtype_row;

/* One constant per type of plugin.h, so that dtype.def's rows need no more than the name. */
#define BLOCK_OF(NAME, id, elems, bytes, planes)                                                   \
    enum { NAME##_ELEMS = elems, NAME##_BYTES = bytes, NAME##_PLANES = planes };
MN_DTYPES(BLOCK_OF)

#define TYPE_OF(NAME)                                                                              \
    { MN_##NAME, NAME##_ELEMS, NAME##_BYTES, NAME##_PLANES }
#define MN_DTYPE(NAME, name, ggml, align, planes, dequant, half, half2)                            \
    {TYPE_OF(NAME), #name, ggml, align, PLANES_##planes, {half, half2}},
#define MN_INTEGER(NAME, name, ggml, align)                                                        \
    {TYPE_OF(NAME), #name, ggml, align, PLANES_INTEGER, {-1, -1}},
static const dtype_row rows[] = {
#include "dtype.def"
};
#undef MN_DTYPE
#undef MN_INTEGER

#define ONE_MORE(NAME, id, elems, bytes, planes) +1
_Static_assert(COUNT(rows) == 0 MN_DTYPES(ONE_MORE), "dtype.def has a row for each of MN_DTYPES");

/* The row of an id, NULL if there is none. */
static const dtype_row *dtype_find(uint32_t id) {
    for (size_t i = 0; i < COUNT(rows); i++)
        if (rows[i].type.id == id)
            return &rows[i];
    return NULL;
}

static char dtype_lower(char c) {
    if (c >= 'A' && c <= 'Z')
        return (char)(c + ('a' - 'A'));
    return c;
}

bool mn_dtype_by_id(uint32_t id, mn_dtype *out) {
    const dtype_row *r = dtype_find(id);
    if (r)
        *out = r->type;
    return r != NULL;
}

/* Does `found`, in any case, spell `name`, which is in lower case? */
static bool spells(mn_str found, const char *name) {
    const size_t n = strlen(name);
    if (found.len != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (dtype_lower(found.ptr[i]) != name[i])
            return false;
    return true;
}

bool mn_dtype_by_name(mn_str name, mn_dtype *out) {
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (!spells(name, rows[i].name))
            continue;
        *out = rows[i].type;
        return true;
    }
    return false;
}

const char *mn_dtype_name(uint32_t id) {
    const dtype_row *r = dtype_find(id);
    if (r)
        return r->name;
    if (id & MN_VENDOR)
        return "a vendor's type";
    return "?";
}

uint32_t mn_dtype_at(uint32_t i) {
    if (i < COUNT(rows))
        return rows[i].type.id;
    return (uint32_t)MN_DTYPE_NONE;
}

bool mn_dtype_bytes(mn_dtype t, uint64_t n_elements, uint64_t *bytes) {
    if (!t.block_elems)
        return false;
    if (n_elements % t.block_elems)
        return false;
    return !__builtin_mul_overflow(n_elements / t.block_elems, t.block_bytes, bytes);
}

bool mn_dtype_is_weight(uint32_t id) {
    const dtype_row *r = dtype_find(id);
    return r && r->planes != PLANES_INTEGER;
}

uint32_t mn_dtype_align(uint32_t id) {
    const dtype_row *r = dtype_find(id);
    if (r)
        return r->align;
    return 1;
}

void mn_dtype_halves(uint32_t id, int32_t at[2]) {
    const dtype_row *r = dtype_find(id);
    at[0] = -1;
    if (r)
        at[0] = r->half[0];
    at[1] = -1;
    if (r)
        at[1] = r->half[1];
}

bool mn_dtype_by_ggml(uint32_t ggml, mn_dtype *out) {
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (rows[i].ggml < 0)
            continue;
        if ((uint32_t)rows[i].ggml != ggml)
            continue;
        *out = rows[i].type;
        return true;
    }
    return false;
}

bool mn_dtype_ggml(uint32_t id, uint32_t *ggml) {
    const dtype_row *r = dtype_find(id);
    if (!r || r->ggml < 0)
        return false;
    *ggml = (uint32_t)r->ggml;
    return true;
}

bool mn_dtype_plane(uint32_t id, uint32_t i, mn_plane_spec *out) {
    const dtype_row *r = dtype_find(id);
    if (!r || i > MAX_EXTRA)
        return false;
    if (i == 0) {
        *out = data_plane;
        out->dtype = id;
        return true;
    }
    const mn_plane_spec *extra = &extra_planes[r->planes][i - 1];
    if (extra->kind)
        *out = *extra;
    return extra->kind != 0;
}

int64_t mn_plane_values(const mn_plane_spec *spec, mn_dtype t, int64_t n) {
    if (!spec->by_block)
        return 1;
    if (spec->by_column)
        return n;
    return n / t.block_elems;
}

bool mn_plane_takes(const mn_plane_spec *spec, uint32_t plane_dtype) {
    if (spec->is_float)
        return plane_dtype == MN_F32 || plane_dtype == MN_F16 || plane_dtype == MN_BF16;
    return plane_dtype == spec->dtype;
}
