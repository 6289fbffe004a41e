/* units.c -- the lowering pass. Anchors are taken from the last node to the first; each absorbs
 * what its pattern finds, as long as nothing between the unit's nodes needs what it makes, for a
 * unit runs in the place of its last node. The result is the caller's array; scratch lives for one
 * call. */
#include "units.h"
#include <stdio.h>

/* ---- uses ------------------------------------------------------------------------------------ */
static void count_reads(const mn_graph *g, uint32_t i, mnp_use *uses) {
    const mn_node *n = mnp_node(g, i);
    for (uint32_t j = 0; j < n->n_in; j++) {
        const int32_t t = mnp_in(g, n, j);
        if (t < 0)
            continue;
        uses[t].reads++;
        uses[t].reader = (int32_t)i;
        const uint32_t root = mnp_root(g, (uint32_t)t);
        if (root == (uint32_t)t)
            continue;
        uses[root].reads += 2; /* never private */
        uses[root].reader = (int32_t)i;
    }
}

void mnp_count_uses(const mn_graph *g, uint32_t lo, uint32_t hi, mnp_use *uses) {
    for (uint32_t t = 0; t < g->n_tensors; t++) {
        uses[t].maker = uses[t].reader = -1;
        uses[t].reads = 0;
        uses[t].crosses = false;
    }
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const mn_node *n = mnp_node(g, i);
        if (i >= lo && i < hi) {
            count_reads(g, i, uses);
            for (uint32_t j = 0; j < n->n_out; j++) {
                const int32_t t = mnp_out(g, n, j);
                if (t >= 0)
                    uses[mnp_root(g, (uint32_t)t)].maker = (int32_t)i;
            }
            continue;
        }
        for (uint32_t j = 0; j < n->n_in; j++) {
            const int32_t t = mnp_in(g, n, j);
            if (t < 0)
                continue;
            uses[t].crosses = true;
            uses[mnp_root(g, (uint32_t)t)].crosses = true;
        }
    }
}

/* Is the tensor read once, in the segment, by no view and not by the caller? Then it need not be
 * stored. */
bool mnp_is_private(const mnp_lowering *l, int32_t t) {
    if (t < 0)
        return false;
    if (l->uses[t].reads != 1)
        return false;
    if (l->uses[t].crosses)
        return false;
    const mn_tensor *x = mnp_tensor(l->g, (uint32_t)t);
    return x->role == MN_ROLE_INTERIOR && x->alias_of < 0;
}

/* ---- one unit -------------------------------------------------------------------------------- */
typedef struct {
    const mnp_lowering *l;
    const mn_host *log;
    int32_t *owner; /* [hi - lo] anchor of the unit that has the node, -1 = free */
} pass;

/* Does the unit run the node? One that is only located runs by itself. */
static bool is_member(const mnp_unit *u, uint32_t node) {
    if (node == u->node)
        return true;
    for (uint32_t i = 0; i < u->pattern->n_parts; i++) {
        const bool located = u->pattern->parts[i].flags & MNP_LOCATE;
        if (u->part[i] == (int32_t)node && !located)
            return true;
    }
    return false;
}

/* Whether both touch one STATE tensor and one of them writes it. */
static bool share_state(const mn_graph *g, uint32_t a, uint32_t b) {
    const mn_node *x = mnp_node(g, a);
    const mn_node *y = mnp_node(g, b);
    if (!mnp_changes_state(x->op) && !mnp_changes_state(y->op))
        return false;
    for (uint32_t i = 0; i < x->n_in; i++) {
        const int32_t t = mnp_in(g, x, i);
        if (t < 0)
            continue;
        if (mnp_tensor(g, (uint32_t)t)->role != MN_ROLE_STATE)
            continue;
        for (uint32_t j = 0; j < y->n_in; j++)
            if (mnp_in(g, y, j) == t)
                return true;
    }
    return false;
}

/* Whether `node`, which is no member, must see what a member before it has done. */
static bool needs(const mnp_lowering *l, const mnp_unit *u, uint32_t first, uint32_t node) {
    const mn_node *n = mnp_node(l->g, node);
    for (uint32_t j = 0; j < n->n_in; j++) {
        const int32_t t = mnp_in(l->g, n, j);
        if (t < 0)
            continue;
        const uint32_t root = mnp_root(l->g, (uint32_t)t);
        const int32_t maker = l->uses[root].maker;
        if (maker >= 0 && is_member(u, (uint32_t)maker))
            return true;
    }
    for (uint32_t m = first; m < node; m++)
        if (is_member(u, m) && share_state(l->g, m, node))
            return true;
    return false;
}

/* Sets u->last. -1: all nodes of the unit may run in the place of the last; else a node between
 * that must run before it and needs one of them. */
