/* value.c -- building, comparing and walking values, and the account of the work that a rendering
 * has done (mn_jcharge). A template is somebody else's program: it must end soon, whatever it says,
 * so work is counted by what is touched and not by how often something is called. Memory is
 * counted, too, and so is the depth of nesting.
 *
 * Values are small and passed by value; what they point to lives in the arena of the context and is
 * not changed once it is built, so that it may be shared. Lists and dicts keep their order; a dict
 * is a list of pairs that is searched from the front, since those of templates are short. */
#include "text/jinja/text.h"
#include "text/jinja/value.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Only the first error counts: what follows from it is not reported. */
bool mn_jfail(mn_jctx *c, const char *fmt, ...) {
    char msg[400];
    va_list ap;
    if (c->status != MN_OK)
        return false; // the first error is the cause
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    if (c->line)
        c->status = mn_fail(c->err, MN_BAD_INPUT, "template line %u: %s", c->line, msg);
    else // before the template began: its variables
        c->status = mn_fail(c->err, MN_BAD_INPUT, "%s", msg);
    return false;
}

/* Once the work is used up, every further charge fails, too. */
bool mn_jcharge(mn_jctx *c, mn_jcost cost, uint64_t n) {
    const uint64_t limit = (uint64_t)MN_J_STEPS * MN_J_PER_ITEM;
    if (n <= limit) {
        c->work += n * cost;
        if (c->work <= limit)
            return true;
    }
    c->work = limit + 1;
    return mn_jfail(c, "the template runs too long (over %u steps)", MN_J_STEPS);
}

/* Lengths are compared first, so that most names cost one slot. */
bool mn_jsame(mn_jctx *c, mn_str a, mn_str b) {
    if (!mn_jcharge(c, MN_J_PER_SLOT, 1) || a.len != b.len)
        return false;
    if (!mn_jcharge(c, MN_J_PER_BYTE, a.len))
        return false;
    return mn_str_eq(a, b);
}

bool mn_jenter(mn_jctx *c) {
    if (!mn_jcharge(c, MN_J_PER_ITEM, 1))
        return false;
    if (c->depth >= MN_J_DEPTH)
        return mn_jfail(c, "nested deeper than %u levels", MN_J_DEPTH);
    c->depth++;
    return true;
}

void *mn_jalloc(mn_jctx *c, size_t n, size_t size) {
    uint64_t bytes;
    if (c->status != MN_OK)
        return NULL;
    const bool countable = mn_mul_u64(n, size, &bytes) && bytes <= MN_J_BYTES;
    if (!countable || c->bytes + bytes > MN_J_BYTES) {
        mn_jfail(c, "the template needs more than %llu MiB of memory", MN_J_BYTES >> 20);
        return NULL;
    }
    if (!mn_jcharge(c, MN_J_PER_BYTE, bytes + 16)) // it is zeroed
        return NULL;
    void *p = mn_arena_alloc(&c->arena, n ? n : 1, size);
    c->bytes += bytes + 16;
    if (!p)
        c->status = mn_fail_memory(c->err, bytes);
    return p;
}

void *mn_jgrow(mn_jctx *c, void *old, size_t n, size_t *cap, size_t size) {
    if (n < *cap)
        return old;
    const size_t more = *cap ? *cap * 2 : 8;
    void *p = mn_jalloc(c, more, size);
    if (!p)
        return NULL;
    if (n)
        memcpy(p, old, n * size);
    *cap = more;
    return p;
}

/* Copies the description of a string, not its bytes. */
bool mn_j_string(mn_jctx *c, mn_jstr s, mn_jval *out) {
    mn_jstr *p = mn_jalloc(c, 1, sizeof *p);
    if (!p)
        return false;
    *p = s;
    if (!p->ptr)
        p->ptr = "";
    out->type = MN_J_STR;
    out->u.s = p;
    return true;
}

bool mn_j_literal(mn_jctx *c, const char *z, mn_jval *out) {
    return mn_j_string(c, mn_jstr_z(z), out);
}

/* Remembers its name, for the error of using it. */
bool mn_j_undefined(mn_jctx *c, mn_str name, mn_jval *out) {
    if (!mn_j_string(c, mn_jstr_plain(name), out))
        return false;
    out->type = MN_J_UNDEF;
    return true;
}

mn_jstr mn_jstr_slice(mn_jstr s, size_t from, size_t to) {
    return (mn_jstr){s.ptr + from, s.marks ? s.marks + from : NULL, to - from, s.mark};
}

