/* vocab.c -- pieces by id and by spelling: open addressing, at most half full. */
#include "text/tokenizer/tokenizer_impl.h"
#include <string.h>

size_t mn_vocab_slots(uint64_t n) {
    size_t slots = 16;
    while (slots < 2 * n)
        slots *= 2;
    return slots;
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

static size_t first_slot(const mn_vocab *v, uint64_t hash) {
    return (size_t)hash & (v->n_slot - 1);
}
static uint16_t tag_of(uint64_t hash) {
    return (uint16_t)(hash >> 48);
}

/* The slot that holds this spelling, or the free one where it belongs. */
static size_t find_slot(const mn_vocab *v, const char *s, size_t n, uint64_t hash) {
    size_t i = first_slot(v, hash);
    const uint16_t tag = tag_of(hash);
    for (; v->slot[i].id >= 0; i = (i + 1) & (v->n_slot - 1)) {
        const mn_vocab_slot *slot = &v->slot[i];
        if (slot->tag != tag || slot->len != MN_MIN(n, UINT16_MAX))
            continue;
        if (n >= UINT16_MAX && v->token[slot->id].piece.len != n)
            continue;
        if (!memcmp(slot->piece, s, n))
            break;
    }
    return i;
}

static mn_status enter(mn_vocab *v, int32_t id, mn_str piece, uint32_t flags, bool again,
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
    const uint64_t hash = mn_hash(piece.ptr, (size_t)piece.len, 0);
    size_t i = find_slot(v, piece.ptr, (size_t)piece.len, hash);
    if (v->slot[i].id >= 0 && again)
        v->token[v->slot[i].id].flags |= MN_TOKEN_OUTSIDE;
    if (v->slot[i].id >= 0 && !again)
        return mn_fail(err, MN_BAD_FILE, "%s: \"%.*s\" is given twice: ids %d and %d", where,
                       MN_STR_ARG(piece), v->slot[i].id, id);
    char *copy = mn_arena_strndup(&v->arena, piece.ptr, (size_t)piece.len);
    if (!copy)
        return mn_fail_memory(err, piece.len + 1);
    t->piece = (mn_str){copy, piece.len};
    v->slot[i] = (mn_vocab_slot){tag_of(hash), (uint16_t)MN_MIN(piece.len, UINT16_MAX), id, copy};
    v->max_len = MN_MAX(v->max_len, (size_t)piece.len);
    return MN_OK;
}

mn_status mn_vocab_set(mn_vocab *v, int32_t id, mn_str piece, uint32_t flags, const char *where,
                       mn_error *err) {
    return enter(v, id, piece, flags, false, where, err);
}

mn_status mn_vocab_set_last(mn_vocab *v, int32_t id, mn_str piece, const char *where,
                            mn_error *err) {
    return enter(v, id, piece, 0, true, where, err);
}

int32_t mn_vocab_find(const mn_vocab *v, const char *s, size_t n) {
    return mn_vocab_find_hashed(v, s, n, mn_hash(s, n, 0));
}

int32_t mn_vocab_find_hashed(const mn_vocab *v, const char *s, size_t n, uint64_t hash) {
    return n == 0 || n > v->max_len ? -1 : v->slot[find_slot(v, s, n, hash)].id;
}

uint64_t mn_vocab_ask(const mn_vocab *v, const char *s, size_t n) {
    const uint64_t hash = mn_hash(s, n, 0);
    __builtin_prefetch(&v->slot[first_slot(v, hash)]);
    return hash;
}

void mn_vocab_ask_piece(const mn_vocab *v, uint64_t hash) {
    const mn_vocab_slot *slot = &v->slot[first_slot(v, hash)];
    if (slot->id >= 0)
        __builtin_prefetch(slot->piece);
}

int32_t mn_vocab_plain(const mn_vocab *v, const char *s, size_t n) {
    int32_t id = mn_vocab_find(v, s, n);
    return id >= 0 && v->token[id].flags & (MN_TOKEN_SPECIAL | MN_TOKEN_BYTE | MN_TOKEN_OUTSIDE)
               ? -1
               : id;
}

void mn_vocab_finish(mn_vocab *v) {
    static const char digit[] = "0123456789ABCDEF";
    for (uint32_t b = 0; b < 256; b++) {
        char spelling[6] = {'<', '0', 'x', digit[b >> 4], digit[b & 15], '>'};
        v->byte_id[b] = mn_vocab_find(v, spelling, sizeof spelling);
    }
    for (uint32_t c = 0; c < MN_COUNT(v->char_id); c++) {
        char utf8[4];
        v->char_id[c] = mn_vocab_plain(v, utf8, (size_t)mn_utf8_encode(c, utf8));
    }
}

bool mn_vocab_has_bytes(const mn_vocab *v, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (v->byte_id[(uint8_t)s[i]] < 0)
            return false;
    return true;
}

mn_status mn_vocab_keep(mn_vocab *v, mn_str s, mn_str *copy, mn_error *err) {
    char *p = mn_arena_strndup(&v->arena, s.ptr, (size_t)s.len);
    *copy = (mn_str){p ? p : "", p ? s.len : 0};
    return p ? MN_OK : mn_fail_memory(err, s.len);
}
