/* vocab.c -- the vocabulary: pieces by id and by spelling, and the merges by pair of ids. Both are
 * tables with open addressing, at most half full. The spellings live in the vocabulary's arena, as
 * long as the tokeniser.
 *
 * Loading searches these tables a million times, and they are larger than the caches. A slot
 * therefore holds enough to refuse most spellings without a look at the piece, and searches are
 * announced ahead (mn_vocab_ask), so that memory is on its way when their turn comes. */
#include "text/tokenizer/tokenizer_impl.h"
#include <string.h>

size_t mn_vocab_slots(uint64_t n) {
    size_t slots = 16;
    while (slots < 2 * n)
        slots *= 2;
    return slots;
}

uint32_t mn_type_flags(int64_t type) {
    switch (type) {
    case MN_TYPE_CONTROL:
    case MN_TYPE_UNKNOWN:
        return MN_TOKEN_SPECIAL | MN_TOKEN_ADDED;
    case MN_TYPE_USER:
        return MN_TOKEN_ADDED;
    case MN_TYPE_BYTE:
        return MN_TOKEN_BYTE;
    default:
        return 0;
    }
}

mn_status mn_vocab_init(mn_vocab *v, uint64_t n, const char *where, mn_error *err) {
    if (n == 0 || n > MN_VOCAB_MAX)
        return mn_fail(err, MN_BAD_FILE, "%s: %llu tokens, expected 1..%d", where,
                       (unsigned long long)n, MN_VOCAB_MAX);
    v->n_slot = mn_vocab_slots(n);
    v->token = mn_calloc((size_t)n, sizeof *v->token);
    v->slot = mn_alloc(v->n_slot, sizeof *v->slot);
    if (!v->token || !v->slot)
        return mn_fail_memory(err, n * sizeof *v->token);
    v->n = (uint32_t)n;
    for (size_t i = 0; i < v->n_slot; i++)
        v->slot[i].id = -1;
    return MN_OK;
}

void mn_vocab_free(mn_vocab *v) {
    mn_arena_free(&v->arena);
    mn_free(v->token);
    mn_free(v->slot);
    mn_free(v->merge);
    memset(v, 0, sizeof *v);
}

/* ---- spellings ------------------------------------------------------------------------------- */

/* The hash has three uses: low bits choose the slot, the high 16 are its tag. */
static size_t first_slot(const mn_vocab *v, uint64_t hash) {
    return (size_t)hash & (v->n_slot - 1);
}

static uint16_t tag_of(uint64_t hash) {
    return (uint16_t)(hash >> 48);
}

static uint64_t hash_of(mn_str s) {
    return mn_hash(s.ptr, (size_t)s.len, 0);
}

/* What a slot has room for; longer pieces are compared by their tokens. */
static uint16_t cut_length(uint64_t n) {
    return (uint16_t)MN_MIN(n, UINT16_MAX);
}

/* The slot that holds this spelling, or the free one where it belongs. */
static mn_vocab_slot *vocab_find_slot(const mn_vocab *v, mn_str s, uint64_t hash) {
    const uint16_t tag = tag_of(hash);
    const uint16_t len = cut_length(s.len);
    const size_t last = v->n_slot - 1;
    size_t i = first_slot(v, hash);
    for (; v->slot[i].id >= 0; i = (i + 1) & last) {
        const mn_vocab_slot *slot = &v->slot[i];
        if (slot->tag != tag || slot->len != len)
            continue;
        if (len == UINT16_MAX && v->token[slot->id].piece.len != s.len)
            continue;
        if (!memcmp(slot->piece, s.ptr, (size_t)s.len))
            break;
    }
    return &v->slot[i];
}

/* again: a spelling that another id has goes over to this one; else it is an error. */
static mn_status vocab_enter(mn_vocab *v, int32_t id, mn_str piece, uint32_t flags, bool again,
                             const char *where, mn_error *err) {
    if (id < 0 || (uint32_t)id >= v->n)
        return mn_fail(err, MN_BAD_FILE, "%s: id %d of \"%.*s\" is out of range, there are %u",
                       where, id, MN_STR_ARG(piece), v->n);
    mn_vocab_token *t = &v->token[id];
    if (t->piece.len)
        return mn_fail(err, MN_BAD_FILE, "%s: id %d is given twice: \"%.*s\" and \"%.*s\"", where,
                       id, MN_STR_ARG(t->piece), MN_STR_ARG(piece));
    t->flags = flags;
    if (piece.len == 0)
        return MN_OK;
    const uint64_t hash = hash_of(piece);
    mn_vocab_slot *slot = vocab_find_slot(v, piece, hash);
    const bool taken = slot->id >= 0;
    if (taken && !again)
        return mn_fail(err, MN_BAD_FILE, "%s: \"%.*s\" is given twice: ids %d and %d", where,
                       MN_STR_ARG(piece), slot->id, id);
    if (taken)
        v->token[slot->id].flags |= MN_TOKEN_OUTSIDE;
    mn_status st = mn_vocab_keep(v, piece, &t->piece, err);
    if (st)
        return st;
    *slot = (mn_vocab_slot){tag_of(hash), cut_length(piece.len), id, t->piece.ptr};
    v->max_len = MN_MAX(v->max_len, (size_t)piece.len);
    return MN_OK;
}

