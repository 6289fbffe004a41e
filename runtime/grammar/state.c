/* state.c -- states: the place of one sequence in its grammar. A state belongs to its caller and is
 * listed in its grammar, which keeps the sets that its states refer to. */
#include "grammar/grammar_impl.h"
#include <string.h>

static void link_state(mn_grammar_state *s) {
    pthread_mutex_lock(&s->g->list_lock);
    s->after = s->g->states;
    if (s->after)
        s->after->before = s;
    s->g->states = s;
    pthread_mutex_unlock(&s->g->list_lock);
}

void mn_grammar_state_free(mn_grammar_state *s) {
    if (!s)
        return;
    pthread_mutex_lock(&s->g->list_lock);
    if (s->before)
        s->before->after = s->after;
    else
        s->g->states = s->after;
    if (s->after)
        s->after->before = s->before;
    pthread_mutex_unlock(&s->g->list_lock);
    mn_gstack_free(&s->stack);
    mn_free(s);
}

/* Where the text begins. Under the lock; false: out of memory. */
static bool state_begin(mn_grammar_state *s) {
    mn_grammar *g = s->g;
    mn_gclose c = {.g = g, .stack = &s->stack};
    if (g->full)
        mn_gsets_sweep(g);
    g->failed = false;
    const int32_t start = mn_gset_start(g, 0);
    if (start < 0 || !mn_grow((void **)&s->stack.frame, &s->stack.cap_frames, 1, sizeof(mn_gframe)))
        return false;
    s->stack.frame[0] = (mn_gframe){0};
    s->stack.n_frames = 1;
    mn_gclose_begin(&c);
    mn_gclose_add(&c, (uint32_t)start, 0);
    mn_gclose_finish(&c);
    s->complete = c.popped;
    return !g->failed;
}

mn_status mn_grammar_state_create(mn_grammar *g, mn_grammar_state **out, mn_error *err) {
    *out = NULL;
    mn_grammar_state *s = mn_calloc(1, sizeof *s);
    if (!s)
        return mn_fail_memory(err, sizeof *s);
    s->g = g;
    mn_gbudget b = mn_gbudget_of(s);
    pthread_rwlock_wrlock(&g->lock);
    g->budget = &b;
    const bool ok = state_begin(s);
    link_state(s);
    pthread_rwlock_unlock(&g->lock);
    if (!ok) {
        mn_grammar_state_free(s);
        return mn_gbudget_fail(g, &b, err);
    }
    *out = s;
    return MN_OK;
}

mn_status mn_grammar_state_copy(const mn_grammar_state *s, mn_grammar_state **out, mn_error *err) {
    *out = NULL;
    mn_grammar_state *copy = mn_calloc(1, sizeof *copy);
    if (!copy)
        return mn_fail_memory(err, sizeof *copy);
    copy->g = s->g;
    copy->complete = s->complete;
    copy->budget = s->budget;
    pthread_rwlock_rdlock(&s->g->lock);
    const bool ok = mn_gstack_copy(&copy->stack, &s->stack);
    link_state(copy);
    pthread_rwlock_unlock(&s->g->lock);
    if (!ok) {
        mn_grammar_state_free(copy);
        return mn_fail_memory(err, 0);
    }
    *out = copy;
    return MN_OK;
}

/* Keeps the heads from `from` on, and the frames that these stand on. Frames lie behind their
 * parents, so one pass down marks and one pass up moves. to: [n_frames] */