/* ---- growing strings ------------------------------------------------------------------------- */

/* Room for more bytes and their marks, which are allocated together. */
static bool buf_room(mn_jctx *c, mn_jbuf *b, size_t more) {
    if (c->status != MN_OK || !mn_jcharge(c, MN_J_PER_BYTE, more + 16))
        return false;
    if (more <= b->cap - b->len)
        return true;
    if (more > MN_J_OUTPUT || b->len + more > MN_J_OUTPUT)
        return mn_jfail(c, "a string grows over %llu MiB", MN_J_OUTPUT >> 20);
    size_t cap = MN_MAX(b->cap * 2, MN_MAX(b->len + more, (size_t)64));
    char *p = mn_jalloc(c, 2, cap); // text, then its marks
    if (!p)
        return false;
    uint8_t *marks = (uint8_t *)p + cap;
    if (b->len) {
        memcpy(p, b->ptr, b->len);
        memcpy(marks, b->marks, b->len);
    }
    b->ptr = p;
    b->marks = marks;
    b->cap = cap;
    return true;
}

/* Without marks of its own a string has the same one for all bytes. */
bool mn_jbuf_put(mn_jctx *c, mn_jbuf *b, mn_jstr s) {
    if (!s.marks)
        return mn_jbuf_bytes(c, b, s.ptr, s.len, s.mark);
    if (!buf_room(c, b, s.len))
        return false;
    if (s.len) {
        memcpy(b->ptr + b->len, s.ptr, s.len);
        memcpy(b->marks + b->len, s.marks, s.len);
    }
    b->len += s.len;
    return true;
}

bool mn_jbuf_bytes(mn_jctx *c, mn_jbuf *b, const char *p, size_t n, uint8_t mark) {
    if (!buf_room(c, b, n))
        return false;
    if (n) {
        memcpy(b->ptr + b->len, p, n);
        memset(b->marks + b->len, mark, n);
    }
    b->len += n;
    return true;
}

bool mn_jbuf_puts(mn_jctx *c, mn_jbuf *b, const char *z, uint8_t mark) {
    return mn_jbuf_bytes(c, b, z, strlen(z), mark);
}

bool mn_jbuf_lit(mn_jctx *c, mn_jbuf *b, const char *z) {
    return mn_jbuf_puts(c, b, z, 0);
}

bool mn_jbuf_fill(mn_jctx *c, mn_jbuf *b, char byte, int64_t n) {
    if (n <= 0)
        return true;
    if (!buf_room(c, b, (size_t)n))
        return false;
    memset(b->ptr + b->len, byte, (size_t)n);
    memset(b->marks + b->len, 0, (size_t)n);
    b->len += (size_t)n;
    return true;
}

bool mn_jbuf_code(mn_jctx *c, mn_jbuf *b, uint32_t code, uint8_t mark) {
    char utf8[4];
    if (code >= MN_J_BAD_BYTE &&
        code < MN_J_BAD_BYTE + 256) { // a byte that was not UTF-8 goes out as it came in
        utf8[0] = (char)(code - MN_J_BAD_BYTE);
        return mn_jbuf_bytes(c, b, utf8, 1, mark);
    }
    int n = mn_utf8_encode(code, utf8);
    return mn_jbuf_bytes(c, b, utf8, n > 0 ? (size_t)n : 0, mark);
}

mn_jstr mn_jbuf_str(const mn_jbuf *b) {
    return (mn_jstr){b->ptr ? b->ptr : "", b->marks, b->len, 0};
}

bool mn_jbuf_value(mn_jctx *c, const mn_jbuf *b, mn_jval *out) {
    return mn_j_string(c, mn_jbuf_str(b), out);
}

/* ---- lists and dicts ------------------------------------------------------------------------- */

mn_jlist *mn_jlist_new(mn_jctx *c, size_t cap) {
    mn_jlist *l = mn_jalloc(c, 1, sizeof *l);
    if (!l || !cap)
        return l;
    l->items = mn_jalloc(c, cap, sizeof *l->items);
    l->cap = cap;
    return l->items ? l : NULL;
}

bool mn_jlist_add(mn_jctx *c, mn_jlist *l, mn_jval v) {
    if (!mn_jcharge(c, MN_J_PER_ITEM, 1))
        return false;
    mn_jval *items = mn_jgrow(c, l->items, l->n, &l->cap, sizeof *items);
    if (!items)
        return false;
    l->items = items;
    l->items[l->n++] = v;
    return true;
}

