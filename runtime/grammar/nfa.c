/* nfa.c -- expressions to an automaton: nodes that read a byte, split, call a rule or end one.
 * Nodes are made backwards, from what follows an expression to where it begins. Small rules that
 * call no others are copied to where they are used, so that most grammars need no stack.
 *
 * Then each node learns how much stack it needs until its rule can end. A node that can never end
 * is never entered, which is why whatever is allowed can be completed. */
#include "grammar/grammar_impl.h"
#include <string.h>

enum { INLINE_NODES = 128, NAME_BYTES = 80 };

typedef struct {
    mn_gbuild *b;
    mn_gnfa *a;
    uint32_t *size; /* [n_rules] of rules that are copied; 0 = called */
} building;

static uint32_t node_new(building *m, mn_gnode_kind kind, uint32_t to, uint32_t other) {
    mn_gnfa *a = m->a;
    if (m->b->status)
        return MN_GNONE;
    if (a->n >= MN_GRAMMAR_NODES) {
        mn_gbuild_refuse(m->b, "needs too many states", "states", MN_GRAMMAR_NODES);
        return MN_GNONE;
    }
    if (!mn_gbuild_spend(m->b, 1))
        return MN_GNONE;
    if (!mn_grow((void **)&a->node, &a->cap, a->n + 1u, sizeof *a->node)) {
        mn_gbuild_memory(m->b);
        return MN_GNONE;
    }
    a->node[a->n] = (mn_gnode){.kind = (uint8_t)kind, .to = to, .other = other};
    return a->n++;
}

static uint32_t emit(building *m, const mn_gexpr *x, uint32_t to);

static uint32_t emit_byte(building *m, uint8_t lo, uint8_t hi, uint32_t to) {
    const uint32_t at = node_new(m, MN_GN_BYTES, to, MN_GNONE);
    if (at == MN_GNONE)
        return MN_GNONE;
    m->a->node[at].lo = lo;
    m->a->node[at].hi = hi;
    return at;
}

static uint32_t emit_repeat(building *m, const mn_gexpr *x, uint32_t to) {
    uint32_t at = to;
    uint32_t more = x->max - x->min;
    if (x->max == MN_GNEVER) {
        at = node_new(m, MN_GN_SPLIT, MN_GNONE, to);
        const uint32_t again = emit(m, x->child[0], at);
        if (m->b->status)
            return MN_GNONE;
        m->a->node[at].to = again;
        more = 0;
    }
    for (uint32_t i = 0; i < more && !m->b->status; i++)
        at = node_new(m, MN_GN_SPLIT, emit(m, x->child[0], at), to);
    for (uint32_t i = 0; i < x->min && !m->b->status; i++)
        at = emit(m, x->child[0], at);
    return at;
}

/* Three places before each child: nothing was written yet, something was, `between` was. The child
 * itself is made once. */
static uint32_t emit_list(building *m, const mn_gexpr *x, uint32_t to) {
    uint32_t behind = to;
    uint32_t next = node_new(m, MN_GN_SPLIT, MN_GNONE, MN_GNONE);
    uint32_t none = to;
    bool required = false;
    if (x->tail) {
        behind = node_new(m, MN_GN_SPLIT, MN_GNONE, to);
        next = emit(m, x->tail, behind);
        const uint32_t comma = emit(m, x->between, next);
        none = node_new(m, MN_GN_SPLIT, next, to);
        if (m->b->status)
            return MN_GNONE;
        m->a->node[behind].to = comma;
    }
    for (uint32_t i = x->n; i-- > 0 && !m->b->status;) {
        const mn_gexpr *child = x->child[i];
        const uint32_t entry = emit(m, child, behind);
        required |= !child->optional;
        next = node_new(m, MN_GN_SPLIT, entry, child->optional ? next : MN_GNONE);
        none = node_new(m, MN_GN_SPLIT, entry, child->optional ? none : MN_GNONE);
        if (i)
            behind = node_new(m, MN_GN_SPLIT, emit(m, x->between, next), required ? MN_GNONE : to);
    }
    return none;
}

static uint32_t emit_chain(building *m, const mn_gexpr *x, uint32_t to) {
    uint32_t at = to;
    for (uint32_t i = x->n; i-- > 0 && !m->b->status;) {
        at = emit(m, x->child[i], at);
        if (i >= x->min)
            at = node_new(m, MN_GN_SPLIT, at, to);
    }
    return at;
}

