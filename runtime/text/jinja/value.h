/* value.h -- values of the template language, and the state of one parse or rendering
 * (mn_jctx). All memory comes from the context's arena; values are immutable once built
 * (namespaces, iterators and loops excepted). Functions returning bool: false = failed, c->status
 * and c->err say why. */
#ifndef MN_JINJA_VALUE_H
#define MN_JINJA_VALUE_H
#include "text/jinja/jinja.h"

#define MN_J_DEPTH 400u           /* nested evaluations, data levels */
#define MN_J_STEPS 20000000u      /* work of one rendering; a step is about 20 ns */
#define MN_J_BYTES (512ull << 20) /* memory of one rendering */
#define MN_J_OUTPUT (64ull << 20) /* bytes of one string */
#define MN_J_RANGE_MAX 100000     /* as Jinja2's sandbox */

typedef enum {
    MN_J_MISSING, /* internal: argument not given */
    MN_J_UNDEF,
    MN_J_NONE,
    MN_J_BOOL,
    MN_J_INT,
    MN_J_FLOAT,
    MN_J_STR,
    MN_J_LIST,
    MN_J_TUPLE,
    MN_J_RANGE, /* l */
    MN_J_VIEW,  /* l: dict.keys() and so on; l->name is the type's name */
    MN_J_ITER,  /* l: a generator: l->pos items are used up */
    MN_J_DICT,
    MN_J_NAMESPACE, /* d */
    MN_J_MACRO,
    MN_J_FUNC,
    MN_J_METHOD,
    MN_J_LOOP,
    MN_J_JOINER
} mn_jtype;

typedef struct { /* marks: [len], or NULL: all bytes are `mark` */
    const char *ptr;
    const uint8_t *marks;
    size_t len;
    uint8_t mark;
} mn_jstr;

typedef struct mn_jval mn_jval;
typedef struct {
    mn_jval *items;
    size_t n, cap, pos;
    const char *name;
    int64_t range[3];
} mn_jlist;
typedef struct mn_jpair mn_jpair;
typedef struct {
    mn_jpair *items;
    size_t n, cap;
    bool watched; /* mn_jctx.printed */
} mn_jdict;       /* insertion order */

struct mn_jval {
    mn_jtype type;
    union {
        bool b;
        int64_t i;
        double f;
        const mn_jstr *s; /* also the name of what is undefined (may be NULL) */
        mn_jlist *l;      /* also a joiner's separator */
        mn_jdict *d;
        struct mn_jmacro *macro;
        const struct mn_jfunc *func;
        struct mn_jmethod *method;
        struct mn_jloop *loop;
    } u;
};
struct mn_jpair {
    mn_jval key, value;
};

typedef struct {
    char *ptr;
    uint8_t *marks;
    size_t len, cap;
} mn_jbuf; /* a growing string */

typedef struct {
    const mn_jval *pos;
    size_t n_pos;
    const mn_jpair *kw;
    size_t n_kw;
} mn_jargs;

typedef struct mn_jctx {
    mn_arena arena;
    uint64_t bytes, work; /* taken from the arena; done, in the units of mn_jcost */
    uint32_t depth, line;
    mn_status status;
    mn_error *err;
    int64_t now;
    struct mn_jscope *scope;
    mn_jbuf *out;
    mn_jval input; /* of a filter block */
    /* becomes true where a dict that is watched, or a MN_J_NONE with u.b, is written as Python
     * does; NULL: not asked for */
    bool *printed;
} mn_jctx;

/* ---- state ----------------------------------------------------------------------------------- */
bool mn_jfail(mn_jctx *c, const char *fmt, ...) MN_PRINTF(2, 3); /* false; "line N: ..." */

/* What touching one thing costs, in 64ths of a step. */
typedef enum {
    MN_J_PER_BYTE = 1,     /* a byte copied, compared or zeroed with its neighbours */
    MN_J_PER_SLOT = 8,     /* a name looked at in a table, a scope or a dict */
    MN_J_PER_CHAR = 16,    /* a byte looked at by itself: decoded, classified */
    MN_J_PER_ITEM = 64,    /* an element visited, a node evaluated */
    MN_J_PER_NUMBER = 2048 /* a number that the C library reads or writes */
} mn_jcost;

/* The one place where work is counted. Every function that touches n things says so here: before it
 * does, or right after where n is known only then (a search; at most the length of one string).
 * What a function calls charges for itself, so nothing is counted by its callers. */
bool mn_jcharge(mn_jctx *c, mn_jcost cost, uint64_t n);
/* Are these bytes the same? Charges; false, too, when the work is used up. */
bool mn_jsame(mn_jctx *c, mn_str a, mn_str b);
bool mn_jenter(mn_jctx *c); /* one level deeper; charges one item */
static inline void mn_jleave(mn_jctx *c) {
    c->depth--;
}
void *mn_jalloc(mn_jctx *c, size_t n, size_t size); /* zeroed; NULL = failed */
/* Room for one more than the n of `old`, an array with *cap of room: `old`, or a larger copy. */
void *mn_jgrow(mn_jctx *c, void *old, size_t n, size_t *cap, size_t size);