mn_status mn_vocab_set(mn_vocab *v, int32_t id, mn_str piece, uint32_t flags, const char *where,
                       mn_error *err) {
    return vocab_enter(v, id, piece, flags, false, where, err);
}

mn_status mn_vocab_set_last(mn_vocab *v, int32_t id, mn_str piece, const char *where,
                            mn_error *err) {
    return vocab_enter(v, id, piece, 0, true, where, err);
}

mn_status mn_vocab_keep(mn_vocab *v, mn_str s, mn_str *copy, mn_error *err) {
    const char *p = mn_arena_strndup(&v->arena, s.ptr, (size_t)s.len);
    copy->ptr = p ? p : "";
    copy->len = p ? s.len : 0;
    return p ? MN_OK : mn_fail_memory(err, s.len);
}

int32_t mn_vocab_find(const mn_vocab *v, mn_str s) {
    return mn_vocab_find_hashed(v, s, hash_of(s));
}

int32_t mn_vocab_find_hashed(const mn_vocab *v, mn_str s, uint64_t hash) {
    if (s.len == 0 || s.len > v->max_len)
        return -1;
    return vocab_find_slot(v, s, hash)->id;
}

uint64_t mn_vocab_ask(const mn_vocab *v, mn_str s) {
    const uint64_t hash = hash_of(s);
    __builtin_prefetch(&v->slot[first_slot(v, hash)]);
    return hash;
}

void mn_vocab_ask_piece(const mn_vocab *v, uint64_t hash) {
    const mn_vocab_slot *slot = &v->slot[first_slot(v, hash)];
    if (slot->id >= 0)
        __builtin_prefetch(slot->piece);
}

int32_t mn_vocab_plain(const mn_vocab *v, mn_str s) {
    const uint32_t never = MN_TOKEN_SPECIAL | MN_TOKEN_BYTE | MN_TOKEN_OUTSIDE;
    const int32_t id = mn_vocab_find(v, s);
    if (id < 0 || v->token[id].flags & never)
        return -1;
    return id;
}

void mn_vocab_finish(mn_vocab *v) {
    static const char digit[] = "0123456789ABCDEF";
    for (uint32_t b = 0; b < 256; b++) {
        const char high = digit[b >> 4];
        const char low = digit[b & 15];
        const char spelling[] = {'<', '0', 'x', high, low, '>'};
        v->byte_id[b] = mn_vocab_find(v, (mn_str){spelling, sizeof spelling});
    }
    for (uint32_t c = 0; c < MN_COUNT(v->char_id); c++) {
        char utf8[4];
        const int n = mn_utf8_encode(c, utf8);
        v->char_id[c] = mn_vocab_plain(v, (mn_str){utf8, (uint64_t)n});
    }
}

bool mn_vocab_has_bytes(const mn_vocab *v, mn_str s) {
    for (uint64_t i = 0; i < s.len; i++)
        if (v->byte_id[(uint8_t)s.ptr[i]] < 0)
            return false;
    return true;
}

/* ---- merges ---------------------------------------------------------------------------------- */

