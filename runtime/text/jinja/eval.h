/* eval.h -- running a template: scopes, functions, and what the parts of the evaluator offer
 * each other. */
#ifndef MN_JINJA_EVAL_H
#define MN_JINJA_EVAL_H
#include "text/jinja/ast.h"

typedef struct {
    mn_str name;
    mn_jval value;
} mn_jvar;
typedef struct mn_jscope {
    struct mn_jscope *parent;
    mn_jvar *vars;
    size_t n, cap;
    bool captured; /* a macro keeps it: it must not be used again */
} mn_jscope;

struct mn_jmacro {
    const mn_jnode *node;
    mn_jscope *scope;
};

/* What a filter, test, method or global is called with. self: the filtered or tested value, the
 * method's object; arg: as params says; all: as they came; how: its table's word to it. */
typedef struct {
    mn_jval self;
    const mn_jval *arg;
    const mn_jargs *all;
    int how;
} mn_jinput;

/* A row of the tables. params: "old new ?count" binds arguments to arg[] (MISSING where an optional
 * one was not given); NULL: takes `all` as it comes. */
#define MN_J_MAX_PARAMS 6
typedef struct mn_jfunc {
    const char *name, *params;
    bool (*fn)(mn_jctx *c, const mn_jinput *in, mn_jval *out);
    int how;
} mn_jfunc;
struct mn_jmethod {
    mn_jval self;
    const mn_jfunc *func;
};

typedef struct mn_jloop {
    const mn_jnode *node;
    mn_jscope *scope; /* around the loop */
    mn_jlist *items;
    size_t at;                               /* next of items */
    mn_jval current, before, after, changed; /* after: MISSING unless looked at early */
    int64_t index0, length, depth0;          /* length: -1 until asked */
    bool decided;                            /* items are those that passed the condition */
    bool completed;                          /* a pass has reached the body's end */
} mn_jloop;

typedef enum { MN_FLOW_NEXT, MN_FLOW_BREAK, MN_FLOW_CONTINUE } mn_jflow;

/* eval.c */
bool mn_jeval(mn_jctx *c, const mn_jnode *n, mn_jval *out);
/* exec.c */
bool mn_jexec(mn_jctx *c, const mn_jnode *n, mn_jflow *flow);
mn_jscope *mn_jscope_new(mn_jctx *c, mn_jscope *parent);
bool mn_jscope_set(mn_jctx *c, mn_jscope *s, mn_str name, mn_jval v);
const mn_jval *mn_jscope_get(mn_jctx *c, mn_str name); /* seen from c->scope; NULL = none */
/* A macro, n, as a value of c->scope, which it sees when it is called. */
bool mn_jmacro_of(mn_jctx *c, const mn_jnode *n, mn_jval *out);
bool mn_jmacro_call(mn_jctx *c, const struct mn_jmacro *m, const mn_jargs *args, mn_jval *out);
bool mn_jassign(mn_jctx *c, const mn_jnode *target, mn_jval v);
bool mn_jexec_for(mn_jctx *c, const mn_jnode *n);
bool mn_jloop_call(mn_jctx *c, mn_jloop *loop, const mn_jargs *args, mn_jval *out);
bool mn_jloop_attr(mn_jctx *c, mn_jval loop, mn_str name, bool *found, mn_jval *out);
/* filters_list.c */
/* Sorts by keys; stable, and with reverse equal keys keep their order, too, as Python's
 * sorted(). */
bool mn_jsort(mn_jctx *c, mn_jpair *a, size_t n, bool reverse);
/* access.c */
bool mn_jattr(mn_jctx *c, mn_jval v, mn_str name, mn_jval *out);            /* v.name */
bool mn_jitem(mn_jctx *c, mn_jval v, mn_jval key, mn_jval *out);            /* v[key] */
bool mn_jslice(mn_jctx *c, mn_jval v, const mn_jval part[3], mn_jval *out); /* NONE = left out */
bool mn_jcall(mn_jctx *c, mn_jval f, const mn_jargs *args, mn_jval *out);
bool mn_jinvoke(mn_jctx *c, const mn_jfunc *f, mn_jval self, const mn_jargs *args, mn_jval *out);
bool mn_jpath(mn_jctx *c, mn_jval v, mn_jval path, mn_jval *out); /* attribute="a.0.b" of filters */
const mn_jfunc *mn_jfunc_in(mn_jctx *c, const mn_jfunc *table, size_t n, mn_str name);
/* ops.c */
bool mn_jbinary(mn_jctx *c, int op, mn_jval a, mn_jval b, mn_jval *out);
bool mn_jnegate(mn_jctx *c, mn_jval v, mn_jval *out);
/* Does an order of mn_jcompare meet op, one of the tokens < <= > >= ? */
bool mn_jorder_is(int op, int order);
/* format.c */
bool mn_jpercent(mn_jctx *c, mn_jstr format, mn_jval args, mn_jval *out);
bool mn_jformat(mn_jctx *c, mn_jstr format, const mn_jargs *args, mn_jval *out);
/* tojson.c */
bool mn_jtojson(mn_jctx *c, const mn_jinput *in, mn_jval *out);
bool mn_jvars_from_json(mn_jctx *c, mn_str json, const char *const *trusted, mn_jdict *vars);
/* any value, all of it user data */
bool mn_j_from_json(mn_jctx *c, const char *what, mn_str json, mn_jval *out);
/* the tables; NULL: not in it, or the work is used up */
const mn_jfunc *mn_jfilter_find(mn_jctx *c, mn_str name);
const mn_jfunc *mn_jlist_filter_find(mn_jctx *c, mn_str name);
const mn_jfunc *mn_jtest_find(mn_jctx *c, mn_str name);
const mn_jfunc *mn_jglobal_find(mn_jctx *c, mn_str name);
const mn_jfunc *mn_jmethod_find(mn_jctx *c, mn_jval v, mn_str name);
/* A method that there is, with bound arguments. */
bool mn_jmethod_call(mn_jctx *c, const char *name, mn_jval self, const mn_jval *arg, mn_jval *out);

/* Arguments of the table functions */
bool mn_jarg_int(mn_jctx *c, const char *what, mn_jval v, int64_t otherwise, int64_t *out);
bool mn_jarg_str(mn_jctx *c, const char *what, mn_jval v, mn_jstr *out);

#endif
