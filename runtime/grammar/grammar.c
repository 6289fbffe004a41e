/* grammar.c -- a source to a grammar: the front end builds expressions, nfa.c the automaton. A
 * grammar belongs to its caller, and must outlive its states; its vocabulary must outlive it. */
#include "grammar/schema.h"
#include <string.h>

void mn_grammar_free(mn_grammar *g) {
    if (!g)
        return;
    mn_gsets_free(g);
    mn_gnfa_free(&g->nfa);
    pthread_mutex_destroy(&g->lock);
    mn_free(g);
}

/* The grammar of what b holds; frees b. */
static mn_status finish(mn_gbuild *b, const mn_grammar_vocab *v, mn_grammar **out) {
    mn_grammar *g = mn_calloc(1, sizeof *g);
    if (g) {
        pthread_mutex_init(&g->lock, NULL);
        g->vocab = v;
    } else {
        mn_gbuild_memory(b);
    }
    if (!b->status)
        mn_gnfa_build(b, &g->nfa);
    if (!b->status && mn_gsets_init(g))
        mn_gbuild_memory(b);
    mn_gbuild_free(b);
    if (b->status)
        mn_grammar_free(g);
    else
        *out = g;
    return b->status;
}

static void build_regex(mn_gbuild *b, mn_str source) {
    mn_gregex how = {0};
    mn_gexpr *x = mn_gregex_parse(b, source, "regular expression", &how);
    if (x)
        mn_grule_add(b, "regular expression", x);
}

/* "Any JSON": at most one space or one line break with its indent where JSON allows any. */
static const char any_json[] =
    "root ::= object | array\n"
    "value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"
    "object ::= \"{\" ws (member (\",\" ws member)*)? ws \"}\"\n"
    "member ::= string \":\" ws value\n"
    "array ::= \"[\" ws (value (\",\" ws value)*)? ws \"]\"\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "char ::= [^\"\\\\\\x00-\\x1f] | \"\\\\\" escape\n"
    "escape ::= [\"\\\\/bfnrt] | \"u\" unit\n"
    "unit ::= [0-9A-CEFa-cef] hex{3} | [Dd] [0-7] hex{2} | [Dd] [89ABab] hex{2} \"\\\\u\" [Dd] "
    "[C-Fc-f] hex{2}\n"
    "hex ::= [0-9A-Fa-f]\n"
    "number ::= \"-\"? (\"0\" | [1-9] [0-9]{0,30}) (\".\" [0-9]{1,30})? ([eE] [+-]? [0-9]{1,2})?\n"
    "ws ::= (\" \" | \"\\n\" \" \"{0,40})?\n";

/* Strings are one rule for all places, so that its large masks are made once. Escapes are rare, and
 * large: called, so that a character is small enough to be copied. */
static mn_status build_json(mn_gbuild *b) {
    mn_ggbnf_parse(b, mn_str_of(any_json));
    for (uint32_t r = 0; r < b->n_rules; r++)
        b->rule[r].shared =
            !strcmp(b->rule[r].name, "string") || !strcmp(b->rule[r].name, "escape");
    return b->status;
}

mn_status mn_grammar_compile(mn_grammar_kind kind, mn_str source, const mn_grammar_vocab *v,
                             mn_grammar **out, mn_text *warnings, mn_error *err) {
    mn_gbuild b = {.err = err, .warnings = warnings};
    *out = NULL;
    if (source.len > MN_GRAMMAR_SOURCE)
        return mn_fail(err, MN_UNSUPPORTED, "a grammar of %llu bytes; the limit is %u",
                       (unsigned long long)source.len, MN_GRAMMAR_SOURCE);
    switch (kind) {
    case MN_GRAMMAR_JSON:
        build_json(&b);
        break;
    case MN_GRAMMAR_SCHEMA:
        if (!build_json(&b))
            mn_gschema_parse(&b, source);
        break;
    case MN_GRAMMAR_REGEX:
        build_regex(&b, source);
        break;
    case MN_GRAMMAR_GBNF:
        mn_ggbnf_parse(&b, source);
        break;
    default:
        b.status = mn_fail(err, MN_UNSUPPORTED, "no such kind of grammar: %d", (int)kind);
    }
    return finish(&b, v, out);
}

mn_status mn_grammar_choices(const mn_str *choice, uint32_t n, const mn_grammar_vocab *v,
                             mn_grammar **out, mn_error *err) {
    mn_gbuild b = {.err = err};
    *out = NULL;
    if (!n)
        return mn_fail(err, MN_BAD_INPUT, "a list of choices without any");
    mn_gexpr *x = mn_gx_new(&b, MN_GX_ALT);
    for (uint32_t i = 0; i < n && !b.status; i++)
        mn_gx_add(&b, x, mn_gx_text(&b, choice[i].ptr, (size_t)choice[i].len));
    if (!b.status)
        mn_grule_add(&b, "choices", x);
    return finish(&b, v, out);
}