static void keep_heads(mn_gstack *k, uint32_t from, uint32_t *to) {
    const uint32_t n = k->n_heads - from;
    memmove(k->head, k->head + from, n * sizeof *k->head);
    k->n_heads = n;
    memset(to, 0, k->n_frames * sizeof *to);
    for (uint32_t i = 0; i < n; i++)
        to[k->head[i].frame] = 1;
    for (uint32_t i = k->n_frames; i-- > 1;) {
        if (to[i])
            to[k->frame[i].parent] = 1;
    }
    uint32_t kept = 1;
    to[0] = 0;
    for (uint32_t i = 1; i < k->n_frames; i++) {
        if (!to[i])
            continue;
        const mn_gframe f = k->frame[i];
        to[i] = kept;
        k->frame[kept++] = (mn_gframe){f.set, to[f.parent], f.depth};
    }
    k->n_frames = kept;
    for (uint32_t i = 0; i < n; i++)
        k->head[i].frame = to[k->head[i].frame];
}

/* One byte on a stack of its own. 0: not allowed, or g->failed */
static bool state_step(mn_grammar *g, mn_gstack *k, uint8_t byte, bool *complete) {
    mn_gclose c = {.g = g, .stack = k};
    const uint32_t from = k->n_heads;
    const uint32_t n = mn_gstack_step(&c, 0, from, byte);
    *complete = c.popped;
    mn_gspend_node(g, (k->n_frames + n) / 8, 0);
    uint32_t *to = g->failed ? NULL : mn_alloc(k->n_frames, sizeof *to);
    if (!to) {
        g->failed = true;
        return false;
    }
    keep_heads(k, from, to);
    mn_free(to);
    return n || c.popped;
}

/* The usual case, in which nothing has to be copied: one way to read the text, and no rule is
 * called or ends meanwhile. False: the state is what it was, and this is another case. */
static bool accept_within(mn_grammar *g, mn_grammar_state *s, mn_str bytes) {
    mn_gstack *k = &s->stack;
    if (k->n_heads != 1 || !bytes.len)
        return false;
    const uint32_t depth = k->frame[k->head[0].frame].depth;
    uint32_t set = k->head[0].set;
    for (uint64_t i = 0; i < bytes.len; i++) {
        const int32_t next = mn_gset_next(g, g->set[set], (uint8_t)bytes.ptr[i]);
        if (next < 0)
            return false;
        const mn_gset *to = g->set[next];
        if (!to->plain || to->ends || !to->has_bytes || depth + to->need > MN_GRAMMAR_DEPTH)
            return false;
        set = (uint32_t)next;
    }
    k->head[0].set = set;
    s->complete = false;
    return true;
}

/* g: of s, or a view of it. False: the bytes are not allowed, or g->failed. */
static bool state_accept(mn_grammar *g, mn_grammar_state *s, mn_str bytes) {
    mn_gstack k = {0};
    bool complete = s->complete;
    g->failed = false;
    if (accept_within(g, s, bytes))
        return true;
    if (g->budget->over)
        return false;
    g->failed = !mn_gstack_copy(&k, &s->stack);
    bool ok = !g->failed;
    for (uint64_t i = 0; i < bytes.len && ok; i++)
        ok = state_step(g, &k, (uint8_t)bytes.ptr[i], &complete);
    if (!ok || g->failed) {
        mn_gstack_free(&k);
        return false;
    }
    mn_gstack_free(&s->stack);
    s->stack = k;
    s->complete = complete;
    return true;
}

static mn_status accept_alone(mn_grammar_state *s, mn_str bytes, mn_error *err) {
    mn_grammar *g = s->g;
    if (g->full)
        mn_gsets_sweep(g);
    bool ok = state_accept(g, s, bytes);
    if (!ok && g->full && !g->budget->over) { /* once more, with what no state holds freed */
        mn_gsets_sweep(g);
        ok = state_accept(g, s, bytes);
    }
    if (ok)
        return MN_OK;
    if (g->failed || g->full)
        return mn_gbudget_fail(g, g->budget, err);
    return mn_fail(err, MN_BAD_INPUT, "\"%.*s\" is not allowed here by the grammar",
                   MN_STR_ARG(bytes));
}

