/* grammar.c -- a source to a grammar: the front end builds expressions, nfa.c the automaton. A
 * grammar belongs to its caller, and must outlive its states; its vocabulary must outlive it. */
#include "grammar/schema.h"
#include <stdio.h>
#include <string.h>

void mn_grammar_free(mn_grammar *g) {
    if (!g)
        return;
    mn_gsets_free(g);
    mn_gnfa_free(&g->nfa);
    pthread_rwlock_destroy(&g->lock);
    pthread_mutex_destroy(&g->list_lock);
    mn_free(g);
}

/* The grammar of what b holds; frees b. */
static mn_status grammar_finish(mn_gbuild *b, const mn_grammar_vocab *v, mn_grammar **out) {
    mn_grammar *g = mn_calloc(1, sizeof *g);
    if (g) {
        pthread_rwlock_init(&g->lock, NULL);
        pthread_mutex_init(&g->list_lock, NULL);
        g->vocab = v;
    } else {
        mn_gbuild_memory(b);
    }
    if (!b->status)
        mn_gnfa_build(b, &g->nfa);
    if (!b->status && mn_gsets_init(g))
        mn_gbuild_memory(b);
    if (g)
        g->work = MN_GRAMMAR_WORK_COMPILE - b->budget.left;
    mn_gbuild_free(b);
    if (b->status)
        mn_grammar_free(g);
    else
        *out = g;
    return b->status;
}

/* "Any JSON": at most one space, or a line break with an indent of up to 20. */
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
    "ws ::= (\" \" | \"\\n\" \" \"{0,20})?\n";

/* Strings are one rule for all places, so that its large masks are made once; white space, too,
 * which is at every place. Escapes are rare, and large: called, so that a character is small enough
 * to be copied. */
static mn_gexpr *build_json(mn_gbuild *b) {
    const uint32_t from = b->n_rules;
    mn_gexpr *x = mn_ggbnf_parse(b, mn_str_of(any_json));
    for (uint32_t r = from; r < b->n_rules; r++) {
        const char *name = b->rule[r].name;
        b->rule[r].shared =
            !strcmp(name, "string") || !strcmp(name, "escape") || !strcmp(name, "ws");
    }
    return x;
}

/* What a source describes; the rules of any JSON, whose root is `json`, are there for the kinds
 * that use them. NULL: b->status says why. */
static mn_gexpr *grammar_build(mn_gbuild *b, mn_grammar_kind kind, mn_str source, mn_gexpr *json) {
    mn_gregex how = {0};
    if (b->status)
        return NULL;
    if (source.len > MN_GRAMMAR_SOURCE) {
        b->status = mn_fail(b->err, MN_UNSUPPORTED, "a grammar of %llu bytes; the limit is %u",
                            (unsigned long long)source.len, MN_GRAMMAR_SOURCE);
        return NULL;
    }
    b->place = kind == MN_GRAMMAR_REGEX ? "regular expression" : NULL;
    switch (kind) {
    case MN_GRAMMAR_JSON:
        return json;
    case MN_GRAMMAR_SCHEMA:
        return mn_gschema_parse(b, source);
    case MN_GRAMMAR_PARAMETERS:
    case MN_GRAMMAR_INVOKES:
    case MN_GRAMMAR_ARGS:
        return mn_gschema_parse_tags(b, source, (uint32_t)(kind - MN_GRAMMAR_PARAMETERS));
    case MN_GRAMMAR_REGEX:
        return mn_gregex_parse(b, source, "regular expression", &how);
    case MN_GRAMMAR_GBNF:
        return mn_ggbnf_parse(b, source);
    }
    b->status = mn_fail(b->err, MN_UNSUPPORTED, "no such kind of grammar: %d", (int)kind);
    return NULL;
}

/* In b, which is freed. */
static mn_status grammar_compile(mn_gbuild *b, mn_grammar_kind kind, mn_str source,
                                 const mn_grammar_vocab *v, mn_grammar **out) {
    mn_gexpr *json = NULL;
    *out = NULL;
    if (kind != MN_GRAMMAR_REGEX && kind != MN_GRAMMAR_GBNF)
        json = build_json(b);
    mn_gexpr *x = grammar_build(b, kind, source, json);
    if (x && kind == MN_GRAMMAR_SCHEMA)
        b->rule[0].expr = x;
    if (x && kind == MN_GRAMMAR_REGEX)
        mn_grule_add(b, "regular expression", x);
    if (x && kind >= MN_GRAMMAR_PARAMETERS && kind <= MN_GRAMMAR_ARGS)
        b->rule[0].expr = x;
    return grammar_finish(b, v, out);
}

mn_status mn_grammar_compile(mn_grammar_kind kind, mn_str source, const mn_grammar_vocab *v,
                             mn_grammar **out, mn_text *warnings, mn_error *err) {
    mn_gbuild b;
    mn_gbuild_begin(&b, warnings, err);
    return grammar_compile(&b, kind, source, v, out);
}