bool mn_jlist_add_all(mn_jctx *c, mn_jlist *l, const mn_jval *v, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!mn_jlist_add(c, l, v[i]))
            return false;
    return true;
}

mn_jdict *mn_jdict_new(mn_jctx *c) {
    return mn_jalloc(c, 1, sizeof(mn_jdict));
}

/* A key that is not a string is passed over. */
mn_jval *mn_jdict_name(mn_jctx *c, const mn_jdict *d, mn_str name) {
    for (size_t i = 0; i < d->n; i++) {
        const mn_jval *key = &d->items[i].key;
        if (key->type == MN_J_STR && mn_jsame(c, mn_jstr_bytes(key->u.s), name))
            return &d->items[i].value;
        if (key->type != MN_J_STR && !mn_jcharge(c, MN_J_PER_SLOT, 1))
            return NULL;
    }
    return NULL;
}

mn_jval *mn_jdict_find(mn_jctx *c, const mn_jdict *d, mn_jval key) {
    if (key.type == MN_J_STR)
        return mn_jdict_name(c, d, mn_jstr_bytes(key.u.s));
    for (size_t i = 0; i < d->n; i++) {
        bool equal = false;
        if (!mn_jequal(c, d->items[i].key, key, &equal))
            return NULL;
        if (equal)
            return &d->items[i].value;
    }
    return NULL;
}

/* A list or dict in a tuple counts, too, however deep. */
bool mn_jhashable(mn_jctx *c, mn_jval key) {
    if (key.type == MN_J_LIST || key.type == MN_J_DICT)
        return mn_jfail(c, "unhashable type: '%s'", mn_jtype_name(key));
    if (key.type != MN_J_TUPLE)
        return true;
    if (!mn_jcharge(c, MN_J_PER_ITEM, key.u.l->n) || !mn_jenter(c))
        return false;
    bool ok = true;
    for (size_t i = 0; ok && i < key.u.l->n; i++)
        ok = mn_jhashable(c, key.u.l->items[i]);
    mn_jleave(c);
    return ok;
}

/* A key that is there keeps its place. */
bool mn_jdict_set(mn_jctx *c, mn_jdict *d, mn_jval key, mn_jval value) {
    if (!mn_jhashable(c, key))
        return false;
    mn_jval *old = mn_jdict_find(c, d, key);
    if (c->status != MN_OK)
        return false;
    if (old) {
        *old = value;
        return true;
    }
    mn_jpair *items = mn_jgrow(c, d->items, d->n, &d->cap, sizeof *items);
    if (!items)
        return false;
    d->items = items;
    d->items[d->n++] = (mn_jpair){key, value};
    return true;
}

bool mn_jdict_set_all(mn_jctx *c, mn_jdict *d, const mn_jpair *pair, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!mn_jdict_set(c, d, pair[i].key, pair[i].value))
            return false;
    return true;
}

void mn_jdict_drop(mn_jctx *c, mn_jdict *d, mn_str name) {
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++) {
        const mn_jval key = d->items[i].key;
        if (key.type != MN_J_STR || !mn_jsame(c, mn_jstr_bytes(key.u.s), name))
            d->items[n++] = d->items[i];
    }
    d->n = n;
}

/* ---- questions ------------------------------------------------------------------------------- */

const char *mn_jtype_name(mn_jval v) {
    static const char *const names[] = {
        "missing", "Undefined", "NoneType", "bool",        "int",       "float", "str",
        "list",    "tuple",     "range",    "dict view",   "generator", "dict",  "Namespace",
        "Macro",   "function",  "method",   "LoopContext", "Joiner"};
    return v.type == MN_J_VIEW ? v.u.l->name : names[v.type];
}

/* What is empty, zero, none or undefined is false. */
bool mn_jtruth(mn_jval v) {
    switch (v.type) {
    case MN_J_MISSING:
    case MN_J_UNDEF:
    case MN_J_NONE:
        return false;
    case MN_J_BOOL:
        return v.u.b;
    case MN_J_INT:
        return v.u.i != 0;
    case MN_J_FLOAT:
        return v.u.f != 0;
    case MN_J_STR:
        return v.u.s->len > 0;
    case MN_J_LIST:
    case MN_J_TUPLE:
    case MN_J_RANGE:
    case MN_J_VIEW:
        return v.u.l->n > 0;
    case MN_J_DICT:
        return v.u.d->n > 0;
    default:
        return true;
    }
}

