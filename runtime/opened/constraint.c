/* constraint.c -- compiled constraints (mn_constraint): a grammar over the vocabulary of one model,
 * counted by its holders. The trie of the vocabulary is made once per model, when the first
 * constraint is. Control tokens are spelled there by a byte that no text has and their name: free
 * text around calls may have them, and marks of calls may be such tokens (call_grammar.c); no other
 * text that a grammar allows contains them. */
#include "opened/opened.h"
#include <string.h>

/* A control token's text; empty: out of memory, or it has no name. */
static mn_str control_text(const mn_model *m, int32_t id, mn_arena *arena) {
    const mn_str piece = mn_tokenizer_piece(m->tokenizer, id);
    char *text = piece.len ? mn_arena_alloc(arena, (size_t)piece.len + 1, 1) : NULL;
    if (!text)
        return (mn_str){"", 0};
    memcpy(text, MN_CONTROL_BYTE, 1);
    memcpy(text + 1, piece.ptr, (size_t)piece.len);
    return (mn_str){text, piece.len + 1};
}

/* Text that is not a control token's: a token with the byte that these begin with is never part of
 * a text that is UTF-8. */
static mn_str plain_text(const mn_model *m, int32_t id) {
    const mn_str text = mn_vocabulary_text(m, id);
    if (memchr(text.ptr, MN_CONTROL_BYTE[0], (size_t)text.len))
        return (mn_str){"", 0};
    return text;
}

/* An id that the tokeniser knows and the output matrix does not have is cut off by the session's
 * mask. */
static mn_status make_vocab(mn_model *m, mn_error *err) {
    const uint32_t n = mn_tokenizer_n_vocab(m->tokenizer);
    mn_arena names = {0};
    mn_str *text = mn_calloc(n, sizeof *text);
    if (!text)
        return mn_fail_memory(err, n * sizeof *text);
    for (uint32_t i = 0; i < n; i++) {
        const int32_t id = (int32_t)i;
        if (mn_tokenizer_is_special(m->tokenizer, id))
            text[i] = control_text(m, id, &names);
        else
            text[i] = plain_text(m, id);
    }
    const mn_status st = mn_grammar_vocab_create(text, n, &m->grammar_vocab, err);
    mn_free(text);
    mn_arena_free(&names);
    return st;
}

static mn_status need_vocab(mn_model *m, mn_error *err) {
    mn_status st = mn_text_need_tokenizer(m, err);
    if (st)
        return st;
    pthread_mutex_lock(&m->lock);
    if (!m->grammar_vocab)
        st = make_vocab(m, err);
    pthread_mutex_unlock(&m->lock);
    return st;
}

static const mn_grammar_kind kinds[] = {
    [MN_CONSTRAINT_JSON] = MN_GRAMMAR_JSON,     [MN_CONSTRAINT_SCHEMA] = MN_GRAMMAR_SCHEMA,
    [MN_CONSTRAINT_REGEX] = MN_GRAMMAR_REGEX,   [MN_CONSTRAINT_GRAMMAR] = MN_GRAMMAR_GBNF,
    [MN_CONSTRAINT_CHOICES] = MN_GRAMMAR_REGEX,
};

static mn_status compile_constraint(mn_constraint *c, const mn_constraint_params *p,
                                    mn_error *err) {
    const mn_grammar_vocab *v = c->model->grammar_vocab;
    if (p->kind == MN_CONSTRAINT_CHOICES)
        return mn_grammar_choices(p->choices, p->n_choices, v, &c->grammar, err);
    if (p->kind == MN_CONSTRAINT_CALLS)
        return mn_call_grammar(c->model, p->source, p->flags, MN_PLACE_ANSWER, &c->grammar,
                               &c->warnings, err);
    return mn_grammar_compile(kinds[p->kind], p->source, v, &c->grammar, &c->warnings, err);
}

