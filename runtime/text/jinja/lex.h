/* lex.h -- a template's text as tokens, white space control applied. */
#ifndef MN_JINJA_LEX_H
#define MN_JINJA_LEX_H
#include "text/jinja/value.h"

typedef enum {
    MN_T_EOF,
    MN_T_DATA,
    MN_T_VAR_BEGIN,
    MN_T_VAR_END,
    MN_T_BLOCK_BEGIN,
    MN_T_BLOCK_END,
    MN_T_NAME,
    MN_T_STRING,
    MN_T_INT,
    MN_T_FLOAT,
    MN_T_ADD,
    MN_T_SUB,
    MN_T_DIV,
    MN_T_FLOORDIV,
    MN_T_MUL,
    MN_T_MOD,
    MN_T_POW,
    MN_T_TILDE,
    MN_T_LBRACKET,
    MN_T_RBRACKET,
    MN_T_LPAREN,
    MN_T_RPAREN,
    MN_T_LBRACE,
    MN_T_RBRACE,
    MN_T_EQ,
    MN_T_NE,
    MN_T_GT,
    MN_T_GE,
    MN_T_LT,
    MN_T_LE,
    MN_T_ASSIGN,
    MN_T_DOT,
    MN_T_COLON,
    MN_T_PIPE,
    MN_T_COMMA,
    MN_T_SEMICOLON
} mn_jtoken_type;

typedef struct {
    mn_jtoken_type type;
    uint32_t line;
    mn_str text; /* DATA, NAME: the bytes; STRING: unescaped */
    int64_t i;   /* INT */
    double f;    /* FLOAT */
} mn_jtoken;

/* Tokens of source, the last one EOF; in c's arena, pointing into source's copy there. */
bool mn_jlex(mn_jctx *c, mn_str source, mn_jtoken **tokens);
const char *mn_jtoken_name(mn_jtoken_type type);

#endif
