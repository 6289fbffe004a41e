/* tags.c -- calls in free text: an automaton over the marks at which calls begin (Aho and Corasick
 * 1975), deterministic, so that free text costs one set of nodes per byte. Tables live in the arena
 * of the build. Marks that count at the beginning alone are a second tree beside the first: where
 * the text leaves it, it is in the state that the first would be in. */
#include "grammar/grammar_impl.h"
#include <string.h>

typedef struct {
    mn_gbuild *b;
    const mn_grammar_tags *t;
    mn_gmarks *m;
    mn_gexpr *free; /* a child for each begin: the calls that may follow it */
    uint32_t *fail; /* [n] the longest end of what was read at which a mark may go on */
    uint32_t *call; /* [n] the child that begins here, or MN_GNONE */
} marks;

static mn_str begin_of(const marks *k, uint32_t i) {
    return k->t->tag[i].begin;
}

/* No tag before it begins alike. */
static bool is_new(const marks *k, uint32_t i) {
    const mn_str begin = begin_of(k, i);
    for (uint32_t j = 0; j < i; j++) {
        const mn_str other = begin_of(k, j);
        if (other.len == begin.len && !memcmp(other.ptr, begin.ptr, (size_t)begin.len))
            return false;
    }
    return true;
}

/* A mark in another, but for equal ones. */
static bool tags_check(const marks *k) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < k->t->n; i++)
        total += is_new(k, i) ? begin_of(k, i).len : 0;
    if (total > MN_GRAMMAR_MARKS) {
        k->b->status = mn_fail(k->b->err, MN_UNSUPPORTED, "marks of %llu bytes; the limit is %u",
                               (unsigned long long)total, MN_GRAMMAR_MARKS);
        return false;
    }
    for (uint32_t i = 0; i < k->t->n * k->t->n; i++) {
        const mn_str in = begin_of(k, i / k->t->n);
        const mn_str part = begin_of(k, i % k->t->n);
        if (k->t->tag[i % k->t->n].first && !k->t->tag[i / k->t->n].first)
            continue;
        if (in.len <= part.len || !memmem(in.ptr, (size_t)in.len, part.ptr, (size_t)part.len))
            continue;
        k->b->status = mn_fail(k->b->err, MN_BAD_INPUT,
                               "call %u: its begin \"%.*s\" holds \"%.*s\", which would always "
                               "come first",
                               i / k->t->n, MN_STR_ARG(in), MN_STR_ARG(part));
        return false;
    }
    return true;
}

static uint32_t state_new(marks *k) {
    mn_gmarks *m = k->m;
    memset(m->next + (size_t)m->n * 256, 0xff, 256 * sizeof *m->next);
    k->fail[m->n] = 0;
    k->call[m->n] = MN_GNONE;
    return m->n++;
}

/* Adds a mark to the tree that begins at state `at`, and the call behind it. */
static bool add_mark(marks *k, uint32_t at, mn_str mark, mn_gexpr *content) {
    for (uint64_t i = 0; i < mark.len; i++) {
        const uint32_t way = at * 256 + (uint8_t)mark.ptr[i];
        if (k->m->next[way] == MN_GNONE)
            k->m->next[way] = state_new(k);
        at = k->m->next[way];
    }
    if (k->call[at] == MN_GNONE) {
        k->call[at] = k->free->n;
        if (!mn_gx_add(k->b, k->free, mn_gx_new(k->b, MN_GX_ALT)))
            return false;
    }
    return mn_gx_add(k->b, k->free->child[k->call[at]], content);
}

/* Completes the tree that begins at root, breadth first: where no mark goes on, the state goes on
 * as that of its longest end. queue: [n] */
static void complete(marks *k, uint32_t root, uint32_t *queue) {
    uint32_t *next = k->m->next;
    uint32_t n = 1;
    queue[0] = root;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t q = queue[i];
        const uint32_t *otherwise = next + (size_t)k->fail[q] * 256;
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t *to = &next[q * 256 + byte];
            const uint32_t end = q ? otherwise[byte] : 0;
            if (*to == MN_GNONE) {
                *to = end;
                continue;
            }
            k->fail[*to] = end;
            queue[n++] = *to;
        }
    }
}

/* Transitions into the end of a mark become those to its call. */
static void enter_calls(marks *k) {
    mn_gmarks *m = k->m;
    for (uint32_t i = 0; i < m->n * 256; i++) {
        uint32_t q = m->next[i];
        while (q && k->call[q] == MN_GNONE)
            q = k->fail[q];
        if (k->call[q] != MN_GNONE)
            m->next[i] = m->n + k->call[q];
    }
}