static uint32_t emit_alt(building *m, const mn_gexpr *x, uint32_t to) {
    uint32_t at = MN_GNONE;
    if (!x->n)
        return node_new(m, MN_GN_SPLIT, MN_GNONE, MN_GNONE);
    for (uint32_t i = x->n; i-- > 0 && !m->b->status;) {
        const uint32_t entry = emit(m, x->child[i], to);
        at = at == MN_GNONE ? entry : node_new(m, MN_GN_SPLIT, entry, at);
    }
    return at;
}

/* State q of x: its bytes in runs that lead to the same place. entry: [n] the states' nodes, leave:
 * [x->n] the children's */
static void emit_state(building *m, const mn_gexpr *x, uint32_t q, const uint32_t *entry,
                       const uint32_t *leave) {
    const uint32_t *next = x->marks->next + (size_t)q * 256;
    uint32_t at = MN_GNONE;
    for (int hi = 255; hi >= 0 && !m->b->status;) {
        const uint32_t way = next[hi];
        int lo = hi;
        while (lo > 0 && next[lo - 1] == way)
            lo--;
        const uint32_t to = way < x->marks->n ? entry[way] : leave[way - x->marks->n];
        const uint32_t run = emit_byte(m, (uint8_t)lo, (uint8_t)hi, to);
        at = at == MN_GNONE ? run : node_new(m, MN_GN_SPLIT, run, at);
        hi = lo - 1;
    }
    if (!m->b->status)
        m->a->node[entry[q]].to = at;
}

/* Free text before call number k of x, up to and with that call. after: the node behind it, or
 * MN_GNONE: as many more as come. Returns the node where this begins. */
static uint32_t emit_free_call(building *m, const mn_gexpr *x, uint32_t k, uint32_t after,
                               uint32_t to, uint32_t *entry) {
    const uint32_t n = x->marks->n;
    uint32_t *leave = entry + n;
    const uint32_t end = k < x->min ? MN_GNONE : to;
    for (uint32_t q = 0; q < n; q++)
        entry[q] = node_new(m, MN_GN_SPLIT, MN_GNONE, end);
    for (uint32_t i = 0; i < x->n; i++)
        leave[i] = emit(m, x->child[i], after == MN_GNONE ? entry[0] : after);
    for (uint32_t q = 0; q < n && !m->b->status; q++)
        emit_state(m, x, q, entry, leave);
    return entry[k ? 0 : x->marks->first];
}

static uint32_t emit_free(building *m, const mn_gexpr *x, uint32_t to) {
    uint32_t *entry = mn_alloc(x->marks->n + x->n, sizeof *entry);
    const bool endless = x->max == MN_GNEVER;
    uint32_t at = endless ? MN_GNONE : to;
    if (!entry) {
        mn_gbuild_memory(m->b);
        return MN_GNONE;
    }
    /* Without a limit, what comes behind the last call that must come. */
    if (endless && x->min)
        at = emit_free_call(m, x, x->min, MN_GNONE, to, entry);
    for (uint32_t k = endless ? MN_MAX(x->min, 1u) : x->max; k-- > 0 && !m->b->status;)
        at = emit_free_call(m, x, k, at, to, entry);
    mn_free(entry);
    return at;
}

static uint32_t emit_table(building *m, const mn_gexpr *x, uint32_t to) {
    const mn_gtable *t = x->table;
    uint32_t *entry = mn_alloc(t->n, sizeof *entry);
    if (!entry) {
        mn_gbuild_memory(m->b);
        return MN_GNONE;
    }
    for (uint32_t i = 0; i < t->n; i++)
        entry[i] = node_new(m, MN_GN_SPLIT, MN_GNONE, t->ends[i] ? to : MN_GNONE);
    for (uint32_t i = 0; i < t->n && !m->b->status; i++) {
        uint32_t at = MN_GNONE;
        for (uint32_t r = t->from[i]; r < t->from[i + 1]; r++) {
            const uint32_t run = emit_byte(m, t->run[r].lo, t->run[r].hi, entry[t->run[r].to]);
            at = at == MN_GNONE ? run : node_new(m, MN_GN_SPLIT, run, at);
        }
        if (!m->b->status)
            m->a->node[entry[i]].to = at;
    }
    const uint32_t first = m->b->status ? MN_GNONE : entry[0];
    mn_free(entry);
    return first;
}

