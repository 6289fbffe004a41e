/* prefix.c -- the prefix cache: pages by what is in them, so that a request whose beginning was
 * computed before does not compute it again.
 *
 * Tokens are counted in blocks, the least common multiple of the groups' pages. A node is one block
 * after all blocks before it, found by a keyed 128-bit hash (SipHash, Aumasson and Bernstein 2012;
 * the key is of this session alone, so that nobody can make two prompts collide) of these tokens
 * and the request's salt: equal keys and values follow from equal tokens. It names the pages of
 * each group; of a group with a window it may have none, which does no harm where the next row does
 * not see that block.
 * The node does not hold its pages: pool.c keeps those that no sequence holds and calls
 * mn_prefix_evict when it needs the room. All of it belongs to one engine. */
#include "session/session.h"
#include <string.h>
#include <sys/random.h>

enum { MAX_BLOCK = 4096 };

static uint32_t n_groups(const mn_session *s) {
    return s->graph->hp.n_kv;
}

/* Pages of the group in a block. */
static uint32_t pages_per_block(const mn_session *s, uint32_t group) {
    return s->prefix.block / s->engine->group[group].page_tokens;
}

static int32_t *pages_of(const mn_session *s, int32_t node, uint32_t group) {
    const mn_prefix *x = &s->prefix;
    return x->pages + (size_t)node * x->row + x->at[group];
}

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
static bool measure(mn_session *s) {
    mn_prefix *x = &s->prefix;
    uint64_t block = 1;
    for (uint32_t i = 0; i < n_groups(s) && block <= MAX_BLOCK; i++)
        block = common_multiple(block, s->engine->group[i].page_tokens);
    if (!n_groups(s) || block > MAX_BLOCK)
        return false;
    x->block = (uint32_t)block;
    for (uint32_t i = 0; i < n_groups(s); i++) {
        x->at[i] = x->row;
        x->row += pages_per_block(s, i);
        x->n_nodes += s->pools[i].n_total / pages_per_block(s, i);
    }
    return true;
}

mn_status mn_prefix_create(mn_session *s, mn_error *err) {
    mn_prefix *x = &s->prefix;
    *x = (mn_prefix){.free = -1};
    if (s->no_cache || !measure(s))
        return MN_OK;
    while (x->n_heads < x->n_nodes)
        x->n_heads = x->n_heads ? 2 * x->n_heads : 64;
    x->nodes = mn_calloc(x->n_nodes + 1ull, sizeof *x->nodes);
    x->pages = mn_alloc((x->n_nodes + 1ull) * x->row, sizeof *x->pages);
    x->heads = mn_alloc(x->n_heads + 1ull, sizeof *x->heads);
    x->path = mn_alloc(s->n_ctx / x->block + 1ull, sizeof *x->path);
    if (!x->nodes || !x->pages || !x->heads || !x->path)
        return mn_fail_memory(err, x->n_nodes * (sizeof *x->nodes + 4ull * x->row));
    memset(x->heads, 0xff, x->n_heads * sizeof *x->heads);
    memset(x->pages, 0xff, (size_t)x->n_nodes * x->row * sizeof *x->pages);
    for (uint32_t i = x->n_nodes; i-- > 0;) {
        x->nodes[i].next = x->free;
        x->free = (int32_t)i;
    }
    if (getrandom(x->key, sizeof x->key, 0) != (ssize_t)sizeof x->key)
        x->key[0] = mn_now_ns();
    return MN_OK;
}

void mn_prefix_free(mn_session *s) {
    mn_prefix *x = &s->prefix;
    mn_free(x->nodes);
    mn_free(x->pages);
    mn_free(x->heads);
    mn_free(x->path);
    *x = (mn_prefix){.free = -1};
}

/* ---- nodes ----------------------------------------------------------------------------------- */
/* The hash of a block behind what *h stands for. */
static void advance(const mn_prefix *x, const int32_t *tokens, uint64_t h[2]) {
    mn_hash_keyed(x->key, h, tokens, x->block * sizeof *tokens, h);
}

static void begin(uint64_t salt, uint64_t h[2]) {
    h[0] = salt;
    h[1] = 0;
}

static int32_t *head_of(const mn_prefix *x, const uint64_t h[2]) {
    return &x->heads[h[0] & (x->n_heads - 1)];
}

/* -1 = unknown. */
static int32_t find(const mn_prefix *x, const uint64_t h[2]) {
    int32_t i = *head_of(x, h);
    while (i >= 0 && (x->nodes[i].hash[0] != h[0] || x->nodes[i].hash[1] != h[1]))
        i = x->nodes[i].next;
    return i;
}