static bool tags_build(marks *k, mn_gexpr *const *content) {
    uint32_t most = 2; /* states: two roots, and each mark in both trees */
    for (uint32_t i = 0; i < k->t->n; i++)
        most += is_new(k, i) ? 2 * (uint32_t)begin_of(k, i).len : 0;
    mn_arena *arena = &k->b->arena;
    k->m = mn_arena_alloc(arena, 1, sizeof *k->m);
    k->fail = mn_arena_alloc(arena, most, sizeof *k->fail);
    k->call = mn_arena_alloc(arena, most, sizeof *k->call);
    uint32_t *queue = mn_arena_alloc(arena, most, sizeof *queue);
    uint32_t *next = mn_arena_alloc(arena, most * 256ull, sizeof *next);
    if (!k->m || !k->fail || !k->call || !queue || !next)
        return mn_gbuild_memory(k->b);
    k->m->next = next;
    k->m->n = 0;
    state_new(k);
    k->m->first = state_new(k);
    for (uint32_t i = 0; i < k->t->n; i++) {
        const bool first = k->t->tag[i].first;
        if (!add_mark(k, k->m->first, begin_of(k, i), content[i]))
            return false;
        if (!first && !add_mark(k, 0, begin_of(k, i), content[i]))
            return false;
    }
    complete(k, 0, queue);
    complete(k, k->m->first, queue);
    enter_calls(k);
    k->free->marks = k->m;
    return true;
}

/* Calls alone, with what stands between two of them. */
static mn_gexpr *calls_only(mn_gbuild *b, const mn_grammar_tags *t, mn_gexpr *const *content) {
    mn_gexpr *call = mn_gx_new(b, MN_GX_ALT);
    for (uint32_t i = 0; i < t->n; i++) {
        const mn_str begin = t->tag[i].begin;
        mn_gexpr *part[2] = {mn_gx_text(b, begin.ptr, (size_t)begin.len), content[i]};
        if (!mn_gx_add(b, call, mn_gx_join(b, MN_GX_SEQ, part, 2)))
            return NULL;
    }
    mn_gexpr *more[2] = {mn_gx_text(b, t->between.ptr, (size_t)t->between.len), call};
    const uint32_t least = t->least ? t->least - 1 : 0;
    mn_gexpr *part[2] = {call, mn_gx_repeat(b, mn_gx_join(b, MN_GX_SEQ, more, 2), least,
                                            t->most ? t->most - 1 : MN_GNEVER)};
    return mn_gx_repeat(b, mn_gx_join(b, MN_GX_SEQ, part, 2), t->least > 0, 1);
}

static mn_gexpr *text_of(mn_gbuild *b, mn_str text) {
    return mn_gx_text(b, text.ptr, (size_t)text.len);
}

/* Any bytes up to the end of what is thought, and the calls behind it; what may not be written
 * leads to an expression that nothing matches. */
static mn_gexpr *think_first(mn_gbuild *b, const mn_grammar_thinking *h, mn_gexpr *calls) {
    mn_grammar_tag mark[1 + MN_GRAMMAR_NEVER] = {{.begin = h->end}};
    mn_gexpr *content[1 + MN_GRAMMAR_NEVER] = {NULL};
    mn_gexpr *part[2] = {text_of(b, h->next), calls};
    const mn_grammar_tags t = {.tag = mark, .n = 1 + h->n_never, .least = 1, .most = 1};
    content[0] = mn_gx_join(b, MN_GX_SEQ, part, 2);
    for (uint32_t i = 0; i < h->n_never; i++) {
        mark[1 + i].begin = h->never[i];
        content[1 + i] = mn_gx_new(b, MN_GX_ALT);
    }
    return mn_gx_tags(b, &t, content);
}

/* Calls alone, or behind what is thought. */
static mn_gexpr *calls_behind(mn_gbuild *b, const mn_grammar_thinking *h, mn_gexpr *calls) {
    const uint32_t rule = h->end.len && calls ? mn_grule_add(b, "calls", calls) : MN_GNONE;
    if (rule == MN_GNONE)
        return calls;
    mn_gexpr *behind = think_first(b, h, mn_gx_ref(b, rule));
    if (!h->begin.len)
        return behind;
    mn_gexpr *part[2] = {text_of(b, h->begin), behind};
    mn_gexpr *way[2] = {mn_gx_ref(b, rule), mn_gx_join(b, MN_GX_SEQ, part, 2)};
    return mn_gx_join(b, MN_GX_ALT, way, 2);
}

mn_gexpr *mn_gx_tags(mn_gbuild *b, const mn_grammar_tags *t, mn_gexpr *const *content) {
    marks k = {.b = b, .t = t};
    if (t->only)
        return calls_behind(b, &t->thinking, calls_only(b, t, content));
    k.free = mn_gx_new(b, MN_GX_FREE);
    if (!k.free || !tags_check(&k))
        return NULL;
    k.free->min = t->least;
    k.free->max = t->most ? t->most : MN_GNEVER;
    return tags_build(&k, content) ? k.free : NULL;
}