/* The node at which x begins, when `to` follows it. MN_GNONE: b->status says why. */
static uint32_t emit(building *m, const mn_gexpr *x, uint32_t to) {
    if (m->b->status)
        return MN_GNONE;
    switch (x->kind) {
    case MN_GX_BYTES:
        return emit_byte(m, x->lo, x->hi, to);
    case MN_GX_TEXT:
        for (uint64_t i = x->text.len; i-- > 0;) {
            const uint8_t byte = (uint8_t)x->text.ptr[i];
            to = emit_byte(m, byte, byte, to);
        }
        return to;
    case MN_GX_SEQ:
        for (uint32_t i = x->n; i-- > 0;)
            to = emit(m, x->child[i], to);
        return to;
    case MN_GX_ALT:
        return emit_alt(m, x, to);
    case MN_GX_REPEAT:
        return emit_repeat(m, x, to);
    case MN_GX_REF:
        if (m->size[x->rule])
            return emit(m, m->b->rule[x->rule].expr, to);
        m->a->calls_root |= !x->rule;
        return node_new(m, MN_GN_CALL, to, x->rule);
    case MN_GX_LIST:
        return emit_list(m, x, to);
    case MN_GX_CHAIN:
        return emit_chain(m, x, to);
    case MN_GX_FREE:
        return emit_free(m, x, to);
    case MN_GX_TABLE:
        return emit_table(m, x, to);
    }
    return MN_GNONE;
}

/* Nodes that x becomes, up to a little more than INLINE_NODES; beyond it where a rule is called
 * that is not always called. */
static uint32_t nfa_size_of(const building *m, const mn_gexpr *x) {
    uint64_t n = 1;
    if (x->kind == MN_GX_TEXT)
        return (uint32_t)MN_MIN(x->text.len + 1, INLINE_NODES + 1u);
    if (x->kind == MN_GX_REF && m->b->rule[x->rule].shared)
        return 1;
    if (x->kind == MN_GX_REF)
        return m->size[x->rule] ? m->size[x->rule] : INLINE_NODES + 1u;
    if (x->kind == MN_GX_LIST || x->kind == MN_GX_FREE)
        return INLINE_NODES + 1u;
    if (x->kind == MN_GX_TABLE)
        n += x->table->n + 2ull * x->table->n_runs;
    for (uint32_t i = 0; i < x->n && n <= INLINE_NODES; i++)
        n += nfa_size_of(m, x->child[i]);
    if (x->kind == MN_GX_REPEAT)
        n *= x->max == MN_GNEVER ? x->min + 1u : MN_MAX(x->max, 1u);
    return (uint32_t)MN_MIN(n, INLINE_NODES + 1u);
}

/* Rules that call none but those already found, so none that is part of itself. */
static void choose_inline(building *m) {
    for (int pass = 0; pass < 4; pass++) {
        for (uint32_t r = m->b->n_rules; r-- > 1;) {
            const mn_grule *rule = &m->b->rule[r];
            if (m->size[r] || rule->shared)
                continue;
            const uint32_t n = nfa_size_of(m, rule->expr);
            m->size[r] = n <= INLINE_NODES ? n : 0;
        }
    }
}

/* ---- what can end, and what begins with itself ----------------------------------------------- */
/* A call whose rule ends where the calling rule ends, too. */
static bool is_last(const mn_gnfa *a, const mn_gnode *n) {
    return a->node[n->to].kind == MN_GN_END;
}

static uint32_t nfa_need_of(const mn_gnfa *a, const mn_gnode *n) {
    if (n->kind == MN_GN_END)
        return 0;
    const uint32_t to = n->to == MN_GNONE ? MN_GNEVER : a->need[n->to];
    if (n->kind == MN_GN_BYTES)
        return to;
    if (n->kind == MN_GN_SPLIT)
        return MN_MIN(to, n->other == MN_GNONE ? MN_GNEVER : a->need[n->other]);
    const uint32_t inside = a->need[a->start[n->other]];
    if (inside == MN_GNEVER || to == MN_GNEVER)
        return MN_GNEVER;
    return is_last(a, n) ? inside : MN_MAX(inside + 1, to);
}