static int32_t blocker(const mnp_lowering *l, mnp_unit *u) {
    uint32_t first = u->node;
    u->last = u->node;
    for (uint32_t i = 0; i < u->pattern->n_parts; i++) {
        if (u->part[i] < 0)
            continue;
        if (u->pattern->parts[i].flags & MNP_LOCATE)
            continue;
        const uint32_t node = (uint32_t)u->part[i];
        first = node < first ? node : first;
        u->last = node > u->last ? node : u->last;
    }
    for (uint32_t i = first + 1; i < u->last; i++)
        if (!is_member(u, i) && needs(l, u, first, i))
            return (int32_t)i;
    return -1;
}

/* The ATTENTION that reads what a KV_STORE stores; -1 = there is none in the segment. */
static int32_t attender(const mnp_lowering *l, uint32_t store) {
    const mn_graph *g = l->g;
    const mn_node *s = mnp_node(g, store);
    const int32_t kv = mnp_in(g, s, MN_KV_STORE_KV);
    const int32_t pages = mnp_in(g, s, MN_KV_STORE_PAGES);
    const int64_t layer = mnp_attr(g, s, MN_KV_STORE_ATTR_KV_LAYER);
    const int64_t group = mnp_attr(g, s, MN_KV_STORE_ATTR_GROUP);
    for (uint32_t i = l->lo; i < l->hi; i++) {
        const mn_node *a = mnp_node(g, i);
        if (a->op != MN_OP_ATTENTION)
            continue;
        const bool same_cache = mnp_in(g, a, MN_ATTENTION_KV) == kv;
        const bool same_pages = mnp_in(g, a, MN_ATTENTION_PAGES) == pages;
        const bool same_layer = mnp_attr(g, a, MN_ATTENTION_ATTR_KV_LAYER) == layer;
        const bool same_group = mnp_attr(g, a, MN_ATTENTION_ATTR_GROUP) == group;
        if (same_cache && same_pages && same_layer && same_group)
            return (int32_t)i;
    }
    return -1;
}

/* The node that the part's edge leads to, if it is of the part's op; -1 = none. */
static int32_t units_follow(const mnp_lowering *l, const mnp_part *p, uint32_t from) {
    const mn_node *n = mnp_node(l->g, from);
    int32_t node = -1;
    if (p->edge == MNP_ATTENDER) {
        node = attender(l, from);
    } else if (p->edge == MNP_MAKER) {
        const int32_t t = mnp_in(l->g, n, p->operand);
        if (t < 0)
            node = -1;
        else
            node = l->uses[t].maker;
    } else {
        const int32_t t = mnp_out(l->g, n, 0);
        if (t < 0)
            node = -1;
        else
            node = l->uses[t].reader;
    }
    if (node < 0)
        return -1;
    if (mnp_node(l->g, (uint32_t)node)->op == p->op)
        return node;
    return -1;
}

/* Every output is private, and node reads them all. */
static bool reads_all(const mnp_lowering *l, uint32_t from, uint32_t node) {
    const mn_node *n = mnp_node(l->g, from);
    for (uint32_t i = 0; i < n->n_out; i++) {
        const int32_t t = mnp_out(l->g, n, i);
        if (!mnp_is_private(l, t))
            return false;
        if (l->uses[t].reader != (int32_t)node)
            return false;
    }
    return true;
}

static void units_tell(const pass *p, const mnp_unit *u, uint32_t part, int32_t node,
                       const char *why) {
    char line[256];
    if (!p->log)
        return;
    if (!MN_HAS(mn_host, p->log, log))
        return;
    const int n = snprintf(line, sizeof line, "%s of node %u: %s of node %d is not fused: %s",
                           u->pattern->name, u->node, u->pattern->parts[part].name, node, why);
    const mn_str text = {line, n < (int)sizeof line ? (uint64_t)n : sizeof line - 1};
    p->log->log(p->log->self, MN_LOG_DEBUG, text);
}

/* Why the node that was found for part i is none; NULL = it is one, and part[i] is set. */
static const char *units_try_part(const pass *p, mnp_unit *u, uint32_t i, uint32_t from,
                                  uint32_t node) {
    const mnp_lowering *l = p->l;
    const mnp_part *part = &u->pattern->parts[i];
    if (part->flags & MNP_LOCATE) {
        u->part[i] = (int32_t)node;
        return NULL;
    }
    const bool apart = part->flags & MNP_APART;
    const bool owned = p->owner[node - l->lo] >= 0;
    if (is_member(u, node) || (owned && !apart))
        return "another unit has it";
    const int32_t operand = mnp_in(l->g, mnp_node(l->g, from), part->operand);
    if ((part->flags & MNP_PRIVATE) && !mnp_is_private(l, operand))
        return "its output is read elsewhere, too";
    if (part->edge == MNP_READER && !reads_all(l, from, node))
        return "what it reads is read elsewhere, too";
    const char *why = NULL;
    if (part->refuse)
        why = part->refuse(l, u, node);
    if (why)
        return why;
    const uint32_t last = u->last;
    u->part[i] = (int32_t)node;
    if (blocker(l, u) < 0)
        return NULL;
    u->part[i] = -1;
    u->last = last;
    return "a node between them needs what the unit makes";
}