static uint64_t vocab_pair_of(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t first_merge_slot(const mn_vocab *v, uint64_t pair) {
    const uint64_t h = pair * 0x9e3779b97f4a7c15u;
    return (size_t)(h ^ h >> 32) & (v->n_merge_slot - 1);
}

/* The slot of this pair, or the free one where it belongs. */
static mn_merge *merge_slot(const mn_vocab *v, uint64_t pair) {
    const size_t last = v->n_merge_slot - 1;
    size_t i = first_merge_slot(v, pair);
    while (v->merge[i].id >= 0 && v->merge[i].pair != pair)
        i = (i + 1) & last;
    return &v->merge[i];
}

const mn_merge *mn_vocab_merge(const mn_vocab *v, int32_t left, int32_t right) {
    if (!v->n_merge_slot || left < 0 || right < 0)
        return NULL;
    const mn_merge *m = merge_slot(v, vocab_pair_of(left, right));
    return m->id < 0 ? NULL : m;
}

mn_status mn_merges_begin(mn_merges *m, uint64_t n, mn_error *err) {
    mn_vocab *v = m->vocab;
    if (n > (1u << 28))
        return mn_fail(err, MN_BAD_FILE, "merges: %llu of them, expected at most %u",
                       (unsigned long long)n, 1u << 28);
    m->n_entry = 0;
    m->rank = 0;
    m->n_idle = 0;
    m->first_idle = (mn_error)MN_ERROR_INIT;
    v->n_merge_slot = mn_vocab_slots(n);
    v->merge = mn_alloc(v->n_merge_slot, sizeof *v->merge);
    if (!v->merge)
        return mn_fail_memory(err, v->n_merge_slot * sizeof *v->merge);
    for (size_t i = 0; i < v->n_merge_slot; i++)
        v->merge[i] = (mn_merge){0, 0, -1};
    return MN_OK;
}

/* Copies a merge to text, which has room for both pieces, and announces the three searches. */
static void set_entry(const mn_merges *m, mn_merge_entry *e, char *text, mn_str left,
                      mn_str right) {
    const uint64_t n = left.len;
    memcpy(text, left.ptr, (size_t)n);
    memcpy(text + n, right.ptr, (size_t)right.len);
    left.ptr = text;
    right.ptr = text + n;
    e->piece[0] = left;
    e->piece[1] = right;
    e->piece[2] = (mn_str){text, n + right.len};
    for (int k = 0; k < 3; k++)
        e->hash[k] = mn_vocab_ask(m->vocab, e->piece[k]);
}

bool mn_merge_halves(mn_str pair, size_t from, mn_str *left, mn_str *right) {
    if (pair.len <= from)
        return false;
    const char *end = pair.ptr + pair.len;
    const char *start = pair.ptr + from;
    const char *blank = memchr(start, ' ', (size_t)(end - start));
    if (!blank)
        return false;
    *left = (mn_str){pair.ptr, (uint64_t)(blank - pair.ptr)};
    *right = (mn_str){blank + 1, (uint64_t)(end - blank - 1)};
    return true;
}

/* One of a merge's pieces, what, is no token: an error, or with pass_over a count and the first
 * message. */
static mn_status unknown_piece(mn_merges *m, const mn_merge_entry *e, int32_t rank, mn_str what,
                               mn_error *err) {
    mn_error *to = m->pass_over ? &m->first_idle : err;
    if (m->pass_over && m->n_idle++)
        return MN_OK;
    mn_status st = mn_fail(
        to, MN_BAD_FILE, "%s: merge %d, \"%.*s\" with \"%.*s\": \"%.*s\" is not in the vocabulary",
        m->where, rank, MN_STR_ARG(e->piece[0]), MN_STR_ARG(e->piece[1]), MN_STR_ARG(what));
    return m->pass_over ? MN_OK : st;
}

/* The ids of one merge; id -1 = it cannot apply and is passed over. */
static mn_status vocab_resolve(mn_merges *m, const mn_merge_entry *e, int32_t rank, mn_merge *out,
                               mn_error *err) {
    const mn_vocab *v = m->vocab;
    int32_t id[3];
    *out = (mn_merge){.rank = rank, .id = -1};
    for (int k = 0; k < 3; k++) {
        const mn_str piece = e->piece[k];
        id[k] = mn_vocab_find_hashed(v, piece, e->hash[k]);
        if (id[k] < 0)
            return unknown_piece(m, e, rank, piece, err);
    }
    out->pair = vocab_pair_of(id[0], id[1]);
    out->id = id[2];
    const size_t slot = first_merge_slot(v, out->pair);
    __builtin_prefetch(&v->merge[slot]);
    return MN_OK;
}

/* Enters n merges, the first of them of rank m->rank. */
static mn_status enter_merges(mn_merges *m, const mn_merge_entry *entry, uint32_t n,
                              mn_error *err) {
    const mn_vocab *v = m->vocab;
    mn_merge found[MN_COUNT(m->entry)];
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < n; i++)
        for (int k = 0; k < 3; k++)
            mn_vocab_ask_piece(v, entry[i].hash[k]);
    for (uint32_t i = 0; !st && i < n; i++) {
        const int32_t rank = m->rank + (int32_t)i;
        st = vocab_resolve(m, &entry[i], rank, &found[i], err);
    }
    for (uint32_t i = 0; !st && i < n; i++) {
        if (found[i].id < 0)
            continue;
        mn_merge *slot = merge_slot(v, found[i].pair);
        if (slot->id < 0 || m->last_wins)
            *slot = found[i];
    }
    m->rank += (int32_t)n;
    m->n_entry = 0;
    return st;
}

mn_status mn_merges_end(mn_merges *m, mn_error *err) {
    return enter_merges(m, m->entry, m->n_entry, err);
}

/* A merge that no entry has room for goes in by itself, behind those that wait. */
static mn_status add_long(mn_merges *m, mn_str left, mn_str right, mn_error *err) {
    const size_t room = (size_t)(left.len + right.len);
    mn_merge_entry alone;
    char *text = mn_alloc(room, 1);
    if (!text)
        return mn_fail_memory(err, room);
    set_entry(m, &alone, text, left, right);
    mn_status st = enter_merges(m, &alone, 1, err);
    mn_free(text);
    return st;
}

mn_status mn_merges_add(mn_merges *m, mn_str left, mn_str right, mn_error *err) {
    const bool is_long = left.len + right.len > sizeof m->entry->text;
    if (is_long || m->n_entry == MN_COUNT(m->entry)) {
        mn_status st = enter_merges(m, m->entry, m->n_entry, err);
        if (st)
            return st;
    }
    if (is_long)
        return add_long(m, left, right, err);
    mn_merge_entry *e = &m->entry[m->n_entry++];
    set_entry(m, e, e->text, left, right);
    return MN_OK;
}