static bool nullable_of(const mn_gnfa *a, const bool *nullable, const mn_gnode *n) {
    if (n->kind == MN_GN_END)
        return true;
    if (n->kind == MN_GN_BYTES)
        return false;
    const bool to = n->to != MN_GNONE && nullable[n->to];
    if (n->kind == MN_GN_CALL)
        return to && nullable[a->start[n->other]];
    return to || (n->other != MN_GNONE && nullable[n->other]);
}

/* The nodes of a rule once; whether anything changed. */
static bool settle_rule(mn_gnfa *a, bool *nullable, uint32_t r) {
    const uint32_t end = r + 1 < a->n_rules ? a->first[r + 1] : a->n;
    bool changed = false;
    for (uint32_t i = a->first[r]; i < end; i++) {
        const uint32_t need = nfa_need_of(a, &a->node[i]);
        const bool null = nullable_of(a, nullable, &a->node[i]);
        changed |= need != a->need[i] || null != nullable[i];
        a->need[i] = need;
        nullable[i] = null;
    }
    return changed;
}

/* One rule after the other until nothing changes. Rules that are called lie behind their callers,
 * or all before them: they are visited last to first and first to last in turn. The number of
 * passes is bounded by the depth of calls, which the budget cuts off. */
static bool nfa_settle(mn_gbuild *b, mn_gnfa *a, bool *nullable) {
    bool changed = true;
    for (uint32_t pass = 0; changed; pass++) {
        if (!mn_gbuild_spend(b, a->n / 2))
            return false;
        changed = false;
        for (uint32_t i = 0; i < a->n_rules; i++)
            changed |= settle_rule(a, nullable, pass % 2 ? i : a->n_rules - 1 - i);
    }
    return true;
}

typedef struct {
    const mn_gnfa *a;
    const bool *nullable;
    uint32_t *seen; /* [n] 1 + the rule from whose start a node was reached */
    uint32_t *list; /* nodes to visit */
    uint8_t *state; /* [n_rules] 0 = new, 1 = on the path, 2 = done */
} leading;

/* The rules that may begin rule r, appended to out; returns how many. */
static uint32_t first_rules(leading *l, uint32_t r, uint32_t *out) {
    uint32_t n = 1;
    uint32_t found = 0;
    l->list[0] = l->a->start[r];
    l->seen[l->list[0]] = r + 1;
    while (n) {
        const mn_gnode *node = &l->a->node[l->list[--n]];
        uint32_t way[2] = {MN_GNONE, MN_GNONE};
        if (node->kind == MN_GN_CALL) {
            out[found++] = node->other;
            way[0] = l->nullable[l->a->start[node->other]] ? node->to : MN_GNONE;
        } else if (node->kind == MN_GN_SPLIT) {
            way[0] = node->to;
            way[1] = node->other;
        }
        for (int i = 0; i < 2; i++) {
            if (way[i] == MN_GNONE || l->seen[way[i]] == r + 1)
                continue;
            l->seen[way[i]] = r + 1;
            l->list[n++] = way[i];
        }
    }
    return found;
}

/* Depth first over "may begin with"; a rule that is met again on the path begins with itself.
 * calls: [n] room for the rules that are still to be visited. Returns such a rule or MN_GNONE. */
static uint32_t begins_with_itself(leading *l, uint32_t *calls) {
    for (uint32_t r = 0; r < l->a->n_rules; r++) {
        uint32_t n = 0;
        if (!l->state[r])
            calls[n++] = r;
        while (n) {
            const uint32_t at = calls[n - 1];
            if (l->state[at]) {
                l->state[at] = 2;
                n--;
                continue;
            }
            l->state[at] = 1;
            const uint32_t found = first_rules(l, at, calls + n);
            uint32_t kept = 0;
            for (uint32_t i = 0; i < found; i++) {
                const uint32_t to = calls[n + i];
                if (l->state[to] == 1)
                    return to;
                if (!l->state[to])
                    calls[n + kept++] = to;
            }
            n += kept;
        }
    }
    return MN_GNONE;
}