mn_status mn_grammar_try(mn_grammar_kind kind, mn_str source, const mn_grammar_vocab *v,
                         uint64_t *work, uint32_t *n_states, mn_error *err) {
    mn_gbuild b;
    mn_grammar *g = NULL;
    mn_gbuild_begin(&b, NULL, err);
    b.budget.left = MN_MIN(*work, b.budget.left);
    const mn_status st = grammar_compile(&b, kind, source, v, &g);
    *n_states = g ? g->nfa.n : 0;
    *work = b.budget.left;
    mn_grammar_free(g);
    return st;
}

mn_status mn_grammar_choices(const mn_str *choice, uint32_t n, const mn_grammar_vocab *v,
                             mn_grammar **out, mn_error *err) {
    mn_gbuild b;
    mn_gbuild_begin(&b, NULL, err);
    *out = NULL;
    if (!n)
        return mn_fail(err, MN_BAD_INPUT, "a list of choices without any");
    mn_gexpr *x = mn_gx_new(&b, MN_GX_ALT);
    for (uint32_t i = 0; i < n && !b.status; i++)
        mn_gx_add(&b, x, mn_gx_text(&b, choice[i].ptr, (size_t)choice[i].len));
    if (!b.status)
        mn_grule_add(&b, "choices", x);
    return grammar_finish(&b, v, out);
}

/* ---- calls in free text ---------------------------------------------------------------------- */
static mn_status check_tags(const mn_grammar_tags *t, mn_error *err) {
    if (!t->n || t->n > MN_GRAMMAR_TAGS || t->least > 64 || t->most > 64)
        return mn_fail(err, MN_BAD_INPUT, "%u forms of calls, %u to %u calls; 1 to %u, up to 64",
                       t->n, t->least, t->most, MN_GRAMMAR_TAGS);
    if (t->thinking.n_never > MN_GRAMMAR_NEVER)
        return mn_fail(err, MN_BAD_INPUT, "%u texts that are never thought; %u at most",
                       t->thinking.n_never, (unsigned)MN_GRAMMAR_NEVER);
    if (t->most && t->most < t->least)
        return mn_fail(err, MN_BAD_INPUT, "at least %u calls, and at most %u", t->least, t->most);
    for (uint32_t i = 0; i < t->n; i++) {
        if (!t->tag[i].begin.len)
            return mn_fail(err, MN_BAD_INPUT, "call %u: its begin is empty", i);
    }
    return MN_OK;
}

/* A rule of its own, which is called: so calls of the same form share their masks, and messages
 * name the form. */
static mn_gexpr *build_tag(mn_gbuild *b, const mn_grammar_tags *t, uint32_t i, mn_gexpr *json) {
    char name[96];
    if (t->tag[i].name.len)
        snprintf(name, sizeof name, "tool %.*s", (int)MN_MIN(t->tag[i].name.len, 80u),
                 t->tag[i].name.ptr);
    else
        snprintf(name, sizeof name, "call %u", i);
    mn_error inner = MN_ERROR_INIT;
    mn_error *outer = b->err;
    b->err = &inner;
    b->owner = NULL;
    if (t->tag[i].name.len)
        b->owner = mn_arena_strndup(&b->arena, name, strlen(name));
    mn_gexpr *x = grammar_build(b, t->tag[i].kind, t->tag[i].source, json);
    b->err = outer;
    const bool is_named = b->owner && !strncmp(inner.msg, b->owner, strlen(b->owner));
    if (b->status && is_named)
        mn_fail(outer, b->status, "%s", inner.msg);
    else if (b->status)
        mn_fail(outer, b->status, "%s: %s", name, inner.msg);
    b->owner = NULL;
    const uint32_t rule = x ? mn_grule_add(b, name, x) : MN_GNONE;
    if (rule == MN_GNONE)
        return NULL;
    b->rule[rule].shared = true;
    const mn_str lead = t->tag[i].lead;
    const mn_str end = t->tag[i].end;
    mn_gexpr *part[3] = {mn_gx_text(b, lead.ptr, (size_t)lead.len), mn_gx_ref(b, rule),
                         mn_gx_text(b, end.ptr, (size_t)end.len)};
    const uint32_t first = lead.len ? 0 : 1;
    return mn_gx_join(b, MN_GX_SEQ, part + first, (end.len ? 3 : 2) - first);
}

mn_status mn_grammar_tagged(const mn_grammar_tags *tags, const mn_grammar_vocab *v,
                            mn_grammar **out, mn_text *warnings, mn_error *err) {
    mn_gbuild b;
    mn_gexpr *content[MN_GRAMMAR_TAGS] = {NULL};
    mn_gbuild_begin(&b, warnings, err);
    *out = NULL;
    if (check_tags(tags, err))
        return MN_BAD_INPUT;
    if (mn_grule_add(&b, "text", NULL) == MN_GNONE)
        return grammar_finish(&b, v, out);
    mn_gexpr *json = build_json(&b);
    for (uint32_t i = 0; i < tags->n && !b.status; i++)
        content[i] = build_tag(&b, tags, i, json);
    mn_gexpr *all = b.status ? NULL : mn_gx_tags(&b, tags, content);
    if (all) /* rules may have moved */
        b.rule[0].expr = all;
    return grammar_finish(&b, v, out);
}
