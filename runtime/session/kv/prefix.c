/* prefix.c -- the prefix cache: pages by what is in them, so that a request whose beginning was
 * computed before does not compute it again.
 *
 * Tokens are counted in blocks, the least common multiple of the groups' pages. A node is one block
 * after all blocks before it, found by a keyed 128-bit hash (SipHash, Aumasson and Bernstein 2012;
 * the key is of this session alone, so that nobody can make two prompts collide) of these tokens
 * and the request's salt and adapter: equal keys and values follow from equal tokens. It names the
 * pages of each group; of a group with a window it may have none, which does no harm where the next
 * row does not see that block.
 * The node does not hold its pages: pool.c keeps those that no sequence holds and calls
 * mn_prefix_evict when it needs the room. All of it belongs to one engine. */
#include "session/kv/pool.h"
#include <string.h>
#include <sys/random.h>

enum {
    MAX_BLOCK = 4096,
    OF_STATES = 64,   /* of a model without keys and values */
    WORTH_PARTS = 256 /* positions that a state where texts part saves at least */
};

/* ---- life ------------------------------------------------------------------------------------ */
static uint64_t common_multiple(uint64_t a, uint64_t b) {
    uint64_t x = a;
    uint64_t y = b;
    while (y) {
        const uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* Sizes, from the groups' pages; false: there is nothing to share. */
static bool prefix_measure(mn_kv *kv) {
    mn_prefix *x = &kv->prefix;
    uint64_t block = 1;
    if (kv->n_groups == 1 && mn_group_is_state(kv, 0))
        block = OF_STATES;
    for (uint32_t i = 0; i < kv->n_groups && block <= MAX_BLOCK; i++)
        if (!mn_group_is_state(kv, i))
            block = common_multiple(block, kv->layout[i].page_tokens);
    if (!kv->n_groups || block > MAX_BLOCK)
        return false;
    x->block = (uint32_t)block;
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        const uint32_t n = mn_prefix_pages(kv, i);
        x->at[i] = x->row;
        x->row += n;
        x->n_nodes += kv->layout[i].n_total / n;
    }
    x->n_nodes += mn_host_room(kv);
    return true;
}

/* No node is known: all are free. */
static void link_free(mn_prefix *x) {
    const size_t n_pages = (size_t)x->n_nodes * x->row;
    memset(x->heads, 0xff, x->n_heads * sizeof *x->heads);
    memset(x->pages, 0xff, n_pages * sizeof *x->pages);
    for (uint32_t i = x->n_nodes; i-- > 0;) {
        x->nodes[i].next = x->free;
        x->free = (int32_t)i;
    }
}

mn_status mn_prefix_create(mn_kv *kv, mn_error *err) {
    mn_prefix *x = &kv->prefix;
    *x = (mn_prefix){.free = -1};
    if (kv->no_cache || !prefix_measure(kv))
        return MN_OK;
    while (x->n_heads < x->n_nodes)
        x->n_heads = x->n_heads ? 2 * x->n_heads : 64;
    x->nodes = mn_calloc(x->n_nodes + 1ull, sizeof *x->nodes);
    x->pages = mn_alloc((x->n_nodes + 1ull) * x->row, sizeof *x->pages);
    x->heads = mn_alloc(x->n_heads + 1ull, sizeof *x->heads);
    x->path = mn_alloc(kv->n_ctx / x->block + 1ull, sizeof *x->path);
    if (kv->state_group >= 0)
        x->seen = mn_calloc(MN_PREFIX_SEEN, sizeof *x->seen);
    const bool sees = x->seen || kv->state_group < 0;
    if (!x->nodes || !x->pages || !x->heads || !x->path || !sees)
        return mn_fail_memory(err, x->n_nodes * (sizeof *x->nodes + 4ull * x->row));
    link_free(x);
    if (getrandom(x->key, sizeof x->key, 0) != (ssize_t)sizeof x->key)
        x->key[0] = mn_now_ns();
    return MN_OK;
}

void mn_prefix_free(mn_kv *kv) {
    mn_prefix *x = &kv->prefix;
    mn_free(x->nodes);
    mn_free(x->pages);
    mn_free(x->heads);
    mn_free(x->path);
    mn_free(x->seen);
    *x = (mn_prefix){.free = -1};
}

/* ---- nodes ----------------------------------------------------------------------------------- */
void mn_prefix_hash(const mn_prefix *x, const int32_t *tokens, uint32_t b, uint64_t h[2]) {
    const size_t from = (size_t)b * x->block;
    const size_t bytes = x->block * sizeof *tokens;
    mn_hash_keyed(x->key, h, tokens + from, bytes, h);
}

/* In front of the first block. */
static void hash_begin(const mn_kv_slot *q, uint64_t h[2]) {
    h[0] = q->salt;
    h[1] = q->adapter;
}

static int32_t *head_of(const mn_prefix *x, const uint64_t h[2]) {
    return &x->heads[h[0] & (x->n_heads - 1)];
}

int32_t mn_prefix_find(const mn_prefix *x, const uint64_t h[2]) {
    int32_t i = *head_of(x, h);
    while (i >= 0 && memcmp(x->nodes[i].hash, h, sizeof x->nodes[i].hash))
        i = x->nodes[i].next;
    return i;
}

/* -1 = all nodes are in use. */
static int32_t prefix_insert(mn_prefix *x, const uint64_t h[2]) {
    const int32_t i = x->free;
    if (i < 0)
        return -1;
    x->free = x->nodes[i].next;
    int32_t *head = head_of(x, h);
    x->nodes[i] = (mn_prefix_node){.hash = {h[0], h[1]}, .next = *head, .host = -1};
    *head = i;
    return i;
}

static void drop_node(mn_prefix *x, int32_t node) {
    int32_t *at = head_of(x, x->nodes[node].hash);
    while (*at != node)
        at = &x->nodes[*at].next;
    *at = x->nodes[node].next;
    x->nodes[node].next = x->free;
    x->free = node;
}

/* Whether a row behind a block sees what the group has of it and of all before it. */
static bool needs_every_block(const mn_kv *kv, uint32_t group) {
    return !mn_group_is_state(kv, group) && !kv->layout[group].window;
}

/* Whether the node has its state in host memory. */
static bool is_in_host(const mn_kv *kv, int32_t node, uint32_t group) {
    return mn_group_is_state(kv, group) && kv->prefix.nodes[node].host >= 0;
}

/* Whether the node (-1: none) names pages of the group. */
static bool names_group(const mn_kv *kv, int32_t node, uint32_t group) {
    return node >= 0 &&
           (mn_prefix_pages_of(kv, node, group)[0] >= 0 || is_in_host(kv, node, group));
}

/* The node no longer names the group's pages. */
static void forget_group(mn_kv *kv, int32_t node, uint32_t group) {
    int32_t *pages = mn_prefix_pages_of(kv, node, group);
    if (!names_group(kv, node, group))
        return;
    if (is_in_host(kv, node, group))
        mn_host_forget(kv, node);
    for (uint32_t k = 0; k < mn_prefix_pages(kv, group) && pages[k] >= 0; k++) {
        mn_page_forget(kv, group, pages[k]);
        pages[k] = -1;
    }
    kv->prefix.nodes[node].n_groups--;
}

void mn_prefix_evict(mn_kv *kv, uint32_t group, int32_t page) {
    mn_prefix *x = &kv->prefix;
    const int32_t node = kv->pools[group].info[page].node;
    const bool sees_all = needs_every_block(kv, group);
    forget_group(kv, node, group);
    /* without the pages of a group that sees all positions the block is of no use */
    for (uint32_t i = 0; sees_all && i < kv->n_groups; i++)
        forget_group(kv, node, i);
    if (!x->nodes[node].n_groups)
        drop_node(x, node);
}

void mn_prefix_lose_state(mn_kv *kv, int32_t node) {
    forget_group(kv, node, (uint32_t)kv->state_group);
    if (!kv->prefix.nodes[node].n_groups)
        drop_node(&kv->prefix, node);
}

/* ---- what sequences have computed ------------------------------------------------------------ */
/* The sequence's state behind the block becomes known, if it holds it. */
static void add_state(mn_kv *kv, uint32_t slot, uint32_t block, int32_t node) {
    const uint32_t group = (uint32_t)kv->state_group;
    const mn_kv_state *s = mn_state_at(kv, slot, (block + 1) * kv->prefix.block);
    mn_page_info *info = kv->pools[group].info;
    int32_t *pages = mn_prefix_pages_of(kv, node, group);
    if (pages[0] >= 0 || !s || info[s->page].node >= 0)
        return;
    forget_group(kv, node, group); /* the same in host memory */
    pages[0] = s->page;
    info[s->page].node = node;
    mn_state_used(kv, s->page, s->position);
    kv->prefix.nodes[node].n_groups++;
}

/* The sequence's pages of the group in the block become known, if it has them all and nobody else's
 * are known. */
static void add_group(mn_kv *kv, uint32_t slot, uint32_t group, uint32_t block, int32_t node) {
    const mn_entries *e = mn_tables_entries(kv, group, slot);
    mn_page_info *info = kv->pools[group].info;
    const uint32_t n = mn_prefix_pages(kv, group);
    if (mn_group_is_state(kv, group)) {
        add_state(kv, slot, block, node);
        return;
    }
    const int32_t *row = mn_tables_row(kv, group, slot) + (size_t)block * n;
    int32_t *pages = mn_prefix_pages_of(kv, node, group);
    if (pages[0] >= 0 || e->lo > block * n || e->hi < (block + 1) * n)
        return;
    for (uint32_t k = 0; k < n; k++)
        if (info[row[k]].node >= 0)
            return;
    for (uint32_t k = 0; k < n; k++) {
        pages[k] = row[k];
        info[row[k]].node = node;
    }
    kv->prefix.nodes[node].n_groups++;
}

void mn_prefix_add(mn_kv *kv, uint32_t slot, mn_memory_text text) {
    mn_kv_slot *q = &kv->slots[slot];
    mn_prefix *x = &kv->prefix;
    const uint32_t n = MN_MIN(text.n_stored, text.n_tokens); /* what is stored, and known */
    if (!x->block || x->closed || !q->shares)
        return;
    for (; (q->n_blocks + 1) * x->block <= n; q->n_blocks++) {
        mn_prefix_hash(x, text.tokens, q->n_blocks, q->hash);
        if (x->seen)
            x->seen[q->hash[0] % MN_PREFIX_SEEN] = q->hash[1];
        int32_t node = mn_prefix_find(x, q->hash);
        if (node < 0)
            node = prefix_insert(x, q->hash);
        for (uint32_t i = 0; i < kv->n_groups && node >= 0; i++)
            add_group(kv, slot, i, q->n_blocks, node);
        if (node >= 0 && !x->nodes[node].n_groups)
            drop_node(x, node);
        else if (node >= 0)
            mn_files_note(kv, q->hash);
    }
}

/* ---- what requests can use again ------------------------------------------------------------- */
/* Whether the `run` last blocks before `block`, which the group has, are all that a row behind them
 * sees of it. */
static bool reaches(const mn_kv *kv, uint32_t group, uint32_t block, uint32_t run) {
    const uint32_t size = kv->prefix.block;
    if (mn_group_is_state(kv, group))
        return run > 0;
    return mn_pages_first_seen(kv, group, block * size) / size + run >= block;
}

/* How many blocks of the tokens are known, as many as can be used; path: their nodes. host: with
 * states that are in host memory. */
static uint32_t prefix_look_up(mn_kv *kv, const int32_t *tokens, uint32_t n, const mn_kv_slot *q,
                               bool host) {
    mn_prefix *x = &kv->prefix;
    uint32_t run[MN_MAX_KV_GROUP] = {0}; /* blocks up to here that the group has */
    uint32_t best = 0;
    uint64_t h[2];
    hash_begin(q, h);
    for (uint32_t b = 0; (b + 1) * x->block <= n; b++) {
        bool usable = true;
        mn_prefix_hash(x, tokens, b, h);
        x->path[b] = mn_prefix_find(x, h);
        for (uint32_t i = 0; i < kv->n_groups; i++) {
            const bool has =
                names_group(kv, x->path[b], i) && (host || !is_in_host(kv, x->path[b], i));
            run[i] = has ? run[i] + 1 : 0;
            usable = usable && reaches(kv, i, b + 1, run[i]);
            if (!has && needs_every_block(kv, i))
                return best;
        }
        if (usable)
            best = b + 1;
    }
    return best;
}

/* The slot begins behind n_blocks with the state that the path names there. The states that all
 * texts keep are used, too: a text that parts from this one before its end begins with them. */
static void take_state(mn_kv *kv, uint32_t slot, uint32_t group, uint32_t n_blocks) {
    const mn_prefix *x = &kv->prefix;
    const uint32_t every = mn_state_every(kv) / x->block;
    for (uint32_t b = every; b < n_blocks; b += every)
        if (names_group(kv, x->path[b - 1], group) && !is_in_host(kv, x->path[b - 1], group))
            mn_state_used(kv, mn_prefix_pages_of(kv, x->path[b - 1], group)[0], b * x->block);
    if (!n_blocks)
        return;
    const int32_t page = mn_prefix_pages_of(kv, x->path[n_blocks - 1], group)[0];
    mn_state_used(kv, page, n_blocks * x->block);
    mn_state_begin(kv, slot, n_blocks * x->block, page);
}

/* The group's pages of the blocks on the path, from the first that the next row sees, become the
 * sequence's, which has none. */
static void take_group(mn_kv *kv, uint32_t slot, uint32_t group, uint32_t n_blocks) {
    const mn_prefix *x = &kv->prefix;
    const uint32_t n = mn_prefix_pages(kv, group);
    if (mn_group_is_state(kv, group)) {
        take_state(kv, slot, group, n_blocks);
        return;
    }
    const uint32_t lo = mn_pages_first(kv, group, n_blocks * x->block);
    const uint32_t hi = n_blocks * n;
    int32_t *row = mn_tables_row(kv, group, slot);
    for (uint32_t i = lo; i < hi; i++) {
        row[i] = mn_prefix_pages_of(kv, x->path[i / n], group)[i % n];
        mn_page_hold(kv, group, row[i]);
    }
    *mn_tables_entries(kv, group, slot) = (mn_entries){lo, hi};
    mn_tables_changed(kv, group, slot, lo, hi);
}

void mn_kv_begin(mn_kv *kv, uint32_t slot, bool shares, uint64_t salt, uint64_t adapter) {
    mn_kv_slot *q = &kv->slots[slot];
    q->shares = shares;
    q->salt = salt;
    q->n_text = 0;
    q->adapter = adapter;
    mn_kv_forget(kv, slot);
}

void mn_kv_forget(mn_kv *kv, uint32_t slot) {
    mn_kv_slot *q = &kv->slots[slot];
    mn_files_load_end(kv, slot);
    memset(q->pages, 0, sizeof q->pages);
    q->has_text = false;
    mn_state_forget(kv, slot);
    q->n_blocks = 0;
    hash_begin(q, q->hash);
}

/* A text that others share farther than to the state that is left of them: it keeps one where they
 * part, if that saves the next one enough. */
static void note_parting(mn_kv *kv, uint32_t slot, mn_memory_text text) {
    const mn_prefix *x = &kv->prefix;
    mn_kv_slot *q = &kv->slots[slot];
    uint64_t h[2] = {q->hash[0], q->hash[1]};
    uint32_t b = q->n_blocks;
    q->parts = 0;
    for (; (b + 1) * x->block < text.n_tokens; b++) {
        mn_prefix_hash(x, text.tokens, b, h);
        if (x->seen[h[0] % MN_PREFIX_SEEN] != h[1])
            break;
    }
    if ((b - q->n_blocks) * x->block >= WORTH_PARTS)
        q->parts = b * x->block;
}

uint32_t mn_prefix_take(mn_kv *kv, uint32_t slot, mn_memory_text text) {
    mn_kv_slot *q = &kv->slots[slot];
    mn_prefix *x = &kv->prefix;
    if (!x->block || !q->shares)
        return 0;
    uint32_t n_blocks = prefix_look_up(kv, text.tokens, text.n_tokens - 1, q, true);
    if (n_blocks && !mn_host_bring_back(kv, slot, x->path[n_blocks - 1]))
        n_blocks = prefix_look_up(kv, text.tokens, text.n_tokens - 1, q, false);
    for (uint32_t i = 0; i < kv->n_groups; i++)
        take_group(kv, slot, i, n_blocks);
    for (; q->n_blocks < n_blocks; q->n_blocks++)
        mn_prefix_hash(x, text.tokens, q->n_blocks, q->hash);
    if (x->seen)
        note_parting(kv, slot, text);
    return n_blocks * x->block;
}

/* Whether the node has the pages of all groups. */
static bool node_is_whole(const mn_kv *kv, int32_t node) {
    return node >= 0 && kv->prefix.nodes[node].n_groups == kv->n_groups;
}

/* Whether the sequence has pages for the blocks behind it and for nothing else yet. */
static bool ends_with_block(const mn_kv *kv, const mn_kv_slot *q, uint32_t n_stored) {
    for (uint32_t i = 0; i < kv->n_groups; i++)
        if (!mn_group_is_state(kv, i) && q->pages[i].hi != q->n_blocks * mn_prefix_pages(kv, i))
            return false;
    return n_stored == q->n_blocks * kv->prefix.block;
}

/* The group's pages of one block more, which another sequence has computed meanwhile. */
static void append_group(mn_kv *kv, uint32_t slot, uint32_t group, int32_t node) {
    const int32_t *pages = mn_prefix_pages_of(kv, node, group);
    if (mn_group_is_state(kv, group)) {
        mn_state_cut(kv, slot, 0);
        mn_state_begin(kv, slot, (kv->slots[slot].n_blocks + 1) * kv->prefix.block, pages[0]);
        return;
    }
    const uint32_t n = mn_prefix_pages(kv, group);
    mn_entries *e = mn_tables_entries(kv, group, slot);
    int32_t *row = mn_tables_row(kv, group, slot) + e->hi;
    for (uint32_t k = 0; k < n; k++) {
        row[k] = pages[k];
        mn_page_hold(kv, group, pages[k]);
    }
    mn_tables_changed(kv, group, slot, e->hi, e->hi + n);
    e->hi += n;
}

uint32_t mn_prefix_continue(mn_kv *kv, uint32_t slot, mn_memory_text text) {
    mn_kv_slot *q = &kv->slots[slot];
    mn_prefix *x = &kv->prefix;
    uint32_t at = text.n_stored;
    if (!x->block || !q->shares)
        return 0;
    mn_prefix_add(kv, slot, text);
    if (x->seen && !at && !mn_pages_any(kv, slot)) /* blocks between states are of no use alone */
        at = mn_prefix_take(kv, slot, text);
    while (ends_with_block(kv, q, at) && at + x->block < text.n_tokens) {
        uint64_t h[2] = {q->hash[0], q->hash[1]};
        mn_prefix_hash(x, text.tokens, q->n_blocks, h);
        const int32_t node = mn_prefix_find(x, h);
        if (!node_is_whole(kv, node) || !mn_host_bring_back(kv, slot, node))
            break;
        for (uint32_t i = 0; i < kv->n_groups; i++)
            append_group(kv, slot, i, node);
        memcpy(q->hash, h, sizeof h);
        q->n_blocks++;
        at += x->block;
    }
    x->n_hits += at - text.n_stored;
    return at - text.n_stored;
}