static mn_status refuse_left_recursion(mn_gbuild *b, const mn_gnfa *a, const bool *nullable) {
    leading l = {a, nullable, mn_calloc(a->n, 4), mn_alloc(a->n, 4), mn_calloc(a->n_rules, 1)};
    uint32_t *calls = mn_alloc(a->n + (uint64_t)a->n_rules, 4);
    if (!l.seen || !l.list || !l.state || !calls) {
        mn_gbuild_memory(b);
    } else {
        const uint32_t r = begins_with_itself(&l, calls);
        if (r != MN_GNONE)
            b->status = mn_fail(b->err, MN_BAD_INPUT,
                                "%s begins with itself (left recursion); write it so that "
                                "something precedes the recursion",
                                b->rule[r].name);
    }
    mn_free(l.seen);
    mn_free(l.list);
    mn_free(l.state);
    mn_free(calls);
    return b->status;
}

/* need, and that the whole can end. */
static mn_status analyse(mn_gbuild *b, mn_gnfa *a) {
    bool *nullable = mn_calloc(a->n, sizeof *nullable);
    if (!nullable) {
        mn_gbuild_memory(b);
        return b->status;
    }
    if (nfa_settle(b, a, nullable))
        refuse_left_recursion(b, a, nullable);
    mn_free(nullable);
    if (b->status)
        return b->status;
    if (a->need[a->start[0]] == MN_GNEVER)
        b->status = mn_fail(b->err, MN_BAD_INPUT, "the grammar matches no text");
    else if (a->need[a->start[0]] >= MN_GRAMMAR_DEPTH)
        b->status = mn_fail(b->err, MN_UNSUPPORTED, "every text nests deeper than %u levels",
                            MN_GRAMMAR_DEPTH);
    return b->status;
}

static mn_status emit_rules(building *m) {
    mn_gnfa *a = m->a;
    for (uint32_t r = 0; r < a->n_rules && !m->b->status; r++) {
        a->first[r] = a->n;
        m->b->place = m->b->rule[r].name;
        m->b->owner = m->b->rule[r].owner;
        const uint32_t end = node_new(m, MN_GN_END, MN_GNONE, MN_GNONE);
        a->start[r] = m->size[r] ? end : emit(m, m->b->rule[r].expr, end);
    }
    m->b->place = NULL;
    m->b->owner = NULL;
    return m->b->status;
}

/* The names of all rules, cut where they are long. */
static bool copy_names(const mn_gbuild *b, mn_gnfa *a) {
    size_t bytes = b->n_rules * sizeof *a->name;
    for (uint32_t r = 0; r < b->n_rules; r++)
        bytes += strnlen(b->rule[r].name, NAME_BYTES) + 1;
    a->name = mn_alloc(bytes, 1);
    if (!a->name)
        return false;
    char *to = (char *)(a->name + b->n_rules);
    for (uint32_t r = 0; r < b->n_rules; r++) {
        const size_t n = strnlen(b->rule[r].name, NAME_BYTES);
        a->name[r] = memcpy(to, b->rule[r].name, n);
        to[n] = 0;
        to += n + 1;
    }
    return true;
}

const char *mn_gnfa_rule_of(const mn_gnfa *a, uint32_t node) {
    uint32_t lo = 0;
    uint32_t hi = a->n_rules;
    while (hi - lo > 1) {
        const uint32_t middle = lo + (hi - lo) / 2;
        if (a->first[middle] <= node)
            lo = middle;
        else
            hi = middle;
    }
    return a->name[lo];
}

mn_status mn_gnfa_build(mn_gbuild *b, mn_gnfa *out) {
    building m = {b, out, mn_calloc(b->n_rules, sizeof *m.size)};
    *out = (mn_gnfa){.n_rules = b->n_rules};
    out->start = mn_alloc(b->n_rules, sizeof *out->start);
    out->first = mn_alloc(b->n_rules, sizeof *out->first);
    if (!m.size || !out->start || !out->first || !copy_names(b, out)) {
        mn_gbuild_memory(b);
    } else {
        choose_inline(&m);
        emit_rules(&m);
    }
    if (!b->status) {
        out->need = mn_alloc(out->n, sizeof *out->need);
        if (out->need) {
            memset(out->need, 0xff, out->n * sizeof *out->need);
            analyse(b, out);
        } else {
            mn_gbuild_memory(b);
        }
    }
    mn_free(m.size);
    return b->status;
}

void mn_gnfa_free(mn_gnfa *a) {
    mn_free(a->node);
    mn_free(a->need);
    mn_free(a->start);
    mn_free(a->first);
    mn_free(a->name);
}