/* Of the same length and equal item by item. */
static bool equal_lists(mn_jctx *c, const mn_jlist *a, const mn_jlist *b, bool *equal) {
    *equal = a->n == b->n;
    for (size_t i = 0; *equal && i < a->n; i++) {
        if (!mn_jequal(c, a->items[i], b->items[i], equal))
            return false;
    }
    return true;
}

/* The order of keys does not count. */
static bool equal_dicts(mn_jctx *c, const mn_jdict *a, const mn_jdict *b, bool *equal) {
    *equal = a->n == b->n;
    for (size_t i = 0; *equal && i < a->n; i++) {
        const mn_jpair *pair = &a->items[i];
        const mn_jval *other = mn_jdict_find(c, b, pair->key);
        *equal = other != NULL;
        if (c->status != MN_OK)
            return false;
        if (other && !mn_jequal(c, pair->value, *other, equal))
            return false;
    }
    return true;
}

/* Numbers of all types by value, containers item by item, other things by identity. */
bool mn_jequal(mn_jctx *c, mn_jval a, mn_jval b, bool *equal) {
    *equal = false;
    if (!mn_jcharge(c, MN_J_PER_ITEM, 1))
        return false;
    if (mn_j_is_int(a) && mn_j_is_int(b)) {
        *equal = mn_j_as_int(a) == mn_j_as_int(b);
        return true;
    }
    if (mn_j_is_number(a) && mn_j_is_number(b)) {
        *equal = mn_j_as_float(a) == mn_j_as_float(b);
        return true;
    }
    if (a.type != b.type)
        return true;
    if (a.type == MN_J_UNDEF || a.type == MN_J_NONE) {
        *equal = true;
        return true;
    }
    if (a.type == MN_J_STR) {
        *equal = mn_jsame(c, mn_jstr_bytes(a.u.s), mn_jstr_bytes(b.u.s));
        return c->status == MN_OK;
    }
    if (a.type != MN_J_LIST && a.type != MN_J_TUPLE && a.type != MN_J_RANGE &&
        a.type != MN_J_DICT) {
        *equal = a.u.l == b.u.l; // by identity
        return true;
    }
    if (!mn_jenter(c))
        return false;
    bool ok = a.type == MN_J_DICT ? equal_dicts(c, a.u.d, b.u.d, equal)
                                  : equal_lists(c, a.u.l, b.u.l, equal);
    mn_jleave(c);
    return ok;
}

bool mn_jneed_defined(mn_jctx *c, mn_jval v) {
    if (v.type != MN_J_UNDEF)
        return true;
    const mn_str name = v.u.s ? mn_jstr_bytes(v.u.s) : mn_str_of("value");
    return mn_jfail(c, "'%.*s' is undefined", MN_STR_ARG(name));
}

bool mn_jwrong_type(mn_jctx *c, const char *what, mn_jval v, const char *expected) {
    if (!mn_jneed_defined(c, v))
        return false;
    return mn_jfail(c, "%s: found %s, expected %s", what, mn_jtype_name(v), expected);
}

/* 2: one of them is no number. */
static int order_of_floats(double x, double y) {
    if (isnan(x) || isnan(y))
        return 2;
    return (x > y) - (x < y);
}

static int order_of_ints(int64_t x, int64_t y) {
    return (x > y) - (x < y);
}

static int order_of_strings(mn_jstr a, mn_jstr b) {
    const size_t n = MN_MIN(a.len, b.len);
    const int cmp = n ? memcmp(a.ptr, b.ptr, n) : 0;
    if (cmp)
        return cmp < 0 ? -1 : 1;
    return order_of_ints((int64_t)a.len, (int64_t)b.len);
}

/* By the first pair of items that differ, else by length. */
static bool compare_lists(mn_jctx *c, const mn_jlist *a, const mn_jlist *b, int *order) {
    const size_t n = MN_MIN(a->n, b->n);
    for (size_t i = 0; i < n; i++) {
        bool equal;
        if (!mn_jequal(c, a->items[i], b->items[i], &equal))
            return false;
        if (!equal)
            return mn_jcompare(c, a->items[i], b->items[i], order);
    }
    *order = order_of_ints((int64_t)a->n, (int64_t)b->n);
    return true;
}

