/* ast.h -- the parsed template: one node type, its fields used as each kind says. */
#ifndef MN_JINJA_AST_H
#define MN_JINJA_AST_H
#include "text/jinja/lex.h"

typedef enum {
    /* expressions */
    MN_N_CONST,  /* value */
    MN_N_NAME,   /* name */
    MN_N_LIST,   /* items */
    MN_N_TUPLE,  /* items */
    MN_N_DICT,   /* items: key, value, key, value... */
    MN_N_ATTR,   /* a . name */
    MN_N_ITEM,   /* a [ b ] */
    MN_N_SLICE,  /* a : b : c, each may be NULL; only as b of ITEM */
    MN_N_CALL,   /* a ( items, kw, *b, **c ) */
    MN_N_FILTER, /* a | name ( items, kw, *b, **c ); a NULL: the filter block's text */
    MN_N_TEST,   /* a is name ( ... ) */
    MN_N_NOT,
    MN_N_NEG,
    MN_N_POS, /* a */
    MN_N_AND,
    MN_N_OR,      /* a, b */
    MN_N_BINARY,  /* a op b; op: the token type */
    MN_N_CONCAT,  /* items joined by ~ */
    MN_N_COMPARE, /* a, then items, each an OPERAND */
    MN_N_OPERAND, /* op (a token type; NAME: in; not_in) a */
    MN_N_COND,    /* a if b else c; c may be NULL */
    MN_N_KEYWORD, /* name = a */
    /* statements; bodies are BODY nodes */
    MN_N_BODY,         /* items */
    MN_N_PRINT,        /* a */
    MN_N_IF,           /* items: condition, body, condition, body...; c: else */
    MN_N_FOR,          /* for a in b if c: body; d: else; flag: recursive */
    MN_N_SET,          /* a = b */
    MN_N_SET_BLOCK,    /* a = text of body, through filters b (may be NULL) */
    MN_N_NSREF,        /* target: name . attr; name in name, attr in value (a string) */
    MN_N_MACRO,        /* name; items: parameters (NAME, with a: default); body */
    MN_N_CALL_BLOCK,   /* a: the call; b: a MACRO for the body */
    MN_N_FILTER_BLOCK, /* a: filters; body */
    MN_N_WITH,         /* kw: assignments (a = target, b = value); body */
    MN_N_BREAK,
    MN_N_CONTINUE
} mn_jnode_kind;

typedef struct mn_jnode mn_jnode;
typedef struct {
    mn_jnode **items;
    size_t n, cap;
} mn_jnodes;
struct mn_jnode {
    mn_jnode_kind kind;
    uint32_t line;
    int op;
    bool flag;                                   /* FOR: recursive; OPERAND: not in */
    bool uses_varargs, uses_kwargs, uses_caller; /* MACRO */
    mn_str name;
    mn_jval value;
    mn_jnode *a, *b, *c, *d, *body;
    mn_jnodes items, kw;
};

typedef struct mn_jparser {
    mn_jctx *c;
    const mn_jtoken *t; /* the current token */
    uint32_t loops;     /* around the current place, within the macro */
    struct mn_jmacro_seen {
        mn_jnode *macro;
        struct mn_jmacro_seen *outer;
    } * macros;
} mn_jparser;

/* The template's body; nodes live in c's arena. */
bool mn_jparse(mn_jctx *c, mn_str source, mn_jnode **out);

/* Used between parse.c and expr.c; all: NULL or false = failed. */
mn_jnode *mn_jnode_new(mn_jparser *p, mn_jnode_kind kind);
bool mn_jnodes_add(mn_jparser *p, mn_jnodes *l, mn_jnode *n);
bool mn_jexpect(mn_jparser *p, mn_jtoken_type type);
bool mn_jat_name(const mn_jparser *p, const char *name);
bool mn_jskip_name(mn_jparser *p, const char *name);
mn_jnode *mn_jparse_expr(mn_jparser *p, bool with_cond);
mn_jnode *mn_jparse_tuple(mn_jparser *p, bool with_cond, bool simple, const char *end_name);
mn_jnode *mn_jparse_filters(mn_jparser *p, mn_jnode *on, bool first_inline);

#endif