mn_status mn_grammar_accept_bytes(mn_grammar_state *s, mn_str bytes, mn_error *err) {
    mn_grammar view;
    mn_gbudget b = mn_gbudget_of(s);
    mn_status st = MN_OK;
    pthread_rwlock_rdlock(&s->g->lock);
    const bool done = mn_grammar_view(s->g, &b, &view) && state_accept(&view, s, bytes);
    pthread_rwlock_unlock(&s->g->lock);
    if (!done && b.over) {
        st = mn_gbudget_fail(s->g, &b, err);
    } else if (!done) {
        pthread_rwlock_wrlock(&s->g->lock);
        s->g->budget = &b;
        st = accept_alone(s, bytes, err);
        pthread_rwlock_unlock(&s->g->lock);
    }
    mn_gbudget_charge(s, &b);
    return st;
}

mn_status mn_grammar_accept(mn_grammar_state *s, int32_t token, mn_error *err) {
    const mn_grammar_vocab *v = s->g->vocab;
    if (token < 0 || (uint32_t)token >= v->n_vocab || v->offset[token] == v->offset[token + 1])
        return mn_fail(err, MN_BAD_INPUT, "token %d has no text, so no grammar allows it", token);
    const mn_str bytes = {v->bytes + v->offset[token], v->offset[token + 1] - v->offset[token]};
    return mn_grammar_accept_bytes(s, bytes, err);
}

/* The only byte that may come next, or -1. */
static int only_byte(const mn_grammar *g, const mn_gstack *k) {
    uint64_t first[4] = {0};
    int n = 0;
    int byte = -1;
    for (uint32_t i = 0; i < k->n_heads; i++) {
        for (int w = 0; w < 4; w++)
            first[w] |= g->set[k->head[i].set]->first[w];
    }
    for (int w = 0; w < 4; w++) {
        n += __builtin_popcountll(first[w]);
        if (first[w])
            byte = 64 * w + __builtin_ctzll(first[w]);
    }
    return n == 1 ? byte : -1;
}

static void append_forced(mn_grammar *g, mn_gstack *k, bool complete, mn_text *out) {
    for (uint32_t n = 0; n < MN_GRAMMAR_FORCED && !complete; n++) {
        const int byte = only_byte(g, k);
        if (byte < 0 || !state_step(g, k, (uint8_t)byte, &complete))
            return;
        const char c = (char)byte;
        mn_text_put(out, &c, 1);
    }
}

/* g: of s, or a view of it. False: g->failed. */
static bool state_find_forced(mn_grammar *g, const mn_grammar_state *s, mn_text *out) {
    mn_gstack k = {0};
    g->failed = false;
    if (s->complete || only_byte(g, &s->stack) < 0)
        return true;
    g->failed = !mn_gstack_copy(&k, &s->stack);
    if (!g->failed)
        append_forced(g, &k, s->complete, out);
    mn_gstack_free(&k);
    return !g->failed;
}

mn_status mn_grammar_forced(mn_grammar_state *s, mn_text *out, mn_error *err) {
    mn_grammar view;
    mn_text found = {0};
    mn_gbudget b = mn_gbudget_of(s);
    pthread_rwlock_rdlock(&s->g->lock);
    bool ok = mn_grammar_view(s->g, &b, &view) && state_find_forced(&view, s, &found);
    pthread_rwlock_unlock(&s->g->lock);
    if (!ok && !b.over) {
        found.len = 0;
        pthread_rwlock_wrlock(&s->g->lock);
        s->g->budget = &b;
        ok = state_find_forced(s->g, s, &found);
        pthread_rwlock_unlock(&s->g->lock);
    }
    mn_gbudget_charge(s, &b);
    if (found.len && ok)
        mn_text_put(out, found.ptr, found.len);
    ok = ok && !found.failed && !out->failed;
    mn_text_free(&found);
    return ok ? MN_OK : mn_gbudget_fail(s->g, &b, err);
}

bool mn_grammar_complete(const mn_grammar_state *s) {
    return s->complete;
}