bool mn_jcompare(mn_jctx *c, mn_jval a, mn_jval b, int *order) {
    const bool lists = a.type == MN_J_LIST || a.type == MN_J_TUPLE;
    if (!mn_jcharge(c, MN_J_PER_ITEM, 1))
        return false;
    if (mn_j_is_int(a) && mn_j_is_int(b)) {
        *order = order_of_ints(mn_j_as_int(a), mn_j_as_int(b));
        return true;
    }
    if (mn_j_is_number(a) && mn_j_is_number(b)) {
        *order = order_of_floats(mn_j_as_float(a), mn_j_as_float(b));
        return true;
    }
    if (a.type == MN_J_STR && b.type == MN_J_STR) {
        *order = order_of_strings(*a.u.s, *b.u.s);
        return mn_jcharge(c, MN_J_PER_BYTE, MN_MIN(a.u.s->len, b.u.s->len));
    }
    if (!mn_jneed_defined(c, a) || !mn_jneed_defined(c, b))
        return false;
    if (a.type != b.type || !lists)
        return mn_jfail(c, "no order between '%s' and '%s'", mn_jtype_name(a), mn_jtype_name(b));
    if (!mn_jenter(c))
        return false;
    const bool ok = compare_lists(c, a.u.l, b.u.l, order);
    mn_jleave(c);
    return ok;
}

/* A string contains strings, a dict keys, everything else items. */
bool mn_jcontains(mn_jctx *c, mn_jval item, mn_jval in, bool *found) {
    *found = false;
    if (in.type == MN_J_STR) {
        if (item.type != MN_J_STR)
            return mn_jwrong_type(c, "'in' of a string", item, "a string");
        *found = mn_jfind(c, *in.u.s, *item.u.s, 0) != SIZE_MAX;
        return c->status == MN_OK;
    }
    if (in.type == MN_J_DICT) {
        *found = mn_jhashable(c, item) && mn_jdict_find(c, in.u.d, item) != NULL;
        return c->status == MN_OK;
    }
    mn_jlist *l;
    if (!mn_jiterate(c, in, &l))
        return false;
    for (size_t i = 0; !*found && i < l->n; i++)
        if (!mn_jequal(c, l->items[i], item, found))
            return false;
    return true;
}

/* Undefined has none: 0. Strings count characters. */
bool mn_jlength(mn_jctx *c, mn_jval v, int64_t *n) {
    switch (v.type) {
    case MN_J_UNDEF:
        *n = 0;
        return true;
    case MN_J_STR:
        *n = (int64_t)mn_jchars(c, *v.u.s);
        return c->status == MN_OK;
    case MN_J_LIST:
    case MN_J_TUPLE:
    case MN_J_RANGE:
    case MN_J_VIEW:
        *n = (int64_t)v.u.l->n;
        return true;
    case MN_J_DICT:
        *n = (int64_t)v.u.d->n;
        return true;
    default:
        return mn_jfail(c, "object of type '%s' has no length", mn_jtype_name(v));
    }
}

/* The characters of s, each with its marks. */
static bool characters(mn_jctx *c, mn_jstr s, mn_jlist *l) {
    if (!mn_jcharge(c, MN_J_PER_CHAR, s.len))
        return false;
    for (size_t at = 0; at < s.len;) {
        uint32_t code;
        size_t n = mn_jchar(s, at, &code);
        mn_jval v;
        if (!mn_j_string(c, mn_jstr_slice(s, at, at + n), &v) || !mn_jlist_add(c, l, v))
            return false;
        at += n;
    }
    return true;
}

/* What is a list already is not copied; a generator is used up. */
bool mn_jiterate(mn_jctx *c, mn_jval v, mn_jlist **out) {
    if (v.type != MN_J_ITER && mn_j_is_seq(v)) {
        *out = v.u.l;
        return true;
    }
    mn_jlist *l = *out = mn_jlist_new(c, 0);
    if (!l)
        return false;
    if (v.type == MN_J_UNDEF)
        return true;
    if (v.type == MN_J_STR)
        return characters(c, *v.u.s, l);
    if (v.type == MN_J_ITER) {
        if (v.u.l->items)
            l->items = v.u.l->items + v.u.l->pos;
        l->n = l->cap = v.u.l->n - v.u.l->pos;
        v.u.l->pos = v.u.l->n;
        return true;
    }
    if (v.type != MN_J_DICT)
        return mn_jfail(c, "'%s' object is not iterable", mn_jtype_name(v));
    for (size_t i = 0; i < v.u.d->n; i++)
        if (!mn_jlist_add(c, l, v.u.d->items[i].key))
            return false;
    return true;
}