/* Choices as a regular expression: (a|b). */
static void put_choices(mn_text *out, const mn_constraint_params *p) {
    for (uint32_t i = 0; i < p->n_choices; i++) {
        mn_text_puts(out, i ? "|" : "(");
        for (uint64_t k = 0; k < p->choices[i].len; k++) {
            const char c = p->choices[i].ptr[k];
            if (c && strchr("\\^$.|?*+()[]{}/-", c))
                mn_text_put(out, "\\", 1);
            mn_text_put(out, &c, 1);
        }
    }
    mn_text_puts(out, ")");
}

/* What the form behind thinking is made of, if that is asked for. */
static mn_status keep_source(mn_constraint *c, const mn_constraint_params *p, mn_error *err) {
    c->kind = p->kind;
    c->flags = p->flags;
    if (p->kind == MN_CONSTRAINT_CHOICES)
        put_choices(&c->source, p);
    else if (p->source.len)
        mn_text_put(&c->source, p->source.ptr, (size_t)p->source.len);
    return c->source.failed || c->warnings.failed ? mn_fail_memory(err, 64) : MN_OK;
}

/* Free text up to the mark, then the form. Under the lock. */
static mn_status compile_behind(mn_constraint *c, mn_place place, mn_str mark, mn_str lead,
                                mn_error *err) {
    const mn_str source = {c->source.ptr ? c->source.ptr : "", c->source.len};
    if (c->kind == MN_CONSTRAINT_CALLS)
        return mn_call_grammar(c->model, source, c->flags, place, &c->behind[place], NULL, err);
    const mn_grammar_tag tag = {
        .begin = mark, .lead = lead, .kind = kinds[c->kind], .source = source};
    const mn_grammar_tags tags = {.tag = &tag, .n = 1, .least = 1, .most = 1};
    return mn_grammar_tagged(&tags, c->model->grammar_vocab, &c->behind[place], NULL, err);
}

mn_status mn_constraint_grammar(mn_constraint *c, const int32_t *prompt, uint32_t n,
                                mn_grammar **out, mn_error *err) {
    mn_text mark = {0};
    mn_text lead = {0};
    mn_status st = MN_OK;
    *out = c->grammar;
    if (!c->grammar)
        return MN_OK;
    const mn_place place = mn_answer_mark(c->model, prompt, n, &mark, &lead);
    if (place == MN_PLACE_ANSWER)
        return MN_OK;
    if (mark.failed || lead.failed)
        st = mn_fail_memory(err, 64);
    pthread_mutex_lock(&c->lock);
    if (!st && !c->behind[place])
        st = compile_behind(c, place, (mn_str){mark.ptr, mark.len}, (mn_str){lead.ptr, lead.len},
                            err);
    *out = c->behind[place];
    pthread_mutex_unlock(&c->lock);
    mn_text_free(&mark);
    mn_text_free(&lead);
    return st;
}

mn_status mn_constraint_compile(mn_model *m, const mn_constraint_params *p, mn_constraint **out,
                                mn_error *err) {
    mn_status st = need_vocab(m, err);
    if (st)
        return st;
    mn_constraint *c = mn_calloc(1, sizeof *c);
    if (!c)
        return mn_fail_memory(err, sizeof *c);
    c->model = m;
    atomic_init(&c->refs, 1);
    pthread_mutex_init(&c->lock, NULL);
    st = compile_constraint(c, p, err);
    if (!st)
        st = keep_source(c, p, err);
    if (st)
        mn_constraint_release(c);
    else
        *out = c;
    return st;
}

void mn_constraint_release(mn_constraint *c) {
    if (atomic_fetch_sub(&c->refs, 1) > 1)
        return;
    mn_grammar_free(c->grammar);
    for (uint32_t i = 0; i < MN_PLACES; i++)
        mn_grammar_free(c->behind[i]);
    pthread_mutex_destroy(&c->lock);
    mn_text_free(&c->source);
    mn_text_free(&c->warnings);
    mn_free(c);
}
