/* expr.c -- what the front ends build: expressions over bytes, and rules that may refer to each
 * other. Everything lives in the arena of an mn_gbuild and is freed with it once the automaton is
 * made. Functions pass a failure (NULL) of their arguments on, so that callers check once. */
#include "grammar/grammar_impl.h"
#include <string.h>

/* Units of work for an expression, and bytes of text that are one. */
enum { EXPR_WORK = 6, TEXT_WORK = 4 };

void mn_gbuild_free(mn_gbuild *b) {
    mn_arena_free(&b->arena);
    mn_free(b->rule);
}

mn_gexpr *mn_gbuild_memory(mn_gbuild *b) {
    if (!b->status)
        b->status = mn_fail(b->err, MN_OUT_OF_MEMORY, "out of memory for a grammar");
    return NULL;
}

uint32_t mn_grule_add(mn_gbuild *b, const char *name, mn_gexpr *expr) {
    if (b->n_rules >= MN_GRAMMAR_RULES) {
        if (!b->status)
            b->status =
                mn_fail(b->err, MN_UNSUPPORTED, "%s: more than %u rules", name, MN_GRAMMAR_RULES);
        return MN_GNONE;
    }
    char *copy = mn_arena_strndup(&b->arena, name, strlen(name));
    if (!copy || !mn_grow((void **)&b->rule, &b->cap_rules, b->n_rules + 1u, sizeof *b->rule)) {
        mn_gbuild_memory(b);
        return MN_GNONE;
    }
    b->rule[b->n_rules] = (mn_grule){.name = copy, .owner = b->owner, .expr = expr};
    return b->n_rules++;
}

mn_gexpr *mn_gx_new(mn_gbuild *b, mn_gexpr_kind kind) {
    mn_gexpr *x = mn_gbuild_spend(b, EXPR_WORK) ? mn_arena_alloc(&b->arena, 1, sizeof *x) : NULL;
    if (!x)
        return mn_gbuild_memory(b);
    x->kind = kind;
    return x;
}

mn_gexpr *mn_gx_bytes(mn_gbuild *b, uint32_t lo, uint32_t hi) {
    mn_gexpr *x = mn_gx_new(b, MN_GX_BYTES);
    if (!x)
        return NULL;
    x->lo = (uint8_t)lo;
    x->hi = (uint8_t)hi;
    return x;
}

mn_gexpr *mn_gx_text(mn_gbuild *b, const char *bytes, size_t n) {
    mn_gexpr *x = mn_gx_new(b, MN_GX_TEXT);
    if (!x)
        return NULL;
    const char *copy = NULL;
    if (mn_gbuild_spend(b, n / TEXT_WORK))
        copy = mn_arena_strndup(&b->arena, n ? bytes : "", n);
    if (!copy)
        return mn_gbuild_memory(b);
    x->text = (mn_str){copy, n};
    return x;
}

mn_gexpr *mn_gx_ref(mn_gbuild *b, uint32_t rule) {
    if (rule == MN_GNONE)
        return NULL;
    mn_gexpr *x = mn_gx_new(b, MN_GX_REF);
    if (x)
        x->rule = rule;
    return x;
}

bool mn_gx_add(mn_gbuild *b, mn_gexpr *parent, mn_gexpr *child) {
    if (!parent || !child)
        return false;
    if (parent->n == parent->cap) {
        const uint32_t cap = parent->cap ? 2 * parent->cap : 4;
        mn_gexpr **more = mn_arena_alloc(&b->arena, cap, sizeof *more);
        if (!more) {
            mn_gbuild_memory(b);
            return false;
        }
        if (parent->n)
            memcpy(more, parent->child, parent->n * sizeof *more);
        parent->child = more;
        parent->cap = cap;
    }
    parent->child[parent->n++] = child;
    return true;
}

mn_gexpr *mn_gx_repeat(mn_gbuild *b, mn_gexpr *child, uint32_t min, uint32_t max) {
    mn_gexpr *x = child ? mn_gx_new(b, MN_GX_REPEAT) : NULL;
    if (!mn_gx_add(b, x, child))
        return NULL;
    x->min = min;
    x->max = max;
    return x;
}

mn_gexpr *mn_gx_join(mn_gbuild *b, mn_gexpr_kind kind, mn_gexpr *const *child, uint32_t n) {
    mn_gexpr *x = mn_gx_new(b, kind);
    for (uint32_t i = 0; i < n; i++) {
        if (!mn_gx_add(b, x, child[i]))
            return NULL;
    }
    return x;
}