/* -1 = all nodes are in use. */
static int32_t insert(mn_prefix *x, const uint64_t h[2]) {
    const int32_t i = x->free;
    if (i < 0)
        return -1;
    x->free = x->nodes[i].next;
    int32_t *head = head_of(x, h);
    x->nodes[i] = (mn_prefix_node){{h[0], h[1]}, *head, 0};
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

/* The node no longer names the group's pages. */
static void forget_group(mn_session *s, int32_t node, uint32_t group) {
    int32_t *pages = pages_of(s, node, group);
    if (pages[0] < 0)
        return;
    for (uint32_t k = 0; k < pages_per_block(s, group); k++) {
        mn_page_forget(s, group, pages[k]);
        pages[k] = -1;
    }
    s->prefix.nodes[node].n_groups--;
}

void mn_prefix_evict(mn_session *s, uint32_t group, int32_t page) {
    mn_prefix *x = &s->prefix;
    const int32_t node = s->pools[group].info[page].node;
    const bool sees_all = !s->graph->hp.kv[group].window;
    forget_group(s, node, group);
    /* without the pages of a group that sees all positions the block is of no use */
    for (uint32_t i = 0; sees_all && i < n_groups(s); i++)
        forget_group(s, node, i);
    if (!x->nodes[node].n_groups)
        drop_node(x, node);
}

/* ---- what sequences have computed ------------------------------------------------------------ */
/* The sequence's pages of the group in the block become known, if it has them all and nobody else's
 * are known. */
static void add_group(mn_session *s, uint32_t seq, uint32_t group, uint32_t block, int32_t node) {
    const mn_sequence *q = &s->seqs[seq];
    const uint32_t n = pages_per_block(s, group);
    const int32_t *row = s->packed + mn_engine_row(s->engine, group, seq) + (size_t)block * n;
    int32_t *pages = pages_of(s, node, group);
    if (pages[0] >= 0 || q->pages[group].lo > block * n || q->pages[group].hi < (block + 1) * n)
        return;
    for (uint32_t k = 0; k < n; k++)
        if (s->pools[group].info[row[k]].node >= 0)
            return;
    for (uint32_t k = 0; k < n; k++) {
        pages[k] = row[k];
        s->pools[group].info[row[k]].node = node;
    }
    s->prefix.nodes[node].n_groups++;
}

static bool shares(const mn_session *s, const mn_sequence *q) {
    return s->prefix.block && q->job && !(q->job->flags & MN_SUBMIT_NO_CACHE);
}

void mn_prefix_add(mn_session *s, uint32_t seq) {
    mn_sequence *q = &s->seqs[seq];
    mn_prefix *x = &s->prefix;
    const uint32_t n = MN_MIN(q->n_enqueued, q->n_tokens); /* what is stored, and known */
    if (!shares(s, q))
        return;
    for (; (q->n_blocks + 1) * x->block <= n; q->n_blocks++) {
        advance(x, q->tokens + (size_t)q->n_blocks * x->block, q->hash);
        int32_t node = find(x, q->hash);
        if (node < 0)
            node = insert(x, q->hash);
        for (uint32_t i = 0; i < n_groups(s) && node >= 0; i++)
            add_group(s, seq, i, q->n_blocks, node);
        if (node >= 0 && !x->nodes[node].n_groups)
            drop_node(x, node);
    }
}

/* ---- what requests can use again ------------------------------------------------------------- */
/* Whether the `run` last blocks before `block`, which the group has, are all that a row behind them
 * sees of it. */
static bool reaches(const mn_session *s, uint32_t group, uint32_t block, uint32_t run) {
    const uint32_t size = s->prefix.block;
    return mn_pages_first_seen(s, group, block * size) / size + run >= block;
}

/* Logprobs of a prompt want all of it computed, once. */
static bool uses(const mn_session *s, const mn_sequence *q) {
    return shares(s, q) && (!q->job->prompt_logprobs || q->job->told_prompt);
}

/* How many blocks of the tokens are known, as many as can be used; path: their nodes. */
static uint32_t look_up(mn_session *s, const int32_t *tokens, uint32_t n, uint64_t salt) {
    mn_prefix *x = &s->prefix;
    uint32_t run[MN_MAX_KV_GROUP] = {0}; /* blocks up to here that the group has */
    uint32_t best = 0;
    uint64_t h[2];
    begin(salt, h);
    for (uint32_t b = 0; (b + 1) * x->block <= n; b++) {
        bool usable = true;
        advance(x, tokens + (size_t)b * x->block, h);
        x->path[b] = find(x, h);
        for (uint32_t i = 0; i < n_groups(s); i++) {
            const bool has = x->path[b] >= 0 && pages_of(s, x->path[b], i)[0] >= 0;
            run[i] = has ? run[i] + 1 : 0;
            usable = usable && reaches(s, i, b + 1, run[i]);
            if (!has && !s->graph->hp.kv[i].window)
                return best;
        }
        if (usable)
            best = b + 1;
    }
    return best;
}

/* The group's pages of the blocks on the path, from the first that the next row sees, become the
 * sequence's, which has none. */
static void take_group(mn_session *s, uint32_t seq, uint32_t group, uint32_t n_blocks) {
    const mn_prefix *x = &s->prefix;
    const uint32_t n = pages_per_block(s, group);
    const uint32_t per = s->engine->group[group].page_tokens;
    const uint32_t lo = mn_pages_first_seen(s, group, n_blocks * x->block) / per;
    mn_sequence *q = &s->seqs[seq];
    int32_t *row = s->packed + mn_engine_row(s->engine, group, seq);
    for (uint32_t i = lo; i < n_blocks * n; i++) {
        row[i] = pages_of(s, x->path[i / n], group)[i % n];
        mn_page_hold(s, group, row[i]);
    }
    q->pages[group].lo = lo;
    q->pages[group].hi = n_blocks * n;
    mn_pages_changed(s, group, seq, lo, n_blocks * n);
}

void mn_prefix_begin(mn_sequence *q) {
    const uint64_t salt = q->job ? q->job->cache_salt : 0;
    q->n_blocks = 0;
    begin(salt, q->hash);
}

uint32_t mn_prefix_take(mn_session *s, uint32_t seq) {
    mn_sequence *q = &s->seqs[seq];
    mn_prefix *x = &s->prefix;
    if (!uses(s, q))
        return 0;
    const uint32_t n_blocks = look_up(s, q->tokens, q->n_tokens - 1, q->job->cache_salt);
    for (uint32_t i = 0; i < n_groups(s); i++)
        take_group(s, seq, i, n_blocks);
    for (; q->n_blocks < n_blocks; q->n_blocks++)
        advance(x, q->tokens + (size_t)q->n_blocks * x->block, q->hash);
    return n_blocks * x->block;
}

/* Whether the node has the pages of all groups. */
static bool is_whole(const mn_session *s, int32_t node) {
    return node >= 0 && s->prefix.nodes[node].n_groups == n_groups(s);
}

/* Whether the sequence has pages for the blocks behind it and for nothing else yet. */
static bool ends_with_block(const mn_session *s, const mn_sequence *q) {
    for (uint32_t i = 0; i < n_groups(s); i++)
        if (q->pages[i].hi != q->n_blocks * pages_per_block(s, i))
            return false;
    return q->n_enqueued == q->n_blocks * s->prefix.block;
}

/* One block more, whose pages another sequence has computed meanwhile. */
static void append(mn_session *s, uint32_t seq, int32_t node) {
    mn_sequence *q = &s->seqs[seq];
    for (uint32_t i = 0; i < n_groups(s); i++) {
        const uint32_t n = pages_per_block(s, i);
        int32_t *row = s->packed + mn_engine_row(s->engine, i, seq) + q->pages[i].hi;
        for (uint32_t k = 0; k < n; k++) {
            row[k] = pages_of(s, node, i)[k];
            mn_page_hold(s, i, row[k]);
        }
        mn_pages_changed(s, i, seq, q->pages[i].hi, q->pages[i].hi + n);
        q->pages[i].hi += n;
    }
}

uint32_t mn_prefix_continue(mn_session *s, uint32_t seq) {
    mn_sequence *q = &s->seqs[seq];
    mn_prefix *x = &s->prefix;
    uint32_t n = 0;
    if (!uses(s, q))
        return 0;
    mn_prefix_add(s, seq);
    while (ends_with_block(s, q) && q->n_enqueued + x->block < q->n_literal) {
        uint64_t h[2] = {q->hash[0], q->hash[1]};
        advance(x, q->tokens + q->n_enqueued, h);
        const int32_t node = find(x, h);
        if (!is_whole(s, node))
            break;
        append(s, seq, node);
        memcpy(q->hash, h, sizeof h);
        q->n_blocks++;
        q->n_enqueued += x->block;
        n += x->block;
    }
    x->n_hits += n;
    return n;
}