/* Gives up parts that lack another one, until nothing changes. */
static void units_give_up(const pass *p, mnp_unit *u) {
    const mnp_pattern *pattern = u->pattern;
    for (bool again = true; again;) {
        uint32_t have = 0;
        again = false;
        for (uint32_t i = 0; i < pattern->n_parts; i++)
            if (u->part[i] >= 0)
                have |= 1u << i;
        for (uint32_t i = 0; i < pattern->n_parts; i++) {
            const mnp_part *x = &pattern->parts[i];
            const uint32_t want = x->with | (x->of >= 0 ? 1u << x->of : 0);
            if (u->part[i] < 0 || (have & want) == want)
                continue;
            units_tell(p, u, i, u->part[i], "another part of the pattern is missing");
            u->part[i] = -1;
            again = true;
        }
    }
    if (blocker(p->l, u) >= 0)
        for (uint32_t i = 0; i < pattern->n_parts; i++)
            u->part[i] = -1;
}

/* The unit of one anchor: each part that can be had, in the order of the pattern. */
static void units_build(const pass *p, uint32_t anchor, const mnp_pattern *pattern, mnp_unit *u) {
    u->pattern = pattern;
    u->node = u->last = anchor;
    for (uint32_t i = 0; i < MNP_MAX_PARTS; i++)
        u->part[i] = -1;
    for (uint32_t i = 0; i < pattern->n_parts; i++) {
        const mnp_part *part = &pattern->parts[i];
        int32_t from;
        if (part->of < 0)
            from = (int32_t)anchor;
        else
            from = u->part[part->of];
        int32_t node = -1;
        if (from >= 0)
            node = units_follow(p->l, part, (uint32_t)from);
        if (node < 0)
            continue;
        const char *why = units_try_part(p, u, i, (uint32_t)from, (uint32_t)node);
        if (why)
            units_tell(p, u, i, node, why);
    }
    units_give_up(p, u);
    /* what stays apart does not move the unit */
    u->last = u->node;
    p->owner[anchor - p->l->lo] = (int32_t)anchor;
    for (uint32_t i = 0; i < pattern->n_parts; i++) {
        const uint32_t flags = pattern->parts[i].flags;
        if (u->part[i] < 0)
            continue;
        if (flags & (MNP_LOCATE | MNP_APART))
            continue;
        const uint32_t node = (uint32_t)u->part[i];
        p->owner[node - p->l->lo] = (int32_t)anchor;
        if (node > u->last)
            u->last = node;
    }
}

/* ---- the segment ----------------------------------------------------------------------------- */
static const mnp_pattern *pattern_of(const mnp_pattern *const *patterns, uint32_t n, uint32_t op) {
    for (uint32_t i = 0; i < n; i++)
        if (patterns[i]->op == op)
            return patterns[i];
    return NULL;
}

/* units: room for one per node, filled in the order in which they run. Later anchors build
 * first; nodes that no unit has stand alone. */
mn_status mnp_lower(const mn_host *h, const mnp_lowering *l, const mnp_pattern *const *patterns,
                    uint32_t n_patterns, const mn_host *log, mnp_unit *units, uint32_t *n_units,
                    mn_error *err) {
    const uint32_t n = l->hi - l->lo;
    const uint64_t bytes = (uint64_t)n * (sizeof(int32_t) + sizeof(mnp_unit));
    mnp_unit *built = (mnp_unit *)mnp_new(h, bytes); /* by anchor */
    if (!built)
        return mnp_fail_memory(err, bytes, "fused units");
    const pass p = {l, log, (int32_t *)(void *)(built + n)};
    for (uint32_t i = 0; i < n; i++)
        p.owner[i] = -1;
    for (uint32_t i = n; i-- > 0;) {
        const mnp_pattern *pattern =
            pattern_of(patterns, n_patterns, mnp_node(l->g, l->lo + i)->op);
        if (pattern && p.owner[i] < 0)
            units_build(&p, l->lo + i, pattern, &built[i]);
    }
    *n_units = 0;
    for (uint32_t i = 0; i < n; i++) {
        const int32_t anchor = p.owner[i];
        if (anchor < 0) {
            mnp_unit *u = &units[(*n_units)++];
            u->pattern = NULL;
            u->node = u->last = l->lo + i;
            for (uint32_t j = 0; j < MNP_MAX_PARTS; j++)
                u->part[j] = -1;
        } else if (built[(uint32_t)anchor - l->lo].last == l->lo + i)
            units[(*n_units)++] = built[(uint32_t)anchor - l->lo];
    }
    mnp_delete(h, built);
    return MN_OK;
}