/* ---- making values --------------------------------------------------------------------------- */
static inline mn_jval mn_j_of(mn_jtype type) {
    mn_jval v = {type, {0}};
    return v;
}
static inline mn_jval mn_j_int(int64_t i) {
    mn_jval v = {MN_J_INT, {0}};
    v.u.i = i;
    return v;
}
static inline mn_jval mn_j_float(double f) {
    mn_jval v = {MN_J_FLOAT, {0}};
    v.u.f = f;
    return v;
}
static inline mn_jval mn_j_bool(bool b) {
    mn_jval v = {MN_J_BOOL, {0}};
    v.u.b = b;
    return v;
}
static inline mn_jval mn_j_listval(mn_jtype type, mn_jlist *l) {
    mn_jval v = {type, {0}};
    v.u.l = l;
    return v;
}
static inline mn_jval mn_j_dictval(mn_jdict *d) {
    mn_jval v = {MN_J_DICT, {0}};
    v.u.d = d;
    return v;
}
bool mn_j_string(mn_jctx *c, mn_jstr s, mn_jval *out); /* bytes are not copied */
/* template text; z outlives the context */
bool mn_j_literal(mn_jctx *c, const char *z, mn_jval *out);
bool mn_j_undefined(mn_jctx *c, mn_str name, mn_jval *out);
/* template text */
static inline mn_jstr mn_jstr_plain(mn_str s) {
    mn_jstr r = {s.ptr, NULL, s.len, 0};
    return r;
}
static inline mn_jstr mn_jstr_z(const char *z) {
    return mn_jstr_plain(mn_str_of(z));
}
mn_jstr mn_jstr_slice(mn_jstr s, size_t from, size_t to); /* byte offsets; shares the bytes */
static inline uint8_t mn_jstr_mark(mn_jstr s, size_t i) {
    return s.marks ? s.marks[i] : s.mark;
}
static inline mn_str mn_jstr_bytes(const mn_jstr *s) {
    mn_str r = {s->ptr, s->len};
    return r;
}

bool mn_jbuf_put(mn_jctx *c, mn_jbuf *b, mn_jstr s);
bool mn_jbuf_puts(mn_jctx *c, mn_jbuf *b, const char *z, uint8_t mark);
bool mn_jbuf_lit(mn_jctx *c, mn_jbuf *b, const char *z); /* template text */
bool mn_jbuf_bytes(mn_jctx *c, mn_jbuf *b, const char *p, size_t n, uint8_t mark);
bool mn_jbuf_fill(mn_jctx *c, mn_jbuf *b, char byte, int64_t n); /* template text */
bool mn_jbuf_code(mn_jctx *c, mn_jbuf *b, uint32_t code, uint8_t mark);
mn_jstr mn_jbuf_str(const mn_jbuf *b);
bool mn_jbuf_value(mn_jctx *c, const mn_jbuf *b, mn_jval *out);

mn_jlist *mn_jlist_new(mn_jctx *c, size_t cap);
bool mn_jlist_add(mn_jctx *c, mn_jlist *l, mn_jval v);
bool mn_jlist_add_all(mn_jctx *c, mn_jlist *l, const mn_jval *v, size_t n);
mn_jdict *mn_jdict_new(mn_jctx *c);
bool mn_jdict_set(mn_jctx *c, mn_jdict *d, mn_jval key, mn_jval value);
bool mn_jdict_set_all(mn_jctx *c, mn_jdict *d, const mn_jpair *pair, size_t n);
void mn_jdict_drop(mn_jctx *c, mn_jdict *d, mn_str name);
mn_jval *mn_jdict_find(mn_jctx *c, const mn_jdict *d, mn_jval key); /* NULL = absent */
/* false: the error of a key that cannot be one */
bool mn_jhashable(mn_jctx *c, mn_jval key);
mn_jval *mn_jdict_name(mn_jctx *c, const mn_jdict *d, mn_str name); /* NULL = absent */

/* ---- asking values --------------------------------------------------------------------------- */
const char *mn_jtype_name(mn_jval v); /* as Python names it */
bool mn_jtruth(mn_jval v);
static inline bool mn_j_is_number(mn_jval v) {
    return v.type == MN_J_INT || v.type == MN_J_FLOAT || v.type == MN_J_BOOL;
}
static inline bool mn_j_is_int(mn_jval v) {
    return v.type == MN_J_INT || v.type == MN_J_BOOL;
}
static inline bool mn_j_is_seq(mn_jval v) {
    return v.type >= MN_J_LIST && v.type <= MN_J_ITER;
}
static inline int64_t mn_j_as_int(mn_jval v) {
    return v.type == MN_J_BOOL ? (int64_t)v.u.b : v.u.i;
}
static inline double mn_j_as_float(mn_jval v) {
    return v.type == MN_J_FLOAT ? v.u.f : (double)mn_j_as_int(v);
}
bool mn_jequal(mn_jctx *c, mn_jval a, mn_jval b, bool *equal);
/* *order: -1, 0, 1; 2 = unordered (NaN) */
bool mn_jcompare(mn_jctx *c, mn_jval a, mn_jval b, int *order);
bool mn_jcontains(mn_jctx *c, mn_jval item, mn_jval in, bool *found);
bool mn_jlength(mn_jctx *c, mn_jval v, int64_t *n);
bool mn_jneed_defined(mn_jctx *c, mn_jval v); /* the error of using what is undefined */
/* false, with the error of a value that is undefined, or of another type than expected */
bool mn_jwrong_type(mn_jctx *c, const char *what, mn_jval v, const char *expected);
/* The items as a list: characters, keys, elements. A generator is used up. The result may be the
 * value's own: read only. */
bool mn_jiterate(mn_jctx *c, mn_jval v, mn_jlist **out);

/* ---- text of values: format.c ---------------------------------------------------------------- */
bool mn_jstr_of(mn_jctx *c, mn_jval v, mn_jstr *out); /* Python's str() */
bool mn_jput(mn_jctx *c, mn_jbuf *b, mn_jval v);      /* appends str(v) */
bool mn_jput_repr(mn_jctx *c, mn_jbuf *b, mn_jval v);

#endif
